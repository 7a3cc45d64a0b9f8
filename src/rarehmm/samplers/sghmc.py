"""Stochastic gradient Hamiltonian Monte Carlo (Chen, Fox and Guestrin 2014)."""

import math
from typing import Any, NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.sampler import check_setting, step
from rarehmm.engine.dispatch import compiled


class Sghmc(NamedTuple):
    r""":math:`v \leftarrow (1 - \alpha) v + (h/2) g + \sqrt{\alpha h} \xi`, then :math:`\theta \leftarrow \theta + v`.

    ``friction`` is :math:`\alpha` in (0, 1); with 1 this is SGLD.  Memory: the velocity v.
    """

    step_size: float
    friction: float = 0.1

    @property
    def memory_rows(self) -> int:
        return 1

    @classmethod
    def whitened(cls, _size: int) -> "Sghmc":
        """Default settings where the target is nearly a unit Gaussian."""
        return cls(0.1, 0.3)

    def check(self, size: int) -> None:
        check_setting(self, "step_size")
        check_setting(self, "friction", 1.0)


@compiled(step, Sghmc)
def _(sampler: Sghmc, theta: Array, gradient: Array, noise: Array, memory: Array, power: Any) -> None:
    h, a = sampler.step_size, sampler.friction
    for i in range(len(theta)):
        v = (1.0 - a) * memory[0, i] + 0.5 * h * gradient[i] + math.sqrt(a * h) * noise[0, i]
        memory[0, i] = v
        theta[i] += v
