"""Section 4.5: the posterior of the means, compared with methods that use all data and with exact Gibbs sampling."""

import time
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import gaussian_kde, norm

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.model.parameters import Parameters
from rarehmm.paper import Outcome, Settings, Table
from rarehmm.paper.common import (
    BUFFER,
    EPSILON,
    HALF_WIDTH,
    MULTIPLES,
    SINGLE_RARE,
    WINDOWS,
    Parts,
    Step,
    chain,
    designs,
    figure,
    kept,
    paper_model,
    simulated,
)
from rarehmm.plots import COLOURS
from rarehmm.posterior.posterior import in_order
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.sampling.arviz_adapter import effective_size
from rarehmm.sampling.gibbs import gibbs
from rarehmm.sampling.langevin import langevin
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

TITLE = "Section 4.5: the posterior, compared with methods that use all data"
MINUTES = 5
DATA = None
GIBBS, TASS, PRINTED, UNIFORM = "Gibbs", "TASS, counts", "TASS, as printed", "uniform"
LANGEVIN, VARIATIONAL = "full-data Langevin", "variational Bayes (hmmlearn)"
FULL_EPSILON = 1e-5  # the paper's step of full-data Langevin dynamics
FEW = 50  # fewer effective draws say little about a standard deviation: its relative error is 1 / sqrt(2 * 50) = 10 %


class Size(NamedTuple):
    """Number of observations, and burn-in and draws of chains on windows, full-data Langevin dynamics and Gibbs.

    ``longer`` is how many times as long the longer chains on windows are.
    """

    T: int
    burn: int
    draws: int
    longer: int
    full_burn: int
    full: int
    exact_burn: int
    exact: int


QUICK, FULL = Size(20_000, 200, 1_000, 2, 50, 200, 50, 200), Size(100_000, 5_000, 25_000, 40, 500, 5_000, 200, 3_000)


class Result(NamedTuple):
    """What one method finds about the means: draws (n, K), their mean, sd (K, 2) and effective sample size (K,).

    ``implied`` (K,) is the effective sample size that the step size of Langevin dynamics implies; NaN for the others.
    """

    method: str
    step: str
    draws: Array
    moments: Array
    effective: Array
    implied: Array
    seconds: float

    def bias(self, exact: "Result") -> Array:
        """Return the difference of the means (K,) from the exact ones, in exact standard deviations."""
        return np.asarray((self.moments[:, 0] - exact.moments[:, 0]) / exact.moments[:, 1])

    def error(self, exact: "Result") -> Array:
        """Return the Monte Carlo standard error of the bias (K,).

        A chain that is too short underestimates its standard deviation and overestimates its effective sample size:
        the larger of its own and the exact one, and the smaller of the estimate and what the step size implies.
        """
        wide = np.maximum(self.moments[:, 1], exact.moments[:, 1])
        own = np.where(np.isnan(self.effective), 0.0, wide**2 / np.fmin(self.effective, self.implied))
        return np.asarray(np.sqrt(own + exact.moments[:, 1] ** 2 / exact.effective) / exact.moments[:, 1])

    def ratio(self, exact: "Result") -> Array:
        """Return the standard deviations (K,) relative to the exact ones."""
        return np.asarray(self.moments[:, 1] / exact.moments[:, 1])


def sampled(method: str, step: str, draws: Array, seconds: float, implied: Array | None = None) -> Result:
    """Return the result of a method with draws (n, K); all NaN if it diverged at once."""
    nothing = np.full(draws.shape[1], np.nan)
    implied = nothing if implied is None else implied
    if len(draws) < 4:  # the fewest that ArviZ accepts
        return Result(method, step, draws, np.column_stack([nothing, nothing]), nothing, implied, seconds)
    effective = np.array([effective_size(column[None]) for column in draws.T])
    return Result(method, step, draws, np.array([draws.mean(0), draws.std(0)]).T, effective, implied, seconds)


