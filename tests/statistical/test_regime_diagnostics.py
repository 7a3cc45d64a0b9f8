"""Diagnostics of models with season and autocorrelated noise have teeth: each error is seen, and nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from regime_configurations import around, simulated

import rarehmm as rh
from rarehmm.data.inputs import Season
from rarehmm.posterior.model_check import check_model
from rarehmm.sampling.diagnostics import check_block_sample, check_gradients, check_mixing, mixing
from rarehmm.sampling.importance import Roots, laplace_importance
from rarehmm.search.long_series import anchored_sample

pytestmark = pytest.mark.jit

CASE = around([-5, 0, 10], 0.6, seasons=(Season(600, 2),), waves={"sin(600) 1": 1.5})


@pytest.fixture(scope="module")
def fitted():
    """Mode, series and draws (n, d) of the posterior of a short series."""
    model, series, truth, _ = simulated(CASE, 3, 12_000)
    mode = rh.find_mode(model, series, truth, threads=1)
    rng = np.random.default_rng(0)
    weighted = laplace_importance(rng, Roots(mode, series, 1), (800,), limit=None)
    return mode, series, rng.permutation(weighted.resample(rng, 800))


def failures(fitted, theta):
    """Checks against exact gradients that draws (n, d) of theta fail."""
    mode, series, _ = fitted
    return {
        c.name for c in check_gradients(np.random.default_rng(1), mode, series, theta[None], 800.0, 1) if not c.passed
    }


def changed(fitted, name, change):
    """The draws with one parameter changed."""
    mode, _, theta = fitted
    out, i = theta.copy(), mode.model.component_names.index(name)
    out[:, i] = change(out[:, i])
    return out


def test_draws_of_the_posterior_pass(fitted):
    assert failures(fitted, fitted[2]) == set()


@pytest.mark.parametrize("name", ["atanh partial 1", "sin(600) 1", "mean[2]"])
def test_a_shift_of_a_parameter_is_seen(fitted, name):
    """By one standard deviation: a wrong rho, season or level."""
    assert failures(fitted, changed(fitted, name, lambda x: x + x.std())) == {"Stein discrepancy"}


@pytest.mark.parametrize("name", ["atanh partial 1", "sin(600) 1"])
def test_a_parameter_that_does_not_move_is_seen(fitted, name):
    assert "spread" in failures(fitted, changed(fitted, name, lambda x: np.full(len(x), x.mean())))


def test_a_chain_that_stands_still_is_seen(fitted):
    mode, _, theta = fitted
    chains, names = theta.reshape(4, 200, -1), mode.model.component_names
    assert all(c.passed for c in check_mixing(mixing(chains), names, 300.0))
    frozen = chains.copy()
    frozen[2] = chains[2, :1] + 1e-9 * np.arange(200)[:, None]
    assert not all(c.passed for c in check_mixing(mixing(frozen), names, 300.0))


def test_a_season_that_is_left_out_is_seen(fitted):
    mode, series, _ = fitted

    def failed(model, start):
        found = rh.find_mode(model, series, start, threads=1)
        draws = found.theta + np.random.default_rng(2).standard_normal((1, 20, model.size)) @ found.factor.T
        phi, transition = found.model.unpack_all(draws[0])
        coefficients = found.model.unpack_coefficients(draws[0])
        posterior = rh.Posterior(found.model, phi[None], transition[None], "laplace", coefficients=coefficients[None])
        return {c.name for c in check_model(posterior, series, threads=1).checks if not c.passed}

    point = mode.model.unpack(mode.theta)
    assert failed(mode.model, point) == set()
    without = replace(mode.model, inputs=None)
    begin = without.natural(point.phi, point.transition, point.coefficients[-1:])
    assert failed(without, begin) == {"slow waves"}


def test_too_few_blocks_are_seen():
    model, series, truth, _ = simulated(around([-2, 0, 4], 0.6), 4, 60_000)
    mode = rh.find_mode(model, series, truth, threads=1)

    def failed(size):
        rng = np.random.default_rng(0)
        sample = anchored_sample(rng, mode, series, size, 1)
        return {c.name for c in check_block_sample(rng, mode, sample, series, 1) if not c.passed}

    assert failed(1 << 14) == set()
    assert "block sampling" in failed(1 << 9)
