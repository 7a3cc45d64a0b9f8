"""The commands in this process, on small inputs."""

import io
import json
import re
import runpy
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import typer
import xarray as xr
import yaml
from typer.testing import CliRunner

from rarehmm.app import cli, runs
from rarehmm.app.cli import demonstrating, kernels, watching
from rarehmm.app.cli.app import run
from rarehmm.app.cli.running import option
from rarehmm.common.checks import InterruptedWarning

pytestmark = pytest.mark.plain


def invoke(*args):
    done = CliRunner().invoke(cli.app, list(args))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.jit
def test_demo(tmp_path, monkeypatch):
    monkeypatch.setattr(demonstrating, "fit_metric", lambda out, seed: True)  # in its own process every night
    out = invoke("demo", "--size", "10000", "--out", str(tmp_path))
    assert "States: mean and 90 % interval" in out
    assert "Posterior: all checks passed." in out
    assert "Model: fits the series." in out
    assert (
        "\nIn 10,000 observations of series.npy, 58 rare events of 1 observation were found; the first at row 26,"
        in out
    )
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_the_metric_of_the_demo_has_events_of_two_kinds():
    table, states = demonstrating.metric(np.random.default_rng(0))
    edges = np.flatnonzero(np.diff(states, prepend=0, append=0)).reshape(-1, 2)
    assert len(edges) == 15
    events = pd.DataFrame({end: table["time"].iloc[rows].to_numpy() for end, rows in
                           (("start", edges[:, 0]), ("end", edges[:, 1] - 1))})  # fmt: skip
    assert demonstrating.comparison(table["time"], states, events) == (
        "The truth: 9 of the 9 simulated overloads and 6 of the 6 simulated outages were found, and none of the events "
        "found are false."
    )
    events.loc[0] = table["time"].iloc[edges[0, 1] + 5]
    found = demonstrating.comparison(table["time"], states, events)
    assert "8 of the 9 simulated overloads and 6 of the 6" in found
    assert "and 1 of the events found are false." in found


