"""Gibbs sampling on all data: states given parameters, then parameters given states."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.checks import warn_interrupted
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import has, hook, observed_rows, prepare, statistics
from rarehmm.engine.kernels.sequential import draw_path_backward
from rarehmm.exact.complete_data import CompleteData, draw_nodes
from rarehmm.exact.densities import sequence_starts
from rarehmm.exact.em import normalised_rows
from rarehmm.exact.passes import filter_states
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.priors import Flat
from rarehmm.model.stationary import stationary
from rarehmm.sampling.regime_gibbs import (
    Point,
    check_regimes,
    draw_emissions,
    draw_transitions,
    has_plain_emissions,
    internal,
)
from rarehmm.sampling.starts import check_start

OnStep = Callable[[int], None]


def gibbs(
    rng: np.random.Generator,
    model: Model,
    series: Series,
    start: Parameters,
    steps: int,
    *,
    threads: int | None = None,
    on_progress: OnStep | None = None,
) -> Array:
    r"""Draw from the posterior by Gibbs sampling: states given parameters, then parameters given states.

    The states are drawn jointly (``draw_states``), the parameters from their conjugate distributions: rows of P from
    :math:`Dirichlet(\alpha + n_j)`, emission parameters by the family's ``conditional``.  Where the start is the
    stationary distribution :math:`\pi(P)`, a new P is accepted with probability
    :math:`\min(1, \prod_s \pi'(x_{s1}) / \pi(x_{s1}))` over sequences s (all rows or none).

    Where rows differ (inputs, lags, phases, tied parameters, known states), Gaussian and log-normal families draw their
    coefficients as in a regression; stationary lags, inputs on the scale and slopes of transitions take
    Metropolis-Hastings steps.  Other families may have phases, known states and transitions with inputs.

    Under ``ExpandedMean`` coordinates, the row sums, about which the data say nothing, are drawn from their prior
    :math:`Gamma(K\alpha, 1)`.

    Parameters
    ----------
    rng
        Random number generator.
    model
        The model; its family must have a ``conditional``.
    series
        The observations.
    start
        Parameters to start from; they are not among the draws.
    steps
        Number of draws.
    threads
        Number of threads; None (default): all available ones.  Draws do not depend on it.
    on_progress
        Called as ``on_progress(step)`` after each step.

    Returns
    -------
    ndarray of shape (steps, d)
        Draws of theta; fewer, with a warning, after Ctrl-C.

    Raises
    ------
    TypeError
        If the family has no conjugate sampler.
    ValueError
        If the arguments do not fit each other, or a state without a prior loses all its observations: the posterior is
        then improper, and keeping the old value would hide it.
    """
    check_conjugate(model)
    here = check_start(rng, model, series, start, steps)
    plain = model.is_plain and series.states is None
    draws, sweep = np.empty((steps, model.size)), 0
    try:
        for sweep in range(steps):
            if plain:
                path = draw_states(rng, model, here, series, threads=threads)
                here = draw_parameters(rng, model, here, series, path)
            else:
                here = regime_sweep(rng, model, here, series)
            draws[sweep] = coordinates(rng, model, here)
            if on_progress is not None:
                on_progress(sweep)
    except KeyboardInterrupt:
        warn_interrupted(sweep, steps)
        draws = draws[:sweep]
    return draws


def regime_sweep(rng: np.random.Generator, model: Model, old: Parameters, series: Series) -> Parameters:
    """Draw states, then parameters, of a model whose rows differ (``sampling.regime_gibbs``)."""
    own = internal(model)
    data = CompleteData(own, series, draw_nodes(rng, own, old, series))
    point = Point(data, own.pack(old))
    if has_plain_emissions(own):
        family: Any = own.family
        counts, sums = state_statistics(rng, own, old.phi, series, data.states)
        phi = own.fixed_values.fill_phi(family.conditional(rng, old.phi, counts, sums, own.pinned_priors))
        point = Point(data, own.pack(old._replace(phi=phi)))
    else:
        point = draw_emissions(rng, point)
    return draw_transitions(rng, point).parameters


def draw_states(
    rng: np.random.Generator, model: Model, parameters: Parameters, series: Series, *, threads: int | None = None
) -> IntArray:
    """Draw a path of states (T,) given the series: filter forwards, sample backwards."""
    filtered = filter_states(model, parameters, series, threads=threads)
    path = np.empty(len(series), dtype=np.int64)
    uniform, fresh = rng.random(len(series)), sequence_starts(series, 0, len(series))
    stuck = draw_path_backward(filtered, parameters.transition, uniform, fresh, path)
    if stuck >= 0:
        raise ValueError(
            f"no state can be drawn at {series.place(stuck)}: forbidden transitions leave only states whose "
            "probability underflows. Use small transition probabilities, such as 1e-10, instead of zeros."
        )
    return path


def draw_parameters(
    rng: np.random.Generator, model: Model, old: Parameters, series: Series, path: IntArray
) -> Parameters:
    """Draw new parameters given the series and its states."""
    family: Any = model.family
    counts, sums = state_statistics(rng, model, old.phi, series, path)
    phi = model.fixed_values.fill_phi(family.conditional(rng, old.phi, counts, sums, model.pinned_priors))
    fresh = sequence_starts(series, 0, len(series))
    pairs = transition_counts(path, fresh, model.n_states)
    transition = model.fixed_values.fill_transition(draw_rows(rng, pairs + model.priors.transition.concentration))
    if model.start is not None:
        return Parameters(phi, transition, model.start)
    new = Parameters(phi, transition, stationary(transition))
    return new if accepts(rng, old.start, new.start, path[fresh]) else old._replace(phi=phi)


def state_statistics(
    rng: np.random.Generator, model: Model, phi: Array, series: Series, path: IntArray
) -> tuple[Array, Array]:
    """Number of observations (K,) in each state, and sums of their statistics (K, Q), centred at ``phi``.

    Missing observations are left out; where only some columns of a row are missing, they are drawn.
    """
    K, family = model.n_states, cast(Any, model.family)
    constants = [prepare(model.family, row) for row in phi]
    counts, sums = np.zeros(K), []
    for first, y in series.strides():
        x = np.where(observed_rows(family, y), path[first : first + len(y)], -1)
        for k, c in enumerate(constants):
            mine = y[x == k]
            value = tuple(hook(family, "complete")(rng, mine, phi[k]).T)
            counts[k] += len(value[0])
            found = statistics(model.family, value if len(value) > 1 else value[0], c)
            sums.append([np.broadcast_to(s, len(value[0])).sum() for s in found])
    return counts, np.array(sums).reshape(len(sums) // K, K, len(sums[0])).sum(0)


def transition_counts(path: IntArray, fresh: BoolArray, K: int) -> Array:
    """Number of transitions (K, K) along a path, without those from one sequence to the next."""
    joined = ~fresh[1:]
    pairs = path[:-1][joined] * K + path[1:][joined]
    return np.bincount(pairs, minlength=K * K).reshape(K, K).astype(float)


def draw_rows(rng: np.random.Generator, weight: Array) -> Array:
    """Draw the rows of a transition matrix from Dirichlet distributions with parameters ``weight`` (K, K).

    In log space, since gamma variates with a small shape underflow: G(a) is G(a + 1) U^(1/a).  Probabilities below
    ``SMALLEST`` are set to it.
    """
    logs = np.log(rng.standard_gamma(weight + 1)) - rng.standard_exponential(weight.shape) / weight
    return normalised_rows(np.exp(logs - logs.max(1, keepdims=True)))


def accepts(rng: np.random.Generator, old: Array, new: Array, first: IntArray) -> bool:
    r"""Metropolis test of a new start distribution.

    Accept ``new`` (K,) in place of ``old`` if :math:`u < \prod_s \pi'(x_{s1}) / \pi(x_{s1})`, u uniform.
    """
    with np.errstate(divide="ignore"):
        gain = np.log(new[first]).sum() - np.log(old[first]).sum()
    return bool(gain > -rng.standard_exponential())


def coordinates(rng: np.random.Generator, model: Model, parameters: Parameters) -> Array:
    """Point theta (d,) of a draw; what the parameters leave undetermined (row sums of expanded means) is drawn."""
    theta = model.pack(parameters)
    first, last = parameters.phi.size, len(model.vector) - model.coefficients.size
    rows = (model.free >= first) & (model.free < last)
    theta[rows] = model.coordinates.redrawn(rng, theta[rows], parameters.transition, model.priors.transition)
    return theta


def check_conjugate(model: Model) -> None:
    """Raise if the parameters of a model have no conjugate distribution given the states."""
    if not has(model.family, "conditional"):
        raise TypeError(
            f"{model.name} has no 'conditional' method, which Gibbs sampling needs to draw its parameters given "
            "the states (see rarehmm.emissions). Use langevin, or another family."
        )
    check_regimes(model)
    if model.priors.transition.concentration == 0 and model.coordinates.size(model.n_states) > 0:
        raise ValueError(
            "the concentration of the transition prior is 0: the posterior of transitions that never happen is "
            "improper, and Gibbs sampling would diverge. Use a proper prior, such as Dirichlet(1.0)."
        )
    for p, prior in zip(model.family.parameters, model.priors.emission, strict=True):
        if p.support == "positive" and isinstance(prior, Flat) and not model.logs:
            raise ValueError(
                f"the prior of {p.name!r} is Flat and the model has logs=False; Gibbs sampling takes Flat to be "
                "uniform in the logarithm. Use logs=True, or a proper prior."
            )
