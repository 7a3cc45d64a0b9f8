"""Closed-form M-steps and conditional draws that families share, under conjugate priors.

Arguments are arrays over states (K,): expected counts and sums for an M-step, counts and sums given the path of states
for a draw.  Values that are fixed (``Pinned`` priors) are kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import digamma, polygamma, softmax

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import Prior
from rarehmm.model.priors import Flat, Gamma, InverseGamma, Normal, bare, pinned


def mean_and_variance(y: Array, weight: Array) -> Array:
    """Weighted mean and variance (2,) of observations."""
    mean = np.average(y, weights=weight)
    return np.array([mean, np.average((y - mean) ** 2, weights=weight)])


# ---------------------------------------------------------------- M-steps
def best_mean(total: Array, weight: Array, s2: Array, prior: Prior) -> Array:
    r"""Mode of a mean, :math:`(\sum wy / s^2 + m_0 / v_0) / (\sum w / s^2 + 1 / v_0)`.

    NaN for a state that has neither observations nor a prior.
    """
    precision, linear = normal_terms(prior)
    with np.errstate(invalid="ignore", divide="ignore"):
        return pinned(np.asarray((total / s2 + linear) / (weight / s2 + precision)), prior)


def normal_terms(prior: Prior) -> tuple[float, float]:
    """Precision of a normal prior, and precision times mean; both 0 if the prior is flat."""
    prior = bare(prior)
    check_conjugate(prior, Normal, "EM", "climb by gradients")
    return (1 / prior.variance, prior.mean / prior.variance) if isinstance(prior, Normal) else (0.0, 0.0)


def best_variance(squares: Array, count: Array, prior: Prior) -> Array:
    r"""Mode of log variance: :math:`s^2 = (b + SSE / 2) / (a + n / 2)`."""
    prior = bare(prior)
    check_conjugate(prior, InverseGamma, "EM", "climb by gradients")
    a, b = (prior.shape, prior.scale) if isinstance(prior, InverseGamma) else (0.0, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((b + squares / 2) / (a + count / 2))


def best_mean_and_variance(
    phi: Array, counts: Array, weighted: tuple[Array, Array, Array], priors: tuple[Prior, ...]
) -> Array:
    r"""M-step (K, 2) of a mean, then of the variance given that mean.

    ``weighted`` are :math:`\sum w`, :math:`\sum wz` and :math:`\sum wz^2` with :math:`z = y - \mu` around the means of
    ``phi`` (K, 2).  A state without observations or prior keeps its parameters.
    """
    mean = best_mean(weighted[1] + weighted[0] * phi[:, 0], weighted[0], phi[:, 1], priors[0])
    mean = np.where(np.isfinite(mean), mean, phi[:, 0])
    s2 = best_variance(squares_around(mean - phi[:, 0], *weighted), counts, priors[1])
    return np.column_stack([mean, positive_or(phi[:, 1], s2)])


def squares_around(shift: Array, weight: Array, first: Array, second: Array) -> Array:
    r"""Sums :math:`\sum w(z - \delta)^2` (K,) around a mean shifted by :math:`\delta`."""
    return np.asarray(np.maximum(second - 2 * shift * first + shift**2 * weight, 0.0))


def positive_or(old: Array, new: Array) -> Array:
    """New values where they are finite and positive, the old ones elsewhere."""
    return np.where(np.isfinite(new) & (new > 0), new, old)


def best_rate(total: Array, count: Array, prior: Prior) -> Array:
    r"""Mode of a log rate: :math:`\lambda = (a + \sum y) / (b + n)`."""
    prior = bare(prior)
    check_conjugate(prior, Gamma, "EM", "climb by gradients")
    a, b = (prior.shape, prior.rate) if isinstance(prior, Gamma) else (0.0, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a + total) / (b + count))


def best_shape(start: Array, count: Array, total: Array, prior: Prior) -> Array:
    r"""Mode of the log shape (K,) of a gamma distribution, by Newton steps in :math:`1 / \kappa` (Minka 2002).

    .. math:: n (\log \kappa - \psi(\kappa)) + S + a / \kappa - b = 0, \quad S = \sum \log(y / \mu) - y / \mu + 1
    """
    prior, x = bare(prior), start
    check_conjugate(prior, Gamma, "EM", "climb by gradients")
    a, b = (prior.shape, prior.rate) if isinstance(prior, Gamma) else (0.0, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        for _ in range(30):
            slope = count * (np.log(x) - digamma(x)) + total + a / x - b
            curvature = count * (1 / x - polygamma(1, x)) - a / x**2
            x = x / np.clip(1 + slope / (x * curvature), 0.1, 10.0)
    return np.asarray(x)


def best_count(old: Array, r: Any, counts: Array, total: Array, prior: Prior) -> Array:
    r"""Mode of the log mean (K,) of negative binomial counts of size r.

    The positive root of :math:`(a + \sum y)(r + \mu) = (\sum y + nr)\mu + b\mu(r + \mu)`.  A state without
    observations or prior keeps its mean.
    """
    prior = bare(prior)
    check_conjugate(prior, Gamma, "EM", "climb by gradients")
    a, b = (prior.shape, prior.rate) if isinstance(prior, Gamma) else (0.0, 0.0)
    half = (b * r + counts * r - a) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (a + total) * r / (half + np.sqrt(half**2 + b * r * (a + total)))
    return positive_or(old, mean)


def best_natural(
    start: Array, counts: Array, sums: Array, moments: Callable[[Array], tuple[Array, Array]], priors: tuple[Prior, ...]
) -> Array:
    r"""Modes (K, P) of the natural parameters of an exponential family under normal priors, by Newton steps.

    .. math:: x^\top \sum s(y) - n \log Z(x) - \sum_i (x_i - m_i)^2 / 2 v_i

    ``sums`` (K, P) are sums of the statistics; ``moments(x)`` returns their mean (K, P) and covariance (K, P, P) at x,
    the derivatives of log Z.  Parameters without a prior get a very weak one, so that a category that never occurs has
    finite odds.
    """
    precision, linear = np.array([normal_terms(prior) for prior in priors]).T
    precision = np.maximum(precision, 1e-9)
    fixed = np.column_stack([pinned(np.full(len(counts), np.nan), prior) for prior in priors])
    free = np.isnan(fixed)
    x = np.where(free, start, fixed)
    for _ in range(30):
        mean, covariance = moments(x)
        slope = np.where(free, sums - counts[:, None] * mean + linear - precision * x, 0.0)
        shared = np.where(free[:, :, None] & free[:, None, :], counts[:, None, None] * covariance, 0.0)
        step = np.linalg.solve(shared + precision * np.eye(len(priors)), slope[..., None])[..., 0]
        x = x + np.clip(step, -5 - np.abs(x), 5 + np.abs(x))  # in a flat region a Newton step may be far too long
    return np.asarray(x)


def best_log_odds(counts: Array, priors: tuple[Prior, ...]) -> Array:
    """Modes (K, n - 1) of the log odds of each category against category 0, given the counts (K, n) of categories."""

    def moments(x: Array) -> tuple[Array, Array]:
        p = softmax(np.column_stack([np.zeros(len(x)), x]), axis=1)[:, 1:]
        return p, p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])

    start = np.log((counts[:, 1:] + 0.5) / (counts[:, :1] + 0.5))
    return best_natural(start, counts.sum(1), counts[:, 1:], moments, priors)


# ---------------------------------------------------------------- draws
def draw_mean(rng: np.random.Generator, total: Array, weight: Array, s2: Array, prior: Prior) -> Array:
    r"""Draw each mean given the observations of its state.

    The distribution is normal around ``best_mean`` with variance :math:`1 / (\sum w / s^2 + 1 / v_0)`.
    """
    distribution = bare(prior)
    check_conjugate(distribution, Normal, "Gibbs sampling", "use langevin")
    precision = weight / s2 + (1 / distribution.variance if isinstance(distribution, Normal) else 0.0)
    _proper(precision, "mean")
    drawn = best_mean(total, weight, s2, distribution) + rng.standard_normal(len(precision)) / np.sqrt(precision)
    return pinned(drawn, prior)


def draw_variance(rng: np.random.Generator, squares: Array, count: Array, prior: Prior) -> Array:
    r"""Draw each variance given the observations and the mean of its state, :math:`s^2 \sim IG(a + n/2, b + SSE/2)`.

    Under ``Flat``, a = b = 0: the prior is uniform in the logarithm, with density :math:`1 / s^2`.
    """
    prior = bare(prior)
    check_conjugate(prior, InverseGamma, "Gibbs sampling", "use langevin")
    a, b = (prior.shape, prior.scale) if isinstance(prior, InverseGamma) else (0.0, 0.0)
    shape, scale = a + count / 2, b + squares / 2
    _proper(np.minimum(shape, scale), "variance")
    return np.asarray(scale / rng.standard_gamma(shape))


def draw_rate(rng: np.random.Generator, total: Array, count: Array, prior: Prior) -> Array:
    r"""Draw each rate given the counts of its state, :math:`\lambda \sim Gamma(a + \sum y, b + n)`.

    Under ``Flat``, a = b = 0: the prior is uniform in the logarithm, with density :math:`1 / \lambda`.
    """
    prior = bare(prior)
    check_conjugate(prior, Gamma, "Gibbs sampling", "use langevin")
    a, b = (prior.shape, prior.rate) if isinstance(prior, Gamma) else (0.0, 0.0)
    shape, rate = a + total, b + count
    _proper(np.minimum(shape, rate), "rate")
    return np.asarray(rng.standard_gamma(shape) / rate)


def draw_mean_and_variance(
    rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
) -> Array:
    r"""Draw means given the old variances, then variances given these means (K, 2).

    ``sums`` (K, 2) are :math:`\sum z` and :math:`\sum z^2` with :math:`z = y - \mu` around the means of ``phi``.
    """
    first, second = sums.T
    mean = draw_mean(rng, first + counts * phi[:, 0], counts, phi[:, 1], priors[0])
    squares = squares_around(mean - phi[:, 0], counts, first, second)
    return np.column_stack([mean, draw_variance(rng, squares, counts, priors[1])])


# ---------------------------------------------------------------- refusals
def check_conjugate(prior: Prior, kind: type, who: str, instead: str) -> None:
    """Refuse a prior that is not conjugate, which a closed-form M-step or draw cannot use."""
    if not isinstance(prior, kind | Flat):
        raise TypeError(f"{who} needs a {kind.__name__} prior (or Flat) here, not {prior}; {instead} instead.")


def _proper(information: Array, name: str) -> None:
    """Refuse to draw a parameter about which neither the prior nor an observation says anything."""
    if not (information > 0).all():
        k = int(np.argmin(information > 0))
        raise ValueError(
            f"{name}[{k}] has no proper distribution to be drawn from: its prior is Flat and its state has no "
            "observations that inform it. Give it a prior (default_priors), or use fewer states."
        )
