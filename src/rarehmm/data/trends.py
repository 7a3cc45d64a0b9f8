"""Trends: linear in time or a natural cubic spline, computed from the clock of the rows that are read."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from rarehmm.common.arrays import Array


@dataclass(frozen=True)
class Curve:
    """Columns of a trend, standardised.

    Without knots there is one column, time itself in units of ``unit`` since ``origin``.  Otherwise ``knots``, with the
    two ends, are in these units, and column j is the natural cubic spline that is 1 at knot j + 1 and 0 at the others:
    its coefficient is the level there relative to that at the first knot.  Splines go on linearly beyond their ends.
    """

    origin: float
    unit: float
    knots: tuple[float, ...]
    means: tuple[float, ...] = (0.0,)
    scales: tuple[float, ...] = (1.0,)

    @property
    def names(self) -> list[str]:
        return [f"trend {j}" for j in range(1, len(self.knots))] if self.knots else ["trend"]

    @cached_property
    def pieces(self) -> tuple[Array, Array]:
        """Ends (m + 1,) of the pieces of the splines, and their coefficients (4, m, q), of the highest power first."""
        knots = np.array(self.knots)
        spline = scipy.interpolate.CubicSpline(knots, np.eye(len(knots))[:, 1:], bc_type="natural")
        ends = np.concatenate([[knots[0] - 1], knots, [knots[-1] + 1]])
        outside = np.zeros((4, 2, len(knots) - 1))
        outside[2] = spline(knots[[0, -1]], 1)
        outside[3] = spline(knots[[0, -1]])
        outside[3, 0] -= outside[2, 0]  # a piece begins at its left end
        return ends, np.concatenate([outside[:, :1], spline.c, outside[:, 1:]], axis=1)

    def time(self, clock: Array) -> Array:
        return np.asarray((clock - self.origin) / self.unit)

    def raw(self, clock: Array) -> Array:
        """Return the columns (n, q) before they are standardised."""
        if not self.knots:
            return self.time(clock)[:, None]
        ends, coefficients = self.pieces
        return np.asarray(scipy.interpolate.PPoly(coefficients, ends)(self.time(clock)))

    def design(self, clock: Array) -> Array:
        """Return the columns (n, q) at a clock (n,)."""
        return np.asarray((self.raw(clock) - self.means) / self.scales)

    def predict(self, clock: Array, coefficients: Array) -> Array:
        """Return the columns at a clock (n,) times coefficients (q,) or (q, c)."""
        raw = (coefficients.T / self.scales).T
        if not self.knots:
            return np.asarray(np.multiply.outer(self.time(clock) - self.means[0], raw[0]))
        ends, pieces = self.pieces
        return np.asarray(scipy.interpolate.PPoly(pieces @ raw, ends)(self.time(clock)) - np.array(self.means) @ raw)

    def gradient(self, clock: Array, slopes: Array) -> Array:
        """Return the transposed columns at a clock (n,) times slopes (n,) or (n, c)."""
        x, flat = self.time(clock), slopes.reshape(len(slopes), -1)  # (n, c)
        if not self.knots:
            raw = (x - self.means[0])[None, :] @ flat
            return (raw / self.scales[0]).reshape(1, *slopes.shape[1:])
        ends, pieces = self.pieces
        m = len(ends) - 1
        piece = np.clip(np.searchsorted(ends, x, side="right") - 1, 0, m - 1)
        u = x - ends[piece]
        out = np.zeros((pieces.shape[2], flat.shape[1]))
        for c in range(flat.shape[1]):
            moment = flat[:, c].copy()
            for power in range(4):  # sums of slopes times powers of the distance from the left end, by piece
                out[:, c] += pieces[3 - power].T @ np.bincount(piece, moment, m)
                moment *= u
        out -= np.outer(self.means, flat.sum(0))
        return np.asarray(out / np.array(self.scales)[:, None]).reshape(-1, *slopes.shape[1:])
