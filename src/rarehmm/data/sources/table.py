"""Base classes of sources: a table that stays where it is stored, and one that is stored in chunks."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from rarehmm.data.sources.checks import said

Rows = npt.NDArray[Any]

CACHE = 64 << 20  # bytes of decoded units that a source keeps
FEWEST = 2  # units that it keeps however large they are
STRETCH = 1 << 18  # rows processed at a time


class ReadError(OSError):
    """Raised when part of a source cannot be read; names the place, the cause and the remedy."""


class Source(ABC):
    """Table (n, D) of numbers that is read from where it is stored."""

    ndim = 2
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    names: tuple[str, ...] | None = None
    index: Any = None  # a pandas index, or Times

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Rows:
        first, last, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows were requested with step {step}; a source reads contiguous rows, [a:b].")
        return self.read(first, last) if first < last else np.empty((0, self.shape[1]), self.dtype)

    @abstractmethod
    def read(self, first: int, last: int) -> Rows:
        """Read the rows [first, last), at least one."""

    @abstractmethod
    def where(self, row: int) -> str:
        """Describe where a row is stored, for error messages."""


class Cache:
    """Most recently used units, bounded in bytes; threads that need the same unit decode it once."""

    def __init__(self) -> None:
        self.units: dict[int, Future[Rows]] = {}  # the most recently used comes last
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
    """Source in units that are decoded as a whole; unit i holds the rows [edges[i], edges[i + 1])."""

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
        """Decode unit number ``unit``."""

    def read(self, first: int, last: int) -> Rows:
        low = int(np.searchsorted(self.edges, first, side="right")) - 1
        high = int(np.searchsorted(self.edges, last))
        units = [i for i in range(low, high) if self.edges[i] < self.edges[i + 1]]
        return joined([self.unit(i)[max(first - self.edges[i], 0) : last - self.edges[i]] for i in units])

    def unit(self, i: int) -> Rows:
        return self.cache.get(i, lambda i: self.checked(int(self.edges[i]), int(self.edges[i + 1]), self.load, i))

    def checked(self, first: int, last: int, load: Callable[..., Rows], *args: Any) -> Rows:
        """Load the rows [first, last); errors become a ``ReadError`` that names the place."""
        try:
            rows = load(*args)
        except ReadError:
            raise
        except Exception as error:  # libraries raise errors of any kind
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
