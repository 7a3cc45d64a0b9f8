"""Models whose rows differ as plain data, posteriors of them in files and run folders, and files that are refused."""

import json
import zlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from regime_cases import as_model, covering, label, make_case

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.settings import Settings
from rarehmm.data.inputs import Columns, Inputs, Season, Trend
from rarehmm.model.autoregression import AroundLevel, Hamilton, Intercept
from rarehmm.model.coordinates import AdditiveLogRatio, ExpandedMean
from rarehmm.model.parameters import EffectPriors
from rarehmm.posterior.model_settings import model_from_settings, model_settings
from rarehmm.sampling.arviz_adapter import inference_data, write_netcdf
from rarehmm.sampling.diagnostics import Check
from rarehmm.search.regimes import classify_by_occupancy
from rarehmm.transitions.homogeneous import Homogeneous
from rarehmm.transitions.phases import Phases

CHOICES = covering()


def through_json(model):
    return model_from_settings(json.loads(json.dumps(model_settings(model))))


def case_of(choice):
    return as_model(make_case(choice, zlib.crc32(label(choice).encode())), "default")


def seasonal():
    """A model with a season, a trend and a column as inputs, tied variances and phases, parameters and series."""
    rng = np.random.default_rng(0)
    hours = pd.date_range("2024-03-01", periods=200, freq="h")
    y = pd.Series(rng.normal(size=200), hours)
    exog = pd.DataFrame({"temp": 20 + rng.normal(size=200)}, hours)
    series = rh.Series(y, exog=exog, states=np.where(np.arange(200) == 7, 1, -1))
    inputs = Inputs.of(series, [Season("1D", order=2), Trend(knots=3), Columns()])
    model = rh.Model(
        rh.Gaussian(), 3, rh.default_priors(rh.Gaussian(), 3, series), inputs=inputs, autoregression=AroundLevel(2),
        transitions=Phases((2, 1, 1)), tied=("variance",), coordinates=AdditiveLogRatio((0, 1, 2)),
    )  # fmt: skip
    c = 0.1 * rng.normal(size=model.every_effect.size)
    phi = np.column_stack([np.arange(3.0), np.ones(3)])
    return model, model.natural(phi, rng.dirichlet(np.full(3, 5.0), 3), c), series


def posterior_of(model, parameters, chains=2, draws=5):
    """A posterior of a few different draws around parameters."""
    rng = np.random.default_rng(1)
    theta = model.pack(parameters) + 0.01 * rng.standard_normal((chains, draws, model.size))
    checks = [Check("R-hat", 1.0, True, "chains agree", "")]
    coefficients = model.unpack_coefficients(theta)
    return rh.Posterior(model, *model.unpack_all(theta), "hmc", ["because"], checks, coefficients)


# ---------------------------------------------------------------- models
@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_models_are_the_same_after_a_round_trip_through_json(choice):
    model, parameters, series = case_of(choice)
    again, theta = through_json(model), model.pack(parameters)
    assert again.component_names == model.component_names
    for one, two in zip(again.unpack(theta), model.unpack(theta), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-15)  # a start is scaled to sum to one again
    value, slope = rh.log_posterior(model, theta, series, threads=1)
    found, found_slope = rh.log_posterior(again, theta, series, threads=1)
    assert found == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(found_slope, slope, rtol=1e-10, atol=1e-12)


def test_seasons_trends_ties_and_priors_are_kept():
    model, parameters, series = seasonal()
    again = through_json(model)
    assert (again.inputs, again.tied, again.transitions) == (model.inputs, ("variance",), Phases((2, 1, 1)))
    assert (again.priors, again.coordinates, again.autoregression) == (
        model.priors, model.coordinates, AroundLevel(2)
    )  # fmt: skip
    theta = model.pack(parameters)
    assert rh.log_posterior(again, theta, series)[0] == rh.log_posterior(model, theta, series)[0]


@pytest.mark.parametrize(
    "change",
    [
        {"tied": ("mean",)},
        {"autoregression": Intercept(np.int64(2), True)},
        {"autoregression": Hamilton(1), "logs": False},
        {"transitions": Phases((np.int64(2), 1)), "start": np.array([0.25, 0.75])},
        {"tied": ("variance",), "coordinates": ExpandedMean()},
        {"tied": ("variance",), "fixed": {"mean": [0.0, None]}},
        {"tied": ("mean",), "priors": rh.Priors((rh.Flat(),) * 2, effects=EffectPriors((2.0,), 0.5, 0.7, 1.5))},
    ],
)
def test_every_setting_is_kept(change):
    priors = rh.Priors((rh.Normal(0.0, 1.0), rh.InverseGamma(2.0, 1.0)), rh.Dirichlet(0.7))
    model = replace(rh.Model(rh.Gaussian(), 2, priors), **change)
    again = through_json(model)
    for name in ("n_states", "priors", "coordinates", "logs", "fixed", "autoregression", "transitions", "tied"):
        assert getattr(again, name) == getattr(model, name)
    np.testing.assert_array_equal(again.start, model.start)
    assert model_settings(again) == model_settings(model)


