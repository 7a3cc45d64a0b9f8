"""What the states of a fit are: common, rare, or nothing that should be called a regime.

A state may be empty, sit on a single outlier, repeat another one, or be no more than the tail of the others: a mixture
of Gaussians imitates any heavy-tailed noise.  A rare state is reported as an event regime only if the data hold it up
against fits with one state less, those with heavier tails among them.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rarehmm.em import rows
from rarehmm.initial import SAMPLE, climbed, most_surprising, pieces, sample
from rarehmm.model import Model, Parameters, default_priors
from rarehmm.passes import expectations, log_likelihood, smooth
from rarehmm.series import Array, Series
from rarehmm.transitions import AdditiveLogRatio, stationary

RARE = 0.1  # share of the observations below which a state is called rare
FEW = 3.0  # observations below which a state is called an outlier
TWINS = 0.05  # how well two states must be told apart, 0 not at all, 1 always, not to be the same
CRISP = 0.8  # mean probability of a state over its own observations that makes it stand apart
STEPS = 30  # of EM, for fits to compare with


class Regime(NamedTuple):
    """One state: its share of the observations, how many it expects to have, how long a visit lasts on average, its
    ``kind`` ("common", "rare", "tail", "unsupported", "outlier", "empty" or "twin"), and words for that."""

    state: int
    share: float
    observations: float
    sojourn: float
    kind: str
    words: str

    @property
    def collapsed(self) -> bool:
        return self.kind in ("outlier", "empty", "twin")


def regimes(model: Model, parameters: Parameters, series: Series, *, threads: int | None = None) -> list[Regime]:
    """What each state of a fit is; of a long series, seen on a sample that keeps its surprising stretches."""
    seen = series
    if len(series) > 2 * SAMPLE:
        seen = sample(series, most_surprising(*without(model, parameters, None), series, threads), SAMPLE)
    found = collapsed(model, parameters, series, seen, threads=threads)
    for k, one in enumerate(found):
        if one.kind == "rare" and model.n_states > 1:
            kind, words = held_up(model, parameters, seen, k, threads)
            found[k] = one._replace(kind=kind, words=words)
    return found


def collapsed(
    model: Model, parameters: Parameters, series: Series, seen: Series | None = None, *, threads: int | None = None
) -> list[Regime]:
    """What each state is by its observations alone; ``seen``: a part of the series on which states are told apart."""
    counts = expectations(model, parameters, series, with_statistics=True, threads=threads).counts
    gamma = smooth(model, parameters, pieces(series, SAMPLE) if seen is None else seen, threads=threads)
    share, stay = counts / counts.sum(), np.diag(parameters.transition)
    found = []
    for k, count in enumerate(counts):
        larger = [j for j in range(len(counts)) if (counts[j], -j) > (count, -k)]
        others = [j for j in larger if apart(gamma[:, j], gamma[:, k]) < TWINS]
        kind, words = "common", f"{share[k]:.3g} of the observations"
        if count < 0.5:
            kind, words = (
                "empty",
                "no observation belongs to it: its parameters are those of the prior. Use fewer states",
            )
        elif count < FEW:
            kind, words = "outlier", f"it sits on {count:.1f} observations: an outlier, or too rare to tell"
        elif others:
            kind, words = "twin", f"the data do not tell it from state {others[0]}. Use fewer states"
        elif share[k] < RARE:
            kind = "rare"
        found.append(Regime(k, float(share[k]), float(count), float(1 / max(1 - stay[k], 1e-300)), kind, words))
    return found


def apart(one: Array, other: Array) -> float:
    """How well two states are told apart by their probabilities (T,): 0 if their ratio never changes, 1 if always."""
    both = one + other
    ratio = np.divide(one, both, out=np.zeros(len(both)), where=both > 1e-300)
    mean = one.sum() / both.sum()
    return float((both * (ratio - mean) ** 2).sum() / (both.sum() * mean * (1 - mean))) if 0 < mean < 1 else 1.0


def held_up(model: Model, parameters: Parameters, series: Series, k: int, threads: int | None) -> tuple[str, str]:
    """Whether the data hold up a rare state k against fits without it: its kind, and why."""
    K, P = parameters.phi.shape
    gamma = smooth(model, parameters, series, threads=threads)[:, k]
    count, n = max(float(gamma.sum()), 1.0), len(series) - series.n_missing
    crisp = float(gamma @ gamma) / count
    lasting = parameters.transition[k, k] > 0.1 + 2 * count / n
    if crisp < CRISP and not lasting:
        return "tail", "its observations neither stand apart nor follow each other: the tail of other states"
    price = 0.5 * ((P + K - 1) * np.log(count) + (K - 1) * np.log(n))  # of its parameters, as in BIC
    full = fitted(model, series, parameters, threads)
    fewer, start = without(model, parameters, k)
    best = fitted(fewer, series, start, threads)
    if full.value - best.value < price:
        return (
            "unsupported",
            f"it raises the log likelihood by {full.value - best.value:.1f}; {price:.1f} would be needed",
        )
    for family, phi in model.family.heavier(best.parameters.phi) if hasattr(model.family, "heavier") else ():
        other = replace(fewer, family=family, priors=default_priors(family, K - 1, series))
        tail = fitted(other, series, other.natural(phi, best.parameters.transition), threads)
        if full.value - tail.value < price:
            return "tail", f"{K - 1} states with heavier tails ({family}) do as well"
    return "rare", f"it raises the log likelihood by {full.value - best.value:.0f}; {price:.1f} would do"


class Fit(NamedTuple):
    parameters: Parameters
    value: float


def fitted(model: Model, series: Series, start: Parameters, threads: int | None) -> Fit:
    """A few EM steps, and the log likelihood they lead to."""
    found = climbed(model, series, start, STEPS, threads).parameters
    return Fit(found, log_likelihood(model, found, series, threads=threads))


def without(model: Model, parameters: Parameters, k: int | None) -> tuple[Model, Parameters]:
    """The model and parameters without state k (None: the rarest): ways through it lead to where it leads."""
    k = (
        int(np.argmin(parameters.start if model.start is None else stationary(parameters.transition)))
        if k is None
        else k
    )
    keep = np.delete(np.arange(model.n_states), k)
    P = parameters.transition
    direct = P[np.ix_(keep, keep)] + np.outer(P[keep, k], P[k, keep]) / max(1 - P[k, k], 1e-300)
    fewer = replace(model, n_states=len(keep), start=None, coordinates=AdditiveLogRatio())
    return fewer, fewer.natural(parameters.phi[keep], rows(direct))
