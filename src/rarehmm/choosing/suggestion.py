"""What a search for settings returns: the settings, the gain of each term, and both in one sentence."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rarehmm.model.autoregression import Intercept
from rarehmm.specification.terms import seasons_of


class TermGain(NamedTuple):
    """One comparison: what was tried, its gain in held-out log density per observation, and whether it was chosen."""

    step: str
    term: str
    against: str
    gain: float
    error: float
    chosen: bool


@dataclass(frozen=True)
class Suggestion:
    """Settings that suit a series, and why.

    Attributes
    ----------
    settings : dict
        Keyword arguments of ``RareHMM``: ``n_components``, ``emission``, ``ar``, ``season`` and ``trend``.
    gains : list of TermGain
        What was compared, in order.
    n_rows : int
        Number of rows on which models were compared.
    """

    settings: dict[str, Any]
    gains: list[TermGain] = field(default_factory=list)
    n_rows: int = 0

    @property
    def table(self) -> Any:
        """What was compared, as a pandas.DataFrame: the gain of each term per observation, and its standard error."""
        import pandas as pd

        return pd.DataFrame(self.gains, columns=list(TermGain._fields))

    @property
    def sentence(self) -> str:
        """The settings and the gains of the terms among them, in one sentence."""
        chosen = [g for g in self.gains if g.chosen]
        why = [f"{g.term} by {g.gain:.3g}" for g in chosen if g.step in ("season", "trend", "lags", "family")]
        states = self.settings["n_components"]
        words = [f"{states} state{'s' * (states != 1)}", family_words(self.settings["emission"])]
        words += [season_words(self.settings["season"]), lag_words(self.settings["ar"])]
        words += ["a linear trend"] if self.settings["trend"] is not None else []
        reason = f"; per observation, the held-out log density rises with {', with '.join(why)}" if why else ""
        return f"The series suits a model with {', '.join(words[:-1])} and {words[-1]}{reason}."

    def __str__(self) -> str:
        return self.sentence

    def describe(self) -> str:
        """Return the comparisons as a text table, followed by the sentence.

        Returns
        -------
        str
        """
        lines = [f"{'step':8}{'term':30}{'against':30}{'gain (standard error)':28}"]
        for g in self.gains:
            mark = "<- chosen" if g.chosen else ""
            lines.append(f"{g.step:8}{g.term:30}{g.against:30}{f'{g.gain:+.5f} ({g.error:.5f})':28}{mark}".rstrip())
        return "\n".join([*lines, self.sentence])


def family_words(emission: Any) -> str:
    """Describe an emission in words."""
    names = {
        "gaussian": "Gaussian noise", "free_student_t": "Student-t noise", "log_normal": "log-normal observations",
        "poisson": "Poisson counts", "free_negative_binomial": "negative binomial counts",
    }  # fmt: skip
    return names.get(emission, f"emission {emission!r}") if isinstance(emission, str) else f"emission {emission!r}"


def season_words(season: Any) -> str:
    """Describe seasons in words."""
    found = seasons_of(season)
    each = [f"{s.label}{'' if isinstance(s.period, str) else ' steps'}" for s in found]
    return f"season{'s' * (len(found) > 1)} of {' and '.join(each)}" if found else "no season"


def lag_words(ar: Any) -> str:
    """Describe lags in words."""
    if ar is None or ar == 0:
        return "no lags"
    order = ar if isinstance(ar, int) else ar.order
    form = " (intercept form)" if isinstance(ar, Intercept) else ""
    return f"{order} lag{'s' * (order != 1)}{form}"
