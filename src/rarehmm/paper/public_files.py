"""From public files to what sections 5.1 and 5.2 read: NOAA's netCDF files of GOES-16, EDF and text files of DREAMS."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rarehmm.common.arrays import Array
from rarehmm.common.writing import atomic_file
from rarehmm.paper import eeg, goes

GOES_ARCHIVE = (
    "https://data.ngdc.noaa.gov/platforms/solar-space-observing-satellites/goes/goes16/l2/data/xrsf-l2-avg1m_science"
)
DREAMS_ARCHIVE = "https://zenodo.org/record/2650142 (DatabaseSpindles.rar)"
FILL = -9999.0  # flux of a minute without observation, as in NOAA's files
EXCERPTS = range(1, 9)
CHANNELS = ("CZ-A1", "C3-A1")  # the central channel, which the experts scored
SECONDS = 1800  # length of an excerpt
RATES = (50, 100, 200)  # samples per second that occur
MICROVOLTS = {"uv": 1.0, "µv": 1.0, "mv": 1e3, "v": 1e6}


# ---------------------------------------------------------------- GOES-16
def convert_goes(source: Path, data: Path) -> list[Path]:
    """Convert NOAA's one-minute averages of GOES-16 to the file that the solar experiment reads.

    ``source`` and its subfolders hold ``sci_xrsf-l2-avg1m_g16_*.nc``: a folder for each month with a file for each day,
    or one file for the year.  If two files have the same minute, such as two versions of a day, the later name wins.
    Returns the path written, inside ``data``.
    """
    files = sorted(_folder(source).rglob("sci_xrsf-l2-avg1m_g16_*.nc"), key=lambda path: path.name)
    if not files:
        raise FileNotFoundError(
            f"{source} has no sci_xrsf-l2-avg1m_g16_*.nc; download the files of January to August 2022 from "
            f"{GOES_ARCHIVE}."
        )
    first, last = goes.G16_PERIOD
    grid = np.arange(first, last + np.timedelta64(1, "m"))  # (T,)
    flux, flag, seen = np.full(len(grid), FILL, np.float32), np.zeros(len(grid), np.uint16), np.zeros(len(grid), bool)
    for path in files:
        minutes = goes.read_minutes(path)
        inside = (minutes.times >= first) & (minutes.times <= last)
        at = (minutes.times[inside] - first).astype(np.int64)
        flux[at] = np.where(np.isfinite(minutes.flux[inside]), minutes.flux[inside], FILL)
        flag[at] = minutes.flag[inside]
        seen[at] = True
    if not seen.all():
        day = str(grid[np.argmin(seen)])[:10]
        raise ValueError(
            f"no file in {source} has {day}: {np.count_nonzero(~seen):,} of {len(grid):,} minutes from {first} to "
            f"{last} are missing. Download the other days from {GOES_ARCHIVE}."
        )
    path = _output(data / goes.G16_FOLDER, goes.G16_FILE)
    _save(path, time_start=np.array(str(first)), dt_seconds=np.array(60), xrsb_flux=flux, xrsb_flag=flag)
    return [path]


# ---------------------------------------------------------------- DREAMS
class Recording(NamedTuple):
    """One channel: its name, samples per second, and the signal in microvolts."""

    channel: str
    rate: int
    signal: Array


def convert_dreams(source: Path, data: Path) -> list[Path]:
    """Convert the excerpts of the DREAMS spindle database to the files that the sleep experiment reads.

    ``source`` and its subfolders hold ``excerpt1.edf`` or ``excerpt1.txt`` (preferred, since its four decimals are
    exact) to ``excerpt8``, and optionally ``Hypnogram_excerpt*.txt`` and ``Visual_scoring1_excerpt*.txt``.  Returns the
    paths written, inside ``data``.
    """
    there = {path.name.lower(): path for path in sorted(_folder(source).rglob("*")) if path.is_file()}
    found = [n for n in EXCERPTS if {f"excerpt{n}.txt", f"excerpt{n}.edf"} & set(there)]
    if missing := [n for n in (*eeg.TRAIN, *eeg.TEST) if n not in found]:
        raise FileNotFoundError(
            f"{source} has neither excerpt{missing[0]}.edf nor excerpt{missing[0]}.txt; unpack {DREAMS_ARCHIVE} there."
        )
    written = []
    for n in found:
        recording = read_excerpt(n, there)
        content: dict[str, npt.NDArray[np.generic]] = {
            "uV_x1e4": np.round(1e4 * recording.signal).astype(np.int32),
            "fs": np.array(recording.rate),
            "channel": np.array(recording.channel),
        }
        if path := there.get(f"hypnogram_excerpt{n}.txt"):
            content["hypnogram_5s"] = read_table(path)[1][:, 0].astype(np.int8)
        for expert in (1, 2):
            if path := there.get(f"visual_scoring{expert}_excerpt{n}.txt"):
                content[f"spindle_expert{expert}"] = inside_events(path, recording.rate, len(recording.signal))
        written.append(_output(data / eeg.FOLDER, f"excerpt{n}.npz"))
        _save(written[-1], **content)
    return written


def read_excerpt(n: int, files: dict[str, Path]) -> Recording:
    """Read excerpt n from its text file, or else from its EDF file; ``files`` are paths by name in lower case."""
    text, edf = files.get(f"excerpt{n}.txt"), files.get(f"excerpt{n}.edf")
    if text is None:
        assert edf is not None
        return read_edf(edf)
    channel, values = read_table(text)
    rate = read_edf(edf).rate if edf else round(len(values) / SECONDS)
    if rate not in RATES:
        raise ValueError(
            f"{text} has {len(values):,} samples, {rate} per second of half an hour; an excerpt has {RATES}. Download "
            "it again."
        )
    return Recording(channel, rate, values[:, 0])


def read_table(path: Path) -> tuple[str, Array]:
    """Read a text file of DREAMS: return the title in brackets that it begins with, and its numbers (n, columns)."""
    text = path.read_text(encoding="latin-1")
    title, _, rows = text.partition("\n")
    try:
        values = np.atleast_2d(np.loadtxt(rows.splitlines(), ndmin=2))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read after its title: {error}. Download it again.") from None
    if not title.startswith("[") or not values.size:
        raise ValueError(f"{path} starts with {title[:40]!r}; it must have a title in brackets, then numbers.")
    return title.strip().strip("[]"), values


def inside_events(path: Path, rate: int, size: int) -> npt.NDArray[np.uint8]:
    """Return for each sample whether an expert saw a spindle there, from rows of start and duration in seconds."""
    inside = np.zeros(size, np.uint8)
    for start, duration in read_table(path)[1][:, :2]:
        inside[round(start * rate) : round((start + duration) * rate)] = 1
    return inside


def read_edf(path: Path, channels: tuple[str, ...] = CHANNELS) -> Recording:
    """Read the first of ``channels`` that an EDF file has (Kemp et al. 1992), in microvolts.

    The header is text: 256 bytes on the recording, then 256 on each signal, field by field.  Records follow, each with
    a fixed number of 16-bit samples of every signal in turn.
    """
    content = path.read_bytes()
    try:
        count = int(content[252:256])
        widths = {"label": 16, "transducer": 80, "unit": 8, "low": 8, "high": 8, "digital low": 8, "digital high": 8,
                  "filter": 80, "samples": 8, "reserved": 32}  # fmt: skip
        fields, at = {}, 256
        for name, width in widths.items():
            fields[name] = [
                content[at + i * width : at + (i + 1) * width].decode("latin-1").strip() for i in range(count)
            ]
            at += count * width
        begin, records, duration = int(content[184:192]), int(content[236:244]), float(content[244:252])
        samples = [int(text) for text in fields["samples"]]
        limits = [[float(text) for text in fields[name]] for name in ("low", "high", "digital low", "digital high")]
        if min(samples, default=1) < 1 or duration <= 0 or any(a == b for a, b in zip(*limits[2:], strict=True)):
            raise ValueError("a signal has no samples or no range")
    except ValueError as error:
        raise ValueError(f"{path} is not an EDF file: {error}. Download it again.") from None
    labels = [label.upper().removeprefix("EEG ").strip() for label in fields["label"]]
    if not (chosen := [labels.index(name) for name in channels if name in labels]):
        raise ValueError(f"{path} has none of {', '.join(channels)}; its channels are {', '.join(fields['label'])}.")
    if (unit := fields["unit"][chosen[0]].lower()) not in MICROVOLTS:
        raise ValueError(f"{path} has {labels[chosen[0]]} in {unit!r}; it must be in uV, mV or V.")
    width = sum(samples)
    stored = (len(content) - begin) // (2 * width)
    if stored < max(records, 1):  # -1 means unknown
        raise ValueError(f"{path} ends after {stored} of {records} records. Download it again.")
    table = np.frombuffer(content, "<i2", (records if records > 0 else stored) * width, begin).reshape(-1, width)
    k = chosen[0]
    digital = table[:, sum(samples[:k]) : sum(samples[: k + 1])].ravel().astype(np.float64)
    low, high, least, most = (values[k] for values in limits)
    signal = (low + (digital - least) * (high - low) / (most - least)) * MICROVOLTS[unit]
    return Recording(labels[k], round(samples[k] / duration), signal)


# ---------------------------------------------------------------- files
CONVERTERS: dict[str, Callable[[Path, Path], list[Path]]] = {"goes": convert_goes, "dreams": convert_dreams}


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder; pass the one with the downloaded files.")
    return path


def _output(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder / name


def _save(path: Path, **content: npt.NDArray[np.generic]) -> None:
    with atomic_file(path) as partial, open(partial, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **content)
