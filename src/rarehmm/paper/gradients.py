"""Section 4.6: root mean square error of gradient estimates for the rare mean, exact and by simulation."""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.designs.printed import printed
from rarehmm.designs.single import single
from rarehmm.designs.targeted import targeted
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.design import Design
from rarehmm.paper import Outcome, Settings, Table
from rarehmm.paper.common import BUFFER, SINGLE_RARE, figure, paper_model, simulated
from rarehmm.plots import COLOURS
from rarehmm.search.labels import from_labels, kmeans_labels
from rarehmm.windows.gradients import mean_square_error, window_gradients
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.label_sums import label_sums
from rarehmm.windows.windows import Windows

TITLE = "Section 4.6: errors of the gradient of the rare mean"
MINUTES = 1
DATA = None
RARE = 2  # component of theta: the mean of the third state
REPEATS, DISTANCES = 1000, (0, 1, 2, 3)
QUICK, FULL = ((10_000,), 2), ((10_000, 50_000, 100_000), 10)  # lengths T, and data sets of each
PAPER = {  # (L, T): TASS, single, uniform at 0, 1, 2, 3 standard deviations
    (2, 10_000): ((49, 59, 1700), (49, 81, 1700), (49, 120, 1700), (49, 160, 1700)),
    (2, 100_000): ((480, 670, 1700), (480, 910, 1700), (480, 1300, 1700), (480, 1900, 1700)),
    (12, 10_000): ((49, 54, 1700), (49, 64, 1700), (49, 86, 1700), (49, 110, 1700)),
    (12, 100_000): ((470, 590, 1700), (470, 750, 1700), (470, 1100, 1700), (470, 1400, 1700)),
}
NAMES = ("TASS, counts", "TASS, eta .1", "TASS, as printed", "single", "uniform")


def reproduce(settings: Settings) -> Outcome:
    rng = np.random.default_rng(46)
    lengths, sets = QUICK if settings.quick else FULL
    tables, numbers, done = [], {}, 0
    for half_width in (2, 12):
        for T in lengths:
            found = np.zeros((sets, len(DISTANCES), len(NAMES), 2))  # exactly, and by drawing
            for number in range(sets):
                found[number] = one_set(rng, T, half_width)
                done += 1
                settings.on_progress(done, 2 * sets * len(lengths))
            numbers[f"L = {half_width}, T = {T}"] = found
            tables.append(table(half_width, T, found))
    remarks = [
        f"Exact values are finite sums over windows, averaged over {sets} data sets; estimates from {REPEATS:,} draws "
        "of one window are in parentheses.",
        "TASS with counts is the same at every distance, as in the paper's table; the weights printed in section 3.1 "
        "are better at the truth and worse away from it, so the paper's numbers must come from counts.",
        "The paper's uniform column, 1.7e3 everywhere, cannot be right: the exact value sqrt(N sum g^2 - (sum g)^2) "
        "grows in proportion to T and with the distance.",
        "Single (Proposition 1) is the norm of the window's gradient over all components, which depends on the "
        "coordinates; the paper does not state them. Here variances are untransformed and the entries of A are free, "
        "so that their gradient is xi / A: this comes closest to the paper's column. In log variances and log ratios "
        "single is close to uniform.",
    ]
    return Outcome(tables, remarks, draw(numbers), numbers)


def one_set(rng: np.random.Generator, T: int, half_width: int) -> Array:
    """Return errors (distances, designs, 2) on one simulated series."""
    model = paper_model(3)
    data = simulated(rng, SINGLE_RARE, [-20.0, 0.0, 20.0], T)
    windows = Windows(data.train, half_width, BUFFER)
    labels = kmeans_labels(data.train, 3)
    estimate = from_labels(model, data.train, labels)
    sums = label_sums(model, estimate, data.train, windows, labels)
    info = WindowInformation(model, model.pack(estimate), data.train, windows, sums=sums)
    made = [
        targeted(info, eta=0.0),
        targeted(info, eta=0.1),
        printed(info, eta=0.0),
        single(info, eta=0.0, printed=True),
        uniform(windows),
    ]
    out = np.empty((len(DISTANCES), len(made), 2))
    for i, distance in enumerate(DISTANCES):
        theta = model.pack(data.truth)
        theta[RARE] += distance
        g = window_gradients(model, theta, data.train, windows)[:, RARE]
        for j, design in enumerate(made):
            out[i, j] = exact_and_drawn(rng, g, design)
    return out


def exact_and_drawn(rng: np.random.Generator, g: Array, design: Design) -> list[float]:
    """Return the root mean square error of g_J / a_J for the rare mean, exact and estimated from draws."""
    a = design.probabilities[RARE if len(design.probabilities) > 1 else 0]
    exact = np.sqrt(mean_square_error(g[:, None], a[None])[0])
    drawn = rng.choice(len(g), REPEATS, p=a)
    return [float(exact), float(np.sqrt(np.mean((g[drawn] / a[drawn] - g.sum()) ** 2)))]


def table(half_width: int, T: int, found: Array) -> Table:
    """Return the table of means over data sets, with the paper's columns where it has any."""
    theirs = PAPER.get((half_width, T))
    mean = found.mean(0)
    rows: list[list[Any]] = []
    for i, distance in enumerate(DISTANCES):
        ours = [f"{exact:.0f} ({drawn:.0f})" for exact, drawn in mean[i]]
        rows.append([distance, *ours, *(theirs[i] if theirs else ("", "", ""))])
    header = ["distance in sd", *NAMES, "paper: TASS", "paper: single", "paper: uniform"]
    return Table(f"L = {half_width}, T = {T:,}, B = {BUFFER}, one window.", header, rows)


def draw(numbers: dict[str, Array]) -> Any:
    rows = len(numbers) // 2
    made, axes = figure(2, rows, height=2.9)
    axes = [*axes[::2], *axes[1::2]]  # a column for each L
    for axis, (name, found) in zip(axes, numbers.items(), strict=True):
        for j, label in enumerate(NAMES):
            axis.plot(DISTANCES, found.mean(0)[:, j, 0], "o-", color=COLOURS[j], label=label, ms=4)
        axis.set(yscale="log", title=name, xlabel="distance from the truth, sd", xticks=DISTANCES)
        axis.set_ylabel("root mean square error")
    made.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)
    return made
