"""The slow twins for regimes agree with each other, with exact densities, and with published numbers."""

import itertools
from dataclasses import replace

import numpy as np
import oracle
import pytest
from oracle_regimes import (
    Regimes,
    autocorrelation,
    enumerate_regimes,
    explained_share,
    hamilton_filter,
    node_start,
    node_transition,
    nodes,
    start_variances,
    stationary,
    transitions,
)
from published_regimes import NAMES, PROBABILITIES, published
from scipy.stats import multivariate_normal, norm
from scipy.stats import t as student_t

import rarehmm as rh

pytestmark = pytest.mark.plain


def shares(rng, *shape):
    return rng.dirichlet(np.full(shape[-1], 2.0), size=shape[:-1])


def make(seed, *, K=2, T=6, kind="none", p=0, switching=False, **fields):
    """A case with random values; ``fields`` replaces them, or asks for inputs by their number."""
    rng = np.random.default_rng(seed)
    values = {
        "y": rng.normal(0, 2, T), "mu": rng.normal(0, 2, K), "sigma": rng.uniform(0.5, 2, K),
        "transition": shares(rng, K, K), "kind": kind, "p": p,
        "phi": rng.uniform(-0.5, 0.6, (p, K) if switching else p) / max(p - 1, 1),
    }  # fmt: skip
    shapes = {"shared_x": ("beta", ()), "switching_x": ("b", (K,)), "scale_x": ("delta", ()), "z": ("slopes", (K, K))}
    for inputs, (coefficients, shape) in shapes.items():
        if n := fields.pop(inputs, 0):
            values |= {inputs: rng.normal(0, 1, (T, n)), coefficients: rng.normal(0, 0.5, (n, *shape))}
    return Regimes(**values | fields)


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def missing(y, *rows):
    out = np.array(y, dtype=float)
    out[list(rows)] = np.nan
    return out


ALL_INPUTS = {"shared_x": 2, "switching_x": 1, "scale_x": 1, "z": 2}
BOTH = {
    "no lags": make(0, K=3, T=6),
    "no lags, everything else": make(1, T=7, lengths=[4, 3], nu=4.0, phases=[2, 1], **ALL_INPUTS),
    "hamilton 1": make(2, T=7, kind="hamilton", p=1),
    "hamilton 1, K = 3": make(3, K=3, T=6, kind="hamilton", p=1, switching=True, **ALL_INPUTS),
    "hamilton 2, everything": make(
        4, T=7, kind="hamilton", p=2, switching=True, nu=5.0, lengths=[3, 4], phases=[1, 2],
        states=[-1, 0, -1, 1, -1, -1, -1], **ALL_INPUTS,
    ),
    "hamilton 3": make(5, T=7, kind="hamilton", p=3, switching_x=1, start=[0.9, 0.1]),
    "hamilton 4": make(6, T=7, kind="hamilton", p=4, shared_x=1, z=1),
    "intercept 1, K = 3": make(7, K=3, T=6, kind="intercept", p=1, switching=True, switching_x=2),
    "intercept 2, everything": make(8, T=7, kind="intercept", p=2, nu=3.0, phases=[2, 2], **ALL_INPUTS),
    "level 1, conditional": make(9, T=7, kind="level", p=1, conditional=True, **ALL_INPUTS),
    "level 3, switching": make(10, T=7, kind="level", p=3, switching=True, **ALL_INPUTS),
    "level 2, conditional, phases": make(
        11, T=7, kind="level", p=2, conditional=True, phases=[3, 1], switching_x=1, start=[0.2, 0.8]
    ),
    "known states": make(12, K=3, T=6, kind="level", p=1, switching=True, states=[-1, 2, -1, -1, 0, 1]),
}  # fmt: skip


