"""Is the posterior right where few rare observations decide?  Coverage over series with 6 to 40 of them.

Truth: means from N(0, 10²), variances from IG(2, 1), rows of the transition matrix from Dirichlet(1, ..., 1), which are
the priors of the fit, restricted to the kind in question: the rarest state has 6 to 40 expected observations, and its
mean is 3 to 6 standard deviations of the nearest common state away from it.  A series is simulated from the truth; both
are drawn again if the rarest state does not have 6 to 40 observations in it.  The posterior is the default rule's.

The rare state of a draw is the one with the smallest occupancy, as in the truth: nothing depends on labels.  Intervals
have the nominal coverage for draws restricted to the kind that the truth is restricted to, so it is these that are
tested; those of all draws, which know nothing of the restriction, are reported beside them.  Writes results/few_rare.*.
"""

import argparse
import json
import pathlib
import time
import traceback
import warnings
from concurrent.futures import ProcessPoolExecutor

import numpy as np
from machine import made_by

import rarehmm as rh
from rarehmm.sampling.rule import infer

RESULTS = pathlib.Path(__file__).parent / "results"
PRIORS = rh.Priors((rh.Normal(0.0, 100.0), rh.InverseGamma(2.0, 1.0)), rh.Dirichlet(1.0))
FEWEST, MOST, NEAREST, FARTHEST = 6, 40, 3.0, 6.0
MOST_ORDINARY, LONG = 200_000, 500_000  # observations
QUANTITIES = ("rare mean", "rare variance", "rare occupancy")
ENOUGH = 40  # draws of the kind without which a rank means nothing


def rare_state(phi, transition):
    """Rarest state (n,) of draws phi (n, K, 2) and transition (n, K, K), its occupancy (n,), and its distance (n,) from
    the nearest state, in standard deviations of that one."""
    occupancy = np.array([rh.stationary(P) for P in transition])
    n, rare = np.arange(len(phi)), occupancy.argmin(1)
    apart = np.abs(phi[:, :, 0] - phi[n, rare, 0][:, None])
    apart[n, rare] = np.inf
    near = apart.argmin(1)
    return rare, occupancy[n, rare], apart[n, near] / np.sqrt(phi[n, near, 1])


def is_of_the_kind(occupancy, distance, T):
    expected = occupancy * T
    return (expected >= FEWEST) & (expected <= MOST) & (distance >= NEAREST) & (distance <= FARTHEST)


def drawn_truth(rng, model, T):
    """Parameters from the prior, given that they are of the kind: by rejection, with entries into the rare state drawn
    from the part of their prior that can be accepted."""
    K, most = model.n_states, min(1.0, 3 * MOST / T)
    while True:
        phi = np.column_stack([rng.normal(0, 10, K), 1 / rng.standard_gamma(2.0, K)])
        apart = np.abs(phi[:-1, 0] - phi[-1, 0])
        if not NEAREST <= apart.min() / np.sqrt(phi[apart.argmin(), 1]) <= FARTHEST:
            continue
        for _ in range(10_000):
            enter = 1 - (1 - rng.random(K - 1) * (1 - (1 - most) ** (K - 1))) ** (
                1 / (K - 1)
            )  # Beta(1, K - 1) below most
            stay = (1 - enter[:, None]) * rng.dirichlet(np.ones(K - 1), K - 1)
            P = np.vstack([np.column_stack([stay, enter]), rng.dirichlet(np.ones(K))])
            if is_of_the_kind(*(x[0] for x in rare_state(phi[None], P[None])[1:]), T):
                return model.natural(phi, P)


def simulated(seed, T=None):
    """Model, truth, series and number of rare observations of one data set, two or three states in turn."""
    rng, K = np.random.default_rng([seed, 77]), 2 + seed % 2
    model = rh.Model(rh.Gaussian(), K, PRIORS)
    T = T or (LONG if seed % 10 == 9 else int(np.exp(rng.uniform(np.log(2e4), np.log(MOST_ORDINARY)))))
    while True:
        truth = drawn_truth(rng, model, T)
        y, states = rh.simulate(rng, model, truth, T)
        count = int((states == K - 1).sum())
        if FEWEST <= count <= MOST:
            return model, truth, rh.Series(y), count


def quantities(model, theta):
    """Mean, variance and occupancy (n, 3) of the rare state of draws theta (n, d), and whether they are of the kind."""
    phi, transition = model.unpack_all(theta)
    rare, occupancy, distance = rare_state(phi, transition)
    n = np.arange(len(theta))
    return np.column_stack([phi[n, rare, 0], phi[n, rare, 1], occupancy]), occupancy, distance


