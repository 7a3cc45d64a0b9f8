r"""Gradients of windows, and what follows from them exactly: their sum, and the error of any way of drawing them.

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
from rarehmm.exact.passes import filter_states, smooth
from rarehmm.exact.statistics import control_statistics, n_statistics
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary
from rarehmm.windows.windows import Windows


class WindowSums(NamedTuple):
    """Expected scores (N, K, P), transitions (N, K, K) and counts (N, K) of each window, first states (N, K) where a
    sequence begins with it, and the family's statistics (N, K, Q)."""

    scores: Array
    pairs: Array
    counts: Array
    first: Array
    statistics: Array


class Messages(NamedTuple):
    """What is known about the states at the ends of the buffers of each window: ``left`` (N, K) the filter just before
    the first observation that is read, ``right`` (N, K) the backward message after the last one."""

    left: Array
    right: Array


def cold(windows: Windows, parameters: Parameters) -> Messages:
    """Messages that know nothing but the stationary law."""
    distribution = stationary(parameters.transition)
    return Messages(np.tile(distribution, (windows.count, 1)), np.ones((windows.count, len(distribution))))


def warm(
    model: Model, parameters: Parameters, series: Observations, windows: Windows, *, threads: int | None = None
) -> Messages:
    """The messages of the whole series at given parameters, at the ends of the buffers of each window."""
    first, _, begin, stop = windows.place(np.arange(windows.count))
    out = cold(windows, parameters)
    before, after = first - windows.buffer - 1, first + windows.length + windows.buffer - 1
    filtered, smoothed = (f(model, parameters, series, threads=threads) for f in (filter_states, smooth))
    inside = before >= begin
    out.left[inside] = filtered[before[inside]]
    inside = after < stop - 1
    now = filtered[after[inside]]
    ratio = np.divide(smoothed[after[inside]], now, out=np.zeros(now.shape), where=now > 0)
    out.right[inside] = ratio / ratio.sum(1, keepdims=True)
    return out


