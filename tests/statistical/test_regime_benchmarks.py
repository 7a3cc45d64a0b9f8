"""Small twins of the benchmarks of models with season, autocorrelation, inputs and phases."""

import numpy as np
import pytest
import regime_comparison
import regime_cost
import regime_finding
import regime_posterior
from regime_configurations import CASES, simulated

import rarehmm as rh

pytestmark = pytest.mark.jit

SMALL = {
    "AR(1) .6, levels -2, 0, 4": (), "transitions with an input": (), "phases": pytest.mark.nightly,
    "two shared inputs, one that switches": pytest.mark.nightly, "counts with season": pytest.mark.nightly,
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in SMALL.items()])
def test_posteriors_are_those_of_long_chains_on_all_data(name):
    found = regime_posterior.one(name, 7, 600, size=15_000)
    assert found["passed"], found["verdict"]
    assert found["good"]
    assert found["reached"] > -1
    assert found["effective"] > 300


def test_the_reference_would_notice_intervals_that_are_too_narrow():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=(4, 2000, 3))
    assert regime_posterior.compared(rng.normal(size=(1, 3000, 3)), gold)["good"]
    assert not regime_posterior.compared(0.7 * rng.normal(size=(1, 3000, 3)), gold)["good"]
    assert not regime_posterior.compared(0.5 + rng.normal(size=(1, 3000, 3)), gold)["good"]


@pytest.mark.parametrize("name", CASES)
def test_rare_states_are_as_rare_as_they_should_be(name):
    model, series, truth, states = simulated(CASES[name], 7, 30_000)
    assert 0.005 < np.mean(states == states.max()) < 0.025
    assert np.isfinite(rh.log_posterior(model, model.pack(truth), series, threads=1)[0])


def test_rare_states_in_autocorrelated_noise_are_found():
    (cell,) = [cell for cell in regime_finding.cases() if (cell[0], cell[1].name) == ("AR(1) .6", "0.5 %, 4 sd")]
    found = regime_finding.one(*cell, 0, size=12_000)
    assert found["truth"] > 0.7
    assert found["found"] > 0.7
    assert found["reached"] > -3


def test_fits_are_judged_by_the_model_that_they_are_of():
    y, rare, oracle = regime_comparison.data(2000, 0)
    _, _, truth, _ = simulated(regime_comparison.CASE, 0, 2000)
    (levels, variances), lag = truth.phi.T, truth.coefficients
    assert oracle > 0.5
    assert rare.sum() >= 3
    found = regime_comparison.judged(None, 0, y, [levels, variances, truth.transition, lag, np.asarray("level")])
    assert found["found"]
    other = [levels * 0.4, variances, truth.transition, lag, np.asarray("intercept")]
    assert regime_comparison.judged(None, 0, y, other)["log_likelihood"] < found["log_likelihood"]
    other[1] = variances * np.nan
    assert not regime_comparison.judged(None, 0, y, other)["found"]


def test_figures_are_held_against_their_limits():
    found = regime_cost.measured(regime_cost.ALONE, 4000, 1)
    assert found["effective"] > 800
    (first, *_) = regime_cost.kept([found | {"us": 50.0}])
    assert first == ("AR(1) .6: 50 µs an effective draw (limit 100)", True)
    assert [reached for _, reached in regime_cost.kept([found | {"us": 50.0}, found | {"us": 101.0}])] == [False, False]
