"""Posterior predictive checks: would the model have produced a series like this one?

Replicated series, with the same sequences, inputs, gaps and length, are simulated from draws of the posterior; test
statistics of the data are compared with those of the replicates.  Where a model takes the first rows of a sequence as
given, replicates begin with those of the data.
"""

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.series import Series
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.simulation import simulate_sequences
from rarehmm.sampling.diagnostics import Check

REPLICATES = 50
FAR = 4.0  # standard deviations of the replicates; a misfit is larger than this and than the sizes below
LEVEL = 0.1  # difference of means, in standard deviations of the data
WIDTH = 0.05  # difference of standard deviations, relative to that of the data
EXTREME = 0.5  # difference of minima or maxima, in standard deviations of the data
CORRELATION = 0.05  # difference of autocorrelations
EXCURSIONS = 0.2  # difference of the number or the length of excursions, relative to the data


def replicate(rng: np.random.Generator, model: Model, point: Parameters, series: Series, missing: BoolArray) -> Array:
    """Simulate observations (T, D) with the sequences and inputs of a series, and its mask of missing values (T, D)."""
    return np.where(missing, np.nan, simulate_sequences(rng, model, point, series))


def statistics_of(y: Array, bounds: IntArray, level: float) -> dict[str, float]:
    """Return the test statistics of a column (T,): moments, extremes, autocorrelation, excursions above a level."""
    observed = y[~np.isnan(y)]
    joined = np.ones(len(y) - 1, dtype=bool)
    joined[bounds[1:-1] - 1] = False  # no pairs across a sequence boundary
    before, after = y[:-1][joined], y[1:][joined]
    both = ~np.isnan(before) & ~np.isnan(after)
    centred = before[both] - observed.mean(), after[both] - observed.mean()
    high = (y > level).astype(np.int8)
    edges = np.diff(high, prepend=0, append=0)
    lengths = np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)
    return {
        "mean": float(observed.mean()),
        "standard deviation": float(observed.std()),
        "minimum": float(observed.min()),
        "maximum": float(observed.max()),
        "lag-1 autocorrelation": float((centred[0] * centred[1]).sum() / max((centred[0] ** 2).sum(), 1e-300)),
        "excursions into the top 1 %": float(len(lengths)),
        "longest such excursion": float(lengths.max(initial=0)),
    }


def check_predictive(
    rng: np.random.Generator,
    model: Model,
    points: list[Parameters],
    series: Series,
    count: int = REPLICATES,
    *,
    on_progress: OnProgress = silent,
) -> list[Check]:
    """Return a check for each test statistic of each column that is not missing throughout.

    The value of a check is the distance of the data from the mean of ``count`` replicates, in standard deviations of
    the replicates; it fails if the data lie far away, outside the range of all replicates, and if the difference is
    not negligible: in a long series the replicates differ so little that every difference is many of these.
    """
    y = series.read(0, len(series))
    missing, bounds = np.isnan(y), series.bounds
    columns = np.flatnonzero(~missing.all(0))
    levels = np.nanquantile(y[:, columns], 0.99, axis=0)
    observed = [statistics_of(column, bounds, level) for column, level in zip(y[:, columns].T, levels, strict=True)]
    replicated: list[list[dict[str, float]]] = [[] for _ in levels]
    for number in range(count):
        on_progress("checking the model", number, count)
        copy = replicate(rng, model, points[number % len(points)], series, missing)
        for statistics, column, level in zip(replicated, copy[:, columns].T, levels, strict=True):
            statistics.append(statistics_of(column, bounds, level))
    checks = []
    for i, data, replicates in zip(columns.tolist(), observed, replicated, strict=True):
        where = f" of column {i}" if y.shape[1] > 1 else ""
        limits = negligible(data)
        for name, value in data.items():
            checks.append(compare(name + where, value, [statistics[name] for statistics in replicates], limits[name]))
    return checks


def negligible(statistics: dict[str, float]) -> dict[str, float]:
    """Return how far a replicate may be from each statistic of the data without its mattering."""
    unit = statistics["standard deviation"]
    return {
        "mean": LEVEL * unit,
        "standard deviation": WIDTH * unit,
        "minimum": EXTREME * unit,
        "maximum": EXTREME * unit,
        "lag-1 autocorrelation": CORRELATION,
        "excursions into the top 1 %": EXCURSIONS * statistics["excursions into the top 1 %"],
        "longest such excursion": EXCURSIONS * statistics["longest such excursion"],
    }


def compare(name: str, value: float, replicates: list[float], limit: float) -> Check:
    """Return the check of one statistic of the data against those of the replicates; ``limit`` is negligible."""
    low, high, mean = min(replicates), max(replicates), float(np.mean(replicates))
    unit = max(float(np.std(replicates)), 1e-9 * max(abs(mean), abs(value)))
    distance = (value - mean) / unit if unit > 0 else 0.0
    passed = low <= value <= high or abs(distance) < FAR or abs(value - mean) <= limit
    message = (
        f"standard deviations from the replicates: {value:.4g} in the data, {low:.4g} to {high:.4g} in series "
        "simulated from the model"
    )
    return Check(name, float(distance), passed, message)
