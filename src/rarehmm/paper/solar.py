"""Section 5.1: solar flares.  Predicted series, and the log predictive density of held-out flares."""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.data.transforms import baseline
from rarehmm.paper import Outcome, Settings
from rarehmm.paper.common import BUFFER, COLOUR, EPSILON, HALF_WIDTH, NAMES, WINDOWS, figure
from rarehmm.paper.goes import G16_FILE, G16_FOLDER, crossings, load_g16, paper_knots
from rarehmm.paper.real import KEPT, SHOWN, Comparison, Study, compare, draw_curves, predicted
from rarehmm.posterior.prediction import sequence_densities

TITLE = "Section 5.1: solar flares"
MINUTES = 2
DATA, FILE = G16_FOLDER, G16_FILE
TRAIN, THRESHOLD, FOLLOWING = 250_000, 1.0, 10
STAND_IN = (
    "**These are not the paper's data.** GOES-16 from 1 January to 14 August 2022 stands in for GOES-13 and GOES-15 "
    "from September 2017 to April 2018: the same kind of instrument on another satellite, in a more active phase of "
    "the solar cycle. Densities under *paper* are those of its appendix B, for its data, and need not agree with ours; "
    "what can be compared is the difference between designs."
)
PAPER = {  # appendix B: (L, B, S)
    (2, 5, 2): {"uniform": -9.94, "targeted": -9.21}, (2, 5, 5): {"uniform": -9.89, "targeted": -9.15},
    (2, 5, 10): {"uniform": -9.91, "targeted": -9.18}, (2, 10, 2): {"uniform": -9.86, "targeted": -9.21},
    (2, 10, 5): {"uniform": -9.88, "targeted": -9.06}, (2, 10, 10): {"uniform": -9.93, "targeted": -9.07},
    (7, 5, 2): {"uniform": -9.90, "targeted": -9.22}, (7, 5, 5): {"uniform": -9.90, "targeted": -9.20},
    (7, 5, 10): {"uniform": -9.87, "targeted": -9.25}, (7, 10, 2): {"uniform": -9.95, "targeted": -9.13},
    (7, 10, 5): {"uniform": -9.92, "targeted": -9.17}, (7, 10, 10): {"uniform": -9.91, "targeted": -9.16},
}  # fmt: skip


def reproduce(settings: Settings) -> Outcome:
    logs, smooth = flux_and_baseline(settings)
    cell = (HALF_WIDTH, BUFFER, WINDOWS)
    c = compare(settings, study(settings), cell, PAPER[cell])
    remarks = [
        f"Of {len(logs):,} good minutes the first {TRAIN:,} are for training (the paper: 300,000 of 347,875). Held out "
        f"are the ten observations after each of the {len(c.study.held)} flare onsets in the rest. Predicted series in "
        f"the figure are from chains that start at the clustering, with {c.as_printed[1].label}.",
        *c.remarks,
    ]
    return Outcome(c.tables, remarks, draw(c, logs, smooth), c.numbers, STAND_IN)


def flux_and_baseline(settings: Settings) -> tuple[Array, Array]:
    """Return the log flux and its piecewise quadratic baseline."""
    _, flux = load_g16(settings.data / DATA / FILE)
    logs = np.log(flux)
    return logs, baseline(logs, paper_knots(len(logs)))


def study(settings: Settings) -> Study:
    """Return the residual for training, and the ten observations after each flare onset in the rest."""
    logs, smooth = flux_and_baseline(settings)
    y = logs - smooth
    test = y[TRAIN:]
    starts = crossings(test, THRESHOLD)
    held = test[starts[starts + FOLLOWING < len(test), None] + np.arange(1, FOLLOWING + 1)]
    measures = {"density": sequence_densities}
    return Study(Series(y[:TRAIN]), held, measures, lambda series: series > THRESHOLD, -1, EPSILON)


def draw(c: Comparison, logs: Array, smooth: Array) -> Any:
    made, axes = figure(2, 5, width=5.5, height=2.1)
    y, steady = logs - smooth, c.as_printed[1]
    axes[0].plot(logs, color="0.6", lw=0.3)
    axes[0].plot(smooth, color="black", lw=0.8)
    axes[0].set_title("log flux and its baseline", fontsize=10)
    axes[0].set_ylabel("log W/m2")
    axes[1].plot(y, color="0.4", lw=0.3)
    axes[1].axvline(TRAIN, color="black", lw=0.8, ls=":")
    axes[1].set_title("residual, for training up to the dotted line", fontsize=10)
    for column, design in enumerate(("targeted", "uniform")):
        series = predicted(np.random.default_rng(4), c.model, c.arms[steady, design].near.draws[0], len(y))
        for axis, z, simulated in zip(axes[2 + column : 8 : 2], SHOWN, series, strict=False):
            axis.plot(simulated, color=COLOUR[design], lw=0.3)
            name = f"predicted: {NAMES[design]}, draw {z * c.steps // KEPT:,}, epsilon {steady.epsilon:.2g}"
            axis.set_title(name, fontsize=10)
    for axis in axes[1:8]:
        axis.set(ylim=(-3, 6), ylabel="residual")
    for axis in axes[:8]:
        axis.set_xlim(0, len(y))
        axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}")
    for axis in axes[6:8]:
        axis.set_xlabel("minutes, in thousands")
    for axis, step in zip(axes[8:], c.as_printed, strict=True):
        draw_curves(axis, c, step)
    return made
