"""One weight a window for all components (the paper's Proposition 1)."""

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.design import Design, design
from rarehmm.model.model import Model
from rarehmm.windows.gradients import WindowSums


def single(model: Model, theta: Array, sums: WindowSums, eta: float = 0.1, *, printed: bool = False) -> Design:
    r""":math:`a_n \propto \bigl(\sum_i g_{ni}^2\bigr)^{1/2}`, the norm of the window's gradient in theta.

    The norm depends on the coordinates.  ``printed`` takes those that the paper writes: parameters as they are, and
    the entries of the transition matrix as if they were free, :math:`\partial \log p / \partial A = \xi / A`.
    """
    if printed:
        transitions = sums.pairs / model.unpack(theta).transition
        gradients = np.concatenate([part.reshape(len(part), -1) for part in (sums.scores, transitions)], axis=1)
    else:
        gradients = model.gradient_from_expectations(theta, sums.scores, sums.pairs)
    return design(np.linalg.norm(gradients, axis=1)[None], eta)
