r"""Is the model wrong for this series?  Pseudo-residuals, which are standard normal if it is right.

.. math:: r_t = \Phi^{-1}\bigl(P(Y_t \le y_t \mid y_1, \dots, y_{t-1})\bigr)

Counts are made continuous by a uniform draw between the probabilities of less and of at most what was seen.  Heavy
tails, correlation within states and drift each leave their mark on them.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import domains
from rarehmm.exact.passes import filter_states
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.sampling.diagnostics import Check, rows

LARGEST = 8.0  # residuals are cut here: the normal distribution function is 1 beyond
BLOCKS = 20


def has_residuals(family: Any) -> bool:
    """Whether a family has the distribution functions that they need."""
    return hasattr(family, "cdf") or hasattr(family, "cdfs")


def pseudo_residuals(
    rng: np.random.Generator, model: Model, parameters: Parameters, series: Series, *, threads: int | None = None
) -> Array:
    """Residuals (T,), or (T, D) of several columns, each standard normal and independent of those before it if the
    model is right; NaN where missing."""
    family: Any = model.family
    if not has_residuals(family):
        raise TypeError(f"{model.name} has no 'cdf', the distribution function of one state: residuals need it.")
    filtered = filter_states(model, parameters, series, threads=threads)
    expected = np.vstack([parameters.start, filtered[:-1] @ parameters.transition])  # of the state before y is seen
    expected[series.bounds[:-1]] = parameters.start
    y = np.concatenate([rows for _, rows in series.strides()])
    whole = np.array([domain.whole for domain in domains(family)])
    below = np.where(whole, y - 1, y)
    high, low = np.zeros(y.shape), np.zeros(y.shape)
    for k, phi in enumerate(parameters.phi):
        high += expected[:, k, None] * distributions(family, y, phi)
        if whole.any():
            low += expected[:, k, None] * distributions(family, below, phi)
    u = np.where(whole, low + rng.random(y.shape) * (high - low), high) if whole.any() else high
    out = np.clip(ndtri(np.clip(u, 0.0, 1.0)), -LARGEST, LARGEST)
    return np.asarray(out if y.shape[1] > 1 else out[:, 0])


def distributions(family: Any, y: Array, phi: Array) -> Array:
    """P(Y <= y) of each column, (n, D), in a state with parameters phi (P,)."""
    return np.asarray(family.cdfs(y, phi) if hasattr(family, "cdfs") else family.cdf(y[:, 0], phi)[:, None])


def check_residuals(residuals: Array, bounds: Any) -> list[Check]:
    """What the residuals (T,) of sequences with given bounds say about the model, with a word on each; nothing if all
    are missing."""
    seen = residuals[~np.isnan(residuals)]
    n = len(seen)
    if n == 0:
        return []
    far = float(np.mean(np.abs(seen) > 4))
    pairs = np.ones(len(residuals) - 1, dtype=bool)
    pairs[bounds[1:-1] - 1] = False  # none across a join
    before, after = residuals[:-1][pairs], residuals[1:][pairs]
    both = ~np.isnan(before) & ~np.isnan(after)
    together = correlation(before[both], after[both])
    sizes = correlation(np.abs(before[both]), np.abs(after[both]))
    chance = 4 / np.sqrt(n)
    spread, shift = float(seen.std()), largest_shift(seen)
    return [
        Check("spread of residuals", spread, abs(spread - 1) < 0.05 + chance, "1 if states are as wide as the data"),
        Check(
            "far residuals",
            far,
            far < 1e-3 + 4 * np.sqrt(6e-5 / n),
            "share beyond 4; large if the tails of the data are heavier than the family's: try StudentT",
        ),
        Check(
            "correlated residuals",
            together,
            abs(together) < 0.1 + chance,
            "of neighbours; large if observations within a state follow each other: states are then told too surely",
        ),
        Check(
            "correlated sizes",
            sizes,
            abs(sizes) < 0.1 + chance,
            "of neighbours; large if the noise within a state grows and shrinks: more states, or heavier tails",
        ),
        Check(
            "drift",
            shift,
            shift < 0.3 + chance * np.sqrt(BLOCKS),
            "largest mean over a twentieth of the series; large if levels drift: take a baseline away first",
        ),
    ]


def correlation(x: Array, y: Array) -> float:
    """Of pairs (n,); 0 of too few, or of values that are all the same."""
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def largest_shift(residuals: Array) -> float:
    """The largest mean, in absolute value, over blocks."""
    return float(max((abs(part.mean()) for part in np.array_split(residuals, BLOCKS) if len(part)), default=0.0))


class Fit(NamedTuple):
    """How well a model fits a series: ``checks``, and in words if printed; ``seen``: what was looked at, if not all."""

    checks: list[Check]
    seen: str = ""

    @property
    def passed(self) -> bool:
        return all(c.passed for c in self.checks)

    def __str__(self) -> str:
        bad = [f"{c.name} {c.value:.3g} ({c.message})" for c in self.checks if not c.passed]
        message = "The model fits the series." if not bad else f"The model does not fit the series: {'; '.join(bad)}."
        return f"{message} {self.seen}".rstrip()

    def describe(self) -> str:
        """All checks in a table, and the whole in a sentence."""
        return "\n".join([*rows(self.checks), str(self)])
