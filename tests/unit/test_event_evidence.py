"""The probability that an event is real, its onset, its evidence, and thresholds chosen by the posterior."""

import itertools

import numpy as np
import pandas as pd
import pytest
from small_models import model_of

import rarehmm as rh
from rarehmm.exact.passes import joint_log_density, log_likelihood, predictive_log_density, smooth
from rarehmm.posterior import event_evidence as module
from rarehmm.posterior.event_evidence import Paths, draw_paths, evidence, onsets, runs_of, visited
from rarehmm.posterior.event_threshold import Candidates, Choice, chosen, criterion_of, expected_scores, intervals

P = [[0.9, 0.08, 0.02], [0.1, 0.85, 0.05], [0.2, 0.2, 0.6]]


def small():
    """A model with a rare state, parameters, and eight observations of which some may be in it."""
    model = model_of(rh.Gaussian(), 3)
    return model, model.parameters(P, mean=[-1, 0, 2], variance=1), np.array([0.1, -0.4, 1.1, 1.5, 0.2, 1.4, -1.0, 0.3])


def path_weights(model, point, series):
    """Probability of every path of states given a series."""
    paths = np.array(list(itertools.product(range(3), repeat=len(series))))
    joint = np.array([joint_log_density(model, point, series, path) for path in paths])
    return paths, np.exp(joint - log_likelihood(model, point, series))


def test_an_event_is_real_with_the_probability_that_paths_visit_a_rare_state():
    model, point, y = small()
    series, low, high = rh.Series(y), np.array([2, 5]), np.array([5, 6])
    paths, weight = path_weights(model, point, series)
    exact = [weight[(paths[:, a:b] == 2).any(1)].sum() for a, b in zip(low, high, strict=True)]
    assert weight.sum() == pytest.approx(1)
    found = draw_paths(np.random.default_rng(0), model, [point], series, np.array([2]), low, high)
    np.testing.assert_array_equal(found.rows, np.arange(8))
    n = len(found.rare)
    np.testing.assert_allclose(visited(found, low, high).mean(0), exact, atol=4 * 0.5 / np.sqrt(n))
    runs = runs_of(found)
    exact_runs = sum(w * ((path == 2) & (np.roll(path, 1) != 2)).sum() for path, w in zip(paths, weight, strict=True))
    assert len(runs.path) / n == pytest.approx(exact_runs, abs=0.2)


def test_runs_and_onsets_of_paths():
    rare = np.array([[0, 1, 1, 0, 1, 1], [1, 1, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0]], dtype=bool)
    paths = Paths(np.array([3, 4, 5, 8, 9, 10]), np.array([1, 0, 0, 1, 0, 0], dtype=bool), rare)
    runs = runs_of(paths)
    assert runs.path.tolist() == [0, 0, 1, 1]
    assert runs.begin.tolist() == [1, 4, 0, 5]
    assert runs.end.tolist() == [3, 6, 2, 6]
    low, high = np.array([5, 9]), np.array([6, 11])
    assert visited(paths, low, high).tolist() == [[True, True], [False, True], [False, False]]
    assert onsets(paths, low, high).tolist() == [[4, 9], [4, 10]]
    assert onsets(paths, np.array([8]), np.array([9])).tolist() == [[8], [8]]  # never real


def test_a_visit_does_not_cross_from_one_sequence_to_the_next():
    rare = np.ones((1, 4), dtype=bool)
    runs = runs_of(Paths(np.arange(4), np.array([1, 0, 1, 0], dtype=bool), rare))
    assert (runs.begin.tolist(), runs.end.tolist()) == ([0, 2], [2, 4])


def test_evidence_is_what_the_rare_states_add_to_the_log_density():
    model, point, y = small()
    series = rh.Series(y)
    found = evidence(model, point, series, np.array([2]), np.array([2, 5]), np.array([5, 6]))
    fewer, rest = module.remove_state(model, point, 2)
    gain = predictive_log_density(model, point, series) - predictive_log_density(fewer, rest, series)
    np.testing.assert_allclose(found, [gain[2:5].sum(), gain[5]])
    assert np.isnan(evidence(model, point, series, np.arange(3), np.array([2]), np.array([5]))).all()


def test_far_from_each_other_only_neighbourhoods_are_drawn(monkeypatch):
    monkeypatch.setattr(module, "AROUND", 3)
    model, point, _ = small()
    y = np.zeros(60)
    y[[10, 11, 12, 40]] = 4.0
    low, high = np.array([10, 40]), np.array([13, 41])
    found = draw_paths(np.random.default_rng(0), model, [point, point], rh.Series(y), np.array([2]), low, high)
    assert found.rows.tolist() == [*range(7, 16), *range(37, 44)]
    assert found.rows[found.fresh].tolist() == [7, 37]
    assert visited(found, low, high).mean(0).min() > 0.8


def test_events_are_processed_in_groups(monkeypatch):
    monkeypatch.setattr(module, "AT_A_TIME", 1000)
    rows = [(i * 100, i * 100 + 100) for i in range(7)]
    found = list(module.groups(rows))
    assert [(a, b) for low, high in found for a, b in zip(low.tolist(), high.tolist(), strict=True)] == rows
    assert len(found) > 2


def test_rows_become_intervals_as_events_do():
    series = rh.Series(np.zeros(12), [6, 6])
    rows = np.array([0, 1, 3, 5, 6, 9])
    assert [one.tolist() for one in intervals(rows, series, 1, 1)] == [[0, 3, 5, 6, 9], [2, 4, 6, 7, 10]]
    assert [one.tolist() for one in intervals(rows, series, 2, 1)] == [[0, 6, 9], [6, 7, 10]]
    assert [one.tolist() for one in intervals(rows, series, 2, 2)] == [[0], [6]]


