r"""The design of the default sampler: windows are drawn by what their control variate leaves to chance."""

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.engine.contracts.design import Design, design
from rarehmm.search.mode import Mode
from rarehmm.windows.gradients import Frozen, control_variate_residuals
from rarehmm.windows.windows import Windows


def pilot(
    rng: np.random.Generator,
    mode: Mode,
    series: Series,
    windows: Windows,
    frozen: Frozen,
    *,
    points: int = 4,
    eta: float = 0.1,
    threads: int | None = None,
) -> Design:
    r"""One row, :math:`a_n \propto \bigl(\sum_r |L^\top \Delta_n(\theta_r)|^2\bigr)^{1/2}` at pilot points
    :math:`\theta_r = \hat\theta + L z_r`, with :math:`\Delta_n` the window's gradient beyond its control variate."""
    total = np.zeros(windows.count)
    for _ in range(points):
        total += (whitened_changes(rng, mode, series, windows, frozen, threads) ** 2).sum(1)
    return design(np.sqrt(total)[None], eta)


def whitened_changes(
    rng: np.random.Generator, mode: Mode, series: Series, windows: Windows, frozen: Frozen, threads: int | None = None
) -> Array:
    """L' Delta_n (N, d) at a draw of the Laplace approximation."""
    theta = mode.theta + mode.factor @ rng.standard_normal(len(mode.theta))
    return control_variate_residuals(mode.model, theta, series, windows, frozen, threads=threads) @ mode.factor


def noise_of_one_window(whitened: Array, found: Design) -> Array:
    r"""Covariance (d, d) of the whitened estimate from one window:
    :math:`\sum_n \Delta_n \Delta_n^\top / q_n - (\sum \Delta_n)(\sum \Delta_n)^\top`."""
    q = found.probabilities[0]
    total = whitened.sum(0)
    return np.asarray((whitened / q[:, None]).T @ whitened - np.outer(total, total))
