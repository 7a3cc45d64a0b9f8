r"""Gradient ascent to the mode, and a Gaussian approximation of the posterior, on the gradients that drive chains.

Both are written as the ``step`` of a sampler, so that they run in the same kernel, on the same windows, uniform or
targeted.  Steps are Adam's (Kingma and Ba 2015), shrink as 1 / sqrt(t), and are averaged over the second half.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.checks import check_generator, check_whole
from rarehmm.engine.contracts.sampler import DivergedError, Divergence, check_setting, step, validate_sampler
from rarehmm.engine.dispatch import compiled, inner
from rarehmm.model.model import Model
from rarehmm.sampling.chains import State, refills, target_of
from rarehmm.windows.pool import Pool

FIRST, SECOND, SMALL = 0.9, 0.99, 1e-12  # Adam's memory of the gradient and of its square


@inner
def rate_at(sampler: Any, t: Any) -> Any:
    """Adam's rate at step t, with its correction for an empty memory."""
    return sampler.rate * math.sqrt(1.0 - SECOND**t) / (1.0 - FIRST**t) / math.sqrt(1.0 + 10.0 * t / sampler.steps)


@inner
def adam(memory: Array, rows: int, row: int, i: int, slope: Any, rate: Any, late: Any) -> None:
    """Move memory[row, i] up the slope; the gradient, its square and the average lie ``rows`` further on each."""
    first, second, mean = rows + row, 2 * rows + row, 3 * rows + row
    memory[first, i] += (1.0 - FIRST) * (slope - memory[first, i])
    memory[second, i] += (1.0 - SECOND) * (slope * slope - memory[second, i])
    memory[row, i] += rate * memory[first, i] / (math.sqrt(memory[second, i]) + SMALL)
    if late > 0:
        memory[mean, i] += (memory[row, i] - memory[mean, i]) / late


class Ascent(NamedTuple):
    """theta moves up the log posterior.  Memory: theta, three rows of ``adam``, the number of steps."""

    rate: float
    steps: int

    @property
    def memory_rows(self) -> int:
        return 5

    @property
    def noise_rows(self) -> int:
        return 0

    def begin(self, theta: Array) -> Array:
        memory = np.zeros((self.memory_rows, len(theta)))
        memory[0] = theta
        return memory

    def check(self, size: int) -> None:
        check_setting(self, "rate")


@compiled(step, Ascent)
def _(sampler: Ascent, theta: Array, gradient: Array, noise: Any, memory: Array, power: Any) -> None:
    memory[4, 0] += 1.0
    rate, late = rate_at(sampler, memory[4, 0]), memory[4, 0] - sampler.steps // 2
    for i in range(len(theta)):
        adam(memory, 1, 0, i, gradient[i], rate, late)
        theta[i] = memory[0, i]


class GaussianAscent(NamedTuple):
    r""":math:`q = N(m, L L^\top)` with :math:`L = \mathrm{diag}(e^l) C`, C lower triangular with a diagonal of ones.

    theta is a draw :math:`m + e^l C \epsilon` from q.  With :math:`u = e^l g` the evidence bound has the slopes
    :math:`u` in :math:`e^{-l} m`, :math:`u (C\epsilon) + 1` in l, :math:`u_i \epsilon_j` in C: all free of scale.
    Memory: m, l and C (d + 2 rows), three times as many rows of ``adam``, epsilon, the number of steps.
    """

    rate: float
    steps: int
    scale: float
    size: int

    @property
    def memory_rows(self) -> int:
        return 4 * (self.size + 2) + 2

    def begin(self, theta: Array) -> Array:
        memory = np.zeros((self.memory_rows, self.size))
        memory[0], memory[1], memory[2 : 2 + self.size] = theta, math.log(self.scale), np.eye(self.size)
        return memory

    def check(self, size: int) -> None:
        check_setting(self, "rate")
        check_setting(self, "scale")


@compiled(step, GaussianAscent)
def _(sampler: GaussianAscent, theta: Array, gradient: Array, noise: Array, memory: Array, power: Any) -> None:
    d = len(theta)
    rows = d + 2
    epsilon, count = memory[4 * rows], memory[4 * rows + 1]
    count[0] += 1.0
    rate, late = rate_at(sampler, count[0]), count[0] - sampler.steps // 2
    for i in range(d):
        scale = math.exp(memory[1, i])
        u, moved = scale * gradient[i], epsilon[i]
        for j in range(i):
            moved += memory[2 + i, j] * epsilon[j]
            adam(memory, rows, 2 + i, j, u * epsilon[j], rate, late)
        adam(memory, rows, 0, i, u, rate * scale, late)
        adam(memory, rows, 1, i, u * moved + 1.0, rate, late)
    for i in range(d):
        epsilon[i] = noise[0, i]
        moved = epsilon[i]
        for j in range(i):
            moved += memory[2 + i, j] * epsilon[j]
        theta[i] = memory[0, i] + math.exp(memory[1, i]) * moved


class GaussianApproximation(NamedTuple):
    """The approximation N(mean, factor factor') of the posterior of theta: ``mean`` (d,), ``factor`` (d, d)."""

    mean: Array
    factor: Array

    @property
    def standard_deviations(self) -> Array:
        return np.asarray(np.linalg.norm(self.factor, axis=1))

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Draws of theta (size, d)."""
        return np.asarray(self.mean + rng.standard_normal((size, len(self.mean))) @ self.factor.T)


def ascend(
    rng: np.random.Generator, model: Model, pool: Pool, start: Array, steps: int, *, rate: float = 0.05
) -> Array:
    """theta (d,) near a mode of the posterior, by stochastic gradient ascent from ``start``.

    ``rate`` is how far a component moves in one of the first steps.
    """
    return np.asarray(_finish(rng, Ascent(rate, steps), model, pool, start, steps)[3])


def gaussian_approximation(
    rng: np.random.Generator,
    model: Model,
    pool: Pool,
    start: Array,
    steps: int,
    *,
    rate: float = 0.05,
    scale: float = 0.01,
) -> GaussianApproximation:
    """The Gaussian in the sampled coordinates that is closest to the posterior, by stochastic variational inference.

    It starts around ``start``, a mode as ``ascend`` or EM finds it, with standard deviations ``scale``; ``rate`` is how
    many standard deviations the mean moves in one of the first steps.
    """
    d = model.size
    memory = _finish(rng, GaussianAscent(rate, steps, scale, d), model, pool, start, steps)
    mean, logs, *rows = memory[3 * (d + 2) : 4 * (d + 2)]
    return GaussianApproximation(mean, np.exp(logs)[:, None] * (np.tril(np.array(rows), -1) + np.eye(d)))


def _finish(rng: np.random.Generator, sampler: Any, model: Model, pool: Pool, start: Array, steps: int) -> Array:
    """Run all steps; the sampler's memory at the end."""
    check_generator(rng)
    check_whole("steps", steps, 2)
    validate_sampler(sampler, model.powers, model.component_names)
    pool.check_model(model)
    start = model.pack(model.unpack(start))
    state = State(rng.spawn(2), np.asarray(start, dtype=float), sampler)
    for good, draws in refills(state, sampler, model, target_of(model, pool), pool, steps):
        state.commit(good)
        if state.diverged:
            raise DivergedError([Divergence(state.diverged, state.done, 0)], draws[None])
    return state.memory
