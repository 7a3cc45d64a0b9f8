"""Gibbs sampling of models whose rows differ: every move against the density of the series and its states, written out.

A move that proposes from a density q and is accepted with probability min(1, exp(gain)) leaves the posterior pi
invariant if gain = log pi(new) - log pi(old) + log q(old | new) - log q(new | old); an exact draw has gain 0.  Here pi
comes from ``oracle_regimes``, and q from what the move does with given noise.
"""

import math
import zlib
from dataclasses import replace

import numpy as np
import pytest
from oracle_regimes import log_density, node_start, node_transition, nodes, transitions
from regime_cases import FACTORS, as_model, covering, label, make_case

import rarehmm as rh
from rarehmm.exact.complete_data import CompleteData, Path, draw_nodes, filtered_nodes, sample_nodes
from rarehmm.exact.passes import log_posterior_value
from rarehmm.sampling import regime_gibbs
from rarehmm.sampling.regime_gibbs import Point

PLAIN = {name: levels[0] for name, levels in FACTORS.items()}
MIXED = [  # the first row has a variance that mixes those of the states
    PLAIN | {"form": ("level", 1), "inputs": "shared", "scale": True, "sequences": 2},
    PLAIN | {"form": ("level", 2), "inputs": "both", "missing": True, "states": 3, "forbidden": True},
]
CHOICES = [*MIXED, *(choice | {"family": "gaussian"} for choice in covering())]


# ---------------------------------------------------------------- the density, written out
def case_at(case, model, parameters, series):
    """The case whose parameters are these, with inputs as the library standardises them."""
    rows, block = series.read_rows(0, len(case.y)), model.every_effect.block

    def design(inputs):
        return inputs.design(rows) if inputs else np.zeros((len(case.y), 0))

    c, effects = parameters.coefficients, model.every_effect
    lags = block("lags", c)[:, 0]
    return replace(
        case, mu=parameters.phi[:, 0], sigma=np.sqrt(parameters.phi[:, 1]), transition=parameters.transition,
        shared_x=design(model.inputs), beta=block("location", c)[:, 0], switching_x=design(model.switching),
        b=block("switching", c)[:, 0], scale_x=design(model.scale), delta=block("scale", c),
        z=design(effects.slopes) if effects.slopes else None,
        slopes=block("slopes", c) if effects.slopes else None, phi=lags if case.switching_lags else lags[:, 0],
    )  # fmt: skip


def log_joint(case, path):
    """log p(y, path) of a path of the oracle's nodes."""
    states, P, total = [nodes(case)[n][0] for n in path], transitions(case), 0.0
    for first, length in zip(case.firsts, case.lengths, strict=True):
        total += math.log(node_start(case, P[first])[path[first]])
        for t in range(first, first + length):
            if t > first:
                total += math.log(node_transition(case, P[t])[path[t - 1], path[t]])
            total += log_density(case, first, t, states[first : t + 1])
    return total


def oracle_path(model, path):
    """The library's nodes as those of the oracle, which has no tuples of states."""
    tuples = model.unfolding.paths.shape[1] > 1
    return model.unfolding.chain.node_state[path] if tuples else path


class Situation:
    """A model with a path of states, and the log posterior of theta given both."""

    def __init__(self, choice, seed=0, **changes):
        self.rng = np.random.default_rng(seed + zlib.crc32(label(choice).encode()))
        self.case = make_case(choice, zlib.crc32(label(choice).encode()))
        model, parameters, self.series = as_model(self.case, "default")
        self.model = regime_gibbs.internal(replace(model, **changes))
        theta = self.model.pack(parameters)
        path = draw_nodes(self.rng, self.model, self.model.unpack(theta), self.series)
        self.here = Point(CompleteData(self.model, self.series, path), theta)

    def log_posterior(self, point):
        parameters = self.model.unpack(point.theta)
        case = case_at(self.case, self.model, parameters, self.series)
        return log_joint(case, oracle_path(self.model, point.data.nodes)) + self.model.log_prior(point.theta)


