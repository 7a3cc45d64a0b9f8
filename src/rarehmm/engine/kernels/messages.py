"""Forward and backward messages over one group of lanes: blocks of a long series, or windows, one SIMD lane each.

Time runs over n local steps: a left halo [0, first), the core [first, last), a right halo [last, n).  Lanes are the
last axis of every array; there are K states with C prepared constants each.  The filter is normalised every few steps
only; the backward pass uses the filter's own scales, and hence needs no division.  Backward messages of unreachable
states are set to zero: they do not matter, and might grow without bound.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import (
    Family,
    add_statistics,
    columns,
    hook,
    log_density,
    prepare,
    score,
    statistics,
    summed_score,
)
from rarehmm.engine.dispatch import inner, specialise
from rarehmm.engine.elementary import positive_log, relative
from rarehmm.engine.lanes import lane_array, lanes_type, load, load_columns, numbers, row, row_of, splat, store, take


class Point(NamedTuple):
    """Parameters as kernels see them.

    ``phi`` (K, P), ``c`` (K, C) the constants that the family prepares from it, ``transition`` (K, K), ``start`` (K,).
    """

    phi: Array
    c: Array
    transition: Array
    start: Array


class Group(NamedTuple):
    """Workspace of one group of lanes; all arrays have LANES as their last axis.

    ``y`` (n, D) observations; ``begin`` (1,) the step at which a lane's sequence begins, negative if before; ``steps``
    (1,) length of each lane's core, the rest of the group's core being padding; ``weight`` (1,) of each lane; ``p`` (n,
    K) densities relative to the largest; ``a`` (n + 1, K) filter; ``scale`` (n,) its normalisers; ``top`` (n,) the
    largest log density; ``b``, ``pb`` (1, K) backward message.
    """

    y: Array
    begin: Array
    steps: Array
    weight: Array
    p: Array
    a: Array
    scale: Array
    top: Array
    b: Array
    pb: Array


def group(n: int, D: int, K: int) -> Group:
    """Allocate a ``Group`` of up to n steps, D columns and K states."""
    one = lane_array
    return Group(one(n, D), one(1), one(1), one(1), one(n, K), one(n + 1, K), one(n), one(n), one(1, K), one(1, K))


# ---------------------------------------------------------------- what kernels see of a family
def is_wide(family: Any) -> bool:
    """Whether a family, given as a numba type, works on rows in memory instead of tuples."""
    return bool(hook(family.instance_class, "wide"))


def observation(family: Family, y: Array, t: int) -> Any:
    """Observation t of all lanes in ``y`` (n, D, LANES): one Lanes, a tuple of them, or a row for wide families."""
    return y[t, 0] if columns(family) == 1 else y[t] if hook(family, "wide") else tuple(y[t])


def _one_column(family: Any, y: Any, t: Any) -> Any:
    return load(y, (t, 0))


@functools.cache
def _observation(count: int, wide: bool) -> Any:
    if count == 1:
        return _one_column
    if wide:
        row = row_of(count)
        return lambda family, y, t: row(y, (t,))
    several = load_columns(count)
    return lambda family, y, t: several(y, t)


def seen(family: Family, x: Any) -> Any:
    """Mask of the lanes with an observation.

    No column is missing or, if the family accepts partial rows, at least one is present.
    """
    if columns(family) == 1:
        return x == x
    present = np.array([column == column for column in x])
    return present.any(0) if hook(family, "accepts_partial_rows") else present.all(0)


def _seen_one(family: Any, x: Any) -> Any:
    return x == x


def _seen_all(family: Any, x: Any) -> Any:
    total = x[0]
    for d in range(1, len(x)):
        total = total + x[d]
    return total == total


def _seen_some(family: Any, x: Any) -> Any:
    present = x[0] == x[0]
    for d in range(1, len(x)):
        present = present | (x[d] == x[d])
    return present


def _seen(family: Any, x: Any) -> Any:
    if x is lanes_type:
        return _seen_one
    return _seen_some if hook(family.instance_class, "accepts_partial_rows") else _seen_all


def constants(family: Family, phi: Array, c: Array, k: int) -> Any:
    """Constants c[k] that the family prepared for state k: a tuple of values in registers, or a row."""
    return tuple(c[k])


def _constants_row(family: Any, phi: Any, c: Any, k: Any) -> Any:
    return numbers(c, k)


def _constants_tuple(family: Any, phi: Any, c: Any, k: Any) -> Any:
    return take(prepare(family, phi[0]), c, k)


specialise(observation, lambda family, y, t: _observation(columns(family.instance_class), is_wide(family)))
specialise(seen, _seen)
specialise(constants, lambda *kinds: _constants_row if is_wide(kinds[0]) else _constants_tuple)


def add_expected(
    family: Family, x: Any, c: Any, k: int, gamma: Any, present: Any, with_statistics: bool, sums: "Sums"
) -> None:
    """Add gamma times the scores of an observation to the sums of state k, and its statistics if asked to.

    For a wide family statistics are always added, and scores follow from their sums (``finish_scores``): the memory of
    the scores is free until then.
    """
    if hook(family, "wide"):
        _add_wide(family, x, c, k, gamma, present, with_statistics, sums)
    else:
        _add_narrow(family, x, c, k, gamma, present, with_statistics, sums)


def _add_narrow(family: Any, x: Any, c: Any, k: Any, gamma: Any, present: Any, with_statistics: Any, sums: Any) -> None:
    add_weighted(sums.scores, k, score(family, x, c), gamma, present)
    if with_statistics:
        store(sums.counts, (k,), load(sums.counts, (k,)) + np.where(present, gamma, 0.0))
        add_weighted(sums.statistics, k, statistics(family, x, c), gamma, present)


def _add_wide(family: Any, x: Any, c: Any, k: Any, gamma: Any, present: Any, with_statistics: Any, sums: Any) -> None:
    weight = np.where(present, gamma, 0.0)
    store(sums.counts, (k,), load(sums.counts, (k,)) + weight)
    add_statistics(family, x, c, weight, row(sums.scores, k), row(sums.statistics, k))


def finish_scores(family: Family, c: Any, k: int, sums: "Sums") -> None:
    """Compute the scores of state k of a wide family from the sums of its statistics."""
    if hook(family, "wide"):
        _finish_wide(family, c, k, sums)


def _finish_wide(family: Any, c: Any, k: Any, sums: Any) -> None:
    summed_score(family, load(sums.counts, (k,)), row(sums.statistics, k), c, row(sums.scores, k))


def _finish_nothing(family: Any, c: Any, k: Any, sums: Any) -> None:
    return None


def add_weighted(total: Array, k: int, parts: tuple[Any, ...], gamma: Any, present: Any) -> None:
    """Add gamma * parts[i] to total[k, i] where there is an observation (0 times NaN would be NaN)."""
    for i in range(len(parts)):
        store(total, (k, i), load(total, (k, i)) + np.where(present, gamma * parts[i], 0.0))


def _add_nothing(total: Any, k: Any, parts: Any, gamma: Any, present: Any) -> None:
    return None


specialise(add_expected, lambda *kinds: _add_wide if is_wide(kinds[0]) else _add_narrow)
specialise(finish_scores, lambda *kinds: _finish_wide if is_wide(kinds[0]) else _finish_nothing)
specialise(add_weighted, lambda total, k, parts, gamma, present: add_weighted if len(parts) else _add_nothing)


# ---------------------------------------------------------------- messages
@inner
def forward(family, point, g, first, last, n, every):
    """Compute densities and the filter over [0, n) from the message a[0].

    Sequences that begin on the way start from ``start``.  The recursion is
    a[t + 1, k] = scale[t] p[t, k] sum_j a[t, j] P[j, k].  Densities are relative to the largest among reachable states,
    and cut off at e^-300: this is harmless as long as every state receives far more than that from the others (see
    ``underflow_matters``).  Returns the log likelihood of the core in each lane.
    """
    transition = point.transition
    K = transition.shape[0]
    total = splat(0.0)
    for t in range(n):
        x = observation(family, g.y, t)
        present = seen(family, x)
        top = splat(-1e300)
        for k in range(K):
            s = load(g.a, (t, 0)) * transition[0, k]
            for j in range(1, K):
                s = s + load(g.a, (t, j)) * transition[j, k]
            if t <= first:
                s = np.where(load(g.begin, (0,)) == float(t), point.start[k], s)
            v = log_density(family, x, constants(family, point.phi, point.c, k))
            top = np.where((v > top) & (s > 0.0), v, top)
            store(g.a, (t + 1, k), s)
            store(g.p, (t, k), v)
        z = splat(0.0)
        for k in range(K):
            e = np.where(present, relative(load(g.p, (t, k)) - top), 1.0)
            s = load(g.a, (t + 1, k)) * e
            store(g.p, (t, k), e)
            store(g.a, (t + 1, k), s)
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
            for k in range(K):
                store(g.a, (t + 1, k), load(g.a, (t + 1, k)) * z)
        else:
            store(g.scale, (t,), splat(1.0))
    return total


@inner
def backward(point, g, last, n, every):
    """Propagate the message b from n down to ``last`` through the right halo, and normalise it."""
    transition = point.transition
    K = transition.shape[0]
    for t in range(n - 1, last - 1, -1):
        for k in range(K):
            store(g.pb, (0, k), load(g.p, (t, k)) * load(g.b, (0, k)))
        z = splat(0.0)
        for j in range(K):
            s = load(g.pb, (0, 0)) * transition[j, 0]
            for k in range(1, K):
                s = s + load(g.pb, (0, k)) * transition[j, k]
            s = np.where(load(g.a, (t, j)) > 0.0, s, 0.0)
            store(g.b, (0, j), s)
            z = z + s
        if t % every == 0 or t == last:
            z = 1.0 / z
            for k in range(K):
                store(g.b, (0, k), load(g.b, (0, k)) * z)


@inner
def smooth(family, point, g, first, last, shortest, sums, with_statistics, keep):
    """Run backwards through the core, adding expected scores, statistics, transitions and first states to ``sums``.

    With gamma_t(k) = a[t + 1, k] b[k] and the transition xi_t(j, k) = a[t, j] P[j, k] pb[k], the message is scaled once
    so that sum_k a b = weight, which the filter's own scales preserve.  ``pairs`` lacks the factor P.  With ``keep``,
    the gammas overwrite the filter in ``a``.
    """
    transition = point.transition
    K = transition.shape[0]
    z = splat(0.0)
    for k in range(K):
        z = z + load(g.a, (last, k)) * load(g.b, (0, k))
    z = load(g.weight, (0,)) / z
    for k in range(K):
        store(g.b, (0, k), load(g.b, (0, k)) * z)
    for t in range(last - 1, first - 1, -1):
        x = observation(family, g.y, t)
        present = seen(family, x)
        if t - first >= shortest:  # a shorter core may be followed by halo
            present = present & (load(g.steps, (0,)) > float(t - first))
        scale = load(g.scale, (t,))
        for k in range(K):
            bk = load(g.b, (0, k))
            gamma = load(g.a, (t + 1, k)) * bk
            store(g.pb, (0, k), load(g.p, (t, k)) * bk * scale)
            if keep:
                store(g.a, (t + 1, k), gamma)
            if t == first:
                begins = load(g.begin, (0,)) == float(first)
                store(sums.first, (k,), load(sums.first, (k,)) + np.where(begins, gamma, 0.0))
            add_expected(family, x, constants(family, point.phi, point.c, k), k, gamma, present, with_statistics, sums)
        for j in range(K):
            s = load(g.pb, (0, 0)) * transition[j, 0]
            for k in range(1, K):
                s = s + load(g.pb, (0, k)) * transition[j, k]
            store(g.b, (0, j), np.where(load(g.a, (t, j)) > 0.0, s, 0.0))
        if t == first:  # no transition leads into the first state of a sequence
            for k in range(K):
                begins = load(g.begin, (0,)) == float(first)
                store(g.pb, (0, k), np.where(begins, 0.0, load(g.pb, (0, k))))
        if t - first >= shortest:  # nor into padding
            live = load(g.steps, (0,)) > float(t - first)
            for k in range(K):
                store(g.pb, (0, k), np.where(live, load(g.pb, (0, k)), 0.0))
        for j in range(K):
            aj = load(g.a, (t, j))
            for k in range(K):
                store(sums.pairs, (j, k), load(sums.pairs, (j, k)) + aj * load(g.pb, (0, k)))
    for k in range(K):
        finish_scores(family, constants(family, point.phi, point.c, k), k, sums)


class Sums(NamedTuple):
    """Sums over the cores of lanes, all with LANES as their last axis.

    ``scores`` (K, P), ``counts`` (K,), ``statistics`` (K, Q), ``pairs`` (K, K), ``first`` (K,).
    """

    scores: Array
    counts: Array
    statistics: Array
    pairs: Array
    first: Array


def zeros(K: int, P: int, Q: int) -> tuple[Array, Sums]:
    """Allocate sums, as one array (n, LANES) and as views of its parts."""
    flat = lane_array(K * (P + 1 + Q + K + 1))
    return flat, split_sums(flat, K, P, Q)


def split_sums(flat: Array, K: int, P: int, Q: int) -> Sums:
    """Views of the parts of an array as from ``zeros``, with or without its lane axis."""
    parts, at = [], 0
    for shape in ((K, P), (K,), (K, Q), (K, K), (K,)):
        size = math.prod(shape)
        parts.append(flat[at : at + size].reshape(*shape, *flat.shape[1:]))
        at += size
    return Sums(*parts)
