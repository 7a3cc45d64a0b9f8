"""The contract of a family, run on every file of the folder and on one written as a user would."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import nquad
from scipy.optimize import minimize
from scipy.stats import kstest
from small_models import Pair, integral

from rarehmm import (
    Categorical,
    GaussianMixture,
    Model,
    MultivariateGaussian,
    Normal,
    Priors,
    Series,
    climb,
    default_priors,
    log_posterior,
    no_priors,
)
from rarehmm.dispatch import compiled
from rarehmm.emissions import (
    Parameter,
    columns,
    complete_score,
    domains,
    families,
    log_density,
    prepare,
    score,
    statistics,
)
from rarehmm.passes import densities, prepared
from rarehmm.series import REALS

MORE = [Pair(), MultivariateGaussian(2, diagonal=True), MultivariateGaussian(3), Categorical(5), GaussianMixture(3)]
ALL = [kind() for kind in families().values()] + MORE
each = pytest.mark.parametrize("family", ALL, ids=lambda f: type(f).__name__)


def having(attribute):
    """All families that bring something."""
    return pytest.mark.parametrize("family", [f for f in ALL if hasattr(f, attribute)], ids=lambda f: type(f).__name__)


def phi_of(family):
    """Two states with parameters inside their support."""
    return np.array([[0.7 if p.support == "real" else 1.3 for p in family.parameters],
                     [-1.1 if p.support == "real" else 0.4 for p in family.parameters]])  # fmt: skip


def sample(family, n=40):
    rng = np.random.default_rng(0)
    states = rng.integers(0, 2, n)
    return family.draw(rng, states, phi_of(family)).reshape(n, columns(family)), states


def as_argument(family, y):
    return y[:, 0] if columns(family) == 1 else tuple(y.T)


def model_of(family):
    return Model(family, 2, Priors(tuple(Normal(0.0, 1.0) for _ in family.parameters)))


def test_the_folder_is_the_registry():
    assert {"gaussian", "student_t", "poisson"} <= set(families())


@each
def test_draws_lie_in_the_domain(family):
    y, _ = sample(family)
    for column, domain in zip(y.T, domains(family), strict=True):
        assert domain.valid(column).all()


@each
def test_score_is_the_slope_of_the_log_density(family):
    y, _ = sample(family)
    x, phi, h = as_argument(family, y), phi_of(family)[0], 1e-6
    found = score(family, x, prepare(family, phi))
    assert len(found) == len(family.parameters)
    for i, slope in enumerate(found):
        up, down = (log_density(family, x, prepare(family, phi + s * h * np.eye(len(phi))[i])) for s in (1, -1))
        np.testing.assert_allclose(
            slope, (up - down) / (2 * h), rtol=1e-6, atol=1e-7, err_msg=family.parameters[i].name
        )


@each
def test_density_of_many_states_at_once(family):
    phi = phi_of(family)
    constants = [prepare(family, row) for row in phi]
    y = 2.0 if columns(family) == 1 else (2.0,) * columns(family)
    together = log_density(family, y, tuple(np.array(constants).T))
    np.testing.assert_allclose(together, [log_density(family, y, c) for c in constants], rtol=1e-12)


@each
def test_density_integrates_to_one(family):
    phi = phi_of(family)[0]
    if columns(family) == 1:
        assert integral(family, phi) == pytest.approx(1.0, abs=1e-12 if domains(family)[0].whole else 1e-6)
    else:
        c, box = prepare(family, phi), [(-12, 12)] * columns(family)
        whole, _ = nquad(lambda *v: np.exp(log_density(family, v, c)), box, opts={"epsabs": 1e-4, "epsrel": 1e-4})
        assert whole == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("family", [f for f in ALL if columns(f) == 1], ids=lambda f: type(f).__name__)
def test_draws_follow_the_density(family):
    """Mean of the log density over draws against its expectation by quadrature or summation, in standard errors."""
    rng, phi, n = np.random.default_rng(1), phi_of(family)[:1], 20_000
    y = family.draw(rng, np.zeros(n, dtype=np.int64), phi)
    c = prepare(family, phi[0])
    values = log_density(family, y, c)
    expected = integral(family, phi[0], lambda v: log_density(family, v, c))
    assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(n)


@having("cdf")
def test_draws_follow_the_distribution_function(family):
    """It makes uniform numbers of them, if those of discrete draws are spread over their step."""
    rng, phi, n = np.random.default_rng(2), phi_of(family)[0], 20_000
    y = family.draw(rng, np.zeros(n, dtype=np.int64), phi[None])

    def p_value(phi):
        low = family.cdf(y - 1, phi) if domains(family)[0].whole else family.cdf(y, phi)
        return kstest(low + np.random.default_rng(3).random(n) * (family.cdf(y, phi) - low), "uniform").pvalue

    assert p_value(phi) > 1e-3
    assert p_value(1.3 * phi) < 1e-3


@each
def test_a_domain_ends_at_its_bounds(family):
    for domain in domains(family):
        outside = [v for v in (domain.low - 1, domain.high + 1) if np.isfinite(v)] + [0.5] * domain.whole
        assert not domain.valid(np.array(outside)).any()


# ---------------------------------------------------------------- M-steps
def totals(family, y, c):
    """Sums of the statistics (Q,) of rows."""
    return np.array([np.sum(s) for s in statistics(family, as_argument(family, y), c)])


@having("maximise")
def test_m_steps_climb_to_the_mode(family):
    """Of one state: every step raises the log posterior, and no quasi-Newton step finds more where they settle."""
    y, _ = sample(family, 60)
    series = Series(y)
    model = Model(family, 1, default_priors(family, 1, series))
    found = climb(model, series, model.natural(phi_of(family)[1:], [[1.0]]), steps=3000, tolerance=1e-13)
    assert found.converged
    assert (np.diff(found.trace) > -1e-9).all()
    theta = model.pack(found.parameters)
    best = minimize(lambda x: -log_posterior(model, x, series)[0], theta + 0.01, options={"gtol": 1e-7})
    assert found.log_posterior == pytest.approx(-best.fun, abs=1e-6)
    np.testing.assert_allclose(log_posterior(model, theta, series)[1], 0.0, atol=1e-4)


@having("maximise")
def test_known_values_stay_in_an_m_step(family):
    y, _ = sample(family, 60)
    series, phi = Series(y), phi_of(family)[1:]
    fixed = {family.parameters[0].name: phi[:, 0]}
    model = Model(family, 1, default_priors(family, 1, series), fixed=fixed)
    found = climb(model, series, model.natural(phi, [[1.0]]), steps=3000, tolerance=1e-13)
    np.testing.assert_allclose(found.parameters.phi[:, 0], phi[:, 0])
    if model.size:
        np.testing.assert_allclose(log_posterior(model, model.pack(found.parameters), series)[1], 0.0, atol=1e-4)


@having("maximise")
def test_complete_score_is_the_sum_of_scores_and_vanishes_at_the_m_step(family):
    (y, _), (phi, _) = sample(family), phi_of(family)
    c = prepare(family, phi)
    sums = totals(family, y, c)
    each_sum = [np.sum(s) for s in score(family, as_argument(family, y), c)]
    np.testing.assert_allclose(complete_score(family, len(y), sums, c, c), each_sum, rtol=1e-9, atol=1e-9)
    flat = no_priors(family).emission
    best = family.maximise(phi[None], np.array([float(len(y))]), sums[None], flat)[0]
    assert np.abs(best - phi).max() > 0.01
    np.testing.assert_allclose(complete_score(family, len(y), sums, c, prepare(family, best)), 0.0, atol=1e-6)


@each
def test_kernels_compute_the_same_as_numpy(family):
    y, _ = sample(family, 37)
    y[3] = np.nan
    model = model_of(family)
    point = prepared(model, model.natural(phi_of(family), np.full((2, 2), 0.5)))
    found = densities(model, point, y)
    for k in range(2):
        expected = log_density(family, as_argument(family, y), prepare(family, point.phi[k]))
        np.testing.assert_allclose(found[:, k], np.where(np.isnan(y).any(1), 0.0, expected), rtol=1e-13, atol=1e-14)


# ---------------------------------------------------------------- what an author sees after a mistake
def family_with(density, **more):
    class Mine(NamedTuple):
        parameters = (Parameter("rate", support="positive", prior=Normal(0.0, 1.0)),)
        domain = REALS

        def draw(self, rng, states, phi):
            return rng.exponential(1 / phi[states, 0])

    for name, value in more.items():
        setattr(Mine, name, value)
    compiled(prepare, Mine)(lambda family, phi: (phi[0], 1 / phi[0]))
    if density is not None:
        compiled(log_density, Mine)(density)
    compiled(score, Mine)(lambda family, y, c: (1 / c[0] - y,))
    return Mine()


def branch(family, y, c):
    return -y if y > c[0] else y


def scalar_function(family, y, c):
    import math

    return math.log(y)


def typo(family, y, c):
    return y * c[7]


@pytest.mark.parametrize("density", [branch, scalar_function, typo, None])
def test_a_mistake_in_a_family_is_explained_without_a_compiler(density):
    with pytest.raises(TypeError, match="Mine") as caught:
        model_of(family_with(density))
    assert "numba" not in str(caught.value)


def exotic(family, y, c):
    return np.arctan(y)


@pytest.mark.jit
def test_what_cannot_be_compiled_is_said_in_words_about_the_family():
    model = model_of(family_with(exotic))
    parameters = model.natural(np.ones((2, 1)), np.full((2, 2), 0.5))
    with pytest.raises(TypeError, match=r"the functions of Mine.* cannot be compiled \(arctan\(lanes16\)\)"):
        densities(model, prepared(model, parameters), np.ones((3, 1)))


def good(family, y, c):
    return np.log(c[0]) - c[0] * y


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"parameters": (Parameter("rate", support="unit", prior=Normal(0.0, 1.0)),)},
            "the support of 'rate' is 'unit'",
        ),
        ({"parameters": (Parameter("rate", "positive", Normal(0.0, 1.0)),) * 2}, "score must return a tuple of 2"),
    ],
)
def test_a_family_that_does_not_fit_the_contract_is_refused(more, words):
    with pytest.raises((TypeError, ValueError), match=words):
        model_of(family_with(good, **more))


def test_functions_must_return_tuples():
    for generic, words in ((prepare, "prepare must return a tuple"), (score, "score must return a tuple")):
        family = family_with(good)
        compiled(generic, type(family))(lambda family, *args: 1.0)
        with pytest.raises(TypeError, match=words):
            model_of(family)


def test_a_class_that_is_no_family_is_refused():
    with pytest.raises(TypeError, match="str has no 'parameters'; see the contract"):
        Model("gaussian", 2, Priors(()))
