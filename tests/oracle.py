"""Slow, obvious twins of the kernels: enumeration of all paths, and forward-backward step by step."""

import itertools

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import norm, poisson
from scipy.stats import t as student_t

from rarehmm import Gaussian, Poisson, StudentT, filter_states, smooth
from rarehmm.posterior.events import Events


def log_density(family, y, phi):
    """log p(y_t | state k), (T, K), from SciPy's own densities; 0 where missing."""
    y = np.asarray(y, dtype=float).reshape(len(y), -1)[:, 0]
    match family:
        case StudentT():
            out = student_t.logpdf(y[:, None], family.nu, phi[:, 0], np.sqrt(phi[:, 1]))
        case Poisson():
            out = y[:, None] * np.log(phi[:, 0]) - phi[:, 0] - gammaln(y[:, None] + 1)
            shown = ~np.isnan(y)
            assert np.allclose(out[shown], poisson.logpmf(y[shown, None], phi[:, 0]))
        case Gaussian():
            out = norm.logpdf(y[:, None], phi[:, 0], np.sqrt(phi[:, 1]))
        case _:
            raise TypeError(family)
    return np.where(np.isnan(y)[:, None], 0.0, out)


def all_paths(logp, transition, start):
    """All K^T paths (K^T, T) and log p(path, y) of each."""
    T, K = logp.shape
    paths = np.array(list(itertools.product(range(K), repeat=T)))
    with np.errstate(divide="ignore"):
        logs = np.log(start)[paths[:, 0]] + logp[np.arange(T), paths].sum(1)
        for t in range(1, T):
            logs = logs + np.log(transition)[paths[:, t - 1], paths[:, t]]
    return paths, logs


def enumerate_paths(logp, transition, start):
    """log p(y), smoothing (T, K), pairs (K, K), best path and its log probability, from all K^T paths."""
    T, K = logp.shape
    paths, logs = all_paths(logp, transition, start)
    total = logsumexp(logs)
    weight = np.exp(logs - total)
    smooth = np.array([[weight[paths[:, t] == k].sum() for k in range(K)] for t in range(T)])
    pairs = np.zeros((K, K))
    for t in range(1, T):
        np.add.at(pairs, (paths[:, t - 1], paths[:, t]), weight)
    best = int(np.argmax(logs))
    return total, smooth, pairs, paths[best], logs[best]


def filter_by_enumeration(logp, transition, start):
    """Filter (T, K) and one-step predictive log densities (T,): enumerate every prefix of the series."""
    values = [enumerate_paths(logp[: t + 1], transition, start) for t in range(len(logp))]
    totals = np.array([v[0] for v in values])
    return np.array([v[1][-1] for v in values]), np.diff(totals, prepend=0.0)


def forward_backward(logp, transition, start):
    """log p(y), filter, smoothing, pairs, predictive densities: the textbook recursions in extended precision."""
    T, K = logp.shape
    long = np.longdouble
    top = logp.max(1, keepdims=True).astype(long)
    p, P = np.exp(logp.astype(long) - top), transition.astype(long)
    a, b, z = np.empty((T, K), long), np.ones((T, K), long), np.empty(T, long)
    for t in range(T):
        v = (start.astype(long) if t == 0 else a[t - 1] @ P) * p[t]
        z[t] = v.sum()
        a[t] = v / z[t]
    for t in range(T - 2, -1, -1):
        b[t] = P @ (p[t + 1] * b[t + 1]) / z[t + 1]
    pairs = np.zeros((K, K), long)
    for t in range(1, T):
        pairs += a[t - 1][:, None] * P * (p[t] * b[t]) / z[t]
    predictive = np.log(z) + top[:, 0]
    return tuple(np.asarray(v, dtype=float) for v in (predictive.sum(), a, a * b, pairs, predictive))


def in_logs(logp, transition, start):
    """log p(y), filter, smoothing, pairs, predictive densities, every quantity kept as a logarithm."""
    T, K = logp.shape
    top = logp.max(1)
    logp = logp - top[:, None]  # against rounding
    with np.errstate(divide="ignore"):
        log_P, log_start = np.log(transition), np.log(start)
    alpha, beta = np.empty((T, K)), np.zeros((T, K))
    alpha[0] = log_start + logp[0]
    for t in range(1, T):
        alpha[t] = logsumexp(alpha[t - 1][:, None] + log_P, axis=0) + logp[t]
    for t in range(T - 2, -1, -1):
        beta[t] = logsumexp(log_P + logp[t + 1] + beta[t + 1], axis=1)
    total = logsumexp(alpha[-1])
    pairs = np.zeros((K, K))
    for t in range(1, T):
        pairs += np.exp(alpha[t - 1][:, None] + log_P + logp[t] + beta[t] - total)
    running = logsumexp(alpha, axis=1)
    predictive = np.diff(running, prepend=0.0) + top
    return total + top.sum(), np.exp(alpha - running[:, None]), np.exp(alpha + beta - total), pairs, predictive


def scores(family, y, phi, gamma):
    """Expected scores (K, P) by central differences of SciPy's densities."""
    out = np.empty(phi.shape)
    for k, i in np.ndindex(phi.shape):
        h = 1e-5 * max(1.0, abs(phi[k, i]))
        up, down = phi.copy(), phi.copy()
        up[k, i] += h
        down[k, i] -= h
        out[k, i] = (gamma[:, k] * (log_density(family, y, up)[:, k] - log_density(family, y, down)[:, k])).sum() / (
            2 * h
        )
    return out


def draw_path_back(filtered, transition, uniform, lengths):
    """A path drawn backwards through each sequence, one state after the other."""
    path, first = [], 0
    for length in lengths:
        states = []
        for t in reversed(range(first, first + length)):
            weight = filtered[t] * transition[:, states[-1]] if states else filtered[t]
            states.append(int(np.searchsorted(np.cumsum(weight / weight.sum()), uniform[t], side="right")))
        path += reversed(states)
        first += length
    return np.array(path)


def log_likelihoods(logp, transition, start, lengths):
    """log p(y) (N,) at N points at once, from logp (N, T, K), transition (N, K, K) and start (N, K)."""
    total, first = logp.max(2).sum(1), 0
    p = np.exp(logp - logp.max(2, keepdims=True))
    for length in lengths:
        a = start
        for t in range(first, first + length):
            a = (a if t == first else np.einsum("nj,njk->nk", a, transition)) * p[:, t]
            total += np.log(a.sum(1))
            a = a / a.sum(1, keepdims=True)
        first += length
    return total


# ---------------------------------------------------------------- all of a series at once, where the library streams it
def state_probabilities(model, points, series, *, causal=False):
    """Probabilities (T, K) of the states given the whole series, or (``causal``) given the past and the present."""
    function = filter_states if causal else smooth
    return np.mean([function(model, point, series) for point in points], axis=0)


def event_table(series, probabilities, rare, **settings):
    """The table of ``Events`` from probabilities (T, K) of the states of a series."""
    events = Events(series, rare, **settings)
    events.add(0, probabilities)
    return events.table()
