r"""Expectation maximisation: steps that never lower the log posterior, and climbing by them to a mode.

The mode is that of the density of theta (logarithms of positive parameters, log ratios of transitions), Jacobians
included: ``P = (xi + alpha) / sum``, ``s2 = (b + SSE / 2) / (a + n / 2)``, and so on (see ``priors``).
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import OptimizeResult, minimize

from rarehmm.common.arrays import Array
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.passes import Expectations, expectations, log_posterior
from rarehmm.model.coordinates import SMALLEST, AdditiveLogRatio
from rarehmm.model.learnable import check_learnable
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary, stationary_slope


class Climb(NamedTuple):
    """Where a climb ended: the parameters, their log posterior, its value before each step, and whether it settled."""

    parameters: Parameters
    log_posterior: float
    trace: Array
    converged: bool


def has_m_step(model: Model) -> bool:
    """Whether the family maximises its part in closed form (else modes are found by gradients)."""
    return hasattr(model.family, "maximise")


def m_step(model: Model, parameters: Parameters, found: Expectations) -> Parameters:
    """Parameters that raise the expected complete-data log posterior, given the expectations of one pass."""
    family: Any = model.family
    phi = family.maximise(parameters.phi, found.counts, found.statistics, model.pinned_priors)
    transition = best_transition(model, parameters.transition, found.pairs, found.first)
    distribution = stationary(transition) if model.start is None else model.start
    return Parameters(model.fixed_values.fill_phi(phi), transition, distribution)


def best_transition(model: Model, old: Array, pairs: Array, first: Array) -> Array:
    r"""The transition matrix that maximises the expected log posterior of transitions and first states.

    .. math:: \sum_{jk} (\xi_{jk} + \alpha) \log P_{jk} + \sum_k \gamma_1(k) \log \pi_k(P)

    Without a stationary start this is a ratio of counts.  With one, its slope in the logits of row j, ``counts - P n_j
    + S(P)``, vanishes where ``P = (counts + S(P)) / n_j``, which is iterated; if that fails, by quasi-Newton steps.
    Transitions that are known stay.
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
    """Rows that sum to one; no entry is smaller than SMALLEST."""
    out = np.maximum(counts, SMALLEST)
    return np.asarray(out / out.sum(1, keepdims=True))


def transition_by_lbfgs(model: Model, begin: Array, counts: Array, first: Array) -> Array:
    """The maximum of ``best_transition`` by L-BFGS in log ratios, from ``begin`` (K, K)."""
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
    """EM steps from ``start`` until one gains less than ``tolerance`` in log posterior, or ``steps`` are done.

    The log posterior is that in logarithms and log ratios, whatever the model's coordinates.  ``free_start`` also
    estimates the law of the first state (of all sequences together).  ``watch(step, log_posterior)`` is told of each
    step.  A log posterior that falls, as when a state without a prior collapses onto one observation, ends the climb
    with a warning at the best point.
    """
    if not has_m_step(model):
        raise TypeError(f"{model.name} has no M-step (no 'maximise'): its modes are found by gradients.")
    if steps < 1:
        raise ValueError(f"steps is {steps}; at least one is needed.")
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
    """The same on any series, also a part of one in which nothing changes."""
    model = replace(model, coordinates=AdditiveLogRatio())
    here, best, trace = start, start, []
    for step in range(steps):
        found = expectations(model, here, series, with_statistics=True, threads=threads)
        trace.append(found.log_likelihood + model.log_prior(model.pack(with_positive_transitions(here))))
        if on_progress is not None:
            on_progress(step, trace[-1])
        gain = trace[-1] - trace[-2] if step > 0 else np.inf
        steady = not objective_of(
            series
        ).is_exact  # steps raise nearly, but not exactly, the log likelihood of a sample
        if not steady and gain < -1e-9 * max(1.0, abs(trace[-1])):
            warnings.warn(
                f"EM fell by {-gain:.3g} in step {step}: a state has collapsed. Use priors, or fewer states.",
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
    """The same for a family without an M-step, by L-BFGS: more steps, since the first ones only learn their length."""
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
) -> OptimizeResult:
    """The minimum by L-BFGS of a function that gives its value and slope, or raises ValueError where it has none.

    There it is taken for a wall, higher than all that was seen: from one of infinite height a line search does not come
    back, and the descent would end where it stands.  ``told`` gets the value after each step.
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

    def after(intermediate_result: OptimizeResult) -> None:  # the name is SciPy's
        if report is not None:
            report(float(intermediate_result.fun))

    return minimize(everywhere, begin, jac=True, method="L-BFGS-B", options={"maxiter": steps}, callback=after)


def with_positive_transitions(parameters: Parameters) -> Parameters:
    """The same with transitions away from zero, for their logarithms."""
    return parameters._replace(transition=normalised_rows(parameters.transition))
