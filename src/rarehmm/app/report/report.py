"""The report: one self-contained HTML file that makes no network requests."""

import base64
import importlib.resources
import json
from html import escape
from typing import Any, NamedTuple

import numpy as np

from rarehmm import plots
from rarehmm.app.report.elements import paragraph, section, svg, swatch, table, with_intervals
from rarehmm.app.report.terms import Chosen, model_section
from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series
from rarehmm.estimator import RareHMM
from rarehmm.posterior.components import parts_of
from rarehmm.posterior.posterior import MODE_ONLY, Posterior
from rarehmm.posterior.prediction import Forecast
from rarehmm.sampling.diagnostics import Check
from rarehmm.search.regimes import closest_to_rare

POINTS = 1_000_000  # points shown; of a longer series, the extremes of bins are kept
ANCHORS = 2_000  # rows whose times are stored; those between are interpolated
LISTED = 500  # events in the table
MISSING = 65535
OF_STATES = "occupancy", "sojourn", "return_time"  # of which there are none where transitions have inputs
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Overview:
    """The points that the report shows of a series of T observations, which are added in chronological order.

    All of them, or for a long series the smallest and the largest observation of each bin.
    """

    def __init__(self, T: int) -> None:
        self.size = 1 if T <= POINTS else -(-2 * T // POINTS)
        self.step = max(1.0, self.size / 2)  # observations per row
        self.kept: list[Array] = []
        self.rest = np.empty((0, 3))  # rows of a bin that is not full yet

    def add(self, y: Array, rare: Array, states: IntArray) -> None:
        """Add observations (n,), the probability of the rare states, and the most probable state."""
        rows = np.concatenate([self.rest, np.column_stack([y, rare, states])])
        full = len(rows) // self.size * self.size
        self.kept.append(rows[:full] if self.size == 1 else extremes(rows[:full], self.size))
        self.rest = rows[full:]

    def shown(self) -> Array:
        """Return rows (n, 3): observation, probability of the rare states (the largest of its bin), and state."""
        last = [extremes(self.rest, len(self.rest))] if len(self.rest) else []
        return np.concatenate(self.kept + last)


def extremes(rows: Array, size: int) -> Array:
    """Return rows (2 n, 3) with the smallest and the largest value of n bins, in chronological order."""
    bins = rows.reshape(-1, size, 3)
    y = bins[..., 0]
    y = np.where(np.isnan(y).all(1, keepdims=True), 0.0, y)
    both = np.sort(np.column_stack([np.nanargmin(y, 1), np.nanargmax(y, 1)]), axis=1)  # (n, 2)
    out = np.take_along_axis(bins, both[..., None], axis=1)
    out[..., 1] = bins[..., 1].max(1, keepdims=True)
    return np.asarray(out.reshape(-1, 3))


class Content(NamedTuple):
    """Content of a report: a fit, its series (T, D) and overview, and events in ``rows`` [first, last).

    ``headline`` says what was found; ``chosen`` why settings were chosen, if they were.
    """

    title: str
    headline: str
    hmm: RareHMM
    series: Series
    overview: Overview
    events: Any
    rows: list[tuple[int, int]]
    forecast: Forecast | None
    settings: dict[str, str]
    chosen: Chosen | None = None


def report(content: Content) -> str:
    """Return the HTML page of a report."""
    hmm = content.hmm
    parts = [
        head(content),
        viewer(content),
        event_list(content),
        model_section(hmm, content.series, strongest(content), content.chosen),
        states(content),
        figures(content),
        section("Posterior checks", checks_table(hmm.posterior_.checks)),
        section("Model checks", paragraph(str(hmm.model_check_)) + checks_table(hmm.model_check_.checks)),
        section("Settings and versions", settings_list(content.settings)),
    ]
    files = importlib.resources.files("rarehmm.app.report") / "page"
    style, script = ((files / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    data = json.dumps(page_data(content)).replace("</", "<\\/")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(content.title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:,">'
        f"<style>\n{style}</style></head>\n<body>\n{''.join(parts)}"
        f'<script type="application/json" id="data">{data}</script>\n<script>\n{script}</script>\n</body></html>\n'
    )


# ---------------------------------------------------------------- text
def head(content: Content) -> str:
    """Return the header: title, summary and verdicts."""
    hmm, series = content.hmm, content.series
    posterior = hmm.posterior_
    check, passed = hmm.model_check_, all(c.passed for c in posterior.checks)
    fit = "unknown" if check.not_checked else "good" if check.passed else "bad"
    rare = ", ".join(map(str, hmm.rare_states_)) or "none"
    summary = (
        f"{len(series):,} observations, {series.n_missing:,} of them missing; {posterior.model.n_states} states with "
        f"{posterior.model.name} emissions; rare states: {rare}; {len(content.events):,} rare events. "
        f"Sampling method: {posterior.method} ({'; '.join(posterior.why)})."
    )
    return (
        f"<header><h1>{escape(content.title)}</h1>{paragraph(content.headline, 'headline')}{paragraph(summary, 'soft')}"
        '<div class="verdicts">'
        f"{verdict('Is this the posterior of the model?', 'good' if passed else 'bad', hmm.verdicts_[0])}"
        f"{verdict('Is this a model of the series?', fit, hmm.verdicts_[1])}</div></header>"
    )


def verdict(question: str, kind: str, answer: str) -> str:
    return f'<div class="verdict {kind}">{paragraph(question, "soft")}<strong>{escape(answer)}</strong></div>'


def states(content: Content) -> str:
    """Return the table of states: their kind, and their parameters with 90 % intervals."""
    posterior = content.hmm.posterior_
    names = [name for name in OF_STATES if name in posterior.quantities]
    names = [*(p.name for p in posterior.model.family.parameters), *names]
    rows = []
    for r in content.hmm.regimes_:
        intervals = [posterior.interval(name, r.state) for name in names]
        cells = [
            f"{m:.4g}" if posterior.is_mode else f"{m:.4g}<br><span class='soft'>{low:.4g} to {high:.4g}</span>"
            for m, low, high in intervals
        ]
        rows.append([f"{swatch(r.state)}{r.state}", escape(r.kind), *cells, escape(r.message)])
    header = ["state", "kind", *(name.replace("_", " ") for name in names), "reason"]
    values = MODE_ONLY.capitalize() if posterior.is_mode else "Posterior means, with central 90 % intervals below"
    note = f"{values}. Sojourn (the expected length of a visit) and return time are measured in observations."
    return section("States", table(header, rows, text=(1, len(header) - 1)) + paragraph(note, "soft"))


def checks_table(checks: list[Check]) -> str:
    rows = [["passed" if c.passed else "failed", escape(c.name), f"{c.value:.3g}", escape(c.message)] for c in checks]
    kinds = ["good-row" if c.passed else "bad-row" for c in checks]
    return table(["result", "check", "value", "details"], rows, kinds, text=(0, 1, 3))


def settings_list(settings: dict[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in settings.items()) + "</dl>"


# ---------------------------------------------------------------- the series
def viewer(content: Content) -> str:
    """Return the interactive chart of the series."""
    buttons = (("in", "Zoom in"), ("out", "Zoom out"), ("back", "Earlier"), ("on", "Later"), ("all", "Show all"))
    tools = "".join(f'<button id="go-{name}" type="button">{label}</button>' for name, label in buttons)
    names = "".join(f"{swatch(k)}state {k}&ensp;" for k in range(content.hmm.posterior_.model.n_states))
    return section(
        "Series",
        f'<nav class="tools" aria-label="zoom and pan">{tools}<span class="soft">{names}</span></nav>'
        '<canvas id="series" tabindex="0" role="img" aria-label="The series with its rare events marked. Use the arrow '
        'keys to pan and zoom, and 0 to show the whole series."></canvas>'
        '<canvas id="states" role="img" aria-label="Probability of the rare states, and the most probable state as a '
        'colour"></canvas><p class="soft no-print">Scroll or pinch to zoom, drag to pan, double-click to show all. '
        "Keyboard: arrow keys, +, - and 0.</p>",
    )


def event_list(content: Content) -> str:
    """Return the table of events; only the longest, if there are many."""
    events = content.events
    if len(events) == 0:
        hmm = content.hmm
        reason = "" if len(hmm.rare_states_) else f" Closest: {closest_to_rare(hmm.regimes_, hmm.rare_share)}."
        return section("Rare events", paragraph("None." + reason, "soft"))
    longest = events["duration"].to_numpy().argsort()[::-1][:LISTED]
    rows = []
    order = np.sort(longest)
    for i, e in zip(order, events.iloc[order].itertuples(), strict=True):
        button = f'<button class="event" type="button" data-event="{i}">{escape(str(e.start))}</button>'
        state = f"{swatch(e.state)}{e.state}"
        rows.append([button, escape(str(e.end)), f"{e.duration:,}", f"{e.peak:.5g}", state, f"{e.probability:.3f}"])
    hint = "Click a start time to show the event in the chart above."
    if len(events) > LISTED:
        hint += f" Only the {LISTED} longest of {len(events):,} events are listed; events.csv contains the full list."
    header = ["start", "end", "duration", "peak", "state", "probability"]
    return section("Rare events", paragraph(hint, "soft no-print") +
                   f'<div class="events">{table(header, rows, text=(0, 1))}</div>')  # fmt: skip


def strongest(content: Content) -> tuple[int, int] | None:
    """Return the rows [first, last) of the strongest event; None if there is no event."""
    return content.rows[int(content.events["rank"].to_numpy().argmin())] if content.rows else None


def page_data(content: Content) -> dict[str, Any]:
    """Return what report.js draws: values quantised to 65,535 levels, most probable states, rare probabilities."""
    y, rare, states = content.overview.shown().T
    low, high = float(np.nanmin(y)), float(np.nanmax(y))
    levels = np.round(65534 * (y - low) / max(high - low, 1e-300))
    values = np.where(np.isnan(levels), MISSING, np.nan_to_num(levels)).astype("<u2")
    times, dates = anchors(content.series)
    return {
        "values": packed(values),
        "states": packed(states.astype(np.uint8)),
        "rare": packed(np.round(255 * np.clip(rare, 0, 1)).astype(np.uint8)),
        "low": low,
        "high": high,
        "step": content.overview.step,
        "times": times,
        "dates": dates,
        "colours": [plots.colour(k) for k in range(content.hmm.posterior_.model.n_states)],
        "events": [[first, last - 1] for first, last in content.rows],
    }


def packed(values: Any) -> str:
    return base64.b64encode(values.tobytes()).decode()


def anchors(series: Series) -> tuple[list[list[float]] | None, bool]:
    """Return [row, time] pairs to interpolate between, and whether times are dates, in milliseconds."""
    index = series.index
    if index is None or isinstance(index, list):
        return None, False
    rows = np.unique(np.linspace(0, len(series) - 1, ANCHORS).astype(int))
    dates = hasattr(index[:1], "tz")
    if not dates and index.dtype.kind not in "iuf":
        return None, False
    times = index[rows]
    numbers = times.tz_localize(None).as_unit("ms").asi8 if dates else times.to_numpy()  # local times
    return [[int(r), float(t)] for r, t in zip(rows, numbers, strict=True)], dates


# ---------------------------------------------------------------- figures
def figures(content: Content) -> str:
    """Return the sections with posterior densities, transitions and the forecast."""
    posterior = content.hmm.posterior_
    names = posterior.model.family.parameters[0].name, "occupancy", "sojourn"
    shown = [name for name in names if name in posterior.quantities]
    more = f": {MODE_ONLY}" if posterior.is_mode else ""
    densities = [
        svg(plots.plot_density(posterior, name)[0].figure, f"Posterior density of the {name} of each state{more}.")
        for name in shown
    ]
    return (
        section("Posterior densities", "".join(densities))
        + section("Transitions", transitions(posterior))
        + forecast_section(content.forecast, posterior)
    )


def transitions(posterior: Posterior) -> str:
    """Return the transition graph, and the effects of inputs on transitions if there are any."""
    graph = svg(plots.plot_transitions(posterior).figure, "Probabilities of moving from state to state.")
    inputs = posterior.model.transitions.inputs
    effects = [] if inputs is None else [title for title, _, _ in parts_of(inputs)]
    return graph + "".join(
        svg(
            plots.plot_transition_effects(posterior, name)[0].figure,
            with_intervals(f"Probabilities of moving from state to state, by {name}", posterior) + ".",
        )
        for name in effects
    )


def forecast_section(forecast: Forecast | None, posterior: Posterior) -> str:
    """Return the section with the forecast."""
    if forecast is None:
        why = "Transitions depend on inputs, so that a forecast needs their future values."
        return section("Forecast", paragraph(why, "soft"))
    average = MODE_ONLY if posterior.is_mode else "averaged over the posterior, with a 90 % interval"
    text = (
        f"Probability of a rare event in the {len(forecast.event)} steps after the end of the series: "
        f"{forecast.event[-1]:.3g}. The curve shows the probability of a rare event within a given number of steps, "
        f"{average}."
    )
    figure = plots.plot_forecast(forecast).figure
    return section("Forecast", svg(figure, text))
