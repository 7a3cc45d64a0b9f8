"""What an effective draw costs on chains of windows, and where the time goes; scaling.py has the peers.

Everything is measured in one run, nothing else running; times are the smallest of several repeats.  Writes
results/cost.json and cost.md.
"""

import json
import pathlib
import time

import numpy as np
from configurations import CASES, simulated

import rarehmm as rh
from rarehmm.designs.pilot import pilot
from rarehmm.engine.contracts.sampler import excess_variance
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling.diagnostics import mixing, windows_needed
from rarehmm.sampling.methods import MEMORY, Job, largest_noise, shortest_buffer
from rarehmm.sampling.rule import infer
from rarehmm.windows.information import WindowInformation

RESULTS = pathlib.Path(__file__).parent / "results"
CHAINS, STEPS, REPEATS, WANTED = 4, 2200, 7, 1000


def timed(function, *arguments, **more):
    began = time.perf_counter()
    value = function(*arguments, **more)
    return value, time.perf_counter() - began


class Clocked(rh.Pool):
    """A pool that knows how long it took to draw and gather its windows, and how many."""

    seconds, windows_drawn = 0.0, 0

    def fill(self, rng, sets, gathered):
        _, seconds = timed(super().fill, rng, sets, gathered)
        self.seconds += seconds
        self.windows_drawn += sets * self.size


def quickest(rows):
    """The quickest of the repeats, with the effective size in the middle of theirs (not that of a lucky one)."""
    middle = np.median([effective for _, effective, _, _ in rows])
    seconds, _, filling, drawn = min(rows)
    return {"seconds": seconds, "effective": middle, "filling": filling, "drawn": drawn, "each": seconds / middle}


def chains(name, T, seed=0):
    """Set-up and sampling of one configuration, chains forced."""
    model, series, _ = simulated(CASES[name]._replace(size=T), seed)
    mode, climbing = timed(rh.find_mode, model, series)
    rng, sampler = np.random.default_rng(seed), Baoab()
    (windows, frozen, _), testing = timed(shortest_buffer, Job(rng, mode, series))
    info = WindowInformation.around(rng, mode, series, windows, frozen=frozen)
    design, piloting = timed(pilot, info)
    noise, measuring = timed(largest_noise, Job(rng, mode, series), windows, frozen, design)
    size = windows_needed(excess_variance(sampler), noise)
    rows = {1: [], 2: []}  # by threads
    for repeat in range(REPEATS + 1):  # the first one warms up
        for threads in rows:
            pool = Clocked(mode.model, series, windows, design, size, frozen=frozen, memory=MEMORY)
            here = mode.theta + rng.standard_normal((CHAINS, mode.model.size)) @ mode.factor.T
            draws, seconds = timed(
                rh.run, rng, sampler, mode.model, pool, here, STEPS, mode=mode, thin=2, threads=threads
            )
            effective = mixing(draws).bulk.min()
            if repeat > 0:
                rows[threads].append((seconds, effective, pool.seconds, pool.windows_drawn))
    one, two = (quickest(rows[threads]) for threads in rows)
    return {
        "name": name, "T": T, "size": size, "buffer": windows.buffer, "mode": climbing,
        "prepare": testing + piloting + measuring, "us": 1e6 * two["each"], "us_one": 1e6 * one["each"],
        "filling": one["filling"] / one["seconds"], "windows": one["drawn"] / one["effective"],
        "thousand": WANTED * two["each"], "chain_only": WANTED * (one["seconds"] - one["filling"]) / one["effective"],
    }  # fmt: skip


def whole(T, seed=0):
    """From an array to a posterior with 1000 effective draws of every parameter, by the default rule, three times."""
    _, series, _ = simulated(CASES["single rare"]._replace(size=T), seed)
    y = np.array(series.read(0, T)[:, 0])
    found, seconds = None, []

    def all_of_it():
        series = rh.Series(y)
        fresh = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
        return infer(np.random.default_rng(seed), fresh, series, wanted=WANTED)

    for _ in range(4):
        found, taken = timed(all_of_it)
        seconds.append(taken)
    return {"T": T, "seconds": min(seconds[1:]), "method": found.method, "effective": found.effective}


# ---------------------------------------------------------------- report
def report(found):
    sampled, first = found["chains"], found["whole"]
    lines = [
        "# The cost of an effective draw",
        "",
        "Written by `make bench`; do not edit. Chains forced: BAOAB, 4 chains, pilot design, frozen statistics; an",
        "effective draw is one of the worst parameter (bulk ESS, ArviZ), drawing and gathering of windows counted.",
        "",
        "| configuration | T | B | S | windows an effective draw | µs an effective draw, 2 threads | 1 thread "
        "| of it filling the pool | 1000 effective draws, s | without filling, 1 thread, s | mode, s | pilot, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in sampled:
        lines.append(
            f"| {r['name']} | {r['T']:.0e} | {r['buffer']} | {r['size']} | {r['windows']:.0f} | {r['us']:.0f} "
            f"| {r['us_one']:.0f} | {r['filling']:.0%} | {r['thousand']:.3f} | {r['chain_only']:.3f} | {r['mode']:.2f} "
            f"| {r['prepare']:.2f} |"
        )
    lines += [
        "",
        f"From an array of {first['T']:.0e} numbers to a posterior by the default rule ({first['method']}, "
        f"{first['effective']:.0f} effective draws of the worst parameter), warm caches: **{first['seconds']:.1f} s**.",
    ]
    return "\n".join(lines) + "\n"


def main():
    sizes = (100_000, 1_000_000, 10_000_000)
    found = {"chains": [chains("single rare", T) for T in sizes] + [chains("overlap, sticky", 100_000)]}
    found["whole"] = whole(1_000_000)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cost.json").write_text(json.dumps(found, indent=1, default=float) + "\n")
    (RESULTS / "cost.md").write_text(report(found))
    print(report(found))


if __name__ == "__main__":
    main()