@pytest.mark.parametrize("case", BOTH.values(), ids=BOTH)
def test_enumeration_and_filter_agree(case):
    assert_same(enumerate_regimes(case), hamilton_filter(case))
    if case.conditional:  # rows after a gap count, which the filter cannot do
        return
    gap = replace(case, y=missing(case.y, 2))
    assert_same(enumerate_regimes(gap), hamilton_filter(gap))
    assert np.any(enumerate_regimes(gap)[1] != enumerate_regimes(case)[1])


def test_filter_refuses_rows_without_lags_that_count():
    with pytest.raises(ValueError, match="enumerate_regimes"):
        hamilton_filter(make(0, kind="level", p=1))


@pytest.mark.parametrize("nu", [None, 4.0])
def test_plain_cases_agree_with_the_oracle_of_plain_models(nu):
    case = make(20, K=3, T=6, nu=nu)
    case = replace(case, y=missing(case.y, 3))
    family = rh.Gaussian() if nu is None else rh.StudentT(nu)
    logp = oracle.log_density(family, case.y, np.column_stack([case.mu, case.sigma**2]))
    start = stationary(case.transition)
    total, smooth, *_ = oracle.enumerate_paths(logp, case.transition, start)
    filtered, _ = oracle.filter_by_enumeration(logp, case.transition, start)
    assert_same(enumerate_regimes(case), (total, smooth, filtered))


# ------------------------------------------------------------------------------ one state: a Gaussian autoregression
def autocovariances(phi, sigma, n):
    """Autocovariances at lags 0, ..., n of a stationary AR(p), from its moving average."""
    psi = [1.0]
    for k in range(1, 4000):
        psi.append(sum(phi[m] * psi[k - 1 - m] for m in range(min(len(phi), k))))
    psi = np.array(psi)
    return sigma**2 * np.array([psi[: len(psi) - h] @ psi[h:] for h in range(n + 1)])


def exact_log_density(y, level, phi, sigma):
    """Log density of the observed values of a stationary AR(p) around ``level`` (T,)."""
    T, seen = len(y), ~np.isnan(y)
    covariance = autocovariances(phi, sigma, T)[np.abs(np.subtract.outer(np.arange(T), np.arange(T)))]
    return multivariate_normal.logpdf(y[seen], level[seen], covariance[np.ix_(seen, seen)])


def one_state(phi, **fields):
    return make(30, K=1, T=9, kind="level", p=len(phi), phi=phi, transition=[[1.0]], shared_x=1, **fields)


def level_of(case):
    return case.mu[0] + case.shared_x @ case.beta


@pytest.mark.parametrize("phi", [[0.7], [0.5, 0.3], [0.9, -0.6], [0.4, -0.2, 0.3]])
def test_autocorrelation_is_that_of_the_moving_average(phi):
    gamma = autocovariances(phi, 1.3, 8)
    np.testing.assert_allclose(autocorrelation(np.array(phi), 8), gamma / gamma[0], rtol=1e-12)
    np.testing.assert_allclose(1.3**2 / (1 - explained_share(np.array(phi))), gamma[0], rtol=1e-12)


@pytest.mark.parametrize("start", [None, [1.0]])
@pytest.mark.parametrize("gaps", [(), (0,), (0, 1, 4), (3, 4, 5), (2, 8)])
def test_one_state_around_the_level_with_gaps_is_a_stationary_autoregression(gaps, start):
    case = one_state([0.8], start=start)
    case = replace(case, y=missing(case.y, *gaps))
    exact = exact_log_density(case.y, level_of(case), case.phi, case.sigma[0])
    np.testing.assert_allclose(enumerate_regimes(case)[0], exact, rtol=1e-12)


def test_one_state_with_two_lags_is_a_stationary_autoregression():
    case = one_state([0.9, -0.6])
    exact = exact_log_density(case.y, level_of(case), case.phi, case.sigma[0])
    np.testing.assert_allclose(enumerate_regimes(case)[0], exact, rtol=1e-12)


