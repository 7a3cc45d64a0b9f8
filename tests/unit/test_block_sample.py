"""Drawn blocks: sums over them are those of the whole series on average, exact at the anchor, and lead to its mode."""

import numpy as np
import pytest
from small_models import FAMILIES, Pair, every_estimate, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.design import Design
from rarehmm.exact import batched, block_pass, blocks
from rarehmm.exact.block_sample import BlockSample
from rarehmm.exact.blocks import split
from rarehmm.exact.passes import expectations, log_posterior
from rarehmm.sampling.diagnostics import check_block_sample
from rarehmm.sampling.rule import infer
from rarehmm.search import long_series as drawing
from rarehmm.search.long_series import (
    anchor,
    block_gradients,
    find_long_mode,
    full_pass,
    inclusion_probabilities,
    is_long,
    sample_blocks,
    systematic_sample,
)
from rarehmm.search.mode import find_mode, with_ordered_states
from rarehmm.windows.gradients import freeze, frozen_gradient, full_series_messages, window_gradients
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows


def setting(family, T=4000, start=None, lengths=(1500, 2500)):
    rng = np.random.default_rng(0)
    start = None if start is None else np.array([0.7, 0.3])
    model = model_of(family, 2, start)
    truth = parameters_of(rng, model, 3.0)
    model = model.with_reference(truth.transition)
    return model, rh.Series(series_of(rng, model, truth, T), lengths), model.pack(truth)


def cut(series, whole, size):
    """The same pass with blocks of this size, and random shares."""
    blocks = split(series, size)
    shares = np.random.default_rng(1).uniform(0.2, 1, len(blocks.first))
    return whole._replace(blocks=blocks, shares=shares, halo=64, settled=False)


def apart(one, other):
    """Largest difference of two sets of sums, relative to their size."""
    pairs = [(a, b) for a, b in zip(one[1:], other[1:], strict=True) if a is not None and a.size]
    return max(np.abs(a - b).max() / (1 + np.abs(b).max()) for a, b in pairs)


@pytest.mark.jit
@pytest.mark.parametrize("size", [50, 250])
@pytest.mark.parametrize("start", [None, "given"])
@pytest.mark.parametrize("family", [*FAMILIES, Pair()], ids=lambda f: type(f).__name__)
def test_all_blocks_are_the_whole_series(family, start, size):
    model, series, theta = setting(family, start=start)
    whole = cut(series, full_pass(model, theta, series), size)
    drawn = sample_blocks(np.random.default_rng(0), model, theta, series, whole, 10**9)
    assert drawn.n_sequences == 4000 // size
    assert (drawn.weights == 1).all()
    exact = expectations(model, model.unpack(theta), series, with_statistics=True)
    found = expectations(model, model.unpack(theta), drawn, with_statistics=True)
    assert apart(found, exact) < 1e-8
    assert apart(whole.sums, exact) < 1e-10
    windows = Windows(drawn, 2, 20)
    assert window_gradients(model, theta, drawn, windows).sum(0) == pytest.approx(
        window_gradients(model, theta, series, Windows(series, 2, 20)).sum(0), rel=1e-3, abs=0.02
    )


@pytest.mark.jit
def test_weighted_sums_are_right_on_average():
    """Over many draws, counting standard errors; and the weights matter."""
    model, series, theta = setting(rh.Gaussian())
    whole = cut(series, full_pass(model, theta, series), 100)
    there = theta + 0.05
    each = block_gradients(model, there, sample_blocks(np.random.default_rng(0), model, theta, series, whole, 10**9))
    whole = whole._replace(shares=1 + np.maximum(each[:, 0], 0))
    exact, rng, found, plain = each.sum(0), np.random.default_rng(2), [], []
    for _ in range(200):
        drawn = sample_blocks(rng, model, theta, series, whole, 1000)
        each = block_gradients(model, there, drawn)
        found.append(each.sum(0))
        plain.append((each / drawn.weights[:, None]).sum(0) * 4)
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert np.abs((np.mean(found, axis=0) - exact) / error).max() < 4
    assert np.abs((np.mean(plain, axis=0) - exact) / error).max() > 5


