r"""Posterior mode: where the posterior density is highest, and its curvature there.

EM climbs most of the way and Newton's method converges to the top.  Its Hessian is computed anyway: samplers use it as
their metric.
"""

import warnings
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.progress import OnProgress, silent
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.exact.em import Climb, climb, descend, has_em, normalised_rows, units, with_positive_transitions
from rarehmm.exact.passes import log_posterior
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.search.initial import climb_briefly, find_states

CLOSE = 1e-3  # a point counts as the mode if no component of its whitened gradient exceeds this
# A lower mode matters if it is broad: this much lower, it has 1 % of the mass if it is more than 200 times as broad.
GAP = 10.0  # largest difference in log posterior between the mode and another one that is kept
VALLEY = 1.0  # two points are near different modes if the log posterior between them falls this far below both
REFINING = 30  # EM steps towards each of several modes before they are compared


class Mode(NamedTuple):
    """A posterior mode, with the curvature of the log posterior there.

    Attributes
    ----------
    model : Model
        The model in the coordinates of ``theta``: the reference of each row's log ratios is its largest transition
        probability.
    theta : array (d,)
        The mode.
    log_posterior : float
        Log posterior density at the mode, up to a constant.
    hessian : array (d, d)
        Hessian of the negative log posterior at the mode.
    factor : array (d, d)
        Cholesky factor of the inverse Hessian: ``theta + factor @ z`` with standard normal ``z`` is a draw from the
        Laplace approximation.
    positive_definite : bool
        Whether the Hessian is positive definite.  If not, ``factor`` is computed from its diagonal.
    others : list of Climb
        Other modes at most GAP lower in log posterior, best first.  No two differ by a permutation of states alone.
    known : tuple of int
        States that the series says are known somewhere, which keep their places.
    """

    model: Model
    theta: Array
    log_posterior: float
    hessian: Array
    factor: Array
    positive_definite: bool
    others: list[Climb]
    known: tuple[int, ...] = ()

    @property
    def exchangeable_groups(self) -> list[IntArray]:
        """Groups of states whose permutation leaves the posterior unchanged."""
        groups = [group[~np.isin(group, self.known)] for group in self.model.exchangeable_groups]
        return [group for group in groups if len(group) > 0] + [np.array([k]) for k in self.known]


def find_mode(
    model: Model,
    series: Observations,
    start: Parameters | None = None,
    *,
    threads: int | None = None,
    steps: int = 100,
    on_progress: OnProgress = silent,
) -> Mode:
    """Find the posterior mode of a model.

    Parameters
    ----------
    model : Model
    series : Series or BlockSample
        The data.
    start : Parameters, optional
        Where the search begins.  By default, starting values are found from the data.
    threads : int, optional
        Number of threads.
    steps : int
        Maximum number of EM steps.
    on_progress : callable, optional
        Called as ``on_progress(stage, done, total)``.

    Returns
    -------
    Mode

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Gaussian, Model, Series, default_priors, find_mode
    >>> y = np.random.default_rng(0).normal(5, 1, size=300)
    >>> y[100:130] += 9
    >>> series = Series(y)
    >>> mode = find_mode(Model(Gaussian(), 2, default_priors(Gaussian(), 2, series)), series)
    >>> np.sort(mode.model.unpack(mode.theta).phi[:, 0]).round()
    array([ 5., 14.])
    """
    others: list[Climb] = []
    if model.size == 0:  # every parameter is fixed
        none = np.zeros((0, 0))
        return Mode(model, np.zeros(0), log_posterior(model, np.zeros(0), series)[0], none, none, True, [])
    if start is None:
        on_progress("finding states", 0, 0)
        found = [c.parameters for c in find_states(model, rows_in(series), threads=threads)]
        start, others = compare_starts(model, series, found, threads)
    if has_em(model, series):
        report = partial(report_em_step, on_progress, steps)
        start = climb(model, series, start, steps=steps, tolerance=1e-2, threads=threads, on_progress=report).parameters
    model = model.with_reference(start.transition)
    on_progress("refining the mode", 0, 0)
    theta, value = polish(model, series, model.pack(with_positive_transitions(start)), threads)
    hessian = negative_hessian(model, series, theta, threads)
    factor, positive_definite = metric(hessian)
    theta, value = newton(model, series, theta, value, factor, threads)
    mode = Mode(model, theta, value, hessian, factor, positive_definite, [], rows_in(series).known_states)
    return mode._replace(others=distinct_modes(mode, series, others, threads))


