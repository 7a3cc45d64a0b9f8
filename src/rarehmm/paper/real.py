"""Shared by sections 5.1 and 5.2 and appendix B: training, chains by design and step size, held-out densities."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, BoolArray
from rarehmm.data.series import Series
from rarehmm.engine.contracts.design import Design
from rarehmm.exact.em import Climb, climb
from rarehmm.model.model import Model
from rarehmm.model.parameters import Parameters
from rarehmm.model.simulation import simulate
from rarehmm.paper import Settings, Table
from rarehmm.paper.common import COLOUR, MULTIPLES, NAMES, Parts, Step, chain, designs, kept, paper_model, random_starts
from rarehmm.posterior.posterior import Draws, in_order
from rarehmm.posterior.prediction import held_out
from rarehmm.windows.gradients import mean_square_error, window_sums
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

STATES, KEPT = 4, 100  # K, and draws kept per chain
SHOWN = (KEPT * 4 // 5, KEPT * 9 // 10, KEPT)  # draws 4000, 4500 and 5000 of 5000, counted among those kept
QUICK, FULL = (500, 2, 20), (5_000, 4, 500)  # iterations per chain, chains per kind of start, EM steps
STEADY = 0.5  # epsilon n / s^2 of the common means in section 4.1
BOTH = ("uniform", "targeted")

Measure = Callable[[Model, Draws, Array], Array]
Cell = tuple[int, int, int]  # L, B, S


class Study(NamedTuple):
    """Real data and how predictions of them are scored.

    A training series, held-out sequences (n, m), ``measures`` of their log density (Z, n) under draws (the first is the
    main one), which observations are ``rare``, the state of the ``spikes`` in the order of means, and the paper's step.
    """

    train: Series
    held: Array
    measures: Mapping[str, Measure]
    rare: Callable[[Array], BoolArray]
    spikes: int
    epsilon: float

    @property
    def main(self) -> str:
        return next(iter(self.measures))

    def at(self, model: Model, point: Parameters) -> dict[str, float]:
        """Return the log predictive density at one point, by measure."""
        draw = Draws(point.phi[None], point.transition[None])
        return {name: held_out(measure(model, draw, self.held)) for name, measure in self.measures.items()}


class Training(NamedTuple):
    """A model with the windows of a series, their designs, and the clustering estimate that these are based on."""

    model: Model
    windows: Windows
    designs: dict[str, Design]
    estimate: Parameters


class Chains(NamedTuple):
    """Draws (chains, KEPT, d), and per measure and chain log densities (n, held-out sequences) before divergence."""

    draws: Array
    logs: dict[str, list[Array]]

    def settled(self, measure: str) -> list[float]:
        """Return the log predictive density from the last half of each chain; NaN if it diverged."""
        return [held_out(logs[KEPT // 2 :]) if len(logs) == KEPT else np.nan for logs in self.logs[measure]]

    def alone(self, measure: str) -> list[float]:
        """Return the mean log density under single draws of the last half of each chain; NaN if it diverged."""
        return [float(logs[KEPT // 2 :].mean()) if len(logs) == KEPT else np.nan for logs in self.logs[measure]]


class Arm(NamedTuple):
    """One design with one step: chains from the clustering, and from uninformed starts."""

    step: Step
    design: str
    near: Chains
    wild: Chains


class Comparison(NamedTuple):
    """The designs with every step, with tables and remarks."""

    study: Study
    model: Model
    arms: dict[tuple[Step, str], Arm]
    as_printed: tuple[Step, ...]
    steps: int
    tables: list[Table]
    remarks: list[str]
    numbers: dict[str, Any]


def iterations(settings: Settings) -> tuple[int, int]:
    """Return the iterations per chain, and the chains per kind of start."""
    return (QUICK if settings.quick else FULL)[:2]


def training(study: Study, half_width: int, buffer: int) -> Training:
    model, windows = paper_model(STATES), Windows(study.train, half_width, buffer)
    return Training(model, windows, *designs(model, study.train, windows))


def steepness(study: Study, estimate: Parameters) -> float:
    """Return the largest n / s^2: how fast the gradient of a mean grows with its distance from the optimum."""
    return float((len(study.train) * estimate.start / estimate.phi[:, 1]).max())


def both_epsilons(study: Study, estimate: Parameters) -> tuple[float, float]:
    """Return the paper's epsilon, and one scaled to the steepest mean as the paper's is to those of section 4.1."""
    return study.epsilon, STEADY / steepness(study, estimate)


def step_sizes(study: Study, estimate: Parameters) -> tuple[Step, ...]:
    """Return both epsilons, each as in Algorithm 1 and as in the reference code."""
    return tuple(Step(epsilon, m) for epsilon in both_epsilons(study, estimate) for m in MULTIPLES)


def sample(
    study: Study, t: Training, design: str, size: int, starts: Array, steps: int, step: Step, on_progress: Any
) -> Chains:
    """Run chains with ``size`` windows for every component of theta."""
    pool = Pool(t.model, study.train, t.windows, t.designs[design], size, separate=True)
    draws = chain(5, t.model, pool, starts, steps, step.size, thin=steps // KEPT, on_progress=on_progress)
    ordered, none = [in_order(t.model, kept(chain)) for chain in draws], np.empty((0, len(study.held)))
    logs = {
        name: [measure(t.model, chain, study.held) if len(chain.phi) else none for chain in ordered]
        for name, measure in study.measures.items()
    }
    return Chains(draws, logs)


def finite_values(values: Sequence[float]) -> list[float]:
    return [v for v in values if not np.isnan(v)]


def spread(values: Sequence[float]) -> str:
    """Return the median and range over chains, and how many diverged."""
    finite = finite_values(values)
    if not finite:
        return "diverged"
    lost = f"; {len(values) - len(finite)} of {len(values)} diverged" if len(finite) < len(values) else ""
    return f"{np.median(finite):.2f} ({min(finite):.2f} to {max(finite):.2f}{lost})"


# ---------------------------------------------------------------- sections 5.1 and 5.2
def compare(settings: Settings, study: Study, cell: Cell, paper: dict[str, float]) -> Comparison:
    """Run every design with every step from both kinds of start, and compare with the paper's densities."""
    (half_width, buffer, size), rng = cell, np.random.default_rng(51)
    t, (steps, count, climbs) = training(study, half_width, buffer), QUICK if settings.quick else FULL
    moves = step_sizes(study, t.estimate)
    top = climb(t.model, study.train, t.estimate, steps=climbs, tolerance=1.0)
    starts = np.tile(t.model.pack(t.estimate), (count, 1)), random_starts(rng, t.model, count)
    parts, arms = Parts(settings.on_progress, 2 * len(moves) * len(NAMES)), {}
    for step in moves:
        for design in NAMES:
            near, wild = (sample(study, t, design, size, s, steps, step, parts.next()) for s in starts)
            arms[step, design] = Arm(step, design, near, wild)
    noise = {
        "at the clustering": errors(study, t, t.estimate, size),
        "after EM": errors(study, t, top.parameters, size),
    }
    rows = references(study, t, top, rng) + [arm_row(study, t.model, arm, paper, rng) for arm in arms.values()]
    each = [f"{m}, {start}" for m in study.measures for start in ("from the clustering", "uninformed starts")]
    tables = [
        Table(
            f"{len(study.train):,} training observations, K = {STATES}, L = {half_width}, B = {buffer}, "
            f"S = {size} windows for each of {t.model.size} components, {steps:,} iterations. Log predictive densities "
            f"of {len(study.held):,} held-out sequences from the last half of the draws, median (and range) over "
            f"{count} chains; single draws: the mean of the log densities under each draw alone, from the clustering. "
            "Spikes: their share of the time and the number of onsets, in series simulated from draws "
            f"{', '.join(f'{z * steps // KEPT:,}' for z in SHOWN)} of the first chain from the clustering.",
            [
                "epsilon",
                "step",
                "design",
                "paper",
                *each,
                f"{study.main}, single draws",
                "time in spikes",
                "starts of spikes",
            ],
            rows,
        ),
        Table(
            f"Exact root mean square error of the gradient of each mean with {size} windows.",
            ["mean", *(f"{NAMES[d]}, {where}" for where in noise for d in NAMES)],
            [
                [f"{t.estimate.phi[k, 0]:.2f}", *(f"{noise[where][d][k]:,.0f}" for where in noise for d in NAMES)]
                for k in range(STATES)
            ],
        ),
    ]
    remarks = [
        on_steps(study, t.estimate),
        *(on_designs(study, arms[step, "targeted"], arms[step, "uniform"], paper) for step in moves),
        on_averages(study, list(arms.values())),
        on_climb(study, t, top),
        on_errors(study, noise),
    ]
    curves = {
        f"{arm.design}, {arm.step.label}": [curve(logs) for logs in arm.near.logs[study.main]] for arm in arms.values()
    }
    numbers = {"header": tables[0].header, "rows": rows, "errors": noise, "curves": curves}
    as_printed = tuple(step for step in moves if step.multiple == 1)
    return Comparison(study, t.model, arms, as_printed, steps, tables, remarks, numbers)


