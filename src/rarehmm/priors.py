r"""Priors: their log densities and slopes, and the defaults, which are scaled from the data.

A default prior moves and stretches with the data, so that a series in volts and the same one in nanovolts give the
same answer.  Each is worth a handful of observations: enough to keep a state of three observations from collapsing,
too little to be seen in one of thirty.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np

from rarehmm.series import Array, Summary


class Prior(Protocol):
    """A density of one parameter, on arrays: its logarithm and the slope of that."""

    def log_density(self, x: Array) -> Array: ...
    def slope(self, x: Array) -> Array: ...


class Normal(NamedTuple):
    r""":math:`\mu \sim N(m, v)`, by mean and variance."""

    mean: float
    variance: float

    def log_density(self, x: Array) -> Array:
        return -0.5 * ((x - self.mean) ** 2 / self.variance + math.log(2 * math.pi * self.variance))

    def slope(self, x: Array) -> Array:
        return -(x - self.mean) / self.variance


class InverseGamma(NamedTuple):
    r""":math:`p(s) = b^a / \Gamma(a)\, s^{-a-1} e^{-b/s}`, by shape a and scale b."""

    shape: float
    scale: float

    def log_density(self, x: Array) -> Array:
        a, b = self.shape, self.scale
        return a * math.log(b) - math.lgamma(a) - (a + 1) * np.log(x) - b / x

    def slope(self, x: Array) -> Array:
        return self.scale / x**2 - (self.shape + 1) / x


class Gamma(NamedTuple):
    r""":math:`p(x) = b^a / \Gamma(a)\, x^{a-1} e^{-bx}`, by shape a and rate b."""

    shape: float
    rate: float

    def log_density(self, x: Array) -> Array:
        a, b = self.shape, self.rate
        return a * math.log(b) - math.lgamma(a) + (a - 1) * np.log(x) - b * x

    def slope(self, x: Array) -> Array:
        return (self.shape - 1) / x - self.rate


class Dirichlet(NamedTuple):
    r"""Rows of the transition matrix: :math:`p(P_j) \propto \prod_k P_{jk}^{\alpha-1}`, one alpha for all entries."""

    concentration: float = 1.0

    def log_density(self, x: Array) -> Array:
        """Of each row of ``x`` (..., K)."""
        a, K = self.concentration, x.shape[-1]
        norm = math.lgamma(K * a) - K * math.lgamma(a)
        return np.asarray(norm + (a - 1) * np.log(x).sum(-1))


# ---------------------------------------------------------------- defaults, from the summary of a column
def location(summary: Summary) -> Normal:
    """Centred at the mean, one standard deviation the whole range of the data: flat where the data are."""
    return Normal(summary.mean, (summary.high - summary.low) ** 2)


def squared_scale(summary: Summary) -> InverseGamma:
    """Worth four observations; its mean is half the mean square of successive differences.

    Within a regime these see the noise, whereas the variance of the whole series sees the distance of the regimes.
    """
    return InverseGamma(2.0, summary.roughness)


def rate(summary: Summary) -> Gamma:
    """Worth one event, with the overall rate as mean."""
    return Gamma(1.0, 1.0 / summary.mean)
