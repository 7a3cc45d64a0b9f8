"""A run: a file and settings in, a folder out, with everything that was found and what is needed to repeat it.

settings.yaml, posterior.nc, regimes.json, events.csv, forecast.csv, diagnosis.json, report.html, log.txt.  Each file is
written as a whole or not at all.  An interrupted run has its settings: taken up again, it gives what it would have.
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
from rarehmm.posterior.residuals import ModelCheck
from rarehmm.sampling.diagnostics import Check
from rarehmm.search.regimes import KINDS, Regime

logger = logging.getLogger(__name__)
OWN = ("settings.yaml", "posterior.nc", "regimes.json", "events.csv", "forecast.csv", "diagnosis.json", "report.html",
       "log.txt")  # fmt: skip


class Found(NamedTuple):
    """What a run found."""

    hmm: RareHMM
    events: pd.DataFrame
    forecast: Forecast
    fit: ModelCheck

    @property
    def passed(self) -> bool:
        return all(c.passed for c in self.hmm.posterior_.checks)


def begin(folder: Path, settings: Settings, force: bool = False) -> None:
    """Make the folder of a new run; one that holds something is refused, or, with ``force``, loses an old run."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; the name of a folder is needed.")
    there = sorted(p.name for p in folder.iterdir()) if folder.exists() else []
    if there and not force:
        what = "a run" if "settings.yaml" in there else "files"
        raise ValueError(f"{folder} already holds {what}; use another folder, or --force to write over it.")
    folder.mkdir(parents=True, exist_ok=True)
    for name in OWN:
        (folder / name).unlink(missing_ok=True)
    write(folder / "settings.yaml", settings.to_yaml())


def settings_of(folder: Path) -> Settings:
    """The settings of a run that is there."""
    if not (folder / "settings.yaml").is_file():
        raise ValueError(f"{folder} holds no run: there is no settings.yaml in it.")
    given = read_settings(folder / "settings.yaml")
    try:
        return from_mapping(given)
    except ValueError as error:
        raise ValueError(f"{folder / 'settings.yaml'}: {error}") from None


def series_of(settings: Settings, shown: bool = False) -> Series:
    """The series that is modelled: read, and made ready as the settings say."""
    with progress_line(shown) as on_progress:
        on_progress("reading", 0, 0)
        table = open_files(settings.files, settings.column, settings.time)
        if isinstance(table, Source):
            if not settings.knots:
                return Series(Logarithm(table) if settings.log else table)
            table = in_memory(table)
    for name in table.columns:
        values = table[name].to_numpy(dtype=float)
        if settings.log:
            values = logarithm(values)
        if settings.knots:
            values = detrended(values, settings.knots)
        table[name] = values
    return Series(table[table.columns[0]] if table.shape[1] == 1 else table)


def in_memory(source: Source) -> pd.DataFrame:
    """All of a source, for what needs all of it."""
    columns = source.names or tuple(map(str, range(source.shape[1])))
    return pd.DataFrame(source[:], None if source.index is None else source.index[:], columns)


def fit(folder: Path, settings: Settings, series: Series, shown: bool = False) -> Found:
    """Fit the series of the settings, and fill the folder; progress is ``shown`` on a terminal."""
    logger.info("%s", series)
    emission = settings.emissions[0] if len(settings.emissions) == 1 else settings.emissions
    hmm = RareHMM(
        settings.states, emission=emission, method=settings.method, n_draws=settings.draws,
        rare_share=settings.rare_share, n_jobs=settings.threads, random_state=settings.seed, verbose=int(shown),
    )  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InterruptedWarning)  # a run is taken up again, not kept by half
            hmm.fit(series)
    except InterruptedWarning:
        raise KeyboardInterrupt from None
    hmm.posterior_.save(folder / "posterior.nc")
    write(folder / "regimes.json", json.dumps([r._asdict() for r in hmm.regimes_], indent=1))
    with progress_line(shown) as on_progress:
        return fill(folder, settings, hmm, series, on_progress)


