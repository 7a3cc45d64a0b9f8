"""Simulation of observations and states from a model."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_generator, check_whole
from rarehmm.common.writing import npy_writer
from rarehmm.data.rows import Rows, concatenate
from rarehmm.data.series import Series
from rarehmm.data.summaries import LARGEST
from rarehmm.engine.contracts.family import columns
from rarehmm.engine.kernels.sequential import draw_path
from rarehmm.model.effect_simulation import simulate_rows
from rarehmm.model.learnable import check_lengths
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

STRETCH = 1 << 20  # observations per stretch


def simulate(
    rng: np.random.Generator,
    model: Model,
    parameters: Parameters,
    size: int | Series,
    state: int | None = None,
    *,
    after: Series | None = None,
) -> tuple[Array, IntArray]:
    """Simulate observations and their hidden states.

    Parameters
    ----------
    rng
        Random number generator.
    model
        The model.
    parameters
        Parameters in natural units.
    size
        Number of observations, T, or a series with T rows, whose sequences, inputs and times the result has.  Models
        with autoregression, other than stationary around the level, take the first rows of each sequence as given:
        they are those of this series, and are drawn where it has none.
    state
        Hidden state just before the first observation.  None (default): the first state is drawn from the start
        distribution.
    after
        A series that the result continues, and whose last state is ``state``.  Models with autoregression need it if
        there is a ``state``.

    Returns
    -------
    y : ndarray of shape (T,) or (T, D)
        The observations.
    states : ndarray of shape (T,)
        The hidden states.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or does not fit the model.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Model, Poisson, Priors, Gamma, simulate
    >>> model = Model(Poisson(), 2, Priors((Gamma(1.0, 0.1),)))
    >>> truth = model.parameters([[0.9, 0.1], [0.5, 0.5]], rate=[1.0, 30.0])
    >>> y, states = simulate(np.random.default_rng(0), model, truth, 8)
    >>> states
    array([0, 0, 0, 0, 0, 1, 1, 1])
    >>> y
    array([ 3.,  1.,  1.,  2.,  1., 23., 32., 32.])
    """
    parts = list(simulate_stretches(rng, model, parameters, size, state, after))
    y, path = (np.concatenate(part) for part in zip(*parts, strict=True))
    return y, path


def simulate_file(
    path: str | Path, rng: np.random.Generator, model: Model, parameters: Parameters, size: int
) -> npt.NDArray[np.float64]:
    """Simulate observations of any number straight into a .npy file.

    The observations are those that ``simulate`` gives for the same generator.

    Parameters
    ----------
    path
        The file to write.
    rng
        Random number generator.
    model
        The model.
    parameters
        Parameters in natural units.
    size
        Number of observations, T.

    Returns
    -------
    memmap of shape (T,) or (T, D)
        The file, mapped into memory read-only.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or does not fit the model.
    """
    D = columns(model.family)
    with npy_writer(Path(path), np.float64, (size,) if D == 1 else (size, D)) as write:
        for rows, _ in simulate_stretches(rng, model, parameters, size):
            write(rows)
    return np.lib.format.open_memmap(path, "r")


def simulate_stretches(
    rng: np.random.Generator,
    model: Model,
    parameters: Parameters,
    size: int | Series,
    state: int | None = None,
    after: Series | None = None,
) -> Iterator[tuple[Array, IntArray]]:
    """Yield simulated observations and their states, one stretch at a time."""
    check_generator(rng)
    if not isinstance(size, Series):
        check_whole("size", size)
    if state is not None and state not in range(model.n_states):
        raise ValueError(f"state is {state}; it must lie in 0..{model.n_states - 1}.")
    if after is not None and state is None:
        raise ValueError("after is given and state is not; pass the state of its last row, such as a filtered one.")
    model.check_parameters(parameters)
    if model.effects is not None:
        yield from _simulate_effects(rng, model, parameters, size, state, after)
        return
    T, bounds = (len(size), size.bounds) if isinstance(size, Series) else (size, np.array([0, size]))
    cumulative, first = cumulative_probabilities(parameters)
    for low in range(0, T, STRETCH):
        path = np.empty(min(T - low, STRETCH), dtype=np.int64)
        fresh = np.zeros(len(path), dtype=bool)
        fresh[bounds[(bounds >= low) & (bounds < low + len(path))] - low] = True
        fresh[0] &= low > 0 or state is None
        state = draw_path(rng.random(len(path)), cumulative, first, fresh, 0 if state is None else state, path)
        yield np.clip(model.family.draw(rng, path, parameters.phi), -LARGEST, LARGEST), path


def _simulate_effects(
    rng: np.random.Generator,
    model: Model,
    parameters: Parameters,
    size: int | Series,
    state: int | None,
    after: Series | None,
) -> Iterator[tuple[Array, IntArray]]:
    """Yield stretches of models whose rows differ."""
    unfolding, reach = model.unfolding, model.every_effect.reach
    node, origin, clock, past = 0, 0, 0.0, None
    if state is not None:
        if reach > 0 and after is None:
            raise ValueError(
                f"state is {state} and the model has lags; pass after=, the series that the result continues."
            )
        node = int(rng.choice(len(unfolding.paths), p=unfolding.start(np.eye(model.n_states)[state], True)))
        origin = -1  # the first sequence begins before the first row
    if after is not None:
        model.check(after)
        origin = int(after.bounds[-2]) - len(after)
        past = _last_rows(model, after)
        clock = 0.0 if after.has_times else float(past.clock[-1]) + 1
    T, bounds = (len(size), size.bounds) if isinstance(size, Series) else (size, np.array([0, size]))
    if past is None and model.every_effect.gives_first_rows:
        check_lengths(bounds, reach)
    for low in range(0, T, STRETCH):
        high = min(T, low + STRETCH)
        rows = _rows(model, size, low, high)
        sequence = np.searchsorted(bounds, np.arange(low, high), side="right") - 1
        rows = rows._replace(clock=np.where(sequence == 0, rows.clock + clock, rows.clock))
        before = 0 if past is None else len(past.y)
        whole = rows if past is None else concatenate([past, rows])
        begin = np.where(sequence == 0, origin, bounds[sequence]) - low + before
        begin = np.concatenate([np.full(before, begin[0]), begin])
        ((y, nodes),) = simulate_rows(rng, model, [parameters], whole, begin, before, [node])
        node, whole = int(nodes[-1]), whole._replace(y=np.concatenate([whole.y[:before], y]))
        last = slice(max(len(whole.y) - reach, 0), None)
        past = Rows(whole.y[last], whole.exog[last], whole.clock[last], whole.states)
        yield (y if y.shape[1] > 1 else y[:, 0]), unfolding.chain.node_state[nodes]


def _last_rows(model: Model, series: Series) -> Rows:
    """Rows at the end of a series on which the density of the next one depends."""
    T, begin, n = len(series), int(series.bounds[-2]), max(model.every_effect.reach, 1)
    while n < T - begin and model.every_effect.fills_gaps and np.isnan(series.read(T - n, T)).all():
        n *= 4
    return _rows(model, series, max(begin, T - n), T)


def _rows(model: Model, size: int | Series, low: int, high: int) -> Rows:
    """Rows [low, high) without known states, their inputs in the order in which the model reads them."""
    effects, unknown = model.every_effect, np.empty(0, dtype=np.int64)
    parts = [part for part in (effects.location, effects.switching, effects.scale, effects.slopes) if part is not None]
    names = next((part.exog_names for part in parts if part.chosen), ())
    if isinstance(size, Series):
        rows = size.read_rows(low, high)
        for part in parts:
            part.check(size)
        order = [size.exog_names.index(name) if name in size.exog_names else 0 for name in names]
        same = len(names) == rows.exog.shape[1] and not set(names) <= set(size.exog_names)  # one of them has no names
        return rows._replace(exog=rows.exog if same else rows.exog[:, order], states=unknown)
    for part in parts:
        if part.chosen or part.has_times:
            what = ", ".join(map(repr, part.chosen.names)) if part.chosen else "times"
            raise ValueError(f"future inputs missing: {what}; instead of {size}, pass a Series whose rows have them.")
    n = high - low
    return Rows(
        np.full((n, columns(model.family)), np.nan), np.empty((n, len(names))), np.arange(low, high, dtype=float),
        unknown,
    )  # fmt: skip


def simulate_like(
    rng: np.random.Generator, model: Model, points: Sequence[Parameters], series: Series
) -> Iterator[Array]:
    """Yield observations (T, D) simulated from each of some parameters, however many and short the sequences are.

    They have the sequences, inputs and times of a series.  Models that take the first rows of a sequence as given have
    those of the series.
    """
    T, bounds = len(series), series.bounds
    if model.effects is not None:
        rows, begin = _rows(model, series, 0, T), np.repeat(bounds[:-1], np.diff(bounds))
        together = max(1, STRETCH // T)
        for low in range(0, len(points), together):
            yield from (y for y, _ in simulate_rows(rng, model, points[low : low + together], rows, begin))
        return
    fresh = np.zeros(T, dtype=bool)
    fresh[bounds[:-1]] = True
    for parameters in points:
        cumulative, first = cumulative_probabilities(parameters)
        path = np.empty(T, dtype=np.int64)
        draw_path(rng.random(T), cumulative, first, fresh, 0, path)
        y = model.family.draw(rng, path, parameters.phi)
        yield np.asarray(np.clip(y, -LARGEST, LARGEST).reshape(T, -1))


def cumulative_probabilities(parameters: Parameters) -> tuple[Array, Array]:
    """Return the cumulative rows (K, K) of the transition matrix and of the start distribution (K,)."""
    rows, first = np.cumsum(parameters.transition, axis=1), np.cumsum(parameters.start)
    return rows / rows[:, -1:], first / first[-1]  # 1 from the last possible state on
