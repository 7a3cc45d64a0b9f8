"""Coefficients of inputs and lags by name, in the user's units, and the dimensions of each."""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.inputs import Inputs
from rarehmm.model.model import Model

# block of coefficients -> its name, and the dimension of its inputs
NAMES = {
    "location": ("coefficient", "input"),
    "switching": ("switching_coefficient", "switching_input"),
    "scale": ("log_scale_coefficient", "scale_input"),
    "lags": ("lag_coefficient", "lag"),
    "slopes": ("transition_coefficient", "transition_input"),
}


def inputs_by_block(model: Model) -> dict[str, Inputs]:
    """The inputs of each block of coefficients that has any."""
    e = model.every_effect
    given = {"location": e.location, "switching": e.switching, "scale": e.scale, "slopes": e.slopes}
    return {name: inputs for name, inputs in given.items() if inputs is not None}


def named_coefficients(model: Model, coefficients: Array) -> dict[str, Array]:
    """Coefficients (..., c) by name, per unit of the user's inputs, with the dimensions of ``dimensions``.

    Levels and transition probabilities remain those at the means of the inputs.
    """
    out, inputs, shapes = {}, inputs_by_block(model), model.every_effect.shapes
    for block, (name, _) in NAMES.items():
        if shapes[block][0] == 0:
            continue
        values = model.every_effect.block(block, coefficients)
        if block in inputs:
            first = np.moveaxis(values, -len(shapes[block]), 0)
            slopes, _ = inputs[block].in_user_units(first.reshape(len(first), -1))
            values = np.moveaxis(slopes.reshape(first.shape), 0, -len(shapes[block]))
        dropped = tuple(i - len(shapes[block]) for i, kept in enumerate(_kept(model, block)) if not kept)
        out[name] = np.squeeze(values, dropped)
    return out


def _kept(model: Model, block: str) -> list[bool]:
    """Whether each axis of a block is a dimension: columns only if there are several, states if coefficients switch."""
    several = len(model.every_effect.moves.predicted) > 1
    return {
        "location": [True, several],
        "switching": [True, several, True],
        "scale": [True],
        "lags": [True, several, model.every_effect.switches("lags")],
        "slopes": [True, True, True],
    }[block]


def dimensions(model: Model) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Dimensions of each coefficient by name, and coordinates of all dimensions: names of inputs, numbers of lags."""
    dims: dict[str, list[str]] = {}
    coords: dict[str, Any] = {}
    e, inputs = model.every_effect, inputs_by_block(model)
    for block, (name, first) in NAMES.items():
        if e.shapes[block][0] == 0:
            continue
        every = [first, "state", "state_to"] if block == "slopes" else [first, "column", "state"]
        dims[name] = [one for one, kept in zip(every, _kept(model, block), strict=False) if kept]
        coords[first] = inputs[block].names if block in inputs else list(range(1, e.reach + 1))
        if "column" in dims[name]:
            coords["column"] = e.moves.predicted.tolist()
    return dims, coords
