"""Is the posterior of the default rule right?  Beside exact references, on configurations that differ in kind.

References: Gibbs sampling where states are separated, the series is short, or the rule itself chose Hamiltonian Monte
Carlo; else adaptive importance sampling, itself compared with Hamiltonian Monte Carlo on all data; the latter where the
rule chose importance sampling.  For each
parameter the ratio of standard deviations and the bias in standard deviations, with joint standard errors from batches;
and the Wasserstein distance in standard deviations beside that of the reference's own halves.  Writes
results/calibrate.*.
"""

import argparse
import json
import pathlib
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np
from configurations import CASES, simulated
from machine import made_by
from scipy.stats import wasserstein_distance

import rarehmm as rh
from rarehmm.exact.em import normalised_rows
from rarehmm.sampling.diagnostics import mixing
from rarehmm.sampling.gibbs import gibbs
from rarehmm.sampling.hmc import hmc
from rarehmm.sampling.importance import Roots, adaptive_importance
from rarehmm.sampling.methods import relabel_like_mode
from rarehmm.sampling.rule import infer

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


def shuffled(rng, draws):
    """Draws (chains, n, d) of importance sampling, which are independent, in no order: batches are then alike."""
    return rng.permutation(draws.reshape(-1, draws.shape[-1]))[None]


