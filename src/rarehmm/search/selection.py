"""How many states?  By the density of observations that were left out, and by BIC.

The series is cut into blocks; each fold leaves every fifth of them out (they are missing, so that the dynamics go on
through them), fits the rest, and predicts the blocks left out one step ahead.  Numbers of states are compared block by
block: the standard error of their difference says whether a state is worth having.  Where one comes from a block or two
alone, leaving these out leaves nothing to learn it from, and BIC decides.

Fits of folds start from the fit to all data: which states there are has been seen, what they are like has not.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.pieces import pieces
from rarehmm.data.series import Series
from rarehmm.emissions.gaussian import Gaussian
from rarehmm.emissions.multivariate_gaussian import MultivariateGaussian
from rarehmm.engine.contracts.family import Family, observed_rows
from rarehmm.exact.passes import log_likelihood, predictive_log_density
from rarehmm.model.learnable import check_learnable
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Parameters
from rarehmm.search.initial import LONG, climbed, find_states, largest
from rarehmm.search.regimes import Regime, judge_states

BLOCKS, FOLDS = 20, 5
SURPRISING = 0.01  # share of the observations that are called the most surprising ones
STEPS = 200  # of EM


class Candidate(NamedTuple):
    """A number of states: parameters fitted to all data, log likelihood and BIC there, mean log density of observations
    left out, of all and of the most surprising ones, and what its states are.

    ``gain`` and ``error``: held-out log density above that of the best candidate with fewer states, and its standard
    error over blocks; ``alone``: whether its gain comes from two blocks alone; ``supported``: whether the gain, unless
    it is alone, and BIC speak for it.
    """

    n_states: int
    parameters: Parameters
    log_likelihood: float
    bic: float
    held_out: float
    surprising: float
    blocks: Array
    own_blocks: Array
    gain: float
    error: float
    alone: bool
    supported: bool
    regimes: list[Regime]


class Selection(NamedTuple):
    """Candidates by number of states, the number chosen (the last that is supported beside those with fewer states),
    and the numbers that could not be fitted, with the reasons."""

    best: int
    candidates: list[Candidate]
    refused: dict[int, str]

    def describe(self) -> str:
        """The curve as a table, and words about states that the data do not support."""
        lines = ["states  held-out  gain (standard error)   of the surprising   BIC above the best"]
        lowest = min(c.bic for c in self.candidates)
        for c in self.candidates:
            gain = f"{c.gain:+.5f} ({c.error:.5f})" if np.isfinite(c.gain) else ""
            mark = " <- chosen" if c.n_states == self.best else ""
            lines.append(f"{c.n_states:6}{c.held_out:10.4f}  {gain:22}{c.surprising:19.3f}{c.bic - lowest:21.1f}{mark}")
        for c in self.candidates[1:]:
            if c.alone:
                says = "for" if c.supported else "against"
                lines.append(
                    f"{c.n_states} states: what is left out cannot tell (one or two blocks); BIC is {says} it."
                )
            elif not c.supported:
                lines.append(f"{c.n_states} states: no better than fewer; the data do not support it.")
        lines += [f"{K} states: not fitted ({why})." for K, why in self.refused.items()]
        for r in self.of(self.best).regimes:
            if r.kind != "common":
                lines.append(f"with {self.best} states, state {r.state} is {r.kind}: {r.message}.")
        return "\n".join(lines)

    def of(self, n_states: int) -> Candidate:
        """The candidate with so many states."""
        for c in self.candidates:
            if c.n_states == n_states:
                return c
        raise ValueError(
            f"{n_states} states were not compared; {', '.join(str(c.n_states) for c in self.candidates)} were."
        )


def select_n_components(
    y: Any, n_components: int | Iterable[int] = range(1, 6), *, family: Family | None = None, threads: int | None = None
) -> Selection:
    """Compare numbers of states by observations that are left out of the fit, and by BIC.

    Parameters
    ----------
    y
        Observations: whatever ``Series`` takes, or a Series.  Of more than a million, evenly spaced pieces of a
        million together are looked at.
    n_components
        Numbers of states to compare, such as ``range(1, 6)``.
    family
        Emission density; Gaussian by default.

    Examples
    --------
    >>> y = np.random.default_rng(0).normal(size=4000)
    >>> y[1000:1050] += 6
    >>> select_n_components(y, range(1, 4)).best
    2
    """
    series = y if isinstance(y, Series) else Series(y)
    if family is None:
        family = Gaussian() if series.n_columns == 1 else MultivariateGaussian(series.n_columns)
    numbers = sorted({n_components} if isinstance(n_components, int) else set(n_components))
    if not numbers:
        raise ValueError("n_components is empty; give numbers of states to compare, such as range(1, 6).")
    check_learnable(family, numbers[0], series)
    series = pieces(series, LONG, BLOCKS)
    block = block_of_each(series)
    found: list[Candidate] = []
    best, refused, densities = 0, {}, []
    for K in numbers:
        model = Model(family, K, default_priors(family, 1, series))
        try:
            start = find_states(model, series, threads=threads)[0].parameters
        except ValueError as error:
            if not found:
                raise
            refused[K] = str(error)
            continue
        fit = climbed(model, series, start, STEPS, threads).parameters
        densities.append(held_out_densities(model, fit, series, block, threads))
        found.append(judged(model, fit, series, densities[-1], block, found[best] if found else None, threads))
        best = len(found) - 1 if found[-1].supported else best
    surprise = -np.mean(densities, axis=0)
    hardest = largest(np.where(np.isnan(surprise), -np.inf, surprise), max(1, int(SURPRISING * len(surprise))))
    found = [c._replace(surprising=float(d[hardest].mean())) for c, d in zip(found, densities, strict=True)]
    return Selection(found[best].n_states, found, refused)


def judged(
    model: Model,
    fit: Parameters,
    series: Series,
    densities: Array,
    block: IntArray,
    before: Candidate | None,
    threads: int | None,
) -> Candidate:
    """A fit with held-out log densities (T,), beside the best candidate before it."""
    seen = ~np.isnan(densities)

    def by_block(values: Array) -> Array:
        return np.bincount(block[seen], values[seen], BLOCKS).astype(float)

    value = log_likelihood(model, fit, series, threads=threads)
    own = by_block(predictive_log_density(model, fit, series, threads=threads))
    blocks, bic = by_block(densities), -2 * value + model.size * np.log(seen.sum())
    gain, error, alone, supported = np.nan, np.nan, False, True
    if before is not None:
        change = (blocks - before.blocks) / seen.sum()
        gain, error = change.sum(), change.std(ddof=1) * np.sqrt(BLOCKS)
        rise = np.maximum(own - before.own_blocks, 0.0)
        alone = bool(np.sort(rise)[-2:].sum() > 0.8 * rise.sum())
        supported = bool(bic < before.bic and (alone or gain > error))
    kinds = judge_states(model, fit, series, threads=threads)
    mean = float(densities[seen].mean())
    return Candidate(model.n_states, fit, value, bic, mean, np.nan, blocks, own, gain, error, alone, supported, kinds)


def block_of_each(series: Series) -> IntArray:
    """Which block (T,) an observation belongs to."""
    return np.arange(len(series)) * BLOCKS // len(series)


def held_out_densities(model: Model, fit: Parameters, series: Series, block: IntArray, threads: int | None) -> Array:
    """Log density (T,) of each observation given those before it, by parameters fitted without its block; NaN where
    missing."""
    y = np.concatenate([rows for _, rows in series.strides()])
    missing, lengths = ~observed_rows(model.family, y), np.diff(series.bounds)
    out = np.full(len(y), np.nan)
    for fold in range(FOLDS):
        left_out = block % FOLDS == fold
        if (missing | left_out).all():
            other = fit
        else:
            rest = Series(np.where(left_out[:, None], np.nan, y), lengths)
            other = climbed(model, rest, fit, STEPS, threads).parameters
        out[left_out] = predictive_log_density(model, other, series, threads=threads)[left_out]
    out[missing] = np.nan
    return out
