"""Frozen statistics: warm messages, and a control variate that is exact where the responsibilities stay."""

import numpy as np
import pytest
from small_models import FAMILIES, Pair, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.windows.gradients import control_variate_residuals, freeze, frozen_gradient, window_gradients
from rarehmm.windows.windows import Windows


def setting(family, start=None, T=83, lengths=(31, 52), gap=1.5, missing=0.2):
    rng = np.random.default_rng(3)
    given = None if start is None else rng.dirichlet(np.ones(3))
    priors = rh.Priors((rh.Normal(0, 9),) * len(family.parameters), rh.Dirichlet(1.3))
    model = rh.Model(family, 3, priors, start=given) if isinstance(family, Pair) else model_of(family, 3, start=given)
    parameters = parameters_of(rng, model, gap=gap)
    series = rh.Series(series_of(rng, model, parameters, T, missing), lengths=lengths)
    return model, series, Windows(series, 2, 2), model.pack(parameters)


@pytest.mark.parametrize("start", [None, "given"])
@pytest.mark.parametrize("family", [*FAMILIES, Pair()], ids=lambda f: type(f).__name__)
def test_warm_messages_make_short_buffers_exact(family, start):
    """At the point where they were taken, windows with any buffer add up to the gradient of the whole series."""
    model, series, windows, theta = setting(family, start)
    frozen = freeze(model, theta, series, windows)
    exact = rh.log_posterior(model, theta, series)[1] - model.log_prior_gradient(theta)
    total = window_gradients(model, theta, series, windows, messages=frozen.messages).sum(0)
    np.testing.assert_allclose(total, exact, rtol=1e-8, atol=1e-8)
    assert np.abs(window_gradients(model, theta, series, windows).sum(0) - exact).max() > 1e-4  # cold ones do not


@pytest.mark.parametrize("start", [None, "given"])
@pytest.mark.parametrize("family", [*FAMILIES, Pair()], ids=lambda f: type(f).__name__)
def test_the_control_variate_is_the_gradient_where_it_was_frozen(family, start):
    model, series, windows, theta = setting(family, start)
    frozen = freeze(model, theta, series, windows)
    assert frozen.by_gradient == isinstance(family, Pair)
    np.testing.assert_allclose(control_variate_residuals(model, theta, series, windows, frozen), 0.0, atol=1e-9)
    each = frozen_gradient(model, theta, frozen, frozen.statistics)
    np.testing.assert_allclose(frozen_gradient(model, theta, frozen, frozen.total), each.sum(0), rtol=1e-9)


@pytest.mark.parametrize("family", [rh.Gaussian(), rh.Poisson()], ids=lambda f: type(f).__name__)
def test_with_known_states_nothing_is_left_to_chance(family):
    """Far apart states keep their responsibilities: the complete-data score is then exact at other points too."""
    model, series, windows, theta = setting(family, gap=60.0, missing=0.0)
    frozen = freeze(model, theta, series, windows)
    there = theta + 0.05 * np.random.default_rng(0).standard_normal(len(theta))
    moved = window_gradients(model, there, series, windows) - window_gradients(model, theta, series, windows)
    assert np.abs(moved).max() > 0.1
    np.testing.assert_allclose(control_variate_residuals(model, there, series, windows, frozen), 0.0, atol=1e-6)


def test_the_student_t_control_variate_follows_most_of_the_change():
    model, series, windows, theta = setting(rh.StudentT(4.0), gap=60.0, missing=0.0)
    frozen = freeze(model, theta, series, windows)
    there = theta + 0.05 * np.random.default_rng(0).standard_normal(len(theta))
    moved = window_gradients(model, there, series, windows) - window_gradients(model, theta, series, windows)
    left = control_variate_residuals(model, there, series, windows, frozen)
    assert np.linalg.norm(left) < 0.5 * np.linalg.norm(moved)
