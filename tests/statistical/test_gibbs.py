"""Draws of Gibbs sampling follow the posterior; and draws that leave something out do not.

The posterior is worked out apart from the library: by enumeration (paths), by laws in closed form (one state), on a
grid (states that nothing can confuse), by importance sampling (the rest), and by what holds for every posterior: with
parameters from the prior and data from these parameters, one more sweep changes no expectation.
"""

import math
from itertools import pairwise

import numpy as np
import oracle
import pytest
import scipy.stats
from scipy.special import logsumexp
from scipy.stats import beta, chisquare, gamma, invgamma, kstest, multivariate_t, norm
from small_models import model_of

import rarehmm as rh
from rarehmm.emissions.gaussian import Gaussian
from rarehmm.samplers.sgld import Sgld
from rarehmm.sampling import gibbs as gibbs_module
from rarehmm.sampling import langevin as langevin_module

pytestmark = pytest.mark.jit
SURE = 4.5  # standard errors


def standard_errors_off(draws, expected, error=0.0, batches=30):
    """How far the mean of correlated draws (n, ...) is from what is expected, by the means of batches."""
    means = draws[: len(draws) // batches * batches].reshape(batches, -1, *draws.shape[1:]).mean(1)
    return (means.mean(0) - expected) / np.sqrt(means.var(0, ddof=1) / batches + error**2)


# ---------------------------------------------------------------- paths: enumeration
def test_paths_are_drawn_with_their_probabilities():
    """20,000 sequences of four observations, one of them missing: how often each of the 16 paths is drawn."""
    y, n = np.array([0.3, 1.2, np.nan, -0.4]), 20_000
    model = model_of(rh.Gaussian(), 2)
    parameters = model.parameters([[0.7, 0.3], [0.4, 0.6]], mean=[0, 1], variance=[1, 0.5])
    path = gibbs_module.draw_states(
        np.random.default_rng(0), model, parameters, rh.Series(np.tile(y, n), lengths=[4] * n)
    )
    seen = np.bincount(path.reshape(n, 4) @ [8, 4, 2, 1], minlength=16)

    def p_value(transition):
        paths, logs = oracle.all_paths(
            oracle.log_density(model.family, y, parameters.phi), transition, parameters.start
        )
        assert (paths @ [8, 4, 2, 1] == np.arange(16)).all()
        return chisquare(seen, n * np.exp(logs - logsumexp(logs))).pvalue

    assert p_value(parameters.transition) > 1e-3
    assert p_value(np.array([[0.72, 0.28], [0.4, 0.6]])) < 1e-6  # this test would notice a slightly wrong matrix


# ---------------------------------------------------------------- parameters of one state: closed forms
Y = np.array([1e6 + 1.0, 1e6 + 2.5, 1e6 + 0.2, 1e6 + 4.0])  # squares of which would lose what matters


@pytest.mark.parametrize("prior", [rh.Normal(1e6 - 3.0, 2.0), rh.Flat()], ids=str)
def test_means_given_variances(prior):
    """One draw for each of 5,000 states that have all seen the same."""
    n, s2, old = len(Y), 1.7, 1e6 + 1.0
    phi = np.tile([old, s2], (5000, 1))
    sums = np.tile([(Y - old).sum(), ((Y - old) ** 2).sum()], (5000, 1))
    variance = rh.InverseGamma(2.5, 3.0)
    drawn = Gaussian().conditional(np.random.default_rng(1), phi, np.full(5000, float(n)), sums, (prior, variance))
    precision = n / s2 + (0 if prior == rh.Flat() else 1 / prior.variance)
    centre = (Y.sum() / s2 + (0 if prior == rh.Flat() else prior.mean / prior.variance)) / precision
    assert kstest(drawn[:, 0], norm(centre, precision**-0.5).cdf).pvalue > 1e-3
    assert kstest(drawn[:, 0], norm(centre, 1.1 * precision**-0.5).cdf).pvalue < 1e-3
    squares = ((Y - drawn[:, :1]) ** 2).sum(1)  # around the mean that was drawn
    assert kstest((3.0 + squares / 2) / drawn[:, 1], gamma(2.5 + n / 2).cdf).pvalue > 1e-3
    assert kstest((3.0 + squares / 2) / drawn[:, 1], gamma(2.6 + n / 2).cdf).pvalue < 1e-3


@pytest.mark.parametrize(("prior", "a", "b"), [(rh.Gamma(2.0, 0.5), 2.0, 0.5), (rh.Flat(), 0.0, 0.0)], ids=str)
def test_rates(prior, a, b):
    drawn = rh.Poisson().conditional(
        np.random.default_rng(2), np.ones((5000, 1)), np.full(5000, 4.0), np.full((5000, 1), 9.0), (prior,)
    )
    assert kstest(drawn[:, 0], gamma(a + 9, scale=1 / (b + 4)).cdf).pvalue > 1e-3
    assert kstest(drawn[:, 0], gamma(a + 9.5, scale=1 / (b + 4)).cdf).pvalue < 1e-3


def test_one_state_without_priors_is_students_t():
    """Uniform in the mean and in the logarithm of the variance, as ``log_posterior`` has it: a classical posterior."""
    y = np.array([1.0, 2.5, np.nan, 0.2, 4.0, 2.2, np.nan, 1.4, 0.1])
    series, n, mean = rh.Series(y, lengths=[4, 5]), 7, np.nanmean(y)
    squares = np.nansum((y - mean) ** 2)
    model = rh.Model(rh.Gaussian(), 1, rh.no_priors(rh.Gaussian()))
    density = [rh.log_posterior(model, np.array([mean, e]), series)[0] for e in (0.0, 1.0)]
    assert density[1] - density[0] == pytest.approx(-n / 2 + squares / 2 * (1 - math.exp(-1)))
    draws = gibbs_module.gibbs(
        np.random.default_rng(3), model, series, model.parameters([[1.0]], mean=0, variance=9), 2000
    )
    precision = np.exp(-draws[:, 1]) * squares  # chi squared
    assert abs(standard_errors_off(precision, n - 1)) < SURE
    assert abs(standard_errors_off((precision - (n - 1)) ** 2, 2 * (n - 1))) < SURE
    assert abs(standard_errors_off(precision, n)) > SURE  # uniform in the standard deviation would give this
    z = (draws[:, 0] - mean) / math.sqrt(squares / (n - 1) / n)
    inside = scipy.stats.t(n - 1).cdf(1) - scipy.stats.t(n - 1).cdf(-1)
    assert abs(standard_errors_off((np.abs(z) < 1).astype(float), inside)) < SURE
    assert abs(standard_errors_off(z, 0.0)) < SURE


# ---------------------------------------------------------------- transitions with a stationary start: a grid
def known_states():
    """Seven short sequences whose states nothing can confuse, most of which begin in state 1."""
    paths = [[1], [1], [1], [0, 0], [1, 1, 0, 0, 1], [1], [1]]
    rng = np.random.default_rng(4)
    series = rh.Series([200.0 * np.array(p) - 100 + rng.standard_normal(len(p)) for p in paths])
    priors = rh.Priors((rh.Normal(0.0, 1e4), rh.InverseGamma(3.0, 3.0)), rh.Dirichlet(3.0))
    model = rh.Model(rh.Gaussian(), 2, priors)
    return model, series, model.parameters([[0.5, 0.5], [0.5, 0.5]], mean=[-100, 100], variance=1), paths


def transition_errors(steps=2000):
    """Standard errors off of E[p], E[q], E[p^2], E[q^2], E[p q], p = P(0 -> 1), q = P(1 -> 0)."""
    model, series, start, paths = known_states()
    x = (np.arange(500) + 0.5) / 500
    p, q = np.meshgrid(x, x, indexing="ij")
    density = (p * (1 - p) * q * (1 - q)) ** 2  # Dirichlet(3)
    distribution, P = (q / (p + q), p / (p + q)), ((1 - p, p), (q, 1 - q))
    for path in paths:
        density *= distribution[path[0]]
        for i, j in pairwise(path):
            density *= P[i][j]
    expected = [(density * f).sum() / density.sum() for f in (p, q, p**2, q**2, p * q)]
    draws = gibbs_module.gibbs(np.random.default_rng(5), model, series, start, steps)
    p, q = 1 / (1 + np.exp(-draws[:, 4:].T))
    return standard_errors_off(np.column_stack([p, q, p**2, q**2, p * q]), expected)


def test_a_stationary_start_pulls_on_the_transitions():
    assert np.abs(transition_errors()).max() < SURE


def test_that_test_would_notice_if_every_transition_matrix_were_accepted(monkeypatch):
    monkeypatch.setattr(gibbs_module, "accepts", lambda *_: True)
    assert np.abs(transition_errors(1000)).max() > 2 * SURE


# ---------------------------------------------------------------- whole posteriors: importance sampling
LENGTHS = [13, 1, 9, 7]


def gaussian_case():
    """Moderate overlap, stationary start."""
    priors = rh.Priors((rh.Normal(1.0, 9.0), rh.InverseGamma(3.0, 3.0)), rh.Dirichlet(1.3))
    model = rh.Model(rh.Gaussian(), 2, priors)
    return model, model.parameters([[0.8, 0.2], [0.3, 0.7]], mean=[0, 3.5], variance=[1, 0.5])


def poisson_case():
    """Moderate overlap, given start."""
    model = rh.Model(rh.Poisson(), 2, rh.Priors((rh.Gamma(2.0, 0.4),)), start=[0.5, 0.5])
    return model, model.parameters([[0.8, 0.2], [0.3, 0.7]], rate=[1.5, 9.0])


def data_of(rng, model, truth):
    y = np.concatenate([rh.simulate(rng, model, truth, n)[0] for n in LENGTHS])
    y[[2, 13, 20, 21]] = np.nan
    return y


def natural(model, theta):
    """phi (N, K, P), transition (N, 2, 2) and start (N, 2) at many points (N, d), written out for two states."""
    P = len(model.family.parameters)
    phi = theta[:, : 2 * P].reshape(-1, P, 2).swapaxes(1, 2).copy()
    phi[:, :, -1] = np.exp(phi[:, :, -1])
    p, q = 1 / (1 + np.exp(-theta[:, 2 * P :].T))
    transition = np.array([[1 - p, p], [q, 1 - q]]).transpose(2, 0, 1)
    start = np.array([q, p]).T / (p + q)[:, None] if model.start is None else np.tile(model.start, (len(theta), 1))
    return phi, transition, start


def log_prior(model, theta):
    """From SciPy's densities, with the Jacobians of logarithms and log ratios."""
    phi, transition, _ = natural(model, theta)
    if model.name == "Poisson":
        a, b = model.priors.emission[0]
        total = (gamma(a, scale=1 / b).logpdf(phi[:, :, 0]) + np.log(phi[:, :, 0])).sum(1)
    else:
        (m, v), (a, b) = model.priors.emission
        total = norm(m, math.sqrt(v)).logpdf(phi[:, :, 0]).sum(1)
        total += (invgamma(a, scale=b).logpdf(phi[:, :, 1]) + np.log(phi[:, :, 1])).sum(1)
    c = model.priors.transition.concentration
    return total + (beta(c, c).logpdf(transition[:, :, 0]) + np.log(transition).sum(2)).sum(1)


def log_likelihood(model, y, theta):
    phi, transition, start = natural(model, theta)
    if model.name == "Poisson":
        logp = scipy.stats.poisson.logpmf(np.nan_to_num(y)[:, None], phi[:, None, :, 0])
    else:
        logp = norm.logpdf(y[:, None], phi[:, None, :, 0], np.sqrt(phi[:, None, :, 1]))
    return oracle.log_likelihoods(np.where(np.isnan(y)[:, None], 0.0, logp), transition, start, LENGTHS)


def ordered(model, theta):
    """The same points with the states named so that the first parameter of state 0 is the smaller one."""
    swapped = theta.reshape(len(theta), -1, 2)[:, :, ::-1].reshape(theta.shape)
    return np.where(theta[:, :1] <= theta[:, 1:2], theta, swapped), swapped


def weighted_points(rng, model, series, y, truth, n=30_000):
    """Points (n, d) of the posterior with ordered states, and weights: t around a mode, and the prior for its tails."""
    mode = model.pack(rh.climb(model, series, truth).parameters)
    h = 1e-4 * np.eye(len(mode))
    curvature = -np.array(
        [
            (rh.log_posterior(model, mode + e, series)[1] - rh.log_posterior(model, mode - e, series)[1]) / 2e-4
            for e in h
        ]
    )
    near = multivariate_t(mode, 1.5 * np.linalg.inv((curvature + curvature.T) / 2), df=5)
    theta = near.rvs(n, random_state=rng)
    theta[: n // 5] = prior_points(rng, model, n // 5)
    theta, _ = ordered(model, theta)
    swapped = theta.reshape(n, -1, 2)[:, :, ::-1].reshape(theta.shape)
    prior = log_prior(model, theta)
    proposal = np.logaddexp.reduce([
        np.log(0.8) + near.logpdf(theta), np.log(0.8) + near.logpdf(swapped), np.log(0.4) + prior
    ])  # fmt: skip
    target = prior + log_likelihood(model, y, theta)
    np.testing.assert_allclose(target[:3], [rh.log_posterior(model, t, series)[0] for t in theta[:3]], rtol=1e-10)
    weight = np.exp(target - proposal - (target - proposal).max())
    return theta, weight / weight.sum()


def prior_points(rng, model, n):
    """theta (n, d) from the prior of a model with two states and log ratios."""
    if model.name == "Poisson":
        a, b = model.priors.emission[0]
        emission = np.log(rng.gamma(a, 1 / b, (n, 2)))
    else:
        (m, v), (a, b) = model.priors.emission
        emission = np.hstack([rng.normal(m, math.sqrt(v), (n, 2)), np.log(b / rng.gamma(a, size=(n, 2)))])
    p = rng.beta(*[model.priors.transition.concentration] * 2, (n, 2))
    return np.hstack([emission, np.log(p / (1 - p))])


def posterior_errors(make, steps):
    """Standard errors off of the means and variances of theta, states ordered."""
    model, truth = make()
    rng = np.random.default_rng(6)
    y = data_of(rng, model, truth)
    series = rh.Series(y, lengths=LENGTHS)
    theta, weight = weighted_points(rng, model, series, y, truth)
    assert 1 / (weight**2).sum() > 3000  # effective points
    mean = weight @ theta
    draws, _ = ordered(model, gibbs_module.gibbs(rng, model, series, truth, steps))
    both = [np.hstack([x, (x - mean) ** 2]) for x in (theta, draws)]
    expected = weight @ both[0]
    error = np.sqrt(weight**2 @ (both[0] - expected) ** 2)
    return standard_errors_off(both[1], expected, error)


@pytest.mark.parametrize("make", [gaussian_case, poisson_case])
def test_means_and_variances_are_those_of_the_posterior(make):
    assert np.abs(posterior_errors(make, 2000)).max() < SURE


def test_that_test_would_notice_statistics_of_missing_observations(monkeypatch):
    """A missing observation counted as one at the mean of its state."""
    count = gibbs_module.state_statistics

    def careless(rng, model, phi, series, path):
        _, sums = count(rng, model, phi, series, path)
        return np.bincount(path, minlength=2).astype(float), sums

    monkeypatch.setattr(gibbs_module, "state_statistics", careless)
    assert np.abs(posterior_errors(gaussian_case, 1000)).max() > SURE


# ---------------------------------------------------------------- every posterior at once: prior in, prior out
def drift(family, coordinates, replicates=500, sweeps=3):
    """Parameters from the prior, data from them, a few sweeps: standard errors by which expectations have changed.

    Of theta, its square, its product with the mean of the data, and the log likelihood, over independent replicates
    (Geweke 2004).
    """
    rng, K, lengths = np.random.default_rng(7), 3, (3, 1, 1, 2, 1, 1)
    priors = {"Gaussian": (rh.Normal(1.0, 9.0), rh.InverseGamma(3.0, 2.0)), "Poisson": (rh.Gamma(1.0, 0.1),)}
    model = rh.Model(family, K, rh.Priors(priors[type(family).__name__], rh.Dirichlet(0.8)), coordinates=coordinates)
    changes = []
    while len(changes) < replicates:
        if model.name == "Poisson":
            phi = rng.gamma(1.0, 10.0, (K, 1))
        else:
            phi = np.column_stack([rng.normal(1.0, 3.0, K), 2.0 / rng.gamma(3.0, size=K)])
        expanded = rng.gamma(0.8, size=(K, K))
        start = model.natural(phi, expanded / expanded.sum(1, keepdims=True))
        before = model.pack(start)
        if isinstance(coordinates, rh.ExpandedMean):
            before[-K * K :] = expanded.ravel()
        y = np.concatenate([rh.simulate(rng, model, start, n)[0] for n in lengths])
        y[1] = np.nan
        if len(set(y)) < 3:
            continue  # nothing to learn from; a choice of data leaves the identity as it is
        series = rh.Series(y, lengths=lengths)
        after = gibbs_module.gibbs(rng, model, series, start, sweeps)[-1]
        change = after - before
        gain = rh.log_likelihood(model, model.unpack(after), series) - rh.log_likelihood(model, start, series)
        changes.append([*change, *(after**2 - before**2), *(change * np.nanmean(y)), gain])
    changes = np.array(changes)
    return changes.mean(0) / (changes.std(0) / math.sqrt(replicates))


@pytest.mark.parametrize(
    ("family", "coordinates"),
    [(rh.Gaussian(), rh.AdditiveLogRatio()), (rh.Poisson(), rh.ExpandedMean())],
    ids=["Gaussian, log ratios", "Poisson, expanded means"],
)
def test_sweeps_from_the_prior_change_no_expectation(family, coordinates):
    assert np.abs(drift(family, coordinates)).max() < SURE


def test_that_test_would_notice_if_every_transition_matrix_were_accepted_too(monkeypatch):
    monkeypatch.setattr(gibbs_module, "accepts", lambda *_: True)
    assert np.abs(drift(rh.Gaussian(), rh.AdditiveLogRatio())).max() > SURE


# ---------------------------------------------------------------- Langevin dynamics
def test_langevin_keeps_the_law_of_a_nearly_gaussian_posterior():
    """One rate with 400 events: log rate has the law of log Gamma, of variance 1/400; plus what the step size adds."""
    model = rh.Model(rh.Poisson(), 1, rh.Priors((rh.Gamma(4.0, 1.0),)))
    y = np.tile([3.0, 4.0, 5.0], 33)
    theta = scipy.stats.loggamma(400, loc=-math.log(100))
    start, h = model.parameters([[1.0]], rate=4.0), 3e-3
    draws = langevin_module.langevin(np.random.default_rng(9), Sgld(h), model, rh.Series(y), start, 2000)[:, 0]
    squares, wider = (draws - theta.mean()) ** 2, 1 / (1 - h * 400 / 4)
    assert abs(standard_errors_off(draws, theta.mean())) < SURE
    assert abs(standard_errors_off(squares, wider * theta.var())) < SURE
    assert abs(standard_errors_off(squares, theta.var())) > SURE
