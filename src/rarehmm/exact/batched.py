"""Log posteriors of many points at once, for importance sampling and full-data Monte Carlo.

Sixteen points share each reading of an observation (see ``engine.kernels.batched``), without any set-up for each of
them: on a short series this is tens of times faster than one pass per point.  Where rows differ, because of inputs,
lags, phases or known states, and where the rows are a sample of blocks, values are computed in the same way (see
``batched_edges``), and there is one pass per point for gradients.
"""

import functools
import os
import threading
from concurrent.futures import wait
from contextlib import nullcontext, suppress

import numpy as np

from rarehmm.common.arrays import Array, BoolArray
from rarehmm.common.checks import check_threads
from rarehmm.data.workers import available_threads, pool
from rarehmm.engine.contracts.family import prepare
from rarehmm.engine.dispatch import explained
from rarehmm.engine.kernels.batched import Batch, advance, batch, gradients
from rarehmm.engine.kernels.messages import Point
from rarehmm.engine.lanes import LANES
from rarehmm.exact.batched_edges import BatchedEdges, fits_lanes
from rarehmm.exact.block_pass import CAREFUL, LogSpaceNeededError, Pass
from rarehmm.exact.block_sample import Observations, objective_of, rows_in
from rarehmm.exact.densities import constant_total, row_ranges, sequence_starts
from rarehmm.exact.passes import log_posterior, log_posterior_value, needs_edges
from rarehmm.exact.statistics import n_summed
from rarehmm.model.model import Model

TOGETHER = 8  # groups of points that share what is computed from rows alone
MESSAGE_BYTES = 1 << 27  # limit on the messages of sixteen points that are kept for the backward pass


