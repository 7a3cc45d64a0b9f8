"""Number of states, by blocked cross-validation and BIC.

The series is cut into blocks.  Each fold holds out every fifth block (as missing values, so that the hidden chain runs
on through them), fits the rest, and predicts the held-out blocks one step ahead.  Numbers of states are compared block
by block: the standard error of their difference shows whether a further state improves predictions.  If the gain comes
from only one or two blocks, nothing is left to learn the state from when these are held out, and BIC decides alone.

The fit of each fold starts from the fit to all data: it has seen which states exist, but estimates their parameters
afresh.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import threads_of
from rarehmm.data.pieces import pieces
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import observed_rows
from rarehmm.exact.passes import log_likelihood, predictive_log_density
from rarehmm.model.learnable import check_learnable, check_observed
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Parameters
from rarehmm.search.initial import LONG, climb_briefly, find_states, largest_indices
from rarehmm.search.regimes import Regime, judge_states
from rarehmm.specification.families import family_of

BLOCKS, FOLDS = 20, 5
SURPRISING = 0.01  # share of the observations that count as the most surprising ones
STEPS = 200  # EM steps


class Candidate(NamedTuple):
    """A number of states and how well it does.

    Attributes
    ----------
    n_states : int
    parameters : Parameters
        Fitted to all data.
    log_likelihood, bic : float
        Of the fit to all data.
    held_out, surprising : float
        Mean held-out log density, over all observations and over the most surprising 1%.
    blocks, own_blocks : array
        Sum of the log densities in each block, held out and under the fit to all data.
    gain, error : float
        Increase in mean held-out log density over the best candidate with fewer states, and its standard error over
        blocks; NaN for the first candidate.
    from_few_blocks : bool
        Whether the improvement comes from only one or two blocks.
    supported : bool
        Whether BIC favours this number and so does the gain, which is disregarded if it comes from only a few blocks.
    regimes : list of Regime
        What its states are.
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
    from_few_blocks: bool
    supported: bool
    regimes: list[Regime]


class Selection(NamedTuple):
    """Comparison of numbers of states.

    Attributes
    ----------
    best : int
        The chosen number: the largest that the data support.
    candidates : list of Candidate
        The numbers compared, in ascending order.
    refused : dict
        Numbers that could not be fitted, and why.
    """

    best: int
    candidates: list[Candidate]
    refused: dict[int, str]

    def describe(self) -> str:
        """Summarise the comparison as a table, followed by remarks on numbers of states and on the states chosen."""
        lines = ["states  held-out  gain (standard error)  most surprising 1%     BIC above lowest"]
        lowest = min(c.bic for c in self.candidates)
        for c in self.candidates:
            gain = f"{c.gain:+.5f} ({c.error:.5f})" if np.isfinite(c.gain) else ""
            mark = " <- chosen" if c.n_states == self.best else ""
            lines.append(f"{c.n_states:6}{c.held_out:10.4f}  {gain:22}{c.surprising:19.3f}{c.bic - lowest:21.1f}{mark}")
        for c in self.candidates[1:]:
            if c.from_few_blocks:
                favours = "favours" if c.supported else "does not favour"
                lines.append(
                    f"{c.n_states} states: cross-validation is inconclusive (the gain comes from one or two blocks); "
                    f"BIC {favours} this number."
                )
            elif not c.supported:
                lines.append(f"{c.n_states} states: not supported by the data; no better than fewer states.")
        lines += [f"{K} states: not fitted ({why.removesuffix('.')})." for K, why in self.refused.items()]
        for r in self.of(self.best).regimes:
            if r.kind != "common":
                lines.append(f"With {self.best} states, state {r.state} is {r.kind}: {r.message}.")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.describe()

    def of(self, n_states: int) -> Candidate:
        """The candidate with ``n_states`` states."""
        for c in self.candidates:
            if c.n_states == n_states:
                return c
        raise ValueError(
            f"{n_states} states were not compared; {', '.join(str(c.n_states) for c in self.candidates)} were."
        )


