"""From what a user writes to terms of a model: seasons, trends, lags, names of what switches, durations; and back."""

import numpy as np
import pandas as pd
import pytest

import rarehmm as rh
from rarehmm.specification.models import Specification
from rarehmm.specification.restored import exog_names_of, settings_of
from rarehmm.specification.terms import Terms, autoregression_of, lags_of, seasons_of, trends_of

pytestmark = pytest.mark.plain


def series_of(T=480, times=True):
    rng = np.random.default_rng(0)
    hours = pd.date_range("2026-01-01", periods=T, freq="h") if times else None
    exog = pd.DataFrame({"temp": 20 + rng.normal(size=T), "wind": rng.normal(size=T)}, hours)
    load = pd.DataFrame({"load": rng.normal(size=T)}, hours)
    y = pd.Series(rng.normal(size=T), hours)
    return rh.Series(y, exog=exog, exog_transition=load)


@pytest.fixture(scope="module")
def series():
    return series_of()


@pytest.mark.parametrize(
    ("given", "periods"),
    [
        (None, []),
        ("1D", ["1D"]),
        (24, [24]),
        (np.float64(24.5), [24.5]),
        (["1D", 168, rh.Season("30D", 2)], ["1D", 168, "30D"]),
        (rh.Season("1D", 2), ["1D"]),
    ],
)
def test_seasons(given, periods):
    assert [one.period for one in seasons_of(given)] == periods


@pytest.mark.parametrize(
    ("given", "trends"),
    [(None, []), ("linear", [rh.Trend()]), (3, [rh.Trend(3)]), (rh.Trend([2, 5]), [rh.Trend([2, 5])])],
)
def test_trends(given, trends):
    assert trends_of(given) == trends


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (None, None),
        (0, None),
        (2, rh.AroundLevel(2)),
        (np.int64(1), rh.AroundLevel(1)),
        (rh.Hamilton(3), rh.Hamilton(3)),
    ],
)
def test_lags(given, wanted):
    assert autoregression_of(given, rh.Gaussian()) == wanted


def test_lags_of_counts_are_those_of_a_regression():
    assert autoregression_of(2, rh.Poisson()) == rh.Intercept(2)
    assert autoregression_of(rh.AroundLevel(2), rh.Poisson()) == rh.AroundLevel(2)
    assert autoregression_of(1, rh.LogNormal()) == rh.Intercept(1)
    assert autoregression_of(1, rh.MultivariateGaussian(2)) == rh.AroundLevel(1)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: seasons_of("24"), "season is '24'; pass the number 24 for steps, or a length of time such as '24h'"),
        (lambda: seasons_of("monthly"), "the period of a season is 'monthly'; pass a number of steps"),
        (lambda: seasons_of(1), "the period of a season is 1 steps; it must have at least 2"),
        (lambda: seasons_of([True]), "season is True; pass a length of time"),
        (lambda: trends_of("ct"), "trend is 'ct'; pass 'linear', a number of knots of a spline, or Trend"),
        (lambda: trends_of(True), "trend is True; pass 'linear'"),
        (lambda: trends_of(0), "knots is 0"),
        (lambda: lags_of(-1), "ar is -1; pass the number of lags, such as ar=2"),
        (lambda: lags_of(True), "ar is True; pass the number of lags"),
        (lambda: lags_of("auto"), "ar is 'auto'; pass the number of lags"),
    ],
)
def test_what_is_not_a_term_is_refused(use, message):
    with pytest.raises((TypeError, ValueError), match=message):
        use()


def test_names_of_terms():
    terms = Terms([rh.Season("1D"), rh.Season(168)], [rh.Trend()], ("temp", "load"))
    assert terms.flags(["season"], "switching") == [True, True, False, False, False]
    assert terms.flags([168, "trend"], "switching") == [False, True, True, False, False]
    assert terms.flags("1D", "switching") == [True, False, False, False, False]
    assert terms.flags("exog", "switching") == [False, False, False, True, True]
    assert terms.flags([rh.Columns("load"), rh.Season("1D")], "switching") == [True, False, False, False, True]
    assert terms.flags(["ar", "temp"], "switching", ["ar"]) == [False, False, False, True, False]
    assert terms.flags(None, "switching") == [False] * 5
    with pytest.raises(ValueError, match=r"switching has 'tmp'; choose from 'season', 'trend', 'exog', .* mean 'temp'"):
        terms.flags("tmp", "switching")
    with pytest.raises(ValueError, match="switching has 'temp', and there is no season, trend or exog; leave it out"):
        Terms([], [], ()).flags("temp", "switching")


def test_terms_of_transitions_need_not_be_those_of_observations():
    terms = Terms([rh.Season("1D", 3)], [], ("temp",))
    assert terms.chosen(None, "transitions", ["temp", "load"]) == []
    assert terms.chosen("season", "transitions", []) == [rh.Season("1D", 3)]
    assert terms.chosen(["load", "7D", rh.Trend(), 24], "transitions", ["temp", "load"]) == [
        rh.Season("7D"), rh.Season(24), rh.Trend(), rh.Columns("load")
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"transitions has 'lod'; choose from .*'load'. Did you mean 'load'"):
        terms.chosen("lod", "transitions", ["temp", "load"])


