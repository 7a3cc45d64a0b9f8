"""Which terms ``rarehmm.suggest`` chooses for simulated series whose terms are known.

``make suggest``; writes results/suggest.md.  ``--seed 0`` uses other series, for development.
"""

import argparse
import json
import os
import pathlib
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from machine import made_by

import rarehmm as rh

RESULTS = pathlib.Path(__file__).parent / "results"
EACH, FIRST_SEED = 5, 500  # series of each kind, and the seed of the first one
VISITS = 5  # to the rare state, at least


def states(rng, T, length=30.0, share=0.02):
    """A path (T,) of two states: a rare one with visits of a mean length, and a share of the time."""
    enter, leave = share / (1 - share) / length, 1 / length
    path = np.zeros(T, dtype=int)
    while (np.diff(path) > 0).sum() < VISITS:
        draws = rng.random(T)
        for t in range(1, T):
            path[t] = draws[t] >= leave if path[t - 1] else draws[t] < enter
    return path


def autocorrelated(rng, T, rho):
    noise = rng.normal(size=T)
    for t in range(1, T):
        noise[t] += rho * noise[t - 1]
    return noise


def wave(rng, T, period, size):
    """A season of two harmonics with random phases."""
    t, (one, two) = 2 * np.pi * np.arange(T) / period, rng.uniform(0, 2 * np.pi, 2)
    return size * (np.sin(t + one) + 0.4 * np.sin(2 * t + two))


def period_of(rng):
    return int(rng.choice([24, 48, 96, 144, 288]))


def plain(rng, T):
    return 6 * states(rng, T) + rng.normal(size=T), {}


def weakly_autocorrelated(rng, T):
    return 6 * states(rng, T) + autocorrelated(rng, T, 0.5), {"lags"}


def strongly_autocorrelated(rng, T):
    return 9 * states(rng, T) + autocorrelated(rng, T, 0.95), {"lags"}


def seasonal(rng, T):
    period = period_of(rng)
    return 6 * states(rng, T) + wave(rng, T, period, 2) + rng.normal(size=T), {"season": period}


def seasonal_and_autocorrelated(rng, T):
    period = period_of(rng)
    return 8 * states(rng, T) + wave(rng, T, period, 4) + autocorrelated(rng, T, 0.7), {"season": period, "lags": True}


def counts(rng, T):
    return rng.poisson(np.where(states(rng, T), 12.0, 2.0)), {}


def seasonal_counts(rng, T):
    period = period_of(rng)
    rate = 3 * np.exp(wave(rng, T, period, 0.5)) * np.where(states(rng, T), 4.0, 1.0)
    return rng.poisson(rate), {"season": period}


def multiplicative(rng, T):
    period = period_of(rng)
    logs = 3 + 1.5 * states(rng, T) + wave(rng, T, period, 0.6) + 0.4 * rng.normal(size=T)
    return np.exp(logs), {"season": period, "log": True}


def heavy_tails(rng, T):
    return 12 * states(rng, T) + rng.standard_t(3, size=T), {"tails"}


def trend(rng, T):
    return 6 * states(rng, T) + np.linspace(-2, 2, T) + rng.normal(size=T), {"trend"}


def nothing_rare(rng, T):
    return rng.normal(size=T), {"one state"}


def several_columns(rng, T):
    path = states(rng, T)
    noise = np.column_stack([autocorrelated(rng, T, 0.6) for _ in range(3)])
    return noise + np.outer(path, [6.0, 5.0, -6.0]), {"lags"}


KINDS = (
    plain, weakly_autocorrelated, strongly_autocorrelated, seasonal, seasonal_and_autocorrelated, counts,
    seasonal_counts, multiplicative, heavy_tails, trend, nothing_rare, several_columns,
)  # fmt: skip


def series(kind, seed):
    """A simulated series, its terms, and its length."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    T = int(rng.integers(5_000, 20_001))
    y, truth = kind(rng, T)
    return y, dict.fromkeys(truth, True) if isinstance(truth, set) else truth, T


def judged(settings, truth):
    """The terms of a series that were not chosen, and those chosen that are not there."""
    periods = [float(s.period) for s in settings["season"] or []]
    right = [p for p in periods if abs(p / truth.get("season", np.inf) - 1) < 0.02]
    there = {
        "season": bool(right), "lags": settings["ar"] is not None, "trend": settings["trend"] is not None,
        "log": settings["emission"] in ("log_normal", "gamma"), "tails": settings["emission"] == "free_student_t",
        "one state": settings["n_components"] == 1,
    }  # fmt: skip
    missed = [name for name in truth if not there[name]]
    extra = [name for name in ("lags", "trend", "log", "tails") if there[name] and name not in truth]
    extra += ["season"] * (len(periods) - len(right)) + ["dispersion"] * (
        settings["emission"] == "free_negative_binomial"
    )
    extra += ["one state"] if there["one state"] and "one state" not in truth else []
    return missed, extra


def tried(kind, seed):
    y, truth, T = series(kind, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = rh.suggest(y, n_jobs=1)
    missed, extra = judged(found.settings, truth)
    states = found.settings["n_components"]
    print(kind.__name__, seed, T, truth, found.sentence, missed, extra, flush=True)
    return {"kind": kind.__name__, "seed": seed, "missed": missed, "extra": extra, "states": states}


def report(rows, made):
    lines = [
        "# The terms that `suggest` chooses",
        "",
        made,
        "",
        f"{len(rows)} simulated series of {len(KINDS)} kinds with 5,000 to 20,000 rows. All but `nothing_rare` have a",
        "rare state with 2 % of the time in visits of 30 steps, at least five. *All terms*: series of which every term",
        "was chosen; *others*: terms that were chosen and are not there; *states*: numbers of states that were chosen.",
        "",
        "| kind | series | all terms | others | missed | states |",
        "|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        mine = [r for r in rows if r["kind"] == kind.__name__]
        missed, extra = (", ".join(name for r in mine for name in r[key]) for key in ("missed", "extra"))
        right, states = sum(not r["missed"] for r in mine), ", ".join(str(r["states"]) for r in mine)
        lines.append(f"| {kind.__name__.replace('_', ' ')} | {len(mine)} | {right} | {extra} | {missed} | {states} |")
    right, extra = sum(not r["missed"] for r in rows), sum(len(r["extra"]) for r in rows)
    lines.append(f"| all | {len(rows)} | {right} | {extra} | | |")
    return "\n".join(lines) + "\n"


def main():
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--seed", type=int, default=FIRST_SEED)
    ask.add_argument("--each", type=int, default=EACH)
    ask.add_argument("--jobs", type=int, default=os.cpu_count())
    use, made = ask.parse_args(), made_by("suggest")
    began = time.perf_counter()
    every = [(kind, use.seed + i) for i in range(use.each) for kind in KINDS]
    with ProcessPoolExecutor(use.jobs, get_context("spawn")) as pool:
        rows = list(pool.map(tried, *zip(*every, strict=True)))
    print(report(rows, made), f"{time.perf_counter() - began:.0f} s")
    if use.seed == FIRST_SEED:
        (RESULTS / "suggest.json").write_text(json.dumps(rows, indent=1) + "\n")
        (RESULTS / "suggest.md").write_text(report(rows, made))


if __name__ == "__main__":
    main()
