"""Compiled special functions of one number, for the constants that families compute in ``prepare``."""

import math

from rarehmm.engine.dispatch import inner


@inner
def log_minus_digamma(x: float) -> float:
    r""":math:`\log x - \psi(x)` by recurrence up to 8 and by its asymptotic series beyond."""
    total = math.log(x)
    while x < 8.0:
        total += 1.0 / x
        x += 1.0
    q = 1.0 / (x * x)
    series = q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q * (1 / 240 - q * (1 / 132 - q * 691 / 32760)))))
    return total - math.log(x) + 0.5 / x + series
