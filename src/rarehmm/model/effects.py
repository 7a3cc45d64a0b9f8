r"""Effects: how inputs, earlier values and known states enter the density and the transition of each row.

Coefficients are one vector in natural units, in blocks: ``location`` (p, C) of inputs that all states share, for each
of the C columns that have a linear predictor; ``switching`` (q, C, K) of inputs whose effect differs between states;
``scale`` (v,) of inputs on the log scale; ``lags`` (order, C, 1 or K); and ``slopes`` (z, K, K) of transitions.

``rows`` turns a stretch of rows into the columns that kernels read (``engine.kernels.edges``), and ``gradient`` turns
the derivatives in these columns into those in the coefficients.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.domains import COUNTS, POSITIVE
from rarehmm.data.inputs import Inputs
from rarehmm.data.rows import Rows
from rarehmm.engine.contracts.family import Family, columns, domains, hook
from rarehmm.engine.kernels.edges import Columns
from rarehmm.engine.kernels.lags import COMPLETE, NOTHING, add_lags, lag_gradients, lagged
from rarehmm.model.autoregression import (
    AroundLevel,
    Autoregression,
    Hamilton,
    Intercept,
    Memory,
    check_autoregression,
    memory,
    predictable,
    predictable_slope,
    to_partial,
)
from rarehmm.model.moves import Moves, moves
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary, stationary_slope
from rarehmm.model.unfolding import Unfolding

BLOCKS = ("location", "switching", "scale", "lags", "slopes")


class Lags(NamedTuple):
    """Lags of one column of a stretch of rows.

    ``values`` (n,): what lags are taken of; ``marks`` (n,): which rows have all of theirs (``kernels.lags``); ``own``
    (n, K or 0): what switching inputs add to the level of each state.
    """

    values: Array
    marks: IntArray
    own: Array

    def last(self, rows: IntArray) -> IntArray:
        """The last observed row before each of these rows, which are marked with their distance from it."""
        return np.asarray(rows - self.marks[rows])


class RowTerms(NamedTuple):
    """A stretch of rows as kernels read them, and what ``Effects.gradient`` needs.

    ``y`` (n, D), with rows that do not count as missing; ``x`` (n, C), the columns, described by ``at``; ``lags`` of
    each column with a predictor; ``memory`` over gaps; ``after`` (g,): rows after a gap that have a density; ``first``
    (f,): rows without any observation before them that have one; ``steps``: of transitions with inputs.
    """

    y: Array
    x: Array
    at: Columns
    rows: Rows
    lags: tuple[Lags, ...]
    memory: Memory | None
    after: IntArray
    first: IntArray
    steps: "Steps"


class Steps(NamedTuple):
    """Transitions with inputs in a stretch of n rows.

    ``z`` (m, q) are inputs, and ``which`` (n,) of them those of each row: m is less than n where they are seasons.
    ``matrices`` (m, K, K) are those of the steps into rows; none where kernels find these from the inputs.  ``begins``
    (b,) are the rows in which sequences begin, ``initial`` (b, K, K) their matrices, and ``starts`` (b, M) the
    distributions of their nodes.
    """

    z: Array
    which: IntArray
    matrices: Array
    begins: IntArray
    initial: Array
    starts: Array


NO_ROWS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Effects:
    """Everything about a model that makes one row differ from another.

    Attributes
    ----------
    family, n_states
        Those of the model.
    location, switching, scale
        Inputs on the location that all states share, inputs that switch, and inputs on the log scale; or None.
    autoregression
        How an observation depends on those before it, or None.
    transition, slopes
        How transitions depend on inputs, and these inputs; None if they do not.
    start
        Distribution of the first state (K,), if it is given.
    mixed_start
        Whether the first value of a sequence has a variance that mixes those of the states before.
    """

    family: Family
    n_states: int
    location: Inputs | None
    switching: Inputs | None
    scale: Inputs | None
    autoregression: Autoregression | None
    transition: Any
    slopes: Inputs | None
    start: Array | None
    mixed_start: bool

    # ------------------------------------------------------------ layout
    @functools.cached_property
    def moves(self) -> Moves:
        """How linear predictors move the parameters of the family."""
        return moves(self.family)

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each block of coefficients."""
        K, C, ar = self.n_states, len(self.moves.predicted), self.autoregression
        return {
            "location": (self.location.size if self.location else 0, C),
            "switching": (self.switching.size if self.switching else 0, C, K),
            "scale": (self.scale.size if self.scale else 0,),
            "lags": (ar.order, C, K if ar.switching else 1) if ar else (0, C, 1),
            "slopes": (self.slopes.size if self.slopes else 0, K, K),
        }

    @functools.cached_property
    def slices(self) -> dict[str, slice]:
        """Place of each block in the vector of coefficients."""
        ends = np.cumsum([math.prod(self.shapes[name]) for name in BLOCKS])
        return {
            name: slice(int(e) - math.prod(self.shapes[name]), int(e)) for name, e in zip(BLOCKS, ends, strict=True)
        }

    @functools.cached_property
    def size(self) -> int:
        """Number of coefficients."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def block(self, name: str, coefficients: Array) -> Array:
        """One block (..., shape) of coefficients (..., size)."""
        return coefficients[..., self.slices[name]].reshape(*coefficients.shape[:-1], *self.shapes[name])

    def reordered(self, coefficients: Array, order: IntArray) -> Array:
        """Coefficients (..., c') of which state k has those of the former state ``order[..., k]``.

        An order that leaves some states out gives coefficients of fewer states.
        """
        out, columns = [], order[..., None, None, :]
        for name in BLOCKS:
            values = self.block(name, coefficients)
            if name == "slopes":
                values = np.take_along_axis(values, order[..., None, :, None], axis=-2)
            if self.switches(name):
                values = np.take_along_axis(values, columns, axis=-1)
            size = math.prod(values.shape[coefficients.ndim - 1 :])
            out.append(values.reshape(*coefficients.shape[:-1], size))
        return np.concatenate(out, axis=-1)

    def switches(self, name: str) -> bool:
        """Whether the coefficients of a block differ between states."""
        ar = self.autoregression
        return name in ("switching", "slopes") or (name == "lags" and ar is not None and ar.switching)

    def with_one_more(self, coefficients: Array) -> Array:
        """Coefficients of these states from those of all but the last, which gets the mean of the others."""
        fewer, out = replace(self, n_states=self.n_states - 1), np.zeros(self.size)
        for name in BLOCKS:
            old, new = fewer.block(name, coefficients), self.block(name, out)
            if name == "slopes":
                new[:, :-1, :-1] = old
            elif self.switches(name):
                new[..., :-1], new[..., -1] = old, old.mean(-1)
            else:
                new[:] = old
        return out

    @property
    def width(self) -> int:
        """About how many columns there are next to the observations."""
        K, D = self.n_states, columns(self.family)
        exact = isinstance(self.autoregression, Hamilton)
        return D * (K if self.switching else 1) * (K**self.depth if exact else 1) + (K * K if self.slopes else 0) + 2

    @property
    def reach(self) -> int:
        """Number of rows before a row on which its density depends."""
        return self.autoregression.order if self.autoregression else 0

    @property
    def depth(self) -> int:
        """Number of earlier states on which the density depends."""
        return self.autoregression.depth if self.autoregression else 0

    @property
    def conditional(self) -> bool:
        """Whether the first rows of each sequence, as many as there are lags, are given."""
        return self.autoregression is not None and self.autoregression.conditional

    @functools.cached_property
    def fills_gaps(self) -> bool:
        """Whether a row whose lags are missing has a density, given the last value that was observed."""
        ar = self.autoregression
        return ar is not None and ar.fills_gaps and columns(self.family) == 1 and bool(hook(self.family, "log_scale"))

    @property
    def gives_first_rows(self) -> bool:
        """Whether the first rows of each sequence are given, and rows without their lags have no density."""
        return self.reach > 0 and (self.conditional or not self.fills_gaps)

    def are_stationary(self, coefficients: Array) -> BoolArray:
        """Mask (...) of the coefficients (..., c) that are finite, and whose lags are stationary where they must be."""
        finite = np.isfinite(coefficients).all(-1)
        if self.autoregression is None or not self.autoregression.is_stationary:
            return np.asarray(finite)
        with np.errstate(divide="ignore", invalid="ignore"):
            partial = to_partial(np.swapaxes(self.block("lags", coefficients)[..., 0], -1, -2))
        return np.asarray(finite & (np.abs(partial) < 1).all((-1, -2)))

    def check(self, coefficients: Array) -> None:
        """Raise unless the coefficients are finite, and lags stationary where they must be."""
        if not np.isfinite(coefficients).all():
            i = int(np.argmax(~np.isfinite(coefficients)))
            raise ValueError(f"coefficients[{i}] is {coefficients[i]}; coefficients must be finite.")
        if self.are_stationary(coefficients):
            return
        for column in self.block("lags", coefficients)[..., 0].T:
            with np.errstate(divide="ignore", invalid="ignore"):
                partial = to_partial(column)
            if not (np.abs(partial) < 1).all():
                raise ValueError(
                    f"the lags {column.tolist()} are not those of a stationary autoregression; its partial "
                    f"autocorrelations would be {partial.tolist()}. {type(self.autoregression).__name__} needs all of "
                    "them between -1 and 1; Intercept(p) does not."
                )

    @property
    def regresses(self) -> bool:
        """Whether transitions are a regression on inputs, which kernels compute themselves."""
        return self.slopes is not None and bool(getattr(self.transition, "is_softmax", False))

    # ------------------------------------------------------------ rows
    def rows(
        self, parameters: Parameters, rows: Rows, begin: IntArray, unfolding: Unfolding, weighted: bool = False
    ) -> RowTerms:
        """Columns of a stretch of rows; ``begin`` (n,) is the first row of the sequence of each, negative if before.

        If ``weighted``, transitions with inputs are columns even where kernels can find them.
        """
        n, K, ar = len(rows.y), self.n_states, self.autoregression
        y = rows.y
        lags: list[Lags] = []
        offsets = [self._offset(parameters, rows, begin, d, unfolding, lags) for d in range(rows.y.shape[1])]
        after = first = NO_ROWS
        kept: Memory | None = None
        pasts: list[Array] = []
        if ar is not None:
            early = [np.flatnonzero(lag.marks != COMPLETE) for lag in lags]
            early = [gone[(begin[gone] >= 0) | (gone >= self.reach)] for gone in early]  # the first are read for others
            if self.fills_gaps:
                seen = early[0][~np.isnan(y[early[0], 0])]
                if self.conditional:
                    seen = seen[seen - begin[seen] >= self.reach]
                marks = lags[0].marks[seen]
                after, first = seen[marks > 0], seen[marks == NOTHING]
                early[0] = np.setdiff1d(early[0], seen, assume_unique=True)
            for d, gone in zip(self.moves.predicted, early, strict=True):
                if (~np.isnan(y[gone, d])).any():
                    y = y.copy() if y is rows.y else y
                    y[gone, d] = np.nan
            if len(after) + len(first) > 0:
                share = self.block("lags", parameters.coefficients)[:, 0, 0]
                kept = memory(share, int(lags[0].marks[after].max(initial=0)))
                last = lags[0].last(after)
                offsets[0][after] += (kept.correlation[lags[0].marks[after]] * lags[0].values[last])[:, None]
            if isinstance(ar, AroundLevel) and self.switching:
                pasts = self._pasts(lags, n)
        scales = self._scales(parameters, rows, after, first, lags, kept)
        steps = self.steps(parameters, rows, begin, unfolding, weighted or not self.regresses)
        weights = self.weights(steps, n, unfolding)
        slopes = steps.z if len(steps.matrices) == 0 else np.zeros((n, 0))
        most = max(part.shape[1] for part in offsets)
        parts = [
            offsets if most > 0 else [],
            [self._memories(parameters, n, after, first, lags, kept)],
            pasts,
            [scales],
        ]
        parts += [[slopes], [weights], [rows.states[:, None].astype(float)] if len(rows.states) else []]
        widths = [
            most, parts[1][0].shape[1], K if pasts else 0, scales.shape[1], slopes.shape[1], weights.shape[1],
            len(parts[6]),
        ]  # fmt: skip
        starts = np.cumsum([0, *(len(part) * width for part, width in zip(parts, widths, strict=True))]).tolist()
        at = Columns(*(one for pair in zip(starts[:-1], widths, strict=True) for one in pair))
        x = np.empty((n, starts[-1]))
        for part, start, width in zip(parts, starts[:-1], widths, strict=True):
            for i, one in enumerate(part if width > 0 else []):
                x[:, start + i * width : start + (i + 1) * width] = one
        return RowTerms(
            np.ascontiguousarray(y), x, at, rows, tuple(lags), kept, after, first, steps
        )  # fmt: skip

    def _offset(
        self, parameters: Parameters, rows: Rows, begin: IntArray, d: int, unfolding: Unfolding, lags: list[Lags]
    ) -> Array:
        """Offsets (n, 0, 1, K or U) of the linear predictor of column d; lags are added to the list of them."""
        n, c, ar = len(rows.y), parameters.coefficients, self.autoregression
        at = np.flatnonzero(self.moves.predicted == d)
        if len(at) == 0 or not (self.location or self.switching or ar):
            return np.zeros((n, 1 if self.location or self.switching or ar else 0))
        i = int(at[0])
        eta, own = self.predictors(parameters, rows, i)
        if self.switching:
            out = own + eta[:, None] if eta is not None else own.copy()
        else:
            out = np.zeros((n, 1)) if eta is None else eta[:, None].copy()
        if ar is None:
            return out
        values = self.lagged_values(rows.y[:, d], eta, d)
        values, marks = np.ascontiguousarray(values), np.empty(n, dtype=np.int64)
        phi = np.ascontiguousarray(self.block("lags", c)[:, i])
        lag = Lags(values, marks, own)
        lags.append(lag)
        if isinstance(ar, Hamilton):
            add_lags(values, begin, np.zeros((len(phi), 0)), out[:, :0], marks)
            return self._exact_offset(parameters, lag, out, phi, d, unfolding)
        if phi.shape[1] > out.shape[1]:
            out = np.repeat(out, phi.shape[1], axis=1)
        elif phi.shape[1] < out.shape[1]:
            phi = np.repeat(phi, out.shape[1], axis=1)
        add_lags(values, begin, phi, out, marks)
        return out

    def predictors(self, parameters: Parameters, rows: Rows, i: int) -> tuple[Array | None, Array]:
        """What inputs add to the linear predictor of all states (n,), if any, and to that of each (n, K or 0).

        They are those of predictor number ``i``, of column ``moves.predicted[i]``.
        """
        c = parameters.coefficients
        eta = self.location.predict(rows, self.block("location", c)[:, i]) if self.location else None
        if self.switching is None:
            return eta, np.zeros((len(rows.y), 0))
        return eta, self.switching.predict(rows, self.block("switching", c)[:, i])

    def lagged_values(self, y: Array, eta: Any, d: int) -> Array:
        """What lags are taken of, from observations y (n,) of column d and what inputs add to all states."""
        if not isinstance(self.autoregression, Intercept):
            return y if eta is None else np.asarray(y - eta)
        domain = domains(self.family)[d]
        if domain == POSITIVE:
            return np.log(y)
        return np.log1p(y) if domain == COUNTS else y

    def log_scale(self, parameters: Parameters, rows: Rows) -> Array:
        """What inputs add to the log scale (n,)."""
        if self.scale is None:
            return np.zeros(len(rows.y))
        return self.scale.predict(rows, self.block("scale", parameters.coefficients))

    def edge_weights(self, parameters: Parameters, rows: Rows, begin: IntArray, unfolding: Unfolding) -> Array:
        """Weights of edges (n, E) and, in the rows in which sequences begin, of first nodes; none if they are constant.

        ``begin`` is that of ``rows``.
        """
        return self.weights(self.steps(parameters, rows, begin, unfolding, True), len(rows.y), unfolding)

    def _exact_offset(
        self, parameters: Parameters, lag: Lags, eta: Array, phi: Array, d: int, unfolding: Unfolding
    ) -> Array:
        """Offsets (n, U) of Hamilton's model, with coefficients phi (p, 1 or K)."""
        states, level = unfolding.states, parameters.phi[:, self.moves.level[d]]
        newest, table = states[:, 0], lagged(lag.values, lag.marks, self.reach)
        out = eta[:, newest] if self.switching else np.repeat(eta, len(states), axis=1)
        for m in range(1, self.reach + 1):
            before = level[states[:, m]] + (shifted(lag.own, m)[:, states[:, m]] if self.switching else 0.0)
            share = phi[m - 1, newest] if phi.shape[1] > 1 else phi[m - 1, 0]
            out = out + share * (table[:, m - 1 : m] - before)
        return np.where((lag.marks == COMPLETE)[:, None], out, 0.0)

    def _pasts(self, lags: list[Lags], n: int) -> list[Array]:
        """What switching inputs add to the level (n, K) of the last observed row, for each column of the data."""
        out = [np.zeros((n, self.n_states)) for _ in range(columns(self.family))]
        for d, lag in zip(self.moves.predicted, lags, strict=True):
            out[d][1:] = lag.own[:-1]
            early = np.flatnonzero(lag.marks > 0)
            out[d][early] = lag.own[lag.last(early)]
        return out

    def _memories(
        self, parameters: Parameters, n: int, after: IntArray, first: IntArray, lags: list[Lags], kept: Memory | None
    ) -> Array:
        """How much of the last level is left (n, 1), if that differs between rows."""
        if kept is None:
            return np.zeros((n, 0))
        out = np.full((n, 1), self.block("lags", parameters.coefficients)[:, 0, 0].sum())
        out[after, 0] = kept.correlation[lags[0].marks[after]]
        out[first] = 0.0
        return out

    def _scales(
        self,
        parameters: Parameters,
        rows: Rows,
        after: IntArray,
        first: IntArray,
        lags: list[Lags],
        kept: Memory | None,
    ) -> Array:
        """Log scales (n, 0, 1 or K)."""
        n = len(rows.y)
        total = np.zeros((n, 0))
        if self.scale:
            total = self.log_scale(parameters, rows)[:, None]
        if kept is None:
            return total
        total = total.copy() if self.scale else np.zeros((n, 1))
        total[after, 0] += kept.scale[lags[0].marks[after]]
        if not self.mixed_start:
            total[first] += kept.scale[0]
        elif len(first) > 0:
            total = np.repeat(total, self.n_states, axis=1)
            total[first] += start_scale(self, parameters)
        return total

    def steps(
        self, parameters: Parameters, rows: Rows, begin: IntArray, unfolding: Unfolding, all_matrices: bool
    ) -> Steps:
        """Transitions with inputs; the matrices of all steps, unless there are as many as rows and none is wanted."""
        n, K, M = len(rows.y), self.n_states, len(unfolding.paths)
        if self.slopes is None:
            return Steps(np.zeros((n, 0)), NO_ROWS, np.zeros((0, K, K)), NO_ROWS, np.zeros((0, K, K)), np.zeros((0, M)))
        z, which = self.slopes.distinct(rows)
        begins = np.flatnonzero(begin == np.arange(n))
        all_matrices = all_matrices or len(z) < n
        slopes = self.block("slopes", parameters.coefficients)
        matrices = self.transition.matrices(parameters.transition, slopes, z if all_matrices else z[begins])
        initial = matrices[which[begins]] if all_matrices else matrices
        starts = np.empty((len(begins), M))
        for i, matrix in enumerate(initial):
            distribution = stationary(matrix) if self.start is None else self.start
            starts[i] = unfolding.start(distribution, self.start is None)
        return Steps(z, which, matrices if all_matrices else matrices[:0], begins, initial, starts)

    def weights(self, steps: Steps, n: int, unfolding: Unfolding) -> Array:
        """Weights of edges (n, E) and, in the rows in which sequences begin, of first nodes."""
        if len(steps.matrices) == 0:
            return np.zeros((n, 0))
        weights = np.ascontiguousarray(unfolding.weights(steps.matrices))
        if len(weights) < n:
            weights = weights[steps.which]
        weights[steps.begins] = 0.0
        weights[steps.begins, : steps.starts.shape[1]] = steps.starts
        return weights

    # ------------------------------------------------------------ and back
    def gradient(
        self, parameters: Parameters, terms: RowTerms, out: Array, firsts: Array, unfolding: Unfolding
    ) -> "EffectGradient":
        """Derivatives in the coefficients from those ``out`` (n, C) in the columns of a stretch of rows.

        ``firsts`` (b, M) are the expected nodes of the rows in which sequences begin, unless these are in columns.
        """
        at, K, n = terms.at, self.n_states, len(terms.y)
        found, scores, start = np.zeros(self.size), np.zeros(parameters.phi.shape), np.zeros(K)
        scales = out[:, at.scale : at.scale + at.scales]
        for i, d in enumerate(self.moves.predicted if at.offsets > 0 else []):
            slope = out[:, at.offset + d * at.offsets : at.offset + (d + 1) * at.offsets]
            own = slope
            eta = slope[:, 0] if at.offsets == 1 else slope.sum(1)
            if self.autoregression is not None:
                moves_values = not isinstance(self.autoregression, Intercept)
                back = np.zeros(n if moves_values and (self.location or self.switching) else 0)
                own = self._lag_gradients(parameters, terms.lags[i], slope, i, d, unfolding, scores, found, back)
                if terms.memory is not None:
                    self._add_gap_gradients(terms, eta, out[:, at.memory], scales, found, back)
                if len(back) > 0:
                    eta = eta - back
            if self.location:
                self.block("location", found)[:, i] += self.location.gradient(terms.rows, eta)
            if self.switching:
                if at.pasts:
                    own = own + self._past_gradients(terms.lags[i], out[:, at.past + d * K : at.past + (d + 1) * K])
                self.block("switching", found)[:, i] += self.switching.gradient(terms.rows, own)
        if self.scale:
            self.block("scale", found)[:] += self.scale.gradient(terms.rows, scales.sum(1))
        if self.mixed_start and len(terms.first) > 0:
            start = scales[terms.first].sum(0)
        counts = out[:, at.weight : at.weight + at.weights]
        logits = self.transition_gradients(terms.steps, counts, firsts, found, unfolding)
        return EffectGradient(found, scores, start, logits)

    def _lag_gradients(
        self, parameters: Parameters, lag: Lags, slope: Array, i: int, d: int, unfolding: Unfolding, scores: Array,
        found: Array, back: Array,
    ) -> Array:  # fmt: skip
        """Add the derivatives of rows with all lags to those in the coefficients and in the values.

        Returns the derivatives in the predictor of each state.
        """
        phi = np.ascontiguousarray(self.block("lags", parameters.coefficients)[:, i])
        total, (p, Q) = self.block("lags", found)[:, i], phi.shape
        if not isinstance(self.autoregression, Hamilton):
            share = phi if slope.shape[1] == Q else np.repeat(phi, slope.shape[1], axis=1)
            each = np.zeros(share.shape)
            lag_gradients(lag.values, lag.marks, share, slope, back, each)
            total += each if Q > 1 else each.sum(1, keepdims=True)
            return slope
        states, level = unfolding.states, int(self.moves.level[d])
        inside = np.where((lag.marks == COMPLETE)[:, None], slope, 0.0)
        newest, own, table = states[:, 0], np.zeros((len(slope), self.n_states)), lagged(lag.values, lag.marks, p)
        np.add.at(own.T, newest, inside.T)
        for m in range(1, p + 1):
            weighted = inside * (phi[m - 1, newest] if Q > 1 else phi[m - 1, 0])
            if len(back) > 0:
                back[: len(back) - m] += weighted.sum(1)[m:]
            np.add.at(scores[:, level], states[:, m], -weighted.sum(0))
            before = np.broadcast_to(parameters.phi[states[:, m], level], inside.shape)
            if self.switching:
                before = before + shifted(lag.own, m)[:, states[:, m]]
                np.add.at(own[: len(own) - m].T, states[:, m], -weighted[m:].T)
            each = (inside * (table[:, m - 1 : m] - before)).sum(0)
            np.add.at(total[m - 1], newest if Q > 1 else np.zeros(len(states), dtype=int), each)
        return own

    def _add_gap_gradients(
        self, terms: RowTerms, slope: Array, memories: Array, scales: Array, found: Array, back: Array
    ) -> None:
        """Add the derivatives of rows after gaps to those in the coefficients and in the values."""
        kept, lag, after = terms.memory, terms.lags[0], terms.after
        assert kept is not None
        gap, last = lag.marks[after], lag.last(after)
        if len(back) > 0:
            np.add.at(back, last, kept.correlation[gap] * slope[after])
        total = self.block("lags", found)[:, 0, 0]
        total += kept.correlation_slope[gap].T @ (slope[after] * lag.values[last] + memories[after])
        total += kept.scale_slope[gap].T @ scales[after].sum(1)
        if not self.mixed_start:
            total += kept.scale_slope[0] * scales[terms.first].sum()
        total += memories.sum() - memories[after].sum() - memories[terms.first].sum()

    def _past_gradients(self, lag: Lags, slope: Array) -> Array:
        """Derivatives (n, K) in what switching inputs add to levels, from those in the last observed levels."""
        own = np.zeros(slope.shape)
        usual = np.where((lag.marks == COMPLETE)[:, None], slope, 0.0)
        own[:-1] += usual[1:]
        early = np.flatnonzero(lag.marks > 0)
        np.add.at(own, lag.last(early), slope[early])
        return own

    def transition_gradients(
        self, steps: Steps, counts: Array, firsts: Array, found: Array, unfolding: Unfolding
    ) -> Array:
        """Derivatives in the logits of the transition matrix (K, K); those in the slopes are added to ``found``."""
        logits, slopes = np.zeros((self.n_states, self.n_states)), self.block("slopes", found)
        if len(steps.matrices) > 0:
            firsts = counts[steps.begins, : steps.starts.shape[1]]
            counts[steps.begins] = 0.0
            if len(steps.z) < len(counts):
                counts = np.column_stack([np.bincount(steps.which, column, len(steps.z)) for column in counts.T])
            more, more_slopes = self.transition.gradient(
                steps.matrices, unfolding.transitions(steps.matrices, counts), steps.z
            )
            logits += more
            slopes += more_slopes
        if self.start is None and firsts.any():
            of_starts = np.zeros(steps.initial.shape)
            for i, (matrix, first) in enumerate(zip(steps.initial, firsts, strict=True)):
                of_starts[i] = stationary_slope(matrix, unfolding.first_states(stationary(matrix), first, True))
            more, more_slopes = self.transition.gradient(steps.initial, of_starts, steps.z[steps.which[steps.begins]])
            logits += more
            slopes += more_slopes
        return logits


class EffectGradient(NamedTuple):
    """Derivatives that follow from those in columns.

    ``coefficients`` (c,); ``scores`` (K, P), to add to those of the states' parameters; ``start`` (K,), in the log
    scale of first values; ``logits`` (K, K), in those of the transition matrix.
    """

    coefficients: Array
    scores: Array
    start: Array
    logits: Array


def start_scale(effects: Effects, parameters: Parameters) -> Array:
    r"""Log scale (K,) of the first value of a sequence, whose variance mixes those of the states before.

    .. math:: V_j = \sigma_j^2 + R^2 \sum_i P(i \mid j) V_i

    with the reversed transition probabilities, and the share :math:`R^2` of the variance that the past predicts.
    """
    s2, R2, reverse = _mixture(effects, parameters)
    return _mixed(s2, np.asarray(R2), reverse)


def mixed_log_scale(variance: Array, R2: Array, distribution: Array, transition: Array) -> Array:
    """Log scales (m, K) as from ``start_scale``, of m points with variances (m, K), R^2 (m,) and transitions (m, K, K).

    ``distribution`` (m, K) is the stationary one.
    """
    return _mixed(variance, R2, _reversed(distribution, transition))


def _mixed(s2: Array, R2: Array, reverse: Array) -> Array:
    """Log scales (..., K) from variances (..., K), R^2 (...) and reversed transition matrices (..., K, K)."""
    V = np.linalg.solve(np.eye(s2.shape[-1]) - R2[..., None, None] * reverse, s2[..., None])[..., 0]
    return np.asarray(0.5 * np.log(V / s2))


def _reversed(distribution: Array, transition: Array) -> Array:
    """Transition probabilities (..., K, K) back in time."""
    return np.swapaxes(distribution[..., None] * transition, -1, -2) / distribution[..., None]


def start_scale_gradient(effects: Effects, parameters: Parameters, slope: Array) -> tuple[Array, Array, Array, Array]:
    """Derivatives of ``start_scale`` times ``slope`` (K,).

    In the parameters (K, P) and the lags (p,), and as counts of transitions (K, K) and of first states (K,) whose log
    probabilities have the same derivatives.
    """
    s2, R2, reverse = _mixture(effects, parameters)
    system = np.eye(len(s2)) - R2 * reverse
    V = np.linalg.solve(system, s2)
    back = np.linalg.solve(system.T, slope / (2 * V))
    scores = np.zeros(parameters.phi.shape)
    scores[:, np.flatnonzero(effects.moves.power)[0]] = back - slope / (2 * s2)
    pairs = (R2 * np.outer(back, V) * reverse).T
    lags = (back @ reverse @ V) * predictable_slope(_only_lags(effects, parameters))
    return scores, lags, pairs, pairs.sum(1) - pairs.sum(0)


def _only_lags(effects: Effects, parameters: Parameters) -> Array:
    """Coefficients (p,) of the lags of the only column."""
    return effects.block("lags", parameters.coefficients)[:, 0, 0]


def _mixture(effects: Effects, parameters: Parameters) -> tuple[Array, float, Array]:
    """Variances (K,) of innovations, R^2, and the reversed transition matrix."""
    pi, P = stationary(parameters.transition), parameters.transition
    s2 = parameters.phi[:, np.flatnonzero(effects.moves.power)[0]]
    return s2, float(predictable(_only_lags(effects, parameters))), _reversed(pi, P)


def check_effects(model: Any) -> None:
    """Raise unless the effects of a model have a meaning for its family, and fit each other."""
    family, name, ar = model.family, model.name, model.autoregression
    at = moves(family)
    for part in ("inputs", "switching", "scale"):
        given = getattr(model, part)
        if given is not None and not isinstance(given, Inputs):
            raise TypeError(f"{part} is of type {type(given).__name__}; make it with Inputs.of(series, terms).")
        if given is not None and part != "scale" and len(at.predicted) == 0:
            raise ValueError(f"{name} takes no inputs: none of its parameters has a linear predictor. Drop {part}.")
    if model.priors.effects is None:
        check_repeated(model.inputs, model.switching)
    if model.scale is not None and not at.power.any():
        raise ValueError(f"{name} takes no inputs on its scale: none of its parameters is one. Drop scale.")
    if ar is not None:
        check_autoregression(ar)
        if len(at.predicted) == 0:
            raise ValueError(f"{name} takes no autoregression: none of its parameters has a linear predictor.")
        if not isinstance(ar, Intercept) and (at.level[at.predicted] < 0).any():
            raise ValueError(
                f"{name} has no single level that observations could return to. Use Intercept({ar.order}) instead of "
                f"{type(ar).__name__}({ar.order})."
            )
        if isinstance(ar, Hamilton) and columns(family) > 1:
            raise ValueError(
                f"Hamilton takes one column and {name} has {columns(family)}; use AroundLevel({ar.order})."
            )
    if not hasattr(model.transitions, "phases") or isinstance(model.transitions, type):
        raise TypeError(
            f"transitions is {model.transitions!r}; use Homogeneous(), Regression(inputs) or Phases(lengths)."
        )
    read = model.transitions.inputs
    if not isinstance(read, Inputs | None):
        raise TypeError(
            f"the inputs of transitions are of type {type(read).__name__}; make them with Inputs.of(series, terms)."
        )
    if read is None and getattr(model.transitions, "is_softmax", False):
        name = type(model.transitions).__name__
        raise TypeError(f"{name} has no inputs; make them with Inputs.of(series, terms), or use Homogeneous().")
    phases = model.transitions.phases(model.n_states)
    if isinstance(ar, Hamilton) and ar.order > 1 and phases.max() > 1:
        raise ValueError(f"Hamilton({ar.order}) cannot be combined with Phases; use AroundLevel({ar.order}).")
    if model.transitions.inputs is not None and model.coordinates.is_expanded:
        raise ValueError("ExpandedMean does not support transitions with inputs; use AdditiveLogRatio().")


def check_repeated(inputs: Inputs | None, switching: Inputs | None) -> None:
    """Raise if shared inputs are among those that switch: without priors, only the sums of both are determined."""
    twice = [name for name in inputs.names if name in switching.names] if inputs and switching else []
    if twice:
        named, them = ", ".join(map(repr, twice)), "it" if len(twice) == 1 else "them"
        raise ValueError(
            f"{named} {'is' if len(twice) == 1 else 'are'} in inputs and in switching, where only priors could tell a "
            f"shared effect from those in all states. Leave {them} out of one, or use default_priors."
        )


def shifted(values: Array, m: int) -> Array:
    """Rows m steps earlier, 0 where there are none."""
    out = np.zeros(values.shape)
    out[m:] = values[: len(values) - m]
    return out