def compare_starts(
    model: Model, series: Observations, starts: list[Parameters], threads: int | None
) -> tuple[Parameters, list[Climb]]:
    """The start that leads to the highest mode, and climbs from the others, best first.

    States may have been found in a sample.  A log posterior there says nothing about one here, so all starts climb on
    the series itself.
    """
    if len(starts) == 1:
        return starts[0], []
    climbs = [climb_briefly(model, series, start, REFINING, threads) for start in starts]
    best, *others = sorted(climbs, key=lambda c: -c.log_posterior)
    return best.parameters, others


def report_em_step(on_progress: OnProgress, steps: int, step: int, _: float) -> None:
    """Report the progress of EM."""
    on_progress("climbing to the mode", step, steps)


# ---------------------------------------------------------------- labels and order of states
def state_order(mode: Mode) -> tuple[int, IntArray]:
    """The emission parameter that separates the states of a mode best, and the order (K,) of the states by it.

    The best parameter has the largest minimum gap between neighbouring states, in posterior standard deviations.  Only
    exchangeable states change places.
    """
    model, K = mode.model, mode.model.n_states
    values, spread = state_estimates(mode)
    best, gap = 0, -1.0
    for i in range(len(model.family.parameters)):
        order = ascending_states(mode, values[i])
        x, sd = values[i][order], spread[i][order]
        least = min(smallest_gap(x[group], sd[group]) for group in mode.exchangeable_groups)
        if least > gap:
            best, gap = i, least
    return best, ascending_states(mode, values[best]) if K > 1 else np.zeros(1, dtype=np.int64)


def state_places(model: Model) -> IntArray:
    """Places (Q, K) in the vector of all parameters of what states have of their own.

    These are the emission parameters, and the coefficients that switch.
    """
    first, at = len(model.vector) - model.coefficients.size, model.coefficients.slices
    switching = [at[name] for name in ("switching", "lags") if model.every_effect.switches(name)]
    every = [np.arange(model.fixed_values.phi.size), *(np.arange(s.start, s.stop) + first for s in switching)]
    return np.concatenate(every).reshape(-1, model.n_states)


def state_estimates(mode: Mode) -> tuple[Array, Array]:
    """What states have of their own (Q, K) at a mode, in sampling coordinates, and standard deviations (0 where fixed).

    Emission parameters come first.
    """
    places, owner = state_places(mode.model), mode.model.spread
    spread = np.where(owner >= 0, np.linalg.norm(mode.factor, axis=1)[owner], 0.0)
    return mode.model.with_fixed(mode.theta)[places], spread[places]


def smallest_gap(x: Array, sd: Array) -> float:
    """Smallest gap between neighbours in an ascending sequence, in standard deviations."""
    gaps = np.diff(x) / np.maximum(np.hypot(sd[1:], sd[:-1]), 1e-300)
    return float(gaps.min(initial=np.inf))


def ascending_states(mode: Mode, values: Array) -> IntArray:
    """States (K,) in ascending order of their values within each group of exchangeable states."""
    order = np.arange(mode.model.n_states)
    for group in mode.exchangeable_groups:
        order[group] = group[np.argsort(values[group], kind="stable")]
    return order


