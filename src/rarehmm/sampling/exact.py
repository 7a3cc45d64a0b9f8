"""Full-data methods: Gibbs sampling, whose draws follow the posterior, and Langevin dynamics on exact gradients.

Each step reads the whole series.  They are what the methods on windows are measured against, and what is left for
series so short that windows gain nothing.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.linalg import solve_triangular

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.checks import check_generator, check_whole, warn_interrupted
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import prepare, statistics, there
from rarehmm.engine.contracts.sampler import DivergedError, Divergence, check_sampler, first_memory, noise_rows, step
from rarehmm.engine.kernels.sequential import draw_path_back
from rarehmm.engine.lanes import LANES
from rarehmm.exact.batched import Points
from rarehmm.exact.em import SMALLEST, rows
from rarehmm.exact.passes import begins, filter_states, log_posterior
from rarehmm.model.coordinates import ExpandedMean
from rarehmm.model.model import Model, Parameters, check_learnable
from rarehmm.model.priors import Flat
from rarehmm.model.stationary import stationary
from rarehmm.search.mode import Mode

Watch = Callable[[int], None]


# ---------------------------------------------------------------- Gibbs sampling
def gibbs(
    rng: np.random.Generator,
    model: Model,
    series: Series,
    start: Parameters,
    steps: int,
    *,
    threads: int | None = None,
    watch: Watch | None = None,
) -> Array:
    r"""Draws of theta (steps, d) by Gibbs sampling: states given parameters, then parameters given states.

    The states are drawn all at once (``draw_states``), the parameters from their conjugate laws: rows of P from
    :math:`Dirichlet(\alpha + n_j)`, emissions by the family's ``conditional``.  Where the start is the stationary law
    :math:`\pi(P)`, a new P is accepted with probability :math:`\min(1, \prod_s \pi'(x_{s1}) / \pi(x_{s1}))` over
    sequences s (all rows or none).  The first draw is the one after ``start``.

    Under ``ExpandedMean`` coordinates the sums of rows, of which the data know nothing, are drawn from their prior
    :math:`Gamma(K\alpha, 1)`.  A parameter without a prior whose state has lost all its observations ends the chain
    with an error: the posterior is then improper, and to keep the old value would hide it.  ``watch(step)`` is told of
    each sweep.  Draws do not depend on ``threads``.
    """
    check_conjugate(model)
    here = checked_start(rng, model, series, start, steps)
    draws, sweep = np.empty((steps, model.size)), 0
    try:
        for sweep in range(steps):
            path = draw_states(rng, model, here, series, threads=threads)
            here = draw_parameters(rng, model, here, series, path)
            draws[sweep] = coordinates(rng, model, here)
            if watch is not None:
                watch(sweep)
    except KeyboardInterrupt:
        warn_interrupted(sweep, steps)
        draws = draws[:sweep]
    return draws


def draw_states(
    rng: np.random.Generator, model: Model, parameters: Parameters, series: Series, *, threads: int | None = None
) -> IntArray:
    """A path of states (T,) from its law given the series: filtered forwards, drawn backwards."""
    filtered = filter_states(model, parameters, series, threads=threads)
    path = np.empty(len(series), dtype=np.int64)
    uniform, fresh = rng.random(len(series)), begins(series, 0, len(series))
    stuck = draw_path_back(filtered, parameters.transition, uniform, fresh, path)
    if stuck >= 0:
        raise ValueError(
            f"no state can be drawn at {series.place(stuck)}: forbidden transitions leave only states with a "
            "probability too small for a number. Use small transition probabilities, such as 1e-10, instead of zeros."
        )
    return path


def draw_parameters(
    rng: np.random.Generator, model: Model, old: Parameters, series: Series, path: IntArray
) -> Parameters:
    """New parameters from their law given the series and its states."""
    family: Any = model.family
    counts, sums = state_statistics(rng, model, old.phi, series, path)
    phi = model.known.in_phi(family.conditional(rng, old.phi, counts, sums, model.pinned_priors))
    fresh = begins(series, 0, len(series))
    pairs = transition_counts(path, fresh, model.n_states)
    transition = model.known.in_rows(draw_rows(rng, pairs + model.priors.transition.concentration))
    if model.start is not None:
        return Parameters(phi, transition, model.start)
    new = Parameters(phi, transition, stationary(transition))
    return new if accepts(rng, old.start, new.start, path[fresh]) else old._replace(phi=phi)


def state_statistics(
    rng: np.random.Generator, model: Model, phi: Array, series: Series, path: IntArray
) -> tuple[Array, Array]:
    """Observations of each state (K,) and sums of its statistics (K, Q), centred at ``phi``; missing ones left out, or
    drawn where only some columns of a row are missing."""
    K, family = model.n_states, cast(Any, model.family)
    constants = [prepare(model.family, row) for row in phi]
    counts, sums = np.zeros(K), []
    for first, y in series.strides():
        x = np.where(there(family, y), path[first : first + len(y)], -1)
        for k, c in enumerate(constants):
            mine = y[x == k]
            value = tuple((family.complete(rng, mine, phi[k]) if hasattr(family, "complete") else mine).T)
            counts[k] += len(value[0])
            found = statistics(model.family, value if len(value) > 1 else value[0], c)
            sums.append([np.broadcast_to(s, len(value[0])).sum() for s in found])
    return counts, np.array(sums).reshape(len(sums) // K, K, len(sums[0])).sum(0)


def transition_counts(path: IntArray, fresh: BoolArray, K: int) -> Array:
    """How often each state followed each other (K, K), not across joins of sequences."""
    joined = ~fresh[1:]
    pairs = path[:-1][joined] * K + path[1:][joined]
    return np.bincount(pairs, minlength=K * K).reshape(K, K).astype(float)


def draw_rows(rng: np.random.Generator, weight: Array) -> Array:
    """Rows of a transition matrix from Dirichlet laws with the parameters ``weight`` (K, K).

    In logarithms, since Gamma numbers with a small parameter underflow: G(a) is G(a + 1) U^(1/a).  Probabilities below
    ``SMALLEST`` are set to it.
    """
    logs = np.log(rng.standard_gamma(weight + 1)) - rng.standard_exponential(weight.shape) / weight
    return rows(np.exp(logs - logs.max(1, keepdims=True)))


def accepts(rng: np.random.Generator, old: Array, new: Array, first: IntArray) -> bool:
    r"""Whether the start law ``old`` (K,) gives way to ``new``: :math:`u < \prod_s \pi'(x_{s1}) / \pi(x_{s1})`."""
    with np.errstate(divide="ignore"):
        gain = np.log(new[first]).sum() - np.log(old[first]).sum()
    return bool(gain > -rng.standard_exponential())


def coordinates(rng: np.random.Generator, model: Model, parameters: Parameters) -> Array:
    """theta (d,); row sums of expanded means, which P does not fix, are drawn from their prior."""
    theta = model.pack(parameters)
    if isinstance(model.coordinates, ExpandedMean):
        K = model.n_states
        sums = rng.gamma(K * model.priors.transition.concentration, size=(K, 1))
        theta[-K * K :] = np.maximum(sums * parameters.transition, SMALLEST).ravel()
    return theta


# ---------------------------------------------------------------- Langevin dynamics
def langevin(
    rng: np.random.Generator,
    sampler: Any,
    model: Model,
    series: Series,
    start: Parameters,
    steps: int,
    *,
    threads: int | None = None,
    watch: Watch | None = None,
) -> Array:
    """Draws of theta (steps, d) by the steps of a sampler on the gradient of the whole series, without correction.

    The law of the draws is that of the discretised dynamics: right up to an error of the order of the step size.
    Memory (velocities) begins at zero; the first draw is the one after ``start``; ``watch(step)`` is told of each.
    """
    theta = model.pack(checked_start(rng, model, series, start, steps))
    check_sampler(sampler, model.powers, model.component_names)
    memory = first_memory(sampler, theta)
    draws = np.empty((steps, model.size))
    for t in range(steps):
        _, slope = log_posterior(model, theta, series, threads=threads)
        noise = rng.standard_normal((noise_rows(sampler), model.size))
        with np.errstate(over="ignore", invalid="ignore"):  # said in other words below
            step(sampler, theta, slope, noise, memory, model.powers)
        draws[t] = theta
        try:
            model.unpack(theta)
        except ValueError as error:
            low, high = model.bounds
            component = model.component_names[int(np.argmin((theta >= low) & (theta <= high)))]
            draws[t:] = np.nan
            raise DivergedError([Divergence(component, t, 0)], draws[None]) from error
        if watch is not None:
            watch(t)
    return draws


# ---------------------------------------------------------------- Hamiltonian Monte Carlo
def hmc(
    rng: np.random.Generator,
    mode: Mode,
    series: Series,
    steps: int,
    *,
    chains: int = LANES,
    leaps: int = 8,
    accept: float = 0.8,
    threads: int | None = None,
    watch: Watch | None = None,
) -> Array:
    """Draws of theta (chains, steps, d) by Hamiltonian Monte Carlo on all data, in whitened coordinates.

    Trajectories of about ``leaps`` leapfrog steps, their number drawn anew for each.  In a warm-up of a quarter as many
    draws (120 at least) the metric goes from that of the mode to the covariance of the draws of all chains, and one
    step size for all is found for an acceptance of about ``accept``.  On short series the chains are advanced together,
    one in each SIMD lane: up to 16 of them cost as much as one.  ``watch(step)`` is told of each step, warm-up
    included; Ctrl-C returns the draws so far.
    """
    check_generator(rng)
    check_whole("steps", steps)
    check_whole("chains", chains)
    check_whole("leaps", leaps)
    points, d = Points(mode.model, series, threads), len(mode.theta)
    centre, factor = mode.theta, mode.factor

    def place(z: Array) -> Place:
        values, slopes = points.values_and_slopes(centre + z @ factor.T)
        return Place(z, values, slopes @ factor)

    out, warm, t = np.empty((chains, steps, d)), max(120, steps // 4), 0
    here = place(likely_starts(rng, mode, points, chains))
    log_size, visited = math.log(0.5 / d**0.25), []
    try:
        for t in range(-warm, steps):
            here, chance = trajectory(rng, place, here, math.exp(log_size), leaps)
            theta = centre + here.z @ factor.T
            if t < 0:
                log_size += (chance - accept) * (t + warm + 10) ** -0.6
                visited.append(theta)
                if t in (-3 * warm // 4, -warm // 2):  # a metric from where the chains have been since the last
                    centre, factor = learnt_metric(np.array(visited[len(visited) // 2 :]), factor)
                    here = place(solve_triangular(factor, (theta - centre).T, lower=True).T)
                    log_size = max(log_size, math.log(0.5 / d**0.25))
            else:
                out[:, t] = theta
            if watch is not None:
                watch(t + warm)
    except KeyboardInterrupt:
        warn_interrupted(chains * max(t, 0), chains * steps)
        out = out[:, :t]
    return out


class Place(NamedTuple):
    """Where chains stand: whitened positions z (chains, d), log densities (chains,) and their slopes (chains, d)."""

    z: Array
    value: Array
    slope: Array


def likely_starts(rng: np.random.Generator, mode: Mode, points: Points, chains: int) -> Array:
    """Whitened positions (chains, d) from the Laplace approximation, the more probable the likelier."""
    around = rng.standard_normal((32 * chains, len(mode.theta)))
    height = points.values(mode.theta + around @ mode.factor.T) + (around**2).sum(1) / 2
    if not np.isfinite(height).any():
        raise ValueError(
            "no point near the mode has a posterior density: it is too flat there, as that of transitions that never "
            "happen without a prior. Give priors, such as Dirichlet(1.0)."
        )
    return np.asarray(around[np.argmax(height + rng.gumbel(size=(chains, len(height))), axis=1)])


def trajectory(
    rng: np.random.Generator, place: Callable[[Array], Place], begin: Place, size: float, leaps: int
) -> tuple[Place, float]:
    """A trajectory of each chain with its Metropolis correction: where they are then, and their mean acceptance.  One
    that leaves all bounds is not taken."""
    momentum, end = rng.standard_normal(begin.z.shape), begin
    energy = begin.value - (momentum**2).sum(1) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(int(rng.integers(1, 2 * leaps))):
            momentum = momentum + size / 2 * end.slope
            end = place(end.z + size * momentum)
            momentum = momentum + size / 2 * end.slope
        gain = np.nan_to_num(end.value - (momentum**2).sum(1) / 2 - energy, nan=-np.inf)
    chance = np.exp(np.minimum(0.0, gain))
    taken = rng.random(len(chance)) < chance
    z, slope = (np.where(taken[:, None], new, old) for new, old in ((end.z, begin.z), (end.slope, begin.slope)))
    return Place(z, np.where(taken, end.value, begin.value), slope), float(chance.mean())


def learnt_metric(visited: Array, factor: Array) -> tuple[Array, Array]:
    """Mean (d,) of points visited (n, chains, d) and a factor (d, d) of their covariance, drawn towards the old one as
    far as chains that hardly move leave it in doubt."""
    d = visited.shape[-1]
    flat = visited.reshape(-1, d)
    z = solve_triangular(factor, (flat - flat.mean(0)).T, lower=True)
    share = len(flat) / (len(flat) + 10.0 * d)
    inside = np.linalg.cholesky(share * (z @ z.T) / len(flat) + (1 - share) * np.eye(d))
    return flat.mean(0), factor @ inside


def metropolis_langevin(
    rng: np.random.Generator,
    mode: Mode,
    series: Series,
    steps: int,
    *,
    chains: int = LANES,
    threads: int | None = None,
    watch: Watch | None = None,
) -> Array:
    """Draws of theta (chains, steps, d) by Langevin dynamics on all data with a Metropolis correction (MALA).

    That is Hamiltonian Monte Carlo with trajectories of one step, accepted at the rate that is best for it.
    """
    return hmc(rng, mode, series, steps, chains=chains, leaps=1, accept=0.574, threads=threads, watch=watch)


# ---------------------------------------------------------------- the door
def check_conjugate(model: Model) -> None:
    """Refuse a model whose parameters have no conjugate law given the states."""
    if not hasattr(model.family, "conditional"):
        raise TypeError(
            f"{model.name} has no 'conditional', which draws its parameters given the states, and Gibbs sampling "
            "needs it (see rarehmm.emissions). Use langevin, or another family."
        )
    if model.priors.transition.concentration == 0 and model.coordinates.size(model.n_states) > 0:
        raise ValueError(
            "the concentration of the transition prior is 0: transitions that never happen have no posterior, and "
            "Gibbs sampling would run off. Give them a prior, such as Dirichlet(1.0)."
        )
    for p, prior in zip(model.family.parameters, model.priors.emission, strict=True):
        if p.support == "positive" and isinstance(prior, Flat) and not model.logs:
            raise ValueError(
                f"the prior of {p.name!r} is Flat and the model has logs=False; Gibbs sampling knows Flat as uniform "
                "in the logarithm. Use logs=True, or give it a prior."
            )


def checked_start(rng: np.random.Generator, model: Model, series: Series, start: Parameters, steps: int) -> Parameters:
    """The parameters to start from, with the start law of the model; refuse what no chain can run on."""
    check_generator(rng)
    check_whole("steps", steps)
    model.check(series)
    check_learnable(model.family, model.n_states, series)
    model.check_parameters(start)
    here = model.natural(start.phi, start.transition)
    model.unpack(model.pack(here))  # inside the bounds of theta
    return here
