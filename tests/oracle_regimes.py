r"""Slow, obvious twins for regimes with lags, inputs, phases and known states, in NumPy alone.

A case is a ``Regimes``.  ``enumerate_regimes`` adds up all paths of its states, one by one; ``hamilton_filter`` runs
Hamilton's filter and Kim's smoother over tuples of recent states.  The two share the chain of states and nothing
else, so each checks the other.

With :math:`i = s_{t-1}`, :math:`j = s_t`, :math:`r_t = y_t - x_t'\beta` (shared inputs), :math:`\mu_j(t) = \mu_j +
x_t'b_j` (switching inputs), sd :math:`\sigma_j \exp(v_t'\delta)` and :math:`\rho = \sum_m \phi_m`, the mean of
:math:`r_t` is

.. math::

    \mu_j(t) & \quad\text{none} \\
    \mu_j(t) - \rho\,\mu_i(t-1) + \sum_m \phi_m r_{t-m} & \quad\text{level} \\
    \mu_j(t) + \sum_m \phi_m y_{t-m} & \quad\text{intercept} \\
    \mu_j(t) + \sum_m \phi_m \bigl(r_{t-m} - \mu_{s_{t-m}}(t-m)\bigr) & \quad\text{hamilton}

Lags that switch are those of state j.  Rows whose lags are not all observed within the sequence do not count: their
density is 1, and there is still a transition into them.  The exception is the form around the level with lags that all
states share, where only the first p rows do not count, and only if it is conditional: see ``mean_after_gap``.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np


@dataclass
class Regimes:
    """A series and all parameters of its model.  T steps, K states, p lags."""

    y: np.ndarray  # (T,), NaN where missing
    mu: np.ndarray  # (K,)
    sigma: np.ndarray  # (K,), the scale of a Student-t
    transition: np.ndarray  # (K, K), from i to j
    lengths: np.ndarray | None = None  # of the sequences; one sequence by default
    nu: float | None = None  # degrees of freedom; Gaussian by default
    start: np.ndarray | None = None  # (K,); stationary by default
    shared_x: np.ndarray | None = None  # (T, q)
    beta: np.ndarray | None = None  # (q,)
    switching_x: np.ndarray | None = None  # (T, w)
    b: np.ndarray | None = None  # (w, K)
    scale_x: np.ndarray | None = None  # (T, v)
    delta: np.ndarray | None = None  # (v,)
    z: np.ndarray | None = None  # (T, k), inputs of the transitions
    slopes: np.ndarray | None = None  # (k, K, K)
    phases: np.ndarray | None = None  # (K,), phases in a row of each state; one by default
    kind: str = "none"  # or "level", "intercept", "hamilton"
    p: int = 0
    phi: np.ndarray | None = None  # (p,) shared or (p, K) switching
    conditional: bool = False  # form around the level: the first p rows of each sequence are given
    states: np.ndarray | None = None  # (T,), -1 where unknown

    def __post_init__(self):
        T, K = len(self.y), len(self.mu)
        defaults = {
            "lengths": [T], "shared_x": np.zeros((T, 0)), "beta": [], "switching_x": np.zeros((T, 0)),
            "b": np.zeros((0, K)), "scale_x": np.zeros((T, 0)), "delta": [], "phi": [], "states": np.full(T, -1),
        }  # fmt: skip
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        for name in (*defaults, "y", "mu", "sigma", "transition", "start", "z", "slopes", "phases"):
            if getattr(self, name) is not None:
                setattr(self, name, np.asarray(getattr(self, name)))
        assert self.kind in ("none", "level", "intercept", "hamilton")
        assert len(self.phi) == self.p
        assert (self.p > 0) == (self.kind != "none")
        assert sum(self.lengths) == T
        assert (self.z is None) == (self.slopes is None)

    @property
    def n_states(self):
        return len(self.mu)

    @property
    def switching_lags(self):
        return self.phi.ndim == 2

    @property
    def firsts(self):
        """First row of each sequence."""
        return [int(sum(self.lengths[:n])) for n in range(len(self.lengths))]


# ------------------------------------------------------------------------------------------------------ the chain
def stationary(P):
    """Stationary distribution of a transition matrix: pi P = pi and sum pi = 1."""
    K = len(P)
    equations = np.vstack([P.T - np.eye(K), np.ones(K)])
    return np.linalg.lstsq(equations, np.append(np.zeros(K), 1.0), rcond=None)[0]


def transitions(case):
    """Matrices (T, K, K): [t] leads into row t, P_jk(t) proportional to P_jk exp(z_t's_jk)."""
    T, K = len(case.y), case.n_states
    out = np.empty((T, K, K))
    for t, j in np.ndindex(T, K):
        weight = np.array(case.transition[j], dtype=float)
        if case.z is not None:
            for k in range(K):
                weight[k] *= math.exp(case.z[t] @ case.slopes[:, j, k])
        out[t, j] = weight / weight.sum()
    return out


def nodes(case):
    """State and phase of each node, [(state, phase), ...]: phases are passed in their order."""
    counts = [1] * case.n_states if case.phases is None else case.phases
    return [(k, phase) for k in range(case.n_states) for phase in range(counts[k])]


def node_transition(case, P):
    """Transition matrix (N, N) of nodes: stay with P_kk, else on to the next phase or, from the last, to a state."""
    every = nodes(case)
    out = np.zeros((len(every), len(every)))
    for one, (k, phase) in enumerate(every):
        out[one, one] = P[k, k]
        if (k, phase + 1) in every:
            out[one, every.index((k, phase + 1))] = 1 - P[k, k]
            continue
        for j in range(case.n_states):
            if j != k:
                out[one, every.index((j, 0))] = P[k, j]
    return out


def node_start(case, P):
    """Distribution (N,) of the first node: that which is given, in first phases, or the stationary one under P.

    The stationary probability of each phase of state k is proportional to pi_k, since all of them are entered equally
    often and left with the same probability.  statsmodels takes the stationary distribution of the matrix of the first
    row, which is conditioned on if there are lags, and moves on with the matrices of all rows after it.
    """
    if case.start is not None:
        return np.array([case.start[k] if phase == 0 else 0.0 for k, phase in nodes(case)])
    pi = stationary(P)
    weight = np.array([pi[k] for k, _ in nodes(case)])
    return weight / weight.sum()


# -------------------------------------------------------------------------------------------------- autocorrelation
def autocorrelation(phi, n):
    """Autocorrelations at lags 0, ..., n of a stationary AR(p): the Yule-Walker equations."""
    p = len(phi)
    equations, right = np.eye(p + 1), np.zeros(p + 1)
    right[0] = 1.0  # acf_0 = 1 and acf_h = sum_m phi_m acf_|h - m|
    for h in range(1, p + 1):
        for m in range(1, p + 1):
            equations[h, abs(h - m)] -= phi[m - 1]
    acf = list(np.linalg.solve(equations, right))
    for h in range(p + 1, n + 1):
        acf.append(sum(phi[m - 1] * acf[h - m] for m in range(1, p + 1)))
    return np.array(acf[: n + 1])


def explained_share(phi):
    """R2 of a stationary AR(p): the share of its variance that its lags explain."""
    return float(phi @ autocorrelation(phi, len(phi))[1:])


def start_variances(case):
    r"""Variances (K,) around the level of each state before anything is observed, but for inputs on the scale.

    .. math:: V_j = \sigma_j^2 + R^2 \sum_i \frac{\pi_i P_{ij}}{\pi_j} V_i

    where the chain is stationary, homogeneous and without phases; :math:`\sigma_j^2 / (1 - R^2)` otherwise.
    """
    R2, K = explained_share(case.phi), case.n_states
    if case.start is not None or case.z is not None or case.phases is not None:
        return case.sigma**2 / (1 - R2)
    pi = stationary(case.transition)
    equations = np.eye(K)
    for j, i in np.ndindex(K, K):
        equations[j, i] -= R2 * pi[i] * case.transition[i, j] / pi[j]
    return np.linalg.solve(equations, case.sigma**2)


# -------------------------------------------------------------------------------------- enumeration, path by path
def level(case, t, k):
    """Level of state k at row t, switching inputs included."""
    return case.mu[k] + case.switching_x[t] @ case.b[:, k]


def remainder(case, t):
    """Observation without the part of the shared inputs."""
    return case.y[t] - case.shared_x[t] @ case.beta


def log_density_at(case, residual, scale):
    """Log density of one residual."""
    e = residual / scale
    if case.nu is None:
        return -0.5 * e**2 - math.log(scale) - 0.5 * math.log(2 * math.pi)
    nu = case.nu
    constant = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)
    return constant - math.log(scale) - (nu + 1) / 2 * math.log1p(e**2 / nu)


