"""Full gradients of models with season, autocorrelation, inputs and phases, beside the plain Gaussian in the same run.

Pinned to one core; all cases are timed in turn, round after round, and a figure is the smallest of its rounds.  With
``--before FOLDER``, the plain Gaussian is timed in turn with that of another checkout of this library.  Writes
results/regimes.json and .md.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])

import numpy as np
from machine import made_by

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs, Season
from rarehmm.model.autoregression import AroundLevel
from rarehmm.transitions.phases import Phases
from rarehmm.transitions.regression import Regression

RESULTS = pathlib.Path(__file__).parent / "results"
T, ROUNDS = 1_000_000, 9
LIMITS = {  # nanoseconds an observation
    "AR(1) around the level, .6": 30, "AR(3) around the level, season of 24 columns": 60,
    "transitions with 2 inputs": 60, "3 states of 4 phases": 60,
}  # fmt: skip
MEMORY = 400  # MB beyond the data, at T = 1e7
BEFORE = 1.03  # of the plain Gaussian
P = np.array([[0.98, 0.0175, 0.0025], [0.0175, 0.98, 0.0025], [0.1, 0.1, 0.8]])
LEVELS = np.array([-4.0, 0.0, 8.0])

PLAIN = """
import os, sys, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import numpy as np, rarehmm as rh
model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
point = model.parameters([[.98, .0175, .0025], [.0175, .98, .0025], [.1, .1, .8]], mean=[-4, 0, 8], variance=1)
series = rh.Series(rh.simulate(np.random.default_rng(0), model, point, 1_000_000)[0])
theta = model.pack(point)
rh.log_posterior(model, theta, series, threads=1)
for _ in sys.stdin:
    best = np.inf
    for _ in range(5):
        began = time.perf_counter()
        rh.log_posterior(model, theta, series, threads=1)
        best = min(best, time.perf_counter() - began)
    print(best * 1e3, flush=True)
