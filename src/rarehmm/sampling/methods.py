"""Ways to sample a posterior around its mode; each returns draws (chains, n, d) with their checks.

``rule`` chooses among them.  States of the draws are labelled as the sampler left them; see ``relabel_like_mode``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.series import Series
from rarehmm.designs.pilot import pilot
from rarehmm.engine.contracts.design import Design, pooled
from rarehmm.engine.contracts.sampler import excess_variance
from rarehmm.engine.lanes import LANES
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.exact.passes import expectations, needs_edges
from rarehmm.model.coordinates import SMALLEST
from rarehmm.model.model import Model
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling.chains import run
from rarehmm.sampling.diagnostics import (
    BUFFER_BIAS,
    Check,
    Mixing,
    check_buffer,
    check_mixing,
    check_noise,
    mixing,
    windows_needed,
)
from rarehmm.sampling.gibbs import gibbs
from rarehmm.sampling.hmc import hmc
from rarehmm.sampling.importance import NEARLY_GAUSSIAN
from rarehmm.sampling.proposals import effective
from rarehmm.sampling.variational import gaussian_approximation
from rarehmm.search.long_series import anchored_sample
from rarehmm.search.mode import Mode, relabel_states
from rarehmm.windows.gradients import Frozen, freeze, window_gradients
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

TRAJECTORIES = ((8, 0.85), (16, 0.9))  # slow mixing needs longer trajectories of smaller steps
WORK = 5e9  # observations that gradients read, in all, with three states: about a minute
ONE_BY_ONE = 150_000  # observations that could be read while a gradient is set up where rows differ: one by one
LEAST_DRAWS = 20  # of each chain, and of its warm-up, whatever they cost
BUFFERS = (2, 5, 10, 20)
HALF_WIDTH = 2
MEMORY = 4 << 20  # bytes of windows gathered together: they stay in the cache
FAR = 32 << 20  # the same where the series is not in memory: each refill reads all of it
EXPLORED, EXPLORED_SAMPLE = 200_000, 50_000  # observations; a longer series is explored through such a sample of it
EXPLORING_STEPS = 24  # draws of each chain that explores, after as many that are left out

MakeDesign = Callable[[WindowInformation], Design]


class Sampled(NamedTuple):
    """Draws (chains, n, d), their checks, and the effective sample size of the worst component."""

    draws: Array
    checks: list[Check]
    effective: float


class Job(NamedTuple):
    """What a method is asked for: ``wanted`` effective draws around a mode.

    Methods on windows draw them by ``design`` and move by ``sampler``, in whitened coordinates.
    """

    rng: np.random.Generator
    mode: Mode
    series: Observations
    wanted: float = 1000.0
    threads: int | None = None
    on_progress: OnProgress = silent
    whole: Series | None = None  # the series of which ``series`` may be a sample of blocks
    executor: Any = None  # runs the chains in place of threads
    sampler: Any = Baoab()
    design: MakeDesign = pilot


def relabel_like_mode(mode: Mode, draws: Array) -> Array:
    """Draws (chains, n, d) with their states labelled as at the mode."""
    return relabel_states(mode, draws.reshape(-1, draws.shape[-1])).reshape(draws.shape)


def convert_coordinates(to: Model, of: Model, theta: Array) -> Array:
    """Draws (..., d) of a model in the coordinates of another, whose log ratios may refer to other entries of rows."""
    phi, transition = of.unpack_all(theta)
    return to.pack_all(phi, np.maximum(transition, SMALLEST), of.unpack_coefficients(theta))


# ---------------------------------------------------------------- Gaussians
def by_laplace(job: Job) -> Sampled:
    """Draws from the Gaussian at the mode, checked by importance sampling."""
    return gaussian_draws(job, job.mode.theta, job.mode.factor)


def by_variational(job: Job) -> Sampled:
    """Draws from the Gaussian closest to the posterior, fitted on the windows and control variates of ``by_chain``."""
    job.on_progress("variational inference", 0, 0)
    windows, frozen, bias = shortest_buffer(job)
    pool, noise = chain_pool(job, windows, frozen)
    scale = float(np.median(np.linalg.norm(job.mode.factor, axis=1)))
    found = gaussian_approximation(job.rng, job.mode.model, pool, job.mode.theta, 20_000, scale=scale)
    sampled = gaussian_draws(job, found.mean, found.factor)
    return sampled._replace(checks=[check_buffer(bias), noise, *sampled.checks])


def gaussian_draws(job: Job, mean: Array, factor: Array, chains: int = 4) -> Sampled:
    """Independent draws from a Gaussian, and a check that the posterior is close to it: the effective fraction of some
    of them as importance samples."""
    size = max(25, int(np.ceil(job.wanted / chains)))
    z = job.rng.standard_normal((chains, size, len(mean)))
    draws, few = mean + z @ factor.T, z.reshape(-1, len(mean))[:256]
    logs = (
        BatchedLogPosterior(job.mode.model, job.series, job.threads).values(mean + few @ factor.T) + (few**2).sum(1) / 2
    )
    share = effective(logs[np.isfinite(logs)]) / len(few) if np.isfinite(logs).any() else 0.0
    count, message = float(chains * size), "effective fraction of its draws as importance samples"
    near = Check("nearly Gaussian", share, share >= NEARLY_GAUSSIAN, message)
    return Sampled(draws, [near, Check("effective sample size", count, True, "the draws are independent")], count)


def mixed_draws(job: Job, draws: Array, mixed: Mixing) -> Sampled:
    """Draws of Markov chains with the checks of their mixing."""
    names = job.mode.model.component_names
    return Sampled(draws, check_mixing(mixed, names, job.wanted), mixed.smallest)


# ---------------------------------------------------------------- all data
def by_gibbs(job: Job, chains: int = 4) -> Sampled:
    """Gibbs sampling, as many sweeps as are needed within reason."""
    rng, mode, series, wanted, threads, on_progress, *_ = job
    model = mode.model
    spread = mode.theta + 1.5 * rng.standard_normal((chains, model.size)) @ mode.factor.T
    here = [model.unpack(np.clip(theta, *model.bounds)) for theta in spread]
    draws, steps = np.empty((chains, 0, model.size)), max(50, round(2 * wanted / chains))
    for _ in range(4):

        def report(sweep: int, begun: list[Array], steps: int = steps) -> None:
            on_progress("Gibbs sampling", len(begun) * steps + sweep, chains * steps)

        more: list[Array] = []
        for start in here:
            more.append(
                gibbs(
                    rng, model, rows_in(series), start, steps, threads=threads, on_progress=partial(report, begun=more)
                )
            )
        enough = min(len(one) for one in more)
        draws = np.concatenate([draws, [one[:enough] for one in more]], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        if enough < steps or mixed.smallest >= wanted:
            break
        here, steps = [model.unpack(one[-1]) for one in more], round(steps * min(4.0, 1.2 * wanted / mixed.smallest))
    return mixed_draws(job, draws, mixed)


def by_hmc(job: Job, ways: tuple[tuple[int, float], ...] = TRAJECTORIES, work: float = np.inf) -> Sampled:
    """Hamiltonian Monte Carlo, as many draws as are needed and ``work`` has room for.

    ``ways`` holds leapfrog steps and target acceptance of the first and further rounds; ``work`` is the number of
    observations that all gradients together may read.
    """
    rng, mode, series, wanted, threads, on_progress, *_ = job
    draws, steps = np.empty((LANES, 0, len(mode.theta))), max(100, round(4 * wanted / LANES))
    for leaps, accept in ways:
        left = work / (leaps * LANES * gradient_cost(mode.model, series))  # trajectories, with those of the warm-up
        warm_up = max(120, steps // 4)
        if steps + warm_up > left:
            steps, warm_up = (max(LEAST_DRAWS, int(share * left)) for share in (0.7, 0.3))
            if draws.size > 0 and steps < 100:
                break
        work -= (steps + warm_up) * leaps * LANES * gradient_cost(mode.model, series)

        def report(step: int, total: int = steps + warm_up) -> None:
            on_progress("Hamiltonian Monte Carlo", step, total)

        more = hmc(
            rng, mode, series, steps, leaps=leaps, accept=accept, warm_up=warm_up, threads=threads, on_progress=report
        )
        draws = np.concatenate([draws, more], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        missing = 1.2 * wanted / mixed.smallest - 1  # times as many draws as there are
        if more.shape[1] < steps or missing <= 0.2 or mixed.r_hat.max() > 1.5:
            break
        steps = round(steps * min(8.0, missing) + 20)
    return mixed_draws(job, draws, mixed)


def affordable_work(job: Job) -> float:
    """Observations that gradients may read in about a minute, which is fewer with more states."""
    return WORK * min(1.0, (3 / job.mode.model.n_states) ** 2)


def gradient_cost(model: Model, series: Observations) -> int:
    """Number of observations that could be read in the time of a gradient."""
    return len(series) + (ONE_BY_ONE if needs_edges(model, series) else 0)


def explore(job: Job, modes: list[Mode]) -> tuple[Array, bool]:
    """Draws (n, d) of short chains of Hamiltonian Monte Carlo from each mode, labelled as at the job's mode.

    They show how far the posterior reaches, not how it is distributed.  A long series is represented by a sample of
    its blocks.  Also whether there was time for all of them: not after Ctrl-C.
    """
    steps, series = EXPLORING_STEPS, job.whole or rows_in(job.series)
    found: list[Array] = []
    for m in modes:
        data: Observations = series
        if len(series) > EXPLORED:
            data = anchored_sample(job.rng, m, series, EXPLORED_SAMPLE, job.threads)

        def report(step: int, done: int = 2 * steps * len(found)) -> None:
            job.on_progress("exploring the posterior", done + step, 2 * steps * len(modes))

        draws = hmc(job.rng, m, data, steps, warm_up=steps, threads=job.threads, on_progress=report)
        found.append(convert_coordinates(job.mode.model, m.model, draws.reshape(-1, draws.shape[-1])))
        if draws.shape[1] < steps:
            break
    return relabel_states(job.mode, np.concatenate(found)), draws.shape[1] == steps


# ---------------------------------------------------------------- windows
def half_width(series: Observations) -> int:
    """Half-width of the windows of a series: the usual one, or what the longest sequence has room for."""
    longest = int(np.diff(series.bounds).max())
    if longest < 3:
        raise ValueError(
            f"the longest sequence has {longest} observations, and windows have 3 at least; use another method, "
            "such as 'auto'."
        )
    return min(HALF_WIDTH, (longest - 1) // 2)


def shortest_buffer(job: Job) -> tuple[Windows, Frozen, float]:
    """Windows with the shortest buffer with which they add up to the exact gradient at two points near the mode.

    Also their control variates, and the bias that is left: the largest whitened component of what is missing.
    """
    rng, mode, series, threads = job.rng, job.mode, job.series, job.threads
    points = [mode.theta + mode.factor @ rng.standard_normal(len(mode.theta)) for _ in range(2)]
    model, width = mode.model, half_width(series)
    sums = [expectations(model, model.unpack(theta), series, threads=threads) for theta in points]
    exact = [
        model.gradient_from_expectations(at, s.scores, s.pairs, s.first) for at, s in zip(points, sums, strict=True)
    ]
    for buffer in BUFFERS:
        windows = Windows(series, width, buffer)
        frozen = freeze(mode.model, mode.theta, series, windows, threads=threads)
        bias = 0.0
        for theta, slope in zip(points, exact, strict=True):
            each = window_gradients(mode.model, theta, series, windows, messages=frozen.messages, threads=threads)
            bias = max(bias, float(np.abs(mode.factor.T @ (each.sum(0) - slope)).max()))
        if bias < BUFFER_BIAS:
            break
    return windows, frozen, bias


def chain_pool(job: Job, windows: Windows, frozen: Frozen) -> tuple[Pool, Check]:
    """Windows drawn by the job's design, as many per step as its sampler needs, and whether that is enough."""
    rng, mode, series, threads = job.rng, job.mode, job.series, job.threads
    info = WindowInformation.around(rng, mode, series, windows, frozen=frozen, threads=threads)
    design, excess = pooled(job.design(info)), excess_variance(job.sampler)
    noise = largest_noise(job, windows, frozen, design)
    size, memory = windows_needed(excess, noise), MEMORY if series.in_memory else FAR
    pool = Pool(mode.model, series, windows, design, size, frozen=frozen, memory=memory)
    return pool, check_noise(excess, noise, size)


