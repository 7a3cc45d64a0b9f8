r"""The transition matrix: its coordinates, their priors and Jacobians, and the stationary law.

``transition[i, j]`` is the probability of going from state i to state j: rows sum to one.  The paper writes the
transpose (columns sum to one); ``from_paper`` is the only place that knows.
"""

import math
from typing import NamedTuple, Protocol

import numpy as np

from rarehmm.priors import Dirichlet
from rarehmm.series import Array, IntArray


def check_transition(transition: Array) -> None:
    """Refuse a matrix that is not row-stochastic."""
    if transition.ndim != 2 or transition.shape[0] != transition.shape[1]:
        raise ValueError(f"transition has shape {transition.shape}; it must be (K, K), one row for each state.")
    if not np.isfinite(transition).all() or (transition < 0).any():
        i, j = np.argwhere(~np.isfinite(transition) | (transition < 0))[0]
        raise ValueError(f"transition[{i}, {j}] is {transition[i, j]}; probabilities must lie between 0 and 1.")
    sums = transition.sum(1)
    if (np.abs(sums - 1) > 1e-6).any():
        i = int(np.argmax(np.abs(sums - 1)))
        columns = " Its columns do: pass transition.T." if np.allclose(transition.sum(0), 1) else ""
        raise ValueError(
            f"row {i} of transition sums to {sums[i]:.6g}; transition[i, j] is the probability of going from i to j, "
            f"so that each row sums to one.{columns}"
        )


def from_paper(A: Array) -> Array:
    """The paper's matrix, A[j, i] = P(from i to j), as ours."""
    return np.ascontiguousarray(A.T)


# ---------------------------------------------------------------- the stationary law
def stationary(transition: Array) -> Array:
    r"""The law :math:`\pi` with :math:`\pi P = \pi`, every entry to full relative accuracy, however rare its state; of
    many matrices (..., K, K) at once.

    States are eliminated one after the other without a subtraction (Grassmann, Taksar and Heyman 1985).  States that
    are left for good have none of it; of several closed classes, each has an equal part.

    >>> stationary(np.array([[0.99, 0.01], [0.09, 0.91]]))
    array([0.9, 0.1])
    """
    if (transition > 0).all():
        return _irreducible_law(transition)
    if transition.ndim > 2:
        return np.array([stationary(P) for P in transition])
    law = np.zeros(len(transition))
    classes = closed_classes(transition)
    for members in classes:
        law[members] = _irreducible_law(transition[np.ix_(members, members)]) / len(classes)
    return law


def closed_classes(transition: Array) -> list[IntArray]:
    """Sets of states that reach each other and nothing else."""
    K = len(transition)
    reach = (transition > 0) | np.eye(K, dtype=bool)
    if reach.all():
        return [np.arange(K)]
    for _ in range(K.bit_length()):
        reach = reach @ reach
    both = reach & reach.T
    closed = (reach == both).all(1)  # everything in reach comes back
    return [np.nonzero(row)[0] for row in np.unique(both[closed], axis=0)]


def _irreducible_law(transition: Array) -> Array:
    left, _ = _eliminated(transition, np.zeros(transition.shape[:-1]))
    law = np.ones(transition.shape[:-1])
    for n in range(1, transition.shape[-1]):
        law[..., n] = (law[..., :n] * left[..., :n, n]).sum(-1)
    return np.asarray(law / law.sum(-1, keepdims=True))


def _eliminated(transition: Array, right: Array) -> tuple[Array, Array]:
    """Eliminate states from the last to the first in (I - P) u = right, with diagonals as sums of what leaves."""
    left, right = np.array(transition, dtype=float), np.array(right, dtype=float)
    for n in range(left.shape[-1] - 1, 0, -1):
        left[..., :n, n] /= left[..., n, :n].sum(-1, keepdims=True)
        right[..., :n] += left[..., :n, n] * right[..., n, None]
        left[..., :n, :n] += left[..., :n, n, None] * left[..., n, None, :n]
    return left, right


def stationary_pull(transition: Array, first: Array) -> Array:
    r"""Slope of :math:`\sum_k c_k \log \pi_k(P)` in the logits of the rows, as a matrix (K, K).

    With :math:`w_k = c_k / \pi_k`, from :math:`d\pi = \pi\, dP\, Z`: the entry jk is
    :math:`\pi_j P_{jk} (u_k - u_j + w_j - \sum c)`, where u solves :math:`(I - P) u = w - \sum c`, again without a
    subtraction of probabilities.  Zero for a chain that is not irreducible.

    By the matrix tree theorem no entry exceeds :math:`2 \sum |c|`; where groups of states hardly reach each other
    (probabilities of 1e-14 and less) digits cancel in the last step, and this bound is all that is kept.
    """
    K = len(transition)
    if len(closed_classes(transition)) != 1 or (law := stationary(transition)).min() <= 0:
        return np.zeros((K, K))
    weight = first / law
    left, right = _eliminated(transition, weight - first.sum())
    u = np.zeros(K)
    for n in range(1, K):
        u[n] = (right[n] + left[n, :n] @ u[:n]) / left[n, :n].sum()
    slope = law[:, None] * transition * (u - u[:, None] + (weight - first.sum())[:, None])
    bound = 2 * np.abs(first).sum()
    return np.asarray(np.clip(slope, -bound, bound))


# ---------------------------------------------------------------- coordinates
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
    def pull(self, x: Array, slope: Array) -> Array: ...
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

    def pull(self, x: Array, slope: Array) -> Array:
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

    def pull(self, x: Array, slope: Array) -> Array:
        return np.asarray(slope.reshape(*slope.shape[:-2], -1) / x)

    def log_prior(self, x: Array, K: int, prior: Dirichlet) -> float:
        a = prior.concentration
        return float(((a - 1) * np.log(x) - x).sum() - K * K * math.lgamma(a))

    def log_prior_slope(self, x: Array, K: int, prior: Dirichlet) -> Array:
        return (prior.concentration - 1) / x - 1
