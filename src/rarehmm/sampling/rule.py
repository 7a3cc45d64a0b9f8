"""The decision rule: which method samples the posterior, and why.

1. There is one mode that matters, every state has at least ``FEW`` observations, the posterior is nearly Gaussian in
   cube-root coordinates (importance sampling from the Laplace approximation keeps at least 80 % of its points, or
   fewer with more than ``FEW_PARAMETERS``) and a buffer passes its test: chains on windows with control variates, whose
   cost does not grow with the series.
2. Else importance sampling from adaptive mixtures, in cube-root coordinates.  Where only the windows fail, the first
   proposal is at the mode; otherwise it is fitted to draws of short chains of Hamiltonian Monte Carlo from every mode
   that matters: posteriors from few rare observations have long arms, which no curvature at the mode shows, and no
   importance weight shows what no proposal has visited.
3. If its checks fail and there is a single mode, Hamiltonian Monte Carlo on all data, with a warning.

``METHODS`` are the names of methods: these, and the samplers of the folder ``samplers`` by the names of their files.
One name could mean two things: the method "sgld" is the paper's sampler with uniform windows.  SGLD as an integrator of
the chains is ``method=Sgld(0.2)``, or "preconditioned", whose metric is the posterior covariance at the mode.  The
sampler "expanded_mean" has no whitened form; under this name it is the paper's sampler, as "tass".
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from rarehmm import samplers
from rarehmm.common.arrays import Array
from rarehmm.common.progress import OnProgress, silent
from rarehmm.data.series import Series, in_memory
from rarehmm.designs.pilot import pilot
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.sampler import DivergedError, is_sampler
from rarehmm.exact.block_sample import Observations, objective_of
from rarehmm.exact.passes import state_counts
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling.diagnostics import (
    Check,
    check_block_sample,
    check_buffer,
    check_gradients,
    check_size,
    check_states,
    check_weights,
    mixing,
    rows,
    verdict,
    whitened,
)
from rarehmm.sampling.importance import (
    NEARLY_GAUSSIAN,
    Roots,
    Weighted,
    adaptive_importance,
    laplace_importance,
)
from rarehmm.sampling.methods import (
    BUFFERS,
    Job,
    MakeDesign,
    Sampled,
    affordable_work,
    by_chain,
    by_gibbs,
    by_hmc,
    by_laplace,
    by_variational,
    chain_pool,
    convert_coordinates,
    explore,
    mixed_draws,
    relabel_like_mode,
    shortest_buffer,
)
from rarehmm.sampling.paper_sampler import PaperSampler, by_paper
from rarehmm.sampling.stand_in import laplace_points, stand_in
from rarehmm.search.long_series import find_long_mode, is_long
from rarehmm.search.mode import Mode, find_mode, relabel_states, with_ordered_states
from rarehmm.windows.gradients import can_use_windows, check_windows


class Method(NamedTuple):
    """A method other than the rule's: how it samples, its description, and whether it reads the series itself, however
    long, rather than a sample of its blocks."""

    sample: Callable[[Job], Sampled]
    description: str
    reads_all: bool = False


def paper_method(settings: PaperSampler, description: str) -> Method:
    """The paper's sampler with these settings."""
    return Method(partial(by_paper, settings=settings), description, reads_all=True)


FORCED = {
    "tass": paper_method(PaperSampler(), "the paper's sampler with targeted windows"),
    "sgld": paper_method(PaperSampler(design=uniform), "the paper's sampler with uniform windows"),
    "expanded_mean": paper_method(PaperSampler(), "the paper's sampler with targeted windows"),
    "gibbs": Method(by_gibbs, "Gibbs sampling", reads_all=True),
    "hmc": Method(by_hmc, "Hamiltonian Monte Carlo"),
    "langevin": Method(partial(by_hmc, ways=((1, 0.574),) * 3), "Langevin dynamics with a Metropolis correction"),
    "laplace": Method(by_laplace, "the Laplace approximation"),
    "vi": Method(by_variational, "variational inference"),
}
INTEGRATORS = tuple(name for name in samplers.NAMES if name not in FORCED)
ON_WINDOWS = ("chain", "tass", "sgld", "expanded_mean", "vi", *INTEGRATORS)
METHODS = ("auto", "chain", "importance", *FORCED, *INTEGRATORS, "map")
FEW = (
    50.0  # observations of a state; with fewer its posterior has long tails, which curvature at the mode does not show
)
SMALLEST_SHARE = 1e-3  # of the evidence, by the Laplace approximation: modes with less are left out
ENOUGH = 0.1  # least share of effective points of the Laplace approximation where rows differ: more of them are drawn
FEW_PARAMETERS = 12  # with more of them, points of a posterior that is as nearly Gaussian in each have smaller shares
COVERED = 0.99  # least share of the evidence of all modes found that those sampled must have
NOTED_SHARE = 0.01  # of posterior mass outside the largest mode; more of it is noted


