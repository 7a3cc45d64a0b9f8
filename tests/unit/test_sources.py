"""Series longer than memory: every kind of storage gives the rows that were written, reads no more than it must, and
says where it is damaged."""

import json
import pickle
import re
import subprocess
import sys
import threading
import tracemalloc

import dask.array as da
import dask.bag as db
import numcodecs
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr

from rarehmm import ReadError, Series, open_source, plots
from rarehmm.app.report import report
from rarehmm.data.sources import table
from rarehmm.data.sources.combined import Joined, Times
from rarehmm.data.sources.mapped import Mapped
from rarehmm.data.sources.table import Source
from rarehmm.data.transforms import Logarithm

pytestmark = pytest.mark.plain

N, UNIT = 1000, 64
TIMES = pd.date_range("2026-01-01", periods=N, freq="min")
RNG = np.random.default_rng(0)
TABLE = np.where(RNG.random((N, 2)) < 0.02, np.nan, 1e3 + RNG.normal(size=(N, 2)))


def write_parquet(path, columns, **more):
    pq.write_table(pa.table(columns), path, row_group_size=UNIT, **more)
    return path


def as_columns(y, first=0):
    return {"time": TIMES[first : first + len(y)], "a": pa.array(y[:, 0], from_pandas=True), "b": y[:, 1]}


def npy(folder, y):
    np.save(folder / "y.npy", y)
    return open_source(folder / "y.npy", ["0", "1"])


def memmap(folder, y):
    np.save(folder / "y.npy", np.asfortranarray(np.vstack([y[:3], y])))
    return open_source(np.load(folder / "y.npy", mmap_mode="r")[3:])


def parquet(folder, y):
    return open_source(write_parquet(folder / "y.parquet", as_columns(y)), ["a", "b"], "time")


def files(folder, y):
    """A folder of files and one more."""
    (folder / "days").mkdir()
    write_parquet(folder / "days" / "1.parquet", as_columns(y[:300]))
    write_parquet(folder / "days" / "2.parquet", as_columns(y[300:310], 300))
    write_parquet(folder / "rest.parquet", as_columns(y[310:], 310))
    return open_source([folder / "days", folder / "rest.parquet"], ["a", "b"], "time")


def zarr_array(folder, y, version=3):
    array = zarr.create_array(folder / "y.zarr", shape=y.shape, chunks=(UNIT, 1), dtype=y.dtype, zarr_format=version)
    array[:] = y
    return open_source(array, ["0", "1"])


def old_zarr(folder, y):
    zarr_array(folder, y, 2)
    return open_source(folder / "y.zarr", ["0", "1"])


def group(folder, y):
    there = zarr.open_group(folder / "g.zarr", mode="w")
    for name, values in (("a", y[:, 0]), ("b", y[:, 1]), ("time", np.arange(len(y)))):
        there.create_array(name, shape=values.shape, chunks=UNIT, dtype=values.dtype)[:] = values
    return open_source(folder / "g.zarr", ["a", "b"], "time")


def dataset(y):
    return xr.Dataset({"a": ("time", y[:, 0]), "b": ("time", y[:, 1])}, {"time": TIMES[: len(y)]})


def by_xarray(folder, y):
    dataset(y).chunk(time=UNIT).to_zarr(folder / "x.zarr", consolidated=False)
    return open_source(folder / "x.zarr", ["a", "b"], "time")


def in_dataset(folder, y):
    return open_source(dataset(y).chunk(time=UNIT), ["a", "b"])


def dask_array(folder, y):
    return open_source(da.from_array(y, chunks=(UNIT, 1)))


def labelled(folder, y):
    return open_source(xr.DataArray(da.from_array(y, chunks=(UNIT, 2)), {"time": TIMES[: len(y)]}, ("time", "column")))


