"""Drawn: blocks of a longer series, in memory, with weights.  They stand for all of it.

Each block is read with a halo on both sides, in which messages become what they would be within the whole series; sums
go over its core.  Weighted by how many blocks each speaks for, sums over blocks estimate those over the whole series.
What was summed exactly at one point, the anchor, corrects them: there they are right, near it nearly so.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.exact.blocks import Blocks

BEFORE = -(1 << 40)  # where a sequence begins of which a block is not the first


class Anchor(NamedTuple):
    """A point ``theta`` (d,) at which all of the series was summed.

    ``value`` and ``slope`` (d,): what the log likelihood and its gradient there are beyond those of the drawn blocks;
    ``tilt`` (d,): what the gradient is beyond the slope of the log likelihood of the blocks, which is not their
    gradient: that counts what comes after a block as well; ``total`` (C,): statistics of the whole series, as in
    ``gradients.Frozen``; ``counts`` (K,): its expected observations of each state.
    """

    theta: Array
    value: float
    slope: Array
    tilt: Array
    total: Array
    counts: Array


class BlockSample(Series):
    """Blocks of a series as the sequences of a smaller one.

    Parameters
    ----------
    y, lengths
        Rows of all blocks with their halos, and how many of each.  Blocks are equally long, but for the last ones of
        sequences.
    before, after
        Rows (S,) of the halos of each block: ``halo``, or fewer where its sequence begins or ends.
    begins
        With which blocks (S,), or their halos, a sequence begins.
    weights
        (S,) of how many blocks each speaks.
    """

    def __init__(
        self, y: Array, lengths: IntArray, before: IntArray, after: IntArray, begins: BoolArray, weights: Array
    ) -> None:
        super().__init__(y, lengths)
        self.halo = int(max(before.max(), after.max()))
        self._cores = self.bounds[:-1] + before, self.bounds[1:] - after
        self._origins = np.where(begins, self.bounds[:-1], BEFORE)
        self._weights = weights
        sizes = lengths - before - after
        if (sizes[after > 0] != sizes.max()).any():
            raise ValueError("blocks must be equally long, but for the last ones of sequences.")
        self.anchor: Anchor | None = None
        self.seams = 0.0  # how far messages at the ends of halos are from those of the whole series

    @property
    def cores(self) -> tuple[IntArray, IntArray]:
        return self._cores

    @property
    def origins(self) -> IntArray:
        return self._origins

    @property
    def weights(self) -> Array:
        return self._weights

    def blocks(self, whole: bool = False) -> Blocks:
        """The cores, weighted; or (``whole``) cores and halos, unweighted."""
        first, last = (self.bounds[:-1], self.bounds[1:]) if whole else self.cores
        weights = np.ones(self.n_sequences) if whole else self.weights
        return Blocks(first, last - first, self.origins, self.bounds[1:], weights)
