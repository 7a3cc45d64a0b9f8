"""Each family of the folder on a series with a rare state: gradients, finding, names, and samplers that agree."""

import pickle
import time

import numpy as np
import pytest
from scipy import special
from scipy.stats import nbinom
from small_models import off_gibbs

import rarehmm as rh
from rarehmm.conformance.emission import Case, default_phi, inputs_of_each_row
from rarehmm.data.domains import POSITIVE, REALS
from rarehmm.emissions import families
from rarehmm.emissions._sized import Sized
from rarehmm.emissions.free_negative_binomial import log_less_digamma, stirling_rest
from rarehmm.emissions.free_student_t import half_step
from rarehmm.emissions.gaussian_mixture import best_steps
from rarehmm.emissions.von_mises import bessel, moments
from rarehmm.engine.contracts.family import (
    add_statistics,
    complete_score,
    log_density,
    move_parameters,
    prepare,
    score,
    statistics,
    summed_score,
    with_predictor,
)
from rarehmm.engine.special import log_minus_digamma
from rarehmm.search.labels import from_labels
from rarehmm.windows.gradients import window_gradients
from rarehmm.windows.windows import Windows

TRANSITION = [[0.995, 0.005], [0.1, 0.9]]  # the second state holds one observation in 21
CASES = {
    "exponential": {"mean": [1.0, 15.0]},
    "log_normal": {"mean_log": [0.0, 2.5], "variance_log": [0.5, 0.3]},
    "gamma": {"mean": [1.0, 6.0], "shape": [2.0, 4.0]},
    "bernoulli": {"log_odds": [-3.0, 2.0]},
    "categorical": {"log_odds_1": [-1.0, 0.5], "log_odds_2": [-3.0, 2.0]},
    "zero_inflated_poisson": {"rate": [2.0, 15.0], "zero_log_odds": [-0.5, -1.5]},
    "free_student_t": {"mean": [0.0, 6.0], "scale2": [1.0, 2.0], "nu": [4.0, 8.0]},
    "free_negative_binomial": {"mean": [3.0, 40.0], "size": [2.0, 6.0]},
    "gaussian_mixture": {
        "mean": [-1.0, 6.0],
        "gap_1": [3.0, 4.0],
        "variance_0": [0.5, 1.0],
        "variance_1": [1.0, 0.5],
        "log_odds_1": [-1.0, 0.5],
    },
    "von_mises": {"cosine": [-2.0, 0.5], "sine": [0.5, 8.0]},
}
COMPILED = {"poisson"}


def each_of(names):
    """Families one by one: those that differ most with the compiler by day, all the others at night."""
    night = pytest.mark.nightly
    return pytest.mark.parametrize("name", [n if n in COMPILED else pytest.param(n, marks=night) for n in names])


each = pytest.mark.parametrize("name", CASES)
SIMPLE = {  # tested elsewhere, but for their draws
    "gaussian": {"mean": [0.0, 5.0], "variance": [1.0, 2.0]},
    "student_t": {"mean": [0.0, 6.0], "scale2": [1.0, 2.0]},
    "poisson": {"rate": [2.0, 12.0]},
    "negative_binomial": {"mean": [2.0, 30.0]},
}
UNITS = {"mean": 1, "gap_1": 1, "scale2": 2, "variance": 2, "variance_0": 2, "variance_1": 2}  # their powers


def simulated(name, T):
    """Model with default priors, true parameters, series and states."""
    family = families()[name]()
    free = rh.Model(family, 2, rh.no_priors(family))
    truth = free.parameters(TRANSITION, **(CASES | SIMPLE)[name])
    y, states = rh.simulate(np.random.default_rng(1), free, truth, T)
    series = rh.Series(y)
    return rh.Model(family, 2, rh.default_priors(family, 2, series)), truth, series, states


