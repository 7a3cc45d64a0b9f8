"""Files and folders that are written as a whole, or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
