"""Model: a family, a transition matrix and priors as one vector theta in R^d, and back to natural parameters."""

import difflib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.inputs import Inputs
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import Family, Prior, check_family, domains, has, hook
from rarehmm.engine.contracts.transition import Transition, reading
from rarehmm.engine.kernels.gradient import assembly, gradients_from_expectations, prior_gradient
from rarehmm.model.autoregression import Autoregression
from rarehmm.model.checks import as_numbers, check_distribution, check_prior, first_row_in
from rarehmm.model.coefficients import Coefficients
from rarehmm.model.coordinates import HUGE, AdditiveLogRatio, Coordinates
from rarehmm.model.effects import Effects, check_effects
from rarehmm.model.fixed import FixedValues, check_tied, fixed_values
from rarehmm.model.fixed_coefficients import coefficient_keys, fixed_coefficients
from rarehmm.model.learnable import check_lengths
from rarehmm.model.parameters import NO_COEFFICIENTS, Parameters, Priors
from rarehmm.model.priors import Flat, Pinned, sampled_log_density
from rarehmm.model.stationary import check_stochastic, has_slope, stationary
from rarehmm.model.target import Target
from rarehmm.model.unfolding import Unfolding, unfold
from rarehmm.transitions.homogeneous import Homogeneous

LARGEST = 255  # largest number of states: Viterbi stores back-pointers as bytes


