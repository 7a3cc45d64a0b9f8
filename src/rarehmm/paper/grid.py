"""Shared by the tuning tables of appendix B: a grid of L, B and S under uniform subsampling and TASS."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rarehmm.paper import Outcome, Settings, Table
from rarehmm.paper.common import COLOUR, NAMES, Parts, Step, figure
from rarehmm.paper.real import (
    BOTH,
    Cell,
    Study,
    finite_values,
    iterations,
    on_steps,
    sample,
    spread,
    step_sizes,
    training,
)

PaperTable = dict[Cell, dict[str, float]]  # densities by design


def tuning(settings: Settings, study: Study, paper: PaperTable, claim: float, opening: str) -> Outcome:
    """Run the grid of L, B and S under uniform subsampling and TASS, and compare it with the paper's table."""
    cells = [cell for cell in paper if not settings.quick or cell[:2] == (2, 5)]
    trained = {cell[:2]: training(study, *cell[:2]) for cell in cells}
    estimate = trained[cells[0][:2]].estimate
    moves, (steps, count) = step_sizes(study, estimate), iterations(settings)
    parts, found = Parts(settings.on_progress, 2 * len(moves) * len(cells)), {}
    for step in moves:
        for cell in cells:
            t = trained[cell[:2]]
            starts = np.tile(t.model.pack(estimate), (count, 1))
            for d in BOTH:
                chains = sample(study, t, d, cell[2], starts, steps, step, parts.next())
                found[step, cell, d] = {m: chains.settled(m) for m in study.measures}
    tables, remarks = [], [on_steps(study, estimate)]
    for step in moves:
        here = {(cell, d): values for (s, cell, d), values in found.items() if s == step}
        tables.append(
            Table(
                f"With {step.label}, {len(study.train):,} observations and {steps:,} iterations from the estimate of "
                f"the clustering: log predictive density of {len(study.held):,} held-out sequences from the last "
                f"half of the draws, median (and range) over {count} chains.",
                ["L", "B", "S", *(f"{NAMES[d]}, {what}" for d in BOTH for what in ("paper", *study.measures))],
                [[*cell, *(c for d in BOTH for c in grid_cells(paper[cell][d], here[cell, d]))] for cell in cells],
            )
        )
        for d in BOTH:
            ours, theirs = [here[cell, d][study.main] for cell in cells], [paper[cell][d] for cell in cells]
            remarks.append(f"With {step.label}, {NAMES[d]}: {on_grid(ours, theirs, claim)}")
    numbers = {f"{s.label}, L = {c[0]}, B = {c[1]}, S = {c[2]}, {d}": v for (s, c, d), v in found.items()}
    main = {key: values[study.main] for key, values in found.items()}
    as_printed = [step for step in moves if step.multiple == 1]
    return Outcome(tables, remarks, draw_grid(paper, cells, as_printed, main), numbers, opening)


def grid_cells(theirs: float, ours: dict[str, list[float]]) -> list[str]:
    return [f"{theirs:.2f}", *(spread(values) for values in ours.values())]


def change(values: Sequence[float]) -> float:
    """Return the largest difference, relative to the mean."""
    return (max(values) - min(values)) / abs(float(np.mean(values)))


def on_grid(ours: list[list[float]], theirs: list[float], claim: float) -> str:
    if any(np.isnan(values).any() for values in ours):
        return "some chains diverged, so no change over the grid is reported."
    total, within = change([float(np.median(v)) for v in ours]), float(np.median([change(v) for v in ours]))
    return (
        f"medians change by {total:.1%} over these cells, {'within' if total <= claim else 'more than'} the "
        f"{claim:.0%} that the paper reports (its own numbers in these cells change by {change(theirs):.1%}); chains "
        f"within a cell differ by {within:.1%} (median over cells)"
        f"{', more than the cells do.' if within > total else '.'}"
    )


def draw_grid(
    paper: PaperTable,
    cells: list[Cell],
    moves: list[Step],
    found: dict[tuple[Step, Cell, str], list[float]],
) -> Any:
    made, axes = figure(2, width=5.2, height=3.8)
    at = np.arange(len(cells))
    for axis, step in zip(axes, moves, strict=True):
        for d, shift in zip(BOTH, (-0.12, 0.12), strict=True):
            for x, cell in zip(at + shift, cells, strict=True):
                if values := finite_values(found[step, cell, d]):
                    axis.plot([x] * len(values), values, color=COLOUR[d], lw=1)
                    axis.plot(x, np.median(values), "o", color=COLOUR[d], ms=5)
            axis.plot(at + shift, [paper[cell][d] for cell in cells], "o", mfc="none", color=COLOUR[d], ms=5)
            axis.plot([], [], "o-", color=COLOUR[d], label=f"{NAMES[d]}, ours (median, range)")
            axis.plot([], [], "o", mfc="none", color=COLOUR[d], label=f"{NAMES[d]}, paper")
        axis.set_xticks(at, [f"L {cell[0]}, B {cell[1]}, S {cell[2]}" for cell in cells], rotation=90, fontsize=8)
        axis.set_title(f"from the clustering, epsilon {step.epsilon:.2g}", fontsize=10)
        axis.set_ylabel("log predictive density")
    made.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return made
