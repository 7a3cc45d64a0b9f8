"""Blocks cover every observation once, and no block crosses a join."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarehmm import Series
from rarehmm.data.workers import Item, available_threads, in_threads
from rarehmm.engine.lanes import LANES
from rarehmm.exact.blocks import CHUNK, chunks, even_size, map_chunks, split

lengths = st.lists(st.integers(1, 400), min_size=1, max_size=40)


@given(lengths, st.integers(1, 300), st.integers(0, 300))
def test_every_observation_lies_in_one_block(sizes, size, halo):
    series = Series(np.arange(sum(sizes)) * 1.0, lengths=sizes)
    blocks = split(series, size)
    covered = np.concatenate([np.arange(f, f + n) for f, n in zip(blocks.first, blocks.length, strict=True)])
    np.testing.assert_array_equal(covered, np.arange(len(series)))
    np.testing.assert_array_equal(blocks.first[blocks.fresh], series.bounds[:-1])
    assert (blocks.first + blocks.length <= blocks.stop).all()
    short = blocks.length < size
    np.testing.assert_array_equal((blocks.first + blocks.length)[short], blocks.stop[short])
    parts = chunks(blocks, halo, len(series))
    everyone = np.arange(len(blocks.first))
    np.testing.assert_array_equal(np.sort(np.concatenate([everyone[p.blocks] for p in parts])), everyone)
    for part in parts:
        assert (np.diff(blocks.length[part.blocks]) <= 0).all()
        assert part.first <= max(0, blocks.first[part.blocks].min() - halo)
        assert part.last >= min(len(series), (blocks.first + blocks.length)[part.blocks].max() + halo)


def test_sizes_fill_the_lanes():
    for T in (1000, 99_999, 1_000_000):
        series = Series(np.arange(T) * 1.0)
        n = len(split(series, even_size(series, 1000)).first)
        assert n % LANES in (0, LANES - 1) or n < LANES
        assert all((c.high - c.low) % LANES == 0 for c in chunks(split(series, 1000), 32, T)[:-1])


@pytest.mark.parametrize("threads", [1, 2, None])
def test_results_come_in_order(threads):
    series = Series(np.arange(5 * CHUNK) * 1.0)
    parts = chunks(split(series, 1000), 3, len(series))
    found = map_chunks(series, parts, lambda y, chunk: (chunk.first, y[0, 0], len(y)), threads)
    assert found == [(c.first, float(c.first), c.last - c.first) for c in parts]
    assert len(parts) > 2
    assert available_threads() >= 1


def test_work_within_work_does_not_wait_for_itself():
    """A pass within a pass, with all threads at it; it would wait for ever."""
    items = [Item(i, i + 1, ()) for i in range(8)]

    def inner(rows):
        return float(rows.sum())

    def outer(rows):
        return sum(in_threads(read, inner, items, 4)) + float(rows.sum())

    def read(first, last):
        return np.arange(float(first), float(last))

    with ThreadPoolExecutor(1) as other:
        assert other.submit(in_threads, read, outer, items, 4).result(timeout=30) == [28.0 + i for i in range(8)]
