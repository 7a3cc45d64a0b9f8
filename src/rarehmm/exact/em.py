"""Expectation maximisation: steps that never lower the log posterior, and hill climbing to a mode.

The mode is that of the density of theta (logarithms of positive parameters, log ratios of transitions), Jacobians
included: ``P = (xi + alpha) / sum``, ``s2 = (b + SSE / 2) / (a + n / 2)``, and so on (see ``model.priors``).
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.pieces import pieces
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import has
from rarehmm.exact.block_pass import Expectations
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.passes import expectations, log_posterior
from rarehmm.exact.scoring import REACH, has_scoring, is_linear, scoring_step, step_metric
from rarehmm.model.coordinates import SMALLEST, AdditiveLogRatio
from rarehmm.model.information import Information
from rarehmm.model.learnable import check_learnable
from rarehmm.model.model import Model
from rarehmm.model.named_priors import scaled_summaries
from rarehmm.model.parameters import Parameters
from rarehmm.model.priors import Normal
from rarehmm.model.scaled_priors import location
from rarehmm.model.stationary import stationary, stationary_slope
from rarehmm.transitions.homogeneous import Homogeneous

EPSILON = float(np.finfo(float).eps)
HALVINGS = 30  # of an EM step that lowers the log posterior, before there is none
INFORMED = 0, 3, 10, 30, 100, 300  # steps of a climb before which the complete-data information is computed
INFORMATIVE = 50_000  # rows from which the information about a longer series is estimated
REMEMBERED = 30  # changes of the gradient that quasi-Newton steps use


class Climb(NamedTuple):
    """Result of a climb to a mode of the posterior.

    Attributes
    ----------
    parameters
        The best parameters found.
    log_posterior
        Log posterior density there, up to a constant.
    trace
        Log posterior density before each step.
    converged
        Whether the last step gained less than the tolerance.
    """

    parameters: Parameters
    log_posterior: float
    trace: Array
    converged: bool


def has_statistics(model: Model, series: Observations) -> bool:
    """Whether sums of statistics are enough for an M-step: no rows differ, and the family has one in closed form."""
    plain = model.is_plain and rows_in(series).states is None
    return plain and has(model.family, "maximise")


def has_em(model: Model, series: Observations) -> bool:
    """Whether a model has EM steps for a series; if not, modes are found by gradients."""
    plain = model.is_plain and rows_in(series).states is None
    return has_statistics(model, series) or (not plain and has_scoring(model))


def m_step(model: Model, parameters: Parameters, found: Expectations) -> Parameters:
    """Parameters that increase the expected complete-data log posterior, given the expectations of one pass."""
    family: Any = model.family
    phi = family.maximise(parameters.phi, found.counts, found.statistics, model.pinned_priors)
    transition = best_transition(model, parameters.transition, found.pairs, found.first)
    distribution = stationary(transition) if model.start is None else model.start
    return Parameters(model.fixed_values.fill_phi(phi), transition, distribution)


def best_transition(model: Model, old: Array, pairs: Array, first: Array, advances: Array | None = None) -> Array:
    r"""Transition matrix that maximises the expected log posterior of transitions and first states.

    .. math:: \sum_{jk} (\xi_{jk} + \alpha) \log P_{jk} + \sum_k \gamma_1(k) \log \pi_k(P)

    With a given start distribution this is a ratio of counts.  With a stationary start, the gradient in the logits of
    row j, ``counts - P n_j + S(P)``, vanishes where ``P = (counts + S(P)) / n_j``, which is iterated; if that fails,
    L-BFGS takes over.  Fixed transitions are left alone.

    ``advances`` (K,) are steps from one phase of a state to its next, which ``pairs`` count for all other states, in
    proportion to their probabilities: the probability to leave depends on their number, where to go does not.
    """
    allowed = model.fixed_values.allowed
    counts = pairs + np.where(allowed, model.priors.transition.concentration, 0.0)
    if advances is not None:
        leaving = ~np.eye(len(old), dtype=bool)
        others = np.where(leaving, old, 0.0)
        real = counts - advances[:, None] * others / np.maximum(others.sum(1, keepdims=True), SMALLEST)
        total = np.where(leaving, real, 0.0).sum(1, keepdims=True)
        counts = np.where(leaving & (total > 0), real * (1 + advances[:, None] / np.maximum(total, SMALLEST)), counts)
    sums = counts.sum(1, keepdims=True)
    ratio = model.fixed_values.fill_transition(normalised_rows(np.where(sums > 0, counts, old)))
    if model.start is not None or model.n_states == 1:
        return ratio
    here = ratio
    for _ in range(30):
        pulled = counts + stationary_slope(here, first)
        if (pulled <= 0)[allowed].any():
            break
        before, here = here, model.fixed_values.fill_transition(normalised_rows(pulled))
        if np.abs(here - before).max() < 1e-12:
            return here
    return transition_by_lbfgs(model, ratio, counts, first)


def normalised_rows(counts: Array) -> Array:
    """Scale rows to sum to one, with no entry smaller than SMALLEST."""
    out = np.maximum(counts, SMALLEST)
    return np.asarray(out / out.sum(1, keepdims=True))


def transition_by_lbfgs(model: Model, begin: Array, counts: Array, first: Array) -> Array:
    """Maximise the objective of ``best_transition`` by L-BFGS in log ratios, from ``begin`` (K, K)."""
    model = model.with_reference(begin)
    n_emission = model.fixed_values.phi.size
    rows_free = model.free >= n_emission  # entries of theta that are transitions
    theta, scores = model.vector[model.free], np.zeros(model.fixed_values.phi.shape)

    def objective(x: Array) -> tuple[float, Array]:
        theta[rows_free] = x
        P = np.maximum(model.unpack_all(theta)[1], SMALLEST)
        distribution = np.maximum(stationary(P), SMALLEST)
        value = float((counts * np.log(P)).sum() + first @ np.log(distribution))
        return -value, -model.gradient_from_expectations(theta, scores, counts, first)[rows_free]

    here = model.coordinates.pack(np.maximum(begin, SMALLEST))[model.free[rows_free] - n_emission]
    theta[rows_free] = descend(objective, here, 20).x
    return model.fixed_values.fill_transition(normalised_rows(model.unpack_all(theta)[1]))


def climb(
    model: Model,
    series: Observations,
    start: Parameters,
    *,
    steps: int = 500,
    tolerance: float = 1e-6,
    free_start: bool = False,
    threads: int | None = None,
    on_progress: Callable[[int, float], None] | None = None,
) -> Climb:
    """Run EM until a step gains less than ``tolerance`` in log posterior.

    Where rows differ, which leaves no M-step in closed form, steps are Newton steps on the expected complete-data log
    posterior, and steps of L-BFGS if there are several columns.

    The log posterior is that in logarithms and log ratios, whatever the model's coordinates.  If it decreases, as
    happens when a state without a prior collapses onto one observation, the climb ends at the best point with a
    warning.

    Parameters
    ----------
    model
        The model; its family must have an M-step, unless rows differ.
    series
        The observations.
    start
        Parameters to start from.
    steps
        Maximum number of steps.
    tolerance
        Smallest gain in log posterior that is worth another step.
    free_start
        Whether to estimate the distribution of the first state, pooled over sequences, too.
    threads
        Number of threads; None (default): all available ones.
    on_progress
        Called as ``on_progress(step, log_posterior)`` at each step.

    Returns
    -------
    Climb
        Where the climb ended.

    Raises
    ------
    TypeError
        If there are no EM steps, or ``free_start`` is asked of a model whose rows differ.
    ValueError
        If ``steps`` is less than 1, or the model cannot be learnt from the series.

    Examples
    --------
    >>> from rarehmm import Model, Poisson, Series, climb, default_priors
    >>> series = Series([0, 1, 0, 0, 9, 11, 8, 1, 0, 0])
    >>> model = Model(Poisson(), 2, default_priors(Poisson(), 2, series))
    >>> start = model.parameters([[0.9, 0.1], [0.1, 0.9]], rate=[1, 5])
    >>> climb(model, series, start).converged
    True
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}; it must be at least 1.")
    if not has_em(model, series) and model.is_plain and rows_in(series).states is None:
        raise TypeError(f"{model.name} has no M-step (no 'maximise' method); use find_mode, which climbs by gradients.")
    check_learnable(model.family, model.n_states, rows_in(series), model.n_lags, model.every_effect.gives_first_rows)
    if has_statistics(model, series):
        return em_steps(model, series, start, steps, tolerance, free_start, threads, on_progress)
    if free_start:
        raise TypeError("free_start needs a model without inputs, lags, phases and known states; give it a start.")
    kind = scoring_steps if has_em(model, series) else lbfgs_steps
    return kind(model, series, start, steps, tolerance, threads, on_progress)


