"""Bad input of models with inputs, lags, phases and known states: errors name the value, the place and the way out."""

import json
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import rarehmm as rh
from rarehmm.posterior.model_settings import model_from_settings, model_settings
from rarehmm.samplers.baoab import Baoab

GAUSSIAN = rh.Gaussian()
TRANSITION = [[0.9, 0.1], [0.2, 0.8]]


def model_of(**more):
    """Gaussian model of two states, and parameters."""
    model = rh.Model(GAUSSIAN, 2, rh.paper_priors(GAUSSIAN), **more)
    return model, model.natural([[0.0, 1.0], [3.0, 1.0]], TRANSITION)


# ---------------------------------------------------------------- labels that contradict the model
def contradiction(name):
    """Model, parameters and a series whose labels are impossible from one row on."""
    y, labels = np.random.default_rng(0).normal(size=30), np.full(30, -1)
    labels[2:5] = [0, 1, 0]
    if name == "phases":
        return *model_of(transitions=rh.Phases((3, 3))), rh.Series(y, states=labels)
    if name in ("start", "end"):
        first = 3 if name == "start" else 29
        labels[:] = np.where(np.arange(30) == first, 1, -1)
        return *model_of(start=[1.0, 0.0]), rh.Series(y, lengths=[first, 30 - first], states=labels)
    model = rh.Model(
        GAUSSIAN, 3, rh.no_priors(GAUSSIAN), fixed={"transition": [[None, 0, None], [None] * 3, [None] * 3]}
    )
    return (
        model,
        model.natural([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], np.full((3, 3), 1 / 3)),
        rh.Series(y, states=labels),
    )


USES = {
    "smooth": rh.smooth,
    "filter": rh.filter_states,
    "decode": rh.decode,
    "climb": lambda model, point, series: rh.climb(model, series, point),
    "mode": lambda model, point, series: rh.find_mode(model, series, point),
    "gradient": lambda model, point, series: rh.log_posterior(model, model.pack(point), series),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("name", "row"), [("phases", 4), ("start", 3), ("end", 29), ("zero", 3)])
def test_labels_that_contradict_the_model(name, row, use):
    model, point, series = contradiction(name)
    with pytest.raises(ValueError, match=rf"no state is possible at y\[{row}\].* Correct the labels, or use small"):
        USES[use](model, point, series)
    assert rh.log_likelihood(model, point, series) == -np.inf


def test_a_zero_of_the_parameters_alone_is_no_contradiction_of_the_model():
    """The log likelihood is minus infinity there, so that samplers and searches turn elsewhere."""
    model, point = model_of(transitions=rh.Phases((1, 2)))
    series = rh.Series(np.zeros(6), states=[0, 1, 1, 0, 1, 1])
    there = point._replace(transition=np.array([[1.0, 0.0], [0.2, 0.8]]), start=np.array([1.0, 0.0]))
    assert rh.exact.passes.expectations(model, there, series).log_likelihood == -np.inf
    with pytest.raises(ValueError, match=r"no state is possible at y\[1\]"):
        rh.smooth(model, there, series)


# ---------------------------------------------------------------- lags and the lengths of sequences
FORMS = {
    "intercept": rh.Intercept(4), "Hamilton": rh.Hamilton(4), "switching": rh.AroundLevel(4, switching=True),
    "conditional": rh.AroundLevel(4, conditional=True),
}  # fmt: skip
LEARNING = {
    "climb": lambda model, point, series: rh.climb(model, series, point),
    "gibbs": lambda model, point, series: rh.gibbs(np.random.default_rng(0), model, series, point, 2),
}
SCORING = {
    **USES,
    "log_likelihood": rh.log_likelihood,
    "simulate": lambda model, point, series: rh.simulate(np.random.default_rng(0), model, point, series),
    "size": lambda model, point, series: rh.simulate(np.random.default_rng(0), model, point, 3),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", SCORING)
def test_all_sequences_have_fewer_rows_than_there_are_lags(form, use):
    model, point = model_of(autoregression=FORMS[form])
    series = rh.Series(np.random.default_rng(0).normal(size=6), lengths=[3, 3])
    with pytest.raises(ValueError, match="order is 4 and the longest sequence of y has 3 rows; use at most 2 lags"):
        SCORING[use](model, point, series)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", LEARNING)
def test_no_sequence_has_more_rows_than_there_are_lags(form, use):
    model, point = model_of(autoregression=FORMS[form])
    series = rh.Series(np.random.default_rng(0).normal(size=8), lengths=[4, 4])
    with pytest.raises(ValueError, match="order is 4 and the longest sequence of y has 4 rows; use at most 3 lags"):
        LEARNING[use](model, point, series)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", LEARNING)
def test_a_sequence_has_fewer_rows_than_there_are_lags(form, use):
    """It would be left out; scoring it beside others is allowed, since samples of a series have such sequences."""
    model, point = model_of(autoregression=FORMS[form])
    series = rh.Series(np.random.default_rng(0).normal(size=28), lengths=[20, 3, 5])
    with pytest.raises(
        ValueError, match=r"order is 4 and the sequence at y\[20\] has 3 rows, .* at most 3 lags, or leave .* out"
    ):
        LEARNING[use](model, point, series)
    assert np.isfinite(rh.log_likelihood(model, point, series))


def test_short_sequences_have_a_stationary_distribution_around_the_level():
    model, point = model_of(autoregression=rh.AroundLevel(4))
    series = rh.Series(np.random.default_rng(0).normal(size=28), lengths=[20, 3, 5])
    assert np.diff(rh.climb(model, series, point, steps=2).trace) > 0
    assert rh.log_likelihood(model, point, rh.Series([0.5])) < 0


# ---------------------------------------------------------------- what is tied and fixed
def test_a_parameter_may_be_both_tied_and_fixed_in_all_states():
    series = rh.Series(np.random.default_rng(0).normal(size=40))
    both, point = model_of(tied=("variance",), fixed={"variance": [2.0, 2.0]})
    fixed, _ = model_of(fixed={"variance": [2.0, 2.0]})
    assert both.component_names == fixed.component_names
    assert rh.log_posterior(both, both.pack(point), series)[0] == rh.log_posterior(fixed, fixed.pack(point), series)[0]
    found = rh.climb(both, series, point)
    np.testing.assert_array_equal(found.parameters.phi[:, 1], 2.0)
    again = model_from_settings(json.loads(json.dumps(model_settings(both))))
    assert (again.tied, again.component_names) == (both.tied, both.component_names)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [2.0, None],
            r"variance is tied and fixed in some states only, \[2\.0, None\]; fix it in all of them, or drop",
        ),
        ([2.0, 1.0], r"variance is tied and fixed at different values, \[2\.0, 1\.0\]; fix it at one value, or drop"),
    ],
)
def test_a_parameter_that_is_tied_is_fixed_at_one_value(values, message):
    with pytest.raises(ValueError, match=message):
        model_of(tied=("variance",), fixed={"variance": values})


