r"""Coordinates of the transition matrix: ways to write it as a vector, their priors and Jacobians."""

import math
from typing import NamedTuple, Protocol

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.model.priors import Dirichlet


class Coordinates(Protocol):
    """A way of writing a transition matrix as a vector, one number for each of the entries ``free`` (rows, columns).

    ``pull`` takes the slope of a function in the logits of the rows, (..., K, K) with rows that sum to zero, to the
    slope in the coordinates; ``pack`` and ``unpack`` take many points at once, (..., K, K) and (..., size);
    ``log_prior`` is the density of the coordinates, Jacobian included, and ``log_prior_slope`` its gradient.
    """

    def size(self, K: int) -> int: ...
    def free(self, K: int) -> tuple[IntArray, IntArray]: ...
    def names(self, K: int) -> list[str]: ...
    def pack(self, transition: Array) -> Array: ...
    def unpack(self, x: Array, K: int) -> Array: ...
    def gradient_from_logits(self, x: Array, slope: Array) -> Array: ...
    def log_prior(self, x: Array, K: int, prior: Dirichlet) -> float: ...
    def log_prior_slope(self, x: Array, K: int, prior: Dirichlet) -> Array: ...


class AdditiveLogRatio(NamedTuple):
    r""":math:`\log P_{jk} / P_{j r_j}` for :math:`k \ne r_j`, row by row: K(K-1) free numbers.

    ``reference`` names :math:`r_j` for each row (the largest entry is a good choice); None: the diagonal.
    """

    reference: tuple[int, ...] | None = None

    def free(self, K: int) -> tuple[IntArray, IntArray]:
        """Rows and columns of the entries that have a coordinate."""
        mask = np.ones((K, K), dtype=bool)
        mask[np.arange(K), self.references(K)] = False
        rows, columns = np.nonzero(mask)
        return rows, columns

    def references(self, K: int) -> IntArray:
        return np.arange(K) if self.reference is None else np.array(self.reference, dtype=np.int64)

    def size(self, K: int) -> int:
        return K * (K - 1)

    def names(self, K: int) -> list[str]:
        r = self.references(K)
        return [f"log transition[{j}, {k}] / transition[{j}, {r[j]}]" for j, k in zip(*self.free(K), strict=True)]

    def pack(self, transition: Array) -> Array:
        K = transition.shape[-1]
        if (transition <= 0).any():
            *_, j, k = np.argwhere(transition <= 0)[0]
            raise ValueError(
                f"transition[{j}, {k}] is {transition.min():g} and has no log ratio; entries must be positive here. "
                "Start from a small probability, such as 1e-10, instead."
            )
        rows, columns = self.free(K)
        return np.log(transition[..., rows, columns] / transition[..., rows, self.references(K)[rows]])

    def unpack(self, x: Array, K: int) -> Array:
        logits = np.zeros((*x.shape[:-1], K, K))
        logits[..., *self.free(K)] = x
        out = np.exp(logits - logits.max(-1, keepdims=True))
        return np.asarray(out / out.sum(-1, keepdims=True))

    def gradient_from_logits(self, x: Array, slope: Array) -> Array:
        rows, columns = self.free(slope.shape[-1])
        return slope[..., rows, columns]

    def log_prior(self, x: Array, K: int, prior: Dirichlet) -> float:
        transition = self.unpack(x, K)
        return float(sum(prior.log_density(row[row > 0]) + np.log(row[row > 0]).sum() for row in transition))

    def log_prior_slope(self, x: Array, K: int, prior: Dirichlet) -> Array:
        a, transition = prior.concentration, self.unpack(x, K)
        return np.asarray((a - (transition > 0).sum(1, keepdims=True) * a * transition)[self.free(K)])


class ExpandedMean(NamedTuple):
    r"""The paper's :math:`\hat A`: positive :math:`\hat A_{jk} \sim Gamma(\alpha, 1)`, :math:`P_{jk} = \hat A_{jk} /
    \sum_l \hat A_{jl}`: K^2 numbers.  Row sums are free of the data; ``pack`` gives them the value of their mean,
    K alpha, for alpha = 1.
    """

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

    def gradient_from_logits(self, x: Array, slope: Array) -> Array:
        return np.asarray(slope.reshape(*slope.shape[:-2], -1) / x)

    def log_prior(self, x: Array, K: int, prior: Dirichlet) -> float:
        a = prior.concentration
        return float(((a - 1) * np.log(x) - x).sum() - K * K * math.lgamma(a))

    def log_prior_slope(self, x: Array, K: int, prior: Dirichlet) -> Array:
        return (prior.concentration - 1) / x - 1
