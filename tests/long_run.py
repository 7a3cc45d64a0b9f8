"""A run of about a second with a checkpoint, for processes that are killed."""

import numpy as np
from small_models import model_of

import rarehmm as rh
from rarehmm.designs.uniform import uniform
from rarehmm.samplers.sgld import Sgld
from rarehmm.sampling import chains
from rarehmm.windows.windows import Windows


def setting():
    model = model_of(rh.Gaussian(), 2)
    truth = model.parameters([[0.9, 0.1], [0.2, 0.8]], mean=[-2, 2], variance=1)
    series = rh.Series(rh.simulate(np.random.default_rng(0), model, truth, 2_000)[0])
    return model, model.pack(truth), series


def long_run(checkpoint, steps=60_000):
    """A run of about a second, in many refills."""
    model, theta, series = setting()
    windows = Windows(series, 2, 2)
    pool = rh.Pool(model, series, windows, uniform(windows), 16, memory=100_000)
    chains.SECONDS = 0.01
    return rh.run(np.random.default_rng(1), Sgld(1e-6), model, pool, [theta] * 2, steps, thin=20, checkpoint=checkpoint)
