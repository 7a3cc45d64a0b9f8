"""Probabilities a stretch at a time are those of the whole series, in bounded memory; files are whole or not there."""

import base64
import json

import numpy as np
import pandas as pd
import pytest
from oracle import event_table, state_probabilities
from small_models import FAMILIES, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.settings import Settings
from rarehmm.common import checks
from rarehmm.posterior import streaming
from rarehmm.posterior.events import COLUMNS, Events
from rarehmm.posterior.streaming import (
    check_out,
    collect,
    last_distribution,
    stretches_of_probabilities,
    write_stretches,
)


@pytest.fixture
def short(monkeypatch):
    """Stretches of 50 rows, and halos from 8 on."""
    monkeypatch.setattr(streaming, "ROWS", 50)
    monkeypatch.setattr(streaming, "HALO", 8)


def random_case(family, lengths, seed=0):
    rng = np.random.default_rng(seed)
    model = model_of(family, 3)
    points = [parameters_of(rng, model) for _ in range(2)]
    return model, points, rh.Series(series_of(rng, model, points[0], sum(lengths)), lengths)


def sticky_case(stay=0.998):
    """Two sticky states, and a gap of 160 rows between an observation that tells them apart and the next."""
    model = model_of(rh.Gaussian(), 2)
    points = [model.parameters([[p, 1 - p], [1 - p, p]], mean=[-1, 1], variance=0.5) for p in (stay, 0.99)]
    y = rh.simulate(np.random.default_rng(1), model, points[0], 400)[0]
    y[120:280], y[110:120], y[280:290] = np.nan, 0.0, 2.0
    return model, points, rh.Series(y)


def absorbing_case():
    """A state that is never left: the past is not forgotten."""
    model = model_of(rh.Gaussian(), 2, start=np.array([1.0, 0.0]))
    point = model.parameters([[0.99, 0.01], [0.0, 1.0]], mean=[0, 0.5], variance=1.0)
    return model, [point], rh.Series(rh.simulate(np.random.default_rng(2), model, point, 300)[0])


def in_stretches(model, points, series, causal):
    found = stretches_of_probabilities(model, points, series, causal=causal)
    return collect(found, (len(series), model.n_states))


CASES = {
    **{type(family).__name__: random_case(family, [310]) for family in FAMILIES},
    "sequences": random_case(rh.Gaussian(), [7, 93, 50, 1, 60, 139], 3),
    "very short sequences": random_case(rh.Gaussian(), [3] * 70, 4),
    "a gap": sticky_case(),
    "hardly any change": sticky_case(1 - 1e-7),
    "absorbing": absorbing_case(),
}


@pytest.mark.jit
@pytest.mark.parametrize("causal", [False, True], ids=["smoothed", "filtered"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_stretches_say_what_the_whole_says(short, case, causal):
    model, points, series = case
    expected = state_probabilities(model, points, series, causal=causal)
    np.testing.assert_allclose(in_stretches(model, points, series, causal), expected, atol=1e-9)
    for point in points:
        distribution = rh.filter_states(model, point, series)[-1]
        np.testing.assert_allclose(last_distribution(model, point, series), distribution, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True], ids=["smoothed", "filtered"])
def test_without_looking_a_short_halo_would_be_wrong(short, monkeypatch, causal):
    monkeypatch.setattr(streaming, "TOLERANCE", np.inf)
    model, points, series = sticky_case()
    expected = state_probabilities(model, points, series, causal=causal)
    assert np.abs(in_stretches(model, points, series, causal) - expected).max() > 1e-2


def test_no_more_is_read_than_a_stretch_and_its_halo(short, monkeypatch):
    model, points, series = random_case(rh.Gaussian(), [400])
    read, seen, progress = rh.Series.read, [], []
    monkeypatch.setattr(rh.Series, "read", lambda self, a, b: seen.append(b - a) or read(self, a, b))
    stretches = stretches_of_probabilities(model, points, series, on_progress=lambda *given: progress.append(given))
    assert [high - low for low, high, p in stretches if p.shape == (high - low, 3)] == [50] * 8
    assert 50 < max(seen) <= 50 + 8 + 64  # lengthened once at most
    assert progress[-1] == ("probabilities", 400, 400)


def test_a_state_that_is_never_left_needs_no_long_halo_before_it_is_entered(short):
    model, (point,), series = absorbing_case()
    assert streaming.halo_end(model, point, np.array([1.0, 0.0]), series, 50) == 58
    assert streaming.halo_end(model, point, np.array([0.5, 0.5]), series, 50) > 58


def test_more_states_make_shorter_stretches():
    assert streaming.rows_per_stretch(8) == streaming.rows_per_stretch(4) // 2 == streaming.rows_per_stretch(2) // 2


# ---------------------------------------------------------------- files
@pytest.mark.parametrize("name", ["p.npy", "p.zarr"])
def test_what_is_written_is_single_precision_and_read_only(short, tmp_path, name):
    if name.endswith("zarr"):
        pytest.importorskip("zarr")
    model, points, series = random_case(rh.Gaussian(), [130])
    shape, path = (130, 3), tmp_path / name
    found = write_stretches(stretches_of_probabilities(model, points, series), shape, check_out(path))
    assert (found.shape, found.dtype) == (shape, np.float32)
    np.testing.assert_array_equal(found[:], state_probabilities(model, points, series).astype(np.float32))
    with pytest.raises(ValueError, match=r"read.?only"):
        found[0] = 0
    assert [p.name for p in tmp_path.iterdir()] == [name]
    with pytest.raises(ValueError, match=f"{name} already exists; choose another name"):
        check_out(path)
    with pytest.raises(ValueError, match=r"out is 'p.csv'; it must be the name of a .npy file or a .zarr folder"):
        check_out("p.csv")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        write_stretches(iter(()), shape, tmp_path / "nowhere" / name)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["p.npy", "p.zarr"])
