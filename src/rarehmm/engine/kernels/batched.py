"""Many points of theta on one series: lanes are points, and sixteen of them share each reading of an observation.

No blocks, no halos, no seams: time runs from the first observation to the last, and every lane is exact.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import types

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import log_density, prepare
from rarehmm.engine.dispatch import inner, kernel, specialise
from rarehmm.engine.elementary import positive_log, relative
from rarehmm.engine.kernels.chain import clear, eliminate, prior_slope, start_slope, unpack
from rarehmm.engine.kernels.messages import Point, Sums, add_expected, conclude, observation, seen, zeros
from rarehmm.engine.lanes import any_lane, lane_array, load, load_columns, row, splat, store

EVERY = 4  # steps between normalisations


class Batch(NamedTuple):
    """A group of points at work; the arrays above the line have LANES last.

    Their parameters: ``c`` (K, C) what the family prepares, ``transition`` (K, K), ``start`` (K,).  Messages as in
    ``messages.Group``: ``x`` (1, D) the observation, ``p`` (n, K), ``a`` (n + 1, K), ``scale`` (n,), ``b``, ``pb``
    (1, K), where n is the length of the series if it is gone through backwards too, else 1.  ``total`` (1,): log
    likelihood so far.  ``sums``: expectations.

    For one point at a time: ``left``, ``start_terms`` (K, K), ``law`` (K,), ``u`` (2, K).
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

    left: Array
    start_terms: Array
    distribution: Array
    u: Array


def batch(point: Point, D: int, n: int, Q: int) -> Batch:
    """Room for a group of points of the kind of ``point`` on series of up to n observations; Q as in ``zeros``."""
    (K, P), C, one = point.phi.shape, point.c.shape[1], lane_array
    messages = one(1, D), one(n, K), one(n + 1, K), one(n), one(1, K), one(1, K), one(1)
    alone = np.empty((K, K)), np.empty((K, K)), np.empty(K), np.empty((2, K))
    return Batch(one(K, C), one(K, K), one(K), *messages, zeros(K, P, Q)[1], *alone)


def lane_constants(template: Any, c: Array, k: int) -> Any:
    """c[k] of all lanes, as a tuple as long as ``template``, or as a row if that is an array."""
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
def spread(family, target, theta, point, batch):
    """The points theta (n, d) to the lanes; idle lanes repeat the last."""
    K = len(batch.distribution)
    for w in range(batch.total.shape[1]):  # LANES, but not unrolled: that would take seconds to compile
        unpack(family, target, theta[min(w, len(theta) - 1)], point)
        eliminate(point.transition, batch.left, batch.distribution)
        for k in range(K):
            batch.start[k, w] = batch.distribution[k] if target.stationary else target.start[k]
            for i in range(point.c.shape[1]):
                batch.c[k, i, w] = point.c[k, i]
            for j in range(K):
                batch.transition[k, j, w] = point.transition[k, j]
    store(batch.total, (0,), splat(0.0))


@inner
def prior_value(target, point, theta):
    """Log prior density of theta up to a constant: the integral of ``prior_slope``."""
    K, P = point.phi.shape
    total = 0.0
    for i in range(K * P):
        k = target.column[i]
        x, c = point.phi[target.row[i], k], target.prior[k]
        if target.logs[k]:
            total += c[2] * theta[i] + x * (c[3] + x * c[4] / 2.0)
            total -= (c[1] + c[0] / (2.0 * x)) / x if c[0] != 0.0 or c[1] != 0.0 else 0.0
        else:
            total += x * (c[2] + x * (c[3] / 2.0 + x * c[4] / 3.0))
            total += c[1] * math.log(x) - c[0] / x if c[0] != 0.0 or c[1] != 0.0 else 0.0
    if target.expanded:
        for i in range(K * P, len(theta)):
            total += (target.concentration - 1.0) * math.log(theta[i]) - theta[i]
    else:
        for j in range(K):
            for k in range(K):
                if point.transition[j, k] > 0.0:
                    total += target.concentration * math.log(point.transition[j, k])
    return total


# ---------------------------------------------------------------- messages
@inner
def forward(family, batch, point, y, fresh, back):
    """The filter through the rows y (n, D), with densities and scales kept for the way back if wanted."""
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
    """Back through all rows, adding expected scores, transitions (without the factor P) and first states."""
    K, template, sums = len(batch.distribution), prepare(family, point.phi[0]), batch.sums
    clear(sums)
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
        conclude(family, lane_constants(template, batch.c, k), k, sums)


@inner
def lane_gradient(w, target, point, theta, batch, gradient):
    """Gradient (d,) of the log posterior at theta, the point of lane w."""
    K, P = point.phi.shape
    sums = batch.sums
    for i in range(K * P):
        j, k = target.row[i], target.column[i]
        gradient[i] = sums.scores[j, k, w] * (point.phi[j, k] if target.logs[k] else 1.0)
    for i in range(K * P, len(theta)):
        j, k = target.row[i], target.column[i]
        total = 0.0
        for m in range(K):
            total += sums.pairs[j, m, w] * point.transition[j, m]
        gradient[i] = (sums.pairs[j, k, w] - total) * point.transition[j, k]
    if target.stationary:
        eliminate(point.transition, batch.left, batch.distribution)
        start_slope(point.transition, batch.left, batch.distribution, sums.first, w, batch.u, batch.start_terms)
        for i in range(K * P, len(theta)):
            gradient[i] += batch.start_terms[target.row[i], target.column[i]]
    for i in range(len(theta)):
        if target.expanded and i >= K * P:
            gradient[i] /= theta[i]
        gradient[i] += prior_slope(i, target, point, theta)


# ---------------------------------------------------------------- what is called, with at most LANES points
@kernel
def begin(family, target, theta, point, batch):
    """Make a lot of points theta (n, d) ready for its first rows."""
    spread(family, target, theta, point, batch)


@kernel
def advance(family, point, y, fresh, batch, back):
    """Carry a lot through more rows y of the series; ``fresh`` (rows + 1): where sequences begin.

    With ``back``, y are all rows, and what the way back needs is kept.
    """
    forward(family, batch, point, y, fresh, back)


@kernel
def gradients(family, target, theta, point, y, fresh, batch, slopes):
    """Gradients (n, d) of the log posterior at the points of a lot that has gone through all rows y."""
    backward(family, batch, point, y, fresh)
    for w in range(len(theta)):
        unpack(family, target, theta[w], point)
        lane_gradient(w, target, point, theta[w], batch, slopes[w])


@kernel
def finish(family, target, theta, point, batch, values):
    """Log posteriors (n,) of the points of a lot that has seen all rows."""
    for w in range(len(theta)):
        unpack(family, target, theta[w], point)
        values[w] = batch.total[0, w] + prior_value(target, point, theta[w])
