"""State probabilities of a series of any length, one stretch at a time, equal to those of a pass over all of it.

The distribution of the state before a stretch is carried into it.  After the stretch a halo is read, long enough that
whatever follows makes no difference: whichever state the halo ends in, the distribution of the last state of the
stretch is the same, and then so are those of all earlier states.  A long gap of missing values needs a long halo.
Probabilities below e^-300 are dropped: only where transitions are forbidden could they ever matter again.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.common.writing import atomic_folder, npy_writer
from rarehmm.data.series import STRETCH, Series
from rarehmm.data.sources.checks import library
from rarehmm.exact.densities import densities, prepared
from rarehmm.exact.passes import filter_states, smooth
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

ROWS = 1 << 20  # rows per stretch; fewer with more than four states
HALO = 4096  # rows of the first halo that is tried
TOLERANCE = 1e-11
STORED = np.float32

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
    stop = int(series.bounds[np.searchsorted(series.bounds, high)])
    product, last, size = np.diag(distribution), high, HALO
    while last < stop:
        first, last, size = last, min(stop, last + size), min(8 * size, STRETCH)
        with np.errstate(invalid="ignore", divide="ignore"):
            product = product @ transfer(model, point, series, first, last)
            product /= product.max()
            given = product / product.sum(0)  # distribution in row high - 1; columns: given the state at the end
        if (np.fmax.reduce(given, axis=1) - np.fmin.reduce(given, axis=1) <= TOLERANCE).all():
            break
    return last


def transfer(model: Model, point: Parameters, series: Series, first: int, last: int) -> Array:
    r"""Return the scaled product of :math:`P \operatorname{diag} p(y_t \mid x_t)` over rows [first, last), (K, K)."""
    logp = densities(model, prepared(model, point), series.read(first, last))
    steps = point.transition * np.exp(logp - logp.max(1, keepdims=True))[:, None]  # (n, K, K)
    while len(steps) > 1:
        even = len(steps) // 2 * 2
        with np.errstate(invalid="ignore", divide="ignore"):
            pairs = steps[:even:2] @ steps[1:even:2]
            pairs /= pairs.max((1, 2), keepdims=True)
        steps = np.concatenate([pairs, steps[even:]])
    return np.asarray(steps[0])


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
