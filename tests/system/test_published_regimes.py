"""Published regime-switching models, with the library: their log-likelihoods, and the probabilities of their states."""

import numpy as np
import pytest
from published_regimes import NAMES, PROBABILITIES, published
from regime_cases import as_model

from rarehmm import filter_states, log_likelihood, smooth


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