class Inference(NamedTuple):
    """A posterior as draws, and whether to trust them.

    Attributes
    ----------
    mode : Mode
        The mode, whose model the draws are of.
    theta : array (chains, n, d)
        Draws, equally weighted.
    method : str
        The method that made them, and ``why``: a list of reasons.
    checks : list of Check
        What the ``verdict`` is based on.
    weighted : Weighted or None
        Points of importance sampling with their weights, if it was used: draws are resampled from them.
    effective : float
        Effective sample size of the worst component; infinite for the mode alone.
    shares : array (m,) or None
        Share of the evidence of each mode that was sampled, the mode first; None if other modes were not considered.
    """

    mode: Mode
    theta: Array
    method: str
    why: list[str]
    checks: list[Check]
    weighted: Weighted | None = None
    effective: float = np.inf
    shares: Array | None = None

    @property
    def verdict(self) -> str:
        """Whether all checks passed, or which did not, in a sentence."""
        return verdict(self.checks)

    def describe(self) -> str:
        """Method, reasons, all checks in a table, and the verdict."""
        return "\n".join([f"{self.method}: {'; '.join(self.why)}", *rows(self.checks), self.verdict])

    def __repr__(self) -> str:
        return self.describe()


def infer(
    rng: np.random.Generator,
    model: Model,
    series: Series,
    *,
    start: Parameters | None = None,
    wanted: float = 1000.0,
    method: Any = "auto",
    sampler: Any = None,
    design: MakeDesign = pilot,
    threads: int | None = None,
    on_progress: OnProgress = silent,
) -> Inference:
    """Sample the posterior by the decision rule, or by another method.

    Parameters
    ----------
    rng : Generator
    model : Model
    series : Series
    start : Parameters, optional
        Where to look for the mode; by default states are found in the data.
    wanted : float, default 1000
        Effective sample size of every parameter.
    method : str, sampler or PaperSampler, default "auto"
        "auto" is the rule, "chain" and "importance" are methods of it.  "gibbs", "hmc" and "langevin" (with a
        Metropolis correction) read all data in each step, and run longer than the rule would; "laplace" is the Gaussian
        at the mode, "vi" the one closest to the posterior, "map" the mode alone.  The name of a file of ``samplers``,
        such as "sghmc", or an instance, such as ``Sghmc(0.1, 0.3)``, is "chain" with that integrator, in whitened
        coordinates.  "tass" and "sgld" are the paper's sampler, with targeted and with uniform windows;
        ``PaperSampler`` has its settings.
    sampler : sampler, default Baoab()
        Integrator of the chains on windows, in whitened coordinates.
    design : callable, default pilot
        How their windows are drawn: a function from ``WindowInformation`` to a ``Design``.
    threads : int, optional
    on_progress : callable, optional
        Called with the name of a stage, the steps done and their total.

    Returns
    -------
    Inference
        States are in ascending order of the parameter that distinguishes them best, the mean where means differ; those
        that fixed values distinguish keep their places.

    Warns
    -----
    RuntimeWarning
        If a check fails.

    Examples
    --------
    >>> import numpy as np
    >>> from rarehmm import Gaussian, Model, Posterior, Series, default_priors, infer
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=5000)
    >>> y[1000:1020] += 8
    >>> series = Series(y)
    >>> model = Model(Gaussian(), 2, default_priors(Gaussian(), 2, series))
    >>> found = infer(rng, model, series, wanted=200)
    >>> found.verdict
    'All checks passed.'
    >>> Posterior.of(found).mean.phi.round()
    array([[-0.,  1.],
           [ 8.,  1.]])
    """
    check_method(method)
    if not 1 <= wanted < np.inf:
        raise ValueError(f"wanted is {wanted}; the effective sample size must be finite and at least 1.")
    check_reading(method, model, series)
    whole, data, on_blocks, executor = series, cast(Observations, series), [], series.executor
    if model.size > 0 and is_long(model, series):
        model.check(series)
        mode, data = find_long_mode(rng, model, series, start, threads=threads, on_progress=on_progress)
        on_blocks = check_block_sample(rng, mode, data, series, threads)
    else:
        data = whole = in_memory(series)
        mode = with_ordered_states(find_mode(model, whole, start, threads=threads, on_progress=on_progress))
    few = check_size(mode.model, sum(column.size for column in series.summaries))
    if method == "map" or mode.model.size == 0:
        why = "the mode was requested" if mode.model.size else "all parameters are fixed"
        checks = [check_states(mode, data, threads), *few, *on_blocks]
        return warned(Inference(mode, mode.theta[None, None], "map", [why], checks))
    job = Job(rng, mode, data, wanted, threads, on_progress, whole, executor, sampler or Baoab(), design)
    found = sample(job, method)
    on_progress("checks", 0, 0)
    # states are not relabelled yet: that would show in the gradients
    gradients = check_gradients(rng, mode, data, found.theta, found.effective, threads)
    about = [check_states(mode, data, threads), *few, *on_blocks, *gradients, check_modes(found)]
    return warned(found._replace(theta=relabel_like_mode(mode, found.theta), checks=[*found.checks, *about]))


