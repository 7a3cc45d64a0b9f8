r"""Gaussian observations in several columns, with full or diagonal covariance.

Each column is regressed on the earlier ones (the modified Cholesky form of the covariance): with :math:`z = y - \mu`,

.. math:: e_i = z_i - \sum_{j<i} b_{ij} z_j \sim N(0, s_i).

Means and slopes :math:`b` are real, residual variances :math:`s` positive: every value of them gives a covariance, each
covariance is given by exactly one value, and no matrix has to be inverted.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import REALS, Domain
from rarehmm.emissions._missing_columns import expect_of, marginal_of, n_parameters, n_statistics, square_place
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
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled, inner, specialise
from rarehmm.engine.lanes import LANES, any_lane, blank, lanes_type, load_columns, row, splat, store, tuple_of
from rarehmm.model.conjugate import best_variance, draw_variance, normal_terms, positive_or
from rarehmm.model.priors import pinned
from rarehmm.model.scaled_priors import location, slope_of_noise, squared_residual, squared_scale


class MultivariateGaussian(Sized):
    """Multivariate normal distribution of several columns.

    The parameters of a state are its means, its residual variances, and the slopes of the regression of each column on
    the earlier ones, row by row.  ``phi_of`` and ``moments`` convert between these and covariances.  A row in which
    some columns are missing (NaN) contributes the others.

    Inputs move the means; on the log scale they multiply the residual standard deviations.  A log scale that is the
    same for all columns multiplies the covariance; different ones leave the slopes as they are.

    Attributes
    ----------
    columns
        Number of columns, at least 2.
    diagonal
        Whether the columns are independent given the state; then there are no slopes.
    """

    wide, accepts_partial_rows = True, True
    columns: int
    diagonal: bool

    def __new__(cls, columns: int = 2, diagonal: bool = False) -> "MultivariateGaussian":
        if isinstance(columns, bool) or not isinstance(columns, int | np.integer) or columns < 2:
            raise ValueError(
                f"columns is {columns!r}; it must be a whole number, at least 2. For one column use Gaussian()."
            )
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
    def linear_predictor(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters[: self.columns])

    @property
    def log_scale(self) -> tuple[tuple[str, float], ...]:
        return tuple((p.name, 2.0) for p in self.parameters[self.columns : 2 * self.columns])

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs (i, j) of a column and an earlier one on which it is regressed, in the order of the slopes."""
        return [] if self.diagonal else [(i, j) for i in range(self.columns) for j in range(i)]

    @property
    def domain(self) -> Domain:
        return REALS

    # ------------------------------------------------------------ covariances
    def phi_of(self, mean: Array, covariance: Array) -> Array:
        """Parameters from means and covariances.

        Parameters
        ----------
        mean
            Means of states, (..., D).
        covariance
            Covariances of states, (..., D, D).

        Returns
        -------
        array
            Parameters ``phi`` of these states, (..., P).
        """
        try:
            factor = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            raise ValueError("a covariance is not positive definite; add a small number to its diagonal.") from None
        diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
        unit = factor / diagonal[..., None, :]  # z = unit e
        slopes = np.eye(self.columns) - np.linalg.inv(unit)
        below = [slopes[..., i, j] for i, j in self.pairs]
        return np.concatenate([mean, diagonal**2, np.stack(below, -1) if below else mean[..., :0]], axis=-1)

    def moments(self, phi: Array) -> tuple[Array, Array]:
        """Means and covariances from parameters.

        Parameters
        ----------
        phi
            Parameters of states, (..., P).

        Returns
        -------
        mean, covariance
            Arrays (..., D) and (..., D, D).
        """
        phi = np.asarray(phi, dtype=float)
        factor = self.factor(phi)
        return phi[..., : self.columns], factor @ np.swapaxes(factor, -1, -2)

    def factor(self, phi: Array) -> Array:
        """Lower triangular matrices (..., D, D) that turn unit noise into z, observations less their means."""
        scales = np.sqrt(phi[..., self.columns : 2 * self.columns])
        return np.asarray(np.linalg.inv(self.residuals(phi)) * scales[..., None, :])

    def residuals(self, phi: Array) -> Array:
        """Matrices (..., D, D) that turn z into residuals e."""
        out = np.zeros((*phi.shape[:-1], self.columns, self.columns)) + np.eye(self.columns)
        for n, (i, j) in enumerate(self.pairs):
            out[..., i, j] = -phi[..., 2 * self.columns + n]
        return out

    # ------------------------------------------------------------ draws, M-step
    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        noise = rng.standard_normal((len(states), self.columns))
        return np.asarray(phi[states, : self.columns] + np.einsum("tij,tj->ti", self.factor(phi)[states], noise))

    def estimate(self, y: Array, weight: Array) -> Array:
        """From the weighted mean and covariance of the observations of one state."""
        mean = np.average(y, axis=0, weights=weight)
        covariance = np.einsum("t,ti,tj->ij", weight, y - mean, y - mean) / weight.sum()
        residual, slopes = np.diag(covariance).copy(), []
        for i in range(
            1, 1 if self.diagonal else self.columns
        ):  # least squares, since there may be few rows, or columns that are copies
            slopes.append(np.linalg.lstsq(covariance[:i, :i], covariance[i, :i])[0])
            residual[i] -= slopes[-1] @ covariance[i, :i]
        least = 1e-9 * np.diag(covariance)  # a copy of other columns has no residual noise
        return np.concatenate([mean, np.maximum(residual, least), *slopes])

    def cdfs(self, y: Array, phi: Array) -> Array:
        """P(Y_i <= y_i) of each column (n, D) by itself, in a state with parameters phi (P,)."""
        mean, covariance = self.moments(phi.T)
        return np.asarray(ndtr((y - mean) / np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))))

    def complete(self, rng: np.random.Generator, y: Array, phi: Array) -> Array:
        """Rows y (n, D) of one state, with missing entries drawn given the columns that are present."""
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
        out, fixed = phi.copy(), fixed_values(priors, len(phi))
        for k in range(len(phi)):
            self._update(out[k], fixed[k], counts[k], sums[k], priors, solve)
            s2 = [best_variance(*part) for part in self._noise(phi[k], out[k], counts[k], sums[k], priors)]
            new = np.array(s2).ravel()
            old = out[k, self.columns : 2 * self.columns]
            out[k, self.columns : 2 * self.columns] = positive_or(old, new)
        return out

    def conditional(
        self, rng: np.random.Generator, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]
    ) -> Array:
        """Draw the means, then the slopes given the means, then the residual variances given both."""
        out, fixed = phi.copy(), fixed_values(priors, len(phi))
        for k in range(len(phi)):
            self._update(out[k], fixed[k], counts[k], sums[k], priors, functools.partial(draw_gaussian, rng))
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
        """Update means and slopes of one state in place.

        ``values`` (P,) are fixed values, NaN where a parameter is free; ``by(precision, linear, old)`` returns the mean
        of the Gaussian with that precision (``solve``), or draws from it (``draw_gaussian``).
        """
        D, old = self.columns, phi[: self.columns].copy()
        to_residual = self.residuals(phi)
        precision = to_residual.T @ (to_residual / phi[D : 2 * D, None])
        weight, pulled = np.array([normal_terms(prior) for prior in priors[:D]]).T
        total = sums[:D] + count * old
        phi[:D] = given(values[:D], count * precision + np.diag(weight), precision @ total + pulled, old, by)
        squares = self._squares(phi[:D] - old, count, sums)
        for i in range(1, 1 if self.diagonal else D):
            mine = slice(2 * D + i * (i - 1) // 2, 2 * D + i * (i + 1) // 2)
            weight, pulled = np.array([normal_terms(prior) for prior in priors[mine]]).T
            matrix = squares[:i, :i] / phi[D + i] + np.diag(weight)
            phi[mine] = given(values[mine], matrix, squares[i, :i] / phi[D + i] + pulled, phi[mine], by)

    def _squares(self, shift: Array, count: Array, sums: Array) -> Array:
        """Sums (D, D) of z_i z_j around means that are shifted from those of the statistics."""
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


def fixed_values(priors: tuple[Prior, ...], K: int) -> Array:
    """Fixed values (K, P) of the parameters; NaN where they are free."""
    return np.array([pinned(np.full(K, np.nan), prior) for prior in priors]).T


def given(values: Array, precision: Array, linear: Array, old: Array, by: Callable[..., Array]) -> Array:
    """Apply ``by`` to the free entries (NaN in ``values``), given the values of the fixed ones."""
    free = np.isnan(values)
    out = values.copy()
    if free.any():
        rest = linear[free] - precision[np.ix_(free, ~free)] @ values[~free]
        out[free] = by(precision[np.ix_(free, free)], rest, old[free])
    return out


def solve(precision: Array, linear: Array, old: Array) -> Array:
    """Mean of a Gaussian from its precision; the old value if the precision is singular."""
    try:
        found = np.linalg.solve(precision, linear)
    except np.linalg.LinAlgError:
        return old
    return np.asarray(np.where(np.isfinite(found).all(), found, old))


def draw_gaussian(rng: np.random.Generator, precision: Array, linear: Array, _: Array) -> Array:
    """Draw from a Gaussian given by its precision."""
    try:
        factor = np.linalg.cholesky(precision)
    except np.linalg.LinAlgError:
        raise ValueError(
            "a mean or slope has no proper distribution to be drawn from: its prior is Flat and its state has too few "
            "observations. Give it a prior (default_priors), or use fewer states."
        ) from None
    return np.asarray(np.linalg.solve(precision, linear) + np.linalg.solve(factor.T, rng.standard_normal(len(linear))))


# ---------------------------------------------------------------- compiled functions, for each number of columns
@functools.cache
def sized(columns: int, diagonal: bool) -> Any:
    r"""Class for a number of columns, with its compiled functions.

    Constants of a state: means, inverse residual variances, slopes (at ``slope_place``), intercepts
    :math:`\mu_i - \sum_j b_{ij} \mu_j`, norm.  Statistics: z, then :math:`z_i z_j` for j <= i, or for j = i if the
    covariance is diagonal (at ``square_place``).
    """
    name = f"MultivariateGaussian{columns}{'Diagonal' if diagonal else ''}"
    space = {"columns": columns, "diagonal": diagonal, "__module__": __name__, "__slots__": ()}
    cls: Any = type(name, (MultivariateGaussian,), space)
    for attach in (attach_density, attach_statistics, attach_scores, attach_tuples, attach_moves):
        attach(cls, columns, not diagonal)
    return cls


def slope_place(D: int) -> Any:
    """Function of i and j < i: place of slope (i, j) among the parameters and the constants of D columns."""

    @inner
    def slope(i: Any, j: Any) -> Any:
        return 2 * D + i * (i - 1) // 2 + j

    return slope


def attach_density(cls: Any, D: int, full: bool) -> None:
    """Attach ``prepare`` and ``log_density``."""
    intercept, norm = n_parameters(D, full), n_parameters(D, full) + D
    slope, marginal = slope_place(D), marginal_of(D, full)

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


def attach_statistics(cls: Any, D: int, full: bool) -> None:
    """Attach ``add_statistics``."""
    square, expect = square_place(D, full), expect_of(D, full)

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


def attach_scores(cls: Any, D: int, full: bool) -> None:
    """Attach ``summed_score`` and ``complete_score``."""
    intercept, Q = n_parameters(D, full), n_statistics(D, full)
    slope, square = slope_place(D), square_place(D, full)

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
            linear = sums[i]
            for j in range(i if full else 0):
                linear = linear - c[slope(i, j)] * sums[j]
            out[i] = linear * c[D + i]
        for j in range(D if full else 0):
            linear = out[j]
            for i in range(j + 1, D):
                linear = linear - c[slope(i, j)] * out[i]
            out[j] = linear

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


def attach_tuples(cls: Any, D: int, full: bool) -> None:
    """Attach ``statistics`` and ``score``, which return tuples."""
    intercept, norm, Q = n_parameters(D, full), n_parameters(D, full) + D, n_statistics(D, full)

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

    # in kernels only a Product, which has tuples, needs these: through memory, and therefore slowly
    all_statistics, all_scores = load_columns(Q), load_columns(intercept)

    @inner
    def numbers_in_memory(c: Any) -> Any:
        own = np.empty(norm + 1)
        for i in range(norm + 1):
            own[i] = c[i]
        return own

    @inner
    def lanes_in_memory(c: Any) -> Any:
        own = np.empty((1, norm + 1, LANES))
        for i in range(norm + 1):
            store(own, (0, i), c[i])
        return own

    @inner
    def all_of(own: Any) -> Any:
        return own

    @inner
    def first_of(own: Any) -> Any:
        return row(own, 0)

    def functions(in_memory: Any, constants: Any) -> tuple[Any, Any]:
        """Functions for the statistics and the score, with constants that are numbers or lanes.

        A row does not keep its memory alive: rows are taken in functions whose callers hold it.
        """

        @inner
        def add(family: Any, y: Any, own: Any, x: Any, room: Any, total: Any) -> None:
            for i in range(D):
                store(x, (0, i), y[i])
            add_statistics(family, row(x, 0), constants(own), splat(1.0), row(room, 0), row(total, 0))

        @inner
        def write(family: Any, own: Any, total: Any, out: Any) -> None:
            summed_score(family, splat(1.0), row(total, 0), constants(own), row(out, 0))

        def of_each_lanes(family: Any, y: Any, c: Any) -> Any:
            total = np.zeros((1, Q, LANES))
            add(family, y, in_memory(c), np.empty((1, D, LANES)), np.empty((1, D, LANES)), total)
            return all_statistics(total, 0)

        def of_each_score_lanes(family: Any, y: Any, c: Any) -> Any:
            own, total, out = in_memory(c), np.zeros((1, Q, LANES)), np.empty((1, intercept, LANES))
            add(family, y, own, np.empty((1, D, LANES)), np.empty((1, D, LANES)), total)
            write(family, own, total, out)
            return all_scores(out, 0)

        return of_each_lanes, of_each_score_lanes

    of_numbers, of_lanes = functions(numbers_in_memory, all_of), functions(lanes_in_memory, first_of)

    def chosen(n: int) -> Any:
        return lambda family, y, c: of_lanes[n] if getattr(c, "dtype", None) is lanes_type else of_numbers[n]

    specialise(of_each, chosen(0))
    specialise(of_each_score, chosen(1))


def attach_moves(cls: Any, D: int, full: bool) -> None:
    """Attach ``with_predictor`` and ``with_log_scale``, whose rows and constants are tuples, also in kernels."""
    norm = n_parameters(D, full) + D

    def constant(i: Any, c: Any, zeta: Any) -> Any:
        if D <= i < 2 * D:
            return c[i] * np.exp(-2.0 * zeta[i - D])
        value = c[i] + 0.0 * zeta[0]
        for j in range(D if i == norm else 0):
            value = value - zeta[j]
        return value

    shifted, scaled = tuple_of(D, lambda i, y, eta: y[i] - eta[i]), tuple_of(norm + 1, constant)

    @compiled(with_predictor, cls)
    def _(family: Any, y: Any, c: Any, eta: Any) -> Any:
        return shifted(y, eta), c

    @compiled(with_log_scale, cls)
    def _(family: Any, y: Any, c: Any, zeta: Any) -> Any:
        return y, scaled(c, zeta)
