"""Student's t observations: like Gaussian ones, but with outliers."""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import REALS, Domain
from rarehmm.engine.contracts.family import (
    Parameter,
    Prior,
    complete_score,
    log_density,
    prepare,
    score,
    statistics,
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled
from rarehmm.model.conjugate import best_mean_and_variance, mean_and_variance
from rarehmm.model.scaled_priors import location, squared_scale


class StudentT(NamedTuple):
    r"""Student's t distribution with given degrees of freedom :math:`\nu`.

    The parameters of a state are its location :math:`\mu_k` and squared scale :math:`\sigma_k^2`.

    .. math:: p(y \mid \mu_k, \sigma_k^2) \propto \sigma_k^{-1} (1 + (y-\mu_k)^2 / \nu\sigma_k^2)^{-(\nu+1)/2}
    """

    nu: float = 5.0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean", support="real", prior=location),
            Parameter("scale2", support="positive", prior=squared_scale),
        )

    @property
    def linear_predictor(self) -> tuple[str, ...]:
        return ("mean",)

    @property
    def log_scale(self) -> tuple[tuple[str, float], ...]:
        return (("scale2", 2.0),)

    def precision(self, y: Array, phi: Array) -> Array:
        """Expected precision of the normal distribution, of unknown scale, that an observation comes from."""
        return np.asarray((self.nu + 1) / (self.nu * phi[1] + (y - phi[0]) ** 2))

    @property
    def domain(self) -> Domain:
        return REALS

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        return np.asarray(rng.standard_t(self.nu, len(states)) * np.sqrt(phi[:, 1])[states] + phi[states, 0])

    def estimate(self, y: Array, weight: Array) -> Array:
        """Weighted mean and variance of the observations of one state, as in the paper's Table 1."""
        return mean_and_variance(y, weight)

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        return np.asarray(stdtr(self.nu, (y - phi[0]) / np.sqrt(phi[1])))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """Half and a quarter of the degrees of freedom."""
        return [(StudentT(nu), phi) for nu in (self.nu / 4, self.nu / 2)]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the mean, then of the scale given that mean."""
        weight, first, second = sums.T  # expected precision weights u, u z, u z^2
        return best_mean_and_variance(phi, counts, (weight, first, second), priors)

    def check(self) -> None:
        if not isinstance(self.nu, float | int) or not 0 < self.nu <= 1e6:
            raise ValueError(
                f"nu is {self.nu!r}; the degrees of freedom must lie between 0 and 1e6, such as StudentT(5). "
                "For larger values use Gaussian()."
            )


@compiled(prepare, StudentT)
def _(family: StudentT, phi: Array) -> Any:
    nu, s2 = family.nu, phi[1]
    norm = math.lgamma(0.5 * (nu + 1)) - math.lgamma(0.5 * nu) - 0.5 * math.log(nu * math.pi * s2)
    return phi[0], 1.0 / s2, norm, 1.0 / (nu * s2)


@compiled(log_density, StudentT)
def _(family: StudentT, y: Any, c: Any) -> Any:
    z = y - c[0]
    return c[2] - 0.5 * (family.nu + 1.0) * np.log(1.0 + z * z * c[3])


@compiled(score, StudentT)
def _(family: StudentT, y: Any, c: Any) -> Any:
    z = y - c[0]
    z2 = z * z * c[1]
    u = (family.nu + 1.0) / (family.nu + z2)
    return u * z * c[1], 0.5 * (u * z2 - 1.0) * c[1]


@compiled(statistics, StudentT)
def _(family: StudentT, y: Any, c: Any) -> Any:
    z = y - c[0]
    u = (family.nu + 1.0) / (family.nu + z * z * c[1])  # expected precision weight given y
    return u, u * z, u * z * z


@compiled(complete_score, StudentT)
def _(family: StudentT, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    shift = c[0] - hat[0]
    squares = sums[2] - 2.0 * shift * sums[1] + shift * shift * sums[0]
    return (sums[1] - shift * sums[0]) * c[1], 0.5 * (squares * c[1] - count) * c[1]


@compiled(with_predictor, StudentT)
def _(family: StudentT, y: Any, c: Any, eta: Any) -> Any:
    return y - eta, c


@compiled(with_log_scale, StudentT)
def _(family: StudentT, y: Any, c: Any, zeta: Any) -> Any:
    factor = np.exp(-2.0 * zeta)
    return y, (c[0], c[1] * factor, c[2] - zeta, c[3] * factor)
