"""Held-out log densities: alternate blocks of rows for fitting and scoring, the same for all candidates.

Blocks are uneven, so that no season fits them.  Every row is scored by the fit to the other half of the blocks; the
standard error of a gain is that over blocks.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.pieces import pieces, stretches
from rarehmm.data.series import Series, in_memory

BLOCKS = 24
UNEVEN = 0.6  # range of the shift of the edges of blocks, in blocks
LEAD = 50  # rows before a block that is scored, from which states are known
MOST_LAGS = 5
WHOLE = 0.5  # share of the observed rows that must have all of their lags


class Gain(NamedTuple):
    """Difference between two held-out mean log densities, and its standard error over blocks."""

    value: float
    error: float

    def exceeds(self, errors: float, least: float = 0.0) -> bool:
        """Whether the gain is larger than so many standard errors, and than ``least``."""
        return self.value > max(errors * self.error, least)


class Sample:
    """Rows of a series on which candidates are compared.

    Attributes
    ----------
    series : Series
        The rows, in memory: the whole series, or evenly spaced pieces of it.
    block : ndarray of int, (T,)
        Block of each row; rows of even blocks are scored by fits to odd ones, and the other way round.
    lags : int
        Largest number of lags that candidates may have.
    scored : ndarray of bool, (T,)
        Rows that count: observed, with as many observed rows before them as there may be lags.
    """

    def __init__(self, series: Series, size: int, count: int = 10) -> None:
        self.series = in_memory(series) if len(series) <= size else pieces(series, size, count)
        self.y = self.series.read(0, len(self.series))  # (T, D)
        self.edges = uneven_edges(len(self.y))
        self.block = np.searchsorted(self.edges[1:-1], np.arange(len(self.y)), side="right")
        seen = np.asarray(~np.isnan(self.y).any(1))
        masks = {p: with_lags(seen, self.series.bounds, p) for p in range(MOST_LAGS + 1)}
        enough = [p for p, mask in masks.items() if mask.sum() >= WHOLE * seen.sum()]
        self.lags = max(enough, default=0)
        self.scored = masks[self.lags]

    def rows_of(self, parity: int, lead: int = 0) -> tuple[Series, IntArray]:
        """Return the blocks of one parity as sequences, each after ``lead`` more rows, and the row of each row."""
        low, high = self.edges[:-1][parity::2], self.edges[1:][parity::2]
        first = np.maximum(low - lead, 0)
        rows = np.concatenate([np.arange(a, b) for a, b in zip(first, high, strict=True)])
        return stretches(self.series, first, high), rows

    def gain(self, better: Array, worse: Array) -> Gain:
        """Return the gain in mean log density, from those of the scored rows (n,) under two candidates."""
        change = np.bincount(self.block[self.scored], better - worse, BLOCKS) / len(better)
        return Gain(float(change.sum()), float(change.std(ddof=1) * np.sqrt(BLOCKS)))

    def typical_gain(self, better: Array, worse: Array) -> Gain:
        """Return the median over blocks of the gain in mean log density, and its standard error.

        Gains of blocks that one fit scores have a median of their own: where events are few, the fits may differ.
        """
        block = self.block[self.scored]
        count = np.bincount(block, minlength=BLOCKS)
        each = np.where(count > 0, np.bincount(block, better - worse, BLOCKS) / np.maximum(count, 1), np.nan)
        middles = [float(np.nanmedian(each[parity::2])) for parity in (0, 1)]
        away = np.abs(each - np.tile(middles, BLOCKS // 2))
        spread = 1.4826 * float(np.nanmedian(away))
        return Gain(float(np.mean(middles)), float(np.sqrt(np.pi / 2 / (count > 0).sum())) * spread)


def uneven_edges(T: int) -> IntArray:
    """Return the first rows of blocks of T rows, and T."""
    shift = UNEVEN * ((np.arange(1, BLOCKS) * (np.sqrt(5) - 1) / 2) % 1 - 0.5)
    inner = (np.arange(1, BLOCKS) + shift) * T / BLOCKS
    return np.concatenate([[0], inner, [T]]).astype(np.int64)


def with_lags(seen: BoolArray, bounds: IntArray, p: int) -> BoolArray:
    """Return which rows are seen, as are the p rows before them in their sequence."""
    out = seen.copy()
    for m in range(1, p + 1):
        out[m:] &= seen[:-m]
        for first in bounds[:-1]:
            out[first : first + m] = False
    return out
