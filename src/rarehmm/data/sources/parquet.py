"""Sources from Parquet files."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rarehmm.data.sources.checks import chosen, library, opening
from rarehmm.data.sources.combined import Times, join
from rarehmm.data.sources.mapped import check_size
from rarehmm.data.sources.table import Rows, Source, Stored


class Parquet(Stored):
    """Columns of a Parquet file, read one row group at a time; nulls become NaN.

    Page checksums are verified where the file has them; without them, damage that still decodes goes unnoticed.
    """

    word = "row group"

    def __init__(self, path: Path, label: str, columns: Sequence[str], lengths: Sequence[int], dtype: Any) -> None:
        super().__init__(label, lengths, len(columns), dtype)
        self.path, self.names, self.size = path, tuple(columns), path.stat().st_size

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "metadata"}

    @cached_property
    def metadata(self) -> Any:
        return library("pyarrow.parquet").read_metadata(self.path)

    def load(self, unit: int) -> Rows:
        check_size(self.path, self.size, self.where(int(self.edges[unit])))
        with library("pyarrow.parquet").ParquetFile(
            self.path, metadata=self.metadata, memory_map=True, page_checksum_verification=True
        ) as file:
            table = file.read_row_group(unit, columns=list(self.names or ()), use_threads=False)
        rows = np.empty((len(table), self.shape[1]), self.dtype)
        for i, name in enumerate(self.names or ()):
            column = table[name]
            if column.null_count and self.dtype.kind in "iu":
                raise ValueError(f"{name!r} is missing in {column.null_count} rows")
            rows[:, i] = (column.cast("float64", safe=False) if self.dtype.kind == "f" else column).to_numpy()
        return rows


def open_parquet(path: Path, columns: list[str], time: str | None) -> Source:
    """Open a Parquet file, or a folder of Parquet files in order of their names."""
    if path.is_dir():
        files = sorted(path.glob("*.parquet"))
        if not files:
            raise ValueError(f"{path} is a folder without Parquet files.")
        return join([open_parquet(file, columns, time) for file in files])
    pa, pq = library("pyarrow"), library("pyarrow.parquet")
    with opening(path):
        metadata = pq.read_metadata(path)
        kinds = {field.name: field.type for field in metadata.schema.to_arrow_schema()}
    lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if sum(lengths) == 0:
        raise ValueError(f"{path} has no rows.")
    t = pa.types
    numeric = {
        name: t.is_integer(k) or t.is_floating(k) or t.is_boolean(k) or t.is_decimal(k) for name, k in kinds.items()
    }
    wanted = chosen(path, columns, time, numeric)
    for name in wanted:
        if not numeric[name]:
            raise ValueError(f"{path}: {name!r} is {kinds[name]}, not numbers; choose another column, or convert it.")
    single = all(t.is_float32(kinds[name]) for name in wanted)
    source = Parquet(path.absolute(), str(path), wanted, lengths, np.float32 if single else np.float64)
    if time is not None:
        kind = kinds[time]
        if not (numeric[time] or t.is_timestamp(kind) or t.is_date(kind)):
            raise ValueError(f"{path}: {time!r} is {kind}, which is not a time; store a timestamp or numbers.")
        dtype = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
        labels = Parquet(path.absolute(), str(path), [time], lengths, dtype if dtype.kind in "Miu" else np.float64)
        source.index = Times(labels, time, getattr(kind, "tz", None))
    return source
