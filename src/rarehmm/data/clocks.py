"""Clocks: the time of each row as a number, computed for the rows that are read.

With a time index, the clock is the number of seconds since 1970-01-01 in local wall time, so that a daily season stays
at the same hour when clocks are changed for summer; a double resolves a quarter of a microsecond there.  Without times,
it is the row number within its sequence.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.sources.combined import Times
from rarehmm.data.sources.lazy import Dask
from rarehmm.data.sources.table import Source
from rarehmm.data.workers import read_parts

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class Counted(Source):
    """Row numbers (T, 1) within sequences of which sequence s holds the rows [bounds[s], bounds[s + 1])."""

    def __init__(self, bounds: IntArray) -> None:
        self.bounds, self.shape, self.dtype = bounds, (int(bounds[-1]), 1), np.dtype(np.float64)

    def read(self, first: int, last: int) -> Array:
        i, j = np.searchsorted(self.bounds, first, side="right") - 1, np.searchsorted(self.bounds, last)
        if j - i <= 1:
            return np.arange(first - self.bounds[i], last - self.bounds[i], dtype=float)[:, None]
        edges = np.clip(self.bounds[i : j + 1], first, last)
        return np.arange(first, last, dtype=float)[:, None] - np.repeat(self.bounds[i:j], np.diff(edges))[:, None]

    def where(self, row: int) -> str:
        return f"row {row}"


class Regular(Source):
    """Times (n, 1) that begin at ``start`` and are ``step`` seconds apart."""

    def __init__(self, start: float, step: float, size: int) -> None:
        self.start, self.step, self.shape, self.dtype = start, step, (size, 1), np.dtype(np.float64)

    def read(self, first: int, last: int) -> Array:
        return self.start + self.step * np.arange(first, last, dtype=float)[:, None]

    def where(self, row: int) -> str:
        return f"row {row}"


class Filed(Source):
    """Times (n, 1) that are read from files."""

    def __init__(self, times: Times) -> None:
        self.times, self.shape, self.dtype = times, (len(times), 1), np.dtype(np.float64)

    def read(self, first: int, last: int) -> Array:
        return wall_seconds(self.times[first:last])

    def where(self, row: int) -> str:
        return self.times.source.where(row)


class Indexed:
    """Times (n, 1) of a pandas index in memory, converted a slice at a time."""

    def __init__(self, index: Any) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice) -> Array:
        return wall_seconds(self.index[rows])


class Within(Source):
    """Rows [first, last) of a clock as one of its own."""

    def __init__(self, clock: "Clock", first: int, last: int) -> None:
        self.clock, self.first, self.shape, self.dtype = clock, first, (last - first, 1), np.dtype(np.float64)

    def read(self, first: int, last: int) -> Array:
        return self.clock.read(self.first + first, self.first + last)[:, None]

    def where(self, row: int) -> str:
        return f"row {self.first + row}"


class Clock:
    """The clock of a series.

    Attributes
    ----------
    parts, offsets
        Tables (n, 1) of the clock, and the first row of each, with the number of all rows at the end.
    has_times : bool
        Whether the clock is in seconds; otherwise it counts rows.
    zone : tzinfo or None
        Time zone of the index, if it is the same for all parts.
    """

    def __init__(self, parts: Sequence[Any], has_times: bool, zone: Any = None) -> None:
        self.parts, self.has_times, self.zone = tuple(parts), has_times, zone
        self.offsets = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def read(self, first: int, last: int) -> Array:
        """Return the clock (last - first,) of the rows [first, last)."""
        return read_parts(self.parts, self.offsets, first, last)[:, 0]

    def at(self, rows: Sequence[int] | IntArray) -> Array:
        """Return the clock of single rows."""
        return np.array([self.read(row, row + 1)[0] for row in np.asarray(rows, np.int64).tolist()])

    def part(self, first: int, last: int) -> "Clock":
        """Return the clock of the rows [first, last), without reading it."""
        return Clock([Within(self, first, last)], self.has_times, self.zone)


def clock_of(indices: Sequence[Any], bounds: IntArray) -> Clock:
    """Return the clock of a series from the index of each of its parts, or None, and the bounds of its sequences."""
    if not all(map(is_time, indices)):
        return Clock([Counted(bounds)], False)
    zones = {str(zone): zone for zone in map(zone_of, indices)}
    return Clock([settled(index) for index in indices], True, next(iter(zones.values())) if len(zones) == 1 else None)


def is_time(index: Any) -> bool:
    """Whether an index holds times: a pandas DatetimeIndex, or times read from files."""
    if isinstance(index, Times):
        return index.dtype.kind == "M"
    return hasattr(index, "asi8") and hasattr(index, "tz_localize")


def zone_of(index: Any) -> Any:
    return index.zone if isinstance(index, Times) else index.tz


def settled(index: Any) -> Any:
    """Return the table (n, 1) of seconds in local wall time of an index, computed on request."""
    if isinstance(index, Times):
        stored = index.source
        if isinstance(stored, Dask) and not index.zone:  # sliced within its graph, like rows
            return Dask(stored.array.map_blocks(seconds, dtype=np.float64, meta=np.empty(0)), stored.label)
        return Filed(index)
    if index.freq is not None and index.tz is None and is_uniform(index.freq) and len(index) > 1:
        start, second = wall_seconds(index[:2])[:, 0].tolist()
        return Regular(start, second - start, len(index))
    return Indexed(index)


def is_uniform(freq: Any) -> bool:
    """Whether steps of a pandas frequency have one length in wall time."""
    import pandas as pd

    return isinstance(freq, pd.offsets.Tick | pd.offsets.Day)


def wall_seconds(index: Any) -> Array:
    """Return seconds since 1970-01-01 in local wall time (n, 1) of a DatetimeIndex; NaN where a time is missing."""
    local = index if index.tz is None else index.tz_localize(None)
    return seconds(local.to_numpy())[:, None]


def seconds(times: npt.NDArray[Any]) -> Array:
    """Return seconds since 1970-01-01 of times of dtype datetime64 of any unit; NaN where a time is missing."""
    unit, count = np.datetime_data(times.dtype)
    if unit not in PER_SECOND or count != 1:
        return seconds(times.astype("M8[s]"))
    clock = times.astype(np.int64) / PER_SECOND[unit]
    if (gone := np.isnat(times)).any():
        clock[gone] = np.nan
    return np.asarray(clock)
