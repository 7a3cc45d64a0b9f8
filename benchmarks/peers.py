"""Gaussian HMMs by five libraries, each as its documentation has it: what comparison.py and scaling.py run and count
lines of.  Those with autocorrelated noise, of ``REGIME_TOOLS``, are what regime_comparison.py runs.

A fit takes a series y (T,), a number of states K and a seed, and returns means (K,), variances (K,), the transition
matrix (K, K), and draws (n, K) of the means or None; those with autocorrelated noise instead of draws the lag, which
may differ between states, and "level" or "intercept" for what their means are.  As a script, ``peers.py plain NAME``,
it fits what it reads from its standard input, one series after the other, so that whoever started it can stop it.
"""

import os
import pickle
import sys
import time
import warnings

import numpy as np


def rarehmm(y, K, seed):
    from rarehmm import RareHMM

    hmm = RareHMM(K, random_state=seed).fit(y)
    return hmm.means_[:, 0], hmm.covars_[:, 0], hmm.transmat_, hmm.posterior_.phi[..., 0].reshape(-1, K)


def hmmlearn(y, K, seed):
    from hmmlearn.hmm import GaussianHMM

    # "scaling" is what its documentation calls the faster one; the default is kept for compatibility
    hmm = GaussianHMM(K, n_iter=100, implementation="scaling", random_state=seed).fit(y[:, None])
    return hmm.means_[:, 0], hmm.covars_[:, 0, 0], hmm.transmat_, None


def hmmlearn_best(y, K, seed):
    from hmmlearn.hmm import GaussianHMM

    def start(i):
        return GaussianHMM(K, n_iter=100, implementation="scaling", random_state=5 * seed + i).fit(y[:, None])

    hmm = max((start(i) for i in range(5)), key=lambda fit: fit.score(y[:, None]))
    return hmm.means_[:, 0], hmm.covars_[:, 0, 0], hmm.transmat_, None


def hmmlearn_variational(y, K, seed):
    from hmmlearn.vhmm import VariationalGaussianHMM

    hmm = VariationalGaussianHMM(
        K, covariance_type="diag", n_iter=100, implementation="scaling", random_state=seed
    ).fit(y[:, None])
    spread = np.sqrt(hmm.covars_[:, 0, 0] / hmm.beta_posterior_)  # of the means
    draws = hmm.means_[:, 0] + spread * np.random.default_rng(seed).standard_normal((1000, K))
    return hmm.means_[:, 0], hmm.covars_[:, 0, 0], hmm.transmat_, draws


def dynamax(y, K, seed):
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import GaussianHMM

    jax.config.update("jax_enable_x64", True)  # in single precision a million squares do not add up
    hmm, emissions = GaussianHMM(K, 1), jnp.asarray(y)[:, None]
    start, properties = hmm.initialize(jax.random.PRNGKey(seed), method="kmeans", emissions=emissions)
    found, _ = hmm.fit_em(start, properties, emissions, verbose=False)
    return found.emissions.means[:, 0], found.emissions.covs[:, 0, 0], found.transitions.transition_matrix, None


def pomegranate(y, K, seed):
    import torch
    from pomegranate.distributions import Normal
    from pomegranate.hmm import DenseHMM

    hmm = DenseHMM([Normal(covariance_type="diag") for _ in range(K)], max_iter=100, tol=0.01, random_state=seed)
    hmm.fit(torch.as_tensor(y, dtype=torch.float32)[None, :, None])
    means, variances = np.array([[float(d.means), float(d.covs)] for d in hmm.distributions]).T
    edges = np.exp(hmm.edges.detach().numpy().astype(float))  # what is left of a row is the chance of an end
    return means, variances, edges / edges.sum(1, keepdims=True), None


def numpyro(y, K, seed):
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import logsumexp
    from numpyro.infer import MCMC, NUTS, init_to_value
    from sklearn.cluster import KMeans

    def model(y, centre, spread):
        P = numpyro.sample("P", dist.Dirichlet(jnp.ones((K, K))))
        mean = numpyro.sample("mean", dist.Normal(centre, 2 * spread).expand([K]))
        sd = numpyro.sample("sd", dist.HalfNormal(spread).expand([K]))
        density = dist.Normal(mean, sd).log_prob(y[:, None])  # (T, K)

        def forward(alpha, here):
            return logsumexp(alpha[:, None] + jnp.log(P), axis=0) + here, None

        alpha, _ = jax.lax.scan(forward, density[0] - jnp.log(K), density[1:])
        numpyro.factor("y", logsumexp(alpha))

    clusters = KMeans(K, n_init=10, random_state=seed).fit(y[:, None])
    within = (clusters.inertia_ / len(y)) ** 0.5
    start = {"mean": clusters.cluster_centers_[:, 0], "sd": jnp.full(K, within), "P": jnp.full((K, K), 1 / K)}
    kernel = NUTS(model, init_strategy=init_to_value(values=start))
    mcmc = MCMC(kernel, num_warmup=300, num_samples=300, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(seed), jnp.asarray(y), y.mean(), y.std())
    draws = mcmc.get_samples()
    return draws["mean"].mean(0), (draws["sd"] ** 2).mean(0), draws["P"].mean(0), draws["mean"]


