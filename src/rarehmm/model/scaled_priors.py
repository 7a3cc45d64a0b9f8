"""Default priors of single parameters, scaled from the summary of a column.

A default prior shifts and stretches with the data, so that a series in volts and its copy in nanovolts give equivalent
posteriors.  Each is worth a handful of observations: enough to keep a state of three observations from collapsing, too
little to matter in a state of thirty.
"""

import math

import numpy as np

from rarehmm.data.summaries import Summary
from rarehmm.model.priors import Gamma, InverseGamma, Normal

COPIES = 1e-8  # noise added to each column, as a share of its own: with less, slopes are lost to rounding
FINEST = 1e-12  # squared radians


def location(summary: Summary) -> Normal:
    """Of a mean: centred at the mean of the column, with the range of the data as its standard deviation."""
    return Normal(summary.mean, (summary.high - summary.low) ** 2)


def distance(summary: Summary) -> Gamma:
    """Of a gap between two means: its expectation is the range of the data, and a gap of zero is unlikely."""
    return Gamma(2.0, 2.0 / (summary.high - summary.low))


def squared_scale(summary: Summary) -> InverseGamma:
    """Of a variance: worth four observations, with half the mean square of successive differences as its mean.

    Successive differences measure the noise within regimes, whereas the variance of the whole series also contains the
    distance between regimes.
    """
    return InverseGamma(2.0, summary.roughness)


def squared_residual(one: Summary, *before: Summary) -> InverseGamma:
    """Of the residual variance of column ``one`` after regression on the columns ``before`` it.

    A column that nearly repeats the others has little noise left, and a prior scaled by its full noise would hide the
    states in which it departs from them.
    """
    every = [*before, one]
    noise = np.array([[s.noise[other.column] for other in every] for s in every])
    scale = np.sqrt(np.diag(noise))
    factor = np.linalg.cholesky(noise / np.outer(scale, scale) + COPIES * np.eye(len(every)))
    return InverseGamma(2.0, float(factor[-1, -1] * scale[-1]) ** 2)


def log_location(summary: Summary) -> Normal:
    """Of a mean of logarithms: centred at that of a log-normal with the mean and variance of the data, as wide as the
    range of their logarithms."""
    centre = math.log(summary.mean) - 0.5 * math.log1p(summary.variance / summary.mean**2)
    return Normal(centre, math.log(summary.high / summary.low) ** 2)


def log_squared_scale(summary: Summary) -> InverseGamma:
    """Of a variance of logarithms: worth four observations; its mean is the variance of the log of log-normal noise."""
    return InverseGamma(2.0, math.log1p(summary.roughness / summary.mean**2))


def level(summary: Summary) -> InverseGamma:
    """Of a positive mean: worth one observation, at the overall mean."""
    return InverseGamma(1.0, summary.mean)


def evenness(summary: Summary) -> Gamma:
    """Of a gamma shape, the squared mean in units of the variance, with the variance from successive differences.

    Its rate is at most 1, so that its mean is at least 2: the noise of one regime may be large beside the overall mean.
    """
    return Gamma(2.0, min(summary.roughness / summary.mean**2, 1.0))


def evenness_of_counts(summary: Summary) -> Gamma:
    """Of a negative binomial size: as ``evenness``, with the variance in excess of a Poisson's, at least a tenth of the
    mean."""
    return Gamma(2.0, min(max(summary.roughness - summary.mean, 0.1 * summary.mean) / summary.mean**2, 1.0))


def log_odds(summary: Summary) -> Normal:
    """Of a log odds: centred at the overall one; two standard deviations are a factor of 150 in the odds."""
    return Normal(math.log(summary.mean / (1 - summary.mean)), 2.5**2)


def concentration(summary: Summary) -> Normal:
    """Of the cosine and sine parameters of angles: centred at zero, as wide as 10 or twice the concentration that
    successive differences suggest."""
    if summary.roughness < FINEST:
        raise ValueError(
            f"successive angles differ by {math.sqrt(2 * summary.roughness):.3g} radians, and their cosines are equal "
            "to the last digit. Use a family for real numbers, such as Gaussian()."
        )
    return Normal(0.0, max(10.0, 2 / summary.roughness) ** 2)


def slope_of_noise(one: Summary, other: Summary) -> Normal:
    """Of a regression slope of column ``one`` on ``other``: centred at zero, as wide as the ratio of their noise."""
    return Normal(0.0, one.roughness / other.roughness)


def rate(summary: Summary) -> Gamma:
    """Of a rate: worth one event, with the overall rate as its mean."""
    return Gamma(1.0, 1.0 / summary.mean)
