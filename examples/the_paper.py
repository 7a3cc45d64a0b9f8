"""The paper's sampler and the default one: the same means, but different uncertainty.

Targeted windows find the parameters of the rare state where uniformly sampled ones do not.  But the paper's sampler
does not correct for gradient noise, so its intervals are too wide, and the library warns about it.
"""

import warnings

import numpy as np

from rarehmm import Gaussian, Model, RareHMM, paper_priors, simulate

true_model = Model(Gaussian(), 3, paper_priors(Gaussian()))
rows = [[0.99, 0.005, 0.005], [0.005, 0.99, 0.005], [0.495, 0.495, 0.01]]
truth = true_model.parameters(rows, mean=[-20.0, 0.0, 20.0], variance=1.0)
y, _ = simulate(np.random.default_rng(5), true_model, truth, 50_000)

default = RareHMM(3).fit(y)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    paper = RareHMM(3, method="tass", n_draws=100).fit(y)
ratio = paper.summary().loc["mean[0]", "sd"] / default.summary().loc["mean[0]", "sd"]
print(f"{default.posterior_.method}: {default.verdict_}")
print(f"tass: {paper.verdict_}")
print(f"standard deviation of the common mean: {ratio:.1f} times that of the default")

assert abs(default.means_[2, 0] - 20) < 0.3
assert abs(paper.means_[2, 0] - 20) < 0.5
assert ratio > 2
assert all(check.passed for check in default.posterior_.checks)
assert any(paper.posterior_.verdict in str(w.message) for w in caught)
