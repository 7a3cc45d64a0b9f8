"""The mode: no slope, the right curvature, found from the data; names of states that stay."""

import numpy as np
import pytest
from small_models import FAMILIES, Pair, failing_at, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.exact.em import Climb
from rarehmm.search import initial
from rarehmm.search import mode as mode_module
from rarehmm.search.mode import Mode, find_mode, is_distinct_mode, metric, negative_hessian, relabel_states, state_order


def setting(family, K=2, T=400, gap=4.0, seed=2):
    rng = np.random.default_rng(seed)
    model = model_of(family, K)
    parameters = parameters_of(rng, model, gap=gap)
    return model, parameters, rh.Series(series_of(rng, model, parameters, T, missing=0.05))


@pytest.mark.jit
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_the_mode_has_no_slope_and_its_hessian_is_the_curvature(family):
    model, parameters, series = setting(family)
    mode = find_mode(model, series, parameters)
    slope = rh.log_posterior(mode.model, mode.theta, series)[1]
    assert np.abs(mode.factor.T @ slope).max() < 1e-2
    assert mode.positive_definite
    np.testing.assert_allclose(mode.factor @ mode.factor.T @ mode.hessian, np.eye(mode.model.size), atol=1e-6)
    move = 1e-3 * np.random.default_rng(0).standard_normal(mode.model.size)
    values = [rh.log_posterior(mode.model, mode.theta + s * move, series)[0] for s in (-1, 0, 1)]
    assert values[0] - 2 * values[1] + values[2] == pytest.approx(-move @ mode.hessian @ move, rel=1e-2)
    rows = mode.model.unpack(mode.theta).transition
    assert mode.model.coordinates.reference == tuple(rows.argmax(1))


def test_a_hessian_that_is_not_positive_definite_gives_a_diagonal_metric():
    factor, positive_definite = metric(np.array([[4.0, 0.0], [0.0, -1.0]]))
    assert not positive_definite
    np.testing.assert_allclose(factor, np.diag([0.5, 1.0]))


def test_without_an_m_step_the_mode_is_found_by_gradients():
    from small_models import Pair

    rng = np.random.default_rng(0)
    model = rh.Model(Pair(), 2, rh.Priors((rh.Normal(0, 9),) * 2))
    parameters = parameters_of(rng, model, gap=3.0)
    series = rh.Series(series_of(rng, model, parameters, 300))
    mode = find_mode(model, series, parameters)
    assert np.abs(mode.factor.T @ rh.log_posterior(mode.model, mode.theta, series)[1]).max() < 0.05


@pytest.mark.jit
def test_names_of_states_are_those_of_the_mode():
    model, parameters, series = setting(rh.Gaussian(), K=3, gap=4.0)
    mode = find_mode(model, series, parameters)
    assert state_order(mode)[0] == 0  # means tell them apart, not variances
    phi, transition = mode.model.unpack_all(mode.theta)
    swapped = np.array([mode.model.pack(mode.model.natural(phi[list(o)], transition[np.ix_(o, o)]))
                        for o in ((0, 1, 2), (2, 0, 1), (1, 0, 2))])  # fmt: skip
    np.testing.assert_allclose(relabel_states(mode, swapped), np.tile(mode.theta, (3, 1)), atol=1e-9)
    values = [rh.log_posterior(mode.model, t, series)[0] for t in swapped]
    np.testing.assert_allclose(values, mode.log_posterior, rtol=1e-10)


def test_a_renamed_or_unfinished_climb_is_no_other_mode():
    model, parameters, series = setting(rh.Gaussian(), K=2, gap=6.0)
    mode = find_mode(model, series, parameters)
    point = mode.model.unpack(mode.theta)
    order = [1, 0]
    near = Climb(
        mode.model.natural(point.phi[order] + 0.01, point.transition[np.ix_(order, order)]),
        mode.log_posterior - 0.3, np.zeros(1), False,
    )  # fmt: skip
    assert not is_distinct_mode(mode, series, near)
    assert isinstance(mode, Mode)
    assert negative_hessian(mode.model, series, mode.theta).shape == (mode.model.size,) * 2


@pytest.mark.jit
@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0), (1e-12, 0), (1e12, 0), (1, 1e6), (1e-7, 1e-3), (3.0, -1e5)])
def test_the_answer_does_not_depend_on_units(scale, shift):
    y = np.random.default_rng(2).normal(size=3000)
    y[1000:1030] += 8
    y[2000:2040] += 8
    plain, other = (rh.RareHMM(2, n_draws=100).fit(v) for v in (y, scale * y + shift))
    assert plain.posterior_.method == other.posterior_.method == "chain"
    assert other.rare_states_.tolist() == [1]
    np.testing.assert_allclose((other.means_ - shift) / scale, plain.means_, atol=0.02)
    np.testing.assert_allclose(other.covars_ / scale**2, plain.covars_, rtol=0.02)


@pytest.mark.parametrize("scale", [1e-40, 1e40])
def test_parameters_that_have_no_unit_keep_their_curvature(scale):
    """A mean of logarithms moves with the unit of the data, and is as sharp as before."""
    y = np.random.default_rng(3).lognormal(size=200)
    found = []
    for unit in (1.0, scale):
        series = rh.Series(unit * y)
        model = rh.Model(rh.LogNormal(), 1, rh.default_priors(rh.LogNormal(), 1, series))
        theta = model.pack(model.natural(np.array([[np.log(unit), 1.0]]), np.ones((1, 1))))
        found.append(negative_hessian(model, series, theta))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-3)


