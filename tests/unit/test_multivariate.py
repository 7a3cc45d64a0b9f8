"""Gaussians in several columns: covariances there and back, likelihood, EM, Gibbs sampling; columns that are near
copies of each other."""

import pickle

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal

import rarehmm as rh
from rarehmm.emissions._missing_columns import n_statistics
from rarehmm.emissions.multivariate_gaussian import draw_gaussian
from rarehmm.engine import lanes
from rarehmm.engine.contracts.family import add_statistics, move_parameters, observed_rows, prepare, statistics
from rarehmm.engine.dispatch import JIT, kernel
from rarehmm.engine.kernels.messages import constants, observation
from rarehmm.engine.kernels.moved_densities import add_inputs
from rarehmm.engine.lanes import LANES, splat
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.densities import prepared
from rarehmm.posterior.prediction import StreamParameters, update
from rarehmm.windows.gradients import window_gradients
from rarehmm.windows.windows import Windows

both = pytest.mark.parametrize("diagonal", [False, True], ids=["full", "diagonal"])


def setting(diagonal, D=2, K=2, T=300, seed=0):
    rng, family = np.random.default_rng(seed), rh.MultivariateGaussian(D, diagonal)
    factors = rng.normal(size=(K, D, D)) * 0.5 + np.eye(D)
    covariance = factors @ factors.transpose(0, 2, 1)
    covariance *= np.eye(D) if diagonal else 1
    mean = 3.0 * np.arange(K)[:, None] * rng.choice([-1, 1], D)
    shell = rh.Model(family, K, rh.Priors((rh.Flat(),) * len(family.parameters)))
    truth = shell.natural(family.phi_of(mean, covariance), 0.1 / (K - 1) + (0.9 - 0.1 / (K - 1)) * np.eye(K))
    y, states = rh.simulate(rng, shell, truth, T)
    y[rng.random(y.shape) < 0.1] = np.nan
    series = rh.Series(y)
    return rh.Model(family, K, rh.default_priors(family, K, series)), truth, series, states, (mean, covariance)


def observed(row, mean, covariance):
    """Log density of the columns of a row that are there."""
    there = np.flatnonzero(~np.isnan(row))
    distribution = multivariate_normal(mean[there], covariance[np.ix_(there, there)]) if len(there) else None
    return distribution.logpdf(row[there]) if distribution else 0.0


