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
    SINGLE_RARE,
    WINDOWS,
    Parts,
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
from rarehmm.sampling.gibbs import gibbs
from rarehmm.sampling.langevin import langevin
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

TITLE = "Section 4.5: the posterior, compared with methods that use all data"
MINUTES = 2
DATA = None
GIBBS, TASS, PRINTED, UNIFORM = "Gibbs", "TASS, counts", "TASS, as printed", "uniform"
LANGEVIN, VARIATIONAL = "full-data Langevin", "variational Bayes (hmmlearn)"


class Size(NamedTuple):
    """Number of observations, and burn-in and draws of chains on windows, full-data Langevin dynamics and Gibbs."""

    T: int
    burn: int
    draws: int
    full_burn: int
    full: int
    exact_burn: int
    exact: int


QUICK, FULL = Size(20_000, 200, 1_000, 50, 200, 50, 200), Size(100_000, 5_000, 25_000, 500, 5_000, 200, 3_000)


def reproduce(settings: Settings) -> Outcome:
    T, burn, draws, full_burn, full, exact_burn, exact = QUICK if settings.quick else FULL
    rng = np.random.default_rng(45)
    data, model = simulated(rng, SINGLE_RARE, [-20.0, 0.0, 20.0], T), paper_model(3)
    series, parts = data.train, Parts(settings.on_progress, 6)
    windows = Windows(series, HALF_WIDTH, BUFFER)
    made, estimate = designs(model, series, windows)
    start, means, seconds = model.pack(estimate), {}, {}

    def timed(name: str, sample: Any, skip: int) -> None:
        on_progress, begin = parts.next(), time.perf_counter()
        means[name] = in_order(model, kept(sample(on_progress))[skip:]).phi[:, :, 0]  # (n, K)
        seconds[name] = time.perf_counter() - begin

    for name, key in ((TASS, "targeted"), (PRINTED, "printed"), (UNIFORM, "uniform")):
        pool = Pool(model, series, windows, made[key], WINDOWS, separate=True)
        timed(name, lambda w, p=pool: chain(1, model, p, start, burn + draws, 2 * EPSILON, on_progress=w)[0], burn)
    sampler, total = ExpandedMeanSgld(2e-5), full_burn + full
    timed(
        LANGEVIN,
        lambda w: langevin(rng, sampler, model, series, estimate, total, on_progress=lambda n: w(n + 1, total)),
        full_burn,
    )
    total = exact_burn + exact
    timed(
        GIBBS, lambda w: gibbs(rng, model, series, estimate, total, on_progress=lambda n: w(n + 1, total)), exact_burn
    )
    begin, on_progress = time.perf_counter(), parts.next()
    normal = variational_bayes(series, estimate)  # (K, 2)
    seconds[VARIATIONAL] = time.perf_counter() - begin
    on_progress(1, 1)
    summary = {name: np.array([m.mean(0), m.std(0)]).T if len(m) > 1 else np.full((3, 2), np.nan)
               for name, m in means.items()} | {VARIATIONAL: normal}  # fmt: skip
    gold = summary[GIBBS]
    rows: list[list[Any]] = []
    for name in (GIBBS, TASS, PRINTED, UNIFORM, LANGEVIN, VARIATIONAL):
        cells = [f"{m:.4f} ± {s:.4f} ({s / gold[k, 1]:.2f})" for k, (m, s) in enumerate(summary[name])]
        rows.append([name, *cells, f"{seconds[name]:.1f}"])
    table = Table(
        f"T = {T:,}; mean ± standard deviation (and its ratio to that of Gibbs). TASS and uniform: S = {WINDOWS} for "
        f"each component, epsilon = {EPSILON:g}, {draws:,} draws after a burn-in of {burn:,}; full-data Langevin: "
        f"epsilon = 1e-5, {full:,} after {full_burn}; Gibbs: {exact:,} after {exact_burn}. All start from the "
        "clustering.",
        ["method", "mu_1", "mu_2", "mu_3", "seconds"],
        rows,
    )
    ratio = {name: summary[name][:, 1] / gold[:, 1] for name in summary}
    remarks = [
        "Exact Gibbs sampling, which the paper lacks, is the reference here.",
        f"For the common means TASS has {ratio[TASS][0]:.1f} and {ratio[TASS][1]:.1f} times the right standard "
        f"deviation and uniform subsampling {ratio[UNIFORM][0]:.1f} and {ratio[UNIFORM][1]:.1f} times. A ratio above 1 "
        "is due to the noise of the gradient, which no weighting removes; below 1, the chain was too short. In the "
        "paper they are about right or slightly too large, compared with full-data Langevin dynamics.",
        f"For the rare mean the ratio is {ratio[TASS][2]:.2f} with TASS and {ratio[UNIFORM][2]:.2f} with uniform "
        "subsampling. The paper's uniform chain stayed near 12 for mu_3, from an uninformed start (section 4.1). Here "
        "all chains start from the clustering.",
        f"Full-data Langevin dynamics without a Metropolis step has {ratio[LANGEVIN].min():.2f} to "
        f"{ratio[LANGEVIN].max():.2f} times the standard deviation of Gibbs sampling: any excess is the discretisation "
        "error of its step size.",
        f"Variational Bayes has {ratio[VARIATIONAL].min():.2f} to {ratio[VARIATIONAL].max():.2f}. The paper reports "
        "that it underestimates uncertainty, against Langevin dynamics and with another package.",
    ]
    numbers = {"summary": summary, "seconds": seconds}
    return Outcome([table], remarks, draw(means, normal, data.truth), numbers)


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


def draw(means: dict[str, Array], normal: Array, truth: Parameters) -> Any:
    made, axes = figure(3)
    widest = {k: 4 * means[GIBBS][:, k].std() for k in range(3)}
    for k, axis in enumerate(axes):
        centre = means[GIBBS][:, k].mean()
        x = np.linspace(centre - 2 * widest[k], centre + 2 * widest[k], 400)
        for colour, (name, drawn) in zip(COLOURS, means.items(), strict=False):
            if len(drawn) > 1:
                axis.plot(x, gaussian_kde(drawn[:, k])(x), color=colour, label=name, lw=2 if name == GIBBS else 1)
        axis.plot(x, norm.pdf(x, *normal[k]), "k:", lw=1, label=VARIATIONAL)
        axis.axvline(truth.phi[k, 0], color="0.6", lw=0.8)
        axis.locator_params(axis="x", nbins=5)
        axis.set(title=f"mu_{k + 1}", xlim=(x[0], x[-1]), ylim=(0, None), yticks=[])
    axes[0].set_ylabel("posterior density")
    made.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    return made
