r"""Draws of the parameters given the states, for models whose rows differ: inputs, lags, phases, known states.

Every parameter that is conjugate is drawn from its conditional distribution; all others move by Metropolis-Hastings
steps that leave it invariant.  Given the states, variances and lags, the log posterior is quadratic in levels and in
the coefficients of inputs, so that a Newton step plus noise is an exact draw:

.. math:: \theta' = \theta + I^{-1} \nabla \log p(\theta \mid y, x) + I^{-1/2} z

The other coefficients take the same step as a proposal (Gamerman 1997).
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from rarehmm.common.arrays import Array, IntArray
from rarehmm.exact.block_pass import Expectations
from rarehmm.exact.complete_data import CompleteData, LeftOut, Path
from rarehmm.exact.scoring import curvature, lag_jacobian, level_parameter, location_places, places
from rarehmm.model.autoregression import Intercept
from rarehmm.model.conjugate import check_conjugate, draw_variance
from rarehmm.model.coordinates import SMALLEST, AdditiveLogRatio
from rarehmm.model.effects import RowTerms
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.priors import InverseGamma, Normal, bare
from rarehmm.model.stationary import stationary

GAUSSIAN = ("Gaussian", "LogNormal")  # families whose coefficients are conjugate
SINGULAR = 1e-13  # smallest eigenvalue, relative to the diagonal, of the precision of what is drawn as a regression
REACH = 2.0  # longest step, and largest standard deviation, of a proposal in unbounded coordinates


@dataclass(frozen=True, eq=False)
class Point:
    """A point theta (d,) with what is known there, given the states."""

    data: CompleteData
    theta: Array

    @functools.cached_property
    def parameters(self) -> Parameters:
        """The parameters in natural units."""
        return self.data.model.unpack(self.theta)

    @functools.cached_property
    def log_density(self) -> float:
        """Log density of the series and its states; minus infinity where lags are at the edge of what is stationary."""
        try:
            return self.data.log_density(self.parameters)
        except ValueError:
            return -math.inf

    @functools.cached_property
    def log_posterior(self) -> float:
        """Log density of the series, its states and theta."""
        return self.log_density + float(self.data.model.log_prior(self.theta))

    def with_values(self, which: IntArray, values: Array) -> "Point":
        """The point whose components ``which`` have these values."""
        theta = self.theta.copy()
        theta[which] = values
        return Point(self.data, theta)

    def slope(self, which: IntArray, left_out: LeftOut | None = None) -> tuple[Array, Array, Expectations]:
        """Gradient and curvature of the log posterior in some components, and what they follow from."""
        model, found = self.data.model, self.data.expectations(self.parameters, left_out)
        assert found.information is not None
        gradient = model.gradient_from_expectations(
            self.theta, found.scores, found.pairs, found.first, found.coefficients
        ) + model.log_prior_gradient(self.theta)
        return gradient[which], curvature(model, self.theta, found.information)[0][np.ix_(which, which)], found


def internal(model: Model) -> Model:
    """The model in the coordinates in which these moves are made: logarithms and log ratios."""
    own = model.coordinates if isinstance(model.coordinates, AdditiveLogRatio) else AdditiveLogRatio()
    return replace(model, coordinates=own, logs=True)


def has_plain_emissions(model: Model) -> bool:
    """Whether the density of an observation depends on its state alone, and no parameter is tied."""
    terms = (model.inputs, model.switching, model.scale, model.autoregression)
    return all(part is None for part in terms) and not model.tied


def draw_emissions(rng: np.random.Generator, point: Point) -> Point:
    """Draw levels, coefficients, lags and variances given the states."""
    for which in linear_groups(point.data.model):
        point = draw_linear(rng, point, which)
    lags = own_places(point.data.model, "lags")
    if point.data.model.coefficients.is_partial and len(lags) > 0:
        point = walk(rng, propose_lags(rng, point), lags)
    point = draw_variances(rng, point)
    scale = own_places(point.data.model, "scale")
    return propose(rng, point, scale) if len(scale) > 0 else point


def draw_transitions(rng: np.random.Generator, point: Point) -> Point:
    """Draw the transition matrix, and how it depends on inputs, given the states."""
    model = point.data.model
    if model.transitions.inputs is None:
        return draw_matrix(rng, point)
    path = Point(Path(model, point.data.series, point.data.nodes), point.theta)  # observations are the same for all
    for which in rows_of_transitions(model):
        path = walk(rng, propose(rng, path, which), which)
    return Point(point.data, path.theta)


# ---------------------------------------------------------------- components of theta
def own_places(model: Model, name: str) -> IntArray:
    """Components of theta of one block of coefficients."""
    return components(model, np.arange(places(model)[name].start, places(model)[name].stop))


def components(model: Model, entries: IntArray) -> IntArray:
    """Components of theta to which entries of the vector of all parameters belong, without fixed ones."""
    found = np.unique(model.spread[entries])
    return found[found >= 0]


def linear_groups(model: Model) -> list[IntArray]:
    """Components of theta in which the log posterior is quadratic, given the states and all others.

    Lags are drawn with levels and inputs if they multiply neither.
    """
    every = location_places(model, level_parameter(model))
    n = math.prod(model.every_effect.shapes["lags"])
    split = len(every) - n
    if n == 0 or model.coefficients.is_partial:
        groups = [every[:split]]
    elif isinstance(model.autoregression, Intercept):
        groups = [every]
    else:
        groups = [every[:split], every[split:]]
    found = [components(model, group) for group in groups]
    return [which for which in found if len(which) > 0]


def rows_of_transitions(model: Model) -> list[IntArray]:
    """Components of theta of the logits of each row of the transition matrix and of their slopes."""
    first, own = model.fixed_values.phi.size, model.coordinates.free(model.n_states)[0]
    slopes, other = places(model)["slopes"], model.coefficients.compared[0]
    count = (slopes.stop - slopes.start) // max(len(other), 1)
    rows = [
        np.concatenate([first + np.flatnonzero(own == j), slopes.start + np.flatnonzero(np.tile(other, count) == j)])
        for j in range(model.n_states)
    ]
    found = [components(model, row) for row in rows]
    return [which for which in found if len(which) > 0]


# ---------------------------------------------------------------- moves
def accepted(rng: np.random.Generator, old: Point, new: Point, gain: float) -> Point:
    """The new point with probability min(1, exp(gain)), else the old one."""
    return new if gain > -rng.standard_exponential() else old


def within_bounds(point: Point) -> bool:
    """Whether all components are within the bounds of the model."""
    low, high = point.data.model.bounds
    return bool(((point.theta >= low) & (point.theta <= high)).all())


def draw_linear(rng: np.random.Generator, point: Point, which: IntArray) -> Point:
    """Draw levels and coefficients of the linear predictor given all else, as in a regression."""
    gradient, precision, _ = point.slope(which)
    factor, unit = factorised(point.data.model, which, precision)
    step = scipy.linalg.cho_solve((factor, True), unit * gradient)
    noise = scipy.linalg.solve_triangular(factor, rng.standard_normal(len(which)), trans="T", lower=True)
    return point.with_values(which, point.theta[which] + unit * (step + noise))


def factorised(model: Model, which: IntArray, precision: Array) -> tuple[Array, Array]:
    """Cholesky factor (m, m) of a precision matrix in units (m,) in which its diagonal is 1."""
    diagonal = np.diag(precision)
    known = diagonal > 0
    unit = 1 / np.sqrt(np.where(known, diagonal, 1.0))
    scaled = unit[:, None] * precision * unit
    values, vectors = np.linalg.eigh(scaled)
    if values[0] > SINGULAR:
        return np.asarray(np.linalg.cholesky(scaled)), unit
    worst = which[int(np.argmax(np.abs(vectors[:, 0])))]
    raise ValueError(
        f"{model.component_names[worst]} has no proper distribution to be drawn from: its prior is Flat and its state "
        "has no observations that inform it. Give it a prior (default_priors), or use fewer states."
    )


def propose(rng: np.random.Generator, point: Point, which: IntArray) -> Point:
    """Propose a Newton step plus noise in some components, and accept it by the ratio of densities."""
    mean, factor = newton(point, which)
    noise = rng.standard_normal(len(which))
    new = point.with_values(which, mean + scipy.linalg.solve_triangular(factor, noise, trans="T", lower=True))
    if not within_bounds(new):
        return point
    back, back_factor = newton(new, which)
    returning = back_factor.T @ (point.theta[which] - back)
    gain = new.log_posterior - point.log_posterior + float(noise @ noise - returning @ returning) / 2
    gain += float(np.log(np.diag(back_factor)).sum() - np.log(np.diag(factor)).sum())
    return accepted(rng, point, new, gain)


def newton(point: Point, which: IntArray) -> tuple[Array, Array]:
    """Mean (m,) of a proposal, and Cholesky factor (m, m) of its precision."""
    gradient, precision, _ = point.slope(which)
    precision = precision + np.eye(len(which)) / REACH**2
    step = np.clip(np.linalg.solve(precision, gradient), -REACH, REACH)
    return point.theta[which] + step, np.asarray(np.linalg.cholesky(precision))


def walk(rng: np.random.Generator, point: Point, which: IntArray) -> Point:
    """A random walk in some components, with steps of a random length between REACH and REACH / sqrt(T)."""
    length = REACH * len(point.data.series) ** (-0.5 * rng.random())
    new = point.with_values(
        which, point.theta[which] + length * rng.standard_normal(len(which)) / math.sqrt(len(which))
    )
    return accepted(rng, point, new, new.log_posterior - point.log_posterior) if within_bounds(new) else point


# ---------------------------------------------------------------- stationary lags
def incomplete_rows(terms: RowTerms) -> IntArray:
    """Rows whose density is not that of a regression on their lags."""
    return np.concatenate([terms.after, terms.first])


def lag_regression(point: Point) -> tuple[Array, Array]:
    """Mean (p,) and Cholesky factor (p, p) of the precision of the lags, from rows that have all of theirs.

    A weak normal prior makes this distribution proper.  It does not depend on the lags at this point.
    """
    effects = point.data.model.every_effect
    old = effects.block("lags", point.parameters.coefficients)[:, 0, 0]
    found = point.data.expectations(point.parameters, incomplete_rows)
    assert found.information is not None
    p = len(old)
    precision = found.information.location[-p:, -p:] + np.eye(p)
    slope = effects.block("lags", found.coefficients)[:, 0, 0] - old
    return old + np.linalg.solve(precision, slope), np.asarray(np.linalg.cholesky(precision))


def propose_lags(rng: np.random.Generator, point: Point) -> Point:
    """Propose stationary lags from their regression, and accept them by the ratio of what it leaves out.

    Densities are with respect to the coordinates, the hyperbolic arctangents of partial autocorrelations.
    """
    model = point.data.model
    at, coefficients = own_places(model, "lags"), point.parameters.coefficients.copy()
    lags = model.every_effect.block("lags", coefficients)[:, 0, 0]  # a view
    mean, factor = lag_regression(point)
    old = factor.T @ (lags - mean)
    noise = rng.standard_normal(len(lags))
    lags[:] = mean + scipy.linalg.solve_triangular(factor, noise, trans="T", lower=True)
    try:
        model.every_effect.check(coefficients)
    except ValueError:  # not stationary
        return point
    new = point.with_values(at, model.coefficients.pack(coefficients)[model.coefficients.slices["lags"]])
    if not within_bounds(new):
        return point
    volume, old_volume = (np.linalg.slogdet(lag_jacobian(model, one.parameters))[1] for one in (new, point))
    gain = new.log_posterior - point.log_posterior + float(noise @ noise - old @ old) / 2 + float(old_volume - volume)
    return accepted(rng, point, new, gain)


# ---------------------------------------------------------------- variances
def first_rows(terms: RowTerms) -> IntArray:
    """Rows without any observation before them."""
    return terms.first


def draw_variances(rng: np.random.Generator, point: Point) -> Point:
    r"""Draw variances given all else, :math:`s^2 \sim IG(a + n/2, b + SSE/2)`.

    Where the variance of the first row of a sequence mixes those of all states, it is left out, and the draw is
    accepted by the ratio of the densities of such rows.
    """
    model = point.data.model
    mixed = model.every_effect.mixed_start
    i = int(np.flatnonzero(model.every_effect.moves.power)[0])
    fixed = ~np.isnan(model.fixed_values.phi[:, i])
    if fixed.all():
        return point
    found = point.data.expectations(point.parameters, first_rows if mixed else None)
    assert found.information is not None
    counts, s2 = found.information.counts, point.parameters.phi[:, i]
    squares = s2 * (2 * s2 * found.scores[:, i] + counts)  # of residuals, from the derivatives
    squares = np.where(fixed, 1.0, np.maximum(squares, 0.0))
    counts, prior = np.where(fixed, 1.0, counts), model.priors.emission[i]
    if model.family.parameters[i].name in model.tied:
        counts, squares = counts.sum(keepdims=True), squares.sum(keepdims=True)
    phi = point.parameters.phi.copy()
    phi[:, i] = draw_variance(rng, squares, counts, prior)
    phi = model.fixed_values.fill_phi(phi)
    new = at_parameters(point, point.parameters._replace(phi=phi))
    if not mixed:
        return new
    shape, scale = counts / 2, squares / 2
    log_ratio = (-shape * np.log(phi[: len(shape), i] / s2[: len(shape)])).sum()
    log_ratio -= (scale * (1 / phi[: len(shape), i] - 1 / s2[: len(shape)])).sum()
    return accepted(rng, point, new, new.log_density - point.log_density - float(log_ratio))


def at_parameters(point: Point, parameters: Parameters) -> Point:
    """The point of some parameters in natural units."""
    model = point.data.model
    return Point(point.data, model.pack_all(parameters.phi, parameters.transition, parameters.coefficients))


# ---------------------------------------------------------------- transitions
def draw_matrix(rng: np.random.Generator, point: Point) -> Point:
    r"""Draw a transition matrix without inputs.

    The probability to stay has a beta distribution, and the shares of the other states a Dirichlet distribution: steps
    from one phase of a state to its next count for leaving, but not for where to go.  What else depends on the matrix,
    the first nodes and the variances of first rows, is the ratio by which it is accepted.
    """
    model, data, unfolding = point.data.model, point.data, point.data.model.unfolding
    K, a = model.n_states, model.priors.transition.concentration
    own, allowed = np.eye(K, dtype=bool), model.fixed_values.allowed
    if K == 1:
        return point
    pairs = np.zeros((K, K))
    np.add.at(pairs, tuple(unfolding.entry[~unfolding.advance].T), data.steps[~unfolding.advance])
    advances = np.bincount(unfolding.entry[unfolding.advance, 0], data.steps[unfolding.advance], K)
    exits = np.where(allowed & ~own, pairs + a, 0.0)
    stays = np.where(np.diag(allowed), np.diag(pairs) + a, 0.0)
    shares, leave = log_shares(rng, exits), log_shares(rng, np.column_stack([stays, exits.sum(1) + advances]))
    logs = leave[:, 1:] + shares
    logs[own] = leave[:, 0]
    P = np.maximum(np.exp(logs), np.where(allowed, SMALLEST, 0.0))
    P = model.fixed_values.fill_transition(P / P.sum(1, keepdims=True))
    start = stationary(P) if model.start is None else model.start
    new = at_parameters(point, point.parameters._replace(transition=P, start=start))
    if model.start is not None:
        return new
    gain = new.log_density - point.log_density - (log_steps(data, P) - log_steps(data, point.parameters.transition))
    return accepted(rng, point, new, gain)


def log_shares(rng: np.random.Generator, weight: Array) -> Array:
    """Logarithms of draws from Dirichlet distributions with parameters weight (K, n); entries of weight 0 are 0.

    In log space, since gamma variates with a small shape underflow: G(a) is G(a + 1) U^(1/a).
    """
    logs = np.log(rng.standard_gamma(weight + 1))
    with np.errstate(divide="ignore"):
        logs = logs - rng.standard_exponential(weight.shape) / weight
    return np.asarray(logs - scipy.special.logsumexp(logs, axis=1, keepdims=True))


def log_steps(data: CompleteData, transition: Array) -> float:
    """Log probability of the steps of a path."""
    used = data.steps > 0
    return float(data.steps[used] @ np.log(data.model.unfolding.weights(transition)[used]))


# ---------------------------------------------------------------- refusals
def check_regimes(model: Model) -> None:
    """Raise if the parameters of a model whose rows differ cannot be drawn given the states."""
    if model.transitions.inputs is not None and model.priors.effects is None:
        raise ValueError(
            "the slopes of transitions have no prior: the posterior of those of transitions that never happen is "
            "improper. Use default_priors, or Priors(..., effects=EffectPriors(...))."
        )
    if has_plain_emissions(model):
        return
    if model.name not in GAUSSIAN:
        raise TypeError(
            f"{model.name} with inputs, lags or tied parameters is not conjugate: Gibbs sampling draws these for "
            f"{' and '.join(GAUSSIAN)} only. Use method='hmc', or one of these families."
        )
    kinds: tuple[tuple[Any, Any], ...] = tuple(zip((Normal, InverseGamma), model.priors.emission, strict=True))
    for kind, prior in kinds:
        check_conjugate(bare(prior), kind, "Gibbs sampling", "use langevin")
