"""Probabilities of the states of a series of any length, a stretch at a time, as if it were taken as a whole.

The law of the state before a stretch is carried into it.  After it a halo is read, so long that whatever comes later
makes no difference: given the state at its end, whichever, the law of the last state of the stretch is the same, and
then so are those of all states before.  A long gap of missing values asks for a long halo.  Masses below e^-300 are not
carried: only where transitions are forbidden could they come to count again.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.common.writing import whole_folder, written_npy
from rarehmm.data.series import STRETCH, Series
from rarehmm.data.sources.checks import library
from rarehmm.exact.densities import densities, prepared
from rarehmm.exact.passes import filter_states, smooth
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

ROWS = 1 << 20  # of a stretch; fewer where there are more than four states
HALO = 4096  # rows that are tried first
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
    """Stretches [first, last) and the probabilities (last - first, K) of the states in them, averaged over points:
    given the whole series, or (``causal``) given the past and the present."""
    function, T, size = filter_states if causal else smooth, len(series), rows_of_stretch(model.n_states)
    distributions: list[Array | None] = [None] * len(points)  # of the state before a stretch, where a sequence goes on
    for low in range(0, T, size):
        last = high = min(T, low + size)
        after: list[Array | None] = [None] * len(points)
        if high not in series.bounds:
            known = [
                distribution_after(model, *one, series, low, high, threads)
                for one in zip(points, distributions, strict=True)
            ]
            after = [*known]
            if not causal:
                last = max(reach(model, *one, series, high) for one in zip(points, known, strict=True))
        join = int(series.bounds[np.searchsorted(series.bounds, low)])  # where the sequence ends that goes on
        total = np.zeros((high - low, model.n_states))
        for first, end in pairwise(sorted({low, min(join, last), last})):
            part = series.part(first, end)
            for point, distribution in zip(points, distributions, strict=True):
                begun = going_on(point, distribution if first == low else None)
                total[first - low : end - low] += function(model, begun, part, threads=threads)[: high - first]
        on_progress("probabilities", high, T)
        yield low, high, total / len(points)
        distributions = after


def last_distribution(model: Model, point: Parameters, series: Series, *, threads: int | None = None) -> Array:
    """Law (K,) of the last state of a series given all of it."""
    distribution, T, size = None, len(series), rows_of_stretch(model.n_states)
    for low in range(int(series.bounds[-2]), T, size):
        distribution = distribution_after(model, point, distribution, series, low, min(T, low + size), threads)
    assert distribution is not None
    return distribution


def rows_of_stretch(K: int) -> int:
    return max(1, ROWS * 4 // max(K, 4))


# ---------------------------------------------------------------- what a stretch must know of the rest
def going_on(point: Parameters, distribution: Array | None) -> Parameters:
    """Parameters of a sequence that goes on after a state with a law (K,), or begins (None)."""
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
    """Law (K,) of the state of row high - 1 given the rows up to it, from that of row low - 1; None: a sequence begins.

    The last rows are enough if they lead to the same law from every state.
    """
    begin = int(series.bounds[np.searchsorted(series.bounds, high) - 1])
    first = max(low, begin)
    if high - HALO > first:
        product = transfer(model, point, series, high - HALO, high)
        with np.errstate(invalid="ignore", divide="ignore"):
            ahead = product @ point.transition
            ahead /= ahead.sum(1, keepdims=True)
        if (np.ptp(ahead, axis=0) <= TOLERANCE * ahead.max(0)).all():  # relative: a small mass may be all that counts
            return np.asarray(product[0] / product[0].sum())
    begun = going_on(point, None if first == begin else distribution)
    return np.asarray(filter_states(model, begun, series.part(first, high), threads=threads)[-1])


def reach(model: Model, point: Parameters, distribution: Array, series: Series, high: int) -> int:
    """Where a halo from ``high`` on may end, if row high - 1 has the filtered law (K,)."""
    stop = int(series.bounds[np.searchsorted(series.bounds, high)])
    product, last, size = np.diag(distribution), high, HALO
    while last < stop:
        first, last, size = last, min(stop, last + size), min(8 * size, STRETCH)
        with np.errstate(invalid="ignore", divide="ignore"):
            product = product @ transfer(model, point, series, first, last)
            product /= product.max()
            given = product / product.sum(0)  # law of the state of row high - 1 (columns: given the state at the end)
        if (np.fmax.reduce(given, axis=1) - np.fmin.reduce(given, axis=1) <= TOLERANCE).all():
            break
    return last


def transfer(model: Model, point: Parameters, series: Series, first: int, last: int) -> Array:
    r"""The product over the rows [first, last) of :math:`P \operatorname{diag} p(y_t \mid x_t)`, (K, K), scaled."""
    logp = densities(model, prepared(model, point), series.read(first, last))
    steps = point.transition * np.exp(logp - logp.max(1, keepdims=True))[:, None]  # (n, K, K)
    while len(steps) > 1:
        even = len(steps) // 2 * 2
        with np.errstate(invalid="ignore", divide="ignore"):
            pairs = steps[:even:2] @ steps[1:even:2]
            pairs /= pairs.max((1, 2), keepdims=True)
        steps = np.concatenate([pairs, steps[even:]])
    return np.asarray(steps[0])


# ---------------------------------------------------------------- where they go
def collected(stretches: Stretches, shape: tuple[int, int]) -> Array:
    """All probabilities (T, K) in memory."""
    out = np.empty(shape)
    for low, high, probabilities in stretches:
        out[low:high] = probabilities
    return out


def check_out(out: Any) -> Path:
    """A name for probabilities that is not taken."""
    path = Path(out)
    if path.suffix not in (".npy", ".zarr"):
        raise ValueError(f"out is {str(out)!r}; the name of a file .npy or of a folder .zarr is needed.")
    if path.exists():
        raise ValueError(f"{path} is there already; choose another name for out, or remove it first.")
    return path


def written(stretches: Stretches, shape: tuple[int, int], path: Path) -> Any:
    """All probabilities (T, K) in a file .npy, returned as a memory map, or in a folder .zarr, as an array of Zarr:
    single precision, read-only, there as a whole or not at all."""
    if path.suffix == ".zarr":
        zarr = library("zarr")
        with whole_folder(path) as folder:
            chunks = min(shape[0], rows_of_stretch(shape[1])), shape[1]
            array = zarr.create_array(folder, shape=shape, chunks=chunks, dtype=STORED)
            for low, high, probabilities in stretches:
                array[low:high] = probabilities.astype(STORED)
        return zarr.open_array(path, mode="r")
    with written_npy(path, STORED, shape) as write:
        for _, _, probabilities in stretches:
            write(probabilities)
    return np.load(path, mmap_mode="r")
