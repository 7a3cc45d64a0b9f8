"""Small doors that many rooms share: each refuses a value with its name, what it is and what it must be."""

import os
import re
import warnings
from typing import Any

import numpy as np


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number, at least ``least``."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from {least}.")
    return int(value)


def check_threads(threads: Any) -> None:
    """A number of threads, or None for all cores."""
    if threads is not None:
        try:
            check_whole("threads", threads)
        except ValueError as error:
            raise ValueError(f"{str(error).removesuffix('.')}, or None for all cores.") from None


def check_bytes(name: str, value: Any) -> int:
    """An amount of memory: a number of bytes, or such as "512MB"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *([kMGT]?)i?B?", value) if isinstance(value, str) else None
    if found:
        return int(float(found[1]) * 1000 ** " kMGT".index(found[2] or " "))
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f'{name} is {value!r}; it must be a number of bytes, or such as "512MB" or "2GB".')
    return int(value)


def check_generator(rng: Any) -> None:
    """NumPy's generator of random numbers."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng is {rng!r}; pass a generator, such as np.random.default_rng(0).")


def check_memory(what: str, size: int, way_out: str) -> None:
    """Refuse to make an array of ``size`` bytes that would fill more than half of the memory of the machine (of 8 GiB,
    where it cannot be told)."""
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 8 << 30
    if size > here / 2:
        raise MemoryError(f"{what} would take {size / 2**30:.3g} GiB, of {here / 2**30:.3g} in all; {way_out}")


class InterruptedWarning(RuntimeWarning):
    """Ctrl-C was pressed, and what there is is returned."""


def warn_interrupted(done: int, wanted: int) -> None:
    """Work was interrupted (Ctrl-C) and what there is is returned; with nothing done, the interrupt goes on."""
    if done == 0:
        raise KeyboardInterrupt
    warnings.warn(f"interrupted: {done} of {wanted} draws are returned.", InterruptedWarning, stacklevel=3)
