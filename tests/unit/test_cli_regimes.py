"""Season, lags, inputs, known states and durations on the command line and in run folders."""

import io
import json

import numpy as np
import pandas as pd
import pytest
import yaml

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.cli import watching
from rarehmm.app.cli.app import run
from rarehmm.app.settings import from_mapping
from rarehmm.app.term_texts import durations_of, lags_of, season_of, switching_of, trend_of

pytestmark = pytest.mark.plain

T = 480
GIVEN = {"file": "x.csv", "column": ["cpu"], "time": "time"}


def output_of(capsys, *args, code=0):
    """What a command prints; without the breaks of a terminal."""
    assert run([*map(str, args)]) == code
    said = capsys.readouterr()
    return said.out, " ".join(said.err.split())


def table(seed=0):
    rng = np.random.default_rng(seed)
    hours = pd.date_range("2026-01-01", periods=T, freq="h")
    temp, load, noise = 20 + rng.normal(size=T), rng.normal(size=T), rng.normal(size=T)
    for t in range(1, T):
        noise[t] += 0.6 * noise[t - 1]
    y = noise + 3 * np.sin(2 * np.pi * hours.hour.to_numpy() / 24) + 0.5 * temp
    for first in (150, 400):
        y[first : first + 10] += 14
    label = pd.array([pd.NA] * T, dtype="Int64")
    label[155], label[3] = 1, 0
    return pd.DataFrame({"time": hours, "cpu": y, "temp": temp, "load": load, "label": label})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a file and a run."""
    out = tmp_path_factory.mktemp("metric")
    table().to_csv(out / "metric.csv", index=False)
    options = "--column cpu --time time --states 2 --ar 1 --season 1D:1 --trend linear --exog temp"
    more = "--states-column label --switching temp --method map --quiet"
    assert run(["fit", str(out / "metric.csv"), *options.split(), *more.split(), "--out", str(out / "run")]) == 0
    return out


def test_texts_of_terms():
    assert season_of("1D") == rh.Season("1D")
    assert season_of("7D:3") == rh.Season("7D", 3)
    assert season_of("24") == season_of(24) == rh.Season(24)
    assert season_of("24.5:2") == rh.Season(24.5, 2)
    assert [lags_of(text) for text in (None, 2, "2", "0")] == [None, 2, 2, 0]
    assert lags_of("intercept:2") == rh.Intercept(2)
    assert lags_of("hamilton:1") == rh.Hamilton(1)
    assert lags_of("level:3") == rh.AroundLevel(3)
    assert [trend_of(text) for text in (None, "linear", "5", 5)] == [None, "linear", 5, 5]
    assert [durations_of(text) for text in (None, 3, "3", "1,3")] == [None, 3, 3, [1, 3]]
    assert [switching_of(names) for names in ([], ["all"], ["temp", "ar"])] == [False, True, ["temp", "ar"]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"season": ["1D:x"]}, "season is '1D:x'; after the colon it must have a number of harmonics, such as 1D:3"),
        ({"season": ["monthly"]}, "the period of a season is 'monthly'"),
        ({"season": ["1D"], "time": None}, "season is 1D, a length of time, and no column of times is named"),
        ({"time_zone": "Europe/Berln"}, "time_zone is 'Europe/Berln'; .* Did you mean 'Europe/Berlin"),
        ({"time_zone": "UTC", "time": None, "season": []}, "time_zone is 'UTC', and no column of times is named"),
        ({"season": 24}, "season is 24; it must be a list of names"),
        ({"ar": "two"}, "ar is 'two'; it must be a number of lags, or one after level:, intercept:, hamilton:"),
        ({"ar": "arma:2"}, "ar is 'arma:2'; it must be a number of lags"),
        ({"trend": "ct"}, "trend is 'ct'; it must be linear, or a number of knots"),
        ({"durations": "1;3"}, "durations is '1;3'; it must be a number of steps, or one for each state: 1,3"),
        ({"exog": ["temp"], "column": []}, "column is missing, and temp are inputs or states; name what to model"),
        ({"exog": ["cpu"]}, "'cpu' is the column to model, and cannot be an input or known states as well"),
        ({"states_colum": "label"}, "there is no setting 'states_colum'. Did you mean 'states_column'"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        from_mapping({**GIVEN, **given})


def test_settings_become_those_of_the_estimator():
    given = {"ar": 2, "season": ["1D", 24], "trend": "linear", "exog": ["temp"], "exog_transition": ["temp", "load"],
             "switching": ["season"], "scale": ["temp"], "transitions": ["season"], "states": 2}  # fmt: skip
    hmm = runs.estimator_of(from_mapping({**GIVEN, **given}))
    assert (hmm.ar, hmm.season, hmm.trend) == (2, [rh.Season("1D"), rh.Season(24)], "linear")
    assert (hmm.switching, hmm.scale, hmm.transitions) == (["season"], ["temp"], ["season", "temp"])
    bare = runs.estimator_of(from_mapping(GIVEN))
    assert (bare.ar, bare.season, bare.trend, bare.switching, bare.scale) == (None, None, None, False, None)
    assert runs.estimator_of(from_mapping({**GIVEN, "durations": "1,3", "states": 2})).durations == [1, 3]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_a_file_in_their_roles(tmp_path, kind):
    path = str(tmp_path / f"metric.{kind}")
    data = table().assign(label=table()["label"].fillna(-1).astype(int))
    data.to_csv(path, index=False) if kind == "csv" else data.to_parquet(path, index=False)
    given = {**GIVEN, "file": path, "exog": ["temp"], "exog_transition": ["temp", "load"], "states_column": "label"}
    series = runs.series_of(from_mapping(given))
    assert series.exog_names == ("temp", "load")
    assert (series.observation_names, series.transition_names) == (("temp",), ("load",))
    assert (series.n_known, series.known_states) == (2, (0, 1))
    rows = series.read_rows(150, 160)
    np.testing.assert_allclose(rows.exog, data[["temp", "load"]][150:160])
    np.testing.assert_allclose(rows.y[:, 0], data["cpu"][150:160])
    logs = runs.series_of(from_mapping({**given, "log": True}))
    np.testing.assert_allclose(logs.read(0, 5)[:, 0], np.log(data["cpu"][:5]))
    np.testing.assert_allclose(logs.read_rows(0, 5).exog, rows_of(data))


def rows_of(data):
    return data[["temp", "load"]][:5]


@pytest.mark.jit
def test_a_run_keeps_its_settings(folder):
    stored = yaml.safe_load((folder / "run" / "settings.yaml").read_text())
    wanted = {"ar": "1", "season": ["1D:1"], "trend": "linear", "exog": ["temp"], "states_column": "label"}
    assert {name: stored[name] for name in wanted} == wanted
    settings, hmm = runs.load(folder / "run")
    assert hmm.posterior_.model.autoregression == rh.AroundLevel(1)
    assert hmm.exog_names_in_.tolist() == ["temp"]
    assert "switching_coefficient[temp, 1]" in hmm.summary().index
    report = (folder / "run" / "report.html").read_text()
    assert "swing of the season 1D" in report
    assert "Terms of the model" in report
    assert '<p class="headline">In 20 days of cpu, two rare events of about 10 hours were found; the first' in report
    assert "switching_coefficient[temp, 1]" in report
    assert "Mode only, no uncertainty. Sojourn" in report
    assert "adds over its range: mode only, no uncertainty." in report
    assert "90 % interval" not in report
    assert (folder / "run" / "forecast.csv").is_file()
    assert runs.series_of(settings).n_known == 2


@pytest.mark.jit
def test_later_commands_need_no_settings(folder, capsys):
    out, _ = output_of(capsys, "events", folder / "run")
    events = pd.read_csv(io.StringIO(out))
    assert events["start"].tolist() == ["2026-01-07 06:00:00", "2026-01-17 16:00:00"]
    other = table(1).drop(columns="label")  # states are known in the file of the run alone
    other["time"] = other["time"] + pd.Timedelta("60D")
    other.to_csv(folder / "other.csv", index=False)
    out, _ = output_of(capsys, "events", folder / "run", folder / "other.csv")
    assert pd.read_csv(io.StringIO(out))["duration"].tolist() == [10, 10]
    out, _ = output_of(capsys, "forecast", folder / "run", "--horizon", "3", "--json")
    assert [row["steps"] for row in json.loads(out)] == [1, 2, 3]
    other.drop(columns="temp").to_csv(folder / "bare.csv", index=False)
    _, err = output_of(capsys, "events", folder / "run", folder / "bare.csv", code=1)
    assert "bare.csv has no column 'temp'; it has time, cpu, load" in err
    (folder / "run" / "report.html").unlink()
    out, _ = output_of(capsys, "resume", folder / "run", "--quiet")
    assert (folder / "run" / "report.html").is_file()


@pytest.mark.jit
def test_a_forecast_takes_inputs_from_a_file(folder, capsys, tmp_path):
    out, _ = output_of(capsys, "forecast", folder / "run", "--horizon", "5")
    states_alone = pd.read_csv(io.StringIO(out))
    assert list(states_alone) == ["steps", "probability", "low", "high", "time"]
    assert states_alone["time"].iloc[0] == "2026-01-21 00:00:00"
    hours = pd.date_range("2026-01-21", periods=6, freq="h")
    future = pd.DataFrame({"time": hours, "temp": [20.0, 20, 20, 20, 20, 60]})
    for name in ("future.csv", "future.parquet"):
        write = future.to_csv if name.endswith("csv") else future.to_parquet
        write(tmp_path / name, index=False)
        found = pd.read_csv(io.StringIO(output_of(capsys, "forecast", folder / "run", "--future", tmp_path / name)[0]))
        assert list(found) == ["steps", "probability", "low", "high", "y_mean", "y_low", "y_high", "time"]
        assert found["y_mean"].iloc[5] > found["y_mean"].iloc[4] + 10
    future.assign(time=hours + pd.Timedelta("1h")).to_csv(tmp_path / "late.csv", index=False)
    _, said = output_of(capsys, "forecast", folder / "run", "--future", tmp_path / "late.csv", code=1)
    assert "row 0 of the future inputs is at 2026-01-21 01:00:00, and that of the series is at 2026-01-21 00:00" in said
    future.rename(columns={"temp": "tmp"}).to_csv(tmp_path / "other.csv", index=False)
    _, said = output_of(capsys, "forecast", folder / "run", "--future", tmp_path / "other.csv", code=1)
    assert "no column 'temp'" in said


@pytest.mark.jit
def test_a_stream_with_inputs_and_times_is_watched(folder, capsys, monkeypatch):
    rows = table()[140:165]
    lines = [f"{r.cpu},{r.temp},{r.time}\n" for r in rows.itertuples()]
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(lines)))
    out, err = output_of(capsys, "watch", folder / "run", "--json")
    assert "of 100,000 observations raise a false alarm" in err
    assert [json.loads(line)["row"] for line in out.splitlines()] == [11, 21]
    monkeypatch.setattr("sys.stdin", io.StringIO("1.0\n"))
    _, err = output_of(capsys, "watch", folder / "run")
    assert "line 1 is left out: line 1 has 1 values; it must have 3: 1 observed, temp, time" in err


def watched(capsys, monkeypatch, fit, lines, code=0):
    """The alarms and messages on a stream."""
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    out, err = output_of(capsys, "watch", fit, "--json", code=code)
    return [json.loads(line) for line in out.splitlines()], err


@pytest.mark.jit
def test_watching_goes_on_after_lines_that_cannot_be_read(folder, capsys, monkeypatch):
    """Their rows are missing, so that the times that follow fit."""
    monkeypatch.setattr(watching, "SIMULATED", 500)
    lines = [f"{r.cpu},{r.temp},{r.time}" for r in table()[140:165].itertuples()]
    lines[3] = "x," + lines[3].split(",", 1)[1]
    lines[5] = lines[5].rsplit(",", 1)[0] + ",?"
    lines[6:8] = ["1.0", ""]  # three in a row without a time
    lines.insert(4, "restarted")  # not a row
    alarms, err = watched(capsys, monkeypatch, folder / "run", lines)
    assert [one["row"] for one in alarms] == [12, 22]
    for words in (
        "line 4 counts as missing: line 4 is",
        "line 5 is left out: line 5 has 1 values",
        "line 7 is left out: ",
        "line 8 is left out: line 8 has 1 values",
        "line 9 is left out: line 9 has 1 values",
    ):
        assert words in err
    _, err = watched(capsys, monkeypatch, folder / "run", [*lines[:7], *lines[12:]], code=1)
    assert "rows are missing in 1 place" in err


@pytest.mark.jit
def test_a_run_is_simulated_with_its_inputs_and_times(folder, capsys, tmp_path):
    output_of(capsys, "simulate", folder / "run", "--out", tmp_path / "all.csv")
    assert len(pd.read_csv(tmp_path / "all.csv")) == T
    output_of(capsys, "simulate", folder / "run", "--size", "24", "--out", tmp_path / "day.csv")
    assert len(pd.read_csv(tmp_path / "day.csv")) == 24
    _, err = output_of(capsys, "simulate", folder / "run", "--size", "999", "--out", tmp_path / "x.csv", code=1)
    assert "size is 999, and the model has inputs or times, which" in err


@pytest.mark.jit
def test_transitions_with_inputs_and_durations(folder, capsys, monkeypatch):
    options = ["--column", "cpu", "--time", "time", "--states", "2", "--ar", "1", "--season", "1D:1", "--method", "map"]
    out, _ = output_of(
        capsys, "fit", folder / "metric.csv", *options, "--exog", "temp", "--exog-transition", "load", "--out",
        folder / "moving",
    )  # fmt: skip
    assert "transition_coefficient[load, 0, 1]" in out
    assert "coefficient[temp]" in out
    assert not (folder / "moving" / "forecast.csv").exists()
    assert "a forecast needs their future values" in (folder / "moving" / "report.html").read_text()
    _, err = output_of(capsys, "forecast", folder / "moving", code=1)
    assert "future inputs missing: 'load'" in err
    out, _ = output_of(capsys, "fit", folder / "metric.csv", *options, "--durations", "3", "--out", folder / "lasting")
    assert runs.load(folder / "lasting")[1].durations == 3
    lines = [f"{r.cpu},{r.time}" for r in table()[140:165].itertuples()]
    lines[4] = "nan," + lines[4].split(",")[1]
    found, _ = watched(capsys, monkeypatch, folder / "lasting", lines)
    assert len(found) == 2
    for bad in ("x," + lines[4].split(",")[1], "?"):
        lines[4] = bad
        assert watched(capsys, monkeypatch, folder / "lasting", lines)[0] == found


@pytest.mark.jit
def test_a_season_follows_local_time_over_a_change_of_clocks(folder, capsys, tmp_path, monkeypatch):
    hours = pd.date_range("2026-10-16", periods=T, freq="h", tz="Europe/Berlin")
    local = hours.tz_localize(None)
    data = table().assign(time=local)
    data["cpu"] += 3 * (np.sin(2 * np.pi * local.hour / 24) - np.sin(2 * np.pi * np.arange(T) / 24))
    data.to_csv(tmp_path / "a.csv", index=False)
    options = ["--column", "cpu", "--time", "time", "--states", "2", "--ar", "1", "--season", "1D:1", "--method", "map"]
    fit = ["fit", tmp_path / "a.csv", *options, "--exog", "temp", "--out", tmp_path / "run", "--quiet"]
    assert 'pass times with their zone, such as y.tz_localize("Europe' in output_of(capsys, *fit, code=1)[1]
    output_of(capsys, *fit, "--time-zone", "Europe/Berlin")
    events = pd.read_csv(io.StringIO(output_of(capsys, "events", tmp_path / "run")[0]))
    assert events["start"].tolist() == [str(hours[150]), str(hours[400])]
    summary = runs.load(tmp_path / "run")[1].summary()
    assert summary.loc["coefficient[sin(1D) 1]", "mean"] == pytest.approx(3, abs=0.4)

    def lines(rows):
        return "".join(f"{r.cpu},{r.temp},{r.time}\n" for r in rows.itertuples())

    at = int(np.flatnonzero(local.duplicated())[0])  # the hour that occurs twice, for the second time
    monkeypatch.setattr("sys.stdin", io.StringIO(lines(data[at - 5 : at + 5])))
    output_of(capsys, "watch", tmp_path / "run", "--json")
    for rows, message in (
        (
            data.iloc[[10, 11, 9]],
            "time goes back in 1 of 3 rows: times[0] (row 2 of the stream, at 2026-10-16 09:00:00+02",
        ),
        (data.iloc[[10, 11, 11]], "time stands still in 1 of 3 rows: times[0] (row 2 of the stream"),
        (data.iloc[[10, 11, 14]], "2 rows are missing in 1 place: times[0] (row 2 of the stream"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(lines(rows)))
        assert message in output_of(capsys, "watch", tmp_path / "run", code=1)[1]
