"""Negative binomial counts of unknown size."""

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
from rarehmm.engine.dispatch import compiled, inner
from rarehmm.model.conjugate import best_count, best_shape, mean_and_variance, positive_or
from rarehmm.model.priors import pinned
from rarehmm.model.scaled_priors import evenness_of_counts, rate


class FreeNegativeBinomial(NamedTuple):
    r"""Negative binomial distribution with mean :math:`\mu_k` and unknown size :math:`r_k`.

    The variance is :math:`\mu_k + \mu_k^2 / r_k`.

    .. math:: p(y \mid \mu_k, r_k) = \frac{\Gamma(y + r_k)}{\Gamma(r_k)\, y!}
        \Bigl(\frac{\mu_k}{r_k + \mu_k}\Bigr)^y \Bigl(\frac{r_k}{r_k + \mu_k}\Bigr)^{r_k}

    Written with :math:`\Gamma(x) = x^{x - 1/2} e^{g(x) - x}`, the terms that grow with y cancel before they are
    computed; :math:`e^{-y} / y!` is left to ``constant``.  ``NegativeBinomial(r)`` has a given size.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean", support="positive", prior=rate),
            Parameter("size", support="positive", prior=evenness_of_counts),
        )

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean",)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        mean, r = phi
        return np.asarray(r * mean / (r + mean))

    @property
    def domain(self) -> Domain:
        return COUNTS

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.poisson(rng.gamma(phi[states, 1], (phi[:, 0] / phi[:, 1])[states])), dtype=float)

    def constant(self, y: Array) -> Array:
        return np.asarray(-y - gammaln(y + 1.0))

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean of the counts of one state, and the size that gives their variance in excess of a Poisson's."""
        mean, variance = mean_and_variance(y, weight)
        return np.array([mean, mean**2 / max(variance - mean, 0.1 * mean, 1e-9)])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.where(y < 0, 0.0, betainc(phi[1], np.maximum(y, 0.0) + 1, phi[1] / (phi[1] + phi[0])))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """A quarter of the size: EM started from there may find heavier tails than it has so far."""
        return [(self, phi * [1, 0.25])]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        r"""M-step of the mean given the size, then of the size.

        The size is the shape of the gamma distribution of the Poisson rates :math:`\lambda`, whose expectations given
        y are taken at this mean and the old size.
        """
        (total, digammas), r = sums.T, phi[:, 1]
        mean = pinned(best_count(phi[:, 0], r, counts, total, priors[0]), priors[0])
        spread = spread_of_rates(mean + r, phi[:, 0] + r, total + counts * r, digammas, counts)
        size = best_shape(r, counts, spread, priors[1])
        return np.column_stack([mean, positive_or(r, size)])


@inner
def spread_of_rates(new: Any, old: Any, total: Any, digammas: Any, count: Any) -> Any:
    r"""Expected sum of :math:`\log(\lambda / \mu) - \lambda / \mu + 1` at a mean other than that of the statistics.

    ``new`` and ``old`` are :math:`\mu + r` at this mean and at that of the statistics; ``total`` and ``digammas`` are
    sums of :math:`x = y + r` and :math:`\psi(x) - \log(\mu + r)`.
    """
    return digammas + count * (np.log(old / new) + 1.0) - total / new


@inner
def stirling_rest(x: Any) -> Any:
    r"""Remainder :math:`g(x) = \log \Gamma(x) - (x - 1/2) \log x + x` of Stirling's formula, from its series.

    If x is less than 8, the series is evaluated at x + 8 and carried back by the recurrence; with w = x (x + 7),
    :math:`x (x + 1) \cdots (x + 7) = w (w + 6) (w + 10) (w + 12)`.
    """
    small = np.where(x < 8.0, x, 1.0)
    z, w = np.where(x < 8.0, small + 8.0, x), small * (small + 7.0)
    further = small + 8.0
    back = (small - 0.5) * np.log(further / small) - 8.0
    back = back + np.log(further**8 / (w * (w + 6.0) * (w + 10.0) * (w + 12.0)))
    q = 1.0 / (z * z)
    series = 1 / 1188 - q * (691 / 360360 - q * (1 / 156 - q * 3617 / 122400))
    series = 1 / 12 - q * (1 / 360 - q * (1 / 1260 - q * (1 / 1680 - q * series)))
    return np.where(x < 8.0, back, 0.0) + series / z + 0.9189385332046728


@inner
def log_less_digamma(x: Any) -> Any:
    r"""The difference :math:`\log x - \psi(x)`, computed as in ``stirling_rest``."""
    small = np.where(x < 8.0, x, 1.0)
    z, w = np.where(x < 8.0, small + 8.0, x), small * (small + 7.0)
    low, high = w * (w + 6.0), (w + 10.0) * (w + 12.0)
    back = (2.0 * small + 7.0) * ((2.0 * w + 6.0) / low + (2.0 * w + 22.0) / high)
    back = back + np.log(small / (small + 8.0))
    q = 1.0 / (z * z)
    series = 1 / 132 - q * (691 / 32760 - q * (1 / 12 - q * 3617 / 8160))
    series = q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q * (1 / 240 - q * series))))
    return np.where(x < 8.0, back, 0.0) + 0.5 / z + series


# ---------------------------------------------------------------- compiled functions
@compiled(prepare, FreeNegativeBinomial)
def _(family: FreeNegativeBinomial, phi: Array) -> Any:
    mean, r = phi[0], phi[1]
    norm = 0.5 * math.log(r / (r + mean)) - float(stirling_rest(r))
    share = r / (r + mean)
    return math.log(mean), norm, r, r + mean, 1.0 / (r + mean), float(log_less_digamma(r)), share / mean, share, mean


@compiled(log_density, FreeNegativeBinomial)
def _(family: FreeNegativeBinomial, y: Any, c: Any) -> Any:
    x = y + c[2]
    return (x - 0.5) * np.log(x * c[4]) + y * c[0] + stirling_rest(x) + c[1]


@compiled(score, FreeNegativeBinomial)
def _(family: FreeNegativeBinomial, y: Any, c: Any) -> Any:
    x = (y + c[2]) * c[4]
    return y * c[6] - c[7], np.log(x) - x + 1.0 - log_less_digamma(y + c[2]) + c[5]


@compiled(statistics, FreeNegativeBinomial)
def _(family: FreeNegativeBinomial, y: Any, c: Any) -> Any:
    return y, np.log((y + c[2]) * c[4]) - log_less_digamma(y + c[2])


@compiled(complete_score, FreeNegativeBinomial)
def _(family: FreeNegativeBinomial, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    spread = spread_of_rates(c[8] + hat[2], hat[3], sums[0] + count * hat[2], sums[1], count)
    return sums[0] * c[6] - count * c[7], spread + count * c[5]


@compiled(with_predictor, FreeNegativeBinomial)
def _(family: FreeNegativeBinomial, y: Any, c: Any, eta: Any) -> Any:
    mean = c[8] * np.exp(eta)
    total = c[2] + mean
    share, norm = c[2] / total, c[1] + 0.5 * np.log(c[3] / total)
    return y, (c[0] + eta, norm, c[2], total, 1.0 / total, c[5], share / mean, share, mean)
