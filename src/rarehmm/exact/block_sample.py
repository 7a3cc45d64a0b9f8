"""Objectives: what a log posterior is computed from, a whole series or a sample of blocks that represents a longer one.

The blocks of a sample are in memory, each with a halo on both sides in which messages become what they would be within
the whole series; sums go over its core.  Weighted by how many blocks each represents, sums over blocks estimate those
over the whole series.  An exact pass at one point, the anchor, corrects them: there they are right, near it nearly so.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.data.workers import Item
from rarehmm.exact.blocks import Blocks, even_size, split

HALOS = (32, 128, 512)  # tried one after the other
BEFORE = -(1 << 40)  # where the sequence of a block begins that is not the first of its sequence


class Objective(Protocol):
    """How the log posterior of a whole series follows from sums over rows."""

    @property
    def is_exact(self) -> bool:
        """Whether sums over the rows are those of the whole series."""
        ...

    def plans(self, largest: int, probabilities: bool) -> Iterator[tuple[Blocks, int]]:
        """Blocks of about ``largest`` rows and their halos, longer and longer ones, until messages agree at the seams;
        for the ``probabilities`` of all rows, or for sums."""
        ...

    @property
    def counts(self) -> Array | None:
        """Expected observations (K,) of each state of the whole series, where they are known beforehand."""
        ...

    def correction(self, theta: Array) -> tuple[float, Array | float]:
        """What the log likelihood of the rows and its gradient lack at theta (d,)."""
        ...

    def total(self, theta: Array, statistics: Array) -> Array:
        """Statistics (C,) of the whole series at theta, from those (N, C) of all windows."""
        ...


class WholeSeries(NamedTuple):
    """The objective of a series that is summed in full."""

    series: Series

    @property
    def is_exact(self) -> bool:
        return True

    def plans(self, largest: int, probabilities: bool) -> Iterator[tuple[Blocks, int]]:
        for halo in HALOS:
            size = even_size(self.series, max(2 * halo, largest))
            yield split(self.series, max(size, halo)), halo

    @property
    def counts(self) -> Array | None:
        return None

    def correction(self, theta: Array) -> tuple[float, Array | float]:
        return 0.0, 0.0

    def total(self, theta: Array, statistics: Array) -> Array:
        return np.asarray(statistics.sum(0))


class Anchor(NamedTuple):
    """A point ``theta`` (d,) at which the whole series was summed.

    ``value`` and ``slope`` (d,): how far the log likelihood and its gradient there exceed those of the sample;
    ``tilt`` (d,): how far the gradient exceeds the slope of the sample's log likelihood, which is not the sample's
    gradient, since that counts what comes after a block as well; ``total`` (C,): statistics of the whole series, as in
    ``windows.gradients.Frozen``; ``counts`` (K,): expected observations of each state.
    """

    theta: Array
    value: float
    slope: Array
    tilt: Array
    total: Array
    counts: Array


class BlockSample:
    """A sample of blocks of a long series, as an objective and as rows that windows can lie in.

    Parameters
    ----------
    y, lengths
        Rows of all blocks with their halos, and how many each has.  Blocks are equally long, except the last ones of
        sequences.
    before, after
        Rows (S,) of the halos of each block: ``halo``, or fewer where its sequence begins or ends.
    begins
        Which blocks (S,), or their halos, begin a sequence.
    weights
        How many blocks each represents (S,).
    """

    def __init__(
        self, y: Array, lengths: IntArray, before: IntArray, after: IntArray, begins: BoolArray, weights: Array
    ) -> None:
        self.rows = Series(y, lengths)
        self.halo = int(max(before.max(), after.max()))
        self.cores = self.bounds[:-1] + before, self.bounds[1:] - after
        self.origins: IntArray = np.where(begins, self.bounds[:-1], BEFORE)
        self.weights = weights
        sizes = lengths - before - after
        if (sizes[after > 0] != sizes.max()).any():
            raise ValueError("blocks must be equally long, except the last ones of sequences.")
        self.anchor: Anchor | None = None
        self.seams = 0.0  # how far messages at the ends of halos are from those of the whole series

    # ------------------------------------------------------------ an objective
    @property
    def is_exact(self) -> bool:
        return False

    def plans(self, largest: int, probabilities: bool) -> Iterator[tuple[Blocks, int]]:
        """The cores, weighted, with their halos; for probabilities cores and halos alike."""
        first, last = (self.bounds[:-1], self.bounds[1:]) if probabilities else self.cores
        weights = np.ones(len(first)) if probabilities else self.weights
        yield Blocks(first, last - first, self.origins, self.bounds[1:], weights), 0 if probabilities else self.halo

    @property
    def counts(self) -> Array | None:
        return self.anchor.counts if self.anchor else None

    def correction(self, theta: Array) -> tuple[float, Array | float]:
        if self.anchor is None:
            return 0.0, 0.0
        return self.anchor.value + float(self.anchor.tilt @ (theta - self.anchor.theta)), self.anchor.slope

    def total(self, theta: Array, statistics: Array) -> Array:
        if self.anchor is None:
            return np.asarray(statistics.sum(0))
        if not np.array_equal(self.anchor.theta, theta):
            raise ValueError("these blocks were summed at another point; freeze at theta of their anchor.")
        return self.anchor.total

    # ------------------------------------------------------------ its rows
    def __len__(self) -> int:
        return len(self.rows)

    @property
    def bounds(self) -> IntArray:
        return self.rows.bounds

    @property
    def n_sequences(self) -> int:
        return self.rows.n_sequences

    @property
    def n_columns(self) -> int:
        return self.rows.n_columns

    @property
    def n_missing(self) -> int:
        return self.rows.n_missing

    @property
    def summaries(self) -> tuple[Summary, ...]:
        return self.rows.summaries

    @property
    def in_memory(self) -> bool:
        return True

    def read(self, first: int, last: int) -> Array:
        return self.rows.read(first, last)

    def over(
        self, work: Callable[..., Any], items: Sequence[Item], threads: int | None = None, run_locally: bool = False
    ) -> list[Any]:
        return self.rows.over(work, items, threads, run_locally)


Observations = Series | BlockSample


def rows_in(series: Observations) -> Series:
    """The rows of a series, or of the blocks of a sample."""
    return series.rows if isinstance(series, BlockSample) else series


def objective_of(series: Observations) -> Objective:
    """The objective that a series, or a sample of blocks, is."""
    return series if isinstance(series, BlockSample) else WholeSeries(series)
