"""Fixed coefficients of inputs and lags: no part of theta, in the user's units, kept by every method."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import rarehmm as rh
from rarehmm.posterior.model_settings import model_from_settings, model_settings
from rarehmm.posterior.named_coefficients import named_coefficients

T = 60
RNG = np.random.default_rng(3)
X = pd.DataFrame({"load": 5 + 2 * RNG.normal(size=T), "temp": RNG.normal(size=T)})
Y = RNG.normal(size=T)
SERIES = rh.Series(Y, lengths=[25, 35], exog=X)
LOAD, TEMP = (rh.Inputs.of(SERIES, [rh.Columns(name)]) for name in ("load", "temp"))
BOTH = rh.Inputs.of(SERIES, [rh.Columns()])
P = [[0.9, 0.1], [0.2, 0.8]]
GAUSSIAN = rh.Gaussian()

# name -> settings of a model, what is fixed, and the coefficients by name
CASES = {
    "shared": ({"inputs": BOTH}, {"load": 0.5}, ("coefficient", 0, 0.5)),
    "switching": ({"switching": BOTH}, {"temp": [None, -0.25]}, ("switching_coefficient", (1, 1), -0.25)),
    "scale": ({"scale": BOTH}, {"log scale temp": 0.1}, ("log_scale_coefficient", 1, 0.1)),
    "intercept": ({"autoregression": rh.Intercept(2)}, {"lag 2": 0.2}, ("lag_coefficient", 1, 0.2)),
    "switching lags": (
        {"autoregression": rh.AroundLevel(1, switching=True)}, {"lag 1": [0.3, None]}, ("lag_coefficient", (0, 0), 0.3),
    ),
    "level": (
        {"inputs": LOAD, "autoregression": rh.AroundLevel(2)}, {"lag 1": 0.5, "lag 2": 0.2},
        ("lag_coefficient", 0, 0.5),
    ),
    "Hamilton": ({"autoregression": rh.Hamilton(1)}, {"lag 1": 0.5}, ("lag_coefficient", 0, 0.5)),
    "transitions": (
        {"transitions": rh.Regression(BOTH)}, {"slope load": [[0.3, -0.3], [None, None]]},
        ("transition_coefficient", (0, 0, 0), 0.3),
    ),
    "mean": ({"inputs": LOAD}, {"load": 0.5, "mean": [0.0, None]}, ("coefficient", 0, 0.5)),
}  # fmt: skip


def setting(name):
    """Model, a point theta and parameters of a case."""
    more, fixed, _ = CASES[name]
    model = rh.Model(GAUSSIAN, 2, rh.default_priors(GAUSSIAN, 2, SERIES), fixed=fixed, **more)
    parameters = model.natural([[0.0, 1.0], [1.0, 2.0]], P)
    theta = model.pack(parameters) + 0.1 * np.random.default_rng(0).normal(size=model.size)
    return model, theta, model.unpack(theta)


@pytest.mark.parametrize("name", CASES)
def test_fixed_coefficients_are_no_part_of_theta(name):
    model, theta, parameters = setting(name)
    free = replace(model, fixed=None)
    gone = sum(int(np.sum(~np.isnan(np.asarray(values, dtype=float)))) for values in CASES[name][1].values())
    gone -= name == "transitions"  # a row of two slopes has one coordinate
    assert len(theta) == model.size == free.size - gone == len(model.component_names)
    assert set(model.component_names) < set(free.component_names)
    np.testing.assert_allclose(model.pack(parameters), theta, atol=1e-12)
    block, place, value = CASES[name][2]
    assert named_coefficients(model, parameters.coefficients)[block][place] == pytest.approx(value, abs=1e-12)
    assert rh.log_likelihood(model, parameters, SERIES) == rh.log_likelihood(free, parameters, SERIES)


@pytest.mark.parametrize("name", CASES)
def test_gradient_against_differences(name):
    model, theta, _ = setting(name)
    slope = rh.log_posterior(model, theta, SERIES)[1]
    h = 1e-5
    differences = [
        (rh.log_posterior(model, theta + e, SERIES)[0] - rh.log_posterior(model, theta - e, SERIES)[0]) / (2 * h)
        for e in h * np.eye(model.size)
    ]
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rh.Model.log_prior_gradient(model, theta), [
        (model.log_prior(theta + e) - model.log_prior(theta - e)) / (2 * h) for e in h * np.eye(model.size)
    ], rtol=1e-6, atol=1e-6)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_em_modes_and_gibbs_keep_fixed_coefficients(name):
    model, _, parameters = setting(name)
    block, place, value = CASES[name][2]
    found = rh.climb(model, SERIES, parameters, steps=40)
    assert (np.diff(found.trace) >= 0).all()
    assert found.trace[-1] > found.trace[0]
    assert named_coefficients(model, found.parameters.coefficients)[block][place] == pytest.approx(value, abs=1e-12)
    draws = rh.gibbs(np.random.default_rng(0), model, SERIES, parameters, 5)
    every = named_coefficients(model, model.unpack_coefficients(draws))[block]
    np.testing.assert_allclose(every[:, *np.atleast_1d(place)], value, atol=1e-12)
    assert (np.ptp(draws, axis=0) > 0).any()


@pytest.mark.parametrize("name", ["switching", "level", "transitions"])
def test_modes_that_are_searched_have_fixed_coefficients(name):
    model, _, _ = setting(name)
    y = Y + 6.0 * (np.arange(T) % 20 > 15)
    mode = rh.find_mode(model, rh.Series(y, exog=X))
    block, place, value = CASES[name][2]
    found = named_coefficients(mode.model, mode.model.unpack(mode.theta).coefficients)[block][place]
    assert found == pytest.approx(value, abs=1e-12)
    assert np.isfinite(mode.log_posterior)


def test_an_input_fixed_at_zero_is_as_good_as_none():
    with_input = rh.Model(GAUSSIAN, 2, rh.no_priors(GAUSSIAN), inputs=BOTH, fixed={"temp": 0})
    without = rh.Model(GAUSSIAN, 2, rh.no_priors(GAUSSIAN), inputs=LOAD)
    point, other = (model.natural([[0.0, 1.0], [1.0, 2.0]], P) for model in (with_input, without))
    one, two = rh.climb(with_input, SERIES, point), rh.climb(without, SERIES, other)
    np.testing.assert_allclose(one.trace, two.trace, rtol=1e-10)
    assert with_input.component_names == without.component_names


def test_inputs_of_one_part_of_a_product():
    """With one state, parts are independent: each is a regression on the inputs that are left to it."""
    counts = RNG.poisson(3.0, T)
    family = rh.Product(speed=GAUSSIAN, errors=rh.Poisson())
    series = rh.Series(np.column_stack([Y, counts]), exog=X)
    fixed = {"load": [None, 0], "temp": [0, None]}
    model = rh.Model(family, 1, rh.no_priors(family), inputs=BOTH, fixed=fixed)
    assert model.component_names[-2:] == ["load[0]", "temp[1]"]
    theta = np.array([0.3, 0.2, 1.1, 0.5, -0.4])
    value, slope = rh.log_posterior(model, theta, series)
    speed = rh.Model(GAUSSIAN, 1, rh.no_priors(GAUSSIAN), inputs=LOAD)
    errors = rh.Model(rh.Poisson(), 1, rh.no_priors(rh.Poisson()), inputs=TEMP)
    first, first_slope = rh.log_posterior(speed, theta[[0, 1, 3]], rh.Series(Y, exog=X))
    second, second_slope = rh.log_posterior(errors, theta[[2, 4]], rh.Series(counts, exog=X))
    assert value == pytest.approx(first + second, abs=1e-9)
    np.testing.assert_allclose(slope, [*first_slope[:2], second_slope[0], first_slope[2], second_slope[1]], atol=1e-9)


def test_slopes_of_forbidden_transitions_are_zero():
    fixed = {
        "transition": [[None, 0, None], [None] * 3, [None] * 3],
        "slope load": [[2, None, 1], [None] * 3, [1, 2, 3]],
    }
    model = rh.Model(GAUSSIAN, 3, rh.default_priors(GAUSSIAN, 3, SERIES), transitions=rh.Regression(LOAD), fixed=fixed)
    assert model.component_names[-2:] == ["slope load[1, 0] - [1, 1]", "slope load[1, 2] - [1, 1]"]
    point = model.natural([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], np.full((3, 3), 1 / 3))
    slopes = named_coefficients(model, model.unpack(model.pack(point)).coefficients)["transition_coefficient"][0]
    np.testing.assert_allclose(slopes, [[0.5, 0, -0.5], [0, 0, 0], [-1, 0, 1]], atol=1e-12)


def test_fixed_coefficients_tell_states_apart():
    def groups(**fixed):
        model = rh.Model(GAUSSIAN, 3, rh.no_priors(GAUSSIAN), switching=TEMP, fixed=fixed)
        return [group.tolist() for group in model.exchangeable_groups]

    assert groups() == [[0, 1, 2]]
    assert groups(temp=[0, 0, None]) == [[0, 1], [2]]
    assert groups(temp=[0, 1, 2]) == [[0], [1], [2]]
    assert groups(temp=0) == [[0, 1, 2]]


@pytest.mark.parametrize("name", CASES)
def test_models_with_fixed_coefficients_are_saved(name):
    model, theta, parameters = setting(name)
    again = model_from_settings(json.loads(json.dumps(model_settings(model))))
    assert again.component_names == model.component_names
    np.testing.assert_array_equal(again.unpack(theta).coefficients, parameters.coefficients)


@pytest.mark.parametrize(
    ("more", "fixed", "message"),
    [
        ({"inputs": BOTH}, {"lod": 0}, "key 'lod'; valid keys are mean, variance, load, temp .* Did you mean 'load'"),
        ({}, {"load": 0}, "unknown key 'load'; valid keys are mean, variance and transition"),
        ({"inputs": BOTH}, {"load": [0, 0]}, r"fixed\['load'\] has shape \(2,\); it must have shape \(\)"),
        ({"switching": BOTH}, {"load": [0]}, r"fixed\['load'\] has shape \(1,\); it must have shape \(2,\)"),
        ({"inputs": BOTH}, {"load": np.inf}, r"fixed\['load'\] is inf; it must be finite"),
        ({"autoregression": rh.AroundLevel(2)}, {"lag 2": 0.1},
         r"some lags of AroundLevel\(2\) and not 'lag 1'; .* Fix all, or use Intercept\(2\)"),
        ({"autoregression": rh.AroundLevel(1)}, {"lag 1": 1.1}, r"the lags \[1\.1\] are not those of a stationary"),
        ({"transitions": rh.Regression(LOAD)}, {"slope load": [[1, None], [None, None]]},
         r"row 0 of fixed\['slope load'\] is \[.*\]; a row of slopes must be free or fixed as a whole"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(more, fixed, message):
    with pytest.raises(ValueError, match=message):
        rh.Model(GAUSSIAN, 2, rh.no_priors(GAUSSIAN), fixed=fixed, **more)
