"""EM: every step raises the log posterior, and what it settles at is a mode."""

import numpy as np
import pytest
from scipy.optimize import minimize
from small_models import FAMILIES, SINGLE, Pair, failing_at, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.exact import em

names = {"ids": lambda f: type(f).__name__}


@pytest.mark.jit
@pytest.mark.parametrize("start", [False, True], ids=["stationary", "given start"])
@pytest.mark.parametrize("family", FAMILIES, **names)
def test_every_step_raises_the_log_posterior(family, start):
    rng = np.random.default_rng(0)
    model = model_of(family, 3, start=rng.dirichlet(np.ones(3)) if start else None)
    truth = parameters_of(rng, model, gap=3.0)
    series = rh.Series(series_of(rng, model, truth, 60), lengths=[20, 10, 30])
    found = rh.climb(model, series, parameters_of(rng, model, gap=1.0), steps=40, tolerance=0.0)
    assert (np.diff(found.trace) > -1e-10 * np.abs(found.trace[0])).all()
    assert found.trace[-1] > found.trace[0] + 1


@pytest.mark.jit
@pytest.mark.parametrize("family", FAMILIES, **names)
def test_it_settles_where_the_gradient_vanishes(family):
    rng = np.random.default_rng(1)
    model = model_of(family, 2)
    truth = parameters_of(rng, model, gap=4.0)
    series = rh.Series(series_of(rng, model, truth, 120, missing=0.1))
    found = rh.climb(model, series, truth, steps=400, tolerance=1e-13)
    assert found.converged
    value, slope = rh.log_posterior(model, model.pack(found.parameters), series)
    assert value == pytest.approx(found.log_posterior, abs=1e-8)
    assert np.abs(slope).max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES, **names)
def test_an_m_step_maximises_its_part(family):
    """Mean and scale each at its own best given the other (they are maximised in turn); rates at once."""
    rng = np.random.default_rng(2)
    model = model_of(family, 2)
    parameters = parameters_of(rng, model)
    found = rh.expectations(model, parameters, rh.Series(series_of(rng, model, parameters, 50)), with_statistics=True)
    new = em.m_step(model, parameters, found)

    def complete(phi):  # expected complete-data log posterior of the emissions; u frozen for Student-t
        match family:
            case rh.Poisson():
                value = found.statistics[:, 0] * np.log(phi[:, 0]) - found.counts * phi[:, 0]
            case _:
                sums = found.statistics if family != rh.StudentT(4.0) else found.statistics[:, 1:]
                weight = found.counts if len(found.statistics[0]) == 2 else found.statistics[:, 0]
                shift = phi[:, 0] - parameters.phi[:, 0]
                squares = sums[:, 1] - 2 * shift * sums[:, 0] + shift**2 * weight
                value = -0.5 * squares / phi[:, 1] - 0.5 * found.counts * np.log(phi[:, 1])
        theta = model.pack(new._replace(phi=phi))
        return value.sum() + model.log_prior(theta)

    h = 1e-5
    P = new.phi.shape[1]
    for k, i in np.ndindex(new.phi.shape):
        at = new.phi.copy()
        if i == 0 and P > 1:
            at[:, 1] = parameters.phi[:, 1]  # the mean was maximised given the old scale
        up, down = at.copy(), at.copy()
        up[k, i] *= 1 + h
        down[k, i] *= 1 - h
        assert complete(at) >= max(complete(up), complete(down)) - 1e-9


def test_transitions_with_a_stationary_start_are_the_best():
    rng = np.random.default_rng(3)
    model = model_of(rh.Gaussian(), 3)
    pairs, first = rng.gamma(2.0, 3.0, (3, 3)), np.array([5.0, 0.2, 0.1])
    found = em.best_transition(model, SINGLE, pairs, first)

    def objective(x):
        P = rh.AdditiveLogRatio().unpack(x, 3)
        return -((pairs + 1) * np.log(P)).sum() - first @ np.log(rh.stationary(P))

    best = minimize(objective, np.zeros(6), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(found, rh.AdditiveLogRatio().unpack(best.x, 3), atol=2e-4)
    ratio = (pairs + 1) / (pairs + 1).sum(1, keepdims=True)
    np.testing.assert_allclose(em.transition_by_lbfgs(model, ratio, pairs + 1, first), found, atol=2e-4)
    assert np.abs(found - ratio).max() > 0.01  # the start matters here
    fixed = model_of(rh.Gaussian(), 3, start=[0.2, 0.3, 0.5])
    np.testing.assert_allclose(em.best_transition(fixed, SINGLE, pairs, first), ratio)


def test_one_state_without_priors_is_the_sample_mean_and_variance():
    y = np.random.default_rng(4).normal(3, 2, 50)
    model = rh.Model(rh.Gaussian(), 1, rh.no_priors(rh.Gaussian()))
    found = rh.climb(model, rh.Series(y), model.parameters([[1.0]], mean=0, variance=1))
    np.testing.assert_allclose(found.parameters.phi, [[y.mean(), y.var()]], rtol=1e-12)
    assert found.log_posterior == pytest.approx(rh.log_likelihood(model, found.parameters, rh.Series(y)))


def test_a_state_that_sees_nothing_keeps_its_place():
    model = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()), start=[1.0, 0.0])
    away = model.parameters([[1.0, 0.0], [0.5, 0.5]], mean=[0, 1000], variance=1)
    found = rh.expectations(model, away, rh.Series([0.1, -0.2, 0.3]), with_statistics=True)
    after = em.m_step(model, away, found)
    assert np.isfinite(after.phi).all()
    np.testing.assert_array_equal(after.phi[1], [1000, 1])


