"""Binary observations."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import Domain, below
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
from rarehmm.model.conjugate import best_log_odds
from rarehmm.model.scaled_priors import log_odds


class Bernoulli(NamedTuple):
    r"""Bernoulli distribution of 0 and 1, with log odds :math:`\eta_k` of 1.

    .. math:: p(y \mid \eta_k) = e^{y \eta_k} / (1 + e^{\eta_k})
    """

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter("log_odds", support="real", prior=log_odds),)

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("log_odds",)

    def precision(self, y: Array, phi: Array) -> Array:
        """Information about the linear predictor in each observation."""
        return np.asarray(expit(phi[0]) * expit(-phi[0]))

    @property
    def domain(self) -> Domain:
        return below(2)

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.random(len(states)) < expit(phi[:, 0])[states], dtype=float)

    def estimate(self, y: Array, weight: Array) -> Array:
        """Log odds of one state from the weighted share of ones, after adding half an observation of each kind."""
        return np.array([logit((weight @ y + 0.5) / (weight.sum() + 1))])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.where(y < 0, 0.0, np.where(y < 1, expit(-phi[0]), np.where(np.isnan(y), y, 1.0)))

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the log odds."""
        return best_log_odds(np.column_stack([counts - sums[:, 0], sums[:, 0]]), priors)


@compiled(prepare, Bernoulli)
def _(family: Bernoulli, phi: Array) -> Any:
    size = math.log1p(math.exp(-abs(phi[0])))  # never overflows
    return phi[0], -max(phi[0], 0.0) - size, math.exp(min(phi[0], 0.0) - size)


@compiled(log_density, Bernoulli)
def _(family: Bernoulli, y: Any, c: Any) -> Any:
    return y * c[0] + c[1]


@compiled(score, Bernoulli)
def _(family: Bernoulli, y: Any, c: Any) -> Any:
    return (y - c[2],)


@compiled(statistics, Bernoulli)
def _(family: Bernoulli, y: Any, c: Any) -> Any:
    return (y,)


@compiled(complete_score, Bernoulli)
def _(family: Bernoulli, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    return (sums[0] - count * c[2],)


@compiled(with_predictor, Bernoulli)
def _(family: Bernoulli, y: Any, c: Any, eta: Any) -> Any:
    odds = c[0] + eta
    e = np.exp(-np.abs(odds))
    return y, (odds, -np.maximum(odds, 0.0) - np.log(1.0 + e), np.where(odds > 0.0, 1.0, e) / (1.0 + e))
