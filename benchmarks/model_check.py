"""What asking "is this a model of the series?" costs a fit, and how often it is wrong about series of the model itself.

``make model-check``; writes results/model_check.md.  Fits with and without the check are timed in turn.
"""

import json
import pathlib
import time
import warnings

import numpy as np
from machine import commit, cpu

import rarehmm as rh

RESULTS = pathlib.Path(__file__).parent / "results"
TIMED, ROUNDS = (100_000, 1_000_000), 3
SETS = {300: 100, 3_000: 100, 30_000: 50, 300_000: 10}  # data sets of each length
TRANSITION = [[0.99, 0.0099, 0.0001], [0.0099, 0.99, 0.0001], [0.1, 0.1, 0.8]]  # as in the README


def simulated(seed, T):
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    truth = model.parameters(TRANSITION, mean=[-2, 0, 4], variance=1)
    return rh.simulate(np.random.default_rng(seed), model, truth, T)[0]


def seconds(y, **settings):
    began = time.perf_counter()
    hmm = rh.RareHMM(3, verbose=0, **settings).fit(y)
    return time.perf_counter() - began, hmm


def times(T):
    """Seconds of a fit without the check and with it, and of the check alone; the draws are the same."""
    y, found = simulated(0, T), []
    for _ in range(ROUNDS):
        (without, one), (with_it, other) = (seconds(y, check_model=check) for check in (False, True))
        np.testing.assert_array_equal(one.posterior_.phi, other.posterior_.phi)
        began = time.perf_counter()
        other.check(y)
        found.append((without, with_it, time.perf_counter() - began))
    return {"T": T, "seconds": np.min(found, axis=0).tolist()}


def false_alarms(T):
    """The checks that failed in fits to series of the model."""
    failed = []
    for seed in range(SETS[T]):
        check = seconds(simulated(10_000 + seed, T), method="map")[1].model_check_
        if not check.passed:
            failed.append([c.name for c in check.checks if not c.passed])
    return {"T": T, "sets": SETS[T], "failed": failed}


def report(data):
    lines = [
        "# The model check: its time and its false alarms",
        "",
        f"Written by `make model-check` at commit {data['commit']}, {data['date']}; do not edit. "
        f"Machine: {data['cpu']}.",
        "",
        f"Seconds of `RareHMM(3).fit` on the README's series, smallest of {ROUNDS}:",
        "",
        "| T | without the check | with it | the check alone |",
        "|---|---|---|---|",
        *(f"| {r['T']:,} | {' | '.join(f'{s:.2f}' for s in r['seconds'])} |" for r in data["times"]),
        "",
        'Fits (`method="map"`) to fresh series of that model in which some check failed:',
        "",
        "| T | series | failed | checks |",
        "|---|---|---|---|",
    ]
    for r in data["alarms"]:
        names = "; ".join(", ".join(each) for each in r["failed"])
        lines.append(f"| {r['T']:,} | {r['sets']} | {len(r['failed'])} | {names} |")
    return "\n".join(lines) + "\n"


def main():
    seconds(simulated(0, 20_000))  # kernels are compiled
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a state may be empty in the shortest series
        data = {
            "commit": commit(), "date": time.strftime("%Y-%m-%d"), "cpu": cpu(),
            "times": [times(T) for T in TIMED], "alarms": [false_alarms(T) for T in SETS],
        }  # fmt: skip
    (RESULTS / "model_check.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "model_check.md").write_text(report(data))
    print(report(data))


if __name__ == "__main__":
    main()
