r"""Autoregression: three ways in which an observation depends on those before it.

All are written with coefficients :math:`\phi_1, \dots, \phi_p` of the last p values; :math:`r_t = y_t - \eta_t` is what
inputs leave, i and j are the last and the present state.

``AroundLevel``: :math:`r_t = \mu_j - \rho \mu_i + \sum_m \phi_m r_{t-m} + \sigma_j e_t`, with :math:`\rho = \sum_m
\phi_m`.  States are levels that last, and the noise around them is correlated across switches.  Of order 1 this is
Hamilton's model; of higher orders it is, once the last p steps were in one state.

``Intercept``: :math:`y_t = \mu_j + \eta_t + \sum_m \phi_m y_{t-m} + \sigma_j e_t`.  A level is forgotten soon, so that
only onsets stay visible.

``Hamilton``: :math:`r_t = \mu_j + \sum_m \phi_m (r_{t-m} - \mu_{s_{t-m}}) + \sigma_j e_t`, at the cost of
:math:`K^{p+1}` terms for each step.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array

MOST_LAGS = 50  # the time for stationary coefficients grows with their third power
STEP = 1e-30  # of derivatives by complex steps, which have no cancellation


class AroundLevel(NamedTuple):
    """Autocorrelated noise around the level of a state.

    Attributes
    ----------
    order
        Number of lags, p.
    switching
        Whether coefficients differ between states.  They are then not restricted to stationary ones, and rows with a
        missing lag count as missing.
    conditional
        Whether the first p rows of each sequence are given, instead of following the stationary distribution.  They
        always are if coefficients switch or if there are several columns, where rows with a missing lag also count as
        missing.
    """

    order: int = 1
    switching: bool = False
    conditional: bool = False

    @property
    def depth(self) -> int:
        """Number of earlier states on which the density depends."""
        return 1

    @property
    def is_stationary(self) -> bool:
        """Whether coefficients are restricted to stationary ones."""
        return not self.switching

    @property
    def fills_gaps(self) -> bool:
        """Whether rows with missing lags have a density of their own."""
        return not self.switching


class Intercept(NamedTuple):
    """Regression on the last p values, with an intercept for each state.

    Lags are those of log(1 + y) where observations are counts, and of log y where they are positive numbers.

    Attributes
    ----------
    order
        Number of lags, p.
    switching
        Whether coefficients differ between states.
    """

    order: int = 1
    switching: bool = False

    @property
    def conditional(self) -> bool:
        """The first p rows of each sequence are given."""
        return True

    @property
    def depth(self) -> int:
        """Number of earlier states on which the density depends."""
        return 0

    @property
    def is_stationary(self) -> bool:
        """Whether coefficients are restricted to stationary ones."""
        return False

    @property
    def fills_gaps(self) -> bool:
        """Whether rows with missing lags have a density of their own."""
        return False


class Hamilton(NamedTuple):
    """Hamilton's exact model, for small problems: each of the last p values around the level of its own state.

    Attributes
    ----------
    order
        Number of lags, p, at most 4.
    switching
        Whether coefficients differ between states.
    """

    order: int = 1
    switching: bool = False

    @property
    def conditional(self) -> bool:
        """The first p rows of each sequence are given."""
        return True

    @property
    def depth(self) -> int:
        """Number of earlier states on which the density depends."""
        return self.order

    @property
    def is_stationary(self) -> bool:
        """Whether coefficients are restricted to stationary ones."""
        return not self.switching

    @property
    def fills_gaps(self) -> bool:
        """Whether rows with missing lags have a density of their own."""
        return False


Autoregression = AroundLevel | Intercept | Hamilton
MOST_STATES = 4  # lags of ``Hamilton``


def check_autoregression(given: Any) -> None:
    """Raise unless this is an autoregression with a sensible order."""
    if not isinstance(given, Autoregression):
        raise TypeError(f"autoregression is {given!r}; use AroundLevel(p), Intercept(p) or Hamilton(p).")
    p, name = given.order, type(given).__name__
    if isinstance(p, bool) or not isinstance(p, int | np.integer) or p < 1:
        raise ValueError(f"{name}: order is {p!r}; the number of lags must be a whole number, at least 1.")
    if isinstance(given, Hamilton) and p > MOST_STATES:
        raise ValueError(
            f"Hamilton: order is {p}; at most {MOST_STATES} is supported, since its chain has K^order states. Use "
            f"AroundLevel({p})."
        )
    if p > MOST_LAGS:
        raise ValueError(
            f"{name}: order is {p}; at most {MOST_LAGS} lags are supported. What repeats after {p} rows is a season, "
            f"Season({p}); what changes slowly is a trend, or can be seen in longer steps of time."
        )


# ---------------------------------------------------------------- coefficients and partial autocorrelations
def from_partial(partial: Array) -> Array:
    """Coefficients (..., p) from partial autocorrelations (..., p), by the Durbin-Levinson recursion."""
    phi = partial[..., :1]
    for m in range(1, partial.shape[-1]):
        last = partial[..., m : m + 1]
        phi = np.concatenate([phi - last * phi[..., ::-1], last], axis=-1)
    return phi


def to_partial(phi: Array) -> Array:
    """Partial autocorrelations (..., p) from coefficients (..., p) of a stationary autoregression."""
    out = np.array(phi, dtype=float)
    here = out.copy()
    for m in range(out.shape[-1] - 1, 0, -1):
        last = here[..., m : m + 1]
        out[..., m] = last[..., 0]
        here = (here[..., :m] + last * here[..., m - 1 :: -1][..., :m]) / (1 - last**2)
    out[..., 0] = here[..., 0]
    return out


def partial_jacobian(partial: Array) -> Array:
    """Derivatives (p, p) of the coefficients (rows) in the partial autocorrelations (columns)."""
    p = len(partial)
    return np.column_stack([from_partial(partial + 1j * STEP * one).imag / STEP for one in np.eye(p)])


def autocorrelations(phi: Array, n: int) -> Array:
    """Autocorrelations (n + 1,) at lags 0 to n of the stationary autoregression with coefficients (p,)."""
    p = len(phi)
    if p == 1:
        return np.asarray(phi[0] ** np.arange(n + 1))
    system = np.eye(p, dtype=phi.dtype)  # Yule and Walker: acf_m - sum_l phi_l acf_|m - l| = 0, for m = 1, ..., p
    right = np.zeros(p, dtype=phi.dtype)
    for m in range(1, p + 1):
        for lag in range(1, p + 1):
            if m == lag:
                right[m - 1] += phi[lag - 1]
            else:
                system[m - 1, abs(m - lag) - 1] -= phi[lag - 1]
    out = np.empty(max(n, p) + 1, dtype=phi.dtype)
    out[0], out[1 : p + 1] = 1.0, np.linalg.solve(system, right)
    for h in range(p + 1, n + 1):
        out[h] = phi @ out[h - p : h][::-1]
    return out[: n + 1]


def predictable(phi: Array) -> Any:
    """Share R^2 of the stationary variance that the last p values predict; the rest is the variance of innovations."""
    p = len(phi)
    return phi @ autocorrelations(phi, p)[1:]


class Memory(NamedTuple):
    """What is known of a value from the last one observed h steps before, for h = 0 (none), 1, ..., n.

    ``correlation`` (n + 1,), 0 for h = 0; ``scale`` (n + 1,): half the logarithm of the variance in units of that of
    innovations; and their derivatives (n + 1, p) in the coefficients.
    """

    correlation: Array
    scale: Array
    correlation_slope: Array
    scale_slope: Array


def memory(phi: Array, n: int) -> Memory:
    """Memory over gaps of up to n steps."""

    def both(phi: Array) -> tuple[Array, Array]:
        acf = autocorrelations(phi, max(n, 1))
        acf[0] = 0.0
        return acf, log_scale_after(acf, predictable(phi))

    correlation, scale = both(phi)
    slopes = [both(phi + 1j * STEP * one) for one in np.eye(len(phi))]
    return Memory(
        correlation, scale, np.column_stack([a.imag for a, _ in slopes]) / STEP,
        np.column_stack([b.imag for _, b in slopes]) / STEP,
    )  # fmt: skip


def log_scale_after(correlation: Any, R2: Any) -> Any:
    """Half the log variance of a value with this correlation to the last one observed, in units of innovations."""
    return 0.5 * (np.log(1 - correlation**2) - np.log(1 - R2))


def memories(phi: Array, n: int) -> tuple[Array, Array, Array]:
    """Correlations and log scales (m, n + 1) as in ``memory``, and R^2 (m,), of m vectors of coefficients (m, p)."""
    m, p = phi.shape
    acf = np.empty((m, max(n, p) + 1))
    acf[:, : p + 1] = [autocorrelations(one, p) for one in phi]
    for h in range(p + 1, n + 1):
        acf[:, h] = (phi[:, ::-1] * acf[:, h - p : h]).sum(1)
    R2, correlation = (phi * acf[:, 1 : p + 1]).sum(1), acf[:, : n + 1]
    correlation[:, 0] = 0.0
    return correlation, log_scale_after(correlation, R2[:, None]), R2


def predictable_slope(phi: Array) -> Array:
    """Derivatives (p,) of ``predictable`` in the coefficients."""
    return np.array([predictable(phi + 1j * STEP * one).imag / STEP for one in np.eye(len(phi))])


def share_kept(order: int) -> float:
    """Standard deviation of the prior of coefficient number ``order`` where it is not restricted: less for far lags."""
    return 1.0 / math.sqrt(order)
