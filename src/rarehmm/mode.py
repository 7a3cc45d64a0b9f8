r"""Mode: where the posterior is largest, and how it curves there.

EM finds the hill, Newton's method its top: the Hessian is needed anyway, as the metric of the sampler.
"""

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import OptimizeResult, minimize

from rarehmm.em import Climb, bounded, climb, has_m_step, rows
from rarehmm.initial import distance, find_states
from rarehmm.model import Model, Parameters
from rarehmm.passes import log_posterior
from rarehmm.progress import Watch, silent
from rarehmm.series import Array, BoolArray, IntArray, Series

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
    model: Model,
    series: Series,
    start: Parameters | None = None,
    *,
    threads: int | None = None,
    steps: int = 100,
    watch: Watch = silent,
) -> Mode:
    """The mode near ``start``, or out of the data alone: states are then found by ``find_states``."""
    others: list[Climb] = []
    if start is None:
        watch("finding states", 0, 0)
        best, *others = find_states(model, series, threads=threads)
        start = best.parameters
    if has_m_step(model):
        told = partial(told_of_climb, watch, steps)
        start = climb(model, series, start, steps=steps, tolerance=1e-2, threads=threads, watch=told).parameters
    model = model.with_reference(start.transition)
    watch("the mode", 0, 0)
    theta, value = polish(model, series, model.pack(bounded(start)), threads)
    hessian = negative_hessian(model, series, theta, threads)
    factor, curved = metric(hessian)
    theta, value = newton(model, series, theta, value, factor, threads)
    mode = Mode(model, theta, value, hessian, factor, curved, [])
    return mode._replace(others=[c for c in others if is_other(mode, series, c, threads)])


def told_of_climb(watch: Watch, steps: int, step: int, _: float) -> None:
    watch("climbing to the mode", step, steps)


def naming(mode: Mode) -> tuple[int, IntArray]:
    """The parameter that tells the states of a mode apart best, by gaps in standard deviations, and their order by it.

    The posterior does not change when states are renamed; the half (sixth, ...) of it in which they have this order is
    all there is to know.  States that something known tells apart keep their names.
    """
    model, K = mode.model, mode.model.n_states
    values, spread = model.spread(mode.theta), np.zeros(len(model.vector))
    spread[model.free] = np.linalg.norm(mode.factor, axis=1)
    best, gap = 0, -1.0
    for i in range(len(model.family.parameters)):
        mine = slice(i * K, (i + 1) * K)
        order = by_value(model, values[mine])
        x, sd = values[mine][order], spread[mine][order]
        least = min(least_gap(x[group], sd[group]) for group in model.alike)
        if least > gap:
            best, gap = i, least
    return best, by_value(model, values[best * K : (best + 1) * K])


def least_gap(x: Array, sd: Array) -> float:
    """The smallest of the gaps between ascending values, in standard deviations."""
    gaps = np.diff(x) / np.maximum(np.hypot(sd[1:], sd[:-1]), 1e-300)
    return float(gaps.min(initial=np.inf))


def by_value(model: Model, values: Array) -> IntArray:
    """States (K,) in ascending order of their values, among those that may change their names."""
    order = np.arange(model.n_states)
    for group in model.alike:
        order[group] = group[np.argsort(values[group])]
    return order


def has_names(mode: Mode, theta: Array) -> BoolArray:
    """Which of the points theta (n, d) have their states named as at the mode; all, where names matter."""
    i, order = naming(mode)
    K = mode.model.n_states
    values = mode.model.spread(theta)[:, i * K : (i + 1) * K]
    ordered = [(np.diff(values[:, order[group]], axis=1) >= 0).all(1) for group in mode.model.alike]
    return np.asarray(np.all(ordered, axis=0))


def renamed(mode: Mode, theta: Array) -> Array:
    """Draws theta (n, d) with their states named as at the mode (``naming``); where names matter, as they are."""
    i, order = naming(mode)
    K = mode.model.n_states
    values = mode.model.spread(theta)[:, i * K : (i + 1) * K]
    theta = theta.copy()
    for n in np.nonzero(~has_names(mode, theta))[0]:
        phi, transition = mode.model.unpack_all(theta[n])
        new = np.empty(K, dtype=np.int64)
        new[order] = by_value(mode.model, values[n])
        theta[n] = mode.model.pack_all(phi[new], transition[np.ix_(new, new)])
    return theta


def newton(
    model: Model, series: Series, theta: Array, value: float, factor: Array, threads: int | None, steps: int = 5
) -> tuple[Array, float]:
    """Higher up by Newton steps with one metric, as long as they rise; the point and its log posterior."""
    for _ in range(steps):
        slope = factor.T @ log_posterior(model, theta, series, threads=threads)[1]
        if np.abs(slope).max() < CLOSE:
            break
        further = theta + factor @ (slope / max(1.0, float(np.abs(slope).max())))
        higher = log_posterior(model, further, series, threads=threads)[0]
        if not higher > value:
            break
        theta, value = further, higher
    return theta, value


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
    trace = [value]

    def risen(intermediate_result: OptimizeResult) -> None:  # the name is SciPy's
        trace.append(float(intermediate_result.fun))

    found = minimize(down, theta, jac=True, method="L-BFGS-B", options={"maxiter": 300}, callback=risen)
    if (np.diff(trace) > 1e-9 * abs(value)).any():
        warnings.warn(
            f"L-BFGS fell by {np.diff(trace).max():.3g} in step {int(np.argmax(np.diff(trace)))}: the density or score "
            "of the family may be wrong.",
            RuntimeWarning,
            stacklevel=3,
        )
    return (found.x, -float(found.fun)) if found.fun <= value else (theta, -value)


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


def is_other(mode: Mode, series: Series, candidate: Climb, threads: int | None = None) -> bool:
    """Whether a climb ended at another mode within 10 of the log posterior: not on its way to this one, however slowly,
    and no renaming of its states."""
    if mode.log_posterior - candidate.log_posterior > 10:
        return False
    there = candidate.parameters
    order = distance(mode.model, mode.model.unpack(mode.theta), there)[1]
    if not mode.model.exchangeable:
        order = np.arange(mode.model.n_states)
    renamed = mode.model.natural(there.phi[order], rows(there.transition)[np.ix_(order, order)])
    theta = mode.model.pack(renamed)
    theta, _ = newton(mode.model, series, theta, candidate.log_posterior - 1e-6, mode.factor, threads, 20)
    return bool(np.linalg.norm(solve_triangular(mode.factor, theta - mode.theta, lower=True)) > 1)
