"""Lags of a column of observations: what they add to the linear predictor of each row, and the way back.

Rows that have all of their p lags are the rule; the others are marked, and left to the caller.
"""

import numpy as np

from rarehmm.data.summaries import LARGEST
from rarehmm.engine.dispatch import inner, kernel

COMPLETE, NOTHING = 0, -1  # marks of rows; a positive mark is the number of steps since the last observed value


@kernel
def add_lags(values, begin, coefficients, out, marks):
    """Add coefficients (p, Q) times the last p values (n,) to out (n, Q), where all of them are there; mark the rows.

    ``begin`` (n,) is the first row of the sequence of each row, and differs from one to the next; NaN is missing.
    Marks (n,) are ``COMPLETE``, the number of steps since the last observed value, or ``NOTHING`` if there is none in
    the sequence.
    """
    p, Q = coefficients.shape
    n = len(values)
    last, run = -1, 0  # last observed row, and the number of observed rows just before this one
    for t in range(n):
        if begin[t] == t or (t > 0 and begin[t] != begin[t - 1]):
            last, run = -1, 0
        if run >= p:
            marks[t] = COMPLETE
        else:
            marks[t] = t - last if last >= 0 else NOTHING
        if values[t] == values[t]:
            last = t
            run += 1
        else:
            run = 0
    stop = 0
    while stop < n:
        start, stop = next_run(marks, stop)
        for q in range(Q):
            for m in range(p):
                share = coefficients[m, q]
                for t in range(start, stop):
                    out[t, q] += share * values[t - m - 1]


@kernel
def lag_gradients(values, marks, coefficients, slopes, back, found):
    """Add the derivatives in the values to back (n,), and those in the coefficients to found (p, Q), from slopes (n,
    Q).

    An empty ``back`` is not filled.
    """
    p, Q = coefficients.shape
    n = len(values)
    stop = 0
    while stop < n:
        start, stop = next_run(marks, stop)
        for q in range(Q):
            for m in range(p):
                found[m, q] += dot(slopes, q, values, m + 1, start, stop)
                if len(back) > 0:
                    share = coefficients[m, q]
                    for t in range(start, stop):
                        back[t - m - 1] += share * slopes[t, q]


@inner
def next_run(marks, first):
    """The next run of rows with all of their lags, from ``first`` on: its first row, and the one after its last."""
    start = first
    while start < len(marks) and marks[start] != COMPLETE:
        start += 1
    stop = start
    while stop < len(marks) and marks[stop] == COMPLETE:
        stop += 1
    return start, stop


@inner
def dot(slopes, q, values, m, start, stop):
    """Sum of slopes[t, q] values[t - m] over rows [start, stop), in four parts."""
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    whole = start + (stop - start) // 4 * 4
    for t in range(start, whole, 4):
        one += slopes[t, q] * values[t - m]
        two += slopes[t + 1, q] * values[t + 1 - m]
        three += slopes[t + 2, q] * values[t + 2 - m]
        four += slopes[t + 3, q] * values[t + 3 - m]
    for t in range(whole, stop):
        one += slopes[t, q] * values[t - m]
    return (one + two) + (three + four)


def lagged(values: np.ndarray, marks: np.ndarray, p: int) -> np.ndarray:
    """Table (n, p) of the last p values of each row, 0 in rows that lack one of them."""
    out = np.zeros((len(values), p))
    rows = np.flatnonzero(marks == COMPLETE)
    for m in range(p):
        out[rows, m] = values[rows - m - 1]
    return out


@kernel
def follow_lags(values, given, weights, marks, shares):
    """Add to values (n,), in place, what the values before contribute to each.

    Rows with all of their lags take the ``weights`` (n, p) of the last p values, and rows h steps after the last
    observed value the share (n,) of it; those that are ``given`` (n,) stay as they are.
    """
    for t in range(len(values)):
        if given[t]:
            continue
        total = values[t]
        if marks[t] == COMPLETE:
            for m in range(weights.shape[1]):
                total += weights[t, m] * values[t - m - 1]
        elif marks[t] > 0:
            total += shares[t] * values[t - marks[t]]
        values[t] = min(max(total, -LARGEST), LARGEST)
