"""Forecasts are calibrated: of the moments at which an event is given a probability of p, it comes in a share p."""

import numpy as np
import pytest
from small_models import model_of

import rarehmm as rh
from rarehmm.posterior.prediction import forecast

HORIZONS = (1, 10, 100)
SPACING = 120  # longer than the longest horizon: outcomes are then nearly independent


@pytest.fixture(scope="module")
def foretold():
    """Probabilities (n, 3) of a rare event within each horizon and whether it came, by a posterior of other data."""
    model = model_of(rh.Gaussian(), 3)
    P = [[0.98, 0.018, 0.002], [0.02, 0.975, 0.005], [0.1, 0.1, 0.8]]
    truth = model.parameters(P, mean=[-2, 0, 3], variance=1)
    y, _ = rh.simulate(np.random.default_rng(0), model, truth, 50_000)
    hmm = rh.RareHMM(3, n_draws=200, n_average=8).fit(y)
    assert hmm.rare_states_.tolist() == [2]
    y, states = rh.simulate(np.random.default_rng(1), model, truth, 240_000)
    points, posterior, series = hmm.posterior_.points(8), hmm.posterior_, rh.Series(y)
    distributions = np.array([rh.filter_states(posterior.model, p, series) for p in points])  # (Z, T, K)
    at = np.arange(50, len(y) - 101, SPACING)
    rng = np.random.default_rng(2)
    rare = np.array([2])
    found = [forecast(rng, posterior.model, points, distributions[:, t], 100, rare, size=0).event for t in at]
    came = np.array([[(states[t + 1 : t + 1 + h] == 2).any() for h in HORIZONS] for t in at])
    return np.array(found)[:, np.array(HORIZONS) - 1], came


def off(probability, came, bins=6):
    """Largest difference of shares and probabilities over bins of the probability, in standard errors."""
    worst = 0.0
    for part in np.array_split(np.argsort(probability), bins):
        p = probability[part]
        error = np.sqrt((p * (1 - p)).sum()) / len(p)
        worst = max(worst, abs(came[part].mean() - p.mean()) / error)
    return worst


@pytest.mark.jit
@pytest.mark.parametrize("h", range(3))
def test_events_come_as_often_as_they_were_foretold(foretold, h):
    probability, came = foretold[0][:, h], foretold[1][:, h]
    assert off(probability, came) < 4
    assert off(np.minimum(2 * probability, 0.999), came) > 4  # twice as many would show
