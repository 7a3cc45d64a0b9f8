r"""Mode: where the posterior is largest, and how it curves there.

EM finds the hill, Newton's method its top: the Hessian is needed anyway, as the metric of the sampler.
"""

import warnings
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import linear_sum_assignment

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.progress import OnProgress, silent
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.exact.em import Climb, climb, descend, has_m_step, normalised_rows, with_positive_transitions
from rarehmm.exact.passes import log_posterior
from rarehmm.model.model import Model
from rarehmm.model.named_priors import scaled_summaries
from rarehmm.model.parameters import Parameters
from rarehmm.model.priors import Normal, location
from rarehmm.search.initial import find_states

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
    series: Observations,
    start: Parameters | None = None,
    *,
    threads: int | None = None,
    steps: int = 100,
    on_progress: OnProgress = silent,
) -> Mode:
    """The mode near ``start``, or out of the data alone: states are then found by ``find_states``."""
    others: list[Climb] = []
    if model.size == 0:  # everything is known
        none = np.zeros((0, 0))
        return Mode(model, np.zeros(0), log_posterior(model, np.zeros(0), series)[0], none, none, True, [])
    if start is None:
        on_progress("finding states", 0, 0)
        best, *others = find_states(model, rows_in(series), threads=threads)
        start = best.parameters
    if has_m_step(model):
        report = partial(climb_progress, on_progress, steps)
        start = climb(model, series, start, steps=steps, tolerance=1e-2, threads=threads, on_progress=report).parameters
    model = model.with_reference(start.transition)
    on_progress("the mode", 0, 0)
    theta, value = polish(model, series, model.pack(with_positive_transitions(start)), threads)
    hessian = negative_hessian(model, series, theta, threads)
    factor, curved = metric(hessian)
    theta, value = newton(model, series, theta, value, factor, threads)
    mode = Mode(model, theta, value, hessian, factor, curved, [])
    return mode._replace(others=[c for c in others if is_other(mode, series, c, threads)])


def climb_progress(on_progress: OnProgress, steps: int, step: int, _: float) -> None:
    on_progress("climbing to the mode", step, steps)


# ---------------------------------------------------------------- names and order of states
def naming(mode: Mode) -> tuple[int, IntArray]:
    """The parameter that tells the states of a mode apart best, by gaps in standard deviations, and their order by it.

    States that something known tells apart keep their places.
    """
    model, K = mode.model, mode.model.n_states
    values, spread = components(mode)
    best, gap = 0, -1.0
    for i in range(len(model.family.parameters)):
        order = by_value(model, values[i])
        x, sd = values[i][order], spread[i][order]
        least = min(least_gap(x[group], sd[group]) for group in model.exchangeable_groups)
        if least > gap:
            best, gap = i, least
    return best, by_value(model, values[best]) if K > 1 else np.zeros(1, dtype=np.int64)


def components(mode: Mode) -> tuple[Array, Array]:
    """Emission parameters (P, K) of a mode, as they are sampled, and their standard deviations, 0 where known."""
    model, K = mode.model, mode.model.n_states
    spread = np.zeros(len(model.vector))
    spread[model.free] = np.linalg.norm(mode.factor, axis=1)
    size = K * len(model.family.parameters)
    return model.with_fixed(mode.theta)[:size].reshape(-1, K), spread[:size].reshape(-1, K)


def least_gap(x: Array, sd: Array) -> float:
    """The smallest of the gaps between ascending values, in standard deviations."""
    gaps = np.diff(x) / np.maximum(np.hypot(sd[1:], sd[:-1]), 1e-300)
    return float(gaps.min(initial=np.inf))


def by_value(model: Model, values: Array) -> IntArray:
    """States (K,) in ascending order of their values, among those that may change their names."""
    order = np.arange(model.n_states)
    for group in model.exchangeable_groups:
        order[group] = group[np.argsort(values[group])]
    return order