@pytest.mark.parametrize("kind", ["level", "hamilton", "intercept"])
@pytest.mark.parametrize("phi", [[0.8], [0.9, -0.6], [0.4, -0.2, 0.3]])
def test_one_state_given_its_first_rows_is_a_conditional_autoregression(kind, phi):
    case = replace(one_state(phi), kind=kind, conditional=True)
    level, p = level_of(case), case.p
    if kind == "intercept":  # the level that its constant and the inputs of its lags add up to
        case, level = replace(case, beta=[0.0]), np.full(9, case.mu[0] / (1 - sum(phi)))
    exact = exact_log_density(case.y, level, phi, case.sigma[0])
    exact -= exact_log_density(case.y[:p], level[:p], phi, case.sigma[0])
    np.testing.assert_allclose(enumerate_regimes(case)[0], exact, rtol=1e-11)
    np.testing.assert_allclose(hamilton_filter(case)[0], exact, rtol=1e-11)


# --------------------------------------------------------------------------------------- several states, written out
def test_a_gap_starts_from_the_level_of_the_state_before_and_the_inputs_of_the_last_observation():
    y, x, v = np.array([0.3, np.nan, 1.1]), np.array([0.5, -1.0, 2.0]), np.array([0.4, 9.0, -0.3])
    mu, b, sigma, delta, rho = np.array([-1.0, 1.5]), np.array([0.3, -0.7]), np.array([0.6, 1.4]), 0.8, 0.7
    P = np.array([[0.8, 0.2], [0.4, 0.6]])
    pi = np.array([2 / 3, 1 / 3])
    reversed_chain = np.array([[pi[i] * P[i, j] / pi[j] for i in range(2)] for j in range(2)])
    V = np.linalg.inv(np.eye(2) - rho**2 * reversed_chain) @ sigma**2
    total = 0.0
    for h, i, j in itertools.product(range(2), repeat=3):
        first = norm.pdf(y[0], mu[h] + x[0] * b[h], np.sqrt(V[h]) * np.exp(delta * v[0]))
        mean = mu[j] + x[2] * b[j] + rho**2 * (y[0] - (mu[i] + x[0] * b[i]))
        last = norm.pdf(y[2], mean, sigma[j] * np.exp(delta * v[2]) * np.sqrt((1 - rho**4) / (1 - rho**2)))
        total += pi[h] * first * P[h, i] * P[i, j] * last
    case = Regimes(
        y=y, mu=mu, sigma=sigma, transition=P, switching_x=x[:, None], b=b[None], scale_x=v[:, None], delta=[delta],
        kind="level", p=1, phi=[rho],
    )  # fmt: skip
    np.testing.assert_allclose(enumerate_regimes(case)[0], np.log(total), rtol=1e-12)


def test_two_lags_around_the_level_written_out():
    y, eta = np.array([0.3, 0.9, -1.2]), np.array([0.2, -0.4, 0.1])
    mu, sigma, phi, nu = np.array([-1.0, 1.5]), np.array([0.6, 1.4]), np.array([0.5, 0.3]), 4.0
    P, start, r = np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0.3, 0.7]), y - eta
    acf = 0.5 / (1 - 0.3)
    R2 = 0.5 * acf + 0.3 * (0.5 * acf + 0.3)
    total = 0.0
    for h, i, j in itertools.product(range(2), repeat=3):
        one = student_t.pdf(r[0], nu, mu[h], sigma[h] / np.sqrt(1 - R2))
        two = student_t.pdf(r[1], nu, mu[i] + acf * (r[0] - mu[h]), sigma[i] * np.sqrt((1 - acf**2) / (1 - R2)))
        mean = mu[j] + 0.8 * (r[1] - mu[i]) - 0.3 * (r[1] - r[0])
        total += start[h] * one * P[h, i] * two * P[i, j] * student_t.pdf(r[2], nu, mean, sigma[j])
    case = Regimes(
        y=y, mu=mu, sigma=sigma, transition=P, start=start, nu=nu, shared_x=eta[:, None], beta=[1.0], kind="level",
        p=2, phi=phi,
    )  # fmt: skip
    np.testing.assert_allclose(enumerate_regimes(case)[0], np.log(total), rtol=1e-12)


