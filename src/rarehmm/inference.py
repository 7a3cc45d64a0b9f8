"""The decision rule: which method samples the posterior, and why.

1. The posterior is nearly Gaussian in cube-root coordinates (importance sampling from the Laplace approximation keeps
   at least 80 % of its points) and a buffer passes its test: chains on windows with control variates, whose cost does
   not grow with the series.
2. Else, on a series so short that many exact gradients cost little: Hamiltonian Monte Carlo on all data.  Posteriors
   from few rare observations have long arms, which importance sampling overlooks without a sign.
3. Else adaptive importance sampling on forward passes, in cube-root coordinates or with rows of the transition matrix
   as gamma numbers, accepted only if the posterior is not too far from a Gaussian and no few points carry it.
4. Else Hamiltonian Monte Carlo on all data, with a warning.
5. A second mode of nearly the same height: modes are stacked by their evidence, with a warning.
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
    check_states,
    check_stein,
    check_weights,
    mixing,
    verdict,
    windows_needed,
)
from rarehmm.exact import gibbs, hmc
from rarehmm.gradients import Frozen, freeze, window_gradients
from rarehmm.importance import (
    GammaRows,
    Roots,
    Weighted,
    adaptive_importance,
    bridge_evidence,
    has_roots,
    laplace_importance,
)
from rarehmm.lanes import LANES
from rarehmm.mode import Mode, find_mode, renamed
from rarehmm.model import Model, Parameters
from rarehmm.passes import log_posterior
from rarehmm.points import Points
from rarehmm.pool import Pool
from rarehmm.samplers.baoab import Baoab
from rarehmm.series import Array, Series
from rarehmm.windows import Windows

METHODS = ("auto", "chain", "importance", "gibbs", "hmc", "langevin", "laplace", "map")
TRAJECTORIES = ((8, 0.85), (16, 0.9))  # what mixes slowly needs longer ways in smaller steps
BUFFERS = (2, 5, 10, 20)
HALF_WIDTH = 2
MEMORY = 4 << 20  # bytes of windows gathered together: they stay in the cache
FAR = 32 << 20  # the same where the series is not in memory: each refill reads all of it
NEARLY_GAUSSIAN = 0.8  # share of effective points of the Laplace approximation
FAR_FROM_GAUSSIAN = 0.3  # below it, importance sampling is not trusted whatever it says of itself


class Inference(NamedTuple):
    """Draws theta (chains, n, d), equally weighted, of the model of the ``mode``; the ``method`` that made them,
    ``why``, the ``checks`` behind the ``verdict``, and the points of importance sampling with their weights, if it is
    what was used (draws are resampled from them)."""

    mode: Mode
    theta: Array
    method: str
    why: list[str]
    checks: list[Check]
    weighted: Weighted | None = None

    @property
    def verdict(self) -> str:
        return verdict(self.checks)

    def describe(self) -> str:
        """Method, reasons, all checks in a table, and the verdict."""
        rows = [f"  {'ok ' if c.good else 'BAD'}  {c.name:26}{c.value:>10.3g}  {c.words}" for c in self.checks]
        return "\n".join([f"{self.method}: {'; '.join(self.why)}", *rows, self.verdict])


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
    """The posterior by the decision rule, or by ``method``: "chain", "importance", "gibbs", "hmc", "langevin" (with a
    Metropolis correction), "laplace" (the Gaussian at the mode) or "map" (the mode alone); ``wanted`` effective draws.

    Without a ``start`` states are found in the data.  A posterior that is not to be trusted comes with a warning.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}.")
    if not 1 <= wanted < np.inf:
        raise ValueError(f"wanted is {wanted}; the number of effective draws must be finite, and 1 at least.")
    mode = find_mode(model, series, start, threads=threads)
    if method == "map":
        theta = named(mode, mode.theta[None, None])
        return Inference(mode, theta, method, ["the mode was asked for"], [check_states(mode, series, threads)])
    if method == "auto" and mode.others:
        found = stacked(rng, mode, series, wanted, threads)
    elif method in ("auto", "chain"):
        found = by_rule(rng, mode, series, wanted, threads, forced=method == "chain")
    elif method == "importance":
        weighted = adaptive_importance(rng, Roots(mode, series, threads), wanted)
        found = of_weights(rng, mode, weighted, ["importance sampling was asked for"], check_weights(weighted, wanted))
    elif method == "laplace":
        found = by_laplace(rng, mode, series, wanted, threads)
    elif method == "gibbs":
        draws, checks = by_gibbs(rng, mode, series, wanted, threads)
        found = Inference(mode, draws, method, ["Gibbs sampling was asked for"], checks)
    else:
        ways = ((1, 0.574),) * 3 if method == "langevin" else TRAJECTORIES
        draws, checks = by_hmc(rng, mode, series, wanted, threads, ways)
        found = Inference(mode, draws, method, [f"{method} was asked for"], checks)
    sizes = [c.value for c in found.checks if c.name.startswith("effective draws")]
    stein = check_stein(rng, mode, series, found.theta, min(sizes), threads)  # before states are renamed: it would show
    about = [check_states(mode, series, threads), stein]
    if found.method != "stacked":
        words = "modes of nearly the same height seen besides this one" + (": not sampled" if mode.others else "")
        about.append(Check("second modes", float(len(mode.others)), not mode.others, words))
    found = found._replace(theta=named(mode, found.theta), checks=[*found.checks, *about])
    if not all(c.good for c in found.checks):
        warnings.warn(found.verdict, RuntimeWarning, stacklevel=2)
    return found


