"""What is known before the data are seen: parameters with a value of their own, transitions that cannot happen."""

import difflib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.contracts.family import Family
from rarehmm.model.stationary import closed_classes


class FixedValues(NamedTuple):
    """``phi`` (K, P) and ``transition`` (K, K), NaN where nothing is known.

    A transition that is known is 0, it never happens, or belongs to a row that is known as a whole.
    """

    phi: Array
    transition: Array

    @property
    def is_empty(self) -> bool:
        return bool(np.isnan(self.phi).all() and np.isnan(self.transition).all())

    @property
    def allowed(self) -> BoolArray:
        """Transitions (K, K) that may happen."""
        return np.asarray(self.transition != 0)

    def in_phi(self, phi: Array) -> Array:
        """Parameters (..., K, P) with known values in their place."""
        return np.where(np.isnan(self.phi), phi, self.phi)

    def in_rows(self, transition: Array) -> Array:
        """Transition matrices (..., K, K) with known values in their place; the others of a row share what is left."""
        rest = np.where(self.allowed, np.maximum(transition, 1e-300), 0.0)
        rest = np.where(self.allowed.all(1, keepdims=True), transition, rest / rest.sum(-1, keepdims=True))
        return np.where(np.isnan(self.transition), rest, self.transition)

    def exchangeable_groups(self, start: Array | None) -> list[IntArray]:
        """Groups of states that may change their names among each other: nothing known tells them apart."""
        K = len(self.phi)
        distribution = np.zeros(K) if start is None else start
        groups: list[list[int]] = []
        for k in range(K):
            for group in groups:
                swapped = np.arange(K)
                swapped[[group[0], k]] = k, group[0]
                new = FixedValues(self.phi[swapped], self.transition[np.ix_(swapped, swapped)])
                same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(new, self, strict=True))
                if same and distribution[group[0]] == distribution[k]:
                    group.append(k)
                    break
            else:
                groups.append([k])
        return [np.array(group) for group in groups]


def fixed_values(family: Family, K: int, fixed: Mapping[str, npt.ArrayLike] | None) -> FixedValues:
    """What ``fixed`` says, by the names of parameters and ``transition``; NaN or None where nothing is known."""
    names = [p.name for p in family.parameters]
    phi, transition = np.full((K, len(names)), np.nan), np.full((K, K), np.nan)
    if fixed is not None and not isinstance(fixed, Mapping):
        raise TypeError(f"fixed is {fixed!r}; a dictionary such as {{'{names[0]}': [0, None, None]}} is needed.")
    for name, given in (fixed or {}).items():
        if name not in (*names, "transition"):
            close = difflib.get_close_matches(str(name), [*names, "transition"], 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"fixed has {name!r}; there are {', '.join(names)} and transition.{hint}")
        values = numbers(name, given, (K, K) if name == "transition" else (K,))
        if name == "transition":
            transition = check_rows(values)
        else:
            check_support(name, values, family.parameters[names.index(name)].support)
            phi[:, names.index(name)] = values
    return FixedValues(phi, transition)


def numbers(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    try:
        values = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise TypeError(f"fixed[{name!r}] is {given!r}; numbers are needed, None where nothing is known.") from None
    if values.shape != shape:
        raise ValueError(
            f"fixed[{name!r}] has shape {values.shape}; {shape} is needed, with None where nothing is known."
        )
    return values


def check_support(name: str, values: Array, support: str) -> None:
    bad = np.isinf(values) | ((support == "positive") & (values <= 0))
    if bad.any():
        k = int(np.argmax(bad))
        raise ValueError(f"fixed[{name!r}][{k}] is {values[k]:g}; it must be {support}, and finite.")


def check_rows(transition: Array) -> Array:
    """Known transitions (K, K), checked; where all others of a row are forbidden, the last one is certain."""
    out = transition.copy()
    if ((out < 0) | (out > 1)).any():
        j, k = np.argwhere((out < 0) | (out > 1))[0]
        raise ValueError(f"fixed['transition'][{j}][{k}] is {out[j, k]:g}; probabilities lie between 0 and 1.")
    for j, row in enumerate(out):
        free = np.isnan(row)
        if free.sum() == 1 and not row[~free].any():
            row[free] = 1.0
        elif free.any() and row[~free].any():
            raise ValueError(
                f"row {j} of fixed['transition'] is {transition[j].tolist()}; a row has forbidden transitions (0) and "
                "unknown ones (None), or all of it is known."
            )
        elif not free.any() and abs(row.sum() - 1) > 1e-6:
            raise ValueError(f"row {j} of fixed['transition'] sums to {row.sum():g}; a row that is known sums to one.")
        elif not free.any():
            row /= row.sum()
    reachable = closed_classes(np.where(np.isnan(out), 1.0, out))
    if len(reachable) > 1 or len(reachable[0]) < len(out):
        raise ValueError(
            f"with fixed['transition'] the states {reachable[0].tolist()} are never left again, or never come back to "
            "others; every state must be reachable from every other, by way of others if need be."
        )
    return out
