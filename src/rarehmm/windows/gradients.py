r"""Gradients of windows, their control variates, and the exact error of any way of drawing windows.

Means and variances over windows are finite sums, so nothing here is random.
"""

from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import complete_score, prepare
from rarehmm.engine.dispatch import explained, provides
from rarehmm.engine.kernels.full_pass import Layout
from rarehmm.engine.kernels.messages import group, zeros
from rarehmm.engine.kernels.window_pass import window_pass
from rarehmm.exact import blocks
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.densities import prepared
from rarehmm.exact.passes import filter_states, needs_edges, smooth
from rarehmm.exact.statistics import control_statistics, n_statistics
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary
from rarehmm.windows.windows import Windows


class WindowSums(NamedTuple):
    """Expectations over each window.

    Scores (N, K, P), transitions (N, K, K), counts (N, K), first states (N, K) where a sequence begins with the window,
    and the family's sufficient statistics (N, K, Q).
    """

    scores: Array
    pairs: Array
    counts: Array
    first: Array
    statistics: Array


class Messages(NamedTuple):
    """Messages at the outer ends of each window's buffers.

    ``left`` (N, K) is the filtered distribution just before the first observation that is read, ``right`` (N, K) the
    backward message after the last one.
    """

    left: Array
    right: Array


def stationary_messages(windows: Windows, parameters: Parameters) -> Messages:
    """Messages that carry no information about the data: the stationary distribution on the left, ones on the right."""
    distribution = stationary(parameters.transition)
    return Messages(np.tile(distribution, (windows.count, 1)), np.ones((windows.count, len(distribution))))


def full_series_messages(
    model: Model, parameters: Parameters, series: Observations, windows: Windows, *, threads: int | None = None
) -> Messages:
    """Exact messages of the whole series at given parameters, at the ends of each window's buffers."""
    first, _, begin, stop = windows.place(np.arange(windows.count))
    out = stationary_messages(windows, parameters)
    before, after = first - windows.buffer - 1, first + windows.length + windows.buffer - 1
    filtered, smoothed = (f(model, parameters, series, threads=threads) for f in (filter_states, smooth))
    inside = before >= begin
    out.left[inside] = filtered[before[inside]]
    inside = after < stop - 1
    now = filtered[after[inside]]
    ratio = np.divide(smoothed[after[inside]], now, out=np.zeros(now.shape), where=now > 0)
    out.right[inside] = ratio / ratio.sum(1, keepdims=True)
    return out


def can_use_windows(model: Model, series: Observations) -> bool:
    """Whether gradients from windows exist: for models whose rows are alike, without known states and tied values.

    Raise if the model cannot have produced the series.
    """
    return not needs_edges(model, series) and not model.tied


def check_windows(model: Model, series: Observations, place: str = "") -> None:
    """Raise unless gradients from windows exist; the message begins with the ``place`` that they are wanted for."""
    if not can_use_windows(model, series):
        raise ValueError(
            f"{place}gradients from windows need a model without inputs, lags, phases and tied parameters, and a "
            "series without known states. Use a method that reads all data: 'hmc', 'importance' or 'laplace'."
        )


def window_sums(
    model: Model,
    parameters: Parameters,
    series: Observations,
    windows: Windows,
    *,
    messages: Messages | None = None,
    threads: int | None = None,
) -> WindowSums:
    """Expectations over every window, given its observations, its buffers and the messages at their ends.

    They are multiplied by the weight of the sequence.  By Fisher's identity, they determine the gradient.
    """
    check_windows(model, series)
    point, ends = prepared(model, parameters), messages or stationary_messages(windows, parameters)
    (K, P), N, n = parameters.phi.shape, windows.count, windows.length + 2 * windows.buffer
    Q = n_statistics(model.family)
    out = WindowSums(np.empty((N, K, P)), np.empty((N, K, K)), np.empty((N, K)), np.empty((N, K)), np.empty((N, K, Q)))
    every = np.arange(N)
    places = blocks.Blocks(*windows.place(every), windows.weights[windows.sequence(every)])
    parts = blocks.chunks(places, windows.buffer, len(series))

    def work(y: Array, chunk: blocks.Chunk) -> None:
        mine, layout = chunk.blocks, Layout(*places.within(chunk))
        scratch, (_, sums) = group(n, y.shape[1], K), zeros(K, P, Q)
        found = WindowSums(*(np.empty((len(layout.first), *o.shape[1:])) for o in out))
        with explained(model.name):
            window_pass(
                model.family, point, ends.left[mine], ends.right[mine], windows.buffer, windows.length, y, layout,
                scratch, sums, *found,
            )  # fmt: skip
        for whole, part in zip(out, found, strict=True):
            whole[mine] = part

    blocks.map_chunks(rows_in(series), parts, work, threads, run_locally=True)
    return out


def window_gradients(
    model: Model,
    theta: Array,
    series: Observations,
    windows: Windows,
    *,
    messages: Messages | None = None,
    threads: int | None = None,
) -> Array:
    """Gradient (N, d) of the log likelihood in theta for each window.

    Their sum is the gradient of the whole series, up to the error of the buffers.  The contribution of a stationary
    start belongs to the first window of each sequence.
    """
    found = window_sums(model, model.unpack(theta), series, windows, messages=messages, threads=threads)
    return model.gradient_from_expectations(theta, found.scores, found.pairs, found.first)