def by_rule(
    rng: np.random.Generator, mode: Mode, series: Series, wanted: float, threads: int | None, forced: bool
) -> Inference:
    """One mode: chains, importance sampling or Hamiltonian Monte Carlo; chains whatever the tests say if ``forced``."""
    roots = Roots(mode, series, threads)
    share = laplace_importance(rng, roots).last_share
    near = Check("nearly Gaussian", share, True, "effective share of points of the Laplace approximation")
    why = [f"{share:.0%} of the points of the Laplace approximation are effective"]
    longest = int(np.diff(series.bounds).max())
    if forced or (share >= NEARLY_GAUSSIAN and mode.curved and longest >= 3):
        windows, frozen, bias = shortest_buffer(rng, mode, series, threads)
        if forced or bias < 0.05:
            why[0] += ": chains on windows"
            draws, checks = by_chain(rng, mode, series, windows, frozen, wanted, threads)
            return Inference(mode, draws, "chain", why, [near, check_buffer(bias), *checks])
        why.append(f"no buffer up to {BUFFERS[-1]} passes its test (bias {bias:.2g})")
    if roots.points.short:
        why.append("the series is short: Hamiltonian Monte Carlo on all data")
    else:
        if has_roots(mode.model) and mode.model.known.nothing:
            rows = GammaRows(mode, series, threads)
            if (other := laplace_importance(rng, rows).last_share) > share:
                roots, share = rows, other
                why.append(f"with rows of transitions as gamma numbers {share:.0%}")
        weighted = adaptive_importance(rng, roots, wanted)
        near = near._replace(value=share, good=share >= FAR_FROM_GAUSSIAN)
        checks = [near, *check_weights(weighted, wanted)]
        if all(c.good for c in checks) or weighted.interrupted:
            return of_weights(rng, mode, weighted, [*why, "importance sampling instead"], checks)
        why.append("importance sampling fails its checks: Hamiltonian Monte Carlo on all data")
        warnings.warn("the posterior is badly identified: " + verdict(checks), RuntimeWarning, stacklevel=3)
    draws, checks = by_hmc(rng, mode, series, wanted, threads)
    return Inference(mode, draws, "hmc", why, [near, *checks])


def by_laplace(
    rng: np.random.Generator, mode: Mode, series: Series, wanted: float, threads: int | None, chains: int = 4
) -> Inference:
    """Draws from the Gaussian at the mode; good if importance sampling says that the posterior nearly is one."""
    share = laplace_importance(rng, Roots(mode, series, threads)).last_share
    words = "effective share of points of the Laplace approximation"
    size = max(25, int(np.ceil(wanted / chains)))
    draws = mode.theta + rng.standard_normal((chains, size, len(mode.theta))) @ mode.factor.T
    checks = [
        Check("nearly Gaussian", share, share >= NEARLY_GAUSSIAN, words),
        Check("effective draws", float(chains * size), True, "they are independent"),
    ]
    return Inference(mode, draws, "laplace", ["the Laplace approximation was asked for"], checks)


