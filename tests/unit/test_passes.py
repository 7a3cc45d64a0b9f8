"""Exact inference against enumeration of all paths, forward-backward in extended precision and finite differences."""

import numpy as np
import oracle
import pytest
from small_models import FAMILIES, Pair, model_of, paper_series, parameters_of, series_of

import rarehmm as rh
from rarehmm.exact import block_pass, blocks

SIZES = [(1, 5), (2, 8), (3, 6), (4, 8)]
names = {"ids": lambda f: type(f).__name__}


def case(family, K, T, seed, start=False):
    rng = np.random.default_rng(seed)
    model = model_of(family, K, start=rng.dirichlet(np.ones(K)) if start else None)
    parameters = parameters_of(rng, model)
    return model, parameters, series_of(rng, model, parameters, T)


@pytest.mark.parametrize("start", [False, True], ids=["stationary", "given start"])
@pytest.mark.parametrize(("K", "T"), SIZES)
@pytest.mark.parametrize("family", FAMILIES, **names)
def test_agrees_with_enumeration_of_all_paths(family, K, T, start):
    model, parameters, y = case(family, K, T, seed=K, start=start)
    series = rh.Series(y)
    logp = oracle.log_density(family, y, parameters.phi)
    total, smooth, pairs, path, best = oracle.enumerate_paths(logp, parameters.transition, parameters.start)
    filtered, predictive = oracle.filter_by_enumeration(logp, parameters.transition, parameters.start)
    found = rh.expectations(model, parameters, series, with_statistics=True)
    seen = ~np.isnan(y)

    assert rh.log_likelihood(model, parameters, series) == pytest.approx(total, abs=1e-10)
    assert found.log_likelihood == pytest.approx(total, abs=1e-10)
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-10)
    np.testing.assert_allclose(found.first, smooth[0], atol=1e-10)
    np.testing.assert_allclose(found.counts, smooth[seen].sum(0), atol=1e-10)
    np.testing.assert_allclose(rh.smooth(model, parameters, series), smooth, atol=1e-10)
    np.testing.assert_allclose(rh.filter_states(model, parameters, series), filtered, atol=1e-10)
    np.testing.assert_allclose(rh.predictive_log_density(model, parameters, series), predictive, atol=1e-10)
    decoded, value = rh.decode(model, parameters, series)
    assert value == pytest.approx(best, abs=1e-10)
    np.testing.assert_array_equal(decoded, path)


@pytest.mark.parametrize("family", FAMILIES, **names)
def test_several_sequences_are_independent(family):
    model, parameters, y = case(family, 3, 17, seed=7)
    whole = rh.Series(y, lengths=[6, 1, 7, 3])
    parts = [rh.Series(part) for part in np.split(y, [6, 7, 14]) if not np.isnan(part).all()]
    found = rh.expectations(model, parameters, whole, with_statistics=True)
    each = [rh.expectations(model, parameters, part, with_statistics=True) for part in parts]
    logp = oracle.log_density(family, y, parameters.phi)
    exact = [oracle.enumerate_paths(p, parameters.transition, parameters.start) for p in np.split(logp, [6, 7, 14])]
    assert found.log_likelihood == pytest.approx(sum(e[0] for e in exact), abs=1e-10)
    np.testing.assert_allclose(found.pairs, sum(e[2] for e in exact), atol=1e-10)
    np.testing.assert_allclose(found.first, sum(e[1][0] for e in exact), atol=1e-10)
    np.testing.assert_allclose(rh.smooth(model, parameters, whole), np.concatenate([e[1] for e in exact]), atol=1e-10)
    np.testing.assert_allclose(found.scores, sum(e.scores for e in each), atol=1e-10)
    path, value = rh.decode(model, parameters, whole)
    np.testing.assert_array_equal(path, np.concatenate([e[3] for e in exact]))
    assert value == pytest.approx(sum(e[4] for e in exact), abs=1e-10)