def test_chances():
    weights = np.array([1.0, 1.0, 2.0, 40.0])
    assert inclusion_probabilities(weights, 2.0) == pytest.approx([0.25, 0.25, 0.5, 1.0])
    assert inclusion_probabilities(weights, 9.0) == pytest.approx(np.ones(4))
    chances, rng = np.array([0.1, 1.0, 0.5, 0.9, 0.5]), np.random.default_rng(0)
    seen = np.zeros(5)
    for _ in range(4000):
        at = systematic_sample(rng, chances)
        assert len(at) == 3
        seen[at] += 1
    assert np.abs(seen / 4000 - chances).max() < 4 * 0.5 / np.sqrt(4000)
    assert seen[1] == 4000


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_at_the_anchor_blocks_are_exact(family):
    """Value, gradient, and the slope of the value, which is another function; frozen statistics are those of all."""
    model, series, theta = setting(family)
    whole = cut(series, full_pass(model, theta, series), 100)
    drawn = sample_blocks(np.random.default_rng(0), model, theta, series, whole, 1000)
    spread = np.full(model.size, 0.02)
    assert np.abs(log_posterior(model, theta, drawn)[1] - log_posterior(model, theta, series)[1]).max() > 1
    anchor(model, theta, drawn, whole.sums, spread)
    (value, slope), (exact, gradient) = (log_posterior(model, theta, s) for s in (drawn, series))
    assert value == pytest.approx(exact, rel=1e-9)
    assert slope == pytest.approx(gradient, rel=1e-6, abs=1e-6)
    for i, step in enumerate(np.diag(0.1 * spread)):
        up, down = (log_posterior(model, theta + side * step, drawn)[0] for side in (1, -1))
        assert (up - down) / (2 * step.max()) == pytest.approx(gradient[i], rel=1e-4, abs=1e-3)
    frozen = freeze(model, theta, drawn, Windows(drawn, 2, 5))
    prior = model.log_prior_gradient(theta)
    assert frozen_gradient(model, theta, frozen, frozen.total) + prior == pytest.approx(gradient, rel=1e-6, abs=1e-6)
    with pytest.raises(ValueError, match="another point"):
        freeze(model, theta + 1e-3, drawn, Windows(drawn, 2, 5))


def test_windows_lie_in_the_cores_and_carry_the_weights():
    model, series, theta = setting(rh.Gaussian())
    whole = cut(series, full_pass(model, theta, series), 100)
    drawn = sample_blocks(np.random.default_rng(0), model, theta, series, whole, 1000)
    windows = Windows(drawn, 2, 20)
    first, length, _, _ = windows.place(np.arange(windows.count))
    inside = np.zeros(len(drawn), dtype=int)
    for a, n in zip(first, length, strict=True):
        inside[a : a + n] += 1
    low, high = drawn.cores
    assert inside.sum() == (high - low).sum()
    assert all((inside[a:b] == 1).all() for a, b in zip(low, high, strict=True))
    messages = full_series_messages(model, model.unpack(theta), drawn, windows)
    found = window_gradients(model, theta, drawn, windows, messages=messages).sum(0)
    exact = expectations(model, model.unpack(theta), drawn)
    assert found == pytest.approx(
        model.gradient_from_expectations(theta, exact.scores, exact.pairs, exact.first), rel=1e-6, abs=1e-5
    )
    assert (drawn.weights > 2).any()


