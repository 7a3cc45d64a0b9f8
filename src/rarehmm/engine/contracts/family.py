"""The contract of an emission family: what it must provide, what it may provide, and what it gets for free.

A family is a ``NamedTuple`` class in a file of ``rarehmm/emissions``, or anywhere in a user's own code.  Its fields are
its settings; no base class is needed.  It must have

* ``parameters``: the parameters of one state, as a tuple of ``Parameter`` (name, support, default prior);
* ``domain``: the values its observations may take: ``REALS``, ``POSITIVE``, ``COUNTS``, ``ANGLES`` or another
  ``Domain``, either one for all columns or a tuple with one for each;
* ``draw(rng, states, phi)``: observations (T,) or (T, D) given states (T,) and parameters ``phi`` (K, P).  With
  inputs each row has parameters of its own: ``states`` are then 0, 1, ..., T - 1, and ``phi`` is (T, P);

and three functions, attached with ``@compiled``:

* ``prepare(family, phi)``: the constants of one state, computed once per parameter vector (logarithms, divisions);
* ``log_density(family, y, c)``, where ``c`` is what ``prepare`` returned, or arrays of it for many points at once;
* ``score(family, y, c)``: the derivatives of the log density with respect to ``phi``, as a tuple.

They are written in ordinary NumPy on ``y`` and run on floats, on arrays and, inside kernels, on lanes of 16 doubles.
``y`` is one value, or a tuple of columns if the family reads several.  A missing observation (NaN) never affects their
results.  ``density_of`` derives all three from the log density alone.  Coordinates, Jacobians, gradients, priors,
decoding and simulation come for free.

``HOOKS`` lists the optional attributes and methods, what each is for, and what happens without it.  A family with an
M-step (``maximise``) also attaches

* ``statistics(family, y, c)``: a tuple of the statistics whose expectations the M-step needs;
* ``complete_score(family, count, sums, hat, c)``: the score of a state from the number of its observations and the sums
  of their statistics, which were taken at the parameters whose constants are ``hat``; the control variate of chains.

Inputs (seasons, covariates, autoregression) act on a linear predictor eta of each row, or on a log scale zeta.  If
they have a meaning for a family, it says which parameters they move (``linear_predictor``, ``log_scale`` in ``HOOKS``)
and attaches

* ``with_predictor(family, y, c, eta)``: a pair (y', c') whose log density and score are those of ``y`` after eta was
  added to the parameters of ``linear_predictor`` if they are real, or to their logarithms if they are positive;
* ``with_log_scale(family, y, c, zeta)``: such a pair after each parameter of ``log_scale`` was multiplied by
  exp(power * zeta).  It may be given what ``with_predictor`` returned.

Scores are slopes in the parameters after the move; c' is a tuple as long as c, of which some entries vary by row, or c
itself.  ``constant`` still gets the original y.  If there are several columns, eta, zeta and y' are tuples with one
entry for each, as ``y`` is, and a parameter moves by the entry of its own column (the first, if it has several).
``move_parameters`` does the same to the parameters themselves.

A ``wide`` family, for many columns, works on rows in memory that are indexed, instead of on tuples: kernels loop over
columns rather than unrolling.  Its ``prepare`` returns an array, and it attaches

* ``add_statistics(family, y, c, weight, room, total)``, which adds the weighted statistics to ``total``;
* ``summed_score(family, count, sums, c, out)``, which writes the scores that belong to the sums of statistics.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.domains import REALS, Domain
from rarehmm.data.summaries import Summary
from rarehmm.engine.dispatch import generic, provides
from rarehmm.engine.lanes import LANES


class Prior(Protocol):
    """Density of one parameter, on arrays: its logarithm, and the slope of the logarithm.

    Chains also need ``terms``, the slope as coefficients of (1, x, 1/x, 1/x^2); see ``slope_by_terms``.
    """

    def log_density(self, x: Array) -> Array: ...
    def slope(self, x: Array) -> Array: ...
    @property
    def terms(self) -> tuple[float, float, float, float]: ...


class Parameter(NamedTuple):
    """Parameter of each state.

    Attributes
    ----------
    name
        Used in summaries, priors and plots.
    support
        ``"real"``, or ``"positive"``, in which case its logarithm is sampled.
    prior
        Default prior, or a function that makes one from the ``Summary`` of the parameter's column (one argument for
        each column, if there are several).
    column
        Column of the data to which the parameter belongs, or a tuple of columns, of which the first is its own.
    """

    name: str
    support: str
    prior: Prior | Callable[..., Prior]
    column: int | tuple[int, ...] = 0

    @property
    def own_column(self) -> int:
        """The column whose inputs move the parameter."""
        return self.column if isinstance(self.column, int) else self.column[0]

    def default(self, summaries: tuple[Summary, ...]) -> Prior:
        """The default prior for columns with these summaries."""
        own = (self.column,) if isinstance(self.column, int) else self.column
        return self.prior(*(summaries[i] for i in own)) if callable(self.prior) else self.prior


class Family(Protocol):
    """What every family must have; the docstring of this module has the whole contract."""

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...
    @property
    def domain(self) -> Domain | tuple[Domain, ...]: ...
    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array: ...


# ---------------------------------------------------------------- optional attributes and methods
class Hook(NamedTuple):
    """Optional attribute or method of a family.

    ``usage`` shows how it is written, ``meaning`` what it is, ``without`` what happens in a family that lacks it, and
    ``default`` is used in its place; None if its absence is looked for (``has``).
    """

    usage: str
    meaning: str
    without: str
    default: Any = None


HOOKS: dict[str, Hook] = {
    "columns": Hook("columns = 2", "number of columns it reads", "one column, and y is a single value", default=1),
    "accepts_partial_rows": Hook(
        "accepts_partial_rows = True",
        "its functions can use rows in which some columns, but not all, are missing (NaN)",
        "rows with a missing column count as missing",
        default=False,
    ),
    "wide": Hook(
        "wide = True",
        "kernels pass rows in memory and loop over columns, instead of passing tuples and unrolling",
        "kernels unroll over columns, which takes long to compile if there are many",
        default=False,
    ),
    "check": Hook(
        "check()",
        "raise an error for settings that make no sense",
        "settings are taken as they are",
        default=lambda: None,
    ),
    "constant": Hook(
        "constant(y)",
        "the terms that log_density leaves out because they do not depend on phi, for each row of y",
        "log_density has all terms",
    ),
    "estimate": Hook(
        "estimate(y, weight)",
        "parameters (P,) of one state from its observations (n,) or (n, D) and their weights",
        "starting values from labels are found by numerical optimisation",
    ),
    "maximise": Hook(
        "maximise(phi, counts, sums, priors)",
        "M-step: parameters (K, P) that raise the expected log posterior, given the old ones, the expected counts (K,) "
        "and sums of the statistics (K, Q), and the prior of each parameter",
        "modes are found by gradients instead of EM, and the control variates of chains are gradients",
    ),
    "conditional": Hook(
        "conditional(rng, phi, counts, sums, priors)",
        "a draw of the parameters (K, P) given which observations belong to which state; arguments as in maximise",
        "no Gibbs sampling",
    ),
    "complete": Hook(
        "complete(rng, y, phi)",
        "rows (n, D) of one state with their missing entries drawn given the others, for Gibbs sampling",
        "statistics are computed from the rows as they are",
        default=lambda rng, y, phi: y,
    ),
    "cdf": Hook(
        "cdf(y, phi)",
        "P(Y <= y) of observations (n,) in a state with parameters phi (P,), or of each its own (P, n), for one column",
        "no residuals (the model is checked by predictive checks alone)",
    ),
    "cdfs": Hook(
        "cdfs(y, phi)",
        "P(Y_i <= y_i) of each column (n, D) by itself, for several columns; phi as for cdf",
        "no residuals (the model is checked by predictive checks alone)",
    ),
    "heavier": Hook(
        "heavier(phi)",
        "rivals with heavier tails: a list of pairs of a family and parameters of it that resemble phi (K, P); the "
        'library\'s own families may be given by name and settings, ("student_t", {"nu": 4.0})',
        "rare states are not compared with heavier tails",
        default=lambda phi: [],
    ),
    "suited": Hook(
        "suited(summaries)",
        "class method: the family whose settings suit columns with these summaries, when it is asked for by name",
        "asked for by name, it has its default settings",
    ),
    "levels": Hook(
        "levels",
        "indices of the parameters that are the levels of the columns (RareHMM.means_)",
        "the first parameters are the levels, one for each column",
    ),
    "moments": Hook(
        "moments(phi)",
        "means (..., D) and covariances (..., D, D) of states with parameters (..., P)",
        "RareHMM.covars_ needs a parameter called variance",
    ),
    "phi_of": Hook(
        "phi_of(mean, covariance)",
        "parameters (..., P) of states with these means and covariances",
        "parameters are given by name",
    ),
    "linear_predictor": Hook(
        'linear_predictor = ("mean",)',
        "names of the parameters that inputs move: real ones by adding to them, positive ones by adding to their "
        "logarithms; of several columns, each by the input of its own column. It comes with with_predictor",
        "inputs and autoregression are refused",
        default=(),
    ),
    "returns_to": Hook(
        'returns_to = ("mean",)',
        "names of those parameters of linear_predictor that are levels to which observations return: what an "
        "observation is above its level is noise of mean 0, or symmetric around 0",
        "all real parameters of linear_predictor, for columns of real numbers",
    ),
    "log_scale": Hook(
        'log_scale = (("variance", 2.0),)',
        "names of the positive parameters that inputs on the log scale multiply by exp(power * zeta), and the powers. "
        "It comes with with_log_scale",
        "inputs on the scale are refused",
        default=(),
    ),
    "precision": Hook(
        "precision(y, phi)",
        "minus the second derivative of the log density in the linear predictor, or its mean, for observations (n,), "
        "each with parameters of its own, phi (P, n); EM steps of regressions are in units of it",
        "the squared slope of the log density takes its place",
    ),
    "settings": Hook(
        "settings",
        "a class name and arguments, from which a saved posterior makes the family again",
        "the name of its class and its fields are saved",
    ),
}


def hook(family: Any, name: str) -> Any:
    """An optional attribute or method of a family or of its class, or the default that ``HOOKS`` gives it."""
    return getattr(family, name, HOOKS[name].default)


def has(family: Any, name: str) -> bool:
    """Whether a family has the optional attribute or method ``name`` of ``HOOKS``."""
    assert name in HOOKS, name
    return hasattr(family, name)


def columns(family: Any) -> int:
    """Number of columns that a family, or its class, reads."""
    return int(hook(family, "columns"))


# ---------------------------------------------------------------- compiled functions
@generic
def prepare(family: Any, phi: Any) -> Any:
    """Constants of one state, a tuple of floats, from its parameters ``phi`` (P,)."""
    raise TypeError(f"{type(family).__name__} has no prepare: attach one with @compiled(prepare, ...)")


@generic
def log_density(family: Any, y: Any, c: Any) -> Any:
    """log p(y | phi) with ``c = prepare(family, phi)``; terms that do not depend on phi may be left to ``constant``."""
    raise TypeError(f"{type(family).__name__} has no log_density: attach one with @compiled(log_density, ...)")


@generic
def score(family: Any, y: Any, c: Any) -> Any:
    """Derivatives of the log density with respect to phi, a tuple of length P."""
    raise TypeError(f"{type(family).__name__} has no score: attach one with @compiled(score, ...)")


@generic
def complete_score(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    """Score of a state, a tuple of length P, from the count and the sums of statistics of its observations.

    ``hat`` are the constants at which the statistics were taken.  Empty by default.
    """
    return ()


@generic
def statistics(family: Any, y: Any, c: Any) -> Any:
    """Statistics whose expectations the M-step needs, a tuple; empty by default.

    Centre them at ``c``, since sums of large numbers cancel.
    """
    return ()


@generic
def with_predictor(family: Any, y: Any, c: Any, eta: Any) -> Any:
    """(y', c') with ``log_density(family, y', c')`` that of y after eta was added to the linear predictor."""
    raise TypeError(
        f"{type(family).__name__} takes no inputs: it has no linear_predictor, which names the parameters they move."
    )


@generic
def with_log_scale(family: Any, y: Any, c: Any, zeta: Any) -> Any:
    """(y', c') with ``log_density(family, y', c')`` that of y after zeta was added to the log scale."""
    raise TypeError(
        f"{type(family).__name__} takes no inputs on its scale: it has no log_scale, which names what they move."
    )


@generic
def add_statistics(family: Any, y: Any, c: Any, weight: Any, room: Any, total: Any) -> Any:
    """For wide families: add ``weight`` times statistic q to ``total[q]``; ``room`` is scratch space for P values."""
    raise TypeError(f"{type(family).__name__} has no add_statistics: attach one with @compiled(add_statistics, ...)")


@generic
def summed_score(family: Any, count: Any, sums: Any, c: Any, out: Any) -> Any:
    """For wide families: write the scores ``out[i]`` from the count and the sums of statistics taken at ``c``."""
    raise TypeError(f"{type(family).__name__} has no summed_score: attach one with @compiled(summed_score, ...)")


# ---------------------------------------------------------------- what the rest of the library asks of a family
def returns_to(family: Any) -> tuple[str, ...]:
    """Names of the parameters that are levels."""
    if has(family, "returns_to"):
        return tuple(family.returns_to)
    moved, kinds = hook(family, "linear_predictor"), domains(family)
    real = [p for p in family.parameters if p.name in moved and p.support == "real"]
    return tuple(p.name for p in real if kinds[p.own_column] == REALS)


def domains(family: Family) -> tuple[Domain, ...]:
    """Domain of each column."""
    one = family.domain
    return (one,) * columns(family) if isinstance(one, Domain) else tuple(one)


def observed_rows(family: Family, y: Array) -> BoolArray:
    """Mask (n,) of the rows of ``y`` (n, D) that a family uses.

    These are the rows without missing columns or, if it accepts partial rows, with at least one that is not missing.
    """
    gone = np.isnan(y)
    return np.asarray(~(gone.all(1) if hook(family, "accepts_partial_rows") else gone.any(1)))


def constant(family: Family, y: Array) -> Array:
    """Terms (n,) that ``log_density`` leaves out for the rows ``y`` (n, D); 0 where missing."""
    if not has(family, "constant"):
        return np.zeros(len(y))
    terms = np.asarray(hook(family, "constant")(y[:, 0] if columns(family) == 1 else y), dtype=float)
    return np.where(observed_rows(family, y), terms, 0.0)


def move_parameters(family: Family, phi: Array, eta: Any = 0.0, zeta: Any = 0.0) -> Array:
    """Parameters of states as inputs move them; ``with_predictor`` and ``with_log_scale`` are the same for densities.

    Parameters
    ----------
    family
        A family; its ``linear_predictor`` and ``log_scale`` say which parameters move.
    phi
        Parameters of states, (..., P).
    eta, zeta
        Linear predictor and log scale of each column, (..., D), or a number for all.  A parameter moves by the entry of
        its own column.

    Returns
    -------
    array
        Parameters (..., P); the leading axes are those of ``phi``, ``eta`` and ``zeta``, broadcast.
    """
    zero = np.zeros(columns(family))
    eta, zeta = eta + zero, zeta + zero
    phi = np.asarray(phi, dtype=float)
    shape = np.broadcast_shapes(phi.shape[:-1], eta.shape[:-1], zeta.shape[:-1])
    out = np.broadcast_to(phi, (*shape, phi.shape[-1])).copy()
    powers = dict(hook(family, "log_scale"))
    for i, p in enumerate(family.parameters):
        if p.name in hook(family, "linear_predictor"):
            shift = eta[..., p.own_column]
            out[..., i] = out[..., i] * np.exp(shift) if p.support == "positive" else out[..., i] + shift
        if p.name in powers:
            out[..., i] *= np.exp(powers[p.name] * zeta[..., p.own_column])
    return out


def check_family(family: Family) -> None:
    """Refuse a family whose functions do not fit the contract.

    The functions are run on arrays as they will be run on lanes, so that a branch on ``y``, a function of ``math`` or a
    wrong index is found here, and reported in terms of the family rather than of the compiler.
    """
    name = type(family).__name__
    if isinstance(family, type):
        raise TypeError(f"family is the class {family.__name__}; pass an instance: {family.__name__}().")
    for attribute in ("parameters", "domain", "draw"):
        if not hasattr(family, attribute):
            raise TypeError(f"{name} has no {attribute!r}; see the contract in rarehmm.emissions.")
    hook(family, "check")()
    for p in family.parameters:
        if p.support not in ("real", "positive"):
            raise ValueError(f"{name}: the support of {p.name!r} is {p.support!r}; it must be 'real' or 'positive'.")
    phi = np.array([0.5 if p.support == "real" else 1.5 for p in family.parameters])
    y: Any = np.arange(1.0, LANES + 1)
    y = y if columns(family) == 1 else (y,) * columns(family)
    c, wide = _tried(name, prepare, family, phi), hook(family, "wide")
    if not isinstance(c, np.ndarray if wide else tuple) or not all(np.ndim(v) == 0 for v in c):
        kind = "an array" if wide else "a tuple of floats"
        raise TypeError(f"{name}: prepare must return {kind}, not {c!r}.")
    density = _tried(name, log_density, family, y, c)
    if np.shape(density) != (LANES,):
        raise TypeError(
            f"{name}: log_density of {LANES} observations has shape {np.shape(density)}; ({LANES},) is needed."
        )
    slopes = _tried(name, score, family, y, c)
    if not isinstance(slopes, tuple) or len(slopes) != len(phi):
        raise TypeError(f"{name}: score must return a tuple of {len(phi)}, one for each parameter, not {slopes!r}.")
    if not isinstance(_tried(name, statistics, family, y, c), tuple):
        raise TypeError(f"{name}: statistics must return a tuple.")
    check_moves(family, name, y, c)


def check_moves(family: Family, name: str, y: Any, c: Any) -> None:
    """Refuse a family whose ``linear_predictor`` or ``log_scale`` does not fit its parameters or its functions.

    ``y`` and ``c`` are observations on lanes and constants.
    """
    predictor, scale = hook(family, "linear_predictor"), hook(family, "log_scale")
    if not isinstance(predictor, tuple) or not all(isinstance(one, str) for one in predictor):
        raise TypeError(f'{name}: linear_predictor is {predictor!r}; it must be a tuple of names, such as ("mean",).')
    if not isinstance(scale, tuple) or not all(isinstance(one, tuple) and len(one) == 2 for one in scale):
        raise TypeError(
            f"{name}: log_scale is {scale!r}; it must be a tuple of pairs of a name and a power, such as "
            '(("variance", 2.0),).'
        )
    support = {p.name: p.support for p in family.parameters}
    check_returns_to(family, name)
    for attribute, names in (("linear_predictor", predictor), ("log_scale", tuple(one for one, _ in scale))):
        for unknown in (one for one in names if one not in support):
            raise ValueError(f"{name}: {attribute} names {unknown!r}; its parameters are {', '.join(support)}.")
    for real in (one for one, _ in scale if support[one] == "real"):
        raise ValueError(f"{name}: log_scale names {real!r}, which is real; it takes positive parameters.")
    for attribute, declared, function in (
        ("linear_predictor", predictor, with_predictor),
        ("log_scale", scale, with_log_scale),
    ):
        if not declared:
            continue
        if not provides(function, family):
            raise TypeError(
                f"{name} has {attribute} but no {function.__name__}: attach one with @compiled({function.__name__}, "
                "...), or leave out both."
            )
        found = _tried(name, function, family, y, c, y)
        if not isinstance(found, tuple) or len(found) != 2 or np.shape(found[0]) != np.shape(y):
            raise TypeError(
                f"{name}: {function.__name__} must return a pair (y', c') of which y' is as y, not {found!r}."
            )
        if not isinstance(found[1], (tuple, type(c))) or len(found[1]) != len(c):
            raise TypeError(
                f"{name}: {function.__name__} must return c or a tuple of {len(c)} constants c', not {found[1]!r}."
            )
        _tried(name, log_density, family, *found)


def check_returns_to(family: Family, name: str) -> None:
    """Refuse a family whose ``returns_to`` does not name real parameters of its ``linear_predictor``."""
    if not has(family, "returns_to"):
        return
    levels: Any = hook(family, "returns_to")
    if not isinstance(levels, tuple) or not all(isinstance(one, str) for one in levels):
        raise TypeError(f'{name}: returns_to is {levels!r}; it must be a tuple of names, such as ("mean",).')
    real = [p.name for p in family.parameters if p.support == "real" and p.name in hook(family, "linear_predictor")]
    for unknown in (one for one in levels if one not in real):
        raise ValueError(
            f"{name}: returns_to names {unknown!r}; it takes real parameters of linear_predictor, here "
            f"{', '.join(real) or 'none'}."
        )


def _tried(name: str, function: Any, family: Family, *args: Any) -> Any:
    try:
        return function(family, *args)
    except Exception as error:
        if not provides(function, family) and isinstance(error, TypeError):
            raise
        raise TypeError(
            f"{name}: {function.__name__} failed on an array ({type(error).__name__}: {error}). Write it in ordinary "
            "NumPy on y: np.where instead of if, np.log instead of math.log; lanes.lanewise for anything else."
        ) from error
