"""Forecasts of what follows a series: from its last rows, with future inputs, seasons and labels."""

import numpy as np
import pandas as pd
import pytest

from rarehmm import (
    AroundLevel,
    Columns,
    Gaussian,
    Hamilton,
    Inputs,
    Intercept,
    Model,
    Phases,
    RareHMM,
    Regression,
    Season,
    Series,
    no_priors,
)
from rarehmm.posterior import forecasting
from rarehmm.posterior.forecasting import forecast_after, stream_after
from rarehmm.posterior.prediction import Forecast
from rarehmm.posterior.regime_streams import RegimeFilter

RNG = np.random.default_rng(0)
HOURS = pd.date_range("2026-03-20", periods=400, freq="h", tz="Europe/Vienna")
Y = np.random.default_rng(1).normal(size=400)


def standard_errors(sample, mean, variance):
    """How far the mean and the variance of a normal sample are from what they should be, in standard errors."""
    n = len(sample)
    return [
        abs(sample.mean() - mean) / np.sqrt(variance / n),
        abs(((sample - mean) ** 2).mean() - variance) / (variance * np.sqrt(2 / n)),
    ]


# ---------------------------------------------------------------- the last rows
@pytest.mark.parametrize("gap", [0, 1, 3, 40])
def test_autoregression_goes_on_from_the_last_observed_row(gap):
    model = Model(Gaussian(), 1, no_priors(Gaussian()), autoregression=AroundLevel(1))
    point = model.natural([[2.0, 1.5]], [[1.0]], [0.9])
    y = np.append(Y[:30] + 2, np.full(gap, np.nan))
    y[29] = 9.0
    found = forecast_after(RNG, model, [point], Series(y), 50, size=4000)
    for h in (1, 2, 10, 50):
        k = h + gap  # steps from the last observed row
        expected = 2 + 0.9**k * 7, 1.5 * (1 - 0.9 ** (2 * k)) / (1 - 0.9**2)
        assert max(standard_errors(found.observations[:, h - 1], *expected)) < 4.5
    assert abs(found.mean[0] - (2 + 0.9 ** (1 + gap) * 7)) < 0.2


def test_each_draw_has_its_share_of_the_continuations():
    model = Model(Gaussian(), 1, no_priors(Gaussian()), autoregression=Intercept(1))
    points = [model.natural([[level, 1e-8]], [[1.0]], [0.5]) for level in (0.0, 10.0, 20.0)]
    found = forecast_after(RNG, model, points, Series(np.append(Y, 4.0)), 1, size=300)
    np.testing.assert_array_equal(np.unique(found.observations.round(), return_counts=True), [[2, 12, 22], [100] * 3])
    assert forecast_after(RNG, model, points, Series(Y), 1, size=0).observations.shape == (0, 1)


KINDS = {
    "levels": (lambda s: {"autoregression": AroundLevel(2), "inputs": Inputs.of(s, [Season(12, 1)])},
               [0.9, 0.1, 0.6, 0.1]),
    "phases": (lambda s: {"autoregression": Intercept(1), "transitions": Phases((3, 2))}, [0.7]),
    "hamilton": (lambda s: {"autoregression": Hamilton(2)}, [0.6, 0.1]),
    "transitions": (lambda s: {"transitions": Regression(Inputs.of(s, [Season(12, 1)]))},
                    [0.4, -0.4, 0.3, -0.3, 0.0, 0.0, -0.2, 0.2]),
}  # fmt: skip


def long_case(kind, lengths=None):
    """A model with two draws, and a series with a long gap and one at its end."""
    states = np.cumsum(np.random.default_rng(0).random(300) > 0.9) % 2
    y = 4.0 * states + Y[:300]
    y[110:180], y[293:] = np.nan, np.nan
    series = Series(y, lengths)
    parts, coefficients = KINDS[kind]
    model = Model(Gaussian(), 2, no_priors(Gaussian()), **parts(series))
    point = model.natural([[0.0, 1.0], [4.0, 1.0]], [[0.9, 0.1], [0.1, 0.9]], coefficients)
    other = model.natural(point.phi + 0.1, point.transition, 0.9 * point.coefficients)
    return model, [point, other], series


at_end_of = RegimeFilter.at_end_of


