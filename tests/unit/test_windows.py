"""Windows: where they lie, what each says, and the exact error of drawing them."""

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import FAMILIES, SINGLE, Pair, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.windows.gradients import (
    check_frozen,
    freeze,
    mean_square_error,
    window_gradients,
    window_sums,
)
from rarehmm.windows.windows import Windows, suggested_buffer


@given(st.lists(st.integers(5, 60), min_size=1, max_size=8), st.integers(1, 2))
def test_windows_cover_every_observation_once(lengths, half_width):
    series = rh.Series(np.arange(sum(lengths)) * 1.0, lengths=lengths)
    windows = Windows(series, half_width, 3)
    first, length, begin, stop = windows.place(np.arange(windows.count))
    covered = np.concatenate([np.arange(f, f + n) for f, n in zip(first, length, strict=True)])
    np.testing.assert_array_equal(covered, np.arange(len(series)))
    assert ((begin <= first) & (first + length <= stop)).all()
    assert (length[first + length < stop] == windows.length).all()
    each = windows.of_each()
    np.testing.assert_array_equal(first[each] + (np.arange(len(series)) - first[each]), np.arange(len(series)))


@pytest.mark.parametrize(
    ("half_width", "buffer", "message"),
    [(0, 5, "half_width is 0"), (2, 0, "buffer is 0"), (2.5, 5, "half_width is 2.5"), (7, 5, "at most 4")],
)
def test_bad_windows_are_refused(half_width, buffer, message):
    with pytest.raises(ValueError, match=message):
        Windows(rh.Series(np.arange(10.0)), half_width, buffer)


def twin(model, parameters, y, low, high, first, last):
    """Smoothing and transitions of a window [first, last), read as [low, high), in extended precision."""
    distribution = parameters.start if low == 0 else rh.stationary(parameters.transition) @ parameters.transition
    logp = oracle.log_density(model.family, y[low:high], parameters.phi)
    _, filtered, gamma, _, _ = oracle.forward_backward(logp, parameters.transition, distribution)
    pairs = np.zeros((model.n_states, model.n_states))
    for t in range(first, last):
        if t > low:  # xi_t by enumeration of the two states around one step
            after = oracle.forward_backward(logp, parameters.transition, distribution)[2][t - low]
            before = filtered[t - 1 - low]
            joint = before[:, None] * parameters.transition
            pairs += joint * np.divide(after, joint.sum(0), out=np.zeros(len(after)), where=joint.sum(0) > 0)
    return gamma[first - low : last - low], pairs


@pytest.mark.parametrize("start", [False, True], ids=["stationary", "given start"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_each_window_is_what_it_says_given_its_buffers(family, start):
    rng = np.random.default_rng(5)
    model = model_of(family, 3, start=rng.dirichlet(np.ones(3)) if start else None)
    parameters = parameters_of(rng, model)
    y = series_of(rng, model, parameters, 43)
    windows = Windows(rh.Series(y), 2, 3)
    found = window_sums(model, parameters, rh.Series(y), windows)
    for n in range(windows.count):
        first, last = 5 * n, min(5 * n + 5, 43)
        gamma, pairs = twin(model, parameters, y, max(0, first - 3), min(43, last + 3), first, last)
        np.testing.assert_allclose(found.pairs[n], pairs, atol=1e-10)
        seen = ~np.isnan(y[first:last])
        np.testing.assert_allclose(found.counts[n], gamma[seen].sum(0), atol=1e-10)
        expected = oracle.scores(family, y[first:last], parameters.phi, gamma)
        np.testing.assert_allclose(found.scores[n], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", [*FAMILIES, Pair()], ids=lambda f: type(f).__name__)
@pytest.mark.parametrize("start", [None, [0.5, 0.2, 0.3]], ids=["stationary", "given start"])
def test_windows_with_a_buffer_of_everything_add_up_to_the_gradient(family, start):
    rng = np.random.default_rng(6)
    priors = rh.Priors((rh.Normal(0, 9),) * len(family.parameters))
    model = rh.Model(family, 3, priors, start=start)
    parameters = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, parameters, 60), lengths=[22, 38])
    theta = model.pack(parameters)
    total = window_gradients(model, theta, series, Windows(series, 2, 60)).sum(0)
    exact = rh.log_posterior(model, theta, series)[1] - model.log_prior_gradient(theta)
    np.testing.assert_allclose(total, exact, rtol=1e-9, atol=1e-9)


def test_what_buffers_miss_falls_with_their_length():
    model = model_of(rh.Gaussian(), 2)
    parameters = model.parameters([[0.8, 0.2], [0.3, 0.7]], mean=[0, 1], variance=1)
    y, _ = rh.simulate(np.random.default_rng(0), model, parameters, 600)
    series, theta = rh.Series(y), model.pack(parameters)
    exact = rh.log_posterior(model, theta, series)[1] - model.log_prior_gradient(theta)
    found = [window_gradients(model, theta, series, Windows(series, 2, B)).sum(0) for B in (1, 4, 16)]
    errors = [np.abs(total - exact).max() for total in found]
    assert errors[0] > 3 * errors[1] > 100 * errors[2]


def test_suggested_buffer_follows_the_spectral_gap():
    assert suggested_buffer(np.array([[0.9, 0.1], [0.1, 0.9]])) == int(np.ceil(np.log(0.05) / np.log(0.8)))
    assert suggested_buffer(np.full((3, 3), 1 / 3)) == 1
    assert suggested_buffer(np.ones((1, 1))) == 1
    with pytest.raises(ValueError, match="never forgets"):
        suggested_buffer(np.eye(2))
    assert suggested_buffer(SINGLE) > 100  # states one and two are sticky; observations forget faster


def test_mean_square_error_is_that_of_all_draws():
    """Enumerate all windows: mean and variance of g_J / a_J, also with windows that are never drawn."""
    rng = np.random.default_rng(7)
    g = rng.normal(size=(9, 2))
    a = rng.dirichlet(np.ones(9), size=2)
    a[1, :3] = 0
    a[1] /= a[1].sum()
    found = mean_square_error(g, a)
    for i in range(2):
        drawn = a[i] > 0
        error = g[drawn, i] / a[i, drawn] - g[:, i].sum()
        assert found[i] == pytest.approx(a[i, drawn] @ error**2, rel=1e-12)
    np.testing.assert_allclose(mean_square_error(g, a[:1])[1], a[0] @ (g[:, 1] / a[0] - g[:, 1].sum()) ** 2)


def test_what_has_no_windows_is_refused():
    with pytest.raises(TypeError, match="expected a Series, got list; wrap the data"):
        Windows([1.0, 2.0], 1, 1)
    for accuracy in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"accuracy is .*; it must lie between 0 and 1"):
            suggested_buffer(SINGLE, accuracy)


def test_statistics_of_another_number_of_states_are_refused():
    series = rh.Series(np.random.default_rng(0).normal(size=20))
    windows, (one, two) = Windows(series, 2, 2), (model_of(rh.Gaussian(), K) for K in (1, 2))
    frozen = freeze(one, np.zeros(one.size), series, windows)
    check_frozen(frozen, one, windows)
    with pytest.raises(ValueError, match="the frozen statistics belong to a model with n_states=1, not 2; freeze them"):
        check_frozen(frozen, two, windows)
