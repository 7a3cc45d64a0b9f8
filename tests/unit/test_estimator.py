"""RareHMM: fit, what was found, prediction, events, forecast, streams; pandas, lists, gaps; scikit-learn."""

import contextlib
import pickle
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import rarehmm as rh
from rarehmm.search.initial import main_direction

pytestmark = pytest.mark.jit


def bursts(T=6000, seed=0):
    y = np.random.default_rng(seed).normal(size=T)
    for start in (1000, 3000, 5000):
        y[start : start + 20] += 8
    return y


@pytest.fixture(scope="module")
def fitted():
    return rh.RareHMM(2, n_draws=200).fit(bursts())


def test_the_regime_its_events_and_the_word(fitted):
    assert fitted.rare_states_.tolist() == [1]
    assert fitted.verdict_ == "Posterior: all checks passed. Model: fits the series."
    assert fitted.means_ == pytest.approx(np.array([[0.0], [8.0]]), abs=0.5)
    assert fitted.covars_ == pytest.approx(np.ones((2, 1)), abs=0.5)
    assert fitted.transmat_.sum(1) == pytest.approx(1)
    assert fitted.startprob_ == pytest.approx(rh.stationary(fitted.transmat_))
    assert fitted.regimes_[1].kind == "rare"
    events = fitted.rare_events(bursts())
    assert events["start"].tolist() == [1000, 3000, 5000]
    assert events["duration"].tolist() == [20, 20, 20]
    table = fitted.summary()
    assert table.loc["sojourn[1]", "5.0%"] < 20 < table.loc["sojourn[1]", "95.0%"]


def test_predictions_fit_together(fitted):
    y = bursts(seed=1)
    probability = fitted.predict_proba(y)
    assert probability.shape == (6000, 2)
    value, path = fitted.decode(y)
    np.testing.assert_array_equal(path, fitted.predict(y))
    assert (path == probability.argmax(1)).mean() > 0.999
    assert value < fitted.score(y) + 5 < 0  # a path beside the sum over paths, at the mean beside an average
    stream = None
    for v in y[:30]:
        stream = fitted.update(stream, v)
    np.testing.assert_allclose(stream.probability, fitted.filter_proba(y)[29], atol=1e-9)
    ahead = fitted.forecast(y, 5, size=50)
    assert ahead.event.shape == (5,)
    assert ahead.observations.shape == (50, 5)
    x, states = fitted.sample(100)
    assert (x.shape, states.shape) == ((100, 1), (100,))


def test_the_mean_of_the_posterior_when_asked(fitted):
    y = bursts()
    quick = clone(fitted).set_params(n_average=0).fit(y)
    mean = quick.posterior_.mean
    np.testing.assert_allclose(quick.predict_proba(y), rh.smooth(quick.posterior_.model, mean, rh.Series(y)))


def test_the_same_seed_gives_the_same_answer_and_pickle_keeps_it(fitted):
    again = clone(fitted).fit(bursts())
    np.testing.assert_array_equal(again.posterior_.phi, fitted.posterior_.phi)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(bursts()), fitted.predict_proba(bursts()))


def test_pandas_lists_gaps_and_memory_maps_are_welcome(fitted, tmp_path):
    y = bursts()
    times = pd.date_range("2026-01-01", periods=len(y), freq="min")
    events = fitted.rare_events(pd.Series(y, index=times))
    assert events["start"][0] == times[1000]
    two = fitted.rare_events([y[:2000], y[2000:]])
    assert two["start"].tolist() == [1000, 1000, 3000]
    assert two["sequence"].tolist() == [0, 1, 1]
    np.testing.assert_array_equal(
        fitted.predict(y, lengths=[2000, 4000]), np.concatenate(fitted.predict([y[:2000], y[2000:]]))
    )
    y[10:500] = np.nan
    assert np.isfinite(fitted.predict_proba(y)).all()
    np.save(tmp_path / "y.npy", bursts())
    mapped = np.load(tmp_path / "y.npy", mmap_mode="r")
    np.testing.assert_array_equal(fitted.predict(mapped), fitted.predict(bursts()))


def test_starts_from_labels_parameters_and_another_fit(fitted):
    y = bursts()
    labels = (y > 4).astype(int)
    for init in (labels, fitted, fitted.posterior_.mean):
        found = rh.RareHMM(2, n_draws=100, init=init).fit(y)
        assert found.means_ == pytest.approx(fitted.means_, abs=0.1)


