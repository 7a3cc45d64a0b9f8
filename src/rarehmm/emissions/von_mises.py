"""Directions: angles in radians."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import i0e, i1e

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import ANGLES, Domain
from rarehmm.engine.contracts.family import Parameter, Prior, complete_score, log_density, prepare, score, statistics
from rarehmm.engine.dispatch import compiled, inner
from rarehmm.model.conjugate import best_natural
from rarehmm.model.scaled_priors import concentration


class VonMises(NamedTuple):
    r"""Von Mises distribution of angles around a direction :math:`\mu_k` with concentration :math:`\kappa_k`.

    Its parameters are the vector :math:`(a_k, b_k) = \kappa_k (\cos \mu_k, \sin \mu_k)`.

    .. math:: p(y \mid a_k, b_k) = e^{a_k \cos y + b_k \sin y} / 2 \pi I_0(\kappa_k), \quad -\pi \le y \le \pi

    A direction is defined only up to whole turns, and not at all where :math:`\kappa_k = 0`; the vector is unique for
    each distribution, and treats all angles alike.  ``polar`` converts to direction and concentration.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(Parameter(name, support="real", prior=concentration) for name in ("cosine", "sine"))

    @property
    def domain(self) -> Domain:
        return ANGLES

    def polar(self, phi: Array) -> tuple[Array, Array]:
        """Directions and concentrations.

        Parameters
        ----------
        phi
            Parameters of states, (..., 2).

        Returns
        -------
        direction, concentration
            Arrays (...,); directions in radians from -pi to pi.
        """
        return np.arctan2(phi[..., 1], phi[..., 0]), np.hypot(phi[..., 0], phi[..., 1])

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        direction, kappa = self.polar(phi)
        return np.asarray(rng.vonmises(direction[states], kappa[states]))

    def estimate(self, y: Array, weight: Array) -> Array:
        """From the weighted mean of the unit vectors in the directions of one state."""
        return nearly(np.average([np.cos(y), np.sin(y)], axis=1, weights=weight))

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(-pi <= Y <= y) in a state with parameters phi (P,)."""
        direction, kappa = self.polar(phi.T)
        from scipy.stats import vonmises  # the import takes a third of a second

        return np.asarray(vonmises.cdf(y - direction, kappa) - vonmises.cdf(-math.pi - direction, kappa))

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the vector, by Newton steps."""
        start = nearly(sums / np.maximum(counts, 1e-300)[:, None])
        return best_natural(start, counts, sums, moments, priors)


def nearly(mean: Array) -> Array:
    r"""Parameters (..., 2) for which cosine and sine have approximately these means.

    :math:`\kappa = R (2 - R^2) / (1 - R^2)`, at most a million (Banerjee et al. 2005).
    """
    square = (mean**2).sum(-1, keepdims=True)
    return np.asarray(mean * (2 - square) / np.maximum(1 - square, 1e-6))


def moments(phi: Array) -> tuple[Array, Array]:
    """Means (K, 2) and covariances (K, 2, 2) of cosine and sine."""
    kappa = np.maximum(np.hypot(*phi.T), 1e-8)[:, None]
    unit, length = phi / kappa, i1e(kappa) / i0e(kappa)
    across = length / kappa
    along = 1 - length**2 - across
    both = unit[:, :, None] * unit[:, None, :]
    return length * unit, across[..., None] * (np.eye(2) - both) + along[..., None] * both


@inner
def bessel(x: float) -> tuple[float, float]:
    r"""Values of :math:`\log I_0(x)` and :math:`I_1(x) / x I_0(x)`, from series in x, or in 1/x from x = 50."""
    zero, one, a, b = 1.0, 1.0, 1.0, 1.0
    if x < 50.0:
        for k in range(1, 100):
            a *= 0.25 * x * x / (k * k)
            b *= 0.25 * x * x / (k * (k + 1))
            zero += a
            one += b
        return math.log(zero), 0.5 * one / zero
    for k in range(1, 13):
        a *= (2 * k - 1) ** 2 / (8.0 * k * x)
        b *= ((2 * k - 1) ** 2 - 4) / (8.0 * k * x)
        zero += a
        one += b
    return x - 0.5 * math.log(2 * math.pi * x) + math.log(zero), one / (x * zero)


@compiled(prepare, VonMises)
def _(family: VonMises, phi: Array) -> Any:
    size, ratio = bessel(math.sqrt(phi[0] * phi[0] + phi[1] * phi[1]))
    return phi[0], phi[1], -size - math.log(2 * math.pi), ratio * phi[0], ratio * phi[1]


@compiled(log_density, VonMises)
def _(family: VonMises, y: Any, c: Any) -> Any:
    return np.cos(y) * c[0] + np.sin(y) * c[1] + c[2]


@compiled(score, VonMises)
def _(family: VonMises, y: Any, c: Any) -> Any:
    return np.cos(y) - c[3], np.sin(y) - c[4]


@compiled(statistics, VonMises)
def _(family: VonMises, y: Any, c: Any) -> Any:
    return np.cos(y), np.sin(y)


@compiled(complete_score, VonMises)
def _(family: VonMises, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return sums[0] - count * c[3], sums[1] - count * c[4]
