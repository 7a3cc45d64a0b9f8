"""The contract of a sampler: ``check_sampler`` tests any sampler against the requirements of ``rarehmm.samplers``.

The tests run the same checks on every sampler of the library.  Each check is a function of a ``Case``; it raises
``ValueError`` with the numbers.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.conformance.requirements import Checked, check_all, must
from rarehmm.engine.contracts.sampler import (
    excess_variance,
    first_memory,
    is_sampler,
    linear_step,
    memory_rows,
    noise_rows,
    step,
)
from rarehmm.engine.dispatch import kernel

BAD = (0.0, -1.0, math.nan, math.inf)  # step sizes


@kernel
def many_steps(sampler: Any, theta: Array, noise: Array, memory: Array, power: Array) -> None:
    """Steps on a unit Gaussian, with noise (steps, noise_rows, d), in compiled code."""
    for t in range(len(noise)):
        step(sampler, theta, -theta, noise[t], memory, power)


class Case(NamedTuple):
    """A sampler and the number of coordinates that it is looked at in."""

    sampler: Any
    size: int

    @property
    def name(self) -> str:
        return type(self.sampler).__name__.split("#")[0]  # without the number of a class that was defined again

    def noise(self, steps: int = 1) -> Array:
        """Normal numbers (steps, noise_rows, d)."""
        return np.random.default_rng(0).standard_normal((steps, noise_rows(self.sampler), self.size))

    def step(self, theta: Array, gradient: Array, noise: Array, power: float = 0.0) -> Array:
        """Where one step from theta (d,) leads, with the first memory."""
        new, memory = theta.copy(), first_memory(self.sampler, theta).copy()
        step(self.sampler, new, gradient, noise, memory, np.full(self.size, power))
        return new

    def must(self, condition: Any, message: str) -> None:
        must(condition, self.name, message)


def settings_are_checked(case: Case) -> None:
    case.must(hasattr(case.sampler, "check"), "it has no check(d); bring one that refuses settings that make no sense")
    case.sampler.check(case.size)
    for bad in BAD:
        try:
            case.sampler._replace(step_size=bad).check(case.size)
        except ValueError:
            continue
        case.must(False, f"check({case.size}) takes a step_size of {bad}; it must be positive and finite")


def memory_has_its_shape(case: Case) -> None:
    found = first_memory(case.sampler, np.ones(case.size)).shape
    wanted = (memory_rows(case.sampler), case.size)
    case.must(found == wanted, f"its first memory has shape {found}; (memory_rows, d) = {wanted} is needed")


def a_step_without_gradient_and_noise_stays(case: Case) -> None:
    theta = np.linspace(1, 2, case.size)
    moved = case.step(theta, np.zeros(case.size), 0 * case.noise()[0]) - theta
    case.must(np.array_equal(moved, np.zeros(case.size)), f"without gradient, noise and memory it moves by {moved}")


def a_step_goes_with_the_gradient(case: Case) -> None:
    theta, gradient, noise = np.linspace(1, 2, case.size), np.linspace(1, 3, case.size), 0 * case.noise()[0]
    given = gradient.copy(), noise.copy()
    moved = case.step(theta, gradient, noise) - theta
    case.must(moved @ gradient > 0, f"along the gradient {gradient} it moves by {moved}, downhill")
    same = np.array_equal(gradient, given[0]) and np.array_equal(noise, given[1])
    case.must(same, "it changes the gradient or the noise; a step moves theta and its memory alone")


def opposite_noise_moves_the_opposite_way(case: Case) -> None:
    theta, noise = np.zeros(case.size), case.noise()[0]
    there, back = (case.step(theta, np.zeros(case.size), sign * noise) for sign in (1, -1))
    case.must(np.allclose(there, -back), f"noise moves it by {there}, opposite noise by {back}: its mean is not zero")
    case.must(np.abs(there).max() > 0, "noise does not move it")


def coordinates_move_by_themselves_or_it_brings_excess_variance(case: Case) -> None:
    if hasattr(case.sampler, "excess_variance"):
        return
    theta, noise = np.linspace(-1, 1, case.size), case.noise()[0]
    alone = [Case(case.sampler, 1).step(theta[[i]], -theta[[i]], noise[:, [i]])[0] for i in range(case.size)]
    together = case.step(theta, -theta, noise)
    case.must(np.allclose(together, alone), f"coordinates move to {together} together and to {alone} alone; bring "
              "excess_variance()")  # fmt: skip
    linear_step(case.sampler)


def small_steps_sample_the_target(case: Case) -> None:
    """The variance of a unit Gaussian is right up to an error that vanishes with the step size."""
    large, small = (excess_variance(case.sampler._replace(step_size=h)).of_step for h in (0.04, 0.01))
    good = abs(small) <= max(0.5 * abs(large), 1e-9)
    case.must(good, f"the variance of a unit Gaussian is off by {large:.3g} with a step_size of 0.04 and by "
              f"{small:.3g} with 0.01; the error must vanish with the step: compare noise and drift")  # fmt: skip


def gradient_noise_adds_variance(case: Case) -> None:
    """And less of it in smaller steps, so that averaging over steps replaces averaging over windows."""
    large, small = (excess_variance(case.sampler._replace(step_size=h)).per_noise for h in (0.04, 0.01))
    case.must(0 < small < large, f"gradient noise of variance 1 adds {large:.3g} to the variance with a step_size of "
              f"0.04 and {small:.3g} with 0.01; it must add some, and less in smaller steps")  # fmt: skip


def positive_coordinates_stay_positive(case: Case) -> None:
    if not getattr(case.sampler, "keeps_positive", False):
        return
    theta, noise = np.full(case.size, 0.01), 100 * case.noise()[0]
    for power in (1.0, 2.0):
        moved = case.step(theta, np.zeros(case.size), noise, power)
        case.must((moved >= 0).all(), f"keeps_positive is true, and it moves from {theta} to {moved} (power {power:g})")


def compiled_steps_are_those_of_python(case: Case) -> None:
    sampler, noise = case.sampler._replace(step_size=0.01), case.noise(20)
    begin, power = np.linspace(1, 2, case.size), np.zeros(case.size)
    slow, fast = begin.copy(), begin.copy()
    memories = [first_memory(sampler, begin).copy() for _ in range(2)]
    for each in noise:
        step(sampler, slow, -slow, each.copy(), memories[0], power)
    many_steps(sampler, fast, noise.copy(), memories[1], power)
    case.must(np.allclose(fast, slow, rtol=1e-12), f"20 steps lead to {fast} in compiled code and to {slow} in Python")


REQUIREMENTS = (
    settings_are_checked,
    memory_has_its_shape,
    a_step_without_gradient_and_noise_stays,
    a_step_goes_with_the_gradient,
    opposite_noise_moves_the_opposite_way,
    coordinates_move_by_themselves_or_it_brings_excess_variance,
    small_steps_sample_the_target,
    gradient_noise_adds_variance,
    positive_coordinates_stay_positive,
    compiled_steps_are_those_of_python,
)


def check_sampler(sampler: Any, *, size: int = 5) -> Checked:
    """Check numerically that a sampler satisfies the contract of ``rarehmm.samplers``.

    Parameters
    ----------
    sampler : sampler
        An instance with a ``step_size``, such as ``Sgld(0.1)``.
    size : int, default 5
        Number of coordinates, if its settings ask for a certain one.

    Returns
    -------
    Checked
        The requirements that hold; print it to read them.

    Raises
    ------
    ValueError
        For the first requirement that is violated, with the numbers.

    Examples
    --------
    >>> from rarehmm import check_sampler
    >>> from rarehmm.samplers.baoab import Baoab
    >>> print(check_sampler(Baoab()))  # doctest: +ELLIPSIS
    Baoab satisfies the contract:
      settings are checked
    ...
    """
    if not is_sampler(sampler) or not hasattr(sampler, "step_size"):
        raise TypeError(
            f"sampler is {sampler!r}; an instance of a NamedTuple with a step_size and a compiled step is needed."
        )
    case = Case(sampler, size)
    return check_all(case.name, case, REQUIREMENTS)
