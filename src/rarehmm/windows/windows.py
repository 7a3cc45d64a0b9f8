"""Windows: index arithmetic for subsequences and their buffers, without any data.

Adjacent windows n = 0, ..., N - 1 cover ``W = 2 L + 1`` observations each, where L is the half-width; the last one of
a sequence may be shorter.  A window is read with a buffer of B observations on each side, truncated at the ends of
its sequence.
"""

import math

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.data.series import Series
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.model.stationary import check_stochastic


class Windows:
    """Division of a series into consecutive windows with buffers.

    Parameters
    ----------
    series : Series or BlockSample
        The series to divide.
    half_width : int
        Half-width L; a window covers 2 L + 1 observations.
    buffer : int
        Observations B that are read on each side of a window.

    Attributes
    ----------
    length : int
        Observations in a window, 2 L + 1.
    count : int
        Number of windows.

    Examples
    --------
    >>> from rarehmm import Series, Windows
    >>> Windows(Series([0.3, 1.2, 0.8, 0.1, 2.2, 0.4, 0.9]), half_width=1, buffer=2).count
    3
    """

    def __init__(self, series: Observations, half_width: int, buffer: int) -> None:
        if not isinstance(rows_in(series), Series):
            raise TypeError(f"expected a Series, got {type(series).__name__}; wrap the data: rarehmm.Series(y).")
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
                f"a window of half-width {half_width} covers {self.length} observations, but the longest sequence has "
                f"only {longest}; use a half-width of at most {(longest - 1) // 2}."
            )
        self.weights = series.weights
        per_sequence = -(-(self.last - self.first) // self.length)
        self.before = np.concatenate([[0], np.cumsum(per_sequence)])  # windows before each sequence
        self.count = int(self.before[-1])

    def place(self, n: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """First observation and length of windows ``n``, and beginning and end of their sequences."""
        sequence = self.sequence(n)
        first = self.first[sequence] + (n - self.before[sequence]) * self.length
        length = np.minimum(self.length, self.last[sequence] - first)
        return first, length, self.origins[sequence], self.bounds[sequence + 1]

    def sequence(self, n: IntArray) -> IntArray:
        """Index of the sequence that contains each of the windows ``n``."""
        return np.asarray(np.searchsorted(self.before, n, side="right") - 1)

    def of_each(self) -> IntArray:
        """Index (T,) of the window that contains each observation."""
        _, length, _, _ = self.place(np.arange(self.count))
        return np.repeat(np.arange(self.count), length)


def suggested_buffer(transition: Array, accuracy: float = 0.05) -> int:
    r"""Number of steps after which the chain has forgotten its past up to ``accuracy`` (section 2.2 of the paper).

    The influence of the past decays as :math:`\rho^B`, where :math:`\rho` is the second largest modulus of the
    eigenvalues of the transition matrix.  Observations that distinguish the states make it decay faster, so this is a
    conservative choice.
    """
    if not 0 < accuracy < 1:
        raise ValueError(f"accuracy is {accuracy}; it must lie between 0 and 1.")
    check_stochastic(transition)
    moduli = np.sort(np.abs(np.linalg.eigvals(transition)))[::-1]
    rho = float(moduli[1]) if len(moduli) > 1 else 0.0
    if rho < accuracy:
        return 1
    if rho >= 1 - 1e-9:
        raise ValueError(
            "the transition matrix never forgets its past (its second eigenvalue has modulus 1), so no buffer is long "
            "enough; use a matrix in which every state can be reached from every other, without a fixed period."
        )
    return max(1, math.ceil(math.log(accuracy) / math.log(rho)))
