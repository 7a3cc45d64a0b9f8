r"""The design of the default sampler: windows are drawn by what their control variate leaves to chance."""

import numpy as np

from rarehmm.engine.contracts.design import Design, design
from rarehmm.windows.information import WindowInformation


def pilot(info: WindowInformation, *, eta: float = 0.1) -> Design:
    r"""Weights :math:`a_n \propto \bigl(\sum_r |L^\top \Delta_n(\theta_r)|^2\bigr)^{1/2}` at pilot points
    :math:`\theta_r`, with :math:`\Delta_n` the window's gradient beyond its control variate.

    Parameters
    ----------
    info : WindowInformation
        What each window says; its ``whitened_changes`` are used (``WindowInformation.around`` draws the pilot points).
    eta : float, default 0.1
        Uniform share.

    Returns
    -------
    Design
        One row.
    """
    if len(info.points) == 0:
        raise ValueError("the pilot design looks at windows at points near theta, and none are given; use "
                         "WindowInformation.around(rng, mode, series, windows).")  # fmt: skip
    total = np.zeros(info.count)
    for each in info.whitened_changes():
        total += (each**2).sum(1)
    return design(np.sqrt(total)[None], eta)
