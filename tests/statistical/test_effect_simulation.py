"""Simulated series of models whose rows differ agree with the likelihood, which enumeration of paths has checked."""

import itertools
import time
import zlib

import numpy as np
import pandas as pd
import pytest
from oracle_regimes import Regimes, start_variances
from regime_cases import as_model, covering, every_choice, label, make_case

import rarehmm as rh
from rarehmm.exact.passes import expectations
from rarehmm.model import simulation
from rarehmm.model.effect_simulation import moves_data
from rarehmm.posterior.residuals import pseudo_residuals

CHOICES = [choice | {"known": False, "missing": False} for choice in covering()]
BATCHES = 40


def repeated(case, series, times):
    """Sequences and inputs of a case again and again, without the first values of sequences."""
    y = np.full(times * len(case.y), np.nan)
    y[-1] = 0.0
    names = series.exog_names
    exog = pd.DataFrame(np.tile(series.exog_parts[0], (times, 1)), columns=list(names)) if names else None
    return rh.Series(y, np.tile(case.lengths, times), exog=exog)


def with_values(series, y):
    """A series with other observations."""
    exog = pd.DataFrame(series.exog_parts[0], columns=list(series.exog_names)) if series.exog_names else None
    return rh.Series(y, np.diff(series.bounds), exog=exog)


def gradient(model, parameters, series):
    """Gradient (d,) of the log likelihood."""
    found = expectations(model, parameters, series)
    return model.gradient_from_expectations(
        model.pack(parameters), found.scores, found.pairs, found.first, found.coefficients
    )


def standard_errors_off(choice, times, scale=1.0):
    """How far the mean gradient at the parameters of simulated series is from 0, (d,), in standard errors.

    Where it is taken, variances are larger by the factor ``scale``.
    """
    rng = np.random.default_rng(zlib.crc32(label(choice).encode()))
    case = make_case(choice, 1)
    model, parameters, series = as_model(case)
    large = repeated(case, series, times)
    elsewhere = parameters._replace(phi=parameters.phi * [1.0, scale])
    each = np.array([
        gradient(model, elsewhere, with_values(large, rh.simulate(rng, model, parameters, large)[0]))
        for _ in range(BATCHES)
    ])  # fmt: skip
    return each.mean(0) / (each.std(0, ddof=1) / np.sqrt(BATCHES) + 1e-9)


@pytest.mark.jit
@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_the_mean_gradient_at_the_parameters_of_simulated_series_is_0(choice):
    assert np.abs(standard_errors_off(choice, 25)).max() < 5


@pytest.mark.jit
@pytest.mark.parametrize("choice", CHOICES[::6], ids=label)
def test_that_test_would_notice_other_variances(choice):
    assert np.abs(standard_errors_off(choice, 25, 1.3)).max() > 5


@pytest.mark.nightly
@pytest.mark.parametrize("choice", [choice for choice in every_choice() if not choice["missing"]][::4], ids=label)
def test_the_mean_gradient_is_0_for_many_more_models_and_series(choice):
    assert np.abs(standard_errors_off(choice | {"known": False}, 400)).max() < 5.5


@pytest.mark.parametrize("start", [None, np.array([0.5, 0.5])], ids=["stationary", "given"])
def test_first_values_have_the_variances_of_the_likelihood(start):
    """Around the level, they mix those of the states before."""
    n, P = 10_000, np.array([[0.8, 0.2], [0.4, 0.6]])
    gaussian = rh.Gaussian()
    model = rh.Model(gaussian, 2, rh.no_priors(gaussian), start, autoregression=rh.AroundLevel(1))
    point = model.natural([[0.0, 1.0], [3.0, 16.0]], P, [0.8])
    case = Regimes(np.zeros(1), [0, 3], np.array([1.0, 4.0]), P, start=start, kind="level", p=1, phi=[0.8])
    y, states = rh.simulate(np.random.default_rng(0), model, point, rh.Series(np.zeros(n), [1] * n))
    for k, variance in enumerate(start_variances(case)):
        mine = y[states == k] - [0, 3][k]
        assert abs(mine.var() - variance) < 4 * variance * np.sqrt(2 / len(mine))


# ---------------------------------------------------------------- after other rows
CONTINUED = [choice for choice in covering() if choice["form"][0] != "hamilton" and choice["transitions"] != "phases"]


def part_of(series, y, first, last):
    """Rows [first, last) of a series, with other observations."""
    exog = pd.DataFrame(series.exog_parts[0], columns=list(series.exog_names)) if series.exog_names else None
    return rh.Series(y, exog=None if exog is None else exog[first:last])


