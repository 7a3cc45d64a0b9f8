"""Bad input is refused at the door, with an error that names the value, the place and the way out."""

import functools
import math

import numpy as np
import pandas as pd
import pytest
from small_models import SINGLE, model_of

import rarehmm as rh
from rarehmm.search.initial import first_labels

pytestmark = pytest.mark.plain

GAUSSIAN = model_of(rh.Gaussian(), 2)
HALF = [[0.5, 0.5], [0.5, 0.5]]


def refuses(error, message, call):
    with pytest.raises(error) as caught:
        call()
    text = str(caught.value)
    assert message in text
    assert "numba" not in text


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        ([], ValueError, "y is empty (shape (0,)); at least one observation is needed"),
        (np.empty((5, 0)), ValueError, "y is empty (shape (5, 0))"),
        ([np.nan, np.nan], ValueError, "all 2 observations of y are missing (NaN)"),
        ([[np.nan, np.nan], [np.nan, np.nan]], ValueError, "all 2 observations of y are missing"),
        ([1.0, np.inf], ValueError, "y[1] is inf; observations must be finite. Mark gaps with NaN."),
        ([[1.0, 2.0], [3.0, -np.inf]], ValueError, "y[1, 1] is -inf"),
        ("flux.csv", TypeError, "y is the path 'flux.csv'; .npy, .parquet"),
        (None, TypeError, "y is a NoneType; pass an array"),
        ({"a": [1]}, TypeError, "y is a dict"),
        (["a", "b"], TypeError, "entries such as np.str_('a') are not numbers. Convert with astype(float)"),
        (np.array([1.0, "x", None], dtype=object), TypeError, "y has dtype object"),
        (np.array(["2017"], dtype="M8[Y]"), TypeError, "datetime64[Y]"),
        (np.array([1 + 2j]), TypeError, "y is complex (complex128); pass real numbers"),
        (np.zeros((2, 3, 4)), ValueError, "y has shape (2, 3, 4); it must be (T,) or (T, D)"),
        (3.0, ValueError, "y has shape (); it must be (T,) or (T, D)"),
        ([[1, 2], [3, [4]]], ValueError, "y cannot be read as an array"),
        ([np.zeros(3), np.zeros((2, 2))], ValueError, "y[1] has 2 columns and y[0] has 1"),
        ([np.zeros(3), np.zeros(0)], ValueError, "y[1] is empty"),
        (pd.Series(["a", "b"]), TypeError, "it must be numeric. Select columns, or use pd.to_numeric"),
        (pd.DataFrame({"t": ["x"], "flux": [1.0]}), TypeError, "y['t'] has dtype"),
    ],
)
def test_series(y, error, message):
    refuses(error, message, lambda: rh.Series(y))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2, 2], "lengths add up to 4 and y has 5 observations; they must agree"),
        ([5, 0], "lengths[1] is 0; each sequence needs at least one observation"),
        ([2.5, 2.5], "it must be a list of whole numbers"),
        (5, "it must be a list of whole numbers"),
        ([2, [3]], "it must be a list of whole numbers"),
        ([], "it must be a list of whole numbers"),
    ],
)
def test_lengths(lengths, message):
    refuses(ValueError, message, lambda: rh.Series(np.arange(5.0), lengths=lengths))


def test_lengths_beside_a_list_of_sequences():
    refuses(
        ValueError,
        "already a list of sequences; omit lengths",
        lambda: rh.Series([np.zeros(2), np.zeros(3)], lengths=[2, 3]),
    )


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([3.0, 3.0, np.nan, 3.0], "all 3 observed values of y are 3; a constant series has no regimes"),
        ([1.0, 2.0, np.nan], "y has 2 observations, fewer than the 3 states requested; use fewer states"),
        ([[1.0, 2.0]] * 5, "y has 2 columns and Gaussian takes 1. Select columns with y[:, i]"),
    ],
)
def test_learning(y, message):
    refuses(ValueError, message, lambda: rh.default_priors(rh.Gaussian(), 3, rh.Series(y)))


