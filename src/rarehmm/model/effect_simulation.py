"""Simulation where rows differ: observations that depend on inputs, on earlier values and on earlier states.

States come first.  Observations follow from them in the order of time: for location families all at once, without their
lags, which a filter then adds; for others, such as counts, step by step.

The first p rows of a sequence are a part of the likelihood only in the stationary form around the level.  The other
forms take them as given, and say nothing about how they depend on states.  They are those of ``rows`` if they are
observed there.  Others are drawn from the model around the level of a state of their own, independent of the path, so
that simulated series and likelihood agree.
"""

from collections.abc import Sequence
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


class Draw(NamedTuple):
    """What the observations of n rows are drawn from.

    ``y`` (n, D) are the observations, of which those that are ``given`` (n,) stay as they are in columns with lags;
    ``step`` (n,): number of rows before in the same sequence; ``phi`` (n, P): parameters of states; ``shift`` (n, D)
    and ``zeta`` (n,): what is added to linear predictors and log scales, but for the ``lags`` of each column.
    """

    y: Array
    given: BoolArray
    step: IntArray
    phi: Array
    shift: Array
    zeta: Array
    lags: tuple["ColumnLags", ...]


def simulate_rows(
    rng: np.random.Generator,
    model: Model,
    points: Sequence[Parameters],
    rows: Rows,
    begin: IntArray,
    before: int = 0,
    nodes: Sequence[int] | None = None,
) -> list[tuple[Array, IntArray]]:
    """Simulate observations (n - before, D) and nodes (n - before,) of a stretch of n rows, from each of some points.

    Parameters
    ----------
    rng, model
        As for ``simulate``.
    points
        Parameters in natural units.
    rows
        Inputs and clock of all rows.  Observations are read from the first ``before`` of them, which the others
        continue, and, where the model takes them as given, from the first rows of sequences.
    begin
        First row (n,) of the sequence of each, negative if before these.
    before
        Number of rows that are there already.
    nodes
        The node of ``model.unfolding`` in the last of these, for each of the ``points``.
    """
    last = [0] * len(points) if nodes is None else nodes
    started = [
        _draw_states(rng, model, point, rows, begin, before, node) for point, node in zip(points, last, strict=True)
    ]
    draw_observations(rng, model, [draw for draw, _ in started])
    return [(draw.y[before:], path) for draw, path in started]


def _draw_states(
    rng: np.random.Generator, model: Model, parameters: Parameters, rows: Rows, begin: IntArray, before: int, node: int
) -> tuple[Draw, IntArray]:
    """Draw the nodes (n - before,) of a stretch of rows, and the rows that are given."""
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
    return prepare_draw(model, parameters, rows, begin, states, y, given), nodes


def has_density(model: Model, begin: IntArray) -> BoolArray:
    """Mask (n,) of the rows that are not the first ones of a sequence which the model takes as given."""
    effects = model.every_effect
    if not effects.gives_first_rows:
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
        draw = prepare_draw(
            model, parameters, Rows(warm, rows.exog[flat], rows.clock[flat], rows.states[:0]),
            np.repeat(np.arange(len(some)) * len(steps), len(steps)), np.repeat(state[some], len(steps)), warm,
            np.zeros(len(flat), dtype=bool),
        )  # fmt: skip
        draw_observations(rng, model, [draw])
        mine = (beyond < n) & (np.maximum(begin[at], 0) == begins[some, None]) & gone[at]
        mine[:, :WARM] = False
        found, place = warm[mine.ravel()], at[mine]
        y[place] = np.where(np.isnan(y[place]), found, y[place])


def prepare_draw(
    model: Model,
    parameters: Parameters,
    rows: Rows,
    begin: IntArray,
    states: IntArray,
    y: Array,
    given: BoolArray,
) -> Draw:
    """What observations y (n, D) of rows in these states (n,) are drawn from.

    Rows whose lags are missing, and which have no density without them, are drawn as if there were no lags.
    """
    effects, ar = model.every_effect, model.every_effect.autoregression
    n, row = len(y), np.arange(len(y))
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
            shift[:, d] -= levels_before(model, parameters, one, per_state, states, i)
            zeta = zeta + one.log_scale
    return Draw(y, given, row - np.maximum(begin, 0), parameters.phi[states], shift, zeta, tuple(lags))


def draw_observations(rng: np.random.Generator, model: Model, draws: Sequence[Draw]) -> None:
    """Fill in the observations of each of some stretches."""
    effects = model.every_effect
    if effects.autoregression is not None and not moves_data(model, draws[0].phi[0]):
        _draw_in_order(rng, model, draws)
        return
    for y, given, _, phi, shift, zeta, lags in draws:
        found = _draw(rng, model, move_parameters(model.family, phi, shift, zeta[:, None]))
        for one, d in zip(lags, effects.moves.predicted if lags else (), strict=True):
            values = np.where(given, one.values, found[:, d])
            follow_lags(values, given, one.weights, one.marks, one.shares)
            found[:, d] = np.where(given, y[:, d], values + one.rest)
        y[:] = np.clip(found, -LARGEST, LARGEST)


