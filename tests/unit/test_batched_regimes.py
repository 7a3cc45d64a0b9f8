"""Many points at once where rows differ, or are a sample of blocks: the same values as one pass for each point."""

import numpy as np
import pytest
from regime_cases import as_model, covering, label, make_case

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs, Season
from rarehmm.exact import batched, batched_edges
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.batched_edges import BatchedEdges
from rarehmm.exact.block_sample import BlockSample
from rarehmm.exact.passes import log_posterior_value
from rarehmm.model.autoregression import AroundLevel, Hamilton, Intercept
from rarehmm.transitions.phases import Phases
from rarehmm.transitions.regression import Regression

CASES = covering()


def points_near(model, parameters, n=3, size=0.05):
    return model.pack(parameters) + size * np.random.default_rng(1).normal(size=(n, model.size))


def one_by_one(monkeypatch):
    """The points that get a pass of their own from now on."""
    alone = []

    def spy(model, theta, series, threads):
        alone.append(theta)
        return log_posterior_value(model, theta, series, threads=threads)

    monkeypatch.setattr(batched, "log_posterior_value", spy)
    return alone


@pytest.mark.parametrize("number", range(len(CASES)), ids=map(label, CASES))
def test_values_are_those_of_single_passes(number, monkeypatch):
    """Over a set of models in which every two kinds of effects meet."""
    model, parameters, series = as_model(make_case(CASES[number], number))
    theta, alone = points_near(model, parameters), one_by_one(monkeypatch)
    values = BatchedLogPosterior(model, series, threads=1).values(theta)
    np.testing.assert_allclose(values, [log_posterior_value(model, row, series) for row in theta], rtol=1e-10)
    assert len(alone) == (len(theta) if isinstance(model.autoregression, Hamilton) else 0)


