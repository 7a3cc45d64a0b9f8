"""Sources from memory maps and .npy files."""

import mmap
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rarehmm.data.sources.checks import check_numbers, check_shape, opening, said
from rarehmm.data.sources.combined import numbered
from rarehmm.data.sources.table import ReadError, Rows, Source


class Mapped(Source):
    """Array stored in a file in its memory layout.

    Rows are read rather than mapped: mapped pages would count towards the memory of the process, and truncating the
    file would crash it.  Only a table stored column by column (Fortran order) is mapped.
    """

    def __init__(
        self, path: Path, dtype: Any, shape: tuple[int, int], offset: int, strides: tuple[int, ...], label: str
    ) -> None:
        self.path, self.dtype, self.shape, self.offset, self.strides = path, np.dtype(dtype), shape, offset, strides
        self.width = (shape[1] - 1) * strides[1] + self.dtype.itemsize  # bytes from the start of a row to its end
        self.end = offset + (shape[0] - 1) * strides[0] + self.width  # bytes that the file must have
        self.label = label

    @classmethod
    def of(cls, array: Rows, label: str = "") -> "Mapped | None":
        """Source for a memory map (n, D), or a view of one, or None where its place in the file is unknown.

        It is unknown if the file has no name, if rows run backwards, or if changes are kept in memory only (mode "c").
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
    """Raise if a file has been cut off since it was opened."""
    now = path.stat().st_size if path.exists() else 0
    if now < size:
        raise ReadError(f"{where} cannot be read: the file had {size} bytes and has {now} now. Write it again.")


def open_npy(path: Path, columns: list[str], time: str | None) -> Source:
    with opening(path):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    check_numbers(array.dtype, str(path))
    source = Mapped.of(array.reshape(check_shape(array.shape, str(path))), str(path))
    assert source is not None
    return numbered(source, str(path), columns, time)
