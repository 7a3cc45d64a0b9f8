"""Each sampler on a Gaussian target keeps the exact law of its discretisation; and a step that is 2 % off does not.

The law is worked out by hand: for a linear step x' = A x + B xi it solves V = A V A' + B B'; for a metric that follows
the position it is the fixed law of the step's transition density on a grid.  One long run has many independent
coordinates; their variances give the standard error.
"""

import math
from typing import NamedTuple

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.linalg import expm, solve_discrete_lyapunov
from scipy.stats import norm

from rarehmm.engine.contracts.sampler import excess_variance, linear_step, memory_rows, noise_rows, step
from rarehmm.engine.dispatch import kernel
from rarehmm.samplers.baoab import Baoab
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.samplers.leimkuhler_matthews import LeimkuhlerMatthews
from rarehmm.samplers.preconditioned import PreconditionedSgld
from rarehmm.samplers.sghmc import Sghmc
from rarehmm.samplers.sgld import Sgld
from rarehmm.samplers.underdamped import Underdamped

CHAINS, BURN = 400, 500


@kernel
def run(sampler, theta, memory, power, target, noise, drift, total):
    """Steps on N(0, 1) (target 0) or Gamma(target, 1); adds theta and theta^2 to ``total`` (2, d)."""
    gradient = np.empty(len(theta))
    for t in range(len(noise)):
        for i in range(len(theta)):
            gradient[i] = drift * (-theta[i] if target == 0.0 else (target - 1.0) / theta[i] - 1.0)
        step(sampler, theta, gradient, noise[t], memory, power)
        for i in range(len(theta)):
            total[0, i] += theta[i]
            total[1, i] += theta[i] * theta[i]