def of_weights(
    rng: np.random.Generator, mode: Mode, weighted: Weighted, why: list[str], checks: list[Check]
) -> Inference:
    """Equally weighted draws, twice as many as there are effective ones, and the weights kept."""
    draws = weighted.resample(rng, max(100, round(2 * weighted.effective)))
    return Inference(mode, draws[None], "importance", why, checks, weighted)


def by_gibbs(
    rng: np.random.Generator, mode: Mode, series: Series, wanted: float, threads: int | None, chains: int = 4
) -> tuple[Array, list[Check]]:
    """Draws (chains, n, d) by Gibbs sampling, as many as are needed within reason, and their checks."""
    model = mode.model
    spread = mode.theta + 1.5 * rng.standard_normal((chains, model.size)) @ mode.factor.T
    here = [model.unpack(np.clip(theta, *model.bounds)) for theta in spread]
    draws, steps = np.empty((chains, 0, model.size)), max(50, round(2 * wanted / chains))
    for _ in range(4):
        more = [gibbs(rng, model, series, start, steps, threads=threads) for start in here]
        enough = min(len(one) for one in more)
        draws = np.concatenate([draws, [one[:enough] for one in more]], axis=1)
        mixed = mixing(named(mode, draws))
        if enough < steps or mixed.bulk.min() >= wanted:
            break
        here, steps = [model.unpack(one[-1]) for one in more], round(steps * min(4.0, 1.2 * wanted / mixed.bulk.min()))
    return draws, check_mixing(mixed, model.component_names, wanted)


def by_hmc(
    rng: np.random.Generator,
    mode: Mode,
    series: Series,
    wanted: float,
    threads: int | None,
    ways: tuple[tuple[int, float], ...] = TRAJECTORIES,
) -> tuple[Array, list[Check]]:
    """Draws (chains, n, d) by Hamiltonian Monte Carlo, as many as are needed, and their checks.

    ``ways``: leapfrog steps and acceptance of the first and further rounds.
    """
    draws, steps = np.empty((LANES, 0, len(mode.theta))), max(100, round(4 * wanted / LANES))
    for leaps, accept in ways:
        more = hmc(rng, mode, series, steps, leaps=leaps, accept=accept, threads=threads)
        draws = np.concatenate([draws, more], axis=1)
        mixed = mixing(named(mode, draws))
        missing = 1.2 * wanted / mixed.bulk.min() - 1  # times as many draws as there are
        if more.shape[1] < steps or missing <= 0.2 or mixed.r_hat.max() > 1.5:
            break
        steps = round(steps * min(8.0, missing) + 20)
    return draws, check_mixing(mixed, mode.model.component_names, wanted)


def named(mode: Mode, draws: Array) -> Array:
    """Draws (chains, n, d) with their states named as at the mode."""
    return renamed(mode, draws.reshape(-1, draws.shape[-1])).reshape(draws.shape)


