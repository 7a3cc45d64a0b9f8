"""Terms of a model as text of the command line and of settings files, such as "1D:3", "intercept:2" and "1,3"."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rarehmm.data.inputs import Season
from rarehmm.model.autoregression import AroundLevel, Autoregression, Hamilton, Intercept
from rarehmm.specification.terms import is_number

FORMS: dict[str, type[Any]] = {"level": AroundLevel, "intercept": Intercept, "hamilton": Hamilton}
EVERY = "all"  # stands for all inputs in ``switching``


def season_of(text: str | int) -> Season:
    """Return a season from a period, as a length of time or a number of rows, and after a colon its harmonics."""
    period, _, order = str(text).partition(":")
    if order and not re.fullmatch(r"[1-9]\d*", order):
        raise ValueError(f"season is {text!r}; after the colon it must have a number of harmonics, such as 1D:3.")
    number = float(period) if is_number(period) else None
    steps = int(number) if number is not None and number.is_integer() else number
    return Season(period if steps is None else steps, int(order) if order else None)


def lags_of(text: str | int | None) -> Autoregression | int | None:
    """Return a number of lags, or the autoregression that "intercept:2" describes."""
    if text is None or isinstance(text, int):
        return text
    form, _, order = text.rpartition(":")
    if not re.fullmatch(r"\d+", order) or (form and form not in FORMS):
        raise ValueError(f"ar is {text!r}; it must be a number of lags, or one after {':, '.join(FORMS)}:.")
    lags: Autoregression | int = FORMS[form](int(order)) if form else int(order)
    return lags


def trend_of(text: str | int | None) -> str | int | None:
    """Return "linear" or a number of knots."""
    if text is None or isinstance(text, int):
        return text
    if not re.fullmatch(r"linear|[1-9]\d*", text):
        raise ValueError(f"trend is {text!r}; it must be linear, or a number of knots.")
    return text if text == "linear" else int(text)


def durations_of(text: str | int | None) -> int | list[int] | None:
    """Return a number of steps for all states, or one for each."""
    if text is None or isinstance(text, int):
        return text
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise ValueError(f"durations is {text!r}; it must be a number of steps, or one for each state: 1,3.")
    each = [int(part) for part in text.split(",")]
    return each if len(each) > 1 else each[0]


def switching_of(names: Sequence[str]) -> bool | list[str]:
    """Return the names of what switches, or True for "all"."""
    return True if list(names) == [EVERY] else list(names) or False


def chosen_texts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of ``RareHMM``, as ``suggest`` returns them, as text of the command line."""
    ar, names = settings["ar"], {form: name for name, form in FORMS.items()}
    return {
        "states": settings["n_components"],
        "emission": settings["emission"],
        "ar": f"{names[type(ar)]}:{ar.order}" if isinstance(ar, Autoregression) else ar,
        "season": [f"{s.label}:{s.order}" if s.order else s.label for s in settings["season"] or []],
        "trend": settings["trend"],
    }
