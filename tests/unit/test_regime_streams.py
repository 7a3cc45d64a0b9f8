"""Streams of models with inputs, lags and phases: rows in any stretches say what a pass over the whole series says."""

import json
import zlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from regime_cases import as_model, covering, label, make_case

from rarehmm import (
    AroundLevel,
    Columns,
    Gaussian,
    Hamilton,
    Inputs,
    Intercept,
    Model,
    MultivariateGaussian,
    Phases,
    Poisson,
    RareHMM,
    Regression,
    Season,
    Series,
    Trend,
    filter_states,
    log_likelihood,
    no_priors,
    predictive_log_density,
)
from rarehmm.data.new_rows import missing_before
from rarehmm.posterior.regime_streams import RegimeFilter, RegimeStream


def chunks_of(series, first, last):
    """Arguments of ``update`` for the rows [first, last) of a series without times."""
    rows = series.read_rows(first, last)
    exog = pd.DataFrame(rows.exog, columns=series.exog_names) if series.exog_names else None
    return {"y": rows.y, "exog": exog, "states": rows.states if len(rows.states) else None}


def through(regimes, series, size, stream=None, stored=False):
    """Probabilities (T, K), log densities (Z, T) and the stream after all rows of a series, ``size`` rows at a time."""
    stream, found, values = stream or RegimeStream(), [], []
    for first, last in zip(series.bounds[:-1].tolist(), series.bounds[1:].tolist(), strict=True):
        stream = stream.at_new_sequence()
        for low in range(first, last, size):
            if stored:
                stream = RegimeStream.from_dict(json.loads(json.dumps(stream.to_dict(), allow_nan=False)))
            stream, probabilities, log_densities = regimes.update(
                stream, **chunks_of(series, low, min(low + size, last))
            )
            found.append(probabilities)
            values.append(log_densities)
    return np.concatenate(found), np.concatenate(values, axis=1), stream


def check(model, parameters, series, sizes):
    """Streams in stretches of these sizes agree with passes over the whole series."""
    expected = filter_states(model, parameters, series, sequential=True)
    densities = predictive_log_density(model, parameters, series, sequential=True)
    value = log_likelihood(model, parameters, series, sequential=True)
    for size in sizes:
        found, values, stream = through(RegimeFilter(model, [parameters]), series, size)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(values[0], densities, rtol=1e-12, atol=1e-12)
        assert stream.log_likelihood[0] == pytest.approx(value, rel=1e-12, abs=1e-12)
        np.testing.assert_allclose(stream.probability, expected[-1], rtol=1e-12, atol=1e-12)
        assert stream.seen == len(series)


@pytest.mark.parametrize("choice", covering(), ids=label)
def test_rows_in_any_stretches_say_what_the_whole_series_says(choice):
    case = make_case(choice, zlib.crc32(label(choice).encode()))
    check(*as_model(case), sizes=[1, 2, 7])


# ---------------------------------------------------------------- gaps, clocks and other families
def gappy(T, seed=0):
    """Observations with gaps of 1 to 20 rows, one of them at the start."""
    rng = np.random.default_rng(seed)
    y = np.cumsum(rng.normal(size=T)) * 0.3 + 4.0 * (np.arange(T) % 40 < 12)
    y[:2], y[20:23], y[31:51], y[58:59], y[61:62], y[80:87] = (np.nan,) * 6
    return y


def inputs_of(series):
    return Inputs.of(series, [Season(7, 2), Trend()])


GAPS = {
    "level 1": lambda s: {"autoregression": AroundLevel(1), "switching": inputs_of(s)},
    "level 3": lambda s: {"autoregression": AroundLevel(3), "inputs": inputs_of(s)},
    "level 3, conditional": lambda s: {"autoregression": AroundLevel(3, conditional=True)},
    "level 2, switching": lambda s: {"autoregression": AroundLevel(2, switching=True), "switching": inputs_of(s)},
    "intercept 2": lambda s: {"autoregression": Intercept(2), "scale": inputs_of(s)},
    "hamilton 2": lambda s: {"autoregression": Hamilton(2), "inputs": inputs_of(s)},
    "phases and no columns": lambda s: {"transitions": Phases((3, 1, 2))},
    "seasonal transitions": lambda s: {
        "autoregression": AroundLevel(1), "transitions": Regression(Inputs.of(s, [Season(5, 1)]))
    },
}  # fmt: skip


