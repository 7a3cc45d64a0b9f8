"""Families on inputs and lags: likelihood and probabilities beside the enumeration of all paths, gradients beside
differences."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import bernoulli, expon, gamma, lognorm, multivariate_normal, norm, poisson, vonmises
from scipy.stats import t as student_t

import rarehmm as rh
from rarehmm.engine.contracts.family import hook
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.passes import log_posterior_value

T, K, LENGTHS = 7, 2, [4, 3]
TRANSITION, START = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0.3, 0.7])
SEVERAL, DIAGONAL = rh.MultivariateGaussian(2), rh.MultivariateGaussian(3, diagonal=True)


# ---------------------------------------------------------------- densities of a row, from SciPy
# Predictors eta, one for each column that has one, are added to locations, logarithms of rates and log odds; the log
# scale zeta is added to logarithms of standard deviations.
def log_gaussian(y, phi, eta, zeta):
    return norm.logpdf(y[0], phi[0] + eta[0], np.sqrt(phi[1]) * np.exp(zeta))


def log_student(y, phi, eta, zeta):
    return student_t.logpdf(y[0], phi[2], phi[0] + eta[0], np.sqrt(phi[1]) * np.exp(zeta))


def log_log_normal(y, phi, eta, zeta):
    return lognorm.logpdf(y[0], np.sqrt(phi[1]) * np.exp(zeta), scale=np.exp(phi[0] + eta[0]))


def log_mixture(y, phi, eta, zeta):
    """Of two components: mean, gap, two variances and log odds of the second."""
    weight = expit([-phi[4], phi[4]])
    each = norm.logpdf(y[0], phi[0] + eta[0] + [0, phi[1]], np.sqrt(phi[2:4]) * np.exp(zeta))
    return logsumexp(each, b=weight)


def log_poisson(y, phi, eta, zeta):
    return poisson.logpmf(y[0], phi[0] * np.exp(eta[0]))


def log_inflated(y, phi, eta, zeta):
    extra = expit(phi[1])
    return np.log((y[0] == 0) * extra + (1 - extra) * np.exp(log_poisson(y, phi, eta, zeta)))


def log_negative_binomial(y, phi, eta, zeta, r=None):
    mean, r = phi[0] * np.exp(eta[0]), phi[1] if r is None else r
    return gammaln(y[0] + r) - gammaln(r) - gammaln(y[0] + 1) - r * np.log1p(mean / r) - y[0] * np.log1p(r / mean)


def log_gamma(y, phi, eta, zeta):
    return gamma.logpdf(y[0], phi[1], scale=phi[0] * np.exp(eta[0]) / phi[1])


def log_exponential(y, phi, eta, zeta):
    return expon.logpdf(y[0], scale=phi[0] * np.exp(eta[0]))


def log_bernoulli(y, phi, eta, zeta):
    return bernoulli.logpmf(y[0], expit(phi[0] + eta[0]))


def log_several(y, phi, eta, zeta, family=SEVERAL):
    mean, covariance = (np.asarray(part) for part in family.moments(phi))
    seen = ~np.isnan(y)
    if not seen.any():
        return 0.0
    return multivariate_normal.logpdf(
        y[seen], (mean + eta)[seen], np.exp(2 * zeta) * covariance[np.ix_(seen, seen)]
    )  # fmt: skip


def log_mixed(y, phi, eta, zeta):
    """A Gaussian, an angle without a predictor, and counts."""
    each = [
        log_gaussian(y[:1], phi[:2], eta[:1], zeta),
        vonmises.logpdf(y[1], np.hypot(*phi[2:4]), np.arctan2(phi[3], phi[2])),
        log_poisson(y[2:], phi[4:], eta[2:], zeta),
    ]
    return np.where(np.isnan(y), 0.0, each).sum()


class Case(NamedTuple):
    """A family, its log density, parameters (K, P), and how to make observations from normal numbers (T, D).

    ``lag`` is what an observation of each column is to those after it in the intercept form, None for a column without
    a predictor; ``level``: whether observations return to a level.
    """

    family: object
    log_density: object
    phi: tuple
    made: object = lambda z: 2 * z
    lag: tuple = (np.asarray,)
    level: bool = False


def counted(z):
    return np.floor(np.exp(z + 0.5))


def mixed(z):
    return np.column_stack([z[:, 0], np.clip(z[:, 1], -3, 3), counted(z[:, 2])])


COUNTS, POSITIVE = (counted, (np.log1p,)), (np.exp, (np.log,))
CASES = [
    Case(rh.Gaussian(), log_gaussian, ((-1, 0.8), (2, 2.0)), level=True),
    Case(rh.FreeStudentT(), log_student, ((-1, 0.8, 3.0), (2, 2.0, 7.0)), level=True),
    Case(rh.GaussianMixture(2), log_mixture, ((-1, 1.5, 0.8, 0.4, 0.3), (1, 2.0, 0.5, 2.0, -0.5))),
    Case(rh.LogNormal(), log_log_normal, ((-0.5, 0.8), (1, 0.3)), *POSITIVE),
    Case(rh.GammaEmission(), log_gamma, ((0.7, 2.0), (4.0, 1.5)), *POSITIVE),
    Case(rh.Exponential(), log_exponential, ((0.7,), (4.0,)), *POSITIVE),
    Case(rh.Poisson(), log_poisson, ((0.7,), (4.0,)), *COUNTS),
    Case(rh.ZeroInflatedPoisson(), log_inflated, ((0.7, -1.0), (4.0, 0.5)), *COUNTS),
    Case(rh.NegativeBinomial(3.0), lambda *a: log_negative_binomial(*a, r=3.0), ((0.7,), (4.0,)), *COUNTS),
    Case(rh.FreeNegativeBinomial(), log_negative_binomial, ((0.7, 2.0), (4.0, 9.0)), *COUNTS),
    Case(rh.Bernoulli(), log_bernoulli, ((-1.0,), (1.5,)), lambda z: (z > 0).astype(float)),
    Case(SEVERAL, log_several, ((-1, 0, 0.8, 1.2, 0.4), (2, 1, 2.0, 0.5, -0.7)), lag=(np.asarray,) * 2, level=True),
    Case(DIAGONAL, lambda *a: log_several(*a, family=DIAGONAL), ((-1, 0, 1, 0.8, 1.2, 1), (2, 1, 0, 2.0, 0.5, 1)),
         lag=(np.asarray,) * 3, level=True),
    Case(rh.Product(rh.Gaussian(), rh.VonMises(), rh.Poisson()), log_mixed,
         ((-1, 0.8, 0.3, 0.5, 0.7), (2, 2.0, -0.5, 1.0, 4.0)), mixed, (np.asarray, None, np.log1p)),
]  # fmt: skip


def setting(case, form, missing):
    """Model, parameters and series of a case."""
    rng = np.random.default_rng(3)
    D = len(case.lag)
    y = case.made(rng.normal(size=(T, D)))
    if missing:
        y[2, 0] = np.nan
        y[5] = np.nan
    exog = rng.normal(size=(T, 4))
    series = rh.Series(y if D > 1 else y[:, 0], lengths=LENGTHS, exog=exog)
    of = {
        name: rh.Inputs.of(series, [rh.Columns((f"x{i}",))]) for i, name in enumerate(("inputs", "switching", "scale"))
    }
    if not hook(case.family, "log_scale"):
        del of["scale"]
    ar = {"none": None, "intercept": rh.Intercept(1), "level": rh.AroundLevel(1, conditional=True)}[form]
    model = rh.Model(
        case.family, K, rh.default_priors(case.family, 1, series), start=START, autoregression=ar, **of
    )  # fmt: skip
    coefficients = 0.3 * rng.normal(size=model.every_effect.size)
    return model, model.natural(case.phi, TRANSITION, coefficients), series


def by_enumeration(case, form, model, parameters, series):
    """Log likelihood and smoothed probabilities (T, K), from all paths."""
    effects, rows = model.every_effect, series.read_rows(0, T)
    c, D = parameters.coefficients, rows.y.shape[1]
    design = {name: getattr(effects, name).design(rows) for name in ("location", "switching")}
    zeta = effects.scale.design(rows) @ effects.block("scale", c) if effects.scale else np.zeros(T)
    has = [d for d, lag in enumerate(case.lag) if lag is not None]
    begins, totals, paths = np.cumsum([0, *LENGTHS[:-1]]), [], list(itertools.product(range(K), repeat=T))
    for path in paths:
        total = 0.0
        for t, k in enumerate(path):
            total += np.log(START[k] if t in begins else TRANSITION[path[t - 1], k])
            y, eta = rows.y[t].copy(), np.zeros(D)
            for i, d in enumerate(has):

                def of_inputs(t, k, i=i):
                    shared = design["location"][t] @ effects.block("location", c)[:, i]
                    return shared + design["switching"][t] @ effects.block("switching", c)[:, i, k]

                eta[d] = of_inputs(t, k)
                if form == "none":
                    continue
                before = np.nan if t in begins else rows.y[t - 1, d]
                if form == "intercept":
                    before = case.lag[d](before)
                if form == "level" and t not in begins:
                    j = path[t - 1]
                    before -= parameters.phi[j, d] + of_inputs(t - 1, j)
                if np.isnan(before):
                    y[d] = np.nan  # without its lag, an observation does not count
                else:
                    eta[d] += effects.block("lags", c)[0, i, 0] * before
            if D > 1 or not np.isnan(y[0]):
                total += case.log_density(y, parameters.phi[k], eta, zeta[t])
        totals.append(total)
    value = logsumexp(totals)
    weight = np.exp(np.array(totals) - value)
    return value, np.array([[weight[[p[t] == k for p in paths]].sum() for k in range(K)] for t in range(T)])


COMPILED = ("Poisson()", "MultivariateGaussian(2)")
EVERY = [
    pytest.param(
        case, form, missing, id=f"{case.family!r}-{form}",
        marks=() if form == "intercept" and repr(case.family) in COMPILED else pytest.mark.plain,
    )
    for case in CASES
    for form, missing in (("none", True), ("intercept", True), ("level", False))
    if form != "level" or case.level
]  # fmt: skip


@pytest.mark.parametrize(("case", "form", "missing"), EVERY)
def test_families_on_inputs_agree_with_the_enumeration_of_all_paths(case, form, missing):
    model, parameters, series = setting(case, form, missing)
    value, smoothed = by_enumeration(case, form, model, parameters, series)
    assert rh.log_likelihood(model, parameters, series) == pytest.approx(value, rel=1e-10, abs=1e-10)
    assert rh.predictive_log_density(model, parameters, series).sum() == pytest.approx(value, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(rh.smooth(model, parameters, series), smoothed, rtol=1e-9, atol=1e-10)
    theta, h = model.pack(parameters), 1e-5
    _, slope = rh.log_posterior(model, theta, series)
    differences = [
        (rh.log_posterior(model, theta + h * one, series)[0] - rh.log_posterior(model, theta - h * one, series)[0])
        / (2 * h)
        for one in np.eye(model.size)
    ]
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("case", "form", "missing"), EVERY)
def test_many_points_at_once_have_the_values_of_one_at_a_time(case, form, missing):
    model, parameters, series = setting(case, form, missing)
    theta = model.pack(parameters) + 0.05 * np.random.default_rng(4).normal(size=(2, model.size))
    points = BatchedLogPosterior(model, series, threads=1)
    assert points.edges is not None
    np.testing.assert_allclose(
        points.values(theta), [log_posterior_value(model, row, series) for row in theta], rtol=1e-10
    )


@pytest.mark.parametrize(
    "family",
    [rh.LogNormal(), rh.Bernoulli(), rh.Poisson(), rh.GaussianMixture(2), rh.Product(rh.Gaussian(), rh.Poisson())],
    ids=repr,
)
def test_some_observations_return_to_no_level(family):
    with pytest.raises(ValueError, match=r"no single level that observations could return to\. Use Intercept\(1\)"):
        rh.Model(family, 2, rh.no_priors(family), autoregression=rh.AroundLevel(1))