def check_method(method: Any) -> None:
    """Refuse a method that does not exist."""
    if isinstance(method, PaperSampler):
        method.check()
    elif not is_sampler(method) and (not isinstance(method, str) or method not in METHODS):
        raise ValueError(
            f"method is {method!r}; it must be one of {', '.join(METHODS)}, or an instance of a sampler or of "
            "PaperSampler."
        )


def check_reading(method: Any, model: Model, series: Series) -> None:
    """Refuse a method on windows by its name, where there are no gradients from windows."""
    name = method if isinstance(method, str) else type(method).__name__
    if name != method or name in ON_WINDOWS:
        check_windows(model, series, f"method is {name!r}: ")


def sample(job: Job, method: Any) -> Inference:
    """Draws by a method; some read the whole series where a sample of its blocks stands for it."""
    if is_sampler(method):
        return by_integrator(job, method, "chain")
    if isinstance(method, PaperSampler):
        return by_method(job, paper_method(method, "the paper's sampler"), "paper")
    if method == "auto":
        return by_rule(job)
    if method == "chain":
        return by_rule(job, forced=True)
    if method == "importance":
        return by_weights(job, *modes_that_matter(job), ["importance sampling was requested"], forced=True)
    if method in INTEGRATORS:
        return by_integrator(job, whitened_sampler(method, job.mode.model.size), method)
    return by_method(job, FORCED[method], method)


def whitened_sampler(name: str, size: int) -> Any:
    """The sampler in the file of this name, with default settings for whitened coordinates."""
    kind = samplers.sampler_class(name)
    if not hasattr(kind, "whitened"):
        raise ValueError(
            f"method is {name!r}, but {kind.__name__} has no settings for whitened coordinates; pass an instance, or "
            "bring a class method whitened(d)."
        )
    return kind.whitened(size)


def by_integrator(job: Job, sampler: Any, name: str) -> Inference:
    """Chains on windows by another sampler than the default."""
    found = by_rule(job._replace(sampler=sampler), forced=True)
    return found._replace(method=name, why=[*found.why, f"steps of {type(sampler).__name__}"])


def by_method(job: Job, method: Method, name: str) -> Inference:
    """Draws by a method that is not the rule's."""
    draws, checks, size = method.sample(job._replace(series=job.whole) if method.reads_all and job.whole else job)
    return Inference(job.mode, draws, name, [f"{method.description} was requested"], checks, effective=size)


def check_modes(found: Inference) -> Check:
    """Are there other modes of nearly the same height, and are they part of the draws?"""
    if found.shares is None:
        others = found.mode.others
        message = "other modes of nearly the same height" + (": not sampled" if others else "")
        return Check("second modes", float(len(others)), not others, message)
    covered, outside = float(found.shares.sum()), float(1 - found.shares.max() / found.shares.sum())
    message = (
        f"posterior mass outside the largest of {len(found.shares)} modes, which cover {covered:.1%} of the evidence"
    )
    note = "the posterior has several modes, and posterior means lie between them" if outside > NOTED_SHARE else ""
    return Check("second modes", outside, covered >= COVERED, message, note)


def warned(found: Inference) -> Inference:
    """The inference itself, with a warning if a check failed."""
    if not all(c.passed for c in found.checks):
        warnings.warn(found.verdict, RuntimeWarning, stacklevel=3)
    return found


