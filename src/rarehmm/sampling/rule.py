"""The decision rule: which method samples the posterior, and why.

1. The posterior is nearly Gaussian in cube-root coordinates (importance sampling from the Laplace approximation keeps
   at least 80 % of its points) and a buffer passes its test: chains on windows with control variates, whose cost does
   not grow with the series.
2. Else, on a series so short that many exact gradients cost little: Hamiltonian Monte Carlo on all data.  Posteriors
   from few rare observations have long arms, which importance sampling overlooks without a sign.
3. Else adaptive importance sampling on forward passes, in cube-root coordinates or with rows of the transition matrix
   as gamma numbers, accepted only if the posterior is not too far from a Gaussian and no few points carry it.
4. Else Hamiltonian Monte Carlo on all data, with a warning.
5. A second mode of nearly the same height: modes are stacked by their evidence, with a warning.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.series import Series, in_memory
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.sampling.diagnostics import (
    Check,
    check_block_sample,
    check_buffer,
    check_gradients,
    check_mixing,
    check_states,
    check_weights,
    mixing,
    rows,
    verdict,
)
from rarehmm.sampling.importance import (
    GammaRows,
    Roots,
    Weighted,
    adaptive_importance,
    bridge_evidence,
    has_roots,
    laplace_importance,
)
from rarehmm.sampling.methods import (
    BUFFERS,
    NEARLY_GAUSSIAN,
    WORK,
    Job,
    Sampled,
    by_chain,
    by_gibbs,
    by_hmc,
    by_laplace,
    by_paper,
    by_variational,
    convert_coordinates,
    pilot_pool,
    relabel_like_mode,
    shortest_buffer,
)
from rarehmm.search.long_series import find_long_mode, is_long
from rarehmm.search.mode import Mode, find_mode, in_order, renamed

FORCED: dict[str, tuple[Callable[[Job], Sampled], str]] = {
    "tass": (partial(by_paper, is_targeted=True), "the paper's sampler with targeted windows"),
    "sgld": (partial(by_paper, is_targeted=False), "the paper's sampler with windows by chance"),
    "gibbs": (by_gibbs, "Gibbs sampling"),
    "hmc": (by_hmc, "Hamiltonian Monte Carlo"),
    "langevin": (partial(by_hmc, ways=((1, 0.574),) * 3), "Langevin dynamics with a Metropolis correction"),
    "laplace": (by_laplace, "the Laplace approximation"),
    "vi": (by_variational, "variational inference"),
}
EVERYTHING = ("gibbs", "tass", "sgld")  # methods that read the series itself, however long it is
METHODS = ("auto", "chain", "importance", *FORCED, "map")
FAR_FROM_GAUSSIAN = 0.3  # below it, importance sampling is not trusted whatever it says of itself


class Inference(NamedTuple):
    """Draws theta (chains, n, d), equally weighted, of the model of the ``mode``; the ``method`` that made them,
    ``why``, the ``checks`` behind the ``verdict``, and the points of importance sampling with their weights, if it is
    what was used (draws are resampled from them)."""

    mode: Mode
    theta: Array
    method: str
    why: list[str]
    checks: list[Check]
    weighted: Weighted | None = None

    @property
    def verdict(self) -> str:
        return verdict(self.checks)

    def describe(self) -> str:
        """Method, reasons, all checks in a table, and the verdict."""
        return "\n".join([f"{self.method}: {'; '.join(self.why)}", *rows(self.checks), self.verdict])


def infer(
    rng: np.random.Generator,
    model: Model,
    series: Series,
    *,
    start: Parameters | None = None,
    wanted: float = 1000.0,
    method: str = "auto",
    threads: int | None = None,
    on_progress: OnProgress = silent,
) -> Inference:
    """The posterior by the decision rule, or by another ``method``, with ``wanted`` effective draws.

    "chain" and "importance" are those of the rule; "gibbs", "hmc" and "langevin" (with a Metropolis correction) read
    all data in each step, and go on longer than the rule would; "laplace" is the Gaussian at the mode, "vi" the one
    closest to the posterior, "map" the mode alone; "tass" and "sgld" are the paper's sampler, with targeted windows and
    with windows by chance.

    Without a ``start`` states are found in the data.  States are in ascending order of the parameter that tells them
    apart best, the mean where means differ; those that something known tells apart keep their places.  A posterior that
    is not to be trusted comes with a warning.  ``watch(stage, done, total)`` is told of the progress.

    >>> import numpy as np
    >>> from rarehmm import Gaussian, Model, Posterior, Series, default_priors, infer
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=5000)
    >>> y[1000:1020] += 8
    >>> series = Series(y)
    >>> model = Model(Gaussian(), 2, default_priors(Gaussian(), 2, series))
    >>> found = infer(rng, model, series, wanted=200)
    >>> found.verdict
    'Nothing speaks against this posterior.'
    >>> Posterior.of(found).mean.phi.round()
    array([[-0.,  1.],
           [ 8.,  1.]])
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}.")
    if not 1 <= wanted < np.inf:
        raise ValueError(f"wanted is {wanted}; the number of effective draws must be finite, and 1 at least.")
    whole, on_blocks, executor = series, [], series.executor
    if model.size > 0 and is_long(model, series):
        model.check(series)
        mode, series = find_long_mode(rng, model, series, start, threads=threads, on_progress=on_progress)
        on_blocks = check_block_sample(rng, mode, series, threads)
    else:
        series = whole = in_memory(series)
        mode = in_order(find_mode(model, series, start, threads=threads, on_progress=on_progress))
    job = Job(rng, mode, whole if method in EVERYTHING else series, wanted, threads, on_progress, executor)
    if method == "map" or mode.model.size == 0:
        why = "the mode was asked for" if mode.model.size else "everything is known"
        checks = [check_states(mode, series, threads), *on_blocks]
        return warned(Inference(mode, mode.theta[None, None], "map", [why], checks))
    if method == "auto" and mode.others and series is whole:
        found = stacked(job)
    elif method in ("auto", "chain"):
        found = by_rule(job, forced=method == "chain")
    elif method == "importance":
        weighted = adaptive_importance(rng, Roots(mode, series, threads), wanted)
        found = of_weights(job, weighted, ["importance sampling was asked for"], check_weights(weighted, wanted))
    else:
        sample, message = FORCED[method]
        draws, checks = sample(job)
        found = Inference(mode, draws, method, [f"{message} was asked for"], checks)
    on_progress("checks", 0, 0)
    sizes = [c.value for c in found.checks if c.name.startswith("effective draws")]
    gradients = check_gradients(
        rng, mode, series, found.theta, min(sizes), threads
    )  # states not renamed: it would show
    about = [check_states(mode, series, threads), *on_blocks, *gradients]
    if found.method != "stacked":
        others = found.mode.others
        message = "modes of nearly the same height seen besides this one" + (": not sampled" if others else "")
        about.append(Check("second modes", float(len(others)), not others, message))
    return warned(found._replace(theta=relabel_like_mode(mode, found.theta), checks=[*found.checks, *about]))


