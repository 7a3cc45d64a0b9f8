"""Kernels that must proceed step by step: repairing the seams of a pass, Viterbi, drawing paths.

Densities are computed beforehand, 16 steps at a time; what remains is K^2 operations per step on plain floats.
"""

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import log_density
from rarehmm.engine.dispatch import inner, kernel
from rarehmm.engine.elementary import LOWEST, relative
from rarehmm.engine.kernels.messages import constants, observation, seen
from rarehmm.engine.lanes import LANES, lane_array, store

VANISHED = 1e-290  # masses below this count as underflowed


@kernel
def log_densities(family, point, y, buffer, column, out):
    """Log density out (n, K) of each row of y (n, D) in each state; 0 for all states where it is missing.

    ``buffer`` (1, D, LANES) and ``column`` (1, LANES) are scratch.
    """
    n, K = out.shape
    for first in range(0, n, LANES):
        size = min(LANES, n - first)
        for w in range(LANES):
            for d in range(y.shape[1]):
                buffer[0, d, w] = y[first + w, d] if w < size else np.nan
        x = observation(family, buffer, 0)
        ok = seen(family, x)
        for k in range(K):
            store(column, (0,), np.where(ok, log_density(family, x, constants(family, point.phi, point.c, k)), 0.0))
            for w in range(size):
                out[first + w, k] = column[0, w]


def scratch(D: int) -> tuple[Array, Array]:
    """Allocate the arguments ``buffer`` and ``column`` of ``log_densities``."""
    return lane_array(1, D), lane_array(1)


@inner
def messages_differ(u, v, tolerance):
    """Whether two messages differ in direction, by the relative difference of their entries."""
    K = len(u)
    total_u, total_v = 0.0, 0.0
    for k in range(K):
        total_u += u[k]
        total_v += v[k]
    for k in range(K):
        x, z = u[k] / total_u, v[k] / total_v
        if abs(x - z) > tolerance * max(x, z):
            return True
    return False


@inner
def predict(transition, a, out):
    """One-step prediction, out = a P."""
    K = len(a)
    for k in range(K):
        s = 0.0
        for j in range(K):
            s += a[j] * transition[j, k]
        out[k] = s


@inner
def filter_block(logp, point, fresh, first, length, a, b, reach):
    """Filter one block in place from the message ``a`` (K,); reach[t, k] is whether k had mass before step t."""
    for t in range(length):
        for k in range(len(a)):
            reach[t, k] = a[k] > 0.0 or (fresh and t == 0)
        predict(point.transition, a, b)
        if fresh and t == 0:
            for k in range(len(a)):
                b[k] = point.start[k]
        update(logp, first + t, b, a)


@kernel
def repair_forward(logp, point, fresh, row, length, low, tolerance, end, wrong):
    """Filter the blocks marked in ``wrong`` from the end of the one before, and go on while that changes their end.

    The blocks low, low + 1, ... have their densities in ``logp`` (rows, K), starting at ``row``.
    """
    K = len(point.start)
    a, b, old = np.empty(K), np.empty(K), np.empty(K)
    reach = np.empty((np.max(length), K), dtype=np.bool_)
    for i in range(len(row)):
        here = low + i
        if not wrong[here]:
            continue
        for k in range(K):
            a[k] = end[here - 1, k] if here > 0 else 1.0
        filter_block(logp, point, fresh[here], row[i], length[i], a, b, reach)
        for k in range(K):
            a[k], end[here, k] = end[here, k], a[k]
        predict(point.transition, a, old)
        predict(point.transition, end[here], b)
        if messages_differ(old, b, tolerance) and here + 1 < len(wrong) and not fresh[here + 1]:
            wrong[here + 1] = True


