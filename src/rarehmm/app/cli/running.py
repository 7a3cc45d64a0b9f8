"""``rarehmm fit``, ``resume``, ``events``, ``forecast``, ``report``, ``simulate`` and ``demo``: runs from files."""

import json
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.table import Table

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.cli.app import UNTRUSTED, app, console, say
from rarehmm.app.settings import Settings, from_mapping, read_settings
from rarehmm.paper.common import SINGLE_RARE

Folder = Annotated[Path, typer.Argument(help="Folder of a run.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
Other = Annotated[Path | None, typer.Argument(help="Another file with the same columns; else that of the run.")]


def option(name: str, *flags: str) -> Any:
    """A setting on the command line, with the words of ``Settings``."""
    found = Settings.__dataclass_fields__[name]
    return typer.Option(*flags, help=found.metadata["help"], show_default=str(found.default))


@app.command()
def fit(
    file: Annotated[list[str] | None, typer.Argument(help="File with the series: CSV, npy, npz, netCDF, Parquet or "
                    "Zarr; several, in order of time, are one.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for what is found.")] = Path("run"),
    settings: Annotated[Path | None, typer.Option(help="YAML file with settings; options go before it.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Column to model; repeat for several.")] = None,
    time: Annotated[str | None, option("time")] = None,
    states: Annotated[int | None, option("states")] = None,
    emission: Annotated[str | None, option("emission")] = None,
    method: Annotated[str | None, option("method")] = None,
    draws: Annotated[int | None, option("draws")] = None,
    log: Annotated[bool | None, option("log", "--log")] = None,
    detrend: Annotated[str | None, option("detrend")] = None,
    rare_share: Annotated[float | None, option("rare_share")] = None,
    threshold: Annotated[float | None, option("threshold")] = None,
    gap: Annotated[int | None, option("gap")] = None,
    shortest: Annotated[int | None, option("shortest")] = None,
    horizon: Annotated[int | None, option("horizon")] = None,
    seed: Annotated[int | None, option("seed")] = None,
    threads: Annotated[int | None, option("threads")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a run that is there.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """Find the regimes of a series in a file, with their uncertainty, the events, a forecast and a report."""
    given = {
        "file": one_or_all(file), "column": column or None, "time": time, "states": states, "emission": emission,
        "method": method, "draws": draws, "log": log, "detrend": detrend, "rare_share": rare_share,
        "threshold": threshold, "gap": gap, "shortest": shortest, "horizon": horizon, "seed": seed, "threads": threads,
    }  # fmt: skip
    from_file = read_settings(settings) if settings else {}
    whole = from_mapping(from_file | {name: value for name, value in given.items() if value is not None})
    series = runs.series_of(whole, not quiet and not as_json)  # what cannot be read is said before anything is written
    runs.begin(out, whole, force)
    return finish(out, whole, series, quiet, as_json)


def one_or_all(files: list[str] | None) -> str | list[str] | None:
    return files[0] if files and len(files) == 1 else files or None


@app.command()
def resume(folder: Folder, quiet: Quiet = False, as_json: AsJson = False) -> int:
    """Take up a run that was interrupted: it gives what it would have given."""
    settings = runs.settings_of(folder)
    if (folder / "report.html").is_file():
        raise ValueError(f"{folder} is finished; see {folder / 'report.html'}.")
    return finish(folder, settings, runs.series_of(settings), quiet, as_json)


def finish(folder: Path, settings: Settings, series: rh.Series, quiet: bool, as_json: bool) -> int:
    """Fit, and tell what was found."""
    shown = not quiet and not as_json
    with logged(folder):
        try:
            found = runs.fit(folder, settings, series, shown)
        except KeyboardInterrupt:
            if shown:
                console.print(f"interrupted; go on with: rarehmm resume {folder}", soft_wrap=True)
            raise
    if as_json:
        print(json.dumps(runs.diagnosis(found)))
    if shown:
        tell(found)
        console.print(f"report: {folder / 'report.html'}", soft_wrap=True)
    return 0 if found.passed else UNTRUSTED


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Messages and warnings of the library go to log.txt; a verdict is told in words instead."""
    handler = logging.FileHandler(folder / "log.txt", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("rarehmm")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                for w in given:
                    logger.warning("%s", w.message)
    finally:
        logger.removeHandler(handler)
        handler.close()


def tell(found: runs.Found) -> None:
    """States with intervals, events, diagnosis in words."""
    posterior = found.hmm.posterior_
    names = [p.name for p in posterior.model.family.parameters] + ["occupancy", "sojourn"]
    table = Table("state", "what it is", *names, title="States: mean and 90 % interval")
    for r in found.hmm.regimes_:
        intervals = [posterior.interval(name, r.state) for name in names]
        table.add_row(str(r.state), r.kind, *(f"{mean:.4g}\n{low:.4g} to {high:.4g}" for mean, low, high in intervals))
    console.print(table)
    if len(found.events):
        longest = found.events.nlargest(5, "duration")
        table = Table("start", "end", "duration", "peak", title=f"The longest of {len(found.events):,} rare events")
        for e in longest.itertuples():
            table.add_row(str(e.start), str(e.end), f"{e.duration:,}", f"{e.peak:.4g}")
        console.print(table)
    else:
        console.print("no rare events")
    console.print(found.hmm.verdict_, style="green" if found.passed else "red", soft_wrap=True)
    console.print(str(found.fit), style="green" if found.fit.passed else "yellow", soft_wrap=True)


def fitted(folder: Path, file: Path | None) -> tuple[Settings, rh.RareHMM, rh.Series]:
    """A run, with its series or another one."""
    settings, hmm = runs.load(folder)
    given = from_mapping({**vars(settings), "file": str(file)}) if file else settings
    return settings, hmm, runs.series_of(given)


@app.command()
def events(folder: Folder, file: Other = None, causal: Annotated[bool, typer.Option("--causal", help="With what was "
           "known at the time.")] = False, as_json: AsJson = False) -> None:  # fmt: skip
    """Rare events as CSV: of the series of a run, or of another file."""
    settings, hmm, series = fitted(folder, file)
    found = hmm.rare_events(
        series, threshold=settings.threshold, gap=settings.gap, shortest=settings.shortest, causal=causal
    )
    print_table(found, as_json)


@app.command()
def forecast(folder: Folder, file: Other = None, horizon: Annotated[int | None, option("horizon")] = None,
             as_json: AsJson = False) -> None:  # fmt: skip
    """P(rare event within 1, 2, ... steps) as CSV, after the series of a run or of another file."""
    settings, hmm, series = fitted(folder, file)
    print_table(runs.forecast_table(hmm.forecast(series, horizon or settings.horizon)), as_json)


def print_table(table: pd.DataFrame, as_json: bool) -> None:
    print(table.to_json(orient="records", date_format="iso") if as_json else runs.as_csv(table), end="")


@app.command()
def report(folder: Folder) -> None:
    """Write the report of a run again, with its events, forecast and diagnosis."""
    settings, hmm, series = fitted(folder, None)
    runs.fill(folder, settings, hmm, series)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


@app.command()
def simulate(
    folder: Annotated[Path | None, typer.Argument(help="Folder of a run; none: the paper's series.")] = None,
    size: Annotated[int, typer.Option(min=1, help="Observations.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
    out: Annotated[Path, typer.Option(help="CSV file; never written over.")] = Path("simulated.csv"),
) -> None:
    """Simulate observations and states, from the posterior mean of a run or as in the paper's section 4.1."""
    if out.exists():
        raise ValueError(f"{out} is there already; choose another name with --out.")
    if folder:
        posterior = runs.load(folder)[1].posterior_
        model, point = posterior.model, posterior.mean
    else:
        model, point = paper_series()
    y, states = rh.simulate(np.random.default_rng(seed), model, point, size)
    columns = y.reshape(size, -1)
    names = ["y"] if columns.shape[1] == 1 else [f"y{i}" for i in range(columns.shape[1])]
    table = pd.DataFrame(columns, columns=names).assign(state=states)
    runs.write(out, runs.as_csv(table))
    console.print(f"{size:,} observations: {out}", soft_wrap=True)


def paper_series() -> tuple[rh.Model, rh.Parameters]:
    """Three states of the paper's section 4.1, one of them rare."""
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    return model, model.parameters(SINGLE_RARE, mean=[-20.0, 0.0, 20.0], variance=1.0)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("rarehmm-demo"),
    size: Annotated[int, typer.Option(min=10_000, help="Observations to simulate.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
) -> int:
    """Simulate the paper's series, fit it, and show what there is: states, events, diagnosis and a report."""
    began = time.perf_counter()
    model, point = paper_series()
    y, states = rh.simulate(np.random.default_rng(seed), model, point, size)
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "series.npy", y)
    began = say(f"simulated {size:,} observations of 3 states, {np.mean(states == 2):.2%} of them rare", began)
    settings = Settings(str(out / "series.npy"), seed=seed)
    runs.begin(out, settings, force=True)
    console.print("fitting (the first time, kernels are compiled: 10 to 20 s)")
    with logged(out):
        found = runs.fit(out, settings, runs.series_of(settings), shown=True)
    say("fitted, checked and written", began)
    tell(found)
    console.print(f"open in a browser: {out / 'report.html'}", soft_wrap=True)
    return 0 if found.passed else UNTRUSTED
