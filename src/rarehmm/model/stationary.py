r"""Transition matrices: a check of their rows, and the stationary distribution with its slope.

``transition[i, j]`` is the probability of going from state i to state j: rows sum to one.  The paper writes the
transpose (columns sum to one); ``from_paper`` is the only place that knows.
"""

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.engine.kernels.stationary import start_slopes, stationary_distributions


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


def stationary(transition: Array) -> Array:
    r"""The law :math:`\pi` with :math:`\pi P = \pi`, every entry to full relative accuracy, however rare its state; of
    many matrices (..., K, K) at once.

    States are eliminated one after the other without a subtraction (Grassmann, Taksar and Heyman 1985).  States that
    are left for good have none of it; of several closed classes, each has an equal part.

    >>> stationary(np.array([[0.99, 0.01], [0.09, 0.91]]))
    array([0.9, 0.1])
    """
    if (transition > 0).all():
        return _irreducible(transition)
    if transition.ndim > 2:
        return np.array([stationary(P) for P in transition])
    distribution = np.zeros(len(transition))
    classes = closed_classes(transition)
    for members in classes:
        distribution[members] = _irreducible(transition[np.ix_(members, members)]) / len(classes)
    return distribution


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


def _irreducible(transition: Array) -> Array:
    K = transition.shape[-1]
    matrices = np.ascontiguousarray(transition, dtype=float).reshape(-1, K, K)
    out = np.empty(matrices.shape[:2])
    stationary_distributions(matrices, np.empty((K, K)), out)
    return out.reshape(transition.shape[:-1])


def has_slope(transition: Array) -> bool:
    """Whether the stationary distribution of a matrix (K, K) is unique and positive, so that its logarithm has a
    slope."""
    return len(closed_classes(transition)) == 1 and bool(stationary(transition).min() > 0)


def stationary_slope(transition: Array, first: Array) -> Array:
    r"""Slope of :math:`\sum_k c_k \log \pi_k(P)` in the logits of the rows, as a matrix (K, K).

    With :math:`w_k = c_k / \pi_k`, from :math:`d\pi = \pi\, dP\, Z`: the entry jk is
    :math:`\pi_j P_{jk} (u_k - u_j + w_j - \sum c)`, where u solves :math:`(I - P) u = w - \sum c`, again without a
    subtraction of probabilities.  Zero for a chain that is not irreducible.

    By the matrix tree theorem no entry exceeds :math:`2 \sum |c|`; where groups of states hardly reach each other
    (probabilities of 1e-14 and less) digits cancel in the last step, and this bound is all that is kept.
    """
    K = len(transition)
    if not has_slope(transition):
        return np.zeros((K, K))
    out = np.empty((K, K))
    start_slopes(
        np.ascontiguousarray(transition), np.asarray(first, dtype=float), np.empty((K, K)), np.empty(K),
        np.empty((2, K)), out,
    )  # fmt: skip
    return out
