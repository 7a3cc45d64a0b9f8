"""Prior densities of the parameters of a state and of the rows of the transition matrix."""

import math
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import Prior

Terms = tuple[float, float, float, float]  # coefficients of the slope in 1, x, 1/x and 1/x^2


def slope_by_terms(terms: Terms, x: Array) -> Array:
    r"""Slope of a log density from its terms, :math:`c_0 + c_1 x + c_2 / x + c_3 / x^2`."""
    total = terms[0] + terms[1] * x
    return total + (terms[2] + terms[3] / x) / x if any(terms[2:]) else total


class Normal(NamedTuple):
    r"""Normal distribution :math:`N(m, v)` with mean m and variance v."""

    mean: float
    variance: float

    def log_density(self, x: Array) -> Array:
        return -0.5 * ((x - self.mean) ** 2 / self.variance + math.log(2 * math.pi * self.variance))

    @property
    def terms(self) -> Terms:
        return self.mean / self.variance, -1 / self.variance, 0.0, 0.0

    def slope(self, x: Array) -> Array:
        return slope_by_terms(self.terms, x)


class InverseGamma(NamedTuple):
    r"""Inverse gamma distribution with shape a and scale b: :math:`p(s) = b^a / \Gamma(a)\, s^{-a-1} e^{-b/s}`."""

    shape: float
    scale: float

    def log_density(self, x: Array) -> Array:
        a, b = self.shape, self.scale
        return a * math.log(b) - math.lgamma(a) - (a + 1) * np.log(x) - b / x

    @property
    def terms(self) -> Terms:
        return 0.0, 0.0, -(self.shape + 1), self.scale

    def slope(self, x: Array) -> Array:
        return slope_by_terms(self.terms, x)


class Gamma(NamedTuple):
    r"""Gamma distribution with shape a and rate b: :math:`p(x) = b^a / \Gamma(a)\, x^{a-1} e^{-bx}`."""

    shape: float
    rate: float

    def log_density(self, x: Array) -> Array:
        a, b = self.shape, self.rate
        return a * math.log(b) - math.lgamma(a) + (a - 1) * np.log(x) - b * x

    @property
    def terms(self) -> Terms:
        return -self.rate, 0.0, self.shape - 1, 0.0

    def slope(self, x: Array) -> Array:
        return slope_by_terms(self.terms, x)


class Flat(NamedTuple):
    """No prior: uniform in the coordinate that is sampled, so that the posterior mode maximises the likelihood."""

    @property
    def terms(self) -> Terms:
        return 0.0, 0.0, 0.0, 0.0

    def log_density(self, x: Array) -> Array:
        return np.zeros(x.shape)

    def slope(self, x: Array) -> Array:
        return np.zeros(x.shape)


class Pinned(NamedTuple):
    """Prior of a parameter that is fixed to ``values`` (K,) in some states; NaN in the states where it is free."""

    prior: Prior
    values: Array

    def log_density(self, x: Array) -> Array:
        return self.prior.log_density(x)

    def slope(self, x: Array) -> Array:
        return self.prior.slope(x)

    @property
    def terms(self) -> Terms:
        return self.prior.terms


def sampled_log_density(prior: Prior, x: Array, log: bool) -> Array:
    """Log density of the coordinate that is sampled, x or (``log``) its logarithm; a flat prior is flat in either."""
    density = prior.log_density(x)
    return density + np.log(x) if log and not isinstance(prior, Flat) else density


def bare(prior: Prior) -> Prior:
    """The prior itself, without the fixed values of a ``Pinned`` one."""
    return prior.prior if isinstance(prior, Pinned) else prior


def pinned(found: Array, prior: Prior) -> Array:
    """Estimates ``found`` (K,), with fixed values put in their place."""
    return np.where(np.isnan(prior.values), found, prior.values) if isinstance(prior, Pinned) else found


class Dirichlet(NamedTuple):
    r"""Symmetric Dirichlet distribution of each row of the transition matrix,
    :math:`p(P_j) \propto \prod_k P_{jk}^{\alpha-1}`.

    A concentration :math:`\alpha` of 0 means no prior: uniform in the log ratios.
    """

    concentration: float = 1.0

    def log_density(self, x: Array) -> Array:
        """Log density of each row of ``x`` (..., K)."""
        a, K = self.concentration, x.shape[-1]
        norm = math.lgamma(K * a) - K * math.lgamma(a) if a > 0 else 0.0
        return np.asarray(norm + (a - 1) * np.log(x).sum(-1))
