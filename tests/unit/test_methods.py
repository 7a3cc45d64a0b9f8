"""Every method and every turn of the decision rule, on a series so short that nothing needs to be compiled."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import gammaln
from small_models import model_of

import rarehmm as rh
from rarehmm import samplers
from rarehmm.common.checks import InterruptedWarning
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.sampler import DivergedError, Divergence
from rarehmm.samplers.baoab import Baoab
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.samplers.leimkuhler_matthews import LeimkuhlerMatthews
from rarehmm.samplers.sgld import Sgld
from rarehmm.sampling import gibbs as gibbs_module
from rarehmm.sampling import hmc as hmc_module
from rarehmm.sampling import methods, paper_sampler
from rarehmm.sampling import rule as inference
from rarehmm.sampling.diagnostics import Check, check_weights, verdict
from rarehmm.sampling.importance import Roots, Weighted, adaptive_importance
from rarehmm.sampling.methods import Job, by_gibbs, by_hmc, by_laplace
from rarehmm.sampling.paper_sampler import PaperSampler, by_paper, matched_labels
from rarehmm.sampling.proposals import effective, fitted, representative
from rarehmm.sampling.rule import infer
from rarehmm.sampling.variational import gaussian_approximation
from rarehmm.search.mode import find_mode
from rarehmm.windows.windows import suggested_buffer

T = 24
CHECKS = ["smallest state", "Stein discrepancy", "spread", "second modes"]  # of every method that samples
WEIGHTS = ["Pareto k", "effective sample size", "largest weight", "last proposal"]
BAD = Check("made up", 0.0, False, "for this test")


@pytest.fixture(scope="module")
def two():
    """Two states far apart in 24 observations: model, series, where to start."""
    rng = np.random.default_rng(0)
    model = model_of(rh.Gaussian(), 2)
    start = model.parameters([[0.9, 0.1], [0.1, 0.9]], mean=[0, 8], variance=1)
    return model, rh.Series(np.r_[rng.normal(size=14), rng.normal(8, 1, 10)]), start


@pytest.fixture(scope="module")
def mode(two):
    return find_mode(*two)


def laplace_draws(rng, mode, series, steps, *, on_progress=None, **_):
    """What Hamiltonian Monte Carlo would draw, were the posterior Gaussian."""
    on_progress(steps)
    return mode.theta + rng.standard_normal((methods.LANES, steps, len(mode.theta))) @ mode.factor.T


def laplace_chains(monkeypatch):
    """Chains draw from the Laplace approximation; the samplers and pools that they were given."""
    seen = []

    def run(rng, sampler, model, pool, here, steps, *, mode, thin=1, **_):
        seen.append((sampler, pool))
        return mode.theta + rng.standard_normal((len(here), steps // thin, model.size)) @ mode.factor.T

    monkeypatch.setattr(methods, "run", run)
    return seen


def names(found):
    return [c.name for c in found.checks]


def is_near(found, mode, most=1.5):
    """Draws are finite, of the right shape, and their means within ``most`` standard deviations of the mode."""
    assert found.theta.ndim == 3
    assert found.theta.shape[-1] == mode.model.size
    assert np.isfinite(found.theta).all()
    z = np.linalg.solve(mode.factor, (found.theta.mean((0, 1)) - mode.theta)[:, None])
    assert np.abs(z).max() < most


# ---------------------------------------------------------------- methods by their names
@pytest.mark.parametrize(
    ("method", "own", "message"),
    [
        ("gibbs", ["effective sample size", "R-hat"], "Gibbs sampling was requested"),
        (
            "importance",
            ["Pareto k", "effective sample size", "largest weight", "last proposal"],
            "importance sampl",
        ),
        ("laplace", ["nearly Gaussian", "effective sample size"], "the Laplace approximation was requested"),
        (
            "chain",
            ["nearly Gaussian", "buffer bias", "gradient noise", "effective sample size", "R-hat"],
            "chains on windows",
        ),
        (
            "langevin",
            ["effective sample size", "R-hat"],
            "Langevin dynamics with a Metropolis correction was requested",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Do not trust")
def test_a_method_that_was_asked_for(two, mode, method, own, message):
    model, series, start = two
    given = set()
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=20, method=method,
                  on_progress=lambda stage, *_: given.add(stage))  # fmt: skip
    assert found.method == method
    assert message in found.why[0]
    assert names(found) == own + CHECKS
    assert "checks" in given
    is_near(found, mode)
    assert (found.weighted is not None) == (method == "importance")
    text = found.describe().splitlines()
    assert text[0].startswith(f"{method}: ")
    assert text[-1] == found.verdict == verdict(found.checks)
    assert len(text) == 2 + len(found.checks)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:Do not trust")
def test_variational_inference_in_a_few_steps(two, mode, monkeypatch):
    def few(rng, model, pool, start, steps, **more):
        assert steps == 20_000
        return gaussian_approximation(rng, model, pool, start, 300, **more)

    monkeypatch.setattr(methods, "gaussian_approximation", few)
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=100, method="vi")
    assert names(found) == ["buffer bias", "gradient noise", "nearly Gaussian", "effective sample size", *CHECKS]
    assert found.theta.shape == (4, 25, model.size)
    is_near(found, mode, 2.0)
    ratio = found.theta.std((0, 1)) / np.linalg.norm(mode.factor, axis=1)
    assert 0.3 < ratio.min() < ratio.max() < 3


@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:Do not trust")
@pytest.mark.parametrize("method", ["tass", "sgld"])
def test_the_paper_s_samplers_go_on_until_there_is_enough(two, method, monkeypatch):
    monkeypatch.setattr(paper_sampler, "STEPS", 400)
    monkeypatch.setattr(paper_sampler, "THIN", 1)
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=100, method=method)
    assert names(found) == ["step size", "effective sample size", "R-hat", *CHECKS]
    assert found.checks[0].value == pytest.approx(1.0)
    assert found.theta.shape[::2] == (4, model.size)
    assert 8 < found.theta.shape[1] <= 400  # the first round has 8
    assert np.isfinite(found.theta).all()


def test_the_paper_s_sampler_halves_its_step_where_it_diverges(two, mode, monkeypatch):
    model, series, _ = two
    sizes = []

    def diverge(rng, sampler, *_, **__):
        sizes.append(sampler.step_size)
        raise DivergedError([Divergence("mean[0]", 1, 0)], np.zeros((1, 1, model.size)))

    monkeypatch.setattr(paper_sampler, "run", diverge)
    with pytest.raises(DivergedError, match=r"mean\[0\]"):
        by_paper(Job(np.random.default_rng(0), mode, series), PaperSampler(design=uniform))
    np.testing.assert_allclose(np.array(sizes) * T, 2.0 * 0.5 ** np.arange(len(sizes)))
    assert sizes[-1] < 1e-6 / T <= sizes[-2]


def test_the_paper_s_sampler_takes_no_known_values(two):
    model, series, start = two
    known = rh.Model(rh.Gaussian(), 2, model.priors, fixed={"mean": [0, None]})
    with pytest.raises(ValueError, match="cannot keep values fixed"):
        infer(np.random.default_rng(1), known, series, start=start, method="tass")


def test_the_mode_alone_and_everything_known(two, mode):
    model, series, start = two
    found = infer(np.random.default_rng(0), model, series, start=start, method="map")
    np.testing.assert_allclose(found.theta, mode.theta[None, None], atol=1e-6)
    assert names(found) == ["smallest state"]
    fixed = {"mean": [0, 8], "variance": [1, 1], "transition": [[0.9, 0.1], [0.1, 0.9]]}
    known = infer(np.random.default_rng(0), rh.Model(rh.Gaussian(), 2, model.priors, fixed=fixed), series)
    assert known.theta.shape == (1, 1, 0)
    assert known.why == ["all parameters are fixed"]
    expected = rh.log_likelihood(model, start, series) + known.mode.model.log_prior(np.zeros(0))
    assert known.mode.log_posterior == pytest.approx(expected)


def test_an_empty_state_comes_with_a_warning(two):
    model, series, _ = two
    fixed = {"mean": [4, 500], "variance": [20, 1], "transition": [[0.9, 0.1], [0.1, 0.9]]}
    with pytest.warns(RuntimeWarning, match="Do not trust these results: smallest state .*: use fewer states"):
        infer(np.random.default_rng(0), rh.Model(rh.Gaussian(), 2, model.priors, fixed=fixed), series)


def test_a_gaussian_without_a_density_is_worth_nothing(two, mode):
    _, series, _ = two
    far = mode._replace(theta=mode.theta + 1e6, factor=1e-9 * mode.factor)
    draws, (near, size), effective = by_laplace(Job(np.random.default_rng(0), far, series, 10.0))
    assert draws.shape == (4, 25, mode.model.size)
    assert (near.value, near.passed, size.value, effective) == (0.0, False, 100.0, 100.0)


@pytest.mark.filterwarnings("ignore:Do not trust")
@pytest.mark.parametrize("method", [*inference.INTEGRATORS, Sgld(0.2)], ids=str)
def test_every_sampler_of_the_folder_is_a_method(two, mode, method, monkeypatch):
    """By the name of its file, or as an instance: chains take its steps, in whitened coordinates."""
    seen = laplace_chains(monkeypatch)
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=20, method=method)
    kind = samplers.sampler_class(method) if isinstance(method, str) else type(method)
    assert {type(sampler) for sampler, _ in seen} == {kind}
    assert found.method == (method if isinstance(method, str) else "chain")
    assert found.why[-1] == f"steps of {kind.__name__}"
    assert names(found) == [
        "nearly Gaussian",
        "buffer bias",
        "gradient noise",
        "effective sample size",
        "R-hat",
        *CHECKS,
    ]
    is_near(found, mode, 2.0)


def test_a_sampler_without_whitened_settings_is_no_method(monkeypatch):
    monkeypatch.setattr(samplers, "sampler_class", lambda _: ExpandedMeanSgld)
    with pytest.raises(ValueError, match="method is 'mine', but ExpandedMeanSgld has no settings for whitened coord"):
        inference.whitened_sampler("mine", 3)


@pytest.mark.filterwarnings("ignore:Do not trust")
def test_the_rule_takes_a_sampler_and_a_design(monkeypatch):
    seen, model = laplace_chains(monkeypatch), model_of(rh.Gaussian(), 1)
    series = rh.Series(np.random.default_rng(0).normal(size=60))
    start = model.parameters([[1.0]], mean=0, variance=1)
    for more in ({}, {"sampler": LeimkuhlerMatthews(), "design": uniform}):
        found = infer(np.random.default_rng(1), model, series, start=start, wanted=20, **more)
        assert found.method == "chain"
    (default, pilots), *_, (other, even) = seen
    assert (default, other) == (Baoab(), LeimkuhlerMatthews())
    np.testing.assert_allclose(even.probabilities, 1 / 12)
    assert pilots.probabilities.max() > 1.1 / 12


# ---------------------------------------------------------------- settings of the paper's sampler
@pytest.mark.filterwarnings("ignore:Do not trust")
def test_settings_of_the_paper_s_sampler(two, monkeypatch):
    """ "tass" and "sgld" are its settings by name; labels and buffer change the windows."""
    monkeypatch.setattr(paper_sampler, "STEPS", 200)
    monkeypatch.setattr(paper_sampler, "THIN", 1)
    pools, real = [], paper_sampler.Pool

    def watched(model, series, windows, design, *more, **settings):
        pools.append((windows.buffer, design.probabilities))
        return real(model, series, windows, design, *more, **settings)

    monkeypatch.setattr(paper_sampler, "Pool", watched)
    model, series, start = two
    ways = ["tass", PaperSampler(), "sgld", PaperSampler(design=uniform), "expanded_mean",
            PaperSampler(labels="kmeans"), PaperSampler(labels="segmental", buffer="suggested")]  # fmt: skip
    found = [infer(np.random.default_rng(1), model, series, start=start, wanted=5, method=way) for way in ways]
    for same in ((0, 1, 4), (2, 3)):
        for other in same[1:]:
            np.testing.assert_array_equal(found[same[0]].theta, found[other].theta)
    assert [f.method for f in found[:3]] == ["tass", "paper", "sgld"]
    assert found[1].why == ["the paper's sampler was requested"]
    buffers, designs = zip(*pools, strict=True)
    parameters = found[0].mode.model.unpack(found[0].mode.theta)
    assert buffers == (5,) * 6 + (suggested_buffer(parameters.transition),)
    assert buffers[-1] > 5
    inside = np.bincount(np.arange(T) // 5, weights=np.arange(T) >= 14)  # of the second state, as is plain to see
    expected = 0.9 * inside / inside.sum() + 0.1 / 5
    for hard in designs[5:]:
        np.testing.assert_allclose(hard[1], expected)
    np.testing.assert_allclose(designs[0][1], expected, atol=0.01)


def test_bad_settings_of_the_paper_s_sampler_are_refused(two):
    model, series, _ = two
    for bad, message in (
        (PaperSampler(labels="em"), "labels is 'em'; it must be one of smoothing, kmeans, segmental"),
        (PaperSampler(buffer="long"), "buffer is 'long'; it must be a whole number or 'suggested'"),
    ):
        with pytest.raises(ValueError, match=message):
            infer(np.random.default_rng(0), model, series, method=bad)


def test_labels_are_named_like_the_states():
    labels = np.array([0, 0, 0, 1, 1, 2])
    sure = np.eye(3)[[2, 2, 2, 0, 0, 1]]
    np.testing.assert_array_equal(matched_labels(labels, sure), [2, 2, 2, 0, 0, 1])
    sure[1] = [1, 0, 0]  # one of three disagrees
    np.testing.assert_array_equal(matched_labels(labels, sure), [2, 2, 2, 0, 0, 1])


# ---------------------------------------------------------------- the turns of the rule
@pytest.mark.jit
def test_nearly_gaussian_posteriors_are_left_to_chains():
    series = rh.Series(np.random.default_rng(0).normal(size=60))
    model = model_of(rh.Gaussian(), 1)
    start = model.parameters([[1.0]], mean=0, variance=1)
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=20)
    assert found.method == "chain"
    assert found.why[0].endswith("of the points of the Laplace approximation are effective: chains on windows")
    assert names(found)[:3] == ["nearly Gaussian", "buffer bias", "gradient noise"]
    is_near(found, find_mode(model, series, start), 1.0)


@pytest.mark.filterwarnings("ignore:Do not trust")  # the draws are those of a Gaussian, and it shows
@pytest.mark.parametrize("what", ["buffer", "noise"])
def test_what_windows_cannot_do_is_left_to_all_data(two, mode, what, monkeypatch):
    monkeypatch.setattr(inference, "NEARLY_GAUSSIAN", 0.1)
    monkeypatch.setattr(inference, "FEW", 1.0)
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    real = inference.shortest_buffer
    if what == "buffer":
        monkeypatch.setattr(inference, "shortest_buffer", lambda job: (*real(job)[:2], 0.7))
    else:
        monkeypatch.setattr(inference, "chain_pool", lambda *_: (None, BAD._replace(value=0.33)))
    message = {
        "buffer": "no buffer up to 20 passes its test (bias 0.7)",
        "noise": "gradients from windows are too noisy (0.33 excess variance)",
    }
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=50)
    assert found.method == "importance"
    assert found.why[1:] == [message[what], "importance sampling around the mode"]  # nothing to explore
    assert names(found) == ["nearly Gaussian", *WEIGHTS, *CHECKS]
    is_near(found, mode)


@pytest.mark.filterwarnings("ignore:Do not trust")
def test_where_weights_around_the_mode_fail_chains_explore(two, monkeypatch):
    real, calls = inference.check_weights, []

    def fails_first(weighted, wanted):
        calls.append(wanted)
        return [BAD] if len(calls) == 1 else real(weighted, wanted)

    monkeypatch.setattr(inference, "NEARLY_GAUSSIAN", 0.1)
    monkeypatch.setattr(inference, "FEW", 1.0)
    monkeypatch.setattr(inference, "check_weights", fails_first)
    monkeypatch.setattr(inference, "chain_pool", lambda *_: (None, BAD))
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=50)
    assert found.why[2:] == [
        "importance sampling around the mode fails its checks",
        "importance sampling from what chains explore",
    ]


@pytest.mark.filterwarnings("ignore:Do not trust")
def test_chains_that_diverge_are_noted_and_replaced(two, mode, monkeypatch):
    def diverge(*_, **__):
        raise DivergedError([Divergence("mean[0]", 1, 0)], np.zeros((1, 1, mode.model.size)))

    monkeypatch.setattr(inference, "NEARLY_GAUSSIAN", 0.1)
    monkeypatch.setattr(inference, "FEW", 1.0)
    monkeypatch.setattr(inference, "chain_pool", lambda *_: (None, BAD._replace(passed=True)))
    monkeypatch.setattr(inference, "by_chain", diverge)
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=50)
    assert found.method == "importance"
    assert found.why[1].startswith("chains on windows diverge (mean[0] diverged at draw 1 of chain 0")
    with pytest.raises(DivergedError):  # those who asked for chains are told
        infer(np.random.default_rng(1), model, series, start=start, wanted=50, method="chain")


def test_many_parameters_leave_fewer_points_effective():
    def least(d):
        return inference.least_share(SimpleNamespace(mode=SimpleNamespace(model=SimpleNamespace(size=d))))

    assert [least(d) for d in (2, 12, 1000)] == [0.8, 0.8, inference.ENOUGH]
    assert least(36) == pytest.approx(0.8**3)


@pytest.mark.filterwarnings("ignore:Do not trust")
def test_states_with_few_observations_are_explored(two, mode, monkeypatch):
    """However Gaussian the posterior looks at its mode."""
    monkeypatch.setattr(inference, "NEARLY_GAUSSIAN", 0.0)
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    model, series, start = two
    stages = []
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=200,
                  on_progress=lambda stage, *_: stages.append(stage))  # fmt: skip
    assert found.method == "importance"
    assert found.why[1:] == [
        "a state has only 10 observations, and its posterior may have long tails",
        "importance sampling from what chains explore",
    ]
    assert "exploring the posterior" in stages
    assert found.theta.shape == (1, round(2 * found.weighted.effective), model.size)
    np.testing.assert_array_equal(found.shares, 1.0)
    is_near(found, mode)


def test_importance_sampling_without_a_point_that_counts(two, mode, monkeypatch):
    """None has a density: asked for, it is refused; by the rule, chains take its place."""

    class Nowhere(Roots):
        def log_density(self, phi):
            return np.full(len(phi), -np.inf)

    model, series, start = two
    job = Job(np.random.default_rng(0), mode, series)
    none = adaptive_importance(job.rng, Nowhere(mode, series), 100, (20, 20))
    assert (len(none.theta), none.effective, none.n_drawn) == (0, 0, 40)
    assert not any(c.passed for c in check_weights(none, 100) if c.name != "largest weight")
    monkeypatch.setattr(inference, "Roots", Nowhere)
    with pytest.raises(ValueError, match=r"none of the \d+ points drawn around the mode has a positive density"):
        infer(job.rng, model, series, start=start, wanted=20, method="importance")
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    with pytest.warns(RuntimeWarning) as given:
        assert infer(job.rng, model, series, start=start, wanted=20).method == "hmc"
    assert str(given[0].message).startswith("the posterior is poorly identified")


@pytest.mark.jit
def test_importance_sampling_that_fails_is_not_believed(two, monkeypatch):
    monkeypatch.setattr(inference, "check_weights", lambda *_: [BAD])
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    model, series, start = two
    with pytest.warns(RuntimeWarning) as given:
        found = infer(np.random.default_rng(1), model, series, start=start, wanted=200)
    assert str(given[0].message).startswith("the posterior is poorly identified: Do not trust these results: made up")
    assert found.method == "hmc"
    assert found.why[-1] == "importance sampling fails its checks: Hamiltonian Monte Carlo on all data"


@pytest.mark.filterwarnings("ignore:Do not trust", "ignore:2 modes")
def test_chains_do_not_take_the_place_of_weights_that_fail_between_modes(two, mode, monkeypatch):
    """They would not find their way from one to the other: the weights are returned, flagged."""
    monkeypatch.setattr(inference, "check_weights", lambda *_: [BAD])
    monkeypatch.setattr(inference, "modes_that_matter", lambda job: ([job.mode, mode], 0.0))
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=200)
    assert found.method == "importance"
    assert not all(c.passed for c in found.checks)


@pytest.mark.filterwarnings("ignore:Do not trust", "ignore:interrupted")
def test_what_was_explored_before_an_interrupt_is_returned(two, mode, monkeypatch):
    monkeypatch.setattr(methods, "hmc", lambda *given, **more: laplace_draws(*given, **more)[:, :7])
    model, series, start = two
    found = infer(np.random.default_rng(1), model, series, start=start, wanted=200)
    assert found.theta.shape == (1, 7 * methods.LANES, model.size)
    assert found.why[-1] == "interrupted while the posterior was explored"
    assert not all(c.passed for c in found.checks)


def test_a_long_series_is_explored_through_blocks(two, mode, monkeypatch):
    seen = []

    def watched(rng, mode, series, steps, **more):
        seen.append(series)
        return laplace_draws(rng, mode, series, steps, **more)

    monkeypatch.setattr(methods, "hmc", watched)
    monkeypatch.setattr(methods, "EXPLORED", 20)
    monkeypatch.setattr(methods, "EXPLORED_SAMPLE", 10)
    monkeypatch.setattr(methods, "anchored_sample", lambda rng, mode, series, size, threads: (series, size))
    draws, complete = methods.explore(Job(np.random.default_rng(0), mode, two[1]), [mode, mode])
    assert seen == [(two[1], 10)] * 2
    assert complete
    assert draws.shape == (2 * methods.LANES * methods.EXPLORING_STEPS, mode.model.size)


def three_clusters():
    """Two states for three clusters: the one in the middle goes with either of the others."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.concatenate([0.5 * rng.normal(size=4) + c for c in (-9.0, 0.0, 9.0)]))
    series = rh.Series(np.r_[y, -y[::-1]])  # two states are reversible in time
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series))
    half = [[0.5, 0.5], [0.5, 0.5]]
    low = model.parameters(half, mean=[-9, 4.5], variance=[0.5, 20])
    high = model.parameters(half, mean=[-4.5, 9], variance=[20, 0.5])
    return model, series, low, high


