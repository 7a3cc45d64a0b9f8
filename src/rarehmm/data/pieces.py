"""Subsamples of a long series: evenly spaced pieces, and the neighbourhoods of selected rows."""

import numpy as np

from rarehmm.common.arrays import IntArray
from rarehmm.data.rows import Rows, concatenate
from rarehmm.data.series import Series, in_memory
from rarehmm.data.workers import Item

AROUND = 25  # observations on either side of a selected row


def pieces(series: Series, size: int, count: int = 10) -> Series:
    """Return evenly spaced pieces with about ``size`` observations in total; a shorter series is returned whole."""
    if len(series) <= size:
        return in_memory(series)
    length = size // count
    first = np.linspace(0, len(series) - length, count).astype(int)
    return stretches(series, first, first + length)


def stretches(series: Series, first: IntArray, last: IntArray) -> Series:
    """Return the rows [first[i], last[i]) as independent sequences; existing sequence boundaries are kept."""
    lengths = [series.lengths_within(low, high) for low, high in zip(first, last, strict=True)]
    rows = concatenate(series.over_rows(_copied, _items(first, last)))
    return Series(rows.y, np.concatenate(lengths)).with_inputs_of(series, rows)


def sample(series: Series, places: IntArray, size: int) -> Series:
    """Return evenly spaced pieces with about ``size`` observations in total, plus the neighbourhoods of ``places``.

    A series no longer than ``size`` is returned whole.
    """
    T, count = len(series), 10
    if size >= T:
        return in_memory(series)
    even = np.linspace(0, T - size // count, count).astype(int)
    low = np.concatenate([even, np.maximum(places - AROUND, 0)])
    high = np.concatenate([even + size // count, np.minimum(places + AROUND + 1, T)])
    order = np.argsort(low)
    low, high = low[order], np.maximum.accumulate(high[order])
    is_first = np.append(True, low[1:] > high[:-1])  # overlapping stretches are merged
    return stretches(series, low[is_first], high[np.append(is_first[1:], True)])


def _items(low: IntArray, high: IntArray) -> list[Item]:
    return [Item(a, b, ()) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def _copied(rows: Rows) -> Rows:
    return Rows(rows.y.copy(), rows.exog.copy(), rows.clock.copy(), rows.states.copy())


def spread(series: Series, size: int, count: int = 200) -> Rows:
    """Return about ``size`` rows in ``count`` pieces at uneven distances; a shorter series is returned whole.

    Pieces begin at multiples of the golden ratio (modulo 1), so that no period of a season has a part in them that is
    too large or too small.
    """
    if len(series) <= size:
        return series.read_rows(0, len(series))
    length = size // count
    places = np.sort(np.arange(count) * (np.sqrt(5) - 1) / 2 % 1)
    first = (places * (len(series) - length)).astype(np.int64)
    return concatenate(series.over_rows(_copied, _items(first, first + length)))
