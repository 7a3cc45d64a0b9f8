"""An emission family of your own, to copy: Gumbel noise, as in daily maxima, with a longer upper than lower tail.

The first part is all that a fit needs; the rest is optional (docs/how-to/own_family.md says what it is good for).
"""

import math
from typing import NamedTuple

import numpy as np

import rarehmm as rh
from rarehmm.emissions import REALS, Parameter, compiled, location, log_density, prepare, score


def own_scale(summary):
    """Default prior from the summary of a column: size, mean, variance, low, high, roughness (noise variance)."""
    return rh.InverseGamma(2.0, math.sqrt(summary.roughness))


class Gumbel(NamedTuple):
    r"""Gumbel distribution: :math:`p(y \mid m_k, s_k) = s_k^{-1} e^{-z - e^{-z}}`, :math:`z = (y - m_k) / s_k`.

    Settings, if there were any, would be fields of the class: ``nu: float = 5.0``.
    """

    parameters = (  # of one state, in the order of phi; "positive" parameters are sampled as logarithms
        Parameter("mode", support="real", prior=location),
        Parameter("scale", support="positive", prior=own_scale),
    )
    domain = REALS  # or POSITIVE, COUNTS, ANGLES, or another Domain; every series is checked against it

    def draw(self, rng, states, phi):  # observations (T,) of states (T,) with parameters phi (K, P)
        return rng.gumbel(phi[states, 0], phi[states, 1])

    # ---- optional
    def estimate(self, y, weight):  # parameters (P,) of one state from its observations: a faster start
        mean = np.average(y, weights=weight)
        scale = math.sqrt(6 * np.average((y - mean) ** 2, weights=weight)) / math.pi
        return np.array([mean - np.euler_gamma * scale, scale])

    def cdf(self, y, phi):  # P(Y <= y) in one state: for residuals
        return np.exp(-np.exp(-(y - phi[0]) / phi[1]))


# Either write the log density alone, from which everything else is derived ...
@rh.density_of(Gumbel)
def _(family, y, mode, scale):
    z = (y - mode) / scale
    return -np.log(scale) - z - np.exp(-z)


# ... or write all three functions by hand, as here for comparison.
class GumbelByHand(NamedTuple):
    parameters, domain, draw = Gumbel.parameters, Gumbel.domain, Gumbel.draw


@compiled(prepare, GumbelByHand)
def _(family, phi):  # constants of one state, computed once: divisions and logarithms belong here
    return phi[0], 1 / phi[1], -math.log(phi[1])


@compiled(log_density, GumbelByHand)
def _(family, y, c):  # c is what prepare returned
    z = (y - c[0]) * c[1]
    return c[2] - z - np.exp(-z)


@compiled(score, GumbelByHand)
def _(family, y, c):  # derivatives of the log density with respect to phi, a tuple
    z = (y - c[0]) * c[1]
    pull = (1 - np.exp(-z)) * c[1]
    return pull, z * pull - c[1]


print(rh.check_emission(Gumbel()))  # test the family numerically before a long fit
rh.check_emission(GumbelByHand())

rng = np.random.default_rng(0)
states = np.zeros(20_000, dtype=int)
for begin in (3_000, 9_000, 16_000):
    states[begin : begin + 40] = 1
y = Gumbel().draw(rng, states, np.array([[10.0, 2.0], [30.0, 4.0]]))
hmm = rh.RareHMM(2, emission=Gumbel()).fit(y)
print(hmm.summary().loc[["mode[0]", "scale[0]", "mode[1]", "scale[1]"], ["mean", "5.0%", "95.0%"]])
print(hmm.verdict_)

assert hmm.rare_states_.tolist() == [1]
assert np.mean(hmm.predict(y) == states) > 0.999
assert abs(hmm.means_[1, 0] - 30) < 2
assert len(hmm.rare_events(y)) == 3
phi = np.array([1.0, 2.0])
by_hand = score(GumbelByHand(), y, prepare(GumbelByHand(), phi))
np.testing.assert_allclose(score(Gumbel(), y, prepare(Gumbel(), phi)), by_hand, rtol=1e-12, atol=1e-12)