def warned(found: Inference) -> Inference:
    """The same, with a warning if it is not to be trusted."""
    if not all(c.passed for c in found.checks):
        warnings.warn(found.verdict, RuntimeWarning, stacklevel=3)
    return found


def by_rule(job: Job, forced: bool) -> Inference:
    """One mode: chains, importance sampling or Hamiltonian Monte Carlo; chains whatever the tests say if ``forced``."""
    rng, mode, series, wanted, threads, on_progress, _ = job
    on_progress("which method?", 0, 0)
    roots = Roots(mode, series, threads)
    share = laplace_importance(rng, roots).last_share
    near = Check("nearly Gaussian", share, True, "effective share of points of the Laplace approximation")
    why = [f"{share:.0%} of the points of the Laplace approximation are effective"]
    longest = int(np.diff(series.bounds).max())
    if forced or (share >= NEARLY_GAUSSIAN and mode.curved and longest >= 3):
        windows, frozen, bias = shortest_buffer(job)
        buffer = check_buffer(bias)
        if forced or buffer.passed:
            pool, noise = pilot_pool(job, windows, frozen)
            if forced or noise.passed:
                why[0] += ": chains on windows"
                draws, checks = by_chain(job, pool)
                return Inference(mode, draws, "chain", why, [near, buffer, noise, *checks])
            why.append(f"windows leave too much to chance ({noise.value:.2g} of the variance)")
        else:
            why.append(f"no buffer up to {BUFFERS[-1]} passes its test (bias {bias:.2g})")
    if roots.points.short:
        why.append("the series is short: Hamiltonian Monte Carlo on all data")
    else:
        if has_roots(mode.model) and mode.model.fixed_values.is_empty:
            gamma = GammaRows(mode, series, threads)
            if (other := laplace_importance(rng, gamma).last_share) > share:
                roots, share = gamma, other
                why.append(f"with rows of transitions as gamma numbers {share:.0%}")
        on_progress("importance sampling", 0, 0)
        weighted = adaptive_importance(rng, roots, wanted)
        near = near._replace(value=share, passed=share >= FAR_FROM_GAUSSIAN)
        checks = [near, *check_weights(weighted, wanted)]
        if all(c.passed for c in checks) or weighted.interrupted:
            return of_weights(job, weighted, [*why, "importance sampling instead"], checks)
        why.append("importance sampling fails its checks: Hamiltonian Monte Carlo on all data")
        warnings.warn("the posterior is badly identified: " + verdict(checks), RuntimeWarning, stacklevel=3)
    draws, checks = by_hmc(job, work=WORK)
    return Inference(mode, draws, "hmc", why, [near, *checks])


