"""Who does the work: rows come to whoever works, in order, and nothing is left behind when one fails."""

from concurrent.futures import Future, ThreadPoolExecutor

import dask.array as da
import numpy as np
import pytest
from small_models import model_of

import rarehmm as rh
from rarehmm.data import workers
from rarehmm.data.sources import open_source
from rarehmm.data.sources.lazy import Dask
from rarehmm.data.sources.table import Source
from rarehmm.data.workers import Item, group_into_spans, on_workers, pieces_of, share, submit
from rarehmm.exact.passes import log_posterior

pytestmark = pytest.mark.plain

T = 600
Y = np.random.default_rng(0).normal(size=T)


class Client:
    """What is used of a Dask client, in this process."""

    def __init__(self):
        self.scattered, self.tasks = [], 0

    def scheduler_info(self):
        return {}

    def compute(self, task):
        self.tasks += 1
        future = Future()
        future.set_result(task.compute(scheduler="synchronous"))
        return future

    def scatter(self, what, **options):
        self.scattered.append((what, options))
        return what


@pytest.fixture(params=["threads", "client"])
def executor(request):
    if request.param == "client":
        yield Client()
    else:
        with ThreadPoolExecutor(2) as one:
            yield one


@pytest.fixture
def parts(tmp_path):
    """Rows in memory, in a file, and in a Dask array; where each begins."""
    np.save(tmp_path / "y.npy", Y[200:350])
    where = [Y[:200, None], open_source(tmp_path / "y.npy"), open_source(da.from_array(Y[350:], chunks=70))]
    return where, np.array([0, 200, 350, T])


def scaled(rows, factor):
    return factor * rows[:, 0]


def test_work_gets_its_rows_wherever_they_are(executor, parts, monkeypatch):
    monkeypatch.setattr(workers, "SPAN", 150)
    items = [Item(max(first - 20, 0), min(first + 120, T), (float(i),)) for i, first in enumerate(range(0, T, 100))]
    given = []
    found = on_workers(executor, *parts, scaled, items, lambda done, total: given.append((done, total)))
    for i, (item, one) in enumerate(zip(items, found, strict=True)):
        np.testing.assert_array_equal(one, i * Y[item.first : item.last])
    assert given[-1] == (6, 6)
    assert len(given) == len(group_into_spans(items)) > 1


def test_items_are_gathered_in_spans(monkeypatch):
    monkeypatch.setattr(workers, "SPAN", 10)
    items = [Item(a, a + 4, ()) for a in range(0, 24, 4)]
    assert [len(span) for span in group_into_spans(items)] == [2, 2, 2]
    assert [item for span in group_into_spans(items) for item in span] == items
    assert group_into_spans([]) == []
    assert [len(span) for span in group_into_spans([Item(0, 99, ()), Item(99, 100, ())])] == [
        1,
        1,
    ]  # one that is too long alone


def test_only_what_is_needed_is_sent(parts):
    there, offsets = parts
    (memory,) = pieces_of(there, offsets, 150, 180, dask=True)
    assert (memory.low, memory.high, memory.origin) == (150, 180, 150)
    np.testing.assert_array_equal(memory.rows[:, 0], Y[150:180])
    file, array = pieces_of(there, offsets, 300, 400, dask=True)
    assert (file.low, file.high, file.origin) == (300, 350, 200)  # a file is read by whoever works on it
    assert isinstance(file.rows, Source)
    assert (array.low, array.high, array.origin) == (350, 400, 350)
    assert array.rows.shape == (50, 1)  # of a Dask array, a slice of its graph
    assert isinstance(array.rows, da.Array)
    assert isinstance(pieces_of(there, offsets, 360, 400, dask=False)[0].rows, Dask)  # others read it themselves


def test_one_that_fails_calls_off_the_rest(monkeypatch, parts):
    monkeypatch.setattr(workers, "SPAN", 100)
    futures = []

    class Executor:
        def submit(self, todo, *args):
            futures.append(Future())
            if len(futures) == 2:
                futures[-1].set_exception(OSError("the disk is gone"))
            elif len(futures) == 1:
                futures[-1].set_result(todo(*args))
            return futures[-1]

    items = [Item(first, first + 100, (1.0,)) for first in range(0, T, 100)]
    given = []
    with pytest.raises(OSError, match="the disk is gone"):
        on_workers(Executor(), *parts, scaled, items, lambda done, total: given.append(done))
    assert given == [1]
    assert [one.cancelled() for one in futures[2:]] == [True] * 4


def test_what_many_need_is_sent_once():
    client, what = Client(), object()
    assert share(client, what) is what
    assert client.scattered == [(what, {"hash": False})]
    with ThreadPoolExecutor(1) as threads:
        assert share(threads, what) is what
        assert submit(threads, divmod, 7, 2).result() == (3, 1)
    assert submit(client, divmod, 7, 2).result() == (3, 1)
    assert client.tasks == 1


@pytest.mark.parametrize("kind", ["memory", "dask"])
def test_a_pass_is_the_same_whoever_does_it(kind, executor, monkeypatch):
    monkeypatch.setattr(workers, "SPAN", 200)
    model = model_of(rh.Gaussian(), 2)
    theta = model.pack(model.parameters([[0.9, 0.1], [0.2, 0.8]], mean=[0, 2], variance=1))
    here = log_posterior(model, theta, rh.Series(Y))
    data = Y if kind == "memory" else da.from_array(Y, chunks=100)
    away = log_posterior(model, theta, rh.Series(data, executor=executor))
    assert away[0] == pytest.approx(here[0], rel=1e-12)
    np.testing.assert_allclose(away[1], here[1], rtol=1e-9, atol=1e-9)