class Noise:
    """A generator whose normal numbers are given."""

    def __init__(self, z):
        self.z = z

    def standard_normal(self, n):
        assert n == len(self.z)
        return self.z


def log_gaussian_move(move, point, which):
    """log q of a move of some components from a point, if it is affine in its noise: a function of where it ends."""
    centre = move(Noise(np.zeros(len(which))), point, which).theta[which]
    factor = np.column_stack([move(Noise(one), point, which).theta[which] - centre for one in np.eye(len(which))])

    def log_q(new):
        z = np.linalg.solve(factor, new.theta[which] - centre)
        return -0.5 * z @ z - np.linalg.slogdet(factor)[1]

    return log_q


@pytest.fixture
def gains(monkeypatch):
    """All proposals are accepted, and their gains noted."""
    found = []
    monkeypatch.setattr(regime_gibbs, "accepted", lambda _rng, _old, new, gain: found.append(gain) or new)
    return found


def check_gain(situation, old, new, gain, log_q_back, log_q):
    expected = situation.log_posterior(new) - situation.log_posterior(old) + log_q_back - log_q
    assert gain == pytest.approx(expected, rel=1e-7, abs=1e-6)


FIXED = {"mean": [0.5, None], "variance": [None, 1.0]}
VARIANTS = [(choice, {}) for choice in CHOICES] + [
    (choice, {"tied": tied})
    for choice, tied in zip(CHOICES, [("variance",), ("mean",), ("mean", "variance")] * 3, strict=False)
]
VARIANTS += [(choice, {"fixed": FIXED}) for choice in CHOICES[:12] if choice["states"] == 2]
names = {"ids": lambda v: label(v) if "form" in v else "-".join(v)}


# ---------------------------------------------------------------- moves
@pytest.mark.parametrize(("choice", "changes"), VARIANTS, **names)
def test_levels_and_inputs_are_drawn_from_their_distribution(choice, changes):
    s = Situation(choice, **changes)
    groups = regime_gibbs.linear_groups(s.model)
    used = np.concatenate(groups)
    assert len(np.unique(used)) == len(used)
    for which in groups:
        log_q = log_gaussian_move(regime_gibbs.draw_linear, s.here, which)
        for _ in range(3):
            new = regime_gibbs.draw_linear(s.rng, s.here, which)
            check_gain(s, s.here, new, 0.0, log_q(s.here), log_q(new))
            np.testing.assert_array_equal(np.delete(new.theta, which), np.delete(s.here.theta, which))


@pytest.mark.parametrize("choice", [c for c in CHOICES if c["scale"] or c["transitions"] == "inputs"], ids=label)
def test_newton_proposals_are_accepted_as_often_as_they_should(choice, gains):
    s = Situation(choice)
    blocks = [(s.here, regime_gibbs.own_places(s.model, "scale"))] if s.model.scale else []
    if s.model.transitions.inputs is not None:
        path = Point(Path(s.model, s.series, s.here.data.nodes), s.here.theta)
        blocks += [(path, which) for which in regime_gibbs.rows_of_transitions(s.model)]
    for here, which in blocks:
        new = regime_gibbs.propose(s.rng, here, which)
        gain = gains[-1]
        back, forth = (log_gaussian_move(regime_gibbs.propose, point, which) for point in (new, here))
        check_gain(s, here, new, gain, back(here), forth(new))
        walked = regime_gibbs.walk(s.rng, here, which)
        check_gain(s, here, walked, gains[-1], 0.0, 0.0)


def lag_coordinates(point):
    return point.data.model.every_effect.block("lags", point.parameters.coefficients)[:, 0, 0]


def log_lag_volume(point):
    """Logarithm of the determinant of the derivatives of lags in their coordinates, by differences."""
    at, h = regime_gibbs.own_places(point.data.model, "lags"), 1e-6
    columns = []
    for i in at:
        up, down = (point.with_values(np.array([i]), point.theta[i] + sign * h) for sign in (1, -1))
        columns.append((lag_coordinates(up) - lag_coordinates(down)) / (2 * h))
    return np.linalg.slogdet(np.column_stack(columns))[1]


