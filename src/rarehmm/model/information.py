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
from rarehmm.engine.kernels.lags import COMPLETE, NOTHING, lagged
from rarehmm.model.autoregression import AroundLevel, Hamilton, Intercept
from rarehmm.model.effects import NO_ROWS, Effects, Lags, RowTerms, Steps, shifted
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


SEGMENT = 32  # neighbouring rows that are sampled together
EVEN = 0.2  # share of a sample of segments that does not depend on what is in them


def information(
    effects: Effects,
    parameters: Parameters,
    terms: RowTerms,
    kinds: Array,
    counts: Array,
    unfolding: Unfolding,
    most: int | None = None,
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
    most
        Number of rows from which the information about emissions is estimated where there are more than twice as many;
        None: all of them.
    """
    K, P = parameters.phi.shape
    if most is not None and len(kinds) > 2 * most:
        terms, kinds = some_segments(terms, kinds, most, effects.reach)
    gone = np.isnan(terms.y[:, 0])
    there = ~gone if gone.any() else slice(None)
    y, gamma = terms.y[there, 0], kinds[there]
    seen, squares, weight = np.zeros(K), np.zeros((K, P)), np.zeros(kinds.shape)
    memories = _memories(effects, parameters, terms, unfolding)
    need = needs_slopes(effects)
    for u, k in enumerate(unfolding.states[:, 0]):
        eta = _predictor(effects, parameters, terms, unfolding, memories, u)[there]
        zeta = _by_state(terms.x, terms.at.scale, terms.at.scales, k, u, K)[there]
        phi = _parameters_at(effects, parameters.phi[k], eta, zeta)
        seen[k] += gamma[:, u].sum()
        slopes = _slopes(effects, parameters.phi[k], phi, y, eta, zeta) if need else np.zeros((0, len(y)))
        if need:
            squares[k] += slopes**2 @ gamma[:, u]
        weight[there, u] = gamma[:, u] * _precision(effects, y, phi, slopes)
    location = _location(effects, parameters, terms, unfolding, memories, weight)
    scale = np.zeros((0, 0))
    if effects.scale:
        v = effects.scale.design(terms.rows)[there]
        scale = 2.0 * (v * gamma.sum(1)[:, None]).T @ v
    transition = transition_information(effects, terms.steps, counts, unfolding)
    return Information(seen, squares, location, scale, transition, np.zeros(K))


def some_segments(terms: RowTerms, kinds: Array, most: int, reach: int) -> tuple[RowTerms, Array]:
    """A sample of segments with about ``most`` rows, and its responsibilities, weighted to represent all rows.

    The more of what there is little of is in a segment, the more probable it is.  Before each come the rows of its
    lags, which do not count.
    """
    n, first = len(kinds), np.arange(0, len(kinds), SEGMENT)
    sums, total = np.add.reduceat(kinds, first), kinds.sum(0)
    share = (sums[:, total > 0] / total[total > 0]).mean(1)
    probability = np.minimum(1.0, most / SEGMENT * ((1 - EVEN) * share + EVEN / len(first)))
    cumulated = np.cumsum(probability)
    taken = np.unique(np.searchsorted(cumulated, np.arange(0.5, cumulated[-1])))
    low, high = np.maximum(first[taken] - reach, 0), np.minimum(first[taken] + SEGMENT, n)
    starts = np.cumsum(high - low) - (high - low)
    rows = np.arange(int((high - low).sum())) + np.repeat(low - starts, high - low)
    weight = np.repeat(1 / probability[taken], high - low)
    weight[np.repeat(first[taken], high - low) > rows] = 0.0
    marks = [lag.marks[rows] for lag in terms.lags]
    begin = np.repeat(starts, high - low)
    for mark in marks:  # what was observed before a gap may not be part of the sample
        lost = (mark > 0) & (np.arange(len(rows)) - mark < begin)
        weight[lost], mark[lost] = 0.0, NOTHING
    lags = tuple(Lags(lag.values[rows], mark, lag.own[rows]) for lag, mark in zip(terms.lags, marks, strict=True))
    after = np.flatnonzero(np.isin(rows, terms.after) & (marks[0] > 0)) if len(terms.after) > 0 else NO_ROWS
    few = terms._replace(
        y=terms.y[rows], x=terms.x[rows], rows=terms.rows.at(rows), lags=lags, after=after, first=NO_ROWS
    )
    return few, kinds[rows] * weight[:, None]


def needs_slopes(effects: Effects) -> bool:
    """Whether some parameter is neither a variance nor moved by inputs, or the family has no precision of its own."""
    moves = effects.moves
    return bool(((moves.power != 2.0) & (moves.column < 0)).any()) or not has(effects.family, "precision")


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


def _parameters_at(effects: Effects, phi: Array, eta: Array, zeta: Array) -> Array:
    """Parameters (P, n) of a state as inputs move them."""
    moves = effects.moves
    out = np.broadcast_to(phi[:, None], (len(phi), len(eta)))
    if not (moves.power.any() or (moves.column >= 0).any()):
        return out
    out = out * np.exp(moves.power[:, None] * zeta) if zeta.any() else out.copy()
    for i in np.flatnonzero(moves.column >= 0):
        out[i] = out[i] * np.exp(eta) if moves.logs[i] else out[i] + eta
    return out


def _slopes(effects: Effects, phi: Array, values: Array, y: Array, eta: Array, zeta: Array) -> Array:
    """Slopes (P, n) of the log density in the logarithms of positive parameters, and in the others."""
    family, c = effects.family, prepare(effects.family, phi)
    if len(effects.moves.predicted) > 0:
        y, c = with_predictor(family, y, c, eta)
    if effects.moves.power.any():
        y, c = with_log_scale(family, y, c, zeta)
    positive = np.array([p.support == "positive" for p in family.parameters])
    return np.stack([np.broadcast_to(one, values[0].shape) for one in score(family, y, c)]) * np.where(
        positive[:, None], values, 1.0
    )


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

    Derivatives of the predictor of each kind are fixed combinations of a few columns that all kinds share, so that
    weighted moments of these are enough.
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
    design = effects.location.design(terms.rows) if effects.location else np.zeros((len(terms.y), 0))
    base = BaseColumns(effects, parameters, terms)
    switching_lags = shapes["lags"][2] > 1
    groups = (
        [np.flatnonzero(states[:, 0] == k) for k in range(effects.n_states)]
        if switching_lags
        else [np.arange(len(states))]
    )
    for group in groups:
        x = _filtered(effects, parameters, terms, design, int(states[group[0], 0]))
        out[shared, shared] += (x * weight[:, group].sum(1)[:, None]).T @ x
        for u in group:
            weighted = base.values * weight[:, u, None]
            turn = base.combinations(states[u], memories[:, u] if memories.shape[1] > 0 else None)
            out[np.ix_(rest, rest)] += turn @ (weighted.T @ base.values) @ turn.T
            out[shared, rest] += (x.T @ weighted) @ turn.T
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


class BaseColumns:
    """Columns (n, B) of which the derivatives of every kind's predictor in levels, switching inputs and lags are fixed
    combinations.

    Lags are taken relative to the mean level, which avoids cancellation.  Where lags are missing, the dependence of
    what is remembered on their coefficients is left out.
    """

    def __init__(self, effects: Effects, parameters: Parameters, terms: RowTerms) -> None:
        ar, n = effects.autoregression, len(terms.y)
        self.effects, self.ar = effects, ar
        self.at: dict[str, slice] = {}
        self.columns: list[Array] = []
        self._add("one", np.ones((n, 1)))
        z = effects.switching.design(terms.rows) if effects.switching else np.zeros((n, 0))
        self._add("inputs", z)
        if ar is not None:
            self.phi = effects.block("lags", parameters.coefficients)[:, 0]
            self.levels = parameters.phi[:, effects.moves.level[0]] if not isinstance(ar, Intercept) else np.zeros(1)
            self._add_lags(terms, z)
        self.values = np.hstack(self.columns)

    def _add(self, name: str, values: Array) -> None:
        first = sum(part.shape[1] for part in self.columns)
        self.at[name] = slice(first, first + values.shape[1])
        self.columns.append(values)

    def _add_lags(self, terms: RowTerms, z: Array) -> None:
        """Add the columns that lags bring."""
        lag, at = terms.lags[0], terms.at
        complete = (lag.marks == COMPLETE).astype(float)[:, None]
        self.centre = float(self.levels.mean())
        table = lagged(lag.values, lag.marks, self.ar.order if self.ar else 0)
        self._add("complete", complete)
        self._add("lags", np.where(complete > 0, table - self.centre, 0.0))
        if isinstance(self.ar, AroundLevel):
            self.memory = terms.x[:, at.memory : at.memory + 1] if at.memories == 1 else None
            earlier = shifted(z, 1)
            earlier[terms.after] = z[lag.last(terms.after)]
            if self.memory is not None:
                self._add("memory", self.memory)
                self._add("remembered", self.memory * earlier)
            else:
                self._add("earlier", earlier)
            self._add("past", complete * terms.x[:, at.past : at.past + at.pasts])
        elif isinstance(self.ar, Hamilton):
            for m in range(1, self.ar.order + 1):
                self._add(f"earlier {m}", complete * shifted(z, m))
                self._add(f"past {m}", complete * shifted(lag.own, m))

    def combinations(self, path: Array, memory: Array | None) -> Array:
        """Derivatives (K + q K + lags, B) of the predictor of the kind with these states, newest first.

        ``memory`` (n,) is its share of the last level; read only where it does not differ between rows.
        """
        K, shapes = self.effects.n_states, self.effects.shapes
        q, (p, Q) = shapes["switching"][0], shapes["lags"][::2]
        level, own = np.zeros((K, self.values.shape[1])), np.zeros((q, K, self.values.shape[1]))
        lags, j = np.zeros((p, Q, self.values.shape[1])), int(path[0])
        level[j, self.at["one"]] = 1.0
        own[:, j, self.at["inputs"]] = np.eye(q)
        if self.ar is None:
            return np.concatenate([level, own.reshape(q * K, level.shape[1])])
        at = j if Q > 1 else 0
        lags[:, at, self.at["lags"]] = np.eye(p)
        lags[:, at, self.at["complete"]] = self.centre
        if isinstance(self.ar, AroundLevel):
            i = int(path[1])
            if self.memory is not None:
                level[i, self.at["memory"]] -= 1.0
                own[:, i, self.at["remembered"]] -= np.eye(q)
            else:
                share = float(memory[0]) if memory is not None else 0.0
                level[i, self.at["one"]] -= share
                own[:, i, self.at["earlier"]] -= share * np.eye(q)
            lags[:, at, self.at["complete"]] -= self.levels[i]
            if (past := self.at["past"]).stop > past.start:
                lags[:, at, past.start + i] -= 1.0
        elif isinstance(self.ar, Hamilton):
            for m in range(1, p + 1):
                i, share = int(path[m]), float(self.phi[m - 1, at])
                level[i, self.at["complete"]] -= share
                own[:, i, self.at[f"earlier {m}"]] -= share * np.eye(q)
                lags[m - 1, at, self.at["complete"]] -= self.levels[i]
                if (past := self.at[f"past {m}"]).stop > past.start:
                    lags[m - 1, at, past.start + i] -= 1.0
        return np.concatenate([level, own.reshape(q * K, level.shape[1]), lags.reshape(p * Q, level.shape[1])])


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
