"""The paper's tables and figures, one file each (Ou, Young, Sen and Dunson, *Targeted stochastic gradient MCMC for HMMs
with rare latent states*).

An experiment is a module in this package with a ``TITLE``, its duration (``MINUTES``, on 2 cores), the name of the data
folder that it needs (``DATA``, or None), and a function ``reproduce(settings)`` that returns an ``Outcome``.
"""

import importlib
import importlib.metadata
import json
import pkgutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Settings(NamedTuple):
    """How to run an experiment: ``quick`` for a small version, the ``data`` folder, ``on_progress(done, total)``."""

    quick: bool
    data: Path
    on_progress: Callable[[int, int], None]


class Table(NamedTuple):
    """A table with a caption; rows of text and numbers."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Outcome(NamedTuple):
    """Results of an experiment.

    Tables with the paper's numbers next to ours, remarks on where and why they differ, a figure, all numbers for a JSON
    file, and what a reader should know before the tables.
    """

    tables: list[Table]
    remarks: list[str]
    figure: "Figure"
    numbers: dict[str, Any]
    opening: str = ""


def experiments() -> dict[str, ModuleType]:
    """Return the experiments of this package by name: ``{"single": <module>, "two-rare": ...}``."""
    names = [file.name for file in pkgutil.iter_modules(__path__)]
    modules = {name.replace("_", "-"): importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "reproduce")}


def write(name: str, title: str, outcome: Outcome, folder: Path, quick: bool) -> list[Path]:
    """Write ``folder/name.md``, ``.json`` and ``.png``, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("md", "json", "png")]
    paths[0].write_text(markdown(name, title, outcome, quick), encoding="utf-8")
    numbers = json.dumps(outcome.numbers, indent=1, default=_plain, allow_nan=True)
    paths[1].write_text(numbers + "\n", encoding="utf-8")
    outcome.figure.savefig(paths[2], dpi=110)
    return paths


def markdown(name: str, title: str, outcome: Outcome, quick: bool) -> str:
    """Return the Markdown page of an experiment."""
    made = f"Written by `rarehmm reproduce {name}` ({origin()}) on {time.strftime('%Y-%m-%d')}; do not edit."
    parts = [f"# {title}\n", f"{made}\n"]
    if quick:
        parts.append("A quick run, smaller than the paper's: its numbers show that it works, and are not results.\n")
    if outcome.opening:
        parts.append(f"{outcome.opening}\n")
    for table in outcome.tables:
        lines = [" | ".join(_format(cell) for cell in row) for row in table.rows]
        head = f"| {' | '.join(table.header)} |\n|{'---|' * len(table.header)}\n"
        parts.append(f"{table.caption}\n\n{head}" + "".join(f"| {line} |\n" for line in lines))
    parts.append("".join(f"- {remark}\n" for remark in outcome.remarks))
    parts.append(f"![{title}]({name}.png)\n")
    return "\n".join(parts)


def origin(folder: Path = Path(__file__).parents[1]) -> str:
    """Return the commit of the package's folder, with a plus sign if its files differ from it, or else the version."""

    def git(*command: str) -> str:
        asked = ["git", "-C", str(folder), *command]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # an environment may lie inside another repository
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
        return f"commit {git('rev-parse', '--short', 'HEAD')}{'+' if changed else ''}"
    except (OSError, subprocess.CalledProcessError):
        return f"version {importlib.metadata.version('rarehmm')}"


def _format(cell: Any) -> str:
    if not isinstance(cell, float | np.floating):
        return str(cell)
    value = float(cell)
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _plain(value: Any) -> Any:
    """Convert NumPy arrays and scalars to what JSON can store."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be stored in a JSON file")
