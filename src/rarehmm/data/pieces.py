"""Pieces of a long series: evenly spaced ones, and the surroundings of some places."""

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series, in_memory
from rarehmm.data.workers import Item

AROUND = 25  # observations on both sides of them


def pieces(series: Series, size: int, count: int = 10) -> Series:
    """A few evenly spaced pieces of a long series, of about ``size`` observations together; a short one as it is."""
    if len(series) <= size:
        return in_memory(series)
    length = size // count
    first = np.linspace(0, len(series) - length, count).astype(int)
    return stretches(series, first, first + length)


def stretches(series: Series, first: IntArray, last: IntArray) -> Series:
    """The rows [first[i], last[i]) of a series as sequences of their own; those that it has stay apart."""
    lengths = [series.lengths_within(low, high) for low, high in zip(first, last, strict=True)]
    return Series(rows_at(series, first, last), np.concatenate(lengths))


def sample(series: Series, places: IntArray, size: int) -> Series:
    """Evenly spaced pieces of a long series, of about ``size`` observations together, and the surroundings of some
    ``places``; a short one as it is."""
    T, count = len(series), 10
    if size >= T:
        return in_memory(series)
    even = np.linspace(0, T - size // count, count).astype(int)
    low = np.concatenate([even, np.maximum(places - AROUND, 0)])
    high = np.concatenate([even + size // count, np.minimum(places + AROUND + 1, T)])
    order = np.argsort(low)
    low, high = low[order], np.maximum.accumulate(high[order])
    begins = np.append(True, low[1:] > high[:-1])  # where the stretches before do not reach
    return stretches(series, low[begins], high[np.append(begins[1:], True)])


def rows_at(series: Series, low: IntArray, high: IntArray) -> Array:
    """The rows [low[i], high[i]) of a series, one stretch after the other."""
    items = [Item(a, b, ()) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    return np.concatenate(series.over(np.copy, items))
