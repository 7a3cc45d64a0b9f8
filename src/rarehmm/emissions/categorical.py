"""Categorical observations."""

import functools
import math
from typing import Any

import numpy as np
from scipy.special import softmax

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import Domain, below
from rarehmm.data.summaries import Summary
from rarehmm.emissions._sized import Sized
from rarehmm.engine.contracts.family import Parameter, Prior, complete_score, log_density, prepare, score, statistics
from rarehmm.engine.dispatch import compiled
from rarehmm.engine.lanes import tuple_of
from rarehmm.model.conjugate import best_log_odds
from rarehmm.model.priors import Normal

MANY = 64  # categories: as many or more are taken for a mistake unless asked for


class Categorical(Sized):
    r"""Categorical distribution of ``n`` categories, the numbers 0, ..., n - 1.

    The log odds of category j against category 0 are :math:`\eta_{kj}`, with :math:`\eta_{k0} = 0`.

    .. math:: p(y = j \mid \eta_k) = e^{\eta_{kj}} / \sum_i e^{\eta_{ki}}
    """

    n: int

    def __new__(cls, n: int = 3) -> "Categorical":
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 2:
            raise ValueError(
                f"n is {n!r}; the number of categories must be a whole number, at least 2, such as Categorical(4)."
            )
        made: Categorical = tuple.__new__(sized(int(n)))
        return made

    @classmethod
    def suited(cls, summaries: tuple[Summary, ...]) -> "Categorical":
        """As many categories as the largest value requires, at least two."""
        high = max(summaries[0].high, 1.0)
        if high >= MANY:
            raise ValueError(
                f"the largest value of y is {high:g}, which makes {high + 1:.0f} categories; if this is intended, pass "
                f"Categorical({high + 1:.0f}). For counts use emission='poisson'."
            )
        return cls(int(high) + 1)

    @property
    def arguments(self) -> tuple[int]:
        return (self.n,)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        prior = Normal(0.0, 2.5**2)
        return tuple(Parameter(f"log_odds_{j}", support="real", prior=prior) for j in range(1, self.n))

    @property
    def domain(self) -> Domain:
        return below(self.n)

    def probabilities(self, phi: Array) -> Array:
        """Probabilities of the categories.

        Parameters
        ----------
        phi
            Parameters of states, (..., P).

        Returns
        -------
        array
            Probabilities, (..., n).
        """
        return np.asarray(softmax(np.concatenate([np.zeros_like(phi[..., :1]), phi], axis=-1), axis=-1))

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        steps = np.cumsum(self.probabilities(phi), axis=1)[:, :-1]
        return np.asarray((rng.random(len(states))[:, None] >= steps[states]).sum(1), dtype=float)

    def estimate(self, y: Array, weight: Array) -> Array:
        """Log odds of one state from weighted counts, after adding half an observation of each category."""
        counts = np.bincount(y.astype(np.int64), weights=weight, minlength=self.n) + 0.5
        return np.asarray(np.log(counts[1:] / counts[0]))

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        steps = np.cumsum(self.probabilities(phi.T), axis=-1)
        steps = np.concatenate([np.zeros_like(steps[..., :1]), steps], axis=-1) + np.zeros((len(y), 1))  # (n, n + 1)
        at = np.where(np.isnan(y), 0.0, np.clip(np.floor(y) + 1, 0, self.n))
        return np.where(np.isnan(y), np.nan, steps[np.arange(len(y)), at.astype(np.int64)])

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the log odds."""
        return best_log_odds(np.column_stack([counts - sums.sum(1), sums]), priors)


@functools.cache
def sized(n: int) -> Any:
    """Class for n categories, with its compiled functions.

    Constants: the log probabilities of all categories, then the probabilities of all but the first.
    """

    def constant(i: Any, phi: Any) -> Any:
        high, total = 0.0, 0.0
        for j in range(n - 1):
            high = max(high, phi[j])
        for j in range(n - 1):
            total += math.exp(phi[j] - high)
        norm = high + math.log(total + math.exp(-high))
        if i == 0:
            return -norm
        return phi[i - 1] - norm if i < n else math.exp(phi[i - n] - norm)

    constants = tuple_of(2 * n - 1, constant)
    marks = tuple_of(n - 1, lambda i, y: np.where(y == 1.0 + i, 1.0, 0.0))
    slopes = tuple_of(n - 1, lambda i, count, sums, c: sums[i] - count * c[n + i])
    cls: Any = type(f"Categorical{n}", (Categorical,), {"n": n, "__module__": __name__, "__slots__": ()})

    @compiled(prepare, cls)
    def _(family: Any, phi: Any) -> Any:
        return constants(phi)

    @compiled(log_density, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        total = np.where(y == 0.0, c[0], 0.0)
        for j in range(1, n):
            total = total + np.where(y == 1.0 * j, c[j], 0.0)
        return total

    @compiled(score, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        return slopes(1.0, marks(y), c)

    @compiled(statistics, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        return marks(y)

    @compiled(complete_score, cls)
    def _(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
        return slopes(count, sums, c)

    return cls
