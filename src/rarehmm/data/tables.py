"""Coerce arrays, data frames, labelled arrays and file names to numeric tables (n, D), copying only if necessary."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rarehmm.data.sources import LAZY, is_path, open_source, package
from rarehmm.data.sources.checks import check_shape
from rarehmm.data.sources.lazy import of_labelled
from rarehmm.data.sources.mapped import Mapped
from rarehmm.data.sources.table import Source


class Table(NamedTuple):
    """One sequence as a table, with its index and its column names."""

    values: npt.NDArray[Any] | Source  # (n, D), any real number type, not copied
    index: Any
    names: tuple[str, ...] | None


def sequences(y: Any) -> list[Any] | None:
    """Return the parts of a list of sequences; None for anything else, such as a list of numbers or a table."""
    if not isinstance(y, list | tuple) or not y:
        return None
    if any(hasattr(part, "shape") and np.ndim(part) > 0 for part in y):
        return [part if hasattr(part, "shape") else np.asarray(part) for part in y]
    nested = [isinstance(part, list | tuple) for part in y]
    if all(nested) and len({len(part) for part in y}) > 1:
        return [np.asarray(part) for part in y]
    return None


def table(y: Any, name: str) -> Table:
    """Coerce one array to a ``Table`` after checking its dtype and shape, without copying where possible."""
    index, names = None, None
    if package(y) == "xarray" and not hasattr(y, "data_vars"):
        y, index, names = of_labelled(y, name)
    if (source := source_of(y, name)) is not None:
        return Table(source, source.index if index is None else index, names or source.names)
    if hasattr(y, "iloc") and hasattr(y, "to_numpy"):  # pandas, without importing it
        index = y.index
        names = tuple(map(str, y.columns)) if hasattr(y, "columns") else None
        y = pandas_values(y, name)
    elif hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, str | Path):
        types = ", ".join(LAZY)
        raise TypeError(
            f"{name} is the path {str(y)!r}; {types} files can be passed as paths, read others with pandas."
        )
    if isinstance(y, bytes | dict | set) or y is None:
        raise TypeError(f"{name} is a {type(y).__name__}; pass an array of numbers (T,) or (T, D).")
    if isinstance(y, np.ma.MaskedArray):
        y = np.ma.filled(y.astype(float), np.nan)
    try:
        values = np.asarray(y)
    except ValueError as error:
        raise ValueError(
            f"{name} cannot be read as an array: {error}. For several sequences pass a list of arrays."
        ) from None
    check_kind(values, name)
    return Table(values.reshape(check_shape(values.shape, name)), index, names)


def source_of(y: Any, name: str) -> Source | None:
    """Return a lazy source for data out of memory; None for data in memory, or a memory map without a known file."""
    if isinstance(y, Source):
        return y
    if isinstance(y, np.memmap):
        check_kind(y, name)
        return Mapped.of(y.reshape(check_shape(y.shape, name)))
    paths = isinstance(y, list | tuple) and len(y) > 0 and all(map(is_path, y))
    if paths or is_path(y) or package(y) in ("dask", "xarray", "zarr"):
        return open_source(y, name=name)
    return None


def pandas_values(y: Any, name: str) -> npt.NDArray[Any]:
    """Return the values of a pandas Series or DataFrame as one array; nullable dtypes become float64 with NaN."""
    kinds = list(y.dtypes.items()) if hasattr(y, "columns") else [(None, y.dtype)]
    for column, kind in kinds:
        if getattr(kind, "kind", "O") not in "fiub":
            where = name if column is None else f"{name}[{column!r}]"
            raise TypeError(f"{where} has dtype {kind}; it must be numeric. Select columns, or use pd.to_numeric.")
    if all(isinstance(kind, np.dtype) for _, kind in kinds):
        return np.asarray(y.to_numpy())
    return np.asarray(y.to_numpy(dtype=np.float64, na_value=np.nan))


def check_kind(values: npt.NDArray[Any], name: str) -> None:
    kind = values.dtype.kind
    if kind in "fiub":
        return
    if kind == "c":
        raise TypeError(
            f"{name} is complex ({values.dtype}); pass real numbers, such as np.abs({name}) or two columns."
        )
    example = next((v for v in values.flat if not isinstance(v, int | float)), None)
    raise TypeError(
        f"{name} has dtype {values.dtype}: entries such as {example!r} are not numbers. "
        "Convert with astype(float); None becomes NaN, which marks a gap."
    )
