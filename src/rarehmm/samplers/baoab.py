"""Langevin dynamics by splitting: half a drift, friction and noise, half a drift, one kick (Leimkuhler, Matthews)."""

import math
from typing import Any, NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.sampler import check_setting, step
from rarehmm.engine.dispatch import compiled


class Baoab(NamedTuple):
    r""":math:`p + h g \to p`, :math:`z + \frac h2 p \to z`, :math:`c p + \sqrt{1 - c^2}\, \xi \to p`,
    :math:`z + \frac h2 p \to z`, with :math:`c = e^{-\gamma h}`.

    The two half kicks between steps are one.  Here ``step_size`` h is a time, ``friction`` is :math:`\gamma`.  The
    variance of a Gaussian is exact for any stable h.  Memory: the momentum p.
    """

    step_size: float = 0.4
    friction: float = 1.5

    @property
    def memory_rows(self) -> int:
        return 1

    @classmethod
    def whitened(cls, _size: int) -> "Baoab":
        """Default settings where the target is nearly a unit Gaussian."""
        return cls()

    def check(self, size: int) -> None:
        check_setting(self, "step_size")
        check_setting(self, "friction")


@compiled(step, Baoab)
def _(sampler: Baoab, theta: Array, gradient: Array, noise: Array, memory: Array, power: Any) -> None:
    h = sampler.step_size
    c = math.exp(-sampler.friction * h)
    spread = math.sqrt(1.0 - c * c)
    for i in range(len(theta)):
        p = memory[0, i] + h * gradient[i]
        theta[i] += 0.5 * h * p
        p = c * p + spread * noise[0, i]
        theta[i] += 0.5 * h * p
        memory[0, i] = p
