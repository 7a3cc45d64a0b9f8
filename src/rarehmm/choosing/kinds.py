"""The kind of data in each column, and the emission families that suit it."""

from dataclasses import dataclass

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.domains import COUNTS
from rarehmm.data.series import Series

LARGE = 30.0  # standard deviation above which counts may be modelled as real numbers

Emission = str | list[str]


@dataclass(frozen=True)
class Kind:
    """Families that suit a series: the simplest first; ``base`` is that of the search for lags."""

    families: tuple[Emission, ...]
    base: Emission
    values: str  # "real", "positive", "count", "binary" or "several"

    @property
    def is_real(self) -> bool:
        """Whether a regression on the observations, or on their logarithms, makes sense."""
        return self.values in ("real", "positive", "several")


def kind_of(series: Series, y: Array) -> Kind:
    """Return the kind of a series, of which rows y (n, D) have been read."""
    each = [kind_of_column(series, y, d) for d in range(y.shape[1])]
    if len(each) == 1:
        return each[0]
    if all(one.is_real for one in each):
        return Kind(("gaussian",), "gaussian", "several")
    lists: list[Emission] = [[str(one.families[0]) for one in each], [str(one.base) for one in each]]
    return Kind(tuple(one for i, one in enumerate(lists) if one not in lists[:i]), lists[1], "several")


def kind_of_column(series: Series, y: Array, d: int) -> Kind:
    """Return the kind of a column."""
    column = y[:, d][~np.isnan(y[:, d])]
    low, high = series.summaries[d].low, series.summaries[d].high
    if low >= 0 and (column == np.floor(column)).all() and valid(series, COUNTS):
        if high <= 1:
            return Kind(("bernoulli",), "bernoulli", "binary")
        if series.summaries[d].variance < LARGE**2:
            return Kind(("poisson", "free_negative_binomial"), "free_negative_binomial", "count")
    if low > 0:
        return Kind(("gaussian", "free_student_t", "log_normal", "gamma"), "gaussian", "positive")
    return Kind(("gaussian", "free_student_t"), "gaussian", "real")


def valid(series: Series, domain: object) -> bool:
    """Whether a series of one column lies in a domain; of several columns, the rows that were read decide."""
    if series.n_columns > 1:
        return True
    try:
        series.check((domain,), "a family")  # type: ignore[arg-type]
    except ValueError:
        return False
    return True
