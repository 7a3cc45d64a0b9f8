"""Several columns whose rows differ: climbs by gradients, and first rows that are given."""

import numpy as np
import pytest

import rarehmm as rh

P = [[0.9, 0.1], [0.2, 0.8]]
TWO = rh.MultivariateGaussian(2)
MIXED = rh.Product(speed=rh.Gaussian(), errors=rh.Poisson())
# name -> family, what else a model has, and parameters of states
CASES = {
    "lags": (TWO, {"autoregression": rh.AroundLevel(1)}, TWO.phi_of([[0, 0], [3, 2]], [np.eye(2)] * 2)),
    "inputs": (MIXED, {}, [[0.0, 1.0, 1.0], [3.0, 1.0, 4.0]]),
    "labels": (rh.Product(rh.Gaussian(), rh.Gaussian()), {}, [[0.0, 1.0, 0.0, 1.0], [3.0, 1.0, 2.0, 1.0]]),
    "phases": (TWO, {"transitions": rh.Phases((1, 2))}, TWO.phi_of([[0, 0], [3, 2]], [np.eye(2)] * 2)),
    "tied": (TWO, {"tied": ("residual_0",), "coordinates": rh.ExpandedMean()},
             TWO.phi_of([[0, 0], [3, 2]], [np.eye(2)] * 2)),
}  # fmt: skip


def setting(name, T=50):
    """Model, parameters and a series of 50 rows with a gap."""
    family, more, phi = CASES[name]
    rng, x = np.random.default_rng(5), np.random.default_rng(6).normal(size=(T, 1))
    truth = (np.arange(T) % 20 > 14).astype(int)
    y = np.column_stack([3.0 * truth + rng.normal(size=T), rng.poisson(1 + 3 * truth)])
    y[30] = np.nan
    series = rh.Series(y, exog=x, states=np.where(np.arange(T) < 20, truth, -1) if name == "labels" else None)
    if name == "inputs":
        more = {"inputs": rh.Inputs.of(series, [rh.Columns()])}
    model = rh.Model(family, 2, rh.default_priors(family, 2, series), **more)
    return model, model.natural(phi, P), series


@pytest.mark.plain
@pytest.mark.parametrize("name", CASES)
def test_climbs_of_several_columns_rise_to_a_mode(name):
    model, start, series = setting(name)
    seen = []
    found = rh.climb(model, series, start, on_progress=lambda step, value: seen.append((step, value)))
    assert found.converged
    assert (np.diff(found.trace) >= 0).all()
    assert found.trace[-1] > found.trace[0] + 1
    assert found.log_posterior == found.trace[-1]
    assert seen == list(enumerate(found.trace))
    inside = rh.Model(model.family, 2, model.priors, inputs=model.inputs, autoregression=model.autoregression,
                      transitions=model.transitions, tied=model.tied)  # fmt: skip
    value, slope = rh.log_posterior(inside, inside.pack(found.parameters), series)
    assert value == pytest.approx(found.log_posterior, abs=1e-8)
    assert np.abs(slope).max() < 0.02


def test_climbs_by_gradients_take_as_many_steps_as_they_may_and_stop_at_the_tolerance():
    model, start, series = setting("lags")
    few = rh.climb(model, series, start, steps=4)
    assert (len(few.trace), few.converged) == (4, False)
    one = rh.climb(model, series, start, steps=1)
    assert one.trace.tolist() == few.trace[:1].tolist()
    assert not one.converged
    rough, fine = (rh.climb(model, series, start, tolerance=gain) for gain in (1.0, 1e-6))
    assert rough.converged
    assert len(rough.trace) < len(fine.trace)
    assert (np.diff(rough.trace)[-2:] < 1.0).all()
    with pytest.raises(TypeError, match="free_start needs a model without inputs, lags"):
        rh.climb(model, series, start, free_start=True)


def test_one_column_in_expanded_means_climbs():
    """The climb itself is in log ratios."""
    family, y = rh.Gaussian(), setting("lags")[2].read(0, 50)[:, 0]
    series = rh.Series(y)
    priors = rh.default_priors(family, 2, series)
    models = [
        rh.Model(family, 2, priors, autoregression=rh.AroundLevel(1), coordinates=coordinates)
        for coordinates in (rh.ExpandedMean(), rh.AdditiveLogRatio())
    ]
    one, two = (rh.climb(model, series, model.natural([[0, 1], [3, 1]], P)) for model in models)
    assert (np.diff(one.trace) >= 0).all()
    assert one.trace[[0, -1]] == pytest.approx(two.trace[[0, -1]], abs=1e-4)


# ---------------------------------------------------------------- first rows
GIVEN = {
    "several columns": (rh.Product(rh.Gaussian(), rh.Gaussian()), rh.AroundLevel(1), [0.6, 0.6]),
    "switching": (rh.Gaussian(), rh.AroundLevel(1, switching=True), [0.6, 0.6]),
}


@pytest.mark.parametrize("name", GIVEN)
def test_first_rows_that_are_given_say_nothing_in_likelihood_and_simulation(name):
    """They have density 1 whatever ``conditional`` says, and simulated ones are independent of their states."""
    family, form, lags = GIVEN[name]
    D = 1 + (name == "several columns")
    N, phi = 4000, np.tile([[0.0, 1.0], [4.0, 1.0]], D)
    model = rh.Model(family, 2, rh.no_priors(family), autoregression=form)
    other = rh.Model(family, 2, rh.no_priors(family), autoregression=form._replace(conditional=True))
    point = model.natural(phi, P, lags)
    frame = rh.Series(np.tile([[np.nan], [0.0]], (N, D)), lengths=[2] * N)
    y, states = rh.simulate(np.random.default_rng(0), model, point, frame)
    y = y.reshape(N, 2, D)
    series = rh.Series(y.reshape(2 * N, D), lengths=[2] * N)
    assert rh.log_likelihood(model, point, series) == rh.log_likelihood(other, point, series)
    first, second = states.reshape(N, 2).T
    for d in range(D):
        apart = y[first == 1, 0, d].mean() - y[first == 0, 0, d].mean()
        assert abs(apart) < 5 * y[:, 0, d].std() * np.sqrt(1 / (first == 1).sum() + 1 / (first == 0).sum())
        noise = y[:, 1, d] - 4.0 * second - 0.6 * (y[:, 0, d] - 4.0 * first)
        assert abs(noise.mean()) < 5 / np.sqrt(N)
        assert abs(noise.var() - 1) < 5 * np.sqrt(2 / N)
