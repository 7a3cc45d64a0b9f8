"""Time stamps: rows out of order, repeated, missing or uneven are refused with the way out, and holes are filled."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

from rarehmm import RareHMM, Series
from rarehmm.data.clocks import Regular
from rarehmm.data.stamps import Gaps, typical_step

pytestmark = pytest.mark.plain

N = 2000
MINUTES = pd.date_range("2026-01-01", periods=N, freq="min")
Y = pd.Series(np.random.default_rng(0).normal(size=N), MINUTES)
HOLES = Y.drop(Y.index[[7, 8, 9, 500]])


def of(index):
    """A series with an index whose frequency pandas does not know."""
    bare = pd.DatetimeIndex(index, freq=None)
    return pd.Series(np.arange(float(len(bare))), bare)


def late(seconds):
    """Minutes of which some rows are late."""
    return pd.Series(Y.to_numpy(), MINUTES + pd.to_timedelta(seconds, unit="s"))


# ---------------------------------------------------------------- refused
ORDER = r"y\.sort_index\(\) or in the file; .*as a list or with lengths="
AMONG = np.zeros(N)
AMONG[5] = 27


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y.sample(frac=1, random_state=0), rf"the rows are shuffled: y\[2\] \(at .*\) comes after .*{ORDER}"),
        (Y[::-1], rf"the rows run backwards: y\[1\] \(at 2026-01-02 09:18:00\) comes after 2026-01-02 09:19.*{ORDER}"),
        (pd.concat([Y[:100], Y[50:]]), r"time goes back in 1 of 2,050 rows: y\[100\] \(at 2026-01-01 00:50:00\)"),
        (pd.concat([Y[:100], Y[99:]]), r"time stands still in 1 of 2,001 rows: y\[100\] \(at 2026-01-01 01:39:00\) has "
         r"the same time .* y\[~y\.index\.duplicated\(\)\] or y\.groupby"),
        (HOLES, r"4 rows are missing in 2 places: y\[7\] \(at 2026-01-01 00:10:00\) comes 00:04:00 after the row "
         r"before it, and the usual step is 00:01:00\. .*=\"fill\" \(--regular fill\), or with y\.asfreq\('min'\)"),
        (Y.drop(Y.index[7]), r"1 row is missing in 1 place: y\[7\]"),
        (Y.sample(frac=0.1, random_state=0).sort_index(), r"9\d% of the rows are missing in \d+ places: y\[1\]"),
        (pd.concat([Y[:500], Y[500::5]]), r"60% of the rows are missing in 299 places: y\[501\]"),
        (late(AMONG), r"not evenly spaced: y\[5\] \(at 2026-01-01 00:05:27\) comes 00:01:27 after the row before it, "
         r"and the usual step is 00:01:00; this is so in 2 of 2,000 rows\. .*resample\('min'\)\.mean\(\), or pass"),
        (of([MINUTES[0], pd.NaT, MINUTES[2]]), r"the time of y\[1\] \(at NaT\) is missing; every row needs one"),
        (pd.Series(np.zeros(9))[::-1], r"the rows run backwards: y\[1\] \(at 7\)"),
        (pd.Series(np.zeros(9)).sample(frac=1, random_state=1), "the rows are shuffled"),
        (pd.Series(np.zeros(3), pd.Index([0.0, 0.5, 1.5], name="t")), r"1 row is missing .* 1 after .* is 0\.5\."),
        (pd.Series(np.zeros(3), pd.to_timedelta([0, 1, 5], unit="s")), r"3 rows are missing .*asfreq\('s'\)"),
        (pd.Series(np.zeros(3), pd.period_range("2000-01", periods=4, freq="M")[[0, 1, 3]]), "1 row is missing"),
        ([Y[:9], HOLES], r"4 rows are missing in 2 places: y\[1\]\[7\]"),
    ],
)  # fmt: skip
def test_stamps_that_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        Series(y)


def test_stretches_are_looked_at_with_the_row_before_them(monkeypatch):
    monkeypatch.setattr("rarehmm.data.series.STRETCH", 7)
    for gone in range(1, 30):
        with pytest.raises(ValueError, match=rf"1 row is missing in 1 place: y\[{gone}\]"):
            Series(Y[:40].drop(MINUTES[gone]))
    assert len(Series(Y[:40])) == 40


def test_other_ways_of_counting_rows():
    assert len(Series(HOLES, regular=False)) == N - 4
    assert len(Series(pd.concat([Y[:100], Y[99:]]), regular=False)) == N + 1
    with pytest.raises(ValueError, match="the rows are shuffled"):
        Series(Y.sample(frac=1, random_state=0), regular=False)
    for wrong in ("yes", 2, None):
        with pytest.raises(ValueError, match=f'regular is {wrong!r}; it must be True, False, or "fill"'):
            Series(Y, regular=wrong)
    with pytest.raises(ValueError, match=r'regular is "fill" and y has no time index; give y a pandas.DatetimeIndex'):
        Series(Y.to_numpy(), regular="fill")


# ---------------------------------------------------------------- accepted
def test_labels_are_not_times():
    assert len(Series(pd.Series(np.zeros(9))[[0, 1, 5, 8]])) == 4  # what is left after a selection
    assert len(Series(pd.Series(np.zeros(3), ["b", "a", "a"]))) == 3
    assert len(Series(pd.Series(np.zeros(3), pd.MultiIndex.from_tuples([(1, 2), (1, 1), (0, 3)])))) == 3


def test_rows_may_be_a_little_early_or_late():
    rng = np.random.default_rng(1)
    assert len(Series(late(rng.uniform(0, 7.5, N)))) == N
    rounded = of(pd.to_datetime(np.arange(N) * 1000 / 256, unit="ms").round("ms"))  # steps of 3 and of 4 ms
    assert len(Series(rounded)) == N
    assert len(Series(rounded.drop(rounded.index[300:800]), regular="fill")) == N


def test_sequences_may_begin_at_any_time():
    parts = [Y[:100], Y[500:700], Y[50:80]]
    assert Series(parts).n_sequences == 3
    assert Series(pd.concat(parts), lengths=[100, 200, 30]).n_sequences == 3


@pytest.mark.parametrize("freq", ["MS", "ME", "QE", "QS", "YS", "YE", "B", "W", "D", "15D", "2h"])
def test_steps_of_a_calendar_are_even(freq):
    whole = of(pd.date_range("2000-01-03", periods=60, freq=freq))
    gone = [7, 8, 20]
    assert len(Series(whole)) == 60
    holes = whole.drop(whole.index[gone])
    with pytest.raises(ValueError, match=r"3 rows are missing in 2 places: y\[7\]"):
        Series(holes)
    series = Series(holes, regular="fill")
    assert series.index.equals(whole.index)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(series.read(0, 60)[:, 0])), gone)


def test_a_frequency_that_pandas_knows_is_believed():
    series = Series(Y)
    assert isinstance(series.clock.parts[0], Regular)
    assert len(Series(pd.Series(np.zeros(50), pd.date_range("2000-01-01", periods=50, freq="BMS")))) == 50


def test_the_usual_step():
    assert typical_step(np.array([1.0, 1, 5, 1, 2, -3, 0])) == 1
    assert typical_step(np.array([60.0] * 40 + [87.0, 33.0])) == 60  # not 3
    assert typical_step(np.array([4.0] * 29 + [3.0] * 3)) == pytest.approx(125 / 32)
    assert typical_step(np.array([300.0] * 900 + [60.0] * 100)) == 60
    assert np.isnan(typical_step(np.array([0.0, -1.0])))


# ---------------------------------------------------------------- zones
VIENNA = pd.date_range("2026-03-01", "2026-11-30", freq="h", tz="Europe/Vienna")


def test_changed_clocks_are_no_gaps_where_times_have_a_zone():
    aware = of(VIENNA)
    assert len(Series(aware)) == len(VIENNA)
    changed = (VIENNA[:-1].hour + 1) % 24 != VIENNA[1:].hour
    assert changed.sum() == 2  # both changes are in it
    holes = aware.drop(VIENNA[[3, *np.flatnonzero(changed), *(np.flatnonzero(changed) + 2)]])
    filled = Series(holes, regular="fill")
    assert (filled.index == VIENNA).all()
    assert str(filled.index.tz) == "Europe/Vienna"
    again = Series(of(VIENNA.tz_localize(None)).tz_localize("Europe/Vienna", ambiguous="infer"))
    assert (again.index == VIENNA).all()


def test_local_time_without_a_zone_has_a_way_out():
    local = of(VIENNA.tz_localize(None))
    way_out = r"If clocks were changed .* y\.tz_localize\(\"Europe/Vienna\", ambiguous=\"infer\"\)"
    with pytest.raises(ValueError, match=rf"1 row is missing .* \(at 2026-03-29 03:00:00\) .*{way_out}"):
        Series(local[:"2026-06"])
    with pytest.raises(ValueError, match=rf"stands still .* \(at 2026-10-25 02:00:00\) .*{way_out}"):
        Series(local["2026-06":])
    minutes = pd.date_range("2026-10-24", "2026-10-26", freq="min", tz="Europe/Vienna").tz_localize(None)
    with pytest.raises(
        ValueError, match=rf"goes back .* \(at 2026-10-25 02:00:00\) comes after .* 02:59:00.*{way_out}"
    ):
        Series(of(minutes))
    with pytest.raises(ValueError, match="1 row is missing") as caught:  # on a Thursday
        Series(Y.drop(MINUTES[500]))
    assert "clocks" not in str(caught.value)


def test_days_of_a_zone_are_even():
    days = pd.date_range("2026-03-01", periods=300, freq="D", tz="Europe/Vienna")
    aware = of(days)
    assert len(Series(aware)) == 300
    assert (Series(aware.drop(days[[27, 28, 29, 237, 238]]), regular="fill").index == days).all()


def test_exchanged_day_and_month_are_recognised():
    true = pd.date_range("2026-01-12 23:58", periods=4, freq="min")
    wrong = [t.replace(month=t.day, day=t.month) if t.day <= 12 else t for t in true]
    with pytest.raises(
        ValueError, match=r"Day and month seem to be exchanged: .*--date-format '%d/%m/%Y', or dayfirst=T"
    ):
        Series(of(wrong))


# ---------------------------------------------------------------- filled
def test_filled_rows_are_gaps_with_their_times():
    series = Series(HOLES, regular="fill")
    assert repr(series) == "Series(2,000 observations, 4 missing)"
    np.testing.assert_array_equal(series.read(0, N)[:, 0], HOLES.reindex(MINUTES))
    assert series.index.equals(MINUTES)
    np.testing.assert_array_equal(series.clock.read(0, N), Series(Y).clock.read(0, N))
    assert Series(Y, regular="fill").n_missing == 0


def test_filled_sequences_keep_their_bounds():
    parts = [Y[:100], HOLES["2026-01-01 08:10":"2026-01-01 08:40"], HOLES[:30]]
    expected = [0, 100, 131, 164]
    joined = Series(pd.concat(parts), lengths=[len(part) for part in parts], regular="fill")
    listed = Series(parts, regular="fill")
    for series in (joined, listed):
        np.testing.assert_array_equal(series.bounds, expected)
        assert series.n_missing == 4
        assert series.stamp(110) == pd.Timestamp("2026-01-01 08:20")
    np.testing.assert_array_equal(joined.read(0, 164), listed.read(0, 164))


def test_inputs_and_states_of_rows_put_back():
    states = np.full(N, 1)
    full = pd.DataFrame({"temp": np.arange(N) * 1.0}, MINUTES)
    series = Series(HOLES, exog=full, states=states[:-4], regular="fill")
    np.testing.assert_array_equal(series.read_rows(0, N).exog, full)
    np.testing.assert_array_equal(np.flatnonzero(series.read_rows(0, N).states < 0), [7, 8, 9, 500])
    assert (len(series), series.n_known) == (N, N - 4)
    with pytest.raises(
        ValueError, match=r"exog\[7, 'temp'\] \(at 2026-01-01 00:07:00\) is nan; an input is needed in every"
    ):
        Series(HOLES, exog=full.loc[HOLES.index], regular="fill")
    moved = full.set_axis(MINUTES + pd.Timedelta("1s"))
    with pytest.raises(ValueError, match="the index of exog differs from that of y in row 0"):
        Series(HOLES, exog=moved, regular="fill")
    with pytest.raises(ValueError, match="exog has 7 rows and y has 1996"):
        Series(HOLES, exog=full[:7], regular="fill")


def test_a_wrong_year_does_not_fill_the_memory():
    wrong = of([*MINUTES[:100], *(MINUTES[100:200] + pd.Timedelta("73000D"))])
    with pytest.raises(
        MemoryError, match=r"y with 105,120,000 missing rows .* the longest hole is before y\[100\] \(at 22"
    ):
        Series(pd.DataFrame(np.zeros((200, 500)), wrong.index), regular="fill")


def test_work_on_stamps_may_be_done_elsewhere():
    with ThreadPoolExecutor(2) as executor:
        assert len(Series(of(MINUTES), executor=executor)) == N
        with pytest.raises(ValueError, match=r"4 rows are missing in 2 places: y\[7\]"):
            Series(HOLES, executor=executor)
        assert len(Series(HOLES, regular="fill", executor=executor)) == N


@pytest.mark.parametrize("seed", range(5))
def test_places_of_rows_among_all_rows(seed):
    rng = np.random.default_rng(seed)
    there = np.append(True, rng.random(60) < 0.6)
    rows = np.flatnonzero(there)
    holes = np.diff(rows) - 1
    gaps = Gaps(1 + np.flatnonzero(holes), holes[holes > 0], len(rows))
    assert gaps.size == rows[-1] + 1
    np.testing.assert_array_equal(gaps.place(np.arange(len(rows))), rows)
    assert [gaps.before(row) for row in range(gaps.size + 1)] == [there[:row].sum() for row in range(gaps.size + 1)]


def test_a_long_hole_is_counted_although_the_clock_drifts():
    times = pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(50_000) * 1.00003, unit="s")
    y = of(times)
    assert len(Series(y.drop(y.index[5000:45_000]), regular="fill")) == 50_000


@pytest.mark.jit
def test_the_estimator_takes_the_same_word_everywhere():
    hmm = RareHMM(2, method="map", check_model=False)
    with pytest.raises(ValueError, match="4 rows are missing"):
        hmm.fit(HOLES)
    hmm.fit(HOLES, regular="fill")
    assert hmm.predict_proba(HOLES).shape == (N, 2)
    assert hmm.fit(HOLES, regular=False).predict(HOLES).shape == (N - 4,)
