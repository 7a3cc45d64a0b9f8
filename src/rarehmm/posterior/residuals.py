r"""Goodness of fit by pseudo-residuals, which are independent standard normal if the model is right.

.. math:: r_t = \Phi^{-1}\bigl(P(Y_t \le y_t \mid y_1, \dots, y_{t-1})\bigr)

For counts they are randomised: a uniform draw between :math:`P(Y_t < y_t)` and :math:`P(Y_t \le y_t)`.  Heavy tails,
autocorrelation within states and drift each show up in them.
"""

from typing import Any

import numpy as np
from scipy.special import ndtri

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import domains, has
from rarehmm.exact.edge_prediction import predictions
from rarehmm.exact.passes import filter_states
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.sampling.diagnostics import Check

LARGEST = 8.0  # residuals are clipped here: beyond, the normal distribution function rounds to 1
BLOCKS = 20
CHANCE = 4.0  # standard errors that chance explains; a misfit is larger than this and than the sizes below
SPREAD = 0.05  # of the standard deviation from 1
OUTLYING = 1e-3  # share beyond FAR, where the normal distribution has 6e-5
FAR = 4.0
FEWEST = 2  # outlying residuals: one observation is no tail
CORRELATION = 0.1  # of neighbouring residuals, or of their absolute values
DRIFT = 0.3  # of the mean over a twentieth of the series
WAVES, SPANS = 0.15, (10, 30, 100)  # standard deviation of means over so many steps, beyond that of independent values


def has_residuals(family: Any) -> bool:
    """Return whether a family has the distribution functions that pseudo-residuals need."""
    return has(family, "cdf") or has(family, "cdfs")


def pseudo_residuals(
    rng: np.random.Generator, model: Model, parameters: Parameters, series: Series, *, threads: int | None = None
) -> Array:
    """Return the pseudo-residuals (T,), or (T, D) for several columns; NaN where observations are missing.

    If the model is right, each is standard normal and independent of those before it.
    """
    family: Any = model.family
    if not has_residuals(family):
        raise TypeError(f"{model.name} has no 'cdf', the distribution function of a state, which residuals need.")
    if model.effects is not None:
        model.check(series)
        parts = [_between(rng, family, one.y, one.weight, one.phi) for one in predictions(model, parameters, series)]
        u = np.concatenate(parts)
    else:
        filtered = filter_states(model, parameters, series, threads=threads)
        predicted = np.vstack([parameters.start, filtered[:-1] @ parameters.transition])  # states, one step ahead
        predicted[series.bounds[:-1]] = parameters.start
        y = np.concatenate([rows for _, rows in series.strides()])
        u = _between(rng, family, y, predicted, parameters.phi)
    out = np.clip(ndtri(np.clip(u, 0.0, 1.0)), -LARGEST, LARGEST)
    return np.asarray(out if out.shape[1] > 1 else out[:, 0])


def _between(rng: np.random.Generator, family: Any, y: Array, weight: Array, phi: Array) -> Array:
    """Return P(Y <= y), or a random number between it and P(Y < y), of observations y (n, D) of a mixture.

    ``weight`` (n, U) are the weights of its components, and ``phi`` (U, P) or (U, n, P) their parameters.
    """
    discrete = np.array([domain.whole for domain in domains(family)])
    below = np.where(discrete, y - 1, y)
    high, low = np.zeros(y.shape), np.zeros(y.shape)
    for k, own in enumerate(phi):
        high += weight[:, k, None] * distribution_functions(family, y, own.T)
        if discrete.any():
            low += weight[:, k, None] * distribution_functions(family, below, own.T)
    return np.where(discrete, low + rng.random(y.shape) * (high - low), high) if discrete.any() else high


def distribution_functions(family: Any, y: Array, phi: Array) -> Array:
    """Return P(Y <= y) of each column, (n, D), in a state with parameters phi (P,), or (P, n) of each row."""
    return np.asarray(family.cdfs(y, phi) if has(family, "cdfs") else family.cdf(y[:, 0], phi)[:, None])


def check_residuals(residuals: Array, bounds: Any) -> list[Check]:
    """Return checks of the residuals (T,) of sequences with the given bounds; an empty list if all are missing."""
    observed = residuals[~np.isnan(residuals)]
    n = len(observed)
    if n == 0:
        return []
    outlying = float(np.mean(np.abs(observed) > FAR))
    pairs = np.ones(len(residuals) - 1, dtype=bool)
    pairs[bounds[1:-1] - 1] = False  # no pairs across a sequence boundary
    before, after = residuals[:-1][pairs], residuals[1:][pairs]
    both = ~np.isnan(before) & ~np.isnan(after)
    levels = correlation(before[both], after[both])
    sizes = correlation(np.abs(before[both]), np.abs(after[both]))
    chance = CHANCE / np.sqrt(n)
    spread, shift = float(observed.std()), largest_shift(observed)
    return [
        Check(
            "residual autocorrelation",
            levels,
            abs(levels) < CORRELATION + chance,
            "at lag 1; large if observations within a state are correlated: state probabilities are then overconfident",
        ),
        Check(
            "volatility clustering",
            sizes,
            abs(sizes) < CORRELATION + chance,
            "lag-1 autocorrelation of absolute residuals; large if the noise within a state varies over time: try more "
            "states, or heavier tails",
        ),
        Check(
            "spread of residuals",
            spread,
            abs(spread - 1) < SPREAD + chance,
            "standard deviation; 1 if states are as wide as the data",
        ),
        Check(
            "outlying residuals",
            outlying,
            outlying * n < FEWEST or outlying < OUTLYING + CHANCE * np.sqrt(6e-5 / n),
            "share beyond 4; large if the tails of the data are heavier than the family's: try StudentT",
        ),
        Check(
            "drift",
            shift,
            shift < DRIFT + chance * np.sqrt(BLOCKS),
            "largest mean over a twentieth of the series; large if levels drift: remove a baseline first",
        ),
        *check_waves(observed),
    ]


def check_waves(residuals: Array) -> list[Check]:
    """Return a check of means over stretches, if there are enough: a season that is missing hardly shows at lag 1.

    Autocorrelated noise takes what it can of a slow wave.  What is left of it is small in neighbouring residuals, but
    has the same sign in many of them.
    """
    found = []
    for span in SPANS:
        count = len(residuals) // span
        if count >= BLOCKS:
            own = float(residuals.var()) / span  # variance of means of independent values
            excess = float(residuals[: count * span].reshape(count, span).mean(1).var(ddof=1)) - own
            found.append((excess - CHANCE * own * np.sqrt(2 / count), max(excess, 0.0) ** 0.5, span))
    if not found:
        return []
    beyond, value, span = max(found)
    message = (
        f"standard deviation of means over {span} steps, beyond that of independent residuals; large if a season, a "
        "trend or an input is missing"
    )
    return [Check("slow waves", value, beyond < WAVES**2, message)]


def correlation(x: Array, y: Array) -> float:
    """Return the correlation of pairs (n,); 0 if there are too few, or if values are constant."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def largest_shift(residuals: Array) -> float:
    """Return the largest absolute mean over consecutive blocks."""
    return float(max((abs(part.mean()) for part in np.array_split(residuals, BLOCKS) if len(part)), default=0.0))
