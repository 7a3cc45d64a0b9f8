"""What the states of a fit are: common, rare, or not a regime at all.

A state may be empty, explain a single outlier, duplicate another state, or merely fill in what the model lacks: a
mixture of Gaussians can imitate any heavy-tailed noise, and the levels of a smooth series.  A rare state is a regime if
its observations are one under every model that fits about as well: with fewer states, heavier tails, or autocorrelated
noise.  How far they are is its support, a number between 0 and 1.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from rarehmm.common.arrays import Array
from rarehmm.data.pieces import pieces, sample
from rarehmm.data.series import Series
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.exact.passes import smooth, state_counts
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.search.alternatives import (
    Fit,
    autocorrelated_noise,
    compare,
    heavier_tails,
    refit,
    remove_state,
)
from rarehmm.search.initial import DIFFERING, SAMPLE, informative_rows

RARE = 0.05  # share of the observations up to which support alone decides whether a state is called rare
MORE = 1.5  # the most that a state may have and be called rare, in units of this share: half its support is left there
STEEP = 6  # how fast rarity falls around it: to .92 at one unit, to .15 at two
NEAR = 0.5  # support times rarity from which a state is called rare
FEW = 3.0  # a state with fewer expected observations is called an outlier
TWINS = 0.05  # two states with a separation below this are called twins
CRISP = 0.8  # mean probability of a state over its own observations above which it is well separated
BLUR = 0.03  # width of the transition around CRISP, and of that around visits no longer than by chance
FAINT = 0.02  # an alternative, or a part of support, below which nothing is looked into
SCATTERED = "scattered observations"
PLACES = 300  # observations of rare states whose neighbourhoods are part of a smaller sample
EVIDENCE = ("kind", "message", "support", "gain", "rival", "kept")  # of a judgement
KINDS = ("common", "rare", "tail", "drift", "unsupported", "outlier", "empty", "twin")


class Regime(NamedTuple):
    """What one state of a fit is, and the evidence for it.

    Attributes
    ----------
    state : int
        Index of the state.
    share : float
        Its share of the observations of this series; ``Posterior.occupancy`` is that in the long run, which follows
        from the transition matrix.
    observations : float
        Its expected number of observations.
    sojourn : float
        Expected duration of a visit, in steps.
    kind : str
        "common", "rare", "tail", "drift", "unsupported", "outlier", "empty" or "twin".
    message : str
        Why it is of this kind.
    visits : float, optional
        Expected number of visits.
    support : float, optional
        How far its observations are a regime of their own under every model that fits about as well, from 0 to 1; None
        if this was not asked, because the state is common, empty, or the like.
    gain : float, optional
        What the fit adds to the log density of the observations over the strongest rival, the alternative that
        lowers ``support`` the most, less the cost of parameters as in BIC.
    rival : str
        What this rival is.
    kept : float, optional
        Share of the state's observations that the rival keeps together in a rare state of its own.
    """

    state: int
    share: float
    observations: float
    sojourn: float
    kind: str
    message: str
    visits: float | None = None
    support: float | None = None
    gain: float | None = None
    rival: str = ""
    kept: float | None = None


def rarity(share: float, rare_share: float = RARE) -> float:
    """How rare a state with this share of the observations is, from 1 to 0: a half at one and a half ``rare_share``."""
    return float(1 / (1 + (share / (MORE * rare_share)) ** STEEP))


def judge_states(
    model: Model, parameters: Parameters, series: Series, *, rare_share: float = RARE, threads: int | None = None
) -> list[Regime]:
    """Classify the states of a fit as common, rare, or not supported by the data.

    The support of a rare state is how much of it is left as a regime of its own by each fit that is about as good:
    those with fewer states, with heavier tails, and, where residuals are autocorrelated, with autocorrelated noise.  If
    a state has too little, the most redundant state is removed, preferably one whose removal leaves the other states in
    place, and the remaining states are judged again.  States that share a rare regime are all rare, and states that are
    known in some rows need no further support.

    Parameters
    ----------
    model : Model
    parameters : Parameters
        The fitted parameters, such as ``mode.model.unpack(mode.theta)``.
    series : Series
        The data.  A long series is represented by a sample that includes its most surprising observations and
        its quietest stretches.
    rare_share : float
        Share of the observations up to which support alone decides whether a state is called rare.  The more a state
        has beyond that, the more support it needs; one with more than one and a half times as many is common.
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
    judge = Judge(model, parameters, seen.without_states(), found, rare_share, threads)
    for k in set(judge.rare) & set(series.known_states):
        found[k] = found[k]._replace(message="it is known in some rows", support=1.0)
        judge.rare.remove(k)
    judge.run()
    return [settled(one, rare_share) for one in found]


