r"""Log likelihoods of many points theta at once for models whose rows differ: each lane is a point.

As in ``batched``, all lanes share each reading of a row, and time runs from the first row to the last.  What is summed
over is the chain of ``edges``, whose densities depend on linear predictors and log scales.  Those of a point are
computed here, in tiles of a few rows, from what all points share: inputs, values, and what is known of their lags.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.contracts.family import Family, columns, prepare
from rarehmm.engine.dispatch import inner, kernel, specialise
from rarehmm.engine.elementary import LOWEST, positive_log, relative
from rarehmm.engine.kernels.batched import lane_constants
from rarehmm.engine.kernels.chain import store_row
from rarehmm.engine.kernels.edges import DOUBT_GONE, density_moved, place
from rarehmm.engine.kernels.lags import COMPLETE
from rarehmm.engine.kernels.messages import observation, seen
from rarehmm.engine.lanes import any_lane, lane_array, load, splat, store

TILE = 16  # rows whose densities are computed together: what they take stays in the fastest cache
AT_ONCE = 4  # rows for which a coefficient is loaded once; TILE is a multiple of it
CONTINUES, RESUMES = 0, -1  # what rows do; a positive number n begins a sequence from row n - 1 of ``starts``


class SharedRows(NamedTuple):
    """What all points share of n rows.

    ``y`` (n, D): observations, missing where they do not count; ``values`` (n, D or 0): what lags are taken of, before
    inputs; ``location``, ``switching``, ``scale`` and ``slopes`` (n, .): input columns; ``marks`` (n, D or 0): which
    rows have all lags, as in ``lags``; ``label`` (n or 0,): known states, negative if unknown; ``begin`` (n,): whether
    a sequence or a block begins; ``weight`` (n,): that of the row in sums; ``settle`` (n,): whether messages are
    normalised after the row.
    """

    y: Array
    values: Array
    location: Array
    switching: Array
    scale: Array
    slopes: Array
    marks: IntArray
    label: IntArray
    begin: IntArray
    weight: Array
    settle: BoolArray


class LaneChain(NamedTuple):
    """The chain of ``edges.Chain`` with its edges in the order of their targets.

    Those that lead to node m are [``first`` [m], ``first`` [m + 1]).  ``source``, ``kind``, ``entry`` (E,) are theirs;
    ``first_kind`` (M,), and ``state`` and ``before`` (U,) are as there.
    """

    first: IntArray
    source: IntArray
    kind: IntArray
    entry: IntArray
    first_kind: IntArray
    state: IntArray
    before: IntArray


class LanePoints(NamedTuple):
    """Parameters of the points, all with LANES as their last axis.

    ``c`` (K, C) constants that the family prepares; ``weight`` (E,); ``starts`` (b, M): distributions of the first
    nodes of sequences; ``rest`` (M,): that of nodes where nothing is known, from which blocks start; ``level`` (U, D);
    ``location`` (p, D), ``switching`` (q, D K), ``scale`` (v, 1): coefficients of inputs; ``lags`` (order, D or D K);
    ``share`` (K or 0, D): their sums, if lags are those around a level; ``correlation`` and ``spread`` (h or 0,): share
    of the last value after a gap of so many steps, and log scale; ``first`` (K or 0,): log scale without any value
    before; ``base`` (K K or 0,) and ``slopes`` (s, K K) of a regression of transitions.
    """

    c: Array
    weight: Array
    starts: Array
    rest: Array
    level: Array
    location: Array
    switching: Array
    scale: Array
    lags: Array
    share: Array
    correlation: Array
    spread: Array
    first: Array
    base: Array
    slopes: Array


class LaneState(NamedTuple):
    """Workspace of a group of points, all with LANES as their last axis.

    What is kept from row to row: ``a`` (M,) messages, ``total``, ``lost`` and ``worst`` (1,) the log likelihood and the
    doubt as in ``edges``, ``r`` (order + TILE, D) what lags are taken of, ``last`` (D,) and ``last_own`` (D K,) the
    last observed of these and what switching inputs added to the levels in its row.

    Of a tile: ``eta`` (TILE, D), ``own`` (TILE, D K) and ``zeta`` (TILE, 1): what inputs add; ``offset`` (TILE, D *),
    ``past`` (TILE, D K or 0), ``memory`` (TILE, 1), ``wide`` (TILE, K): columns as in ``edges.Columns``; ``x`` (TILE,
    D) observations, ``p`` (TILE, U) densities, ``w`` (TILE, K K) transitions; ``mass`` (U,), ``b`` (M,),
    ``predictors`` and ``scales`` (1, D) scratch.
    """

    a: Array
    total: Array
    lost: Array
    worst: Array
    r: Array
    last: Array
    last_own: Array
    eta: Array
    own: Array
    zeta: Array
    offset: Array
    past: Array
    memory: Array
    wide: Array
    x: Array
    p: Array
    w: Array
    mass: Array
    b: Array
    predictors: Array
    scales: Array


def lane_state(points: LanePoints, D: int, U: int, offsets: int, pasts: int) -> LaneState:
    """Allocate a ``LaneState`` for points with ``offsets`` linear predictors and ``pasts`` last levels in a column."""
    one, (K, order), M = lane_array, (len(points.c), len(points.lags)), len(points.rest)
    return LaneState(
        one(M), one(1), one(1), one(1), one(order + TILE, D), one(D), one(D * K), one(TILE, D), one(TILE, D * K),
        one(TILE, 1), one(TILE, D * offsets), one(TILE, D * pasts), one(TILE, 1), one(TILE, K), one(TILE, D),
        one(TILE, U), one(TILE, len(points.base)), one(U), one(M), one(1, D), one(1, D),
    )  # fmt: skip


# ---------------------------------------------------------------- linear predictors and log scales of a tile
@inner
def combine(x, first, count, coefficients, out):
    """Store the rows first, ..., first + count - 1 of x (n, p) times coefficients (p, Q) in ``out`` (TILE, Q)."""
    p, Q, last = coefficients.shape[0], coefficients.shape[1], first + count - 1
    for q in range(Q):
        for t in range(0, count, AT_ONCE):
            i, j, k, m = first + t, min(first + t + 1, last), min(first + t + 2, last), min(first + t + 3, last)
            u, v, w, z = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
            for n in range(p):
                share = load(coefficients, (n, q))
                u = u + share * x[i, n]
                v = v + share * x[j, n]
                w = w + share * x[k, n]
                z = z + share * x[m, n]
            store(out, (t, q), u)
            store(out, (t + 1, q), v)
            store(out, (t + 2, q), w)
            store(out, (t + 3, q), z)


@inner
def predict(shared, points, g, first, count):
    """Store what moves the densities of a tile; return whether any of its rows is not preceded by all of its lags."""
    D, K, order = len(g.last), len(points.c), len(points.lags)
    offsets, pasts, several = g.offset.shape[1] // D, g.past.shape[1], points.lags.shape[1] > D
    switches, centred, fills = len(points.switching) > 0, len(points.share) > 0, len(points.first) > 0
    marks, values, r, last, last_own = shared.marks, shared.values, g.r, g.last, g.last_own
    incomplete, mark = False, COMPLETE
    for t in range(count):
        for d in range(D):
            eta = load(g.eta, (t, d))
            if order > 0:
                mark = marks[first + t, d]
            for q in range(offsets):
                v = eta + load(g.own, (t, d * K + q)) if switches else eta
                if order > 0 and mark == COMPLETE:
                    for m in range(order):
                        share = load(points.lags, (m, d * K + q if several else d))
                        v = v + share * load(r, (order + t - m - 1, d))
                elif fills and mark > 0:
                    v = v + load(points.correlation, (mark,)) * load(last, (d,))
                store(g.offset, (t, d * offsets + q), v)
            if order > 0:
                incomplete = incomplete or (fills and mark != COMPLETE)
                value = values[first + t, d]
                v = splat(value) - eta if centred else splat(value)
                store(r, (order + t, d), v)
                for q in range(d * K, d * K + K if pasts > 0 else 0):
                    store(g.past, (t, q), load(last_own, (q,)))
                    if value == value:
                        store(last_own, (q,), load(g.own, (t, q)))
                if value == value:
                    store(last, (d,), v)
    for m in range(order):
        for d in range(D):
            store(r, (m, d), load(r, (count + m, d)))
    return incomplete


@inner
def predict_gaps(shared, points, g, first, count):
    """Store how much of the last level is left, and the log scales, in the rows of a tile that lack lags."""
    for t in range(count):
        mark = shared.marks[first + t, 0]
        if mark != COMPLETE:
            store(g.memory, (t, 0), load(points.correlation, (mark,)) if mark > 0 else splat(0.0))
            for k in range(len(points.c)):
                v = load(points.spread, (mark,)) if mark > 0 else load(points.first, (k,))
                store(g.wide, (t, k), v + load(g.zeta, (t, 0)))  # which is 0 without inputs


# ---------------------------------------------------------------- densities of a tile
def find_densities(
    family: Family, phi: Array, chain: LaneChain, marks: IntArray, points: LanePoints, g: LaneState, first: int,
    count: int, incomplete: bool,
) -> None:  # fmt: skip
    """Store the log densities of a tile for each kind in ``g.p``."""
    several = _find_several if columns(family) > 1 else _find_one
    several(family, phi, chain, marks, points, g, first, count, incomplete)


@inner
def _find_one(family, phi, chain, marks, points, g, first, count, incomplete):
    """Log densities of one column of data."""
    K, template, offsets = len(points.c), prepare(family, phi[0]), g.offset.shape[1]
    lags, pasts, scales = len(points.share) > 0, g.past.shape[1] > 0, len(points.scale) > 0
    for u in range(len(chain.state)):
        k, before = chain.state[u], chain.before[u]
        c = lane_constants(template, points.c, k)
        own, level, share = place(offsets, K, k, u), load(points.level, (u, 0)), splat(0.0)
        if lags:
            share = load(points.share, (k, 0))
        kept, eta, zeta = share * level, splat(0.0), splat(0.0)
        for t in range(count):
            if offsets > 0:
                eta = load(g.offset, (t, own))
            if pasts:
                eta = eta - share * (level + load(g.past, (t, before)))
            elif lags:
                eta = eta - kept
            if scales:
                zeta = load(g.zeta, (t, 0))
            store(g.p, (t, u), density_moved(family, load(g.x, (t, 0)), c, eta, zeta, offsets > 0, scales))
        for t in range(count if incomplete else 0):
            if marks[first + t, 0] != COMPLETE:
                if pasts:
                    level = load(points.level, (u, 0)) + load(g.past, (t, before))
                eta = load(g.offset, (t, own)) - load(g.memory, (t, 0)) * level
                zeta = load(g.wide, (t, k))
                store(g.p, (t, u), density_moved(family, load(g.x, (t, 0)), c, eta, zeta, True, True))


@inner
def _find_several(family, phi, chain, marks, points, g, first, count, incomplete):
    """Log densities of several columns of data, of which none has a density without its lags."""
    K, D, template = len(points.c), len(g.last), prepare(family, phi[0])
    offsets, pasts, lags = g.offset.shape[1] // D, g.past.shape[1] > 0, len(points.share) > 0
    scales = len(points.scale) > 0
    for u in range(len(chain.state)):
        k, before = chain.state[u], chain.before[u]
        own = place(offsets, K, k, u)
        for t in range(count):
            for d in range(D):
                eta = splat(0.0)
                if offsets > 0:
                    eta = load(g.offset, (t, d * offsets + own))
                if lags:
                    level = load(points.level, (u, d))
                    level = level + load(g.past, (t, d * K + before)) if pasts else level
                    eta = eta - load(points.share, (k, d)) * level
                store(g.predictors, (0, d), eta)
                if scales:
                    store(g.scales, (0, d), load(g.zeta, (t, 0)))
            c, y = lane_constants(template, points.c, k), observation(family, g.x, t)
            eta, zeta = observation(family, g.predictors, 0), observation(family, g.scales, 0)
            store(g.p, (t, u), density_moved(family, y, c, eta, zeta, offsets > 0, scales))


specialise(find_densities, lambda f, *rest: _find_several if columns(f.instance_class) > 1 else _find_one)


# ---------------------------------------------------------------- transitions and messages
@inner
def find_weights(shared, points, g, first, count):
    """Store the transition matrices of a tile in ``g.w``: each row is a softmax of the inputs."""
    K, w = len(points.c), g.w
    combine(shared.slopes, first, count, points.slopes, w)
    for t in range(count):
        for i in range(K):
            top, z = splat(-1e300), splat(0.0)
            for j in range(i * K, i * K + K):
                v = load(w, (t, j))
                top = np.where(v > top, v, top)
            for j in range(i * K, i * K + K):
                v = relative(load(w, (t, j)) - top) * load(points.base, (j,))
                store(w, (t, j), v)
                z = z + v
            z = 1.0 / z
            for j in range(i * K, i * K + K):
                store(w, (t, j), load(w, (t, j)) * z)


@inner
def is_limited(shared, first, count):
    """Whether nodes may be out of reach in a tile: sequences begin or states are known in it, or just before it."""
    out = first == 0
    for t in range(max(first - 1, 0), first + count):
        out = out or shared.begin[t] > 0 or (len(shared.label) > 0 and shared.label[t] >= 0)
    return out


@inner
def filter_tile(family, chain, shared, points, g, first, count, limited, careful):
    """Filter a tile whose densities are known, as ``edges.forward_edges``; ``g.total`` is its weighted log likelihood.

    If ``limited``, some nodes may be out of reach; if ``careful``, what is lost of them is followed as there.
    """
    M, U, regresses = len(points.rest), len(chain.state), len(points.slopes) > 0
    a, b, p, w, mass, weight, starts = g.a, g.b, g.p, g.w, g.mass, points.weight, points.starts
    source, kind, entry, first_kind, state = chain.source, chain.kind, chain.entry, chain.first_kind, chain.state
    total, lost, worst = load(g.total, (0,)), load(g.lost, (0,)), load(g.worst, (0,))
    for t in range(count):
        row = first + t
        at = shared.begin[row]
        known = shared.label[row] if len(shared.label) > 0 else -1
        if at != CONTINUES:
            lost = splat(-1e300)
        if at == RESUMES:
            for m in range(M):
                store(a, (m,), load(points.rest, (m,)))
        if limited:
            for u in range(U):
                store(mass, (u,), splat(0.0))
            for m in range(M):
                if at > 0:
                    u = first_kind[m]
                    store(mass, (u,), load(mass, (u,)) + load(starts, (at - 1, m)))
                else:
                    for e in range(chain.first[m], chain.first[m + 1]):
                        v = load(w, (t, entry[e])) if regresses else load(weight, (e,))
                        store(mass, (kind[e],), load(mass, (kind[e],)) + load(a, (source[e],)) * v)
        share = splat(shared.weight[row])
        if any_lane(seen(family, observation(family, g.x, t))):
            top, best, lowest = splat(-1e300), splat(-1e300), splat(0.0)
            for u in range(U):
                if known < 0 or known == state[u]:
                    v = load(p, (t, u))
                    best = np.where(v > best, v, best)
                    if limited:
                        top = np.where((v > top) & (load(mass, (u,)) > 0.0), v, top)
            if not limited:
                top = best
            for u in range(U):
                v = load(p, (t, u)) - top
                r = relative(v)
                if careful:
                    r = np.where(v < LOWEST, 0.0, r)
                    lowest = np.where(v < lowest, v, lowest)
                store(p, (t, u), r if known < 0 or known == state[u] else splat(0.0))
            total = total + share * top
            if careful:
                lost = lost + best - top
                lost = np.where((lowest < LOWEST) & (lost < LOWEST), LOWEST, lost)
        else:
            for u in range(U):
                store(p, (t, u), splat(1.0 if known < 0 or known == state[u] else 0.0))
        z = splat(0.0)
        for m in range(M):
            s = splat(0.0)
            if at > 0:
                s = load(starts, (at - 1, m)) * load(p, (t, first_kind[m]))
            else:
                for e in range(chain.first[m], chain.first[m + 1]):
                    v = load(w, (t, entry[e])) if regresses else load(weight, (e,))
                    s = s + load(a, (source[e],)) * v * load(p, (t, kind[e]))
            store(b, (m,), s)
            z = z + s
        if careful:
            least, lost = load(b, (0,)), lost - positive_log(z)
            for m in range(1, M):
                least = np.where(load(b, (m,)) < least, load(b, (m,)), least)
            lost = np.where(least > np.exp(np.minimum(lost + DOUBT_GONE, 0.0)) * z, -1e300, lost)
            worst = np.where(lost > worst, lost, worst)
        scale = splat(1.0)
        if careful or shared.settle[row]:
            total, scale = total + share * positive_log(z), 1.0 / z
        for m in range(M):
            store(a, (m,), load(b, (m,)) * scale)
    store(g.total, (0,), total)
    store(g.lost, (0,), lost)
    store(g.worst, (0,), worst)


# ---------------------------------------------------------------- entry point, for at most LANES points
@inner
def load_constants(family, phi, row, c):
    """Prepare the constants c (K, C) of points with parameters phi (LANES, K, P); ``row`` (1, C) is scratch."""
    for i in range(len(phi)):
        for k in range(len(c)):
            store_row(prepare(family, phi[i, k]), row, 0)
            for j in range(row.shape[1]):
                c[k, j, i] = row[0, j]


@kernel
def advance_edges(family, phi, row, chain, shared, points, g, careful):
    """Filter rows at the points with family parameters phi (LANES, K, P); other arguments as of ``filter_tile``."""
    n, D = len(shared.y), len(g.last)
    load_constants(family, phi, row, points.c)
    for first in range(0, n, TILE):
        count = min(TILE, n - first)
        if len(points.location) > 0:
            combine(shared.location, first, count, points.location, g.eta)
        if len(points.switching) > 0:
            combine(shared.switching, first, count, points.switching, g.own)
        if len(points.scale) > 0:
            combine(shared.scale, first, count, points.scale, g.zeta)
        for t in range(count):
            for d in range(D):
                store(g.x, (t, d), splat(shared.y[first + t, d]))
        incomplete = predict(shared, points, g, first, count)
        if incomplete:
            predict_gaps(shared, points, g, first, count)
        find_densities(family, phi[0], chain, shared.marks, points, g, first, count, incomplete)
        if len(points.slopes) > 0:
            find_weights(shared, points, g, first, count)
        limited = careful or is_limited(shared, first, count)
        filter_tile(family, chain, shared, points, g, first, count, limited, careful)