def with_another_mode(monkeypatch, model, series, low, high):
    """``infer`` finds the mode near ``low``, and has seen the other one."""
    first = find_mode(model, series, low)._replace(others=[rh.climb(model, series, high, steps=50)])
    monkeypatch.setattr(
        inference, "find_mode", lambda m, s, start=None, **_: find_mode(m, s, start) if start else first
    )
    return first


@pytest.mark.filterwarnings("ignore:Do not trust")
def test_modes_of_the_same_height_are_sampled_together(monkeypatch):
    """The data are symmetric: so are the shares of the modes, and the means of all draws."""
    model, series, low, high = three_clusters()
    with_another_mode(monkeypatch, model, series, low, high)
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    with pytest.warns(RuntimeWarning, match="2 modes of the posterior, with shares"):
        found = infer(np.random.default_rng(3), model, series, wanted=400)
    assert found.method == "importance"
    assert found.why[1] == "the posterior has 2 modes that matter"
    error = 1 / np.sqrt(found.effective)
    assert abs(found.shares[0] - 0.5) < 4 * error
    (outside,) = [c for c in found.checks if c.name == "second modes"]
    assert outside.value == pytest.approx(found.shares.min() / found.shares.sum())
    assert outside.message.endswith("outside the largest of 2 modes, which cover 100.0% of the evidence")
    assert "posterior means lie between them" in outside.note
    means = found.mode.model.unpack_all(found.theta[0])[0][:, :, 0]
    assert abs((means.sum(1) > 0).mean() - 0.5) < 4 * error


