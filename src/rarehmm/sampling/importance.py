r"""Importance sampling from the Laplace approximation and from adaptive proposals: exact, with forward passes only.

In cube-root coordinates the posterior is nearly Gaussian: :math:`\phi = (P_{jk} / P_{jr})^{1/3}`, :math:`s^{-2/3}`,
:math:`\lambda^{1/3}`, and means as they are.  With :math:`\theta = 3 t \log \phi`, t = 1 or -1, the log density gains
:math:`\sum \log (3 / \phi)`.
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.checks import warn_interrupted
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import Observations
from rarehmm.exact.passes import log_posterior
from rarehmm.model.model import Model
from rarehmm.model.priors import InverseGamma
from rarehmm.search.mode import Mode, is_labelled_like_mode, metric

DEGREES = 4.0  # degrees of freedom of the proposals
NEARLY_GAUSSIAN = 0.8  # share of effective points of the Laplace approximation
LAPLACE_POINTS = (64, 128, 256, 512, 1024, 2048)  # numbers of these points at which their share is looked at
CLEAR = 3.0  # standard errors that the share must be away from a limit
MORE_ROUNDS = 5  # rounds beyond the plan
EFFICIENT = 0.1  # effective share of the last round; with less, proposals do not fit the posterior yet
WIDE = 1.2  # width of the proposal at the mode that is part of every mixture, beside the Laplace approximation
BROADER = 2.0  # width of the second copy of each component
COMPONENTS = (1, 2, 4, 8, 16)  # numbers of components to try
MOST_FITTED = 2000  # points to which a proposal is fitted


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
    """Power t of each coordinate: -1 for variances (inverse gamma priors), 1 for rates and transitions, 0 for the rest.

    It is also 0 where the prior is so diffuse that the density of a root would not vanish at 0.
    """
    kinds = []
    for log, prior in zip(model.as_logs, model.priors.emission, strict=True):
        enough = getattr(prior, "shape", 0.0) > 1 / 3
        kinds.append((-1.0 if isinstance(prior, InverseGamma) else 1.0) if log and enough else 0.0)
    transitions = has_roots(model)
    size = model.coordinates.size(model.n_states)
    return np.concatenate([np.repeat(kinds, model.n_states), np.full(size, float(transitions))])[model.free]


def has_roots(model: Model) -> bool:
    """Whether roots of transition probabilities have a mode: with log ratios, and a prior that is not too diffuse."""
    return not model.coordinates.is_expanded and model.priors.transition.concentration > 1 / 3


class Weighted(NamedTuple):
    """Points theta (n, d) with log weights (n,).

    ``n_drawn``: number of points drawn, including those of zero density, which are left out; ``last_share``: effective
    sample size of the last round alone, as a share of its points.
    """

    theta: Array
    log_weights: Array
    n_drawn: int
    last_share: float
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
    def evidence(self) -> float:
        """Log marginal likelihood: the log of the integral of the unnormalised posterior."""
        return float(logsumexp(self.log_weights) - np.log(self.n_drawn))

    def starts(self, rng: np.random.Generator, size: int) -> Array:
        """Draw points (size, d) with weights cut at n^(-1/2), so that no few of them are drawn again and again."""
        return self.theta[rng.choice(len(self.theta), size, p=normalised(cut(self.log_weights)))]

    def resample(self, rng: np.random.Generator, size: int) -> Array:
        """Equally weighted draws (size, d), by systematic resampling."""
        if len(self.theta) == 0:
            raise ValueError(
                f"none of the {self.n_drawn} points drawn around the mode has a positive density: its states are "
                "hardly distinguishable, so importance sampling fails. Use fewer states, or another method ('auto')."
            )
        at = (np.arange(size) + rng.random()) / size
        return self.theta[np.minimum(np.searchsorted(np.cumsum(self.weights), at), len(self.theta) - 1)]


def effective(log_weights: Array) -> float:
    """Effective sample size (sum w)^2 / sum w^2; 0 if there are no weights."""
    if len(log_weights) == 0:
        return 0.0
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights)))


class Proposal(NamedTuple):
    """Mixture of Student-t distributions with given shares, means and factors."""

    shares: list[float]
    means: list[Array]
    factors: list[Array]

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Draw points (size, d)."""
        kind: IntArray = rng.choice(len(self.shares), size, p=self.shares)
        d = len(self.means[0])
        noise = rng.standard_normal((size, d)) / np.sqrt(rng.chisquare(DEGREES, size) / DEGREES)[:, None]
        return np.array([self.means[k] + self.factors[k] @ e for k, e in zip(kind, noise, strict=True)])

    def mixed_with(self, other: "Proposal", share: float) -> "Proposal":
        """Mixture of this proposal and a ``share`` of another."""
        shares = [*((1 - share) * s for s in self.shares), *(share * s for s in other.shares)]
        return Proposal(shares, self.means + other.means, self.factors + other.factors)

    def log_density(self, x: Array) -> Array:
        """Log densities (n,) of points x (n, d)."""
        d = x.shape[1]
        norm = gammaln((DEGREES + d) / 2) - gammaln(DEGREES / 2) - d / 2 * np.log(DEGREES * np.pi)
        parts = []
        for share, mean, factor in zip(*self, strict=True):
            square = (solve_triangular(factor, (x - mean).T, lower=True) ** 2).sum(0)
            logs = norm - np.log(np.diag(factor)).sum() - (DEGREES + d) / 2 * np.log1p(square / DEGREES)
            parts.append(np.log(share) + logs)
        return np.asarray(logsumexp(parts, axis=0))


