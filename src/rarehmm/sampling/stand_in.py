"""A small sample of blocks that stands for a series while points are weighted.

Value, gradient and curvature of its log posterior are those of the whole series at the mode (``search.long_series``);
what sampling can get wrong is how the posterior differs from a Gaussian, which is little where there are many
observations.  How much it is, is measured: by exact log posteriors at points of the Laplace approximation.
"""

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.sampling.diagnostics import STANDING_IN, Check, check_stand_in
from rarehmm.sampling.importance import LAPLACE_POINTS, Roots, Weighted, laplace_importance
from rarehmm.sampling.methods import Job
from rarehmm.search.long_series import anchored_sample, with_exact_curvature

SIZES = 1 << 13, 1 << 14, 1 << 16  # observations in samples, to be tried until one is good enough
WORTHWHILE = 4  # a sample is not worth its set-up where the series is not so many times as long
POINTS = 32  # at which log posteriors are compared
MOST_DRAWN = 20  # points of the Laplace approximation per effective draw that is wanted


def stand_in(job: Job) -> tuple[Observations, list[Check]]:
    """A sample of blocks whose log posterior is close enough to that of the series, or the series; with checks."""
    rng, mode, whole = job.rng, job.mode, job.whole or rows_in(job.series)
    theta = mode.theta + rng.standard_normal((POINTS, len(mode.theta))) @ mode.factor.T
    exact = np.empty(0)
    for size in SIZES:
        if len(rows_in(job.series)) < WORTHWHILE * size:
            break
        exact = BatchedLogPosterior(mode.model, job.series, job.threads).values(theta) if len(exact) == 0 else exact
        sample = anchored_sample(rng, mode, whole, size, job.threads)
        with_exact_curvature(mode, sample, job.threads)
        error = difference(exact, BatchedLogPosterior(mode.model, sample, job.threads).values(theta))
        if error < STANDING_IN:
            return sample, [check_stand_in(error, sample.n_sequences)]
    return job.series, []


def difference(exact: Array, found: Array) -> float:
    """Standard deviation of the difference of two log posteriors (n,), where both are finite."""
    both = np.isfinite(exact) & np.isfinite(found)
    return float(np.std((found - exact)[both])) if both.sum() > 1 else np.inf


def laplace_points(job: Job, roots: Roots, first: Weighted) -> Weighted:
    """Weighted points of the Laplace approximation, as many as are wanted: more of them than the ``first``."""
    enough = int(np.ceil(1.1 * job.wanted / max(first.share, 1e-9)))
    if first.effective >= job.wanted:
        return first
    job.on_progress("importance sampling", 0, 0)
    size = int(min(enough, MOST_DRAWN * job.wanted))
    return laplace_importance(job.rng, roots, (*(t for t in LAPLACE_POINTS if t < size), size), limit=None)