@pytest.mark.filterwarnings("ignore:Do not trust")
def test_modes_without_evidence_are_left_out(two, monkeypatch):
    """And what they have is said."""
    model, series, start = two
    first = with_another_mode(monkeypatch, model, series, start, start)
    monkeypatch.setattr(inference, "laplace_evidence", lambda m: 0.0 if m.others == first.others else -8.0)
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    found = infer(np.random.default_rng(0), model, series, wanted=50)
    np.testing.assert_allclose(found.shares, 1 / (1 + np.exp(-8)))
    (modes,) = [c for c in found.checks if c.name == "second modes"]
    assert modes.passed
    monkeypatch.setattr(inference, "COVERED", 0.9999)
    with pytest.warns(RuntimeWarning, match=r"second modes 0 .* of 1 modes, which cover 100.0% of the evidence"):
        infer(np.random.default_rng(0), model, series, wanted=50)


def test_modes_that_a_sample_of_blocks_cannot_show_are_not_called_covered(two, mode, monkeypatch):
    """Blocks represent a series near one mode: where ``series`` is not the whole, others are not sampled."""
    monkeypatch.setattr(methods, "hmc", laplace_draws)
    several = mode._replace(others=[rh.climb(two[0], two[1], two[2], steps=2)])
    job = Job(np.random.default_rng(0), several, two[1], 50.0)
    assert job.series is not job.whole
    found = inference.by_weights(job, *inference.modes_that_matter(job), [])
    assert found.shares is None
    check = inference.check_modes(found)
    assert (check.passed, check.value) == (False, 1.0)
    assert check.message.endswith("not sampled")


