"""Models and series that several tests share, and a family of two columns written as a user would."""

import math
import os
import pathlib
from typing import NamedTuple

import numpy as np

from rarehmm import Gamma as GammaPrior
from rarehmm import Gaussian, Model, Normal, Poisson, Priors, StudentT, gibbs, infer, paper_priors, simulate
from rarehmm.data.domains import REALS
from rarehmm.engine.contracts.family import Parameter, log_density, prepare, score
from rarehmm.engine.dispatch import compiled
from rarehmm.engine.kernels.chain import estimates
from rarehmm.sampling.chains import target_of, workspace

DATA = pathlib.Path(os.environ.get("RAREHMM_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data"))
FAMILIES = (Gaussian(), StudentT(4.0), Poisson())

SINGLE = np.array([[0.99, 0.005, 0.005], [0.005, 0.99, 0.005], [0.495, 0.495, 0.01]])  # the paper's section 4.1


class Pair(NamedTuple):
    """Two independent Gaussian columns of unit variance: phi = (mean of the first, mean of the second)."""

    parameters = (
        Parameter("first", support="real", prior=Normal(0.0, 100.0)),
        Parameter("second", support="real", prior=Normal(0.0, 100.0), column=1),
    )
    domain = REALS
    columns = 2

    def draw(self, rng, states, phi):
        return phi[states] + rng.standard_normal((len(states), 2))


@compiled(prepare, Pair)
def _(family, phi):
    return phi[0], phi[1], -math.log(2 * math.pi)


@compiled(log_density, Pair)
def _(family, y, c):
    u, v = y[0] - c[0], y[1] - c[1]
    return c[2] - 0.5 * (u**2 + v**2)


@compiled(score, Pair)
def _(family, y, c):
    return y[0] - c[0], y[1] - c[1]


def model_of(family, K, start=None, **more):
    """A model with priors that need no data."""
    priors = Priors((GammaPrior(2.0, 0.1),)) if isinstance(family, Poisson) else paper_priors(family)
    return Model(family, K, priors, start=start, **more)


def parameters_of(rng, model, gap=1.5):
    """Random parameters: states ``gap`` apart, a transition matrix without structure."""
    K = model.n_states
    transition = rng.dirichlet(np.ones(K), size=K)
    match model.family:
        case StudentT():
            return model.parameters(transition, mean=gap * np.arange(K), scale2=rng.uniform(0.5, 2, K))
        case Pair():
            return model.parameters(transition, first=gap * np.arange(K), second=-gap * np.arange(K))
        case Poisson():
            return model.parameters(transition, rate=1.0 + 2 * gap * np.arange(K))
        case _:
            return model.parameters(transition, mean=gap * np.arange(K), variance=rng.uniform(0.5, 2, K))


def series_of(rng, model, parameters, T, missing=0.2):
    """Simulated observations with some missing, as an array."""
    y, _ = simulate(rng, model, parameters, T)
    y[rng.random(T) < missing] = np.nan
    y[rng.integers(T)] = 1.0  # at least one is there
    return y


def paper_series(rng, T, gap=20.0):
    """The paper's single-rare model with means ``gap`` apart: model, parameters, observations, states."""
    model = model_of(Gaussian(), 3)
    parameters = model.parameters(SINGLE, mean=[-gap, 0, gap], variance=1.0)
    return model, parameters, *simulate(rng, model, parameters, T)


def every_estimate(model, pool, theta, N):
    """The estimate (N, d) that each window would give if all lanes of a step drew it."""
    room, out = pool.allocate(N), np.empty((N, model.size))
    pool.gather(
        np.repeat(np.arange(N)[:, None], len(pool.row), axis=1),
        1 / (pool.size * pool.probabilities.T[:, pool.row]),
        room,
    )
    point, sums, work = workspace(model, pool)
    estimates(model.family, target_of(model, pool), room, theta, point, sums, work, out)
    return out


def off_gibbs(model, truth, series):
    """Standard errors (d,) by which means of the default rule are off those of Gibbs sampling."""
    draws = gibbs(np.random.default_rng(2), model, series, truth, 3000)[300:]
    batches = draws.reshape(30, -1, draws.shape[1]).mean(1)
    found = infer(np.random.default_rng(3), model, series, start=truth, wanted=2000)
    theta = model.pack_all(*found.mode.model.unpack_all(np.concatenate(found.theta)))
    error = np.hypot(batches.std(0) / np.sqrt(30), theta.std(0) / np.sqrt(2000))
    return (batches.mean(0) - theta.mean(0)) / error


def failing_at(number, log_posterior):
    """The same function, which finds its call of that number out of bounds; and the values that it has seen."""
    seen = []

    def bounded(model, theta, series, **more):
        found = log_posterior(model, theta, series, **more)
        seen.append(found[0])
        if len(seen) == number:
            raise ValueError("out of bounds")
        return found

    return bounded, seen
