"""Posteriors of models whose rows differ: many points at once, sampling, what is reported."""

import zlib

import numpy as np
import pytest
from regime_cases import as_model, covering, label, make_case

import rarehmm as rh
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.model.autoregression import AroundLevel
from rarehmm.model.coefficients import LARGEST_ANGLE

CHOICES = covering()


def case_of(choice):
    """Model, parameters and series of a choice, with proper priors."""
    return as_model(make_case(choice, zlib.crc32(label(choice).encode())), "default")


def cloud(model, parameters, n, seed=0):
    """Points theta (n, d) around parameters."""
    return model.pack(parameters) + 0.1 * np.random.default_rng(seed).standard_normal((n, model.size))


def differences(points, theta, h=1e-5):
    """Gradient (d,) at theta (d,) by central differences of values."""
    steps = h * np.eye(len(theta))
    up, down = points.values(theta + steps), points.values(theta - steps)
    return (up - down) / (2 * h)


# ---------------------------------------------------------------- many points at once
@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_values_and_slopes_of_many_points_are_those_of_single_passes_and_of_differences(choice):
    model, parameters, series = case_of(choice)
    theta = cloud(model, parameters, 3)
    points = BatchedLogPosterior(model, series, threads=1)
    values, slopes = points.values_and_slopes(theta)
    expected = [rh.log_posterior(model, row, series, threads=1) for row in theta]
    np.testing.assert_allclose(values, [value for value, _ in expected], rtol=1e-12)
    np.testing.assert_allclose(slopes, [slope for _, slope in expected], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(points.values(theta), values, rtol=1e-12)
    np.testing.assert_allclose(slopes[0], differences(points, theta[0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tied", [("variance",), ("mean", "variance")])
@pytest.mark.parametrize("states", [None, [0, -1, -1, 1, -1, -1, -1, 0, -1]])
def test_tied_values_and_known_states_count_in_the_same_way(tied, states):
    series = rh.Series([0.3, -1.2, np.nan, 2.5, 0.9, 1.1, -0.4, 3.0, 2.2], [5, 4], states=states)
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), tied=tied)
    phi = [[0.5, 1.0], [0.5 if "mean" in tied else 2.0, 1.0]]
    theta = cloud(model, model.natural(phi, [[0.8, 0.2], [0.4, 0.6]]), 3)
    points = BatchedLogPosterior(model, series, threads=1)
    values, slopes = points.values_and_slopes(theta)
    expected = [rh.log_posterior(model, row, series, threads=1) for row in theta]
    np.testing.assert_allclose(values, [value for value, _ in expected], rtol=1e-12)
    np.testing.assert_allclose(points.values(theta), values, rtol=1e-12)
    np.testing.assert_allclose(slopes[0], differences(points, theta[0]), rtol=1e-6, atol=1e-6)


def test_points_out_of_bounds_or_at_the_edge_of_stationarity_have_no_density():
    series = rh.Series(np.random.default_rng(0).normal(size=20))
    priors = rh.default_priors(rh.Gaussian(), 1, series)
    model = rh.Model(rh.Gaussian(), 2, priors, autoregression=AroundLevel(3))
    theta = np.tile(model.pack(model.natural([[0.0, 1.0], [1.0, 2.0]], [[0.8, 0.2], [0.4, 0.6]])), (3, 1))
    theta[0, -3:] = LARGEST_ANGLE  # partial autocorrelations that round to 1
    theta[1, 0] = np.inf
    values, slopes = BatchedLogPosterior(model, series, threads=1).values_and_slopes(theta)
    np.testing.assert_array_equal(values[:2], -np.inf)
    np.testing.assert_array_equal(slopes[:2], 0.0)
    assert values[2] == rh.log_posterior(model, theta[2], series)[0]