def by_rule(job: Job, forced: bool = False) -> Inference:
    """Chains on windows where the posterior is nearly Gaussian, or if ``forced``; else weighted draws."""
    mode, series = job.mode, job.series
    if not can_use_windows(mode.model, series) and not forced:
        return by_points(job)
    modes, neglected = modes_that_matter(job)
    job.on_progress("which method?", 0, 0)
    share = laplace_importance(job.rng, Roots(mode, series, job.threads), limit=least_share(job)).share
    near = Check("nearly Gaussian", share, True, "effective fraction of points of the Laplace approximation")
    why = [f"{share:.0%} of the points of the Laplace approximation are effective"]
    gaussian = is_nearly_gaussian(job, modes, share, why)
    fits_windows = can_use_windows(mode.model, series) and int(np.diff(series.bounds).max()) >= 3
    if forced or (gaussian and fits_windows):
        windows, frozen, bias = shortest_buffer(job)
        buffer = check_buffer(bias)
        if forced or buffer.passed:
            pool, noise = chain_pool(job, windows, frozen)
            if forced or noise.passed:
                try:
                    draws, checks, size = by_chain(job, pool)
                    why[0] += ": chains on windows"
                    checks = [near, buffer, noise, *checks]
                    shares = np.array([1 - neglected]) if len(modes) == 1 and series is job.whole else None
                    return Inference(mode, draws, "chain", why, checks, effective=size, shares=shares)
                except DivergedError as error:
                    if forced:
                        raise
                    why.append(f"chains on windows diverge ({error.args[0]})")
            else:
                why.append(f"gradients from windows are too noisy ({noise.value:.2g} excess variance)")
        else:
            why.append(f"no buffer up to {BUFFERS[-1]} passes its test (bias {bias:.2g})")
    found = by_weights(job, modes, neglected, why, explored=not gaussian)
    return found._replace(checks=[near, *found.checks])


def by_points(job: Job) -> Inference:
    """Weighted points of the Laplace approximation where rows differ; where its checks fail, other weighted draws.

    A small sample of blocks stands for the series, so that the cost of a point does not grow with its length.
    """
    mode = job.mode
    modes, neglected = modes_that_matter(job)
    job.on_progress("which method?", 0, 0)
    standing, on_blocks = stand_in(job)
    roots, why = Roots(mode, standing, job.threads), []
    first = laplace_importance(job.rng, roots, limit=ENOUGH)
    why.append(f"{first.share:.0%} of the points of the Laplace approximation are effective")
    near = Check("nearly Gaussian", first.share, True, "effective fraction of points of the Laplace approximation")
    enough = first.share >= ENOUGH
    if suits_gaussian(job, modes, why) and enough:
        weighted = laplace_points(job, roots, first)
        checks = check_weights(weighted, job.wanted)
        if all(c.passed for c in checks):
            why[0] += ": weighted points"
            shares = np.array([1 - neglected]) if job.series is job.whole else None
            return of_weights(job, weighted, why, [near, *on_blocks, *checks], shares)
        why.append("their weights fail their checks")
    found = by_weights(job, modes, neglected, why, explored=not (len(modes) == 1 and enough))
    return found._replace(checks=[near, *found.checks])


def is_nearly_gaussian(job: Job, modes: list[Mode], share: float, why: list[str]) -> bool:
    """Whether the curvature at the mode shows where the posterior is; reasons against it are added to ``why``."""
    return suits_gaussian(job, modes, why) and share >= least_share(job)


def least_share(job: Job) -> float:
    """Least share of effective points of the Laplace approximation to a posterior that is nearly Gaussian."""
    return max(ENOUGH, float(NEARLY_GAUSSIAN ** max(1.0, job.mode.model.size / FEW_PARAMETERS)))


def suits_gaussian(job: Job, modes: list[Mode], why: list[str]) -> bool:
    """Whether there is a single mode with enough observations of every state; reasons against it are added."""
    parameters = job.mode.model.unpack(job.mode.theta)
    counts = objective_of(job.series).counts
    if counts is None:
        counts = state_counts(job.mode.model, parameters, job.series, threads=job.threads)
    if len(modes) > 1:
        why.append(f"the posterior has {len(modes)} modes that matter")
    if counts.min() < FEW:
        why.append(f"a state has only {counts.min():.3g} observations, and its posterior may have long tails")
    return len(modes) == 1 and bool(counts.min() >= FEW) and job.mode.positive_definite


