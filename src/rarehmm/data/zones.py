"""Local times and their zones; in the hour that occurs twice when clocks are put back, the order of rows decides."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import IntArray
from rarehmm.data.clocks import PER_SECOND
from rarehmm.data.stamps import LATE, typical_step


def localized(index: Any, zone: str, place: Callable[[int], str], last: Any = None, step: float | None = None) -> Any:
    """Return local times with their zone.

    Parameters
    ----------
    index : pandas.DatetimeIndex
        Local times.
    zone : str
        Name of the zone.
    place : callable
        Describes a row.
    last : pandas.Timestamp, optional
        Time of the row before the first.
    step : float, optional
        Usual step in seconds; by default that of these times.

    Returns
    -------
    pandas.DatetimeIndex

    Raises
    ------
    ValueError
        If a time does not exist, or occurs twice and the rows around it do not tell which one is meant.
    """
    first, second = (
        index.tz_localize(zone, ambiguous=np.full(len(index), summer), nonexistent="NaT") for summer in (True, False)
    )
    if (gone := np.asarray(first.isna() & ~index.isna())).any():
        row = int(np.argmax(gone))
        raise ValueError(
            f"{place(row)} is {index[row]}, which does not exist in {zone}, where clocks were put forward. Correct it, "
            "or give times with their offset, such as 2026-03-29 03:30+02:00."
        )
    twice = np.flatnonzero(np.asarray((first != second) & ~index.isna()))
    if len(twice) == 0:
        return first
    per_second = PER_SECOND[index.unit]
    local, early, late = (one.asi8 / per_second for one in (index, first, second))
    usual = typical_step(np.diff(local)) if step is None else step
    chosen, summer = early.copy(), np.ones(len(index), dtype=bool)
    for run in np.split(twice, np.flatnonzero(np.diff(twice) > 1) + 1):
        low, high = int(run[0]), int(run[-1]) + 1
        before = chosen[low - 1 : low] if low > 0 or last is None else np.array([last.timestamp()])
        found = turn(local[low:high], early[low:high], late[low:high], before, early[high : high + 1], usual)
        if found is None:
            raise ValueError(
                f"{place(low)} is {index[low]}, which occurs twice in {zone}, where clocks were put back, and the rows "
                "around it do not tell which one is meant. Give times with their offset, such as 2026-10-25 "
                "02:30+01:00, or leave out this hour."
            )
        summer[low + found : high] = False
        chosen[low + found : high] = late[low + found : high]
    return index.tz_localize(zone, ambiguous=summer)


def turn(
    local: npt.NDArray[Any], early: npt.NDArray[Any], late: npt.NDArray[Any], before: npt.NDArray[Any],
    after: npt.NDArray[Any], step: float,
) -> int | None:  # fmt: skip
    """Return how many rows of an hour that occurs twice are the first one; None if the rows do not tell.

    Time goes forward, and steps are even as far as possible.  ``before`` and ``after`` are the times of the rows around
    these, if there are any.
    """
    n = len(local)
    places: IntArray = 1 + np.flatnonzero(~(np.abs(np.diff(local) / step - 1) <= LATE))
    best: dict[int, list[int]] = {}
    for k in (0, *places.tolist(), n):
        steps = np.diff(np.concatenate([before, early[:k], late[k:], after]))
        if (steps > 0).all():
            uneven = int((np.abs(steps / step - 1) > LATE).sum())
            best.setdefault(uneven, []).append(k)
    least = best[min(best)] if best else []
    return least[0] if len(least) == 1 else None
