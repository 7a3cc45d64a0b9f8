"""Scores that are worked out beside scores written by hand: time of a pass, and of compiling it.

``make automatic``; writes results/automatic.md.  Both kinds are timed in turn in one process with a cache of its own.
"""

import json
import os
import pathlib
import tempfile
import time
from typing import NamedTuple

CORES = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(CORES)})
os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp()

import numpy as np
from machine import cpu
from scipy.special import gammaln

import rarehmm as rh
from rarehmm.engine.automatic import source_of

T, ROUNDS = 1_000_000, 15
RESULTS = pathlib.Path(__file__).parent / "results"
TRANSITION = [[0.98, 0.0175, 0.0025], [0.0175, 0.98, 0.0025], [0.1, 0.1, 0.8]]


class Normal(NamedTuple):
    parameters, domain, draw = rh.Gaussian().parameters, rh.Gaussian().domain, rh.Gaussian.draw


def normal(family, y, mean, variance):
    return -0.5 * np.log(2 * np.pi * variance) - (y - mean) ** 2 / (2 * variance)


class Student(NamedTuple):
    nu: float
    parameters, domain, draw = rh.StudentT().parameters, rh.StudentT().domain, rh.StudentT.draw


def student(family, y, mean, scale2):
    nu = family.nu
    norm = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi * scale2)
    return norm - 0.5 * (nu + 1) * np.log(1 + (y - mean) ** 2 / (nu * scale2))


class Waiting(NamedTuple):
    parameters, domain, draw = rh.GammaEmission().parameters, rh.GammaEmission().domain, rh.GammaEmission.draw
    constant = rh.GammaEmission.constant


def waiting(family, y, mean, shape):
    return shape * np.log(shape / mean) - gammaln(shape) + shape * np.log(y) - shape * y / mean


CASES = {
    "Gaussian": (rh.Gaussian(), Normal, normal, {"mean": [-20, 0, 20], "variance": 1}),
    "Student-t": (rh.StudentT(5.0), Student, student, {"mean": [-20, 0, 20], "scale2": 1}),
    "gamma": (rh.GammaEmission(), Waiting, waiting, {"mean": [1, 10, 50], "shape": [1, 3, 5]}),
}


def timed(function):
    began = time.perf_counter()
    return function(), time.perf_counter() - began


def problem(family, point):
    """log posterior and gradient as a function of a series."""
    model = rh.Model(family, 3, rh.no_priors(family))
    parameters = model.parameters(TRANSITION, **point)
    theta = model.pack(parameters)
    return model, parameters, lambda series: rh.log_posterior(model, theta, series, threads=1)


def case(name):
    hand, cls, density, point = CASES[name]
    _, defined = timed(lambda: rh.density_of(cls)(density))
    model, parameters, by_hand = problem(hand, point)
    _, _, by_itself = problem(cls(*hand), point)
    y, _ = rh.simulate(np.random.default_rng(0), model, parameters, T)
    series, short = rh.Series(y), rh.Series(y[:1000])
    compiled = [timed(lambda f=f: f(short))[1] for f in (by_hand, by_itself)]
    (value, slope), (same, also) = by_hand(series), by_itself(series)
    assert abs(value - same) < 1e-10 * abs(value)
    np.testing.assert_allclose(also, slope, rtol=1e-8, atol=1e-6 * np.abs(slope).max())
    pairs = [[timed(lambda f=f: f(series))[1] for f in (by_hand, by_itself)] for _ in range(ROUNDS)]
    best = np.min(pairs, axis=0) / T * 1e9
    lines = source_of(cls, density).count("\n")
    return {"name": name, "defined": defined, "compiled": compiled, "pass": best.tolist(), "lines": lines}


def report(data):
    lines = [
        "# Scores that are worked out, beside scores written by hand",
        "",
        f"T = {T:,}, K = 3, one thread: log posterior with its full gradient, nanoseconds an observation, smallest of "
        f"{ROUNDS} rounds in turn. Written by `make automatic`; do not edit. Both agree on the value to 1e-10.",
        "",
        f"Machine: {data['cpu']}. *compiled*: first call, nothing cached, seconds; *defined*: tracing, differentiating "
        "and writing the source, milliseconds.",
        "",
        "| family | by hand | worked out | ratio | compiled by hand | compiled worked out | defined |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in data["cases"]:
        (hand, own), (first, second) = r["pass"], r["compiled"]
        lines.append(
            f"| {r['name']} | {hand:.1f} | {own:.1f} | {own / hand:.2f} | {first:.1f} | {second:.1f} "
            f"| {1000 * r['defined']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    _, _, warm = problem(rh.Poisson(), {"rate": [1, 5, 40]})
    warm(rh.Series(np.arange(100.0)))  # what all families share is compiled
    data = {"cpu": cpu(), "cases": [case(name) for name in CASES]}
    (RESULTS / "automatic.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "automatic.md").write_text(report(data))
    print(report(data))


if __name__ == "__main__":
    main()
