"""Every sampler, found by its file: its step moves theta in place, with the gradient, and bad settings are refused."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

from rarehmm import samplers
from rarehmm.engine.contracts.sampler import check_sampler, first_memory, memory_rows, noise_rows, step

D = 5
SETTINGS = {"factor": np.diag(np.linspace(0.5, 2.0, D)) + 0.1 * np.tri(D, k=-1)}


def found():
    for file in pkgutil.iter_modules(samplers.__path__):
        module = importlib.import_module(f"rarehmm.samplers.{file.name}")
        classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
        assert len(classes) == 1, f"{file.name} should have one sampler"
        yield pytest.param(classes[0], id=file.name)


KINDS = list(found())


def instance(kind, step_size=0.01):
    needed = [name for name in kind._fields if name not in kind._field_defaults and name != "step_size"]
    return kind(step_size, **{name: SETTINGS[name] for name in needed})


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_moves_theta_in_place_with_the_gradient(kind):
    sampler, power = instance(kind), np.zeros(D)
    check_sampler(sampler, power, ["x"] * D)
    theta, gradient = np.linspace(1, 2, D), np.linspace(1, 3, D)
    noise, memory = np.zeros((noise_rows(sampler), D)), first_memory(sampler, theta)
    assert memory.shape == (memory_rows(sampler), D)
    before, given = theta.copy(), gradient.copy()
    step(sampler, theta, np.zeros(D), noise, memory, power)
    np.testing.assert_array_equal(theta, before)  # no gradient, no noise, no memory: no move
    step(sampler, theta, gradient, noise, memory, power)
    assert (theta > before).all()
    np.testing.assert_array_equal(gradient, given)
    np.testing.assert_array_equal(noise, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_noise_of_a_step_has_no_mean(kind):
    """A step is linear in its noise where the metric is constant: opposite noise, opposite move."""
    sampler, power, rng = instance(kind), np.zeros(D), np.random.default_rng(0)
    noise, moves = rng.standard_normal((noise_rows(sampler), D)), []
    for sign in (1, -1):
        theta = np.zeros(D)
        step(sampler, theta, np.zeros(D), sign * noise, first_memory(sampler, theta), power)
        moves.append(theta)
    np.testing.assert_allclose(moves[0], -moves[1], rtol=1e-12)
    assert np.abs(moves[0]).max() > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), "small", True])
def test_a_step_size_must_be_positive(kind, bad):
    with pytest.raises(ValueError, match="step_size of"):
        check_sampler(instance(kind, bad), np.zeros(D), ["x"] * D)