def test_warm_up_names_the_families():
    assert "poisson" in invoke("warm-up", "poisson")
    assert kernels.univariate_families() == [
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
    assert (tmp_path / "other" / "events.csv").read_text().count("\n2026-01-01 16:40:00,") == 1
    given = yaml.safe_load((tmp_path / "other" / "settings.yaml").read_text())["file"]
    assert given == ([str(flux / name) for name in names] if len(names) > 1 else str(flux / names[0]))
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


def test_a_logarithm_is_taken_of_files_that_stay_where_they_are(flux):
    given = {"file": [str(flux / "1.parquet"), str(flux / "2.parquet")], "column": ["flux"], "log": True}
    y = pd.read_csv(flux / "flux.csv")["flux"]
    np.testing.assert_allclose(runs.series_of(runs.from_mapping(given)).read(1000, 2000)[:, 0], np.log(y[1000:2000]))


def test_rows_missing_from_files_are_put_back(flux, tmp_path):
    table = pd.read_csv(flux / "flux.csv").drop(index=[5, 6, 2000])
    table["time"] = pd.to_datetime(table["time"])
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet", index=False, row_group_size=500)
    expected = pd.read_csv(flux / "flux.csv")["flux"].to_numpy(copy=True)
    expected[[5, 6, 2000]] = np.nan
    for name in ("a.csv", "a.parquet"):
        given = {"file": str(tmp_path / name), "column": ["flux"], "time": "time"}
        with pytest.raises(ValueError, match=rf"{name}: 3 rows are missing in 2 places: y\[5\].*--regular fill"):
            runs.series_of(runs.from_mapping(given))
        series = runs.series_of(runs.from_mapping(given | {"regular": "fill"}))
        np.testing.assert_array_equal(series.read(0, 3000)[:, 0], expected)
        assert len(runs.series_of(runs.from_mapping(given | {"regular": False}))) == 2997  # as YAML reads "no"
        smooth = runs.series_of(runs.from_mapping(given | {"regular": "fill", "detrend": "spline:5"}))
        assert len(smooth) == 3000
        assert abs(np.nanmean(smooth.read(0, 3000))) < 0.01
    with pytest.raises(ValueError, match=r"regular is 'fil'; it must be one of yes, fill, no. Did you mean 'fill'"):
        runs.from_mapping(given | {"regular": "fil"})


@pytest.mark.jit
def test_options_for_times_reach_the_file(tmp_path, capsys):
    minutes = pd.date_range("2026-02-01", periods=600, freq="min").delete([50, 51])
    y = np.random.default_rng(0).normal(size=598) + 9 * (np.arange(598) % 200 > 190)
    pd.DataFrame({"t": minutes.strftime("%d/%m/%Y %H:%M"), "y": y}).to_csv(tmp_path / "a.csv", index=False)
    fit = ["fit", tmp_path / "a.csv", "--time", "t", "--states", "2", "--method", "map", "--out", tmp_path / "run"]
    _, said = output_of(capsys, *fit, code=1)
    assert "nothing in the file tells day from month; give the format with --date-format, such as '%d/%m/%Y" in said
    _, said = output_of(capsys, *fit, "--date-format", "%d/%m/%Y %H:%M", code=1)
    assert "a.csv: 2 rows are missing in 1 place: y[50] (at 2026-02-01 00:52:00)" in said
    output_of(capsys, *fit, "--date-format", "%d/%m/%Y %H:%M", "--regular", "fill", "--quiet")
    assert "2026-02-01 03:1" in (tmp_path / "run" / "events.csv").read_text()
    assert runs.load(tmp_path / "run")[1]._regular == "fill"


def test_tables_end_their_lines_the_same_way_on_every_system(tmp_path, monkeypatch):
    """pandas takes the system's way, and a file of text would translate it once more."""
    monkeypatch.setattr("os.linesep", "\r\n")
    runs.write(tmp_path / "table.csv", runs.as_csv(pd.DataFrame({"start": [1, 2]})))
    assert (tmp_path / "table.csv").read_bytes() == b"start\n1\n2\n"


# ---------------------------------------------------------------- runs, from files to reports
def output_of(capsys, *args, code=0):
    """What a command prints; without the escapes and breaks of a terminal."""
    assert run([*map(str, args)]) == code
    said = capsys.readouterr()
    return said.out, " ".join(said.err.split())


def small(events=((100, 107), (220, 225)), size=300):
    y = np.exp(np.random.default_rng(0).normal(0, 0.3, size))
    for first, last in events:
        y[first:last] *= 30
    times = pd.date_range("2026-01-01", periods=size, freq="min")
    return pd.DataFrame({"time": times, "flux": y, "other": np.arange(size, dtype=float)})


OPTIONS = ["--column", "flux", "--time", "time", "--states", "2", "--log", "--method", "map"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a file and a run."""
    folder = tmp_path_factory.mktemp("small")
    small().to_csv(folder / "flux.csv", index=False)
    out = invoke("fit", str(folder / "flux.csv"), *OPTIONS, "--out", str(folder / "run"))
    assert "States: mode only, no uncertainty" in out
    assert "The longest of 2 rare events" in out
    assert "\nPosterior: all checks passed. Note: this is the mode alone, without uncertainty.\nModel: fits the" in out
    assert f"report: {folder / 'run' / 'report.html'}" in out
    return folder


@pytest.fixture
def known(finished, monkeypatch):
    """Fits find at once what the run has found."""
    _, hmm = runs.load(finished / "run")

    def fit(self, series, **_):
        vars(self).update(vars(hmm))

    monkeypatch.setattr(runs.RareHMM, "fit", fit)
    return fit


def test_a_run_holds_what_was_found(finished):
    assert sorted(p.name for p in (finished / "run").iterdir()) == sorted(runs.FILES)
    events = pd.read_csv(finished / "run" / "events.csv")
    assert events["start"].tolist() == ["2026-01-01 01:40:00", "2026-01-01 03:40:00"]
    assert events["duration"].tolist() == [7, 5]
    diagnosis = json.loads((finished / "run" / "diagnosis.json").read_text())
    assert diagnosis["method"] == "map"
    assert (diagnosis["trusted"], diagnosis["verdict"]) == (True, "All checks passed.")
    assert (diagnosis["fits"], diagnosis["fit"]) == (True, "The model fits the series.")
    assert diagnosis["verdicts"]["posterior"].startswith("Posterior: all checks passed. Note: this is the mode alone")
    assert diagnosis["verdicts"]["model"] == "Model: fits the series."
    assert yaml.safe_load((finished / "run" / "settings.yaml").read_text())["log"] is True
    assert "300 observations" in (finished / "run" / "log.txt").read_text()


def test_events_of_a_run_and_of_another_file(finished, tmp_path, capsys):
    out, _ = output_of(capsys, "events", finished / "run")
    assert out == (finished / "run" / "events.csv").read_text()
    small(events=((60, 70), (180, 190), (240, 250))).to_csv(tmp_path / "other.csv", index=False)
    out, _ = output_of(capsys, "events", finished / "run", tmp_path / "other.csv", "--causal", "--json")
    assert [row["start"][11:16] for row in json.loads(out)] == ["01:00", "03:00", "04:00"]


def test_events_with_other_settings(finished, capsys):
    kept = output_of(capsys, "events", finished / "run")[0]
    assert output_of(capsys, "events", finished / "run", "--threshold", "0.5", "--gap", "2", "--states", "1")[0] == kept
    rows = json.loads(output_of(capsys, "events", finished / "run", "--states", "0,1", "--json")[0])
    assert [row["duration"] for row in rows] == [300]
    rows = json.loads(output_of(capsys, "events", finished / "run", "--shortest", "6", "--json")[0])
    assert [row["duration"] for row in rows] == [7]
    rows = json.loads(output_of(capsys, "events", finished / "run", "--gap", "200", "--json")[0])
    assert [row["duration"] for row in rows] == [125]
    assert output_of(capsys, "events", finished / "run", "--threshold", "f1")[0] == kept
    _, err = output_of(capsys, "events", finished / "run", "--states", "one", code=1)
    assert "states is 'one'; it must have whole numbers, separated by commas" in err


def test_a_run_works_from_anywhere_and_after_it_has_moved(finished, tmp_path, capsys, monkeypatch):
    kept = (finished / "run" / "events.csv").read_text()
    monkeypatch.chdir(finished)
    output_of(capsys, "fit", "flux.csv", *OPTIONS, "--quiet", "--out", tmp_path / "there" / "run")
    monkeypatch.chdir(tmp_path)
    assert output_of(capsys, "events", "there/run")[0] == kept
    (tmp_path / "there").rename(tmp_path / "elsewhere")  # without its file
    assert output_of(capsys, "events", "elsewhere/run")[0] == kept
    shutil.copytree(finished, tmp_path / "copy")  # with its file, which has changed there
    small(events=((60, 70),)).to_csv(tmp_path / "copy" / "flux.csv", index=False)
    assert "01:00:00" in output_of(capsys, "events", "copy/run")[0]
    assert output_of(capsys, "report", "copy/run")
    assert str(finished) not in (tmp_path / "copy" / "run" / "report.html").read_text()


def test_a_run_is_taken_up_where_it_stopped(finished, tmp_path, capsys, monkeypatch):
    """What has been found is not sought again."""
    shutil.copytree(finished, tmp_path / "all")
    run = tmp_path / "all" / "run"
    before = {name: (run / name).read_text() for name in ("events.csv", "forecast.csv", "diagnosis.json")}
    for name in ("events.csv", "diagnosis.json", "report.html"):
        (run / name).unlink()
    monkeypatch.setattr(runs.RareHMM, "fit", lambda *_, **__: pytest.fail("it is fitted again"))
    output_of(capsys, "resume", run, "--quiet")
    assert {name: (run / name).read_text() for name in before} == before


def test_help_names_choices_and_flags_have_no_type(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out, _ = output_of(capsys, "fit", "--help")
    assert "free_student_t" in out
    assert "importance, " in out
    assert "<bool>" not in out
    assert "BOOLEAN" not in out
    assert option("method").autocompletion("la") == ["langevin", "laplace"]
    assert "--install-completion" in output_of(capsys, "--help")[0]
    assert output_of(capsys, "--version")[0].startswith("rarehmm 0.")


def test_separators_and_decimals_are_kept_in_a_run(finished, known, tmp_path, capsys):
    small().to_csv(tmp_path / "flux.csv", index=False, sep=";", decimal=",")
    command = ["fit", tmp_path / "flux.csv", *OPTIONS, "--quiet", "--out", tmp_path / "run"]
    assert "pass --sep ';'" in output_of(capsys, *command, code=1)[1]
    assert "pass --decimal ," in output_of(capsys, *command, "--sep", ";", code=1)[1]
    assert "sep is '--'; it must be a single character" in output_of(capsys, *command, "--sep=--", code=1)[1]
    output_of(capsys, *command, "--sep", ";", "--decimal", ",")
    assert output_of(capsys, "events", tmp_path / "run")[0] == (finished / "run" / "events.csv").read_text()


def test_a_forecast_ends_at_its_horizon(finished, capsys):
    kept = pd.read_csv(finished / "run" / "forecast.csv")
    assert len(kept) == 100
    assert kept["probability"].is_monotonic_increasing
    rows = json.loads(output_of(capsys, "forecast", finished / "run", "--horizon", "3", "--json")[0])
    assert [row["steps"] for row in rows] == [1, 2, 3]
    assert rows[2]["probability"] == pytest.approx(kept["probability"][2], rel=1e-6)
    assert output_of(capsys, "forecast", finished / "run")[0].count("\n") == 101


def test_a_report_is_written_again(finished, capsys):
    page = finished / "run" / "report.html"
    before = without_marks(page)
    page.unlink()
    assert str(page) in output_of(capsys, "report", finished / "run")[0]
    assert without_marks(page) == before


def test_a_misfit_is_said_and_is_no_failure(tmp_path, capsys):
    np.save(tmp_path / "walk.npy", np.cumsum(np.random.default_rng(0).normal(size=200)))
    command = ["fit", tmp_path / "walk.npy", "--states", 1, "--method", "map", "--out"]
    out, _ = output_of(capsys, *command, tmp_path / "run")
    assert "Posterior: all checks passed." in out
    assert "Model: does not fit the series, so do not rely on its probabilities and intervals: residual auto" in out
    assert json.loads((tmp_path / "run" / "diagnosis.json").read_text())["fits"] is False
    page = (tmp_path / "run" / "report.html").read_text()
    assert '<div class="verdict good"><p class="soft">Is this the posterior of the model?</p>' in page
    assert '<div class="verdict bad"><p class="soft">Is this a model of the series?</p>' in page


@pytest.mark.parametrize("by", ["option", "settings"])
def test_the_model_check_can_be_left_out(tmp_path, capsys, by):
    np.save(tmp_path / "walk.npy", np.cumsum(np.random.default_rng(0).normal(size=200)))
    (tmp_path / "mine.yaml").write_text("check_model: false")
    given = ["--no-check-model"] if by == "option" else ["--settings", tmp_path / "mine.yaml"]
    command = ["fit", tmp_path / "walk.npy", "--states", 1, "--method", "map", *given, "--out", tmp_path / "run"]
    assert "Model: not checked: check_model is False." in output_of(capsys, *command)[0]
    diagnosis = json.loads((tmp_path / "run" / "diagnosis.json").read_text())
    assert diagnosis["fits"] is None
    output_of(capsys, "report", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "diagnosis.json").read_text()) == diagnosis
    assert '<div class="verdict unknown">' in (tmp_path / "run" / "report.html").read_text()


def without_marks(page):
    """A report without the names that Matplotlib draws by lot for parts of a picture."""
    return re.sub("[mp][0-9a-f]{10}", "", page.read_text())


def test_what_is_simulated_looks_like_the_run(finished, tmp_path, capsys):
    out, _ = output_of(capsys, "simulate", finished / "run", "--size", "300", "--out", tmp_path / "y.csv")
    assert "300 observations" in out
    table = pd.read_csv(tmp_path / "y.csv")
    assert list(table) == ["y", "state"]
    assert len(table) == 300
    assert table["y"][table["state"] == 0].mean() == pytest.approx(0, abs=0.1)
    _, err = output_of(capsys, "simulate", "--out", tmp_path / "y.csv", code=1)
    assert "already exists; choose another name with --out" in err
    output_of(capsys, "simulate", "--size", "200", "--out", tmp_path / "paper.csv")
    paper = pd.read_csv(tmp_path / "paper.csv")
    assert np.abs(paper["y"] - 20 * (paper["state"] - 1)).max() < 5  # means of -20, 0 and 20


def test_a_stream_is_watched(finished, capsys, monkeypatch):
    monkeypatch.setattr(watching, "SIMULATED", 500)
    y = [0.1] * 10 + [3.4] * 5 + [0.0] * 5
    lines = [str(v) for v in y]
    lines[5] = ""  # a missing observation
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines) + "\n"))
    out, err = output_of(capsys, "watch", finished / "run")
    assert [line.split(":")[0] for line in out.splitlines()] == ["alarm at 11", "over at 16"]
    assert "of 100,000 observations raise a false alarm" in err
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    out, _ = output_of(capsys, "watch", finished / "run", "--json")
    alarms = [json.loads(line) for line in out.splitlines()]
    assert [(a["row"], a["what"]) for a in alarms] == [(11, "alarm"), (16, "over")]
    assert alarms[0]["probability"] >= 0.9 > alarms[1]["probability"]
    assert "the run models the logarithm of the series; lines must have it, too" in err


def test_a_stream_survives_what_cannot_be_read(finished, capsys, monkeypatch):
    """Names are left out, and a bad line is a missing observation; both are said."""
    monkeypatch.setattr(watching, "SIMULATED", 500)
    lines = ["flux", *["0.1"] * 4, "x", "1,2", "1e999", *["3.4"] * 3]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    out, err = output_of(capsys, "watch", finished / "run")
    assert out.startswith("alarm at 9:")
    for words in (
        "line 1 is left out: line 1 is 'flux', which is not a number",
        "line 6 counts as missing: line 6 is 'x', which is not a number",
        "line 7 counts as missing: line 7 has 2 values; it must have 1",
        "line 8 counts as missing: observation 7 is inf",
    ):
        assert words in err


def test_nothing_rare_is_said(finished, tmp_path, capsys):
    command = ["fit", finished / "flux.csv", *OPTIONS, "--states", "1", "--out", tmp_path / "run"]
    assert "no rare events" in output_of(capsys, *command)[0]
    assert "None." in (tmp_path / "run" / "report.html").read_text()
    assert (tmp_path / "run" / "events.csv").read_text().count("\n") == 1
    assert "there is nothing to watch for" in output_of(capsys, "watch", tmp_path / "run", code=1)[1]


def test_settings_from_a_file_and_options_before_it(finished, known, tmp_path, capsys):
    settings = tmp_path / "s.yaml"
    settings.write_text(f"file: {finished / 'flux.csv'}\ncolumn: [flux]\nlog: true\nstates: 3\nmethod: map\n")
    out, _ = output_of(capsys, "fit", "--settings", settings, "--states", "2", "--out", tmp_path / "run", "--json")
    assert json.loads(out)["method"] == "map"
    kept = yaml.safe_load((tmp_path / "run" / "settings.yaml").read_text())
    assert (kept["states"], kept["log"]) == (2, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file: x.csv\nstats: 2\n", "there is no setting 'stats'. Did you mean 'states'?"),
        ("file: x.csv\nqqqq: 2\n", "there is no setting 'qqqq'. Choose from file, column, time"),
        ("file: x.csv\nstates: two\n", "states is 'two'; it must be a whole number."),
        ("file: x.csv\nstates: 0\n", "states is 0; it must be at least 1."),
        ("file: x.csv\nthreads: many\n", "threads is 'many'; it must be a whole number or empty."),
        ("file: x.csv\ncolumn: [1]\n", "column is [1]; it must be a list of names."),
        ("file: x.csv\nrare_share: 2\n", "rare_share is 2; it must lie between 0 and 1."),
        ("file: x.csv\ndetrend: spline\n", "detrend is 'spline'; it must be of the form spline:200"),
        ("file: x.csv\nmethod: gibs\n", "Did you mean 'gibbs'?"),
        ("states: 2\n", "no file is given; name one on the command line, or as 'file' in the settings."),
        ("- a\n", "holds no settings; write one per line, such as 'states: 4'."),
        ("!!python/object/apply:os.system ['echo']", "is not valid YAML"),
        (None, "cannot be read"),
    ],
)
def test_wrong_settings_are_named_in_one_line(tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "s.yaml").write_text(text)
    _, err = output_of(capsys, "fit", "--settings", tmp_path / "s.yaml", "--out", tmp_path / "run", code=1)
    assert err.startswith("error: ")
    assert message in err
    assert not (tmp_path / "run").exists()


def test_errors_are_one_line_and_usage_is_told_apart(finished, capsys):
    _, err = output_of(capsys, "fit", finished / "flux.csv", "--column", "flus", code=1)
    assert err.startswith("error: ")
    assert "no column 'flus'; it has time, flux, other. Did you mean 'flux'?" in err
    assert "Traceback" in output_of(capsys, "--debug", "fit", finished / "flux.csv", "--column", "x", code=1)[1]
    assert "Usage" in output_of(capsys, "fit", "--statess", "3", code=2)[1]
    out, _ = output_of(capsys, "--help")
    assert "3 finished but results are unreliable" in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("start", ["main", "module"])
def test_the_program_leaves_with_the_code_of_its_command(start, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["rarehmm", "events", str(tmp_path)])
    with pytest.raises(SystemExit) as left:
        cli.main() if start == "main" else runpy.run_module("rarehmm", run_name="__main__")
    assert left.value.code == 1
    assert "holds no run: there is no settings.yaml in it." in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("left", "code"),
    [(typer.Exit(4), 4), (typer.Abort(), 130), (KeyboardInterrupt(), 130)],
    ids=["exit", "abort", "^C"],
)
def test_however_a_command_is_left_there_is_a_code(monkeypatch, capsys, left, code):
    """Versions of typer raise or return."""

    def main(*args, **more):
        raise left

    monkeypatch.setitem(run.__globals__, "hide_types_of_flags", lambda command: None)
    monkeypatch.setattr("typer.main.get_command", lambda app: SimpleNamespace(main=main))
    assert output_of(capsys, code=code) == ("", "interrupted" if code == 130 else "")


def test_a_run_that_is_interrupted_is_taken_up_again(finished, known, tmp_path, capsys, monkeypatch):
    def interrupted(self, series, **_):
        warnings.warn("a word for the log", UserWarning, stacklevel=1)
        warnings.warn("half of it", InterruptedWarning, stacklevel=1)

    monkeypatch.setattr(runs.RareHMM, "fit", interrupted)
    folder = tmp_path / "run"
    command = ["fit", finished / "flux.csv", *OPTIONS, "--out", folder]
    out, _ = output_of(capsys, *command, code=130)
    assert f"interrupted; continue with: rarehmm resume {folder}" in out.replace("\n", "")
    assert sorted(p.name for p in folder.iterdir()) == ["log.txt", "settings.yaml"]
    assert "WARNING a word for the log" in (folder / "log.txt").read_text()
    assert "holds an unfinished run; continue with: rarehmm resume" in output_of(capsys, "events", folder, code=1)[1]
    monkeypatch.setattr(runs.RareHMM, "fit", known)
    assert output_of(capsys, "resume", folder, "--quiet") == ("", "")
    for name in ("events.csv", "forecast.csv", "regimes.json"):
        assert (folder / name).read_text() == (finished / "run" / name).read_text()
    assert "is finished; see" in output_of(capsys, "resume", folder, code=1)[1]


def test_a_posterior_that_is_not_to_be_trusted_has_a_code_of_its_own(finished, known, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(runs.RunResult, "passed", property(lambda self: False))
    output_of(capsys, "fit", finished / "flux.csv", *OPTIONS, "--quiet", "--out", tmp_path / "run", code=3)
    assert json.loads((tmp_path / "run" / "diagnosis.json").read_text())["trusted"] is False


def test_a_run_is_not_written_over_unless_forced(finished, known, tmp_path, capsys):
    command = ["fit", finished / "flux.csv", *OPTIONS, "--quiet", "--out"]
    assert (
        "already holds a run; use another folder, or --force"
        in output_of(capsys, *command, finished / "run", code=1)[1]
    )
    (tmp_path / "notes.txt").write_text("mine")
    assert "already holds files" in output_of(capsys, *command, tmp_path, code=1)[1]
    assert "is a file; pass the name of a folder" in output_of(capsys, *command, tmp_path / "notes.txt", code=1)[1]
    output_of(capsys, *command, tmp_path, "--force")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "events.csv").read_text() == (finished / "run" / "events.csv").read_text()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("regimes.json", "[", "regimes.json is damaged"),
        ("regimes.json", "[]", "regimes.json is damaged (0 regimes of 2 states); fit again."),
        ("settings.yaml", "file: x.csv\nstates: two\n", "settings.yaml: states is 'two'"),
    ],
)
def test_a_damaged_run_is_named(finished, tmp_path, capsys, name, text, message):
    shutil.copytree(finished / "run", tmp_path / "run")
    runs.load(tmp_path / "run")[1].posterior_.save(tmp_path / "run" / "posterior.nc")  # as version 0.1 did
    (tmp_path / "run" / name).write_text(text)
    assert message in output_of(capsys, "events", tmp_path / "run", code=1)[1]


def test_a_state_that_is_not_what_it_should_be_is_refused(finished, tmp_path, capsys):
    shutil.copytree(finished / "run", tmp_path / "run")
    runs.load(tmp_path / "run")[1].posterior_.save(tmp_path / "run" / "posterior.nc")
    kept = json.loads((tmp_path / "run" / "regimes.json").read_text())
    kept[1]["kind"] = "odd"
    (tmp_path / "run" / "regimes.json").write_text(json.dumps(kept))
    assert "is damaged (state 1 is Regime(" in output_of(capsys, "events", tmp_path / "run", code=1)[1]
