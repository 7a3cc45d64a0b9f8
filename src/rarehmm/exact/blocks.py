"""Blocks of a series that are processed in parallel, each with a halo on both sides, with results in a fixed order.

A block ends where its sequence ends, or has the requested size; no block crosses from one sequence to the next.  A
chunk is a run of blocks for one kernel call.  Chunks do not depend on the number of threads, so neither do results.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.data.workers import Item
from rarehmm.engine.lanes import LANES

CHUNK = 1 << 16  # approximate number of observations per chunk
SMALLEST = 128  # sequences shorter than this form one block


class Blocks(NamedTuple):
    """Positions of n blocks in a series.

    ``first`` and ``length`` (n,) give their rows, ``begin`` and ``stop`` those of their sequences, ``weight`` the
    weight of each block in sums.
    """

    first: IntArray
    length: IntArray
    begin: IntArray
    stop: IntArray
    weight: Array

    @property
    def fresh(self) -> BoolArray:
        """Mask of the blocks that begin a sequence."""
        return np.asarray(self.first == self.begin)

    def within(self, chunk: "Chunk") -> tuple[IntArray, IntArray, IntArray, IntArray, Array]:
        """Positions of the blocks of a chunk relative to its first row, in the order of its lanes."""
        mine, offset = chunk.blocks, chunk.first
        return (
            self.first[mine] - offset, self.length[mine], self.begin[mine] - offset, self.stop[mine] - offset,
            self.weight[mine],
        )  # fmt: skip


class Chunk(NamedTuple):
    """Blocks [low, high), the order in which they fill the lanes, and the rows [first, last) that they need."""

    low: int
    high: int
    blocks: IntArray | slice
    first: int
    last: int


def split(series: Series, size: int) -> Blocks:
    """Split a series into blocks of ``size`` observations; the last one of each sequence may be shorter."""
    sizes = np.diff(series.bounds)
    counts = -(-sizes // size)
    sequence = np.repeat(np.arange(len(sizes)), counts)
    number = np.arange(len(sequence)) - np.repeat(np.cumsum(counts) - counts, counts)  # index within its sequence
    begin, stop = series.bounds[sequence], series.bounds[sequence + 1]
    first = begin + number * size
    return Blocks(first, np.minimum(size, stop - first), begin, stop, np.ones(len(first)))


def even_size(series: Series, largest: int) -> int:
    """Block size of at most about ``largest`` that fills all lanes evenly."""
    groups = max(1, round(len(series) / (LANES * largest)))
    return max(SMALLEST, -(-len(series) // (LANES * groups)))


def chunks(blocks: Blocks, halo: int, T: int) -> list[Chunk]:
    """Group blocks into chunks, each a multiple of LANES.

    The first chunk is as small as possible, since it shows whether a halo is long enough.  Within a chunk longer blocks
    come first, so that the lanes of a group end together.
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


def even_chunks(series: Series, size: int) -> list[Chunk]:
    """Chunks of ``size`` rows that cover a series, without blocks; the last one may be shorter."""
    bounds = [*range(0, len(series), size), len(series)]
    return [Chunk(0, 0, slice(0), low, high) for low, high in pairwise(bounds)]


def map_chunks(
    series: Series,
    parts: list[Chunk],
    work: Callable[..., Any],
    threads: int | None = None,
    arguments: Callable[[Chunk], tuple[Any, ...]] = lambda chunk: (chunk,),
    run_locally: bool = False,
) -> list[Any]:
    """Call ``work(rows, *arguments(chunk))`` for each chunk, with the rows of the series that it needs.

    By default that is ``work(rows, chunk)``.  Returns the results in order of chunks.
    """
    return series.over(work, [Item(part.first, part.last, arguments(part)) for part in parts], threads, run_locally)