# ---------------------------------------------------------------- control variates: statistics frozen at a point
class Frozen(NamedTuple):
    """Expected statistics of each window at one point, for use as control variates.

    ``phi`` (K, P) and ``messages`` belong to that point.  ``statistics`` (N, C) are the counts (K), sums of the
    family's statistics (K Q), transitions (K K) and first states (K) of each window, and ``total`` (C,) is their sum.
    For a family without ``complete_score``, each window's gradient (d,) takes their place (``by_gradient``).
    """

    phi: Array
    messages: Messages
    statistics: Array
    total: Array
    by_gradient: bool
    windows: Windows


def freeze(model: Model, theta: Array, series: Observations, windows: Windows, *, threads: int | None = None) -> Frozen:
    """Freeze the statistics of each window at theta (d,), given the whole series."""
    parameters = model.unpack(theta)
    messages = full_series_messages(model, parameters, series, windows, threads=threads)
    found = window_sums(model, parameters, series, windows, messages=messages, threads=threads)
    kept, by_gradient = control_statistics(model, theta, found), not provides(complete_score, model.family)
    total = objective_of(series).total(theta, kept)
    return Frozen(parameters.phi, messages, kept, total, by_gradient, windows)


def check_frozen(frozen: Frozen, model: Model, windows: Windows) -> None:
    """Raise ValueError if the frozen statistics belong to other windows or to another model."""
    mine = frozen.windows
    if (mine.half_width, mine.buffer, mine.count) != (windows.half_width, windows.buffer, windows.count):
        raise ValueError(
            f"the frozen statistics belong to {mine.count} windows with half-width {mine.half_width} and buffer "
            f"{mine.buffer}, not to {windows.count} with half-width {windows.half_width} and buffer {windows.buffer}; "
            "freeze them with these windows."
        )
    if frozen.phi.shape != (model.n_states, len(model.family.parameters)):
        raise ValueError(
            f"the frozen statistics belong to a model with n_states={len(frozen.phi)}, not {model.n_states}; freeze "
            "them with this model."
        )


def frozen_gradient(model: Model, theta: Array, frozen: Frozen, statistics: Array) -> Array:
    r"""Gradient (..., d) of the complete-data log likelihood at theta for frozen statistics (..., C).

    This is the control variate :math:`s(\theta; t)`.  It is linear in the statistics and exact in theta, but ignores
    changes in the state probabilities.
    """
    if frozen.by_gradient:
        return statistics
    (K, P), family = frozen.phi.shape, model.family
    Q = (statistics.shape[-1] - K * K - 2 * K) // K
    counts, sums, pairs, first = np.split(statistics, np.cumsum([K, K * Q, K * K]), axis=-1)
    phi = model.unpack_all(theta)[0]
    scores = np.empty((*counts.shape, P))
    for k in range(K):
        mine = tuple(sums[..., k * Q + q] for q in range(Q))
        hat, here = prepare(family, frozen.phi[k]), prepare(family, phi[k])
        for i, slope in enumerate(complete_score(family, counts[..., k], mine, hat, here)):
            scores[..., k, i] = slope
    return model.gradient_from_expectations(theta, scores, pairs.reshape(*pairs.shape[:-1], K, K), first)


def control_variate_residuals(
    model: Model, theta: Array, series: Observations, windows: Windows, frozen: Frozen, *, threads: int | None = None
) -> Array:
    """Gradient of each window at theta minus its control variate (N, d): the part that is estimated by sampling."""
    g = window_gradients(model, theta, series, windows, messages=frozen.messages, threads=threads)
    if frozen.by_gradient:
        return np.asarray(g - frozen.statistics)
    matrix = frozen_gradient(model, theta, frozen, np.eye(frozen.statistics.shape[1]))  # linear in the statistics
    return np.asarray(g - frozen.statistics @ matrix)


# ---------------------------------------------------------------- errors
def mean_square_error(gradients: Array, probabilities: Array) -> Array:
    r"""Exact mean square error (d,) of the one-window estimate :math:`g_J / a_J` of the gradient.

    .. math:: \sum_{a_n > 0} g_n^2 / a_n - \Bigl(\sum_{a_n > 0} g_n\Bigr)^2 + \Bigl(\sum_{a_n = 0} g_n\Bigr)^2

    ``gradients`` is (N, d); ``probabilities`` (rows, N) has one row for all components or one per component.  The last
    term is the squared bias due to windows that are never drawn; with S windows, the rest is divided by S.
    """
    g, a = np.broadcast_arrays(gradients.T, probabilities)  # (d, N)
    drawn = a > 0
    squares = np.divide(g**2, a, out=np.zeros(g.shape), where=drawn).sum(1)
    return np.asarray(squares - np.where(drawn, g, 0.0).sum(1) ** 2 + np.where(drawn, 0.0, g).sum(1) ** 2)
