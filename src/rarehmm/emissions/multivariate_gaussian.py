r"""Gaussian observations in several columns, with full or diagonal covariance.

Each column is regressed on those before it (the modified Cholesky form of the covariance): with :math:`z = y - \mu`,

.. math:: e_i = z_i - \sum_{j<i} b_{ij} z_j \sim N(0, s_i).

Means and slopes :math:`b` are any numbers, residual variances :math:`s` positive ones: every value is a covariance, no
two are the same one, and no matrix is inverted.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import REALS, Domain
from rarehmm.emissions._missing_columns import of_columns
from rarehmm.emissions._sized import Sized
from rarehmm.engine.contracts.family import (
    Parameter,
    Prior,
    add_statistics,
    complete_score,
    log_density,
    prepare,
    score,
    statistics,
    summed_score,
)
from rarehmm.engine.dispatch import compiled, inner, specialise
from rarehmm.engine.lanes import LANES, any_lane, blank, load_columns, row, splat, store
from rarehmm.model.priors import (
    best_variance,
    draw_variance,
    location,
    normal_terms,
    pinned,
    slope_of_noise,
    squared_residual,
    squared_scale,
)


class MultivariateGaussian(Sized):
    """Bell-shaped noise in ``columns`` columns; ``diagonal`` if those are independent given the state.

    ``phi`` of one state: the means, the residual variances, the slopes row by row; ``phi_of`` and ``moments`` translate
    between these and covariances.
    """

    wide, accepts_partial_rows = True, True
    columns: int
    diagonal: bool

    def __new__(cls, columns: int = 2, diagonal: bool = False) -> "MultivariateGaussian":
        if isinstance(columns, bool) or not isinstance(columns, int | np.integer) or columns < 2:
            raise ValueError(f"columns is {columns!r}; a whole number from 2 is needed. For one, use Gaussian().")
        made: MultivariateGaussian = tuple.__new__(sized(int(columns), bool(diagonal)))
        return made

    @property
    def arguments(self) -> tuple[int, bool]:
        return self.columns, self.diagonal

    def __repr__(self) -> str:
        return f"MultivariateGaussian({self.columns}{', diagonal=True' if self.diagonal else ''})"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        D, noise = self.columns, "variance" if self.diagonal else "residual"
        means = [Parameter(f"mean_{i}", support="real", prior=location, column=i) for i in range(D)]
        scales = [
            Parameter(f"{noise}_{i}", support="positive", prior=squared_scale, column=i)
            if self.diagonal
            else Parameter(f"{noise}_{i}", support="positive", prior=squared_residual, column=(i, *range(i)))
            for i in range(D)
        ]
        slopes = [
            Parameter(f"slope_{i}_{j}", support="real", prior=slope_of_noise, column=(i, j)) for i, j in self.pairs
        ]
        return (*means, *scales, *slopes)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Which column is regressed on which, in the order of the slopes."""
        return [] if self.diagonal else [(i, j) for i in range(self.columns) for j in range(i)]

    @property
    def domain(self) -> Domain:
        return REALS

    # ------------------------------------------------------------ covariances
    def phi_of(self, mean: Array, covariance: Array) -> Array:
        """Parameters (..., P) from means (..., D) and covariances (..., D, D)."""
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise ValueError("a covariance is not positive definite; add a little to its diagonal.") from None
        diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
        unit = factor / diagonal[..., None, :]  # z = unit e
        slopes = np.eye(self.columns) - np.linalg.inv(unit)
        below = [slopes[..., i, j] for i, j in self.pairs]
        return np.concatenate([mean, diagonal**2, np.stack(below, -1) if below else mean[..., :0]], axis=-1)

    def moments(self, phi: Array) -> tuple[Array, Array]:
        """Means (..., D) and covariances (..., D, D) from parameters (..., P)."""
        phi = np.asarray(phi, dtype=float)
        factor = self.factor(phi)
        return phi[..., : self.columns], factor @ np.swapaxes(factor, -1, -2)

    def factor(self, phi: Array) -> Array:
        """Lower triangles (..., D, D) that make observations, but for their means, out of unit noise."""
        scales = np.sqrt(phi[..., self.columns : 2 * self.columns])
        return np.asarray(np.linalg.inv(self.residuals(phi)) * scales[..., None, :])

    def residuals(self, phi: Array) -> Array:
        """Matrices (..., D, D) that make residuals e out of z."""
        out = np.zeros((*phi.shape[:-1], self.columns, self.columns)) + np.eye(self.columns)
        for n, (i, j) in enumerate(self.pairs):
            out[..., i, j] = -phi[..., 2 * self.columns + n]
        return out

    # ------------------------------------------------------------ what the contract asks for
    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        noise = rng.standard_normal((len(states), self.columns))
        return np.asarray(phi[states, : self.columns] + np.einsum("tij,tj->ti", self.factor(phi)[states], noise))

    def estimate(self, y: Array, weight: Array) -> Array:
        """From the weighted mean and covariance of the observations of one state."""
        mean = np.average(y, axis=0, weights=weight)
        covariance = np.einsum("t,ti,tj->ij", weight, y - mean, y - mean) / weight.sum()
        residual, slopes = np.diag(covariance).copy(), []
        for i in range(1, 1 if self.diagonal else self.columns):  # least squares: rows may be few, columns copies
            slopes.append(np.linalg.lstsq(covariance[:i, :i], covariance[i, :i])[0])
            residual[i] -= slopes[-1] @ covariance[i, :i]
        least = 1e-9 * np.diag(covariance)  # copies have no noise of their own
        return np.concatenate([mean, np.maximum(residual, least), *slopes])

    def complete(self, rng: np.random.Generator, y: Array, phi: Array) -> Array:
        """Rows y (n, D) of one state with draws of what is missing, given the columns that are there."""
        out, (mean, covariance) = y.copy(), self.moments(phi)
        kinds, which = np.unique(np.isnan(y), axis=0, return_inverse=True)
        for n, gone in enumerate(kinds):
            if gone.any():
                mine, seen = np.flatnonzero(which == n), ~gone
                slope = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, gone)])
                rest = covariance[np.ix_(gone, gone)] - covariance[np.ix_(gone, seen)] @ slope
                noise = rng.standard_normal((len(mine), gone.sum())) @ np.linalg.cholesky(rest).T
                out[np.ix_(mine, gone)] = mean[gone] + (y[np.ix_(mine, seen)] - mean[seen]) @ slope + noise
        return out

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step: means, then slopes, then residual variances, each given the others."""
        out, known = phi.copy(), known_values(priors, len(phi))
        for k in range(len(phi)):
            self._update(out[k], known[k], counts[k], sums[k], priors, solve)
            s2 = [best_variance(*part) for part in self._noise(phi[k], out[k], counts[k], sums[k], priors)]
            new = np.array(s2).ravel()
            old = out[k, self.columns : 2 * self.columns]
            out[k, self.columns : 2 * self.columns] = np.where(np.isfinite(new) & (new > 0), new, old)
        return out

    def conditional(
        self, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
    ) -> Array:
        """A draw of the means, of the slopes given these, of the residual variances given both."""
        out, known = phi.copy(), known_values(priors, len(phi))
        for k in range(len(phi)):
            self._update(out[k], known[k], counts[k], sums[k], priors, functools.partial(drawn, rng))
            parts = self._noise(phi[k], out[k], counts[k], sums[k], priors)
            s2 = [draw_variance(rng, *part)[0] for part in parts]
            out[k, self.columns : 2 * self.columns] = s2
        return out

    def _update(
        self,
        phi: Array,
        values: Array,
        count: Array,
        sums: Array,
        priors: tuple[Prior, ...],
        by: Callable[..., Array],
    ) -> None:
        """Means and slopes of one state in place; ``by(precision, pull)`` solves, or draws from that Gaussian.

        ``values`` (P,): what is known of them, else NaN.
        """
        D, old = self.columns, phi[: self.columns].copy()
        to_residual = self.residuals(phi)
        precision = to_residual.T @ (to_residual / phi[D : 2 * D, None])
        known, pulled = np.array([normal_terms(prior) for prior in priors[:D]]).T
        total = sums[:D] + count * old
        phi[:D] = given(values[:D], count * precision + np.diag(known), precision @ total + pulled, old, by)
        squares = self._squares(phi[:D] - old, count, sums)
        for i in range(1, 1 if self.diagonal else D):
            mine = slice(2 * D + i * (i - 1) // 2, 2 * D + i * (i + 1) // 2)
            known, pulled = np.array([normal_terms(prior) for prior in priors[mine]]).T
            matrix = squares[:i, :i] / phi[D + i] + np.diag(known)
            phi[mine] = given(values[mine], matrix, squares[i, :i] / phi[D + i] + pulled, phi[mine], by)

    def _squares(self, shift: Array, count: Array, sums: Array) -> Array:
        """Sums (D, D) of z_i z_j around means that were shifted since the statistics were taken."""
        D = self.columns
        first, out = sums[:D], np.zeros((D, D))
        if self.diagonal:
            np.fill_diagonal(out, sums[D:])
        else:
            out[np.tril_indices(D)] = sums[D:]
            out += np.tril(out, -1).T
        out += count * np.outer(shift, shift) - np.outer(shift, first) - np.outer(first, shift)
        return np.asarray(np.diag(np.diag(out)) if self.diagonal else out)

    def _noise(self, old: Array, new: Array, count: Array, sums: Array, priors: tuple[Prior, ...]) -> Any:
        """Sum of squared residuals, count and prior of each column."""
        D = self.columns
        to_residual = self.residuals(new)
        squares = to_residual @ self._squares(new[:D] - old[:D], count, sums) @ to_residual.T
        for i in range(D):
            yield np.maximum(squares[i, i], 0.0)[None], np.array([count]), priors[D + i]


def known_values(priors: tuple[Prior, ...], K: int) -> Array:
    """What is known (K, P) of the parameters; NaN where nothing is."""
    return np.array([pinned(np.full(K, np.nan), prior) for prior in priors]).T


def given(values: Array, precision: Array, pull: Array, old: Array, by: Callable[..., Array]) -> Array:
    """``by`` for the entries that are not known (NaN), given the values of those that are."""
    free = np.isnan(values)
    out = values.copy()
    if free.any():
        rest = pull[free] - precision[np.ix_(free, ~free)] @ values[~free]
        out[free] = by(precision[np.ix_(free, free)], rest, old[free])
    return out


def solve(precision: Array, pull: Array, old: Array) -> Array:
    """The mean of a Gaussian by its precision; what nothing is known about stays as it was."""
    try:
        found = np.linalg.solve(precision, pull)
    except np.linalg.LinAlgError:
        return old
    return np.asarray(np.where(np.isfinite(found).all(), found, old))


def drawn(rng: np.random.Generator, precision: Array, pull: Array, _: Array) -> Array:
    """A draw of it."""
    try:
        factor = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        raise ValueError(
            "a mean or slope has no law to be drawn from: it has a Flat prior and its state has too few observations. "
            "Give it a prior (default_priors), or use fewer states."
        ) from None
    return np.asarray(np.linalg.solve(precision, pull) + np.linalg.solve(factor.T, rng.standard_normal(len(pull))))


# ---------------------------------------------------------------- compiled functions, for each number of columns
@functools.cache
def sized(columns: int, diagonal: bool) -> Any:
    r"""The class of families with so many columns, and its functions.

    Constants of a state: means, inverse residual variances, slopes, :math:`\mu_i - \sum_j b_{ij} \mu_j`, norm; slope
    (i, j) is at 2 D + i (i - 1) / 2 + j.  Statistics: z, then :math:`z_i z_j` for j <= i (j = i if diagonal), at
    D + i (i + 1) / 2 + j (D + i).
    """
    D, full = columns, not diagonal
    intercept = 2 * D + (D * (D - 1) // 2 if full else 0)
    norm = intercept + D
    Q = D + (D * (D + 1) // 2 if full else D)
    name = f"MultivariateGaussian{columns}{'Diagonal' if diagonal else ''}"
    space = {"columns": columns, "diagonal": diagonal, "__module__": __name__, "__slots__": ()}
    cls: Any = type(name, (MultivariateGaussian,), space)
    marginal, expect = of_columns(D, full)

    @inner
    def slope(i: Any, j: Any) -> Any:
        return 2 * D + i * (i - 1) // 2 + j

    @inner
    def square(i: Any, j: Any) -> Any:
        return D + i * (i + 1) // 2 + j if full else D + i

    @compiled(prepare, cls)
    def _(family: Any, phi: Any) -> Any:
        c = np.empty(norm + 1)
        c[norm] = 0.0
        for i in range(D):
            c[i], c[D + i], c[intercept + i] = phi[i], 1.0 / phi[D + i], phi[i]
            c[norm] -= 0.5 * math.log(2 * math.pi * phi[D + i])
            for j in range(i if full else 0):
                c[slope(i, j)] = phi[slope(i, j)]
                c[intercept + i] -= phi[slope(i, j)] * phi[j]
        return c

    @compiled(log_density, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        e = y[0] - c[0]
        total = e * e * c[D]
        for i in range(1, D):
            e = y[i] - c[intercept + i]
            for j in range(i if full else 0):
                e = e - c[slope(i, j)] * y[j]
            total = total + e * e * c[D + i]
        out = c[norm] - 0.5 * total
        return marginal(y, c, out) if any_lane(out != out) else out

    @compiled(add_statistics, cls)
    def _(family: Any, y: Any, c: Any, weight: Any, room: Any, total: Any) -> Any:
        room[0] = y[0] - c[0]
        check = room[0]
        for i in range(1, D):
            room[i] = y[i] - c[i]
            check = check + room[i]
        if any_lane(check != check):
            expect(y, c, weight, room, total)
        for i in range(D):
            z = weight * room[i]
            total[i] = total[i] + z
            for j in range(0 if full else i, i + 1):
                total[square(i, j)] = total[square(i, j)] + z * room[j]

    @compiled(summed_score, cls)
    def _(family: Any, count: Any, sums: Any, c: Any, out: Any) -> Any:
        for i in range(D):  # with S the sums of z z', and A z = e: rows of A S, then the diagonal of A S A'
            squares = sums[square(i, i)]
            for m in range(i if full else 0):
                squares = squares - c[slope(i, m)] * sums[square(i, m)]
            for j in range(i if full else 0):
                crossed = sums[square(i, j)]
                for m in range(i):
                    crossed = crossed - c[slope(i, m)] * sums[square(max(m, j), min(m, j))]
                squares = squares - c[slope(i, j)] * crossed
                out[slope(i, j)] = crossed * c[D + i]
            out[D + i] = 0.5 * (squares * c[D + i] - count) * c[D + i]
        for i in range(D):
            pull = sums[i]
            for j in range(i if full else 0):
                pull = pull - c[slope(i, j)] * sums[j]
            out[i] = pull * c[D + i]
        for j in range(D if full else 0):
            pull = out[j]
            for i in range(j + 1, D):
                pull = pull - c[slope(i, j)] * out[i]
            out[j] = pull

    @compiled(complete_score, cls)
    def _(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
        moved, out = blank(Q), blank(intercept)
        for i in range(D):
            shift = c[i] - hat[i]
            moved[i] = sums[i] - shift * count
            for j in range(0 if full else i, i + 1):
                moved[square(i, j)] = sums[square(i, j)] - shift * sums[j] - (c[j] - hat[j]) * moved[i]
        summed_score(family, count, moved, c, out)
        return out

    @compiled(statistics, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        return of_each(family, y, c)

    @compiled(score, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        return of_each_score(family, y, c)

    def of_each(family: Any, y: Any, c: Any) -> Any:
        total = [0.0] * Q
        add_statistics(family, y, c, 1.0, [0.0] * D, total)
        return tuple(total)

    def of_each_score(family: Any, y: Any, c: Any) -> Any:
        return tuple(complete_score(family, 1.0, statistics(family, y, c), c, c))

    # in kernels these are needed by a Product alone, which has tuples: through memory, hence slowly
    all_statistics, all_scores = load_columns(Q), load_columns(intercept)

    @inner
    def in_memory(family: Any, y: Any, c: Any) -> Any:
        own, total = np.empty(norm + 1), np.zeros((1, Q, LANES))
        x, room = np.empty((1, D, LANES)), np.empty((1, D, LANES))
        for i in range(norm + 1):
            own[i] = c[i]
        for i in range(D):
            store(x, (0, i), y[i])
        add_statistics(family, row(x, 0), own, splat(1.0), row(room, 0), row(total, 0))
        return own, total

    def of_each_lanes(family: Any, y: Any, c: Any) -> Any:
        return all_statistics(in_memory(family, y, c)[1], 0)

    def of_each_score_lanes(family: Any, y: Any, c: Any) -> Any:
        own, total = in_memory(family, y, c)
        out = np.empty((1, intercept, LANES))
        summed_score(family, splat(1.0), row(total, 0), own, row(out, 0))
        return all_scores(out, 0)

    specialise(of_each, lambda *kinds: of_each_lanes)
    specialise(of_each_score, lambda *kinds: of_each_score_lanes)

    return cls
