r"""Complete-data information: the curvature of the expected log density of observations and states, for EM steps.

Where inputs or earlier values enter the density, no sums of statistics are enough for an M-step.  What is enough for a
Newton step towards it is the gradient, which a pass computes anyway, and

.. math:: I = \sum_t \sum_u \gamma_t(u)\, w_u(t)\, J_u(t) J_u(t)^\top

with the responsibilities of kinds of densities, the precision w of an observation about its linear predictor, and the
derivatives J of the predictor in levels, coefficients of inputs and lags.  For a Gaussian family with known variances
and lags, the Newton step is the M-step.  All are sums over rows, for one column of data.
"""

from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.family import has, prepare, score, with_log_scale, with_predictor
from rarehmm.engine.kernels.lags import COMPLETE, lagged
from rarehmm.model.autoregression import AroundLevel, Hamilton
from rarehmm.model.effects import Effects, RowTerms, Steps, shifted
from rarehmm.model.parameters import Parameters
from rarehmm.model.unfolding import Unfolding


class Information(NamedTuple):
    """Sums over a stretch of rows.

    Attributes
    ----------
    counts
        Expected number of observations (K,) in each state.
    squares
        Expected sums (K, P) of the squared slopes of the log density, in the logarithms of positive parameters.
    location
        Information (L, L) about the levels of states, the coefficients of shared inputs, those of switching ones, and
        lags, in this order.
    scale
        Information (v, v) about the coefficients of inputs on the log scale.
    transition
        Information (K, (1 + q) K, (1 + q) K) about the logits of each row of the transition matrix and their slopes;
        empty unless transitions have inputs.
    advances
        Expected steps (K,) from one phase of a state to its next.
    """

    counts: Array
    squares: Array
    location: Array
    scale: Array
    transition: Array
    advances: Array


def total_information(parts: list[Information]) -> Information:
    """Sums over all rows."""
    return Information(*(np.sum(part, axis=0) for part in zip(*parts, strict=True)))


def information(
    effects: Effects, parameters: Parameters, terms: RowTerms, kinds: Array, counts: Array, unfolding: Unfolding
) -> Information:
    """Information from a stretch of rows.

    Parameters
    ----------
    effects, parameters
        Those of the model.
    terms
        The rows.
    kinds
        Responsibilities (n, U) of the kinds of densities.
    counts
        Expected transitions (n, E) along edges; read only if transitions have inputs.
    unfolding
        That of the model.
    """
    K, P = parameters.phi.shape
    y, there = terms.y[:, 0], ~np.isnan(terms.y[:, 0])
    y, gamma = y[there], kinds[there]
    seen, squares, weight = np.zeros(K), np.zeros((K, P)), np.zeros(kinds.shape)
    memories = _memories(effects, parameters, terms, unfolding)
    for u, k in enumerate(unfolding.states[:, 0]):
        eta = _predictor(effects, parameters, terms, unfolding, memories, u)[there]
        zeta = _by_state(terms.x, terms.at.scale, terms.at.scales, k, u, K)[there]
        phi, slopes = _moved_scores(effects, parameters.phi[k], y, eta, zeta)
        seen[k] += gamma[:, u].sum()
        squares[k] += slopes**2 @ gamma[:, u]
        weight[there, u] = gamma[:, u] * _precision(effects, y, phi, slopes)
    location = _location(effects, parameters, terms, unfolding, memories, weight)
    scale = np.zeros((0, 0))
    if effects.scale:
        v = effects.scale.design(terms.rows)[there]
        scale = 2.0 * (v * gamma.sum(1)[:, None]).T @ v
    transition = transition_information(effects, terms.steps, counts, unfolding)
    return Information(seen, squares, location, scale, transition, np.zeros(K))


def _by_state(x: Array, first: int, count: int, k: int, u: int, K: int) -> Array:
    """Column (n,) that kind u of state k reads: one for all, one for each state or one for each kind; 0 without any."""
    if count == 0:
        return np.zeros(len(x))
    return x[:, first + (0 if count == 1 else k if count == K else u)]


