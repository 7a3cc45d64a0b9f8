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
from regime_cases import as_model, covering, label, make_case

from rarehmm.exact.complete_data import CompleteData, Path, draw_nodes
from rarehmm.sampling import regime_gibbs
from rarehmm.sampling.regime_gibbs import Point

CHOICES = [choice for choice in covering() if choice["family"] == "gaussian"]


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


def log_gaussian_move(move, point, coordinates, there):
    """log q of a move whose proposals are affine in their noise, at the coordinates ``there``."""
    m = len(there)
    centre = coordinates(move(Noise(np.zeros(m)), point))
    factor = np.column_stack([coordinates(move(Noise(one), point)) - centre for one in np.eye(m)])
    z = np.linalg.solve(factor, there - centre)
    return -0.5 * z @ z - np.linalg.slogdet(factor)[1]


@pytest.fixture
def gains(monkeypatch):
    """All proposals are accepted, and their gains noted."""
    found = []
    monkeypatch.setattr(regime_gibbs, "accepted", lambda _rng, _old, new, gain: found.append(gain) or new)
    return found


def check_gain(situation, old, new, gain, log_q_back, log_q):
    expected = situation.log_posterior(new) - situation.log_posterior(old) + log_q_back - log_q
    assert gain == pytest.approx(expected, rel=1e-7, abs=1e-6)


VARIANTS = [(choice, {}) for choice in CHOICES] + [
    (choice, {"tied": tied})
    for choice, tied in zip(CHOICES, [("variance",), ("mean",), ("mean", "variance")] * 3, strict=False)
]
names = {"ids": lambda v: label(v) if "form" in v else "-".join(v.get("tied", ()))}


# ---------------------------------------------------------------- moves
@pytest.mark.parametrize(("choice", "changes"), VARIANTS, **names)
def test_levels_and_inputs_are_drawn_from_their_distribution(choice, changes):
    s = Situation(choice, **changes)
    groups = regime_gibbs.linear_groups(s.model)
    used = np.concatenate(groups)
    assert len(np.unique(used)) == len(used)
    for which in groups:

        def move(rng, point, which=which):
            return regime_gibbs.draw_linear(rng, point, which)

        for _ in range(3):
            new = move(s.rng, s.here)
            there = [log_gaussian_move(move, s.here, lambda p, w=which: p.theta[w], p.theta[which])
                     for p in (s.here, new)]  # fmt: skip
            check_gain(s, s.here, new, 0.0, *there)
            np.testing.assert_array_equal(np.delete(new.theta, which), np.delete(s.here.theta, which))


@pytest.mark.parametrize("choice", [c for c in CHOICES if c["scale"] or c["transitions"] == "inputs"], ids=label)
def test_newton_proposals_are_accepted_as_often_as_they_should(choice, gains):
    s = Situation(choice)
    blocks = [(s.here, regime_gibbs.own_places(s.model, "scale"))] if s.model.scale else []
    if s.model.transitions.inputs is not None:
        path = Point(Path(s.model, s.series, s.here.data.nodes), s.here.theta)
        blocks += [(path, which) for which in regime_gibbs.rows_of_transitions(s.model)]
    for here, which in blocks:

        def move(rng, point, which=which):
            return regime_gibbs.propose(rng, point, which)

        for _ in range(2):
            new = move(s.rng, here)
            gain = gains[-1]
            back, forth = (
                log_gaussian_move(move, a, lambda p, w=which: p.theta[w], b.theta[which])
                for a, b in ((new, here), (here, new))
            )
            check_gain(s, here, new, gain, back, forth)
            walked = regime_gibbs.walk(s.rng, here, which)
            check_gain(s, here, walked, gains[-1], 0.0, 0.0)


def lag_coordinates(point):
    return point.data.model.every_effect.block("lags", point.parameters.coefficients)[:, 0, 0]


def log_lag_volume(point):
    """Logarithm of the determinant of the derivatives of lags in their coordinates, by differences."""
    at, h = regime_gibbs.own_places(point.data.model, "lags"), 1e-6
    columns = []
    for i in at:
        up, down = (point.moved(np.array([i]), point.theta[i] + sign * h) for sign in (1, -1))
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


MIXED = [c for c in CHOICES if c["start"] == "stationary" and c["transitions"] == "same"]


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
        back, forth = (
            (-shape * np.log(s2) - scale / s2).sum()
            for s2 in (p.parameters.phi[: len(shape), 1] for p in (s.here, new))
        )
        check_gain(s, s.here, new, gains[-1] if s.model.every_effect.mixed_start else 0.0, back, forth)


@pytest.mark.parametrize("choice", [c for c in CHOICES if c["transitions"] != "inputs"], ids=label)
def test_transition_matrices_are_drawn_from_their_distribution(choice, gains):
    """Or accepted as often as they should, where the first state depends on them."""
    s = Situation(choice, seed=1)
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
        back, forth = (log_q(p.parameters.transition) for p in (s.here, new))
        check_gain(s, s.here, new, gains[-1] if s.model.start is None else 0.0, back, forth)
