"""Expectation maximisation: steps that never lower the log posterior, and hill climbing to a mode.

The mode is that of the density of theta (logarithms of positive parameters, log ratios of transitions), Jacobians
included: ``P = (xi + alpha) / sum``, ``s2 = (b + SSE / 2) / (a + n / 2)``, and so on (see ``model.priors``).
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import has
from rarehmm.exact.block_pass import Expectations
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.passes import expectations, log_posterior
from rarehmm.model.coordinates import SMALLEST, AdditiveLogRatio
from rarehmm.model.learnable import check_learnable
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary, stationary_slope


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


def has_m_step(model: Model) -> bool:
    """Whether the family has a closed-form M-step; if not, modes are found by gradients."""
    return has(model.family, "maximise")


def m_step(model: Model, parameters: Parameters, found: Expectations) -> Parameters:
    """Parameters that increase the expected complete-data log posterior, given the expectations of one pass."""
    family: Any = model.family
    phi = family.maximise(parameters.phi, found.counts, found.statistics, model.pinned_priors)
    transition = best_transition(model, parameters.transition, found.pairs, found.first)
    distribution = stationary(transition) if model.start is None else model.start
    return Parameters(model.fixed_values.fill_phi(phi), transition, distribution)


def best_transition(model: Model, old: Array, pairs: Array, first: Array) -> Array:
    r"""Transition matrix that maximises the expected log posterior of transitions and first states.

    .. math:: \sum_{jk} (\xi_{jk} + \alpha) \log P_{jk} + \sum_k \gamma_1(k) \log \pi_k(P)

    With a given start distribution this is a ratio of counts.  With a stationary start, the gradient in the logits of
    row j, ``counts - P n_j + S(P)``, vanishes where ``P = (counts + S(P)) / n_j``, which is iterated; if that fails,
    L-BFGS takes over.  Fixed transitions are left alone.
    """
    allowed = model.fixed_values.allowed
    counts = pairs + np.where(allowed, model.priors.transition.concentration, 0.0)
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

    The log posterior is that in logarithms and log ratios, whatever the model's coordinates.  If it decreases, as
    happens when a state without a prior collapses onto one observation, the climb ends at the best point with a
    warning.

    Parameters
    ----------
    model
        The model; its family must have an M-step.
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
        If the family has no M-step.
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
    if not has_m_step(model):
        raise TypeError(f"{model.name} has no M-step (no 'maximise' method); use find_mode, which climbs by gradients.")
    if steps < 1:
        raise ValueError(f"steps is {steps}; it must be at least 1.")
    check_learnable(model.family, model.n_states, rows_in(series))
    return em_steps(model, series, start, steps, tolerance, free_start, threads, on_progress)


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


def gradient_steps(
    model: Model, series: Observations, start: Parameters, steps: int, threads: int | None = None
) -> Climb:
    """Climb to a mode by L-BFGS, for a family without an M-step.

    More than ``steps`` iterations are allowed, since the first ones only learn the step length.
    """
    model = replace(model, coordinates=AdditiveLogRatio())
    trace: list[float] = []

    def down(theta: Array) -> tuple[float, Array]:
        value, slope = log_posterior(model, theta, series, threads=threads)
        trace.append(value)
        return -value, -slope

    found = descend(down, model.pack(with_positive_transitions(start)), 10 + 3 * steps)
    best = model.unpack(found.x) if np.isfinite(found.fun) else start
    return Climb(best, -float(found.fun), np.maximum.accumulate(trace), bool(found.success))


def descend(
    down: Callable[[Array], tuple[float, Array]],
    begin: Array,
    steps: int,
    report: Callable[[float], None] | None = None,
) -> scipy.optimize.OptimizeResult:
    """Minimise a function by L-BFGS; it returns its value and gradient, or raises ValueError where it is undefined.

    Where it is undefined, it is replaced by a wall higher than any value seen so far: a line search does not recover
    from an infinite value, and the descent would end on the spot.  ``report`` is called with the value after each step.
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
        everywhere, begin, jac=True, method="L-BFGS-B", options={"maxiter": steps}, callback=after
    )


def with_positive_transitions(parameters: Parameters) -> Parameters:
    """Copy of the parameters with transition probabilities bounded away from zero, so that they have logarithms."""
    return parameters._replace(transition=normalised_rows(parameters.transition))
