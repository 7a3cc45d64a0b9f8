"""Sources from Zarr arrays and groups."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rarehmm.data.sources.checks import NUMBERS, check_lengths, check_numbers, check_shape, chosen, library, opening
from rarehmm.data.sources.combined import Times, numbered
from rarehmm.data.sources.lazy import of_dataset
from rarehmm.data.sources.table import Rows, Source, Stored


class Zarr(Stored):
    """Zarr arrays (n,) or (n, D) side by side, read one chunk of the first array at a time.

    A missing chunk holds the fill value, as always in Zarr.
    """

    def __init__(self, arrays: Sequence[Any], label: str) -> None:
        self.arrays = tuple(map(settled, arrays))
        n, size = arrays[0].shape[0], arrays[0].chunks[0]
        lengths = np.diff(np.append(np.arange(0, n, size), n))
        dtype = np.result_type(*(a.dtype for a in arrays))
        super().__init__(label, lengths, sum(check_shape(a.shape, label)[1] for a in arrays), dtype)

    def load(self, unit: int) -> Rows:
        rows = slice(int(self.edges[unit]), int(self.edges[unit + 1]))
        parts = [np.asarray(array[rows]) for array in self.arrays]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


def settled(array: Any) -> Any:
    """Reopen a Zarr array read-only by the absolute path of its folder, so that other processes can open it."""
    return library("zarr").open_array(home(array.store), path=array.path, mode="r")


def home(store: Any) -> Any:
    """Folder of a store, or the store itself if it is not a local folder."""
    root = getattr(store, "root", None)
    return root.absolute() if isinstance(root, Path) else store


def open_zarr(path: Path, columns: list[str], time: str | None) -> Source:
    zarr = library("zarr")
    with opening(path):
        there = zarr.open(path.absolute(), mode="r")
    return of_zarr(there, str(path), columns, time)


def of_zarr(there: Any, label: str, columns: Sequence[str], time: str | None) -> Source:
    """Source of a Zarr array, or of named arrays in a group."""
    if hasattr(there, "chunks"):
        check_numbers(there.dtype, label)
        return numbered(Zarr([there], label), label, columns, time)
    with opening(label):
        arrays = dict(there.arrays())
    axes = {k: getattr(a.metadata, "dimension_names", None) or a.attrs.get("_ARRAY_DIMENSIONS", ()) for k, a in
            arrays.items()}  # fmt: skip
    good = {k: a.ndim == 1 and a.dtype.kind in NUMBERS and k not in axes[k] for k, a in arrays.items()}
    wanted = chosen(label, columns, time, good)
    times = [] if time is None else [time]
    for name in [*wanted, *times]:
        check_numbers(arrays[name].dtype, f"{label}: {name!r}", NUMBERS + "M" if name in times else NUMBERS)
    if any(axes[name] for name in wanted):  # written by xarray, which knows how it writes times, gaps and scales
        options = {"chunks": {}, "consolidated": False, "create_default_indexes": False}
        data = library("xarray").open_zarr(home(there.store), group=there.path or None, **options)
        return of_dataset(data, label, wanted, time)
    check_lengths(label, {name: arrays[name].shape[0] for name in [*wanted, *times]})
    source = Zarr([arrays[name] for name in wanted], label)
    source.names = tuple(wanted) if source.shape[1] == len(wanted) else None
    if time is not None:
        source.index = Times(Zarr([arrays[time]], label), time)
    return source
