r"""Seasons: Fourier columns that are computed from the clock of the rows that are read.

A season of period :math:`\tau` has the columns :math:`\sin(2 \pi h t / \tau), \cos(2 \pi h t / \tau)`, h = 1, ..., H.
Where rows are whole steps apart and a period is a whole number of steps, a table over one period takes the place of
sines; seasons of which one is a multiple of the other share a table.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray

LARGEST_TABLE = 1 << 22  # entries, 32 MB
TOLERANCE = 1e-3  # steps by which a row may be off the grid


@dataclass(frozen=True)
class Grid:
    """Times ``origin + k step``, k whole; ``start`` is the season's time t at the origin, a whole number of steps.

    ``resolution`` is the relative precision of ``step``: a clock in seconds resolves a quarter of a microsecond.
    """

    origin: float
    step: float
    start: float
    resolution: float = 0.0

    def locate(self, clock: Array) -> int | IntArray | None:
        """Return the steps k of a clock (n,), or only the first if the others follow; None if rows are off the grid."""
        n, step = len(clock), self.step
        first = int(np.rint((clock[0] - self.origin) / step)) if n and np.isfinite(clock[0]) else 0
        away = np.arange(n, dtype=float)
        away *= step
        away += self.origin + first * step
        away -= clock
        if max(away.max(initial=0.0), -away.min(initial=0.0)) <= TOLERANCE * step:  # false for NaN
            return first
        k = (clock - self.origin) / step
        whole = np.rint(k)
        return whole.astype(np.int64) if np.abs(k - whole).max() <= TOLERANCE else None

    def time(self, clock: Array) -> Array:
        """Return the season's time t of a clock (n,)."""
        return np.asarray(clock - self.origin + self.start)

    def whole_steps(self, period: float) -> int:
        """Return the number of steps in a period if it is a whole number, otherwise 0."""
        steps = period / self.step
        whole = round(steps)
        return whole if abs(steps / whole - 1) <= self.resolution + 1e-12 else 0


@dataclass(frozen=True)
class Fourier:
    """Harmonics of one season; ``sines`` and ``cosines`` are those that have a column of each kind."""

    label: str
    period: float  # in units of the clock
    sines: tuple[int, ...]
    cosines: tuple[int, ...]

    @property
    def kinds(self) -> list[tuple[bool, int]]:
        """Whether a column is a cosine, and its harmonic, for each column in order."""
        return sorted(
            [*((False, h) for h in self.sines), *((True, h) for h in self.cosines)], key=lambda kind: (kind[1], kind[0])
        )

    @property
    def names(self) -> list[str]:
        return [f"{'cos' if cosine else 'sin'}({self.label}) {h}" for cosine, h in self.kinds]

    def columns(self, t: Array) -> Array:
        """Return the columns (n, q) at times t (n,), by multiplication of complex numbers."""
        turn = np.exp(2j * np.pi * ((t / self.period) % 1.0))
        out, power, reached = np.empty((len(t), len(self.kinds))), turn.copy(), 1
        for i, (cosine, h) in enumerate(self.kinds):
            for _ in range(h - reached):
                power *= turn
            reached = h
            out[:, i] = power.real if cosine else power.imag
        return out


class Table:
    """Values (L, q) of some of the columns of seasons over L steps, after which they repeat.

    Rows are given by their steps k: the first one if the others follow, or all of them.
    """

    def __init__(self, columns: IntArray, values: Array) -> None:
        self.columns, self.values = columns, values

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, k: int | IntArray, n: int) -> Array:
        """Return the columns (n, q)."""
        if not isinstance(k, int):
            return self.values[k % len(self)]
        first = k % len(self)
        if first + n <= len(self):
            return self.values[first : first + n]
        return np.resize(np.roll(self.values, -first, axis=0), (n, self.values.shape[1]))

    def predict(self, k: int | IntArray, n: int, coefficients: Array) -> Array:
        """Return the columns times coefficients (q,) or (q, c)."""
        if n < len(self):
            return np.asarray(self.rows(k, n) @ coefficients)
        values = self.values @ coefficients
        if isinstance(k, int):
            return np.resize(np.roll(values, -k % len(self), axis=0), (n, *coefficients.shape[1:]))
        return np.asarray(values.take(k % len(self), axis=0))

    def gradient(self, k: int | IntArray, slopes: Array) -> Array:
        """Return the transposed columns times slopes (n,) or (n, c): sums by phase come first where rows are many."""
        n, L = len(slopes), len(self)
        if n < L:
            return np.asarray(self.rows(k, n).T @ slopes)
        if isinstance(k, int):
            periods, rest = divmod(n, L)
            total = slopes[: n - rest].reshape(periods, L, *slopes.shape[1:]).sum(0)
            total[:rest] += slopes[n - rest :]
            return np.asarray(self.values.T @ np.roll(total, k % L, axis=0))
        phase, flat = k % L, slopes.reshape(n, -1)
        sums = np.stack([np.bincount(phase, column, L) for column in flat.T], axis=1)
        return (self.values.T @ sums).reshape(-1, *slopes.shape[1:])