def test_several_columns():
    y = np.column_stack([bursts(), bursts()[::-1]])
    found = rh.RareHMM(3, n_draws=100).fit(y)
    assert found.means_.shape == (3, 2)
    assert found.covars_.shape == (3, 2, 2)
    assert sorted(np.round(found.means_, -1).tolist()) == [[0, 0], [0, 10], [10, 0]]
    assert found.n_features_in_ == 2


def test_pipelines():
    y = bursts()[:, None]
    pipe = make_pipeline(StandardScaler(), rh.RareHMM(2, n_draws=100)).fit(y)
    assert (pipe.predict(y) == 1).sum() == 60


def test_counts_have_no_variances():
    y = np.random.default_rng(0).poisson(3, 2000).astype(float)
    y[500:520] += 40
    found = rh.RareHMM(2, emission="poisson", n_draws=100).fit(y)
    with pytest.raises(AttributeError, match="Poisson has no variances; it has rate"):
        _ = found.covars_


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: rh.RareHMM().predict([1.0, 2.0]), "not fitted yet; call fit first"),
        (lambda: rh.RareHMM(emission="gausian").fit(bursts()), "emission is 'gausian'; it must be one of bernoulli, "),
        (lambda: rh.RareHMM(method="magic").fit(bursts()), "method is 'magic'"),
        (lambda: rh.RareHMM(2).fit(bursts(), [2000, 4000]), "pass them by name: lengths="),
    ],
)
def test_errors_name_the_way_out(use, message):
    with pytest.raises((ValueError, NotFittedError), match=message):
        use()


def test_bad_states_are_refused(fitted):
    with pytest.raises(ValueError, match=r"rare_states is \[7\]; it must hold state numbers from 0 to 1"):
        fitted.rare_events(bursts(), rare_states=[7])
    with pytest.raises(ValueError, match="y has 2 columns and Gaussian takes 1"):
        fitted.predict(np.zeros((5, 2)))


REASONS = {  # checks of scikit-learn that are not for a model of sequences, or ask for its own words
    "check_methods_sample_order_invariance": "the order of observations is what the model is about",
    "check_methods_subset_invariance": "an observation's state depends on its neighbours",
    "check_fit1d": "a series of numbers is welcome",
    "check_fit2d_1sample": "refused, in words about series",
    "check_fit2d_predict1d": "refused, in words about columns",
    "check_n_features_in_after_fitting": "refused, in words about columns",
    "check_complex_data": "refused, as a TypeError",
    "check_dtype_object": "refused, as a TypeError",
    "check_estimators_empty_data_messages": "refused, in words about observations",
    "check_estimator_sparse_array": "refused, in words about arrays",
    "check_estimator_sparse_matrix": "refused, in words about arrays",
}


WIDE = {"check_estimators_dtypes", "check_positive_only_tag_during_fit"}  # four and five columns: kernels of their own


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wide", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_scikit_learn_accepts_it(wide):
    passed = 0
    for estimator, check in estimator_checks_generator(rh.RareHMM(2, method="map")):
        name = check.func.__name__
        if name not in REASONS and (name in WIDE) == wide:
            with contextlib.suppress(SkipTest):
                check(estimator)
                passed += 1
    assert passed >= (2 if wide else 24)


@pytest.mark.jit
def test_a_state_on_outliers_does_not_take_the_names_of_others():
    """Its mean is known so badly that it passes those of the common states."""
    rng = np.random.default_rng(3)
    y = np.r_[rng.normal(0, 1, 1500), rng.normal(10, 1, 1500)]
    y[700:703] = 8.0, 20.0, 40.0
    hmm = rh.RareHMM(n_draws=300).fit(y)
    mean, sd = hmm.posterior_.phi[..., 0], np.sqrt(hmm.posterior_.phi[..., 1])
    assert (mean[..., 2] < mean[..., 1]).any()  # it does pass
    np.testing.assert_allclose(mean.mean((0, 1))[:2], [0, 10], atol=0.15)
    np.testing.assert_allclose(sd.mean((0, 1))[:2], 1, atol=0.1)
    assert sd[..., :2].max() < 1.5


