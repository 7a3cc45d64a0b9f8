"""Files: what is read is what was written, and what cannot be read is said in one line with the way out."""

import gzip

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from rarehmm import Series
from rarehmm.data import files
from rarehmm.data.files import TextFormat, open_files, read_file
from rarehmm.data.sources.table import Source
from rarehmm.data.transforms import detrended, logarithm

pytestmark = pytest.mark.plain

TIMES = pd.date_range("2026-01-01", periods=6, freq="h")
Y = np.array([1.5, 2.0, np.nan, 4.0, 5.0, 6.25])


def csv(path, **more):
    pd.DataFrame({"time": TIMES, "flux": Y, "note": list("abcdef"), **more}).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.txt"])
def test_csv(tmp_path, name):
    found = read_file(csv(tmp_path / name), ["flux"], "time")
    np.testing.assert_array_equal(found["flux"], Y)
    assert (found.index == TIMES).all()
    assert found.index.name == "time"
    alone = read_file(tmp_path / name)  # the only column of numbers
    np.testing.assert_array_equal(alone["flux"], Y)


def test_csv_without_names_or_with_tabs_and_zones(tmp_path):
    path = tmp_path / "bare.csv"
    path.write_text("1.5\n2\n3\n")
    np.testing.assert_array_equal(read_file(path)["0"], [1.5, 2, 3])
    path.write_text("1.5,7\n2,8\n")
    np.testing.assert_array_equal(read_file(path, ["1"])["1"], [7, 8])
    path = tmp_path / "a.tsv"
    path.write_text("t\tx\n2026-01-01T00:00:00Z\t1\n2026-01-01T00:01:00Z\t2\n")
    found = read_file(path, ["x"], "t")
    assert str(found.index.tz) == "UTC"
    path.write_text("t\tx\n0.5\t1\n0.75\t2\n")
    assert read_file(path, ["x"], "t").index.tolist() == [0.5, 0.75]


def test_npy_npz_and_netcdf(tmp_path):
    np.save(tmp_path / "one.npy", Y)
    np.testing.assert_array_equal(read_file(tmp_path / "one.npy")["0"], Y)
    np.save(tmp_path / "two.npy", np.column_stack([np.arange(6), Y]))
    found = read_file(tmp_path / "two.npy", ["1"], "0")
    np.testing.assert_array_equal(found["1"], Y)
    assert found.index.tolist() == [0, 1, 2, 3, 4, 5]
    np.savez(tmp_path / "a.npz", flux=Y.astype(np.float32), when=TIMES.to_numpy(), wide=np.zeros((2, 2)))
    found = read_file(tmp_path / "a.npz", ["flux"], "when")
    np.testing.assert_allclose(found["flux"], Y)
    assert (found.index == TIMES).all()
    data = xr.Dataset({"flux": ("time", Y), "map": (("time", "x"), np.zeros((6, 2)))}, {"time": TIMES})
    for engine, name in (("h5netcdf", "a.nc"), ("scipy", "old.nc")):
        data.to_netcdf(tmp_path / name, engine=engine)
        found = read_file(tmp_path / name)  # time is the coordinate of the variable
        np.testing.assert_array_equal(found["flux"], Y)
        assert (found.index == TIMES).all()


def write(path, content):
    path.write_bytes(content)
    return path


def array(path, values):
    with path.open("wb") as file:
        np.save(file, values)
    return path


def arrays(path, **values):
    with path.open("wb") as file:
        np.savez(file, **values)
    return path


