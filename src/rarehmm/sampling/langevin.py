"""Langevin dynamics on exact gradients of all data, by any of the samplers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.engine.contracts.sampler import DivergedError, Divergence, check_sampler, first_memory, noise_rows, step
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
    """Draws of theta (steps, d) by the steps of a sampler on the gradient of the whole series, without correction.

    The law of the draws is that of the discretised dynamics: right up to an error of the order of the step size.
    Memory (velocities) begins at zero; the first draw is the one after ``start``; ``watch(step)`` is told of each.
    """
    theta = model.pack(check_start(rng, model, series, start, steps))
    check_sampler(sampler, model.powers, model.component_names)
    memory = first_memory(sampler, theta)
    draws = np.empty((steps, model.size))
    for t in range(steps):
        _, slope = log_posterior(model, theta, series, threads=threads)
        noise = rng.standard_normal((noise_rows(sampler), model.size))
        with np.errstate(over="ignore", invalid="ignore"):  # said in other words below
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
