"""Fixed values: parameters that are held at a given value, and transitions that cannot happen."""

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.contracts.family import Family, hook
from rarehmm.model.parameters import NO_COEFFICIENTS
from rarehmm.model.stationary import closed_classes


class FixedValues(NamedTuple):
    """Fixed parameters ``phi`` (K, P), transition probabilities (K, K) and ``coefficients`` (c,), NaN where free.

    A fixed transition probability is either 0, or part of a row that is fixed as a whole.
    """

    phi: Array
    transition: Array
    coefficients: Array = NO_COEFFICIENTS

    @property
    def is_empty(self) -> bool:
        """Whether every parameter, transition and coefficient is free."""
        return all(bool(np.isnan(part).all()) for part in self)

    @property
    def allowed(self) -> BoolArray:
        """Mask (K, K) of the transitions that can happen."""
        return np.asarray(self.transition != 0)

    def fill_phi(self, phi: Array) -> Array:
        """Replace the fixed entries of emission parameters (..., K, P) by their values."""
        return np.where(np.isnan(self.phi), phi, self.phi)

    def fill_transition(self, transition: Array) -> Array:
        """Replace the fixed entries of transition matrices (..., K, K) by their values.

        The free entries of each row are rescaled so that it still sums to one.
        """
        rest = np.where(self.allowed, np.maximum(transition, 1e-300), 0.0)
        rest = np.where(self.allowed.all(1, keepdims=True), transition, rest / rest.sum(-1, keepdims=True))
        return np.where(np.isnan(self.transition), rest, self.transition)

    def fill_coefficients(self, coefficients: Array) -> Array:
        """Replace the fixed entries of coefficients (..., c) by their values."""
        return np.where(np.isnan(self.coefficients), coefficients, self.coefficients)

    def exchangeable_groups(self, start: Array | None, reordered: Callable[[Array, IntArray], Array]) -> list[IntArray]:
        """Groups of states that no fixed value and no start probability distinguishes.

        ``reordered`` permutes the states of coefficients.
        """
        K = len(self.phi)
        distribution = np.zeros(K) if start is None else start
        groups: list[list[int]] = []
        for k in range(K):
            for group in groups:
                swapped = np.arange(K)
                swapped[[group[0], k]] = k, group[0]
                new = FixedValues(
                    self.phi[swapped],
                    self.transition[np.ix_(swapped, swapped)],
                    reordered(self.coefficients, swapped),
                )
                same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(new, self, strict=True))
                if same and distribution[group[0]] == distribution[k]:
                    group.append(k)
                    break
            else:
                groups.append([k])
        return [np.array(group) for group in groups]


def fixed_values(
    family: Family, K: int, fixed: Mapping[str, npt.ArrayLike] | None, others: Collection[str] = ()
) -> FixedValues:
    """Read ``fixed``, a mapping from parameter names and ``transition`` to values, with NaN or None where free.

    It may have the names of ``others``, which are left to others.
    """
    names = [p.name for p in family.parameters]
    phi, transition = np.full((K, len(names)), np.nan), np.full((K, K), np.nan)
    if fixed is not None and not isinstance(fixed, Mapping):
        raise TypeError(f"fixed is {fixed!r}; pass a dictionary such as {{'{names[0]}': [0, None, None]}}.")
    for name, given in (fixed or {}).items():
        if name in others:
            continue
        if name not in (*names, "transition"):
            close = difflib.get_close_matches(str(name), [*names, "transition", *others], 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"fixed has the unknown key {name!r}; valid keys are {', '.join([*names, *others])} and "
                f"transition.{hint}"
            )
        values = as_fixed_array(name, given, (K, K) if name == "transition" else (K,))
        if name == "transition":
            transition = check_rows(values)
        else:
            check_support(name, values, family.parameters[names.index(name)].support)
            phi[:, names.index(name)] = values
    return FixedValues(phi, transition)


def as_fixed_array(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    """Convert ``fixed[name]`` to an array of the given shape, or raise."""
    try:
        values = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"fixed[{name!r}] is {given!r}; pass numbers, with None for free entries.") from None
    if values.shape != shape:
        raise ValueError(
            f"fixed[{name!r}] has shape {values.shape}; it must have shape {shape}, with None for free entries."
        )
    return values


def check_support(name: str, values: Array, support: str) -> None:
    """Raise if a fixed value lies outside the support of its parameter."""
    bad = np.isinf(values) | ((support == "positive") & (values <= 0))
    if bad.any():
        k = int(np.argmax(bad))
        raise ValueError(f"fixed[{name!r}][{k}] is {values[k]:g}; it must be {support} and finite.")


def check_rows(transition: Array) -> Array:
    """Check fixed transition probabilities (K, K), and fill in what follows from them.

    Where all other transitions of a row are forbidden, the remaining one has probability 1.
    """
    out = transition.copy()
    if ((out < 0) | (out > 1)).any():
        j, k = np.argwhere((out < 0) | (out > 1))[0]
        raise ValueError(f"fixed['transition'][{j}][{k}] is {out[j, k]:g}; probabilities must lie between 0 and 1.")
    for j, row in enumerate(out):
        free = np.isnan(row)
        if free.sum() == 1 and not row[~free].any():
            row[free] = 1.0
        elif free.any() and row[~free].any():
            raise ValueError(
                f"row {j} of fixed['transition'] is {transition[j].tolist()}; a row must either consist of "
                "forbidden (0) and free (None) transitions, or be fixed as a whole."
            )
        elif not free.any() and abs(row.sum() - 1) > 1e-6:
            raise ValueError(f"row {j} of fixed['transition'] sums to {row.sum():g}; a fixed row must sum to one.")
        elif not free.any():
            row /= row.sum()
    reachable = closed_classes(np.where(np.isnan(out), 1.0, out))
    if len(reachable) > 1 or len(reachable[0]) < len(out):
        raise ValueError(
            f"with fixed['transition'] the chain can never leave the states {reachable[0].tolist()} once it has "
            "entered them; every state must be reachable from every other, directly or through others."
        )
    return out


def check_tied(tied: Any, family: Family, values: FixedValues) -> tuple[str, ...]:
    """Names of the free parameters that all states share, checked.

    "covariance" stands for all parameters of a family of location and scale but its locations.
    """
    names = [p.name for p in family.parameters]
    if isinstance(tied, str) or not all(isinstance(name, str) for name in tied):
        raise TypeError(f"tied is {tied!r}; pass the names of parameters, such as ({names[-1]!r},).")
    if "covariance" in tied and hook(family, "log_scale"):
        spread = [name for name in names if name not in hook(family, "linear_predictor")]
        tied = [name for name in dict.fromkeys([*tied, *spread]) if name != "covariance"]
    for name in tied:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"tied has {name!r}, which {type(family).__name__} does not have; it has {', '.join(names)}.{hint}"
            )
        check_fixed_at_one_value(name, values.phi[:, names.index(name)])
    return tuple(name for name in tied if np.isnan(values.phi[0, names.index(name)]))


def check_fixed_at_one_value(name: str, values: Array) -> None:
    """Raise unless a tied parameter is free in all states, or fixed (K,) at one value in all."""
    free = np.isnan(values)
    given = [None if gone else float(value) for gone, value in zip(free, values, strict=True)]
    if free.any() and not free.all():
        raise ValueError(
            f"{name} is tied and fixed in some states only, {given}; fix it in all of them, or drop it from tied."
        )
    if len(set(given)) > 1:
        raise ValueError(
            f"{name} is tied and fixed at different values, {given}; fix it at one value, or drop it from tied."
        )
