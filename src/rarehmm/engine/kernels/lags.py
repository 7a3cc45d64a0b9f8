"""Lags of a column of observations: what they add to the linear predictor of each row, and the way back.

Rows that have all of their p lags are the rule; the others are marked, and left to the caller.
"""

import numpy as np

from rarehmm.engine.dispatch import kernel

COMPLETE, NOTHING = 0, -1  # marks of rows; a positive mark is the number of steps since the last observed value


@kernel
def add_lags(values, begin, coefficients, out, marks):
    """Add coefficients (p, Q) times the last p values (n,) to out (n, Q), where all of them are there; mark the rows.

    ``begin`` (n,) is the first row of the sequence of each row, and NaN is missing.  Marks (n,) are ``COMPLETE``, the
    number of steps since the last observed value, or ``NOTHING`` if there is none in the sequence.
    """
    p, Q = coefficients.shape
    n = len(values)
    last, run = -1, 0  # last observed row, and the number of observed rows just before this one
    for t in range(n):
        if begin[t] == t:
            last, run = -1, 0
        if run >= p:
            marks[t] = COMPLETE
            for q in range(Q):
                total = out[t, q]
                for m in range(p):
                    total += coefficients[m, q] * values[t - m - 1]
                out[t, q] = total
        else:
            marks[t] = t - last if last >= 0 else NOTHING
        if values[t] == values[t]:
            last = t
            run += 1
        else:
            run = 0


@kernel
def lag_gradients(values, marks, coefficients, slopes, back, found):
    """Add the derivatives in the values to back (n,), and those in the coefficients to found (p, Q), from slopes (n,
    Q).

    An empty ``back`` is not filled.
    """
    p, Q = coefficients.shape
    for t in range(len(values)):
        if marks[t] == COMPLETE:
            for q in range(Q):
                slope = slopes[t, q]
                if slope != 0.0:
                    for m in range(p):
                        found[m, q] += slope * values[t - m - 1]
                    if len(back) > 0:
                        for m in range(p):
                            back[t - m - 1] += slope * coefficients[m, q]


def lagged(values: np.ndarray, marks: np.ndarray, p: int) -> np.ndarray:
    """Table (n, p) of the last p values of each row, 0 in rows that lack one of them."""
    out = np.zeros((len(values), p))
    rows = np.flatnonzero(marks == COMPLETE)
    for m in range(p):
        out[rows, m] = values[rows - m - 1]
    return out
