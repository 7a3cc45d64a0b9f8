"""Data as users pass them: a ``Series``, or what one is made of; and arguments in places where they do not belong."""

from copy import copy
from typing import Any

import numpy as np

from rarehmm.data.series import Series
from rarehmm.data.tables import sequences


def as_series(
    X: Any,
    lengths: Any = None,
    *,
    exog: Any = None,
    exog_transition: Any = None,
    states: Any = None,
    executor: Any = None,
    **more: Any,
) -> Series:
    """Coerce the input to a Series."""
    if is_table_of_numbers(lengths):
        raise ValueError(
            f"lengths is a {type(lengths).__name__} of numbers that are no lengths of sequences. Pass inputs by name: "
            "exog=..."
        )
    if not isinstance(X, Series):
        return Series(
            X, lengths, exog=exog, exog_transition=exog_transition, states=states, executor=executor, **more
        )  # fmt: skip
    if lengths is not None:
        raise ValueError("X is a Series, which already has its own sequences; omit lengths.")
    for name, given in (("exog", exog), ("exog_transition", exog_transition), ("states", states)):
        if given is not None:
            raise ValueError(f"X is a Series, which has its own inputs; pass {name} to Series, and omit it here.")
    series: Series = X if executor is None else copy(X)
    series.executor = executor or series.executor
    return series


def refuse_lengths(y: Any, series: Series) -> None:
    """Raise ValueError if ``y`` looks like lengths: the second argument is ``y`` here, but ``lengths`` in hmmlearn."""
    if y is not None and np.ndim(y) == 1 and len(y) < len(series) and np.sum(y) == len(series):
        raise ValueError("the second argument looks like the lengths of sequences; pass them by name: lengths=...")


def refuse_inputs(y: Any) -> None:
    """Raise ValueError if ``y`` looks like inputs: the second argument is ``y`` here, and ignored."""
    if is_table_of_numbers(y):
        raise ValueError(
            f"the second argument, y, is a {type(y).__name__} that is not used: scikit-learn passes labels there. Pass "
            "inputs by name: exog=..., known states as states=..., lengths of sequences as lengths=..."
        )


def refuse_unused(exog: Any, exog_transition: Any) -> None:
    """Raise ValueError if inputs are given to a model without any."""
    for name, given in (("exog", exog), ("exog_transition", exog_transition)):
        if given is not None:
            raise ValueError(f"{name} is given, and the model was fitted without inputs; omit it, or fit with {name}=.")


def split_inputs(name: str, given: Any, X: Any, horizon: int) -> tuple[Any, Any]:
    """Return the inputs of the rows of X, None if it is a Series with its own, and those of the rows to come."""
    if given is None or isinstance(X, Series):
        return None, given
    if sequences(X) is not None:
        raise ValueError(f"X is a list of sequences; pass X=Series(y, {name}=[...]), and {name}= of the rows to come.")
    n, T = len(given), len(X)
    if n < T + horizon:
        raise ValueError(
            f"{name} has {n} rows; a forecast of {horizon} rows after the {T} of X needs {T + horizon}: those of X "
            "and those to come."
        )
    rows = given.iloc if hasattr(given, "iloc") else given
    return rows[: n - horizon], rows[n - horizon :]


def is_table_of_numbers(given: Any) -> bool:
    """Whether this is a table, or floating-point numbers, rather than labels or lengths."""
    try:
        values = np.asarray(given) if isinstance(given, list | tuple) else given
    except ValueError:  # lists of different lengths
        return False
    kind = getattr(getattr(values, "dtype", None), "kind", "")
    return hasattr(values, "columns") or np.ndim(values) > 1 or kind == "f"
