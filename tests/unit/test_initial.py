"""Finding states: rare ones, several of them, in long series, in several columns; and what a sample of a series is."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import dask.array as da
import numpy as np
import pytest
from scipy.signal import lfilter
from small_models import Pair, model_of

import rarehmm as rh
from rarehmm.data.pieces import pieces, sample, stretches
from rarehmm.exact import em
from rarehmm.exact.passes import expectations
from rarehmm.search import initial, regimes
from rarehmm.search.initial import append_state, find_states, informative_rows, largest_indices, surprising_groups


@pytest.mark.jit
@pytest.mark.parametrize("share", [0.005, 0.0005])
@pytest.mark.parametrize("gap", [20.0, 4.0])
def test_rare_states_are_found_in_the_data(share, gap):
    """As high as EM from the truth; k-means alone loses them."""
    leave, enter = 0.2, 0.2 * share / (1 - share)
    P = [[0.99 - enter, 0.01, enter], [0.01, 0.99 - enter, enter], [leave / 2, leave / 2, 1 - leave]]
    shell = model_of(rh.Gaussian(), 3)
    truth = shell.parameters(P, mean=[-gap, 0, gap], variance=1)
    series = rh.Series(rh.simulate(np.random.default_rng(11), shell, truth, 50_000)[0])
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    best = rh.climb(model, series, truth)
    assert find_states(model, series)[0].log_posterior > best.log_posterior - 1


def test_surprises_are_the_worst_predicted_observations():
    model = model_of(rh.Gaussian(), 1)
    parameters = model.parameters([[1.0]], mean=0, variance=1)
    y = np.random.default_rng(0).normal(size=2000)
    y[[100, 900, 1500]] = [60.0, 61.0, 62.0]
    y[400] = -80.0
    series = rh.Series(y)
    groups = surprising_groups(model, parameters, series, None)
    assert any({60.0, 61.0, 62.0} <= set(g[:, 0]) and -80.0 not in g for g in groups)
    wider = model_of(rh.Gaussian(), 2)
    start = append_state(wider, parameters, np.array([[60.0], [61.0], [62.0]]), 2000)
    assert start.phi[1, 0] == pytest.approx(61.0)
    assert start.transition[0, 1] == pytest.approx(3 / 2000)


def test_stretches_keep_sequences_apart():
    series = rh.Series(np.arange(20.0), lengths=[5, 10, 5])
    found = stretches(series, np.array([2, 12]), np.array([7, 15]))
    np.testing.assert_array_equal(found.read(0, 8)[:, 0], [2, 3, 4, 5, 6, 12, 13, 14])
    np.testing.assert_array_equal(found.bounds, [0, 3, 5, 8])


def test_a_sample_is_even_and_keeps_the_places_asked_for():
    series = rh.Series(np.arange(10_000.0), lengths=[4000, 6000])
    found = sample(series, np.array([0, 5555, 5560, 9999]), 1000)
    values = found.read(0, len(found))[:, 0]
    assert len(np.unique(values)) == len(values)
    for place in (0, 5555, 5560, 9999):
        assert set(range(max(0, place - 25), min(10_000, place + 26))) <= set(values)
    assert 1000 <= len(found) <= 1000 + 4 * 51
    starts = values[found.bounds[:-1]]
    assert 4000 in starts or not {3999, 4000} <= set(values)  # a join stays one
    assert sample(series, np.array([5]), 10_000) is series
    assert len(pieces(series, 1000)) == 1000


@pytest.mark.parametrize("long", [1_000_000, 100], ids=["given the past", "given nothing"])
def test_the_most_surprising_places_of_a_series(monkeypatch, long):
    monkeypatch.setattr(initial, "LONG", long)
    monkeypatch.setattr(initial, "PLACES", 3)
    y = np.random.default_rng(0).normal(size=1000)
    y[[17, 500, 999]] = [9.0, -12.0, 7.0]
    y[300] = np.nan
    model = model_of(rh.Gaussian(), 2)
    fit = model.parameters([[0.9, 0.1], [0.1, 0.9]], mean=[0, 1], variance=1)
    found = informative_rows(model, fit, rh.Series(y), None)
    np.testing.assert_array_equal(found[:3], [500, 17, 999])
    np.testing.assert_array_equal(largest_indices(np.array([3.0, 9.0, 1.0]), 5), [1, 0, 2])
    assert len(largest_indices(np.empty(0), 5)) == 0


def test_missing_rows_surprise_nobody_whatever_the_units(monkeypatch):
    monkeypatch.setattr(initial, "PLACES", 10)
    y = 1e-3 * np.random.default_rng(0).normal(size=1000)
    y[300:320] = np.nan
    y[[17, 500]] = [0.01, -0.012]
    model = model_of(rh.Gaussian(), 1)
    found = informative_rows(model, model.parameters([[1.0]], mean=0, variance=1e-6), rh.Series(y), None)[:10]
    assert found[:2].tolist() == [500, 17]
    assert not ((found >= 300) & (found < 320)).any()


def test_distances_do_not_depend_on_the_origin():
    model = model_of(rh.Gaussian(), 2)
    P = [[0.5, 0.5], [0.5, 0.5]]
    for origin in (0.0, 1000.0):
        one = model.parameters(P, mean=[origin, origin + 8], variance=1)
        other = model.parameters(P, mean=[origin + 8, origin - 8], variance=1)
        apart, order = initial.distance(model, one, other)
        assert apart == pytest.approx(8 / np.std([0, 8, 8, -8]))
        assert order.tolist() == [1, 0]


@pytest.mark.jit
@pytest.mark.parametrize("start", [[1.0, 0.0], [0.0, 1.0]])
def test_states_are_named_by_the_start_that_is_given(start):
    y = np.random.default_rng(0).normal(size=500)
    y[200:240] += 8
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), np.array(start))
    found = find_states(model, series)[0].parameters
    assert found.phi[np.argmax(start), 0] == pytest.approx(0, abs=0.3)
    assert found.phi[np.argmin(start), 0] == pytest.approx(8, abs=0.5)


@pytest.mark.jit
@pytest.mark.parametrize("scale", [1.0, 1e-12])
def test_a_sensor_that_is_stuck_is_found_whatever_the_units(scale):
    shell = model_of(rh.Gaussian(), 3)
    P = [[0.995, 0.0048, 0.0002], [0.0048, 0.995, 0.0002], [0.025, 0.025, 0.95]]
    truth = shell.parameters(P, mean=[-4, 4, 4], variance=[1, 1, 0.01])
    y, states = rh.simulate(np.random.default_rng(2), shell, truth, 50_000)
    y[1000:1200] = np.nan
    series = rh.Series(scale * y)
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    found = find_states(model, series)[0].parameters
    k = int(np.argmin(found.phi[:, 1]))
    path, _ = rh.decode(model, found, series)
    assert found.phi[k, 1] < 0.05 * scale**2  # the prior is worth four observations of the noise of all
    assert (path[states == 2] == k).mean() > 0.9


def with_stuck_rows(T, first, count):
    """Two levels, and ``count`` rows from ``first`` on at which the sensor is stuck between them."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=T) + 4 * (np.cumsum(rng.random(T) < 0.005) % 2)
    y[first : first + count] = 0.5 + 0.001 * rng.normal(size=count)
    return y


