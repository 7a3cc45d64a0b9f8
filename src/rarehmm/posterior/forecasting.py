"""Forecasts of the rows that follow a series: observations, states and events, from its last rows and future inputs.

Continuations are simulated under each of Z posterior draws, from the nodes in which the last row is under that draw, so
that their intervals have the uncertainty of parameters, of the present state, and of what is to come.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.data.clocks import is_time
from rarehmm.data.new_rows import RowFormat
from rarehmm.data.rows import Rows
from rarehmm.data.series import Series
from rarehmm.data.stamps import continued
from rarehmm.exact.densities import ranges_between
from rarehmm.exact.edge_pass import EdgePass
from rarehmm.model.effect_simulation import simulate_rows
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.posterior.prediction import Forecast, forecast
from rarehmm.posterior.regime_streams import RegimeFilter, RegimeStream
from rarehmm.posterior.streaming import HALO, TOLERANCE, last_distribution, node_transfer


def forecast_after(
    rng: np.random.Generator,
    model: Model,
    points: list[Parameters],
    series: Series,
    horizon: int,
    rare: npt.ArrayLike = (),
    *,
    exog: Any = None,
    times: Any = None,
    probability: float = 0.9,
    size: int = 1000,
    threads: int | None = None,
) -> Forecast:
    """Forecast the rows that follow the last sequence of a series.

    Parameters
    ----------
    rng
        Random number generator.
    model, points
        The model, and Z posterior draws of its parameters.
    series
        The observations so far.
    horizon
        Number of rows, H.
    rare
        States that count as rare.
    exog
        Inputs (H, m) of the rows to come, with the columns of the series that was fitted, or a table with at least
        those that the model reads.
    times
        Times of the rows to come; by default those that continue the index of the series.
    probability
        Probability of the interval of ``event``.
    size
        Number of continuations; 0 if only states and events are of interest, which need inputs of transitions alone.
    threads
        Number of threads; None for all cores.

    Returns
    -------
    Forecast

    Raises
    ------
    ValueError
        If inputs are missing, or if the series does not suit the model.
    """
    H = check_whole("horizon", horizon)
    check_whole("size", size, 0)
    model.check(series)
    index = future_index(series, H, exog if times is None else times)
    chosen = np.atleast_1d(np.asarray(rare, dtype=np.int64))
    if model.effects is None:
        last = np.array([last_distribution(model, point, series, threads=threads) for point in points])
        found = forecast(rng, model, points, last, H, chosen, probability=probability, size=size)
        return found._replace(index=index, names=series.names)
    regimes = RegimeFilter(model.on(series), points)
    transitions = regimes.model.transitions.inputs
    check_future(regimes.format if size else regimes.format.reading([transitions] if transitions else []), exog, H)
    stream = stream_after(regimes, series, threads)
    ahead = regimes.forecast(stream, H, chosen, exog=exog, times=index, probability=probability)
    paths = np.empty((0, H))
    if size > 0:
        rows = regimes.format.future(H, exog, index, stream.position, stream.seen)
        paths = continuations(rng, regimes, stream, rows, size)
    return Forecast(*ahead, paths, index, series.names)


# ---------------------------------------------------------------- what is known of the rows to come
def future_index(series: Series, horizon: int, given: Any) -> Any:
    """Return the labels of the rows to come: those of times or inputs if they have any, or the next ones of the series.

    Raises
    ------
    ValueError
        If those that are given are not the next ones.
    """
    index = series.index[-1] if isinstance(series.index, list) else series.index
    expected: Any = None if index is None else continued(index[-len(series) + int(series.bounds[-2]) :], horizon)
    own: Any = given if is_time(given) else getattr(given, "index", None)
    if not is_time(own) or len(own) != horizon:
        return expected
    if is_time(expected) and series.is_regular and (differ := np.asarray(own != expected)).any():
        row = int(np.argmax(differ))
        raise ValueError(
            f"row {row} of the future inputs is at {own[row]}, and that of the series is at {expected[row]}. Pass "
            "inputs of the rows that follow the last one, or without an index."
        )
    return own


def check_future(needed: RowFormat, exog: Any, horizon: int) -> None:
    """Raise ValueError if inputs of rows to come are missing, or if there are too few or too many."""
    names = [needed.exog_names[i] for i in needed.needed]
    columns = list(exog) if isinstance(exog, Mapping) or hasattr(exog, "columns") else names
    missing = [name for name in names if exog is None or name not in columns]
    if missing:
        raise ValueError(
            f"future inputs missing: {', '.join(map(repr, missing))}; a forecast of {horizon} rows needs these columns "
            f"with {horizon} rows. States and events alone, size=0, need inputs of transitions only."
        )
    n = len(exog[names[0]] if isinstance(exog, Mapping) else exog) if names else horizon
    if n != horizon:
        raise ValueError(
            f"exog has {n} rows, and a forecast of {horizon} rows needs {horizon}; pass these, or horizon={n}."
        )


# ---------------------------------------------------------------- from the last rows on
def stream_after(regimes: RegimeFilter, series: Series, threads: int | None = None) -> RegimeStream:
    """Return the stream after the last row of a series.

    The last rows suffice if they lead to the same nodes from every node before them.
    """
    begin, T = int(series.bounds[-2]), len(series)
    if begin < T - HALO:
        passes = [EdgePass(regimes.model, point, series, threads, False) for point in regimes.points]
        found = [last_nodes(one, T - HALO, T) for one in passes]
        if all(nodes is not None for nodes in found):
            with np.errstate(divide="ignore"):
                return regimes.at_end_of(series, np.log(np.array(found)))
    stream = RegimeStream()
    for low, high in ranges_between(begin, T):
        stream = regimes.update_rows(stream, series.read_rows(low, high)).stream
    return stream


def last_nodes(work: EdgePass, first: int, last: int) -> Array | None:
    """Return the probabilities (M,) of nodes in row last - 1; None if they depend on those before row ``first``."""
    product = node_transfer(work, first, last)
    with np.errstate(invalid="ignore", divide="ignore"):
        given = product / product.sum(1, keepdims=True)
    same = (np.ptp(given, axis=0) <= TOLERANCE * given.max(0)).all()  # false for NaN
    return np.asarray(given[0]) if same else None


def continuations(
    rng: np.random.Generator, regimes: RegimeFilter, stream: RegimeStream, rows: Rows, size: int
) -> Array:
    """Simulate observations (size, H) or (size, H, D) of rows to come, from all draws in turn."""
    every, begin, before = regimes.before(stream, rows)
    D, Z, found = rows.y.shape[1], len(regimes.points), []
    assert stream.nodes is not None
    for z, point in enumerate(regimes.points[:size]):
        count = len(range(z, size, Z))
        p = np.exp(stream.nodes[z])
        nodes: IntArray = rng.choice(len(p), count, p=p / p.sum())
        drawn = simulate_rows(rng, regimes.model, [point] * count, every, begin, before, nodes.tolist())
        found += [y for y, _ in drawn]
    paths = np.array(found).reshape(size, len(rows.y), D)
    return paths[..., 0] if D == 1 else paths
