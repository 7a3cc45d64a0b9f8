"""First states: labels of observations by k-means, and what follows if labels are taken for the truth."""

import contextlib
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.ndimage import uniform_filter1d
from scipy.optimize import linear_sum_assignment

from rarehmm.em import Climb, climb
from rarehmm.emissions import columns, prepare, score
from rarehmm.gradients import WindowSums
from rarehmm.model import Model, Parameters, check_labels, no_priors
from rarehmm.passes import decode, expectations, predictive_log_density
from rarehmm.series import Array, IntArray, Series
from rarehmm.transitions import AdditiveLogRatio
from rarehmm.windows import Windows

BINS = 2000  # values beyond which one-dimensional k-means works on a histogram first


# ---------------------------------------------------------------- k-means
def kmeans_centres(y: Array, K: int) -> Array:
    """Centres (K,), ascending, of the best k-means clustering of numbers y (n,), by dynamic programming.

    Exact for up to 2000 distinct values; beyond, exact on a histogram and then refined on all values (Lloyd).
    """
    values, counts = np.unique(y, return_counts=True)
    if len(values) < K:
        raise ValueError(f"y has {len(values)} different values and {K} clusters are asked for; use fewer.")
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

    best, cuts = cost(0, np.arange(n + 1)), []
    best[0] = np.inf  # no run is empty
    low, high = np.arange(n + 1)[:, None], np.arange(n + 1)[None, :]
    table = np.where(low < high, cost(np.minimum(low, high), high), np.inf)  # (n + 1, n + 1)
    for _ in range(K - 1):
        total = best[:, None] + table
        cuts.append(total.argmin(0))
        best = total.min(0)
    bounds = [n]
    for cut in reversed(cuts):
        bounds.append(int(cut[bounds[-1]]))
    runs = pairwise([0, *reversed(bounds)])
    return np.array([np.average(values[a:b], weights=counts[a:b]) for a, b in runs])


def nearest(y: Array, centres: Array) -> IntArray:
    """The closest of ascending centres to each number."""
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, y)


def kmeans_labels(series: Series, K: int, sample: int | None = None) -> IntArray:
    """Labels (T,) by k-means, 0 for the smallest centre; a missing observation has the label of the one before.

    Of a longer series, an evenly spaced ``sample`` of about so many observations is clustered, if given.
    """
    if series.n_columns > 1:
        raise ValueError(f"y has {series.n_columns} columns; these labels are for one column. Give labels of your own.")
    y = np.concatenate([rows[:, 0] for _, rows in series.strides()])
    seen = ~np.isnan(y)
    centres = kmeans_centres(spaced(y[seen], sample), K)
    labels = np.zeros(len(y), dtype=np.int64)
    labels[seen] = nearest(y[seen], centres)
    return carried(labels, seen)


