"""Hostile CSV files: each is read rightly, or refused with the remedy; nothing is silent.  No model is fitted."""

import gzip
import warnings

import numpy as np
import pandas as pd
import pytest

from rarehmm import Series
from rarehmm.data.files import PLAIN, TextFormat, open_files

pytestmark = pytest.mark.plain

Y = [1.5, -2.0, np.nan, 40.25]
HOURS = [f"2026-01-01 0{i}:00:00" for i in range(4)]
VALUES = ["1.5", "-2", "", "40.25"]


def lines(times=HOURS, values=VALUES, head="time,flux", sep=",", end="\n"):
    rows = [sep.join(row) for row in zip(times, values, strict=True)]
    return end.join([head.replace(",", sep), *rows]) + end


def series_of(path, content, text=PLAIN, columns=("flux",), time="time", regular=True):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return Series(open_files([str(path)], columns, time, text), regular=regular)


COMMA = [v.replace(".", ",") for v in VALUES]
READ = {
    "plain": (lines(), {}),
    "semicolons": (lines(sep=";"), {"text": TextFormat(sep=";")}),
    "semicolons and decimal commas": (lines(sep=";", values=COMMA), {"text": TextFormat(sep=";", decimal=",")}),
    "decimal commas in quotes": (lines(values=[f'"{v}"' for v in COMMA]), {"text": TextFormat(decimal=",")}),
    "tabs": (lines(sep="\t"), {"text": TextFormat(sep="tab")}),
    "spaces": ("flux  load\n 1.5   3\n-2 4\nnan 5\n40.25 6\n", {"text": TextFormat(sep="space"), "time": None}),
    "pipes": (lines(sep="|"), {"text": TextFormat(sep="|")}),
    "spaces after commas": (lines(sep=", ").replace("flux", '"flux"'), {}),
    "a byte order mark": (lines().encode("utf-8-sig"), {}),
    "line ends of Windows": (lines(end="\r\n"), {}),
    "line ends of an old Macintosh": (lines(end="\r"), {}),
    "quoted fields": (lines(values=['"1.5"', '"-2"', '""', '"40.25"']), {}),
    "a blank line at the end": (lines() + "\n", {}),
    "no line end at the end": (lines().rstrip("\n"), {}),
    "a blank line is a missing observation": ("flux\n1.5\n-2\n\n40.25\n", {"time": None}),
    "marks of missing values": (lines(values=["1.5", "-2", "NA", "40.25"]), {}),
    "exponents": (lines(values=["15e-1", "-2E0", "", "4.025e+1"]), {}),
    "units in the name": (lines(head="time,flux [W/m²]"), {"columns": ["flux [W/m²]"]}),
    "no names, equal values": ("1.5,1.5\n-2,-2\n,\n40.25,7\n", {"columns": ["0"], "time": None}),
    "days first": (lines(times=[f"{d}.01.2026" for d in (12, 13, 14, 15)]), {}),
    "midnight without a time of the day": (
        lines(times=["2026-01-01 18:00", "2026-01-02", "2026-01-02 06:00", "2026-01-02 12:00"]), {}
    ),
    "a zone as an offset": (lines(times=[f"{t}+02:00" for t in HOURS]), {}),
    "summer time begins, with offsets": (
        lines(times=["2026-03-29 00:00+01:00", "2026-03-29 01:00+01:00", "2026-03-29 03:00+02:00",
                     "2026-03-29 04:00+02:00"]), {},
    ),
    "seconds since 1970": (
        lines(times=["1767225600", "1767229200", "1767232800", "1767236400"]), {"text": TextFormat("unix")}
    ),
    "missing rows, put back": (
        lines(times=[*HOURS[:2], HOURS[3]], values=["1.5", "-2", "40.25"]), {"regular": "fill"}
    ),
    "true and false": (lines(values=["True", "False", "True", "True"]), {}),
    "text beyond what is looked at first, in another column": (
        "flux,note\n" + "1.5,1\n" * 300 + "1.5,text\n", {"time": None}
    ),
}  # fmt: skip
OTHER = {
    "true and false": [1, 0, 1, 1], "text beyond what is looked at first, in another column": [1.5] * 301,
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_can_be_read_is_read_rightly(tmp_path, name):
    content, more = READ[name]
    found = series_of(tmp_path / "a.csv", content, **more)
    np.testing.assert_array_equal(found.read(0, len(found))[:, 0], OTHER.get(name, Y))
    if more.get("time", "time") is not None:
        assert found.has_times
        assert np.ptp(np.diff(found.index.to_numpy())) == np.timedelta64(0)


REFUSED = {
    "semicolons": (lines(sep=";"), {}, r"a single column, 'time;flux', .* separated by ','; pass --sep ';'"),
    "semicolons and decimal commas": (lines(sep=";", values=COMMA), {"columns": (), "time": None}, "pass --sep ';'"),
    "tabs": (lines(sep="\t"), {}, "pass --sep tab"),
    "commas taken for semicolons": (lines(), {"text": TextFormat(sep=";")}, "pass --sep ','"),
    "spaces": (
        "flux load\n1.5 3\n", {"columns": (), "time": None}, "0 columns of numbers"
    ),
    "spaces in a column": ("flux\n1.5 3\n", {"time": None}, "'1.5 3' in row 1, .* pass --sep space if"),
    "decimal commas": (
        lines(sep=";", values=COMMA), {"text": TextFormat(sep=";")}, "'flux' is '1,5' in row 1, .* pass --decimal ,"
    ),
    "decimal commas between commas": (lines(values=["1,5", "-2,0", "3,1", "4,25"]), {}, "more fields than its first"),
    "a decimal comma further down": (lines(values=["1", "-2", "3", "4,25"]), {}, "Expected 2 fields in line 5, saw 3"),
    "thousands": (lines(values=["1", "2", "3", '"40,250.5"']), {}, "in row 4, .* separators of thousands must be rem"),
    "thousands beside decimal commas": (
        lines(sep=";", values=["1,5", "2", "3", "1.250"]), {"text": TextFormat(sep=";", decimal=",")},
        "'1.250' in row 4, which is not a number",
    ),
    "units beside the values": (lines(values=["1.5 mV", "2 mV", "3 mV", "4 mV"]), {}, "'1.5 mV' .* remove units"),
    "a line of units": (lines(times=["s", *HOURS[1:]], values=["W/m2", "1", "2", "3"]), {}, "'W/m2' in row 1, .* un"),
    "lines above the names": ("Station: 5\nheight: 3\n" + lines(), {}, "The first line must have the names"),
    "a line for Excel": ("sep=;\n" + lines(sep=";"), {}, "no column 'flux'|pass --sep|Remove lines above"),
    "no names": ("2026-01-01,1.5\n2026-01-02,2\n", {"columns": (), "time": None}, "has values in its first line"),
    "two columns of one name": (
        lines(head="time,flux,flux", values=["1,2", "3,4", "5,6", "7,8"]), {}, "has 2 columns 'flux'; give each a name"
    ),
    "text further down": (lines(values=["1", "2", "-", "4"]), {}, "'-' in row 3, which is not a number; leave gaps"),
    "another encoding": (lines(head="time,flux,Wärme").encode("latin-1"), {}, "Save it as text in UTF-8"),
    "two bytes for each character": (lines().encode("utf-16"), {}, "Save it as text in UTF-8"),
    "compressed, and not so called": (gzip.compress(lines().encode()), {}, "Save it as text in UTF-8"),
    "rows of different lengths": ("time,flux\n2026-01-01,1,2,3\n2026-01-02,1\n", {}, "more fields than its first line"),
    "days or months first": (lines(times=[f"0{d}/04/2026" for d in (3, 4, 5, 6)]), {}, "tells day from month; give"),
    "times without dates": (lines(times=[t[11:] for t in HOURS]), {}, "'00:00:00' in row 1, which has no date"),
    "days without a year": (lines(times=[f"Jan {d}" for d in (1, 2, 3, 4)]), {}, "which has no date|not a timestamp"),
    "a zone by name": (lines(times=[f"{t} CET" for t in HOURS]), {}, "CET may be several zones; write times in UTC"),
    "formats of dates that differ": (lines(times=[*HOURS[:3], "01.01.2026 03:00"]), {}, "in row 4, and nothing in"),
    "a time that is missing": (lines(times=[*HOURS[:3], ""]), {}, "'time' is nan in row 4, which is not a timestamp"),
    "a blank line between times": (lines().replace("\n2026-01-01 02", "\n\n2026-01-01 02"), {}, "nan in row 3, which"),
    "unsorted": (lines(times=HOURS[::-1]), {}, "in order of time|goes back|backwards"),
    "a time twice": (lines(times=[*HOURS[:3], HOURS[2]]), {}, "repeats|twice|same time"),
    "missing rows": (lines(times=[*HOURS[:2], "2026-01-01 03:00:00", "2026-01-01 04:00:00"]), {}, "regular|missing"),
    "an hour twice as summer time ends": (
        lines(times=["2026-10-25 01:00", "2026-10-25 02:00", "2026-10-25 02:00", "2026-10-25 03:00"]), {},
        "repeats|twice|same time",
    ),
    "an hour that is not there": (
        lines(times=["2026-03-29 00:00", "2026-03-29 01:00", "2026-03-29 03:00", "2026-03-29 04:00"]), {},
        "zone|missing",
    ),
    "infinity": (lines(values=["1", "2", "inf", "4"]), {}, "is inf"),
    "decimal commas in files that are no text": (b"", {"text": TextFormat(decimal=",")}, "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_the_remedy(tmp_path, name):
    content, more, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        series_of(tmp_path / "a.csv", content, **more)
    assert "\n" not in str(caught.value)


def test_formats_of_text_are_refused_for_other_files(tmp_path):
    pd.DataFrame({"flux": [1.0, 2.0]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"--sep is ';' and .*a\.parquet is not a text file"):
        open_files([str(tmp_path / "a.parquet")], ["flux"], None, TextFormat(sep=";"))
