"""Files from others are data: damaged, cut off or made up, they are refused by name or give what is valid, and nothing
in them is executed."""

import builtins
import copy
import functools
import json
import marshal
import os
import pickle
import shutil

import h5py
import hostile
import joblib
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_models import model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.data.files import open_files
from rarehmm.designs.uniform import uniform
from rarehmm.posterior.prediction import Stream
from rarehmm.samplers.sgld import Sgld
from rarehmm.sampling.diagnostics import Check
from rarehmm.search.regimes import Regime

pytestmark = pytest.mark.plain

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
MANY = settings(max_examples=3000 if NIGHTLY else 50, deadline=None, suppress_health_check=list(HealthCheck))


def posterior(K=2, draws=30):
    rng = np.random.default_rng(0)
    model = model_of(rh.Gaussian(), K)
    phi = np.stack([rng.normal(size=(2, draws, K)), rng.uniform(1, 2, (2, draws, K))], axis=-1)
    return rh.Posterior(
        model, phi, rng.dirichlet(np.ones(K), (2, draws, K)), "chain", ["why"], [Check("R-hat", 1.0, True, "good")]
    )


def written_run(folder):
    """The files of a run from which its fit is loaded."""
    folder.mkdir()
    y = np.random.default_rng(0).normal(size=20)
    pd.DataFrame({"y": y}).to_csv(folder / "y.csv", index=False)
    given = {"file": str(folder / "y.csv"), "states": 2, "draws": 20, "column": ["y"]}
    (folder / "settings.yaml").write_text(runs.from_mapping(given).to_yaml())
    posterior().save(folder / "posterior.nc")
    regimes = [Regime(k, 0.5, 10.0, 2.0, "common", "words")._asdict() for k in range(2)]
    (folder / "regimes.json").write_text(json.dumps(regimes))
    return folder


def check_run(found):
    _, hmm = found
    check_posterior(hmm.posterior_)
    assert len(hmm.regimes_) == 2
    hostile.finite("regimes", [[r.share, r.observations, r.sojourn] for r in hmm.regimes_])


def check_posterior(found):
    hostile.finite("phi", found.phi)
    hostile.check_laws("transition", found.transition)
    for name, values in found.quantities.items():
        hostile.finite(name, values)
    assert isinstance(found.verdict, str)
    found.summary()


def refused_or(path, load, check):
    """Load a file: what it gives passes the check, or it is refused by its name."""
    found = hostile.attempted(lambda: load(path))
    if isinstance(found, hostile.Refusal):
        assert path.name in found.message
    else:
        check(found)


# ---------------------------------------------------------------- bytes
def harmed(content, harm):
    """Bytes after some harm: (what, where, how much)."""
    content = bytearray(content)
    for what, where, amount in harm:
        at = where % max(1, len(content))
        match what:
            case "flip" if content:
                content[at] ^= 1 << amount % 8
            case "set" if content:
                content[at : at + 8] = (amount * 0x0101010101010101).to_bytes(16, "little")[:8]
            case "cut":
                del content[at:]
            case "drop":
                del content[at : at + amount]
            case "zero":
                content[at : at + 16 * amount] = bytes(len(content[at : at + 16 * amount]))
            case "twice":
                content[at:at] = content[at : at + amount]
    return bytes(content)


HARM = st.lists(
    st.tuples(
        st.sampled_from(("flip", "set", "zero", "drop", "twice", "cut")), st.integers(0, 1 << 20), st.integers(0, 255)
    ),
    min_size=1,
    max_size=4,
)


def checkpointed(path):
    """A checkpoint, and how a run is taken up from it."""
    rng = np.random.default_rng(2)
    model = model_of(rh.Gaussian(), 2)
    point = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, point, 60))
    windows = rh.Windows(series, 2, 2)
    pool, theta = rh.Pool(model, series, windows, uniform(windows), 2), model.pack(point)
    advance = functools.partial(rh.run, sampler=Sgld(1e-4), model=model, pool=pool, start=theta, steps=20)
    advance(rng=np.random.default_rng(3), checkpoint=path)
    return lambda path: advance(rng=np.random.default_rng(3), checkpoint=path)


