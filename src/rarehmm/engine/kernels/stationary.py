"""Stationary distribution of a transition matrix and the derivative of its logarithm, by elimination of states.

States are eliminated one by one without any subtraction (Grassmann, Taksar and Heyman 1985), so that every entry has
full relative accuracy, however rare its state.  ``model.stationary`` has the formulas.
"""

from rarehmm.engine.dispatch import inner, kernel


@inner
def eliminate(transition, left, distribution):
    """Stationary distribution (K,) of a positive matrix; ``left`` (K, K) keeps the elimination."""
    K = len(distribution)
    for j in range(K):
        for k in range(K):
            left[j, k] = transition[j, k]
    for n in range(K - 1, 0, -1):
        leaving = 0.0
        for k in range(n):
            leaving += left[n, k]
        for j in range(n):
            left[j, n] /= leaving
            for k in range(n):
                left[j, k] += left[j, n] * left[n, k]
    total = 0.0
    for n in range(K):
        distribution[n] = 1.0 if n == 0 else 0.0
        for j in range(n):
            distribution[n] += distribution[j] * left[j, n]
        total += distribution[n]
    for n in range(K):
        distribution[n] /= total


@inner
def start_slope(transition, left, distribution, first, u, out):
    """Derivative (K, K) of sum_k first[k] log distribution[k] in the logits of the rows, after ``eliminate``.

    ``u`` (2, K) is workspace.
    """
    K = len(distribution)
    total, bound = 0.0, 0.0
    for k in range(K):
        total += first[k]
        bound += 2.0 * abs(first[k])
    for k in range(K):
        u[1, k] = first[k] / distribution[k] - total  # the right-hand side, kept for the last loop
        u[0, k] = u[1, k]
    for n in range(K - 1, 0, -1):
        for j in range(n):
            u[0, j] += left[j, n] * u[0, n]
    for n in range(K):
        leaving = 0.0
        for k in range(n):
            leaving += left[n, k]
            u[0, n] += left[n, k] * u[0, k] if k > 0 else 0.0
        u[0, n] = u[0, n] / leaving if n > 0 else 0.0
    for j in range(K):
        for k in range(K):
            value = distribution[j] * transition[j, k] * (u[0, k] - u[0, j] + u[1, j])
            out[j, k] = max(-bound, min(bound, value))


@kernel
def stationary_distributions(transition, left, out):
    """Stationary distributions (n, K) of irreducible matrices (n, K, K); ``left`` (K, K) is workspace."""
    for n in range(len(out)):
        eliminate(transition[n], left, out[n])


@kernel
def start_slopes(transition, first, left, distribution, u, out):
    """``start_slope`` of one irreducible matrix (K, K) for first (K,), with workspaces (K, K), (K,) and (2, K)."""
    eliminate(transition, left, distribution)
    start_slope(transition, left, distribution, first, u, out)
