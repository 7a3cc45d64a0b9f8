"""Series: validated observations in one or several sequences, in memory or on disk, with NaN for missing values.

Observations may come with inputs (``exog``) and known states; all three are read one stretch of rows at a time.
"""

import copy
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_bytes, check_memory
from rarehmm.data import workers
from rarehmm.data.clocks import Clock, clock_of
from rarehmm.data.domains import REALS, Domain
from rarehmm.data.input_columns import input_columns
from rarehmm.data.rows import Rows, assemble
from rarehmm.data.sources.table import Source
from rarehmm.data.stamps import Gaps, Scan, examine, fill, fill_index, scan_steps
from rarehmm.data.summaries import LARGEST, Summary, Totals, scan_inputs, scan_rows, scan_states
from rarehmm.data.tables import Table, sequences, table

R = TypeVar("R")

STRETCH = 1 << 18  # rows read together
SAMPLE, PIECES = 1 << 16, 16  # rows from which correlations between columns are estimated, and their pieces


class Series:
    """Observations (T, D) in one or several independent sequences, validated and summarised on construction.

    Parameters
    ----------
    y : array-like, path, or list of either
        An array (T,) or (T, D); a pandas Series or DataFrame, or an xarray DataArray (their index is kept); or a list
        of such arrays, one per sequence.  A list of plain lists is a table, as in NumPy, if they are equally long, and
        a list of sequences otherwise.

        NaN marks a missing value.  How a row of several columns with some of them missing is used depends on the
        family: ``MultivariateGaussian`` and ``Product`` use the columns that are observed, other families treat the
        whole row as missing.

        These are never loaded into memory as a whole: a ``np.memmap``, a Zarr or Dask array, the result of
        ``open_source``, the path of a file (.npy, .parquet, .zarr), and a list of paths in chronological order, which
        form one sequence.
    lengths : sequence of int, optional
        Lengths of the sequences that are concatenated in ``y``; by default ``y`` is a single sequence.
    exog : optional
        Input columns (T, m), in any of the forms of ``y``; a list if ``y`` is a list of sequences.  Every value must be
        finite.  A pandas index must agree with that of ``y``; with ``regular="fill"``, missing rows may be there.
    exog_transition : optional
        Input columns on which transitions depend, in any of the forms of ``y``.  The step into a row uses those of that
        row.  ``RareHMM`` is fitted with ``exog`` for observations and with these for transitions.
    states : optional
        Known states (T,), in any of the forms of ``y``: whole numbers from 0, and -1 or NaN where the state is unknown.
    regular : bool or "fill"
        What is done about the times of rows.  True: they must be evenly spaced within each sequence, with no row
        missing or repeated.  "fill": missing rows are put back as gaps (NaN).  False: each row is one step of the
        model, whatever the time between rows, which must not go back.  Months, quarters, years and weekdays are even
        steps, and clocks may be changed for summer if times have their zone.  An index of numbers without a name holds
        labels, which only must not go back.
    memory_limit : int or str
        Approximate memory that a fit may use, in bytes or as text such as "512MB".  A series that needs more is
        processed block by block, with a random sample of blocks standing for the rest.
    executor : optional
        Where passes over the series run: a ``dask.distributed`` client, any executor with ``submit``, or None for
        threads.
    on_progress : callable
        Called as ``on_progress(done, total)`` while the series is read and validated.

    Attributes
    ----------
    bounds : ndarray of int, (S + 1,)
        Boundaries of the sequences: sequence s is ``[bounds[s], bounds[s + 1])``.
    index : pandas.Index, list or None
        The pandas index of ``y``, the times of its files, or None; for a list of sequences, a list of these.
    is_regular : bool
        Whether rows are evenly spaced as far as they have times: ``regular`` is not False.
    clock : Clock
        Time of each row as a number: seconds in local wall time, or row numbers within each sequence.
    names : tuple of str or None
        Names of the columns.
    exog_names : tuple of str
        Names of the input columns, by default ``x0``, ``x1``, ..., and ``z0``, ``z1``, ... for those of transitions;
        empty without inputs.
    observation_names, transition_names : tuple of str
        Names of the input columns that were given as ``exog`` and as ``exog_transition``.
    exog_parts : tuple
        Tables of inputs, one for each part of ``y``; empty without inputs.
    exog_summaries : tuple of Summary
        Summary statistics of the input columns.
    n_known : int
        Number of rows whose state is known.
    known_states : tuple of int
        States that are known somewhere, ascending.
    summaries : tuple of Summary
        Summary statistics, one per column.
    n_missing : int
        Number of rows in which every column is missing.

    Raises
    ------
    ValueError
        If a value is infinite, if all are missing, if an input is missing, if a known state is not a whole number, if
        times are not as ``regular`` says, or if shapes, ``lengths`` or indices do not agree.
    TypeError
        If ``y`` is not numeric.

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
        exog: Any = None,
        exog_transition: Any = None,
        states: Any = None,
        regular: bool | str = True,
        memory_limit: int | str = "1GB",
        executor: Any = None,
        on_progress: workers.OnPassProgress = workers.ignore_progress,
    ) -> None:
        self.memory_limit, self.executor = check_bytes("memory_limit", memory_limit), executor
        self.on_progress: workers.OnPassProgress = on_progress
        parts = sequences(y)
        if parts is not None and lengths is not None:
            raise ValueError("y is already a list of sequences; omit lengths, or pass one array.")
        tables = [table(part, f"y[{i}]") for i, part in enumerate(parts)] if parts else [table(y, "y")]
        widths = [t.values.shape[1] for t in tables]
        for i, width in enumerate(widths):
            if width != widths[0]:
                raise ValueError(
                    f"y[{i}] has {width} columns and y[0] has {widths[0]}; all sequences must have the same columns."
                )
        self.parts = tuple(t.values for t in tables)
        self.offsets = np.concatenate([[0], np.cumsum([len(p) for p in self.parts])]).astype(np.int64)
        self.bounds = self.offsets if lengths is None else _bounds(lengths, len(self))
        self.index = [t.index for t in tables] if parts else tables[0].index
        self.names = tables[0].names
        self._is_list, self.is_regular = parts is not None, bool(regular)
        self._memory: dict[Hashable, Any] = {}
        gaps = examine([t.index for t in tables], self.bounds, regular, self._scan_steps, self.place, self.stamp)
        self._check_room(gaps)
        given = self._beside(exog, "exog", gaps), self._beside(exog_transition, "exog_transition", gaps)
        titles = getattr(exog, "name", None), getattr(exog_transition, "name", None)  # of pandas Series
        columns = input_columns(*given, titles)
        self.exog_parts, self.exog_names, self.observation_names, self.transition_names = columns
        known = self._beside(states, "states", gaps)
        self._put_back(gaps)
        self.clock = clock_of(self.index if self._is_list else [self.index], self.bounds)
        self.state_parts = tuple(t.values for t in known)
        self.summaries, self.n_missing = self._scan()
        self.exog_summaries = self._scan_inputs() if self.exog_parts else ()
        self.n_known, self.known_states = self._scan_states() if known else (0, ())
        self.on_progress = workers.ignore_progress
        if self.n_missing == len(self):
            raise ValueError(f"all {len(self)} observations of y are missing (NaN); there is nothing to fit.")

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
        if self.exog_names:
            parts.append(f"{len(self.exog_names)} inputs" if len(self.exog_names) > 1 else "1 input")
        if self.n_known:
            parts.append(f"{self.n_known:,} known states" if self.n_known > 1 else "1 known state")
        return f"Series({', '.join(parts)})"

    @property
    def n_columns(self) -> int:
        """Number of columns, D."""
        return int(self.parts[0].shape[1])

    @property
    def n_sequences(self) -> int:
        """Number of independent sequences, S."""
        return len(self.bounds) - 1

    @property
    def has_times(self) -> bool:
        """Whether the clock is in seconds: ``y`` has a DatetimeIndex, or the times of its files."""
        return self.clock.has_times

    @property
    def states(self) -> Any:
        """Known states as given, one column per part of ``y``: a table (T, 1), a list of these, or None."""
        if not self.state_parts:
            return None
        return list(self.state_parts) if self._is_list else self.state_parts[0]

    @property
    def cores(self) -> tuple[IntArray, IntArray]:
        """First and last (exclusive) rows (S,) that count in each sequence: all rows do."""
        return self.bounds[:-1], self.bounds[1:]

    @property
    def origins(self) -> IntArray:
        """First rows (S,) of the sequences."""
        return self.bounds[:-1]

    @property
    def weights(self) -> Array:
        """Weights (S,) of the sequences: 1 each."""
        return np.ones(self.n_sequences)

    @property
    def in_memory(self) -> bool:
        """Whether all rows can be read at once without a copy."""
        part = self.parts[0]
        if not isinstance(part, np.ndarray):
            return False
        plain = part.dtype == np.float64 and part.flags.c_contiguous and part.flags.writeable
        return len(self.parts) == 1 and plain and not isinstance(part, np.memmap)

    def read(self, first: int, last: int) -> Array:
        """Read rows [first, last).

        Parameters
        ----------
        first, last : int
            The first row, and one past the last.

        Returns
        -------
        ndarray of float64, (last - first, D)
            C-contiguous; a view if the data have this form already, otherwise a copy.
        """
        return workers.read_parts(self.parts, self.offsets, first, last)

    def read_rows(self, first: int, last: int) -> Rows:
        """Read rows [first, last) with their inputs, clock and known states.

        Parameters
        ----------
        first, last : int
            The first row, and one past the last.

        Returns
        -------
        Rows
            Of which ``y`` is what ``read`` returns.
        """
        return self._assemble(*(workers.read_parts(*t, first, last) for t in self._tables()))

    def over(
        self,
        work: Callable[..., R],
        items: Sequence[workers.Item],
        threads: int | None = None,
        run_locally: bool = False,
    ) -> list[R]:
        """Apply a function to stretches of rows in parallel.

        Parameters
        ----------
        work : callable
            Called as ``work(rows, *item.given)`` for each item.
        items : sequence of Item
            Ranges of rows, with further arguments.
        threads : int, optional
            Number of threads; None for all cores.
        run_locally : bool
            Use threads of this process even if there is an ``executor``; ``work`` may then write to its arguments.

        Returns
        -------
        list
            The results, in the order of ``items``.
        """
        if self.executor is not None and not run_locally:
            return workers.on_workers(self.executor, self.parts, self.offsets, work, items, self.on_progress)
        return workers.in_threads(self.read, work, items, threads, self.on_progress)

    def over_rows(
        self,
        work: Callable[..., R],
        items: Sequence[workers.Item],
        threads: int | None = None,
        run_locally: bool = False,
    ) -> list[R]:
        """Apply a function to stretches of rows with their inputs, clock and known states, in parallel.

        Parameters
        ----------
        work : callable
            Called as ``work(rows, *item.given)`` for each item, with ``Rows``.
        items, threads, run_locally
            As for ``over``.

        Returns
        -------
        list
            The results, in the order of ``items``.
        """
        if self.executor is not None and not run_locally:
            return workers.tables_on_workers(
                self.executor, self._tables(), self._assemble, work, items, self.on_progress
            )
        return workers.in_threads(self.read_rows, work, items, threads, self.on_progress)

    @property
    def _assemble(self) -> Callable[..., Rows]:
        return functools.partial(assemble, bool(self.exog_parts), bool(self.state_parts))

    def _tables(self) -> list[workers.Parts]:
        """Tables of which ``Rows`` are assembled."""
        beside = [workers.Parts(parts, self.offsets) for parts in (self.exog_parts, self.state_parts) if parts]
        return [
            workers.Parts(self.parts, self.offsets), workers.Parts(self.clock.parts, self.clock.offsets), *beside
        ]  # fmt: skip

    def lengths_within(self, first: int, last: int) -> IntArray:
        """Return how many of the rows [first, last) lie in each sequence that they overlap."""
        joins = self.bounds[(self.bounds > first) & (self.bounds < last)]
        return np.diff(joins, prepend=first, append=last)

    def part(self, first: int, last: int) -> "Series":
        """Load rows [first, last) as a series of its own.

        The result has no index, is not validated again, and keeps the clock of its rows and the summaries of the whole
        series.
        """
        part = copy.copy(self)
        part.executor, part.on_progress, part._memory = None, workers.ignore_progress, {}
        part.parts, part.offsets = (self.read(first, last),), np.array([0, last - first])
        part.bounds = np.append(0, np.cumsum(self.lengths_within(first, last)))
        part.index, part._is_list = None, False
        part.clock = self.clock.part(first, last)
        part.exog_parts, part.state_parts = (
            (workers.read_parts(parts, self.offsets, first, last),) if parts else ()
            for parts in (self.exog_parts, self.state_parts)
        )
        return part

    def with_inputs_of(self, series: "Series", rows: Rows) -> "Series":
        """Return this series with the inputs, clock and known states of rows that were read from another one.

        They are not validated again, and the summaries of the inputs are those of the other series.
        """
        whole = copy.copy(self)
        whole.clock = Clock([rows.clock[:, None]], series.clock.has_times, series.clock.zone)
        whole.exog_parts = (rows.exog,) if series.exog_parts else ()
        whole.exog_names, whole.exog_summaries = series.exog_names, series.exog_summaries
        whole.observation_names, whole.transition_names = series.observation_names, series.transition_names
        whole.state_parts = (rows.states[:, None],) if series.state_parts else ()
        whole.n_known, whole.known_states = series.n_known, series.known_states
        return whole

    def without_observations(self) -> "Series":
        """Return this series with all observations missing: what is left are sequences, times and inputs."""
        empty = copy.copy(self)
        empty._memory, empty.offsets = {}, np.array([0, len(self)])
        empty.parts, empty.n_missing = (np.full((len(self), self.n_columns), np.nan),), len(self)
        if self.exog_parts:
            empty.exog_parts = (workers.read_parts(self.exog_parts, self.offsets, 0, len(self)),)
        empty.state_parts, empty.index, empty._is_list = (), None, False
        return empty

    def without_states(self) -> "Series":
        """Return this series without its known states."""
        free = copy.copy(self)
        free._memory, free.state_parts, free.n_known, free.known_states = {}, (), 0, ()
        return free

    def by_part(self, values: Array | IntArray, columns: Sequence[str] | None = None) -> Any:
        """Return values of all rows in the form of ``y``: a list of them if it is a list of sequences.

        Parameters
        ----------
        values : ndarray, (T, ...)
        columns : sequence of str, optional
            Names of their columns, for tables with the index of ``y``.

        Returns
        -------
        ndarray or pandas.DataFrame, or a list of these
        """
        parts, indices = np.split(values, self.offsets[1:-1]), self.index if self._is_list else [self.index]
        if columns is not None:
            import pandas as pd

            whole = [None if index is None else index[:] for index in indices]
            tables = [pd.DataFrame(part, index, list(columns)) for part, index in zip(parts, whole, strict=True)]
            return tables if self._is_list else tables[0]
        return parts if self._is_list else values

    def place(self, row: int, column: int | None = None) -> str:
        """Describe where an observation is, for error messages: ``y[17]``, ``y[3][17, 0]``, with its time and file."""
        inside = None if column is None or self.n_columns == 1 else f"{column}"
        return self._place_in("y", self.parts, row, inside)

    def stamp(self, row: int) -> Any:
        """Return the index label of a row; without an index, its number (within its part, for a list of sequences)."""
        _, local, index = self._within(row)
        return local if index is None else index[local]

    def _place_in(self, name: str, parts: Sequence[Any], row: int, column: str | None = None) -> str:
        """Describe where a value of y, of an input or of a known state is."""
        part, local, index = self._within(row)
        inside = f"{local}" if column is None else f"{local}, {column}"
        more = [] if index is None else [f"at {index[local]}"]
        if isinstance(stored := parts[part], Source):
            more.append(stored.where(local))
        at = f"{name}[{part}][{inside}]" if self._is_list else f"{name}[{inside}]"
        return at + (f" ({'; '.join(more)})" if more else "")

    def _beside(self, given: Any, name: str, gaps: Sequence[Gaps] | None) -> list[Table]:
        """Coerce inputs or known states to one table for each part of ``y``; an empty list if there are none.

        They may have the rows that are put back in ``y``; otherwise these are put back here too.
        """
        if given is None:
            return []
        parts = sequences(given)
        if (parts is not None) != self._is_list:
            y, other = ("a list of sequences", "one table") if self._is_list else ("one table", "a list of sequences")
            raise ValueError(f"y is {y} and {name} is {other}; pass {name} in the form of y.")
        if parts is not None and len(parts) != len(self.parts):
            raise ValueError(f"{name} has {len(parts)} sequences and y has {len(self.parts)}; they must correspond.")
        tables = []
        for i, one in enumerate([given] if parts is None else parts):
            place = f"[{i}]" if self._is_list else ""
            found, index = table(one, name + place), self.index[i] if self._is_list else self.index
            if gaps is not None and len(found.values) == gaps[i].size:
                index = fill_index(index, gaps[i])
            elif len(found.values) != len(self.parts[i]):
                raise ValueError(
                    f"{name}{place} has {len(found.values)} rows and y{place} has {len(self.parts[i])}; pass one row "
                    f"for each observation, such as {name}.reindex(y.index) with pandas."
                )
            _check_index(index, found.index, name + place)
            if gaps is not None and len(found.values) < gaps[i].size:
                found = found._replace(values=fill(found.values, gaps[i]))
            tables.append(found)
        widths = [t.values.shape[1] for t in tables]
        if name == "states" and max(widths) > 1:
            raise ValueError(f"states has {max(widths)} columns; pass one column of known states.")
        if len(set(widths)) > 1:
            i = next(i for i, width in enumerate(widths) if width != widths[0])
            raise ValueError(f"{name}[{i}] has {widths[i]} columns and {name}[0] has {widths[0]}; they must agree.")
        return tables

    def _check_room(self, gaps: Sequence[Gaps] | None) -> None:
        """Raise MemoryError if missing rows of tables in memory do not fit: a single wrong year may be a long hole."""
        for i, own in enumerate(gaps or ()):
            if len(own.missing) > 0 and not isinstance(self.parts[i], Source):
                row = int(self.offsets[i] + own.late[np.argmax(own.missing)])
                way_out = (
                    f"the longest hole is before {self.place(row)}. Correct its time, or pass both parts as a list."
                )
                check_memory(f"y with {own.missing.sum():,} missing rows", 8 * self.n_columns * own.size, way_out)

    def _put_back(self, gaps: Sequence[Gaps] | None) -> None:
        """Put missing rows back in ``y``, as NaN."""
        if gaps is None or sum(one.size for one in gaps) == len(self):
            return
        whole = Gaps(
            np.concatenate([one.late + low for one, low in zip(gaps, self.offsets.tolist(), strict=False)]),
            np.concatenate([one.missing for one in gaps]), len(self),
        )  # fmt: skip
        index = self.index if self._is_list else [self.index]
        filled = [fill_index(one, own) for one, own in zip(index, gaps, strict=True)]
        self.index = filled if self._is_list else filled[0]
        self.parts = tuple(fill(part, own) for part, own in zip(self.parts, gaps, strict=True))
        self.bounds, self.offsets = whole.place(self.bounds), whole.place(self.offsets)

    def _within(self, row: int) -> tuple[int, int, Any]:
        """Return the part that a row belongs to, its number within that part, and the index of that part."""
        part = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return part, int(row - self.offsets[part]), self.index[part] if self._is_list else self.index

    def check(self, domains: tuple[Domain, ...], who: str) -> None:
        """Raise ValueError unless the columns lie in the domains of a family; cached, so that it costs one pass.

        Parameters
        ----------
        domains : tuple of Domain
            What each column may hold.
        who : str
            Name of the family, for the error message.
        """
        if len(domains) != self.n_columns:
            raise ValueError(
                f"y has {self.n_columns} columns and {who} takes {len(domains)}. Select columns with y[:, i]; "
                "for several sequences pass a list of arrays, or lengths=."
            )
        if not all(d is REALS for d in domains):
            self.remember(domains, lambda: self._check_values(domains, who))

    def _check_values(self, domains: tuple[Domain, ...], who: str) -> None:
        for first, bad in zip(range(0, len(self), STRETCH), self.map(_FirstInvalid(domains)), strict=True):
            if bad is not None:
                row, column, value = bad
                raise ValueError(
                    f"{self.place(first + row, column)} is {value:g}; {who} takes {domains[column].message}. "
                    "Mark gaps with NaN, or choose another family."
                )

    def remember(self, key: Hashable, compute: Callable[[], R]) -> R:
        """Return ``compute()``, cached under ``key`` for the lifetime of the series."""
        if key not in self._memory:
            self._memory[key] = compute()
        value: R = self._memory[key]
        return value

    def strides(self) -> Iterator[tuple[int, Array]]:
        """Iterate over all rows in stretches of bounded size: (number of the first row, rows)."""
        for first in range(0, len(self), STRETCH):
            yield first, self.read(first, min(first + STRETCH, len(self)))

    def _scan(self) -> tuple[tuple[Summary, ...], int]:
        """Make one pass over all rows: reject infinities, count missing rows, summarise the columns."""
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

    def _scan_steps(self, parts: Sequence[Any], step: float) -> list[Scan]:
        """Make one pass over the stamps of all rows, given as seconds: look at the steps between them."""
        items, T = [], len(self)
        for first in range(0, T, STRETCH):
            low, last = max(first - 1, 0), min(first + STRETCH, T)
            joins = self.bounds[slice(*np.searchsorted(self.bounds, [low, last]))] - low
            items.append(workers.Item(low, last, (joins, low, step)))
        return self._over_parts(parts, scan_steps, items)

    def _scan_inputs(self) -> tuple[Summary, ...]:
        """Make one pass over the inputs: reject missing and infinite values, summarise the columns."""
        totals = [Totals() for _ in self.exog_names]
        for first, (bad, found) in zip(
            range(0, len(self), STRETCH), self._over_parts(self.exog_parts, scan_inputs), strict=True
        ):
            if bad is not None:
                row, column, value = bad
                what = "finite" if np.isinf(value) else f"below {LARGEST:g}"
                remedy = f"inputs must be {what}. Correct the value, or rescale the column."
                if np.isnan(value):
                    remedy = "an input is needed in every row. Fill the gap, or leave out the column."
                name = self.exog_names[column]
                table_name = "exog_transition" if name in self.transition_names else "exog"
                place = self._place_in(table_name, self.exog_parts, first + row, repr(name))
                raise ValueError(f"{place} is {value}; {remedy}")
            for total, more in zip(totals, found, strict=True):
                total.merge(more)
        return tuple(t.summary() for t in totals)

    def _scan_states(self) -> tuple[int, tuple[int, ...]]:
        """Make one pass over the known states: return in how many rows, and which."""
        known, every = 0, set[int]()
        for first, (bad, count, some) in zip(
            range(0, len(self), STRETCH), self._over_parts(self.state_parts, scan_states), strict=True
        ):
            if bad is not None:
                row, value = bad
                raise ValueError(
                    f"{self._place_in('states', self.state_parts, first + row)} is {value:g}; known states are whole "
                    "numbers from 0. Mark unknown ones with -1 or NaN."
                )
            known, every = known + count, every | some
        return known, tuple(sorted(every))

    def _over_parts(
        self, parts: Sequence[Any], work: Callable[..., R], items: Sequence[workers.Item] | None = None
    ) -> list[R]:
        """Return ``work(rows)`` for each stretch of a table beside y, in order."""
        T, read = len(self), functools.partial(workers.read_parts, parts, self.offsets)
        items = items or [workers.Item(low, min(low + STRETCH, T), ()) for low in range(0, T, STRETCH)]
        if self.executor is not None:
            return workers.on_workers(self.executor, parts, self.offsets, work, items, self.on_progress)
        return workers.in_threads(read, work, items, None, self.on_progress)

    def _together(self, summaries: tuple[Summary, ...]) -> tuple[Summary, ...]:
        """Add to the summaries the covariance of successive differences, estimated from a sample of rows."""
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
        """Call ``on_progress(done, total)`` during each pass over the series inside the ``with`` block."""
        self.on_progress, before = on_progress, self.on_progress
        try:
            yield
        finally:
            self.on_progress = before

    def map(self, work: Callable[[Array], R]) -> list[R]:
        """Return ``work(rows)`` for each stretch of rows, in order."""
        T = len(self)
        return self.over(work, [workers.Item(low, min(low + STRETCH, T), ()) for low in range(0, T, STRETCH)])


def in_memory(series: Series) -> Series:
    """Return a series whose rows can be read at once without a copy: the given one, or a loaded copy."""
    if series.in_memory and not any(isinstance(part, Source) for part in series.exog_parts + series.state_parts):
        return series
    rows = series.read_rows(0, len(series))
    loaded = Series(rows.y, np.diff(series.bounds), memory_limit=series.memory_limit)
    return loaded.with_inputs_of(series, rows)


@dataclass(frozen=True)
class _FirstInvalid:
    """Find the first value in a stretch that lies outside the domain of its column; None if all are valid."""

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
        raise ValueError(f"lengths is {lengths!r}; it must be a list of whole numbers, one per sequence.")
    if (sizes <= 0).any():
        i = int(np.argmax(sizes <= 0))
        raise ValueError(f"lengths[{i}] is {sizes[i]}; each sequence needs at least one observation.")
    if sizes.sum() != T:
        raise ValueError(f"lengths add up to {sizes.sum()} and y has {T} observations; they must agree.")
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _check_index(index: Any, other: Any, name: str) -> None:
    """Raise ValueError at the first row where the index of inputs or known states differs from that of y."""
    if index is None or other is None or index is other:
        return
    for first in range(0, len(index), STRETCH):
        mine, theirs = index[first : first + STRETCH], other[first : first + STRETCH]
        if mine.equals(theirs):
            continue
        differ = np.asarray(mine != theirs)
        if differ.any():
            row = int(np.argmax(differ))
            raise ValueError(
                f"the index of {name} differs from that of y in row {first + row}: {theirs[row]} and {mine[row]}. "
                f"Align them, for example with {name}.reindex(y.index), or pass {name} as an array."
            )
