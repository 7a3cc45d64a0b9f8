"""New rows: observations that arrive after a model was settled, with the inputs that it needs, checked on arrival."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.clocks import is_time, wall_seconds
from rarehmm.data.domains import Domain
from rarehmm.data.inputs import Inputs, check_zone
from rarehmm.data.rows import Rows, as_states
from rarehmm.data.stamps import DAY, LATE, Finding, elapsed, scan_steps
from rarehmm.data.summaries import LARGEST, scan_states
from rarehmm.data.tables import table
from rarehmm.data.zones import localized


class RowFormat(NamedTuple):
    """What the rows of a series look like.

    ``domains``: what each column of observations may hold; ``exog_names``: input columns of the series that was fitted;
    ``needed``: positions of those that the model reads; ``needs_clock``: whether seasons or trends follow the clock;
    ``has_times``: whether that is in seconds, and not a row number; ``n_states``; ``zone`` of local times, if they have
    one; ``step``: seconds between rows, NaN if they are not known; ``end``: the row number after those of the fit.
    """

    domains: tuple[Domain, ...]
    exog_names: tuple[str, ...]
    needed: tuple[int, ...]
    needs_clock: bool
    has_times: bool
    n_states: int
    zone: str | None = None
    step: float = np.nan
    end: int = 0

    @classmethod
    def of(cls, domains: tuple[Domain, ...], inputs: Sequence[Inputs], n_states: int) -> "RowFormat":
        """Format of the rows that a model with these inputs takes."""
        names = {one.exog_names for one in inputs if one.chosen}
        clocks = {(one.has_times, one.zone, one.end) for one in inputs if one.seasons or one.trends}
        if len(names) > 1 or len(clocks) > 1:
            raise ValueError(f"the inputs were made from series with different columns or clocks: {sorted(names)}.")
        has_times, zone, end = next(iter(clocks), (False, None, 0))
        step = next((one.seasons.grid.step for one in inputs if one.seasons and has_times), np.nan)
        return cls(domains, next(iter(names), ()), (), False, has_times, n_states, zone, step, end).reading(inputs)

    def reading(self, inputs: Sequence[Inputs]) -> "RowFormat":
        """Return the format of rows of which only these inputs are read."""
        needed = {i for one in inputs if one.chosen for i in one.chosen.positions}
        needs_clock = any(one.seasons or one.trends for one in inputs)
        return self._replace(needed=tuple(sorted(needed)), needs_clock=needs_clock)

    # ------------------------------------------------------------ rows
    def count(self, y: Any) -> int:
        """Number of rows of new observations: a number, or several of one row, are a single one."""
        return 1 if np.ndim(y) == 0 or (np.ndim(y) == 1 and len(self.domains) > 1) else len(y)

    def rows(
        self, y: Any, exog: Any, times: Any, states: Any, position: int, seen: int, last: Any = None
    ) -> tuple[Rows, Any]:
        """Check new observations, and return them with their inputs, their clock and their known states.

        Parameters
        ----------
        y
            Observations (n,) or (n, D), or a single one: a number, or (D,).  NaN is missing.
        exog
            Inputs (n, m); a table with at least the columns that are needed, by name; or those of a single row, (m,).
        times
            Times of the rows, or None if y has an index or the clock counts rows.
        states
            Known states (n,), -1 or NaN where unknown, or None.
        position, seen
            Number of earlier rows in the same sequence, and of all earlier rows, for messages.
        last
            Time of the row before, if it is known.

        Returns
        -------
        rows : Rows
            Of n rows, without ``states`` if none are known.
        index : pandas.DatetimeIndex or None
            Their times, if they have any.

        Raises
        ------
        ValueError
            If an input is missing, or a value cannot be used.
        """
        values, index = self._observations(y, seen)
        n = len(values)
        clock, stamps = (
            position + np.arange(n, dtype=float),
            self._times(index if times is None else times, n, seen, last),
        )
        if self.needs_clock and self.has_times:
            clock = wall_seconds(stamps)[:, 0]
        return Rows(values, self._inputs(exog, n, seen), clock, self._states(states, n, seen)), stamps

    def future(self, n: int, exog: Any, times: Any, position: int, seen: int) -> Rows:
        """Return n rows without observations, as ``rows`` does."""
        return self.rows(np.full((n, len(self.domains)), np.nan), exog, times, None, position, seen)[0]

    def _observations(self, y: Any, seen: int) -> tuple[Array, Any]:
        """Return observations (n, D), and their index if they have one."""
        D = len(self.domains)
        if np.ndim(y) == 0 or (np.ndim(y) == 1 and D > 1):
            y = np.reshape(y, (1, -1))
        values, index, _ = table(y, "y")
        found = np.ascontiguousarray(values[: len(values)], dtype=float)
        if found.shape[1] != D:
            raise ValueError(f"y has {found.shape[1]} columns and the model takes {D}; pass rows of {D} columns.")
        for d, domain in enumerate(self.domains):
            column = found[:, d]
            bad = ~np.isnan(column) & ~(domain.valid(column) & (np.abs(column) <= LARGEST))
            if bad.any():
                i = int(np.argmax(bad))
                raise ValueError(
                    f"{_place('y', i, seen, f'{d}' if D > 1 else None)} is {column[i]:g}; the family takes "
                    f"{domain.message}, up to {LARGEST:g}. Mark gaps with NaN."
                )
        return found, index

    def _times(self, times: Any, n: int, seen: int, last: Any) -> Any:
        """Times of n rows in the zone of the series that was fitted; None if they have none and need none."""
        follows = self.needs_clock and self.has_times
        if not follows and not is_time(times):
            return None
        if times is None:
            raise ValueError(
                "y has no time index and the series that was fitted had one; season and trend follow it. Pass y with a "
                "pandas.DatetimeIndex, or times=."
            )
        import pandas as pd

        index = times if is_time(times) else pd.DatetimeIndex(np.atleast_1d(times))
        if len(index) != n:
            raise ValueError(f"times has {len(index)} entries and there are {n} rows; pass one for each row.")
        if (gone := np.asarray(index.isna())).any():
            i = int(np.argmax(gone))
            raise ValueError(f"{_place('times', i, seen)} is missing (NaT); season and trend need it in every row.")
        if not follows:
            return index
        if index.tz is None and self.zone is not None:
            return localized(index, self.zone, lambda row: _place("times", row, seen), last, self.step)
        if index.tz is not None and self.zone is None:
            check_zone(index.tz, self.zone)
        return index if self.zone is None else index.tz_convert(self.zone)

    def _inputs(self, exog: Any, n: int, seen: int) -> Array:
        """Inputs (n, m), 0 in columns that the model does not read."""
        m, names = len(self.exog_names), [self.exog_names[i] for i in self.needed]
        out = np.zeros((n, m))
        if not names:
            return out
        columns = list(exog) if isinstance(exog, Mapping) or hasattr(exog, "columns") else None
        if exog is None or (columns is not None and not set(names) <= set(columns)):
            gone = ", ".join(repr(name) for name in names if columns is None or name not in columns)
            came = f" (exog has {', '.join(map(repr, columns))})" if columns else ""
            raise ValueError(f"future inputs missing: {gone}; pass exog= with one row for each new observation{came}.")
        if columns is not None:
            found = np.column_stack([np.atleast_1d(np.asarray(exog[name], dtype=float)) for name in names])
        else:
            given = np.asarray(exog, dtype=float)
            given = given.reshape(1 if given.ndim < 2 and n == 1 else np.atleast_1d(given).shape[0], -1)
            if given.shape[1] != m:
                raise ValueError(
                    f"exog has {given.shape[1]} columns and had {m} when the model was fitted; pass the columns "
                    f"{', '.join(map(repr, self.exog_names))}."
                )
            found = given[:, self.needed]
        if len(found) != n:
            raise ValueError(
                f"exog has {len(found)} rows and there are {n} observations; pass one row for each new observation."
            )
        bad = ~(np.abs(found) <= LARGEST)
        if bad.any():
            i, j = np.argwhere(bad)[0]
            raise ValueError(
                f"{_place('exog', int(i), seen, repr(names[j]))} is {found[i, j]}; an input is needed in every row, "
                f"finite and below {LARGEST:g}. Fill the gap, or correct the value."
            )
        out[:, self.needed] = found
        return out

    def _states(self, states: Any, n: int, seen: int) -> IntArray:
        """Known states (n,), or (0,) if there are none."""
        if states is None:
            return np.empty(0, np.int64)
        column = np.reshape(np.asarray(states, dtype=float), (-1, 1))
        if len(column) != n:
            raise ValueError(f"states has {len(column)} entries and there are {n} observations; they must correspond.")
        bad, _, known = scan_states(column)
        if bad is None and max(known, default=-1) >= self.n_states:
            row = int(np.argmax(column[:, 0] >= self.n_states))
            bad = row, float(column[row, 0])
        if bad is not None:
            raise ValueError(
                f"{_place('states', bad[0], seen)} is {bad[1]:g}; known states are whole numbers from 0 to "
                f"{self.n_states - 1}. Mark unknown ones with -1 or NaN."
            )
        return as_states(column)


def missing_before(index: Any, last: Any, step: float, regular: bool | str, seen: int) -> IntArray:
    """Return how many rows are missing before each of the new rows (n,), which have to follow the last one before.

    Parameters
    ----------
    index : pandas.DatetimeIndex
        Times of the new rows.
    last : pandas.Timestamp or None
        Time of the row before, if there is one.
    step : float
        Seconds between rows; NaN if they are not known.
    regular : bool or "fill"
        What is done about rows that are missing, repeated or not evenly spaced, as in ``Series``.
    seen : int
        Number of rows before, for messages.

    Raises
    ------
    ValueError
        If times go back, or if they are not as ``regular`` says.
    """
    if last is not None and (last.tzinfo is None) != (index.tz is None):
        raise ValueError(f"one of {last} and {index[0]}, which follows it, has a time zone; pass all times with it.")
    every = index if last is None else index.insert(0, last)
    lead = len(every) - len(index)
    scan = scan_steps(elapsed(every)[:], np.empty(0, np.int64), 0, step if regular else np.nan)
    if len(scan.late) > 0 and abs(step / DAY - 1) < LATE:  # weekends of weekdays
        dates = every.tz_localize(None).to_numpy().astype("M8[D]")
        apart = np.busday_count(dates[scan.late - 1], dates[scan.late]) > 1
        scan = scan._replace(late=scan.late[apart], missing=scan.missing[apart])
    report = Finding(
        scan, step, seen + len(index), lambda row: f"{_place('times', row - lead, seen)[:-1]}, at {every[row]})",
        lambda row: every[row], every,
    )  # fmt: skip
    report.check_order()
    if regular:
        report.check_steps()
    if regular != "fill":
        report.check_whole()
    missing = np.zeros(len(every), dtype=np.int64)
    missing[scan.late] = scan.missing
    return missing[lead:]


def joined_inputs(exog: Any, exog_transition: Any, n: int) -> Any:
    """Return the inputs of n new rows as one: the columns of observations, then those of transitions."""
    given = [one for one in (exog, exog_transition) if one is not None]
    if len(given) < 2:
        return given[0] if given else None
    named = [isinstance(one, Mapping) or hasattr(one, "columns") for one in given]
    if all(named):
        return {name: one[name] for one in given for name in one}
    if any(named):
        raise ValueError(
            "only one of exog and exog_transition has names of columns; pass both as tables with names, or both as "
            "arrays."
        )
    shape = (1, -1) if n == 1 else (n, -1)
    return np.column_stack([np.asarray(one, dtype=float).reshape(shape) for one in given])


def _place(name: str, row: int, seen: int, column: str | None = None) -> str:
    """Describe where a value of new rows is: ``exog[2, 'temp'] (row 1002 of the stream)``."""
    inside = f"{row}" if column is None else f"{row}, {column}"
    return f"{name}[{inside}] (row {seen + row} of the stream)"