def reproduce(settings: Settings) -> Outcome:
    size = QUICK if settings.quick else FULL
    rng = np.random.default_rng(45)
    data, model = simulated(rng, SINGLE_RARE, [-20.0, 0.0, 20.0], size.T), paper_model(3)
    series, parts = data.train, Parts(settings.on_progress, 12)
    windows = Windows(series, HALF_WIDTH, BUFFER)
    made, estimate = designs(model, series, windows)
    start, curvature = model.pack(estimate), len(series) * estimate.start / estimate.phi[:, 1]  # n / s^2 of each mean
    results: list[Result] = []

    def timed(method: str, step: str, sample: Any, skip: int, travelled: float = np.nan) -> None:
        """Run a method; ``travelled`` is the sum of its step sizes after the burn-in."""
        on_progress, begin = parts.next(), time.perf_counter()
        draws = in_order(model, kept(sample(on_progress))[skip:]).phi[:, :, 0]  # (n, K)
        results.append(sampled(method, step, draws, time.perf_counter() - begin, travelled * curvature / 4))

    def on_windows(method: str, key: str, multiple: int, longer: int = 1) -> None:
        pool = Pool(model, series, windows, made[key], WINDOWS, separate=True)
        step, total = Step(EPSILON, multiple), longer * (size.burn + size.draws)
        timed(
            method,
            step.rule,
            lambda w: chain(1, model, pool, start, total, step.size, thin=longer, on_progress=w)[0],
            size.burn,
            longer * size.draws * step.size,
        )

    def on_all(multiple: int) -> None:
        step, total = Step(FULL_EPSILON, multiple), size.full_burn + size.full
        sampler = ExpandedMeanSgld(step.size)
        timed(
            LANGEVIN,
            step.rule,
            lambda w: langevin(rng, sampler, model, series, estimate, total, on_progress=lambda n: w(n + 1, total)),
            size.full_burn,
            size.full * step.size,
        )

    total = size.exact_burn + size.exact
    timed(
        GIBBS,
        "",
        lambda w: gibbs(rng, model, series, estimate, total, on_progress=lambda n: w(n + 1, total)),
        size.exact_burn,
    )
    for multiple in MULTIPLES:
        for method, key in ((TASS, "targeted"), (PRINTED, "printed"), (UNIFORM, "uniform")):
            on_windows(method, key, multiple)
    for method, key in ((TASS, "targeted"), (UNIFORM, "uniform")):
        on_windows(longer(method, size), key, 1, size.longer)
    for multiple in MULTIPLES:
        on_all(multiple)
    begin, on_progress = time.perf_counter(), parts.next()
    normal = variational_bayes(series, estimate)  # (K, 2)
    nothing = np.full(3, np.nan)
    results.append(Result(VARIATIONAL, "", np.empty((0, 3)), normal, nothing, nothing, time.perf_counter() - begin))
    on_progress(1, 1)
    numbers = {f"{r.method}, {r.step}".removesuffix(", "): r._asdict() | {"draws": len(r.draws)} for r in results}
    remarks = remarks_on(results, size, float(curvature[2]))
    return Outcome(tables_of(results, size), remarks, draw(results, size, data.truth), numbers)


def longer(method: str, size: Size) -> str:
    """Return the name of a method whose chain is longer than the paper's."""
    return f"{method}, {size.longer} times as long"