@pytest.mark.parametrize("start", [None, "given"])
@pytest.mark.parametrize("family", [rh.Gaussian(), Pair()], ids=lambda f: type(f).__name__)
def test_windows_of_blocks_give_the_gradient_of_all_on_average(family, start):
    """By enumeration: the estimate of a chain is the frozen gradient of all, plus the weighted changes of windows."""
    model, series, theta = setting(family, 600, start, (200, 400))
    whole = cut(series, full_pass(model, theta, series), 40)
    drawn = sample_blocks(np.random.default_rng(0), model, theta, series, whole, 200)
    anchor(model, theta, drawn, whole.sums, np.full(model.size, 0.02))
    windows = Windows(drawn, 2, 20)
    frozen = freeze(model, theta, drawn, windows)
    q = np.random.default_rng(1).dirichlet(np.full(windows.count, 3.0))
    there = theta + 0.05
    found = every_estimate(model, Pool(model, drawn, windows, Design(q[None]), 3, frozen=frozen), there, windows.count)
    each = window_gradients(model, there, drawn, windows, messages=frozen.messages)
    control = [frozen_gradient(model, there, frozen, s) for s in (frozen.total, frozen.statistics)]
    exact = model.log_prior_gradient(there) + control[0] + (each - control[1]).sum(0)
    assert q @ found == pytest.approx(exact, rel=1e-8, abs=1e-8)
    here = every_estimate(model, Pool(model, drawn, windows, uniform(windows), 3, frozen=frozen), theta, windows.count)
    assert here.mean(0) == pytest.approx(log_posterior(model, theta, series)[1], rel=1e-4, abs=1e-2)


def long_setting(T=150_000, memory_limit="6MB"):
    """A series with a rare state, so little memory that blocks stand for it, and a model."""
    shell = model_of(rh.Gaussian(), 2)
    truth = shell.parameters([[0.995, 0.005], [0.1, 0.9]], mean=[0, 3], variance=[1, 1.5])
    y, _ = rh.simulate(np.random.default_rng(0), shell, truth, T)
    series = rh.Series(y, memory_limit=memory_limit)
    return rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series)), series


@pytest.mark.jit
def test_the_mode_of_a_long_series():
    """By a few passes and drawn blocks: where EM and Newton on all data find it, with nearly the same curvature."""
    model, series = long_setting()
    assert is_long(model, series)
    mode, drawn = find_long_mode(np.random.default_rng(1), model, series)
    exact = with_ordered_states(find_mode(model, series, mode.model.unpack(mode.theta)))
    assert len(drawn) < 0.6 * len(series)
    assert np.abs(np.linalg.solve(exact.factor, exact.theta - mode.theta)).max() < 0.02
    curvature = np.linalg.eigvalsh(exact.factor.T @ mode.hessian @ exact.factor)
    assert np.abs(curvature - 1).max() < 0.15
    assert mode.log_posterior == pytest.approx(exact.log_posterior, abs=1e-3)


@pytest.mark.jit
def test_the_stated_error_of_the_curvature_is_what_other_draws_show():
    model, series = long_setting()
    mode, _ = find_long_mode(np.random.default_rng(1), model, series)
    model, rng, stated, seen = mode.model, np.random.default_rng(2), [], []
    whole = full_pass(model, mode.theta, series)
    z = rng.standard_normal(model.size)
    for _ in range(30):
        drawn = sample_blocks(rng, model, mode.theta, series, whole, 16_000)
        stated.append(check_block_sample(rng, mode, drawn, series)[0].value)
        there, here = (block_gradients(model, mode.theta + f * (mode.factor @ z), drawn).sum(0) for f in (1, 0))
        seen.append(mode.factor.T @ (there - here) / np.linalg.norm(z))
    assert 0.5 < np.std(seen, axis=0).max() / np.mean(stated) < 1.5
    few = sample_blocks(rng, model, mode.theta, series, whole, 3000)
    assert not check_block_sample(rng, mode, few, series)[0].passed


@pytest.mark.jit
@pytest.mark.parametrize("method", ["auto", "laplace"])
def test_the_posterior_of_a_long_series(method):
    """Beside that on all data: means within errors by chance, standard deviations within a tenth."""
    model, series = long_setting()
    found = infer(np.random.default_rng(1), model, series, method=method)
    exact = infer(np.random.default_rng(2), model, rh.Series(series.read(0, len(series))), method=method)
    assert found.verdict == exact.verdict == "All checks passed."
    assert "block sampling" in [c.name for c in found.checks]
    assert "block sampling" not in [c.name for c in exact.checks]
    one, other = (f.theta.reshape(-1, model.size) for f in (found, exact))
    assert np.abs((one.mean(0) - other.mean(0)) / other.std(0)).max() < 0.15
    assert np.abs(one.std(0) / other.std(0) - 1).max() < 0.12


