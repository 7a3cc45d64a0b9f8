r"""DOOR: integrators.  One file per sampler: a ``NamedTuple`` of its settings and one compiled ``step``.

A step moves theta (d,) in place, given the gradient of the log density there (possibly an estimate), standard normal
numbers and the sampler's memory.  Step sizes follow one convention, that of the paper's Algorithm 1, unless a sampler
says otherwise: a step of size h moves theta by ``(h / 2) gradient + sqrt(h) noise``.

A sampler must bring ``check(d)``, which refuses settings that make no sense.  It may bring

- ``memory_rows`` and ``noise_rows``, where they differ from 0 and 1;
- ``begin(theta)``, its first memory, if not zero;
- ``keeps_positive``, if it keeps positive coordinates positive;
- ``whitened(d)``, a class method: default settings where the target is nearly a unit Gaussian, which make the name of
  its file a method of ``RareHMM``;
- ``excess_variance()``, what steps and noisy gradients add to the variance of a unit Gaussian.  It is worked out from
  the step if that is linear and moves each coordinate by itself.

``rarehmm.check_sampler`` checks all of this.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_discrete_lyapunov

from rarehmm.common.arrays import Array
from rarehmm.engine.dispatch import generic, provides


def memory_rows(sampler: Any) -> int:
    """Rows (d,) that a sampler remembers from step to step: its ``memory_rows``, or none."""
    return int(getattr(sampler, "memory_rows", 0))


def noise_rows(sampler: Any) -> int:
    """Rows (d,) of normal numbers that a step needs: its ``noise_rows``, or one."""
    return int(getattr(sampler, "noise_rows", 1))


def first_memory(sampler: Any, theta: Array) -> Array:
    """What a sampler remembers at its start theta (d,): zeros, unless it has a ``begin``."""
    begin = getattr(sampler, "begin", None)
    return np.asarray(begin(theta)) if begin else np.zeros((memory_rows(sampler), len(theta)))


@generic
def step(sampler: Any, theta: Any, gradient: Any, noise: Any, memory: Any, power: Any) -> None:
    """Move ``theta`` (d,) in place; ``noise`` (noise_rows, d), ``memory`` (memory_rows, d) may change.

    ``power`` (d,) says which coordinates are positive and how their metric grows with them: 0 for a coordinate without
    bounds, 1 for expanded means, 2 for variances (only ``expanded_mean`` looks at it).
    """
    raise TypeError(f"{type(sampler).__name__} has no step: attach one with @compiled(step, ...)")


def is_sampler(value: Any) -> bool:
    """Whether a value is an instance of a class that brings a ``step``."""
    return not isinstance(value, type) and provides(step, value)


def validate_sampler(sampler: Any, powers: Array, names: list[str]) -> None:
    """Refuse a sampler whose settings make no sense, or which would lead coordinates out of their support."""
    who = type(sampler).__name__
    if not is_sampler(sampler):
        raise TypeError(f"sampler is {sampler!r}; pass an instance of a sampler, such as Sgld(1e-6).")
    sampler.check(len(names))
    if powers.any() and not getattr(sampler, "keeps_positive", False):
        raise ValueError(
            f"{names[int((powers > 0).argmax())]} must stay positive and {who} moves freely; use ExpandedMeanSgld, or "
            "a model in logarithms and log ratios."
        )


def check_setting(sampler: Any, name: str, below: float = math.inf) -> None:
    """Refuse a setting that is not positive and finite, or not at most ``below``."""
    value = getattr(sampler, name)
    number = isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, bool)
    if not number or not 0 < value <= below or value == math.inf:
        limit = "positive and finite" if below == math.inf else f"positive and at most {below:g}"
        raise ValueError(f"{name} of {type(sampler).__name__} is {value!r}; it must be {limit}.")


# ---------------------------------------------------------------- what noise in the gradient does
class ExcessVariance(NamedTuple):
    """By how much the variance of a unit Gaussian is too large: ``of_step`` for an exact gradient, because steps have a
    size, and ``per_noise`` for each unit of variance of the gradient's noise, both in the worst direction."""

    of_step: float
    per_noise: float

    def at(self, noise: float) -> float:
        """The excess for a gradient with noise of this variance in every direction."""
        return self.of_step + noise * self.per_noise


