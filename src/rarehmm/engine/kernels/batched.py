"""Log posteriors and gradients of many points theta on one series: each lane is a point.

All lanes share each reading of an observation.  There are no blocks, halos or seams: time runs from the first
observation to the last, and every lane is exact.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import log_density, prepare
from rarehmm.engine.dispatch import inner, kernel, specialise
from rarehmm.engine.elementary import positive_log, relative
from rarehmm.engine.kernels.chain import unpack, zero_sums
from rarehmm.engine.kernels.gradient import add_prior_slope, assemble, assembly
from rarehmm.engine.kernels.messages import Point, Sums, add_expected, finish_scores, observation, seen, zeros
from rarehmm.engine.kernels.stationary import eliminate
from rarehmm.engine.lanes import any_lane, lane_array, load, load_columns, row, splat, store

EVERY = 4  # steps between normalisations


class Batch(NamedTuple):
    """Workspace of a group of points; the arrays before the blank line have LANES as their last axis.

    Parameters of the points: ``c`` (K, C) constants that the family prepares, ``transition`` (K, K), ``start`` (K,).
    Messages as in ``messages.Group``: ``x`` (1, D) the observation, ``p`` (n, K), ``a`` (n + 1, K), ``scale`` (n,),
    ``b``, ``pb`` (1, K), where n is the length of the series if there is a backward pass, else 1.  ``total`` (1,): log
    likelihood so far.  ``sums``: expectations.

    For one point at a time: the fields of ``gradient.Assembly``.
    """

    c: Array
    transition: Array
    start: Array
    x: Array
    p: Array
    a: Array
    scale: Array
    b: Array
    pb: Array
    total: Array
    sums: Sums

    scores: Array
    pairs: Array
    first: Array
    distribution: Array
    left: Array
    u: Array
    slopes: Array


def batch(point: Point, D: int, n: int, Q: int) -> Batch:
    """Allocate a ``Batch`` for points shaped like ``point``, on up to n observations; Q as in ``zeros``."""
    (K, P), C, one = point.phi.shape, point.c.shape[1], lane_array
    messages = one(1, D), one(n, K), one(n + 1, K), one(n), one(1, K), one(1, K), one(1)
    return Batch(one(K, C), one(K, K), one(K), *messages, zeros(K, P, Q)[1], *assembly(K, P))


def lane_constants(template: Any, c: Array, k: int) -> Any:
    """Constants c[k] of all lanes, as a tuple as long as ``template``, or as a row if that is an array."""
    return tuple(c[k, : len(template)])


@functools.cache
def _lane_constants(count: int | None) -> Any:
    if count is None:
        return lambda template, c, k: row(c, k)
    several = load_columns(count)
    return lambda template, c, k: several(c, k)


specialise(
    lane_constants,
    lambda template, c, k: _lane_constants(None if isinstance(template, types.Array) else len(template)),
)


# ---------------------------------------------------------------- parameters
@inner
def load_points(family, target, theta, point, batch):
    """Load the points theta (n, d) into the lanes; idle lanes repeat the last one."""
    K = len(batch.distribution)
    for w in range(batch.total.shape[1]):  # LANES, but not unrolled, which would take seconds to compile
        unpack(family, target, theta[min(w, len(theta) - 1)], point)
        eliminate(point.transition, batch.left, batch.distribution)
        for k in range(K):
            batch.start[k, w] = batch.distribution[k] if target.stationary else target.start[k]
            for i in range(point.c.shape[1]):
                batch.c[k, i, w] = point.c[k, i]
            for j in range(K):
                batch.transition[k, j, w] = point.transition[k, j]
    store(batch.total, (0,), splat(0.0))


# ---------------------------------------------------------------- messages
@inner
def forward(family, batch, point, y, fresh, back):
    """Filter the rows y (n, D); with ``back``, keep the densities and scales for the backward pass."""
    K, template = len(batch.distribution), prepare(family, point.phi[0])
    total = load(batch.total, (0,))
    for t in range(len(y)):
        here, there, at = (t, t + 1, t) if back else (0, 0, 0)
        for i in range(y.shape[1]):
            store(batch.x, (0, i), splat(y[t, i]))
        missing = not any_lane(seen(family, observation(family, batch.x, 0)))
        for k in range(K):
            if fresh[t]:
                s = load(batch.start, (k,))
            else:
                s = load(batch.a, (here, 0)) * load(batch.transition, (0, k))
                for j in range(1, K):
                    s = s + load(batch.a, (here, j)) * load(batch.transition, (j, k))
            store(batch.pb, (0, k), s)
        z = splat(0.0)
        if missing:
            for k in range(K):
                s = load(batch.pb, (0, k))
                store(batch.p, (at, k), splat(1.0))
                store(batch.a, (there, k), s)
                z = z + s
        else:
            x, top = observation(family, batch.x, 0), splat(-1e300)
            for k in range(K):
                v = log_density(family, x, lane_constants(template, batch.c, k))
                top = np.where((v > top) & (load(batch.pb, (0, k)) > 0.0), v, top)
                store(batch.p, (at, k), v)
            for k in range(K):
                e = relative(load(batch.p, (at, k)) - top)
                s = load(batch.pb, (0, k)) * e
                store(batch.p, (at, k), e)
                store(batch.a, (there, k), s)
                z = z + s
            total = total + top
        if (t + 1) % EVERY == 0 or t == len(y) - 1 or fresh[t + 1]:
            total = total + positive_log(z)
            z = 1.0 / z
            store(batch.scale, (at,), z)
            for k in range(K):
                store(batch.a, (there, k), load(batch.a, (there, k)) * z)
        elif back:
            store(batch.scale, (at,), splat(1.0))
    store(batch.total, (0,), total)


@inner
def backward(family, batch, point, y, fresh):
    """Run backwards through all rows, summing expected scores, transitions (without the factor P) and first states."""
    K, template, sums = len(batch.distribution), prepare(family, point.phi[0]), batch.sums
    zero_sums(sums)
    every = splat(1.0) > splat(0.0)
    for t in range(len(y) - 1, -1, -1):
        if t == len(y) - 1 or fresh[t + 1]:
            for k in range(K):
                store(batch.b, (0, k), splat(1.0))
        for i in range(y.shape[1]):
            store(batch.x, (0, i), splat(y[t, i]))
        missing = not any_lane(seen(family, observation(family, batch.x, 0)))
        x, scale = observation(family, batch.x, 0), load(batch.scale, (t,))
        for k in range(K):
            bk = load(batch.b, (0, k))
            gamma = load(batch.a, (t + 1, k)) * bk
            store(batch.pb, (0, k), load(batch.p, (t, k)) * bk * scale)
            if not missing:
                add_expected(family, x, lane_constants(template, batch.c, k), k, gamma, every, False, sums)
            if fresh[t]:
                store(sums.first, (k,), load(sums.first, (k,)) + gamma)
        if not fresh[t]:
            for j in range(K):
                aj = load(batch.a, (t, j))
                s = splat(0.0)
                for k in range(K):
                    pb = load(batch.pb, (0, k))
                    s = s + pb * load(batch.transition, (j, k))
                    store(sums.pairs, (j, k), load(sums.pairs, (j, k)) + aj * pb)
                store(batch.b, (0, j), np.where(aj > 0.0, s, 0.0))
    for k in range(K):
        finish_scores(family, lane_constants(template, batch.c, k), k, sums)


@inner
def assemble_lane(w, target, point, theta, batch, gradient):
    """Gradient (d,) of the log posterior at theta, the point in lane w."""
    phi, transition, sums = point.phi, point.transition, batch.sums
    K, P = phi.shape
    eliminate(transition, batch.left, batch.distribution)
    for k in range(K):
        batch.first[k] = sums.first[k, w]
        for i in range(P):
            batch.scores[k, i] = sums.scores[k, i, w]
        for m in range(K):
            batch.pairs[k, m] = sums.pairs[k, m, w] * transition[k, m]
    assemble(target, phi, transition, theta, batch, gradient)
    add_prior_slope(target, phi, transition, theta, gradient)


# ---------------------------------------------------------------- entry points, for at most LANES points
@kernel
def advance(family, target, theta, point, y, fresh, batch, begin, back):
    """Filter rows y of the series at the points theta (n, d); ``batch.total`` accumulates their log likelihoods.

    ``fresh`` (rows + 1,) marks where sequences begin.  With ``begin``, y are the first rows.  With ``back``, y are all
    rows, and what ``gradients`` needs is kept.
    """
    if begin:
        load_points(family, target, theta, point, batch)
    forward(family, batch, point, y, fresh, back)


@kernel
def gradients(family, target, theta, point, y, fresh, batch, out):
    """Gradients (n, d) of the log posterior at the points theta (n, d), after ``advance`` through all rows y."""
    backward(family, batch, point, y, fresh)
    for w in range(len(theta)):
        unpack(family, target, theta[w], point)
        assemble_lane(w, target, point, theta[w], batch, out[w])
