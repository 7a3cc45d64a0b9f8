"""Robust regressions on lags and inputs: what a single state explains, at the cost of a few least-squares fits.

Noise has a t distribution, so that rare events neither bend the fit nor decide a comparison.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from rarehmm.choosing.held_out import Gain, Sample
from rarehmm.common.arrays import Array

FREEDOMS = (2.5, 5.0, 30.0)  # degrees of freedom that are compared
STEPS = 8  # of iteratively reweighted least squares
RIDGE = 1e-9


class Robust(NamedTuple):
    """A regression with t-distributed noise: coefficients (q,), squared scale and degrees of freedom."""

    coefficients: Array
    scale2: float
    freedom: float

    def log_density(self, x: Array, y: Array) -> Array:
        """Log density (n,) of observations y (n,) given their inputs x (n, q)."""
        nu, e = self.freedom, y - x @ self.coefficients
        constant = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * np.log(nu * np.pi * self.scale2)
        return np.asarray(constant - (nu + 1) / 2 * np.log1p(e * e / (nu * self.scale2)))


def robust_regression(x: Array, y: Array, freedom: float) -> Robust:
    """Fit a regression of y (n,) on x (n, q) with t-distributed noise, by iteratively reweighted least squares."""
    weight, beta, scale2 = np.ones(len(y)), np.zeros(x.shape[1]), 1.0
    tiny = 1e-12 * max(float(y.var()), 1e-300)
    for step in range(STEPS):
        xw = x * weight[:, None]
        gram = xw.T @ x
        unit = np.sqrt(np.maximum(np.diag(gram), 1e-300))
        system = gram / unit[:, None] / unit + RIDGE * np.eye(len(unit))
        beta = np.linalg.solve(system, xw.T @ y / unit) / unit
        e2 = (y - x @ beta) ** 2
        start = float(np.median(e2)) / 0.455 if step == 0 else 0.0  # the median of a chi-square variable
        scale2 = max(start or float(np.mean(weight * e2)), tiny)
        weight = (freedom + 1) / (freedom + e2 / scale2)
    return Robust(beta, scale2, freedom)


class Regression:
    """Regressions of the columns of a sample on lags and inputs.

    ``values`` (T, D) are the observations, or a transform of them with the log Jacobian ``jacobian`` (n,) of the scored
    rows.
    """

    def __init__(self, sample: Sample, values: Array, jacobian: Array | float = 0.0) -> None:
        self.sample, self.jacobian = sample, jacobian
        self.rows = np.flatnonzero(sample.scored)
        self.parity = sample.block[self.rows] % 2
        self.middle, spread = np.nanmedian(values, axis=0), np.nanstd(values, axis=0)
        self.spread = np.where(spread > 0, spread, 1.0)
        self.values = (values - self.middle) / self.spread
        self.freedom = [5.0] * values.shape[1]
        self.freedom = [self._best_freedom(d) for d in range(values.shape[1])]

    def columns(self, d: int, design: Array, lags: int) -> Array:
        """Return the regressors (n, q) of column d: an intercept, lags, and the scored rows of ``design`` (T, q)."""
        own = [self.values[self.rows - m, d] for m in range(1, lags + 1)]
        return np.column_stack([np.ones(len(self.rows)), *own, design[self.rows]])

    def densities(self, design: Array, lags: int) -> Array:
        """Return the held-out log density (n,) of each scored row, given lags and the inputs ``design`` (T, q)."""
        total = np.zeros(len(self.rows)) + self.jacobian
        for d in range(self.values.shape[1]):
            x, y = self.columns(d, design, lags), self.values[self.rows, d]
            for parity in (0, 1):
                there = self.parity == parity
                fit = robust_regression(x[~there], y[~there], self.freedom[d])
                total[there] += fit.log_density(x[there], y[there]) - np.log(self.spread[d])
        return total

    def residuals(self, design: Array, lags: int) -> Array:
        """Return the residuals (T, D), 0 in rows that are not scored, limited to 4 robust standard deviations."""
        out = np.zeros_like(self.values)
        for d in range(self.values.shape[1]):
            x, y = self.columns(d, design, lags), self.values[self.rows, d]
            e = y - x @ robust_regression(x, y, self.freedom[d]).coefficients
            limit = 4 * 1.4826 * max(float(np.median(np.abs(e))), 1e-12)
            out[self.rows, d] = np.clip(e, -limit, limit)
        return out

    def gain(self, better: Array, worse: Array) -> Gain:
        """Return the median gain over blocks, from the log densities of the scored rows (n,) of two regressions.

        A mean would depend on a few blocks with long events, which a single state explains by its lags.
        """
        return self.sample.typical_gain(better, worse)

    def _best_freedom(self, d: int) -> float:
        x, y = self.columns(d, np.empty((len(self.values), 0)), self.sample.lags), self.values[self.rows, d]
        fits = [robust_regression(x, y, freedom) for freedom in FREEDOMS]
        return max(fits, key=lambda fit: float(fit.log_density(x, y).sum())).freedom

    def without_inputs(self, design: Array) -> Array:
        """Return the observations (T, D), in their units, without what a regression on inputs alone explains."""
        out = np.empty_like(self.values)
        for d in range(self.values.shape[1]):
            x, y = self.columns(d, design, 0), self.values[self.rows, d]
            fit = robust_regression(x, y, self.freedom[d])
            out[:, d] = (self.values[:, d] - design @ fit.coefficients[1:]) * self.spread[d] + self.middle[d]
        return out