def test_an_error_leaves_nothing_behind(tmp_path, name, error):
    if name.endswith("zarr"):
        pytest.importorskip("zarr")

    def stretches():
        yield 0, 5, np.ones((5, 2))
        assert not (tmp_path / name).exists()
        assert len(list(tmp_path.iterdir())) == 1
        raise error

    with pytest.raises(error):
        write_stretches(stretches(), (10, 2), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- events
def events_by_hand(series, p, rare, threshold, gap, shortest):
    """Row by row."""
    together, rows = np.minimum(p[:, rare].sum(1), 1.0), []
    for s in range(series.n_sequences):
        runs = []
        for t in range(series.bounds[s], series.bounds[s + 1]):
            if together[t] >= threshold:
                if runs and t + 1 - runs[-1][1] <= gap:
                    runs[-1][1] = t + 1
                else:
                    runs.append([t, t + 1])
        for low, high in runs:
            if high - low >= shortest:
                y = series.read(low, high)[:, 0]
                away = np.where(np.isnan(y), -1, np.abs(y - series.summaries[0].mean))
                at = low + int(np.argmax(away))
                state = rare[np.argmax(p[low:high][:, rare].sum(0))]
                mean = together[low:high].mean()
                rows.append([low, high - 1, high - low, y[at - low], at, state, mean, s])
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize("seed", range(60))
def test_events_of_stretches_are_those_of_the_whole(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 40, rng.integers(1, 8))
    T = int(lengths.sum())
    y = np.where(rng.random(T) < 0.2, np.nan, rng.normal(size=T))
    y[0] = 0.0
    series, p = rh.Series(y, lengths), rng.dirichlet(np.ones(3), T)
    settings = {"threshold": rng.uniform(0.2, 0.9), "gap": int(rng.integers(1, 30)) if seed % 2 else 2, "shortest":
                int(rng.integers(1, 5))}  # fmt: skip
    rare = np.array([0, 2]) if seed % 3 else np.array([1])
    events, first = Events(series, rare, **settings), 0
    while first < T:
        size = int(rng.integers(1, 15))
        events.add(first, p[first : first + size])
        first += size
    expected = events_by_hand(series, p, rare, **settings)
    for table in (events.table(), event_table(series, p, rare, **settings)):
        pd.testing.assert_frame_equal(table, expected if len(expected) else expected.astype(table.dtypes), rtol=1e-12)
    assert [high - low for low, high in events.rows] == expected["duration"].tolist()


def test_a_long_event_is_looked_through_in_pieces(monkeypatch):
    monkeypatch.setattr("rarehmm.posterior.events.STRETCH", 3)
    y = np.array([0.0, 1, 2, 3, np.nan, 9, 2, 9, 0])
    table = event_table(rh.Series(y), np.ones((9, 1)), np.array([0]))
    assert (table["peak"].tolist(), table["peak_at"].tolist()) == ([9.0], [5])


# ---------------------------------------------------------------- the estimator
@pytest.fixture(scope="module")
def fitted():
    y = np.random.default_rng(0).normal(size=6000)
    for begin in range(500, 6000, 1000):
        y[begin : begin + 20] += 6
    return rh.RareHMM(2, n_draws=200, n_average=3).fit(y), y


@pytest.mark.jit
def test_long_series_through_the_estimator(fitted, monkeypatch, tmp_path):
    hmm, y = fitted
    whole = [hmm.predict_proba(y), hmm.filter_proba(y)]
    expected = state_probabilities(hmm.posterior_.model, hmm.posterior_.points(3), rh.Series(y), causal=True)
    np.testing.assert_allclose(whole[1], expected)
    events, ahead = hmm.rare_events(y), hmm.forecast(y, 5).event
    monkeypatch.setattr(streaming, "ROWS", 507)  # events cross seams
    np.save(tmp_path / "y.npy", y)
    source = rh.Series(tmp_path / "y.npy")
    found = [hmm.predict_proba(source, out=tmp_path / "a.npy"), hmm.filter_proba(source, out=str(tmp_path / "b.npy"))]
    for one, expected in zip(found, whole, strict=True):
        assert isinstance(one, np.memmap)
        np.testing.assert_allclose(one, expected, atol=1e-7)
    pd.testing.assert_frame_equal(hmm.rare_events(source), events, rtol=1e-9)
    np.testing.assert_allclose(hmm.forecast(source, 5).event, ahead, rtol=1e-9)


@pytest.mark.jit
def test_a_run_on_a_long_series(fitted, short, monkeypatch, tmp_path):
    hmm, y = fitted
    expected = hmm.rare_events(y)
    for name, value in {
        "posterior.streaming.ROWS": 507,
        "posterior.model_check.LONG": 2000,
        "posterior.model_check.FEWEST_ROWS": 0,
        "app.report.report.POINTS": 1000,
    }.items():
        monkeypatch.setattr(f"rarehmm.{name}", value)
    series, settings = rh.Series(y), Settings("y.npy", states=2)
    read, seen = rh.Series.read, []
    monkeypatch.setattr(rh.Series, "read", lambda self, a, b: seen.append(b - a) or read(self, a, b))
    monkeypatch.setattr(hmm, "model_check_", hmm.check(series))
    runs.create(tmp_path / "run", settings)
    found = runs.write_results(tmp_path / "run", settings, hmm, series)
    pd.testing.assert_frame_equal(found.events, expected, rtol=1e-9)
    assert max(seen) <= 2000
    page = (tmp_path / "run" / "report.html").read_text()
    assert "2,000 of 6,000 observations, in evenly spaced pieces, were checked." in page
    given = json.loads(page.split('id="data">')[1].split("</script>")[0])
    shown = np.frombuffer(base64.b64decode(given["rare"]), np.uint8)
    assert len(shown) * given["step"] == 6000
    for first, last in given["events"]:
        assert shown[int(first / given["step"]) : int(last / given["step"]) + 1].min() > 128


@pytest.mark.jit
def test_what_does_not_fit_is_refused_with_the_way_out(fitted, monkeypatch, tmp_path):
    hmm, y = fitted
    monkeypatch.setattr(checks.os, "sysconf", lambda name: 400)  # 160,000 bytes
    with pytest.raises(
        MemoryError, match=r"probabilities \(6000, 2\) would need .* GiB of the machine's .* out='probabilities.npy'"
    ):
        hmm.predict_proba(y)
    assert hmm.predict_proba(y, out=tmp_path / "p.npy").shape == (6000, 2)
    assert len(hmm.predict(y)) == 6000
    with pytest.raises(MemoryError, match=r"the path of 12000 states would need .* predict_proba\(X, out="):
        hmm.predict(np.tile(y, 2))


def test_a_simulation_to_a_file_is_the_same(tmp_path, monkeypatch):
    """However long: a stretch at a time; and nothing is left under its name if it fails."""
    monkeypatch.setattr("rarehmm.model.simulation.STRETCH", 100)
    for family in (rh.Gaussian(), rh.Poisson()):
        model = model_of(family, 2)
        truth = parameters_of(np.random.default_rng(0), model)
        y, _ = rh.simulate(np.random.default_rng(1), model, truth, 1234)
        found = rh.simulate_file(tmp_path / "y.npy", np.random.default_rng(1), model, truth, 1234)
        np.testing.assert_array_equal(found, y)
        assert isinstance(found, np.memmap)
    with pytest.raises(TypeError, match="rng"):
        rh.simulate_file(tmp_path / "no.npy", 0, model, truth, 1234)
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]