def em_steps(
    model: Model,
    series: Observations,
    start: Parameters,
    steps: int,
    tolerance: float,
    free_start: bool = False,
    threads: int | None = None,
    on_progress: Callable[[int, float], None] | None = None,
) -> Climb:
    """Run EM as ``climb`` does, but on any series, even part of one in which nothing changes."""
    model = replace(model, coordinates=AdditiveLogRatio())
    here, best, trace = start, start, []
    for step in range(steps):
        found = expectations(model, here, series, with_statistics=True, threads=threads)
        trace.append(found.log_likelihood + model.log_prior(model.pack(with_positive_transitions(here))))
        if on_progress is not None:
            on_progress(step, trace[-1])
        gain = trace[-1] - trace[-2] if step > 0 else np.inf
        # on a sample of blocks, a step may lower the log posterior slightly
        steady = not objective_of(series).is_exact
        if not steady and gain < -1e-9 * max(1.0, abs(trace[-1])):
            warnings.warn(
                f"the log posterior fell by {-gain:.3g} in EM step {step}: a state has collapsed. "
                "Use priors, or fewer states.",
                RuntimeWarning,
                stacklevel=2,
            )
            return Climb(best, trace[-2], np.array(trace[:-1]), False)
        best = here
        if (abs(gain) if steady else gain) < tolerance:
            return Climb(here, trace[-1], np.array(trace), True)
        if step < steps - 1:
            here = m_step(model, here, found)
            try:
                model.check_parameters(here)
            except ValueError as error:
                warnings.warn(f"a state has collapsed: {error}", RuntimeWarning, stacklevel=2)
                return Climb(best, trace[-1], np.array(trace), False)
            if free_start:
                here = here._replace(start=found.first / found.first.sum())
    return Climb(best, trace[-1], np.array(trace), False)


