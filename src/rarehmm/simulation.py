"""A series out of a model."""

import numpy as np

from rarehmm.checks import check_generator, check_whole
from rarehmm.emissions import columns
from rarehmm.kernels.sequential import draw_path
from rarehmm.model import Model, Parameters
from rarehmm.series import Array, IntArray

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
    check_generator(rng)
    check_whole("size", size)
    if state is not None and state not in range(model.n_states):
        raise ValueError(f"state is {state}; it must lie in 0..{model.n_states - 1}.")
    model.check_parameters(parameters)
    D = columns(model.family)
    y = np.empty(size if D == 1 else (size, D))
    path = np.empty(size, dtype=np.int64)
    cumulative, first = np.cumsum(parameters.transition, axis=1), np.cumsum(parameters.start)
    cumulative, first = cumulative / cumulative[:, -1:], first / first[-1]  # 1 from the last possible state on
    for low in range(0, size, STRETCH):
        high = min(size, low + STRETCH)
        fresh = np.zeros(high - low, dtype=bool)
        fresh[0] = low == 0 and state is None
        state = draw_path(
            rng.random(high - low), cumulative, first, fresh, 0 if state is None else state, path[low:high]
        )
        y[low:high] = model.family.draw(rng, path[low:high], parameters.phi)
    return y, path