@pytest.mark.parametrize("choice", [c for c in CHOICES if c["form"][0] in ("level", "hamilton")], ids=label)
def test_stationary_lags_are_accepted_as_often_as_they_should(choice, gains):
    s = Situation(choice | {"switching_lags": False})
    mean, factor = regime_gibbs.lag_regression(s.here)
    new, tries = s.here, 0
    while new is s.here and tries < 50:
        z, tries = s.rng.normal(size=len(mean)), tries + 1
        new = regime_gibbs.propose_lags(Noise(z), s.here)
    np.testing.assert_allclose(lag_coordinates(new), mean + np.linalg.solve(factor.T, z), rtol=1e-10)
    for one, other in zip(regime_gibbs.lag_regression(new), (mean, factor), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)  # it does not depend on where one is
    back, forth = (
        -0.5 * ((factor.T @ (lag_coordinates(p) - mean)) ** 2).sum() + log_lag_volume(p) for p in (s.here, new)
    )
    check_gain(s, s.here, new, gains[-1], back, forth)


@pytest.mark.parametrize(("choice", "changes"), VARIANTS, **names)
def test_variances_are_drawn_from_their_distribution(choice, changes, gains, monkeypatch):
    """Or accepted as often as they should, where the first row mixes the variances of all states."""
    s, given = Situation(choice, **changes), []
    original = regime_gibbs.draw_variance
    monkeypatch.setattr(regime_gibbs, "draw_variance", lambda rng, *more: given.append(more) or original(rng, *more))
    for _ in range(3):
        new = regime_gibbs.draw_variances(s.rng, s.here)
        squares, counts, prior = given[-1]
        shape, scale = prior.shape + counts / 2, prior.scale + squares / 2
        free = np.isnan(s.model.fixed_values.phi[: len(shape), 1])
        back, forth = (
            (-shape * np.log(s2) - scale / s2)[free].sum()
            for s2 in (p.parameters.phi[: len(shape), 1] for p in (s.here, new))
        )
        check_gain(s, s.here, new, gains[-1] if s.model.every_effect.mixed_start else 0.0, back, forth)
    regime_gibbs.draw_variances(s.rng, new)
    for one, other in zip(given[-1], (squares, counts, prior), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)  # they do not depend on where one is


@pytest.mark.parametrize("choice", [c for c in CHOICES if c["transitions"] != "inputs"], ids=label)
def test_transition_matrices_are_drawn_from_their_distribution(choice, gains, monkeypatch):
    """Or accepted as often as they should, where the first state depends on them."""
    s, given, original = Situation(choice, seed=1), [], regime_gibbs.log_shares
    monkeypatch.setattr(regime_gibbs, "log_shares", lambda rng, weight: given.append(weight) or original(rng, weight))
    case, path, K = s.case, oracle_path(s.model, s.here.data.nodes), s.model.n_states
    stay, leave, exits = np.zeros(K), np.zeros(K), np.zeros((K, K))
    for t in range(len(case.y)):
        if t in case.firsts:
            continue
        (i, one), (j, two) = nodes(case)[path[t - 1]], nodes(case)[path[t]]
        if (i, one) == (j, two):
            stay[i] += 1
            continue
        leave[i] += 1
        exits[i, j] += i != j
    others = s.model.fixed_values.allowed & ~np.eye(K, dtype=bool)
    stay, leave, exits = stay + 1, leave + others.sum(1), exits + others

    def log_q(P):
        out = np.diag(P)
        shares = np.where(others, P / (1 - out)[:, None], 1.0)
        return (stay * np.log(out) + leave * np.log(1 - out)).sum() + (exits * np.log(shares)).sum()

    for _ in range(3):
        new = regime_gibbs.draw_matrix(s.rng, s.here)
        np.testing.assert_array_equal(given[-2], exits)
        np.testing.assert_array_equal(given[-1], np.column_stack([stay, leave]))
        back, forth = (log_q(p.parameters.transition) for p in (s.here, new))
        check_gain(s, s.here, new, gains[-1] if s.model.start is None else 0.0, back, forth)