def netcdf(path):
    xr.Dataset({"map": (("time", "x"), np.zeros((6, 2)))}).to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize(
    ("make", "more", "message"),
    [
        (lambda d: d / "nowhere.csv", {}, r"nowhere\.csv does not exist"),
        (lambda d: (csv(d / "flux_2026.csv"), d / "flux_2025.csv")[1], {}, r"Did you mean .*flux_2026\.csv"),
        (lambda d: d, {}, "is a folder"),
        (lambda d: write(d / "a.csv", b""), {}, "is empty"),
        (lambda d: write(d / "a.csv", b"time,flux\n"), {}, "0 columns of numbers|no rows"),
        (lambda d: write(d / "a.xlsx", b"x"), {}, r"has an unknown file type; supported are CSV .*\.zarr"),
        (lambda d: csv(d / "a.csv"), {"columns": ["flx"]}, "no column 'flx'; it has time, flux, note. Did you"),
        (lambda d: csv(d / "a.csv"), {"time": "when"}, "no column 'when'"),
        (lambda d: csv(d / "a.csv", other=Y), {}, "2 columns of numbers; say which with --column: time, flux"),
        (lambda d: csv(d / "a.csv"), {"columns": ["note"]}, "'note' is 'a' in row 1, which is not a number"),
        (lambda d: csv(d / "a.csv"), {"columns": ["flux"], "time": "note"},
         "'note' is 'a' in row 1, which is not a timestamp"),
        (lambda d: write(d / "a.csv", bytes(range(256)) * 50), {}, "cannot be read"),
        (lambda d: write(d / "a.csv", b"\x7fELF\x00\x00\x01" * 999), {}, "cannot be read|columns of numbers"),
        (lambda d: write(d / "a.csv", b"a,b\n1,2\n1,2,3,4\n"), {}, "cannot be read as CSV"),
        (lambda d: write(d / "a.csv.gz", gzip.compress(b"x\n" + b"1.25\n" * 5000)[:60]), {}, "cannot be read"),
        (lambda d: write(d / "a.csv.gz", b"x\n1\n2\n"), {}, "or have the wrong extension"),
        (lambda d: write(d / "a.npy", b"no array"), {}, "cannot be read"),
        (lambda d: write(d / "a.nc", b"no netCDF"), {}, "cannot be read as netCDF"),
        (lambda d: write(d / "a.npz", b"PK\x03\x04 no"), {}, "cannot be read"),
        (lambda d: write(d / "a.csv", b"x\n"), {"columns": ["x"]}, r"a\.csv has no rows"),
        (lambda d: array(d / "a.npy", np.zeros((2, 2, 2))), {},
         r"shape \(2, 2, 2\); it must be \(rows,\) or \(rows, columns\)"),
        (lambda d: array(d / "a.npy", np.array(["x"])), {}, "it holds <U1, not numbers"),
        (lambda d: array(d / "b.npz", Y).rename(d / "a.npz"), {},
         r"a\.npz holds a single array; give it the extension \.npy"),
        (lambda d: arrays(d / "b.npy", x=Y).rename(d / "a.npy"), {},
         r"a\.npy holds several arrays; give it the extension \.npz"),
        (lambda d: arrays(d / "a.npz", x=np.zeros((3, 2))), {"columns": ["x"]},
         r"'x' has shape \(3, 2\); it must be one-dimensional"),
        (lambda d: arrays(d / "a.npz", x=Y, t=np.arange(5)), {"columns": ["x"], "time": "t"}, "x, t have lengths 5, 6"),
        (lambda d: netcdf(d / "a.nc"), {"columns": ["map"]}, "'map' has dimensions time, x; it must have one"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said(tmp_path, make, more, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_file(make(tmp_path), **more)
    assert "\n" not in str(caught.value)


def test_nothing_in_a_file_is_executed(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "exploded"), "w"))

    np.save(tmp_path / "a.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=np.array([Bomb()], dtype=object))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(ValueError, match="cannot be read"):
            read_file(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


def test_logarithms_and_trends():
    np.testing.assert_allclose(logarithm(np.array([1.0, np.e, np.nan])), [0, 1, np.nan])
    with pytest.raises(ValueError, match="row 2 is 0; it must be positive to take its logarithm"):
        logarithm(np.array([1.0, 0.0]))
    t = np.arange(2000.0)
    flat = detrended(np.sin(t / 300) + 1e-3 * t, 20)
    assert np.abs(flat).max() < 1e-3
    with pytest.raises(ValueError, match="knots is 0; it must be at least 1"):
        detrended(t, 0)


def test_several_files_are_one(tmp_path):
    rows = {"1": slice(0, 4), "2": slice(4, 6)}
    for name, part in rows.items():
        table = pd.DataFrame({"time": TIMES[part], "flux": Y[part]})
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        table.to_parquet(tmp_path / f"{name}.parquet", index=False)
    for ending in ("csv", "parquet"):
        paths = [str(tmp_path / f"{name}.{ending}") for name in rows]
        found = open_files(paths, ["flux"], "time")
        assert isinstance(found, Source) == (ending == "parquet")
        np.testing.assert_array_equal(found["flux"] if ending == "csv" else found[:][:, 0], Y)
        assert (found.index[:] == TIMES).all()
        with pytest.raises(
            ValueError, match=r"goes back in 1 of 6 .* comes after 2026-01-01 05:00:00.* in order of time"
        ):
            Series(open_files(paths[::-1], ["flux"], "time"))


DAYS = ["03/04/2026 10:00", "04/04/2026 10:00", "05/04/2026 10:00"]


def read_dates(tmp_path, dates, **more):
    pd.DataFrame({"t": dates, "y": np.arange(len(dates))}).to_csv(tmp_path / "d.csv", index=False)
    return read_file(tmp_path / "d.csv", ["y"], "t", TextFormat(**more)).index


def test_day_and_month_are_told_apart_or_asked_for(tmp_path):
    expected = pd.date_range("2026-04-03 10:00", periods=3)
    with pytest.raises(
        ValueError,
        match=r"d\.csv: 't' is '03/04/2026 10:00' in row 1, and nothing in the file tells day "
        "from month; give the format with --date-format, such as '%d/%m/%Y %H:%M' or '%m/%d/%Y %H:%M'",
    ):
        read_dates(tmp_path, DAYS)
    assert read_dates(tmp_path, DAYS, date_format="%d/%m/%Y %H:%M").equals(expected)
    assert read_dates(tmp_path, DAYS, date_format="%m/%d/%Y %H:%M")[1] == pd.Timestamp("2026-04-04 10:00")
    for separator in "/.-":  # one day above the 12th tells
        later = ["12 01 2026", "13 01 2026", "14 01 2026"]
        found = read_dates(tmp_path, [text.replace(" ", separator) for text in later])
        assert found.equals(pd.date_range("2026-01-12", periods=3))
    assert read_dates(tmp_path, ["01/12/2026", "01/13/2026"])[1] == pd.Timestamp("2026-01-13")
    for dates in (["13/01/2026", "01/14/2026"], ["13/01/26", "14/01/26"]):  # contradictory; a year of two digits
        with pytest.raises(ValueError, match="nothing in the file tells day from month"):
            read_dates(tmp_path, dates)
    with pytest.raises(ValueError, match=r"'t' is '03/04/2026 10:00' in row 1, .*; the format is '%Y'"):
        read_dates(tmp_path, DAYS, date_format="%Y")


def test_numbers_may_count_from_1970(tmp_path):
    seconds = [1767225600, 1767225660, 1767225720]
    expected = pd.date_range("2026-01-01", periods=3, freq="min")
    assert (read_dates(tmp_path, seconds, date_format="unix") == expected).all()
    assert (read_dates(tmp_path, [1000 * s for s in seconds], date_format="unix_ms") == expected).all()
    assert (read_dates(tmp_path, [20260101, 20260102], date_format="%Y%m%d")[1]) == pd.Timestamp("2026-01-02")
    assert read_dates(tmp_path, seconds).tolist() == seconds
    pd.DataFrame({"time": TIMES, "flux": Y}).to_parquet(tmp_path / "a.parquet", index=False)
    with pytest.raises(ValueError, match=r"--date-format is 'unix' and .*a\.parquet is not a text file"):
        open_files([str(tmp_path / "a.parquet")], ["flux"], "time", TextFormat("unix"))


def test_large_arrays_stay_where_they_are(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", Y)
    assert isinstance(open_files([str(tmp_path / "a.npy")]), pd.DataFrame)
    monkeypatch.setattr(files, "LARGE", 8)
    assert isinstance(open_files([str(tmp_path / "a.npy")]), Source)
    with pytest.raises(ValueError, match=r"b\.parquet does not exist"):
        open_files([str(tmp_path / "a.npy"), str(tmp_path / "b.parquet")])
    pd.DataFrame({"y": Y}).to_csv(tmp_path / "c.csv")
    with pytest.raises(ValueError, match="pass files of one type"):
        open_files([str(tmp_path / "a.npy"), str(tmp_path / "c.csv")])


# ---------------------------------------------------------------- time zones
BERLIN = pd.date_range("2026-10-24 12:00", "2026-10-25 12:00", freq="30min", tz="Europe/Berlin")


@pytest.mark.parametrize(
    ("times", "date_format"),
    [
        (BERLIN.tz_localize(None), None),
        (BERLIN, None),  # with offsets
        (BERLIN.tz_convert("UTC"), None),
        (BERLIN.tz_localize(None).strftime("%d/%m/%Y %H:%M"), "%d/%m/%Y %H:%M"),
        (BERLIN.as_unit("s").asi8, "unix"),
    ],
    ids=["local", "offsets", "UTC", "format", "unix"],
)
def test_times_are_put_into_a_zone(tmp_path, times, date_format):
    table = pd.DataFrame({"t": times, "y": np.arange(51.0)})
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    table[:31].to_csv(paths[0], index=False)  # ends in the hour that occurs twice
    table[31:].to_csv(paths[1], index=False)
    found = open_files(paths, ["y"], "t", TextFormat(date_format), "Europe/Berlin")
    assert (found.index == BERLIN).all()
    assert str(found.index.tz) == "Europe/Berlin"
    assert found.index.name == "t"
    assert len(Series(found)) == 51


def test_what_cannot_be_put_into_a_zone_is_refused(tmp_path):
    table = pd.DataFrame({"t": BERLIN.tz_localize(None), "y": np.arange(51.0)})
    table.drop(index=[28, 29]).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=r"a.csv: 't' in row 29 is 2026-10-25 02:00:00, which occurs twice in Europe"):
        open_files([str(tmp_path / "a.csv")], ["y"], "t", time_zone="Europe/Berlin")
    table.assign(t=np.arange(51)).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(
        ValueError, match=r"'t' of .*b.csv holds no dates; for seconds since 1970, give --date-format u"
    ):
        open_files([str(tmp_path / "b.csv")], ["y"], "t", time_zone="Europe/Berlin")
    table.to_parquet(tmp_path / "c.parquet", index=False)
    with pytest.raises(ValueError, match=r"c.parquet has times without a zone, which are read as stored; store them"):
        open_files([str(tmp_path / "c.parquet")], ["y"], "t", time_zone="Europe/Berlin")
    table.assign(t=BERLIN.tz_convert("UTC")).to_parquet(tmp_path / "d.parquet", index=False)
    found = open_files([str(tmp_path / "d.parquet")], ["y"], "t", time_zone="Europe/Berlin")
    assert found.index[30] == BERLIN[30]
    assert str(found.index[:1].tz) == "Europe/Berlin"