def in_order(mode: Mode) -> Mode:
    """The same mode with its states in the order of ``naming``."""
    order = naming(mode)[1]
    model, K = mode.model, mode.model.n_states
    if np.array_equal(order, np.arange(K)):
        return mode
    new = replace(model, coordinates=model.coordinates.reordered(order))
    at = {name: i for i, name in enumerate(places(model))}
    # the new component (i, k) of an emission is the old one of state order[k]; so for both states of a transition
    from_old = [at[kind, order[j] if kind == "row" else j, int(order[k])] for kind, j, k in places(new)]
    hessian = mode.hessian[np.ix_(from_old, from_old)]
    factor, curved = metric(hessian)
    return mode._replace(model=new, theta=mode.theta[from_old], hessian=hessian, factor=factor, curved=curved)


def places(model: Model) -> list[tuple[str, int, int]]:
    """What each component of theta is: ("phi", parameter, state) or ("row", from, to)."""
    K, P = model.n_states, len(model.family.parameters)
    every = [("phi", i, k) for i in range(P) for k in range(K)]
    every += [("row", int(j), int(k)) for j, k in zip(*model.coordinates.free(K), strict=True)]
    return [every[i] for i in model.free]


def names(mode: Mode, theta: Array) -> IntArray:
    r"""For each of the points theta (n, d), which of its states (n, K) is most like each state of the mode.

    The assignment that minimises :math:`\sum_k \sum_i (x_{ij} - m_{ik})^2 / s_{ik}^2` over the emission parameters: a
    state that is known badly may wander past another one without taking its name.
    """
    model, K = mode.model, mode.model.n_states
    centre, spread = components(mode)
    x = model.with_fixed(theta)[:, : centre.size].reshape(-1, *centre.shape)  # (n, P, K)
    scale = np.where(spread > 0, spread, 1.0)
    far = (((x[..., :, None] - centre[:, None, :]) / scale[:, None, :]) ** 2).sum(1)  # (n, of the point, of the mode)
    out = np.tile(np.arange(K), (len(x), 1))
    for group in model.exchangeable_groups:
        mine = far[:, group[:, None], group]
        clear = (mine.argmin(1) == np.arange(len(group))).all(1)
        for n in np.nonzero(~clear)[0]:
            rows, columns = linear_sum_assignment(mine[n])
            out[n, group[columns]] = group[rows]
    return out


def has_names(mode: Mode, theta: Array) -> BoolArray:
    """Which of the points theta (n, d) have their states named as at the mode; all, where names matter.

    The posterior does not change when states are renamed; the half (sixth, ...) of it that has these names is all there
    is to know.
    """
    return np.asarray((names(mode, theta) == np.arange(mode.model.n_states)).all(1))


def renamed(mode: Mode, theta: Array) -> Array:
    """Draws theta (n, d) with their states named as at the mode; where names matter, as they are."""
    order = names(mode, theta)
    moves = (order != np.arange(mode.model.n_states)).any(1)
    theta = theta.copy()
    theta[moves] = mode.model.pack_all(*reordered(*mode.model.unpack_all(theta[moves]), order[moves]))
    return theta


def reordered(phi: Array, transition: Array, order: IntArray) -> tuple[Array, Array]:
    """Parameters (..., K, P) and matrices (..., K, K) with state k what state order[..., k] was."""
    rows = np.take_along_axis(transition, order[..., :, None], axis=-2)
    return np.take_along_axis(phi, order[..., None], axis=-2), np.take_along_axis(rows, order[..., None, :], axis=-1)


# ---------------------------------------------------------------- climbing
def newton(
    model: Model,
    series: Observations,
    theta: Array,
    value: float,
    factor: Array,
    threads: int | None,
    steps: int = 5,
    reach: float = 1.0,
) -> tuple[Array, float]:
    """Higher up by Newton steps with one metric, of ``reach`` standard deviations at most, as long as they rise; the
    point and its log posterior."""
    for _ in range(steps):
        slope = factor.T @ log_posterior(model, theta, series, threads=threads)[1]
        if np.abs(slope).max() < CLOSE:
            break
        further = theta + factor @ (slope / max(1.0, float(np.abs(slope).max()) / reach))
        low, high = model.bounds
        if not ((further >= low) & (further <= high)).all():
            break
        higher = log_posterior(model, further, series, threads=threads)[0]
        if not higher > value:
            break
        theta, value = further, higher
    return theta, value


