"""Transforms applied to a series before it is modelled: the logarithm, and subtraction of a slow baseline."""

import numpy as np
import scipy

from rarehmm.common.arrays import Array
from rarehmm.data.sources.table import Source


def logarithm(y: Array) -> Array:
    """Return the natural logarithm of positive numbers (T,); NaN stays NaN."""
    if (y <= 0).any():
        row = int(np.argmax(y <= 0))
        raise ValueError(f"the observation in row {row + 1} is {y[row]:g}; it must be positive to take its logarithm.")
    return np.log(y)


class Logarithm(Source):
    """Source whose values are the natural logarithms of another source, taken as rows are read; NaN stays NaN."""

    def __init__(self, source: Source) -> None:
        self.source, self.shape, self.dtype = source, source.shape, np.dtype(np.float64)
        self.names, self.index = source.names, source.index

    def read(self, first: int, last: int) -> Array:
        y = self.source.read(first, last).astype(float)
        if (y <= 0).any():
            row, column = np.argwhere(y <= 0)[0]
            raise ValueError(
                f"{self.where(first + int(row))} is {y[row, column]:g}; it must be positive to take its logarithm."
            )
        return np.asarray(np.log(y))

    def where(self, row: int) -> str:
        return self.source.where(row)


def detrended(y: Array, knots: int) -> Array:
    """Subtract from ``y`` (T,) a least-squares quadratic spline with ``knots`` evenly spaced knots."""
    if not 1 <= knots < len(y):
        raise ValueError(f"knots is {knots}; it must be at least 1 and less than the number of rows, {len(y)}.")
    return y - baseline(y, np.linspace(1, len(y), knots + 2)[1:-1])


def baseline(y: Array, knots: Array) -> Array:
    """Return the least-squares quadratic spline through ``y`` (T,) at positions 1, ..., T, ignoring NaN.

    Only knots within the range of the observations, with an observation between each and the one before, are used:
    otherwise the fit is not unique (Schoenberg and Whitney).
    """
    observed = np.flatnonzero(~np.isnan(y))
    x = observed + 1.0
    kept: list[float] = []
    below = 0  # observations up to the last knot kept
    for knot in np.unique(knots):
        if np.searchsorted(x, knot) > below and knot < x[-1]:
            kept.append(float(knot))
            below = int(np.searchsorted(x, knot, side="right"))
    if len(x) < len(kept) + 3:
        raise ValueError(
            f"y has {len(x)} observations and a quadratic spline with {len(kept)} knots has {len(kept) + 3} "
            "coefficients; pass fewer knots."
        )
    fit = scipy.interpolate.LSQUnivariateSpline(x, y[observed], kept, k=2, ext="const")
    return np.asarray(fit(np.arange(1.0, len(y) + 1)))
