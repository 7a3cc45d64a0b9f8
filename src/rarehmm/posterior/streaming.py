"""State probabilities of a series of any length, one stretch at a time, equal to those of a pass over all of it.

The distribution of the state before a stretch is carried into it.  After the stretch a halo is read, long enough that
whatever follows makes no difference: whichever state the halo ends in, the distribution of the last state of the
stretch is the same, and then so are those of all earlier states.  A long gap of missing values needs a long halo.
Probabilities below e^-300 are dropped: only where transitions are forbidden could they ever matter again.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.common.writing import atomic_folder, npy_writer
from rarehmm.data.series import STRETCH, Series
from rarehmm.data.sources.checks import library
from rarehmm.engine.kernels.edges import log_backward_edges
from rarehmm.exact.densities import densities, prepared, ranges_between
from rarehmm.exact.edge_pass import EdgePass
from rarehmm.exact.passes import filter_states, needs_edges, smooth
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

ROWS = 1 << 20  # rows per stretch; fewer with more than four states
HALO = 4096  # rows of the first halo that is tried
TOLERANCE = 1e-11
STORED = np.float32
ENTRIES = 1 << 22  # of matrices that are multiplied at a time

Stretches = Iterator[tuple[int, int, Array]]


def stretches_of_probabilities(
    model: Model,
    points: list[Parameters],
    series: Series,
    *,
    causal: bool = False,
    threads: int | None = None,
    on_progress: OnProgress = silent,
) -> Stretches:
    """Yield (first, last, probabilities) for consecutive stretches of rows [first, last).

    The probabilities (last - first, K) are averaged over points, and smoothed or (``causal``) filtered.
    """
    if needs_edges(model, series):
        yield from stretches_of_nodes(model, points, series, causal, threads, on_progress)
        return
    function, T, size = filter_states if causal else smooth, len(series), rows_per_stretch(model.n_states)
    before: list[Array | None] = [None] * len(points)  # distributions of the last state, if its sequence continues
    for low in range(0, T, size):
        last = high = min(T, low + size)
        after: list[Array | None] = [None] * len(points)
        if high not in series.bounds:
            filtered = [
                distribution_after(model, point, distribution, series, low, high, threads)
                for point, distribution in zip(points, before, strict=True)
            ]
            after = [*filtered]
            if not causal:
                ends = [halo_end(model, *given, series, high) for given in zip(points, filtered, strict=True)]
                last = max(ends)
        join = int(series.bounds[np.searchsorted(series.bounds, low)])  # where the continuing sequence ends
        total = np.zeros((high - low, model.n_states))
        for first, end in pairwise(sorted({low, min(join, last), last})):
            part = series.part(first, end)
            for point, distribution in zip(points, before, strict=True):
                start = continued(point, distribution if first == low else None)
                total[first - low : end - low] += function(model, start, part, threads=threads)[: high - first]
        on_progress("probabilities", high, T)
        yield low, high, total / len(points)
        before = after


def last_distribution(model: Model, point: Parameters, series: Series, *, threads: int | None = None) -> Array:
    """Return the distribution (K,) of the last state of a series, given all of it."""
    if needs_edges(model, series):
        raise ValueError(
            "the rows that follow depend on more than the last state; use RegimeFilter(model, points).after(series)."
        )
    distribution, T, size = None, len(series), rows_per_stretch(model.n_states)
    for low in range(int(series.bounds[-2]), T, size):
        distribution = distribution_after(model, point, distribution, series, low, min(T, low + size), threads)
    assert distribution is not None
    return distribution


def rows_per_stretch(K: int) -> int:
    """Return the number of rows of a stretch, so that its probabilities take a bounded amount of memory."""
    return max(1, ROWS * 4 // max(K, 4))


# ---------------------------------------------------------------- the rows before and after a stretch
def continued(point: Parameters, distribution: Array | None) -> Parameters:
    """Return parameters for a sequence that continues after a state with a distribution (K,), or starts (None)."""
    return point if distribution is None else point._replace(start=distribution @ point.transition)


def distribution_after(
    model: Model,
    point: Parameters,
    distribution: Array | None,
    series: Series,
    low: int,
    high: int,
    threads: int | None,
) -> Array:
    """Return the filtered distribution (K,) of the state in row high - 1, from that in row low - 1.

    None for the latter: a sequence starts at row low.  The last rows suffice if they lead to the same distribution from
    every state.
    """
    begin = int(series.bounds[np.searchsorted(series.bounds, high) - 1])
    first = max(low, begin)
    if high - HALO > first:
        product = transfer(model, point, series, high - HALO, high)
        with np.errstate(invalid="ignore", divide="ignore"):
            ahead = product @ point.transition
            ahead /= ahead.sum(1, keepdims=True)
        if (np.ptp(ahead, axis=0) <= TOLERANCE * ahead.max(0)).all():  # relative: tiny probabilities may matter later
            return np.asarray(product[0] / product[0].sum())
    start = continued(point, None if first == begin else distribution)
    return np.asarray(filter_states(model, start, series.part(first, high), threads=threads)[-1])


def halo_end(model: Model, point: Parameters, distribution: Array, series: Series, high: int) -> int:
    """Return where a halo that starts at ``high`` may end, if row high - 1 has the filtered distribution (K,)."""
    return end_of_halo(lambda first, last: transfer(model, point, series, first, last), distribution, series, high)


def end_of_halo(between: Callable[[int, int], Array], distribution: Array, series: Series, high: int) -> int:
    """Return where a halo that starts at ``high`` may end.

    Row high - 1 has the filtered ``distribution`` (K,); ``between(first, last)`` is the scaled product (K, K) of the
    steps into rows [first, last).
    """
    stop = int(series.bounds[np.searchsorted(series.bounds, high)])
    product, last, size = np.diag(distribution), high, HALO
    while last < stop:
        first, last, size = last, min(stop, last + size), min(8 * size, STRETCH)
        with np.errstate(invalid="ignore", divide="ignore"):
            product = product @ between(first, last)
            product /= product.max()
            given = product / product.sum(0)  # distribution in row high - 1; columns: given the state at the end
        if (np.fmax.reduce(given, axis=1) - np.fmin.reduce(given, axis=1) <= TOLERANCE).all():
            break
    return last


def transfer(model: Model, point: Parameters, series: Series, first: int, last: int) -> Array:
    r"""Return the scaled product of :math:`P \operatorname{diag} p(y_t \mid x_t)` over rows [first, last), (K, K)."""
    logp = densities(model, prepared(model, point), series.read(first, last))
    return scaled_product(point.transition * np.exp(logp - logp.max(1, keepdims=True))[:, None])


def scaled_product(steps: Array) -> Array:
    """Return the product of matrices (n, K, K), up to a factor."""
    while len(steps) > 1:
        even = len(steps) // 2 * 2
        with np.errstate(invalid="ignore", divide="ignore"):
            pairs = steps[:even:2] @ steps[1:even:2]
            pairs /= pairs.max((1, 2), keepdims=True)
        steps = np.concatenate([pairs, steps[even:]])
    return np.asarray(steps[0])


# ---------------------------------------------------------------- models whose rows differ
def stretches_of_nodes(
    model: Model,
    points: list[Parameters],
    series: Series,
    causal: bool,
    threads: int | None,
    on_progress: OnProgress,
) -> Stretches:
    """Yield what ``stretches_of_probabilities`` does, for a model that unfolds to a chain of nodes and edges.

    A series of a single stretch is smoothed or filtered as a whole; longer ones in log space, from the distribution of
    nodes before a stretch to the end of its halo.
    """
    T, K, M = len(series), model.n_states, len(model.unfolding.chain.first_kind)
    size = rows_per_stretch(M)
    passes = [EdgePass(model, point, series, threads, False) for point in points]
    before = np.zeros((len(points), M))  # log distributions of the last node
    for low in range(0, T, size):
        high, total = min(T, low + size), np.zeros((min(T, low + size) - low, K))
        for work, last in zip(passes, before, strict=True):
            if high - low == T:
                total += (filter_states if causal else smooth)(model, work.parameters, series, threads=threads)
                continue
            nodes, predictive, top = work.log_filter(low, high, last)
            given, last[:] = last.copy(), nodes[-1]
            probabilities = np.exp(nodes) if causal else smoothed(work, low, nodes, predictive, top, given)
            np.add.at(total.T, model.unfolding.chain.node_state, probabilities.T)
        on_progress("probabilities", high, T)
        yield low, high, total / len(points)


def smoothed(work: EdgePass, low: int, nodes: Array, predictive: Array, top: Array, before: Array) -> Array:
    """Return the smoothed probabilities of nodes (n, M) in n rows from ``low`` on, from what ``log_filter`` returned.

    ``before`` (M,) is the log filter of row low - 1.
    """
    n, high, series, chain = len(nodes), low + len(nodes), work.series, work.model.unfolding.chain
    last, E, M = high, len(chain.source), nodes.shape[1]
    if high not in series.bounds:
        last = end_of_halo(lambda first, end: node_transfer(work, first, end), np.exp(nodes[-1]), series, high)
        more = work.log_filter(high, last, nodes[-1])
        nodes, predictive, top = (np.concatenate(parts) for parts in zip((nodes, predictive, top), more, strict=True))
    message = np.zeros(M)
    for first, end in reversed(ranges_between(low, last)):
        _, logp, log_weight, _, fresh = work.log_terms(first, end)
        rows = slice(first - low, end - low)
        logp -= top[rows, None]
        earlier = nodes[first - low - 1].copy() if first > low else before
        log_backward_edges(
            logp, log_weight, fresh, chain, nodes[rows], predictive[rows], earlier, message, np.zeros(E), np.zeros(M),
            np.empty(logp.shape), np.empty((0, E)), False,
        )  # fmt: skip
    return nodes[:n]


def node_transfer(work: EdgePass, first: int, last: int) -> Array:
    """Return the scaled product (M, M) of the steps between nodes into rows [first, last), within a sequence."""
    chain, M = work.model.unfolding.chain, len(work.distribution)
    product, size = np.eye(M), max(1, ENTRIES // M**2)
    for low in range(first, last, size):
        high = min(last, low + size)
        _, logp, log_weight, _, _ = work.log_terms(low, high)
        steps = np.zeros((high - low, M, M))
        steps[:, chain.source, chain.target] = np.exp(log_weight + (logp - logp.max(1, keepdims=True))[:, chain.kind])
        product = product @ scaled_product(steps)
        product /= product.max()
    return product


# ---------------------------------------------------------------- output
def collect(stretches: Stretches, shape: tuple[int, int]) -> Array:
    """Return all probabilities (T, K) as one array in memory."""
    out = np.empty(shape)
    for low, high, probabilities in stretches:
        out[low:high] = probabilities
    return out


def check_out(out: Any) -> Path:
    """Return ``out`` as a path, or raise ValueError if its extension is unknown or it exists already."""
    path = Path(out)
    if path.suffix not in (".npy", ".zarr"):
        raise ValueError(f"out is {str(out)!r}; it must be the name of a .npy file or a .zarr folder.")
    if path.exists():
        raise ValueError(f"{path} already exists; choose another name for out, or remove it first.")
    return path


def write_stretches(stretches: Stretches, shape: tuple[int, int], path: Path) -> Any:
    """Write all probabilities (T, K) in single precision, and return them read-only.

    A .npy file is returned as a memory map, a .zarr folder as a Zarr array; it appears only once it is complete.
    """
    if path.suffix == ".zarr":
        zarr = library("zarr")
        with atomic_folder(path) as folder:
            chunks = min(shape[0], rows_per_stretch(shape[1])), shape[1]
            array = zarr.create_array(folder, shape=shape, chunks=chunks, dtype=STORED)
            for low, high, probabilities in stretches:
                array[low:high] = probabilities.astype(STORED)
        return zarr.open_array(path, mode="r")
    with npy_writer(path, STORED, shape) as write:
        for _, _, probabilities in stretches:
            write(probabilities)
    return np.load(path, mmap_mode="r")
