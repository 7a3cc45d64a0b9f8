"""How linear predictors and log scales move the parameters of a family."""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import REALS
from rarehmm.engine.contracts.family import Family, columns, domains, hook, returns_to


class Moves(NamedTuple):
    """How linear predictors move the parameters of a family.

    ``column`` (P,): column of the data whose predictor moves a parameter, -1 if none; ``logs`` (P,): whether it moves
    the logarithm; ``power`` (P,): power of the scale, 0 if it does not move with it; ``predicted`` (C,): columns with a
    predictor; ``level`` (D,): parameter that is the level of a column, -1 if observations do not return to one.
    """

    column: IntArray
    logs: IntArray
    power: Array
    predicted: IntArray
    level: IntArray


def moves(family: Family) -> Moves:
    """How linear predictors move the parameters of a family, from its declarations."""
    names = [p.name for p in family.parameters]
    column, logs = np.full(len(names), -1), np.zeros(len(names), dtype=np.int64)
    power, level = np.zeros(len(names)), np.full(columns(family), -1)
    for name in hook(family, "linear_predictor"):
        i = names.index(name)
        column[i] = family.parameters[i].own_column
        logs[i] = family.parameters[i].support == "positive"
    for d, domain in enumerate(domains(family)):
        own = np.flatnonzero(column == d)
        if len(own) == 1 and not logs[own[0]] and domain == REALS and names[own[0]] in returns_to(family):
            level[d] = own[0]
    for name, exponent in hook(family, "log_scale"):
        power[names.index(name)] = exponent
    return Moves(column, logs, power, np.unique(column[column >= 0]), level)
