"""One chain: any sampler, any family, over windows gathered beforehand in lane order.  It never sees the series.

A step unpacks theta, carries messages through the windows of this step, sums their gradients with weights, adds the
slope of the log prior and calls the sampler's ``step``.  Everything is worked out from theta anew, in O(K^3) at most.

With a mode, the sampler moves a whitened position z, theta = centre + factor z; with frozen statistics t_n of each
window, the gradient is s(theta; total) + sum over windows of w [g_n(theta) - s(theta; t_n)], where s, the complete-data
score, is linear in the statistics: one evaluation a step, of the total less the weighted statistics of the windows.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.contracts.family import complete_score, prepare
from rarehmm.engine.contracts.sampler import step
from rarehmm.engine.dispatch import inner, kernel, specialise
from rarehmm.engine.kernels.messages import Group, backward, constants, forward, smooth
from rarehmm.engine.lanes import LANES, lane_sum, load, splat, store


class Target(NamedTuple):
    """What is sampled, as kernels see it.

    ``logs`` (P,): which parameters are logarithms; ``prior`` (P, 5): slope of their log prior in theta, coefficients of
    x^-2, ..., x^2; ``concentration`` of the Dirichlet prior, over the ``allowed`` (K,) entries of each row;
    ``expanded``: whether transitions are expanded means; ``row``, ``column``: state and parameter, or entry of the
    transition matrix, of each component of the ``vector`` of all parameters, which holds what is known; ``stationary``:
    whether sequences start from the stationary law, else from ``start`` (K,); ``free`` (d,): places of the components
    that are sampled; ``bounds`` (2, d) and ``power`` (d,) of these.

    ``centre`` (d,) and ``factor`` (d, d) of the whitened position, if ``whitened``; then a step uses up to ``growth``
    times as many windows, in proportion to the square of the distance from the centre.  ``total`` (C,) and ``hat``
    (K, .): frozen statistics of all windows and the constants they were taken at; none if C is 0.
    """

    logs: BoolArray
    prior: Array
    concentration: float
    allowed: IntArray
    expanded: bool
    row: IntArray
    column: IntArray
    stationary: bool
    start: Array
    free: IntArray
    vector: Array
    bounds: Array
    power: Array
    whitened: bool
    centre: Array
    factor: Array
    growth: float
    total: Array
    hat: Array


# ---------------------------------------------------------------- from theta to parameters
def keep(parts: Any, array: Array, row: int) -> None:
    """array[row] = parts, the other way of ``take``."""
    for i in range(len(parts)):
        array[row, i] = parts[i]


def empty(parts: Any) -> bool:
    """Whether a numba type is that of the tuple ()."""
    return isinstance(parts, types.BaseTuple) and len(parts) == 0


def _keep_nothing(parts: Any, array: Any, row: Any) -> None:
    return None


specialise(keep, lambda *kinds: _keep_nothing if empty(kinds[0]) else keep)


@inner
def unpack(family, target, theta, point):
    """theta (d,) to natural parameters, what the family prepares from them, and the transition matrix."""
    phi, c, P_jk = point.phi, point.c, point.transition
    row, column, logs, expanded = target.row, target.column, target.logs, target.expanded
    K, P = phi.shape
    for i in range(K * P):
        j, k = row[i], column[i]
        phi[j, k] = math.exp(theta[i]) if logs[k] else theta[i]
    for k in range(K):
        keep(prepare(family, phi[k]), c, k)
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


@inner
def eliminate(transition, left, distribution):
    """The stationary law (K,) of a positive matrix; ``left`` (K, K) keeps the elimination (see ``transitions``)."""
    K = len(distribution)
    for j in range(K):
        for k in range(K):
            left[j, k] = transition[j, k]
    for n in range(K - 1, 0, -1):
        leaving = 0.0
        for k in range(n):
            leaving += left[n, k]
        for j in range(n):
            left[j, n] /= leaving
            for k in range(n):
                left[j, k] += left[j, n] * left[n, k]
    total = 0.0
    for n in range(K):
        distribution[n] = 1.0 if n == 0 else 0.0
        for j in range(n):
            distribution[n] += distribution[j] * left[j, n]
        total += distribution[n]
    for n in range(K):
        distribution[n] /= total


@inner
def start_slope(transition, left, distribution, first, w, u, out):
    """Slope (K, K) in the logits of sum_k first[k, w] log law[k] (see ``stationary_pull``); u (2, K) is room."""
    K = len(distribution)
    total, bound = 0.0, 0.0
    for k in range(K):
        total += first[k, w]
        bound += 2.0 * abs(first[k, w])
    for k in range(K):
        u[1, k] = first[k, w] / distribution[k] - total  # the right side, kept for the last line
        u[0, k] = u[1, k]
    for n in range(K - 1, 0, -1):
        for j in range(n):
            u[0, j] += left[j, n] * u[0, n]
    for n in range(K):
        leaving = 0.0
        for k in range(n):
            leaving += left[n, k]
            u[0, n] += left[n, k] * u[0, k] if k > 0 else 0.0
        u[0, n] = u[0, n] / leaving if n > 0 else 0.0
    for j in range(K):
        for k in range(K):
            value = distribution[j] * transition[j, k] * (u[0, k] - u[0, j] + u[1, j])
            out[j, k] = max(-bound, min(bound, value))


# ---------------------------------------------------------------- gradients
@inner
def slope(i, target, point, theta, sums):
    """Component i of the gradient in each lane, from its expected scores and transitions."""
    K, P = point.phi.shape
    j, k = target.row[i], target.column[i]
    if i < K * P:
        value = load(sums.scores, (j, k)) * (point.phi[j, k] if target.logs[k] else 1.0)
    else:
        total = splat(0.0)
        for m in range(K):
            total = total + load(sums.pairs, (j, m)) * point.transition[j, m]
        factor = point.transition[j, k] / (theta[i] if target.expanded else 1.0)
        value = (load(sums.pairs, (j, k)) - total) * factor
    return value


@inner
def prior_slope(i, target, point, theta):
    """Component i of the gradient of the log prior, Jacobians included."""
    K, P = point.phi.shape
    j, k = target.row[i], target.column[i]
    if i < K * P:
        x, c = point.phi[j, k], target.prior  # not its row: counting references would take longer
        s = c[k, 2] + x * (c[k, 3] + x * c[k, 4])
        return s + (c[k, 1] + c[k, 0] / x) / x if c[k, 0] != 0.0 or c[k, 1] != 0.0 else s
    if target.expanded:
        return (target.concentration - 1.0) / theta[i] - 1.0
    return target.concentration * (1.0 - target.allowed[j] * point.transition[j, k])


@inner
def clear(sums):
    """All sums to zero."""
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


@inner
def add_start(owner, w, target, point, theta, sums, room, gradient):
    """Add the gradient of the initial state of lane w, where its sequence begins, to the transition that owns it, or
    to all."""
    start_terms, row, column, expanded = room.start_terms, target.row, target.column, target.expanded
    start_slope(point.transition, room.left, room.distribution, sums.first, w, room.u, start_terms)
    for i in range(point.phi.size, len(theta)):
        if owner == i or owner == -1:
            gradient[i] += start_terms[row[i], column[i]] / theta[i] if expanded else start_terms[row[i], column[i]]


class Room(NamedTuple):
    """What a chain works in: messages of a group, and arrays (K,), (K, K), (2, K), (K, K), (K, K), (C,), (2, d)."""

    p: Array
    a: Array
    scale: Array
    top: Array
    b: Array
    pb: Array
    distribution: Array
    left: Array
    u: Array
    start_terms: Array
    pairs: Array
    frozen: Array
    vectors: Array


def add_scores(scores: Any, k: int, K: int, phi: Array, logs: BoolArray, gradient: Array) -> None:
    """Add the scores of state k, a tuple of P, to the gradient."""
    for i in range(len(scores)):
        gradient[i * K + k] += scores[i] * (phi[k, i] if logs[i] else 1.0)


def _add_nothing(scores: Any, k: Any, K: Any, phi: Any, logs: Any, gradient: Any) -> None:
    return None


specialise(add_scores, lambda *kinds: _add_nothing if empty(kinds[0]) else add_scores)


@inner
def add_transitions(target, point, theta, sums, room, gradient):
    """Add the gradient of the expected transitions room.pairs (K, K) and first states sums.first[:, 0]."""
    pairs, transition, row, column, expanded = room.pairs, point.transition, target.row, target.column, target.expanded
    for i in range(point.phi.size, len(theta)):
        j, k = row[i], column[i]
        total = 0.0
        for m in range(len(pairs)):
            total += pairs[j, m]
        value = pairs[j, k] - transition[j, k] * total
        gradient[i] += value / theta[i] if expanded else value
    if target.stationary:
        add_start(-1, 0, target, point, theta, sums, room, gradient)


@inner
def add_frozen(family, target, point, sums, room, gradient):
    """Add the complete-data scores of the statistics room.frozen (C,) = counts, sums, transitions, first states; the
    last two are added to those of the windows."""
    K = len(room.distribution)
    t, first, pairs = room.frozen, sums.first, room.pairs
    Q = (len(t) - K * K - 2 * K) // K
    for k in range(K):
        own = t[K + k * Q : K + k * Q + Q]
        hat, here = constants(family, point, target.hat, k), constants(family, point, point.c, k)
        add_scores(complete_score(family, t[k], own, hat, here), k, K, point.phi, target.logs, gradient)
        first[k, 0] += t[K * (1 + Q) + K * K + k]
        for m in range(K):
            pairs[k, m] += t[K * (1 + Q) + k * K + m]


@inner
def estimate(family, target, gathered, at, count, theta, point, sums, room, gradient):
    """The gradient (d,) of the log posterior at theta, estimated from the sets at, ..., at + count - 1 of windows."""
    K, P = point.phi.shape
    d, C = len(theta), len(target.total)
    last = gathered.buffer + gathered.length
    n = last + gathered.buffer
    unpack(family, target, theta, point)
    eliminate(point.transition, room.left, room.distribution)
    for k in range(K):
        point.start[k] = room.distribution[k] if target.stationary else target.start[k]
    for i in range(d):
        gradient[i] = 0.0
    separate, warm, share = gathered.owner[0, 0] >= 0, len(gathered.left) > 0, 1.0 / count
    clear(sums)
    for row in range(at, at + count):
        for q in range(len(gathered.owner)):
            g = Group(
                gathered.y[row, q], gathered.begin[row, q], gathered.steps[row, q], gathered.weight[row, q],
                room.p, room.a, room.scale, room.top, room.b, room.pb,
            )  # fmt: skip
            for k in range(K):
                store(g.a, (0, k), load(gathered.left, (row, q, k)) if warm else splat(room.distribution[k]))
                store(g.b, (0, k), load(gathered.right, (row, q, k)) if warm else splat(1.0))
            forward(family, point, g, gathered.buffer, last, n, 4)
            backward(point, g, last, n, 4)
            smooth(family, point, g, gathered.buffer, last, gathered.shortest[row, q], sums, False, False)
            if separate:
                owner = load(gathered.owner, (q,))
                for i in range(gathered.owners[q, 0], gathered.owners[q, 1]):
                    gradient[i] += lane_sum(np.where(owner == float(i), slope(i, target, point, theta, sums), 0.0))
                if gathered.fresh[row, q] and target.stationary:
                    for w in range(LANES):
                        if gathered.begin[row, q, 0, w] == gathered.buffer:
                            add_start(gathered.owner[q, w], w, target, point, theta, sums, room, gradient)
                clear(sums)
    if separate:
        for i in range(d):
            gradient[i] *= share
    else:
        for k in range(K):
            sums.first[k, 0] = share * lane_sum(load(sums.first, (k,)))
            for i in range(P):
                factor = share * (point.phi[k, i] if target.logs[i] else 1.0)
                gradient[i * K + k] = factor * lane_sum(load(sums.scores, (k, i)))
            for m in range(K):
                room.pairs[k, m] = share * point.transition[k, m] * lane_sum(load(sums.pairs, (k, m)))
        for i in range(C):
            total = 0.0
            for row in range(at, at + count):
                total += gathered.control[row, i]
            room.frozen[i] = target.total[i] - share * total
        if C > 0 and len(target.hat) > 0:
            add_frozen(family, target, point, sums, room, gradient)
        elif C > 0:
            for i in range(C):
                gradient[target.free[i]] += room.frozen[i]
        add_transitions(target, point, theta, sums, room, gradient)
    for i in range(d):
        gradient[i] += prior_slope(i, target, point, theta)


@kernel
def estimates(family, target, gathered, theta, point, sums, room, out):
    """Gradient estimates (m, d), one from each set of windows, all at the same theta (d,)."""
    one = np.int64(1)  # as below, no literal
    for at in range(len(out)):
        estimate(family, target, gathered, at, one, theta, point, sums, room, out[at])


@inner
def locate(target, position, theta):
    """The vector of all parameters at a position (d,)."""
    centre, factor, whitened, free = target.centre, target.factor, target.whitened, target.free
    for i in range(len(position)):
        total = position[i]
        if whitened:
            total = centre[i]
            for j in range(i + 1):
                total += factor[i, j] * position[j]
        theta[free[i]] = total


@kernel
def run_chain(sampler, family, target, gathered, sets, noise, position, memory, point, sums, room, draws):
    """A step for each row of draws (m, d), which gets theta after it, as long as the ``sets`` of windows last.

    Position and memory are left where the chain stands.  Returns how many steps were good, and whether the chain is
    well: it stops where a component leaves its bounds, or is NaN.
    """
    theta, gradient = room.vectors
    factor, bounds, growth, whitened = target.factor, target.bounds, target.growth, target.whitened
    d, free = len(position), target.free
    at = np.int64(0)  # a bare 0 is a literal at first, for which numba would compile ``estimate`` once more
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
        estimate(family, target, gathered, at, count, theta, point, sums, room, gradient)
        at += count
        for i in range(d):  # i <= free[i]
            gradient[i] = gradient[free[i]]
        if whitened:  # L' g, in place
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