def some_parameters(model, seed=0):
    """Random parameters of a model of one column, with stationary lags."""
    rng = np.random.default_rng(seed)
    effects, K = model.every_effect, model.n_states
    coefficients = 0.3 * rng.normal(size=effects.size)
    if effects.reach:
        effects.block("lags", coefficients)[:] = 0.5 / effects.reach * rng.uniform(0.5, 1, effects.shapes["lags"])
    slopes = effects.block("slopes", coefficients)
    slopes[:] -= slopes.mean(-1, keepdims=True)
    return model.natural(np.column_stack([rng.normal(size=K), rng.uniform(0.5, 2, K)]),
                         rng.dirichlet(np.full(K, 3.0), K), coefficients)  # fmt: skip


@pytest.mark.parametrize("kind", GAPS)
def test_gaps_of_any_length_may_be_cut_anywhere(kind):
    series = Series(gappy(100), [60, 40])
    model = Model(Gaussian(), 3, no_priors(Gaussian()), **GAPS[kind](series))
    check(model, some_parameters(model), series, sizes=[1, 7, 13, 100])


def test_the_state_of_a_stream_does_not_grow_in_a_gap():
    model = Model(Gaussian(), 2, no_priors(Gaussian()), autoregression=AroundLevel(3))
    regimes = RegimeFilter(model, [some_parameters(model)])
    stream = regimes.update(RegimeStream(), [0.1, 0.5, 0.2, 0.4]).stream
    assert (len(stream.past.y), stream.gap) == (3, 0)
    for _ in range(50):
        stream = regimes.update(stream, np.nan).stream
    assert (len(stream.past.y), stream.gap, stream.position) == (1, 50, 54)
    before = regimes.update(RegimeStream(), [0.1, 0.5, 0.2, 0.4, *[np.nan] * 50, 1.0]).log_densities[0, -1]
    assert regimes.update(stream, 1.0).log_densities[0, -1] == pytest.approx(before, rel=1e-12)


def with_holes(zone, regular):
    """Hours over a change of clocks, some of them left out, and a model whose season and trend follow them."""
    hours = pd.date_range("2026-03-20", periods=400, freq="h", tz=zone).delete(slice(150, 163))
    y = pd.Series(np.sin(np.arange(len(hours)) / 4) + np.random.default_rng(0).normal(size=len(hours)), hours)
    series = Series(y, regular=regular)
    inputs, transitions = Inputs.of(series, [Season("1D", 2), Trend()]), Inputs.of(series, [Season("12h", 1)])
    model = Model(Gaussian(), 2, no_priors(Gaussian()), inputs=inputs, autoregression=AroundLevel(2),
                  transitions=Regression(transitions))  # fmt: skip
    return y, series, RegimeFilter(model, [some_parameters(model)])


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_the_season_follows_the_times_of_the_rows(zone):
    y, series, regimes = with_holes(zone, regular=False)
    expected, hours = filter_states(regimes.model, regimes.points[0], series, sequential=True), y.index
    stream, found = RegimeStream(), []
    for low in range(0, len(y), 50):
        part = y.iloc[low : low + 50]
        given = {"y": part} if low % 100 else {"y": part.to_numpy(), "times": part.index}
        stream, probabilities, _ = regimes.update(stream, **given, regular=False)
        found.append(probabilities)
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"y has no time index and the series that was fitted had one.*or times="):
        regimes.update(stream, [1.0])
    with pytest.raises(ValueError, match=r"times\[1\] \(row 388 of the stream\) is missing \(NaT\)"):
        regimes.update(stream, [1.0, 2.0], times=[hours[0], pd.NaT])
    with pytest.raises(ValueError, match="times has 1 entries and there are 2 rows"):
        regimes.update(stream, [1.0, 2.0], times=hours[:1])


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_times_of_a_stream_follow_each_other(zone):
    y, series, regimes = with_holes(zone, regular="fill")
    stream = regimes.update(RegimeStream(), y[:150]).stream
    stream = RegimeStream.from_dict(json.loads(json.dumps(stream.to_dict())))
    for rows, message in (
        (slice(149, 150), r"time stands still in 1 of 151 rows: times\[0\] \(row 150 of the stream, at 2026-03-26 05"),
        (slice(140, 145), r"time goes back in 1 of 155 rows: times\[0\] \(row 150 .* comes after 2026-03-26 05:00:00"),
        (slice(150, 155), r'13 rows are missing in 1 place: times\[0\] \(row 150 .*regular="fill" \(--regular fill\)'),
    ):
        with pytest.raises(ValueError, match=message):
            regimes.update(stream, y.iloc[rows])
    late = y.index[149:150] + pd.Timedelta("90min")
    with pytest.raises(ValueError, match=r"not evenly spaced: times\[0\] .* comes 01:30:00 after the row before it"):
        regimes.update(stream, [1.0], times=late)
    found = regimes.update(stream, y[150:], regular="fill")
    observed = ~np.isnan(series.read(0, 400)[:, 0])
    expected = filter_states(regimes.model, regimes.points[0], series, sequential=True)[observed]
    np.testing.assert_allclose(found.probabilities, expected[150:], rtol=1e-12, atol=1e-12)
    assert (found.stream.seen, found.stream.last) == (400, y.index[-1])
    with pytest.raises(ValueError, match="has a time zone; pass all times with it"):
        missing_before(pd.DatetimeIndex(["2026-04-06"], tz=None if zone else "UTC"), stream.last, 3600.0, True, 1)