def test_start_variances_are_those_of_noise_that_has_run_for_long():
    case = make(40, K=3, kind="level", p=1)
    pi, rho = stationary(case.transition), case.phi[0]
    moment = np.zeros(3)  # E u^2 1(s = j)
    for _ in range(500):
        moment = rho**2 * moment @ case.transition + pi * case.sigma**2
    np.testing.assert_allclose(start_variances(case), moment / pi, rtol=1e-12)
    apart = case.sigma**2 / (1 - rho**2)
    for other in (replace(case, start=pi), replace(case, phases=[1, 2, 1]), make(40, K=3, kind="level", p=1, z=1)):
        np.testing.assert_allclose(start_variances(other), apart, rtol=1e-12)


def test_all_forms_coincide_where_they_should():
    level = make(41, kind="level", p=1, conditional=True, **ALL_INPUTS)
    assert_same(enumerate_regimes(level), enumerate_regimes(replace(level, kind="hamilton")))
    one_level = make(42, kind="level", p=3, conditional=True, shared_x=1, mu=[0.7, 0.7])
    assert_same(enumerate_regimes(one_level), enumerate_regimes(replace(one_level, kind="hamilton")))
    lag = make(43, kind="intercept", p=1, switching=True, start=[0.3, 0.7])
    x = np.append(0.0, lag.y[:-1])[:, None]
    regression = replace(lag, y=missing(lag.y, 0), kind="none", p=0, phi=None, switching_x=x, b=lag.phi)
    assert_same(enumerate_regimes(lag), enumerate_regimes(regression))


# -------------------------------------------------------------------------- sequences, known states, names of states
def test_sequences_are_separate():
    whole = make(50, T=7, kind="level", p=2, lengths=[4, 3], **ALL_INPUTS)
    parts = []
    for rows in (slice(0, 4), slice(4, 7)):
        part = {name: getattr(whole, name)[rows] for name in ("y", "states", *ALL_INPUTS)}
        parts.append(enumerate_regimes(replace(whole, **part, lengths=[len(part["y"])])))
    total, smoothed, filtered = enumerate_regimes(whole)
    assert total == pytest.approx(sum(part[0] for part in parts), rel=1e-12)
    np.testing.assert_allclose(smoothed, np.vstack([part[1] for part in parts]), rtol=1e-12)
    np.testing.assert_allclose(filtered, np.vstack([part[2] for part in parts]), rtol=1e-12)


def test_known_states_are_a_part_of_all_paths():
    case = make(51, K=3, T=5, kind="level", p=1, **ALL_INPUTS)
    total, smoothed, _ = enumerate_regimes(case)
    each = [enumerate_regimes(replace(case, states=[-1, -1, k, -1, -1]))[0] for k in range(3)]
    np.testing.assert_allclose(np.exp(np.array(each) - total), smoothed[2], rtol=1e-12)


def test_states_can_be_renamed():
    case = make(52, K=3, T=5, kind="level", p=1, phases=[1, 2, 1], **ALL_INPUTS)
    order = [2, 0, 1]
    renamed = replace(
        case, mu=case.mu[order], sigma=case.sigma[order], transition=case.transition[np.ix_(order, order)],
        b=case.b[:, order], slopes=case.slopes[:, order][:, :, order], phases=case.phases[order],
    )  # fmt: skip
    total, smoothed, filtered = enumerate_regimes(case)
    assert_same(enumerate_regimes(renamed), (total, smoothed[:, order], filtered[:, order]))


