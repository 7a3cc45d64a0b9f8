"""Files that are written as a whole, or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to, which takes the place of ``path`` when all is written; else nothing is left of it."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a folder; make it first.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
