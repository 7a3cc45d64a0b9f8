r"""DOOR: integrators.  One file a sampler: a ``NamedTuple`` of its settings and one compiled ``step``.

A step moves theta (d,) in place, given the gradient of the log density there (possibly an estimate), standard normal
numbers and the sampler's memory (``noise_rows`` and ``memory_rows``, where they differ from 1 and 0, are properties).
Step sizes follow one convention, that of the paper's Algorithm 1, unless a sampler says otherwise: a step of size h
moves theta by ``(h / 2) gradient + sqrt(h) noise``.
"""

from typing import Any

from rarehmm.dispatch import generic


def memory_rows(sampler: Any) -> int:
    """Rows (d,) that a sampler remembers from step to step: its ``memory_rows``, or none."""
    return int(getattr(sampler, "memory_rows", 0))


def noise_rows(sampler: Any) -> int:
    """Rows (d,) of normal numbers that a step needs: its ``noise_rows``, or one."""
    return int(getattr(sampler, "noise_rows", 1))


@generic
def step(sampler: Any, theta: Any, gradient: Any, noise: Any, memory: Any, power: Any) -> None:
    """Move ``theta`` (d,) in place; ``noise`` (noise_rows, d), ``memory`` (memory_rows, d) may change.

    ``power`` (d,) says which coordinates are positive and how their metric grows with them: 0 for a coordinate without
    bounds, 1 for expanded means, 2 for variances (only ``expanded_mean`` looks at it).
    """
    raise TypeError(f"{type(sampler).__name__} has no step: attach one with @compiled(step, ...)")
