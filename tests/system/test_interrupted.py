"""Runs that are killed go on where they stopped, and Ctrl-C returns what there is."""

import multiprocessing
import os
import pathlib
import signal

import numpy as np
import pytest
from long_run import long_run, setting

import rarehmm as rh
from rarehmm.designs.uniform import uniform
from rarehmm.samplers.sgld import Sgld
from rarehmm.sampling.importance import Roots, adaptive_importance
from rarehmm.windows.windows import Windows


@pytest.mark.jit
@pytest.mark.parametrize("wanted", [6, pytest.param(20, marks=pytest.mark.nightly)])
def test_a_run_that_is_killed_many_times_has_the_draws_of_one_that_is_not(tmp_path, monkeypatch, wanted):
    whole = long_run(tmp_path / "whole.npz")
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(long_run.__code__.co_filename).parent))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["long_run"])
    rng, file, kills, on_the_way = np.random.default_rng(2), tmp_path / "killed.npz", 0, 0
    for number in range(80):
        process = context.Process(target=long_run, args=(file,))
        process.start()
        if number % 2:  # on a slow machine too, half of the kills come after a checkpoint
            while process.is_alive() and not file.exists():
                process.join(0.01)
        process.join(rng.uniform(0.0, 0.5))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            kills += 1
            on_the_way += file.exists()
        elif kills < wanted:
            assert process.exitcode == 0
            np.testing.assert_array_equal(long_run(file), whole)
            file.unlink()  # it has come to its end: once more from the beginning
        if kills >= wanted and on_the_way >= wanted // 2:
            break
    assert kills >= wanted
    assert on_the_way >= wanted // 2
    np.testing.assert_array_equal(long_run(file), whole)


def interrupting(after):
    """A watch that presses Ctrl-C."""
    calls = []

    def on_progress(*_):
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt

    return on_progress


def test_ctrl_c_returns_the_draws_so_far(tmp_path):
    model, theta, series = setting()
    windows = Windows(series, 2, 2)
    pool = rh.Pool(model, series, windows, uniform(windows), 2, memory=20_000)
    arguments = Sgld(1e-6), model, pool, [theta] * 2, 100
    whole = rh.run(np.random.default_rng(1), *arguments)
    with pytest.warns(RuntimeWarning, match=r"interrupted: \d+ of 200 draws are returned"):
        part = rh.run(np.random.default_rng(1), *arguments, on_progress=interrupting(6), checkpoint=tmp_path / "c.npz")
    assert 0 < part.shape[1] < 100
    np.testing.assert_array_equal(part, whole[:, : part.shape[1]])
    np.testing.assert_array_equal(rh.run(np.random.default_rng(1), *arguments, checkpoint=tmp_path / "c.npz"), whole)


@pytest.mark.jit
def test_ctrl_c_returns_the_draws_of_full_data_methods():
    model, theta, series = setting()
    with pytest.warns(RuntimeWarning, match="interrupted: 5 of 50 draws"):
        assert (
            len(rh.gibbs(np.random.default_rng(0), model, series, model.unpack(theta), 50, on_progress=interrupting(5)))
            == 5
        )
    mode = rh.find_mode(model, series, model.unpack(theta))
    with pytest.warns(RuntimeWarning, match="interrupted: 160 of 800 draws"):
        assert rh.hmc(np.random.default_rng(0), mode, series, 50, on_progress=interrupting(130)).shape == (16, 10, 6)
    with pytest.raises(KeyboardInterrupt):
        rh.hmc(np.random.default_rng(0), mode, series, 50, on_progress=interrupting(20))


@pytest.mark.jit
def test_ctrl_c_ends_importance_sampling_after_a_round(monkeypatch):
    model, theta, series = setting()
    roots = Roots(rh.find_mode(model, series, model.unpack(theta)), series)
    press, density = interrupting(1), roots.log_density

    def log_density(phi):
        press()
        return density(phi)

    monkeypatch.setattr(roots, "log_density", log_density)
    with pytest.warns(RuntimeWarning, match="interrupted"):
        found = adaptive_importance(np.random.default_rng(0), roots)
    assert found.n_drawn == 400
