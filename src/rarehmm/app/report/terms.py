"""The section of the report on the model: what its terms add to the observations, and why they were chosen."""

from html import escape
from typing import NamedTuple

import numpy as np

from rarehmm import plots
from rarehmm.app.report.elements import paragraph, section, svg, table, with_intervals
from rarehmm.choosing.suggestion import TermGain
from rarehmm.data.seasons import Fourier
from rarehmm.data.series import Series
from rarehmm.estimator import RareHMM
from rarehmm.posterior.components import effect_curves
from rarehmm.posterior.posterior import MODE_ONLY, Posterior

INTERVAL = 0.05, 0.95


class Chosen(NamedTuple):
    """Settings that were chosen automatically, as a sentence, and what was compared on ``n_rows`` observations."""

    sentence: str
    n_rows: int
    gains: list[TermGain]


def model_section(hmm: RareHMM, series: Series, strongest: tuple[int, int] | None, chosen: Chosen | None) -> str:
    """Return the section on the model; empty if it consists of states alone, which nobody has compared with others.

    Parameters
    ----------
    hmm : RareHMM
        The fit.
    series : Series
        The observations.
    strongest : tuple of int, optional
        Rows [first, last) of the strongest event, around which components are shown.
    chosen : Chosen, optional
        What was compared, if settings were chosen automatically.
    """
    body = sizes_of_terms(hmm) + pictures(hmm.posterior_, series, strongest)
    if chosen is not None:
        body = paragraph(chosen.sentence) + body + comparisons(chosen)
    return section("Terms of the model", body) if body else ""


# ---------------------------------------------------------------- what terms add
def sizes_of_terms(hmm: RareHMM) -> str:
    """Return the table of the size of each term; empty if there are none."""
    rows, is_mode = swings(hmm.posterior_), hmm.posterior_.is_mode
    summary = hmm.summary()
    found = summary[summary.index.str.contains("coefficient[", regex=False)]
    found = found[~found.index.str.contains(r"\[(?:sin|cos)\(")]
    rows += [(name, mean, low, high) for name, mean, _, low, high in found.iloc[:, :4].itertuples()]
    if not rows:
        return ""
    shown = [[escape(name), f"{mean:.4g}", f"{low:.4g} to {high:.4g}"] for name, mean, low, high in rows]
    header = ["term", MODE_ONLY] if is_mode else ["term", "mean", "90 % interval"]
    note = (
        "The swing of a season is from its lowest to its highest point. Coefficients are per unit of an input, of a "
        "linear trend per day or, without dates, per row. Levels of states are those at the means of all inputs."
    )
    return table(header, [cells[: len(header)] for cells in shown], text=(0,)) + paragraph(note, "soft")


def swings(posterior: Posterior) -> list[tuple[str, float, float, float]]:
    """Return the mean swing of each season of the first column that has any, with its interval."""
    found = []
    for one in effect_curves(posterior, first_column(posterior)):
        if isinstance(one.source, Fourier):
            every = np.ptp(one.values, axis=1).T  # (1 or K, Z)
            names = [""] if len(every) == 1 else [f" in state {k}" for k in range(len(every))]
            found += [
                (f"swing of the {one.title}{name}", float(swing.mean()), *np.quantile(swing, INTERVAL).tolist())
                for name, swing in zip(names, every, strict=True)
            ]
    return found


def first_column(posterior: Posterior) -> int:
    """Return the first column of observations that inputs can move."""
    return int(next(iter(posterior.model.every_effect.moves.predicted), 0))


def pictures(posterior: Posterior, series: Series, strongest: tuple[int, int] | None) -> str:
    """Return the figures of what seasons, trends and inputs add; empty if there are none."""
    column = first_column(posterior)
    if not effect_curves(posterior, column):
        return ""
    last_start = max(len(series) - plots.SHOWN, 0)
    middle = sum(strongest) // 2 if strongest else 0
    first = min(max(middle - plots.SHOWN // 2, 0), last_start)
    last = min(first + plots.SHOWN, len(series))
    where = f"{series.stamp(first)} to {series.stamp(last - 1)}"
    where += ", around the strongest event" if strongest and len(series) > plots.SHOWN else ""
    name = "The observations" if series.n_columns == 1 or series.names is None else series.names[column]
    parts = plots.plot_components(posterior, series, first=first, last=last, column=column)[0].figure
    effects = plots.plot_effects(posterior, column=column)[0].figure
    return (
        svg(parts, with_intervals(f"{name} ({where}) with the fit, and what it consists of", posterior) + ".")
        + svg(effects, with_intervals("What each season, trend and input adds over its range", posterior) + ".")
    )  # fmt: skip


# ---------------------------------------------------------------- why
def comparisons(chosen: Chosen) -> str:
    """Return the table of what was compared."""
    if not chosen.gains:
        return ""
    rows = [
        [escape(g.term), escape(g.against), f"{g.gain:+.4f} ± {g.error:.4f}", "chosen" if g.chosen else ""]
        for g in chosen.gains
    ]
    note = (
        f"What was compared, on {chosen.n_rows:,} observations. The gain is how much better a model predicts stretches "
        "that it was not fitted to: the log density per observation, with its standard error. A term is chosen if its "
        "gain is clear."
    )
    kinds = ["chosen-row" if g.chosen else "" for g in chosen.gains]
    return paragraph(note) + table(["term", "compared with", "gain", "result"], rows, kinds, text=(0, 1, 3))
