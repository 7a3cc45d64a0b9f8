"""One row of weights for each component, as printed in the paper: Table 1 and section 3.1.

The printed table is the generic formula |window score| for three families, and is not coded case by case.  These
weights degrade away from the mode; ``targeted`` is the safe form.
"""

import numpy as np

from rarehmm.engine.contracts.design import Design, design
from rarehmm.windows.information import WindowInformation


def printed(info: WindowInformation, *, eta: float = 0.1, second_variance: bool = False) -> Design:
    r"""Emissions :math:`|\sum_{t \in C_n} \nabla_i \log p(Y_t \mid x_t)|`; transitions :math:`\xi_{njk}`.

    Parameters
    ----------
    info : WindowInformation
        What each window says; its ``sums`` are used.
    eta : float, default 0.1
        Uniform share.
    second_variance : bool, default False
        Take the other weight of a variance that section 3.1 prints, :math:`c (s^2 + S_n^2)^{1/2}`.

    Returns
    -------
    Design
        One row for each component of theta.
    """
    model, sums = info.model, info.sums
    weights = np.abs(np.swapaxes(sums.scores, 1, 2))  # (N, P, K)
    if second_variance:
        names = [p.name for p in model.family.parameters]
        if names != ["mean", "variance"]:
            raise ValueError(f"the second weight of a variance is for Gaussian emissions, not for {model.name}.")
        s2, c = model.unpack(info.theta).phi[:, 1], sums.counts
        around = s2 + np.divide(2 * s2**2 * sums.scores[:, :, 1], c, out=np.zeros(c.shape), where=c > 0)  # S_n^2
        weights[:, 1, :] = c * np.sqrt(np.maximum(s2 + around, 0.0))
    emission = weights.reshape(len(weights), -1).T
    rows, columns = model.coordinates.free(model.n_states)
    return design(np.concatenate([emission, sums.pairs[:, rows, columns].T])[model.free], eta)
