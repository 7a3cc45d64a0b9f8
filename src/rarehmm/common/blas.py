"""Matrix products without threads of their own, inside passes that share their rows between threads already."""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Limit:
    """The limit that is in force, and how many need it."""

    lock = threading.Lock()
    users = 0
    held: Any = None


@functools.cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController  # here, since it looks through all loaded libraries

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let matrix products run in the thread that asks for them; blocks may overlap in several threads."""
    with _Limit.lock:
        if _Limit.users == 0:
            _Limit.held = _controller().limit(limits=1, user_api="blas")
        _Limit.users += 1
    try:
        yield
    finally:
        with _Limit.lock:
            _Limit.users -= 1
            if _Limit.users == 0:
                _Limit.held.restore_original_limits()