def settled(one: Regime, rare_share: float) -> Regime:
    """The regime of a state whose kind follows from its support and from its share."""
    if one.kind != "rare" or one.support is None or one.support * rarity(one.share, rare_share) >= NEAR:
        return one
    message = f"with a support of {one.support:.2f}, {one.share:.2%} of the observations are too many to be called rare"
    return one._replace(kind="common", message=message)


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
        elif rarity(share[k], rare_share) >= NEAR:
            kind = "rare"
        visits = float(count / sojourn[k])
        found.append(Regime(k, float(share[k]), float(count), float(sojourn[k]), kind, message, visits))
    return found


def separation(one: Array, other: Array) -> float:
    """Separation of two states by their posterior probabilities (T,), between 0 and 1.

    It is 0 if the ratio of the probabilities is constant, and 1 if each observation clearly belongs to one of the two.
    """
    both = one + other
    ratio = np.divide(one, both, out=np.zeros(len(both)), where=both > 1e-300)
    mean = one.sum() / both.sum()
    return float((both * (ratio - mean) ** 2).sum() / (both.sum() * mean * (1 - mean))) if 0 < mean < 1 else 1.0


class Judge:
    """Judges the rare states of a fit one after the other, and removes the redundant ones.

    Parameters
    ----------
    model : Model
    parameters : Parameters
    series : Series
        The observations, or a sample of them.
    found : list of Regime
        The states by their occupancy; their kinds, messages and evidence are filled in.
    rare_share : float
    threads : int, optional
    """

    def __init__(
        self,
        model: Model,
        parameters: Parameters,
        series: Series,
        found: list[Regime],
        rare_share: float,
        threads: int | None,
    ) -> None:
        self.found, self.series, self.rare_share, self.threads = found, series, rare_share, threads
        self.left = [one.state for one in found if one.kind != "empty"]  # original indices of the states that remain
        for k in [one.state for one in found if one.kind == "empty"][::-1]:
            model, parameters = remove_state(model, parameters, k)
        self.model, self.parameters = model, parameters
        self.rare = [one.state for one in found if one.kind == "rare"]
        self.successors: dict[int, int] = {}

    def run(self) -> None:
        """Judge the rare states until all that are left have support."""
        while self.rare and len(self.left) > 1:
            full = refit(self.model, self.parameters, self.series, self.threads)
            case = Case(full, np.array([self.found[k].share for k in self.left]), self.rare_share)
            assessed = {k: case.assess(self.left.index(k)) for k in self.rare}
            for k, one in assessed.items():
                evidence = {
                    name: getattr(one, name) for name in ("kind", "message", "support", "gain", "rival", "kept")
                }
                self.found[k] = self.found[k]._replace(**evidence)
            if all(one.support >= NEAR for one in assessed.values()):
                break
            others = [k for k in self.left if k not in self.rare]
            assessed |= {k: case.assess(self.left.index(k), any_kind=True) for k in others}
            self.remove_worst(full, assessed)
        for k in reversed(self.successors):
            other = self.found[self.successors[k]]
            if self.found[k].kind == "unsupported" and other.kind == "rare":
                message = f"it belongs to the same regime as state {other.state}"
                self.found[k] = self.found[k]._replace(kind="rare", message=message, support=other.support)

    def remove_worst(self, full: Fit, assessed: dict[int, "Assessment"]) -> None:
        """Remove the most redundant state."""
        redundant = {k: one for k, one in assessed.items() if one.support < NEAR}
        harmless = {k: one for k, one in redundant.items() if one.others_stay}
        removable = harmless or {k: redundant[k] for k in self.rare if k in redundant}
        # of two states that are the same, the smaller goes
        worst = min(removable, key=lambda k: (round(removable[k].raised), removable[k].observations))
        self.successors[worst] = [k for k in self.left if k != worst][redundant[worst].successor]
        self.model, self.parameters = remove_state(self.model, full.parameters, self.left.index(worst))
        self.left.remove(worst)
        if worst in self.rare:
            self.rare.remove(worst)


class Assessment(NamedTuple):
    """The evidence for a state, by comparison with alternatives.

    ``kind``, ``message``, ``support``, ``gain``, ``rival`` and ``kept`` are those of ``Regime``.  ``raised`` is what
    the state adds to the log likelihood over a fit without it, and ``observations`` the expected number of its
    observations.  ``others_stay`` says whether the other states keep theirs when it is removed, and ``successor`` which
    of them takes over most of its own.
    """

    kind: str
    message: str
    support: float
    gain: float
    rival: str
    kept: float
    raised: float
    observations: float
    others_stay: bool
    successor: int


