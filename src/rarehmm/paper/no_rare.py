"""Section 4.3: no rare state.  Held-out densities of all three states, and the divergence of weights from uniform."""

from typing import Any

import numpy as np

from rarehmm.common.arrays import Array
from rarehmm.paper import Outcome, Settings, Table
from rarehmm.paper.common import BUFFER, HALF_WIDTH, NO_RARE, SINGLE_RARE, designs, paper_model, simulated
from rarehmm.paper.synthetic import Case, arrival, compare, draw, numbers
from rarehmm.windows.windows import Windows

TITLE = "Section 4.3: no rare state"
MINUTES = 8
DATA = None
CASE = Case(NO_RARE, [-20.0, 0.0, 20.0], watched=[0, 1, 2], seed=43)
PAPER = {"single rare": 3.68, "no rare": 1.08}


def divergence(p: Array) -> float:
    """Return the Kullback-Leibler divergence of probabilities (N,) from the uniform distribution."""
    positive = p[p > 0]
    return float(np.sum(positive * np.log(positive * len(p))))


def reproduce(settings: Settings) -> Outcome:
    result = compare(settings, CASE)
    rng, T = np.random.default_rng(44), len(result.data.train)
    model = paper_model(3)
    rows: list[list[Any]] = []
    for name, transition in (("single rare", SINGLE_RARE), ("no rare", NO_RARE)):
        series = simulated(rng, transition, CASE.means, T).train
        windows = Windows(series, HALF_WIDTH, BUFFER)
        each = [designs(model, series, windows, eta)[0][kind] for eta in (0.0, 0.1) for kind in ("targeted", "printed")]
        rows.append([name, PAPER[name], *(divergence(design.probabilities[2]) for design in each)])
    table = Table(
        "Kullback-Leibler divergence of the weights for mu_3 from the uniform distribution.",
        ["series", "paper", "counts", "printed", "counts, eta .1", "printed, eta .1"],
        rows,
    )
    remarks = [
        *arrival(result),
        "The paper's divergences are those of counts without a uniform component: its numbers come from counts, not "
        "from the printed weights."
        if abs(rows[0][2] - rows[0][1]) < abs(rows[0][3] - rows[0][1])
        else "The printed weights are closer to the paper's divergences than counts.",
    ]
    return Outcome([*result.tables, table], remarks, draw(result, CASE), numbers(result) | {"divergence": rows})
