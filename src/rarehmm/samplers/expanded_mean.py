"""Langevin dynamics whose metric follows the position: the paper's expanded means and variances."""

import math
from typing import Any, NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.sampler import check_setting, step
from rarehmm.engine.dispatch import compiled


class ExpandedMeanSgld(NamedTuple):
    r"""Each coordinate with the metric :math:`G^{-1} = \theta^p`, p its ``power``; positive ones are reflected at 0.

    .. math:: \theta \leftarrow \bigl|\theta + (h/2) [\theta^p g + p\, \theta^{p-1}] + \sqrt{h\, \theta^p}\, \xi\bigr|

    The second term is the slope of the inverse metric, without which the stationary distribution is another.  Expanded
    means (p = 1) move by :math:`(h/2) [\alpha - \hat A + \xi_{jk} - P_{jk} n_j]`, variances (p = 2)
    with noise :math:`\sqrt h \sigma^2`.

    There is no whitened form: a metric that follows the position needs the positive coordinates as they are.  It is the
    sampler of the methods "tass" and "sgld".
    """

    step_size: float

    @property
    def keeps_positive(self) -> bool:
        return True

    def check(self, size: int) -> None:
        check_setting(self, "step_size")


@compiled(step, ExpandedMeanSgld)
def _(sampler: ExpandedMeanSgld, theta: Array, gradient: Array, noise: Array, memory: Any, power: Array) -> None:
    h = sampler.step_size
    for i in range(len(theta)):
        x, p = theta[i], power[i]
        metric, slope = 1.0, 0.0
        if p == 1.0:
            metric, slope = x, 1.0
        elif p == 2.0:
            metric, slope = x * x, 2.0 * x
        new = x + 0.5 * h * (metric * gradient[i] + slope) + math.sqrt(h * metric) * noise[0, i]
        theta[i] = abs(new) if p > 0.0 else new
