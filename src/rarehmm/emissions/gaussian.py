"""Gaussian observations."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import REALS, Domain
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
from rarehmm.model.scaled_priors import location, squared_scale


class Gaussian(NamedTuple):
    r"""Gaussian noise: :math:`p(y \mid \mu_k, \sigma_k^2) \propto \sigma_k^{-1} e^{-(y-\mu_k)^2 / 2\sigma_k^2}`."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean", support="real", prior=location),
            Parameter("variance", support="positive", prior=squared_scale),
        )

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean",)

    @property
    def log_scale(self) -> tuple[tuple[str, float], ...]:
        return (("variance", 2.0),)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        return np.asarray(1 / phi[1])

    @property
    def domain(self) -> Domain:
        return REALS

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.standard_normal(len(states)) * np.sqrt(phi[:, 1])[states] + phi[states, 0])

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean and variance of the observations of one state."""
        return mean_and_variance(y, weight)

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.asarray(ndtr((y - phi[0]) / np.sqrt(phi[1])))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """Student's t distributions with the same variances."""
        return [(("student_t", {"nu": nu}), phi * [1, (nu - 2) / nu]) for nu in (2.5, 4.0, 8.0)]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the mean, then of the variance given that mean."""
        return best_mean_and_variance(phi, counts, (counts, *sums.T), priors)

    def conditional(
        self, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
    ) -> Array:
        """Draw the means given the old variances, then the variances given these means."""
        return draw_mean_and_variance(rng, phi, counts, sums, priors)


@compiled(prepare, Gaussian)
def _(family: Gaussian, phi: Array) -> Any:
    return phi[0], 1.0 / phi[1], -0.5 * math.log(2 * math.pi * phi[1])


@compiled(log_density, Gaussian)
def _(family: Gaussian, y: Any, c: Any) -> Any:
    z = y - c[0]
    return c[2] - 0.5 * z * z * c[1]


@compiled(score, Gaussian)
def _(family: Gaussian, y: Any, c: Any) -> Any:
    z = y - c[0]
    return z * c[1], 0.5 * (z * z * c[1] - 1.0) * c[1]


@compiled(statistics, Gaussian)
def _(family: Gaussian, y: Any, c: Any) -> Any:
    z = y - c[0]
    return z, z * z


@compiled(complete_score, Gaussian)
def _(family: Gaussian, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    shift = c[0] - hat[0]
    squares = sums[1] - 2.0 * shift * sums[0] + shift * shift * count
    return (sums[0] - shift * count) * c[1], 0.5 * (squares * c[1] - count) * c[1]


@compiled(with_predictor, Gaussian)
def _(family: Gaussian, y: Any, c: Any, eta: Any) -> Any:
    return y - eta, c


@compiled(with_log_scale, Gaussian)
def _(family: Gaussian, y: Any, c: Any, zeta: Any) -> Any:
    return y, (c[0], c[1] * np.exp(-2.0 * zeta), c[2] - zeta)
