"""Langevin dynamics on the exact gradient of all data, with any of the samplers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.engine.contracts.sampler import DivergedError, Divergence, first_memory, noise_rows, step, validate_sampler
from rarehmm.exact.passes import log_posterior
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.sampling.starts import check_start

OnStep = Callable[[int], None]


def langevin(
    rng: np.random.Generator,
    sampler: Any,
    model: Model,
    series: Series,
    start: Parameters,
    steps: int,
    *,
    threads: int | None = None,
    on_progress: OnStep | None = None,
) -> Array:
    """Run a sampler on the gradient of the whole series, without a Metropolis correction.

    The draws follow the distribution of the discretised dynamics, which differs from the posterior by an error of the
    order of the step size.

    Parameters
    ----------
    rng
        Random number generator.
    sampler
        Sampler from ``rarehmm.samplers``, such as ``Baoab``; its memory (velocities) starts at zero.
    model
        The model.
    series
        The observations.
    start
        Parameters to start from; they are not among the draws.
    steps
        Number of draws.
    threads
        Number of threads; None (default): all available ones.
    on_progress
        Called as ``on_progress(step)`` after each step.

    Returns
    -------
    ndarray of shape (steps, d)
        Draws of theta.

    Raises
    ------
    DivergedError
        If the chain leaves the bounds of theta; the error carries the draws so far.
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    theta = model.pack(check_start(rng, model, series, start, steps))
    validate_sampler(sampler, model.powers, model.component_names)
    memory = first_memory(sampler, theta)
    draws = np.empty((steps, model.size))
    for t in range(steps):
        _, slope = log_posterior(model, theta, series, threads=threads)
        noise = rng.standard_normal((noise_rows(sampler), model.size))
        with np.errstate(over="ignore", invalid="ignore"):  # reported as a DivergedError below
            step(sampler, theta, slope, noise, memory, model.powers)
        draws[t] = theta
        try:
            model.unpack(theta)
        except ValueError as error:
            low, high = model.bounds
            component = model.component_names[int(np.argmin((theta >= low) & (theta <= high)))]
            draws[t:] = np.nan
            raise DivergedError([Divergence(component, t, 0)], draws[None]) from error
        if on_progress is not None:
            on_progress(t)
    return draws