# ---------------------------------------------------------------- longer series
def long_series(T=3000, family=None, columns=1):
    """Two sequences with inputs a and b, regimes that last, a long gap and missing values."""
    import pandas as pd

    rng = np.random.default_rng(0)
    exog = pd.DataFrame(rng.normal(size=(T, 2)), columns=["a", "b"])
    states = np.repeat(rng.choice([0, 1], T // 50), 50)
    y = rng.normal(size=(T, columns)) + 4 * states[:, None]
    if isinstance(family, rh.Poisson):
        y = rng.poisson(1 + 4.0 * states)[:, None].astype(float)
    y[rng.random(T) < 0.05] = np.nan
    y[1200:1270] = np.nan
    known = np.where(rng.random(T) < 0.02, states, -1)
    lengths = [T // 3, T - T // 3]
    return rh.Series(y, lengths, exog=exog), rh.Series(y, lengths, exog=exog, states=known)


def edge_model(family, series, **effects):
    """A model with inputs given by names, and parameters of it."""
    wanted = {"inputs": ["a"], "switching": ["b"], "scale": ["a"]}
    made = {name: Inputs.of(series, [Columns(tuple(wanted[name]))]) for name in wanted if effects.pop(name, False)}
    if effects.pop("season", False):
        made["inputs"] = Inputs.of(series, [Season(24, order=3)])
    if terms := effects.pop("slopes", None):
        effects["transitions"] = Regression(Inputs.of(series, terms))
    model = rh.Model(family, 2, rh.default_priors(family, 2, series), **made, **effects)
    D = series.n_columns
    phi = np.array([[0.0] * D + [1.0] * D + [0.3], [4.0] * D + [1.5] * D + [0.0]])
    if isinstance(family, rh.Poisson):
        phi = np.array([[1.0], [5.0]])
    phi = phi[:, : len(family.parameters)]
    coefficients = 0.1 * np.random.default_rng(2).normal(size=model.every_effect.size)
    return model, model.natural(phi, [[0.95, 0.05], [0.1, 0.9]], coefficients)


KINDS = {
    "level": (rh.Gaussian(), {"autoregression": AroundLevel(1), "inputs": True}),
    "conditional": (rh.Gaussian(), {"autoregression": AroundLevel(3, conditional=True), "switching": True}),
    "switching lags": (rh.Gaussian(), {"autoregression": AroundLevel(2, switching=True), "inputs": True}),
    "scale": (rh.StudentT(4.0), {"autoregression": AroundLevel(2), "scale": True, "season": True}),
    "intercept": (rh.Poisson(), {"autoregression": Intercept(2), "switching": True}),
    "inputs": (rh.Poisson(), {"inputs": True, "switching": True}),
    "transitions": (rh.Gaussian(), {"autoregression": AroundLevel(1), "slopes": [Columns(("b",))]}),
    "periodic": (rh.Gaussian(), {"slopes": [Season(24, order=1)]}),
    "phases": (rh.Gaussian(), {"autoregression": AroundLevel(1), "transitions": Phases((1, 3))}),
    "columns": (rh.MultivariateGaussian(2), {"autoregression": AroundLevel(2), "inputs": True, "switching": True}),
}


@pytest.fixture(params=[1 << 27, 0], ids=["kept", "read again"])
def short_stretches(monkeypatch, request):
    """Stretches of 211 rows, which are kept in memory or not."""
    for name, value in (("STRETCH_BYTES", 1), ("FEWEST", 211), ("KEPT_BYTES", request.param)):
        monkeypatch.setattr(batched_edges, name, value)


@pytest.mark.jit
@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_long_series_are_read_in_stretches(kind, known, monkeypatch):
    """What a stretch knows of the one before is enough, wherever it begins."""
    family, effects = KINDS[kind]
    series = long_series(family=family, columns=2 if kind == "columns" else 1)[known]
    model, parameters = edge_model(family, series, **effects)
    theta, alone = points_near(model, parameters, 18, 0.02), one_by_one(monkeypatch)
    values = BatchedLogPosterior(model, series, threads=2).values(theta)
    expected = [log_posterior_value(model, row, series, threads=1) for row in theta[[0, 17]]]
    np.testing.assert_allclose(values[[0, 17]], expected, rtol=1e-10)
    assert alone == []


def blocks_of(series, size, before, all_of_them):
    """Blocks of a series: all of them, or every second one with a weight of its own."""
    rng, counts = np.random.default_rng(0), -(-np.diff(series.bounds) // size)
    begin, stop = (np.repeat(ends, counts) for ends in (series.bounds[:-1], series.bounds[1:]))
    first = begin + size * np.concatenate([np.arange(n) for n in counts])
    kept = slice(None, None, 1 if all_of_them else 2)
    first, begin, stop = first[kept], begin[kept], stop[kept]
    last = np.minimum(first + size, stop)
    low, high = np.maximum(first - before, begin), np.minimum(last + before, stop)
    rows = series.read_rows(0, len(series)).at(
        np.concatenate([np.arange(*ends) for ends in zip(low, high, strict=True)])
    )
    weights = np.ones(len(first)) if all_of_them else rng.uniform(1, 3, len(first))
    every = rh.Series(rows.y, high - low).with_inputs_of(series, rows)
    return BlockSample(every, first - low, high - last, low == begin, weights)


@pytest.mark.jit
@pytest.mark.usefixtures("short_stretches")
@pytest.mark.parametrize("kind", ["plain", "inputs", "level", "conditional", "intercept", "transitions"])
def test_blocks_are_those_of_single_passes(kind, monkeypatch):
    family, effects = KINDS.get(kind, (rh.Gaussian(), {}))
    series = long_series(family=family)[kind == "transitions"]
    model, parameters = edge_model(family, series, **effects)
    theta, alone = points_near(model, parameters, 3, 0.02), one_by_one(monkeypatch)
    for all_of_them in (True, False):
        sample = blocks_of(series, 250, 100 + model.n_lags if all_of_them or model.n_lags > 0 else 3, all_of_them)
        values = BatchedLogPosterior(model, sample, threads=1).values(theta)
        np.testing.assert_allclose(values, [log_posterior_value(model, row, sample) for row in theta], rtol=1e-9)
        if all_of_them and not isinstance(family, rh.Poisson):  # halos have its constant as well
            np.testing.assert_allclose(values, [log_posterior_value(model, row, series) for row in theta], rtol=1e-9)
    assert alone == []


@pytest.mark.jit
def test_what_cannot_go_in_lanes_goes_one_by_one(monkeypatch):
    series, _ = long_series()
    model, parameters = edge_model(rh.Gaussian(), series, autoregression=AroundLevel(1))
    theta, alone = points_near(model, parameters), one_by_one(monkeypatch)
    points = BatchedLogPosterior(model, series, threads=1)
    expected = points.values(theta)
    tiny = theta.copy()
    tiny[1, 2 * 2 + 1] = -200.0  # a transition of e^-200
    values = points.values(tiny)
    np.testing.assert_array_equal(values[[0, 2]], expected[[0, 2]])
    assert len(alone) == 1
    monkeypatch.setattr(BatchedEdges, "fits", False)
    np.testing.assert_allclose(BatchedLogPosterior(model, series, threads=1).values(theta), expected, rtol=1e-10)
    assert len(alone) == 4


@pytest.mark.jit
def test_where_what_was_cut_off_may_matter_points_go_one_by_one(monkeypatch):
    """One far value looks like the state that lasts three steps at least, and the values after it do not."""
    y = np.random.default_rng(0).normal(size=200)
    series = rh.Series(y)
    far = y.copy()
    far[100] = 60.0
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), transitions=Phases((1, 3)))
    parameters = model.natural(np.array([[0.0, 1.0], [60.0, 1.0]]), [[0.95, 0.05], [0.1, 0.9]])
    theta, alone = points_near(model, parameters, 3, 0.01), one_by_one(monkeypatch)
    for values, count in ((y, 0), (far, 3)):
        series = rh.Series(values)
        found = BatchedLogPosterior(model, series, threads=1).values(theta)
        np.testing.assert_allclose(found, [log_posterior_value(model, row, series) for row in theta], rtol=1e-10)
        assert len(alone) == count
