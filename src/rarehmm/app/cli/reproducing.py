"""``rarehmm reproduce``: the tables and figures of the paper."""

import difflib
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.progress import Progress
from rich.table import Table

from rarehmm import paper
from rarehmm.app.cli.app import app, console, say


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Which; none: list them; 'all': all.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small versions, all within 3 minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for pictures, tables and numbers.")] = Path("reproduction"),
    data: Annotated[Path, typer.Option(envvar="RAREHMM_DATA", help="Folder with the real data that some need.")] = Path(
        "data"
    ),
) -> None:
    """Repeat the tables and figures of the paper (Ou, Young, Sen and Dunson), its numbers beside ours."""
    known = paper.experiments()
    if not names:
        table = Table("name", "what", "minutes", "data", title="The paper's tables and figures")
        for name, module in known.items():
            table.add_row(name, module.TITLE, str(module.MINUTES), module.DATA or "")
        console.print(table)
        return
    everything = "all" in names
    chosen = list(known) if everything else names
    for name in chosen:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {close[0]!r}?" if close else f" There are: {', '.join(known)}."
            raise typer.BadParameter(f"there is no table or figure {name!r}.{hint}")
    needed = sorted({known[name].DATA for name in chosen if known[name].DATA})
    if missing := [folder for folder in needed if not (data / folder).is_dir()]:
        says = f"no folder {', '.join(missing)} in {data}; say where the data are with --data or RAREHMM_DATA"
        if not everything:
            raise typer.BadParameter(says)
        console.print(f"[bold yellow]left out[/]: {says}")
        chosen = [name for name in chosen if known[name].DATA not in missing]
    minutes = sum(known[name].MINUTES for name in chosen)
    console.print(
        f"{len(chosen)} of them, {'under 3 minutes' if quick else f'about {minutes} minutes'} in all, to {out}"
    )
    for name in chosen:
        _reproduce_one(name, known[name], quick, out, data)


def _reproduce_one(name: str, module: ModuleType, quick: bool, out: Path, data: Path) -> None:
    started = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(module.TITLE, total=None)
        how = paper.Settings(quick, data, lambda done, total: progress.update(task, completed=done, total=total))
        try:
            paths = paper.write(name, module.TITLE, module.reproduce(how), out, quick)
        except (OSError, ImportError) as error:
            raise typer.BadParameter(f"{name}: {error}") from error
    say(f"{module.TITLE}: {paths[0]}", started)