def modes_that_matter(job: Job) -> tuple[list[Mode], float]:
    """Modes with more than ``SMALLEST_SHARE`` of the evidence, by the Laplace approximation, and the share of the rest.

    The mode of the job comes first, whatever its share.  A sample of blocks represents its series near one mode only.
    """
    mode = job.mode
    if not mode.others or job.series is not job.whole:
        return [mode], 0.0
    job.on_progress("several modes", 0, 0)
    modes = [mode, *(find_mode(mode.model, job.series, c.parameters, threads=job.threads) for c in mode.others)]
    logs = np.array([laplace_evidence(m) for m in modes])
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    kept = [i for i, share in enumerate(shares) if i == 0 or share > SMALLEST_SHARE]
    return [modes[i] for i in kept], float(1 - shares[kept].sum())


def laplace_evidence(mode: Mode) -> float:
    """Log of the integral of the posterior density around a mode, by the Laplace approximation."""
    return float(mode.log_posterior + np.log(np.diag(mode.factor)).sum() + len(mode.theta) / 2 * np.log(2 * np.pi))


def by_weights(
    job: Job, modes: list[Mode], neglected: float, why: list[str], forced: bool = False, explored: bool = True
) -> Inference:
    """Importance sampling from mixtures fitted to what chains explore, or around the mode unless ``explored``.

    Where the mode does not suffice, chains explore all the same.  If that fails its checks and there is a single mode,
    longer chains follow, with a warning, unless ``forced``.
    """
    rng, mode, wanted = job.rng, job.mode, job.wanted
    if not explored:
        job.on_progress("importance sampling", 0, 0)
        weighted = adaptive_importance(rng, Roots(mode, job.series, job.threads), wanted)
        checks = check_weights(weighted, wanted)
        if weighted.interrupted or all(c.passed for c in checks):
            shares = np.array([1 - neglected]) if job.series is job.whole else None
            return of_weights(job, weighted, [*why, "importance sampling around the mode"], checks, shares)
        why.append("importance sampling around the mode fails its checks")
    draws_of_chains, complete = explore(job, modes)
    if not complete:
        why.append("interrupted while the posterior was explored")
        draws, checks, size = mixed_draws(job, draws_of_chains[None], mixing(draws_of_chains[None]))
        return Inference(mode, draws, "hmc", why, checks, effective=size)
    job.on_progress("importance sampling", 0, 0)
    weighted = adaptive_importance(rng, Roots(mode, job.series, job.threads), wanted, explored=draws_of_chains)
    checks = check_weights(weighted, wanted)
    shares = (1 - neglected) * mode_shares(mode, modes, weighted) if job.series is job.whole else None
    good = forced or weighted.interrupted or all(c.passed for c in checks)
    if good or (len(modes) > 1 and len(weighted.theta) > 0):  # no chain would find its way between modes
        return of_weights(job, weighted, [*why, "importance sampling from what chains explore"], checks, shares)
    why.append("importance sampling fails its checks: Hamiltonian Monte Carlo on all data")
    warnings.warn("the posterior is poorly identified: " + verdict(checks), RuntimeWarning, stacklevel=3)
    draws, checks, size = by_hmc(job, work=affordable_work(job) / 2)  # exploring took the other half
    return Inference(mode, draws, "hmc", why, checks, effective=size)


def of_weights(job: Job, weighted: Weighted, why: list[str], checks: list[Check], shares: Array | None) -> Inference:
    """Equally weighted draws, twice as many as there are effective ones, and the weights kept."""
    if shares is not None and len(shares) > 1:
        listed = ", ".join(f"{share:.2g}" for share in shares)
        warnings.warn(f"{len(shares)} modes of the posterior, with shares {listed}.", RuntimeWarning, stacklevel=3)
    draws = weighted.resample(job.rng, max(100, round(2 * weighted.effective)))
    return Inference(job.mode, draws[None], "importance", why, checks, weighted, weighted.effective, shares)


def mode_shares(mode: Mode, modes: list[Mode], weighted: Weighted) -> Array:
    """Share of the weights of points around each of several modes, by the larger of their Laplace approximations.

    The points are in the coordinates of ``mode``.
    """
    logs = []
    for m in modes if len(modes) > 1 else []:
        theta = relabel_states(m, convert_coordinates(m.model, mode.model, weighted.theta))
        logs.append(-(whitened(m, theta) ** 2).sum(1) / 2 - np.log(np.diag(m.factor)).sum())
    if len(logs) == 0 or len(weighted.theta) == 0:
        return np.ones(1)
    return np.asarray(np.bincount(np.argmax(logs, axis=0), weights=weighted.weights, minlength=len(modes)), dtype=float)
