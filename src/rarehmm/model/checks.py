"""Validation of the arrays and priors that a model is given."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import Prior


def check_distribution(distribution: npt.ArrayLike, K: int) -> Array:
    """Return ``distribution`` as a probability vector of K entries, or raise if it is not one."""
    values = as_numbers(distribution, "start")
    if values.shape != (K,):
        raise ValueError(f"start has shape {values.shape}; it must have one probability for each of the {K} states.")
    if not np.isfinite(values).all() or (values < 0).any() or abs(values.sum() - 1) > 1e-6:
        raise ValueError(
            f"start is {values.tolist()}, sum {values.sum():.6g}; probabilities must be nonnegative and sum to one."
        )
    return np.asarray(values / values.sum())


def check_labels(labels: Any, T: int, K: int, name: str = "labels") -> IntArray:
    """Return ``labels`` as T integers in 0..K-1, or raise if they are not."""
    x = np.asarray(labels)
    if x.shape != (T,) or x.dtype.kind not in "iu":
        raise ValueError(f"{name} has shape {x.shape} and dtype {x.dtype}; expected {T} integers.")
    if x.min() < 0 or x.max() >= K:
        bad = int(np.argmax((x < 0) | (x >= K)))
        raise ValueError(f"{name}[{bad}] is {x[bad]}; states must lie in 0..{K - 1}.")
    return x.astype(np.int64)


def first_row_in(series: Series, state: int) -> int:
    """The first row that is known to be in a state."""
    for low, rows in series.strides():
        found = np.flatnonzero(series.read_rows(low, low + len(rows)).states == state)
        if len(found) > 0:
            return low + int(found[0])
    raise ValueError(f"no row is known to be in state {state}.")


def check_prior(prior: Prior, name: str) -> None:
    """Raise if the settings of a prior do not define a density."""
    if not all(hasattr(prior, attribute) for attribute in ("log_density", "slope", "terms")):
        raise TypeError(f"the prior of {name!r} is {prior!r}; use Normal, InverseGamma, Gamma or Flat.")
    settings: dict[str, float] = getattr(prior, "_asdict", dict)()
    try:
        value = float(prior.log_density(np.ones(1))[0])
    except (ValueError, ZeroDivisionError, OverflowError, TypeError):
        value = math.nan
    if not math.isfinite(value) or any(v <= 0 for k, v in settings.items() if k != "mean"):
        raise ValueError(f"the prior of {name!r} is {prior}; variances, shapes, scales and rates must be positive.")


def as_numbers(values: npt.ArrayLike, name: str) -> Array:
    """Convert ``values`` to an array of floats, or raise a TypeError that names the argument."""
    try:
        if np.iscomplexobj(values):
            raise TypeError
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {values!r}; it must be numeric.") from None
