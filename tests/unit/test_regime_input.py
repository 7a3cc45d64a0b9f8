"""Bad input of models with inputs, lags, phases and known states: errors name the value, the place and the way out."""

import numpy as np
import pytest

import rarehmm as rh

GAUSSIAN = rh.Gaussian()
TRANSITION = [[0.9, 0.1], [0.2, 0.8]]


def model_of(**more):
    """Gaussian model of two states, and parameters."""
    model = rh.Model(GAUSSIAN, 2, rh.no_priors(GAUSSIAN), **more)
    return model, model.natural([[0.0, 1.0], [3.0, 1.0]], TRANSITION)


# ---------------------------------------------------------------- labels that contradict the model
def contradiction(name):
    """Model, parameters and a series whose labels are impossible from one row on."""
    y, labels = np.random.default_rng(0).normal(size=30), np.full(30, -1)
    labels[2:5] = [0, 1, 0]
    if name == "phases":
        return *model_of(transitions=rh.Phases((3, 3))), rh.Series(y, states=labels)
    if name == "start":
        labels[:3], labels[3] = -1, 1
        return *model_of(start=[1.0, 0.0]), rh.Series(y, lengths=[3, 27], states=labels)
    model = rh.Model(GAUSSIAN, 3, rh.no_priors(GAUSSIAN), fixed={"transition": [[None, 0, None], [None] * 3, [None] * 3]})
    return model, model.natural([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]], np.full((3, 3), 1 / 3)), rh.Series(y, states=labels)


USES = {
    "smooth": rh.smooth,
    "filter": rh.filter_states,
    "decode": rh.decode,
    "climb": lambda model, point, series: rh.climb(model, series, point),
    "mode": lambda model, point, series: rh.find_mode(model, series, point),
    "gradient": lambda model, point, series: rh.log_posterior(model, model.pack(point), series),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("name", "row"), [("phases", 4), ("start", 3), ("zero", 3)])
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
