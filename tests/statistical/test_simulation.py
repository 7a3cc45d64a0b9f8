"""Simulated series follow the model, in standard errors; and a companion shows that the test would notice."""

import time

import numpy as np
import pytest
from small_models import SINGLE, model_of, paper_series

import rarehmm as rh


def standard_errors_off(path, transition):
    """How far the counted transitions are from expected, (K, K), in standard errors."""
    counts = np.zeros(transition.shape)
    np.add.at(counts, (path[:-1], path[1:]), 1)
    n = counts.sum(1, keepdims=True)
    return (counts - n * transition) / np.sqrt(n * transition * (1 - transition))


def test_transitions_and_emissions_are_those_of_the_model():
    _, parameters, y, path = paper_series(np.random.default_rng(0), 100_000, gap=3.0)
    assert np.abs(standard_errors_off(path, SINGLE)).max() < 4
    for k, (mean, variance) in enumerate(parameters.phi):
        mine = y[path == k]
        assert abs(mine.mean() - mean) < 4 * np.sqrt(variance / len(mine))
        assert abs(mine.var() - variance) < 4 * variance * np.sqrt(2 / len(mine))


def test_that_test_would_notice_a_wrong_transition():
    _, _, _, path = paper_series(np.random.default_rng(0), 100_000)
    wrong = SINGLE.copy()
    wrong[0] = [0.987, 0.0065, 0.0065]
    assert np.abs(standard_errors_off(path, wrong)).max() > 4


def test_the_first_state_follows_the_start_and_a_state_can_be_continued():
    model = model_of(rh.Gaussian(), 2, start=[0.25, 0.75])
    parameters = model.parameters([[0.5, 0.5], [0.1, 0.9]], mean=[0, 1], variance=1)
    rng = np.random.default_rng(0)
    first = np.array([rh.simulate(rng, model, parameters, 1)[1][0] for _ in range(4000)])
    assert abs(first.mean() - 0.75) < 4 * np.sqrt(0.75 * 0.25 / 4000)
    after = np.array([rh.simulate(rng, model, parameters, 1, state=1)[1][0] for _ in range(4000)])
    assert abs(after.mean() - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 4000)


def test_the_same_seed_gives_the_same_series():
    a, b = (paper_series(np.random.default_rng(3), 1000)[2] for _ in range(2))
    np.testing.assert_array_equal(a, b)


@pytest.mark.jit
def test_ten_million_observations_in_seconds():
    paper_series(np.random.default_rng(0), 10)
    started = time.perf_counter()
    _, _, _, path = paper_series(np.random.default_rng(0), 10_000_000)
    assert time.perf_counter() - started < 10
    assert abs(np.mean(path == 2) - 0.005) < 0.0002
