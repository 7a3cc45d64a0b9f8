"""The paper's failure and its cure: one rare state in a million observations, starts that know nothing.

With one window for each component an iteration, targeted sub-sampling finds the rare mean and uniform sub-sampling does
not.  100,000 iterations: with fewer even the exact gradient has not arrived (see ``paper.synthetic.arrival``).
"""

import numpy as np
import pytest

from rarehmm.paper.common import SINGLE_RARE, chain, designs, paper_model, random_starts, simulated
from rarehmm.paper.synthetic import Case, count_found
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

CASE = Case(SINGLE_RARE, [-20.0, 0.0, 20.0], watched=[2], seed=0)


@pytest.mark.nightly
@pytest.mark.jit
def test_targeted_windows_find_the_rare_state_and_uniform_ones_do_not():
    """With the reference code's step, 2 epsilon."""
    rng, model = np.random.default_rng(7), paper_model(3)
    series = simulated(rng, CASE.transition, CASE.means, 1_000_000).train
    windows = Windows(series, 2, 5)
    made, _ = designs(model, series, windows)
    starts, arrived = random_starts(rng, model, 8), {}
    for name in ("targeted", "uniform"):
        pool = Pool(model, series, windows, made[name], 1, separate=True)
        draws = chain(1, model, pool, starts, 100_000, 2e-6, thin=100)
        arrived[name] = count_found(model, CASE, draws)
    assert arrived["targeted"] >= 6
    assert arrived["uniform"] <= 2