@kernel
def repair_backward(logp, point, fresh, row, length, low, tolerance, left, begin, wrong):
    """Recompute begin[i] of the blocks marked in ``wrong`` from begin[i + 1], given the repaired filter ``left``."""
    K = len(point.start)
    a, b, pb = np.empty(K), np.empty(K), np.empty(K)
    reach = np.empty((np.max(length), K), dtype=np.bool_)
    for i in range(len(row) - 1, -1, -1):
        here = low + i
        if not wrong[here]:
            continue
        for k in range(K):
            a[k] = left[here, k]
        filter_block(logp, point, fresh[here], row[i], length[i], a, b, reach)
        final = here + 1 == len(wrong) or fresh[here + 1]
        for k in range(K):
            b[k] = 1.0 if final else begin[here + 1, k]
        for t in range(length[i] - 1, -1, -1):
            step_back(logp, row[i] + t, point.transition, reach, t, b, pb)
        if messages_differ(begin[here], b, tolerance) and here > 0 and not fresh[here]:
            wrong[here - 1] = True
        for k in range(K):
            begin[here, k] = b[k]


@inner
def step_back(logp, row, transition, reach, t, b, pb):
    """Propagate the message b (K,) one step back, normalised, zero for states without mass before the step."""
    K = len(b)
    top = -np.inf
    for k in range(K):
        if b[k] > 0.0:
            top = max(top, logp[row, k])
    for k in range(K):
        pb[k] = relative(logp[row, k] - top) * b[k]
    total = 0.0
    for j in range(K):
        b[j] = 0.0
        for k in range(K):
            b[j] += transition[j, k] * pb[k] if reach[t, j] else 0.0
        total += b[j]
    for k in range(K):
        b[k] /= total


@inner
def update(logp, t, prediction, a):
    """Update the filter: a = prediction times density, normalised.

    Densities are relative to the largest among reachable states, which is returned.
    """
    K = len(a)
    top = -np.inf
    for k in range(K):
        if prediction[k] > 0.0 and logp[t, k] > top:
            top = logp[t, k]
    total = 0.0
    for k in range(K):
        a[k] = prediction[k] * relative(logp[t, k] - top)
        total += a[k]
    for k in range(K):
        a[k] /= total
    return top


# ---------------------------------------------------------------- forbidden transitions: underflow and log space
@kernel
def underflow_matters(logp, point, fresh, a, marked):
    """Whether the filter over these rows depends on masses that were cut off at e^-300 or have underflowed.

    Such masses are ``marked``.  They are harmless if they are negligible now and contribute nothing to the next
    prediction, as is always the case when every transition is possible.  ``a`` and ``marked`` (K,) carry over from one
    range of rows to the next.
    """
    transition = point.transition
    K = len(a)
    b, owed = np.empty(K), np.empty(K)
    for t in range(len(logp)):
        predict(transition, a, b)
        for k in range(K):
            owed[k] = 0.0
            for j in range(K):
                if marked[j] and not fresh[t]:
                    owed[k] += max(a[j], VANISHED) * transition[j, k]
            if fresh[t]:
                b[k] = point.start[k]
            if owed[k] > 1e-12 * b[k]:
                return True
        top = update(logp, t, b, a)
        for k in range(K):
            marked[k] = b[k] > 0.0 and (logp[t, k] - top < LOWEST or a[k] < VANISHED)
            if marked[k] and a[k] > 1e-12:
                return True
    return False


@inner
def log_sum(x):
    """log sum exp of a vector."""
    top = np.max(x)
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(len(x)):
        total += np.exp(x[k] - top)
    return top + np.log(total)


@kernel
def log_forward(logp, log_transition, log_start, fresh, before, filtered, predictive):
    """Filter in log space, with nothing cut off: filtered (n, K), predictive (n,); ``before`` (K,) carries over.

    The largest entry of each row of ``logp`` is 0, to limit rounding errors.
    """
    n, K = logp.shape
    part = np.empty(K)
    for t in range(n):
        for k in range(K):
            if fresh[t]:
                filtered[t, k] = log_start[k] + logp[t, k]
            else:
                for j in range(K):
                    part[j] = before[j] + log_transition[j, k]
                filtered[t, k] = log_sum(part) + logp[t, k]
        predictive[t] = log_sum(filtered[t])
        for k in range(K):
            filtered[t, k] -= predictive[t]
            before[k] = filtered[t, k]


