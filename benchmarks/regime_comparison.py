"""statsmodels, dynamax and rarehmm on a rare regime in autocorrelated noise: time to a fit, likelihood, regime found.

Three states with levels -2, 0 and 4 in standard deviations of the innovations, the last in .5 % of the observations,
and AR(1) noise with rho .6; seed i is a data set of its own.  The fits are in peers.py; one rule, in this file, judges
the parameters that a fit returns, by the likelihood of the model that it fitted, given the first observation.  dynamax
is left out where JAX is missing.  Writes results/regime_comparison.*.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import json
import pathlib
import tempfile
import time
import warnings

import numpy as np
from comparison import Cell, behind, filled, fits, lines_of, machine, message
from finding import f1
from machine import made_by
from peers import REGIME_TOOLS
from regime_configurations import HALF, around, simulated

import rarehmm as rh
from rarehmm.model.autoregression import AroundLevel, Intercept

RESULTS = pathlib.Path(__file__).parent / "results"
SIZES = (2_000, 10_000, 100_000, 1_000_000)
CASE = around([-2, 0, 4], 0.6, transition=HALF)
NEEDS = {"statsmodels": "statsmodels", "dynamax": "dynamax"}
FIND, FASTER = 19 / 20, 50  # from T = 10,000 on; times as fast as statsmodels there
ABOUT = (
    "MarkovAutoregression: order 1, one coefficient, variances of states, as ours. MarkovRegression: the last value as "
    "a regressor, so that states have intercepts instead of levels, which is another model; so is dynamax's "
    "LinearAutoregressiveHMM, whose coefficients switch. All others are as their documentation has them: statsmodels' "
    "`fit()` is five EM steps and BFGS from one start, dynamax's 50 EM steps from k-means. rarehmm is `RareHMM(3, "
    "ar=1)`, whose fit is a posterior; *mode alone* is the maximum only, as theirs."
)


@functools.lru_cache(2)
def data(T, seed):
    """A series (T,) with at least three rare observations, its true states, and the F1 of the true parameters."""
    for again in range(100):
        model, series, truth, states = simulated(CASE, [seed, again], T)
        if (states == 2).sum() >= 3:
            break
    rare = states == 2
    return series.read(0, T)[:, 0].copy(), rare, f1(rh.smooth(model, truth, series), [rare])


def cell(T, tool, seeds):
    return Cell(f"T = {T:,}", tool, lambda seed: (data(T, seed)[0], 3), None, seeds)


def judged(cell, seed, y, found):
    """What a fit is worth, by its parameters alone."""
    levels, variances, transition, lag, form = found
    K, lag = len(levels), np.atleast_1d(lag)
    if not all(np.isfinite(part).all() for part in (levels, variances, transition, lag)):
        return {"found": False, "levels": list(levels), "log_likelihood": -np.inf}
    switching, series = len(lag) > 1, rh.Series(y)
    form = AroundLevel(1, switching, conditional=True) if str(form) == "level" else Intercept(1, switching)
    model = rh.Model(rh.Gaussian(), K, rh.no_priors(rh.Gaussian()), autoregression=form)
    transition = np.clip(transition, 1e-12, None)
    point = model.natural(np.column_stack([levels, variances]), transition / transition.sum(1, keepdims=True), lag)
    _, rare, oracle = data(len(y), seed)
    quality = f1(rh.smooth(model, point, series), [rare]) / oracle
    return {
        "found": bool(quality >= 0.7), "quality": float(quality), "levels": list(levels), "lag": list(lag),
        "log_likelihood": rh.log_likelihood(model, point, series),
    }  # fmt: skip


# ---------------------------------------------------------------- report
def targets(cells):
    """What is asked for, and whether it was reached."""
    rows = {(c["series"], c["tool"]): c["fits"] for c in cells}
    for T in SIZES[1:]:
        ours = rows.get((f"T = {T:,}", "rarehmm"), [])
        if ours:
            count = sum(row["found"] for row in ours)
            yield f"T = {T:,}: found by rarehmm in {count} of {len(ours)}", count >= FIND * len(ours)

    def then(tool):
        done = [row["seconds"] for row in rows.get((f"T = {SIZES[1]:,}", tool), []) if "seconds" in row]
        return np.median(done[1:] or done or [np.nan])

    theirs = then("statsmodels, MarkovAutoregression")
    for tool in ("rarehmm", "rarehmm, mode alone"):
        if np.isfinite(theirs / then(tool)):
            times = theirs / then(tool)
            yield f"T = {SIZES[1]:,}: {tool} is {times:.0f} times as fast as MarkovAutoregression", times >= FASTER


def report(found):
    lines = [
        "# Beside statsmodels and dynamax, in autocorrelated noise",
        "",
        filled(f"{found['made']} The code that is run is in benchmarks/peers.py."),
        "",
        filled(
            "Levels -2, 0 and 4 in standard deviations of the innovations, .5 % in the last state, AR(1) noise "
            "with rho .6; each seed is a data set of its own. *first*: seconds of the first fit in a new process, "
            "imports and compilation counted. *then*: median seconds of the other fits. *found*: F1 of the best "
            "state, by smoothed probabilities, at least .7 of that of the true parameters. *behind*: log "
            "likelihood, given the first observation, below that of the best fit of the same series by any tool, "
            "quartiles. A fit that takes more "
            f"than {found['limit']:g} s is stopped, and the other seeds of that line are not run. {ABOUT}"
        ),
        "",
        "| series | tool | seeds | lines | first, s | then, s | found | behind |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in found["cells"]:
        first, then, there, _, far = message(c["fits"], found["limit"])
        lines.append(
            f"| {c['series']} | {c['tool']} | {len(c['fits'])} | {found['lines'][c['tool']]} | {first} | {then} "
            f"| {there} | {far} |"
        )
    lines += ["", *(f"- {text}: {'yes' if reached else '**no**'}" for text, reached in targets(found["cells"]))]
    lines += [f"- {name} is not installed here; not run." for name in found["missing"]]
    return "\n".join([*lines, "", filled(f"Machine: {found['machine']} {found['minutes']:.0f} minutes.")]) + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--quick", action="store_true", help="one seed, short series, nothing written")
    ask.add_argument("--limit", type=float, default=600, help="seconds a fit may take")
    use = ask.parse_args()
    began, made = time.perf_counter(), made_by("bench")
    warnings.simplefilter("ignore", RuntimeWarning)
    missing = [name for name, module in NEEDS.items() if not importlib.util.find_spec(module)]
    tools = [tool for tool in REGIME_TOOLS if tool.split(",")[0] not in missing]
    plan = []
    for T in SIZES[:1] if use.quick else SIZES:
        for tool in tools:
            ours = tool.startswith("rarehmm")
            seeds = 20 if ours else {2_000: 5, 10_000: 2}.get(T, 0)
            if seeds > 0:
                plan.append(cell(T, tool, 1 if use.quick else seeds))
    with tempfile.TemporaryDirectory() as cache:
        cells = [
            {"series": c.series, "tool": c.tool, "fits": fits(c, use.limit, cache, "regimes", judged)} for c in plan
        ]
    behind(cells)
    there = [f"{name} {importlib.metadata.version(name)}" for name in NEEDS.values() if name not in missing]
    found = {
        "made": made, "machine": f"{machine()[:-1]}, {', '.join(there)}." if there else machine(), "missing": missing,
        "minutes": (time.perf_counter() - began) / 60, "limit": use.limit, "cells": cells,
        "lines": {name: lines_of(REGIME_TOOLS[name]) for name in tools},
    }  # fmt: skip
    if not use.quick:
        (RESULTS / "regime_comparison.json").write_text(json.dumps(found, indent=1, default=float) + "\n")
        (RESULTS / "regime_comparison.md").write_text(report(found))
    print(report(found))


if __name__ == "__main__":
    main()
