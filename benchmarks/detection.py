"""Are solar flares detected?  Beside a threshold and hmmlearn, on minutes that were not learnt from.

GOES-16, 2022: log flux above its baseline; the first 250,000 good minutes to learn from, the rest to test on; flares of
class M and X by the rule of the data's README.  The regime is the state with the largest mean, learnt without labels;
the threshold is chosen on the labels of the training minutes.  Writes results/detection.*.
"""

import json
import os
import pathlib
import time
import warnings
from itertools import pairwise

import numpy as np

import rarehmm as rh

RESULTS = pathlib.Path(__file__).parent / "results"
DATA = pathlib.Path(os.environ.get("RAREHMM_DATA", "../shared/data"))
TRAIN = 250_000


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


def reliability(probability, truth, edges):
    """Rows: bin, mean probability, share of minutes in the regime, count."""
    rows = []
    for low, high in pairwise(edges):
        mine = (probability >= low) & (probability < high)
        if mine.any():
            rows.append([low, high, float(probability[mine].mean()), float(truth[mine].mean()), int(mine.sum())])
    return rows


def calibrated():
    """Reliability of the smoothed and the causal probability of a rare state, where the truth is known."""
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    P = [[0.98, 0.018, 0.002], [0.02, 0.975, 0.005], [0.1, 0.1, 0.8]]
    truth = model.parameters(P, mean=[-2, 0, 2.5], variance=1)
    y, states = rh.simulate(np.random.default_rng(7), model, truth, 400_000)
    hmm = rh.RareHMM(3).fit(y[:200_000])
    edges = [0, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0001]
    rare, seen = hmm.rare_states_, states[200_000:] == 2
    return {
        name: reliability(function(y[200_000:])[:, rare].sum(1), seen, edges)
        for name, function in (("smoothed", hmm.predict_proba), ("causal", hmm.filter_proba))
    }


def main():
    warnings.simplefilter("ignore")
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
    write(found, hmm.verdict_, calibrated())


def write(found, verdict, curves):
    lines = [
        "# Detecting solar flares",
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
            f"| {r['name']} | {r['labels']} | {r['hit']} of {r['flares']} | {r['alarms']} | {r['with a flare']} "
            f"| {r['recall']:.1%} | {r['precision']:.1%} | {r['share']:.1%} | {r['seconds']:.1f} |"
        )
    lines += ["", f"The verdict on the fit: {verdict}", "", "## Are probabilities of a rare state right?", ""]
    lines += [
        "Simulated: three states, a rare one 2.5 standard deviations from its neighbour; learnt on 200,000, tested on"
    ]
    lines += ["the next 200,000.", "", "| | probability | mean probability | share in the state | observations |"]
    lines += ["|---|---|---|---|---|"]
    for name, rows in curves.items():
        for low, high, mean, share, count in rows:
            lines.append(f"| {name} | {low:g} to {min(high, 1):g} | {mean:.4f} | {share:.4f} | {count:,} |")
    (RESULTS / "detection.md").write_text("\n".join(lines) + "\n")
    (RESULTS / "detection.json").write_text(
        json.dumps({"solar": found, "verdict": verdict, "reliability": curves}, indent=1, default=float) + "\n"
    )
    print("\n".join(lines))


if __name__ == "__main__":
    main()
