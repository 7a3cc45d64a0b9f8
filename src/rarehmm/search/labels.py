"""Labels of observations by k-means, and what follows if labels are taken for the truth."""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.cluster.vq import kmeans2, vq

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import Prior, columns, log_density, prepare, score
from rarehmm.exact.em import descend
from rarehmm.exact.passes import decode
from rarehmm.model.checks import check_labels
from rarehmm.model.learnable import check_spreads
from rarehmm.model.model import Model
from rarehmm.model.named_priors import no_priors
from rarehmm.model.parameters import Parameters
from rarehmm.model.priors import Flat, Normal, bare

BINS = 1000  # values beyond which one-dimensional k-means works on a histogram first
STARTS = 8  # of k-means in several columns
SOME = 2000  # observations from which the parameters of a state are estimated by steps


# ---------------------------------------------------------------- k-means
def kmeans_centres(y: Array, K: int, what: str = "values") -> Array:
    """Centres (K,), ascending, of the best k-means clustering of numbers y (n,), by dynamic programming.

    Exact for up to 1000 distinct values; beyond, exact on a histogram and then refined on all values (Lloyd).
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
    """Means of the K runs of sorted values that minimise the sum of squares within runs."""
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
    """The closest of ascending centres to each number."""
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, y)


def clusters(y: Array, K: int, sample: int | None = None, what: str = "values") -> IntArray:
    """Cluster (n,) of each row of y (n, D) by k-means; in one column ascending, and the best there is.

    In several columns the best of a few starts, with columns divided by their standard deviations.  Of more rows, an
    evenly spaced ``sample`` of about so many is clustered, if given.  ``what``: what rows are, for an error.
    """
    if y.shape[1] == 1:
        return nearest(y[:, 0], kmeans_centres(spaced(y[:, 0], sample), K, what))
    spread = y.std(0)
    scaled = y / np.where(spread > 0, spread, 1.0)
    some, rng = spaced(scaled, sample), np.random.default_rng(0)
    if (different := len(np.unique(some, axis=0))) < K:
        raise ValueError(f"y has {different} different {what}, too few for {K} states; use fewer states.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty cluster: another start does better
        tries = [kmeans2(some, K, minit="++", rng=rng)[0] for _ in range(STARTS)]
    centres = min(tries, key=lambda c: float((vq(some, c)[1] ** 2).sum()))
    return np.asarray(vq(scaled, centres)[0], dtype=np.int64)


def spaced(values: Array, sample: int | None) -> Array:
    """About so many of the values, evenly spaced; all of them if None."""
    return values if sample is None else values[:: max(1, len(values) // sample)]


def all_rows(series: Series) -> tuple[Array, BoolArray]:
    """All observations (T, D), and which of them are there (T,); where only some columns are, the others' medians are
    put in: labels are a start, no more."""
    y = np.concatenate([rows for _, rows in series.strides()])
    seen = ~np.isnan(y).all(1)
    if np.isnan(y[seen]).any():
        y[np.ix_(seen, np.isnan(y[seen]).all(0))] = 1.0  # one that is never there; a value that every family takes
        y[seen] = np.where(np.isnan(y[seen]), np.nanquantile(y[seen], 0.5, axis=0, method="nearest"), y[seen])
    return y, seen


def kmeans_labels(series: Series, K: int, sample: int | None = None) -> IntArray:
    """Labels (T,) by k-means, in one column 0 for the smallest centre; a missing observation has the label of the one
    before."""
    y, seen = all_rows(series)
    labels = np.zeros(len(y), dtype=np.int64)
    labels[seen] = clusters(y[seen], K, sample)
    return carried(labels, seen)


def carried(labels: IntArray, seen: Any) -> IntArray:
    """Labels where nothing was seen are taken from the last time something was (the first, at the beginning)."""
    last = np.maximum.accumulate(np.where(seen, np.arange(len(labels)), -1))
    return labels[np.where(last >= 0, last, int(np.argmax(seen)))]


def segmental_labels(model: Model, series: Series, labels: IntArray, steps: int = 20) -> IntArray:
    """Segmental k-means (Juang and Rabiner 1990): estimate from labels, decode, until labels stay."""
    free = Model(model.family, model.n_states, no_priors(model.family))
    for _ in range(steps):
        new, _ = decode(free, from_labels(free, series, labels), series)
        if np.array_equal(new, labels) or len(np.unique(new)) < model.n_states:
            break
        labels = new
    return labels


# ---------------------------------------------------------------- labels taken for the truth
def from_labels(model: Model, series: Series, labels: IntArray) -> Parameters:
    """Parameters as if labels (T,) were the states: the family's estimates, and ratios of counted transitions."""
    check_spreads(series)
    K, family = model.n_states, model.family
    x = check_labels(labels, len(series), K)
    y, seen = all_rows(series)
    phi = np.empty((K, len(family.parameters)))
    for k in range(K):
        mine = y[seen & (x == k)]
        if len(mine) == 0:
            raise ValueError(f"no observation has the label {k}; each of the {K} states needs some.")
        phi[k] = estimated(model, mine)
    positive = np.array([p.support == "positive" for p in family.parameters])
    phi = np.where(positive, np.maximum(phi, 1e-9 * estimated(model, y[seen])), phi)
    phi = np.where(positive & ~(phi > 0), 1.0, phi)  # of a column that never changes
    pairs = np.zeros((K, K)) + 1e-3  # never seen is not impossible
    inside = np.ones(len(x), dtype=bool)
    inside[series.bounds[:-1]] = False
    np.add.at(pairs, (x[:-1][inside[1:]], x[1:][inside[1:]]), 1.0)
    return model.natural(phi, pairs / pairs.sum(1, keepdims=True))


def estimated(model: Model, rows: Array) -> Array:
    """Parameters (P,) of one state from its observations (n, D): by the family's rule, or the mode under the priors."""
    family: Any = model.family
    if hasattr(family, "estimate"):
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
                if not isinstance(prior, Flat):  # which is uniform in what is sampled
                    at = phi[i : i + 1]
                    value += float(prior.log_density(at)[0]) + logs[i] * x[i]
                    slope[i] += prior.slope(at)[0] + logs[i] / at[0]
            slope = np.where(logs, slope * phi, slope)
        if not (np.isfinite(value) and np.isfinite(slope).all()):
            raise ValueError(f"the log density of {type(family).__name__} is not finite at {phi}")
        return -value, -slope

    begin = np.array([centre(prior, log) for prior, log in zip(model.priors.emission, logs, strict=True)])
    x = descend(down, begin, 1000).x
    return np.where(logs, np.exp(np.where(logs, x, 0.0)), x)


def centre(prior: Prior, log: bool) -> float:
    """Where a prior is highest, of the logarithm if that is what is sampled; 0 if it is flat."""
    prior = bare(prior)
    if isinstance(prior, Normal) and not log:
        return prior.mean
    u = np.linspace(-40.0, 40.0, 4001) if log else np.sinh(np.linspace(-20.0, 20.0, 4001))
    value = prior.log_density(np.exp(u)) + u if log else prior.log_density(u)
    return 0.0 if isinstance(prior, Flat) else float(u[np.argmax(value)])
