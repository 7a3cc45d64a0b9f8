"""Expectations of each window by itself: each lane is a window, read with its buffers."""

from rarehmm.engine.dispatch import kernel
from rarehmm.engine.kernels.full_pass import gather_blocks, load_messages
from rarehmm.engine.kernels.messages import backward, forward, smooth
from rarehmm.engine.lanes import LANES, splat, store


@kernel
def window_pass(family, point, left, right, buffer, length, y, layout, g, sums, scores, pairs, counts, first, parts):
    """Expectations of each of the n windows of a chunk.

    Expected scores (n, K, P), transitions ``pairs`` (n, K, K), ``counts`` and ``first`` states (n, K), and statistics
    ``parts`` (n, K, Q).  Messages start from ``left`` (n, K) at the left end of the buffer and from ``right`` (n, K) at
    the right end.
    """
    K, P = scores.shape[1:]
    Q = parts.shape[2]
    last = buffer + length
    n = last + buffer
    for low in range(0, len(layout.first), LANES):
        shortest = gather_blocks(y, layout, low, buffer, n, g)
        load_messages(left, low, g.a, 0)
        load_messages(right, low, g.b, 0)
        for k in range(K):
            store(sums.counts, (k,), splat(0.0))
            store(sums.first, (k,), splat(0.0))
            for i in range(P):
                store(sums.scores, (k, i), splat(0.0))
            for i in range(Q):
                store(sums.statistics, (k, i), splat(0.0))
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
                for i in range(Q):
                    parts[low + w, k, i] = sums.statistics[k, i, w]
                for j in range(K):
                    pairs[low + w, k, j] = sums.pairs[k, j, w] * point.transition[k, j]
