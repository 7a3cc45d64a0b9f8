"""Windows: where subsequences and their buffers lie.  Index arithmetic, no data.

Windows n = 0, ..., N - 1 cover ``W = 2 L + 1`` observations each (L the half-width), one after the other; the last one
of a sequence may be shorter.  A window is read with B observations of buffer on each side, cut at the ends of its
sequence.
"""

import math

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.data.series import Series
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.model.stationary import check_transition


class Windows:
    """The windows of a series, by half-width L and buffer B.

    Attributes: ``length`` W = 2 L + 1, ``count`` N.
    """

    def __init__(self, series: Observations, half_width: int, buffer: int) -> None:
        if not isinstance(rows_in(series), Series):
            raise TypeError(f"a Series is needed, not a {type(series).__name__}; wrap the data: rarehmm.Series(y).")
        check_whole("half_width", half_width)
        check_whole("buffer", buffer)
        self.half_width, self.buffer, self.length = int(half_width), int(buffer), 2 * int(half_width) + 1
        self.bounds, self.origins = series.bounds, series.origins
        self.first: IntArray
        self.last: IntArray
        self.first, self.last = series.cores
        longest = int((self.last - self.first).max())
        if self.length > longest:
            raise ValueError(
                f"a window of half-width {half_width} has {self.length} observations and the longest sequence "
                f"{longest}; use a half-width of at most {(longest - 1) // 2}."
            )
        self.weights = series.weights
        per_sequence = -(-(self.last - self.first) // self.length)
        self.before = np.concatenate([[0], np.cumsum(per_sequence)])  # windows before each sequence
        self.count = int(self.before[-1])

    def place(self, n: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """First observation and length of windows ``n``, begin and end of their sequences."""
        sequence = self.sequence(n)
        first = self.first[sequence] + (n - self.before[sequence]) * self.length
        length = np.minimum(self.length, self.last[sequence] - first)
        return first, length, self.origins[sequence], self.bounds[sequence + 1]

    def sequence(self, n: IntArray) -> IntArray:
        """The sequences in which windows ``n`` lie."""
        return np.asarray(np.searchsorted(self.before, n, side="right") - 1)

    def of_each(self) -> IntArray:
        """The window (T,) in which each observation lies."""
        _, length, _, _ = self.place(np.arange(self.count))
        return np.repeat(np.arange(self.count), length)


def suggested_buffer(transition: Array, accuracy: float = 0.05) -> int:
    r"""Steps after which the chain has forgotten where it was, up to ``accuracy`` (the paper's section 2.2).

    The influence of the past falls as :math:`\rho^B`, :math:`\rho` the second largest modulus of the eigenvalues of
    the transition matrix.  Observations make it forget faster; so this is an upper bound where they tell states apart.
    """
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy is {accuracy}; it must lie between 0 and 1.")
    check_transition(transition)
    moduli = np.sort(np.abs(np.linalg.eigvals(transition)))[::-1]
    rho = float(moduli[1]) if len(moduli) > 1 else 0.0
    if rho < accuracy:
        return 1
    if rho >= 1 - 1e-9:
        raise ValueError(
            "the transition matrix never forgets its past (second eigenvalue 1): no buffer is long enough."
        )
    return max(1, math.ceil(math.log(accuracy) / math.log(rho)))
