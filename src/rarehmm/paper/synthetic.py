"""Shared by sections 4.1 to 4.3: chains on simulated series, their distance from the truth, held-out densities."""

from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.engine.contracts.design import Design
from rarehmm.model.model import Model
from rarehmm.model.stationary import stationary
from rarehmm.paper import Settings, Table
from rarehmm.paper.common import (
    BUFFER,
    COLOUR,
    EPSILON,
    HALF_WIDTH,
    Data,
    Parts,
    chain,
    designs,
    figure,
    kept,
    paper_model,
    random_starts,
    simulated,
)
from rarehmm.posterior.posterior import Draws, in_order
from rarehmm.posterior.prediction import held_out, held_out_so_far, state_densities
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows


class Size(NamedTuple):
    """Number of observations, the paper's step, and iterations from the clustering and from uninformed starts."""

    T: int
    epsilon: float
    early: int
    steps: int


# Ten times fewer observations with a step ten times larger leave the drift and the noise of a step unchanged.
QUICK, FULL = Size(100_000, 10 * EPSILON, 1_000, 4_000), Size(1_000_000, EPSILON, 10_000, 100_000)
STARTS, HELD, KEPT = 8, 200, 1_000  # uninformed starts, held-out observations per state, draws kept per chain
TASS, CLOSE, PRINTED = "TASS, counts", "TASS, counts, eta 1e-6", "TASS, as printed"
UNIFORM, SHARED = "uniform, 15 sets of one", "uniform, 15 shared"
COLOURED = {TASS: COLOUR["targeted"], PRINTED: COLOUR["printed"], UNIFORM: COLOUR["uniform"]}


class Case(NamedTuple):
    """A simulated series: transition matrix, means in ascending order, and the states whose parameters are compared."""

    transition: Array
    means: list[float]
    watched: list[int]
    seed: int


class Comparison(NamedTuple):
    """Results of the chains of each design.

    ``wild`` (starts, n, d) are draws from uninformed starts over ``steps`` iterations, ``near`` (n, d) those from the
    clustering over ``early`` iterations; ``density`` has the log predictive densities of held-out observations of each
    watched state from the first draws of ``near``, ``exact`` those at the truth.
    """

    data: Data
    model: Model
    made: dict[str, Design]
    wild: dict[str, Array]
    near: dict[str, Array]
    density: dict[str, list[Array]]
    exact: list[float]
    table: Table
    early: int
    steps: int
    needed: float


