"""A picture of one change of regime under both forms of autoregression, each fitted with both: ``make autoregression``.

Two series have the same states and the same noise.  In one, states are levels that last; in the other, they are
intercepts, whose effect builds up and fades.  Each is fitted in both forms, from the data alone.
"""

import pathlib
from typing import Any

import numpy as np

import rarehmm as rh

LAG, LEVEL, INTERCEPT = 0.9, 6.0, 3.0  # coefficient of the last value, and what the rare state adds
EVENTS, EVERY, LENGTH = 20, 400, 8  # events, rows from one to the next, and rows in each
SHOWN = slice(580, 660)
INDIGO, AMBER, INK, GREY = "#3f51b5", "#f08c00", "#24292f", "#6e7781"
PICTURE = pathlib.Path(__file__).parent / "explanation" / "autoregression.png"


def follow(jumps: np.ndarray) -> np.ndarray:
    """Return y with y[t] = LAG * y[t - 1] + jumps[t]."""
    y = jumps.copy()
    for t in range(1, len(y)):
        y[t] += LAG * y[t - 1]
    return y


def simulate() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return both series, each with its mean given the states."""
    state = np.zeros(EVENTS * EVERY)
    for begin in range(EVERY // 2, len(state), EVERY):
        state[begin : begin + LENGTH] = 1
    noise = follow(np.random.default_rng(3).normal(size=len(state)))
    means = {"A level that lasts": LEVEL * state, "A jolt that fades": follow(INTERCEPT * state)}
    return {name: (mean + noise, mean) for name, mean in means.items()}


def draw(path: pathlib.Path = PICTURE) -> None:
    """Draw a row for each series and a column for each form; rows in which it finds the rare state are shaded."""
    import matplotlib.pyplot as plt

    forms: dict[str, Any] = {"AroundLevel(1)": rh.AroundLevel(1), "Intercept(1)": rh.Intercept(1)}
    figure, every = plt.subplots(2, 2, figsize=(8, 4.6), sharex=True, sharey="row", layout="constrained")
    rows = np.arange(SHOWN.start, SHOWN.stop)
    for row, (name, (y, mean)) in zip(every, simulate().items(), strict=True):
        for axes, (form, ar) in zip(row, forms.items(), strict=True):
            hmm = rh.RareHMM(2, ar=ar, method="map", check_model=False).fit(y)
            probability = hmm.predict_proba(y)
            rarest = np.argmin(probability.mean(0))
            found = probability[SHOWN, rarest] > 0.5
            axes.bar(rows[found], 1, width=1, color=AMBER, alpha=0.35, transform=axes.get_xaxis_transform())
            axes.plot(rows, y[SHOWN], color=INDIGO, lw=0.8)
            axes.plot(rows, mean[SHOWN], color=INK, lw=1.2, ls="--")
            axes.set_title(f"{name}, fitted with {form}", size=9, color=INK, loc="left")
            says = f"rare state: mean {hmm.means_[rarest, 0]:.1f}, variance {hmm.covars_[rarest, 0]:.1f}"
            axes.text(0.98, 0.9, says, size=8, color=INK, ha="right", transform=axes.transAxes)
            axes.tick_params(labelsize=7, colors=GREY)
            axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=90, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    draw()
