"""One pass over a whole series for models whose rows differ: inputs, autoregression, phases, known states.

It has the interface of ``block_pass.Pass``, and works in the same way: blocks are warmed up over a halo, the messages
at their seams are compared, and repaired in order where even the longest halo is too short.  What differs is that a
chunk is read with the earlier rows that its lags need, that columns are computed next to its observations, and that the
derivatives in these columns lead back to the coefficients.  Where probabilities below e^-300 may matter, because some
transitions are impossible, everything is computed in log space.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.blas import one_blas_thread
from rarehmm.common.checks import check_threads
from rarehmm.data.rows import Rows, concatenate
from rarehmm.data.series import Series
from rarehmm.data.workers import Item
from rarehmm.engine.contracts.family import columns, prepare
from rarehmm.engine.dispatch import explained
from rarehmm.engine.kernels.edges import (
    EdgeGroup,
    EdgePoint,
    EdgeTask,
    add_rows,
    edge_group,
    edge_sums,
    kind_densities,
    log_backward_edges,
    log_forward_edges,
    split_edge_sums,
    sweep_edges,
    viterbi_edges,
)
from rarehmm.engine.kernels.full_pass import Layout, Seams
from rarehmm.engine.kernels.sequential import trace
from rarehmm.engine.lanes import LANES
from rarehmm.exact import blocks
from rarehmm.exact.block_pass import CAREFUL, EVERY, TOLERANCE, Expectations, LogSpaceNeededError
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.densities import add_constants, constant_total, ranges_between, row_ranges, sequence_starts
from rarehmm.model.autoregression import AroundLevel
from rarehmm.model.effects import NO_ROWS, EffectGradient, RowTerms, start_scale_gradient
from rarehmm.model.information import Information, information, total_information
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary

WORKSPACE_BYTES = 1 << 23  # of a group of lanes: long halos cost more than what does not stay in the second cache
NEGLIGIBLE = -27.0  # logarithm of a probability that may be lost, about 1e-12

INFORMATIVE = 4096  # rows of a chunk from which the information for EM steps is estimated
ROUNDS = 10  # of corrections of blocks
FEW = 0.1  # share of the blocks that are corrected, rather than all being run again
FAR = 10.0  # standard deviations from its mean at which inputs are assumed to stay
VANISHING = 1e-100  # messages below this share differ without consequences


def edge_point(model: Model, parameters: Parameters) -> EdgePoint:
    """Check parameters against the model, and put them in the form that kernels for edges read."""
    model.check_parameters(parameters)
    phi, transition, start, coefficients = parameters
    effects, unfolding = model.every_effect, model.unfolding
    chain, moves, D = unfolding.chain, effects.moves, columns(model.family)
    c = np.array([prepare(model.family, row) for row in phi], dtype=float).reshape(len(phi), -1)
    level, memory = np.zeros((len(chain.state), D)), np.zeros((0, D))
    if isinstance(effects.autoregression, AroundLevel):
        memory = np.zeros((model.n_states, D))
        total = effects.block("lags", coefficients).sum(0)  # (C, 1 or K)
        for i, d in enumerate(moves.predicted):
            memory[:, d] = total[i]
            level[:, d] = phi[chain.before, moves.level[d]]
    nodes = unfolding.start(start, model.start is None)
    base, slopes = np.zeros(0), np.zeros((0, 0))
    if effects.regresses:
        base, slopes = transition.ravel(), effects.block("slopes", coefficients).reshape(-1, transition.size)
    return EdgePoint(
        phi, c, unfolding.weights(transition), nodes, level, memory, moves.column, moves.logs, moves.power,
        np.ascontiguousarray(base), np.ascontiguousarray(slopes),
    )  # fmt: skip


def _differ(u: Array, v: Array) -> BoolArray:
    """Mask of the rows in which two sets of messages (n, M) differ by more than a share of what is not negligible."""
    with np.errstate(invalid="ignore", divide="ignore"):
        u, v = (np.maximum(m / m.sum(1, keepdims=True), VANISHING) for m in (u, v))
    return np.asarray(~(np.abs(u - v) <= TOLERANCE * np.maximum(u, v)).all(1))


def negative(one: Any) -> Any:
    """Minus the results of a run over blocks, but for the probability that may be lost and what each block has."""
    value, doubt, sums, gradient, about, kinds = one
    minus = None if gradient is None else EffectGradient(*(-part for part in gradient))
    return -value, doubt, -sums, minus, None if about is None else Information(*(-part for part in about)), kinds


class _Workspace(threading.local):
    """Arrays that a thread reuses from one pass to the next, which saves page faults."""

    key: Any = None
    group: EdgeGroup | None = None


_workspace = _Workspace()


def workspace(n: int, point: EdgePoint, C: int, model: Model) -> EdgeGroup:
    """Group of lanes for at least n steps, private to this thread."""
    chain, D, entries = model.unfolding.chain, point.level.shape[1], len(point.base)
    key = (D, C, len(chain.state), len(chain.source), len(chain.first_kind), entries)
    if _workspace.group is None or _workspace.key != key or len(_workspace.group.y) < n:
        _workspace.key, _workspace.group = key, edge_group(n, D, C, chain, entries)
    return _workspace.group


class EdgePass:
    """One pass over a series at one set of parameters; see ``block_pass.Pass`` for its arguments.

    With ``each``, ``of_blocks`` (n, U) are the expected numbers of rows with each kind of density in the n blocks.
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        series: Observations,
        threads: int | None,
        sequential: bool,
        back: bool = False,
        probabilities: Array | None = None,
        predictive: Array | None = None,
        with_information: bool = False,
        each: bool = False,
    ) -> None:
        model.check(rows_in(series))
        check_threads(threads)
        model = model.on(rows_in(series))
        self.model, self.parameters, self.series = model, parameters, rows_in(series)
        self.objective, self.origins = objective_of(series), np.asarray(series.origins)
        self.point = edge_point(model, parameters)
        self.threads, self.sequential, self.back = threads, sequential, back
        self.informed, self.each = with_information, each
        K = model.n_states
        self.probabilities = np.empty((0, K)) if probabilities is None else probabilities
        self.predictive = np.empty(0) if predictive is None else predictive
        chain, effects = model.unfolding.chain, model.every_effect
        allowed = model.fixed_values.allowed
        careful = len(chain.first_kind) > K or not allowed.all() or self.may_be_tiny()
        careful = careful or bool(parameters.start.min() < CAREFUL)
        steps_matter = (len(self.probabilities) > 0 and not back) or len(self.predictive) > 0
        self.task = EdgeTask(0, 1 if steps_matter or careful else EVERY, back, with_information or each, careful)
        width = 2 * len(chain.state) + len(chain.first_kind) + effects.width + 3
        self.largest = WORKSPACE_BYTES // (width * 8 * LANES)  # observations per block, unless halos are longer
        transition = parameters.transition
        self.distribution = model.unfolding.start(stationary(transition), True)
        self.tiny = bool(transition[allowed].min() < CAREFUL)

    def may_be_tiny(self) -> bool:
        """Whether inputs at ``FAR`` standard deviations could make some transition all but impossible."""
        P, slopes = self.parameters.transition, self.model.every_effect.block("slopes", self.parameters.coefficients)
        least = P[P > 0].min() * np.exp(-2 * FAR * np.abs(slopes).sum(0).max(initial=0.0))
        return bool(least < CAREFUL)

    def run(self) -> Expectations:
        """Process all blocks until the seams agree; fall back to log space where nothing else is safe."""
        with one_blas_thread():
            return self._run()

    def _run(self) -> Expectations:
        if self.tiny:
            return self.in_log_space()
        found = None if self.sequential else self.with_halo()
        if found is not None and (self.marks | self.marks_back).any():
            found = self.corrected(found)
        if found is None:
            found = self.repaired()
        values, doubts, sums, gradients, about, kinds = zip(*found, strict=True)
        if self.each:
            every = np.arange(len(self.blocks.first))
            order = np.concatenate([every[chunk.blocks] for chunk in self.parts])
            self.of_blocks = np.concatenate(kinds[: len(self.parts)])[np.argsort(order)]
        log_likelihood = float(np.sum(values))
        if not np.isfinite(log_likelihood) or max(doubts) > NEGLIGIBLE:
            return self.in_log_space()
        if len(self.predictive) > 0:
            add_constants(self.model, self.series, self.predictive)
        return self.expectations(log_likelihood, np.sum(sums, axis=0), list(gradients), list(about))

    def expectations(self, log_likelihood: float, sums: Array, gradients: list[Any], about: list[Any]) -> Expectations:
        """Expectations from sums over all rows, and from the derivatives that lead back through columns."""
        model, parameters, effects = self.model, self.parameters, self.model.every_effect
        K, unfolding, transition = model.n_states, model.unfolding, parameters.transition
        chain = unfolding.chain
        scores, levels, memories, edges, nodes, logits, more_slopes = split_edge_sums(sums, self.point, chain)
        slopes, first, pairs = np.zeros(effects.size), np.zeros(K), np.zeros((K, K))
        all_about = total_information(about) if self.informed else None
        if all_about is not None:
            steps = np.bincount(unfolding.entry[unfolding.advance, 0], edges[unfolding.advance], K).astype(float)
            all_about = all_about._replace(advances=steps)
        if self.back:
            scores = scores + sum(part.scores for part in gradients)
            slopes += sum(part.coefficients for part in gradients)
            if len(self.point.memory) > 0:
                lags = effects.block("lags", slopes)
                for i, d in enumerate(effects.moves.predicted):
                    np.add.at(scores[:, effects.moves.level[d]], chain.before, levels[:, d])
                    lags[:, i] += memories[:, d] if lags.shape[2] > 1 else memories[:, d].sum()
            if effects.slopes is None:
                first = unfolding.first_states(parameters.start, nodes, model.start is None)
                pairs = unfolding.transitions(transition, edges)
            else:
                pairs = sum(part.logits for part in gradients) + pairs
                if effects.regresses:
                    pairs = pairs + logits.reshape(K, K)
                    effects.block("slopes", slopes)[:] += more_slopes.reshape(-1, K, K)
            start = sum(part.start for part in gradients)
            if np.any(start):
                more_scores, lag, more, begun = start_scale_gradient(effects, parameters, np.asarray(start))
                scores, pairs, first = scores + more_scores, pairs + more, first + begun
                effects.block("lags", slopes)[:, 0, 0] += lag
        value = log_likelihood + constant_total(model, self.series)
        return Expectations(value, scores, np.zeros(K), np.zeros((K, 0)), pairs, first, slopes, all_about)

    # ------------------------------------------------------------ blocks and halos
    def plans(self) -> Iterator[None]:
        """Set up blocks, chunks and initial seams, with longer and longer halos."""
        for found, halo in self.objective.plans(self.largest, len(self.probabilities) > 0):
            self.blocks = found
            self.task = self.task._replace(halo=0 if found.fresh.all() else halo)
            self.parts = blocks.chunks(found, self.task.halo, len(self.series))
            self.messages = np.ones((4, len(found.first), len(self.distribution)))
            self.messages[0] = self.distribution
            self.seams = Seams(*self.messages)
            yield

    def with_halo(self) -> list[Any]:
        """Results of all chunks, with marks of the blocks for whose seams even the longest halo is too short.

        Halos are tried on the first chunk.
        """
        for _ in self.plans():
            head = self.run_chunks(self.parts[:1])
            if self.mark_seams(self.parts[0].high) == 0:
                break
        found = head + self.run_chunks(self.parts[1:])
        self.mark_seams(len(self.blocks.first))
        return found

    def mark_seams(self, count: int) -> int:
        """Mark the first ``count`` blocks whose messages at the seams do not agree, and return their number.

        The blocks of a sample have no neighbours to agree with.
        """
        self.marks, self.marks_back = np.zeros((2, len(self.blocks.first)), dtype=bool)
        if not self.objective.is_exact:
            return 0
        joined = np.flatnonzero(~self.blocks.fresh[1:count])
        left, right, end, begin = self.seams
        self.marks[joined + 1] = _differ(left[joined + 1], end[joined])
        if self.back:
            self.marks_back[joined] = _differ(end[joined] * right[joined], end[joined] * begin[joined + 1])
        return int(self.marks.sum() + self.marks_back.sum())

    def corrected(self, found: list[Any]) -> list[Any] | None:
        """Results in which those of marked blocks are replaced, if only few have to be; else None.

        A block is run from the messages that it had, which is subtracted, and from those of its neighbours, until all
        agree.
        """
        joined = ~self.blocks.fresh
        left, right, end, begin = self.seams
        self.task = self.task._replace(halo=0)
        for _ in range(ROUNDS):
            marked = np.flatnonzero(self.marks | self.marks_back)
            if len(marked) > FEW * len(joined) or len(self.probabilities) + len(self.predictive) > 0:
                return None
            found = found + [negative(one) for one in self.run_blocks(marked)]
            before, after = marked[joined[marked]], marked[np.append(joined[1:], False)[marked]]
            left[before], right[after] = end[before - 1], begin[after + 1]
            found = found + self.run_blocks(marked)
            if self.mark_seams(len(joined)) == 0:
                return found
        return None

    def run_blocks(self, which: IntArray) -> list[Any]:
        """Run some blocks from their messages, and keep those at their ends."""
        longest = int(self.blocks.length[which].max())
        work = EdgeSweep(self.model, self.parameters, self.point, self.task, longest, self.informed, self.each)
        found = []
        for some in np.array_split(which, -(-len(which) // LANES)):
            first, length = self.blocks.first[some], self.blocks.length[some]
            early = [self.early(int(row)) for row in first]
            ends = zip(early, first + length, strict=True)
            rows = concatenate([self.series.read_rows(low, int(high)) for low, high in ends])
            low = np.cumsum(first + length - early) - (first + length - early)  # of each block among these rows
            begun = [self.sequences(row, int(stop)) for row, stop in zip(early, first + length, strict=True)]
            begin = np.concatenate([at + place for (at, _), place in zip(begun, low, strict=True)])
            counts = np.concatenate([count for _, count in begun])
            shift = low - early
            order = np.argsort(-length, kind="stable")
            layout = Layout(
                first + shift, length, self.blocks.begin[some] + shift, self.blocks.stop[some] + shift,
                self.blocks.weight[some],
            ).of(order)  # fmt: skip
            local = np.ascontiguousarray(self.messages[:, some[order]])
            *one, local = work(rows, (begin, counts), 0, layout, local, self.probabilities, self.predictive)
            self.messages[:, some[order]] = local
            found.append(tuple(one))
        return found

    def repaired(self) -> list[Any]:
        """Results after messages were propagated through blocks in order, after which no halo is needed.

        Blocks are followed from the first one that is marked until their messages no longer change.
        """
        if self.sequential:
            *_, _ = self.plans()  # the longest halo
            self.marks, self.marks_back = np.ones((2, len(self.blocks.first)), dtype=bool)
        left, right, end, begin = self.seams
        fresh, n = self.blocks.fresh, len(self.blocks.first)
        task, marked = self.task._replace(halo=0), self.marks.copy()
        for i in range(n):
            if i > 0 and not fresh[i]:
                left[i] = end[i - 1]
            if not marked[i]:
                continue
            before = end[i].copy()
            self.task = task._replace(back=False)
            self.run_block(i)
            if i + 1 < n and not fresh[i + 1] and _differ(before[None], end[i : i + 1])[0]:
                marked[i + 1] = True
        if self.back:
            marked = self.marks_back | self.marks | marked  # other states may be reachable now
            for i in range(n - 1, -1, -1):
                right[i] = begin[i + 1] if i + 1 < n and not fresh[i + 1] else 1.0
                if not marked[i]:
                    continue
                before = begin[i].copy()
                self.task = task
                self.run_block(i)
                if i > 0 and not fresh[i] and _differ(before[None], begin[i : i + 1])[0]:
                    marked[i - 1] = True
        self.task = task
        self.parts = blocks.chunks(self.blocks, 0, len(self.series))
        return self.run_chunks(self.parts)

    def run_block(self, i: int) -> None:
        """Run one block by itself from its messages, and keep those at its ends."""
        first = int(self.blocks.first[i])
        self.run_chunks(
            [blocks.Chunk(i, i + 1, slice(i, i + 1), first, first + int(self.blocks.length[i]))], fill=False
        )

    # ------------------------------------------------------------ chunks
    def run_chunks(self, parts: list[blocks.Chunk], fill: bool = True) -> list[Any]:
        """Run the kernel over chunks, and store the messages at their seams."""
        longest = max((int(self.blocks.length.max()) + 2 * self.task.halo), 1)
        work = EdgeSweep(self.model, self.parameters, self.point, self.task, longest, self.informed, self.each)
        items = []
        for chunk in parts:
            rows = slice(chunk.first, chunk.last) if fill else slice(0, 0)
            early = self.early(chunk.first)
            layout = Layout(*self.blocks.within(chunk))
            local = np.ascontiguousarray(self.messages[:, chunk.blocks])
            given = (
                self.sequences(early, chunk.last), chunk.first - early, layout, local, self.probabilities[rows],
                self.predictive[rows],
            )  # fmt: skip
            items.append(Item(early, chunk.last, given))
        fills = fill and len(self.probabilities) + len(self.predictive) > 0
        found = self.series.over_rows(work, items, self.threads, fills)
        for chunk, (*_, local) in zip(parts, found, strict=True):
            self.messages[:, chunk.blocks] = local
        return [tuple(one[:-1]) for one in found]

    def early(self, first: int) -> int:
        """First row that the rows from ``first`` on need for their lags: at least the last one observed before."""
        effects = self.model.every_effect
        if effects.reach == 0:
            return first
        begin = int(self.series.bounds[np.searchsorted(self.series.bounds, first, side="right") - 1])
        low = max(begin, first - effects.reach)
        if not effects.fills_gaps or self.series.n_missing == 0:
            return low
        step = max(effects.reach, 64)
        while low > begin and np.isnan(self.series.read(low, first)).all():
            low, step = max(begin, low - step), 4 * step
        return low

    def sequences(self, low: int, high: int) -> tuple[IntArray, IntArray]:
        """First row, relative to ``low``, of each sequence in the rows [low, high), and how many of these it has."""
        first, last = np.searchsorted(self.series.bounds, [low, high - 1], side="right") - 1
        return self.origins[first : last + 1] - low, self.series.lengths_within(low, high)

    def begins(self, low: int, high: int) -> IntArray:
        """First row (n,) of the sequence of each of the rows [low, high), relative to ``low``."""
        return np.asarray(np.repeat(*self.sequences(low, high)))

    # ------------------------------------------------------------ log space
    def in_log_space(self) -> Expectations:
        """Compute everything in log space, step by step: much slower, but correct for any transition matrix."""
        model, chain = self.model, self.model.unfolding.chain
        if not self.objective.is_exact:
            raise LogSpaceNeededError(
                "a sample of blocks cannot be processed in log space, which these impossible transitions need. Raise "
                "memory_limit, or use small probabilities, such as 1e-10, instead of zeros."
            )
        T, M = len(self.series), len(chain.first_kind)
        filtered, predictive, top = self.log_filter(0, T, np.zeros(M))
        if len(self.probabilities) > 0 or (self.back and self.is_contradicted(predictive)):
            check_possible(self.series, predictive)
        flat, _ = edge_sums(self.point, chain)
        message, gradients, about = np.zeros(M), [], []
        for low, high in reversed(row_ranges(self.series)) if self.back else ():
            terms, logp, log_weight, _, fresh = self.log_terms(low, high)
            rows = slice(low, high)
            logp -= top[rows, None]
            kinds = np.empty((high - low, len(chain.state)))
            edges, first = np.zeros(len(chain.source)), np.zeros(M)
            weights = np.zeros((high - low, len(chain.source)))
            with np.errstate(invalid="ignore"):  # where no state is possible
                log_backward_edges(
                    logp, log_weight, fresh, chain, filtered[rows], predictive[rows], filtered[max(low - 1, 0)].copy(),
                    message, edges, first, kinds, weights, terms.at.weights > 0,
                )  # fmt: skip
            mine, slopes, found = self.derivatives(terms, kinds, weights, edges, first)
            flat += mine
            gradients.append(slopes)
            about.append(found)
        if len(self.probabilities) > 0:
            nodes = filtered if self.back else np.exp(filtered)
            self.probabilities[:] = 0.0
            np.add.at(self.probabilities.T, chain.node_state, nodes.T)
        if len(self.predictive) > 0:
            self.predictive[:] = predictive + top
            add_constants(model, self.series, self.predictive)
        return self.expectations(float((predictive + top).sum()), flat.sum(-1), gradients, about)

    def is_contradicted(self, predictive: Array) -> bool:
        """Whether no parameters make known states possible that are impossible (log densities (n,)) at these."""
        if np.isfinite(predictive).all():
            return False
        allowed = self.model.fixed_values.allowed
        even = self.model.natural(self.parameters.phi, allowed / allowed.sum(1, keepdims=True))
        _, found, _ = EdgePass(self.model, even, self.series, 1, False).log_filter(
            0, len(predictive), np.zeros(len(self.distribution))
        )
        return not np.isfinite(found).all()

    def derivatives(
        self, terms: RowTerms, kinds: Array, weights: Array, edges: Array, first: Array
    ) -> tuple[Array, EffectGradient, Information | None]:
        """Sums, derivatives and information of rows whose expectations are given.

        Responsibilities ``kinds`` (n, U) and transitions ``weights`` (n, E) are those of the rows themselves, without
        the rows that are there for their lags; ``edges`` (E,) and ``first`` (M,) are sums over rows.  ``weights`` are
        read only if transitions change.
        """
        model, at, ext = self.model, terms.at, len(terms.y) - len(kinds)
        out = np.zeros((len(terms.y), at.differentiated))
        if at.weights > 0:
            out[ext:, at.weight : at.weight + at.weights] = weights
        mine, sums = edge_sums(self.point, model.unfolding.chain)
        group = workspace(1, self.point, terms.x.shape[1], model)
        with explained(model.name):
            y, x = terms.y[ext:], terms.x[ext:]
            add_rows(model.family, self.point, model.unfolding.chain, at, y, x, kinds, group, sums, out[ext:])
        sums.edges[:, 0] += edges
        sums.first[:, 0] += first
        about = information_of(model, self.parameters, terms, kinds, out, ext) if self.informed else None
        starts = np.zeros(terms.steps.starts.shape)
        return mine, model.every_effect.gradient(self.parameters, terms, out, starts, model.unfolding), about

    def log_filter(self, low: int, high: int, before: Array) -> tuple[Array, Array, Array]:
        """Log filter (n, M) of nodes in rows [low, high), log predictive densities (n,), and what to add to these (n,).

        ``before`` (M,) is the log filter of row low - 1.
        """
        n, before = high - low, before.copy()
        filtered, predictive, top = np.empty((n, len(before))), np.empty(n), np.empty(n)
        for first, last in ranges_between(low, high):
            _, logp, log_weight, log_start, fresh = self.log_terms(first, last)
            rows = slice(first - low, last - low)
            top[rows] = logp.max(1)
            logp -= top[rows, None]
            log_forward_edges(
                logp, log_weight, log_start, fresh, self.model.unfolding.chain, before, filtered[rows], predictive[rows]
            )
        return filtered, predictive, top

    def log_terms(self, low: int, high: int) -> tuple[RowTerms, Array, Array, Array, Any]:
        """Columns of the rows [low, high) and those before them, and their log densities, weights and starts."""
        early = self.early(low)
        rows, begin = self.series.read_rows(early, high), self.begins(early, high)
        found = log_terms(self.model, self.parameters, self.point, rows, begin, low - early)
        return *found, sequence_starts(self.series, low, high)


def log_terms(
    model: Model, parameters: Parameters, point: EdgePoint, rows: Rows, begin: IntArray, ext: int
) -> tuple[RowTerms, Array, Array, Array]:
    """Columns of rows, of which the first ``ext`` are there for the lags of others, and what the others add in logs.

    These are log densities (n, U) of kinds, log weights (n or 1, E) of edges, and log probabilities (n or 1, M) of
    nodes in the rows in which sequences begin.
    """
    chain, n = model.unfolding.chain, len(rows.y) - ext
    terms = model.every_effect.rows(parameters, rows, begin, model.unfolding, True)
    logp, at = np.empty((n, len(chain.state))), terms.at
    with explained(model.name):
        group = workspace(1, point, terms.x.shape[1], model)
        kind_densities(model.family, point, chain, at, terms.y[ext:], terms.x[ext:], group, logp)
    with np.errstate(divide="ignore"):
        if at.weights > 0:
            log_weight = np.log(terms.x[ext:, at.weight : at.weight + at.weights])
            log_start = log_weight[:, : len(chain.first_kind)]
        else:
            log_weight, log_start = np.log(point.weight)[None], np.log(point.start)[None]
    return terms, logp, log_weight, np.ascontiguousarray(log_start)


@dataclass(frozen=True)
class EdgeSweep:
    """The work of a pass on one chunk, which can be sent to another process."""

    model: Model
    parameters: Parameters
    point: EdgePoint
    task: EdgeTask
    longest: int
    informed: bool
    each: bool

    def __call__(
        self, rows: Rows, sequences: tuple[IntArray, IntArray], ext: int, layout: Layout, messages: Array,
        probabilities: Array, predictive: Array,
    ) -> tuple[float, float, Array, Any, Any, Any, Array]:  # fmt: skip
        """Log likelihood, probability that may be lost, sums, derivatives, information, kinds, messages at ends."""
        model, effects = self.model, self.model.every_effect
        chain, begin = model.unfolding.chain, np.repeat(*sequences)
        terms = effects.rows(self.parameters, rows, begin, model.unfolding, self.task.kinds)
        flat, sums = edge_sums(self.point, chain)
        out = np.zeros((len(terms.y) if self.task.back else 0, terms.at.differentiated))
        kinds = np.zeros((len(terms.y) - ext if self.task.kinds else 0, len(chain.state)))
        fresh = np.flatnonzero(layout.first == layout.begin) if effects.slopes else NO_ROWS  # they begin a sequence
        row = np.searchsorted(terms.steps.begins, ext + layout.first[fresh])  # of each of them among these sequences
        starts = np.ones((len(layout.first), len(chain.first_kind)))
        starts[fresh] = terms.steps.starts[row]
        with explained(model.name), np.errstate(divide="ignore", invalid="ignore"):  # where no state is possible
            value, doubt = sweep_edges(
                model.family, self.point, chain, terms.at, self.task, terms.y[ext:], terms.x[ext:], layout,
                Seams(*messages), starts, workspace(self.longest, self.point, terms.x.shape[1], model), sums, out[ext:],
                kinds, probabilities, predictive,
            )  # fmt: skip
        if not self.task.back:
            return value, doubt, flat.sum(-1), None, None, None, messages
        about = information_of(model, self.parameters, terms, kinds, out, ext, INFORMATIVE) if self.informed else None
        firsts = np.zeros(terms.steps.starts.shape)
        firsts[row] = starts[fresh]
        gradients = effects.gradient(self.parameters, terms, out, firsts, model.unfolding)
        total = np.vstack([np.zeros(kinds.shape[1]), np.cumsum(kinds, axis=0)]) if self.each else None
        each = None if total is None else total[layout.first + layout.length] - total[layout.first]
        return value, doubt, flat.sum(-1), gradients, about, each, messages


def information_of(
    model: Model, parameters: Parameters, terms: RowTerms, kinds: Array, out: Array, ext: int, most: int | None = None
) -> Information:
    """Information from rows, of which the first ``ext`` are there for the lags of others.

    ``kinds`` are the responsibilities of the others, ``out`` the derivatives in the columns of all.  Of many rows,
    ``most`` are enough for a good estimate.
    """
    counts = out[:, terms.at.weight : terms.at.weight + terms.at.weights].copy()
    counts[terms.steps.begins] = 0.0  # of first nodes
    every = np.concatenate([np.zeros((ext, kinds.shape[1])), kinds])
    return information(model.every_effect, parameters, terms, every, counts, model.unfolding, most)


def check_possible(series: Series, predictive: Array) -> None:
    """Raise unless all rows, with log predictive densities (T,), are possible."""
    possible = np.isfinite(predictive)
    if not possible.all():
        raise ValueError(
            f"no state is possible at {series.place(int(np.argmin(possible)))}: known states and forbidden transitions "
            "contradict each other. Correct the labels, or use small probabilities, such as 1e-10, instead of zeros."
        )


def decode_edges(model: Model, parameters: Parameters, series: Series) -> tuple[IntArray, float]:
    """States (T,) on the most probable path of nodes, and their ``joint_edge_density``."""
    work, chain = EdgePass(model, parameters, series, 1, False), model.unfolding.chain
    T, M = len(series), len(chain.first_kind)
    back, best = np.empty((T, M), dtype=np.int32), np.zeros(M)
    for low, high in row_ranges(series):
        _, logp, log_weight, log_start, fresh = work.log_terms(low, high)
        with np.errstate(invalid="ignore"):  # where no state is possible
            viterbi_edges(logp, log_weight, log_start, fresh, chain, best, back[low:high])
    nodes = np.empty(T, dtype=np.int64)
    trace(back, int(np.argmax(best)), nodes)
    states = np.asarray(chain.node_state[nodes])
    density = joint_edge_density(model, parameters, series, states)
    if not np.isfinite(density):
        check_possible(series, work.log_filter(0, T, np.zeros(M))[1])
    return states, density


def joint_edge_density(model: Model, parameters: Parameters, series: Series, path: IntArray) -> float:
    """Joint log density of a series without constants and a path of states (T,), summed over nodes that have these."""
    work, chain = EdgePass(model, parameters, series, 1, False), model.unfolding.chain
    total, before = 0.0, np.zeros(len(chain.first_kind))
    for low, high in row_ranges(series):
        _, logp, log_weight, log_start, fresh = work.log_terms(low, high)
        logp[path[low:high, None] != chain.state] = -np.inf
        filtered, predictive = np.empty((high - low, len(before))), np.empty(high - low)
        with np.errstate(invalid="ignore"):
            log_forward_edges(logp, log_weight, log_start, fresh, chain, before, filtered, predictive)
        total += float(predictive.sum())
    return -np.inf if np.isnan(total) else total