# ---------------------------------------------------------------- states
def every_path(case):
    """All paths of the oracle's nodes that have a positive probability, and their probabilities given the series."""
    found, P = [], transitions(case)

    def continued(path):
        t = len(path)
        if t == len(case.y):
            found.append(path)
            return
        start = node_start(case, P[t]) if t in case.firsts else node_transition(case, P[t])[path[-1]]
        for n in np.flatnonzero(start):
            if case.states[t] in (-1, nodes(case)[n][0]):
                continued((*path, int(n)))

    continued(())
    logs = np.array([log_joint(case, path) for path in found])
    return np.array(found), np.exp(logs - np.logaddexp.reduce(logs))


def errors_of_paths(choice, paths=1000, **changes):
    """Differences, in standard errors, between frequencies and probabilities of nodes and of pairs of them."""
    s = Situation(choice)
    exact, probability = every_path(s.case)
    work, filtered = filtered_nodes(s.model, s.here.parameters, s.series)
    for name, value in changes.items():
        setattr(work, name, value)
    found = np.array([
        oracle_path(s.model, sample_nodes(s.rng.random(len(s.series)), work, filtered)) for _ in range(paths)
    ])  # fmt: skip
    M, out = len(nodes(s.case)), []
    for of in (lambda x: x, lambda x: x[:, :-1] * M + x[:, 1:]):
        for t in range(of(exact).shape[1]):
            p = np.minimum(np.bincount(of(exact)[:, t], probability, M * M), 1.0)
            share = np.bincount(of(found)[:, t], minlength=M * M) / paths
            assert not share[p == 0].any()
            certain = p > 1 - 1e-12
            assert (share[certain] == 1).all()
            used = (p * paths > 5) & ~certain
            out.append((share - p)[used] / np.sqrt(p * (1 - p) / paths)[used])
    return np.concatenate(out)


PATHS = [c for c in CHOICES if c["states"] == 2 or (c["known"] and c["transitions"] != "phases")][::6]


@pytest.mark.parametrize("choice", PATHS, ids=label)
def test_paths_are_drawn_from_their_distribution(choice):
    assert np.abs(errors_of_paths(choice)).max() < 4.5


def test_that_test_would_notice_states_that_do_not_look_back():
    """Backward sampling with the weights of another transition matrix."""
    s = Situation(MIXED[0])
    P = s.here.parameters.transition
    other = s.here.parameters._replace(transition=0.2 * P + 0.4)
    point = filtered_nodes(s.model, other, s.series)[0].point
    assert np.abs(errors_of_paths(MIXED[0], point=point)).max() > 6


# ---------------------------------------------------------------- whole chains
PRIORS = rh.Priors(
    (rh.Normal(0.0, 4.0), rh.InverseGamma(4.0, 6.0)), rh.Dirichlet(2.0), rh.EffectPriors((1.0,), 0.5, 0.7, 1.0)
)
SHORT = {name: levels[0] for name, levels in FACTORS.items()} | {"known": True}
CHAINS = [
    (SHORT | {"form": ("level", 1), "inputs": "shared", "missing": True}, {}),
    (SHORT | {"form": ("intercept", 1), "inputs": "switching", "transitions": "phases"}, {"tied": ("variance",)}),
    (SHORT | {"form": ("level", 2), "inputs": "both"}, {}),
    (SHORT | {"form": ("level", 1), "transitions": "inputs", "scale": True}, {}),
    (SHORT | {"form": ("hamilton", 2), "sequences": 2}, {"tied": ("variance",)}),
    (SHORT | {"form": ("level", 1), "switching_lags": True, "transitions": "phases"}, {}),
]


