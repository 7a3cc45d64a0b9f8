"""Mixtures of Gaussians within a state."""

import functools
import math
from typing import Any

import numpy as np
from scipy.special import ndtr, softmax

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.domains import REALS, Domain
from rarehmm.emissions._sized import Sized
from rarehmm.engine.contracts.family import (
    Parameter,
    Prior,
    complete_score,
    log_density,
    prepare,
    score,
    statistics,
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled, inner
from rarehmm.engine.lanes import tuple_of
from rarehmm.model.conjugate import best_log_odds, best_variance, check_conjugate, normal_terms, positive_or
from rarehmm.model.priors import Gamma, Normal, bare, pinned
from rarehmm.model.scaled_priors import distance, location, squared_scale


class GaussianMixture(Sized):
    r"""Mixture of ``m`` Gaussians.

    Component j has mean :math:`\mu_{kj}`, variance :math:`\sigma_{kj}^2` and log odds :math:`\eta_{kj}` against
    component 0.

    .. math:: p(y \mid \phi_k) = \sum_j w_{kj} N(y; \mu_{kj}, \sigma_{kj}^2), \quad
        w_{kj} = e^{\eta_{kj}} / \sum_i e^{\eta_{ki}}

    The components of a mixture could be exchanged without changing the density.  To keep a sampler from doing so, their
    means ascend: they are given by the first one, ``mean``, and positive gaps,
    :math:`\mu_{kj} = \mu_{k,j-1} + g_{kj}`.
    """

    linear_predictor = ("mean",)
    returns_to = ()  # the mean of the lowest component is not that of the observations
    m: int

    def __new__(cls, m: int = 2) -> "GaussianMixture":
        if isinstance(m, bool) or not isinstance(m, int | np.integer) or m < 2:
            raise ValueError(
                f"m is {m!r}; the number of components must be a whole number, at least 2, such as GaussianMixture(3). "
                "For one component use Gaussian()."
            )
        made: GaussianMixture = tuple.__new__(sized(int(m)))
        return made

    @property
    def arguments(self) -> tuple[int]:
        return (self.m,)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return (
            Parameter("mean", support="real", prior=location),
            *(Parameter(f"gap_{j}", support="positive", prior=distance) for j in range(1, self.m)),
            *(Parameter(f"variance_{j}", support="positive", prior=squared_scale) for j in range(self.m)),
            *(Parameter(f"log_odds_{j}", support="real", prior=Normal(0.0, 2.5**2)) for j in range(1, self.m)),
        )

    @property
    def log_scale(self) -> tuple[tuple[str, float], ...]:
        return tuple((f"variance_{j}", 2.0) for j in range(self.m))

    @property
    def domain(self) -> Domain:
        return REALS

    def components(self, phi: Array) -> tuple[Array, Array, Array]:
        """Components of the mixture.

        Parameters
        ----------
        phi
            Parameters of states, (..., P).

        Returns
        -------
        weight, mean, variance
            Arrays (..., m).
        """
        odds = np.concatenate([np.zeros_like(phi[..., :1]), phi[..., 2 * self.m :]], axis=-1)
        return softmax(odds, axis=-1), np.cumsum(phi[..., : self.m], axis=-1), phi[..., self.m : 2 * self.m]

    def moments(self, phi: Array) -> tuple[Array, Array]:
        """Means and variances of the mixture.

        Parameters
        ----------
        phi
            Parameters of states, (..., P).

        Returns
        -------
        mean, variance
            Arrays (..., 1).
        """
        w, mu, s2 = self.components(phi)
        mean = (w * mu).sum(-1, keepdims=True)
        return mean, (w * (s2 + (mu - mean) ** 2)).sum(-1, keepdims=True)

    def draw(self, rng: np.random.Generator, states: IntArray, phi: Array) -> Array:
        w, mu, s2 = self.components(phi)
        j = (rng.random(len(states))[:, None] >= np.cumsum(w, axis=1)[:, :-1][states]).sum(1)
        return np.asarray(mu[states, j] + np.sqrt(s2)[states, j] * rng.standard_normal(len(states)))

    def estimate(self, y: Array, weight: Array) -> Array:
        """From a k-means clustering of the observations of one state."""
        y, weight = y[weight > 0], weight[weight > 0]
        j = clusters(y, weight, self.m)
        n, spread = np.bincount(j, weight, self.m), float(np.ptp(y))
        mu = np.maximum.accumulate(np.where(n > 0, np.bincount(j, weight * y, self.m) / np.maximum(n, 1e-300), y.min()))
        s2 = np.bincount(j, weight * (y - mu[j]) ** 2, self.m) / np.maximum(n, 1e-300)
        gaps, odds = np.maximum(np.diff(mu), 0.05 * spread), (n[1:] + 0.5) / (n[0] + 0.5)
        return np.concatenate([mu[:1], gaps, np.maximum(s2, 0.01 * spread**2), np.log(odds)])

    def cdf(self, y: Array, phi: Array) -> Array:
        """P(Y <= y) in a state with parameters phi (P,)."""
        w, mu, s2 = self.components(phi.T)
        return np.asarray((ndtr((y[:, None] - mu) / np.sqrt(s2)) * w).sum(-1))

    def heavier(self, phi: Array) -> list[tuple[Any, Array]]:
        """A single Student's t distribution with the same means and variances."""
        mean, variance = self.moments(phi)
        return [(("free_student_t", {}), np.hstack([mean, variance / 2, np.full_like(mean, 4.0)]))]

    def maximise(self, phi: Array, counts: Array, sums: Array, priors: tuple[Prior, ...]) -> Array:
        """M-step of the means given the variances, of the variances given these means, and of the weights."""
        m, (_, mu, s2) = self.m, self.components(phi)
        n, first, second = sums[:, :m], sums[:, m : 2 * m], sums[:, 2 * m :]
        steps = best_steps(phi[:, :m], n / s2, first / s2 + n * mu / s2, priors[:m])
        shift = np.cumsum(steps, axis=1) - mu
        squares = np.maximum(second - 2 * shift * first + shift**2 * n, 0.0)
        new = np.column_stack([best_variance(squares[:, j], n[:, j], priors[m + j]) for j in range(m)])
        s2 = positive_or(s2, new)
        return np.column_stack([steps, s2, best_log_odds(n, priors[2 * m :])])


def clusters(y: Array, weight: Array, m: int) -> IntArray:
    """Cluster (n,) of each number, in ascending order.

    The better of two k-means clusterings, one started from quantiles and one from evenly spaced numbers.
    """
    order, places = np.argsort(y), (np.arange(m) + 0.5) / m
    share = np.cumsum(weight[order]) / weight.sum()
    tried = []
    for mu in (y[order][np.searchsorted(share, places)], y.min() + places * np.ptp(y)):
        for _ in range(20):
            j = np.searchsorted((mu[1:] + mu[:-1]) / 2, y)
            n = np.bincount(j, weight, m)
            mu = np.where(n > 0, np.bincount(j, weight * y, m) / np.maximum(n, 1e-300), mu)
        tried.append((float(weight @ (y - mu[j]) ** 2), j))
    return min(tried, key=lambda t: t[0])[1]


def best_steps(x: Array, weight: Array, linear: Array, priors: tuple[Prior, ...]) -> Array:
    r"""Modes (K, m) of a mean and positive gaps, whose cumulative sums are :math:`\mu_j`, by Newton steps.

    .. math:: \sum_j p_j \mu_j - w_j \mu_j^2 / 2 - (x_0 - m_0)^2 / 2 v_0 + \sum_{j > 0} a_j \log x_j - b_j x_j

    The objective is concave.  A step reduces a gap to a tenth at most; parameters without a prior get a very weak one.
    """
    K, m = x.shape
    precision, pulled = normal_terms(priors[0])
    distributions = [bare(prior) for prior in priors[1:]]
    for distribution in distributions:
        check_conjugate(distribution, Gamma, "EM", "climb by gradients")
    a, b = np.array([(p.shape, p.rate) if isinstance(p, Gamma) else (1e-9, 0.0) for p in distributions]).T
    fixed = np.column_stack([pinned(np.full(K, np.nan), prior) for prior in priors])
    free, x, sums = np.isnan(fixed), np.where(np.isnan(fixed), x, fixed), np.tril(np.ones((m, m)))
    shared = np.where(free[:, :, None] & free[:, None, :], sums.T @ (weight[:, :, None] * sums), 0.0)
    shared = shared * (1 + 1e-14 * np.eye(m))  # not singular if one of the components is empty
    for _ in range(50):
        gaps = x[:, 1:]
        own = np.column_stack([pulled - precision * x[:, 0], a / gaps - b])
        slope = np.where(free, (linear - weight * np.cumsum(x, axis=1)) @ sums + own, 0.0)
        curvature = np.column_stack([np.full(K, max(precision, 1e-300)), a / gaps**2])
        step = np.linalg.solve(shared + curvature[:, :, None] * np.eye(m), slope[..., None])[..., 0]
        x = np.column_stack([x[:, 0] + step[:, 0], np.maximum(gaps + step[:, 1:], 0.1 * gaps)])
    return np.asarray(x)


@functools.cache
def sized(m: int) -> Any:
    """Class for m components, with its compiled functions."""
    cls: Any = type(f"GaussianMixture{m}", (GaussianMixture,), {"m": m, "__module__": __name__, "__slots__": ()})
    constants, all_statistics, slopes = constants_of(m), statistics_of(m), slopes_of(m)
    heights, highest, relative, total = heights_of(m)
    parts, scaled = tuple_of(m, lambda j, e, total: e[j] / total), scaled_of(m)

    @compiled(prepare, cls)
    def _(family: Any, phi: Any) -> Any:
        return constants(phi)

    @compiled(log_density, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        h = heights(y, c)
        high = highest(h)
        return high + np.log(total(relative(h, high)))

    @compiled(statistics, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        h = heights(y, c)
        e = relative(h, highest(h))
        return all_statistics(parts(e, total(e)), y, c)

    @compiled(score, cls)
    def _(family: Any, y: Any, c: Any) -> Any:
        h = heights(y, c)
        e = relative(h, highest(h))
        return slopes(1.0, all_statistics(parts(e, total(e)), y, c), c, c)

    @compiled(complete_score, cls)
    def _(family: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
        return slopes(count, sums, hat, c)

    @compiled(with_predictor, cls)
    def _(family: Any, y: Any, c: Any, eta: Any) -> Any:
        return y - eta, c

    @compiled(with_log_scale, cls)
    def _(family: Any, y: Any, c: Any, zeta: Any) -> Any:
        return y, scaled(c, np.exp(-2.0 * zeta), zeta)

    return cls


# ---------------------------------------------------------------- parts of the compiled functions
def constants_of(m: int) -> Any:
    """Function of phi: means, inverse variances, log weights less norms, weights."""

    def constant(i: Any, phi: Any) -> Any:
        j = i % m
        if i < m:
            mean = phi[0]
            for k in range(1, j + 1):
                mean += phi[k]
            return mean
        if i < 2 * m:
            return 1.0 / phi[i]
        high, total = 0.0, 0.0
        for k in range(2 * m, 3 * m - 1):
            high = max(high, phi[k])
        for k in range(2 * m, 3 * m - 1):
            total += math.exp(phi[k] - high)
        weight = (phi[2 * m + j - 1] if j > 0 else 0.0) - high - math.log(total + math.exp(-high))
        return weight - 0.5 * math.log(2 * math.pi * phi[m + j]) if i < 3 * m else math.exp(weight)

    return tuple_of(4 * m, constant)


def scaled_of(m: int) -> Any:
    """Function of constants, of the factor of the inverse variances, and of its log scale: the constants there.

    All are lanes inside kernels, since the functions above index them by variables.
    """

    def constant(i: Any, c: Any, factor: Any, zeta: Any) -> Any:
        if i < m or i >= 3 * m:
            return c[i] + 0.0 * zeta
        return c[i] * factor if i < 2 * m else c[i] - zeta

    return tuple_of(4 * m, constant)


def heights_of(m: int) -> tuple[Any, Any, Any, Any]:
    """Functions for a sum of exponentials: log densities of the components, their maximum, the exponentials relative
    to it, and the sum of these."""

    def height(j: Any, y: Any, c: Any) -> Any:
        z = y - c[j]
        return c[2 * m + j] - 0.5 * z * z * c[m + j]

    @inner
    def highest(h: Any) -> Any:
        high = h[0]
        for j in range(1, m):
            high = np.maximum(high, h[j])
        return high

    @inner
    def total(e: Any) -> Any:
        out = e[0]
        for j in range(1, m):
            out = out + e[j]
        return out

    relative = tuple_of(m, lambda j, h, high: np.exp(h[j] - high))
    return tuple_of(m, height), highest, relative, total


def statistics_of(m: int) -> Any:
    r"""Function of p, y and c: shares :math:`p_j` of the components in an observation, then :math:`p_j z_j`, then
    :math:`p_j z_j^2`, with :math:`z_j = y - \mu_j`."""

    def statistic(i: Any, p: Any, y: Any, c: Any) -> Any:
        j = i % m
        if i < m:
            return p[j]
        return p[j] * (y - c[j]) if i < 2 * m else p[j] * (y - c[j]) * (y - c[j])

    return tuple_of(3 * m, statistic)


def slopes_of(m: int) -> Any:
    """Function of the count and the sums of statistics, and of the constants there (``hat``) and here: the score."""

    def slope(i: Any, count: Any, sums: Any, hat: Any, c: Any) -> Any:
        if i >= 2 * m:
            j = i - 2 * m + 1
            return sums[j] - count * c[3 * m + j]
        if i >= m:
            j = i - m
            shift = c[j] - hat[j]
            squares = sums[2 * m + j] - 2.0 * shift * sums[m + j] + shift * shift * sums[j]
            return 0.5 * (squares * c[m + j] - sums[j]) * c[m + j]
        total = sums[0] * 0.0
        for j in range(i, m):  # a gap shifts all components above it
            total = total + (sums[m + j] - (c[j] - hat[j]) * sums[j]) * c[m + j]
        return total

    return tuple_of(3 * m - 1, slope)
