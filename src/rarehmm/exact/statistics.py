"""Sufficient statistics of a family: how many there are, and which are kept for control variates."""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import Family, columns, complete_score, hook, prepare, statistics
from rarehmm.engine.dispatch import provides
from rarehmm.model.model import Model


def n_statistics(family: Family) -> int:
    """Number of statistics of the family, Q."""
    D, phi = columns(family), np.ones(len(family.parameters))
    return len(statistics(family, 1.0 if D == 1 else (1.0,) * D, prepare(family, phi)))


def n_summed(family: Family) -> int:
    """Number of statistics that kernels sum even if only scores are wanted: those of wide families."""
    return n_statistics(family) if hook(family, "wide") else 0


def control_statistics(model: Model, theta: Array, found: Any) -> Array:
    """Flatten sums to the statistics (..., C) of a control variate.

    For a family without ``complete_score`` these are gradients (..., d).
    """
    if not provides(complete_score, model.family):
        return model.gradient_from_expectations(theta, found.scores, found.pairs, found.first)
    shape = found.first.shape[:-1]
    parts = (found.counts, found.statistics, found.pairs, found.first)
    return np.concatenate([part.reshape(*shape, -1) for part in parts], axis=-1)
