"""Importance sampling against integrals on a grid and against Gibbs sampling."""

import types

import numpy as np
import pytest
from scipy.stats import invgamma, norm
from small_models import FAMILIES, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.sampling import importance
from rarehmm.sampling.importance import (
    Roots,
    Weighted,
    adaptive_importance,
    affordable_points,
    laplace_importance,
    powers,
)
from rarehmm.sampling.proposals import (
    Proposal,
    around_heaviest,
    effective,
    fitted,
    with_best_shares,
)
from rarehmm.search.mode import find_mode


def one_state():
    """K = 1, Gaussian: two parameters, so that everything can be integrated.  Mode, series, log evidence, moments."""
    model = model_of(rh.Gaussian(), 1)
    series = rh.Series(np.array([0.3, -1.2, 2.5, 0.9, 1.1, -0.4]))
    mode = find_mode(model, series, model.parameters([[1.0]], mean=0.5, variance=1.0))
    mu, e = np.meshgrid(np.linspace(-8, 9, 1001), np.linspace(-3, 7, 1001), indexing="ij")
    y = series.read(0, 6)[:, 0]
    logs = norm.logpdf(y[:, None, None], mu, np.exp(e / 2)).sum(0) + norm.logpdf(mu, 0, 10)
    logs += invgamma.logpdf(np.exp(e), 3, scale=10) + e
    mass = np.exp(logs)
    mean = (mass * e).sum() / mass.sum()
    return mode, series, np.log(mass.sum() * 0.017 * 0.01), mean, (mass * (e - mean) ** 2).sum() / mass.sum()


@pytest.mark.jit
def test_evidence_and_moments_are_those_of_a_grid():
    mode, series, evidence, mean, variance = one_state()
    roots = Roots(mode, series)
    for found in (laplace_importance(np.random.default_rng(0), roots, (4000,)),
                  adaptive_importance(np.random.default_rng(1), roots, 2000.0)):  # fmt: skip
        error = 1 / np.sqrt(found.effective)
        assert abs(found.evidence - evidence) < 4 * error
        e = found.theta[:, 1]
        assert abs(found.weights @ e - mean) < 5 * np.sqrt(variance) * error
        assert abs(found.weights @ (e - mean) ** 2 - variance) < 8 * variance * error
    wrong = found._replace(log_weights=found.log_weights + 0.3 * found.theta[:, 1])  # and weights that are off show
    assert abs(wrong.weights @ wrong.theta[:, 1] - mean) > 5 * np.sqrt(variance) / np.sqrt(wrong.effective)


@pytest.mark.jit
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_roots_are_a_change_of_coordinates(family):
    rng = np.random.default_rng(4)
    model = model_of(family, 2)
    parameters = parameters_of(rng, model, gap=3.0)
    series = rh.Series(series_of(rng, model, parameters, 300, missing=0.1))
    mode = find_mode(model, series, parameters)
    roots = Roots(mode, series)
    phi = roots.centre * 1.03
    theta = roots.theta(phi)
    np.testing.assert_allclose(roots.theta(roots.roots(theta)), theta, rtol=1e-12)
    np.testing.assert_allclose(roots.centre + roots.whiten(theta[None]) @ roots.factor.T, phi[None], rtol=1e-12)
    jacobian = [
        np.log(abs((roots.theta(phi * (1 + 1e-6 * (np.arange(len(phi)) == i))) - theta)[i] / (1e-6 * phi[i])))
        for i in range(len(phi))
    ]
    expected = rh.log_posterior(mode.model, theta, series)[0] + np.sum(jacobian)
    assert roots.log_density(phi[None])[0] == pytest.approx(expected, abs=1e-4)
    for i in range(len(phi)):
        move = np.zeros(len(phi))
        move[i] = 1e-5
        slope = -np.diff(roots.log_density(phi + np.array([move, -move])))[0] / 2e-5
        assert roots.slope(phi)[i] == pytest.approx(slope, rel=1e-4, abs=1e-4)
    assert roots.log_density(np.where(roots.rooted, -phi, phi)[None])[0] == -np.inf
    assert np.abs(roots.factor.T @ roots.slope(roots.centre)).max() < 0.05


