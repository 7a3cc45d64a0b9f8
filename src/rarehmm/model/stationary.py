"""Transition matrices: a check of their rows, and the stationary distribution with its derivative.

``transition[i, j]`` is the probability of moving from state i to state j: rows sum to one.  The paper uses the
transpose (columns sum to one); ``from_paper`` is the only place that knows.
"""

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.engine.kernels.stationary import start_slopes, stationary_distributions


def check_stochastic(transition: Array) -> None:
    """Raise if a matrix is not row-stochastic."""
    if transition.ndim != 2 or transition.shape[0] != transition.shape[1]:
        raise ValueError(f"transition has shape {transition.shape}; it must be (K, K), with one row per state.")
    if not np.isfinite(transition).all() or (transition < 0).any():
        i, j = np.argwhere(~np.isfinite(transition) | (transition < 0))[0]
        raise ValueError(f"transition[{i}, {j}] is {transition[i, j]}; probabilities must lie between 0 and 1.")
    sums = transition.sum(1)
    if (np.abs(sums - 1) > 1e-6).any():
        i = int(np.argmax(np.abs(sums - 1)))
        columns = " Its columns do: pass transition.T." if np.allclose(transition.sum(0), 1) else ""
        raise ValueError(
            f"row {i} of transition sums to {sums[i]:.6g}; transition[i, j] is the probability of moving from i to j, "
            f"so each row must sum to one.{columns}"
        )


def from_paper(A: Array) -> Array:
    """Transpose the paper's transition matrix, A[j, i] = P(from i to j), to this package's convention."""
    return np.ascontiguousarray(A.T)


def stationary(transition: Array) -> Array:
    r"""Stationary distribution :math:`\pi = \pi P` of a transition matrix.

    Every entry has full relative accuracy, however rare its state: states are eliminated one by one without any
    subtraction (Grassmann, Taksar and Heyman 1985).  Transient states get probability 0; if there are several closed
    classes, each gets the same probability.

    Parameters
    ----------
    transition
        Transition matrices (..., K, K), rows summing to one.

    Returns
    -------
    ndarray of shape (..., K)
        The stationary distributions.

    Examples
    --------
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
    """Sets of states that can reach each other and no other state."""
    K = len(transition)
    reach = (transition > 0) | np.eye(K, dtype=bool)
    if reach.all():
        return [np.arange(K)]
    for _ in range(K.bit_length()):
        reach = reach @ reach
    both = reach & reach.T
    closed = (reach == both).all(1)  # every reachable state leads back
    return [np.nonzero(row)[0] for row in np.unique(both[closed], axis=0)]


def _irreducible(transition: Array) -> Array:
    """Stationary distributions (..., K) of irreducible matrices (..., K, K)."""
    K = transition.shape[-1]
    matrices = np.ascontiguousarray(transition, dtype=float).reshape(-1, K, K)
    out = np.empty(matrices.shape[:2])
    stationary_distributions(matrices, np.empty((K, K)), out)
    return out.reshape(transition.shape[:-1])


def has_slope(transition: Array) -> bool:
    """Whether the logarithm of the stationary distribution of a matrix (K, K) has a derivative.

    It does if the distribution is unique and positive.
    """
    return len(closed_classes(transition)) == 1 and bool(stationary(transition).min() > 0)


def stationary_slope(transition: Array, first: Array) -> Array:
    r"""Derivative of :math:`\sum_k c_k \log \pi_k(P)` in the logits of the rows, as a matrix (K, K).

    With :math:`w_k = c_k / \pi_k`, it follows from :math:`d\pi = \pi\, dP\, Z` that entry jk is
    :math:`\pi_j P_{jk} (u_k - u_j + w_j - \sum c)`, where u solves :math:`(I - P) u = w - \sum c`, again without
    subtracting probabilities.  Zero for a chain that is not irreducible.

    By the matrix tree theorem no entry exceeds :math:`2 \sum |c|` in absolute value.  Where groups of states hardly
    communicate (probabilities of 1e-14 and less), digits cancel in the last step; entries are clipped to this bound.
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
