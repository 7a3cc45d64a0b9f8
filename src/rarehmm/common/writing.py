"""Atomic writing: a file or folder appears under its name only once it is complete."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` on success and is removed on failure."""
    partial = partial_name(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to ``path``, which must not exist yet, and removed on failure."""
    partial = partial_name(path)
    try:
        yield partial
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def partial_name(path: Path) -> Path:
    """Return a temporary name next to ``path``, so that renaming stays on one file system."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; create it first.")
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


@contextmanager
def npy_writer(path: Path, dtype: Any, shape: tuple[int, ...]) -> Iterator[Callable[[Any], None]]:
    """Yield a function that appends rows to a .npy file of the given ``dtype`` and ``shape``.

    The file is not memory-mapped: mapped pages would count as memory, and a full disk would kill the process.
    """
    with atomic_file(path) as name, name.open("wb") as file:
        header: dict[str, Any] = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda rows: rows.astype(dtype, copy=False).tofile(file)
