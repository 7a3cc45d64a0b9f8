"""Settings of a run, with the same names on the command line and in a YAML file, each validated."""

import dataclasses
import difflib
import os
import re
import reprlib
import types
import typing
import zoneinfo
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rarehmm.app.term_texts import durations_of, lags_of, season_of, trend_of
from rarehmm.data.files import SEPARATORS, TextFormat
from rarehmm.data.inputs import Season
from rarehmm.emissions import families
from rarehmm.sampling.rule import METHODS


@dataclass(frozen=True)
class Settings:
    """Everything that the results of a run depend on, apart from the version of the library."""

    file: str | list[str] = field(
        metadata={"help": "File with the series; several files, in chronological order, form one series."}
    )
    column: list[str] = field(default_factory=list, metadata={"help": "Column to model; repeat for several columns."})
    time: str | None = field(default=None, metadata={"help": "Column with the time of each row."})
    date_format: str | None = field(
        default=None, metadata={"help": "Format of times, such as %d/%m/%Y %H:%M, or unix (seconds) and unix_ms."}
    )
    time_zone: str | None = field(
        default=None, metadata={"help": "Zone of local times, such as Europe/Berlin, where clocks are changed."}
    )
    sep: str | None = field(
        default=None,
        metadata={"help": "What separates columns of a text file: a character, tab or space; by default a comma."},
    )
    decimal: str = field(default=".", metadata={"help": "Decimal sign of numbers in a text file."})
    regular: bool | str = field(
        default="yes",
        metadata={
            "help": "Are rows evenly spaced? yes: check it; fill: put missing rows back as gaps; no: count rows."
        },
    )
    auto: bool = field(
        default=False, metadata={"help": "Choose states, emission, lags, seasons and trend, as far as not given."}
    )
    states: int = field(default=3, metadata={"help": "Number of hidden states.", "least": 1})
    emission: str | list[str] = field(
        default="gaussian",
        metadata={
            "help": f"Emission family, or one per column separated by commas: {', '.join(families())}.",
            "choices": tuple(families()),
        },
    )
    ar: int | str | None = field(
        default=None,
        metadata={"help": "Lags of autocorrelated noise: 2; or of a certain form: level:2, intercept:2."},
    )
    season: list[str | int] = field(
        default_factory=list,
        metadata={"help": "Period of a season: 1D (needs --time) or a number of rows, 1D:3 with 3 harmonics; repeat."},
    )
    trend: int | str | None = field(default=None, metadata={"help": "linear, or the number of knots of a spline."})
    exog: list[str] = field(default_factory=list, metadata={"help": "Input column of the observations; repeat."})
    exog_transition: list[str] = field(
        default_factory=list, metadata={"help": "Input column of the transition probabilities; repeat."}
    )
    switching: list[str] = field(
        default_factory=list,
        metadata={"help": "What differs between states: season, trend, ar, a period, a column, or all inputs; repeat."},
    )
    scale: list[str] = field(
        default_factory=list,
        metadata={"help": "On what the spread depends: season, trend, a period or an input column; repeat."},
    )
    transitions: list[str] = field(
        default_factory=list,
        metadata={"help": "On what transitions depend: season, trend, a period or an input column; repeat."},
    )
    durations: int | str | None = field(
        default=None, metadata={"help": "Shortest visit to a state, in rows: 3, or one number for each state: 1,3."}
    )
    states_column: str | None = field(
        default=None, metadata={"help": "Column with known states: 0, 1, ..., and -1 or empty where unknown."}
    )
    method: str = field(
        default="auto", metadata={"help": f"Sampling method: {', '.join(METHODS)}.", "choices": METHODS}
    )
    draws: int = field(default=1000, metadata={"help": "Effective sample size of every parameter.", "least": 1})
    log: bool = field(default=False, metadata={"help": "Model the logarithm of the series."})
    detrend: str | None = field(
        default=None, metadata={"help": "Subtract a baseline: spline:200 is a spline with 200 knots."}
    )
    rare_share: float = field(
        default=0.05, metadata={"help": "Share of the observations up to which a supported state is called rare."}
    )
    threshold: float = field(default=0.5, metadata={"help": "Probability of a rare state at which an event starts."})
    gap: int = field(default=2, metadata={"help": "Merge events fewer than this many rows apart.", "least": 1})
    shortest: int = field(default=1, metadata={"help": "Drop events shorter than this.", "least": 1})
    horizon: int = field(default=100, metadata={"help": "Steps ahead to forecast.", "least": 1})
    check_model: bool = field(default=True, metadata={"help": "Check whether the model fits the series."})
    seed: int = field(default=0, metadata={"help": "Random seed.", "least": 0})
    threads: int | None = field(
        default=None, metadata={"help": "Number of threads; by default one per core.", "least": 1}
    )

    folder: str | None = field(
        default=None, metadata={"help": "Folder of the run; files are sought where they were relative to it."}
    )

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Settings)
        for f in dataclasses.fields(self):
            check(f.name, getattr(self, f.name), hints[f.name], f.metadata.get("least"))
        for emission in self.emissions:
            check_known("emission", emission, tuple(families()))
        check_known("method", self.method, METHODS)
        if isinstance(self.regular, str):
            check_known("regular", self.regular, ("yes", "fill", "no"))
        if self.sep not in (None, *SEPARATORS) and len(str(self.sep)) != 1:
            raise ValueError(f"sep is {self.sep!r}; it must be a single character, tab or space.")
        check_known("decimal", self.decimal, (".", ","))
        for name in ("rare_share", "threshold"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1.")
        lags_of(self.ar)
        trend_of(self.trend)
        durations_of(self.durations)
        self._check_columns()
        if self.detrend is not None and not re.fullmatch(r"spline:[1-9]\d*", self.detrend):
            raise ValueError(f"detrend is {self.detrend!r}; it must be of the form spline:200, with a number of knots.")

    def stored(self, folder: Path) -> "Settings":
        """Return the settings that are written to the folder of a run: its files can be found from anywhere."""
        return self._with_files([os.path.abspath(file) for file in self.files], os.path.abspath(folder))

    def found(self, folder: Path) -> "Settings":
        """Return the settings of a run that is in this folder now, with its files where they are now."""
        if self.folder is None:  # a run of version 0.1
            return self
        return self._with_files([where_now(file, self.folder, folder) for file in self.files], None)

    def _with_files(self, files: list[str], folder: str | None) -> "Settings":
        return dataclasses.replace(self, file=files[0] if isinstance(self.file, str) else files, folder=folder)

    @property
    def files(self) -> list[str]:
        """The files of the series, as a list."""
        return [self.file] if isinstance(self.file, str) else self.file

    @property
    def text(self) -> TextFormat:
        """How text files are written."""
        return TextFormat(self.date_format, self.sep, self.decimal)

    @property
    def spacing(self) -> bool | str:
        """What is done about the times of rows, as ``Series`` takes it."""
        return {"yes": True, "no": False}.get(str(self.regular), self.regular)

    @property
    def emissions(self) -> list[str]:
        """The emission families: one for all columns, or one per column."""
        return [name.strip() for name in self.emission.split(",")] if isinstance(self.emission, str) else self.emission

    def _check_columns(self) -> None:
        """Raise ValueError if columns have roles that exclude each other, or if times that are needed are not named."""
        others = self.inputs
        if others and not self.column:
            raise ValueError(f"column is missing, and {', '.join(others)} are inputs or states; name what to model.")
        for name in others:
            if name in self.column:
                raise ValueError(f"{name!r} is the column to model, and cannot be an input or known states as well.")
        if self.time_zone is not None:
            check_zone_name(self.time_zone)
            if self.time is None:
                raise ValueError(f"time_zone is {self.time_zone!r}, and no column of times is named; pass --time.")
        for season in self.seasons:
            if isinstance(season.period, str) and self.time is None:
                raise ValueError(
                    f"season is {season.label}, a length of time, and no column of times is named; pass --time, or the "
                    "season as a number of rows."
                )

    @property
    def inputs(self) -> list[str]:
        """Columns that are read beside those of the model: inputs and known states, each once."""
        states = [] if self.states_column is None else [self.states_column]
        return list(dict.fromkeys([*self.exog, *self.exog_transition, *states]))

    @property
    def seasons(self) -> list[Season]:
        """The seasons, from their texts."""
        return [season_of(text) for text in self.season]

    @property
    def knots(self) -> int:
        """Number of knots of the baseline; 0: no baseline is subtracted."""
        return int(self.detrend.removeprefix("spline:")) if self.detrend else 0

    def to_yaml(self) -> str:
        """Return the settings as the text of a YAML file."""
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False)


