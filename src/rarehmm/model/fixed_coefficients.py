"""Fixed coefficients of inputs and lags: by name, in the user's units."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, BoolArray
from rarehmm.model.effects import Effects
from rarehmm.model.fixed import as_fixed_array

Keys = dict[str, tuple[str, int]]


def coefficient_keys(effects: Effects) -> Keys:
    """Name of each coefficient that can be fixed -> its block, and its place there.

    Names of inputs, with "log scale" or "slope" (of transitions) before them, and "lag 1", ..., as in
    ``Model.component_names``.  Parameters of the family of the same name take precedence.
    """
    kinds = (
        ("location", "", effects.location), ("switching", "", effects.switching),
        ("scale", "log scale ", effects.scale), ("slopes", "slope ", effects.slopes),
    )  # fmt: skip
    found = {
        f"{before}{name}": (block, i)
        for block, before, inputs in kinds
        for i, name in enumerate(inputs.names if inputs else ())
    }
    found |= {f"lag {m + 1}": ("lags", m) for m in range(effects.reach)}
    taken = {"transition", *(p.name for p in effects.family.parameters)}
    return {name: place for name, place in found.items() if name not in taken}


def fixed_coefficients(effects: Effects, allowed: BoolArray, fixed: Mapping[str, npt.ArrayLike]) -> Array:
    """Fixed coefficients (c,) of standardised inputs and of lags, NaN where free.

    ``fixed`` has them by name: numbers, or arrays with None where free, of a value for each column that has a
    predictor, if there are several, and each state, if they differ between states; (K, K) of slopes of transitions, up
    to a constant for each row.  ``allowed`` (K, K) are the transitions that can happen.
    """
    out = np.full(effects.size, np.nan)
    for name, (block, i) in coefficient_keys(effects).items():
        if name in fixed:
            effects.block(block, out)[i] = _values(effects, name, block, fixed[name]) / _unit(effects, block)[i]
    _check_lags(effects, effects.block("lags", out))
    for i, matrix in enumerate(effects.block("slopes", out)):
        _centre_rows(f"slope {effects.slopes.names[i] if effects.slopes else ''}", matrix, allowed)
    return out


def _values(effects: Effects, name: str, block: str, given: Any) -> Array:
    """The values of one name, in the shape that they have in their block."""
    shape = effects.shapes[block][1:]
    several = len(effects.moves.predicted) > 1
    dropped = block in ("location", "switching", "lags") and not several
    usual = shape[1:] if dropped else shape
    if block == "lags" and not effects.switches("lags"):
        usual = usual[:-1]
    values = as_fixed_array(name, given, () if np.ndim(given) == 0 else usual)
    if np.isinf(values).any():
        raise ValueError(f"fixed[{name!r}] is {given!r}; it must be finite.")
    return np.broadcast_to(values if values.ndim == 0 else values.reshape(shape), shape)


def _unit(effects: Effects, block: str) -> Array:
    """Coefficient (q,) in the user's units where that of a standardised input is 1; 1 for lags."""
    inputs = {"location": effects.location, "switching": effects.switching, "scale": effects.scale}
    found = (inputs | {"slopes": effects.slopes}).get(block)
    return np.ones(effects.reach) if found is None else found.in_user_units(np.ones(found.size))[0]


def _check_lags(effects: Effects, lags: Array) -> None:
    """Raise unless stationary lags (p, C, 1) are all free or all fixed, column by column."""
    ar = effects.autoregression
    if ar is None or not ar.is_stationary:
        return
    free = np.isnan(lags[..., 0])
    if (free.any(0) & ~free.all(0)).any():
        d = int(np.argmax(free.any(0) & ~free.all(0)))
        gone = int(np.argmax(free[:, d])) + 1
        raise ValueError(
            f"fixed has some lags of {type(ar).__name__}({ar.order}) and not 'lag {gone}'; which values are stationary "
            f"depends on all of them. Fix all, or use Intercept({ar.order})."
        )
    coefficients = np.zeros(effects.size)
    effects.block("lags", coefficients)[:] = np.nan_to_num(lags)
    effects.check(coefficients)


def _centre_rows(name: str, matrix: Array, allowed: BoolArray) -> None:
    """Let fixed rows of slopes (K, K) sum to zero over the allowed transitions; raise if a row is fixed in part."""
    free = np.isnan(matrix) & allowed
    for j in np.flatnonzero((free != allowed).any(1)):
        if free[j].any():
            raise ValueError(
                f"row {j} of fixed[{name!r}] is {matrix[j].tolist()}; a row of slopes must be free or fixed as a whole."
            )
        matrix[j] = np.where(allowed[j], matrix[j] - matrix[j, allowed[j]].mean(), 0.0)