def mean_after_gap(case, first, t, recent):
    """Mean and scale around the level where a lag is missing: from the last observation, or from none."""
    j, inputs = recent[-1], math.exp(case.scale_x[t] @ case.delta)
    observed = [u for u in range(first, t) if not np.isnan(case.y[u])]
    if not observed:
        return level(case, t, j), math.sqrt(start_variances(case)[j]) * inputs
    last, i = observed[-1], recent[-2]
    acf = autocorrelation(case.phi, t - last)[-1]
    mean = level(case, t, j) + acf * (remainder(case, last) - level(case, last, i))
    return mean, case.sigma[j] * inputs * math.sqrt((1 - acf**2) / (1 - explained_share(case.phi)))


def log_density(case, first, t, recent):
    """log p(y_t | states, past), 0 where the row does not count; ``recent`` is (..., s_{t-1}, s_t)."""
    if np.isnan(case.y[t]):
        return 0.0
    j = recent[-1]
    mean, scale = level(case, t, j), case.sigma[j] * math.exp(case.scale_x[t] @ case.delta)
    phi = case.phi[:, j] if case.switching_lags else case.phi
    if any(t - m < first or np.isnan(case.y[t - m]) for m in range(1, case.p + 1)):
        if case.kind != "level" or case.switching_lags or (case.conditional and t - first < case.p):
            return 0.0
        mean, scale = mean_after_gap(case, first, t, recent)
    elif case.kind == "level":
        mean -= sum(phi) * level(case, t - 1, recent[-2])
        mean += sum(phi[m - 1] * remainder(case, t - m) for m in range(1, case.p + 1))
    elif case.kind == "intercept":
        mean += sum(phi[m - 1] * case.y[t - m] for m in range(1, case.p + 1))
    elif case.kind == "hamilton":
        for m in range(1, case.p + 1):
            mean += phi[m - 1] * (remainder(case, t - m) - level(case, t - m, recent[-1 - m]))
    return log_density_at(case, remainder(case, t) - mean, scale)


