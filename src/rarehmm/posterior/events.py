"""Rare events: stretches of a series in which a rare state is probable, as a table.

An event begins where the probability of the rare states together reaches ``threshold`` and ends where it falls below.
Two events closer than ``gap`` observations are one: a probability that flickers around the threshold is one event.
Events shorter than ``shortest`` are left out.  No event crosses from one sequence to the next.
"""

from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import STRETCH, Series

COLUMNS = ["start", "end", "duration", "peak", "peak_at", "state", "probability", "sequence"]


class Event(NamedTuple):
    """Rows [low, high), and the sums over them (R + 1,) of the probabilities of R rare states and of all together;
    ``since``: the sums over the rows after it that were seen, which a next event close by makes part of it."""

    low: int
    high: int
    total: Array
    since: Array


class Events:
    """Events of a series, from probabilities of its states that are added a stretch at a time, in order of time.

    ``rare``: the states that count; ``centre``: from where the most extreme observation is seen, by default the mean.
    """

    def __init__(
        self,
        series: Series,
        rare: IntArray,
        *,
        threshold: float = 0.5,
        gap: int = 2,
        shortest: int = 1,
        centre: float | None = None,
    ) -> None:
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold is {threshold}; a probability above 0, and 1 at most, is needed.")
        for name, value in (("gap", gap), ("shortest", shortest)):
            if value < 1:
                raise ValueError(f"{name} is {value}; a number of observations from 1 is needed.")
        self.series, self.rare, self.threshold, self.gap, self.shortest = series, rare, threshold, gap, shortest
        self.centre = series.summaries[0].mean if centre is None else centre
        self.found: list[dict[str, Any]] = []
        self.rows: list[tuple[int, int]] = []  # where they begin and end, the end not included
        self.open: Event | None = None  # one that may go on in the next stretch

    def add(self, first: int, probabilities: Array) -> None:
        """Probabilities (n, K) of the rows [first, first + n)."""
        last, bounds = first + len(probabilities), self.series.bounds
        mass = probabilities[:, self.rare]
        mass = np.column_stack([mass, np.minimum(mass.sum(1), 1.0)])  # (n, R + 1)
        above = np.concatenate([[False], mass[:, -1] >= self.threshold, [False]])
        joins = bounds[(bounds > first) & (bounds < last)] - first
        split = joins[above[joins] & above[joins + 1]]  # where an event ends and the next sequence begins with one
        low = first + np.union1d(np.flatnonzero(above[1:] > above[:-1]), split)
        high = first + np.union1d(np.flatnonzero(above[1:] < above[:-1]), split)
        sequence = np.searchsorted(bounds, low, side="right")
        near = (low[1:] - high[:-1] < self.gap) & (sequence[1:] == sequence[:-1])  # the event before
        low, high = low[np.append(True, ~near)[: len(low)]], high[np.append(~near, True)[: len(high)]]
        for begin, end in zip(low.tolist(), high.tolist(), strict=True):
            total = mass[begin - first : end - first].sum(0)
            if self.open is not None and self.reaches(self.open, begin):
                begin, total = self.open.low, total + self.open.total + mass[: begin - first].sum(0) + self.open.since
            else:
                self.close()
            self.open = Event(begin, end, total, np.zeros(len(total)))
        if self.open is not None and not self.reaches(self.open, last):
            self.close()
        elif self.open is not None:
            self.open = self.open._replace(since=self.open.since + mass[max(self.open.high - first, 0) :].sum(0))

    def reaches(self, event: Event, row: int) -> bool:
        """Whether an event that begins at a row is one with this one."""
        bounds = self.series.bounds
        return row - event.high < self.gap and row < bounds[np.searchsorted(bounds, event.high)]

    def close(self) -> None:
        """Note the open event, if any, with what the series was meanwhile."""
        event, self.open = self.open, None
        if event is None or event.high - event.low < self.shortest:
            return
        low, high, series = event.low, event.high, self.series
        most, peak, at = -np.inf, np.nan, low
        for first in range(low, high, STRETCH):
            y = series.read(first, min(first + STRETCH, high))[:, 0]
            away = np.where(np.isnan(y), -1.0, np.abs(y - self.centre))
            i = int(np.argmax(away))
            if away[i] > most:
                most, peak, at = away[i], y[i], first + i
        self.rows.append((low, high))
        self.found.append(
            {
                "start": series.stamp(low),
                "end": series.stamp(high - 1),
                "duration": high - low,
                "peak": float(peak),
                "peak_at": series.stamp(at),
                "state": int(self.rare[np.argmax(event.total[:-1])]),
                "probability": float(event.total[-1] / (high - low)),
                "sequence": int(np.searchsorted(series.bounds, low, side="right")) - 1,
            }
        )

    def table(self) -> Any:
        """A pandas DataFrame of the events, when all is added.

        ``start``, ``end`` (the last observation of the event) and ``peak_at`` are in the index of the data, or row
        numbers; ``duration`` counts observations; ``peak`` is the most extreme observation (of the first column), seen
        from ``centre``; ``state`` the most probable of the rare states over the event; ``probability`` the mean of
        theirs together.
        """
        import pandas as pd

        if not self.found:  # of the same types as one with rows
            stamp = self.series.stamp(0)
            one = dict.fromkeys(("start", "end", "peak_at"), stamp) | {"duration": 0, "peak": 0.0, "state": 0}
            return pd.DataFrame([one | {"probability": 0.0, "sequence": 0}], columns=COLUMNS).iloc[:0]
        return pd.DataFrame(self.found, columns=COLUMNS)
