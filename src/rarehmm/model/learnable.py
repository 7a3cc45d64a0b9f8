"""Whether a model can be learnt from a series: enough observations, not all equal, on a scale without overflow."""

import math

import numpy as np

from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.engine.contracts.family import Family, check_family, domains

WIDEST = 1e60  # largest standard deviation accepted: its square is far from overflowing
DIGITS = 1e-11  # smallest one relative to the largest value: derivatives come from differences of 1e-4 of it


def check_learnable(family: Family, n_states: int, series: Series) -> None:
    """The door of everything that learns from a series: enough observations, and not all the same."""
    check_family(family)
    if not isinstance(n_states, int | np.integer) or n_states < 1:
        raise ValueError(f"n_states is {n_states!r}; it must be a whole number from 1.")
    series.check(domains(family), type(family).__name__)
    observed = len(series) - series.n_missing
    if observed < n_states:
        raise ValueError(f"y has {observed} observations and {n_states} states are asked for; use fewer states.")
    if all(s.low >= s.high for s in series.summaries):
        value = ", ".join(f"{s.low:g}" for s in series.summaries)
        raise ValueError(
            (f"all {observed} observed values of y are" if observed > 1 else "the only observed value of y is")
            + f" {value}; a series that never changes has no regimes to find."
        )
    check_spreads(series)


def check_spreads(series: Series) -> None:
    """Refuse a series of which a column cannot be computed with."""
    for i, column in enumerate(series.summaries):
        check_spread(column, "y" if series.n_columns == 1 else f"y[:, {i}]")


def check_spread(column: Summary, name: str) -> None:
    """Refuse a column whose changes are too small or too large to be squared, or hidden in the last digits."""
    spread, largest = math.sqrt(column.variance), max(abs(column.low), abs(column.high))
    if column.low >= column.high:
        return
    if not 1 / WIDEST <= spread <= WIDEST:
        raise ValueError(
            f"{name} has a standard deviation of {spread:.3g}, with values from {column.low:.3g} to {column.high:.3g}; "
            f"it must lie between {1 / WIDEST:g} and {WIDEST:g}. Rescale the series, or see to its outliers."
        )
    if spread < DIGITS * largest:
        raise ValueError(
            f"{name} has a standard deviation of {spread:.3g} and values up to {largest:.3g}: what changes is lost in "
            "the last digits of its numbers. Take its level away first."
        )
