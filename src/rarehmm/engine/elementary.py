"""Elementary functions of Lanes under NumPy's names.

These are ``np.exp``, ``np.log``, ``np.sin``, ``np.cos``, ``np.sqrt``, ``np.abs``, ``np.where``, ``np.maximum``,
``np.minimum``, ``np.square``, powers, ``np.log1p`` and ``np.expm1``.  Those in the inner loops are polynomials on all
16 numbers at once, accurate to a few units in the last place.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types

from rarehmm.engine.dispatch import inner, specialise
from rarehmm.engine.lanes import (
    absolute,
    fused,
    lane_sum,
    lanes_type,
    lanewise,
    nearest,
    on_lanes,
    power_of_two,
    root,
    select,
    splat,
    split,
)

# ---------------------------------------------------------------- exp and log
LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 6.93145751953125e-1, 1.42860682030941723212e-6
LOWEST = -300.0  # e^-300: far above denormals, which double the time


@inner
def _exp_finite(x: Any) -> Any:
    """e^x for |x| <= 708 by Cody and Waite: x = n log 2 + r, |r| <= log(2) / 2, Taylor series to the 12th power."""
    n = nearest(x * LOG2E)
    r = fused(n, -LN2_LOW, fused(n, -LN2_HIGH, x))
    p = r * (1.0 / 479001600.0) + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return p * power_of_two(n)


@inner
def _exp_lanes(x: Any) -> Any:
    """e^x as in NumPy: 0 below -708, infinite above 709, NaN for NaN."""
    safe = np.where((x > -708.0) & (x < 709.0), x, 0.0)
    out = np.where(x <= -708.0, 0.0, _exp_finite(safe))
    out = np.where(x >= 709.0, np.inf, out)
    return np.where(x == x, out, x)


@inner
def _log_finite(x: Any) -> Any:
    """log x for positive normal x = 2^e m, with log m = 2 atanh((m - 1) / (m + 1)) by its series."""
    e, m = split(x)
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    p = q * (2.0 / 21.0) + 2.0 / 19.0
    p = p * q + 2.0 / 17.0
    p = p * q + 2.0 / 15.0
    p = p * q + 2.0 / 13.0
    p = p * q + 2.0 / 11.0
    p = p * q + 2.0 / 9.0
    p = p * q + 2.0 / 7.0
    p = p * q + 2.0 / 5.0
    p = p * q + 2.0 / 3.0
    return e * 0.6931471805599453 + (s * q * p + 2.0 * s)


TINY, HUGE = float(np.finfo(float).tiny), float(np.finfo(float).max)


@inner
def _log_lanes(x: Any) -> Any:
    """log x as in NumPy, except that denormals count as zero: NaN below zero, minus infinity at zero."""
    out = np.where((x >= TINY) & (x <= HUGE), _log_finite(np.where(x >= TINY, x, 1.0)), x)  # inf and NaN as they are
    return np.where(x < TINY, np.where(x < 0.0, np.nan, -np.inf), out)


# ---------------------------------------------------------------- sine and cosine
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17
FAR = 1e5  # larger angles go lane by lane: the reduction below loses digits as the number of quarter turns grows


@inner
def _quarter_turns(x: Any) -> Any:
    """(k, sin r, cos r) with x = (4 i + k) pi/2 + r, k in -2, ..., 2 and |r| <= pi/4, by Taylor series; |x| < FAR."""
    n = nearest(x * (1.0 / HALF_PI_HIGH))
    r = fused(n, -HALF_PI_LOW, fused(n, -HALF_PI_HIGH, x))
    q = r * r
    s = q * (-1.0 / 1307674368000.0) + 1.0 / 6227020800.0
    s = s * q - 1.0 / 39916800.0
    s = s * q + 1.0 / 362880.0
    s = s * q - 1.0 / 5040.0
    s = s * q + 1.0 / 120.0
    s = s * q - 1.0 / 6.0
    c = q * (1.0 / 20922789888000.0) - 1.0 / 87178291200.0
    c = c * q + 1.0 / 479001600.0
    c = c * q - 1.0 / 3628800.0
    c = c * q + 1.0 / 40320.0
    c = c * q - 1.0 / 720.0
    c = c * q + 1.0 / 24.0
    c = c * q - 0.5
    return n - 4.0 * nearest(0.25 * n), s * q * r + r, c * q + 1.0


@inner
def _far(x: Any) -> Any:
    """Whether any lane holds an angle of FAR or more."""
    return lane_sum(np.where(absolute(x) >= FAR, 1.0, splat(0.0))) > 0.0


def relative(x: Any) -> Any:
    """e^min(x, 0), at least e^-300 (also for NaN): a density relative to the largest among the reachable states."""
    return np.exp(np.minimum(np.where(x > LOWEST, x, LOWEST), 0.0))


def _relative_lanes(x: Any) -> Any:
    x = select(x > LOWEST, x, LOWEST)
    return _exp_finite(select(x < 0.0, x, 0.0))


def _relative_float(x: float) -> float:
    return math.exp(min(x, 0.0)) if x > LOWEST else math.exp(LOWEST)


specialise(relative, lambda x: _relative_lanes if x is lanes_type else _relative_float)


def positive_log(x: Any) -> Any:
    """Logarithm of positive normal numbers, unchecked, for the normalising constants in kernels."""
    return np.log(x)


@on_lanes(positive_log)
def _positive_log(x: Any) -> Any:
    return _log_finite(x)


# ---------------------------------------------------------------- NumPy's names on Lanes
@on_lanes(np.exp)
def _np_exp(x: Any) -> Any:
    return _exp_lanes(x)


@on_lanes(np.log)
def _np_log(x: Any) -> Any:
    return _log_lanes(x)


_sine, _cosine = lanewise(math.sin), lanewise(math.cos)


@on_lanes(np.sin)
def _np_sin(x: Any) -> Any:
    if _far(x):
        return _sine(x)
    k, s, c = _quarter_turns(x)
    out = np.where((k == 1.0) | (k == -1.0), c, s)
    return np.where((k == -1.0) | (k == 2.0) | (k == -2.0), -out, out)


@on_lanes(np.cos)
def _np_cos(x: Any) -> Any:
    if _far(x):
        return _cosine(x)
    k, s, c = _quarter_turns(x)
    out = np.where((k == 1.0) | (k == -1.0), s, c)
    return np.where((k == 1.0) | (k == 2.0) | (k == -2.0), -out, out)


@on_lanes(np.sqrt)
def _np_sqrt(x: Any) -> Any:
    return root(x)


@on_lanes(np.abs)
def _np_abs(x: Any) -> Any:
    return absolute(x)


@on_lanes(np.where)
def _np_where(condition: Any, x: Any, y: Any) -> Any:
    return select(condition, x, y)


@on_lanes(np.maximum)
def _np_maximum(x: Any, y: Any) -> Any:
    u = splat(x)
    return select((u > y) | (u != u), u, y)


@on_lanes(np.minimum)
def _np_minimum(x: Any, y: Any) -> Any:
    u = splat(x)
    return select((u < y) | (u != u), u, y)


def _whole_power(x: Any, n: int) -> Any:
    """x^n for an integer n, by repeated multiplication."""
    out = splat(1.0)
    for _ in range(abs(n)):
        out = out * x
    return out if n >= 0 else 1.0 / out


def _real_power(x: Any, n: Any) -> Any:
    return _exp_lanes(n * _log_lanes(splat(x)))


def _power(x: Any, n: Any) -> Any:
    if lanes_type not in (x, n):
        return None
    return _whole_power if isinstance(n, types.Integer) else _real_power


specialise(operator.pow, _power)
specialise(np.power, _power)


@on_lanes(np.square)
def _np_square(x: Any) -> Any:
    return x * x


def _one_by_one(scalar: Callable[[float], float], function: Any) -> None:
    """Define a NumPy function on Lanes by calling a scalar function for each lane."""
    each = lanewise(scalar)

    def implementation(x: Any) -> Any:
        return each(x)

    on_lanes(function)(implementation)


_one_by_one(math.log1p, np.log1p)
_one_by_one(math.expm1, np.expm1)
