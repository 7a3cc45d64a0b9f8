"""Time stamps: whether rows follow each other in even steps, and the rows that are missing between them.

Steps are measured on the stamps themselves, in universal time where they have a zone, so that an hour that is skipped
or repeated when clocks are changed is not a gap.  A row may come a quarter of a step early or late.  Months, quarters,
years and weekdays are even steps of a calendar.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.clocks import PER_SECOND
from rarehmm.data.sources.combined import Times
from rarehmm.data.sources.table import Source
from rarehmm.data.workers import read_parts

LATE, DRIFT = 0.25, 1e-3  # by how many steps a row may be early or late, and by how many more for each missing row
COMMON = 0.05  # share of all steps that the smallest regular one has at least
PIECES, PIECE = 20, 1000  # pieces from which the step is estimated, and their rows
LARGEST_CALENDAR = 1 << 17  # rows of a file that may follow a calendar
DAY, HOUR = 86_400.0, 3600.0


# ---------------------------------------------------------------- stamps as numbers
class Elapsed:
    """Time (n, 1) since the first stamp of an index in memory: seconds, or units of its numbers."""

    def __init__(self, index: Any) -> None:
        self.values, self.per_second = raw(index), ticks_per_second(index)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Array:
        return since(self.values[0], self.values[rows], self.per_second)[:, None]


class FiledElapsed(Source):
    """Time (n, 1) since the first stamp of a column in a file: seconds, or units of its numbers."""

    def __init__(self, times: Times) -> None:
        self.source, self.per_second = times.source, ticks_per_second(times)
        self.shape, self.dtype = (len(times), 1), np.dtype(np.float64)
        self.origin = plain(times.source[:1])[0, 0]

    def read(self, first: int, last: int) -> Array:
        return since(self.origin, plain(self.source[first:last]), self.per_second)

    def where(self, row: int) -> str:
        return self.source.where(row)


def elapsed(index: Any) -> Any:
    """Return the table (n, 1) of the time since the first stamp, computed on request; None for other labels."""
    if isinstance(index, Times):
        return FiledElapsed(index)
    return Elapsed(index) if hasattr(index, "asi8") or getattr(index, "dtype", np.dtype("O")).kind in "iuf" else None


def is_spaced(index: Any) -> bool:
    """Whether an index holds times, whose steps are even: dates, periods, numbers with a name.

    Numbers without a name are labels of rows, such as those that are left after a selection.
    """
    return isinstance(index, Times) or hasattr(index, "asi8") or index.name is not None


def is_even(index: Any) -> bool:
    """Whether steps are known to be even, because pandas keeps the frequency of the index."""
    kind = type(index).__name__
    if kind == "RangeIndex":
        return bool(index.step > 0)
    return kind in ("DatetimeIndex", "TimedeltaIndex") and index.freq is not None and index.freq.n > 0


def raw(index: Any) -> npt.NDArray[Any]:
    """Return the stamps of an index in memory as whole numbers of its unit, or as the numbers they are."""
    return np.asarray(index.asi8 if hasattr(index, "asi8") else index.to_numpy())


def plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return stamps of a file as whole numbers of their unit, or as the numbers they are."""
    return values.view(np.int64) if values.dtype.kind == "M" else values


def ticks_per_second(index: Any) -> float:
    """Return how many units of an index there are in a second; 1 for numbers and periods."""
    if isinstance(index, Times):
        unit = np.datetime_data(index.dtype)[0] if index.dtype.kind == "M" else "s"
        return float(np.timedelta64(1, "s") / np.array(1, f"m8[{unit}]"))
    return float(PER_SECOND[index.unit]) if hasattr(index, "unit") else 1.0


def since(origin: Any, values: npt.NDArray[Any], per_second: float) -> Array:
    """Return seconds after ``origin``; NaN where a stamp is missing."""
    if values.dtype.kind == "f":
        return np.asarray((values - origin) / per_second, dtype=float)
    gone = values == np.iinfo(np.int64).min if values.dtype == np.int64 else np.zeros(values.shape, dtype=bool)
    out = (values.astype(np.int64) - np.int64(origin)) / per_second
    out[gone] = np.nan
    return np.asarray(out)


