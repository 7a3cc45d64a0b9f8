"""Priors, coordinates, the stationary law and theta."""

import numpy as np
import pytest
import scipy.stats
from small_models import FAMILIES, SINGLE, model_of, parameters_of

import rarehmm as rh
from rarehmm.model.stationary import from_paper, stationary_slope

PRIORS = [
    (rh.Normal(1.5, 4.0), scipy.stats.norm(1.5, 2.0)),
    (rh.InverseGamma(3.0, 10.0), scipy.stats.invgamma(3.0, scale=10.0)),
    (rh.Gamma(2.5, 0.5), scipy.stats.gamma(2.5, scale=2.0)),
]
COORDINATES = [rh.AdditiveLogRatio(), rh.AdditiveLogRatio((2, 2, 0)), rh.ExpandedMean()]


@pytest.mark.parametrize(("prior", "distribution"), PRIORS, ids=lambda v: type(v).__name__)
def test_priors_are_the_densities_they_say(prior, distribution):
    x, h = np.array([0.3, 1.0, 4.2]), 1e-6
    np.testing.assert_allclose(prior.log_density(x), distribution.logpdf(x), rtol=1e-12)
    slope = (prior.log_density(x + h) - prior.log_density(x - h)) / (2 * h)
    np.testing.assert_allclose(prior.slope(x), slope, rtol=1e-7)


def test_dirichlet():
    rows = np.array([[0.2, 0.3, 0.5], [0.9, 0.05, 0.05]])
    distribution = scipy.stats.dirichlet([1.7] * 3)
    np.testing.assert_allclose(rh.Dirichlet(1.7).log_density(rows), [distribution.logpdf(r) for r in rows], rtol=1e-12)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_pack_and_unpack_are_inverse_and_names_fit(family, coordinates):
    rng = np.random.default_rng(0)
    model = model_of(family, 3, coordinates=coordinates)
    parameters = parameters_of(rng, model)
    theta = model.pack(parameters)
    assert theta.shape == (model.size,) == (len(model.component_names),)
    for a, b in zip(model.unpack(theta), parameters, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_names():
    model = model_of(rh.Gaussian(), 2)
    assert model.component_names == [
        "mean[0]", "mean[1]", "log variance[0]", "log variance[1]",
        "log transition[0, 1] / transition[0, 0]", "log transition[1, 0] / transition[1, 1]",
    ]  # fmt: skip


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_log_prior_gradient_is_its_slope(family, coordinates):
    rng = np.random.default_rng(1)
    model = model_of(family, 3, coordinates=coordinates)
    model = rh.Model(family, 3, model.priors._replace(transition=rh.Dirichlet(1.3)), coordinates=coordinates)
    theta, h = model.pack(parameters_of(rng, model)), 1e-6
    steps = h * np.eye(model.size)
    slope = [(model.log_prior(theta + s) - model.log_prior(theta - s)) / (2 * h) for s in steps]
    np.testing.assert_allclose(model.log_prior_gradient(theta), slope, rtol=1e-6, atol=1e-6)


def test_jacobians_make_the_prior_a_density_of_theta():
    """One state: theta = (mean, log variance) must integrate to one."""
    model = model_of(rh.Gaussian(), 1)
    mean, e = np.linspace(-80, 80, 81), np.linspace(-3, 9, 241)
    density = np.exp([[model.log_prior(np.array([m, v])) for v in e] for m in mean])
    assert np.trapezoid(np.trapezoid(density, e), mean) == pytest.approx(1.0, abs=1e-6)


def test_log_ratios_of_a_flat_dirichlet_integrate_to_one():
    """Two states: each row has one log ratio, and under a flat Dirichlet it is a standard logistic variable."""
    model = model_of(rh.Gaussian(), 2)
    rest = model.log_prior(np.zeros(6)) - 2 * np.log(0.25)
    for x in (-3.0, 0.7, 5.0):
        theta = np.array([0, 0, 0, 0, x, 0.0])
        assert model.log_prior(theta) - rest - np.log(0.25) == pytest.approx(scipy.stats.logistic.logpdf(x), abs=1e-12)


def test_expanded_mean_is_gamma_and_dirichlet():
    prior, rng = rh.Dirichlet(2.0), np.random.default_rng(0)
    x = rng.gamma(2.0, size=9)
    assert rh.ExpandedMean().log_prior(x, 3, prior) == pytest.approx(scipy.stats.gamma(2.0).logpdf(x).sum())


# ---------------------------------------------------------------- the stationary law
def test_stationary_law_is_a_fixed_point():
    rng = np.random.default_rng(0)
    for K in (1, 2, 5, 16):
        P = rng.dirichlet(np.full(K, 0.3), size=K)
        distribution = rh.stationary(P)
        np.testing.assert_allclose(distribution @ P, distribution, atol=1e-15)
        assert distribution.sum() == pytest.approx(1.0, abs=1e-15)


def test_rare_states_are_accurate_to_the_last_digits():
    """Two states: pi_1 / pi_0 = P01 / P10 exactly, however small."""
    distribution = rh.stationary(np.array([[1 - 1e-13, 1e-13], [0.25, 0.75]]))
    assert distribution[1] / distribution[0] == pytest.approx(4e-13, rel=1e-14)


def test_closed_classes():
    np.testing.assert_allclose(rh.stationary(np.eye(3)), np.full(3, 1 / 3), atol=1e-12)
    absorbing = np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1.0]])
    np.testing.assert_allclose(rh.stationary(absorbing), [0, 0, 1], atol=1e-12)
    np.testing.assert_array_equal(rh.stationary(np.array([[1 - 1e-17, 1e-17], [0, 1]])), [0, 1])
    two = np.array([[0.5, 0.5, 0, 0], [0.1, 0.9, 0, 0], [0, 0, 1, 0], [0.2, 0, 0.2, 0.6]])
    np.testing.assert_allclose(rh.stationary(two), [1 / 12, 5 / 12, 1 / 2, 0], atol=1e-15)
    assert not stationary_slope(two, np.ones(4)).any()


