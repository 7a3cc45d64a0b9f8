"""Terms of a model from what a user writes: periods, numbers of lags and knots, names of columns."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rarehmm.data.inputs import Columns, Season, Term, Trend, duration
from rarehmm.model.autoregression import AroundLevel, Autoregression, Intercept
from rarehmm.model.moves import moves

LAGS = "ar"  # stands for the lags in ``switching``


def as_list(given: Any) -> list[Any]:
    """Return one or several things as a list; an empty one for None."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def seasons_of(season: Any) -> list[Season]:
    """Return the seasons that ``season`` describes: periods, ``Season``, or a list of these."""
    return [_season(one, "season") for one in as_list(season)]


def _season(given: Any, argument: str) -> Season:
    if isinstance(given, Season):
        return given
    if isinstance(given, str):
        if is_number(given):
            raise ValueError(
                f"{argument} is {given!r}; pass the number {given} for steps, or a length of time such as '{given}h'."
            )
        return Season(given)
    if isinstance(given, bool) or not isinstance(given, int | float | np.number):
        raise TypeError(
            f'{argument} is {given!r}; pass a length of time such as "1D", a number of steps, Season(period, order), '
            "or a list of these."
        )
    return Season(given)  # type: ignore[arg-type]


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def trends_of(trend: Any) -> list[Trend]:
    """Return the trends that ``trend`` describes: "linear", a number of knots, ``Trend``, or a list of these."""
    return [_trend(one) for one in as_list(trend)]


def _trend(trend: Any) -> Trend:
    if isinstance(trend, Trend):
        return trend
    if isinstance(trend, str) and trend == "linear":
        return Trend()
    if isinstance(trend, int | np.integer) and not isinstance(trend, bool):
        return Trend(int(trend))
    raise ValueError(
        f"trend is {trend!r}; pass 'linear', a number of knots of a spline, or Trend(knots). Each state has a level of "
        "its own in any case."
    )


def lags_of(ar: Any) -> Autoregression | int:
    """Return the number of lags that ``ar`` asks for, or the autoregression itself."""
    if isinstance(ar, Autoregression):
        return ar
    if ar is None:
        return 0
    if isinstance(ar, int | np.integer) and not isinstance(ar, bool) and ar >= 0:
        return int(ar)
    raise ValueError(
        f"ar is {ar!r}; pass the number of lags, such as ar=2, or AroundLevel(2), Intercept(2) or Hamilton(2)."
    )


def autoregression_of(ar: Any, family: Any) -> Autoregression | None:
    """Return the autoregression that ``ar`` describes: around the level of a state, if the family has a single one."""
    lags = lags_of(ar)
    if not isinstance(lags, int):
        return lags
    if lags == 0:
        return None
    at = moves(family)
    return Intercept(lags) if (at.level[at.predicted] < 0).any() else AroundLevel(lags)


@dataclass(frozen=True)
class Terms:
    """What observations depend on: seasons, trends and columns, in the order that ``Inputs`` has."""

    seasons: Sequence[Season]
    trends: Sequence[Trend]
    columns: Sequence[str]

    def __len__(self) -> int:
        return len(self.seasons) + len(self.trends) + len(self.columns)

    @property
    def every(self) -> list[Term]:
        """All terms, for ``Inputs.of``."""
        return [*self.seasons, *self.trends, *([Columns(tuple(self.columns))] if self.columns else [])]

    @property
    def labels(self) -> list[str]:
        """What each term is called: the period of a season, "trend", the name of a column."""
        return [*(one.label for one in self.seasons), *("trend" for _ in self.trends), *self.columns]

    @property
    def kinds(self) -> list[str]:
        """The kind of each term: "season", "trend" or "exog"."""
        return ["season"] * len(self.seasons) + ["trend"] * len(self.trends) + ["exog"] * len(self.columns)

    def flags(self, given: Any, argument: str, others: Sequence[str] = ()) -> list[bool]:
        """Return which terms are meant by names of terms or of kinds of terms, of which ``others`` are names too."""
        flags = [False] * len(self)
        for one in as_list(given):
            hits = self._matches(one)
            if not any(hits) and one not in others:
                raise ValueError(self._unknown(one, argument, others))
            flags = [a or b for a, b in zip(flags, hits, strict=True)]
        return flags

    def chosen(self, given: Any, argument: str, columns: Sequence[str]) -> list[Term]:
        """Return the terms that are meant by names or given as such; ``columns`` are all that there are.

        Seasons and trends need not be among those of the observations.
        """
        wider = Terms(self.seasons, self.trends, columns)
        seasons, trends, names = list[Season](), list[Trend](), list[str]()
        for one in as_list(given):
            if isinstance(one, Trend):
                trends.append(one)
            elif isinstance(one, Columns):
                names += columns if one.names is None else one.names
            elif isinstance(one, str) and (any(hits := wider._matches(one)) or not _is_period(one)):
                if not any(hits):
                    raise ValueError(wider._unknown(one, argument))
                seasons += _kept(self.seasons, hits)
                trends += _kept(self.trends, hits[len(self.seasons) :])
                names += _kept(columns, hits[len(self.seasons) + len(self.trends) :])
            else:
                seasons.append(_season(one, argument))
        found = Terms(list(dict.fromkeys(seasons)), list(dict.fromkeys(trends)), list(dict.fromkeys(names)))
        return found.every

    def _matches(self, given: Any) -> list[bool]:
        """Whether each term is meant by a name, a period or a term."""
        if isinstance(given, Columns):
            every = [kind == "exog" for kind in self.kinds]
            return [a and (given.names is None or b in given.names) for a, b in zip(every, self.labels, strict=True)]
        if isinstance(given, Season | Trend):
            return [one == given for one in self.seasons] + [one == given for one in self.trends] + [False] * len(
                self.columns
            )  # fmt: skip
        text = f"{given:g}" if isinstance(given, int | float) and not isinstance(given, bool) else given
        return [text in pair for pair in zip(self.labels, self.kinds, strict=True)]

    def _unknown(self, given: Any, argument: str, others: Sequence[str] = ()) -> str:
        known = list(dict.fromkeys([*self.kinds, *self.labels, *others]))
        if not known:
            return f"{argument} has {given!r}, and there is no season, trend or exog; leave it out."
        close = difflib.get_close_matches(str(given), known, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return f"{argument} has {given!r}; choose from {', '.join(map(repr, known))}.{hint}"


def _kept(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    return [value for value, flag in zip(values, flags, strict=False) if flag]


def _is_period(text: str) -> bool:
    """Whether this is a length of time."""
    try:
        return not is_number(text) and duration(text) > 0
    except ValueError:
        return False
