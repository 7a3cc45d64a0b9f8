"""One weight per window for all components (the paper's Proposition 1)."""

import numpy as np

from rarehmm.engine.contracts.design import Design, design
from rarehmm.windows.information import WindowInformation


def single(info: WindowInformation, *, eta: float = 0.1, printed: bool = False) -> Design:
    r""":math:`a_n \propto \bigl(\sum_i g_{ni}^2\bigr)^{1/2}`, the norm of the window's gradient in theta.

    Parameters
    ----------
    info : WindowInformation
        What each window says; its ``sums`` are used.
    eta : float, default 0.1
        Uniform share.
    printed : bool, default False
        The norm depends on the coordinates.  True takes those that the paper writes: parameters as they are, and the
        entries of the transition matrix as if they were free, :math:`\partial \log p / \partial A = \xi / A`.

    Returns
    -------
    Design
        One row.
    """
    model, theta, sums = info.model, info.theta, info.sums
    if printed:
        transitions = sums.pairs / model.unpack(theta).transition
        gradients = np.concatenate([part.reshape(len(part), -1) for part in (sums.scores, transitions)], axis=1)
    else:
        gradients = model.gradient_from_expectations(theta, sums.scores, sums.pairs)
    return design(np.linalg.norm(gradients, axis=1)[None], eta)
