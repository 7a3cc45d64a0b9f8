"""The commands in this process, on small inputs."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml
from typer.testing import CliRunner

import rarehmm as rh
from rarehmm import cli, runs
from rarehmm.cli import kernels, running
from rarehmm.dispatch import JIT
from rarehmm.settings import Settings


def invoke(*args):
    done = CliRunner().invoke(cli.app, list(args))
    assert done.exit_code == 0, done.output
    return done.output


def test_demo(tmp_path, monkeypatch):
    if not JIT:  # the mode, of fewer observations
        simulate = rh.simulate
        monkeypatch.setattr(rh, "simulate", lambda rng, model, point, size: simulate(rng, model, point, size // 10))
        monkeypatch.setattr(running, "Settings", partial(Settings, method="map"))
    out = invoke("demo", "--size", "10000", "--out", str(tmp_path))
    assert "States: mean and 90 % interval" in out
    assert "Nothing speaks against this posterior." in out
    assert "rare events" in out
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_warm_up_names_the_families():
    assert "poisson" in invoke("warm-up", "poisson")
    assert kernels.of_one_column() == [
        "bernoulli", "categorical", "exponential", "free_negative_binomial", "free_student_t", "gamma", "gaussian",
        "gaussian_mixture", "log_normal", "negative_binomial", "poisson", "student_t", "von_mises",
        "zero_inflated_poisson",
    ]  # fmt: skip


def test_a_family_that_is_not_there_is_refused():
    done = CliRunner().invoke(cli.app, ["warm-up", "gausian"])
    assert done.exit_code == 2
    assert "gaussian" in done.output


def test_cache_clear_removes_what_is_listed(tmp_path, monkeypatch):
    files = [tmp_path / name for name in ("a.nbc", "b.nbc")]
    for file in files:
        file.write_bytes(b"0" * 1_000_000)
    monkeypatch.setattr(kernels, "cached_files", lambda: iter(files))
    assert "removed 2 compiled kernels, 2.0 MB" in invoke("cache", "clear")
    assert not list(tmp_path.iterdir())


def test_a_size_that_is_too_small_is_refused():
    done = CliRunner().invoke(cli.app, ["demo", "--size", "9"])
    assert done.exit_code == 2
    assert "10000" in done.output


@pytest.fixture(scope="module")
def flux(tmp_path_factory):
    """One series with two events as CSV, as two Parquet files, and as Zarr."""
    folder = tmp_path_factory.mktemp("flux")
    y = np.exp(np.random.default_rng(0).normal(0, 0.3, 3000))
    y[1000:1030] *= 30
    y[2000:2020] *= 30
    table = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=3000, freq="min"), "flux": y})
    table.to_csv(folder / "flux.csv", index=False)
    table[:1700].to_parquet(folder / "1.parquet", index=False, row_group_size=500)
    table[1700:].to_parquet(folder / "2.parquet", index=False, row_group_size=500)
    xr.Dataset(table.set_index("time")).chunk(time=700).to_zarr(folder / "flux.zarr", consolidated=False)
    return folder


@pytest.mark.jit
@pytest.mark.parametrize("names", [["1.parquet", "2.parquet"], ["flux.zarr"]])
def test_files_that_stay_where_they_are_give_what_csv_gives(flux, tmp_path, names):
    options = ["--column", "flux", "--time", "time", "--states", "2", "--log", "--draws", "100", "--quiet"]
    for out, given in (("csv", ["flux.csv"]), ("other", names)):
        invoke("fit", *(str(flux / name) for name in given), *options, "--out", str(tmp_path / out))
    assert (tmp_path / "other" / "events.csv").read_text() == (tmp_path / "csv" / "events.csv").read_text()
    assert (tmp_path / "other" / "events.csv").read_text().count("2026-01-01 16:40:00") == 1
    told = yaml.safe_load((tmp_path / "other" / "settings.yaml").read_text())["file"]
    assert told == ([str(flux / name) for name in names] if len(names) > 1 else str(flux / names[0]))
    (tmp_path / "other" / "report.html").unlink()
    diagnosis = json.loads(invoke("resume", str(tmp_path / "other"), "--json"))
    assert diagnosis["trusted"]


def test_a_trend_is_taken_from_all_of_a_file(flux):
    made = [
        runs.series_of(runs.from_mapping({"file": file, "column": ["flux"], "time": "time", "detrend": "spline:5"}))
        for file in (str(flux / "flux.csv"), [str(flux / "1.parquet"), str(flux / "2.parquet")])
    ]
    np.testing.assert_allclose(made[0].read(0, 3000), made[1].read(0, 3000))
    assert made[1].stamp(2999) == made[0].stamp(2999)


def test_tables_end_their_lines_the_same_way_on_every_system(tmp_path, monkeypatch):
    """pandas takes the system's way, and a file of text would translate it once more."""
    monkeypatch.setattr("os.linesep", "\r\n")
    runs.write(tmp_path / "table.csv", runs.as_csv(pd.DataFrame({"start": [1, 2]})))
    assert (tmp_path / "table.csv").read_bytes() == b"start\n1\n2\n"