def standard_errors_off(choice, changes, sweeps, points):
    """Differences, in standard errors, between the moments of a chain and those of weighted points.

    The first and second moments of all components of theta, of which the points come from a wide t distribution.
    """
    model, parameters, series = as_model(make_case(choice, 8), "default")
    model, rng = replace(model, priors=PRIORS, **changes), np.random.default_rng(8)
    draws = rh.gibbs(rng, model, series, model.unpack(model.pack(parameters)), sweeps)[sweeps // 10 :]
    centre, factor = draws.mean(0), np.linalg.cholesky(1.3 * np.cov(draws.T))
    z, df = rng.standard_normal((points, model.size)), 6
    z /= np.sqrt(rng.chisquare(df, (points, 1)) / df)
    logs = np.array([log_posterior_value(model, centre + factor @ one, series) for one in z])
    logs += (df + model.size) / 2 * np.log1p((z**2).sum(1) / df)
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    assert 1 / (weight**2).sum() > points / 50

    def moments(theta):
        standard = (theta - centre) / draws.std(0)
        return np.hstack([standard, standard**2])

    chain, of_points = moments(draws), moments(centre + z @ factor.T)
    batches = chain[: len(chain) // 20 * 20].reshape(20, -1, chain.shape[1]).mean(1)
    mean = weight @ of_points
    variance = batches.var(0, ddof=1) / 20 + (weight**2) @ (of_points - mean) ** 2
    return (chain.mean(0) - mean) / np.sqrt(variance)


@pytest.mark.parametrize(("choice", "changes"), CHAINS[:2], **names)
def test_chains_have_the_moments_of_the_posterior(choice, changes):
    assert np.abs(standard_errors_off(choice, changes, 250, 700)).max() < 5


@pytest.mark.jit
@pytest.mark.nightly
@pytest.mark.parametrize(("choice", "changes"), CHAINS, **names)
def test_long_chains_have_the_moments_of_the_posterior(choice, changes):
    assert np.abs(standard_errors_off(choice, changes, 4000, 8000)).max() < 5


@pytest.mark.jit
@pytest.mark.nightly
def test_a_long_series_has_a_posterior_close_to_its_laplace_approximation():
    rng, T = np.random.default_rng(1), 3000
    load, states, noise = rng.normal(size=T), np.zeros(T, dtype=int), np.zeros(T)
    for t in range(1, T):
        states[t] = rng.random() < (0.02, 0.94)[states[t - 1]]
        noise[t] = 0.6 * noise[t - 1] + rng.normal()
    y = 4.0 * states + noise + np.sin(2 * np.pi * np.arange(T) / 24) + 0.5 * load
    series = rh.Series(np.where(rng.random(T) < 0.02, np.nan, y), exog=load[:, None])
    model = rh.Model(
        rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series),
        inputs=rh.Inputs.of(series, [rh.Season(24, order=2), rh.Columns()]), autoregression=rh.AroundLevel(1),
        tied=("variance",),
    )  # fmt: skip
    start = model.natural([[0.0, 1.0], [4.0, 1.0]], [[0.95, 0.05], [0.1, 0.9]])
    mode, h = rh.climb(model, series, start).parameters, 1e-4
    theta = model.pack(mode)
    curvature = [
        (rh.log_posterior(model, theta - h * one, series)[1] - rh.log_posterior(model, theta + h * one, series)[1])
        / (2 * h)
        for one in np.eye(model.size)
    ]
    sd = np.sqrt(np.diag(np.linalg.inv(curvature)))
    draws = rh.gibbs(rng, model, series, mode, 300)
    assert np.abs((draws.mean(0) - theta) / sd).max() < 0.5
    assert np.abs(draws.std(0) / sd - 1).max() < 0.25


# ---------------------------------------------------------------- other families, coordinates, refusals
def test_families_without_inputs_bring_their_own_draws():
    """Rates where all states are known have gamma distributions."""
    states = np.array([0, 0, 0, 1, 1, 0, 1, 1])
    y = np.array([1.0, 0, 2, 7, 9, 1, 6, 8])
    series, prior = rh.Series(y, states=states), rh.Gamma(2.0, 0.5)
    model = rh.Model(rh.Poisson(), 2, rh.Priors((prior,)), transitions=rh.Phases((1, 2)))
    start = model.natural([[1.0], [5.0]], [[0.8, 0.2], [0.3, 0.7]])
    rates = np.exp(rh.gibbs(np.random.default_rng(3), model, series, start, 400)[:, :2])
    for k in (0, 1):
        shape, rate = 2.0 + y[states == k].sum(), 0.5 + (states == k).sum()
        assert abs(rates[:, k].mean() - shape / rate) < 4.5 * math.sqrt(shape) / rate / 20
        assert abs(np.log(rates[:, k]).var() * shape - 1) < 0.4


def test_log_normal_observations_are_drawn_like_their_logarithms():
    rng, draws = np.random.default_rng(6), []
    y, x, states = rng.normal(size=12), rng.normal(size=(12, 1)), np.where(np.arange(12) < 4, [0, 1] * 6, -1)
    for family, values in ((rh.Gaussian(), y), (rh.LogNormal(), np.exp(y))):
        series = rh.Series(values, exog=x, states=states)
        inputs = rh.Inputs.of(series, [rh.Columns()])
        model = rh.Model(family, 2, PRIORS, inputs=inputs, scale=inputs)
        start = model.natural([[0.0, 1.0], [1.0, 1.0]], [[0.8, 0.2], [0.2, 0.8]])
        draws.append(rh.gibbs(np.random.default_rng(4), model, series, start, 5))
    np.testing.assert_allclose(*draws, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("choice", CHOICES[:4], ids=label)
def test_the_seed_fixes_the_draws_in_any_coordinates(choice):
    s = Situation(choice)
    changes = {"logs": False}
    if choice["transitions"] != "inputs" and not choice["forbidden"]:
        changes["coordinates"] = rh.ExpandedMean()
    other = replace(s.model, **changes)
    one, two = (rh.gibbs(np.random.default_rng(5), m, s.series, s.here.parameters, 4) for m in (s.model, other))
    np.testing.assert_array_equal(one, rh.gibbs(np.random.default_rng(5), s.model, s.series, s.here.parameters, 4))
    np.testing.assert_allclose(other.unpack(two[0]).phi, s.model.unpack(one[0]).phi, rtol=1e-9)
    np.testing.assert_allclose(other.unpack(two[0]).transition, s.model.unpack(one[0]).transition, rtol=1e-9)


def test_what_is_not_conjugate_is_refused():
    rng, y, x = np.random.default_rng(0), np.arange(9.0) % 4, np.arange(9.0)[:, None] ** 2
    series = rh.Series(y, exog=x)
    inputs = rh.Inputs.of(series, [rh.Columns()])

    def draw(family, priors=None, **terms):
        model = rh.Model(family, 2, priors or rh.default_priors(family, 2, series), **terms)
        phi = np.array([family.estimate(y[:5], np.ones(5)), family.estimate(y[4:], np.ones(5))])
        return rh.gibbs(rng, model, series, model.natural(phi, [[0.8, 0.2], [0.2, 0.8]]), 1)

    with pytest.raises(TypeError, match=r"Poisson with inputs, lags or tied .* Gaussian and LogNormal only. Use meth"):
        draw(rh.Poisson(), inputs=inputs)
    with pytest.raises(TypeError, match="StudentT has no 'conditional'"):
        draw(rh.StudentT(4.0), inputs=inputs)
    flat = rh.Priors((rh.Normal(0.0, 1.0), rh.InverseGamma(3.0, 1.0)))
    with pytest.raises(ValueError, match=r"slopes of transitions have no prior.* effects=EffectPriors"):
        draw(rh.Gaussian(), flat, transitions=rh.Regression(inputs))
    odd = rh.Priors((rh.Normal(0.0, 1.0), rh.Gamma(3.0, 1.0)))
    with pytest.raises(TypeError, match=r"Gibbs sampling needs a InverseGamma prior .* use langevin"):
        draw(rh.Gaussian(), odd, inputs=inputs)
    improper = rh.Priors((rh.Flat(), rh.InverseGamma(3.0, 1.0)))
    known = rh.Series(y, exog=x, states=np.zeros(9))
    model = rh.Model(rh.Gaussian(), 2, improper, inputs=inputs)
    with pytest.raises(ValueError, match=r"mean\[1\] has no proper distribution .* Give it a prior"):
        rh.gibbs(rng, model, known, model.natural([[0.0, 1.0], [1.0, 1.0]], [[0.8, 0.2], [0.2, 0.8]]), 1)