def references(study: Study, t: Training, top: Climb, rng: np.random.Generator) -> list[list[Any]]:
    """Return rows for the series itself, the clustering estimate, and the end of EM from there."""
    size = len(study.train)
    original = ["", "", "original series", "", *["", ""] * len(study.measures), ""]
    rows: list[list[Any]] = [[*original, *habits(study, [study.train.read(0, size)[:, 0]])]]
    for name, point in (("clustering", t.estimate), (f"{len(top.trace)} EM steps from it", top.parameters)):
        logs, series = study.at(t.model, point), simulate(rng, t.model, point, size)[0]
        cells = [cell for value in logs.values() for cell in (value, "")]
        rows.append(["", "", name, "", *cells, logs[study.main], *habits(study, [series])])
    return rows


def arm_row(study: Study, model: Model, arm: Arm, paper: dict[str, float], rng: np.random.Generator) -> list[Any]:
    cells = [spread(some.settled(m)) for m in study.measures for some in (arm.near, arm.wild)]
    there = f"{paper[arm.design]:.2f}" if arm.design in paper else ""
    series = predicted(rng, model, arm.near.draws[0], len(study.train))
    alone = spread(arm.near.alone(study.main))
    return [f"{arm.step.epsilon:.2g}", arm.step.rule, NAMES[arm.design], there, *cells, alone, *habits(study, series)]


