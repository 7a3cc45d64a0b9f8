"""Progress of long computations: a progress bar on a terminal or in a notebook, nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

OnProgress = Callable[[str, int, int], None]
"""Callback ``on_progress(stage, done, total)``; ``total`` is 0 when it is not known."""


def silent(stage: str, done: int, total: int) -> None:
    """Ignore progress."""


@contextmanager
def progress_line(shown: bool = True, console: Any = None) -> Iterator[OnProgress]:
    """Yield a callback that updates a progress bar, or does nothing without a terminal or when not ``shown``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = console or Console(stderr=True)
    if not shown or not (console.is_terminal or console.is_jupyter):
        yield silent
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total or None)