def test_plain_models_have_the_format_that_version_0_1_reads():
    model = rh.Model(rh.Poisson(), 2, rh.Priors((rh.Gamma(1.0, 0.1),)))
    assert model_settings(model)["format"] == 1
    assert model_settings(seasonal()[0])["format"] == 2


class Own(NamedTuple):
    """A user's own transitions."""

    inputs = None
    phases = Homogeneous.phases
    matrices = Homogeneous.matrices
    gradient = Homogeneous.gradient


def test_later_formats_and_unknown_names_are_refused():
    model = seasonal()[0]
    given = json.loads(json.dumps(model_settings(model)))
    with pytest.raises(ValueError, match=r"this model has format 3; this version of rarehmm reads formats up to 2\."):
        model_from_settings(given | {"format": 3})
    with pytest.raises(ValueError, match="system is not among Homogeneous, Phases, Regression; pass transitions="):
        model_from_settings(given | {"transitions": ["system", "ls"]})
    with pytest.raises(ValueError, match="exec is not among"):
        model_from_settings(given | {"autoregression": ["exec", "1"]})
    own = replace(model, transitions=Own())
    given = json.loads(json.dumps(model_settings(own)))
    with pytest.raises(ValueError, match="Own is not among"):
        model_from_settings(given)
    assert model_from_settings(given, transitions=Own()).transitions == Own()


# ---------------------------------------------------------------- files
@pytest.mark.parametrize("choice", CHOICES[::3], ids=label)
def test_a_file_gives_the_same_posterior(choice, tmp_path):
    model, parameters, series = case_of(choice)
    found = posterior_of(model, parameters)
    found.save(tmp_path / "fit.nc")
    again = rh.Posterior.load(tmp_path / "fit.nc")
    for name in ("phi", "transition", "coefficients"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    assert (again.method, again.why, again.checks) == (found.method, found.why, found.checks)
    value = rh.log_likelihood(model, found.points(3)[1], series, threads=1)
    assert rh.log_likelihood(again.model, again.points(3)[1], series, threads=1) == pytest.approx(value, rel=1e-13)


def test_run_folders_hold_posteriors_of_such_models(tmp_path):
    model, parameters, series = seasonal()
    found, folder = posterior_of(model, parameters), tmp_path / "run"
    runs.create(folder, Settings(file="y.csv", states=3))
    found.save(folder / "posterior.nc")
    regimes = classify_by_occupancy(model, found.mean, series, threads=1)
    (folder / "regimes.json").write_text(json.dumps([one._asdict() for one in regimes]), encoding="utf-8")
    _, hmm = runs.load(folder)
    np.testing.assert_array_equal(hmm.posterior_.coefficients, found.coefficients)
    assert hmm.posterior_.model.inputs == model.inputs
    assert hmm.regimes_ == regimes


def test_newer_and_damaged_files_are_refused(tmp_path):
    model, parameters, _ = seasonal()
    found, path = posterior_of(model, parameters), tmp_path / "fit.nc"
    found.save(path)

    def rewrite(change, arrays):
        data = found.to_arviz()
        about = json.loads(data.posterior.attrs["rarehmm"]) | change
        exact = {"standardised_coefficients": found.coefficients, **arrays}
        new = inference_data(
            {**found.quantities, **exact}, {**found.dims, **{name: ["component"] for name in exact}}, found.coords,
            {"rarehmm": json.dumps(about)},
        )  # fmt: skip
        write_netcdf(new, path)

    rewrite({}, {})
    np.testing.assert_array_equal(rh.Posterior.load(path).coefficients, found.coefficients)
    unstable = found.coefficients.copy()
    unstable[1, 2, model.every_effect.slices["lags"]] = [2.0, 0.0]
    for change, arrays, message in (
        ({"format": 3}, {}, "has format 3; this version of rarehmm reads formats up to 2. Update rarehmm"),
        ({"inputs": {"seasons": None}}, {}, "is damaged"),
        ({"tied": ["variances"]}, {}, "tied has 'variances'"),
        ({}, {"standardised_coefficients": found.coefficients[..., :2]}, "standardised_coefficients has shape"),
        ({}, {"standardised_coefficients": np.nan * found.coefficients}, "not finite numbers"),
        ({}, {"standardised_coefficients": unstable}, "not those of a stationary autoregression"),
        ({"autoregression": ["__import__", "os"]}, {}, "__import__ is not among"),
        ({"transitions": ["Phases", [2, 1]]}, {}, "lengths is"),
    ):
        rewrite(change, arrays)
        with pytest.raises(ValueError, match=message):
            rh.Posterior.load(path)
