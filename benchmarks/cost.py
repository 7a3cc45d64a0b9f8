"""What an effective draw costs: chains on windows beside Gibbs sampling, Hamiltonian Monte Carlo and NumPyro's NUTS.

Everything is measured in one run, nothing else running: times of chains are the smallest of several repeats; the peers,
which take minutes, run once, and each of NUTS's draws counts as effective.  Writes results/cost.json and cost.md.
"""

import argparse
import json
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from configurations import CASES, simulated
from numpyro.infer import MCMC, NUTS

import rarehmm as rh
from rarehmm.designs.pilot import pilot
from rarehmm.diagnostics import mixing, windows_needed
from rarehmm.inference import infer
from rarehmm.methods import MEMORY, Job, largest_noise, shortest_buffer
from rarehmm.samplers.baoab import Baoab

jax.config.update("jax_enable_x64", True)
numpyro.enable_x64()
RESULTS = pathlib.Path(__file__).parent / "results"
CHAINS, STEPS, REPEATS, WANTED = 4, 2200, 7, 1000


def timed(function, *arguments, **more):
    began = time.perf_counter()
    value = function(*arguments, **more)
    return value, time.perf_counter() - began


class Clocked(rh.Pool):
    """A pool that knows how long it took to draw and gather its windows, and how many."""

    seconds, windows_drawn = 0.0, 0

    def fill(self, rng, sets, room):
        _, seconds = timed(super().fill, rng, sets, room)
        self.seconds += seconds
        self.windows_drawn += sets * self.size


def quickest(rows):
    """The quickest of the repeats, with the effective size in the middle of theirs (not that of a lucky one)."""
    middle = np.median([effective for _, effective, _, _ in rows])
    seconds, _, filling, drawn = min(rows)
    return {"seconds": seconds, "effective": middle, "filling": filling, "drawn": drawn, "each": seconds / middle}


def chains(name, T, seed=0):
    """Set-up and sampling of one configuration, chains forced."""
    model, series, _ = simulated(CASES[name]._replace(size=T), seed)
    mode, climbing = timed(rh.find_mode, model, series)
    rng, sampler = np.random.default_rng(seed), Baoab()
    (windows, frozen, _), testing = timed(shortest_buffer, Job(rng, mode, series))
    design, piloting = timed(pilot, rng, mode, series, windows, frozen)
    noise, measuring = timed(largest_noise, Job(rng, mode, series), windows, frozen, design)
    size = windows_needed(sampler, noise)
    rows = {1: [], 2: []}  # by threads
    for repeat in range(REPEATS + 1):  # the first one warms up
        for threads in rows:
            pool = Clocked(mode.model, series, windows, design, size, frozen=frozen, memory=MEMORY)
            here = mode.theta + rng.standard_normal((CHAINS, mode.model.size)) @ mode.factor.T
            draws, seconds = timed(
                rh.run, rng, sampler, mode.model, pool, here, STEPS, mode=mode, thin=2, threads=threads
            )
            effective = mixing(draws).bulk.min()
            if repeat > 0:
                rows[threads].append((seconds, effective, pool.seconds, pool.windows_drawn))
    one, two = (quickest(rows[threads]) for threads in rows)
    return {
        "name": name, "T": T, "size": size, "buffer": windows.buffer, "mode": climbing,
        "prepare": testing + piloting + measuring, "us": 1e6 * two["each"], "us_one": 1e6 * one["each"],
        "filling": one["filling"] / one["seconds"], "windows": one["drawn"] / one["effective"],
        "thousand": WANTED * two["each"], "chain_only": WANTED * (one["seconds"] - one["filling"]) / one["effective"],
    }  # fmt: skip


def whole(T, seed=0):
    """From an array to a posterior with 1000 effective draws of every parameter, by the default rule, three times."""
    _, series, _ = simulated(CASES["single rare"]._replace(size=T), seed)
    y = np.array(series.read(0, T)[:, 0])
    found, seconds = None, []

    def all_of_it():
        series = rh.Series(y)
        fresh = rh.Model(rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series))
        return infer(np.random.default_rng(seed), fresh, series, wanted=WANTED)

    for _ in range(4):
        found, taken = timed(all_of_it)
        seconds.append(taken)
    effective = next(c.value for c in found.checks if c.name == "effective draws")
    return {"T": T, "seconds": min(seconds[1:]), "method": found.method, "effective": effective}


