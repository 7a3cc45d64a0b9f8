"""Fits that explain the same observations in another way: fewer states, heavier tails, autocorrelated noise.

Two fits are compared by what each adds to the log density, less the cost of its parameters as in BIC, and by the
standard error of that difference over the series.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.emissions import rivals
from rarehmm.emissions.product import Product
from rarehmm.emissions.student_t import StudentT
from rarehmm.engine.contracts.family import columns, has
from rarehmm.exact.em import normalised_rows
from rarehmm.exact.passes import predictive_log_density, smooth
from rarehmm.model.autoregression import AroundLevel
from rarehmm.model.coordinates import AdditiveLogRatio
from rarehmm.model.model import Model
from rarehmm.model.moves import moves
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary
from rarehmm.search.initial import STRETCH, climb_briefly
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases

STEPS = 30  # EM steps of the fits that are compared
HEAVY = (2.5, 8.0)  # degrees of freedom of heavier tails in several columns
CORRELATED = 0.1  # residual autocorrelation above which autocorrelated noise is an alternative


class Fit:
    """A fitted model with what comparisons need, computed when it is asked for.

    Parameters
    ----------
    model : Model
    parameters : Parameters
        Its fitted parameters.
    series : Series
        The observations, or a sample of them.
    threads : int, optional
        Number of threads.
    log_volume : float
        Logarithm of the volume of a unit of these observations, in those that others are fitted to.
    """

    def __init__(
        self, model: Model, parameters: Parameters, series: Series, threads: int | None, log_volume: float = 0.0
    ) -> None:
        self.model, self.parameters, self.series, self.threads = model, parameters, series, threads
        self.log_volume = log_volume

    @cached_property
    def densities(self) -> Array:
        """Log density (T,) of each observation given those before it; 0 for rows that do not count."""
        found = predictive_log_density(self.model, self.parameters, self.series, threads=self.threads)
        return np.where(found != 0, found - self.log_volume, 0.0)

    @cached_property
    def probabilities(self) -> Array:
        """Probabilities (T, K) of the states given the series."""
        return smooth(self.model, self.parameters, self.series, threads=self.threads)

    @cached_property
    def counts(self) -> Array:
        """Expected number of observations (K,) of each state."""
        return np.asarray(self.probabilities.sum(0))

    @property
    def cost(self) -> float:
        """Cost of its parameters as in BIC: half the log of the number of observations that tell of each."""
        K, P = self.parameters.phi.shape
        rows, n = np.maximum(self.counts, 1.0), len(self.series) - self.series.n_missing
        shared = (P - len(self.model.tied)) * np.log(rows).sum() + len(self.parameters.coefficients) * np.log(n)
        return 0.5 * float(shared + (K - 1) * np.log(rows).sum())

    def without(self, k: int) -> "Fit":
        """Fit with one state fewer, from the parameters of the others."""
        return self.refit(*remove_state(self.model, self.parameters, k))

    def refit(self, model: Model, start: Parameters) -> "Fit":
        """Fit of another model to the same observations, by a few EM steps from ``start``."""
        return refit(model, start, self.series, self.threads, self.log_volume)

    def described(self) -> str:
        """Number of states and kind of noise, as a phrase."""
        K = self.model.n_states
        return f"{K} {'state' if K == 1 else 'states'}"


class Gap(NamedTuple):
    """What a fit has over an alternative.

    ``gain`` is the difference in log density, ``price`` the part of it that the cost of parameters explains,
    ``rivalry`` the probability that the alternative is as good: above a half if the gain is below the price.
    """

    gain: float
    price: float
    rivalry: float


def compare(fit: Fit, other: Fit) -> Gap:
    """Compare two fits of the same rows, on those that count in both."""
    both = (fit.densities != 0) & (other.densities != 0)
    difference = np.where(both, fit.densities - other.densities, 0.0)
    sums = np.add.reduceat(difference, np.arange(0, len(difference), STRETCH))
    error = max(1.0, float(sums.std() * np.sqrt(len(sums))))
    gain, price = float(difference.sum()), fit.cost - other.cost
    return Gap(gain, price, float(ndtr((price - gain) / error)))


def refit(model: Model, start: Parameters, series: Series, threads: int | None, log_volume: float = 0.0) -> Fit:
    """Fit a model by a few EM steps from ``start``."""
    return Fit(model, climb_briefly(model, series, start, STEPS, threads).parameters, series, threads, log_volume)


def remove_state(model: Model, parameters: Parameters, k: int | None) -> tuple[Model, Parameters]:
    """Remove state k, or the rarest state if k is None, from a model and its parameters.

    Paths through the removed state continue to where it leads.
    """
    if k is None:
        k = int(np.argmin(parameters.start if model.start is None else stationary(parameters.transition)))
    keep = np.delete(np.arange(model.n_states), k)
    P = parameters.transition
    direct = P[np.ix_(keep, keep)] + np.outer(P[keep, k], P[k, keep]) / max(1 - P[k, k], 1e-300)
    phases, transitions = model.transitions.phases(model.n_states), model.transitions
    if phases.max() > 1:
        transitions = Phases(tuple(phases[keep].tolist())) if len(keep) > 1 else Homogeneous()
    fewer = replace(
        model, n_states=len(keep), start=None, coordinates=AdditiveLogRatio(), fixed=None, transitions=transitions
    )
    coefficients = model.every_effect.reordered(parameters.coefficients, keep)
    return fewer, fewer.natural(parameters.phi[keep], normalised_rows(direct), coefficients)


# ---------------------------------------------------------------- other noise
def heavier_tails(fit: Fit) -> list[Callable[[], Fit]]:
    """Fits with heavier tails and as many states, each when it is called, from parameters that resemble those of a fit.

    Where a family of several columns names none, columns are made independent and have Student's t distributions.
    """
    model = fit.model
    if columns(model.family) > 1 and has(model.family, "moments") and not has(model.family, "heavier"):
        return [partial(with_heavy_columns, fit, nu) for nu in HEAVY] if model.effects is None else []
    return [partial(with_tails, fit, *each) for each in rivals(model.family, fit.parameters.phi)]


def with_tails(fit: Fit, family: Any, phi: Array) -> Fit:
    """Fit of another family, from phi (K, P) of that family."""
    return fit.refit(*with_family(fit, family, phi))


def with_family(fit: Fit, family: Any, phi: Array) -> tuple[Model, Parameters]:
    """The model of a fit with another family, and its parameters with phi (K, P) of that family."""
    priors = default_priors(family, fit.model.n_states, fit.series)
    other = replace(
        fit.model, family=family, priors=priors, start=None, coordinates=AdditiveLogRatio(), fixed=None, tied=()
    )
    return other, other.natural(phi, fit.parameters.transition, fit.parameters.coefficients)


def with_heavy_columns(fit: Fit, nu: float) -> Fit:
    r"""Fit of Student's t distributions to independent columns :math:`z = L^{-1} y`.

    :math:`L L^T` is the covariance of the state with most observations.  Rows with missing columns do not count.
    """
    family: Any = fit.model.family
    mean, covariance = family.moments(fit.parameters.phi)
    factor = np.linalg.cholesky(covariance[int(np.argmax(fit.counts))])
    inverse = np.linalg.inv(factor)
    y = fit.series.read(0, len(fit.series)) @ inverse.T
    series = Series(np.where(np.isnan(y).any(1, keepdims=True), np.nan, y), np.diff(fit.series.bounds))
    scale = np.diagonal(inverse @ covariance @ inverse.T, axis1=1, axis2=2) * (nu - 2) / nu
    each = np.stack([mean @ inverse.T, scale], -1).reshape(len(mean), -1)  # (K, 2 D)
    independent = Product(*(StudentT(nu) for _ in range(columns(family))))
    volume = fit.log_volume + float(np.log(np.diag(factor)).sum())
    other = Fit(fit.model, fit.parameters, series, fit.threads, volume)
    return other.refit(*with_family(other, independent, each))


def residual_autocorrelation(fit: Fit) -> float:
    """Correlation of successive residuals around the levels of the states, the largest of all columns."""
    y, gamma = fit.series.read(0, len(fit.series)), fit.probabilities
    joined = np.ones(len(y), dtype=bool)
    joined[fit.series.bounds[:-1]] = False
    found = [0.0]
    for column in y.T:
        weight = gamma * ~np.isnan(column)[:, None]
        level = weight.T @ np.nan_to_num(column) / np.maximum(weight.sum(0), 1e-300)
        residual = column - gamma @ level
        now, before = residual[1:][joined[1:]], residual[:-1][joined[1:]]
        seen = ~np.isnan(now + before)
        if seen.sum() > 2 and now[seen].std() > 0 and before[seen].std() > 0:
            found.append(float(np.corrcoef(now[seen], before[seen])[0, 1]))
    return max(found)


def autocorrelated_noise(fit: Fit) -> tuple[Model, Parameters] | None:
    """The model of a fit with autocorrelated noise around its levels, and parameters to begin with.

    Innovations have the variance that the residual autocorrelation leaves.  None if the model has lags, or its family
    no such levels: a count that raises the next one, as in bursts, is no noise.
    """
    model, at = fit.model, moves(fit.model.family)
    if model.autoregression is not None or columns(model.family) > 1 or (at.level < 0).any():
        return None
    rho = min(residual_autocorrelation(fit), 0.98)
    if rho < CORRELATED:
        return None
    other = replace(
        model, autoregression=AroundLevel(1), start=None, coordinates=AdditiveLogRatio(), fixed=None, tied=(),
        priors=default_priors(model.family, model.n_states, fit.series),
    )  # fmt: skip
    coefficients, here = np.zeros(other.every_effect.size), fit.parameters
    for name, place in model.every_effect.slices.items():
        if name != "lags":
            coefficients[other.every_effect.slices[name]] = here.coefficients[place]
    coefficients[other.every_effect.slices["lags"]] = rho
    phi = np.where(at.power > 0, here.phi * (1 - rho**2) ** (at.power / 2), here.phi)
    return other, other.natural(phi, here.transition, coefficients)
