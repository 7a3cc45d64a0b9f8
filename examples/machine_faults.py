"""Several machines, gaps in their logs, and prior knowledge of levels and transitions.

Vibration of five machines.  A healthy machine has mean 1 by calibration.  It wears before it fails, and is repaired
only after it has failed, so some transitions never happen.
"""

import numpy as np

from rarehmm import Gaussian, Model, RareHMM, paper_priors, simulate

HEALTHY, WORN, FAULTY = 0, 1, 2
rng = np.random.default_rng(2)
true_model = Model(Gaussian(), 3, paper_priors(Gaussian()))
truth = true_model.parameters(
    [[0.995, 0.005, 0.0], [0.0, 0.97, 0.03], [0.2, 0.0, 0.8]], mean=[1.0, 2.0, 5.0], variance=[0.1, 0.2, 1.0]
)
logs, states = zip(*(simulate(rng, true_model, truth, 4000) for _ in range(5)), strict=True)
for log in logs:
    log[rng.integers(3900) :][:50] = np.nan  # the sensor was off

transition = [[None, None, 0], [0, None, None], [None, 0, None]]  # 0: never happens
hmm = RareHMM(3, fixed={"mean": [1.0, None, None], "transition": transition}).fit(list(logs))
print(hmm.summary())
path = hmm.predict(list(logs))
fit = hmm.check(list(logs))
print(fit)

assert hmm.means_[HEALTHY, 0] == 1.0
assert hmm.transmat_[HEALTHY, FAULTY] == hmm.transmat_[WORN, HEALTHY] == hmm.transmat_[FAULTY, WORN] == 0.0
assert FAULTY in hmm.rare_states_
low, high = hmm.summary().loc["mean[2]", ["5.0%", "95.0%"]]
assert low - 0.1 < 5.0 < high + 0.1
assert np.mean(path == np.concatenate(states)) > 0.97
assert fit.passed