def column(path):
    """A file of one column, of the kind that its name says."""
    values = np.arange(50.0)
    match path.suffix:
        case ".npy":
            np.save(path, values)
        case ".npz":
            np.savez_compressed(path, y=values)
        case ".parquet":
            pd.DataFrame({"y": values}).to_parquet(path)
        case _:
            pd.DataFrame({"y": values}).to_csv(path, index=False)


def write_settings(path):
    path.write_text(runs.from_mapping({"file": "y.csv"}).to_yaml())


def read_column(path):
    return open_files([str(path)])


def check_series(series):
    hostile.finite("summary", series.summaries[0][:6])


def check_table(table):
    assert table.to_numpy(dtype=float).ndim == 2


FILES = {
    "fit.nc": (posterior().save, rh.Posterior.load, check_posterior),
    "y.npy": (column, rh.Series, check_series),
    "y.parquet": (column, rh.Series, check_series),
    "y.csv": (column, read_column, check_table),
    "y.npz": (column, read_column, check_table),
    "y.csv.gz": (column, read_column, check_table),
    "settings.yaml": (write_settings, lambda path: runs.settings_of(path.parent), lambda given: given.to_yaml()),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_which_bytes_changed(name, tmp_path):
    make, load, check = FILES[name]
    path = tmp_path / name
    make(path)
    content = path.read_bytes()

    @MANY
    @given(HARM)
    def harm(what):
        path.write_bytes(harmed(content, what))
        refused_or(path, load, check)

    harm()
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=name):
        load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match=name):
        load(path)


def test_checkpoints_of_which_bytes_changed(tmp_path):
    path = tmp_path / "run.npz"
    load = checkpointed(path)
    content = path.read_bytes()
    draws = load(path)

    @MANY
    @given(HARM)
    def harm(what):
        path.write_bytes(harmed(content, what))
        refused_or(path, load, lambda again: hostile.finite("draws", again))

    harm()
    path.write_bytes(content)
    np.testing.assert_array_equal(load(path), draws)


@pytest.mark.parametrize("name", ["settings.yaml", "posterior.nc", "regimes.json"])
def test_runs_of_which_bytes_changed(name, tmp_path):
    folder = written_run(tmp_path / "run")
    check_run(runs.load(folder))
    content = (folder / name).read_bytes()

    @MANY
    @given(HARM)
    def harm(what):
        (folder / name).write_bytes(harmed(content, what))
        refused_or(folder, runs.load, check_run)

    harm()


# ---------------------------------------------------------------- what is inside
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.just(10**30), st.floats(), st.text(max_size=5),
    st.lists(st.floats(), max_size=3), st.just({}), st.just([[[]]]), st.just("nan"), st.just([["Gaussian"]]),
)  # fmt: skip


def places(given, at=()):
    """Every place in data out of JSON."""
    yield at
    for key in given if isinstance(given, dict) else range(len(given)) if isinstance(given, list) else ():
        yield from places(given[key], (*at, key))


def changed(given, place, value, remove):
    """The same data with another value at a place, or without it."""
    if not place:
        return value
    given = copy.deepcopy(given)
    inner = functools.reduce(lambda part, key: part[key], place[:-1], given)
    if remove:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return given


def test_posteriors_of_which_the_description_changed(tmp_path):
    path, good = tmp_path / "fit.nc", tmp_path / "good.nc"
    posterior().save(good)
    with h5py.File(good) as file:
        content = json.loads(file["posterior"].attrs["rarehmm"])

    @MANY
    @given(st.sampled_from(list(places(content))), ODD, st.booleans())
    def change(place, value, remove):
        shutil.copy(good, path)
        with h5py.File(path, "r+") as file:
            file["posterior"].attrs["rarehmm"] = json.dumps(changed(content, place, value, remove))
        refused_or(path, rh.Posterior.load, check_posterior)

    change()


def replaced(group, name, **more):
    del group[name]
    group.create_dataset(name, **more)


