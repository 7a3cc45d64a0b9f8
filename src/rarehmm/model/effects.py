r"""Effects: how inputs, earlier values and known states enter the density and the transition of each row.

Coefficients are one vector in natural units, in blocks: ``location`` (p, C) of inputs that all states share, for each of
the C columns that have a linear predictor; ``switching`` (q, C, K) of inputs whose effect differs between states;
``scale`` (v,) of inputs on the log scale; ``lags`` (order, C, 1 or K); and ``slopes`` (z, K, K) of transitions.

``rows`` turns a stretch of rows into the columns that kernels read (``engine.kernels.edges``), and ``pull`` turns the
derivatives in these columns into those in the coefficients.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.inputs import Inputs
from rarehmm.data.rows import Rows
from rarehmm.engine.contracts.family import Family, columns, hook
from rarehmm.engine.kernels.edges import Columns
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

    ``values`` (n,): what lags are taken of; ``lagged`` (n, p), 0 where there is none; ``complete`` (n,): whether all are
    there; ``gap`` (n,): steps since the last observed value, 0 if there is none in the sequence; ``last`` (n,): its row;
    ``own`` (n, K or 0): what switching inputs add to the level of each state.
    """

    values: Array
    lagged: Array
    complete: BoolArray
    gap: IntArray
    last: IntArray
    own: Array


