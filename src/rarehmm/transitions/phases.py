"""States whose visits have a minimum length: a state is several phases, passed one after the other."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray

MOST = 1000  # phases of all states


class Phases(NamedTuple):
    r"""States of several phases, so that visits do not have geometric lengths.

    Each phase of state k is left with probability :math:`1 - P_{kk}` for the next one, and the last for another state.
    A visit lasts at least :math:`r_k` steps; its length has a negative binomial distribution.

    Attributes
    ----------
    lengths
        Number of phases :math:`r_k` of each state.
    """

    lengths: tuple[int, ...]

    @property
    def inputs(self) -> None:
        return None

    def phases(self, K: int) -> IntArray:
        """Number of phases (K,) of each state."""
        if not isinstance(self.lengths, Sequence | np.ndarray):
            raise TypeError(
                f"lengths is {self.lengths!r}; pass the number of phases of each state, such as "
                f"({', '.join([repr(self.lengths)] * K)})."
            )
        if len(self.lengths) != K:
            raise ValueError(f"lengths is {self.lengths}; give the number of phases of each of the {K} states.")
        for k, r in enumerate(self.lengths):
            if isinstance(r, bool) or not isinstance(r, int | np.integer) or r < 1:
                raise ValueError(f"lengths[{k}] is {r!r}; the number of phases must be a whole number, at least 1.")
        if K == 1 and self.lengths[0] > 1:
            raise ValueError(
                f"lengths is {self.lengths}, and a single state is never left, so that its visits have no lengths; use "
                "Homogeneous(), or more states."
            )
        if sum(self.lengths) > MOST:
            raise ValueError(
                f"lengths is {self.lengths}, {sum(self.lengths):,} phases in all; at most {MOST:,} are supported, "
                "since each is a state of the chain. Use fewer, or longer steps of time."
            )
        return np.array(self.lengths, dtype=np.int64)

    def matrices(self, transition: Array, slopes: Array, z: Array) -> Array:
        """Matrices (n, K, K) of n steps, all the same."""
        return np.broadcast_to(transition, (len(z), *transition.shape))

    def gradient(self, matrices: Array, counts: Array, z: Array) -> tuple[Array, Array]:
        """Derivatives in the logits of the matrix (K, K); there are no slopes."""
        counts = counts.sum(0)
        return counts - matrices[0] * counts.sum(1, keepdims=True), np.zeros((0, *counts.shape))