# ---------------------------------------------------------------- peers
def peers(T, quick, seed=0):
    """Seconds an effective draw of methods that read the whole series at each step, all started at the mode."""
    model, series, _ = simulated(CASES["single rare"]._replace(size=T), seed)
    mode = rh.find_mode(model, series)
    rng = np.random.default_rng(seed)
    rows = []
    sweeps = 60 if quick else 400
    draws, seconds = timed(rh.gibbs, rng, mode.model, series, mode.model.unpack(mode.theta), sweeps)
    halves = draws[: sweeps // 2 * 2].reshape(2, -1, mode.model.size)
    rows.append({"name": "Gibbs sampling, compiled", "draws": sweeps, "seconds": seconds, "per": "sweep",
                 "effective": min(sweeps, mixing(halves).bulk.min())})  # fmt: skip
    steps, warm = (10, 120) if quick else (60, 120)
    draws, seconds = timed(rh.hmc, rng, mode, series, steps, chains=4)
    rows.append({"name": "HMC on all data, ours", "draws": 4 * steps, "seconds": seconds * steps / (steps + warm),
                 "per": "draw", "effective": mixing(draws).bulk.min()})  # fmt: skip
    rows.append(nuts(mode, series, 4, 2 if quick else 4))
    for row in rows:
        row["each"] = row["seconds"] / row["effective"]
    return rows


def nuts(mode, series, warm, draws):
    """NumPyro's NUTS on the same posterior, whitened at the mode, so that it has nothing but a step size to learn."""
    y, centre, factor = (jnp.asarray(a) for a in (series.read(0, len(series))[:, 0], mode.theta, mode.factor))
    K, (mean_prior, variance_prior) = mode.model.n_states, mode.model.priors.emission
    rows, columns = (jnp.asarray(a) for a in mode.model.coordinates.free(K))

    def potential(z):
        theta = centre + factor @ z
        mean, log_variance = theta[:K], theta[K : 2 * K]
        logits = jnp.zeros((K, K)).at[rows, columns].set(theta[2 * K :])
        P = jax.nn.softmax(logits, axis=1)
        system = jnp.concatenate([(jnp.eye(K) - P.T)[:-1], jnp.ones((1, K))])
        start = jnp.linalg.solve(system, jnp.eye(K)[-1])

        def step(a, y_t):
            logp = -0.5 * (log_variance + (y_t - mean) ** 2 * jnp.exp(-log_variance))
            top = logp.max()
            a = a * jnp.exp(logp - top)
            total = a.sum()
            return (a / total) @ P, top + jnp.log(total)

        value = jax.lax.scan(step, start, y)[1].sum()
        value += -0.5 * ((mean - mean_prior.mean) ** 2 / mean_prior.variance).sum()
        value -= (variance_prior.shape * log_variance + variance_prior.scale * jnp.exp(-log_variance)).sum()
        value += mode.model.priors.transition.concentration * jnp.log(P).sum()
        return -value

    slope = jax.grad(potential)(jnp.ones(len(centre)) * 0.3)
    theta = mode.theta + mode.factor @ np.full(len(centre), 0.3)
    exact = mode.factor.T @ rh.log_posterior(mode.model, theta, series)[1]
    np.testing.assert_allclose(-np.asarray(slope), exact, rtol=1e-5, atol=1e-4)  # it is the same posterior
    kernel = NUTS(potential_fn=potential, step_size=0.5, adapt_mass_matrix=False)
    mcmc = MCMC(kernel, num_warmup=warm, num_samples=draws, progress_bar=False)
    key = jax.random.PRNGKey(0)
    mcmc.warmup(key, init_params=jnp.zeros(len(centre)), extra_fields=("num_steps",))
    _, seconds = timed(lambda: (mcmc.run(key, extra_fields=("num_steps",)), jax.block_until_ready(mcmc.get_samples())))
    steps = int(np.sum(np.asarray(mcmc.get_extra_fields()["num_steps"])))
    return {"name": f"NumPyro NUTS ({steps / draws:.0f} gradients a draw)", "draws": draws, "seconds": seconds,
            "per": "draw", "effective": float(draws)}  # fmt: skip


# ---------------------------------------------------------------- report
def report(found):
    sampled, first, others = found["chains"], found["whole"], found["peers"]
    lines = [
        "# The cost of an effective draw",
        "",
        "Written by `make cost`; do not edit. Chains forced: BAOAB, 4 chains, pilot design, frozen statistics; an",
        "effective draw is one of the worst parameter (bulk ESS, ArviZ), drawing and gathering of windows counted.",
        "",
        "| configuration | T | B | S | windows an effective draw | µs an effective draw, 2 threads | 1 thread "
        "| of it filling the pool | 1000 effective draws, s | without filling, 1 thread, s | mode, s | pilot, s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in sampled:
        lines.append(
            f"| {r['name']} | {r['T']:.0e} | {r['buffer']} | {r['size']} | {r['windows']:.0f} | {r['us']:.0f} "
            f"| {r['us_one']:.0f} | {r['filling']:.0%} | {r['thousand']:.3f} | {r['chain_only']:.3f} | {r['mode']:.2f} "
            f"| {r['prepare']:.2f} |"
        )
    lines += [
        "",
        f"From an array of {first['T']:.0e} numbers to a posterior by the default rule ({first['method']}, "
        f"{first['effective']:.0f} effective draws of the worst parameter), warm caches: **{first['seconds']:.1f} s**.",
        "",
        f"Beside methods that read the whole series at each step, T = {first['T']:.0e}, same posterior, started at the",
        "mode; set-up counted in the last column only for the chain (which has the most of it), over 1000 draws.",
        "",
        "| method | draws | seconds | ms an effective draw | chain is faster by | set-up counted |",
        "|---|---|---|---|---|---|",
    ]
    mine = next(r for r in sampled if r["T"] == first["T"] and r["name"] == "single rare")
    for r in others:
        ratio, counted = r["each"] / (1e-6 * mine["us"]), WANTED * r["each"] / first["seconds"]
        lines.append(
            f"| {r['name']} | {r['draws']} | {r['seconds']:.1f} | {1e3 * r['each']:.1f} | {ratio:.0f} | {counted:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--quick", action="store_true", help="short runs of the peers, to see that it works")
    use = ask.parse_args()
    sizes = (100_000, 1_000_000) if use.quick else (100_000, 1_000_000, 10_000_000)
    found = {"chains": [chains("single rare", T) for T in sizes] + [chains("overlap, sticky", 100_000)]}
    found["whole"] = whole(1_000_000)
    found["peers"] = peers(1_000_000, use.quick)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cost.json").write_text(json.dumps(found, indent=1, default=float) + "\n")
    (RESULTS / "cost.md").write_text(report(found))
    print(report(found))


if __name__ == "__main__":
    main()
