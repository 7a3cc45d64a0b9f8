"""Kinds of states: collapsed ones are recognised, spurious ones are not reported as events, rare ones are."""

import re

import numpy as np
import pytest
from small_models import model_of

import rarehmm as rh
import rarehmm.search.regimes as module
from rarehmm.search.regimes import classify_by_occupancy, judge_states, remove_state, separation

STICKY = np.array([[0.99, 0.005, 0.005], [0.005, 0.99, 0.005], [0.1, 0.1, 0.8]])


def kinds(model, parameters, series):
    return [r.kind for r in classify_by_occupancy(model, parameters, rh.Series(series))]


def test_states_that_collapse_are_named():
    y = np.random.default_rng(0).normal(size=2000)
    y[700] = 60.0
    model = model_of(rh.Gaussian(), 2)
    P = [[0.99, 0.01], [0.5, 0.5]]
    assert kinds(model, model.parameters(P, mean=[0, 200], variance=1), y[:600]) == ["common", "empty"]
    assert kinds(model, model.parameters(P, mean=[0, 60], variance=1), y) == ["common", "outlier"]
    same = model.parameters([[0.7, 0.3], [0.7, 0.3]], mean=[0, 0], variance=1)
    assert kinds(model, same, y) == ["common", "twin"]
    apart_in_time = model.parameters([[0.99, 0.01], [0.01, 0.99]], mean=[0, 1], variance=1)
    x = np.repeat([0.0, 1.0], 1000) + y
    assert kinds(model, apart_in_time, x) == ["common", "common"]


def test_how_well_two_states_are_told_apart():
    always = np.array([1.0, 0.0, 1.0, 0.0])
    assert separation(always, 1 - always) == pytest.approx(1.0)
    assert separation(np.full(4, 0.3), np.full(4, 0.6)) == pytest.approx(0.0)
    assert 0.2 < separation(np.array([0.8, 0.2, 0.8, 0.2]), np.array([0.2, 0.8, 0.2, 0.8])) < 0.6


def test_without_a_state_the_ways_through_it_lead_on():
    model = model_of(rh.Gaussian(), 3)
    parameters = model.parameters([[0.8, 0.1, 0.1], [0.0, 1.0, 0.0], [0.1, 0.4, 0.5]], mean=[0, 1, 2], variance=1)
    fewer, rest = remove_state(model, parameters, 2)
    assert fewer.n_states == 2
    np.testing.assert_allclose(rest.transition, [[0.82, 0.18], [0.0, 1.0]], atol=1e-12)
    np.testing.assert_array_equal(rest.phi[:, 0], [0, 1])


def fitted(y, K, family=None):
    series, family = rh.Series(y), rh.Gaussian() if family is None else family
    model = rh.Model(family, K, rh.default_priors(family, K, series))
    mode = rh.find_mode(model, series)
    return judge_states(mode.model, mode.model.unpack(mode.theta), series)


def nothing_rare(name, rng, T=20_000):
    t = np.arange(T)
    day = np.sin(2 * np.pi * t / 1440)
    return {
        "Gaussian": lambda: rng.normal(size=T),
        "heavy-tailed": lambda: rng.standard_t(3, T),
        "skewed": lambda: np.exp(0.5 * rng.normal(size=T)),
        "seasonal": lambda: 3 * day + rng.normal(size=T),
        "seasonal, heavy-tailed": lambda: 3 * day + rng.standard_t(3, T),
        "two regimes": lambda: 6 * np.repeat(rng.integers(0, 2, T // 100), 100) + rng.standard_t(4, T),
    }[name]()


@pytest.mark.jit
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(
    "name", ["Gaussian", "heavy-tailed", "skewed", "seasonal", "seasonal, heavy-tailed", "two regimes"]
)
def test_no_event_regime_is_invented(name, K):
    found = fitted(nothing_rare(name, np.random.default_rng(K)), K)
    assert not [r for r in found if r.kind == "rare"], found


@pytest.mark.jit
@pytest.mark.parametrize(("gap", "rare"), [(6.0, 0.0005), (3.0, 0.005)])
def test_a_rare_regime_is_reported(gap, rare):
    shell = model_of(rh.Gaussian(), 3)
    P = STICKY.copy()
    P[:2, 2] = 0.2 * rare
    P[[0, 1], [0, 1]] = 1 - P[:2].sum(1) + P[[0, 1], [0, 1]]
    truth = shell.parameters(P, mean=[-gap, 0, gap], variance=1)
    y, states = rh.simulate(np.random.default_rng(5), shell, truth, 50_000)
    found = [r for r in fitted(y, 3) if r.kind == "rare"]
    assert len(found) == 1
    assert found[0].observations == pytest.approx((states == 2).sum(), rel=0.3)
    visits = (np.diff(states == 2, prepend=False) & (states == 2)).sum()
    assert found[0].sojourn == pytest.approx((states == 2).sum() / visits, rel=0.3)
    assert "raises the log likelihood" in found[0].message


@pytest.mark.jit
@pytest.mark.parametrize("K", [4, 5])
def test_a_rare_regime_stays_one_with_states_too_many(K):
    shell = model_of(rh.Gaussian(), 3)
    P = [[0.9949, 0.005, 0.0001], [0.005, 0.9949, 0.0001], [0.1, 0.1, 0.8]]
    truth = shell.parameters(P, mean=[-6, 0, 6], variance=1)
    y, states = rh.simulate(np.random.default_rng(0), shell, truth, 50_000)
    rare = [r for r in fitted(y, K) if r.kind == "rare"]
    assert sum("raises the log likelihood" in r.message for r in rare) == 1, rare
    assert all("raises" in r.message or "belongs to the same regime as state" in r.message for r in rare)
    assert sum(r.observations for r in rare) == pytest.approx((states == 2).sum(), rel=0.2)


@pytest.mark.jit
def test_counts_that_vary_more_than_poisson_are_no_rare_regime():
    y = np.random.default_rng(0).negative_binomial(0.2, 0.1, 20_000).astype(float)
    assert not [r for r in fitted(y, 3, rh.Poisson()) if r.kind == "rare"]


def test_one_state_is_common_however_long_the_series(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 100)
    series = rh.Series(np.random.default_rng(0).normal(size=300))
    model = model_of(rh.Gaussian(), 1)
    found = judge_states(model, model.parameters([[1.0]], mean=0, variance=1), series)
    assert [r.kind for r in found] == ["common"]


@pytest.mark.jit
def test_a_rare_regime_of_a_long_series_is_reported():
    shell = model_of(rh.Gaussian(), 2)
    truth = shell.parameters([[0.99998, 0.00002], [0.2, 0.8]], mean=[0, 6], variance=1)
    y, states = rh.simulate(np.random.default_rng(6), shell, truth, 500_000)
    found = fitted(y, 2)
    assert [r.kind for r in found] == ["common", "rare"]
    assert found[1].share == pytest.approx((states == 1).mean(), rel=0.2)


def two_bursts(seed):
    y = np.random.default_rng(seed).normal(size=5000)
    y[1000:1030] += 8
    y[3000:3040] += 8
    return y


@pytest.mark.jit
@pytest.mark.parametrize("K", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.nightly) for s in (1, 3))])
def test_states_too_many_do_not_hide_the_regime(K, seed):
    """Whether they split the common states or the rare one, the events are those of the regime."""
    y = two_bursts(seed)
    hmm = rh.RareHMM(K, method="map").fit(y)
    events = hmm.rare_events(y)
    assert events["start"].tolist() == [1000, 3000]
    assert events["end"].tolist() == [1029, 3039]
    assert all(hmm.means_[k, 0] > 6 for k in hmm.rare_states_)