def enumerate_regimes(case):
    """log p(y), smoothing (T, K) and filtering (T, K) probabilities, from all paths of each sequence."""
    T, K = len(case.y), case.n_states
    P, state_of = transitions(case), [k for k, _ in nodes(case)]
    total, smoothed, filtered = 0.0, np.zeros((T, K)), np.zeros((T, K))
    known = {}  # log densities by row and recent states

    def weigh(first, t, path):
        states = [state_of[n] for n in path]
        if case.states[t] not in (-1, states[-1]):
            return -math.inf
        key = (t, *states[-case.p - 2 :])
        if key not in known:
            known[key] = log_density(case, first, t, states)
        return known[key]

    for first, length in zip(case.firsts, case.lengths, strict=True):
        paths = [((n,), math.log(p)) for n, p in enumerate(node_start(case, P[first])) if p > 0]
        paths = [(path, log + weigh(first, first, path)) for path, log in paths]
        for t in range(first, first + length):
            if t > first:
                Q = node_transition(case, P[t])
                longer = [((*path, n), log + math.log(Q[path[-1], n])) for path, log in paths
                          for n in range(len(Q)) if Q[path[-1], n] > 0]  # fmt: skip
                paths = [(path, log + weigh(first, t, path)) for path, log in longer]
            logs = np.array([log for _, log in paths])
            normaliser = np.logaddexp.reduce(logs)
            for (path, _), weight in zip(paths, np.exp(logs - normaliser), strict=True):
                filtered[t, state_of[path[-1]]] += weight
        for (path, _), weight in zip(paths, np.exp(logs - normaliser), strict=True):
            for step, n in enumerate(path):
                smoothed[first + step, state_of[n]] += weight
        total += normaliser
    return total, smoothed, filtered


