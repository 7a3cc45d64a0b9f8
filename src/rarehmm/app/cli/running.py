"""``rarehmm fit``, ``resume``, ``events``, ``forecast``, ``report`` and ``simulate``: fits from files."""

import dataclasses
import json
import logging
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.table import Table

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.cli.app import UNRELIABLE, app, console, rich_escape
from rarehmm.app.settings import Settings, from_mapping, read_settings
from rarehmm.paper.common import SINGLE_RARE
from rarehmm.posterior.model_check import NOT_WANTED
from rarehmm.posterior.posterior import MODE_ONLY
from rarehmm.search.regimes import closest_to_rare
from rarehmm.specification.restored import inputs_of

SIMULATED = 100_000  # observations, unless a user says
Folder = Annotated[Path, typer.Argument(help="Folder of a run.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
Other = Annotated[
    Path | None, typer.Argument(help="Another file with the same columns; by default the file of the run.")
]


def option(name: str, *flags: str) -> Any:
    """Return the command-line option for a setting, with the help text and default of ``Settings``."""
    setting = Settings.__dataclass_fields__[name]
    default = str(setting.default) if setting.default not in (None, False, dataclasses.MISSING) else False

    def complete(incomplete: str) -> list[str]:
        return [choice for choice in setting.metadata.get("choices", ()) if choice.startswith(incomplete)]

    return typer.Option(*flags, help=setting.metadata["help"], show_default=default, autocompletion=complete)


@app.command()
def fit(
    file: Annotated[list[str] | None, typer.Argument(help="File with the series: CSV, npy, npz, netCDF, Parquet or "
                    "Zarr; several files, in chronological order, form one series.", show_default=False)] = None,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("run"),
    settings: Annotated[Path | None, typer.Option(help="YAML file with settings; options take precedence.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="Column to model; repeat for several columns.")] = None,
    time: Annotated[str | None, option("time")] = None,
    date_format: Annotated[str | None, option("date_format")] = None,
    time_zone: Annotated[str | None, option("time_zone")] = None,
    sep: Annotated[str | None, option("sep")] = None,
    decimal: Annotated[str | None, option("decimal")] = None,
    regular: Annotated[str | None, option("regular")] = None,
    auto: Annotated[bool | None, option("auto", "--auto")] = None,
    states: Annotated[int | None, option("states")] = None,
    emission: Annotated[str | None, option("emission")] = None,
    ar: Annotated[str | None, option("ar")] = None,
    season: Annotated[list[str] | None, option("season")] = None,
    trend: Annotated[str | None, option("trend")] = None,
    exog: Annotated[list[str] | None, option("exog")] = None,
    exog_transition: Annotated[list[str] | None, option("exog_transition")] = None,
    switching: Annotated[list[str] | None, option("switching")] = None,
    scale: Annotated[list[str] | None, option("scale")] = None,
    transitions: Annotated[list[str] | None, option("transitions")] = None,
    durations: Annotated[str | None, option("durations")] = None,
    states_column: Annotated[str | None, option("states_column")] = None,
    method: Annotated[str | None, option("method")] = None,
    draws: Annotated[int | None, option("draws")] = None,
    log: Annotated[bool | None, option("log", "--log")] = None,
    detrend: Annotated[str | None, option("detrend")] = None,
    rare_share: Annotated[float | None, option("rare_share")] = None,
    threshold: Annotated[float | None, option("threshold")] = None,
    gap: Annotated[int | None, option("gap")] = None,
    shortest: Annotated[int | None, option("shortest")] = None,
    horizon: Annotated[int | None, option("horizon")] = None,
    check_model: Annotated[bool | None, option("check_model", "--check-model/--no-check-model")] = None,
    seed: Annotated[int | None, option("seed")] = None,
    threads: Annotated[int | None, option("threads")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing run.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> int:  # fmt: skip
    """Fit a model to a series in a file: regimes with uncertainty, rare events, a forecast and a report."""
    options = {
        "file": file[0] if file and len(file) == 1 else file or None, "column": column or None, "time": time,
        "date_format": date_format, "time_zone": time_zone, "sep": sep, "decimal": decimal, "regular": regular,
        "auto": auto,
        "states": states, "emission": emission, "ar": ar, "season": season or None, "trend": trend,
        "exog": exog or None, "exog_transition": exog_transition or None, "switching": switching or None,
        "scale": scale or None, "transitions": transitions or None, "durations": durations,
        "states_column": states_column,
        "method": method, "draws": draws, "log": log, "detrend": detrend, "rare_share": rare_share,
        "threshold": threshold, "gap": gap, "shortest": shortest, "horizon": horizon,
        "check_model": check_model, "seed": seed, "threads": threads,
    }  # fmt: skip
    from_file = read_settings(settings) if settings else {}
    given = from_file | {name: value for name, value in options.items() if value is not None}
    merged, shown = from_mapping(given), not quiet and not as_json
    series = runs.series_of(merged, shown)  # unreadable data fail before anything is written
    merged = prepared(out, merged, given, series, force, shown)
    return finish(out, merged, series, quiet, as_json)


def prepared(
    folder: Path, settings: Settings, given: Collection[str], series: rh.Series, force: bool, shown: bool
) -> Settings:
    """Create the folder of a new run; with ``auto``, choose the settings that are not among the names given."""
    suggestion = None
    if settings.auto:
        settings, suggestion = runs.with_suggestion(settings, given, series)
    runs.create(folder, settings, force)
    if suggestion is not None:
        runs.write_suggestion(folder, suggestion)
        if shown:
            console.print(rich_escape(suggestion.sentence), soft_wrap=True)
    return settings


@app.command()
def resume(folder: Folder, quiet: Quiet = False, as_json: AsJson = False) -> int:
    """Resume an interrupted run where it stopped; the results are those of an uninterrupted one."""
    settings = runs.settings_of(folder)
    if (folder / "report.html").is_file():
        raise ValueError(f"{folder} is finished; see {folder / 'report.html'}.")
    return finish(folder, settings, runs.series_of(settings), quiet, as_json)


def finish(folder: Path, settings: Settings, series: rh.Series, quiet: bool, as_json: bool) -> int:
    """Fit the series, print the results, and return the exit code."""
    shown = not quiet and not as_json
    with logged(folder):
        try:
            result = runs.fit(folder, settings, series, shown)
        except KeyboardInterrupt:
            if shown:
                console.print(f"interrupted; continue with: rarehmm resume {folder}", soft_wrap=True)
            raise
    if as_json:
        print(json.dumps(runs.diagnosis(result)))
    if shown:
        print_result(result)
        console.print(f"report: {folder / 'report.html'}", soft_wrap=True)
    return 0 if result.passed else UNRELIABLE


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Write messages and warnings of the library to log.txt instead of the terminal."""
    handler = logging.FileHandler(folder / "log.txt", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("rarehmm")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                yield
            finally:
                for warning in caught:
                    logger.warning("%s", warning.message)
    finally:
        logger.removeHandler(handler)
        handler.close()


def print_result(result: runs.RunResult) -> None:
    """Print what was found: in a sentence, the states with intervals, the longest events and the verdicts."""
    console.print(rich_escape(result.headline), style="bold", soft_wrap=True)
    posterior = result.hmm.posterior_
    names = [p.name for p in posterior.model.family.parameters]
    names += [name for name in ("occupancy", "sojourn") if name in posterior.quantities]
    title = MODE_ONLY if posterior.is_mode else "mean and 90 % interval"
    table = Table("state", "kind", *names, title=f"States: {title}")
    for r in result.hmm.regimes_:
        intervals = [posterior.interval(name, r.state) for name in names]
        texts = [f"{m:.4g}" if posterior.is_mode else f"{m:.4g}\n{low:.4g} to {high:.4g}" for m, low, high in intervals]
        table.add_row(str(r.state), r.kind, *texts)
    console.print(table)
    print_effects(result.hmm)
    if len(result.events):
        longest = result.events.nlargest(5, "duration")
        table = Table("start", "end", "duration", "peak", title=f"The longest of {len(result.events):,} rare events")
        for e in longest.itertuples():
            table.add_row(str(e.start), str(e.end), f"{e.duration:,}", f"{e.peak:.4g}")
        console.print(table)
    else:
        console.print("no rare events", soft_wrap=True)
        if len(result.hmm.rare_states_) == 0:
            closest = closest_to_rare(result.hmm.regimes_, result.hmm.rare_share)
            console.print(rich_escape(f"No state is rare. Closest: {closest}."), soft_wrap=True)
    about_posterior, about_model = result.hmm.verdicts_
    console.print(about_posterior, style="green" if result.passed else "red", soft_wrap=True)
    fits = result.hmm.model_check_.passed
    console.print(about_model, style="green" if fits else "yellow", soft_wrap=True)


def print_effects(hmm: rh.RareHMM) -> None:
    """Print the coefficients of lags, trends and inputs, if there are any; seasons have too many."""
    summary = hmm.summary()
    found = summary[summary.index.str.contains("coefficient[", regex=False)]
    found = found[~found.index.str.contains(r"\[(?:sin|cos)\(")]
    if len(found):
        shown = ["mean"] if hmm.posterior_.is_mode else ["mean", "5.0%", "95.0%"]
        table = Table("coefficient", *(name.replace(".0%", " %") for name in shown),
                      title="Effects of lags, trends and inputs")  # fmt: skip
        for name, *values in found[shown].itertuples():
            table.add_row(rich_escape(name), *(f"{value:.4g}" for value in values))
        console.print(table)


def load_run(folder: Path, file: Path | None) -> tuple[Settings, rh.RareHMM, rh.Series]:
    """Return the settings and the fit of a run, with its own series or that of another file."""
    settings, hmm = runs.load(folder)
    # states are known in the file of the run alone
    source = from_mapping({**vars(settings), "file": str(file), "states_column": None}) if file else settings
    return settings, hmm, runs.series_of(source)


@app.command()
def events(
    folder: Folder,
    file: Other = None,
    threshold: Annotated[
        str | None, typer.Option(help="Probability of a rare state at which an event starts, or f1, precision=0.9, "
                                 "cost=10; by default that of the run.")
    ] = None,
    gap: Annotated[int | None, option("gap")] = None,
    shortest: Annotated[int | None, option("shortest")] = None,
    states: Annotated[
        str | None, typer.Option(help="States that count as rare, such as 1 or 1,2; by default those of the run.")
    ] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Use only what was known at the time.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print the rare events of a run's series, or of another file, as CSV."""
    settings, hmm, series = load_run(folder, file)
    table = hmm.rare_events(
        series, rare_states=None if states is None else whole_numbers("states", states),
        threshold=settings.threshold if threshold is None else number_or_text(threshold),
        gap=settings.gap if gap is None else gap, shortest=settings.shortest if shortest is None else shortest,
        causal=causal,
    )  # fmt: skip
    print_table(table, as_json)


def whole_numbers(name: str, text: str) -> list[int]:
    """Return the whole numbers in a text such as "1,2"."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must have whole numbers, separated by commas.") from None


def number_or_text(text: str) -> float | str:
    """Return the number that a text is, or the text."""
    try:
        return float(text)
    except ValueError:
        return text


@app.command()
def forecast(
    folder: Folder,
    file: Other = None,
    horizon: Annotated[int | None, option("horizon")] = None,
    future: Annotated[
        Path | None, typer.Option(help="File with the inputs of the rows to come, in columns with the same names.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the probability of a rare event within 1, 2, ... steps after a run's series, or another file, as CSV.

    The observations to come are forecast too, if their inputs are known: season and trend are; others are in the file
    FUTURE.
    """
    settings, hmm, series = load_run(folder, file)
    found = runs.forecast_of(hmm, series, settings, horizon, future)
    if found is None:
        raise ValueError(
            f"future inputs missing: {', '.join(map(repr, settings.exog_transition))}; pass --future with a file of "
            f"the rows to come that has {', '.join(runs.input_columns(settings))}."
        )
    print_table(runs.forecast_table(found), as_json)


def print_table(table: pd.DataFrame, as_json: bool) -> None:
    """Print a table as CSV or JSON."""
    print(table.to_json(orient="records", date_format="iso") if as_json else runs.as_csv(table), end="")


@app.command()
def report(folder: Folder) -> None:
    """Write the report, events, forecast and diagnosis of a run again."""
    settings, hmm, series = load_run(folder, None)
    hmm.model_check_ = hmm.check(series) if settings.check_model else NOT_WANTED
    runs.write_results(folder, settings, hmm, series)
    console.print(f"report: {folder / 'report.html'}", soft_wrap=True)


@app.command()
def simulate(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of a run; by default the series of the paper's section 4.1.", show_default=False),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of observations; by default 100,000, or those of a run whose model has inputs."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    out: Annotated[Path, typer.Option(help="CSV file to create; never overwritten.")] = Path("simulated.csv"),
) -> None:
    """Simulate observations and states, from the posterior mean of a run or as in the paper's section 4.1."""
    if out.exists():
        raise ValueError(f"{out} already exists; choose another name with --out.")
    if folder:
        settings, hmm = runs.load(folder)
        model, point = hmm.posterior_.model, hmm.posterior_.mean
        rows = rows_to_simulate(settings, model, size)
    else:
        model, point = paper_series()
        rows = size or SIMULATED
    y, states = rh.simulate(np.random.default_rng(seed), model, point, rows)
    columns = y.reshape(len(y), -1)
    names = ["y"] if columns.shape[1] == 1 else [f"y{i}" for i in range(columns.shape[1])]
    table = pd.DataFrame(columns, columns=names).assign(state=states)
    runs.write(out, runs.as_csv(table))
    console.print(f"{len(y):,} observations: {out}", soft_wrap=True)


def rows_to_simulate(settings: Settings, model: rh.Model, size: int | None) -> int | rh.Series:
    """Return a number of rows, or those of the series of a run, if the model needs their times or inputs."""
    if not any(part.chosen or part.has_times for part in inputs_of(model)):
        return size or SIMULATED
    series = runs.series_of(settings)
    if size is not None and size > len(series):
        raise ValueError(
            f"size is {size}, and the model has inputs or times, which {', '.join(settings.files)} has for "
            f"{len(series)} rows; simulate at most as many."
        )
    return series.part(0, size or len(series)).without_observations()


def paper_series() -> tuple[rh.Model, rh.Parameters]:
    """Return the model and parameters of the paper's section 4.1: three states, one of them rare."""
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    return model, model.parameters(SINGLE_RARE, mean=[-20.0, 0.0, 20.0], variance=1.0)
