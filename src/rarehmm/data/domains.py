"""Domain: what the observations of a column may be."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray

MOST = 1e15  # of counts: larger ones are not whole to the last digit


class Domain(NamedTuple):
    """What an observation may be: a test on finite values, words for it, bounds, and whether all are whole numbers."""

    valid: Callable[[Array], BoolArray]
    message: str
    low: float = -math.inf
    high: float = math.inf
    whole: bool = False


def _anything(y: Array) -> BoolArray:
    return np.ones(y.shape, dtype=bool)


def _positive(y: Array) -> BoolArray:
    return np.asarray(y > 0)


def _angle(y: Array) -> BoolArray:
    return np.asarray(np.abs(y) <= math.pi + 1e-6)  # pi in single precision is larger


def _whole(y: Array, high: float = MOST) -> BoolArray:
    return np.asarray((y >= 0) & (y <= high) & (y == np.floor(y)))


REALS = Domain(_anything, "real numbers")


POSITIVE = Domain(_positive, "positive numbers", 0.0)


ANGLES = Domain(_angle, "angles in radians from -pi to pi (np.angle(np.exp(1j * y)) has them)", -math.pi, math.pi)


COUNTS = Domain(_whole, f"whole numbers from 0 to {MOST:g}", 0.0, whole=True)


@cache
def below(n: int) -> Domain:
    """Whole numbers less than n: as many categories."""
    message = f"whole numbers from 0 to {n - 1}" if n > 2 else "0 and 1"
    return Domain(partial(_whole, high=n - 1.0), message, 0.0, n - 1.0, whole=True)
