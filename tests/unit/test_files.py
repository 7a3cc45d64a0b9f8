"""Files: what is read is what was written, and what cannot be read is said in one line with the way out."""

import gzip

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from rarehmm.data import files
from rarehmm.data.files import open_files, read_file
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
        (lambda d: write(d / "a.csv", b"t,x\n2,1\n1,2\n"), {"columns": ["x"], "time": "t"}, "'t' goes back from 2"),
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
        with pytest.raises(ValueError, match="'time' goes back from 2026-01-01 05:00:00"):
            open_files(paths[::-1], ["flux"], "time")


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
