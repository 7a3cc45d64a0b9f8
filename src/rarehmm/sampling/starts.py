"""Validation of the start of samplers that use all data."""

import numpy as np

from rarehmm.common.checks import check_generator, check_whole
from rarehmm.data.series import Series
from rarehmm.model.learnable import check_learnable
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters


def check_start(rng: np.random.Generator, model: Model, series: Series, start: Parameters, steps: int) -> Parameters:
    """Check the arguments of a chain; return its start, with the start distribution of the model."""
    check_generator(rng)
    check_whole("steps", steps)
    model.check(series)
    check_learnable(model.family, model.n_states, series, model.n_lags, model.every_effect.gives_first_rows)
    model.check_parameters(start)
    here = model.natural(start.phi, start.transition, start.coefficients)
    again = model.unpack(model.pack(here))  # raises if out of the bounds of theta
    return again if model.tied else here