@pytest.mark.parametrize("start", [False, True], ids=["stationary", "given start"])
@pytest.mark.parametrize("coordinates", [rh.AdditiveLogRatio((1, 0, 2)), rh.ExpandedMean()], ids=["alr", "expanded"])
@pytest.mark.parametrize("family", [*FAMILIES, Pair()], **names)
def test_gradient_is_the_slope_of_the_log_posterior(family, coordinates, start):
    rng = np.random.default_rng(11)
    model = model_of(family, 3, start=rng.dirichlet(np.ones(3)) if start else None, coordinates=coordinates)
    if isinstance(family, Pair):
        model = rh.Model(family, 3, rh.Priors((rh.Normal(0, 9), rh.Normal(1, 4))), model.start, coordinates)
    parameters = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, parameters, 30), lengths=[11, 19])
    theta = model.pack(parameters) + 0.1 * rng.random(model.size)
    value, slope = rh.log_posterior(model, theta, series)
    h = 1e-5
    for i in range(model.size):
        step = h * np.eye(model.size)[i]
        up, down = (rh.log_posterior(model, theta + s * step, series)[0] for s in (1, -1))
        assert slope[i] == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-6), model.component_names[i]
    expected = rh.log_likelihood(model, model.unpack(theta), series) + model.log_prior(theta)
    assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES, **names)
def test_statistics_are_expectations_under_the_smoothing_law(family):
    model, parameters, y = case(family, 2, 12, seed=5)
    found = rh.expectations(model, parameters, rh.Series(y), with_statistics=True)
    gamma = rh.smooth(model, parameters, rh.Series(y))
    z = y[:, None] - parameters.phi[:, 0]
    match family:
        case rh.Poisson():
            parts = [np.broadcast_to(y[:, None], z.shape)]
        case rh.StudentT():
            u = (family.nu + 1) / (family.nu + z**2 / parameters.phi[:, 1])
            parts = [u, u * z, u * z**2]
        case _:
            parts = [z, z**2]
    for i, part in enumerate(parts):
        np.testing.assert_allclose(found.statistics[:, i], np.nansum(gamma * part, axis=0), rtol=1e-10)
    np.testing.assert_allclose(found.scores, oracle.scores(family, y, parameters.phi, gamma), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", [*FAMILIES, Pair()], **names)
def test_relabelling_the_states_permutes_the_answer(family):
    rng = np.random.default_rng(2)
    model = rh.Model(family, 3, rh.Priors((rh.Normal(0, 9),) * len(family.parameters)))
    parameters = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, parameters, 40))
    order = [2, 0, 1]
    other = model.natural(parameters.phi[order], parameters.transition[np.ix_(order, order)])
    a, b = (rh.expectations(model, p, series) for p in (parameters, other))
    assert a.log_likelihood == pytest.approx(b.log_likelihood, abs=1e-10)
    np.testing.assert_allclose(a.pairs[np.ix_(order, order)], b.pairs, atol=1e-10)
    np.testing.assert_allclose(
        rh.smooth(model, parameters, series)[:, order], rh.smooth(model, other, series), atol=1e-12
    )


def test_a_missing_observation_at_either_end_contributes_nothing():
    model, parameters, y = case(rh.Gaussian(), 3, 9, seed=3)
    padded = np.concatenate([[np.nan] * 4, y, [np.nan] * 3])
    a, b = (rh.expectations(model, parameters, rh.Series(v)) for v in (y, padded))
    assert a.log_likelihood == pytest.approx(b.log_likelihood, abs=1e-12)
    np.testing.assert_allclose(a.scores, b.scores, atol=1e-12)


def test_the_future_cannot_change_the_filter():
    model, parameters, y = case(rh.Gaussian(), 3, 500, seed=4)
    changed = y.copy()
    changed[300:] = 3.0
    a, b = (rh.filter_states(model, parameters, rh.Series(v)) for v in (y, changed))
    np.testing.assert_allclose(a[:300], b[:300], atol=1e-13)


# ---------------------------------------------------------------- long series: lanes, halos, seams
def overlap(gap, T, seed=0):
    model, parameters, y, _ = paper_series(np.random.default_rng(seed), T, gap)
    return model, parameters, y


