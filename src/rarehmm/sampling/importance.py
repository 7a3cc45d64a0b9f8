r"""Importance sampling from the Laplace approximation and from adaptive proposals: exact, with forward passes only.

In cube-root coordinates the posterior is nearly Gaussian: :math:`\phi = (P_{jk} / P_{jr})^{1/3}`, :math:`s^{-2/3}`,
:math:`\lambda^{1/3}`, and means as they are.  With :math:`\theta = 3 t \log \phi`, t = 1 or -1, the log density gains
:math:`\sum \log (3 / \phi)`.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

from rarehmm.common.arrays import Array, BoolArray
from rarehmm.common.checks import warn_interrupted
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import Observations
from rarehmm.exact.passes import log_posterior
from rarehmm.model.model import Model
from rarehmm.model.priors import InverseGamma
from rarehmm.sampling.proposals import (
    MOST_FITTED,
    Proposal,
    around_heaviest,
    cut,
    effective,
    fitted,
    normalised,
    representative,
    student_t,
    with_best_shares,
)
from rarehmm.search.mode import Mode, is_labelled_like_mode, metric

NEARLY_GAUSSIAN = 0.8  # share of effective points of the Laplace approximation
LAPLACE_POINTS = (64, 128, 256, 512, 1024, 2048)  # numbers of these points at which their share is looked at
CLEAR = 3.0  # standard errors that the share must be away from a limit
FRESH = 80.0  # effective points of the last round by its own proposal; with fewer, it does not fit the posterior yet
WIDE = 1.2  # width of the proposal at the mode that is part of every mixture, beside the Laplace approximation
GROWTH = 16  # rounds of proposals that do not fit yet have this part of the points drawn before, at least
READS = 1e10  # observations that may be read for all points
DENSITY = 300  # times d^2: observations that can be read while the density of proposals at a point is computed
LEAST_POINTS, MOST_POINTS = 6, 40  # points that may be drawn, whatever their cost, per effective draw that is wanted


class Roots:
    """Cube-root coordinates of a model around its mode.

    ``power`` holds t (d,), 0 for coordinates that stay as they are; ``centre`` and ``factor`` are those of the Laplace
    approximation in these coordinates.
    """

    def __init__(self, mode: Mode, series: Observations, threads: int | None = None) -> None:
        self.model, self.series, self.threads = mode.model, series, threads
        self.power = powers(mode.model)
        self.mode, self.points = mode, BatchedLogPosterior(mode.model, series, threads)
        self.centre, self.factor = self._mode(mode)

    @property
    def rooted(self) -> BoolArray:
        """Mask of the coordinates that are roots, and hence positive."""
        return np.asarray(self.power != 0)

    def roots(self, theta: Array) -> Array:
        """Roots phi (..., .) of points theta (..., d)."""
        return to_roots(theta, self.power)

    def theta(self, phi: Array) -> Array:
        """Points theta (..., d) of roots phi (..., .)."""
        return from_roots(phi, self.power)

    def whiten(self, theta: Array) -> Array:
        """Whitened roots (n, d) of points theta (n, d): standard normal where the Laplace approximation is exact."""
        return np.asarray(solve_triangular(self.factor, (self.roots(theta) - self.centre).T, lower=True).T)

    def log_jacobian(self, phi: Array) -> Array:
        """Log density of phi (n, .) minus that of theta."""
        return np.asarray(np.log(3 / phi[:, self.rooted]).sum(1))

    def log_density(self, phi: Array) -> Array:
        """Log posterior densities (n,) of phi (n, .), with states labelled as at the mode.

        Minus infinity where there is no density, or states are labelled differently.
        """
        out = np.full(len(phi), -np.inf)
        positive = np.nonzero((phi[:, self.rooted] > 0).all(1))[0]
        theta = self.theta(phi[positive])
        ordered = is_labelled_like_mode(self.mode, theta)  # other labellings are left out, as draws are relabelled
        inside = positive[ordered]
        if len(inside) > 0:
            out[inside] = self.points.values(theta[ordered]) + self.log_jacobian(phi[inside])
        return out

    def slope(self, phi: Array) -> Array:
        """Gradient of ``log_density`` at one phi."""
        g = log_posterior(self.model, self.theta(phi), self.series, threads=self.threads)[1]
        return root_slope(phi, self.power, g)

    def _mode(self, mode: Mode) -> tuple[Array, Array]:
        """Mode in these coordinates, and the factor of the inverse Hessian there.

        Where the mode is close to that in theta, the Hessian is the one at the latter, transformed.
        """
        phi = self.roots(mode.theta)
        scale = np.where(self.rooted, 3 * self.power / np.where(self.rooted, phi, 1.0), 1.0)
        hessian = scale[:, None] * mode.hessian * scale - np.diag(np.where(self.rooted, phi, np.inf) ** -2.0)
        factor, positive_definite = metric(hessian)
        top = self._climb(phi, factor)
        if positive_definite and np.linalg.norm(solve_triangular(factor, top - phi, lower=True)) < 0.1:
            return top, factor
        return self._refine(top, np.linalg.norm(mode.factor, axis=1))

    def _climb(self, phi: Array, factor: Array) -> Array:
        """Move uphill by a few Newton steps with a fixed metric."""
        for _ in range(4):
            slope = factor.T @ self.slope(phi)
            if np.abs(slope).max() < 1e-2:
                break
            move = factor @ (slope / max(1.0, float(np.abs(slope).max())))
            while (phi[self.rooted] + move[self.rooted] <= 0.5 * phi[self.rooted]).any():
                move = move / 2
            phi = phi + move
        return phi

    def _refine(self, phi: Array, spread: Array) -> tuple[Array, Array]:
        """Take one more Newton step, with the factor of the inverse Hessian by finite differences; return both.

        ``spread`` (d,): standard deviations of theta, a hundredth of which is the size of a difference.
        """
        d = len(phi)
        rows = np.empty((d, d))
        for i in range(d):
            step = np.zeros(d)
            step[i] = 1e-3 * phi[i] if self.rooted[i] else 1e-2 * spread[i]
            rows[i] = (self.slope(phi - step) - self.slope(phi + step)) / (2 * step[i])
        factor, _ = metric((rows + rows.T) / 2)
        better = phi + factor @ (factor.T @ self.slope(phi))
        before, after = self.log_density(np.array([phi, better]))
        return better if after > before else phi, factor


def to_roots(theta: Array, power: Array) -> Array:
    """Map theta to roots exp(t theta / 3), or to itself where the power t is 0."""
    rooted = power != 0
    return np.where(rooted, np.exp(np.where(rooted, power * theta / 3, 0.0)), theta)


def from_roots(phi: Array, power: Array) -> Array:
    """Map roots to theta = 3 t log phi, or to themselves where the power t is 0."""
    rooted = power != 0
    return np.where(rooted, 3 * power * np.log(np.where(rooted, phi, 1.0)), phi)


def root_slope(phi: Array, power: Array, slope: Array) -> Array:
    """Gradient of a log density in roots from that in theta, with the Jacobian."""
    inverse = np.divide(1.0, phi, out=np.zeros(len(phi)), where=power != 0)
    return np.where(power != 0, 3 * power * inverse * slope - inverse, slope)


def powers(model: Model) -> Array:
    """Power t of each coordinate: -1 for variances (inverse gamma priors), 1 for rates and transitions, 0 for the rest,
    coefficients among them.

    It is also 0 where the prior is so diffuse that the density of a root would not vanish at 0.
    """
    kinds = []
    for log, prior in zip(model.as_logs, model.priors.emission, strict=True):
        enough = getattr(prior, "shape", 0.0) > 1 / 3
        kinds.append((-1.0 if isinstance(prior, InverseGamma) else 1.0) if log and enough else 0.0)
    transitions = has_roots(model)
    rows = np.full(model.coordinates.size(model.n_states), float(transitions))
    return np.concatenate([np.repeat(kinds, model.n_states), rows, np.zeros(model.coefficients.size)])[model.free]


def has_roots(model: Model) -> bool:
    """Whether roots of transition probabilities have a mode: with log ratios, and a prior that is not too diffuse."""
    return not model.coordinates.is_expanded and model.priors.transition.concentration > 1 / 3


class Weighted(NamedTuple):
    """Points theta (n, d) with log weights (n,).

    ``n_drawn``: number of points drawn, including those of zero density, which are left out; ``last``: effective
    sample size of the last round alone, weighted by its own proposal.
    """

    theta: Array
    log_weights: Array
    n_drawn: int
    last: float
    interrupted: bool = False

    @property
    def weights(self) -> Array:
        """Weights (n,), normalised to sum to one."""
        return normalised(self.log_weights)

    @property
    def effective(self) -> float:
        """Effective sample size."""
        return effective(self.log_weights)

    @property
    def share(self) -> float:
        """Effective sample size as a share of the points drawn."""
        return self.effective / self.n_drawn

    @property
    def evidence(self) -> float:
        """Log marginal likelihood: the log of the integral of the unnormalised posterior."""
        return float(logsumexp(self.log_weights) - np.log(self.n_drawn))

    def resample(self, rng: np.random.Generator, size: int) -> Array:
        """Equally weighted draws (size, d), by systematic resampling."""
        if len(self.theta) == 0:
            raise ValueError(
                f"none of the {self.n_drawn} points drawn around the mode has a positive density: its states are "
                "hardly distinguishable, so importance sampling fails. Use fewer states, or another method ('auto')."
            )
        at = (np.arange(size) + rng.random()) / size
        return self.theta[np.minimum(np.searchsorted(np.cumsum(self.weights), at), len(self.theta) - 1)]


def laplace_importance(
    rng: np.random.Generator,
    roots: Roots,
    totals: tuple[int, ...] = LAPLACE_POINTS,
    *,
    limit: float | None = NEARLY_GAUSSIAN,
) -> Weighted:
    """Draw points from the Gaussian at the mode in cube-root coordinates, and weight them to the posterior.

    Their number grows along ``totals`` until it is clear on which side of ``limit`` their effective share lies, if
    there is a limit.
    """
    z, log_weights = np.empty((0, len(roots.centre))), np.empty(0)
    constant = np.log(np.diag(roots.factor)).sum() + len(roots.centre) / 2 * np.log(2 * np.pi)
    for total in totals:
        new = rng.standard_normal((total - len(z), len(roots.centre)))
        logs = roots.log_density(roots.centre + new @ roots.factor.T) + (new**2).sum(1) / 2 + constant
        z, log_weights = np.vstack([z, new]), np.append(log_weights, logs)
        share = effective(log_weights[np.isfinite(log_weights)]) / len(z)
        if limit is not None and is_clear(log_weights, share, limit):
            break
    inside = np.isfinite(log_weights)
    return Weighted(roots.theta(roots.centre + z[inside] @ roots.factor.T), log_weights[inside], len(z), share * len(z))


def is_clear(log_weights: Array, share: float, limit: float) -> bool:
    """Whether enough log weights (n,) were drawn to say on which side of ``limit`` their effective share lies.

    The standard error is that of the mean over eight parts; it must fit ``CLEAR`` times between share and limit.
    """
    parts = np.array_split(log_weights, 8)
    shares = np.array([effective(part[np.isfinite(part)]) / len(part) for part in parts])
    error = max(float(shares.std(ddof=1)) / np.sqrt(len(parts)), 1e-3)
    return bool(abs(share - limit) > CLEAR * error)


class Cloud:
    """Points drawn so far, whitened (n, d), with log posterior densities (n,) and log densities of their proposals.

    The latter are those of the mixture of all proposals, in proportion to the points drawn from each (deterministic
    mixture): weights are bounded where any of them is wide enough.
    """

    def __init__(self, roots: Roots) -> None:
        self.roots, d = roots, len(roots.centre)
        self.constant = float(np.log(np.diag(roots.factor)).sum())
        self.points, self.logs, self.mixture = np.empty((0, d)), np.empty(0), np.empty(0)
        self.proposals: list[tuple[float, Proposal]] = []  # with the logarithm of the number of points of each
        self.size, self.last = 1, 0.0  # points of the last round, and how many its own proposal makes them worth

    def __len__(self) -> int:
        return len(self.points)

    def draw(self, rng: np.random.Generator, proposal: Proposal, size: int) -> None:
        """Add points of another proposal; all or none, whenever Ctrl-C arrives."""
        new = proposal.draw(rng, size)
        logs = self.roots.log_density(self.roots.centre + new @ self.roots.factor.T) + self.constant
        own, proposals = proposal.log_density(new), [*self.proposals, (float(np.log(size)), proposal)]
        last = effective((logs - own)[np.isfinite(logs)])
        mixture = np.logaddexp(self.mixture, np.log(size) + proposal.log_density(self.points))
        others = [count + p.log_density(new) for count, p in self.proposals]
        mixture = np.append(mixture, logsumexp([np.log(size) + own, *others], axis=0))
        points, logs = np.vstack([self.points, new]), np.append(self.logs, logs)
        self.points, self.logs, self.mixture, self.proposals, self.size, self.last = (
            points, logs, mixture, proposals, size, last
        )  # fmt: skip

    def weighted(self) -> tuple[Array, Array]:
        """Points (m, d) of positive density and their log weights (m,)."""
        inside = np.isfinite(self.logs)
        return self.points[inside], (self.logs - self.mixture)[inside] + np.log(max(len(self), 1))

    def proposal(self, rng: np.random.Generator, seen: Array, wide: Proposal, refit: bool) -> Proposal:
        """The next proposal: components so far, others around points of large weight and, with ``refit``, those of a
        mixture fitted anew to points ``seen`` (m, d) and to what weights say, all with their best shares."""
        points, log_weights = self.weighted()
        before = self.proposals[-1][1]
        if len(points) < 2:
            return before
        if refit:
            before = before.mixed_with(fitted(rng, np.vstack([representative(rng, points, log_weights), seen])), 0.5)
        heaviest = around_heaviest(rng, points, log_weights)
        drawn = points[rng.choice(len(points), MOST_FITTED, p=normalised(cut(log_weights)))]
        best = with_best_shares(before.mixed_with(heaviest, 0.5), drawn)
        return best.mixed_with(heaviest, 0.25).mixed_with(wide, 0.15 if len(seen) == 0 else 0.05)


def adaptive_importance(
    rng: np.random.Generator,
    roots: Roots,
    wanted: float = 1000.0,
    rounds: tuple[int, ...] = (400, 400, 400, 800),
    *,
    explored: Array | None = None,
) -> Weighted:
    """Draw points from adaptive proposals, and weight them to the posterior.

    The first proposal is a mixture of Student-t distributions fitted to draws ``explored`` (n, d) of theta, by default
    a single one at the mode.  Each round improves it; weights are the posterior over the mixture of all proposals.
    Rounds go on until the effective sample size is ``wanted`` and the last round has ``FRESH`` effective points of its
    own, or no more points can be afforded.  Ctrl-C returns the result of the last complete round.
    """
    d = len(roots.centre)
    cloud, wide = Cloud(roots), student_t(d, WIDE)
    seen = np.empty((0, d)) if explored is None else roots.whiten(explored)
    proposal = student_t(d, 1.05) if explored is None else first_proposal(rng, roots, seen)
    most, reached, number, interrupted = affordable_points(roots, wanted), 0.0, 0, False
    try:
        while True:
            size = rounds[min(number, len(rounds) - 1)]
            if number >= len(rounds) - 1 and cloud.last >= FRESH:  # as many as are still missing
                share = cloud.last / cloud.size
                size = int(np.clip(1.1 * (wanted - reached) / share, size, max(size, 4 * wanted)))
            elif number >= len(rounds):
                size = max(size, len(cloud) // GROWTH)
            cloud.draw(rng, proposal, size)
            points, log_weights = cloud.weighted()
            reached, number = effective(log_weights), number + 1
            enough = reached >= wanted and cloud.last >= FRESH
            if number >= len(rounds) and (enough or len(cloud) >= most or len(points) == 0):
                break
            proposal = cloud.proposal(rng, seen, wide, refit=number < len(rounds))
    except KeyboardInterrupt:
        warn_interrupted(int(reached), int(wanted))
        interrupted = True
    points, log_weights = cloud.weighted()
    theta = roots.theta(roots.centre + points @ roots.factor.T)
    return Weighted(theta, log_weights, len(cloud), cloud.last, interrupted)


def first_proposal(rng: np.random.Generator, roots: Roots, seen: Array) -> Proposal:
    """Mixture fitted to whitened points seen (n, d), with components where it lacks density relative to the posterior.

    A mode that few of the points have reached would otherwise be lost in the tails of a component.
    """
    proposal = fitted(rng, seen)
    logs = roots.log_density(roots.centre + seen @ roots.factor.T)
    inside = np.isfinite(logs)
    if inside.sum() < 2:
        return proposal
    lacking = logs[inside] - proposal.log_density(seen[inside])
    return proposal.mixed_with(around_heaviest(rng, seen[inside], lacking), 0.25)


def affordable_points(roots: Roots, wanted: float) -> int:
    """Number of points that may be drawn in about half a minute: a forward pass at each, and its density under all
    proposals, which costs as much as some observations."""
    rows = len(roots.series) * max(1.0, (roots.model.n_states / 3) ** 2) + DENSITY * len(roots.centre) ** 2
    return int(np.clip(READS / rows, LEAST_POINTS * wanted, MOST_POINTS * wanted))
