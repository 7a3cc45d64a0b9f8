r"""DOOR: integrators.  One file a sampler: a ``NamedTuple`` of its settings and one compiled ``step``.

A step moves theta (d,) in place, given the gradient of the log density there (possibly an estimate), standard normal
numbers and the sampler's memory.  Step sizes follow one convention, that of the paper's Algorithm 1: a step of size h
moves theta by ``(h / 2) gradient + sqrt(h) noise``.
"""

from typing import Protocol

from rarehmm.dispatch import generic


class Sampler(Protocol):
    """What every sampler has besides its settings: rows (d,) of memory, and of normal numbers a step."""

    @property
    def memory_rows(self) -> int: ...
    @property
    def noise_rows(self) -> int: ...


@generic
def step(sampler, theta, gradient, noise, memory, power):  # type: ignore[no-untyped-def]
    """Move ``theta`` (d,) in place; ``noise`` (noise_rows, d), ``memory`` (memory_rows, d) may change.

    ``power`` (d,) says which coordinates are positive and how their metric grows with them: 0 for a coordinate without
    bounds, 1 for expanded means, 2 for variances (only ``expanded_mean`` looks at it).
    """
    raise TypeError(f"{type(sampler).__name__} has no step: attach one with @compiled(step, ...)")
