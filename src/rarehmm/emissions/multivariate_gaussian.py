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

from rarehmm.dispatch import compiled
from rarehmm.emissions import Parameter, complete_score, log_density, prepare, score, statistics
from rarehmm.emissions.sized import Sized
from rarehmm.lanes import tuple_of
from rarehmm.priors import (
    Prior,
    best_variance,
    draw_variance,
    location,
    normal_terms,
    pinned,
    slope_of_noise,
    squared_scale,
)
from rarehmm.series import REALS, Array, Domain, IntArray


class MultivariateGaussian(Sized):
    """Bell-shaped noise in ``columns`` columns; ``diagonal`` if those are independent given the state.

    ``phi`` of one state: the means, the residual variances, the slopes row by row; ``phi_of`` and ``moments`` translate
    between these and covariances.
    """

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
        scales = [Parameter(f"{noise}_{i}", support="positive", prior=squared_scale, column=i) for i in range(D)]
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
        D, phi = self.columns, np.asarray(phi, dtype=float)
        unit = np.linalg.inv(self.residuals(phi))
        return phi[..., :D], np.einsum("...ij,...j,...kj->...ik", unit, phi[..., D : 2 * D], unit)

    def residuals(self, phi: Array) -> Array:
        """Matrices (..., D, D) that make residuals e out of z."""
        out = np.zeros((*phi.shape[:-1], self.columns, self.columns)) + np.eye(self.columns)
        for n, (i, j) in enumerate(self.pairs):
            out[..., i, j] = -phi[..., 2 * self.columns + n]
        return out

    # ------------------------------------------------------------ what the contract asks for
    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        means, covariances = self.moments(phi)
        noise = rng.standard_normal((len(states), self.columns))
        return np.asarray(means[states] + np.einsum("tij,tj->ti", np.linalg.cholesky(covariances)[states], noise))

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
    """The class of families with so many columns, and its functions: kernels unroll over columns.

    Constants of a state: means, inverse residual variances, slopes, norm; slope (i, j) is at 2 D + i (i - 1) / 2 + j.
    Statistics: z, then z_i z_j for j <= i (j = i if diagonal).
    """
    D, full = columns, not diagonal
    lower = [(i, j) for i in range(D) for j in range(i + 1) if full or i == j]
    below = [(i, j) for i, j in lower if i != j] or [(0, 0)]
    first, second = tuple(i for i, _ in lower), tuple(j for _, j in lower)
    row, across = tuple(i for i, _ in below), tuple(j for _, j in below)
    size = 2 * D + (len(below) if full else 0)

    def constant(m: Any, phi: Any) -> Any:
        if m < D or 2 * D <= m < size:
            return phi[m]
        if m < 2 * D:
            return 1.0 / phi[m]
        norm = 0.0
        for i in range(D):
            norm -= 0.5 * math.log(2 * math.pi * phi[D + i])
        return norm

    def residual(i: Any, z: Any, c: Any) -> Any:
        e = z[i]
        for j in range(i if full else 0):
            e = e - c[2 * D + i * (i - 1) // 2 + j] * z[j]
        return e

    def statistic(m: Any, z: Any) -> Any:
        return z[m] if m < D else z[first[m - D]] * z[second[m - D]]

    def moved(m: Any, count: Any, sums: Any, shift: Any) -> Any:  # statistics around other means
        if m < D:
            return sums[m] - shift[m] * count
        i, j = first[m - D], second[m - D]
        return sums[m] - shift[i] * sums[j] - shift[j] * sums[i] + shift[i] * shift[j] * count

    def cross(m: Any, sums: Any, c: Any) -> Any:  # sum of e_i z_j, j <= i
        i, j = first[m], second[m]
        total = sums[D + m]
        for n in range(i if full else 0):
            low, high = min(n, j), max(n, j)
            total = total - c[2 * D + i * (i - 1) // 2 + n] * sums[D + high * (high + 1) // 2 + low]
        return total

    def slope(m: Any, count: Any, total: Any, crossed: Any, c: Any) -> Any:
        if m < D:
            out = total[m] * c[D + m]
            for i in range(m + 1, D if full else 0):
                out = out - c[2 * D + i * (i - 1) // 2 + m] * total[i] * c[D + i]
            return out
        if m < 2 * D:
            i = m - D
            squares = crossed[i * (i + 3) // 2 if full else i]
            for j in range(i if full else 0):
                squares = squares - c[2 * D + i * (i - 1) // 2 + j] * crossed[i * (i + 1) // 2 + j]
            return 0.5 * (squares * c[m] - count) * c[m]
        i, j = row[m - 2 * D], across[m - 2 * D]
        return crossed[i * (i + 1) // 2 + j] * c[D + i]

    constants, residuals = tuple_of(size + 1, constant), tuple_of(D, residual)
    differences = tuple_of(D, lambda i, y, c: y[i] - c[i])
    all_statistics, all_moved = tuple_of(D + len(lower), statistic), tuple_of(D + len(lower), moved)
    crosses, slopes = tuple_of(len(lower), cross), tuple_of(size, slope)
    name = f"MultivariateGaussian{columns}{'Diagonal' if diagonal else ''}"
    space = {"columns": columns, "diagonal": diagonal, "__module__": __name__, "__slots__": ()}
    cls: Any = type(name, (MultivariateGaussian,), space)

    @compiled(prepare, cls)
    def _(family: Any, phi: Any) -> Any:
        return constants(phi)

    @compiled(log_density, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        e = residuals(differences(y, c), c)
        total = c[size] - 0.5 * e[0] * e[0] * c[D]
        for i in range(1, D):
            total = total - 0.5 * e[i] * e[i] * c[D + i]
        return total

    @compiled(statistics, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        return all_statistics(differences(y, c))

    @compiled(complete_score, cls)
    def _(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
        here = all_moved(count, sums, differences(c, hat))
        return slopes(count, residuals(here, c), crosses(here, c), c)

    @compiled(score, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        one = all_statistics(differences(y, c))
        return slopes(1.0, residuals(one, c), crosses(one, c), c)

    return cls