def fill(folder: Path, settings: Settings, hmm: RareHMM, series: Series, on_progress: OnProgress = silent) -> Found:
    """Everything that follows from a posterior: events, forecast, diagnosis, report."""
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
    ahead = hmm.forecast(series, settings.horizon)
    on_progress("is the model right?", 0, 0)
    found = Found(hmm, table, ahead, hmm.check(series))
    write(folder / "events.csv", as_csv(table))
    write(folder / "forecast.csv", as_csv(forecast_table(ahead)))
    write(folder / "diagnosis.json", json.dumps(diagnosis(found), indent=1))
    on_progress("report", 0, 0)
    title = f"{', '.join(settings.column) or 'series'} of {', '.join(Path(f).name for f in settings.files)}"
    content = Content(
        title, hmm, series, overview, table, events.rows, ahead, found.fit, {**described(settings), **versions()}
    )
    write(folder / "report.html", report(content))
    return found


def load(folder: Path) -> tuple[Settings, RareHMM]:
    """The settings and the fit of a run."""
    settings = settings_of(folder)
    if not (folder / "posterior.nc").is_file():
        raise ValueError(f"{folder} holds a run that was not finished; go on with: rarehmm resume {folder}")
    posterior = Posterior.load(folder / "posterior.nc")
    try:
        given = json.loads((folder / "regimes.json").read_text(encoding="utf-8"))
        regimes = [regime_of(k, one) for k, one in enumerate(given)]
        if len(regimes) != posterior.model.n_states:
            raise ValueError(f"{len(regimes)} regimes of {posterior.model.n_states} states")
    except (OSError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'regimes.json'} is damaged ({said(error)}); fit again.") from None
    hmm = RareHMM.of(posterior, regimes)
    hmm.set_params(random_state=settings.seed, n_jobs=settings.threads, rare_share=settings.rare_share)
    return settings, hmm


def regime_of(state: int, given: dict[str, Any]) -> Regime:
    """What was kept of a state."""
    given = {"message" if key == "words" else key: value for key, value in given.items()}  # its name in version 0.1
    one = Regime(**given)
    numbers = one.share, one.observations, one.sojourn
    if (
        one.state != state
        or one.kind not in KINDS
        or not all(type(x) in (int, float) and 0 <= x < np.inf for x in numbers)
    ):
        raise ValueError(f"state {state} is {one}")
    return one._replace(message=str(one.message))


# ---------------------------------------------------------------- parts
def diagnosis(found: Found) -> dict[str, Any]:
    """The verdict and all checks, as data."""
    checks = {"posterior": found.hmm.posterior_.checks, "model": found.fit.checks}
    return {
        "trusted": found.passed,
        "verdict": found.hmm.verdict_,
        "fits": found.fit.passed,
        "fit": str(found.fit),
        "method": found.hmm.posterior_.method,
        "why": found.hmm.posterior_.why,
        "checks": {name: [as_data(c) for c in each] for name, each in checks.items()},
    }


def as_data(check: Check) -> dict[str, Any]:
    return {**check._asdict(), "value": float(check.value), "passed": bool(check.passed)}


def forecast_table(ahead: Forecast) -> pd.DataFrame:
    """P(rare event within so many steps), with its interval."""
    steps = np.arange(1, len(ahead.event) + 1)
    return pd.DataFrame({"steps": steps, "probability": ahead.event, "low": ahead.low, "high": ahead.high})


def described(settings: Settings) -> dict[str, str]:
    lines = settings.to_yaml().splitlines()
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def versions() -> dict[str, str]:
    libraries = {name: metadata.version(name) for name in ("rarehmm", "numpy", "numba")}
    return {**libraries, "Python": platform.python_version()}


def as_csv(table: pd.DataFrame) -> str:
    """A table as text, with the same ends of lines on every system."""
    return table.to_csv(index=False, lineterminator="\n")


def write(path: Path, text: str) -> None:
    """A file of text as a whole, or not at all; the same bytes on every system."""
    with atomic_file(path) as name:
        name.write_text(text, encoding="utf-8", newline="\n")
