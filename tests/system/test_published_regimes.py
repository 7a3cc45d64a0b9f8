"""Published regime-switching models, with the library: log-likelihoods, probabilities of states, and fits."""

from dataclasses import replace

import numpy as np
import pytest
from published_regimes import NAMES, PROBABILITIES, published
from regime_cases import as_model

from rarehmm import filter_states, find_mode, log_likelihood, smooth


@pytest.mark.parametrize("name", NAMES)
def test_log_likelihoods_are_met_to_the_printed_digits(name):
    found = published(name)
    model, parameters, series = as_model(found.regimes)
    assert abs(log_likelihood(model, parameters, series) - found.log_likelihood) <= 0.5001 * 10.0**-found.decimals


@pytest.mark.parametrize("name", PROBABILITIES)
def test_probabilities_are_met(name):
    found = published(name)
    model, parameters, series = as_model(found.regimes)
    for ours, theirs in (
        (smooth(model, parameters, series), found.smoothed),
        (filter_states(model, parameters, series), found.filtered),
    ):
        if theirs is not None:
            np.testing.assert_allclose(ours[-len(theirs) :, found.state], theirs, atol=1e-5)


# ---------------------------------------------------------------- from no start values
LOWER = {"federal funds, 3 regimes": 6.0}  # how far below the published log-likelihood the mode is that is found


def as_published(regimes):
    """Model and series with flat priors, restricted as the published model is: equal variances, no constant."""
    model, _, series = as_model(regimes)
    tied = ("variance",) if np.ptp(regimes.sigma) == 0 else ()
    fixed = model.fixed if regimes.mu.any() else {"mean": regimes.mu}
    return replace(model, tied=tied, fixed=fixed), series


@pytest.mark.jit
@pytest.mark.parametrize("name", NAMES)
def test_fits_from_no_start_values_are_at_least_as_good(name):
    """In ten of eleven cases."""
    found = published(name)
    model, series = as_published(found.regimes)
    mode = find_mode(model, series)
    reached = log_likelihood(mode.model, mode.model.unpack(mode.theta), series)
    assert reached > found.log_likelihood - LOWER.get(name, 0.0) - 1e-3
    if name in LOWER:
        assert reached < found.log_likelihood - LOWER[name] + 1.0, f"{name} may leave the list"
