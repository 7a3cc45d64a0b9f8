"""Are anomalies that experts labelled in real series found?  The automatic settings beside what others use.

Server metrics (kpi, by the minute) and NAB, each series by itself and without labels.  Every method gives a score to
each observation, and an alarm.  RareHMM: `rh.RareHMM("auto", ar="auto", season="auto", emission="auto")`, mode alone;
the score is the evidence of the event an observation is in, per observation, times the probability of its rare states;
the alarm is its events, as `rare_events` gives them.  The alarm of all others is a score of more than 5 robust standard
deviations.  Nothing is chosen by series or by labels.

``python benchmarks/anomalies.py [kpi] [nab]`` runs the sets that are named, or all; the others are kept as they are.
Writes results/anomalies.*.
"""

import json
import os
import pathlib
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np
import pandas as pd
from detection import stretches
from machine import made_by
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score

import rarehmm as rh

RESULTS = pathlib.Path(__file__).parent / "results"
DATA = pathlib.Path(os.environ.get("RAREHMM_DATA", "../shared/data"))
ROBUST = 5.0  # robust standard deviations from which others raise an alarm
WIDTH = 100  # largest buffer of VUS
LAGS = 10  # values in a row that the forest sees


# ---------------------------------------------------------------- data
def kpi():
    """Name, series (NaN where nothing was recorded) and labels of each server metric."""
    file = np.load(DATA / "kpi" / "kpi_ten.npz")
    for name in sorted({key.split("|")[0] for key in file}, key=int):
        values = file[f"{name}|value"].astype(float)
        times = pd.to_datetime(float(file[f"{name}|start"]) + 60 * np.arange(len(values)), unit="s")
        yield name, pd.Series(values, index=times), file[f"{name}|label"] > 0


def nab():
    """The same of NAB, whose labels are windows around what happened; rows in their order, times are not used."""
    file = np.load(DATA / "nab" / "nab_real.npz")
    for name in sorted({key.split("|")[0] for key in file}):
        yield name, pd.Series(file[f"{name}|v"].astype(float)), file[f"{name}|window"] > 0


SETS = {"kpi": kpi, "nab": nab}


# ---------------------------------------------------------------- methods: score and alarm (T,) of each
def by_rarehmm(y):
    hmm = rh.RareHMM("auto", ar="auto", season="auto" if has_times(y) else None, emission="auto", method="map")
    hmm.fit(y)
    rare, score = hmm.rare_states_, np.zeros(len(y))
    if len(rare) == 0:
        return score, score > 0
    probability = np.asarray(hmm.predict_proba(y))[:, rare].sum(1)
    alarm, score = np.zeros(len(y), dtype=bool), 1e-9 * probability
    for threshold in (0.05, 0.5):
        events = hmm.rare_events(y, threshold=threshold)
        first, last = (y.index.get_indexer(events[edge]) for edge in ("start", "end"))
        for a, b, evidence in zip(first, last, events["evidence"] / events["duration"], strict=True):
            score[a : b + 1] = np.maximum(evidence, 1e-9) * probability[a : b + 1]
            alarm[a : b + 1] = threshold == 0.5
    return score, alarm


def by_median(y):
    return np.abs(y - y.median()), None


def by_yesterday(y):
    """The residual of a naive forecast by season; by the last value where no time is known."""
    return np.abs(y - y.shift(day_of(y) or 1)), None


def by_stl(y):
    from statsmodels.tsa.seasonal import STL

    if not day_of(y):
        return None
    return np.abs(STL(y.interpolate(limit_direction="both"), period=day_of(y)).fit().resid), None


def by_forest(y):
    z = y.interpolate(limit_direction="both").to_numpy()
    rows = np.lib.stride_tricks.sliding_window_view(np.pad(z, (LAGS - 1, 0), mode="edge"), LAGS)
    return pd.Series(-IsolationForest(random_state=0).fit(rows).score_samples(rows), index=y.index), None


def by_hmmlearn(y):
    from hmmlearn.hmm import GaussianHMM

    z = y.interpolate(limit_direction="both")
    z = ((z - z.mean()) / z.std()).to_numpy()[:, None]
    fits = [GaussianHMM(3, n_iter=100, random_state=seed).fit(z) for seed in range(5)]
    found = max(fits, key=lambda fit: fit.score(z)).predict_proba(z)
    rarest = found[:, np.argmin(found.sum(0))]
    return rarest, rarest > 0.5


def has_times(y):
    return isinstance(y.index, pd.DatetimeIndex)


def day_of(y):
    """Rows in a day, or 0."""
    return round(pd.Timedelta("1D") / (y.index[1] - y.index[0])) if has_times(y) else 0


METHODS = {
    "RareHMM, automatic": by_rarehmm, "distance from the median": by_median, "seasonal naive": by_yesterday,
    "STL": by_stl, "Isolation Forest": by_forest, "hmmlearn, smallest of 3 states": by_hmmlearn,
}  # fmt: skip