def test_second_modes_that_are_not_sampled_are_said(two, monkeypatch):
    model, series, start = two
    with_another_mode(monkeypatch, model, series, start, start)
    with pytest.warns(RuntimeWarning, match=r"second modes 1 .*: not sampled"):
        infer(np.random.default_rng(0), model, series, wanted=20, method="gibbs")


# ---------------------------------------------------------------- rounds, interrupts and doors of the samplers
def test_a_second_round_is_as_long_as_there_is_work_for(two, mode, monkeypatch):
    """Draws that hardly move ask for more; without room for it there is one round."""
    _, series, _ = two
    rounds = []

    def slow(rng, mode, series, steps, *, leaps, on_progress, **_):
        rounds.append((steps, leaps))
        z = lfilter([1], [1, -0.9], rng.standard_normal((methods.LANES, 100 + steps, len(mode.theta))), axis=1)
        return mode.theta + np.sqrt(0.19) * z[:, 100:] @ mode.factor.T

    monkeypatch.setattr(methods, "hmc", slow)
    for work in (np.inf, 1.0):
        by_hmc(Job(np.random.default_rng(0), mode, series, 400.0), work=work)
    assert [leaps for _, leaps in rounds] == [8, 16, 8]
    assert rounds[1][0] > rounds[0][0] == 100
    assert rounds[2][0] == methods.LEAST_DRAWS  # bounded from the first round on


