"""Draws in their own units, with their states in a stable order."""

from typing import NamedTuple

import numpy as np

from rarehmm.model import Model
from rarehmm.series import Array


class Draws(NamedTuple):
    """``phi`` (..., K, P) and ``transition`` (..., K, K) of many draws."""

    phi: Array
    transition: Array


def in_order(model: Model, theta: Array, parameter: int = 0) -> Draws:
    """Draws theta (..., d) in their own units, the states of each ordered by one parameter, the first by default.

    The identifiability constraint of the paper's section 4.1, mu_1 < mu_2 < ..., imposed after sampling: the posterior
    does not change when states are renamed, so each draw may be renamed on its own.
    """
    phi, transition = model.unpack_all(theta)
    order = np.argsort(phi[..., parameter], axis=-1, kind="stable")  # (..., K)
    rows = np.take_along_axis(transition, order[..., :, None], axis=-2)
    return Draws(
        np.take_along_axis(phi, order[..., None], axis=-2), np.take_along_axis(rows, order[..., None, :], axis=-1)
    )