def with_ordered_states(mode: Mode) -> Mode:
    """Reorder the states of a mode as ``state_order`` says."""
    order = state_order(mode)[1]
    model, K = mode.model, mode.model.n_states
    if np.array_equal(order, np.arange(K)):
        return mode
    new = replace(model, coordinates=model.coordinates.reordered(order))
    at = {key: i for i, key in enumerate(component_keys(model))}
    # new state k is old state order[k], wherever a state occurs in the key of a component
    from_old = [at[name, i, tuple(int(order[k]) for k in states)] for name, i, states in component_keys(new)]
    hessian = mode.hessian[np.ix_(from_old, from_old)]
    factor, positive_definite = metric(hessian)
    return mode._replace(
        model=new, theta=mode.theta[from_old], hessian=hessian, factor=factor, positive_definite=positive_definite
    )


Key = tuple[str, int, tuple[int, ...]]


def component_keys(model: Model) -> list[Key]:
    """Key of each component of theta: its name, a number, and the states that it belongs to.

    A transition belongs to the states from and to; what all states share belongs to none.
    """
    K, effects, coefficients = model.n_states, model.every_effect, model.coefficients
    pairs = [(int(j), int(k)) for j, k in zip(*model.coordinates.free(K), strict=True)]
    compared = [(int(j), int(k)) for j, k in zip(*coefficients.compared, strict=True)]
    each: list[tuple[int, ...]] = [(k,) for k in range(K)]
    every: list[Key] = []
    for p in model.family.parameters:
        every += [(p.name, 0, () if p.name in model.tied else states) for states in each]
    every += [("transition", 0, states) for states in pairs]
    for name, size in coefficients.sizes.items():
        owners = compared if name == "slopes" else each if effects.switches(name) else [()]
        every += [(name, i, states) for i in range(size // max(len(owners), 1)) for states in owners]
    return [every[i] for i in model.free]


def match_states(mode: Mode, theta: Array) -> IntArray:
    r"""State (n, K) of each point theta (n, d) that corresponds to each state of the mode.

    The assignment :math:`k \mapsto j(k)` minimises :math:`\sum_k \sum_i (x_{i j(k)} - m_{ik})^2 / s_{ik}^2` over the
    emission parameters and the coefficients that switch.  Distances are in posterior standard deviations, so a poorly
    determined state can drift past another without swapping labels with it.
    """
    model, K = mode.model, mode.model.n_states
    centre, spread = state_estimates(mode)
    x = model.with_fixed(theta)[:, state_places(model)]  # (n, Q, K)
    scale = np.where(spread > 0, spread, 1.0)
    far = (((x[..., :, None] - centre[:, None, :]) / scale[:, None, :]) ** 2).sum(1)  # (n, K of point, K of mode)
    out = np.tile(np.arange(K), (len(x), 1))
    for group in mode.exchangeable_groups:
        mine = far[:, group[:, None], group]
        clear = (mine.argmin(1) == np.arange(len(group))).all(1)
        for n in np.nonzero(~clear)[0]:
            rows, columns = scipy.optimize.linear_sum_assignment(mine[n])
            out[n, group[columns]] = group[rows]
    return out


def is_labelled_like_mode(mode: Mode, theta: Array) -> BoolArray:
    """Whether the states of each point theta (n, d) are labelled as at the mode.

    The posterior is invariant under permutations of exchangeable states, so the points with one labelling (1 / K! of
    its mass if all states are exchangeable) represent all of it.  Without exchangeable states, every point qualifies.
    """
    return np.asarray((match_states(mode, theta) == np.arange(mode.model.n_states)).all(1))


def relabel_states(mode: Mode, theta: Array) -> Array:
    """Relabel the exchangeable states of draws theta (n, d) to match those of the mode."""
    order = match_states(mode, theta)
    moves = (order != np.arange(mode.model.n_states)).any(1)
    theta, model = theta.copy(), mode.model
    coefficients = model.every_effect.reordered(model.unpack_coefficients(theta[moves]), order[moves])
    theta[moves] = model.pack_all(*reorder_states(*model.unpack_all(theta[moves]), order[moves]), coefficients)
    return theta


def reorder_states(phi: Array, transition: Array, order: IntArray) -> tuple[Array, Array]:
    """Permute states: new state k of phi (..., K, P) and transition (..., K, K) is old state ``order[..., k]``."""
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
    """Take Newton steps with a fixed metric while the log posterior rises; return the point and its log posterior.

    No component of a step exceeds ``reach`` in whitened coordinates.
    """
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
    """Climb by L-BFGS if there are no EM steps; return the point and its log posterior."""

    unit = np.ones(model.size) if model.is_plain else units(model, series)

    def down(x: Array) -> tuple[float, Array]:
        value, slope = log_posterior(model, x * unit, series, threads=threads)
        return -value, -slope * unit

    try:
        value = down(theta / unit)[0]
    except ValueError:  # out of bounds
        value = np.inf
    if has_em(model, series):
        return theta, -value
    trace = [value]
    found = descend(down, theta / unit, 300, trace.append)
    if (np.diff(trace) > 1e-9 * abs(value)).any():
        warnings.warn(
            f"the log posterior fell by {np.diff(trace).max():.3g} in step {int(np.argmax(np.diff(trace)))} of L-BFGS: "
            "the family's log density or score may be wrong. Test it with rarehmm.check_emission.",
            RuntimeWarning,
            stacklevel=3,
        )
    return (found.x * unit, -float(found.fun)) if found.fun <= value else (theta, -value)


def negative_hessian(model: Model, series: Observations, theta: Array, threads: int | None = None) -> Array:
    """Hessian (d, d) of the negative log posterior by central differences of its gradient.

    Steps start from ``difference_steps``.  If one turns out to exceed the standard deviation implied by the curvature,
    or to be far too small for it, the difference is taken again with a hundredth of that standard deviation, and at
    most 1e4 times the initial step where there is hardly any curvature.
    """
    d = len(theta)
    out, sizes = np.empty((d, d)), difference_steps(model, series)
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


def difference_steps(model: Model, series: Observations) -> Array:
    """Initial steps (d,) for central differences."""
    return 1e-4 * units(model, series)


def metric(hessian: Array) -> tuple[Array, bool]:
    """Cholesky factor of the inverse of a Hessian, and whether the Hessian is positive definite.

    If it is not, the factor is computed from its diagonal.
    """
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    try:
        inverse = np.linalg.inv(scale[:, None] * hessian * scale)
        np.linalg.cholesky(scale[:, None] * hessian * scale)
        return scale[:, None] * np.linalg.cholesky((inverse + inverse.T) / 2), True
    except np.linalg.LinAlgError:
        return np.diag(scale), False


def distinct_modes(mode: Mode, series: Observations, climbs: list[Climb], threads: int | None = None) -> list[Climb]:
    """The climbs on a series that ended near other modes than ``mode`` and each other, best first."""
    tops, found = [mode], []
    for c in sorted(climbs, key=lambda c: -c.log_posterior):
        if mode.log_posterior - c.log_posterior <= GAP and all(is_distinct_mode(m, series, c, threads) for m in tops):
            found.append(c)
            tops.append(mode._replace(theta=vector_of(mode.model, c.parameters), log_posterior=c.log_posterior))
    return found


def is_distinct_mode(mode: Mode, series: Observations, candidate: Climb, threads: int | None = None) -> bool:
    """Whether a valley of the log posterior separates a climb on a series from the mode.

    Permutations of exchangeable states do not count.  A climb that is not finished may still be on its way to the mode:
    from there, the log posterior rises all along the straight line.
    """
    theta = relabel_states(mode, vector_of(mode.model, candidate.parameters)[None])[0]
    lower = min(mode.log_posterior, candidate.log_posterior)
    return any(
        log_posterior(mode.model, (1 - part) * theta + part * mode.theta, series, threads=threads)[0] < lower - VALLEY
        for part in (0.5, 0.25, 0.75)
    )


def vector_of(model: Model, there: Parameters) -> Array:
    """Parameters as a vector theta (d,) of the model, with transition probabilities bounded away from zero."""
    return model.pack(model.natural(there.phi, normalised_rows(there.transition), there.coefficients))