def test_learning_from_one_observation():
    message = "the only observed value of y is 3; a constant series has no regimes"
    refuses(ValueError, message, lambda: rh.default_priors(rh.Gaussian(), 1, rh.Series([np.nan, 3.0])))


@pytest.mark.parametrize("more", [{}, {"init": [0, 1] * 10}])
def test_numbers_that_cannot_be_squared_with_priors_of_one_s_own(more):
    hmm = rh.RareHMM(2, emission="free_student_t", priors=rh.no_priors(rh.FreeStudentT()), **more)
    y = 10.0 ** np.linspace(-90, 90, 20)
    refuses(ValueError, "y has a standard deviation of 2.18e+89, with values from 1e-90 to 1e+90", lambda: hmm.fit(y))


def test_angles_that_cosines_cannot_tell_apart():
    y = 1e-9 * np.random.default_rng(0).uniform(-np.pi, np.pi, 50)
    message = "radians, and their cosines are equal to the last digit. Use a family for real numbers"
    refuses(ValueError, message, lambda: rh.default_priors(rh.VonMises(), 2, rh.Series(y)))


def few_stretches(y, K):
    return lambda: first_labels(rh.Model(rh.Bernoulli(), K, rh.no_priors(rh.Bernoulli())), rh.Series(y))


def test_categories_that_are_too_few_for_the_states():
    message = "y has 7 different local category frequencies, too few for 40 states"
    refuses(ValueError, message, few_stretches([0.0] * 40 + [1.0] * 2, 40))
    gone = [0.0] * 10 + [np.nan] * 60 + [1.0] * 10
    message = "the observed rows of y fall into 4 clusters, too few for 5 states; use fewer states"
    refuses(ValueError, message, few_stretches(gone, 5))


@pytest.mark.parametrize("method", ["chain", "tass", "sgld"])
def test_windows_in_sequences_that_have_no_room_for_them(method):
    message = "the longest sequence has 2 observations, and windows have 3 at least; use another method"
    hmm, pairs = rh.RareHMM(1, method=method), np.random.default_rng(0).normal(size=(20, 2))
    refuses(ValueError, message, lambda: hmm.fit(list(pairs)))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 3, -1], "y[2] is -1; Poisson takes whole numbers from 0"),
        ([0, 2.5, np.nan], "y[1] is 2.5; Poisson takes whole numbers from 0 to 1e+15. Mark gaps with NaN"),
        ([[1, 2], [3, 4]], "y has 2 columns and Poisson takes 1"),
    ],
)
@pytest.mark.parametrize(
    "use", [rh.log_likelihood, rh.expectations, rh.smooth, rh.filter_states, rh.decode, rh.predictive_log_density]
)
def test_counts(y, message, use):
    model = model_of(rh.Poisson(), 2)
    parameters = model.parameters(HALF, rate=[1, 2])
    refuses(ValueError, message, lambda: use(model, parameters, rh.Series(y)))


@pytest.mark.parametrize(
    ("K", "error", "message"),
    [
        (0, ValueError, "n_states is 0; it must lie between 1 and 255"),
        (-2, ValueError, "n_states is -2"),
        (1000, ValueError, "n_states is 1000"),
        (2.5, TypeError, "n_states is 2.5; it must be an integer"),
        ("3", TypeError, "n_states is '3'"),
        (True, TypeError, "n_states is True"),
    ],
)
def test_number_of_states(K, error, message):
    refuses(error, message, lambda: model_of(rh.Gaussian(), K))


@pytest.mark.parametrize(
    ("transition", "error", "message"),
    [
        ([[0.5, 0.6], [0.5, 0.5]], ValueError, "row 0 of transition sums to 1.1"),
        ([[0.9, 0.3], [0.1, 0.7]], ValueError, "Its columns do: pass transition.T."),
        ([[1.5, -0.5], [0.5, 0.5]], ValueError, "transition[0, 1] is -0.5; probabilities must lie between 0 and 1"),
        ([[np.nan, 1], [0.5, 0.5]], ValueError, "transition[0, 0] is nan"),
        ([[1.0]], ValueError, "transition is 1 x 1 but the model has 2 states"),
        ([0.5, 0.5], ValueError, "transition has shape (2,); it must be (K, K)"),
        ("stochastic", TypeError, "transition is 'stochastic'; it must be numeric"),
    ],
)
def test_transition(transition, error, message):
    refuses(error, message, lambda: GAUSSIAN.parameters(transition, mean=[0, 1], variance=1))


