"""Simulation-based calibration of the default rule (Talts et al. 2018): are intervals right on average over the prior?

Parameters from fixed proper priors, a series from the parameters, the posterior by the default rule with the same
priors: the rank of each true value among the draws is then uniform.  Rare states come from the Dirichlet distribution,
nothing is selected after drawing.  States are ordered by their means in the truth and in every draw alike.  Fits that
are flagged are counted, not ranked.  The second kind of series has autocorrelated noise and two inputs; it is shorter.
Writes results/simulation_based.* or, with ``--kind regimes``, results/simulation_based_regimes.*.
"""

import argparse
import json
import pathlib
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from machine import made_by
from scipy.stats import binomtest, chi2

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs
from rarehmm.model.autoregression import AroundLevel
from rarehmm.model.parameters import EffectPriors
from rarehmm.sampling.rule import infer

RESULTS = pathlib.Path(__file__).parent / "results"
K, DRAWS, BINS = 3, 99, 10
WIDTH = 2.0  # standard deviation of the prior of the coefficients of inputs
PRIORS = rh.Priors(
    (rh.Normal(0.0, 400.0), rh.InverseGamma(3.0, 2.0)), rh.Dirichlet(0.5), EffectPriors(location=(WIDTH,))
)
QUANTITIES = {
    "mean": slice(0, 3), "log variance": slice(3, 6), "transition": slice(6, 15), "occupancy": slice(15, 18),
    "input": slice(18, 20), "lag": slice(20, 21),
}  # fmt: skip

INPUTS_AND_LAGS = ["Noise is autocorrelated, with rho from U(-1, 1); two inputs have coefficients from N(0, 2²)."]


class Kind(NamedTuple):
    """A kind of series: its length, its standard normal inputs, its lags, where results are, and who makes them."""

    T: int
    inputs: int
    lags: int
    results: str
    target: str

    def model(self, exog):
        """The model of series with inputs ``exog`` (T, p), or None."""
        inputs = None if exog is None else Inputs.of(self.empty(exog), [Columns()])
        return rh.Model(
            rh.Gaussian(), K, PRIORS, inputs=inputs, autoregression=AroundLevel(self.lags) if self.lags else None
        )

    def empty(self, exog):
        """A series to be simulated."""
        return rh.Series(np.zeros(self.T), exog=exog)

    @property
    def quantities(self):
        """Names and places of what is ranked."""
        size = 18 + self.inputs + self.lags
        return {name: where for name, where in QUANTITIES.items() if where.stop <= size}


KINDS = {
    "plain": Kind(3000, 0, 0, "simulation_based", "calibrate"),
    "regimes": Kind(1500, 2, 1, "simulation_based_regimes", "regime-posterior"),
}


def quantities(model, theta):
    """Means, log variances, transitions, occupancies and coefficients (n, 18 + c) of draws theta (n, d).

    States are in order of their means.

    Of the transitions of a row only K - 1 are free, of the occupancies K - 1; all are ranked, each is right on its own.
    """
    phi, transition = model.unpack_all(theta)
    order = np.argsort(phi[:, :, 0], axis=1)
    n = np.arange(len(theta))[:, None]
    phi, transition = phi[n, order], transition[n[:, :, None], order[:, :, None], order[:, None, :]]
    distribution = np.array([rh.stationary(P) for P in transition])
    states = [phi[:, :, 0], np.log(phi[:, :, 1]), transition.reshape(-1, K * K), distribution]
    return np.concatenate([*states, model.unpack_coefficients(theta)], axis=1)


def fit(seed, kind=KINDS["plain"]):
    """Parameters from the prior with their model, and their posterior given a series from them."""
    warnings.simplefilter("ignore", RuntimeWarning)
    rng = np.random.default_rng([seed, 31])
    phi = np.column_stack([rng.normal(0, 20, K), 2.0 / rng.standard_gamma(3.0, K)])
    transition = rng.dirichlet(np.full(K, 0.5), K)
    exog = rng.normal(size=(kind.T, kind.inputs)) if kind.inputs else None
    model = kind.model(exog)
    truth = model.natural(phi, transition, [*rng.normal(0, WIDTH, kind.inputs), *rng.uniform(-1, 1, kind.lags)])
    series = rh.Series(rh.simulate(rng, model, truth, kind.empty(exog))[0], exog=exog)
    return rng, model, truth, infer(rng, model, series, wanted=400, threads=1)


def ranks(rng, model, truth, found, shrink=1.0):
    """Ranks of the true values among a few draws; with ``shrink``, among draws that are too close together."""
    flat = found.theta.reshape(-1, model.size)
    few = flat[np.linspace(0, len(flat) - 1, DRAWS).round().astype(int)]
    mine, true = quantities(found.mode.model, few), quantities(model, model.pack(truth)[None])
    mine = mine.mean(0) + shrink * (mine - mine.mean(0))
    ties = rng.random(true.shape[1])  # of draws that importance sampling repeats, and of probabilities that underflow
    return ((mine < true).sum(0) + np.floor(ties * ((mine == true).sum(0) + 1))).astype(int).tolist()


