"""Rare events: stretches of a series in which a rare state is probable, as a table.

An event begins where the probability of the rare states together reaches ``threshold`` and ends where it falls below.
Two events closer than ``gap`` observations are one: a probability that flickers around the threshold is one event.
Events shorter than ``shortest`` are left out.  No event crosses from one sequence to the next.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from rarehmm.series import Array, IntArray, Series

COLUMNS = ["start", "end", "duration", "peak", "peak_at", "state", "probability", "sequence"]


def stretches_above(probability: Array, bounds: IntArray, threshold: float, gap: int, shortest: int) -> IntArray:
    """Where events begin and end, (n, 2), the end not included."""
    found = []
    for low, high in pairwise(bounds):
        above = np.concatenate([[False], probability[low:high] >= threshold, [False]])
        edges = np.flatnonzero(above[1:] != above[:-1]).reshape(-1, 2)  # (n, 2)
        if len(edges) == 0:
            continue
        apart = np.append(True, edges[1:, 0] - edges[:-1, 1] >= gap)  # from the event before
        begins, ends = edges[apart, 0], edges[np.append(apart[1:], True), 1]
        keep = ends - begins >= shortest
        found.append(low + np.column_stack([begins, ends])[keep])
    return np.concatenate(found) if found else np.empty((0, 2), dtype=np.int64)


def event_table(
    series: Series,
    probabilities: Array,
    rare: IntArray,
    *,
    threshold: float = 0.5,
    gap: int = 2,
    shortest: int = 1,
    centre: float | None = None,
) -> Any:
    """A pandas DataFrame of events, from probabilities (T, K) of the states of a series.

    ``start``, ``end`` (the last observation of the event) and ``peak_at`` are in the index of the data, or row numbers;
    ``duration`` counts observations; ``peak`` is the most extreme observation (of the first column), seen from
    ``centre``, by default the mean of the series; ``state`` the most probable of the rare states over the event;
    ``probability`` the mean of theirs together.
    """
    import pandas as pd

    if not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; a probability above 0, and 1 at most, is needed.")
    for name, value in (("gap", gap), ("shortest", shortest)):
        if value < 1:
            raise ValueError(f"{name} is {value}; a number of observations from 1 is needed.")
    together = np.minimum(probabilities[:, rare].sum(1), 1.0)
    centre, rows = series.summaries[0].mean if centre is None else centre, []
    for low, high in stretches_above(together, series.bounds, threshold, gap, shortest):
        y = series.read(low, high)[:, 0]
        away = np.where(np.isnan(y), -1.0, np.abs(y - centre))
        at = low + int(np.argmax(away))
        rows.append(
            {
                "start": series.stamp(low),
                "end": series.stamp(high - 1),
                "duration": int(high - low),
                "peak": float(y[at - low]),
                "peak_at": series.stamp(at),
                "state": int(rare[np.argmax(probabilities[low:high][:, rare].sum(0))]),
                "probability": float(together[low:high].mean()),
                "sequence": int(np.searchsorted(series.bounds, low, side="right")) - 1,
            }
        )
    if not rows:  # of the same types as one with rows
        stamp = series.stamp(0)
        one = dict.fromkeys(("start", "end", "peak_at"), stamp) | {"duration": 0, "peak": 0.0, "state": 0}
        return pd.DataFrame([one | {"probability": 0.0, "sequence": 0}], columns=COLUMNS).iloc[:0]
    return pd.DataFrame(rows, columns=COLUMNS)
