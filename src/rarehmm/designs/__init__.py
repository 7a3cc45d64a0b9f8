"""DOOR: ways of choosing windows.  One file a way: a function to a ``Design``, probabilities over windows.

A design has one row of probabilities for all components of theta, or one row for each.  Weights come from what each
window says about theta (``WindowSums``: expectations given labels, or given a smoothing pass) and are mixed with a
uniform share eta, so that no window whose gradient is not zero is left out.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.series import Array


class Design(NamedTuple):
    """``probabilities`` (rows, N): one row for all components, or one for each of the d components."""

    probabilities: Array


def design(weights: Array, eta: float) -> Design:
    r"""Probabilities :math:`(1 - \eta) a_n / \sum a + \eta / N` from weights a (rows, N).

    A row without any weight (a state that no window has) becomes uniform.
    """
    if not 0 <= eta <= 1:
        raise ValueError(f"eta is {eta}; the uniform share must lie between 0 and 1.")
    bad = ~np.isfinite(weights) | (weights < 0)
    if bad.any():
        i, n = np.argwhere(bad)[0]
        raise ValueError(f"the weight of window {n} in row {i} is {weights[i, n]}; it must be finite and not negative.")
    total = weights.sum(1, keepdims=True)
    N = weights.shape[1]
    shares = np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1 / N)
    return Design((1 - eta) * shares + eta / N)


def pooled(found: Design) -> Design:
    """One row for all components, the mean of the rows: windows from all of them are then shared by all components."""
    return Design(found.probabilities.mean(0, keepdims=True))


def check_positive(found: Design) -> None:
    """Refuse a design that never draws some window: what that window says would be lost without a word."""
    if not (found.probabilities > 0).all():
        i, n = np.argwhere(~(found.probabilities > 0))[0]
        raise ValueError(
            f"window {n} is never drawn for row {i} (probability {found.probabilities[i, n]:g}), which biases the "
            "gradient; mix with a uniform share, such as eta=0.1."
        )
