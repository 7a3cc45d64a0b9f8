"""Averages over draws of models with inputs, lags and phases, a stretch at a time, and forecasts of their states."""

import itertools
import zlib

import numpy as np
import pandas as pd
import pytest
from regime_cases import as_model, covering, label, make_case
from scipy.special import logsumexp

from rarehmm import (
    AroundLevel,
    Columns,
    Gaussian,
    Hamilton,
    Inputs,
    Intercept,
    Model,
    Phases,
    Regression,
    Season,
    Series,
    filter_states,
    log_likelihood,
    no_priors,
    smooth,
)
from rarehmm.posterior import streaming
from rarehmm.posterior.posterior import Draws
from rarehmm.posterior.prediction import StreamParameters, forecast, log_score, sequence_densities, state_densities
from rarehmm.posterior.regime_streams import RegimeFilter, RegimeStream
from rarehmm.posterior.streaming import collect, last_distribution, stretches_of_probabilities


def other_draw(model, parameters):
    """Another set of parameters of the same model."""
    return model.natural(parameters.phi + 0.1, parameters.transition, 0.9 * parameters.coefficients)


def case_of(choice):
    model, parameters, series = as_model(make_case(choice, zlib.crc32(label(choice).encode())))
    return model, [parameters, other_draw(model, parameters)], series


def check_stretches(model, points, series):
    """Probabilities of stretches are averages of those of the whole series under each draw."""
    for causal, function in ((False, smooth), (True, filter_states)):
        found = collect(stretches_of_probabilities(model, points, series, causal=causal), (len(series), model.n_states))
        expected = np.mean([function(model, point, series, sequential=True) for point in points], axis=0)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("choice", covering()[::2], ids=label)
def test_stretches_say_what_the_whole_says(monkeypatch, choice):
    monkeypatch.setattr(streaming, "rows_per_stretch", lambda M: 3)
    monkeypatch.setattr(streaming, "HALO", 1)
    check_stretches(*case_of(choice))


@pytest.mark.parametrize("choice", covering()[1::6], ids=label)
def test_a_single_stretch_and_the_score_are_averages(choice):
    model, points, series = case_of(choice)
    check_stretches(model, points, series)
    values = [log_likelihood(model, point, series) for point in points]
    assert log_score(model, points, series) == pytest.approx(logsumexp(values) - np.log(2), rel=1e-12)


# ---------------------------------------------------------------- longer series
def simulated(T, stay=0.97, seed=0):
    """Levels of two states with autocorrelated noise and a season, with gaps, one of them long."""
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.random(T) > stay) % 2
    noise = np.zeros(T)
    for t in range(1, T):
        noise[t] = 0.7 * noise[t - 1] + rng.normal()
    y = 4.0 * states + noise + np.sin(2 * np.pi * np.arange(T) / 12)
    y[60:64], y[110:180] = np.nan, np.nan
    return y, states


LONG = {
    "level 1": (lambda s: {"autoregression": AroundLevel(1)}, [0.7]),
    "level 2, season": (lambda s: {"autoregression": AroundLevel(2), "inputs": Inputs.of(s, [Season(12, 1)])},
                        [0.9, 0.1, 0.6, 0.1]),
    "intercept, phases": (lambda s: {"autoregression": Intercept(1), "transitions": Phases((3, 2))}, [0.7]),
    "hamilton 2": (lambda s: {"autoregression": Hamilton(2)}, [0.6, 0.1]),
    "transitions": (lambda s: {"transitions": Regression(Inputs.of(s, [Season(12, 1)]))},
                    [0.4, -0.4, 0.3, -0.3, 0.0, 0.0, -0.2, 0.2]),
}  # fmt: skip


def long_case(kind, T=300, lengths=None, stay=0.97):
    y, states = simulated(T, stay)
    series = Series(y, lengths, states=np.where(np.arange(T) % 50 == 7, states, -1))
    parts, coefficients = LONG[kind]
    model = Model(Gaussian(), 2, no_priors(Gaussian()), **parts(series))
    P = np.array([[stay, 1 - stay], [1 - stay, stay]])
    point = model.natural([[0.0, 1.0], [4.0, 1.0]], P, coefficients)
    return model, [point, other_draw(model, point)], series


@pytest.fixture
def short(monkeypatch):
    """Stretches of 40 rows, and halos from 8 on."""
    monkeypatch.setattr(streaming, "rows_per_stretch", lambda M: 40)
    monkeypatch.setattr(streaming, "HALO", 8)


@pytest.mark.parametrize("lengths", [None, [7, 73, 1, 219]], ids=["one sequence", "sequences"])
@pytest.mark.parametrize("kind", LONG)
def test_long_gaps_are_carried_across_stretches(short, kind, lengths):
    check_stretches(*long_case(kind, lengths=lengths, stay=0.999))


def test_without_looking_a_short_halo_would_be_wrong(short, monkeypatch):
    monkeypatch.setattr(streaming, "TOLERANCE", np.inf)
    with pytest.raises(AssertionError):
        check_stretches(*long_case("level 1", stay=0.999))


def test_no_more_is_read_than_a_stretch_and_its_halo(short, monkeypatch):
    model, points, series = long_case("level 2, season")
    series = series.part(180, 300)  # without the long gap
    read, rows, progress = Series.read_rows, [], []
    monkeypatch.setattr(Series, "read_rows", lambda self, a, b: rows.append(b - a) or read(self, a, b))
    stretches = stretches_of_probabilities(model, points, series, on_progress=lambda *given: progress.append(given))
    assert [high - low for low, high, p in stretches if p.shape == (high - low, 2)] == [40] * 3
    assert max(rows) <= 40 + 8 + 64 + 2  # lengthened once at most, and read for two lags
    assert progress[-1] == ("probabilities", 120, 120)