# ---------------------------------------------------------------------------------------------------------- the chain
def test_transitions_with_inputs_are_a_softmax():
    case = make(60, K=3, z=2)
    logits = np.log(case.transition) + np.einsum("tk,kij->tij", case.z, case.slopes)
    expected = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    np.testing.assert_allclose(transitions(case), expected, rtol=1e-12)


def test_the_step_into_a_row_uses_its_inputs_and_the_start_those_of_the_first_row():
    case = make(61, T=3, z=1)
    P = transitions(case)
    f = norm.pdf(case.y[:, None], case.mu, case.sigma)  # (T, K)
    expected = ((stationary(P[0]) * f[0]) @ P[1] * f[1]) @ P[2] @ f[2]
    np.testing.assert_allclose(enumerate_regimes(case)[0], np.log(expected), rtol=1e-12)


def test_phases_by_hand():
    case = make(62, phases=[2, 1], transition=[[0.7, 0.3], [0.4, 0.6]])
    assert nodes(case) == [(0, 0), (0, 1), (1, 0)]
    Q = node_transition(case, case.transition)
    np.testing.assert_allclose(Q, [[0.7, 0.3, 0], [0, 0.7, 0.3], [0.4, 0, 0.6]], rtol=1e-15)
    given = replace(case, start=np.array([0.2, 0.8]))
    np.testing.assert_array_equal(node_start(given, case.transition), [0.2, 0, 0.8])


@pytest.mark.parametrize("seed", range(5))
def test_phases_of_a_state_share_its_stationary_probability(seed):
    case = make(seed, K=4, phases=np.random.default_rng(seed).integers(1, 5, 4))
    Q, start = node_transition(case, case.transition), node_start(case, case.transition)
    np.testing.assert_allclose(Q.sum(1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(start @ Q, start, rtol=1e-12)
    np.testing.assert_allclose(start, stationary(Q), rtol=1e-10)


def test_phases_are_states_with_the_same_emission():
    case = make(63, T=6, kind="level", p=1, phases=[2, 1], start=[0.2, 0.8], switching_x=1)
    of = [0, 0, 1]
    spread = replace(
        case, mu=case.mu[of], sigma=case.sigma[of], b=case.b[:, of], phases=None, start=[0.2, 0, 0.8],
        transition=node_transition(case, case.transition),
    )  # fmt: skip
    total, smoothed, filtered = enumerate_regimes(spread)
    merged = [np.column_stack([p[:, :2].sum(1), p[:, 2]]) for p in (smoothed, filtered)]
    assert_same(enumerate_regimes(case), (total, *merged))


# -------------------------------------------------------------------------------------------------- published numbers
@pytest.mark.parametrize("name", NAMES)
def test_published_log_likelihoods(name):
    case = published(name)
    assert abs(hamilton_filter(case.regimes)[0] - case.log_likelihood) < 0.5 * 10.0**-case.decimals


@pytest.mark.parametrize("name", PROBABILITIES)
def test_published_probabilities(name):
    """Six decimals are printed, of parameters and probabilities: the sixth can differ, and most with EViews's GNP."""
    case, tolerance = published(name), 1e-5 if name in ("GNP, AR(4)", "GNP, AR(1), switching") else 2e-6
    _, smoothed, filtered = hamilton_filter(case.regimes)
    p, k = case.regimes.p, case.state
    np.testing.assert_allclose(smoothed[p:, k], case.smoothed, rtol=0, atol=tolerance)
    if case.filtered is not None:
        np.testing.assert_allclose(filtered[p:, k], case.filtered, rtol=0, atol=tolerance)


def test_filardo_tells_starts_apart():
    """The start is stationary under the matrix of row 0, which is conditioned on, and not under that of row p."""
    case = published("Filardo, AR(4)")
    P, p = transitions(case.regimes), case.regimes.p
    first, later = (hamilton_filter(replace(case.regimes, start=stationary(P[t])))[0] for t in (0, p))
    assert abs(first - case.log_likelihood) < 0.5e-4
    assert abs(later - case.log_likelihood) > 0.1
