"""Ascent reaches the mode, and the variational Gaussian the one of a posterior that is nearly Gaussian."""

import numpy as np
import pytest
from small_models import model_of

import rarehmm as rh
from rarehmm.designs.targeted import targeted
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.design import pooled
from rarehmm.engine.contracts.sampler import DivergedError
from rarehmm.sampling.variational import Ascent, GaussianApproximation, ascend, gaussian_approximation
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows


def setting(T=3000):
    """Two well-separated states: the posterior is nearly Gaussian.  Model, series, windows, mode, its covariance."""
    model = model_of(rh.Gaussian(), 2)
    truth = model.parameters([[0.9, 0.1], [0.3, 0.7]], mean=[0, 5], variance=[1, 2])
    series = rh.Series(rh.simulate(np.random.default_rng(0), model, truth, T)[0])
    mode = model.pack(rh.climb(model, series, truth, tolerance=1e-10).parameters)
    hessian = np.empty((model.size, model.size))
    for i in range(model.size):
        move = np.zeros(model.size)
        move[i] = 1e-4
        up, down = (rh.log_posterior(model, mode + s * move, series)[1] for s in (1, -1))
        hessian[i] = -(up - down) / 2e-4
    return model, series, Windows(series, 2, 5), mode, np.linalg.inv((hessian + hessian.T) / 2)


@pytest.mark.jit
@pytest.mark.parametrize("design", ["uniform", "targeted"])
def test_ascent_and_variational_inference_find_mode_and_covariance(design):
    model, series, windows, mode, covariance = setting()
    info = WindowInformation(model, mode, series, windows)
    chosen = pooled({"uniform": uniform, "targeted": targeted}[design](info))
    pool, sd = Pool(model, series, windows, chosen, 32), np.sqrt(np.diag(covariance))
    start = mode + 10 * sd * np.array([1, -1, 1, -1, 1, -1])
    found = ascend(np.random.default_rng(1), model, pool, start, 10_000)
    np.testing.assert_array_less(np.abs(found - mode) / sd, 0.25)
    q = gaussian_approximation(np.random.default_rng(2), model, pool, found, 30_000)
    np.testing.assert_array_less(np.abs(q.mean - mode) / sd, 0.25)
    np.testing.assert_allclose(q.standard_deviations / sd, 1.0, atol=0.12)
    correlation = (q.factor @ q.factor.T) / np.outer(q.standard_deviations, q.standard_deviations)
    np.testing.assert_allclose(correlation, covariance / np.outer(sd, sd), atol=0.12)


def test_draws_of_the_gaussian_follow_it():
    factor = np.array([[2.0, 0.0], [1.0, 0.5]])
    draws = GaussianApproximation(np.array([1.0, -1.0]), factor).draw(np.random.default_rng(0), 200_000)
    np.testing.assert_allclose(draws.mean(0), [1, -1], atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), factor @ factor.T, rtol=0.02)


def test_bad_settings_are_refused():
    model, series, windows, mode, _ = setting(200)
    pool = Pool(model, series, windows, uniform(windows), 2)
    for more, message in (({"rate": 0.0}, "rate of Ascent is 0.0"), ({"steps": 1}, "steps is 1")):
        with pytest.raises(ValueError, match=message):
            ascend(np.random.default_rng(0), model, pool, mode, **{"steps": 10, **more})
    with pytest.raises(ValueError, match=r"scale of GaussianAscent is -1"):
        gaussian_approximation(np.random.default_rng(0), model, pool, mode, 10, scale=-1.0)
    natural = rh.Model(rh.Gaussian(), 2, model.priors, logs=False)
    with pytest.raises(ValueError, match=r"variance\[0\] must stay positive and Ascent moves freely"):
        ascend(np.random.default_rng(0), natural, pool, natural.pack(model.unpack(mode)), 10)
    assert Ascent(0.1, 5).noise_rows == 0


@pytest.mark.jit
def test_a_few_steps_lead_uphill_and_towards_the_curvature():
    """From two standard deviations away, in steps too few to arrive; the long run above is the one that must."""
    model, series, windows, mode, covariance = setting(60)
    pool, sd = Pool(model, series, windows, uniform(windows), 4), np.sqrt(np.diag(covariance))
    start = mode + 2 * sd
    found = ascend(np.random.default_rng(1), model, pool, start, 200)
    heights = [rh.log_posterior(model, x, series)[0] for x in (start, found, mode)]
    assert heights[0] + 1 < heights[1] < heights[2] + 1e-6
    q = gaussian_approximation(np.random.default_rng(2), model, pool, mode, 100, scale=0.1)
    assert q.mean.shape == (6,)
    assert (np.triu(q.factor, 1) == 0).all()
    assert (np.diag(q.factor) > 0).all()
    np.testing.assert_array_less(np.abs(q.mean - mode) / sd, 2.0)
    assert q.draw(np.random.default_rng(0), 7).shape == (7, 6)
    np.testing.assert_allclose(q.standard_deviations, np.sqrt(np.diag(q.factor @ q.factor.T)))


def test_an_ascent_that_runs_away_is_said():
    model, series, windows, mode, _ = setting(60)
    pool = Pool(model, series, windows, uniform(windows), 4)
    with pytest.raises(DivergedError, match="diverged"):
        ascend(np.random.default_rng(0), model, pool, mode, 20, rate=1e4)
