"""Series longer than memory: tables of numbers that stay in files, chunks or tasks and are read a stretch at a time.

A source has a ``shape`` (n, D), a ``dtype``, ``names`` of its columns or None, an ``index`` of time or None, rows by
``source[a:b]``, and ``where(row)``, which says in words where a row is stored.  It is safe to read from threads, and
pickles as a description without data.  What cannot be read raises ``ReadError`` with the place and the cause.
"""

import bisect
import difflib
import importlib
import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]

CACHE = 64 << 20  # bytes of decoded units that a source keeps
FEWEST = 2  # units that it keeps however large they are
STRETCH = 1 << 18  # rows looked at together
LAZY = (".npy", ".parquet", ".pq", ".zarr")
NUMBERS = "fiub"


class ReadError(OSError):
    """A part of a source cannot be read: the place, the cause, and what to do."""


# ---------------------------------------------------------------- what all share
class Source(ABC):
    """A table (n, D) of numbers that is read where it is stored."""

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    names: tuple[str, ...] | None = None
    index: "Times | Any" = None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Rows:
        first, last, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows are asked for with step {step}; a source is read in one stretch, [a:b].")
        return self.read(first, last) if first < last else np.empty((0, self.shape[1]), self.dtype)

    @abstractmethod
    def read(self, first: int, last: int) -> Rows:
        """Rows [first, last), at least one."""

    @abstractmethod
    def where(self, row: int) -> str:
        """How an error names the place of a row."""


class Cache:
    """The last units that were decoded, bounded in bytes; threads that need the same unit decode it once."""

    def __init__(self) -> None:
        self.units: dict[int, Future[Rows]] = {}  # last used comes last
        self.lock = threading.Lock()

    def __reduce__(self) -> tuple[type["Cache"], tuple[()]]:
        return Cache, ()

    def get(self, key: int, decode: Callable[[int], Rows]) -> Rows:
        with self.lock:
            there = self.units.pop(key, None)
            unit = self.units[key] = there or Future()
        if there is None:
            try:
                unit.set_result(decode(key))
            except BaseException as error:  # also Ctrl-C: others wait for this unit
                with self.lock:
                    self.units.pop(key, None)
                unit.set_exception(error)
            self.trim()
        return unit.result()

    def trim(self) -> None:
        with self.lock:
            done = {key: unit.result().nbytes for key, unit in self.units.items() if unit.done()}
            size = sum(done.values())
            for key in list(done)[: max(0, len(done) - FEWEST)]:
                if size <= CACHE:
                    break
                size -= done[key]
                del self.units[key]


class Stored(Source):
    """A source in units that are decoded as a whole: unit i holds the rows [edges[i], edges[i + 1])."""

    word = "chunk"
    remedy = "It is damaged; write it again, or mark the stretch as missing (NaN)."

    def __init__(self, label: str, lengths: npt.ArrayLike, width: int, dtype: Any) -> None:
        self.label = label
        self.edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.shape = (int(self.edges[-1]), width)
        self.dtype = np.dtype(dtype)
        self.cache = Cache()

    @abstractmethod
    def load(self, unit: int) -> Rows:
        """Decode a unit."""

    def read(self, first: int, last: int) -> Rows:
        low = int(np.searchsorted(self.edges, first, side="right")) - 1
        high = int(np.searchsorted(self.edges, last))
        units = [i for i in range(low, high) if self.edges[i] < self.edges[i + 1]]
        return joined([self.unit(i)[max(first - self.edges[i], 0) : last - self.edges[i]] for i in units])

    def unit(self, i: int) -> Rows:
        return self.cache.get(i, lambda i: self.checked(int(self.edges[i]), int(self.edges[i + 1]), self.load, i))

    def checked(self, first: int, last: int, load: Callable[..., Rows], *args: Any) -> Rows:
        """What ``load`` gives for the rows [first, last); whatever it raises is told with the place."""
        try:
            rows = load(*args)
        except ReadError:
            raise
        except Exception as error:  # libraries raise what they like
            raise ReadError(f"{self.where(first)} cannot be read: {said(error)}. {self.remedy}") from error
        if rows.shape != (last - first, self.shape[1]):
            raise ReadError(
                f"{self.where(first)} has shape {rows.shape} and had {(last - first, self.shape[1])} when it was "
                "opened; open it again."
            )
        return rows

    def where(self, row: int) -> str:
        unit = int(np.searchsorted(self.edges, row, side="right")) - 1
        return f"{self.label}, {self.word} {unit}, row {row}"


