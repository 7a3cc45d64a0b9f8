"""Series on which the default sampler is calibrated: name, model, true parameters, whether Gibbs sampling mixes."""

from typing import NamedTuple

import numpy as np

import rarehmm as rh

SINGLE = np.array([[0.99, 0.005, 0.005], [0.005, 0.99, 0.005], [0.495, 0.495, 0.01]])
RARER = np.array([[0.9895, 0.01, 0.0005], [0.01, 0.9895, 0.0005], [0.45, 0.45, 0.1]])


class Case(NamedTuple):
    family: object
    transition: np.ndarray
    emission: dict
    separated: bool  # Gibbs sampling is then a good reference
    size: int = 100_000


def ladder(K):
    """K - 1 common states 3 apart, and a rare one 6 above the last."""
    common = 3.0 * (np.arange(K - 1) - (K - 2) / 2)
    transition = np.full((K, K), 0.01 / (K - 2))
    np.fill_diagonal(transition, 1 - 0.01 - 0.001)
    transition[:, -1] = 0.001
    transition[-1] = 0.2 / (K - 1)
    transition[-1, -1] = 0.8
    return Case(rh.Gaussian(), transition, {"mean": [*common, common[-1] + 6], "variance": 1}, False)


def volatility(factor, stay):
    """Equal means, variances apart by a factor, slow changes."""
    transition = [[stay, 1 - stay], [1 - stay, stay]]
    return Case(rh.Gaussian(), np.array(transition), {"mean": [0, 0], "variance": [1, factor]}, False)


CASES = {
    "single rare": Case(rh.Gaussian(), SINGLE, {"mean": [-20, 0, 20], "variance": 1}, True),
    "two rare": Case(
        rh.Gaussian(),
        np.array([[0.999, 0.0005, 0.0005], [0.1, 0.9, 0.0], [0.1, 0.0, 0.9]]),
        {"mean": [0, -20, 20], "variance": 1},
        True,
    ),
    "overlap": Case(rh.Gaussian(), SINGLE, {"mean": [-2, 0, 2], "variance": 1}, False),
    "overlap, sticky": Case(
        rh.Gaussian(),
        np.array([[0.99, 0.009, 0.001], [0.009, 0.99, 0.001], [0.1, 0.1, 0.8]]),
        {"mean": [-2, 0, 2], "variance": 1},
        False,
    ),
    "very rare": Case(
        rh.Gaussian(),
        np.array([[0.9898, 0.01, 0.0002], [0.01, 0.9898, 0.0002], [0.25, 0.25, 0.5]]),
        {"mean": [-20, 0, 20], "variance": 1},
        True,
    ),
    "Student-t": Case(rh.StudentT(5), SINGLE, {"mean": [-20, 0, 20], "scale2": 1}, False),
    "Poisson": Case(
        rh.Poisson(),
        np.array([[0.98, 0.0175, 0.0025], [0.0175, 0.98, 0.0025], [0.1, 0.1, 0.8]]),
        {"rate": [1, 5, 40]},
        False,
    ),
    "K = 4": ladder(4),
    "K = 5": ladder(5),
    "K = 6": ladder(6),
    "K = 8": ladder(8),
    "volatility 5, .9": volatility(5, 0.9),
    "volatility 5, .995": volatility(5, 0.995),
    "volatility 20, .9": volatility(20, 0.9),
    "volatility 20, .995": volatility(20, 0.995),
    "T = 1.5e6": Case(rh.Gaussian(), SINGLE, {"mean": [-5, 0, 5], "variance": 1}, True, 1_500_000),
    "T = 1e4, 60 rare": Case(rh.Gaussian(), SINGLE, {"mean": [-5, 0, 5], "variance": 1}, False, 10_000),
    "T = 1e4, 6 rare": Case(rh.Gaussian(), RARER, {"mean": [-5, 0, 5], "variance": 1}, False, 10_000),
    "T = 3e3, 20 rare": Case(rh.Gaussian(), SINGLE, {"mean": [-5, 0, 5], "variance": 1}, False, 3_000),
    "T = 1e3, 6 rare": Case(rh.Gaussian(), SINGLE, {"mean": [-5, 0, 5], "variance": 1}, False, 1_000),
}


def simulated(case, seed):
    """Model with default priors, series and true parameters."""
    names = len(case.family.parameters)
    shell = rh.Model(case.family, len(case.transition), rh.Priors((rh.Flat(),) * names))
    truth = shell.parameters(case.transition, **case.emission)
    series = rh.Series(rh.simulate(np.random.default_rng([seed, 4]), shell, truth, case.size)[0])
    priors = rh.default_priors(case.family, len(case.transition), series)
    return rh.Model(case.family, len(case.transition), priors), series, truth