def window_sums(
    model: Model,
    parameters: Parameters,
    series: Observations,
    windows: Windows,
    *,
    messages: Messages | None = None,
    threads: int | None = None,
) -> WindowSums:
    """Expectations of every window given itself, its buffers and the messages at their ends (Fisher's identity); times
    the weight of its sequence."""
    model.check(rows_in(series))
    point, ends = prepared(model, parameters), messages or cold(windows, parameters)
    (K, P), N, n = parameters.phi.shape, windows.count, windows.length + 2 * windows.buffer
    Q = n_statistics(model.family)
    out = WindowSums(np.empty((N, K, P)), np.empty((N, K, K)), np.empty((N, K)), np.empty((N, K)), np.empty((N, K, Q)))
    every = np.arange(N)
    places = blocks.Blocks(*windows.place(every), windows.weights[windows.sequence(every)])
    parts = blocks.chunks(places, windows.buffer, len(series))

    def work(y: Array, chunk: blocks.Chunk) -> None:
        mine, layout = chunk.blocks, Layout(*places.within(chunk))
        room, (_, sums) = group(n, y.shape[1], K), zeros(K, P, Q)
        found = WindowSums(*(np.empty((len(layout.first), *o.shape[1:])) for o in out))
        with explained(model.name):
            window_pass(
                model.family, point, ends.left[mine], ends.right[mine], windows.buffer, windows.length, y, layout, room,
                sums, *found,
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
    """Gradient (N, d) of the log likelihood in theta by window; their sum is that of the whole series, up to buffers.

    The pull of a stationary start belongs to the window with which its sequence begins.
    """
    found = window_sums(model, model.unpack(theta), series, windows, messages=messages, threads=threads)
    return model.gradient_from_expectations(theta, found.scores, found.pairs, found.first)


# ---------------------------------------------------------------- frozen at a point: the control variate
class Frozen(NamedTuple):
    """What each window says at one point theta_hat, kept.

    ``phi`` (K, P) and ``messages`` of that point; ``statistics`` (N, C): counts (K), sums of the family's statistics
    (K Q), transitions (K K) and first states (K) of each window, and ``total`` (C,) of all.  A family without
    ``complete_score`` has the window's gradient (d,) instead (``by_gradient``).
    """

    phi: Array
    messages: Messages
    statistics: Array
    total: Array
    by_gradient: bool
    windows: Windows


def freeze(model: Model, theta: Array, series: Observations, windows: Windows, *, threads: int | None = None) -> Frozen:
    """Messages of the whole series at theta (d,), and the expectations of each window given all of it."""
    parameters = model.unpack(theta)
    messages = warm(model, parameters, series, windows, threads=threads)
    found = window_sums(model, parameters, series, windows, messages=messages, threads=threads)
    kept, by_gradient = control_statistics(model, theta, found), not provides(complete_score, model.family)
    total = objective_of(series).total(theta, kept)
    return Frozen(parameters.phi, messages, kept, total, by_gradient, windows)


def check_frozen(frozen: Frozen, model: Model, windows: Windows) -> None:
    """Refuse statistics of other windows or of another model."""
    mine = frozen.windows
    if (mine.half_width, mine.buffer, mine.count) != (windows.half_width, windows.buffer, windows.count):
        raise ValueError(
            f"the frozen statistics are of {mine.count} windows with L = {mine.half_width} and B = {mine.buffer}, not "
            f"of {windows.count} with L = {windows.half_width} and B = {windows.buffer}; freeze with these windows."
        )
    if frozen.phi.shape != (model.n_states, len(model.family.parameters)):
        raise ValueError(f"the frozen statistics are of {len(frozen.phi)} states, the model has {model.n_states}.")


def frozen_gradient(model: Model, theta: Array, frozen: Frozen, statistics: Array) -> Array:
    r"""Gradient (..., d) of the complete-data log likelihood at theta for frozen statistics (..., C), in which it is
    linear: the control variate :math:`s(\theta; t)`, exact in theta and blind to changes of the responsibilities."""
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


def changes(
    model: Model, theta: Array, series: Observations, windows: Windows, frozen: Frozen, *, threads: int | None = None
) -> Array:
    """What is left to chance (N, d): each window's gradient at theta beyond its control variate."""
    g = window_gradients(model, theta, series, windows, messages=frozen.messages, threads=threads)
    if frozen.by_gradient:
        return np.asarray(g - frozen.statistics)
    matrix = frozen_gradient(model, theta, frozen, np.eye(frozen.statistics.shape[1]))  # it is linear in them
    return np.asarray(g - frozen.statistics @ matrix)


# ---------------------------------------------------------------- errors
def buffer_error(
    model: Model, theta: Array, series: Observations, windows: Windows, *, threads: int | None = None
) -> Array:
    """Change (d,) of the sum of window gradients when the buffer is doubled: what the buffer leaves out."""
    longer = Windows(series, windows.half_width, 2 * windows.buffer)
    near, far = (window_gradients(model, theta, series, w, threads=threads).sum(0) for w in (windows, longer))
    return np.asarray(near - far)


def mean_square_error(gradients: Array, probabilities: Array) -> Array:
    r"""Mean square error (d,) of the one-window estimate :math:`g_J / a_J`, exactly.

    .. math:: \sum_{a_n > 0} g_n^2 / a_n - \Bigl(\sum_{a_n > 0} g_n\Bigr)^2 + \Bigl(\sum_{a_n = 0} g_n\Bigr)^2

    ``gradients`` (N, d), ``probabilities`` (rows, N) with one row for all components or one for each.  The last term
    is the bias of windows that are never drawn; S windows have 1 / S of the rest.
    """
    g, a = np.broadcast_arrays(gradients.T, probabilities)  # (d, N)
    drawn = a > 0
    squares = np.divide(g**2, a, out=np.zeros(g.shape), where=drawn).sum(1)
    return np.asarray(squares - np.where(drawn, g, 0.0).sum(1) ** 2 + np.where(drawn, 0.0, g).sum(1) ** 2)
