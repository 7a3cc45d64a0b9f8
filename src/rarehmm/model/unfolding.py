"""The chain of nodes and edges to which the states of a model unfold, and the way back from expectations on it.

A state of several phases is as many nodes.  Where the density depends on earlier states, a node is the tuple of the
last q of them, newest first, and each edge has a density of its own kind.
"""

import functools
import itertools
from dataclasses import dataclass

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.engine.kernels.edges import Chain


@dataclass(frozen=True, eq=False)
class Unfolding:
    """Unfolded states.

    Attributes
    ----------
    chain
        Nodes, edges and kinds of densities as kernels see them.
    entry
        Entry (E, 2) of the transition matrix that each edge uses.
    advance
        Mask (E,) of the edges from one phase of a state to its next, with all that is left of the row.
    paths
        States (M, q) of each node, newest first.
    phases
        Number of phases (K,) of each state.
    states
        States (U, q + 1) of each kind of density, newest first; (U, 1) where the density depends on the state alone.
    """

    chain: Chain
    entry: IntArray
    advance: BoolArray
    paths: IntArray
    phases: IntArray
    states: IntArray

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.phases)

    # ------------------------------------------------------------ probabilities of edges and of first nodes
    def weights(self, transition: Array) -> Array:
        """Probabilities of edges (..., E) from transition matrices (..., K, K)."""
        i, j = self.entry.T
        out = transition[..., i, j]
        if self.advance.any():
            out = np.where(self.advance, 1 - out, out)
        return out

    def transitions(self, transition: Array, edges: Array) -> Array:
        """Expected transitions between states (..., K, K) from those along edges (..., E).

        A step to the next phase of a state counts for all other states, in proportion to their probabilities.
        """
        i, j = self.entry.T
        out = np.zeros((*edges.shape[:-1], self.n_states, self.n_states))
        if not self.advance.any():
            flat = out.reshape(*edges.shape[:-1], self.n_states * self.n_states)
            if len(np.unique(i * self.n_states + j)) == len(i):
                flat[..., i * self.n_states + j] = edges
            else:
                for e, at in enumerate(i * self.n_states + j):
                    flat[..., at] += edges[..., e]
            return out
        for e, (a, b) in enumerate(self.entry):
            if self.advance[e]:
                others = transition[..., a, :].copy()
                others[..., a] = 0.0
                out[..., a, :] += edges[..., e, None] * others / others.sum(-1, keepdims=True)
            else:
                out[..., a, b] += edges[..., e]
        return out

    def start(self, start: Array, stationary: bool) -> Array:
        """Distribution of the first node (..., M), given that of the first state (..., K).

        If that is ``stationary``, so is the distribution of phases; a given one begins with the first phase of a state.
        States before the first do not matter, and are the same as it.
        """
        if self.paths.shape[1] > 1:
            same = (self.paths == self.paths[:, :1]).all(1)
            return np.where(same, start[..., self.paths[:, 0]], 0.0)
        if stationary:
            return np.asarray((start / (start @ self.phases)[..., None])[..., self.chain.node_state])
        return np.where(self.is_first_phase, start[..., self.chain.node_state], 0.0)

    def first_states(self, start: Array, first: Array, stationary: bool) -> Array:
        """Expected first states (K,) that follow from expected first nodes (M,)."""
        found = np.bincount(self.chain.node_state, first, self.n_states).astype(float)
        if stationary and self.phases.max() > 1:
            found -= first.sum() * self.phases * start / (self.phases @ start)
        return found

    @functools.cached_property
    def is_first_phase(self) -> BoolArray:
        """Mask (M,) of the nodes that are the first phase of their state."""
        return np.asarray(np.diff(self.chain.node_state, prepend=-1) != 0)


def unfold(allowed: BoolArray, phases: IntArray, q: int) -> Unfolding:
    """Unfold states with these ``allowed`` transitions (K, K) and ``phases`` (K,).

    ``q`` is the number of earlier states that the density depends on.
    """
    if q > 1:
        return _tuples(allowed, q)
    K = len(phases)
    state = np.repeat(np.arange(K), phases)  # (M,)
    first = np.cumsum(phases) - phases  # node of the first phase of each state
    edges: list[tuple[int, int, int, int, bool]] = []  # source, target, entry, whether to the next phase
    for k in range(K):
        for phase in range(phases[k]):
            node = first[k] + phase
            last = phase == phases[k] - 1
            follows = [node if j == k else first[j] for j in range(K)]
            edges += [(node, follows[j], k, j, False) for j in range(K) if allowed[k, j] and (last or j == k)]
            if not last:
                edges.append((node, node + 1, k, k, True))
    source, target, i, j, advance = (np.array(part) for part in zip(*edges, strict=True))
    if q == 0:
        kind, states, first_kind = state[target], np.arange(K)[:, None], state
    else:
        kind = state[source] * K + state[target]
        states = np.array([(b, a) for a in range(K) for b in range(K)])
        first_kind = state * (K + 1)
    return Unfolding(
        _chain(source, target, kind, first_kind, states, state, i * K + j), np.column_stack([i, j]),
        advance.astype(bool), state[:, None], phases, states,
    )  # fmt: skip


def _tuples(allowed: BoolArray, q: int) -> Unfolding:
    """Nodes that are tuples of q states, and an edge to each tuple that continues one."""
    K = len(allowed)
    paths = np.array(list(itertools.product(range(K), repeat=q)))  # newest first
    number = {tuple(path): n for n, path in enumerate(paths.tolist())}
    edges = [
        (n, number[(k, *path[:-1])], path[0], k, (k, *path))
        for n, path in enumerate(paths.tolist())
        for k in range(K)
        if allowed[path[0], k]
    ]
    source, target, i, j = (np.array([edge[part] for edge in edges]) for part in range(4))
    states = np.array([edge[4] for edge in edges])
    kind = np.arange(len(edges))
    first_kind = np.array([int(np.argmax(states[:, 0] == path[0])) for path in paths])
    return Unfolding(
        _chain(source, target, kind, first_kind, states, paths[:, 0], i * K + j), np.column_stack([i, j]),
        np.zeros(len(edges), dtype=bool), paths, np.ones(K, dtype=np.int64), states,
    )  # fmt: skip


def _chain(
    source: IntArray,
    target: IntArray,
    kind: IntArray,
    first_kind: IntArray,
    states: IntArray,
    node_state: IntArray,
    entry: IntArray,
) -> Chain:
    """The chain in the form that kernels read."""
    before = states[:, min(1, states.shape[1] - 1)]
    idle = 1.0 / np.bincount(source)[source]
    parts = (source, target, kind, first_kind, states[:, 0], before, node_state, entry)
    s, t, k, f, state, earlier, node, at = (np.ascontiguousarray(part, dtype=np.int64) for part in parts)
    return Chain(s, t, k, f, state, earlier, node, idle, at)
