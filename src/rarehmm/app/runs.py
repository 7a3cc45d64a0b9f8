"""Runs: from a data file and settings to a folder with all results and everything needed to reproduce them.

The folder holds settings.yaml, posterior.nc, regimes.json, events.csv, forecast.csv, diagnosis.json, report.html and
log.txt.  Each file appears only once it is complete.  An interrupted run has its settings, so that it can be resumed
with the same results.
"""

import json
import logging
import platform
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rarehmm.app.report.report import Content, Overview, report
from rarehmm.app.settings import Settings, from_mapping, read_settings
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
from rarehmm.posterior.posterior import Posterior
from rarehmm.posterior.prediction import Forecast
from rarehmm.sampling.diagnostics import Check
from rarehmm.search.regimes import KINDS, Regime

logger = logging.getLogger(__name__)
FILES = ("settings.yaml", "posterior.nc", "regimes.json", "events.csv", "forecast.csv", "diagnosis.json", "report.html",
       "log.txt")  # fmt: skip


class RunResult(NamedTuple):
    """Results of a run."""

    hmm: RareHMM
    events: pd.DataFrame
    forecast: Forecast

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
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    write(folder / "settings.yaml", settings.to_yaml())


def settings_of(folder: Path) -> Settings:
    """Return the settings of an existing run."""
    if not (folder / "settings.yaml").is_file():
        raise ValueError(f"{folder} holds no run: there is no settings.yaml in it.")
    content = read_settings(folder / "settings.yaml")
    try:
        return from_mapping(content)
    except ValueError as error:
        raise ValueError(f"{folder / 'settings.yaml'}: {error}") from None


def series_of(settings: Settings, shown: bool = False) -> Series:
    """Read the series of a run, transformed as the settings say."""
    with progress_line(shown) as on_progress:
        on_progress("reading", 0, 0)
        table = open_files(settings.files, settings.column, settings.time, settings.date_format)
        try:
            return transformed(table, settings)
        except ValueError as error:
            raise ValueError(f"{', '.join(settings.files)}: {error}") from None


def transformed(table: pd.DataFrame | Source, settings: Settings) -> Series:
    """Return a table as a series, transformed as the settings say."""
    regular = settings.spacing
    if isinstance(table, Source):
        if not settings.knots:
            return Series(Logarithm(table) if settings.log else table, regular=regular)
        table = load_source(table)
    if regular == "fill" and settings.knots:  # a baseline follows time
        series = Series(table, regular=regular)
        table = pd.DataFrame(series.read(0, len(series)), series.index, table.columns)
    for name in table.columns:
        values = table[name].to_numpy(dtype=float)
        if settings.log:
            values = logarithm(values)
        if settings.knots:
            values = detrended(values, settings.knots)
        table[name] = values
    return Series(table[table.columns[0]] if table.shape[1] == 1 else table, regular=regular)


def load_source(source: Source) -> pd.DataFrame:
    """Load a whole source into memory, for transforms that need all rows."""
    columns = source.names or tuple(map(str, range(source.shape[1])))
    return pd.DataFrame(source[:], None if source.index is None else source.index[:], columns)


def fit(folder: Path, settings: Settings, series: Series, shown: bool = False) -> RunResult:
    """Fit the series of a run and write all results to its folder; ``shown`` displays progress on a terminal."""
    logger.info("%s", series)
    emission = settings.emissions[0] if len(settings.emissions) == 1 else settings.emissions
    hmm = RareHMM(
        settings.states, emission=emission, method=settings.method, n_draws=settings.draws,
        rare_share=settings.rare_share, check_model=settings.check_model, n_jobs=settings.threads,
        random_state=settings.seed, verbose=int(shown),
    )  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)  # an interrupted run is resumed, not kept half done
            hmm.fit(series)
    except InterruptedWarning:
        raise KeyboardInterrupt from None
    hmm.posterior_.save(folder / "posterior.nc")
    write(folder / "regimes.json", json.dumps([r._asdict() for r in hmm.regimes_], indent=1))
    with progress_line(shown) as on_progress:
        return write_results(folder, settings, hmm, series, on_progress)


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
    table = events.table()
    on_progress("forecast", 0, 0)
    forecast = hmm.forecast(series, settings.horizon)
    result = RunResult(hmm, table, forecast)
    write(folder / "events.csv", as_csv(table))
    write(folder / "forecast.csv", as_csv(forecast_table(forecast)))
    write(folder / "diagnosis.json", json.dumps(diagnosis(result), indent=1))
    on_progress("report", 0, 0)
    title = f"{', '.join(settings.column) or 'series'} in {', '.join(Path(f).name for f in settings.files)}"
    details = {**setting_texts(settings), **versions()}
    content = Content(title, hmm, series, overview, table, events.rows, forecast, details)
    write(folder / "report.html", report(content))
    return result


def load(folder: Path) -> tuple[Settings, RareHMM]:
    """Return the settings and the fitted model of a run."""
    settings = settings_of(folder)
    if not (folder / "posterior.nc").is_file():
        raise ValueError(f"{folder} holds an unfinished run; continue with: rarehmm resume {folder}")
    posterior = Posterior.load(folder / "posterior.nc")
    try:
        saved = json.loads((folder / "regimes.json").read_text(encoding="utf-8"))
        regimes = [regime_of(k, fields) for k, fields in enumerate(saved)]
        if len(regimes) != posterior.model.n_states:
            raise ValueError(f"{len(regimes)} regimes of {posterior.model.n_states} states")
    except (OSError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'regimes.json'} is damaged ({said(error)}); fit again.") from None
    hmm = RareHMM.of(posterior, regimes)
    hmm.set_params(random_state=settings.seed, n_jobs=settings.threads, rare_share=settings.rare_share)
    return settings, hmm


def regime_of(state: int, fields: Any) -> Regime:
    """Restore the regime of a state from regimes.json, or raise ValueError if it is damaged."""
    if not isinstance(fields, dict):
        raise ValueError(f"state {state} is {fields!r}")
    fields = {"message" if key == "words" else key: value for key, value in fields.items()}  # its name in version 0.1
    regime = Regime(**fields)
    numbers = regime.share, regime.observations, regime.sojourn
    if (
        regime.state != state
        or regime.kind not in KINDS
        or not all(type(x) in (int, float) and 0 <= x < np.inf for x in numbers)
    ):
        raise ValueError(f"state {state} is {regime}")
    return regime._replace(message=str(regime.message))


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


def check_to_dict(check: Check) -> dict[str, Any]:
    """Return a check as plain data, without NumPy scalars, which JSON does not take."""
    return {**check._asdict(), "value": float(check.value), "passed": bool(check.passed)}


def forecast_table(forecast: Forecast) -> pd.DataFrame:
    """Return the probability of a rare event within 1, 2, ... steps, with its interval."""
    steps = np.arange(1, len(forecast.event) + 1)
    return pd.DataFrame({"steps": steps, "probability": forecast.event, "low": forecast.low, "high": forecast.high})


def setting_texts(settings: Settings) -> dict[str, str]:
    """Return the settings as text by name, for the report."""
    lines = settings.to_yaml().splitlines()
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
