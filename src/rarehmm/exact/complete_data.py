"""Series with their states: paths drawn given the parameters, and the density and its derivatives given a path.

For models whose rows differ.  A path is one of nodes (``model.unfolding``), from which states, edges and kinds of
densities follow.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rarehmm.common.arrays import Array, BoolArray, IntArray
from rarehmm.data.series import Series
from rarehmm.engine.kernels.edges import draw_nodes_backward, log_forward_edges
from rarehmm.exact.block_pass import Expectations
from rarehmm.exact.densities import row_ranges, sequence_starts
from rarehmm.exact.edge_pass import EdgePass, check_possible
from rarehmm.model.effects import RowTerms
from rarehmm.model.information import Information, transition_information
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters

LeftOut = Callable[[RowTerms], IntArray]


def draw_nodes(rng: np.random.Generator, model: Model, parameters: Parameters, series: Series) -> IntArray:
    """Draw a path of nodes (T,) given the series: filter forwards, sample backwards, all in log space."""
    return sample_nodes(rng.random(len(series)), *filtered_nodes(model, parameters, series))


def filtered_nodes(model: Model, parameters: Parameters, series: Series) -> tuple[EdgePass, Array]:
    """Logarithms (T, M) of the filtered probabilities of nodes, and the pass that reads the rows."""
    work, chain = EdgePass(model, parameters, series, 1, False), model.unfolding.chain
    T, M = len(series), len(chain.first_kind)
    filtered, predictive, before = np.empty((T, M)), np.empty(T), np.zeros(M)
    for low, high in row_ranges(series):
        _, logp, log_weight, log_start, fresh = work.log_terms(low, high)
        with np.errstate(invalid="ignore"):
            log_forward_edges(
                logp, log_weight, log_start, fresh, chain, before, filtered[low:high], predictive[low:high]
            )
    check_possible(series, predictive)
    return work, filtered


def sample_nodes(uniform: Array, work: EdgePass, filtered: Array) -> IntArray:
    """Path of nodes (T,) that follows from uniform numbers (T,) and the log filter (T, M)."""
    nodes = np.empty(len(filtered), dtype=np.int64)
    last = np.cumsum(np.exp(filtered[-1]))
    nodes[-1] = np.searchsorted(last, uniform[-1] * last[-1], side="right")
    for low, high in reversed(row_ranges(work.series)):
        _, logp, log_weight, _, fresh = work.log_terms(low, high)
        draw_nodes_backward(logp, log_weight, fresh, work.model.unfolding.chain, filtered, low, uniform, nodes)
    return nodes


@dataclass(frozen=True, eq=False)
class CompleteData:
    """A series together with a path of nodes (T,)."""

    model: Model
    series: Series
    nodes: IntArray

    @functools.cached_property
    def fresh(self) -> BoolArray:
        """Mask (T,) of the rows in which sequences begin."""
        return sequence_starts(self.series, 0, len(self.series))

    @functools.cached_property
    def edges(self) -> IntArray:
        """The edge (T,) into each row, and 0 where sequences begin."""
        chain = self.model.unfolding.chain
        number = np.zeros((len(chain.first_kind),) * 2, dtype=np.int64)
        number[chain.source, chain.target] = np.arange(len(chain.source))
        return np.where(self.fresh, 0, number[np.roll(self.nodes, 1), self.nodes])

    @functools.cached_property
    def kinds(self) -> IntArray:
        """The kind of density (T,) of each row."""
        chain = self.model.unfolding.chain
        return np.where(self.fresh, chain.first_kind[self.nodes], chain.kind[self.edges])

    @property
    def states(self) -> IntArray:
        """The state (T,) of each row."""
        return np.asarray(self.model.unfolding.chain.node_state[self.nodes])

    @functools.cached_property
    def steps(self) -> Array:
        """Number of steps (E,) along each edge."""
        count = len(self.model.unfolding.chain.source)
        return np.bincount(self.edges[~self.fresh], minlength=count).astype(float)

    def log_density(self, parameters: Parameters) -> float:
        """Log density of the series and the path given the parameters, but for the family's constants."""
        work, total = EdgePass(self.model, parameters, self.series, 1, False), 0.0
        for low, high in row_ranges(self.series):
            _, logp, log_weight, log_start, fresh = work.log_terms(low, high)
            rows, row = slice(low, high), np.arange(high - low)
            step = log_weight[row if len(log_weight) > 1 else 0, self.edges[rows]]
            start = log_start[row if len(log_start) > 1 else 0, self.nodes[rows]]
            total += float((logp[row, self.kinds[rows]] + np.where(fresh, start, step)).sum())
        return total

    def expectations(self, parameters: Parameters, left_out: LeftOut | None = None) -> Expectations:
        """Derivatives and information of the log density, of which the densities of some rows are left out.

        The log likelihood among them is 0.
        """
        model, chain = self.model, self.model.unfolding.chain
        work = EdgePass(model, parameters, self.series, 1, False, back=True, with_information=True)
        E, U, M = len(chain.source), len(chain.state), len(chain.first_kind)
        flat, gradients, about = [], [], []
        for low, high in row_ranges(self.series):
            terms, _, _, _, fresh = work.log_terms(low, high)
            rows, row = slice(low, high), np.arange(high - low)
            kinds, weights = np.zeros((high - low, U)), np.zeros((high - low, E))
            kinds[row, self.kinds[rows]] = 1.0
            if left_out is not None:
                gone = left_out(terms) - (len(terms.y) - (high - low))
                kinds[gone[gone >= 0]] = 0.0
            weights[row, np.where(fresh, self.nodes[rows], self.edges[rows])] = 1.0
            steps = weights[~fresh].sum(0)
            firsts = np.bincount(self.nodes[rows][fresh], minlength=M).astype(float)
            mine, slopes, found = work.derivatives(terms, kinds, weights, steps, firsts)
            flat.append(mine)
            gradients.append(slopes)
            about.append(found)
        return work.expectations(0.0, np.sum(flat, axis=0).sum(-1), gradients, about)