def scoring_steps(
    model: Model,
    series: Observations,
    start: Parameters,
    steps: int,
    tolerance: float,
    threads: int | None = None,
    on_progress: Callable[[int, float], None] | None = None,
) -> Climb:
    """Climb as EM does where rows differ: Newton steps on the expected complete-data log posterior, then quasi-Newton.

    The complete-data information, which takes longer than a pass, is computed before the steps ``INFORMED``.  Other
    steps are those of BFGS, with this metric and what the gradients have shown since.  A step that lowers the log
    posterior is halved until it does not.
    """
    model = replace(model, coordinates=AdditiveLogRatio())
    theta, trace, memory = model.pack(with_positive_transitions(start)), [], QuasiNewton()
    found = with_information(model, theta, series, threads)
    for step in range(steps):
        trace.append(found.log_likelihood + model.log_prior(theta))
        if on_progress is not None:
            on_progress(step, trace[-1])
        gain = trace[-1] - trace[-2] if step > 0 else np.inf
        if gain < tolerance or step == steps - 1:
            return Climb(model.unpack(theta), trace[-1], np.array(trace), gain < tolerance)
        slope = full_slope(model, theta, found)
        if step in INFORMED:
            found = with_information(model, theta, series, threads) if found.information is None else found
            assert found.information is not None
            memory.metric = step_metric(model, theta, found.information, found.pairs)
        direction = em_direction(model, theta, found) if step in INFORMED[:2] else memory.direction(slope)
        far = np.abs(np.where(is_linear(model), 0.0, direction)).max(initial=0.0)
        direction = direction * min(1.0, REACH / max(far, REACH))
        better = improved(model, theta, series, direction, trace[-1], threads)
        if better is None:
            break
        memory.learn(better[0] - theta, slope - full_slope(model, *better))
        theta, found = better
    return Climb(model.unpack(theta), trace[-1], np.array(trace), True)


