"""Hamiltonian Monte Carlo on all data: each step reads the whole series."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from rarehmm.common.arrays import Array
from rarehmm.common.checks import check_generator, check_whole, warn_interrupted
from rarehmm.engine.lanes import LANES
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import Observations
from rarehmm.search.mode import Mode

OnStep = Callable[[int], None]


def hmc(
    rng: np.random.Generator,
    mode: Mode,
    series: Observations,
    steps: int,
    *,
    chains: int = LANES,
    leaps: int = 8,
    accept: float = 0.8,
    warm_up: int | None = None,
    threads: int | None = None,
    on_progress: OnStep | None = None,
) -> Array:
    """Draw from the posterior by Hamiltonian Monte Carlo on all data, in whitened coordinates.

    The number of leapfrog steps of each trajectory is drawn at random.  During a warm-up, the metric adapts from that
    of the mode to the covariance of the draws of all chains, and a common step size is tuned to the target acceptance
    rate.  On short series the chains advance together, one per SIMD lane: up to 16 of them cost as much as one.

    Parameters
    ----------
    rng
        Random number generator.
    mode
        Mode of the posterior, from ``find_mode``.
    series
        The observations.
    steps
        Number of draws per chain.
    chains
        Number of chains.
    leaps
        Mean number of leapfrog steps per trajectory.
    accept
        Target acceptance rate.
    warm_up
        Number of draws per chain that are left out; None (default): a quarter of ``steps``, at least 120.
    threads
        Number of threads; None (default): all available ones.
    on_progress
        Called as ``on_progress(step)`` after each step, warm-up included.

    Returns
    -------
    ndarray of shape (chains, steps, d)
        Draws of theta; fewer, with a warning, after Ctrl-C.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range, or no point near the mode has a finite posterior density.
    """
    check_generator(rng)
    check_whole("steps", steps)
    check_whole("chains", chains)
    check_whole("leaps", leaps)
    points, d = BatchedLogPosterior(mode.model, series, threads), len(mode.theta)
    centre, factor = mode.theta, mode.factor

    def evaluate(z: Array) -> ChainState:
        values, slopes = points.values_and_slopes(centre + z @ factor.T)
        return ChainState(z, values, slopes @ factor)

    out, warm, t = np.empty((chains, steps, d)), warm_up or max(120, steps // 4), 0
    here = evaluate(initial_positions(rng, mode, points, chains))
    log_size, visited = math.log(0.5 / d**0.25), []
    try:
        for t in range(-warm, steps):
            here, chance = trajectory(rng, evaluate, here, math.exp(log_size), leaps)
            theta = centre + here.z @ factor.T
            if t < 0:
                log_size += (chance - accept) * (t + warm + 10) ** -0.6
                visited.append(theta)
                if t in (-3 * warm // 4, -warm // 2):  # from the second half of the points visited so far
                    centre, factor = adapted_metric(np.array(visited[len(visited) // 2 :]), factor)
                    here = evaluate(solve_triangular(factor, (theta - centre).T, lower=True).T)
                    log_size = max(log_size, math.log(0.5 / d**0.25))
            else:
                out[:, t] = theta
            if on_progress is not None:
                on_progress(t + warm)
    except KeyboardInterrupt:
        warn_interrupted(chains * max(t, 0), chains * steps)
        out = out[:, :t]
    return out


class ChainState(NamedTuple):
    """Whitened positions z (chains, d) of all chains, with log densities (chains,) and their gradients (chains, d)."""

    z: Array
    value: Array
    slope: Array


def initial_positions(rng: np.random.Generator, mode: Mode, points: BatchedLogPosterior, chains: int) -> Array:
    """Whitened positions (chains, d) drawn from the Laplace approximation, resampled by posterior density."""
    around = rng.standard_normal((32 * chains, len(mode.theta)))
    height = points.values(mode.theta + around @ mode.factor.T) + (around**2).sum(1) / 2
    if not np.isfinite(height).any():
        raise ValueError(
            "no point near the mode has a finite posterior density: the posterior is too flat, as it is for "
            "transitions that never happen and have no prior. Use proper priors, such as Dirichlet(1.0)."
        )
    return np.asarray(around[np.argmax(height + rng.gumbel(size=(chains, len(height))), axis=1)])


def trajectory(
    rng: np.random.Generator, evaluate: Callable[[Array], ChainState], begin: ChainState, size: float, leaps: int
) -> tuple[ChainState, float]:
    """Advance each chain by one trajectory with a Metropolis correction.

    Returns the new state and the mean acceptance rate.  A trajectory that leaves the bounds is rejected.
    """
    momentum, end = rng.standard_normal(begin.z.shape), begin
    energy = begin.value - (momentum**2).sum(1) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(int(rng.integers(1, 2 * leaps))):
            momentum = momentum + size / 2 * end.slope
            end = evaluate(end.z + size * momentum)
            momentum = momentum + size / 2 * end.slope
        gain = np.nan_to_num(end.value - (momentum**2).sum(1) / 2 - energy, nan=-np.inf)
    chance = np.exp(np.minimum(0.0, gain))
    taken = rng.random(len(chance)) < chance
    z, slope = (np.where(taken[:, None], new, old) for new, old in ((end.z, begin.z), (end.slope, begin.slope)))
    return ChainState(z, np.where(taken, end.value, begin.value), slope), float(chance.mean())


def adapted_metric(visited: Array, factor: Array) -> tuple[Array, Array]:
    """Mean (d,) of the points visited (n, chains, d), and a factor (d, d) of their covariance.

    The covariance is shrunk towards the old one, the more so the fewer the points.
    """
    d = visited.shape[-1]
    flat = visited.reshape(-1, d)
    z = solve_triangular(factor, (flat - flat.mean(0)).T, lower=True)
    share = len(flat) / (len(flat) + 10.0 * d)
    inside = np.linalg.cholesky(share * (z @ z.T) / len(flat) + (1 - share) * np.eye(d))
    return flat.mean(0), factor @ inside


def metropolis_langevin(
    rng: np.random.Generator,
    mode: Mode,
    series: Observations,
    steps: int,
    *,
    chains: int = LANES,
    threads: int | None = None,
    on_progress: OnStep | None = None,
) -> Array:
    """Draw from the posterior by Metropolis-adjusted Langevin dynamics (MALA) on all data.

    This is Hamiltonian Monte Carlo with trajectories of a single step, tuned to the acceptance rate that is optimal for
    it.

    Parameters
    ----------
    rng
        Random number generator.
    mode
        Mode of the posterior, from ``find_mode``.
    series
        The observations.
    steps
        Number of draws per chain.
    chains
        Number of chains.
    threads
        Number of threads; None (default): all available ones.
    on_progress
        Called as ``on_progress(step)`` after each step, warm-up included.

    Returns
    -------
    ndarray of shape (chains, steps, d)
        Draws of theta; fewer, with a warning, after Ctrl-C.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range, or no point near the mode has a finite posterior density.
    """
    return hmc(rng, mode, series, steps, chains=chains, leaps=1, accept=0.574, threads=threads, on_progress=on_progress)
