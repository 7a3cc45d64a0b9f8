"""Waiting times."""

import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import POSITIVE, Domain
from rarehmm.emissions.gamma import GammaEmission
from rarehmm.engine.contracts.family import Parameter, Prior, complete_score, log_density, prepare, score, statistics
from rarehmm.engine.dispatch import compiled
from rarehmm.model.priors import best_variance, draw_variance, level


class Exponential(NamedTuple):
    r"""Waiting times without memory: :math:`p(y \mid \mu_k) = \mu_k^{-1} e^{-y / \mu_k}`, :math:`y > 0`.

    Twice a waiting time is like the sum of two squares of variance :math:`\mu_k`, and so are M-step and draws.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("mean", support="positive", prior=level),)

    @property
    def domain(self) -> Domain:
        return POSITIVE

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.exponential(phi[states, 0]))

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean of the observations of one state."""
        return np.array([np.average(y, weights=weight)])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.asarray(-np.expm1(-y / phi[0]))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """Families with heavier tails, and parameters (K, P) of them with the same means."""
        both = np.column_stack([phi, np.full(len(phi), 0.5)])
        return [(GammaEmission(), both), *GammaEmission().heavier(both)]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step; a state without observations or prior stays."""
        new = best_variance(2 * sums[:, 0], 2 * counts, priors[0])[:, None]
        return np.where(np.isfinite(new) & (new > 0), new, phi)

    def conditional(
        self, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
    ) -> Array:
        """A draw of the means."""
        return draw_variance(rng, 2 * sums[:, 0], 2 * counts, priors[0]).reshape(phi.shape)


@compiled(prepare, Exponential)
def _(family: Exponential, phi: Array) -> Any:
    return 1.0 / phi[0], -math.log(phi[0])


@compiled(log_density, Exponential)
def _(family: Exponential, y: Any, c: Any) -> Any:
    return c[1] - y * c[0]


@compiled(score, Exponential)
def _(family: Exponential, y: Any, c: Any) -> Any:
    return ((y * c[0] - 1.0) * c[0],)


@compiled(statistics, Exponential)
def _(family: Exponential, y: Any, c: Any) -> Any:
    return (y,)


@compiled(complete_score, Exponential)
def _(family: Exponential, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return ((sums[0] * c[0] - count) * c[0],)
