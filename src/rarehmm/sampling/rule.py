"""The decision rule: which method samples the posterior, and why.

1. The posterior is nearly Gaussian in cube-root coordinates (importance sampling from the Laplace approximation keeps
   at least 80 % of its points) and a buffer passes its test: chains on windows with control variates, whose cost does
   not grow with the series.
2. Else, on a series so short that many exact gradients cost little: Hamiltonian Monte Carlo on all data.  Posteriors
   from few rare observations have long arms, which importance sampling overlooks without a sign.
3. Else adaptive importance sampling on forward passes, in cube-root coordinates or with rows of the transition matrix
   as gamma variates, accepted only if the posterior is not too far from a Gaussian and no few points carry it.
4. Else Hamiltonian Monte Carlo on all data, with a warning.
5. A second mode of nearly the same height: modes are stacked by their evidence, with a warning.

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
from rarehmm.engine.contracts.sampler import is_sampler
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.block_sample import Observations
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling.diagnostics import (
    Check,
    check_block_sample,
    check_buffer,
    check_gradients,
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
    MakeDesign,
    Sampled,
    by_chain,
    by_gibbs,
    by_hmc,
    by_laplace,
    by_variational,
    chain_pool,
    convert_coordinates,
    mixed_draws,
    relabel_like_mode,
    shortest_buffer,
)
from rarehmm.sampling.paper_sampler import PaperSampler, by_paper
from rarehmm.search.long_series import find_long_mode, is_long
from rarehmm.search.mode import Mode, find_mode, relabel_states, with_ordered_states


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
METHODS = ("auto", "chain", "importance", *FORCED, *INTEGRATORS, "map")
FAR_FROM_GAUSSIAN = 0.3  # below it, importance sampling is not trusted whatever its own checks say


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
    """

    mode: Mode
    theta: Array
    method: str
    why: list[str]
    checks: list[Check]
    weighted: Weighted | None = None
    effective: float = np.inf

    @property
    def verdict(self) -> str:
        """Whether all checks passed, or which did not, in a sentence."""
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
    whole, data, on_blocks, executor = series, cast(Observations, series), [], series.executor
    if model.size > 0 and is_long(model, series):
        model.check(series)
        mode, data = find_long_mode(rng, model, series, start, threads=threads, on_progress=on_progress)
        on_blocks = check_block_sample(rng, mode, data, threads)
    else:
        data = whole = in_memory(series)
        mode = with_ordered_states(find_mode(model, whole, start, threads=threads, on_progress=on_progress))
    if method == "map" or mode.model.size == 0:
        why = "the mode was requested" if mode.model.size else "all parameters are fixed"
        checks = [check_states(mode, data, threads), *on_blocks]
        return warned(Inference(mode, mode.theta[None, None], "map", [why], checks))
    job = Job(rng, mode, data, wanted, threads, on_progress, executor, sampler or Baoab(), design)
    found = sample(job, method, whole)
    on_progress("checks", 0, 0)
    # states are not relabelled yet: that would show in the gradients
    gradients = check_gradients(rng, mode, data, found.theta, found.effective, threads)
    about = [check_states(mode, data, threads), *on_blocks, *gradients, *check_modes(found)]
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


def sample(job: Job, method: Any, whole: Series) -> Inference:
    """Draws by a method; some read the ``whole`` series where a sample of its blocks stands for it."""
    if is_sampler(method):
        return by_integrator(job, method, "chain")
    if isinstance(method, PaperSampler):
        return by_method(job, paper_method(method, "the paper's sampler"), "paper", whole)
    if method == "auto":
        return stacked(job) if job.mode.others and job.series is whole else by_rule(job)
    if method == "chain":
        return by_rule(job, forced=True)
    if method == "importance":
        weighted = adaptive_importance(job.rng, Roots(job.mode, job.series, job.threads), job.wanted)
        return of_weights(job, weighted, ["importance sampling was requested"], check_weights(weighted, job.wanted))
    if method in INTEGRATORS:
        return by_integrator(job, whitened_sampler(method, job.mode.model.size), method)
    return by_method(job, FORCED[method], method, whole)


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


def by_method(job: Job, method: Method, name: str, whole: Series) -> Inference:
    """Draws by a method that is not the rule's."""
    draws, checks, size = method.sample(job._replace(series=whole) if method.reads_all else job)
    return Inference(job.mode, draws, name, [f"{method.description} was requested"], checks, effective=size)


def check_modes(found: Inference) -> list[Check]:
    """Are there other modes of nearly the same height?  Where they are stacked, they are part of the draws."""
    if found.method == "stacked":
        return []
    others = found.mode.others
    message = "other modes of nearly the same height" + (": not sampled" if others else "")
    return [Check("second modes", float(len(others)), not others, message)]


def warned(found: Inference) -> Inference:
    """The inference itself, with a warning if a check failed."""
    if not all(c.passed for c in found.checks):
        warnings.warn(found.verdict, RuntimeWarning, stacklevel=3)
    return found