def test_local_times_of_a_stream_are_put_into_their_zone():
    y, _, regimes = with_holes("Europe/Berlin", regular=False)
    wanted = regimes.update(RegimeStream(), y[:30])
    for given in (y[:30].tz_localize(None), y[:30].tz_convert("UTC")):
        np.testing.assert_array_equal(regimes.update(RegimeStream(), given).probabilities, wanted.probabilities)
    naive = with_holes(None, regular=False)[2]
    with pytest.raises(
        ValueError, match=r"times of y are in Europe/Berlin .* fitted without a zone; .*tz_localize\(None"
    ):
        naive.update(RegimeStream(), y[:30])


@pytest.mark.parametrize(
    ("dates", "step", "missing"),
    [
        (["2026-01-02", "2026-01-05", "2026-01-06"], 86_400.0, 0),  # a weekend
        (["2026-01-05", "2026-01-08", "2026-01-09"], 86_400.0, 2),
        (["2026-01-01", "2026-02-01", "2026-03-01"], 31 * 86_400.0, 0),
        (["2026-01-01", "2026-01-01 03:00"], np.nan, 0),  # a trend alone has no step
    ],
)
def test_days_and_months_of_a_stream(dates, step, missing):
    index = pd.DatetimeIndex(pd.to_datetime(dates, format="mixed"))
    assert missing_before(index[1:], index[0], step, "fill", 1).sum() == missing


def test_rows_without_times_go_on_where_the_fit_ended():
    y = np.sin(2 * np.pi * np.arange(210) / 24) + 0.1 * np.random.default_rng(0).normal(size=210)
    hmm = RareHMM(1, season=Season(24, 1), method="map", check_model=False).fit(y[:200])
    assert hmm.posterior_.model.inputs.end == 200
    stream = hmm.update(None, y[200:])
    from_start = hmm.update(RegimeStream(), y[200:])
    assert stream.log_likelihood.mean() > from_start.log_likelihood.mean() + 100
    whole = log_likelihood(hmm.posterior_.model, hmm.posterior_.mean, Series(y))
    before = log_likelihood(hmm.posterior_.model, hmm.posterior_.mean, Series(y[:200]))
    assert stream.log_likelihood.mean() == pytest.approx(whole - before)
    stored = RegimeStream.from_dict(hmm.update(None, y[200:204]).to_dict())
    assert hmm.update(stored, y[204:]).log_likelihood == pytest.approx(stream.log_likelihood)


@pytest.mark.plain
def test_counts_and_several_columns():
    rng = np.random.default_rng(3)
    counts = rng.poisson(3.0, 40).astype(float)
    counts[[5, 6, 20]] = np.nan
    series = Series(counts)
    model = Model(Poisson(), 2, no_priors(Poisson()), autoregression=Intercept(2), inputs=inputs_of(series))
    point = model.natural([[1.0], [4.0]], [[0.9, 0.1], [0.2, 0.8]], 0.1 * rng.normal(size=model.every_effect.size))
    check(model, point, series, sizes=[1, 9, 40])
    table = rng.normal(size=(40, 2))
    table[[3, 17], 0] = np.nan
    table[22:26] = np.nan
    series, family = Series(table), MultivariateGaussian(2)
    model = Model(family, 2, no_priors(family), autoregression=AroundLevel(2), inputs=inputs_of(series))
    phi = family.phi_of([[0.0, 0.0], [1.0, -1.0]], [np.eye(2), [[1.0, 0.3], [0.3, 2.0]]])
    lags = np.zeros(model.every_effect.size)
    model.every_effect.block("lags", lags)[:] = 0.2
    check(model, model.natural(phi, [[0.9, 0.1], [0.2, 0.8]], lags), series, sizes=[1, 9, 40])


