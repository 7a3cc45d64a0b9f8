"""Kernels: the only form of loop in the library, compiled, without the GIL, kept on disk."""

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
    """A compiled function that releases the GIL and is cached on disk: the only form of loop in the library."""
    dispatcher = numba.jit(**OPTIONS)(function)
    if JIT:
        try:
            dispatcher._cache = DigestCache(function)
        except RuntimeError:  # numba found no folder that it may write to
            warn_unwritable()
        KERNELS.append(dispatcher)
    return cast(Callable[..., Any], dispatcher)


@functools.cache
def warn_unwritable() -> None:
    logger.warning(
        "no folder for compiled kernels is writable: they are compiled in every process. "
        "Set NUMBA_CACHE_DIR to one that is."
    )


@contextlib.contextmanager
def explained(who: str) -> Iterator[None]:
    """Around a call of a kernel: what cannot be compiled is the family's doing, and is said in a few words."""
    try:
        yield
    except numba.core.errors.NumbaError as error:
        calls = [line.strip().removeprefix(">>> ") for line in str(error).splitlines() if ">>>" in line]
        reason = min(calls, key=len) if calls else str(error).splitlines()[0]
        raise TypeError(
            f"the functions of {who} cannot be compiled ({reason}). Inside them use arithmetic, powers, np.exp, "
            "np.log, np.sqrt, np.sin, np.cos, np.abs, np.where and np.maximum; rarehmm.engine.lanes.lanewise for the "
            "rest."
        ) from error


def cached_files() -> Iterator[pathlib.Path]:
    """All compiled kernels of this library on disk, of every version that was kept in the same folders."""
    folders = {pathlib.Path(k._cache.cache_path) for k in KERNELS if isinstance(k._cache, DigestCache)}
    for folder in sorted(folders):
        yield from sorted([*folder.glob("*.nbc"), *folder.glob("*.nbi"), *folder.glob("*.tmp")])