def assert_close_to_oracle(
    model, parameters, y, lengths=None, sequential=False, tolerance=1e-9, twin=oracle.forward_backward
):
    """All quantities of a series against forward-backward in extended precision."""
    series = rh.Series(y, lengths=lengths)
    logp = oracle.log_density(model.family, y, parameters.phi)
    parts = [
        twin(logp[a:b], parameters.transition, parameters.start)
        for a, b in zip(series.bounds, series.bounds[1:], strict=False)
    ]
    kind = {"sequential": sequential}
    found = rh.expectations(model, parameters, series, **kind)
    total = sum(p[0] for p in parts)
    assert found.log_likelihood == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(found.pairs, sum(p[3] for p in parts), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.first, sum(p[2][0] for p in parts), atol=tolerance)
    joined = [np.concatenate([p[i] for p in parts]) for i in (1, 2, 4)]
    np.testing.assert_allclose(rh.filter_states(model, parameters, series, **kind), joined[0], atol=tolerance)
    np.testing.assert_allclose(rh.smooth(model, parameters, series, **kind), joined[1], atol=tolerance)
    np.testing.assert_allclose(rh.predictive_log_density(model, parameters, series, **kind), joined[2], atol=tolerance)


@pytest.mark.parametrize("sequential", [False, True], ids=["lanes", "sequential"])
@pytest.mark.parametrize("gap", [20.0, 2.0, 0.5])
def test_lanes_and_sequential_agree_with_the_oracle(gap, sequential):
    model, parameters, y = overlap(gap, 1200)
    assert_close_to_oracle(model, parameters, y, sequential=sequential)


@pytest.mark.jit
def test_a_long_gap_is_bridged():
    """No halo is long enough inside a gap: the messages have to be carried through it."""
    model, _, y = overlap(3.0, 4200)
    sticky = model.parameters([[0.999, 0.0005, 0.0005], [0.001, 0.998, 0.001], [0.004, 0.004, 0.992]],
                              mean=[-3, 0, 3], variance=1)  # fmt: skip
    y[300:3700] = np.nan
    assert_close_to_oracle(model, sticky, y)


@pytest.mark.jit
def test_states_that_never_mix_are_exact_too():
    model, _, y = overlap(2.0, 1500)
    frozen = model.parameters(np.eye(3) * (1 - 3e-9) + 1e-9, mean=[-0.1, 0, 0.1], variance=1)
    assert_close_to_oracle(model, frozen, y)


@pytest.mark.jit
@pytest.mark.parametrize("sequential", [False, True], ids=["lanes", "sequential"])
def test_many_sequences_of_all_lengths_fill_the_lanes(sequential):
    rng = np.random.default_rng(8)
    model, parameters, y = overlap(2.0, 2600)
    model = rh.Model(model.family, 3, model.priors, start=[0.2, 0.3, 0.5])
    parameters = model.natural(parameters.phi, parameters.transition)
    lengths = [1, 900, 2, 1, 700, *rng.integers(1, 30, 30)]
    lengths.append(2600 - sum(lengths))
    y[rng.random(2600) < 0.1] = np.nan
    assert_close_to_oracle(model, parameters, y, lengths=lengths, sequential=sequential)


def test_forbidden_transitions():
    """Left to right: states that cannot be reached any more are the better explanation of what follows."""
    rng = np.random.default_rng(1)
    model = model_of(rh.Gaussian(), 3, start=[1.0, 0.0, 0.0])
    parameters = model.parameters([[0.99, 0.01, 0], [0, 0.99, 0.01], [0, 0, 1.0]], mean=[0, 5, 10], variance=1)
    y = np.concatenate([rng.normal(0, 1, 200), rng.normal(5, 1, 200), rng.normal(10, 1, 300), rng.normal(0, 1, 30)])
    assert_close_to_oracle(model, parameters, y)


@pytest.mark.jit
@pytest.mark.parametrize("sequential", [False, True], ids=["lanes", "sequential"])
def test_the_message_of_a_state_out_of_reach_stays_harmless(sequential):
    """State 0 cannot be reached and would explain every observation twice as well: 2^T must not overflow."""
    series = rh.Series(np.random.default_rng(0).normal(5, 1, 40_000))
    model, small = model_of(rh.Gaussian(), 3, start=[0.0, 0.5, 0.5]), model_of(rh.Gaussian(), 2, start=[0.5, 0.5])
    parameters = model.parameters([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]], mean=[5, 5, 500], variance=1)
    without = small.parameters(np.full((2, 2), 0.5), mean=[5, 500], variance=1)
    found = rh.expectations(model, parameters, series, sequential=sequential)
    expected = rh.expectations(small, without, series)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-13)
    np.testing.assert_allclose(found.pairs[1:, 1:], expected.pairs, atol=1e-8)
    np.testing.assert_allclose(found.scores[1:], expected.scores, atol=1e-8)
    assert not found.pairs[0].any()
    assert not found.scores[0].any()
    np.testing.assert_allclose(rh.smooth(model, parameters, series, sequential=sequential)[:, 0], 0.0)


