"""Files that version 0.1 wrote are read, or refused with a message that names the version."""

import json
import pathlib
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rarehmm as rh
from rarehmm.app import cli
from rarehmm.engine.contracts.design import Design
from rarehmm.samplers.sgld import Sgld

OLD = pathlib.Path(__file__).parent.parent / "version_0_1"  # y.csv, and what rarehmm 0.1.0 made of it


@pytest.fixture(scope="module")
def series():
    return rh.Series(np.loadtxt(OLD / "y.csv", skiprows=1))


def test_a_posterior_is_read():
    posterior = rh.Posterior.load(OLD / "posterior.nc")
    assert posterior.mean.phi[:, 0] == pytest.approx([0, 8], abs=0.6)
    assert posterior.verdict == "All checks passed."
    assert all(check.passed is True and check.message for check in posterior.checks)


def test_a_run_is_read(tmp_path, monkeypatch):
    """Events found again from the posterior of the run are those that version 0.1 found."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLD, "run")
    shutil.copy(OLD / "y.csv", "y.csv")
    done = CliRunner().invoke(cli.app, ["events", "run", "--json"])
    assert done.exit_code == 0, done.output
    (event,) = json.loads(done.output)
    (before,) = pd.read_csv(OLD / "events.csv").to_dict("records")
    assert {key: event[key] for key in ("start", "end", "duration", "state")} == {
        key: before[key] for key in ("start", "end", "duration", "state")
    }
    assert event["probability"] == pytest.approx(before["probability"], abs=1e-9)


def test_a_stream_goes_on(series):
    """The state of a stream is called ``distribution`` now; version 0.1 called it ``law``."""
    kept = json.loads((OLD / "stream.json").read_text(encoding="utf-8"))
    stream = rh.Stream.from_dict(kept)
    assert stream.seen == 1
    np.testing.assert_array_equal(stream.distribution, kept["law"])
    assert rh.Stream.from_dict(stream.to_dict()).to_dict() == stream.to_dict()


def test_a_checkpoint_is_refused_by_its_version(series, tmp_path):
    """Rounding has changed, so that its chain could not be continued bit for bit."""
    shutil.copy(OLD / "checkpoint.npz", tmp_path)
    family = rh.Gaussian()
    model, windows = rh.Model(family, 2, rh.default_priors(family, 2, series)), rh.Windows(series, 2, 2)
    pool = rh.Pool(model, series, windows, Design(np.full((1, windows.count), 1 / windows.count)), 4)
    start = model.pack(model.parameters([[0.9, 0.1], [0.2, 0.8]], mean=[0, 8], variance=1))
    with pytest.raises(ValueError, match=r"checkpoint.npz was written by rarehmm 0\.1"):
        rh.run(np.random.default_rng(0), Sgld(1e-5), model, pool, start, 50, checkpoint=tmp_path / "checkpoint.npz")
