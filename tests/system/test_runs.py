"""Commands on files, as a new user would try them: in processes of their own, with good files and bad ones."""

import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from rarehmm.app import runs
from rarehmm.posterior.posterior import Posterior

pytestmark = pytest.mark.jit
PROGRAM = pathlib.Path(sys.executable).with_name("rarehmm")


def run(*args, code=0, **more):
    done = subprocess.run([PROGRAM, *map(str, args)], capture_output=True, text=True, timeout=300, check=False, **more)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def one_line(done, *message):
    """An error is one clear line, without a traceback."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for word in message:
        assert word in lines[0]


def table(size=4_000):
    rng = np.random.default_rng(0)
    y = np.exp(rng.normal(0, 0.3, size) + np.sin(np.arange(size) / 500))
    y[1000:1030] *= 30
    y[3000:3020] *= 30
    times = pd.date_range("2026-01-01", periods=size, freq="min")
    return pd.DataFrame({"time": times, "flux": y, "other": rng.normal(size=size)})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a file, settings and a run."""
    folder = tmp_path_factory.mktemp("runs")
    table().to_csv(folder / "flux.csv", index=False)
    options = ["--column", "flux", "--time", "time", "--states", "2", "--log", "--detrend", "spline:20"]
    done = run("fit", folder / "flux.csv", *options, "--draws", "200", "--out", folder / "run")
    assert "Posterior: all checks passed." in done.stdout
    assert "\nModel: " in done.stdout
    assert str(folder / "run" / "report.html") in done.stdout.replace("\n", "")
    return folder


def test_a_run_holds_what_is_needed(finished):
    names = sorted(p.name for p in (finished / "run").iterdir())
    assert names == sorted(runs.FILES)
    events = pd.read_csv(finished / "run" / "events.csv", parse_dates=["start", "end"])
    assert events["start"].dt.strftime("%H:%M").tolist() == ["16:40", "02:00"]
    assert events["duration"].tolist() == [30, 20]
    given = json.loads((finished / "run" / "diagnosis.json").read_text())
    assert given["trusted"] is True
    assert {c["name"] for c in given["checks"]["posterior"]} >= {"spread", "second modes"}
    assert "flux.csv" in (finished / "run" / "settings.yaml").read_text()
    assert Posterior.load(finished / "run" / "posterior.nc").model.n_states == 2


@pytest.mark.nightly
def test_events_forecast_report_and_another_file(finished):
    out = run("events", finished / "run").stdout
    assert out.startswith("start,end,duration")
    assert out.count("\n") == 3
    other = table()
    other.loc[2000:2010, "flux"] *= 30
    other.to_csv(finished / "other.csv", index=False)
    assert run("events", finished / "run", finished / "other.csv").stdout.count("\n") == 4
    ahead = pd.read_csv(finished / "run" / "forecast.csv")
    given = json.loads(run("forecast", finished / "run", "--horizon", "3", "--json").stdout)
    assert [row["steps"] for row in given] == [1, 2, 3]
    assert given[2]["probability"] == pytest.approx(ahead["probability"][2], rel=0.2)
    before = (finished / "run" / "report.html").stat().st_mtime_ns
    run("report", finished / "run")
    assert (finished / "run" / "report.html").stat().st_mtime_ns > before


@pytest.mark.nightly
def test_a_stream_is_watched(finished):
    y = np.log(table()["flux"].to_numpy())
    lines = "\n".join(f"{v:.4f}" if i != 1500 else "" for i, v in enumerate(y - np.sin(np.arange(4000) / 500)))
    done = run("watch", finished / "run", "--json", input=lines)
    assert "of 100,000 observations raise a false alarm" in done.stderr
    given = [json.loads(line) for line in done.stdout.splitlines()]
    assert [t["what"] for t in given] == ["alarm", "over"] * 2
    assert [t["row"] for t in given] == pytest.approx([1001, 1031, 3001, 3021], abs=1)
    assert "line 2 is 'x', which is not a number" in run("watch", finished / "run", input="1.0\nx\n").stderr


@pytest.mark.nightly
def test_settings_from_a_file(finished, tmp_path):
    (tmp_path / "s.yaml").write_text(f"file: {finished / 'flux.csv'}\ncolumn: [flux]\nlog: true\nstates: 2\n")
    done = run("fit", "--settings", tmp_path / "s.yaml", "--method", "map", "--out", tmp_path / "r", "--json")
    assert json.loads(done.stdout)["method"] == "map"
    assert "method: map" in (tmp_path / "r" / "settings.yaml").read_text()
    (tmp_path / "s.yaml").write_text("file: x.csv\nstats: 2\n")
    one_line(run("fit", "--settings", tmp_path / "s.yaml", code=1), "no setting 'stats'. Did you mean 'states'?")


def test_a_run_is_not_written_over(finished):
    before = (finished / "run" / "posterior.nc").read_bytes()
    done = run("fit", finished / "flux.csv", "--column", "flux", "--out", finished / "run", code=1)
    one_line(done, "already holds a run", "--force")
    assert (finished / "run" / "posterior.nc").read_bytes() == before


