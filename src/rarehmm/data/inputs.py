"""Inputs: seasons, trends and the user's columns, as columns that are computed from the rows that are read.

A user writes terms (``Season``, ``Trend``, ``Columns``).  ``Inputs.of`` settles them against a series: its first time,
its step, the mean and standard deviation of columns.  The result computes columns, their product with coefficients and
the transposed product for any stretch of rows, and never holds the columns of a whole series.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.data.input_columns import are_default
from rarehmm.data.pieces import spread
from rarehmm.data.rows import Rows
from rarehmm.data.seasons import Fourier, Grid, Seasons
from rarehmm.data.series import STRETCH, Series
from rarehmm.data.trends import Curve
from rarehmm.data.workers import Item

SAMPLE = 20_000  # rows from which trends are standardised and combinations of columns are found
ORDERS = 8, 4  # harmonics of the first season and of each other one, unless a user says
FEWEST = 10  # rows that a trend needs
DAY = 86_400.0  # seconds
RESOLUTION = 5e-7  # seconds that a double resolves in this century
DEPENDENT = 1e-6  # relative length of what is left of a column that is a combination of others


# ---------------------------------------------------------------- terms
@dataclass(frozen=True)
class Season:
    """A season: Fourier columns sin(2 pi h t / period), cos(2 pi h t / period), h = 1, ..., order.

    Parameters
    ----------
    period : str or float
        A length of time such as "1D", "7D" or "12h", which needs a time index, or a number of steps of at least 2,
        whole or not.  With a time index, the length of a step is the median one, and phase comes from time, so that
        gaps and changed clocks do not shift it.
    order : int, optional
        Number of harmonics, at most half the number of steps in the period; by default 8 for the first season and 4 for
        each other one, or half the number of steps if this is less.  Harmonics that an earlier season has too are left
        out, as is the sine of a harmonic of two steps, which is 0.

    Examples
    --------
    >>> Season("1D", order=8), Season(1440)
    (Season(period='1D', order=8), Season(period=1440, order=None))
    """

    period: str | float
    order: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.period, str):
            duration(self.period)
        elif isinstance(self.period, bool) or not isinstance(self.period, int | float | np.number):
            raise TypeError(f'the period of a season is {self.period!r}; pass steps, or a length of time such as "1D".')
        elif not 2 <= self.period < np.inf:
            raise ValueError(f"the period of a season is {self.period} steps; it must have at least 2.")
        if self.order is not None:
            check_whole("order", self.order)

    @property
    def label(self) -> str:
        return self.period if isinstance(self.period, str) else f"{self.period:g}"


@dataclass(frozen=True)
class Trend:
    """A trend in time: linear, or a natural cubic spline.

    Parameters
    ----------
    knots : int or sequence, optional
        Number of evenly spaced knots between the ends of the series, or these knots: times if the series has a time
        index, otherwise row numbers.  None is a linear trend.

    Examples
    --------
    >>> Trend(), Trend(knots=5)
    (Trend(knots=None), Trend(knots=5))
    """

    knots: int | Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.knots is None:
            return
        if isinstance(self.knots, str | int) or not hasattr(self.knots, "__len__"):
            check_whole("knots", self.knots)
        elif len(self.knots) == 0:
            raise ValueError("knots is empty; pass a number of knots, or None for a linear trend.")
        else:
            object.__setattr__(self, "knots", tuple(self.knots))


@dataclass(frozen=True)
class Columns:
    """Columns of ``exog``.

    Parameters
    ----------
    names : sequence of str, optional
        Names of the columns, by default all.

    Examples
    --------
    >>> Columns(["temp", "load"])
    Columns(names=('temp', 'load'))
    """

    names: str | Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.names is not None:
            object.__setattr__(self, "names", (self.names,) if isinstance(self.names, str) else tuple(self.names))


Term = Season | Trend | Columns


# ---------------------------------------------------------------- inputs of a series
@dataclass(frozen=True)
class Chosen:
    """Columns of ``exog`` at ``positions``, standardised."""

    names: tuple[str, ...]
    positions: tuple[int, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]

    def design(self, exog: Array) -> Array:
        return (exog[:, self.positions] - self.means) / self.scales

    def part(self, columns: Sequence[int]) -> "Chosen":
        """Return some of the columns."""
        return Chosen(*(tuple(values[i] for i in columns) for values in astuple(self)))


@dataclass(frozen=True)
class Inputs:
    """Input columns of a series: seasons, then trends, then the user's columns.

    Fourier columns are not scaled (their standard deviation is the square root of one half); trends and the user's
    columns have mean 0 and standard deviation 1 over the series.  ``Inputs.of`` makes one.

    Attributes
    ----------
    seasons, trends, chosen
        The three kinds of columns; ``seasons`` and ``chosen`` may be None.
    has_times : bool
        Whether the clock of the series was in seconds.
    zone : str or None
        Time zone of the series, if it had one.
    end : int
        Row number that follows those of the series, if its clock counts rows.
    exog_names : tuple of str
        Names of all columns of the series' ``exog``.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Series
    >>> load = np.random.default_rng(0).normal(size=(100, 1))
    >>> series = Series(np.random.default_rng(1).normal(size=100), exog=load)
    >>> inputs = Inputs.of(series, [Season(24, order=1), Trend(), Columns()])
    >>> inputs.names
    ['sin(24) 1', 'cos(24) 1', 'trend', 'x0']
    >>> inputs.predict(series.read_rows(10, 13), np.ones(4)).shape
    (3,)
    """

    seasons: Seasons | None
    trends: tuple[Curve, ...]
    chosen: Chosen | None
    has_times: bool
    exog_names: tuple[str, ...]
    zone: str | None = None
    end: int = 0

    @classmethod
    def of(cls, series: Series, terms: Sequence[Term], usual: tuple[int, int] = ORDERS) -> "Inputs":
        """Settle terms against a series.

        Parameters
        ----------
        series : Series
            The series to be fitted, with ``exog`` if there are ``Columns`` among the terms.
        terms : sequence of Season, Trend or Columns
            What a user asks for.
        usual : tuple of int
            Harmonics of the first season and of each other one, if their order is not given.

        Returns
        -------
        Inputs
            Its columns are not combinations of each other and the intercept.

        Raises
        ------
        ValueError
            If a term does not suit the series, or if a column is a combination of those before it.
        """
        for term in terms:
            if not isinstance(term, Season | Trend | Columns):
                raise TypeError(f"{term!r} is not a term; pass Season, Trend or Columns.")
        waves = [term for term in terms if isinstance(term, Season)]
        curves = [term for term in terms if isinstance(term, Trend)]
        seasons = _seasons(series, waves, usual) if waves else None
        trends = tuple(_curve(series, term) for term in curves)
        chosen = _chosen(series, [term for term in terms if isinstance(term, Columns)])
        zone = None if series.clock.zone is None else str(series.clock.zone)
        end = 0 if series.has_times else int(series.bounds[-1] - series.bounds[-2])
        inputs = cls(seasons, trends, chosen, series.has_times, series.exog_names, zone, end)
        if inputs.size:
            rows = spread(series, SAMPLE)
            inputs = replace(inputs, trends=tuple(_standardised(curve, rows.clock) for curve in trends))
            _check_rank(series, inputs, rows)
        return inputs

    @property
    def names(self) -> list[str]:
        """Names of the columns: "sin(1D) 1", "cos(1D) 1", ..., "trend", and those of the user's columns."""
        own = list(self.chosen.names) if self.chosen else []
        return [*(self.seasons.names if self.seasons else []), *(n for t in self.trends for n in t.names), *own]

    @property
    def size(self) -> int:
        """Number of columns, p."""
        return len(self.names)

    @property
    def labels(self) -> list[str]:
        """Names of the terms: the periods of seasons, "trend" for each trend, and the names of the user's columns."""
        waves = [wave.label for wave in self.seasons.waves] if self.seasons else []
        return [*waves, *("trend" for _ in self.trends), *(self.chosen.names if self.chosen else ())]

    def part(self, keep: Sequence[bool]) -> "Inputs | None":
        """Return some of the terms, by a flag for each of ``labels``; None if there are none."""
        flags = iter(keep)
        waves = tuple(w for w in (self.seasons.waves if self.seasons else ()) if next(flags))
        trends = tuple(t for t in self.trends if next(flags))
        columns = [i for i in range(len(self.chosen.names) if self.chosen else 0) if next(flags)]
        seasons = Seasons(self.seasons.grid, waves) if self.seasons and waves else None
        chosen = self.chosen.part(columns) if self.chosen and columns else None
        return replace(self, seasons=seasons, trends=trends, chosen=chosen) if any(keep) else None

    def design(self, rows: Rows) -> Array:
        """Return the columns (n, p) of rows."""
        self._check_rows(rows)
        parts = [self.seasons.design(rows.clock)] if self.seasons else []
        parts += [curve.design(rows.clock) for curve in self.trends]
        parts += [self.chosen.design(rows.exog)] if self.chosen else []
        return np.concatenate(parts, axis=1) if parts else np.empty((len(rows.y), 0))

    def distinct(self, rows: Rows) -> tuple[Array, IntArray]:
        """Return columns (m, p), and which of them (n,) those of each row are.

        They are those of the L positions in the period where all inputs are seasons of whole steps and rows are
        more, so that what follows from inputs has to be computed L times; otherwise ``design(rows)``.
        """
        only = self.seasons is not None and not self.trends and self.chosen is None
        found = self.seasons.positions(rows.clock) if self.seasons and only else None
        return (self.design(rows), np.arange(len(rows.y))) if found is None else found

    def predict(self, rows: Rows, coefficients: Array) -> Array:
        """Return ``design(rows) @ coefficients`` without the columns of long seasons.

        Parameters
        ----------
        rows : Rows
            Of the series, or of one that ``check`` accepts.
        coefficients : ndarray, (p,) or (p, k)
            One coefficient per column, or k of them.

        Returns
        -------
        ndarray, (n,) or (n, k)
        """
        self._check_rows(rows)
        out, low = np.zeros((len(rows.y), *coefficients.shape[1:])), 0
        if self.seasons:
            low = len(self.seasons.names)
            out = self.seasons.predict(rows.clock, coefficients[:low])
        for curve in self.trends:
            high = low + len(curve.names)
            out = out + curve.predict(rows.clock, coefficients[low:high])
            low = high
        return out + self.chosen.design(rows.exog) @ coefficients[low:] if self.chosen else out

    def gradient(self, rows: Rows, slopes: Array) -> Array:
        """Return ``design(rows).T @ slopes``: slopes of a sum over rows with respect to the coefficients.

        Parameters
        ----------
        rows : Rows
            Of the series, or of one that ``check`` accepts.
        slopes : ndarray, (n,) or (n, k)
            Slopes with respect to what ``predict`` returns.

        Returns
        -------
        ndarray, (p,) or (p, k)
        """
        self._check_rows(rows)
        parts = [self.seasons.gradient(rows.clock, slopes)] if self.seasons else []
        parts += [curve.gradient(rows.clock, slopes) for curve in self.trends]
        parts += [self.chosen.design(rows.exog).T @ slopes] if self.chosen else []
        return np.concatenate(parts) if parts else np.empty((0, *slopes.shape[1:]))

    def in_user_units(self, coefficients: Array) -> tuple[Array, Array]:
        """Undo the standardisation of columns.

        Parameters
        ----------
        coefficients : ndarray, (p,) or (p, k)
            Coefficients of the standardised columns.

        Returns
        -------
        slopes : ndarray, (p,) or (p, k)
            Change per unit of the user's column; of a linear trend, per day or, without times, per row; of a spline,
            the level at each knot relative to that at the start.
        shift : ndarray, () or (k,)
            What is added to the intercept, so that intercept and slopes give the same predictions as before.
        """
        fourier = len(self.seasons.names) if self.seasons else 0
        scaled: list[Curve | Chosen] = [*self.trends, *([self.chosen] if self.chosen else [])]
        means = np.concatenate([np.zeros(fourier), *(part.means for part in scaled)])
        scales = np.concatenate([np.ones(fourier), *(part.scales for part in scaled)])
        slopes = (np.asarray(coefficients).T / scales).T
        return slopes, -np.asarray(means @ slopes)

    def check(self, series: Series) -> "Inputs":
        """Return the inputs for a new series, whose ``exog`` may have further columns or another order.

        Parameters
        ----------
        series : Series
            New data.  Columns are found by their names or, where either series has none, by their number.

        Returns
        -------
        Inputs
            To be used with the rows of the new series.

        Raises
        ------
        ValueError
            If columns or times are missing.
        """
        if (self.seasons or self.trends) and series.has_times != self.has_times:
            had, has = ("has no time index", "had one") if self.has_times else ("has a time index", "had none")
            raise ValueError(
                f"y {had} and the series that was fitted {has}; season and trend follow it. Pass data of the same form."
            )
        if self.seasons or self.trends:
            check_zone(series.clock.zone, self.zone)
        if not self.chosen:
            return replace(self, exog_names=series.exog_names)
        names = ", ".join(map(repr, self.chosen.names))
        if not series.exog_names:
            raise ValueError(f"future inputs missing: {names}; pass exog= with one row for each new observation.")
        if are_default(self.exog_names) or are_default(series.exog_names):
            if len(series.exog_names) != len(self.exog_names):
                raise ValueError(
                    f"exog has {len(series.exog_names)} columns and had {len(self.exog_names)} when the model was "
                    "fitted; pass the same columns, or give them names."
                )
            return replace(self, exog_names=series.exog_names)
        positions = tuple(_position(name, series.exog_names) for name in self.chosen.names)
        return replace(self, chosen=replace(self.chosen, positions=positions), exog_names=series.exog_names)

    def to_dict(self) -> dict[str, Any]:
        """Return a description that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "Inputs":
        """Return the inputs that ``to_dict`` described."""
        seasons, chosen = given["seasons"], given["chosen"]
        if seasons is not None:
            waves = tuple(Fourier(**_tuples(wave)) for wave in seasons["waves"])
            seasons = Seasons(Grid(**seasons["grid"]), waves)
        trends = tuple(Curve(**_tuples(curve)) for curve in given["trends"])
        chosen = None if chosen is None else Chosen(**_tuples(chosen))
        names, has_times = tuple(given["exog_names"]), bool(given["has_times"])
        return cls(seasons, trends, chosen, has_times, names, given["zone"], int(given["end"]))

    def _check_rows(self, rows: Rows) -> None:
        if self.chosen and rows.exog.shape[1] != len(self.exog_names):
            raise ValueError(
                f"rows have {rows.exog.shape[1]} input columns and {len(self.exog_names)} are needed; call "
                "Inputs.check for a new series."
            )


def check_zone(zone: Any, fitted: str | None) -> None:
    """Raise ValueError unless the time zone of new data is that of the series that was fitted."""
    if (name := None if zone is None else str(zone)) == fitted:
        return
    now, had = (f"in {one}" if one else "without a zone" for one in (name, fitted))
    way = f"y.tz_convert({fitted!r})" if name else f'y.tz_localize({fitted!r}, ambiguous="infer")'
    raise ValueError(
        f"the times of y are {now} and those of the series that was fitted {had}; season and trend follow local time. "
        f"Pass {way if fitted else 'local times, y.tz_localize(None)'}."
    )


def _tuples(given: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _position(name: str, names: tuple[str, ...]) -> int:
    """Return the number of a column, or raise ValueError with the closest names."""
    if name not in names:
        close = difflib.get_close_matches(str(name), names)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"exog has no column {name!r}; it has {', '.join(map(repr, names))}.{hint}")
    return names.index(name)


# ---------------------------------------------------------------- time
def duration(text: str) -> float:
    """Return the seconds in a length of time such as "1D" or "12h"."""
    import pandas as pd

    try:
        seconds = pd.Timedelta(text if text[:1].isdigit() else f"1{text}").total_seconds()
    except ValueError:
        raise ValueError(
            f'the period of a season is {text!r}; pass a number of steps, or a length of time such as "12h", "1D" or '
            '"7D". Months and years differ in length: "365.25D".'
        ) from None
    if not seconds > 0:
        raise ValueError(f"the period of a season is {text!r}; it must be positive.")
    return float(seconds)


def _longest(series: Series) -> tuple[int, int]:
    """Return the rows [first, last) of the longest sequence."""
    i = int(np.argmax(np.diff(series.bounds)))
    return int(series.bounds[i]), int(series.bounds[i + 1])


def _grid(series: Series) -> tuple[Grid, float]:
    """Return the grid of the rows of a series, and the time that its longest sequence covers."""
    first, last = _longest(series)
    origin = float(series.clock.at([0])[0])
    if not series.has_times:
        return Grid(origin, 1.0, origin), float(last - first)
    size = min(last - first, 1000)
    places = np.unique(np.linspace(first, last - size, 20).astype(int)).tolist()
    steps = np.concatenate([np.diff(series.clock.read(place, place + size)) for place in places])
    if not (steps > 0).any():
        raise ValueError("the times of y do not increase; a season needs the time of each row.")
    step = float(np.median(steps[steps > 0]))
    span = float(np.diff(series.clock.at([first, last - 1]))[0])
    whole = max(round(span / step), 1)
    if abs(span / whole / step - 1) < 1e-6:  # from end to end it is known more precisely
        step = span / whole
    return Grid(origin, step, round(origin / step) * step, RESOLUTION / max(span, step)), span + step


def _length(period: float, series: Series) -> str:
    """Describe a length of time in units of the clock."""
    if not series.has_times:
        return f"{period:g} steps"
    import pandas as pd

    return str(pd.Timedelta(seconds=period).round("ms" if period < 60 else "s"))


# ---------------------------------------------------------------- settling of terms
def _seasons(series: Series, terms: Sequence[Season], usual: tuple[int, int]) -> Seasons:
    for term in terms:
        if isinstance(term.period, str) and not series.has_times:
            raise ValueError(
                f"the season {term.period!r} is a length of time and y has no time index; give y a "
                "pandas.DatetimeIndex, or the period as a number of steps."
            )
    grid, span = _grid(series)
    waves: list[Fourier] = []
    frequencies: list[float] = []  # of harmonics that are there already
    for number, term in enumerate(terms):
        period = duration(term.period) if isinstance(term.period, str) else term.period * grid.step
        steps = grid.whole_steps(period) if period >= grid.step else 0
        wave = _wave(term, period, steps or period / grid.step, usual[min(number, 1)], frequencies)
        if period > span / 2:
            raise ValueError(
                f"the season {term.label!r} is longer than half the series, of which the longest sequence covers "
                f"{_length(span, series)}; pass a longer series, a shorter period, or a Trend."
            )
        frequencies += [h / period for h in wave.cosines]
        waves.append(wave)
    return Seasons(grid, tuple(waves))


def _wave(term: Season, period: float, steps: float, usual: int, before: Sequence[float]) -> Fourier:
    """Return the harmonics of a season of so many steps, without those whose frequencies are there already."""
    if steps < 2:
        raise ValueError(f"the season {term.label!r} has {steps:g} steps; it must have at least 2.")
    order = min(usual, int(steps / 2)) if term.order is None else term.order
    if order > steps / 2:
        raise ValueError(
            f"order is {order} and the season {term.label!r} has {steps:g} steps; the order is at most half of them, "
            f"{int(steps / 2)}."
        )
    cosines = tuple(h for h in range(1, order + 1) if not np.isclose(h / period, before, rtol=1e-9, atol=0).any())
    if not cosines:
        raise ValueError(f"the season {term.label!r} has no harmonic that those before it have not; leave it out.")
    return Fourier(term.label, float(period), tuple(h for h in cosines if 2 * h != steps), cosines)


def _curve(series: Series, term: Trend) -> Curve:
    first, last = _longest(series)
    if last - first < FEWEST:
        raise ValueError(
            f"the longest sequence has {last - first} rows and a trend needs {FEWEST}; leave out the trend."
        )
    origin, unit = (float(series.clock.at([0])[0]), DAY) if series.has_times else (0.0, 1.0)
    ends = np.concatenate([series.bounds[:-1], series.bounds[1:] - 1])
    found = (series.clock.at(ends if len(ends) <= 2000 else [first, last - 1]) - origin) / unit
    low, high = float(found.min()), float(found.max())
    if low == high:
        raise ValueError("the times of y do not increase; a trend needs the time of each row.")
    if term.knots is None:
        return Curve(origin, unit, ())
    if isinstance(term.knots, Sequence):
        inner = [(_moment(series, knot) - origin) / unit for knot in term.knots]
        for knot, x, before in zip(term.knots, inner, [low, *inner], strict=False):
            if not before < x < high:
                raise ValueError(
                    f"the knot {knot!r} is not between the one before and the end of the series; knots must increase, "
                    "within the series."
                )
    else:
        inner = np.linspace(low, high, int(term.knots) + 2)[1:-1].tolist()
    return Curve(origin, unit, (low, *inner, high))


def _moment(series: Series, knot: Any) -> float:
    """Return a knot in units of the clock."""
    if not series.has_times:
        if isinstance(knot, bool) or not isinstance(knot, int | float | np.number):
            raise ValueError(f"the knot {knot!r} is not a row number, and y has no time index.")
        return float(knot)
    import pandas as pd

    try:
        time = pd.Timestamp(knot)
    except (TypeError, ValueError):
        raise ValueError(f"the knot {knot!r} is not a time; pass text such as '2026-03-01', or a Timestamp.") from None
    if time.tz is not None:
        if series.clock.zone is None:
            raise ValueError(f"the knot {knot!r} has a time zone and y has none, or several; pass local time.")
        time = time.tz_convert(series.clock.zone).tz_localize(None)
    return float((time - pd.Timestamp(0)).total_seconds())


def _standardised(curve: Curve, clock: Array) -> Curve:
    raw = curve.raw(clock)
    return replace(curve, means=tuple(raw.mean(0).tolist()), scales=tuple(raw.std(0).tolist()))


def _chosen(series: Series, terms: Sequence[Columns]) -> Chosen | None:
    if not terms:
        return None
    if not series.exog_names:
        raise ValueError("there are Columns among the inputs and the series has none; pass exog=.")
    names = [name for term in terms for name in (series.exog_names if term.names is None else term.names)]
    positions = tuple(_position(name, series.exog_names) for name in names)
    found = [series.exog_summaries[i] for i in positions]
    for name, summary in zip(names, found, strict=True):
        if summary.low == summary.high:
            raise ValueError(
                f"exog column {name!r} is constant ({summary.low:g}); intercepts are always there. Leave it out."
            )
    scales = tuple(float(np.sqrt(s.variance)) for s in found)
    return Chosen(tuple(names), positions, tuple(s.mean for s in found), scales)


# ---------------------------------------------------------------- columns that are combinations of others
def _check_rank(series: Series, inputs: Inputs, rows: Rows) -> None:
    """Raise ValueError if a column is a combination of the intercept and the columns before it.

    Candidates are found in a sample of rows, and then looked at in all rows: a column that is rarely other than 0 may
    be a combination of others in the sample alone.
    """
    X, names = np.column_stack([np.ones(len(rows.y)), inputs.design(rows)]), ["the intercept", *inputs.names]
    if len(X) < X.shape[1]:
        raise ValueError(
            f"there are {inputs.size} input columns and an intercept for {len(X)} observations; lower the order of "
            "seasons, or pass fewer columns."
        )
    kept = [0, *(j for j in range(1, X.shape[1]) if np.ptp(X[:, j]) > 0)]  # of others the sample says nothing
    while True:
        R = np.asarray(np.linalg.qr(X[:, kept], mode="r"))
        dependent = np.abs(np.diag(R)) < DEPENDENT * np.linalg.norm(R, axis=0)
        if not dependent.any():
            return
        i = int(np.argmax(dependent))
        weights = np.zeros(X.shape[1])
        weights[kept[:i]] = np.linalg.solve(R[:i, :i], R[:i, i])
        if _largest_residual(series, inputs, kept[i], weights) < 10 * DEPENDENT * (1 + np.abs(weights).sum()):
            largest = np.abs(weights).max()
            others = [names[k] for k in kept[:i] if abs(weights[k]) > 1e-3 * largest] or ["the intercept"]
            more = f" and {len(others) - 4} more" if len(others) > 4 else ""
            raise ValueError(
                f"input {names[kept[i]]!r} is a combination of {', '.join(others[:4])}{more}; leave it out, since the "
                "coefficients of these cannot be told apart."
            )
        del kept[i]


def _largest_residual(series: Series, inputs: Inputs, column: int, weights: Array) -> float:
    """Return the largest distance of a column from a combination of others, over all rows."""
    T, coefficients = len(series), -weights[1:]
    coefficients[column - 1] += 1
    work = Distance(inputs.predict, coefficients, float(weights[0]))
    items = [Item(low, min(low + STRETCH, T), ()) for low in range(0, T, STRETCH)]
    return max(series.over_rows(work, items))


@dataclass(frozen=True)
class Distance:
    """Largest absolute difference of a prediction from a constant, for a stretch of rows."""

    predict: Callable[[Rows, Array], Array]
    coefficients: Array
    constant: float

    def __call__(self, rows: Rows) -> float:
        return float(np.abs(self.predict(rows, self.coefficients) - self.constant).max())
