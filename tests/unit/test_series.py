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


# ---------------------------------------------------------------- inputs and known states
T = 30
WHEN = pd.date_range("2026-01-01", periods=T, freq="D")
FRAME = pd.DataFrame({"temp": np.arange(T) * 1.5, "load": np.arange(T) % 4}, WHEN)
OBSERVED = pd.Series(np.sin(np.arange(T)), WHEN)


def with_value(row, column, value):
    changed = FRAME.astype(float)
    changed.loc[WHEN[row], column] = value
    return changed


def test_inputs_and_states_are_read_with_their_rows():
    states = np.full(T, np.nan)
    states[[3, 7]] = 0, 2
    series = Series(OBSERVED, exog=FRAME, states=states)
    assert repr(series) == "Series(30 observations, 2 inputs, 2 known states)"
    assert series.exog_names == ("temp", "load")
    assert (series.n_known, series.known_states) == (2, (0, 2))
    rows = series.read_rows(2, 9)
    np.testing.assert_array_equal(rows.y, series.read(2, 9))
    np.testing.assert_array_equal(rows.exog, FRAME.to_numpy()[2:9])
    np.testing.assert_array_equal(rows.states, [-1, 0, -1, -1, -1, 2, -1])
    assert rows.states.dtype == np.int64
    assert rows.clock[0] == WHEN[2].timestamp()
    assert [s.mean for s in series.exog_summaries] == pytest.approx(FRAME.mean().tolist())
    assert [s.variance for s in series.exog_summaries] == pytest.approx(FRAME.var(ddof=0).tolist())
    plain = Series(OBSERVED).read_rows(0, T)
    assert (plain.exog.shape, plain.states.shape, Series(OBSERVED).states) == ((T, 0), (0,), None)


def test_names_of_inputs():
    assert Series(OBSERVED, exog=np.eye(T)[:, :3]).exog_names == ("x0", "x1", "x2")
    assert Series(OBSERVED, exog=FRAME["temp"]).exog_names == ("temp",)
    assert Series(OBSERVED).exog_names == ()


def test_inputs_of_several_sequences():
    y = [OBSERVED[:10], OBSERVED[10:]]
    series = Series(y, exog=[FRAME[:10], FRAME[10:]], states=[np.zeros(10, int), np.full(20, -1)])
    np.testing.assert_array_equal(series.read_rows(8, 12).exog, FRAME.to_numpy()[8:12])
    np.testing.assert_array_equal(series.read_rows(8, 12).states, [0, 0, -1, -1])
    assert [len(part) for part in series.states] == [10, 20]


@pytest.mark.parametrize(
    ("y", "more", "message"),
    [
        (OBSERVED, {"exog": FRAME[:29]}, r"exog has 29 rows and y has 30; pass one row for each .*reindex\(y\.index\)"),
        (OBSERVED, {"states": [0, 1]}, "states has 2 rows and y has 30"),
        ([OBSERVED, OBSERVED], {"exog": [FRAME, FRAME[:3]]}, r"exog\[1\] has 3 rows and y\[1\] has 30"),
        ([OBSERVED, OBSERVED], {"exog": [FRAME]}, "exog has 1 sequences and y has 2"),
        ([OBSERVED, OBSERVED], {"exog": FRAME}, "y is a list of sequences and exog is one table; pass exog in"),
        (OBSERVED, {"exog": [FRAME]}, "y is one table and exog is a list of sequences"),
        (OBSERVED, {"exog": FRAME.shift(-1, freq="D")}, "differs from that of y in row 0: 2025-12-31 .* and 2026"),
        (OBSERVED, {"exog": FRAME.reset_index(drop=True)}, "index of exog differs from that of y in row 0: 0 and 2026"),
        (OBSERVED, {"exog": FRAME.iloc[[*range(5), 6, 5, *range(7, T)]]}, "differs from that of y in row 5: 2026"),
        (OBSERVED, {"exog": with_value(17, "temp", np.nan)},
         r"exog\[17, 'temp'\] \(at 2026-01-18 00:00:00\) is nan; an input is needed in every row. Fill the gap"),
        (OBSERVED, {"exog": with_value(3, "load", np.inf)}, r"exog\[3, 'load'\] \(.*\) is inf; inputs must be"),
        (OBSERVED, {"exog": FRAME * 1e200}, r"exog\[0, 'temp'\].*|exog\[1, 'temp'\] .* inputs must be below 1e\+150"),
        (OBSERVED, {"exog": FRAME.set_axis(["a", "a"], axis=1)}, "2 columns named 'a'; rename them"),
        ([OBSERVED, OBSERVED], {"exog": [FRAME, FRAME[["temp"]]]}, r"exog\[1\] has 1 columns and exog\[0\] has 2"),
        ([OBSERVED, OBSERVED], {"exog": [FRAME, FRAME[["load", "temp"]]]}, r"exog\[1\] has the columns \('load"
         ),
        (OBSERVED, {"states": np.r_[np.zeros(7), 0.5, np.zeros(22)]}, r"states\[7\] \(at .*\) is 0\.5; known states"),
        (OBSERVED, {"states": np.r_[np.zeros(7), -2, np.zeros(22)]}, r"states\[7\] \(at .*\) is -2; .* Mark unknown"),
        ([OBSERVED, OBSERVED], {"states": [np.zeros(T), np.full(T, np.inf)]}, r"states\[1\]\[0\] \(at .*\) is inf"),
        (OBSERVED, {"states": np.zeros((T, 2))}, "states has 2 columns; pass one column"),
    ],
)  # fmt: skip
def test_inputs_and_states_that_do_not_fit_are_named(y, more, message):
    with pytest.raises(ValueError, match=message):
        Series(y, **more)


def test_an_index_is_compared_in_every_stretch(monkeypatch):
    monkeypatch.setattr("rarehmm.data.series.STRETCH", 7)
    Series(OBSERVED, exog=FRAME)
    with pytest.raises(ValueError, match="in row 20: 2026-01-22 00:00:00 and 2026-01-21 00:00:00"):
        Series(OBSERVED, exog=FRAME.iloc[[*range(20), 21, 20, *range(22, T)]])
    with pytest.raises(ValueError, match=r"exog\[23, 'load'\]"):
        Series(OBSERVED, exog=with_value(23, "load", np.nan))
    assert Series(OBSERVED, exog=FRAME).exog_summaries[0].mean == pytest.approx(FRAME["temp"].mean())


def test_inputs_on_disk_stay_there(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(8_000_000.0).reshape(-1, 2) % 7)
    y = np.zeros(4_000_000)
    tracemalloc.start()
    series = Series(y, exog=np.load(tmp_path / "x.npy", mmap_mode="r"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # of 64 MB
    np.testing.assert_array_equal(series.read_rows(2_000_000, 2_000_001).exog, [[4_000_000 % 7, 4_000_001 % 7]])
