"""What speaks for each event: the probability that it is real, when it began, and how surprising it is otherwise.

A probability near a half in each of ten rows says little of whether there was an event: that takes the joint
distribution of the states.  Paths of states are drawn from it, in the neighbourhood of events only, for each of several
draws of the parameters.  An event is real in a path that visits a rare state during it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.pieces import stretches
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import hook
from rarehmm.exact.complete_data import filtered_nodes, sample_nodes
from rarehmm.exact.passes import needs_edges, predictive_log_density
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.search.alternatives import remove_state

PATHS = 400  # paths that are drawn, fewer where there are many rows
FEWEST, STEPS = 40, 2e7  # fewest paths; steps of all paths together beyond which there are fewer
AROUND, FAR = 50, 200  # rows drawn on either side of an event, the second number where rows depend on earlier ones
AT_A_TIME = 200_000  # rows around events that are in memory at a time, with all their paths
INTERVAL = 0.05, 0.95  # probabilities of the ends of intervals


class Paths(NamedTuple):
    """Draws of the states in some rows of a series.

    ``rows`` (n,) are row numbers, ascending; ``fresh`` (n,) marks those that do not follow the row before them, and
    ``rare`` (S, n) whether each path is in a rare state.
    """

    rows: IntArray
    fresh: BoolArray
    rare: BoolArray

    def places(self, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        """Places in ``rows`` of the rows [low, high)."""
        return np.searchsorted(self.rows, low), np.searchsorted(self.rows, high - 1, side="right")


def draw_paths(
    rng: np.random.Generator, model: Model, points: list[Parameters], series: Series, rare: IntArray, low: IntArray,
    high: IntArray,
) -> Paths:  # fmt: skip
    """Draw paths of states given the series, in the rows [low[i], high[i]) and around them."""
    some, first, last = neighbourhoods(model, series, low, high)
    rows = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    fresh = np.zeros(len(rows), dtype=bool)
    fresh[some.bounds[:-1]] = True
    each = max(1, round(max(FEWEST, min(PATHS, STEPS / len(rows))) / len(points)))  # paths for each point
    free = replace(model, start=None) if model.start is not None else model
    is_rare = np.isin(free.unfolding.chain.node_state, rare)
    found = np.empty((len(points) * each, len(rows)), dtype=bool)
    for i, point in enumerate(points):
        here = point if free is model else free.natural(point.phi, point.transition, point.coefficients)
        work, filtered = filtered_nodes(free, here, some)
        for j in range(each):
            found[i * each + j] = is_rare[sample_nodes(rng.random(len(rows)), work, filtered)]
    return Paths(rows, fresh, found)


def neighbourhoods(model: Model, series: Series, low: IntArray, high: IntArray) -> tuple[Series, list[int], list[int]]:
    """The rows around [low[i], high[i]) as sequences of their own, and where these stretches begin and end."""
    around = FAR if needs_edges(model, series) else AROUND
    first, last = list[int](), list[int]()
    for a, b in zip(np.maximum(low - around, 0), np.minimum(high + around, len(series)), strict=True):
        if last and a <= last[-1]:
            last[-1] = max(int(b), last[-1])
        else:
            first.append(int(a))
            last.append(int(b))
    return stretches(series, np.array(first), np.array(last)), first, last


class Runs(NamedTuple):
    """Visits to rare states in paths: of each the path and its places [begin, end) in the rows."""

    path: IntArray
    begin: IntArray
    end: IntArray


def runs_of(paths: Paths) -> Runs:
    """All visits to rare states in paths."""
    before = np.zeros_like(paths.rare)
    before[:, 1:] = paths.rare[:, :-1]
    starts = paths.rare & (~before | paths.fresh)
    after = np.zeros_like(paths.rare)
    after[:, :-1] = paths.rare[:, 1:] & ~paths.fresh[1:]
    path, begin = np.nonzero(starts)
    return Runs(path, begin, np.nonzero(paths.rare & ~after)[1] + 1)


def visited(paths: Paths, low: IntArray, high: IntArray) -> BoolArray:
    """Whether each path (S, E) visits a rare state in the rows [low, high) (E,)."""
    a, b = paths.places(low, high)
    found = np.empty((len(paths.rare), len(low)), dtype=bool)
    for mine, path in zip(found, paths.rare, strict=True):
        count = np.concatenate([[0], np.cumsum(path)])
        mine[:] = count[b] > count[a]
    return found


def onsets(paths: Paths, low: IntArray, high: IntArray) -> IntArray:
    """Interval (2, E) of the row in which each event in the rows [low, high) (E,) began, if it is real.

    It began where the first visit to a rare state during the event did, which may be before the event.
    """
    a, b = paths.places(low, high)
    runs, n = runs_of(paths), len(paths.rows)
    key = runs.path * n + runs.end - 1  # ascending
    found = np.empty((2, len(low)), dtype=np.int64)
    every = np.arange(len(paths.rare)) * n
    for e in range(len(low)):
        number = np.minimum(np.searchsorted(key, every + a[e]), len(key) - 1) if len(key) > 0 else every[:0]
        mine = number[(runs.path[number] == np.arange(len(number))) & (runs.begin[number] < b[e])]
        begin = paths.rows[runs.begin[mine]]
        found[:, e] = np.quantile(begin, INTERVAL, method="inverted_cdf") if len(mine) > 0 else low[e]
    return found


# ---------------------------------------------------------------- surprise without the rare states
def evidence(model: Model, point: Parameters, series: Series, rare: IntArray, low: IntArray, high: IntArray) -> Array:
    """Sum (E,) over the rows [low, high) of the log density less that of the ordinary states alone, in nats."""
    if len(rare) >= model.n_states:
        return np.full(len(low), np.nan)
    some, first, last = neighbourhoods(model, series, low, high)
    return sums_between(surprise(model, point, some.without_states(), rare), first, last, low, high)


def evidence_by_column(
    model: Model, point: Parameters, series: Series, rare: IntArray, low: IntArray, high: IntArray
) -> dict[str, Array]:
    """Evidence from each column alone, by name, for families that take rows with missing columns."""
    partial = hook(model.family, "accepts_partial_rows") and model.autoregression is None
    if series.n_columns == 1 or not partial or len(rare) >= model.n_states:
        return {}
    some, first, last = neighbourhoods(model, series, low, high)
    y, found = some.read(0, len(some)), dict[str, Array]()
    rows = some.read_rows(0, len(some))
    for d, name in enumerate(series.names or range(series.n_columns)):
        alone = np.where(np.arange(series.n_columns) == d, y, np.nan)
        if not np.isnan(alone).all():
            one = Series(alone, np.diff(some.bounds)).with_inputs_of(some, rows).without_states()
            found[str(name)] = sums_between(surprise(model, point, one, rare), first, last, low, high)
    return found


def surprise(model: Model, point: Parameters, series: Series, rare: IntArray) -> Array:
    """Log density (T,) of each observation given those before it, less that of the ordinary states alone."""
    fewer, rest = model, point
    for k in sorted(rare.tolist(), reverse=True):
        fewer, rest = remove_state(fewer, rest, k)
    every = predictive_log_density(model, point, series)
    return every - predictive_log_density(fewer, rest, series)


def sums_between(values: Array, first: Sequence[int], last: Sequence[int], low: IntArray, high: IntArray) -> Array:
    """Sums (E,) over rows [low, high) of values (n,), which are those of the stretches [first, last) in turn."""
    rows = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)])
    total = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(total[np.searchsorted(rows, high - 1, side="right")] - total[np.searchsorted(rows, low)])


# ---------------------------------------------------------------- a table
def with_evidence(
    table: Any, rng: np.random.Generator, model: Model, points: list[Parameters], point: Parameters, series: Series,
    rare: IntArray, rows: list[tuple[int, int]],
) -> Any:  # fmt: skip
    """Add what speaks for each event to a table of events, and the expected number of false alarms to its ``attrs``.

    ``rows`` are the first row of each event and one past its last; ``points`` are draws of the parameters, and
    ``point`` their mean.
    """
    if not rows:
        stamp = table["start"]
        more = {"real": np.zeros(0), "evidence": np.zeros(0), "rank": np.zeros(0, dtype=np.int64)}
        found = table.assign(**more, onset_low=stamp, onset_high=stamp)
        found.attrs["expected_false_alarms"] = 0.0
        return found
    parts = [evidence_for(rng, model, points, point, series, rare, *ends) for ends in groups(rows)]
    real, strength, onset = (np.concatenate([part[i] for part in parts], axis=-1) for i in range(3))
    order = np.lexsort((-strength, -real) if np.isnan(strength).any() else (-real, -strength))
    rank = np.empty(len(rows), dtype=np.int64)
    rank[order] = np.arange(1, len(rows) + 1)
    stamps = [[series.stamp(row) for row in end.tolist()] for end in onset]
    found = table.assign(real=real, evidence=strength, rank=rank, onset_low=stamps[0], onset_high=stamps[1])
    for name in parts[0][3]:
        found[f"evidence[{name}]"] = np.concatenate([part[3][name] for part in parts])
    found.attrs["expected_false_alarms"] = float((1 - real).sum())
    return found


def with_enough(table: Any, least: float) -> Any:
    """The events of a table that have at least this evidence, ranked anew."""
    found = table[table["evidence"] >= least].reset_index(drop=True)
    found["rank"] = found["rank"].rank().astype(np.int64)
    found.attrs = {**table.attrs, "expected_false_alarms": float((1 - found["real"]).sum())}
    return found


def evidence_for(
    rng: np.random.Generator, model: Model, points: list[Parameters], point: Parameters, series: Series, rare: IntArray,
    low: IntArray, high: IntArray,
) -> tuple[Array, Array, IntArray, dict[str, Array]]:  # fmt: skip
    """Of events in rows [low, high): the probability that each is real, evidence, onsets, and evidence by column."""
    paths = draw_paths(rng, model, points, series, rare, low, high)
    strength = evidence(model, point, series, rare, low, high)
    columns = evidence_by_column(model, point, series, rare, low, high)
    return visited(paths, low, high).mean(0), strength, onsets(paths, low, high), columns


def groups(rows: list[tuple[int, int]]) -> Iterator[tuple[IntArray, IntArray]]:
    """First rows of events and one past their last, in groups of which each has about ``AT_A_TIME`` rows."""
    low, high = np.array(rows, dtype=np.int64).T
    group = np.cumsum(high - low + 2 * FAR) // AT_A_TIME
    for cut in np.split(np.arange(len(low)), np.flatnonzero(np.diff(group)) + 1):
        yield low[cut], high[cut]
