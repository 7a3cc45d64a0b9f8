"""A sample of blocks that stands for a series with inputs and lags: right on average, and exact near the mode."""

import functools
import itertools

import numpy as np
import pytest
from scipy.signal import lfilter

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.model.autoregression import AroundLevel
from rarehmm.sampling import stand_in as module
from rarehmm.sampling.diagnostics import STANDING_IN
from rarehmm.sampling.methods import Job
from rarehmm.search.long_series import (
    anchor,
    anchored_sample,
    full_pass,
    inclusion_probabilities,
    read_blocks,
    with_exact_curvature,
)


@functools.cache
def setting(T=4000):
    """Mode of two levels with autocorrelated noise and an input."""
    rng = np.random.default_rng(0)
    load, states = rng.normal(size=(T, 1)), np.arange(T) % 200 > 180
    y = 4.0 * states + lfilter([1.0], [1.0, -0.6], rng.normal(size=T)) + 0.5 * load[:, 0]
    series = rh.Series(y, exog=load)
    model = rh.Model(
        rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), autoregression=AroundLevel(1),
        inputs=Inputs.of(series, [Columns()]),
    )  # fmt: skip
    start = model.natural([[0.0, 1.0], [4.0, 1.0]], [[0.99, 0.01], [0.1, 0.9]], [0.5, 0.6])
    return series, rh.find_mode(model, series, start)


def away(mode, size=1.0, n=6):
    return mode.theta + size * np.random.default_rng(1).normal(size=(n, len(mode.theta))) @ mode.factor.T


def every_sample(probabilities):
    """All systematic samples with these inclusion probabilities, and how probable each is."""
    total = np.cumsum(probabilities)
    edges = np.unique(np.concatenate([[0.0, 1.0], total % 1]))
    for low, high in itertools.pairwise(edges):
        at = (low + high) / 2 + np.arange(int(np.ceil(total[-1])))
        yield high - low, np.unique(np.searchsorted(total, at[at < total[-1]], side="right"))


@pytest.mark.jit
def test_the_log_posterior_of_a_sample_is_right_on_average():
    """By enumeration of all samples, two standard deviations from the mode, whatever correction they have."""
    series, mode = setting()
    theta = away(mode, 2.0, 2)
    exact = BatchedLogPosterior(mode.model, series, 1).values(theta)
    whole = full_pass(mode.model, mode.theta, series, 1, size=1000)
    probabilities = inclusion_probabilities(np.maximum(whole.shares, 0.01), 3.0)
    means, errors = np.zeros((2, len(theta))), []
    for share, at in every_sample(probabilities):
        sample = read_blocks(series, whole.blocks, at, 1 / probabilities[at], 128, 1)
        anchor(mode.model, mode.theta, sample, whole.sums, np.linalg.norm(mode.factor, axis=1), 1)
        values = [BatchedLogPosterior(mode.model, sample, 1).values(theta)]
        with_exact_curvature(mode, sample, 1)
        values.append(BatchedLogPosterior(mode.model, sample, 1).values(theta))
        means += share * np.array(values)
        errors.append(values[0] - exact)
    np.testing.assert_allclose(means, [exact, exact], rtol=0, atol=3e-3)
    assert np.std(errors, axis=0).min() > 0.25  # of single samples


@pytest.mark.jit
def test_a_sample_is_exact_at_the_mode_up_to_the_curvature():
    series, mode = setting()
    sample = anchored_sample(np.random.default_rng(2), mode, series, 1000, 1)
    with_exact_curvature(mode, sample, 1)
    points = BatchedLogPosterior(mode.model, sample, 1)
    value, slope = rh.log_posterior(mode.model, mode.theta, sample, threads=1)
    exact, exact_slope = rh.log_posterior(mode.model, mode.theta, series, threads=1)
    assert value == pytest.approx(exact, abs=1e-8)
    np.testing.assert_allclose(mode.factor.T @ (slope - exact_slope), 0.0, atol=1e-8)
    near = away(mode, 0.2, 20)
    found, right = (p.values(near) - exact for p in (points, BatchedLogPosterior(mode.model, series, 1)))
    np.testing.assert_allclose(found, right, atol=2e-3)
    first = anchored_sample(np.random.default_rng(2), mode, series, 1000, 1)
    assert np.abs(BatchedLogPosterior(mode.model, first, 1).values(near) - exact - right).max() > 2e-3
    steps = 1e-3 * np.linalg.norm(mode.factor, axis=1)
    for i, step in enumerate(np.diag(steps)):  # the gradient bends as that of the series does
        change = rh.log_posterior(mode.model, mode.theta + step, sample, threads=1)[1] - slope
        np.testing.assert_allclose(mode.factor.T @ (change / steps[i] + mode.hessian[i]) * steps[i], 0.0, atol=1e-4)


@pytest.mark.jit
def test_a_sample_stands_in_only_if_its_error_is_small(monkeypatch):
    series, mode = setting()
    job = Job(np.random.default_rng(3), mode, series, threads=1, whole=series)
    assert module.stand_in(job) == (series, [])  # too short to be worth it
    monkeypatch.setattr(module, "SIZES", (300, 1000))
    sample, (check,) = module.stand_in(job)
    assert len(sample) < len(series) / 2
    assert check.passed
    theta = away(mode, n=30)
    values = [BatchedLogPosterior(mode.model, data, 1).values(theta) for data in (series, sample)]
    assert 0.2 * check.value < np.std(values[1] - values[0]) < 5 * check.value < 5 * STANDING_IN
    monkeypatch.setattr(module, "STANDING_IN", 1e-9)
    assert module.stand_in(job) == (series, [])
