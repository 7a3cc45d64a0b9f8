"""The default rule: chains where they are right, importance sampling where they would not be."""

import time

import numpy as np
import pytest
from scipy.special import logsumexp
from small_models import model_of

import rarehmm as rh
from rarehmm.engine.contracts.sampler import ExcessVariance, excess_variance
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling import methods, paper_sampler
from rarehmm.sampling import rule as inference
from rarehmm.sampling.diagnostics import (
    check_gradients,
    check_mixing,
    check_noise,
    check_weights,
    mixing,
    spread,
    stein_discrepancy,
    verdict,
    whitened,
    windows_needed,
)
from rarehmm.sampling.importance import Weighted
from rarehmm.sampling.rule import infer
from rarehmm.search.mode import find_mode, is_labelled_like_mode

STICKY = np.array([[0.98, 0.015, 0.005], [0.015, 0.98, 0.005], [0.2, 0.2, 0.6]])


def simulated(gap, T, seed=0, transition=STICKY):
    model = model_of(rh.Gaussian(), 3)
    truth = model.parameters(transition, mean=[-gap, 0, gap], variance=1)
    series = rh.Series(rh.simulate(np.random.default_rng(seed), model, truth, T)[0])
    return rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series)), series


def off(found, gold):
    """Largest difference of means and of log standard deviations of draws (n, d), in joint standard errors."""

    def moments(draws):
        batches = draws[: len(draws) // 20 * 20].reshape(20, -1, draws.shape[-1])
        centre = draws.mean(0)
        spread = np.log(((batches - centre) ** 2).mean(1)) / 2
        return centre, batches.mean(1).std(0) / np.sqrt(20), spread.mean(0), spread.std(0) / np.sqrt(20)

    a, b = moments(found), moments(gold)
    return max(np.abs((a[i] - b[i]) / np.hypot(a[i + 1], b[i + 1])).max() for i in (0, 2))


@pytest.mark.jit
def test_separated_states_are_sampled_by_chains_and_the_posterior_is_that_of_gibbs():
    model, series = simulated(8.0, 20_000)
    found = infer(np.random.default_rng(1), model, series, wanted=2000)
    assert found.method == "chain"
    assert all(c.passed for c in found.checks), found.verdict
    start = found.mode.model.unpack(found.mode.theta)
    gold = rh.gibbs(np.random.default_rng(2), found.mode.model, series, start, 3000)[100:]
    draws = found.theta.reshape(-1, found.mode.model.size)
    assert off(draws, gold) < 4.5
    assert off(found.mode.theta + 1.15 * (draws - found.mode.theta), gold) > 4.5  # 15 % too wide would show
    assert off(draws + 0.3 * gold.std(0), gold) > 4.5


@pytest.mark.jit
def test_overlapping_states_are_sampled_on_all_data():
    """By importance sampling from what chains explore, which agrees with Hamiltonian Monte Carlo."""
    model, series = simulated(2.0, 2_000)
    weighted = infer(np.random.default_rng(1), model, series, wanted=1000)
    assert weighted.method == "importance"
    assert weighted.why[-1] == "importance sampling from what chains explore"
    exact = infer(np.random.default_rng(1), model, series, wanted=1000, method="hmc")
    draws, gold = (f.theta.reshape(-1, f.mode.model.size) for f in (weighted, exact))
    shuffled = draws[np.random.default_rng(0).permutation(len(draws))]  # resampled draws come in order
    assert off(shuffled, gold) < 5


@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:2 modes of the posterior")
@pytest.mark.parametrize(
    ("T", "wanted", "sweeps"), [(4000, 1000, 8000), pytest.param(50_000, 4000, 40_000, marks=pytest.mark.nightly)]
)
def test_six_rare_observations_have_the_posterior_that_gibbs_sampling_finds(T, wanted, sweeps):
    """Chains on windows, which the curvature at the mode suggested, diverged here."""
    rng = np.random.default_rng(0)
    y, at = rng.normal(size=T), 10 * rng.choice(T // 10, 4, replace=False)[:3]
    y[np.r_[at, at + 1]] += 4
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 2, rh.Priors((rh.Normal(0, 100), rh.InverseGamma(2, 1)), rh.Dirichlet(1.0)))
    found = infer(np.random.default_rng(0), model, series, wanted=wanted)
    assert all(c.passed for c in found.checks), found.verdict
    start = found.mode.model.unpack(found.mode.theta)
    gold = rh.gibbs(np.random.default_rng(1), found.mode.model, series, start, sweeps)[200:]
    draws = np.random.default_rng(0).permutation(found.theta[0])
    assert off(draws, gold) < 4.5
    rare = 1 if start.phi[1, 0] > start.phi[0, 0] else 0
    narrow = draws.copy()
    narrow[:, rare] = narrow[:, rare].mean() + 0.7 * (narrow[:, rare] - narrow[:, rare].mean())
    assert off(narrow, gold) > 4.5  # a rare mean with .7 of its sd would show


@pytest.mark.jit
def test_methods_agree_where_all_work():
    model, series = simulated(6.0, 5_000)
    found = {
        m: infer(np.random.default_rng(1), model, series, wanted=600, method=m) for m in ("chain", "importance", "hmc")
    }
    draws = {m: f.theta.reshape(-1, f.mode.model.size) for m, f in found.items()}
    rng = np.random.default_rng(0)
    shuffled = draws["importance"][rng.permutation(len(draws["importance"]))]  # resampled draws come in order
    assert off(draws["chain"], draws["hmc"]) < 5
    assert off(draws["chain"], shuffled) < 6
    assert found["chain"].why[0].endswith("are effective: chains on windows")
    assert found["importance"].why[0] == "importance sampling was requested"
    assert found["hmc"].why == ["Hamiltonian Monte Carlo was requested"]


@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:Do not trust")
def test_two_modes_of_the_same_height_are_sampled_together():
    """Three clusters and two states: either pair may be one state; the data are symmetric."""
    y = np.concatenate([np.random.default_rng(0).normal(0, 1, 150) * 0.5 + c for c in (-9.0, 0.0, 9.0)])
    y = np.random.default_rng(1).permutation(y)
    series = rh.Series(np.concatenate([y, -y[::-1]]))  # two states are reversible in time
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    mode = find_mode(model, series)
    if not mode.others:
        pytest.fail("the second mode was not kept")
    with pytest.warns(RuntimeWarning, match="modes of the posterior"):
        found = infer(np.random.default_rng(3), model, series, wanted=500)
    means = np.sort(found.mode.model.unpack_all(found.theta[0])[0][:, :, 0], axis=1)
    assert abs((means.sum(1) > 0).mean() - 0.5) < 4 * 0.5 / np.sqrt(found.effective)


@pytest.mark.jit
def test_three_modes_are_all_sampled_with_their_shares():
    """Four levels and three states: one runner-up alone would leave a mode out."""
    rng = np.random.default_rng(1)
    series = rh.Series(rng.permutation(np.concatenate([0.5 * rng.normal(size=60) + c for c in (-9.0, -3.0, 3.0, 9.0)])))
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
    with pytest.warns(RuntimeWarning, match="3 modes of the posterior"):
        found = infer(np.random.default_rng(1), model, series, wanted=500)
    modes = [found.mode, *(find_mode(model, series, c.parameters) for c in found.mode.others)]
    logs = np.array([inference.laplace_evidence(m) for m in modes])  # nearly exact here
    np.testing.assert_allclose(found.shares, np.exp(logs - logsumexp(logs)), atol=0.06)
    (check,) = [c for c in found.checks if c.name == "second modes"]
    assert check.passed
    assert check.message.endswith("of 3 modes, which cover 100.0% of the evidence")


@pytest.mark.nightly
@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:Do not trust", "ignore:the posterior is poorly", "ignore:.* modes of the posterior")
@pytest.mark.parametrize("levels", [True, False])
def test_twelve_states_end_in_bounded_time(levels):
    """Twelve levels, or noise that has none; version 0.1 did not end within 200 s."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=30_000) + (6 * rng.integers(12, size=300).repeat(100) if levels else 0)
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 12, rh.default_priors(rh.Gaussian(), 12, series))
    began = time.perf_counter()
    found = infer(np.random.default_rng(0), model, series)
    assert time.perf_counter() - began < 180
    assert np.isfinite(found.theta).all()
    assert all(c.passed for c in found.checks) or not levels


def test_noise_of_the_gradient_inflates_the_variance_as_the_recursion_says():
    sampler, rng = Baoab(), np.random.default_rng(0)
    h, c = sampler.step_size, np.exp(-sampler.friction * sampler.step_size)
    z, p, total = np.zeros(2000), np.zeros(2000), np.zeros(2000)
    for t in range(3000):
        p = p + h * (-z + np.sqrt(2.0) * rng.standard_normal(2000))
        z = z + h / 2 * p
        p = c * p + np.sqrt(1 - c * c) * rng.standard_normal(2000)
        z = z + h / 2 * p
        total += z**2 * (t >= 200)
    variance = total / 2800
    excess = excess_variance(sampler)
    assert abs(variance.mean() - 1 - excess.at(2.0)) < 4 * variance.std() / np.sqrt(2000)
    assert abs(variance.mean() - 1 - 0.9 * excess.at(2.0)) > 4 * variance.std() / np.sqrt(2000)
    assert excess.of_step == pytest.approx(0.0, abs=1e-12)
    assert windows_needed(excess, 1e-9) == 2
    enough = windows_needed(excess, 50)
    assert excess.at(50 / enough) <= 0.1 < excess.at(50 / (enough - 1))
    coarse = ExcessVariance(0.05, 0.05)  # half of what is allowed is gone for the step
    assert windows_needed(coarse, 50) == 50
    assert windows_needed(ExcessVariance(0.2, 0.05), 50) == 1000
    assert not check_noise(ExcessVariance(0.2, 0.05), 50, 1000).passed


@pytest.mark.jit
def test_the_stein_test_tells_draws_that_are_too_wide():
    model = model_of(rh.Gaussian(), 1)
    series = rh.Series(np.random.default_rng(5).normal(size=400))
    mode = find_mode(model, series, model.parameters([[1.0]], mean=0.0, variance=1.0))
    draws = rh.gibbs(np.random.default_rng(0), mode.model, series, mode.model.unpack(mode.theta), 1000)[::5]
    found = {}
    for factor in (0.7, 1.0, 1.4):
        x = factor * whitened(mode, draws)
        g = BatchedLogPosterior(mode.model, series).values_and_slopes(mode.theta + x @ mode.factor.T)[1] @ mode.factor
        found[factor] = stein_discrepancy(np.random.default_rng(1), x, g), *spread(x, g)
    assert found[1.4][0] < 0.01 < found[1.0][0]
    for factor, (_, ratio, error) in found.items():
        assert (np.abs(ratio - factor**2) < 4 * error).all()
        assert ((np.abs(ratio - 1) < 4 * error) == (factor == 1.0)).all()


@pytest.mark.jit
@pytest.mark.parametrize(("sets", "right"), [(8, 8), pytest.param(50, 200, marks=pytest.mark.nightly)])
def test_one_parameter_with_a_wrong_width_is_noticed(sets, right):
    """At .7 and 1.4 times its standard deviation, in turn, whichever it is; and right draws are not suspected."""
    model, series = simulated(6.0, 5_000)
    mode = find_mode(model, series)
    chain = rh.gibbs(np.random.default_rng(0), mode.model, series, mode.model.unpack(mode.theta), 200 + 600 * right)
    caught, alarms = {0.7: [], 1.4: []}, []
    for i, draws in enumerate(chain[200:].reshape(right, 600, -1)):
        for factor, notes in [*(caught.items() if i < sets else []), (1.0, alarms)]:
            theta, which = draws.copy(), i % model.size
            theta[:, which] = theta[:, which].mean() + factor * (theta[:, which] - theta[:, which].mean())
            checks = check_gradients(np.random.default_rng(i), mode, series, theta[None], 600.0)
            notes.append(not all(c.passed for c in checks))
    assert np.mean(caught[0.7]) >= 0.8
    assert np.mean(caught[1.4]) >= 0.8
    assert sum(alarms) <= 0.05 * right


@pytest.mark.jit
def test_the_spread_flags_what_the_kernel_does_not_see():
    """Forty times too wide, few draws, many dimensions: the kernel looks at pairs that are all far apart."""
    model, series = simulated(4.0, 3000)
    mode = find_mode(model, series)
    draws = mode.theta + 4 * np.random.default_rng(0).standard_normal((1, 200, mode.model.size)) @ mode.factor.T
    good = mode.theta + np.random.default_rng(0).standard_normal((1, 200, mode.model.size)) @ mode.factor.T
    (_, wide), (_, right) = (check_gradients(np.random.default_rng(0), mode, series, d, 200.0) for d in (draws, good))
    assert not wide.passed
    assert "intervals are too wide" in wide.message
    assert right.passed


def test_a_bad_verdict_is_said():
    heavy = Weighted(np.zeros((300, 1)), np.array([9.0, *np.zeros(299)]), 300, 0.05)
    checks = check_weights(heavy, 100.0)
    assert not any(c.passed for c in checks)
    assert verdict(checks).startswith("Do not trust these results: Pareto k")
    assert "effective sample size" in verdict(checks)
    assert verdict([]) == "All checks passed."


def test_mixing_is_per_component():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((4, 500, 2))
    draws[:, :, 1] += np.arange(4)[:, None]  # chains apart
    found = mixing(draws)
    assert found.bulk[0] > 1500 > 50 > found.bulk[1]
    assert found.r_hat[0] < 1.01 < 1.3 < found.r_hat[1]


def test_bad_settings_are_refused():
    model, series = simulated(8.0, 300)
    with pytest.raises(ValueError, match="method is 'nuts'"):
        infer(np.random.default_rng(0), model, series, method="nuts")
    for wanted in (0, 0.5, np.inf, np.nan):
        with pytest.raises(ValueError, match="wanted is"):
            infer(np.random.default_rng(0), model, series, wanted=wanted)


# ---------------------------------------------------------------- awkward and legal
@pytest.mark.jit
def test_a_start_that_is_given_tells_states_apart():
    """The first state of each sequence has the larger mean: k-means has it the other way round."""
    model = model_of(rh.Gaussian(), 2, start=np.array([1.0, 0.0]))
    truth = model.parameters([[0.9, 0.1], [0.05, 0.95]], mean=[3, 0], variance=1)
    rng = np.random.default_rng(0)
    series = rh.Series([rh.simulate(rng, model, truth, 30)[0] for _ in range(60)])
    top = find_mode(model, series, truth)
    found = infer(np.random.default_rng(1), model, series, wanted=200)
    assert found.mode.log_posterior == pytest.approx(top.log_posterior, abs=0.1)
    assert (found.mode.theta[:2] @ [1, -1]) > 2


@pytest.mark.nightly
@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:Do not trust")
def test_draws_are_not_renamed_where_names_matter():
    model = model_of(rh.Gaussian(), 2, start=np.array([1.0, 0.0]))
    truth = model.parameters([[0.5, 0.5], [0.5, 0.5]], mean=[-0.2, 0], variance=1)
    rng = np.random.default_rng(0)
    series = rh.Series([rh.simulate(rng, model, truth, 6)[0] for _ in range(10)])
    found = infer(np.random.default_rng(1), model, series, wanted=200, method="hmc")
    larger = (found.theta[..., 0] < found.theta[..., 1]).mean()
    assert 0.02 < larger < 0.98


@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:Do not trust")
def test_several_modes_name_their_states_alike():
    y = np.concatenate([np.random.default_rng(0).normal(0, 1, 150) * 0.5 + c for c in (-9.0, 0.0, 9.0)])
    series = rh.Series(np.random.default_rng(1).permutation(np.concatenate([y, -y])))
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    with pytest.warns(RuntimeWarning, match="modes of the posterior"):
        found = infer(np.random.default_rng(3), model, series, wanted=200)
    assert is_labelled_like_mode(found.mode, found.theta[0]).all()


@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:Do not trust")
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_short_sequences(length):
    model = model_of(rh.Gaussian(), 2)
    rng = np.random.default_rng(0)
    series = rh.Series([rng.normal(8 * rng.integers(2), 1, length) for _ in range(300)])
    found = infer(np.random.default_rng(1), model, series, wanted=50)
    assert np.isfinite(found.theta).all()


@pytest.mark.jit
def test_an_interrupted_chain_is_not_called_good(monkeypatch):
    model, series = simulated(8.0, 20_000)
    mode = find_mode(model, series)
    job = methods.Job(np.random.default_rng(0), mode, series)
    windows, frozen, _ = methods.shortest_buffer(job)

    monkeypatch.setattr(methods, "run", lambda *args, **more: rh.run(*args, **more)[:, :50])  # as Ctrl-C would
    pool, _ = methods.chain_pool(job, windows, frozen)
    draws, checks, _ = methods.by_chain(job._replace(rng=np.random.default_rng(0)), pool)
    assert draws.shape[1] == 50
    assert not all(c.passed for c in checks)


def test_chains_that_are_stuck_apart_do_not_agree():
    draws = np.random.default_rng(0).standard_normal((16, 100, 1))
    assert check_mixing(mixing(draws), ["x"], 10.0)[1].passed
    draws[8:] += 1.0
    assert not check_mixing(mixing(draws), ["x"], 10.0)[1].passed


@pytest.mark.jit
def test_a_bad_verdict_comes_with_a_warning(monkeypatch):
    model, series = simulated(8.0, 3_000)
    mode = find_mode(model, series)
    other = mode._replace(others=[rh.climb(model, series, mode.model.unpack(mode.theta), steps=2)])
    monkeypatch.setattr(inference, "find_mode", lambda *_, **__: other)
    with pytest.warns(RuntimeWarning, match=r"Do not trust these results: .*second modes"):
        infer(np.random.default_rng(0), model, series, wanted=100, method="chain")


@pytest.mark.jit
def test_the_laplace_approximation_and_the_mode_when_asked():
    model, series = simulated(8.0, 20_000)
    found = infer(np.random.default_rng(1), model, series, method="laplace")
    assert all(c.passed for c in found.checks), found.verdict
    spread = np.linalg.norm(found.mode.factor, axis=1)
    np.testing.assert_allclose(found.theta.reshape(-1, model.size).std(0), spread, rtol=0.12)
    only = infer(np.random.default_rng(1), model, series, method="map")
    np.testing.assert_array_equal(only.theta[0, 0], only.mode.theta)
    assert only.verdict == "All checks passed."
    short, few = simulated(2.0, 300)
    with pytest.warns(RuntimeWarning, match="nearly Gaussian"):
        infer(np.random.default_rng(1), short, few, method="laplace", start=None)


@pytest.mark.jit
@pytest.mark.nightly  # tests/statistical/test_variational.py has the moments
def test_variational_inference_when_asked_is_that_of_the_exact_posterior():
    model, series = simulated(8.0, 20_000)
    found = infer(np.random.default_rng(1), model, series, method="vi")
    assert all(c.passed for c in found.checks), found.verdict
    exact = infer(np.random.default_rng(1), model, series, method="gibbs")
    flat, gold = (f.theta.reshape(-1, model.size) for f in (found, exact))
    np.testing.assert_allclose(flat.std(0) / gold.std(0), 1.0, atol=0.15)
    np.testing.assert_array_less(np.abs(flat.mean(0) - gold.mean(0)) / gold.std(0), 0.25)


@pytest.mark.jit
@pytest.mark.parametrize("method", ["tass", "sgld"])
def test_the_paper_s_samplers_are_there_and_flagged(method, monkeypatch):
    """Targeted: near the truth, with intervals too wide, which is said.  By chance: it does not come to rest."""
    monkeypatch.setattr(paper_sampler, "STEPS", 20_000)
    model, series = simulated(8.0, 20_000)
    message = {"tass": r"spread .*intervals are too wide", "sgld": "chains have not mixed"}[method]
    with pytest.warns(RuntimeWarning, match=message):
        found = infer(np.random.default_rng(1), model, series, method=method, wanted=100)
    assert found.method == method
    spread = np.linalg.norm(found.mode.factor, axis=1)
    wider = found.theta.reshape(-1, model.size).std(0) / spread
    assert wider.max() > 1.5
    if method == "tass":
        middle = np.median(found.theta.reshape(-1, model.size), axis=0)
        assert np.abs(middle - found.mode.theta)[:3].max() < 0.5  # the means, 8 apart


@pytest.mark.jit
@pytest.mark.parametrize("T", [3_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_known_values_leave_the_posterior_of_the_rest(T):
    """Chains, importance sampling and Gibbs sampling agree where a mean is known and transitions are forbidden."""
    shell = model_of(rh.Gaussian(), 3)
    P = [[0.97, 0.03, 0], [0, 0.8, 0.2], [0.4, 0, 0.6]]
    truth = shell.parameters(P, mean=[0, 4, 8], variance=[1, 1, 2])
    series = rh.Series(rh.simulate(np.random.default_rng(3), shell, truth, T)[0])
    ring = [[None, None, 0], [0, None, None], [None, 0, None]]
    fixed = {"mean": [0, None, None], "variance": [None, None, 2.0], "transition": ring}
    model = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series), fixed=fixed)
    gold = infer(np.random.default_rng(0), model, series, method="gibbs", wanted=2000)
    exact = gold.theta.reshape(-1, model.size)
    assert model.size == 7
    for method in ("chain", "importance"):
        found = infer(np.random.default_rng(1), model, series, method=method)
        assert all(c.passed for c in found.checks), found.verdict
        theta = found.theta.reshape(-1, model.size)
        np.testing.assert_array_less(np.abs(theta.mean(0) - exact.mean(0)) / exact.std(0), 4 / np.sqrt(700))
        np.testing.assert_allclose(theta.std(0) / exact.std(0), 1, atol=0.12)
    with pytest.raises(ValueError, match="cannot keep values fixed"):
        infer(np.random.default_rng(1), model, series, method="tass", start=truth)


@pytest.fixture(scope="module")
def exact():
    """A short series, and its posterior by Hamiltonian Monte Carlo."""
    model, series = simulated(8.0, 2000)
    return model, series, infer(np.random.default_rng(2), model, series, method="hmc", wanted=2000)


@pytest.mark.jit
@pytest.mark.parametrize("method", ["gibbs", pytest.param("langevin", marks=pytest.mark.nightly)])
def test_exact_methods_when_asked_agree_with_hmc(method, exact):
    model, series, gold = exact
    found = infer(np.random.default_rng(1), model, series, method=method, wanted=500)
    assert found.method == method
    assert all(c.passed for c in found.checks), found.verdict
    assert off(found.theta.reshape(-1, model.size), gold.theta.reshape(-1, model.size)) < 4.5
