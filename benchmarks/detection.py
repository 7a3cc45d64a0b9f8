"""Are labelled events detected?  Beside a threshold and hmmlearn: solar flares, and the real series of NAB.

GOES-16, 2022: log flux above its baseline; the first 250,000 good minutes to learn from, the rest to test on; flares of
class M and X by the rule of the data's README.  The regime is the state with the largest mean, learnt without labels;
the threshold is chosen on the labels of the training minutes.

NAB: each series by itself, learnt whole and without labels; no method sees a window.

``python benchmarks/detection.py [solar] [nab] [calibration]`` runs the parts that are named, or all; the others are
kept as they are in results/detection.json (one that is not in it is run as well).  Writes results/detection.*.
"""

import json
import os
import pathlib
import sys
import time
import warnings
from itertools import pairwise

import numpy as np

import rarehmm as rh

RESULTS = pathlib.Path(__file__).parent / "results"
DATA = pathlib.Path(os.environ.get("RAREHMM_DATA", "../shared/data"))
TRAIN = 250_000
STATES = 3  # of all fits to NAB


# ---------------------------------------------------------------- solar flares
def solar():
    """Residual log flux, and the class of the flare each minute is in (0 none, 3 C, 4 M, 5 X)."""
    folder = DATA / "goes_g16_2022"
    y = np.load(folder / "derived_paperstyle_residual.npz")["ln_residual"].astype(float)
    file = np.load(folder / "g16_xrs_1m_20220101_20220814.npz")
    return y, file["derived_class_swpc_rule"][file["derived_good"].astype(bool)]


def stretches(inside):
    edges = np.flatnonzero(np.diff(inside.astype(int), prepend=0, append=0))
    return list(zip(edges[::2], edges[1::2], strict=True))


def scores(name, alarm, kind, seconds, labels):
    """Of an alarm (T,), by minutes and by events: M and X flares, and alarms with a flare of class C or above."""
    strong, flares, alarms = kind >= 4, stretches(kind >= 4), stretches(alarm)
    hit = sum(alarm[a:b].any() for a, b in flares)
    true = sum((kind[a:b] >= 3).any() for a, b in alarms)
    return {
        "name": name, "flares": len(flares), "hit": hit, "alarms": len(alarms), "with a flare": true,
        "recall": float(alarm[strong].mean()), "precision": float(strong[alarm].mean()) if alarm.any() else 0.0,
        "share": float(alarm.mean()), "seconds": seconds, "labels": labels,
    }  # fmt: skip


def flares():
    """M and X flares in the minutes after those learnt from; the verdict on the fit."""
    from hmmlearn.hmm import GaussianHMM

    y, kind = solar()
    learn, test, kind_learn, kind_test = y[:TRAIN], y[TRAIN:], kind[:TRAIN], kind[TRAIN:]
    began = time.perf_counter()
    hmm = rh.RareHMM(4).fit(learn)
    seconds = time.perf_counter() - began
    flare = int(np.argmax(hmm.means_[:, 0]))
    found = [
        scores("RareHMM, smoothed", hmm.predict_proba(test)[:, flare] > 0.5, kind_test, seconds, "none"),
        scores("RareHMM, causal", hmm.filter_proba(test)[:, flare] > 0.5, kind_test, seconds, "none"),
    ]
    grid = np.quantile(learn, np.linspace(0.5, 0.9999, 400))
    strong = kind_learn >= 4
    f1 = [2 * (strong & (learn > c)).sum() / max(1, strong.sum() + (learn > c).sum()) for c in grid]
    best = grid[int(np.argmax(f1))]
    found.append(
        scores(f"threshold {best:.2f}, best F1 on labels", test > best, kind_test, 0.0, "all of the first part")
    )
    began = time.perf_counter()
    fits = [GaussianHMM(4, n_iter=100, random_state=seed).fit(learn[:, None]) for seed in range(5)]
    other = max(fits, key=lambda fit: fit.score(learn[:, None]))
    seconds = time.perf_counter() - began
    top = int(np.argmax(other.means_[:, 0]))
    alarm = other.predict_proba(test[:, None])[:, top] > 0.5
    found.append(scores("hmmlearn, best of 5 seeds, smoothed", alarm, kind_test, seconds, "none"))
    return {"solar": found, "verdict": hmm.verdict_}


# ---------------------------------------------------------------- NAB
def by_rarehmm(y):
    """Alarms of the rare states, smoothed and causal, and of the state with the smallest share, as hmmlearn's."""
    hmm = rh.RareHMM(STATES).fit(y)
    smoothed, causal, rare = hmm.predict_proba(y), hmm.filter_proba(y), hmm.rare_states_
    remarks = [] if len(rare) else ["no state is rare"]
    if not all(check.passed for check in hmm.posterior_.checks):
        remarks.append("the verdict is not good")
    probabilities = smoothed[:, rare].sum(1), causal[:, rare].sum(1), smallest(smoothed)
    return [probability > 0.5 for probability in probabilities], remarks


def by_threshold(y):
    return [np.abs(y - y.mean()) > 3 * y.std()], []


