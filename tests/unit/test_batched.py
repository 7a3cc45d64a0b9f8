"""Many points at once: the same log posteriors and gradients as one pass for each."""

import numpy as np
import pytest
from small_models import FAMILIES, Pair, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.model.coordinates import ExpandedMean

CASES = {type(family).__name__: (family, {}) for family in (*FAMILIES, Pair())} | {
    "start": (rh.Gaussian(), {"start": np.array([0.2, 0.5, 0.3])}),
    "expanded": (rh.Gaussian(), {"coordinates": ExpandedMean()}),
    "natural": (rh.Gaussian(), {"logs": False}),
}


@pytest.mark.parametrize(("family", "more"), CASES.values(), ids=CASES)
def test_values_and_slopes_are_those_of_single_passes(family, more):
    rng = np.random.default_rng(3)
    model = model_of(family, 3, **more)
    parameters = parameters_of(rng, model)
    series = rh.Series([series_of(rng, model, parameters, T, missing=0.2) for T in (1, 2, 40, 61)])
    theta = model.pack(parameters) * rng.uniform(0.9, 1.1, (18, model.size))
    expected = [rh.log_posterior(model, row, series) for row in theta]
    points = BatchedLogPosterior(model, series, threads=2)
    values, slopes = points.values_and_slopes(theta)
    np.testing.assert_allclose(values, [v for v, _ in expected], rtol=1e-10)
    np.testing.assert_allclose(points.values(theta), values, rtol=1e-12)
    np.testing.assert_allclose(slopes, [s for _, s in expected], rtol=1e-7, atol=1e-7)


def test_the_constant_of_the_prior_is_kept():
    """The kernels know priors up to a constant only; ``Points`` puts it back."""
    rng = np.random.default_rng(0)
    model = rh.Model(rh.Gaussian(), 2, rh.Priors((rh.Normal(1.0, 2.0), rh.Flat()), rh.Dirichlet(0.3)))
    parameters = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, parameters, 50))
    theta = model.pack(parameters)
    assert BatchedLogPosterior(model, series).values(theta[None])[0] == pytest.approx(
        rh.log_posterior(model, theta, series)[0]
    )


@pytest.mark.parametrize("exponent", [-40, -10, 0, 8, 20, 40])
@pytest.mark.parametrize("family", [rh.Gaussian(), rh.MultivariateGaussian(2)], ids=str)
def test_the_constant_is_kept_in_whatever_unit_the_series_is(family, exponent):
    """Where the unit is far from the data, a prior is 1e-20 or so at a place that has nothing to do with them."""
    rng, K, D = np.random.default_rng(0), 2, len(family.parameters)
    y = 10.0**exponent * rng.normal(size=(60, 2 if D > 2 else 1))
    series = rh.Series(y)
    model = rh.Model(family, K, rh.default_priors(family, K, series))
    phi = np.concatenate([y[:2], np.tile(y.var(0), (2, 1)), np.zeros((2, D - 2 * y.shape[1]))], axis=1)
    theta = model.pack(model.natural(phi, np.full((K, K), 0.5)))
    far = theta + 30 * (np.arange(model.size) == y.shape[1] * K)  # a variance e^30 times as large
    expected, _ = rh.log_posterior(model, theta, series)
    assert BatchedLogPosterior(model, series).values(np.array([far, theta]))[1] == pytest.approx(expected, rel=1e-12)


def test_what_is_out_of_bounds_has_no_density_and_tiny_transitions_are_done_with_care():
    rng = np.random.default_rng(1)
    model = model_of(rh.Gaussian(), 2)
    parameters = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, parameters, 50))
    theta = np.tile(model.pack(parameters), (3, 1))
    theta[0, 2] = 1e4
    theta[1, -1] = -200.0  # a transition of e^-200
    values, slopes = BatchedLogPosterior(model, series).values_and_slopes(theta)
    assert values[0] == -np.inf
    assert not slopes[0].any()
    for i in (1, 2):
        value, slope = rh.log_posterior(model, theta[i], series)
        assert values[i] == pytest.approx(value)
        np.testing.assert_allclose(slopes[i], slope, rtol=1e-7, atol=1e-9)


@pytest.mark.jit
def test_a_long_series_is_read_in_stretches(monkeypatch):
    rng = np.random.default_rng(2)
    model = model_of(rh.Gaussian(), 3)
    parameters = parameters_of(rng, model, gap=3.0)
    series = rh.Series([rng.normal(size=n) for n in (70_000, 65_536, 100)])
    theta = np.tile(model.pack(parameters), (2, 1)) * np.array([[1.0], [1.02]])
    points = BatchedLogPosterior(model, series)
    monkeypatch.setattr(points, "short", False)
    values, slopes = points.values_and_slopes(theta)
    np.testing.assert_allclose(points.values(theta), values, rtol=1e-11)
    np.testing.assert_array_equal(slopes[1], rh.log_posterior(model, theta[1], series)[1])


def test_improbable_transitions_are_looked_at_one_by_one():
    rng = np.random.default_rng(0)
    model = model_of(rh.Gaussian(), 2)
    parameters = parameters_of(rng, model, gap=4.0)
    series = rh.Series(series_of(rng, model, parameters, 30))
    theta = np.tile(model.pack(parameters), (3, 1))
    theta[1, -2:] = -220.0  # of e^-220 beside 1
    values = BatchedLogPosterior(model, series).values(theta)
    np.testing.assert_allclose(values, [rh.log_posterior(model, row, series)[0] for row in theta], rtol=1e-9)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_goes_wrong_in_a_thread_is_told(threads, monkeypatch):
    rng = np.random.default_rng(0)
    model = model_of(rh.Gaussian(), 2)
    parameters = parameters_of(rng, model)
    points = BatchedLogPosterior(model, rh.Series(series_of(rng, model, parameters, 30)), threads)

    def fail(*_):
        raise KeyError("in a thread")

    monkeypatch.setattr(points, "_batch", fail)
    with pytest.raises(KeyError, match="in a thread"):
        points._together(np.tile(model.pack(parameters), (100, 1)), False)
