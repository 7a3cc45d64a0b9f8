"""Posterior predictive checks: would the model have produced a series like this one?

Replicas of the series are simulated from draws of the posterior, with its sequences, gaps and length; what is measured
on the series is measured on each of them.
"""

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.pieces import pieces
from rarehmm.data.series import Series
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.simulation import simulate
from rarehmm.sampling.diagnostics import Check

LONG = 1_000_000  # of a longer series, evenly spaced pieces are looked at
FAR = 4.0  # standard deviations of the replicas


def replicate(rng: np.random.Generator, model: Model, point: Parameters, bounds: IntArray, missing: Array) -> Array:
    """A series (T, D) like one with the given bounds of sequences and missing observations (T, D)."""
    parts = [simulate(rng, model, point, int(n))[0].reshape(int(n), -1) for n in np.diff(bounds)]
    return np.where(missing, np.nan, np.concatenate(parts))


def measured(y: Array, bounds: IntArray, level: float) -> dict[str, float]:
    """What is looked at in a column (T,): moments, extremes, correlation, and the stretches above a level."""
    seen = y[~np.isnan(y)]
    joined = np.ones(len(y) - 1, dtype=bool)
    joined[bounds[1:-1] - 1] = False  # none across a join
    before, after = y[:-1][joined], y[1:][joined]
    both = ~np.isnan(before) & ~np.isnan(after)
    centred = before[both] - seen.mean(), after[both] - seen.mean()
    high = (y > level).astype(np.int8)
    edges = np.diff(high, prepend=0, append=0)
    lengths = np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)
    return {
        "mean": float(seen.mean()),
        "standard deviation": float(seen.std()),
        "smallest": float(seen.min()),
        "largest": float(seen.max()),
        "correlation of neighbours": float((centred[0] * centred[1]).sum() / max((centred[0] ** 2).sum(), 1e-300)),
        "stretches in the highest 1 %": float(len(lengths)),
        "longest of these": float(lengths.max(initial=0)),
    }


def check_predictive(
    rng: np.random.Generator, model: Model, points: list[Parameters], series: Series, count: int = 50
) -> list[Check]:
    """A check for each thing that is measured, in each column that is not all missing: how many standard deviations of
    the replicas it is away from their mean; bad if it is far away and beyond all of them."""
    series = pieces(series, LONG)
    y = series.read(0, len(series))
    missing, bounds = np.isnan(y), series.bounds
    several, there = y.shape[1] > 1, np.flatnonzero(~missing.all(0))
    levels = np.nanquantile(y[:, there], 0.99, axis=0)
    seen = [measured(column, bounds, level) for column, level in zip(y[:, there].T, levels, strict=True)]
    drawn: list[list[dict[str, float]]] = [[] for _ in levels]
    for number in range(count):
        copy = replicate(rng, model, points[number % len(points)], bounds, missing)
        for found, column, level in zip(drawn, copy[:, there].T, levels, strict=True):
            found.append(measured(column, bounds, level))
    checks = []
    for i, mine, theirs in zip(there.tolist(), seen, drawn, strict=True):
        for name, value in mine.items():
            checks.append(compared(name + (f" of column {i}" if several else ""), value, [t[name] for t in theirs]))
    return checks


def compared(name: str, value: float, replicates: list[float]) -> Check:
    low, high, mean = min(replicates), max(replicates), float(np.mean(replicates))
    unit = max(float(np.std(replicates)), 1e-9 * max(abs(mean), abs(value)))
    away = (value - mean) / unit if unit > 0 else 0.0
    good = low <= value <= high or abs(away) < FAR
    message = f"standard deviations away: {value:.4g}, where series of the model have {low:.4g} to {high:.4g}"
    return Check(name, float(away), good, message)