def joined(pieces: list[Rows]) -> Rows:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def said(error: Exception) -> str:
    """The first line of an error, or its kind."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def library(name: str) -> Any:
    """A library that not everyone needs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is needed for this kind of data: pip install 'rarehmm[long]'") from error


def check_numbers(dtype: np.dtype[Any], who: str, kinds: str = NUMBERS) -> None:
    if dtype.kind not in kinds:
        raise TypeError(f"{who} has dtype {dtype}; numbers are needed.")


def check_shape(shape: tuple[int, ...], who: str) -> tuple[int, int]:
    """Rows and columns of a table, or of one column."""
    if len(shape) not in (1, 2):
        raise ValueError(f"{who} has shape {shape}; it must be (T,) or (T, D). Several sequences go in a list.")
    if 0 in shape:
        raise ValueError(f"{who} is empty (shape {shape}); at least one observation is needed.")
    return shape[0], shape[1] if len(shape) == 2 else 1


class Joined(Source):
    """Several sources, one after another, as one table."""

    def __init__(self, sources: Sequence[Source]) -> None:
        first = sources[0]
        for other in sources[1:]:
            if (other.shape[1], other.names) != (first.shape[1], first.names):
                has, had = (
                    f"{s.where(0)} has {', '.join(s.names or [f'{s.shape[1]} columns'])}" for s in (other, first)
                )
                raise ValueError(f"{has} and {had}; files of one sequence must have the same columns.")
        self.sources = tuple(sources)
        self.offsets = np.concatenate([[0], np.cumsum([len(s) for s in sources])]).astype(np.int64)
        self.shape = (int(self.offsets[-1]), first.shape[1])
        self.dtype = np.result_type(*(s.dtype for s in sources))
        self.names = first.names

    def read(self, first: int, last: int) -> Rows:
        low = int(np.searchsorted(self.offsets, first, side="right")) - 1
        high = int(np.searchsorted(self.offsets, last))
        parts = zip(self.sources[low:high], self.offsets[low:high].tolist(), strict=True)
        return joined([source[max(first - offset, 0) : last - offset] for source, offset in parts])

    def where(self, row: int) -> str:
        part = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return self.sources[part].where(row - int(self.offsets[part]))


class Picked(Source):
    """Some columns of a source."""

    def __init__(self, source: Source, columns: Sequence[int]) -> None:
        self.source, self.columns = source, list(columns)
        self.shape, self.dtype = (len(source), len(columns)), source.dtype

    def read(self, first: int, last: int) -> Rows:
        return self.source.read(first, last)[:, self.columns]

    def where(self, row: int) -> str:
        return self.source.where(row)


class Times:
    """The time of each row, read when it is asked for; ``times[a:b]`` and ``times[rows]`` are pandas indices."""

    nlevels = 1

    def __init__(self, source: Source, name: str, zone: str | None = None) -> None:
        self.source, self.name, self.zone, self.dtype = source, name, zone, source.dtype

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            return self._labels(self.source[rows])
        if np.ndim(rows) == 0:
            row = range(len(self))[rows]
            return self[row : row + 1][0]
        return self._labels(np.concatenate([self.source[row : row + 1] for row in np.asarray(rows).tolist()]))

    def _labels(self, values: Rows) -> Any:
        import pandas as pd

        labels: Any = pd.Index(values[:, 0], name=self.name)
        return labels.tz_localize("UTC").tz_convert(self.zone) if self.zone else labels

    def get_loc(self, label: Any) -> int:
        """The first row with a label."""
        row = bisect.bisect_left(self, label)
        if row == len(self) or self[row] != label:
            raise KeyError(label)
        return row

    def check_order(self) -> None:
        """Refuse a time that goes back, or is missing."""
        for first in range(0, len(self), STRETCH):
            start = max(first - 1, 0)
            values = self.source[start : first + STRETCH][:, 0]
            if (gone := values != values).any():
                where = self.source.where(start + int(np.argmax(gone)))
                raise ValueError(f"{where}: {self.name!r} is missing; every row needs a time.")
            if (back := values[1:] < values[:-1]).any():
                row = start + int(np.argmax(back)) + 1
                before, after = (f"{self[i]} ({self.source.where(i)})" for i in (row - 1, row))
                raise ValueError(
                    f"{self.name!r} goes back from {before} to {after}; sort files by time, and give them in its order."
                )


