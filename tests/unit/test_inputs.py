"""Inputs: columns follow from the rows that are read, wherever they are stored, and terms are checked."""

import json
import pickle
import re
from concurrent.futures import Future, ThreadPoolExecutor

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from scipy.interpolate import CubicSpline

from rarehmm import Series, open_source
from rarehmm.data import inputs as inputs_module
from rarehmm.data import seasons, workers
from rarehmm.data.clocks import Regular
from rarehmm.data.inputs import Columns, Inputs, Season, Trend
from rarehmm.data.pieces import sample, spread, stretches
from rarehmm.data.series import in_memory
from rarehmm.data.workers import Item

pytestmark = pytest.mark.plain

N, UNIT = 3000, 256
RNG = np.random.default_rng(0)
Y = RNG.normal(size=N)
EXOG = np.column_stack([20 + 5 * RNG.normal(size=N), RNG.random(N) < 0.1]).astype(float)
NAMES = ["temp", "holiday"]
STATES = np.where(RNG.random(N) < 0.05, RNG.integers(0, 3, N), -1)
HOURS = pd.date_range("2026-01-01", periods=N, freq="h")
FRAME = pd.DataFrame(EXOG, HOURS, NAMES)
DAY_AND_WEEK = [Season("1D", 3), Season("7D", 2)]
ALL = [*DAY_AND_WEEK, Trend(knots=3), Columns()]


def by_hour(**more):
    return Series(pd.Series(Y, HOURS), **more)


def whole(series):
    return series.read_rows(0, len(series))


def fourier(t, period, order):
    angle = 2 * np.pi * np.outer(np.asarray(t, float), np.arange(1, order + 1)) / period
    return np.stack([np.sin(angle), np.cos(angle)], axis=2).reshape(len(t), -1)


# ---------------------------------------------------------------- columns
def test_seasons_are_their_formula():
    found = Inputs.of(by_hour(), DAY_AND_WEEK)
    assert found.names[:3] == ["sin(1D) 1", "cos(1D) 1", "sin(1D) 2"]
    assert found.size == 10
    hours = (HOURS - pd.Timestamp(0)) / pd.Timedelta("1h")
    expected = np.hstack([fourier(hours, 24, 3), fourier(hours, 168, 2)])
    np.testing.assert_allclose(found.design(whole(by_hour())), expected, atol=1e-9)
    steps = Series(Y)
    expected = np.hstack([fourier(np.arange(N), 24, 3), fourier(np.arange(N), 100.5, 2)])
    np.testing.assert_allclose(Inputs.of(steps, [Season(24, 3), Season(100.5, 2)]).design(whole(steps)), expected,
                               atol=1e-9)  # fmt: skip


def test_the_sine_of_two_steps_is_left_out():
    assert Inputs.of(Series(Y), [Season(4, 2)]).names == ["sin(4) 1", "cos(4) 1", "cos(4) 2"]
    series = Series(pd.Series(Y, HOURS + pd.Timedelta("30min")))  # whole steps are at half past
    found = Inputs.of(series, [Season("2h")])
    assert found.names == ["cos(2h) 1"]
    np.testing.assert_allclose(np.abs(found.design(whole(series))), 1)


def test_orders_by_default():
    assert Inputs.of(Series(Y), [Season(24), Season(168)]).size == 2 * 8 + 2 * 4
    assert Inputs.of(Series(Y), [Season(7)]).size == 2 * 3
    assert Inputs.of(Series(Y), [Season(6)]).size == 2 * 3 - 1


def test_a_harmonic_that_an_earlier_season_has_is_left_out():
    names = Inputs.of(Series(Y), [Season(24, 2), Season(168, 8)]).names
    assert "cos(168) 6" in names
    assert "cos(168) 7" not in names
    assert names[-1] == "cos(168) 8"
    with pytest.raises(ValueError, match=r"season '12' has no harmonic that those before it have not; leave it out"):
        Inputs.of(Series(Y), [Season(24, 2), Season(12, 1)])


