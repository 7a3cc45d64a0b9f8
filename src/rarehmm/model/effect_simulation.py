"""Simulation where rows differ: observations that depend on inputs, on earlier values and on earlier states.

States come first.  Observations follow from them in the order of time: for location families all at once, without their
lags, which a filter then adds; for others, such as counts, one by one.

The first p rows of a sequence are a part of the likelihood only in the stationary form around the level.  The other
forms take them as given, and say nothing about how they depend on states.  They are those of ``rows`` if they are
observed there.  Others are drawn from the model around the level of a state of their own, independent of the path, so
that simulated series and likelihood agree.
"""

from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.rows import Rows
from rarehmm.data.summaries import LARGEST
from rarehmm.engine.contracts.family import columns, move_parameters, prepare, with_predictor
from rarehmm.engine.kernels.edges import draw_nodes
from rarehmm.engine.kernels.lags import COMPLETE, NOTHING, add_lags, follow_lags
from rarehmm.model.autoregression import Hamilton, Intercept, memory
from rarehmm.model.effects import start_scale
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

WARM = 200  # rows from zero to the first rows that no one gave
TOGETHER = 1000  # sequences whose first rows are drawn together


def simulate_rows(
    rng: np.random.Generator,
    model: Model,
    parameters: Parameters,
    rows: Rows,
    begin: IntArray,
    before: int = 0,
    node: int = 0,
) -> tuple[Array, IntArray]:
    """Simulate observations (n - before, D) and nodes (n - before,) of a stretch of n rows.

    Parameters
    ----------
    rng, model, parameters
        As for ``simulate``.
    rows
        Inputs and clock of all rows.  Observations are read from the first ``before`` of them, which the others
        continue, and, where the model takes them as given, from the first rows of sequences.
    begin
        First row (n,) of the sequence of each, negative if before these.
    before
        Number of rows that are there already.
    node
        The node of ``model.unfolding`` in the last of these.
    """
    effects, unfolding, n = model.every_effect, model.unfolding, len(rows.y)
    chain, fresh = unfolding.chain, begin == np.arange(n)
    weight = unfolding.weights(parameters.transition)[None]
    start = unfolding.start(parameters.start, model.start is None)[None]
    if effects.slopes is not None:
        weight = effects.edge_weights(parameters, rows, begin, unfolding)
        start = np.ascontiguousarray(weight[:, : len(chain.first_kind)])
    nodes = np.empty(n - before, dtype=np.int64)
    each = (part[before:] if len(part) > 1 else part for part in (weight, start))
    draw_nodes(rng.random(len(nodes)), *each, fresh[before:], chain, node, nodes)
    path = unfolding.paths[node]  # newest first
    earlier = path[np.minimum(np.arange(before)[::-1], len(path) - 1)]
    states = np.concatenate([earlier, chain.node_state[nodes]])
    y, given = np.full(rows.y.shape, np.nan), np.arange(n) < before
    if effects.autoregression is not None:
        own, lagged = effects.moves.predicted, given & (not effects.fills_gaps)
        first = ~has_density(model, begin)
        given = given | first
        y[np.ix_(given, own)] = rows.y[np.ix_(given, own)]
        first &= np.arange(n) >= before
        gone = (lagged | first) & np.isnan(y[:, own]).any(1)
        if gone.any():
            begins = np.unique(np.maximum(begin[gone], 0))
            others = np.empty(len(begins), dtype=np.int64)
            draw_nodes(
                rng.random(len(begins)), weight[:1], start[begins] if len(start) > 1 else start,
                np.ones(len(begins), dtype=bool), chain, 0, others,
            )  # fmt: skip
            state = np.where(begins < before, path[0], chain.node_state[others])
            fill_first(rng, model, parameters, rows, begin, y, gone, begins, state, max(before, effects.reach))
    draw_observations(rng, model, parameters, rows, begin, states, y, given)
    return y[before:], nodes


def has_density(model: Model, begin: IntArray) -> BoolArray:
    """Mask (n,) of the rows that are not the first ones of a sequence which the model takes as given."""
    effects = model.every_effect
    if effects.fills_gaps and not getattr(effects.autoregression, "conditional", False):
        return np.ones(len(begin), dtype=bool)
    return np.asarray(np.arange(len(begin)) - begin >= effects.reach)


