"""Is the posterior of the default rule right?  Beside exact references, on configurations that differ in kind.

References: Gibbs sampling where states are separated, else Hamiltonian Monte Carlo on all data.  For each parameter the
ratio of standard deviations and the bias in standard deviations, with joint standard errors from batches; and the
Wasserstein distance in standard deviations beside that of the reference's own halves.  Writes results/calibrate.*.
"""

import argparse
import json
import pathlib
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from configurations import CASES, simulated
from scipy.stats import wasserstein_distance

import rarehmm as rh
from rarehmm.diagnostics import mixing
from rarehmm.em import rows
from rarehmm.exact import gibbs, hmc
from rarehmm.inference import infer, named

RESULTS = pathlib.Path(__file__).parent / "results"
BATCHES = 20


def moments(draws):
    """Means and standard deviations (d,) of draws (chains, n, d), each with its standard error."""
    flat = draws.reshape(-1, draws.shape[-1])
    parts = flat[: len(flat) // BATCHES * BATCHES].reshape(BATCHES, -1, flat.shape[-1])
    centre = flat.mean(0)
    variances = ((parts - centre) ** 2).mean(1)
    root = np.sqrt(BATCHES)
    return centre, parts.mean(1).std(0) / root, flat.std(0), variances.std(0) / root / 2 / flat.std(0)


def one(name, seed, wanted):
    warnings.simplefilter("ignore", RuntimeWarning)
    case = CASES[name]
    model, series, truth = simulated(case, seed)
    began = time.perf_counter()
    found = infer(np.random.default_rng(seed), model, series, wanted=wanted, threads=1)
    seconds = time.perf_counter() - began
    mode = found.mode
    top = rh.climb(model, series, model.natural(truth.phi, rows(truth.transition + 1e-6)), tolerance=1e-3, threads=1)
    reached = mode.log_posterior - (top.log_posterior)
    rng = np.random.default_rng([seed, 9])
    if case.separated:
        draws = gibbs(rng, mode.model, series, mode.model.unpack(mode.theta), int(1.3 * wanted), threads=1)
        gold = draws[100:][None]
    else:
        gold = named(mode, hmc(rng, mode, series, int(0.4 * wanted), chains=4, threads=1))
    mine = rng.permutation(found.theta.reshape(-1, model.size))[None] if len(found.theta) == 1 else found.theta
    (m, em, s, es), (gm, egm, gs, egs) = moments(mine), moments(gold)
    ratio, ratio_error = s / gs, s / gs * np.hypot(es / s, egs / gs)
    bias, bias_error = (m - gm) / gs, np.hypot(em, egm) / gs
    flat, reference = mine.reshape(-1, model.size), gold.reshape(-1, model.size)
    half = len(reference) // 2
    far = [wasserstein_distance(flat[:, i], reference[:, i]) / gs[i] for i in range(model.size)]
    own = [wasserstein_distance(reference[:half, i], reference[half:, i]) / gs[i] for i in range(model.size)]
    low, high = 0.90 - 3 * ratio_error, 1.12 + 3 * ratio_error
    good = bool(((ratio > low) & (ratio < high)).all() and (np.abs(bias) < 0.2 + 3 * bias_error).all())
    mixed = mixing(gold) if len(gold) > 1 else mixing(gold.reshape(2, -1, model.size)[:, : gold.shape[1] // 2])
    return {
        "name": name, "seed": seed, "method": found.method, "seconds": seconds, "verdict": found.verdict, "good": good,
        "reached": reached, "low": ratio.min(), "high": ratio.max(), "ratio_error": ratio_error.max(),
        "bias": np.abs(bias).max(), "bias_error": bias_error.max(), "far": np.mean(far), "own": np.mean(own),
        "reference": "Gibbs" if case.separated else "HMC", "effective": mixed.bulk.min(),
    }  # fmt: skip


def report(found):
    lines = [
        "# Calibration of the default rule",
        "",
        "Written by `make calibrate`; do not edit. Each row: one fresh data set, states found in the data. sd ratio:",
        "the smallest and largest over parameters of theta, beside the reference (with the largest standard error);",
        "bias: the largest, in standard deviations (with the largest standard error); Wasserstein distance in standard",
        "deviations, mean over parameters, and that of the halves of the reference. Good: every ratio in .90..1.12 and",
        "bias under .2, beyond three joint standard errors. Mode: log posterior above that of EM from the truth.",
        "",
        "| configuration | seed | method | s | sd ratio | bias | Wasserstein | halves | reference | mode | good |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found:
        lines.append(
            f"| {r['name']} | {r['seed']} | {r['method']} | {r['seconds']:.1f} | {r['low']:.2f} to {r['high']:.2f} "
            f"(± {r['ratio_error']:.2f}) | {r['bias']:.2f} (± {r['bias_error']:.2f}) | {r['far']:.3f} | {r['own']:.3f} "
            f"| {r['reference']} ({r['effective']:.0f}) | {r['reached']:+.1f} | {'yes' if r['good'] else '**no**'} |"
        )
    good = sum(r["good"] for r in found)
    lines += ["", f"{good} of {len(found)} good."]
    lines += [
        f"- {r['name']}, seed {r['seed']}: {r['verdict']}" for r in found if not r["verdict"].startswith("Nothing")
    ]
    return "\n".join(lines) + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--sets", type=int, default=3)
    ask.add_argument("--wanted", type=float, default=5000)
    ask.add_argument("--cases", nargs="*", default=list(CASES))
    ask.add_argument("--first", type=int, default=100, help="first seed")
    use = ask.parse_args()
    jobs = [(name, use.first + i, use.wanted) for name in use.cases for i in range(use.sets)]
    found = []
    with ProcessPoolExecutor(2) as workers:
        for r in workers.map(one, *zip(*jobs, strict=True)):
            found.append(r)
            print(json.dumps(r, default=float), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "calibrate.json").write_text(json.dumps(found, indent=1, default=float) + "\n")
    (RESULTS / "calibrate.md").write_text(report(found))
    print(report(found))


if __name__ == "__main__":
    main()
