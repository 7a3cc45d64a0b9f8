"""One pass over a series: blocks of it in parallel, each read with a halo on both sides, results in a fixed order.

A block ends where its sequence ends, or has the size that was asked for; no block crosses a join.  A chunk is a run of
blocks that one call of a kernel works on.  Chunks do not depend on the number of threads, so neither do results.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.data.workers import Item
from rarehmm.engine.lanes import LANES

CHUNK = 1 << 16  # observations in a chunk, roughly
SMALLEST = 128  # a shorter sequence is one block


class Blocks(NamedTuple):
    """Where blocks lie: ``first`` and ``length`` (n,), where their sequences ``begin`` and ``stop``, and the ``weight``
    of each."""

    first: IntArray
    length: IntArray
    begin: IntArray
    stop: IntArray
    weight: Array

    @property
    def fresh(self) -> BoolArray:
        """Which blocks begin their sequence."""
        return np.asarray(self.first == self.begin)

    def within(self, chunk: "Chunk") -> tuple[IntArray, IntArray, IntArray, IntArray, Array]:
        """The blocks of a chunk, in the order of its lanes, by rows of the chunk."""
        mine, offset = chunk.blocks, chunk.first
        return (
            self.first[mine] - offset, self.length[mine], self.begin[mine] - offset, self.stop[mine] - offset,
            self.weight[mine],
        )  # fmt: skip


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
    return Blocks(first, np.minimum(size, stop - first), begin, stop, np.ones(len(first)))


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


def even_chunks(series: Series, size: int) -> list[Chunk]:
    """A series in stretches of ``size`` rows, the last one shorter."""
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