def test_trends_are_standardised():
    series = by_hour()
    line = Inputs.of(series, [Trend()]).design(whole(series))[:, 0]
    np.testing.assert_allclose(line, (np.arange(N) - (N - 1) / 2) / np.arange(N).std())
    spline = Inputs.of(Series(Y), [Trend(knots=[700, 1500])])
    assert spline.names == ["trend 1", "trend 2", "trend 3"]
    knots = [0, 700, 1500, N - 1]
    curve = CubicSpline(knots, np.eye(4), bc_type="natural")(np.arange(N))[:, 1:]
    np.testing.assert_allclose(spline.design(whole(Series(Y))), (curve - curve.mean(0)) / curve.std(0), atol=1e-10)


def test_a_spline_goes_on_linearly():
    spline, longer = Inputs.of(Series(Y), [Trend(knots=3)]), Series(np.zeros(N + 500))
    values = spline.design(longer.read_rows(N - 2, N + 500))
    np.testing.assert_allclose(np.diff(values[1:], 2, axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(values[2] - values[1], values[1] - values[0], atol=1e-5)  # without a corner


def test_user_columns_are_standardised_and_reported_in_the_users_units():
    series = by_hour(exog=FRAME)
    found = Inputs.of(series, [Trend(), Columns()])
    columns = found.design(whole(series))
    np.testing.assert_allclose(columns.mean(0), 0, atol=1e-9)
    np.testing.assert_allclose(columns.std(0), 1)
    for coefficients in (RNG.normal(size=3), RNG.normal(size=(3, 2))):
        slopes, shift = found.in_user_units(coefficients)
        days = np.arange(N) / 24
        np.testing.assert_allclose(np.column_stack([days, EXOG]) @ slopes + shift, columns @ coefficients, atol=1e-9)


def test_columns_by_name_in_the_order_asked_for():
    series = Series(Y, exog=FRAME.to_numpy())
    assert series.exog_names == ("x0", "x1")
    assert Inputs.of(series, [Columns("x1")]).names == ["x1"]
    both = Inputs.of(by_hour(exog=FRAME), [Columns(["holiday", "temp"])])
    assert both.names == ["holiday", "temp"]
    np.testing.assert_allclose(np.corrcoef(both.design(whole(by_hour(exog=FRAME)))[:, 1], EXOG[:, 0])[0, 1], 1)


def test_no_terms_are_no_columns():
    nothing, series = Inputs.of(Series(Y), []), Series(Y)
    assert (nothing.size, nothing.design(whole(series)).shape) == (0, (N, 0))
    np.testing.assert_array_equal(nothing.predict(whole(series), np.empty(0)), np.zeros(N))
    assert nothing.gradient(whole(series), Y).shape == (0,)


# ---------------------------------------------------------------- products and stretches
def regular():
    return by_hour(exog=FRAME)


def jittered():
    return Series(pd.Series(Y, HOURS + pd.to_timedelta(RNG.integers(0, 1200, N), unit="s")), exog=EXOG, regular=False)


def with_gaps():
    kept = RNG.random(N) < 0.9
    return Series(pd.Series(Y, HOURS)[kept], exog=EXOG[kept], regular=False)


def several():
    cuts = [slice(0, 900), slice(900, 1000), slice(1000, N)]
    return Series([pd.Series(Y[c], HOURS[c]) for c in cuts], exog=[FRAME[c] for c in cuts])


def in_berlin():
    return Series(pd.Series(Y, HOURS.tz_localize("UTC").tz_convert("Europe/Berlin")), exog=EXOG)


SERIES = [regular, jittered, with_gaps, several, in_berlin]


@pytest.mark.parametrize("make", SERIES)
@pytest.mark.parametrize("size", [20, 167, 168, 169, 1000])
@pytest.mark.parametrize("knots", [None, 3])
def test_products_are_those_of_the_design(make, size, knots):
    series = make()
    found = Inputs.of(series, [*DAY_AND_WEEK, Season("36.7h", 2), Trend(knots), Columns()])
    rows = series.read_rows(850, 850 + size)
    X = found.design(rows)
    for more in ((), (3,)):
        coefficients, slopes = RNG.normal(size=(found.size, *more)), RNG.normal(size=(size, *more))
        np.testing.assert_allclose(found.predict(rows, coefficients), X @ coefficients, atol=1e-9)
        np.testing.assert_allclose(found.gradient(rows, slopes), X.T @ slopes, atol=1e-9 * size)


@pytest.mark.parametrize("make", SERIES)
def test_a_stretch_has_the_columns_of_the_whole(make):
    series = make()
    found = Inputs.of(series, ALL)
    X = found.design(whole(series))
    for first, last in np.sort(RNG.integers(0, len(series) + 1, (30, 2)), axis=1).tolist():
        np.testing.assert_allclose(found.design(series.read_rows(first, last)), X[first:last], atol=1e-9)


def test_tables_and_sines_agree(monkeypatch):
    series = by_hour()
    found, rows = Inputs.of(series, DAY_AND_WEEK), whole(series)
    seasons.plan.cache_clear()
    tables = seasons.plan(found.seasons, True).tables
    assert [len(table) for table in tables] == [168]  # one table for both
    expected = found.design(rows)
    monkeypatch.setattr(seasons, "LARGEST_TABLE", 0)
    seasons.plan.cache_clear()
    assert not seasons.plan(found.seasons, True).tables
    np.testing.assert_allclose(found.design(rows), expected, atol=1e-9)
    seasons.plan.cache_clear()


def test_seasons_that_share_no_period_have_tables_of_their_own():
    found = Inputs.of(Series(Y), [Season(24, 2), Season(36, 2), Season(168, 2)])
    assert sorted(len(table) for table in seasons.plan(found.seasons, True).tables) == [36, 168]


def test_milliseconds_of_this_century_are_on_the_grid():
    times = pd.date_range("2026-01-01", periods=N, freq="3906250ns")  # 256 a second
    series = Series(pd.Series(Y, times))
    found = Inputs.of(series, [Season("1s", 2)])
    assert found.seasons.grid.locate(series.clock.read(100, 2900)) == 100
    assert len(seasons.plan(found.seasons, True).tables[0]) == 256
    np.testing.assert_allclose(found.design(whole(series)), fourier(np.arange(N), 256, 2), atol=1e-4)


# ---------------------------------------------------------------- time
def test_a_daily_season_stays_at_its_hour_when_clocks_are_changed():
    times = pd.date_range("2026-03-01", periods=60 * 24, freq="h", tz="Europe/Berlin")  # summer time from 29 March
    series = Series(pd.Series(Y[: len(times)], times))
    X = Inputs.of(series, [Season("1D", 1)]).design(whole(series))
    noon = X[times.hour == 12]
    np.testing.assert_allclose(noon, np.tile([0.0, -1.0], (len(noon), 1)), atol=1e-9)
    absolute = Series(pd.Series(Y[: len(times)], times.tz_convert("UTC")))
    moved = Inputs.of(absolute, [Season("1D", 1)]).design(whole(absolute))[times.hour == 12]
    assert np.ptp(moved, axis=0).max() > 0.2  # in UTC it does not


def test_phase_comes_from_time_and_not_from_the_row_number():
    kept = np.arange(N) != 1000
    series = Series(pd.Series(Y, HOURS)[kept], regular=False)
    for season in (Season("1D", 2), Season(24, 2)):
        X = Inputs.of(series, [season]).design(whole(series))
        np.testing.assert_allclose(X, Inputs.of(by_hour(), [season]).design(whole(by_hour()))[kept], atol=1e-9)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_of_an_index(unit):
    times = HOURS.as_unit(unit)
    assert isinstance(Series(pd.Series(Y, times)).clock.parts[0], Regular)
    for index in (times, pd.DatetimeIndex(times.to_numpy())):  # with a frequency and without
        np.testing.assert_array_equal(Series(pd.Series(Y, index)).clock.read(7, 9), [1767250800.0, 1767254400.0])


def test_clocks_without_times_count_the_rows_of_each_sequence():
    for series in (Series([Y[:5], Y[5:9], Y[9:]]), Series(Y, lengths=[5, 4, N - 9])):
        assert not series.has_times
        np.testing.assert_array_equal(series.clock.read(3, 11), [3, 4, 0, 1, 2, 3, 0, 1])
        np.testing.assert_array_equal(series.clock.read(6, 8), [1, 2])
    assert not Series(pd.Series(Y, np.arange(N) * 1.5)).has_times
    assert not Series([pd.Series(Y, HOURS), Y]).has_times


def test_copies_and_pieces_keep_inputs_clock_and_states():
    series = several()
    known = Series([Y[:900], Y[900:]], exog=[EXOG[:900], EXOG[900:]], states=[STATES[:900], STATES[900:]])
    for one in (series, known):
        expected = one.read_rows(880, 960)
        for part in (one.part(500, 1500).read_rows(380, 460), in_memory(one).read_rows(880, 960),
                     stretches(one, np.array([3, 880]), np.array([10, 960])).read_rows(7, 87),
                     one.part(800, 1600).part(50, 300).read_rows(30, 110),
                     pickle.loads(pickle.dumps(one)).read_rows(880, 960)):  # fmt: skip
            for mine, theirs in zip(part, expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)
    few = sample(by_hour(exog=FRAME), np.array([700]), 500)
    assert few.exog_names == ("temp", "holiday")
    assert few.has_times


def test_a_spread_sample_has_every_part_of_a_season():
    series = Series(np.zeros(200 * 1680))  # pieces at even distances would all begin at one phase
    clock = spread(series, 2000, 200).clock
    assert len(clock) == 2000
    assert np.bincount((clock % 168).astype(int) // 12, minlength=14).min() > 50


# ---------------------------------------------------------------- storage
def write_parquet(path):
    columns = {"time": HOURS, "y": Y, "temp": EXOG[:, 0], "holiday": EXOG[:, 1], "state": STATES}
    pq.write_table(pa.table(columns), path, row_group_size=UNIT)
    return path


def parquet(folder):
    path = write_parquet(folder / "y.parquet")
    return Series(open_source(path, ["y"], "time"), exog=open_source(path, NAMES), states=open_source(path, ["state"]))


def parquet_with_a_zone(folder):
    path = folder / "y.parquet"
    columns = {"time": HOURS.tz_localize("UTC").tz_convert("Etc/GMT-2"), "y": Y}
    pq.write_table(pa.table(columns), path, row_group_size=UNIT)
    exog = open_source(write_parquet(folder / "x.parquet"), NAMES)
    return Series(open_source(path, ["y"], "time"), exog=exog, states=STATES)


def memory_map(folder):
    for name, values in (("exog", EXOG), ("states", STATES)):
        np.save(folder / f"{name}.npy", values)
    exog = open_source(np.load(folder / "exog.npy", mmap_mode="r"))
    exog.names = tuple(NAMES)
    return Series(pd.Series(Y, HOURS), exog=exog, states=np.load(folder / "states.npy", mmap_mode="r"))


def zarr_group(folder):
    there = zarr.open_group(folder / "g.zarr", mode="w")
    times = HOURS.to_numpy()
    values = {"y": Y, "temp": EXOG[:, 0], "holiday": EXOG[:, 1], "state": STATES, "time": times}
    for name, column in values.items():
        there.create_array(name, shape=column.shape, chunks=UNIT, dtype=column.dtype)[:] = column
    y, exog = open_source(folder / "g.zarr", ["y"], "time"), open_source(folder / "g.zarr", NAMES, "time")
    return Series(y, exog=exog, states=open_source(folder / "g.zarr", ["state"]))


def dask_arrays(folder):
    data = xr.Dataset({"y": ("time", Y), "temp": ("time", EXOG[:, 0]), "holiday": ("time", EXOG[:, 1])})
    data = data.assign_coords(when=("time", HOURS.to_numpy())).chunk(time=UNIT)
    y = open_source(data, ["y"], "when")
    return Series(y, exog=open_source(data, NAMES), states=da.from_array(STATES, chunks=100))


STORED = [parquet, parquet_with_a_zone, memory_map, zarr_group, dask_arrays]


@pytest.mark.parametrize("store", STORED)
def test_stored_series_have_the_same_inputs(tmp_path, store):
    series, plain = store(tmp_path), by_hour(exog=FRAME, states=STATES)
    assert series.has_times
    assert series.exog_names == plain.exog_names
    assert series.exog_summaries == plain.exog_summaries
    assert (series.n_known, series.known_states) == (plain.n_known, (0, 1, 2))
    shift = 7200 if store is parquet_with_a_zone else 0  # local time is two hours ahead
    for first, last in ((0, N), (200, 300), (511, 513), (2999, 3000)):
        found, expected = series.read_rows(first, last), plain.read_rows(first, last)
        np.testing.assert_array_equal(found.clock, expected.clock + shift)
        for name in ("y", "exog", "states"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    mine, theirs = Inputs.of(series, ALL), Inputs.of(plain, ALL)
    assert mine.names == theirs.names
    if not shift:
        np.testing.assert_array_equal(mine.design(series.read_rows(250, 900)), theirs.design(plain.read_rows(250, 900)))


def test_memory_maps_without_times_or_names(tmp_path):
    for name, values in (("y", Y), ("exog", EXOG), ("states", STATES)):
        np.save(tmp_path / f"{name}.npy", values)
    exog = np.load(tmp_path / "exog.npy", mmap_mode="r")
    mapped = Series(tmp_path / "y.npy", exog=exog, states=tmp_path / "states.npy")
    plain, terms = Series(Y, exog=EXOG, states=STATES), [Season(24, 2), Trend(2), Columns("x1")]
    assert not mapped.in_memory
    for mine, theirs in zip(mapped.read_rows(90, 700), plain.read_rows(90, 700), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert Inputs.of(mapped, terms) == Inputs.of(plain, terms)


class Client:
    """What is used of a Dask client, in this process."""

    def scheduler_info(self):
        return {}

    def compute(self, task):
        future = Future()
        future.set_result(task.compute(scheduler="synchronous"))
        return future


def numbers(rows, factor):
    return factor * np.column_stack([rows.y, rows.exog, rows.clock, rows.states])


@pytest.mark.parametrize("store", STORED)
@pytest.mark.parametrize("client", [False, True])
def test_work_gets_whole_rows_wherever_it_is_done(tmp_path, monkeypatch, store, client):
    monkeypatch.setattr(workers, "SPAN", 700)
    series = store(tmp_path)
    items = [Item(max(first - 20, 0), first + 500, (2.0,)) for first in range(0, N, 500)]
    expected = series.over_rows(numbers, items)
    np.testing.assert_array_equal(expected[1], numbers(series.read_rows(480, 1000), 2.0))
    with ThreadPoolExecutor(2) as threads:
        series.executor = Client() if client else threads
        for found, mine in zip(series.over_rows(numbers, items), expected, strict=True):
            np.testing.assert_array_equal(found, mine)
        np.testing.assert_array_equal(series.over_rows(numbers, items, run_locally=True)[2], expected[2])
        np.testing.assert_array_equal(Inputs.of(series, ALL).design(series.read_rows(0, 50)),
                                      Inputs.of(store(tmp_path), ALL).design(series.read_rows(0, 50)))  # fmt: skip


def test_times_of_a_regular_index_and_of_files_are_not_sent():
    series = by_hour(exog=FRAME)
    assert len(pickle.dumps(series.clock.parts)) < 1000
    assert len(pickle.dumps(Series(Y).clock.parts)) < 1000


def test_inputs_are_pickled_and_written_as_json():
    for series in (by_hour(exog=FRAME), several()):
        found = Inputs.of(series, ALL)
        rows = series.read_rows(100, 400)
        found.design(rows)
        assert len(pickle.dumps(found)) < 5000  # without tables
        assert pickle.loads(pickle.dumps(found)) == found
        text = json.dumps(found.to_dict())
        assert Inputs.from_dict(json.loads(text)) == found
        np.testing.assert_array_equal(Inputs.from_dict(json.loads(text)).design(rows), found.design(rows))
    assert Inputs.from_dict(json.loads(json.dumps(Inputs.of(Series(Y), []).to_dict()))).size == 0


# ---------------------------------------------------------------- errors
COLLINEAR = FRAME.assign(double=3 + 2 * FRAME["temp"])
NAT = HOURS.insert(5, pd.NaT)[:N]


def at_once():
    return Series(pd.Series(Y, [HOURS[0]] * N), regular=False)


@pytest.mark.parametrize(
    ("make", "terms", "message"),
    [
        (lambda: Series(Y), [Season(1501)], "season '1501' is longer than half the series, .* covers 3000 steps; pass"),
        (by_hour, [Season("63D")], "season '63D' is longer than half the series, .* covers 125 days 00:00:00; pass"),
        (lambda: Series([Y[:100], Y[100:150]]), [Season(51)], "longest sequence covers 100 steps"),
        (lambda: Series(Y), [Season("1D")], "season '1D' is a length of time and y has no time index; give y"),
        (by_hour, [Season("90min")], r"season '90min' has 1\.5 steps; it must have at least 2"),
        (by_hour, [Season("1D", 13)], "order is 13 and the season '1D' has 24 steps; .* half of them, 12"),
        (lambda: Series(Y), [Season(9.5, 5)], r"order is 5 and the season '9\.5' has 9\.5 steps; .* 4\."),
        (lambda: Series(Y), [Columns()], r"the series has none; pass exog="),
        (lambda: by_hour(exog=FRAME), [Columns(["tmp"])], "no column 'tmp'; it has 'temp', 'holiday'. Did you mean 't"),
        (lambda: by_hour(exog=np.ones(N)), [Columns()], r"column 'x0' is constant \(1\); intercepts are always there"),
        (lambda: Series(Y[:9]), [Trend()], "has 9 rows and a trend needs 10; leave out the trend"),
        (lambda: Series(Y), [Trend(knots=[5, 5])], "the knot 5 is not between"),
        (lambda: Series(Y), [Trend(knots=[N])], "the knot 3000 is not between"),
        (lambda: Series(Y), [Trend(knots=["2026-02-01"])], "the knot '2026-02-01' is not a row number, and y has no"),
        (by_hour, [Trend(knots=["soon"])], "the knot 'soon' is not a time"),
        (by_hour, [Trend(knots=[pd.Timestamp("2026-02-01", tz="UTC")])], "has a time zone and y has none"),
        (lambda: by_hour(exog=COLLINEAR), [Columns()], "input 'double' is a combination of (the intercept, )?'?temp"),
        (lambda: by_hour(exog=FRAME), [Columns(), Columns("temp")], "input 'temp' is a combination of temp; leave"),
        (by_hour, [Trend(), Trend(2)], "input 'trend 3' is a combination of .*; leave it out"),
        (lambda: Series(Y[:20]), [Season(10, 5), Trend(12)], "22 input columns and an intercept for 20 observations"),
        (lambda: Series(pd.Series(Y, NAT)), [Trend()], r"time of y\[5\] .*is missing; every row needs one"),
        (at_once, [Trend()], "times of y do not increase; a trend needs"),
        (at_once, [Season("1D")], "times of y do not increase; a season needs"),
    ],
)  # fmt: skip
def test_what_does_not_suit_a_series_is_said(make, terms, message):
    with pytest.raises(ValueError, match=message):
        Inputs.of(make(), terms)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Season(1.5), ValueError, r"is 1\.5 steps; it must have at least 2"),
        (lambda: Season("1Y"), ValueError, r"is '1Y'; .* Months and years differ in length: \"365\.25D\""),
        (lambda: Season("-1D"), ValueError, "is '-1D'; "),
        (lambda: Season(True), TypeError, "is True; pass steps"),
        (lambda: Season(24, 0), ValueError, "order is 0; it must be a whole number, 1 or more"),
        (lambda: Trend(0), ValueError, "knots is 0; it must be a whole number"),
        (lambda: Trend([]), ValueError, "knots is empty"),
        (lambda: Inputs.of(Series(Y), ["1D"]), TypeError, "'1D' is not a term; pass Season, Trend or Columns"),
    ],
)
def test_what_is_no_term_is_said(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_knots_are_times_of_the_zone_of_the_series():
    series = in_berlin()
    text, zoned = "2026-02-01 01:00", pd.Timestamp("2026-02-01", tz="UTC")
    assert Inputs.of(series, [Trend([text])]).trends == Inputs.of(series, [Trend([zoned])]).trends
    assert Inputs.of(series, [Trend([zoned])]).trends[0].knots[1] == 31.0


def test_a_column_that_is_a_combination_in_the_sample_only_is_kept(monkeypatch):
    monkeypatch.setattr(inputs_module, "SAMPLE", 400)
    rare = np.zeros((N, 2))
    seen = spread(Series(np.arange(N, dtype=float)), 400).y[:, 0].astype(int)
    unseen = np.setdiff1d(np.arange(N), seen)
    rare[seen[::7], :] = 1  # the same in the sample
    rare[unseen[50], 0] = 1
    assert Inputs.of(Series(Y, exog=rare), [Columns()]).size == 2
    once = np.zeros(N)
    once[unseen[50]] = 1  # constant in the sample
    assert Inputs.of(Series(Y, exog=once), [Columns()]).size == 1
    with pytest.raises(ValueError, match="input 'x1' is a combination of x0"):
        Inputs.of(Series(Y, exog=rare[:, [0, 0]]), [Columns()])


def test_new_data_need_the_same_inputs():
    found = Inputs.of(by_hour(exog=FRAME), [Season("1D", 1), Columns("holiday")])
    later = HOURS[:50] + pd.Timedelta("200D")
    new = FRAME[:50].set_index(later)
    y = pd.Series(Y[:50], later)
    more = Series(y, exog=new.assign(other=1.0)[["other", "holiday", "temp"]])  # constant columns of few rows are fine
    expected = found.design(Series(y, exog=new).read_rows(0, 50))
    np.testing.assert_array_equal(found.check(more).design(whole(more)), expected)
    unnamed = Series(y, exog=new.to_numpy())
    np.testing.assert_array_equal(found.check(unnamed).design(whole(unnamed)), expected)
    for series, message in (
        (Series(y), r"future inputs missing: 'holiday'; pass exog= with one row for each new observation"),
        (Series(y, exog=new[["temp"]].rename(columns={"temp": "holidays"})), "no column 'holiday'.* Did you mean 'hol"),
        (Series(y, exog=np.ones((50, 3))), "exog has 3 columns and had 2 when the model was fitted"),
        (Series(Y[:50], exog=EXOG[:50]), "y has no time index and the series that was fitted had one"),
    ):
        with pytest.raises(ValueError, match=message):
            found.check(series)
    with pytest.raises(ValueError, match="y has a time index and the series that was fitted had none"):
        Inputs.of(Series(Y), [Trend()]).check(by_hour())
    with pytest.raises(ValueError, match=re.escape("rows have 0 input columns and 2 are needed; call Inputs.check")):
        found.design(whole(Series(y)))
    assert Inputs.of(Series(Y), [Trend()]).check(Series(Y, exog=EXOG)).size == 1
