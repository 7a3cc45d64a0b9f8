"""Five samplers of one posterior, that of a Gaussian HMM at whose mode they start: what scaling.py runs.

A sampler takes a problem and a number n of steps and returns what it has sampled; its seconds are without set-up and
warm-up, unless its docstring says otherwise.
"""

import time
from typing import NamedTuple

import numpy as np

import rarehmm as rh
from rarehmm.designs.pilot import pilot
from rarehmm.engine.contracts.sampler import excess_variance
from rarehmm.samplers.baoab import Baoab
from rarehmm.sampling.chains import gradient_estimates
from rarehmm.sampling.diagnostics import mixing, windows_needed
from rarehmm.sampling.hmc import metropolis_langevin
from rarehmm.sampling.methods import MEMORY, Job, largest_noise, shortest_buffer
from rarehmm.sampling.rule import infer
from rarehmm.windows.information import WindowInformation

CHAINS = 4


class Problem(NamedTuple):
    mode: rh.Mode
    series: rh.Series


class Sampled(NamedTuple):
    """``values`` (chains, n, .) of means, variances and transition probabilities, states by their means, the number of
    effective draws of the worst of them, and the seconds."""

    seconds: float
    values: np.ndarray
    effective: float


def quantities(model, theta):
    """Means, variances and transition probabilities (..., K (K + 2)) of draws of theta (..., d)."""
    phi, transition = rh.in_order(model, theta)
    return np.concatenate([phi[..., 0], phi[..., 1], transition.reshape(*theta.shape[:-1], -1)], axis=-1)


def sampled(seconds, model, theta):
    """Draws of theta (chains, n, d) as ``Sampled``; where they are very few each counts as effective."""
    values = quantities(model, theta)
    chains, n, _ = values.shape
    return Sampled(seconds, values, chains * n if n < 10 else mixing(values).bulk.min())


def halves(draws):
    """One chain (n, d) as two (2, n // 2, d)."""
    return draws[: len(draws) // 2 * 2].reshape(2, -1, draws.shape[1])


def rarehmm(problem, n):
    """The default rule, n effective draws; counted from the mode on: pilot, warm-up and checks are in its seconds."""
    marks = {}

    def on_progress(stage, done, total):
        marks.setdefault(stage, time.perf_counter())

    found = infer(np.random.default_rng(0), problem.mode.model, problem.series, wanted=n, on_progress=on_progress)
    seconds = time.perf_counter() - marks["which method?"]
    done = sampled(seconds, found.mode.model, found.theta)
    return done if found.weighted is None else done._replace(effective=found.weighted.effective)


def gibbs(problem, n):
    mode, series = problem
    began = time.perf_counter()
    draws = rh.gibbs(np.random.default_rng(0), mode.model, series, mode.model.unpack(mode.theta), n)
    return sampled(time.perf_counter() - began, mode.model, halves(draws))


def langevin(problem, n):
    """Metropolis-adjusted Langevin dynamics on all data, from the law at the mode, whose metric it improves."""
    times = []
    draws = metropolis_langevin(
        np.random.default_rng(0), *problem, n, chains=CHAINS, on_progress=lambda _: times.append(time.perf_counter())
    )
    return sampled(times[-1] - times[-1 - n], problem.mode.model, draws)


def numpyro(problem, n):
    """NUTS on the same posterior, whitened at the mode, so that it has nothing but a step size to learn."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    mode, series = problem
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

    slope = jax.grad(potential)(jnp.full(len(centre), 0.3))
    exact = (
        mode.factor.T @ rh.log_posterior(mode.model, mode.theta + mode.factor @ np.full(len(centre), 0.3), series)[1]
    )
    np.testing.assert_allclose(-np.asarray(slope), exact, rtol=1e-5, atol=1e-4)  # it is the same posterior
    kernel = NUTS(potential_fn=potential, step_size=0.5, adapt_mass_matrix=False)
    mcmc = MCMC(kernel, num_warmup=4 if n < 20 else 50, num_samples=n, progress_bar=False)
    key = jax.random.PRNGKey(0)
    mcmc.warmup(key, init_params=jnp.zeros(len(centre)))
    began = time.perf_counter()
    mcmc.run(key)
    z = np.asarray(mcmc.get_samples())
    seconds = time.perf_counter() - began
    return sampled(seconds, mode.model, halves(mode.theta + z @ mode.factor.T))


def blackjax(problem, n, step_size=0.1):
    """SGLD, whitened at the mode, on the windows, control variates and buffers that rarehmm's own chains would use."""
    import blackjax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    mode, series = problem
    rng = np.random.default_rng(0)
    windows, frozen, _ = shortest_buffer(Job(rng, mode, series))
    design = pilot(WindowInformation.around(rng, mode, series, windows, frozen=frozen))
    size = windows_needed(excess_variance(Baoab()), largest_noise(Job(rng, mode, series), windows, frozen, design))
    pool = rh.Pool(mode.model, series, windows, design, size, frozen=frozen, memory=MEMORY)

    def on_windows(z):
        theta = mode.theta + mode.factor @ np.asarray(z)
        return mode.factor.T @ gradient_estimates(rng, mode.model, pool, theta, 1)[0]

    shape = jax.ShapeDtypeStruct(mode.theta.shape, jnp.float64)
    sgld = blackjax.sgld(lambda z, _: jax.pure_callback(on_windows, shape, z))

    def move(z, key):
        z = sgld.step(key, z, None, step_size)
        return z, z

    @jax.jit
    def chain(key, z):
        return jax.lax.scan(move, z, jax.random.split(key, n))[1]

    begins = rng.standard_normal((CHAINS, len(mode.theta)))
    keys = jax.random.split(jax.random.PRNGKey(0), CHAINS)
    chain.lower(keys[0], begins[0]).compile()
    began = time.perf_counter()
    z = np.array([chain(key, z) for key, z in zip(keys, begins, strict=True)])
    return sampled(time.perf_counter() - began, mode.model, mode.theta + z @ mode.factor.T)


SAMPLERS = {  # and steps of a first run, by which the length of a second one is found
    "rarehmm": (rarehmm, 400),
    "Gibbs sampling, ours": (gibbs, 60),
    "Langevin on all data, ours": (langevin, 60),
    "NumPyro NUTS": (numpyro, 4),
    "BlackJAX SGLD on our windows": (blackjax, 500),
}
