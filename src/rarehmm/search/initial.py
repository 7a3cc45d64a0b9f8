"""Starting values for the states, from the data alone: k-means finds common states, surprisal finds rare ones.

A rare state shows in observations that a fit with fewer states does not predict.  Each observation is scored by its
one-step predictive density under such a fit, a new state is seeded at the most surprising ones (several shares of them
are tried), and a few EM steps show which candidate raises the log posterior most.  States are added one at a time,
starting from K - 1 states and from fewer, so that several rare states can be found.  These candidates compete with
k-means, with clusters of local variability (for states that differ only in variance), with splits of existing states
and, where noise around levels is autocorrelated, with states of the largest and the smallest observations.

For a long series, most of the work is done on a sample: evenly spaced pieces, the neighbourhoods of the most surprising
observations in the whole series, and its quietest stretches.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, takewhile
from typing import NamedTuple

import numpy as np
import scipy

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.pieces import AROUND, pieces, sample, stretches
from rarehmm.data.series import Series, in_memory
from rarehmm.engine.contracts.family import domains, observed_rows
from rarehmm.exact.block_sample import Observations
from rarehmm.exact.blocks import Chunk, even_chunks, map_chunks
from rarehmm.exact.em import Climb, em_steps, gradient_steps, has_em, has_statistics, scoring_steps
from rarehmm.exact.passes import decode, expectations, log_likelihood, needs_edges, predictive_log_density
from rarehmm.model.autoregression import AroundLevel
from rarehmm.model.coordinates import AdditiveLogRatio
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.search.labels import all_rows, clusters, estimate_state, fill_forward, from_labels, kmeans_labels
from rarehmm.transitions.homogeneous import Homogeneous

SHARES = (3e-2, 3e-3, 3e-4, 5e-5)  # shares of most surprising observations that may seed a rare state
SAMPLE = 100_000  # observations in the smaller sample
DIFFERING = 25_000  # the same where rows differ, whose passes take several times as long
SOME = 10_000  # observations from which the centres of clusters are found where only rough ones are needed
LONG = 1_000_000  # longer series are represented by a sample of this size
PLACES = 1000  # surprising observations whose neighbourhoods are part of a sample
THINNED = 8  # one of so many of them is, in the smaller sample where rows differ
QUIET = 1000  # observations in the quietest stretches that are part of a sample, for each span
SPANS = (10, 100)  # window lengths over which local variability is measured
NEAR = 100.0  # a candidate may lead to another mode that matters if its log posterior is at most this much lower
ERRORS, STRETCH = 3, 100  # on a sample, this many standard errors more; observations over which differences are summed
MODES = 6  # largest number of modes that are looked for
APART = 0.1  # smallest distance between candidates that may lead to different modes
WORK = 1e10  # observations times squared number of states that candidates may read before the best one is taken
MOST_LEAVE = 0.9  # probability to leave a phase from which a climb begins
BASES = 3  # numbers of states from which more are added: K - 1, K - 2, K - 3


def find_states(model: Model, series: Series, *, threads: int | None = None) -> list[Climb]:
    """Find starting values from the data: the best climb first, then the runner-up if it is nearly as good.

    Of a long series, log posteriors are those of the sample that was searched.  Known states say which of the states
    found is which.
    """
    model.check(series)
    search = Search(model, series.without_states(), threads)
    fits = search.best()
    if not model.fixed_values.is_empty:
        best = [match_states_to_fixed_values(model, p, search.small, threads) for p in fits]
    elif series.n_known > 0:
        best = [with_best_order(model, p, np.arange(model.n_states), series, threads) for p in fits]
    elif model.start is not None and not model.exchangeable:
        best = [match_states_to_start(model, p, series, threads) for p in fits]
    else:
        best = [match_states_to_phases(model, p, search.small, threads) for p in fits]
    longer = distinct(model, [climb_briefly(model, search.work, p, 8, threads) for p in best])
    return nearly_best(model, longer, search.work, len(series), threads)


def nearly_best(model: Model, climbs: list[Climb], sample: Series, T: int, threads: int | None) -> list[Climb]:
    """The climbs, best first, that may lead to a mode nearly as high as the best.

    On a sample of a series of length T, modes of equal height differ by chance: a difference in log posterior has a
    standard error.  It is estimated from the differences over STRETCH observations at a time, by their median absolute
    deviation: a few stretches with very different log densities are rare events, which the sample has all of.
    """

    def densities(c: Climb) -> Array:
        rows = predictive_log_density(model, c.parameters, sample, threads=threads)
        return np.add.reduceat(rows, np.arange(0, len(rows), STRETCH))

    best, found = climbs[0], climbs[:1]
    highest = densities(best) if len(sample) < T and len(climbs) > 1 else None
    for c in climbs[1:]:
        near, gap = NEAR, best.log_posterior - c.log_posterior
        if gap >= NEAR and highest is not None:
            difference = highest - densities(c)
            away = np.median(np.abs(difference - np.median(difference)))
            near += ERRORS * 1.4826 * float(away * np.sqrt(len(difference)))
        if gap < near:
            found.append(c)
    return found


def climb_briefly(
    model: Model, series: Observations, start: Parameters, steps: int, threads: int | None, free_start: bool = False
) -> Climb:
    """Take a few EM steps, or gradient steps where there are none.

    No warning is issued when a state collapses: the low log posterior already rules such a candidate out.
    """
    if not has_em(model, series):
        return gradient_steps(model, series, start, steps, threads)
    if not has_statistics(model, series):
        return scoring_steps(model, series, start, steps, 1e-3, threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return em_steps(model, series, start, steps, 1e-3, free_start, threads)


class Search:
    """Search for starting values of a model with K states.

    ``work`` is the series or a sample of it, ``small`` a smaller sample.  The distribution of the first state is
    estimated whatever the model says: the pieces of a sample start anywhere, and EM steps are simpler.  Once WORK is
    ``spent``, no more candidates are tried, and the best one so far is taken.
    """

    def __init__(self, model: Model, series: Series, threads: int | None) -> None:
        self.template, self.threads, self.length = model, threads, len(series)
        self.spent = 0.0
        self.model = self.with_states(model.n_states)
        size, long = (DIFFERING, 5 * DIFFERING) if needs_edges(model, series) else (SAMPLE, LONG)
        if len(series) <= 2 * size:
            self.work = self.small = in_memory(series)
        else:
            few = pieces(series, size)
            rough = self.with_states(max(1, model.n_states - 1))
            fit = self.climb(rough, from_labels(rough, few, first_labels(rough, few)), 10, few)
            places = informative_rows(rough, fit.parameters, series, threads)
            self.work = sample(series, places, long)
            if size == DIFFERING:  # neighbourhoods would be most of the smaller sample
                places = np.concatenate([np.sort(places[:PLACES])[::THINNED], places[PLACES:]])
            self.small = sample(series, places, size)

    def with_states(self, K: int) -> Model:
        """The model with K states and one transition matrix, with nothing fixed."""
        return replace(
            self.template, n_states=K, start=np.full(K, 1 / K), coordinates=AdditiveLogRatio(), fixed=None,
            transitions=Homogeneous(),
        )  # fmt: skip

    def climb(self, model: Model, start: Parameters, steps: int, on: Series | None = None) -> Climb:
        """Climb for a few steps on the small sample, or on another series."""
        series = on or self.small
        found = climb_briefly(model, series, start, steps, self.threads, free_start=True)
        self.spent += len(found.trace) * len(series) * model.n_states**2
        return found

    def climb_each(self, model: Model, starts: Iterable[Parameters], steps: int) -> list[Climb]:
        """Climb from each start for as long as there is work to spend."""
        return [self.climb(model, start, steps) for start in takewhile(lambda _: self.spent < WORK, starts)]

    def best(self) -> list[Parameters]:
        """The best parameters, followed by those that may be near other modes, or by a runner-up."""
        K = self.model.n_states
        found = [self.climb(self.model, self.from_clusters(self.model), 16)]
        if K > 1:
            with contextlib.suppress(ValueError):  # too few distinct values
                labels = roughness_labels(self.small, K)
                found.append(self.climb(self.model, from_labels(self.model, self.small, labels), 16))
        for base in range(K - 1, max(0, K - 1 - (BASES if K < 5 else BASES - 1)), -1):
            if self.spent >= WORK:
                break
            fewer = self.with_states(base)
            fits = [self.climb(fewer, self.from_clusters(fewer), 10)]
            for _ in range(base, K):
                fits = self.add_state(fits[0].parameters) if fits else []
            found += fits
        found += self.other_groupings(found)
        different = distinct(self.model, found)[:MODES]
        near = nearly_best(self.model, different, self.small, self.length, self.threads)
        near = near if len(near) > 1 else different[:2]  # a runner-up may overtake the best, however far behind it is
        climbs = [self.climb(self.model, near[0].parameters, 30)]
        climbs += self.climb_each(self.model, (c.parameters for c in near[1:]), 30)
        return [c.parameters for c in distinct(self.model, climbs)]

    @cached_property
    def quiet(self) -> list[Array]:
        """Groups of observations in the quietest stretches."""
        return quiet_groups(self.work)

    def from_clusters(self, model: Model) -> Parameters:
        """Parameters estimated from k-means clusters."""
        return from_labels(model, self.small, first_labels(model, self.small))

    def add_state(self, fit: Parameters) -> list[Climb]:
        """Add a state to a fit: up to four candidates, best first, or none if there is no more work to spend.

        All candidates climb for two steps; the best four climb for eight more.
        """
        K = len(fit.phi) + 1
        fewer, model = self.with_states(K - 1), self.with_states(K)
        tried = self.climb_each(model, self.with_one_more(fewer, model, fit), 2)
        best = distinct(model, tried or self.climb_each(model, [self.from_clusters(model)], 2))[:4]
        longer = self.climb_each(model, (c.parameters for c in best), 8)
        return sorted(longer or best, key=lambda c: -c.log_posterior)

    def with_one_more(self, fewer: Model, model: Model, fit: Parameters) -> Iterator[Parameters]:
        """Parameters with one state more than a fit: at surprising observations, at quiet ones, or by a split."""
        T = len(self.work)
        for seeds in surprising_groups(fewer, fit, self.work, self.threads):
            yield append_state(model, fit, seeds, T)
        for seeds in extreme_groups(fewer, fit, self.work):
            yield append_state(model, fit, seeds, T)
        for seeds in self.quiet:
            yield append_state(model, fit, seeds, T, least=1e-6)
        for labels in split_labels(fewer, fit, self.small):
            yield from_labels(model, self.small, labels)

    def other_groupings(self, found: list[Climb]) -> list[Climb]:
        """Candidates in which two of K + 1 clusters share a state, if they are new and nearly as good as the best.

        With more levels than states, any two neighbouring levels may share one: as many modes, nearly equally high.
        """
        K = self.model.n_states
        try:
            labels = first_labels(self.with_states(K + 1), self.small, SOME)
        except ValueError:  # too few distinct values
            return []
        starts = (from_labels(self.model, self.small, merged) for merged in merged_labels(self.small, labels, K + 1))
        climbs = distinct(self.model, [*found, *self.climb_each(self.model, starts, 4)])
        near = nearly_best(self.model, climbs[: 2 * MODES], self.small, self.length, self.threads)
        new = (c.parameters for c in near if not any(c is old for old in found))
        return self.climb_each(self.model, new, 12)


def with_order(model: Model, fit: Parameters, order: IntArray) -> Parameters:
    """Parameters of a model of which state k has those of state ``order[k]`` of a fit."""
    coefficients = model.every_effect.reordered(fit.coefficients, order)
    return model.natural(fit.phi[order], fit.transition[np.ix_(order, order)], coefficients)


def adopted(model: Model, fit: Parameters, order: IntArray) -> Parameters:
    """Parameters of a model of which state k has those of state ``order[k]`` of a fit with one transition matrix.

    A state of several phases stays in each so long that visits have the same mean length, if they can.  Inputs of
    transitions have no effect yet.
    """
    if isinstance(model.transitions, Homogeneous):
        return with_order(model, fit, order)
    plain = with_order(replace(model, transitions=Homogeneous(), fixed=None), fit, order)
    P, phases = plain.transition.copy(), model.transitions.phases(model.n_states)
    for k in np.flatnonzero(phases > 1):
        leave = min(phases[k] * (1 - P[k, k]), MOST_LEAVE)
        others = np.delete(np.arange(len(P)), k)
        P[k, others] *= leave / P[k, others].sum()
        P[k, k] = 1 - leave
    slopes = np.zeros(model.every_effect.size - len(plain.coefficients))  # the last block
    return model.natural(plain.phi, P, np.concatenate([plain.coefficients, slopes]))


def match_states_to_start(model: Model, fit: Parameters, series: Series, threads: int | None) -> Parameters:
    """Relabel the states of a fit to match the model's given distribution of the first state."""
    free = replace(model, start=None)
    first = expectations(free, adopted(free, fit, np.arange(len(fit.phi))), series, threads=threads).first
    start = np.maximum(np.asarray(model.start, dtype=float), 1e-9)
    return adopted(model, fit, scipy.optimize.linear_sum_assignment(-np.log(start)[:, None] * first)[1])


