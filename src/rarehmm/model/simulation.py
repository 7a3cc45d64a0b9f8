"""A series out of a model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_generator, check_whole
from rarehmm.common.writing import written_npy
from rarehmm.data.summaries import LARGEST
from rarehmm.engine.contracts.family import columns
from rarehmm.engine.kernels.sequential import draw_path
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

STRETCH = 1 << 20  # observations drawn together


def simulate(
    rng: np.random.Generator, model: Model, parameters: Parameters, size: int, state: int | None = None
) -> tuple[Array, IntArray]:
    """``size`` observations, (T,) or (T, D), and their states (T,).

    The chain starts from the start law, or goes on from ``state`` (then the first observation is one step later).

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
    for rows, states in simulated(rng, model, parameters, size, state):
        y[at : at + len(rows)], path[at : at + len(rows)] = rows, states
        at += len(rows)
    return y, path


def simulate_file(
    path: str | Path, rng: np.random.Generator, model: Model, parameters: Parameters, size: int
) -> npt.NDArray[np.float64]:
    """The same observations, (T,) or (T, D), to a .npy file, however many; returned as a memory map of it."""
    D = columns(model.family)
    with written_npy(Path(path), np.float64, (size,) if D == 1 else (size, D)) as write:
        for rows, _ in simulated(rng, model, parameters, size):
            write(rows)
    return np.lib.format.open_memmap(path, "r")


def simulated(
    rng: np.random.Generator, model: Model, parameters: Parameters, size: int, state: int | None = None
) -> Iterator[tuple[Array, IntArray]]:
    """Observations and their states, a stretch at a time."""
    check_generator(rng)
    check_whole("size", size)
    if state is not None and state not in range(model.n_states):
        raise ValueError(f"state is {state}; it must lie in 0..{model.n_states - 1}.")
    model.check_parameters(parameters)
    cumulative, first = np.cumsum(parameters.transition, axis=1), np.cumsum(parameters.start)
    cumulative, first = cumulative / cumulative[:, -1:], first / first[-1]  # 1 from the last possible state on
    for low in range(0, size, STRETCH):
        path = np.empty(min(size - low, STRETCH), dtype=np.int64)
        fresh = np.zeros(len(path), dtype=bool)
        fresh[0] = low == 0 and state is None
        state = draw_path(rng.random(len(path)), cumulative, first, fresh, 0 if state is None else state, path)
        yield np.clip(model.family.draw(rng, path, parameters.phi), -LARGEST, LARGEST), path