def largest_noise(job: Job, windows: Windows, frozen: Frozen, design: Design, points: int = 4) -> float:
    """Largest eigenvalue of the whitened noise of one window, averaged over fresh points."""
    info = WindowInformation.around(
        job.rng, job.mode, job.series, windows, frozen=frozen, points=points, threads=job.threads
    )
    return float(np.mean([np.linalg.eigvalsh(noise_of_one_window(c, design))[-1] for c in info.whitened_changes()]))


def noise_of_one_window(whitened: Array, design: Design) -> Array:
    r"""Covariance (d, d) of the whitened estimate from one window, from whitened changes :math:`\Delta_n` (N, d):
    :math:`\sum_n \Delta_n \Delta_n^\top / q_n - (\sum \Delta_n)(\sum \Delta_n)^\top`."""
    q = design.probabilities[0]
    total = whitened.sum(0)
    return np.asarray((whitened / q[:, None]).T @ whitened - np.outer(total, total))


def by_chain(job: Job, pool: Pool, chains: int = 4) -> Sampled:
    """Chains of the job's sampler on windows with control variates."""
    rng, mode, wanted = job.rng, job.mode, job.wanted
    move = partial(run, rng, job.sampler, mode.model, mode=mode, threads=job.threads, executor=job.executor)
    here = mode.theta + 1.5 * rng.standard_normal((chains, len(mode.theta))) @ mode.factor.T
    first = move(pool, here, 100)
    draws, steps = first, max(200, round(9 * wanted / chains))
    mixed = mixing(relabel_like_mode(mode, draws))
    for _ in range(5 if first.shape[1] == 100 else 0):  # else Ctrl-C was pressed
        more = move(pool, draws[:, -1], steps, thin=2, on_progress=partial(job.on_progress, "chains"))
        draws = more if draws is first else np.concatenate([draws, more], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        if more.shape[1] < steps // 2 or mixed.smallest >= wanted:
            break
    return mixed_draws(job, draws, mixed)
