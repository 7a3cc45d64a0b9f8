"""Streams of models whose rows differ: inputs, autoregression, phases, transitions with inputs, known states.

Rows may arrive in stretches of any length.  Their probabilities are those of a pass over the whole series: of the past,
a stream keeps the distribution of the current node, the last p rows with their inputs, or the last observed row and the
number of missing ones since, and its position on the clock.
"""

import functools
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_memory, check_whole
from rarehmm.common.writing import atomic_file
from rarehmm.data.clocks import is_time
from rarehmm.data.new_rows import RowFormat, missing_before
from rarehmm.data.rows import Rows, concatenate
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import constant, domains
from rarehmm.engine.kernels.edges import EdgePoint, log_forward_edges
from rarehmm.exact.densities import ranges_between
from rarehmm.exact.edge_pass import edge_point, log_terms
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.posterior.prediction import describe_stream

FORMAT = 1  # version of stored streams
EFFECTS = "inputs", "switching", "scale"


class RegimeStream(NamedTuple):
    """State of a stream after some rows; ``RegimeStream()`` is that before the first.

    Attributes
    ----------
    nodes : ndarray or None, (Z, M)
        Log probability of each node now, under each of Z posterior draws; None before the first row of a sequence.
    node_state : ndarray of int, (M,)
        State of each node.
    log_likelihood : ndarray, (Z,)
        Log likelihood of all rows so far, under each draw.
    past : Rows or None
        The last p rows of the sequence, or the last observed one if it is followed by at least p missing ones.
    gap : int
        Number of missing rows since ``past``.
    position, seen : int
        Number of rows so far in this sequence, and in all.
    origin : int
        Row number of the first row of this sequence, which seasons and trends follow if there are no times.
    last : pandas.Timestamp or None
        Time of the last row, if it is known.
    settled : dict
        What inputs were settled to: the origin of seasons, and the mean and scale of columns.
    """

    nodes: Array | None = None
    node_state: IntArray = np.zeros(0, dtype=np.int64)
    log_likelihood: Array = np.zeros(0)
    past: Rows | None = None
    gap: int = 0
    position: int = 0
    seen: int = 0
    settled: dict[str, Any] = {}  # noqa: RUF012
    origin: int = 0
    last: Any = None

    @property
    def probability(self) -> Array:
        """Probability of each state now (K,), averaged over the posterior draws."""
        if self.nodes is None:
            raise ValueError("the stream has seen no row of this sequence yet.")
        return _of_states(np.exp(self.nodes).mean(0), self.node_state)

    def __repr__(self) -> str:
        return describe_stream("RegimeStream", self.seen, None if self.nodes is None else self.probability)

    def at_new_sequence(self) -> "RegimeStream":
        """Return the stream before the first row of a new sequence, which does not depend on the rows so far."""
        return self._replace(nodes=None, past=None, gap=0, position=0, origin=0, last=None)

    # ------------------------------------------------------------ storage
    def to_dict(self) -> dict[str, Any]:
        """Convert the stream to plain data that can be stored as JSON.

        Returns
        -------
        dict
        """
        past = None if self.past is None else {name: _plain(part) for name, part in self.past._asdict().items()}
        return {
            "format": FORMAT,
            "nodes": None if self.nodes is None else _plain(self.nodes),
            "node_state": self.node_state.tolist(),
            "log_likelihood": self.log_likelihood.tolist(),
            "past": past,
            "gap": self.gap,
            "position": self.position,
            "seen": self.seen,
            "settled": self.settled,
            "origin": self.origin,
            "last": None if self.last is None else self.last.isoformat(),
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "RegimeStream":
        """Restore a stream from the result of ``to_dict``.

        Parameters
        ----------
        stored : dict
            What ``to_dict`` returned.

        Returns
        -------
        RegimeStream

        Raises
        ------
        ValueError
            If the data are not those of a stream, or have a later format.
        """
        try:
            version = check_whole("format", stored["format"])
            if version > FORMAT:
                raise ValueError(f"its format is {version} and this version of rarehmm reads formats up to {FORMAT}")
            nodes = None if stored["nodes"] is None else _numbers(stored["nodes"], -np.inf, 2)
            states = np.array(stored["node_state"], dtype=np.int64)
            value = _numbers(stored["log_likelihood"], np.nan, 1)
            position, seen = (check_whole(name, stored[name], 0) for name in ("position", "seen"))
            past, gap = _past(stored["past"]), check_whole("gap", stored["gap"], 0)
            rows = 0 if past is None else len(past.y)
            if nodes is not None and (nodes.shape != (len(value), len(states)) or not _are_probabilities(nodes)):
                raise ValueError("its rows are not probabilities")
            if (nodes is None) != (position == 0) or seen < position or rows + gap > position:
                raise ValueError("its numbers of rows contradict each other")
            origin = check_whole("origin", stored["origin"], 0)
            last = None if stored["last"] is None else timestamp(stored["last"])
            return cls(nodes, states, value, past, gap, position, seen, dict(stored["settled"]), origin, last)
        except (LookupError, OverflowError, TypeError, ValueError) as error:
            said = str(error).rstrip(".")
            raise ValueError(f"this is not a stored stream ({said}); start a new one, or update rarehmm.") from None

    def save(self, path: str | Path) -> None:
        """Save the stream to a JSON file, which appears only once it is complete.

        Parameters
        ----------
        path : str or Path
            The file; one of the same name is replaced.
        """
        with atomic_file(Path(path)) as name:
            name.write_text(json.dumps(self.to_dict(), allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "RegimeStream":
        """Load a stream that was saved with ``save``.

        Parameters
        ----------
        path : str or Path
            The file.

        Returns
        -------
        RegimeStream

        Raises
        ------
        ValueError
            If the file does not hold a stream, or has a later format.
        """
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


class Filtered(NamedTuple):
    """What new rows say, as returned by ``RegimeFilter.update``.

    Attributes
    ----------
    stream : RegimeStream
        The stream after these rows.
    probabilities : ndarray, (n, K)
        Filtered probability of each state in each row, averaged over Z posterior draws.
    log_densities : ndarray, (Z, n)
        Log density of each row given all before it, under each draw; 0 where it is missing.
    """

    stream: RegimeStream
    probabilities: Array
    log_densities: Array


class StateForecast(NamedTuple):
    """Forecast of the states of H rows, as returned by ``RegimeFilter.forecast``.

    Attributes
    ----------
    states : ndarray, (H, K)
        Probability of each state 1, ..., H steps later.
    event : ndarray, (H,)
        Probability that a rare state is visited within 1, ..., H steps.
    low, high : ndarray, (H,)
        Ends of the central 90 % posterior interval of ``event``.
    """

    states: Array
    event: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class RegimeFilter:
    """A model at Z posterior draws, to which rows are passed as they arrive.

    Attributes
    ----------
    model
        The model.
    points
        Z draws of its parameters; averages are over these.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import AroundLevel, Gaussian, Model, no_priors
    >>> model = Model(Gaussian(), 2, no_priors(Gaussian()), autoregression=AroundLevel(1))
    >>> point = model.natural([[0.0, 1.0], [9.0, 1.0]], [[0.99, 0.01], [0.1, 0.9]], [0.5])
    >>> regimes = RegimeFilter(model, [point])
    >>> stream = regimes.update(RegimeStream(), [0.3, -1.1]).stream
    >>> stream = regimes.update(stream, 9.2).stream
    >>> stream.seen, stream.probability.round(2)
    (3, array([0., 1.]))
    """

    model: Model
    points: list[Parameters]

    @functools.cached_property
    def edge_points(self) -> list[EdgePoint]:
        """The draws, checked and in the form that kernels read."""
        return [edge_point(self.model, point) for point in self.points]

    @functools.cached_property
    def format(self) -> RowFormat:
        """What new rows have to look like."""
        return RowFormat.of(domains(self.model.family), list(self._inputs.values()), self.model.n_states)

    @property
    def _inputs(self) -> dict[str, Any]:
        model = self.model
        given = {name: getattr(model, name) for name in EFFECTS} | {"transitions": model.transitions.inputs}
        return {name: inputs for name, inputs in given.items() if inputs is not None}

    @functools.cached_property
    def settled(self) -> dict[str, Any]:
        """What a stream of this model depends on, as plain data."""
        given = {"autoregression": repr(self.model.autoregression)}
        described = given | {name: inputs.to_dict() for name, inputs in self._inputs.items()}
        return dict(json.loads(json.dumps(described)))

    # ------------------------------------------------------------ rows that arrive
    def update(
        self,
        stream: RegimeStream,
        y: npt.ArrayLike,
        *,
        exog: Any = None,
        times: Any = None,
        states: npt.ArrayLike | None = None,
        regular: bool | str = True,
    ) -> Filtered:
        """Filter new rows of the sequence that a stream is in.

        Parameters
        ----------
        stream
            The state after the rows so far.
        y
            New observations (n,) or (n, D), or a single one; NaN is missing.
        exog
            Inputs (n, m) of these rows, with the columns of the series that was fitted, or a table with at least those
            that the model reads.
        times
            Times of these rows, if season or trend follow them and y has no index.
        states
            Known states (n,), -1 or NaN where unknown.
        regular
            What is done if times, where there are any, are not evenly spaced, as in ``Series``.

        Returns
        -------
        Filtered
            The stream after these rows, and their probabilities and predictive densities.

        Raises
        ------
        ValueError
            If inputs are missing, if a value cannot be used, if times do not follow those before as ``regular`` says,
            or if the stream belongs to another model.
        """
        stream = self._checked(stream)
        place = stream.origin + stream.position
        rows, index = self.format.rows(y, exog, times, states, place, stream.seen, stream.last)
        if index is None:
            return self.update_rows(stream, rows)
        if stream.last is not None and stream.last.tzinfo is not None and index.tz is not None:
            stream = stream._replace(last=stream.last.tz_convert(index.tz))
        missing, found = missing_before(index, stream.last, self.format.step, regular, stream.seen), []
        for low, high in pairwise(np.unique([0, *np.flatnonzero(missing), len(index)]).tolist()):
            if missing[low] > 0:
                stream = self._after_gap(stream, int(missing[low]), index[low - 1] if low else stream.last, index[low])
            found.append(self.update_rows(stream, rows.at(slice(low, high))))
            stream = found[-1].stream
        probabilities, log_densities = (np.concatenate([one[i] for one in found], i - 1) for i in (1, 2))
        return Filtered(stream._replace(last=index[-1]), probabilities, log_densities)

    def _after_gap(self, stream: RegimeStream, missing: int, last: Any, time: Any) -> RegimeStream:
        """Return the stream after rows that are missing between two times."""
        import pandas as pd

        check_memory(
            f"{missing:,} missing rows before {time}", 100 * missing, "correct this time, or start a new stream."
        )
        index = pd.date_range(last, time, periods=missing + 2)[1:-1]
        rows = self.format.future(missing, None, index, stream.origin + stream.position, stream.seen)
        return self.update_rows(stream, rows).stream

    def update_rows(self, stream: RegimeStream, rows: Rows) -> Filtered:
        """Filter new rows that were checked before, such as those that ``Series.read_rows`` returns."""
        stream = self._checked(stream)
        found, values = [], []
        for low, high in ranges_between(0, len(rows.y)):
            part = rows.at(slice(low, high))
            nodes, log_densities = self._filter(stream, part)
            stream = self._after(stream, part, nodes[:, -1], log_densities)
            found.append(_of_states(np.exp(nodes).mean(0), stream.node_state))
            values.append(log_densities)
        return Filtered(stream, np.concatenate(found), np.concatenate(values, axis=1))

    def after(self, series: Series, stream: RegimeStream | None = None) -> RegimeStream:
        """Return the stream after all rows of a series, which is read a stretch at a time.

        Parameters
        ----------
        series
            Sequences of rows, as the model was fitted to.
        stream
            The stream before; None: a new one.  The first sequence starts a new one in any case.

        Returns
        -------
        RegimeStream
            In the last sequence, which can be continued.
        """
        self.model.check(series)
        stream, names = stream or RegimeStream(), self.format.exog_names
        order = np.array([series.exog_names.index(n) if n in series.exog_names else 0 for n in names], dtype=np.int64)
        for first, last in zip(series.bounds[:-1].tolist(), series.bounds[1:].tolist(), strict=True):
            stream = stream.at_new_sequence()
            for low, high in ranges_between(first, last):
                rows = series.read_rows(low, high)
                stream = self.update_rows(stream, rows._replace(exog=rows.exog[:, order])).stream
        index = series.index[-1] if isinstance(series.index, list) else series.index
        return stream._replace(last=index[-1] if is_time(index) else None)

    def at_end_of(self, series: Series, nodes: Array) -> RegimeStream:
        """Return the stream after the last row of a series, in which nodes have log probabilities (Z, M)."""
        T, begin, n = len(series), int(series.bounds[-2]), max(self.model.every_effect.reach, 1)
        while n < T - begin and np.isnan(series.read(T - n, T)).all():
            n *= 4
        first = max(begin, T - n)
        stream = self._checked(RegimeStream())._replace(position=first - begin, seen=first)
        return self._after(stream, series.read_rows(first, T), nodes, np.zeros((len(nodes), T - first)))

    # ------------------------------------------------------------ rows to come
    def before(self, stream: RegimeStream, rows: Rows) -> tuple[Rows, IntArray, int]:
        """Return rows to come after those that their lags need.

        Returns
        -------
        rows : Rows
            All of these rows.
        begin : ndarray of int
            First row of the sequence of each.
        before : int
            How many precede the rows to come.
        """
        return self._with_past(self._checked(stream), rows, whole=True)

    def forecast(
        self,
        stream: RegimeStream,
        horizon: int,
        rare: npt.ArrayLike = (),
        *,
        exog: Any = None,
        times: Any = None,
        probability: float = 0.9,
    ) -> StateForecast:
        """Forecast the states of the rows that follow.

        Parameters
        ----------
        stream
            The state after the rows so far.
        horizon
            Number of rows, H.
        rare
            States that count as rare.
        exog, times
            Inputs and times of these rows, as for ``update``, if transitions depend on them.
        probability
            Probability of the interval of ``event``.

        Returns
        -------
        StateForecast
            The forecast.

        Raises
        ------
        ValueError
            If inputs of transitions are missing, or if the stream belongs to another model.
        """
        stream, H = self._checked(stream), check_whole("horizon", horizon)
        model, chain = self.model, self.model.unfolding.chain
        reads = model.transitions.inputs
        rows = self.format.reading([] if reads is None else [reads]).future(
            H, exog, times, stream.origin + stream.position, stream.seen
        )
        common = ~np.isin(chain.node_state, np.asarray(rare))
        states, event = np.zeros((H, model.n_states)), np.empty((len(self.points), H))
        for z, (parameters, point) in enumerate(zip(self.points, self.edge_points, strict=True)):
            begin = np.full(H, -stream.position)
            terms = model.every_effect.rows(parameters, rows, begin, model.unfolding, True)
            at = slice(terms.at.weight, terms.at.weight + terms.at.weights)
            weights = terms.x[:, at] if terms.at.weights > 0 else np.broadcast_to(point.weight, (H, len(point.weight)))
            start = weights[0, : len(common)] if terms.at.weights > 0 else point.start
            anywhere = avoided = start if stream.nodes is None else np.exp(stream.nodes[z])
            for h in range(H):
                if h > 0 or stream.nodes is not None:
                    anywhere, avoided = (
                        np.bincount(chain.target, before[chain.source] * weights[h], len(common))
                        for before in (anywhere, avoided)
                    )
                avoided = np.where(common, avoided, 0.0)
                states[h] += _of_states(anywhere, chain.node_state)
                event[z, h] = max(1 - avoided.sum(), 0.0)
        low, high = np.quantile(event, [(1 - probability) / 2, (1 + probability) / 2], axis=0)
        return StateForecast(states / len(self.points), event.mean(0), low, high)

    # ------------------------------------------------------------ one stretch
    def _filter(self, stream: RegimeStream, rows: Rows) -> tuple[Array, Array]:
        """Log probabilities of nodes (Z, n, M) and log predictive densities (Z, n) of new rows."""
        model, chain = self.model, self.model.unfolding.chain
        every, begin, ext = self._with_past(stream, rows)
        n, M, Z = len(rows.y), len(chain.first_kind), len(self.points)
        nodes, values = np.empty((Z, n, M)), np.empty((Z, n))
        fresh = np.zeros(n, dtype=bool)
        fresh[0] = stream.nodes is None
        for z, (parameters, point) in enumerate(zip(self.points, self.edge_points, strict=True)):
            terms, logp, log_weight, log_start = log_terms(model, parameters, point, every, begin, ext)
            top = logp.max(1)
            logp -= top[:, None]
            before = np.zeros(M) if stream.nodes is None else stream.nodes[z].copy()
            log_forward_edges(logp, log_weight, log_start, fresh, chain, before, nodes[z], values[z])
            values[z] += top
        if not np.isfinite(values).all():
            z, i = np.argwhere(~np.isfinite(values))[0].tolist()
            raise ValueError(
                f"y[{i}] (row {stream.seen + i} of the stream) is {rows.y[i].tolist()}, which is impossible under draw "
                f"{z} after the rows before it. Look at transitions that are fixed at 0, and at known states."
            )
        return nodes, values + constant(model.family, terms.y[ext:])

    def _with_past(self, stream: RegimeStream, rows: Rows, whole: bool = False) -> tuple[Rows, IntArray, int]:
        """New rows after those that their lags need, the first row of their sequence, and how many precede them.

        A gap before them is there as a whole if it matters, or if ``whole`` says so.
        """
        past, labelled = stream.past, len(rows.states) > 0
        parts = [rows]
        if past is not None:
            if stream.gap > 0:  # only its length matters, and only to rows that are observed
                gap = (
                    stream.gap
                    if whole or not np.isnan(rows.y).all()
                    else min(stream.gap, self.model.every_effect.reach)
                )
                past = past.at(np.zeros(1 + gap, dtype=np.int64))
                past.y[1:] = np.nan
            parts = [past._replace(states=np.full(len(past.y) if labelled else 0, -1)), rows]
        every = concatenate(parts)
        ext = len(every.y) - len(rows.y)
        return every, np.full(len(every.y), ext - stream.position), ext

    def _after(self, stream: RegimeStream, rows: Rows, nodes: Array, log_densities: Array) -> RegimeStream:
        """The stream after new rows, the last of which has the given nodes (Z, M)."""
        effects, n = self.model.every_effect, len(rows.y)
        p, gap, position = effects.reach, 0, stream.position + n
        past = None
        if p > 0:
            every, _, _ = self._with_past(stream, rows)
            seen = np.flatnonzero(~np.isnan(every.y).all(1))
            last, total = (int(seen[-1]) if len(seen) > 0 else -1), len(every.y)
            if effects.fills_gaps and last >= 0 and total - last > p:
                old = stream.gap > 0 and last == 0
                gap = stream.gap + n if old else total - 1 - last
                past = every.at(np.array([last]))
            else:
                past = every.at(np.arange(max(0, total - p), total))
            past = past._replace(states=np.empty(0, np.int64))
        return stream._replace(
            nodes=nodes, log_likelihood=stream.log_likelihood + log_densities.sum(1), past=past, gap=gap,
            position=position, seen=stream.seen + n,
        )  # fmt: skip

    def _checked(self, stream: RegimeStream) -> RegimeStream:
        """Return a stream of this model, a new one prepared for it; raise if it belongs to another."""
        node_state, Z = self.model.unfolding.chain.node_state, len(self.points)
        if stream.seen == 0:
            return stream._replace(node_state=node_state, log_likelihood=np.zeros(Z), settled=self.settled)
        if not np.array_equal(stream.node_state, node_state) or len(stream.log_likelihood) != Z:
            raise ValueError(
                f"the stream has {len(stream.node_state)} nodes under {len(stream.log_likelihood)} draws and this "
                f"model {len(node_state)} under {Z}: it belongs to another fit. Start a new one."
            )
        if stream.settled != self.settled:
            name = next(name for name in sorted({*stream.settled, *self.settled})
                        if stream.settled.get(name) != self.settled.get(name))  # fmt: skip
            raise ValueError(
                f"{name} of the stream was settled differently from that of this model: it belongs to another fit. "
                "Start a new one."
            )
        return stream


def _of_states(nodes: Array, node_state: IntArray) -> Array:
    """Probabilities (..., K) of states from those of nodes (..., M)."""
    out = np.zeros((int(node_state.max()) + 1, *nodes.shape[:-1]))
    np.add.at(out, node_state, np.moveaxis(nodes, -1, 0))
    return np.moveaxis(out, 0, -1)


def _are_probabilities(logs: Array) -> bool:
    return bool((logs <= 1e-9).all() and np.allclose(np.exp(logs).sum(1), 1))


def timestamp(text: str) -> Any:
    """Restore a time from its text."""
    import pandas as pd

    return pd.Timestamp(text)


def _plain(values: Array) -> Any:
    """Nested lists for JSON, with None for values that are not finite."""
    return [_plain(part) for part in values] if values.ndim > 1 else [
        value if np.isfinite(value) else None for value in values.tolist()
    ]  # fmt: skip


def _numbers(stored: Any, gone: float, ndim: int) -> Array:
    """An array from nested lists, in which None stands for ``gone``."""
    values = np.array(stored, dtype=float)
    if values.ndim != ndim:
        raise ValueError(f"it has {values.ndim} dimensions where it needs {ndim}")
    return np.where(np.isnan(values), gone, values)


def _past(stored: dict[str, Any] | None) -> Rows | None:
    """Rows from what ``to_dict`` made of them."""
    if stored is None:
        return None
    y, clock = _numbers(stored["y"], np.nan, 2), _numbers(stored["clock"], np.nan, 1)
    exog = _numbers(stored["exog"], np.nan, 2)
    if not len(y) == len(exog) == len(clock):
        raise ValueError("its rows have different lengths")
    return Rows(y, exog, clock, np.empty(0, np.int64))