"""


def noise_around_levels(rng, phi, n):
    """States, and a series of levels with autocorrelated noise around them."""
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    point = model.parameters(P, mean=LEVELS, variance=1)
    states = rh.simulate(rng, model, point, n)[1]
    noise = rng.normal(size=n)
    for t in range(len(phi), n) if phi else ():
        noise[t] += sum(c * noise[t - m - 1] for m, c in enumerate(phi))
    return LEVELS[states] + noise


def cases(wanted=""):
    """Model, parameters and series of each case."""
    rng = np.random.default_rng(0)
    family = rh.Gaussian()
    phi = np.column_stack([LEVELS, np.ones(3)])

    def case(series, lags=(), columns=0, slopes=(), **settings):
        model = rh.Model(family, 3, rh.default_priors(family, 3, series), **settings)
        coefficients = np.concatenate([0.1 * np.ones(columns), np.asarray(lags, dtype=float), np.ravel(slopes)])
        return model, model.natural(phi, P, coefficients), series

    plain = rh.Series(noise_around_levels(rng, (), T))
    yield "plain Gaussian", *case(plain)
    for rho in (0.6, 0.95):
        series = rh.Series(noise_around_levels(rng, (rho,), T))
        yield f"AR(1) around the level, {rho}".replace("0.", "."), *case(series, (rho,), autoregression=AroundLevel(1))
    lags = (0.5, -0.2, 0.1)
    y = noise_around_levels(rng, lags, T) + np.sin(2 * np.pi * np.arange(T) / 1440)
    series = rh.Series(y)
    season = Inputs.of(series, [Season(1440, 8), Season(10080, 4)])
    yield (
        f"AR(3) around the level, season of {season.size} columns",
        *case(series, lags, season.size, inputs=season, autoregression=AroundLevel(3)),
    )
    series = rh.Series(noise_around_levels(rng, (), T), exog=rng.normal(size=(T, 2)))
    transitions = Regression(Inputs.of(series, [Columns()]))
    yield "transitions with 2 inputs", *case(series, slopes=np.zeros((2, 3, 3)), transitions=transitions)
    yield "3 states of 4 phases", *case(plain, transitions=Phases((4, 4, 4)))


def timed(before):
    """Smallest time of each case, in nanoseconds an observation."""
    functions = {}
    for name, model, parameters, series in cases():
        theta = model.pack(parameters)
        functions[name] = lambda m=model, t=theta, s=series: rh.log_posterior(m, t, s, threads=1)
        functions[name]()
    others = {"plain Gaussian, here": start(None)} | ({"plain Gaussian, before": start(before)} if before else {})
    best = dict.fromkeys([*functions, *others], np.inf)
    for _ in range(ROUNDS):
        for name, function in functions.items():
            function()  # whatever ran before has filled the caches
            began = time.perf_counter()
            function()
            best[name] = min(best[name], (time.perf_counter() - began) / T * 1e9)
        for _ in range(3):
            for name, process in others.items():
                process.stdin.write("\n")
                process.stdin.flush()
                best[name] = min(best[name], float(process.stdout.readline()))
    for process in others.values():
        process.stdin.close()
    return best


def start(folder):
    """A process that times the plain Gaussian of a checkout whenever it is told to."""
    place = {} if folder is None else {"PYTHONPATH": str(pathlib.Path(folder) / "src")}
    return subprocess.Popen(
        [sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | place
    )


PEAK = """
import re, numpy as np, rarehmm as rh
from rarehmm.data.inputs import Inputs, Season
from rarehmm.model.autoregression import AroundLevel
status = lambda name: int(re.search(name + r":\\\\s+(\\\\d+)", open("/proc/self/status").read())[1]) / 1024
n = 10_000_000
y = np.random.default_rng(0).normal(size=n)
open("/proc/self/clear_refs", "w").write("5")  # the peak starts again from here
before = status("VmRSS")
series = rh.Series(y)
season = Inputs.of(series, [Season(1440, 8), Season(10080, 4)])
family = rh.Gaussian()
model = rh.Model(family, 3, rh.default_priors(family, 3, series), inputs=season, autoregression=AroundLevel(3))
P = np.array([[.98, .01, .01], [.01, .98, .01], [.1, .1, .8]])
point = model.natural([[-4, 1], [0, 1], [8, 1]], P, np.r_[np.zeros(season.size), .5, -.2, .1])
rh.log_posterior(model, model.pack(point), series)
print(status("VmHWM") - before)
""".replace("\\\\", "\\")


def peak():
    """Growth of the peak resident memory in MB by a gradient with season and lags at T = 1e7, door included."""
    return float(subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout)


def report(data):
    lines = [
        "# Gradients of models with season, autocorrelation and phases",
        "",
        made_by("regimes"),
        f"T = {T:,}, K = 3, float64, one thread: log posterior and its full gradient, nanoseconds an observation,",
        "smallest of several rounds, in turn.",
        "",
        "| model | ns | limit |",
        "|---|---|---|",
        *(f"| {name} | {value:.1f} | {LIMITS.get(name, '')} |" for name, value in data["ns"].items()),
        "",
        f"Peak memory of a gradient with a season of 24 columns and AR(3) at T = 10,000,000, beyond the data: "
        f"{data['memory']:.0f} MB (limit {MEMORY}).",
    ]
    return "\n".join(lines) + "\n"


def main():
    before = sys.argv[sys.argv.index("--before") + 1] if "--before" in sys.argv else None
    data = {"ns": timed(before), "memory": peak()}
    (RESULTS / "regimes.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "regimes.md").write_text(report(data))
    print(report(data))
    broken = [name for name, limit in LIMITS.items() if data["ns"][name] > limit]
    if before and data["ns"]["plain Gaussian, here"] > BEFORE * data["ns"]["plain Gaussian, before"]:
        broken.append("plain Gaussian as before")
    if data["memory"] > MEMORY:
        broken.append("memory")
    if broken:
        sys.exit(f"not kept: {'; '.join(broken)}")


if __name__ == "__main__":
    main()
