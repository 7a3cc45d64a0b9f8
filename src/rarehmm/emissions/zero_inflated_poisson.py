"""Poisson counts with additional zeros."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, gammaln, logit, pdtr

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
from rarehmm.model.conjugate import best_log_odds, best_rate, positive_or
from rarehmm.model.priors import Normal
from rarehmm.model.scaled_priors import rate


class ZeroInflatedPoisson(NamedTuple):
    r"""Poisson distribution with additional zeros.

    An observation is zero with probability :math:`\pi_k = e^{\eta_k} / (1 + e^{\eta_k})`, and otherwise a Poisson count
    of rate :math:`\lambda_k`.

    .. math:: p(y \mid \lambda_k, \eta_k) = \pi_k 1_{y = 0} + (1 - \pi_k) \lambda_k^y e^{-\lambda_k} / y!

    The :math:`y!` is left to ``constant``; :math:`\eta` is the parameter ``zero_log_odds``.
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("rate", support="positive", prior=rate),
            Parameter("zero_log_odds", support="real", prior=Normal(0.0, 2.5**2)),
        )

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("rate",)

    @property
    def domain(self) -> Domain:
        return COUNTS

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        counts = rng.poisson(phi[states, 0])
        return np.where(rng.random(len(states)) < expit(phi[:, 1])[states], 0.0, counts)

    def constant(self, y: Array) -> Array:
        return np.asarray(-gammaln(y + 1.0))

    def estimate(self, y: Array, weight: Array) -> Array:
        r"""From the weighted mean m and variance v of one state: :math:`\lambda = m + v / m - 1` and
        :math:`\pi = 1 - m / \lambda`, between 1 % and 99 %."""
        mean = np.average(y, weights=weight)
        spread = np.average((y - mean) ** 2, weights=weight) / mean if mean > 0 else 0.0
        lam = mean + max(spread - 1, 0.0)
        return np.array([lam, logit(np.clip(1 - mean / lam if lam > 0 else 0.5, 0.01, 0.99))])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.where(y < 0, 0.0, expit(phi[1]) + expit(-phi[1]) * pdtr(np.maximum(y, 0.0), phi[0]))

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step, given the expected number of zeros that are not Poisson counts."""
        zeros, total = sums.T
        lam = best_rate(total, counts - zeros, priors[0])
        odds = best_log_odds(np.column_stack([counts - zeros, zeros]), priors[1:])
        return np.column_stack([positive_or(phi[:, 0], lam), odds])


@compiled(prepare, ZeroInflatedPoisson)
def _(family: ZeroInflatedPoisson, phi: Array) -> Any:
    lam, eta = phi[0], phi[1]
    size = math.log1p(math.exp(-abs(eta)))
    none, some = min(eta, 0.0) - size, -max(eta, 0.0) - size  # log pi, log(1 - pi)
    high, low = max(none, some - lam), min(none, some - lam)
    zero = high + math.log1p(math.exp(low - high))
    return lam, math.log(lam), 1.0 / lam, some, zero, math.exp(none - zero), math.exp(none), none


@compiled(log_density, ZeroInflatedPoisson)
def _(family: ZeroInflatedPoisson, y: Any, c: Any) -> Any:
    return np.where(y == 0.0, c[4], y * c[1] - c[0] + c[3])


@compiled(score, ZeroInflatedPoisson)
def _(family: ZeroInflatedPoisson, y: Any, c: Any) -> Any:
    u = np.where(y == 0.0, c[5], 0.0)
    return y * c[2] - 1.0 + u, u - c[6]


@compiled(statistics, ZeroInflatedPoisson)
def _(family: ZeroInflatedPoisson, y: Any, c: Any) -> Any:
    return np.where(y == 0.0, c[5], 0.0), y  # first: the probability, given y, that it is not a Poisson count


@compiled(complete_score, ZeroInflatedPoisson)
def _(family: ZeroInflatedPoisson, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return sums[1] * c[2] - count + sums[0], sums[0] - count * c[6]


@compiled(with_predictor, ZeroInflatedPoisson)
def _(family: ZeroInflatedPoisson, y: Any, c: Any, eta: Any) -> Any:
    factor = np.exp(eta)
    lam, some, none = c[0] * factor, c[3], c[7]
    counted = some - lam  # log probability of a zero that is a Poisson count
    e = np.exp(-np.abs(none - counted))
    zero, share = np.maximum(none, counted) + np.log(1.0 + e), np.where(none > counted, 1.0, e) / (1.0 + e)
    return y, (lam, c[1] + eta, c[2] / factor, some, zero, share, c[6], none)