def _memories(effects: Effects, parameters: Parameters, terms: RowTerms, unfolding: Unfolding) -> Array:
    """Share of the last level (n, U) that each kind of density remembers; around the level alone."""
    states, at = unfolding.states[:, 0], terms.at
    if not isinstance(effects.autoregression, AroundLevel):
        return np.zeros((len(terms.y), 0))
    if at.memories > 0:
        each = [_by_state(terms.x, at.memory, at.memories, k, u, effects.n_states) for u, k in enumerate(states)]
        return np.stack(each, axis=1)
    total = effects.block("lags", parameters.coefficients)[:, 0].sum(0)
    return np.broadcast_to(total[states if len(total) > 1 else 0 * states], (len(terms.y), len(states)))


def _predictor(
    effects: Effects, parameters: Parameters, terms: RowTerms, unfolding: Unfolding, memories: Array, u: int
) -> Array:
    """Linear predictor (n,) of kind u, without the level of its own state."""
    at, k = terms.at, int(unfolding.states[u, 0])
    out = _by_state(terms.x, at.offset, at.offsets, k, u, effects.n_states)
    if memories.shape[1] == 0:
        return out
    i = int(unfolding.chain.before[u])
    past = terms.x[:, at.past + i] if at.pasts > 0 else 0.0
    return np.asarray(out - memories[:, u] * (parameters.phi[i, effects.moves.level[0]] + past))


def _moved_scores(effects: Effects, phi: Array, y: Array, eta: Array, zeta: Array) -> tuple[Array, Array]:
    """Parameters (P, n) of a state as inputs move them, and slopes (P, n) in the logarithms of positive ones."""
    family, moves, c = effects.family, effects.moves, prepare(effects.family, phi)
    if len(moves.predicted) > 0:
        y, c = with_predictor(family, y, c, eta)
    if moves.power.any():
        y, c = with_log_scale(family, y, c, zeta)
    found, values = [], []
    for i, (p, one) in enumerate(zip(family.parameters, score(family, y, c), strict=True)):
        value = np.full(len(eta), phi[i]) * np.exp(moves.power[i] * zeta)
        if moves.column[i] >= 0:
            value = value * np.exp(eta) if moves.logs[i] else value + eta
        values.append(value)
        found.append(one * value if p.support == "positive" else one + np.zeros(len(eta)))
    return np.stack(values), np.stack(found)


def _precision(effects: Effects, y: Array, phi: Array, slopes: Array) -> Array:
    """Precision (n,) of observations about the linear predictor; by default the squared slope of the log density."""
    family: Any = effects.family
    if has(family, "precision"):
        return np.asarray(family.precision(y, phi))
    return np.asarray(slopes[effects.moves.column == 0].sum(0) ** 2)


def _location(
    effects: Effects, parameters: Parameters, terms: RowTerms, unfolding: Unfolding, memories: Array, weight: Array
) -> Array:
    """Information (L, L) about levels, inputs and lags, from the precisions (n, U) of kinds.

    Columns of shared inputs are the same for all kinds whose lags are, and are multiplied once.
    """
    shapes, states = effects.shapes, unfolding.states
    sizes = [
        effects.n_states,
        shapes["location"][0],
        int(np.prod(shapes["switching"][::2])),
        int(np.prod(shapes["lags"][::2])),
    ]
    shared = slice(sizes[0], sizes[0] + sizes[1])
    rest = np.r_[0 : sizes[0], sizes[0] + sizes[1] : sum(sizes)]
    out = np.zeros((sum(sizes), sum(sizes)))
    switching_lags = shapes["lags"][2] > 1
    design = effects.location.design(terms.rows) if effects.location else np.zeros((len(terms.y), 0))
    groups = (
        [np.flatnonzero(states[:, 0] == k) for k in range(effects.n_states)]
        if switching_lags
        else [np.arange(len(states))]
    )
    for group in groups:
        x = _filtered(effects, parameters, terms, design, int(states[group[0], 0]))
        total = weight[:, group].sum(1)
        out[shared, shared] += (x * total[:, None]).T @ x
        cross = np.zeros((len(x), len(rest)))
        for u in group:
            own = _derivatives(effects, parameters, terms, unfolding, memories, int(u))
            weighted = own * weight[:, u, None]
            out[np.ix_(rest, rest)] += weighted.T @ own
            cross += weighted
        out[shared, rest] += x.T @ cross
    out[rest, shared] = out[shared, rest].T
    return out


