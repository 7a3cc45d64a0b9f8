"""Langevin dynamics with averaged noise: exact variance on a Gaussian (Leimkuhler and Matthews 2013)."""

import math
from typing import Any, NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.sampler import check_setting, step
from rarehmm.engine.dispatch import compiled


class LeimkuhlerMatthews(NamedTuple):
    r""":math:`\theta \leftarrow \theta + (h/2)\, g + \sqrt h\, (\xi_t + \xi_{t+1}) / 2`.  Memory: the last noise."""

    step_size: float = 0.3

    @property
    def memory_rows(self) -> int:
        return 1

    @classmethod
    def whitened(cls, _size: int) -> "LeimkuhlerMatthews":
        """Default settings where the target is nearly a unit Gaussian."""
        return cls()

    def check(self, size: int) -> None:
        check_setting(self, "step_size")


@compiled(step, LeimkuhlerMatthews)
def _(sampler: LeimkuhlerMatthews, theta: Array, gradient: Array, noise: Array, memory: Array, power: Any) -> None:
    h = sampler.step_size
    for i in range(len(theta)):
        theta[i] += 0.5 * h * gradient[i] + 0.5 * math.sqrt(h) * (memory[0, i] + noise[0, i])
        memory[0, i] = noise[0, i]
