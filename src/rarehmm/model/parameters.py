"""Natural parameters of a model, and the priors over them."""

from typing import NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import Prior
from rarehmm.model.priors import Dirichlet


class Priors(NamedTuple):
    """Prior distributions of the emission parameters and of the transition matrix.

    Attributes
    ----------
    emission
        One prior for each parameter of the family, in the family's order.
    transition
        Prior of each row of the transition matrix.

    Examples
    --------
    >>> from rarehmm import Gamma, Priors
    >>> Priors((Gamma(1.0, 0.1),)).transition
    Dirichlet(concentration=1.0)
    """

    emission: tuple[Prior, ...]
    transition: Dirichlet = Dirichlet(1.0)


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
    """

    phi: Array
    transition: Array
    start: Array
