"""Target: the posterior of a model in the form that compiled kernels read.

It is defined, built and completed here: ``Target.of`` holds everything that follows from the model alone,
``controlled`` adds the frozen statistics of a control variate, ``whitened_at`` the coordinates in which a chain moves.
"""

from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray


class Target(NamedTuple):
    """The posterior of a model as kernels see it: arrays and flags, no Python objects.

    ``logs`` (P,): which parameters are sampled as logarithms; ``prior`` (P, 5): derivative of their log prior in theta,
    as coefficients of x^-2, ..., x^2; ``concentration`` of the Dirichlet prior over the ``allowed`` (K,) entries of
    each row; ``expanded``: whether transitions are expanded means; ``row``, ``column``: state and parameter, or entry
    of the transition matrix, of each component of the ``vector`` of all parameters, which holds the fixed ones;
    ``stationary``: whether sequences start from the stationary distribution, else from ``start`` (K,); ``free`` (d,):
    positions of the components that are sampled, with their ``bounds`` (2, d) and ``power`` (d,).

    If ``whitened``, chains move in theta = ``centre`` (d,) + ``factor`` (d, d) z, and a step uses up to ``growth``
    times as many windows, in proportion to the squared distance from the centre.  ``total`` (C,) and ``hat`` (K, .):
    frozen statistics of all windows and the constants at which they were taken; none if C is 0.
    """

    logs: BoolArray
    prior: Array
    concentration: float
    allowed: IntArray
    expanded: bool
    row: IntArray
    column: IntArray
    stationary: bool
    start: Array
    free: IntArray
    vector: Array
    bounds: Array
    power: Array
    whitened: bool
    centre: Array
    factor: Array
    growth: float
    total: Array
    hat: Array

    @classmethod
    def of(cls, model: Any) -> "Target":
        """Build the posterior of a ``Model``, without a control variate and in the coordinates of theta."""
        K, P = model.n_states, len(model.family.parameters)
        plain = len(model.vector) - model.coefficients.size
        d = int((model.free < plain).sum())
        rows, columns = model.coordinates.free(K)
        none = np.zeros((0, 0))
        return cls(
            logs=model.as_logs,
            prior=model.prior_terms,
            concentration=float(model.priors.transition.concentration),
            allowed=model.fixed_values.allowed.sum(1),
            expanded=model.coordinates.is_expanded,
            row=np.concatenate([np.tile(np.arange(K), P), rows]),
            column=np.concatenate([np.repeat(np.arange(P), K), columns]),
            stationary=model.start is None,
            start=np.zeros(K) if model.start is None else model.start,
            free=model.free[:d],
            vector=model.vector[:plain],
            bounds=model.bounds[:, :d],
            power=model.powers[:d],
            whitened=False,
            centre=np.zeros(d),
            factor=none,
            growth=1.0,
            total=np.zeros(0),
            hat=none,
        )

    def controlled(self, total: Array, hat: Array) -> "Target":
        """Add the frozen statistics (C,) of all windows, taken at the constants ``hat`` (K, .) of the family.

        ``hat`` is empty where gradients are frozen instead.
        """
        return self._replace(total=total, hat=hat)

    def whitened_at(self, centre: Array, factor: Array, growth: float) -> "Target":
        """Let a chain move z in theta = centre + factor z, with up to ``growth`` times as many windows per step."""
        return self._replace(whitened=True, centre=centre, factor=factor, growth=growth)
