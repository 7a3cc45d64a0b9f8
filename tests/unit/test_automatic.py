"""Scores that are worked out equal those written by hand, keep the contract, and fit."""

import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest
from scipy import special

import rarehmm as rh
from rarehmm.conformance.emission import Case, default_phi, kernels_agree_with_numpy
from rarehmm.data.domains import POSITIVE, REALS
from rarehmm.emissions import families
from rarehmm.engine.automatic import WRITTEN, density_of
from rarehmm.engine.contracts.family import Parameter, log_density, prepare, score

HERE = str(pathlib.Path(__file__).parent)


def like(family, density):
    """A family with the parameters, settings and draws of another, and an automatic score."""
    cls = type(family)
    space = {name: getattr(cls, name) for name in ("parameters", "domain", "draw") if hasattr(cls, name)}
    if hasattr(cls, "columns"):
        space["columns"] = cls.columns
    Mine = type(f"Auto{cls.__name__}", (NamedTuple("Fields", [(n, float) for n in cls._fields]),), space)
    density_of(Mine)(density)
    return Mine(*family)


def gaussian(family, y, mean, variance):
    return -0.5 * np.log(2 * np.pi * variance) - (y - mean) ** 2 / (2 * variance)


def student(family, y, mean, scale2):
    nu = family.nu
    norm = special.gammaln((nu + 1) / 2) - special.gammaln(nu / 2) - 0.5 * np.log(nu * np.pi * scale2)
    return norm - 0.5 * (nu + 1) * np.log(1 + (y - mean) ** 2 / (nu * scale2))


def gamma(family, y, mean, shape):
    return shape * np.log(shape * y / mean) - special.gammaln(shape) - shape * y / mean


def poisson(family, y, rate):
    return special.xlogy(y, rate) - rate


def negative_binomial(family, y, mean):
    r = family.r
    return y * np.log(mean / (mean + r)) - r * np.log1p(mean / r)


def zero_inflated(family, y, rate, zero_log_odds):
    some = -np.logaddexp(0.0, zero_log_odds)
    none = np.logaddexp(zero_log_odds, -rate) + some
    return np.where(y == 0, none, some + y * np.log(rate) - rate)


def log_normal(family, y, mean_log, variance_log):
    return -0.5 * (np.square(np.log(y) - mean_log) / variance_log + np.log(2 * np.pi * variance_log))


def bernoulli(family, y, log_odds):
    return y * log_odds - np.maximum(log_odds, 0.0) - np.log1p(np.exp(-np.abs(log_odds)))


CASES = {
    "gaussian": gaussian, "student_t": student, "gamma": gamma, "poisson": poisson,
    "negative_binomial": negative_binomial, "zero_inflated_poisson": zero_inflated, "log_normal": log_normal,
    "bernoulli": bernoulli,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_automatic_score_is_the_one_by_hand(name):
    family = families()[name]()
    mine = like(family, CASES[name])
    case = Case(family, default_phi(family))
    y = case.sample(200)[:, 0]
    for phi in case.phi:
        hand, own = prepare(family, phi), prepare(mine, phi)
        np.testing.assert_allclose(score(mine, y, own), score(family, y, hand), rtol=1e-11, atol=1e-12)
        apart = log_density(mine, y, own) - log_density(family, y, hand)
        np.testing.assert_allclose(apart, apart[0], atol=1e-12)


def test_what_depends_on_parameters_alone_is_computed_once():
    """The Gaussian as one would write it by hand."""
    assert WRITTEN[type(like(rh.Gaussian(), gaussian))].split("\n\n\n")[1:] == [
        "def log_density(family, y, c):\n    v0 = (c[1] + y)\n    return (c[0] + (c[2] * (v0 * v0)))",
        "def score(family, y, c):\n    v0 = (c[1] + y)\n    return ((c[3] * v0), (c[4] + (c[5] * (v0 * v0))),)\n",
    ]


# ---------------------------------------------------------------- every function that there is
UNARY = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "abs": np.abs, "log1p": np.log1p, "expm1": np.expm1, "cos": np.cos,
    "sin": np.sin, "tanh": np.tanh, "arctan": np.arctan, "gammaln": special.gammaln, "erf": special.erf,
    "expit": special.expit, "square": np.square, "sign": np.sign, "negative": np.negative, "positive": np.positive,
    "reciprocal": np.reciprocal, "power": lambda x: x**2.5, "cube": lambda x: x**3, "inverse": lambda x: x**-2,
    "root": lambda x: x**0.5, "exponent": lambda x: 1.7**x, "self": lambda x: x**x, "none": lambda x: x**0,
    "larger": lambda x: np.maximum(x, 1.1), "smaller": lambda x: np.minimum(1.1, x),
    "added": lambda x: np.logaddexp(x, 0.3), "xlogy": lambda x: special.xlogy(x, 2 * x),
    "both": lambda x: np.where((x > 0.5) & (x <= 1.1), x * x, 2 * x), "left": lambda x: 3 - (x / 2 - 1) / x,
    "either": lambda x: np.where((x < 0.5) | ~(x >= 1.1) | (x == 7) | (x != x), np.float64(2) * x, +x / np.float64(3)),
    "logic": lambda x: np.where(np.logical_and(x > 0.5, np.logical_or(x < 1.1, np.logical_not(x < 2))), x, abs(-x) + 2),
}  # fmt: skip