# ---------------------------------------------------------------- steps
class Scan(NamedTuple):
    """What is wrong with the steps into some rows: each field holds rows, in ascending order.

    ``gone``: without a stamp; ``back``: earlier than the row before; ``same``: at the same time; ``uneven``: off the
    grid; ``late``: rows before which ``missing`` others are.
    """

    gone: IntArray
    back: IntArray
    same: IntArray
    uneven: IntArray
    late: IntArray
    missing: IntArray


def scan_steps(rows: Array, joins: IntArray, first: int, step: float) -> Scan:
    """Look at the steps between ``rows`` (n, 1), which begin at row ``first``; a sequence starts at each of ``joins``.

    ``step`` is the usual step, or NaN if steps may have any size.
    """
    steps = np.diff(rows[:, 0])
    steps[joins[joins > 0] - 1] = step if step == step else 1.0
    ratio = steps / step
    if np.abs(ratio - 1).max(initial=0.0) <= LATE and not np.isnan(rows[-1, 0]):  # false for NaN
        return Scan._make(np.empty(0, np.int64) for _ in Scan._fields)
    whole = np.rint(ratio)
    close = np.abs(ratio - whole) <= LATE + DRIFT * (whole - 1)
    late = close & (whole >= 2)
    uneven = (ratio > 0) & ~(close & (whole >= 1))
    back, same, off, after = (np.flatnonzero(each) + first + 1 for each in (steps < 0, steps == 0, uneven, late))
    gone = np.flatnonzero(np.isnan(rows[:, 0])) + first
    return Scan(gone, back, same, off, after, whole[late].astype(np.int64) - 1)