class QuasiNewton:
    """Limited-memory BFGS: directions from a ``metric`` (d, d) and the last changes of theta and of its gradient."""

    def __init__(self) -> None:
        self.metric = np.zeros((0, 0))
        self.changes: list[tuple[Array, Array, float]] = []

    def learn(self, step: Array, bend: Array) -> None:
        """Remember a step (d,) and by how much (d,) the gradient fell along it."""
        product = float(step @ bend)
        if product > 1e-10 * np.linalg.norm(step) * np.linalg.norm(bend):
            self.changes = [*self.changes[-REMEMBERED:], (step, bend, product)]

    def direction(self, slope: Array) -> Array:
        """Step (d,) uphill from a point with this gradient (d,)."""
        shares, here = [], slope
        for step, bend, product in reversed(self.changes):
            shares.append(float(step @ here) / product)
            here = here - shares[-1] * bend
        out = self.metric @ here
        for (step, bend, product), share in zip(self.changes, reversed(shares), strict=True):
            out = out + step * (share - float(bend @ out) / product)
        return np.asarray(out)


def full_slope(model: Model, theta: Array, found: Expectations) -> Array:
    """Gradient (d,) of the log posterior at theta, from the expectations there."""
    slope = model.gradient_from_expectations(theta, found.scores, found.pairs, found.first, found.coefficients)
    return slope + model.log_prior_gradient(theta)


def with_information(model: Model, theta: Array, series: Observations, threads: int | None) -> Expectations:
    """Expectations and complete-data information at theta (d,), which is that of a part of a long series."""
    parameters = model.unpack(theta)
    if not isinstance(series, Series) or len(series) <= 2 * INFORMATIVE:
        return expectations(model, parameters, series, with_information=True, threads=threads)
    found = expectations(model, parameters, series, threads=threads)
    part = series.remember("informative", lambda: pieces(series, INFORMATIVE, 50))
    times, about = len(series) / len(part), with_information(model, theta, part, threads).information
    assert about is not None
    return found._replace(information=Information(*(times * one for one in about)))


def improved(
    model: Model, theta: Array, series: Observations, step: Array, value: float, threads: int | None
) -> tuple[Array, Expectations] | None:
    """The point after a step and its expectations, or None if no part of the step raises the log posterior."""
    low, high = model.bounds
    for _ in range(HALVINGS):
        further = theta + step
        if ((further >= low) & (further <= high)).all():
            try:
                at = expectations(model, model.unpack(further), series, threads=threads)
            except ValueError:  # lags at the edge of what is stationary
                at = None
            if at is not None and at.log_likelihood + model.log_prior(further) >= value:
                return further, at
        step = step / 2
    return None


def em_direction(model: Model, theta: Array, found: Expectations) -> Array:
    """Step (d,) of EM at theta (d,): that of emissions and slopes, and to the best transitions without inputs."""
    assert found.information is not None
    step = scoring_step(model, theta, full_slope(model, theta, found), found.information)
    if model.every_effect.slopes is not None or model.n_states == 1:
        return step
    here = model.unpack(theta)
    best = best_transition(
        without_effects(model), here.transition, found.pairs, found.first, found.information.advances
    )
    to_best = model.pack_all(here.phi, best, here.coefficients) - theta
    return np.where(np.isin(model.free, transition_places(model)), to_best, step)


def without_effects(model: Model) -> Model:
    """A plain model with the same states, transition matrix and priors."""
    kept = {"transition", *(p.name for p in model.family.parameters)}
    fixed = {name: values for name, values in (model.fixed or {}).items() if name in kept}
    return replace(
        model, inputs=None, switching=None, scale=None, autoregression=None, transitions=Homogeneous(), tied=(),
        fixed=fixed,
    )  # fmt: skip


def transition_places(model: Model) -> IntArray:
    """Places of the coordinates of the transition matrix in the vector of all parameters."""
    return np.arange(model.fixed_values.phi.size, len(model.vector) - model.coefficients.size)


def gradient_steps(
    model: Model, series: Observations, start: Parameters, steps: int, threads: int | None = None
) -> Climb:
    """Climb to a mode by L-BFGS, where there are no EM steps.

    More than ``steps`` iterations are allowed, since the first ones only learn the step length.
    """
    model = replace(model, coordinates=AdditiveLogRatio())
    unit = np.ones(model.size) if model.is_plain else units(model, series)
    trace: list[float] = []

    def down(x: Array) -> tuple[float, Array]:
        value, slope = log_posterior(model, x * unit, series, threads=threads)
        trace.append(value)
        return -value, -slope * unit

    found = descend(down, model.pack(with_positive_transitions(start)) / unit, 10 + 3 * steps)
    best = model.unpack(found.x * unit) if np.isfinite(found.fun) else start
    return Climb(best, -float(found.fun), np.maximum.accumulate(trace), bool(found.success))


