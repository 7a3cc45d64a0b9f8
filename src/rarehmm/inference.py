"""The decision rule: which method samples the posterior, and why.

1. The posterior is nearly Gaussian in cube-root coordinates (importance sampling from the Laplace approximation keeps
   at least 80 % of its points) and a buffer passes its test: chains on windows with control variates, whose cost does
   not grow with the series.
2. Else adaptive importance sampling on forward passes, accepted only if no few points carry it.
3. Else Hamiltonian Monte Carlo on all data, with a warning.
4. A second mode of nearly the same height: modes are stacked by their evidence, with a warning.
"""

import warnings
from typing import NamedTuple

import numpy as np

from rarehmm.chains import run
from rarehmm.designs import Design
from rarehmm.designs.pilot import noise_of_one_window, pilot, whitened_changes
from rarehmm.diagnostics import (
    Check,
    check_buffer,
    check_mixing,
    check_noise,
    check_weights,
    mixing,
    verdict,
    windows_needed,
)
from rarehmm.exact import hmc
from rarehmm.gradients import Frozen, freeze, window_gradients
from rarehmm.importance import Roots, Weighted, adaptive_importance, laplace_importance
from rarehmm.lanes import LANES
from rarehmm.mode import Mode, find_mode, renamed
from rarehmm.model import Model, Parameters
from rarehmm.passes import log_posterior
from rarehmm.pool import Pool
from rarehmm.samplers.baoab import Baoab
from rarehmm.series import Array, Series
from rarehmm.windows import Windows

BUFFERS = (2, 5, 10, 20)
HALF_WIDTH = 2
NEARLY_GAUSSIAN = 0.8  # share of effective points


class Inference(NamedTuple):
    """Draws theta (chains, n, d), equally weighted, of the model of the ``mode``; the ``method`` that made them,
    ``why``, and the ``checks`` behind the ``verdict``."""

    mode: Mode
    theta: Array
    method: str
    why: list[str]
    checks: list[Check]

    @property
    def verdict(self) -> str:
        return verdict(self.checks)


def infer(
    rng: np.random.Generator,
    model: Model,
    series: Series,
    *,
    start: Parameters | None = None,
    wanted: float = 1000.0,
    method: str = "auto",
    threads: int | None = None,
) -> Inference:
    """The posterior by the decision rule, or by ``method``: "chain", "importance" or "hmc"; ``wanted`` effective draws.

    Without a ``start`` states are found in the data.
    """
    if method not in ("auto", "chain", "importance", "hmc"):
        raise ValueError(f"method is {method!r}; it must be 'auto', 'chain', 'importance' or 'hmc'.")
    if not wanted > 0:
        raise ValueError(f"wanted is {wanted}; the number of effective draws must be positive.")
    mode = find_mode(model, series, start, threads=threads)
    if method == "auto" and mode.others:
        return stacked(rng, mode, series, wanted, threads)
    roots = Roots(mode, series, threads)
    if method in ("auto", "chain"):
        share = laplace_importance(rng, roots).last_share
        near = Check("nearly Gaussian", share, True, "effective share of points of the Laplace approximation")
        if method == "chain" or (share >= NEARLY_GAUSSIAN and mode.curved):
            windows, frozen, bias = shortest_buffer(rng, mode, series, threads)
            if method == "chain" or bias < 0.05:
                why = [f"{share:.0%} of the points of the Laplace approximation are effective: chains on windows"]
                found = by_chain(rng, mode, series, windows, frozen, wanted, threads)
                return Inference(mode, named(mode, found[0]), "chain", why, [near, check_buffer(bias), *found[1]])
            why = [f"no buffer up to {BUFFERS[-1]} passes its test (bias {bias:.2g}): importance sampling instead"]
        else:
            why = [f"only {share:.0%} of the points of the Laplace approximation are effective: importance sampling"]
    else:
        near, why = Check("nearly Gaussian", np.nan, True, "not tested"), [f"{method} was asked for"]
    if method != "hmc":
        weighted = adaptive_importance(rng, roots, wanted)
        checks = check_weights(weighted)
        if all(c.good for c in checks) or method == "importance":
            draws = weighted.resample(rng, round(2 * wanted))
            return Inference(mode, draws[None], "importance", why, [near, *checks])
        why.append("importance sampling fails its own checks: Hamiltonian Monte Carlo on all data")
        warnings.warn("the posterior is badly identified: " + verdict(checks), RuntimeWarning, stacklevel=2)
    draws = hmc(rng, mode, series, round(wanted / 2), chains=4, threads=threads)
    checks = check_mixing(mixing(draws), mode.model.component_names, wanted)
    return Inference(mode, named(mode, draws), "hmc", why, [near, *checks])


