"""Rare events: stretches of a series in which a rare state is probable, as a table.

An event starts where the total probability of the rare states reaches ``threshold`` and ends where it falls below.
Events less than ``gap`` observations apart are merged, so that a probability that flickers around the threshold makes
one event.  Events shorter than ``shortest`` are dropped.  No event spans two sequences.
"""

from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import STRETCH, Series

COLUMNS = ["start", "end", "duration", "peak", "peak_at", "state", "probability", "sequence"]


class Event(NamedTuple):
    """An event in rows [low, high) that may still grow.

    ``total`` (R + 1,) sums the probabilities of each of the R rare states, and of all of them, over its rows; ``since``
    sums them over the rows read after it, which become part of it if the next event is close enough to be merged.
    """

    low: int
    high: int
    total: Array
    since: Array


class Events:
    """Collects the events of a series from state probabilities that are added one stretch at a time, in order.

    Parameters
    ----------
    series : Series
        The observations.
    rare : ndarray of int
        The states that count as rare.
    threshold : float
        Total probability of the rare states at which an event starts.
    gap : int
        Events fewer than this many observations apart are merged.
    shortest : int
        Shortest event that is kept, in observations.
    centre : float, optional
        Level from which the peak is measured; by default the mean of the first column.
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
            raise ValueError(f"threshold is {threshold}; it must be a probability above 0 and at most 1.")
        for name, value in (("gap", gap), ("shortest", shortest)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be a number of observations, 1 or more.")
        self.series, self.rare, self.threshold, self.gap, self.shortest = series, rare, threshold, gap, shortest
        self.centre = series.summaries[0].mean if centre is None else centre
        self.found: list[dict[str, Any]] = []
        self.rows: list[tuple[int, int]] = []  # first row of each event, and one past its last
        self.highest = 0.0  # probability of the rare states
        self.open: Event | None = None  # the event that may continue in the next stretch

    def add(self, first: int, probabilities: Array) -> None:
        """Add the probabilities (n, K) of rows [first, first + n), which must follow the rows added before."""
        last, bounds = first + len(probabilities), self.series.bounds
        mass = probabilities[:, self.rare]
        mass = np.column_stack([mass, np.minimum(mass.sum(1), 1.0)])  # (n, R + 1)
        self.highest = max(self.highest, float(mass[:, -1].max(initial=0.0)))
        above = np.concatenate([[False], mass[:, -1] >= self.threshold, [False]])
        joins = bounds[(bounds > first) & (bounds < last)] - first
        split = joins[above[joins] & above[joins + 1]]  # an event ends here, and the next sequence starts with one
        low = first + np.union1d(np.flatnonzero(above[1:] > above[:-1]), split)
        high = first + np.union1d(np.flatnonzero(above[1:] < above[:-1]), split)
        sequence = np.searchsorted(bounds, low, side="right")
        near = (low[1:] - high[:-1] < self.gap) & (sequence[1:] == sequence[:-1])  # merged with the event before
        low, high = low[np.append(True, ~near)[: len(low)]], high[np.append(~near, True)[: len(high)]]
        for start, end in zip(low.tolist(), high.tolist(), strict=True):
            total = mass[start - first : end - first].sum(0)
            if self.open is not None and self.reaches(self.open, start):
                start, total = self.open.low, total + self.open.total + mass[: start - first].sum(0) + self.open.since
            else:
                self.close()
            self.open = Event(start, end, total, np.zeros(len(total)))
        if self.open is not None and not self.reaches(self.open, last):
            self.close()
        elif self.open is not None:
            self.open = self.open._replace(since=self.open.since + mass[max(self.open.high - first, 0) :].sum(0))

    def reaches(self, event: Event, row: int) -> bool:
        """Return whether an event that starts at ``row`` is merged with this one."""
        bounds = self.series.bounds
        return row - event.high < self.gap and row < bounds[np.searchsorted(bounds, event.high)]

    def close(self) -> None:
        """Record the open event, if any, with its peak."""
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

    def reason(self) -> str:
        """Why there is no event, and what would make one."""
        if self.highest < self.threshold:
            return (
                f"there are no events: the probability of the rare states is {self.highest:.3g} at most, and threshold "
                f"is {self.threshold:g}. A lower threshold lists where it is highest."
            )
        return f"there are no events of {self.shortest} observations or more; choose a smaller value of shortest."

    def table(self) -> Any:
        """Return the events as a pandas DataFrame, once all probabilities have been added.

        ``start``, ``end`` (the last observation of the event) and ``peak_at`` are labels of the index of the data, or
        row numbers; ``duration`` counts observations; ``peak`` is the observation of the first column farthest from
        ``centre``; ``state`` is the most probable rare state over the event; ``probability`` is the mean total
        probability of the rare states.
        """
        import pandas as pd

        if not self.found:  # an empty table whose columns have the same types
            stamp = self.series.stamp(0)
            row = dict.fromkeys(("start", "end", "peak_at"), stamp) | {"duration": 0, "peak": 0.0, "state": 0}
            return pd.DataFrame([row | {"probability": 0.0, "sequence": 0}], columns=COLUMNS).iloc[:0]
        return pd.DataFrame(self.found, columns=COLUMNS)