def typical_step(steps: Array) -> float:
    """Return the usual step: the mean of those around the most common, or around a common part of this."""
    forward = np.sort(steps[steps > 0])
    if len(forward) == 0:
        return np.nan
    values, counts = np.unique(forward, return_counts=True)
    if counts.max() < max(2, COMMON * len(forward)):
        usual = forward[(len(forward) - 1) // 2]
    else:
        most = values[np.argmax(counts)]
        parts = most / values[counts >= max(2, COMMON * len(forward))]  # the largest part comes first
        usual = most / next(part for part in parts if abs(part - round(part)) < DRIFT)
    return float(forward[np.abs(forward / usual - 1) <= LATE].mean())


def sampled_step(parts: Sequence[Any], offsets: IntArray, bounds: IntArray) -> float:
    """Return the usual step between rows, from pieces of the series."""
    T, steps = int(offsets[-1]), []
    for place in np.unique(np.linspace(0, max(T - PIECE, 0), PIECES).astype(np.int64)).tolist():
        last = min(place + PIECE, T)
        joins = bounds[(bounds > place) & (bounds < last)] - place
        steps.append(np.delete(np.diff(read_parts(parts, offsets, place, last)[:, 0]), joins - 1))
    return typical_step(np.concatenate(steps))


# ---------------------------------------------------------------- what is said
class Finding(NamedTuple):
    """The steps of a series of T rows, and how to speak of them.

    ``place(row)`` describes a row; ``stamp(row)`` is its label; ``index`` is that of the first part; ``has_dates``:
    whether steps are those of a calendar.
    """

    scan: Scan
    step: float
    T: int
    place: Callable[[int], str]
    stamp: Callable[[int], Any]
    index: Any
    has_dates: bool = False

    def check_order(self) -> None:
        """Raise ValueError if a stamp is missing, or earlier than the one before."""
        if len(self.scan.gone) > 0:
            raise ValueError(
                f"the time of {self.place(int(self.scan.gone[0]))} is missing; every row needs one. Fill it, or drop "
                "the row."
            )
        if len(self.scan.back) == 0:
            return
        row, count = int(self.scan.back[0]), len(self.scan.back)
        order = f"time goes back in {rows_of(count, self.T)}"
        if count > max(2, self.T / 5):
            order = "the rows run backwards" if count == self.T - 1 else "the rows are shuffled"
        raise ValueError(
            f"{order}: {self.place(row)} comes after {self.stamp(row - 1)}. Sort by time, with y.sort_index() or in "
            "the file; give several files in order of time, and independent recordings as a list or with lengths=."
            f"{self.hints(row)}"
        )

    def check_steps(self) -> None:
        """Raise ValueError if a stamp is repeated, or off the grid."""
        if len(self.scan.same) > 0:
            row = int(self.scan.same[0])
            raise ValueError(
                f"time stands still in {rows_of(len(self.scan.same), self.T)}: {self.place(row)} has the same time as "
                "the row before it. Keep one row for each time, such as y[~y.index.duplicated()] or "
                f"y.groupby(level=0).mean(), or pass regular=False (--regular no) to count rows as they "
                f"are.{self.hints(row)}"
            )
        if len(self.scan.uneven) > 0:
            row, alias = int(self.scan.uneven[0]), self.alias(float(f"{self.step:.2g}"))
            even = f"such as y.resample({alias!r}).mean(), " if alias else ""
            raise ValueError(
                f"rows are not evenly spaced: {self.place(row)} comes {self.length(self.before(row))} after the row "
                f"before it, and the usual step is {self.length(self.step)}; this is so in "
                f"{rows_of(len(self.scan.uneven), self.T)}. Bring rows to even steps, "
                f"{even}or pass regular=False (--regular no) to count rows as they "
                f"are.{self.hints(row)}"
            )

    def check_whole(self) -> None:
        """Raise ValueError if rows are missing."""
        if len(self.scan.late) == 0:
            return
        row, gone, places = int(self.scan.late[0]), int(self.scan.missing.sum()), len(self.scan.late)
        thinned = f"{gone / (gone + self.T):.0%} of the rows" if gone > self.T else f"{gone:,} row{'s'[: gone != 1]}"
        verb = "is" if gone == 1 else "are"
        ratio = self.before(row) / self.step
        exact = abs(ratio - round(ratio)) < 1e-9 and self.is_dated() and not self.has_dates
        asfreq = f", or with y.asfreq({self.alias(self.step)!r})" if exact else ""
        raise ValueError(
            f"{thinned} {verb} missing in {places:,} place{'s'[: places != 1]}: {self.place(row)} comes "
            f"{self.length(self.before(row))} after the row before it, and the usual step is {self.length(self.step)}. "
            f'Put missing rows back as gaps with regular="fill" (--regular fill){asfreq}; pass independent recordings '
            f"as a list; or pass regular=False (--regular no) to count rows as they are.{self.hints(row)}"
        )

    def before(self, row: int) -> float:
        """Length of the step into a row."""
        step = self.stamp(row) - self.stamp(row - 1)
        return float(step.total_seconds() if hasattr(step, "total_seconds") else getattr(step, "n", step))

    def length(self, seconds: float) -> str:
        """Describe a length of time."""
        if not self.is_dated():
            return f"{seconds:.6g}"
        import pandas as pd

        days, rest = divmod(round(seconds, 6), DAY)
        clock = str(pd.Timedelta(seconds=rest).round("us")).removeprefix("0 days ")
        words = f"{days:.0f} day{'s'[: days != 1]}"
        return clock if days == 0 else words if rest == 0 else f"{words} {clock}"

    def alias(self, step: float) -> str:
        """Return the name of a step in pandas, such as "5min"; empty for numbers."""
        if not self.is_dated():
            return ""
        import pandas as pd

        if step % DAY == 0:
            return "D" if step == DAY else f"{step / DAY:.0f}D"
        return str(pd.tseries.frequencies.to_offset(pd.Timedelta(seconds=step).round("us")).freqstr)

    def is_dated(self) -> bool:
        index = self.index
        return index.dtype.kind == "M" if isinstance(index, Times) else hasattr(index, "unit")

    def hints(self, row: int) -> str:
        """Say what else may be behind a step that is wrong: changed clocks, or months that were read as days."""
        last, now = self.stamp(row - 1), self.stamp(row)
        if not self.is_dated() or not hasattr(now, "tzinfo"):
            return ""
        extra = self.before(row) - self.step
        if now.tzinfo is None and abs(abs(extra) - HOUR) < LATE * self.step and now.weekday() == 6 and now.hour <= 3:
            return (
                " If clocks were changed for summer or winter there, pass times with their zone, such as "
                'y.tz_localize("Europe/Vienna", ambiguous="infer").'
            )
        ways = [(b - a).total_seconds() for a in exchanged(last) for b in exchanged(now)]
        if any(abs(way / self.step - 1) <= LATE for way in ways[1:]):
            return (
                " Day and month seem to be exchanged: give the format of dates, such as --date-format '%d/%m/%Y', or "
                "dayfirst=True in pandas.to_datetime."
            )
        return ""


def exchanged(stamp: Any) -> list[Any]:
    """Return a time, and that with day and month exchanged if there is one."""
    return [stamp, stamp.replace(month=stamp.day, day=stamp.month)] if stamp.day <= 12 else [stamp]


def rows_of(count: int, total: int) -> str:
    return f"{count:,} of {total:,} rows"


# ---------------------------------------------------------------- rows put back
class Gaps:
    """Rows that are missing: ``missing`` (h,) of them before each of the rows ``late`` (h,) of n rows.

    ``index`` has all rows if it is known; otherwise stamps are put evenly between their neighbours.
    """

    def __init__(self, late: IntArray, missing: IntArray, n: int, index: Any = None) -> None:
        self.late, self.index = late, index
        self.starts = np.concatenate([[0], late, [n]]).astype(np.int64)  # of runs without a gap, in the n rows
        self.missing = np.asarray(missing, dtype=np.int64)
        self.shift = np.concatenate([[0], np.cumsum(self.missing)]).astype(np.int64)  # rows put back before each run
        self.full = self.starts[:-1] + self.shift  # first rows of runs among all rows
        self.size = int(n + self.shift[-1])

    def place(self, rows: IntArray) -> IntArray:
        """Return the places, among all rows, of some of the n rows, or of the row n after them."""
        return np.asarray(rows + self.shift[np.searchsorted(self.starts[1:-1], rows, side="right")])

    def before(self, row: int) -> int:
        """Return how many of the n rows come before a row among all rows."""
        run = int(np.searchsorted(self.full, row, side="right")) - 1
        return int(min(self.starts[run] + row - self.full[run], self.starts[run + 1]))


class Filled(Source):
    """Table (n, D) with rows of NaN put back."""

    def __init__(self, table: Any, gaps: Gaps) -> None:
        self.table, self.gaps = table, gaps
        self.shape, self.dtype = (gaps.size, table.shape[1]), np.dtype(np.float64)

    def read(self, first: int, last: int) -> Array:
        low, high = self.gaps.before(first), self.gaps.before(last)
        out = np.full((last - first, self.shape[1]), np.nan)
        if low < high:
            out[self.gaps.place(np.arange(low, high)) - first] = self.table[low:high]
        return out

    def where(self, row: int) -> str:
        stored = self.gaps.before(row)
        there = stored < len(self.table) and int(self.gaps.place(np.array([stored]))[0]) == row
        return str(self.table.where(stored)) if there else f"a row put back before {self.table.where(stored)}"


def fill(table: Any, gaps: Gaps) -> Any:
    """Return a table (n, D) with rows of NaN put back: as rows are read, or at once if it is in memory."""
    filled = Filled(table, gaps)
    return filled if isinstance(table, Source) else filled[:]


class FilledStamps(Source):
    """Stamps (n, 1) with those of missing rows put back, evenly between their neighbours."""

    def __init__(self, table: Any, gaps: Gaps) -> None:
        self.table, self.gaps = table, gaps
        self.shape, self.dtype = (gaps.size, 1), table.dtype
        edges = [plain(table[row - 1 : row + 1])[:, 0] for row in gaps.starts[1:-1].tolist()]
        self.edges = np.array(edges).reshape(-1, 2)  # stamps before and after each gap

    def read(self, first: int, last: int) -> npt.NDArray[Any]:
        rows, gaps = np.arange(first, last), self.gaps
        run = np.searchsorted(gaps.full, rows, side="right") - 1
        away = rows - gaps.full[run] - (gaps.starts[run + 1] - gaps.starts[run]) + 1  # rows after the last of the run
        out = np.zeros((last - first, 1), plain(np.empty(0, self.dtype)).dtype)
        gone = away > 0
        edges = self.edges[run[gone]]
        out[gone, 0] = between(edges[:, 0], edges[:, 1], away[gone], gaps.missing[run[gone]] + 1)
        low, high = gaps.before(first), gaps.before(last)
        if low < high:
            out[~gone] = plain(self.table[low:high])
        return out.view(self.dtype)

    def where(self, row: int) -> str:
        return str(self.table.where(self.gaps.before(row)))


def between(low: Any, high: Any, step: IntArray, steps: IntArray) -> npt.NDArray[Any]:
    """Return the stamps ``step`` of ``steps`` even steps from ``low`` to ``high``, without overflow."""
    if np.asarray(low).dtype.kind == "f":
        return np.asarray(low + (high - low) * (step / steps))
    whole, rest = np.divmod(high - low, steps)
    return np.asarray(low + whole * step + rest * step // steps)


class InMemory:
    """Stamps (n, 1) of an index in memory, as ``FilledStamps`` reads them."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values, self.dtype = values[:, None], values.dtype

    def __getitem__(self, rows: slice) -> npt.NDArray[Any]:
        return self.values[rows]


def fill_index(index: Any, gaps: Gaps) -> Any:
    """Return an index with the stamps of missing rows put back."""
    if gaps.index is not None:
        return gaps.index
    if isinstance(index, Times):
        return Times(FilledStamps(index.source, gaps), index.name, index.zone)
    by_day = getattr(index, "tz", None) is not None and is_daily(index)
    local = index.tz_localize(None) if by_day else index
    values = FilledStamps(InMemory(raw(local)), gaps)[:][:, 0]
    full = of_raw(local, values)
    if by_day:
        full = full.tz_localize(index.tz, ambiguous=np.ones(len(full), dtype=bool), nonexistent="shift_forward")
    return full


def is_daily(index: Any) -> bool:
    """Whether the usual step of an index is a whole number of days."""
    days = usual_step(index) / DAY
    return days > 1 - 2 * HOUR / DAY and abs(days - round(days)) * DAY < HOUR


def usual_step(index: Any) -> float:
    """Return the usual step of an index in memory, in seconds."""
    return typical_step(np.diff(since(raw(index)[0], raw(index), ticks_per_second(index))))


def usual_offset(index: Any) -> Any:
    """Return the usual step of an index of times as pandas takes it; None if there is none."""
    import pandas as pd

    step = usual_step(index)
    if not step > 0:
        return None
    if step > 0.9 * DAY and (found := calendar(index)) is not None and len(found[1]) == len(index):
        return found[0]
    if getattr(index, "tz", None) is not None and is_daily(index):
        return pd.DateOffset(days=round(step / DAY))
    return pd.Timedelta(seconds=step)


def of_raw(index: Any, values: npt.NDArray[Any]) -> Any:
    """Return an index of the kind of another one from what ``raw`` returns."""
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        kind: Any = pd.PeriodIndex
        return kind.from_ordinals(values, freq=index.freq, name=index.name)
    if isinstance(index, pd.DatetimeIndex):
        stamps = pd.DatetimeIndex(values.view(f"M8[{index.unit}]"), name=index.name)
        return stamps if index.tz is None else stamps.tz_localize("UTC").tz_convert(index.tz)
    if isinstance(index, pd.TimedeltaIndex):
        return pd.Index(values.view(f"m8[{index.unit}]"), name=index.name)
    return pd.Index(values, name=index.name)


# ---------------------------------------------------------------- calendars
def calendar(index: Any) -> tuple[Any, Any] | None:
    """Return the step of the calendar that an index of dates follows, and all dates of it; None if there is none.

    Steps are years, quarters, months and weekdays.
    """
    import pandas as pd

    if not isinstance(index, pd.DatetimeIndex):
        return None
    months = [offset for n in (12, 3, 1) for offset in (pd.DateOffset(months=n), pd.offsets.MonthEnd(n))]
    for offset in (*months, pd.offsets.BusinessDay()):
        dates = pd.date_range(index[0], index[-1], freq=offset, unit=index.unit, name=index.name)
        if index.isin(dates).all():
            return offset, dates
    return None


def calendars(index: Any, bounds: IntArray) -> Gaps | None:
    """Return the dates that are missing from sequences that follow a calendar; None if one of them does not."""
    late, missing, dates = [], [], []
    for low, high in pairwise(bounds.tolist()):
        own = index[low:high]
        if (found := (None, own) if high - low < 2 else calendar(own)) is None:
            return None
        gone = np.diff(found[1].get_indexer(own)) - 1
        late.append(low + 1 + np.flatnonzero(gone))
        missing.append(gone[gone > 0])
        dates.append(found[1])
    return Gaps(np.concatenate(late), np.concatenate(missing), len(index), dates[0].append(dates[1:]))


def calendar_gaps(indices: Sequence[Any], offsets: IntArray, bounds: IntArray, scan: Scan) -> list[Gaps] | None:
    """Return the dates that are missing from each part, if calendars explain the steps; otherwise None."""
    gaps = []
    for i, index in enumerate(indices):
        if isinstance(index, Times) and len(index) > LARGEST_CALENDAR:
            return None
        own = bounds[(bounds >= offsets[i]) & (bounds <= offsets[i + 1])] - offsets[i]
        if (found := calendars(index[:], own)) is None:
            return None
        gaps.append(found)
    missing = sum(one.size for one in gaps) - int(offsets[-1])
    return gaps if len(scan.uneven) > 0 or missing <= scan.missing.sum() else None


def continued(index: Any, n: int) -> Any:
    """Return the next n stamps after an index; None if its labels do not say what follows."""
    import pandas as pd

    last: Any = index[-min(len(index), PIECE) :]
    if last.nlevels > 1 or len(last) < 2:
        return None
    if isinstance(last, pd.PeriodIndex):
        return pd.period_range(last[-1], periods=n + 1, freq=last.freq, name=last.name)[1:]
    if hasattr(last, "asi8"):
        freq = last.freq or usual_offset(last)
        kind = pd.timedelta_range if last.dtype.kind == "m" else pd.date_range
        return None if freq is None else kind(last[-1], periods=n + 1, freq=freq, name=last.name)[1:]
    if last.dtype.kind not in "iuf":
        return None
    steps = np.diff(raw(last))
    even = steps[0] > 0 and np.allclose(steps, steps[0])
    return pd.Index(last[-1] + steps[0] * np.arange(1, n + 1), name=last.name) if even else None


# ---------------------------------------------------------------- a series
def examine(
    indices: Sequence[Any],
    bounds: IntArray,
    regular: bool | str,
    scan: Callable[[Sequence[Any], float], list[Scan]],
    place: Callable[[int], str],
    stamp: Callable[[int], Any],
) -> list[Gaps] | None:
    """Check the time stamps of a series, and return the rows to be put back in each part; None: there are none.

    Parameters
    ----------
    indices
        Index of each part, or None.
    bounds
        Boundaries of the sequences, each of which may begin at any time.
    regular
        True: steps must be even; "fill": but rows may be missing; False: time must not go back.
    scan
        Applies ``scan_steps`` to all rows, given what ``elapsed`` returns for each part, and the usual step.
    place, stamp
        As ``Series.place`` and ``Series.stamp``.
    """
    if not isinstance(regular, bool | np.bool_) and regular != "fill":
        raise ValueError(f'regular is {regular!r}; it must be True, False, or "fill" to put missing rows back.')
    parts = [elapsed(index) for index in indices]
    if any(part is None for part in parts):
        if regular == "fill":
            raise ValueError('regular is "fill" and y has no time index; give y a pandas.DatetimeIndex.')
        return None
    if all(map(is_even, indices)):
        return None
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    spaced = regular == "fill" or (bool(regular) and all(map(is_spaced, indices)))
    step = sampled_step(parts, offsets, bounds) if spaced else np.nan
    found = Scan(*map(np.concatenate, zip(*scan(parts, step), strict=True)))
    report = Finding(found, step, int(offsets[-1]), place, stamp, indices[0])
    report.check_order()
    if not spaced:
        return None
    gaps = None
    if len(found.uneven) + len(found.late) > 0 and step > 0.9 * DAY and not len(found.same):
        gaps = calendar_gaps(indices, offsets, bounds, found)
    if gaps is None:
        report.check_steps()
        gaps = [Gaps(*one) for one in in_parts(found, offsets)]
    if regular != "fill":
        late = np.concatenate([one.late + low for one, low in zip(gaps, offsets.tolist(), strict=False)])
        missing = np.concatenate([one.missing for one in gaps])
        dated = report._replace(has_dates=gaps[0].index is not None)
        dated._replace(scan=found._replace(late=late, missing=missing)).check_whole()
    return gaps


def in_parts(scan: Scan, offsets: IntArray) -> Iterator[tuple[IntArray, IntArray, int]]:
    """Yield what ``Gaps`` takes for each part: rows within it, how many are missing before them, and its length."""
    for low, high in pairwise(offsets.tolist()):
        mine = slice(*np.searchsorted(scan.late, [low, high]))
        yield scan.late[mine] - low, scan.missing[mine], high - low
