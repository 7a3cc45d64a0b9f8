"""Pictures: axes in and out, as ArviZ does; figures where several belong together."""

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rarehmm.engine.contracts.design import Design
    from rarehmm.posterior.posterior import Posterior
    from rarehmm.posterior.prediction import Forecast
    from rarehmm.sampling.diagnostics import Check
    from rarehmm.search.selection import Selection
    from rarehmm.windows.windows import Windows

COLOURS = ("#4477AA", "#228833", "#EE6677", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")  # safe for colour-blind readers
BINS = 2000  # of a long series: more than a screen has columns


# ---------------------------------------------------------------- parts
def new_axes(count: int = 1, size: tuple[float, float] = (9, 3), **more: Any) -> Any:
    """Axes of a figure of their own, with nothing that is not needed around them."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").subplots(count, **more)


def colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def bare(axes: "Axes") -> "Axes":
    """The same axes without the lines on top and at the right."""
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def decimated(values: Array, bins: int = BINS) -> tuple[IntArray, Array, Array]:
    """Where bins of a long series lie, and the smallest and the largest value in each; nothing that stands out is lost.

    A short series as it is.  Missing values are left out; a bin without a value is NaN.
    """
    if len(values) <= 2 * bins:
        return np.arange(len(values)), values, values
    edges = np.linspace(0, len(values), bins + 1).astype(np.int64)
    missing = np.isnan(values)
    low = np.minimum.reduceat(np.where(missing, np.inf, values), edges[:-1])
    high = np.maximum.reduceat(np.where(missing, -np.inf, values), edges[:-1])
    empty = low > high
    return edges[:-1], np.where(empty, np.nan, low), np.where(empty, np.nan, high)


# ---------------------------------------------------------------- the series
def plot_series(series: Any, probabilities: Array | None = None, *, column: int = 0, axes: Any = None) -> Any:
    """A series, and underneath the probabilities (T, K) of its states, if given; readable at any length.

    Time is that of the index, where the data have one.  Returns the axes, one or two.

    >>> axes = plot_series(np.random.default_rng(0).normal(size=100_000))
    >>> axes.figure.savefig("series.png")  # doctest: +SKIP
    """
    series = series if isinstance(series, Series) else Series(series)
    y = np.concatenate([rows[:, column] for _, rows in series.strides()])
    if axes is None:
        axes = new_axes() if probabilities is None else new_axes(2, (9, 4.5), sharex=True, height_ratios=(2, 1))
    above, below = (axes, None) if probabilities is None else axes
    at, low, high = decimated(y)
    x = positions(series, at)
    if low is high:
        above.plot(x, y, color="0.35", lw=0.7, marker="." if len(y) < 300 else None, ms=3)
    else:
        above.fill_between(x, low, high, color="0.35", lw=0.4)
    above.set(ylabel="observation" if series.names is None else series.names[column])
    bare(above)
    if probabilities is None or below is None:
        return above
    bottom = np.zeros(len(at))
    for k in range(probabilities.shape[1]):
        share = probabilities[:, k] if low is high else means(probabilities[:, k], at)
        below.fill_between(x, bottom, bottom + share, color=colour(k), lw=0, step="post", label=f"state {k}")
        bottom = bottom + share
        if low is not high and share.mean() < 0.05:  # the mean over a bin would hide it
            most = np.maximum.reduceat(probabilities[:, k], at)
            below.fill_between(x, 0, np.where(most > 0.5, most, 0.0), color=colour(k), lw=0.4, step="post", zorder=5)
    below.set(ylim=(0, 1), ylabel="probability", xlabel="time")
    below.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=probabilities.shape[1], fontsize="small", frameon=False)
    bare(below)
    return above, below


def positions(series: Series, rows: IntArray) -> Any:
    """Rows on the time axis: labels of the index if there is one for the whole, else their numbers."""
    index = series.index
    if index is None or isinstance(index, list) or index.nlevels > 1:
        return rows
    return (index.to_timestamp() if hasattr(index, "to_timestamp") else index)[rows].to_numpy()


def means(values: Array, at: IntArray) -> Array:
    """Mean over the stretches that begin at ``at``."""
    return np.asarray(np.add.reduceat(values, at) / np.diff(np.append(at, len(values))))


def plot_events(series: Any, events: Any, *, axes: Any = None) -> Any:
    """A series with its events marked, from the table of ``rare_events``."""
    series = series if isinstance(series, Series) else Series(series)
    axes = plot_series(series, axes=axes)
    for event in events.itertuples():
        start, end, peak = (on_axis(series, label, event.sequence) for label in (event.start, event.end, event.peak_at))
        axes.axvspan(start, end, color=colour(event.state), alpha=0.3, lw=0)
        axes.plot([peak], [event.peak], "v", color=colour(event.state), ms=5)
    return axes


def on_axis(series: Series, label: Any, sequence: int) -> Any:
    """Where a label of an event table lies on the time axis of ``plot_series``."""
    index = series.index
    if isinstance(index, list):  # a list of sequences: labels are those of each
        own = index[sequence]
        return int(series.offsets[sequence]) + int(label if own is None else own.get_loc(label))
    if index is not None and index.nlevels > 1:
        return int(index.get_loc(label))
    return label.to_timestamp() if hasattr(label, "to_timestamp") else label


# ---------------------------------------------------------------- the posterior
def plot_density(posterior: "Posterior", name: str | None = None, *, axes: Any = None) -> Any:
    """Posterior densities of one quantity (a parameter, "occupancy", "sojourn", "return_time"), axes a state; the bar
    underneath is the central 90 %."""
    from scipy.stats import gaussian_kde

    name = name or posterior.model.family.parameters[0].name
    values = quantity(posterior, name)
    K = values.shape[2]
    axes = np.atleast_1d(new_axes(1, (3 * K, 2.6), ncols=K) if axes is None else axes)
    for k, one in enumerate(axes):
        x = values[..., k].ravel()
        low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
        if x.std() > 0:
            first, last = np.quantile(x, [0.001, 0.999])
            grid = np.linspace(first, last, 200)
            density = gaussian_kde(x[:: max(1, len(x) // 2000)])(grid)
            one.fill_between(grid, density, color=colour(k), alpha=0.3, lw=0)
            one.plot(grid, density, color=colour(k))
        one.plot([low, high], [0, 0], color=colour(k), lw=5, solid_capstyle="butt")
        one.set(title=f"state {k}: {middle:.3g}", xlabel=name, yticks=[], ylim=(0, None))
        one.locator_params(axis="x", nbins=4)
        bare(one)
    return axes


def plot_trace(posterior: "Posterior", name: str | None = None, *, axes: Any = None) -> Any:
    """Draws of one quantity in their order, chains above each other in shades of one colour a state."""
    axes = new_axes(size=(9, 3)) if axes is None else axes
    name = name or posterior.model.family.parameters[0].name
    values = quantity(posterior, name)
    for k in range(values.shape[2]):
        for chain in values[..., k]:
            axes.plot(chain, color=colour(k), lw=0.6, alpha=0.6, label=None)
        axes.plot([], [], color=colour(k), label=f"state {k}")
    axes.set(xlabel="draw", ylabel=name)
    axes.legend(loc="upper right", fontsize="small")
    return bare(axes)


def quantity(posterior: "Posterior", name: str) -> Array:
    """Draws (chains, n, K) of something by name."""
    known = {k: v for k, v in posterior.quantities.items() if k != "transition"}
    if name not in known:
        raise ValueError(f"name is {name!r}; it must be one of {', '.join(known)}.")
    return known[name]


def plot_transitions(posterior: "Posterior", *, axes: Any = None) -> Any:
    """The transition graph: states on a circle, as large as their occupancy, arrows labelled with probabilities."""
    axes = new_axes(size=(5, 5)) if axes is None else axes
    P, occupancy = posterior.mean.transition, posterior.occupancy.mean((0, 1))
    K = len(P)
    angle = np.pi / 2 - 2 * np.pi * np.arange(K) / K
    x, y = np.cos(angle), np.sin(angle)
    for i in range(K):
        for j in range(K):
            if i != j and P[i, j] > 1e-6:
                bend = {"arrowstyle": "-|>", "connectionstyle": "arc3,rad=0.18", "color": "0.4",
                        "lw": 0.6 + 2 * P[i, j] ** 0.5, "shrinkA": 22, "shrinkB": 22}  # fmt: skip
                axes.annotate("", (x[j], y[j]), (x[i], y[i]), arrowprops=bend)
                across, length = np.array([y[j] - y[i], x[i] - x[j]]), np.hypot(x[j] - x[i], y[j] - y[i])
                middle = np.array([x[i] + x[j], y[i] + y[j]]) / 2 + (0.09 + 0.11 / length) * across
                axes.text(*middle, f"{P[i, j]:.2g}", fontsize=8, ha="center", va="center", color="0.25")
        axes.scatter(x[i], y[i], s=500 + 1500 * occupancy[i], color=colour(i), zorder=3)
        axes.text(x[i], y[i], f"{i}", color="white", ha="center", va="center", zorder=4, weight="bold")
        side = "center" if abs(x[i]) < 0.1 else "left" if x[i] > 0 else "right"
        message = f"{occupancy[i]:.2g} of the time\nstays with {P[i, i]:.3g}"
        axes.text(1.32 * x[i], 1.44 * y[i], message, fontsize=8, ha=side, va="center")
    axes.set(xlim=(-2.2, 2.2), ylim=(-1.7, 1.7), aspect="equal")
    axes.set_axis_off()
    return axes


# ---------------------------------------------------------------- is it right?
def plot_checks(checks: "list[Check]", *, axes: Any = None) -> Any:
    """Checks, of a posterior or of a fit, as a table: a mark, the name, the number and what it means."""
    axes = new_axes(size=(10, 0.4 + 0.42 * len(checks))) if axes is None else axes
    for row, c in enumerate(checks):
        mark = "#228833" if c.passed else "#CC3311"
        axes.scatter(0, row, s=70, color=mark, marker="o" if c.passed else "X", clip_on=False)
        axes.text(0.03, row, c.name, va="center", weight="normal" if c.passed else "bold")
        axes.text(0.36, row, f"{c.value:.3g}", va="center", ha="right")
        axes.text(0.38, row, fill(c.message, 88), va="center", fontsize=8, color="0.3")
    axes.set(xlim=(-0.02, 1), ylim=(len(checks) - 0.4, -0.6))
    axes.set_axis_off()
    return axes


def plot_residuals(residuals: Array, *, axes: Any = None) -> Any:
    """Pseudo-residuals (T,): in time, their quantiles beside those of a normal law, and their autocorrelation."""
    from scipy.special import ndtri

    first, second, third = new_axes(1, (11, 3), ncols=3, width_ratios=(1.6, 1, 1)) if axes is None else axes
    at, low, high = decimated(residuals)
    if low is high:
        first.plot(at, low, ".", color="0.35", ms=2)
    else:
        first.fill_between(at, low, high, color="0.35", lw=0.4)
    for line in (-3, 0, 3):
        first.axhline(line, color=COLOURS[2], lw=0.6)
    first.set(xlabel="time", ylabel="residual")
    seen = np.sort(residuals[~np.isnan(residuals)])
    chosen = np.unique(np.linspace(0, len(seen) - 1, 1000).astype(int))
    second.plot(ndtri((chosen + 0.5) / len(seen)), seen[chosen], ".", color=COLOURS[0], ms=4)
    second.axline((0, 0), slope=1, color=COLOURS[2], lw=0.8)
    second.set(xlabel="if the model is right", ylabel="residual")
    x = np.nan_to_num(residuals - seen.mean())
    together = [float((x[:-lag] * x[lag:]).sum() / (x**2).sum()) for lag in range(1, min(31, len(x)))]
    third.vlines(np.arange(1, len(together) + 1), 0, together, color=COLOURS[0], lw=3)
    third.axhspan(-2 / np.sqrt(len(seen)), 2 / np.sqrt(len(seen)), color="0.85", lw=0, zorder=0)
    third.set(xlabel="lag", ylabel="autocorrelation")
    return [bare(one) for one in (first, second, third)]


def plot_design(design: "Design", windows: "Windows", *, row: int = 0, axes: Any = None) -> Any:
    """How often windows along the series are drawn, relative to all alike; of one row of a design."""
    axes = new_axes(size=(9, 3)) if axes is None else axes
    weight = design.probabilities[row] * windows.count
    at, low, high = decimated(weight)
    x = windows.place(at)[0]
    if low is high:
        axes.vlines(x, 1, weight, color=COLOURS[0], lw=0.8)
    else:
        axes.fill_between(x, low, high, color=COLOURS[0], lw=0.5)
    axes.axhline(1, color="0.5", lw=0.8)
    axes.set(xlabel="time", ylabel="drawn, times by chance", yscale="log")
    return bare(axes)


# ---------------------------------------------------------------- what comes next
def plot_forecast(found: "Forecast", *, axes: Any = None) -> Any:
    """The probability of a rare event within so many steps, with its interval."""
    axes = new_axes(size=(6, 3)) if axes is None else axes
    steps = np.arange(1, len(found.event) + 1)
    axes.fill_between(steps, found.low, found.high, color=COLOURS[2], alpha=0.25, lw=0)
    axes.plot(steps, found.event, color=COLOURS[2])
    axes.set(xlabel="steps ahead", ylabel="P(rare event within)", ylim=(0, None))
    return bare(axes)


# ---------------------------------------------------------------- number of states
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
