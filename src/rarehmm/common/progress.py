"""Progress of long work: one line on a terminal, nothing elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

OnProgress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much (0: not known)."""


def silent(stage: str, done: int, total: int) -> None:
    """Tells nobody."""


@contextmanager
def progress_line(shown: bool = True, console: Any = None) -> Iterator[OnProgress]:
    """A line that shows what is being done and how far it is, if it is to be ``shown`` and there is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = console or Console(stderr=True)
    if not shown or not (console.is_terminal or console.is_jupyter):
        yield silent
        return
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as line:
        task = line.add_task("")
        yield lambda stage, done, total: line.update(task, description=stage, completed=done, total=total or None)
