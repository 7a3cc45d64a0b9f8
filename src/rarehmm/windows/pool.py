"""Pool: windows drawn from a design and gathered in lane order, for many steps of a chain at once.

The windows do not depend on the position of the chain.  They are therefore drawn in advance and gathered in one pass
over the parts of the series that contain them: the chain needs only the memory of its pool and never reads the series.
"""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.engine.contracts.design import Design, check_positive
from rarehmm.engine.kernels.pool import Gathered, Places, choose, collect
from rarehmm.engine.lanes import LANES, lane_array
from rarehmm.exact.block_sample import Observations
from rarehmm.exact.blocks import CHUNK
from rarehmm.model.model import Model
from rarehmm.windows.gradients import Frozen, check_frozen, check_windows
from rarehmm.windows.windows import Windows

SPARSE = 4  # windows per entry of the guide table
MEMORY = 32 << 20  # bytes; large enough that the cost of a refill per window is small


def unique_rows(rows: Array) -> tuple[Array, IntArray]:
    """Distinct rows among ``rows`` (n, N), and the index of each row among them; this saves memory and cache misses."""
    kept: list[Array] = []
    index = []
    for row in rows:
        matches = (i for i, other in enumerate(kept) if np.array_equal(row, other))
        index.append(next(matches, len(kept)))
        if index[-1] == len(kept):
            kept.append(row)
    return np.array(kept), np.array(index)


def check_parts(
    model: Model,
    series: Observations,
    windows: Windows,
    design: Design,
    separate: bool | None,
    frozen: Frozen | None,
) -> None:
    """Raise an error if the parts of a pool do not belong together."""
    check_windows(model, series)
    if not isinstance(windows, Windows) or not np.array_equal(windows.bounds, series.bounds):
        raise ValueError(
            "the windows belong to another series; create them from this one: Windows(series, half_width, buffer)."
        )
    check_positive(design)
    rows, N = design.probabilities.shape
    if windows.count != N:
        raise ValueError(
            f"the design has {N} windows, but the series has {windows.count}; build the design from these windows."
        )
    if rows not in (1, model.size):
        raise ValueError(
            f"the design has {rows} rows; it must have one row, or {model.size}, one per component of theta."
        )
    if rows > 1 and separate is False:
        raise ValueError(f"the design has {rows} rows; to share windows between components, use pooled(design).")
    if frozen is not None:
        if separate or rows > 1:
            raise ValueError(
                "with frozen statistics, windows are shared by all components: pass a design with one row and "
                "leave separate out."
            )
        check_frozen(frozen, model, windows)


def cumulative_probabilities(probabilities: Array) -> Array:
    """Cumulative probabilities (rows, N + 1) of windows, from 0 to 1; each window must add to them."""
    out = np.zeros((len(probabilities), probabilities.shape[1] + 1))
    np.cumsum(probabilities, axis=1, out=out[:, 1:])
    out /= out[:, -1:]
    if (lost := np.argwhere(np.diff(out, axis=1) <= 0)).size:
        i, n = lost[0]
        raise ValueError(
            f"window {n} is too improbable to be drawn ({probabilities[i, n]:g} in row {i} of the design), which "
            "biases the gradient; mix in a uniform share, such as eta=0.1."
        )
    return out


