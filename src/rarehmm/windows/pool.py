"""Pool: windows drawn from a design and gathered in lane order, for many steps of a chain at once.

Which windows are drawn does not depend on where the chain stands.  So they are drawn ahead and gathered in one pass
over those parts of the series that hold any; a chain needs the memory of its pool and never sees the series.
"""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.common.checks import check_whole
from rarehmm.engine.contracts.design import Design, check_positive
from rarehmm.engine.kernels.pool import Gathered, Places, choose, collect
from rarehmm.engine.lanes import LANES, lane_array
from rarehmm.exact.block_sample import Observations, rows_in
from rarehmm.exact.blocks import CHUNK
from rarehmm.model.model import Model
from rarehmm.windows.gradients import Frozen, check_frozen
from rarehmm.windows.windows import Windows

SPARSE = 4  # windows for each entry of the guide
MEMORY = 32 << 20  # bytes: enough that a refill costs little a window


def distinct(rows: Array) -> tuple[Array, IntArray]:
    """The different ones among rows (n, N), and which of them each row is: less memory to jump about in."""
    kept: list[Array] = []
    index = []
    for row in rows:
        known = (i for i, other in enumerate(kept) if np.array_equal(row, other))
        index.append(next(known, len(kept)))
        if index[-1] == len(kept):
            kept.append(row)
    return np.array(kept), np.array(index)


class Pool:
    """Where the windows of a chain come from.

    Parameters
    ----------
    size
        S, windows drawn at each step: in all where they are shared, for each of the d components where they are not.
    separate
        Whether each component of the gradient has windows of its own (the paper's way) or all share them.  By default
        separate if the design has a row for each component.
    frozen
        Statistics and messages at a mode (``freeze``): windows are gathered with them, and chains use them as control
        variates.
    memory
        Bytes that the windows of a chain may take; what is drawn ahead, hence the draws, depend on it.
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
        model.check(rows_in(series))
        if not isinstance(windows, Windows) or not np.array_equal(windows.bounds, series.bounds):
            raise ValueError("the windows are those of another series; make them from this one: Windows(series, L, B).")
        check_positive(design)
        rows, N = design.probabilities.shape
        if windows.count != N:
            raise ValueError(f"the design has {N} windows and the series {windows.count}; make it from these windows.")
        if rows not in (1, model.size):
            raise ValueError(f"the design has {rows} rows; one is needed, or {model.size}, one for each component.")
        if rows > 1 and separate is False:
            raise ValueError(f"the design has {rows} rows; to share windows among components, use pooled(design).")
        if frozen is not None:
            if separate or rows > 1:
                raise ValueError("with frozen statistics windows are shared by all components: use one row.")
            check_frozen(frozen, model, windows)
        self.model = model
        self.series, self.windows, self.size, self.frozen = series, windows, int(size), frozen
        K, none = model.n_states, np.zeros((0, 0))
        self.left, self.right = frozen.messages if frozen else np.zeros((2, 0, K))
        self.statistics = frozen.statistics if frozen else none
        self.probabilities, row = distinct(design.probabilities)
        self.cumulative = np.zeros((len(self.probabilities), N + 1))
        np.cumsum(self.probabilities, axis=1, out=self.cumulative[:, 1:])
        self.cumulative /= self.cumulative[:, -1:]
        if (lost := np.argwhere(np.diff(self.cumulative, axis=1) <= 0)).size:
            i, n = lost[0]
            raise ValueError(
                f"window {n} is too improbable to be drawn ({self.probabilities[i, n]:g} in row {i} of the design), "
                "which biases the gradient; mix with a uniform share, such as eta=0.1."
            )
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
        self.ahead = max(1, memory // each)  # sets of windows drawn together
        stretch = N if series.in_memory else max(1, CHUNK // windows.length)
        self.stretches = [(low, min(N, low + stretch)) for low in range(0, N, stretch)]  # windows read together

    def check_model(self, model: Model) -> None:
        """Refuse another model than the one the pool was made for."""
        mine, other = self.model, model
        if type(mine.family) is not type(other.family) or mine.size != other.size:
            raise ValueError(
                f"the pool was made for {mine.name} with {mine.n_states} states and {mine.size} components, not for "
                f"{other.name} with {other.n_states} and {other.size}; make a pool of this model."
            )
        for name, here in zip(mine.component_names, other.component_names, strict=True):
            if name != here:
                raise ValueError(
                    f"the pool was made for a model with the component {name!r} where this one has {here!r}; make a "
                    "pool of this model (that of a mode refers to the largest entry of each row)."
                )

    def room(self, sets: int) -> Gathered:
        """Memory for so many sets of windows, at most ``ahead``."""
        m, G, W = min(sets, self.ahead), len(self.owner), self.windows
        y, one = lane_array(m, G, self.n, self.series.n_columns), lane_array
        y[:] = np.nan  # lanes without a window stay so
        shortest, fresh = np.empty((m, G), dtype=np.int64), np.empty((m, G), dtype=bool)
        begin, steps, weight = one(m, G, 1), one(m, G, 1), one(m, G, 1)
        begin[:], steps[:], weight[:] = -1.0, 0.0, 0.0
        K, C = self.left.shape[1], self.statistics.shape[1]
        left, right = (one(m if C else 0, G, K) for _ in range(2))
        left[:], right[:] = 1.0, 1.0  # lanes without a window stay so
        control = np.empty((m, C))
        return Gathered(
            y, begin, steps, weight, shortest, fresh, self.owner, self.owners, W.buffer, W.length, left, right, control
        )

    def draw(self, rng: np.random.Generator, sets: int) -> tuple[IntArray, Array]:
        """Windows (sets, lanes), independently from the row of the design that each lane has, and their weights."""
        windows, weights = np.empty((sets, len(self.row)), dtype=np.int64), np.empty((sets, len(self.row)))
        choose(rng.random(windows.shape), self.row, self.cumulative, self.guide, self.size, windows, weights)
        return windows, weights

    def fill(self, rng: np.random.Generator, sets: int, room: Gathered) -> None:
        """Draw so many sets of windows and gather them."""
        self.gather(*self.draw(rng, sets), room)

    def gather(self, drawn: IntArray, weights: Array, room: Gathered) -> None:
        """Copy given windows (sets, lanes) from the series, with their weights."""
        W = self.windows
        if len(drawn) > len(room.y):
            raise ValueError(f"{len(drawn)} sets of windows are given and there is room for {len(room.y)}; see ahead.")
        places = Places(W.before, W.first, W.last, W.origins, W.bounds[1:], W.weights)
        room.shortest[:], room.fresh[:], room.control[:] = W.length, False, 0.0
        for low, high in self.stretches:
            if len(self.stretches) > 1 and not ((drawn >= low) & (drawn < high)).any():
                continue
            first, last = self.rows(low, high)
            y = self.series.read(first, last)
            collect(y, first, drawn, weights, low, high, places, self.left, self.right, self.statistics, room)

    def rows(self, low: Any, high: Any) -> tuple[int, int]:
        """Rows of the series that the windows [low, high) need with their buffers."""
        (first, last), (_, length), _, _ = self.windows.place(np.array([low, high - 1]))
        return max(0, int(first) - self.windows.buffer), min(len(self.series), int(last + length) + self.windows.buffer)
