"""Argument checks shared by all packages: each error names the argument, its value and what it must be."""

import os
import re
import warnings
from typing import Any

import numpy as np


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """Return ``value`` as an int, or raise ValueError unless it is a whole number of at least ``least``."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is {value!r}; it must be a whole number, {least} or more.")
    return int(value)


def check_threads(threads: Any) -> None:
    """Raise ValueError unless ``threads`` is a positive number of threads, or None for all cores."""
    if threads is not None:
        try:
            check_whole("threads", threads)
        except ValueError as error:
            raise ValueError(f"{str(error).removesuffix('.')}, or None for all cores.") from None


def threads_of(n_jobs: int | None) -> int | None:
    """Return a number of threads, None for all cores, from ``n_jobs``, which is None or -1 for these."""
    return None if n_jobs == -1 else n_jobs


def check_bytes(name: str, value: Any) -> int:
    """Return an amount of memory in bytes, given as an int or as text such as "512MB"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([kMGT]?)i?B?", value) if isinstance(value, str) else None
    if match:
        return int(float(match[1]) * 1000 ** " kMGT".index(match[2] or " "))
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f'{name} is {value!r}; it must be a number of bytes, or text such as "512MB" or "2GB".')
    return int(value)


def check_generator(rng: Any) -> None:
    """Raise TypeError unless ``rng`` is a NumPy random generator."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng is {rng!r}; pass a generator, such as np.random.default_rng(0).")


def check_memory(what: str, size: int, way_out: str) -> None:
    """Raise MemoryError if an array of ``size`` bytes would fill more than half of the machine's memory.

    Where the operating system does not report its memory, 8 GiB are assumed.
    """
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 8 << 30
    if size > installed / 2:
        raise MemoryError(
            f"{what} would need {size / 2**30:.3g} GiB of the machine's {installed / 2**30:.3g} GiB; {way_out}"
        )


class InterruptedWarning(RuntimeWarning):
    """Warning that sampling was interrupted with Ctrl-C and only the draws made so far were returned."""


def warn_interrupted(done: int, wanted: int) -> None:
    """Warn that only ``done`` of ``wanted`` draws are returned; without any, raise KeyboardInterrupt again."""
    if done == 0:
        raise KeyboardInterrupt
    warnings.warn(f"interrupted: {done} of {wanted} draws are returned.", InterruptedWarning, stacklevel=3)
