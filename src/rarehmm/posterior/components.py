"""The parts of a model as curves with posterior draws: levels, seasons and inputs, effects on transitions, visits.

What inputs add is on the scale of linear predictors: that of the observations, or its logarithm for counts and positive
numbers.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln

from rarehmm.common.arrays import Array
from rarehmm.data.inputs import Inputs
from rarehmm.data.seasons import Fourier
from rarehmm.data.series import Series
from rarehmm.data.trends import Curve
from rarehmm.exact.passes import smooth
from rarehmm.model.parameters import Parameters
from rarehmm.posterior.posterior import Posterior

DRAWS, SMOOTHED = 400, 40  # draws of curves, and of those that need a pass over the rows
POINTS = 200  # of a curve
MARGIN = 500  # rows around those that are shown, which tell their states
FARTHEST = math.sqrt(3)  # standard deviations from its mean to which an input that is spread evenly goes


class Curves(NamedTuple):
    """Draws of some curves.

    Attributes
    ----------
    title : str
        What they are.
    x : ndarray, (n,)
        Where their values are: rows, phases of a period, values of an input, lengths.
    values : ndarray, (Z, n, ...)
        Their values in each of Z draws.
    source : Fourier, Curve, str or None
        The season, the trend, or the name of the column that they are about.
    """

    title: str
    x: Array
    values: Array
    source: Fourier | Curve | str | None = None


def parts_of(inputs: Inputs | None) -> list[tuple[str, slice, Fourier | Curve | str]]:
    """Return the title and the columns of each season, trend and column of the user, with what it is."""
    if inputs is None:
        return []
    found: list[tuple[str, int, Fourier | Curve | str]] = []
    for wave in inputs.seasons.waves if inputs.seasons else ():
        found.append((f"season {wave.label}", len(wave.names), wave))
    found += [("trend", len(curve.names), curve) for curve in inputs.trends]
    found += [(name, 1, name) for name in (inputs.chosen.names if inputs.chosen else ())]
    ends = np.cumsum([size for _, size, _ in found]).tolist()
    return [(title, slice(end - size, end), what) for (title, size, what), end in zip(found, ends, strict=True)]


def coefficients_of(points: list[Parameters]) -> Array:
    """Return the coefficients (Z, c) of some draws."""
    return np.array([point.coefficients for point in points])


# ---------------------------------------------------------------- along a series
def components(posterior: Posterior, series: Series, first: int, last: int, column: int = 0) -> list[Curves]:
    """Return the level of the state in each of the rows [first, last), and what each input adds to it.

    Levels, and effects that differ between states, are means over the states in which a row may be.  ``column`` is the
    number of the column of observations.  The sum, with the title "all", comes first.
    """
    model, points = posterior.model.on(series), posterior.points(SMOOTHED)
    effects, i = model.every_effect, predictor_of(posterior, column)
    low, high = max(first - MARGIN, 0), min(last + MARGIN, len(series))
    part, shown = series.part(low, high), slice(first - low, last - low)
    states = np.array([smooth(model, point, part)[shown] for point in points])  # (Z, n, K)
    rows, x, c = series.read_rows(first, last), np.arange(first, last, dtype=float), coefficients_of(points)
    place = int(np.flatnonzero(effects.moves.column == column)[0]) if i is not None else column
    levels = np.array([point.phi[:, place] for point in points])  # (Z, K)
    levels = np.log(levels) if effects.moves.logs[place] else levels
    found = [Curves("level", x, np.einsum("znk,zk->zn", states, levels))]
    shared, own = effects.block("location", c), effects.block("switching", c)
    for inputs, values, weights in ((effects.location, shared, None), (effects.switching, own, states)):
        design = np.empty((0, 0)) if inputs is None else inputs.design(rows)
        for title, columns, what in parts_of(inputs):
            effect = np.einsum("np,zp...->zn...", design[:, columns], values[:, columns, i])
            effect = effect if weights is None else (effect * weights).sum(-1)
            found.append(Curves(title, x, effect, what))
    return [Curves("all", x, np.sum([one.values for one in found], axis=0)), *found]


def predictor_of(posterior: Posterior, column: int) -> int | None:
    """Return the number of the linear predictor of a column; None if it has none."""
    predicted = posterior.model.every_effect.moves.predicted.tolist()
    return predicted.index(column) if column in predicted else None


# ---------------------------------------------------------------- over a period, or the range of an input
def effect_curves(posterior: Posterior, column: int = 0) -> list[Curves]:
    """Return what each season, trend and input adds over its range.

    Values are (Z, n, 1), or (Z, n, K) where the effect differs between states.
    """
    effects, i = posterior.model.every_effect, predictor_of(posterior, column)
    c, found = coefficients_of(posterior.points(DRAWS)), []
    for inputs, block in ((effects.location, "location"), (effects.switching, "switching")):
        for title, columns, what in parts_of(inputs):
            assert inputs is not None
            x, own = range_of(inputs, what)
            values = np.einsum("np,zp...->zn...", own, effects.block(block, c)[:, columns, i])
            found.append(Curves(title, x, values.reshape(*values.shape[:2], -1), what))
    return found


def season_curves(posterior: Posterior, column: int = 0) -> list[Curves]:
    """Return what each season adds over its period, as ``effect_curves`` does."""
    found = [one for one in effect_curves(posterior, column) if isinstance(one.source, Fourier)]
    if not found:
        raise ValueError("the model has no season; fit one with season=, such as season='1D'.")
    return found


# ---------------------------------------------------------------- transitions
def transition_curves(posterior: Posterior) -> list[Curves]:
    """Return transition probabilities (Z, n, K, K) over the range of each input, with all others at their means."""
    model = posterior.model
    inputs = model.transitions.inputs
    if inputs is None:
        raise ValueError("the transitions of this model have no inputs; fit with exog_transition= or transitions=.")
    points, found = posterior.points(DRAWS), []
    slopes = model.every_effect.block("slopes", coefficients_of(points))
    for title, columns, what in parts_of(inputs):
        x, own = range_of(inputs, what)
        z = np.zeros((POINTS, inputs.size))
        z[:, columns] = own
        values = [model.transitions.matrices(p.transition, s, z) for p, s in zip(points, slopes, strict=True)]
        found.append(Curves(title, x, np.array(values), what))
    return found


def range_of(inputs: Inputs, what: Any) -> tuple[Array, Array]:
    """Return values (n,) over the range of a season, a trend or a column, and the standardised columns (n, q) there."""
    if isinstance(what, Fourier):
        x = np.linspace(0, what.period, POINTS)
        return x, what.columns(x)
    spread = np.linspace(-FARTHEST, FARTHEST, POINTS)
    if isinstance(what, Curve):
        x = (
            np.linspace(what.knots[0], what.knots[-1], POINTS)
            if what.knots
            else what.means[0] + what.scales[0] * spread
        )
        return x, what.design(what.origin + what.unit * x)
    assert inputs.chosen is not None
    i = inputs.chosen.names.index(what)
    return inputs.chosen.means[i] + inputs.chosen.scales[i] * spread, spread[:, None]


def visit_lengths(posterior: Posterior, longest: int | None = None) -> Curves:
    r"""Return the distribution of the length of a visit to each state: values (Z, n, K) for lengths 1, ..., n.

    .. math:: P(d) = \binom{d - 1}{r - 1} P_{kk}^{d - r} (1 - P_{kk})^r

    where state k has r phases; with inputs of transitions, if these stayed at their means.
    """
    transition = np.array([point.transition for point in posterior.points(DRAWS)])
    stay = np.clip(np.diagonal(transition, axis1=1, axis2=2), 1e-300, 1 - 1e-15)[:, None]  # (Z, 1, K)
    r = posterior.model.transitions.phases(posterior.model.n_states)
    if longest is None:
        longest = int(np.clip(4 * np.median(posterior.sojourn.max(-1)), 10, 10_000))
    d = np.unique(np.geomspace(1, longest, POINTS).astype(int))[:, None]  # (n, 1)
    with np.errstate(divide="ignore"):
        ways = gammaln(d) - gammaln(r) - gammaln(np.maximum(d - r + 1, 1))
        values = np.exp(ways + np.maximum(d - r, 0) * np.log(stay) + r * np.log1p(-stay))
    return Curves("length of a visit", d[:, 0], np.where(d >= r, values, 0.0))
