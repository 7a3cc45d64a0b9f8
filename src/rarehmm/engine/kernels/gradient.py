"""Assembly of the gradient of the log posterior from expectations, the only place where this is done.

By Fisher's identity the gradient of the log likelihood is linear in the expected scores of the family, the expected
transitions and the expected first states.  Whatever computed these (a pass over all data, the windows of a chain, many
points at once), they become a gradient in theta here; the gradient of the log prior is here, too.

A point is given by its natural parameters ``phi`` (K, P), its ``transition`` (K, K) and the vector ``theta`` of all
parameters; ``target`` is a ``model.target.Target``.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.dispatch import inner, kernel
from rarehmm.engine.kernels.stationary import eliminate, start_slope


class Assembly(NamedTuple):
    """Expectations at one point, and workspace for the derivative of the start distribution.

    ``scores`` (K, P), ``pairs`` (K, K) and ``first`` (K,) are the expected scores, transitions and first states;
    ``distribution`` (K,) is the stationary distribution, ``left`` (K, K) the elimination that led to it, ``u`` (2, K)
    and ``slopes`` (K, K) are workspace.
    """

    scores: Array
    pairs: Array
    first: Array
    distribution: Array
    left: Array
    u: Array
    slopes: Array


def assembly(K: int, P: int) -> Assembly:
    """Allocate an ``Assembly`` for K states with P parameters."""
    squares = np.zeros((3, K, K))
    return Assembly(np.zeros((K, P)), squares[0], np.zeros(K), np.zeros(K), squares[1], np.zeros((2, K)), squares[2])


@inner
def add_components(low, high, target, phi, transition, theta, scores, pairs, gradient):
    """Add the components [low, high) of the gradient of the log likelihood, without the first states.

    The loop is in here, since numba counts the references to all arrays of ``target`` in every call.
    """
    K, P = phi.shape
    row, column, logs, expanded = target.row, target.column, target.logs, target.expanded
    for i in range(low, high):
        j, k = row[i], column[i]
        if i < K * P:
            gradient[i] += scores[j, k] * phi[j, k] if logs[k] else scores[j, k]
        else:
            total = 0.0
            for m in range(K):
                total += pairs[j, m]
            value = pairs[j, k] - transition[j, k] * total
            gradient[i] += value / theta[i] if expanded else value


@inner
def add_start(owner, target, phi, transition, theta, a, gradient):
    """Add the gradient of a stationary start, with expected first states ``a.first``.

    It is added to the transition ``owner``, or to all of them if that is -1; ``a.left`` and ``a.distribution`` are
    those of ``eliminate``.
    """
    start_slope(transition, a.left, a.distribution, a.first, a.u, a.slopes)
    slopes, row, column, expanded = a.slopes, target.row, target.column, target.expanded
    for i in range(phi.size, len(theta)):
        if owner == i or owner == -1:
            gradient[i] += slopes[row[i], column[i]] / theta[i] if expanded else slopes[row[i], column[i]]


@inner
def assemble(target, phi, transition, theta, a, gradient):
    """Gradient of the log likelihood from the expectations ``a``, after ``eliminate``."""
    for i in range(len(theta)):
        gradient[i] = 0.0
    add_components(0, len(theta), target, phi, transition, theta, a.scores, a.pairs, gradient)
    if target.stationary:
        add_start(-1, target, phi, transition, theta, a, gradient)


@inner
def add_prior_slope(target, phi, transition, theta, gradient):
    """Add the gradient of the log prior, Jacobians included."""
    K, P = phi.shape
    row, column, c, allowed = target.row, target.column, target.prior, target.allowed
    for i in range(len(theta)):
        j, k = row[i], column[i]
        if i < K * P:
            x = phi[j, k]
            s = c[k, 2] + x * (c[k, 3] + x * c[k, 4])
            gradient[i] += s + (c[k, 1] + c[k, 0] / x) / x if c[k, 0] != 0.0 or c[k, 1] != 0.0 else s
        elif target.expanded:
            gradient[i] += (target.concentration - 1.0) / theta[i] - 1.0
        else:
            gradient[i] += target.concentration * (1.0 - allowed[j] * transition[j, k])


@kernel
def gradients_from_expectations(target, phi, transition, theta, scores, pairs, first, a, out):
    """Gradients (n, full) of the log likelihood at one point from n sets of expectations.

    ``scores`` (n, K, P), ``pairs`` (n, K, K) and ``first`` (n, K); ``a`` is an ``Assembly`` to work in.
    """
    K, P = phi.shape
    eliminate(transition, a.left, a.distribution)
    for n in range(len(out)):
        for k in range(K):
            a.first[k] = first[n, k]
            for i in range(P):
                a.scores[k, i] = scores[n, k, i]
            for m in range(K):
                a.pairs[k, m] = pairs[n, k, m]
        assemble(target, phi, transition, theta, a, out[n])


@kernel
def prior_gradient(target, phi, transition, theta, out):
    """Gradient (full,) of the log prior."""
    for i in range(len(theta)):
        out[i] = 0.0
    add_prior_slope(target, phi, transition, theta, out)
