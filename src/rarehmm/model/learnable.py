"""Whether a model can be learnt from a series: enough observations, not all equal, on a scale without overflow."""

import math

import numpy as np

from rarehmm.common.arrays import IntArray
from rarehmm.data.series import Series
from rarehmm.data.summaries import Summary
from rarehmm.engine.contracts.family import Family, check_family, domains

WIDEST = 1e60  # largest standard deviation accepted: its square is far from overflowing
DIGITS = 1e-11  # smallest one relative to the largest value: derivatives come from differences of 1e-4 of it


def check_learnable(family: Family, n_states: int, series: Series, lags: int = 0, given: bool = False) -> None:
    """Raise unless ``n_states`` states and ``lags`` lags can be learnt from the series.

    It must have at least as many observations as states, they must not all be equal, and a sequence must have more rows
    than there are lags.  If the first rows of sequences are ``given``, none may have fewer.
    """
    check_family(family)
    if not isinstance(n_states, int | np.integer) or n_states < 1:
        raise ValueError(f"n_states is {n_states!r}; it must be a positive integer.")
    series.check(domains(family), type(family).__name__)
    observed = len(series) - series.n_missing
    if observed < n_states:
        raise ValueError(
            f"y has {observed} observations, fewer than the {n_states} states requested; use fewer states."
        )
    check_lengths(series.bounds, lags, 1)
    shortest = int(np.argmin(np.diff(series.bounds)))
    rows = int(np.diff(series.bounds)[shortest])
    if given and lags > rows:
        place = series.place(int(series.bounds[shortest]))
        raise ValueError(
            f"order is {lags} and the sequence at {place} has {rows} rows, of which none could be explained; use at "
            f"most {rows} lags, or leave this sequence out."
        )
    if all(s.low >= s.high for s in series.summaries):
        value = ", ".join(f"{s.low:g}" for s in series.summaries)
        raise ValueError(
            (f"all {observed} observed values of y are" if observed > 1 else "the only observed value of y is")
            + f" {value}; a constant series has no regimes to find."
        )
    check_spreads(series)


def check_observed(series: Series) -> None:
    """Raise if a column has no observed value: nothing could be learnt about its parameters."""
    for i, column in enumerate(series.summaries):
        if column.size == 0:
            name = f"y[:, {i}]" if series.names is None else f"column {series.names[i]!r} of y"
            raise ValueError(f"{name} is missing (NaN) in all {len(series)} rows; leave this column out.")


def constant_columns(series: Series) -> list[str]:
    """Return a note on each of several columns that never changes."""
    names = series.names or [f"y[:, {i}]" for i in range(series.n_columns)]
    return [
        f"{name} is always {column.low:g} and says nothing about the states: leave it out"
        for name, column in zip(names, series.summaries, strict=True)
        if series.n_columns > 1 and column.low == column.high
    ]


def check_lengths(bounds: IntArray, lags: int, more: int = 0) -> None:
    """Raise unless one of the sequences between ``bounds`` has as many rows as there are lags, and ``more``."""
    longest = int(np.diff(bounds).max())
    if lags + more > longest:
        raise ValueError(
            f"order is {lags} and the longest sequence of y has {longest} rows; use at most {longest - 1} lags."
        )


def check_spreads(series: Series) -> None:
    """Raise if a column of the series is too small, too large or too narrow to compute with."""
    for i, column in enumerate(series.summaries):
        check_spread(column, "y" if series.n_columns == 1 else f"y[:, {i}]")


def check_spread(column: Summary, name: str) -> None:
    """Raise if the variation of a column overflows or underflows when squared, or is lost to rounding."""
    spread, largest = math.sqrt(column.variance), max(abs(column.low), abs(column.high))
    if column.low >= column.high:
        return
    if not 1 / WIDEST <= spread <= WIDEST:
        raise ValueError(
            f"{name} has a standard deviation of {spread:.3g}, with values from {column.low:.3g} to {column.high:.3g}; "
            f"it must lie between {1 / WIDEST:g} and {WIDEST:g}. Rescale the series, or deal with its outliers."
        )
    if spread < DIGITS * largest:
        raise ValueError(
            f"{name} has a standard deviation of {spread:.3g} but values up to {largest:.3g}: its variation is lost to "
            "rounding. Subtract its level first."
        )