@pytest.mark.plain
@each
def test_windows_with_a_buffer_of_everything_add_up_to_the_gradient(name):
    model, truth, series, _ = simulated(name, 150)
    theta = model.pack(truth)
    total = window_gradients(model, theta, series, Windows(series, 2, 150)).sum(0)
    exact = rh.log_posterior(model, theta, series)[1] - model.log_prior_gradient(theta)
    np.testing.assert_allclose(total, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.plain
@pytest.mark.parametrize("units", [1e-6, 1e6])
@pytest.mark.parametrize("name", [n for n in CASES | SIMPLE if families()[n]().domain in (POSITIVE, REALS)])
def test_default_priors_know_no_units(name, units):
    """In other units, the same point has the same gradient."""
    model, truth, series, _ = simulated(name, 150)
    scaled = rh.Series(units * series.read(0, len(series)))
    other = rh.Model(model.family, 2, rh.default_priors(model.family, 2, scaled))
    names = [p.name for p in model.family.parameters]
    scale = float(units) ** np.array([UNITS.get(n, 0) for n in names])
    shift = np.array([np.log(units) * (n == "mean_log") for n in names])
    points = (model, truth.phi, series), (other, truth.phi * scale + shift, scaled)
    slopes = [rh.log_posterior(m, m.pack(m.natural(p, TRANSITION)), s)[1] for m, p, s in points]
    slopes[1][: 2 * len(names)] *= np.repeat(np.where(model.as_logs, 1.0, scale), 2)
    np.testing.assert_allclose(*slopes, rtol=1e-6, atol=1e-6)
    labels = (series.read(0, len(series))[:, 0] > 3).astype(int)
    starts = [from_labels(m, s, labels) for m, _, s in points]
    np.testing.assert_allclose(starts[0].phi * scale + shift, starts[1].phi, rtol=1e-6)


@pytest.mark.parametrize("x", [1e-9, 0.3, 7.9, 8.1, 49.9, 50.1, 1e3, 1e8])
def test_special_functions_are_those_of_scipy(x):
    assert log_minus_digamma(x) == pytest.approx(float(np.log(x) - special.digamma(x)), rel=1e-12, abs=1e-16 * x)
    size, ratio = bessel(x)
    assert size == pytest.approx(float(np.log(special.i0e(x)) + x), rel=1e-13, abs=1e-15)
    assert ratio == pytest.approx(float(special.i1e(x) / special.i0e(x) / x), rel=1e-13)


@pytest.mark.parametrize("r", [1e-6, 0.01, 0.9, 1.5, 7.99, 8.0, 30.0, 60.0, 1e3, 1e6])
def test_gamma_functions_of_counts_are_those_of_scipy(r):
    x = r + np.array([0, 1, 2, 3, 6, 7, 8, 9, 30, 1e3, 1e6, 1e9])
    log_gamma = (x - 0.5) * np.log(x) - x + stirling_rest(x)
    np.testing.assert_allclose(log_gamma, special.gammaln(x), rtol=1e-12, atol=2e-14)
    np.testing.assert_allclose(np.log(x) - log_less_digamma(x), special.digamma(x), rtol=1e-12)
    assert half_step(r) == pytest.approx(float(np.log(special.poch(r, 0.5))), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("mean", "r"), [(2.0, 0.5), (1e3, 10.0), (1e9, 1e6)])
def test_the_density_of_large_counts_keeps_its_digits(mean, r):
    """Of a billion, nine are left where terms of 2e10 cancel."""
    family, sd = rh.FreeNegativeBinomial(), np.sqrt(mean + mean**2 / r)
    y = np.round(mean + sd * np.array([-0.5, 0.0, 1.0, 4.0]))
    found = log_density(family, y, prepare(family, np.array([mean, r]))) + family.constant(y)
    np.testing.assert_allclose(found, nbinom.logpmf(y, r, r / (r + mean)), rtol=1e-12, atol=1e-14 * mean)


@pytest.mark.parametrize("kappa", [0.0, 0.3, 30.0, 3000.0])
def test_moments_of_directions_are_the_slopes_of_the_normaliser(kappa):
    phi, h = kappa * np.array([[0.6, 0.8]]), 1e-4
    mean, covariance = moments(phi)
    steps = h * np.eye(2)
    sizes = np.array([[bessel(float(np.hypot(*(phi[0] + s * e))))[0] for s in (1, -1)] for e in steps])
    np.testing.assert_allclose(mean[0], (sizes[:, 0] - sizes[:, 1]) / (2 * h), rtol=1e-6, atol=1e-7)
    slopes = np.array([(moments(phi + e)[0] - moments(phi - e)[0])[0] / (2 * h) for e in steps])
    np.testing.assert_allclose(covariance[0], slopes, rtol=1e-5, atol=1e-8)


@pytest.mark.jit
def test_there_may_be_more_states_than_categories():
    rng = np.random.default_rng(5)
    states = np.repeat([0, 1, 0, 2, 1, 0, 1, 0], [900, 700, 800, 60, 600, 900, 800, 700])
    y = (rng.random(len(states)) < np.array([0.05, 0.4, 0.95])[states]).astype(float)
    hmm = rh.RareHMM(3, emission="bernoulli", method="map", verbose=0).fit(y)
    share = 1 / (1 + np.exp(-hmm.means_[:, 0]))
    np.testing.assert_allclose(share, [0.05, 0.4, 0.95], atol=0.07)
    assert np.mean(hmm.predict(y) == states) > 0.95


@pytest.mark.jit
def test_the_number_of_categories_is_that_of_the_data_or_of_an_instance():
    rng = np.random.default_rng(6)
    y = np.where(np.arange(600) % 200 < 180, rng.integers(0, 2, 600), rng.integers(2, 5, 600))
    hmm = rh.RareHMM(2, emission="categorical", method="map", verbose=0).fit(y)
    assert hmm.posterior_.model.family == rh.Categorical(5)
    with pytest.raises(ValueError, match=r"y\[2\] is 5; Categorical5 takes whole numbers from 0 to 4"):
        hmm.predict([0, 4, 5])


def test_a_number_of_categories_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"y\[1\] is 3; Categorical3 takes whole numbers from 0 to 2"):
        rh.RareHMM(2, emission=rh.Categorical(3), verbose=0).fit([0, 3, 1, 2, 0])
    with pytest.raises(ValueError, match=r"y\[1\] is 2.5; Categorical3 takes whole numbers from 0 to 2"):
        rh.RareHMM(2, emission="categorical", verbose=0).fit([0, 2.5, 1, 2, 0])
    with pytest.raises(ValueError, match="largest value of y is 99, which makes 100 categories; if this is intended"):
        rh.RareHMM(2, emission="categorical", verbose=0).fit([0, 3, 1, 99, 0])
    assert rh.Categorical.suited(rh.Series([0, 0, 0, 1]).summaries) == rh.Categorical(2)
    with pytest.raises(ValueError, match="n is 1; the number of categories must be a whole number, at least 2"):
        rh.Categorical(1)
    same = pickle.loads(pickle.dumps(rh.Categorical(4)))
    assert same == rh.Categorical(4) != rh.Categorical(5)
    assert repr(same) == "Categorical(4)"
    assert len({same, rh.Categorical(4)}) == 1