# ---------------------------------------------------------------- forecasts
FORECASTS = [c for c in covering() if not c["known"]][::2]


@pytest.mark.parametrize("choice", FORECASTS, ids=label)
def test_forecasts_are_sums_over_all_paths(choice):
    """The states of the last three rows, from those before, with the inputs of their transitions."""
    model, points, series = case_of(choice)
    first, T, K = int(series.bounds[-2]), len(series), model.n_states
    early = T - 3 if first < T - 3 else first  # a sequence may also be forecast from its start
    rows, H = series.read_rows(first, T), T - early
    exog = pd.DataFrame(rows.exog, columns=series.exog_names) if series.exog_names else None

    def with_states(states):
        """The last sequence, with known states in the rows to come, of which nothing is observed."""
        y = rows.y.copy()
        y[early - first :] = np.nan
        if np.isnan(y).all():
            y, more = np.concatenate([[[0.0]], y]), np.r_[-1, states]
            table = None if exog is None else pd.concat([exog[:1], exog])
            return Series(y, [1, len(y) - 1], exog=table, states=more)
        return Series(y, exog=exog, states=np.r_[np.full(len(y) - H, -1), states])

    regimes = RegimeFilter(model, points)
    stream = RegimeStream()
    if early > first:
        stream = regimes.update(stream, rows.y[:-H], exog=None if exog is None else exog[:-H]).stream
    found = regimes.forecast(stream, H, [K - 1], exog=None if exog is None else exog[-H:], probability=0.8)
    paths = list(itertools.product(range(K), repeat=H))
    with np.errstate(divide="ignore", invalid="ignore"):  # of paths that are impossible
        weight = np.array([[log_likelihood(model, p, with_states(np.array(path))) for path in paths] for p in points])
    weight = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))  # (Z, paths)
    for h in range(H):
        share = [weight[:, [path[h] == k for path in paths]].sum(1).mean() for k in range(K)]
        np.testing.assert_allclose(found.states[h], share, rtol=1e-9, atol=1e-12)
        event = weight[:, [K - 1 in path[: h + 1] for path in paths]].sum(1)
        ends = event.mean(), *np.quantile(event, [0.1, 0.9])
        np.testing.assert_allclose([found.event[h], found.low[h], found.high[h]], ends, rtol=1e-9, atol=1e-12)


def test_forecasts_need_the_inputs_of_transitions_and_no_others():
    rng = np.random.default_rng(0)
    hours = pd.date_range("2026-01-01", periods=200, freq="h")
    exog = pd.DataFrame(rng.normal(size=(200, 2)), columns=["temp", "load"], index=hours)
    series = Series(pd.Series(rng.normal(size=200), hours), exog=exog)
    shared, slopes = Inputs.of(series, [Columns("temp"), Season("1D", 1)]), Inputs.of(series, [Columns("load")])
    parts = {"inputs": shared, "scale": shared, "transitions": Regression(slopes)}
    model = Model(Gaussian(), 2, no_priors(Gaussian()), **parts)
    coefficients = np.zeros(model.every_effect.size)
    model.every_effect.block("slopes", coefficients)[:] = [[[0.5, -0.5], [0.2, -0.2]]]
    regimes = RegimeFilter(model, [model.natural([[0.0, 1.0], [1.0, 1.0]], [[0.9, 0.1], [0.3, 0.7]], coefficients)])
    stream = regimes.after(series)
    found = regimes.forecast(stream, 3, [1], exog=exog[["load"]][:3])
    step, expected = stream.probability, []
    for load in exog["load"][:3]:
        z = (load - exog["load"].mean()) / exog["load"].std(ddof=0)
        P = np.array([[0.9, 0.1], [0.3, 0.7]]) * np.exp(z * np.array([[0.5, -0.5], [0.2, -0.2]]))
        step = step @ (P / P.sum(1, keepdims=True))
        expected.append(step)
    np.testing.assert_allclose(found.states, expected, rtol=1e-12)
    with pytest.raises(ValueError, match="future inputs missing: 'load'; pass exog= with one row"):
        regimes.forecast(stream, 3, [1])
    with pytest.raises(ValueError, match="horizon is 0; it must be a whole number, 1 or more"):
        regimes.forecast(stream, 0, [1])


def test_every_state_may_be_rare():
    model, points, series = long_case("level 1")
    regimes = RegimeFilter(model, points)
    found = regimes.forecast(regimes.after(series), 4, [0, 1])
    np.testing.assert_array_equal(found.event, 1.0)
    np.testing.assert_allclose(found.states.sum(1), 1.0)
    np.testing.assert_allclose(regimes.forecast(regimes.after(series), 4).event, 0.0, atol=1e-15)


def test_functions_for_plain_models_refuse_these():
    model, points, series = long_case("level 1")
    draws = Draws(np.stack([point.phi for point in points]), np.stack([point.transition for point in points]))
    with pytest.raises(ValueError, match=r"StreamParameters does not support .*; use RegimeFilter"):
        StreamParameters.of(model, points)
    with pytest.raises(ValueError, match=r"forecast does not support .*; use RegimeFilter.forecast"):
        forecast(np.random.default_rng(0), model, points, np.full((2, 2), 0.5), 3, np.array([1]))
    with pytest.raises(ValueError, match=r"state_densities does not support .*; use log_score"):
        state_densities(model, draws, np.zeros(3), 0)
    with pytest.raises(ValueError, match=r"sequence_densities does not support .*; use log_score"):
        sequence_densities(model, draws, np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"use RegimeFilter\(model, points\).after\(series\)"):
        last_distribution(model, points[0], series)