def one(seed, kind=KINDS["plain"]):
    began = time.perf_counter()
    rng, model, truth, found = fit(seed, kind)
    return {
        "seed": seed, "method": found.method, "seconds": time.perf_counter() - began, "rare": float(truth.start.min()),
        "ranks": ranks(rng, model, truth, found), "good": all(c.passed for c in found.checks), "verdict": found.verdict,
    }  # fmt: skip


def tests(found, where):
    """Of each kind of parameter: p-values of uniform ranks and of the coverage of central 50 and 90 % intervals.

    ``where`` says where the ranks of each kind are.  Parameters of one series depend on each other; each is tested
    alone and the smallest p-value of a kind counts, times the number of parameters.
    """
    ranked = np.array([r["ranks"] for r in found])  # (n, parameters), from 0 to DRAWS
    out = {}
    for kind, places in where.items():
        mine = ranked[:, places]
        p = {"uniform": [], 0.5: [], 0.9: []}
        cover = {0.5: [], 0.9: []}
        for r in mine.T:
            counts = np.bincount(r * BINS // (DRAWS + 1), minlength=BINS)
            expected = len(r) / BINS
            p["uniform"].append(chi2.sf(((counts - expected) ** 2 / expected).sum(), BINS - 1))
            for level in cover:
                tail = (1 - level) / 2 * (DRAWS + 1)
                inside = int(((r >= tail) & (r < DRAWS + 1 - tail)).sum())
                p[level].append(binomtest(inside, len(r), level).pvalue)
                cover[level].append(inside / len(r))
        out[kind] = {
            "uniform": min(1.0, min(p["uniform"]) * mine.shape[1]),
            "cover50": float(np.mean(cover[0.5])), "p50": min(1.0, min(p[0.5]) * mine.shape[1]),
            "cover90": float(np.mean(cover[0.9])), "p90": min(1.0, min(p[0.9]) * mine.shape[1]),
        }  # fmt: skip
    return out


def report(made, found, kind=KINDS["plain"]):
    good = [r for r in found if r["good"]]
    result = tests(good, kind.quantities)
    level = 0.01 / (3 * len(result))
    passed = all(min(r["uniform"], r["p50"], r["p90"]) > level for r in result.values())
    methods = {m: sum(r["method"] == m for r in found) for m in sorted({r["method"] for r in found})}
    rare = np.array([r["rare"] for r in found])
    lines = [
        "# Simulation-based calibration of the default rule" + (", noise with memory" if kind.inputs else ""),
        "",
        made,
        f"{len(found)} data sets, K = {K}, T = {kind.T}: means from N(0, 20²),",
        "variances from IG(3, 2), rows of the transition matrix from Dirichlet(.5), the same in simulation and fit.",
        *(INPUTS_AND_LAGS if kind.inputs else []),
        f"The rarest state has less than 1 % in {np.mean(rare < 0.01):.1%} of them, less than 5 % in "
        f"{np.mean(rare < 0.05):.1%}.",
        f"Methods chosen: {', '.join(f'{m} {n}' for m, n in methods.items())}; "
        f"{np.median([r['seconds'] for r in found]):.1f} s a fit in the middle, one thread.",
        f"Flagged, from the data alone, and left out: {len(found) - len(good)} of {len(found)} "
        f"({1 - len(good) / len(found):.1%}).",
        "",
        "p-values are the smallest over the parameters of a kind times their number; coverage is the mean over them.",
        f"All must exceed {level:.2g} (1 % in all, Bonferroni): {'passed' if passed else '**failed**'}.",
        "",
        "| kind | ranks uniform, p | 50 % intervals cover | p | 90 % intervals cover | p |",
        "|---|---|---|---|---|---|",
    ]
    for kind, r in result.items():
        lines.append(
            f"| {kind} | {r['uniform']:.3f} | {r['cover50']:.1%} | {r['p50']:.3f} | {r['cover90']:.1%} "
            f"| {r['p90']:.3f} |"
        )
    lines += [""] + [f"- seed {r['seed']} ({r['method']}): {r['verdict']}" for r in found if not r["good"]]
    return "\n".join(lines).rstrip() + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--sets", type=int, default=200)
    ask.add_argument("--first", type=int, default=5000, help="first seed; those below were looked at before")
    ask.add_argument("--kind", choices=KINDS, default="plain")
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--go-on", action="store_true", help="keep the rows that are there, add those that are missing")
    use = ask.parse_args()
    kind, seeds = KINDS[use.kind], range(use.first, use.first + use.sets)
    made, found, path = made_by(kind.target), [], RESULTS / f"{kind.results}.json"
    RESULTS.mkdir(exist_ok=True)
    if use.go_on and path.exists():
        found = json.loads(path.read_text())["sets"]
        seeds = [seed for seed in seeds if seed not in {r["seed"] for r in found}]
    with ProcessPoolExecutor(use.workers) as workers:
        for r in workers.map(one, seeds, [kind] * len(seeds)):
            found.append(r)
            print(json.dumps(r), flush=True)
            path.write_text(json.dumps({"made": made, "sets": found}, indent=1) + "\n")
    path.with_suffix(".md").write_text(report(made, found, kind))
    print(report(made, found, kind))


if __name__ == "__main__":
    main()