def match_states_to_fixed_values(model: Model, fit: Parameters, series: Series, threads: int | None) -> Parameters:
    """Relabel the states of a fit to match the values that the model fixes, as closely as possible at first."""
    scale = np.maximum(fit.phi.std(0), 1e-300)
    far = np.abs(model.fixed_values.phi[:, None] - fit.phi[None]) / scale  # (K of model, K of fit, P), NaN where free
    order = scipy.optimize.linear_sum_assignment(np.nan_to_num(far).sum(-1))[1]
    return with_best_order(model, fit, order, series, threads)


def match_states_to_phases(model: Model, fit: Parameters, series: Series, threads: int | None) -> Parameters:
    """Relabel the states of a fit to match the numbers of phases: states that stay longest get the most, at first."""
    phases = model.transitions.phases(model.n_states)
    order = np.empty(model.n_states, dtype=np.int64)
    order[np.argsort(phases, kind="stable")] = np.argsort(np.diag(fit.transition), kind="stable")
    if len(np.unique(phases)) == 1:
        return adopted(model, fit, np.arange(model.n_states))
    return with_best_order(model, fit, order, series, threads)


def with_best_order(model: Model, fit: Parameters, order: IntArray, series: Series, threads: int | None) -> Parameters:
    """Parameters of a model whose states are those of a fit in the best order that is found.

    Pairs of states are swapped for as long as this raises the log likelihood.
    """

    def height(order: IntArray) -> float:
        return log_likelihood(model, adopted(model, fit, order), series, threads=threads)

    best, swaps = height(order), list(combinations(range(model.n_states), 2))
    while swaps:
        tried = [np.array(order) for _ in swaps]
        for new, (j, k) in zip(tried, swaps, strict=True):
            new[[j, k]] = new[[k, j]]
        heights = [height(new) for new in tried]
        if max(heights) <= best + 1e-9 * abs(best):
            break
        order, best = tried[int(np.argmax(heights))], max(heights)
    return adopted(model, fit, order)