# --------------------------------------------------------------------- Hamilton's filter, over tuples of recent states
def tuple_log_densities(case, first, t, states):
    """log p(y_t | states) (S,) of all tuples, ``states`` (S, 1 + memory) being those now, one step ago, ..."""
    lags = np.arange(t - 1, t - case.p - 1, -1)  # (p,) rows
    if t - case.p < first or np.isnan(case.y[t - case.p : t + 1]).any():
        return np.zeros(len(states))
    now, level = states[:, 0], case.mu + case.switching_x @ case.b  # (T, K)
    r = case.y - case.shared_x @ case.beta
    phi = case.phi.T[now] if case.switching_lags else np.tile(case.phi, (len(states), 1))  # (S, p)
    match case.kind:
        case "none":
            lagged = 0.0
        case "level":
            lagged = phi @ r[lags] - phi.sum(1) * level[t - 1, states[:, 1]]
        case "intercept":
            lagged = phi @ case.y[lags]
        case "hamilton":
            lagged = (phi * (r[lags] - level[lags, states[:, 1:]])).sum(1)
    scale = (case.sigma * np.exp(case.scale_x[t] @ case.delta))[now]
    e = (r[t] - level[t, now] - lagged) / scale
    if case.nu is None:
        return -(e**2) / 2 - np.log(np.sqrt(2 * np.pi) * scale)
    constant = math.lgamma((case.nu + 1) / 2) - math.lgamma(case.nu / 2)
    return constant - np.log(np.sqrt(case.nu * np.pi) * scale) - (case.nu + 1) / 2 * np.log1p(e**2 / case.nu)


def hamilton_filter(case):
    """log p(y), smoothing (T, K) and filtering (T, K) probabilities: Hamilton (1989), and Kim's smoother (1994).

    For all cases in which rows count only if all their lags are observed: Hamilton's model, the intercept form, no
    lags, and the form around the level with lags that switch or, if nothing is missing, with ``conditional``.
    """
    conditional = case.conditional and not np.isnan(case.y).any()
    if case.kind == "level" and not (conditional or case.switching_lags):
        raise ValueError("rows without lags count in this case; use enumerate_regimes")
    T, K, memory = len(case.y), case.n_states, case.p if case.kind == "hamilton" else 1
    node_states = np.array([k for k, _ in nodes(case)])
    tuples = np.array(list(itertools.product(range(len(node_states)), repeat=memory + 1)))  # (S, 1 + memory)
    states = node_states[tuples]
    follows = (tuples[:, None, :-1] == tuples[None, :, 1:]).all(2)  # (S, S), from row to column
    before_first = (tuples == tuples[:, :1]).all(1)  # states before the first row do not matter: they are its own
    P = transitions(case)

    predicted, filtered, smoothed = (np.zeros((T, len(tuples))) for _ in range(3))
    steps, total = [None] * T, 0.0
    for first, length in zip(case.firsts, case.lengths, strict=True):
        for t in range(first, first + length):
            if t == first:
                predicted[t] = before_first * node_start(case, P[t])[tuples[:, 0]]
            else:
                steps[t] = follows * node_transition(case, P[t])[np.ix_(tuples[:, 0], tuples[:, 0])]
                predicted[t] = filtered[t - 1] @ steps[t]
            logs = tuple_log_densities(case, first, t, states)
            allowed = (case.states[t] == -1) | (states[:, 0] == case.states[t])
            joint = predicted[t] * allowed * np.exp(logs - logs.max())
            total += np.log(joint.sum()) + logs.max()
            filtered[t] = joint / joint.sum()
        smoothed[t] = filtered[t]
        for t in range(first + length - 2, first - 1, -1):
            possible = predicted[t + 1] > 0
            ratio = np.divide(smoothed[t + 1], predicted[t + 1], out=np.zeros(len(tuples)), where=possible)
            smoothed[t] = filtered[t] * (steps[t + 1] @ ratio)
    of_state = states[:, :1] == np.arange(K)  # (S, K)
    return total, smoothed @ of_state, filtered @ of_state
