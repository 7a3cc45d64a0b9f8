"""Coordinates of the transition matrix: ways to write it as a vector, with priors and Jacobians."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import gammaln

from rarehmm.common.arrays import Array, IntArray
from rarehmm.model.priors import Dirichlet

FORBIDDEN = -1000.0  # log ratio of a forbidden transition: its probability is exactly 0
HUGE = 1e150  # beyond this and its inverse, squares and products overflow
SMALLEST = 1e-100  # lower limit of estimated probabilities


class Coordinates(Protocol):
    """Protocol of a map from transition matrices to vectors, with one number for each of the entries ``free``.

    ``pack`` and ``unpack`` take many points at once, (..., K, K) and (..., size); ``log_prior`` is the log density of
    the coordinates (..., size), Jacobian included.  Its gradient, and that of the log likelihood, are assembled by
    ``engine.kernels.gradient``, which supports two kinds: log ratios and (``is_expanded``) expanded means.
    """

    @property
    def is_expanded(self) -> bool:
        """Whether the coordinates are positive numbers, proportional to the entries of each row."""
        ...

    @property
    def power(self) -> float:
        """Exponent of the metric in a coordinate; 0 if it may have either sign (``samplers.expanded_mean``)."""
        ...

    @property
    def largest(self) -> float:
        """Largest absolute value of a coordinate."""
        ...

    def check(self, K: int) -> None:
        """Raise if the settings do not fit K states."""
        ...

    def size(self, K: int) -> int: ...
    def free(self, K: int) -> tuple[IntArray, IntArray]: ...
    def names(self, K: int) -> list[str]: ...
    def pack(self, transition: Array) -> Array: ...
    def unpack(self, x: Array, K: int) -> Array: ...
    def log_prior(self, x: Array, K: int, prior: Dirichlet) -> Array: ...

    def with_fixed(self, transition: Array) -> "Coordinates":
        """Coordinates that can represent fixed transitions (K, K), NaN where free."""
        ...

    def fixed(self, transition: Array) -> Array:
        """Coordinates (size,) of fixed transitions (K, K), which may be 0; the free ones are given as 1."""
        ...

    def reordered(self, order: IntArray) -> "Coordinates":
        """Coordinates after a permutation of the states: state k is the former state order[k]."""
        ...

    def redrawn(self, rng: np.random.Generator, x: Array, transition: Array, prior: Dirichlet) -> Array:
        """Coordinates x of a matrix, with whatever the matrix leaves undetermined drawn from its prior."""
        ...


class AdditiveLogRatio(NamedTuple):
    r"""Log ratios :math:`\log P_{jk} / P_{j r_j}` for :math:`k \ne r_j`, row by row: K(K-1) free numbers.

    Attributes
    ----------
    reference
        State :math:`r_j` of each row; the one with the largest entry is a good choice.  None (default): the diagonal.
    """

    reference: tuple[int, ...] | None = None

    @classmethod
    def around(cls, transition: Array) -> "AdditiveLogRatio":
        """Log ratios to the largest entry of each row of ``transition`` (K, K)."""
        return cls(tuple(int(k) for k in np.argmax(transition, axis=1)))

    @property
    def is_expanded(self) -> bool:
        return False

    @property
    def power(self) -> float:
        return 0.0

    @property
    def largest(self) -> float:
        return float(np.log(HUGE))

    def check(self, K: int) -> None:
        r: Any = self.reference
        valid = isinstance(r, tuple) and all(isinstance(k, int | np.integer) and 0 <= k < K for k in r)
        if r is not None and (not valid or len(r) != K):
            raise ValueError(f"reference is {r}; it must be a tuple of {K} states in 0..{K - 1}, one per row.")

    def references(self, K: int) -> IntArray:
        """Reference state (K,) of each row."""
        return np.arange(K) if self.reference is None else np.array(self.reference, dtype=np.int64)

    def free(self, K: int) -> tuple[IntArray, IntArray]:
        """Rows and columns of the entries that have a coordinate."""
        mask = np.ones((K, K), dtype=bool)
        mask[np.arange(K), self.references(K)] = False
        rows, columns = np.nonzero(mask)
        return rows, columns

    def size(self, K: int) -> int:
        return K * (K - 1)

    def names(self, K: int) -> list[str]:
        r = self.references(K)
        return [f"log transition[{j}, {k}] / transition[{j}, {r[j]}]" for j, k in zip(*self.free(K), strict=True)]

    def pack(self, transition: Array) -> Array:
        if (transition <= 0).any():
            *_, j, k = np.argwhere(transition <= 0)[0]
            raise ValueError(
                f"transition[{j}, {k}] is {transition.min():g} and has no log ratio; entries must be positive. "
                "Use a small probability, such as 1e-10, instead."
            )
        return self._ratios(transition)

    def _ratios(self, transition: Array) -> Array:
        """Log ratios (..., size) of matrices (..., K, K), without a check."""
        K = transition.shape[-1]
        rows, columns = self.free(K)
        return np.log(transition[..., rows, columns] / transition[..., rows, self.references(K)[rows]])

    def unpack(self, x: Array, K: int) -> Array:
        logits = np.zeros((*x.shape[:-1], K, K))
        logits[..., *self.free(K)] = x
        out = np.exp(logits - logits.max(-1, keepdims=True))
        return np.asarray(out / out.sum(-1, keepdims=True))

    def log_prior(self, x: Array, K: int, prior: Dirichlet) -> Array:
        """Dirichlet log density over the possible entries of each row, plus the log Jacobian."""
        a, transition = prior.concentration, self.unpack(x, K)
        possible = transition > 0
        count = possible.sum(-1)
        norm = gammaln(count * a) - count * gammaln(a) if a > 0 else np.zeros(count.shape)
        logs = np.log(np.where(possible, transition, 1.0)).sum(-1)
        return np.asarray((norm + a * logs).sum(-1))

    def with_fixed(self, transition: Array) -> "AdditiveLogRatio":
        r, row = self.references(len(transition)), np.arange(len(transition))
        if not (transition[row, r] == 0).any():
            return self
        if self.reference is not None:
            raise ValueError(f"reference is {self.reference}, but some of these transitions are forbidden.")
        weight = np.where(np.isnan(transition), 1.0, transition) + np.where(transition != 0, np.eye(len(r)), 0.0)
        return AdditiveLogRatio.around(weight)

    def fixed(self, transition: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.maximum(self._ratios(transition), FORBIDDEN)

    def reordered(self, order: IntArray) -> "AdditiveLogRatio":
        place = np.argsort(order)  # where each state goes
        return AdditiveLogRatio(tuple(int(k) for k in place[self.references(len(order))[order]]))

    def redrawn(self, rng: np.random.Generator, x: Array, transition: Array, prior: Dirichlet) -> Array:
        return x


class ExpandedMean(NamedTuple):
    r"""Expanded means of the paper, :math:`P_{jk} = \hat A_{jk} / \sum_l \hat A_{jl}`: K^2 positive numbers.

    Their prior is :math:`\hat A_{jk} \sim Gamma(\alpha, 1)`.  The data carry no information about row sums; ``pack``
    sets them to their prior mean for :math:`\alpha = 1`, which is K.
    """

    @property
    def is_expanded(self) -> bool:
        return True

    @property
    def power(self) -> float:
        return 1.0

    @property
    def largest(self) -> float:
        return HUGE

    def check(self, K: int) -> None:
        pass

    def size(self, K: int) -> int:
        return K * K

    def free(self, K: int) -> tuple[IntArray, IntArray]:
        rows, columns = np.indices((K, K)).reshape(2, -1)
        return rows, columns

    def names(self, K: int) -> list[str]:
        return [f"expanded[{j}, {k}]" for j in range(K) for k in range(K)]

    def pack(self, transition: Array) -> Array:
        K = transition.shape[-1]
        return np.asarray((K * transition).reshape(*transition.shape[:-2], K * K))

    def unpack(self, x: Array, K: int) -> Array:
        expanded = x.reshape(*x.shape[:-1], K, K)
        if (expanded <= 0).any():
            *_, j, k = np.argwhere(expanded <= 0)[0]
            raise ValueError(f"expanded[{j}, {k}] is {expanded.min()}; expanded means must be positive.")
        return np.asarray(expanded / expanded.sum(-1, keepdims=True))

    def log_prior(self, x: Array, K: int, prior: Dirichlet) -> Array:
        a = prior.concentration
        return np.asarray(((a - 1) * np.log(x) - x).sum(-1) - K * K * gammaln(a))

    def with_fixed(self, transition: Array) -> "ExpandedMean":
        raise ValueError("ExpandedMean does not support fixed transitions; drop coordinates, or fixed['transition'].")

    def fixed(self, transition: Array) -> Array:
        return np.zeros(transition.size)

    def reordered(self, order: IntArray) -> "ExpandedMean":
        return self

    def redrawn(self, rng: np.random.Generator, x: Array, transition: Array, prior: Dirichlet) -> Array:
        K = len(transition)
        sums = rng.gamma(K * prior.concentration, size=(K, 1))
        return np.maximum(sums * transition, SMALLEST).ravel()
