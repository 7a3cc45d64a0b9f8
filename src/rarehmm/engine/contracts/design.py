"""DOOR: ways of choosing windows.  One file per design: a function of the file's name that returns a ``Design``.

Its one argument is what each window says about theta (``windows.information.WindowInformation``); settings, such as the
uniform share ``eta``, follow by keyword and have defaults.  Weights of windows become probabilities by ``design``, with
one row for all components of theta or one row for each.  Mixing with a uniform share ensures that no window whose
gradient is not zero is left out.  A design uses no random numbers: points at which windows are looked at are given.

``rarehmm.check_design`` checks all of this.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array


class Design(NamedTuple):
    """``probabilities`` (rows, N): one row for all components, or one for each of the d components."""

    probabilities: Array


def design(weights: Array, eta: float) -> Design:
    r"""Probabilities :math:`(1 - \eta) a_n / \sum a + \eta / N` from weights a (rows, N).

    A row without any weight (a state that no window has) becomes uniform.
    """
    if not isinstance(eta, float | int | np.floating) or not 0 <= eta <= 1:
        raise ValueError(f"eta is {eta!r}; the uniform share must lie between 0 and 1.")
    weights = np.atleast_2d(np.asarray(weights, dtype=float))
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        i, n = np.argwhere(bad)[0]
        raise ValueError(f"the weight of window {n} in row {i} is {weights[i, n]}; it must be finite and not negative.")
    top, N = weights.max(1, keepdims=True), weights.shape[1]
    weights = weights / np.where(top > 0, top, 1.0)  # sums of huge weights would overflow
    total = weights.sum(1, keepdims=True)
    shares = np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1 / N)
    return Design((1 - eta) * shares + eta / N)


def pooled(found: Design) -> Design:
    """One row for all components, the mean of the rows: windows from all of them are then shared by all components."""
    return Design(found.probabilities.mean(0, keepdims=True))


def check_positive(found: Design) -> None:
    """Refuse a design that never draws some window: what that window says would be lost without notice."""
    if not isinstance(found, Design) or np.ndim(found.probabilities) != 2:
        raise TypeError(f"a Design with probabilities (rows, N) is needed, not {type(found).__name__}; see designs.")
    sums = found.probabilities.sum(1)
    if np.isfinite(sums).all() and (np.abs(sums - 1) > 1e-6).any():
        i = int(np.argmax(np.abs(sums - 1)))
        raise ValueError(f"row {i} of the design sums to {sums[i]:g}; probabilities must sum to one.")
    good = (found.probabilities > 0) & np.isfinite(found.probabilities)
    if not good.all():
        i, n = np.argwhere(~good)[0]
        raise ValueError(
            f"window {n} is never drawn for row {i} (probability {found.probabilities[i, n]:g}), which biases the "
            "gradient; mix with a uniform share, such as eta=0.1."
        )