def laplace_importance(
    rng: np.random.Generator,
    roots: Roots,
    totals: tuple[int, ...] = LAPLACE_POINTS,
    *,
    limit: float = NEARLY_GAUSSIAN,
) -> Weighted:
    """Draw points from the Gaussian at the mode in cube-root coordinates, and weight them to the posterior.

    Their number grows along ``totals`` until it is clear on which side of ``limit`` their effective share lies.
    """
    z, log_weights = np.empty((0, len(roots.centre))), np.empty(0)
    constant = np.log(np.diag(roots.factor)).sum() + len(roots.centre) / 2 * np.log(2 * np.pi)
    for total in totals:
        new = rng.standard_normal((total - len(z), len(roots.centre)))
        logs = roots.log_density(roots.centre + new @ roots.factor.T) + (new**2).sum(1) / 2 + constant
        z, log_weights = np.vstack([z, new]), np.append(log_weights, logs)
        share = effective(log_weights[np.isfinite(log_weights)]) / len(z)
        if is_clear(log_weights, share, limit):
            break
    inside = np.isfinite(log_weights)
    return Weighted(roots.theta(roots.centre + z[inside] @ roots.factor.T), log_weights[inside], len(z), share)


def is_clear(log_weights: Array, share: float, limit: float) -> bool:
    """Whether enough log weights (n,) were drawn to say on which side of ``limit`` their effective share lies.

    The standard error is that of the mean over eight parts; it must fit ``CLEAR`` times between share and limit.
    """
    parts = np.array_split(log_weights, 8)
    shares = np.array([effective(part[np.isfinite(part)]) / len(part) for part in parts])
    error = max(float(shares.std(ddof=1)) / np.sqrt(len(parts)), 1e-3)
    return bool(abs(share - limit) > CLEAR * error)


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
    a single one at the mode.  After each round another is fitted to all points so far; weights are the posterior over
    the mixture of all proposals (deterministic mixture).  The last planned round is as long as it takes to reach the
    effective sample size ``wanted``; up to ``MORE_ROUNDS`` follow if it is not reached, or if less than ``EFFICIENT``
    of a round is effective.  Ctrl-C returns the result of the last complete round.
    """
    d = len(roots.centre)
    seen = np.empty((0, d)) if explored is None else roots.whiten(explored)
    wide = Proposal([1.0], [np.zeros(d)], [WIDE * np.eye(d)])
    proposals = [Proposal([1.0], [np.zeros(d)], [1.05 * np.eye(d)]) if explored is None else fitted(rng, seen)]
    points, logs, sizes = np.empty((0, d)), np.empty(0), np.empty(0)
    constant = np.log(np.diag(roots.factor)).sum()
    weights, inside, reached, own, number = logs, np.empty(0, dtype=bool), 0.0, 1.0, 0
    interrupted = False
    try:
        while number < len(rounds) or (
            min(reached / wanted, own / EFFICIENT) < 1 and number < len(rounds) + MORE_ROUNDS
        ):
            size = rounds[min(number, len(rounds) - 1)]
            if number >= len(rounds) - 1:  # as many as are still missing, at the efficiency of the previous round
                size = int(np.clip(1.1 * (wanted - reached) / max(own, 0.1), size, max(size, 4 * wanted)))
            if number > 0:
                learnt = fitted(rng, np.vstack([representative(rng, points[inside], weights[inside]), seen]))
                proposals.append(learnt.mixed_with(wide, 0.15 if explored is None else 0.05))
            new = proposals[-1].draw(rng, size)
            fresh = roots.log_density(roots.centre + new @ roots.factor.T) + constant
            own = effective((fresh - proposals[-1].log_density(new))[np.isfinite(fresh)]) / size
            all_points, all_logs, all_sizes = np.vstack([points, new]), np.append(logs, fresh), np.append(sizes, size)
            shares = np.log(all_sizes / all_sizes.sum())
            distributions = zip(shares, proposals, strict=True)
            mixture = logsumexp([s + p.log_density(all_points) for s, p in distributions], axis=0)
            worth = effective((all_logs - mixture)[np.isfinite(all_logs)])
            points, logs, sizes, weights, inside, reached, number = (  # all or nothing, whenever Ctrl-C arrives
                all_points, all_logs, all_sizes, all_logs - mixture, np.isfinite(all_logs), worth, number + 1,
            )  # fmt: skip
    except KeyboardInterrupt:
        warn_interrupted(int(reached), int(wanted))
        interrupted = True
    theta = roots.theta(roots.centre + points[inside] @ roots.factor.T)
    return Weighted(theta, weights[inside], len(points), own, interrupted)


def representative(rng: np.random.Generator, points: Array, log_weights: Array) -> Array:
    """Points (m, d) drawn in proportion to their weights, as many as these are worth, and at most ``MOST_FITTED``.

    Weights are cut at n^(-1/2) and tempered until they are worth 8 d points.
    """
    n, d = points.shape
    if n == 0:
        return points
    logs, power = cut(log_weights), 1.0
    while effective(power * logs) < 8 * d and power > 0.02:
        power *= 0.8
    count = int(np.clip(effective(power * logs), 1, MOST_FITTED))
    return points[rng.choice(n, count, p=normalised(power * logs))]


def cut(log_weights: Array) -> Array:
    """Log weights (n,), normalised, none above that of n^(-1/2)."""
    return np.asarray(np.minimum(log_weights - logsumexp(log_weights), -0.5 * np.log(len(log_weights))))


def normalised(log_weights: Array) -> Array:
    """Weights (n,) that sum to one."""
    return np.asarray(np.exp(log_weights - logsumexp(log_weights)))


def fitted(rng: np.random.Generator, points: Array) -> Proposal:
    """Mixture of Student-t distributions fitted to whitened points (n, d).

    A Gaussian mixture with as many components as the Bayesian information criterion supports; each appears a second
    time with ``BROADER`` times its width.  The covariance of a single component is shrunk towards the identity, which
    it equals if there are no points.
    """
    from sklearn.exceptions import ConvergenceWarning  # here, since it takes longer to import than the rest of rarehmm
    from sklearn.mixture import GaussianMixture

    n, d = points.shape
    if n < 2:
        return Proposal([1.0], [np.zeros(d)], [np.eye(d)])
    centre, scale = points.mean(0), np.maximum(points.std(0), 1e-6)
    share = n / (n + 3.0 * d)
    single = share * np.atleast_2d(np.cov(points.T, bias=True)) + (1 - share) * np.eye(d)
    weights, means, covariances = np.ones(1), centre[None], single[None]
    lowest, z = np.inf, (points - centre) / scale
    for count in COMPONENTS:
        if n < 4 * count * d:
            break
        mixture = GaussianMixture(
            count, reg_covar=1e-3, max_iter=60, init_params="k-means++", random_state=int(rng.integers(2**31))
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # close enough for a proposal
            criterion = float(mixture.fit(z).bic(z))
        if criterion >= lowest:
            break
        lowest = criterion
        if count > 1:
            weights, means = mixture.weights_, centre + scale * mixture.means_
            covariances = scale[:, None] * mixture.covariances_ * scale
    factors = [np.asarray(np.linalg.cholesky(c), dtype=np.float64) for c in covariances]
    shares = [*(0.9 * weights), *(0.1 * weights)]
    return Proposal(shares, [*means, *means], [*factors, *(BROADER * f for f in factors)])
