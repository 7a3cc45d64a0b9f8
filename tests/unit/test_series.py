"""The door: what a series may be made of, and that nothing is copied that need not be."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

from rarehmm import Series

pytestmark = pytest.mark.plain


def test_arrays_of_one_and_of_several_columns():
    assert repr(Series([1, 2, 3])) == "Series(3 observations)"
    two = Series(np.array([[1.0, 2.0], [3.0, np.nan], [np.nan, np.nan], [5.0, 6.0]]))
    assert (len(two), two.n_columns, two.n_missing) == (4, 2, 1)
    assert repr(two) == "Series(4 observations, 2 columns, 1 missing)"


def test_summaries_are_those_of_numpy(monkeypatch):
    monkeypatch.setattr("rarehmm.data.summaries.LOOK", 7)  # several strides, joins inside them
    rng = np.random.default_rng(0)
    y = 1e6 + rng.normal(size=(50, 2))
    y[rng.random((50, 2)) < 0.2] = np.nan
    y[30] = np.nan
    y[[20, 23]] = 1e6 + 50.0  # steps across the joins would show
    y[[19, 22]] = 1e6
    series = Series(y, lengths=[20, 3, 27])
    for column, found in enumerate(series.summaries):
        v = y[:, column]
        steps = np.concatenate([np.diff(part) for part in np.split(v, [20, 23])])
        assert found.size == np.sum(~np.isnan(v))
        assert found.mean == pytest.approx(np.nanmean(v), rel=1e-14)
        assert found.variance == pytest.approx(np.nanvar(v), rel=1e-8)
        assert (found.low, found.high) == (np.nanmin(v), np.nanmax(v))
        assert found.roughness == pytest.approx(np.nanmean(steps**2) / 2, rel=1e-8)
    assert series.n_missing == np.isnan(y).all(1).sum() > 0


def test_pandas_keeps_its_index_and_names():
    when = pd.date_range("2017-09-06", periods=4, freq="min")
    flux = Series(pd.Series([1.0, None, 3.0, 4.0], index=when))
    assert flux.index.equals(when)
    assert flux.n_missing == 1
    table = Series(pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}))
    assert table.names == ("a", "b")
    nullable = Series(pd.Series([1, pd.NA, 3], dtype="Int64"))
    assert nullable.n_missing == 1
    with pytest.raises(ValueError, match=r"y\[1\] \(at 2017-09-06 00:01:00\) is inf"):
        Series(pd.Series([1.0, np.inf, 3.0, 4.0], index=when))


def test_sequences_by_list_and_by_lengths_are_the_same():
    parts = [np.arange(3.0), np.arange(5.0), np.arange(1.0)]
    a, b = Series(parts), Series(np.concatenate(parts), lengths=[3, 5, 1])
    np.testing.assert_array_equal(a.bounds, b.bounds)
    np.testing.assert_array_equal(a.read(2, 9), b.read(2, 9))
    np.testing.assert_array_equal(Series([[0, 1, 2], [0, 1, 2, 3, 4], [0]]).bounds, a.bounds)
    assert repr(a) == "Series(9 observations, 3 sequences)"
    assert Series([np.zeros(3), [1, 2, 3]]).n_sequences == 2
    frames = Series([pd.Series([1.0, 2.0], index=[10, 11]), pd.Series([3.0], index=[40])])
    assert [list(i) for i in frames.index] == [[10, 11], [40]]
    with pytest.raises(ValueError, match=r"y\[1\]\[0\] is inf"):
        Series([np.zeros(3), np.array([np.inf])])


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.uint8, bool, ">f8", np.longdouble])
def test_any_real_number_type_is_read_as_doubles(kind):
    y = np.array([1, 0, 1, 1]).astype(kind)
    rows = Series(y).read(1, 4)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(rows[:, 0], [0, 1, 1])


def test_doubles_are_not_copied():
    y = np.arange(10.0)
    assert np.shares_memory(Series(y).read(2, 5), y)
    y.flags.writeable = False  # kernels are compiled for arrays that may be written to
    assert Series(y).read(2, 5).flags.writeable
    masked = Series(np.ma.masked_greater(np.arange(4), 2))
    assert masked.n_missing == 1


def test_a_memory_map_stays_on_disk(tmp_path):
    y = np.lib.format.open_memmap(tmp_path / "y.npy", mode="w+", dtype=np.float64, shape=(4_000_000,))
    y[:] = np.arange(4_000_000) % 7
    y.flush()
    tracemalloc.start()
    series = Series(np.load(tmp_path / "y.npy", mmap_mode="r"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # of 32 MB
    assert not series.in_memory
    np.testing.assert_array_equal(series.read(3_999_998, 4_000_000)[:, 0], [3_999_998 % 7, 3_999_999 % 7])