LEFT_TO_RIGHT, NEVER = [[0.99, 0.01], [0.0, 1.0]], np.eye(2)
ZEROS = np.zeros


@pytest.mark.jit
@pytest.mark.parametrize("sequential", [False, True], ids=["lanes", "sequential"])
@pytest.mark.parametrize(
    ("transition", "start", "means", "y"),
    [
        (LEFT_TO_RIGHT, [1, 0], [0, 10], np.concatenate([ZEROS(20), ZEROS(20) + 10, ZEROS(100)])),
        (LEFT_TO_RIGHT, [1, 0], [0, 6], np.concatenate([ZEROS(20), [1000], ZEROS(100)])),
        (NEVER, [0.5, 0.5], [0, 20], np.concatenate([ZEROS(10), ZEROS(30) + 20])),
        ([[1, 1e-80], [1e-80, 1]], [0.5, 0.5], [0, 100], np.array([0.0, 0, 0, 100, 0, 0, 0, 0])),
        ([[1, 1e-100], [1e-100, 1]], [0.5, 0.5], [0, 100], np.array([0.0, 100] * 10)),
        ([[1, 1e-40], [1e-40, 1]], [0.5, 0.5], [0, 100], np.array([0.0, 100] * 10)),
        ([[1, 1e-200], [0.5, 0.5]], [1, 0], [0, 100], np.array([0.0, 100, 100])),
        (LEFT_TO_RIGHT, [1, 0], [0, 50], ZEROS(2000)),
    ],
)
def test_masses_far_below_what_doubles_hold_are_right(transition, start, means, y, sequential):
    model = model_of(rh.Gaussian(), 2, start=start)
    parameters = model.parameters(transition, mean=means, variance=1)
    assert_close_to_oracle(model, parameters, y, sequential=sequential, twin=oracle.in_logs)
    lengths = [len(y) // 2, len(y) - len(y) // 2]
    assert_close_to_oracle(model, parameters, y, lengths=lengths, sequential=sequential, twin=oracle.in_logs)
    series = rh.Series(y)
    assert rh.decode(model, parameters, series)[1] <= rh.log_likelihood(model, parameters, series) + 1e-9


@pytest.mark.parametrize("family", [*FAMILIES, Pair()], **names)
def test_logarithms_give_the_same_expectations(family, monkeypatch):
    """The way out for forbidden transitions, forced on an ordinary series."""
    rng = np.random.default_rng(12)
    model = rh.Model(family, 3, rh.Priors((rh.Normal(0, 9),) * len(family.parameters)))
    parameters = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, parameters, 300), lengths=[100, 1, 199])
    expected = rh.expectations(model, parameters, series, with_statistics=True)
    assert expected.information is None
    smooth = rh.smooth(model, parameters, series)
    monkeypatch.setattr(block_pass, "CAREFUL", 1.0)
    monkeypatch.setattr(block_pass, "underflow_matters", lambda *args: True)
    monkeypatch.setattr(blocks, "CHUNK", 64)
    slowly = rh.expectations(model, parameters, series, with_statistics=True)
    for found, wanted in zip(slowly[:-1], expected[:-1], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(rh.smooth(model, parameters, series), smooth, atol=1e-10)


def test_two_rare_states_of_the_paper_are_not_doubtful():
    """Zeros that are bridged by another state do not need logarithms (nor their time)."""
    model = model_of(rh.Gaussian(), 3)
    parameters = model.parameters(
        [[0.999, 0.0005, 0.0005], [0.1, 0.9, 0], [0.1, 0, 0.9]], mean=[0, -20, 20], variance=1
    )
    y, _ = rh.simulate(np.random.default_rng(0), model, parameters, 3000)
    assert not block_pass.Pass(model, parameters, rh.Series(y), None, False).underflow_matters()
    assert_close_to_oracle(model, parameters, y)


def test_an_unsettled_answer_is_computed_in_logarithms(monkeypatch):
    model, parameters, y = overlap(2.0, 1500)
    monkeypatch.setattr(block_pass, "repair_forward", lambda *args: None)
    assert_close_to_oracle(model, parameters, y, sequential=True)


def test_parameters_of_another_model_are_refused():
    two, three = model_of(rh.Gaussian(), 2), model_of(rh.Gaussian(), 3)
    parameters = two.parameters(np.full((2, 2), 0.5), mean=[0, 1], variance=1)
    series = rh.Series(np.arange(6.0))
    for use in (rh.smooth, rh.log_likelihood, rh.decode, rh.filter_states, rh.expectations, rh.predictive_log_density):
        with pytest.raises(ValueError, match=r"phi has shape \(2, 2\); this model of 3 states needs \(3, 2\)"):
            use(three, parameters, series)
    with pytest.raises(ValueError, match="phi has shape"):
        three.pack(parameters)
    with pytest.raises(ValueError, match="phi has shape"):
        rh.simulate(np.random.default_rng(0), three, parameters, 5)


def test_outliers_do_not_underflow():
    model, parameters, y = overlap(2.0, 1200)
    y[[0, 77, 500, 501, 502, 1199]] = [1e4, -1e4, 1e4, 1e4, -1e4, 1e4]
    assert_close_to_oracle(model, parameters, y)


def test_the_number_of_threads_does_not_change_a_bit():
    model, parameters, y = overlap(2.0, 1200)
    passes_of = [rh.expectations(model, parameters, rh.Series(y, lengths=[100] * 12), threads=n) for n in (1, 2, 3)]
    for other in passes_of[1:]:
        assert other.log_likelihood == passes_of[0].log_likelihood
        np.testing.assert_array_equal(other.pairs, passes_of[0].pairs)


@pytest.mark.jit
@pytest.mark.parametrize("gap", [20.0, 1.0, 0.3])
def test_a_million_observations(gap):
    """Lanes against sequential to 1e-9, no underflow, the same bits for any number of threads."""
    model, parameters, y = overlap(gap, 1_000_000)
    y[123_456] = 1e4
    series = rh.Series(y)
    lanes, twice, slow = (
        rh.expectations(model, parameters, series, with_statistics=True, **how)
        for how in ({"threads": 1}, {"threads": 2}, {"sequential": True})
    )
    for name in ("scores", "counts", "statistics", "pairs", "first"):
        a, b, c = (getattr(v, name) for v in (lanes, twice, slow))
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-9, atol=1e-9 * np.abs(c).max(), err_msg=name)
    assert lanes.log_likelihood == twice.log_likelihood == pytest.approx(slow.log_likelihood, rel=1e-12)
    assert np.isfinite(lanes.log_likelihood)
    predictive = rh.predictive_log_density(model, parameters, series)
    assert predictive.sum() == pytest.approx(lanes.log_likelihood, rel=1e-11)
    gamma = rh.smooth(model, parameters, series)
    np.testing.assert_allclose(gamma.sum(1), 1.0, atol=1e-9)
    np.testing.assert_allclose(gamma.sum(0), lanes.counts, rtol=1e-9)


