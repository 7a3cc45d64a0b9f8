r"""Gradients of windows, and what follows from them exactly: their sum, and the error of any way of drawing them.

Means and variances over windows are finite sums, so nothing here is random.
"""

from typing import NamedTuple

import numpy as np

from rarehmm import blocks
from rarehmm.dispatch import explained
from rarehmm.kernels.full_pass import Layout
from rarehmm.kernels.messages import group, zeros
from rarehmm.kernels.window_pass import window_pass
from rarehmm.model import Model, Parameters
from rarehmm.passes import n_statistics, prepared
from rarehmm.series import Array, Series
from rarehmm.transitions import stationary
from rarehmm.windows import Windows


class WindowSums(NamedTuple):
    """Expected scores (N, K, P), transitions (N, K, K) and counts (N, K) of each window, and first states (N, K) where
    a sequence begins with it."""

    scores: Array
    pairs: Array
    counts: Array
    first: Array


def window_sums(
    model: Model, parameters: Parameters, series: Series, windows: Windows, *, threads: int | None = None
) -> WindowSums:
    """Expectations of every window given itself and its buffers (Fisher's identity)."""
    model.check(series)
    point, law = prepared(model, parameters), stationary(parameters.transition)
    (K, P), N, n = parameters.phi.shape, windows.count, windows.length + 2 * windows.buffer
    out = WindowSums(np.empty((N, K, P)), np.empty((N, K, K)), *np.empty((2, N, K)))
    places = windows.place(np.arange(N))
    parts = blocks.chunks(blocks.Blocks(*places), windows.buffer, len(series))

    def work(y: Array, chunk: blocks.Chunk) -> None:
        mine = chunk.blocks
        first, length, begin, stop = (place[mine] for place in places)
        layout = Layout(first - chunk.first, length, begin - chunk.first, stop - chunk.first)
        room, (_, sums) = group(n, y.shape[1], K), zeros(K, P, n_statistics(model, point))
        found = WindowSums(*(np.empty((len(first), *o.shape[1:])) for o in out))
        with explained(model.name):
            window_pass(model.family, point, law, windows.buffer, windows.length, y, layout, room, sums, *found)
        for whole, part in zip(out, found, strict=True):
            whole[mine] = part

    blocks.over(series, parts, work, threads)
    return out


def window_gradients(
    model: Model, theta: Array, series: Series, windows: Windows, *, threads: int | None = None
) -> Array:
    """Gradient (N, d) of the log likelihood in theta by window; their sum is that of the whole series, up to buffers.

    The pull of a stationary start belongs to the window with which its sequence begins.
    """
    found = window_sums(model, model.unpack(theta), series, windows, threads=threads)
    return model.pull(theta, found.scores, found.pairs, found.first)


def buffer_error(model: Model, theta: Array, series: Series, windows: Windows, *, threads: int | None = None) -> Array:
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
