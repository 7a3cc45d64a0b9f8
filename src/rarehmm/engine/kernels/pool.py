"""Windows for a chain: drawn by inversion, and copied from the series in lane order."""

import math
from typing import NamedTuple

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.dispatch import kernel
from rarehmm.engine.lanes import LANES

TILE = 64  # numbers per window copied at a time, column by column


class Gathered(NamedTuple):
    """Windows gathered for a chain: m sets, each in G groups of lanes, with LANES as the last axis.

    A step uses one or more sets.

    ``y`` (m, G, n, D); ``begin``, ``steps``, ``weight`` (m, G, 1) as in ``Group``, with weight 1 / (S q); ``shortest``
    (m, G) core of a group; ``fresh`` (m, G): whether a sequence begins with one of its cores; ``owner`` (G, LANES): the
    only component that a lane contributes to, -1 for all, -2 for none; ``owners`` (G, 2): first and last (exclusive)
    component of a group.  The core is [buffer, buffer + length).  ``left``, ``right`` (m, G, K): messages at the ends
    of the buffers, ``control`` (m, C): weighted sum of the frozen statistics; with m = 0 and C = 0 if there are none.
    """

    y: Array
    begin: Array
    steps: Array
    weight: Array
    shortest: IntArray
    fresh: BoolArray
    owner: Array
    owners: IntArray
    buffer: int
    length: int
    left: Array
    right: Array
    control: Array


class Places(NamedTuple):
    """Positions of the windows of S sequences.

    ``before`` (S + 1,): number of windows in earlier sequences; all others (S,): ``first`` and ``last`` row of the
    cores, ``origins`` and ``stop`` of the sequences, and their ``weights``.
    """

    before: IntArray
    first: IntArray
    last: IntArray
    origins: IntArray
    stop: IntArray
    weights: Array


@kernel
def choose(u, row, cumulative, guide, size, windows, weights):
    """Draw windows (m, lanes) by inversion: the first n with cumulative[row, n + 1] > u (m, lanes).

    ``cumulative`` (rows, N + 1) begins with 0; ``guide`` (rows, B) says where to start searching for numbers from b /
    B.  ``weights`` (m, lanes) are 1 / (size q), where q is the probability of the window.
    """
    for at in range(u.shape[0]):
        for lane in range(u.shape[1]):
            r, x = row[lane], u[at, lane]
            n = guide[r, int(x * guide.shape[1])]
            while cumulative[r, n + 1] <= x:
                n += 1
            while cumulative[r, n] > x:  # x B was rounded up
                n -= 1
            windows[at, lane] = n
            weights[at, lane] = 1.0 / (size * (cumulative[r, n + 1] - cumulative[r, n]))


@kernel
def collect(y, offset, windows, weights, low, high, place, left, right, statistics, out):
    """Copy those windows (m, lanes) that lie in [low, high) from rows y (n, D) of a series.

    Row 0 of y is row ``offset`` of the series.

    ``place`` is a ``Places``; ``left``, ``right`` (N, K) and ``statistics`` (N, C) are frozen.
    """
    before = place.before
    n, D = out.y.shape[2:4]
    tile = max(1, TILE // D)
    K, C = left.shape[1], statistics.shape[1]
    for at in range(windows.shape[0]):
        for lane in range(windows.shape[1]):
            window = windows[at, lane]
            if not low <= window < high:
                continue
            g, w = lane // LANES, lane % LANES
            s, end = 0, len(before) - 1
            while end - s > 1:  # find its sequence
                middle = (s + end) // 2
                if before[middle] <= window:
                    s = middle
                else:
                    end = middle
            first = place.first[s] + (window - before[s]) * out.length
            top = first - out.buffer
            begin, stop = place.origins[s] - top, place.stop[s] - top
            for early in range(0, n, tile):
                late = min(n, early + tile)
                for d in range(D):
                    for t in range(early, min(late, begin)):
                        out.y[at, g, t, d, w] = math.nan
                    for t in range(max(early, begin), min(late, stop)):
                        out.y[at, g, t, d, w] = y[top - offset + t, d]
                    for t in range(max(early, stop), late):
                        out.y[at, g, t, d, w] = math.nan
            length = min(out.length, place.last[s] - first)
            out.begin[at, g, 0, w], out.steps[at, g, 0, w] = begin, length
            out.weight[at, g, 0, w] = weights[at, lane] * place.weights[s]
            out.shortest[at, g] = min(out.shortest[at, g], length)
            out.fresh[at, g] |= begin == out.buffer
            if C > 0:
                for k in range(K):
                    out.left[at, g, k, w] = left[window, k]
                    out.right[at, g, k, w] = right[window, k]
                for i in range(C):
                    out.control[at, i] += weights[at, lane] * statistics[window, i]
