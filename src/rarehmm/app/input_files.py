"""Columns of files in their roles: what is modelled, inputs of observations and of transitions, known states."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from rarehmm.app.settings import Settings
from rarehmm.data.sources.combined import Picked
from rarehmm.data.sources.table import Source


class FileColumns(NamedTuple):
    """Tables with the same rows: ``y`` is modelled; the others are None if there are none."""

    y: pd.DataFrame | Source
    exog: Any
    exog_transition: Any
    states: Any


def in_roles(table: pd.DataFrame | Source, settings: Settings) -> FileColumns:
    """Return the columns of a table as the settings say.

    An input of observations and transitions alike is among those of observations.
    """
    if not settings.inputs:
        return FileColumns(table, None, None, None)
    moving = [name for name in settings.exog_transition if name not in settings.exog]
    states = [] if settings.states_column is None else [settings.states_column]
    y, *others = (pick(table, names) for names in (settings.column, settings.exog, moving, states))
    return FileColumns(y, *others)


def pick(table: pd.DataFrame | Source, names: Sequence[str]) -> Any:
    """Return some columns of a table, with their names and its index; None if there are no names."""
    if not names:
        return None
    if isinstance(table, pd.DataFrame):
        return table[list(dict.fromkeys(names))]
    every = list(table.names or map(str, range(table.shape[1])))
    picked = Picked(table, [every.index(name) for name in names])
    picked.names, picked.index = tuple(names), table.index
    return picked
