"""Who does the work on stretches of a series: threads here, or other processes and machines.

The others are those of a Dask client, or of any executor with ``submit``.  Work goes where the rows are, and only what
is made of them comes back: rows of a Dask array are sliced in its graph, so that the scheduler works where a chunk is
and moves no more than halos; files are read by whoever works on them; rows in memory are sent.  A task that is lost
with its worker is done again by another one.  Results are the same, and in the same order, whoever does the work.
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

SPAN = 1 << 22  # rows of a task, roughly

OnPassProgress = Callable[[int, int], None]
Read = Callable[[int, int], npt.NDArray[np.float64]]


def ignore_progress(done: int, total: int) -> None:
    """Is told of progress."""


class Item(NamedTuple):
    """A piece of work: rows [first, last), and what else it needs."""

    first: int
    last: int
    given: tuple[Any, ...]


def as_rows(pieces: list[Any]) -> npt.NDArray[np.float64]:
    """Stretches of rows as doubles (n, D) fit for kernels: a view where one is that already, else a copy."""
    joined = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return np.require(joined, np.float64, ["C_CONTIGUOUS", "ALIGNED", "WRITEABLE"])


# ---------------------------------------------------------------- threads
class _Thread(threading.local):
    """What each thread knows of itself: whether it works on an item."""

    busy = False


_thread = _Thread()


def in_threads(
    read: Read,
    work: Callable[..., Any],
    items: Sequence[Item],
    threads: int | None = None,
    on_progress: OnPassProgress = ignore_progress,
) -> list[Any]:
    """``work(read(first, last), *given)`` for each item; results in order.

    Work may itself ask for threads: it gets the one that it is in, for those of the pool may all be waiting.
    """
    results: list[Any] = [None] * len(items)
    waiting, done = (
        iter(range(len(items))),
        iter(range(1, len(items) + 1)),
    )  # shared by the threads, each takes the next

    def drain() -> None:
        _thread.busy, before = True, _thread.busy
        try:
            for i in waiting:
                results[i] = work(read(items[i].first, items[i].last), *items[i].given)
                on_progress(next(done), len(items))
        finally:
            _thread.busy = before

    helpers = 0 if _thread.busy else min(threads or available_threads(), len(items)) - 1
    others = [pool(helpers, os.getpid()).submit(drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        wait(others)
    for other in others:
        other.result()
    return results


@functools.cache
def pool(workers: int, _process: int) -> ThreadPoolExecutor:
    """Threads that wait for the next pass: to start them anew would cost a tenth of one.  A fork needs its own."""
    return ThreadPoolExecutor(workers, thread_name_prefix="rarehmm")


def available_threads() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---------------------------------------------------------------- other processes and machines
class Piece(NamedTuple):
    """Rows [low, high) of a table: an array of them, or a source of which ``low`` - ``begin`` is the first row."""

    low: int
    high: int
    begin: int
    rows: Any


def on_workers(
    executor: Any,
    parts: Sequence[Any],
    offsets: Any,
    work: Callable[..., Any],
    items: Sequence[Item],
    on_progress: OnPassProgress,
) -> list[Any]:
    """``work(rows, *given)`` for each item, in spans of them; results in order."""
    futures = []
    for span in gathered(items):
        first, last = min(i.first for i in span), max(i.last for i in span)
        pieces = pieces_of(parts, offsets, first, last, is_dask(executor))
        todo = functools.partial(over_span, [(p.low, p.high, p.begin) for p in pieces], work, span)
        futures.append(submit(executor, todo, [p.rows for p in pieces]))
    results: list[Any] = []
    try:
        for future in futures:
            results += future.result()
            on_progress(len(results), len(items))
    except BaseException:  # also Ctrl-C: the rest is not wanted any more
        for future in futures:
            future.cancel()
        raise
    return results


def gathered(items: Sequence[Item]) -> list[list[Item]]:
    """Items in runs that cover about SPAN rows."""
    spans: list[list[Item]] = []
    for item in items:
        if not spans or item.last - spans[-1][0].first > SPAN:
            spans.append([])
        spans[-1].append(item)
    return spans


def pieces_of(parts: Sequence[Any], offsets: Any, first: int, last: int, dask: bool) -> list[Piece]:
    """What is sent so that rows [first, last) can be read."""
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


def over_span(where: list[tuple[int, int, int]], work: Callable[..., Any], span: list[Item], rows: list[Any]) -> Any:
    """The work on a span, done where it was sent."""
    pieces = [Piece(*place, one) for place, one in zip(where, rows, strict=True)]

    def read(first: int, last: int) -> npt.NDArray[np.float64]:
        touched = [p for p in pieces if p.low < last and p.high > first]
        return as_rows([p.rows[max(first, p.low) - p.begin : min(last, p.high) - p.begin] for p in touched])

    return in_threads(read, work, span, 1)


def submit(executor: Any, todo: Callable[..., Any], *args: Any) -> "Future[Any]":
    """``todo(*args)`` somewhere else; of a Dask client, collections among the arguments become arrays there."""
    if not is_dask(executor):
        future: Future[Any] = executor.submit(todo, *args)
        return future
    from dask.delayed import delayed

    sent: Future[Any] = executor.compute(delayed(todo, pure=False, traverse=False)(*args))
    return sent


def share(executor: Any, what: Any) -> Any:
    """Something that several tasks need, sent once where that can be done."""
    return executor.scatter(what, hash=False) if is_dask(executor) else what


def is_dask(executor: Any) -> bool:
    return hasattr(executor, "scheduler_info")