def distinct(model: Model, climbs: list[Climb]) -> list[Climb]:
    """The climbs, best first, without those that ended close to a better one."""
    found: list[Climb] = []
    for c in sorted(climbs, key=lambda c: -c.log_posterior):
        if all(distance(model, better.parameters, c.parameters)[0] > APART for better in found):
            found.append(c)
    return found


def distance(model: Model, one: Parameters, other: Parameters) -> tuple[float, IntArray]:
    """Distance between the emission parameters of two points, and the permutation (K,) of ``other`` that minimises it.

    Distances are relative to the spread between states, and positive parameters are compared on the log scale.
    """
    positive = np.array([p.support == "positive" for p in model.family.parameters])
    first, second = (np.where(positive, np.log(np.where(positive, p.phi, 1.0)), p.phi) for p in (one, other))
    scale = np.concatenate([first, second]).std(0)
    scale = np.where(positive, np.maximum(scale, 1.0), np.where(scale > 0, scale, 1.0))
    apart = (np.abs(first[:, None] - second[None]) / scale).max(-1)
    order = scipy.optimize.linear_sum_assignment(apart)[1]
    return float(apart[np.arange(len(order)), order].max()), order


# ---------------------------------------------------------------- samples of a long series


class Extremes(NamedTuple):
    """Rows (n,) of a series where something is largest, and its values (n,) there."""

    rows: IntArray
    values: Array