def in_batches(rng, weighted, size):
    """About ``size`` equally weighted draws (1, size, d) in batches, each resampled from points of its own: batches,
    and so halves, are independent of each other, as those of a chain are."""
    parts = np.array_split(rng.permutation(len(weighted.theta)), BATCHES)
    parts = [weighted._replace(theta=weighted.theta[i], log_weights=weighted.log_weights[i]) for i in parts]
    return np.concatenate([part.resample(rng, size // BATCHES) for part in parts])[None]


def golden(rng, case, found, series, wanted, both):
    """Draws (chains, n, d) of a reference, its name, its effective size, and how far a second one is from it, if
    ``both`` are wanted."""
    mode = found.mode
    if case.separated or case.size < 50_000 or found.method == "hmc":
        sweeps = int(0.6 * wanted) if case.separated else 40_000 if case.size > 5_000 else 100_000
        draws = [gibbs(rng, mode.model, series, mode.model.unpack(mode.theta), sweeps, threads=1)[200:] for _ in "ab"]
        draws = relabel_like_mode(mode, np.array(draws))
        enough = mixing(draws).bulk.min() > wanted  # then as many as the other has: distances compare
        often = max(1, int(draws.shape[0] * draws.shape[1] / wanted)) if enough else 1
        return draws[:, ::often], "Gibbs", mixing(draws[:, ::often]).bulk.min(), None
    chosen = found.method == "importance"
    if chosen or both:
        draws = hmc(rng, mode, series, round((0.2 if chosen else 0.05) * wanted), chains=4, threads=1)
        draws = relabel_like_mode(mode, draws)
    if chosen:
        return draws, "HMC", mixing(draws).bulk.min(), None
    weighted = adaptive_importance(rng, Roots(mode, series, 1), wanted)
    gold = in_batches(rng, weighted, round(2 * wanted))
    if not both:
        return gold, "importance", weighted.effective, None
    return gold, "importance", weighted.effective, disagreement(gold, draws)


def disagreement(one, other):
    """Largest difference in standard errors, over means and standard deviations of two sets of draws (chains, n, d)."""
    (m, em, s, es), (n, en, t, et) = moments(one), moments(other)
    return max(np.abs((m - n) / np.hypot(em, en)).max(), np.abs((s - t) / np.hypot(es, et)).max())


def one(name, seed, wanted, both):
    warnings.simplefilter("ignore", RuntimeWarning)
    case = CASES[name]
    model, series, truth = simulated(case, seed)
    began = time.perf_counter()
    found = infer(np.random.default_rng(seed), model, series, wanted=wanted, threads=1)
    seconds = time.perf_counter() - began
    mode = found.mode
    top = rh.climb(
        model, series, model.natural(truth.phi, normalised_rows(truth.transition + 1e-6)), tolerance=1e-3, threads=1
    )
    rng = np.random.default_rng([seed, 9])
    gold, reference, effective, agree = golden(rng, case, found, series, wanted, both)
    mine = shuffled(rng, found.theta) if len(found.theta) == 1 else found.theta
    return {
        "name": name, "seed": seed, "method": found.method, "seconds": seconds, "verdict": found.verdict,
        "reached": mode.log_posterior - top.log_posterior, **compared(mine, gold), **distances(mine, gold),
        "reference": reference, "effective": effective, "agree": agree,
    }  # fmt: skip


def compared(mine, gold):
    """Ratios of standard deviations and bias of draws (chains, n, d), beside a reference, and whether they are good."""
    (m, em, s, es), (gm, egm, gs, egs) = moments(mine), moments(gold)
    ratio, ratio_error = s / gs, s / gs * np.hypot(es / s, egs / gs)
    bias, bias_error = (m - gm) / gs, np.hypot(em, egm) / gs
    low, high = 0.90 - 3 * ratio_error, 1.12 + 3 * ratio_error
    good = bool(((ratio > low) & (ratio < high)).all() and (np.abs(bias) < 0.2 + 3 * bias_error).all())
    return {
        "good": good, "low": ratio.min(), "high": ratio.max(), "ratio_error": ratio_error.max(),
        "bias": np.abs(bias).max(), "bias_error": bias_error.max(),
    }  # fmt: skip


def distances(mine, gold):
    """Mean Wasserstein distance of draws (chains, n, d) from a reference, and of the halves of the reference."""
    flat, golds = (draws.reshape(-1, draws.shape[-1]) for draws in (mine, gold))
    half, sd = len(golds) // 2, golds.std(0)
    each = range(len(sd))
    return {
        "far": np.mean([wasserstein_distance(flat[:, i], golds[:, i]) / sd[i] for i in each]),
        "own": np.mean([wasserstein_distance(golds[:half, i], golds[half:, i]) / sd[i] for i in each]),
    }


def report(made, found):
    lines = [
        "# Calibration of the default rule",
        "",
        made,
        "Each row: one fresh data set, states found in the data. sd ratio:",
        "the smallest and largest over parameters of theta, beside the reference (with the largest standard error);",
        "bias: the largest, in standard deviations (with the largest standard error); Wasserstein distance in standard",
        "deviations, mean over parameters, and that of the halves of the reference. Good: every ratio in .90..1.12 and",
        "bias under .2, beyond three joint standard errors, and the Wasserstein distance at most 1.3 times that of the",
        "halves. Reference: its effective draws and, for the first data set, the largest difference of HMC from it in",
        "standard errors, over 2 d numbers. Mode: log posterior above that of EM from the truth.",
        "",
        "| configuration | seed | method | s | sd ratio | bias | Wasserstein | halves | reference | mode | good |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found:
        close = r["far"] <= 1.3 * r["own"]
        agree = "" if r["agree"] is None else f", HMC {r['agree']:.1f}"
        lines.append(
            f"| {r['name']} | {r['seed']} | {r['method']} | {r['seconds']:.1f} | {r['low']:.2f} to {r['high']:.2f} "
            f"(± {r['ratio_error']:.2f}) | {r['bias']:.2f} (± {r['bias_error']:.2f}) | {r['far']:.3f} | {r['own']:.3f} "
            f"| {r['reference']} ({r['effective']:.0f}{agree}) | {r['reached']:+.1f} "
            f"| {'yes' if r['good'] and close else '**no**'} |"
        )
    good = sum(r["good"] and r["far"] <= 1.3 * r["own"] for r in found)
    lines += ["", f"{good} of {len(found)} good."]
    lines += [
        f"- {r['name']}, seed {r['seed']}: {r['verdict']}" for r in found if not r["verdict"].startswith("All checks")
    ]
    return "\n".join(lines) + "\n"


def write(path, report, made, found):
    path.write_text(json.dumps({"made": made, "sets": found}, indent=1, default=float) + "\n")
    path.with_suffix(".md").write_text(report(made, found))


def collect(one, jobs, names, kept, report, made, go_on, workers):
    """Run jobs (name, seed, ...), write all rows that there are after each, and go on from those written before."""
    found = []
    if go_on and kept.exists():
        found = [r for r in json.loads(kept.read_text())["sets"] if r["name"] in names]
        done = {(r["name"], r["seed"]) for r in found}
        jobs = [job for job in jobs if job[:2] not in done]
    with ProcessPoolExecutor(workers) as pool:
        for done in as_completed([pool.submit(one, *job) for job in jobs]):
            found.append(done.result())
            found.sort(key=lambda r: (names.index(r["name"]), r["seed"]))
            print(json.dumps(done.result(), default=float), flush=True)
            write(kept, report, made, found)
    write(kept, report, made, found)
    print(report(made, found))


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--sets", type=int, default=3)
    ask.add_argument("--wanted", type=float, default=5000)
    ask.add_argument("--cases", nargs="*", default=list(CASES))
    ask.add_argument("--first", type=int, default=500, help="first seed; those below were looked at before")
    ask.add_argument("--go-on", action="store_true", help="keep the rows that are there, add those that are missing")
    use, made = ask.parse_args(), made_by("calibrate")
    jobs = [(name, use.first + i, use.wanted, i == 0) for i in range(use.sets) for name in use.cases]
    RESULTS.mkdir(exist_ok=True)
    collect(one, jobs, list(CASES), RESULTS / "calibrate.json", report, made, use.go_on, 2)


if __name__ == "__main__":
    main()
