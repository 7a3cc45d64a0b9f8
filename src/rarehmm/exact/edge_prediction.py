"""What models whose rows differ predict of each row from those before it: a mixture over kinds of densities."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import columns, move_parameters
from rarehmm.engine.kernels.edges import Columns, EdgePoint, log_forward_edges, place
from rarehmm.exact.densities import row_ranges
from rarehmm.exact.edge_pass import EdgePass
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters


class Prediction(NamedTuple):
    """Predictive distributions of n rows, from ``first`` on.

    ``y`` (n, D): observations, missing where they do not count; ``weight`` (n, U): probability of each kind of density,
    given the rows before; ``phi`` (U, n, P): its parameters.
    """

    first: int
    y: Array
    weight: Array
    phi: Array


def predictions(model: Model, parameters: Parameters, series: Series) -> Iterator[Prediction]:
    """Yield the predictive distributions of all rows, one stretch at a time."""
    work, chain = EdgePass(model, parameters, series, 1, False), model.unfolding.chain
    M, U = len(chain.first_kind), len(chain.state)
    before = np.full(M, -np.inf)
    for low, high in row_ranges(series):
        terms, logp, log_weight, log_start, fresh = work.log_terms(low, high)
        filtered, last = np.empty((high - low, M)), before.copy()
        log_forward_edges(logp, log_weight, log_start, fresh, chain, before, filtered, np.empty(high - low))
        edges = np.exp(np.vstack([last, filtered[:-1]])[:, chain.source] + log_weight) @ _shares(chain.kind, U)
        firsts = np.exp(np.broadcast_to(log_start, (high - low, M))) @ _shares(chain.first_kind, U)
        ext = len(terms.y) - (high - low)
        phi = kind_parameters(model, work.point, terms.at, terms.x[ext:])
        yield Prediction(low, terms.y[ext:], np.where(fresh[:, None], firsts, edges), phi)


def _shares(kind: IntArray, U: int) -> Array:
    """Matrix (E, U) that adds up what belongs to each kind."""
    return np.asarray(kind[:, None] == np.arange(U), dtype=float)


def kind_parameters(model: Model, point: EdgePoint, at: Columns, x: Array) -> Array:
    """Parameters (U, n, P) of the density of each kind in rows whose columns are x (n, C)."""
    chain, D, K = model.unfolding.chain, columns(model.family), model.n_states
    out = np.empty((len(chain.state), len(x), point.phi.shape[1]))
    for u, (k, i) in enumerate(zip(chain.state, chain.before, strict=True)):
        eta, zeta = np.zeros((len(x), D)), np.zeros((len(x), 1))
        for d in range(D):
            if at.offsets > 0:
                eta[:, d] = x[:, at.offset + d * at.offsets + place(at.offsets, K, k, u)]
            if len(point.memory) > 0:
                level = point.level[u, d] + (x[:, at.past + d * K + i] if at.pasts > 0 else 0.0)
                share = x[:, at.memory + place(at.memories, K, k, u)] if at.memories > 0 else point.memory[k, d]
                eta[:, d] -= share * level
        if at.scales > 0:
            zeta[:, 0] = x[:, at.scale + place(at.scales, K, k, u)]
        out[u] = move_parameters(model.family, point.phi[k], eta, zeta)
    return out
