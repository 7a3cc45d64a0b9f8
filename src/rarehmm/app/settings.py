"""Settings of a run, with the same names on the command line and in a YAML file, checked one by one."""

import dataclasses
import difflib
import re
import reprlib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rarehmm.emissions import families
from rarehmm.sampling.rule import METHODS


@dataclass(frozen=True)
class Settings:
    """All that a run depends on, its version of the library aside."""

    file: str | list[str] = field(metadata={"help": "File with the series; several, in order of time, are one."})
    column: list[str] = field(default_factory=list, metadata={"help": "Column to model; repeat for several."})
    time: str | None = field(default=None, metadata={"help": "Column with the time of each row."})
    states: int = field(default=3, metadata={"help": "Number of hidden states.", "least": 1})
    emission: str | list[str] = field(
        default="gaussian",
        metadata={"help": "Density of an observation given its state; one for each column: gaussian,bernoulli."},
    )
    method: str = field(default="auto", metadata={"help": "How the posterior is sampled."})
    draws: int = field(default=1000, metadata={"help": "Effective draws of every parameter.", "least": 1})
    log: bool = field(default=False, metadata={"help": "Model the logarithm."})
    detrend: str | None = field(default=None, metadata={"help": "Take a baseline away: spline:200 has 200 knots."})
    rare_share: float = field(default=0.05, metadata={"help": "Share of the observations that a rare state may have."})
    threshold: float = field(default=0.5, metadata={"help": "Probability at which an event begins."})
    gap: int = field(default=2, metadata={"help": "Events closer than this are one.", "least": 1})
    shortest: int = field(default=1, metadata={"help": "Shortest event.", "least": 1})
    horizon: int = field(default=100, metadata={"help": "Steps ahead of the forecast.", "least": 1})
    seed: int = field(default=0, metadata={"help": "Seed of all random numbers.", "least": 0})
    threads: int | None = field(default=None, metadata={"help": "Threads; all cores by default.", "least": 1})

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(Settings)
        for f in dataclasses.fields(self):
            check(f.name, getattr(self, f.name), hints[f.name], f.metadata.get("least"))
        for emission in self.emissions:
            check_known("emission", emission, tuple(families()))
        check_known("method", self.method, METHODS)
        for name in ("rare_share", "threshold"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1.")
        if self.detrend is not None and not re.fullmatch(r"spline:[1-9]\d*", self.detrend):
            raise ValueError(f"detrend is {self.detrend!r}; it must be such as spline:200, with a number of knots.")

    @property
    def files(self) -> list[str]:
        return [self.file] if isinstance(self.file, str) else self.file

    @property
    def emissions(self) -> list[str]:
        """One for all columns, or one for each."""
        return [name.strip() for name in self.emission.split(",")] if isinstance(self.emission, str) else self.emission

    @property
    def knots(self) -> int:
        """Knots of the baseline; 0: none is taken away."""
        return int(self.detrend.removeprefix("spline:")) if self.detrend else 0

    def to_yaml(self) -> str:
        return yaml.safe_dump(dataclasses.asdict(self), sort_keys=False)


def check_known(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse what is not known, with the nearest that is."""
    if value not in known:
        close = difflib.get_close_matches(value, known, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(known)}.{hint}")


def check(name: str, value: Any, kind: Any, least: int | None) -> None:
    """Refuse a value of another type, or too small."""
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    plain = [typing.get_origin(option) or option for option in options]
    number = float in plain and isinstance(value, int) and not isinstance(value, bool)
    good = number or any(type(value) is option for option in plain)
    if list in plain and isinstance(value, list):
        good = all(isinstance(item, str) for item in value)
    if not good:
        message = {
            int: "a whole number",
            float: "a number",
            str: "text",
            bool: "true or false",
            list: "a list of names",
        }
        wanted = " or ".join(message.get(option, "nothing") for option in plain)
        raise ValueError(f"{name} is {reprlib.repr(value)}; {wanted} is needed.")
    if least is not None and value is not None and value < least:
        raise ValueError(f"{name} is {value}; it must be {least} at least.")


def from_mapping(given: dict[str, Any]) -> Settings:
    """Settings out of a dictionary; unknown names are refused with the nearest known one."""
    known = [f.name for f in dataclasses.fields(Settings)]
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}."
            raise ValueError(f"there is no setting {reprlib.repr(name)}. {hint}")
    if not given.get("file"):
        raise ValueError("no file is named; give one, or 'file' in the settings.")
    return Settings(**given)


def read_settings(path: Path) -> dict[str, Any]:
    """What a YAML file says; nothing in it is executed."""
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, RecursionError) as error:  # of odd tags, depths
        raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(given, dict):
        raise ValueError(f"{path} holds no settings; a line each is needed, such as 'states: 4'.")
    return given