@pytest.mark.parametrize("gap", [6, 60])
def test_forbidden_transitions_that_ask_for_logarithms_are_refused(gap):
    """A long series is not taken in logarithms; where they are not needed, forbidden transitions stay forbidden."""
    y = np.repeat([0.0, gap, 2 * gap], 300) + np.random.default_rng(0).normal(size=900)
    transition = np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0.1, 0, 0.9]])
    shell = model_of(rh.Gaussian(), 3)
    model = rh.Model(rh.Gaussian(), 3, shell.priors, fixed={"transition": transition})
    truth, series = model.parameters(transition, mean=gap * np.arange(3), variance=1), rh.Series(y)
    if gap == 6:
        found, exact = full_pass(model, model.pack(truth), series).sums, expectations(model, truth, series)
        assert found.log_likelihood == pytest.approx(exact.log_likelihood)
        assert found.pairs[0, 2] == 0
    else:
        with pytest.raises(ValueError, match="memory_limit"):
            full_pass(model, model.pack(truth), series)


def test_points_that_blocks_cannot_represent_have_no_density(monkeypatch):
    """Transitions that underflow: chains that explore through a sample of blocks must not fail there."""
    model, series, theta = setting(rh.Gaussian())
    whole = cut(series, full_pass(model, theta, series), 250)
    sample = sample_blocks(np.random.default_rng(0), model, theta, series, whole, 1000)

    def refuse(*_, **__):
        raise block_pass.LogSpaceNeededError("transitions underflow")

    monkeypatch.setattr(batched, "log_posterior", refuse)
    values, slopes = batched.BatchedLogPosterior(model, sample).values_and_slopes(theta[None])
    assert values[0] == -np.inf
    np.testing.assert_array_equal(slopes, 0.0)
    monkeypatch.setattr(batched, "MESSAGE_BYTES", 0)
    with pytest.raises(block_pass.LogSpaceNeededError):
        batched.BatchedLogPosterior(model, series).values_and_slopes(theta[None])


@pytest.mark.jit
@pytest.mark.filterwarnings("error")
def test_halos_reach_across_long_gaps():
    """Thirty observations, then 1470 missing ones, and states that last for 5000: a halo of 512 is far too short."""
    shell = model_of(rh.Gaussian(), 2)
    truth = shell.parameters([[0.9998, 0.0002], [0.0002, 0.9998]], mean=[0, 4], variance=1)
    y, _ = rh.simulate(np.random.default_rng(1), shell, truth, 240_000)
    y[np.arange(len(y)) % 1500 >= 30] = np.nan
    series = rh.Series(y, memory_limit="12MB")
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    assert is_long(model, series)
    mode, drawn = find_long_mode(np.random.default_rng(1), model, series, truth)
    assert drawn.halo > 1500
    assert drawn.seams < 1e-3
    exact = with_ordered_states(find_mode(model, series, truth))
    assert np.abs(np.linalg.solve(exact.factor, exact.theta - mode.theta)).max() < 0.05
    assert [c.passed for c in check_block_sample(np.random.default_rng(2), mode, drawn, series)[1:]] == [True, True]
    drawn.seams = 0.1
    away = mode._replace(theta=mode.theta + 0.5 * np.linalg.norm(mode.factor, axis=1))
    assert [c.passed for c in check_block_sample(np.random.default_rng(2), away, drawn, series)[1:]] == [False, False]


@pytest.mark.jit
def test_a_mode_that_is_not_to_be_trusted_comes_with_a_warning():
    model, series = long_setting(memory_limit="1MB")
    with pytest.warns(RuntimeWarning, match="Do not trust"):
        infer(np.random.default_rng(1), model, series, method="map")


def test_memory_limits():
    y = np.random.default_rng(0).normal(size=30_000)
    model = model_of(rh.Gaussian(), 2)
    assert not is_long(model, rh.Series(y))
    assert not is_long(model, rh.Series(np.zeros(9_000_000) + np.arange(9_000_000) % 2, memory_limit="2GB"))
    assert is_long(model, rh.Series(y, memory_limit="1 MB"))
    assert rh.Series(y, memory_limit="1.5GB").memory_limit == 1_500_000_000
    assert rh.Series(y, memory_limit=123).memory_limit == 123
    for wrong in ("much", "1XB", -1, 0, 1.5, None):
        with pytest.raises(ValueError, match="memory_limit is"):
            rh.Series(y, memory_limit=wrong)


