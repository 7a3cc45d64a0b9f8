r"""Mode: where the posterior is largest, and how it curves there.

EM finds the hill, Newton's method its top: the Hessian is needed anyway, as the metric of the sampler.
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from rarehmm.em import Climb, bounded, climb, has_m_step
from rarehmm.initial import find_states
from rarehmm.model import Model, Parameters
from rarehmm.passes import log_posterior
from rarehmm.series import Array, Series

CLOSE = 1e-3  # whitened gradient below which a point is the mode


class Mode(NamedTuple):
    """The mode ``theta`` (d,) of a model whose log ratios refer to the largest entry of each row.

    ``hessian`` (d, d) is that of the negative log posterior; ``factor`` (d, d) the Cholesky factor of its inverse, so
    that ``theta + factor @ z`` with standard normal z is a draw of the Laplace approximation; ``curved`` whether the
    Hessian was positive definite (else the factor is made of its diagonal); ``others`` modes of nearly the same height.
    """

    model: Model
    theta: Array
    log_posterior: float
    hessian: Array
    factor: Array
    curved: bool
    others: list[Climb]


def find_mode(
    model: Model, series: Series, start: Parameters | None = None, *, threads: int | None = None, steps: int = 100
) -> Mode:
    """The mode near ``start``, or out of the data alone: states are then found by ``find_states``."""
    others: list[Climb] = []
    if start is None:
        best, *others = find_states(model, series, threads=threads)
        start = best.parameters
    if has_m_step(model):
        start = climb(model, series, start, steps=steps, tolerance=1e-2, threads=threads).parameters
    model = model.with_reference(start.transition)
    theta, value = polish(model, series, model.pack(bounded(start)), threads)
    hessian = negative_hessian(model, series, theta, threads)
    for _ in range(5):  # Newton's method, with the same Hessian
        factor, curved = metric(hessian)
        slope = log_posterior(model, theta, series, threads=threads)[1]
        if np.abs(factor.T @ slope).max() < CLOSE:
            break
        further = theta + factor @ (factor.T @ slope)
        higher = log_posterior(model, further, series, threads=threads)[0]
        if not higher > value:
            break
        theta, value = further, higher
    return Mode(model, theta, value, hessian, factor, curved, [c for c in others if is_other(c, model, theta, value)])


def polish(model: Model, series: Series, theta: Array, threads: int | None) -> tuple[Array, float]:
    """A point higher up by L-BFGS, if EM has stopped short of the mode or there is no EM."""

    def down(x: Array) -> tuple[float, Array]:
        try:
            value, slope = log_posterior(model, x, series, threads=threads)
        except ValueError:  # out of bounds
            return np.inf, np.zeros(len(x))
        return -value, -slope

    value, _ = down(theta)
    if has_m_step(model):
        return theta, -value
    found = minimize(down, theta, jac=True, method="L-BFGS-B", options={"maxiter": 300})
    if found.fun > value:
        warnings.warn("L-BFGS did not rise above its start.", RuntimeWarning, stacklevel=3)
        return theta, -value
    return found.x, -float(found.fun)


def negative_hessian(model: Model, series: Series, theta: Array, threads: int | None = None) -> Array:
    """Hessian (d, d) of the negative log posterior by central differences of its gradient."""
    d = len(theta)
    out = np.empty((d, d))
    for i in range(d):
        move = np.zeros(d)
        move[i] = 1e-4 * max(1.0, abs(theta[i]))
        up, down = (log_posterior(model, theta + side * move, series, threads=threads)[1] for side in (1, -1))
        out[i] = (down - up) / (2 * move[i])
    return (out + out.T) / 2


def metric(hessian: Array) -> tuple[Array, bool]:
    """Cholesky factor of the inverse of a Hessian, and whether it was positive definite (else of its diagonal)."""
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    try:
        inverse = np.linalg.inv(scale[:, None] * hessian * scale)
        np.linalg.cholesky(scale[:, None] * hessian * scale)
        return scale[:, None] * np.linalg.cholesky((inverse + inverse.T) / 2), True
    except np.linalg.LinAlgError:
        return np.diag(scale), False


def is_other(candidate: Climb, model: Model, theta: Array, value: float) -> bool:
    """Whether a climb ended at another mode, not a renaming of states, within 10 of the log posterior."""
    if value - candidate.log_posterior > 10:
        return False
    here, there = (p.phi[np.argsort(p.phi[:, 0])] for p in (model.unpack(theta), candidate.parameters))
    scale = np.abs(here).max(0) + here.std(0)
    return bool((np.abs(here - there) > 0.05 * scale).any())