@pytest.mark.parametrize("text", ["f2", "precision", "precision=1.5", "cost=0", "cost=-1", "f1=2", "cost=1e", ""])
def test_a_criterion_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match=r"threshold is '.*'; pass a probability, 'f1' for the best F1"):
        criterion_of(text)


def test_criteria_choose_between_thresholds():
    many, some = Choice(0.1, 0.5, 0.95, 100, 50.0, 3.0), Choice(0.5, 0.9, 0.8, 50, 5.0, 12.0)
    few = Choice(0.9, 0.99, 0.5, 25, 0.2, 30.0)
    every = [many, some, few]
    assert chosen(criterion_of("F1"), every) is some
    assert chosen(criterion_of("precision = 0.95"), every) is few
    assert chosen(criterion_of("precision=0.999"), every) is few
    assert chosen(criterion_of("cost=100"), every) is many
    assert chosen(criterion_of("cost=0.1"), every) is few
    assert chosen(criterion_of("f1"), []) is None


def test_without_candidates_there_is_nothing_to_choose_from():
    model, point, y = small()
    candidates = Candidates(np.array([2]))
    candidates.add(0, np.tile([0.5, 0.495, 0.005], (8, 1)))
    assert candidates.rest == pytest.approx(0.04)
    rng = np.random.default_rng(0)
    assert expected_scores(rng, model, [point], rh.Series(y), candidates, gap=2, shortest=1) == []


# ---------------------------------------------------------------- through the estimator
def bursts(T=3000):
    y = np.random.default_rng(0).normal(size=T)
    y[500:510] += 6
    y[1800:1815] += 6
    y[2500] = 4.5  # which may be one
    return pd.Series(y, pd.date_range("2026-01-01", periods=T, freq="min"))


@pytest.fixture(scope="module")
def fit():
    return rh.RareHMM(2, method="map", init=(bursts().to_numpy() > 4).astype(int)).fit(bursts())


@pytest.mark.jit
def test_the_table_has_what_speaks_for_each_event(fit):
    y = bursts()
    found = fit.rare_events(y)
    assert found["start"].tolist()[:2] == [y.index[500], y.index[1800]]
    assert found.sort_values("rank")["start"].iloc[0] == y.index[1800]
    assert (found["real"][:2] > 0.99).all()
    assert (found["evidence"][:2] > 50).all()
    assert (found["onset_low"] <= found["onset_high"]).all()
    assert (found["onset_low"] <= found["start"]).all()
    assert found.attrs["expected_false_alarms"] == pytest.approx((1 - found["real"]).sum())


@pytest.mark.jit
def test_events_with_little_evidence_can_be_left_out(fit):
    y = bursts()
    every, kept = fit.rare_events(y), fit.rare_events(y, least_evidence=np.log(len(y)))
    assert len(every) == 3
    assert kept["start"].tolist() == [y.index[500], y.index[1800]]
    assert kept["rank"].tolist() == [2, 1]
    assert kept.attrs["expected_false_alarms"] < every.attrs["expected_false_alarms"]


@pytest.mark.jit
def test_chance_alone_gives_few_events_with_evidence():
    """Without events: fewer than T exp(-evidence) of them, whatever the rare state is said to be."""
    model = model_of(rh.Gaussian(), 2)
    point = model.parameters([[0.98, 0.02], [0.3, 0.7]], mean=[0, 2], variance=1)
    y = np.random.default_rng(0).normal(size=20_000)
    series = rh.Series(y)
    probability = smooth(model, point, series)[:, 1]
    low, high = intervals(np.flatnonzero(probability >= 0.05), series, 2, 1)
    found = evidence(model, point, series, np.array([1]), low, high)
    assert len(low) > 50
    for least in (2.0, 4.0, np.log(len(y))):
        assert (found >= least).sum() <= len(y) * np.exp(-least)


@pytest.mark.jit
def test_thresholds_follow_from_what_is_wanted(fit):
    y = bursts()
    best = fit.rare_events(y, threshold="f1")
    assert 0.5 < best.attrs["expected_f1"] <= 1
    careful = fit.rare_events(y, threshold="cost=1000")
    assert len(careful) >= len(best)
    part = y[2400:]  # with an event that is less sure
    with pytest.warns(UserWarning, match="no threshold has an expected precision of 0.9999"):
        fit.rare_events(part, threshold="precision=0.9999")


@pytest.mark.jit
def test_no_events_comes_with_a_reason(fit):
    found = fit.rare_events(bursts()[:400], threshold=0.99)
    assert list(found.columns) == list(fit.rare_events(bursts()).columns)
    assert found.attrs["reason"].startswith("there are no events: the probability of the rare states is")
    found = fit.rare_events(bursts(), shortest=100)
    assert "choose a smaller value of shortest" in found.attrs["reason"]


@pytest.mark.jit
def test_columns_have_evidence_of_their_own():
    y = np.random.default_rng(0).normal(size=(2000, 2))
    y[700:720, 1] += 6
    table = pd.DataFrame(y, columns=["load", "heat"])
    labels = np.zeros(2000, dtype=int)
    labels[700:720] = 1
    hmm = rh.RareHMM(2, method="map", init=labels).fit(table)
    (event,) = (row for _, row in hmm.rare_events(table).iterrows())
    assert event["evidence[heat]"] > 100
    assert abs(event["evidence[load]"]) < 10


@pytest.mark.jit
def test_known_states_take_the_place_of_paths(fit):
    """One of three events is labelled ordinary: no threshold is as precise as it seemed."""
    y = bursts()
    labelled = fit.rare_events(y, threshold="f1", states=np.where(np.arange(len(y)) < 1000, 0, -1))
    free = fit.rare_events(y, threshold="f1")
    assert labelled.attrs["expected_precision"] < free.attrs["expected_precision"]
