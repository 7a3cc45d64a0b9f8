"""Settings that suit a series: what generated it is chosen, and nothing else."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student_t

import rarehmm as rh
from rarehmm.app.cli.app import run
from rarehmm.app.settings import from_mapping, read_settings
from rarehmm.app.term_texts import chosen_texts, lags_of
from rarehmm.choosing.held_out import BLOCKS, MOST_LAGS, Sample, uneven_edges
from rarehmm.choosing.kinds import kind_of
from rarehmm.choosing.periods import calendar_periods, is_multiple, periodogram_periods
from rarehmm.choosing.regression import Regression, Robust, robust_regression
from rarehmm.choosing.suggestion import lag_words, season_words

T = 3_000


def noise(rng, rho=0.0, T=T):
    e = rng.normal(size=T)
    for t in range(1, T):
        e[t] += rho * e[t - 1]
    return e


def with_events(y, size):
    for first in range(200, len(y), 400):
        y[first : first + 20] += size
    return y


def load(rng, rho=0.6):
    """A metric by the half hour with a daily season, autocorrelated noise and events."""
    times = pd.date_range("2026-01-01", periods=T, freq="30min")
    return pd.Series(with_events(noise(rng, rho) + 4 * np.sin(2 * np.pi * np.arange(T) / 48), 9.0), times, name="load")


# ---------------------------------------------------------------- what is chosen
@pytest.fixture(scope="module")
def found():
    return rh.suggest(load(np.random.default_rng(1)))


@pytest.mark.jit
def test_season_lags_and_states_are_chosen(found):
    assert found.settings == {
        "n_components": 2, "emission": "gaussian", "ar": 1, "season": [rh.Season("1D", 1)], "trend": None,
    }  # fmt: skip


@pytest.mark.jit
def test_a_table_and_a_sentence_say_why(found):
    table = found.table.set_index("term")
    assert table.loc["season of 1D", "chosen"]
    assert table.loc["1 lag", "gain"] > 5 * table.loc["1 lag", "error"]
    assert str(found) == found.sentence == found.describe().splitlines()[-1]
    assert found.sentence.startswith("The series suits a model with 2 states, Gaussian noise, season of 1D and 1 lag;")


@pytest.mark.jit
def test_events_in_white_noise_need_no_lags():
    y = with_events(np.random.default_rng(2).normal(size=T), 6.0)
    settings = rh.suggest(y).settings
    assert settings == {"n_components": 2, "emission": "gaussian", "ar": None, "season": None, "trend": None}


@pytest.mark.jit
def test_white_noise_has_one_state():
    assert rh.suggest(np.random.default_rng(3).normal(size=T)).settings["n_components"] == 1


@pytest.mark.jit
def test_counts_and_positive_numbers_have_families_of_their_own():
    rng = np.random.default_rng(4)
    rate = with_events(np.full(T, 2.0), 10.0)
    assert rh.suggest(rng.poisson(rate)).settings["emission"] == "poisson"
    clumped = rng.poisson(rate * rng.gamma(1.0, 1.0, size=T))
    assert rh.suggest(clumped, n_components=2, ar=None, season=None).settings["emission"] == "free_negative_binomial"
    logs = with_events(0.6 * rng.normal(size=T), 2.0)
    assert rh.suggest(np.exp(logs), n_components=2, ar=None, season=None).settings["emission"] == "log_normal"


@pytest.mark.jit
def test_what_is_given_stays(found):
    y = load(np.random.default_rng(1))
    given = {"n_components": 3, "emission": "free_student_t", "ar": 2, "season": "1D"}
    settings = rh.suggest(y, **given).settings
    assert {name: settings[name] for name in given} == given | {"season": [rh.Season("1D")]}


@pytest.mark.jit
def test_gaps_sequences_and_inputs():
    rng = np.random.default_rng(5)
    temp = rng.normal(size=(T, 1))
    y = with_events(noise(rng, 0.7) + 3 * temp[:, 0], 9.0)
    y[rng.random(T) < 0.03] = np.nan
    found = rh.suggest([y[:1_000], y[1_000:]], exog=[temp[:1_000], temp[1_000:]], season=None, n_components=2)
    assert found.settings["ar"] == 1


def test_short_series_are_refused():
    with pytest.raises(ValueError, match=r"y has 50 observations; a choice of settings needs 200. Pass ar"):
        rh.suggest(np.arange(50.0))


# ---------------------------------------------------------------- the estimator and the command line
@pytest.mark.jit
def test_auto_settings_of_the_estimator():
    y = load(np.random.default_rng(1))
    hmm = rh.RareHMM("auto", ar="auto", season="auto", emission="auto", method="map", check_model=False).fit(y)
    assert hmm.suggestion_.settings["ar"] == 1
    assert hmm.posterior_.model.n_states == 2
    assert hmm.posterior_.model.autoregression == rh.AroundLevel(1)
    assert hmm.n_components == "auto"  # settings of a user are never changed
    assert len(hmm.rare_events(y)) == 7


@pytest.mark.jit
def test_auto_on_the_command_line(tmp_path, capsys):
    y = load(np.random.default_rng(1))
    y.rename_axis("time").to_csv(tmp_path / "load.csv")
    out = tmp_path / "run"
    given = ["--time", "time", "--auto", "--states", "3", "--method", "map", "--quiet", "--out", str(out)]
    assert run(["fit", str(tmp_path / "load.csv"), *given]) == 0
    settings = from_mapping(read_settings(out / "settings.yaml"))
    assert (settings.states, settings.ar, settings.season) == (3, 1, ["1D:1"])
    reason = json.loads((out / "suggestion.json").read_text(encoding="utf-8"))
    assert reason["sentence"].startswith("The series suits a model with 3 states")
    assert [gain["term"] for gain in reason["gains"] if gain["chosen"]] == ["season of 1D", "1 lag"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert reason["sentence"] in page
    assert page.count("chosen-row") == 3  # and its style
    (out / "suggestion.json").write_text("{}")
    assert run(["report", str(out)]) == 1
    assert "suggestion.json is damaged ('sentence'); fit again." in " ".join(capsys.readouterr().err.split())
    assert json.loads((out / "diagnosis.json").read_text(encoding="utf-8"))["method"] == "map"


@pytest.mark.parametrize("ar", [None, 2, rh.Intercept(3), rh.AroundLevel(1)])
def test_chosen_settings_as_text(ar):
    chosen = {"n_components": 2, "emission": "gaussian", "ar": ar, "season": [rh.Season(48, 2)], "trend": None}
    text = chosen_texts(chosen)
    assert lags_of(text["ar"]) == ar
    assert text["season"] == ["48:2"]


def test_words():
    assert season_words(["1D", 24]) == "seasons of 1D and 24 steps"
    assert lag_words(rh.Intercept(2)) == "2 lags (intercept form)"


@pytest.mark.jit
def test_a_check_names_the_lags_that_would_help():
    y = noise(np.random.default_rng(6), 0.8)
    hmm = rh.RareHMM(1, method="map", check_model=False).fit(y)
    (failed,) = [c for c in hmm.check(y).checks if c.name == "residual autocorrelation"]
    words, gain = failed.message.split(" raises the held-out log density by ")
    assert words == "at lag 1; ar=1"
    assert float(gain.removesuffix(" per observation")) == pytest.approx(-0.5 * np.log(1 - 0.8**2), abs=0.05)
    assert rh.RareHMM(1, ar=1, method="map", check_model=False).fit(y).check(y).passed


# ---------------------------------------------------------------- parts
def test_blocks_cover_the_rows_once_and_have_different_lengths():
    edges = uneven_edges(10_000)
    assert len(edges) == BLOCKS + 1
    assert (edges[0], edges[-1]) == (0, 10_000)
    assert np.diff(edges).max() > 1.5 * np.diff(edges).min()


def test_rows_without_all_lags_are_not_scored():
    y = np.arange(400.0) % 7
    y[100] = np.nan
    sample = Sample(rh.Series(y, [150, 250]), 1_000)
    wanted = [*range(MOST_LAGS), *range(100, 101 + MOST_LAGS), *range(150, 150 + MOST_LAGS)]
    assert sample.lags == MOST_LAGS
    np.testing.assert_array_equal(np.flatnonzero(~sample.scored), wanted)


def test_halves_share_no_row_and_clocks_go_on():
    sample = Sample(rh.Series(np.random.default_rng(0).normal(size=500)), 1_000)
    (even, first), (odd, second) = (sample.rows_of(parity) for parity in (0, 1))
    assert sorted([*first, *second]) == list(range(500))
    for part, rows in ((even, first), (odd, second)):
        np.testing.assert_array_equal(part.read(0, len(part)), sample.y[rows])
        np.testing.assert_array_equal(part.clock.read(0, len(part)), rows)


def test_typical_gain_ignores_a_few_blocks():
    sample = Sample(rh.Series(np.random.default_rng(0).normal(size=2_000)), 5_000)
    worse = np.zeros(sample.scored.sum())
    better = worse + 0.1 + 1e-3 * np.random.default_rng(1).normal(size=len(worse))
    better[sample.block[sample.scored] == 3] = -50.0
    assert not sample.gain(better, worse).exceeds(2.0)
    gain = sample.typical_gain(better, worse)
    assert gain.value == pytest.approx(0.1, abs=1e-3)
    assert gain.exceeds(4.0)


def test_robust_regression_ignores_outliers():
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(2_000), rng.normal(size=2_000)])
    y = x @ [1.0, 2.0] + rng.normal(size=2_000)
    y[:40] += 50
    np.testing.assert_allclose(robust_regression(x, y, 5.0).coefficients, [1, 2], atol=0.1)


def test_density_of_a_robust_regression_is_that_of_a_t_distribution():
    x, y = np.ones((5, 1)), np.linspace(-3, 4, 5)
    expected = student_t(4.0, loc=0.5, scale=1.5).logpdf(y)
    np.testing.assert_allclose(Robust(np.array([0.5]), 2.25, 4.0).log_density(x, y), expected)


def test_a_logarithm_counts_its_jacobian():
    rng = np.random.default_rng(0)
    sample = Sample(rh.Series(np.exp(0.01 * rng.normal(size=2_000))), 5_000)
    none = np.empty((2_000, 0))
    plain = Regression(sample, sample.y).densities(none, 0)
    logs = Regression(sample, np.log(sample.y), -np.log(sample.y[sample.scored]).sum(1)).densities(none, 0)
    assert plain.mean() == pytest.approx(logs.mean(), abs=1e-3)


def test_periods_of_a_periodogram():
    rng, t = np.random.default_rng(0), np.arange(6_000)
    assert periodogram_periods(rng.normal(size=6_000)) == []
    assert periodogram_periods(np.sin(2 * np.pi * t / 144) + rng.normal(size=6_000)) == [144.0]
    saw = (t % 50) / 50 - 0.5  # all harmonics
    assert periodogram_periods(3 * saw + rng.normal(size=6_000)) == [50.0]


def test_periods_of_the_calendar():
    minutes = pd.date_range("2026-01-01", periods=20 * 1_440, freq="min")
    series = rh.Series(pd.Series(np.random.default_rng(0).normal(size=len(minutes)), minutes))
    assert calendar_periods(series) == ["1h", "1D", "7D"]
    assert calendar_periods(rh.Series(np.arange(100.0))) == []
    assert is_multiple(12.0, [24.0])
    assert not is_multiple(36.0, [24.0])


@pytest.mark.parametrize(
    ("y", "values"),
    [
        ([0.0, 1, 1, 0], "binary"), ([0.0, 3, 2, 1], "count"), ([0.5, 3, 2, 1], "positive"), ([-1.0, 3, 2, 1], "real"),
        ([[0.5, 1.0], [-1.0, 2.0], [0.3, 5.0]], "several"),
    ],
)  # fmt: skip
def test_kinds_of_data(y, values):
    y = np.array(y, dtype=float)
    assert kind_of(rh.Series(y), y.reshape(len(y), -1)).values == values
