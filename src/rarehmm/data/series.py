"""Series: the observations, checked once; one or several sequences, in memory or memory-mapped, NaN for missing."""

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_bytes
from rarehmm.data import workers
from rarehmm.data.domains import REALS, Domain
from rarehmm.data.sources.table import Source
from rarehmm.data.summaries import LARGEST, Summary, Totals, scan_rows
from rarehmm.data.tables import sequences, table

R = TypeVar("R")

STRETCH = 1 << 18  # rows read together
SAMPLE, PIECES = 1 << 16, 16  # rows by which columns are compared, and in how many pieces


class Series:
    """Observations (T, D) in one or several independent sequences, checked and summarised at the door.

    Parameters
    ----------
    y
        An array (T,) or (T, D); a pandas Series or DataFrame, or an xarray DataArray (their index is kept); or a list
        of such arrays, one for each sequence.  A list of plain lists is a table as in NumPy if they are equally long,
        else a list of sequences.  NaN marks a missing observation; in several columns a row with a NaN is missing.

        Never read into memory as a whole: a ``np.memmap``, an array of Zarr or Dask, what ``open_source`` returns, the
        path of a file (.npy, .parquet, .zarr), and a list of paths in order of time, which is one sequence.
    lengths
        Lengths of the sequences that follow each other in ``y``, if there are several.
    memory_limit
        Memory that a fit may use, roughly, in bytes or such as "512MB": a series for which more would be needed is
        gone over block by block, and drawn blocks of it stand for the rest.
    executor
        Who goes over the series: a ``dask.distributed`` client, any executor with ``submit``, or None for threads.
    watch
        ``watch(done, total)`` is told how far the first look at the series is.

    Attributes
    ----------
    bounds
        (S + 1,) where sequences begin and end: sequence s is ``[bounds[s], bounds[s + 1])``.
    index
        The pandas index of ``y``, the times of its files, or None; for a list of sequences, a list of them.
    names
        Names of the columns, or None.
    summaries
        One ``Summary`` for each column.
    n_missing
        Rows of which every column is missing.

    Examples
    --------
    >>> from rarehmm import Series
    >>> Series([[1.0, 2.0, float("nan")], [3.0, 4.0]])
    Series(5 observations, 2 sequences, 1 missing)
    """

    def __init__(
        self,
        y: Any,
        lengths: Sequence[int] | IntArray | None = None,
        *,
        memory_limit: int | str = "1GB",
        executor: Any = None,
        on_progress: workers.OnPassProgress = workers.ignore_progress,
    ) -> None:
        self.memory_limit, self.executor = check_bytes("memory_limit", memory_limit), executor
        self.on_progress: workers.OnPassProgress = on_progress
        several = sequences(y)
        if several is not None and lengths is not None:
            raise ValueError("y is a list of sequences already; leave lengths out, or pass one array.")
        tables = [table(part, f"y[{i}]") for i, part in enumerate(several)] if several else [table(y, "y")]
        widths = [t.values.shape[1] for t in tables]
        for i, width in enumerate(widths):
            if width != widths[0]:
                raise ValueError(f"y[{i}] has {width} columns and y[0] has {widths[0]}; sequences must have the same.")
        self.parts = tuple(t.values for t in tables)
        self.offsets = np.concatenate([[0], np.cumsum([len(p) for p in self.parts])]).astype(np.int64)
        self.bounds = self.offsets if lengths is None else _bounds(lengths, len(self))
        self.index = [t.index for t in tables] if several else tables[0].index
        self.names = tables[0].names
        self._several = several is not None
        self._memory: dict[Hashable, Any] = {}
        self.summaries, self.n_missing = self._scan()
        self.on_progress = workers.ignore_progress
        if self.n_missing == len(self):
            raise ValueError(f"all {len(self)} observations of y are missing (NaN); there is nothing to learn from.")

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_memory": {}}

    def __repr__(self) -> str:
        parts = [f"{len(self):,} observations"]
        if self.n_columns > 1:
            parts.append(f"{self.n_columns} columns")
        if self.n_sequences > 1:
            parts.append(f"{self.n_sequences} sequences")
        if self.n_missing:
            parts.append(f"{self.n_missing:,} missing")
        return f"Series({', '.join(parts)})"

    @property
    def n_columns(self) -> int:
        return int(self.parts[0].shape[1])

    @property
    def n_sequences(self) -> int:
        return len(self.bounds) - 1

    @property
    def cores(self) -> tuple[IntArray, IntArray]:
        """First and last (exclusive) rows (S,) of each sequence that count: all of them."""
        return self.bounds[:-1], self.bounds[1:]

    @property
    def origins(self) -> IntArray:
        """Where the sequences (S,) begin."""
        return self.bounds[:-1]

    @property
    def weights(self) -> Array:
        """Of the sequences (S,): one each."""
        return np.ones(self.n_sequences)

    @property
    def in_memory(self) -> bool:
        """Whether all rows can be read at once without a copy."""
        one = self.parts[0]
        if not isinstance(one, np.ndarray):
            return False
        plain = one.dtype == np.float64 and one.flags.c_contiguous and one.flags.writeable
        return len(self.parts) == 1 and plain and not isinstance(one, np.memmap)

    def read(self, first: int, last: int) -> Array:
        """Rows [first, last) as doubles (n, D) fit for kernels: a view where the data are that already, else a copy."""
        i, j = np.searchsorted(self.offsets, first, side="right") - 1, np.searchsorted(self.offsets, last)
        begins = self.offsets[i:j].tolist()
        pieces = [part[max(first - at, 0) : last - at] for part, at in zip(self.parts[i:j], begins, strict=True)]
        return workers.as_rows(pieces)

    def over(
        self,
        work: Callable[..., R],
        items: Sequence[workers.Item],
        threads: int | None = None,
        run_locally: bool = False,
    ) -> list[R]:
        """``work(rows, *given)`` for each item, with the rows that it needs; results in order.

        By the workers of the ``executor``, if there is one, or in threads ``here``, where work may write to arrays that
        it is given.
        """
        if self.executor is not None and not run_locally:
            return workers.on_workers(self.executor, self.parts, self.offsets, work, items, self.on_progress)
        return workers.in_threads(self.read, work, items, threads, self.on_progress)

    def lengths_within(self, first: int, last: int) -> IntArray:
        """How many of the rows [first, last) are in each sequence that they touch."""
        joins = self.bounds[(self.bounds > first) & (self.bounds < last)]
        return np.diff(joins, prepend=first, append=last)

    def part(self, first: int, last: int) -> "Series":
        """The rows [first, last), read now, as a series of their own without an index; they are checked already, and
        summaries remain those of the whole."""
        one = copy.copy(self)
        one.executor, one.on_progress, one._memory = None, workers.ignore_progress, {}
        one.parts, one.offsets = (self.read(first, last),), np.array([0, last - first])
        one.bounds = np.append(0, np.cumsum(self.lengths_within(first, last)))
        one.index, one._several = None, False
        return one

    def place(self, row: int, column: int | None = None) -> str:
        """How an error names an observation: ``y[17]``, ``y[3][17, 0]``, with its time and its file, if any."""
        part, local, index = self._within(row)
        inside = f"{local}" if column is None or self.n_columns == 1 else f"{local}, {column}"
        more = [] if index is None else [f"at {index[local]}"]
        if isinstance(stored := self.parts[part], Source):
            more.append(stored.where(local))
        return (f"y[{part}][{inside}]" if self._several else f"y[{inside}]") + (f" ({'; '.join(more)})" if more else "")

    def stamp(self, row: int) -> Any:
        """The label of a row in the index of the data; without one, its number (within its part, of a list)."""
        _, local, index = self._within(row)
        return local if index is None else index[local]

    def _within(self, row: int) -> tuple[int, int, Any]:
        """The part that a row belongs to, its number there, and the index of that part."""
        part = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return part, int(row - self.offsets[part]), self.index[part] if self._several else self.index

    def check(self, domains: tuple[Domain, ...], who: str) -> None:
        """Refuse a series that does not fit the columns of a family; remembered, so that it costs one look."""
        if len(domains) != self.n_columns:
            raise ValueError(
                f"y has {self.n_columns} columns and {who} takes {len(domains)}. Select columns with y[:, i]; "
                "for several sequences pass a list of arrays, or lengths=."
            )
        if not all(d is REALS for d in domains):
            self.remember(domains, lambda: self._check_values(domains, who))

    def _check_values(self, domains: tuple[Domain, ...], who: str) -> None:
        for first, bad in zip(range(0, len(self), STRETCH), self.map(_Fit(domains)), strict=True):
            if bad is not None:
                row, column, value = bad
                raise ValueError(
                    f"{self.place(first + row, column)} is {value:g}; {who} takes {domains[column].message}. "
                    "Mark gaps with NaN, or choose another family."
                )

    def remember(self, key: Hashable, compute: Callable[[], R]) -> R:
        """What ``compute`` returned the first time it was asked for under this key."""
        if key not in self._memory:
            self._memory[key] = compute()
        value: R = self._memory[key]
        return value

    def strides(self) -> Iterator[tuple[int, Array]]:
        """All rows, a stretch at a time: (number of the first, rows)."""
        for first in range(0, len(self), STRETCH):
            yield first, self.read(first, min(first + STRETCH, len(self)))

    def _scan(self) -> tuple[tuple[Summary, ...], int]:
        """One look at everything: refuse infinities, count what is missing, summarise the columns."""
        totals, missing = [Totals() for _ in range(self.n_columns)], 0
        items = []
        for first in range(0, len(self), STRETCH):
            low, last = max(first - 1, 0), min(first + STRETCH, len(self))
            joins = self.bounds[slice(*np.searchsorted(self.bounds, [low, last]))] - low
            items.append(workers.Item(low, last, (first - low, joins)))
        for first, (bad, gone, found) in zip(range(0, len(self), STRETCH), self.over(scan_rows, items), strict=True):
            if bad is not None:
                row, column, value = bad
                what = "finite. Mark gaps with NaN." if np.isinf(value) else f"below {LARGEST:g}. Rescale them."
                raise ValueError(f"{self.place(first + row, column)} is {value}; observations must be {what}")
            missing += gone
            for total, more in zip(totals, found, strict=True):
                total.merge(more)
        summaries = tuple(t.summary() for t in totals)
        return (self._together(summaries) if self.n_columns > 1 else summaries), missing

    def _together(self, summaries: tuple[Summary, ...]) -> tuple[Summary, ...]:
        """Summaries that know of each other, by some rows."""
        T, steps = len(self), []
        size = T if T <= SAMPLE else SAMPLE // PIECES
        for low in np.unique(np.linspace(0, T - size, PIECES).astype(int)).tolist():
            joins = self.bounds[(self.bounds > low) & (self.bounds < low + size)] - low
            steps.append(np.delete(np.diff(self.read(low, low + size), axis=0), joins - 1, axis=0))
        z = np.concatenate(steps)
        z = z[~np.isnan(z).any(1)]
        rough, few = np.array([s.roughness for s in summaries]), len(z) < 10 * self.n_columns
        noise = np.zeros((len(rough), len(rough))) if few else z.T @ z / (2 * len(z))
        noise[np.diag_indices(len(rough))] += np.where(np.diag(noise) > 0, 0.0, rough)
        return tuple(s._replace(column=i, noise=tuple(noise[i].tolist())) for i, s in enumerate(summaries))

    @contextmanager
    def reporting(self, on_progress: workers.OnPassProgress) -> Iterator[None]:
        """``watch(done, total)`` is told of each pass over the series."""
        self.on_progress, before = on_progress, self.on_progress
        try:
            yield
        finally:
            self.on_progress = before

    def map(self, work: Callable[[Array], R]) -> list[R]:
        """``work(rows)`` for stretches of STRETCH rows."""
        T = len(self)
        return self.over(work, [workers.Item(low, min(low + STRETCH, T), ()) for low in range(0, T, STRETCH)])


