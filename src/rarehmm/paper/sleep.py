"""Section 5.2: sleep EEG.  The log predictive density of held-out rare spikes."""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.model.model import Model
from rarehmm.paper import Outcome, Settings
from rarehmm.paper.common import COLOUR, EPSILON, NAMES, figure
from rarehmm.paper.eeg import FOLDER, SHARE, TEST, TRAIN, load, spikes, transform
from rarehmm.paper.real import BOTH, Comparison, Study, compare, draw_curves, predicted
from rarehmm.posterior.posterior import Draws
from rarehmm.posterior.prediction import sequence_densities, state_densities

TITLE = "Section 5.2: sleep cycles"
MINUTES = 2
DATA = FOLDER
RATE = 200  # samples per second
CELL = 2, 10, 5  # L, B, S
QUICK = 60_000  # samples of each excerpt of about 360,000
STAND_IN = (
    "**These are not the paper's data.** The DREAMS spindle database (Devuyst et al., Zenodo 2650142; one central EEG "
    "channel, 30 minutes per person) stands in for the paper's recording: three people for training and three others "
    "for testing, where the paper has 1,000,000 samples of one person, and as many of the same person for testing. "
    "Densities under *paper* are those of its appendix B, for its data, and need not agree with ours; what can be "
    "compared is the difference between designs."
)
PAPER = {  # appendix B: (L, B, S)
    (2, 5, 2): {"uniform": -2.02, "targeted": -2.00}, (2, 5, 5): {"uniform": -1.94, "targeted": -1.85},
    (2, 10, 2): {"uniform": -2.01, "targeted": -1.98}, (2, 10, 5): {"uniform": -2.06, "targeted": -2.00},
    (7, 5, 2): {"uniform": -2.01, "targeted": -1.75}, (7, 5, 5): {"uniform": -2.18, "targeted": -1.80},
    (7, 10, 2): {"uniform": -2.00, "targeted": -1.72}, (7, 10, 5): {"uniform": -2.05, "targeted": -1.75},
}  # fmt: skip


def reproduce(settings: Settings) -> Outcome:
    s = study(settings)
    c = compare(settings, s, CELL, PAPER[CELL])
    remarks = [
        f"There are {len(s.train):,} training samples at {RATE} Hz in three sequences. The paper's threshold of 3.8 is "
        f"in its own units; here spikes are the lowest {SHARE:.2%} of each sequence.",
        on_ceiling(s, PAPER[CELL]),
        *c.remarks,
    ]
    return Outcome(c.tables, remarks, draw(settings, c), c.numbers, STAND_IN)


def study(settings: Settings) -> Study:
    """Return the log EEG of three people for training, and the spikes of three others."""
    folder, stop = settings.data / DATA, QUICK if settings.quick else None
    train, test = [transform(x) for x in load(folder)], [transform(x) for x in load(folder, TEST)]
    held = np.concatenate([y[spikes(y)] for y in test])[:: 6 if settings.quick else 1, None]
    used = [y[:stop] for y in train]
    # Fewer observations with a larger step leave the drift and the noise of a step unchanged.
    larger = sum(map(len, train)) / sum(map(len, used))
    threshold = np.quantile(np.concatenate(used), SHARE)
    measures = {"density": sequence_densities, "density given the lowest state": given_lowest}
    return Study(Series(used), held, measures, lambda y: y <= threshold, 0, EPSILON * larger)


def given_lowest(model: Model, draws: Draws, y: Array) -> Array:
    """Return log densities (Z, n) of observations y (n, 1) given the state with the lowest mean, eq. (11)."""
    return state_densities(model, draws, y[:, 0], 0)


def on_ceiling(s: Study, paper: dict[str, float]) -> str:
    """Return a remark on the largest log density that the spikes can plausibly have."""
    ceiling = float(np.log(SHARE) - 0.5 * np.log(2 * np.pi * s.held.var()) - 0.5)
    theirs = " and ".join(f"{v:.2f}" for v in paper.values())
    text = (
        f"A distribution that puts {SHARE:.2%} of its mass on the spikes, as a Gaussian with their own mean and "
        f"variance, gives them a log density of {ceiling:.2f}; the paper's values are {theirs}."
    )
    if min(paper.values()) > ceiling:
        text += (
            " So either its spikes are far more common, or its densities are conditional on the state, as in eq. (11): "
            "the second measure here."
        )
    return text


def draw(settings: Settings, c: Comparison) -> Any:
    """Plot the distributions of the series and of predictions, and held-out densities.

    The licence of the recordings allows no adaptations, so they are not drawn themselves.
    """
    made, axes = figure(2, 2, width=5.5, height=3)
    bins, people = np.linspace(-6.5, 6.5, 131), [transform(x) for x in load(settings.data / DATA)]
    for shade, number, y in zip(("0.0", "0.4", "0.7"), TRAIN, people, strict=True):
        axes[0].hist(y, bins, density=True, histtype="step", color=shade, label=f"excerpt {number}")
        axes[0].axvline(y[spikes(y)].max(), color=shade, lw=0.8, ls=":")
    axes[0].set_title(f"three people; dotted: the lowest {SHARE:.2%}", fontsize=10)
    together, steady = np.concatenate(people), c.as_printed[1]
    axes[1].hist(together, bins, density=True, histtype="step", color="black", label="original")
    for design in BOTH:
        for y in predicted(np.random.default_rng(4), c.model, c.arms[steady, design].near.draws[0], len(together))[-1:]:
            axes[1].hist(y, bins, density=True, histtype="step", color=COLOUR[design], label=NAMES[design])
    axes[1].set_title(f"predicted, last draw, epsilon {steady.epsilon:.2g}", fontsize=10)
    for axis in axes[:2]:
        axis.set(xlabel="log microvolt", ylabel="density", yscale="log", ylim=(1e-5, 1))
        axis.legend(fontsize=8, loc="upper left")
    for axis, step in zip(axes[2:], c.as_printed, strict=True):
        draw_curves(axis, c, step)
    return made
