"""Every sampler, found by its file, keeps the contract, and samplers that do not are refused."""

import math
from typing import NamedTuple

import numpy as np
import pytest

import rarehmm as rh
from rarehmm import samplers
from rarehmm.engine.contracts.sampler import ExcessVariance, check_setting, excess_variance, step, validate_sampler
from rarehmm.engine.dispatch import compiled
from rarehmm.samplers.baoab import Baoab
from rarehmm.samplers.sgld import Sgld

D = 5
SETTINGS = {"factor": np.diag(np.linspace(0.5, 2.0, D)) + 0.1 * np.tri(D, k=-1)}
KINDS = {name: samplers.sampler_class(name) for name in samplers.NAMES}


def instance(kind, step_size=0.01):
    needed = [name for name in kind._fields if name not in kind._field_defaults and name != "step_size"]
    return kind(step_size, **{name: SETTINGS[name] for name in needed})


@pytest.mark.parametrize("name", KINDS)
def test_every_sampler_keeps_the_contract(name):
    found = rh.check_sampler(instance(KINDS[name]))
    assert str(found).splitlines()[0] == f"{KINDS[name].__name__} satisfies the contract:"
    assert len(found.right) == 10


@pytest.mark.parametrize("name", [name for name in KINDS if name != "expanded_mean"])
def test_default_settings_in_whitened_coordinates_are_good_ones(name):
    """They leave room for gradient noise: the step alone is off by less than the tenth that is allowed."""
    sampler = KINDS[name].whitened(D)
    rh.check_sampler(sampler)
    excess = excess_variance(sampler)
    assert -1e-12 < excess.of_step < 0.06
    assert 0 < excess.per_noise < 0.2


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), "small", True])
def test_a_step_size_must_be_positive(name, bad):
    with pytest.raises(ValueError, match="step_size of"):
        validate_sampler(instance(KINDS[name], bad), np.zeros(D), ["x"] * D)


def broken(change, **attributes):
    """SGLD with a step of its own: ``change(h, theta, gradient, noise)`` moves theta."""

    class Broken(NamedTuple):
        step_size: float = 0.1

        def check(self, _size):
            check_setting(self, "step_size")

    for name, value in attributes.items():
        setattr(Broken, name, value)

    @compiled(step, Broken)
    def _(sampler, theta, gradient, noise, memory, power):
        change(sampler.step_size, theta, gradient, noise)

    return Broken()


def moves(theta, by):
    for i in range(len(theta)):
        theta[i] += by[i]


def too_loud(h, theta, gradient, noise):
    moves(theta, h / 2 * gradient + 1.02 * math.sqrt(h) * noise[0])


def downhill(h, theta, gradient, noise):
    moves(theta, -h / 2 * gradient + math.sqrt(h) * noise[0])


def drifting(h, theta, gradient, noise):
    moves(theta, h / 2 * gradient + math.sqrt(h) * noise[0] + 0.1)


def one_sided(h, theta, gradient, noise):
    moves(theta, h / 2 * gradient + math.sqrt(h) * np.abs(noise[0]))


def silent(h, theta, gradient, noise):
    moves(theta, h / 2 * gradient)


def greedy(h, theta, gradient, noise):
    moves(theta, h / 2 * gradient + math.sqrt(h) * noise[0])
    gradient[0] = 0.0


def mixing(h, theta, gradient, noise):
    moves(theta, h / 2 * gradient + h / 9 * gradient.mean() + math.sqrt(h) * noise[0])


def cubic(h, theta, gradient, noise):
    moves(theta, h / 2 * (gradient + gradient**3) + math.sqrt(h) * noise[0])


def right(h, theta, gradient, noise):
    moves(theta, h / 2 * gradient + math.sqrt(h) * noise[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (too_loud, "variance of a unit Gaussian is off by .* the error must vanish with the step"),
        (downhill, "downhill"),
        (drifting, "without gradient, noise and memory it moves by"),
        (one_sided, "its mean is not zero"),
        (silent, "noise does not move it"),
        (greedy, "it changes the gradient or the noise"),
        (mixing, r"together and to .* alone; bring excess_variance\(\)"),
        (cubic, "a step of Broken.* is not linear in theta, memory, gradient and noise"),
    ],
)
def test_a_wrong_sampler_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        rh.check_sampler(broken(change))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"check": lambda self, size: None}, r"check\(5\) takes a step_size of 0.0"),
        ({"begin": lambda self, theta: np.zeros((2, 5))}, r"first memory has shape \(2, 5\); .* = \(0, 5\)"),
        ({"keeps_positive": True}, "keeps_positive is true, and it moves from"),
        ({"excess_variance": lambda self: ExcessVariance(0.0, 0.0)}, "it must add some"),
    ],
)
def test_wrong_attributes_of_a_sampler_are_refused(attributes, message):
    with pytest.raises(ValueError, match=message):
        rh.check_sampler(broken(right, **attributes))


class Mine(NamedTuple):
    step_size: float

    def check(self, _size):
        check_setting(self, "step_size")


@compiled(step, Mine)
def _(sampler, theta, gradient, noise, memory, power):
    for i in range(len(theta)):
        theta[i] += 0.5 * sampler.step_size * gradient[i] + math.sqrt(sampler.step_size) * noise[0, i]


def test_a_sampler_of_your_own():
    assert rh.check_sampler(Mine(0.1)).name == "Mine"


def test_what_is_no_sampler_is_refused():
    for wrong in (Baoab, "baoab", object()):
        with pytest.raises(TypeError, match="a NamedTuple with a step_size and a compiled step is needed"):
            rh.check_sampler(wrong)


def test_steps_that_diverge_on_a_gaussian_have_no_variance():
    for sampler in (Sgld(4.0), samplers.sampler_class("preconditioned")(1.0, 2 * np.eye(2)), Baoab(2.5)):
        with pytest.raises(ValueError, match=r"diverge on a unit Gaussian .*; use a smaller step_size"):
            excess_variance(sampler)
