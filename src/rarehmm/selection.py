"""How many states?  By the density of observations that were left out, and by BIC.

The series is cut into blocks; each fold leaves every fifth of them out (they are missing, so that the dynamics go on
through them), fits the rest, and predicts the blocks left out one step ahead.  Numbers of states are compared block by
block: the standard error of their difference says whether a state is worth having.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rarehmm.emissions import Family
from rarehmm.emissions.gaussian import Gaussian
from rarehmm.initial import LONG, climbed, find_states, largest, pieces
from rarehmm.model import Model, Parameters, check_learnable, default_priors
from rarehmm.passes import log_likelihood, predictive_log_density
from rarehmm.regimes import Regime, regimes
from rarehmm.series import Array, IntArray, Series

BLOCKS, FOLDS = 20, 5
SURPRISING = 0.01  # share of the observations that are called the most surprising ones
STEPS = 200  # of EM


class Candidate(NamedTuple):
    """A number of states: parameters fitted to all data, log likelihood and BIC there, mean log density of observations
    left out, of all and of the most surprising ones, and what its states are.

    ``gain`` and ``error``: held-out log density above that of one candidate before, and its standard error over blocks;
    ``supported``: whether that, and BIC, speak for it.
    """

    n_states: int
    parameters: Parameters
    log_likelihood: float
    bic: float
    held_out: float
    surprising: float
    blocks: Array
    gain: float
    error: float
    supported: bool
    regimes: list[Regime]


class Selection(NamedTuple):
    """Candidates by number of states, and the number chosen: the fewest within one standard error of the best."""

    best: int
    candidates: list[Candidate]

    def describe(self) -> str:
        """The curve as a table, and words about states that the data do not support."""
        lines = ["states  held-out  gain (standard error)   of the surprising   BIC above the best"]
        lowest = min(c.bic for c in self.candidates)
        for c in self.candidates:
            gain = f"{c.gain:+.5f} ({c.error:.5f})" if np.isfinite(c.gain) else ""
            mark = " <- chosen" if c.n_states == self.best else ""
            lines.append(f"{c.n_states:6}{c.held_out:10.4f}  {gain:22}{c.surprising:19.3f}{c.bic - lowest:21.1f}{mark}")
        for c in self.candidates[1:]:
            if not c.supported:
                lines.append(
                    f"{c.n_states} states: no better than fewer at what was left out; the data do not support it."
                )
        for r in self.of(self.best).regimes:
            if r.kind != "common":
                lines.append(f"with {self.best} states, state {r.state} is {r.kind}: {r.words}.")
        return "\n".join(lines)

    def of(self, n_states: int) -> Candidate:
        """The candidate with so many states."""
        return next(c for c in self.candidates if c.n_states == n_states)


def select_n_components(
    y: Any, n_components: Iterable[int] = range(1, 6), *, family: Family | None = None, threads: int | None = None
) -> Selection:
    """Compare numbers of states by observations that are left out of the fit, and by BIC.

    Parameters
    ----------
    y
        Observations: whatever ``Series`` takes, or a Series.  Of more than two million, evenly spaced pieces of one
        million together are looked at.
    n_components
        Numbers of states to compare, such as ``range(1, 6)``.
    family
        Emission density; ``Gaussian()`` by default.
    """
    series = y if isinstance(y, Series) else Series(y)
    family = Gaussian() if family is None else family
    numbers = sorted(set(n_components))
    if not numbers:
        raise ValueError("n_components is empty; give numbers of states to compare, such as range(1, 6).")
    check_learnable(family, max(numbers), series)
    series = pieces(series, LONG, BLOCKS)
    block = block_of_each(series)
    found: list[Candidate] = []
    densities = []
    for K in numbers:
        model = Model(family, K, default_priors(family, K, series))
        start = find_states(model, series, threads=threads)[0].parameters
        fit = climbed(model, series, start, STEPS, threads).parameters
        densities.append(held_out_densities(model, fit, series, block, threads))
        found.append(judged(model, fit, series, densities[-1], block, found, threads))
    surprise = -np.mean(densities, axis=0)
    hardest = largest(np.where(np.isnan(surprise), -np.inf, surprise), max(1, int(SURPRISING * len(surprise))))
    found = [c._replace(surprising=float(d[hardest].mean())) for c, d in zip(found, densities, strict=True)]
    return Selection(chosen(found), found)


def judged(
    model: Model,
    fit: Parameters,
    series: Series,
    densities: Array,
    block: IntArray,
    before: list[Candidate],
    threads: int | None,
) -> Candidate:
    """A fit with held-out log densities (T,), beside the last candidate before it."""
    seen = ~np.isnan(densities)
    blocks: Array = np.bincount(block[seen], densities[seen], BLOCKS).astype(float)
    value = log_likelihood(model, fit, series, threads=threads)
    bic = -2 * value + model.size * np.log(seen.sum())
    gain, error, supported = np.nan, np.nan, True
    if before:
        change = (blocks - before[-1].blocks) / seen.sum()
        gain, error = change.sum(), change.std(ddof=1) * np.sqrt(BLOCKS)
        supported = bool(gain > error and bic < before[-1].bic)
    kinds = regimes(model, fit, series, threads=threads)
    mean = float(densities[seen].mean())
    return Candidate(model.n_states, fit, value, bic, mean, np.nan, blocks, gain, error, supported, kinds)


def block_of_each(series: Series) -> IntArray:
    """Which block (T,) an observation belongs to."""
    return np.arange(len(series)) * BLOCKS // len(series)


def held_out_densities(model: Model, fit: Parameters, series: Series, block: IntArray, threads: int | None) -> Array:
    """Log density (T,) of each observation given those before it, by parameters fitted without its block; NaN where
    missing."""
    y = np.concatenate([rows for _, rows in series.strides()])
    missing, lengths = np.isnan(y).any(1), np.diff(series.bounds)
    out = np.full(len(y), np.nan)
    for fold in range(FOLDS):
        left_out = block % FOLDS == fold
        rest = Series(np.where(left_out[:, None], np.nan, y), lengths)
        there = climbed(model, rest, fit, STEPS, threads).parameters
        out[left_out] = predictive_log_density(model, there, series, threads=threads)[left_out]
    out[missing] = np.nan
    return out


def chosen(found: list[Candidate]) -> int:
    """The fewest states within one standard error of the best held-out density."""
    best = max(found, key=lambda c: c.held_out)
    for c in found:
        behind = best.blocks - c.blocks
        if behind.sum() <= behind.std(ddof=1) * np.sqrt(BLOCKS):
            return c.n_states
    return best.n_states
