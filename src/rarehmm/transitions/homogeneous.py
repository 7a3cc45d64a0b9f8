"""A transition matrix that does not change."""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray


class Homogeneous(NamedTuple):
    """One transition matrix for every step, so that visits to a state have geometric lengths."""

    @property
    def inputs(self) -> None:
        return None

    def phases(self, K: int) -> IntArray:
        """Number of phases (K,) of each state: one."""
        return np.ones(K, dtype=np.int64)

    def matrices(self, transition: Array, slopes: Array, z: Array) -> Array:
        """Matrices (n, K, K) of n steps, all the same."""
        return np.broadcast_to(transition, (len(z), *transition.shape))

    def gradient(self, matrices: Array, counts: Array, z: Array) -> tuple[Array, Array]:
        """Derivatives in the logits of the matrix (K, K); there are no slopes."""
        counts = counts.sum(0)
        return counts - matrices[0] * counts.sum(1, keepdims=True), np.zeros((0, *counts.shape))