@pytest.mark.parametrize(
    "harm",
    [
        lambda g: g["mean"].__setitem__((0, 0, 0), np.nan),
        lambda g: g["variance"].__setitem__((0, 0, 0), -1.0),
        lambda g: g["transition"].__setitem__((0, 0, 0, 0), 7.0),
        lambda g: g["transition"].__setitem__((0, 0, 0, 0), np.inf),
        lambda g: g.__delitem__("mean"),
        lambda g: g.__delitem__("transition"),
        lambda g: replaced(g, "mean", data=np.zeros((2, 30))),
        lambda g: replaced(g, "mean", data=np.array([b"x"] * 3)),
        lambda g: replaced(g, "mean", data=np.zeros((2, 30, 2), dtype=complex)),
        lambda g: replaced(g, "mean", shape=(1 << 20, 1 << 20, 2), dtype="f8", chunks=(1, 1024, 2)),
        lambda g: replaced(g, "mean", shape=(30_000, 100_000, 2), dtype="f8", chunks=(1, 1024, 2)),
        lambda g: replaced(g, "mean", shape=(0, 0, 2), dtype="f8"),
        lambda g: g.attrs.__delitem__("rarehmm"),
        lambda g: g.attrs.__setitem__("rarehmm", "[" * 100_000),
        lambda g: g.attrs.__setitem__("rarehmm", 3.0),
        lambda g: g.attrs.__setitem__("rarehmm", json.dumps({"format": 10**9})),
        lambda g: g.attrs.__setitem__("rarehmm", told_with(g, family=["MultivariateGaussian", 10**9])),
        lambda g: g.attrs.__setitem__("rarehmm", told_with(g, family=["Categorical", 10**12])),
        lambda g: g.attrs.__setitem__("rarehmm", told_with(g, family=["GaussianMixture", 10**9])),
    ],
)
def test_posteriors_of_which_the_content_changed(harm, tmp_path):
    path = tmp_path / "fit.nc"
    posterior().save(path)
    with h5py.File(path, "r+") as file:
        harm(file["posterior"])
    found = hostile.attempted(lambda: rh.Posterior.load(path))
    assert isinstance(found, hostile.Refusal)
    assert "fit.nc" in found.message


def told_with(group, **more):
    return json.dumps({**json.loads(group.attrs["rarehmm"]), **more})


def test_checkpoints_of_which_the_content_changed(tmp_path):
    path = tmp_path / "run.npz"
    load = checkpointed(path)
    good = dict(np.load(path))
    odd = (
        lambda a: np.concatenate([np.atleast_1d(a)] * 2),
        lambda a: np.zeros(0),
        lambda a: np.array("x"),
        lambda a: np.full(a.shape, 1e300),
        lambda a: np.full(a.shape, np.nan),
    )
    for name in sorted(good.keys() - {"diverged_0"}):  # the name of a component, whichever, says that the chain is over
        for change in odd:
            np.savez(path, **{**good, name: change(good[name])})
            refused_or(path, load, lambda again: hostile.finite("draws", again))
        np.savez(path, **{key: value for key, value in good.items() if key != name})
        with pytest.raises(ValueError, match=r"run\.npz"):
            load(path)


def test_regimes_and_streams_of_which_the_content_changed(tmp_path):
    folder = written_run(tmp_path / "run")
    content = json.loads((folder / "regimes.json").read_text())

    @MANY
    @given(st.sampled_from(list(places(content))), ODD, st.booleans())
    def change(place, value, remove):
        (folder / "regimes.json").write_text(json.dumps(changed(content, place, value, remove)))
        refused_or(folder / "regimes.json", lambda path: runs.load(path.parent), check_run)

    stream = Stream(np.array([[0.25, 0.75]]), 3).to_dict()

    @MANY
    @given(st.sampled_from(list(places(stream))), ODD, st.booleans())
    def change_stream(place, value, remove):
        found = hostile.attempted(lambda: Stream.from_dict(changed(stream, place, value, remove)))
        if isinstance(found, Stream) and found.distribution is not None:
            hostile.check_laws("law", found.distribution)

    change()
    change_stream()


@pytest.mark.parametrize(
    "text",
    [
        "file: y.csv\nstates: " + "[" * 5000,
        "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(12)
        ) + "states: *m\nfile: y.csv\n",
        "file: y.csv\nstates: &a [" + "x, " * 9 + "]\n",
        "file: 2026-99-99",
        "file: !!timestamp x",
        "file: !!int x",
        "file: !!bool x",
        "file: !!binary x",
        "file: y.csv\nthreshold: .nan",
        "file: y.csv\n? [a]\n: b",
        "file: y.csv\n3: 4",
        "file: y.csv\nseed: -1",
        "file: [1]",
        "\x00",
        "- file",
    ],
)  # fmt: skip
def test_settings_that_nobody_meant(text, tmp_path):
    (tmp_path / "settings.yaml").write_text(text)
    found = hostile.attempted(lambda: runs.settings_of(tmp_path))
    assert isinstance(found, hostile.Refusal)
    assert len(found.message) < 2000


