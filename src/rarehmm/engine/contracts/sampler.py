r"""DOOR: integrators.  One file a sampler: a ``NamedTuple`` of its settings and one compiled ``step``.

A step moves theta (d,) in place, given the gradient of the log density there (possibly an estimate), standard normal
numbers and the sampler's memory (``noise_rows`` and ``memory_rows``, where they differ from 1 and 0, are properties).
One that keeps positive coordinates positive has ``keeps_positive``; ``check(d)`` refuses settings that make no sense.
Step sizes follow one convention, that of the paper's Algorithm 1, unless a sampler says otherwise: a step of size h
moves theta by ``(h / 2) gradient + sqrt(h) noise``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

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


def check_sampler(sampler: Any, powers: Array, names: list[str]) -> None:
    """Refuse a sampler whose settings make no sense, or which would lead coordinates out of their support."""
    who = type(sampler).__name__
    if isinstance(sampler, type) or not provides(step, sampler):
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
            "large for the gradient and its noise. Use a smaller step, more windows a step, a better start, or "
            "another method ('auto', 'hmc'). What was drawn before is in the 'draws' of this error."
        )
        self.divergences, self.draws = divergences, draws