def of_weights(job: Job, weighted: Weighted, why: list[str], checks: list[Check]) -> Inference:
    """Equally weighted draws, twice as many as there are effective ones, and the weights kept."""
    draws = weighted.resample(job.rng, max(100, round(2 * weighted.effective)))
    return Inference(job.mode, draws[None], "importance", why, checks, weighted)


def stacked(job: Job) -> Inference:
    """Several modes of nearly the same height: draws around each, put together by evidence.

    On a short series by Hamiltonian Monte Carlo, else by importance sampling.  Where all chains get from one mode to
    the other, they have the same law, and nothing needs to be put together.
    """
    rng, mode, series, wanted, threads, on_progress, _ = job
    on_progress("several modes", 0, 0)
    modes = [mode, *(find_mode(mode.model, series, c.parameters, threads=threads) for c in mode.others)]
    short = BatchedLogPosterior(mode.model, series).short
    sample = partial(by_hmc_with_evidence, work=WORK / len(modes)) if short else by_weights
    found = [sample(job._replace(mode=m)) for m in modes]
    if short and (one := as_one_chain(job, modes, [draws for draws, _, _ in found])) is not None:
        return one
    logs = np.array([evidence for _, evidence, _ in found])
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    warnings.warn(
        f"{len(modes)} modes of the posterior of nearly the same height, with shares "
        f"{', '.join(f'{s:.3g}' for s in shares)}; they are stacked by evidence.",
        RuntimeWarning,
        stacklevel=3,
    )
    counts = np.round(shares * max(100, 2 * wanted)).astype(int)
    flat = [draws.reshape(-1, draws.shape[-1]) for draws, _, _ in found]
    drawn = [theta[rng.permutation(len(theta))[:n]] for theta, n in zip(flat, counts, strict=True)]
    parts = [
        convert_coordinates(mode.model, m.model, theta) for m, theta in zip(modes, drawn, strict=True) if len(theta) > 0
    ]
    checks = [c for (_, _, each), share in zip(found, shares, strict=True) if share > 0.01 for c in each]
    outside = float(1 - shares.max())
    note = "the posterior has several modes: means of parameters lie between them" if outside > 0.01 else ""
    modes_check = Check("second modes", outside, True, "posterior mass outside the largest mode", note)
    how = "Hamiltonian Monte Carlo" if short else "importance sampling"
    why = [f"{len(modes)} modes within 10 of the log posterior: {how} around each, stacked by evidence"]
    return Inference(mode, rng.permutation(np.concatenate(parts))[None], "stacked", why, [modes_check, *checks])


def as_one_chain(job: Job, modes: list[Mode], found: list[Array]) -> Inference | None:
    """Chains (chains, n, d) from several modes as one, if they agree wherever they started; else None."""
    size = min(draws.shape[1] for draws in found)
    parts = [
        convert_coordinates(job.mode.model, m.model, draws[:, :size]) for m, draws in zip(modes, found, strict=True)
    ]
    draws = np.concatenate(parts)
    mixed = mixing(relabel_like_mode(job.mode, draws))
    if (mixed.r_hat > mixed.limit).any():
        return None
    why = [f"chains from {len(modes)} starting points get from each to the other: Hamiltonian Monte Carlo on all data"]
    checks = check_mixing(mixed, job.mode.model.component_names, job.wanted)
    return Inference(job.mode._replace(others=[]), draws, "hmc", why, checks)


def by_weights(job: Job) -> tuple[Array, float, list[Check]]:
    """Draws (1, n, d) around a mode by importance sampling, the log evidence and the checks."""
    found = adaptive_importance(job.rng, Roots(job.mode, job.series, job.threads), job.wanted)
    if len(found.theta) == 0:
        return by_hmc_with_evidence(job, WORK)
    draws = found.resample(job.rng, max(100, round(2 * job.wanted)))[None]
    return draws, found.evidence, check_weights(found, job.wanted)


def by_hmc_with_evidence(job: Job, work: float) -> tuple[Array, float, list[Check]]:
    """The same by Hamiltonian Monte Carlo."""
    draws, checks = by_hmc(job, work=work)
    flat, points = draws.reshape(-1, draws.shape[-1]), BatchedLogPosterior(job.mode.model, job.series, job.threads)
    return draws, bridge_evidence(job.rng, job.mode, points, renamed(job.mode, flat)), checks