# ---------------------------------------------------------------- storage
def stored_case():
    """A model with three inputs, of which one is not read, two draws, and a series with gaps."""
    rng = np.random.default_rng(1)
    exog = pd.DataFrame(rng.normal(size=(100, 3)), columns=["temp", "idle", "load"])
    series = Series(gappy(100), exog=exog)
    inputs, transitions = Inputs.of(series, [Columns("temp"), Season(7, 1)]), Inputs.of(series, [Columns("load")])
    model = Model(Gaussian(), 3, no_priors(Gaussian()), inputs=inputs, transitions=Regression(transitions),
                  autoregression=AroundLevel(2))  # fmt: skip
    return RegimeFilter(model, [some_parameters(model, seed) for seed in (0, 1)]), series, exog


def test_a_stream_that_was_stored_goes_on_as_if_it_had_not(tmp_path):
    regimes, series, _ = stored_case()
    for given, expected in zip(through(regimes, series, 7, stored=True), through(regimes, series, 7), strict=True):
        if isinstance(given, np.ndarray):
            np.testing.assert_array_equal(given, expected)
        else:
            given.save(tmp_path / "stream.json")
            loaded = RegimeStream.load(tmp_path / "stream.json")
            assert loaded.to_dict() == expected.to_dict()
            np.testing.assert_array_equal(loaded.nodes, expected.nodes)
    assert [path.name for path in tmp_path.iterdir()] == ["stream.json"]


def test_probabilities_are_averaged_over_draws():
    regimes, series, _ = stored_case()
    found, values, stream = through(regimes, series, 7)
    for z, point in enumerate(regimes.points):
        one, value, alone = through(RegimeFilter(regimes.model, [point]), series, 7)
        np.testing.assert_array_equal(values[z], value[0])
        np.testing.assert_array_equal(stream.nodes[z], alone.nodes[0])
        found = found - one / 2
    np.testing.assert_allclose(found, 0.0, atol=1e-15)


def test_a_stream_may_begin_with_a_series():
    regimes, series, exog = stored_case()
    two = Series(series.read(0, 100), [30, 70], exog=exog)
    stream = regimes.after(series.part(0, 70))
    expected = through(regimes, series, 70)[2]
    for low in (70, 85):
        stream = regimes.update(stream, **chunks_of(series, low, low + 15)).stream
    np.testing.assert_allclose(stream.nodes, expected.nodes, rtol=1e-12, atol=1e-12)
    found, expected = regimes.after(two), through(regimes, two, 1000)[2]
    assert (found.position, found.seen) == (expected.position, expected.seen) == (70, 100)
    np.testing.assert_array_equal(found.nodes, expected.nodes)
    np.testing.assert_array_equal(found.log_likelihood, expected.log_likelihood)


def test_columns_of_a_series_may_have_another_order():
    rng = np.random.default_rng(4)
    table = pd.DataFrame(rng.normal(size=(60, 2)) * [1.0, 30.0], columns=["a", "b"])
    y = 2.0 * table["a"] + rng.normal(size=60)
    series, other = (Series(y, exog=table[list(names)]) for names in ("ab", "ba"))
    model = Model(Gaussian(), 2, no_priors(Gaussian()), inputs=Inputs.of(series, [Columns(["a"])]))
    parameters = model.natural([[0.0, 1.0], [1.0, 1.0]], [[0.9, 0.1], [0.1, 0.9]], [2.0])
    found = RegimeFilter(model, [parameters]).after(other).log_likelihood[0]
    assert found == pytest.approx(log_likelihood(model, parameters, series), rel=1e-12)


