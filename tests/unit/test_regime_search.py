"""Search and judgement of states where some are known, or have several phases."""

import numpy as np
import pytest

import rarehmm as rh

pytestmark = pytest.mark.jit


def bursts(T=1200, seed=0):
    y = np.random.default_rng(seed).normal(size=T)
    for start in (300, 700, 1000):
        y[start : start + 12] += 9
    return y


def model_of(series, K=2, **more):
    return rh.Model(rh.Gaussian(), K, rh.default_priors(rh.Gaussian(), K, series), **more)


def means(mode):
    return mode.model.unpack(mode.theta).phi[:, 0].round()


def test_known_states_say_which_state_is_which():
    states = np.full(1200, -1)
    states[[305, 702]] = 0
    states[10] = 1
    series = rh.Series(bursts(), states=states)
    mode = rh.find_mode(model_of(series), series)
    assert means(mode).tolist() == [9, 0]
    regimes = rh.judge_states(mode.model, mode.model.unpack(mode.theta), series)
    assert [r.kind for r in regimes] == ["rare", "common"]
    assert regimes[0].message == "it is known in some rows"


def test_a_known_state_stays_when_others_are_not_supported():
    states = np.full(1200, -1)
    states[305] = 2
    series = rh.Series(bursts(), states=states)
    mode = rh.find_mode(model_of(series, 3), series)
    regimes = rh.judge_states(mode.model, mode.model.unpack(mode.theta), series)
    assert means(mode)[2] == 9
    assert regimes[2].kind == "rare"


@pytest.mark.parametrize("lengths", [(3, 3), (1, 4), (4, 1)])
def test_states_of_several_phases_are_found(lengths):
    series = rh.Series(bursts())
    model = model_of(series, transitions=rh.Phases(lengths))
    mode = rh.find_mode(model, series)
    point = mode.model.unpack(mode.theta)
    lasting = int(np.argmax(point.phi[:, 0]))  # visits of 12 steps fit either number of phases
    assert sorted(means(mode)) == [0, 9]
    regimes = rh.judge_states(mode.model, point, series)
    assert regimes[lasting].kind == "rare"
    assert regimes[lasting].sojourn == pytest.approx(12, abs=3)


def test_the_state_of_long_visits_gets_the_longer_minimum():
    """Visits of five steps to one state and of one step to the other, which four phases do not allow."""
    y = np.random.default_rng(1).normal(size=900)
    y[::6] += 8
    series = rh.Series(y)
    mode = rh.find_mode(model_of(series, transitions=rh.Phases((1, 4))), series)
    assert means(mode).tolist() == [8, 0]
    regimes = rh.judge_states(mode.model, mode.model.unpack(mode.theta), series)
    assert regimes[1].sojourn == pytest.approx(5, abs=0.1)
