"""Each window on its own: lanes are windows, read with their buffers, the sums of every window kept apart."""

from rarehmm.dispatch import kernel
from rarehmm.kernels.full_pass import fill
from rarehmm.kernels.messages import backward, forward, smooth
from rarehmm.lanes import LANES, splat, store


@kernel
def window_pass(family, point, law, buffer, length, y, layout, g, sums, scores, pairs, counts, first):
    """Expected scores (n, K, P), transitions (n, K, K), counts and first states (n, K) of the n windows of a chunk.

    Messages start from ``law`` (K,) at the left end of the buffer and from ones at the right end.
    """
    K, P = scores.shape[1:]
    last = buffer + length
    n = last + buffer
    for low in range(0, len(layout.first), LANES):
        shortest = fill(y, layout, low, buffer, n, g)
        for k in range(K):
            store(g.a, (0, k), splat(law[k]))
            store(g.b, (0, k), splat(1.0))
            store(sums.counts, (k,), splat(0.0))
            store(sums.first, (k,), splat(0.0))
            for i in range(P):
                store(sums.scores, (k, i), splat(0.0))
            for j in range(K):
                store(sums.pairs, (k, j), splat(0.0))
        forward(family, point, g, buffer, last, n, 4)
        backward(point, g, last, n, 4)
        smooth(family, point, g, buffer, last, shortest, sums, True, False)
        for w in range(min(LANES, len(layout.first) - low)):
            for k in range(K):
                counts[low + w, k] = sums.counts[k, w]
                first[low + w, k] = sums.first[k, w]
                for i in range(P):
                    scores[low + w, k, i] = sums.scores[k, i, w]
                for j in range(K):
                    pairs[low + w, k, j] = sums.pairs[k, j, w] * point.transition[k, j]
