"""Gamma observations: positive, and between exponential and bell-shaped."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammainc

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
from rarehmm.engine.special import log_minus_digamma
from rarehmm.model.conjugate import best_shape, best_variance, mean_and_variance, positive_or
from rarehmm.model.priors import pinned
from rarehmm.model.scaled_priors import evenness, level


class GammaEmission(NamedTuple):
    r"""Gamma distribution with mean :math:`\mu_k` and shape :math:`\kappa_k`.

    .. math:: p(y \mid \mu_k, \kappa_k) = \frac{(\kappa_k / \mu_k)^{\kappa_k}}{\Gamma(\kappa_k)}
        y^{\kappa_k - 1} e^{-\kappa_k y / \mu_k}

    The variance is :math:`\mu_k^2 / \kappa_k`.  The factor :math:`1 / y` is left to ``constant``.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean", support="positive", prior=level),
            Parameter("shape", support="positive", prior=evenness),
        )

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean",)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        return np.asarray(phi[1])

    @property
    def domain(self) -> Domain:
        return POSITIVE

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.gamma(phi[states, 1], (phi[:, 0] / phi[:, 1])[states]))

    def constant(self, y: Array) -> Array:
        return np.asarray(-np.log(y))

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean of the observations of one state, and the shape that gives their variance."""
        mean, variance = mean_and_variance(y, weight)
        return np.array([mean, mean**2 / max(variance, 1e-6 * mean**2)])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.asarray(gammainc(phi[1], y * phi[1] / phi[0]))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """Log-normal distributions with the same means and variances."""
        s2 = np.log1p(1 / phi[:, 1])
        return [(("log_normal", {}), np.column_stack([np.log(phi[:, 0]) - s2 / 2, s2]))]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the mean, then of the shape given that mean."""
        weight = 2 * phi[:, 1]
        mean = pinned(best_variance(weight * sums[:, 0], weight * counts, priors[0]), priors[0])
        mean = positive_or(phi[:, 0], mean)
        shape = best_shape(phi[:, 1], counts, sums[:, 1] - sums[:, 0] / mean - counts * (np.log(mean) - 1), priors[1])
        return np.column_stack([mean, positive_or(phi[:, 1], shape)])


@compiled(prepare, GammaEmission)
def _(family: GammaEmission, phi: Array) -> Any:
    mean, shape = phi[0], phi[1]
    norm = shape * math.log(shape) - shape - math.lgamma(shape)
    return 1.0 / mean, math.log(mean) - 1.0, shape, shape / mean, norm, log_minus_digamma(shape)


@compiled(log_density, GammaEmission)
def _(family: GammaEmission, y: Any, c: Any) -> Any:
    return (np.log(y) - y * c[0] - c[1]) * c[2] + c[4]


@compiled(score, GammaEmission)
def _(family: GammaEmission, y: Any, c: Any) -> Any:
    return (y * c[0] - 1.0) * c[3], np.log(y) - y * c[0] - c[1] + c[5]


@compiled(statistics, GammaEmission)
def _(family: GammaEmission, y: Any, c: Any) -> Any:
    return y, np.log(y)


@compiled(complete_score, GammaEmission)
def _(family: GammaEmission, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return (sums[0] * c[0] - count) * c[3], sums[1] - sums[0] * c[0] + count * (c[5] - c[1])


@compiled(with_predictor, GammaEmission)
def _(family: GammaEmission, y: Any, c: Any, eta: Any) -> Any:
    factor = np.exp(-eta)
    return y, (c[0] * factor, c[1] + eta, c[2], c[3] * factor, c[4], c[5])
