"""Summary statistics of the columns of a series, computed in a single pass over all rows."""

import math
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.domains import REALS, Domain

LARGEST = 1e150  # squares must not overflow


LOOK = 1 << 15  # rows checked at a time, so that temporaries stay in a core's cache


class Summary(NamedTuple):
    """Summary statistics of one column.

    ``roughness`` is half the mean square of successive differences.  With several columns, ``column`` is the number of
    this one and ``noise`` half the mean product of its successive differences with those of each column.
    """

    size: int
    mean: float
    variance: float
    low: float
    high: float
    roughness: float
    column: int = 0
    noise: tuple[float, ...] = ()

    def scaled(self, domain: Domain = REALS) -> "Summary":
        """Return a summary with a positive scale, also for a column that is constant or missing throughout.

        Such a column takes the magnitude of its value as its scale, or 1.  A constant at the edge of the domain is
        moved inside by adding one typical observation to its mean.
        """
        if self.low < self.high:
            return self
        ends = domain.low, domain.high
        typical = 0.0 if domain.low == -math.inf else domain.low + min(1.0, (domain.high - domain.low) / 2)
        value = self.mean if self.size else typical
        mean = (self.size * value + typical) / (self.size + 1) if value in ends else value
        scale = abs(value) or 1.0
        noise = tuple(scale**2 if i == self.column else 0.0 for i in range(len(self.noise)))
        low = value - scale if domain.low == -math.inf else value / 2
        return Summary(self.size, mean, scale**2, low, value + scale, scale**2, self.column, noise)


class Totals:
    """Running mean and variance of a column, updated one stretch at a time (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.count, self.mean, self.square, self.low, self.high = 0, 0.0, 0.0, np.inf, -np.inf
        self.steps, self.rough = 0, 0.0

    def add(self, y: Array, lead: int, gone: BoolArray | None, joins: IntArray) -> None:
        """Add a stretch (n,) of which the first ``lead`` rows were counted before.

        ``gone`` marks missing rows (None: none are); ``joins`` are the rows that start a sequence, whose difference
        from the row before does not count.
        """
        steps = np.diff(y)
        steps[joins[joins > 0] - 1] = np.nan
        self.steps += len(steps)
        rough = np.square(steps, out=steps).sum()  # not a dot product: BLAS threads would contend on a busy machine
        if np.isnan(rough):
            undefined = np.isnan(steps)
            self.steps -= int(np.count_nonzero(undefined))
            rough = steps[~undefined].sum()
        self.rough += float(rough)
        y = y[lead:] if gone is None else y[lead:][~gone[lead:]]
        if len(y) == 0:
            return
        mean = float(y.mean())
        deviation = y - mean
        self._join(len(y), mean, float(np.square(deviation, out=deviation).sum()), float(y.min()), float(y.max()))

    def merge(self, other: "Totals") -> None:
        """Add the totals of the stretch that follows."""
        self.steps, self.rough = self.steps + other.steps, self.rough + other.rough
        if other.count:
            self._join(other.count, other.mean, other.square, other.low, other.high)

    def _join(self, count: int, mean: float, square: float, low: float, high: float) -> None:
        total, shift = self.count + count, mean - self.mean
        self.square += square + shift**2 * self.count * count / total
        self.mean += shift * count / total
        self.count, self.low, self.high = total, min(self.low, low), max(self.high, high)

    def summary(self) -> Summary:
        variance = self.square / max(self.count, 1)
        rough = self.rough / (2 * self.steps) if self.rough > 0 else variance
        return Summary(self.count, self.mean, variance, self.low, self.high, rough)


def scan_rows(rows: Array, lead: int, joins: IntArray) -> tuple[tuple[int, int, float] | None, int, list[Totals]]:
    """Check and summarise one stretch of rows.

    Returns the row, column and value of the first entry that is infinite or too large (None: there is none), the number
    of missing rows, and the totals of each column.  The first ``lead`` rows belong to the stretch before; ``joins`` are
    the rows that start a sequence.
    """
    totals, missing = [Totals() for _ in range(rows.shape[1])], 0
    for low in range(lead, len(rows), LOOK):
        before = min(low, 1)
        y = np.ascontiguousarray(rows[low - before : low + LOOK].T)  # (D, n)
        if max(-np.fmin.reduce(y, axis=None), np.fmax.reduce(y, axis=None)) > LARGEST:  # ignores NaN
            row, column = np.argwhere(np.abs(rows) > LARGEST)[0]
            return (int(row) - lead, int(column), float(rows[row, column])), 0, []
        gone = np.isnan(y) if np.isnan(y.sum()) else None
        missing += 0 if gone is None else int(np.count_nonzero(gone[:, before:].all(0)))
        joins_here = joins[slice(*np.searchsorted(joins, [low - before, low + LOOK]))] - (low - before)
        for i, total in enumerate(totals):
            total.add(y[i], before, None if gone is None else gone[i], joins_here)
    return None, missing, totals


def scan_inputs(rows: Array) -> tuple[tuple[int, int, float] | None, list[Totals]]:
    """Summarise one stretch of inputs.

    Returns the row, column and value of the first entry that is missing, infinite or too large (None: there is none),
    and the totals of each column.
    """
    if not np.abs(rows).max() <= LARGEST:
        row, column = np.argwhere(~(np.abs(rows) <= LARGEST))[0]
        return (int(row), int(column), float(rows[row, column])), []
    return None, scan_rows(rows, 0, np.empty(0, np.int64))[2]


def scan_states(rows: Array) -> tuple[tuple[int, float] | None, int, set[int]]:
    """Check one stretch of known states.

    Returns the row and value of the first that is neither a whole number from -1 nor NaN (None: there is none), the
    number of known states, and all that occur.
    """
    states = rows[:, 0]
    bad = ~((states >= -1) & (states < 2**31) & (states == np.floor(states)) | np.isnan(states))
    if bad.any():
        row = int(np.argmax(bad))
        return (row, float(states[row])), 0, set()
    known = states[states >= 0]
    return None, len(known), {int(k) for k in np.unique(known)}
