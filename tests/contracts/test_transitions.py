"""Every transition, found by its file, keeps the contract, and transitions that do not are refused; models with one of
one's own agree with the enumeration of all paths."""

import importlib
import pickle
import pkgutil
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from oracle_regimes import enumerate_regimes
from regime_cases import FACTORS, as_model, make_case, with_rows

import rarehmm as rh
from rarehmm import transitions
from rarehmm.transitions.regression import Regression

SERIES = rh.Series(np.arange(50.0) % 7, exog=np.random.default_rng(0).normal(size=(50, 1)))
SETTINGS = {"inputs": rh.Inputs.of(SERIES, [rh.Season(12, 1), rh.Columns()]), "lengths": (1, 3, 2)}


def instance(name):
    """The transition that a file defines, with the settings that it asks for."""
    module = importlib.import_module(f"rarehmm.transitions.{name}")
    kind = getattr(module, "".join(part.capitalize() for part in name.split("_")))
    return kind(**{field: SETTINGS[field] for field in getattr(kind, "_fields", ())})


FOUND = {file.name: instance(file.name) for file in pkgutil.iter_modules(transitions.__path__)}


def test_the_folder_is_looked_at():
    assert set(FOUND) >= {"homogeneous", "regression", "phases"}


@pytest.mark.parametrize("name", FOUND)
def test_every_transition_keeps_the_contract(name):
    found = rh.check_transition(FOUND[name])
    assert str(found).splitlines()[0] == f"{type(FOUND[name]).__name__} satisfies the contract:"
    assert len(found.right) == 8


@pytest.mark.plain
@pytest.mark.parametrize("name", FOUND)
def test_a_transition_of_the_folder_goes_to_other_processes_with_its_model(name):
    model = rh.Model(rh.Gaussian(), 3, rh.no_priors(rh.Gaussian()), transitions=FOUND[name])
    copy = pickle.loads(pickle.dumps(model))
    assert copy.transitions == model.transitions
    np.testing.assert_array_equal(copy.unfolding.chain.target, model.unfolding.chain.target)


# ---------------------------------------------------------------- a transition of one's own
@dataclass(frozen=True)
class Steady:
    """Transitions that depend on inputs, of states with a minimum length: what no file of the folder is."""

    inputs: Any
    lengths: tuple[int, ...]

    def phases(self, _):
        return np.array(self.lengths)

    def matrices(self, transition, slopes, z):
        return Regression(self.inputs).matrices(transition, slopes, z)

    def gradient(self, matrices, counts, z):
        return Regression(self.inputs).gradient(matrices, counts, z)


class Bounded(NamedTuple):
    """Inputs act through their hyperbolic tangents, so that no step differs very much from the others."""

    inputs: Any

    def phases(self, K):
        return np.ones(K, dtype=int)

    def matrices(self, transition, slopes, z):
        return Regression(self.inputs).matrices(transition, slopes, np.tanh(z))

    def gradient(self, matrices, counts, z):
        return Regression(self.inputs).gradient(matrices, counts, np.tanh(z))


class Short(NamedTuple):
    """The least that a transition can be: without inputs it needs no matrices."""

    inputs: None = None

    def phases(self, K):
        return np.arange(1, K + 1)


def test_a_transition_of_your_own():
    for own in (Steady(SETTINGS["inputs"], (1, 3, 2)), Bounded(SETTINGS["inputs"])):
        assert len(rh.check_transition(own).right) == 8
    found = rh.check_transition(Short(), n_states=2)
    assert str(found).splitlines()[1:] == [
        "  a copy is equal", "  states have phases", "  without matrices: every step has the transition matrix",
    ]  # fmt: skip


def a_case(kind, **changes):
    """A small case for enumeration: two states and sequences, a known state, stationary start."""
    choice = {name: levels[0] for name, levels in FACTORS.items()}
    return make_case(choice | {"transitions": "inputs", "sequences": 2, "known": True, "form": kind} | changes, 5)


@pytest.mark.parametrize("kind", [("none", 0), ("level", 1)])
def test_inputs_and_phases_together_agree_with_the_enumeration_of_all_paths(kind):
    case = with_rows(a_case(kind), phases=np.array([2, 1]))
    model, parameters, series = as_model(with_rows(case, phases=None))
    own = Steady(model.transitions.inputs, (2, 1))
    model = rh.Model(model.family, 2, model.priors, autoregression=model.autoregression, transitions=own)
    agrees(case, model, parameters, series)


def test_inputs_of_another_form_agree_with_the_enumeration_of_all_paths():
    """Its stationary start too, whose derivative in the slopes is not that of a regression."""
    case = a_case(("none", 0))
    model, parameters, series = as_model(case)
    inputs = model.transitions.inputs
    z = np.tanh(inputs.design(series.read_rows(0, len(series))))
    case = with_rows(case, z=z, slopes=parameters.coefficients.reshape(1, 2, 2), transition=parameters.transition)
    agrees(case, rh.Model(model.family, 2, model.priors, transitions=Bounded(inputs)), parameters, series)


