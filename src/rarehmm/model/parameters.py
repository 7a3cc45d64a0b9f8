"""Natural parameters of a model, and the priors over them."""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import Prior
from rarehmm.model.priors import Dirichlet


class EffectPriors(NamedTuple):
    """Standard deviations of the priors of coefficients, which are normal around zero.

    Inputs are standardised, so that these are effects of one standard deviation of an input.  Lags of a stationary
    autoregression have a uniform prior of their partial autocorrelations instead.

    Attributes
    ----------
    location
        Of inputs on the linear predictor of each column that has one.
    scale
        Of inputs on the log scale.
    lags
        Of the first lag, where it is not restricted; of lag m it is smaller by the square root of m.
    slopes
        Of inputs on the logits of transitions.
    """

    location: tuple[float, ...]
    scale: float = 1.0
    lags: float = 1.0
    slopes: float = 2.5


class Priors(NamedTuple):
    """Prior distributions of the emission parameters, of the transition matrix and of coefficients.

    Attributes
    ----------
    emission
        One prior for each parameter of the family, in the family's order.
    transition
        Prior of each row of the transition matrix.
    effects
        Priors of the coefficients of inputs and lags; None: flat ones.

    Examples
    --------
    >>> from rarehmm import Gamma, Priors
    >>> Priors((Gamma(1.0, 0.1),)).transition
    Dirichlet(concentration=1.0)
    """

    emission: tuple[Prior, ...]
    transition: Dirichlet = Dirichlet(1.0)
    effects: EffectPriors | None = None


NO_COEFFICIENTS = np.zeros(0)
NO_COEFFICIENTS.flags.writeable = False


class Parameters(NamedTuple):
    """Parameters of a model in natural units.

    Attributes
    ----------
    phi
        Emission parameters (K, P), one row per state.
    transition
        Transition matrix (K, K); ``transition[i, j]`` is the probability of moving from state i to state j.
    start
        Distribution of the first state (K,).
    coefficients
        Coefficients (c,) of inputs and lags, in the order of ``Model.coefficients``; none in plain models.
    """

    phi: Array
    transition: Array
    start: Array
    coefficients: Array = NO_COEFFICIENTS
