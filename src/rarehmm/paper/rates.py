"""Appendix B: bias against the buffer, error against the number and length of windows, and the cost of a step."""

import math
import time
from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.data.series import Series
from rarehmm.designs.uniform import uniform
from rarehmm.emissions.gaussian import Gaussian
from rarehmm.exact.passes import log_posterior
from rarehmm.model.model import Model
from rarehmm.model.named_priors import paper_priors
from rarehmm.model.simulation import simulate
from rarehmm.paper import Outcome, Settings, Table
from rarehmm.paper.common import figure
from rarehmm.plots import COLOURS
from rarehmm.sampling.chains import gradient_estimates
from rarehmm.windows.gradients import mean_square_error, window_gradients
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

TITLE = "Appendix B: bias, error and cost of gradient estimates"
MINUTES = 1
DATA = None
TRANSITION = np.array([[0.9, 0.1], [0.15, 0.85]])  # two states one standard deviation apart: buffers matter
BUFFERS, HALF_WIDTHS, SIZES = (1, 2, 4, 6, 8, 12, 16, 20), (2, 4, 7, 12, 24), (16, 64, 160, 320)
QUICK, FULL, TIMED = (5_000, 200), (100_000, 2_000), 400  # T and estimates per error; estimates per timing


def reproduce(settings: Settings) -> Outcome:
    T, repeats = QUICK if settings.quick else FULL
    family = Gaussian()
    model = Model(family, 2, paper_priors(family))
    truth = model.parameters(TRANSITION, mean=[0.0, 1.0], variance=1.0)
    series = Series(simulate(np.random.default_rng(9), model, truth, T)[0])
    theta = model.pack(truth) + 0.1
    exact = log_posterior(model, theta, series)[1] - model.log_prior_gradient(theta)

    bias = np.empty(len(BUFFERS))
    for i, B in enumerate(BUFFERS):
        total = window_gradients(model, theta, series, Windows(series, 2, B)).sum(0)
        bias[i] = np.linalg.norm(total - exact) / np.linalg.norm(exact)
        settings.on_progress(i + 1, len(BUFFERS) + len(HALF_WIDTHS) + len(SIZES))
    rho = math.exp(slope(np.array(BUFFERS[1:6]), np.log(bias[1:6])))
    gap = float(np.sort(np.abs(np.linalg.eigvals(model.unpack(theta).transition)))[0])

    error = np.empty((len(HALF_WIDTHS), 2))  # relative root mean square: exact, and from draws of 16 windows
    for i, L in enumerate(HALF_WIDTHS):
        windows = Windows(series, L, 20)
        error[i] = errors(model, theta, series, windows, repeats) / np.linalg.norm(exact)
        settings.on_progress(len(BUFFERS) + i + 1, len(BUFFERS) + len(HALF_WIDTHS) + len(SIZES))
    length = slope(np.log(HALF_WIDTHS), 2 * np.log(error[:, 0]))

    seconds = np.empty((len(SIZES), 2, 2))  # S; L; B
    for i, S in enumerate(SIZES):
        for j, L in enumerate((2, 12)):
            for k, B in enumerate((5, 20)):
                seconds[i, j, k] = cost(model, theta, series, Windows(series, L, B), S)
        settings.on_progress(len(BUFFERS) + len(HALF_WIDTHS) + i + 1, len(BUFFERS) + len(HALF_WIDTHS) + len(SIZES))
    tables = [
        Table(
            f"T = {T:,}, two states one standard deviation apart, L = 2: error of the sum of all window gradients, "
            "relative to the exact gradient.",
            ["B", *map(str, BUFFERS)],
            [["bias", *(f"{b:.1e}" for b in bias)]],
        ),
        Table(
            "Root mean square error of one estimate from 16 uniform windows, relative to the exact gradient; B = 20.",
            ["L", *map(str, HALF_WIDTHS)],
            [["exact", *(float(e) for e in error[:, 0])], ["from draws", *(float(e) for e in error[:, 1])]],
        ),
        Table(
            "Microseconds per estimate, including drawing and gathering the windows.",
            ["S", *map(str, SIZES)],
            [
                [f"L = {L}, B = {B}", *(f"{1e6 * s:.1f}" for s in seconds[:, j, k])]
                for j, L in enumerate((2, 12))
                for k, B in enumerate((5, 20))
            ],
        ),
    ]
    share = seconds[-1] / np.array([[2 * 2 + 1 + 10, 2 * 2 + 1 + 40], [2 * 12 + 1 + 10, 2 * 12 + 1 + 40]]) / SIZES[-1]
    remarks = [
        f"The bias falls as rho^B with rho = {rho:.2f}; the second eigenvalue of the transition matrix is {gap:.2f}, "
        "and observations make the chain forget faster: O(rho^B), as stated.",
        f"The mean square error falls exactly as 1/S (draws are independent) and as L^{length:.2f} over these lengths: "
        "1/(S L), as stated, up to the correlation of neighbouring observations and the truncated last window.",
        f"An estimate costs {1e9 * share.min():.1f} to {1e9 * share.max():.1f} ns for each of the S (2 L + 1 + 2 B) "
        "observations that it reads: O((L + B) S), as stated, plus the fixed cost of unpacking theta.",
    ]
    numbers = {"buffers": BUFFERS, "bias": bias, "rho": rho, "error": error, "seconds": seconds}
    return Outcome(tables, remarks, draw(bias, rho, error, seconds), numbers)


