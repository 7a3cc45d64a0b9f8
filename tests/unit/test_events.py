"""Events: where they begin and end, what is merged, and the index of the data."""

import numpy as np
import pandas as pd
import pytest
from oracle import event_table

from rarehmm import Series
from rarehmm.posterior.events import Events

pytestmark = pytest.mark.plain


def found(probability, lengths=None, **settings):
    p = np.array(probability, dtype=float)[:, None]
    events = Events(Series(np.zeros(len(p)), lengths), np.array([0]), **settings)
    events.add(0, p)
    return [list(rows) for rows in events.rows]


def test_stretches_above_a_threshold():
    assert found([0, 1, 1, 0, 0, 1]) == [[1, 3], [5, 6]]
    assert found([1, 1]) == [[0, 2]]
    assert found([0, 0.49]) == []
    assert found([0, 0.5]) == [[1, 2]]


def test_flickering_is_one_event_and_short_ones_are_left_out():
    assert found([1, 0, 1, 0, 0, 1], gap=2) == [[0, 3], [5, 6]]
    assert found([1, 0, 1, 0, 0, 1], gap=1) == [[0, 1], [2, 3], [5, 6]]
    assert found([1, 0, 1, 0, 0, 1], gap=3) == [[0, 6]]
    assert found([1, 0, 0, 1, 1, 0], shortest=2) == [[3, 5]]


def test_no_event_crosses_from_one_sequence_to_the_next():
    assert found([0, 1, 1, 1, 0], lengths=[2, 3]) == [[1, 2], [2, 4]]


def test_the_table_keeps_time_stamps():
    y = np.array([0.0, 0, 5, 9, 5, 0, np.nan, -7, 0])
    times = pd.date_range("2026-01-01", periods=9, freq="min")
    p = np.zeros((9, 3))
    p[[2, 3, 4], 2], p[7, 1] = [0.9, 1.0, 0.8], 0.7
    p[:, 0] = 1 - p.sum(1)
    table = event_table(Series(pd.Series(y, index=times)), p, np.array([1, 2]))
    assert table["start"].tolist() == [times[2], times[7]]
    assert table["end"].tolist() == [times[4], times[7]]
    assert table["duration"].tolist() == [3, 1]
    assert table["peak"].tolist() == [9.0, -7.0]
    assert table["peak_at"].tolist() == [times[3], times[7]]
    assert table["state"].tolist() == [2, 1]
    assert table["probability"].tolist() == pytest.approx([0.9, 0.7])
    plain = event_table(Series(y), p, np.array([1, 2]), threshold=0.75)
    assert plain["start"].tolist() == [2]
    assert list(event_table(Series(y), p, np.array([], dtype=int)).columns) == list(table.columns)


def test_rows_of_a_list_count_from_its_own_beginning():
    p = np.array([[1, 0], [1, 0], [1, 0], [0, 1.0]])
    table = event_table(Series([np.array([0.0, 1.0]), np.array([0.0, 4.0])]), p, np.array([1]))
    assert (table["start"].tolist(), table["sequence"].tolist()) == ([1], [1])


@pytest.mark.parametrize(("more", "message"), [({"threshold": 0}, "threshold is 0"), ({"gap": 0}, "gap is 0")])
def test_bad_settings_are_refused(more, message):
    with pytest.raises(ValueError, match=message):
        event_table(Series(np.arange(3.0)), np.ones((3, 1)), np.array([0]), **more)