def one(seed, T=None):
    warnings.simplefilter("ignore", RuntimeWarning)
    model, truth, series, count = simulated(seed, T)
    began = time.perf_counter()
    out = {"seed": seed, "K": model.n_states, "T": len(series), "rare": count}
    try:
        found = infer(np.random.default_rng(seed), model, series, threads=1)
    except Exception:
        return out | {"error": traceback.format_exc()}
    true, _, distance = quantities(model, model.pack(truth)[None])
    mine, occupancy, far = quantities(found.mode.model, found.theta.reshape(-1, model.size))
    kind = is_of_the_kind(occupancy, far, len(series))
    return out | {
        "distance": distance[0], "method": found.method, "seconds": time.perf_counter() - began,
        "good": all(c.passed for c in found.checks), "verdict": found.verdict, "of the kind": int(kind.sum()),
        "ranks": (mine < true).mean(0).tolist(), "ranks of the kind": (mine[kind] < true).mean(0).tolist(),
        "modes": 1 if found.shares is None else len(found.shares),
    }  # fmt: skip


def coverage(ranks):
    """Share of central 90 % intervals that hold the truth."""
    ranks = np.array(ranks)
    return ((ranks > 0.05) & (ranks < 0.95)).mean(0)


def flagged(rows):
    return f"{sum(not r['good'] for r in rows)} of {len(rows)}"


def report(made, found, further):
    fine = [r for r in found if "error" not in r]
    good = [r for r in fine if r["good"]]
    kind = [r for r in good if r["of the kind"] >= ENOUGH]
    error = np.sqrt(0.09 / max(len(kind), 1))
    inside, every = coverage([r["ranks of the kind"] for r in kind]), coverage([r["ranks"] for r in good])
    passed = bool((np.abs(inside - 0.9) <= 3 * error).all()) and len(good) >= 0.9 * len(found)
    seconds = np.array([r["seconds"] for r in fine])
    ordinary, long = ([r for r in fine if (r["T"] == LONG) == is_long] for is_long in (False, True))
    lines = [
        "# Few rare observations in a long series",
        "",
        made,
        f"{len(found)} data sets of two or three Gaussian states with 6 to 40 rare observations, 3 to 6 standard",
        "deviations away, T = 20,000 to 200,000, one tenth at 500,000; true parameters from the priors of the fit,",
        "restricted to this kind as benchmarks/few_rare.py says. Coverage of central 90 %",
        "intervals over the fits that are not flagged: *restricted*, of draws of this kind, whose nominal coverage is",
        "exact; *all draws*, of the posterior as it is, whose prior knows nothing of the restriction.",
        "",
        f"Flagged: {len(fine) - len(good)} of {len(found)} ({(len(fine) - len(good)) / len(found):.1%}); exceptions: "
        f"{len(found) - len(fine)}; left out of *restricted*, with fewer than {ENOUGH} draws of the kind: "
        f"{len(good) - len(kind)}.",
        f"Flagged up to T = {MOST_ORDINARY:,}: {flagged(ordinary)}; at {LONG:,}: {flagged(long)}.",
        f"Seconds a fit, one thread, two fits at a time: {np.median(seconds):.1f} in the middle, "
        f"{np.quantile(seconds, 0.9):.1f} for one in ten, {seconds.max():.0f} at most.",
        f"Three standard errors are {3 * error:.1%}: {'passed' if passed else '**failed**'}.",
        "",
        "| | restricted | all draws |",
        "|---|---|---|",
        *(f"| {name} | {a:.1%} | {b:.1%} |" for name, a, b in zip(QUANTITIES, inside, every, strict=True)),
        "",
    ]
    if further:
        failed = [r for r in further if "error" in r]
        others = flagged([r for r in further if "error" not in r])
        lines += [f"{len(further)} further sets at T = 20,000: {len(failed)} exceptions; flagged: {others}.", ""]
    lines += [f"- seed {r['seed']}, T = {r['T']:,}: {r['verdict']}" for r in fine if not r["good"]]
    lines += [f"- seed {r['seed']}: {r['error'].splitlines()[-1]}" for r in [*found, *further] if "error" in r]
    return "\n".join(lines).rstrip() + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--sets", type=int, default=300)
    ask.add_argument("--further", type=int, default=500, help="sets at T = 20,000, for exceptions")
    ask.add_argument("--first", type=int, default=20_000, help="first seed; those below were looked at before")
    use = ask.parse_args()
    RESULTS.mkdir(exist_ok=True)
    made = made_by("few-rare")
    with ProcessPoolExecutor(2) as workers:
        found, further = [], []
        for r in workers.map(one, range(use.first, use.first + use.sets)):
            found.append(r)
            print(json.dumps(r, default=float), flush=True)
        later = range(use.first + 100_000, use.first + 100_000 + use.further)
        for r in workers.map(one, later, [20_000] * len(later)):
            further.append(r)
            print(json.dumps(r, default=float), flush=True)
    kept = {"made": made, "sets": found, "further": further}
    (RESULTS / "few_rare.json").write_text(json.dumps(kept, indent=1, default=float) + "\n")
    (RESULTS / "few_rare.md").write_text(report(made, found, further))
    print(report(made, found, further))


if __name__ == "__main__":
    main()