def test_components_of_a_mixture_ascend_and_are_a_setting():
    with pytest.raises(ValueError, match="m is 1; the number of components must be a whole number, at least 2"):
        rh.GaussianMixture(1)
    same = pickle.loads(pickle.dumps(rh.GaussianMixture(4)))
    assert same == rh.GaussianMixture(4) != rh.GaussianMixture(5)
    assert repr(same) == "GaussianMixture(4)"
    assert len({same, rh.GaussianMixture(4)}) == 1
    family = rh.GaussianMixture(3)
    phi = np.array([[1.0, 0.5, 2.0, 0.1, 0.2, 0.3, np.log(2), np.log(3)]])
    weight, mean, variance = family.components(phi)
    np.testing.assert_allclose(weight, [[1 / 6, 2 / 6, 3 / 6]])
    np.testing.assert_allclose(mean, [[1.0, 1.5, 3.5]])
    np.testing.assert_allclose(variance, [[0.1, 0.2, 0.3]])
    y = family.draw(np.random.default_rng(0), np.zeros(200_000, dtype=np.int64), phi)
    mean, variance = family.moments(phi)
    np.testing.assert_allclose([y.mean(), y.var()], [mean[0, 0], variance[0, 0]], rtol=0.02)


def test_a_mixture_with_an_empty_component_has_an_m_step():
    """What is known of its mean is lost beside what is known of the other's: the matrix is singular to all digits."""
    priors = rh.Normal(0.0, 1e24), rh.Gamma(2.0, 1e-12)
    found = best_steps(np.array([[0.0, 1.0]]), np.array([[0.0, 1e20]]), np.array([[0.0, 3e20]]), priors)
    assert found.sum() == pytest.approx(3.0)