TOOLS = {
    "rarehmm": rarehmm,
    "hmmlearn": hmmlearn,
    "hmmlearn, best of 5 starts": hmmlearn_best,
    "hmmlearn, variational": hmmlearn_variational,
    "dynamax": dynamax,
    "pomegranate": pomegranate,
    "NumPyro": numpyro,
}


# ---------------------------------------------------------------- autocorrelated noise
def rarehmm_lag(y, K, seed, method="auto"):
    from rarehmm import RareHMM

    hmm = RareHMM(K, ar=1, method=method, random_state=seed).fit(y)
    return hmm.means_[:, 0], hmm.covars_[:, 0], hmm.transmat_, hmm.posterior_.mean.coefficients, "level"


def rarehmm_lag_mode(y, K, seed):
    return rarehmm_lag(y, K, seed, "map")


def markov_autoregression(y, K, seed):
    from statsmodels.tsa.regime_switching.markov_autoregression import MarkovAutoregression

    np.random.seed(seed)  # noqa: NPY002
    fit = MarkovAutoregression(y, K, order=1, switching_ar=False, switching_variance=True).fit()
    each = dict(zip(fit.model.param_names, fit.params, strict=True))
    means, variances = ([each[f"{name}[{k}]"] for k in range(K)] for name in ("const", "sigma2"))
    return means, variances, fit.regime_transition[:, :, 0].T, [each["ar.L1"]], "level"


def markov_regression(y, K, seed):
    from statsmodels.tsa.regime_switching.markov_regression import MarkovRegression

    np.random.seed(seed)  # noqa: NPY002
    lag = MarkovRegression(y[1:], K, exog=y[:-1], switching_exog=False, switching_variance=True)
    fit = lag.fit()
    each = dict(zip(fit.model.param_names, fit.params, strict=True))
    intercepts, variances = ([each[f"{name}[{k}]"] for k in range(K)] for name in ("const", "sigma2"))
    return (
        intercepts,
        variances,
        fit.regime_transition[:, :, 0].T,
        fit.params[fit.model.parameters[0, "exog"]][-1:],
        "intercept",
    )


def dynamax_lag(y, K, seed):
    import jax
    import jax.numpy as jnp
    from dynamax.hidden_markov_model import LinearAutoregressiveHMM

    jax.config.update("jax_enable_x64", True)
    hmm, emissions = LinearAutoregressiveHMM(K, 1, num_lags=1), jnp.asarray(y)[:, None]
    lags = hmm.compute_inputs(emissions)
    start, properties = hmm.initialize(jax.random.PRNGKey(seed), method="kmeans", emissions=emissions)
    found, _ = hmm.fit_em(start, properties, emissions, inputs=lags, verbose=False)
    e = found.emissions
    return e.biases[:, 0], e.covs[:, 0, 0], found.transitions.transition_matrix, e.weights[:, 0, 0], "intercept"


REGIME_TOOLS = {
    "rarehmm": rarehmm_lag,
    "rarehmm, mode alone": rarehmm_lag_mode,
    "statsmodels, MarkovAutoregression": markov_autoregression,
    "statsmodels, MarkovRegression": markov_regression,
    "dynamax": dynamax_lag,
}


def serve(fit):
    """Answer each (y, K, seed) with the seconds of the fit, what it found, and its warnings."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    while True:
        try:
            y, K, seed = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", RuntimeWarning)
            began = time.perf_counter()
            found = [None if part is None else np.asarray(part) for part in fit(y, K, seed)]  # waits for jax
            seconds = time.perf_counter() - began
        pickle.dump((seconds, found, [str(word.message) for word in said]), answers)
        answers.flush()


if __name__ == "__main__":
    kind, tool = sys.argv[1:]
    serve({"plain": TOOLS, "regimes": REGIME_TOOLS}[kind][tool])
