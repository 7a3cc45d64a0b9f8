r"""Transition probabilities that depend on inputs: each row of the matrix is a softmax.

.. math:: P_{jk}(t) \propto P_{jk} \exp(z_t^\top s_{jk})

The step *into* row t uses its inputs :math:`z_t`.  The intercept is the matrix :math:`P`, which holds where all inputs
are at their means.
"""

from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray


class Regression(NamedTuple):
    """Transition probabilities whose logits are linear in inputs.

    Attributes
    ----------
    inputs
        What they depend on, as made by ``Inputs.of``.
    """

    inputs: Any

    @property
    def is_softmax(self) -> bool:
        return True

    def phases(self, K: int) -> IntArray:
        """Number of phases (K,) of each state: one."""
        return np.ones(K, dtype=np.int64)

    def matrices(self, transition: Array, slopes: Array, z: Array) -> Array:
        """Matrices (n, K, K) of the steps into rows with inputs z (n, q)."""
        K = len(transition)
        logits = z @ slopes.reshape(len(slopes), K * K)
        logits = logits.reshape(-1, K, K)
        logits -= logits.max(-1, keepdims=True)
        np.exp(logits, out=logits)
        logits *= transition
        logits /= logits.sum(-1, keepdims=True)
        return logits

    def gradient(self, matrices: Array, counts: Array, z: Array) -> tuple[Array, Array]:
        """Derivatives in the logits of the matrix at the means (K, K), and in the slopes (q, K, K)."""
        excess = counts - matrices * counts.sum(-1, keepdims=True)
        n, K, _ = excess.shape
        return excess.sum(0), (z.T @ excess.reshape(n, K * K)).reshape(-1, K, K)