@pytest.mark.parametrize(
    ("emission", "error", "message"),
    [
        ({"mean": [0, 1]}, ValueError, "'variance' is missing; Gaussian needs mean, variance"),
        ({"mean": [0, 1], "varience": 1}, ValueError, "no parameter 'varience'; it has mean, variance. Did you mean"),
        (
            {"mean": [0, 1, 2], "variance": 1},
            ValueError,
            "mean has shape (3,); give one value for each of the 2 states",
        ),
        (
            {"mean": [0, 1], "variance": [1, 0]},
            ValueError,
            "variance[1] is 0.0; it must be positive, between 1e-150 and 1e+150",
        ),
        ({"mean": [0, np.nan], "variance": 1}, ValueError, "mean[1] is nan; it must be finite"),
        ({"mean": ["a", 1], "variance": 1}, TypeError, "it must be numeric"),
    ],
)
def test_parameters(emission, error, message):
    refuses(error, message, lambda: GAUSSIAN.parameters(HALF, **emission))


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([0.5, 0.6], "sum 1.1; probabilities must be nonnegative and sum to one"),
        ([-0.5, 1.5], "probabilities must be nonnegative"),
        ([1.0], "one probability for each of the 2 states"),
    ],
)
def test_start(start, message):
    refuses(ValueError, message, lambda: model_of(rh.Gaussian(), 2, start=start))


def test_priors_and_coordinates():
    normal = rh.Normal(0, 1)
    good = (normal, rh.InverseGamma(3, 10))
    refuses(
        ValueError, "2 parameters but 1 priors were given", lambda: rh.Model(rh.Gaussian(), 2, rh.Priors((normal,)))
    )
    for bad in (rh.InverseGamma(3, -10), rh.InverseGamma(-0.5, 1), rh.Normal(0, -1), rh.Normal(math.nan, 1)):
        refuses(
            ValueError,
            "the prior of 'variance' is",
            lambda bad=bad: rh.Model(rh.Gaussian(), 2, rh.Priors((normal, bad))),
        )
    flat = rh.Priors(good, rh.Dirichlet(-1.0))
    refuses(ValueError, "concentration of the transition prior is -1.0", lambda: rh.Model(rh.Gaussian(), 2, flat))
    refuses(
        ValueError, "reference is (0, 5)", lambda: model_of(rh.Gaussian(), 2, coordinates=rh.AdditiveLogRatio((0, 5)))
    )
    refuses(ValueError, "the paper has no prior for 'rate'", lambda: rh.paper_priors(rh.Poisson()))
    refuses(ValueError, "nu is -1; the degrees of freedom", lambda: model_of(rh.StudentT(-1), 2))
    zero = GAUSSIAN.parameters([[1, 0], [0.5, 0.5]], mean=[0, 1], variance=1)
    refuses(ValueError, "transition[0, 1] is 0 and has no log ratio", lambda: GAUSSIAN.pack(zero))
    refuses(ValueError, "theta has shape (3,); this model has 6 free", lambda: GAUSSIAN.unpack(np.zeros(3)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rh.Model(rh.Gaussian, 2, GAUSSIAN.priors), TypeError, "pass an instance: Gaussian()"),
        (lambda: rh.Model(rh.Gaussian(), 2, None), TypeError, "priors is None; use default_priors"),
        (lambda: rh.Model(rh.Gaussian(), 2, rh.Priors((None, None))), TypeError, "the prior of 'mean' is None"),
        (lambda: model_of(rh.Gaussian(), 2, coordinates="alr"), TypeError, "coordinates is 'alr'"),
        (lambda: model_of(rh.Gaussian(), 2, coordinates=rh.AdditiveLogRatio((0.5, 1))), ValueError, "reference is"),
        (lambda: model_of(rh.StudentT("5"), 2), ValueError, "nu is '5'"),
        (lambda: model_of(rh.StudentT(1e12), 2), ValueError, "For larger values use Gaussian()"),
        (
            lambda: rh.log_likelihood(GAUSSIAN, np.zeros(6), rh.Series([0.0, 1.0])),
            TypeError,
            "expected Parameters, got ndarray",
        ),
        (lambda: GAUSSIAN.natural(np.ones((3, 2)), HALF), ValueError, "phi has shape (3, 2)"),
        (lambda: GAUSSIAN.natural(np.ones((2, 2)), np.array(HALF) * 1j), TypeError, "it must be numeric"),
        (lambda: GAUSSIAN.unpack(np.array([0, np.nan, 0, 0, 0, 0])), ValueError, "theta[1], mean[1], is nan"),
        (lambda: GAUSSIAN.unpack(np.array([0, 0, 800.0, 0, 0, 0])), ValueError, "theta[2], log variance[0], is 800.0"),
        (lambda: GAUSSIAN.log_prior(np.array([0, 0, 0, 0, 800.0, 0])), ValueError, "theta[4]"),
        (lambda: model_of(rh.Gaussian(), 1, coordinates=rh.ExpandedMean()).unpack(np.array([0, 0, -1.0])), ValueError,
         "expanded[0, 0], is -1.0"),
        (lambda: rh.default_priors(rh.Gaussian(), 0, rh.Series([0.0, 1.0])), ValueError, "n_states is 0"),
        (lambda: rh.simulate(0, GAUSSIAN, None, 5), TypeError, "rng is 0; pass a generator"),
    ],
)  # fmt: skip
def test_wrong_kinds(call, error, message):
    refuses(error, message, call)