@pytest.mark.parametrize(
    "y", [[2.0], [2.0, 2.0], [1.0, 2.0], [0.0, 0.1, 5.0, 5.1, 9.0], [5.1, 0.2, 9.0, 0.0, 0.1, 5.0, 0.3]]
)
def test_a_mixture_starts_from_clusters_however_few_there_are(y):
    y = np.array(y)
    phi = rh.GaussianMixture(3).estimate(y, np.ones(len(y)))
    assert np.isfinite(phi).all()
    assert (phi[1:6] >= 0).all()
    if len(y) > 3:
        np.testing.assert_allclose(np.cumsum(phi[:3]), [y[y < 1].mean(), 5.05, 9.0])


@pytest.mark.jit
@each_of(CASES)
def test_the_rare_state_is_found_and_named(name):
    _, _, series, states = simulated(name, 3000)
    y = series.read(0, len(series))[:, 0]
    hmm = rh.RareHMM(2, emission=name, n_draws=200, verbose=0, rare_share=0.2).fit(y)
    assert hmm.rare_states_.tolist() == [1]
    found = hmm.predict(y)
    assert np.mean(found[states == 1] == 1) > 0.8
    table = hmm.summary()
    for parameter, values in CASES[name].items():
        for k, value in enumerate(values):
            row = table.loc[f"{parameter}[{k}]"]
            assert abs(row["mean"] - value) < 4 * row["sd"]
    assert hmm.check(y).passed


@pytest.mark.jit
@each_of(n for n in CASES if hasattr(families()[n], "conditional"))
def test_gibbs_sampling_agrees(name):
    model, truth, series, _ = simulated(name, 3000)
    assert np.abs(off_gibbs(model, truth, series)).max() < 4.5


@pytest.mark.jit
@each_of(CASES | SIMPLE)
def test_windows_and_all_data_have_the_same_posterior(name):
    """Chains on windows, by scores, statistics and their controls, against Hamiltonian Monte Carlo on all data: means
    in standard errors, and standard deviations."""
    model, truth, series, _ = simulated(name, 2000)
    found = rh.infer(np.random.default_rng(3), model, series, start=truth, wanted=1000, method="chain")
    draws = rh.hmc(np.random.default_rng(2), found.mode, series, 250)
    theta, exact = np.concatenate(found.theta), np.concatenate(draws)
    error = np.hypot(draws.mean(1).std(0) / np.sqrt(len(draws)), theta.std(0) / np.sqrt(1000))
    assert np.abs((theta.mean(0) - exact.mean(0)) / error).max() < 4.5
    np.testing.assert_allclose(theta.std(0) / exact.std(0), 1.0, atol=0.15)


@pytest.mark.parametrize("r", [0.0, -1.0, 2e6, "3"])
def test_a_dispersion_out_of_bounds_is_refused(r):
    with pytest.raises(ValueError, match=r"r is .*; it must lie between 0 and 1e6. For larger values use Poisson\(\)"):
        rh.NegativeBinomial(r).check()


EVERY = [kind() for kind in families().values()] + [
    rh.MultivariateGaussian(3), rh.GaussianMixture(3), rh.Product(rh.Gaussian(), rh.VonMises(), rh.Poisson()),
    rh.Product(rh.MultivariateGaussian(2), rh.Categorical(3)),
]  # fmt: skip


def rows_of_parameters(family, n):
    """Parameters (n, P) that differ from row to row."""
    near = np.random.default_rng(1).uniform(0.5, 2.0, (n, len(family.parameters)))
    return np.where([p.support == "real" for p in family.parameters], near - 1.0, near)


