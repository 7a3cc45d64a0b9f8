r"""Solar X-ray flux of the GOES satellites (Ou et al., section 5.1): readers, baseline, residual, spikes.

The paper averages GOES-13 and GOES-15 from September 2017 to April 2018 and has T = 347,875 minutes: 605 less than
these eight months have, probably those without any observation, which it dropped.  Here they stay, as NaN, on a
regular grid; ``flux[~np.isnan(flux)]`` is the paper's form.

The archive of NOAA keeps two products of one minute, and each is read here:

* the legacy files ``g15_xrs_1m_*.csv`` and ``.nc`` (netCDF-3), a month each, whose flux carries the operational factor
  0.7 (divide by it for W/m2), as was current when the paper was written;
* the science-quality files ``sci_xrsf-l2-avg1m_g15_*.nc`` (netCDF-4, that is HDF5), of a day, a year or the whole
  mission, without the factor.
"""

import gzip
import pathlib
import re
import zlib
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.io import netcdf_file

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.transforms import baseline

Times = npt.NDArray[np.datetime64]  # by the minute

PAPER_LENGTH = 347_875
PAPER_BLOCKS = ((1, 1.86e4), (1.9e4, 2.2e5), (2.2e5, 2.5e5), (2.5e5, PAPER_LENGTH))  # fifty knots each
SATELLITES = ("13", "15")
G16_FOLDER, G16_FILE = "goes_g16_2022", "g16_xrs_1m_20220101_20220814.npz"  # the stand-in
G16_PERIOD = np.datetime64("2022-01-01T00:00", "m"), np.datetime64("2022-08-14T23:59", "m")
NAME = re.compile(r"(?:g(\d\d)_xrs_1m_.*\.(?:csv|csv\.gz|nc)|(sci)_xrsf-l2-avg1m_g(\d\d)_.*\.nc)")
LAYOUTS = (  # of netCDF files: names of time, flux and flag
    ("time", "xrsb_flux", "xrsb_flag"),
    ("time", "xrsb_flux", "xrsb_flags"),
    ("time_tag", "B_AVG", "B_QUAL_FLAG"),
)
MILLISECONDS = {"milliseconds": 1, "seconds": 1000}


# ---------------------------------------------------------------- files of the archive
def read_csv(path: str | pathlib.Path) -> tuple[Times, Array]:
    """Read minutes and long-wave flux (``B_AVG``, 0.1-0.8 nm) from a legacy CSV file, plain or ``.gz``.

    The archive's header, with or without its line ``data:``, ends at the column names.  The flux is NaN where it is
    missing (-99999) or ``B_QUAL_FLAG`` is not 0.
    """
    path = pathlib.Path(path)
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            columns = _columns(file, path)
            rows = [line for line in file if line.strip()]
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}. Download it again.") from None
    if not rows:
        raise ValueError(f"{path} ends after the column names; there are no rows. Download it again.")
    kinds = np.dtype([("time_tag", "datetime64[ms]"), ("B_QUAL_FLAG", "f8"), ("B_AVG", "f8")])
    try:
        table = np.loadtxt(rows, kinds, delimiter=",", usecols=[columns.index(name) for name in kinds.names or ()])
    except ValueError as error:
        raise ValueError(f"{path} cannot be read after the column names: {error} Download it again.") from None
    table = np.atleast_1d(table)
    return table["time_tag"].astype("datetime64[m]"), _good(table["B_AVG"], table["B_QUAL_FLAG"] == 0)


def _columns(file: IO[str], path: pathlib.Path) -> list[str]:
    """Skip the header and return the column names."""
    for line in file:
        columns = line.strip().split(",")
        if {"time_tag", "B_QUAL_FLAG", "B_AVG"} <= set(columns):
            return columns
    raise ValueError(
        f"{path} has no line with the columns time_tag, B_QUAL_FLAG and B_AVG; it is not a monthly file of one-minute "
        "averages (g13_xrs_1m_*.csv, g15_xrs_1m_*.csv)."
    )


def read_netcdf(path: str | pathlib.Path) -> tuple[Times, Array]:
    """Read minutes and long-wave flux (0.1-0.8 nm) from a netCDF file of GOES-13 or GOES-15.

    Science-quality and legacy files are accepted.  The flux is NaN where it is missing or its flag is not 0, the only
    value for good data (others mean bad data, eclipse by the Earth, or temperature recovery).
    """
    times, flux, flag = read_minutes(path)
    return times, _good(flux, flag == 0)