def in_memory(series: Series) -> Series:
    """A series whose rows can be read at once without a copy: itself, or its rows."""
    if series.in_memory:
        return series
    return Series(series.read(0, len(series)), np.diff(series.bounds), memory_limit=series.memory_limit)


@dataclass(frozen=True)
class _Fit:
    """Where, in a stretch, a value is that the columns of a family cannot have, if any."""

    domains: tuple[Domain, ...]

    def __call__(self, rows: Array) -> tuple[int, int, float] | None:
        for column, domain in enumerate(self.domains):
            y = rows[:, column]
            bad = ~domain.valid(y) & ~np.isnan(y)
            if bad.any():
                row = int(np.argmax(bad))
                return row, column, float(y[row])
        return None


def _bounds(lengths: Sequence[int] | IntArray, T: int) -> IntArray:
    try:
        sizes = np.asarray(lengths)
    except ValueError:
        sizes = np.empty((0, 0))
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or len(sizes) == 0:
        raise ValueError(f"lengths is {lengths!r}; it must be a list of whole numbers, one for each sequence.")
    if (sizes <= 0).any():
        i = int(np.argmax(sizes <= 0))
        raise ValueError(f"lengths[{i}] is {sizes[i]}; each sequence needs at least one observation.")
    if sizes.sum() != T:
        raise ValueError(f"lengths add up to {sizes.sum()} and y has {T} observations; they must agree.")
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
