"""First states, out of the data alone: k-means finds the common ones, surprise the rare ones.

A rare state is what a fit with fewer states did not expect.  Each observation is scored by its one-step predictive
density under that fit, a state is put on the most surprising ones, whatever their share, and EM says which of these
guesses is worth most.  States are added one by one, from K - 1 states upward and from fewer, so that several rare ones
are found as well; k-means, roughness (states that differ in variance alone) and the splitting of states compete.

Most of the work is done on a sample of a long series: evenly spaced pieces, and the surroundings of the most surprising
observations of all of it.
"""

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.ndimage import uniform_filter1d
from scipy.optimize import linear_sum_assignment

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.pieces import pieces, sample
from rarehmm.data.series import Series, in_memory
from rarehmm.engine.contracts.family import domains, observed_rows
from rarehmm.exact.block_sample import Observations
from rarehmm.exact.blocks import Chunk, even_chunks, map_chunks
from rarehmm.exact.em import Climb, em_steps, gradient_steps, has_m_step
from rarehmm.exact.passes import decode, expectations, log_likelihood, predictive_log_density
from rarehmm.model.coordinates import AdditiveLogRatio
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.search.labels import all_rows, carried, clusters, estimated, from_labels, kmeans_labels

SHARES = (3e-2, 3e-3, 3e-4, 5e-5)  # of the observations, the most surprising ones, that may be a rare state
SAMPLE = 100_000  # observations of the smaller sample
LONG = 1_000_000  # observations beyond which a sample is all that is looked at closely
PLACES = 1000  # surprising observations whose surroundings a sample holds
SPANS = (10, 100)  # observations over which a series may be quiet
BASES = 3  # numbers of states from which others are added: K - 1, K - 2, K - 3


def find_states(model: Model, series: Series, *, threads: int | None = None) -> list[Climb]:
    """Parameters to start from, out of the data alone: the best first, then the runner-up."""
    model.check(series)
    search = Search(model, series, threads)
    free = replace(model, fixed=None)
    best = [free.natural(p.phi, p.transition) for p in search.best()]
    if not model.fixed_values.is_empty:
        best = [by_known_values(model, p, search.small, threads) for p in best]
    elif not model.exchangeable:
        best = [by_first_states(model, p, series, threads) for p in best]
    longer = [climbed(model, search.work, p, 8, threads) for p in best]
    return sorted(longer, key=lambda c: -c.log_posterior)


