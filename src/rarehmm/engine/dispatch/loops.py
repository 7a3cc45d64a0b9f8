"""Kernels: the library's compiled loops, which release the GIL and are cached on disk."""

import contextlib
import functools
import logging
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import numba

from rarehmm.engine.dispatch.disk import DigestCache
from rarehmm.engine.dispatch.parts import JIT, OPTIONS

KERNELS: list[Any] = []

logger = logging.getLogger(__name__)


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a compiled function that releases the GIL and is cached on disk."""
    dispatcher = numba.jit(**OPTIONS)(function)
    if JIT:
        try:
            dispatcher._cache = DigestCache(function)
        except RuntimeError:  # numba found no writable folder
            warn_unwritable()
        KERNELS.append(dispatcher)
    return cast(Callable[..., Any], dispatcher)


@functools.cache
def warn_unwritable() -> None:
    logger.warning(
        "no writable folder for compiled kernels: they are compiled again in every process. "
        "Set NUMBA_CACHE_DIR to a writable folder."
    )


@contextlib.contextmanager
def explained(who: str) -> Iterator[None]:
    """Context for calling a kernel: turns numba's compile errors into a short ``TypeError`` that names the family."""
    try:
        yield
    except numba.core.errors.NumbaError as error:
        calls = [line.strip().removeprefix(">>> ") for line in str(error).splitlines() if ">>>" in line]
        reason = min(calls, key=len) if calls else str(error).splitlines()[0]
        raise TypeError(
            f"the functions of {who} cannot be compiled ({reason}). Inside them use arithmetic, powers, np.exp, "
            "np.log, np.sqrt, np.sin, np.cos, np.abs, np.where and np.maximum, and wrap any other scalar function in "
            "rarehmm.engine.lanes.lanewise."
        ) from error


def cached_files() -> Iterator[pathlib.Path]:
    """Paths of this library's compiled kernels on disk, including those of other versions in the same folders."""
    folders = {pathlib.Path(k._cache.cache_path) for k in KERNELS if isinstance(k._cache, DigestCache)}
    for folder in sorted(folders):
        yield from sorted([*folder.glob("*.nbc"), *folder.glob("*.nbi"), *folder.glob("*.tmp")])