# ---------------------------------------------------------------- the same in small
@pytest.fixture
def little(monkeypatch):
    """A series of 900 observations that is long beside a memory for hardly any: the model, the series, the truth."""
    for module, name, value in ((drawing, "LEAST", 400), (drawing, "SMALLEST", 16), (blocks, "SMALLEST", 16)):
        monkeypatch.setattr(module, name, value)
    shell = model_of(rh.Gaussian(), 2)
    truth = shell.parameters([[0.9, 0.1], [0.2, 0.8]], mean=[0, 8], variance=[1, 1.5])
    y, _ = rh.simulate(np.random.default_rng(0), shell, truth, 900)
    series = rh.Series(y, memory_limit="20kB")
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    assert is_long(model, series)
    return model, series, truth


@pytest.mark.filterwarnings("ignore:Do not trust these results. block sampling")
def test_the_way_of_a_long_series_in_small(little):
    """From states that are found to draws; so few blocks are said to be too few."""
    model, series, truth = little
    stages = set()
    found = infer(
        np.random.default_rng(1), model, series, method="laplace", wanted=50, on_progress=lambda s, *_: stages.add(s)
    )
    assert {"finding states", "pass 1 over all data", "pass 2 over all data"} <= stages
    checks = {c.name: c for c in found.checks}
    assert {"block sampling", "block seams", "mode", "smallest state"} <= set(checks)
    assert "blocks of the series: too few; allow more memory" in checks["block sampling"].message
    assert checks["smallest state"].value == pytest.approx(
        (series.read(0, 900) > 4).sum(), abs=3
    )  # of all, not of blocks
    exact = with_ordered_states(find_mode(model, series, truth))
    assert np.abs(np.linalg.solve(exact.factor, exact.theta - found.mode.theta)).max() < 0.5
    assert found.theta.shape == (4, 25, model.size)


@pytest.mark.jit
def test_other_modes_of_a_long_series_are_compared_on_all_of_it(little):
    """Three levels, two states: either pair may share one.  On blocks, one mode is higher than the other by chance."""
    noise = 0.5 * np.random.default_rng(0).normal(size=150)
    y = (np.concatenate([noise, -noise]) + np.array([[-9.0], [0.0], [9.0]])).ravel()
    series = rh.Series(np.random.default_rng(1).permutation(y), memory_limit="20kB")
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    mode, _ = find_long_mode(np.random.default_rng(1), model, series)
    (other,) = mode.others
    exact = with_ordered_states(find_mode(model, series))
    assert other.log_posterior == pytest.approx(
        rh.log_posterior(model, model.pack(other.parameters), series)[0], abs=1e-6
    )
    heights = [exact.log_posterior, *(c.log_posterior for c in exact.others)]
    assert sorted([mode.log_posterior, other.log_posterior]) == pytest.approx(sorted(heights), abs=0.2)


def test_halos_grow_until_messages_are_right(little, monkeypatch):
    model, series, truth = little
    theta = model.pack(truth)
    whole = full_pass(model, theta, series)._replace(settled=True, halo=2)
    short = sample_blocks(np.random.default_rng(0), model, theta, series, whole, 300)
    assert short.seams < drawing.SEAMS
    assert short.halo in (2, 8, 32)
    monkeypatch.setattr(drawing, "SEAMS", 0.0)
    monkeypatch.setattr(drawing, "LONGEST", 128)
    longest = sample_blocks(np.random.default_rng(0), model, theta, series, whole, 300)
    assert longest.halo == 128
    assert longest.seams <= short.seams


def test_blocks_of_different_lengths_are_refused():
    n = np.array([4, 6])
    with pytest.raises(ValueError, match="blocks must have the same length, except the last ones"):
        BlockSample(
            rh.Series(np.arange(10.0), n), np.array([0, 1]), np.array([1, 1]), np.array([True, False]), np.ones(2)
        )
