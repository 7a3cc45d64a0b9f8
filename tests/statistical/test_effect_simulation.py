"""Simulated series of models whose rows differ agree with the likelihood, which the enumeration of paths has checked."""

import itertools
import zlib

import numpy as np
import pandas as pd
import pytest
from regime_cases import as_model, covering, every_choice, label, make_case

import rarehmm as rh
from rarehmm.exact.passes import expectations

CHOICES = [choice | {"known": False, "missing": False} for choice in covering()]
BATCHES = 40


def repeated(case, series, times):
    """Sequences and inputs of a case again and again, without the first values of sequences."""
    y = np.full(times * len(case.y), np.nan)
    y[-1] = 0.0
    names = series.exog_names
    exog = pd.DataFrame(np.tile(series.exog_parts[0], (times, 1)), columns=list(names)) if names else None
    return rh.Series(y, np.tile(case.lengths, times), exog=exog)


def with_values(series, y):
    """A series with other observations."""
    exog = pd.DataFrame(series.exog_parts[0], columns=list(series.exog_names)) if series.exog_names else None
    return rh.Series(y, np.diff(series.bounds), exog=exog)


def gradient(model, parameters, series):
    """Gradient (d,) of the log likelihood."""
    found = expectations(model, parameters, series)
    return model.gradient_from_expectations(
        model.pack(parameters), found.scores, found.pairs, found.first, found.coefficients
    )


def standard_errors_off(choice, times, scale=1.0):
    """How far the mean gradient at the parameters of simulated series is from 0, (d,), in standard errors.

    Where it is taken, variances are larger by the factor ``scale``.
    """
    rng = np.random.default_rng(zlib.crc32(label(choice).encode()))
    case = make_case(choice, 1)
    model, parameters, series = as_model(case)
    large = repeated(case, series, times)
    elsewhere = parameters._replace(phi=parameters.phi * [1.0, scale])
    each = np.array([
        gradient(model, elsewhere, with_values(large, rh.simulate(rng, model, parameters, large)[0]))
        for _ in range(BATCHES)
    ])  # fmt: skip
    return each.mean(0) / (each.std(0, ddof=1) / np.sqrt(BATCHES) + 1e-9)


@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_the_mean_gradient_at_the_parameters_of_simulated_series_is_0(choice):
    assert np.abs(standard_errors_off(choice, 25)).max() < 5


@pytest.mark.parametrize("choice", CHOICES[::6], ids=label)
def test_that_test_would_notice_other_variances(choice):
    assert np.abs(standard_errors_off(choice, 25, 1.3)).max() > 5


@pytest.mark.nightly
@pytest.mark.parametrize("choice", [choice for choice in every_choice() if not choice["missing"]][::4], ids=label)
def test_the_mean_gradient_is_0_for_many_more_models_and_series(choice):
    assert np.abs(standard_errors_off(choice | {"known": False}, 400)).max() < 5.5
