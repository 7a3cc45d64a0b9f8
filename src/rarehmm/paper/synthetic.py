"""Shared by sections 4.1 to 4.3: chains on simulated series, their distance from the truth, held-out densities."""

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import fisher_exact

from rarehmm.common.arrays import Array
from rarehmm.model.model import Model
from rarehmm.model.stationary import stationary
from rarehmm.paper import Settings, Table
from rarehmm.paper.common import (
    BUFFER,
    COLOUR,
    EPSILON,
    HALF_WIDTH,
    MULTIPLES,
    WINDOWS,
    Data,
    Parts,
    Step,
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
QUICK, FULL = Size(100_000, 10 * EPSILON, 1_000, 2_000), Size(1_000_000, EPSILON, 10_000, 100_000)
STARTS, HELD, KEPT = 8, 200, 1_000  # uninformed starts, held-out observations per state, draws kept per chain
SIZES = (WINDOWS, 1)  # windows per component: S of the paper, and the fewest possible
TASS, CLOSE, PRINTED = "TASS, counts", "TASS, counts, eta 1e-6", "TASS, as printed"
UNIFORM, SHARED = "uniform", "uniform, shared"
COLOURED = {TASS: COLOUR["targeted"], PRINTED: COLOUR["printed"], UNIFORM: COLOUR["uniform"]}

Key = tuple[int, int, str]  # windows per component, multiple of epsilon, design


class Case(NamedTuple):
    """A simulated series: transition matrix, means in ascending order, and the states whose parameters are compared."""

    transition: Array
    means: list[float]
    watched: list[int]
    seed: int


class Arm(NamedTuple):
    """Chains of one design with one number of windows and one step.

    ``wild`` (starts, n, d) are draws from uninformed starts, ``near`` (n, d) those from the clustering; ``density`` has
    the log predictive densities of held-out observations of each watched state from the first draws of ``near``.
    ``found`` counts the uninformed starts that have arrived after ``early``, after ``steps`` and after ``length``
    iterations.
    """

    wild: Array
    near: Array
    density: list[Array]
    found: list[int]
    length: int


class Comparison(NamedTuple):
    """Results of all chains: ``exact`` are held-out densities at the truth, ``needed`` iterations by multiple."""

    data: Data
    model: Model
    arms: dict[Key, Arm]
    exact: list[float]
    tables: list[Table]
    early: int
    steps: int
    needed: dict[int, float]


def compare(settings: Settings, case: Case) -> Comparison:
    """Run every design with S windows per component, S = 10 and 1, with both steps and from both kinds of start."""
    T, epsilon, early, steps = size = QUICK if settings.quick else FULL
    rng = np.random.default_rng(case.seed)
    data, model = simulated(rng, case.transition, case.means, T), paper_model(3)
    windows = Windows(data.train, HALF_WIDTH, BUFFER)
    made, estimate = designs(model, data.train, windows)
    close, _ = designs(model, data.train, windows, eta=1e-6)
    chosen = {TASS: made["targeted"], CLOSE: close["targeted"], PRINTED: made["printed"]}
    starts, clustered = random_starts(rng, model, STARTS), model.pack(estimate)
    held = [rng.choice(data.test[data.test_states == k], HELD, replace=False) for k in case.watched]
    truth = Draws(data.truth.phi[None], data.truth.transition[None])
    exact = [held_out(state_densities(model, truth, y, k)) for y, k in zip(held, case.watched, strict=True)]
    parts, arms = Parts(settings.on_progress, 2 * len(SIZES) * len(MULTIPLES) * (len(chosen) + 2)), {}
    for S in SIZES:
        pools = {name: Pool(model, data.train, windows, design, S) for name, design in chosen.items()}
        pools[UNIFORM] = Pool(model, data.train, windows, made["uniform"], S, separate=True)
        pools[SHARED] = Pool(model, data.train, windows, made["uniform"], S * model.size)
        for multiple in MULTIPLES:
            h, length = Step(epsilon, multiple).size, iterations(steps, multiple)
            for name, pool in pools.items():
                wild = chain(1, model, pool, starts, length, h, thin=length // KEPT, on_progress=parts.next())
                draws = chain(2, model, pool, clustered, early, h, thin=early // KEPT, on_progress=parts.next())
                near = kept(draws[0])
                ordered = in_order(model, near)
                density = [
                    held_out_so_far(state_densities(model, ordered, y, k))
                    for y, k in zip(held, case.watched, strict=True)
                ]
                arrived = [count_found(model, case, wild[:, : KEPT * n // length]) for n in (early, steps, length)]
                arms[S, multiple, name] = Arm(wild, near, density, arrived, length)
    share = min(stationary(case.transition)[k] for k in case.watched)
    distance = max(abs(case.means[k]) for k in case.watched)
    needed = {m: (distance - 1) ** 2 / (m * epsilon * T * share) for m in MULTIPLES}
    tables = [table_of(model, case, size, S, arms, exact) for S in SIZES]
    return Comparison(data, model, arms, exact, tables, early, steps, needed)


def iterations(steps: int, multiple: int) -> int:
    """Return the length of a chain: with half the step, twice the iterations for the same distance."""
    return steps * max(MULTIPLES) // multiple


def table_of(model: Model, case: Case, size: Size, S: int, arms: dict[Key, Arm], exact: list[float]) -> Table:
    """Return the table of all chains with S windows per component."""
    T, epsilon, early, steps = size
    rows: list[list[Any]] = []
    for (windows, multiple, name), arm in arms.items():
        if windows == S:
            ordered = in_order(model, arm.near)
            off = [float(np.abs(ordered.phi[:, k, 0] - case.means[k]).max()) for k in case.watched]
            arrived = [f"{n} of {STARTS}" for n in arm.found]
            arrived[2:] = arrived[2:] if arm.length > steps else ["not run"]
            rows.append([Step(epsilon, multiple).rule, name, *arrived, *off, *(curve[-1] for curve in arm.density)])
    rows.append(["", "at the truth", "", "", "", *([""] * len(case.watched)), *exact])
    names, longest = [f"mu_{k + 1}" for k in case.watched], iterations(steps, 1)
    each = [f"{word} {name}" for word in ("distance of", "density,") for name in names]
    own = f"**S = {S}** window{'s' if S > 1 else ''} for each of the {model.size} components"
    return Table(
        f"{own}, {'as in' if S == WINDOWS else 'not as in'} the paper; T = {T:,}, epsilon = {epsilon:g}, "
        f"L = {HALF_WIDTH}, B = {BUFFER}. The last design shares its {S * model.size} windows among all components. "
        f"Found: {', '.join(names)} within 1 of the truth over the last fifth of {early:,}, of {steps:,} and (with the "
        f"smaller step) of {longest:,} iterations, from {STARTS} uninformed starts. Then, from the estimate of the "
        f"clustering and over {early:,} iterations: the largest distance from the truth, and the log predictive "
        f"density of {HELD} held-out observations of the state.",
        ["step", "design", *(f"found, {n:,}" for n in (early, steps, longest)), *each],
        rows,
    )


def count_found(model: Model, case: Case, draws: Array) -> int:
    """Return how many chains (chains, n, d) have all watched means within 1 of the truth over their last fifth."""
    count = 0
    for last in draws[:, -max(len(draws[0]) // 5, 1) :]:
        if not np.isnan(last).any():
            off = in_order(model, last).phi[:, case.watched, 0] - np.array(case.means)[case.watched]
            count += bool((np.abs(off) < 1).all())
    return count


# ---------------------------------------------------------------- remarks, from the numbers of the run
def arrival(c: Comparison) -> list[str]:
    """Return remarks on how many iterations the chains need, and which of them arrive, from this run's numbers."""
    return [
        "The paper shows curves without numbers and does not give its starts. While the mean of a state is u away from "
        "its n observations, its variance is near u^2, and a step h moves the mean by (h / 2) n u / u^2. From "
        "uninformed starts this takes u^2 / (h n) iterations even with an exact gradient (noise may bring a chain "
        f"there sooner): about {c.needed[1]:,.0f} here with Algorithm 1 and {c.needed[2]:,.0f} with the reference "
        "code. The paper reports 1,000 to 2,000, which requires variances far below u^2.",
        *(on_contrast(c, S, multiple) for S in SIZES for multiple in MULTIPLES),
    ]


def on_contrast(c: Comparison, S: int, multiple: int) -> str:
    """Return a remark on how often TASS and uniform subsampling arrive, and whether chance explains the difference."""
    late = {name: c.arms[S, multiple, name].found[-1] for name in (TASS, CLOSE, PRINTED, UNIFORM, SHARED)}
    return (
        f"S = {S}, {Step(0, multiple).rule}: over {iterations(c.steps, multiple):,} iterations uniform subsampling "
        f"finds it {late[UNIFORM]} of {STARTS} times; TASS with eta = 0.1 {against(late[TASS], late[UNIFORM])}; TASS "
        f"almost without a uniform component, as in the paper, {against(late[CLOSE], late[UNIFORM])}. With the printed "
        f"weights TASS finds it {late[PRINTED]} times, uniform subsampling with shared windows {late[SHARED]}."
    )


def against(ours: int, others: int) -> str:
    """Return how often a design arrives, and whether it differs from uniform subsampling (Fisher's exact test)."""
    p = float(fisher_exact(np.array([[ours, STARTS - ours], [others, STARTS - others]]))[1])
    verdict = "no clear difference" if p > 0.05 else "better" if ours > others else "worse"
    return f"{ours} of {STARTS} ({verdict}, Fisher's exact test: p = {p:.2g})"


# ---------------------------------------------------------------- figure
def draw(c: Comparison, case: Case, variances: bool = False) -> Any:
    """Plot the distance of watched parameters from the truth, and held-out densities, with Algorithm 1 as printed.

    The upper half has the chains with the paper's S, the lower half those with one window per component.
    """
    panels = [(k, i) for i in range(1 + variances) for k in case.watched]
    total = len(panels) + len(case.watched)
    columns = total // 2 if total > 4 else total
    made, axes = figure(columns, 2 * total // columns, height=2.8)
    for S, some in zip(SIZES, (axes[:total], axes[total:]), strict=True):
        for axis, (k, i) in zip(some, panels, strict=False):
            true = 1.0 if i else case.means[k]
            for name in (UNIFORM, TASS):
                for number, draws in enumerate(c.arms[S, 1, name].wild):
                    value = in_order(c.model, kept(draws)).phi[:, k, i]
                    at = np.arange(1, len(value) + 1) * (c.arms[S, 1, name].length // len(draws))
                    label = name.split(",")[0] if number == 0 else None
                    axis.plot(at, np.abs(value - true), color=COLOURED[name], lw=0.8, alpha=0.7, label=label)
            axis.set(yscale="log", ylim=(1e-3, 1e3), xlabel="iteration")
            axis.set_title(f"S = {S}: {STARTS} uninformed starts", fontsize=10)
            axis.set_ylabel(f"|variance_{k + 1} - 1|" if i else f"|mu_{k + 1} - ({true:g})|")
            axis.axvline(c.early, color="0.6", lw=0.8, ls=":")
        some[0].legend(fontsize=8, loc="lower left")
        for number, (axis, k) in enumerate(zip(some[len(panels) :], case.watched, strict=True)):
            for name in (UNIFORM, PRINTED, TASS):
                curve = c.arms[S, 1, name].density[number]
                at = np.arange(1, len(curve) + 1) * (c.early // KEPT)
                axis.plot(at, curve, color=COLOURED[name], label=name)
            axis.axhline(c.exact[number], color="0.5", lw=0.8, ls=":", label="at the truth")
            axis.set(xlabel="iteration, from the clustering", ylabel="log predictive density")
            axis.set_title(f"S = {S}: held-out, state {k + 1}", fontsize=10)
        some[-1].legend(fontsize=8)
    return made


def numbers(c: Comparison) -> dict[str, Any]:
    """Return all numbers for the JSON file."""
    arms = {f"S = {S}, {Step(0, m).rule}, {name}": arm for (S, m, name), arm in c.arms.items()}
    return {
        "tables": [{"caption": table.caption, "header": table.header, "rows": table.rows} for table in c.tables],
        "found": {name: arm.found for name, arm in arms.items()},
        "density": {name: arm.density for name, arm in arms.items()},
        "needed": c.needed,
    }
