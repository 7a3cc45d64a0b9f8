"""Simulation of observations and states from a model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_generator, check_whole
from rarehmm.common.writing import npy_writer
from rarehmm.data.summaries import LARGEST
from rarehmm.engine.contracts.family import columns
from rarehmm.engine.kernels.sequential import draw_path
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

STRETCH = 1 << 20  # observations per stretch


def simulate(
    rng: np.random.Generator, model: Model, parameters: Parameters, size: int, state: int | None = None
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
        Number of observations, T.
    state
        Hidden state just before the first observation.  None (default): the first state is drawn from the start
        distribution.

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
    D = columns(model.family)
    y, path = np.empty(size if D == 1 else (size, D)), np.empty(size, dtype=np.int64)
    at = 0
    for rows, states in simulate_stretches(rng, model, parameters, size, state):
        y[at : at + len(rows)], path[at : at + len(rows)] = rows, states
        at += len(rows)
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
    rng: np.random.Generator, model: Model, parameters: Parameters, size: int, state: int | None = None
) -> Iterator[tuple[Array, IntArray]]:
    """Yield simulated observations and their states, one stretch at a time."""
    check_generator(rng)
    check_whole("size", size)
    if state is not None and state not in range(model.n_states):
        raise ValueError(f"state is {state}; it must lie in 0..{model.n_states - 1}.")
    model.check_parameters(parameters)
    cumulative, first = cumulative_probabilities(parameters)
    for low in range(0, size, STRETCH):
        path = np.empty(min(size - low, STRETCH), dtype=np.int64)
        fresh = np.zeros(len(path), dtype=bool)
        fresh[0] = low == 0 and state is None
        state = draw_path(rng.random(len(path)), cumulative, first, fresh, 0 if state is None else state, path)
        yield np.clip(model.family.draw(rng, path, parameters.phi), -LARGEST, LARGEST), path


def simulate_sequences(rng: np.random.Generator, model: Model, parameters: Parameters, bounds: IntArray) -> Array:
    """Simulate observations (T, D) of independent sequences with the given bounds, however many and short they are."""
    cumulative, first = cumulative_probabilities(parameters)
    path = np.empty(bounds[-1], dtype=np.int64)
    fresh = np.zeros(len(path), dtype=bool)
    fresh[bounds[:-1]] = True
    draw_path(rng.random(len(path)), cumulative, first, fresh, 0, path)
    y = model.family.draw(rng, path, parameters.phi)
    return np.asarray(np.clip(y, -LARGEST, LARGEST).reshape(len(path), -1))


def cumulative_probabilities(parameters: Parameters) -> tuple[Array, Array]:
    """Return the cumulative rows (K, K) of the transition matrix and of the start distribution (K,)."""
    rows, first = np.cumsum(parameters.transition, axis=1), np.cumsum(parameters.start)
    return rows / rows[:, -1:], first / first[-1]  # 1 from the last possible state on
