"""The command line: ``rarehmm demo``, ``reproduce``, ``warm-up``, ``cache clear``."""

import difflib
import time
from pathlib import Path
from types import ModuleType
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

import rarehmm as rh
from rarehmm import paper, plots
from rarehmm.designs.uniform import uniform
from rarehmm.dispatch import cached_files
from rarehmm.emissions import columns, families
from rarehmm.exact import draw_states
from rarehmm.gradients import window_sums
from rarehmm.model import Priors
from rarehmm.passes import Pass
from rarehmm.points import Points
from rarehmm.samplers.baoab import Baoab
from rarehmm.windows import Windows

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Bayesian hidden Markov models with rare states.")
cache = typer.Typer(no_args_is_help=True, help="Compiled kernels on disk.")
app.add_typer(cache, name="cache")
console = Console()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("rarehmm-demo"),
    size: Annotated[int, typer.Option(min=10_000, help="Observations to simulate.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 0,
) -> None:
    """Simulate a long series with a rare regime, compute with it exactly, draw a picture."""
    family = rh.Gaussian()
    model = rh.Model(family, 3, rh.paper_priors(family))
    truth = model.parameters(
        [[0.99, 0.0099, 0.0001], [0.0099, 0.99, 0.0001], [0.1, 0.1, 0.8]], mean=[-2, 0, 4], variance=1
    )
    rare = 2
    started = time.perf_counter()
    y, states = rh.simulate(np.random.default_rng(seed), model, truth, size)
    lap = _say(f"simulated {size:,} observations of 3 states", started)
    series = rh.Series(y)
    lap = _say("checked them at the door", lap)
    with console.status("likelihood and gradient (the first time, kernels are compiled: about 10 s)"):
        value, slope = rh.log_posterior(model, model.pack(truth), series)
    lap = _say(f"log posterior {value:,.1f} and its gradient in {len(slope)} coordinates", lap)
    probability = rh.smooth(model, truth, series)
    lap = _say("probabilities of the states given the whole series", lap)
    path, _ = rh.decode(model, truth, series)
    lap = _say("most probable path (Viterbi)", lap)

    table = Table("state", "mean", "share of time", "visits", "decoded right", title="The three regimes")
    for k in range(3):
        visits = int(np.sum(np.diff((states == k).astype(int), prepend=0) == 1))
        right = f"{np.mean(path[states == k] == k):.2%}" if visits else "-"
        name = f"{k} (rare)" if k == rare else str(k)
        table.add_row(name, f"{truth.phi[k, 0]:g}", f"{np.mean(states == k):.3%}", f"{visits:,}", right)
    console.print(table)

    out.mkdir(parents=True, exist_ok=True)
    title = f"part of {size:,} observations, {np.mean(path == rare):.2%} of them rare"
    plots.regimes(y, path, probability[:, rare], rare, title).savefig(out / "demo.png", dpi=130)
    _say(f"picture: {out / 'demo.png'}", lap)


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
    _say(f"{module.TITLE}: {paths[0]}", started)


def of_one_column() -> list[str]:
    """Families that are compiled ahead: in several columns kernels depend on how many there are."""
    return [name for name, family in families().items() if columns(family()) == 1]


@app.command("warm-up")
def warm_up(
    names: Annotated[
        list[str] | None, typer.Argument(help="Families, such as gaussian; none: all of one column.")
    ] = None,
) -> None:
    """Compile the kernels of families ahead of time, for all numbers of states.

    Samplers other than the default one take seconds more when they are first used.
    """
    known = families()
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"there is no family {name!r}; there are {', '.join(known)}.")
    for name in track(names or of_one_column(), description="compiling", console=console):
        family = known[name]()
        priors = Priors(tuple(rh.Normal(0.0, 1.0) for _ in family.parameters))
        model = rh.Model(family, 2, priors)
        point = model.natural(
            np.array([[1.0] * len(priors.emission), [2.0] * len(priors.emission)]), np.full((2, 2), 0.5)
        )
        series = rh.Series(rh.simulate(np.random.default_rng(0), model, point, 1000)[0])
        rh.log_posterior(model, model.pack(point), series)
        rh.smooth(model, point, series, sequential=True)
        rh.decode(model, point, series)
        rh.log_likelihood(model, model.natural(point.phi, np.eye(2)), series)
        Pass(model, point, series, None, False, back=True).in_logs()
        draw_states(np.random.default_rng(0), model, point, series)
        windows = Windows(series, 2, 2)
        window_sums(model, point, series, windows)
        pool = rh.Pool(model, series, windows, uniform(windows), 1)
        rh.run(np.random.default_rng(0), Baoab(1e-9), model, pool, model.pack(point), 1)
        points = Points(model, series)
        points.values(model.pack(point)[None])
        points.values_and_slopes(model.pack(point)[None])
        console.print(f"  {name}")
    files = list(cached_files())
    console.print(f"{len(files)} kernels, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB, in {files[0].parent}"
                  if files else "nothing was saved: no folder for compiled kernels is writable")  # fmt: skip


@cache.command()
def clear() -> None:
    """Remove all compiled kernels of this library from the disk."""
    files = list(cached_files())
    size = sum(f.stat().st_size for f in files)
    for file in files:
        file.unlink(missing_ok=True)
    console.print(f"removed {len(files)} compiled kernels, {size / 1e6:.1f} MB")


def _say(what: str, since: float) -> float:
    """Report a step with the time it took; returns the time now."""
    now = time.perf_counter()
    console.print(f"[dim]{now - since:6.2f} s[/]  {what}")
    return now