# ---------------------------------------------------------------- the same in small: a hundred observations
def bumps():
    """Ten observations far up, at two levels in turn."""
    y = np.random.default_rng(0).normal(size=100)
    y[40:50] = 0.3 * y[40:50] + np.tile([7.0, 9.0], 5)
    return rh.Series(y)


def test_states_that_share_a_rare_regime_are_all_rare(monkeypatch):
    monkeypatch.setattr(module, "STEPS", 5)
    model, P = model_of(rh.Gaussian(), 3), [[0.94, 0.03, 0.03], [0.2, 0.4, 0.4], [0.2, 0.4, 0.4]]
    found = judge_states(model, model.parameters(P, mean=[0, 7, 9], variance=0.5), bumps(), rare_share=0.2)
    assert [r.kind for r in found] == ["common", "rare", "rare"]
    (shared,) = [r for r in found if "it belongs to the same regime as state" in r.message]
    (other,) = [r for r in found if "raises the log likelihood" in r.message]
    assert shared.message.endswith(str(other.state))


def test_a_state_that_is_not_worth_its_price_is_unsupported(monkeypatch):
    monkeypatch.setattr(module, "STEPS", 3)
    y = np.random.default_rng(0).normal(size=100)
    model = model_of(rh.Gaussian(), 2)
    point = model.parameters([[0.97, 0.03], [0.1, 0.9]], mean=[0, 1.2], variance=[1, 0.3])
    found = judge_states(model, point, rh.Series(y), rare_share=0.5)[1]
    assert found.kind == "unsupported"
    assert re.fullmatch(r"it raises the log likelihood by only -?[\d.]+ \([\d.]+ required\)", found.message)


def test_the_tail_of_heavy_noise_is_no_regime(monkeypatch):
    monkeypatch.setattr(module, "STEPS", 4)
    rng = np.random.default_rng(0)
    rng.normal(size=100)
    y = rng.standard_t(2, size=100)
    model = model_of(rh.Gaussian(), 2)
    alone = model.parameters([[0.9, 0.1], [0.9, 0.1]], mean=0, variance=[1, 30])
    found = judge_states(model, alone, rh.Series(y), rare_share=0.3)[1]
    assert (found.kind, found.message[:35]) == ("tail", "its observations are neither well s")
    together = rng.standard_t(2, size=100)
    together[50:56] = [4, -5, 3.6, -7, 6, -4]
    sticky = model.parameters([[0.97, 0.03], [0.2, 0.8]], mean=0, variance=[1, 30])
    found = judge_states(model, sticky, rh.Series(together), rare_share=0.3)[1]
    assert found.kind == "tail"
    assert found.message.startswith("1 state with heavier tails, StudentT(")


def test_of_a_long_series_the_surprising_stretches_are_looked_at(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 30)
    monkeypatch.setattr(module, "STEPS", 4)
    model = model_of(rh.Gaussian(), 2)
    point = model.parameters([[0.97, 0.03], [0.2, 0.8]], mean=[0, 8], variance=1)
    found = judge_states(model, point, bumps(), rare_share=0.2)
    assert [r.kind for r in found] == ["common", "rare"]
    assert found[1].observations == pytest.approx(10, abs=0.1)  # of all


def test_an_empty_state_is_left_out_before_the_others_are_judged(monkeypatch):
    monkeypatch.setattr(module, "STEPS", 4)
    model = model_of(rh.Gaussian(), 3)
    P = [[0.95, 0.04, 0.01], [0.2, 0.79, 0.01], [0.4, 0.4, 0.2]]
    found = judge_states(model, model.parameters(P, mean=[0, 8, 500], variance=1), bumps(), rare_share=0.2)
    assert [r.kind for r in found] == ["common", "rare", "empty"]