def lbfgs_steps(
    model: Model,
    series: Observations,
    start: Parameters,
    steps: int,
    tolerance: float,
    threads: int | None = None,
    on_progress: Callable[[int, float], None] | None = None,
) -> Climb:
    """Climb as ``climb`` does where there are no EM steps: by L-BFGS, in the units of the data.

    It has converged once two steps in a row gain less than the tolerance, since the first only learn a step length.
    """
    model = replace(model, coordinates=AdditiveLogRatio())
    unit, trace = units(model, series), list[float]()

    def down(x: Array) -> tuple[float, Array]:
        value, slope = log_posterior(model, x * unit, series, threads=threads)
        return -value, -slope * unit

    def ended() -> bool:
        return len(trace) > 2 and bool(np.diff(trace[-3:]).max() < tolerance)

    def report(value: float) -> None:
        trace.append(-value)
        if on_progress is not None:
            on_progress(len(trace) - 1, trace[-1])
        if ended():
            raise StopIteration

    x = model.pack(with_positive_transitions(start)) / unit
    report(down(x)[0])
    if steps == 1:
        return Climb(model.unpack(x * unit), trace[-1], np.array(trace), False)
    found = descend(down, x, steps - 1, report, 0.0)
    return Climb(model.unpack(found.x * unit), trace[-1], np.array(trace), ended() or bool(found.success))


def units(model: Model, series: Observations) -> Array:
    """Unit (d,) of each component of theta.

    It is the noise of the data for location parameters and what inputs add to them, the standard deviation of the
    default prior for other real parameters, and 1 for logarithms and the like.
    """
    summaries, K = scaled_summaries(model.family, rows_in(series)), model.n_states
    each = []
    for p, log in zip(model.family.parameters, model.as_logs, strict=True):
        unit = 1.0
        if p.prior is location and isinstance(p.column, int):
            unit = summaries[p.column].roughness ** 0.5
        elif not log and isinstance(prior := p.default(summaries), Normal):
            unit = prior.variance**0.5
        each.append(unit)
    effects, rest = model.every_effect, np.ones(model.coefficients.size)
    moved = [each[int(np.flatnonzero(effects.moves.column == d)[0])] for d in effects.moves.predicted]
    for name in ("location", "switching"):
        count = math.prod(effects.shapes[name][2:])
        rest[model.coefficients.slices[name]] = np.tile(np.repeat(moved, count), effects.shapes[name][0])
    return np.concatenate([np.repeat(each, K), np.ones(model.coordinates.size(K)), rest])[model.free]


def descend(
    down: Callable[[Array], tuple[float, Array]],
    begin: Array,
    steps: int,
    report: Callable[[float], None] | None = None,
    least: float = 1e7 * EPSILON,
) -> scipy.optimize.OptimizeResult:
    """Minimise a function by L-BFGS; it returns its value and gradient, or raises ValueError where it is undefined.

    Where it is undefined, it is replaced by a wall higher than any value seen so far: a line search does not recover
    from an infinite value, and the descent would end on the spot.  ``report`` is called with the value after each step,
    and may raise StopIteration.  A step that gains less than ``least``, relative to the value, is the last.
    """
    highest = -np.inf

    def everywhere(x: Array) -> tuple[float, Array]:
        nonlocal highest
        try:
            value, slope = down(x)
        except ValueError:
            wall = highest + 1000 * (1 + abs(highest)) if np.isfinite(highest) else np.inf
            return wall, np.zeros(len(x))
        highest = max(highest, value)
        return value, slope

    def after(intermediate_result: scipy.optimize.OptimizeResult) -> None:  # the name is SciPy's
        if report is not None:
            report(float(intermediate_result.fun))

    return scipy.optimize.minimize(
        everywhere, begin, jac=True, method="L-BFGS-B", options={"maxiter": steps, "ftol": least}, callback=after
    )


def with_positive_transitions(parameters: Parameters) -> Parameters:
    """Copy of the parameters with transition probabilities bounded away from zero, so that they have logarithms."""
    return parameters._replace(transition=normalised_rows(parameters.transition))
