"""What the posterior expects of events is what happens, on series simulated from known parameters."""

import numpy as np
import pytest
from small_models import model_of

import rarehmm as rh
from rarehmm.exact.passes import smooth
from rarehmm.posterior.event_evidence import draw_paths, visited
from rarehmm.posterior.event_threshold import Candidates, chosen, criterion_of, expected_scores, intervals

P = [[0.98, 0.018, 0.002], [0.02, 0.975, 0.005], [0.1, 0.1, 0.8]]
RARE, SERIES, T = np.array([2]), 8, 15_000
CRITERIA = ("f1", "precision=0.95", "cost=5")


def case(seed):
    """Of one series: truth, probabilities, scores by threshold, and the arguments of drawn paths."""
    model = model_of(rh.Gaussian(), 3)
    point = model.parameters(P, mean=[-2, 0, 2.5], variance=1)
    y, states = rh.simulate(np.random.default_rng(seed), model, point, T)
    series = rh.Series(y)
    probability, candidates = smooth(model, point, series), Candidates(RARE)
    candidates.add(0, probability)
    given = np.random.default_rng(seed), model, [point], series
    return states == 2, probability[:, 2], expected_scores(*given, candidates, gap=2, shortest=1), given


@pytest.fixture(scope="module")
def cases():
    return [case(seed) for seed in range(SERIES)]


def standard_errors_off(difference):
    """Mean of differences (n,) in units of its standard error."""
    return difference.mean() / (difference.std(ddof=1) / np.sqrt(len(difference)))


def any_in(mask, low, high):
    total = np.concatenate([[0], np.cumsum(mask)])
    return total[high] > total[low]


@pytest.mark.jit
@pytest.mark.parametrize("criterion", CRITERIA)
def test_precision_recall_and_false_alarms_are_as_expected(cases, criterion):
    off = []
    for truth, probability, scores, (_, _, _, series) in cases:
        choice = chosen(criterion_of(criterion), scores)
        low, high = intervals(np.flatnonzero(probability >= choice.threshold), series, 2, 1)
        real = any_in(truth, low, high)
        edges = np.flatnonzero(np.diff(truth.astype(int), prepend=0, append=0))
        alarm = np.zeros(T, dtype=bool)
        for a, b in zip(low, high, strict=True):
            alarm[a:b] = True
        recall = any_in(alarm, edges[::2], edges[1::2]).mean()
        off.append([real.mean() - choice.precision, recall - choice.recall, (~real).sum() - choice.false_alarms])
        assert len(low) == choice.events
    assert np.abs([standard_errors_off(one) for one in np.array(off).T]).max() < 4


def reliability(cases, of):
    """Largest number of standard errors by which shares of real events are off, over bins of a probability."""
    real, claimed = [], []
    for truth, probability, _, given in cases:
        low, high = intervals(np.flatnonzero(probability >= 0.1), given[3], 2, 1)
        real.append(any_in(truth, low, high))
        claimed.append(of(probability, given, low, high))
    flag, p = np.concatenate(real), np.concatenate(claimed)
    worst = 0.0
    for a, b in ((0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        mine = (p >= a) & (p < b)
        if mine.sum() > 20:
            worst = max(worst, abs(flag[mine].sum() - p[mine].sum()) / np.sqrt((p[mine] * (1 - p[mine])).sum() + 0.25))
    return worst


def drawn(_, given, low, high):
    return visited(draw_paths(*given, RARE, low, high), low, high).mean(0)


def mean_probability(probability, _, low, high):
    return np.array([probability[a:b].mean() for a, b in zip(low, high, strict=True)])


@pytest.mark.jit
def test_events_are_real_as_often_as_they_say(cases):
    assert reliability(cases, drawn) < 4


@pytest.mark.jit
def test_that_test_would_notice_the_mean_probability_of_the_rows(cases):
    assert reliability(cases, mean_probability) > 4