@pytest.mark.parametrize("d", [1e-5, 1e-12, 1e-17, 1e-100])
def test_stationary_pull_of_sticky_chains(d):
    """Two states: pi_1 = a / (a + b); only log a and log b matter, with slopes 1 - a and 1 - b in their logits."""
    a, b = d, 3 * d
    found = stationary_slope(np.array([[1 - a, a], [b, 1 - b]]), np.array([2.0, 5.0]))
    slope = 5 * 0.75 - 2 * 0.25  # of 2 log pi_0 + 5 log pi_1 in log a, where pi = (3/4, 1/4)
    np.testing.assert_allclose(found, slope * np.array([[a - 1, 1 - a], [b - 1, 1 - b]]), rtol=1e-12)


def test_stationary_pull_is_the_slope_in_logits():
    rng = np.random.default_rng(3)
    P, first, h = rng.dirichlet(np.ones(4), size=4), rng.random(4), 1e-6
    logits = np.log(P)

    def value(z):
        rows = np.exp(z)
        return first @ np.log(rh.stationary(rows / rows.sum(1, keepdims=True)))

    slope = np.empty((4, 4))
    for j, k in np.ndindex(4, 4):
        step = np.zeros((4, 4))
        step[j, k] = h
        slope[j, k] = (value(logits + step) - value(logits - step)) / (2 * h)
    np.testing.assert_allclose(stationary_slope(P, first), slope, atol=1e-8)


def test_the_papers_matrix_is_the_transpose():
    A = SINGLE.T  # the paper's columns sum to one
    np.testing.assert_array_equal(from_paper(A), SINGLE)
    with pytest.raises(ValueError, match="Its columns do"):
        model_of(rh.Gaussian(), 3).parameters(A, mean=0, variance=1)


# ---------------------------------------------------------------- scale
def test_default_priors_move_with_the_units():
    """The log posterior of a series in volts and of the same one in nanovolts differ by a constant only."""
    rng = np.random.default_rng(0)
    y, scale, shift = rng.normal(3.0, 2.0, 200), 1e9, 5.0
    differences = []
    for mean in ([2.0, 4.0], [1.0, 7.0]):
        values = []
        for unit, zero in ((1.0, 0.0), (scale, shift)):
            series = rh.Series(y * unit + zero)
            model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
            parameters = model.parameters([[0.9, 0.1], [0.2, 0.8]], mean=np.array(mean) * unit + zero,
                                          variance=np.array([1.0, 2.0]) * unit**2)  # fmt: skip
            values.append(rh.log_posterior(model, model.pack(parameters), series)[0])
        differences.append(values[1] - values[0])
    assert differences[0] == pytest.approx(differences[1], rel=1e-9)


def test_default_priors_of_counts_and_the_papers_priors():
    counts = rh.Series([0, 1, 0, 7, np.nan, 2])
    assert rh.default_priors(rh.Poisson(), 2, counts).emission == (rh.Gamma(1.0, 0.5),)
    assert rh.paper_priors(rh.Gaussian()).emission == (rh.Normal(0, 100), rh.InverseGamma(3, 10))


def test_reference_follows_the_largest_entry():
    model = model_of(rh.Gaussian(), 3).with_reference(SINGLE)
    assert model.coordinates == rh.AdditiveLogRatio((0, 1, 0))


@pytest.mark.parametrize("e", [1e-8, 1e-14, 1e-20, 1e-60])
def test_the_pull_of_the_start_is_bounded_where_groups_of_states_hardly_meet(e):
    P = np.array([[0.7, 0.3, e, e], [0.2, 0.8, e, e], [e, e, 0.5, 0.5], [3 * e, e, 0.4, 0.6]])
    P /= P.sum(1, keepdims=True)
    assert np.abs(stationary_slope(P, np.array([1.0, 0, 0, 0]))).max() <= 2


def test_laws_of_several_matrices_of_which_one_has_zeros():
    P = np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.0, 1.0], [0.5, 0.5]]])
    np.testing.assert_allclose(rh.stationary(P), [[0.75, 0.25], [1 / 3, 2 / 3]])


def test_expanded_means_are_positive():
    with pytest.raises(ValueError, match=r"expanded\[1, 0\] is -2.0; expanded means must be positive"):
        rh.ExpandedMean().unpack(np.array([1.0, 1.0, -2.0, 1.0]), 2)