# ---------------------------------------------------------------- nothing is executed
class Bomb:
    """What unpickling would execute: a folder is made."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def poisoned(monkeypatch):
    """Everything that could execute what a file says ends the test."""

    def explode(*args, **more):
        raise SystemExit("something in a file was to be executed")

    load, parse = np.load, yaml.load
    for module, names in (
        (pickle, ("load", "loads", "Unpickler")),
        (marshal, ("load", "loads")),
        (joblib, ("load",)),
        (pd, ("read_pickle",)),
        (yaml, ("unsafe_load", "full_load", "load_all")),
        (builtins, ("eval", "exec")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, explode)
    monkeypatch.setattr(yaml, "load", lambda text, kind: parse(text, kind) if kind is yaml.SafeLoader else explode())
    monkeypatch.setattr(np, "load", lambda *a, **more: explode() if more.get("allow_pickle") else load(*a, **more))


def test_what_is_loaded_is_not_executed(tmp_path, poisoned):
    """All kinds of files, with everything poisoned that could execute something."""
    for name, (make, load, check) in FILES.items():
        make(tmp_path / name)
        check(load(tmp_path / name))
    check_run(runs.load(written_run(tmp_path / "run")))
    checkpointed(tmp_path / "run.npz")(tmp_path / "run.npz")
    zarr.save_array(tmp_path / "y.zarr", np.arange(50.0))
    assert len(rh.Series(tmp_path / "y.zarr")) == 50
    xr.Dataset({"y": ("time", np.arange(50.0))}).to_netcdf(tmp_path / "y.nc", engine="h5netcdf")
    assert len(open_files([str(tmp_path / "y.nc")])) == 50


def test_that_this_test_would_notice(tmp_path, poisoned):
    for call in (
        lambda: pickle.loads(b""),
        lambda: np.load("x", allow_pickle=True),
        lambda: yaml.load("", yaml.Loader),
    ):
        with pytest.raises(SystemExit, match="executed"):
            call()


def test_files_that_would_execute_something_are_refused(tmp_path):
    there = tmp_path / "exploded"
    bomb = np.array([Bomb(there)], dtype=object)
    np.save(tmp_path / "a.npy", bomb, allow_pickle=True)
    np.savez(tmp_path / "a.npz", y=bomb)
    (tmp_path / "b.npy").write_bytes(pickle.dumps(Bomb(there)))
    (tmp_path / "b.csv").write_text(f"y\n__import__('os').mkdir('{there}')\n1\n")
    for name in ("a.npy", "a.npz", "b.npy", "b.csv"):
        refused = hostile.attempted(lambda name=name: open_files([str(tmp_path / name)]))
        assert isinstance(refused, hostile.Refusal)
        assert name in refused.message
    for name in ("a.npy", "b.npy"):
        assert isinstance(hostile.attempted(lambda name=name: rh.Series(tmp_path / name)), hostile.Refusal)
    load = checkpointed(tmp_path / "run.npz")
    np.savez(tmp_path / "run.npz", **{**dict(np.load(tmp_path / "run.npz")), "draws": bomb})
    assert isinstance(hostile.attempted(lambda: load(tmp_path / "run.npz")), hostile.Refusal)
    for text in (f"file: !!python/object/apply:os.mkdir ['{there}']", f"!!python/object/apply:os.mkdir ['{there}']"):
        (tmp_path / "settings.yaml").write_text(text)
        refused = hostile.attempted(lambda: runs.settings_of(tmp_path))
        assert "settings.yaml is not valid YAML" in refused.message
    shutil.copy(tmp_path / "b.npy", tmp_path / "fit.nc")
    assert isinstance(hostile.attempted(lambda: rh.Posterior.load(tmp_path / "fit.nc")), hostile.Refusal)
    assert not there.exists()
    pickle.loads((tmp_path / "b.npy").read_bytes())
    assert there.exists()  # it would have exploded
