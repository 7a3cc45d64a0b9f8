"""Intervals of forecasts hold as many observations as they say, with the uncertainty of parameters.

Parameters are drawn from a prior on a few points.  After a short series their posterior is known exactly, so that
forecasts averaged over it are calibrated: what comes has any rank among simulated continuations with equal probability.
"""

import numpy as np
import pytest

import rarehmm as rh
from rarehmm import AroundLevel, Gaussian, Inputs, Model, Season, Series, no_priors
from rarehmm.posterior.forecasting import forecast_after

HORIZONS = np.array([1, 10, 100])
T, LAST, SIZE = 60, 100, 99
P = [[0.95, 0.05], [0.1, 0.9]]


def coverage(rng, replicates, missing=0):
    """Ranks (n, 3) of what comes among continuations, and the continuations and outcomes (n, SIZE, 3) and (n, 3)."""
    whole = Series(np.zeros(T + LAST))
    model = Model(Gaussian(), 2, no_priors(Gaussian()), autoregression=AroundLevel(1),
                  inputs=Inputs.of(whole, [Season(12, 1)]))  # fmt: skip
    prior = [
        model.natural([[level, 1.0], [level + rise, 1.0]], P, [swing, -swing, phi])
        for level, rise, swing, phi in rng.normal([0, 5, 1, 0.75], [1, 1, 1, 0.1], (12, 4))
    ]
    ahead, came = [], []
    for _ in range(replicates):
        y, _ = rh.simulate(rng, model, prior[rng.integers(len(prior))], T + LAST)
        seen = y[:T].copy()
        seen[T - missing :] = np.nan
        series = Series(seen)
        value = np.array([rh.log_likelihood(model, point, series) for point in prior])
        weight = np.exp(value - value.max())
        points = [prior[i] for i in rng.choice(len(prior), 11, p=weight / weight.sum())]
        ahead.append(forecast_after(rng, model, points, series, LAST, size=SIZE).observations[:, HORIZONS - 1])
        came.append(y[T + HORIZONS - 1])
    return np.array(ahead), np.array(came)


def standard_errors_off(ahead, came):
    """How far the shares of outcomes in central intervals of 50 and 90 % are from these, for each horizon."""
    rank = (ahead < came[:, None]).sum(1)  # 0, ..., SIZE
    off = []
    for p in (0.5, 0.9):
        inside = np.abs(rank - SIZE / 2) < p * (SIZE + 1) / 2
        off.append((inside.mean(0) - p) / np.sqrt(p * (1 - p) / len(rank)))
    return np.abs(off)


@pytest.fixture(scope="module", params=[0, 8], ids=["observed", "last rows missing"])
def found(request):
    return coverage(np.random.default_rng(request.param), 200, request.param)


@pytest.mark.jit
def test_intervals_hold_what_they_say(found):
    assert standard_errors_off(*found).max() < 4


@pytest.mark.jit
def test_that_test_would_notice_intervals_that_are_a_quarter_too_narrow(found):
    ahead, came = found
    middle = np.median(ahead, axis=1, keepdims=True)
    assert (standard_errors_off(middle + 0.75 * (ahead - middle), came).max(0) > 4).all()


@pytest.mark.jit
@pytest.mark.nightly
@pytest.mark.parametrize("missing", [0, 8])
def test_more_intervals_hold_what_they_say(missing):
    assert standard_errors_off(*coverage(np.random.default_rng(10 + missing), 3000, missing)).max() < 4
