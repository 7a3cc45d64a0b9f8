"""Answers of many kernels on small data, written to an .npz file: the program of tests/system/test_portability.py.

Which processor it is compiled for, and whether it is compiled at all, is said by numba's variables in its environment.
"""

import math
import sys

import numpy as np

import rarehmm as rh
from rarehmm.designs.uniform import uniform
from rarehmm.engine.dispatch import kernel
from rarehmm.engine.kernels.sequential import log_densities, scratch
from rarehmm.engine.lanes import LANES, lane_array, lanewise, load, store
from rarehmm.exact.densities import prepared
from rarehmm.samplers.baoab import Baoab
from rarehmm.windows.gradients import window_gradients

FAMILIES = {  # family, and the parameters of two states
    "student_t": (rh.StudentT(4.0), [[-1.0, 1.0], [3.0, 0.5]]),
    "free_negative_binomial": (rh.FreeNegativeBinomial(), [[2.0, 1.5], [9.0, 4.0]]),
    "gamma": (rh.GammaEmission(), [[2.0, 1.5], [0.5, 4.0]]),
    "von_mises": (rh.VonMises(), [[-1.0, 2.0], [2.5, 0.5]]),
}
NAMES = "exp", "log", "sine", "cosine", "lgamma", "power", "arithmetic"
lgamma = lanewise(math.lgamma)


@kernel
def functions(x, out):
    """Elementary functions out (functions, n, LANES) of positive numbers x (n, LANES)."""
    for i in range(len(x)):
        v = load(x, (i,))
        store(out, (0, i), np.exp(v))
        store(out, (1, i), np.log(v))
        store(out, (2, i), np.sin(v))
        store(out, (3, i), np.cos(v))
        store(out, (4, i), lgamma(v))
        store(out, (5, i), v**1.5)
        store(out, (6, i), 3.0 - v * v / 7.0 + np.sqrt(v))


def functions_of_lanes():
    x = np.geomspace(1e-3, 300.0, 8 * LANES).reshape(8, LANES)
    out = lane_array(len(NAMES), 8)
    functions(x, out)
    return {f"lanes of {name}": values for name, values in zip(NAMES, out, strict=True)}


def densities(family, phi):
    """Log densities of a few observations in two states."""
    model = rh.Model(family, 2, rh.Priors((rh.Normal(0.0, 1.0),) * 2))
    point = model.natural(np.array(phi), np.full((2, 2), 0.5))
    y, out = rh.simulate(np.random.default_rng(1), model, point, 40)[0][:, None], np.empty((40, 2))
    log_densities(family, prepared(model, point), y, *scratch(1), out)
    return out


def gaussian(whole):
    """Log posterior and EM of a Gaussian model with gaps; if all is asked for, windows and a short chain."""
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    point = model.parameters([[0.9, 0.08, 0.02], [0.1, 0.88, 0.02], [0.3, 0.3, 0.4]], mean=[-2, 0, 4], variance=1)
    y, _ = rh.simulate(np.random.default_rng(0), model, point, 400)
    y[100:110] = np.nan
    series, theta = rh.Series(y, lengths=[150, 250]), model.pack(point)
    value, slope = rh.log_posterior(model, theta, series)
    found = rh.expectations(model, point, series, with_statistics=True)
    out = {
        "log posterior": np.array(value), "gradient": slope, "statistics": found.statistics, "pairs": found.pairs,
        "climb": rh.climb(model, series, point, steps=4).trace,
    }  # fmt: skip
    if whole:
        windows = rh.Windows(series, 3, 6)
        out["windows"] = window_gradients(model, theta, series, windows)
        pool = rh.Pool(model, series, windows, uniform(windows), 4)
        draws = rh.run(np.random.default_rng(2), Baoab(0.02), model, pool, theta, 20)[0]
        out["moves of a chain"] = np.diff(draws, axis=0)  # which owe all their digits to gradients and noise
    return out


if __name__ == "__main__":
    answers = {f"densities of {name}": densities(*one) for name, one in FAMILIES.items()}
    np.savez(sys.argv[1], **answers, **functions_of_lanes(), **gaussian("all" in sys.argv[2:]))