# ---------------------------------------------------------------- memory maps
class Mapped(Source):
    """A stretch of a file that is an array in memory layout.

    Rows are read rather than mapped: mapped pages would count as memory of the process, and a file that is cut off
    would end it.  Only a table column by column (Fortran order) is mapped.
    """

    def __init__(
        self, path: Path, dtype: Any, shape: tuple[int, int], offset: int, strides: tuple[int, ...], label: str
    ) -> None:
        self.path, self.dtype, self.shape, self.offset, self.strides = path, np.dtype(dtype), shape, offset, strides
        self.width = (shape[1] - 1) * strides[1] + self.dtype.itemsize  # bytes from the begin of a row to its end
        self.end = offset + (shape[0] - 1) * strides[0] + self.width  # bytes of the file that are needed
        self.label = label

    @classmethod
    def of(cls, array: Rows, label: str = "") -> "Mapped | None":
        """The place of a memory map (n, D), or of a view of one, in its file.

        None where it cannot be told: the file has no name, rows run backwards, or what was written to memory is not in
        the file (mode "c").
        """
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not (isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap) and root.filename):
            return None
        if root.mode == "c" or min(array.strides) < 0:
            return None
        path = Path(root.filename).absolute()
        offset = root.offset + array.ctypes.data - root.ctypes.data
        return cls(path, array.dtype, check_shape(array.shape, path.name), offset, array.strides, label or path.name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "table"}

    @cached_property
    def table(self) -> Rows:
        return np.ndarray(self.shape, self.dtype, np.memmap(self.path, np.uint8, "r"), self.offset, self.strides)

    def read(self, first: int, last: int) -> Rows:
        if self.shape[1] > 1 and self.strides[1] > self.strides[0]:
            check_size(self.path, self.end, self.where(first))
            return self.table[first:last]
        begin, size = self.offset + first * self.strides[0], (last - first - 1) * self.strides[0] + self.width
        try:
            found = np.fromfile(self.path, np.uint8, size, offset=begin)
        except OSError as error:
            check_size(self.path, self.end, self.where(first))
            raise ReadError(f"{self.where(first)} cannot be read: {said(error)}.") from error
        if len(found) < size:
            check_size(self.path, self.end, self.where(first))
        return np.ndarray((last - first, self.shape[1]), self.dtype, found, 0, self.strides)

    def where(self, row: int) -> str:
        return f"{self.label}, row {row} (byte {self.offset + row * self.strides[0]})"


def check_size(path: Path, size: int, where: str) -> None:
    """Refuse a file that was cut off since it was opened."""
    now = path.stat().st_size if path.exists() else 0
    if now < size:
        raise ReadError(f"{where} cannot be read: the file had {size} bytes and has {now} now. Write it again.")


# ---------------------------------------------------------------- Parquet
class Parquet(Stored):
    """Columns of a Parquet file, a row group at a time; a null is NaN.

    Checksums of pages are compared where the file has them; without, damage that still decodes goes unnoticed.
    """

    word = "row group"

    def __init__(self, path: Path, label: str, columns: Sequence[str], lengths: Sequence[int], dtype: Any) -> None:
        super().__init__(label, lengths, len(columns), dtype)
        self.path, self.names, self.size = path, tuple(columns), path.stat().st_size

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "metadata"}

    @cached_property
    def metadata(self) -> Any:
        return library("pyarrow.parquet").read_metadata(self.path)

    def load(self, unit: int) -> Rows:
        check_size(self.path, self.size, self.where(int(self.edges[unit])))
        with library("pyarrow.parquet").ParquetFile(
            self.path, metadata=self.metadata, memory_map=True, page_checksum_verification=True
        ) as file:
            table = file.read_row_group(unit, columns=list(self.names or ()), use_threads=False)
        rows = np.empty((len(table), self.shape[1]), self.dtype)
        for i, name in enumerate(self.names or ()):
            column = table[name]
            if column.null_count and self.dtype.kind in "iu":
                raise ValueError(f"{name!r} is missing in {column.null_count} rows")
            rows[:, i] = (column.cast("float64", safe=False) if self.dtype.kind == "f" else column).to_numpy()
        return rows


