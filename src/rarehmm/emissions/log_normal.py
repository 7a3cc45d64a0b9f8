"""Positive observations whose logarithms are Gaussian."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import POSITIVE, Domain
from rarehmm.data.summaries import LARGEST
from rarehmm.engine.contracts.family import (
    Parameter,
    Prior,
    complete_score,
    log_density,
    prepare,
    score,
    statistics,
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled
from rarehmm.model.conjugate import best_mean_and_variance, draw_mean_and_variance, mean_and_variance
from rarehmm.model.scaled_priors import log_location, log_squared_scale


class LogNormal(NamedTuple):
    r"""Log-normal distribution: :math:`\log y \sim N(\mu_k, \sigma_k^2)`.

    The factor :math:`1 / y` of the density is left to ``constant``.  M-step and draws are those of the Gaussian.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean_log", support="real", prior=log_location),
            Parameter("variance_log", support="positive", prior=log_squared_scale),
        )

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean_log",)

    @property
    def log_scale(self) -> tuple[tuple[str, float], ...]:
        return (("variance_log", 2.0),)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        return np.asarray(1 / phi[1])

    @property
    def domain(self) -> Domain:
        return POSITIVE

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        logs = rng.standard_normal(len(states)) * np.sqrt(phi[:, 1])[states] + phi[states, 0]
        return np.asarray(np.exp(np.clip(logs, -math.log(LARGEST), math.log(LARGEST))))

    def constant(self, y: Array) -> Array:
        return np.asarray(-np.log(y))

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean and variance of the logarithms of the observations of one state."""
        return mean_and_variance(np.log(y), weight)

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.asarray(ndtr((np.log(y) - phi[0]) / np.sqrt(phi[1])))

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the mean, then of the variance given that mean."""
        return best_mean_and_variance(phi, counts, (counts, *sums.T), priors)

    def conditional(
        self, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
    ) -> Array:
        """Draw the means given the old variances, then the variances given these means."""
        return draw_mean_and_variance(rng, phi, counts, sums, priors)


@compiled(prepare, LogNormal)
def _(family: LogNormal, phi: Array) -> Any:
    return phi[0], 1.0 / phi[1], -0.5 * math.log(2 * math.pi * phi[1])


@compiled(log_density, LogNormal)
def _(family: LogNormal, y: Any, c: Any) -> Any:
    z = np.log(y) - c[0]
    return c[2] - 0.5 * z * z * c[1]


@compiled(score, LogNormal)
def _(family: LogNormal, y: Any, c: Any) -> Any:
    z = np.log(y) - c[0]
    return z * c[1], 0.5 * (z * z * c[1] - 1.0) * c[1]


@compiled(statistics, LogNormal)
def _(family: LogNormal, y: Any, c: Any) -> Any:
    z = np.log(y) - c[0]
    return z, z * z


@compiled(complete_score, LogNormal)
def _(family: LogNormal, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    shift = c[0] - hat[0]
    squares = sums[1] - 2.0 * shift * sums[0] + shift * shift * count
    return (sums[0] - shift * count) * c[1], 0.5 * (squares * c[1] - count) * c[1]


@compiled(with_predictor, LogNormal)
def _(family: LogNormal, y: Any, c: Any, eta: Any) -> Any:
    return y, (c[0] + eta, c[1], c[2])


@compiled(with_log_scale, LogNormal)
def _(family: LogNormal, y: Any, c: Any, zeta: Any) -> Any:
    return y, (c[0], c[1] * np.exp(-2.0 * zeta), c[2] - zeta)