def spaced(values: Array, sample: int | None) -> Array:
    """About so many of the values, evenly spaced; all of them if None."""
    return values if sample is None else values[:: max(1, len(values) // sample)]


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
    K, family = model.n_states, model.family
    x = check_labels(labels, len(series), K)
    if not hasattr(family, "estimate"):
        raise TypeError(f"{model.name} has no 'estimate': give parameters to start from instead of labels.")
    y = np.concatenate([rows for _, rows in series.strides()])
    seen = ~np.isnan(y).any(1)
    phi = np.empty((K, len(family.parameters)))
    for k in range(K):
        mine = y[seen & (x == k)]
        if len(mine) == 0:
            raise ValueError(f"no observation has the label {k}; each of the {K} states needs some.")
        phi[k] = family.estimate(mine[:, 0] if columns(family) == 1 else mine, np.ones(len(mine)))
    floor = np.array([1e-6 * series.summaries[p.column].variance for p in family.parameters])
    positive = np.array([p.support == "positive" for p in family.parameters])
    phi = np.where(positive & (phi <= 0), np.maximum(floor, 1e-300), phi)
    pairs = np.zeros((K, K)) + 1e-3  # never seen is not impossible
    inside = np.ones(len(x), dtype=bool)
    inside[series.bounds[:-1]] = False
    np.add.at(pairs, (x[:-1][inside[1:]], x[1:][inside[1:]]), 1.0)
    return model.natural(phi, pairs / pairs.sum(1, keepdims=True))


def label_sums(model: Model, parameters: Parameters, series: Series, windows: Windows, labels: IntArray) -> WindowSums:
    """Scores, transitions and counts of each window as if labels (T,) were the states, at given parameters."""
    K, P, N = model.n_states, len(model.family.parameters), windows.count
    x, window = check_labels(labels, len(series), K), windows.of_each()
    y = np.concatenate([rows for _, rows in series.strides()])
    seen = ~np.isnan(y).any(1)
    scores, counts = np.zeros((N, K, P)), np.zeros((N, K))
    for k in range(K):
        mine = seen & (x == k)
        value = y[mine, 0] if columns(model.family) == 1 else tuple(y[mine].T)
        slopes = score(model.family, value, prepare(model.family, parameters.phi[k]))
        counts[:, k] = np.bincount(window[mine], minlength=N)
        for i in range(P):
            scores[:, k, i] = np.bincount(window[mine], weights=np.broadcast_to(slopes[i], mine.sum()), minlength=N)
    inside = np.ones(len(x), dtype=bool)
    inside[series.bounds[:-1]] = False
    pair = (window[1:] * K + x[:-1]) * K + x[1:]
    pairs = np.bincount(pair[inside[1:]], minlength=N * K * K).reshape(N, K, K).astype(float)
    first = np.zeros((N, K))
    begin = series.bounds[:-1]
    first[window[begin], x[begin]] = 1.0
    return WindowSums(scores, pairs, counts, first, np.zeros((N, K, 0)))


# ---------------------------------------------------------------- finding states
SAMPLE = 100_000  # observations that are clustered for a first guess
SHARES = (3e-2, 3e-3, 3e-4, 5e-5)  # of the observations, the most surprising ones, that may be a rare state


def find_states(model: Model, series: Series, *, threads: int | None = None) -> list[Climb]:
    """Parameters to start from, out of the data alone: the best first, then the runner-up.

    Surprise seeding: K - 1 states are fitted, each observation is scored by its one-step predictive density under that
    fit, and the last state is put on the most surprising ones, whatever their share.  Each such start, K clusters of
    values and of roughness, and the best way of splitting one of the K - 1 states climb a few EM steps; the one with
    the largest log posterior, and the next that differs, climb on.
    """
    if series.n_columns > 1 or not hasattr(model.family, "estimate"):
        raise ValueError(
            f"states of {model.name} are not found in the data: this needs one column and a family with 'estimate'. "
            "Give parameters to start from: start=model.parameters(...)."
        )
    K, asked = model.n_states, model
    if not model.exchangeable:
        model = replace(model, start=None)

    def climbed(start: Parameters, steps: int, of: Model = model, on: Series = series) -> Climb:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a state that collapses has a poor log posterior to show
            return climb(of, on, start, steps=steps, tolerance=1e-3, threads=threads)

    found = [climbed(from_labels(model, series, kmeans_labels(series, K, SAMPLE)), 16)]
    if K > 1:
        with contextlib.suppress(ValueError):  # too few different values for it
            found.append(climbed(from_labels(model, series, roughness_labels(series, K)), 16))
        fewer = replace(model, n_states=K - 1, start=None, coordinates=AdditiveLogRatio())
        fit = climbed(from_labels(fewer, series, kmeans_labels(series, K - 1, SAMPLE)), 10, fewer).parameters
        for seeds in surprising(fewer, fit, series, threads):
            found.append(climbed(with_state(model, fit, seeds, len(series)), 6))
        part = pieces(series, SAMPLE)
        starts = [from_labels(model, part, labels) for labels in splits(fewer, fit, part)]
        if starts:
            best = max((climbed(start, 16, on=part) for start in starts), key=lambda c: c.log_posterior)
            found.append(best if part is series else climbed(best.parameters, 6))
    found.sort(key=lambda c: -c.log_posterior)
    second = found[1:2]
    for c in found[1:]:  # one that is elsewhere and nearly as high tells more than one on the same way
        if found[0].log_posterior - c.log_posterior < 100 and distance(found[0].parameters, c.parameters)[0] > 0.3:
            second = [c]
            break
    best_two = [found[0].parameters, *(c.parameters for c in second)]
    if asked is not model:
        best_two = [by_first_states(asked, p, series, threads) for p in best_two]
    longer = [climbed(p, 30, asked) for p in best_two]
    return sorted(longer, key=lambda c: -c.log_posterior)


def by_first_states(model: Model, fit: Parameters, series: Series, threads: int | None) -> Parameters:
    """A fit with its states renamed so that the first ones of sequences suit the start that the model is given."""
    first = expectations(replace(model, start=None), fit, series, threads=threads).first
    start = np.maximum(np.asarray(model.start, dtype=float), 1e-9)
    order = linear_sum_assignment(-np.log(start)[:, None] * first)[1]  # state k was order[k]
    return model.natural(fit.phi[order], fit.transition[np.ix_(order, order)])


def pieces(series: Series, size: int, count: int = 10) -> Series:
    """A few evenly spaced pieces of a long series, of about ``size`` observations together; a short one as it is."""
    length = size // count
    if len(series) <= 2 * size:
        return series
    first = np.linspace(0, len(series) - length, count).astype(int)
    ends = [np.append(series.bounds[(series.bounds > low) & (series.bounds < low + length)], low + length)
            for low in first]  # fmt: skip
    lengths = np.concatenate([np.diff(end, prepend=low) for low, end in zip(first, ends, strict=True)])
    return Series(np.concatenate([series.read(low, low + length) for low in first]), lengths)


def splits(model: Model, fit: Parameters, series: Series) -> list[IntArray]:
    """Labels (T,) of one state more than a fit has: each state split by the values of its observations, and by whether
    it was in the same state just before."""
    labels, _ = decode(model, fit, series)
    y = np.concatenate([rows[:, 0] for _, rows in series.strides()])
    stays = np.concatenate([[False], labels[1:] == labels[:-1]])
    found = []
    for k in range(model.n_states):
        mine = labels == k
        if (seen := mine & ~np.isnan(y)).any():
            for other in (y > np.median(y[seen]), stays):
                new = np.where(mine & other, model.n_states, labels)
                if all((~np.isnan(y[new == j])).sum() >= 3 for j in range(model.n_states + 1)):
                    found.append(new)
    return found


def distance(one: Parameters, other: Parameters) -> tuple[float, IntArray]:
    """How far apart the emissions of two points are, relative to their size, at the best renaming of the states of the
    other, which is returned as well."""
    scale = np.abs(one.phi).mean(0) + one.phi.std(0)
    apart = (np.abs(one.phi[:, None] - other.phi[None]) / scale).max(-1)
    order = linear_sum_assignment(apart)[1]
    return float(apart[np.arange(len(order)), order].max()), order


def roughness_labels(series: Series, K: int, span: int = 11) -> IntArray:
    """Labels (T,) by how far observations near each other are from the mean of all: for states that differ in variance
    alone, which no clustering of values tells apart."""
    y = np.concatenate([rows[:, 0] for _, rows in series.strides()])
    away = np.abs(y - series.summaries[0].mean)
    away = uniform_filter1d(np.where(np.isnan(away), np.nanmean(away), away), span, mode="nearest")
    logs = np.log(np.maximum(away, 1e-9 * away.max()))
    return nearest(logs, kmeans_centres(spaced(logs, SAMPLE), K))


def surprising(model: Model, parameters: Parameters, series: Series, threads: int | None) -> list[Array]:
    """Groups of observations that a fit did not expect: the most surprising ones, by share, low and high ones apart."""
    y = np.concatenate([rows[:, 0] for _, rows in series.strides()])
    surprise = -predictive_log_density(model, parameters, series, threads=threads)
    surprise[np.isnan(y)] = -np.inf
    counts = [max(int(share * len(y)), 4) for share in SHARES]
    most = min(max(counts), len(y) - series.n_missing)
    order = np.argpartition(-surprise, most - 1)[:most]
    order = order[np.argsort(-surprise[order], kind="stable")]
    groups = []
    for count in dict.fromkeys(min(c, most) for c in counts):
        values = y[order[:count]]
        if len(values) >= 8 and len(np.unique(values)) > 1:
            labels = nearest(values, kmeans_centres(values, 2))
            groups += [values[labels == side] for side in (0, 1)]
        else:
            groups.append(values)
    return [values for values in groups if len(values) >= 3]


def with_state(model: Model, fit: Parameters, seeds: Array, T: int) -> Parameters:
    """The states of a fit and one more, on the observations ``seeds``, entered as often as its share of the T says."""
    family: Any = model.family
    K, middle = model.n_states, np.median(seeds)
    spread = 3 * 1.4826 * np.median(np.abs(seeds - middle))
    core = seeds[np.abs(seeds - middle) <= spread] if spread > 0 else seeds
    new = family.estimate(core, np.ones(len(core)))
    positive = np.array([p.support == "positive" for p in family.parameters])
    new = np.where(positive, np.maximum(new, 0.25 * fit.phi.min(0)), new)
    share = len(seeds) / T
    transition = np.empty((K, K))
    transition[:-1, :-1], transition[:-1, -1] = fit.transition * (1 - share), share
    transition[-1] = 0.5 / (K - 1)
    transition[-1, -1] = 0.5
    return model.natural(np.vstack([fit.phi, new]), transition)
