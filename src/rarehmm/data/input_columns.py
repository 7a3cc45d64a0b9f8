"""Input columns of a series: those of observations and those of transitions, side by side, with their names."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rarehmm.data.sources.combined import Beside
from rarehmm.data.tables import Table


class InputColumns(NamedTuple):
    """Input columns (T, m) in parts.

    ``names`` are those of all columns, ``observation_names`` and ``transition_names`` those of the columns that were
    given for observations and for transitions.
    """

    parts: tuple[Any, ...]
    names: tuple[str, ...]
    observation_names: tuple[str, ...]
    transition_names: tuple[str, ...]


def input_columns(
    exog: Sequence[Table], transition: Sequence[Table], titles: tuple[Any, Any] = (None, None)
) -> InputColumns:
    """Return the columns of ``exog`` and ``exog_transition``, each with one table for each part of ``y``.

    A column that is in both is kept once.  ``titles`` are the names of pandas Series without columns.
    """
    first = column_names(exog, "exog", "x", titles[0])
    second = column_names(transition, "exog_transition", "z", titles[1])
    for name in set(first) & set(second):
        i, j = first.index(name), second.index(name)
        if not all(_same(one.values, i, other.values, j) for one, other in zip(exog, transition, strict=True)):
            raise ValueError(
                f"exog and exog_transition have a column {name!r} each, and they differ or are not in memory. Rename "
                f"one of them, or leave it out of exog_transition and pass transitions=[{name!r}] to RareHMM."
            )
    new = [j for j, name in enumerate(second) if name not in first]
    parts = [one.values for one in exog or transition]
    if exog and new:
        pairs = zip(parts, (other.values for other in transition), strict=True)
        parts = [_beside(one, other, new) for one, other in pairs]
    return InputColumns(tuple(parts), (*first, *(second[j] for j in new)), first, second)


def _same(one: Any, i: int, other: Any, j: int) -> bool:
    """Whether a column of a table in memory is that of another one."""
    in_memory = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return in_memory and np.array_equal(one[:, i], other[:, j], equal_nan=True)


def _beside(one: Any, other: Any, columns: list[int]) -> Any:
    """A table, followed by some columns of another one."""
    if isinstance(other, np.ndarray):
        other = other[:, columns]
        if isinstance(one, np.ndarray):
            return np.column_stack([one, other]).astype(float)
    return Beside([one, other])


def column_names(tables: Sequence[Table], what: str, letter: str, title: Any = None) -> tuple[str, ...]:
    """Return the names of the columns: those of the first table, or a letter and a number."""
    if not tables:
        return ()
    width = tables[0].values.shape[1]
    names = tables[0].names
    for i, other in enumerate(tables):
        if other.names != names:
            raise ValueError(f"{what}[{i}] has the columns {other.names} and {what}[0] {names}; they must agree.")
    if names is None:
        names = (title,) if isinstance(title, str) else tuple(f"{letter}{i}" for i in range(width))
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{what} has {names.count(name)} columns named {name!r}; rename them.")
    return names


def are_default(names: tuple[str, ...]) -> bool:
    """Whether columns have the names that ``column_names`` gives where there are none."""
    m = sum(name.startswith("x") for name in names)
    return names == (*(f"x{i}" for i in range(m)), *(f"z{i}" for i in range(len(names) - m)))