def tables_of(results: list[Result], size: Size) -> list[Table]:
    """Return means with standard deviations, and biases with effective sample sizes, a row for each result."""
    exact, names = results[0], ["mu_1", "mu_2", "mu_3"]
    moments: list[list[Any]] = []
    quality: list[list[Any]] = []
    for r in results:
        pairs = zip(r.moments, r.ratio(exact), strict=True)
        cells = [f"{m:.4f} ± {s:.4f} ({ratio:.2f})" for (m, s), ratio in pairs]
        moments.append([r.method, r.step, *cells, f"{r.seconds:.1f}"])
        off = [f"{b:+.2f} ± {e:.2f}" for b, e in zip(r.bias(exact), r.error(exact), strict=True)]
        if r is exact:
            off = ["0"] * 3
        sizes = [with_implied(*pair) for pair in zip(r.effective, r.implied, strict=True)]
        quality.append([r.method, r.step, *off, len(r.draws) or "", *sizes])
    caption = (
        f"T = {size.T:,}; mean ± standard deviation (and its ratio to that of Gibbs). TASS and uniform: S = {WINDOWS} "
        f"for each component, epsilon = {EPSILON:g}, {size.draws:,} draws after a burn-in of {size.burn:,}, as in the "
        f"paper, or {size.longer} times as many, of which one in {size.longer} is kept; full-data Langevin: epsilon = "
        f"{FULL_EPSILON:g}, {size.full:,} after {size.full_burn}; Gibbs: {size.exact:,} after {size.exact_burn}. All "
        "start from the clustering."
    )
    quality_caption = (
        "Bias: the difference from the mean of Gibbs sampling in units of its standard deviation, ± its Monte Carlo "
        "standard error. Effective sample sizes are estimates (Vehtari et al. 2021) and, in parentheses, what the "
        "integrated autocorrelation time of Langevin dynamics, 4 s^2 / (h n) iterations with a step h, implies. A "
        "chain that is too short overestimates them, so that the smaller one is behind the standard error."
    )
    head = ["method", "step"]
    biases, sizes_of = [f"bias of {name}, sd" for name in names], [f"effective, {name}" for name in names]
    return [
        Table(caption, [*head, *names, "seconds"], moments),
        Table(quality_caption, [*head, *biases, "draws", *sizes_of], quality),
    ]


def with_implied(effective: float, implied: float) -> str:
    """Return an effective sample size as text, with the one that the step size implies."""
    if np.isnan(effective):
        return "no draws"
    first, second = (f"{n:,.0f}" if n >= 10 else f"{n:.1f}" for n in (effective, implied))
    return first if np.isnan(implied) else f"{first} ({second})"


def remarks_on(results: list[Result], size: Size, curvature: float) -> list[str]:
    """Return remarks from the numbers of the run; ``curvature`` is n / s^2 of the rare mean."""
    exact = results[0]
    of = {(r.method, r.step): r for r in results}
    first, second = (Step(EPSILON, multiple).rule for multiple in MULTIPLES)
    tass, uniform = of[TASS, first], of[UNIFORM, first]
    code = of[TASS, second]
    long_tass, long_uniform = of[longer(TASS, size), first], of[longer(UNIFORM, size), first]
    full = [r for r in results if r.method == LANGEVIN]
    variational = of[VARIATIONAL, ""]
    correlated = {m: 4 / (m * EPSILON * curvature) for m in MULTIPLES}  # integrated autocorrelation time

    def ratios(r: Result) -> str:
        return f"{r.ratio(exact)[0]:.1f} and {r.ratio(exact)[1]:.1f}"

    return [
        "Exact Gibbs sampling, which the paper lacks, is the reference here.",
        f"For the common means TASS has {ratios(tass)} times the right standard deviation with the step of Algorithm 1 "
        f"and {ratios(code)} with that of the reference code; uniform subsampling has {ratios(uniform)} and "
        f"{ratios(of[UNIFORM, second])}. Effective sample sizes there are {tass.effective[:2].min():,.0f} or more "
        "with TASS: the excess is the noise of the gradient, which no weighting removes. In the paper they are about "
        "right or slightly too large, compared with full-data Langevin dynamics.",
        f"For the rare mean the paper's {size.draws:,} draws say little: with a step h the draws have an integrated "
        f"autocorrelation time near 4 s^2 / (h n) = {correlated[1]:,.0f} iterations with Algorithm 1 and "
        f"{correlated[2]:,.0f} with the reference code, so that {size.draws:,} are worth about "
        f"{tass.implied[2]:.1f} and {code.implied[2]:.1f} independent ones. Ratios of standard deviations from fewer "
        f"than {FEW} effective draws, such as {tass.ratio(exact)[2]:.2f} with TASS and {uniform.ratio(exact)[2]:.2f} "
        "with uniform subsampling, mean nothing.",
        f"{size.longer} times as long, TASS has {long_tass.ratio(exact)[2]:.2f} times the right standard deviation "
        f"({long_tass.effective[2]:,.0f} effective draws) and a bias of {long_tass.bias(exact)[2]:+.2f} ± "
        f"{long_tass.error(exact)[2]:.2f} sd, uniform subsampling {long_uniform.ratio(exact)[2]:.2f} "
        f"({long_uniform.effective[2]:,.0f} effective draws) and {long_uniform.bias(exact)[2]:+.2f} ± "
        f"{long_uniform.error(exact)[2]:.2f} sd.",
        "The paper's uniform chain stayed near 12 for mu_3, from an uninformed start (section 4.1). Here all chains "
        "start from the clustering.",
        "Full-data Langevin dynamics without a Metropolis step has "
        + " and ".join(f"{r.ratio(exact)[0]:.2f}, {r.ratio(exact)[1]:.2f} ({r.step})" for r in full)
        + " times the standard deviation of Gibbs sampling for the common means: the excess is the discretisation "
        "error of its step. For the rare mean its draws are worth "
        + " and ".join(f"{r.implied[2]:.0f}" for r in full)
        + " independent ones.",
        f"Variational Bayes has {variational.ratio(exact).min():.2f} to {variational.ratio(exact).max():.2f}. The "
        "paper reports that it underestimates uncertainty, against Langevin dynamics and with another package.",
    ]


