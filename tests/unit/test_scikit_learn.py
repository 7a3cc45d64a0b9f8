"""Seasons, lags and inputs in scikit-learn: clones, pipelines and searches, with metadata routing or without it."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rarehmm as rh

pytestmark = pytest.mark.jit

T = 576  # in three folds of whole days: without times, seasons of a fold begin with it
EXOG = np.random.default_rng(1).normal(size=(T, 1))


def series():
    y = np.random.default_rng(0).normal(size=T)
    for t in range(1, T):
        y[t] += 0.7 * y[t - 1]
    return y + 2 * EXOG[:, 0] + 3 * np.sin(2 * np.pi * np.arange(T) / 24) + np.where(np.arange(T) % 150 < 5, 15, 0)


Y = series()


def unfitted(n=2, **more):
    return rh.RareHMM(n, **{"method": "map", "verbose": 0, "check_model": False, **more})


def test_settings_are_cloned_set_and_shown():
    given = {
        "ar": rh.AroundLevel(2), "season": ["1D", rh.Season("7D", 2)], "trend": rh.Trend([1, 2]), "scale": "season",
        "switching": ["temp"], "transitions": [rh.Columns("load")], "durations": [1, 3],
    }  # fmt: skip
    hmm = unfitted(**given)
    again = clone(hmm)
    assert {name: again.get_params()[name] for name in given} == given
    assert again.season is not hmm.season
    assert hmm.set_params(ar=1, season=24).get_params()["season"] == 24
    assert "ar=1" in repr(hmm)
    assert "season" not in repr(unfitted())


def test_a_pipeline_passes_inputs_on():
    pipe = make_pipeline(StandardScaler(), unfitted(ar=1)).fit(Y[:, None], rarehmm__exog=EXOG)
    assert pipe[-1].exog_names_in_.tolist() == ["x0"]
    hmm = unfitted(ar=1).fit((Y - Y.mean()) / Y.std(), exog=EXOG)
    np.testing.assert_array_equal(pipe.predict(Y[:, None], exog=EXOG), hmm.predict((Y - Y.mean()) / Y.std(), exog=EXOG))


@pytest.mark.parametrize("X", [Y, Y[:, None], pd.Series(Y, pd.date_range("2026-01-01", periods=T, freq="h"))])
def test_a_search_over_lags_and_states(X):
    grid = {"ar": [0, 1], "n_components": [1, 2]}
    search = GridSearchCV(unfitted(season=24, durations=2), grid, cv=TimeSeriesSplit(2)).fit(X)
    assert search.best_params_ == {"ar": 1, "n_components": 2}
    assert search.best_estimator_.posterior_.model.autoregression == rh.AroundLevel(1)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_a_search_routes_inputs_where_they_are_requested():
    with sklearn.config_context(enable_metadata_routing=True):
        hmm = unfitted(ar=1).set_fit_request(exog=True).set_score_request(exog=True)
        search = GridSearchCV(hmm, {"ar": [0, 1]}, cv=TimeSeriesSplit(2)).fit(Y, exog=EXOG)
        assert search.best_params_ == {"ar": 1}
        assert search.best_estimator_.exog_names_in_.tolist() == ["x0"]
        scores = cross_val_score(hmm, Y, cv=TimeSeriesSplit(2), params={"exog": EXOG})
        assert np.isfinite(scores).all()
