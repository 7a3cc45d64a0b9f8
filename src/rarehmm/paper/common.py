"""Shared by the experiments: the paper's models, designs, initial values and chains.

Step sizes: a step h moves by ``(h / 2) g + sqrt(h) xi``.  The paper's Algorithm 1, as printed, has h = epsilon; its
reference code moves by ``epsilon g + sqrt(2 epsilon) xi``, which is h = 2 epsilon.  Experiments run both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rarehmm.common.arrays import Array, IntArray
from rarehmm.data.series import Series
from rarehmm.designs.printed import printed
from rarehmm.designs.targeted import targeted
from rarehmm.designs.uniform import uniform
from rarehmm.emissions.gaussian import Gaussian
from rarehmm.engine.contracts.design import Design
from rarehmm.engine.contracts.sampler import DivergedError
from rarehmm.model.coordinates import ExpandedMean
from rarehmm.model.model import Model
from rarehmm.model.named_priors import paper_priors
from rarehmm.model.parameters import Parameters
from rarehmm.model.simulation import simulate
from rarehmm.model.stationary import from_paper
from rarehmm.plots import COLOURS
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.sampling.chains import run
from rarehmm.search.labels import from_labels, kmeans_labels
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.label_sums import label_sums
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

EPSILON = 1e-6  # the paper's step
HALF_WIDTH, BUFFER, WINDOWS = 2, 5, 10  # L, B, S of section 4.1

SINGLE_RARE = from_paper(np.array([[0.990, 0.005, 0.495], [0.005, 0.990, 0.495], [0.005, 0.005, 0.010]]))
TWO_RARE = from_paper(np.array([[0.9990, 0.1000, 0.1000], [0.0005, 0.9000, 0.0000], [0.0005, 0.0000, 0.9000]]))
NO_RARE = from_paper(np.array([[0.990, 0.005, 0.005], [0.005, 0.990, 0.005], [0.005, 0.005, 0.990]]))

NAMES = {"targeted": "TASS, counts", "printed": "TASS, as printed", "uniform": "uniform"}
COLOUR = {"targeted": COLOURS[0], "printed": COLOURS[1], "uniform": COLOURS[2]}


class Step(NamedTuple):
    """A step of the paper's sampler: its epsilon, and how many epsilons a step takes."""

    epsilon: float
    multiple: int

    @property
    def size(self) -> float:
        """The step size h."""
        return self.multiple * self.epsilon

    @property
    def rule(self) -> str:
        """Where the multiple is from."""
        return {1: "Algorithm 1: epsilon", 2: "reference code: 2 epsilon"}[self.multiple]

    @property
    def label(self) -> str:
        """Both in words."""
        return f"epsilon = {self.epsilon:.2g} ({self.rule})"


MULTIPLES = (1, 2)  # Algorithm 1 as printed, and the reference code


def paper_model(K: int) -> Model:
    """Return the paper's model: Gaussian emissions, its priors, untransformed variances and expanded means."""
    family = Gaussian()
    return Model(family, K, paper_priors(family), coordinates=ExpandedMean(), logs=False)


class Data(NamedTuple):
    """A training series, and a test series with its states."""

    truth: Parameters
    train: Series
    test: Array
    test_states: IntArray


def simulated(rng: np.random.Generator, transition: Array, means: list[float], T: int) -> Data:
    """Simulate T training and T test observations from three states with variance 1."""
    model = paper_model(3)
    truth = model.parameters(transition, mean=means, variance=1.0)
    y, states = simulate(rng, model, truth, 2 * T)
    return Data(truth, Series(y[:T]), y[T:], states[T:])


def designs(model: Model, series: Series, windows: Windows, eta: float = 0.1) -> tuple[dict[str, Design], Parameters]:
    """Return the designs by name, and the estimate from k-means labels that they are based on."""
    labels = kmeans_labels(series, model.n_states)
    estimate = from_labels(model, series, labels)
    sums = label_sums(model, estimate, series, windows, labels)
    info = WindowInformation(model, model.pack(estimate), series, windows, sums=sums)
    found = {
        "targeted": targeted(info, eta=eta),
        "printed": printed(info, eta=eta),
        "uniform": uniform(windows),
    }
    return found, estimate


def random_starts(rng: np.random.Generator, model: Model, count: int) -> Array:
    """Return uninformed starts (count, d): means near -1, 0, 1, variances 10, random transition matrices."""
    K = model.n_states
    centres = np.arange(K) - (K - 1) / 2
    points = [
        model.parameters(rng.dirichlet(np.ones(K), K), mean=centres + 0.1 * rng.standard_normal(K), variance=10.0)
        for _ in range(count)
    ]
    return np.array([model.pack(p) for p in points])


def chain(
    seed: int,
    model: Model,
    pool: Pool,
    start: Array,
    steps: int,
    step_size: float,
    *,
    thin: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> Array:
    """Run the paper's sampler; return draws (chains, steps // thin, d), NaN after a divergence."""
    try:
        rng, sampler = np.random.default_rng(seed), ExpandedMeanSgld(step_size)
        return run(rng, sampler, model, pool, start, steps, thin=thin, on_progress=on_progress)
    except DivergedError as error:
        return error.draws


def kept(draws: Array) -> Array:
    """Return the draws (n, d) before a divergence."""
    return np.asarray(draws[~np.isnan(draws).any(-1)])


class Parts:
    """Splits a progress callback among the parts of an experiment, each with its own ``done`` and ``total``."""

    def __init__(self, on_progress: Callable[[int, int], None], count: int) -> None:
        self.on_progress, self.count, self.number = on_progress, count, 0

    def next(self) -> Callable[[int, int], None]:
        """Return the progress callback of the next part."""
        before = self.number
        self.number += 1
        return lambda done, total: self.on_progress(int(1000 * (before + done / max(total, 1))), 1000 * self.count)


def figure(columns: int, rows: int = 1, width: float = 4.2, height: float = 3.2) -> tuple[Any, list[Any]]:
    """Return an empty figure and its axes, row by row."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = made.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return made, axes
