"""What a file has besides a posterior, so that a fitted estimator can be restored: plain data, nothing to execute."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rarehmm.data.sources.checks import said
from rarehmm.posterior.model_check import ModelCheck
from rarehmm.posterior.posterior import DAMAGE
from rarehmm.sampling.diagnostics import Check
from rarehmm.search.regimes import KINDS, Regime

PLAIN = bool, int, float, str, type(None)


class SavedFit(NamedTuple):
    """A fit apart from its posterior.

    Attributes
    ----------
    regimes : list of Regime
        One per state.
    model_check : ModelCheck
    settings : dict
        Settings of the estimator that are plain values.
    names : list of str or None
        Names of the columns, if they have any.
    exog_names : list of str
    notes : list of str
        What the verdict mentions besides the checks.
    regular : bool or str
        What is done about the times of rows.
    """

    regimes: list[Regime]
    model_check: ModelCheck
    settings: dict[str, Any]
    names: list[str] | None
    exog_names: list[str]
    notes: list[str]
    regular: bool | str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data that ``json.dumps`` takes."""
        checks, note, not_checked, _ = self.model_check
        return {
            **self._asdict(),
            "regimes": [one._asdict() for one in self.regimes],
            "model_check": {"checks": [check_to_dict(c) for c in checks], "note": note, "not_checked": not_checked},
        }

    @classmethod
    def from_dict(cls, given: Any, n_states: int, where: object) -> "SavedFit":
        """Return what ``to_dict`` made plain data of; raise ValueError if it is damaged."""
        try:
            names, found = given["names"], given["model_check"]
            checks = [Check(**{**one, "value": float(one["value"])}) for one in found["checks"]]
            return cls(
                regimes_of(given["regimes"], n_states),
                ModelCheck(checks, str(found["note"]), not_checked=str(found["not_checked"])),
                {str(name): plain(value) for name, value in given["settings"].items()},
                None if names is None else [str(name) for name in names],
                [str(name) for name in given["exog_names"]],
                [str(note) for note in given["notes"]],
                plain(given["regular"]),
            )
        except DAMAGE as error:
            raise ValueError(f"{where} is damaged ({said(error)}); fit again.") from None


def is_plain(value: Any) -> bool:
    """Return whether a value is a number, a string, a truth value, None, or a list of these."""
    return all(map(is_plain, value)) if isinstance(value, list) else isinstance(value, PLAIN)


def plain(value: Any) -> Any:
    """Return a plain value, or raise ValueError."""
    if not is_plain(value):
        raise ValueError(f"{value!r} is no plain value")
    return value


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are plain values, with NumPy's numbers as Python's."""
    items = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    return {name: value for name, value in items.items() if is_plain(value)}


def check_to_dict(check: Check) -> dict[str, Any]:
    """Return a check as plain data, without NumPy scalars, which JSON does not take."""
    return {**check._asdict(), "value": float(check.value), "passed": bool(check.passed)}


def regimes_of(saved: Any, n_states: int) -> list[Regime]:
    """Return the regimes of all states from plain data, or raise one of ``DAMAGE``."""
    regimes = [regime_of(k, fields) for k, fields in enumerate(saved)]
    if len(regimes) != n_states:
        raise ValueError(f"{len(regimes)} regimes of {n_states} states")
    return regimes


def regime_of(state: int, fields: Any) -> Regime:
    """Return the regime of a state from plain data, or raise one of ``DAMAGE``."""
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
