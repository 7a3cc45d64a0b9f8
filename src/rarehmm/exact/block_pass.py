"""One pass over a whole series, in blocks that run in SIMD lanes and in threads.

Blocks are warmed up over a halo, and the messages at their seams are compared: where they disagree by more than
``TOLERANCE``, the halo is lengthened; where even the longest is too short (a long gap, regimes that never mix),
messages are propagated from block to block in order.  Where forbidden transitions make probabilities below e^-300
matter, everything is computed in log space.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.checks import check_threads
from rarehmm.engine.contracts.family import Family
from rarehmm.engine.dispatch import explained
from rarehmm.engine.kernels.full_pass import Layout, Seams, Task, sweep
from rarehmm.engine.kernels.messages import Group, Point, group, split_sums, zeros
from rarehmm.engine.kernels.sequential import (
    log_backward,
    log_forward,
    repair_backward,
    repair_forward,
    underflow_matters,
)
from rarehmm.engine.lanes import LANES
from rarehmm.exact import blocks
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.densities import (
    add_constants,
    add_expected,
    constant_total,
    densities,
    prepared,
    row_ranges,
    sequence_starts,
)
from rarehmm.exact.statistics import n_statistics
from rarehmm.model.information import Information
from rarehmm.model.model import Model
from rarehmm.model.parameters import NO_COEFFICIENTS, Parameters
from rarehmm.model.stationary import stationary

TOLERANCE = 1e-10  # relative difference of messages at seams
EVERY = 4  # steps between normalisations
CACHE_BYTES = 1 << 20  # bytes of messages per group of lanes: half of a typical L2 cache
CAREFUL = 1e-60  # transitions more probable than this outweigh anything cut off at e^-300


class Expectations(NamedTuple):
    """Expected sufficient statistics of a series, given the parameters.

    Attributes
    ----------
    log_likelihood
        Log likelihood of the series.
    scores
        Expected sum of the family's scores (K, P).
    counts
        Expected number of observations (K,) in each state; only if statistics were requested.
    statistics
        Expected sum of the family's statistics (K, Q); only if requested.
    pairs
        Expected number of transitions (K, K) from state i to state j.
    first
        Expected number of sequences (K,) that start in each state.
    coefficients
        Derivatives (c,) of the log likelihood in the coefficients of inputs and lags.
    information
        Complete-data information, if it was requested.
    """

    log_likelihood: float
    scores: Array
    counts: Array
    statistics: Array
    pairs: Array
    first: Array
    coefficients: Array = NO_COEFFICIENTS
    information: Information | None = None


def messages_differ(u: Array, v: Array, tolerance: float) -> BoolArray:
    """Mask of the rows in which two sets of messages (n, K) differ in direction, by relative difference."""
    u, v = u / u.sum(1, keepdims=True), v / v.sum(1, keepdims=True)
    return np.asarray((np.abs(u - v) > tolerance * np.maximum(u, v)).any(1))


class _Workspace(threading.local):
    """Arrays that a thread reuses from one pass to the next, which saves page faults."""

    group: Group | None = None


_workspace = _Workspace()


def workspace(n: int, D: int, K: int) -> Group:
    """Group of lanes for at least n steps, private to this thread."""
    kept = _workspace.group
    if kept is None or len(kept.y) < n or kept.y.shape[1] != D or kept.p.shape[1] != K:
        kept = _workspace.group = group(n, D, K)
    return kept


class LogSpaceNeededError(ValueError):
    """Parameters at which a series must be processed in log space, which a sample of its blocks cannot be."""


class Pass:
    """One pass over a series at one set of parameters: plan blocks, find a halo that is long enough, repair the seams.

    Parameters
    ----------
    model, parameters, series
        What to compute.
    threads
        Number of threads; None: all available ones.
    sequential
        Whether to propagate messages in order from the start.
    back
        Whether to run backwards as well, for smoothing and expectations.
    with_statistics
        Whether to sum the family's statistics.
    probabilities
        Array (T, K) to fill with smoothed (with ``back``) or filtered probabilities.
    predictive
        Array (T,) to fill with predictive log densities.
    each
        Function from the sums (n, LANES) over the blocks of a group of lanes to a result for each block (LANES, ...).
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        series: Observations,
        threads: int | None,
        sequential: bool,
        back: bool = False,
        with_statistics: bool = False,
        probabilities: Array | None = None,
        predictive: Array | None = None,
        each: Callable[[Array], Array] | None = None,
    ) -> None:
        model.check(rows_in(series))
        check_threads(threads)
        self.model, self.series, self.point = model, rows_in(series), prepared(model, parameters)
        self.objective = objective_of(series)
        K, P = self.point.phi.shape
        self.threads, self.sequential, self.back = threads, sequential, back
        self.probabilities = np.empty((0, K)) if probabilities is None else probabilities
        self.predictive = np.empty(0) if predictive is None else predictive
        steps_matter = (len(self.probabilities) > 0 and not back) or len(self.predictive) > 0
        self.task = Task(0, 1 if steps_matter else EVERY, back, with_statistics)
        self.sizes, self.each = (K, P, n_statistics(model.family)), each
        self.largest = CACHE_BYTES // (2 * K * 8 * LANES)  # observations per block, unless halos are longer
        self.distribution = self.point.start if model.start is None else stationary(self.point.transition)

    def run(self) -> Expectations:
        """Process all blocks until the seams agree; fall back to log space where nothing else is safe."""
        if self.point.transition.min() < CAREFUL:
            self.task = self.task._replace(every=1)
            if self.underflow_matters():
                return self.in_log_space()
        results = None if self.sequential else self.with_halo()
        if results is None:
            self.repair_seams()
            results = self.run_chunks(self.parts, self.threads)
            if self.mark_seams(len(self.blocks.first), 100 * TOLERANCE) > 0:
                return self.in_log_space()
        if len(self.predictive) > 0:
            add_constants(self.model, self.series, self.predictive)
        values, sums, of_blocks = zip(*results, strict=True)
        if self.each is not None:
            order = np.concatenate([np.r_[part.blocks] for part in self.parts])
            self.of_blocks = np.concatenate(of_blocks)[np.argsort(order)]
        log_likelihood = float(np.sum(values)) + constant_total(self.model, self.series)
        scores, counts, parts, pairs, first = split_sums(np.sum(sums, axis=0), *self.sizes)
        return Expectations(log_likelihood, scores, counts, parts, pairs * self.point.transition, first)

    # ------------------------------------------------------------ forbidden transitions
    def underflow_matters(self) -> bool:
        """Whether transitions are so improbable that probabilities below e^-300 affect the result."""
        K = self.sizes[0]
        a, marked = np.ones(K), np.zeros(K, dtype=bool)
        stretches = row_ranges(self.series)
        return any(
            underflow_matters(self.logp(*r), self.point, sequence_starts(self.series, *r), a, marked) for r in stretches
        )

    def logp(self, low: int, high: int) -> Array:
        """Log densities of the rows [low, high) in each state."""
        return densities(self.model, self.point, self.series.read(low, high))

    def in_log_space(self) -> Expectations:
        """Compute everything in log space, step by step: much slower, but correct for any transition matrix."""
        if not self.objective.is_exact or self.each is not None:
            raise LogSpaceNeededError(
                "with these forbidden transitions hardly any path fits the series, so it must be processed in log "
                "space and in memory. Raise memory_limit, or use small probabilities, such as 1e-10, instead of zeros."
            )
        (K, P, Q), T = self.sizes, len(self.series)
        with np.errstate(divide="ignore"):
            log_transition, log_start = np.log(self.point.transition), np.log(self.point.start)
        filtered, predictive, top, before = np.empty((T, K)), np.empty(T), np.empty(T), np.zeros(K)
        for low, high in row_ranges(self.series):
            fresh, rows, logp = sequence_starts(self.series, low, high), slice(low, high), self.logp(low, high)
            top[rows] = logp.max(1)
            logp -= top[rows, None]
            log_forward(logp, log_transition, log_start, fresh, before, filtered[rows], predictive[rows])
        sums = split_sums(np.zeros(K * (P + Q + K + 2)), K, P, Q)
        scores, counts, parts, pairs, first = sums
        message = np.zeros(K)
        for low, high in reversed(row_ranges(self.series)) if self.back else ():
            fresh, rows, before = (
                sequence_starts(self.series, low, high),
                slice(low, high),
                filtered[max(low - 1, 0)].copy(),
            )
            logp = self.logp(low, high) - top[rows, None]
            log_backward(logp, log_transition, fresh, filtered[rows], predictive[rows], before, message, pairs)
            first += filtered[rows][fresh].sum(0)
            add_expected(
                self.model.family, self.point, self.series.read(low, high), filtered[rows], scores, counts, parts
            )
        if len(self.probabilities) > 0:
            self.probabilities[:] = filtered if self.back else np.exp(filtered)
        if len(self.predictive) > 0:
            self.predictive[:] = predictive + top
            add_constants(self.model, self.series, self.predictive)
        return Expectations(float((predictive + top).sum()) + constant_total(self.model, self.series), *sums)

    # ------------------------------------------------------------ blocks and halos
    def plans(self) -> Iterator[None]:
        """Set up blocks, chunks and initial seams, with longer and longer halos."""
        for found, halo in self.objective.plans(self.largest, len(self.probabilities) > 0):
            self.blocks = found
            self.task = self.task._replace(halo=0 if self.blocks.fresh.all() else halo)
            self.parts = blocks.chunks(self.blocks, self.task.halo, len(self.series))
            self.messages = np.ones((4, len(self.blocks.first), self.sizes[0]))
            self.messages[0] = self.distribution
            self.seams = Seams(*self.messages)
            yield

    def with_halo(self) -> list[Any] | None:
        """Results of all chunks if some halo is long enough at every seam; else None, with the failing blocks marked.

        Halos are tried on the first chunk.  The blocks of a sample have no neighbours to agree with.
        """
        for _ in self.plans():
            first = self.run_chunks(self.parts[:1], 1)
            count = self.parts[0].high
            if not self.objective.is_exact or self.mark_seams(count, TOLERANCE) <= 0.02 * count:
                break
        results = first + self.run_chunks(self.parts[1:], self.threads)
        if not self.objective.is_exact or self.mark_seams(len(self.blocks.first), TOLERANCE) == 0:
            return results
        return None

    def mark_seams(self, count: int, tolerance: float) -> int:
        """Mark those of the first ``count`` blocks whose halos miss their neighbours' messages; return how many.

        Predictions are compared, not filters: a state without mass still receives some from the others.
        """
        self.marks, self.marks_back = np.zeros((2, len(self.blocks.first)), dtype=bool)
        left, right, end, begin = (m[:count] for m in self.seams)
        joined, P = np.nonzero(~self.blocks.fresh[1:count])[0], self.point.transition
        self.marks[joined + 1] = messages_differ(left[joined + 1] @ P, end[joined] @ P, tolerance)
        if self.back:
            self.marks_back[joined] = messages_differ(right[joined], begin[joined + 1], tolerance)
        return int(self.marks.sum() + self.marks_back.sum())

    def repair_seams(self) -> None:
        """Propagate messages through the marked blocks in order, after which no halo is needed."""
        if self.sequential:
            *_, _ = self.plans()  # the longest halo
            self.marks, self.marks_back = np.ones((2, len(self.blocks.first)), dtype=bool)
        left, right, end, begin = self.seams
        fresh = self.blocks.fresh
        self.task = self.task._replace(halo=0)
        self.parts = blocks.chunks(self.blocks, 0, len(self.series))
        for chunk in self.parts:
            if (rows := self.marked_densities(chunk, self.marks)) is not None:
                repair_forward(rows[0], self.point, fresh, *rows[1:], TOLERANCE, end, self.marks)
        left[1:] = end[:-1]
        if self.back:
            self.marks_back |= self.marks  # other states may be reachable now
            for chunk in reversed(self.parts):
                if (rows := self.marked_densities(chunk, self.marks_back)) is not None:
                    repair_backward(rows[0], self.point, fresh, *rows[1:], TOLERANCE, left, begin, self.marks_back)
            right[:-1] = np.where(fresh[1:, None], 1.0, begin[1:])
            right[-1] = 1.0

    def marked_densities(self, chunk: blocks.Chunk, marks: BoolArray) -> tuple[Array, IntArray, IntArray, int] | None:
        """Log densities of a chunk, and where its blocks lie in them, in order of time; None if no block is marked."""
        members = slice(chunk.low, chunk.high)
        if not marks[members].any():
            return None
        rows = self.blocks.first[members] - chunk.first
        return self.logp(chunk.first, chunk.last), rows, self.blocks.length[members], chunk.low

    # ------------------------------------------------------------ chunks
    def run_chunks(self, parts: list[blocks.Chunk], threads: int | None) -> list[Any]:
        """Run the kernel over chunks, and store the messages at their seams.

        Returns log likelihoods, sums, and the results of ``each`` for the blocks.
        """
        longest = int(self.blocks.length.max()) + 2 * self.task.halo
        work = Sweep(self.model.family, self.model.name, self.point, self.task, self.sizes, longest, self.each)

        def arguments(chunk: blocks.Chunk) -> tuple[Any, ...]:
            rows = slice(chunk.first, chunk.last)
            local = np.ascontiguousarray(self.messages[:, chunk.blocks])
            return Layout(*self.blocks.within(chunk)), local, self.probabilities[rows], self.predictive[rows]

        fills = len(self.probabilities) + len(self.predictive) > 0
        found: list[Any] = blocks.map_chunks(self.series, parts, work, threads, arguments, run_locally=fills)
        for chunk, (_, _, _, local) in zip(parts, found, strict=True):
            self.messages[:, chunk.blocks] = local
        return [(value, sums, each) for value, sums, each, _ in found]


