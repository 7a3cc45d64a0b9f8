"""The paper's sampler beside the default one: the same mean, and an uncertainty that is not the same.

Targeted windows find the parameters of the rare state where uniform ones do not.  Nothing in the paper's sampler
corrects for the noise of its gradients, so that its intervals are too wide; this library says so.
"""

import warnings

import numpy as np

from rarehmm import Gaussian, Model, RareHMM, paper_priors, simulate

nature = Model(Gaussian(), 3, paper_priors(Gaussian()))
rows = [[0.99, 0.005, 0.005], [0.005, 0.99, 0.005], [0.495, 0.495, 0.01]]
truth = nature.parameters(rows, mean=[-20.0, 0.0, 20.0], variance=1.0)
y, _ = simulate(np.random.default_rng(5), nature, truth, 50_000)

best = RareHMM(3).fit(y)
with warnings.catch_warnings(record=True) as given:
    warnings.simplefilter("always")
    paper = RareHMM(3, method="tass", n_draws=100).fit(y)
wide = paper.summary().loc["mean[0]", "sd"] / best.summary().loc["mean[0]", "sd"]
print(f"{best.posterior_.method}: {best.verdict_}")
print(f"tass: {paper.verdict_}")
print(f"standard deviation of the common mean: {wide:.1f} times that of the default")

assert abs(best.means_[2, 0] - 20) < 0.3
assert abs(paper.means_[2, 0] - 20) < 0.5
assert wide > 2
assert best.verdict_.startswith("All checks passed.")
assert any("Do not trust" in str(w.message) for w in given)
