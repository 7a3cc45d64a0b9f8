"""The parts of a model as curves, and their pictures."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import nbinom

import rarehmm as rh
from rarehmm import plots
from rarehmm.posterior.components import components, effect_curves, season_curves, transition_curves, visit_lengths

T = 24 * 14
HOURS = pd.date_range("2026-01-05", periods=T, freq="h")  # from a Monday on
SINCE_1970 = (HOURS - pd.Timestamp(0)) / pd.Timedelta("1h")  # a Thursday
DAY, WEEK = (np.sin(2 * np.pi * SINCE_1970.to_numpy() / period) for period in (24, 168))
STATES = (np.arange(T) % 100 > 80).astype(int)
TEMP = pd.DataFrame({"temp": np.random.default_rng(0).normal(20, 3, T)}, HOURS)
FAMILIES = {"gaussian": rh.Gaussian(), "poisson": rh.Poisson()}


def posterior_of(kind="gaussian", seed=0, **parts):
    """A posterior with known coefficients, which vary little between draws, and a series without noise."""
    rng, family = np.random.default_rng(seed), FAMILIES[kind]
    eta = DAY + 0.5 * WEEK + 0.1 * (TEMP["temp"].to_numpy() - TEMP["temp"].mean())
    y = 8.0 * STATES + eta if kind == "gaussian" else np.rint(np.exp(eta + 1 + 2 * STATES))
    series = rh.Series(pd.Series(y, HOURS), exog=TEMP)
    terms = [rh.Season("1D", 1), rh.Season("7D", 1), rh.Columns()]
    model = rh.Model(family, 2, rh.no_priors(family), inputs=rh.Inputs.of(series, terms))
    phi = np.array([[0.0, 0.1], [8.0, 0.1]]) if kind == "gaussian" else np.exp([[1.0], [3.0]])
    coefficients = np.array([1.0, 0.0, 0.5, 0.0, 0.1 * TEMP["temp"].std(ddof=0)])
    draws = (1, 30)
    return rh.Posterior(
        model, np.broadcast_to(phi, (*draws, *phi.shape)), np.broadcast_to([[0.9, 0.1], [0.2, 0.8]], (*draws, 2, 2)),
        "chain", coefficients=coefficients + 1e-4 * rng.normal(size=(*draws, 5)),
    ), series  # fmt: skip


@pytest.mark.jit
@pytest.mark.parametrize("kind", FAMILIES)
def test_components_are_what_the_series_was_made_of(kind):
    posterior, series = posterior_of(kind)
    found = components(posterior, series, 50, 250)
    assert [one.title for one in found] == ["all", "level", "season 1D", "season 7D", "temp"]
    rows = slice(50, 250)
    level = 8.0 * STATES if kind == "gaussian" else 1 + 2.0 * STATES
    expected = [level, DAY, 0.5 * WEEK, 0.1 * (TEMP["temp"] - TEMP["temp"].mean()).to_numpy()]
    for one, truth in zip(found[1:], expected, strict=True):
        assert one.values.shape == (30, 200)
        loose = 0.3 if kind == "poisson" and one.title == "level" else 0.003
        assert np.quantile(np.abs(one.values - truth[rows]), 0.95) < loose
    np.testing.assert_allclose(found[0].values, sum(one.values for one in found[1:]))


@pytest.mark.jit
def test_columns_may_have_another_order_and_effects_may_differ_between_states():
    both = TEMP.assign(load=np.arange(T) % 5)
    y = pd.Series(8.0 * STATES + np.where(STATES, 2.0, -1.0) * (TEMP["temp"].to_numpy() - TEMP["temp"].mean()), HOURS)
    series = rh.Series(y, exog=both)
    model = rh.Model(
        rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()), switching=rh.Inputs.of(series, [rh.Columns(["temp"])])
    )
    scale = TEMP["temp"].std(ddof=0)
    posterior = rh.Posterior(
        model, np.tile([[0.0, 0.1], [8.0, 0.1]], (1, 5, 1, 1)), np.tile([[0.9, 0.1], [0.2, 0.8]], (1, 5, 1, 1)),
        "chain", coefficients=np.tile([-scale, 2 * scale], (1, 5, 1)),
    )  # fmt: skip
    for exog in (both, both[["load", "temp"]]):
        found = components(posterior, rh.Series(y, exog=exog), 0, T)
        assert [one.title for one in found] == ["all", "level", "temp"]
        assert np.quantile(np.abs(found[0].values - y.to_numpy()), 0.95) < 0.01


def test_a_season_over_its_period():
    posterior, _ = posterior_of()
    day, week = season_curves(posterior)
    assert (day.title, week.title) == ("season 1D", "season 7D")
    np.testing.assert_allclose(day.values[..., 0].mean(0), np.sin(2 * np.pi * day.x / 86_400), atol=1e-3)
    axes = plots.plot_season(posterior)
    assert [axis.get_xlabel() for axis in axes] == ["hour of the day", ""]
    assert [text.get_text() for text in axes[1].get_xticklabels()] == list(plots.WEEKDAYS)
    drawn = axes[1].lines[0].get_xdata(), axes[1].lines[0].get_ydata()
    assert (np.diff(drawn[0]) >= 0).all()
    np.testing.assert_allclose(drawn[1], 0.5 * np.sin(2 * np.pi * (drawn[0] + 4) / 7), atol=1e-3)  # from Monday on
    with pytest.raises(ValueError, match="the model has no season; fit one with season="):
        season_curves(rh.Posterior(rh.Model(rh.Gaussian(), 1, rh.no_priors(rh.Gaussian())), np.ones((1, 4, 1, 2)),
                                   np.ones((1, 4, 1, 1)), "map"))  # fmt: skip


def with_transitions():
    load = pd.DataFrame({"load": np.random.default_rng(1).normal(5, 2, T)}, HOURS)
    series = rh.Series(pd.Series(8.0 * STATES + DAY, HOURS), exog=load)
    model = rh.Model(
        rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()),
        transitions=rh.Regression(rh.Inputs.of(series, [rh.Season("1D", 1), rh.Trend(), rh.Columns()])),
    )  # fmt: skip
    slopes = np.zeros((4, 2, 2))
    slopes[0, 0], slopes[3, 1] = [0.0, 1.0], [0.5, 0.0]
    P = np.array([[0.9, 0.1], [0.2, 0.8]])
    return rh.Posterior(
        model, np.tile([[0.0, 0.1], [8.0, 0.1]], (1, 5, 1, 1)), np.tile(P, (1, 5, 1, 1)), "chain",
        coefficients=np.tile(slopes.ravel(), (1, 5, 1)),
    ), load["load"], P  # fmt: skip


def test_partial_effects_on_transitions():
    posterior, load, P = with_transitions()
    day, trend, column = transition_curves(posterior)
    assert [one.title for one in (day, trend, column)] == ["season 1D", "trend", "load"]
    np.testing.assert_allclose(trend.values, np.broadcast_to(P, trend.values.shape))
    odds = 0.1 / 0.9 * np.exp(np.sin(2 * np.pi * day.x / 86_400))
    np.testing.assert_allclose(day.values[0, :, 0, 1], odds / (1 + odds))
    odds = 0.2 / 0.8 * np.exp(0.5 * (column.x - load.mean()) / load.std(ddof=0))
    np.testing.assert_allclose(column.values[0, :, 1, 0], odds / (1 + odds))
    np.testing.assert_allclose(column.values[:, :, 0], np.broadcast_to(P[0], column.values[:, :, 0].shape))
    axes = plots.plot_transition_effects(posterior)
    assert [axis.get_xlabel() for axis in axes] == ["hour of the day"] * 2
    axes = plots.plot_transition_effects(posterior, "load")
    assert [axis.get_xlabel() for axis in axes] == ["load"] * 2
    assert plots.plot_transition_effects(posterior, "trend")[0].get_xlabel() == "day"
    with pytest.raises(ValueError, match="name is 'loda'; it must be one of 'season 1D', 'trend', 'load'"):
        plots.plot_transition_effects(posterior, "loda")
    with pytest.raises(ValueError, match="the transitions of this model have no inputs"):
        plots.plot_transition_effects(posterior_of()[0])


def test_lengths_of_visits_are_negative_binomial():
    model = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()), transitions=rh.Phases((1, 4)))
    P = np.array([[0.9, 0.1], [0.3, 0.7]])
    posterior = rh.Posterior(model, np.ones((1, 3, 2, 2)), np.tile(P, (1, 3, 1, 1)), "chain")
    found = visit_lengths(posterior, 150)
    for k, r in enumerate((1, 4)):
        np.testing.assert_allclose(found.values[0, :, k], nbinom.pmf(found.x - r, r, 1 - P[k, k]), atol=1e-12)
    assert (found.values[:, found.x < 4, 1] == 0).all()
    axes = plots.plot_sojourns(posterior)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["state 0", "state 1"]
    fixed = rh.Posterior(model, np.ones((1, 3, 2, 2)), np.tile(np.eye(2), (1, 3, 1, 1)), "chain")
    assert np.isfinite(visit_lengths(fixed).values).all()


@pytest.mark.jit
@pytest.mark.parametrize("kind", FAMILIES)
def test_pictures_of_components(kind):
    posterior, series = posterior_of(kind)
    axes = plots.plot_components(posterior, series, first=100, last=10_000)
    assert [axis.get_ylabel() for axis in axes] == [
        "observation", "log level" if kind == "poisson" else "level", "season 1D", "season 7D", "temp",
    ]  # fmt: skip
    shown = axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(shown, series.read(100, T)[:, 0])
    fit = axes[0].lines[1].get_ydata()
    assert np.quantile(np.abs(fit - shown), 0.9) < (0.01 if kind == "gaussian" else 12)
    assert ("log" in plots.plot_season(posterior)[0].get_ylabel()) == (kind == "poisson")
    axes[0].figure.canvas.draw()
    with pytest.raises(ValueError, match="first is 9 and last is 9; they must be rows of the series"):
        plots.plot_components(posterior, series, first=9, last=9)


def test_effects_have_a_picture_each():
    posterior, _ = posterior_of()
    axes = plots.plot_effects(posterior)
    assert [axis.get_title() for axis in axes] == ["season 1D", "season 7D", "temp"]
    assert axes[2].get_xlabel() == "temp"
    middle = effect_curves(posterior)[2]
    slope = np.diff(middle.values.mean(0)[[0, -1], 0]) / np.diff(middle.x[[0, -1]])
    np.testing.assert_allclose(slope, 0.1, atol=1e-3)
    plain = rh.Model(rh.Gaussian(), 1, rh.no_priors(rh.Gaussian()))
    with pytest.raises(ValueError, match="observations have no season, trend or inputs; fit with season="):
        plots.plot_effects(rh.Posterior(plain, np.ones((1, 4, 1, 2)), np.ones((1, 4, 1, 1)), "chain"))
