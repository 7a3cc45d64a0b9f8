"""Windows for a chain: drawn by inversion and copied from the series in lane order."""

import math
from typing import NamedTuple

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.dispatch import kernel
from rarehmm.engine.lanes import LANES

TILE = 64  # numbers of a window that are copied at a time, column by column


class Gathered(NamedTuple):
    """m sets of windows, a step uses one or more; G groups of lanes each, LANES last.

    ``y`` (m, G, n, D); ``begin``, ``steps``, ``weight`` (m, G, 1) as in ``Group``, the weight 1 / (S q); ``shortest``
    (m, G) core of a group; ``fresh`` (m, G): whether a sequence begins with one of its cores; ``owner`` (G, LANES): the
    only component that a lane feeds, -1 for all, -2 for none; ``owners`` (G, 2): first and last (exclusive) component
    of a group.  The core is [buffer, buffer + length).  ``left``, ``right`` (m, G, K): messages at the ends of the
    buffers, ``control`` (m, C): weighted sum of the frozen statistics; with m = 0 and C = 0 if there are none.
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
    """Where the windows of sequences lie, all (S,) but the first: ``before`` (S + 1,) windows in sequences before each;
    ``first`` and ``last`` row of their cores, ``origins`` and ``stop`` of the sequences, and their ``weights``."""

    before: IntArray
    first: IntArray
    last: IntArray
    origins: IntArray
    stop: IntArray
    weights: Array


@kernel
def choose(u, row, cumulative, guide, size, windows, weights):
    """windows (m, lanes): the first n with cumulative[row, n + 1] above the uniform number u (m, lanes) of its slot.

    ``cumulative`` (rows, N + 1) begins with 0; ``guide`` (rows, B) says where to begin to look for numbers from b / B.
    ``weights`` (m, lanes) are 1 / (size q), with the probability q that is drawn with.
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
    """Copy those windows (m, lanes) that lie in [low, high) from the rows y (n, D) of a series, the first ``offset``.

    ``place`` as in ``Windows``; ``left``, ``right`` (N, K) and ``statistics`` (N, C) are frozen.
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
            while end - s > 1:  # the sequence it is in
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
