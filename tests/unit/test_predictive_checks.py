"""Posterior predictive checks: quiet where the model is right, and wrong where it is wrong."""

import numpy as np
import pytest
from scipy.signal import lfilter
from small_models import FAMILIES, model_of, parameters_of

import rarehmm as rh
from rarehmm.engine.dispatch import JIT
from rarehmm.posterior.predictive_checks import FAR, check_predictive, replicate, statistics_of


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_series_of_the_model_are_like_its_replicas(family):
    rng = np.random.default_rng(0)
    model = model_of(family, 2)
    truth = parameters_of(rng, model, gap=4.0)
    bad = 0
    for _ in range(20):
        y = np.concatenate([rh.simulate(rng, model, truth, 400)[0] for _ in range(2)])
        y[100:150] = np.nan
        bad += sum(not c.passed for c in check_predictive(rng, model, [truth], rh.Series(y, lengths=[400, 400]), 30))
    assert bad <= 2  # of 140


def with_a_ramp(y):
    """The highest 1.2 % next to each other."""
    y[: int(0.012 * len(y))] = np.linspace(3.2, 3.0, int(0.012 * len(y)))
    return y


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (lambda rng, n: rng.standard_t(2, n), "maximum"),
        (lambda rng, n: rng.standard_t(2, n), "minimum"),
        (lambda rng, n: 0.6 * lfilter([1], [1, -0.8], rng.normal(size=n)), "lag-1 autocorrelation"),
        (lambda rng, n: 1.2 * rng.normal(size=n), "standard deviation"),
        (lambda rng, n: rng.normal(0.2, 1, size=n), "mean"),
        (lambda rng, n: with_a_ramp(rng.normal(size=n)), "longest such excursion"),
        (lambda rng, n: rng.standard_t(2, n), "excursions into the top 1 %"),
    ],
)
def test_what_is_unlike_is_said(noise, said):
    rng = np.random.default_rng(1)
    model = model_of(rh.Gaussian(), 1)
    point = model.parameters([[1.0]], mean=0.0, variance=1.0)
    checks = check_predictive(rng, model, [point], rh.Series(noise(rng, 4000)), 30)
    assert said in [c.name for c in checks if not c.passed]


@pytest.mark.jit
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y, size: y + 0.02 * size, "mean"),
        (lambda y, size: y * (1 + 0.01 * size), "standard deviation"),
        (lambda y, size: lfilter([1], [1, -0.015 * size], y), "lag-1 autocorrelation"),
    ],
)
def test_what_is_sure_but_negligible_passes(change, said):
    """A hundred thousand observations show a difference that does not matter; ten times as much of it does."""
    rng = np.random.default_rng(0)
    model = model_of(rh.Gaussian(), 1)
    point = model.parameters([[1.0]], mean=0.0, variance=1.0)
    y = rng.normal(size=100_000)
    small, large = (
        {c.name: c for c in check_predictive(rng, model, [point], rh.Series(change(y, size)), 30)} for size in (1, 10)
    )
    assert small[said].passed
    assert abs(small[said].value) > FAR
    assert not large[said].passed


@pytest.mark.jit
def test_extremes_of_rounded_data_are_negligible():
    rng = np.random.default_rng(0)
    model = rh.Model(rh.Exponential(), 1, rh.no_priors(rh.Exponential()))
    y = np.maximum(rng.exponential(1.0, 50_000), 0.01)
    checks = check_predictive(rng, model, [model.parameters([[1.0]], mean=1.0)], rh.Series(y), 30)
    lowest = next(c for c in checks if c.name == "minimum")
    assert lowest.value > FAR
    assert lowest.passed


def test_what_is_measured_is_what_it_says():
    y = np.array([1.0, 5, 6, 1, np.nan, 7, 1, 2])
    found = statistics_of(y, np.array([0, 3, 8]), 4.0)
    seen = y[~np.isnan(y)]
    assert found["maximum"] == 7
    assert found["excursions into the top 1 %"] == 2
    assert found["longest such excursion"] == 2
    pairs = np.array([[1, 5], [5, 6], [7, 1], [1, 2]]) - seen.mean()
    assert found["lag-1 autocorrelation"] == pytest.approx(pairs.prod(1).sum() / (pairs[:, 0] ** 2).sum())


def test_replicas_have_gaps_and_columns():
    family = rh.MultivariateGaussian(2)
    model = rh.Model(family, 1, rh.Priors((rh.Normal(0, 1),) * 5))
    point = model.natural(family.phi_of([[0, 9]], [np.eye(2)]), [[1.0]])
    y = np.zeros((60, 2))
    y[3, 1] = np.nan
    copy = next(replicate(np.random.default_rng(0), model, [point], rh.Series(y, lengths=[20, 40])))
    assert np.argwhere(np.isnan(copy)).tolist() == [[3, 1]]
    y = copy + np.array([0, 3])
    checks = check_predictive(np.random.default_rng(0), model, [point], rh.Series(y), 20)
    assert "mean of column 1" in [c.name for c in checks if not c.passed]
    assert "mean of column 0" not in [c.name for c in checks if not c.passed]


def test_the_estimator_says_it_in_words():
    rng = np.random.default_rng(0)
    T, method = (3000, "auto") if JIT else (600, "map")
    y = rng.normal(size=T)
    y[T // 3 : T // 3 + 40] += 7
    hmm = rh.RareHMM(2, method=method, n_draws=200).fit(y)
    found = hmm.check(y)
    assert found.passed
    assert str(found) == "The model fits the series."
    assert len(found.describe().splitlines()) == 14
    heavy = hmm.check(y + 3 * rng.standard_t(1.5, T))
    assert not heavy.passed
    assert "heavier than the family's: try StudentT" in str(heavy)
    assert "maximum" in str(heavy)