# ---------------------------------------------------------------- phases, inputs and labels
X = np.random.default_rng(1).normal(size=(60, 2))
WITH_INPUTS = rh.Series(np.random.default_rng(0).normal(size=60), exog=pd.DataFrame(X, columns=["load", "temp"]))
INPUTS = rh.Inputs.of(WITH_INPUTS, [rh.Columns()])
TIMED = rh.Inputs.of(WITH_INPUTS, [rh.Season(12, order=1), rh.Columns("temp")])


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"transitions": rh.Phases(3)}, TypeError, r"lengths is 3; pass the number of .*, such as \(3, 3\)"),
        ({"transitions": rh.Phases("ab")}, ValueError, r"lengths\[0\] is 'a'; the number of phases must be a whole"),
        ({"transitions": rh.Phases((1, 10**6))}, ValueError,
         r"lengths is \(1, 1000000\), 1,000,001 phases in all; at most 1,000 .* longer steps of time"),
        ({"transitions": rh.Regression(None)}, TypeError,
         r"Regression has no inputs; make them with Inputs\.of\(series, terms\), or use Homogeneous\(\)"),
        ({"inputs": INPUTS, "switching": INPUTS}, ValueError,
         "'load', 'temp' are in inputs and in switching, .* Leave them out of one"),
        ({"inputs": TIMED, "switching": INPUTS}, ValueError, "'temp' is in inputs and in switching, .* Leave it out"),
    ],
)  # fmt: skip
def test_models_that_make_no_sense(more, error, message):
    with pytest.raises(error, match=message):
        model_of(**more)


def test_the_row_of_a_label_out_of_range_is_named():
    model, point = model_of()
    series = rh.Series(np.zeros(6), lengths=[2, 4], states=[0, 1, -1, np.nan, 7, 3])
    with pytest.raises(
        ValueError, match=r"known states is 7 and .* 2 states; it is that of y\[4\]\. Known .* from 0 to 1"
    ):
        rh.log_likelihood(model, point, series)
    with pytest.raises(ValueError, match=r"known states is 5 and .* it is that of y\[1\]\[0\]\."):
        rh.log_likelihood(model, point, rh.Series([np.zeros(2), np.zeros(2)], states=[np.zeros(2), np.array([5, 0])]))


def test_streams_name_the_inputs_that_came():
    model, point = model_of(inputs=rh.Inputs.of(WITH_INPUTS, [rh.Columns("load")]))
    regimes = rh.RegimeFilter(model, [point])
    with pytest.raises(ValueError, match=r"missing: 'load'; pass exog= with one row for each .* \(exog has 'z'\)"):
        regimes.update(rh.RegimeStream(), [0.5], exog=pd.DataFrame({"z": [0.5]}))
    with pytest.raises(ValueError, match="inputs missing: 'load'; pass exog= with one row for each"):
        regimes.update(rh.RegimeStream(), [0.5])


# ---------------------------------------------------------------- methods and files
METHODS = [*((name, name) for name in ("chain", "vi", "tass", "sgld", "baoab")), ("Baoab", Baoab())]


@pytest.mark.parametrize(("name", "method"), METHODS, ids=[name for name, _ in METHODS])
def test_methods_on_windows_are_refused_by_name(name, method):
    model, _ = model_of(autoregression=rh.AroundLevel(1))
    with pytest.raises(ValueError, match=f"method is '{name}': gradients from windows need .* Use a method that reads"):
        rh.infer(np.random.default_rng(0), model, rh.Series(np.arange(9) % 4.0), method=method)


class Sticky(NamedTuple):
    """Transitions of a user, without inputs."""

    inputs: None = None

    def phases(self, K):
        return np.ones(K, dtype=np.int64)


def test_a_file_with_transitions_of_a_user_says_what_to_pass(tmp_path):
    model, point = model_of(autoregression=rh.AroundLevel(1), transitions=Sticky())
    draws = np.tile(model.pack(point), (1, 4, 1))
    posterior = rh.Posterior(
        model, *(part[None] for part in model.unpack_all(draws[0])), "hmc", [], [], model.unpack_coefficients(draws)
    )
    posterior.save(tmp_path / "posterior.nc")
    with pytest.raises(
        ValueError, match=r"posterior.nc has transitions that are not rarehmm's .Sticky is not .*; pass transitions="
    ):
        rh.Posterior.load(tmp_path / "posterior.nc")
    assert rh.Posterior.load(tmp_path / "posterior.nc", transitions=Sticky()).model.transitions == Sticky()
