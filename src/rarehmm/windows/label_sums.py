"""Sums over each window as if labels were the true states: the input of the paper's designs."""

import numpy as np

from rarehmm.common.arrays import IntArray
from rarehmm.data.series import Series
from rarehmm.engine.contracts.family import columns, prepare, score
from rarehmm.model.checks import check_labels
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.search.labels import all_rows
from rarehmm.windows.gradients import WindowSums
from rarehmm.windows.windows import Windows


def label_sums(model: Model, parameters: Parameters, series: Series, windows: Windows, labels: IntArray) -> WindowSums:
    """Scores, transitions and counts of each window at given parameters, as if labels (T,) were the true states."""
    K, P, N = model.n_states, len(model.family.parameters), windows.count
    x, window = check_labels(labels, len(series), K), windows.of_each()
    y, seen = all_rows(series)
    scores, counts = np.zeros((N, K, P)), np.zeros((N, K))
    for k in range(K):
        mine = seen & (x == k)
        value = y[mine, 0] if columns(model.family) == 1 else tuple(y[mine].T)
        slopes = score(model.family, value, prepare(model.family, parameters.phi[k]))
        counts[:, k] = np.bincount(window[mine], minlength=N)
        for i in range(P):
            scores[:, k, i] = np.bincount(window[mine], weights=np.broadcast_to(slopes[i], mine.sum()), minlength=N)
    inside = np.ones(len(x), dtype=bool)
    inside[series.bounds[:-1]] = False
    pair = (window[1:] * K + x[:-1]) * K + x[1:]
    pairs = np.bincount(pair[inside[1:]], minlength=N * K * K).reshape(N, K, K).astype(float)
    first = np.zeros((N, K))
    begin = series.bounds[:-1]
    first[window[begin], x[begin]] = 1.0
    return WindowSums(scores, pairs, counts, first, np.zeros((N, K, 0)))
