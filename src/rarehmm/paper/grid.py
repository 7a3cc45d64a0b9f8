"""Shared by the tuning tables of appendix B: a grid of L, B and S under uniform subsampling and TASS."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rarehmm.paper import Outcome, Settings, Table
from rarehmm.paper.common import COLOUR, NAMES, Parts, figure
from rarehmm.paper.real import (
    BOTH,
    Cell,
    Study,
    both_steps,
    finite_values,
    iterations,
    on_steps,
    sample,
    spread,
    training,
)

PaperTable = dict[Cell, dict[str, float]]  # densities by design


def tuning(settings: Settings, study: Study, paper: PaperTable, claim: float) -> Outcome:
    """Run the grid of L, B and S under uniform subsampling and TASS, and compare it with the paper's table."""
    cells = [cell for cell in paper if not settings.quick or cell[:2] == (2, 5)]
    trained = {cell[:2]: training(study, *cell[:2]) for cell in cells}
    estimate = trained[cells[0][:2]].estimate
    epsilons, (steps, count) = both_steps(study, estimate), iterations(settings)
    parts, found = Parts(settings.on_progress, 2 * len(epsilons) * len(cells)), {}
    for epsilon in epsilons:
        for cell in cells:
            t = trained[cell[:2]]
            starts = np.tile(t.model.pack(estimate), (count, 1))
            for d in BOTH:
                chains = sample(study, t, d, cell[2], starts, steps, epsilon, parts.next())
                found[epsilon, cell, d] = {m: chains.settled(m) for m in study.measures}
    tables, remarks = [], [on_steps(study, estimate)]
    for epsilon in epsilons:
        here = {(cell, d): values for (e, cell, d), values in found.items() if e == epsilon}
        tables.append(
            Table(
                f"epsilon = {epsilon:.2g}, {len(study.train):,} observations, {steps:,} iterations from the estimate "
                f"of the clustering; log predictive density of {len(study.held):,} held-out sequences from the last "
                f"half of the draws, median (and range) over {count} chains.",
                ["L", "B", "S", *(f"{NAMES[d]}, {what}" for d in BOTH for what in ("paper", *study.measures))],
                [[*cell, *(c for d in BOTH for c in grid_cells(paper[cell][d], here[cell, d]))] for cell in cells],
            )
        )
        for d in BOTH:
            ours, theirs = [here[cell, d][study.main] for cell in cells], [paper[cell][d] for cell in cells]
            remarks.append(f"With epsilon = {epsilon:.2g}, {NAMES[d]}: {on_grid(ours, theirs, claim)}")
    numbers = {f"{e:.2g}, L = {c[0]}, B = {c[1]}, S = {c[2]}, {d}": v for (e, c, d), v in found.items()}
    main = {key: values[study.main] for key, values in found.items()}
    return Outcome(tables, remarks, draw_grid(paper, cells, epsilons, main), numbers)


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
    epsilons: tuple[float, float],
    found: dict[tuple[float, Cell, str], list[float]],
) -> Any:
    made, axes = figure(2, width=5.2, height=3.8)
    at = np.arange(len(cells))
    for axis, epsilon in zip(axes, epsilons, strict=True):
        for d, shift in zip(BOTH, (-0.12, 0.12), strict=True):
            for x, cell in zip(at + shift, cells, strict=True):
                if values := finite_values(found[epsilon, cell, d]):
                    axis.plot([x] * len(values), values, color=COLOUR[d], lw=1)
                    axis.plot(x, np.median(values), "o", color=COLOUR[d], ms=5)
            axis.plot(at + shift, [paper[cell][d] for cell in cells], "o", mfc="none", color=COLOUR[d], ms=5)
            axis.plot([], [], "o-", color=COLOUR[d], label=f"{NAMES[d]}, ours (median, range)")
            axis.plot([], [], "o", mfc="none", color=COLOUR[d], label=f"{NAMES[d]}, paper")
        axis.set_xticks(at, [f"L {cell[0]}, B {cell[1]}, S {cell[2]}" for cell in cells], rotation=90, fontsize=8)
        axis.set_title(f"from the clustering, epsilon {epsilon:.2g}", fontsize=10)
        axis.set_ylabel("log predictive density")
    made.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return made