def predicted(rng: np.random.Generator, model: Model, draws: Array, size: int) -> list[Array]:
    """Simulate series from the draws SHOWN of one chain (KEPT, d), leaving out draws after a divergence."""
    points = [draws[z - 1] for z in SHOWN if not np.isnan(draws[z - 1]).any()]
    return [simulate(rng, model, model.unpack(theta), size)[0] for theta in points]


def habits(study: Study, series: list[Array]) -> list[str]:
    """Return the share of time in spikes and the number of onsets, for each series."""
    rare = [study.rare(y) for y in series]
    if not rare:
        return ["diverged", "diverged"]
    onsets = [np.count_nonzero(r[1:] & ~r[:-1]) for r in rare]
    return [", ".join(f"{r.mean():.2%}" for r in rare), "; ".join(f"{n:,}" for n in onsets)]


def errors(study: Study, t: Training, point: Parameters, size: int) -> dict[str, Array]:
    """Return the root mean square error (K,) of the gradient of the means under each design, with ``size`` windows."""
    means = window_sums(t.model, point, study.train, t.windows).scores[:, :, 0]  # (N, K)
    return {d: np.sqrt(mean_square_error(means, made.probabilities[:STATES]) / size) for d, made in t.designs.items()}


def curve(logs: Array) -> tuple[Array, Array]:
    """Return fractions z / KEPT of a chain, and the log predictive densities from draws z / 2 to z."""
    at = np.arange(2, len(logs) + 1, 2)
    return at / KEPT, np.array([held_out(logs[z // 2 : z]) for z in at])


def draw_curves(axis: Any, c: Comparison, step: Step) -> None:
    """Plot held-out density against iteration for every chain from the clustering."""
    for design in BOTH:
        for i, logs in enumerate(c.arms[step, design].near.logs[c.study.main]):
            at, values = curve(logs)
            axis.plot(at * c.steps, values, color=COLOUR[design], lw=1.1, label=NAMES[design] if i == 0 else None)
    axis.set(xlabel="iteration", ylabel="log predictive density")
    axis.set_title(f"held-out spikes, from the clustering, epsilon {step.epsilon:.2g}", fontsize=10)
    axis.legend(fontsize=8)


# ---------------------------------------------------------------- remarks, from the numbers of the run
def on_steps(study: Study, estimate: Parameters) -> str:
    given, steady = both_epsilons(study, estimate)
    slopes = [Step(given, m).size / 2 * steepness(study, estimate) for m in MULTIPLES]
    verdict = (
        "above 2, as long as the variance is s^2, even an exact gradient moves the mean further away at each "
        "iteration, so this epsilon does not suit these data"
        if min(slopes) > 2
        else "below 2, an exact gradient brings the mean back"
        if max(slopes) < 2
        else "below 2, an exact gradient brings the mean back; above, it moves the mean further away at each iteration"
    )
    return (
        "The paper gives neither step size nor start for its real data. A step h moves the mean of a state with n "
        "observations by (h / 2) n / s^2 times its distance from them. With the epsilon of section 4, here "
        f"{given:.2g}, that factor is {slopes[0]:.3g} for the steepest mean at the estimate of the clustering with "
        f"Algorithm 1 as printed, and {slopes[1]:.3g} with the reference code: {verdict}. The second epsilon, "
        f"{steady:.2g}, makes epsilon n / s^2 equal to {STEADY}, as in section 4.1."
    )


def on_designs(study: Study, targeted: Arm, uniform: Arm, paper: dict[str, float]) -> str:
    head = f"With {uniform.step.label} and from the clustering,"
    ours, others = (finite_values(arm.near.settled(study.main)) for arm in (targeted, uniform))
    if not ours or not others:
        lost = [NAMES[arm.design] for arm, left in ((targeted, ours), (uniform, others)) if not left]
        return f"{head} all chains diverged under {' and '.join(lost)}."
    by, theirs = float(np.median(ours) - np.median(others)), paper["targeted"] - paper["uniform"]
    ranges = "do not overlap" if min(ours) > max(others) or min(others) > max(ours) else "overlap"
    return (
        f"{head} the {study.main} of TASS with counts is {abs(by):.2f} {'above' if by > 0 else 'below'} that of "
        f"uniform subsampling (in the paper: {theirs:.2f} above); the ranges over chains {ranges}."
    )


def on_averages(study: Study, arms: list[Arm]) -> str:
    scored = [
        (float(np.median(values)), arm) for arm in arms if (values := finite_values(arm.near.settled(study.main)))
    ]
    if not scored:
        return "All chains from the clustering diverged."
    best, arm = max(scored, key=lambda pair: pair[0])
    alone = float(np.nanmedian(arm.near.alone(study.main)))
    text = (
        f"The largest {study.main} from the clustering, {best:.2f}, is that of {NAMES[arm.design]} with "
        f"{arm.step.label}; under its single draws it is {alone:.2f}."
    )
    if best - alone > 1:
        text += (
            " Eq. (11) averages densities over draws before taking logarithms. Where draws disagree, each spike is "
            "scored by the few that suit it, so a chain that wanders looks better than one that stays."
        )
    return text


def on_climb(study: Study, t: Training, top: Climb) -> str:
    before, after = (study.at(t.model, point)[study.main] for point in (t.estimate, top.parameters))
    k, old, new = study.spikes, t.estimate, top.parameters
    gain = top.log_posterior - top.trace[0]
    text = (
        f"{len(top.trace)} EM steps from the clustering raise the log posterior by {gain:,.0f}. They move the mean of "
        f"the spikes' state from {old.phi[k, 0]:.2f} to {new.phi[k, 0]:.2f}, its share of time from {old.start[k]:.1%} "
        f"to {new.start[k]:.1%}, and the {study.main} of the held-out spikes from {before:.2f} to {after:.2f}."
    )
    if after < before:
        text += (
            " The posterior seems to use four Gaussian states for the bulk of the series, not for the spikes: the path "
            "from the clustering to this mode makes their prediction worse, and a chain that lags behind looks better."
        )
    return text


def on_errors(study: Study, noise: dict[str, dict[str, Array]]) -> str:
    ratio = {where: float(e["targeted"][study.spikes] / e["uniform"][study.spikes]) for where, e in noise.items()}
    each = " and ".join(f"{value:.2g} times {where}" for where, value in ratio.items())
    text = f"Relative to uniform subsampling, the error of TASS for the gradient of the spikes' mean is {each}."
    if max(ratio.values()) > 1:
        text += (
            " States overlap, and presumably the observations of a state given the series are not those that the "
            "clustering assigns to it: windows that TASS rarely draws matter too, and have large weights when drawn."
        )
    return text
