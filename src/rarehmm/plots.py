"""Pictures."""

from typing import TYPE_CHECKING, Any

import numpy as np

from rarehmm.series import Array, BoolArray, IntArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rarehmm.selection import Selection

COLOURS = ("#4477AA", "#228833", "#EE6677", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")  # safe for colour-blind readers
STRETCH = 5000  # steps on both sides of an event that are drawn


def regimes(y: Array, path: IntArray, probability: Array, rare: int, title: str) -> "Figure":
    """A stretch of the series with its states, and the longest visit to the rare one with its probability underneath.

    ``y`` (T,), ``path`` (T,) states, ``probability`` (T,) of the state ``rare`` given everything.
    """
    from matplotlib.figure import Figure

    begin, end = longest_visit(path == rare)
    stretch = np.arange(max(0, begin - STRETCH), min(len(y), end + STRETCH))
    visit = np.arange(max(0, begin - 25), min(len(y), end + 25))
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1.6, 1), height_ratios=(2, 1))
    left, near, below = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
    names = [f"state {k}" + (" (rare)" if k == rare else "") for k in range(int(path.max()) + 1)]
    _scatter(left, stretch, y, path, rare, names)
    left.set(title=title, xlabel="time", ylabel="observation")
    left.legend(loc="upper left", markerscale=2)
    _scatter(near, visit, y, path, rare, names)
    near.plot(visit, y[visit], color="0.7", lw=0.8, zorder=0)
    near.set(title="one rare event", ylabel="observation", xticklabels=[])
    below.fill_between(visit, probability[visit], step="mid", color=COLOURS[2], alpha=0.35)
    below.step(visit, probability[visit], where="mid", color=COLOURS[2])
    below.set(ylim=(-0.03, 1.03), xlabel="time", ylabel="P(rare | all)")
    for axis in (left, near, below):
        axis.spines[["top", "right"]].set_visible(False)
    for axis in (left, below):
        axis.ticklabel_format(axis="x", useOffset=False, style="plain")
        axis.locator_params(axis="x", nbins=4)
    return figure


def selection(found: "Selection") -> "Figure":
    """Held-out log density and BIC by number of states, both above the chosen one."""
    from matplotlib.figure import Figure

    numbers = [c.n_states for c in found.candidates]
    best = found.of(found.best)
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    apart = np.array([c.blocks - best.blocks for c in found.candidates])  # (candidates, blocks)
    left.errorbar(
        numbers,
        apart.sum(1),
        yerr=apart.std(1, ddof=1) * np.sqrt(apart.shape[1]),
        fmt="o-",
        color=COLOURS[0],
        capsize=3,
    )
    left.set(title="held-out observations", ylabel="log density above the chosen")
    middle.plot(numbers, [c.surprising - best.surprising for c in found.candidates], "o-", color=COLOURS[2])
    middle.set(title="the most surprising 1 %", ylabel="mean log density above the chosen")
    right.plot(numbers, [c.bic - best.bic for c in found.candidates], "o-", color=COLOURS[1])
    right.set(title="BIC (lower is better)", ylabel="BIC above the chosen")
    for axis in (left, middle, right):
        axis.axvline(found.best, color="0.8", lw=6, zorder=0)
        axis.axhline(0, color="0.6", lw=0.8, zorder=0)
        axis.set(xlabel="states", xticks=numbers)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in (left, right):
        axis.set_yscale("symlog", linthresh=10)
    return figure


def _scatter(axis: Any, where: IntArray, y: Array, path: IntArray, rare: int, names: list[str]) -> None:
    others = [c for c in COLOURS if c != COLOURS[2]]
    for k, name in enumerate(names):
        mine = where[path[where] == k]
        colour, size = (COLOURS[2], 16) if k == rare else (others[k % len(others)], 4)
        axis.scatter(mine, y[mine], s=size, color=colour, label=name, linewidths=0, zorder=2 + (k == rare))


def longest_visit(inside: BoolArray) -> tuple[int, int]:
    """Where the longest run of True values begins and ends; (0, 1) if there is none."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]])))
    starts, ends = edges[::2], edges[1::2]
    if len(starts) == 0:
        return 0, 1
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest])
