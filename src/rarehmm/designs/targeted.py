"""One row of weights for each component, by counts (the paper's Corollary 1, made safe away from the mode).

The printed weights of a mean vanish for a window whose own mean is the overall one, although its gradient does not once
theta has moved.  Counts do not, and it is they that reproduce the paper's table.
"""

import numpy as np

from rarehmm.engine.contracts.design import Design, design
from rarehmm.windows.information import WindowInformation


def targeted(info: WindowInformation, *, eta: float = 0.1) -> Design:
    r"""For parameters of state k its count :math:`c_{nk}`; for transitions :math:`\xi_{njk} + P_{jk} n_{nj}`.

    Parameters
    ----------
    info : WindowInformation
        What each window says; its ``sums`` are used.
    eta : float, default 0.1
        Uniform share.

    Returns
    -------
    Design
        One row for each component of theta.
    """
    model, sums = info.model, info.sums
    P = len(model.family.parameters)
    transition = model.unpack(info.theta).transition
    emission = np.tile(sums.counts.T, (P, 1))  # (P K, N), all states of the first parameter first
    pairs = sums.pairs + transition * sums.pairs.sum(-1, keepdims=True)
    rows, columns = model.coordinates.free(model.n_states)
    return design(np.concatenate([emission, pairs[:, rows, columns].T])[model.free], eta)
