"""Sources from Dask and xarray, whose values are computed on request."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rarehmm.data.sources import table
from rarehmm.data.sources.checks import NUMBERS, check_lengths, check_numbers, check_shape, chosen, library
from rarehmm.data.sources.combined import Times
from rarehmm.data.sources.table import Rows, Source, Stored


class Dask(Stored):
    """Dask array (n,) or (n, D), computed chunk by chunk, or only the requested rows where chunks are very large."""

    remedy = "See what the task does, or compute and store the array first."

    def __init__(self, array: Any, label: str = "Dask array") -> None:
        if any(n != n for n in array.shape):
            raise ValueError(f"{label} has chunks of unknown length; call compute_chunk_sizes() on it first.")
        self.array = array
        super().__init__(label, array.chunks[0], check_shape(array.shape, label)[1], array.dtype)
        self.large = max(array.chunks[0]) * self.shape[1] * self.dtype.itemsize > table.CACHE

    def read(self, first: int, last: int) -> Rows:
        if self.large:
            return self.checked(first, last, self.computed, self.array[first:last])
        return super().read(first, last)

    def load(self, unit: int) -> Rows:
        return self.computed(self.array.blocks[unit])

    @staticmethod
    def computed(array: Any) -> Rows:
        rows = array.compute(scheduler="threads")
        if isinstance(rows, np.ma.MaskedArray):
            rows = np.ma.filled(rows.astype(float), np.nan)
        return np.asarray(rows).reshape(len(rows), -1)


def of_dask(array: Any, label: str = "Dask array") -> Source:
    if not hasattr(array, "blocks"):
        raise TypeError(
            f"{label} is a {type(array).__name__}; pass a Dask array, for a table its to_dask_array(lengths=True)."
        )
    check_numbers(array.dtype, label)
    return Dask(array, label)


def of_dataset(data: Any, label: str, columns: Sequence[str], time: str | None) -> Source:
    """Source of the chosen variables of an xarray Dataset."""
    there = {
        str(k): v.ndim == 1 and v.dtype.kind in NUMBERS and k not in data.coords for k, v in data.variables.items()
    }
    wanted = chosen(label, columns, time, there)
    along = time if time is not None else str(data[wanted[0]].dims[0])
    check_lengths(label, {name: len(data[name]) for name in [*wanted, *([time] if time is not None else [])]})
    arrays = [as_dask(data[name]) for name in wanted]
    source = of_dask(library("dask.array").stack(arrays, axis=1) if len(arrays) > 1 else arrays[0], label)
    source.names = tuple(wanted) if source.shape[1] == len(wanted) else None
    if along in data.indexes:
        source.index = data.indexes[along]
    elif along in data.variables:
        source.index = Times(Dask(as_dask(data[along]), label), along)
    return source


def of_labelled(array: Any, name: str) -> tuple[Any, Any, tuple[str, ...] | None]:
    """Values of an xarray DataArray (a Dask array unless in memory), its index, and the names of its columns."""
    check_shape(array.shape, name)
    labels = [array.indexes.get(axis) for axis in array.dims]
    names = tuple(map(str, labels[1])) if array.ndim == 2 and labels[1] is not None else None
    in_memory = array.chunks is None and np.shares_memory(array[:1].values, array[:1].values)  # not read from a file
    return array.values if in_memory else as_dask(array), labels[0], names


def as_dask(array: Any) -> Any:
    """Values of an xarray DataArray as a Dask array."""
    library("dask.array")
    return (array.chunk({array.dims[0]: table.STRETCH}) if array.chunks is None else array).data
