"""Langevin dynamics with a constant metric: coordinates of very different scales move alike."""

import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.sampler import ExcessVariance, check_setting, check_stable, step
from rarehmm.engine.dispatch import compiled


class PreconditionedSgld(NamedTuple):
    r""":math:`\theta \leftarrow \theta + (h/2)\, C g + \sqrt h\, L \xi` with :math:`C = L L^\top` a metric that stays.

    ``factor`` is L (d, d), lower triangular: the Cholesky factor of a covariance, such as the inverse Hessian at a
    mode, or a diagonal of standard deviations.  A metric that followed the gradients (RMSprop) would need the slope of
    its inverse to keep the distribution, as in ``ExpandedMeanSgld``.  Memory: room for one vector.
    """

    step_size: float
    factor: Array

    @property
    def memory_rows(self) -> int:
        return 1

    @classmethod
    def whitened(cls, size: int) -> "PreconditionedSgld":
        """Default settings where the target is nearly a unit Gaussian."""
        return cls(0.2, np.eye(size))

    def excess_variance(self) -> ExcessVariance:
        r"""Of a unit Gaussian in direction i, with :math:`q_i = h c_i / 4` and :math:`c_i` an eigenvalue of C:
        :math:`q_i / (1 - q_i)` from the step, and as much from gradient noise of variance 1."""
        q = self.step_size * np.linalg.eigvalsh(self.factor @ self.factor.T) / 4
        check_stable(self, float(np.abs(1 - 2 * q).max()))
        worst = float(q[-1] / (1 - q[-1]))
        return ExcessVariance(worst, worst)

    def check(self, size: int) -> None:
        check_setting(self, "step_size")
        L = self.factor
        if not isinstance(L, np.ndarray) or L.ndim != 2 or L.shape[0] != L.shape[1] or np.triu(L, 1).any():
            raise ValueError(f"factor is {L!r}; a lower triangular matrix (d, d) is needed, such as a Cholesky factor.")
        if len(L) != size:
            raise ValueError(f"factor is {len(L)} x {len(L)} and theta has {size} components; it must be of that size.")
        if not np.isfinite(L).all() or (np.diag(L) <= 0).any():
            raise ValueError(f"the diagonal of factor is {np.diag(L)}; it must be positive, and all entries finite.")


@compiled(step, PreconditionedSgld)
def _(sampler: PreconditionedSgld, theta: Array, gradient: Array, noise: Array, memory: Array, power: Any) -> None:
    h, L = sampler.step_size, sampler.factor
    d = len(theta)
    for j in range(d):  # L' g
        memory[0, j] = 0.0
        for i in range(j, d):
            memory[0, j] += L[i, j] * gradient[i]
    for i in range(d):
        for j in range(i + 1):
            theta[i] += L[i, j] * (0.5 * h * memory[0, j] + math.sqrt(h) * noise[0, j])
