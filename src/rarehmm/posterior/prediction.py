r"""What a posterior says about a series: states, what comes next, and the density of held-out observations.

Everything is averaged over draws of the posterior (``points``, a list of parameters); one point is a list of one.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.data.series import Series
from rarehmm.data.summaries import LARGEST
from rarehmm.engine.contracts.family import Family, columns, constant, domains, log_density, observed_rows, prepare
from rarehmm.exact.passes import filter_states, log_likelihood, smooth
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.simulation import simulate
from rarehmm.model.stationary import stationary
from rarehmm.posterior.posterior import Draws


# ---------------------------------------------------------------- states
def state_probabilities(
    model: Model, points: list[Parameters], series: Series, *, causal: bool = False, threads: int | None = None
) -> Array:
    """Probabilities (T, K) of the states given the whole series, or (``causal``) given the past and the present."""
    function = filter_states if causal else smooth
    total = np.zeros((len(series), model.n_states))
    for point in points:
        total += function(model, point, series, threads=threads)
    return total / len(points)


def log_score(model: Model, points: list[Parameters], series: Series, *, threads: int | None = None) -> float:
    r"""Log density of a series, :math:`\log \frac 1 Z \sum_z p(y \mid \theta_z)`."""
    values = [log_likelihood(model, point, series, threads=threads) for point in points]
    return float(logsumexp(values) - np.log(len(values)))


# ---------------------------------------------------------------- streams
class Stream(NamedTuple):
    """Where a stream stands: ``law`` (Z, K), the law of its present state under each of Z points, and the number of
    observations seen; None before the first."""

    distribution: Array | None = None
    seen: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {"distribution": None if self.distribution is None else self.distribution.tolist(), "seen": self.seen}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Stream":
        """The stream that was kept with ``to_dict``."""
        try:
            kept = given["distribution" if "distribution" in given else "law"]  # its name in version 0.1
            distribution = None if kept is None else np.array(kept, dtype=float)
            seen = check_whole("seen", given["seen"], 0)
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"this is no stream that was kept ({error}); begin a new one with None.") from None
        good = distribution is None or (
            distribution.ndim == 2
            and distribution.size > 0
            and (distribution >= 0).all()
            and np.allclose(distribution.sum(1), 1)
        )
        if not good:
            raise ValueError(
                "this is no stream that was kept: its laws are no probabilities; begin a new one with None."
            )
        return cls(distribution, seen)

    @property
    def probability(self) -> Array:
        """Of each state now (K,), averaged over points."""
        if self.distribution is None:
            raise ValueError("the stream has seen no observation yet.")
        return np.asarray(self.distribution.mean(0))


class Ready(NamedTuple):
    """Points made ready for streams: the law of a first state (Z, K), transition matrices (Z, K, K), and what the
    family prepares, arrays (Z, K)."""

    family: Family
    start: Array
    transition: Array
    constants: tuple[Array, ...]

    @classmethod
    def of(cls, model: Model, points: list[Parameters]) -> "Ready":
        constants = np.array([[prepare(model.family, phi) for phi in point.phi] for point in points])
        start, transition = np.array([p.start for p in points]), np.array([p.transition for p in points])
        return cls(model.family, start, transition, tuple(np.moveaxis(constants, -1, 0)))


def update(ready: Ready, stream: Stream, y: npt.ArrayLike) -> Stream:
    """The stream after one more observation, a number or D of them; NaN for one that is missing.

    K^2 operations for each point.  It says the same as ``state_probabilities(causal=True)`` on all of the series.
    """
    row = np.atleast_1d(np.asarray(y, dtype=float))
    if row.shape != (columns(ready.family),):
        raise ValueError(f"y has shape {np.shape(y)}; one observation of {columns(ready.family)} columns is needed.")
    if stream.distribution is not None and stream.distribution.shape != ready.start.shape:
        raise ValueError(
            f"the stream has shape {stream.distribution.shape}, this fit {ready.start.shape}: it is of another one."
        )
    prior = (
        ready.start if stream.distribution is None else np.einsum("zj,zjk->zk", stream.distribution, ready.transition)
    )
    if not observed_rows(ready.family, row[None])[0]:
        return Stream(prior, stream.seen + 1)
    for value, domain in zip(row, domains(ready.family), strict=True):
        if abs(value) > LARGEST or not (domain.valid(value) or np.isnan(value)):
            raise ValueError(
                f"observation {stream.seen + 1} is {value:g}; {domain.message} up to {LARGEST:g} are needed, NaN in "
                "gaps."
            )
    seen: Any = row[0] if len(row) == 1 else tuple(row)
    with np.errstate(divide="ignore"):
        logs = np.log(prior) + log_density(ready.family, seen, ready.constants)
    distribution = np.exp(logs - logs.max(1, keepdims=True))
    return Stream(distribution / distribution.sum(1, keepdims=True), stream.seen + 1)


# ---------------------------------------------------------------- what comes next
class Forecast(NamedTuple):
    """``states`` (H, K): probability of each state 1, ..., H steps ahead; ``event`` (H,): that a rare state is visited
    within so many steps, with the ends of an interval over the posterior, ``low`` and ``high`` (H,); ``observations``
    (n, H) or (n, H, D): simulated."""

    states: Array
    event: Array
    low: Array
    high: Array
    observations: Array


def forecast(
    rng: np.random.Generator,
    model: Model,
    points: list[Parameters],
    distribution: Array,
    horizon: int,
    rare: IntArray,
    *,
    probability: float = 0.9,
    size: int = 1000,
) -> Forecast:
    """What comes after a series whose last state has the law (Z, K) under each of Z points."""
    check_whole("horizon", horizon)
    check_whole("size", size, 0)
    steps = np.stack([point.transition for point in points])  # (Z, K, K)
    common = ~np.isin(np.arange(model.n_states), rare)
    states, event = np.empty((horizon, model.n_states)), np.empty((len(points), horizon))
    ahead = spared = distribution[:, None]
    for h in range(horizon):
        ahead, spared = ahead @ steps, np.where(common, spared @ steps, 0.0)  # anywhere; no rare state so far
        states[h], event[:, h] = ahead[:, 0].mean(0), 1 - spared[:, 0].sum(1)
    low, high = np.quantile(event, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    each = []
    for n in range(size):
        z = n % len(points)
        now = int(rng.choice(model.n_states, p=distribution[z] / distribution[z].sum()))
        each.append(simulate(rng, model, points[z], horizon, now)[0])
    return Forecast(states, event.mean(0), low, high, np.array(each))


# ---------------------------------------------------------------- held-out observations


def state_densities(model: Model, draws: Draws, y: Array, state: int) -> Array:
    r"""Log densities (Z, n) of observations y (n,) or (n, D), known to come from ``state``, under each of Z draws.

    .. math:: \log p(Y^{(r)} \mid \theta_z, X^{(r)} = k)
    """
    draws, y = several(draws), np.atleast_2d(np.asarray(y, dtype=float).T).T  # (n, D)
    value = y[:, 0] if columns(model.family) == 1 else tuple(y.T)
    logs = [log_density(model.family, value, prepare(model.family, phi)) for phi in draws.phi[:, state]]
    return np.where(observed_rows(model.family, y), constant(model.family, y) + np.array(logs), 0.0)


def several(draws: Draws) -> Draws:
    """Draws with one leading axis, from any number of them."""
    phi, transition = draws
    if phi.size == 0:
        raise ValueError("there are no draws to predict with.")
    return Draws(phi.reshape(-1, *phi.shape[-2:]), transition.reshape(-1, *transition.shape[-2:]))


def sequence_densities(model: Model, draws: Draws, y: Array) -> Array:
    r"""Log densities (Z, n) of n held-out sequences y (n, m) under each of Z draws, from the start law of the model."""
    draws, y = several(draws), np.atleast_2d(np.asarray(y, dtype=float))
    _, m = y.shape
    K = draws.transition.shape[-1]
    distribution = np.array([stationary(P) if model.start is None else model.start for P in draws.transition])  # (Z, K)
    prediction = np.broadcast_to(distribution[:, None], (len(distribution), len(y), K))
    total = np.zeros(prediction.shape[:2])
    for t in range(m):
        logs = np.stack([state_densities(model, draws, y[:, t], k) for k in range(K)], axis=-1)  # (Z, n, K)
        top = logs.max(-1, keepdims=True)
        joint = prediction * np.exp(logs - top)
        mass = joint.sum(-1, keepdims=True)
        total += (np.log(mass) + top)[..., 0]
        prediction = np.einsum("znj,zjk->znk", joint / mass, draws.transition)
    return total


def held_out(densities: Array) -> float:
    r"""Mean log predictive density of n held-out observations or sequences, from their log densities (Z, n).

    .. math:: \frac 1 n \sum_r \log \Bigl(\frac 1 Z \sum_z p(Y^{(r)} \mid \theta_z)\Bigr)

    Ou et al., eq. (11).
    """
    return float(np.mean(logsumexp(densities, axis=0) - np.log(len(densities))))


def held_out_so_far(densities: Array) -> Array:
    """The same (Z,) from the first 1, 2, ..., Z draws."""
    total = np.logaddexp.accumulate(densities, axis=0) - np.log(np.arange(1, len(densities) + 1))[:, None]
    return np.asarray(total.mean(1))