@pytest.mark.jit
def test_free_states_in_another_order_are_no_second_mode():
    """The mean of one state is known; the two others may change their names."""
    y = np.random.default_rng(5).normal(size=20_000)
    for begin in range(500, 20_000, 4000):
        y[begin : begin + 40] += 8
        y[begin + 1000 : begin + 1040] -= 8
    series = rh.Series(y)
    fixed = {"mean": [0.0, None, None]}
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series), fixed=fixed)
    mode = find_mode(model, series)
    here = mode.model.unpack(mode.theta)
    order = [0, 2, 1]
    swapped = model.natural(here.phi[order], here.transition[np.ix_(order, order)])
    assert not is_distinct_mode(mode, series, rh.climb(model, series, swapped, steps=2))
    assert mode.others == []


def test_a_step_out_of_bounds_is_taken_back(monkeypatch):
    y = np.random.default_rng(0).normal(size=(30, 2))
    series = rh.Series(y)
    model = rh.Model(Pair(), 1, rh.Priors((rh.Normal(0.0, 1.0),) * 2))
    start = model.pack(model.parameters([[1.0]], first=2.0, second=-1.0))
    top, value = mode_module.polish(model, series, start, None)
    np.testing.assert_allclose(top, y.sum(0) / 31, atol=1e-3)  # unit variance, and a prior worth one observation
    bounded, seen = failing_at(4, mode_module.log_posterior)
    monkeypatch.setattr(mode_module, "log_posterior", bounded)
    again, reached = mode_module.polish(model, series, start, None)
    assert len(seen) > 5
    np.testing.assert_allclose(again, top, atol=1e-3)
    assert reached == pytest.approx(value, abs=1e-6)


def test_newton_steps_stay_within_bounds():
    model = model_of(rh.Gaussian(), 1)
    series = rh.Series(np.random.default_rng(0).normal(size=20))
    theta = model.pack(model.parameters([[1.0]], mean=0.5, variance=2.0))
    value = rh.log_posterior(model, theta, series)[0]
    there, same = mode_module.newton(model, series, theta, value, 1e5 * np.eye(2), None, reach=1e9)
    np.testing.assert_array_equal(there, theta)
    assert same == value


def in_random_order(centres, n, run=1, seed=0):
    """Levels with the same symmetric noise, n observations each in runs: mirror images of a mode have equal heights."""
    rng = np.random.default_rng(seed)
    noise = 0.5 * rng.normal(size=n // 2)
    return rng.permutation((np.concatenate([noise, -noise]) + np.array(centres)[:, None]).reshape(-1, run)).ravel()


def default_model(y, K):
    series = rh.Series(y)
    return rh.Model(rh.Gaussian(), K, rh.default_priors(rh.Gaussian(), K, series)), series


def number_of_modes(y, K):
    return 1 + len(find_mode(*default_model(y, K)).others)


@pytest.mark.jit
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_modes_are_compared_on_the_whole_series_where_states_are_found_in_a_sample(monkeypatch, scale):
    for name, value in (("SAMPLE", 1000), ("LONG", 2000), ("PLACES", 20)):
        monkeypatch.setattr(initial, name, value)
    one = np.random.default_rng(0).normal(size=3000)
    one[1000:1100] += 8
    assert number_of_modes(scale * one, 2) == 1
    assert number_of_modes(scale * in_random_order([-9, 0, 9], 1000), 2) == 2


@pytest.mark.nightly
@pytest.mark.jit
@pytest.mark.parametrize("scale", [1.0, 1e-6])
@pytest.mark.parametrize("T", [1_500_000, 4_000_000])
def test_modes_of_more_than_a_million_observations(T, scale):
    """States are found in a sample of a million of them."""
    one = np.random.default_rng(0).normal(size=T)
    one[T // 2 : T // 2 + 300] += 8
    assert number_of_modes(scale * one, 2) == 1
    assert number_of_modes(scale * in_random_order([-9, 0, 9], T // 3), 2) == 2


@pytest.mark.jit
@pytest.mark.parametrize("scale", [1.0, 1e-6])
@pytest.mark.parametrize(("run", "seed"), [(1, 0), (1, 1), (5, 1)])
def test_all_modes_are_kept(run, seed, scale):
    """Four levels and three states: any two neighbouring levels may share a state."""
    model, series = default_model(scale * in_random_order([-12, -4, 4, 12], 300, run, seed), 3)
    mode = find_mode(model, series)
    found = [Climb(mode.model.unpack(mode.theta), mode.log_posterior, np.empty(0), True), *mode.others]
    groupings = {(-12, -4, 8): (1, 1, 65), (-12, 0, 12): (1, 65, 1), (-8, 4, 12): (65, 1, 1)}  # means and variances
    expected = {}
    for means, variances in groupings.items():
        start = model.parameters(
            np.full((3, 3), 1 / 3), mean=scale * np.array(means), variance=scale**2 * np.array(variances) / 4
        )
        expected[means] = rh.climb(model, series, start).log_posterior
    highest = max(expected.values())
    expected = {means: height for means, height in expected.items() if height >= highest - mode_module.GAP}
    reached = {tuple((np.sort(c.parameters.phi[:, 0]) / scale).round()): c.log_posterior for c in found}
    assert reached == pytest.approx(expected, abs=0.01)
    assert len(found) == len(expected) == (3 if run == 1 else 2)
    assert list(reached.values()) == sorted(reached.values(), reverse=True)


@pytest.mark.jit
@pytest.mark.parametrize("seed", range(5))
def test_a_clear_mode_has_no_others(seed):
    """Two common states and a rare one."""
    rng = np.random.default_rng(seed)
    y = np.repeat(rng.permutation([0.0, 4.0] * 20), 50) + rng.normal(size=2000)
    y[rng.choice(2000, 3)[:, None] + np.arange(5)] += 9
    assert number_of_modes(y, 3) == 1
