"""What the states of a fit are: common, rare, or nothing that should be called a regime.

A state may be empty, sit on a single outlier, repeat another one, or be no more than the tail of the others: a mixture
of Gaussians imitates any heavy-tailed noise.  A rare state is reported as an event regime only if the data hold it up
against fits with one state less, those with heavier tails among them.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.pieces import pieces, sample
from rarehmm.data.series import Series
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.exact.em import normalised_rows
from rarehmm.exact.passes import expectations, log_likelihood, smooth
from rarehmm.model.coordinates import AdditiveLogRatio
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary
from rarehmm.search.initial import SAMPLE, climbed, most_surprising

RARE = 0.05  # share of the observations below which a state is called rare
FEW = 3.0  # observations below which a state is called an outlier
TWINS = 0.05  # how well two states must be told apart, 0 not at all, 1 always, not to be the same
CRISP = 0.8  # mean probability of a state over its own observations that makes it stand apart
STEPS = 30  # of EM, for fits to compare with
KINDS = ("common", "rare", "tail", "unsupported", "outlier", "empty", "twin")


class Regime(NamedTuple):
    """One state: its share of the observations, how many it expects to have, how long a visit lasts on average, its
    ``kind`` ("common", "rare", "tail", "unsupported", "outlier", "empty" or "twin"), and words for that."""

    state: int
    share: float
    observations: float
    sojourn: float
    kind: str
    message: str


def judge_states(
    model: Model, parameters: Parameters, series: Series, *, rare_share: float = RARE, threads: int | None = None
) -> list[Regime]:
    """What each state of a fit is; of a long series, seen on a sample that keeps its surprising stretches.

    Rare states must be worth their price.  If one is not, a state too many is taken out, whichever leaves the others
    where they are, and they are judged without it; states that share a rare regime are all rare.
    """
    seen = pieces(series, 2 * SAMPLE)
    if len(series) > 2 * SAMPLE and model.n_states > 1:
        seen = sample(series, most_surprising(*without(model, parameters, None), series, threads), SAMPLE)
    found = collapsed(model, parameters, series, seen, rare_share=rare_share, threads=threads)
    left = [one.state for one in found if one.kind != "empty"]  # states of the smaller and smaller fit
    for k in [one.state for one in found if one.kind == "empty"][::-1]:
        model, parameters = without(model, parameters, k)
    rare, heirs = [k for k in left if found[k].kind == "rare"], {}
    while rare and len(left) > 1:
        full = fitted(model, seen, parameters, threads)
        judged = {k: held_up(model, full, seen, left.index(k), threads) for k in rare}
        for k, one in judged.items():
            found[k] = found[k]._replace(kind=one.kind, message=one.message)
        if min(one.worth for one in judged.values()) >= 0:
            break
        others = {k: held_up(model, full, seen, left.index(k), threads, needed=True) for k in left if k not in rare}
        spare = {k: one for k, one in (judged | others).items() if one.worth < 0}
        calm = {k: one for k, one in spare.items() if one.calm} or {k: spare[k] for k in rare if k in spare}
        worst = min(calm, key=lambda k: (round(calm[k].gain), calm[k].size))  # of two that are one, the smaller
        heirs[worst] = [k for k in left if k != worst][spare[worst].heir]
        model, parameters = without(model, full.parameters, left.index(worst))
        left.remove(worst)
        if worst in rare:
            rare.remove(worst)
    for k in reversed(heirs):
        if found[k].kind == "unsupported" and found[heirs[k]].kind == "rare":
            found[k] = found[k]._replace(kind="rare", message=f"it shares the regime of state {heirs[k]}")
    return found


def collapsed(
    model: Model,
    parameters: Parameters,
    series: Observations,
    seen: Observations | None = None,
    *,
    rare_share: float = RARE,
    counts: Array | None = None,
    threads: int | None = None,
) -> list[Regime]:
    """What each state is by its observations alone; ``seen``: a part of the series on which states are told apart;
    ``counts`` (K,): expected observations of each state, if they are known."""
    if counts is None:
        counts = expectations(model, parameters, series, with_statistics=True, threads=threads).counts
    gamma = smooth(model, parameters, pieces(rows_in(series), SAMPLE) if seen is None else seen, threads=threads)
    share, stay = counts / counts.sum(), np.diag(parameters.transition)
    found = []
    for k, count in enumerate(counts):
        larger = [j for j in range(len(counts)) if (counts[j], -j) > (count, -k)]
        others = [j for j in larger if apart(gamma[:, j], gamma[:, k]) < TWINS]
        kind, message = "common", f"{share[k]:.3g} of the observations"
        if count < 0.5:
            kind, message = (
                "empty",
                "no observation belongs to it: its parameters are those of the prior. Use fewer states",
            )
        elif count < FEW:
            kind, message = "outlier", f"it sits on {count:.1f} observations: an outlier, or too rare to tell"
        elif others:
            kind, message = "twin", f"the data do not tell it from state {others[0]}. Use fewer states"
        elif share[k] < rare_share:
            kind = "rare"
        found.append(Regime(k, float(share[k]), float(count), float(1 / max(1 - stay[k], 1e-300)), kind, message))
    return found


def apart(one: Array, other: Array) -> float:
    """How well two states are told apart by their probabilities (T,): 0 if their ratio never changes, 1 if always."""
    both = one + other
    ratio = np.divide(one, both, out=np.zeros(len(both)), where=both > 1e-300)
    mean = one.sum() / both.sum()
    return float((both * (ratio - mean) ** 2).sum() / (both.sum() * mean * (1 - mean))) if 0 < mean < 1 else 1.0


class Judgement(NamedTuple):
    """``gain`` in log likelihood and ``worth``, what of it is beyond the price: negative if the state is not needed;
    ``size``: its observations; ``calm``: whether the others keep theirs without it; ``heir``: which of them then has
    most of its own."""

    kind: str
    message: str
    worth: float
    gain: float
    size: float
    calm: bool
    heir: int


def held_up(model: Model, full: "Fit", series: Series, k: int, threads: int | None, needed: bool = False) -> Judgement:
    """Whether the data hold up a state k of a fit against fits without it; ``needed``: as a state of any kind."""
    K, P = full.parameters.phi.shape
    every = smooth(model, full.parameters, series, threads=threads)
    gamma = every[:, k]
    count, n = max(float(gamma.sum()), 1.0), len(series) - series.n_missing
    price = 0.5 * ((P + K - 1) * np.log(count) + (K - 1) * np.log(n))  # of its parameters, as in BIC
    fewer, start = without(model, full.parameters, k)
    best = fitted(fewer, series, start, threads)
    shared = every.T @ smooth(fewer, best.parameters, series, threads=threads)  # (K, K - 1)
    stay = np.delete(shared, k, axis=0).argmax(1)
    gain = full.value - best.value
    rest = gain, count, bool((stay == np.arange(K - 1)).all()), int(shared[k].argmax())
    if gain < price:
        message = f"it raises the log likelihood by {gain:.1f}; {price:.1f} would be needed"
        return Judgement("unsupported", message, gain - price, *rest)
    if not needed and gamma @ gamma / count < CRISP and full.parameters.transition[k, k] < 0.1 + 2 * count / n:
        message = "its observations neither stand apart nor follow each other: the tail of other states"
        return Judgement("tail", message, -1.0, *rest)
    heavier = model.family.heavier(best.parameters.phi) if hasattr(model.family, "heavier") and not needed else ()
    for family, phi in heavier:
        other = replace(fewer, family=family, priors=default_priors(family, K - 1, series))
        tail = fitted(other, series, other.natural(phi, best.parameters.transition), threads)
        if full.value - tail.value < price:
            message = f"{K - 1} states with heavier tails, {family}, do as well"
            return Judgement("tail", message, full.value - tail.value - price, *rest)
    message = f"it raises the log likelihood by {gain:.0f}; {price:.1f} would do"
    return Judgement("rare", message, gain - price, *rest)


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
    fewer = replace(model, n_states=len(keep), start=None, coordinates=AdditiveLogRatio(), fixed=None)
    return fewer, fewer.natural(parameters.phi[keep], normalised_rows(direct))