class Rival(NamedTuple):
    """An alternative to a fit: the kind that a state is which it explains, its name, and its evidence about one state.

    ``gain`` is what the fit has over it, ``rivalry`` the probability that it is as good, ``kept`` how much of the state
    it keeps together.
    """

    kind: str
    name: str
    gain: float
    rivalry: float
    kept: float

    @property
    def support(self) -> float:
        """What it leaves of the support of the state."""
        return 1 - (1 - self.kept) * self.rivalry


class Case:
    """A fit whose states are in question, and the alternatives to it.

    Parameters
    ----------
    full : Fit
    shares : ndarray
        Shares (K,) of the states in the whole series, of which ``full`` may have seen a sample.
    rare_share : float
    """

    def __init__(self, full: Fit, shares: Array, rare_share: float) -> None:
        self.full, self.shares, self.rare_share = full, shares, rare_share
        self.tails: dict[int, Fit] = {}  # fits with heavier tails and as many states

    def assess(self, k: int, any_kind: bool = False) -> Assessment:
        """Compare the fit with alternatives that have no state k; with ``any_kind``, only with fewer states."""
        full, K = self.full, self.full.model.n_states
        fewer = full.without(k)
        gap = compare(full, fewer)
        shared = full.probabilities.T @ fewer.probabilities  # (K, K - 1)
        stay = np.delete(shared, k, axis=0).argmax(1)
        rest = gap.gain, float(full.counts[k]), bool((stay == np.arange(K - 1)).all()), int(shared[k].argmax())
        tried = [Rival("unsupported", fewer.described(), gap.gain - gap.price, gap.rivalry, 0.0)]
        if gap.gain >= gap.price and not any_kind:
            tried.append(tried[0]._replace(kind="tail", name=SCATTERED, rivalry=self.scattered(k)))
            tried += self.other_noise(k, fewer) if tried[-1].support >= NEAR else []
        strongest = min(tried, key=lambda one: (round(one.support, 2), one.gain))
        kind, message = "rare", f"it raises the log likelihood by {gap.gain:.0f} ({gap.price:.1f} required)"
        if strongest.support < NEAR:
            kind, message = strongest.kind, reason(strongest, gap.gain, gap.price)
        evidence = strongest.support, strongest.gain, strongest.name, strongest.kept
        return Assessment(kind, message, *evidence, *rest)

    def scattered(self, k: int) -> float:
        """How far the observations of a state are neither well separated from those of others nor consecutive."""
        full, gamma = self.full, self.full.probabilities[:, k]
        count, n = max(float(gamma.sum()), 1.0), len(full.series) - full.series.n_missing
        separate = expit((gamma @ gamma / count - CRISP) / BLUR)
        lasting = expit((full.parameters.transition[k, k] - 0.1 - 2 * count / n) / BLUR)
        return float((1 - separate) * (1 - lasting))

    def other_noise(self, k: int, fewer: Fit) -> Iterator[Rival]:
        """Alternatives with other noise, until one of them leaves too little support."""
        for i, tails in enumerate(heavier_tails(fewer)):
            rival = self.rival("tail", self.full, k, tails(), i)
            yield rival
            if rival.support < NEAR:
                return
        if self.correlated is None:
            return
        short, other = self.correlated
        rival = self.rival("drift", short, k, other)
        yield rival
        if rival.kept > NEAR and rival.rivalry > FAINT:
            yield from (self.rival("drift", short, k, tails()) for tails in heavier_tails(other)[1:2])

    def rival(self, kind: str, fit: Fit, k: int, other: Fit, tails: int | None = None) -> Rival:
        """Another fit as an alternative to ``fit``, this one or one on a sample.

        It may have one state fewer and the heavier tails with this number, of which there is a fit with all states.
        """
        gap, kept = compare(fit, other), 1.0
        if gap.rivalry > FAINT:
            kept = self.kept(fit, k, other) if tails is None else self.kept(fit, k, self.with_tails(tails), other)
        return Rival(kind, name_of(other, fit), gap.gain - gap.price, gap.rivalry, kept)

    def with_tails(self, number: int) -> Fit:
        """The fit with the heavier tails of this number, and with all states."""
        if number not in self.tails:
            self.tails[number] = heavier_tails(self.full)[number]()
        return self.tails[number]

    @cached_property
    def correlated(self) -> tuple[Fit, Fit] | None:
        """The fit and one with autocorrelated noise, on a sample if the series is long; None without need of it."""
        full = self.full
        if autocorrelated_noise(full) is None:
            return None
        if len(full.series) > 2 * DIFFERING:
            rare = [k for k, share in enumerate(self.shares) if rarity(share, self.rare_share) >= NEAR]
            places = np.flatnonzero(full.probabilities[:, rare].sum(1) > 0.5)  # (n,)
            places = places[:: -(-len(places) // PLACES)] if len(places) > PLACES else places
            full = Fit(full.model, full.parameters, sample(full.series, places, DIFFERING), full.threads)
        start = autocorrelated_noise(full)
        return None if start is None else (full, full.refit(*start))

    def kept(self, fit: Fit, k: int, other: Fit, rest: Fit | None = None) -> float:
        """Share of the observations of state k of a fit that another kind of model keeps together in rare states.

        ``other`` is the fit of that kind, ``rest`` one without the state that holds most of them.  As far as that is
        as good, what it keeps counts.
        """
        if other.model.n_states == 1:
            return 0.0
        shared = fit.probabilities.T @ other.probabilities / np.maximum(fit.counts, 1e-300)[:, None]  # (K, K')
        rare = np.array([rarity(share, self.rare_share) for share in self.shares @ shared])
        together = float(shared[k] @ rare)
        if together < FAINT:
            return 0.0
        rest = other.without(int(np.argmax(shared[k] * rare))) if rest is None else rest
        rivalry = compare(other, rest).rivalry
        return (1 - rivalry) * together + (rivalry * self.kept(fit, k, rest) if rivalry > FAINT else 0.0)


def name_of(other: Fit, fit: Fit) -> str:
    """Number of states of a rival of a fit, and what is different about its noise."""
    noise, lags = [], other.model.autoregression
    if type(other.model.family) is not type(fit.model.family) or lags == fit.model.autoregression:
        noise.append(f"heavier tails, {other.model.family}")
    if lags is not None and lags != fit.model.autoregression:
        noise.append(f"autocorrelated noise, ar={lags.order}")
    return f"{other.described()} with {' and '.join(noise)}"


def reason(rival: Rival, gain: float, price: float) -> str:
    """Why a state is not supported."""
    if rival.kind == "unsupported":
        return f"it raises the log likelihood by only {gain:.1f} ({price:.1f} required)"
    if rival.name == SCATTERED:
        return "its observations are neither well separated nor consecutive: the tail of other states"
    fits = "fits" if rival.name.startswith("1 ") else "fit"
    return f"{rival.name}, {fits} as well, and keep{'s' if fits == 'fits' else ''} {rival.kept:.0%} of it together"


WAYS_OUT = {
    "tail": "a family with heavier tails, such as emission='student_t', may show what else is rare",
    "drift": "fit with ar=1",
    "unsupported": "fit with fewer states",
    "outlier": "look at its observations",
}


def closest_to_rare(regimes: list[Regime], rare_share: float = RARE) -> str:
    """Why no state is rare, which states come closest, and what would include them.

    Parameters
    ----------
    regimes : list of Regime
        One per state.
    rare_share : float
        The share of the observations with which they were judged.

    Returns
    -------
    str
    """
    if len(regimes) == 1:
        return "the model has a single state; fit with n_components=2 or more"
    near = nearest_to_rare(regimes, rare_share)
    return "; ".join(way_out(one) for one in near[:2]) or "every state is empty, or like another one; use fewer states"


def nearest_to_rare(regimes: list[Regime], rare_share: float) -> list[Regime]:
    """Return the states that are not rare and could be, the one that comes closest first."""
    near = [one for one in regimes if one.kind in ("common", *WAYS_OUT)]
    return sorted(near, key=lambda one: -rarity(one.share, rare_share) * (1.0 if one.support is None else one.support))


def way_out(one: Regime) -> str:
    """What a state that is not rare is, and what would include it among the events."""
    visits = "" if one.visits is None else f" in {one.visits:.0f} visits of {one.sojourn:.3g} steps"
    text = f"state {one.state} has {one.share:.2%} of the observations{visits} and is {one.kind}"
    if one.kind != "common":
        support = "" if one.support is None else f" with a support of {one.support:.2f}"
        text += f"{support}: {one.message}; {WAYS_OUT[one.kind]}"
    elif one.share < 0.5:
        text += f": a fit with rare_share={np.ceil(one.share * 100) / 100:.2g} asks whether it is a regime of its own"
    return text + f"; rare_states=[{one.state}] lists its stretches"
