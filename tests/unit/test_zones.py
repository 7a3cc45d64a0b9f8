"""Local times whose clocks are changed: the hour that occurs twice is resolved by the order of rows, or refused."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from rarehmm.data.zones import localized

pytestmark = pytest.mark.plain

BERLIN = "Europe/Berlin"


def place(row):
    return f"row {row}"


def autumn(freq="10min", first="2026-10-24 20:00", last="2026-10-25 08:00"):
    return pd.date_range(first, last, freq=freq, tz=BERLIN)


@pytest.mark.parametrize("freq", ["1min", "10min", "30min", "1h", "90min", "2h", "3h", "1D"])
@pytest.mark.parametrize("year", [2025, 2026])
def test_local_times_of_a_year_come_back(freq, year):
    true = pd.date_range(f"{year}-01-01", f"{year}-12-31", freq=freq, tz=BERLIN)
    assert localized(true.tz_localize(None), BERLIN, place).equals(true)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_and_years_do_not_matter(unit):
    true = pd.date_range("2024-01-01", "2026-12-31", freq="1h", tz=BERLIN).as_unit(unit)
    assert (localized(true.tz_localize(None), BERLIN, place) == true).all()


def test_a_series_may_begin_or_end_in_the_hour_and_have_holes():
    true = autumn()
    inside = np.flatnonzero(true.tz_localize(None).hour == 2)  # 12 rows
    for rows in (np.arange(inside[3], 60), np.arange(inside[8], 60), np.arange(inside[3]), np.arange(inside[8])):
        assert localized(true[rows].tz_localize(None), BERLIN, place).equals(true[rows])
    for gone in (inside[:2], inside[4:7], inside[5:6], inside[9:11]):
        holes = true.delete(gone)
        assert localized(holes.tz_localize(None), BERLIN, place).equals(holes)


def test_what_rows_do_not_tell_is_refused():
    true = autumn()
    hour = true[true.tz_localize(None).hour == 2]
    once = true.drop(hour[:6]).tz_localize(None)
    with pytest.raises(
        ValueError, match=r"row 36 is 2026-10-25 02:00:00, which occurs twice in Europe/Berlin, .* offset"
    ):
        localized(once, BERLIN, place)
    spring = pd.date_range("2026-03-29 01:00", periods=9, freq="20min")
    with pytest.raises(ValueError, match=r"row 3 is 2026-03-29 02:00:00, which does not exist in Europe/Berlin"):
        localized(spring, BERLIN, place)
    back = pd.DatetimeIndex(["2026-10-25 02:30", "2026-10-25 02:10", "2026-10-25 02:20", "2026-10-25 02:10"])
    with pytest.raises(ValueError, match="which occurs twice"):
        localized(back, BERLIN, place)


def test_rows_that_arrive_one_by_one_follow_the_last():
    true = autumn()
    for last, now in pairwise(true):
        found = localized(pd.DatetimeIndex([now.tz_localize(None)]), BERLIN, place, last, 600.0)
        assert found[0] == now
