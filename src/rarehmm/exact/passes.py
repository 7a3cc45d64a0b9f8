"""Exact inference on a whole series: likelihood, gradient, smoothing, filtering, decoding, expectations for EM.

Every function is one pass over the series (see ``block_pass``).  ``sequential=True`` propagates messages step by step
from the start: the same result, but slower.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series
from rarehmm.engine.kernels.sequential import trace, viterbi
from rarehmm.exact.block_pass import Expectations, Pass
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.densities import constant_total, densities, prepared, row_ranges, sequence_starts
from rarehmm.exact.edge_pass import EdgePass, decode_edges, joint_edge_density
from rarehmm.model.checks import check_labels
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters


def needs_edges(model: Model, series: Observations) -> bool:
    """Whether the rows of a series differ under a model: it has inputs, lags or phases, or some states are known.

    Raise if the family cannot have produced the series.
    """
    model.check(rows_in(series))
    return model.effects is not None or rows_in(series).states is not None


def pass_over(
    model: Model, parameters: Parameters, series: Observations, threads: int | None, sequential: bool, **wanted: Any
) -> Pass | EdgePass:
    """A pass of the kind that the model and the series need."""
    kind = EdgePass if needs_edges(model, series) else Pass
    return kind(model, parameters, series, threads, sequential, **wanted)


def log_likelihood(
    model: Model, parameters: Parameters, series: Observations, *, threads: int | None = None, sequential: bool = False
) -> float:
    """Log likelihood log p(y | parameters), summed over sequences.

    Parameters
    ----------
    model
        The model.
    parameters
        Parameters in natural units.
    series
        The observations.
    threads
        Number of threads; None (default): all available ones.
    sequential
        Propagate messages through the series step by step instead of block by block: the same result, but slower.

    Returns
    -------
    float
        The log likelihood.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.

    Examples
    --------
    >>> from rarehmm import Model, Poisson, Series, log_likelihood, no_priors
    >>> model = Model(Poisson(), 2, no_priors(Poisson()))
    >>> parameters = model.parameters([[0.9, 0.1], [0.5, 0.5]], rate=[1.0, 9.0])
    >>> round(log_likelihood(model, parameters, Series([0, 1, 12])), 3)
    -7.209
    """
    return pass_over(model, parameters, series, threads, sequential).run().log_likelihood


def expectations(
    model: Model,
    parameters: Parameters,
    series: Observations,
    *,
    with_statistics: bool = False,
    with_information: bool = False,
    threads: int | None = None,
    sequential: bool = False,
) -> Expectations:
    """Log likelihood and expected scores, transitions and (on request) statistics or information, in one pass.

    Parameters
    ----------
    model
        The model.
    parameters
        Parameters in natural units.
    series
        The observations.
    with_statistics
        Whether to compute ``counts`` and ``statistics`` as well.
    with_information
        Whether to compute the complete-data information as well; only for families of one column.
    threads
        Number of threads; None (default): all available ones.
    sequential
        Propagate messages through the series step by step instead of block by block: the same result, but slower.

    Returns
    -------
    Expectations
        The expected sufficient statistics.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    if needs_edges(model, series) or with_information:
        if with_statistics:
            raise TypeError(
                "with_statistics needs a model without inputs, lags or phases, and a series without known states; "
                "other models have no sums of statistics that are enough for an M-step."
            )
        return EdgePass(
            model, parameters, series, threads, sequential, back=True, with_information=with_information
        ).run()
    return Pass(model, parameters, series, threads, sequential, back=True, with_statistics=with_statistics).run()


def log_posterior(
    model: Model, theta: Array, series: Observations, *, threads: int | None = None, sequential: bool = False
) -> tuple[float, Array]:
    """Log posterior density of theta, up to a constant, and its gradient by Fisher's identity.

    Parameters
    ----------
    model
        The model.
    theta
        Point (d,); see ``Model.pack``.
    series
        The observations.
    threads
        Number of threads; None (default): all available ones.
    sequential
        Propagate messages through the series step by step instead of block by block: the same result, but slower.

    Returns
    -------
    value : float
        The log posterior density, up to a constant.
    gradient : ndarray of shape (d,)
        Its gradient.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    found = expectations(model, model.unpack(theta), series, threads=threads, sequential=sequential)
    value = found.log_likelihood + model.log_prior(theta)
    slope = model.gradient_from_expectations(
        theta, found.scores, found.pairs, found.first, found.coefficients
    ) + model.log_prior_gradient(theta)
    missing, missing_slope = objective_of(series).correction(theta)
    return value + missing, slope + missing_slope


def log_posterior_value(model: Model, theta: Array, series: Observations, *, threads: int | None = None) -> float:
    """Log posterior density of theta, up to a constant, in a third of the time that its gradient takes."""
    value = log_likelihood(model, model.unpack(theta), series, threads=threads)
    return value + float(model.log_prior(theta)) + objective_of(series).correction(theta)[0]


def smooth(
    model: Model, parameters: Parameters, series: Observations, *, threads: int | None = None, sequential: bool = False
) -> Array:
    """Probability of each state at each time, given the whole series.

    Parameters
    ----------
    model
        The model.
    parameters
        Parameters in natural units.
    series
        The observations.
    threads
        Number of threads; None (default): all available ones.
    sequential
        Propagate messages through the series step by step instead of block by block: the same result, but slower.

    Returns
    -------
    ndarray of shape (T, K)
        The smoothed probabilities.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    out = np.empty((len(series), model.n_states))
    pass_over(model, parameters, series, threads, sequential, back=True, probabilities=out).run()
    return out