@pytest.mark.plain
@pytest.mark.parametrize("family", EVERY, ids=lambda f: type(f).__name__)
def test_each_row_may_have_parameters_of_its_own(family):
    inputs_of_each_row(Case(family, default_phi(family)))
    phi = rows_of_parameters(family, 50)
    y = family.draw(np.random.default_rng(0), np.arange(50), phi)
    function = family.cdfs if hasattr(family, "cdfs") else family.cdf
    found = function(y, phi.T)
    np.testing.assert_allclose(found, [function(y[[t]], phi[t])[0] for t in range(50)], rtol=1e-9, atol=1e-12)


@pytest.mark.plain
@pytest.mark.parametrize("family", EVERY, ids=lambda f: type(f).__name__)
def test_parameters_of_each_row_cost_no_loop(family):
    """A hundred thousand rows: less than a second, where a loop over rows would take ten."""
    phi = rows_of_parameters(family, 100_000)
    start = time.perf_counter()
    y = family.draw(np.random.default_rng(0), np.arange(len(phi)), phi)
    (family.cdfs if hasattr(family, "cdfs") else family.cdf)(y, phi.T)
    assert time.perf_counter() - start < 3.0
    assert np.isfinite(y).all()


@pytest.mark.parametrize("mean", [1e-6, 0.3, 40.0, 1e6])
@pytest.mark.parametrize("eta", [-30.0, -1.0, 0.0, 3.0, 30.0])
@pytest.mark.parametrize(
    "family", [rh.NegativeBinomial(1e-3), rh.NegativeBinomial(1e5), rh.ZeroInflatedPoisson(), rh.FreeNegativeBinomial(),
               rh.GammaEmission(), rh.Exponential(), rh.Poisson()], ids=repr,
)  # fmt: skip
def test_rates_keep_their_digits_far_from_where_they_were(family, mean, eta):
    phi = np.array([mean, 0.7])[: len(family.parameters)]
    y = np.array([1.0, 2.0, 50.0, 1e6])
    moved = with_predictor(family, y, prepare(family, phi), eta)
    there = prepare(family, move_parameters(family, phi, eta))
    expected = log_density(family, y, there)
    np.testing.assert_allclose(log_density(family, *moved), expected, rtol=1e-9, atol=1e-9)
    for found, wanted in zip(score(family, *moved), score(family, y, there), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("odds", [-800.0, -40.0, -1.0, 0.0, 2.0, 40.0, 800.0])
@pytest.mark.parametrize("eta", [-30.0, 0.0, 0.5, 900.0])
def test_log_odds_move_without_overflow(odds, eta):
    family, y = rh.Bernoulli(), np.array([0.0, 1.0])
    found = with_predictor(family, y, prepare(family, np.array([odds])), np.array([eta, eta]))
    there = prepare(family, np.array([odds + eta]))
    np.testing.assert_allclose(log_density(family, *found), log_density(family, y, there), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(score(family, *found), score(family, y, there), rtol=1e-12, atol=1e-15)


def test_a_family_of_one_size_has_no_arguments():
    assert Sized().arguments == ()
    assert rh.Categorical(3) != rh.Categorical(4)


def test_what_is_no_family_has_no_functions():
    for generic, count in ((prepare, 1), (log_density, 2), (score, 2), (add_statistics, 5), (summed_score, 4)):
        with pytest.raises(TypeError, match=f"int has no {generic.__name__}: attach one with @compiled"):
            generic(3, *[0.0] * count)
    assert complete_score(3, 1.0, (), (), ()) == statistics(3, 1.0, ()) == ()


@pytest.mark.parametrize(("family", "phi"), [(rh.LogNormal(), [0.0, 1e6]), (rh.StudentT(0.01), [0.0, 1.0])], ids=str)
def test_what_is_drawn_is_what_a_series_takes(family, phi):
    """However heavy the tails: numbers whose squares are numbers, and positive where they must be."""
    model = rh.Model(family, 1, rh.no_priors(family))
    y, _ = rh.simulate(np.random.default_rng(0), model, model.natural([phi], [[1.0]]), 500)
    rh.Series(y).check((family.domain,), "it")
    assert np.abs(y).max() == pytest.approx(1e150)