at_night = pytest.mark.nightly  # tests/unit/test_files.py has the like without processes


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.csv.gz", gzip.compress(b"x\n" + b"1.5\n" * 9000, mtime=0)[:50], ["cannot be read", "cut off"]),
        ("constant.csv", b"x\n" + b"1.5\n" * 50, ["a constant series has no regimes"]),
        pytest.param("nowhere.csv", None, ["does not exist"], marks=at_night),
        pytest.param("empty.csv", b"", ["is empty"], marks=at_night),
        pytest.param(
            "a.csv",
            b"time,flux\n1,2\n2,3\n",
            ["2 columns of numbers; say which with --column: time, flux"],
            marks=at_night,
        ),
        pytest.param("binary.csv", bytes(range(256)) * 40, ["binary.csv"], marks=at_night),
        pytest.param("cut.npz", b"PK\x03\x04half", ["cannot be read"], marks=at_night),
    ],
)
def test_bad_files_are_named_in_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    one_line(run("fit", tmp_path / name, "--out", tmp_path / "run", code=1), *message)
    assert name == "constant.csv" or not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_a_wrong_column_lists_those_there_are(finished, tmp_path):
    done = run("fit", finished / "flux.csv", "--column", "flus", "--out", tmp_path / "r", code=1)
    one_line(done, "no column 'flus'; it has time, flux, other. Did you mean 'flux'?")
    assert "Traceback" in run("--debug", "fit", finished / "flux.csv", "--column", "x", code=1).stderr
    assert "Usage" in run("fit", "--statess", "3", code=2).stderr


def test_a_full_disk_leaves_nothing_half_written(finished, tmp_path):
    resource = pytest.importorskip("resource", reason="limits of the size of files are Unix's")

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    options = ["--column", "flux", "--log", "--states", "2", "--draws", "500", "--out", tmp_path / "run", "--quiet"]
    done = run("fit", finished / "flux.csv", *options, code=1, preexec_fn=small)
    assert "File too large" in done.stderr or "posterior.nc" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["log.txt", "settings.yaml"]


@pytest.mark.nightly
def test_an_interrupted_run_is_taken_up_again(tmp_path):
    table(60_000).to_csv(tmp_path / "flux.csv", index=False)
    options = ["--column", "flux", "--log", "--states", "3", "--method", "gibbs", "--draws", "300", "--quiet"]
    command = [PROGRAM, "fit", tmp_path / "flux.csv", *options, "--out", tmp_path / "run"]

    def hearing():  # what a shell starts in the background ignores Ctrl-C, and so do its children
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipe = subprocess.PIPE
    program = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=hearing)
    while not (tmp_path / "run" / "log.txt").exists() and program.poll() is None:
        time.sleep(0.05)
    time.sleep(4)
    program.send_signal(signal.SIGINT)
    _, said = program.communicate(timeout=120)
    assert program.returncode == 130, said
    assert "Traceback" not in said
    assert not (tmp_path / "run" / "posterior.nc").exists()
    one_line(run("events", tmp_path / "run", code=1), "holds an unfinished run; continue with: rarehmm resume")
    code = subprocess.run([PROGRAM, "resume", tmp_path / "run", "--quiet"], timeout=300, check=False).returncode
    assert code in (0, 3)
    assert (tmp_path / "run" / "report.html").exists()
    one_line(run("resume", tmp_path / "run", code=1), "is finished")


@pytest.mark.nightly
def test_a_run_with_season_and_lags_that_is_killed_ends_as_one_that_is_not(tmp_path):
    rng, T = np.random.default_rng(0), 3_000
    y = lfilter([1.0], [1.0, -0.5], rng.normal(size=T)) + 2 * np.sin(np.arange(T) * 2 * np.pi / 24)
    y[500:520] += 12
    pd.DataFrame({"y": y}).to_csv(tmp_path / "y.csv", index=False)
    command = ["fit", tmp_path / "y.csv", "--states", "2", "--ar", "1", "--season", "24", "--draws", "200"]
    run(*command, "--out", tmp_path / "whole")  # everything is compiled now
    began = time.perf_counter()
    run(*command, "--out", tmp_path / "again")
    seconds = time.perf_counter() - began
    for part in (0.3, 0.6):
        program = subprocess.Popen([PROGRAM, *map(str, command), "--out", tmp_path / "killed", "--quiet", "--force"])
        time.sleep(part * seconds)
        program.kill()
        program.wait()
        assert not (tmp_path / "killed" / "posterior.nc").exists()
    run("resume", tmp_path / "killed")
    whole, killed = (Posterior.load(tmp_path / name / "posterior.nc") for name in ("whole", "killed"))
    for name in ("phi", "transition", "coefficients"):
        np.testing.assert_array_equal(getattr(killed, name), getattr(whole, name))


@pytest.mark.nightly
def test_simulate(finished, tmp_path):
    run("simulate", finished / "run", "--size", "500", "--out", tmp_path / "y.csv")
    found = pd.read_csv(tmp_path / "y.csv")
    assert list(found) == ["y", "state"]
    assert len(found) == 500
    one_line(run("simulate", "--out", tmp_path / "y.csv", code=1), "already exists")


def test_help_names_every_command():
    shown = run("--help", env={**os.environ, "COLUMNS": "120"}).stdout
    for name in (
        "demo",
        "fit",
        "resume",
        "events",
        "forecast",
        "report",
        "simulate",
        "watch",
        "reproduce",
        "convert",
        "warm-up",
    ):
        assert name in shown
    assert "3 finished but results are unreliable" in shown
