"""Residuals are standard normal where the model is right, and say what is wrong where it is not."""

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.stats import kstest
from small_models import FAMILIES, Pair, model_of, parameters_of

import rarehmm as rh
from rarehmm.conformance.emission import integral
from rarehmm.emissions import families
from rarehmm.engine.contracts.family import domains
from rarehmm.posterior.model_check import ModelCheck
from rarehmm.posterior.residuals import check_residuals, pseudo_residuals


@pytest.mark.parametrize("family", [f() for f in families().values() if hasattr(f, "cdf")], ids=repr)
def test_the_distribution_function_is_the_integral_of_the_density(family):
    phi, domain = np.array([1.3 if p.support == "positive" else 0.4 for p in family.parameters]), domains(family)[0]
    near = {"rel": 1e-10} if domain.whole else {"abs": 1e-7}
    for y in np.arange(6.0) if domain.whole else (-1.0, 0.4, 3.0):
        if y > domain.low or domain.whole:
            assert family.cdf(np.array([y]), phi)[0] == pytest.approx(integral(family, phi, below=y), **near)
    if domain.whole:
        assert family.cdf(np.array([-1.0]), phi)[0] == 0.0
    assert np.isnan(family.cdf(np.array([np.nan]), phi)[0])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_residuals_of_the_true_model_are_standard_normal(family):
    rng = np.random.default_rng(3)
    model = model_of(family, 3)
    truth = parameters_of(rng, model, gap=3.0)
    y = np.concatenate([rh.simulate(rng, model, truth, n)[0] for n in (1500, 1500)])
    y[40:60] = np.nan
    series = rh.Series(y, lengths=[1500, 1500])
    found = pseudo_residuals(rng, model, truth, series)
    assert np.flatnonzero(np.isnan(found)).tolist() == list(range(40, 60))
    seen = found[~np.isnan(found)]
    assert kstest(seen, "norm").pvalue > 1e-3
    checks = check_residuals(found, series.bounds)
    assert all(c.passed for c in checks), checks
    assert str(ModelCheck(checks)) == "The model fits the series."
    assert kstest(1.2 * seen, "norm").pvalue < 1e-3  # 20 % too wide would show


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (lambda rng, n: rng.standard_t(2, n), "outlying residuals"),
        (lambda rng, n: lfilter([1], [1, -0.8], rng.normal(size=n)) * 0.6, "residual autocorrelation"),
        (lambda rng, n: rng.normal(size=n) + np.linspace(-1, 1, n), "drift"),
        (lambda rng, n: rng.normal(size=n) + 0.5 * np.sin(np.arange(n) / 20), "slow waves"),
        (lambda rng, n: 1.5 * rng.normal(size=n), "spread of residuals"),
        (lambda rng, n: rng.normal(size=n) * np.repeat(rng.choice([0.2, 1.5], n // 20), 20), "volatility clustering"),
    ],
)
def test_what_is_wrong_is_said(noise, said):
    rng = np.random.default_rng(0)
    model = model_of(rh.Gaussian(), 1)
    series = rh.Series(noise(rng, 4000))
    checks = check_residuals(
        pseudo_residuals(rng, model, model.parameters([[1.0]], mean=0, variance=1), series), series.bounds
    )
    assert said in [c.name for c in checks if not c.passed]
    assert str(ModelCheck(checks)).startswith("The model does not fit the series: ")


def test_a_family_without_a_distribution_function_says_so():
    model = rh.Model(Pair(), 1, rh.no_priors(Pair()))
    with pytest.raises(TypeError, match="has no 'cdf'"):
        pseudo_residuals(np.random.default_rng(0), model, None, rh.Series(np.ones((3, 2))))


def test_one_observation_is_no_tail():
    residuals = np.random.default_rng(0).normal(size=100)
    for count in (1, 2):
        residuals[:count] = 5.0
        found = {c.name: c for c in check_residuals(residuals, np.array([0, 100]))}["outlying residuals"]
        assert (found.value, found.passed) == (count / 100, count == 1)


def test_a_column_that_is_never_there_is_not_checked():
    assert check_residuals(np.full(5, np.nan), np.array([0, 2, 5])) == []


@pytest.mark.plain
def test_counts_beside_small_positive_numbers():
    """One less is asked of counts alone: of the others it would be far below zero."""
    family = rh.Product(rh.Bernoulli(), rh.Exponential())
    model = rh.Model(family, 1, rh.no_priors(family))
    point = model.natural([[0.0, 1e-7]], [[1.0]])
    y, _ = rh.simulate(np.random.default_rng(0), model, point, 2000)
    found = pseudo_residuals(np.random.default_rng(1), model, point, rh.Series(y))
    for column in found.T:
        assert kstest(column, "norm").pvalue > 1e-3