def open_parquet(path: Path, columns: list[str], time: str | None) -> Source:
    """A Parquet file, or a folder of them in the order of their names."""
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise ValueError(f"{path} is a folder without Parquet files.")
        return join([open_parquet(file, columns, time) for file in files])
    pa, pq = library("pyarrow"), library("pyarrow.parquet")
    with opening(path):
        metadata = pq.read_metadata(path)
        kinds = {field.name: field.type for field in metadata.schema.to_arrow_schema()}
    lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if sum(lengths) == 0:
        raise ValueError(f"{path} has no rows.")
    t = pa.types
    numeric = {
        name: t.is_integer(k) or t.is_floating(k) or t.is_boolean(k) or t.is_decimal(k) for name, k in kinds.items()
    }
    wanted = chosen(path, columns, time, numeric)
    for name in wanted:
        if not numeric[name]:
            raise ValueError(f"{path}: {name!r} is {kinds[name]}, not numbers; choose another column, or convert it.")
    single = all(t.is_float32(kinds[name]) for name in wanted)
    source = Parquet(path.absolute(), str(path), wanted, lengths, np.float32 if single else np.float64)
    if time is not None:
        kind = kinds[time]
        if not (numeric[time] or t.is_timestamp(kind) or t.is_date(kind)):
            raise ValueError(f"{path}: {time!r} is {kind}, which is no time; store it as a timestamp, or as numbers.")
        dtype = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
        labels = Parquet(path.absolute(), str(path), [time], lengths, dtype if dtype.kind in "Miu" else np.float64)
        source.index = Times(labels, time, getattr(kind, "tz", None))
    return source


# ---------------------------------------------------------------- Zarr
class Zarr(Stored):
    """Zarr arrays (n,) or (n, D) side by side, a chunk of the first at a time; a chunk that is not there is the fill
    value, as always in Zarr."""

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
    """A Zarr array, read-only, with the absolute path of its folder, so that it can be opened anywhere."""
    return library("zarr").open_array(home(array.store), path=array.path, mode="r")


def home(store: Any) -> Any:
    """The folder of a store, or the store if it is somewhere else."""
    root = getattr(store, "root", None)
    return root.absolute() if isinstance(root, Path) else store


def open_zarr(path: Path, columns: list[str], time: str | None) -> Source:
    zarr = library("zarr")
    with opening(path):
        there = zarr.open(path.absolute(), mode="r")
    return of_zarr(there, str(path), columns, time)


def of_zarr(there: Any, label: str, columns: Sequence[str], time: str | None) -> Source:
    """A Zarr array, or arrays of a group by their names."""
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


# ---------------------------------------------------------------- Dask and xarray
class Dask(Stored):
    """A Dask array (n,) or (n, D), a chunk of rows at a time, or, of very large chunks, the rows that are asked for."""

    remedy = "See what the task does, or compute and store the array first."

    def __init__(self, array: Any, label: str = "Dask array") -> None:
        if any(n != n for n in array.shape):
            raise ValueError(f"{label} has chunks of unknown length; call compute_chunk_sizes() on it first.")
        self.array = array
        super().__init__(label, array.chunks[0], check_shape(array.shape, label)[1], array.dtype)
        self.large = max(array.chunks[0]) * self.shape[1] * self.dtype.itemsize > CACHE

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
            f"{label} is a {type(array).__name__}; pass an array, of a table with to_dask_array(lengths=True)."
        )
    check_numbers(array.dtype, label)
    return Dask(array, label)


def of_dataset(data: Any, label: str, columns: Sequence[str], time: str | None) -> Source:
    """Variables of an xarray Dataset."""
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
    """The values of an xarray DataArray (in memory, or else a Dask array), its index, and the names of its columns."""
    check_shape(array.shape, name)
    labels = [array.indexes.get(axis) for axis in array.dims]
    names = tuple(map(str, labels[1])) if array.ndim == 2 and labels[1] is not None else None
    in_memory = array.chunks is None and np.shares_memory(array[:1].values, array[:1].values)  # not read from a file
    return array.values if in_memory else as_dask(array), labels[0], names


