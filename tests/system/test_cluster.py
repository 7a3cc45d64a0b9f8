"""Series longer than memory and clusters: whatever holds the data and whoever does the work, the answer is the same."""

import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from dask.distributed import Client, LocalCluster
from deadly import killed_once
from scipy.signal import lfilter
from small_models import model_of

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs
from rarehmm.exact.passes import log_posterior
from rarehmm.model.autoregression import AroundLevel
from rarehmm.sampling.rule import infer

pytestmark = [pytest.mark.jit, pytest.mark.cluster]
T, LIMIT = 100_000, "4MB"


@pytest.fixture(scope="module")
def y():
    shell = model_of(rh.Gaussian(), 2)
    truth = shell.parameters([[0.995, 0.005], [0.1, 0.9]], mean=[0, 3], variance=[1, 1.5])
    found, _ = rh.simulate(np.random.default_rng(0), shell, truth, T)
    found[20_000:23_000] = np.nan
    return found


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0") as one:
        yield one


@pytest.fixture(scope="module")
def client(cluster):
    with Client(cluster) as one:
        yield one


def draws(data, **more):
    """Draws of the posterior, by blocks that stand for the series."""
    series = rh.Series(data, memory_limit=LIMIT, **more)
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    found = infer(np.random.default_rng(1), model, series, wanted=100)
    assert "block sampling" in [c.name for c in found.checks]
    return found.theta


@pytest.fixture(scope="module")
def expected(y):
    return draws(y)


def stored(kind, y, folder):
    if kind == "npy":
        np.save(folder / "y.npy", y)
        return folder / "y.npy"
    if kind == "memory map":
        np.save(folder / "y.npy", y)
        return np.load(folder / "y.npy", mmap_mode="r")
    if kind == "parquet":
        pq.write_table(pa.table({"y": y}), folder / "y.parquet", row_group_size=9_999)
        return folder / "y.parquet"
    if kind == "files":
        for i, part in enumerate(np.split(y, [30_000, 30_001])):
            pq.write_table(pa.table({"y": part}), folder / f"{i}.parquet")
        return [folder / f"{i}.parquet" for i in range(3)]
    if kind == "zarr":
        zarr.create_array(str(folder / "y.zarr"), data=y, chunks=(7_777,))
        return folder / "y.zarr"
    return da.from_array(y, chunks=12_345)


KINDS = ["npy", "memory map", "parquet", "files", "zarr", "dask"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_posterior_is_the_same_wherever_the_data_are(kind, y, expected, tmp_path):
    np.testing.assert_allclose(draws(stored(kind, y, tmp_path)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["dask", "parquet", "memory"])
def test_the_posterior_is_the_same_whoever_does_the_work(kind, y, expected, tmp_path, client):
    data = y if kind == "memory" else stored(kind, y, tmp_path)
    np.testing.assert_allclose(draws(data, executor=client), expected, rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def load():
    return np.random.default_rng(5).normal(size=(30_000, 1))


def regime_draws(y, load, **more):
    """Draws of the posterior of two levels with autocorrelated noise and an input, by blocks."""
    series = rh.Series(y, exog=load, memory_limit="2MB", **more)
    model = rh.Model(
        rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), autoregression=AroundLevel(1),
        inputs=Inputs.of(series, [Columns()]),
    )  # fmt: skip
    start = model.natural([[0.0, 1.0], [4.0, 1.0]], [[0.99, 0.01], [0.1, 0.9]], [0.1, 0.5])
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=100)
    assert {"block sampling", "block seams"} <= {c.name for c in found.checks}
    return found.theta


@pytest.fixture(scope="module")
def with_levels(load):
    rng, states = np.random.default_rng(3), np.arange(len(load)) % 400 > 370
    noise = lfilter([1.0], [1.0, -0.6], rng.normal(size=len(load)))
    return 4.0 * states + noise + 0.5 * load[:, 0]


def test_regimes_with_inputs_are_the_same_wherever_the_data_are(with_levels, load, tmp_path, client):
    expected = regime_draws(with_levels, load)
    for kind in ("memory map", "parquet", "dask"):
        folders = [tmp_path / kind / name for name in "yx"]
        for folder in folders:
            folder.mkdir(parents=True)
        y, x = (stored(kind, values, folder) for values, folder in zip((with_levels, load[:, 0]), folders, strict=True))
        np.testing.assert_allclose(regime_draws(y, x), expected, rtol=0, atol=1e-9)
        if kind == "dask":
            np.testing.assert_allclose(regime_draws(y, x, executor=client), expected, rtol=0, atol=1e-7)


def test_any_executor_will_do(y, tmp_path):
    """An exact pass by processes; chains and drawing are as above."""
    model = model_of(rh.Gaussian(), 2)
    theta = model.pack(model.parameters([[0.99, 0.01], [0.1, 0.9]], mean=[0, 3], variance=1))
    here = log_posterior(model, theta, rh.Series(y))
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        away = log_posterior(model, theta, rh.Series(stored("npy", y, tmp_path), executor=executor))
    assert away[0] == pytest.approx(here[0], rel=1e-12)
    np.testing.assert_allclose(away[1], here[1], rtol=1e-9, atol=1e-9)


def test_threads_are_an_executor_too(y, expected):
    with ThreadPoolExecutor(2) as executor:
        np.testing.assert_allclose(draws(y, executor=executor), expected, rtol=0, atol=1e-9)


def test_the_estimator_takes_a_client(y, client):
    hmm = rh.RareHMM(2, n_draws=100, memory_limit=LIMIT, verbose=0)
    hmm.fit(da.from_array(y, chunks=30_000), client=client)
    assert hmm.means_[:, 0] == pytest.approx([0, 3], abs=0.2)
    assert hmm.rare_states_.tolist() == [1]
    with pytest.raises(ValueError, match="both client and executor"):
        hmm.fit(y, client=client, executor=client)


def test_a_worker_that_is_killed_and_one_that_is_added(y, expected, tmp_path, monkeypatch, cluster, client):
    """In the middle of a pass; the answer is the same."""
    monkeypatch.setattr("rarehmm.data.workers.SPAN", 20_000)
    marker, stages = tmp_path / "killed", []
    data = da.from_array(y, chunks=25_000).map_blocks(killed_once, str(marker), dtype=float)
    marker.touch()  # not before the second pass: what is read here would end the test
    series = rh.Series(data, memory_limit=LIMIT, executor=client)

    def on_progress(stage, done, total):
        if stage not in stages:
            stages.append(stage)
            if stage.startswith("pass 1"):
                marker.unlink()
            if stage.startswith("pass 3"):
                cluster.scale(3)

    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    found = infer(np.random.default_rng(1), model, series, wanted=100, on_progress=on_progress).theta
    client.wait_for_workers(3, timeout=60)
    assert marker.exists()
    assert {"pass 1 over all data", "pass 3 over all data"} <= set(stages)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("where", ["threads", "cluster"])
def test_a_block_that_cannot_be_read_names_its_place(where, y, tmp_path, client):
    path = stored("npy", y, tmp_path)
    series = rh.Series(path, memory_limit=LIMIT, executor=client if where == "cluster" else None)
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    os.truncate(path, 8 * 60_000 + 128)
    with pytest.raises(rh.ReadError, match=r"y\.npy, row \d+ \(byte \d+\) cannot be read: the file had 800128 bytes"):
        infer(np.random.default_rng(1), model, series, wanted=100)
