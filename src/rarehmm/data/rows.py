"""Rows: a stretch of a series with its inputs, its clock and its known states."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray


class Rows(NamedTuple):
    """Consecutive rows of a series, and what is known about each of them.

    Attributes
    ----------
    y : ndarray, (n, D)
        Observations; NaN is missing.
    exog : ndarray, (n, m)
        The user's input columns; m is 0 without any.
    clock : ndarray, (n,)
        Seconds since 1970-01-01 in local wall time or, without times, row numbers within each sequence.
    states : ndarray of int, (n,) or (0,)
        Known states, -1 where unknown; empty if no states are known.
    """

    y: Array
    exog: Array
    clock: Array
    states: IntArray

    def at(self, which: slice | IntArray) -> "Rows":
        """Return some of the rows."""
        states = self.states[which] if len(self.states) > 0 else self.states
        return Rows(self.y[which], self.exog[which], self.clock[which], states)


def assemble(has_exog: bool, has_states: bool, y: Array, clock: Array, *more: Array) -> Rows:
    """Return ``Rows`` made of tables (n, D), (n, 1) and, in this order, those of inputs and of known states."""
    left = list(more)
    exog = left.pop(0) if has_exog else np.empty((len(y), 0))
    return Rows(y, exog, clock[:, 0], as_states(left.pop(0)) if has_states else np.empty(0, np.int64))


def as_states(values: Array) -> IntArray:
    """Return known states (n,) from a column (n, 1) in which NaN stands for unknown."""
    column = values[:, 0]
    return np.where(np.isnan(column), -1.0, column).astype(np.int64)


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several stretches as one."""
    return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
