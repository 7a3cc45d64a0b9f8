"""DOOR: what a family of emission densities must bring, and what it gets for nothing.

A family is one file here (or one of yours, anywhere): a ``NamedTuple`` class of its settings with

* ``parameters``: the parameters of one state, as ``Parameter`` (name, support, default prior);
* ``domain``: what its observations may be, ``REALS``, ``POSITIVE``, ``COUNTS`` or a ``Domain`` of its own (one for all
  columns, or one a column);
* ``columns``: how many columns it reads (default 1; then ``y`` is one value, else a tuple of columns);
* ``draw(rng, states, phi)``: observations (T,) or (T, D) given states (T,) and parameters phi (K, P);
* ``constant(y)``, only if ``log_density`` leaves out terms free of phi: their value for each row of ``y``;

and small functions attached with ``@compiled``, in ordinary NumPy on ``y``, which run on floats, on arrays and, inside
kernels, on lanes of 16 doubles:

* ``prepare(family, phi)``: constants of one state, once per theta (logarithms, divisions);
* ``log_density(family, y, c)``, ``c`` what ``prepare`` returned, or arrays of that, for many points at once;
* ``score(family, y, c)``: its derivatives in phi, a tuple;
* ``statistics(family, y, c)``, if the family has an M-step: what that needs the expectations of, a tuple; then also
  a method ``maximise(phi, counts, sums, priors)``: parameters (K, P) that raise the expected log posterior, given
  the old ones, the expected counts (K,) and sums of the statistics (K, Q), and the prior of each parameter;
* ``conditional(rng, phi, counts, sums, priors)``, for Gibbs sampling, with the same arguments: a draw of the
  parameters (K, P) given which observations belong to which state;
* ``complete_score(family, count, sums, hat, c)``, if there are statistics: the score of a state in terms of their sums
  (n or expected n of them, taken at other parameters, whose constants are ``hat``): the control variate of chains;
* ``complete(rng, y, phi)``, for Gibbs sampling with ``accepts_partial_rows`` (below), unless ``statistics`` can do
  without: rows (n, D) with the missing entries drawn given the others;
* ``cdf(y, phi)``, for residuals: P(Y <= y) of observations (n,) in a state with parameters phi (P,); of several columns
  ``cdfs(y, phi)``, that of each column by itself (n, D);
* ``heavier(phi)``, to tell rare states from tails: families with heavier tails, and parameters of them like phi (K, P);
* ``suited(summaries)``, a class method, where settings follow from the data: the family for columns with these
  summaries, when it is asked for by its name;
* ``estimate(y, weight)``, to start from labels: parameters (P,) of one state from its observations (n,), weighted.

A family of many columns says ``wide = True``: kernels then loop over columns instead of unrolling, so that ``y``, the
constants (``prepare`` returns an array), statistics and scores are rows in memory that are indexed, not tuples:

* ``add_statistics(family, y, c, weight, room, total)`` adds them to ``total``; for ``statistics`` call it on lists;
* ``summed_score(family, count, sums, c, out)`` fills in the scores that belong to the sums of statistics.

A family of several columns that can do without some of them says ``accepts_partial_rows = True``: its functions then
get rows in which some columns, but not all, are missing (NaN), and use the others.  Otherwise such rows count as
missing.

A missing observation (NaN) never reaches these functions' results.  Coordinates, Jacobians, gradients, priors,
decoding and simulation come for free.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.domains import Domain
from rarehmm.data.summaries import Summary
from rarehmm.engine.dispatch import generic, provides
from rarehmm.engine.lanes import LANES


class Prior(Protocol):
    """A density of one parameter, on arrays: its logarithm and the slope of that.

    A chain also needs ``terms``, the slope as coefficients of (1, x, 1/x, 1/x^2); ``slope_by_terms`` is then the slope.
    """

    def log_density(self, x: Array) -> Array: ...
    def slope(self, x: Array) -> Array: ...
    @property
    def terms(self) -> tuple[float, float, float, float]: ...


class Parameter(NamedTuple):
    """A parameter of each state.

    ``support`` is ``"real"`` or ``"positive"`` (then its logarithm is sampled); ``prior`` a prior, or a function that
    makes one from the summary of the column of the data to which the parameter belongs (of each, if several).
    """

    name: str
    support: str
    prior: Prior | Callable[..., Prior]
    column: int | tuple[int, ...] = 0

    def default(self, summaries: tuple[Summary, ...]) -> Prior:
        """The prior for data with these summaries."""
        own = (self.column,) if isinstance(self.column, int) else self.column
        return self.prior(*(summaries[i] for i in own)) if callable(self.prior) else self.prior


class Family(Protocol):
    """What every family has; the head of this file has the whole contract."""

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...
    @property
    def domain(self) -> Domain | tuple[Domain, ...]: ...
    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array: ...


@generic
def prepare(family: Any, phi: Any) -> Any:
    """Constants of one state, a tuple of floats, from its parameters ``phi`` (P,)."""
    raise TypeError(f"{type(family).__name__} has no prepare: attach one with @compiled(prepare, ...)")


@generic
def log_density(family: Any, y: Any, c: Any) -> Any:
    """log p(y | phi) with ``c = prepare(family, phi)``; terms free of phi may be left to ``constant``."""
    raise TypeError(f"{type(family).__name__} has no log_density: attach one with @compiled(log_density, ...)")


@generic
def score(family: Any, y: Any, c: Any) -> Any:
    """Derivatives of the log density in phi, a tuple of P."""
    raise TypeError(f"{type(family).__name__} has no score: attach one with @compiled(score, ...)")


@generic
def complete_score(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
    """Score of a state, a tuple of P, from the count and the sums of statistics of observations that are known to be
    its own; the statistics were taken at ``hat``, what ``prepare`` returned there.  None by default."""
    return ()


@generic
def statistics(family: Any, y: Any, c: Any) -> Any:
    """What the M-step needs the expectations of, a tuple, centred at ``c`` against cancellation; none by default."""
    return ()


@generic
def add_statistics(family: Any, y: Any, c: Any, weight: Any, room: Any, total: Any) -> Any:
    """Of a wide family: ``total[q]`` += ``weight`` times statistic q, with ``room`` for a value each parameter."""
    raise TypeError(f"{type(family).__name__} has no add_statistics: attach one with @compiled(add_statistics, ...)")


@generic
def summed_score(family: Any, count: Any, sums: Any, c: Any, out: Any) -> Any:
    """Of a wide family: the scores ``out[i]`` from count and sums of statistics that were taken at ``c``."""
    raise TypeError(f"{type(family).__name__} has no summed_score: attach one with @compiled(summed_score, ...)")


def columns(family: Family) -> int:
    """How many columns of the data a family reads."""
    return int(getattr(family, "columns", 1))


def domains(family: Family) -> tuple[Domain, ...]:
    """What each column may hold."""
    one = family.domain
    return (one,) * columns(family) if isinstance(one, Domain) else tuple(one)


def observed_rows(family: Family, y: Array) -> BoolArray:
    """Which rows of ``y`` (n, D) a family learns from: those without a missing column or, if it accepts partial rows,
    with at least one that is not missing."""
    gone = np.isnan(y)
    return np.asarray(~(gone.all(1) if getattr(family, "accepts_partial_rows", False) else gone.any(1)))


def constant(family: Family, y: Array) -> Array:
    """The terms (n,) that ``log_density`` leaves out for the rows ``y`` (n, D); 0 where missing."""
    if not hasattr(family, "constant"):
        return np.zeros(len(y))
    terms = np.asarray(family.constant(y[:, 0] if columns(family) == 1 else y), dtype=float)
    return np.where(observed_rows(family, y), terms, 0.0)


def check_family(family: Family) -> None:
    """Refuse a family whose functions do not fit the contract, in words about the family and not about a compiler.

    The functions are run on arrays as they will be run on lanes, so that a branch on ``y``, a function of ``math`` or
    a wrong index shows here.
    """
    name = type(family).__name__
    if isinstance(family, type):
        raise TypeError(f"family is the class {family.__name__}; pass an instance: {family.__name__}().")
    for attribute in ("parameters", "domain", "draw"):
        if not hasattr(family, attribute):
            raise TypeError(f"{name} has no {attribute!r}; see the contract in rarehmm.emissions.")
    if hasattr(family, "check"):
        family.check()
    for p in family.parameters:
        if p.support not in ("real", "positive"):
            raise ValueError(f"{name}: the support of {p.name!r} is {p.support!r}; it must be 'real' or 'positive'.")
    phi = np.array([0.5 if p.support == "real" else 1.5 for p in family.parameters])
    y: Any = np.arange(1.0, LANES + 1)
    y = y if columns(family) == 1 else (y,) * columns(family)
    c, wide = _tried(name, prepare, family, phi), getattr(family, "wide", False)
    if not isinstance(c, np.ndarray if wide else tuple) or not all(np.ndim(v) == 0 for v in c):
        kind = "an array" if wide else "a tuple of floats"
        raise TypeError(f"{name}: prepare must return {kind}, not {c!r}.")
    density = _tried(name, log_density, family, y, c)
    if np.shape(density) != (LANES,):
        raise TypeError(f"{name}: log_density of {LANES} observations has shape {np.shape(density)}.")
    slopes = _tried(name, score, family, y, c)
    if not isinstance(slopes, tuple) or len(slopes) != len(phi):
        raise TypeError(f"{name}: score must return a tuple of {len(phi)}, one for each parameter, not {slopes!r}.")
    if not isinstance(_tried(name, statistics, family, y, c), tuple):
        raise TypeError(f"{name}: statistics must return a tuple.")


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