def state_counts(model: Model, parameters: Parameters, series: Observations, *, threads: int | None = None) -> Array:
    """Expected number of observations (K,) in each state, given the whole series."""
    if not needs_edges(model, series):
        return expectations(model, parameters, series, with_statistics=True, threads=threads).counts
    gamma, out = smooth(model, parameters, series, threads=threads), np.zeros(model.n_states)
    for low, rows in rows_in(series).strides():
        out += (~np.isnan(rows)).any(1) @ gamma[low : low + len(rows)]
    return out


def filter_states(
    model: Model, parameters: Parameters, series: Observations, *, threads: int | None = None, sequential: bool = False
) -> Array:
    """Probability of each state at each time, given the past and the present.

    Parameters
    ----------
    model
        The model.
    parameters
        Parameters in natural units.
    series
        The observations.
    threads
        Number of threads; None (default): all available ones.
    sequential
        Propagate messages through the series step by step instead of block by block: the same result, but slower.

    Returns
    -------
    ndarray of shape (T, K)
        The filtered probabilities; later observations do not change them.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    out = np.empty((len(series), model.n_states))
    pass_over(model, parameters, series, threads, sequential, probabilities=out).run()
    return out


def predictive_log_density(
    model: Model, parameters: Parameters, series: Series, *, threads: int | None = None, sequential: bool = False
) -> Array:
    """One-step-ahead predictive log density log p(y_t | y_1, ..., y_{t-1}) of each observation.

    Parameters
    ----------
    model
        The model.
    parameters
        Parameters in natural units.
    series
        The observations.
    threads
        Number of threads; None (default): all available ones.
    sequential
        Propagate messages through the series step by step instead of block by block: the same result, but slower.

    Returns
    -------
    ndarray of shape (T,)
        The log densities, 0 where y_t is missing; they sum to the log likelihood.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    out = np.empty(len(series))
    pass_over(model, parameters, series, threads, sequential, predictive=out).run()
    return out


def decode(model: Model, parameters: Parameters, series: Series) -> tuple[IntArray, float]:
    """Most probable path of hidden states given the series (Viterbi).

    Parameters
    ----------
    model
        The model.
    parameters
        Parameters in natural units.
    series
        The observations.

    Returns
    -------
    path : ndarray of shape (T,)
        The states.
    log_density : float
        Joint log density log p(path, y).

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    model.check(series)
    if needs_edges(model, series):
        path, density = decode_edges(model, parameters, series)
        return path, density + constant_total(model, series)
    T, K = len(series), model.n_states
    point = prepared(model, parameters)
    with np.errstate(divide="ignore"):
        log_transition, log_start = np.log(parameters.transition), np.log(parameters.start)
    back = np.empty((T, K), dtype=np.uint8)
    best = np.zeros(K)
    for low, high in row_ranges(series):
        logp = densities(model, point, series.read(low, high))
        viterbi(logp, log_transition, log_start, sequence_starts(series, low, high), best, back[low:high])
    path = np.empty(T, dtype=np.int64)
    trace(back, int(np.argmax(best)), path)
    return path, joint_log_density(model, parameters, series, path)


def joint_log_density(model: Model, parameters: Parameters, series: Series, path: npt.ArrayLike) -> float:
    """Joint log density log p(path, y) of the series and a path of hidden states.

    Parameters
    ----------
    model
        The model.
    parameters
        Parameters in natural units.
    series
        The observations.
    path
        States (T,), integers in 0..K-1.

    Returns
    -------
    float
        The log density.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit each other.
    """
    x = check_labels(path, len(series), model.n_states, "path")
    if needs_edges(model, series):
        return joint_edge_density(model, parameters, series, x) + constant_total(model, series)
    point = prepared(model, parameters)
    with np.errstate(divide="ignore"):
        log_transition, log_start = np.log(parameters.transition), np.log(parameters.start)
    total = constant_total(model, series)
    for low, high in row_ranges(series):
        logp = densities(model, point, series.read(low, high))
        fresh, here = sequence_starts(series, low, high), x[low:high]
        before = x[np.maximum(np.arange(low, high) - 1, 0)]
        total += float(logp[np.arange(high - low), here].sum())
        total += float(np.where(fresh, log_start[here], log_transition[before, here]).sum())
    return total
