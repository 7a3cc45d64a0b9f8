"""Mixtures of Student-t distributions from which importance sampling draws, and how they follow the posterior.

They improve in three ways.  A Gaussian mixture is fitted to what is known so far (``fitted``): it follows global
shapes.  Small components are placed around points of large weight, with the covariance of their neighbours
(``around_heaviest``, the incremental mixtures of Raftery and Bao 2010): they follow arms, funnels, and modes of which a
single point is known.  The shares of all of them are those of maximum likelihood (``with_best_shares``).
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln, logsumexp

from rarehmm.common.arrays import Array, IntArray

DEGREES = 4.0  # degrees of freedom of every component
BROADER = 2.0  # width of the second copy of each component of ``fitted``
COMPONENTS = (1, 2, 4, 8, 16)  # numbers of components that ``fitted`` tries
MOST_FITTED = 2000  # points to which a mixture is fitted
HEAVIEST = 12  # points of large weight around which components are placed
NEIGHBOURS = 30  # per dimension, whose covariance such a component has
SHARE_STEPS = 20  # steps of EM for the shares
SMALLEST_COMPONENT = 1e-3  # of a component; those with less are dropped


class Proposal(NamedTuple):
    """Mixture of C Student-t distributions with shares (C,), means (C, d) and factors (C, d, d) of their scales."""

    shares: Array
    means: Array
    factors: Array

    def draw(self, rng: np.random.Generator, size: int) -> Array:
        """Draw points (size, d)."""
        kind: IntArray = rng.choice(len(self.shares), size, p=self.shares)
        noise = rng.standard_normal((size, self.means.shape[1]))
        noise /= np.sqrt(rng.chisquare(DEGREES, size) / DEGREES)[:, None]
        return np.asarray(self.means[kind] + np.einsum("nij,nj->ni", self.factors[kind], noise))

    def mixed_with(self, other: "Proposal", share: float) -> "Proposal":
        """Mixture of this proposal and a ``share`` of another."""
        shares = np.concatenate([(1 - share) * self.shares, share * other.shares])
        return Proposal(
            shares, np.concatenate([self.means, other.means]), np.concatenate([self.factors, other.factors])
        )

    def component_log_densities(self, x: Array) -> Array:
        """Log densities (C, n) of points x (n, d) under each component."""
        d = x.shape[1]
        norm = gammaln((DEGREES + d) / 2) - gammaln(DEGREES / 2) - d / 2 * np.log(DEGREES * np.pi)
        out = np.empty((len(self.shares), len(x)))
        for row, mean, factor in zip(out, self.means, self.factors, strict=True):
            square = (solve_triangular(factor, (x - mean).T, lower=True) ** 2).sum(0)
            row[:] = norm - np.log(np.diag(factor)).sum() - (DEGREES + d) / 2 * np.log1p(square / DEGREES)
        return out

    def log_density(self, x: Array) -> Array:
        """Log densities (n,) of points x (n, d)."""
        return np.asarray(logsumexp(self.component_log_densities(x) + np.log(self.shares)[:, None], axis=0))


def student_t(d: int, width: float) -> Proposal:
    """A single component around 0, as wide in every direction."""
    return Proposal(np.ones(1), np.zeros((1, d)), width * np.eye(d)[None])


def effective(log_weights: Array) -> float:
    """Effective sample size (sum w)^2 / sum w^2; 0 if there are no weights."""
    if len(log_weights) == 0:
        return 0.0
    return float(np.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights)))


def normalised(log_weights: Array) -> Array:
    """Weights (n,) that sum to one."""
    return np.asarray(np.exp(log_weights - logsumexp(log_weights)))


def cut(log_weights: Array) -> Array:
    """Log weights (n,), normalised, none above that of n^(-1/2)."""
    return np.asarray(np.minimum(log_weights - logsumexp(log_weights), -0.5 * np.log(len(log_weights))))


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
        return student_t(d, 1.0)
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
    factors = np.linalg.cholesky(covariances)
    once = Proposal(weights, means, factors)
    return once.mixed_with(Proposal(weights, means, BROADER * factors), 0.1)


def around_heaviest(rng: np.random.Generator, points: Array, log_weights: Array) -> Proposal:
    """Components around the points (n, d) of largest weight, with the covariance of their neighbours.

    No centre is among the nearest neighbours of another.  In the covariance, points count half by weight and half
    equally; distances are relative to the spread of all points.  Shares follow the weights of the centres, half of them
    are spread evenly.
    """
    n, d = points.shape
    weights, near = normalised(log_weights), min(n, NEIGHBOURS * d)
    drawn = points[rng.choice(n, MOST_FITTED, p=normalised(cut(log_weights)))]
    every = np.atleast_2d(np.cov(drawn.T)) + 1e-6 * np.eye(d)
    z = solve_triangular(np.linalg.cholesky(every), points.T, lower=True).T
    taken, centres, factors = np.zeros(n, dtype=bool), [], []
    for i in np.argsort(-weights)[:MOST_FITTED]:
        if taken[i]:
            continue
        nearest = np.argpartition(((z - z[i]) ** 2).sum(1), near - 1)[:near]
        closest = nearest[np.argsort(((z[nearest] - z[i]) ** 2).sum(1))][: max(1, near // 4)]
        taken[closest] = True
        apart, share = points[nearest] - points[i], weights[nearest] + 1 / n
        covariance = (share[:, None] * apart).T @ apart / share.sum()
        covariance += 1e-6 * np.diag(np.diag(every) + np.diag(covariance))  # neighbours may be far, and on a plane
        centres.append(i)
        factors.append(np.linalg.cholesky(covariance))
        if len(centres) == HEAVIEST:
            break
    heights = weights[centres] / weights[centres].sum()
    return Proposal((heights + 1 / len(centres)) / 2, points[centres], np.array(factors))


def with_best_shares(proposal: Proposal, x: Array) -> Proposal:
    """Components with the shares most likely for points x (n, d), without those that hardly any point needs."""
    each, logs = proposal.component_log_densities(x), np.log(proposal.shares)
    for _ in range(SHARE_STEPS):
        joint = each + logs[:, None]
        logs = np.log(np.maximum(np.exp(joint - logsumexp(joint, axis=0)).mean(1), 1e-300))
    shares = np.exp(logs)
    kept = shares >= min(SMALLEST_COMPONENT, float(shares.max()))
    return Proposal(shares[kept] / shares[kept].sum(), proposal.means[kept], proposal.factors[kept])
