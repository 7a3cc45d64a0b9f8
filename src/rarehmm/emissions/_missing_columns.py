"""Gaussian rows in which some columns are missing: log density and expectations given the others, lane by lane.

Constants of a state are those of ``MultivariateGaussian``: means, inverse residual variances, slopes.
"""

import math
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.dispatch import aside, inner, specialise
from rarehmm.engine.lanes import LANES, lane, lanes_type, with_lane


@inner
def fill_in(z: Any, c: Any, V: Any, full: Any) -> Any:
    r"""Replace missing entries (NaN) of z (D,) by their expectations given the others, and fill V (D, D) with their
    covariances.

    Columns are taken one after the other, as in a Kalman filter: :math:`z_i = \sum_{j<i} b_{ij} z_j + e_i` has a mean
    and a variance given the earlier columns that are present; if it is present itself, it updates the expectations of
    the earlier ones.  Returns the log density of what is present.
    """
    D = len(z)
    total, shared = 0.0, np.zeros(D)  # covariances with the earlier columns
    for i in range(D):
        mean, variance, before, first = 0.0, 1.0 / c[D + i], i if full else 0, 2 * D + i * (i - 1) // 2
        for j in range(before):
            mean += c[first + j] * z[j]
            shared[j] = 0.0
            for m in range(before):
                shared[j] += c[first + m] * V[m, j]
            variance += c[first + j] * shared[j]
        there = z[i] == z[i]
        if there:
            e = z[i] - mean
            total -= 0.5 * (math.log(2.0 * math.pi * variance) + e * e / variance)
            for j in range(before):
                z[j] += shared[j] * e / variance
                for m in range(before):
                    V[j, m] -= shared[j] * shared[m] / variance
        else:
            z[i] = mean
        for j in range(i):
            V[i, j] = 0.0 if there else shared[j]
            V[j, i] = V[i, j]
        V[i, i] = 0.0 if there else variance
    return total


def n_parameters(D: int, full: bool) -> int:
    """Number of means, residual variances and slopes of D columns; ``full`` if there are slopes."""
    return 2 * D + (D * (D - 1) // 2 if full else 0)


def n_statistics(D: int, full: bool) -> int:
    """Number of z and their products among D columns."""
    return D + (D * (D + 1) // 2 if full else D)


def square_place(D: int, full: bool) -> Any:
    """Function of i and j <= i: place of the statistic z_i z_j among those of D columns, z itself being first."""

    @inner
    def square(i: Any, j: Any) -> Any:
        return D + i * (i + 1) // 2 + j if full else D + i

    return square


def lane_taker(D: int, full: bool) -> tuple[Any, int]:
    """Function that copies one lane of observations and constants, and the number of these constants."""
    size = n_parameters(D, full)

    @inner
    def take_lane(y: Any, c: Any, w: Any, z: Any, own: Any) -> Any:
        """Copy lane w of y less the means to z, and that of the constants to ``own``; the number of columns present."""
        count = 0
        for i in range(size):
            own[i] = lane(c[i], w)
        for i in range(D):
            z[i] = lane(y[i], w) - own[i]
            count += 1 if z[i] == z[i] else 0
        return count

    return take_lane, size


def marginal_of(D: int, full: bool) -> Any:
    """Function ``marginal(y, c, density)``: the log density, corrected where only some of D columns are present."""
    take_lane, size = lane_taker(D, full)

    def marginal(y: Any, c: Any, density: Any) -> Any:
        z, c, density = spread(y, c, density)
        for w in partial(z):
            density[w] = fill_in(z[:, *w], c[:, *w], np.empty((D, D)), full)
        return density[()]

    @aside
    def marginal_lanes(y: Any, c: Any, density: Any) -> Any:
        z, V, own = np.empty(D), np.empty((D, D)), np.empty(size)
        for w in range(LANES):
            if 0 < take_lane(y, c, w, z, own) < D:
                density = with_lane(density, w, fill_in(z, own, V, full))
        return density

    def on_lanes(y: Any, c: Any, density: Any) -> Any:
        return marginal_lanes(y, c, density)

    specialise(marginal, lambda *kinds: on_lanes if kinds[-1] is lanes_type else None)
    return marginal


def expect_of(D: int, full: bool) -> Any:
    """Function ``expect(y, c, weight, room, total)``, for rows in which only some of D columns are present.

    It writes the expected z to ``room``, 0 in a row without any column, and adds the weighted covariances to the
    squares in ``total``.
    """
    square, (take_lane, size) = square_place(D, full), lane_taker(D, full)

    def expect(y: Any, c: Any, weight: Any, room: Any, total: Any) -> None:
        z, c, weight = spread(y, c, weight)
        V: Any = np.zeros((D, *z.shape))
        for w in partial(z):
            fill_in(z[:, *w], c[:, *w], V[:, :, *w], full)
        z[:, np.isnan(z).all(0)] = 0.0
        for i in range(D):
            room[i] = z[i]
            for j in range(0 if full else i, i + 1):
                total[square(i, j)] = total[square(i, j)] + weight * V[i, j]

    @aside
    def expect_lanes(y: Any, c: Any, weight: Any, room: Any, total: Any) -> Any:
        z, V, own = np.empty(D), np.empty((D, D)), np.empty(size)
        for w in range(LANES):
            count = take_lane(y, c, w, z, own)
            if 0 < count < D:
                fill_in(z, own, V, full)
                for i in range(D):
                    for j in range(0 if full else i, i + 1):
                        q = square(i, j)
                        total[q] = with_lane(total[q], w, lane(total[q], w) + lane(weight, w) * V[i, j])
            for i in range(D):
                room[i] = with_lane(room[i], w, z[i] if count > 0 else 0.0)

    def on_lanes(y: Any, c: Any, weight: Any, room: Any, total: Any) -> Any:
        expect_lanes(y, c, weight, room, total)

    specialise(expect, lambda *kinds: on_lanes)
    return expect


def spread(y: Any, c: Any, one: Any) -> Any:
    """Copies of observations less means (D, ...), constants (C, ...) and a value (...), broadcast to a common shape."""
    shape = np.broadcast_shapes(*(np.shape(v) for v in (*y, *c, one)))
    every = np.array([np.broadcast_to(v, shape) for v in (*y, *c, one)], dtype=float)
    D = len(y)
    return every[:D] - every[D : 2 * D], every[D:-1], every[-1]


def partial(z: Array) -> list[tuple[int, ...]]:
    """Indices at which some, but not all, of the columns of z (D, ...) are missing."""
    missing = np.isnan(z).sum(0)
    return [tuple(w) for w in np.argwhere((missing > 0) & (missing < len(z)))]
