r"""Is this posterior right?  Checks, each with a number, a limit and a word; none of them is silent when it is bad."""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_discrete_lyapunov
from scipy.special import chdtri

from rarehmm.common.arrays import Array
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import BlockSample, Observations, objective_of
from rarehmm.exact.passes import log_posterior
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling.arviz_adapter import effective_size, r_hat, tail_index
from rarehmm.sampling.importance import Weighted
from rarehmm.search.long_series import block_gradients
from rarehmm.search.mode import Mode
from rarehmm.search.regimes import collapsed


class Check(NamedTuple):
    """One check: what was measured, whether it is good enough, what that means, and what to know even so."""

    name: str
    value: float
    passed: bool
    message: str
    note: str = ""


class Mixing(NamedTuple):
    """Of draws (chains, n, d): effective sizes (d,) of the bulk and of the tails, R-hat (d,), and what it may be by
    chance (d,)."""

    bulk: Array
    tail: Array
    r_hat: Array
    limit: Array


def mixing(draws: Array) -> Mixing:
    """By ArviZ, rank-normalised (Vehtari et al. 2021)."""
    each, ess = [draws[:, :, i] for i in range(draws.shape[2])], effective_size
    bulk, tail = ([ess(x, m) for x in each] for m in ("bulk", "tail"))
    within = [sum(min(ess(chain[None], m) for m in ("bulk", "tail")) for chain in x) for x in each]
    limit = r_hat_by_chance(np.array(within), len(draws))
    return Mixing(np.array(bulk), np.array(tail), np.array([r_hat(x) for x in each]), limit)


def check_mixing(found: Mixing, names: list[str], wanted: float) -> list[Check]:
    i, j = int(np.argmin(found.bulk)), int(np.argmax(found.r_hat - found.limit))
    size, value, limit = float(found.bulk[i]), float(found.r_hat[j]), float(found.limit[j])
    low = "" if size >= wanted else f": fewer than the {wanted:.0f} asked for; run longer"
    together = value <= limit
    apart = "chains agree" if together else "chains have not come together; run longer or start elsewhere"
    return [
        Check("effective draws", size, size >= wanted, f"of {names[i]}, the worst{low}"),
        Check("R-hat", value, together, f"of {names[j]}, the worst (limit {limit:.3f}): {apart}"),
    ]


def r_hat_by_chance(effective: Array, chains: int) -> Array:
    r"""What R-hat (d,) exceeds for some component once in a thousand times although all chains have the same law; 1.01
    at least, 1.1 at most.  The effective sizes (d,) are those within chains, which do not shrink when chains are apart.

    With m half chains of E effective draws each, the variance of their means is :math:`\chi^2_{m-1} / (m-1) / E`.
    """
    m = 2 * chains
    spread = chdtri(m - 1, 1e-3 / len(effective)) / (m - 1)
    return np.asarray(np.clip(np.sqrt(1 + spread * m / effective), 1.01, 1.1))


# ---------------------------------------------------------------- noise of the gradient
def inflation(sampler: Baoab, noise: float) -> float:
    """Relative excess of the variance of a unit Gaussian when its gradient has a noise of this variance.

    Exactly, from the linear recursion of the integrator; proportional to the noise.
    """
    h, c = sampler.step_size, math.exp(-sampler.friction * sampler.step_size)
    kick, drift = np.array([[1.0, 0.0], [-h, 1.0]]), np.array([[1.0, h / 2], [0.0, 1.0]])
    after = drift @ np.diag([1.0, c]) @ drift
    heat, shake = drift @ np.array([0.0, math.sqrt(1 - c * c)]), after @ np.array([0.0, h])
    distribution = solve_discrete_lyapunov(after @ kick, np.outer(heat, heat) + noise * np.outer(shake, shake))
    return float(distribution[0, 0] - 1)


def windows_needed(sampler: Baoab, noise_of_one: float, allowed: float = 0.1) -> int:
    """Windows a step so that the noise of the gradient inflates no variance by more than ``allowed``; 2 to 1000."""
    return int(np.clip(math.ceil(inflation(sampler, 1.0) * noise_of_one / allowed), 2, 1000))


def check_noise(sampler: Baoab, noise_of_one: float, size: int) -> Check:
    excess = inflation(sampler, noise_of_one / size)
    message = "excess of the variance from the noise of the gradient"
    good = excess <= 0.12
    return Check("gradient noise", excess, good, message if good else f"{message}: use another method, such as 'auto'")


def check_buffer(bias: float) -> Check:
    message = "whitened gradient that the buffer leaves out" + (
        "" if bias < 0.05 else ": use another method, such as 'auto'"
    )
    return Check("buffer bias", bias, bias < 0.05, message)


# ---------------------------------------------------------------- importance weights
def check_weights(found: Weighted, wanted: float) -> list[Check]:
    """An effective size from a few heavy points is no effective size."""
    low = "" if found.effective >= wanted else f": fewer than the {wanted:.0f} asked for"
    enough = max(200.0, 0.9 * wanted)  # so many are worth no further round
    largest = float(found.weights.max(initial=0.0))
    share = found.effective / found.n_drawn
    k = tail_index(found.log_weights) if share < 0.9 else 0.0  # without weights to speak of it has no meaning
    return [
        Check("Pareto k", k, k < 0.7, "tail of the importance weights" + ("" if k < 0.7 else ": too heavy to average")),
        Check("effective draws by weight", found.effective, found.effective >= enough, f"of importance sampling{low}"),
        Check("largest weight", largest, largest < 0.03, "share of one point among all"),
        Check("last proposal", found.last_share, found.last_share >= 0.1, "effective share of the last round alone"),
    ]


