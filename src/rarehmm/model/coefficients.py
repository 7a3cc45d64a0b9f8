"""Coefficients of inputs and lags as a part of theta: coordinates without limits, their Jacobians and priors.

Most coefficients enter theta as they are.  Lags that must be stationary enter as hyperbolic arctangents of partial
autocorrelations; slopes of transitions as differences from the slope of each row's reference state.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.model.autoregression import from_partial, partial_jacobian, share_kept, to_partial
from rarehmm.model.effects import BLOCKS, Effects
from rarehmm.model.parameters import EffectPriors

LARGEST_ANGLE = 18.0  # hyperbolic arctangent of a partial autocorrelation: beyond it, its distance from 1 is lost
LARGEST_SLOPE = 300.0


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coordinates of the coefficients of a model.

    Attributes
    ----------
    effects
        What the coefficients belong to.
    allowed
        Mask (K, K) of the transitions that can happen.
    reference
        State (K,) of each row of the transition matrix that slopes are compared with.
    """

    effects: Effects
    allowed: BoolArray
    reference: IntArray

    @functools.cached_property
    def compared(self) -> tuple[IntArray, IntArray]:
        """Rows and columns (n,) of the transitions whose slopes have coordinates."""
        mask = self.allowed.copy()
        mask[np.arange(len(mask)), self.reference] = False
        rows, columns = np.nonzero(mask)
        return rows, columns

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """Number of coordinates of each block."""
        shapes = self.effects.shapes
        whole = {name: math.prod(shapes[name]) for name in BLOCKS if name != "slopes"}
        return {**whole, "slopes": shapes["slopes"][0] * len(self.compared[0])}

    @functools.cached_property
    def size(self) -> int:
        """Number of coordinates."""
        return sum(self.sizes.values())

    @functools.cached_property
    def slices(self) -> dict[str, slice]:
        """Place of each block among the coordinates."""
        ends = np.cumsum([self.sizes[name] for name in BLOCKS])
        return {name: slice(int(e) - self.sizes[name], int(e)) for name, e in zip(BLOCKS, ends, strict=True)}

    @property
    def is_partial(self) -> bool:
        """Whether lags enter as partial autocorrelations."""
        ar = self.effects.autoregression
        return ar is not None and ar.is_stationary

    @property
    def names(self) -> list[str]:
        """Name of each coordinate."""
        e, shapes = self.effects, self.effects.shapes
        columns = [f"[{d}]" for d in e.moves.predicted] if len(e.moves.predicted) > 1 else [""]
        states = [f"[{k}]" for k in range(e.n_states)]
        out = [name + d for name in (e.location.names if e.location else ()) for d in columns]
        out += [name + d + k for name in (e.switching.names if e.switching else ()) for d in columns for k in states]
        out += [f"log scale {name}" for name in (e.scale.names if e.scale else ())]
        kind = "atanh partial" if self.is_partial else "lag"
        own = states if shapes["lags"][2] > 1 else [""]
        out += [f"{kind} {m + 1}{d}{k}" for m in range(shapes["lags"][0]) for d in columns for k in own]
        pairs = [f"[{j}, {k}] - [{j}, {self.reference[j]}]" for j, k in zip(*self.compared, strict=True)]
        return out + [f"slope {name}{pair}" for name in (e.slopes.names if e.slopes else ()) for pair in pairs]

    @property
    def largest(self) -> Array:
        """Largest absolute value of each coordinate."""
        out = np.full(self.size, 1e150)
        if self.is_partial:
            out[self.slices["lags"]] = LARGEST_ANGLE
        out[self.slices["slopes"]] = LARGEST_SLOPE
        return out

    # ------------------------------------------------------------ coordinates and back
    def pack(self, coefficients: Array) -> Array:
        """Coordinates (..., size) of coefficients (..., c)."""
        e, rows = self.effects, self.compared[0]
        parts = [coefficients[..., e.slices[name]] for name in BLOCKS[:3]]
        lags = coefficients[..., e.slices["lags"]]
        if self.is_partial:
            by_column = np.swapaxes(e.block("lags", coefficients)[..., 0], -1, -2)
            lags = np.swapaxes(np.arctanh(to_partial(by_column)), -1, -2).reshape(lags.shape)
        slopes = e.block("slopes", coefficients)
        differences = slopes[..., rows, self.compared[1]] - slopes[..., rows, self.reference[rows]]
        flat = differences.reshape(*coefficients.shape[:-1], self.sizes["slopes"])
        return np.concatenate([*parts, lags, flat], axis=-1)

    def unpack(self, x: Array) -> Array:
        """Coefficients (..., c) from coordinates (..., size)."""
        e = self.effects
        out = np.empty((*x.shape[:-1], e.size))
        for name in BLOCKS[:4]:
            out[..., e.slices[name]] = x[..., self.slices[name]]
        if self.is_partial:
            p, C, _ = e.shapes["lags"]
            partial = np.tanh(np.swapaxes(x[..., self.slices["lags"]].reshape(*x.shape[:-1], p, C), -1, -2))
            phi = np.swapaxes(from_partial(partial), -1, -2)
            out[..., e.slices["lags"]] = phi.reshape(*x.shape[:-1], p * C)
        slopes = np.zeros((*x.shape[:-1], *e.shapes["slopes"]))
        flat = x[..., self.slices["slopes"]]
        slopes[..., *self.compared] = flat.reshape(*x.shape[:-1], e.shapes["slopes"][0], len(self.compared[0]))
        slopes -= np.where(self.allowed, slopes.sum(-1, keepdims=True) / self.allowed.sum(1)[:, None], 0.0)
        out[..., e.slices["slopes"]] = slopes.reshape(*x.shape[:-1], math.prod(e.shapes["slopes"]))
        return out

    def gradient(self, x: Array, slope: Array) -> Array:
        """Derivatives (size,) in the coordinates x from those (c,) in the coefficients."""
        e, rows = self.effects, self.compared[0]
        parts = [slope[e.slices[name]] for name in BLOCKS[:3]]
        lags = slope[e.slices["lags"]]
        if self.is_partial:
            p, C, _ = e.shapes["lags"]
            partial = np.tanh(x[self.slices["lags"]].reshape(p, C))
            each = [
                (1 - r**2) * (partial_jacobian(r).T @ g) for r, g in zip(partial.T, lags.reshape(p, C).T, strict=True)
            ]
            lags = np.column_stack(each).ravel()
        found = e.block("slopes", slope)
        mean = np.where(self.allowed, found, 0.0).sum(-1) / self.allowed.sum(1)
        differences = found[:, rows, self.compared[1]] - mean[:, rows]
        return np.concatenate([*parts, lags, differences.ravel()])

    # ------------------------------------------------------------ prior
    def log_prior(self, x: Array, priors: EffectPriors | None) -> Any:
        """Log prior density (...) of coordinates (..., size), Jacobians included; flat if there are no ``priors``."""
        if priors is None or self.size == 0:
            return np.zeros(x.shape[:-1])
        s = self._deviations(priors)
        inside = np.isfinite(s)
        total = (-0.5 * (x[..., inside] / s[inside]) ** 2 - np.log(s[inside]) - 0.5 * math.log(2 * math.pi)).sum(-1)
        if self.is_partial:
            partial = np.tanh(x[..., self.slices["lags"]])
            total = total + (np.log1p(-(partial**2)) - math.log(2)).sum(-1)
        centred = self._centred_slopes(x)
        n = self.allowed.sum(1)
        constant = (-0.5 * (n - 1) * np.log(2 * math.pi * priors.slopes**2) - 0.5 * np.log(n)).sum()
        count = self.effects.shapes["slopes"][0]
        return total - 0.5 * (centred**2).sum((-1, -2, -3)) / priors.slopes**2 + count * constant

    def log_prior_slope(self, x: Array, priors: EffectPriors | None) -> Array:
        """Derivatives (size,) of ``log_prior``."""
        if priors is None or self.size == 0:
            return np.zeros(self.size)
        s = self._deviations(priors)
        out = np.where(np.isfinite(s), -x / s**2, 0.0)
        if self.is_partial:
            out[self.slices["lags"]] = -2 * np.tanh(x[self.slices["lags"]])
        centred = self._centred_slopes(x)
        out[self.slices["slopes"]] = -(centred[:, *self.compared] / priors.slopes**2).ravel()
        return out

    def prior_precisions(self, x: Array, priors: EffectPriors) -> Array:
        """Curvature (size,) of minus the log prior in each coordinate, for slopes as if they were independent."""
        out = 1 / self._deviations(priors) ** 2
        if self.is_partial:
            out[self.slices["lags"]] = 2 / np.cosh(x[self.slices["lags"]]) ** 2
        out[self.slices["slopes"]] = 1 / priors.slopes**2
        return np.asarray(out)

    def _centred_slopes(self, x: Array) -> Array:
        """Slopes (..., q, K, K) from coordinates."""
        return self.effects.block("slopes", self.unpack(x))

    def _deviations(self, priors: EffectPriors) -> Array:
        """Standard deviation of the normal prior of each coordinate, infinite where it is not normal."""
        e, out = self.effects, np.full(self.size, np.inf)
        K = e.n_states
        wide = np.array([priors.location[d] for d in range(len(e.moves.predicted))])
        out[self.slices["location"]] = np.tile(wide, e.shapes["location"][0])
        out[self.slices["switching"]] = np.tile(np.repeat(wide, K), e.shapes["switching"][0])
        out[self.slices["scale"]] = priors.scale
        if not self.is_partial:
            p, C, own = e.shapes["lags"]
            out[self.slices["lags"]] = np.repeat([priors.lags * share_kept(m + 1) for m in range(p)], C * own)
        return out