def test_what_em_cannot_do_is_said():
    y = rh.Series([0.0, 1.0, 2.0])
    pair = rh.Model(Pair(), 1, rh.Priors((rh.Normal(0, 1), rh.Normal(0, 1))))
    with pytest.raises(TypeError, match="Pair has no M-step"):
        rh.climb(pair, y, pair.natural(np.zeros((1, 2)), np.ones((1, 1))))
    odd = rh.Model(rh.Gaussian(), 1, rh.Priors((rh.Normal(0, 1), rh.Gamma(1, 1))))
    with pytest.raises(TypeError, match="EM needs a InverseGamma prior"):
        rh.climb(odd, y, odd.parameters([[1.0]], mean=0, variance=1))


def test_a_plain_change_point_without_priors():
    """Transitions go to zero; neither the fit nor the gradient at it may break."""
    rng = np.random.default_rng(0)
    y = rh.Series(np.concatenate([rng.normal(0, 1, 50), rng.normal(20, 1, 50)]))
    model = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()))
    found = rh.climb(model, y, model.parameters([[0.9, 0.1], [0.1, 0.9]], mean=[1, 19], variance=1))
    assert (np.diff(found.trace) > -1e-9).all()
    assert found.parameters.phi[1, 0] == pytest.approx(20, abs=0.5)


def test_a_collapse_is_said_and_the_best_point_kept():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(0, 1, 50), [7.0], rng.normal(0, 1, 50)])
    model = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()))
    begin = model.parameters([[0.9, 0.1], [0.5, 0.5]], mean=[0, 7], variance=[1, 0.01])
    found = rh.climb(model, rh.Series(y), begin, steps=1)
    assert not found.converged
    value = rh.log_likelihood(model, found.parameters, rh.Series(y))
    assert found.log_posterior == pytest.approx(value)


def test_expanded_coordinates_climb_the_same_hill():
    rng = np.random.default_rng(5)
    traces = []
    for coordinates in (rh.AdditiveLogRatio(), rh.ExpandedMean()):
        model = model_of(rh.Gaussian(), 2, coordinates=coordinates)
        begin = model.parameters([[0.8, 0.2], [0.3, 0.7]], mean=[0, 3], variance=1)
        traces.append(rh.climb(model, rh.Series(np.random.default_rng(5).normal(size=60)), begin, steps=20).trace)
    np.testing.assert_allclose(*traces)
    with pytest.raises(ValueError, match="steps is 0"):
        rh.climb(model, rh.Series(rng.normal(size=9)), begin, steps=0)
    with pytest.raises(ValueError, match="use fewer states"):
        rh.climb(model, rh.Series([1.0]), begin)
    with pytest.raises(ValueError, match="a constant series has no regimes"):
        rh.climb(model, rh.Series([1.0] * 9), begin)


def test_watch_is_told_of_each_step():
    model = model_of(rh.Gaussian(), 1)
    given = []
    rh.climb(model, rh.Series([0.0, 1.0, 2.0]), model.parameters([[1.0]], mean=0, variance=1), steps=3, tolerance=-1.0,
             on_progress=lambda step, value: given.append(step))  # fmt: skip
    assert given == [0, 1, 2]


def test_gradient_steps_come_back_from_the_bounds(monkeypatch):
    model = model_of(rh.Gaussian(), 1)
    series = rh.Series(np.random.default_rng(0).normal(3.0, 1.0, 20))
    start = model.parameters([[1.0]], mean=2.0, variance=1.0)
    found, top = em.gradient_steps(model, series, start, 20), rh.climb(model, series, start, tolerance=1e-10)
    assert found.log_posterior == pytest.approx(top.log_posterior, abs=1e-3)
    np.testing.assert_allclose(found.parameters.phi, top.parameters.phi, atol=0.02)
    bounded, seen = failing_at(4, em.log_posterior)
    monkeypatch.setattr(em, "log_posterior", bounded)
    again = em.gradient_steps(model, series, start, 20)
    assert len(seen) > 5
    assert again.log_posterior == pytest.approx(found.log_posterior, abs=1e-6)
    np.testing.assert_allclose(again.parameters.phi, found.parameters.phi, atol=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_a_descent_comes_back_from_where_there_is_no_value(seed):
    """Of starts such as these a third ended early, where what is out of bounds was infinite."""

    def down(x):
        if x[0] <= 0 or abs(x[1]) > 30:
            raise ValueError("out of bounds")
        return 100 * (x[0] - np.log(x[0])) + np.cosh(x[1] - 1), np.array([100 - 100 / x[0], np.sinh(x[1] - 1)])

    rng = np.random.default_rng(seed)
    found = em.descend(down, np.array([np.exp(3 * rng.normal()), rng.uniform(-29, 29)]), 300)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-3)
    assert found.fun == pytest.approx(101.0, abs=1e-6)
    assert em.descend(down, np.array([-1.0, 0.0]), 300).fun == np.inf
