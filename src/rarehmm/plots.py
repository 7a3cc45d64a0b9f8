"""Plots of series, posteriors, checks and forecasts, drawn on given Matplotlib axes or on a new figure."""

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.seasons import Fourier
from rarehmm.data.series import Series
from rarehmm.data.trends import Curve
from rarehmm.posterior.components import (
    Curves,
    components,
    effect_curves,
    season_curves,
    transition_curves,
    visit_lengths,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rarehmm.choosing.selection import Selection
    from rarehmm.engine.contracts.design import Design
    from rarehmm.estimator import RareHMM
    from rarehmm.posterior.model_check import ModelCheck
    from rarehmm.posterior.posterior import Posterior
    from rarehmm.posterior.prediction import Forecast
    from rarehmm.sampling.diagnostics import Check
    from rarehmm.windows.windows import Windows

COLOURS = ("#4477AA", "#228833", "#EE6677", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")  # safe for colour-blind readers
BINS = 2000  # bins of a long series: more than a screen has columns
SHOWN = 2000  # rows of which components are shown unless a user says
HOUR, DAY, WEEK, MONDAY = 3600.0, 86_400.0, 7 * 86_400.0, 4 * 86_400.0  # seconds; of the first Monday of 1970
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


# ---------------------------------------------------------------- parts
def new_axes(count: int = 1, size: tuple[float, float] = (9, 3), **more: Any) -> Any:
    """Return the axes of a new figure, which is not registered with pyplot."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained").subplots(count, **more)


def colour(k: int) -> str:
    """Return the colour of state k."""
    return COLOURS[k % len(COLOURS)]


def bare(axes: "Axes") -> "Axes":
    """Remove the top and right spines, and return the axes."""
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def decimated(values: Array, bins: int = BINS) -> tuple[IntArray, Array, Array]:
    """Return the starts of the bins of a long series, with the smallest and the largest value of each.

    Extremes survive, unlike in a subsample.  A short series is returned as it is.  Missing values are ignored; a bin
    without values is NaN.
    """
    if len(values) <= 2 * bins:
        return np.arange(len(values)), values, values
    edges = np.linspace(0, len(values), bins + 1).astype(np.int64)
    missing = np.isnan(values)
    low = np.minimum.reduceat(np.where(missing, np.inf, values), edges[:-1])
    high = np.maximum.reduceat(np.where(missing, -np.inf, values), edges[:-1])
    empty = low > high
    return edges[:-1], np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def posterior_of(given: Any) -> "Posterior":
    """Return the posterior of a fit, or what is one."""
    found: Posterior = given._fitted() if hasattr(given, "_fitted") else given
    return found


# ---------------------------------------------------------------- the series
def plot_series(series: Any, probabilities: Any = None, *, column: int = 0, axes: Any = None) -> Any:
    """Plot a series of any length, with its state probabilities below.

    Parameters
    ----------
    series : Series or array-like
        The observations; the time axis shows their index, if they have one.
    probabilities : ndarray (T, K) or fitted RareHMM, optional
        State probabilities, such as ``RareHMM.predict_proba`` returns, or the fit that returns them.
    column : int
        The column to plot.
    axes : matplotlib Axes, optional
        One, or two with ``probabilities``; by default those of a new figure.

    Returns
    -------
    matplotlib Axes
        One, or two with ``probabilities``.

    Examples
    --------
    >>> axes = plot_series(np.random.default_rng(0).normal(size=100_000))
    >>> axes.figure.savefig("series.png")  # doctest: +SKIP
    """
    series = series if isinstance(series, Series) else Series(series)
    if hasattr(probabilities, "predict_proba"):
        probabilities = probabilities.predict_proba(series)
    if isinstance(probabilities, list):
        probabilities = np.concatenate(probabilities)
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
        if low is not high and share.mean() < 0.05:  # averaging over bins would hide a rare state
            most = np.maximum.reduceat(probabilities[:, k], at)
            below.fill_between(x, 0, np.where(most > 0.5, most, 0.0), color=colour(k), lw=0.4, step="post", zorder=5)
    below.set(ylim=(0, 1), ylabel="probability", xlabel="time")
    below.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=probabilities.shape[1], fontsize="small", frameon=False)
    bare(below)
    return above, below


def positions(series: Series, rows: IntArray) -> Any:
    """Return the positions of rows on the time axis: index labels if all data share an index, else row numbers."""
    index = series.index
    if index is None or isinstance(index, list) or index.nlevels > 1:
        return rows
    return (index.to_timestamp() if hasattr(index, "to_timestamp") else index)[rows].to_numpy()


def means(values: Array, at: IntArray) -> Array:
    """Return means over the stretches that start at ``at``."""
    return np.asarray(np.add.reduceat(values, at) / np.diff(np.append(at, len(values))))


def plot_events(series: Any, events: Any, *, axes: Any = None) -> Any:
    """Plot a series with its rare events marked.

    Parameters
    ----------
    series : Series or array-like
        The observations.
    events : pandas.DataFrame or fitted RareHMM
        The events, as returned by ``RareHMM.rare_events``, or the fit that returns them.
    axes : matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    matplotlib Axes
    """
    series = series if isinstance(series, Series) else Series(series)
    if hasattr(events, "rare_events"):
        events = events.rare_events(series)
    axes = plot_series(series, axes=axes)
    for event in events.itertuples():
        start, end, peak = (on_axis(series, label, event.sequence) for label in (event.start, event.end, event.peak_at))
        axes.axvspan(start, end, color=colour(event.state), alpha=0.3, lw=0)
        axes.plot([peak], [event.peak], "v", color=colour(event.state), ms=5)
    return axes


def on_axis(series: Series, label: Any, sequence: int) -> Any:
    """Return the position of a label of an event table on the time axis of ``plot_series``."""
    index = series.index
    if isinstance(index, list):  # a list of sequences, each with its own labels
        labels = index[sequence]
        return int(series.offsets[sequence]) + int(label if labels is None else labels.get_loc(label))
    if index is not None and index.nlevels > 1:
        return int(index.get_loc(label))
    return label.to_timestamp() if hasattr(label, "to_timestamp") else label


# ---------------------------------------------------------------- the posterior
def plot_density(posterior: "Posterior | RareHMM", name: str | None = None, *, axes: Any = None) -> Any:
    """Plot the posterior density of a quantity in each state, with a bar for the central 90 % interval.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior.
    name : str, optional
        An emission parameter, "occupancy", "sojourn" or "return_time"; by default the first emission parameter.
    axes : array of matplotlib Axes, optional
        One per state; by default those of a new figure.

    Returns
    -------
    array of matplotlib Axes
        One per state.
    """
    posterior = posterior_of(posterior)
    from scipy.stats import gaussian_kde

    name = name or posterior.model.family.parameters[0].name
    values = quantity(posterior, name)
    K = values.shape[2]
    axes = np.atleast_1d(new_axes(1, (3 * K, 2.6), ncols=K) if axes is None else axes)
    for k, axis in enumerate(axes):
        x = values[..., k].ravel()
        low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
        if x.std() > 0:
            first, last = np.quantile(x, [0.001, 0.999])
            grid = np.linspace(first, last, 200)
            density = gaussian_kde(x[:: max(1, len(x) // 2000)])(grid)
            axis.fill_between(grid, density, color=colour(k), alpha=0.3, lw=0)
            axis.plot(grid, density, color=colour(k))
        axis.plot([low, high], [0, 0], color=colour(k), lw=5, solid_capstyle="butt")
        axis.set(title=f"state {k}: {middle:.3g}", xlabel=name.replace("_", " "), yticks=[], ylim=(0, None))
        axis.locator_params(axis="x", nbins=4)
        bare(axis)
    return axes


def plot_trace(posterior: "Posterior | RareHMM", name: str | None = None, *, axes: Any = None) -> Any:
    """Plot the trace of a quantity: its draws in order, with all chains of a state in one colour.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior.
    name : str, optional
        An emission parameter, "occupancy", "sojourn" or "return_time"; by default the first emission parameter.
    axes : matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    matplotlib Axes
    """
    posterior = posterior_of(posterior)
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
    """Return the draws (chains, n, K) of a quantity by name."""
    known = {k: v for k, v in posterior.quantities.items() if posterior.dims[k] == ["state"]}
    if name not in known:
        raise ValueError(f"name is {name!r}; it must be one of {', '.join(known)}.")
    return known[name]


def plot_transitions(posterior: "Posterior | RareHMM", *, axes: Any = None) -> Any:
    """Plot the transition graph: states sized by occupancy, arrows labelled with transition probabilities.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior, whose mean is shown.
    axes : matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    matplotlib Axes
    """
    posterior = posterior_of(posterior)
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
        label = f"occupancy {occupancy[i]:.2g}\nP(stay) = {P[i, i]:.3g}"
        axes.text(1.32 * x[i], 1.44 * y[i], label, fontsize=8, ha=side, va="center")
    axes.set(xlim=(-2.2, 2.2), ylim=(-1.7, 1.7), aspect="equal")
    axes.set_axis_off()
    return axes


def draw_band(axes: "Axes", x: Any, values: Array, probability: float, color: str, label: str | None = None) -> None:
    """Draw the median of curves (Z, n) with their central intervals."""
    tail = (1 - probability) / 2
    low, middle, high = np.quantile(values, [tail, 0.5, 1 - tail], axis=0)
    axes.fill_between(x, low, high, color=color, alpha=0.25, lw=0)
    axes.plot(x, middle, color=color, lw=1, label=label)


def plot_components(
    posterior: "Posterior | RareHMM",
    series: Any,
    *,
    first: int = 0,
    last: int | None = None,
    column: int = 0,
    probability: float = 0.9,
    axes: Any = None,
) -> Any:
    """Plot a series with the fit of its model, and below it what the fit consists of: level, season, trend, inputs.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior.
    series : Series or array-like
        The observations, with their inputs.
    first, last : int
        The rows to show, by default up to 2000 from the first on.
    column : int
        The column of the observations.
    probability : float
        Probability of the intervals.
    axes : sequence of matplotlib Axes, optional
        One for the series, one for the level and one for each input; by default those of a new figure.

    Returns
    -------
    array of matplotlib Axes
        What inputs add is on the logarithmic scale if this is where they act, as it is for counts.
    """
    posterior = posterior_of(posterior)
    series = series if isinstance(series, Series) else Series(series)
    last = min(first + SHOWN, len(series)) if last is None else min(last, len(series))
    if not 0 <= first < last:
        raise ValueError(f"first is {first} and last is {last}; they must be rows of the series, in order.")
    found = components(posterior, series, first, last, column)
    if axes is None:
        axes = new_axes(len(found), (9, 1.2 + 1.3 * len(found)), sharex=True)
    axes, x, y = np.atleast_1d(axes), positions(series, np.arange(first, last)), series.read(first, last)[:, column]
    on_log = acts_on_log(posterior, column)
    axes[0].plot(x, y, color="0.6", lw=0.7)
    fit = np.exp(found[0].values) if on_log else found[0].values
    draw_band(axes[0], x, fit, probability, COLOURS[2])
    axes[0].set(ylabel="observation" if series.names is None else series.names[column])
    for axis, one in zip(axes[1:], found[1:], strict=True):
        draw_band(axis, x, one.values, probability, COLOURS[0])
        axis.set(ylabel=f"log {one.title}" if on_log and one.title == "level" else one.title)
    for axis in axes:
        bare(axis)
    axes[-1].set(xlabel="time")
    return axes


def acts_on_log(posterior: "Posterior", column: int) -> bool:
    """Return whether inputs act on the logarithm of the level of a column."""
    moves = posterior.model.every_effect.moves
    return bool(moves.logs[np.flatnonzero(moves.column == column)[:1]].any())


def plot_season(
    posterior: "Posterior | RareHMM", *, column: int = 0, probability: float = 0.9, axes: Any = None
) -> Any:
    """Plot what each season adds over its period, with intervals.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior of a model with seasons.
    column : int
        The column of the observations.
    probability : float
        Probability of the intervals.
    axes : sequence of matplotlib Axes, optional
        One for each season; by default those of a new figure.

    Returns
    -------
    array of matplotlib Axes
        With a curve for each state where seasons differ between states.
    """
    posterior = posterior_of(posterior)
    return draw_effects(posterior, season_curves(posterior, column), column, probability, axes)


def plot_effects(
    posterior: "Posterior | RareHMM", *, column: int = 0, probability: float = 0.9, axes: Any = None
) -> Any:
    """Plot what each season, trend and input of the observations adds over its range, with intervals.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior of a model with any of these.
    column : int
        The column of the observations.
    probability : float
        Probability of the intervals.
    axes : sequence of matplotlib Axes, optional
        One for each season, trend and input; by default those of a new figure.

    Returns
    -------
    array of matplotlib Axes
        With a curve for each state where an effect differs between states.
    """
    posterior = posterior_of(posterior)
    found = effect_curves(posterior, column)
    if not found:
        raise ValueError("observations have no season, trend or inputs; fit with season=, trend= or exog=.")
    return draw_effects(posterior, found, column, probability, axes)


def draw_effects(posterior: "Posterior", found: list[Curves], column: int, probability: float, axes: Any) -> Any:
    """Draw curves of what seasons, trends and inputs add."""
    axes = np.atleast_1d(new_axes(1, (5 * len(found), 3), ncols=len(found)) if axes is None else axes)
    for axis, one in zip(axes, found, strict=True):
        K = one.values.shape[2]
        x, order = set_range(axis, one, has_times(posterior))
        for k in range(K):
            draw_band(axis, x, one.values[:, order, k], probability, colour(k), f"state {k}" if K > 1 else None)
        axis.axhline(0, color="0.8", lw=0.8, zorder=0)
        axis.set(title=one.title, ylabel=f"added to the {'log ' if acts_on_log(posterior, column) else ''}level")
        if K > 1:
            axis.legend(fontsize="small", frameon=False)
        bare(axis)
    return axes


def has_times(posterior: "Posterior") -> bool:
    """Return whether seasons and trends of a model follow times, and not row numbers."""
    effects = posterior.model.every_effect
    given = (effects.location, effects.switching, effects.scale, effects.slopes)
    return any(inputs.has_times for inputs in given if inputs is not None)


def set_range(axis: "Axes", curve: Curves, in_time: bool) -> tuple[Array, IntArray]:
    """Label the axis of an input; return the positions on it of the points of a curve, and the order of these."""
    x, order = curve.x, np.arange(len(curve.x))
    if isinstance(curve.source, Curve):
        axis.set(xlabel="day" if in_time else "row")
        return x, order
    if not isinstance(curve.source, Fourier):
        axis.set(xlabel=curve.title)
        return x, order
    period = curve.source.period
    if not in_time:
        axis.set(xlabel="step")
        return x, order
    if period == WEEK:
        order = np.argsort((x - MONDAY) % WEEK, kind="stable")
        axis.set(xticks=np.arange(7) + 0.5, xticklabels=WEEKDAYS)
        axis.tick_params(axis="x", length=0)
        return ((x - MONDAY) % WEEK / DAY)[order], order
    unit, name = (HOUR, "hour") if period <= 2 * DAY else (DAY, "day")
    if period == DAY:
        axis.set(xticks=np.arange(0, 25, 4))
    axis.set(xlabel="hour of the day" if period == DAY else f"{name} of the period")
    return x / unit, order


def plot_transition_effects(
    posterior: "Posterior | RareHMM", name: str | None = None, *, probability: float = 0.9, axes: Any = None
) -> Any:
    """Plot how the probability of each transition depends on one input, with all others at their means.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior of a model whose transitions have inputs.
    name : str, optional
        The input: a column, "season 1D" or "trend"; by default the first.
    probability : float
        Probability of the intervals.
    axes : array of matplotlib Axes, optional
        One for each state that is left; by default those of a new figure.

    Returns
    -------
    array of matplotlib Axes
        With a curve for each state that is entered.
    """
    posterior = posterior_of(posterior)
    found = {one.title: one for one in transition_curves(posterior)}
    if name is not None and name not in found:
        raise ValueError(f"name is {name!r}; it must be one of {', '.join(map(repr, found))}.")
    one = found[name or next(iter(found))]
    K = posterior.model.n_states
    axes = np.atleast_1d(new_axes(1, (3.4 * K, 3), ncols=K) if axes is None else axes)
    for k, axis in enumerate(axes):
        x, order = set_range(axis, one, has_times(posterior))
        for to in range(K):
            if to != k:
                draw_band(axis, x, one.values[:, order, k, to], probability, colour(to), f"to state {to}")
        axis.set(title=f"from state {k}", ylim=(0, None), ylabel="probability" if k == 0 else None)
        axis.legend(fontsize="small", frameon=False)
        bare(axis)
    return axes


def plot_sojourns(
    posterior: "Posterior | RareHMM", *, longest: int | None = None, probability: float = 0.9, axes: Any = None
) -> Any:
    """Plot the distribution of the length of a visit to each state, with intervals.

    Parameters
    ----------
    posterior : Posterior or fitted RareHMM
        The posterior.
    longest : int, optional
        The longest visit to show.
    probability : float
        Probability of the intervals.
    axes : matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    matplotlib Axes
        If transitions have inputs, with these at their means.
    """
    posterior = posterior_of(posterior)
    found = visit_lengths(posterior, longest)
    axes = new_axes(size=(6, 3)) if axes is None else axes
    for k in range(posterior.model.n_states):
        draw_band(axes, found.x, found.values[..., k], probability, colour(k), f"state {k}")
    axes.set(xscale="log", xlabel="length of a visit (observations)", ylabel="probability", ylim=(0, None))
    axes.legend(fontsize="small", frameon=False)
    return bare(axes)


# ---------------------------------------------------------------- diagnostics
def plot_checks(checks: "list[Check] | RareHMM", *, axes: Any = None) -> Any:
    """Plot checks as a table: whether each passed, its name, its value and its meaning.

    Parameters
    ----------
    checks : list of Check or fitted RareHMM
        Such as ``Posterior.checks``, or the ``checks`` of ``RareHMM.check``; of a fit, those of its posterior and of
        its model.
    axes : matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    matplotlib Axes
    """
    if not isinstance(checks, list):
        checks = [*posterior_of(checks).checks, *checks.model_check_.checks]
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


def plot_residuals(residuals: "Array | ModelCheck | RareHMM", *, column: int = 0, axes: Any = None) -> Any:
    """Plot pseudo-residuals: over time, against normal quantiles, and their autocorrelation.

    Parameters
    ----------
    residuals : ndarray (T,) or (T, D), ModelCheck or fitted RareHMM
        Pseudo-residuals, such as those of what ``RareHMM.check`` returns; of a fit, those of ``model_check_``.
    column : int
        The column to plot.
    axes : sequence of three matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    list of three matplotlib Axes
    """
    from scipy.special import ndtri

    found: Any = getattr(residuals, "model_check_", residuals)
    if hasattr(found, "checks"):
        if found.residuals is None:
            raise ValueError("the check has no residuals; plot those of hmm.check(y).")
        found = found.residuals
    residuals = np.asarray(found).reshape(len(found), -1)[:, column]
    first, second, third = new_axes(1, (11, 3), ncols=3, width_ratios=(1.6, 1, 1)) if axes is None else axes
    at, low, high = decimated(residuals)
    if low is high:
        first.plot(at, low, ".", color="0.35", ms=2)
    else:
        first.fill_between(at, low, high, color="0.35", lw=0.4)
    for line in (-3, 0, 3):
        first.axhline(line, color=COLOURS[2], lw=0.6)
    first.set(xlabel="time", ylabel="residual")
    observed = np.sort(residuals[~np.isnan(residuals)])
    shown = np.unique(np.linspace(0, len(observed) - 1, 1000).astype(int))
    second.plot(ndtri((shown + 0.5) / len(observed)), observed[shown], ".", color=COLOURS[0], ms=4)
    second.axline((0, 0), slope=1, color=COLOURS[2], lw=0.8)
    second.set(xlabel="normal quantile", ylabel="residual")
    x = np.nan_to_num(residuals - observed.mean())
    correlations = [float((x[:-lag] * x[lag:]).sum() / (x**2).sum()) for lag in range(1, min(31, len(x)))]
    third.vlines(np.arange(1, len(correlations) + 1), 0, correlations, color=COLOURS[0], lw=3)
    third.axhspan(-2 / np.sqrt(len(observed)), 2 / np.sqrt(len(observed)), color="0.85", lw=0, zorder=0)
    third.set(xlabel="lag", ylabel="autocorrelation")
    return [bare(axis) for axis in (first, second, third)]


def plot_design(design: "Design", windows: "Windows", *, row: int = 0, axes: Any = None) -> Any:
    """Plot how often each window along the series is drawn, relative to uniform sampling.

    Parameters
    ----------
    design : Design
        Sampling probabilities of the windows.
    windows : Windows
        The windows.
    row : int
        The row of the design to plot.
    axes : matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    matplotlib Axes
    """
    axes = new_axes(size=(9, 3)) if axes is None else axes
    weight = design.probabilities[row] * windows.count
    at, low, high = decimated(weight)
    x = windows.place(at)[0]
    if low is high:
        axes.vlines(x, 1, weight, color=COLOURS[0], lw=0.8)
    else:
        axes.fill_between(x, low, high, color=COLOURS[0], lw=0.5)
    axes.axhline(1, color="0.5", lw=0.8)
    axes.set(xlabel="time", ylabel="sampling rate / uniform", yscale="log")
    return bare(axes)


# ---------------------------------------------------------------- forecast
def plot_forecast(forecast: "Forecast", *, axes: Any = None) -> Any:
    """Plot the probability of a rare event within a given number of steps, with its 90 % interval.

    Parameters
    ----------
    forecast : Forecast
        As returned by ``RareHMM.forecast``.
    axes : matplotlib Axes, optional
        By default those of a new figure.

    Returns
    -------
    matplotlib Axes
    """
    axes = new_axes(size=(6, 3)) if axes is None else axes
    steps = np.arange(1, len(forecast.event) + 1)
    axes.fill_between(steps, forecast.low, forecast.high, color=COLOURS[2], alpha=0.25, lw=0)
    axes.plot(steps, forecast.event, color=COLOURS[2])
    axes.set(xlabel="steps ahead", ylabel="P(rare event by then)", ylim=(0, None))
    return bare(axes)


# ---------------------------------------------------------------- number of states
def selection(result: "Selection") -> "Figure":
    """Plot held-out log densities and BIC against the number of states, relative to the selected number.

    Parameters
    ----------
    result : Selection
        As returned by ``select_n_components``.

    Returns
    -------
    matplotlib Figure
    """
    from matplotlib.figure import Figure

    numbers = [c.n_states for c in result.candidates]
    best = result.of(result.best)
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    difference = np.array([c.blocks - best.blocks for c in result.candidates])  # (candidates, blocks)
    left.errorbar(
        numbers,
        difference.sum(1),
        yerr=difference.std(1, ddof=1) * np.sqrt(difference.shape[1]),
        fmt="o-",
        color=COLOURS[0],
        capsize=3,
    )
    left.set(title="held-out observations", ylabel="difference in log density")
    middle.plot(numbers, [c.surprising - best.surprising for c in result.candidates], "o-", color=COLOURS[2])
    middle.set(title="most surprising 1 %", ylabel="difference in mean log density")
    right.plot(numbers, [c.bic - best.bic for c in result.candidates], "o-", color=COLOURS[1])
    right.set(title="BIC (lower is better)", ylabel="difference in BIC")
    for axis in (left, middle, right):
        axis.axvline(result.best, color="0.8", lw=6, zorder=0)
        axis.axhline(0, color="0.6", lw=0.8, zorder=0)
        axis.set(xlabel="states", xticks=numbers)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in (left, right):
        axis.set_yscale("symlog", linthresh=10)
    return figure