@pytest.mark.jit
def test_gibbs_sampling_goes_on_until_there_is_enough(two, mode):
    given = []
    job = Job(np.random.default_rng(0), mode, two[1], 120.0, on_progress=lambda *said: given.append(said))
    draws, (size, agree), effective = by_gibbs(job, chains=2)
    assert size.passed
    assert effective == size.value >= 120
    assert draws.shape[1] >= 120
    assert given[0] == ("Gibbs sampling", 0, 2 * 120)
    assert agree.name == "R-hat"


@pytest.mark.jit
def test_hamiltonian_monte_carlo_has_the_moments_of_the_posterior():
    """One rate, Gamma(2, .1) before and Gamma(2 + sum, .1 + n) after: its logarithm is nearly Gaussian."""
    y = np.array([3.0, 5, 4, 6, 2, 7])
    model, series = model_of(rh.Poisson(), 1), rh.Series(y)
    mode = find_mode(model, series, model.parameters([[1.0]], rate=4.0))
    given = []
    draws = hmc_module.hmc(np.random.default_rng(0), mode, series, 100, chains=16, leaps=2, on_progress=given.append)
    assert draws.shape == (16, 100, 1)
    assert given == list(range(220))
    rate, wanted = np.exp(draws.ravel()), (2 + y.sum()) / (0.1 + len(y))
    assert rate.mean() == pytest.approx(wanted, abs=0.15)
    assert rate.std() == pytest.approx(np.sqrt(2 + y.sum()) / (0.1 + len(y)), rel=0.15)
    one = hmc_module.metropolis_langevin(np.random.default_rng(0), mode, series, 50, chains=3)
    assert one.shape == (3, 50, 1)
    assert np.exp(one).mean() == pytest.approx(wanted, abs=0.6)