def variational_bayes(series: Series, estimate: Parameters) -> Array:
    """Return mean and standard deviation (K, 2) of the Gaussian factors of the means, in ascending order.

    Priors are like the paper's (a mean given its variance has a normal prior of variance 100), and the start is the
    estimate of the clustering, as for the others: from its own default start it puts all means in one place.
    """
    try:
        from hmmlearn.vhmm import VariationalGaussianHMM
    except ImportError as error:
        raise ImportError("this experiment needs hmmlearn: pip install 'rarehmm[paper]'") from error
    (mean, variance), K = estimate.phi.T, len(estimate.phi)
    counts = estimate.start * len(series)
    fitted = VariationalGaussianHMM(K, covariance_type="full", init_params="", n_iter=200, tol=1e-6)
    fitted.startprob_prior_, fitted.startprob_posterior_ = np.ones(K), 1 + estimate.start
    fitted.transmat_prior_, fitted.transmat_posterior_ = np.ones((K, K)), 1 + counts[:, None] * estimate.transition
    fitted.means_prior_, fitted.means_posterior_ = np.zeros((K, 1)), mean[:, None]
    fitted.beta_prior_, fitted.beta_posterior_ = np.full(K, 0.01), counts
    fitted.dof_prior_, fitted.dof_posterior_ = np.full(K, 6.0), counts
    fitted.scale_prior_, fitted.scale_posterior_ = np.full((K, 1, 1), 20.0), (variance * counts)[:, None, None]
    fitted.fit(series.read(0, len(series)))
    spread = np.sqrt(fitted.covars_[:, 0, 0] / fitted.beta_posterior_)
    found = np.column_stack([fitted.means_posterior_[:, 0], spread])
    return np.asarray(found[np.argsort(found[:, 0])])


def draw(results: list[Result], size: Size, truth: Parameters) -> Any:
    """Plot the marginal densities of the means: chains with the step of Algorithm 1, Gibbs and variational Bayes."""
    made, axes = figure(3)
    exact, first = results[0], Step(EPSILON, 1).rule
    shown = [r for r in results if r.step in ("", first) and r.method != longer(UNIFORM, size) and len(r.draws) > 3]
    for k, axis in enumerate(axes):
        centre, wide = exact.moments[k, 0], 8 * exact.moments[k, 1]
        x = np.linspace(centre - wide, centre + wide, 400)
        for colour, r in zip(COLOURS, shown, strict=False):
            axis.plot(x, gaussian_kde(r.draws[:, k])(x), color=colour, label=r.method, lw=2 if r is exact else 1)
        axis.plot(x, norm.pdf(x, *results[-1].moments[k]), "k:", lw=1, label=VARIATIONAL)
        axis.axvline(truth.phi[k, 0], color="0.6", lw=0.8)
        axis.locator_params(axis="x", nbins=5)
        axis.set(title=f"mu_{k + 1}", xlim=(x[0], x[-1]), ylim=(0, None), yticks=[])
    axes[0].set_ylabel("posterior density")
    made.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9)
    return made
