"""Runs: from a data file and settings to a folder with all results and everything needed to reproduce them.

The folder holds settings.yaml, posterior.nc, regimes.json, events.csv, forecast.csv, diagnosis.json, report.html,
log.txt and, if settings were chosen automatically, suggestion.json.  Each file appears only once it is complete.  An
interrupted run has its settings, so that it can be resumed with the same results.
"""

import json
import logging
import platform
import warnings
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rarehmm.app.input_files import FileColumns, in_roles
from rarehmm.app.report.headline import headline
from rarehmm.app.report.report import Content, Overview, report
from rarehmm.app.report.terms import Chosen
from rarehmm.app.settings import Settings, from_mapping, read_settings
from rarehmm.app.term_texts import chosen_texts, durations_of, lags_of, switching_of, trend_of
from rarehmm.choosing.suggest import suggest
from rarehmm.choosing.suggestion import Suggestion, TermGain
from rarehmm.common.checks import InterruptedWarning
from rarehmm.common.progress import OnProgress, progress_line, silent
from rarehmm.common.writing import atomic_file
from rarehmm.data.files import open_files
from rarehmm.data.series import Series
from rarehmm.data.sources.checks import said
from rarehmm.data.sources.table import Source
from rarehmm.data.transforms import Logarithm, detrended, logarithm
from rarehmm.estimator import RareHMM
from rarehmm.posterior.events import Events
from rarehmm.posterior.posterior import DAMAGE, Posterior
from rarehmm.posterior.prediction import Forecast
from rarehmm.posterior.saved_fit import check_to_dict, regimes_of
from rarehmm.specification.restored import inputs_of

logger = logging.getLogger(__name__)
FILES = ("settings.yaml", "posterior.nc", "regimes.json", "events.csv", "forecast.csv", "diagnosis.json", "report.html",
       "log.txt")  # fmt: skip
SUGGESTION = "suggestion.json"  # of runs with settings that were chosen automatically


class RunResult(NamedTuple):
    """Results of a run."""

    hmm: RareHMM
    events: pd.DataFrame
    forecast: Forecast | None  # None if it needs inputs that are not known yet
    headline: str  # the opening sentence of the report

    @property
    def passed(self) -> bool:
        """Whether all checks of the posterior passed."""
        return all(c.passed for c in self.hmm.posterior_.checks)


