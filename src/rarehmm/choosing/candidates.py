"""Hidden Markov models as candidates: fitted to a sample from a few starting values, and scored on held-out blocks."""

import contextlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rarehmm.choosing.held_out import LEAD, Sample
from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import REALS
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import domains
from rarehmm.exact.em import Climb
from rarehmm.exact.passes import predictive_log_density
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.search.initial import climb_briefly
from rarehmm.search.labels import clusters, fill_forward, from_labels
from rarehmm.specification.models import Specification

BRIEF, LONG, FOLD = 6, 40, 25  # steps of a climb from each start, from the best of them, and without a half
EXTREME = 0.03  # share of the rows on either side that may begin as states of their own
SMOOTH = 9  # rows over which the size of residuals is averaged


class Candidate(NamedTuple):
    """A specification, its fit to the sample, and how well it does.

    ``densities`` (n,) are held-out log densities of the scored rows, ``own`` (n,) those under the fit to all rows.
    """

    specification: Specification
    model: Model
    fit: Parameters
    densities: Array
    own: Array
    bic: float


class Candidates:
    """Fits of hidden Markov models to a sample of a series, each made once.

    ``level`` (T, D) are the observations without season and inputs, from which starting values come.
    """

    def __init__(self, full: Series, sample: Sample, level: Array, threads: int | None) -> None:
        self.full, self.sample, self.level, self.threads = full, sample, level, threads
        self.halves = [sample.rows_of(1 - parity)[0] for parity in (0, 1)]
        self.tests = [sample.rows_of(parity, LEAD) for parity in (0, 1)]

    def evaluate(self, specification: Specification, warm: Candidate | None = None) -> Candidate:
        """Fit and score a specification; ``warm`` is a candidate with fewer lags, where its fit begins."""
        model = specification.model(self.full)
        fit = self.fit(model, warm)
        own = predictive_log_density(model, fit, self.sample.series, threads=self.threads)[self.sample.scored]
        densities = self.held_out(model, fit)
        if not (np.isfinite(own).all() and np.isfinite(densities).all()):
            raise ValueError(f"{model.name} has no finite density in some rows.")
        bic = -2 * float(own.sum()) + model.size * np.log(max(len(own), 1))
        return Candidate(specification, model, fit, densities, own, bic)

    def fit(self, model: Model, warm: Candidate | None) -> Parameters:
        """Fit a model to the sample, from the start that is best after a few steps."""
        starts = [] if warm is None else [extended(model, warm)]
        starts = starts or [self.from_labels(model, labels) for labels in self.starting_labels(model.n_states)]
        climbs = [self.climb(model, self.sample.series, start, BRIEF) for start in starts]
        climbs = [c for c in climbs if np.isfinite(c.log_posterior)]
        if not climbs:
            raise ValueError("no start of the search has a finite posterior density.")
        best = max(climbs, key=lambda c: c.log_posterior)
        return self.climb(model, self.sample.series, best.parameters, LONG).parameters

    def climb(self, model: Model, series: Series, start: Parameters, steps: int) -> Climb:
        with np.errstate(all="ignore"):  # a poor start is given up
            return climb_briefly(model, series, start, steps, self.threads)

    def held_out(self, model: Model, fit: Parameters) -> Array:
        """Log density (n,) of each scored row under the fit to the other half of the blocks."""
        out = np.zeros(len(self.sample.y))
        for parity, half, (test, rows) in zip((0, 1), self.halves, self.tests, strict=True):
            other = self.climb(model, half, fit, FOLD).parameters
            found, there = predictive_log_density(model, other, test, threads=self.threads), self.sample.block[rows]
            out[rows[there % 2 == parity]] = found[there % 2 == parity]
        return out[self.sample.scored]

    # ------------------------------------------------------------ starting values
    def from_labels(self, model: Model, labels: IntArray) -> Parameters:
        """Parameters from labels (T,) as if they were the states: of the level if observations are real numbers."""
        if all(domain == REALS for domain in domains(model.family)):
            rows = Series(np.where(np.isnan(self.sample.y), np.nan, self.level), np.diff(self.sample.series.bounds))
        else:
            rows = self.sample.series
        plain = replace(model, inputs=None, switching=None, scale=None, autoregression=None)
        found, lags = from_labels(plain, rows, labels), model.every_effect.slices["lags"]
        coefficients = np.zeros(model.every_effect.size)
        if model.n_lags == 1:
            coefficients[lags] = self.correlation_within(labels)
        return model.natural(found.phi, found.transition, coefficients)

    def correlation_within(self, labels: IntArray) -> float:
        """Correlation of neighbouring rows of the level around the mean of their label, up to 0.95."""
        means = [np.nanmean(self.level[labels == k, 0]) for k in range(labels.max() + 1)]
        e = self.level[:, 0] - np.array(means)[labels]
        pairs = np.isfinite(e[1:]) & np.isfinite(e[:-1])
        return float(np.clip(np.corrcoef(e[1:][pairs], e[:-1][pairs])[0, 1], 0.0, 0.95)) if pairs.sum() > 2 else 0.0

    def starting_labels(self, K: int) -> list[IntArray]:
        """Labels (T,) of the rows of the sample: by extremes of the level, by size, and by clusters."""
        seen = ~np.isnan(self.sample.y).any(1)
        level = np.where(seen, self.level[:, 0], np.nanmedian(self.level[:, 0]))
        if K == 1:
            return [np.zeros(len(level), dtype=np.int64)]
        size = np.abs(self.level - np.nanmedian(self.level, axis=0)) / np.nanstd(self.level, axis=0)
        size = np.where(seen, size.sum(1), np.nanmedian(size.sum(1)))
        smooth = np.convolve(size, np.full(SMOOTH, 1 / SMOOTH), mode="same")
        found = [by_share(smooth, K, high=True), by_share(level, K, high=True), by_share(level, K, high=False)]
        if K > 2:
            found.append(by_share(level, K, high=None))
        with contextlib.suppress(ValueError):  # too few distinct values
            found.append(clusters(self.level[seen], K)[np.cumsum(seen) - 1])
        found = [fill_forward(labels, seen) for labels in found]
        return [labels for labels in found if np.bincount(labels[seen], minlength=K).min() >= 3]


def by_share(values: Array, K: int, high: bool | None) -> IntArray:
    """Labels (T,) by quantiles: a small share above (``high``), below, or both (None), and equal shares of the rest."""
    outer = [EXTREME] if high is False else [1 - EXTREME] if high else [EXTREME, 1 - EXTREME]
    n = K - len(outer)
    low, top = (EXTREME if high is not True else 0.0), (1 - EXTREME if high is not False else 1.0)
    inner = low + (top - low) * np.arange(1, n) / n
    return np.asarray(np.digitize(values, np.unique(np.quantile(values, np.sort([*outer, *inner])))), dtype=np.int64)


def extended(model: Model, warm: Candidate) -> Parameters:
    """Parameters of a model that begin at those of a candidate with the same states and fewer lags."""
    new, old = model.every_effect, warm.model.every_effect
    coefficients = np.zeros(new.size)
    for name, at in new.slices.items():
        mine = warm.fit.coefficients[old.slices[name]]
        coefficients[at.start : at.start + min(len(mine), at.stop - at.start)] = mine[: at.stop - at.start]
    return model.natural(warm.fit.phi, warm.fit.transition, coefficients)
