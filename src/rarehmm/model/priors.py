r"""Priors: their log densities and slopes, and the defaults, which are scaled from the data.

A default prior moves and stretches with the data, so that a series in volts and the same one in nanovolts give the
same answer.  Each is worth a handful of observations: enough to keep a state of three observations from collapsing,
too little to be seen in one of thirty.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from rarehmm.common.arrays import Array
from rarehmm.data.summaries import Summary
from rarehmm.engine.contracts.family import Prior

COPIES = 1e-8  # of the noise of a column, at least its own: with less, slopes are lost to rounding
FINEST = 1e-12  # squared radians

Terms = tuple[float, float, float, float]


def slope_by_terms(terms: Terms, x: Array) -> Array:
    r""":math:`c_0 + c_1 x + c_2 / x + c_3 / x^2`."""
    total = terms[0] + terms[1] * x
    return total + (terms[2] + terms[3] / x) / x if any(terms[2:]) else total


class Normal(NamedTuple):
    r""":math:`\mu \sim N(m, v)`, by mean and variance."""

    mean: float
    variance: float

    def log_density(self, x: Array) -> Array:
        return -0.5 * ((x - self.mean) ** 2 / self.variance + math.log(2 * math.pi * self.variance))

    @property
    def terms(self) -> Terms:
        return self.mean / self.variance, -1 / self.variance, 0.0, 0.0

    def slope(self, x: Array) -> Array:
        return slope_by_terms(self.terms, x)


class InverseGamma(NamedTuple):
    r""":math:`p(s) = b^a / \Gamma(a)\, s^{-a-1} e^{-b/s}`, by shape a and scale b."""

    shape: float
    scale: float

    def log_density(self, x: Array) -> Array:
        a, b = self.shape, self.scale
        return a * math.log(b) - math.lgamma(a) - (a + 1) * np.log(x) - b / x

    @property
    def terms(self) -> Terms:
        return 0.0, 0.0, -(self.shape + 1), self.scale

    def slope(self, x: Array) -> Array:
        return slope_by_terms(self.terms, x)


class Gamma(NamedTuple):
    r""":math:`p(x) = b^a / \Gamma(a)\, x^{a-1} e^{-bx}`, by shape a and rate b."""

    shape: float
    rate: float

    def log_density(self, x: Array) -> Array:
        a, b = self.shape, self.rate
        return a * math.log(b) - math.lgamma(a) + (a - 1) * np.log(x) - b * x

    @property
    def terms(self) -> Terms:
        return -self.rate, 0.0, self.shape - 1, 0.0

    def slope(self, x: Array) -> Array:
        return slope_by_terms(self.terms, x)


class Flat(NamedTuple):
    """No prior: uniform in the coordinate that is sampled, so that the mode is the maximum of the likelihood."""

    @property
    def terms(self) -> Terms:
        return 0.0, 0.0, 0.0, 0.0

    def log_density(self, x: Array) -> Array:
        return np.zeros(x.shape)

    def slope(self, x: Array) -> Array:
        return np.zeros(x.shape)


class Pinned(NamedTuple):
    """The prior of a parameter of which ``values`` (K,) are known for some states; NaN for the others."""

    prior: Prior
    values: Array

    def log_density(self, x: Array) -> Array:
        return self.prior.log_density(x)

    def slope(self, x: Array) -> Array:
        return self.prior.slope(x)

    @property
    def terms(self) -> Terms:
        return self.prior.terms


def sampled_log_density(prior: Prior, x: Array, log: bool) -> Array:
    """Log density of the coordinate that is sampled, x or (``log``) its logarithm; a flat prior is flat in either."""
    density = prior.log_density(x)
    return density + np.log(x) if log and not isinstance(prior, Flat) else density


def bare(prior: Prior) -> Prior:
    """The prior, whatever else is known."""
    return prior.prior if isinstance(prior, Pinned) else prior


def pinned(found: Array, prior: Prior) -> Array:
    """Values (K,) that were found, with known ones in their place."""
    return np.where(np.isnan(prior.values), found, prior.values) if isinstance(prior, Pinned) else found


class Dirichlet(NamedTuple):
    r"""Rows of the transition matrix: :math:`p(P_j) \propto \prod_k P_{jk}^{\alpha-1}`, one alpha for all entries.

    A concentration of 0 is no prior: uniform in the log ratios.
    """

    concentration: float = 1.0

    def log_density(self, x: Array) -> Array:
        """Of each row of ``x`` (..., K)."""
        a, K = self.concentration, x.shape[-1]
        norm = math.lgamma(K * a) - K * math.lgamma(a) if a > 0 else 0.0
        return np.asarray(norm + (a - 1) * np.log(x).sum(-1))


# ---------------------------------------------------------------- estimates, M-steps and draws under conjugate priors
def mean_and_variance(y: Array, weight: Array) -> Array:
    """Weighted mean and variance of observations, (2,)."""
    mean = np.average(y, weights=weight)
    return np.array([mean, np.average((y - mean) ** 2, weights=weight)])


def best_mean(total: Array, weight: Array, s2: Array, prior: Prior) -> Array:
    r"""Mode of a mean, :math:`(\sum wy / s^2 + m_0 / v_0) / (\sum w / s^2 + 1 / v_0)`; NaN if nothing is known."""
    precision, pull = normal_terms(prior)
    with np.errstate(invalid="ignore", divide="ignore"):
        return pinned(np.asarray((total / s2 + pull) / (weight / s2 + precision)), prior)


def normal_terms(prior: Prior) -> tuple[float, float]:
    """Precision of a normal prior, and precision times mean; nothing if it is flat."""
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


def best_rate(total: Array, count: Array, prior: Prior) -> Array:
    r"""Mode of a log rate: :math:`\lambda = (a + \sum y) / (b + n)`."""
    prior = bare(prior)
    check_conjugate(prior, Gamma, "EM", "climb by gradients")
    a, b = (prior.shape, prior.rate) if isinstance(prior, Gamma) else (0.0, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a + total) / (b + count))


def best_natural(
    start: Array, counts: Array, sums: Array, moments: Callable[[Array], tuple[Array, Array]], priors: tuple[Prior, ...]
) -> Array:
    r"""Modes (K, P) of the natural parameters of an exponential family under normal priors, by Newton steps.

    .. math:: x^\top \sum s(y) - n \log Z(x) - \sum_i (x_i - m_i)^2 / 2 v_i

    ``sums`` (K, P) are those of the statistics, and ``moments(x)`` their mean (K, P) and covariance (K, P, P) at x, the
    derivatives of log Z.  What has no prior is held back a little: a category never seen has finite odds.
    """
    precision, pull = np.array([normal_terms(prior) for prior in priors]).T
    precision = np.maximum(precision, 1e-9)
    known = np.column_stack([pinned(np.full(len(counts), np.nan), prior) for prior in priors])
    free = np.isnan(known)
    x = np.where(free, start, known)
    for _ in range(30):
        mean, covariance = moments(x)
        slope = np.where(free, sums - counts[:, None] * mean + pull - precision * x, 0.0)
        shared = np.where(free[:, :, None] & free[:, None, :], counts[:, None, None] * covariance, 0.0)
        step = np.linalg.solve(shared + precision * np.eye(len(priors)), slope[..., None])[..., 0]
        x = x + np.clip(step, -5 - np.abs(x), 5 + np.abs(x))  # where all is flat, a step may be far too long
    return np.asarray(x)


def best_log_odds(counts: Array, priors: tuple[Prior, ...]) -> Array:
    """Modes (K, n - 1) of the log odds of categories to category 0, given how often each was (K, n)."""

    def moments(x: Array) -> tuple[Array, Array]:
        p = softmax(np.column_stack([np.zeros(len(x)), x]), axis=1)[:, 1:]
        return p, p[:, :, None] * (np.eye(p.shape[1]) - p[:, None, :])

    start = np.log((counts[:, 1:] + 0.5) / (counts[:, :1] + 0.5))
    return best_natural(start, counts.sum(1), counts[:, 1:], moments, priors)


def draw_mean(rng: np.random.Generator, total: Array, weight: Array, s2: Array, prior: Prior) -> Array:
    r"""A draw of each mean given its observations: Gaussian around ``best_mean`` with variance
    :math:`1 / (\sum w / s^2 + 1 / v_0)`.
    """
    distribution = bare(prior)
    check_conjugate(distribution, Normal, "Gibbs sampling", "use langevin")
    precision = weight / s2 + (1 / distribution.variance if isinstance(distribution, Normal) else 0.0)
    _proper(precision, "mean")
    drawn = best_mean(total, weight, s2, distribution) + rng.standard_normal(len(precision)) / np.sqrt(precision)
    return pinned(drawn, prior)


def draw_variance(rng: np.random.Generator, squares: Array, count: Array, prior: Prior) -> Array:
    r"""A draw of each variance given its observations and mean: :math:`s^2 \sim IG(a + n / 2, b + SSE / 2)`.

    Under ``Flat``, uniform in the logarithm, a = b = 0: the density before the data is :math:`1 / s^2`.
    """
    prior = bare(prior)
    check_conjugate(prior, InverseGamma, "Gibbs sampling", "use langevin")
    a, b = (prior.shape, prior.scale) if isinstance(prior, InverseGamma) else (0.0, 0.0)
    shape, scale = a + count / 2, b + squares / 2
    _proper(np.minimum(shape, scale), "variance")
    return np.asarray(scale / rng.standard_gamma(shape))


def draw_rate(rng: np.random.Generator, total: Array, count: Array, prior: Prior) -> Array:
    r"""A draw of each rate given its counts: :math:`\lambda \sim Gamma(a + \sum y, b + n)`.

    Under ``Flat``, uniform in the logarithm, a = b = 0: the density before the data is :math:`1 / \lambda`.
    """
    prior = bare(prior)
    check_conjugate(prior, Gamma, "Gibbs sampling", "use langevin")
    a, b = (prior.shape, prior.rate) if isinstance(prior, Gamma) else (0.0, 0.0)
    shape, rate = a + total, b + count
    _proper(np.minimum(shape, rate), "rate")
    return np.asarray(rng.standard_gamma(shape) / rate)


def check_conjugate(prior: Prior, kind: type, who: str, instead: str) -> None:
    """Refuse a prior of another kind than an M-step or a draw can do with."""
    if not isinstance(prior, kind | Flat):
        raise TypeError(f"{who} needs a {kind.__name__} prior (or Flat) here, not {prior}; {instead} instead.")


def _proper(known: Array, name: str) -> None:
    """Refuse to draw where neither the prior nor an observation says anything."""
    if not (known > 0).all():
        k = int(np.argmin(known > 0))
        raise ValueError(
            f"{name}[{k}] has no law to be drawn from: it has a Flat prior and its state has no observations that tell "
            "of it. Give it a prior (default_priors), or use fewer states."
        )


# ---------------------------------------------------------------- defaults, from the summary of a column
def location(summary: Summary) -> Normal:
    """Centred at the mean, one standard deviation the whole range of the data: flat where the data are."""
    return Normal(summary.mean, (summary.high - summary.low) ** 2)


def distance(summary: Summary) -> Gamma:
    """Between means: its own mean is the range of the data, so that it says little where they are; none is unlikely."""
    return Gamma(2.0, 2.0 / (summary.high - summary.low))


def squared_scale(summary: Summary) -> InverseGamma:
    """Worth four observations; its mean is half the mean square of successive differences.

    Within a regime these see the noise, whereas the variance of the whole series sees the distance of the regimes.
    """
    return InverseGamma(2.0, summary.roughness)


def squared_residual(one: Summary, *before: Summary) -> InverseGamma:
    """The same for what a regression on columns before leaves of a column: one that nearly repeats them has little
    noise of its own, and a prior that knew no better would hide states in which it does."""
    every = [*before, one]
    noise = np.array([[s.noise[other.column] for other in every] for s in every])
    scale = np.sqrt(np.diag(noise))
    factor = np.linalg.cholesky(noise / np.outer(scale, scale) + COPIES * np.eye(len(every)))
    return InverseGamma(2.0, float(factor[-1, -1] * scale[-1]) ** 2)


def log_location(summary: Summary) -> Normal:
    """Of logarithms: centred where a log-normal law with the mean and variance of the data is, as wide as the data."""
    centre = math.log(summary.mean) - 0.5 * math.log1p(summary.variance / summary.mean**2)
    return Normal(centre, math.log(summary.high / summary.low) ** 2)


def log_squared_scale(summary: Summary) -> InverseGamma:
    """Of logarithms: worth four observations; its mean is the variance of the logarithm of log-normal noise."""
    return InverseGamma(2.0, math.log1p(summary.roughness / summary.mean**2))


def level(summary: Summary) -> InverseGamma:
    """Of a positive mean: worth one observation, the overall mean."""
    return InverseGamma(1.0, summary.mean)


def evenness(summary: Summary) -> Gamma:
    """Of a squared mean in units of the variance, as ``squared_scale`` has the variance; not below that of waiting
    times, since noise in one regime may be large beside the mean of all."""
    return Gamma(2.0, min(summary.roughness / summary.mean**2, 1.0))


def evenness_of_counts(summary: Summary) -> Gamma:
    """The same of the variance that successive differences have beyond Poisson's, a tenth of that at least."""
    return Gamma(2.0, min(max(summary.roughness - summary.mean, 0.1 * summary.mean) / summary.mean**2, 1.0))


def log_odds(summary: Summary) -> Normal:
    """Centred at the overall log odds of 1; two standard deviations are odds a hundred times larger or smaller."""
    return Normal(math.log(summary.mean / (1 - summary.mean)), 2.5**2)


def concentration(summary: Summary) -> Normal:
    """Of angles, around none: one standard deviation is ten, or twice what successive differences speak for."""
    if summary.roughness < FINEST:
        raise ValueError(
            f"angles change by {math.sqrt(2 * summary.roughness):.3g} radians from one to the next, and their cosines "
            "are the same to all digits. Choose a family of real numbers, such as the Gaussian."
        )
    return Normal(0.0, max(10.0, 2 / summary.roughness) ** 2)


def slope_of_noise(one: Summary, other: Summary) -> Normal:
    """Of one column on another: around none, one standard deviation the ratio of their noises."""
    return Normal(0.0, one.roughness / other.roughness)


def rate(summary: Summary) -> Gamma:
    """Worth one event, with the overall rate as mean."""
    return Gamma(1.0, 1.0 / summary.mean)