@pytest.mark.jit
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [None, [7, 73, 1, 219]], ids=["one sequence", "sequences"])
def test_the_last_rows_are_enough(monkeypatch, kind, lengths):
    model, points, series = long_case(kind, lengths=lengths)
    regimes = RegimeFilter(model, points)
    whole = regimes.after(series)
    short = []
    monkeypatch.setattr(RegimeFilter, "at_end_of", lambda *given: short.append(1) or at_end_of(*given))
    for halo in (10, 60, 215):
        monkeypatch.setattr(forecasting, "HALO", halo)
        stream = stream_after(regimes, series)
        np.testing.assert_allclose(np.exp(stream.nodes), np.exp(whole.nodes), atol=1e-9)
        assert (stream.position, stream.gap) == (whole.position, whole.gap)
        if whole.past is not None:
            np.testing.assert_array_equal(stream.past.y, whole.past.y)
        ahead = regimes.forecast(stream, 5, [1])
        np.testing.assert_allclose(ahead.states, regimes.forecast(whole, 5, [1]).states, atol=1e-9)
    assert short or kind == "phases"  # not all of the series was read


@pytest.mark.jit
def test_simulated_states_have_the_probabilities_that_are_computed():
    _, _, series = long_case("phases")
    model = Model(Gaussian(), 2, no_priors(Gaussian()), transitions=Phases((3, 2)))
    points = [model.natural(np.zeros((2, 2)) + 1, [[p, 1 - p], [1 - p, p]]) for p in (0.5, 0.4)]
    levels = [point._replace(phi=np.array([[-1e6, 1e-6], [1e6, 1e-6]])) for point in points]
    found = forecast_after(RNG, model, levels, series, 8, [1], size=4000)
    low = (found.observations < 0).mean(0)
    assert (
        np.abs(low - found.states[:, 0]) < 4.5 * np.sqrt(found.states[:, 0] * found.states[:, 1] / 4000) + 1e-9
    ).all()


# ---------------------------------------------------------------- seasons, inputs and labels
def hourly(n=400):
    season = 5 * np.sin(2 * np.pi * HOURS.hour / 24)
    series = Series(pd.Series((Y + season)[:n], pd.DatetimeIndex(HOURS[:n], freq=None)))
    model = Model(Gaussian(), 1, no_priors(Gaussian()), inputs=Inputs.of(series, [Season("1D", 1)]))
    return model, model.natural([[0.0, 1e-6]], [[1.0]], [5.0, 0.0]), series


def test_seasons_follow_the_index_through_changed_clocks():
    model, point, series = hourly(200)  # until 28 March, the day before
    found = forecast_after(RNG, model, [point], series, 200, size=3)
    assert (found.index == HOURS[200:]).all()
    np.testing.assert_allclose(found.mean, 5 * np.sin(2 * np.pi * HOURS[200:].hour / 24), atol=0.01)
    frame = found.to_frame()
    assert frame.index.equals(found.index)
    assert list(frame) == ["mean", "low", "high", "event", "event_low", "event_high", "state_0"]


def test_rows_without_times_go_on_counting():
    for index, expected in (
        (None, None),
        (pd.RangeIndex(10, 410), np.arange(410, 413)),
        (pd.Index(np.arange(400) * 0.5, name="t"), [200.0, 200.5, 201.0]),
        (pd.period_range("2000-01", periods=400, freq="M"), pd.period_range("2033-05", periods=3, freq="M")),
        (pd.DatetimeIndex(pd.date_range("2000-01-31", periods=400, freq="ME"), freq=None),
         pd.date_range("2033-05-31", periods=3, freq="ME")),
        (pd.Index(list("abcd") * 100), None),
    ):  # fmt: skip
        model = Model(Gaussian(), 1, no_priors(Gaussian()))
        y = Y if index is None else pd.Series(Y, index)
        found = forecast_after(RNG, model, [model.natural([[0.0, 1.0]], [[1.0]])], Series(y), 3, size=10)
        assert (found.index is None) == (expected is None)
        assert expected is None or (found.index == expected).all()
    assert found.to_frame().index.tolist() == [1, 2, 3]


def test_the_last_of_several_sequences_is_continued():
    model = Model(Gaussian(), 1, no_priors(Gaussian()), autoregression=AroundLevel(1))
    point = model.natural([[0.0, 1e-8]], [[1.0]], [0.5])
    parts = [pd.Series(Y[:50], HOURS[:50]), pd.Series(np.append(Y[:9], 8.0), HOURS[300:310])]
    for series in (Series(parts), Series(pd.concat(parts), lengths=[50, 10])):
        found = forecast_after(RNG, model, [point], series, 3, size=5)
        np.testing.assert_allclose(found.mean, [4, 2, 1], atol=1e-2)
        assert (found.index == HOURS[310:313]).all()


def with_inputs():
    temp = pd.DataFrame({"load": np.arange(405) % 7, "temp": np.arange(405) * 1.0}, HOURS.union(
        pd.date_range(HOURS[-1], periods=6, freq="h")))  # fmt: skip
    series = Series(pd.Series(Y + temp["temp"].to_numpy()[:400], HOURS), exog=temp[:400])
    model = Model(Gaussian(), 1, no_priors(Gaussian()), inputs=Inputs.of(series, [Columns(["temp"])]))
    scale = float(np.sqrt(series.exog_summaries[1].variance))
    return model, model.natural([[series.exog_summaries[1].mean, 1e-6]], [[1.0]], [scale]), series, temp