def by_rule(job: Job, forced: bool = False) -> Inference:
    """One mode: chains, importance sampling or Hamiltonian Monte Carlo; chains whatever the tests say if ``forced``."""
    rng, mode, series, wanted, threads, on_progress, *_ = job
    on_progress("which method?", 0, 0)
    roots = Roots(mode, series, threads)
    share = laplace_importance(rng, roots).last_share
    near = Check("nearly Gaussian", share, True, "effective fraction of points of the Laplace approximation")
    why = [f"{share:.0%} of the points of the Laplace approximation are effective"]
    longest = int(np.diff(series.bounds).max())
    if forced or (share >= NEARLY_GAUSSIAN and mode.positive_definite and longest >= 3):
        windows, frozen, bias = shortest_buffer(job)
        buffer = check_buffer(bias)
        if forced or buffer.passed:
            pool, noise = chain_pool(job, windows, frozen)
            if forced or noise.passed:
                why[0] += ": chains on windows"
                draws, checks, size = by_chain(job, pool)
                return Inference(mode, draws, "chain", why, [near, buffer, noise, *checks], effective=size)
            why.append(f"gradients from windows are too noisy ({noise.value:.2g} excess variance)")
        else:
            why.append(f"no buffer up to {BUFFERS[-1]} passes its test (bias {bias:.2g})")
    if roots.points.short:
        why.append("the series is short: Hamiltonian Monte Carlo on all data")
    else:
        if has_roots(mode.model) and mode.model.fixed_values.is_empty:
            gamma = GammaRows(mode, series, threads)
            if (other := laplace_importance(rng, gamma).last_share) > share:
                roots, share = gamma, other
                why.append(f"with rows of the transition matrix as gamma variates {share:.0%}")
        on_progress("importance sampling", 0, 0)
        weighted = adaptive_importance(rng, roots, wanted)
        near = near._replace(value=share, passed=share >= FAR_FROM_GAUSSIAN)
        checks = [near, *check_weights(weighted, wanted)]
        if all(c.passed for c in checks) or weighted.interrupted:
            return of_weights(job, weighted, [*why, "importance sampling instead"], checks)
        why.append("importance sampling fails its checks: Hamiltonian Monte Carlo on all data")
        warnings.warn("the posterior is poorly identified: " + verdict(checks), RuntimeWarning, stacklevel=3)
    draws, checks, size = by_hmc(job, work=WORK)
    return Inference(mode, draws, "hmc", why, [near, *checks], effective=size)


def of_weights(job: Job, weighted: Weighted, why: list[str], checks: list[Check]) -> Inference:
    """Equally weighted draws, twice as many as there are effective ones, and the weights kept."""
    draws = weighted.resample(job.rng, max(100, round(2 * weighted.effective)))
    return Inference(job.mode, draws[None], "importance", why, checks, weighted, weighted.effective)


def stacked(job: Job) -> Inference:
    """Several modes of nearly the same height: draws around each, put together by evidence.

    On a short series by Hamiltonian Monte Carlo, else by importance sampling.  Where all chains move between the modes,
    they have the same distribution, and nothing needs to be put together.
    """
    rng, mode, series, wanted, threads, on_progress, *_ = job
    on_progress("several modes", 0, 0)
    modes = [mode, *(find_mode(mode.model, series, c.parameters, threads=threads) for c in mode.others)]
    short = BatchedLogPosterior(mode.model, series).short
    sample = partial(by_hmc_with_evidence, work=WORK / len(modes)) if short else by_weights
    found = [sample(job._replace(mode=m)) for m in modes]
    if short and (one := as_one_chain(job, modes, [each.draws for each, _ in found])) is not None:
        return one
    logs = np.array([evidence for _, evidence in found])
    shares = np.exp(logs - np.logaddexp.reduce(logs))
    warnings.warn(
        f"{len(modes)} modes of the posterior of nearly the same height, with shares "
        f"{', '.join(f'{s:.3g}' for s in shares)}; they are stacked by evidence.",
        RuntimeWarning,
        stacklevel=3,
    )
    counts = np.round(shares * max(100, 2 * wanted)).astype(int)
    flat = [each.draws.reshape(-1, each.draws.shape[-1]) for each, _ in found]
    drawn = [theta[rng.permutation(len(theta))[:n]] for theta, n in zip(flat, counts, strict=True)]
    parts = [
        convert_coordinates(mode.model, m.model, theta) for m, theta in zip(modes, drawn, strict=True) if len(theta) > 0
    ]
    large = [each for (each, _), share in zip(found, shares, strict=True) if share > 0.01]
    checks = [c for each in large for c in each.checks]
    outside = float(1 - shares.max())
    note = "the posterior has several modes, and posterior means lie between them" if outside > 0.01 else ""
    modes_check = Check("second modes", outside, True, "posterior mass outside the largest mode", note)
    smallest = min(each.effective for each in large)
    how = "Hamiltonian Monte Carlo" if short else "importance sampling"
    why = [f"{len(modes)} modes within 10 of the log posterior: {how} around each, stacked by evidence"]
    draws = rng.permutation(np.concatenate(parts))[None]
    return Inference(mode, draws, "stacked", why, [modes_check, *checks], effective=smallest)


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
    why = [f"chains from {len(modes)} starting points move between the modes: Hamiltonian Monte Carlo on all data"]
    _, checks, size = mixed_draws(job, draws, mixed)
    return Inference(job.mode._replace(others=[]), draws, "hmc", why, checks, effective=size)


def by_weights(job: Job) -> tuple[Sampled, float]:
    """Draws around a mode by importance sampling, and the log evidence."""
    found = adaptive_importance(job.rng, Roots(job.mode, job.series, job.threads), job.wanted)
    if len(found.theta) == 0:
        return by_hmc_with_evidence(job, WORK)
    draws = found.resample(job.rng, max(100, round(2 * job.wanted)))[None]
    return Sampled(draws, check_weights(found, job.wanted), found.effective), found.evidence


def by_hmc_with_evidence(job: Job, work: float) -> tuple[Sampled, float]:
    """Draws around a mode by Hamiltonian Monte Carlo, and the log evidence by bridge sampling."""
    sampled = by_hmc(job, work=work)
    flat = sampled.draws.reshape(-1, sampled.draws.shape[-1])
    points = BatchedLogPosterior(job.mode.model, job.series, job.threads)
    return sampled, bridge_evidence(job.rng, job.mode, points, relabel_states(job.mode, flat))