class ColumnLags(NamedTuple):
    """Lags of one column of n rows.

    ``values`` (n,): what lags are taken of, NaN in rows that are to be drawn; ``rest`` (n,): what observations have
    beyond it; ``marks`` (n,) as in ``kernels.lags``; ``weights`` (n, p) of the last p values, where all of them are
    there; and, where they are not, ``shares`` (n,) of the last observed value, and what is added to ``log_scale`` (n,).
    """

    values: Array
    rest: Array
    marks: IntArray
    weights: Array
    shares: Array
    log_scale: Array


def column_lags(
    model: Model, parameters: Parameters, begin: IntArray, y: Array, given: BoolArray, states: IntArray, i: int,
    eta: Array | None,
) -> ColumnLags:  # fmt: skip
    """Lags of a column y (n,), which has predictor number i, to all of whose states inputs add ``eta`` (n,)."""
    effects, n = model.every_effect, len(y)
    coefficients = effects.block("lags", parameters.coefficients)[:, i]
    marks, log_scale, shares = np.empty(n, dtype=np.int64), np.zeros(n), np.zeros(n)
    p, Q = coefficients.shape
    add_lags(np.where(given & np.isnan(y), np.nan, 0.0), begin, np.zeros((p, 0)), np.empty((n, 0)), marks)
    if effects.fills_gaps:
        kept = memory(coefficients[:, 0], int(marks.max()))
        gap, first = marks > 0, marks == NOTHING
        shares[gap], log_scale[gap] = kept.correlation[marks[gap]], kept.scale[marks[gap]]
        log_scale[first] = start_scale(effects, parameters)[states[first]] if effects.mixed_start else kept.scale[0]
    else:
        marks[marks != COMPLETE] = NOTHING
    rest = np.zeros(n) if eta is None or isinstance(effects.autoregression, Intercept) else eta
    weights = np.ascontiguousarray(coefficients.T[states if Q > 1 else np.zeros(n, dtype=np.int64)])  # (n, p)
    weights[marks != COMPLETE] = 0.0
    values = effects.lagged_values(y, eta, int(effects.moves.predicted[i]))
    return ColumnLags(values, rest, marks, weights, shares, log_scale)


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
            out[full] += lag.weights[full, m - 1] * (level[state] + own[full - m, state])
        return out
    last = np.arange(n) - np.where(lag.marks == COMPLETE, 1, lag.marks)
    late = np.flatnonzero(lag.marks != NOTHING)
    state = states[late - 1]
    out[late] = (lag.weights.sum(1) + lag.shares)[late] * (level[state] + own[last[late], state])
    return out


def moves_data(model: Model, phi: Array) -> bool:
    """Whether adding to linear predictors adds to observations, in a state with parameters phi (P,)."""
    family, D = model.family, columns(model.family)
    y, eta = ((value,) * D if D > 1 else value for value in (1.0, 0.25))
    c = prepare(family, phi)
    there: Any = with_predictor(family, y, c, eta)
    own = np.isin(np.arange(D), model.every_effect.moves.predicted)
    shifted = np.array_equal(np.atleast_1d(there[0]), np.where(own, 0.75, 1.0))
    return shifted and all(np.array_equal(a, b) for a, b in zip(c, there[1], strict=True))


def _draw(rng: np.random.Generator, model: Model, phi: Array) -> Array:
    """Observations (n, D) of rows, each with parameters of its own, (n, P)."""
    y = model.family.draw(rng, np.arange(len(phi)), phi)
    return np.asarray(y, dtype=float).reshape(len(phi), columns(model.family))


def _draw_in_order(rng: np.random.Generator, model: Model, draws: Sequence[Draw]) -> None:
    """Draw observations in the order of time, those of all sequences and stretches together."""
    effects, predicted = model.every_effect, model.every_effect.moves.predicted
    y, given, step, phi, shift, zeta = (
        np.concatenate(part) for part in zip(*(draw[:6] for draw in draws), strict=True)
    )
    lags = [
        ColumnLags(*(np.concatenate(part) for part in zip(*own, strict=True)))
        for own in zip(*(draw.lags for draw in draws), strict=True)
    ]
    others = np.setdiff1d(np.arange(y.shape[1]), predicted)
    first = _draw(rng, model, move_parameters(model.family, phi[given], shift[given], zeta[given, None]))
    y[np.ix_(given, others)] = first[:, others]
    recent, values = np.arange(1, effects.reach + 1), [np.nan_to_num(one.values) for one in lags]
    rows = np.flatnonzero(~given)
    order = np.argsort(step[rows], kind="stable")
    for t in np.split(rows[order], np.flatnonzero(np.diff(step[rows][order])) + 1):
        eta = shift[t]
        for d, one, value in zip(predicted, lags, values, strict=True):
            eta[:, d] += one.rest[t] + (one.weights[t] * value[t[:, None] - recent]).sum(1)
            eta[:, d] += one.shares[t] * value[t - np.maximum(one.marks[t], 0)]
        y[t] = np.clip(_draw(rng, model, move_parameters(model.family, phi[t], eta, zeta[t, None])), -LARGEST, LARGEST)
        for d, one, value in zip(predicted, lags, values, strict=True):
            value[t] = effects.lagged_values(y[t, d], one.rest[t], int(d))
    for draw, found in zip(draws, np.split(y, np.cumsum([len(draw.y) for draw in draws])[:-1]), strict=True):
        draw.y[:] = found
