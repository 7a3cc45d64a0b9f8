"""One chain, for any sampler and any family, over windows gathered in lane order beforehand.  It never sees the series.

A step unpacks theta, propagates messages through the windows of this step, sums their gradients with weights, adds the
gradient of the log prior and calls the sampler's ``step``.  Everything is recomputed from theta, in O(K^3) at most.

With a mode, the sampler moves a whitened position z, theta = centre + factor z.  With frozen statistics t_n of each
window, the gradient is s(theta; total) + sum over windows of w [g_n(theta) - s(theta; t_n)], where s, the complete-data
score, is linear in the statistics: one evaluation per step, at the total minus the weighted statistics of the windows.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import complete_score, prepare
from rarehmm.engine.contracts.sampler import step
from rarehmm.engine.dispatch import inner, kernel, specialise
from rarehmm.engine.kernels.gradient import add_components, add_prior_slope, add_start, assemble
from rarehmm.engine.kernels.messages import Group, backward, constants, forward, smooth
from rarehmm.engine.kernels.stationary import eliminate
from rarehmm.engine.lanes import LANES, lane_sum, load, splat, store


# ---------------------------------------------------------------- from theta to parameters
def store_row(parts: Any, array: Array, row: int) -> None:
    """Set array[row] = parts, the inverse of ``take``."""
    for i in range(len(parts)):
        array[row, i] = parts[i]


def is_empty_tuple(parts: Any) -> bool:
    """Whether a numba type is that of the empty tuple."""
    return isinstance(parts, types.BaseTuple) and len(parts) == 0


def _store_nothing(parts: Any, array: Any, row: Any) -> None:
    return None


specialise(store_row, lambda *kinds: _store_nothing if is_empty_tuple(kinds[0]) else store_row)


@inner
def unpack(family, target, theta, point):
    """Unpack theta (d,) into natural parameters, the constants that the family prepares, and the transition matrix."""
    phi, c, P_jk = point.phi, point.c, point.transition
    row, column, logs, expanded = target.row, target.column, target.logs, target.expanded
    K, P = phi.shape
    for i in range(K * P):
        j, k = row[i], column[i]
        phi[j, k] = math.exp(theta[i]) if logs[k] else theta[i]
    for k in range(K):
        store_row(prepare(family, phi[k]), c, k)
    for j in range(K):
        for k in range(K):
            P_jk[j, k] = 0.0
    for i in range(K * P, len(theta)):
        P_jk[row[i], column[i]] = theta[i]
    for j in range(K):
        if not expanded:
            top = 0.0
            for k in range(K):
                top = max(top, P_jk[j, k])
            for k in range(K):
                P_jk[j, k] = math.exp(P_jk[j, k] - top)
        total = 0.0
        for k in range(K):
            total += P_jk[j, k]
        for k in range(K):
            P_jk[j, k] /= total


# ---------------------------------------------------------------- gradients
@inner
def zero_sums(sums):
    """Set all sums to zero."""
    K, P = sums.scores.shape[:2]
    for k in range(K):
        store(sums.first, (k,), splat(0.0))
        for i in range(P):
            store(sums.scores, (k, i), splat(0.0))
        if sums.statistics.shape[1] > 0:
            store(sums.counts, (k,), splat(0.0))
        for i in range(sums.statistics.shape[1]):
            store(sums.statistics, (k, i), splat(0.0))
        for j in range(K):
            store(sums.pairs, (k, j), splat(0.0))


class Workspace(NamedTuple):
    """Workspace of a chain.

    It holds the messages of a group of lanes, the fields of ``gradient.Assembly``, the statistics (C,) that the windows
    of a step leave to the control variate, and vectors (2, full).
    """

    p: Array
    a: Array
    scale: Array
    top: Array
    b: Array
    pb: Array
    scores: Array
    pairs: Array
    first: Array
    distribution: Array
    left: Array
    u: Array
    slopes: Array
    frozen: Array
    vectors: Array


def add_scores(scores: Any, k: int, total: Array) -> None:
    """Add the scores of state k, a tuple of length P, to ``total`` (K, P)."""
    for i in range(len(scores)):
        total[k, i] += scores[i]


def _add_nothing(scores: Any, k: Any, total: Any) -> None:
    return None


specialise(add_scores, lambda *kinds: _add_nothing if is_empty_tuple(kinds[0]) else add_scores)


@inner
def add_frozen(family, target, point, workspace):
    """Add the complete-data scores, transitions and first states of the frozen statistics (C,).

    ``workspace.frozen`` holds counts, sums, transitions and first states, in this order.
    """
    K = len(workspace.distribution)
    t, scores, first, pairs = workspace.frozen, workspace.scores, workspace.first, workspace.pairs
    Q = (len(t) - K * K - 2 * K) // K
    for k in range(K):
        own = t[K + k * Q : K + k * Q + Q]
        hat, here = constants(family, point.phi, target.hat, k), constants(family, point.phi, point.c, k)
        add_scores(complete_score(family, t[k], own, hat, here), k, scores)
        first[k] += t[K * (1 + Q) + K * K + k]
        for m in range(K):
            pairs[k, m] += t[K * (1 + Q) + k * K + m]


@inner
def add_owned(q, owner, gathered, target, point, theta, sums, workspace, gradient):
    """Add to each component of group q the gradient of the lanes that belong to it alone."""
    phi, transition, scores, pairs = point.phi, point.transition, workspace.scores, workspace.pairs
    K = len(transition)
    for i in range(gathered.owners[q, 0], gathered.owners[q, 1]):
        mine, j, k = owner == float(i), target.row[i], target.column[i]
        if i < phi.size:
            scores[j, k] = lane_sum(np.where(mine, load(sums.scores, (j, k)), 0.0))
        else:
            for m in range(K):
                pairs[j, m] = transition[j, m] * lane_sum(np.where(mine, load(sums.pairs, (j, m)), 0.0))
        add_components(i, i + 1, target, phi, transition, theta, scores, pairs, gradient)


@inner
def estimate(family, target, gathered, at, count, theta, point, sums, workspace, gradient):
    """Estimate the gradient (d,) of the log posterior at theta from the sets at, ..., at + count - 1 of windows."""
    phi, transition = point.phi, point.transition
    K, P = phi.shape
    d, C = len(theta), len(target.total)
    last = gathered.buffer + gathered.length
    n = last + gathered.buffer
    unpack(family, target, theta, point)
    eliminate(transition, workspace.left, workspace.distribution)
    for k in range(K):
        point.start[k] = workspace.distribution[k] if target.stationary else target.start[k]
    for i in range(d):
        gradient[i] = 0.0
    separate, warm, share = gathered.owner[0, 0] >= 0, len(gathered.left) > 0, 1.0 / count
    zero_sums(sums)
    for row in range(at, at + count):
        for q in range(len(gathered.owner)):
            g = Group(
                gathered.y[row, q], gathered.begin[row, q], gathered.steps[row, q], gathered.weight[row, q],
                workspace.p, workspace.a, workspace.scale, workspace.top, workspace.b, workspace.pb,
            )  # fmt: skip
            for k in range(K):
                store(g.a, (0, k), load(gathered.left, (row, q, k)) if warm else splat(workspace.distribution[k]))
                store(g.b, (0, k), load(gathered.right, (row, q, k)) if warm else splat(1.0))
            forward(family, point, g, gathered.buffer, last, n, 4)
            backward(point, g, last, n, 4)
            smooth(family, point, g, gathered.buffer, last, gathered.shortest[row, q], sums, False, False)
            if separate:
                add_owned(q, load(gathered.owner, (q,)), gathered, target, point, theta, sums, workspace, gradient)
                if gathered.fresh[row, q] and target.stationary:
                    for w in range(LANES):
                        if gathered.begin[row, q, 0, w] == gathered.buffer:
                            for k in range(K):
                                workspace.first[k] = sums.first[k, w]
                            add_start(gathered.owner[q, w], target, phi, transition, theta, workspace, gradient)
                zero_sums(sums)
    if separate:
        for i in range(d):
            gradient[i] *= share
    else:
        for k in range(K):
            workspace.first[k] = share * lane_sum(load(sums.first, (k,)))
            for i in range(P):
                workspace.scores[k, i] = share * lane_sum(load(sums.scores, (k, i)))
            for m in range(K):
                workspace.pairs[k, m] = share * transition[k, m] * lane_sum(load(sums.pairs, (k, m)))
        for i in range(C):
            total = 0.0
            for row in range(at, at + count):
                total += gathered.control[row, i]
            workspace.frozen[i] = target.total[i] - share * total
        if len(target.hat) > 0:
            add_frozen(family, target, point, workspace)
        assemble(target, phi, transition, theta, workspace, gradient)
        if len(target.hat) == 0:
            for i in range(C):
                gradient[target.free[i]] += workspace.frozen[i]
    add_prior_slope(target, phi, transition, theta, gradient)


@kernel
def estimates(family, target, gathered, theta, point, sums, workspace, out):
    """Gradient estimates (m, d), one from each set of windows, all at the same theta (d,)."""
    one = np.int64(1)  # not a literal, for the reason given in run_chain
    for at in range(len(out)):
        estimate(family, target, gathered, at, one, theta, point, sums, workspace, out[at])


@inner
def locate(target, position, theta):
    """Convert a position (d,) of the chain to the vector of all parameters."""
    centre, factor, whitened, free = target.centre, target.factor, target.whitened, target.free
    for i in range(len(position)):
        total = position[i]
        if whitened:
            total = centre[i]
            for j in range(i + 1):
                total += factor[i, j] * position[j]
        theta[free[i]] = total


@kernel
def run_chain(sampler, family, target, gathered, sets, noise, position, memory, point, sums, workspace, draws):
    """Run one step per row of draws (m, d), storing theta after each, while the ``sets`` of windows last.

    Position and memory are updated in place.  Returns the number of valid steps, and whether the chain is still valid:
    it stops where a component leaves its bounds or is NaN.
    """
    theta, gradient = workspace.vectors
    factor, bounds, growth, whitened = target.factor, target.bounds, target.growth, target.whitened
    d, free = len(position), target.free
    at = np.int64(0)  # a bare 0 is a literal at first, and numba would compile ``estimate`` a second time for it
    for i in range(len(theta)):
        theta[i] = target.vector[i]
    locate(target, position, theta)
    for t in range(len(draws)):
        count = 1
        if growth > 1.0:
            square = 0.0
            for i in range(d):
                square += position[i] * position[i]
            count = max(1, math.ceil(min(growth, square / d) - 0.5))
        if at + count > sets:
            return t, True
        estimate(family, target, gathered, at, count, theta, point, sums, workspace, gradient)
        at += count
        for i in range(d):  # i <= free[i]
            gradient[i] = gradient[free[i]]
        if whitened:  # L' g in place
            for j in range(d):
                total = 0.0
                for i in range(j, d):
                    total += factor[i, j] * gradient[i]
                gradient[j] = total
        step(sampler, position, gradient, noise[t], memory, target.power)
        locate(target, position, theta)
        for i in range(d):
            if not bounds[0, i] <= theta[free[i]] <= bounds[1, i]:
                return t, False
            draws[t, i] = theta[free[i]]
    return len(draws), True