KINDS = [
    npy, memmap, parquet, files, zarr_array, old_zarr, group, by_xarray, in_dataset, dask_array, labelled,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_that_were_written(tmp_path, kind):
    source = kind(tmp_path, TABLE)
    assert source.shape == (N, 2)
    assert len(source) == N
    slices = [(0, N), (5, 5), (63, 65), (N - 1, N), *np.sort(RNG.integers(0, N + 1, (50, 2)), axis=1).tolist()]
    for first, last in slices:
        np.testing.assert_array_equal(source[first:last], TABLE[first:last])
    with pytest.raises(ValueError, match="step 2"):
        source[::2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_series_is_that_of_the_array(tmp_path, kind):
    series, plain = Series(kind(tmp_path, TABLE)), Series(TABLE)
    assert series.summaries == plain.summaries
    assert series.n_missing == plain.n_missing
    assert not series.in_memory
    np.testing.assert_array_equal(series.read(60, 330), plain.read(60, 330))
    assert series.read(60, 330).flags.c_contiguous


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_hold_no_data(tmp_path, kind):
    y = np.tile(TABLE, (20, 1))[:N]
    source = kind(tmp_path, y)
    source[:]  # fill what is kept
    small = kind not in (dask_array, in_dataset, labelled)  # a graph holds the data that it is made of
    assert len(pickle.dumps(source)) < 8_000 or not small
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(source))[60:70], y[60:70])


@pytest.mark.parametrize("kind", [npy, parquet, zarr_array])
def test_another_process_reads_the_same(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    series = Series(kind(tmp_path.relative_to(tmp_path), TABLE))
    series.remember("much", lambda: np.zeros(10**6))
    given = pickle.dumps(series)
    assert len(given) < 10_000
    code = "import pickle, sys; print(float(pickle.load(sys.stdin.buffer).read(100, 101)[0, 1]).hex())"
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True, cwd="/")
    assert done.stdout.decode().strip() == float(TABLE[100, 1]).hex()


@pytest.mark.parametrize("kind", [parquet, zarr_array, dask_array])
def test_a_slice_touches_its_units_only_and_once(tmp_path, monkeypatch, kind):
    source = kind(tmp_path, TABLE)
    stored = getattr(source, "source", source)
    touched = []
    load = type(stored).load
    monkeypatch.setattr(type(stored), "load", lambda self, unit: touched.append(unit) or load(self, unit))
    source[70:80], source[75:128], source[100:129]
    assert touched == [1, 2]
    for row in range(0, N, 50):
        source[row : row + 50]
    assert touched == [1, 2, 0, *range(3, 16)]


def test_what_is_kept_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "CACHE", 3 * UNIT * 2 * 8)
    source = parquet(tmp_path, TABLE)
    source[:]
    assert list(source.cache.units) == [13, 14, 15]
    monkeypatch.setattr(table, "CACHE", 1)
    source[:200]
    assert list(source.cache.units) == [2, 3]  # neighbours are read from two units


def test_threads_decode_a_unit_once():
    begun, calls = threading.Event(), []

    def decode(unit):
        calls.append(unit)
        begun.wait(5)
        return np.full((1, 1), unit)

    cache, found = table.Cache(), []
    threads = [threading.Thread(target=lambda: found.append(cache.get(3, decode))) for _ in range(8)]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()
    assert calls == [3]
    assert len(found) == 8


def test_large_chunks_of_dask_are_read_by_the_slice(monkeypatch):
    monkeypatch.setattr(table, "CACHE", 100)
    asked = []
    whole = da.from_array(TABLE, chunks=(500, 2)).map_blocks(
        lambda block: asked.append(block.shape) or block, dtype=float
    )
    asked.clear()
    source = open_source(whole)
    np.testing.assert_array_equal(source[490:510], TABLE[490:510])
    assert not source.cache.units


