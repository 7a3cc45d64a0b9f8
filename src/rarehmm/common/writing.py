"""Files and folders that are written as a whole, or not at all."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to, which takes the place of ``path`` when all is written; else nothing is left of it."""
    partial = partial_name(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """The same for a folder, which must not be there yet."""
    partial = partial_name(path)
    try:
        yield partial
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def partial_name(path: Path) -> Path:
    """Where something is written that will be called ``path``: beside it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; make it first.")
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


@contextmanager
def written_npy(path: Path, dtype: Any, shape: tuple[int, ...]) -> Iterator[Callable[[Any], None]]:
    """A function that writes the next rows of an array to a .npy file, which is there when all are written.

    Not mapped: mapped pages would count as memory, and a full disk would be the end of the process.
    """
    with whole_file(path) as name, name.open("wb") as file:
        header: dict[str, Any] = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda rows: rows.astype(dtype, copy=False).tofile(file)