@pytest.mark.jit
@pytest.mark.parametrize("choice", CONTINUED, ids=label)
def test_what_continues_a_series_follows_its_conditional_distribution(choice):
    """The mean gradient of the log density of what follows, given the beginning, is 0; the last row may be missing."""
    fills_gaps = choice["form"][0] == "level" and not choice["switching_lags"]
    choice = choice | {"known": False, "sequences": 1, "missing": choice["missing"] and fills_gaps}
    first = 5 if choice["missing"] else 4  # the fifth row is missing
    case, rng, many = make_case(choice, 2), np.random.default_rng(zlib.crc32(label(choice).encode())), 10
    model, parameters, series = as_model(case)
    past, future = part_of(series, case.y[:first], 0, first), part_of(series, np.zeros(7 - first), first, 7)
    last = rh.filter_states(model, parameters, past)[-1]
    each = []
    for _ in range(BATCHES):
        y = np.tile(case.y, (many, 1))
        for row in y:
            state = rng.choice(model.n_states, p=last / last.sum())
            row[first:] = rh.simulate(rng, model, parameters, future, state, after=past)[0]
        found = gradient(model, parameters, with_values(repeated(case, series, many), y.ravel()))
        each.append(found / many - gradient(model, parameters, past))
    each = np.array(each)
    assert np.abs(each.mean(0) / (each.std(0, ddof=1) / np.sqrt(BATCHES) + 1e-9)).max() < 5


def test_seasons_and_trends_go_on():
    """Without noise: row numbers and times are those after the series, and a new sequence begins at its own."""
    times = pd.date_range("2026-01-01", periods=60, freq="h")
    wave = np.sin(2 * np.pi * np.arange(60) / 24) + 0.01 * np.arange(60)
    for y in (wave, pd.Series(wave, index=times)):
        whole = rh.Series(y)
        inputs = rh.Inputs.of(whole, [rh.Season(24, order=1), rh.Trend()])
        fit = np.linalg.lstsq(np.column_stack([np.ones(60), inputs.design(whole.read_rows(0, 60))]), wave)[0]
        model = rh.Model(rh.Gaussian(), 1, rh.no_priors(rh.Gaussian()), inputs=inputs, autoregression=rh.AroundLevel(1))
        point = model.natural([[fit[0], 1e-20]], [[1.0]], [*fit[1:], 0.5])
        past, future = rh.Series(y[:40]), rh.Series(y[40:])
        found, _ = rh.simulate(np.random.default_rng(0), model, point, future, 0, after=past)
        np.testing.assert_allclose(found, wave[40:], atol=1e-8)
        if not whole.has_times:
            np.testing.assert_allclose(rh.simulate(np.random.default_rng(0), model, point, 60)[0], wave, atol=1e-8)
            two = rh.Series(np.zeros(30), lengths=[20, 10])
            found, _ = rh.simulate(np.random.default_rng(0), model, point, two, 0, after=past)
            np.testing.assert_allclose(found, [*wave[40:60], *wave[:10]], atol=1e-8)


@pytest.mark.parametrize("form", [rh.AroundLevel(3), rh.Intercept(2), rh.Hamilton(2)], ids=repr)
def test_stretches_continue_each_other(form, monkeypatch):
    """A long series is simulated in stretches; noise is so small that only a wrong lag or level could show."""
    monkeypatch.setattr(simulation, "STRETCH", 7)
    model = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()), autoregression=form)
    lags = np.array([0.5, -0.3, 0.2][: form.order])
    P = [[0.7, 0.3], [0.4, 0.6]]
    point = model.natural([[0.0, 1e-20], [5.0, 1e-20]], P, lags)
    given = rh.Series(np.arange(60.0), lengths=[33, 27])
    y, states = rh.simulate(np.random.default_rng(0), model, point, given)
    residuals = pseudo_residuals(np.random.default_rng(0), model, point, rh.Series(y, lengths=[33, 27]))
    assert np.abs(np.nan_to_num(residuals)).max() < 8
    assert rh.joint_log_density(model, point, rh.Series(y, lengths=[33, 27]), states) > 1000
    if form != rh.AroundLevel(3):
        assert y[[0, 1, 33, 34]].tolist() == [0, 1, 33, 34]