# ---------------------------------------------------------------- states
def check_states(mode: Mode, series: Observations, threads: int | None = None) -> Check:
    """A state that no observation belongs to at the mode tells nothing but its prior; one that sits on an outlier, or
    that the data do not tell from another, is noted."""
    objective = objective_of(series)
    seen, counts = None if objective.is_exact else series, objective.counts
    found = collapsed(mode.model, mode.model.unpack(mode.theta), series, seen, counts=counts, threads=threads)
    least = min(found, key=lambda r: r.observations)
    good = least.kind != "empty"
    message = f"expected observations of state {least.state}, the smallest" + ("" if good else ": use fewer states")
    note = "; ".join(f"state {r.state}: {r.message}" for r in found if r.kind in ("outlier", "twin"))
    return Check("smallest state", least.observations, good, message, note)


# ---------------------------------------------------------------- blocks that stand for a long series
def check_block_sample(
    rng: np.random.Generator, mode: Mode, drawn: BlockSample, threads: int | None = None, points: int = 4
) -> list[Check]:
    """How far a posterior may be off because some blocks stand for all.

    By chance: the largest whitened standard error of the curvature, relative to how far from the mode it is taken, over
    a few points.  At the seams: the largest error of a message where a halo ends.  And whether the passes led to the
    mode: the largest whitened component of the exact gradient there.
    """
    model, errors = mode.model, []
    here = block_gradients(model, mode.theta, drawn, threads) @ mode.factor
    for _ in range(points):
        z = rng.standard_normal(len(mode.theta))
        change = block_gradients(model, mode.theta + mode.factor @ z, drawn, threads) @ mode.factor - here
        variance = ((1 - 1 / drawn.weights)[:, None] * change**2).sum(0)
        errors.append(np.sqrt(variance.max()) / np.linalg.norm(z))
    message = f"standard error of the curvature: {drawn.n_sequences} blocks stand for the series"
    error, seam = float(np.mean(errors)), drawn.seams
    slope = float(np.abs(mode.factor.T @ log_posterior(model, mode.theta, drawn, threads=threads)[1]).max())
    return [
        Check("drawn blocks", error, error < 0.1, message if error < 0.1 else f"{message}: too few. Allow more memory"),
        Check(
            "seams of blocks",
            seam,
            seam < 0.01,
            "error of messages where halos end"
            + ("" if seam < 0.01 else ": states are remembered for too long. Allow more memory"),
        ),
        Check(
            "mode",
            slope,
            slope < 0.1,
            "whitened exact gradient at the mode"
            + ("" if slope < 0.1 else ": the mode was not reached. Start elsewhere, or allow more memory"),
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
    """The Stein test and the spread of a few draws of (chains, n, d), so far apart that they are nearly independent: at
    most a quarter of the effective ones, 30 of a long series, up to 200 of a short one."""
    count = int(min(np.clip(2e7 / len(series), 30, 200), max(effective / 4, 10)))
    flat = draws.reshape(-1, draws.shape[-1])
    few = np.unique(flat[np.linspace(0, len(flat) - 1, count).astype(int)], axis=0)
    g = BatchedLogPosterior(mode.model, series, threads).values_and_slopes(few)[1] @ mode.factor
    p, (ratio, error) = stein_discrepancy(rng, whitened(mode, few), g), spread(whitened(mode, few), g)
    message = "p-value: do the draws fit the exact gradient of the log posterior"
    right = abs(ratio - 1) <= max(0.25, 4 * error)
    wide = f"mean square of the draws, as the exact gradient says it should be 1 (+- {error:.2g})"
    return [
        Check("Stein discrepancy", p, p > 0.001, message if p > 0.001 else f"{message}? They do not"),
        Check(
            "spread", ratio, right, wide if right else f"{wide}: intervals are too {'wide' if ratio > 1 else 'narrow'}"
        ),
    ]


def whitened(mode: Mode, draws: Array) -> Array:
    """Draws (n, d) in the coordinates in which the posterior is nearly a unit Gaussian."""
    return np.asarray(np.linalg.solve(mode.factor, (draws - mode.theta).T).T)


def spread(x: Array, g: Array) -> tuple[float, float]:
    r"""Mean of :math:`-x \cdot g / d` over points x (n, d) with gradients g (n, d), and its standard error.

    It is 1 for draws of any density that falls off (integrate by parts), larger if they are too wide.
    """
    each = -(x * g).sum(1) / x.shape[1]
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(len(each))) if len(each) > 1 else math.inf


def stein_discrepancy(rng: np.random.Generator, x: Array, g: Array) -> float:
    r"""p-value of a kernel Stein test that points x (n, d) come from the density whose gradients there are g (n, d).

    Inverse multiquadric kernel, whitened coordinates; null law by the wild bootstrap (Chwialkowski et al. 2016).  Thin
    the draws first: they should be nearly independent.
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
    """Checks as lines of a table."""
    return [f"  {'ok ' if c.passed else 'BAD'}  {c.name:32}{c.value:>10.3g}  {c.message}" for c in checks]


def verdict(checks: list[Check]) -> str:
    """The whole in a sentence or two."""
    bad = [f"{c.name} {c.value:.3g} ({c.message})" for c in checks if not c.passed]
    notes = "".join(f" Note: {c.note}." for c in checks if c.note)
    good = "Nothing speaks against this posterior."
    return (good if not bad else "Not to be trusted as it is: " + "; ".join(bad) + ".") + notes