def interrupt_at(number):
    def given(step):
        if step == number:
            raise KeyboardInterrupt

    return given


def test_ctrl_c_returns_what_there_is(two, mode):
    model, series, start = two
    rng = np.random.default_rng(0)
    with pytest.warns(InterruptedWarning, match="3 of 9 draws"):
        assert gibbs_module.gibbs(rng, model, series, start, 9, on_progress=interrupt_at(3)).shape == (3, model.size)
    with pytest.warns(InterruptedWarning, match="4 of 10 draws"):
        found = hmc_module.hmc(rng, mode, series, 5, chains=2, leaps=1, on_progress=interrupt_at(122))
    assert found.shape == (2, 2, model.size)
    with pytest.raises(KeyboardInterrupt):
        gibbs_module.gibbs(rng, model, series, start, 9, on_progress=interrupt_at(0))


def test_a_mode_without_a_density_around_it_is_refused(two, mode):
    with pytest.raises(ValueError, match=r"no point near the mode has a finite posterior density.* Use proper priors"):
        hmc_module.hmc(np.random.default_rng(0), mode._replace(theta=mode.theta + 1e6), two[1], 5)


# ---------------------------------------------------------------- importance sampling
def one_rate():
    """Six counts and one rate: the mode, the series, and the evidence in closed form."""
    y, (a, b) = np.array([3.0, 5, 4, 6, 2, 7]), (2.0, 0.1)
    model, series = model_of(rh.Poisson(), 1), rh.Series(y)
    mode = find_mode(model, series, model.parameters([[1.0]], rate=4.0))
    n, s = len(y), y.sum()
    evidence = a * np.log(b) - gammaln(a) + gammaln(a + s) - (a + s) * np.log(b + n) - gammaln(y + 1).sum()
    return mode, series, evidence


