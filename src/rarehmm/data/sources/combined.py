"""Sources made from other sources: concatenation in time, a choice of columns, and the times of rows."""

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np

from rarehmm.data.sources.checks import chosen
from rarehmm.data.sources.table import Rows, Source, joined


class Joined(Source):
    """Concatenation of several sources along time."""

    def __init__(self, sources: Sequence[Source]) -> None:
        first = sources[0]
        for other in sources[1:]:
            if (other.shape[1], other.names) != (first.shape[1], first.names):
                has, had = (
                    f"{s.where(0)} has {', '.join(s.names or [f'{s.shape[1]} columns'])}" for s in (other, first)
                )
                raise ValueError(f"{has} and {had}; files of one sequence must have the same columns.")
        self.sources = tuple(sources)
        self.offsets = np.concatenate([[0], np.cumsum([len(s) for s in sources])]).astype(np.int64)
        self.shape = (int(self.offsets[-1]), first.shape[1])
        self.dtype = np.result_type(*(s.dtype for s in sources))
        self.names = first.names

    def read(self, first: int, last: int) -> Rows:
        low = int(np.searchsorted(self.offsets, first, side="right")) - 1
        high = int(np.searchsorted(self.offsets, last))
        parts = zip(self.sources[low:high], self.offsets[low:high].tolist(), strict=True)
        return joined([source[max(first - offset, 0) : last - offset] for source, offset in parts])

    def where(self, row: int) -> str:
        part = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return self.sources[part].where(row - int(self.offsets[part]))


class Picked(Source):
    """Some columns of a source."""

    def __init__(self, source: Source, columns: Sequence[int]) -> None:
        self.source, self.columns = source, list(columns)
        self.shape, self.dtype = (len(source), len(columns)), source.dtype

    def read(self, first: int, last: int) -> Rows:
        return self.source.read(first, last)[:, self.columns]

    def where(self, row: int) -> str:
        return self.source.where(row)


class Beside(Source):
    """Columns of several tables with the same rows, side by side."""

    def __init__(self, tables: Sequence[Any]) -> None:
        self.tables, self.dtype = tuple(tables), np.dtype(np.float64)
        self.shape = len(tables[0]), sum(t.shape[1] for t in tables)

    def read(self, first: int, last: int) -> Rows:
        return np.concatenate([np.asarray(t[first:last], dtype=float) for t in self.tables], axis=1)

    def where(self, row: int) -> str:
        return "; ".join(t.where(row) for t in self.tables if isinstance(t, Source))


class Times:
    """Times of rows, read on request; ``times[a:b]`` and ``times[rows]`` are pandas indices."""

    nlevels = 1

    def __init__(self, source: Source, name: str, zone: str | None = None) -> None:
        self.source, self.name, self.zone, self.dtype = source, name, zone, source.dtype

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            return self._labels(self.source[rows])
        if np.ndim(rows) == 0:
            row = range(len(self))[rows]
            return self[row : row + 1][0]
        return self._labels(np.concatenate([self.source[row : row + 1] for row in np.asarray(rows).tolist()]))

    def _labels(self, values: Rows) -> Any:
        import pandas as pd

        labels: Any = pd.Index(values[:, 0], name=self.name)
        return labels.tz_localize("UTC").tz_convert(self.zone) if self.zone else labels

    def get_loc(self, label: Any) -> int:
        """First row with a label."""
        row = bisect.bisect_left(self, label)
        if row == len(self) or self[row] != label:
            raise KeyError(label)
        return row


def numbered(source: Source, label: str, columns: Sequence[str], time: str | None) -> Source:
    """Choose columns of a table without names; they are called 0, 1, ..."""
    wanted = chosen(label, columns, time, {str(i): True for i in range(source.shape[1])})
    picked = Picked(source, [int(name) for name in wanted])
    if time is not None:
        picked.index = Times(Picked(source, [int(time)]), time)
    return picked


def join(sources: Sequence[Source]) -> Source:
    """Concatenate sources in order of time into one source with one index."""
    if len(sources) == 1:
        return sources[0]
    whole = Joined(sources)
    times = [s.index for s in sources]
    if all(isinstance(t, Times) for t in times):
        for t in times:
            if t.dtype.kind != times[0].dtype.kind:
                here, first = t.source.where(0), times[0].source.where(0)
                raise ValueError(f"{t.name!r} is {t.dtype} in {here} and {times[0].dtype} in {first}; they must agree.")
        whole.index = Times(Joined([t.source for t in times]), times[0].name, times[0].zone)
    return whole