def informative_rows(model: Model, fit: Parameters, series: Series, threads: int | None) -> IntArray:
    """Indices of the most surprising observations under a fit, PLACES of them, then of those in the quietest stretches.

    In a long series, observations are taken as independent: given the past, too many of the most surprising ones would
    merely be changes of state.  Both kinds come from the same pass.
    """
    if len(series) > LONG:
        fit = fit._replace(transition=np.tile(fit.start, (model.n_states, 1)))  # independent observations

    def give(part: Chunk) -> tuple[IntArray]:
        return (series.lengths_within(part.first, part.last),)

    parts, scale = even_chunks(series, LONG), location_and_scale(series)
    if needs_edges(model, series):
        loaded = (stretches(series, np.array([part.first]), np.array([part.last])) for part in parts)
        found = [extremes(model, fit, one, scale, threads) for one in loaded]
    else:
        found = map_chunks(series, parts, ExtremesTask(model, fit, scale), threads, give)
    surprising, *quiet = [
        largest(
            np.concatenate([part.first + one.rows for part, one in zip(parts, each, strict=True)]),
            np.concatenate([one.values for one in each]),
            count,
        ).rows
        for each, count in zip(zip(*found, strict=True), (PLACES, *(QUIET // span for span in SPANS)), strict=True)
    ]
    return np.concatenate([surprising, *(stretch_centres(rows, span) for rows, span in zip(quiet, SPANS, strict=True))])


def stretch_centres(first: IntArray, span: int) -> IntArray:
    """Rows whose neighbourhoods cover the stretches of ``span`` rows from each row ``first`` (n,)."""
    count = -(-span // (2 * AROUND))
    return (first[:, None] + (np.arange(count) * span + span // 2) // count).ravel()


@dataclass(frozen=True)
class ExtremesTask:
    """Worker task: the most surprising observations in a chunk of a series, and its quietest stretches of each span.

    ``scale`` (2, D) holds the mean and the standard deviation of each column.
    """

    model: Model
    fit: Parameters
    scale: Array

    def __call__(self, y: Array, lengths: IntArray) -> list[Extremes]:
        if not observed_rows(self.model.family, y).any():
            return [Extremes(np.empty(0, dtype=np.int64), np.empty(0))] * (1 + len(SPANS))
        return extremes(self.model, self.fit, Series(y, lengths), self.scale, 1)


def extremes(model: Model, fit: Parameters, part: Series, scale: Array, threads: int | None) -> list[Extremes]:
    """The most surprising rows of a part of a series in memory, and its quietest stretches of each span."""
    y = part.read(0, len(part))
    found = [largest(np.arange(len(y)), surprisal(model, fit, part, threads), PLACES)]
    for span in SPANS:
        variance = local_variance(y, scale, span)
        found.append(largest(span * np.arange(len(variance)), -variance, QUIET // span))
    return found


def location_and_scale(series: Series) -> Array:
    """Mean and standard deviation (2, D) of each column."""
    return np.array([[s.mean, np.sqrt(s.scaled().variance)] for s in series.summaries]).T


def local_variance(y: Array, scale: Array, span: int) -> Array:
    """Variance (n,) of rows y (T, D) within each of n stretches of ``span``, summed over standardised columns.

    A column with missing values in a stretch counts as one that varies as it does overall.
    """
    n = len(y) // span
    z = ((y[: n * span] - scale[0]) / scale[1]).reshape(n, span, y.shape[1])
    variance = z.var(1)  # (n, D)
    return np.asarray(np.where(np.isnan(variance), 1.0, variance).sum(1))


def largest(rows: IntArray, values: Array, count: int) -> Extremes:
    """The ``count`` rows with the largest values, in descending order of value."""
    at = largest_indices(values, count)
    return Extremes(rows[at], values[at])


def largest_indices(values: Array, count: int) -> IntArray:
    """Indices of the ``count`` largest values, in descending order of value."""
    count = min(count, len(values))
    found = np.argpartition(-values, count - 1)[:count] if count > 0 else np.empty(0, dtype=np.int64)
    return np.asarray(found[np.argsort(-values[found], kind="stable")])


def surprisal(model: Model, fit: Parameters, series: Series, threads: int | None) -> Array:
    """Surprisal (T,) of each observation given the past: minus its log density, and -inf where it is missing."""
    out = -predictive_log_density(model, fit, series, threads=threads)
    for first, y in series.strides():
        out[first : first + len(y)][~observed_rows(model.family, y)] = -np.inf
    return out


# ---------------------------------------------------------------- candidates
def first_labels(model: Model, series: Series, some: int | None = None) -> IntArray:
    """Labels (T,) by k-means clustering of the observations, with categorical columns replaced by local frequencies.

    If ``some`` is given, centres come from about that many evenly spaced rows.
    """
    kinds = domains(model.family)
    categorical = [domain.whole and bool(np.isfinite(domain.high)) for domain in kinds]
    if not any(categorical):
        return kmeans_labels(series, model.n_states, some)
    y, seen = all_rows(series)
    parts = []
    for column, domain, is_categorical in zip(y.T, kinds, categorical, strict=True):
        if is_categorical:
            indicators = np.where(seen[:, None], column[:, None] == np.arange(1.0, domain.high + 1), 0.0)  # (T, n - 1)
            parts.append(scipy.ndimage.uniform_filter1d(indicators, SPANS[0], axis=0, mode="nearest"))
        else:
            parts.append(column[:, None])
    usable = seen | all(categorical)  # local frequencies are defined in gaps too
    labels = np.zeros(len(y), dtype=np.int64)
    labels[usable] = clusters(np.hstack(parts)[usable], model.n_states, some, "local category frequencies")
    if (found := len(np.unique(labels[seen]))) < model.n_states:  # the other clusters lie in gaps
        raise ValueError(
            f"the observed rows of y fall into {found} clusters, too few for {model.n_states} states; use fewer states."
        )
    return fill_forward(labels, usable)


def surprising_groups(model: Model, parameters: Parameters, series: Series, threads: int | None) -> list[Array]:
    """Groups (n, D) of the observations with the highest surprisal: for each share of SHARES, two clusters."""
    y, seen = all_rows(series)
    surprise = surprisal(model, parameters, series, threads)
    counts = [min(max(int(share * len(y)), 4), int(seen.sum())) for share in SHARES]
    order = largest_indices(surprise, max(counts))
    groups = []
    for count in dict.fromkeys(counts):
        groups += in_two_clusters(y[order[:count]])
    return [values for values in groups if len(values) >= 3]


def extreme_groups(model: Model, fit: Parameters, series: Series) -> list[Array]:
    """Groups (n, D) of the observations farthest above and below all others, apart from what inputs add.

    Where noise around levels is autocorrelated, only the first observation of a visit is surprising.
    """
    if not isinstance(model.autoregression, AroundLevel):
        return []
    (y, seen), effects, rows, groups = all_rows(series), model.every_effect, series.read_rows(0, len(series)), []
    for i, d in enumerate(effects.moves.predicted):
        rest = effects.lagged_values(y[:, d], effects.predictors(fit, rows, i)[0], d)
        for side in (-1, 1):
            order = largest_indices(np.where(seen, side * rest, -np.inf), int(SHARES[1] * len(y)))
            groups += [y[order[: max(int(share * len(y)), 4)]] for share in SHARES[1:]]
    return [values[np.isfinite(values).all(1)] for values in groups if len(values) >= 4]


def quiet_groups(series: Series) -> list[Array]:
    """Groups (n, D) of the observations with the lowest local variance: for each span and share, two clusters."""
    y, seen = all_rows(series)
    scale = location_and_scale(series)
    z = np.where(seen[:, None], (y - scale[0]) / scale[1], 0.0)
    groups = []
    for span in (s for s in SPANS if len(y) >= 10 * s):
        mean = scipy.ndimage.uniform_filter1d(z, span, axis=0, mode="nearest")
        rough = (scipy.ndimage.uniform_filter1d(z * z, span, axis=0, mode="nearest") - mean**2).sum(1)
        rough[~seen | (scipy.ndimage.uniform_filter1d(seen.astype(float), span, mode="nearest") < 0.999)] = np.inf
        for share in SHARES[1:3]:
            values = y[largest_indices(-rough, max(int(share * len(y)), 8))]
            groups += in_two_clusters(values[np.isfinite(values).all(1)])
    return [values for values in groups if len(values) >= 3]


def in_two_clusters(values: Array) -> list[Array]:
    """Split rows (n, D) into two clusters if there are enough of them."""
    if len(values) < 8 or len(np.unique(values, axis=0)) < 2:
        return [values]
    labels = clusters(values, 2)
    return [values[labels == side] for side in (0, 1)]


def append_state(model: Model, fit: Parameters, seeds: Array, T: int, least: float = 0.25) -> Parameters:
    """Append a state to a fit, estimated from the observations ``seeds`` (n, D).

    It is entered with probability n / T.  Its positive parameters are at least ``least`` times the smallest among the
    other states.
    """
    K, middle = model.n_states, np.median(seeds, axis=0)
    spread = 3 * 1.4826 * np.median(np.abs(seeds - middle), axis=0)
    core = seeds[((np.abs(seeds - middle) <= spread) | (spread == 0)).all(1)]
    core = core if len(core) > 1 else seeds
    new = estimate_state(model, core)
    positive = np.array([p.support == "positive" for p in model.family.parameters])
    new = np.where(positive, np.maximum(new, least * fit.phi.min(0)), new)
    share = len(seeds) / T
    transition = np.empty((K, K))
    transition[:-1, :-1], transition[:-1, -1] = fit.transition * (1 - share), share
    transition[-1] = 0.5 / (K - 1)
    transition[-1, -1] = 0.5
    coefficients = model.every_effect.with_one_more(fit.coefficients)
    return model.natural(np.vstack([fit.phi, new]), transition, coefficients)


def split_labels(model: Model, fit: Parameters, series: Series) -> list[IntArray]:
    """Labels (T,) with one more state than a fit: every decoded state split in two ways.

    The split is along the first principal axis of its observations, or by whether the chain was already in that state.
    """
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


def merged_labels(series: Series, labels: IntArray, n: int) -> list[IntArray]:
    """Labels (T,) with one cluster fewer than the n of ``labels``: the closest pairs merged, n - 1 or MODES of them."""
    y, seen = all_rows(series)
    if np.bincount(labels[seen], minlength=n).min() == 0:
        return []
    scale = np.where(y[seen].std(0) > 0, y[seen].std(0), 1.0)
    centres = np.array([y[seen & (labels == k)].mean(0) for k in range(n)]) / scale  # (n, D)
    low, high = np.triu_indices(n, 1)
    closest = np.argsort(np.abs(centres[high] - centres[low]).sum(1), kind="stable")[: min(n - 1, MODES)]
    return [np.where(labels == high[i], low[i], labels) - (labels > high[i]) for i in closest]


def main_direction(y: Array) -> Callable[[Array], Array]:
    """Projection on the first principal axis of standardised rows y (n, D), centred at their median."""
    scale = np.where(y.std(0) > 0, y.std(0), 1.0)
    _, _, axes = np.linalg.svd(np.cov((y / scale).T).reshape(y.shape[1], -1))
    middle = np.median((y / scale) @ axes[0])
    return lambda rows: np.asarray((rows / scale) @ axes[0] - middle)


def roughness_labels(series: Series, K: int, span: int = 11) -> IntArray:
    """Labels (T,) by k-means clustering of the local mean absolute deviation from the overall mean.

    They separate states that differ only in variance, which clustering of the values cannot do.
    """
    y, seen = all_rows(series)
    scale = location_and_scale(series)
    away = np.abs((y - scale[0]) / scale[1]).mean(1)
    away = scipy.ndimage.uniform_filter1d(np.where(seen, away, away[seen].mean()), span, mode="nearest")
    return clusters(np.log(np.maximum(away, 1e-9 * away.max()))[:, None], K)
