"""Log densities of the rows of a series in each state, and the pieces that exact inference is built from."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rarehmm.common.arrays import Array, BoolArray
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import Family, columns, constant, has, observed_rows, prepare, score, statistics
from rarehmm.engine.dispatch import explained
from rarehmm.engine.kernels.messages import Point
from rarehmm.engine.kernels.sequential import (
    log_densities,
    scratch,
)
from rarehmm.exact import blocks
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters


def prepared(model: Model, parameters: Parameters) -> Point:
    """Check parameters against the model, and add the constants that the family prepares from them for kernels."""
    phi, transition, start, _ = model.check_parameters(parameters)
    c = np.array([prepare(model.family, row) for row in phi], dtype=float).reshape(len(phi), -1)  # (K, C)
    return Point(phi, c, transition, start)


def densities(model: Model, point: Point, y: Array) -> Array:
    """Log densities (n, K) of the rows y (n, D) in each state, without the family's ``constant``."""
    out = np.empty((len(y), model.n_states))
    with explained(model.name):
        log_densities(model.family, point, y, *scratch(y.shape[1]), out)
    return out


def row_ranges(series: Series) -> list[tuple[int, int]]:
    """Ranges [low, high) of rows to process one after the other."""
    return ranges_between(0, len(series))


def ranges_between(first: int, last: int, size: int = blocks.CHUNK) -> list[tuple[int, int]]:
    """Ranges [low, high) of at most ``size`` rows into which to split the rows [first, last)."""
    return [(low, min(last, low + size)) for low in range(first, last, size)]


def add_expected(
    family: Family, point: Point, y: Array, gamma: Array, scores: Array, counts: Array, parts: Array
) -> None:
    """Add expected scores (K, P), counts (K,) and statistics (K, Q) of rows y, weighted by gamma (n, K)."""
    seen = observed_rows(family, y)
    value = y[seen, 0] if columns(family) == 1 else tuple(y[seen].T)
    counts += gamma[seen].sum(0)
    for k, c in enumerate(point.c):
        for total, found in ((scores, score(family, value, tuple(c))), (parts, statistics(family, value, tuple(c)))):
            for i, part in enumerate(found):
                total[k, i] += gamma[seen, k] @ np.broadcast_to(part, seen.sum())


def sequence_starts(series: Series, low: int, high: int) -> BoolArray:
    """Mask of the rows in [low, high) at which a sequence begins."""
    out = np.zeros(high - low, dtype=bool)
    first = series.bounds[:-1]
    out[first[(first >= low) & (first < high)] - low] = True
    return out


def constant_total(model: Model, series: Observations) -> float:
    """Sum of the terms that the family's ``log_density`` leaves out, cached by the series."""
    if not has(model.family, "constant"):
        return 0.0
    series = rows_in(series)
    if model.n_lags > 0:
        key = (type(model.family), model.family, model.autoregression)
        return series.remember(key, lambda: sum(float(found.sum()) for _, found in constants(model, series)))
    return series.remember(
        (type(model.family), model.family), lambda: float(np.sum(series.map(Constants(model.family))))
    )


@dataclass(frozen=True)
class Constants:
    """Sum, over a range of rows, of the terms that the family's ``log_density`` leaves out."""

    family: Family

    def __call__(self, rows: Array) -> float:
        return float(constant(self.family, rows).sum())


def add_constants(model: Model, series: Series, predictive: Array) -> None:
    """Add the terms that the family's ``log_density`` leaves out to predictive log densities (T,)."""
    if has(model.family, "constant"):
        for first, found in constants(model, series):
            predictive[first : first + len(found)] += found


def constants(model: Model, series: Series) -> Iterator[tuple[int, Array]]:
    """Iterate over stretches of rows: number of the first row, and what ``log_density`` leaves out of each row."""
    for first, y in series.strides():
        counted = y if model.n_lags == 0 else with_lags(model, series, first, first + len(y))
        yield first, constant(model.family, counted)


def with_lags(model: Model, series: Series, first: int, last: int) -> Array:
    """Rows [first, last) with observations missing that do not count since they lack lags."""
    effects, p, n = model.every_effect, model.n_lags, last - first
    low, rows = max(first - p, 0), np.arange(first, last)
    y = series.read(low, last)
    begin = series.bounds[np.searchsorted(series.bounds, rows, side="right") - 1]
    counts = np.broadcast_to((rows - begin >= p)[:, None], (n, y.shape[1]))
    if not effects.fills_gaps:
        seen = np.concatenate([np.zeros((p + 1 - (first - low), y.shape[1])), np.cumsum(~np.isnan(y), axis=0)])
        counts = counts & (seen[p:-1] - seen[:n] == p)
    elif not effects.conditional:
        counts = np.full(counts.shape, True)
    predicted = np.isin(np.arange(y.shape[1]), effects.moves.predicted)
    return np.where(counts | ~predicted, y[first - low :], np.nan)
