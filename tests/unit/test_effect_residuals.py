"""Residuals where rows differ: beside the enumeration of all paths, and on simulated series."""

import math
import zlib
from dataclasses import replace

import numpy as np
import oracle_regimes
import pytest
from oracle_regimes import enumerate_regimes
from regime_cases import as_model, covering, label, make_case
from scipy.special import ndtr, stdtr
from scipy.stats import kstest

import rarehmm as rh
from rarehmm.engine.contracts.family import hook
from rarehmm.posterior.residuals import check_residuals, pseudo_residuals


def beginning(case, T):
    """The first T rows of a case; the state of the last of them is unknown."""
    rows = ("y", "shared_x", "switching_x", "scale_x", "z", "states")
    parts = {name: getattr(case, name)[:T] for name in rows if getattr(case, name) is not None}
    parts["states"] = np.append(parts["states"][:-1], -1)
    inside = np.cumsum(case.lengths) - case.lengths < T
    lengths = np.diff([*(np.cumsum(case.lengths) - case.lengths)[inside], T])
    return replace(case, lengths=lengths, **parts)


def slow_distribution_function(monkeypatch, case, t):
    """P(Y_t <= y_t) given the rows before, by the enumeration of all paths up to it; NaN if the row does not count."""
    if np.isnan(case.y[t]):
        return math.nan
    until, counts = beginning(case, t + 1), []
    original = oracle_regimes.log_density_at

    def log_cdf(case, residual, scale):
        counts.append(True)
        return float(np.log((ndtr if case.nu is None else lambda e: stdtr(case.nu, e))(residual / scale)))

    def log_density(case, first, row, recent):
        with monkeypatch.context() as patch:
            patch.setattr(oracle_regimes, "log_density_at", log_cdf if row == t else original)
            return density(case, first, row, recent)

    density = oracle_regimes.log_density
    with monkeypatch.context() as patch:
        patch.setattr(oracle_regimes, "log_density", log_density)
        below = enumerate_regimes(until)[0]
    before = replace(until, y=np.where(np.arange(t + 1) == t, np.nan, until.y))
    return np.exp(below - enumerate_regimes(before)[0]) if counts else math.nan


@pytest.mark.parametrize("choice", covering(), ids=label)
def test_residuals_are_those_of_the_enumeration(monkeypatch, choice):
    case = make_case(choice, zlib.crc32(label(choice).encode()))
    model, parameters, series = as_model(case)
    found = pseudo_residuals(np.random.default_rng(0), model, parameters, series)
    wanted = [slow_distribution_function(monkeypatch, case, t) for t in range(6)]
    np.testing.assert_allclose(ndtr(found[:6]), wanted, rtol=1e-8, atol=1e-14)
    assert np.isfinite(found).any() == (label(choice) not in WITHOUT_RUNS)


# Of these, no row that counts has all of its lags: values are missing in the second and the fifth row of seven.
WITHOUT_RUNS = [
    label(choice) for choice in covering()
    if choice["missing"] and choice["form"][1] > 1 and (choice["form"][0] != "level" or choice["switching_lags"])
]  # fmt: skip


# ---------------------------------------------------------------- simulated series
GAUSSIAN = rh.Gaussian()


def season_and_noise(lags=(0.9,), T=1500, family=GAUSSIAN, form=rh.AroundLevel, phi=((0.0, 1.0), (6.0, 1.0))):
    """Model with a season and autocorrelation, its parameters, and a series that was simulated from it."""
    rng = np.random.default_rng(0)
    frame = rh.Series(np.zeros((T, hook(family, "columns"))) + np.arange(T)[:, None] % 2, lengths=[T - 200, 200])
    model = rh.Model(
        family, 2, rh.no_priors(family), inputs=rh.Inputs.of(frame, [rh.Season(24, order=1)]),
        autoregression=form(len(lags)),
    )  # fmt: skip
    C = len(model.every_effect.moves.predicted)
    coefficients = np.concatenate([np.repeat([0.5, -0.3], C), np.repeat(lags, C)])
    truth = model.natural(phi, [[0.98, 0.02], [0.1, 0.9]], coefficients)
    y, _ = rh.simulate(rng, model, truth, frame)
    return model, truth, rh.Series(y, lengths=[T - 200, 200])


MULTIVARIATE = rh.MultivariateGaussian(2)
CASES = {
    "noise of correlation .9": {},
    "AR(3)": {"lags": (0.5, -0.3, 0.2)},
    "intercept": {"form": rh.Intercept, "lags": (0.5, 0.2)},
    "Hamilton": {"form": rh.Hamilton, "lags": (0.5, 0.2)},
    "free Student-t": {"family": rh.FreeStudentT(), "phi": ((0.0, 1.0, 5.0), (6.0, 1.0, 5.0))},
    "mixture": {
        "family": rh.GaussianMixture(2), "form": rh.Intercept, "lags": (0.5,),
        "phi": ((0.0, 2.0, 1.0, 0.5, 0.0), (5.0, 2.0, 1.0, 0.5, 0.0)),
    },
    "counts": {"family": rh.Poisson(), "form": rh.Intercept, "lags": (0.4,), "phi": ((1.0,), (4.0,))},
    "yes or no": {"family": rh.Bernoulli(), "form": rh.Intercept, "lags": (1.5,), "phi": ((-2.0,), (1.0,))},
    "positive": {"family": rh.GammaEmission(), "form": rh.Intercept, "lags": (0.3,), "phi": ((1.0, 2.0), (4.0, 2.0))},
    "two columns": {
        "family": MULTIVARIATE, "phi": MULTIVARIATE.phi_of([[0, 1], [6, 3]], [np.eye(2), [[1, 0.3], [0.3, 1]]]),
    },
    "a column without inputs": {
        "family": rh.Product(rh.Gaussian(), rh.Categorical(2)), "phi": ((0.0, 1.0, 0.5), (6.0, 1.0, -0.5)),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_residuals_of_the_true_model_are_standard_normal_and_uncorrelated(name):
    model, truth, series = season_and_noise(**CASES[name])
    found = pseudo_residuals(np.random.default_rng(1), model, truth, series)
    for column in np.atleast_2d(found.T):
        seen = column[~np.isnan(column)]
        assert len(seen) >= len(series) - 2 * model.every_effect.reach
        assert kstest(seen, "norm").pvalue > 1e-3
        checks = check_residuals(column, series.bounds)
        assert all(check.passed for check in checks), checks


def test_residuals_show_autocorrelation_that_a_model_has_not():
    model, truth, series = season_and_noise(lags=(0.6,))
    without = truth._replace(coefficients=truth.coefficients * [1, 1, 0])
    checks = check_residuals(pseudo_residuals(np.random.default_rng(1), model, without, series), series.bounds)
    assert "residual autocorrelation" in [check.name for check in checks if not check.passed]