class Minutes(NamedTuple):
    """Rows of a netCDF file as they are: minutes, long-wave flux and its flag."""

    times: Times
    flux: Array
    flag: Array


def read_minutes(path: str | pathlib.Path) -> Minutes:
    """Read minutes, long-wave flux (0.1-0.8 nm) and its flag from a netCDF file, science-quality or legacy."""
    path = pathlib.Path(path)
    with open(path, "rb") as file:
        magic = file.read(4)
    if magic[:3] == b"CDF":
        variables = _netcdf3(path)
    elif magic == b"\x89HDF":
        variables = _hdf5(path)
    else:
        raise ValueError(f"{path} starts with {magic!r}; it is neither netCDF-3 nor netCDF-4. Download it again.")
    for names in LAYOUTS:
        if set(names) <= set(variables):
            time, flux, flag = (variables[name] for name in names)
            valid = np.isfinite(time.values) & (time.values > 0)
            if not valid.any():
                raise ValueError(f"{path} holds no data; its {names[0]!r} is empty. Download it again.")
            times = _times(time.values[valid], time.units, path)
            return Minutes(times, flux.values[valid], flag.values[valid])
    raise ValueError(
        f"{path} has none of the sets of variables {LAYOUTS}; it is not a file of one-minute averages of the X-ray "
        "sensor (sci_xrsf-l2-avg1m_g15_*.nc or g15_xrs_1m_*.nc)."
    )


class _Variable(NamedTuple):
    values: Array
    units: str