@dataclass(frozen=True, eq=False)
class Model:
    """Hidden Markov model with priors: everything that is specified before the data are seen.

    Parameters
    ----------
    family
        Emission density, such as ``Gaussian()``; see ``rarehmm.emissions``.
    n_states
        Number of hidden states, K.
    priors
        ``default_priors(family, n_states, series)``, ``paper_priors(family)``, or your own ``Priors``.
    start
        Distribution of the first state of each sequence (K,).  None (default): the stationary distribution of the
        transition matrix.
    coordinates
        How the transition matrix is mapped to a vector: additive log ratios (default) or the paper's expanded mean.
    logs
        Whether positive parameters are sampled on the log scale (default), or as they are, as in the paper.
    fixed
        Values to hold fixed, by parameter name and ``transition``, with None for free entries:
        ``{"mean": [0, None], "transition": [[None, None], [1, 0]]}``.  A transition probability fixed at 0 never
        happens; a row with any other fixed value must be fixed as a whole.  Coefficients are fixed by the names of
        their inputs, in the units of the user, and lags as ``"lag 1"``: a number, or one for each state of those that
        switch, and for each column that inputs move, where there are several.  ``{"load": [None, 0]}`` lets an input
        move the first part of a product alone.  Names of inputs on the log scale begin with ``"log scale"``, those of
        transitions with ``"slope"``.  Fixed values are not part of theta.
    inputs, switching, scale
        Inputs on the linear predictor whose effect all states share, those whose effect differs between states, and
        inputs on the log scale; made by ``Inputs.of``.
    autoregression
        How an observation depends on those before it: ``AroundLevel(p)``, ``Intercept(p)`` or ``Hamilton(p)``.
    transitions
        How states follow each other: ``Homogeneous()`` (default), ``Regression(inputs)`` or ``Phases(lengths)``.
    tied
        Names of the parameters that have the same value in all states, such as ``("variance",)``; "covariance" stands
        for all but the locations of a family of location and scale.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, or the arguments do not fit each other.

    Examples
    --------
    >>> from rarehmm import Gaussian, Model, Series, default_priors
    >>> series = Series([0.1, -0.3, 0.2, 9.8, 10.1, 0.0])
    >>> model = Model(Gaussian(), 2, default_priors(Gaussian(), 2, series), fixed={"mean": [0, None]})
    >>> model.component_names[:3]
    ['mean[1]', 'log variance[0]', 'log variance[1]']
    >>> point = model.parameters([[0.9, 0.1], [0.5, 0.5]], mean=[0, 10], variance=1)
    >>> model.unpack(model.pack(point)).phi
    array([[ 0.,  1.],
           [10.,  1.]])
    """

    family: Family
    n_states: int
    priors: Priors
    start: Array | None = None
    coordinates: Coordinates = field(default_factory=AdditiveLogRatio)
    logs: bool = True
    fixed: Mapping[str, npt.ArrayLike] | None = None
    inputs: Inputs | None = None
    switching: Inputs | None = None
    scale: Inputs | None = None
    autoregression: Autoregression | None = None
    transitions: Transition = field(default_factory=Homogeneous)
    tied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        K = self.n_states
        if isinstance(K, bool) or not isinstance(K, int | np.integer):
            raise TypeError(f"n_states is {K!r}; it must be an integer.")
        if not 1 <= K <= LARGEST:
            raise ValueError(f"n_states is {K}; it must lie between 1 and {LARGEST}.")
        object.__setattr__(self, "n_states", int(K))
        check_family(self.family)
        if not isinstance(self.priors, Priors):
            raise TypeError(f"priors is {self.priors!r}; use default_priors, paper_priors, no_priors or Priors(...).")
        wanted, got = len(self.family.parameters), len(self.priors.emission)
        if wanted != got:
            raise ValueError(f"{self.name} has {wanted} parameters but {got} priors were given; give one for each.")
        for p, prior in zip(self.family.parameters, self.priors.emission, strict=True):
            check_prior(prior, p.name)
        a = self.priors.transition.concentration
        if not isinstance(a, float | int) or not (math.isfinite(a) and a >= 0):
            raise ValueError(f"the concentration of the transition prior is {a}; it must be finite and nonnegative.")
        if self.start is not None:
            object.__setattr__(self, "start", check_distribution(self.start, K))
        if not hasattr(self.coordinates, "unpack"):
            raise TypeError(f"coordinates is {self.coordinates!r}; use AdditiveLogRatio() or ExpandedMean().")
        self.coordinates.check(K)
        check_effects(self)
        if not np.isnan(self.fixed_values.transition).all():
            object.__setattr__(self, "coordinates", self.coordinates.with_fixed(self.fixed_values.transition))
        object.__setattr__(self, "tied", check_tied(self.tied, self.family, self.fixed_values))

    # ------------------------------------------------------------ names and sizes
    @property
    def name(self) -> str:
        """Name of the emission family."""
        return type(self.family).__name__

    @property
    def size(self) -> int:
        """Number of free parameters, d."""
        return len(self.free)

    @functools.cached_property
    def fixed_values(self) -> FixedValues:
        """The fixed values as arrays, NaN where free."""
        effects = self.every_effect
        found = fixed_values(self.family, self.n_states, self.fixed, coefficient_keys(effects))
        return found._replace(coefficients=fixed_coefficients(effects, found.allowed, self.fixed or {}))

    @functools.cached_property
    def fixed_coordinates(self) -> Array:
        """Coordinates of the coefficients of inputs and lags that are fixed, NaN where free."""
        return self.coefficients.pack(self.fixed_values.coefficients)

    @functools.cached_property
    def spread(self) -> IntArray:
        """Entry of theta that each entry of the vector of all parameters takes its value from, -1 where it is fixed.

        A tied parameter takes that of all states from one entry.
        """
        rows = np.isnan(self.fixed_values.transition)[self.coordinates.free(self.n_states)]
        phi = np.isnan(self.fixed_values.phi).T
        owner: IntArray = np.arange(phi.size).reshape(phi.shape)
        for i, p in enumerate(self.family.parameters):
            if p.name in self.tied:
                owner[i] = owner[i, 0]
        extra = np.arange(len(rows) + self.coefficients.size)
        owner = np.concatenate([owner.ravel(), owner.size + extra])
        free = np.concatenate([phi.ravel(), rows, np.isnan(self.fixed_coordinates)])
        mine = free & (owner == np.arange(len(owner)))
        return np.where(free, (np.cumsum(mine) - 1)[owner], -1)

    @functools.cached_property
    def free(self) -> IntArray:
        """Positions (d,) of the entries of theta in the vector of all parameters, fixed ones included."""
        taken, first = np.unique(self.spread, return_index=True)
        return np.asarray(first[taken >= 0])

    @functools.cached_property
    def is_plain(self) -> bool:
        """Whether all rows have the same densities and transitions, and no parameter is tied."""
        return self.effects is None and not self.tied

    @property
    def n_lags(self) -> int:
        """Number of earlier values that each observation depends on."""
        return 0 if self.autoregression is None else self.autoregression.order

    @functools.cached_property
    def effects(self) -> Effects | None:
        """How inputs, earlier values and phases enter; None if they do not."""
        changing = self.transitions.inputs is not None
        phases = self.transitions.phases(self.n_states)
        terms = (self.inputs, self.switching, self.scale, self.autoregression)
        if all(part is None for part in terms) and not changing and phases.max() == 1:
            return None
        return self.every_effect

    @functools.cached_property
    def every_effect(self) -> Effects:
        """How inputs, earlier values and phases enter, also if there are none."""
        changing = self.transitions.inputs is not None
        scales = [exponent for _, exponent in hook(self.family, "log_scale")]
        mixed = self.start is None and not changing and self.transitions.phases(self.n_states).max() == 1
        return Effects(
            self.family, self.n_states, self.inputs, self.switching, self.scale, self.autoregression, self.transitions,
            self.transitions.inputs, self.start, mixed and scales == [2.0],
        )  # fmt: skip

    @functools.cached_property
    def unfolding(self) -> Unfolding:
        """The chain of nodes and edges to which the states unfold."""
        phases = self.transitions.phases(self.n_states)
        return unfold(self.fixed_values.allowed, phases, self.every_effect.depth)

    @functools.cached_property
    def coefficients(self) -> Coefficients:
        """Coordinates of the coefficients of inputs and lags."""
        K = self.n_states
        reference = getattr(self.coordinates, "references", np.arange)(K)
        return Coefficients(self.every_effect, self.fixed_values.allowed, reference)

    @functools.cached_property
    def vector(self) -> Array:
        """Vector of all parameters with the fixed values filled in, and 0 elsewhere."""
        phi = np.where(np.isnan(self.fixed_values.phi), np.where(self.as_logs, 1.0, 0.0), self.fixed_values.phi)
        phi = np.where(self.as_logs, np.log(np.where(self.as_logs, phi, 1.0)), phi)
        transition = np.where(np.isnan(self.fixed_values.transition), 1.0, self.fixed_values.transition)
        rows, coefficients = self.coordinates.fixed(transition), np.nan_to_num(self.fixed_coordinates)
        return np.concatenate([phi.T.ravel(), rows, coefficients])

    def with_fixed(self, theta: Array) -> Array:
        """Expand points theta (..., d) to vectors of all parameters (..., full), fixed values filled in."""
        out = np.tile(self.vector, (*theta.shape[:-1], 1))
        if self.tied:
            out[..., self.spread >= 0] = theta[..., self.spread[self.spread >= 0]]
        else:
            out[..., self.free] = theta
        return out

    def gathered(self, slopes: Array) -> Array:
        """Derivatives (..., d) in theta from those (..., full) in all parameters, fixed and tied ones included."""
        if not self.tied:
            return slopes[..., self.free]
        out = np.zeros((*slopes.shape[:-1], self.size))
        used = self.spread >= 0
        np.add.at(out.T, self.spread[used], slopes[..., used].T)
        return out

    @property
    def component_names(self) -> list[str]:
        """Name of each entry of theta: ``mean[0]``, ``log variance[2]``, ``log transition[0, 1] / ...``."""
        names = [("log " if log else "") + p.name for p, log in zip(self.family.parameters, self.as_logs, strict=True)]
        emission = [f"{name}[{k}]" for name in names for k in range(self.n_states)]
        every = emission + self.coordinates.names(self.n_states) + self.coefficients.names
        tied = [i < len(emission) and self.family.parameters[i // self.n_states].name in self.tied for i in self.free]
        return [every[i].split("[")[0] if one else every[i] for i, one in zip(self.free, tied, strict=True)]

    @property
    def exchangeable(self) -> bool:
        """Whether the posterior is invariant under every permutation of the states.

        A given start distribution or a fixed value distinguishes states.
        """
        return len(self.exchangeable_groups) == 1

    @functools.cached_property
    def exchangeable_groups(self) -> list[IntArray]:
        """Groups of states whose permutation leaves the posterior unchanged."""
        groups = self.fixed_values.exchangeable_groups(self.start, self.every_effect.reordered)
        phases = self.transitions.phases(self.n_states)
        return [group[phases[group] == r] for group in groups for r in np.unique(phases[group])]

    @functools.cached_property
    def as_logs(self) -> BoolArray:
        """Mask (P,) of the family parameters that enter theta as logarithms."""
        return np.array([self.logs and p.support == "positive" for p in self.family.parameters])

    @functools.cached_property
    def powers(self) -> Array:
        """Exponent with which the metric grows in each entry of theta (d,); 0 for entries of either sign.

        1 for expanded means and 2 for positive parameters that are not logarithms (see ``samplers.expanded_mean``).
        """
        bare = [p.support == "positive" and not self.logs for p in self.family.parameters]
        emission = np.repeat(np.where(bare, 2.0, 0.0), self.n_states)
        rows = np.full(self.coordinates.size(self.n_states), self.coordinates.power)
        return np.concatenate([emission, rows, np.zeros(self.coefficients.size)])[self.free]

    @functools.cached_property
    def bounds(self) -> Array:
        """Lower and upper bound of each entry of theta, (2, d)."""
        emission = np.repeat(np.where(self.as_logs, math.log(HUGE), HUGE), self.n_states)
        rows = np.full(self.coordinates.size(self.n_states), self.coordinates.largest)
        high = np.concatenate([emission, rows, self.coefficients.largest])[self.free]
        return np.array([np.where(self.powers > 0, 1 / HUGE, -high), high])

    # ------------------------------------------------------------ checked parameters
    def parameters(self, transition: npt.ArrayLike, **emission: npt.ArrayLike) -> Parameters:
        """Build parameters from a transition matrix and emission parameters by name, and check them.

        Parameters
        ----------
        transition
            Transition matrix (K, K), rows summing to one.
        **emission
            Each parameter of the family by name: one value per state, or a single number for all states.

        Returns
        -------
        Parameters
            The parameters in natural units.

        Raises
        ------
        TypeError, ValueError
            If a parameter is missing, unknown, of the wrong shape or outside its support.

        Examples
        --------
        >>> from rarehmm import Gamma, Model, Poisson, Priors
        >>> model = Model(Poisson(), 2, Priors((Gamma(1.0, 0.1),)))
        >>> model.parameters([[0.9, 0.1], [0.3, 0.7]], rate=[1, 8]).phi
        array([[1.],
               [8.]])
        """
        K, names = self.n_states, [p.name for p in self.family.parameters]
        for given in emission:
            if given not in names:
                close = difflib.get_close_matches(given, names, 1)
                hint = f" Did you mean {close[0]!r}?" if close else ""
                if has(self.family, "phi_of"):
                    hint = " From means and covariances: model.natural(family.phi_of(means, covariances), transition)."
                raise ValueError(f"{self.name} has no parameter {given!r}; it has {', '.join(names)}.{hint}")
        phi = np.empty((K, len(names)))
        for i, name in enumerate(names):
            if name not in emission:
                raise ValueError(f"{name!r} is missing; {self.name} needs {', '.join(names)}.")
            values = as_numbers(emission[name], name)
            if values.shape not in ((), (K,)):
                raise ValueError(f"{name} has shape {values.shape}; give one value for each of the {K} states.")
            phi[:, i] = values
        return self.natural(phi, as_numbers(transition, "transition"))

    def natural(
        self, phi: npt.ArrayLike, transition: npt.ArrayLike, coefficients: npt.ArrayLike | None = None
    ) -> Parameters:
        """Build parameters from arrays, and check them.

        Fixed values override the values given.

        Parameters
        ----------
        phi
            Emission parameters (K, P), in the family's order.
        transition
            Transition matrix (K, K), rows summing to one.
        coefficients
            Coefficients (c,) of inputs and lags; None (default): zero.

        Returns
        -------
        Parameters
            The parameters in natural units; the start distribution follows from the model.

        Raises
        ------
        TypeError, ValueError
            If an array has the wrong shape, or a value lies outside its support.
        """
        P = np.array(as_numbers(transition, "transition"))
        check_stochastic(P)
        if len(P) != self.n_states:
            raise ValueError(f"transition is {len(P)} x {len(P)} but the model has {self.n_states} states.")
        P = self.fixed_values.fill_transition(P / P.sum(1, keepdims=True))
        values = np.array(as_numbers(phi, "phi"))
        values = self.fixed_values.fill_phi(values) if values.shape == self.fixed_values.phi.shape else values
        fixed = self.fixed_values.coefficients
        given = np.zeros(len(fixed)) if coefficients is None else as_numbers(coefficients, "coefficients")
        given = self.fixed_values.fill_coefficients(given) if given.shape == fixed.shape else given
        return self.check_parameters(Parameters(values, P, self._start(P), given))

    def check_parameters(self, parameters: Parameters) -> Parameters:
        """Raise if parameters do not belong to this model, or lie outside their support.

        Parameters
        ----------
        parameters
            Parameters in natural units.

        Returns
        -------
        Parameters
            The parameters, unchanged.

        Raises
        ------
        TypeError, ValueError
            If they are not ``Parameters``, have the wrong shapes, or a value lies outside its support.
        """
        if not isinstance(parameters, Parameters):
            raise TypeError(
                f"expected Parameters, got {type(parameters).__name__}; see Model.parameters and Model.unpack."
            )
        K, P = self.n_states, len(self.family.parameters)
        shapes = (K, P), (K, K), (K,), (self.every_effect.size,)
        for name, values, shape in zip(Parameters._fields, parameters, shapes, strict=True):
            if values.shape != shape:
                raise ValueError(f"{name} has shape {values.shape}; this model of {K} states needs {shape}.")
        for i, p in enumerate(self.family.parameters):
            column, positive = parameters.phi[:, i], p.support == "positive"
            bad = ~(np.abs(column) < HUGE) | (positive & ~(column > 1 / HUGE))
            if bad.any():
                k = int(np.argmax(bad))
                kind = (
                    f"positive, between {1 / HUGE:g} and {HUGE:g}"
                    if positive
                    else f"finite, with absolute value below {HUGE:g}"
                )
                raise ValueError(f"{p.name}[{k}] is {column[k]}; it must be {kind}. Rescale the data if necessary.")
        self.every_effect.check(parameters.coefficients)
        return parameters

    def check(self, series: Series) -> None:
        """Raise if the model cannot have produced the series.

        Parameters
        ----------
        series
            The observations.

        Raises
        ------
        TypeError, ValueError
            If it is not a ``Series``, has the wrong number of columns, lacks inputs, has known states outside those of
            the model, all sequences are shorter than the lags, or a value lies outside the family's domain.
        """
        if not isinstance(series, Series):
            raise TypeError(f"expected a Series, got {type(series).__name__}; wrap the data once: rarehmm.Series(y).")
        series.check(domains(self.family), self.name)
        highest = max(series.known_states, default=-1)
        if highest >= self.n_states:
            raise ValueError(
                f"the highest of the known states is {highest} and the model has {self.n_states} states; it is that of "
                f"{series.place(first_row_in(series, highest))}. Known states are numbers from 0 to "
                f"{self.n_states - 1}, and -1 where the state is unknown."
            )
        if self.every_effect.gives_first_rows:
            check_lengths(series.bounds, self.n_lags)
        self.on(series)

    def on(self, series: Series) -> "Model":
        """Return this model with its inputs found in the columns of a series, whose order may be another one.

        Parameters
        ----------
        series
            The observations and inputs.

        Returns
        -------
        Model
            This model, if the columns are those of the series that it was made for.

        Raises
        ------
        ValueError
            If inputs or times are missing.
        """
        given = {name: getattr(self, name) for name in ("inputs", "switching", "scale")}
        found = {name: one.check(series) for name, one in given.items() if one is not None}
        transitions = self.transitions
        if transitions.inputs is not None:
            transitions = reading(transitions, transitions.inputs.check(series))
        if transitions == self.transitions and all(found[name] == given[name] for name in found):
            return self
        return replace(self, transitions=transitions, **found)

    def _start(self, transition: Array) -> Array:
        """Distribution of the first state (K,), given the transition matrix."""
        return stationary(transition) if self.start is None else self.start

    # ------------------------------------------------------------ theta and back
    def pack(self, parameters: Parameters) -> Array:
        """Map parameters to the vector theta.

        Parameters
        ----------
        parameters
            Parameters in natural units.

        Returns
        -------
        ndarray of shape (d,)
            Each emission parameter for all states, positive ones as logarithms, followed by the transitions, without
            the fixed values.  ``component_names`` names the entries.

        Raises
        ------
        ValueError
            If the parameters do not belong to this model, or a transition probability is 0 that is not fixed there.
        """
        self.check_parameters(parameters)
        return self.pack_all(parameters.phi, parameters.transition, parameters.coefficients)

    def pack_all(self, phi: Array, transition: Array, coefficients: Array = NO_COEFFICIENTS) -> Array:
        """Map many sets of parameters to vectors theta.

        Parameters
        ----------
        phi
            Emission parameters (..., K, P).
        transition
            Transition matrices (..., K, K).
        coefficients
            Coefficients (..., c) of inputs and lags.

        Returns
        -------
        ndarray of shape (..., d)
            The vectors, as from ``pack``.
        """
        values = np.swapaxes(np.where(self.as_logs, np.log(np.where(self.as_logs, phi, 1.0)), phi), -1, -2)
        happens = np.where(self.fixed_values.allowed, transition, 1.0)  # forbidden transitions are not part of theta
        flat = values.reshape(*values.shape[:-2], phi.shape[-1] * phi.shape[-2])
        every = [flat, self.coordinates.pack(happens)]
        if self.coefficients.size > 0:
            every.append(self.coefficients.pack(coefficients))
        return np.concatenate(every, axis=-1)[..., self.free]

    def unpack(self, theta: Array) -> Parameters:
        """Map theta back to parameters; the inverse of ``pack``.

        Parameters
        ----------
        theta
            Vector (d,).

        Returns
        -------
        Parameters
            The parameters in natural units.

        Raises
        ------
        ValueError
            If theta has the wrong size, or an entry is out of bounds.
        """
        phi, transition = self.unpack_all(np.reshape(theta, -1))
        if self.coefficients.size == 0:
            return Parameters(phi, transition, self._start(transition))
        return Parameters(phi, transition, self._start(transition), self.unpack_coefficients(theta))

    def unpack_coefficients(self, theta: Array) -> Array:
        """Coefficients (..., c) of inputs and lags from vectors theta (..., d)."""
        return self.coefficients.unpack(self.coefficient_coordinates(theta))

    def coefficient_coordinates(self, theta: Array) -> Array:
        """Coordinates of the coefficients of inputs and lags, fixed ones included, from vectors theta (..., d)."""
        return self.with_fixed(np.asarray(theta, dtype=float))[..., len(self.vector) - self.coefficients.size :]

    def unpack_all(self, theta: Array) -> tuple[Array, Array]:
        """Map many vectors theta back to natural parameters.

        Parameters
        ----------
        theta
            Vectors (..., d).

        Returns
        -------
        phi : ndarray of shape (..., K, P)
            Emission parameters.
        transition : ndarray of shape (..., K, K)
            Transition matrices.

        Raises
        ------
        ValueError
            If theta has the wrong size, or an entry is out of bounds.
        """
        phi, x = self._parts(theta)
        return phi, self.coordinates.unpack(x, self.n_states)

    def _parts(self, theta: Array) -> tuple[Array, Array]:
        """Emission parameters (..., K, P) and transition coordinates (..., size) of points theta (..., d)."""
        theta = np.asarray(theta, dtype=float)
        if theta.shape[-1:] != (self.size,):
            raise ValueError(f"theta has shape {theta.shape}; this model has {self.size} free parameters.")
        K, P = self.n_states, len(self.family.parameters)
        low, high = self.bounds
        inside = (theta >= low) & (theta <= high)
        if not inside.all():
            at = tuple(np.argwhere(~inside)[0])
            i = int(at[-1])
            place, name = ", ".join(map(str, at)), self.component_names[i]
            raise ValueError(f"theta[{place}], {name}, is {theta[at]}; it must lie between {low[i]:g} and {high[i]:g}.")
        theta = self.with_fixed(theta)
        raw = np.swapaxes(theta[..., : K * P].reshape(*theta.shape[:-1], P, K), -1, -2)
        phi = np.where(self.as_logs, np.exp(np.where(self.as_logs, raw, 0.0)), raw)
        return np.ascontiguousarray(phi), theta[..., K * P : theta.shape[-1] - self.coefficients.size]

    def with_reference(self, transition: Array) -> "Model":
        """Copy of this model whose log ratios are relative to the largest entry of each row of a transition matrix.

        Parameters
        ----------
        transition
            Transition matrix (K, K).

        Returns
        -------
        Model
            The copy.
        """
        return replace(self, coordinates=AdditiveLogRatio.around(transition))

    # ------------------------------------------------------------ prior and gradients in theta
    def log_prior(self, theta: Array) -> Any:
        """Log prior density of theta, Jacobians included.

        Parameters
        ----------
        theta
            Points (..., d).

        Returns
        -------
        float or ndarray of shape (...)
            The log densities.
        """
        phi, x = self._parts(theta)
        total = self.coordinates.log_prior(x, self.n_states, self.priors.transition)
        for i, (prior, log) in enumerate(zip(self.priors.emission, self.as_logs, strict=True)):
            each = phi[..., :1, i] if self.family.parameters[i].name in self.tied else phi[..., i]
            total = total + sampled_log_density(prior, each, log).sum(-1)
        if self.coefficients.size > 0:
            total = total + self.coefficients.log_prior(self.coefficient_coordinates(theta), self.priors.effects)
        return total if total.ndim else float(total)

    def log_prior_gradient(self, theta: Array) -> Array:
        """Gradient of the log prior density in theta.

        Parameters
        ----------
        theta
            Point (d,).

        Returns
        -------
        ndarray of shape (d,)
            The gradient of ``log_prior``.
        """
        phi, transition = self.unpack_all(theta)
        plain = len(self.vector) - self.coefficients.size
        out = np.empty(len(self.vector))
        prior_gradient(self.target, phi, transition, self.with_fixed(theta)[:plain], out[:plain])
        out[plain:] = self.coefficients.log_prior_slope(self.coefficient_coordinates(theta), self.priors.effects)
        return out[self.free]

    @functools.cached_property
    def target(self) -> Target:
        """The posterior in the form that compiled kernels read."""
        return Target.of(self)

    @property
    def pinned_priors(self) -> tuple[Prior, ...]:
        """Priors of the family parameters, with the fixed values attached to them."""
        values = zip(self.priors.emission, self.fixed_values.phi.T, strict=True)
        return tuple(prior if np.isnan(v).all() else Pinned(prior, v) for prior, v in values)

    @functools.cached_property
    def prior_terms(self) -> Array:
        """Derivative of the log prior of each family parameter in theta, as coefficients (P, 5) of x^-2, ..., x^2."""
        table = np.zeros((len(self.priors.emission), 5))
        for row, prior, log in zip(table, self.priors.emission, self.as_logs, strict=True):
            row[2 + np.array([0, 1, -1, -2])] = prior.terms
            if log and not isinstance(prior, Flat):  # x times the derivative, plus 1 for the Jacobian
                row[:] = [0.0, *row[:4]]
                row[2] += 1.0
        return table

    def gradient_from_expectations(
        self, theta: Array, scores: Array, pairs: Array, first: Array | None = None, slopes: Array | None = None
    ) -> Array:
        """Gradient of the log likelihood at theta from expectations, by Fisher's identity.

        Parameters
        ----------
        theta
            The point (d,).
        scores
            Expected sums of the family's scores in natural parameters, (..., K, P).
        pairs
            Expected transition counts, (..., K, K).
        first
            Expected counts of first states, (..., K); used only if the start is the stationary distribution.
        slopes
            Derivatives (c,) in the coefficients of inputs and lags, if there are any.

        Returns
        -------
        ndarray of shape (..., d)
            The gradients.
        """
        shape, start = scores.shape[:-2], np.zeros(scores.shape[:-1]) if first is None else first
        parts = (np.reshape(part, (math.prod(shape), -1)) for part in (scores, pairs, start))
        flat = np.concatenate(list(parts), axis=1)  # (n, K P + K K + K)
        many = len(flat) > flat.shape[1]  # the gradient is linear in them: a product with those of the unit vectors
        found = flat @ self._assemble(theta, np.eye(flat.shape[1])) if many else self._assemble(theta, flat)
        found = found.reshape(*shape, self.size)
        if slopes is not None and self.coefficients.size > 0:
            each, free = self.coefficients.gradient(self.coefficient_coordinates(theta), slopes), self.fixed_coordinates
            found[..., self.size - int(np.isnan(free).sum()) :] = each[np.isnan(free)]
        return np.asarray(found)

    def _assemble(self, theta: Array, expectations: Array) -> Array:
        """Gradients (n, d) from n rows of expected scores, transitions and first states."""
        phi, transition = self.unpack_all(theta)
        K, P = phi.shape
        scores, pairs, first = np.split(expectations, [K * P, K * (P + K)], axis=1)
        target = self.target
        if target.stationary and not (first.any() and has_slope(transition)):
            target = target._replace(stationary=False)
        plain = len(self.vector) - self.coefficients.size
        out = np.zeros((len(expectations), len(self.vector)))
        each = scores.reshape(-1, K, P).copy(), pairs.reshape(-1, K, K).copy(), first.copy()
        vector = self.with_fixed(theta)[:plain]
        gradients_from_expectations(target, phi, transition, vector, *each, assembly(K, P), out[:, :plain])
        return self.gathered(out)
