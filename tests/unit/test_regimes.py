"""Kinds of states: collapsed ones are recognised, spurious ones are not reported as events, rare ones are."""

import re

import numpy as np
import pytest
from scipy.signal import lfilter
from small_models import model_of

import rarehmm as rh
import rarehmm.search.alternatives as alternatives
import rarehmm.search.regimes as module
from rarehmm.search.regimes import classify_by_occupancy, closest_to_rare, judge_states, remove_state, separation

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


def autoregression(rng, rho, T=6000):
    return lfilter([1.0], [1.0, -rho], rng.normal(size=T))


@pytest.mark.jit
def test_the_extremes_of_a_smooth_series_are_no_regime():
    y = autoregression(np.random.default_rng(0), 0.95, 3000)
    series = rh.Series(y / y.std())
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    P = [[0.99, 0.005, 0.005], [0.01, 0.98, 0.01], [0.05, 0.05, 0.9]]
    found = judge_states(model, model.parameters(P, mean=[0, -1, 2.6], variance=0.3), series)[2]
    assert (found.kind, found.kept) == ("drift", pytest.approx(0, abs=0.05))
    assert found.message.startswith("3 states with autocorrelated noise, ar=1, fit as well")


@pytest.mark.jit
def test_a_regime_in_autocorrelated_noise_is_kept_by_the_fit_with_autocorrelation():
    y = autoregression(np.random.default_rng(0), 0.6)
    y[np.arange(len(y)) % 600 < 20] += 8
    (found,) = [r for r in fitted(y, 2) if r.kind == "rare"]
    assert found.rival == "2 states with autocorrelated noise, ar=1"
    assert found.gain < 0  # which is much better
    assert found.kept > 0.9
    assert found.support > 0.9
    assert found.visits == pytest.approx(10, abs=1)


@pytest.mark.jit
def test_bursts_that_overdispersed_counts_keep_together_are_a_regime():
    """Two levels of bursts, which a negative binomial distribution with one state fewer describes as well."""
    rng, T = np.random.default_rng(0), 60_000
    rate = np.full(T, 0.2) * rng.gamma(1.0, 1.0, T)
    for i in range(40):
        rate[700 + 1400 * i : 712 + 1400 * i] = 5 * rng.gamma(1.0, 1.0, 12)
    found = [r for r in fitted(rng.poisson(rate).astype(float), 4, rh.Poisson()) if r.observations < 1000]
    assert {r.kind for r in found} == {"rare"}, found
    assert any("NegativeBinomial" in r.rival and r.kept > 0.5 for r in found)


@pytest.mark.jit
def test_heavy_tails_in_several_columns_are_no_regime():
    """Nor if the largest values follow each other."""
    y = np.random.default_rng(1).standard_t(2, (400, 2)) @ [[1.0, 0.7], [0.0, 0.6]]
    large = np.argsort(-np.abs(y).max(1))[:10]
    rest = np.delete(y, large, 0)
    series = rh.Series(np.vstack([rest[:200], y[large], rest[200:]]))
    model = rh.Model(rh.MultivariateGaussian(2), 2, rh.default_priors(rh.MultivariateGaussian(2), 2, series))
    point = model.parameters(
        [[0.99, 0.01], [0.2, 0.8]], mean_0=0, mean_1=0, residual_0=[2, 40], residual_1=[2, 40], slope_1_0=0.7
    )
    found = judge_states(model, point, series)[1]
    assert found.kind == "tail"
    assert found.rival == "1 state with heavier tails, Product(StudentT(nu=2.5), StudentT(nu=2.5))"


@pytest.mark.jit
def test_a_regime_in_heavy_tailed_columns_is_reported():
    y = np.random.default_rng(1).standard_t(4, (6000, 2)) @ [[1.0, 0.7], [0.0, 0.6]]
    y[np.arange(6000) % 600 < 10] += 12
    (found,) = [r for r in fitted(y, 3, rh.MultivariateGaussian(2)) if r.kind == "rare"]
    assert found.observations == pytest.approx(100, abs=10)


