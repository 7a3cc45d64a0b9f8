"""The contract of a family, run on every file of the folder and on one written as a user would."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import nquad, quad
from small_models import Pair

from rarehmm import Model, MultivariateGaussian, Normal, Priors
from rarehmm.dispatch import compiled
from rarehmm.emissions import Parameter, columns, constant, domains, families, log_density, prepare, score
from rarehmm.passes import densities, prepared
from rarehmm.series import COUNTS, REALS

MORE = [Pair(), MultivariateGaussian(2, diagonal=True), MultivariateGaussian(3)]
ALL = [kind() for kind in families().values()] + MORE
each = pytest.mark.parametrize("family", ALL, ids=lambda f: type(f).__name__)


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
    c = prepare(family, phi)
    if domains(family)[0] is COUNTS:
        y = np.arange(200.0)[:, None]
        assert np.exp(log_density(family, y[:, 0], c) + constant(family, y)).sum() == pytest.approx(1.0, abs=1e-12)
    elif columns(family) == 1:
        assert quad(lambda v: np.exp(log_density(family, v, c)), -np.inf, np.inf)[0] == pytest.approx(1.0, abs=1e-6)
    else:
        box = [(-12, 12)] * columns(family)
        whole, _ = nquad(lambda *v: np.exp(log_density(family, v, c)), box, opts={"epsabs": 1e-4, "epsrel": 1e-4})
        assert whole == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("family", [f for f in ALL if columns(f) == 1], ids=lambda f: type(f).__name__)
def test_draws_follow_the_density(family):
    """Mean of the log density over draws against its expectation by quadrature or summation, in standard errors."""
    rng, phi, n = np.random.default_rng(1), phi_of(family)[:1], 20_000
    y = family.draw(rng, np.zeros(n, dtype=np.int64), phi)
    c = prepare(family, phi[0])
    values = log_density(family, y, c)
    if domains(family)[0] is COUNTS:
        grid = np.arange(200.0)
        weight = np.exp(log_density(family, grid, c) + constant(family, grid[:, None]))
        expected = weight @ log_density(family, grid, c)
    else:
        expected = quad(lambda v: np.exp(log_density(family, v, c)) * log_density(family, v, c), -np.inf, np.inf)[0]
    assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(n)


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
