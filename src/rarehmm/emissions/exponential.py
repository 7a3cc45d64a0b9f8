"""Exponential waiting times."""

import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import POSITIVE, Domain
from rarehmm.engine.contracts.family import (
    Parameter,
    Prior,
    complete_score,
    log_density,
    prepare,
    score,
    statistics,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled
from rarehmm.model.conjugate import best_variance, draw_variance, positive_or
from rarehmm.model.scaled_priors import level


class Exponential(NamedTuple):
    r"""Exponential distribution: :math:`p(y \mid \mu_k) = \mu_k^{-1} e^{-y / \mu_k}`, :math:`y > 0`.

    Twice a waiting time is distributed as the sum of two squared Gaussians of variance :math:`\mu_k`, so M-step and
    draws are those of a variance.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("mean", support="positive", prior=level),)

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean",)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        return np.ones(len(y))

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
        """Gamma distributions of shape 1/2 with the same means, and log-normal ones with the moments of these."""
        shape, s2 = np.full(len(phi), 0.5), np.full(len(phi), np.log1p(1 / 0.5))
        return [
            (("gamma", {}), np.column_stack([phi, shape])),
            (("log_normal", {}), np.column_stack([np.log(phi[:, 0]) - s2 / 2, s2])),
        ]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step; a state without observations or prior keeps its parameter."""
        new = best_variance(2 * sums[:, 0], 2 * counts, priors[0])[:, None]
        return positive_or(phi, new)

    def conditional(
        self, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
    ) -> Array:
        """Draw the means."""
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


@compiled(with_predictor, Exponential)
def _(family: Exponential, y: Any, c: Any, eta: Any) -> Any:
    return y, (c[0] * np.exp(-eta), c[1] - eta)