def fill_first(
    rng: np.random.Generator,
    model: Model,
    parameters: Parameters,
    rows: Rows,
    begin: IntArray,
    y: Array,
    gone: BoolArray,
    begins: IntArray,
    state: IntArray,
    length: int,
) -> None:
    """Fill in the rows that are ``gone`` among the first ``length`` of some sequences, around the level of a state.

    ``begins`` (s,) are the first rows of these sequences in ``y``, and ``state`` (s,) their states.
    """
    n, steps = len(y), np.maximum(np.arange(WARM + length) - WARM, 0)
    for some in np.array_split(np.arange(len(begins)), -(-len(begins) // TOGETHER)):
        beyond = begins[some, None] + steps  # (s, WARM + length)
        at = np.minimum(beyond, n - 1)
        flat = at.ravel()
        warm = np.full((len(flat), y.shape[1]), np.nan)
        draw_observations(
            rng, model, parameters, Rows(warm, rows.exog[flat], rows.clock[flat], rows.states[:0]),
            np.repeat(np.arange(len(some)) * len(steps), len(steps)), np.repeat(state[some], len(steps)), warm,
            np.zeros(len(flat), dtype=bool),
        )  # fmt: skip
        mine = (beyond < n) & (np.maximum(begin[at], 0) == begins[some, None]) & gone[at]
        mine[:, :WARM] = False
        found, place = warm[mine.ravel()], at[mine]
        y[place] = np.where(np.isnan(y[place]), found, y[place])


def draw_observations(
    rng: np.random.Generator,
    model: Model,
    parameters: Parameters,
    rows: Rows,
    begin: IntArray,
    states: IntArray,
    y: Array,
    given: BoolArray,
) -> None:
    """Draw the observations y (n, D) of rows in these states (n,), in place.

    Of the rows that are ``given`` (n,), the columns with lags stay as they are.  Rows whose lags are missing, and which
    have no density without them, are drawn as if there were no lags.
    """
    effects, ar = model.every_effect, model.every_effect.autoregression
    n, row, phi = len(y), np.arange(len(y)), parameters.phi[states]
    shift, zeta = np.zeros(y.shape), effects.log_scale(parameters, rows)
    lags: list[ColumnLags] = []
    for i, d in enumerate(effects.moves.predicted):
        eta, own = effects.predictors(parameters, rows, i)
        per_state = own if effects.switching else np.zeros((n, model.n_states))
        shift[:, d] = per_state[row, states]
        if ar is None or isinstance(ar, Intercept):
            shift[:, d] += 0.0 if eta is None else eta
        if ar is not None:
            one = column_lags(model, parameters, begin, y[:, d], given, states, i, eta)
            lags.append(one)
            before = levels_before(model, parameters, one, per_state, states, i)
            shift[:, d] -= before
            zeta = zeta + one.log_scale
    if ar is None:
        y[:] = _draw(rng, model, move_parameters(model.family, phi, shift, zeta[:, None]))
        return
    if moves_data(model, parameters):
        found = _draw(rng, model, move_parameters(model.family, phi, shift, zeta[:, None]))
        for one, d in zip(lags, effects.moves.predicted, strict=True):
            values = np.where(given, one.values, found[:, d])
            follow_lags(values, given, one.coefficients, one.which, one.marks, one.shares)
            found[:, d] = np.where(given, y[:, d], values + one.rest)
        y[:] = np.clip(found, -LARGEST, LARGEST)
        return
    _draw_in_order(rng, model, phi, shift, zeta, lags, y, given)


class ColumnLags(NamedTuple):
    """Lags of one column of n rows.

    ``values`` (n,): what lags are taken of, NaN in rows that are to be drawn; ``rest`` (n,): what observations have
    beyond it; ``coefficients`` (p, Q), and the column ``which`` (n,) of them that each row takes; ``marks`` (n,) as in
    ``kernels.lags``; ``shares``: what is left of a value after 0, 1, ... steps; and ``log_scale`` (n,): what is added
    to the log scale where lags are missing.
    """

    values: Array
    rest: Array
    coefficients: Array
    which: IntArray
    marks: IntArray
    shares: Array
    log_scale: Array


def column_lags(
    model: Model, parameters: Parameters, begin: IntArray, y: Array, given: BoolArray, states: IntArray, i: int,
    eta: Array | None,
) -> ColumnLags:  # fmt: skip
    """Lags of a column y (n,), which has predictor number i, to all of whose states inputs add ``eta`` (n,)."""
    effects, n = model.every_effect, len(y)
    coefficients = np.ascontiguousarray(effects.block("lags", parameters.coefficients)[:, i])
    marks, log_scale, shares = np.empty(n, dtype=np.int64), np.zeros(n), np.zeros(1)
    p, Q = coefficients.shape
    add_lags(np.where(given & np.isnan(y), np.nan, 0.0), begin, np.zeros((p, 0)), np.empty((n, 0)), marks)
    if effects.fills_gaps:
        kept = memory(coefficients[:, 0], int(marks.max()))
        gap, first, shares = marks > 0, marks == NOTHING, kept.correlation
        log_scale[gap] = kept.scale[marks[gap]]
        log_scale[first] = start_scale(effects, parameters)[states[first]] if effects.mixed_start else kept.scale[0]
    else:
        marks[marks != COMPLETE] = NOTHING
    rest = np.zeros(n) if eta is None or isinstance(effects.autoregression, Intercept) else eta
    return ColumnLags(
        np.ascontiguousarray(effects.lagged_values(y, eta)), rest, coefficients,
        states if Q > 1 else np.zeros(n, dtype=np.int64), marks, shares, log_scale,
    )  # fmt: skip


def levels_before(model: Model, parameters: Parameters, lag: ColumnLags, own: Array, states: IntArray, i: int) -> Array:
    """What lags subtract of levels (n,) in earlier states, to whose levels inputs add ``own`` (n, K)."""
    effects, ar = model.every_effect, model.every_effect.autoregression
    n, out = len(states), np.zeros(len(states))
    if isinstance(ar, Intercept):
        return out
    level = parameters.phi[:, effects.moves.level[effects.moves.predicted[i]]]
    full = np.flatnonzero(lag.marks == COMPLETE)
    if isinstance(ar, Hamilton):
        for m in range(1, effects.reach + 1):
            state = states[full - m]
            out[full] += lag.coefficients[m - 1, lag.which[full]] * (level[state] + own[full - m, state])
        return out
    last = np.arange(n) - np.where(lag.marks == COMPLETE, 1, lag.marks)
    share = np.where(lag.marks == COMPLETE, lag.coefficients.sum(0)[lag.which], lag.shares[np.maximum(lag.marks, 0)])
    late = np.flatnonzero(lag.marks != NOTHING)
    state = states[late - 1]
    out[late] = share[late] * (level[state] + own[last[late], state])
    return out


def moves_data(model: Model, parameters: Parameters) -> bool:
    """Whether adding to the linear predictors of a family is the same as adding to its observations."""
    family, D = model.family, columns(model.family)
    y, eta = ((value,) * D if D > 1 else value for value in (1.0, 0.25))
    c = prepare(family, parameters.phi[0])
    there: Any = with_predictor(family, y, c, eta)
    own = np.isin(np.arange(D), model.every_effect.moves.predicted)
    shifted = np.array_equal(np.atleast_1d(there[0]), np.where(own, 0.75, 1.0))
    return shifted and all(np.array_equal(a, b) for a, b in zip(c, there[1], strict=True))


def _draw(rng: np.random.Generator, model: Model, phi: Array) -> Array:
    """Observations (n, D) of rows, each with parameters of its own, (n, P)."""
    y = model.family.draw(rng, np.arange(len(phi)), phi)
    return np.asarray(y, dtype=float).reshape(len(phi), columns(model.family))


def _draw_in_order(
    rng: np.random.Generator, model: Model, phi: Array, shift: Array, zeta: Array, lags: list[ColumnLags], y: Array,
    given: BoolArray,
) -> None:  # fmt: skip
    """Draw observations one by one, whose linear predictors are ``shift`` (n, D) and what lags add to it."""
    effects = model.every_effect
    others = np.setdiff1d(np.arange(y.shape[1]), effects.moves.predicted)
    first = _draw(rng, model, move_parameters(model.family, phi[given], shift[given], zeta[given, None]))
    y[np.ix_(given, others)] = first[:, others]
    for t in np.flatnonzero(~given).tolist():
        eta = shift[t].copy()
        for one, d in zip(lags, effects.moves.predicted, strict=True):
            eta[d] += one.rest[t]
            if one.marks[t] == COMPLETE:
                recent = one.values[t - effects.reach : t][::-1]
                eta[d] += one.coefficients[:, one.which[t]] @ recent
            elif one.marks[t] > 0:
                eta[d] += one.shares[one.marks[t]] * one.values[t - one.marks[t]]
        row = _draw(rng, model, move_parameters(model.family, phi[t], eta, zeta[t])[None])[0]
        y[t] = np.clip(row, -LARGEST, LARGEST)
        for one, d in zip(lags, effects.moves.predicted, strict=True):
            one.values[t] = effects.lagged_values(y[t : t + 1, d], one.rest[t])[0]
