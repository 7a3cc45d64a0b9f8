"""What is done to a series before it is modelled: logarithms, and taking a slow baseline away."""

import numpy as np
from scipy.interpolate import LSQUnivariateSpline

from rarehmm.common.arrays import Array
from rarehmm.data.sources.table import Source


def logarithm(y: Array) -> Array:
    """Natural logarithm of positive numbers (T,); NaN stays."""
    if (y <= 0).any():
        row = int(np.argmax(y <= 0))
        raise ValueError(
            f"the observation in row {row + 1} is {y[row]:g}, which has no logarithm; it must be positive."
        )
    return np.log(y)


class Logarithm(Source):
    """Natural logarithm of a source of positive numbers, taken while it is read; NaN stays."""

    def __init__(self, source: Source) -> None:
        self.source, self.shape, self.dtype = source, source.shape, np.dtype(np.float64)
        self.names, self.index = source.names, source.index

    def read(self, first: int, last: int) -> Array:
        y = self.source.read(first, last).astype(float)
        if (y <= 0).any():
            row, column = np.argwhere(y <= 0)[0]
            raise ValueError(
                f"{self.where(first + int(row))} is {y[row, column]:g}, which has no logarithm; it must be positive."
            )
        return np.asarray(np.log(y))

    def where(self, row: int) -> str:
        return self.source.where(row)


def detrended(y: Array, knots: int) -> Array:
    """``y`` (T,) less a quadratic spline with so many evenly spaced knots."""
    if not 1 <= knots < len(y):
        raise ValueError(
            f"a spline with {knots} knots is asked for; from 1 to fewer than the {len(y)} rows are possible."
        )
    return y - baseline(y, np.linspace(1, len(y), knots + 2)[1:-1])


def baseline(y: Array, knots: Array) -> Array:
    """Least-squares spline of degree 2 through ``y`` (T,) over positions 1, ..., T; NaN is left out of the fit.

    Only knots inside the observations, with an observation between each and the one before, are used: without that
    the fit is not unique (Schoenberg and Whitney).
    """
    seen = np.flatnonzero(~np.isnan(y))
    x = seen + 1.0
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
    fit = LSQUnivariateSpline(x, y[seen], kept, k=2, ext="const")
    return np.asarray(fit(np.arange(1.0, len(y) + 1)))