def create(folder: Path, settings: Settings, force: bool = False) -> None:
    """Create the folder of a new run; a folder with content is refused, or with ``force`` its old run is deleted."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; pass the name of a folder.")
    existing = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    if existing and not force:
        content = "a run" if "settings.yaml" in existing else "files"
        raise ValueError(f"{folder} already holds {content}; use another folder, or --force to overwrite it.")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*FILES, SUGGESTION):
        (folder / name).unlink(missing_ok=True)
    write(folder / "settings.yaml", settings.stored(folder).to_yaml())


def with_suggestion(settings: Settings, given: Collection[str], series: Series) -> tuple[Settings, Suggestion]:
    """Return settings in which everything that can be chosen, and is not among the names given, suits the series."""
    hmm = estimator_of(settings)
    mine = {"states": "n_components", **{name: name for name in ("emission", "ar", "season", "trend")}}
    found = suggest(
        series, n_jobs=settings.threads,
        **{name: getattr(hmm, name) for text, name in mine.items() if text in given},
    )  # fmt: skip
    chosen = {text: value for text, value in chosen_texts(found.settings).items() if text not in given}
    return replace(settings, **chosen), found


def settings_of(folder: Path) -> Settings:
    """Return the settings of an existing run."""
    if not (folder / "settings.yaml").is_file():
        raise ValueError(f"{folder} holds no run: there is no settings.yaml in it.")
    content = read_settings(folder / "settings.yaml")
    try:
        return from_mapping(content).found(folder)
    except ValueError as error:
        raise ValueError(f"{folder / 'settings.yaml'}: {error}") from None


def series_of(settings: Settings, shown: bool = False) -> Series:
    """Read the series of a run, transformed as the settings say."""
    with progress_line(shown) as on_progress:
        on_progress("reading", 0, 0)
        columns = [*settings.column, *settings.inputs]
        tables = in_roles(opened(settings.files, columns, settings), settings)
        try:
            return transformed(tables, settings)
        except ValueError as error:
            raise ValueError(f"{', '.join(settings.files)}: {error}") from None


def opened(files: list[str], columns: list[str], settings: Settings) -> pd.DataFrame | Source:
    """Open files with the times that the settings describe."""
    return open_files(files, columns, settings.time, settings.text, settings.time_zone)


def transformed(tables: FileColumns, settings: Settings) -> Series:
    """Return tables as a series, transformed as the settings say."""
    table, exog, exog_transition, states = tables
    regular = settings.spacing
    make = partial(Series, exog=exog, exog_transition=exog_transition, states=states, regular=regular)
    if isinstance(table, Source):
        if not settings.knots:
            return make(Logarithm(table) if settings.log else table)
        table = load_source(table)
    index: Any = Series(table, regular=regular).index if regular == "fill" else table.index  # a baseline follows time
    rows = index.get_indexer(table.index) if regular == "fill" else np.arange(len(table))
    for name in table.columns:
        values = table[name].to_numpy(dtype=float)
        if settings.log:
            values = logarithm(values)
        if settings.knots:
            spread = np.full(len(index), np.nan)
            spread[rows] = values
            values = detrended(spread, settings.knots)[rows]
        table[name] = values
    return make(table[table.columns[0]] if table.shape[1] == 1 else table)


def load_source(source: Source) -> pd.DataFrame:
    """Load a whole source into memory, for transforms that need all rows."""
    columns = source.names or tuple(map(str, range(source.shape[1])))
    return pd.DataFrame(source[:], None if source.index is None else source.index[:], columns)


def estimator_of(settings: Settings, shown: bool = False) -> RareHMM:
    """Return the estimator of a run, not fitted yet."""
    emission = settings.emissions[0] if len(settings.emissions) == 1 else settings.emissions
    transitions = [*settings.transitions, *(name for name in settings.exog_transition if name in settings.exog)]
    return RareHMM(
        settings.states, emission=emission, ar=lags_of(settings.ar), season=settings.seasons or None,
        trend=trend_of(settings.trend), switching=switching_of(settings.switching), scale=settings.scale or None,
        transitions=transitions or None, durations=durations_of(settings.durations), method=settings.method,
        n_draws=settings.draws, rare_share=settings.rare_share, check_model=settings.check_model,
        n_jobs=settings.threads, random_state=settings.seed, verbose=int(shown),
    )  # fmt: skip


def fit(folder: Path, settings: Settings, series: Series, shown: bool = False) -> RunResult:
    """Fit the series of a run and write all results to its folder; ``shown`` displays progress on a terminal.

    What an interrupted run has found already is not computed again.
    """
    logger.info("%s", series)
    hmm = load(folder)[1] if (folder / "posterior.nc").is_file() else fitted(folder, settings, series, shown)
    write(folder / "regimes.json", json.dumps([r._asdict() for r in hmm.regimes_], indent=1))
    with progress_line(shown) as on_progress:
        return write_results(folder, settings, hmm, series, on_progress)


def fitted(folder: Path, settings: Settings, series: Series, shown: bool) -> RareHMM:
    """Fit the series of a run, and write the fit to its folder."""
    hmm = estimator_of(settings, shown)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)  # an interrupted run is resumed, not kept half done
            hmm.fit(series, regular=settings.spacing)
    except InterruptedWarning:
        raise KeyboardInterrupt from None
    hmm.save(folder / "posterior.nc")
    return hmm


def write_results(
    folder: Path, settings: Settings, hmm: RareHMM, series: Series, on_progress: OnProgress = silent
) -> RunResult:
    """Compute and write everything that follows from a fit: events, forecast, diagnosis, report."""
    on_progress("probabilities", 0, 0)
    rare, overview = hmm.rare_states_, Overview(len(series))
    events = Events(
        series, rare, threshold=settings.threshold, gap=settings.gap, shortest=settings.shortest,
        centre=hmm.ordinary_level(rare),
    )  # fmt: skip
    for first, last, probabilities in hmm.stream_proba(series, on_progress=on_progress):
        events.add(first, probabilities)
        overview.add(series.read(first, last)[:, 0], probabilities[:, rare].sum(1), probabilities.argmax(1))
    table = hmm.with_evidence(events)
    on_progress("forecast", 0, 0)
    forecast = forecast_of(hmm, series, settings)
    files = ", ".join(Path(f).name for f in settings.files)
    found = headline(", ".join(settings.column) or files, series, hmm, table)
    result = RunResult(hmm, table, forecast, found)
    write(folder / "events.csv", as_csv(table))
    if forecast is not None:
        write(folder / "forecast.csv", as_csv(forecast_table(forecast)))
    write(folder / "diagnosis.json", json.dumps(diagnosis(result), indent=1))
    on_progress("report", 0, 0)
    title = f"{', '.join(settings.column) or 'series'} in {files}"
    details = {**setting_texts(settings), **versions()}
    chosen = read_suggestion(folder)
    content = Content(title, found, hmm, series, overview, table, events.rows, forecast, details, chosen)
    write(folder / "report.html", report(content))
    return result


def forecast_of(
    hmm: RareHMM, series: Series, settings: Settings, horizon: int | None = None, future: Path | None = None
) -> Forecast | None:
    """Forecast the rows that follow a series, with inputs from a file.

    Without it, states and events alone are forecast if observations have inputs, and nothing (None) if transitions do.
    """
    if future is None:
        moving = hmm.posterior_.model.transitions.inputs
        if moving is not None and moving.chosen:
            return None
        known = not any(one.chosen for one in inputs_of(hmm.posterior_.model))
        return hmm.forecast(series, horizon or settings.horizon, size=1000 if known else 0)
    table = opened([str(future)], input_columns(settings), settings)
    table = load_source(table) if isinstance(table, Source) else table
    return hmm.forecast(series, horizon or len(table), exog=table[: horizon or len(table)])


def input_columns(settings: Settings) -> list[str]:
    """Return the names of all inputs of a run, each once."""
    return list(dict.fromkeys([*settings.exog, *settings.exog_transition]))


def load(folder: Path) -> tuple[Settings, RareHMM]:
    """Return the settings and the fitted model of a run."""
    settings = settings_of(folder)
    if not (folder / "posterior.nc").is_file():
        raise ValueError(f"{folder} holds an unfinished run; continue with: rarehmm resume {folder}")
    posterior, fit = Posterior.load_with(folder / "posterior.nc")
    hmm = old_fit(folder, posterior, settings) if fit is None else RareHMM.load(folder / "posterior.nc")
    hmm.set_params(
        random_state=settings.seed, n_jobs=settings.threads, rare_share=settings.rare_share, verbose=0
    )  # fmt: skip
    return settings, hmm


def old_fit(folder: Path, posterior: Posterior, settings: Settings) -> RareHMM:
    """Return the fit of a run of version 0.1, whose posterior has no regimes."""
    try:
        saved = json.loads((folder / "regimes.json").read_text(encoding="utf-8"))
        regimes = regimes_of(saved, posterior.model.n_states)
    except (OSError, *DAMAGE) as error:
        raise ValueError(f"{folder / 'regimes.json'} is damaged ({said(error)}); fit again.") from None
    return RareHMM.of(posterior, regimes, settings.spacing)


# ---------------------------------------------------------------- parts
def diagnosis(result: RunResult) -> dict[str, Any]:
    """Return the verdicts and all checks as plain data, for diagnosis.json; ``fits`` is None if not checked."""
    posterior, model_check = result.hmm.posterior_, result.hmm.model_check_
    checks = {"posterior": posterior.checks, "model": model_check.checks}
    about_posterior, about_model = result.hmm.verdicts_
    return {
        "trusted": result.passed,
        "verdict": posterior.verdict,
        "fits": None if model_check.not_checked else bool(model_check.passed),
        "fit": str(model_check),
        "verdicts": {"posterior": about_posterior, "model": about_model},
        "method": posterior.method,
        "why": posterior.why,
        "checks": {name: [check_to_dict(c) for c in group] for name, group in checks.items()},
    }


def forecast_table(forecast: Forecast) -> pd.DataFrame:
    """Return the probability of a rare event within 1, 2, ... steps, with its interval, and the observations."""
    steps = np.arange(1, len(forecast.event) + 1)
    table = pd.DataFrame({"steps": steps, "probability": forecast.event, "low": forecast.low, "high": forecast.high})
    if len(forecast.observations) > 0:
        found = forecast.to_frame().filter(regex="^(?!event|state_).*(mean|low|high)$").add_prefix("y_")
        table = table.join(found.reset_index(drop=True))
    return table if forecast.index is None else table.assign(time=forecast.index)


def write_suggestion(folder: Path, suggestion: Suggestion) -> None:
    """Write what was compared to choose settings, and what was chosen."""
    gains = [g._asdict() for g in suggestion.gains]
    content = {"sentence": suggestion.sentence, "n_rows": suggestion.n_rows, "gains": gains}
    write(folder / SUGGESTION, json.dumps(content, indent=1, default=lambda scalar: scalar.item()))


def read_suggestion(folder: Path) -> Chosen | None:
    """Return what was compared to choose settings, if they were chosen."""
    path = folder / SUGGESTION
    if not path.is_file():
        return None
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        return Chosen(saved["sentence"], saved["n_rows"], [TermGain(**gain) for gain in saved["gains"]])
    except (LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({said(error)}); fit again.") from None


def setting_texts(settings: Settings) -> dict[str, str]:
    """Return the settings as text by name, for the report, with the names of files alone."""
    names = [Path(file).name for file in settings.files]
    lines = replace(settings, file=names[0] if len(names) == 1 else names).to_yaml().splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def versions() -> dict[str, str]:
    """Return the versions of the libraries and of Python, for the report."""
    libraries = {name: metadata.version(name) for name in ("rarehmm", "numpy", "numba")}
    return {**libraries, "Python": platform.python_version()}


def as_csv(table: pd.DataFrame) -> str:
    """Return a table as CSV text, with the same line endings on every system."""
    return table.to_csv(index=False, lineterminator="\n")


def write(path: Path, text: str) -> None:
    """Write a text file atomically, with the same bytes on every system."""
    with atomic_file(path) as name:
        name.write_text(text, encoding="utf-8", newline="\n")