@pytest.mark.jit
def test_a_state_somewhat_above_the_share_of_rare_ones_is_reported_too():
    y = np.random.default_rng(0).normal(size=6000)
    y[np.arange(6000) % 600 < 36] += 8  # 6 % of the time
    found = sorted(fitted(y, 2), key=lambda r: r.share)
    assert [r.kind for r in found] == ["rare", "common"]


def test_rarity_has_no_edge():
    share = np.linspace(0.001, 0.2, 1000)
    found = np.array([module.rarity(one) for one in share])
    assert (np.diff(found) < 0).all()
    assert np.abs(np.diff(found)).max() < 0.01
    assert module.rarity(0.075) == pytest.approx(0.5)


def test_a_fit_without_rare_states_says_which_come_closest():
    regimes = [
        module.Regime(0, 0.78, 780.0, 50.0, "common", "it accounts for 0.78 of the observations", 15.6),
        module.Regime(1, 0.1234, 123.4, 20.0, "common", "it accounts for 0.123 of the observations", 6.2),
        module.Regime(2, 0.03, 30.0, 2.0, "tail", "1 state with heavier tails, t, fits as well", 15.0, 0.2),
    ]
    found = closest_to_rare(regimes)
    assert found.startswith("state 2 has 3.00% of the observations in 15 visits of 2 steps and is tail with a support")
    assert "rare_share=0.13 asks whether it is a regime of its own; rare_states=[1] lists its stretches" in found
    assert closest_to_rare(regimes[:1]) == "the model has a single state; fit with n_components=2 or more"
    assert "use fewer states" in closest_to_rare([r._replace(kind="empty") for r in regimes])


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
    monkeypatch.setattr(alternatives, "STEPS", 5)
    model, P = model_of(rh.Gaussian(), 3), [[0.94, 0.03, 0.03], [0.2, 0.4, 0.4], [0.2, 0.4, 0.4]]
    found = judge_states(model, model.parameters(P, mean=[0, 7, 9], variance=0.5), bumps(), rare_share=0.2)
    assert [r.kind for r in found] == ["common", "rare", "rare"]
    (shared,) = [r for r in found if "it belongs to the same regime as state" in r.message]
    (other,) = [r for r in found if "raises the log likelihood" in r.message]
    assert shared.message.endswith(str(other.state))


def test_a_state_that_is_not_worth_its_price_is_unsupported(monkeypatch):
    monkeypatch.setattr(alternatives, "STEPS", 3)
    y = np.random.default_rng(0).normal(size=100)
    model = model_of(rh.Gaussian(), 2)
    point = model.parameters([[0.97, 0.03], [0.1, 0.9]], mean=[0, 1.2], variance=[1, 0.3])
    found = judge_states(model, point, rh.Series(y), rare_share=0.5)[1]
    assert found.kind == "unsupported"
    assert re.fullmatch(r"it raises the log likelihood by only -?[\d.]+ \([\d.]+ required\)", found.message)


def test_the_tail_of_heavy_noise_is_no_regime(monkeypatch):
    monkeypatch.setattr(alternatives, "STEPS", 4)
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
    monkeypatch.setattr(alternatives, "STEPS", 4)
    model = model_of(rh.Gaussian(), 2)
    point = model.parameters([[0.97, 0.03], [0.2, 0.8]], mean=[0, 8], variance=1)
    found = judge_states(model, point, bumps(), rare_share=0.2)
    assert [r.kind for r in found] == ["common", "rare"]
    assert found[1].observations == pytest.approx(10, abs=0.1)  # of all


def test_an_empty_state_is_left_out_before_the_others_are_judged(monkeypatch):
    monkeypatch.setattr(alternatives, "STEPS", 4)
    model = model_of(rh.Gaussian(), 3)
    P = [[0.95, 0.04, 0.01], [0.2, 0.79, 0.01], [0.4, 0.4, 0.2]]
    found = judge_states(model, model.parameters(P, mean=[0, 8, 500], variance=1), bumps(), rare_share=0.2)
    assert [r.kind for r in found] == ["common", "rare", "empty"]
