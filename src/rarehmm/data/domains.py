"""Domains: the values that the observations of a column may take."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray

MAX_COUNT = 1e15  # doubles beyond 2**53 no longer represent every whole number


class Domain(NamedTuple):
    """The values an observation may take: a test for finite values, a description, bounds, and integrality."""

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
    return np.asarray(np.abs(y) <= math.pi + 1e-6)  # pi rounded to single precision exceeds math.pi


def _whole(y: Array, high: float = MAX_COUNT) -> BoolArray:
    return np.asarray((y >= 0) & (y <= high) & (y == np.floor(y)))


REALS = Domain(_anything, "real numbers")


POSITIVE = Domain(_positive, "positive numbers", 0.0)


ANGLES = Domain(_angle, "angles in radians from -pi to pi (np.angle(np.exp(1j * y)) wraps them)", -math.pi, math.pi)


COUNTS = Domain(_whole, f"whole numbers from 0 to {MAX_COUNT:g}", 0.0, whole=True)


@cache
def below(n: int) -> Domain:
    """Return the domain 0, ..., n - 1 of a variable with ``n`` categories."""
    message = f"whole numbers from 0 to {n - 1}" if n > 2 else "0 and 1"
    return Domain(partial(_whole, high=n - 1.0), message, 0.0, n - 1.0, whole=True)
