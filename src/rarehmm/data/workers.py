"""Parallel work on stretches of a series: in threads of this process, or on the workers of an executor.

The executor is a Dask client, or anything with ``submit``.  Work goes to the rows, and only its results come back: Dask
arrays are sliced within their graph, so that the scheduler runs a task where its chunk is and moves no more than halos;
files are read by the worker that needs them; rows in memory are sent.  A task lost with its worker is run again on
another one.  Results, and their order, do not depend on where the work is done.
"""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rarehmm.data.sources.lazy import Dask
from rarehmm.data.sources.table import Source

SPAN = 1 << 22  # approximate number of rows per task

OnPassProgress = Callable[[int, int], None]
Read = Callable[[int, int], Any]


def ignore_progress(done: int, total: int) -> None:
    """Ignore progress."""


class Item(NamedTuple):
    """A unit of work: rows [first, last), and further arguments."""

    first: int
    last: int
    given: tuple[Any, ...]


def as_rows(pieces: list[Any]) -> npt.NDArray[np.float64]:
    """Concatenate stretches into a float64 array (n, D) that kernels accept; a view if no conversion is needed."""
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return np.require(joined, np.float64, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])


def read_parts(parts: Sequence[Any], offsets: Any, first: int, last: int) -> npt.NDArray[np.float64]:
    """Read rows [first, last) of a table in parts, of which part i begins at row ``offsets[i]``."""
    i, j = int(np.searchsorted(offsets, first, side="right")) - 1, int(np.searchsorted(offsets, last))
    starts = offsets[i:j].tolist()
    return as_rows([part[max(first - at, 0) : last - at] for part, at in zip(parts[i:j], starts, strict=True)])


# ---------------------------------------------------------------- threads
class _Thread(threading.local):
    """Thread-local flag: whether the current thread is working on an item."""

    busy = False


_thread = _Thread()


def in_threads(
    read: Read,
    work: Callable[..., Any],
    items: Sequence[Item],
    threads: int | None = None,
    on_progress: OnPassProgress = ignore_progress,
) -> list[Any]:
    """Return ``work(read(first, last), *given)`` for each item, in order, computed in threads.

    A nested call runs in the calling thread alone: the threads of the pool may all be waiting for it.
    """
    results: list[Any] = [None] * len(items)
    waiting, done = iter(range(len(items))), iter(range(1, len(items) + 1))  # shared: each thread takes the next

    def drain() -> None:
        _thread.busy, before = True, _thread.busy
        try:
            for i in waiting:
                results[i] = work(read(items[i].first, items[i].last), *items[i].given)
                on_progress(next(done), len(items))
        finally:
            _thread.busy = before

    helpers = 0 if _thread.busy else min(threads or available_threads(), len(items)) - 1
    futures = [pool(helpers, os.getpid()).submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        wait(futures)
    for future in futures:
        future.result()
    return results


@functools.cache
def pool(workers: int, _process: int) -> ThreadPoolExecutor:
    """Return a persistent thread pool: starting threads anew would cost a tenth of a pass.  A fork needs its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="rarehmm")


def available_threads() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---------------------------------------------------------------- other processes and machines
class Piece(NamedTuple):
    """Rows [low, high) of a table, as an array or a source whose first row is row ``origin`` of the table."""

    low: int
    high: int
    origin: int
    rows: Any


class Parts(NamedTuple):
    """A table in parts, of which part i begins at row ``offsets[i]``; its number of rows is the last offset."""

    parts: Sequence[Any]
    offsets: Any


def on_workers(
    executor: Any,
    parts: Sequence[Any],
    offsets: Any,
    work: Callable[..., Any],
    items: Sequence[Item],
    on_progress: OnPassProgress,
) -> list[Any]:
    """Return ``work(rows, *given)`` for each item, in order, computed by the workers of an executor."""
    return tables_on_workers(executor, [Parts(parts, offsets)], only, work, items, on_progress)


def only(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the rows of a single table."""
    return rows


def tables_on_workers(
    executor: Any,
    tables: Sequence[Parts],
    combine: Callable[..., Any],
    work: Callable[..., Any],
    items: Sequence[Item],
    on_progress: OnPassProgress,
) -> list[Any]:
    """Return ``work(combine(*rows), *given)`` for each item, where ``rows`` are those of each of several tables."""
    futures = []
    for span in group_into_spans(items):
        first, last = min(i.first for i in span), max(i.last for i in span)
        pieces = [pieces_of(*table, first, last, is_dask(executor)) for table in tables]
        where = [[(p.low, p.high, p.origin) for p in table] for table in pieces]
        task = functools.partial(work_on_span, where, combine, work, span)
        futures.append(submit(executor, task, *(p.rows for table in pieces for p in table)))
    results: list[Any] = []
    try:
        for future in futures:
            results += future.result()
            on_progress(len(results), len(items))
    except BaseException:  # including Ctrl-C: the remaining tasks are no longer needed
        for future in futures:
            future.cancel()
        raise
    return results


def group_into_spans(items: Sequence[Item]) -> list[list[Item]]:
    """Group consecutive items so that each group covers about SPAN rows."""
    spans: list[list[Item]] = []
    for item in items:
        if not spans or item.last - spans[-1][0].first > SPAN:
            spans.append([])
        spans[-1].append(item)
    return spans


def pieces_of(parts: Sequence[Any], offsets: Any, first: int, last: int, dask: bool) -> list[Piece]:
    """Return the pieces that a worker needs in order to read rows [first, last)."""
    out = []
    for part, low, high in zip(parts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        a, b = max(first, low), min(last, high)
        if a >= b:
            continue
        if dask and isinstance(part, Dask):
            out.append(Piece(a, b, a, part.array[a - low : b - low].reshape(b - a, -1)))
        elif isinstance(part, Source):
            out.append(Piece(a, b, low, part))
        else:
            out.append(Piece(a, b, a, part[a - low : b - low]))
    return out


def work_on_span(
    where: list[list[tuple[int, int, int]]],
    combine: Callable[..., Any],
    work: Callable[..., Any],
    span: list[Item],
    *rows: Any,
) -> list[Any]:
    """Run ``work`` on the items of a span; this function runs on the worker."""
    left = iter(rows)
    tables = [[Piece(*place, next(left)) for place in table] for table in where]

    def read(pieces: list[Piece], first: int, last: int) -> npt.NDArray[np.float64]:
        touched = [p for p in pieces if p.low < last and p.high > first]
        return as_rows([p.rows[max(first, p.low) - p.origin : min(last, p.high) - p.origin] for p in touched])

    def read_all(first: int, last: int) -> Any:
        return combine(*(read(pieces, first, last) for pieces in tables))

    return in_threads(read_all, work, span, 1)


def submit(executor: Any, task: Callable[..., Any], *args: Any) -> "Future[Any]":
    """Submit ``task(*args)`` to an executor; with a Dask client, Dask collections in ``args`` arrive as arrays."""
    if not is_dask(executor):
        future: Future[Any] = executor.submit(task, *args)
        return future
    from dask.delayed import delayed

    computed: Future[Any] = executor.compute(delayed(task, pure=False, traverse=False)(*args))
    return computed


def share(executor: Any, value: Any) -> Any:
    """Send a value that several tasks need to the workers of a Dask client once; other executors get it as it is."""
    return executor.scatter(value, hash=False) if is_dask(executor) else value


def is_dask(executor: Any) -> bool:
    return hasattr(executor, "scheduler_info")
