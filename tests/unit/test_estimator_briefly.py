"""RareHMM on sixty observations, from its mode: everything that can be asked of a fit, without a compiler."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import rarehmm as rh
from rarehmm.common import checks
from rarehmm.estimator import generator
from rarehmm.posterior.saved_fit import SavedFit
from rarehmm.specification.given import as_series

pytestmark = pytest.mark.plain

EVENT = slice(30, 34)
NOTES = (
    "Note: this is the mode alone, without uncertainty. Note: the search started from init, and no other mode was "
    "sought."
)


def burst(seed=0):
    y = np.random.default_rng(seed).normal(size=60)
    y[EVENT] += 9
    return y


def unfitted(**more):
    """From the truth, so that nothing has to be searched for."""
    return rh.RareHMM(2, **{"method": "map", "init": (burst() > 5).astype(int), "rare_share": 0.2, **more})


@pytest.fixture(scope="module")
def hmm():
    return unfitted().fit(burst())


def test_what_was_found(hmm):
    assert hmm.rare_states_.tolist() == [1]
    assert [r.kind for r in hmm.regimes_] == ["common", "rare"]
    assert hmm.means_ == pytest.approx(np.array([[0.0], [9.0]]), abs=0.7)
    assert hmm.covars_.shape == (2, 1)
    assert hmm.transmat_.sum(1) == pytest.approx(1)
    assert hmm.startprob_ == pytest.approx(rh.stationary(hmm.transmat_))
    assert hmm.posterior_.why == ["the mode was requested"]
    assert hmm.verdicts_ == (f"Posterior: all checks passed. {NOTES}", "Model: fits the series.")
    assert hmm.verdict_ == " ".join(hmm.verdicts_)
    assert hmm.n_features_in_ == 1
    assert "mean[1]" in hmm.summary().index
    assert hmm.__sklearn_tags__().input_tags.allow_nan


def test_states_of_another_series(hmm, tmp_path):
    y = burst(1)
    probability = hmm.predict_proba(y)
    mean = hmm.posterior_.mean
    np.testing.assert_allclose(probability, rh.smooth(hmm.posterior_.model, mean, rh.Series(y)), atol=1e-12)
    value, path = hmm.decode(y)
    np.testing.assert_array_equal(path, hmm.predict(y))
    np.testing.assert_array_equal(np.flatnonzero(path == 1), np.arange(60)[EVENT])
    whole = rh.log_likelihood(hmm.posterior_.model, mean, rh.Series(y))
    assert hmm.score(y) == pytest.approx(whole)
    assert whole - 0.5 < value < whole + 1e-9  # one path has nearly all of it
    written = hmm.predict_proba(y, out=tmp_path / "p.npy")
    np.testing.assert_allclose(written, probability, atol=1e-6)
    filtered, stream = hmm.filter_proba(y), None
    for v in y[:4]:
        stream = hmm.update(stream, v)
    np.testing.assert_allclose(stream.probability, filtered[3], atol=1e-9)
    two = hmm.predict(y, lengths=[20, 40])
    np.testing.assert_array_equal(two, np.concatenate(hmm.predict([y[:20], y[20:]])))


def test_what_comes_out_has_the_form_of_what_goes_in(hmm, tmp_path):
    """A list of sequences gives a list; tables have the index of the data."""
    y, minutes = burst(1), pd.date_range("2026-01-01", periods=60, freq="min")
    first, second = hmm.predict_proba([y[:20], y[20:]])
    assert (first.shape, second.shape) == ((20, 2), (40, 2))
    np.testing.assert_array_equal(np.vstack([first, second]), hmm.predict_proba(y, lengths=[20, 40]))
    table = hmm.predict_proba(pd.Series(y, minutes), as_frame=True)
    assert table.columns.tolist() == ["state_0", "state_1"]
    assert table.index.equals(minutes)
    np.testing.assert_array_equal(table, hmm.predict_proba(y))
    tables = hmm.filter_proba([pd.Series(y[:20], minutes[:20]), pd.Series(y[20:], minutes[20:])], as_frame=True)
    assert [one.index[0] for one in tables] == [minutes[0], minutes[20]]
    assert [part.shape for part in hmm.decode([y[:20], y[20:]])[1]] == [(20,), (40,)]
    with pytest.raises(ValueError, match="a file holds an array"):
        hmm.predict_proba(y, out=tmp_path / "p.npy", as_frame=True)


def test_what_hmmlearn_has_is_there_too(hmm):
    y = burst(1)
    value, probabilities = hmm.score_samples(y)
    assert value == hmm.score(y)
    np.testing.assert_array_equal(probabilities, hmm.predict_proba(y))
    whole = rh.log_likelihood(hmm.posterior_.model, hmm.posterior_.mean, rh.Series(y))
    assert hmm.posterior_.model.size == 6
    assert hmm.aic(y) == pytest.approx(-2 * whole + 12)
    y[:10] = np.nan
    whole = rh.log_likelihood(hmm.posterior_.model, hmm.posterior_.mean, rh.Series(y))
    assert hmm.bic(y) == pytest.approx(-2 * whole + 6 * np.log(50))
    np.testing.assert_array_equal(unfitted().fit_predict(burst()), hmm.predict(burst()))


def test_a_saved_fit_is_as_it_was(tmp_path):
    """Regimes, names, settings and both verdicts are kept, and nothing is executed."""
    table, path = pd.DataFrame({"flux": burst()}), tmp_path / "fit.nc"
    before = unfitted(n_draws=np.int64(77), startprob=None).fit(table, regular=False)
    before.save(path)
    after = rh.RareHMM.load(path)
    assert after.regimes_ == before.regimes_
    assert after.feature_names_in_.tolist() == ["flux"]
    assert (after.n_draws, after.method, after.emission, after.random_state) == (77, "map", "gaussian", 0)
    assert (after.init, after.priors, after._regular) == (None, None, False)
    assert after.verdicts_ == before.verdicts_
    np.testing.assert_array_equal(after.predict_proba(table), before.predict_proba(table))
    with pytest.raises(ValueError, match="the model was fitted to"):
        after.predict(pd.DataFrame({"other": burst()}))
    assert rh.Posterior.load(path).method == "map"
    before.posterior_.save(path)
    with pytest.raises(ValueError, match=r"fit\.nc has a posterior alone; load it with Posterior\.load"):
        rh.RareHMM.load(path)


def test_results_can_be_read_where_they_are_shown(hmm):
    """In a notebook a fit shows its verdicts, states and events; forecasts and streams are a few lines."""
    page = hmm._repr_mimebundle_()["text/html"]
    assert "Model: fits the series." in page
    assert "States: mode only, no uncertainty" in page
    assert "<td>1</td><td>rare</td><td>6.67%</td><td>1</td><td>8.7" in page
    assert "About 1 rare events; rare_events(X) lists them." in page
    assert "rare_events(X)" not in rh.RareHMM(2)._repr_html_()
    minutes = pd.date_range("2026-01-01", periods=60, freq="min")
    first, head, *rows = str(hmm.forecast(pd.Series(burst(), minutes), 30, size=10)).splitlines()
    assert first.startswith("Forecast of 30 steps. Event: probability that a rare state was visited by then, for the")
    assert head.split() == ["step", "mean", "low", "high", "event", "state_0", "state_1"]
    assert [row.split()[2] for row in rows] == ["1", "2", "5", "10", "20", "30"]
    assert "2026-01-01 01:29:00" in rows[-1]
    assert str(rh.Stream()) == "Stream(0 observations)"
    assert str(hmm.update(None, 9.0)).endswith(", P(state 1) = 1)")
    assert str(rh.RegimeStream()) == "RegimeStream(0 observations)"


def test_a_mode_has_no_intervals(hmm):
    summary = hmm.summary()
    assert summary.attrs["note"] == "mode only, no uncertainty"
    assert summary["mean"].notna().all()
    assert summary.drop(columns="mean").isna().all(axis=None)


def test_columns_without_information_are_refused_or_noted():
    X = pd.DataFrame({"flux": burst(), "temp": 3.0})
    assert "Note: temp is always 3 and says nothing about the states: leave it out." in unfitted().fit(X).verdict_
    with pytest.raises(ValueError, match=r"column 'temp' of y is missing .NaN. in all 60 rows; leave this column out"):
        unfitted().fit(X.assign(temp=np.nan))
    with pytest.raises(ValueError, match=r"y\[:, 1\] is missing .NaN. in all 60 rows"):
        rh.select_n_components(X.assign(temp=np.nan).to_numpy(), [1])


def test_more_states_than_observations_tell_apart_are_refused_trust():
    with pytest.warns(RuntimeWarning, match="few observations 20 .observed values, for 12 parameters: fit with fewer"):
        hmm = rh.RareHMM(3, method="map").fit(np.random.default_rng(0).normal(size=20))
    assert hmm.verdict_.startswith("Posterior: do not trust these results: few observations 20")


@pytest.mark.parametrize("change", [
    {"regimes": []}, {"settings": {"method": {"a": 1}}}, {"settings": {"no_such": 1}}, {"model_check": None},
    {"names": 3}, {"notes": None},
])  # fmt: skip
def test_a_damaged_fit_is_refused(hmm, tmp_path, monkeypatch, change):
    monkeypatch.setattr(SavedFit, "to_dict", lambda self, to_dict=SavedFit.to_dict: to_dict(self) | change)
    hmm.save(tmp_path / "fit.nc")
    with pytest.raises(ValueError, match=r"fit\.nc is damaged"):
        rh.RareHMM.load(tmp_path / "fit.nc")


def test_events_forecasts_and_samples(hmm):
    y = burst(1)
    events = hmm.rare_events(y)
    assert (events["start"].tolist(), events["duration"].tolist()) == ([30], [4])
    ahead = hmm.forecast(y, 5, size=20)
    assert ahead.event.shape == (5,)
    assert (np.diff(ahead.event) > 0).all()
    assert ahead.observations.shape == (20, 5)
    x, states = hmm.sample(50, random_state=np.random.RandomState(0))
    assert (x.shape, states.shape) == ((50, 1), (50,))
    again, _ = hmm.sample(50, random_state=np.random.RandomState(0))
    np.testing.assert_array_equal(x, again)
    point = clone(hmm).set_params(n_average=0).fit(y)
    np.testing.assert_array_equal(point.sample(9)[1], point.sample(9)[1])
    with pytest.warns(UserWarning, match="no state is classified as rare"):
        assert len(rh.RareHMM.of(hmm.posterior_, []).rare_events(y)) == 0
    with pytest.raises(ValueError, match=r"rare_states is \[7\]; it must hold state numbers from 0 to 1"):
        hmm.rare_events(y, rare_states=[7])


def test_a_good_posterior_of_a_bad_model_is_no_reason_for_trust():
    walk = np.cumsum(np.random.default_rng(0).normal(size=200))
    found = rh.RareHMM(1, method="map").fit(walk)
    assert found.verdicts_[0].startswith("Posterior: all checks passed.")
    expected = "Model: does not fit the series, so do not rely on its probabilities and intervals: residual autocorr"
    assert found.verdicts_[1].startswith(expected)
    first, again = (
        [(c.name, c.value, c.passed) for c in one.checks] for one in (found.model_check_, found.check(walk))
    )
    assert first == again  # whose message may name a remedy, which takes longer to find
    assert not found.model_check_.passed


def test_the_model_check_changes_nothing_else(hmm):
    off = unfitted(check_model=False).fit(burst())
    assert off.verdicts_[1] == "Model: not checked: check_model is False."
    np.testing.assert_array_equal(off.posterior_.phi, hmm.posterior_.phi)
    after = []
    for check_model in (True, False):
        rng = np.random.default_rng(0)
        unfitted(check_model=check_model, random_state=rng).fit(burst())
        after.append(rng.random())
    assert after[0] == after[1]


def test_a_model_that_cannot_be_checked_is_fitted_all_the_same(hmm, monkeypatch):
    short = rh.RareHMM(1, method="map").fit(burst()[:15])
    assert short.verdicts_[1] == "Model: not checked: a check needs 20 observations, and there are 15."
    monkeypatch.setattr("rarehmm.posterior.model_check.pseudo_residuals", lambda *_, **__: 1 / 0)
    assert unfitted().fit(burst()).verdicts_[1] == "Model: not checked: division by zero."
    saved = rh.RareHMM.of(hmm.posterior_, hmm.regimes_)
    assert saved.verdict_.endswith("Model: not checked: this is a saved posterior without its series; use check(X).")


def test_sequences_gaps_and_columns_are_checked():
    y = np.column_stack([burst(), burst(1)])
    y[5:8, 0] = np.nan
    found = rh.RareHMM(2, emission=["gaussian", "gaussian"], method="map", init=(burst() > 5).astype(int))
    found.fit([y[:32], y[32:]])
    assert found.verdicts_[1] == "Model: fits the series."
    assert "residual autocorrelation of column 1" in [c.name for c in found.model_check_.checks]


def test_the_fit_is_checked_in_words(hmm):
    y = burst(1)
    names = [c.name for c in hmm.check(y).checks]
    assert "maximum" in names
    assert "residual autocorrelation" in names
    shifted = hmm.check(y + 40)
    assert not shifted.passed
    assert str(shifted).startswith("The model does not fit the series")


def test_starts_clones_and_pickles(hmm):
    y = burst()
    for init in (hmm, hmm.posterior_.mean):
        other = clone(unfitted(init=init))
        assert other.init is init
        np.testing.assert_allclose(other.fit(y).means_, hmm.means_, atol=1e-3)
    copy = pickle.loads(pickle.dumps(hmm))
    np.testing.assert_array_equal(copy.predict_proba(y), hmm.predict_proba(y))
    kept = rh.RareHMM.of(hmm.posterior_, hmm.regimes_)
    np.testing.assert_array_equal(kept.predict(y), hmm.predict(y))


def test_tables_have_names_which_a_later_fit_forgets():
    y = burst()
    found = unfitted(emission=["gaussian", "gaussian"]).fit(pd.DataFrame({"a": y, "b": -y}))
    assert found.feature_names_in_.tolist() == ["a", "b"]
    assert found.means_ == pytest.approx(np.array([[0, 0], [9, -9]]), abs=0.7)
    with pytest.raises(
        ValueError, match=r"X has columns \['b', 'a'\]; the model was fitted to \['a', 'b'\], in this order"
    ):
        found.predict(pd.DataFrame({"b": -y, "a": y}))
    found.fit(np.column_stack([y, -y]))
    assert not hasattr(found, "feature_names_in_")


def test_several_columns_have_covariances():
    y = np.column_stack([burst(), burst(1)])
    found = unfitted().fit(y)
    assert found.covars_.shape == (2, 2, 2)
    assert found.means_ == pytest.approx(np.array([[0, 0], [9, 9]]), abs=0.7)


def test_counts_have_no_variances():
    y = np.abs(burst()).round()
    found = unfitted(emission="poisson").fit(y)
    with pytest.raises(AttributeError, match="Poisson has no variances; it has rate"):
        _ = found.covars_


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda y: rh.RareHMM().predict(y), "not fitted yet; call fit first"),
        (lambda y: unfitted(rare_share=0).fit(y), "rare_share is 0; it must lie between 0 and 1"),
        (lambda y: unfitted().fit(y, client=1, executor=1), "both client and executor are given"),
        (lambda y: unfitted().fit(y, [20, 40]), "looks like the lengths of sequences; pass them by name"),
        (
            lambda y: as_series(rh.Series(y), [20, 40]),
            "X is a Series, which already has its own sequences",
        ),
        (lambda y: unfitted(n_average=-1).fit(y), "n_average is -1"),
    ],
)
def test_errors_name_the_way_out(use, message):
    with pytest.raises((ValueError, NotFittedError), match=message):
        use(burst())


def test_old_generators_and_new_ones():
    old = generator(np.random.RandomState(3)).random()
    assert old == generator(np.random.RandomState(3)).random() != generator(3).random()
    new = np.random.default_rng(3)
    assert generator(new) is new


def test_what_fills_the_memory_is_refused(hmm, monkeypatch):
    checks.check_memory("an array", 1, "nothing.")
    with pytest.raises(MemoryError, match=r"an array would need 1.07e\+09 GiB of the machine's .* GiB; use a file."):
        checks.check_memory("an array", 1 << 60, "use a file.")
    monkeypatch.delattr(checks.os, "sysconf")
    with pytest.raises(MemoryError, match=r"would need 5 GiB of the machine's 8 GiB"):
        checks.check_memory("an array", 5 << 30, "use a file.")
