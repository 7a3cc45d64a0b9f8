"""The command line, as a user meets it: in a process of its own."""

import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

pytestmark = pytest.mark.jit


def run(*args, **more):
    command = [sys.executable, "-m", "rarehmm", *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **more}, timeout=300, check=False)


@pytest.mark.nightly
def test_demo_writes_a_report_and_says_where(tmp_path):
    done = run("demo", "--size", "50000", "--out", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Posterior: all checks passed.") == 2
    assert "The series suits a model with 3 states, Gaussian noise, season of 1D and 1 lag;" in done.stdout
    assert "9 of the 9 simulated overloads and 6 of the 6 simulated outages were found, and none of" in done.stdout
    for name in ("report.html", "metric/report.html"):
        assert str(tmp_path / "demo" / name) in done.stdout


FITTED = """
import sys, numpy as np, rarehmm as rh, rarehmm.engine.dispatch as d
from rarehmm.windows.gradients import window_sums
from rarehmm.windows.windows import Windows
from rarehmm.designs.uniform import uniform
from rarehmm.windows.gradients import freeze
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.samplers.baoab import Baoab
families = {"gaussian": rh.Gaussian(), "student_t": rh.StudentT(7)}
for family in map(families.get, sys.argv[1:]):
    priors = rh.Priors(tuple(rh.Normal(0, 1) for _ in family.parameters))
    model = rh.Model(family, 4, priors)
    point = model.natural(np.ones((4, len(family.parameters))), np.full((4, 4), 0.25))
    y, _ = rh.simulate(np.random.default_rng(0), model, point, 3000)
    series = rh.Series(y)
    rh.log_posterior(model, model.pack(point), series), rh.decode(model, point, series)
    rh.smooth(model, point, series), rh.filter_states(model, point, series, sequential=True)
    windows = Windows(series, 5, 3)
    window_sums(model, point, series, windows)
    theta, batched = model.pack(point), BatchedLogPosterior(model, series)
    batched.values(theta[None]), batched.values_and_slopes(theta[None])
    for more in ({"separate": True}, {"frozen": freeze(model, theta, series, windows)}):
        pool = rh.Pool(model, series, windows, uniform(windows), 7, **more)
        rh.run(np.random.default_rng(0), Baoab(1e-5), model, pool, theta, 3)
    rh.smooth(model, model.natural(np.linspace(1, 3, 4)[:, None] + 0 * point.phi, np.eye(4)), series)
print(sum(sum(k.stats.cache_misses.values()) for k in d.KERNELS))
"""


def compiled_by_a_fit(*families, **more):
    """How many kernels a process compiles that does all of a fit with these families."""
    command = [sys.executable, "-c", FITTED, *families]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **more})
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_after_a_warm_up_nothing_is_left_to_compile():
    """In the cache of all tests, which most need."""
    done = run("warm-up", "gaussian")
    assert done.returncode == 0, done.stderr
    assert compiled_by_a_fit("gaussian") == 0


@pytest.mark.nightly
def test_warm_up_compiles_everything_and_cache_clear_removes_it(tmp_path):
    box = {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    names = "gaussian", "student_t"
    with ThreadPoolExecutor(2) as both:  # a process for each family
        for done in both.map(lambda name: run("warm-up", name, **box), names):
            assert done.returncode == 0, done.stderr
    compiled = set(tmp_path.rglob("*.nbc"))
    assert len(compiled) >= 9
    assert compiled_by_a_fit(*names, **box) == 0
    assert set(tmp_path.rglob("*.nbc")) == compiled
    done = run("cache", "clear", **box)
    assert f"removed {len(compiled)} compiled kernels" in done.stdout
    assert not list(tmp_path.rglob("*.nb*"))


FIRST_GRADIENT = """
import time; started = time.perf_counter()
import rarehmm as rh, numpy as np
model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
series = rh.Series(np.random.default_rng(0).normal(size=10_000))
rh.log_posterior(model, np.zeros(model.size), series)
print(time.perf_counter() - started)
"""


def test_a_second_process_reaches_its_first_gradient_within_two_seconds():
    """The first may have to compile; of the others the quickest counts, as the machine may be busy."""
    command = [sys.executable, "-c", FIRST_GRADIENT]
    times = [float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(4)]
    assert min(times[1:]) < 2


def test_importing_is_quick_and_quiet():
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", "import rarehmm, sys; print(sorted(sys.modules))"], capture_output=True, text=True
    )
    assert time.perf_counter() - started < 5
    assert done.stderr == ""
    for heavy in ("matplotlib", "pandas", "typer"):
        assert f"'{heavy}'" not in done.stdout


MEMORY = """
import re, numpy as np, rarehmm as rh
def used():  # MB of memory of this process's own; pages of mapped files belong to the system
    status = open("/proc/self/status").read()
    return int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]) / 1024
model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
point = model.parameters([[.99, .005, .005], [.005, .99, .005], [.495, .495, .01]], mean=[-20, 0, 20], variance=1)
theta = model.pack(point)
rh.log_posterior(model, theta, rh.Series(np.arange(2000.0)))
y = {data}
import threading
peak, done, before = [0.0], threading.Event(), used()
def watch():
    while not done.wait(0.002):
        peak[0] = max(peak[0], used())
thread = threading.Thread(target=watch)
thread.start()
value, slope = rh.log_posterior(model, theta, rh.Series(y))
done.set(), thread.join()
print(peak[0] - before)
"""


@pytest.mark.parametrize("kind", ["in memory", "memory map"])
def test_a_gradient_of_ten_million_observations_needs_little_memory(kind, tmp_path):
    if not pathlib.Path("/proc/self/status").exists():
        pytest.skip("needs /proc to look at the memory of a process")
    data = "np.random.default_rng(0).normal(size=10_000_000)"
    if kind == "memory map":
        y = np.lib.format.open_memmap(tmp_path / "y.npy", mode="w+", dtype=np.float64, shape=(10_000_000,))
        y[:] = np.random.default_rng(0).normal(size=len(y))
        y.flush()
        data = f"np.load({str(tmp_path / 'y.npy')!r}, mmap_mode='r')"
    command = [sys.executable, "-c", MEMORY.format(data=data)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) < 400  # MB beyond the data
