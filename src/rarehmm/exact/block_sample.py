"""Objectives: what a log posterior is computed from, a whole series or a sample of blocks that represents a longer one.

The blocks of a sample are in memory, each with a halo on both sides over which messages converge to those of the whole
series; sums run over the core of each block.  Weighted by the number of blocks that each represents, sums over blocks
estimate those over the whole series.  An exact pass at one point, the anchor, corrects them: they are exact there, and
nearly so close to it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.data.workers import Item
from rarehmm.exact.blocks import Blocks, even_size, split

HALOS = (32, 128, 512)  # lengths to try, in this order
BEFORE = -(1 << 40)  # nominal start of the sequence of a block that does not begin one, less the number of the block


class Objective(Protocol):
    """How the log posterior of a whole series follows from sums over rows."""

    @property
    def is_exact(self) -> bool:
        """Whether sums over the rows are those of the whole series."""
        ...

    def plans(self, largest: int, probabilities: bool) -> Iterator[tuple[Blocks, int]]:
        """Blocks of about ``largest`` rows with longer and longer halos, to be tried until messages agree at the seams.

        ``probabilities`` says whether all rows are wanted, or only sums over cores.
        """
        ...

    @property
    def counts(self) -> Array | None:
        """Expected number of observations (K,) in each state of the whole series, where known in advance."""
        ...

    def correction(self, theta: Array) -> tuple[float, Array | float]:
        """Terms to add at theta (d,) to the log likelihood of the rows and to its gradient."""
        ...

    def total(self, theta: Array, statistics: Array) -> Array:
        """Statistics (C,) of the whole series at theta, from those (N, C) of all windows."""
        ...


class WholeSeries(NamedTuple):
    """Objective of a series that is summed in full."""

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
    """Point ``theta`` (d,) at which the whole series was summed.

    ``value`` and ``slope`` (d,): excess of the log likelihood and its gradient there over those of the sample;
    ``tilt`` (d,): excess of the gradient over the derivative of the sample's log likelihood, which is not the sample's
    gradient, since the latter also counts what follows a block; ``total`` (C,): statistics of the whole series, as in
    ``windows.gradients.Frozen``; ``counts`` (K,): expected number of observations in each state.

    With ``bend`` and ``curve`` (d, d), curvature is exact as well: what is missing from the second derivative of the
    sample's log likelihood, and from the derivative of the sample's gradient.
    """

    theta: Array
    value: float
    slope: Array
    tilt: Array
    total: Array
    counts: Array
    bend: Array | None = None
    curve: Array | None = None


class BlockSample:
    """Sample of blocks of a long series, both an objective and rows from which windows can be drawn.

    Parameters
    ----------
    rows
        Rows of all blocks with their halos: a sequence for each.  Blocks have the same length, except the last ones of
        sequences.
    before, after
        Rows (S,) before and after each block: its halo and, before that, ``reach`` rows of which only lags are taken;
        fewer where its sequence begins or ends.
    begins
        Mask (S,) of the blocks that, with their halos, begin a sequence.
    weights
        Number of blocks that each represents (S,).
    """

    def __init__(
        self, rows: Series, before: IntArray, after: IntArray, begins: BoolArray, weights: Array, reach: int = 0
    ) -> None:
        self.rows = rows
        self.halo = int(max(before.max() - reach, after.max()))
        self.cores = self.bounds[:-1] + before, self.bounds[1:] - after
        self.origins: IntArray = np.where(begins, self.bounds[:-1], BEFORE - np.arange(len(before)))
        self.weights = weights
        sizes = np.diff(self.bounds) - before - after
        if (sizes[after > 0] != sizes.max()).any():
            raise ValueError("blocks must have the same length, except the last ones of sequences.")
        self.anchor: Anchor | None = None
        self.seams = 0.0  # distance of messages at the ends of halos from those of the whole series

    # ------------------------------------------------------------ an objective
    @property
    def is_exact(self) -> bool:
        return False

    def plans(self, largest: int, probabilities: bool) -> Iterator[tuple[Blocks, int]]:
        """The cores, weighted, with their halos; for probabilities, cores and halos together."""
        first, last = (self.bounds[:-1], self.bounds[1:]) if probabilities else self.cores
        weights = np.ones(len(first)) if probabilities else self.weights
        yield Blocks(first, last - first, self.origins, self.bounds[1:], weights), 0 if probabilities else self.halo

    @property
    def counts(self) -> Array | None:
        return self.anchor.counts if self.anchor else None

    def correction(self, theta: Array) -> tuple[float, Array | float]:
        if self.anchor is None:
            return 0.0, 0.0
        to = theta - self.anchor.theta
        value, slope = self.anchor.value + float(self.anchor.tilt @ to), self.anchor.slope
        if self.anchor.bend is None or self.anchor.curve is None:
            return value, slope
        return value + float(to @ self.anchor.bend @ to) / 2, slope + self.anchor.curve @ to

    def total(self, theta: Array, statistics: Array) -> Array:
        if self.anchor is None:
            return np.asarray(statistics.sum(0))
        if not np.array_equal(self.anchor.theta, theta):
            raise ValueError("these blocks were summed at another point; freeze at the theta of their anchor.")
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
    """Rows of a series, or of the blocks of a sample."""
    return series.rows if isinstance(series, BlockSample) else series


def objective_of(series: Observations) -> Objective:
    """Objective that corresponds to a series or a sample of blocks."""
    return series if isinstance(series, BlockSample) else WholeSeries(series)
