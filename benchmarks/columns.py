"""What a window costs in D columns, beside the arithmetic that it takes at the speed of this machine.

The arithmetic is counted in multiply-adds of doubles; what one of those takes is measured by a kernel that does nothing
else, in registers, in the same run.  With ``--before FOLDER``, the gradient of the univariate Gaussian is timed in turn
with that of another checkout of this library.  Pinned to one core; a figure is the smallest of its rounds.  Writes
results/columns.json and .md.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
CACHE = tempfile.TemporaryDirectory()
os.environ["NUMBA_CACHE_DIR"] = CACHE.name  # so that everything is compiled

import numpy as np
from machine import cpu

import rarehmm as rh
from rarehmm.designs.uniform import uniform
from rarehmm.engine.dispatch import kernel
from rarehmm.engine.kernels.chain import estimates
from rarehmm.engine.lanes import LANES, lane_array, load, store
from rarehmm.sampling.chains import target_of, workspace
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

RESULTS = pathlib.Path(__file__).parent / "results"
T, K, EACH, ROUNDS = 50_000, 2, 1600, 100
HALF_WIDTH, BUFFER = 5, 20
EXP = 17  # multiply-adds of an exponential

UNIVARIATE = """
import os, time
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
import numpy as np, rarehmm as rh
model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
point = model.parameters([[.98, .01, .01], [.01, .98, .01], [.1, .1, .8]], mean=[-5, 0, 5], variance=1)
series = rh.Series(rh.simulate(np.random.default_rng(0), model, point, 400_000)[0])
theta, best = model.pack(point), np.inf
for _ in range(30):
    began = time.perf_counter()
    rh.log_posterior(model, theta, series, threads=1)
    best = min(best, time.perf_counter() - began)
print(best / 400_000 * 1e9)
"""


@kernel
def multiply_and_add(x, n):
    """16 n multiply-adds of lanes, enough chains of them at once to keep every unit busy."""
    a, b, c, d = load(x, (0,)), load(x, (1,)), load(x, (2,)), load(x, (3,))
    e, f, g, h = load(x, (4,)), load(x, (5,)), load(x, (6,)), load(x, (7,))
    m, s = load(x, (8,)), load(x, (9,))
    for _ in range(2 * n):
        a, b, c, d = a * m + s, b * m + s, c * m + s, d * m + s
        e, f, g, h = e * m + s, f * m + s, g * m + s, h * m + s
    store(x, (0,), a + b + c + d + e + f + g + h)


def smallest(function, rounds=ROUNDS):
    """Seconds."""
    function()
    best = np.inf
    for _ in range(rounds):
        began = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - began)
    return best


def speed():
    """Seconds for a multiply-add of doubles."""
    x = lane_array(10)
    x[8], x[9] = 0.999, 1e-3
    return smallest(lambda: multiply_and_add(x, 10_000)) / (16 * 10_000 * LANES)


def arithmetic(D):
    """Multiply-adds of a window: densities, exponentials and the filter on every step; statistics, smoothing and
    transitions on those of the core; the way back through the right buffer."""
    core, steps = 2 * HALF_WIDTH + 1, 2 * HALF_WIDTH + 1 + 2 * BUFFER
    density, statistics = D * (D - 1) // 2 + 3 * D, D * (D + 1) // 2 + 3 * D
    return steps * K * (density + EXP + K + 2) + core * K * (statistics + 2 * K + 4) + BUFFER * K * (K + 2)


def window(D, size):
    """Seconds to gather a window and for its gradient, ``size`` windows at a time, and to compile the latter."""
    rng = np.random.default_rng(0)
    family = rh.MultivariateGaussian(D)
    factor = np.eye(D) + 0.3 * rng.normal(size=(K, D, D)) / np.sqrt(D)
    shell = rh.Model(family, K, rh.no_priors(family))
    mean = np.outer([0.0, 3.0], np.ones(D))
    truth = shell.natural(family.phi_of(mean, factor @ factor.transpose(0, 2, 1)), [[0.99, 0.01], [0.1, 0.9]])
    series = rh.Series(rh.simulate(rng, shell, truth, T)[0])
    model = rh.Model(family, K, rh.default_priors(family, K, series))
    windows = Windows(series, HALF_WIDTH, BUFFER)
    pool = Pool(model, series, windows, uniform(windows), size, separate=False, memory=1 << 29)
    sets = EACH // size
    gathered, target, (point, sums, room) = pool.allocate(sets), target_of(model, pool), workspace(model, pool)
    theta, out = model.with_fixed(model.pack(truth)), np.empty((sets, len(model.vector)))
    gather = smallest(lambda: pool.fill(rng, sets, gathered))
    began = time.perf_counter()
    estimates(family, target, gathered, theta, point, sums, room, out)
    compiled = time.perf_counter() - began
    kernel = smallest(lambda: estimates(family, target, gathered, theta, point, sums, room, out))
    return {"D": D, "size": size, "gather": gather / EACH, "kernel": kernel / EACH, "compiled": compiled}


def univariate(folder):
    """Nanoseconds an observation, smallest of six processes each in turn: here, and in another checkout."""
    here, found = pathlib.Path(__file__).parents[1], {"here": [], "before": []}
    for _ in range(6):
        for name, place in (("here", here), ("before", pathlib.Path(folder))):
            environment = {**os.environ, "PYTHONPATH": str(place / "src")}
            command = [sys.executable, "-c", UNIVARIATE]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            found[name].append(float(done.stdout))
    return {name: min(values) for name, values in found.items()}


def report(data):
    lines = [
        "# Gaussian windows of several columns",
        "",
        f"A window of {2 * HALF_WIDTH + 1} observations with buffers of {BUFFER}, K = {K}, full covariance, one",
        "thread; microseconds a window, smallest of several rounds. *Arithmetic*: the multiply-adds that the gradient",
        f"takes, at {data['speed'] * 1e12:.1f} ps each,",
        "the speed of a kernel that does nothing else in the same run. Written by `make columns`; do not edit.",
        "",
        f"Machine: {data['cpu']}.",
        "",
        "| D | parameters a state | windows a gradient | gather | gradient | arithmetic | gradient / arithmetic "
        "| seconds to compile |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in data["windows"]:
        D = r["D"]
        ideal = arithmetic(D) * data["speed"]
        times = [f"{1e6 * v:.2f}" for v in (r["gather"], r["kernel"], ideal)]
        row = [
            D,
            2 * D + D * (D - 1) // 2,
            r["size"],
            *times,
            f"{r['kernel'] / ideal:.1f}",
            f"{r['compiled']:.0f}" if r["size"] == 16 else "",
        ]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    if one := data.get("univariate"):
        lines += ["", f"Gradient of the univariate Gaussian, K = 3, beside an earlier version in the same run: "
                  f"{one['here']:.2f} and {one['before']:.2f} ns an observation, ratio "
                  f"{one['here'] / one['before']:.3f}."]  # fmt: skip
    return "\n".join(lines) + "\n"


def main():
    data = {"cpu": cpu(), "speed": speed(), "windows": [window(D, size) for D in (2, 8, 32) for size in (16, 160)]}
    if "--before" in sys.argv:
        data["univariate"] = univariate(sys.argv[sys.argv.index("--before") + 1])
    (RESULTS / "columns.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "columns.md").write_text(report(data))
    print(report(data))


if __name__ == "__main__":
    main()
