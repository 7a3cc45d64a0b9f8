"""Section 4.4: run times, including the clustering and the weights."""

import time
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.designs.targeted import targeted
from rarehmm.designs.uniform import uniform
from rarehmm.model.model import Model
from rarehmm.paper import Outcome, Settings, Table
from rarehmm.paper.common import (
    BUFFER,
    COLOUR,
    EPSILON,
    HALF_WIDTH,
    NAMES,
    SINGLE_RARE,
    WINDOWS,
    chain,
    figure,
    paper_model,
    simulated,
)
from rarehmm.search.labels import from_labels, kmeans_labels
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.label_sums import label_sums
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

TITLE = "Section 4.4: run times"
MINUTES = 1
DATA = None
LENGTHS, STEPS = (300_000, 500_000, 800_000, 1_000_000), (5_000, 6_000, 8_000, 10_000)
PAPER = {  # seconds, uniform and TASS
    300_000: ((190, 190), (238, 245), (283, 306), (353, 375)),
    500_000: ((249, 279), (284, 323), (378, 409), (492, 517)),
    800_000: ((330, 416), (390, 483), (525, 613), (638, 746)),
    1_000_000: ((396, 536), (476, 648), (661, 845), (800, 986)),
}


def reproduce(settings: Settings) -> Outcome:
    lengths, steps, repeats = (LENGTHS[:2], STEPS[:2], 1) if settings.quick else (LENGTHS, STEPS, 3)
    model, rng = paper_model(3), np.random.default_rng(44)
    series = simulated(rng, SINGLE_RARE, [-20.0, 0.0, 20.0], lengths[-1]).train.read(0, lengths[-1])
    seconds = np.full((len(lengths), len(steps), 2, 2), np.inf)  # T, iterations, design; total, and the chain alone
    once(model, series[: lengths[0]], 10, True)  # compile or load the kernels first
    cells = [cell for _ in range(repeats) for cell in np.ndindex(*seconds.shape[:3])]
    for number, (i, j, k) in enumerate(cells):
        seconds[i, j, k] = np.minimum(seconds[i, j, k], once(model, series[: lengths[i]], steps[j], bool(k)))
        settings.on_progress(number + 1, len(cells))
    each = 1e6 * seconds[..., 1] / np.array(steps)[:, None]  # microseconds per iteration
    rows: list[list[Any]] = []
    for i, T in enumerate(lengths):
        cells_of = [
            f"{a:.2f} / {b:.2f} ({c}, {d})" for (a, b), (c, d) in zip(seconds[i, :, :, 0], PAPER[T], strict=False)
        ]
        rows.append([f"{T:,}", *cells_of, f"{each[i, :, 0].min():.0f}", f"{each[i, :, 1].min():.0f}"])
    table = Table(
        "Seconds for uniform / TASS, including the clustering and the weights; the paper's (2.6 GHz) in parentheses. "
        f"S = {WINDOWS} windows for each of {model.size} components in both. Fastest of {repeats}. Last two columns: "
        "microseconds per iteration of the chain alone, including drawing and gathering the windows.",
        ["T", *(f"{n:,} iterations" for n in steps), "uniform, us", "TASS, us"],
        rows,
    )
    speed = PAPER[lengths[-1]][len(steps) - 1][1] / seconds[-1, -1, 1, 0]
    spread = each[:, :, 1].min(1)
    remarks = [
        f"TASS at T = {lengths[-1]:,} with {steps[-1]:,} iterations takes {seconds[-1, -1, 1, 0]:.2f} s, {speed:.0f} "
        "times less than in the paper.",
        f"An iteration costs {spread.min():.0f} to {spread.max():.0f} microseconds from T = {lengths[0]:,} to "
        f"{lengths[-1]:,}: the chain never touches the series. In the paper the cost of an iteration grew with T. Here "
        "only the clustering and the weights do, which are computed once.",
    ]
    return Outcome([table], remarks, draw(lengths, steps, seconds), {"seconds": seconds, "microseconds": each})


def once(model: Model, y: Array, steps: int, aimed: bool) -> tuple[float, float]:
    """Return the seconds from the data to the last draw, and those of the chain alone."""
    started = time.perf_counter()
    series = Series(y)
    windows = Windows(series, HALF_WIDTH, BUFFER)
    labels = kmeans_labels(series, model.n_states) if aimed else np.zeros(0, dtype=int)
    if aimed:
        estimate = from_labels(model, series, labels)
        sums = label_sums(model, estimate, series, windows, labels)
        design = targeted(WindowInformation(model, model.pack(estimate), series, windows, sums=sums))
    else:
        estimate = model.parameters(SINGLE_RARE, mean=[-20, 0, 20], variance=1.0)
        design = uniform(windows)
    pool = Pool(model, series, windows, design, WINDOWS, separate=True)
    ready = time.perf_counter()
    chain(0, model, pool, model.pack(estimate), steps, EPSILON)
    end = time.perf_counter()
    return end - started, end - ready


def draw(lengths: tuple[int, ...], steps: tuple[int, ...], seconds: Array) -> Any:
    made, (ours, theirs) = figure(2)
    for k, key in enumerate(("uniform", "targeted")):
        ours.plot(lengths, seconds[:, -1, k, 0], "o-", color=COLOUR[key], label=NAMES[key])
        ours.plot(lengths, seconds[:, -1, k, 1], "o:", color=COLOUR[key], label=f"{NAMES[key]}, chain alone")
        theirs.plot(lengths, [PAPER[T][len(steps) - 1][k] for T in lengths], "o-", color=COLOUR[key])
    ours.set(ylim=(0, None), xlabel="T", ylabel="seconds", title=f"rarehmm, {steps[-1]:,} iterations")
    theirs.set(ylim=(0, None), xlabel="T", ylabel="seconds", title="the paper")
    ours.legend(fontsize=8)
    return made