def by_hmmlearn(y):
    """On the series in standard units: its prior of variances and its smallest variance are not free of scale."""
    from hmmlearn.hmm import GaussianHMM

    z = ((y - y.mean()) / y.std())[:, None]
    fits = [GaussianHMM(STATES, n_iter=100, random_state=seed).fit(z) for seed in range(5)]
    return [smallest(max(fits, key=lambda fit: fit.score(z)).predict_proba(z)) > 0.5], []


def smallest(probabilities):
    """Probability (T,) of the state with the smallest share."""
    return probabilities[:, np.argmin(probabilities.sum(0))]


METHODS = {
    by_rarehmm: ("RareHMM, smoothed", "RareHMM, causal", "RareHMM, smallest state, smoothed"),
    by_threshold: ("3 standard deviations from the mean",),
    by_hmmlearn: ("hmmlearn, best of 5 seeds, smallest state, smoothed",),
}


def counts(alarm, window, seconds):
    """Of an alarm (T,) on one series; they add up over series."""
    windows, alarms = stretches(window), stretches(alarm)
    return {
        "series": 1, "windows": len(windows), "hit": sum(bool(alarm[a:b].any()) for a, b in windows),
        "alarms": len(alarms), "in a window": sum(bool(window[a:b].any()) for a, b in alarms),
        "points": len(alarm), "window points": int(window.sum()), "alarm points": int(alarm.sum()),
        "both": int((alarm & window).sum()), "seconds": seconds,
    }  # fmt: skip


def compared(y):
    """Alarm (T,) and seconds of each method on one series, and remarks; a refusal is a remark and no alarm."""
    found, remarks = {}, []
    for method, names in METHODS.items():
        began = time.perf_counter()
        try:
            alarms, said = method(y)
        except ValueError as error:
            alarms, said = [np.zeros(len(y), dtype=bool)] * len(names), [f"{names[0]}: {error}"]
        seconds = time.perf_counter() - began
        found |= {name: (alarm, seconds) for name, alarm in zip(names, alarms, strict=True)}
        remarks += said
    return found, remarks


def nab():
    """Counts by group and method, and remarks, each with the series that it is about."""
    file = np.load(DATA / "nab" / "nab_real.npz")
    rows, remarks = {}, {}
    for series in sorted({key.split("|")[0] for key in file}):
        window = file[f"{series}|window"] > 0
        found, said = compared(file[f"{series}|v"].astype(float))
        groups = ["all", series.split("__")[0]]
        groups += ["all with an alarm of RareHMM"] if found["RareHMM, smoothed"][0].any() else []
        for name, (alarm, seconds) in found.items():
            for group in groups:
                row = rows.setdefault((group, name), {"group": group, "name": name})
                row.update({key: row.get(key, 0) + value for key, value in counts(alarm, window, seconds).items()})
        for message in said:
            remarks.setdefault(message, []).append(series)
    return {"nab": {"rows": sorted(rows.values(), key=lambda row: row["group"]), "remarks": remarks}}


# ---------------------------------------------------------------- calibration
def reliability(probability, truth, edges):
    """Rows: bin, mean probability, share of minutes in the regime, count."""
    rows = []
    for low, high in pairwise(edges):
        mine = (probability >= low) & (probability < high)
        if mine.any():
            rows.append([low, high, float(probability[mine].mean()), float(truth[mine].mean()), int(mine.sum())])
    return rows


def calibrated():
    """Reliability of the smoothed and the causal probability of a rare state, and of events, where the truth is known.

    Of an event: its mean probability, and the share of its observations that are in the state.
    """
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    P = [[0.98, 0.018, 0.002], [0.02, 0.975, 0.005], [0.1, 0.1, 0.8]]
    truth = model.parameters(P, mean=[-2, 0, 2.5], variance=1)
    y, states = rh.simulate(np.random.default_rng(7), model, truth, 400_000)
    hmm = rh.RareHMM(3).fit(y[:200_000])
    edges = [0, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0001]
    rare, seen = hmm.rare_states_, states[200_000:] == 2
    curves = {
        name: reliability(function(y[200_000:])[:, rare].sum(1), seen, edges)
        for name, function in (("smoothed", hmm.predict_proba), ("causal", hmm.filter_proba))
    }
    events = hmm.rare_events(y[200_000:], threshold=0.1)
    share = np.array([seen[a : b + 1].mean() for a, b in zip(events["start"], events["end"], strict=True)])
    curves["events"] = reliability(events["probability"].to_numpy(), share, [0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 1.0001])
    draw(curves)
    return {"reliability": curves}