def select_n_components(
    y: Any, n_components: int | Iterable[int] = range(1, 6), *, emission: Any = "gaussian", n_jobs: int | None = None
) -> Selection:
    """Choose the number of states by cross-validation and BIC.

    Parameters
    ----------
    y : array-like or Series
        Observations, in any form that ``Series`` accepts.  Of a series with more than a million observations, evenly
        spaced pieces with a million observations in total are used.
    n_components : int or iterable of int
        Numbers of states to compare, such as ``range(1, 6)``.
    emission : str, family or list of these
        Emission family, as in ``RareHMM``.
    n_jobs : int, optional
        Number of threads; None or -1: one per core.

    Returns
    -------
    Selection

    Examples
    --------
    >>> y = np.random.default_rng(0).normal(size=4000)
    >>> y[1000:1050] += 6
    >>> select_n_components(y, range(1, 4)).best
    2
    """
    series = y if isinstance(y, Series) else Series(y)
    family, threads = family_of(emission, series), threads_of(n_jobs)
    numbers = sorted({n_components} if isinstance(n_components, int) else set(n_components))
    if not numbers:
        raise ValueError("n_components is empty; pass numbers of states to compare, such as range(1, 6).")
    check_learnable(family, numbers[0], series)
    check_observed(series)
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
        fit = climb_briefly(model, series, start, STEPS, threads).parameters
        densities.append(held_out_densities(model, fit, series, block, threads))
        found.append(evaluate(model, fit, series, densities[-1], block, found[best] if found else None, threads))
        best = len(found) - 1 if found[-1].supported else best
    surprise = -np.mean(densities, axis=0)
    hardest = largest_indices(np.where(np.isnan(surprise), -np.inf, surprise), max(1, int(SURPRISING * len(surprise))))
    found = [c._replace(surprising=float(d[hardest].mean())) for c, d in zip(found, densities, strict=True)]
    return Selection(found[best].n_states, found, refused)


def evaluate(
    model: Model,
    fit: Parameters,
    series: Series,
    densities: Array,
    block: IntArray,
    before: Candidate | None,
    threads: int | None,
) -> Candidate:
    """Evaluate a fit and its held-out log densities (T,) against the best candidate with fewer states, ``before``."""
    seen = ~np.isnan(densities)

    def by_block(values: Array) -> Array:
        return np.bincount(block[seen], values[seen], BLOCKS).astype(float)

    value = log_likelihood(model, fit, series, threads=threads)
    own = by_block(predictive_log_density(model, fit, series, threads=threads))
    blocks, bic = by_block(densities), -2 * value + model.size * np.log(seen.sum())
    gain, error, from_few_blocks, supported = np.nan, np.nan, False, True
    if before is not None:
        change = (blocks - before.blocks) / seen.sum()
        gain, error = change.sum(), change.std(ddof=1) * np.sqrt(BLOCKS)
        rise = np.maximum(own - before.own_blocks, 0.0)
        from_few_blocks = bool(np.sort(rise)[-2:].sum() > 0.8 * rise.sum())
        supported = bool(bic < before.bic and (from_few_blocks or gain > error))
    kinds = judge_states(model, fit, series, threads=threads)
    mean = float(densities[seen].mean())
    return Candidate(
        model.n_states, fit, value, bic, mean, np.nan, blocks, own, gain, error, from_few_blocks, supported, kinds
    )


def block_of_each(series: Series) -> IntArray:
    """Block (T,) that each observation belongs to."""
    return np.arange(len(series)) * BLOCKS // len(series)


def held_out_densities(model: Model, fit: Parameters, series: Series, block: IntArray, threads: int | None) -> Array:
    """One-step predictive log density (T,) of each observation under a fit without its block; NaN where missing."""
    y = np.concatenate([rows for _, rows in series.strides()])
    missing, lengths = ~observed_rows(model.family, y), np.diff(series.bounds)
    out = np.full(len(y), np.nan)
    for fold in range(FOLDS):
        left_out = block % FOLDS == fold
        if (missing | left_out).all():
            other = fit
        else:
            rest = Series(np.where(left_out[:, None], np.nan, y), lengths)
            other = climb_briefly(model, rest, fit, STEPS, threads).parameters
        out[left_out] = predictive_log_density(model, other, series, threads=threads)[left_out]
    out[missing] = np.nan
    return out
