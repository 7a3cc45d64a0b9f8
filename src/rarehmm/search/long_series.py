r"""Long series: a sample of informative blocks that represents the whole, corrected by an exact pass over all data.

Near a point :math:`\hat\theta`, the log likelihood is estimated by that of the sampled blocks, each weighted by the
inverse of its inclusion probability, and corrected to first order by an exact pass at :math:`\hat\theta`:

.. math:: \ell(\theta) \approx \sum_{b} \frac{\ell_b(\theta)}{\pi_b} + \ell(\hat\theta) - \sum_b
   \frac{\ell_b(\hat\theta)}{\pi_b} + \Bigl(\nabla\ell(\hat\theta) - \sum_b \frac{\nabla\ell_b(\hat\theta)}{\pi_b}\Bigr)
   \cdot (\theta - \hat\theta)

Value and gradient are exact at :math:`\hat\theta`; only the curvature is subject to sampling error, which is measured.
A few exact passes lead to the mode; everything else uses the blocks, in memory, however long the series is.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.pieces import stretches
from rarehmm.data.series import Series
from rarehmm.engine.kernels.messages import split_sums
from rarehmm.exact import blocks
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_pass import Expectations, Pass
from rarehmm.exact.block_sample import HALOS, Anchor, BlockSample
from rarehmm.exact.blocks import SMALLEST
from rarehmm.exact.edge_pass import EdgePass
from rarehmm.exact.em import with_positive_transitions
from rarehmm.exact.passes import expectations, log_likelihood, log_posterior, needs_edges, pass_over
from rarehmm.exact.statistics import control_statistics
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary
from rarehmm.search.initial import climb_briefly, find_states
from rarehmm.search.mode import (
    Mode,
    compare_starts,
    distinct_modes,
    find_mode,
    metric,
    negative_hessian,
    newton,
    with_ordered_states,
)

MOST, LEAST = 1 << 21, 1 << 13  # bounds on the number of sampled observations, without halos
DIFFERING = 1 << 20  # the upper bound where rows differ, whose passes take several times as long
BLOCKS = 1000  # intended minimum number of blocks
EVEN = 0.2  # uniform share of the sampling weights
CLOSE = 1e-2  # a point counts as the mode if no component of its whitened exact gradient exceeds this
SEAMS, LONGEST = 1e-3, 1 << 15  # largest error of messages at the seams, and longest halo
PASSES = 8  # maximum number of exact passes on the way to the mode
FINISHING = 4  # exact passes towards another mode before it is compared with the first
WINDOW = 5  # observations in a window of the sampler
BEND = 0.5  # posterior standard deviations by which differences for the curvature of a sample step
FEWEST = 0.5  # expected rows of a kind of density that has a part in the shares of blocks


@dataclass(frozen=True)
class Shares:
    """Share of each block in the information about the parameters: a linear function of its sums.

    It is the mean, over the free components of theta, of the paper's targeted weights: the share of the block in the
    expected observations of a state, or in the expected transitions out of it and along the component in question.
    ``coefficients`` (n,) multiply the sums.
    """

    coefficients: Array

    @classmethod
    def of(cls, model: Model, parameters: Parameters, sizes: tuple[int, int, int], T: int) -> "Shares":
        """The shares at given parameters, for sums with ``sizes`` K, P and Q, of a series of length T."""
        K, P, _ = sizes
        distribution = np.maximum(stationary(parameters.transition), 1e-300)
        every = np.zeros(len(model.vector))
        every[model.free] = 1.0
        coefficients = np.zeros(K * (sum(sizes) + 2))
        _, counts, _, pairs, _ = split_sums(coefficients, *sizes)
        counts += every[: K * P].reshape(P, K).sum(0) / (T * distribution)
        for wanted, j, k in zip(every[K * P :], *model.coordinates.free(K), strict=True):
            pairs[j, k] += wanted / (2 * T * distribution[j])  # the kernels omit the factor P[j, k]
            pairs[j] += wanted * parameters.transition[j] / (2 * T * distribution[j])
        return cls(coefficients)

    def __call__(self, sums: Array) -> Array:
        return np.asarray(self.coefficients @ sums)


class FullPass(NamedTuple):
    """Result of an exact pass over a long series.

    ``sums`` are the expectations over the series; ``blocks`` its n blocks, with their ``shares`` (n,) and the
    ``messages`` (2, n, K) at their beginnings and ends.  A ``halo`` of this length is long enough for all blocks, or
    only for most of them if ``settled``.
    """

    sums: Expectations
    blocks: blocks.Blocks
    shares: Array
    messages: Array
    halo: int
    settled: bool


def affordable_length(model: Model, series: Series) -> float:
    """Number of observations that fit into the memory limit, with everything that is stored for their windows."""
    K, P = model.n_states, len(model.family.parameters)
    sums = K * (2 * P + K + 2)  # per window: scores, statistics, transitions, counts and first states
    window = 8 * (4 * sums + 2 * K + 2 * model.size)
    return series.memory_limit / (window / WINDOW + 16 * series.n_columns)


def block_sample_size(model: Model, series: Series) -> int:
    """Number of observations to sample from a long series."""
    return int(np.clip(affordable_length(model, series), LEAST, DIFFERING if needs_edges(model, series) else MOST))


def is_long(model: Model, series: Series) -> bool:
    """Whether a series should be represented by a sample of blocks.

    It should if it exceeds the memory limit and is more than twice as long as the sample would be.
    """
    return len(series) > max(affordable_length(model, series), 2 * block_sample_size(model, series))


def full_pass(
    model: Model, theta: Array, series: Series, threads: int | None = None, *, size: int | None = None
) -> FullPass:
    """Run an exact pass over a series at theta (d,), by blocks from which ``size`` observations can be sampled."""
    parameters, size = model.unpack(theta), size or block_sample_size(model, series)
    if needs_edges(model, series):
        return full_edge_pass(model, parameters, series, threads, size)
    one = Pass(model, parameters, series, threads, False, back=True, with_statistics=True)
    one.largest = min(one.largest, max(SMALLEST, size // BLOCKS))
    one.each = Shares.of(model, parameters, one.sizes, len(series))
    sums = one.run()
    settled = one.task.halo == 0 and not one.blocks.fresh.all()
    return FullPass(sums, one.blocks, one.of_blocks, one.messages[:2], one.task.halo or HALOS[-1], settled)


def full_edge_pass(model: Model, parameters: Parameters, series: Series, threads: int | None, size: int) -> FullPass:
    """Run an exact pass where rows differ.

    The share of a block is the mean over kinds of densities of its share in the expected rows of that kind; around a
    level, there is one for each pair of states.
    """
    one = EdgePass(model, parameters, series, threads, False, back=True, each=True)
    one.largest = min(one.largest, max(SMALLEST, size // BLOCKS))
    sums = one.run()
    total, counts = one.of_blocks.sum(0), np.zeros(model.n_states)
    np.add.at(counts, one.model.unfolding.chain.state, total)
    there = total >= FEWEST
    shares = (one.of_blocks[:, there] / total[there]).mean(1)
    return FullPass(sums._replace(counts=counts), one.blocks, shares, one.messages[:2], HALOS[0], True)


def sample_blocks(
    rng: np.random.Generator,
    model: Model,
    theta: Array,
    series: Series,
    whole: FullPass,
    size: int,
    threads: int | None = None,
) -> BlockSample:
    """Sample blocks with about ``size`` observations in total, by systematic sampling in proportion to their shares.

    Halos are extended until the messages at ``theta``, where the full pass was run, agree with the exact ones.
    """
    length = whole.blocks.length
    weights = (1 - EVEN) * whole.shares / whole.shares.sum() + EVEN * length / length.sum()
    probabilities = inclusion_probabilities(weights, size / float(weights @ length))
    at, halo = systematic_sample(rng, probabilities), whole.halo
    rows_differ, reach = needs_edges(model, series), model.every_effect.reach
    sample = read_blocks(series, whole.blocks, at, 1 / probabilities[at], halo, reach)
    while whole.settled:
        sample.seams = seam_error(model, theta, sample, whole.messages[:, at], threads)
        if sample.seams < SEAMS or halo >= LONGEST:
            break
        halo *= 2 if rows_differ else 4
        sample = read_blocks(series, whole.blocks, at, 1 / probabilities[at], halo, reach)
    return sample


def read_blocks(
    series: Series, every: blocks.Blocks, at: IntArray, weights: Array, halo: int, reach: int = 0
) -> BlockSample:
    """Read the blocks ``at`` of a series, with halos and, before these, ``reach`` rows for their lags."""
    first, length, begin, stop = (part[at] for part in every[:4])
    low, high = np.maximum(begin, first - halo - reach), np.minimum(stop, first + length + halo)
    return BlockSample(stretches(series, low, high), first - low, high - first - length, low == begin, weights, reach)


def seam_error(model: Model, theta: Array, sample: BlockSample, exact: Array, threads: int | None = None) -> float:
    """Largest error of the messages at the inner ends of halos, as probabilities, given the exact ones (2, S, K)."""
    one = pass_over(model, model.unpack(theta), sample, threads, False, back=True)
    one.run()
    left, right = (one.messages[0], exact[0]), (one.messages[1], exact[1])
    if isinstance(one, Pass):
        left = one.messages[0] @ one.point.transition, exact[0] @ one.point.transition
    inner = (sample.cores[0] > sample.bounds[:-1], sample.cores[1] < sample.bounds[1:])  # where there is a halo
    errors = [
        np.abs(u / u.sum(1, keepdims=True) - v / v.sum(1, keepdims=True))[there].max(initial=0.0)
        for (u, v), there in zip((left, right), inner, strict=True)
    ]
    return float(max(errors))


def inclusion_probabilities(weights: Array, count: float) -> Array:
    """Inclusion probabilities (n,) in proportion to weights, capped at 1, with sum ``count``."""
    out = np.ones(len(weights))
    free = np.ones(len(weights), dtype=bool)
    while (left := count - (~free).sum()) < free.sum():
        out[free] = left * weights[free] / weights[free].sum()
        if not (over := free & (out > 1)).any():
            break
        out[over], free[over] = 1.0, False
    return out


def systematic_sample(rng: np.random.Generator, probabilities: Array) -> IntArray:
    """Draw indices in ascending order by systematic sampling with the given inclusion probabilities."""
    total = np.cumsum(probabilities)
    at = rng.random() + np.arange(int(np.ceil(total[-1])))
    return np.unique(np.searchsorted(total, at[at < total[-1]], side="right"))


def anchor(
    model: Model, theta: Array, sample: BlockSample, sums: Expectations, spread: Array, threads: int | None = None
) -> None:
    """Correct a sample of blocks so that it is exact at theta, where the whole series has the expectations ``sums``.

    Finite differences step by a tenth of the standard deviations ``spread`` (d,).
    """

    def value(x: Array) -> float:
        return log_likelihood(model, model.unpack(x), sample, threads=threads)

    rows_differ = needs_edges(model, sample)
    sampled = expectations(model, model.unpack(theta), sample, with_statistics=not rows_differ, threads=threads)
    exact, rough = (
        model.gradient_from_expectations(theta, s.scores, s.pairs, s.first, s.coefficients) for s in (sums, sampled)
    )
    slopes = [(value(theta + step) - value(theta - step)) / (2 * step.max()) for step in np.diag(0.1 * spread)]
    sample.anchor = Anchor(
        theta,
        sums.log_likelihood - sampled.log_likelihood,
        exact - rough,
        exact - np.array(slopes),
        np.zeros(0) if rows_differ else control_statistics(model, theta, sums),
        sums.counts,
    )


def anchored_sample(
    rng: np.random.Generator, mode: Mode, series: Series, size: int, threads: int | None = None
) -> BlockSample:
    """Sample blocks with about ``size`` observations in total, to represent a series near one of its modes."""
    whole = full_pass(mode.model, mode.theta, series, threads, size=size)
    sample = sample_blocks(rng, mode.model, mode.theta, series, whole, size, threads)
    anchor(mode.model, mode.theta, sample, whole.sums, np.linalg.norm(mode.factor, axis=1), threads)
    return sample


def with_exact_curvature(mode: Mode, sample: BlockSample, threads: int | None = None) -> None:
    """Correct a sample of blocks that is anchored at a mode so that its curvature is that of the mode as well."""
    assert sample.anchor is not None
    d, factor, h = len(mode.theta), mode.factor, BEND
    pairs = [(i, j) for i in range(d) for j in range(i)]
    z = np.zeros((d + len(pairs), d))
    z[:d] = np.eye(d)
    for row, pair in enumerate(pairs):
        z[d + row, pair] = 1.0
    moves = h * np.concatenate([z, -z, np.zeros((1, d))]) @ factor.T
    values = BatchedLogPosterior(mode.model, sample, threads).values(mode.theta + moves)
    second = values[: len(z)] + values[len(z) : 2 * len(z)] - 2 * values[-1]
    curvature = np.diag(second[:d])
    for (i, j), both in zip(pairs, second[d:], strict=True):
        curvature[i, j] = curvature[j, i] = (both - second[i] - second[j]) / 2
    inverse = np.linalg.inv(factor)
    sample.anchor = sample.anchor._replace(
        bend=-mode.hessian - inverse.T @ (curvature / h**2) @ inverse,
        curve=negative_hessian(mode.model, sample, mode.theta, threads) - mode.hessian,
    )


def block_gradients(model: Model, theta: Array, sample: BlockSample, threads: int | None = None) -> Array:
    """Weighted gradients (S, d) of the log likelihood of each sampled block."""
    one = Pass(model, model.unpack(theta), sample, threads, False, back=True, each=np.transpose)
    one.run()
    scores, _, _, pairs, first = split_sums(one.of_blocks.T, *one.sizes)
    scores, pairs, first = (np.moveaxis(part, -1, 0) for part in (scores, pairs, first))
    return model.gradient_from_expectations(theta, scores, pairs * one.point.transition, first)


def find_long_mode(
    rng: np.random.Generator,
    model: Model,
    series: Series,
    start: Parameters | None = None,
    *,
    threads: int | None = None,
    on_progress: OnProgress = silent,
) -> tuple[Mode, BlockSample]:
    """Find the mode of a long series, and a sample of blocks that is anchored there.

    States are in the order of ``state_order``.
    """
    starts = [] if start is None else [start]
    if start is None:
        with series.reporting(partial(on_progress, "finding states")):
            starts = [c.parameters for c in find_states(model, series, threads=threads)]
    size = block_sample_size(model, series)

    def full_pass_at(number: int, theta: Array) -> FullPass:
        with series.reporting(partial(on_progress, f"pass {number} over all data")):
            return full_pass(model, theta, series, threads)

    theta = model.pack(with_positive_transitions(starts[0]))
    sample = sample_blocks(rng, model, theta, series, full_pass_at(1, theta), size, threads)
    start, others = compare_starts(model, sample, starts, threads)
    rough = with_ordered_states(find_mode(model, sample, start, threads=threads, on_progress=on_progress))
    model, theta, value, spread = rough.model, rough.theta, 0.0, np.linalg.norm(rough.factor, axis=1)
    for number in range(2, PASSES + 1):
        if number > 2:
            theta, _ = newton(model, sample, theta, value, rough.factor, threads, 20, 30.0)
        whole = full_pass_at(number, theta)
        if number == 2:
            sample = sample_blocks(rng, model, theta, series, whole, size, threads)
        anchor(model, theta, sample, whole.sums, spread, threads)
        value, slope = log_posterior(model, theta, sample, threads=threads)
        if np.abs(rough.factor.T @ slope).max() < CLOSE:
            break
    hessian = negative_hessian(model, sample, theta, threads)
    mode = Mode(model, theta, value, hessian, *metric(hessian), [], series.known_states)
    with series.reporting(partial(on_progress, "comparing modes")):
        climbs = [climb_briefly(model, series, c.parameters, FINISHING, threads) for c in others]
        return mode._replace(others=distinct_modes(mode, series, climbs, threads)), sample