class RowTerms(NamedTuple):
    """A stretch of rows as kernels read them, and what ``Effects.pull`` needs.

    ``y`` (n, D), with rows that do not count as missing; ``x`` (n, C), the columns, described by ``at``; ``lags`` of each
    column of the data; ``memory`` over gaps; ``filled`` (n,): rows with missing lags that have a density; ``first``
    (n,): those before any observation of their sequence; ``z`` (n, q) and ``matrices`` (n, K, K) of transitions with
    inputs, ``begins``: rows in which sequences begin.
    """

    y: Array
    x: Array
    at: Columns
    rows: Rows
    lags: tuple[Lags, ...]
    memory: Memory | None
    filled: BoolArray
    first: BoolArray
    z: Array
    matrices: Array
    begins: IntArray


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
        return {name: slice(int(e) - math.prod(self.shapes[name]), int(e)) for name, e in zip(BLOCKS, ends, strict=True)}

    @functools.cached_property
    def size(self) -> int:
        """Number of coefficients."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def block(self, name: str, coefficients: Array) -> Array:
        """One block (..., shape) of coefficients (..., size)."""
        return coefficients[..., self.slices[name]].reshape(*coefficients.shape[:-1], *self.shapes[name])

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

    @functools.cached_property
    def fills_gaps(self) -> bool:
        """Whether a row whose lags are missing has a density, given the last value that was observed."""
        ar = self.autoregression
        return ar is not None and ar.fills_gaps and columns(self.family) == 1 and bool(hook(self.family, "log_scale"))

    def check(self, coefficients: Array) -> None:
        """Raise unless the coefficients are finite, and lags stationary where they must be."""
        if not np.isfinite(coefficients).all():
            i = int(np.argmax(~np.isfinite(coefficients)))
            raise ValueError(f"coefficients[{i}] is {coefficients[i]}; coefficients must be finite.")
        if self.autoregression is None or not self.autoregression.is_stationary:
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

    # ------------------------------------------------------------ rows
    def rows(self, parameters: Parameters, rows: Rows, begin: IntArray, unfolding: Unfolding) -> RowTerms:
        """Columns of a stretch of rows; ``begin`` (n,) is the first row of the sequence of each, negative if before."""
        K, (n, D), c = self.n_states, rows.y.shape, parameters.coefficients
        y, offsets, pasts = rows.y, [], []
        lags, filled, first = [], np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        memories: Array = np.zeros((n, 0))
        kept: Memory | None = None
        phi = self.block("lags", c)
        for d in range(D):
            at = np.flatnonzero(self.moves.predicted == d)
            if len(at) == 0:
                offsets.append(np.zeros((n, 1)))
                pasts.append(np.zeros((n, K)))
                continue
            i = int(at[0])
            eta = self.location.predict(rows, self.block("location", c)[:, i]) if self.location else np.zeros(n)
            own = self.switching.predict(rows, self.block("switching", c)[:, i]) if self.switching else np.zeros((n, 0))
            if self.autoregression is None:
                offsets.append(eta[:, None] + own if self.switching else eta[:, None])
                continue
            lag = self._lags(rows.y[:, d], eta, own, begin)
            lags.append(lag)
            offsets.append(self._offset(parameters, lag, eta, phi[:, i], d, unfolding))
            if isinstance(self.autoregression, AroundLevel) and self.switching:
                pasts.append(np.where(lag.gap[:, None] > 0, own[np.maximum(lag.last, 0)], 0.0))
            counts = lag.complete
            if self.fills_gaps:
                filled = ~lag.complete & ~np.isnan(y[:, 0])
                first = filled & (lag.gap == 0)
                counts = np.ones(n, dtype=bool)
                if filled.any():
                    kept = memory(phi[:, i, 0], int(lag.gap[filled].max()))
                    memories = np.where(filled, kept.correlation[lag.gap * filled], phi[:, i, 0].sum())[:, None]
                    offsets[-1][filled] += (kept.correlation[lag.gap] * lag.values[np.maximum(lag.last, 0)])[filled, None]
            if self.autoregression.conditional:
                counts = counts & (np.arange(n) - begin >= self.reach)
            if not counts.all():
                y = y.copy() if y is rows.y else y
                y[~counts, d] = np.nan
        scales = self._scales(parameters, rows, filled & ~np.isnan(y[:, 0]), first, lags, kept)
        z, matrices, weights, begins = self._weights(parameters, rows, begin, unfolding)
        labels = rows.states[:, None].astype(float) if len(rows.states) else np.zeros((n, 0))
        O = max((part.shape[1] for part in offsets), default=0)
        if not (self.location or self.switching or self.autoregression):
            O, offsets = 0, []
        offsets = [np.broadcast_to(part, (n, O)) for part in offsets]
        parts = [offsets, [memories], pasts, [scales], [weights], [labels]]
        starts = np.cumsum([0, *(sum(p.shape[1] for p in part) for part in parts)]).tolist()
        at = Columns(
            starts[0], O, starts[1], memories.shape[1], starts[2], K if pasts else 0, starts[3], scales.shape[1],
            starts[4], weights.shape[1], starts[5], labels.shape[1],
        )  # fmt: skip
        flat = [one for part in parts for one in part if one.shape[1] > 0]
        x = np.ascontiguousarray(np.column_stack(flat)) if flat else np.zeros((n, 0))
        return RowTerms(
            np.ascontiguousarray(y), x, at, rows, tuple(lags), kept, filled, first, z, matrices, begins
        )  # fmt: skip

    def _lags(self, y: Array, eta: Array, own: Array, begin: IntArray) -> Lags:
        """Lags of one column y (n,), whose shared linear predictor is ``eta`` (n,)."""
        n, p, row = len(y), self.reach, np.arange(len(y))
        if not isinstance(self.autoregression, Intercept):
            values = y - eta
        else:
            values = np.log1p(y) if self.moves.logs.any() else y
        lagged = np.full((n, p), np.nan)
        for m in range(1, p + 1):
            lagged[m:, m - 1] = values[: n - m]
        lagged[row[:, None] - np.arange(1, p + 1) < begin[:, None]] = np.nan
        complete = ~np.isnan(lagged).any(1)
        last = np.maximum.accumulate(np.where(np.isnan(values), -1, row))
        last = np.concatenate([[-1], last[:-1]])
        last = np.where(last >= begin, last, -1)
        gap = np.where(last >= 0, row - last, 0)
        return Lags(values, np.where(np.isnan(lagged), 0.0, lagged), complete, gap, last, own)

    def _offset(
        self, parameters: Parameters, lag: Lags, eta: Array, phi: Array, d: int, unfolding: Unfolding
    ) -> Array:
        """Offsets (n, 1, K or U) of the linear predictor of column d, with coefficients phi (p, 1 or K)."""
        eta = eta[:, None] + lag.own if self.switching else eta[:, None]
        if not isinstance(self.autoregression, Hamilton):
            return eta + np.where(lag.complete[:, None], lag.lagged @ phi, 0.0)
        states, level = unfolding.states, parameters.phi[:, self.moves.level[d]]
        newest = states[:, 0]
        out = eta[:, newest] if self.switching else np.repeat(eta, len(states), axis=1)
        for m in range(1, self.reach + 1):
            before = level[states[:, m]] + (shifted(lag.own, m)[:, states[:, m]] if self.switching else 0.0)
            share = phi[m - 1, newest] if phi.shape[1] > 1 else phi[m - 1, 0]
            out = out + share * (lag.lagged[:, m - 1 : m] - before)
        return np.where(lag.complete[:, None], out, 0.0)

    def _scales(
        self, parameters: Parameters, rows: Rows, filled: BoolArray, first: BoolArray, lags: list[Lags], kept: Memory | None
    ) -> Array:
        """Log scales (n, 0, 1 or K)."""
        n = len(rows.y)
        total = np.zeros((n, 0))
        if self.scale:
            total = self.scale.predict(rows, self.block("scale", parameters.coefficients))[:, None]
        if kept is None or not filled.any():
            return total
        gaps = np.where(filled, kept.scale[lags[0].gap * filled], 0.0)[:, None]
        total = total + gaps if self.scale else gaps
        if self.mixed_start and (first & filled).any():
            total = np.repeat(total, self.n_states, axis=1)
            total[first & filled] += start_scale(self, parameters) - kept.scale[0]
        return total

    def _weights(
        self, parameters: Parameters, rows: Rows, begin: IntArray, unfolding: Unfolding
    ) -> tuple[Array, Array, Array, IntArray]:
        """Inputs of transitions (n, q), matrices (n, K, K), probabilities of edges (n, E), and rows that begin sequences."""
        n, K = len(rows.y), self.n_states
        begins = np.flatnonzero(begin == np.arange(n))
        if self.slopes is None:
            return np.zeros((n, 0)), np.zeros((0, K, K)), np.zeros((n, 0)), begins
        z = self.slopes.design(rows)
        matrices = self.transition.matrices(parameters.transition, self.block("slopes", parameters.coefficients), z)
        weights = np.ascontiguousarray(unfolding.weights(matrices))
        for row in begins:
            distribution = stationary(matrices[row]) if self.start is None else self.start
            nodes = unfolding.start(distribution, self.start is None)
            weights[row] = 0.0
            weights[row, : len(nodes)] = nodes
        return z, matrices, weights, begins

    # ------------------------------------------------------------ and back
    def pull(self, parameters: Parameters, terms: RowTerms, out: Array, unfolding: Unfolding) -> "Pulled":
        """Derivatives in the coefficients from those ``out`` (n, C) in the columns of a stretch of rows."""
        at, c, K = terms.at, parameters.coefficients, self.n_states
        found = np.zeros(self.size)
        scores = np.zeros(parameters.phi.shape)
        n, D = terms.y.shape
        start = np.zeros(K)
        phi = self.block("lags", c)
        offsets = out[:, at.offset : at.offset + D * at.offsets].reshape(n, D, at.offsets)
        memories = out[:, at.memory : at.memory + at.memories].sum(1)
        scales = out[:, at.scale : at.scale + at.scales]
        pasts = out[:, at.past : at.past + D * at.pasts].reshape(n, D, at.pasts)
        for i, d in enumerate(self.moves.predicted):
            if at.offsets == 0:
                break
            slope = offsets[:, d]  # (n, O)
            eta, own = slope.sum(1), slope
            if self.autoregression is not None:
                lag = terms.lags[i]
                back, dphi, own = self._pull_lags(parameters, lag, slope, phi[:, i], d, unfolding, scores)
                if terms.memory is not None:
                    back2, more = self._pull_gaps(terms, lag, eta, memories, scales.sum(1))
                    back, dphi = back + back2, dphi + more[:, None]
                self.block("lags", found)[:, i] += dphi
                if not isinstance(self.autoregression, Intercept):
                    eta = eta - back
            if self.location:
                self.block("location", found)[:, i] += self.location.gradient(terms.rows, eta)
            if self.switching:
                if at.pasts:
                    own = own.copy()
                    np.add.at(own, np.maximum(lag.last, 0), np.where(lag.gap[:, None] > 0, pasts[:, d], 0.0))
                self.block("switching", found)[:, i] += self.switching.gradient(terms.rows, own)
        if self.scale:
            self.block("scale", found)[:] += self.scale.gradient(terms.rows, scales.sum(1))
        if self.mixed_start and terms.first.any() and at.scales == K and K > 1:
            start = scales[terms.first].sum(0)
        logits = self._pull_weights(parameters, terms, out[:, at.weight : at.weight + at.weights], found, unfolding)
        return Pulled(found, scores, start, logits)

    def _pull_lags(
        self, parameters: Parameters, lag: Lags, slope: Array, phi: Array, d: int, unfolding: Unfolding, scores: Array
    ) -> tuple[Array, Array, Array]:
        """Derivatives in the values (n,), in phi (p, 1 or K), and in the predictor of each state, for complete rows."""
        n, p = lag.lagged.shape
        slope = np.where(lag.complete[:, None], slope, 0.0) if isinstance(self.autoregression, Hamilton) else slope
        inside = np.where(lag.complete[:, None], slope, 0.0)
        back, own = np.zeros(n), slope
        if not isinstance(self.autoregression, Hamilton):
            share = phi if phi.shape[1] == slope.shape[1] else np.repeat(phi, slope.shape[1], axis=1)
            pulled = inside @ share.T  # (n, p)
            dphi = lag.lagged.T @ inside
            dphi = dphi if phi.shape[1] > 1 else dphi.sum(1, keepdims=True)
            for m in range(1, p + 1):
                back[: n - m] += pulled[m:, m - 1]
            return back, dphi, own
        states, level = unfolding.states, int(self.moves.level[d])
        newest, dphi, own = states[:, 0], np.zeros(phi.shape), np.zeros((n, self.n_states))
        np.add.at(own.T, newest, slope.T)
        for m in range(1, p + 1):
            weighted = inside * (phi[m - 1, newest] if phi.shape[1] > 1 else phi[m - 1, 0])
            back[: n - m] += weighted.sum(1)[m:]
            np.add.at(scores[:, level], states[:, m], -weighted.sum(0))
            before = np.broadcast_to(parameters.phi[states[:, m], level], inside.shape)
            if self.switching:
                before = before + shifted(lag.own, m)[:, states[:, m]]
                np.add.at(own[: n - m].T, states[:, m], -weighted[m:].T)
            each = (inside * (lag.lagged[:, m - 1 : m] - before)).sum(0)
            np.add.at(dphi[m - 1], newest if phi.shape[1] > 1 else np.zeros(len(states), dtype=int), each)
        return back, dphi, own

    def _pull_gaps(
        self, terms: RowTerms, lag: Lags, slope: Array, memories: Array, scales: Array
    ) -> tuple[Array, Array]:
        """Derivatives in the values (n,) and in phi (p,) of rows with missing lags."""
        kept, rows = terms.memory, np.flatnonzero(terms.filled)
        assert kept is not None
        gap, last = lag.gap[rows], np.maximum(lag.last[rows], 0)
        there = gap > 0
        back = np.zeros(len(slope))
        np.add.at(back, last[there], (kept.correlation[gap] * slope[rows])[there])
        correlation = np.where(there, slope[rows] * np.where(there, lag.values[last], 0.0) + memories[rows], 0.0)
        dphi = kept.correlation_slope[gap].T @ correlation
        counted = ~(terms.first[rows] & self.mixed_start)
        dphi = dphi + kept.scale_slope[gap].T @ np.where(counted, scales[rows], 0.0)
        complete = memories.sum() - memories[rows].sum()
        return back, dphi + complete

    def _pull_weights(
        self, parameters: Parameters, terms: RowTerms, counts: Array, found: Array, unfolding: Unfolding
    ) -> Array:
        """Derivatives in the logits of the transition matrix (K, K); those in the slopes are added to ``found``."""
        K = self.n_states
        if self.slopes is None:
            return np.zeros((K, K))
        first = counts[terms.begins].copy()
        counts[terms.begins] = 0.0
        steps = unfolding.pull(terms.matrices, counts)
        logits, slopes = self.transition.pull(terms.matrices, steps, terms.z)
        M = len(unfolding.paths)
        for row, gamma in zip(terms.begins, first, strict=True):
            if self.start is not None or not gamma.any():
                continue
            P = terms.matrices[row]
            more = stationary_slope(P, unfolding.pull_first(stationary(P), gamma[:M], True))
            logits = logits + more
            slopes = slopes + terms.z[row][:, None, None] * more
        self.block("slopes", found)[:] += slopes
        return logits


class Pulled(NamedTuple):
    """Derivatives that follow from those in columns.

    ``coefficients`` (c,); ``scores`` (K, P), to add to those of the states' parameters; ``start`` (K,), in the log scale
    of first values; ``logits`` (K, K), in those of the transition matrix.
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
    V = np.linalg.solve(np.eye(len(s2)) - R2 * reverse, s2)
    return np.asarray(0.5 * np.log(V / s2))