def test_which_coordinates_are_rooted():
    gaussian = model_of(rh.Gaussian(), 2)
    np.testing.assert_array_equal(powers(gaussian), [0, 0, -1, -1, 1, 1])
    np.testing.assert_array_equal(powers(model_of(rh.Poisson(), 2)), [1, 1, 1, 1])
    thin = rh.Model(rh.Gaussian(), 2, rh.Priors((rh.Normal(0, 1), rh.Flat()), rh.Dirichlet(0.2)))
    np.testing.assert_array_equal(powers(thin), 0)


@pytest.mark.jit
def test_it_agrees_with_gibbs_sampling_where_the_posterior_is_skewed():
    model = model_of(rh.Poisson(), 2)
    truth = model.parameters([[0.95, 0.05], [0.4, 0.6]], rate=[1.0, 6.0])
    series = rh.Series(rh.simulate(np.random.default_rng(2), model, truth, 150)[0])
    mode = find_mode(model, series, truth)
    found = adaptive_importance(np.random.default_rng(0), Roots(mode, series), 3000.0)
    draws = rh.gibbs(np.random.default_rng(1), mode.model, series, mode.model.unpack(mode.theta), 8000)[200:]
    batches = draws[: len(draws) // 30 * 30].reshape(30, -1, 4)
    mean, spread = draws.mean(0), draws.std(0)
    error = np.hypot(batches.mean(1).std(0) / np.sqrt(30), spread / np.sqrt(found.effective))
    assert (np.abs(found.weights @ found.theta - mean) < 4 * error).all()
    second = found.weights @ (found.theta - mean) ** 2
    errors = np.hypot(((batches - mean) ** 2).mean(1).std(0) / np.sqrt(30), spread**2 * np.sqrt(3 / found.effective))
    assert (np.abs(second - spread**2) < 4 * errors).all()


def test_a_mixture_is_fitted_to_two_clusters():
    """Its density is that of both, and importance sampling from it is efficient; one component would not be."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1200, 3)) * 0.5 + np.where(np.arange(1200) % 3 == 0, 6.0, -6.0)[:, None]
    found = fitted(rng, x)
    assert len(found.shares) >= 4
    assert sum(found.shares) == pytest.approx(1)
    near = found.draw(rng, 4000)

    def log_density(y):
        logs = [np.log(w) + norm.logpdf(y, c, 0.5).sum(1) for w, c in ((1 / 3, 6.0), (2 / 3, -6.0))]
        return np.logaddexp(*logs)

    assert effective(log_density(near) - found.log_density(near)) > 0.5 * len(near)
    one = Proposal(np.ones(1), x.mean(0)[None], np.linalg.cholesky(np.cov(x.T))[None])
    far = one.draw(rng, 4000)
    assert effective(log_density(far) - one.log_density(far)) < 0.2 * len(far)


class Density:
    """A density in place of a posterior, in coordinates that are whitened already."""

    def __init__(self, log_density, d):
        self.log_density, self.centre, self.factor = log_density, np.zeros(d), np.eye(d)
        self.series, self.model = range(1000), types.SimpleNamespace(n_states=2)

    def theta(self, phi):
        return phi


def funnel(x):
    """Log of a normalised density (n,): a Gaussian, and beside it a funnel that no covariance describes."""
    neck = norm.logpdf(x[:, 0], 3, 1) + norm.logpdf(x[:, 1:], 4.0, np.exp(-x[:, :1] / 2)).sum(1)
    return np.logaddexp(np.log(0.6) + norm.logpdf(x).sum(1), np.log(0.4) + neck)


def draws_of_funnel(rng, n):
    """Draws (n, 3) of the funnel alone."""
    first = rng.normal(3, 1, n)
    return np.column_stack([first, rng.normal(4.0, np.exp(-first / 2)[:, None], (n, 2))])


class Known(Density):
    def whiten(self, theta):
        return theta


@pytest.mark.parametrize("seed", [0, 1, 6])
def test_points_of_large_weight_lead_to_the_shape_of_a_funnel(seed):
    """Ten draws in 400 show that there is one, not its shape nor its share; the evidence shows what is missing.

    Without components around points of large weight, all of the funnel is lost with seed 6.
    """
    rng = np.random.default_rng(seed)
    explored = np.vstack([rng.standard_normal((390, 3)), draws_of_funnel(rng, 10)])
    found = adaptive_importance(rng, Known(funnel, 3), 1000.0, explored=explored)
    assert found.effective > 1000
    error = np.sqrt(1 / found.effective)
    assert abs(found.evidence) < 4 * error
    there = norm.logpdf(found.theta).sum(1) < funnel(found.theta) + np.log(0.5)  # more than half by the funnel
    exact = 0.4 * np.mean(norm.logpdf(x := draws_of_funnel(rng, 20_000)).sum(1) < funnel(x) + np.log(0.5))
    assert abs(found.weights @ there - exact) < 4 * 0.5 * error + 0.001
    first = fitted(rng, explored)
    points = first.draw(rng, found.n_drawn)  # as many points without what is learnt from weights
    assert effective(funnel(points) - first.log_density(points)) < 0.5 * found.effective


def test_no_more_points_are_drawn_than_can_be_afforded(monkeypatch):
    """Where no round is ever good enough; many states, or a long series, leave fewer points."""
    monkeypatch.setattr(importance, "FRESH", np.inf)
    density = Known(funnel, 3)
    assert affordable_points(density, 100.0) == 4000
    found = adaptive_importance(np.random.default_rng(0), density, 100.0)
    assert 4000 <= found.n_drawn < 4800
    density.series, density.model.n_states = range(10**6), 6
    assert affordable_points(density, 100.0) == int(1e10 / (4e6 + 300 * 3**2))
    assert affordable_points(density, 1000.0) == 6000


def test_components_have_the_shape_of_what_is_around_heavy_points():
    rng = np.random.default_rng(0)
    x = np.vstack([rng.standard_normal((3000, 2)), [8.0, 8.0] + [0.01, 1.0] * rng.standard_normal((300, 2))])
    logs = np.where(np.arange(3300) < 3000, 0.0, 3.0)
    found = around_heaviest(rng, x, logs)
    assert found.shares.sum() == pytest.approx(1)
    far = found.means[:, 0] > 7
    assert far.any()
    assert (np.abs(found.factors[far][:, 0, 0]) < 0.1).any()  # as narrow as the strip, not as the whole


def test_shares_are_those_most_likely_and_useless_components_go():
    rng = np.random.default_rng(1)
    three = Proposal(np.full(3, 1 / 3), np.array([[0.0], [10.0], [50.0]]), np.ones((3, 1, 1)))
    x = np.where(rng.random((4000, 1)) < 0.8, 0.0, 10.0) + rng.standard_t(4, (4000, 1))
    found = with_best_shares(three, x)
    np.testing.assert_allclose(found.shares, [0.8, 0.2], atol=0.02)
    assert len(found.means) == 2


@pytest.mark.parametrize(("sd", "expected"), [(1.05, True), (1.6, False)])
def test_the_share_of_the_laplace_approximation_is_settled_by_more_points(sd, expected):
    """Weights of a Gaussian that is wider than its proposal: exact shares .98 and .47 in ten dimensions and two."""

    class Wider:
        centre, factor = np.zeros(2 if sd > 1.3 else 10), np.eye(2 if sd > 1.3 else 10)

        def theta(self, phi):
            return phi

        def log_density(self, phi):
            return norm.logpdf(phi, 0, sd).sum(1)

    shares = [laplace_importance(np.random.default_rng(seed), Wider()) for seed in range(20)]
    assert all((found.share > 0.8) == expected for found in shares)
    assert np.mean([found.n_drawn for found in shares]) < 1500


def test_resampling_keeps_proportions():
    weighted = Weighted(np.arange(4.0)[:, None], np.log([0.1, 0.2, 0.3, 0.4]), 4, 1.0)
    draws = weighted.resample(np.random.default_rng(0), 1000)[:, 0]
    np.testing.assert_allclose(np.bincount(draws.astype(int)), [100, 200, 300, 400], atol=1)
    assert effective(np.zeros(7)) == pytest.approx(7)
    assert effective(np.array([0.0, -np.inf])) == pytest.approx(1)
