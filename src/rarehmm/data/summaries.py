"""Columns in a few numbers, gathered in one look at all rows."""

import math
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.domains import REALS, Domain

LARGEST = 1e150  # squares must not overflow


LOOK = 1 << 15  # rows looked at together while checking: what is made of them stays in the cache of a core


class Summary(NamedTuple):
    """One column in six numbers; ``roughness`` is half the mean square of successive differences.  Of several columns
    also the number of this one, and ``noise``, half the mean products of its differences with those of each column."""

    size: int
    mean: float
    variance: float
    low: float
    high: float
    roughness: float
    column: int = 0
    noise: tuple[float, ...] = ()

    def scaled(self, domain: Domain = REALS) -> "Summary":
        """The same, unless it is of a column that never changes or is never there: that has no scale, and is given the
        one of its value, or 1; and from the edge of the domain a little is missing, as if one more were seen inside."""
        if self.low < self.high:
            return self
        ends = domain.low, domain.high
        usual = 0.0 if domain.low == -math.inf else domain.low + min(1.0, (domain.high - domain.low) / 2)
        value = self.mean if self.size else usual
        mean = (self.size * value + usual) / (self.size + 1) if value in ends else value
        scale = abs(value) or 1.0
        noise = tuple(scale**2 if i == self.column else 0.0 for i in range(len(self.noise)))
        low = value - scale if domain.low == -math.inf else value / 2
        return Summary(self.size, mean, scale**2, low, value + scale, scale**2, self.column, noise)


class Totals:
    """Running mean and variance of a column, merged stretch by stretch (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.count, self.mean, self.square, self.low, self.high = 0, 0.0, 0.0, np.inf, -np.inf
        self.steps, self.rough = 0, 0.0

    def add(self, y: Array, lead: int, gone: BoolArray | None, joins: IntArray) -> None:
        """A stretch (n,) after ``lead`` rows, what of it is missing (None: nothing), and the rows into which no step
        leads."""
        steps = np.diff(y)
        steps[joins[joins > 0] - 1] = np.nan
        self.steps += len(steps)
        rough = np.square(steps, out=steps).sum()  # a dot product's threads would wait for each other on a busy machine
        if np.isnan(rough):
            none = np.isnan(steps)
            self.steps -= int(np.count_nonzero(none))
            rough = steps[~none].sum()
        self.rough += float(rough)
        y = y[lead:] if gone is None else y[lead:][~gone[lead:]]
        if len(y) == 0:
            return
        mean = float(y.mean())
        apart = y - mean
        self._join(len(y), mean, float(np.square(apart, out=apart).sum()), float(y.min()), float(y.max()))

    def merge(self, other: "Totals") -> None:
        """What comes after."""
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
    """A look at a stretch: the first value that is too large or infinite, if any, with its row and column; how many
    rows are missing; and totals of the columns.

    ``lead``: rows that belong to the stretch before; ``joins``: rows with which sequences begin.
    """
    totals, missing = [Totals() for _ in range(rows.shape[1])], 0
    for low in range(lead, len(rows), LOOK):
        before = min(low, 1)
        y = np.ascontiguousarray(rows[low - before : low + LOOK].T)  # (D, n)
        if max(-np.fmin.reduce(y, axis=None), np.fmax.reduce(y, axis=None)) > LARGEST:  # NaN is left out
            row, column = np.argwhere(np.abs(rows) > LARGEST)[0]
            return (int(row) - lead, int(column), float(rows[row, column])), 0, []
        gone = np.isnan(y) if np.isnan(y.sum()) else None
        missing += 0 if gone is None else int(np.count_nonzero(gone[:, before:].all(0)))
        mine = joins[slice(*np.searchsorted(joins, [low - before, low + LOOK]))] - (low - before)
        for i, total in enumerate(totals):
            total.add(y[i], before, None if gone is None else gone[i], mine)
    return None, missing, totals
