"""Kernel that checks on lanes how inputs move a family: its log densities and scores, row by row."""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import Family, log_density, score, with_log_scale, with_predictor
from rarehmm.engine.dispatch import kernel, provides, specialise
from rarehmm.engine.kernels.messages import constants, observation
from rarehmm.engine.lanes import LANES, lane_array, store


def add_inputs(family: Any, y: Any, c: Any, eta: Any, zeta: Any) -> Any:
    """Observation and constants after the linear predictor and the log scale, where a family has them."""
    y, c = with_predictor(family, y, c, eta) if provides(with_predictor, family) else (y, c)
    return with_log_scale(family, y, c, zeta) if provides(with_log_scale, family) else (y, c)


def _both(family: Any, y: Any, c: Any, eta: Any, zeta: Any) -> Any:
    x, here = with_predictor(family, y, c, eta)
    return with_log_scale(family, x, here, zeta)


def _predictor(family: Any, y: Any, c: Any, eta: Any, zeta: Any) -> Any:
    return with_predictor(family, y, c, eta)


def _log_scale(family: Any, y: Any, c: Any, eta: Any, zeta: Any) -> Any:
    return with_log_scale(family, y, c, zeta)


def _neither(family: Any, y: Any, c: Any, eta: Any, zeta: Any) -> Any:
    return y, c


def _chosen(family: Any, *rest: Any) -> Any:
    cls = family.instance_class
    if cls in with_predictor.registry:
        return _both if cls in with_log_scale.registry else _predictor
    return _log_scale if cls in with_log_scale.registry else _neither


specialise(add_inputs, _chosen)


@kernel
def fill(family, point, k, rows, buffer, column, density, slopes):
    """Log densities (n,) and scores (n, P) of rows (3, n, D): observations, linear predictors and log scales.

    ``buffer`` (3, D, LANES) and ``column`` (1, LANES) are scratch.
    """
    n = len(density)
    for first in range(0, n, LANES):
        size = min(LANES, n - first)
        for w in range(LANES):
            for i in range(3):
                for d in range(rows.shape[2]):
                    buffer[i, d, w] = rows[i, first + min(w, size - 1), d]
        eta, zeta = observation(family, buffer, 1), observation(family, buffer, 2)
        c = constants(family, point.phi, point.c, k)
        y, c_moved = add_inputs(family, observation(family, buffer, 0), c, eta, zeta)
        store(column, (0,), log_density(family, y, c_moved))
        for w in range(size):
            density[first + w] = column[0, w]
        found = score(family, y, c_moved)
        for i in range(len(found)):
            store(column, (0,), found[i])
            for w in range(size):
                slopes[first + w, i] = column[0, w]


def moved_densities(family: Family, point: Any, k: int, y: Array, eta: Array, zeta: Array) -> tuple[Array, Array]:
    """Log densities (n,) and scores (n, P) of rows y (n, D) in state k of a ``Point``, after inputs (n, D)."""
    density, slopes = np.empty(len(y)), np.empty((len(y), point.phi.shape[1]))
    fill(family, point, k, np.stack([y, eta, zeta]), lane_array(3, y.shape[1]), lane_array(1), density, slopes)
    return density, slopes