def slope(x: Array, y: Array) -> float:
    """Return the slope of the least-squares line."""
    return float(np.polyfit(x, y, 1)[0])


def errors(model: Model, theta: Array, series: Series, windows: Windows, repeats: int) -> Array:
    """Return the root of the summed mean square error of estimates from 16 windows: exact, and from draws."""
    g, design = window_gradients(model, theta, series, windows), uniform(windows)
    pool = Pool(model, series, windows, design, 16)
    drawn = gradient_estimates(np.random.default_rng(0), model, pool, theta, repeats) - model.log_prior_gradient(theta)
    found = np.mean(np.sum((drawn - g.sum(0)) ** 2, axis=1))
    return np.sqrt([mean_square_error(g, design.probabilities).sum() / 16, found])


def cost(model: Model, theta: Array, series: Series, windows: Windows, S: int) -> float:
    """Return the seconds per estimate from S windows, the fastest of several runs."""
    pool, best = Pool(model, series, windows, uniform(windows), S), math.inf
    for seed in range(4):
        started = time.perf_counter()
        gradient_estimates(np.random.default_rng(seed), model, pool, theta, TIMED)
        best = min(best, (time.perf_counter() - started) / TIMED)
    return best


def draw(bias: Array, rho: float, error: Array, seconds: Array) -> Any:
    made, (first, second, third) = figure(3)
    first.plot(BUFFERS, bias, "o-", color=COLOURS[0], label="bias")
    first.plot(BUFFERS, bias[2] * rho ** (np.array(BUFFERS) - BUFFERS[2]), "k:", label=f"{rho:.2f}^B")
    first.set(yscale="log", xlabel="buffer B", ylabel="relative bias", title="bias")
    second.plot(HALF_WIDTHS, error[:, 0], "o-", color=COLOURS[0], label="exact")
    second.plot(HALF_WIDTHS, error[:, 1], "x", color=COLOURS[2], label="from draws")
    second.plot(HALF_WIDTHS, error[0, 0] * np.sqrt(HALF_WIDTHS[0] / np.array(HALF_WIDTHS)), "k:", label="L^(-1/2)")
    second.set(xscale="log", yscale="log", xlabel="half-width L", ylabel="relative error", title="error, S = 16")
    second.set_xticks(HALF_WIDTHS, [str(L) for L in HALF_WIDTHS])
    second.set_xticks([], minor=True)
    for j, L in enumerate((2, 12)):
        for k, B in enumerate((5, 20)):
            third.plot(SIZES, 1e6 * seconds[:, j, k], "o-", color=COLOURS[2 * j + k], label=f"L = {L}, B = {B}")
    third.set(xlabel="windows S", ylabel="microseconds", title="cost of an estimate", ylim=(0, None))
    for axis in (first, second, third):
        axis.legend(fontsize=8)
    return made