def test_a_model_without_terms_is_the_plain_one(series):
    bare = rh.Series(series.read(0, len(series))[:, 0])
    model = Specification(2).model(bare)
    assert model.is_plain
    assert settings_of(model)["ar"] is None


def test_what_is_shared_and_what_switches(series):
    model = Specification(2, season=["1D", "5D"], trend=2, switching=["5D", "wind"]).model(series)
    assert model.inputs.labels == ["1D", "trend", "temp"]
    assert model.switching.labels == ["5D", "wind"]
    assert not {5} & set(model.switching.seasons.waves[0].cosines)  # of five days, which is the first of one day
    assert model.transitions.inputs.names == ["load"]
    every = Specification(2, season="1D", switching=True).model(series)
    assert every.inputs is None
    assert every.switching.labels == ["1D", "temp", "wind"]
    lags = Specification(2, ar=1, switching="ar").model(series)
    assert lags.autoregression == rh.AroundLevel(1, switching=True)
    assert lags.inputs.labels == ["temp", "wind"]


def test_transitions_scale_and_durations(series):
    model = Specification(2, season="1D", transitions=["season", "temp"], scale=["trend", "wind"], trend="linear")
    model = model.model(series)
    assert model.transitions.inputs.names == ["sin(1D) 1", "cos(1D) 1", "sin(1D) 2", "cos(1D) 2", "temp", "load"]
    assert model.scale.names == ["trend", "wind"]
    bare = rh.Series(series.read(0, len(series))[:, 0])
    assert Specification(2, durations=3).model(bare).transitions == rh.Phases((3, 3))
    assert Specification(2, durations=[1, 4]).model(bare).transitions == rh.Phases((1, 4))
    assert Specification(1, durations=3).model(bare).transitions == rh.Homogeneous()
    assert Specification(2, transitions=rh.Phases((2, 1))).model(bare).transitions == rh.Phases((2, 1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"durations": [1, 2, 3]}, "durations has 3 numbers and there are 2 states; pass one for each, or one for all"),
        ({"durations": 0}, "durations is 0; pass the shortest length of a visit"),
        ({"durations": 1.5}, "durations is 1.5; pass the shortest length of a visit"),
        ({"durations": 2, "transitions": "temp"}, "with transitions that depend on inputs; leave out durations or tr"),
        ({"durations": 2}, "cannot be combined .* leave out durations or exog_transition"),
        ({"durations": 2, "transitions": rh.Phases((1, 1))}, "pass only one of them"),
        ({"transitions": rh.Homogeneous()}, "exog_transition has 'load', and the transitions given do not read it"),
        ({"switching": "ar"}, "switching has 'ar'; choose from 'exog', 'temp', 'wind'"),
        ({"season": "30D"}, "the season '30D' is longer than half the series"),
        ({"emission": "von_mises"}, "VonMises takes no season, trend or exog: none of its"),
        ({"scale": "humidity"}, "scale has 'humidity'; choose from 'exog', 'temp', 'wind', 'load'"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_model_is_refused(series, given, message):
    with pytest.raises(ValueError, match=message):
        Specification(2, **given).model(series)


def test_switching_needs_something_that_switches():
    bare = rh.Series(np.random.default_rng(0).normal(size=50))
    with pytest.raises(ValueError, match="switching is True, and there is no season, trend or exog that could switch"):
        Specification(2, switching=True).model(bare)
    with pytest.raises(ValueError, match="'1D' is a length of time and y has no time index"):
        Specification(2, season="1D").model(bare)


@pytest.mark.parametrize("times", [True, False])
def test_a_model_says_what_its_settings_were(times):
    series = series_of(times=times)
    given = Specification(
        2, ar=2, season=["1D" if times else 24, 100 / 3], trend=3, switching=["temp", "ar"], scale=["wind"]
    )
    model = given.model(series)
    again = settings_of(model)
    assert again["ar"] == rh.AroundLevel(2, switching=True)
    assert again["switching"] == ["temp", "ar"]
    assert again["trend"] == [rh.Trend(3)]
    assert again["scale"] == [rh.Columns("wind")]
    assert again["transitions"] == model.transitions
    assert [one.order for one in again["season"]] == [8, 4]
    assert exog_names_of(model) == ("temp", "wind", "load")
    second = Specification(2, **again).model(series)
    assert second.inputs == model.inputs
    assert second.switching == model.switching
    assert settings_of(Specification(2, durations=[1, 2]).model(rh.Series(np.arange(9.0))))["durations"] == [1, 2]


def test_uneven_knots_come_back():
    for times in (True, False):
        series = series_of(times=times)
        knots = ["2026-01-03", "2026-01-10"] if times else [48, 200]
        model = Specification(2, trend=rh.Trend(knots)).model(series)
        again = Specification(2, **settings_of(model)).model(series)
        assert again.inputs.trends[0].knots == pytest.approx(model.inputs.trends[0].knots)