class BatchedLogPosterior:
    """Log posterior of a model given a series, as a function of many points theta (n, d)."""

    def __init__(self, model: Model, series: Observations, threads: int | None = None) -> None:
        self.rows_differ = needs_edges(model, series)
        check_threads(threads)
        self.model, self.series, self.rows = model, series, rows_in(series)
        self.threads = threads or available_threads()
        self.objective = objective_of(series)
        self.is_exact = self.objective.is_exact
        self.short = self.is_exact and 2 * (len(series) + 1) * model.n_states * 8 * LANES <= MESSAGE_BYTES
        self.underflow_matters: bool | None = None  # whether forbidden transitions leave hardly any path
        self.workspaces: dict[tuple[int, int], tuple[Point, Batch]] = {}  # by thread and number of steps

    @functools.cached_property
    def edges(self) -> BatchedEdges | None:
        """How values are computed in lanes where rows differ or are a sample of blocks; None if they are not."""
        if (not self.rows_differ and self.is_exact) or not fits_lanes(self.model, self.series):
            return None
        found = BatchedEdges(self.model, self.series)
        return found if found.fits else None

    def values(self, theta: Array) -> Array:
        """Log posteriors (n,); minus infinity for points out of bounds, or where blocks cannot represent the series."""
        return self._values(theta, None)

    def values_and_slopes(self, theta: Array) -> tuple[Array, Array]:
        """Log posteriors (n,) and their gradients (n, d); minus infinity and 0 for points out of bounds."""
        slopes = np.zeros(theta.shape)
        return self._values(theta, slopes), slopes

    def _values(self, theta: Array, slopes: Array | None) -> Array:
        """Log posteriors (n,), with their gradients written to ``slopes`` (n, d) unless it is None."""
        theta = np.ascontiguousarray(theta, dtype=float)
        low, high = self.model.bounds
        out = np.full(len(theta), -np.inf)
        inside = self._stationary(theta, ((theta >= low) & (theta <= high)).all(1))
        one_by_one = (self.rows_differ or not self.is_exact) and (slopes is not None or self.edges is None)
        one_by_one |= slopes is not None and (not self.short or bool(self.model.tied))
        alone = inside & (True if one_by_one else self._careful(theta, inside))
        together = np.nonzero(inside & ~alone)[0]
        if len(together) > 0:
            out[together], found = self._together(theta[together], slopes is not None)
            if slopes is not None:
                slopes[together] = found
            alone[together] = ~np.isfinite(out[together])
        for i in np.nonzero(alone)[0]:
            with nullcontext() if self.is_exact else suppress(LogSpaceNeededError):  # else -inf
                if slopes is None:
                    out[i] = log_posterior_value(self.model, theta[i], self.series, threads=self.threads)
                else:
                    out[i], slopes[i] = log_posterior(self.model, theta[i], self.series, threads=self.threads)
        return out

    def _stationary(self, theta: Array, inside: BoolArray) -> BoolArray:
        """Mask of the points whose lags are stationary where they must be: rounding may put them at the very edge."""
        out, model = inside.copy(), self.model
        if model.coefficients.is_partial:
            out[inside] = model.every_effect.are_stationary(model.unpack_coefficients(theta[inside]))
        return out

    def _careful(self, theta: Array, inside: BoolArray) -> BoolArray:
        """Mask of the points whose transitions are so improbable that lanes may lose what matters.

        Forbidden transitions are examined once: they affect the data in much the same way at all points.
        """
        out, allowed = np.zeros(len(theta), dtype=bool), self.model.fixed_values.allowed
        if self.edges is not None and self.rows_differ:
            out[inside] = self.edges.is_tiny(theta[inside])
            return out
        if inside.any() and not allowed.all() and self.underflow_matters is None:
            parameters = self.model.unpack(theta[np.argmax(inside)])
            self.underflow_matters = Pass(self.model, parameters, self.series, self.threads, True).underflow_matters()
        smallest = np.where(allowed, self.model.unpack_all(theta[inside])[1], 1.0).min((1, 2))
        out[inside] = (smallest < CAREFUL) | bool(self.underflow_matters)
        return out

    def _together(self, theta: Array, back: bool) -> tuple[Array, Array]:
        """Log posteriors (n,) of points within bounds and, with ``back``, their gradients (n, d), in lanes."""
        values, slopes = np.empty(len(theta)), np.empty(theta.shape)
        size = LANES * (1 if back or self.edges is None else min(TOGETHER, -(-len(theta) // (LANES * self.threads))))
        parts = [theta[i : i + size] for i in range(0, len(theta), size)]
        waiting, stop = iter(range(len(parts))), threading.Event()  # each thread takes the next from ``waiting``

        def drain(thread: int) -> None:
            for i in waiting:
                if stop.is_set():
                    return
                rows = slice(i * size, (i + 1) * size)
                self._batch(parts[i], thread, values[rows], slopes[rows] if back else None)

        helpers = min(self.threads, len(parts)) - 1
        others = [pool(helpers, os.getpid()).submit(drain, i + 1) for i in range(helpers)]
        try:
            drain(0)
        except BaseException:
            stop.set()
            raise
        finally:
            wait(others)
        for other in others:
            other.result()
        values += self.model.log_prior(theta) + constant_total(self.model, self.series)
        if not self.is_exact:
            values += [self.objective.correction(point)[0] for point in theta]
        return values, slopes

    def _batch(self, theta: Array, thread: int, values: Array, slopes: Array | None) -> None:
        """Log likelihoods of up to LANES points and, if ``slopes`` is given, the gradients of their log posteriors.

        Where rows differ, there may be more points, which share what is computed from rows alone.
        """
        if slopes is None and self.edges is not None:
            values[:] = self.edges.log_likelihoods(theta)
            return
        family, target, back = self.model.family, self.model.target, slopes is not None
        theta = self.model.with_fixed(theta)
        point, group = self._workspace(thread, len(self.series) if back else 1)
        with explained(self.model.name):
            for low, high in [(0, len(self.series))] if back else row_ranges(self.rows):
                y, fresh = self._rows(low, high)
                advance(family, target, theta, point, y, fresh, group, low == 0, back)
            values[:] = group.total[0, : len(theta)]
            if slopes is not None:
                every = np.empty(theta.shape)
                gradients(family, target, theta, point, y, fresh, group, every)
                slopes[:] = every[:, self.model.free]

    def _workspace(self, thread: int, n: int) -> tuple[Point, Batch]:
        """Arrays of one thread for n steps, made on first use."""
        if (thread, n) not in self.workspaces:
            point = empty_point(self.model)
            self.workspaces[thread, n] = point, batch(point, self.series.n_columns, n, n_summed(self.model.family))
        return self.workspaces[thread, n]

    def _rows(self, low: int, high: int) -> tuple[Array, BoolArray]:
        """Rows of the series, and a mask of where sequences begin among them and the row after."""
        fresh = np.append(sequence_starts(self.rows, low, high), False)
        fresh[-1] = high in self.rows.bounds
        return self.rows.read(low, high), fresh


def empty_point(model: Model) -> Point:
    """Uninitialised parameters of a model, in the form that kernels read."""
    K, P = model.n_states, len(model.family.parameters)
    phi = np.ones((K, P))
    return Point(phi, np.empty((K, len(prepare(model.family, phi[0])))), np.empty((K, K)), np.empty(K))