# ---------------------------------------------------------------- observations one by one
@pytest.mark.plain
@pytest.mark.parametrize("family", [rh.Bernoulli(), rh.Poisson()], ids=repr)
def test_counts_with_lags_have_the_probabilities_of_the_likelihood(family):
    """All outcomes of four steps of which the first is given, of a count up to the second; in standard errors."""
    n, rng, x = 4000, np.random.default_rng(3), [[0.5], [-1.0], [1.0], [0.2]]
    one = rh.Series([1.0, 0.0, 0.0, 0.0], exog=x)
    model = rh.Model(
        family, 2, rh.no_priors(family), switching=rh.Inputs.of(one, [rh.Columns()]), autoregression=rh.Intercept(1),
        transitions=rh.Regression(rh.Inputs.of(one, [rh.Columns()])),
    )  # fmt: skip
    phi = [[-1.0], [0.7]] if isinstance(family, rh.Bernoulli) else [[0.3], [0.8]]
    slopes = [[[0.4, -0.4], [-0.8, 0.8]]]
    point = model.natural(phi, [[0.6, 0.4], [0.3, 0.7]], [0.3, -0.5, 0.9, *np.ravel(slopes)])
    many = rh.Series(np.tile([1.0, 0.0, 0.0, 0.0], n), [4] * n, exog=np.tile(x, (n, 1)))
    y = rh.simulate(rng, model, point, many)[0].reshape(n, 4)
    assert (y[:, 0] == 1).all()
    for rest in itertools.product([0.0, 1.0], repeat=3):
        row = np.array([1.0, *rest])
        p = np.exp(rh.log_likelihood(model, point, rh.Series(row, exog=x)))
        share = (y == row).all(1).mean()
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize(
    "family", [rh.Gaussian(), rh.StudentT(4.0), rh.MultivariateGaussian(2), rh.LogNormal()], ids=repr
)
def test_location_families_alone_move_their_observations(family):
    """Of the others, some are on the whole line, too, but not by adding."""
    model = rh.Model(family, 1, rh.no_priors(family))
    phi = [[0.3 if p.support == "real" else 1.7 for p in family.parameters]]
    assert moves_data(model, np.array(phi[0])) == (not isinstance(family, rh.LogNormal))


# ---------------------------------------------------------------- what cannot be simulated
def test_what_is_missing_is_named():
    series = rh.Series(np.arange(9.0), exog=pd.DataFrame({"load": np.arange(9.0) ** 2}))
    gaussian, rng = rh.Gaussian(), np.random.default_rng(0)
    model = rh.Model(gaussian, 2, rh.no_priors(gaussian), inputs=rh.Inputs.of(series, [rh.Columns(["load"])]),
                     autoregression=rh.AroundLevel(1))  # fmt: skip
    point = model.natural([[0.0, 1.0], [1.0, 1.0]], [[0.9, 0.1], [0.1, 0.9]], [1.0, 0.5])
    with pytest.raises(ValueError, match=r"future inputs missing: 'load'; instead of 5, pass a Series"):
        rh.simulate(rng, model, point, 5)
    with pytest.raises(ValueError, match=r"future inputs missing: 'load'; pass exog="):
        rh.simulate(rng, model, point, rh.Series([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"state is 1 and the model has lags; pass after="):
        rh.simulate(rng, model, point, series, 1)
    with pytest.raises(ValueError, match=r"after is given and state is not"):
        rh.simulate(rng, model, point, series, after=series)


def test_inputs_are_found_by_name():
    table = pd.DataFrame({"load": np.arange(9.0) ** 2, "other": np.arange(9.0)})
    series = rh.Series(np.arange(9.0), exog=table)
    model = rh.Model(rh.Gaussian(), 1, rh.no_priors(rh.Gaussian()), inputs=rh.Inputs.of(series, [rh.Columns(["load"])]))
    point = model.natural([[0.0, 1e-20]], [[1.0]], [1.0])
    turned = rh.Series(np.arange(9.0), exog=table[["other", "load"]])
    found, wanted = (rh.simulate(np.random.default_rng(0), model, point, one)[0] for one in (turned, series))
    np.testing.assert_array_equal(found, wanted)
    assert np.corrcoef(found, table["load"])[0, 1] == pytest.approx(1.0)


@pytest.mark.jit
def test_a_million_autocorrelated_observations_in_seconds():
    model = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()), autoregression=rh.AroundLevel(2))
    point = model.natural([[0.0, 1.0], [5.0, 1.0]], [[0.99, 0.01], [0.1, 0.9]], [0.5, 0.2])
    rh.simulate(np.random.default_rng(0), model, point, 10)
    started = time.perf_counter()
    rh.simulate(np.random.default_rng(0), model, point, 1_000_000)
    assert time.perf_counter() - started < 10