def test_what_is_not_a_stream_of_this_model_is_refused(tmp_path):
    regimes, series, exog = stored_case()
    stream = through(regimes, series, 50)[2]
    stored = stream.to_dict()
    with pytest.raises(ValueError, match=r"its format is 2 and this version of rarehmm reads formats up to 1.*update"):
        RegimeStream.from_dict(stored | {"format": 2})
    for change in (
        {"format": None}, {"nodes": [[0.0, 0.0, 0.0]] * 2}, {"node_state": [0, 1]}, {"seen": 3}, {"position": 0},
        {"gap": 99}, {"past": {}}, {"past": stored["past"] | {"clock": [0.0]}}, {"log_likelihood": [[1.0]]},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"this is not a stored stream \(.+\); start a new one"):
            RegimeStream.from_dict(stored | change)
    with pytest.raises(ValueError, match="this is not a stored stream"):
        RegimeStream.from_dict({"law": [[0.5, 0.5]]})
    (tmp_path / "stream.json").write_text("[")
    with pytest.raises(ValueError, match=r"stream.json: "):
        RegimeStream.load(tmp_path / "stream.json")
    with pytest.raises(ValueError, match=r"the stream has 3 nodes under 2 draws and this model 3 under 1"):
        RegimeFilter(regimes.model, regimes.points[:1]).update(stream, 1.0)
    again = Inputs.of(Series(series.read(0, 100), exog=2 * exog), [Columns("temp"), Season(7, 1)])
    other = RegimeFilter(replace(regimes.model, inputs=again), regimes.points)
    with pytest.raises(ValueError, match="inputs of the stream was settled differently"):
        other.update(stream, 1.0, exog=exog.iloc[:1])


# ---------------------------------------------------------------- bad input
def test_what_does_not_fit_is_refused_with_its_row_and_the_way_out():
    regimes, series, exog = stored_case()
    stream, ok = through(regimes, series, 50)[2], exog.iloc[:2]
    update = regimes.update
    with pytest.raises(ValueError, match="future inputs missing: 'temp', 'load'; pass exog= with one row for each"):
        update(stream, [1.0, 2.0])
    with pytest.raises(ValueError, match="future inputs missing: 'load'; pass exog="):
        update(stream, [1.0, 2.0], exog=ok[["temp"]])
    with pytest.raises(ValueError, match="exog has 2 columns and had 3 when the model was fitted; pass the columns "
                       "'temp', 'idle', 'load'"):  # fmt: skip
        update(stream, [1.0, 2.0], exog=ok[["temp", "load"]].to_numpy())
    with pytest.raises(ValueError, match="exog has 2 rows and there are 3 observations"):
        update(stream, [1.0, 2.0, 3.0], exog=ok)
    with pytest.raises(ValueError, match=r"exog\[1, 'load'\] \(row 101 of the stream\) is nan; an input is needed in "
                       "every row.* Fill the gap"):  # fmt: skip
        update(stream, [1.0, 2.0], exog=ok.assign(load=[0.0, np.nan]))
    with pytest.raises(ValueError, match="y has 2 columns and the model takes 1"):
        update(stream, np.ones((2, 2)), exog=ok)
    with pytest.raises(ValueError, match=r"y\[1\] \(row 101 of the stream\) is inf; the family takes .* Mark gaps"):
        update(stream, [1.0, np.inf], exog=ok)
    with pytest.raises(ValueError, match=r"states\[1\] \(row 101 of the stream\) is 3; known states are .* 0 to 2"):
        update(stream, [1.0, 2.0], exog=ok, states=[0, 3])
    with pytest.raises(ValueError, match="states has 1 entries and there are 2 observations"):
        update(stream, [1.0, 2.0], exog=ok, states=[0])
    with pytest.raises(ValueError, match="has seen no row of this sequence yet"):
        _ = stream.at_new_sequence().probability
    single = update(stream, 1.5, exog={"temp": 0.3, "load": -1.0}).stream
    other = update(stream, [1.5], exog=[0.3, 99.0, -1.0]).stream
    np.testing.assert_array_equal(single.nodes, other.nodes)


def test_rows_that_are_impossible_are_refused():
    fixed = {"transition": [[None, None, 0], [None, None, None], [None, None, None]]}
    model = Model(Gaussian(), 3, no_priors(Gaussian()), fixed=fixed)
    regimes = RegimeFilter(model, [model.natural(np.ones((3, 2)), [[0.9, 0.1, 0.0], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])])
    with np.errstate(divide="ignore", invalid="ignore"):
        value = log_likelihood(model, regimes.points[0], Series([0.0, 1.0, 0.5], states=[-1, 0, 2]))
    assert value == -np.inf
    stream = regimes.update(RegimeStream(), [0.0, 1.0], states=[-1, 0]).stream
    with pytest.raises(ValueError, match=r"y\[0\] \(row 2 of the stream\) is \[0.5\], which is impossible under"):
        regimes.update(stream, 0.5, states=[2])
