"""Negative binomial counts, which vary more than Poisson counts."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import betainc, gammaln

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
from rarehmm.model.conjugate import best_count
from rarehmm.model.scaled_priors import rate


class NegativeBinomial(NamedTuple):
    r"""Negative binomial distribution of given size :math:`r`.

    The mean is :math:`\mu_k`, the variance :math:`\mu_k + \mu_k^2 / r`.

    .. math:: p(y \mid \mu_k) \propto \Bigl(\frac{\mu_k}{r + \mu_k}\Bigr)^y \Bigl(\frac{r}{r + \mu_k}\Bigr)^r
    """

    r: float = 1.0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("mean", support="positive", prior=rate),)

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean",)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        return np.asarray(self.r * phi[0] / (self.r + phi[0]))

    @property
    def domain(self) -> Domain:
        return COUNTS

    def check(self) -> None:
        if not isinstance(self.r, float | int) or not 0 < self.r <= 1e6:
            raise ValueError(f"r is {self.r!r}; it must lie between 0 and 1e6. For larger values use Poisson().")

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        mean = phi[states, 0]
        return np.asarray(rng.poisson(rng.gamma(self.r, mean / self.r)), dtype=float)

    def constant(self, y: Array) -> Array:
        return np.asarray(gammaln(y + self.r) - gammaln(self.r) - gammaln(y + 1))

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean of the counts of one state."""
        return np.array([np.average(y, weights=weight)])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.where(y < 0, 0.0, betainc(self.r, np.maximum(y, 0.0) + 1, self.r / (self.r + phi[0])))

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step; a state without observations or prior keeps its mean."""
        return best_count(phi[:, 0], self.r, counts, sums[:, 0], priors[0])[:, None]


@compiled(prepare, NegativeBinomial)
def _(family: NegativeBinomial, phi: Array) -> Any:
    r, mean = family.r, phi[0]
    return math.log(mean / (r + mean)), r * math.log(r / (r + mean)), r / (mean * (r + mean)), r / (r + mean)


@compiled(log_density, NegativeBinomial)
def _(family: NegativeBinomial, y: Any, c: Any) -> Any:
    return y * c[0] + c[1]


@compiled(score, NegativeBinomial)
def _(family: NegativeBinomial, y: Any, c: Any) -> Any:
    return (y * c[2] - c[3],)


@compiled(statistics, NegativeBinomial)
def _(family: NegativeBinomial, y: Any, c: Any) -> Any:
    return (y,)


@compiled(complete_score, NegativeBinomial)
def _(family: NegativeBinomial, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return (sums[0] * c[2] - count * c[3],)


@compiled(with_predictor, NegativeBinomial)
def _(family: NegativeBinomial, y: Any, c: Any, eta: Any) -> Any:
    r, mean = family.r, c[3] / c[2] * np.exp(eta)
    share = r / (r + mean)
    return y, (np.log(mean / (r + mean)), r * np.log(share), share / mean, share)
