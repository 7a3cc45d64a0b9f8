"""Gaussians in several columns: covariances there and back, likelihood, EM, Gibbs sampling; columns that are near
copies of each other."""

import pickle

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal

import rarehmm as rh

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
    y[5, 0] = np.nan
    series = rh.Series(y)
    return rh.Model(family, K, rh.default_priors(family, K, series)), truth, series, states, (mean, covariance)


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
    logs = np.array([multivariate_normal(m, c).logpdf(np.nan_to_num(y)) for m, c in zip(mean, covariance, strict=True)])
    logs[:, np.isnan(y).any(1)] = 0
    a, total = truth.start * np.exp(logs[:, 0]), 0.0
    for t in range(1, 61):
        total += np.log(a.sum())
        a = (a / a.sum()) @ truth.transition * np.exp(logs[:, min(t, 59)])
    assert rh.log_likelihood(model, truth, series) == pytest.approx(total, rel=1e-10)


@both
def test_em_rises_and_settles_where_the_gradient_vanishes(diagonal):
    model, truth, series, _, _ = setting(diagonal)
    found = rh.climb(model, series, truth, steps=300, tolerance=1e-12)
    assert (np.diff(found.trace) > -1e-9).all()
    value, slope = rh.log_posterior(model, model.pack(found.parameters), series)
    assert value == pytest.approx(found.log_posterior, abs=1e-7)
    assert np.abs(slope).max() < 1e-3


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


def test_columns_that_are_near_copies_do_not_break_it():
    rng = np.random.default_rng(2)
    x = np.repeat([0.0, 5.0, 0.0], 100) + rng.normal(size=300)
    series = rh.Series(np.column_stack([x, x + 1e-7 * rng.normal(size=300)]))
    family = rh.MultivariateGaussian(2)
    model = rh.Model(family, 2, rh.default_priors(family, 2, series))
    mode = rh.find_mode(model, series)
    found = mode.model.unpack(mode.theta)
    assert np.sort(found.phi[:, 0]) == pytest.approx([0, 5], abs=0.5)
    assert np.isfinite(mode.log_posterior)


@pytest.mark.parametrize("diagonal", [False, True])
def test_a_far_outlier_and_a_column_that_rests_do_not_break_it(diagonal):
    rng = np.random.default_rng(3)
    family = rh.MultivariateGaussian(2, diagonal)
    outlier = np.vstack([rng.normal(size=(500, 2)), [[80, 80]]])
    rests = np.column_stack([rng.normal(size=500), np.where(np.arange(500) // 40 == 5, rng.normal(size=500), 0.0)])
    for y in (outlier, rests, rng.integers(0, 2, (60, 2)).astype(float)):
        series = rh.Series(y)
        model = rh.Model(family, 2, rh.default_priors(family, 2, series))
        assert np.isfinite(rh.find_mode(model, series).log_posterior)


def test_what_is_left_of_a_missing_row_counts_for_nothing():
    y = np.random.default_rng(0).normal(size=(50, 2))
    y[5] = [np.nan, 1e6]
    assert rh.Series(y).summaries[1].high < 10


@pytest.mark.jit
def test_the_default_rule_and_gibbs_agree_in_two_columns():
    model, _, series, _, _ = setting(diagonal=False, T=6000)
    found = rh.infer(np.random.default_rng(0), model, series)
    draws = found.theta.reshape(-1, model.size)
    assert all(c.good for c in found.checks), found.describe()
    gold = rh.gibbs(np.random.default_rng(1), found.mode.model, series, found.mode.model.unpack(found.mode.theta), 4000)
    gold = gold[200:]
    np.testing.assert_allclose(draws.mean(0), gold.mean(0), atol=0.2 * gold.std(0).max())
    assert (np.abs(draws.mean(0) - gold.mean(0)) < 0.2 * gold.std(0)).all()
    np.testing.assert_allclose(draws.std(0), gold.std(0), rtol=0.15)


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
