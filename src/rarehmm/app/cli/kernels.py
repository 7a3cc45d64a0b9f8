"""``rarehmm warm-up`` and ``rarehmm cache clear``: the disk cache of compiled kernels."""

from typing import Annotated

import numpy as np
import typer
from rich.progress import track

import rarehmm as rh
from rarehmm.app.cli.app import app, console
from rarehmm.designs.uniform import uniform
from rarehmm.emissions import families
from rarehmm.engine.contracts.family import columns
from rarehmm.engine.dispatch import cached_files
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_pass import Pass
from rarehmm.model.parameters import Priors
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling.gibbs import draw_states
from rarehmm.windows.gradients import window_sums
from rarehmm.windows.windows import Windows

cache = typer.Typer(no_args_is_help=True, help="Manage the disk cache of compiled kernels.")
app.add_typer(cache, name="cache")


def univariate_families() -> list[str]:
    """Return the families of one column; kernels of the others depend on the number of columns."""
    return [name for name, family in families().items() if columns(family()) == 1]


@app.command("warm-up")
def warm_up(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Families, such as gaussian; by default all univariate families.", show_default=False),
    ] = None,
) -> None:
    """Compile the kernels of emission families ahead of time, for any number of states.

    Samplers other than the default still need a few seconds to compile when first used.
    """
    known = families()
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"there is no family {name!r}; choose from {', '.join(known)}.")
    for name in track(names or univariate_families(), description="compiling", console=console):
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
        Pass(model, point, series, None, False, back=True).in_log_space()
        draw_states(np.random.default_rng(0), model, point, series)
        windows = Windows(series, 2, 2)
        window_sums(model, point, series, windows)
        pool = rh.Pool(model, series, windows, uniform(windows), 1)
        rh.run(np.random.default_rng(0), Baoab(1e-9), model, pool, model.pack(point), 1)
        points = BatchedLogPosterior(model, series)
        points.values(model.pack(point)[None])
        points.values_and_slopes(model.pack(point)[None])
        console.print(f"  {name}")
    files = list(cached_files())
    console.print(f"{len(files)} kernels, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB, in {files[0].parent}"
                  if files else "nothing was saved: no cache folder is writable")  # fmt: skip


@cache.command()
def clear() -> None:
    """Delete all compiled kernels of rarehmm from disk."""
    files = list(cached_files())
    size = sum(f.stat().st_size for f in files)
    for file in files:
        file.unlink(missing_ok=True)
    console.print(f"removed {len(files)} compiled kernels, {size / 1e6:.1f} MB")
