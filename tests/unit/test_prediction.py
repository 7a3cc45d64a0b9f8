"""Order of states, held-out densities and sequences against their definitions."""

import json

import numpy as np
import oracle
import pytest
from small_models import FAMILIES, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.posterior.posterior import Draws, in_order
from rarehmm.posterior.prediction import (
    Stream,
    StreamParameters,
    forecast,
    held_out,
    held_out_so_far,
    log_score,
    sequence_densities,
    state_densities,
    update,
)


def some_draws(family, Z=4, seed=0, **more):
    rng = np.random.default_rng(seed)
    model = model_of(family, 3, **more)
    points = [parameters_of(rng, model, gap=float(rng.uniform(-2, 2))) for _ in range(Z)] if not isinstance(
        family, rh.Poisson
    ) else [parameters_of(rng, model) for _ in range(Z)]  # fmt: skip
    return model, points, np.array([model.pack(p) for p in points])


@pytest.mark.parametrize("more", [{}, {"coordinates": rh.ExpandedMean(), "logs": False}], ids=["ours", "the paper's"])
def test_states_in_order_describe_the_same_series(more):
    model, points, theta = some_draws(rh.Gaussian(), **more)
    draws = in_order(model, theta.reshape(2, 2, -1))
    series = rh.Series(series_of(np.random.default_rng(1), model, points[0], 40))
    assert (np.diff(draws.phi[..., 0], axis=-1) > 0).all()
    assert any((np.diff(p.phi[:, 0]) < 0).any() for p in points)  # some were not in order before
    for z, point in enumerate(points):
        again = model.natural(draws.phi.reshape(4, 3, -1)[z], draws.transition.reshape(4, 3, 3)[z])
        expected = rh.log_likelihood(model, point, series)
        assert rh.log_likelihood(model, again, series) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_held_out_density_is_equation_eleven(family):
    model, points, theta = some_draws(family)
    draws = Draws(*model.unpack_all(theta))
    y = series_of(np.random.default_rng(2), model, points[0], 6, missing=0.0)
    found = state_densities(model, draws, y, 1)
    each = np.array([oracle.log_density(family, y, p.phi)[:, 1] for p in points])
    np.testing.assert_allclose(found, each, rtol=1e-10)
    by_hand = np.mean([np.log(np.mean([np.exp(each[z, r]) for z in range(4)])) for r in range(6)])
    assert held_out(found) == pytest.approx(by_hand, rel=1e-10)
    np.testing.assert_allclose(held_out_so_far(found), [held_out(found[: z + 1]) for z in range(4)], rtol=1e-12)


def test_a_missing_observation_has_density_one_and_one_draw_is_enough():
    model, _, theta = some_draws(rh.Gaussian())
    one = in_order(model, theta[0])
    assert state_densities(model, one, [np.nan], 0)[0, 0] == 0.0
    assert state_densities(model, in_order(model, theta.reshape(2, 2, -1)), [1.0], 0).shape == (4, 1)
    with pytest.raises(ValueError, match="no draws"):
        state_densities(model, in_order(model, theta[:0]), [1.0], 0)


@pytest.mark.parametrize("start", [None, [0.2, 0.5, 0.3]], ids=["stationary", "given start"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_sequence_densities_are_likelihoods(family, start):
    model, points, theta = some_draws(family, start=start)
    draws = Draws(*model.unpack_all(theta))
    y = series_of(np.random.default_rng(3), model, points[0], 21, missing=0.2).reshape(3, 7)
    found = sequence_densities(model, draws, y)
    for z, n in np.ndindex(4, 3):
        assert found[z, n] == pytest.approx(rh.log_likelihood(model, points[z], rh.Series(y[n])), rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------- states, streams and what comes next
def two_points(family=None):
    model, points, _ = some_draws(rh.Gaussian() if family is None else family, Z=2)
    return model, points, rh.Series(series_of(np.random.default_rng(4), model, points[0], 30))


@pytest.mark.parametrize("causal", [False, True])
def test_probabilities_are_averaged_over_points(causal):
    model, points, series = two_points()
    each = [(rh.filter_states if causal else rh.smooth)(model, p, series) for p in points]
    np.testing.assert_allclose(oracle.state_probabilities(model, points, series, causal=causal), np.mean(each, axis=0))
    values = [rh.log_likelihood(model, p, series) for p in points]
    assert log_score(model, points, series) == pytest.approx(np.log(np.mean(np.exp(values))))


def test_the_future_cannot_change_the_filter():
    model, points, series = two_points()
    y = series.read(0, 30)[:, 0].copy()
    before = oracle.state_probabilities(model, points, rh.Series(y), causal=True)
    y[20:] = 1000.0
    np.testing.assert_allclose(oracle.state_probabilities(model, points, rh.Series(y), causal=True)[:20], before[:20])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_a_stream_says_what_the_filter_says(family):
    model, points, series = two_points(family)
    expected = oracle.state_probabilities(model, points, series, causal=True)
    stream = Stream()
    with pytest.raises(ValueError, match="seen no observation"):
        _ = stream.probability
    for t, y in enumerate(series.read(0, 30)[:, 0]):
        stream = Stream.from_dict(json.loads(json.dumps(stream.to_dict())))  # it can be put away and taken up again
        stream = update(StreamParameters.of(model, points), stream, y)
        np.testing.assert_allclose(stream.probability, expected[t], atol=1e-9)
    assert stream.seen == 30
    with pytest.raises(ValueError, match=r"y has shape \(2,\); it must be one observation of 1 columns"):
        update(StreamParameters.of(model, points), stream, [1.0, 2.0])


def test_forecasts_are_what_simulations_show():
    model, points, _ = two_points()
    distribution = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    found = forecast(np.random.default_rng(0), model, points, distribution, 4, np.array([2]), size=200)
    rng, n, H = np.random.default_rng(1), 20_000, 4
    paths = []
    for z, point in enumerate(points):
        state = rng.choice(3, n, p=distribution[z])
        path = np.empty((n, H), dtype=int)
        for h in range(H):
            state = (rng.random(n)[:, None] > np.cumsum(point.transition, 1)[state]).sum(1)
            path[:, h] = state
        paths.append(path)
    both = np.concatenate(paths)
    np.testing.assert_allclose(
        found.states, [[np.mean(both[:, h] == k) for k in range(3)] for h in range(H)], atol=0.01
    )
    hit = np.array([np.maximum.accumulate(p == 2, axis=1).mean(0) for p in paths])
    np.testing.assert_allclose(found.event, hit.mean(0), atol=0.01)
    assert (np.diff(found.event) >= 0).all()
    assert (found.low <= found.event).all()
    assert (found.event <= found.high).all()
    np.testing.assert_allclose(found.high, np.quantile(hit, 0.95, axis=0), atol=0.02)
    assert found.observations.shape == (200, 4)
    expected = np.mean([found.states[0] @ p.phi[:, 0] for p in points])
    assert found.observations[:, 0].mean() == pytest.approx(expected, abs=0.5)