# ---------------------------------------------------------------- kinds and types
def test_types_of_parquet(tmp_path):
    columns = {
        "whole": pa.array([1, None, 3], pa.int32()), "flag": pa.array([True, None, False]),
        "price": pa.array(["1.25", None, "-2"]).cast(pa.decimal128(10, 2)), "word": ["a", "b", "c"],
        "half": pa.array([1, 2, None], pa.float32()),
    }  # fmt: skip
    path = write_parquet(tmp_path / "t.parquet", columns)
    got = open_source(path, ["whole", "flag", "price"])[:]
    np.testing.assert_array_equal(got, [[1, 1, 1.25], [np.nan] * 3, [3, 0, -2]])
    np.testing.assert_array_equal(open_source(path, ["price", "whole"])[2:], [[-2, 3]])  # in the order asked for
    assert open_source(path, ["half"]).dtype == np.float32
    with pytest.raises(ValueError, match=r"t\.parquet: 'word' is string, not numbers"):
        open_source(path, ["word"])
    with pytest.raises(ValueError, match="'word' is string, which is not a time"):
        open_source(path, ["half"], "word")
    with pytest.raises(ValueError, match=r"no column 'hlf'; it has .* Did you mean 'half'\?"):
        open_source(path, ["hlf"])


def test_xarray_decodes_what_it_encodes(tmp_path):
    packed = {"a": {"dtype": "int16", "scale_factor": 0.5, "_FillValue": -1}}
    for version in (2, 3):
        path = tmp_path / f"{version}.zarr"
        xr.Dataset({"a": ("time", [1.5, np.nan, 3.0])}, {"time": TIMES[:3]}).to_zarr(
            path, encoding=packed, zarr_format=version, consolidated=False
        )
        source = open_source(path)
        np.testing.assert_array_equal(source[:][:, 0], [1.5, np.nan, 3.0])
        assert source.index[2] == TIMES[2]


def test_arrays_of_libraries_in_a_series(tmp_path):
    y = TABLE[:, 1].copy()
    inside = Series(xr.DataArray(y, {"time": TIMES}, "time"))
    assert inside.in_memory
    assert inside.index.equals(TIMES)
    wide = Series(xr.DataArray(TABLE, {"time": TIMES, "column": ["a", "b"]}, ("time", "column")))
    assert wide.names == ("a", "b")
    lazily = Series(xr.DataArray(da.from_array(y, chunks=UNIT), {"time": TIMES}, "time"))
    assert not lazily.in_memory
    assert lazily.stamp(17) == TIMES[17]
    dataset(TABLE).to_netcdf(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc") as data:
        from_file = Series(data["b"])
        assert not from_file.in_memory
        assert from_file.summaries == inside.summaries
    two = Series([da.from_array(y[:300], chunks=UNIT), da.from_array(y[300:], chunks=UNIT)])
    np.testing.assert_array_equal(two.bounds, [0, 300, N])
    np.testing.assert_array_equal(two.read(250, 350)[:, 0], y[250:350])
    np.save(tmp_path / "1.npy", y[:300])
    np.save(tmp_path / "2.npy", y[300:])
    one = Series([tmp_path / "1.npy", str(tmp_path / "2.npy")])
    assert one.n_sequences == 1
    assert one.summaries == inside.summaries


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda d: da.zeros((2, 2, 2)), ValueError, r"has shape \(2, 2, 2\); it must be"),
        (lambda d: da.zeros(0), ValueError, "is empty"),
        (lambda d: xr.DataArray(1.0), ValueError, r"has shape \(\); it must be"),
        (lambda d: np.memmap(d / "c", "c16", "w+", shape=3), TypeError, "y is complex"),
        (lambda d: da.from_array(np.array(["a"])), TypeError, "numbers are needed"),
        (lambda d: (x := da.ones(9, chunks=3))[x > 0], ValueError, "compute_chunk_sizes"),
        (lambda d: d / "a.npy", ValueError, "does not exist"),
        (lambda d: [d / "a.npy", d / "b.npy"], ValueError, "does not exist"),
        (lambda d: xr.Dataset({"a": ("t", [1.0]), "b": ("t", [1.0])}), ValueError, "2 columns of numbers; say which"),
    ],
)
def test_what_is_no_series_is_said(tmp_path, make, error, message):
    with pytest.raises(error, match=message):
        Series(make(tmp_path))