def test_two_columns():
    rng = np.random.default_rng(9)
    model = rh.Model(Pair(), 3, rh.Priors((rh.Normal(0, 9), rh.Normal(0, 9))))
    parameters = parameters_of(rng, model)
    y = series_of(rng, model, parameters, 600)
    y[5, 1] = np.nan  # a row with a NaN is missing
    both = y - parameters.phi[:, None]
    logp = (-0.5 * both**2 - 0.5 * np.log(2 * np.pi)).sum(2).T
    total, _, gamma, pairs, _ = oracle.forward_backward(
        np.where(np.isnan(logp), 0.0, logp), parameters.transition, parameters.start
    )
    found = rh.expectations(model, parameters, rh.Series(y))
    assert found.log_likelihood == pytest.approx(total, abs=1e-9)
    np.testing.assert_allclose(found.pairs, pairs, atol=1e-9)
    np.testing.assert_allclose(rh.smooth(model, parameters, rh.Series(y)), gamma, atol=1e-10)


def test_joint_log_density_refuses_a_path_that_does_not_fit():
    model, parameters, y = case(rh.Gaussian(), 2, 9, seed=3)
    with pytest.raises(ValueError, match=r"path has shape .* expected 9 integers"):
        rh.joint_log_density(model, parameters, rh.Series(y), [0, 1, 2])
    with pytest.raises(ValueError, match=r"path\[8\] is 2; states must lie in 0..1"):
        rh.joint_log_density(model, parameters, rh.Series(y), [0] * 8 + [2])
