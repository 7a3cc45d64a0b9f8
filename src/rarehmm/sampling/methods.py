"""The ways to sample a posterior around its mode: each returns draws (chains, n, d) and their checks.

``inference`` chooses among them.  States of the draws are named as the sampler left them; see ``named``.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.series import Series
from rarehmm.designs.pilot import noise_of_one_window, pilot, whitened_changes
from rarehmm.designs.targeted import targeted
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.design import Design
from rarehmm.engine.contracts.sampler import DivergedError
from rarehmm.engine.lanes import LANES
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.passes import expectations
from rarehmm.model.coordinates import SMALLEST, ExpandedMean
from rarehmm.model.model import Model
from rarehmm.samplers.baoab import Baoab
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.sampling.chains import run
from rarehmm.sampling.diagnostics import Check, check_buffer, check_mixing, check_noise, mixing, windows_needed
from rarehmm.sampling.gibbs import gibbs
from rarehmm.sampling.hmc import hmc
from rarehmm.sampling.importance import effective
from rarehmm.sampling.variational import gaussian_approximation
from rarehmm.search.mode import Mode, relabel_states
from rarehmm.windows.gradients import Frozen, freeze, window_gradients, window_sums
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

TRAJECTORIES = ((8, 0.85), (16, 0.9))  # what mixes slowly needs longer ways in smaller steps
WORK = 5e9  # observations that gradients read, in all: about a minute
BUFFERS = (2, 5, 10, 20)
HALF_WIDTH = 2
MEMORY = 4 << 20  # bytes of windows gathered together: they stay in the cache
FAR = 32 << 20  # the same where the series is not in memory: each refill reads all of it
NEARLY_GAUSSIAN = 0.8  # share of effective points of the Laplace approximation
PAPER_BUFFER = 5  # of the paper's section 4.1
PAPER_STEPS, THIN = 200_000, 20  # most steps of its chains; of so many one is kept

Sampled = tuple[Array, list[Check]]


class Job(NamedTuple):
    """What is asked of a method: ``wanted`` effective draws around a mode; ``watch`` is told of the progress."""

    rng: np.random.Generator
    mode: Mode
    series: Series
    wanted: float = 1000.0
    threads: int | None = None
    on_progress: OnProgress = silent
    executor: Any = None  # who runs the chains, if not threads


def relabel_like_mode(mode: Mode, draws: Array) -> Array:
    """Draws (chains, n, d) with their states named as at the mode."""
    return relabel_states(mode, draws.reshape(-1, draws.shape[-1])).reshape(draws.shape)


def convert_coordinates(to: Model, of: Model, theta: Array) -> Array:
    """Draws (..., d) of a model in the coordinates of another one, which may refer to other entries of rows."""
    phi, transition = of.unpack_all(theta)
    return to.pack_all(phi, np.maximum(transition, SMALLEST))


# ---------------------------------------------------------------- Gaussians
def by_laplace(job: Job) -> Sampled:
    """Draws from the Gaussian at the mode; good if importance sampling says that the posterior nearly is one."""
    return gaussian_draws(job, job.mode.theta, job.mode.factor)


def by_variational(job: Job) -> Sampled:
    """Draws from the Gaussian that is closest to the posterior, on the windows and control variates of ``by_chain``."""
    job.on_progress("variational inference", 0, 0)
    windows, frozen, bias = shortest_buffer(job)
    pool, noise = pilot_pool(job, windows, frozen)
    scale = float(np.median(np.linalg.norm(job.mode.factor, axis=1)))
    found = gaussian_approximation(job.rng, job.mode.model, pool, job.mode.theta, 20_000, scale=scale)
    draws, checks = gaussian_draws(job, found.mean, found.factor)
    return draws, [check_buffer(bias), noise, *checks]


def gaussian_draws(job: Job, mean: Array, factor: Array, chains: int = 4) -> Sampled:
    """Independent draws of a Gaussian, with a word on whether the posterior nearly is that one: the effective share of
    some of them as points of importance sampling."""
    size = max(25, int(np.ceil(job.wanted / chains)))
    z = job.rng.standard_normal((chains, size, len(mean)))
    draws, few = mean + z @ factor.T, z.reshape(-1, len(mean))[:256]
    logs = (
        BatchedLogPosterior(job.mode.model, job.series, job.threads).values(mean + few @ factor.T) + (few**2).sum(1) / 2
    )
    share = effective(logs[np.isfinite(logs)]) / len(few) if np.isfinite(logs).any() else 0.0
    message = "share of its draws that are effective as points of importance sampling"
    return draws, [
        Check("nearly Gaussian", share, share >= NEARLY_GAUSSIAN, message),
        Check("effective draws", float(chains * size), True, "they are independent"),
    ]


# ---------------------------------------------------------------- all data
def by_gibbs(job: Job, chains: int = 4) -> Sampled:
    """Gibbs sampling, as many sweeps as are needed within reason."""
    rng, mode, series, wanted, threads, on_progress, _ = job
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
                gibbs(rng, model, series, start, steps, threads=threads, on_progress=partial(report, begun=more))
            )
        enough = min(len(one) for one in more)
        draws = np.concatenate([draws, [one[:enough] for one in more]], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        if enough < steps or mixed.bulk.min() >= wanted:
            break
        here, steps = [model.unpack(one[-1]) for one in more], round(steps * min(4.0, 1.2 * wanted / mixed.bulk.min()))
    return draws, check_mixing(mixed, model.component_names, wanted)


def by_hmc(job: Job, ways: tuple[tuple[int, float], ...] = TRAJECTORIES, work: float = np.inf) -> Sampled:
    """Hamiltonian Monte Carlo, as many draws as are needed.

    ``ways``: leapfrog steps and acceptance of the first and further rounds.  A further one is as long as ``work`` has
    room for, the observations that all gradients together may read.
    """
    rng, mode, series, wanted, threads, on_progress, _ = job
    draws, steps = np.empty((LANES, 0, len(mode.theta))), max(100, round(4 * wanted / LANES))
    for leaps, accept in ways:
        left = work / (leaps * LANES * len(series))  # trajectories, those of the warm-up among them
        if draws.size > 0:
            steps = int(min(steps, left - 120, 0.8 * left))
            if steps < 100:
                break
        work -= (steps + max(120, steps // 4)) * leaps * LANES * len(series)

        def report(step: int, steps: int = steps) -> None:
            on_progress("Hamiltonian Monte Carlo", step, steps + max(120, steps // 4))

        more = hmc(rng, mode, series, steps, leaps=leaps, accept=accept, threads=threads, on_progress=report)
        draws = np.concatenate([draws, more], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        missing = 1.2 * wanted / mixed.bulk.min() - 1  # times as many draws as there are
        if more.shape[1] < steps or missing <= 0.2 or mixed.r_hat.max() > 1.5:
            break
        steps = round(steps * min(8.0, missing) + 20)
    return draws, check_mixing(mixed, mode.model.component_names, wanted)


# ---------------------------------------------------------------- windows
def half_width(series: Series) -> int:
    """Of the windows of a series: the usual one, or what the longest sequence has room for."""
    longest = int(np.diff(series.bounds).max())
    if longest < 3:
        raise ValueError(
            f"the longest sequence has {longest} observations, and windows have 3 at least; use another method, "
            "such as 'auto'."
        )
    return min(HALF_WIDTH, (longest - 1) // 2)


def shortest_buffer(job: Job) -> tuple[Windows, Frozen, float]:
    """Windows with the shortest buffer whose windows add up to the exact gradient at two pilot points, and what it
    leaves out there: largest whitened component."""
    rng, mode, series, _, threads, _, _ = job
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
        if bias < 0.05:
            break
    return windows, frozen, bias


def pilot_pool(job: Job, windows: Windows, frozen: Frozen) -> tuple[Pool, Check]:
    """Windows by a pilot design, as many a step as the noise of the gradient asks for, and whether that is enough."""
    rng, mode, series, _, threads, _, _ = job
    design = pilot(rng, mode, series, windows, frozen, threads=threads)
    noise = largest_noise(job, windows, frozen, design)
    size, memory = windows_needed(Baoab(), noise), MEMORY if series.in_memory else FAR
    pool = Pool(mode.model, series, windows, design, size, frozen=frozen, memory=memory)
    return pool, check_noise(Baoab(), noise, size)


def largest_noise(job: Job, windows: Windows, frozen: Frozen, design: Design, points: int = 4) -> float:
    """Largest eigenvalue of the whitened noise of one window, on average over fresh points."""
    changes = (whitened_changes(job.rng, job.mode, job.series, windows, frozen, job.threads) for _ in range(points))
    return float(np.mean([np.linalg.eigvalsh(noise_of_one_window(c, design))[-1] for c in changes]))


def by_chain(job: Job, pool: Pool, chains: int = 4) -> Sampled:
    """BAOAB on windows with control variates."""
    rng, mode, _, wanted, threads, on_progress, executor = job
    move = partial(run, rng, Baoab(), mode.model, mode=mode, threads=threads, executor=executor)
    here = mode.theta + 1.5 * rng.standard_normal((chains, len(mode.theta))) @ mode.factor.T
    first = move(pool, here, 100)
    draws, steps = first, max(200, round(9 * wanted / chains))
    mixed = mixing(relabel_like_mode(mode, draws))
    for _ in range(5 if first.shape[1] == 100 else 0):  # else Ctrl-C was pressed
        more = move(pool, draws[:, -1], steps, thin=2, on_progress=partial(on_progress, "chains"))
        draws = more if draws is first else np.concatenate([draws, more], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        if more.shape[1] < steps // 2 or mixed.bulk.min() >= wanted:
            break
    return draws, check_mixing(mixed, mode.model.component_names, wanted)


# ---------------------------------------------------------------- the paper
def by_paper(job: Job, is_targeted: bool, chains: int = 4) -> Sampled:
    """The paper's sampler from the mode: Langevin dynamics of variances and expanded means, a window for each
    component, by targeted weights or by chance.  Its step, 1 / T, is halved as long as chains diverge.

    Nothing corrects for the noise of its gradients: its draws are flagged unless they happen to be right.
    """
    rng, mode, series, wanted, threads, on_progress, _ = job
    if not mode.model.fixed_values.is_empty:
        raise ValueError("the paper's samplers do not know of fixed values; use another method, such as 'auto'.")
    model = replace(mode.model, coordinates=ExpandedMean(), logs=False)
    pool, begin = paper_pool(job, model, is_targeted), model.pack(mode.model.unpack(mode.theta))
    here, size, steps = np.tile(begin, (chains, 1)), 2.0 / len(series), PAPER_STEPS // 50
    draws, done = np.empty((chains, 0, mode.model.size)), 0
    while done < PAPER_STEPS:
        report = partial(on_progress, "the paper's sampler")
        try:
            more = run(
                rng, ExpandedMeanSgld(size), model, pool, here, steps, thin=THIN, threads=threads, on_progress=report
            )
        except DivergedError:
            if size < 1e-6 / len(series):
                raise
            draws, done, size, here = draws[:, :0], 0, size / 2, np.tile(begin, (chains, 1))
            continue
        draws = np.concatenate([draws, convert_coordinates(mode.model, model, more)], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        if more.shape[1] < steps // THIN or mixed.bulk.min() >= wanted:
            break
        done, here = done + steps, more[:, -1]
        steps = min(2 * done, PAPER_STEPS - done)
    step = Check("step size", size * len(series) / 2, True, "of the paper's sampler, times the length of the series")
    return draws, [step, *check_mixing(mixed, mode.model.component_names, wanted)]


def paper_pool(job: Job, model: Model, is_targeted: bool) -> Pool:
    """One window for each component, by the paper's weights at the mode or by chance, without control variates."""
    windows = Windows(job.series, half_width(job.series), PAPER_BUFFER)
    design = uniform(windows)
    if is_targeted:
        parameters = job.mode.model.unpack(job.mode.theta)
        sums = window_sums(model, parameters, job.series, windows, threads=job.threads)
        design = targeted(model, model.pack(parameters), sums)
    memory = MEMORY if job.series.in_memory else FAR
    return Pool(model, job.series, windows, design, 1, separate=True, memory=memory)
