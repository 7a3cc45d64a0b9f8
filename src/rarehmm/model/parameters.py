"""Parameters: a point in natural units; Priors: the prior of each of its parts."""

from typing import NamedTuple

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import Prior
from rarehmm.model.priors import Dirichlet


class Priors(NamedTuple):
    """One prior for each parameter of the family, in its order, and one for the rows of the transition matrix."""

    emission: tuple[Prior, ...]
    transition: Dirichlet = Dirichlet(1.0)


class Parameters(NamedTuple):
    """A point in its own units: ``phi`` (K, P), ``transition`` (K, K), ``start`` (K,) the law of the first state."""

    phi: Array
    transition: Array
    start: Array
