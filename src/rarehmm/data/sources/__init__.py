"""Series longer than memory: tables that stay in files, chunks or tasks and are read one stretch of rows at a time.

A source has a ``shape`` (n, D), a ``dtype``, the ``names`` of its columns or None, a time ``index`` or None, rows by
``source[a:b]``, and ``where(row)``, which describes where a row is stored.  It can be read from several threads, and
pickles as a description without data.  A part that cannot be read raises ``ReadError`` with the place and the cause.

dask.array was tried in place of these classes: with a task graph for each stretch, reading 1000 rows takes 40 (Zarr) to
100 times (.npy) the CPU time, decoded chunks are not kept, and .npy files would need Dask.  cachetools would save a few
lines of ``table.Cache``, but keeps no value above its limit; here two units must be kept whatever their size.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rarehmm.data.sources.checks import check_numbers, check_shape, existing
from rarehmm.data.sources.combined import join, numbered
from rarehmm.data.sources.lazy import as_dask, of_dask, of_dataset, of_labelled
from rarehmm.data.sources.mapped import Mapped, open_npy
from rarehmm.data.sources.parquet import open_parquet
from rarehmm.data.sources.table import Source
from rarehmm.data.sources.zarr import of_zarr, open_zarr

LAZY = (".npy", ".parquet", ".pq", ".zarr")


def open_source(what: Any, columns: Sequence[str] = (), time: str | None = None, name: str = "y") -> Source:
    """Open a path, a list of paths in order of time, or an array outside memory as a source.

    Parameters
    ----------
    what : path, list of paths, or array
        A file (.npy, .parquet, .zarr), a folder of Parquet files, a memory map, or an array of Zarr, Dask or xarray.
    columns : sequence of str
        Names of the columns to read, by default the only numeric one.  Columns without names are called 0, 1, ...
    time : str, optional
        Name of the column that becomes the ``index``.
    name : str
        Name of the data in error messages.

    Returns
    -------
    Source
        The table, of which nothing but the description has been read.
    """
    if isinstance(what, list | tuple):
        return join([open_source(one, columns, time, name) for one in what])
    if isinstance(what, str | Path):
        return open_path(Path(what), list(columns), time)
    if isinstance(what, np.memmap):
        check_numbers(what.dtype, name)
        mapped = Mapped.of(what.reshape(check_shape(what.shape, name)))
        if mapped is None:
            raise ValueError(f"{name} is a memory map whose place in its file is unknown; pass it to Series directly.")
        return numbered(mapped, name, columns, time) if columns or time else mapped
    kind = package(what)
    if kind == "zarr":
        return of_zarr(what, str(what.store_path), columns, time)
    if kind == "xarray" and hasattr(what, "data_vars"):
        return of_dataset(what, name, columns, time)
    if kind == "xarray":
        _, index, names = of_labelled(what, name)
        source = of_dask(as_dask(what))
        source.index, source.names = index, names
        return source
    if kind == "dask":
        return of_dask(what)
    raise TypeError(
        f"{name} is a {type(what).__name__}; a path, a memory map, or an array of Zarr, Dask or xarray is needed."
    )


def package(y: Any) -> str:
    """Name of the library that an object comes from, found without importing it."""
    return type(y).__module__.partition(".")[0]


def is_path(y: Any) -> bool:
    """Whether this names a file that can be read in stretches, or a folder of Parquet files."""
    return isinstance(y, str | Path) and (Path(y).name.lower().endswith(LAZY) or any(Path(y).glob("*.parquet")))


def open_path(path: Path, columns: list[str], time: str | None) -> Source:
    existing(path)
    name = path.name.lower()
    if name.endswith(".npy"):
        return open_npy(path, columns, time)
    if name.endswith(".zarr"):
        return open_zarr(path, columns, time)
    if name.endswith((".parquet", ".pq")) or path.is_dir():
        return open_parquet(path, columns, time)
    raise ValueError(f"{path} is of a kind that must be read as a whole; {', '.join(LAZY)} can be read in stretches.")
