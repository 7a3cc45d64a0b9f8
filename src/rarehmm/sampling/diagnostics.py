"""Is this posterior right?  Each check has a value, a limit and a message, and none of them fails silently."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri, ndtri

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.engine.contracts.sampler import ExcessVariance
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import BlockSample, Observations, objective_of
from rarehmm.exact.passes import log_posterior, needs_edges
from rarehmm.model.model import Model
from rarehmm.sampling.arviz_adapter import effective_size, r_hat, tail_index
from rarehmm.sampling.importance import FRESH, Weighted
from rarehmm.search.long_series import block_gradients
from rarehmm.search.mode import Mode
from rarehmm.search.regimes import classify_by_occupancy

# Limits, each with its reason and measurement in docs/explanation/posterior.md
BUFFER_BIAS = 0.05  # whitened gradient that a buffer may leave out
EXCESS, EXCESS_LIMIT = 0.1, 0.12  # relative excess variance that is aimed at, and that passes
MOST_WINDOWS = 1000  # windows per step
R_HAT, R_HAT_LIMIT = 1.01, 1.1  # R-hat that always passes, and that never does
BY_CHANCE = 1e-3  # how often a check of many parameters may fail by chance
PARETO_K, NEARLY_EQUAL = 0.7, 0.9  # tail index of weights; it has no meaning where more than this share is effective
LARGEST_WEIGHT = 0.03
FEWEST_WEIGHTED, NEARLY_ENOUGH = 200.0, 0.9  # effective draws by weight: in all, and as a share of those requested
SAMPLING_ERROR, SEAM, SLOPE = 0.1, 0.01, 0.1  # of a sample of blocks: curvature, messages where halos end, gradient
LONG_SAMPLE = 0.5  # the same for a large sample, whose curvature is its own
STANDING_IN = 0.1  # standard deviation of what a sample of blocks leaves out of the log posterior
GRADIENTS, FEWEST, MOST = 1e8, 60, 400  # observations read for exact gradients at the draws; number of such draws
DIFFERING = 8  # times as long as others: passes where rows differ
STEIN = 0.001  # smallest p-value that passes
FEWEST_VALUES = 2  # observed values for each parameter that is estimated
LONGER = "raise n_draws to run longer, or fit with fewer states (n_components)"
SPREAD = 0.25  # relative error of a mean square that matters


class Check(NamedTuple):
    """One check: what was measured, whether it is good enough, what that means, and a note where one is due."""

    name: str
    value: float
    passed: bool
    message: str
    note: str = ""


class Mixing(NamedTuple):
    """Convergence diagnostics of draws (chains, n, d): effective sample sizes (d,) of bulk and tails, R-hat (d,), and
    the ``limit`` (d,) up to which chance explains it."""

    bulk: Array
    tail: Array
    r_hat: Array
    limit: Array

    @property
    def smallest(self) -> float:
        """Smallest effective sample size, of the bulk or the tails of any component."""
        return float(min(self.bulk.min(), self.tail.min()))


def mixing(draws: Array) -> Mixing:
    """Convergence diagnostics by ArviZ, rank-normalised (Vehtari et al. 2021)."""
    each, ess = [draws[:, :, i] for i in range(draws.shape[2])], effective_size
    bulk, tail = ([ess(x, m) for x in each] for m in ("bulk", "tail"))
    within = [sum(min(ess(chain[None], m) for m in ("bulk", "tail")) for chain in x) for x in each]
    limit = r_hat_by_chance(np.array(within), len(draws))
    return Mixing(np.array(bulk), np.array(tail), np.array([r_hat(x) for x in each]), limit)


def check_mixing(found: Mixing, names: list[str], wanted: float) -> list[Check]:
    """Are there enough effective draws of every component, bulk and tails, and do the chains agree?"""
    either = np.minimum(found.bulk, found.tail)
    i, j = int(np.argmin(either)), int(np.argmax(found.r_hat - found.limit))
    size, value, limit = float(either[i]), float(found.r_hat[j]), float(found.limit[j])
    part = "the bulk" if found.bulk[i] <= found.tail[i] else "the tails"
    low = "" if size >= wanted else f": fewer than the {wanted:.0f} requested; {LONGER}"
    together = value <= limit
    apart = "the chains have mixed" if together else f"the chains have not mixed; {LONGER}"
    return [
        Check("effective sample size", size, size >= wanted, f"smallest, for {part} of {names[i]}{low}"),
        Check("R-hat", value, together, f"largest, for {names[j]} (limit {limit:.3f}): {apart}"),
    ]


def r_hat_by_chance(effective: Array, chains: int) -> Array:
    r"""R-hat (d,) that some component exceeds once in a thousand times although all chains have the same distribution.

    ``R_HAT`` at least, ``R_HAT_LIMIT`` at most.  Effective sample sizes (d,) are those within chains: they do not
    shrink when chains are apart.

    With m half chains of E effective draws each, the variance of their means is :math:`\chi^2_{m-1} / (m-1) / E`.
    """
    m = 2 * chains
    spread = chdtri(m - 1, BY_CHANCE / len(effective)) / (m - 1)
    return np.asarray(np.clip(np.sqrt(1 + spread * m / effective), R_HAT, R_HAT_LIMIT))


# ---------------------------------------------------------------- gradient noise
def windows_needed(excess: ExcessVariance, noise_of_one: float, allowed: float = EXCESS) -> int:
    """Windows per step so that no variance is inflated by more than ``allowed``; 2 to ``MOST_WINDOWS``."""
    room = allowed - excess.of_step
    if room <= 0:
        return MOST_WINDOWS
    return int(np.clip(math.ceil(excess.per_noise * noise_of_one / room), 2, MOST_WINDOWS))


def check_noise(excess: ExcessVariance, noise_of_one: float, size: int) -> Check:
    """Is the variance of the draws right although gradients are noisy and steps have a size?"""
    value = excess.at(noise_of_one / size)
    message = "relative excess variance of the draws due to gradient noise"
    good = value <= EXCESS_LIMIT
    return Check("gradient noise", value, good, message if good else f"{message}: use another method, such as 'auto'")


def check_buffer(bias: float) -> Check:
    """Do windows with their buffers add up to the exact gradient?"""
    message = "largest whitened component of the gradient that buffers miss" + (
        "" if bias < BUFFER_BIAS else ": use another method, such as 'auto'"
    )
    return Check("buffer bias", bias, bias < BUFFER_BIAS, message)


# ---------------------------------------------------------------- importance weights
def check_weights(found: Weighted, wanted: float) -> list[Check]:
    """Can importance weights be trusted?  An effective sample size from a few heavy points cannot."""
    low = "" if found.effective >= wanted else f": fewer than the {wanted:.0f} requested; {LONGER}"
    enough = max(FEWEST_WEIGHTED, NEARLY_ENOUGH * wanted)  # so many are worth no further round
    largest = float(found.weights.max(initial=0.0))
    share = found.effective / found.n_drawn
    k = tail_index(found.log_weights) if share < NEARLY_EQUAL else 0.0
    heavy = "" if k < PARETO_K else ": too heavy to average"
    return [
        Check("Pareto k", k, k < PARETO_K, f"tail index of the weights{heavy}"),
        Check("effective sample size", found.effective, found.effective >= enough, f"of the importance weights{low}"),
        Check("largest weight", largest, largest < LARGEST_WEIGHT, "largest normalised importance weight"),
        Check("last proposal", found.last, found.last >= FRESH, "effective sample size of the last round alone"),
    ]


# ---------------------------------------------------------------- states
def check_states(mode: Mode, series: Observations, threads: int | None = None) -> Check:
    """Check that every state has observations.

    One without any reflects only its prior; one that sits on an outlier, or that the data do not distinguish from
    another, is noted.
    """
    objective = objective_of(series)
    seen, counts = None if objective.is_exact else series, objective.counts
    found = classify_by_occupancy(
        mode.model, mode.model.unpack(mode.theta), series, seen, counts=counts, threads=threads
    )
    least = min(found, key=lambda r: r.observations)
    good = least.kind != "empty"
    advice = "" if good else ": use fewer states"
    message = f"expected number of observations in state {least.state}, the smallest{advice}"
    note = "; ".join(f"state {r.state}: {r.message}" for r in found if r.kind in ("outlier", "twin"))
    return Check("smallest state", least.observations, good, message, note)


def check_size(model: Model, observed: int) -> list[Check]:
    """Check that there are more observed values than parameters; an empty list if there are."""
    if observed >= FEWEST_VALUES * model.size:
        return []
    message = f"observed values, for {model.size} parameters: fit with fewer states (n_components)"
    return [Check("few observations", float(observed), False, message)]


# ---------------------------------------------------------------- a sample of blocks of a long series
def check_block_sample(
    rng: np.random.Generator,
    mode: Mode,
    sample: BlockSample,
    whole: Series,
    threads: int | None = None,
    points: int = 4,
) -> list[Check]:
    """How far off may a posterior be because a sample of blocks stands for the series?

    Sampling error: the largest whitened standard error of the curvature, relative to how far from the mode it is taken,
    over a few points.  Seams: the largest error of a message where a halo ends.  Mode: the largest whitened component
    of the exact gradient where the passes led to.
    """
    model, errors = mode.model, []
    if needs_edges(model, sample):
        return check_long_sample(rng, mode, sample, whole, threads)
    here = block_gradients(model, mode.theta, sample, threads) @ mode.factor
    for _ in range(points):
        z = rng.standard_normal(len(mode.theta))
        change = block_gradients(model, mode.theta + mode.factor @ z, sample, threads) @ mode.factor - here
        variance = ((1 - 1 / sample.weights)[:, None] * change**2).sum(0)
        errors.append(np.sqrt(variance.max()) / np.linalg.norm(z))
    message = f"standard error of the curvature, estimated from {sample.n_sequences} blocks of the series"
    error = float(np.mean(errors))
    return [
        Check(
            "block sampling",
            error,
            error < SAMPLING_ERROR,
            message + ("" if error < SAMPLING_ERROR else ": too few; allow more memory"),
        ),
        *check_anchor(mode, sample, threads),
    ]


def check_long_sample(
    rng: np.random.Generator, mode: Mode, sample: BlockSample, whole: Series, threads: int | None, points: int = 8
) -> list[Check]:
    """Compare exact log posteriors at a few points with those of the sample, where rows differ."""
    theta = mode.theta + rng.standard_normal((points, len(mode.theta))) @ mode.factor.T
    values = [BatchedLogPosterior(mode.model, data, threads).values(theta) for data in (whole, sample)]
    error = float(np.std(values[1] - values[0]))
    return [check_stand_in(error, sample.n_sequences, LONG_SAMPLE), *check_anchor(mode, sample, threads)]


def check_stand_in(error: float, blocks: int, limit: float = STANDING_IN) -> Check:
    """Is the log posterior of a sample of blocks close to that of the series?"""
    message = f"standard deviation of the error of the log posterior from {blocks} blocks of the series"
    return Check("block sampling", error, error < limit, message + ("" if error < limit else ": allow more memory"))


def check_anchor(mode: Mode, sample: BlockSample, threads: int | None) -> list[Check]:
    """Are the messages of a sample of blocks right at its seams, and is its gradient zero at the mode?"""
    model, seam = mode.model, sample.seams
    slope = float(np.abs(mode.factor.T @ log_posterior(model, mode.theta, sample, threads=threads)[1]).max())
    return [
        Check(
            "block seams",
            seam,
            seam < SEAM,
            "error of messages where halos end"
            + ("" if seam < SEAM else ": the chain forgets its past too slowly; allow more memory"),
        ),
        Check(
            "mode",
            slope,
            slope < SLOPE,
            "largest whitened component of the exact gradient at the mode"
            + ("" if slope < SLOPE else ": the mode was not reached; start elsewhere, or allow more memory"),
        ),
    ]


# ---------------------------------------------------------------- exact gradients at the draws
def check_gradients(
    rng: np.random.Generator,
    mode: Mode,
    series: Observations,
    draws: Array,
    effective: float,
    threads: int | None = None,
) -> list[Check]:
    """Do draws (chains, n, d) agree with exact gradients?  A Stein test of all parameters, and the width of each.

    The draws are so far apart that they are nearly independent: at most half of the effective ones, ``FEWEST`` for a
    long series, up to ``MOST`` for a short one.
    """
    read = GRADIENTS / (DIFFERING if needs_edges(mode.model, series) else 1) / len(series)
    count = int(min(np.clip(read, FEWEST, MOST), max(effective / 2, 10)))
    flat = draws.reshape(-1, draws.shape[-1])
    few = flat[np.linspace(0, len(flat) - 1, count).astype(int)]
    g = BatchedLogPosterior(mode.model, series, threads).values_and_slopes(few)[1]
    p = stein_discrepancy(rng, whitened(mode, few), g @ mode.factor)
    message = "p-value of a test of the draws against exact gradients of the log posterior"
    return [
        Check("Stein discrepancy", p, p > STEIN, message if p > STEIN else f"{message}: they disagree"),
        check_spread(few, g, mode.model.component_names),
    ]


def check_spread(theta: Array, g: Array, names: list[str]) -> Check:
    """Is the width of the draws theta (n, d) of each parameter what exact gradients g (n, d) imply?

    It is not if the ratio is off by more than ``SPREAD`` and by more than chance explains (once in a thousand times for
    some parameter).
    """
    ratio, error = spread(theta, g)
    z = np.log(np.maximum(ratio, 1e-3)) / np.maximum(error / np.maximum(ratio, 1e-3), 1e-12)
    i = int(np.argmax(np.where(np.abs(ratio - 1) > SPREAD, np.abs(z), 0.0)))
    if abs(ratio[i] - 1) <= SPREAD:
        i = int(np.argmax(np.abs(ratio - 1)))
    right = abs(ratio[i] - 1) <= SPREAD or abs(z[i]) <= -ndtri(BY_CHANCE / 2 / len(ratio))
    message = (
        f"mean square of the draws of {names[i]}, relative to what exact gradients imply "
        f"(standard error {error[i]:.2g}), furthest from 1"
    )
    wrong = f"{message}: its intervals are too {'wide' if ratio[i] > 1 else 'narrow'}"
    return Check("spread", float(ratio[i]), bool(right), message if right else wrong)


def whitened(mode: Mode, draws: Array) -> Array:
    """Draws (n, d) in the coordinates in which the posterior is nearly a unit Gaussian."""
    return np.asarray(np.linalg.solve(mode.factor, (draws - mode.theta).T).T)


def spread(x: Array, g: Array) -> tuple[Array, Array]:
    r"""Means (d,) of :math:`-(x_i - \bar x_i) g_i` over points x (n, d) with gradients g (n, d), with standard errors.

    Each is 1 for draws of any density that falls off (integrate by parts), in whatever coordinates, larger if they are
    too wide in this one.
    """
    n = len(x)
    each = -(x - x.mean(0)) * g * (n / max(n - 1, 1))
    return each.mean(0), each.std(0, ddof=1) / math.sqrt(n) if n > 1 else np.full(x.shape[1], math.inf)


def stein_discrepancy(rng: np.random.Generator, x: Array, g: Array) -> float:
    r"""p-value of a kernel Stein test that points x (n, d) come from the density whose gradients there are g (n, d).

    Inverse multiquadric kernel, whitened coordinates; null distribution by the wild bootstrap (Chwialkowski et al.
    2016).  Thin the draws first: they should be nearly independent.
    """
    apart = x[:, None] - x[None]  # (n, n, d)
    n, d = x.shape
    square = (apart**2).sum(-1)
    base = 1 + square / d
    k, slope, curve = base**-0.5, -(base**-1.5) / d, 3 * base**-2.5 / d**2
    # d/dx k = slope * apart / 1, d/dy k = -slope * apart, trace of d2/dxdy = -slope d - curve square
    u = k * (g @ g.T) + slope * (np.einsum("ijk,jk->ij", apart, g) - np.einsum("ijk,ik->ij", apart, g))
    u += -slope * d - curve * square
    np.fill_diagonal(u, 0.0)
    signs = rng.choice([-1.0, 1.0], (5000, n))
    null = ((signs @ u) * signs).sum(1)
    return float((1 + (null >= u.sum()).sum()) / 5001)


def rows(checks: list[Check]) -> list[str]:
    """Checks as the lines of a table."""
    return [f"  {'ok ' if c.passed else 'BAD'}  {c.name:32}{c.value:>10.3g}  {c.message}" for c in checks]


def verdict(checks: list[Check]) -> str:
    """All checks in a sentence or two: that they passed, or which failed, and notes."""
    bad = [f"{c.name} {c.value:.3g} ({c.message})" for c in checks if not c.passed]
    notes = "".join(f" Note: {c.note}." for c in checks if c.note)
    return ("Do not trust these results: " + "; ".join(bad) + "." if bad else "All checks passed.") + notes
