r"""Posterior predictions: state probabilities, streaming updates, forecasts, and held-out predictive densities.

Everything is averaged over draws of the posterior (``points``, a list of parameters, which may have one element).
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
from rarehmm.exact.passes import log_likelihood
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.simulation import simulate
from rarehmm.model.stationary import stationary
from rarehmm.posterior.posterior import Draws


def log_score(model: Model, points: list[Parameters], series: Series, *, threads: int | None = None) -> float:
    r"""Return the log predictive density of a series, :math:`\log \frac 1 Z \sum_z p(y \mid \theta_z)`."""
    values = [log_likelihood(model, point, series, threads=threads) for point in points]
    return float(logsumexp(values) - np.log(len(values)))


def check_no_effects(model: Model, who: str, instead: str) -> None:
    """Raise ValueError if the rows of a model differ, for functions that know nothing but states."""
    if model.effects is not None:
        raise ValueError(f"{who} does not support models with inputs, lags or phases; use {instead}.")


# ---------------------------------------------------------------- streams
class Stream(NamedTuple):
    """State of a stream of observations, as returned by ``RareHMM.update``.

    Attributes
    ----------
    distribution : ndarray or None, (Z, K)
        Filtered distribution of the current state under each of Z posterior draws; None before the first observation.
    seen : int
        Number of observations so far.
    """

    distribution: Array | None = None
    seen: int = 0

    def __repr__(self) -> str:
        return describe_stream("Stream", self.seen, None if self.distribution is None else self.probability)

    def to_dict(self) -> dict[str, Any]:
        """Convert the stream to plain data that can be stored as JSON.

        Returns
        -------
        dict
        """
        return {"distribution": None if self.distribution is None else self.distribution.tolist(), "seen": self.seen}

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "Stream":
        """Restore a stream from the result of ``to_dict``.

        Parameters
        ----------
        stored : dict
            What ``to_dict`` returned.

        Returns
        -------
        Stream

        Raises
        ------
        ValueError
            If the data are not those of a stream.
        """
        try:
            values = stored["distribution" if "distribution" in stored else "law"]  # its name in version 0.1
            distribution = None if values is None else np.array(values, dtype=float)
            seen = check_whole("seen", stored["seen"], 0)
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"this is not a stored stream ({error}); start a new one with None.") from None
        valid = distribution is None or (
            distribution.ndim == 2
            and distribution.size > 0
            and (distribution >= 0).all()
            and np.allclose(distribution.sum(1), 1)
        )
        if not valid:
            raise ValueError("this is not a stored stream: its rows are not probabilities; start a new one with None.")
        return cls(distribution, seen)

    @property
    def probability(self) -> Array:
        """Probability of each state now (K,), averaged over the posterior draws."""
        if self.distribution is None:
            raise ValueError("the stream has seen no observations yet.")
        return np.asarray(self.distribution.mean(0))


def describe_stream(kind: str, seen: int, probability: Array | None) -> str:
    """Describe a stream in a line: how many observations it has seen, and the probabilities of the states now."""
    if probability is None:
        return f"{kind}({seen} observations)"
    states = ", ".join(f"P(state {k}) = {p:.3g}" for k, p in enumerate(probability))
    return f"{kind}({seen} observations; now {states})"


class StreamParameters(NamedTuple):
    """Parameters of Z draws, prepared for streaming: start (Z, K), transition (Z, K, K), emission constants (Z, K)."""

    family: Family
    start: Array
    transition: Array
    constants: tuple[Array, ...]

    @classmethod
    def of(cls, model: Model, points: list[Parameters]) -> "StreamParameters":
        """Prepare ``points`` for streaming."""
        check_no_effects(model, "StreamParameters", "RegimeFilter")
        constants = np.array([[prepare(model.family, phi) for phi in point.phi] for point in points])
        start, transition = np.array([p.start for p in points]), np.array([p.transition for p in points])
        return cls(model.family, start, transition, tuple(np.moveaxis(constants, -1, 0)))


def update(parameters: StreamParameters, stream: Stream, y: npt.ArrayLike) -> Stream:
    """Return the stream after one more observation: a number or D numbers, NaN where missing.

    Costs K^2 operations per draw, and gives the probabilities of ``filter_states`` on the whole series, averaged over
    the draws.
    """
    family, row = parameters.family, np.atleast_1d(np.asarray(y, dtype=float))
    if row.shape != (columns(family),):
        raise ValueError(f"y has shape {np.shape(y)}; it must be one observation of {columns(family)} columns.")
    if stream.distribution is not None and stream.distribution.shape != parameters.start.shape:
        raise ValueError(
            f"the stream has shape {stream.distribution.shape} and this fit {parameters.start.shape}: it belongs to "
            "another fit. Start a new one with None."
        )
    prior = (
        parameters.start
        if stream.distribution is None
        else np.einsum("zj,zjk->zk", stream.distribution, parameters.transition)
    )
    if not observed_rows(family, row[None])[0]:
        return Stream(prior, stream.seen + 1)
    for value, domain in zip(row, domains(family), strict=True):
        if abs(value) > LARGEST or not (domain.valid(value) or np.isnan(value)):
            raise ValueError(
                f"observation {stream.seen + 1} is {value:g}; the family takes {domain.message}, up to {LARGEST:g}. "
                "Mark gaps with NaN."
            )
    observed: Any = row[0] if len(row) == 1 else tuple(row)
    with np.errstate(divide="ignore"):
        logs = np.log(prior) + log_density(family, observed, parameters.constants)
    distribution = np.exp(logs - logs.max(1, keepdims=True))
    return Stream(distribution / distribution.sum(1, keepdims=True), stream.seen + 1)


# ---------------------------------------------------------------- forecasts
STEPS_SHOWN = 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000


class Forecast(NamedTuple):
    """Forecast over a horizon of H steps, as returned by ``RareHMM.forecast``.

    Attributes
    ----------
    states : ndarray, (H, K)
        Probability of each state 1, ..., H steps ahead.
    event : ndarray, (H,)
        Probability that a rare state is visited within 1, ..., H steps.
    low, high : ndarray, (H,)
        Ends of the central 90 % posterior interval of ``event``.
    observations : ndarray, (n, H) or (n, H, D)
        Simulated continuations of the series, from all posterior draws in turn.
    index : pandas.Index or None
        Times or labels of the H rows, if those of the series continue.
    names : tuple of str or None
        Names of the columns.
    """

    states: Array
    event: Array
    low: Array
    high: Array
    observations: Array
    index: Any = None
    names: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        return self.describe()

    def describe(self) -> str:
        """Return the forecast of some of the steps as a text table.

        Returns
        -------
        str
        """
        table = self.to_frame()
        words = "Event: probability that a rare state was visited by then"
        if np.array_equal(self.low, self.high):
            table = table.drop(columns=["event_low", "event_high"])
            words += ", for the mode alone" if self.event.max() > 0 else ""
        else:
            words += ", with its 90 % interval"
        steps = [n for n in STEPS_SHOWN if n < len(table)] + [len(table)]
        table.insert(0, "step", np.arange(1, len(table) + 1))
        rows = table.iloc[[n - 1 for n in steps]]
        text = rows.to_string(index=self.index is not None, float_format="{:.3g}".format, line_width=100)
        return f"Forecast of {len(table)} steps. {words}.\n{text}"

    @property
    def mean(self) -> Array:
        """Mean of the observations 1, ..., H steps ahead, (H,) or (H, D)."""
        return np.asarray(self._simulated().mean(0))

    def interval(self, probability: float = 0.9) -> tuple[Array, Array]:
        """Return the ends of the central intervals of the observations 1, ..., H steps ahead.

        Parameters
        ----------
        probability : float
            Probability of each interval.

        Returns
        -------
        low, high : ndarray, (H,) or (H, D)
        """
        if not 0 < probability < 1:
            raise ValueError(f"probability is {probability}; it must lie between 0 and 1.")
        low, high = np.quantile(self._simulated(), [(1 - probability) / 2, (1 + probability) / 2], axis=0)
        return np.asarray(low), np.asarray(high)

    def to_frame(self, probability: float = 0.9) -> Any:
        """Return the forecast as a table.

        Parameters
        ----------
        probability : float
            Probability of the intervals of observations.

        Returns
        -------
        pandas.DataFrame
            A row per step, with its time if the series has times: ``mean``, ``low`` and ``high`` of the observation,
            for several columns with their names in front; ``event``, the probability that a rare state was visited by
            then, with its 90 % interval ``event_low`` and ``event_high``; ``state_0``, ``state_1``, ...
        """
        import pandas as pd

        columns: dict[str, Array] = {}
        if len(self.observations) > 0:
            found, H = (self.mean, *self.interval(probability)), len(self.event)
            values = np.stack(found, axis=-1).reshape(H, -1, 3)  # (H, D, 3)
            for d in range(values.shape[1]):
                front = "" if values.shape[1] == 1 else f"{self.names[d] if self.names else f'y{d}'}_"
                columns |= {front + what: values[:, d, i] for i, what in enumerate(("mean", "low", "high"))}
        columns |= {"event": self.event, "event_low": self.low, "event_high": self.high}
        columns |= {f"state_{k}": self.states[:, k] for k in range(self.states.shape[1])}
        steps = pd.RangeIndex(1, len(self.event) + 1, name="step")
        return pd.DataFrame(columns, steps if self.index is None else self.index)

    def _simulated(self) -> Array:
        if len(self.observations) == 0:
            raise ValueError("no continuations were simulated (size=0); forecast with a larger size.")
        return self.observations


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
    """Forecast a series whose last state has the given distribution (Z, K) under each of Z points."""
    check_no_effects(model, "forecast", "RegimeFilter.forecast")
    check_whole("horizon", horizon)
    check_whole("size", size, 0)
    steps = np.stack([point.transition for point in points])  # (Z, K, K)
    common = ~np.isin(np.arange(model.n_states), rare)
    states, event = np.empty((horizon, model.n_states)), np.empty((len(points), horizon))
    anywhere = avoided = distribution[:, None]
    for h in range(horizon):
        anywhere, avoided = anywhere @ steps, np.where(common, avoided @ steps, 0.0)  # avoided: no rare state so far
        states[h], event[:, h] = anywhere[:, 0].mean(0), np.maximum(1 - avoided[:, 0].sum(1), 0.0)
    low, high = np.quantile(event, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
    observations = []
    for n in range(size):
        z = n % len(points)
        last = int(rng.choice(model.n_states, p=distribution[z] / distribution[z].sum()))
        observations.append(simulate(rng, model, points[z], horizon, last)[0])
    return Forecast(states, event.mean(0), low, high, np.array(observations))


# ---------------------------------------------------------------- held-out observations
def state_densities(model: Model, draws: Draws, y: Array, state: int) -> Array:
    r"""Return log densities (Z, n) of observations y (n,) or (n, D) known to come from ``state``, under Z draws.

    .. math:: \log p(Y^{(r)} \mid \theta_z, X^{(r)} = k)
    """
    check_no_effects(model, "state_densities", "log_score")
    draws, y = flatten_draws(draws), np.atleast_2d(np.asarray(y, dtype=float).T).T  # (n, D)
    value = y[:, 0] if columns(model.family) == 1 else tuple(y.T)
    logs = [log_density(model.family, value, prepare(model.family, phi)) for phi in draws.phi[:, state]]
    return np.where(observed_rows(model.family, y), constant(model.family, y) + np.array(logs), 0.0)


def flatten_draws(draws: Draws) -> Draws:
    """Merge all leading axes of the draws into one."""
    phi, transition = draws
    if phi.size == 0:
        raise ValueError("there are no draws to predict with.")
    return Draws(phi.reshape(-1, *phi.shape[-2:]), transition.reshape(-1, *transition.shape[-2:]))


def sequence_densities(model: Model, draws: Draws, y: Array) -> Array:
    r"""Return log densities (Z, n) of n held-out sequences y (n, m) under Z draws, from the model's start."""
    check_no_effects(model, "sequence_densities", "log_score")
    draws, y = flatten_draws(draws), np.atleast_2d(np.asarray(y, dtype=float))
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
    r"""Return the mean log predictive density of n held-out observations or sequences from log densities (Z, n).

    .. math:: \frac 1 n \sum_r \log \Bigl(\frac 1 Z \sum_z p(Y^{(r)} \mid \theta_z)\Bigr)

    Ou et al., eq. (11).
    """
    return float(np.mean(logsumexp(densities, axis=0) - np.log(len(densities))))


def held_out_so_far(densities: Array) -> Array:
    """Return the mean log predictive densities (Z,) based on the first 1, 2, ..., Z draws; see ``held_out``."""
    total = np.logaddexp.accumulate(densities, axis=0) - np.log(np.arange(1, len(densities) + 1))[:, None]
    return np.asarray(total.mean(1))