def scale_of(function, where):
    """A family whose log density goes through ``function``, of the parameter alone or of the observation too."""

    class Any(NamedTuple):
        parameters = (Parameter("scale", support="positive", prior=rh.Gamma(2.0, 2.0)),)
        domain = POSITIVE

        def draw(self, rng, states, phi):
            return rng.exponential(phi[states, 0])

    density_of(Any)(lambda family, y, scale: function(scale if where == "state" else y * scale) + y)
    return Any()


@pytest.mark.parametrize("where", ["state", "row"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_and_their_slopes(name, where):
    y, h, f = np.array([0.4, 0.9, 1.3, 2.2]), 1e-6, UNARY[name]
    family = scale_of(f, where)
    for scale in np.array([0.6, 1.7]):
        c, times = prepare(family, np.array([scale])), np.ones(4) if where == "state" else y
        up, down = f((scale + h) * times), f((scale - h) * times)
        np.testing.assert_allclose(log_density(family, y, c), f(scale * times) + y, rtol=1e-13)
        np.testing.assert_allclose(score(family, y, c)[0] + 0 * y, (up - down) / (2 * h), rtol=1e-7, atol=1e-8)


@pytest.mark.jit
@pytest.mark.parametrize("where", [pytest.param("state", marks=pytest.mark.nightly), "row"])
def test_they_are_the_same_in_kernels(where):
    """All at once, which takes one compilation."""
    family = scale_of(lambda x: sum(f(x) for f in UNARY.values()), where)
    kernels_agree_with_numpy(Case(family, default_phi(family)))


def test_a_side_of_where_that_is_not_taken_spoils_nothing():
    """Its slope is infinite here, and infinity times zero is not zero."""
    family = scale_of(lambda x: np.where(x > 1, np.sqrt(np.maximum(x - 1, 0.0)), 2 * x), "row")
    with np.errstate(all="ignore"):
        found = score(family, np.array([0.25, 5.0]), prepare(family, np.array([1.0])))[0]
    np.testing.assert_allclose(found, [0.5, 1.25])


@pytest.mark.parametrize(
    "mixed",
    [
        lambda y, s: np.where(s > 1, y * s, 2 * y * s),
        lambda y, s: np.where((s > 1) & (y > 1), y * s, 2 * y * s) + np.where(~(s > 1) | (y > 2), s, s * s),
    ],
)
def test_conditions_on_parameters_and_observations_go_together(mixed):
    family = scale_of(lambda pair: pair, "state")
    density_of(type(family))(lambda family, y, scale: mixed(y, scale))
    y, h = np.array([0.4, 0.9, 1.3, 2.2]), 1e-6
    for scale in np.array([0.6, 1.7]):
        c = prepare(family, np.array([scale]))
        assert all(isinstance(v, float | np.ndarray) for v in c)
        np.testing.assert_allclose(log_density(family, y, c), mixed(y, scale), rtol=1e-13)
        slope = (mixed(y, scale + h) - mixed(y, scale - h)) / (2 * h)
        np.testing.assert_allclose(score(family, y, c)[0], slope, rtol=1e-7)
    kernels_agree_with_numpy(Case(family, default_phi(family)))


# ---------------------------------------------------------------- families
class Couple(NamedTuple):
    """Two columns, with a setting."""

    weight: float = 0.5
    parameters = (
        Parameter("first", support="real", prior=rh.Normal(0.0, 100.0)),
        Parameter("spread", support="positive", prior=rh.InverseGamma(2.0, 2.0), column=1),
    )
    domain = REALS
    columns = 2

    def draw(self, rng, states, phi):
        z = rng.standard_normal((len(states), 2)) * phi[states, 1:]
        return np.column_stack([z[:, 0] + phi[states, 0], z[:, 1] + self.weight * phi[states, 0]])


@density_of(Couple)
def _(family, y, first, spread):
    squares = (y[0] - first) ** 2 + (y[1] - family.weight * first) ** 2
    return -squares / (2 * spread**2) - 2 * np.log(spread) - np.log(2 * np.pi)


@pytest.mark.nightly
@pytest.mark.jit
def test_a_family_of_two_columns_keeps_the_contract():
    without = "estimate", "maximise", "conditional", "cdf", "heavier", "linear_predictor", "log_scale"
    assert tuple(rh.check_emission(Couple(0.3)).without) == without


@pytest.mark.jit
@pytest.mark.parametrize("method", ["map", pytest.param("auto", marks=pytest.mark.nightly)])
def test_it_fits_as_the_one_by_hand_does(method):
    rng = np.random.default_rng(1)
    y = rng.normal(size=4000)
    y[1000:1020] += 7
    y[3000:3030] += 7
    series, hand = rh.Series(y), rh.Gaussian()
    means = []
    for family in (hand, like(hand, gaussian)):
        model = rh.Model(family, 2, rh.default_priors(family, 2, series))
        found = rh.infer(np.random.default_rng(2), model, series, wanted=500, method=method)
        means.append(found.mode.model.unpack(found.mode.theta).phi)
    np.testing.assert_allclose(means[0], means[1], rtol=1e-3, atol=1e-3)


PROGRAM = """
import os, time, numpy as np, rarehmm as rh
from test_automatic import Couple
series = rh.Series(np.random.default_rng(0).normal(size=(200, 2)))
model = rh.Model(Couple(), 2, rh.default_priors(Couple(), 2, series))
point = model.parameters(np.full((2, 2), 0.5), first=[0, 1], spread=1)
print(rh.log_posterior(model, model.pack(point), series)[0])
print(sum(len(k.overloads) and k.stats.cache_misses.total() for k in rh.engine.dispatch.KERNELS))
"""


@pytest.mark.nightly
@pytest.mark.jit
def test_its_kernels_are_kept_on_disk(tmp_path):
    """Another process makes the same source of it, and has nothing to compile."""
    space = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([*sys.path, HERE])}
    runs = [subprocess.run([sys.executable, "-c", PROGRAM], env=space, capture_output=True, text=True) for _ in "ab"]
    (value, first), (same, second) = (run.stdout.split() for run in runs)
    assert value == same
    assert int(first) > 0
    assert int(second) == 0


# ---------------------------------------------------------------- words for what cannot be done
def branch(family, y, scale):
    return -y if y > scale else y


def foreign(family, y, scale):
    return np.sinc(y) * scale


def exotic(family, y, scale):
    return np.arcsinh(y) * scale


def reduced(family, y, scale):
    return np.add.reduce(y) * scale


def table(family, y, scale):
    return y * np.ones(3) * scale


def twice(family, y, scale):
    return special.digamma(scale) * y


@pytest.mark.parametrize(
    ("density", "message"),
    [
        (branch, "use np.where instead of if"),
        (foreign, "sinc is not available in density_of; use arithmetic.*write score by hand"),
        (exotic, "arcsinh is not available"),
        (reduced, "add.reduce is not available"),
        (table, "the value array.* is not available"),
        (twice, "psi is not available|digamma is not available"),
        (lambda family, y, width: y, r"has the arguments \(family, y, width\).*by name: scale"),
    ],
)
def test_what_cannot_be_done_is_said(density, message):
    class Mine(NamedTuple):
        parameters = (Parameter("scale", support="positive", prior=rh.Gamma(2.0, 2.0)),)
        domain = REALS

    with pytest.raises(TypeError, match=message):
        density_of(Mine)(density)


def test_density_of_takes_a_family():
    with pytest.raises(TypeError, match="takes the class of a family"):
        density_of(float)(lambda family, y: y)
