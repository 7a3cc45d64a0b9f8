"""Is this a model of the series?  An answer for every fit, on a sample of a long series, or why there is none."""

import time
from dataclasses import replace

import numpy as np
import pytest
from small_models import Pair, model_of, parameters_of

import rarehmm as rh
from rarehmm.posterior import model_check
from rarehmm.posterior.model_check import ModelCheck, check_model, sample_of
from rarehmm.posterior.posterior import Posterior
from rarehmm.posterior.verdict import ONE_MODE, about_model, about_posterior
from rarehmm.sampling.diagnostics import Check


def at(model, *points, method="map"):
    """A posterior with draws at these parameters."""
    phi, transition = (np.stack([p[i] for p in points])[None] for i in (0, 1))
    return Posterior(model, phi, transition, method)


def simulated(T, family=None):
    """The posterior at the truth, and a series."""
    rng, model = np.random.default_rng(0), model_of(family or rh.Gaussian(), 2)
    truth = parameters_of(rng, model, gap=4.0)
    return at(model, truth), rh.simulate(rng, model, truth, T)[0]


def test_a_series_gets_one_answer():
    posterior, y = simulated(400, rh.Poisson())
    found = check_model(posterior, rh.Series(y))
    assert found.passed
    assert (str(found), found.note) == ("The model fits the series.", "")
    assert check_model(posterior, rh.Series(y)).checks == found.checks


def test_too_short_a_series_is_not_checked():
    posterior, y = simulated(40)
    y[19:] = np.nan
    found = check_model(posterior, rh.Series(y))
    assert str(found) == "The model was not checked: a check needs 20 observations, and there are 19."
    assert not found.passed
    y[30] = 0.0
    assert check_model(posterior, rh.Series(y)).checks


def test_what_goes_wrong_is_the_answer(monkeypatch):
    posterior, y = simulated(40)
    monkeypatch.setattr(model_check, "check_predictive", lambda *_, **__: 1 / 0)
    assert check_model(posterior, rh.Series(y)) == ModelCheck([], not_checked="division by zero")


def test_a_family_without_residuals_says_so():
    model = rh.Model(Pair(), 1, rh.no_priors(Pair()))
    posterior = at(model, model.natural([[0, 9]], [[1.0]]))
    y = np.random.default_rng(0).normal([0, 9], 1, (200, 2))
    found = check_model(posterior, rh.Series(y))
    assert found.passed
    assert "Residuals were not checked: Pair has no distribution function" in str(found)


def test_of_a_long_series_pieces_are_checked(monkeypatch):
    posterior, y = simulated(600)
    monkeypatch.setattr(model_check, "LONG", 200)
    monkeypatch.setattr(model_check, "FEWEST_ROWS", 50)
    assert "200 of 600 observations, in evenly spaced pieces, were checked." in str(
        check_model(posterior, rh.Series(y))
    )
    assert [len(sample_of(rh.Series(np.zeros((600, D))))) for D in (1, 2, 4, 100)] == [200, 100, 50, 50]


@pytest.mark.jit
def test_many_short_sequences_take_no_longer():
    posterior, y = simulated(60_000)
    series = rh.Series(y, lengths=[3] * 20_000)
    check_model(posterior, series)
    began = time.perf_counter()
    assert check_model(posterior, series).checks
    assert time.perf_counter() - began < 5  # one at a time, a million sequences take a minute


def test_pieces_start_where_the_series_is(monkeypatch):
    """A series that starts in one state and changes to another for good."""
    monkeypatch.setattr(model_check, "LONG", 400)
    monkeypatch.setattr(model_check, "FEWEST_ROWS", 0)
    model = model_of(rh.Gaussian(), 2, start=np.array([1.0, 0.0]))
    point = model.parameters([[0.998, 0.002], [1e-9, 1 - 1e-9]], mean=[0.0, 5.0], variance=1.0)
    y = np.random.default_rng(0).normal(size=4000)
    y[500:] += 5
    assert str(check_model(at(model, point), rh.Series(y))).startswith("The model fits the series.")
    assert not check_model(at(model, point), rh.Series(1.5 * y)).passed


def test_residuals_of_several_modes_are_those_of_one():
    model = model_of(rh.Gaussian(), 2)
    rows = [[0.9, 0.1], [0.1, 0.9]]
    one, other = (model.parameters(rows, mean=[mean, 8.0], variance=1.0) for mean in (0.0, 0.2))
    far = model.parameters(rows, mean=[0.0, 20.0], variance=1.0)
    y = rh.simulate(np.random.default_rng(0), model, one, 1000)[0]
    assert check_model(at(model, one, other), rh.Series(y)).passed
    checks = check_model(at(model, one, other, one, far), rh.Series(y)).checks  # their mean is at 11
    assert all(c.passed for c in checks[:5])
    assert not all(c.passed for c in check_model(at(model, far), rh.Series(y)).checks[:5])


def test_progress_is_reported():
    posterior, y = simulated(40)
    seen = []
    check_model(posterior, rh.Series(y), on_progress=lambda *stage: seen.append(stage))
    assert seen[:2] == [("checking the model", 0, 0), ("checking the model", 0, 50)]


@pytest.mark.parametrize(
    ("method", "note"),
    [
        ("map", " Note: this is the mode alone, without uncertainty."),
        ("laplace", " Note: the uncertainty is assumed, not sampled: it is that of a Gaussian at the mode."),
        ("vi", " Note: the uncertainty is assumed, not sampled: it is that of the closest Gaussian."),
        ("hmc", ""),
    ],
)
def test_what_draws_cannot_show_is_noted(method, note):
    posterior, _ = simulated(1)
    found = replace(posterior, method=method)
    assert about_posterior(found) == f"Posterior: all checks passed.{note}"
    assert about_posterior(found, [ONE_MODE]).endswith("started from init, and no other mode was sought.")
    bad = replace(found, checks=[Check("R-hat", 1.5, False, "apart")])
    assert about_posterior(bad) == f"Posterior: do not trust these results: R-hat 1.5 (apart).{note}"


def test_fixed_values_have_no_uncertainty_to_miss():
    family, values = rh.Gaussian(), {"mean": [0.0], "variance": [1.0], "transition": [[1.0]]}
    model = rh.Model(family, 1, rh.no_priors(family), fixed=values)
    posterior = at(model, model.natural([[0.0, 1.0]], [[1.0]]))
    assert about_posterior(posterior) == "Posterior: all checks passed."


def test_the_answer_about_the_model_says_what_was_checked():
    failed = Check("residual autocorrelation", 0.949, False, "at lag 1")
    assert about_model(ModelCheck([], "A note.")) == "Model: fits the series. A note."
    assert about_model(ModelCheck([failed], "A note.")) == (
        "Model: does not fit the series, so do not rely on its probabilities and intervals: residual autocorrelation "
        "0.949 (at lag 1). A note."
    )
    assert about_model(ModelCheck([failed] * 5)).endswith("0.949 (at lag 1); and 2 more.")
    assert str(ModelCheck([failed] * 5)).count("at lag 1") == 5