@both
def test_covariances_there_and_back(diagonal):
    model, truth, _, _, moments = setting(diagonal, D=3)
    for found, expected in zip(model.family.moments(truth.phi), moments, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    assert pickle.loads(pickle.dumps(model.family)) == model.family
    assert type(pickle.loads(pickle.dumps(model.family))) is type(model.family)
    assert repr(model.family) == f"MultivariateGaussian(3{', diagonal=True' if diagonal else ''})"
    assert model.family != rh.MultivariateGaussian(4, diagonal)
    assert model.component_names[0] == "mean_0[0]"


@both
def test_the_likelihood_is_that_of_the_covariances(diagonal):
    model, truth, series, _, (mean, covariance) = setting(diagonal, T=60)
    y = series.read(0, 60)
    logs = np.array([[observed(row, m, c) for row in y] for m, c in zip(mean, covariance, strict=True)])
    a, total = truth.start * np.exp(logs[:, 0]), 0.0
    for t in range(1, 61):
        total += np.log(a.sum())
        a = (a / a.sum()) @ truth.transition * np.exp(logs[:, min(t, 59)])
    assert rh.log_likelihood(model, truth, series) == pytest.approx(total, rel=1e-10)


@pytest.mark.jit
@both
def test_em_rises_and_settles_where_the_gradient_vanishes(diagonal):
    model, truth, series, _, _ = setting(diagonal)
    found = rh.climb(model, series, truth, steps=300, tolerance=1e-12)
    assert (np.diff(found.trace) > -1e-9).all()
    value, slope = rh.log_posterior(model, model.pack(found.parameters), series)
    assert value == pytest.approx(found.log_posterior, abs=1e-7)
    assert np.abs(slope).max() < 1e-3


@pytest.mark.plain
@both
def test_draws_given_the_states_keep_the_prior(diagonal):
    """Parameters from the prior, data from these, one draw of the parameters given the data: the prior again."""
    rng, family, n = np.random.default_rng(1), rh.MultivariateGaussian(2, diagonal), 4
    P = len(family.parameters)
    priors = tuple(rh.InverseGamma(3.0, 2.0) if p.support == "positive" else rh.Normal(0.5, 0.7)
                   for p in family.parameters)  # fmt: skip
    before, after = np.empty((2, 3000, P))
    for i in range(3000):
        phi = np.array([2.0 / rng.gamma(3.0) if isinstance(p, rh.InverseGamma) else rng.normal(0.5, np.sqrt(0.7))
                        for p in priors])  # fmt: skip
        y = family.draw(rng, np.zeros(n, dtype=int), phi[None])
        z = y - phi[:2]
        squares = [z[:, 0] @ z[:, 0], z[:, 1] @ z[:, 1]] if diagonal else [z[:, 0] @ z[:, 0], z[:, 0] @ z[:, 1],
                                                                            z[:, 1] @ z[:, 1]]  # fmt: skip
        sums = np.concatenate([z.sum(0), squares])
        before[i] = phi
        after[i] = family.conditional(rng, phi[None], np.array([float(n)]), sums[None], priors)[0]
    assert (before != after).all()
    p_values = [kstest(after[:, i], before[:, i]).pvalue for i in range(P)]
    assert min(p_values) > 1e-3 / P
    assert kstest(1.15 * after[:, 2], before[:, 2]).pvalue < 1e-3  # 15 % too wide would show


def test_nearly_exact_copies_can_be_drawn():
    """A column that is a thousand million times another one: their covariance has no digits left for the rest."""
    family, phi = rh.MultivariateGaussian(2), np.array([[0.0, 0.0, 1.0, 1.0, 1e9]])
    with pytest.raises(np.linalg.LinAlgError):
        np.linalg.cholesky(family.moments(phi)[1])
    y = family.draw(np.random.default_rng(0), np.zeros(20_000, int), phi)
    assert kstest(y[:, 0], "norm").pvalue > 1e-4
    np.testing.assert_allclose(y[:, 1], 1e9 * y[:, 0], atol=6)


@pytest.mark.jit
def test_columns_that_are_near_copies_do_not_break_it():
    rng = np.random.default_rng(2)
    T = 300 if JIT else 60
    x = np.repeat([0.0, 5.0, 0.0], T // 3) + rng.normal(size=T)
    series = rh.Series(np.column_stack([x, x + 1e-7 * rng.normal(size=T)]))
    family = rh.MultivariateGaussian(2)
    model = rh.Model(family, 2, rh.default_priors(family, 2, series))
    mode = rh.find_mode(model, series)
    found = mode.model.unpack(mode.theta)
    assert np.sort(found.phi[:, 0]) == pytest.approx([0, 5], abs=0.5)
    assert np.isfinite(mode.log_posterior)


@pytest.mark.jit
@pytest.mark.parametrize("diagonal", [False, True])
def test_a_far_outlier_and_a_column_that_rests_do_not_break_it(diagonal):
    rng = np.random.default_rng(3)
    family = rh.MultivariateGaussian(2, diagonal)
    T = 500 if JIT else 60
    outlier = np.vstack([rng.normal(size=(T, 2)), [[80, 80]]])
    rests = np.column_stack([rng.normal(size=T), np.where(np.arange(T) // (T // 12) == 5, rng.normal(size=T), 0.0)])
    for y in (outlier, rests, rng.integers(0, 2, (60 if JIT else 30, 2)).astype(float)):
        series = rh.Series(y)
        model = rh.Model(family, 2, rh.default_priors(family, 2, series))
        assert np.isfinite(rh.find_mode(model, series).log_posterior)


# ---------------------------------------------------------------- rows of which some columns are missing
@pytest.mark.jit
@pytest.mark.parametrize("value", [0.0, -7.5])
def test_a_column_that_never_changes_says_nothing_and_does_no_harm(value):
    rng = np.random.default_rng(5)
    states = np.repeat([0, 1, 0], [400, 60, 400])
    x = rng.normal(size=(860, 2)) + 4.0 * states[:, None]
    dead = np.insert(x, 1, value, axis=1)
    fits = [rh.RareHMM(2, method="map", verbose=0).fit(y) for y in (x, dead)]
    for hmm, y in zip(fits, (x, dead), strict=True):
        assert np.mean(hmm.predict(y) == states) > 0.99
    np.testing.assert_allclose(fits[1].means_[:, [0, 2]], fits[0].means_, atol=0.02)
    np.testing.assert_allclose(fits[1].means_[:, 1], value, atol=0.05 * (abs(value) or 1))
    with pytest.raises(ValueError, match="observed values of y are 2, 3; a constant series"):
        rh.RareHMM(2, verbose=0).fit(np.tile([2.0, 3.0], (50, 1)))


@pytest.mark.nightly
@pytest.mark.jit
def test_many_columns_of_few_dimensions_do_not_break_it():
    """Eight columns that are three, but for a thousandth of noise; priors by the noise of each column hid the state."""
    rng = np.random.default_rng(6)
    states = np.repeat([0, 1, 0], [400, 80, 400])
    hidden = rng.normal(size=(880, 3)) + 3.0 * states[:, None]
    y = hidden @ rng.normal(size=(3, 8)) + 1e-3 * rng.normal(size=(880, 8))
    hmm = rh.RareHMM(2, method="map", verbose=0).fit(y)
    assert np.abs(np.corrcoef(hmm.predict(y), states)[0, 1]) > 0.98


def test_each_column_is_summarised_by_what_is_there_of_it():
    y = np.random.default_rng(0).normal(size=(50, 2))
    y[5], y[7] = [np.nan, 30], np.nan
    series = rh.Series(y)
    assert series.summaries[1].high == 30
    assert [s.size for s in series.summaries] == [48, 49]
    assert series.n_missing == 1


@pytest.mark.plain
@both
def test_what_is_expected_of_missing_columns_is_what_draws_of_them_average_to(diagonal):
    model, truth, series, _, _ = setting(diagonal, D=3)
    family, phi, y = model.family, truth.phi[1], series.read(0, 300)
    y = y[observed_rows(family, y)]
    c, rng = prepare(family, phi), np.random.default_rng(0)
    expected = np.sum(statistics(family, tuple(y.T), c), axis=1)
    draws = [family.complete(rng, y, phi) for _ in range(2000)]
    sums = np.array([np.sum(statistics(family, tuple(one.T), c), axis=1) for one in draws])
    assert np.abs((sums.mean(0) - expected) / (sums.std(0) / np.sqrt(2000) + 1e-9)).max() < 4.5
    assert np.ptp(sums, axis=0).min() > 1e-3


@pytest.mark.jit
@both
@pytest.mark.parametrize("D", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_the_gradient_is_the_slope_and_all_kernels_agree_on_it(diagonal, D):
    model, truth, series, _, _ = setting(diagonal, D=D, T=90)
    theta, h = model.pack(truth), 1e-5
    value, slope = rh.log_posterior(model, theta, series)
    steps = h * np.eye(model.size)
    found = [(rh.log_posterior(model, theta + s, series)[0] - rh.log_posterior(model, theta - s, series)[0]) / (2 * h)
             for s in steps]  # fmt: skip
    np.testing.assert_allclose(slope, found, rtol=1e-5, atol=1e-5)
    windows = window_gradients(model, theta, series, Windows(series, 2, 90)).sum(0)
    np.testing.assert_allclose(windows + model.log_prior_gradient(theta), slope, rtol=1e-9, atol=1e-9)
    values, slopes = BatchedLogPosterior(model, series).values_and_slopes(theta[None])
    np.testing.assert_allclose([values[0], *slopes[0]], [value, *slope], rtol=1e-9, atol=1e-9)


@pytest.mark.jit
def test_columns_that_take_turns_are_learned_from():
    """No row is complete: the columns are seen at odd and at even times."""
    rng = np.random.default_rng(4)
    states = np.repeat([0, 1, 0], [400, 100, 400])
    y = rng.normal(size=(900, 2)) + 4.0 * states[:, None]
    y[::2, 0], y[1::2, 1] = np.nan, np.nan
    hmm = rh.RareHMM(2, method="map", verbose=0).fit(y)
    assert np.mean(hmm.predict(y) == states) > 0.99
    assert rh.Series(y).n_missing == 0


def test_a_stream_hears_single_columns():
    model, truth, series, _, _ = setting(diagonal=False, T=60)
    stream, ready = rh.Stream(), StreamParameters.of(model, [truth])
    for row in series.read(0, 60):
        stream = update(ready, stream, row)
    np.testing.assert_allclose(stream.distribution[0], rh.filter_states(model, truth, series)[-1], rtol=1e-9)


@pytest.mark.jit
@pytest.mark.parametrize(("T", "sweeps"), [(600, 2000), pytest.param(6000, 4000, marks=pytest.mark.nightly)])
def test_the_default_rule_and_gibbs_agree_in_two_columns(T, sweeps):
    model, _, series, _, _ = setting(diagonal=False, T=T)
    found = rh.infer(np.random.default_rng(0), model, series)
    draws = found.theta.reshape(-1, model.size)
    assert all(c.passed for c in found.checks), found.describe()
    start = found.mode.model.unpack(found.mode.theta)
    gold = rh.gibbs(np.random.default_rng(1), found.mode.model, series, start, sweeps)[200:]
    np.testing.assert_allclose(draws.mean(0), gold.mean(0), atol=0.2 * gold.std(0).max())
    assert (np.abs(draws.mean(0) - gold.mean(0)) < 0.2 * gold.std(0)).all()
    np.testing.assert_allclose(draws.std(0), gold.std(0), rtol=0.15)


@kernel
def moved_statistics(family, point, y, eta, zeta, room, total):
    """Statistics of one row of lanes in the first state after inputs, one row at a time."""
    c = constants(family, point, point.c, 0)
    x, moved = add_inputs(
        family, observation(family, y, 0), c, observation(family, eta, 0), observation(family, zeta, 0)
    )
    add_statistics(family, x, moved, splat(1.0), lanes.row(room, 0), lanes.row(total, 0))


@both
@pytest.mark.jit
def test_statistics_of_rows_with_inputs_in_kernels(diagonal):
    """Those of what is left of the rows, also where columns are missing; kernels read them from memory otherwise."""
    family, D = rh.MultivariateGaussian(3, diagonal), 3
    model, rng = rh.Model(family, 2, rh.no_priors(family)), np.random.default_rng(0)
    point = prepared(model, model.natural(np.full((2, len(family.parameters)), 0.8), np.full((2, 2), 0.5)))
    (y, eta, zeta), room = rng.normal(size=(3, 1, D, LANES)), np.zeros((1, D, LANES))
    y[0, 1, 3], y[0, :2, 4] = np.nan, np.nan
    total = np.zeros((1, n_statistics(D, not diagonal), LANES))
    moved_statistics(family, point, y, eta, zeta, room, total)
    for w in range(LANES):
        phi = move_parameters(family, point.phi[0], eta[0, :, w], zeta[0, :, w])
        expected = statistics(family, tuple(y[0, :, w, None]), prepare(family, phi))
        np.testing.assert_allclose(total[0, :, w], np.squeeze(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("columns", [1, 0, 2.5, True])
def test_numbers_of_columns_that_make_no_sense_are_refused(columns):
    with pytest.raises(ValueError, match="use Gaussian"):
        rh.MultivariateGaussian(columns)


def test_errors_lead_to_covariances():
    model, truth, _, _, _ = setting(diagonal=False)
    with pytest.raises(ValueError, match=r"no parameter 'mean'.*model\.natural\(family\.phi_of"):
        model.parameters(truth.transition, mean=[0, 1])
    with pytest.raises(ValueError, match="not positive definite"):
        model.family.phi_of(np.zeros(2), np.ones((2, 2)))


def test_a_mean_without_a_proper_distribution_is_refused():
    with pytest.raises(ValueError, match=r"a mean or slope has no proper distribution .*: its prior is Flat"):
        draw_gaussian(np.random.default_rng(0), np.zeros((2, 2)), np.zeros(2), np.zeros(2))