def test_the_evidence_is_that_of_a_gamma_prior():
    mode, series, evidence = one_rate()
    roots = Roots(mode, series)
    found = adaptive_importance(np.random.default_rng(0), roots, 300.0, (100, 100))
    assert found.evidence == pytest.approx(evidence, abs=0.05)
    assert found.effective >= 300


def test_an_interrupted_round_is_left_out():
    mode, series, _ = one_rate()
    roots, calls = Roots(mode, series), []
    real = roots.log_density

    def density(phi):
        calls.append(len(phi))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(phi)

    roots.log_density = density
    with pytest.warns(InterruptedWarning, match="of 1000 draws are returned"):
        found = adaptive_importance(np.random.default_rng(0), roots, 1000.0, (50, 60, 70))
    assert found.interrupted
    assert found.n_drawn == 110


def test_weights_of_few_points_are_tempered():
    """One point with all the weight says nothing about the covariance: it stays near the identity."""
    x = np.random.default_rng(0).standard_normal((200, 2))
    logs = np.where(np.arange(200) == 0, 50.0, 0.0)
    rng = np.random.default_rng(1)
    few = representative(rng, x, logs)
    assert len(np.unique(few, axis=0)) > 8
    proposal = fitted(rng, few)
    assert np.abs(proposal.means[0]).max() < 1.0
    assert np.linalg.eigvalsh(proposal.factors[0] @ proposal.factors[0].T).min() > 0.2
    assert len(representative(rng, x, np.zeros(200))) >= 199
    np.testing.assert_array_equal(fitted(rng, np.empty((0, 2))).factors[0], np.eye(2))


def test_no_step_leads_to_roots_below_zero(two, mode):
    """From far above, with a metric that is far too wide."""
    roots = Roots(mode, two[1])
    there = np.where(roots.rooted, 4.0, 1.0) * roots.centre
    found = roots._climb(there, 20 * roots.factor)
    assert (found[roots.rooted] > 0).all()
    assert (found[roots.rooted] < there[roots.rooted]).any()


def test_no_points_have_no_weight():
    assert effective(np.empty(0)) == 0.0
    assert Weighted(np.zeros((2, 1)), np.zeros(2), 4, 1.0).evidence == pytest.approx(np.log(0.5))
