"""Readers for files: CSV (also gzipped), npy, npz and netCDF, by column name.  Nothing stored in a file is executed.

Every reader returns a pandas DataFrame of the requested columns, indexed by time if a time column is named.  Parquet,
Zarr and large npy files are not loaded: ``open_files`` returns a source that reads them a chunk at a time.
"""

import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.tseries.api import guess_datetime_format

from rarehmm.data.sources import is_path, open_source
from rarehmm.data.sources.checks import chosen, existing, opening, said
from rarehmm.data.sources.combined import Times
from rarehmm.data.sources.table import Source
from rarehmm.data.zones import localized

SUPPORTED = "CSV (.csv, .csv.gz, .txt, .tsv), .npy, .npz, netCDF (.nc), .parquet and .zarr"
LARGE = 64 << 20  # bytes; .npy files larger than this are not read into memory
SINCE_1970 = {"unix": "s", "unix_ms": "ms", "unix_us": "us", "unix_ns": "ns"}  # units of numbers that count from then
SEPARATORS = {"tab": "\t", "\\t": "\t", "space": r"\s+", " ": r"\s+"}  # what they are called -> what pandas takes
NAMES = {"\t": "tab"}
DATE = re.compile(r"\d{4}-\d|\d{1,2}[/.-]\d{1,2}[/.-]\d")
YEAR = re.compile(r"(?<![\d.:])\d{4}(?!\d*:)|\d{1,2}[/.-]\w+[/.-]\d{2}")  # in a text with a date
ZONE = re.compile(r"\d ?([A-Z]{2,5})$")
SLASHED = re.compile(r"\s*(\d{1,2})[/.-](\d{1,2})[/.-](\d+)")  # a date that does not begin with its year


class TextFormat(NamedTuple):
    """How text files are written: the format of times, as for ``strftime`` or one of ``SINCE_1970``, what separates
    columns (a character, "tab" or "space"), and the decimal sign."""

    date_format: str | None = None
    sep: str | None = None
    decimal: str = "."


PLAIN = TextFormat()


def open_files(
    paths: Sequence[str],
    columns: Sequence[str] = (),
    time: str | None = None,
    text: TextFormat = PLAIN,
    time_zone: str | None = None,
) -> pd.DataFrame | Source:
    """Open files that follow one another in time: as a lazy source where possible, else as a DataFrame.

    With ``time_zone``, times are put into this zone: local times are in it, others are converted.
    """
    for path in paths:
        existing(Path(path))
    lazy = [is_path(path) for path in paths]
    if any(lazy) and not all(lazy):
        raise ValueError(f"{', '.join(paths)} are of different types and cannot be joined; pass files of one type.")
    small = all(path.endswith(".npy") for path in paths) and sum(Path(path).stat().st_size for path in paths) <= LARGE
    if all(lazy) and not small:
        refuse_format(paths[0], text)
        source = open_source(list(paths), columns, time)
        if time_zone is not None:
            source.index = stored_in_zone(source.index, time_zone, paths[0])
        return source
    tables = [read_file(path, columns, time, text) for path in paths]
    whole = tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=tables[0].index.name is None)
    if time_zone is None:
        return whole
    return whole.set_axis(in_zone(whole.index, time_zone, paths, tables, text.date_format))


def stored_in_zone(times: Any, zone: str, path: str) -> Times:
    """Return times that are read on request, in a zone."""
    if not isinstance(times, Times) or not times.zone:
        raise ValueError(
            f"--time-zone is {zone!r} and {path} has times without a zone, which are read as stored; store them in "
            "UTC, or pass a text file."
        )
    return Times(times.source, times.name, zone)


def in_zone(
    index: pd.Index, zone: str, paths: Sequence[str], tables: Sequence[pd.DataFrame], date_format: str | None
) -> pd.DatetimeIndex:
    """Return times of the rows of files in a zone."""

    def place(row: int) -> str:
        starts = np.cumsum([0, *map(len, tables)])
        part = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{paths[part]}: {index.name!r} in row {row - starts[part] + 1}"

    if not isinstance(index, pd.DatetimeIndex):
        raise ValueError(
            f"--time-zone is {zone!r} and {index.name!r} of {paths[0]} holds no dates; for seconds since 1970, give "
            "--date-format unix."
        )
    if index.tz is None and date_format not in SINCE_1970:
        found: pd.DatetimeIndex = localized(index, zone, place)
        return found
    return (index.tz_localize("UTC") if index.tz is None else index).tz_convert(zone)