def moments(sampler, power=0.0, target=0.0, loud=1.0, drift=1.0, steps=4000):
    """Means over time of theta and theta^2 for each of the independent coordinates, (2, CHAINS)."""
    rng = np.random.default_rng(0)
    theta, memory = np.full(CHAINS, max(target, 0.5)), np.zeros((memory_rows(sampler), CHAINS))
    total = np.zeros((2, CHAINS))
    for part in (BURN, *[1000] * (steps // 1000)):
        noise = loud * rng.standard_normal((part, noise_rows(sampler), CHAINS))
        kept = np.zeros((2, CHAINS))
        run(sampler, theta, memory, np.full(CHAINS, power), target, noise, drift, kept)
        total += kept if part != BURN else 0.0
    return total / steps


def standard_errors_off(found, expected):
    return (found.mean() - expected) / (found.std() / math.sqrt(len(found)))


class Case(NamedTuple):
    sampler: object
    A: np.ndarray
    B: np.ndarray

    @property
    def variance(self):
        return solve_discrete_lyapunov(self.A, self.B @ self.B.T)[0, 0]


def sgld(h):
    return Case(Sgld(h), np.array([[1 - h / 2]]), np.array([[math.sqrt(h)]]))


def sghmc(h, a):
    """(theta, v)."""
    kick, keep = h / 2, 1 - a
    return Case(Sghmc(h, a), np.array([[1 - kick, keep], [-kick, keep]]), math.sqrt(a * h) * np.ones((2, 1)))


def underdamped(h, c):
    """From the matrix exponential of the linear equation with the gradient frozen at the start of the step."""
    free = expm(h * np.array([[0, 1, 0], [0, -c, 1], [0, 0, 0]]))  # (theta, v, frozen gradient)
    A = free[:2, :2] + np.outer(free[:2, 2], [-1, 0])
    s = np.linspace(0, h, 2001)
    flow = np.array([expm(u * np.array([[0, 1], [0, -c]])) @ [0, math.sqrt(2 * c)] for u in s])
    noise = trapezoid(flow[:, :, None] * flow[:, None, :], s, axis=0)
    return Case(Underdamped(h, c), A, np.linalg.cholesky(noise))


def baoab(h, friction):
    """(theta, p): a kick, half a drift, friction and noise, half a drift."""
    c = math.exp(-friction * h)
    kick, drift = np.array([[1, 0], [-h, 1]]), np.array([[1, h / 2], [0, 1]])
    A = drift @ np.diag([1, c]) @ drift @ kick
    return Case(Baoab(h, friction), A, drift @ np.array([[0], [math.sqrt(1 - c * c)]]))


def leimkuhler_matthews(h):
    """(theta, last noise)."""
    half = math.sqrt(h) / 2
    return Case(LeimkuhlerMatthews(h), np.array([[1 - h / 2, half], [0, 0]]), np.array([[half], [1]]))


CASES = {
    "sgld": sgld(0.5),
    "sghmc": sghmc(0.2, 0.3),
    "underdamped": underdamped(0.5, 2.0),
    "baoab": baoab(0.7, 1.5),
    "leimkuhler_matthews": leimkuhler_matthews(0.6),
}


@pytest.mark.jit
@pytest.mark.parametrize("name", CASES)
def test_the_exact_stationary_variance_is_kept(name):
    case = CASES[name]
    assert abs(standard_errors_off(moments(case.sampler)[1], case.variance)) < 4


@pytest.mark.jit
@pytest.mark.parametrize("name", CASES)
def test_that_test_would_notice_two_percent_too_much_noise_or_drift(name):
    case = CASES[name]
    assert abs(standard_errors_off(moments(case.sampler, loud=1.02)[1], case.variance)) > 4
    assert abs(standard_errors_off(moments(case.sampler, drift=1.02)[1], case.variance)) > 4


NOISE_ENTERS = {  # what gradient noise of one unit adds to the state of the cases above
    "sgld": [0.25],
    "sghmc": [0.1, 0.1],
    "underdamped": expm(0.5 * np.array([[0, 1, 0], [0, -2, 1], [0, 0, 0]]))[:2, 2],
    "baoab": [0.7 * 0.35 * (1 + math.exp(-1.05)), 0.7 * math.exp(-1.05)],
    "leimkuhler_matthews": [0.3, 0],
}


@pytest.mark.parametrize("name", CASES)
def test_the_excess_variance_is_that_of_the_recursion_by_hand(name):
    case, kick = CASES[name], np.array(NOISE_ENTERS[name])
    found = excess_variance(case.sampler)
    assert found.of_step == pytest.approx(case.variance - 1, abs=1e-6)
    assert found.per_noise == pytest.approx(solve_discrete_lyapunov(case.A, np.outer(kick, kick))[0, 0], rel=1e-9)
    assert found.at(2.0) == found.of_step + 2 * found.per_noise
    loud = moments_with_noisy_gradients(case.sampler, 1.0)
    assert abs(standard_errors_off(loud, 1 + found.at(1.0))) < 4
    assert abs(standard_errors_off(loud, 1 + found.at(0.9))) > 4  # a tenth of the noise would be noticed


def moments_with_noisy_gradients(sampler, variance, chains=20_000, steps=400, burn=200):
    """Means of theta^2 over the last steps on N(0, 1), (chains,), by the step itself: coordinates are chains."""
    rng, theta = np.random.default_rng(0), np.zeros(chains)
    memory, power, total = np.zeros((memory_rows(sampler), chains)), np.zeros(chains), np.zeros(chains)
    A, B, C = linear_step(sampler)
    state = np.zeros((len(A), chains))
    for t in range(steps):
        noise = rng.standard_normal((noise_rows(sampler), chains))
        error = math.sqrt(variance) * rng.standard_normal((1, chains))
        if t < 3:  # the recursion is that of the step
            step(sampler, theta, error[0] - theta, noise, memory, power)
        state = A @ state + B @ noise + C @ error
        if t < 3:
            np.testing.assert_allclose(state[0], theta, atol=1e-12)
        total += state[0] ** 2 * (t >= burn)
    return total / (steps - burn)


def test_the_excess_variance_of_a_constant_metric():
    """In the worst direction of V = A V A' + h C + (h/2)^2 C C' with A = 1 - h C / 2."""
    h, L = 0.5, np.array([[1.2, 0.0], [-0.6, 0.7]])
    C = L @ L.T
    found = excess_variance(PreconditionedSgld(h, L))
    for noise in (0.0, 3.0):
        V = solve_discrete_lyapunov(np.eye(2) - h / 2 * C, h * C + noise * h**2 / 4 * C @ C)
        assert found.at(noise) == pytest.approx(np.linalg.eigvalsh(V)[-1] - 1, rel=1e-9)
    assert excess_variance(PreconditionedSgld(h, np.eye(3))) == pytest.approx(excess_variance(Sgld(h)))


@pytest.mark.jit
def test_a_constant_metric_keeps_its_exact_stationary_law():
    """Pairs of coordinates with a metric that mixes them: V = A V A' + h C with A = 1 - h C / 2."""
    h, L = 0.5, np.array([[1.2, 0.0], [-0.6, 0.7]])
    C = L @ L.T
    V = solve_discrete_lyapunov(np.eye(2) - h / 2 * C, h * C)
    sampler = PreconditionedSgld(h, np.kron(np.eye(CHAINS // 2), L))

    def off(**wrong):
        found = moments(sampler, **wrong)[1].reshape(-1, 2)
        return [abs(standard_errors_off(found[:, i], V[i, i])) for i in range(2)]

    assert max(off()) < 4
    assert max(off(loud=1.02)) > 4
    assert max(off(drift=1.02)) > 4


@pytest.mark.jit
def test_known_forms():
    assert CASES["sgld"].variance == pytest.approx(1 / (1 - 0.5 / 4))
    assert sghmc(0.5, 1.0).variance == pytest.approx(sgld(0.5).variance)  # with friction 1 it is SGLD
    assert baoab(0.7, 1.5).variance == pytest.approx(1.0)  # exact for any step
    assert leimkuhler_matthews(0.6).variance == pytest.approx(1.0)
    assert underdamped(1e-3, 2.0).variance == pytest.approx(1.0, abs=1e-3)


def fixed_law(h, power, target):
    """Mean and second moment of the fixed law of |x + (h/2)(x^p g + p x^(p-1)) + sqrt(h x^p) xi| on a grid."""
    x = np.geomspace(1e-4, 40, 1600)  # spacing in proportion to x, as the noise is where p = 2
    metric, slope = x**power, power * x ** (power - 1)
    centre = x + h / 2 * (metric * ((target - 1) / x - 1) + slope)
    spread = np.sqrt(h * metric)
    density = norm.pdf(x[None], centre[:, None], spread[:, None]) + norm.pdf(-x[None], centre[:, None], spread[:, None])
    density *= x  # widths of the grid, up to a constant
    density /= density.sum(1, keepdims=True)
    distribution = np.full(len(x), 1 / len(x))
    for _ in range(12):
        density = density @ density
    distribution = distribution @ density
    return distribution @ x, distribution @ x**2


@pytest.mark.jit
@pytest.mark.parametrize(("power", "h"), [(1.0, 0.2), pytest.param(2.0, 0.1, marks=pytest.mark.nightly)])
def test_metrics_that_follow_the_position(power, h):
    """Gamma(3, 1): the law of the discretisation, and a step without the slope of its metric is far off."""
    sampler = ExpandedMeanSgld(h)
    mean, second = fixed_law(h, power, 3.0)
    found = moments(sampler, power=power, target=3.0, steps=60_000)
    assert abs(standard_errors_off(found[0], mean)) < 4
    assert abs(standard_errors_off(found[1], second)) < 4
    for wrong in ({"loud": 1.02}, {"drift": 1.02}):
        off = moments(sampler, power=power, target=3.0, steps=60_000, **wrong)
        assert max(abs(standard_errors_off(off[0], mean)), abs(standard_errors_off(off[1], second))) > 4
    assert abs(fixed_law(h / 10, power, 3.0)[0] - 3.0) < 0.1 * abs(mean - 3.0) + 0.01  # small steps: the target itself
