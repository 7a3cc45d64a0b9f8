"""Progress: told stage by stage, shown on a terminal, and nowhere else."""

import io

import numpy as np
import pytest
from rich.console import Console

import rarehmm as rh
from rarehmm.common.progress import progress_line, silent


def series():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    y[100:110] += 7
    return y


@pytest.mark.jit
def test_every_stage_is_told():
    given = []
    data = rh.Series(series())
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, data))
    rh.infer(
        np.random.default_rng(0), model, data, wanted=50, method="gibbs", on_progress=lambda *args: given.append(args)
    )
    stages = list(dict.fromkeys(stage for stage, _, _ in given))
    assert stages == ["finding states", "climbing to the mode", "refining the mode", "Gibbs sampling", "checks"]
    sweeps = [(done, total) for stage, done, total in given if stage == "Gibbs sampling"]
    first = [done for done, total in sweeps if total == sweeps[0][1]]
    assert first == list(range(len(first)))
    assert all(done < total for done, total in sweeps)


def test_a_line_on_a_terminal_and_nothing_elsewhere():
    written = {}
    for terminal in (True, False):
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=80)
        with progress_line(True, console) as on_progress:
            on_progress("finding states", 0, 0)
            on_progress("chains", 3, 4)
        written[terminal] = file.getvalue()
    assert "chains" in written[True]
    assert "75%" in written[True]
    assert written[False] == ""
    with progress_line(False, Console(file=io.StringIO(), force_terminal=True)) as on_progress:
        assert on_progress is silent


@pytest.mark.jit
def test_fit_is_silent_off_a_terminal(capfd):
    rh.RareHMM(2, method="map").fit(series())
    assert capfd.readouterr() == ("", "")