def as_dask(array: Any) -> Any:
    """The values of an xarray DataArray as a Dask array."""
    library("dask.array")
    return (array.chunk({array.dims[0]: STRETCH}) if array.chunks is None else array).data


# ---------------------------------------------------------------- the door
def open_source(what: Any, columns: Sequence[str] = (), time: str | None = None, name: str = "y") -> Source:
    """The source for a path (.npy, .parquet, .zarr), a list of paths in order of time, or an array out of memory.

    ``columns``: the names of those to read, by default the only one of numbers; of files without names they are called
    0, 1, ...  ``time``: the column that is the ``index``.
    """
    if isinstance(what, list | tuple):
        return join([open_source(one, columns, time, name) for one in what])
    if isinstance(what, str | Path):
        return open_path(Path(what), list(columns), time)
    if isinstance(what, np.memmap):
        check_numbers(what.dtype, name)
        mapped = Mapped.of(what.reshape(check_shape(what.shape, name)))
        if mapped is None:
            raise ValueError(f"{name} is a memory map whose place in a file is not known; pass it to Series as it is.")
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
    """The library that an object comes from, without importing it."""
    return type(y).__module__.partition(".")[0]


def is_path(y: Any) -> bool:
    """Whether this names a file that can stay where it is, or a folder of Parquet files."""
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
    raise ValueError(f"{path} is of a kind that must be read as a whole; {', '.join(LAZY)} can stay where they are.")


def open_npy(path: Path, columns: list[str], time: str | None) -> Source:
    with opening(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    check_numbers(array.dtype, str(path))
    source = Mapped.of(array.reshape(check_shape(array.shape, str(path))), str(path))
    assert source is not None
    return numbered(source, str(path), columns, time)


def numbered(source: Source, label: str, columns: Sequence[str], time: str | None) -> Source:
    """Columns of a table without names, which are called 0, 1, ..."""
    wanted = chosen(label, columns, time, {str(i): True for i in range(source.shape[1])})
    picked = Picked(source, [int(name) for name in wanted])
    if time is not None:
        picked.index = Times(Picked(source, [int(time)]), time)
    return picked


def join(sources: Sequence[Source]) -> Source:
    """Sources in order of time as one, with one index."""
    if len(sources) == 1:
        return sources[0]
    whole = Joined(sources)
    times = [s.index for s in sources]
    if all(isinstance(t, Times) for t in times):
        for t in times:
            if t.dtype.kind != times[0].dtype.kind:
                here, first = t.source.where(0), times[0].source.where(0)
                raise ValueError(f"{t.name!r} is {t.dtype} in {here} and {times[0].dtype} in {first}; one is needed.")
        whole.index = Times(Joined([t.source for t in times]), times[0].name, times[0].zone)
    return whole


# ---------------------------------------------------------------- files and columns
def existing(path: Path) -> None:
    """Refuse a path that is not there, with the nearest one that is."""
    if not path.exists():
        close = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], 1)
        raise ValueError(f"{path} is not there." + (f" Did you mean {path.parent / close[0]}?" if close else ""))


@contextmanager
def opening(path: object) -> Iterator[None]:
    """Whatever a library raises while it opens a file is told in one line."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read: {said(error)}. It may be cut off, or not be what its name says."
        ) from None


def chosen(where: object, columns: Sequence[str], time: str | None, there: dict[str, bool]) -> list[str]:
    """The columns to read; ``there``: all of them, and whether they hold numbers."""
    names = ", ".join(there)
    for name in [*columns, *([time] if time is not None else [])]:
        if name not in there:
            close = difflib.get_close_matches(name, there, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{where} has no column {name!r}; it has {names}.{hint}")
    if columns:
        return list(columns)
    numeric = [name for name, good in there.items() if good and name != time]
    if len(numeric) != 1:
        raise ValueError(
            f"{where} has {len(numeric)} columns of numbers; say which with --column: {names}. In Python: "
            "open_source(path, columns)."
        )
    return numeric


def check_lengths(label: str, lengths: dict[str, int]) -> None:
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"{label}: {', '.join(lengths)} have lengths {', '.join(map(str, lengths.values()))}; one is needed."
        )