@pytest.mark.jit
@pytest.mark.filterwarnings("ignore:Do not trust")  # whatever the verdict on a state of one observation
def test_states_have_the_same_numbers_everywhere():
    rng = np.random.default_rng(0)
    y = np.r_[rng.normal(0, 1, 1500), rng.normal(10, 1, 1500)]
    y[700] = 30.0
    hmm = rh.RareHMM(3, n_draws=300, init=np.digitize(y, [5, 20])[::1] * 2 % 3).fit(y)  # states 0, 2, 1 by mean
    (alone,) = [r.state for r in hmm.regimes_ if r.kind == "outlier"]
    assert alone == np.argmax(hmm.means_) == 2
    assert f"state {alone}: it accounts for only" in hmm.verdict_


def test_equal_values_and_too_few_of_them():
    with pytest.raises(ValueError, match="2 different values, too few for 3 states"):
        rh.RareHMM().fit(np.r_[np.zeros(990), np.ones(10)])
    assert np.isfinite(main_direction(np.ones((5, 2)))(np.arange(10.0).reshape(5, 2))).all()


def test_what_counts_as_rare_is_a_setting():
    y = rng_series()
    few = rh.RareHMM(2, method="map", rare_share=1e-4).fit(y)
    assert len(few.rare_states_) == 0
    with pytest.warns(UserWarning, match="no state is classified as rare"):
        assert len(few.rare_events(y)) == 0
    assert rh.RareHMM(2, method="map", rare_share=0.2).fit(y).rare_states_.tolist() == [1]
    with pytest.raises(ValueError, match="rare_share is 0; it must lie between 0 and 1"):
        rh.RareHMM(2, rare_share=0).fit(y)


def rng_series():
    y = np.random.default_rng(0).normal(size=2000)
    y[300:320] += 8
    return y


def test_streams_refuse_what_the_series_would():
    hmm = rh.RareHMM(2, method="map").fit(rng_series())
    stream = hmm.update(None, 0.1)
    for bad in (np.inf, 1e300):
        with pytest.raises(ValueError, match="observation 2 is"):
            hmm.update(stream, bad)
    counts = rh.RareHMM(2, emission="poisson", method="map").fit(np.abs(3 * rng_series()).astype(int))
    for bad in (-1, 0.5):
        with pytest.raises(ValueError, match="observation 1 is"):
            counts.update(None, bad)
    with pytest.raises(ValueError, match="it belongs to another fit"):
        rh.RareHMM(3, method="map").fit(rng_series()).update(stream, 0.0)


def test_clones_generators_threads_and_known_models():
    y = rng_series()
    first = rh.RareHMM(2, method="map").fit(y)
    again = clone(rh.RareHMM(2, method="map", init=first)).fit(y)
    np.testing.assert_allclose(again.means_, first.means_, atol=1e-3)
    rh.RareHMM(2, n_draws=50, random_state=np.random.RandomState(0), n_jobs=-1).fit(y)
    fixed = {"mean": [0, 8], "variance": [1, 1], "transition": [[0.999, 0.001], [0.05, 0.95]]}
    known = rh.RareHMM(2, fixed=fixed).fit(y)
    assert known.posterior_.why == ["all parameters are fixed"]
    assert known.rare_events(y)["start"].tolist() == [300]


def test_columns_lengths_states_and_levels_at_the_door():
    y = rng_series()
    table = pd.DataFrame({"a": y, "b": -y})
    hmm = rh.RareHMM(2, method="map").fit(table)
    assert hmm.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="the model was fitted to \\['a', 'b'\\], in this order"):
        hmm.predict(table[["b", "a"]])
    one = rh.RareHMM(2, method="map").fit(y)
    with pytest.raises(ValueError, match="omit lengths"):
        one.predict_proba(rh.Series(y), lengths=[1000, 1000])
    assert one.rare_events(y, rare_states=[1, 1])["probability"].max() <= 1
    alone = one.rare_events(np.array([8.0, 8, 8, 8, 9, 6, 8, 8]))
    assert alone["peak"].tolist() == [9.0]  # seen from what is ordinary, not from the mean of the batch
    empty = one.rare_events(y[1000:1200])
    assert len(empty) == 0
    assert empty.dtypes.equals(one.rare_events(y).dtypes)
    with pytest.raises(ValueError, match="horizon is 0"):
        one.forecast(y, horizon=0)
    with pytest.raises(ValueError, match="n_average is -1"):
        rh.RareHMM(2, n_average=-1).fit(y)
