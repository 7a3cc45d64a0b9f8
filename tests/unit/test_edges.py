"""Models whose rows differ, beside the enumeration of all paths: inputs, lags, phases, known and missing values."""

import zlib

import numpy as np
import pytest
from oracle_regimes import enumerate_regimes
from regime_cases import as_model, covering, every_choice, label, make_case, with_rows

from rarehmm import (
    Gaussian,
    Model,
    Series,
    decode,
    default_priors,
    filter_states,
    joint_log_density,
    log_likelihood,
    log_posterior,
    predictive_log_density,
    smooth,
)
from rarehmm.exact.edge_pass import EdgePass
from rarehmm.model.autoregression import AroundLevel

CHOICES = covering()


def check(choice):
    """Likelihood, probabilities, predictive densities and the gradient of a model of one kind."""
    seed = zlib.crc32(label(choice).encode())
    case = make_case(choice, seed)
    value, smoothed, filtered = enumerate_regimes(case)
    model, parameters, series = as_model(case)
    assert log_likelihood(model, parameters, series) == pytest.approx(value, rel=1e-10, abs=1e-10)
    np.testing.assert_allclose(smooth(model, parameters, series), smoothed, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(filter_states(model, parameters, series), filtered, rtol=1e-10, atol=1e-10)
    assert predictive_log_density(model, parameters, series).sum() == pytest.approx(value, rel=1e-10, abs=1e-10)
    check_gradient(*as_model(case, "default"))
    check_paths(case, model, parameters, series, value)
    return model, parameters, series


def check_paths(case, model, parameters, series, total):
    """Joint densities are those of enumeration with all states known; no neighbour of the decoded path is better."""
    rng, T = np.random.default_rng(0), len(series)
    path, best = decode(model, parameters, series)
    others = [rng.integers(model.n_states, size=T) for _ in range(5)]
    found = [joint_log_density(model, parameters, series, states) for states in (path, *others)]
    assert found[0] == best < total
    for states, value in zip((path, *others), found, strict=True):
        agrees = ((case.states == -1) | (case.states == states)).all()
        with np.errstate(invalid="ignore"):
            wanted = enumerate_regimes(with_rows(case, states=states))[0] if agrees else -np.inf
        assert value == pytest.approx(-np.inf if np.isnan(wanted) else wanted, rel=1e-10, abs=1e-10)
    if case.phases is None:  # otherwise it is the best one with its phases
        neighbours = [np.where(np.arange(T) == t, k, path) for t in range(T) for k in range(model.n_states)]
        assert max(joint_log_density(model, parameters, series, states) for states in neighbours) == best


def check_gradient(model, parameters, series):
    theta, h = model.pack(parameters), 1e-5
    np.testing.assert_allclose(model.pack(model.unpack(theta)), theta, rtol=1e-9, atol=1e-9)
    _, slope = log_posterior(model, theta, series)
    differences = [
        (log_posterior(model, theta + h * one, series)[0] - log_posterior(model, theta - h * one, series)[0]) / (2 * h)
        for one in np.eye(model.size)
    ]
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-6)


def test_the_choices_cover_all_pairs_and_are_few():
    assert len(CHOICES) <= 40


@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_models_agree_with_the_enumeration_of_all_paths(choice):
    check(choice)


@pytest.mark.nightly
@pytest.mark.parametrize("choice", list(every_choice()), ids=label)
def test_all_models_agree_with_the_enumeration_of_all_paths(choice):
    check(choice)


@pytest.mark.jit
def test_blocks_that_remember_longer_than_the_longest_halo_are_corrected(monkeypatch):
    """A stretch of observations that tell nothing, across seams, while all other blocks forget within their halos."""
    rng = np.random.default_rng(5)
    states = np.repeat(rng.integers(2, size=2_400), 100)
    y = 8.0 * states + rng.normal(size=len(states))
    y[95_000:101_000] = np.nan
    series = Series(y)
    model = Model(Gaussian(), 2, default_priors(Gaussian(), 2, series), autoregression=AroundLevel(1))
    P = [[0.9999, 0.0001], [0.0002, 0.9998]]
    theta = model.pack(model.natural([[0.0, 1.0], [8.0, 1.0]], P, [0.4]))
    wanted = log_posterior(model, theta, series, sequential=True)
    corrected = []
    run_blocks = EdgePass.run_blocks
    monkeypatch.setattr(EdgePass, "run_blocks", lambda self, which: corrected.append(which) or run_blocks(self, which))
    value, slope = log_posterior(model, theta, series)
    assert len(corrected) > 0
    assert value == pytest.approx(wanted[0], rel=1e-12)
    np.testing.assert_allclose(slope, wanted[1], rtol=1e-8, atol=1e-6)
