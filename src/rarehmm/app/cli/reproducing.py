"""``rarehmm reproduce``: regenerate the tables and figures of the paper.

``rarehmm convert`` prepares the public data sets that two of its sections need.
"""

import difflib
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.progress import Progress
from rich.table import Table

from rarehmm import paper
from rarehmm.app.cli.app import app, console, print_step


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Experiments to run, or 'all'; without any, list them.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run small versions, under 3 minutes in total.")] = False,
    out: Annotated[Path, typer.Option(help="Output folder for figures, tables and numbers.")] = Path("reproduction"),
    data: Annotated[
        Path, typer.Option(envvar="RAREHMM_DATA", help="Folder with the real data sets that some experiments need.")
    ] = Path("data"),
) -> None:
    """Reproduce the tables and figures of the paper (Ou, Young, Sen and Dunson), with its numbers next to ours."""
    known = paper.experiments()
    if not names:
        table = Table("name", "title", "minutes", "data", title="The paper's tables and figures")
        for name, module in known.items():
            table.add_row(name, module.TITLE, str(module.MINUTES), module.DATA or "")
        console.print(table)
        return
    run_all = "all" in names
    selected = list(known) if run_all else names
    for name in selected:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {close[0]!r}?" if close else f" Choose from: {', '.join(known)}."
            raise typer.BadParameter(f"there is no experiment {name!r}.{hint}")
    needed = sorted({known[name].DATA for name in selected if known[name].DATA})
    if missing := [folder for folder in needed if not (data / folder).is_dir()]:
        message = (
            f"no folder {', '.join(missing)} in {data}; set the data folder with --data or RAREHMM_DATA, or prepare it "
            "from public files with rarehmm convert"
        )
        if not run_all:
            raise typer.BadParameter(message)
        console.print(f"[bold yellow]skipped[/]: {message}")
        selected = [name for name in selected if known[name].DATA not in missing]
    minutes = sum(known[name].MINUTES for name in selected)
    count = f"{len(selected)} experiment{'' if len(selected) == 1 else 's'}"
    duration = "under 3 minutes" if quick else f"about {minutes} minutes"
    console.print(f"{count}, {duration} in total; output folder: {out}")
    for name in selected:
        _reproduce_one(name, known[name], quick, out, data)


def _reproduce_one(name: str, module: ModuleType, quick: bool, out: Path, data: Path) -> None:
    started = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(module.TITLE, total=None)
        settings = paper.Settings(quick, data, lambda done, total: progress.update(task, completed=done, total=total))
        try:
            paths = paper.write(name, module.TITLE, module.reproduce(settings), out, quick)
        except (OSError, ImportError) as error:
            raise typer.BadParameter(f"{name}: {error}") from error
    print_step(f"{module.TITLE}: {paths[0]}", started)


@app.command()
def convert(
    name: Annotated[str, typer.Argument(help="Data set: goes or dreams.")],
    source: Annotated[Path, typer.Argument(help="Folder with the downloaded files, in subfolders or not.")],
    data: Annotated[
        Path, typer.Option(envvar="RAREHMM_DATA", help="Data folder that `rarehmm reproduce` reads.")
    ] = Path("data"),
) -> None:
    """Convert public files, GOES-16 of NOAA or the DREAMS spindle database, to what `rarehmm reproduce` reads."""
    from rarehmm.paper.public_files import CONVERTERS

    if name not in CONVERTERS:
        raise typer.BadParameter(f"there is no data set {name!r}. Choose from: {', '.join(CONVERTERS)}.")
    started = time.perf_counter()
    for path in CONVERTERS[name](source, data):
        started = print_step(str(path), started)
