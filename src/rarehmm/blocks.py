"""One pass over a series: blocks of it in parallel, each read with a halo on both sides, results in a fixed order.

A block ends where its sequence ends, or has the size that was asked for; no block crosses a join.  A chunk is a run of
blocks that one call of a kernel works on.  Chunks do not depend on the number of threads, so neither do results.
"""

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rarehmm.lanes import LANES
from rarehmm.series import Array, BoolArray, IntArray, Series

R = TypeVar("R")
CHUNK = 1 << 16  # observations in a chunk, roughly
SMALLEST = 128  # a shorter sequence is one block


class Blocks(NamedTuple):
    """Where blocks lie: ``first`` and ``length`` (n,), and where their sequences ``begin`` and ``stop``."""

    first: IntArray
    length: IntArray
    begin: IntArray
    stop: IntArray

    @property
    def fresh(self) -> BoolArray:
        """Which blocks begin their sequence."""
        return np.asarray(self.first == self.begin)


class Chunk(NamedTuple):
    """Blocks [low, high), the order in which they fill the lanes, and the rows of the series that they need."""

    low: int
    high: int
    blocks: IntArray | slice
    first: int
    last: int


def split(series: Series, size: int) -> Blocks:
    """Blocks of ``size`` observations; the last one of each sequence may be shorter."""
    sizes = np.diff(series.bounds)
    counts = -(-sizes // size)
    sequence = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)  # within its sequence
    begin, stop = series.bounds[sequence], series.bounds[sequence + 1]
    first = begin + number * size
    return Blocks(first, np.minimum(size, stop - first), begin, stop)


def even_size(series: Series, largest: int) -> int:
    """A block size, at most about ``largest``, that fills all lanes alike."""
    groups = max(1, round(len(series) / (LANES * largest)))
    return max(SMALLEST, -(-len(series) // (LANES * groups)))


def chunks(blocks: Blocks, halo: int, T: int) -> list[Chunk]:
    """Runs of blocks, a multiple of LANES each, the first as small as can be (it shows whether a halo is long enough).

    Within a run the long blocks come first, so that lanes end together.
    """
    n = len(blocks.first)
    total = np.concatenate([[0], np.cumsum(blocks.length)])
    bounds = [0, min(n, LANES)]
    while bounds[-1] < n:
        low = bounds[-1]
        wanted = int(np.searchsorted(total, total[low] + CHUNK)) - low
        bounds.append(min(n, low + max(LANES, -(-wanted // LANES) * LANES)))
    out = []
    for low, high in pairwise(bounds):
        lengths = blocks.length[low:high]
        sorted_already = bool((lengths[1:] <= lengths[:-1]).all())
        order = slice(low, high) if sorted_already else low + np.argsort(-lengths, kind="stable")
        first = max(0, int(blocks.first[low]) - halo)
        last = min(T, int(blocks.first[high - 1] + blocks.length[high - 1]) + halo)
        out.append(Chunk(low, high, order, first, last))
    return out


def over(series: Series, parts: list[Chunk], work: Callable[[Array, Chunk], R], threads: int | None = None) -> list[R]:
    """``work(rows, chunk)`` for each chunk, with the rows of the series that it needs; results in order of chunks."""
    results: list[Any] = [None] * len(parts)
    waiting = iter(range(len(parts)))  # shared by the threads, each takes the next

    def drain() -> None:
        for i in waiting:
            results[i] = work(series.read(parts[i].first, parts[i].last), parts[i])

    helpers = min(threads or available_threads(), len(parts)) - 1
    others = [pool(helpers, os.getpid()).submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        wait(others)
    for other in others:
        other.result()
    return results


@functools.cache
def pool(workers: int, _process: int) -> ThreadPoolExecutor:
    """Threads that wait for the next pass: to start them anew would cost a tenth of one.  A fork needs its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="rarehmm")


def available_threads() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
