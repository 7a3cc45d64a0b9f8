"""Log likelihoods of many points at once for models whose rows differ, and for samples of blocks.

Each lane is a point (``engine.kernels.batched_edges``).  A stretch of rows is prepared once for all points: what does
not depend on them is its observations, its input columns, which rows have all of their lags, where sequences and blocks
begin, and the weights of rows.  Time runs from the first row to the last; of a block only what comes before its core
and the core itself are read, and the filter starts anew in each block.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.contracts.family import columns, prepare
from rarehmm.engine.dispatch import explained
from rarehmm.engine.kernels.batched_edges import (
    CONTINUES,
    RESUMES,
    LaneChain,
    LanePoints,
    LaneState,
    SharedRows,
    advance_edges,
    lane_state,
)
from rarehmm.engine.kernels.lags import COMPLETE, NOTHING
from rarehmm.engine.lanes import LANES, lane_array
from rarehmm.exact.block_pass import CAREFUL, EVERY
from rarehmm.exact.block_sample import BEFORE, BlockSample, Observations, objective_of, rows_in
from rarehmm.exact.densities import ranges_between
from rarehmm.exact.edge_pass import FAR, NEGLIGIBLE
from rarehmm.model.autoregression import AroundLevel, Hamilton, memories
from rarehmm.model.effects import BLOCKS, Effects, mixed_log_scale
from rarehmm.model.model import Model
from rarehmm.model.stationary import stationary
from rarehmm.model.unfolding import Unfolding

STRETCH_BYTES = 1 << 20  # of a stretch of the rows that points share: half of a typical L2 cache
FEWEST = 1 << 10  # rows of a stretch, however many columns there are
KEPT_BYTES = 1 << 27  # limit on such rows that are kept from one call to the next
LONGEST_GAP = 1 << 14  # steps since the last observed value for which there is a table of autocorrelations


def fits_lanes(model: Model, series: Observations) -> bool:
    """Whether values of a model given a series can be computed in lanes.

    Not in Hamilton's form, where each kind of density has lags of its own; not if transitions depend on inputs in a way
    that kernels do not know; and not where other machines hold the rows.
    """
    effects = model.every_effect
    known = effects.slopes is None or effects.regresses
    return known and not isinstance(effects.autoregression, Hamilton) and rows_in(series).executor is None


class Stretch(NamedTuple):
    """Rows that all points share, and the inputs (b, q) of transitions where sequences begin in them."""

    shared: SharedRows
    begins: Array


class BatchedEdges:
    """Log likelihoods of a model given a series or a sample of blocks, for many points; see ``fits_lanes``."""

    def __init__(self, model: Model, series: Observations) -> None:
        self.rows = rows_in(series)
        self.model = model = model.on(self.rows)
        self.effects: Effects = model.every_effect
        self.unfolding: Unfolding = model.unfolding
        self.is_exact = objective_of(series).is_exact
        bounds = self.rows.bounds
        self.core = series.cores if isinstance(series, BlockSample) else (bounds[:-1], bounds[1:])
        self.weights, self.resumes = np.asarray(series.weights), np.asarray(series.origins) <= BEFORE
        self.order = np.argsort(self.unfolding.chain.target, kind="stable")  # of edges
        self.chain = lane_chain(self.unfolding, self.order)
        effects, D = self.effects, columns(model.family)
        inputs = effects.location, effects.switching, effects.scale, effects.slopes
        width = 3 + 3 * D + sum(part.size for part in inputs if part)
        self.length = max(FEWEST, STRETCH_BYTES // (8 * width))  # rows of a stretch
        self.careful = len(self.chain.first_kind) > model.n_states or not model.fixed_values.allowed.all()
        few = 8 * width * len(self.rows) <= KEPT_BYTES
        self.kept = list(self._stretches()) if few else []
        self.longest_gap = self._longest_gap() if effects.fills_gaps else 0

    @property
    def fits(self) -> bool:
        """Whether gaps are short enough."""
        return self.longest_gap <= LONGEST_GAP

    def _longest_gap(self) -> int:
        """Largest number of steps since the last observed value, over all rows that count."""
        if self.rows.n_missing == 0:
            return self.effects.reach
        return max(int(shared.marks.max(initial=0)) for shared, _ in self.stretches())

    def is_tiny(self, theta: Array) -> BoolArray:
        """Mask of the points (n,) some of whose transitions are all but impossible, or might be with inputs."""
        transition = np.where(self.model.fixed_values.allowed, self.model.unpack_all(theta)[1], 1.0)
        slopes = self.effects.block("slopes", self.model.unpack_coefficients(theta))
        steepest = np.abs(slopes).sum(1).max((1, 2), initial=0.0)
        return np.asarray(transition.min((1, 2)) * np.exp(-2 * FAR * steepest) < CAREFUL)

    def log_likelihoods(self, theta: Array) -> Array:
        """Log likelihoods (n,) at points (n, d) within bounds; NaN where what was cut off may matter."""
        groups = [Lanes(self, theta[i : i + LANES]) for i in range(0, len(theta), LANES)]
        with explained(self.model.name):
            for stretch in self.stretches():
                for group in groups:
                    group.advance(stretch)
        return np.concatenate([group.found for group in groups])

    # ------------------------------------------------------------ rows
    def stretches(self) -> Iterable[Stretch]:
        """The rows that count, and those before them, in stretches, which are kept if they are few."""
        return self.kept or self._stretches()

    def _stretches(self) -> Iterator[Stretch]:
        last: list[tuple[int, int]] = [(-1, -1)] * self.rows.n_columns  # observed, and missing row in each column
        for low, high in ranges_between(0, len(self.rows), self.length):
            stretch = self._stretch(low, high, last)
            if len(stretch.shared.y) > 0:
                yield stretch

    def _stretch(self, low: int, high: int, last: list[tuple[int, int]]) -> Stretch:
        """The rows [low, high); ``last`` is updated."""
        rows, effects, bounds = self.rows.read_rows(low, high), self.effects, self.rows.bounds
        t, first = np.arange(low, high), np.searchsorted(bounds, low, side="right") - 1
        lengths = self.rows.lengths_within(low, high)
        block = np.repeat(np.arange(first, first + len(lengths)), lengths)  # of each row
        y, values, marks = self._lags(rows.y, t, bounds[block], last)
        begin = np.where(t == bounds[block], 1, CONTINUES)
        if self.resumes.any():
            late = t - bounds[block] - effects.reach
            begin[self.resumes[block]] = CONTINUES
            begin[self.resumes[block] & (late == 0)] = RESUMES
            y = np.where((self.resumes[block] & (late < 0))[:, None], np.nan, y)
        weight = np.where(t >= self.core[0][block], self.weights[block], 0.0)
        used = slice(None) if self.is_exact else np.flatnonzero(t < self.core[1][block])
        begin, weight, kept = begin[used], weight[used], rows if self.is_exact else rows.at(used)
        settle = np.ones(len(begin), dtype=bool)
        settle[:-1] = (np.arange(1, len(begin)) % EVERY == 0) | (begin[1:] != CONTINUES) | (weight[1:] != weight[:-1])
        none = np.zeros((len(begin), 0))
        design = [part.design(kept) if part else none for part in (effects.location, effects.switching, effects.scale)]
        slopes, begins = none, np.zeros((0, 0))
        if effects.slopes:
            slopes = effects.slopes.design(kept)
            begins = slopes[begin > 0]
            begin[begin > 0] = np.arange(1, len(begins) + 1)
        label = kept.states if len(kept.states) > 0 else np.zeros(0, dtype=np.int64)
        shared = (y[used], values[used], *design, slopes, marks[used], label, begin, weight, settle)
        return Stretch(SharedRows(*(np.ascontiguousarray(part) for part in shared)), begins)

    def _lags(
        self, y: Array, t: IntArray, begin: IntArray, last: list[tuple[int, int]]
    ) -> tuple[Array, Array, IntArray]:
        """Rows t of which those that lack lags are missing, what lags are taken of, and marks."""
        effects, p = self.effects, self.effects.reach
        if p == 0:
            return y, y[:, :0], np.zeros((len(y), 0), dtype=np.int64)
        values, marks, out = y.copy(), np.full(y.shape, NOTHING), y.copy()
        for d in effects.moves.predicted:
            values[:, d] = effects.lagged_values(y[:, d], None, d)
            seen = ~np.isnan(y[:, d])
            mark, last[d] = marks_of(seen, t, begin, p, last[d])
            counts = mark == COMPLETE
            if effects.fills_gaps:
                counts = counts | (t - begin >= p) if effects.conditional else np.ones(len(y), dtype=bool)
                mark = np.where(counts & seen, mark, COMPLETE)
            out[~counts, d] = np.nan
            marks[:, d] = mark
        return out, values, marks


def marks_of(
    seen: BoolArray, t: IntArray, begin: IntArray, p: int, last: tuple[int, int]
) -> tuple[IntArray, tuple[int, int]]:
    """Marks of rows t (n,), as in ``kernels.lags``, and the last observed and the last missing row so far.

    ``begin`` (n,) is the first row of the sequence of each.
    """
    here = np.maximum.accumulate(np.where(seen, t, last[0]))
    gone = np.maximum.accumulate(np.where(seen, last[1], t))
    observed, missing = np.append(last[0], here[:-1]), np.append(last[1], gone[:-1])
    complete = t - np.maximum(missing, begin - 1) > p
    marks = np.where(observed >= begin, t - observed, NOTHING)
    return np.where(complete, COMPLETE, marks), (int(here[-1]), int(gone[-1]))


def lane_chain(unfolding: Unfolding, order: IntArray) -> LaneChain:
    """The chain with its edges in this order, which is that of their targets."""
    chain = unfolding.chain
    first = np.searchsorted(chain.target[order], np.arange(len(chain.first_kind) + 1))
    return LaneChain(
        first, chain.source[order], chain.kind[order], chain.entry[order], chain.first_kind, chain.state, chain.before
    )


# ---------------------------------------------------------------- points
class Lanes:
    """Up to LANES points, which run through the rows together; idle lanes repeat the last one."""

    def __init__(self, job: BatchedEdges, theta: Array) -> None:
        self.job, self.n = job, len(theta)
        model, effects = job.model, job.effects
        theta = theta[np.minimum(np.arange(LANES), len(theta) - 1)]
        self.phi, self.transition = model.unpack_all(theta)
        self.coefficients = model.unpack_coefficients(theta)
        self.points = self._points()
        self.row = np.empty((1, self.points.c.shape[1]))
        offsets = 0
        if effects.location or effects.switching or effects.autoregression:
            offsets = model.n_states if effects.switching or effects.switches("lags") else 1
        around = isinstance(effects.autoregression, AroundLevel) and effects.switching
        D, U = columns(model.family), len(job.chain.state)
        self.state: LaneState = lane_state(self.points, D, U, offsets, model.n_states if around else 0)
        for doubt in (self.state.lost, self.state.worst):
            doubt[:] = -1e300

    @property
    def found(self) -> Array:
        """Log likelihoods (n,) of the rows so far; NaN where what was cut off may matter."""
        total, doubt = self.state.total[0, : self.n], self.state.worst[0, : self.n]
        return np.where(doubt > NEGLIGIBLE, np.nan, total)

    def advance(self, stretch: Stretch) -> None:
        """Filter a stretch of rows."""
        job, points = self.job, self.points
        if len(stretch.begins) > 0:
            points = points._replace(starts=self._starts(stretch.begins))
        advance_edges(
            job.model.family, self.phi, self.row, job.chain, stretch.shared, points, self.state, job.careful
        )  # fmt: skip

    def _starts(self, z: Array) -> Array:
        """Distributions (b, M, LANES) of the first nodes of sequences that begin in rows with these inputs (b, q)."""
        job, slopes = self.job, self.job.effects.block("slopes", self.coefficients)
        each = zip(self.transition, slopes, strict=True)
        matrices = np.array([job.model.transitions.matrices(P, own, z) for P, own in each])  # (LANES, b, K, K)
        return in_lanes(self._first_nodes(matrices))

    def _first_nodes(self, transition: Array) -> Array:
        """Distributions (..., M) of first nodes where transition matrices are (..., K, K)."""
        unfolding, start = self.job.unfolding, self.job.model.start
        given = stationary(transition) if start is None else np.broadcast_to(start, transition.shape[:-1])
        return unfolding.start(given, start is None)

    def _points(self) -> LanePoints:
        """Parameters in the form that kernels read."""
        job, model, effects = self.job, self.job.model, self.job.effects
        D, K, chain = columns(model.family), model.n_states, job.chain
        block = {name: effects.block(name, self.coefficients) for name in BLOCKS}
        location, switching = (self._of_columns(block[name]) for name in ("location", "switching"))
        lags = self._of_columns(block["lags"])  # (LANES, order, D, 1 or K)
        level, share = np.zeros((LANES, len(chain.state), D)), np.zeros((LANES, 0, D))
        if isinstance(effects.autoregression, AroundLevel):
            share = np.swapaxes(np.broadcast_to(lags.sum(1), (LANES, D, K)), 1, 2)
            for d in effects.moves.predicted:
                level[..., d] = self.phi[:, chain.before, effects.moves.level[d]]
        distribution = stationary(self.transition)
        correlation, spread, first = self._gaps(distribution)
        return LanePoints(
            c=lane_array(K, len(prepare(model.family, self.phi[0, 0]))),
            weight=in_lanes(job.unfolding.weights(self.transition)[:, job.order]),
            starts=in_lanes(self._first_nodes(self.transition)[:, None]),
            rest=in_lanes(job.unfolding.start(distribution, True)),
            level=in_lanes(level),
            location=in_lanes(location[..., 0]),
            switching=in_lanes(_flat(switching)),
            scale=in_lanes(block["scale"][..., None]),
            lags=in_lanes(_flat(lags)),
            share=in_lanes(share),
            correlation=in_lanes(correlation),
            spread=in_lanes(spread),
            first=in_lanes(first),
            base=in_lanes(self.transition.reshape(LANES, K * K)),
            slopes=in_lanes(_flat(block["slopes"])),
        )

    def _of_columns(self, values: Array) -> Array:
        """Coefficients (LANES, p, D, 1 or K) from those of the columns with a predictor (LANES, p, C, ...)."""
        values = values if values.ndim == 4 else values[..., None]
        out = np.zeros((*values.shape[:2], columns(self.job.model.family), values.shape[3]))
        out[:, :, self.job.effects.moves.predicted] = values
        return out

    def _gaps(self, distribution: Array) -> tuple[Array, Array, Array]:
        """Correlations and log scales (LANES, h) after gaps, and log scales (LANES, K) of first values, if needed."""
        effects, K = self.job.effects, self.job.model.n_states
        if not effects.fills_gaps:
            return np.zeros((LANES, 0)), np.zeros((LANES, 0)), np.zeros((LANES, 0))
        phi = effects.block("lags", self.coefficients)[:, :, 0, 0]
        correlation, spread, R2 = memories(phi, self.job.longest_gap)
        first = np.repeat(spread[:, :1], K, axis=1)
        if effects.mixed_start:
            variance = self.phi[..., np.flatnonzero(effects.moves.power)[0]]
            first = mixed_log_scale(variance, R2, distribution, self.transition)
        return correlation, spread, first


def _flat(values: Array) -> Array:
    """Values (LANES, p, a, b) as (LANES, p, a b)."""
    return values.reshape(*values.shape[:2], values.shape[2] * values.shape[3])


def in_lanes(values: Array) -> Array:
    """Values (LANES, ...) with lanes as the last axis."""
    out = lane_array(*values.shape[1:])
    out[:] = np.moveaxis(values, 0, -1)
    return out