def pull_start_scale(effects: Effects, parameters: Parameters, slope: Array) -> tuple[Array, Array, Array, Array]:
    """Derivatives of ``start_scale`` times ``slope`` (K,).

    In the parameters (K, P) and the lags (p,), and as counts of transitions (K, K) and of first states (K,) whose log
    probabilities have the same derivatives.
    """
    s2, R2, reverse = _mixture(effects, parameters)
    system = np.eye(len(s2)) - R2 * reverse
    V = np.linalg.solve(system, s2)
    pulled = np.linalg.solve(system.T, slope / (2 * V))
    scores = np.zeros(parameters.phi.shape)
    scores[:, np.flatnonzero(effects.moves.power)[0]] = pulled - slope / (2 * s2)
    pairs = (R2 * np.outer(pulled, V) * reverse).T
    lags = (pulled @ reverse @ V) * predictable_slope(_only_lags(effects, parameters))
    return scores, lags, pairs, pairs.sum(1) - pairs.sum(0)


def _only_lags(effects: Effects, parameters: Parameters) -> Array:
    """Coefficients (p,) of the lags of the only column."""
    return effects.block("lags", parameters.coefficients)[:, 0, 0]


def _mixture(effects: Effects, parameters: Parameters) -> tuple[Array, float, Array]:
    """Variances (K,) of innovations, R^2, and the reversed transition matrix."""
    pi, P = stationary(parameters.transition), parameters.transition
    s2 = parameters.phi[:, np.flatnonzero(effects.moves.power)[0]]
    return s2, float(predictable(_only_lags(effects, parameters))), (pi[:, None] * P).T / pi[:, None]


