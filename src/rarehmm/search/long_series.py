r"""Long series: a pass over all of it, and blocks drawn by what they say about the parameters, which stand for it.

The log likelihood near a point :math:`\hat\theta` is that of drawn blocks, each weighted by the inverse of its chance
to be drawn, plus what an exact pass at :math:`\hat\theta` finds beyond it:

.. math:: \ell(\theta) \approx \sum_{b} \frac{\ell_b(\theta)}{\pi_b} + \ell(\hat\theta) - \sum_b
   \frac{\ell_b(\hat\theta)}{\pi_b} + \Bigl(\nabla\ell(\hat\theta) - \sum_b \frac{\nabla\ell_b(\hat\theta)}{\pi_b}\Bigr)
   \cdot (\theta - \hat\theta)

Value and gradient are exact at :math:`\hat\theta`; only the curvature is left to chance, and how much is measured.  A
few exact passes lead to the mode; everything else is done on the blocks, in memory, whatever the length of the series.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.pieces import rows_at
from rarehmm.data.series import Series
from rarehmm.engine.kernels.messages import split_sums
from rarehmm.exact import blocks
from rarehmm.exact.block_pass import Expectations, Pass
from rarehmm.exact.block_sample import HALOS, Anchor, BlockSample
from rarehmm.exact.blocks import SMALLEST
from rarehmm.exact.em import Climb, with_positive_transitions
from rarehmm.exact.passes import expectations, log_likelihood, log_posterior
from rarehmm.exact.statistics import control_statistics
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.stationary import stationary
from rarehmm.search.initial import climbed, find_states
from rarehmm.search.mode import Mode, find_mode, in_order, is_other, metric, negative_hessian, newton

MOST, LEAST = 1 << 21, 1 << 13  # observations drawn, without halos, however much memory there is
BLOCKS = 1000  # at least, where halos leave room for so many
EVEN = 0.2  # share of the chances that is the same for all observations
CLOSE = 1e-2  # whitened exact gradient below which a point is the mode
SEAMS, LONGEST = 1e-3, 1 << 15  # error of messages that calls for longer halos, and the longest
PASSES = 8  # at most, on the way to it
WINDOW = 5  # observations of a window of the sampler


@dataclass(frozen=True)
class Shares:
    """How much of what is known about the parameters comes from each block: ``coefficients`` (n,) of its sums.

    The mean, over the free components of theta, of the paper's targeted weights: its share of the observations of the
    state, or of the transitions from it and along it, of those that are to be expected in all.
    """

    coefficients: Array

    @classmethod
    def of(cls, model: Model, parameters: Parameters, sizes: tuple[int, int, int], T: int) -> "Shares":
        K, P, _ = sizes
        distribution = np.maximum(stationary(parameters.transition), 1e-300)
        every = np.zeros(len(model.vector))
        every[model.free] = 1.0
        coefficients = np.zeros(K * (sum(sizes) + 2))
        _, counts, _, pairs, _ = split_sums(coefficients, *sizes)
        counts += every[: K * P].reshape(P, K).sum(0) / (T * distribution)
        for wanted, j, k in zip(every[K * P :], *model.coordinates.free(K), strict=True):
            pairs[j, k] += wanted / (2 * T * distribution[j])  # the kernels leave out the factor P
            pairs[j] += wanted * parameters.transition[j] / (2 * T * distribution[j])
        return cls(coefficients)

    def __call__(self, sums: Array) -> Array:
        return np.asarray(self.coefficients @ sums)


class Whole(NamedTuple):
    """An exact pass over a long series: its sums, its blocks, their ``shares`` (n,) and the messages (2, n, K) at their
    begins and ends, and a ``halo`` that suffices for all of them, or (``settled``) for most."""

    sums: Expectations
    blocks: blocks.Blocks
    shares: Array
    messages: Array
    halo: int
    settled: bool


def affordable(model: Model, series: Series) -> float:
    """How many observations fit into the memory that is allowed, with all that is kept for their windows."""
    K, P = model.n_states, len(model.family.parameters)
    sums = K * (2 * P + K + 2)  # of a window: scores, statistics, transitions, counts and first states
    window = 8 * (4 * sums + 2 * K + 2 * model.size)
    return series.memory_limit / (window / WINDOW + 16 * series.n_columns)


def block_sample_size(model: Model, series: Series) -> int:
    """How many observations are drawn."""
    return int(np.clip(affordable(model, series), LEAST, MOST))


def is_long(model: Model, series: Series) -> bool:
    """Whether blocks should stand for a series: it needs more memory than is allowed, and is more than twice as long as
    what would be drawn of it."""
    return len(series) > max(affordable(model, series), 2 * block_sample_size(model, series))


def whole_pass(model: Model, theta: Array, series: Series, threads: int | None = None) -> Whole:
    """All of a series at a point theta (d,)."""
    parameters = model.unpack(theta)
    one = Pass(model, parameters, series, threads, False, back=True, with_statistics=True)
    one.largest = min(one.largest, max(SMALLEST, block_sample_size(model, series) // BLOCKS))
    one.each = Shares.of(model, parameters, one.sizes, len(series))
    sums = one.run()
    settled = one.task.halo == 0 and not one.blocks.fresh.all()
    return Whole(sums, one.blocks, one.of_blocks, one.messages[:2], one.task.halo or HALOS[-1], settled)


def sample_blocks(
    rng: np.random.Generator,
    model: Model,
    theta: Array,
    series: Series,
    whole: Whole,
    size: int,
    threads: int | None = None,
) -> BlockSample:
    """About ``size`` observations in blocks, systematically, with chances in proportion to their shares; with halos so
    long that messages at theta, where the whole pass was, become what they are there."""
    length = whole.blocks.length
    weights = (1 - EVEN) * whole.shares / whole.shares.sum() + EVEN * length / length.sum()
    chances = inclusion(weights, size / float(weights @ length))
    at, halo = systematic(rng, chances), whole.halo
    sample = read_blocks(series, whole.blocks, at, 1 / chances[at], halo)
    while whole.settled:
        sample.seams = seam_error(model, theta, sample, whole.messages[:, at], threads)
        if sample.seams < SEAMS or halo >= LONGEST:
            break
        halo *= 4
        sample = read_blocks(series, whole.blocks, at, 1 / chances[at], halo)
    return sample


def read_blocks(series: Series, every: blocks.Blocks, at: IntArray, weights: Array, halo: int) -> BlockSample:
    """Some of the blocks of a series, with halos."""
    first, length, begin, stop = (part[at] for part in every[:4])
    low, high = np.maximum(begin, first - halo), np.minimum(stop, first + length + halo)
    y = rows_at(series, low, high)
    return BlockSample(y, high - low, first - low, high - first - length, low == begin, weights)


def seam_error(model: Model, theta: Array, sample: BlockSample, exact: Array, threads: int | None = None) -> float:
    """How far the messages that halos reach are from the exact ones (2, S, K), as probabilities."""
    one = Pass(model, model.unpack(theta), sample, threads, False, back=True)
    one.run()
    left, right = (one.messages[0] @ one.point.transition, exact[0] @ one.point.transition), (one.messages[1], exact[1])
    inner = (sample.cores[0] > sample.bounds[:-1], sample.cores[1] < sample.bounds[1:])  # where there is a halo
    errors = [
        np.abs(u / u.sum(1, keepdims=True) - v / v.sum(1, keepdims=True))[there].max(initial=0.0)
        for (u, v), there in zip((left, right), inner, strict=True)
    ]
    return float(max(errors))


def inclusion(weights: Array, count: float) -> Array:
    """Chances (n,) in proportion to weights as far as they stay below 1, ``count`` in all."""
    out = np.ones(len(weights))
    free = np.ones(len(weights), dtype=bool)
    while (left := count - (~free).sum()) < free.sum():
        out[free] = left * weights[free] / weights[free].sum()
        if not (over := free & (out > 1)).any():
            break
        out[over], free[over] = 1.0, False
    return out


def systematic(rng: np.random.Generator, chances: Array) -> IntArray:
    """Places drawn in order with the given chances, their sum of them in all."""
    total = np.cumsum(chances)
    at = rng.random() + np.arange(int(np.ceil(total[-1])))
    return np.unique(np.searchsorted(total, at[at < total[-1]], side="right"))


def anchor(
    model: Model, theta: Array, sample: BlockSample, sums: Expectations, spread: Array, threads: int | None = None
) -> None:
    """Make drawn blocks exact at theta, where all of the series has these sums; ``spread`` (d,): standard deviations,
    of which a tenth is a step for differences."""

    def value(x: Array) -> float:
        return log_likelihood(model, model.unpack(x), sample, threads=threads)

    mine = expectations(model, model.unpack(theta), sample, with_statistics=True, threads=threads)
    exact = model.gradient_from_expectations(theta, sums.scores, sums.pairs, sums.first)
    rise = [(value(theta + step) - value(theta - step)) / (2 * step.max()) for step in np.diag(0.1 * spread)]
    sample.anchor = Anchor(
        theta,
        sums.log_likelihood - mine.log_likelihood,
        exact - model.gradient_from_expectations(theta, mine.scores, mine.pairs, mine.first),
        exact - np.array(rise),
        control_statistics(model, theta, sums),
        sums.counts,
    )


def block_gradients(model: Model, theta: Array, sample: BlockSample, threads: int | None = None) -> Array:
    """Weighted gradients (S, d) of the log likelihood of drawn blocks."""
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
    """The mode of a long series, and blocks that stand for it there; states are in the order of ``naming``."""
    others: list[Climb] = []
    if start is None:
        with series.reporting(partial(on_progress, "finding states")):
            best, *others = find_states(model, series, threads=threads)
        start = best.parameters
    size = block_sample_size(model, series)

    def passed(number: int, theta: Array) -> Whole:
        with series.reporting(partial(on_progress, f"pass {number} over all data")):
            return whole_pass(model, theta, series, threads)

    theta = model.pack(with_positive_transitions(start))
    sample = sample_blocks(rng, model, theta, series, passed(1, theta), size, threads)
    rough = in_order(find_mode(model, sample, start, threads=threads, on_progress=on_progress))
    climbs = [climbed(rough.model, sample, c.parameters, 30, threads) for c in others]
    others = [c for c in climbs if is_other(rough, sample, c, threads)]
    model, theta, value, spread = rough.model, rough.theta, 0.0, np.linalg.norm(rough.factor, axis=1)
    for number in range(2, PASSES + 1):
        if number > 2:
            theta, _ = newton(model, sample, theta, value, rough.factor, threads, 20, 30.0)
        whole = passed(number, theta)
        if number == 2:
            sample = sample_blocks(rng, model, theta, series, whole, size, threads)
        anchor(model, theta, sample, whole.sums, spread, threads)
        value, slope = log_posterior(model, theta, sample, threads=threads)
        if np.abs(rough.factor.T @ slope).max() < CLOSE:
            break
    hessian = negative_hessian(model, sample, theta, threads)
    return Mode(model, theta, value, hessian, *metric(hessian), others), sample