class Plan(NamedTuple):
    """How the columns of seasons are computed: from tables, or from their sines for the seasons ``others``."""

    tables: list[Table]
    others: list[tuple[IntArray, Fourier]]


@dataclass(frozen=True)
class Seasons:
    """The columns of several seasons on the grid of a series."""

    grid: Grid
    waves: tuple[Fourier, ...]

    @property
    def names(self) -> list[str]:
        return [name for wave in self.waves for name in wave.names]

    def design(self, clock: Array) -> Array:
        """Return the columns (n, p) at a clock (n,)."""
        k, n = self.grid.locate(clock), len(clock)
        tables, others = plan(self, k is not None)
        out = np.empty((n, len(self.names)))
        for table in tables:
            out[:, table.columns] = table.rows(0 if k is None else k, n)
        for columns, wave in others:
            out[:, columns] = wave.columns(self.grid.time(clock))
        return out

    def predict(self, clock: Array, coefficients: Array) -> Array:
        """Return the columns at a clock (n,) times coefficients (p,) or (p, c)."""
        k, n = self.grid.locate(clock), len(clock)
        tables, others = plan(self, k is not None)
        terms = [table.predict(0 if k is None else k, n, coefficients[table.columns]) for table in tables]
        terms += [wave.columns(self.grid.time(clock)) @ coefficients[columns] for columns, wave in others]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def gradient(self, clock: Array, slopes: Array) -> Array:
        """Return the transposed columns at a clock (n,) times slopes (n,) or (n, c)."""
        k = self.grid.locate(clock)
        tables, others = plan(self, k is not None)
        out = np.empty((len(self.names), *slopes.shape[1:]))
        for table in tables:
            out[table.columns] = table.gradient(0 if k is None else k, slopes)
        for columns, wave in others:
            out[columns] = wave.columns(self.grid.time(clock)).T @ slopes
        return out

    def positions(self, clock: Array) -> tuple[Array, IntArray] | None:
        """Return the columns (L, p) over one period, and the position (n,) in it of each row at a clock (n,).

        None if rows are not more than positions, if they are off the grid, or if there is no period of whole steps that
        all seasons divide.
        """
        k, n = self.grid.locate(clock), len(clock)
        tables, others = plan(self, k is not None)
        if k is None or others or len(tables) != 1 or len(tables[0]) >= n:
            return None
        values = np.empty(tables[0].values.shape)
        values[:, tables[0].columns] = tables[0].values
        return values, (k + np.arange(n) if isinstance(k, int) else k) % len(values)


@lru_cache(maxsize=16)
def plan(seasons: Seasons, on_grid: bool) -> Plan:
    """Return how to compute the columns: rows on the grid take tables for periods of a whole number of steps."""
    sizes = [len(wave.kinds) for wave in seasons.waves]
    where = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    lengths = [seasons.grid.whole_steps(wave.period) if on_grid else 0 for wave in seasons.waves]
    groups: dict[int, list[int]] = {}  # length of the table -> seasons
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if lengths[i] and lengths[i] * len(where[i]) <= LARGEST_TABLE:
            groups.setdefault(next((L for L in groups if L % lengths[i] == 0), lengths[i]), []).append(i)
    tables = []
    for L, members in groups.items():
        values = np.empty((L, sum(len(where[i]) for i in members)))
        t, low = seasons.grid.start + seasons.grid.step * np.arange(L, dtype=float), 0
        for i in members:
            high = low + len(where[i])
            values[:, low:high] = seasons.waves[i].columns(t)
            low = high
        tables.append(Table(np.concatenate([where[i] for i in members]), values))
    done = {i for members in groups.values() for i in members}
    return Plan(tables, [(where[i], wave) for i, wave in enumerate(seasons.waves) if i not in done])