def polish(model: Model, series: Observations, theta: Array, threads: int | None) -> tuple[Array, float]:
    """A point higher up by L-BFGS, if EM has stopped short of the mode or there is no EM."""

    def down(x: Array) -> tuple[float, Array]:
        value, slope = log_posterior(model, x, series, threads=threads)
        return -value, -slope

    try:
        value = down(theta)[0]
    except ValueError:  # out of bounds
        value = np.inf
    if has_m_step(model):
        return theta, -value
    trace = [value]
    found = descend(down, theta, 300, trace.append)
    if (np.diff(trace) > 1e-9 * abs(value)).any():
        warnings.warn(
            f"L-BFGS fell by {np.diff(trace).max():.3g} in step {int(np.argmax(np.diff(trace)))}: the density or score "
            "of the family may be wrong.",
            RuntimeWarning,
            stacklevel=3,
        )
    return (found.x, -float(found.fun)) if found.fun <= value else (theta, -value)


def negative_hessian(model: Model, series: Observations, theta: Array, threads: int | None = None) -> Array:
    """Hessian (d, d) of the negative log posterior by central differences of its gradient.

    Steps begin at a small part of the noise of the data, whatever their units, and are taken again with a hundredth of
    the standard deviation that a component has by its curvature, if they were larger than that or far too small; where
    there is hardly any curvature, with the noise of the data.
    """
    d = len(theta)
    out, sizes = np.empty((d, d)), first_steps(model, series)
    largest = 1e4 * sizes
    for i in range(d):
        for _ in range(4):
            move = np.zeros(d)
            move[i] = sizes[i]
            up, down = (log_posterior(model, theta + side * move, series, threads=threads)[1] for side in (1, -1))
            out[i] = (down - up) / (2 * sizes[i])
            sd = max(abs(out[i, i]), 1e-300) ** -0.5
            if 1e-5 * sd <= sizes[i] <= sd or not np.isfinite(out[i, i]):
                break
            sizes[i] = min(1e-2 * sd, largest[i])
    return (out + out.T) / 2


def first_steps(model: Model, series: Observations) -> Array:
    """Steps (d,) for differences: 1e-4 of the noise of the data for their levels, of the default prior's standard
    deviation for other real parameters, which have units of their own, and of 1 for logarithms."""
    summaries, sizes = scaled_summaries(model.family, rows_in(series)), []
    for p, log in zip(model.family.parameters, model.as_logs, strict=True):
        unit = 1.0
        if p.prior is location and isinstance(p.column, int):
            unit = summaries[p.column].roughness ** 0.5
        elif not log and isinstance(prior := p.default(summaries), Normal):
            unit = prior.variance**0.5
        sizes += [1e-4 * unit] * model.n_states
    rest = model.coordinates.size(model.n_states)
    return np.array(sizes + [1e-4] * rest)[model.free]


def metric(hessian: Array) -> tuple[Array, bool]:
    """Cholesky factor of the inverse of a Hessian, and whether it was positive definite (else of its diagonal)."""
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    try:
        inverse = np.linalg.inv(scale[:, None] * hessian * scale)
        np.linalg.cholesky(scale[:, None] * hessian * scale)
        return scale[:, None] * np.linalg.cholesky((inverse + inverse.T) / 2), True
    except np.linalg.LinAlgError:
        return np.diag(scale), False


def is_other(mode: Mode, series: Observations, candidate: Climb, threads: int | None = None) -> bool:
    """Whether a climb ended at another mode within 10 of the log posterior: not on its way to this one, however slowly,
    and no renaming of its states."""
    if mode.log_posterior - candidate.log_posterior > 10:
        return False
    there = candidate.parameters
    theta = mode.model.pack(mode.model.natural(there.phi, normalised_rows(there.transition)))
    theta = renamed(mode, theta[None])[0]
    theta, _ = newton(mode.model, series, theta, candidate.log_posterior - 1e-6, mode.factor, threads, 20)
    return bool(np.linalg.norm(solve_triangular(mode.factor, theta - mode.theta, lower=True)) > 1)
