"""Poisson counts."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, pdtr

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import COUNTS, Domain
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
from rarehmm.model.conjugate import best_rate, draw_rate, positive_or
from rarehmm.model.scaled_priors import rate


class Poisson(NamedTuple):
    r"""Poisson distribution: :math:`p(y \mid \lambda_k) = \lambda_k^y e^{-\lambda_k} / y!`.

    The :math:`y!` is left to ``constant``.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("rate", support="positive", prior=rate),)

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("rate",)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        return np.asarray(phi[0])

    @property
    def domain(self) -> Domain:
        return COUNTS

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.poisson(phi[states, 0]), dtype=float)

    def constant(self, y: Array) -> Array:
        return np.asarray(-gammaln(y + 1.0))

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean of the observations of one state."""
        return np.array([np.average(y, weights=weight)])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.where(y < 0, 0.0, pdtr(np.maximum(y, 0.0), phi[0]))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """Negative binomial distributions with the same means."""
        return [(("negative_binomial", {"r": r}), phi) for r in (0.2, 1.0, 5.0)]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step; a state without observations or prior keeps its parameter."""
        new = best_rate(sums[:, 0], counts, priors[0])[:, None]
        return positive_or(phi, new)

    def conditional(
        self, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
    ) -> Array:
        """Draw the rates."""
        return draw_rate(rng, sums[:, 0], counts, priors[0]).reshape(phi.shape)


@compiled(prepare, Poisson)
def _(family: Poisson, phi: Array) -> Any:
    return phi[0], math.log(phi[0]), 1.0 / phi[0]


@compiled(log_density, Poisson)
def _(family: Poisson, y: Any, c: Any) -> Any:
    return y * c[1] - c[0]


@compiled(score, Poisson)
def _(family: Poisson, y: Any, c: Any) -> Any:
    return (y * c[2] - 1.0,)


@compiled(statistics, Poisson)
def _(family: Poisson, y: Any, c: Any) -> Any:
    return (y,)


@compiled(complete_score, Poisson)
def _(family: Poisson, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return (sums[0] * c[2] - count,)


@compiled(with_predictor, Poisson)
def _(family: Poisson, y: Any, c: Any, eta: Any) -> Any:
    factor = np.exp(eta)
    return y, (c[0] * factor, c[1] + eta, c[2] / factor)
