"""Passes over the blocks of a long series: each lane is a block, warmed up over a halo on both sides.

A pass leaves the messages at both ends of every block (``Seams``).  Where the message at the end of a halo agrees with
the one that the neighbouring block computed, the halo was long enough: the blocks then form one consistent recursion.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.engine.dispatch import inner, kernel
from rarehmm.engine.kernels.messages import backward, forward, smooth
from rarehmm.engine.lanes import LANES, store

TILE = 256  # numbers per lane gathered at a time


class Layout(NamedTuple):
    """Positions of the n blocks of a chunk in its rows.

    ``first`` row and ``length`` of each block, ``begin`` and ``stop`` of its sequence, and its ``weight``.
    """

    first: IntArray
    length: IntArray
    begin: IntArray
    stop: IntArray
    weight: Array

    def of(self, blocks: slice | IntArray) -> "Layout":
        """Select some of the blocks."""
        return Layout._make(part[blocks] for part in self)


class Task(NamedTuple):
    """Settings of a pass.

    ``halo``: its length; ``every``: steps between normalisations; ``back``: whether to run backwards as well;
    ``statistics``: whether to sum the family's statistics then.
    """

    halo: int
    every: int
    back: bool
    statistics: bool


class Seams(NamedTuple):
    """Messages (n, K) at the ends of the cores of n blocks.

    ``left``, ``right``: on entry the messages at the outer ends of the halos, on exit those at the core.  ``end``: the
    filter at the end of the core; ``begin``: the backward message at its start.
    """

    left: Array
    right: Array
    end: Array
    begin: Array


@inner
def gather_blocks(y, layout, low, halo, n, g):
    """Copy the blocks low, low + 1, ... into lanes, NaN outside their sequences; return the shortest core.

    All lanes advance a few steps at a time, because they write to the same cache lines.
    """
    shortest, D = n, y.shape[1]
    tile = max(1, TILE // D)
    for early in range(0, n, tile):
        late = min(n, early + tile)
        for w in range(LANES):
            i = low + w
            begin, end, row = late, late, 0  # an idle lane is all padding
            if i < len(layout.first):
                row = layout.first[i] - halo
                begin = max(early, min(late, layout.begin[i] - row))
                end = max(begin, min(late, layout.stop[i] - row))
            for d in range(D):
                for t in range(early, begin):
                    g.y[t, d, w] = np.nan
                for t in range(begin, end):
                    g.y[t, d, w] = y[row + t, d]
                for t in range(end, late):
                    g.y[t, d, w] = np.nan
    for w in range(LANES):
        i = low + w
        g.begin[0, w], g.steps[0, w], g.weight[0, w] = -1.0, 0.0, 0.0
        if i < len(layout.first):
            g.begin[0, w] = layout.begin[i] - layout.first[i] + halo
            g.steps[0, w], g.weight[0, w] = layout.length[i], layout.weight[i]
            shortest = min(shortest, layout.length[i])
    return shortest


@inner
def store_messages(lanes, t, low, messages):
    """Copy lanes[t] (K, LANES) to rows low, low + 1, ... of messages (n, K)."""
    for w in range(min(LANES, len(messages) - low)):
        for k in range(messages.shape[1]):
            messages[low + w, k] = lanes[t, k, w]


@inner
def load_messages(messages, low, lanes, t):
    """Copy rows low, low + 1, ... of messages (n, K) to lanes[t] (K, LANES); idle lanes are set to one."""
    for w in range(LANES):
        for k in range(messages.shape[1]):
            lanes[t, k, w] = messages[low + w, k] if low + w < len(messages) else 1.0


@kernel
def sweep(family, point, task, y, layout, seams, g, sums, probabilities, predictive):
    """Weighted log likelihood of all blocks; with ``task.back``, also add expectations to ``sums``.

    ``probabilities`` (rows, K), unless empty, is filled with smoothed (with ``task.back``) or filtered probabilities;
    ``predictive`` (rows,), unless empty, with the log density of each observation given the past.  The filter's own
    values are valid only if messages are normalised at every step (``task.every`` = 1).
    """
    halo, back = task.halo, task.back
    K = point.transition.shape[0]
    total = 0.0
    for low in range(0, len(layout.first), LANES):
        last = halo + layout.length[low]  # the longest core of the group
        n = last + halo if back else last
        shortest = gather_blocks(y, layout, low, halo, n, g)
        load_messages(seams.left, low, g.a, 0)
        logs = forward(family, point, g, halo, last, n, task.every)
        store_messages(g.a, halo, low, seams.left)
        store_messages(g.a, last, low, seams.end)
        if back:
            load_messages(seams.right, low, g.b, 0)
            backward(point, g, last, n, task.every)
            store_messages(g.b, 0, low, seams.right)
            smooth(family, point, g, halo, last, shortest, sums, task.statistics, len(probabilities) > 0)
            store_messages(g.b, 0, low, seams.begin)
        store(g.pb, (0, 0), logs)
        for w in range(min(LANES, len(layout.first) - low)):
            i = low + w
            total += layout.weight[i] * g.pb[0, 0, w]
            if len(probabilities) > 0:
                for t in range(layout.length[i]):
                    for k in range(K):
                        probabilities[layout.first[i] + t, k] = g.a[halo + t + 1, k, w]
            if len(predictive) > 0:
                for t in range(layout.length[i]):
                    predictive[layout.first[i] + t] = g.top[halo + t, w] - np.log(g.scale[halo + t, w])
    return total
