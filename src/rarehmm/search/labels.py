"""Labels of observations by k-means, and parameters estimated from labels as if they were the true states."""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import scipy

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import Prior, columns, has, log_density, prepare, score
from rarehmm.exact.em import descend
from rarehmm.exact.passes import decode
from rarehmm.model.checks import check_labels
from rarehmm.model.learnable import check_spreads
from rarehmm.model.model import Model
from rarehmm.model.named_priors import no_priors
from rarehmm.model.parameters import Parameters
from rarehmm.model.priors import Flat, Normal, bare

BINS = 1000  # one-dimensional k-means works on a histogram if there are more distinct values
STARTS = 8  # random starts of k-means in several columns
SOME = 2000  # observations used to estimate the parameters of a state by L-BFGS


# ---------------------------------------------------------------- k-means
def kmeans_centres(y: Array, K: int, what: str = "values") -> Array:
    """Ascending centres (K,) of the optimal k-means clustering of numbers y (n,), by dynamic programming.

    Exact for up to 1000 distinct values.  For more, the optimum for a histogram is refined by Lloyd's algorithm.
    """
    values, counts = np.unique(y, return_counts=True)
    if len(values) < K:
        raise ValueError(f"y has {len(values)} different {what}, too few for {K} states; use fewer states.")
    if len(values) > BINS:
        edges = np.linspace(values[0], values[-1], BINS + 1)
        bins = np.minimum(np.searchsorted(edges, y, side="right") - 1, BINS - 1)
        counts = np.bincount(bins, minlength=BINS)
        totals = np.bincount(bins, weights=y, minlength=BINS)
        values, counts = totals[counts > 0] / counts[counts > 0], counts[counts > 0]
    centres = best_partition(values, counts, K)
    if len(y) > counts.size:
        for _ in range(50):
            labels = nearest(y, centres)
            n = np.bincount(labels, minlength=K)
            new = np.bincount(labels, weights=y, minlength=K) / np.maximum(n, 1)
            if (n == 0).any() or np.array_equal(new, centres):
                break
            centres = new
    return centres


def best_partition(values: Array, counts: IntArray, K: int) -> Array:
    """Means of the partition of sorted values into K runs with the smallest within-run sum of squares."""
    n = len(values)
    shifted = values - values.mean()
    weight, first, second = (np.concatenate([[0.0], np.cumsum(counts * shifted**p)]) for p in (0, 1, 2))

    def cost(low: Any, high: Any) -> Any:  # of the run [low, high)
        w = np.maximum(weight[high] - weight[low], 1e-300)
        return second[high] - second[low] - (first[high] - first[low]) ** 2 / w

    every = np.arange(n + 1)
    best, cuts = cost(0, every), []
    best[0] = np.inf  # no run is empty
    if K > 2:
        low, high = every[:, None], every[None, :]
        table = np.where(low < high, cost(np.minimum(low, high), high), np.inf)  # (n + 1, n + 1)
    for _ in range(K - 2):
        total = best[:, None] + table
        cuts.append(total.argmin(0))
        best = total.min(0)
    bounds = [n]
    if K > 1:  # the last run ends at n
        bounds.append(int(np.argmin(best[:n] + cost(every[:n], n))))
    for cut in reversed(cuts):
        bounds.append(int(cut[bounds[-1]]))
    runs = pairwise([0, *reversed(bounds)])
    return np.array([np.average(values[a:b], weights=counts[a:b]) for a, b in runs])


def nearest(y: Array, centres: Array) -> IntArray:
    """Index of the centre closest to each number, for ascending centres."""
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, y)


