"""Guards against becoming slow, in ratios within one run: the machine may be anything, and busy."""

import time

import numpy as np
import pytest
from hmmlearn.hmm import GaussianHMM

import rarehmm as rh
from rarehmm.designs.uniform import uniform
from rarehmm.samplers.baoab import Baoab
from rarehmm.windows.gradients import freeze

pytestmark = pytest.mark.jit
T, ROUNDS = 200_000, 7


@pytest.fixture(scope="module")
def problem():
    model = rh.Model(rh.Gaussian(), 3, rh.paper_priors(rh.Gaussian()))
    transition = [[0.99, 0.005, 0.005], [0.005, 0.99, 0.005], [0.495, 0.495, 0.01]]
    parameters = model.parameters(transition, mean=[-20, 0, 20], variance=1)
    y, _ = rh.simulate(np.random.default_rng(0), model, parameters, T)
    return model, parameters, rh.Series(y)


def quickest(**functions):
    """Smallest seconds of each, in turn."""
    best = dict.fromkeys(functions, np.inf)
    for _ in range(ROUNDS + 1):  # the first one compiles
        for name, function in functions.items():
            began = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def test_a_gradient_is_far_quicker_than_the_probabilities_of_hmmlearn(problem):
    """Twelve times on a quiet machine (benchmarks/results/full_pass.md), and about as quick if lanes were lost."""
    model, parameters, series = problem
    theta, y = model.pack(parameters), series.read(0, T)
    peer = GaussianHMM(3, covariance_type="diag", implementation="scaling")
    peer.startprob_, peer.transmat_, peer.n_features = parameters.start, parameters.transition, 1
    peer.means_, peer.covars_ = parameters.phi[:, :1], parameters.phi[:, 1:]
    best = quickest(
        ours=lambda: rh.log_posterior(model, theta, series, threads=1), theirs=lambda: peer.score_samples(y)
    )
    assert best["theirs"] > 4 * best["ours"]


def test_a_window_in_a_chain_costs_a_few_times_its_share_of_a_pass(problem):
    """Three times, drawing, gathering, noise and control variates included; an interpreter would take a hundred."""
    _, parameters, series = problem
    mode = rh.find_mode(problem[0], series, parameters)
    model, theta, windows, steps = mode.model, mode.theta, rh.Windows(series, 2, 2), 200
    frozen = freeze(model, theta, series, windows)
    pool = rh.Pool(model, series, windows, uniform(windows), 160, frozen=frozen)
    rng = np.random.default_rng(0)
    best = quickest(
        chain=lambda: rh.run(rng, Baoab(), model, pool, theta, steps, mode=mode, threads=1),
        full=lambda: rh.log_posterior(model, theta, series, threads=1),
    )
    read = steps * pool.size * (windows.length + 2 * windows.buffer)
    assert best["chain"] / read < 10 * best["full"] / T