def _filtered(effects: Effects, parameters: Parameters, terms: RowTerms, design: Array, k: int) -> Array:
    """Derivative (n, p) of the predictor of state k in the coefficients of shared inputs, less that of its lags."""
    ar = effects.autoregression
    if design.shape[1] == 0 or not isinstance(ar, AroundLevel | Hamilton):
        return design
    phi = effects.block("lags", parameters.coefficients)[:, 0]
    share = phi[:, k] if phi.shape[1] > 1 else phi[:, 0]
    complete = (terms.lags[0].marks == COMPLETE)[:, None]
    out = design - np.where(complete, sum(share[m] * shifted(design, m + 1) for m in range(len(share))), 0.0)
    if terms.memory is not None:
        gap, last = terms.lags[0].marks[terms.after], terms.lags[0].last(terms.after)
        out[terms.after] -= terms.memory.correlation[gap, None] * design[last]
    return out


def _derivatives(
    effects: Effects, parameters: Parameters, terms: RowTerms, unfolding: Unfolding, memories: Array, u: int
) -> Array:
    """Derivatives (n, K + q K + lags) of the predictor of kind u in levels, switching inputs and lags.

    Where lags are missing, the dependence of what is remembered on their coefficients is left out.
    """
    K, n, ar, path = effects.n_states, len(terms.y), effects.autoregression, unfolding.states[u]
    level, j = np.zeros((n, K)), int(path[0])
    level[:, j] = 1.0
    z = effects.switching.design(terms.rows) if effects.switching else np.zeros((n, 0))
    own = np.zeros((n, z.shape[1], K))
    own[:, :, j] = z
    lags = np.zeros((n, *effects.shapes["lags"][::2]))
    if ar is None:
        return np.hstack([level, own.reshape(n, -1)])
    phi = effects.block("lags", parameters.coefficients)[:, 0]
    p, at = ar.order, j if phi.shape[1] > 1 else 0
    complete = terms.lags[0].marks == COMPLETE
    table = lagged(terms.lags[0].values, terms.lags[0].marks, p)
    levels = parameters.phi[:, effects.moves.level[0]]
    if isinstance(ar, AroundLevel):
        i = int(path[1])
        level[:, i] -= memories[:, u]
        earlier = shifted(z, 1)
        earlier[terms.after] = z[terms.lags[0].last(terms.after)]
        own[:, :, i] -= memories[:, u, None] * earlier
        past = terms.x[:, terms.at.past + i] if terms.at.pasts > 0 else 0.0
        table = table - (levels[i] + past)[..., None] if effects.switching else table - levels[i]
    elif isinstance(ar, Hamilton):
        for m in range(1, p + 1):
            i, share = int(path[m]), np.where(complete, phi[m - 1, at], 0.0)
            level[:, i] -= share
            own[:, :, i] -= share[:, None] * shifted(z, m)
            before = shifted(terms.lags[0].own, m)[:, i] if effects.switching else 0.0
            table[:, m - 1] -= levels[i] + before
    lags[:, :, at] = np.where(complete[:, None], table, 0.0)
    return np.hstack([level, own.reshape(n, -1), lags.reshape(n, -1)])


def transition_information(effects: Effects, steps: Steps, counts: Array, unfolding: Unfolding) -> Array:
    """Information about the logits of each row of the transition matrix, and about their slopes."""
    K = effects.n_states
    q = 1 + (effects.slopes.size if effects.slopes else 0)
    if effects.slopes is None:
        return np.zeros((0, 0, 0))
    z, which = steps.z, steps.which
    own = unfolding.transitions(steps.matrices[which] if len(z) < len(which) else steps.matrices, counts).sum(-1)
    if len(z) < len(which):
        own = np.column_stack([np.bincount(which, column, len(z)) for column in own.T])
    x, out = np.column_stack([np.ones(len(z)), z]), np.zeros((K, q, K, q, K))
    for j in range(K):
        P = steps.matrices[:, j]
        for k in range(K):
            for m in range(k, K):
                weight = own[:, j] * (P[:, k] * ((k == m) - P[:, m]))
                out[j, :, k, :, m] = out[j, :, m, :, k] = (x * weight[:, None]).T @ x
    return out.reshape(K, q * K, q * K)