class Pool:
    """Source of randomly drawn windows for the gradient estimates of a chain.

    Parameters
    ----------
    model : Model
    series : Series or BlockSample
        The data.
    windows : Windows
        The windows of ``series``.
    design : Design
        Probabilities with which windows are drawn.
    size : int
        Number of windows S drawn at each step: in total if all components of the gradient share them, per component if
        they are separate.
    separate : bool, optional
        Whether windows are drawn separately for each component of the gradient, as in the paper.  By default, they are
        if the design has one row per component.
    frozen : Frozen, optional
        Statistics and messages at a mode, computed by ``freeze``.  Windows are gathered with them, and chains use them
        as control variates.
    memory : int
        Bytes that the windows of a chain may occupy.  This determines how many are drawn in advance, and thereby the
        draws of the chain.

    Attributes
    ----------
    capacity : int
        Number of sets of windows that are drawn together.
    """

    def __init__(
        self,
        model: Model,
        series: Observations,
        windows: Windows,
        design: Design,
        size: int,
        *,
        separate: bool | None = None,
        frozen: Frozen | None = None,
        memory: int = MEMORY,
    ) -> None:
        check_whole("size", size)
        check_whole("memory", memory)
        check_parts(model, series, windows, design, separate, frozen)
        self.model = model
        self.series, self.windows, self.size, self.frozen = series, windows, int(size), frozen
        K, none = model.n_states, np.zeros((0, 0))
        self.left, self.right = frozen.messages if frozen else np.zeros((2, 0, K))
        self.statistics = frozen.statistics if frozen else none
        self.probabilities, row = unique_rows(design.probabilities)
        self.cumulative = cumulative_probabilities(self.probabilities)
        rows, N = design.probabilities.shape
        even = np.arange(-(-N // SPARSE)) / -(-N // SPARSE)
        self.guide = np.array([np.searchsorted(c[1:], even, side="right") for c in self.cumulative], dtype=np.int32)
        sets = model.size if separate or rows > 1 else 1
        lanes = sets * self.size
        groups = -(-lanes // LANES)
        self.row = np.repeat(row if rows > 1 else np.zeros(sets, dtype=np.int64), self.size)  # of each lane
        self.owner = lane_array(groups)
        self.owner[:] = -2.0
        self.owner.reshape(-1)[:lanes] = np.repeat(model.free, self.size) if sets > 1 else -1.0
        self.owners = np.array([[group[0], group.max() + 1] for group in self.owner], dtype=np.int64)
        self.n = windows.length + 2 * windows.buffer
        each = groups * LANES * 8 * (self.n * series.n_columns + (2 * K if frozen else 0))
        self.capacity = max(1, memory // each)  # sets of windows drawn together
        stretch = N if series.in_memory else max(1, CHUNK // windows.length)
        self.stretches = [(low, min(N, low + stretch)) for low in range(0, N, stretch)]  # windows read together

    def check_model(self, model: Model) -> None:
        """Raise ValueError if the model differs from the one that the pool was made for."""
        mine, other = self.model, model
        if type(mine.family) is not type(other.family) or mine.size != other.size:
            raise ValueError(
                f"the pool was made for {mine.name} with {mine.n_states} states and {mine.size} components, not for "
                f"{other.name} with {other.n_states} and {other.size}; create a pool for this model."
            )
        for name, here in zip(mine.component_names, other.component_names, strict=True):
            if name != here:
                raise ValueError(
                    f"the pool was made for a model with component {name!r} where this one has {here!r}; create a pool "
                    "for this model (mode.model takes the largest transition probability of each row as reference)."
                )

    def allocate(self, sets: int) -> Gathered:
        """Allocate memory for ``sets`` sets of windows, at most ``capacity``."""
        m, G, W = min(sets, self.capacity), len(self.owner), self.windows
        y, one = lane_array(m, G, self.n, self.series.n_columns), lane_array
        y[:] = np.nan  # lanes without a window keep this
        shortest, fresh = np.empty((m, G), dtype=np.int64), np.empty((m, G), dtype=bool)
        begin, steps, weight = one(m, G, 1), one(m, G, 1), one(m, G, 1)
        begin[:], steps[:], weight[:] = -1.0, 0.0, 0.0
        K, C = self.left.shape[1], self.statistics.shape[1]
        left, right = (one(m if C else 0, G, K) for _ in range(2))
        left[:], right[:] = 1.0, 1.0  # lanes without a window keep this
        control = np.empty((m, C))
        return Gathered(
            y, begin, steps, weight, shortest, fresh, self.owner, self.owners, W.buffer, W.length, left, right, control
        )

    def draw(self, rng: np.random.Generator, sets: int) -> tuple[IntArray, Array]:
        """Draw windows (sets, lanes) independently, each lane from its row of the design, and compute their weights."""
        windows, weights = np.empty((sets, len(self.row)), dtype=np.int64), np.empty((sets, len(self.row)))
        choose(rng.random(windows.shape), self.row, self.cumulative, self.guide, self.size, windows, weights)
        return windows, weights

    def fill(self, rng: np.random.Generator, sets: int, gathered: Gathered) -> None:
        """Draw ``sets`` sets of windows and gather them."""
        self.gather(*self.draw(rng, sets), gathered)

    def gather(self, chosen: IntArray, weights: Array, gathered: Gathered) -> None:
        """Copy the windows ``chosen`` (sets, lanes) from the series, with their weights."""
        W = self.windows
        if len(chosen) > len(gathered.y):
            raise ValueError(
                f"got {len(chosen)} sets of windows, but memory is allocated for {len(gathered.y)}; gather at most "
                f"{self.capacity} sets at a time."
            )
        places = Places(W.before, W.first, W.last, W.origins, W.bounds[1:], W.weights)
        gathered.shortest[:], gathered.fresh[:], gathered.control[:] = W.length, False, 0.0
        for low, high in self.stretches:
            if len(self.stretches) > 1 and not ((chosen >= low) & (chosen < high)).any():
                continue
            first, last = self.rows(low, high)
            y = self.series.read(first, last)
            collect(y, first, chosen, weights, low, high, places, self.left, self.right, self.statistics, gathered)

    def rows(self, low: Any, high: Any) -> tuple[int, int]:
        """First and last row (exclusive) of the series that the windows [low, high) need, with their buffers."""
        (first, last), (_, length), _, _ = self.windows.place(np.array([low, high - 1]))
        return max(0, int(first) - self.windows.buffer), min(len(self.series), int(last + length) + self.windows.buffer)
