"""CPU time to compile the kernels of a first fit, with and without the compiler class that ``inner`` functions have.

``make compile``; writes results/compile.md.  Both ways run side by side, each in a process of its own with an empty
cache; the CPU time of a second fit in that process, which compiles nothing, is taken off.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from machine import commit, cpu

RESULTS = pathlib.Path(__file__).parent / "results"
CASES = {"Gaussian": 1, "StudentT": 1, "Poisson": 1, "MultivariateGaussian": 3}  # name: columns
T = 20_000


def observations(name):
    """Three levels, the highest one rare."""
    rng = np.random.default_rng(0)
    level = np.repeat([1.0, 4.0], T // 2)
    level[rng.integers(0, T - 10, 20)[:, None] + np.arange(10)] = 20.0
    if name == "Poisson":
        return rng.poisson(level)
    return (level[:, None] + rng.normal(size=(T, CASES[name]))).squeeze()


def measure(name, parts):
    """CPU seconds of the first fit of this process, less those of the second."""
    import numba
    from numba.core.compiler import DefaultPassBuilder

    import rarehmm as rh
    from rarehmm.engine.dispatch.parts import PartCompiler

    if parts == "without":
        PartCompiler.define_pipelines = lambda self: [DefaultPassBuilder.define_nopython_pipeline(self.state)]
    family = getattr(rh, name)(*([CASES[name]] if CASES[name] > 1 else []))
    y, spent = observations(name), [time.process_time()]
    for _ in range(2):
        rh.RareHMM(n_components=3, emission=family).fit(y)
        spent.append(time.process_time())
    first, second = np.diff(spent)
    print(json.dumps([first - second, numba.__version__]))


def in_new_process(name, parts):
    with tempfile.TemporaryDirectory() as folder:
        one_thread = {"NUMBA_CACHE_DIR": folder, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", __file__, name, parts]
        done = subprocess.run(command, env=os.environ | one_thread, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(data):
    lines = [
        "# Compiling a first fit",
        "",
        "CPU seconds that `RareHMM(n_components=3).fit` spends on compiling with an empty cache, both ways side by "
        "side. *with*: functions that kernels inline are optimised and turned into machine code only inside "
        "the kernels (`engine/dispatch/parts.py`); *without*: also by themselves, which is what numba does. Written by "
        "`make compile`; do not edit.",
        "",
        f"Machine: {data['cpu']}. numba {data['numba']}, commit {data['commit']}.",
        "",
        "| family | with | without | saved |",
        "|---|---|---|---|",
    ]
    for name, (short, long) in data["seconds"].items():
        lines.append(f"| {name} | {short:.1f} | {long:.1f} | {1 - short / long:.0%} |")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) > 1:
        return measure(*sys.argv[1:])
    machine, tree, seconds = cpu(), commit(), {}  # the tree before results are written to it
    for name in CASES:
        with ThreadPoolExecutor() as pool:
            (short, numba), (long, _) = pool.map(in_new_process, [name] * 2, ("with", "without"))
        seconds[name] = [short, long]
        write({"cpu": machine, "numba": numba, "commit": tree, "seconds": seconds})
    return None


def write(data):
    (RESULTS / "compile.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "compile.md").write_text(report(data))
    print(report(data), flush=True)


if __name__ == "__main__":
    main()