def stuck_state(y):
    """The fit with three states, and the kind of the one with the smallest variance."""
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    found = find_states(model, series)[0].parameters
    return found, rh.judge_states(model, found, series)[int(np.argmin(found.phi[:, 1]))].kind


@pytest.mark.jit
def test_stuck_rows_between_the_pieces_of_a_sample_are_found(monkeypatch):
    for name, value in (("SAMPLE", 2000), ("LONG", 5000), ("PLACES", 20), ("QUIET", 200)):
        monkeypatch.setattr(initial, name, value)
    monkeypatch.setattr(regimes, "SAMPLE", 2000)
    found, kind = stuck_state(
        with_stuck_rows(20_000, 1200, 200)
    )  # the first pieces end at 500, and begin again at 2166
    k = int(np.argmin(found.phi[:, 1]))
    assert found.phi[k, 0] == pytest.approx(0.5, abs=0.05)
    assert found.phi[k, 1] < 0.05
    assert kind == "rare"


@pytest.mark.nightly
@pytest.mark.jit
@pytest.mark.parametrize("T", [200_000, 1_000_000, 3_000_000])
def test_a_thousand_stuck_rows_are_found_however_long_the_series_is(T):
    found, kind = stuck_state(with_stuck_rows(T, T // 3 + 77_777, 1000))
    k = int(np.argmin(found.phi[:, 1]))
    assert found.phi[k] == pytest.approx([0.5, 0.0], abs=0.01)
    assert kind == "rare"


@pytest.mark.jit
def test_a_state_that_collapses_without_a_prior_ends_no_search():
    series = rh.Series(np.random.default_rng(0).normal(size=30))
    model = rh.Model(rh.Gaussian(), 4, rh.no_priors(rh.Gaussian()))
    assert np.isfinite(find_states(model, series)[0].log_posterior)


def work(monkeypatch, model, series):
    """Observations that EM and predictions looked at while states were found."""
    total = []

    def counted(function):
        def inside(model, parameters, series, **more):
            total.append(len(series))
            return function(model, parameters, series, **more)

        return inside

    monkeypatch.setattr(em, "expectations", counted(em.expectations))
    monkeypatch.setattr(initial, "predictive_log_density", counted(initial.predictive_log_density))
    return find_states(model, series), sum(total)


@pytest.mark.nightly
@pytest.mark.jit
def test_many_states_take_no_more_than_a_hundred_passes_over_a_million(monkeypatch):
    K, T = 8, 1_200_000
    shell = model_of(rh.Gaussian(), K)
    truth = shell.parameters(0.01 / (K - 1) + (0.99 - 0.01 / (K - 1)) * np.eye(K), mean=3 * np.arange(K), variance=1)
    series = rh.Series(rh.simulate(np.random.default_rng(3), shell, truth, T)[0])
    model = rh.Model(rh.Gaussian(), K, rh.default_priors(rh.Gaussian(), K, series))
    assert work(monkeypatch, model, series)[1] <= 100 * 1_000_000


@pytest.mark.jit
def test_states_of_a_long_series_take_no_more_than_a_hundred_passes_over_a_million(monkeypatch):
    """Three of them rare to the point that no even sample would show them: 40 of 4,000,000 observations."""
    shell = model_of(rh.Gaussian(), 3)
    share = 1e-5
    P = [[0.99, 0.01 - share, share], [0.01 - share, 0.99, share], [0.5, 0.0, 0.5]]
    truth = shell.parameters(P, mean=[-3, 0, 9], variance=1)
    y, states = rh.simulate(np.random.default_rng(3), shell, truth, 4_000_000)
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    found, looked = work(monkeypatch, model, series)
    assert looked <= 100 * 1_000_000
    assert np.sort(found[0].parameters.phi[:, 0]) == pytest.approx([-3, 0, 9], abs=0.5)
    assert (states == 2).sum() < 150


@pytest.mark.nightly
@pytest.mark.jit
def test_a_rare_state_in_two_columns_is_found():
    family = rh.MultivariateGaussian(2)
    shell = rh.Model(family, 3, rh.Priors((rh.Flat(),) * 5))
    tilted = np.array([[1, 0.9], [0.9, 1]])
    phi = family.phi_of(np.array([[0, 0], [6, 6], [4, 1]]), np.array([tilted, tilted, 0.3 * np.eye(2)]))
    truth = shell.natural(phi, [[0.99, 0.0095, 0.0005], [0.0095, 0.99, 0.0005], [0.1, 0.1, 0.8]])
    series = rh.Series(rh.simulate(np.random.default_rng(1), shell, truth, 20_000)[0])
    model = rh.Model(family, 3, rh.default_priors(family, 3, series))
    best = rh.climb(model, series, truth)
    assert find_states(model, series)[0].log_posterior > best.log_posterior - 1


@pytest.mark.jit
def test_states_of_a_family_without_estimates_and_m_steps_are_found_by_gradients():
    rng = np.random.default_rng(0)
    states = np.zeros(3000, dtype=int)
    states[1000:1030] = 1
    y = rng.normal(size=(3000, 2)) + 6.0 * states[:, None]
    series = rh.Series(y)
    model = rh.Model(Pair(), 2, rh.default_priors(Pair(), 2, series))
    best = find_states(model, series)[0].parameters
    np.testing.assert_allclose(np.sort(best.phi[:, 0]), [0.0, 6.0], atol=0.7)
    regimes = rh.judge_states(model, best, series)
    assert sorted(r.kind for r in regimes) == ["common", "rare"]


def test_a_short_series_with_few_values_still_gets_its_states():
    series = rh.Series(np.array([0.0, 0, 1, 1, 0, 1, 5, 5]))
    model = rh.Model(rh.Poisson(), 3, rh.default_priors(rh.Poisson(), 3, series))
    assert find_states(model, series)[0].parameters.phi.shape == (3, 1)
    with pytest.raises(ValueError, match="3 different values, too few for 4 states"):
        find_states(rh.Model(rh.Poisson(), 4, model.priors), series)


def test_of_a_longer_series_a_sample_is_searched(monkeypatch):
    for name, value in (("SAMPLE", 60), ("LONG", 100), ("PLACES", 8), ("QUIET", 20)):
        monkeypatch.setattr(initial, name, value)
    monkeypatch.setattr("rarehmm.data.pieces.AROUND", 5)
    y = np.random.default_rng(0).normal(size=300)
    y[205:211] += 9
    y[:30] = np.nan
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    search = initial.Search(model, series, None)
    assert len(search.small) <= len(search.work) < 300
    best = find_states(model, series)[0].parameters
    np.testing.assert_allclose(np.sort(best.phi[:, 0]), [0.0, 9.0], atol=1.0)


def test_a_stretch_with_nothing_in_it_is_neither_surprising_nor_quiet():
    model = model_of(rh.Gaussian(), 1)
    scale = np.array([[0.0], [1.0]])
    work = initial.ExtremesTask(model, model.parameters([[1.0]], mean=0, variance=1), scale)
    assert [len(found.rows) for found in work(np.full((9, 1), np.nan), np.array([9]))] == [0, 0, 0]
    y = np.random.default_rng(0).normal(size=(40, 1))
    y[7], y[10:20] = 9.0, np.nan
    y[30:40] = 0.1 * y[30:40]
    surprising, quiet, longer = work(y, np.array([40]))
    assert surprising.rows[0] == 7
    assert quiet.rows[0] == 30
    assert quiet.values[0] == pytest.approx(-y[30:].var())
    assert -1.0 in quiet.values  # as variable as all
    assert len(longer.rows) == 0  # shorter than its span


class Pickling(ThreadPoolExecutor):
    """An executor that pickles what it is given, as one with other processes does."""

    def submit(self, work, *args):
        return super().submit(*pickle.loads(pickle.dumps((work, *args))))


@pytest.mark.parametrize("kind", ["memory map", "Dask", "executor"])
def test_informative_rows_do_not_depend_on_where_the_data_are(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(initial, "LONG", 500)
    y = np.random.default_rng(0).normal(size=(3000, 2))
    y[1700:1800] *= 1e-3
    np.save(tmp_path / "y.npy", y)
    model = rh.Model(Pair(), 2, rh.default_priors(Pair(), 2, rh.Series(y)))
    fit = model.parameters([[0.9, 0.1], [0.1, 0.9]], first=[0, 1], second=[0, 1])
    expected = informative_rows(model, fit, rh.Series(y), None)
    longer = expected[-2 * (initial.QUIET // 100) :]  # stretches of 100, two rows each
    assert longer[:2].tolist() == [1725, 1775]
    with Pickling(2) as executor:
        series = {
            "memory map": rh.Series(np.load(tmp_path / "y.npy", mmap_mode="r")),
            "Dask": rh.Series(da.from_array(y, 700)),
            "executor": rh.Series(y, executor=executor),
        }[kind]
        np.testing.assert_array_equal(informative_rows(model, fit, series, None), expected)


def test_a_few_steps_without_m_steps_are_those_of_gradients():
    y = np.random.default_rng(0).normal(size=(30, 2))
    y[10:16] += 6
    series = rh.Series(y)
    model = rh.Model(Pair(), 2, rh.default_priors(Pair(), 2, series))
    start = model.parameters([[0.9, 0.1], [0.2, 0.8]], first=[0, 5], second=[0, 5])
    found = initial.climb_briefly(model, series, start, 20, None)
    assert (np.diff(found.trace) >= 0).all()
    np.testing.assert_allclose(found.parameters.phi, [[0, 0], [6, 6]], atol=1.0)
    slope = rh.log_posterior(model, model.pack(found.parameters), series)[1]
    assert np.abs(slope).max() < 0.05
    assert found.log_posterior == pytest.approx(rh.log_posterior(model, model.pack(found.parameters), series)[0])


def test_the_closest_clusters_are_merged_first():
    series = rh.Series(np.array([0.0, 0.1, 5.0, 5.1, 6.0, np.nan, 20.0]))
    labels = np.array([0, 0, 1, 1, 2, 2, 3])
    found = [merged.tolist() for merged in initial.merged_labels(series, labels, 4)]
    assert found == [[0, 0, 1, 1, 1, 1, 2], [0, 0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 0, 0, 2]]
    assert initial.merged_labels(series, labels, 5) == []  # one cluster is empty


def work_for_levels(monkeypatch, K, T):
    """Observations times squared number of states that EM reads to find K levels in T observations, and the fit."""
    total = []

    def counted(model, parameters, series, **more):
        total.append(len(series) * model.n_states**2)
        return expectations(model, parameters, series, **more)

    monkeypatch.setattr(em, "expectations", counted)
    rng = np.random.default_rng(0)
    series = rh.Series(6.0 * (7 * np.cumsum(rng.random(T) < 0.02) % K) + rng.normal(size=T))
    model = rh.Model(rh.Gaussian(), K, rh.default_priors(rh.Gaussian(), K, series))
    found = find_states(model, series)[0].parameters
    return sum(total), found


@pytest.mark.jit
def test_finding_many_states_takes_a_bounded_amount_of_work(monkeypatch):
    """Beyond it, only what cannot be left out: EM from k-means, and from the best candidate."""
    monkeypatch.setattr(initial, "WORK", 1e7)
    spent, found = work_for_levels(monkeypatch, 8, 3000)
    assert spent < 1e7 + 60 * 3000 * 8**2
    np.testing.assert_allclose(np.sort(found.phi[:, 0]), 6 * np.arange(8), atol=0.5)


@pytest.mark.nightly
@pytest.mark.jit
@pytest.mark.parametrize(("K", "T"), [(12, 30_000), (30, 200_000)])
def test_finding_a_dozen_states_and_more_takes_a_bounded_amount_of_work(monkeypatch, K, T):
    spent, found = work_for_levels(monkeypatch, K, T)
    assert spent < initial.WORK + 60 * T * K**2
    np.testing.assert_allclose(np.sort(found.phi[:, 0]), 6 * np.arange(K), atol=0.5)


@pytest.mark.jit
def test_a_single_visit_in_autocorrelated_noise_is_found():
    """Only its first and its last step are surprising."""
    rng, T = np.random.default_rng(1), 4_000
    levels = 20.0 * (np.cumsum(rng.random(T) < 0.005) % 2)
    levels[2100:2110] = 40
    y = levels + lfilter([1.0], [1.0, -0.95], rng.normal(size=T))
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series), autoregression=rh.AroundLevel(1))
    found = find_states(model, series)[0].parameters
    states = rh.smooth(model, found, series).argmax(1)
    top = int(np.bincount(states[2100:2110]).argmax())
    assert np.flatnonzero(states == top).tolist() == list(range(2100, 2110))


@pytest.mark.jit
def test_levels_above_and_below_in_autocorrelated_noise_do_not_share_a_broad_state():
    rng, T = np.random.default_rng(4), 2_000
    y = lfilter([1.0], [1.0, -0.7], rng.normal(size=T)) + 8 * np.sin(2 * np.pi * np.arange(T) / 96)
    for k, first in enumerate(rng.choice(np.arange(50, T - 50, 60), 14, replace=False)):
        y[first : first + int(rng.geometric(0.18))] += -22 if k % 2 else 18
    series = rh.Series(y)
    season = rh.Inputs.of(series, [rh.Season(96, order=2)])
    model = rh.Model(
        rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series), inputs=season, autoregression=rh.AroundLevel(1)
    )
    found = np.sort(find_states(model, series)[0].parameters.phi[:, 0])
    np.testing.assert_allclose(found, [-22, 0, 18], atol=1.5)
