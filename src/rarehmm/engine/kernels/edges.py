r"""Passes over blocks for models whose steps differ: inputs, autoregression, transitions with inputs, known states.

What is summed over is a sequence of *edges*.  The states of a model unfold to a chain of M nodes (more than K if a
state has several phases, or if the density needs the states of several steps) and E edges between them:

.. math:: a_t(m) = \sum_{e \to m} a_{t-1}(source_e)\, w_e(t)\, f_{kind_e}(y_t \mid t)

``w`` is a transition probability, which may change with time, and each edge has one of U *kinds* of densities: one for
each state where the density depends on the state alone, one for each pair of states where it depends on the last one as
well.  The density of a kind is that of its state, with the linear predictor

.. math:: \eta_u(t) = offset_u(t) - memory_u(t)\,(level_u + past_u(t))

and a log scale.  Everything that depends on the row is a column next to the observations; a backward pass leaves the
derivative of the log likelihood with respect to each entry in its place.  Messages are handled as in ``messages``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.engine.contracts.family import Family, columns, log_density, score, with_log_scale, with_predictor
from rarehmm.engine.dispatch import inner, kernel, specialise
from rarehmm.engine.elementary import LOWEST, positive_log, relative
from rarehmm.engine.kernels.full_pass import TILE, gather_blocks, load_messages, store_messages
from rarehmm.engine.kernels.messages import constants, observation, seen
from rarehmm.engine.lanes import LANES, lane_array, load, splat, store

TOGETHER = 16  # steps whose densities are computed together: what they take stays in the fastest cache
DOUBT_GONE = 30.0  # logarithm of how much more probability a node needs than may have been lost


class Chain(NamedTuple):
    """The chain of M nodes, E edges and U kinds of densities to which the states of a model unfold.

    ``source``, ``target``, ``kind`` (E,): nodes and kind of each edge; ``first_kind`` (M,): kind of the density of the
    first observation of a sequence in each node; ``state`` (U,): state of each kind, ``before`` (U,): the state one
    step earlier; ``node_state`` (M,): state of each node; ``idle`` (E,): probabilities of edges outside sequences;
    ``entry`` (E,): entry of the transition matrix, row by row, of each edge.
    """

    source: IntArray
    target: IntArray
    kind: IntArray
    first_kind: IntArray
    state: IntArray
    before: IntArray
    node_state: IntArray
    idle: Array
    entry: IntArray


class EdgePoint(NamedTuple):
    """Parameters as these kernels see them.

    ``phi`` (K, P) and the family's constants ``c`` (K, C); ``weight`` (E,) and ``start`` (M,), unless they are columns;
    ``level`` (U, D) and ``memory`` (K, D) of linear predictors; ``moved_column`` (P,): column whose predictor moves a
    parameter, -1 if none; ``logs`` (P,): whether it moves its logarithm; ``power`` (P,): power of the scale; ``base``
    (K * K,) and ``slopes`` (q, K * K): transition matrix where the inputs of transitions are 0, and their coefficients.
    """

    phi: Array
    c: Array
    weight: Array
    start: Array
    level: Array
    memory: Array
    moved_column: IntArray
    logs: IntArray
    power: Array
    base: Array
    slopes: Array


class Columns(NamedTuple):
    """First of the columns of each kind next to the observations, and how many there are of it.

    There is one ``offset`` for all states (in each of the D columns of the data), or one for each state or kind of
    density; one ``memory`` for all, one for each state, or none where it is constant; one ``past`` for each state, or
    none; one log ``scale`` for all, one for each state, or none; one ``slope`` column for each input of a regression of
    transitions; or else one ``weight`` for each edge, if these change.  In the row where a sequence begins, the first M
    weights are the distribution of its first node.  ``label`` is the known state of the row, negative if unknown.
    """

    offset: int
    offsets: int
    memory: int
    memories: int
    past: int
    pasts: int
    scale: int
    scales: int
    slope: int
    slopes: int
    weight: int
    weights: int
    label: int
    labels: int

    @property
    def differentiated(self) -> int:
        """Number of the columns whose derivatives are wanted: all before the inputs of transitions, and weights."""
        return self.weight + self.weights if self.weights > 0 else self.slope


class EdgeTask(NamedTuple):
    """Settings of a pass: as ``full_pass.Task``, and ``kinds``: whether responsibilities of kinds are wanted.

    ``careful``: whether nodes whose mass was cut off may matter later, because some transitions are impossible.
    """

    halo: int
    every: int
    back: bool
    kinds: bool
    careful: bool


class EdgeGroup(NamedTuple):
    """Workspace of one group of lanes; all arrays have LANES as their last axis.

    As ``messages.Group``, with ``x`` (n, C) columns, ``p`` (n, U) densities, ``a`` (n + 1, M), ``f`` (1, E) and
    ``mass`` (1, U) scratch, ``dx`` (n, C) derivatives in columns, ``slope`` (D,), ``eta`` and ``zeta`` (1, D),
    ``doubt`` (1,).  Responsibilities of kinds replace the densities ``p`` of the core.  Of a regression of transitions,
    ``w`` (n, K * K) are the matrices, ``counts`` (1, K * K) expected transitions, and ``start`` (1, M) the distribution
    of the first node, which the expected first nodes replace.
    """

    y: Array
    begin: Array
    steps: Array
    weight: Array
    x: Array
    p: Array
    a: Array
    scale: Array
    top: Array
    b: Array
    pb: Array
    f: Array
    mass: Array
    slope: Array
    dx: Array
    eta: Array
    zeta: Array
    doubt: Array
    w: Array
    counts: Array
    start: Array


def edge_group(n: int, D: int, C: int, chain: Chain, entries: int) -> EdgeGroup:
    """Allocate an ``EdgeGroup`` of up to n steps, D columns of data and C columns next to them.

    ``entries`` is the number of entries of the transition matrix if there is a regression of transitions, else 0.
    """
    M, E, U, one = len(chain.first_kind), len(chain.source), len(chain.state), lane_array
    return EdgeGroup(
        one(n, D), one(1), one(1), one(1), one(n, max(C, 1)), one(n, U), one(n + 1, M), one(n), one(n),
        one(1, M), one(1, M), one(1, E), one(1, U), one(D), one(n, max(C, 1)), one(1, D), one(1, D),
        one(1), one(n if entries > 0 else 1, entries), one(1, entries), one(1, M),
    )  # fmt: skip


class EdgeSums(NamedTuple):
    """Sums over the cores of lanes, all with LANES as their last axis.

    ``scores`` (K, P); ``levels`` (U, D) and ``memories`` (K, D): derivatives in these; ``edges`` (E,): expected number
    of transitions along each edge; ``first`` (M,): expected number of sequences that begin in each node; ``logits``
    (K * K,) and ``slopes`` (q, K * K): derivatives of a regression of transitions.
    """

    scores: Array
    levels: Array
    memories: Array
    edges: Array
    first: Array
    logits: Array
    slopes: Array


def edge_sums(point: EdgePoint, chain: Chain) -> tuple[Array, EdgeSums]:
    """Allocate sums, as one array (n, LANES) and as views of its parts."""
    flat = lane_array(sum(math.prod(s) for s in shapes_of_sums(point, chain)))
    return flat, split_edge_sums(flat, point, chain)


def shapes_of_sums(point: EdgePoint, chain: Chain) -> tuple[tuple[int, ...], ...]:
    """Shapes of the parts of ``EdgeSums``."""
    (U, D), K = point.level.shape, len(point.phi)
    return (
        point.phi.shape, (U, D), (K, D), (len(chain.source),), (len(chain.first_kind),), point.base.shape,
        point.slopes.shape,
    )  # fmt: skip


def split_edge_sums(flat: Array, point: EdgePoint, chain: Chain) -> EdgeSums:
    """Views of the parts of an array as from ``edge_sums``, with or without its lane axis."""
    parts, at = [], 0
    for shape in shapes_of_sums(point, chain):
        size = math.prod(shape)
        parts.append(flat[at : at + size].reshape(*shape, *flat.shape[1:]))
        at += size
    return EdgeSums(*parts)


# ---------------------------------------------------------------- the density of a kind
# Numba counts the references to arrays, and to all arrays of a tuple, in every call of a function with branches.  That
# is why the loops over steps are inside functions, and what depends on the step is not a function of its own.
@inner
def place(count, K, state, kind):
    """Which of ``count`` columns a kind of density reads: one for all, one for each state, or one for each kind."""
    if count == 1:
        return 0
    return state if count == K else kind


def density_moved(family: Family, y: Any, c: Any, eta: Any, zeta: Any, moves: bool, scales: bool) -> Any:
    """Log density of y where ``eta`` moves the linear predictor and ``zeta`` the log scale."""
    y, c = with_predictor(family, y, c, eta) if moves else (y, c)
    y, c = with_log_scale(family, y, c, zeta) if scales else (y, c)
    return log_density(family, y, c)


def score_moved(family: Family, y: Any, c: Any, eta: Any, zeta: Any, moves: bool, scales: bool) -> Any:
    """Scores in the moved parameters, where ``eta`` moves the linear predictor and ``zeta`` the log scale."""
    y, c = with_predictor(family, y, c, eta) if moves else (y, c)
    y, c = with_log_scale(family, y, c, zeta) if scales else (y, c)
    return score(family, y, c)


def _fixed(wanted: Any) -> Any:
    """``wanted`` of a family that nothing moves."""

    def found(family: Any, y: Any, c: Any, eta: Any, zeta: Any, moves: Any, scales: Any) -> Any:
        return wanted(family, y, c)

    return found


def _predicted(wanted: Any) -> Any:
    """``wanted`` of a family with a linear predictor."""

    def found(family: Any, y: Any, c: Any, eta: Any, zeta: Any, moves: Any, scales: Any) -> Any:
        if not moves:
            return wanted(family, y, c)
        y_moved, c_moved = with_predictor(family, y, c, eta)
        return wanted(family, y_moved, c_moved)

    return found


def _scaled(wanted: Any) -> Any:
    """``wanted`` of a family with a linear predictor and a log scale."""

    def found(family: Any, y: Any, c: Any, eta: Any, zeta: Any, moves: Any, scales: Any) -> Any:
        if not (moves or scales):
            return wanted(family, y, c)
        y_moved, c_moved = with_predictor(family, y, c, eta)
        if not scales:
            return wanted(family, y_moved, c_moved)
        y_scaled, c_scaled = with_log_scale(family, y_moved, c_moved, zeta)
        return wanted(family, y_scaled, c_scaled)

    return found


_OF_DENSITY = _fixed(log_density), _predicted(log_density), _scaled(log_density)
_OF_SCORE = _fixed(score), _predicted(score), _scaled(score)


def _by_moves(family: Any, choices: tuple[Any, Any, Any]) -> Any:
    """One of three implementations, by what can move the parameters of a family."""
    cls = family.instance_class
    return choices[(cls in with_predictor.registry) + (cls in with_log_scale.registry)]


specialise(density_moved, lambda family, *rest: _by_moves(family, _OF_DENSITY))
specialise(score_moved, lambda family, *rest: _by_moves(family, _OF_SCORE))


def find_densities(
    family: Family, point: EdgePoint, chain: Chain, at: Columns, g: EdgeGroup, first: int, last: int
) -> None:
    """Store the log densities of steps [first, last) for each kind in ``g.p``."""
    several = _find_several if columns(family) > 1 else _find_one
    several(family, point, chain, at, g, first, last)


def add_kinds(
    family: Family, point: EdgePoint, chain: Chain, at: Columns, g: EdgeGroup, sums: EdgeSums, first: int, last: int
) -> None:
    """Add the derivatives of steps [first, last), weighted by the responsibilities ``g.p``, to ``sums``.

    The derivatives with respect to columns go to ``g.dx``, except for those of transitions and labels.
    """
    several = _add_several if columns(family) > 1 else _add_one
    several(family, point, chain, at, g, sums, first, last)


@inner
def _find_one(family, point, chain, at, g, first, last):
    """Log densities of one column of data."""
    K, x, y, p = len(point.c), g.x, g.y, g.p
    lags, scales = len(point.memory) > 0, at.scales > 0
    moves = lags or at.offsets > 0
    for u in range(len(chain.state)):
        k = chain.state[u]
        c = constants(family, point.phi, point.c, k)
        own, kept = at.offset + place(at.offsets, K, k, u), at.memory + place(at.memories, K, k, u)
        past, scale = at.past + chain.before[u], at.scale + place(at.scales, K, k, u)
        share, before = splat(point.memory[k, 0] if lags else 0.0), splat(point.level[u, 0])
        eta, zeta = splat(0.0), splat(0.0)
        for t in range(first, last):
            if at.offsets > 0:
                eta = load(x, (t, own))
            if lags:
                kept_share = load(x, (t, kept)) if at.memories > 0 else share
                eta = eta - kept_share * (before + load(x, (t, past)) if at.pasts > 0 else before)
            if scales:
                zeta = load(x, (t, scale))
            store(p, (t, u), density_moved(family, load(y, (t, 0)), c, eta, zeta, moves, scales))


@inner
def _add_one(family, point, chain, at, g, sums, first, last):
    """Add the derivatives of one column of data."""
    K, x, y, p, dx = len(point.c), g.x, g.y, g.p, g.dx
    phi, moved, logs, power = point.phi, point.moved_column, point.logs, point.power
    total, levels, memories = sums.scores, sums.levels, sums.memories
    lags, scales = len(point.memory) > 0, at.scales > 0
    moves, steady = lags or at.offsets > 0, at.memories + at.pasts == 0
    for t in range(first, last):
        for i in range(at.slope):
            store(dx, (t, i), splat(0.0))
    for u in range(len(chain.state)):
        k = chain.state[u]
        c = constants(family, phi, point.c, k)
        own, kept = at.offset + place(at.offsets, K, k, u), at.memory + place(at.memories, K, k, u)
        past, scale = at.past + chain.before[u], at.scale + place(at.scales, K, k, u)
        share, before = splat(point.memory[k, 0] if lags else 0.0), splat(point.level[u, 0])
        eta, zeta, of_level, of_memory = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
        for t in range(first, last):
            if at.offsets > 0:
                eta = load(x, (t, own))
            here, there = share, before
            if lags:
                if at.memories > 0:
                    here = load(x, (t, kept))
                if at.pasts > 0:
                    there = before + load(x, (t, past))
                eta = eta - here * there
            if scales:
                zeta = load(x, (t, scale))
            value = load(y, (t, 0))
            present = seen(family, value)
            gamma = load(p, (t, u))
            slopes = score_moved(family, value, c, eta, zeta, moves, scales)
            slope, wide = splat(0.0), splat(0.0)
            for i in range(len(slopes)):
                v = np.where(present, gamma * slopes[i], 0.0)
                if moves and moved[i] >= 0:
                    if logs[i] > 0:
                        v = v * np.exp(eta)
                        slope = slope + v * phi[k, i]
                    else:
                        slope = slope + v
                if scales and power[i] > 0.0:
                    v = v * np.exp(power[i] * zeta)
                    wide = wide + v * (power[i] * phi[k, i])
                store(total, (k, i), load(total, (k, i)) + v)
            if at.offsets > 0:
                store(dx, (t, own), load(dx, (t, own)) + slope)
            if steady:
                of_level = of_level + slope
            else:
                of_level = of_level + slope * here
                if at.memories > 0:
                    store(dx, (t, kept), load(dx, (t, kept)) - slope * there)
                else:
                    of_memory = of_memory + slope * there
                if at.pasts > 0:
                    store(dx, (t, past), load(dx, (t, past)) - slope * here)
            if scales:
                store(dx, (t, scale), load(dx, (t, scale)) + wide)
        if lags:
            if steady:
                of_level, of_memory = of_level * share, of_level * before
            store(levels, (u, 0), load(levels, (u, 0)) - of_level)
            store(memories, (k, 0), load(memories, (k, 0)) - of_memory)


@inner
def _find_several(family, point, chain, at, g, first, last):
    """Log densities of several columns of data."""
    U = len(chain.state)
    lags, scales = len(point.memory) > 0, at.scales > 0
    moves = lags or at.offsets > 0
    for u in range(U):
        c = constants(family, point.phi, point.c, chain.state[u])
        for t in range(first, last):
            predict_columns(point, chain, at, g, t, u)
            eta, zeta = observation(family, g.eta, 0), observation(family, g.zeta, 0)
            store(g.p, (t, u), density_moved(family, observation(family, g.y, t), c, eta, zeta, moves, scales))


@inner
def predict_columns(point, chain, at, g, t, u):
    """Write the linear predictors and log scales of all columns at step t for kind u to ``g.eta`` and ``g.zeta``."""
    K, k, x = len(point.c), chain.state[u], g.x
    for d in range(g.eta.shape[1]):
        v = splat(0.0)
        if at.offsets > 0:
            v = load(x, (t, at.offset + d * at.offsets + place(at.offsets, K, k, u)))
        if len(point.memory) > 0:
            share, before = memory_of(point, chain, at, g, t, u, d)
            v = v - share * before
        store(g.eta, (0, d), v)
        if at.scales > 0:
            store(g.zeta, (0, d), load(x, (t, at.scale + place(at.scales, K, k, u))))


@inner
def memory_of(point, chain, at, g, t, u, d):
    """Share of the last level that column d remembers at step t, and this level, for kind u."""
    K, k = len(point.c), chain.state[u]
    share, before = splat(point.memory[k, d]), splat(point.level[u, d])
    if at.memories > 0:
        share = load(g.x, (t, at.memory + d * at.memories + place(at.memories, K, k, u)))
    if at.pasts > 0:
        before = before + load(g.x, (t, at.past + d * at.pasts + chain.before[u]))
    return share, before


@inner
def _add_several(family, point, chain, at, g, sums, first, last):
    """Add the derivatives of several columns of data."""
    K, D, U = len(point.c), g.eta.shape[1], len(chain.state)
    dx, slope, phi, moved, logs, power = g.dx, g.slope, point.phi, point.moved_column, point.logs, point.power
    total, levels, memories = sums.scores, sums.levels, sums.memories
    lags, scales = len(point.memory) > 0, at.scales > 0
    moves = lags or at.offsets > 0
    for t in range(first, last):
        for i in range(at.slope):
            store(dx, (t, i), splat(0.0))
    for u in range(U):
        k = chain.state[u]
        c = constants(family, phi, point.c, k)
        for t in range(first, last):
            y = observation(family, g.y, t)
            present = seen(family, y)
            predict_columns(point, chain, at, g, t, u)
            for d in range(D):
                store(slope, (d,), splat(0.0))
            wide, gamma = splat(0.0), load(g.p, (t, u))
            eta, zeta = observation(family, g.eta, 0), observation(family, g.zeta, 0)
            slopes = score_moved(family, y, c, eta, zeta, moves, scales)
            for i in range(len(slopes)):
                v = np.where(present, gamma * slopes[i], 0.0)
                d = moved[i]
                if moves and d >= 0:
                    if logs[i] > 0:
                        v = v * np.exp(load(g.eta, (0, d)))
                        store(slope, (d,), load(slope, (d,)) + v * phi[k, i])
                    else:
                        store(slope, (d,), load(slope, (d,)) + v)
                if scales and power[i] > 0.0:
                    v = v * np.exp(power[i] * load(g.zeta, (0, 0)))
                    wide = wide + v * (power[i] * phi[k, i])
                store(total, (k, i), load(total, (k, i)) + v)
            for d in range(D):
                v = load(slope, (d,))
                if at.offsets > 0:
                    i = at.offset + d * at.offsets + place(at.offsets, K, k, u)
                    store(dx, (t, i), load(dx, (t, i)) + v)
                if lags:
                    share, before = memory_of(point, chain, at, g, t, u, d)
                    store(levels, (u, d), load(levels, (u, d)) - v * share)
                    if at.pasts > 0:
                        i = at.past + d * at.pasts + chain.before[u]
                        store(dx, (t, i), load(dx, (t, i)) - v * share)
                    if at.memories > 0:
                        i = at.memory + d * at.memories + place(at.memories, K, k, u)
                        store(dx, (t, i), load(dx, (t, i)) - v * before)
                    else:
                        store(memories, (k, d), load(memories, (k, d)) - v * before)
            if scales:
                i = at.scale + place(at.scales, K, k, u)
                store(dx, (t, i), load(dx, (t, i)) + wide)


specialise(find_densities, lambda f, *rest: _find_several if columns(f.instance_class) > 1 else _find_one)
specialise(add_kinds, lambda f, *rest: _add_several if columns(f.instance_class) > 1 else _add_one)


# ---------------------------------------------------------------- rows into lanes and back
@inner
def gather_columns(x, chain, at, layout, low, halo, n, g):
    """Copy the columns of the blocks low, low + 1, ... into lanes; outside sequences, harmless values."""
    C = x.shape[1]
    tile = max(1, TILE // max(1, C))
    for early in range(0, n, tile):
        late = min(n, early + tile)
        for w in range(LANES):
            i = low + w
            begin, end, first = late, late, 0
            if i < len(layout.first):
                first = layout.first[i] - halo
                begin = max(early, min(late, layout.begin[i] - first))
                end = max(begin, min(late, layout.stop[i] - first))
            for d in range(C):
                idle = 0.0
                if at.weight <= d < at.weight + at.weights:
                    idle = chain.idle[d - at.weight]
                if at.label <= d < at.label + at.labels:
                    idle = -1.0
                for t in range(early, begin):
                    g.x[t, d, w] = idle
                for t in range(begin, end):
                    g.x[t, d, w] = x[first + t, d]
                for t in range(end, late):
                    g.x[t, d, w] = idle


@inner
def scatter_columns(lanes, layout, low, halo, out):
    """Copy the cores of lanes[halo + t] (C, LANES) to the rows of the blocks low, low + 1, ... of ``out`` (rows, C)."""
    C = out.shape[1]
    tile = max(1, TILE // max(1, C))
    most = 0
    for w in range(min(LANES, len(layout.first) - low)):
        most = max(most, layout.length[low + w])
    for early in range(0, most, tile):
        for w in range(min(LANES, len(layout.first) - low)):
            first = layout.first[low + w]
            for d in range(C):
                for t in range(early, min(early + tile, layout.length[low + w])):
                    out[first + t, d] = lanes[halo + t, d, w]


# ---------------------------------------------------------------- regression of transitions
@inner
def find_weights(point, at, g, first, last):
    """Store the transition matrices of steps [first, last) in ``g.w``: each row is a softmax of the inputs."""
    K, w, x, slopes = len(point.c), g.w, g.x, point.slopes
    for t in range(first, last):
        for i in range(K):
            top, z = splat(-1e300), splat(0.0)
            for j in range(i * K, i * K + K):
                v = splat(0.0)
                for q in range(at.slopes):
                    v = v + load(x, (t, at.slope + q)) * slopes[q, j]
                store(w, (t, j), v)
                top = np.where(v > top, v, top)
            for j in range(i * K, i * K + K):
                v = relative(load(w, (t, j)) - top) * point.base[j]
                store(w, (t, j), v)
                z = z + v
            z = 1.0 / z
            for j in range(i * K, i * K + K):
                store(w, (t, j), load(w, (t, j)) * z)


@inner
def add_weights(point, at, g, sums, t):
    """Add the derivatives of the transition matrix of step t, of which ``g.counts`` are the expected transitions."""
    K, w, x, count, logits, slopes = len(point.c), g.w, g.x, g.counts, sums.logits, sums.slopes
    for i in range(K):
        total = splat(0.0)
        for j in range(i * K, i * K + K):
            total = total + load(count, (0, j))
        for j in range(i * K, i * K + K):
            v = load(count, (0, j)) - load(w, (t, j)) * total
            store(logits, (j,), load(logits, (j,)) + v)
            for q in range(at.slopes):
                store(slopes, (q, j), load(slopes, (q, j)) + v * load(x, (t, at.slope + q)))


# ---------------------------------------------------------------- messages
@inner
def forward_edges(family, point, chain, at, g, first, last, n, every, careful):
    """Densities and filter over [0, n) from the message a[0], as ``messages.forward``; the log likelihood of the core.

    If ``careful``, densities below e^-300 of the largest are cut to zero, and ``g.doubt`` is an upper limit of the
    logarithm of the probability that has been lost in this way: it may have grown, where only what was lost explains
    the observations well, and is forgotten where every node has much more of its own.
    """
    M, E, U = len(chain.first_kind), len(chain.source), len(chain.state)
    a, b, p, f, mass, x, state = g.a, g.b, g.p, g.f, g.mass, g.x, chain.state
    source, target, kind, first_kind = chain.source, chain.target, chain.kind, chain.first_kind
    fixed, begin = point.weight, point.start
    total, lost, worst = splat(0.0), splat(-1e300), splat(-1e300)
    for t in range(n):
        if t % TOGETHER == 0:
            find_densities(family, point, chain, at, g, t, min(n, t + TOGETHER))
            if at.slopes > 0:
                find_weights(point, at, g, t, min(n, t + TOGETHER))
        y = observation(family, g.y, t)
        present = seen(family, y)
        begins = load(g.begin, (0,)) == float(t)
        for u in range(U):
            store(mass, (0, u), splat(0.0))
        for e in range(E):
            v = load(a, (t, source[e]))
            if at.slopes > 0:
                v = v * load(g.w, (t, chain.entry[e]))
            else:
                v = v * load(x, (t, at.weight + e)) if at.weights > 0 else v * fixed[e]
            if t <= first:
                v = np.where(begins, 0.0, v)
            store(f, (0, e), v)
            u = kind[e]
            store(mass, (0, u), load(mass, (0, u)) + v)
        for m in range(M):
            store(a, (t + 1, m), splat(0.0))
            if t <= first:
                u = first_kind[m]
                s = load(x, (t, at.weight + m)) if at.weights > 0 else splat(begin[m])
                s = load(g.start, (0, m)) if at.slopes > 0 else s
                s = np.where(begins, s, 0.0)
                store(mass, (0, u), load(mass, (0, u)) + s)
                store(b, (0, m), s)
        top, best, lowest = splat(-1e300), splat(-1e300), splat(0.0)
        for u in range(U):
            v = load(p, (t, u))
            if at.labels > 0:
                known = load(x, (t, at.label))
                s = load(mass, (0, u))
                store(mass, (0, u), np.where((known < 0.0) | (known == float(state[u])), s, 0.0))
                best = np.where(((known < 0.0) | (known == float(state[u]))) & (v > best), v, best)
            else:
                best = np.where(v > best, v, best)
            top = np.where((v > top) & (load(mass, (0, u)) > 0.0), v, top)
        for u in range(U):
            v = load(p, (t, u)) - top
            r = relative(v)
            if careful:
                r = np.where(v < LOWEST, 0.0, r)
                lowest = np.where(v < lowest, v, lowest)
            v = np.where(present, r, 1.0)
            if at.labels > 0:
                known = load(x, (t, at.label))
                v = np.where((known < 0.0) | (known == float(state[u])), v, 0.0)
            store(p, (t, u), v)
        for e in range(E):
            m = target[e]
            v = load(f, (0, e)) * load(p, (t, kind[e]))
            store(a, (t + 1, m), load(a, (t + 1, m)) + v)
        if t <= first:
            for m in range(M):
                v = load(b, (0, m)) * load(p, (t, first_kind[m]))
                store(a, (t + 1, m), np.where(begins, v, load(a, (t + 1, m))))
        z = splat(0.0)
        for m in range(M):
            z = z + load(a, (t + 1, m))
        if careful:
            lost = np.where(present, lost + best - top, lost)
            lost = np.where(present & (lowest < LOWEST) & (lost < LOWEST), LOWEST, lost) - positive_log(z)
            least = load(a, (t + 1, 0))
            for m in range(1, M):
                least = np.where(load(a, (t + 1, m)) < least, load(a, (t + 1, m)), least)
            lost = np.where(least > np.exp(np.minimum(lost + DOUBT_GONE, 0.0)) * z, -1e300, lost)
            worst = np.where(lost > worst, lost, worst)
        top = np.where(present, top, 0.0)
        store(g.top, (t,), top)
        inside = first <= t < last
        if inside:
            total = total + top
        if (t + 1 - first) % every == 0 or t == last - 1 or t == n - 1:
            if inside:
                total = total + positive_log(z)
            z = 1.0 / z
            store(g.scale, (t,), z)
            for m in range(M):
                store(a, (t + 1, m), load(a, (t + 1, m)) * z)
        else:
            store(g.scale, (t,), splat(1.0))
    store(g.doubt, (0,), worst)
    return total


@inner
def backward_edges(point, chain, at, g, last, n, every):
    """Propagate the message b from n down to ``last`` through the right halo, and normalise it."""
    M, E = len(chain.first_kind), len(chain.source)
    source, target, kind, fixed = chain.source, chain.target, chain.kind, point.weight
    p, b, pb, x = g.p, g.b, g.pb, g.x
    for t in range(n - 1, last - 1, -1):
        for m in range(M):
            store(pb, (0, m), splat(0.0))
        for e in range(E):
            i = source[e]
            q = load(p, (t, kind[e])) * load(b, (0, target[e]))
            if at.slopes > 0:
                q = q * load(g.w, (t, chain.entry[e]))
            else:
                q = q * load(x, (t, at.weight + e)) if at.weights > 0 else q * fixed[e]
            store(pb, (0, i), load(pb, (0, i)) + q)
        z = splat(0.0)
        for m in range(M):
            s = np.where(load(g.a, (t, m)) > 0.0, load(g.pb, (0, m)), 0.0)
            store(g.b, (0, m), s)
            z = z + s
        if t % every == 0 or t == last:
            z = 1.0 / z
            for m in range(M):
                store(g.b, (0, m), load(g.b, (0, m)) * z)


@inner
def smooth_edges(family, point, chain, at, g, first, last, sums, keep):
    """Run backwards through the core, adding expectations to ``sums`` and leaving derivatives in columns in ``g.dx``.

    With ``keep``, the probabilities of nodes overwrite the filter in ``a``.
    """
    M, E, U = len(chain.first_kind), len(chain.source), len(chain.state)
    a, b, pb, p, r, x = g.a, g.b, g.pb, g.p, g.mass, g.x
    source, target, kind, first_kind, fixed = chain.source, chain.target, chain.kind, chain.first_kind, point.weight
    edges, begun = sums.edges, sums.first
    z = splat(0.0)
    for m in range(M):
        z = z + load(a, (last, m)) * load(b, (0, m))
    z = load(g.weight, (0,)) / z
    for m in range(M):
        store(b, (0, m), load(b, (0, m)) * z)
    for t in range(last - 1, first - 1, -1):
        live = load(g.steps, (0,)) > float(t - first)
        begins = (load(g.begin, (0,)) == float(t)) & live
        scale = load(g.scale, (t,))
        for m in range(M):
            store(pb, (0, m), splat(0.0))
        for u in range(U):
            store(r, (0, u), splat(0.0))
        for c in range(g.counts.shape[1]):
            store(g.counts, (0, c), splat(0.0))
        for e in range(E):
            i, u = source[e], kind[e]
            q = load(p, (t, u)) * load(b, (0, target[e])) * scale
            if at.slopes > 0:
                q = q * load(g.w, (t, chain.entry[e]))
            else:
                q = q * load(x, (t, at.weight + e)) if at.weights > 0 else q * fixed[e]
            store(pb, (0, i), load(pb, (0, i)) + q)
            xi = np.where(live, load(a, (t, i)) * q, 0.0)
            if t == first:
                xi = np.where(begins, 0.0, xi)
            store(r, (0, u), load(r, (0, u)) + xi)
            store(edges, (e,), load(edges, (e,)) + xi)
            if at.slopes > 0:
                store(g.counts, (0, chain.entry[e]), load(g.counts, (0, chain.entry[e])) + xi)
            elif at.weights > 0:
                store(g.dx, (t, at.weight + e), xi)
        if at.slopes > 0:
            add_weights(point, at, g, sums, t)
        if t == first or keep:
            for m in range(M):
                gamma = load(a, (t + 1, m)) * load(b, (0, m))
                if keep:
                    store(a, (t + 1, m), gamma)
                if t == first:  # no edge leads into the first node of a sequence
                    gamma = np.where(begins, gamma, 0.0)
                    u = first_kind[m]
                    store(begun, (m,), load(begun, (m,)) + gamma)
                    store(r, (0, u), load(r, (0, u)) + gamma)
                    if at.slopes > 0:
                        store(g.start, (0, m), gamma)
                    elif at.weights > 0:
                        store(g.dx, (t, at.weight + m), load(g.dx, (t, at.weight + m)) + gamma)
        for m in range(M):
            store(b, (0, m), np.where(load(a, (t, m)) > 0.0, load(pb, (0, m)), 0.0))
        for u in range(U):
            store(p, (t, u), load(r, (0, u)))
        if (t - first) % TOGETHER == 0:
            add_kinds(family, point, chain, at, g, sums, t, min(last, t + TOGETHER))


# ---------------------------------------------------------------- messages where each kind is a pair of states
@inner
def forward_pairs(family, point, chain, at, g, first, last, n, every):
    """Filter as ``forward_edges``, where each pair of nodes is an edge with a fixed weight and a kind of its own."""
    M, a, p, f = len(chain.first_kind), g.a, g.p, g.f
    fixed, begin = point.weight, point.start
    store(g.doubt, (0,), splat(-1e300))
    total = splat(0.0)
    for t in range(n):
        if t % TOGETHER == 0:
            find_densities(family, point, chain, at, g, t, min(n, t + TOGETHER))
        present = seen(family, observation(family, g.y, t))
        top = splat(-1e300)
        for i in range(M):
            ai = load(a, (t, i))
            for j in range(M):
                v = ai * fixed[i * M + j]
                if t <= first:
                    begins = load(g.begin, (0,)) == float(t)
                    v = np.where(begins, begin[i] if i == j else 0.0, v)
                store(f, (0, i * M + j), v)
                q = load(p, (t, i * M + j))
                top = np.where(q > top, q, top)
        z = splat(0.0)
        for j in range(M):
            s = splat(0.0)
            for i in range(M):
                r = np.where(present, relative(load(p, (t, i * M + j)) - top), 1.0)
                store(p, (t, i * M + j), r)
                s = s + load(f, (0, i * M + j)) * r
            store(a, (t + 1, j), s)
            z = z + s
        top = np.where(present, top, 0.0)
        store(g.top, (t,), top)
        inside = first <= t < last
        if inside:
            total = total + top
        if (t + 1 - first) % every == 0 or t == last - 1 or t == n - 1:
            if inside:
                total = total + positive_log(z)
            z = 1.0 / z
            store(g.scale, (t,), z)
            for m in range(M):
                store(a, (t + 1, m), load(a, (t + 1, m)) * z)
        else:
            store(g.scale, (t,), splat(1.0))
    return total


@inner
def backward_pairs(point, chain, g, last, n, every):
    """Propagate the message b as ``backward_edges`` does, where every pair of nodes is an edge with a fixed weight."""
    M, a, b, p, fixed = len(chain.first_kind), g.a, g.b, g.p, point.weight
    for t in range(n - 1, last - 1, -1):
        z = splat(0.0)
        for j in range(M):
            store(g.f, (0, j), load(b, (0, j)))
        for i in range(M):
            s = splat(0.0)
            for j in range(M):
                s = s + load(p, (t, i * M + j)) * load(g.f, (0, j)) * fixed[i * M + j]
            s = np.where(load(a, (t, i)) > 0.0, s, 0.0)
            store(b, (0, i), s)
            z = z + s
        if t % every == 0 or t == last:
            z = 1.0 / z
            for m in range(M):
                store(b, (0, m), load(b, (0, m)) * z)


@inner
def smooth_pairs(family, point, chain, at, g, first, last, shortest, sums, keep):
    """Smooth as ``smooth_edges``, where each pair of nodes is an edge with a fixed weight and a kind of its own."""
    M, a, b, p, ahead, fixed = len(chain.first_kind), g.a, g.b, g.p, g.f, point.weight
    z = splat(0.0)
    for m in range(M):
        z = z + load(a, (last, m)) * load(b, (0, m))
    z = load(g.weight, (0,)) / z
    for m in range(M):
        store(b, (0, m), load(b, (0, m)) * z)
    for t in range(last - 1, first - 1, -1):
        scale = load(g.scale, (t,))
        for j in range(M):
            bj = load(b, (0, j))
            store(ahead, (0, j), bj * scale)
            if keep:
                store(g.pb, (0, j), load(a, (t + 1, j)) * bj)
        for i in range(M):
            ai, s = load(a, (t, i)), splat(0.0)
            for j in range(M):
                q = load(p, (t, i * M + j)) * load(ahead, (0, j)) * fixed[i * M + j]
                s = s + q
                store(p, (t, i * M + j), ai * q)
            if t == first:
                gamma = np.where(load(g.begin, (0,)) == float(t), load(a, (t + 1, i)) * load(b, (0, i)), 0.0)
                store(sums.first, (i,), load(sums.first, (i,)) + gamma)
            store(g.mass, (0, i), np.where(ai > 0.0, s, 0.0))
        if t == first:  # no edge leads into the first node of a sequence
            begins = load(g.begin, (0,)) == float(t)
            for i in range(M):
                gamma = np.where(begins, load(a, (t + 1, i)) * load(b, (0, i)), 0.0)
                for j in range(M):
                    store(p, (t, i * M + j), np.where(begins, 0.0, load(p, (t, i * M + j))))
                store(p, (t, i * M + i), load(p, (t, i * M + i)) + gamma)
                store(sums.edges, (i * M + i,), load(sums.edges, (i * M + i,)) - gamma)
        if t - first >= shortest:  # padding of a shorter core
            live = load(g.steps, (0,)) > float(t - first)
            for u in range(M * M):
                store(p, (t, u), np.where(live, load(p, (t, u)), 0.0))
        for m in range(M):
            store(b, (0, m), load(g.mass, (0, m)))
            if keep:
                store(a, (t + 1, m), load(g.pb, (0, m)))
        if (t - first) % TOGETHER == 0:
            late = min(last, t + TOGETHER)
            for u in range(M * M):
                s = load(sums.edges, (u,))
                for step in range(t, late):
                    s = s + load(p, (step, u))
                store(sums.edges, (u,), s)
            add_kinds(family, point, chain, at, g, sums, t, late)


@kernel
def sweep_edges(
    family, point, chain, at, task, y, x, layout, seams, starts, g, sums, out, kinds, probabilities, predictive
):
    """Weighted log likelihood of all blocks, and the logarithm of the probability that may have been lost.

    With ``task.back``, expectations and derivatives as well.
    ``x`` (rows, C) are the columns, and ``out`` (rows, C') gets the derivatives in the first C' of them; ``kinds``
    (rows, U), with ``task.kinds``, the responsibilities of kinds.  ``starts`` (blocks, M), of a regression of
    transitions, are the distributions of the first nodes of blocks that begin a sequence, and become the expected ones.
    ``probabilities`` and ``predictive`` are as in ``full_pass.sweep``.
    """
    halo, back, every = task.halo, task.back, task.every
    M, keep = len(chain.first_kind), len(probabilities) > 0
    total, doubt = 0.0, -1e300
    pairs = len(chain.state) == M * M == len(chain.source) and at.slopes + at.weights + at.labels == 0
    pairs = pairs and not task.careful
    for low in range(0, len(layout.first), LANES):
        last = halo + layout.length[low]  # the longest core of the group
        n = last + halo if back else last
        shortest = gather_blocks(y, layout, low, halo, n, g)
        gather_columns(x, chain, at, layout, low, halo, n, g)
        load_messages(seams.left, low, g.a, 0)
        if at.slopes > 0:
            load_messages(starts, low, g.start, 0)
        if pairs:
            logs = forward_pairs(family, point, chain, at, g, halo, last, n, every)
        else:
            logs = forward_edges(family, point, chain, at, g, halo, last, n, every, task.careful)
        store_messages(g.a, halo, low, seams.left)
        store_messages(g.a, last, low, seams.end)
        if back:
            load_messages(seams.right, low, g.b, 0)
            if pairs:
                backward_pairs(point, chain, g, last, n, every)
            else:
                backward_edges(point, chain, at, g, last, n, every)
            store_messages(g.b, 0, low, seams.right)
            if pairs:
                smooth_pairs(family, point, chain, at, g, halo, last, shortest, sums, keep)
            else:
                smooth_edges(family, point, chain, at, g, halo, last, sums, keep)
            store_messages(g.b, 0, low, seams.begin)
            if at.slopes > 0:
                store_messages(g.start, 0, low, starts)
            if len(out) > 0:
                scatter_columns(g.dx, layout, low, halo, out)
            if task.kinds:
                scatter_columns(g.p, layout, low, halo, kinds)
        store(g.pb, (0, 0), logs)
        for w in range(min(LANES, len(layout.first) - low)):
            i = low + w
            total += layout.weight[i] * g.pb[0, 0, w]
            doubt = max(doubt, g.doubt[0, w])
            if keep:
                for t in range(layout.length[i]):
                    for k in range(probabilities.shape[1]):
                        probabilities[layout.first[i] + t, k] = 0.0
                    for m in range(M):
                        probabilities[layout.first[i] + t, chain.node_state[m]] += g.a[halo + t + 1, m, w]
            if len(predictive) > 0:
                for t in range(layout.length[i]):
                    predictive[layout.first[i] + t] = g.top[halo + t, w] - np.log(g.scale[halo + t, w])
    return total, doubt


# ---------------------------------------------------------------- rows at a time, for what must go step by step
@inner
def gather_rows(y, x, first, g):
    """Copy the rows first, first + 1, ... into the lanes of step 0; missing beyond the last."""
    for w in range(LANES):
        there = first + w < len(y)
        for d in range(y.shape[1]):
            g.y[0, d, w] = y[first + w, d] if there else np.nan
        for c in range(x.shape[1]):
            g.x[0, c, w] = x[first + w, c] if there else 0.0


@kernel
def kind_densities(family, point, chain, at, y, x, g, out):
    """Log density out (n, U) of each row in each kind, 0 where it is missing; minus infinity against a known state."""
    n, U = out.shape
    for first in range(0, n, LANES):
        gather_rows(y, x, first, g)
        find_densities(family, point, chain, at, g, 0, 1)
        present = seen(family, observation(family, g.y, 0))
        for u in range(U):
            v = np.where(present, load(g.p, (0, u)), 0.0)
            if at.labels > 0:
                known = load(g.x, (0, at.label))
                v = np.where((known < 0.0) | (known == float(chain.state[u])), v, -np.inf)
            store(g.p, (0, u), v)
        for w in range(min(LANES, n - first)):
            for u in range(U):
                out[first + w, u] = g.p[0, u, w]


@kernel
def add_rows(family, point, chain, at, y, x, kinds, g, sums, out):
    """Add the derivatives of rows with responsibilities ``kinds`` (n, U) to ``sums`` and to the columns out (n, C)."""
    n, U = kinds.shape
    for first in range(0, n, LANES):
        gather_rows(y, x, first, g)
        for w in range(LANES):
            for u in range(U):
                g.p[0, u, w] = kinds[first + w, u] if first + w < n else 0.0
        add_kinds(family, point, chain, at, g, sums, 0, 1)
        for w in range(min(LANES, n - first)):
            for c in range(at.slope):
                out[first + w, c] = g.dx[0, c, w]


@kernel
def log_forward_edges(logp, log_weight, log_start, fresh, chain, before, filtered, predictive):
    """Filter in log space: filtered (n, M), predictive (n,); ``before`` (M,) carries over.

    ``log_weight`` (n or 1, E) and ``log_start`` (n or 1, M): one row for each step, or one for all.
    """
    n, M, E = len(filtered), filtered.shape[1], len(chain.source)
    top = np.empty(M)
    for t in range(n):
        row = t if len(log_weight) > 1 else 0
        for m in range(M):
            top[m] = -np.inf
            filtered[t, m] = 0.0
        if fresh[t]:
            start = t if len(log_start) > 1 else 0
            for m in range(M):
                filtered[t, m] = log_start[start, m] + logp[t, chain.first_kind[m]]
        else:
            for e in range(E):
                m = chain.target[e]
                top[m] = max(top[m], before[chain.source[e]] + log_weight[row, e] + logp[t, chain.kind[e]])
            for e in range(E):
                m = chain.target[e]
                if top[m] > -np.inf:
                    v = before[chain.source[e]] + log_weight[row, e] + logp[t, chain.kind[e]]
                    filtered[t, m] += np.exp(min(v - top[m], 0.0))  # rounded differently, v may be above the top
            for m in range(M):
                filtered[t, m] = top[m] + np.log(filtered[t, m]) if top[m] > -np.inf else -np.inf
        highest = np.max(filtered[t])
        predictive[t] = highest
        if highest > -np.inf:  # the row is possible
            total = 0.0
            for m in range(M):
                total += np.exp(filtered[t, m] - highest)
            predictive[t] += np.log(total)
            for m in range(M):
                filtered[t, m] -= predictive[t]
        for m in range(M):
            before[m] = filtered[t, m]


@kernel
def log_backward_edges(
    logp, log_weight, fresh, chain, filtered, predictive, before, message, edges, first, kinds, weights, keep
):
    """Smooth in log space: ``filtered`` becomes the probabilities of nodes, ``kinds`` (n, U) those of kinds.

    ``edges`` (E,) and ``first`` (M,) are added to; with ``keep``, ``weights`` (n, E) gets the expected transitions of
    each step and, where a sequence begins, the probabilities of its first nodes.  ``before`` (M,) is the log filter
    just before these rows, and ``message`` (M,) carries over from the rows after them.
    """
    n, M, E, U = len(filtered), filtered.shape[1], len(chain.source), kinds.shape[1]
    new, top, part = np.empty(M), np.empty(M), np.empty(E)
    for t in range(n - 1, -1, -1):
        row = t if len(log_weight) > 1 else 0
        for u in range(U):
            kinds[t, u] = 0.0
        for m in range(M):
            filtered[t, m] = np.exp(filtered[t, m] + message[m])
            new[m], top[m] = 0.0, -np.inf
        if fresh[t]:
            for m in range(M):
                first[m] += filtered[t, m]
                kinds[t, chain.first_kind[m]] += filtered[t, m]
                message[m] = 0.0
                if keep:
                    weights[t, m] = filtered[t, m]
            continue
        for e in range(E):
            i, u = chain.source[e], chain.kind[e]
            part[e] = log_weight[row, e] + logp[t, u] + message[chain.target[e]] - predictive[t]
            top[i] = max(top[i], part[e])
            source = filtered[t - 1, i] if t > 0 else before[i]
            xi = np.exp(source + part[e])
            edges[e] += xi
            kinds[t, u] += xi
            if keep:
                weights[t, e] = xi
        for e in range(E):
            i = chain.source[e]
            if top[i] > -np.inf:
                new[i] += np.exp(part[e] - top[i])
        for m in range(M):
            message[m] = top[m] + np.log(new[m]) if top[m] > -np.inf else -np.inf


@kernel
def viterbi_edges(logp, log_weight, log_start, fresh, chain, best, back):
    """Forward half of Viterbi over rows; ``best`` (M,) carries over, back[t, m] (n, M) is the node before m.

    In a row where a sequence begins, ``back`` holds the best last node of the sequence before.
    """
    n, M, E = len(logp), len(best), len(chain.source)
    new = np.empty(M)
    for t in range(n):
        row = t if len(log_weight) > 1 else 0
        for m in range(M):
            new[m] = -np.inf
            back[t, m] = 0
        if fresh[t]:
            start = t if len(log_start) > 1 else 0
            winner = np.argmax(best)
            for m in range(M):
                back[t, m] = winner
                new[m] = log_start[start, m] + logp[t, chain.first_kind[m]]
        else:
            for e in range(E):
                m = chain.target[e]
                v = best[chain.source[e]] + log_weight[row, e] + logp[t, chain.kind[e]]
                if v > new[m]:
                    new[m] = v
                    back[t, m] = chain.source[e]
        shift = np.max(new)
        for m in range(M):
            best[m] = new[m] - shift


@kernel
def draw_nodes(uniform, weight, start, fresh, chain, node, path):
    """Draw a path of nodes (n,) from uniform numbers (n,), continuing that which ended in ``node``.

    ``weight`` (n or 1, E) and ``start`` (n or 1, M): one row for each step, or one for all.
    """
    for t in range(len(path)):
        u, low = uniform[t], 0.0
        if fresh[t]:
            row = t if len(start) > 1 else 0
            for m in range(start.shape[1]):
                if start[row, m] > 0.0:
                    path[t] = m
                    low += start[row, m]
                    if u < low:
                        break
        else:
            row = t if len(weight) > 1 else 0
            for e in range(weight.shape[1]):
                if chain.source[e] == node and weight[row, e] > 0.0:
                    path[t] = chain.target[e]
                    low += weight[row, e]
                    if u < low:
                        break
        node = path[t]


@inner
def choose(logs, n, uniform):
    """Choose one of n entries with probabilities proportional to exp(logs)."""
    highest = logs[0]
    for i in range(1, n):
        highest = max(highest, logs[i])
    total = 0.0
    for i in range(n):
        total += np.exp(logs[i] - highest)
    left, chosen = uniform * total, 0
    for i in range(n):
        share = np.exp(logs[i] - highest)
        if share > 0.0:
            chosen = i
            left -= share
            if left < 0.0:
                break
    return chosen


@kernel
def draw_nodes_backward(logp, log_weight, fresh, chain, filtered, low, uniform, nodes):
    r"""Draw the nodes before rows [low, low + n) given the whole series, backwards from log filters (T, M).

    :math:`p(edge\ e\ into\ node\ m \mid y) \propto a_{t-1}(source_e)\, w_e(t)\, f_{kind_e}(y_t \mid t)`; the last
    node of a sequence follows its filter.  ``uniform`` (T,) are uniform numbers, ``nodes`` (T,) is filled in from
    row low + n - 2 down to row low - 1.  The node of the last row of all must be there.
    """
    M, E = filtered.shape[1], len(chain.source)
    part = np.empty(max(M, E))
    for t in range(low + len(logp) - 1, max(low, 1) - 1, -1):
        row = t - low
        step = row if len(log_weight) > 1 else 0
        if fresh[row]:
            nodes[t - 1] = choose(filtered[t - 1], M, uniform[t - 1])
            continue
        for e in range(E):
            part[e] = -np.inf
            if chain.target[e] == nodes[t]:
                part[e] = filtered[t - 1, chain.source[e]] + log_weight[step, e] + logp[row, chain.kind[e]]
        nodes[t - 1] = chain.source[choose(part, E, uniform[t - 1])]