def test_future_inputs_are_found_by_name_or_in_order():
    model, point, series, temp = with_inputs()
    for exog in (temp[400:], temp[400:][["temp"]], temp[400:].to_numpy(), {"temp": temp["temp"].to_numpy()[400:]}):
        found = forecast_after(RNG, model, [point], series, 5, exog=exog, size=3)
        np.testing.assert_allclose(found.mean, np.arange(400, 405), atol=0.01)
    turned = Series(pd.Series(Y, HOURS), exog=temp[:400][["temp", "load"]])  # the columns of new data in another order
    found = forecast_after(RNG, model, [point], turned, 5, exog=temp[400:].to_numpy()[:, ::-1], size=3)
    np.testing.assert_allclose(found.mean, np.arange(400, 405), atol=0.01)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, r"future inputs missing: 'temp'; a forecast of 5 rows needs these columns with 5 rows"),
        (slice(400, 403), r"exog has 3 rows, and a forecast of 5 rows needs 5; pass these, or horizon=3"),
        (
            slice(399, 404),
            r"row 0 of the future inputs is at 2026-04-05 16:00.*, and that of the series is at .* 17:00",
        ),
    ],
)
def test_missing_future_inputs_are_named(rows, message):
    model, point, series, temp = with_inputs()
    with pytest.raises(ValueError, match=message):
        forecast_after(RNG, model, [point], series, 5, exog=None if rows is None else temp[rows])
    with pytest.raises(ValueError, match="future inputs missing: 'temp'"):
        forecast_after(RNG, model, [point], series, 5, exog=temp[["load"]][400:])
    states_alone = forecast_after(RNG, model, [point], series, 5, size=0)
    assert (states_alone.states.shape, states_alone.observations.shape) == ((5, 1), (0, 5))


# ---------------------------------------------------------------- the result, and the estimator
def test_several_columns_have_their_names():
    rng, H, D = np.random.default_rng(0), 3, 2
    found = Forecast(np.full((H, 2), 0.5), *np.zeros((3, H)), rng.normal(size=(50, H, D)), None, ("a", "b"))
    assert list(found.to_frame())[:6] == ["a_mean", "a_low", "a_high", "b_mean", "b_low", "b_high"]
    np.testing.assert_array_equal(found.to_frame()["b_mean"], found.observations[..., 1].mean(0))
    low, high = found.interval(0.5)
    inside = (found.observations >= low) & (found.observations <= high)
    np.testing.assert_allclose(inside.mean(0), 0.5, atol=0.021)
    with pytest.raises(ValueError, match="probability is 1; it must lie between 0 and 1"):
        found.interval(1)
    empty = found._replace(observations=np.empty((0, H)))
    assert next(iter(empty.to_frame())) == "event"
    with pytest.raises(ValueError, match=r"no continuations were simulated \(size=0\)"):
        empty.mean  # noqa: B018


@pytest.mark.jit
def test_the_estimator_takes_inputs_of_all_rows_or_of_those_to_come():
    _, _, series, temp = with_inputs()
    y = pd.Series(series.read(0, 400)[:, 0], HOURS)
    options = {"method": "map", "check_model": False, "verbose": 0}
    hmm = RareHMM(1, **options).fit(y, exog=temp[["temp"]][:400])
    whole = hmm.forecast(y, 5, exog=temp[["temp"]])
    own = hmm.forecast(Series(y, exog=temp[["temp"]][:400]), 5, exog=temp[["temp"]][400:])
    np.testing.assert_allclose(whole.mean, np.arange(400, 405), atol=0.3)
    np.testing.assert_array_equal(whole.observations, own.observations)
    assert (whole.index == temp.index[400:]).all()
    with pytest.raises(
        ValueError, match="exog has 403 rows; a forecast of 5 rows after the 400 of X needs 405: those of"
    ):
        hmm.forecast(y, 5, exog=temp[["temp"]][:403])
    with pytest.raises(ValueError, match=r"X is a list of sequences; pass X=Series\(y, exog=\[...\]\)"):
        hmm.forecast([y], 5, exog=temp)
    both = RareHMM(2, **options).fit(y, exog=temp[["temp"]][:400], exog_transition=temp[["load"]][:400])
    found = both.forecast(y, 5, exog=temp[["temp"]], exog_transition=temp[["load"]])
    assert found.to_frame().shape == (5, 8)
    with pytest.raises(ValueError, match="future inputs missing: 'load'"):
        both.forecast(
            Series(y, exog=temp[["temp"]][:400], exog_transition=temp[["load"]][:400]), 5, exog=temp[400:][["temp"]]
        )
