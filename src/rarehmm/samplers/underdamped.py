"""Underdamped Langevin dynamics, exact for a constant gradient (Cheng, Chatterji, Bartlett and Jordan 2018)."""

import math
from typing import Any, NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.sampler import check_setting, step
from rarehmm.engine.dispatch import compiled


class Underdamped(NamedTuple):
    r""":math:`d\theta = v\,dt,\; dv = (g - \gamma v)\,dt + \sqrt{2\gamma}\,dB` over a time h with g held fixed.

    Here ``step_size`` is a time, as in ``Baoab``, and ``friction`` is :math:`\gamma`.  Memory: the velocity v.
    """

    step_size: float
    friction: float = 2.0

    @property
    def memory_rows(self) -> int:
        return 1

    @property
    def noise_rows(self) -> int:
        return 2

    @classmethod
    def whitened(cls, _size: int) -> "Underdamped":
        """Default settings where the target is nearly a unit Gaussian."""
        return cls(0.2)

    def check(self, size: int) -> None:
        check_setting(self, "step_size")
        check_setting(self, "friction")


@compiled(step, Underdamped)
def _(sampler: Underdamped, theta: Array, gradient: Array, noise: Array, memory: Array, power: Any) -> None:
    h, c = sampler.step_size, sampler.friction
    lost = -math.expm1(-c * h)  # 1 - e^{-c h}
    move = (h - lost / c) / c
    var_v = -math.expm1(-2.0 * c * h)
    var_x = (2.0 * h - (2.0 * lost + lost * lost) / c) / c
    both = lost * lost / c
    spread = math.sqrt(var_v)
    rest = math.sqrt(max(0.0, var_x - both * both / var_v))
    for i in range(len(theta)):
        v, g = memory[0, i], gradient[i]
        theta[i] += lost / c * v + move * g + both / spread * noise[0, i] + rest * noise[1, i]
        memory[0, i] = (1.0 - lost) * v + lost / c * g + spread * noise[0, i]