def where_now(file: str, before: str, now: Path) -> str:
    """Return where a file is after the folder of a run has moved: where it was relative to it, or where it was."""
    try:
        beside = os.path.abspath(now / os.path.relpath(file, before))
    except ValueError:  # on another drive
        return file
    return beside if os.path.exists(beside) else file


def check_known(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise ValueError with a suggestion unless ``value`` is one of the ``known`` names."""
    if value not in known:
        close = difflib.get_close_matches(value, known, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(known)}.{hint}")


def check_zone_name(zone: str) -> None:
    """Raise ValueError with a suggestion unless there is a time zone of this name."""
    known = zoneinfo.available_timezones()
    if zone not in known:
        close = difflib.get_close_matches(zone, known, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"time_zone is {zone!r}; it must be the name of a time zone, such as Europe/Berlin.{hint}")


def check(name: str, value: Any, kind: Any, least: int | None) -> None:
    """Raise ValueError if a value has the wrong type or is smaller than ``least``."""
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    plain = [typing.get_origin(option) or option for option in options]
    items = [kind for option in options for kind in typing.get_args(option)]  # of lists
    number = float in plain and isinstance(value, int) and not isinstance(value, bool)
    valid = number or any(type(value) is option for option in plain)
    if list in plain and isinstance(value, list):
        valid = all(any(isinstance(item, kind) for kind in items) for item in value)
    if not valid:
        descriptions = {
            int: "a whole number",
            float: "a number",
            str: "text",
            bool: "true or false",
            list: "a list of names",
        }
        expected = " or ".join(descriptions.get(option, "empty") for option in plain)
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be {expected}.")
    if least is not None and value is not None and value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}.")


def from_mapping(values: dict[str, Any]) -> Settings:
    """Create settings from a dictionary; for an unknown name the error suggests the closest known one."""
    known = [f.name for f in dataclasses.fields(Settings)]
    for name in values:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Choose from {', '.join(known)}."
            raise ValueError(f"there is no setting {reprlib.repr(name)}. {hint}")
    if not values.get("file"):
        raise ValueError("no file is given; name one on the command line, or as 'file' in the settings.")
    return Settings(**values)


def read_settings(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file; nothing in it is executed."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, RecursionError) as error:  # odd tags, deep nesting
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no settings; write one per line, such as 'states: 4'.")
    return content