def clusters(y: Array, K: int, sample: int | None = None, what: str = "values") -> IntArray:
    """Cluster (n,) of each row of y (n, D) by k-means.

    With one column the clustering is optimal and clusters are in ascending order.  With several columns it is the best
    of a few random starts, after dividing each column by its standard deviation.  If ``sample`` is given, centres come
    from about that many evenly spaced rows.  ``what`` names the rows in an error message.
    """
    if y.shape[1] == 1:
        return nearest(y[:, 0], kmeans_centres(evenly_spaced(y[:, 0], sample), K, what))
    spread = y.std(0)
    scaled = y / np.where(spread > 0, spread, 1.0)
    some, rng = evenly_spaced(scaled, sample), np.random.default_rng(0)
    if (different := len(np.unique(some, axis=0))) < K:
        raise ValueError(f"y has {different} different {what}, too few for {K} states; use fewer states.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty cluster; another start does better
        tries = [scipy.cluster.vq.kmeans2(some, K, minit="++", rng=rng)[0] for _ in range(STARTS)]
    centres = min(tries, key=lambda c: float((scipy.cluster.vq.vq(some, c)[1] ** 2).sum()))
    return np.asarray(scipy.cluster.vq.vq(scaled, centres)[0], dtype=np.int64)


def evenly_spaced(values: Array, sample: int | None) -> Array:
    """About ``sample`` evenly spaced values, or all of them if it is None."""
    return values if sample is None else values[:: max(1, len(values) // sample)]


def all_rows(series: Series) -> tuple[Array, BoolArray]:
    """All observations (T, D), and which rows (T,) have at least one observed value.

    In rows that are partly observed, missing values are replaced by column medians: labels are only starting values.
    """
    y = np.concatenate([rows for _, rows in series.strides()])
    seen = ~np.isnan(y).all(1)
    if np.isnan(y[seen]).any():
        y[np.ix_(seen, np.isnan(y[seen]).all(0))] = 1.0  # a column that is never observed; every family accepts 1
        y[seen] = np.where(np.isnan(y[seen]), np.nanquantile(y[seen], 0.5, axis=0, method="nearest"), y[seen])
    return y, seen


def kmeans_labels(series: Series, K: int, sample: int | None = None) -> IntArray:
    """Labels (T,) by k-means; a missing observation gets the label of the one before it.

    With one column, labels are in ascending order of the centres.
    """
    y, seen = all_rows(series)
    labels = np.zeros(len(y), dtype=np.int64)
    labels[seen] = clusters(y[seen], K, sample)
    return fill_forward(labels, seen)


def fill_forward(labels: IntArray, seen: Any) -> IntArray:
    """Fill gaps with the label of the last row with ``seen``, or of the first such row at the beginning."""
    last = np.maximum.accumulate(np.where(seen, np.arange(len(labels)), -1))
    return labels[np.where(last >= 0, last, int(np.argmax(seen)))]


def segmental_labels(model: Model, series: Series, labels: IntArray, steps: int = 20) -> IntArray:
    """Refine labels (T,) by segmental k-means (Juang and Rabiner 1990).

    Estimation from labels alternates with Viterbi decoding until the labels no longer change.
    """
    free = Model(model.family, model.n_states, no_priors(model.family))
    for _ in range(steps):
        new, _ = decode(free, from_labels(free, series, labels), series)
        if np.array_equal(new, labels) or len(np.unique(new)) < model.n_states:
            break
        labels = new
    return labels


# ---------------------------------------------------------------- estimates from labels
def from_labels(model: Model, series: Series, labels: IntArray) -> Parameters:
    """Estimate parameters as if labels (T,) were the states: the family's estimates, and transition frequencies."""
    check_spreads(series)
    K, family = model.n_states, model.family
    x = check_labels(labels, len(series), K)
    y, seen = all_rows(series)
    phi = np.empty((K, len(family.parameters)))
    for k in range(K):
        mine = y[seen & (x == k)]
        if len(mine) == 0:
            raise ValueError(f"no observation has label {k}; each of the {K} states needs at least one.")
        phi[k] = estimate_state(model, mine)
    positive = np.array([p.support == "positive" for p in family.parameters])
    phi = np.where(positive, np.maximum(phi, 1e-9 * estimate_state(model, y[seen])), phi)
    phi = np.where(positive & ~(phi > 0), 1.0, phi)  # a constant column
    pairs = np.zeros((K, K)) + 1e-3  # a transition that was never seen is not impossible
    inside = np.ones(len(x), dtype=bool)
    inside[series.bounds[:-1]] = False
    np.add.at(pairs, (x[:-1][inside[1:]], x[1:][inside[1:]]), 1.0)
    return model.natural(phi, pairs / pairs.sum(1, keepdims=True))


def estimate_state(model: Model, rows: Array) -> Array:
    """Estimate the parameters (P,) of one state from its observations (n, D).

    This is the family's own estimate if it has one, and otherwise the posterior mode.
    """
    family: Any = model.family
    if has(family, "estimate"):
        return np.asarray(family.estimate(rows[:, 0] if columns(family) == 1 else rows, np.ones(len(rows))))
    some = rows[:: -(-len(rows) // SOME)]
    y: Any = some[:, 0] if columns(family) == 1 else tuple(some.T)
    logs = np.array([p.support == "positive" for p in family.parameters])

    def down(x: Array) -> tuple[float, Array]:
        with np.errstate(all="ignore"):
            phi = np.where(logs, np.exp(np.where(logs, x, 0.0)), x)
            c = prepare(family, phi)
            value = float(np.sum(log_density(family, y, c)))
            slope = np.array([np.sum(s + np.zeros(len(some))) for s in score(family, y, c)])
            for i, prior in enumerate(map(bare, model.priors.emission)):
                if not isinstance(prior, Flat):  # a flat prior is uniform in sampling coordinates
                    at = phi[i : i + 1]
                    value += float(prior.log_density(at)[0]) + logs[i] * x[i]
                    slope[i] += prior.slope(at)[0] + logs[i] / at[0]
            slope = np.where(logs, slope * phi, slope)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            raise ValueError(f"the log density of {type(family).__name__} is not finite at {phi}.")
        return -value, -slope

    begin = np.array([prior_mode(prior, log) for prior, log in zip(model.priors.emission, logs, strict=True)])
    x = descend(down, begin, 1000).x
    return np.where(logs, np.exp(np.where(logs, x, 0.0)), x)


def prior_mode(prior: Prior, log: bool) -> float:
    """Mode of a prior density, in the logarithm of the parameter if ``log``; 0 for a flat prior."""
    prior = bare(prior)
    if isinstance(prior, Normal) and not log:
        return prior.mean
    u = np.linspace(-40.0, 40.0, 4001) if log else np.sinh(np.linspace(-20.0, 20.0, 4001))
    value = prior.log_density(np.exp(u)) + u if log else prior.log_density(u)
    return 0.0 if isinstance(prior, Flat) else float(u[np.argmax(value)])
