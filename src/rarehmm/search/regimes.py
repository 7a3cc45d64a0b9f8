"""What the states of a fit are: common, rare, or not a regime at all.

A state may be empty, explain a single outlier, duplicate another state, or merely fill in the tail of the others: a
mixture of Gaussians can imitate any heavy-tailed noise.  A rare state is reported as an event regime only if the data
support it against fits with one state fewer, including fits with heavier tails.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.pieces import pieces, sample
from rarehmm.data.series import Series
from rarehmm.emissions import rivals
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.exact.em import normalised_rows
from rarehmm.exact.passes import log_likelihood, smooth, state_counts
from rarehmm.model.coordinates import AdditiveLogRatio
from rarehmm.model.model import Model
from rarehmm.model.named_priors import default_priors
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary
from rarehmm.search.initial import SAMPLE, climb_briefly, informative_rows
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases

RARE = 0.05  # a state with a smaller share of the observations is called rare
FEW = 3.0  # a state with fewer expected observations is called an outlier
TWINS = 0.05  # two states with a separation below this are called twins
CRISP = 0.8  # mean probability of a state over its own observations above which it is well separated
STEPS = 30  # EM steps of the fits that are compared
KINDS = ("common", "rare", "tail", "unsupported", "outlier", "empty", "twin")


class Regime(NamedTuple):
    """What one state of a fit is.

    Attributes
    ----------
    state : int
        Index of the state.
    share : float
        Its share of the observations.
    observations : float
        Its expected number of observations.
    sojourn : float
        Expected duration of a visit, in steps.
    kind : str
        "common", "rare", "tail", "unsupported", "outlier", "empty" or "twin".
    message : str
        Why it is of this kind.
    """

    state: int
    share: float
    observations: float
    sojourn: float
    kind: str
    message: str


def judge_states(
    model: Model, parameters: Parameters, series: Series, *, rare_share: float = RARE, threads: int | None = None
) -> list[Regime]:
    """Classify the states of a fit as common, rare, or not supported by the data.

    A rare state must raise the log likelihood by more than its parameters cost in BIC.  If one does not, the most
    redundant state is removed, preferably one whose removal leaves the other states in place, and the remaining states
    are judged again.  States that share a rare regime are all rare, and states that are known in some rows need no
    further support.

    Parameters
    ----------
    model : Model
    parameters : Parameters
        The fitted parameters, such as ``mode.model.unpack(mode.theta)``.
    series : Series
        The data.  A long series is represented by a sample that includes its most surprising observations and
        its quietest stretches.
    rare_share : float
        Largest share of the observations that a rare state may have.
    threads : int, optional
        Number of threads.

    Returns
    -------
    list of Regime
        One per state, in the order of the states.
    """
    seen = pieces(series, 2 * SAMPLE)
    if len(series) > 2 * SAMPLE and model.n_states > 1:
        places = informative_rows(*remove_state(model, parameters, None), series.without_states(), threads)
        seen = sample(series, places, SAMPLE)
    found = classify_by_occupancy(model, parameters, series, seen, rare_share=rare_share, threads=threads)
    left = [one.state for one in found if one.kind != "empty"]  # original indices of the states that remain
    for k in [one.state for one in found if one.kind == "empty"][::-1]:
        model, parameters = remove_state(model, parameters, k)
    rare, successors = [k for k in left if found[k].kind == "rare"], {}
    for k in set(rare) & set(series.known_states):
        found[k] = found[k]._replace(message="it is known in some rows")
        rare.remove(k)
    seen = seen.without_states()  # of which there may be more than are left
    while rare and len(left) > 1:
        full = refit(model, seen, parameters, threads)
        assessed = {k: assess_state(model, full, seen, left.index(k), threads) for k in rare}
        for k, one in assessed.items():
            found[k] = found[k]._replace(kind=one.kind, message=one.message)
        if min(one.net_gain for one in assessed.values()) >= 0:
            break
        others = [k for k in left if k not in rare]
        assessed |= {k: assess_state(model, full, seen, left.index(k), threads, any_kind=True) for k in others}
        redundant = {k: one for k, one in assessed.items() if one.net_gain < 0}
        harmless = {k: one for k, one in redundant.items() if one.others_stay}
        removable = harmless or {k: redundant[k] for k in rare if k in redundant}
        # of two states that are the same, the smaller goes
        worst = min(removable, key=lambda k: (round(removable[k].gain), removable[k].observations))
        successors[worst] = [k for k in left if k != worst][redundant[worst].successor]
        model, parameters = remove_state(model, full.parameters, left.index(worst))
        left.remove(worst)
        if worst in rare:
            rare.remove(worst)
    for k in reversed(successors):
        if found[k].kind == "unsupported" and found[successors[k]].kind == "rare":
            message = f"it belongs to the same regime as state {successors[k]}"
            found[k] = found[k]._replace(kind="rare", message=message)
    return found


def classify_by_occupancy(
    model: Model,
    parameters: Parameters,
    series: Observations,
    seen: Observations | None = None,
    *,
    rare_share: float = RARE,
    counts: Array | None = None,
    threads: int | None = None,
) -> list[Regime]:
    """Classify states by their expected observations and by how well they are separated from each other.

    ``seen`` is the part of the series on which separations are measured.  ``counts`` (K,) are the expected observations
    of each state, if they have been computed already.
    """
    if counts is None:
        counts = state_counts(model, parameters, series, threads=threads)
    gamma = smooth(model, parameters, pieces(rows_in(series), SAMPLE) if seen is None else seen, threads=threads)
    share, stay = counts / counts.sum(), np.diag(parameters.transition)
    sojourn = model.transitions.phases(len(counts)) / np.maximum(1 - stay, 1e-300)
    found = []
    for k, count in enumerate(counts):
        larger = [j for j in range(len(counts)) if (counts[j], -j) > (count, -k)]
        twins = [j for j in larger if separation(gamma[:, j], gamma[:, k]) < TWINS]
        kind, message = "common", f"it accounts for {share[k]:.3g} of the observations"
        if count < 0.5:
            kind = "empty"
            message = "no observation belongs to it, so its parameters reflect only the prior. Use fewer states"
        elif count < FEW:
            kind = "outlier"
            message = f"it accounts for only {count:.1f} observations: an outlier, or a regime too rare to identify"
        elif twins:
            kind, message = "twin", f"the data cannot distinguish it from state {twins[0]}. Use fewer states"
        elif share[k] < rare_share:
            kind = "rare"
        found.append(Regime(k, float(share[k]), float(count), float(sojourn[k]), kind, message))
    return found


def separation(one: Array, other: Array) -> float:
    """Separation of two states by their posterior probabilities (T,), between 0 and 1.

    It is 0 if the ratio of the probabilities is constant, and 1 if each observation clearly belongs to one of the two.
    """
    both = one + other
    ratio = np.divide(one, both, out=np.zeros(len(both)), where=both > 1e-300)
    mean = one.sum() / both.sum()
    return float((both * (ratio - mean) ** 2).sum() / (both.sum() * mean * (1 - mean))) if 0 < mean < 1 else 1.0


class Assessment(NamedTuple):
    """Whether the data support a state, by comparison with fits without it.

    ``gain`` is what the state adds to the log likelihood, and ``net_gain`` what remains after the cost of its
    parameters: negative if the state is redundant.  ``observations`` is the expected number of its observations.
    ``others_stay`` says whether the other states keep theirs when it is removed, and ``successor`` which of them takes
    over most of its own.
    """

    kind: str
    message: str
    net_gain: float
    gain: float
    observations: float
    others_stay: bool
    successor: int


def assess_state(
    model: Model, full: "FittedModel", series: Series, k: int, threads: int | None, any_kind: bool = False
) -> Assessment:
    """Compare a fit with fits without state k; with ``any_kind``, do not ask whether it is merely a tail."""
    K, P = full.parameters.phi.shape
    every = smooth(model, full.parameters, series, threads=threads)
    gamma = every[:, k]
    count, n = max(float(gamma.sum()), 1.0), len(series) - series.n_missing
    price = 0.5 * ((P + K - 1) * np.log(count) + (K - 1) * np.log(n))  # cost of its parameters, as in BIC
    fewer, start = remove_state(model, full.parameters, k)
    best = refit(fewer, series, start, threads)
    shared = every.T @ smooth(fewer, best.parameters, series, threads=threads)  # (K, K - 1)
    stay = np.delete(shared, k, axis=0).argmax(1)
    gain = full.log_likelihood - best.log_likelihood
    rest = gain, count, bool((stay == np.arange(K - 1)).all()), int(shared[k].argmax())
    if gain < price:
        message = f"it raises the log likelihood by only {gain:.1f} ({price:.1f} required)"
        return Assessment("unsupported", message, gain - price, *rest)
    if not any_kind and gamma @ gamma / count < CRISP and full.parameters.transition[k, k] < 0.1 + 2 * count / n:
        message = "its observations are neither well separated nor consecutive: the tail of other states"
        return Assessment("tail", message, -1.0, *rest)
    for family, phi in () if any_kind else rivals(model.family, best.parameters.phi):
        other = replace(fewer, family=family, priors=default_priors(family, K - 1, series))
        start = other.natural(phi, best.parameters.transition, best.parameters.coefficients)
        tail = refit(other, series, start, threads)
        if (beyond := full.log_likelihood - tail.log_likelihood) < price:
            message = f"{K - 1} {'state' if K == 2 else 'states'} with heavier tails, {family}, fit as well"
            return Assessment("tail", message, beyond - price, *rest)
    message = f"it raises the log likelihood by {gain:.0f} ({price:.1f} required)"
    return Assessment("rare", message, gain - price, *rest)


class FittedModel(NamedTuple):
    """Fitted parameters and their log likelihood."""

    parameters: Parameters
    log_likelihood: float


def refit(model: Model, series: Series, start: Parameters, threads: int | None) -> FittedModel:
    """Fit a model by a few EM steps from ``start``."""
    found = climb_briefly(model, series, start, STEPS, threads).parameters
    return FittedModel(found, log_likelihood(model, found, series, threads=threads))


def remove_state(model: Model, parameters: Parameters, k: int | None) -> tuple[Model, Parameters]:
    """Remove state k, or the rarest state if k is None, from a model and its parameters.

    Paths through the removed state continue to where it leads.
    """
    if k is None:
        k = int(np.argmin(parameters.start if model.start is None else stationary(parameters.transition)))
    keep = np.delete(np.arange(model.n_states), k)
    P = parameters.transition
    direct = P[np.ix_(keep, keep)] + np.outer(P[keep, k], P[k, keep]) / max(1 - P[k, k], 1e-300)
    phases, transitions = model.transitions.phases(model.n_states), model.transitions
    if phases.max() > 1:
        transitions = Phases(tuple(phases[keep].tolist())) if len(keep) > 1 else Homogeneous()
    fewer = replace(
        model, n_states=len(keep), start=None, coordinates=AdditiveLogRatio(), fixed=None, transitions=transitions
    )
    coefficients = model.every_effect.reordered(parameters.coefficients, keep)
    return fewer, fewer.natural(parameters.phi[keep], normalised_rows(direct), coefficients)