def agrees(case, model, parameters, series):
    value, smoothed, _ = enumerate_regimes(case)
    assert rh.log_likelihood(model, parameters, series) == pytest.approx(value, rel=1e-10)
    np.testing.assert_allclose(rh.smooth(model, parameters, series), smoothed, atol=1e-10)
    theta, h = model.pack(parameters), 1e-5
    _, slope = rh.log_posterior(model, theta, series)
    for i, one in enumerate(h * np.eye(model.size)):
        up, down = (rh.log_posterior(model, theta + sign * one, series)[0] for sign in (1, -1))
        assert slope[i] == pytest.approx((up - down) / (2 * h), rel=1e-6, abs=1e-6), model.component_names[i]


# ---------------------------------------------------------------- what is refused
LAST = {}


def last():
    return LAST["one"]


def broken(**changes):
    """A regression some of whose functions are replaced; it is its own copy."""
    own = {"inputs": SETTINGS["inputs"], "__reduce__": lambda self: (last, ())}
    LAST["one"] = type("Broken", (Regression,), own | changes)(SETTINGS["inputs"])
    return LAST["one"]


def matrices(change):
    def changed(self, transition, slopes, z):
        return change(Regression.matrices(self, transition, slopes, z), transition, slopes, z)

    return {"matrices": changed}


def gradient(change):
    def changed(self, found, counts, z):
        return change(*Regression.gradient(self, found, counts, z), counts)

    return {"gradient": changed}


def overwritten(found, counts):
    counts[:] = 0.0
    return found


WRONG = [
    (
        {"__eq__": lambda self, other: self is None, "__hash__": lambda self: 0},
        "a pickled copy is not equal to it; use a NamedTuple",
    ),
    ({"__reduce__": object.__reduce__}, "it cannot be pickled .*; define its class at the top of a module"),
    ({"__hash__": None}, "it has no hash; use a NamedTuple or a frozen dataclass"),
    ({"phases": lambda self, K: np.ones(K + 1, dtype=int)}, r"phases has shape \(4,\); 3 whole numbers are needed"),
    ({"phases": lambda self, K: np.ones(K)}, "phases are of type float64; 3 whole numbers"),
    ({"phases": lambda self, K: np.arange(K)}, r"phases are \[0, 1, 2\]; every state has at least one"),
    (matrices(lambda found, *_: found[1:]), r"matrices has shape \(6, 3, 3\) for 7 rows; \(7, 3, 3\) is needed"),
    (matrices(lambda found, *_: np.swapaxes(found, 1, 2)), r"the sum of row t, j of matrices, .*\[\d, \d\] is"),
    (matrices(lambda found, P, s, z: 2 * P - found), "a probability is -"),
    (
        matrices(lambda found, P, s, z: Regression.matrices(None, P, s, z + 1)),
        r"matrices with inputs of 0\[.* is .*; the transition matrix is",
    ),
    (
        matrices(lambda found, P, s, z: Regression.matrices(None, P + 1e-14, s, z)),
        r"with a forbidden transition, matrices\[0, 0, 1\] is .* where the transition matrix has 0; zeros stay",
    ),
    (
        matrices(lambda found, P, s, z: Regression.matrices(None, P, s, z - (len(z) > 1) * z.mean(0))),
        r"matrices\[.* is .*; that of this row alone is",
    ),
    (gradient(lambda logits, slopes, _: (logits, slopes[:1])), r"of slopes of shape \(1, 3, 3\); \(3, 3, 3\) is need"),
    (gradient(lambda logits, slopes, _: (1.01 * logits, slopes)), "with all transitions, the derivative in logit 0, 0"),
    (
        gradient(lambda logits, slopes, _: (logits, slopes + np.eye(3))),
        r"the derivative in slopes\[0, 0, 0\], less the",
    ),
    (gradient(lambda logits, slopes, c: overwritten((logits, slopes), c)), "it changes counts; copy arrays first"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_wrong_transition_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"Broken: .*{message}"):
        rh.check_transition(broken(**changes))


def test_the_one_that_is_changed_is_right():
    assert len(rh.check_transition(broken()).right) == 8


def test_what_is_no_transition_is_refused():
    class Half(NamedTuple):
        inputs: Any

        def phases(self, K):
            return np.ones(K, dtype=int)

    for wrong in (rh.Homogeneous, "phases", object(), Half(SETTINGS["inputs"])):
        with pytest.raises(TypeError, match="with inputs, phases, matrices, gradient is needed"):
            rh.check_transition(wrong)
    with pytest.raises(ValueError, match=r"lengths is .*; give the number of phases of each of the 2 states"):
        rh.check_transition(FOUND["phases"], n_states=2)
    with pytest.raises(ValueError, match="n_states is 0; it must be a whole number"):
        rh.check_transition(FOUND["homogeneous"], n_states=0)
