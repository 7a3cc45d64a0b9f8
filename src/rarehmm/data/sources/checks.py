"""Checks of files, columns, dtypes and shapes, with errors that say how to fix them."""

import difflib
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = "fiub"


def said(error: Exception) -> str:
    """First line of an error's message, or the name of its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def library(name: str) -> Any:
    """Import an optional dependency, or raise an error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is needed for this kind of data: pip install 'rarehmm[long]'") from error


def check_numbers(dtype: np.dtype[Any], who: str, kinds: str = NUMBERS) -> None:
    if dtype.kind not in kinds:
        raise TypeError(f"{who} has dtype {dtype}; numbers are needed.")


def check_shape(shape: tuple[int, ...], who: str) -> tuple[int, int]:
    """Number of rows and columns of an array of shape (T,) or (T, D)."""
    if len(shape) not in (1, 2):
        raise ValueError(f"{who} has shape {shape}; it must be (T,) or (T, D). Several sequences go in a list.")
    if 0 in shape:
        raise ValueError(f"{who} is empty (shape {shape}); at least one observation is needed.")
    return shape[0], shape[1] if len(shape) == 2 else 1


def existing(path: Path) -> None:
    """Raise if a path does not exist, and suggest the closest name that does."""
    if not path.exists():
        close = difflib.get_close_matches(path.name, [p.name for p in path.parent.glob("*")], 1)
        raise ValueError(f"{path} does not exist." + (f" Did you mean {path.parent / close[0]}?" if close else ""))


@contextmanager
def opening(path: object) -> Iterator[None]:
    """Turn whatever a library raises while opening a file into a one-line ``ValueError``."""
    try:
        yield
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read: {said(error)}. It may be cut off, or in another format than its name says."
        ) from None


def chosen(where: object, columns: Sequence[str], time: str | None, there: dict[str, bool]) -> list[str]:
    """Names of the columns to read; ``there`` maps each existing column to whether it is numeric."""
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
            f"{label}: {', '.join(lengths)} have lengths {', '.join(map(str, lengths.values()))}; they must be equal."
        )