def climbed(
    model: Model, series: Observations, start: Parameters, steps: int, threads: int | None, free_start: bool = False
) -> Climb:
    """A few EM steps; a state that collapses has a poor log posterior to show, and no warning."""
    if not has_m_step(model):
        return gradient_steps(model, series, start, steps, threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return em_steps(model, series, start, steps, 1e-3, free_start, threads)


class Search:
    """All ways to K states of a model: ``work`` is the series or a sample of it, ``small`` a smaller one.

    The law of first states is estimated, whatever the model says: stretches of a sample begin anywhere, and EM steps
    are simpler.
    """

    def __init__(self, model: Model, series: Series, threads: int | None) -> None:
        self.exchangeable_groups, self.threads = model, threads
        self.model = self.with_states(model.n_states)
        if len(series) <= 2 * SAMPLE:
            self.work = self.small = in_memory(series)
        else:
            few = pieces(series, SAMPLE)
            rough = self.with_states(max(1, model.n_states - 1))
            fit = self.climb(rough, from_labels(rough, few, first_labels(rough, few)), 10, few)
            places = most_surprising(rough, fit.parameters, series, threads)
            self.work = sample(series, places, LONG)
            self.small = sample(series, places, SAMPLE)

    def with_states(self, K: int) -> Model:
        """The model with another number of states."""
        start = np.full(K, 1 / K)
        return replace(self.exchangeable_groups, n_states=K, start=start, coordinates=AdditiveLogRatio(), fixed=None)

    def climb(self, model: Model, start: Parameters, steps: int, on: Series | None = None) -> Climb:
        return climbed(model, on or self.small, start, steps, self.threads, free_start=True)

    def best(self) -> list[Parameters]:
        """The best parameters, and the best ones that are elsewhere, if any."""
        K = self.model.n_states
        found = [self.climb(self.model, self.clustered(self.model), 16)]
        if K > 1:
            with contextlib.suppress(ValueError):  # too few different values for it
                labels = roughness_labels(self.small, K)
                found.append(self.climb(self.model, from_labels(self.model, self.small, labels), 16))
        for base in range(K - 1, max(0, K - 1 - (BASES if K < 5 else BASES - 1)), -1):
            fewer = self.with_states(base)
            fits = [self.climb(fewer, self.clustered(fewer), 10)]
            for _ in range(base, K):
                fits = self.with_one_more(fits[0].parameters)
            found += fits
        found.sort(key=lambda c: -c.log_posterior)
        first, second = found[0], found[1:2]
        for c in found[1:]:  # one that is elsewhere and nearly as high tells more than one on the same way
            near = first.log_posterior - c.log_posterior < 100
            if near and distance(self.model, first.parameters, c.parameters)[0] > 0.3:
                second = [c]
                break
        return [self.climb(self.model, c.parameters, 30).parameters for c in [first, *second]]

    def clustered(self, model: Model) -> Parameters:
        """Parameters from k-means clusters."""
        return from_labels(model, self.small, first_labels(model, self.small))

    def with_one_more(self, fit: Parameters) -> list[Climb]:
        """The best ways to add a state to a fit, the best first: all candidates climb two steps, the best four ten."""
        K = len(fit.phi) + 1
        fewer, model = self.with_states(K - 1), self.with_states(K)
        T = len(self.work)
        starts = [with_state(model, fit, seeds, T) for seeds in surprising(fewer, fit, self.work, self.threads)]
        starts += [with_state(model, fit, seeds, T, least=1e-6) for seeds in quiet(self.work)]
        starts += [from_labels(model, self.small, labels) for labels in splits(fewer, fit, self.small)]
        found = [self.climb(model, start, 2) for start in starts or [self.clustered(model)]]
        found = sorted(found, key=lambda c: -c.log_posterior)[:4]
        return sorted((self.climb(model, c.parameters, 8) for c in found), key=lambda c: -c.log_posterior)


def by_first_states(model: Model, fit: Parameters, series: Series, threads: int | None) -> Parameters:
    """A fit with its states renamed so that the first ones of sequences suit the start that the model is given."""
    free = replace(model, start=None)
    first = expectations(free, free.natural(fit.phi, fit.transition), series, threads=threads).first
    start = np.maximum(np.asarray(model.start, dtype=float), 1e-9)
    order = linear_sum_assignment(-np.log(start)[:, None] * first)[1]  # state k was order[k]
    return model.natural(fit.phi[order], fit.transition[np.ix_(order, order)])


def by_known_values(model: Model, fit: Parameters, series: Series, threads: int | None) -> Parameters:
    """A fit with its states renamed so that what the model knows of them suits the data best: the closest assignment,
    then swaps as long as one raises the log likelihood."""

    def placed(order: IntArray) -> Parameters:
        return model.natural(fit.phi[order], fit.transition[np.ix_(order, order)])

    def height(order: IntArray) -> float:
        return log_likelihood(model, placed(order), series, threads=threads)

    K = model.n_states
    scale = np.maximum(fit.phi.std(0), 1e-300)
    far = np.nan_to_num(np.abs(model.fixed_values.phi[:, None] - fit.phi[None]) / scale).sum(-1)  # (known, found)
    order = linear_sum_assignment(far)[1]
    best, swaps = height(order), list(combinations(range(K), 2))
    while swaps:
        tried = [np.array(order) for _ in swaps]
        for new, (j, k) in zip(tried, swaps, strict=True):
            new[[j, k]] = new[[k, j]]
        heights = [height(new) for new in tried]
        if max(heights) <= best + 1e-9 * abs(best):
            break
        order, best = tried[int(np.argmax(heights))], max(heights)
    return placed(order)


def distance(model: Model, one: Parameters, other: Parameters) -> tuple[float, IntArray]:
    """How far apart the emissions of two points are, relative to how far states are apart (positive parameters by their
    logarithms), at the best renaming of the states of the other, which is returned as well."""
    positive = np.array([p.support == "positive" for p in model.family.parameters])
    first, second = (np.where(positive, np.log(np.where(positive, p.phi, 1.0)), p.phi) for p in (one, other))
    scale = np.concatenate([first, second]).std(0)
    scale = np.where(positive, np.maximum(scale, 1.0), np.where(scale > 0, scale, 1.0))
    apart = (np.abs(first[:, None] - second[None]) / scale).max(-1)
    order = linear_sum_assignment(apart)[1]
    return float(apart[np.arange(len(order)), order].max()), order


# ---------------------------------------------------------------- samples of a long series


def most_surprising(model: Model, fit: Parameters, series: Series, threads: int | None) -> IntArray:
    """Where the observations lie (PLACES,) that a fit expects least: given those before them, or, in a series so long
    that too many changes of state would be among them, given nothing."""
    if len(series) <= LONG:
        return largest(surprises(model, fit, series, threads), PLACES)
    fit = fit._replace(transition=np.tile(fit.start, (model.n_states, 1)))  # independent observations

    def give(part: Chunk) -> tuple[IntArray]:
        return (series.lengths_within(part.first, part.last),)

    parts = even_chunks(series, LONG)
    found = map_chunks(series, parts, Surprising(model, fit), threads, give)
    places = np.concatenate([part.first + at for part, (at, _) in zip(parts, found, strict=True)])
    return np.asarray(places[largest(np.concatenate([values for _, values in found]), PLACES)])


@dataclass(frozen=True)
class Surprising:
    """The work on a stretch of a series: where its most surprising observations are, and how surprising they are."""

    model: Model
    fit: Parameters

    def __call__(self, y: Array, lengths: IntArray) -> tuple[IntArray, Array]:
        if not observed_rows(self.model.family, y).any():
            return np.empty(0, dtype=np.int64), np.empty(0)
        values = surprises(self.model, self.fit, Series(y, lengths), 1)
        places = largest(values, PLACES)
        return places, values[places]


def largest(values: Array, count: int) -> IntArray:
    """Where the largest so many of the values are, the largest first."""
    count = min(count, len(values))
    found = np.argpartition(-values, count - 1)[:count]
    return np.asarray(found[np.argsort(-values[found], kind="stable")])


def surprises(model: Model, fit: Parameters, series: Series, threads: int | None) -> Array:
    """Minus the log density (T,) of each observation given those before it; least where it is missing."""
    out = -predictive_log_density(model, fit, series, threads=threads)
    for first, y in series.strides():
        out[first : first + len(y)][~observed_rows(model.family, y)] = -np.inf
    return out


# ---------------------------------------------------------------- candidates
def first_labels(model: Model, series: Series) -> IntArray:
    """Labels (T,) by k-means: of the observations and, in columns of categories, of how often each is for a while."""
    kinds = domains(model.family)
    few = [domain.whole and bool(np.isfinite(domain.high)) for domain in kinds]
    if not any(few):
        return kmeans_labels(series, model.n_states)
    y, seen = all_rows(series)
    parts = []
    for column, domain, categories in zip(y.T, kinds, few, strict=True):
        if categories:
            marks = np.where(seen[:, None], column[:, None] == np.arange(1.0, domain.high + 1), 0.0)  # (T, n - 1)
            parts.append(uniform_filter1d(marks, SPANS[0], axis=0, mode="nearest"))
        else:
            parts.append(column[:, None])
    known = seen | all(few)  # of categories alone, every row has those around it
    labels = np.zeros(len(y), dtype=np.int64)
    labels[known] = clusters(np.hstack(parts)[known], model.n_states, what="stretches")
    if (found := len(np.unique(labels[seen]))) < model.n_states:  # the others lie in gaps
        raise ValueError(f"y has {found} kinds of stretches, too few for {model.n_states} states; use fewer states.")
    return carried(labels, known)


def surprising(model: Model, parameters: Parameters, series: Series, threads: int | None) -> list[Array]:
    """Groups (n, D) of observations that a fit did not expect: the most surprising ones, by share, in two clusters."""
    y, seen = all_rows(series)
    surprise = surprises(model, parameters, series, threads)
    counts = [min(max(int(share * len(y)), 4), int(seen.sum())) for share in SHARES]
    order = largest(surprise, max(counts))
    groups = []
    for count in dict.fromkeys(counts):
        groups += in_two(y[order[:count]])
    return [values for values in groups if len(values) >= 3]


def quiet(series: Series) -> list[Array]:
    """Groups (n, D) of observations that vary least with those around them, by share, in two clusters each."""
    y, seen = all_rows(series)
    scale = np.array([[s.mean, np.sqrt(s.scaled().variance)] for s in series.summaries]).T
    z = np.where(seen[:, None], (y - scale[0]) / scale[1], 0.0)
    groups = []
    for span in (s for s in SPANS if len(y) >= 10 * s):
        mean = uniform_filter1d(z, span, axis=0, mode="nearest")
        rough = (uniform_filter1d(z * z, span, axis=0, mode="nearest") - mean**2).sum(1)
        rough[~seen | (uniform_filter1d(seen.astype(float), span, mode="nearest") < 0.999)] = np.inf
        for share in SHARES[1:3]:
            values = y[largest(-rough, max(int(share * len(y)), 8))]
            groups += in_two(values[np.isfinite(values).all(1)])
    return [values for values in groups if len(values) >= 3]


def in_two(values: Array) -> list[Array]:
    """Rows (n, D) in two clusters, if there are enough of them."""
    if len(values) < 8 or len(np.unique(values, axis=0)) < 2:
        return [values]
    labels = clusters(values, 2)
    return [values[labels == side] for side in (0, 1)]


def with_state(model: Model, fit: Parameters, seeds: Array, T: int, least: float = 0.25) -> Parameters:
    """The states of a fit and one more, on the observations ``seeds`` (n, D), entered as often as its share of T.

    Its positive parameters are at least ``least`` of the smallest of the others.
    """
    K, middle = model.n_states, np.median(seeds, axis=0)
    spread = 3 * 1.4826 * np.median(np.abs(seeds - middle), axis=0)
    core = seeds[((np.abs(seeds - middle) <= spread) | (spread == 0)).all(1)]
    core = core if len(core) > 1 else seeds
    new = estimated(model, core)
    positive = np.array([p.support == "positive" for p in model.family.parameters])
    new = np.where(positive, np.maximum(new, least * fit.phi.min(0)), new)
    share = len(seeds) / T
    transition = np.empty((K, K))
    transition[:-1, :-1], transition[:-1, -1] = fit.transition * (1 - share), share
    transition[-1] = 0.5 / (K - 1)
    transition[-1, -1] = 0.5
    return model.natural(np.vstack([fit.phi, new]), transition)


def splits(model: Model, fit: Parameters, series: Series) -> list[IntArray]:
    """Labels (T,) of one state more than a fit has: each state split along the direction in which its observations
    vary most, and by whether it was in the same state just before."""
    labels, _ = decode(model, fit, series)
    y, seen = all_rows(series)
    stays = np.concatenate([[False], labels[1:] == labels[:-1]])
    found = []
    for k in range(model.n_states):
        mine = labels == k
        if (mine & seen).sum() >= 6:
            along = main_direction(y[mine & seen])
            for other in (along(y) > 0, stays):
                new = np.where(mine & other, model.n_states, labels)
                if np.bincount(new[seen], minlength=model.n_states + 1).min() >= 3:
                    found.append(new)
    return found


def main_direction(y: Array) -> Callable[[Array], Array]:
    """How far rows lie from the middle of the rows y (n, D) along the direction in which these vary most, in units of
    the columns' standard deviations."""
    scale = np.where(y.std(0) > 0, y.std(0), 1.0)
    _, _, axes = np.linalg.svd(np.cov((y / scale).T).reshape(y.shape[1], -1))
    middle = np.median((y / scale) @ axes[0])
    return lambda rows: np.asarray((rows / scale) @ axes[0] - middle)


def roughness_labels(series: Series, K: int, span: int = 11) -> IntArray:
    """Labels (T,) by how far observations near each other are from the mean of all: for states that differ in variance
    alone, which no clustering of values tells apart."""
    y, seen = all_rows(series)
    means = np.array([[s.mean, np.sqrt(s.scaled().variance)] for s in series.summaries]).T
    away = np.abs((y - means[0]) / means[1]).mean(1)
    away = uniform_filter1d(np.where(seen, away, away[seen].mean()), span, mode="nearest")
    return clusters(np.log(np.maximum(away, 1e-9 * away.max()))[:, None], K)