class LinearStep(NamedTuple):
    r"""A step on a unit Gaussian whose gradient has the noise :math:`\epsilon`, as a linear recursion of the state
    :math:`s` = (theta, memory) of one coordinate: :math:`s \leftarrow A s + B \xi + C \epsilon`."""

    A: Array
    B: Array
    C: Array


def linear_step(sampler: Any) -> LinearStep:
    """The matrices of a sampler's own step, column by column.

    Raises
    ------
    ValueError
        If the step is not linear.
    """
    n, width = 1 + memory_rows(sampler), noise_rows(sampler)

    def after_step(given: Array) -> Array:
        state, noise, error = np.split(given, [n, n + width])
        theta, memory = state[:1].copy(), state[1:, None].copy()
        step(sampler, theta, error - theta, noise[:, None].copy(), memory, np.zeros(1))
        return np.concatenate([theta, memory[:, 0]])

    columns = np.array([after_step(unit) for unit in np.eye(n + width + 1)]).T
    probe = np.geomspace(0.1, 0.9, n + width + 1)
    if not np.allclose(columns @ probe, after_step(probe), rtol=1e-9, atol=1e-12):
        raise ValueError(
            f"a step of {type(sampler).__name__} is not linear in theta, memory, gradient and noise, so its excess "
            "variance cannot be worked out; bring a method excess_variance() that returns an ExcessVariance."
        )
    return LinearStep(*np.split(columns, [n, n + width], axis=1))


def excess_variance(sampler: Any) -> ExcessVariance:
    r"""Excess variance of a sampler on a unit Gaussian, exactly.

    The stationary covariance of the recursion :math:`s \leftarrow A s + B \xi + C \epsilon` solves
    :math:`V = A V A^\top + B B^\top + \sigma^2 C C^\top`, which is linear in the variance :math:`\sigma^2` of the
    gradient's noise.  A sampler that brings ``excess_variance`` is asked instead.
    """
    if own := getattr(sampler, "excess_variance", None):
        return ExcessVariance(*own())
    A, B, C = linear_step(sampler)
    check_stable(sampler, float(np.abs(np.linalg.eigvals(A)).max()))
    exact, noisy = (float(solve_discrete_lyapunov(A, M @ M.T)[0, 0]) for M in (B, C))
    return ExcessVariance(exact - 1, noisy)


def check_stable(sampler: Any, radius: float) -> None:
    """Refuse a step whose recursion on a unit Gaussian has a spectral radius of 1 or more."""
    if not radius < 1:
        raise ValueError(
            f"steps of {type(sampler).__name__} diverge on a unit Gaussian (spectral radius {radius:.3g}); use a "
            "smaller step_size."
        )


class Divergence(NamedTuple):
    """A chain that left the bounds of a component: which, in which draw of those kept, in which chain (from 0)."""

    component: str
    draw: int
    chain: int


class DivergedError(RuntimeError):
    """Some chains diverged.  ``draws`` (chains, steps, d) holds what was drawn, NaN after a divergence."""

    def __init__(self, divergences: list[Divergence], draws: Array) -> None:
        first = divergences[0]
        others = f" ({len(divergences)} of {len(draws)} chains diverged)" if len(draws) > 1 else ""
        super().__init__(
            f"{first.component} diverged at draw {first.draw} of chain {first.chain}{others}; the step is too "
            "large for the gradient and its noise. Use a smaller step, more windows per step, a better start, or "
            "another method ('auto', 'hmc'). What was drawn before is in the 'draws' of this error."
        )
        self.divergences, self.draws = divergences, draws
