"""Student's t observations with unknown degrees of freedom."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

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
from rarehmm.engine.dispatch import compiled, inner
from rarehmm.engine.special import log_minus_digamma
from rarehmm.model.conjugate import best_mean_and_variance, best_shape, mean_and_variance, positive_or
from rarehmm.model.priors import Gamma, bare, pinned
from rarehmm.model.scaled_priors import location, squared_scale


class FreeStudentT(NamedTuple):
    r"""Student's t distribution with unknown degrees of freedom :math:`\nu_k`.

    The other parameters of a state are its location :math:`\mu_k` and squared scale :math:`\sigma_k^2`.

    .. math:: p(y \mid \mu_k, \sigma_k^2, \nu_k) = \frac{\Gamma((\nu_k + 1) / 2)}{\Gamma(\nu_k / 2) \sqrt{\pi \nu_k}
        \sigma_k} \Bigl(1 + \frac{(y-\mu_k)^2}{\nu_k\sigma_k^2}\Bigr)^{-(\nu_k+1)/2}

    The default prior of :math:`\nu` is that of Juarez and Steel (2010).  ``StudentT(nu)`` has given degrees of freedom.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean", support="real", prior=location),
            Parameter("scale2", support="positive", prior=squared_scale),
            Parameter("nu", support="positive", prior=Gamma(2.0, 0.1)),
        )

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean",)

    @property
    def log_scale(self) -> tuple[tuple[str, float], ...]:
        return (("scale2", 2.0),)

    def precision(self, y: Array, phi: Array) -> Array:
        """Expected precision of the normal distribution, of unknown scale, that an observation comes from."""
        mean, s2, nu = phi
        return np.asarray((nu + 1) / (nu * s2 + (y - mean) ** 2))

    @property
    def domain(self) -> Domain:
        return REALS

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.standard_t(phi[states, 2]) * np.sqrt(phi[:, 1])[states] + phi[states, 0])

    def estimate(self, y: Array, weight: Array) -> Array:
        r"""Weighted mean of one state, :math:`\nu = 4 + 6 / (\text{kurtosis} - 3)` between 3 and 30, and the squared
        scale that gives the weighted variance."""
        mean, variance = mean_and_variance(y, weight)
        kurtosis = np.average((y - mean) ** 4, weights=weight) / variance**2 if variance > 0 else 3.0
        nu = np.clip(4 + 6 / max(kurtosis - 3, 1e-3), 3.0, 30.0)
        return np.array([mean, variance * (nu - 2) / nu, nu])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.asarray(stdtr(phi[2], (y - phi[0]) / np.sqrt(phi[1])))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """A quarter of the degrees of freedom: EM started from there may find heavier tails than it has so far."""
        return [(self, phi * [1, 1, 0.25])]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step: mean and scale given the degrees of freedom, which are the shape of the precision weights."""
        weight, first, second, spread = sums.T
        both = best_mean_and_variance(phi[:, :2], counts, (weight, first, second), priors[:2])
        prior = bare(priors[2])
        halved = Gamma(prior.shape, 2 * prior.rate) if isinstance(prior, Gamma) else prior
        nu = pinned(2 * best_shape(phi[:, 2] / 2, counts, spread, halved), priors[2])
        return np.column_stack([both, positive_or(phi[:, 2], nu)])


@inner
def half_step(x: float) -> float:
    r"""The difference :math:`\log \Gamma(x + 1/2) - \log \Gamma(x)`, from its asymptotic series for large x."""
    if x < 50.0:
        return math.lgamma(x + 0.5) - math.lgamma(x)
    q = 1.0 / (x * x)
    return 0.5 * math.log(x) - (1 / 8 - q * (1 / 192 - q * (1 / 640 - q * 17 / 14336))) / x


@compiled(prepare, FreeStudentT)
def _(family: FreeStudentT, phi: Array) -> Any:
    s2, nu = phi[1], phi[2]
    norm = half_step(0.5 * nu) - 0.5 * math.log(nu * math.pi * s2)
    weight = math.log1p(1.0 / nu) + 1.0 - log_minus_digamma(0.5 * (nu + 1.0))
    return phi[0], 1.0 / s2, norm, 1.0 / (nu * s2), nu, weight, log_minus_digamma(0.5 * nu)


@compiled(log_density, FreeStudentT)
def _(family: FreeStudentT, y: Any, c: Any) -> Any:
    z = y - c[0]
    return c[2] - 0.5 * (c[4] + 1.0) * np.log(1.0 + z * z * c[3])


@compiled(statistics, FreeStudentT)
def _(family: FreeStudentT, y: Any, c: Any) -> Any:
    z = y - c[0]
    u = (c[4] + 1.0) / (
        c[4] + z * z * c[1]
    )  # expected precision weight u given y; the last statistic is E(log u - u + 1)
    return u, u * z, u * z * z, c[5] - np.log(1.0 + z * z * c[3]) - u


@compiled(score, FreeStudentT)
def _(family: FreeStudentT, y: Any, c: Any) -> Any:
    z = y - c[0]
    z2 = z * z * c[1]
    u = (c[4] + 1.0) / (c[4] + z2)
    return u * z * c[1], 0.5 * (u * z2 - 1.0) * c[1], 0.5 * (c[5] + c[6] - np.log(1.0 + z * z * c[3]) - u)


@compiled(complete_score, FreeStudentT)
def _(family: FreeStudentT, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    shift = c[0] - hat[0]
    squares = sums[2] - 2.0 * shift * sums[1] + shift * shift * sums[0]
    slopes = (sums[1] - shift * sums[0]) * c[1], 0.5 * (squares * c[1] - count) * c[1]
    return slopes[0], slopes[1], 0.5 * (sums[3] + count * c[6])


@compiled(with_predictor, FreeStudentT)
def _(family: FreeStudentT, y: Any, c: Any, eta: Any) -> Any:
    return y - eta, c


@compiled(with_log_scale, FreeStudentT)
def _(family: FreeStudentT, y: Any, c: Any, zeta: Any) -> Any:
    factor = np.exp(-2.0 * zeta)
    return y, (c[0], c[1] * factor, c[2] - zeta, c[3] * factor, c[4], c[5], c[6])
