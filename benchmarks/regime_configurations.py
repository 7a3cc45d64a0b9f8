"""Series with season, autocorrelation, inputs or phases on which posteriors are calibrated, with true parameters.

Three states, of which the last is rare: .5 % to 2 % of the observations.  Noise has unit variance where not stated.
"""

from typing import NamedTuple

import numpy as np

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs, Season
from rarehmm.model.autoregression import AroundLevel
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases
from rarehmm.transitions.regression import Regression

P = np.array([[0.98, 0.0175, 0.0025], [0.0175, 0.98, 0.0025], [0.1, 0.1, 0.8]])  # 1.2 % rare
HALF = np.array([[0.98, 0.019, 0.001], [0.019, 0.98, 0.001], [0.1, 0.1, 0.8]])  # .5 % rare
SHORT = np.array([[0.98, 0.0175, 0.0025], [0.0175, 0.98, 0.0025], [0.25, 0.25, 0.5]])  # 1.5 % in three phases
DAY_AND_WEEK = (Season(1440, 8), Season(10080, 4))  # by the minute: 24 columns
WAVES = {"sin(1440) 1": 1.5, "cos(1440) 2": 0.7, "sin(10080) 1": 0.5}  # all other coefficients are 0


class Case(NamedTuple):
    """What a series is made of: parameters of its states, and what else moves them.

    ``lags`` of noise around levels; ``waves``: coefficients of the columns of ``seasons``; ``shared`` (p,): those of
    standard normal inputs, and ``switching`` (K,) those of one more, for each state; ``entry``: what an input adds to
    the log odds of the rare state; ``phases`` of each state.
    """

    emission: dict
    lags: tuple = ()
    seasons: tuple = ()
    waves: dict = WAVES
    shared: tuple = ()
    switching: tuple = ()
    entry: float | None = None
    phases: tuple = ()
    family: object = rh.Gaussian()
    transition: np.ndarray = P
    size: int = 100_000


def around(levels, *lags, **more):
    """Autocorrelated noise of unit innovations around levels."""
    return Case({"mean": levels, "variance": 1}, lags, **more)


CASES = {
    "AR(1) .6, levels -2, 0, 4": around([-2, 0, 4], 0.6),
    "AR(1) .95, levels -5, 0, 10": around([-5, 0, 10], 0.95),
    "AR(1) .95, levels -2, 0, 4": around([-2, 0, 4], 0.95),
    "AR(3), rare state of ten times the sd": Case({"mean": [-4, 0, 0], "variance": [1, 1, 100]}, (0.5, -0.2, 0.1)),
    "season of 24 columns, AR(1) .6": around([-5, 0, 10], 0.6, seasons=DAY_AND_WEEK),
    "two shared inputs, one that switches": around([-4, 0, 8], shared=(1.0, -0.5), switching=(0.25, -0.5, 1.0)),
    "counts with season": Case(
        {"rate": [1, 5, 40]}, seasons=(Season(24, 2),), waves={"sin(24) 1": 0.4}, family=rh.Poisson()
    ),
    "transitions with an input": around([-4, 0, 8], entry=0.7),
    "phases": around([-4, 0, 8], phases=(1, 1, 3), transition=SHORT),
}


def model_of(case, series, priors):
    """The model of a case, for a series with its inputs."""
    K, p = len(case.transition), len(case.shared)
    terms = [*case.seasons, *([Columns(series.exog_names[:p])] if p else [])]
    transitions = Homogeneous()
    if case.phases:
        transitions = Phases(case.phases)
    elif case.entry is not None:
        transitions = Regression(Inputs.of(series, [Columns()]))
    return rh.Model(
        case.family, K, priors, inputs=Inputs.of(series, terms) if terms else None,
        switching=Inputs.of(series, [Columns(series.exog_names[p:])]) if case.switching else None,
        autoregression=AroundLevel(len(case.lags)) if case.lags else None, transitions=transitions,
    )  # fmt: skip


def true_parameters(case, model):
    """The parameters from which a case is simulated."""
    K, effects = len(case.transition), model.every_effect
    waves = [case.waves.get(name, 0.0) for name in effects.location.names] if case.seasons else []
    slopes = np.zeros((0, K, K))
    if case.entry is not None:
        slopes = case.entry * (np.arange(K) == K - 1) * np.ones((1, K, 1))
        slopes = slopes - slopes.mean(-1, keepdims=True)
    coefficients = np.concatenate([waves, case.shared, case.switching, case.lags, slopes.ravel()])
    phi = np.column_stack([np.broadcast_to(case.emission[p.name], K) for p in case.family.parameters])
    return model.natural(phi.astype(float), case.transition, coefficients)


def simulated(case, seed, size=None):
    """Model with default priors, series, true parameters and true states (T,)."""
    rng, T, K = np.random.default_rng([*np.atleast_1d(seed), 24]), size or case.size, len(case.transition)
    columns = len(case.shared) + bool(case.switching) + (case.entry is not None)
    exog = rng.normal(size=(T, columns)) if columns else None
    empty = rh.Series(np.arange(T) % 2.0, exog=exog)
    shell = model_of(case, empty, rh.no_priors(case.family))
    truth = true_parameters(case, shell)
    y, states = rh.simulate(rng, shell, truth, empty)
    series = rh.Series(y, exog=exog)
    return model_of(case, series, rh.default_priors(case.family, K, series)), series, truth, states