def test_a_raw_array_in_place_of_a_series():
    parameters = GAUSSIAN.parameters(HALF, mean=[0, 1], variance=1)
    refuses(TypeError, "expected a Series, got ndarray", lambda: rh.smooth(GAUSSIAN, parameters, np.zeros(3)))


def test_rows_that_nearly_sum_to_one_are_made_to():
    parameters = GAUSSIAN.parameters([[0.4999998, 0.4999998]] * 2, mean=[0, 1], variance=1)
    np.testing.assert_array_equal(parameters.transition, 0.5)
    given = np.array([0.25, 0.75])
    model = model_of(rh.Gaussian(), 2, start=given)
    given[:] = 0
    np.testing.assert_array_equal(model.start, [0.25, 0.75])


def test_threads_and_sizes():
    parameters = GAUSSIAN.parameters(HALF, mean=[0, 1], variance=1)
    series = rh.Series([0.0, 1.0])
    for bad in (0, 1.5, "2"):
        use = functools.partial(rh.log_likelihood, GAUSSIAN, parameters, series, threads=bad)
        refuses(ValueError, f"threads is {bad!r}", use)
    rng = np.random.default_rng(0)
    refuses(ValueError, "size is 0", lambda: rh.simulate(rng, GAUSSIAN, parameters, 0))
    refuses(ValueError, "state is 2", lambda: rh.simulate(rng, GAUSSIAN, parameters, 5, state=2))


def test_a_small_series_may_be_scored_by_a_larger_model():
    """Only learning needs as many observations as states; a constant or short series may well be scored."""
    model = model_of(rh.Gaussian(), 3)
    parameters = model.parameters(SINGLE, mean=[-20, 0, 20], variance=1)
    assert np.isfinite(rh.log_likelihood(model, parameters, rh.Series([0.0])))
    assert np.isfinite(rh.log_likelihood(model, parameters, rh.Series([1.0, 1.0])))


# ---------------------------------------------------------------- inputs, lags, phases and known states
X = np.random.default_rng(1).normal(size=(60, 2))
WITH_INPUTS = rh.Series(np.random.default_rng(0).normal(size=60), exog=pd.DataFrame(X, columns=["load", "temp"]))
INPUTS = rh.Inputs.of(WITH_INPUTS, [rh.Columns()])