def draw(curves):
    """The reliability curves as a picture, with twice the standard error of each share."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", lw=1)
    for (name, rows), mark in zip(curves.items(), "os^", strict=True):
        _, _, mean, share, count = (np.array(column) for column in zip(*rows, strict=True))
        error = 2 * np.sqrt(np.maximum(share * (1 - share), 1e-4) / count)
        axes.errorbar(mean, share, error, fmt=f"{mark}-", ms=4, lw=1, label=name)
    axes.set(xlabel="probability of the rare state", ylabel="share that is in it", aspect="equal")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend()
    figure.savefig(RESULTS / "reliability.png", dpi=110)


# ---------------------------------------------------------------- the page
PARTS = {"solar": ("solar", flares), "nab": ("nab", nab), "calibration": ("reliability", calibrated)}  # with their keys


def main(asked):
    if unknown := set(asked) - set(PARTS):
        sys.exit(f"{', '.join(sorted(unknown))}: no such part; there are {', '.join(PARTS)}.")
    warnings.simplefilter("ignore")
    path = RESULTS / "detection.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for part, (key, function) in PARTS.items():
        if part in asked or not asked or key not in found:
            found.update(function())
    path.write_text(json.dumps(found, indent=1, default=float) + "\n")
    lines = [*solar_page(found["solar"], found["verdict"]), *reliability_page(found["reliability"])]
    lines += nab_page(**found["nab"])
    (RESULTS / "detection.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def solar_page(found, verdict):
    lines = [
        "# Detection: solar flares, NAB, and whether probabilities are right",
        "",
        "Written by `make detection`; do not edit. GOES-16, 2022: 250,000 minutes to learn from, the table is of the",
        "70,871 after them. The regime is the state with the largest mean of four. Flares: class M and X. Alarms",
        "with a flare: class C or above. Recall and precision are of minutes in M and X flares: an alarm goes on",
        "through the decay of a flare and through flares of lower class, so that precision is low for all that never",
        "saw a label.",
        "",
        "| | labels used | flares hit | alarms | with a flare | recall | precision | share of minutes | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found:
        lines.append(
            f"| {r['name']} | {r['labels']} | {r['hit']:.0f} of {r['flares']} | {r['alarms']} "
            f"| {r['with a flare']:.0f} | {r['recall']:.1%} | {r['precision']:.1%} | {r['share']:.1%} "
            f"| {r['seconds']:.1f} |"
        )
    return [*lines, "", f"The verdict on the fit: {verdict}", ""]


def reliability_page(curves):
    lines = [
        "## Are probabilities of a rare state right?",
        "",
        "Simulated: three states, a rare one 2.5 standard deviations from its neighbour; learnt on 200,000, tested on",
        "the next 200,000. Events are those at a threshold of .1; theirs is the mean probability, and the share of",
        "their observations in the state.",
        "",
        "![Reliability curves](reliability.png)",
        "",
        "| | probability | mean probability | share in the state | observations |",
        "|---|---|---|---|---|",
    ]
    for name, rows in curves.items():
        for low, high, mean, share, count in rows:
            lines.append(f"| {name} | {low:g} to {min(high, 1):g} | {mean:.4f} | {share:.4f} | {count:,} |")
    return [*lines, ""]


def nab_page(rows, remarks):
    total = rows[0]
    short, inside = total["points"] / total["series"], total["window points"] / total["points"]
    lines = [
        "## NAB",
        "",
        "The real series of the Numenta Anomaly Benchmark, reported **without a target**: its windows are for scoring,",
        "stretches around a labelled moment, and most of their points are ordinary. They are not labels of states, and",
        f"not rare: {inside:.0%} of all points, which is also the precision of alarms at random. The series are short,",
        f"{short:,.0f} points on average.",
        "",
        "Each series is learnt whole, without labels, and scored whole; NAB itself leaves the first 15 % (750 points",
        "at most) unscored, to learn from. So parameters know the future, those behind causal probabilities too, and",
        "these numbers are not to be compared with NAB's scores. Nothing was tuned:",
        f"{STATES} Gaussian states for all series, values as they are and in their order; times are not used.",
        "",
        "RareHMM's alarm: its rare states together have a probability above 0.5; where no state is called rare there",
        "is no alarm. hmmlearn (on values in standard units) does not say what is rare: its alarm is the state with",
        "the smallest share, however large; RareHMM by the same rule is in the third row. The threshold is two-sided.",
        "",
        "A window is hit if an alarm touches it; an alarm, a stretch of points, is in a window if it touches one.",
        "Counts are summed over series. Precision is of points. Seconds are of fits and probabilities together.",
        "",
        "| group (series) | | windows hit | recall | alarms | in a window | precision | share of points | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['group']} ({r['series']}) | {r['name']} | {r['hit']} of {r['windows']} "
            f"| {percent(r['hit'], r['windows'])} | {r['alarms']:,} | {percent(r['in a window'], r['alarms'])} "
            f"| {percent(r['both'], r['alarm points'])} | {percent(r['alarm points'], r['points'])} "
            f"| {r['seconds']:.1f} |"
        )
    lines += [
        "",
        "Remarks (no rare state, a verdict that is not good, a series refused; names are in detection.json):",
        "",
    ]
    lines += [f"- {message}: {len(series)} of {total['series']} series" for message, series in remarks.items()]
    return lines


def percent(part, whole):
    return f"{part / whole:.1%}" if whole else "none"


if __name__ == "__main__":
    main(sys.argv[1:])
