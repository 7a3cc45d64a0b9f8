"""How many states are there, and is the rare one a regime or the tail of another?

Both series contain a few large values: in one they are consecutive and form a regime, in the other they are the heavy
tail of the noise.
"""

import numpy as np

from rarehmm import RareHMM, select_n_components

rng = np.random.default_rng(4)
regime = rng.normal(0, 1, 10_000)
for begin in (2_000, 5_000, 8_000):
    regime[begin : begin + 30] = rng.normal(6, 1, 30)
tail = rng.standard_t(3, 10_000)

for name, y in (("regime", regime), ("tail", tail)):
    hmm = RareHMM(n_components=2, n_draws=200).fit(y)
    print(name, *(f"state {r.state}: {r.kind}, {r.message}" for r in hmm.regimes_), sep="\n  ")
    print(" ", hmm.check(y))
    assert (len(hmm.rare_states_) == 1) == (name == "regime")

choice = select_n_components(regime, range(1, 4))
print(choice.describe())
assert choice.best == 2