def test_files_that_do_not_fit_together(tmp_path):
    np.save(tmp_path / "1.npy", np.zeros(3))
    np.save(tmp_path / "2.npy", np.zeros((3, 2)))
    wide = open_source(tmp_path / "2.npy", ["0", "1"])
    with pytest.raises(ValueError, match=r"2\.npy, row 0 .* has 2 columns and .*1\.npy, row 0 .* has 1 col"):
        Joined([open_source(tmp_path / "1.npy"), wide])
    named = [write_parquet(tmp_path / f"{name}.parquet", {name: [1.0]}) for name in "ab"]
    with pytest.raises(ValueError, match=r"b\.parquet, .* has b and .*a\.parquet, .* has a; .* the same columns"):
        open_source(named)
    write_parquet(tmp_path / "none.parquet", {"a": pa.array([], pa.float64())})
    with pytest.raises(ValueError, match=r"none\.parquet has no rows"):
        open_source(tmp_path / "none.parquet")
    (tmp_path / "no.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ValueError, match=r"no\.parquet cannot be read: .* It may be cut off"):
        open_source(tmp_path / "no.parquet")


def test_a_library_that_is_not_there(monkeypatch, tmp_path):
    write_parquet(tmp_path / "a.parquet", {"a": [1.0]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'rarehmm\[long\]'"):
        open_source(tmp_path / "a.parquet")


def test_importing_stays_light():
    code = "import sys, rarehmm; print({'pandas', 'dask', 'pyarrow', 'zarr', 'xarray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout == "set()\n"


# ---------------------------------------------------------------- memory maps
def test_views_of_a_memory_map(tmp_path):
    np.save(tmp_path / "y.npy", TABLE)
    whole = np.load(tmp_path / "y.npy", mmap_mode="r")
    for view in (whole[:, 1], whole[10:20], whole[::3], whole.T[0], whole[5:][:, ::2]):
        source = open_source(view)
        np.testing.assert_array_equal(source[:], view.reshape(len(view), -1))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(source))[2:5], view.reshape(len(view), -1)[2:5])
    assert open_source(whole[10:]).where(7) == f"y.npy, row 7 (byte {128 + 17 * 16})"
    changed = np.load(tmp_path / "y.npy", mmap_mode="c")
    changed[:] = 7.0
    for kept in (changed, whole[::-1]):
        assert Mapped.of(kept) is None
        np.testing.assert_array_equal(Series(kept).read(0, 3), kept[:3])


def test_memory_stays_small(tmp_path):
    y = np.arange(5_000_000.0) % 7
    pq.write_table(pa.table({"y": y}), tmp_path / "y.parquet", row_group_size=50_000)
    Series(tmp_path / "y.parquet")  # libraries are imported
    for source in (tmp_path / "y.parquet", da.from_array(y, chunks=50_000)):
        tracemalloc.start()
        table.CACHE, before = 1 << 20, table.CACHE
        series = Series(source)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        table.CACHE = before
        assert peak < 12e6  # of 40 MB
        assert series.summaries[0].high == 6


# ---------------------------------------------------------------- damage
def test_a_damaged_parquet_page(tmp_path):
    path = write_parquet(
        tmp_path / "flux.parquet", {"flux": TABLE[:, 0]}, use_dictionary=False, write_page_checksum=True
    )
    source = open_source(path)
    place = pq.read_metadata(path).row_group(5).column(0)
    with path.open("r+b") as file:
        file.seek(place.data_page_offset + place.total_compressed_size // 4)
        file.write(b"\xff" * 40)
    np.testing.assert_array_equal(source[:320], TABLE[:320, :1])
    with pytest.raises(
        ReadError, match=r"flux\.parquet, row group 5, row 320 cannot be read: .*damaged; write it again"
    ):
        source[300:330]
    with pytest.raises(ReadError, match="row group 5"):
        Series(source)


def test_files_that_were_cut_off_or_written_again(tmp_path):
    for kind, message in ((npy, r"y\.npy, row 900 \(byte 14528\) cannot"), (parquet, r"row group 14, row 896 cannot")):
        source = kind(tmp_path, TABLE)
        path = next(tmp_path.glob("y.*"))
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(ReadError, match=message + ".* has [0-9]+ now"):
            source[900:910]
        path.unlink()
        with pytest.raises(ReadError, match="has 0 now"):
            source[900:910]
    source = parquet(tmp_path, TABLE)
    more = np.tile(TABLE, (3, 1))
    pq.write_table(pa.table({"a": more[:, 0], "b": more[:, 1]}), tmp_path / "y.parquet", row_group_size=2 * UNIT)
    with pytest.raises(ReadError, match=r"has shape \(128, 2\) and had \(64, 2\) when it was opened"):
        source[:10]


def test_a_damaged_zarr_chunk(tmp_path):
    source = zarr_array(tmp_path, TABLE)
    (tmp_path / "y.zarr" / "c" / "4" / "1").write_bytes(b"no chunk at all")
    with pytest.raises(ReadError, match=r"y\.zarr, chunk 4, row 256 cannot be read: .*damaged"):
        source[250:260]
    (tmp_path / "y.zarr" / "c" / "4" / "1").unlink()  # not there: the fill value
    assert (source[256:260][:, 1] == 0).all()


def test_a_task_that_fails():
    def work(block, block_info=None):
        if block_info and block_info[0]["chunk-location"] == (2,):
            raise RuntimeError("no such satellite")
        return block

    source = open_source(da.from_array(TABLE[:, 0], chunks=UNIT).map_blocks(work, dtype=float))
    with pytest.raises(ReadError, match=r"Dask array, chunk 2, row 128 cannot be read: no such satellite\. See what"):
        source[100:140]
    np.testing.assert_array_equal(source[:128][:, 0], TABLE[:128, 0])


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("exploded",))


def test_nothing_is_executed(tmp_path):
    np.save(tmp_path / "a.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a\.npy cannot be read"):
        open_source(tmp_path / "a.npy")
    zarr.open_group(tmp_path / "g.zarr", mode="w", zarr_format=2)
    for place in (tmp_path / "a.zarr", tmp_path / "g.zarr" / "y"):
        zarr.create_array(place, shape=3, chunks=3, dtype="f8", compressors=numcodecs.Zlib(), zarr_format=2)
        given = json.loads((place / ".zarray").read_text()) | {"compressor": {"id": "pickle", "protocol": 5}}
        (place / ".zarray").write_text(json.dumps(given))
        (place / "0").write_bytes(pickle.dumps(Bomb()))
    for name in ("a.zarr", "g.zarr"):
        with pytest.raises(ValueError, match=f"{name} cannot be read: .*pickle"):
            open_source(tmp_path / name)


def test_refused_values_are_named_by_their_place(tmp_path):
    y = TABLE.copy()
    y[130, 1] = np.inf
    path = write_parquet(tmp_path / "flux.parquet", as_columns(y))
    with pytest.raises(ValueError, match=r"y\[130\] \(.*flux\.parquet, row group 2, row 130\) is inf; observations"):
        Series(open_source(path, ["b"]))
    with pytest.raises(ValueError, match=r"y\[130\] \(at 2026-01-01 02:10:00; .*row 130\) is inf"):
        Series(open_source(path, ["b"], "time"))
    y[130, 1] = 0
    write_parquet(path, as_columns(y))
    with pytest.raises(ValueError, match=r"row group 2, row 130 is 0; it must be positive to take its logarithm"):
        Series(Logarithm(open_source(path, ["b"])))
    logs = Logarithm(open_source(path, ["a"]))
    np.testing.assert_array_equal(logs[60:70], np.log(y[60:70, :1]))


# ---------------------------------------------------------------- time
@pytest.mark.parametrize("kind", [parquet, files, by_xarray])
def test_the_time_of_a_row(tmp_path, kind):
    source = kind(tmp_path, TABLE)
    times = source.index
    assert isinstance(times, Times)
    assert (len(times), times.name) == (N, "time")
    assert (times[17], times[-1]) == (TIMES[17], TIMES[-1])
    assert times[290:320].equals(TIMES[290:320].rename("time"))
    assert (times[np.array([3, 500])] == TIMES[[3, 500]]).all()
    assert times.get_loc(TIMES[700]) == 700
    with pytest.raises(KeyError):
        times.get_loc(TIMES[700] + pd.Timedelta("1s"))
    series, plain = Series(source), Series(pd.DataFrame(TABLE, TIMES))
    assert series.stamp(999) == TIMES[999]
    assert report.anchors(series) == report.anchors(plain)
    np.testing.assert_array_equal(plots.positions(series, np.array([0, 70])), plots.positions(plain, np.array([0, 70])))


def test_zones_numbers_and_dates(tmp_path):
    zoned = TIMES[:3].tz_localize("Europe/Vienna")
    columns = {"y": [1.0, 2.0, 3.0], "zoned": zoned, "number": [0.5, 1.0, 2.0], "date": TIMES[:3].date}
    path = write_parquet(tmp_path / "t.parquet", columns)
    assert open_source(path, ["y"], "zoned").index[1] == zoned[1]
    assert str(open_source(path, ["y"], "zoned").index[:].tz) == "Europe/Vienna"
    assert open_source(path, ["y"], "number").index[0] == 0.5
    assert open_source(path, ["y"], "date").index[2] == pd.Timestamp("2026-01-01")
    np.save(tmp_path / "t.npy", np.column_stack([np.arange(5), np.ones(5)]))
    assert open_source(tmp_path / "t.npy", ["1"], "0").index[3] == 3
    assert group(tmp_path, TABLE).index[5] == 5


def test_time_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("rarehmm.data.series.STRETCH", 7)
    when = np.arange(N)
    when[350] = 100
    columns = {"t": when, "y": TABLE[:, 0]}
    back = write_parquet(tmp_path / "back.parquet", columns)
    message = (
        r"time goes back in 1 of 1,000 rows: y\[350\] \(at 100; .*back\.parquet, row group 5, row 350\) comes after 349"
    )
    with pytest.raises(ValueError, match=message):
        Series(open_source(back, ["y"], "t"))
    for name, first in (("1", 0), ("2", 500)):
        write_parquet(tmp_path / f"{name}.parquet", {"t": np.arange(first, first + 500), "y": np.ones(500)})
    with pytest.raises(ValueError, match=r"\(at 0; .*1\.parquet, .* comes after 999\. .*files in order of time"):
        Series(open_source([tmp_path / "2.parquet", tmp_path / "1.parquet"], ["y"], "t"))
    gone = write_parquet(tmp_path / "gone.parquet", {"t": [1.0, None, 2.0], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(ValueError, match=r"the time of y\[1\] \(at nan; .*row 1\) is missing"):
        Series(open_source(gone, ["y"], "t"))
    write_parquet(gone, {"t": [1, None, 2], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(ReadError, match=r"'t' is missing in 1 rows"):
        Series(open_source(gone, ["y"], "t"))
    write_parquet(tmp_path / "3.parquet", {"t": TIMES[:2], "y": [1.0, 2.0]})
    with pytest.raises(ValueError, match=rf"'t' is {re.escape(str(TIMES.dtype))} in .*3\.parquet.* and int64"):
        open_source([tmp_path / "1.parquet", tmp_path / "3.parquet"], ["y"], "t")


KEPT = np.setdiff1d(np.arange(N), [3, 69, 70, 71, *range(400, 650), 990])


def some_parquet(folder):
    return open_source(
        write_parquet(folder / "y.parquet", {"time": TIMES[KEPT], "a": TABLE[KEPT, 0], "b": TABLE[KEPT, 1]}),
        ["a", "b"], "time",
    )  # fmt: skip


def some_numbers(folder):
    np.save(folder / "y.npy", np.column_stack([KEPT * 0.5, TABLE[KEPT]]))
    return open_source(folder / "y.npy", ["1", "2"], "0")


def some_zarr(folder):
    dataset(TABLE).isel(time=KEPT).chunk(time=UNIT).to_zarr(folder / "x.zarr", consolidated=False)
    return open_source(folder / "x.zarr", ["a", "b"], "time")


def some_dask(folder):
    return open_source(dataset(TABLE).isel(time=KEPT).chunk(time=UNIT), ["a", "b"])


@pytest.mark.parametrize("kind", [some_parquet, some_numbers, some_zarr, some_dask])
def test_rows_that_are_missing_are_put_back_as_they_are_read(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("rarehmm.data.series.STRETCH", 70)
    source, labels = kind(tmp_path), np.arange(N) * 0.5 if kind is some_numbers else TIMES
    with pytest.raises(ValueError, match=r"255 rows are missing in 4 places: y\[3\]"):
        Series(source)
    series = Series(source, regular="fill")
    expected = TABLE.copy()
    expected[np.setdiff1d(np.arange(N), KEPT)] = np.nan
    assert isinstance(series.parts[0], Source)
    for first, last in ((0, N), (395, 410), (401, 402), (640, 660)):
        np.testing.assert_array_equal(series.read(first, last), expected[first:last])
        assert (series.index[first:last] == labels[first:last]).all()
    assert series.stamp(500) == labels[500]
    assert series.place(401).endswith(f"a row put back before {source.where(396)})")
    assert series.place(400 - 1).endswith(source.where(395) + ")")


def test_what_cannot_be_opened_is_said(tmp_path):
    np.save(tmp_path / "y.npy", TABLE[:, 0])
    private = np.load(tmp_path / "y.npy", mmap_mode="c")
    backwards = np.load(tmp_path / "y.npy", mmap_mode="r")[::-1]
    for array in (private, private.copy(), backwards):
        with pytest.raises(ValueError, match="memory map whose place in its file is unknown"):
            open_source(array)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty is a folder without Parquet files"):
        open_source(tmp_path / "empty")
    (tmp_path / "y.csv").write_text("y\n1\n")
    with pytest.raises(ValueError, match=r"y\.csv is of a kind that must be read as a whole"):
        open_source(tmp_path / "y.csv")
    with pytest.raises(TypeError, match="y is a int; a path, a memory map, or an array of Zarr, Dask or xarray"):
        open_source(3)
    with pytest.raises(TypeError, match=r"Dask array is a Bag; pass a Dask array, for a table its to_dask_array"):
        open_source(db.from_sequence([1.0, 2.0]))
    group = zarr.create_group(str(tmp_path / "y.zarr"))
    for name, size in (("a", 5), ("b", 6)):
        group.create_array(name, data=np.arange(float(size)))
    with pytest.raises(ValueError, match="a, b have lengths 5, 6; they must be equal"):
        open_source(tmp_path / "y.zarr", ["a", "b"])


def test_masked_values_of_a_dask_array_are_missing():
    array = da.ma.masked_equal(da.from_array(np.arange(6), chunks=4), 3)
    np.testing.assert_array_equal(open_source(array)[:][:, 0], [0, 1, 2, np.nan, 4, 5])


def test_a_disk_that_fails_is_named_with_the_place(tmp_path, monkeypatch):
    np.save(tmp_path / "y.npy", TABLE[:, 0])
    source = open_source(tmp_path / "y.npy")

    def failing(*args, **more):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("numpy.fromfile", failing)
    with pytest.raises(ReadError, match=r"y\.npy, row 10 \(byte 208\) cannot be read: .*Input/output error"):
        source[10:20]