@dataclass(frozen=True, eq=False)
class Path(CompleteData):
    """A path of nodes by itself, of a model whose transitions have inputs: the density without the observations."""

    def log_density(self, parameters: Parameters) -> float:
        """Log probability of the path given the parameters."""
        return self.expectations(parameters).log_likelihood

    def expectations(self, parameters: Parameters, left_out: LeftOut | None = None) -> Expectations:  # noqa: ARG002
        """Log probability of the path, its derivatives and its information."""
        model, effects, unfolding = self.model, self.model.every_effect, self.model.unfolding
        work = EdgePass(model, parameters, self.series, 1, False)
        K, E, found = model.n_states, len(unfolding.chain.source), np.zeros(effects.size)
        value, pairs, about = 0.0, np.zeros((K, K)), []
        for low, high in row_ranges(self.series):
            n, rows = high - low, slice(low, high)
            steps = effects.steps(parameters, self.series.read_rows(low, high), work.begins(low, high), unfolding, True)
            here = np.where(self.fresh[rows], self.nodes[rows], self.edges[rows])
            with np.errstate(divide="ignore"):
                value += float(np.log(effects.weights(steps, n, unfolding)[np.arange(n), here]).sum())
            counts = np.zeros((n, E))
            counts[np.arange(n), here] = 1.0
            between = np.where(self.fresh[rows, None], 0.0, counts)
            about.append(transition_information(effects, steps, between, unfolding))
            pairs += effects.transition_gradients(steps, counts, np.zeros(steps.starts.shape), found, unfolding)
        none, P = np.zeros(K), parameters.phi.shape[1]
        m = K + sum(math.prod(effects.shapes[name][::2]) for name in ("location", "switching", "lags"))
        information = Information(
            none, np.zeros((K, P)), np.zeros((m, m)), np.zeros((effects.shapes["scale"][0],) * 2),
            np.sum(about, axis=0), none,
        )  # fmt: skip
        scores = np.zeros((K, P))
        return Expectations(value, scores, none, np.zeros((K, 0)), pairs, none, found, information)