def named(mode: Mode, draws: Array) -> Array:
    """Draws (chains, n, d) with their states named as at the mode."""
    return renamed(mode, draws.reshape(-1, draws.shape[-1])).reshape(draws.shape)


def shortest_buffer(
    rng: np.random.Generator, mode: Mode, series: Series, threads: int | None = None
) -> tuple[Windows, Frozen, float]:
    """Windows with the shortest buffer whose windows add up to the exact gradient at two pilot points, and what it
    leaves out there: largest whitened component."""
    points = [mode.theta + mode.factor @ rng.standard_normal(len(mode.theta)) for _ in range(2)]
    prior = mode.model.log_prior_gradient
    exact = [log_posterior(mode.model, theta, series, threads=threads)[1] - prior(theta) for theta in points]
    for buffer in BUFFERS:
        windows = Windows(series, HALF_WIDTH, buffer)
        frozen = freeze(mode.model, mode.theta, series, windows, threads=threads)
        bias = 0.0
        for theta, slope in zip(points, exact, strict=True):
            found = window_gradients(mode.model, theta, series, windows, messages=frozen.messages, threads=threads).sum(
                0
            )
            bias = max(bias, float(np.abs(mode.factor.T @ (found - slope)).max()))
        if bias < 0.05:
            break
    return windows, frozen, bias


def by_chain(
    rng: np.random.Generator,
    mode: Mode,
    series: Series,
    windows: Windows,
    frozen: Frozen,
    wanted: float,
    threads: int | None = None,
    chains: int = 4,
) -> tuple[Array, list[Check]]:
    """Draws (chains, n, d) by BAOAB with a pilot design, and their checks."""
    sampler = Baoab()
    design = pilot(rng, mode, series, windows, frozen, threads=threads)
    noise = largest_noise(rng, mode, series, windows, frozen, design, threads)
    size = -(-windows_needed(sampler, noise) // LANES) * LANES
    pool = Pool(mode.model, series, windows, design, size, frozen=frozen)
    here = mode.theta + 1.5 * rng.standard_normal((chains, len(mode.theta))) @ mode.factor.T
    here = run(rng, sampler, mode.model, pool, here, 100, mode=mode, threads=threads)[:, -1]
    draws, steps = np.empty((chains, 0, len(mode.theta))), round(9 * wanted / chains)
    for _ in range(5):
        more = run(rng, sampler, mode.model, pool, here, steps, mode=mode, thin=2, threads=threads)
        draws, here = np.concatenate([draws, more], axis=1), more[:, -1]
        mixed = mixing(draws)
        if mixed.bulk.min() >= wanted:
            break
    return draws, [check_noise(sampler, noise, size), *check_mixing(mixed, mode.model.component_names, wanted)]


def largest_noise(
    rng: np.random.Generator,
    mode: Mode,
    series: Series,
    windows: Windows,
    frozen: Frozen,
    design: Design,
    threads: int | None,
    points: int = 4,
) -> float:
    """Largest eigenvalue of the whitened noise of one window, on average over fresh points."""
    changes = (whitened_changes(rng, mode, series, windows, frozen, threads) for _ in range(points))
    return float(np.mean([np.linalg.eigvalsh(noise_of_one_window(c, design))[-1] for c in changes]))


def stacked(rng: np.random.Generator, mode: Mode, series: Series, wanted: float, threads: int | None) -> Inference:
    """Several modes of nearly the same height: importance sampling around each, put together by evidence."""
    modes = [mode, *(find_mode(mode.model, series, c.parameters, threads=threads) for c in mode.others)]
    found: list[Weighted] = [adaptive_importance(rng, Roots(m, series, threads), wanted) for m in modes]
    logs = np.array([w.evidence for w in found])
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    warnings.warn(
        f"{len(modes)} modes of the posterior of nearly the same height, with shares "
        f"{', '.join(f'{s:.3g}' for s in shares)}; they are stacked by evidence.",
        RuntimeWarning,
        stacklevel=3,
    )
    counts = np.round(shares * 2 * wanted).astype(int)
    parts = [moved(mode, m, w.resample(rng, n)) for m, w, n in zip(modes, found, counts, strict=True) if n > 0]
    checks = [check for w, share in zip(found, shares, strict=True) if share > 0.01 for check in check_weights(w)]
    modes_check = Check("second modes", float(1 - shares.max()), True, "posterior mass outside the largest mode")
    why = [f"{len(modes)} modes within 10 of the log posterior: importance sampling around each, stacked by evidence"]
    return Inference(mode, np.concatenate(parts)[None], "stacked importance", why, [modes_check, *checks])


def moved(to: Mode, of: Mode, theta: Array) -> Array:
    """Draws of one mode's model in the coordinates of another (their log ratios may refer to other entries)."""
    points = [to.model.natural(*of.model.unpack_all(row)) for row in theta]
    return np.array([to.model.pack(p) for p in points])