@kernel
def log_backward(logp, log_transition, fresh, filtered, predictive, before, message, pairs):
    """Smooth in log space: ``filtered`` becomes the smoothed probabilities, and ``pairs`` (K, K) is added to.

    ``before`` (K,): the log filter just before these rows; ``message`` (K,) carries over from the rows after them.
    """
    n, K = logp.shape
    weight, part = np.empty(K), np.empty(K)
    for t in range(n - 1, -1, -1):
        for k in range(K):
            weight[k] = logp[t, k] + message[k] - predictive[t]
            filtered[t, k] = np.exp(filtered[t, k] + message[k])
        for j in range(K):
            source = filtered[t - 1, j] if t > 0 else before[j]
            for k in range(K):
                part[k] = log_transition[j, k] + weight[k]
                if not fresh[t]:
                    pairs[j, k] += np.exp(source + part[k])
            message[j] = 0.0 if fresh[t] else log_sum(part)


# ---------------------------------------------------------------- Viterbi
@kernel
def viterbi(logp, log_transition, log_start, fresh, best, back):
    """Forward half of Viterbi over a range of rows.

    ``best`` (K,) carries the log probability of the best path to each state from one range to the next.

    ``fresh`` (n,) marks the rows where a sequence begins; there ``back`` holds the best last state of the sequence
    before.  Elsewhere back[t, k] (n, K) is the state before k on the best path to it.
    """
    n, K = logp.shape
    new = np.empty(K)
    for t in range(n):
        if fresh[t]:
            winner = 0
            for j in range(1, K):
                if best[j] > best[winner]:
                    winner = j
            for k in range(K):
                back[t, k] = winner
                new[k] = log_start[k] + logp[t, k]
        else:
            for k in range(K):
                winner = 0
                top = best[0] + log_transition[0, k]
                for j in range(1, K):
                    s = best[j] + log_transition[j, k]
                    if s > top:
                        winner, top = j, s
                back[t, k] = winner
                new[k] = top + logp[t, k]
        shift = new[0]
        for k in range(1, K):
            shift = max(shift, new[k])
        for k in range(K):
            best[k] = new[k] - shift


@kernel
def trace(back, last, path):
    """Trace the best path (T,) back from state ``last``."""
    state = last
    for t in range(len(path) - 1, -1, -1):
        path[t] = state
        state = back[t, state]


# ---------------------------------------------------------------- simulation
@kernel
def draw_path(uniform, cumulative, cumulative_start, fresh, state, path):
    """Draw a path of states (n,) from uniform numbers (n,) and cumulative rows (K, K); return the last state."""
    K = cumulative.shape[0]
    for t in range(len(path)):
        u = uniform[t]
        k = 0
        if fresh[t]:
            while k < K - 1 and u >= cumulative_start[k]:
                k += 1
        else:
            while k < K - 1 and u >= cumulative[state, k]:
                k += 1
        path[t] = k
        state = k
    return state


@kernel
def draw_path_backward(filtered, transition, uniform, fresh, path):
    r"""Draw a path of states (T,) given the whole series, backwards from filtered probabilities (T, K).

    :math:`p(x_t = k \mid x_{t+1}, y) \propto filtered_{tk} P_{k x_{t+1}}`; the last state of a sequence follows its
    filtered probabilities.  ``uniform`` (T,) are uniform numbers, ``fresh`` (T,) marks where sequences begin.  Returns
    the step at which no state was possible (their masses had underflowed), or -1.
    """
    T, K = filtered.shape
    cumulative = np.empty(K)
    last = True
    for t in range(T - 1, -1, -1):
        total = 0.0
        for k in range(K):
            total += filtered[t, k] if last else filtered[t, k] * transition[k, path[t + 1]]
            cumulative[k] = total
        if not total > 0.0:
            return t
        u = uniform[t] * total
        k = 0
        while k < K - 1 and u >= cumulative[k]:
            k += 1
        path[t] = k
        last = fresh[t]
    return -1