def shortest_buffer(
    rng: np.random.Generator, mode: Mode, series: Series, threads: int | None = None
) -> tuple[Windows, Frozen, float]:
    """Windows with the shortest buffer whose windows add up to the exact gradient at two pilot points, and what it
    leaves out there: largest whitened component."""
    points = [mode.theta + mode.factor @ rng.standard_normal(len(mode.theta)) for _ in range(2)]
    prior, longest = mode.model.log_prior_gradient, int(np.diff(series.bounds).max())
    exact = [log_posterior(mode.model, theta, series, threads=threads)[1] - prior(theta) for theta in points]
    for buffer in BUFFERS:
        windows = Windows(series, min(HALF_WIDTH, (longest - 1) // 2), buffer)
        frozen = freeze(mode.model, mode.theta, series, windows, threads=threads)
        bias = 0.0
        for theta, slope in zip(points, exact, strict=True):
            each = window_gradients(mode.model, theta, series, windows, messages=frozen.messages, threads=threads)
            bias = max(bias, float(np.abs(mode.factor.T @ (each.sum(0) - slope)).max()))
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
    size = windows_needed(sampler, noise)
    pool = Pool(mode.model, series, windows, design, size, frozen=frozen, memory=MEMORY if series.in_memory else FAR)
    here = mode.theta + 1.5 * rng.standard_normal((chains, len(mode.theta))) @ mode.factor.T
    first = run(rng, sampler, mode.model, pool, here, 100, mode=mode, threads=threads)
    draws, steps = first, max(200, round(9 * wanted / chains))
    mixed = mixing(named(mode, draws))
    for _ in range(5 if first.shape[1] == 100 else 0):  # else Ctrl-C was pressed
        more = run(rng, sampler, mode.model, pool, draws[:, -1], steps, mode=mode, thin=2, threads=threads)
        draws = more if draws is first else np.concatenate([draws, more], axis=1)
        mixed = mixing(named(mode, draws))
        if more.shape[1] < steps // 2 or mixed.bulk.min() >= wanted:
            break
    together = check_mixing(mixed, mode.model.component_names, wanted)
    return draws, [check_noise(sampler, noise, size), *together]


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
    """Several modes of nearly the same height: draws around each, put together by evidence.

    On a short series by Hamiltonian Monte Carlo, else by importance sampling.  (Where chains get from one mode to the
    other, all have the same law, and it does not matter how they are put together.)
    """
    modes = [mode, *(find_mode(mode.model, series, c.parameters, threads=threads) for c in mode.others)]
    short = Points(mode.model, series).short
    found = [(by_hmc_with_evidence if short else by_weights)(rng, m, series, wanted, threads) for m in modes]
    logs = np.array([evidence for _, evidence, _ in found])
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    warnings.warn(
        f"{len(modes)} modes of the posterior of nearly the same height, with shares "
        f"{', '.join(f'{s:.3g}' for s in shares)}; they are stacked by evidence.",
        RuntimeWarning,
        stacklevel=3,
    )
    counts = np.round(shares * max(100, 2 * wanted)).astype(int)
    drawn = [theta[rng.permutation(len(theta))[:n]] for (theta, _, _), n in zip(found, counts, strict=True)]
    parts = [moved(mode, m, theta) for m, theta in zip(modes, drawn, strict=True) if len(theta) > 0]
    checks = [c for (_, _, each), share in zip(found, shares, strict=True) if share > 0.01 for c in each]
    modes_check = Check("second modes", float(1 - shares.max()), True, "posterior mass outside the largest mode")
    how = "Hamiltonian Monte Carlo" if short else "importance sampling"
    why = [f"{len(modes)} modes within 10 of the log posterior: {how} around each, stacked by evidence"]
    return Inference(mode, rng.permutation(np.concatenate(parts))[None], "stacked", why, [modes_check, *checks])


def by_weights(
    rng: np.random.Generator, mode: Mode, series: Series, wanted: float, threads: int | None
) -> tuple[Array, float, list[Check]]:
    """Draws (n, d) around a mode by importance sampling, the log evidence and the checks."""
    found = adaptive_importance(rng, Roots(mode, series, threads), wanted)
    return found.resample(rng, max(100, round(2 * wanted))), found.evidence, check_weights(found, wanted)


def by_hmc_with_evidence(
    rng: np.random.Generator, mode: Mode, series: Series, wanted: float, threads: int | None
) -> tuple[Array, float, list[Check]]:
    """The same by Hamiltonian Monte Carlo."""
    draws, checks = by_hmc(rng, mode, series, wanted, threads)
    flat = draws.reshape(-1, draws.shape[-1])
    return flat, bridge_evidence(rng, mode, Points(mode.model, series, threads), renamed(mode, flat)), checks


def moved(to: Mode, of: Mode, theta: Array) -> Array:
    """Draws of one mode's model in the coordinates of another (their log ratios may refer to other entries)."""
    points = [to.model.natural(*of.model.unpack_all(row)) for row in theta]
    return np.array([to.model.pack(p) for p in points])