def compare(settings: Settings, case: Case) -> Comparison:
    """Run every design with 15 windows per iteration, from both kinds of start."""
    T, epsilon, early, steps = QUICK if settings.quick else FULL
    rng = np.random.default_rng(case.seed)
    data, model = simulated(rng, case.transition, case.means, T), paper_model(3)
    windows = Windows(data.train, HALF_WIDTH, BUFFER)
    made, estimate = designs(model, data.train, windows)
    close, _ = designs(model, data.train, windows, eta=1e-6)
    chosen = {TASS: made["targeted"], CLOSE: close["targeted"], PRINTED: made["printed"]}
    pools = {name: Pool(model, data.train, windows, design, 1) for name, design in chosen.items()}
    pools[UNIFORM] = Pool(model, data.train, windows, made["uniform"], 1, separate=True)
    pools[SHARED] = Pool(model, data.train, windows, made["uniform"], 15)
    starts, clustered = random_starts(rng, model, STARTS), model.pack(estimate)
    held = [rng.choice(data.test[data.test_states == k], HELD, replace=False) for k in case.watched]
    truth = Draws(data.truth.phi[None], data.truth.transition[None])
    exact = [held_out(state_densities(model, truth, y, k)) for y, k in zip(held, case.watched, strict=True)]
    parts = Parts(settings.on_progress, 2 * len(pools))
    wild, near, density, rows = {}, {}, {}, []
    for name, pool in pools.items():
        wild[name] = chain(1, model, pool, starts, steps, epsilon, thin=steps // KEPT, on_progress=parts.next())
        draws = chain(2, model, pool, clustered, early, epsilon, thin=early // KEPT, on_progress=parts.next())
        near[name] = kept(draws[0])
        soon = wild[name][:, : KEPT * early // steps]
        ordered = in_order(model, near[name])
        density[name] = [
            held_out_so_far(state_densities(model, ordered, y, k)) for y, k in zip(held, case.watched, strict=True)
        ]
        off = [float(np.abs(ordered.phi[:, k, 0] - case.means[k]).max()) for k in case.watched]
        arrived = [f"{found(model, case, d)} of {STARTS}" for d in (soon, wild[name])]
        rows.append([name, *arrived, *off, *(curve[-1] for curve in density[name])])
    rows.append(["at the truth", "", "", *([""] * len(case.watched)), *exact])
    names = [f"mu_{k + 1}" for k in case.watched]
    each = [f"{word} {name}" for word in ("distance of", "density,") for name in names]
    table = Table(
        f"T = {T:,}, epsilon = {epsilon:g}, L = 2, B = 5, 15 windows per iteration. Found: {', '.join(names)} "
        f"within 1 of the truth over the last fifth of {early:,} and of {steps:,} iterations, from {STARTS} uninformed "
        f"starts. Then, from the estimate of the clustering and over {early:,} iterations: the largest distance from "
        f"the truth, and the log predictive density of {HELD} held-out observations of the state.",
        ["design", f"found, {early:,}", f"found, {steps:,}", *each],
        rows,
    )
    distribution = stationary(case.transition)
    distance = max(abs(case.means[k]) for k in case.watched)
    needed = (distance - 1) ** 2 / (2 * epsilon * T * min(distribution[k] for k in case.watched))
    return Comparison(data, model, made, wild, near, density, exact, table, early, steps, needed)


def found(model: Model, case: Case, draws: Array) -> int:
    """Return how many chains (chains, n, d) have all watched means within 1 of the truth over their last fifth."""
    count = 0
    for last in draws[:, -(len(draws[0]) // 5) :]:
        if not np.isnan(last).any():
            off = in_order(model, last).phi[:, case.watched, 0] - np.array(case.means)[case.watched]
            count += bool((np.abs(off) < 1).all())
    return count


def arrival(c: Comparison) -> list[str]:
    """Return remarks on how many iterations the chains need, and which of them arrive, from this run's numbers."""
    late = {row[0]: row[2] for row in c.table.rows}
    return [
        "The paper shows curves without numbers and does not give its starts. While the mean of a state is u away from "
        "its n observations, its variance is near u^2, and an iteration moves the mean by epsilon n u / u^2. From "
        f"uninformed starts this takes u^2 / (2 epsilon n) iterations, about {c.needed:,.0f} here, even with an exact "
        "gradient (noise may bring a chain there sooner). The paper reports 1,000 to 2,000, which requires variances "
        "that stay near their initial values, as they do without the metric s^4.",
        f"After {c.steps:,} iterations with one window per component, TASS found it {late[TASS]} times (almost without "
        f"a uniform component {late[CLOSE]}, as printed {late[PRINTED]}) and uniform subsampling {late[UNIFORM]}; with "
        f"its 15 windows shared by all components, at the same cost, {late[SHARED]}.",
    ]


def draw(c: Comparison, case: Case, variances: bool = False) -> Any:
    """Plot the distance of the watched parameters from the truth against iterations, and held-out densities."""
    panels = [(k, i) for i in range(1 + variances) for k in case.watched]
    total = len(panels) + len(case.watched)
    made, axes = figure(total // 2, 2) if total > 4 else figure(total)
    for axis, (k, i) in zip(axes, panels, strict=False):
        true = 1.0 if i else case.means[k]
        for name in (UNIFORM, TASS):
            for number, draws in enumerate(c.wild[name]):
                value = in_order(c.model, kept(draws)).phi[:, k, i]
                at = np.arange(1, len(value) + 1) * (c.steps // len(draws))
                label = name.split(",")[0] if number == 0 else None
                axis.plot(at, np.abs(value - true), color=COLOURED[name], lw=0.8, alpha=0.7, label=label)
        axis.set(yscale="log", ylim=(1e-3, 1e3), xlabel="iteration", title=f"{STARTS} uninformed starts")
        axis.set_ylabel(f"|variance_{k + 1} - 1|" if i else f"|mu_{k + 1} - ({true:g})|")
        axis.axvline(c.early, color="0.6", lw=0.8, ls=":")
    axes[0].legend(fontsize=8, loc="lower left")
    for axis, k, number in zip(axes[len(panels) :], case.watched, range(9), strict=False):
        for name in (UNIFORM, PRINTED, TASS):
            curve = c.density[name][number]
            at = np.arange(1, len(curve) + 1) * (c.early // KEPT)
            axis.plot(at, curve, color=COLOURED[name], label=name.split(", 15")[0])
        axis.axhline(c.exact[number], color="0.5", lw=0.8, ls=":", label="at the truth")
        axis.set(xlabel="iteration, from the clustering", title=f"held-out observations of state {k + 1}")
        axis.set_ylabel("log predictive density")
    axes[-1].legend(fontsize=8)
    return made


def numbers(c: Comparison) -> dict[str, Any]:
    """Return all numbers for the JSON file."""
    return {"header": c.table.header, "rows": c.table.rows, "density": c.density, "needed": c.needed}