def check_effects(model: Any) -> None:
    """Raise unless the effects of a model have a meaning for its family, and fit each other."""
    family, name, ar = model.family, model.name, model.autoregression
    at = moves(family)
    for part in ("inputs", "switching", "scale"):
        given = getattr(model, part)
        if given is not None and not isinstance(given, Inputs):
            raise TypeError(f"{part} is {given!r}; make it with Inputs.of(series, terms).")
        if given is not None and part != "scale" and len(at.predicted) == 0:
            raise ValueError(f"{name} takes no inputs: none of its parameters has a linear predictor. Drop {part}.")
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
            raise ValueError(f"Hamilton takes one column and {name} has {columns(family)}; use AroundLevel({ar.order}).")
    if not hasattr(model.transitions, "phases") or isinstance(model.transitions, type):
        raise TypeError(f"transitions is {model.transitions!r}; use Homogeneous(), Regression(inputs) or Phases(lengths).")
    phases = model.transitions.phases(model.n_states)
    if isinstance(ar, Hamilton) and ar.order > 1 and phases.max() > 1:
        raise ValueError(f"Hamilton({ar.order}) cannot be combined with Phases; use AroundLevel({ar.order}).")
    if model.transitions.inputs is not None and model.coordinates.is_expanded:
        raise ValueError("ExpandedMean does not support transitions with inputs; use AdditiveLogRatio().")


def shifted(values: Array, m: int) -> Array:
    """Rows m steps earlier, 0 where there are none."""
    out = np.zeros(values.shape)
    out[m:] = values[: len(values) - m]
    return out
