"""The threshold of events from what is wanted of them: the best F1, a precision, or a ratio of costs.

For each of several thresholds, paths of states drawn given the series say how many of its alarms are real and how many
visits to rare states it misses.  Nothing but the posterior is needed.  Where states are known, they take the place of
paths, and alarms are those of a model that does not know them: there, the choice is made on labels.
"""

import re
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.posterior.event_evidence import draw_paths, runs_of, visited

FAINT = 0.02  # smallest probability of the rare states that is looked at
THRESHOLDS = np.array(
    [0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85,
     0.9, 0.925, 0.95, 0.97, 0.98, 0.99]
)  # fmt: skip
CRITERION = re.compile(r"(f1|precision|cost)(?:\s*=\s*([0-9.eE+-]+))?")


class Criterion(NamedTuple):
    """What is wanted of events: ``name`` is "f1", "precision" or "cost", and ``value`` its number."""

    name: str
    value: float


def criterion_of(threshold: str) -> Criterion:
    """What is wanted of events, from its text.

    Parameters
    ----------
    threshold : str
        "f1", "precision=0.9" or "cost=10".

    Returns
    -------
    Criterion

    Raises
    ------
    ValueError
        If it is none of these.
    """
    found = CRITERION.fullmatch(threshold.strip().lower())
    try:
        name, value = ("", 0.0) if found is None else (found[1], float(found[2] or 0.0))
    except ValueError:
        name, value = "", 0.0
    if not ((name == "f1" and value == 0) or (name == "precision" and 0 < value < 1) or (name == "cost" and value > 0)):
        raise ValueError(
            f"threshold is {threshold!r}; pass a probability, 'f1' for the best F1 by event, 'precision=0.9' for a "
            "share of real events, or 'cost=10' if a missed event costs ten times as much as a false one."
        )
    return Criterion(name, value)


class Candidates:
    """Collects the rows in which the rare states have some probability, one stretch at a time."""

    def __init__(self, rare: IntArray) -> None:
        self.rare, self.rows, self.values = rare, list[IntArray](), list[Array]()
        self.rest = 0.0  # sum of the probabilities in all other rows

    def add(self, first: int, probabilities: Array) -> None:
        """Add the probabilities (n, K) of rows [first, first + n)."""
        total = probabilities[:, self.rare].sum(1)
        mine = np.flatnonzero(total >= FAINT)
        self.rows.append(first + mine)
        self.values.append(total[mine])
        self.rest += float(total.sum() - total[mine].sum())


class Choice(NamedTuple):
    """A threshold and what the posterior expects of its events: shares of real and of found ones, and numbers."""

    threshold: float
    precision: float
    recall: float
    events: int
    false_alarms: float
    missed: float

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.precision * self.recall / max(self.precision + self.recall, 1e-300)


def expected_scores(
    rng: np.random.Generator, model: Model, points: list[Parameters], series: Series, candidates: Candidates, *,
    gap: int, shortest: int,
) -> list[Choice]:  # fmt: skip
    """What the posterior expects of the events of each threshold that has any."""
    rows, values = np.concatenate(candidates.rows), np.concatenate(candidates.values)
    if len(rows) == 0:
        return []
    low, high = intervals(rows, series, 1, 1)
    paths = draw_paths(rng, model, points, series, candidates.rare, low, high)
    runs, found = runs_of(paths), []
    length = (runs.end - runs.begin).mean() if len(runs.path) > 0 else 1.0
    true = len(runs.path) / len(paths.rare) + candidates.rest / length  # expected number of visits
    for threshold in THRESHOLDS:
        low, high = intervals(rows[values >= threshold], series, gap, shortest)
        if len(low) == 0:
            continue
        a, b = paths.places(low, high)
        alarm = np.zeros(len(paths.rows) + 1, dtype=np.int64)
        np.add.at(alarm, a, 1)
        np.add.at(alarm, b, -1)
        alarmed = np.concatenate([[0], np.cumsum(np.cumsum(alarm)[:-1])])
        hit = float((alarmed[runs.end] > alarmed[runs.begin]).sum()) / len(paths.rare)
        real = float(visited(paths, low, high).mean(0).sum())
        scores = real / len(low), float(min(1.0, hit / max(true, 1e-300)))
        found.append(Choice(float(threshold), *scores, len(low), len(low) - real, float(max(true - hit, 0.0))))
    return found


def intervals(rows: IntArray, series: Series, gap: int, shortest: int) -> tuple[IntArray, IntArray]:
    """Events [low, high) that are made of rows (n,), ascending: those fewer than ``gap`` rows apart are merged."""
    if len(rows) == 0:
        return rows, rows
    sequence = np.searchsorted(series.bounds, rows, side="right")
    ends = (np.diff(rows) > gap) | (np.diff(sequence) > 0)
    low, high = rows[np.append(True, ends)], rows[np.append(ends, True)] + 1
    kept = high - low >= shortest
    return low[kept], high[kept]


def chosen(criterion: Criterion, choices: list[Choice]) -> Choice | None:
    """The choice that a criterion prefers, or None if there is no event at any threshold.

    If no threshold has the precision that is wanted, the one with the highest is returned.
    """
    if not choices:
        return None
    if criterion.name == "f1":
        return max(choices, key=lambda one: one.f1)
    if criterion.name == "cost":
        return min(choices, key=lambda one: criterion.value * one.missed + one.false_alarms)
    precise = [one for one in choices if one.precision >= criterion.value]
    return max(precise, key=lambda one: one.recall) if precise else max(choices, key=lambda one: one.precision)