def gaussian(K=2, **more):
    return rh.Model(rh.Gaussian(), K, rh.default_priors(rh.Gaussian(), K, WITH_INPUTS), **more)


def of(family, **more):
    return rh.Model(family, 2, rh.no_priors(family), **more)


def scored(model, series):
    return rh.log_likelihood(model, model.natural([[0, 1], [1, 2]], [[0.9, 0.1], [0.2, 0.8]]), series)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: scored(gaussian(inputs=INPUTS), rh.Series(X[:, 0])), ValueError,
         "future inputs missing: 'load', 'temp'; pass exog= with one row for each new observation"),
        (lambda: scored(gaussian(transitions=rh.Regression(INPUTS)), rh.Series(X[:, 0])), ValueError, "inputs missing"),
        (lambda: scored(gaussian(), rh.Series(X[:, 0], states=np.full(60, 2))), ValueError,
         "highest of the known states is 2 and the model has 2 states; .* from 0 to 1, and -1 where the state is unk"),
        (lambda: gaussian(transitions=rh.Phases((1, 0))), ValueError, r"lengths\[1\] is 0; .* at least 1"),
        (lambda: gaussian(transitions=rh.Phases((1.5, 2))), ValueError, r"lengths\[0\] is 1\.5; .* a whole number"),
        (lambda: gaussian(transitions=rh.Phases((2,))), ValueError, r"lengths is \(2,\); .* each of the 2 states"),
        (lambda: gaussian(transitions=rh.Regression(X)), TypeError, "inputs of transitions are of type ndarray"),
        (lambda: gaussian(inputs=X), TypeError, r"inputs is of type ndarray; make it with Inputs\.of"),
        (lambda: gaussian(autoregression=2), TypeError, r"autoregression is 2; use AroundLevel\(p\)"),
        (lambda: gaussian(autoregression=rh.AroundLevel(0)), ValueError, "AroundLevel: order is 0; .* at least 1"),
        (lambda: gaussian(autoregression=rh.Hamilton(5)), ValueError, "Hamilton: order is 5; at most 4 .* AroundLevel"),
        (lambda: gaussian(autoregression=rh.AroundLevel(400)), ValueError,
         r"AroundLevel: order is 400; at most 50 lags .* after 400 rows is a season, Season\(400\)"),
        (lambda: gaussian(1, transitions=rh.Phases((3,))), ValueError,
         r"lengths is \(3,\), and a single state is never left, .* Homogeneous"),
        (lambda: rh.climb(gaussian(autoregression=rh.AroundLevel(30)), rh.Series([X[:30, 0], X[30:50, 0]]),
                          gaussian().natural([[0, 1], [1, 2]], [[0.9, 0.1], [0.2, 0.8]])), ValueError,
         "order is 30 and the longest sequence of y has 30 rows; use at most 29 lags"),
        (lambda: of(rh.VonMises(), inputs=INPUTS), ValueError, r"VonMises takes no inputs: .* Drop inputs\."),
        (lambda: of(rh.Categorical(3), autoregression=rh.Intercept(1)), ValueError, "takes no autoregression"),
        (lambda: of(rh.Poisson(), scale=INPUTS), ValueError, "Poisson takes no inputs on its scale: .* Drop"),
    ],
)  # fmt: skip
def test_what_rows_may_not_have(use, error, message):
    with pytest.raises(error, match=message):
        use()


def test_inputs_are_found_by_their_names():
    turned = rh.Series(
        np.random.default_rng(0).normal(size=60), exog=pd.DataFrame(X[:, ::-1], columns=["temp", "load"])
    )
    for model in (gaussian(inputs=INPUTS), gaussian(transitions=rh.Regression(INPUTS))):
        parameters = model.natural([[0, 1], [1, 2]], [[0.9, 0.1], [0.2, 0.8]])
        parameters = parameters._replace(coefficients=np.linspace(-0.2, 0.3, len(parameters.coefficients)))
        expected = rh.log_likelihood(model, parameters, WITH_INPUTS)
        assert rh.log_likelihood(model, parameters, turned) == pytest.approx(expected, abs=1e-10)