@dataclass(frozen=True)
class Sweep:
    """The work of a pass on one chunk, which can be sent to another process.

    ``each`` maps the sums (n, LANES) over the blocks of a group of lanes to a result for each block (LANES, ...).
    """

    family: Family
    name: str
    point: Point
    task: Task
    sizes: tuple[int, int, int]
    longest: int
    each: Callable[[Array], Array] | None

    def __call__(
        self, y: Array, layout: Layout, messages: Array, probabilities: Array, predictive: Array
    ) -> tuple[float, Array, Array | None, Array]:
        """Log likelihood, sums over lanes, results for each block, and the messages at the ends of blocks."""
        n, work = len(layout.first), workspace(self.longest, y.shape[1], self.sizes[0])
        value, total, of_blocks, step = 0.0, np.zeros(1), [], n if self.each is None else LANES
        for low in range(0, n, step):
            mine = slice(low, low + step)
            local = messages if step == n else np.ascontiguousarray(messages[:, mine])
            flat, sums = zeros(*self.sizes)
            with explained(self.name):
                value += sweep(
                    self.family, self.point, self.task, y, layout.of(mine), Seams(*local),
                    work, sums, probabilities, predictive,
                )  # fmt: skip
            messages[:, mine] = local
            total = total + flat.sum(-1)
            if self.each is not None:
                of_blocks.append(self.each(flat)[: len(local[0])])
        return value, total, np.concatenate(of_blocks) if of_blocks else None, messages
