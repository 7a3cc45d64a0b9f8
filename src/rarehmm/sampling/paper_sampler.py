"""The paper's sampler, to compare with: Langevin dynamics on variances and expanded means, a window per component."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy

from rarehmm.common.arrays import Array, IntArray
from rarehmm.designs.targeted import targeted
from rarehmm.engine.contracts.sampler import DivergedError
from rarehmm.exact.block_sample import rows_in
from rarehmm.exact.passes import smooth
from rarehmm.model.coordinates import ExpandedMean
from rarehmm.model.model import Model
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.sampling.chains import run
from rarehmm.sampling.diagnostics import Check, mixing
from rarehmm.sampling.methods import (
    FAR,
    MEMORY,
    Job,
    MakeDesign,
    Sampled,
    convert_coordinates,
    half_width,
    mixed_draws,
    relabel_like_mode,
)
from rarehmm.search.labels import from_labels, kmeans_labels, segmental_labels
from rarehmm.windows.gradients import window_sums
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.label_sums import label_sums
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows, suggested_buffer

BUFFER = 5  # of the paper's section 4.1
STEPS, THIN = 200_000, 20  # most steps of its chains, of which every 20th is kept
LABELS = ("smoothing", "kmeans", "segmental")


class PaperSampler(NamedTuple):
    """Settings of the paper's sampler, as ``method`` of ``RareHMM`` and ``infer``.

    Attributes
    ----------
    design : callable, default targeted
        How windows are drawn: a function from ``WindowInformation`` to a ``Design``.
    labels : {"smoothing", "kmeans", "segmental"}, default "smoothing"
        What windows are targeted by: state probabilities at the mode, labels by k-means, or labels by segmental
        k-means, which takes the order of the observations into account (the paper's section 3.2).
    buffer : int or "suggested", default 5
        Observations on either side of a window; "suggested": as many as the chain needs to forget where it was (section
        2.2), which may be hundreds.

    Examples
    --------
    >>> from rarehmm import RareHMM
    >>> from rarehmm.sampling.paper_sampler import PaperSampler
    >>> hmm = RareHMM(method=PaperSampler(labels="segmental", buffer="suggested"))
    """

    design: MakeDesign = targeted
    labels: str = "smoothing"
    buffer: int | str = BUFFER

    def check(self) -> None:
        """Refuse names that do not exist."""
        if self.labels not in LABELS:
            raise ValueError(f"labels is {self.labels!r}; it must be one of {', '.join(LABELS)}.")
        if isinstance(self.buffer, str) and self.buffer != "suggested":
            raise ValueError(f"buffer is {self.buffer!r}; it must be a whole number or 'suggested'.")


def by_paper(job: Job, settings: PaperSampler, chains: int = 4) -> Sampled:
    """The paper's sampler from the mode.  Its step, 1 / T, is halved as long as chains diverge.

    Nothing corrects for the noise of its gradients: its draws are flagged unless they happen to be right.
    """
    rng, mode, series, wanted = job.rng, job.mode, job.series, job.wanted
    if not mode.model.fixed_values.is_empty:
        raise ValueError("the paper's sampler cannot keep values fixed; use another method, such as 'auto'.")
    model = replace(mode.model, coordinates=ExpandedMean(), logs=False)
    pool, begin = paper_pool(job, model, settings), model.pack(mode.model.unpack(mode.theta))
    here, size, steps = np.tile(begin, (chains, 1)), 2.0 / len(series), STEPS // 50
    draws, done = np.empty((chains, 0, mode.model.size)), 0
    move = partial(run, thin=THIN, threads=job.threads, on_progress=partial(job.on_progress, "the paper's sampler"))
    while done < STEPS:
        try:
            more = move(rng, ExpandedMeanSgld(size), model, pool, here, steps)
        except DivergedError:
            if size < 1e-6 / len(series):
                raise
            draws, done, size, here = draws[:, :0], 0, size / 2, np.tile(begin, (chains, 1))
            continue
        draws = np.concatenate([draws, convert_coordinates(mode.model, model, more)], axis=1)
        mixed = mixing(relabel_like_mode(mode, draws))
        if more.shape[1] < steps // THIN or mixed.smallest >= wanted:
            break
        done, here = done + steps, more[:, -1]
        steps = min(2 * done, STEPS - done)
    sampled = mixed_draws(job, draws, mixed)
    step = Check("step size", size * len(series) / 2, True, "of the paper's sampler, times the length of the series")
    return sampled._replace(checks=[step, *sampled.checks])


def paper_pool(job: Job, model: Model, settings: PaperSampler) -> Pool:
    """One window for each component, without control variates."""
    series, parameters, buffer = job.series, job.mode.model.unpack(job.mode.theta), settings.buffer
    if isinstance(buffer, str):
        buffer = suggested_buffer(parameters.transition)
    windows = Windows(series, half_width(series), buffer)
    info = paper_information(job, model, windows, settings.labels)
    memory = MEMORY if series.in_memory else FAR
    return Pool(model, series, windows, settings.design(info), 1, separate=True, memory=memory)


def paper_information(job: Job, model: Model, windows: Windows, labels: str) -> WindowInformation:
    """What windows say at the mode, or at the estimate from labels that are taken for the truth."""
    series, threads = rows_in(job.series), job.threads
    parameters = job.mode.model.unpack(job.mode.theta)
    if labels == "smoothing":
        sums = window_sums(model, parameters, series, windows, threads=threads)
        return WindowInformation(model, model.pack(parameters), series, windows, sums=sums)
    found = kmeans_labels(series, model.n_states)
    if labels == "segmental":
        found = segmental_labels(model, series, found)
    found = matched_labels(found, smooth(job.mode.model, parameters, series, threads=threads))
    estimate = from_labels(model, series, found)
    sums = label_sums(model, estimate, series, windows, found)
    return WindowInformation(model, model.pack(estimate), series, windows, sums=sums)


def matched_labels(labels: IntArray, probabilities: Array) -> IntArray:
    """Labels (T,) renamed to agree as well as possible with probabilities (T, K) of the states."""
    K = probabilities.shape[1]
    shared = np.array([probabilities[labels == k].sum(0) for k in range(K)])  # (label, state)
    return np.asarray(scipy.optimize.linear_sum_assignment(shared, maximize=True)[1][labels])