def _netcdf3(path: pathlib.Path) -> dict[str, _Variable]:
    try:
        with netcdf_file(path, mmap=False) as file:
            return _pick(file.variables, lambda variable: getattr(variable, "units", ""))
    except (TypeError, ValueError, IndexError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as netCDF-3: {error}. Download it again.") from None


def _hdf5(path: pathlib.Path) -> dict[str, _Variable]:
    import h5py

    try:
        with h5py.File(path) as file:
            return _pick(file, lambda variable: variable.attrs.get("units", ""))
    except OSError as error:
        raise ValueError(f"{path} cannot be read as netCDF-4: {error}. Download it again.") from None


def _pick(file: Any, units: Callable[[Any], Any]) -> dict[str, _Variable]:
    """Return the variables that occur in a known layout, in native float64, with their units as text."""
    found = {}
    for name in {name for layout in LAYOUTS for name in layout} & set(file):
        text = units(file[name])
        found[name] = _Variable(np.array(file[name][:], np.float64), text.decode() if hasattr(text, "decode") else text)
    return found


def _times(values: Array, units: str, path: pathlib.Path) -> Times:
    """Convert numbers with units such as ``seconds since 2000-01-01 12:00:00 UTC`` to minutes."""
    unit, _, epoch = units.partition(" since ")
    try:
        start = np.datetime64(epoch.removesuffix("UTC").strip(), "ms")
        step = MILLISECONDS[unit]
    except (KeyError, ValueError):
        raise ValueError(
            f"{path} has time in {units!r}; it must be like 'seconds since 2000-01-01 12:00:00', or milliseconds."
        ) from None
    since = np.round(values * step).astype(np.int64).astype("timedelta64[ms]")
    return np.asarray((start + since).astype("datetime64[m]"))


def _good(flux: Array, unflagged: BoolArray) -> Array:
    return np.where(unflagged & (flux > 0), flux, np.nan)


# ---------------------------------------------------------------- series
def load(folder: str | pathlib.Path) -> tuple[Times, Array]:
    """Read the files of a folder as a regular series of minutes, averaged over GOES-13 and GOES-15.

    Where one satellite is missing, the other is used; where both are, the flux is NaN.  If a satellite has two values
    for a minute (overlapping files, two versions of a day), the file with the later name wins; a gap never hides a
    value.  Files of other satellites and products are ignored.  Yearly files hold more than the paper's months; cut
    them with ``(times >= np.datetime64("2017-09-01")) & (times < np.datetime64("2018-05-01"))``.
    """
    series = {}
    for satellite, paths in _files(pathlib.Path(folder)).items():
        pieces = [(read_netcdf if path.suffix == ".nc" else read_csv)(path) for path in paths]
        series[satellite] = [np.concatenate(columns) for columns in zip(*pieces, strict=True)]
    first = min(times.min() for times, _ in series.values())
    last = max(times.max() for times, _ in series.values())
    grid = np.arange(first, last + np.timedelta64(1, "m"))  # (T,)
    total, count = np.zeros(len(grid)), np.zeros(len(grid))
    for times, flux in series.values():
        observed = ~np.isnan(flux)
        regular = np.full(len(grid), np.nan)
        regular[(times[observed] - first).astype(np.int64)] = flux[observed]  # the last of several values wins
        total += np.nan_to_num(regular)
        count += ~np.isnan(regular)
    return grid, np.divide(total, count, out=np.full(len(grid), np.nan), where=count > 0)


def _files(folder: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    """Return the archive's files by satellite, sorted by name; all must be legacy or all science-quality."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; pass the one with files such as g15_xrs_1m_*.csv.")
    found: dict[str, list[pathlib.Path]] = {}
    example: dict[bool, str] = {}
    for path in sorted(folder.iterdir()):
        if match := NAME.fullmatch(path.name):
            satellite = match[1] or match[3]
            found.setdefault(satellite, []).append(path)
            if satellite in SATELLITES:
                example[match[2] is not None] = path.name
    if not example:
        others = ", ".join(f"GOES-{satellite}" for satellite in sorted(found))
        raise FileNotFoundError(
            f"{folder} has no file of GOES-13 or GOES-15{f', only of {others}' if others else ''}. Keep the names of "
            "the archive: g15_xrs_1m_*.csv, .csv.gz or .nc, or sci_xrsf-l2-avg1m_g15_*.nc."
        )
    if len(example) > 1:
        raise ValueError(
            f"{folder} has legacy files ({example[False]}), whose flux carries a factor 0.7, and science-quality files "
            f"({example[True]}), whose flux does not. Keep one kind in the folder."
        )
    return {satellite: found[satellite] for satellite in SATELLITES if satellite in found}


def load_g16(path: str | pathlib.Path) -> tuple[Times, Array]:
    """Read the valid minutes of GOES-16, January to August 2022, from an npz file: a stand-in for the paper's series.

    The file holds ``time_start``, ``dt_seconds``, ``xrsb_flux`` and ``xrsb_flag``.  Minutes in eclipse (bit 1), bad
    ones (bit 2) and those without flux are dropped, as in the paper; ``times`` shows where.
    """
    with np.load(path, allow_pickle=False) as file:
        needed = ("time_start", "dt_seconds", "xrsb_flux", "xrsb_flag")
        if missing := [name for name in needed if name not in file]:
            raise ValueError(f"{path} has no {missing[0]}; it holds {', '.join(file)}. Pass g16_xrs_1m_*.npz.")
        start, step, flux, flag = (file[name] for name in needed)
    times = np.datetime64(str(start), "m") + np.arange(len(flux)) * np.timedelta64(int(step), "s")
    good = ((flag & 3) == 0) & (flux > 0)
    return times[good].astype("datetime64[m]"), flux[good].astype(np.float64)


# ---------------------------------------------------------------- the modelled series
def paper_knots(T: int) -> Array:
    """Return the paper's knots for positions 1, ..., T: four blocks of fifty, evenly spaced, without duplicates.

    The blocks are [1, 1.86e4], [1.9e4, 2.2e5], [2.2e5, 2.5e5] and [2.5e5, 347875], in proportion for another T.
    """
    blocks = [np.linspace(first, last, 50) for first, last in PAPER_BLOCKS]
    return np.unique(np.concatenate(blocks)) * T / PAPER_LENGTH


def residual(flux: Array, knots: Array | None = None, log: Callable[[Array], npt.NDArray[Any]] = np.log) -> Array:
    """Return the log flux minus its baseline (by default with ``paper_knots``), the series that the paper models.

    The paper does not say which logarithm it uses.  With the natural one, its threshold of 1 means e times the
    baseline: on GOES-16 in 2022, 3.6 % of the minutes, with 61 starts in the last 47,875, the length of the paper's
    test data.  With ``log=np.log10``, ten times the baseline, these are 0.5 % and 8.
    """
    if (flux <= 0).any():
        i = int(np.argmax(flux <= 0))
        raise ValueError(f"flux[{i}] is {flux[i]:g}; it must be positive. Mark gaps with NaN.")
    y = np.asarray(log(flux), dtype=np.float64)
    return y - baseline(y, paper_knots(len(y)) if knots is None else knots)


def crossings(y: Array, threshold: float = 1.0) -> IntArray:
    """Return the rows where ``y`` rises above the threshold, ignoring gaps.

    The paper holds out the ten observations that follow each of them.
    """
    observed = np.flatnonzero(~np.isnan(y))
    above = y[observed] > threshold
    return observed[1:][above[1:] & ~above[:-1]]
