"""Stochastic gradient Langevin dynamics: the paper's Algorithm 1 (Welling and Teh 2011)."""

import math
from typing import Any, NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.sampler import check_setting, step
from rarehmm.engine.dispatch import compiled


class Sgld(NamedTuple):
    r""":math:`\theta \leftarrow \theta + (h/2)\, g + \sqrt h\, \xi`."""

    step_size: float

    @classmethod
    def whitened(cls, _size: int) -> "Sgld":
        """Default settings where the target is nearly a unit Gaussian."""
        return cls(0.2)

    def check(self, size: int) -> None:
        check_setting(self, "step_size")


@compiled(step, Sgld)
def _(sampler: Sgld, theta: Array, gradient: Array, noise: Array, memory: Any, power: Any) -> None:
    for i in range(len(theta)):
        theta[i] += 0.5 * sampler.step_size * gradient[i] + math.sqrt(sampler.step_size) * noise[0, i]