# ---------------------------------------------------------------- measures
def measured(score, alarm, label, seen):
    """Average precision and VUS-PR by observation; hits and alarms by event."""
    score = np.nan_to_num(np.asarray(score, dtype=float))
    if alarm is None:
        middle = np.median(score[seen])
        alarm = score > middle + ROBUST * 1.4826 * max(np.median(np.abs(score[seen] - middle)), 1e-12)
    alarm = np.asarray(alarm) & seen
    events, alarms = stretches(label & seen), stretches(alarm)
    return {
        "precision": float(average_precision_score(label[seen], score[seen])), "vus": vus(label[seen], score[seen]),
        "events": len(events), "hit": sum(bool(alarm[a:b].any()) for a, b in events),
        "alarms": len(alarms), "true": sum(bool(label[a:b].any()) for a, b in alarms),
        "share": float(alarm.mean()),
    }  # fmt: skip


def vus(label, score):
    """Volume under the surface of precision and recall, by the package of its authors; NaN where it is missing."""
    try:
        from vus.utils.metrics import metricor
    except ImportError:
        return np.nan
    return float(metricor().RangeAUC_volume_opt(label.astype(float), score, WIDTH)[-1])


def one(kind, name, method, y, label):
    """Measures of one method on one series; a refusal is no alarm."""
    warnings.simplefilter("ignore")
    row, began = {"set": kind, "series": name, "method": method}, time.perf_counter()
    try:
        found = METHODS[method](y)
    except ValueError as error:
        found = np.zeros(len(y)), np.zeros(len(y), dtype=bool)
        row["refused"] = str(error)
    if found is None:
        return None
    return row | {"seconds": time.perf_counter() - began} | measured(*found, label, y.notna().to_numpy())


# ---------------------------------------------------------------- the page
def table(rows):
    lines = [
        "| | series | average precision | VUS-PR | events hit | right alarms | F1 by event | time alarmed | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        events, hit, alarms, true = (sum(row[key] for row in mine) for key in ("events", "hit", "alarms", "true"))
        recall, right = hit / max(events, 1), true / max(alarms, 1)
        f1 = 2 * recall * right / max(recall + right, 1e-12)
        mean = {key: np.mean([row[key] for row in mine]) for key in ("precision", "vus", "share")}
        volume = f"{mean['vus']:.2f}" if np.isfinite(mean["vus"]) else ""
        lines.append(
            f"| {method} | {len(mine)} | {mean['precision']:.2f} | {volume} | {hit} of {events} | {true} of {alarms} "
            f"| {f1:.2f} | {mean['share']:.1%} | {np.median([row['seconds'] for row in mine]):.1f} |"
        )
    return lines


def each(rows):
    """Average precision of each method on each series."""
    names = sorted({row["series"] for row in rows}, key=lambda name: (len(name), name))
    at = {(row["series"], row["method"]): row["precision"] for row in rows}
    lines = ["| series | " + " | ".join(METHODS) + " |", "|---|" + "---|" * len(METHODS)]
    for name in names:
        values = [f"{at[name, method]:.2f}" if (name, method) in at else "" for method in METHODS]
        lines.append(f"| {name} | " + " | ".join(values) + " |")
    return lines


def report(made, found):
    lines = [
        "# Anomalies labelled by experts",
        "",
        made,
        "",
        "Every series by itself, without labels; nothing is chosen by series. Average precision and VUS-PR (buffers up",
        f"to {WIDTH}) are means over series, by observation. An event is a labelled stretch, hit if an alarm",
        "touches it; an alarm, a stretch, is right if it touches one; both are added up over series. Alarms of RareHMM",
        f"are its events, of hmmlearn the state above .5, of all others scores more than {ROBUST:g} robust standard",
        "deviations above their median. Seconds: median.",
    ]
    for kind, title in (("kpi", "Server metrics"), ("nab", "NAB")):
        rows = [row for row in found if row["set"] == kind]
        if rows:
            lines += ["", f"## {title}", "", *table(rows)]
            if kind == "kpi":
                lines += ["", "Average precision, series by series:", "", *each(rows)]
            refused = [row for row in rows if "refused" in row]
            lines += ["", *(f"- {row['method']}, {row['series']}: {row['refused']}" for row in refused)]
    return "\n".join(lines).rstrip() + "\n"


def main(asked):
    if unknown := set(asked) - set(SETS):
        sys.exit(f"{', '.join(sorted(unknown))}: no such set; there are {', '.join(SETS)}.")
    path, made = RESULTS / "anomalies.json", made_by("detection")
    found = json.loads(path.read_text())["found"] if path.exists() and asked else []
    found = [row for row in found if row["set"] not in asked]
    with ProcessPoolExecutor(2) as pool:
        jobs = [
            pool.submit(one, kind, name, method, y, label)
            for kind in asked or SETS
            for name, y, label in SETS[kind]()
            for method in METHODS
        ]
        for job in as_completed(jobs):
            if (row := job.result()) is not None:
                found.append(row)
                print(json.dumps(row, default=float), flush=True)
    path.write_text(json.dumps({"made": made, "found": found}, indent=1, default=float) + "\n")
    (RESULTS / "anomalies.md").write_text(report(made, found))


if __name__ == "__main__":
    main(sys.argv[1:])