def refuse_format(path: object, text: TextFormat) -> None:
    """Raise ValueError if there is a format of text for a file that is none."""
    for name, given, usual in zip(text._fields, text, PLAIN, strict=True):
        if given != usual:
            raise ValueError(
                f"--{name.replace('_', '-')} is {given!r} and {path} is not a text file; its values are read as stored."
            )


def read_file(
    path: str | Path, columns: Sequence[str] = (), time: str | None = None, text: TextFormat = PLAIN
) -> pd.DataFrame:
    """Read ``columns`` of a file, by default its only numeric one, indexed by the column ``time`` if given.

    In files without column names, columns are called 0, 1, ...
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; pass the name of a file.")
    existing(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty.")
    frame = reader(path)(path, list(columns), time, text)
    if len(frame) == 0:
        raise ValueError(f"{path} has no rows.")
    return frame


def reader(path: Path) -> Callable[[Path, list[str], str | None, TextFormat], pd.DataFrame]:
    """Return the reader for a file, chosen by its extension."""
    name = path.name.lower()
    for endings, function in (
        ((".csv", ".csv.gz", ".txt", ".txt.gz", ".tsv", ".tsv.gz"), read_csv),
        ((".npy",), read_npy),
        ((".npz",), read_npz),
        ((".nc", ".nc4", ".netcdf", ".cdf"), read_netcdf),
    ):
        if name.endswith(endings):
            return function
    raise ValueError(f"{path} has an unknown file type; supported are {SUPPORTED}.")


# ---------------------------------------------------------------- CSV
def read_csv(path: Path, columns: list[str], time: str | None, text: TextFormat) -> pd.DataFrame:
    sep = text.sep or ("\t" if ".tsv" in path.name.lower() else ",")
    options: dict[str, Any] = {
        "sep": SEPARATORS.get(sep, sep), "decimal": text.decimal, "skipinitialspace": True, "skip_blank_lines": False,
        "index_col": False, "low_memory": False,
    }  # fmt: skip
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows that are longer than the line of names
            first = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
            check_first_line(path, names := first.iloc[0].tolist(), sep)
            if all(is_number(name) for name in names):  # no header: the first row is data
                options |= {"header": None, "names": [str(i) for i in range(len(names))]}
            head = pd.read_csv(path, nrows=200, **options)
            numeric = {str(c): pd.api.types.is_numeric_dtype(head[c]) for c in head.columns}
            wanted = chosen(path, columns, time, numeric)
            check_unique(path, names, [*wanted, *([time] if time is not None else [])])
            table: pd.DataFrame = pd.read_csv(path, **options)  # all columns: else rows that are too long are cut
    except (EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {error}. It may be cut off, or have the wrong extension.") from None
    except UnicodeError as error:
        raise ValueError(f"{path} cannot be read as CSV: {said(error)}. Save it as text in UTF-8.") from None
    except pd.errors.ParserWarning:
        remedy = "Remove lines above the names of the columns, or pass --sep if columns are not separated by"
        raise ValueError(f"{path} has rows with more fields than its first line. {remedy} {sep!r}.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(
            f"{path} cannot be read as CSV: {said(error)}. The first line must have the names, and all rows as many "
            "fields."
        ) from None
    there = np.flatnonzero(table.notna().any(axis=1))
    table = table[: there[-1] + 1 if len(there) else 0]  # blank lines at the end are no rows
    for name in wanted:
        table[name] = as_numbers(path, name, table[name], text.decimal)
    if time is None:
        return table[wanted]
    return table[wanted].set_index(as_times(path, time, table[time], text.date_format))


def check_first_line(path: Path, names: list[str], sep: str) -> None:
    """Raise ValueError if the first line shows that columns are separated by something else, or that it has data."""
    if len(names) == 1 and names[0].replace("\t", "").isprintable():
        others = [other for other in ";\t|," if other != sep and other in names[0]]
        if others:
            raise ValueError(
                f"{path} has a single column, {names[0]!r}, if columns are separated by {sep!r}; pass --sep "
                f"{NAMES.get(others[0], repr(others[0]))}."
            )
    numbers = [name for name in names if is_number(name)]
    if 0 < len(numbers) < len(names) and all(DATE.match(name) for name in names if not is_number(name)):
        raise ValueError(f"{path} has values in its first line, {', '.join(names)}; add a line with names above it.")


def check_unique(path: Path, names: list[str], used: list[str]) -> None:
    """Raise ValueError if several columns have a name that is used."""
    for name in used:
        if names.count(name) > 1:
            raise ValueError(f"{path} has {names.count(name)} columns {name!r}; give each a name of its own.")


def is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def as_numbers(path: Path, name: str, values: pd.Series, decimal: str = ".") -> pd.Series:
    """Convert a column to floats; empty fields become NaN, other text raises an error with its row."""
    if pd.api.types.is_numeric_dtype(values):
        return values.astype(float)
    texts = values.astype(str)
    if decimal != ".":
        texts = texts.mask(texts.str.contains(".", regex=False), "").str.replace(decimal, ".", regex=False)
    numbers = pd.to_numeric(texts, errors="coerce")
    bad = numbers.isna() & values.notna()
    if bad.any():
        row = int(np.argmax(bad.to_numpy()))
        value = str(values.iloc[row])
        raise ValueError(f"{path}: {name!r} is {value!r} in row {row + 1}, which is not a number; {remedy(value)}.")
    return numbers.mask(values.isna()).astype(float)


def remedy(value: str) -> str:
    """Say what can be done about text in the place of a number."""
    if re.fullmatch(r"[-+\d.,' ]*\d", value) and re.search(r"\d[.,' ]\d", value):
        if " " in value:
            return "pass --sep space if spaces separate columns; separators of thousands must be removed"
        return "pass --decimal , if the comma is the decimal sign; separators of thousands must be removed"
    if not re.search(r"\d", value):
        return "leave gaps empty, and remove lines of units or comments"
    return "remove units, so that only the number is left"


def as_times(path: Path, name: str, values: pd.Series, date_format: str | None = None) -> pd.Index:
    """Convert a column to an index: numbers without a format stay as they are, the rest is parsed as timestamps."""
    is_number = pd.api.types.is_numeric_dtype(values)
    if is_number and date_format is None:
        numbers: pd.Index = pd.Index(values, name=name)
        return numbers
    options: dict[str, Any] = {"format": date_format}
    if date_format in SINCE_1970:
        values, options = as_numbers(path, name, values), {"unit": SINCE_1970[date_format]}
    elif is_number:
        values = values.astype(str)
    elif date_format is None and pd.api.types.is_string_dtype(values):
        options = {"dayfirst": is_day_first(path, name, values)}
    if date_format is None:
        check_zones(path, name, values.astype(str))
    if date_format not in SINCE_1970:
        options["utc"] = bool(values.astype(str).str.contains(r"Z|:\d\d.*[+-]\d\d:?\d\d$").any())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # pandas warns when it infers the format row by row
        times = pd.to_datetime(values, errors="coerce", **options)
        if times.isna().any() and date_format is None:  # midnight may have no time of the day
            whole = pd.to_datetime(values, errors="coerce", **{**options, "dayfirst": False, "format": "ISO8601"})
            times = times if whole.isna().any() else whole
    if times.isna().any():
        row = int(np.argmax(times.isna().to_numpy()))
        remedy = "give its format, such as --date-format '%d.%m.%Y %H:%M'"
        if date_format is not None:
            remedy = f"the format is {date_format!r}"
        raise ValueError(
            f"{path}: {name!r} is {values.iloc[row]!r} in row {row + 1}, which is not a timestamp; {remedy}."
        )
    undated = ~values.astype(str).str.contains(YEAR).to_numpy()
    if date_format is None and undated.any():
        row = int(np.argmax(undated))
        raise ValueError(
            f"{path}: {name!r} is {values.iloc[row]!r} in row {row + 1}, which has no date with a year: add it, or "
            "count rows without --time."
        )
    return pd.Index(times, name=name)


def check_zones(path: Path, name: str, texts: pd.Series) -> None:
    """Raise ValueError if times have the abbreviation of a zone, which may stand for several."""
    zones = texts.str.extract(ZONE, expand=False)
    other = (zones.notna() & ~zones.isin(["UTC", "GMT", "AM", "PM"])).to_numpy()
    if other.any():
        row = int(np.argmax(other))
        raise ValueError(
            f"{path}: {name!r} is {texts.iloc[row]!r} in row {row + 1}, and {zones.iloc[row]} may be several zones; "
            "write times in UTC, or with their offset, such as +01:00."
        )


def is_day_first(path: Path, name: str, values: pd.Series) -> bool:
    """Return whether dates such as 13/01/2026 begin with the day; raise ValueError if nothing in the file tells."""
    dates = {text: found for text in values.dropna().str[:10].unique() if (found := SLASHED.match(text))}
    if not dates:
        return False
    first, second = (max(int(found[i]) for found in dates.values()) for i in (1, 2))
    if all(len(found[3].strip()) == 4 for found in dates.values()) and (first > 12) != (second > 12):
        return first > 12
    text = next(iter(dates))
    row = int(np.argmax(values.str.startswith(text, na=False).to_numpy()))
    whole = values.iloc[row]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # one of the two may be impossible
        ways = [guess_datetime_format(whole, dayfirst=day_first) for day_first in (True, False)]
    known = [repr(way) for way in dict.fromkeys(ways) if way]
    raise ValueError(
        f"{path}: {name!r} is {whole!r} in row {row + 1}, and nothing in the file tells day from month; give the "
        f"format with --date-format, such as {' or '.join(known) or repr('%d/%m/%Y')}."
    )


# ---------------------------------------------------------------- NumPy
def read_npy(path: Path, columns: list[str], time: str | None, text: TextFormat) -> pd.DataFrame:
    values = load_numpy(path)
    if isinstance(values, dict):
        raise ValueError(f"{path} holds several arrays; give it the extension .npz.")
    if values.ndim not in (1, 2):
        raise ValueError(f"{path} has shape {values.shape}; it must be (rows,) or (rows, columns).")
    table = values.reshape(len(values), -1)
    check_numeric(path, "it", table)
    numeric = {str(i): True for i in range(table.shape[1])}
    wanted = chosen(path, columns, time, numeric)
    index = None if time is None else as_times(path, time, pd.Series(table[:, int(time)]), text.date_format)
    return pd.DataFrame({name: table[:, int(name)].astype(float) for name in wanted}, index=index)


def read_npz(path: Path, columns: list[str], time: str | None, text: TextFormat) -> pd.DataFrame:
    arrays = load_numpy(path)
    if not isinstance(arrays, dict):
        raise ValueError(f"{path} holds a single array; give it the extension .npy.")
    numeric = {name: array.ndim == 1 and array.dtype.kind in "iufb" for name, array in arrays.items()}
    wanted = chosen(path, columns, time, numeric)
    for name in wanted:
        if arrays[name].ndim != 1:
            raise ValueError(f"{path}: {name!r} has shape {arrays[name].shape}; it must be one-dimensional.")
        check_numeric(path, repr(name), arrays[name])
    used = [*wanted, *([time] if time is not None else [])]
    if len(lengths := {len(arrays[name]) for name in used}) > 1:
        raise ValueError(
            f"{path}: {', '.join(used)} have lengths {', '.join(map(str, sorted(lengths)))}; they must be equal."
        )
    index = None if time is None else as_times(path, time, pd.Series(arrays[time]), text.date_format)
    return pd.DataFrame({name: arrays[name].astype(float) for name in wanted}, index=index)


def load_numpy(path: Path) -> Any:
    """Return the array of a .npy file, or a dict of the arrays of a .npz file."""
    with opening(path), path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        return dict(loaded) if hasattr(loaded, "files") else loaded


def check_numeric(path: Path, what: str, values: Any) -> None:
    if values.dtype.kind not in "iufb":
        raise ValueError(f"{path}: {what} holds {values.dtype}, not numbers.")


# ---------------------------------------------------------------- netCDF
def read_netcdf(path: Path, columns: list[str], time: str | None, text: TextFormat) -> pd.DataFrame:
    import xarray as xr

    refuse_format(path, text)
    try:
        data = xr.load_dataset(path, engine="scipy" if path.read_bytes()[:3] == b"CDF" else "h5netcdf")
    except Exception as error:  # the exception type depends on the backend
        raise ValueError(f"{path} cannot be read as netCDF: {str(error).splitlines()[0]}") from None
    numeric = {str(name): data[name].ndim == 1 and data[name].dtype.kind in "iuf" for name in data.variables}
    coordinates = {str(name) for name in data.coords}
    wanted = chosen(path, columns, time, {n: good and n not in coordinates for n, good in numeric.items()})
    for name in wanted:
        if data[name].ndim != 1:
            raise ValueError(
                f"{path}: {name!r} has dimensions {', '.join(map(str, data[name].dims))}; it must have one."
            )
    along = time if time is not None else str(data[wanted[0]].dims[0])
    index = pd.Index(data[along].values, name=along) if along in data.variables else None
    return pd.DataFrame({name: data[name].values.astype(float) for name in wanted}, index=index)
