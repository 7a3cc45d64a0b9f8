"""RareHMM with lags, seasons, trends, inputs, known states and durations, mostly from its mode."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import rarehmm as rh

pytestmark = pytest.mark.jit

T = 600
BURSTS = (slice(150, 162), slice(400, 412))


def data(seed=0, start="2026-01-01", size=T):
    """A series with a daily season, correlated noise, an input, and two bursts; and inputs."""
    rng = np.random.default_rng(seed)
    hours = pd.date_range(start, periods=size, freq="h")
    temp, load, noise = 20 + rng.normal(size=size), rng.normal(size=size), rng.normal(size=size)
    for t in range(1, size):
        noise[t] += 0.6 * noise[t - 1]
    y = noise + 3 * np.sin(2 * np.pi * (hours.hour.to_numpy() / 24)) + 0.5 * temp
    for burst in BURSTS:
        y[burst] += 14
    return pd.Series(y, hours, name="cpu"), pd.DataFrame({"temp": temp}, hours), pd.DataFrame({"load": load}, hours)


Y, TEMP, LOAD = data()
DAY = rh.Season("1D", order=1)


def unfitted(n=2, **more):
    return rh.RareHMM(n, **{"method": "map", "verbose": 0, "ar": 1, "season": DAY, "check_model": False, **more})


@pytest.fixture(scope="module")
def hmm():
    return unfitted(check_model=True).fit(Y, exog=TEMP)


def estimate(hmm, name):
    return hmm.summary().loc[name, "mean"]


def test_season_lags_and_inputs_are_found_in_the_units_of_the_user(hmm):
    assert estimate(hmm, "coefficient[sin(1D) 1]") == pytest.approx(3, abs=0.4)
    assert estimate(hmm, "coefficient[temp]") == pytest.approx(0.5, abs=0.15)
    assert estimate(hmm, "lag_coefficient[1]") == pytest.approx(0.6, abs=0.15)
    assert hmm.exog_names_in_.tolist() == ["temp"]
    assert hmm.rare_states_.tolist() == [1]
    assert hmm.verdicts_[1] == "Model: fits the series."
    arviz = hmm.posterior_.to_arviz()
    assert "temp" in np.asarray(arviz["posterior"]["input"]).tolist()


def test_everything_that_takes_data_takes_inputs(hmm, tmp_path):
    y, temp, _ = data(1, "2026-03-05 07:00")
    series = rh.Series(y, exog=temp)
    mean, model = hmm.posterior_.mean, hmm.posterior_.model
    p = hmm.predict_proba(y, exog=temp)
    np.testing.assert_allclose(p, rh.smooth(model, mean, series), atol=1e-9)
    np.testing.assert_array_equal(hmm.predict_proba(series), p)
    np.testing.assert_allclose(hmm.predict_proba(y, exog=temp, out=tmp_path / "p.npy"), p, atol=1e-6)
    np.testing.assert_allclose(hmm.filter_proba(y, exog=temp), rh.filter_states(model, mean, series), atol=1e-9)
    value, path = hmm.decode(y, exog=temp)
    np.testing.assert_array_equal(hmm.predict(y, exog=temp), path)
    assert hmm.score(y, exog=temp) == pytest.approx(rh.log_likelihood(model, mean, series))
    assert value == pytest.approx(rh.joint_log_density(model, mean, series, path))
    events = hmm.rare_events(y, exog=temp)
    assert events["start"].tolist() == [y.index[150], y.index[400]]
    assert [first for first, _, _ in hmm.stream_proba(y, exog=temp)] == [0]
    assert hmm.check(y, exog=temp).passed


def test_the_phase_of_a_season_comes_from_the_time_of_new_data(hmm):
    y, temp, _ = data(1, "2026-03-05 07:00")
    other = y.copy()
    other.index = other.index + pd.Timedelta("9h")
    assert hmm.score(y, exog=temp) > hmm.score(other, exog=temp.to_numpy()) + 100


def test_columns_are_found_by_name_and_standardised_as_at_fit(hmm):
    y, temp, load = data(1)
    wide = pd.concat([load, temp], axis=1)
    np.testing.assert_array_equal(hmm.predict_proba(y, exog=wide), hmm.predict_proba(y, exog=temp))
    part = slice(0, 60)  # with another mean and standard deviation
    np.testing.assert_allclose(
        hmm.filter_proba(y[part], exog=temp[part]), hmm.filter_proba(y, exog=temp)[part], atol=1e-9
    )


def test_known_states_at_fit_and_at_prediction():
    states = np.full(T, -1)
    states[155], states[20] = 0, 1
    hmm = unfitted().fit(Y, exog=TEMP, states=states)
    assert hmm.rare_states_.tolist() == [0]
    assert hmm.means_[0, 0] > hmm.means_[1, 0] + 10
    free = hmm.predict_proba(Y, exog=TEMP)[157]
    known = hmm.predict_proba(Y, exog=TEMP, states=np.where(np.arange(T) == 157, 1, -1))[157]
    assert free[0] > 0.99
    assert known == pytest.approx([0, 1])


def test_transitions_with_inputs_and_with_a_season():
    hmm = unfitted(transitions=DAY).fit(Y, exog=TEMP, exog_transition=LOAD)
    assert hmm.exog_names_in_.tolist() == ["temp", "load"]
    assert "transition_coefficient[load, 0, 1]" in hmm.summary().index
    assert "transition_coefficient[sin(1D) 1, 0, 1]" in hmm.summary().index
    together = hmm.predict_proba(Y, exog=pd.concat([TEMP, LOAD], axis=1))
    np.testing.assert_array_equal(hmm.predict_proba(Y, exog=TEMP, exog_transition=LOAD), together)
    with pytest.raises(ValueError, match="exog has no column 'load'; it has 'temp'"):
        hmm.predict(Y, exog=TEMP)


def test_switching_scale_and_trend():
    hmm = unfitted(switching="temp", scale="temp", trend="linear").fit(Y, exog=TEMP)
    names = hmm.summary().index
    for name in ("switching_coefficient[temp, 1]", "log_scale_coefficient[temp]", "coefficient[trend]"):
        assert name in names
    assert "coefficient[temp]" not in names
    assert "lag_coefficient[1, 1]" in unfitted(switching=["ar"]).fit(Y).summary().index


@pytest.mark.parametrize("durations", [3, [1, 3]])
def test_durations(durations):
    hmm = unfitted(durations=durations).fit(Y, exog=TEMP)
    assert hmm.rare_states_.tolist() == [np.argmax(hmm.means_)]
    assert hmm.rare_events(Y, exog=TEMP)["duration"].tolist() == [12, 12]


def test_other_forms_of_data(hmm):
    y, temp = Y.to_numpy(), TEMP.to_numpy()
    plain = unfitted(season=24, trend=2).fit([y[:300], y[300:]], exog=[temp[:300], temp[300:]])
    assert plain.exog_names_in_.tolist() == ["x0"]
    both = plain.predict([y[:300], y[300:]], exog=[temp[:300], temp[300:]])
    np.testing.assert_array_equal(np.concatenate(both), plain.predict(y, [300, 300], exog=TEMP))
    assert plain.rare_events(y, [300, 300], exog=temp)["sequence"].tolist() == [0, 1]
    counts = np.random.default_rng(0).poisson(np.where(np.arange(T) % 200 < 8, 60, 4)).astype(float)
    poisson = rh.RareHMM(2, emission="poisson", ar=1, season=24, method="map", verbose=0).fit(counts)
    assert poisson.rare_states_.tolist() == [1]


@pytest.mark.filterwarnings("ignore:Do not trust")  # a Gaussian at the mode
def test_a_fit_with_draws_and_a_file(tmp_path):
    hmm = unfitted(method="laplace", n_draws=50, n_average=5).fit(Y, exog=TEMP, exog_transition=LOAD)
    hmm.posterior_.save(tmp_path / "fit.nc")
    again = rh.RareHMM.of(rh.Posterior.load(tmp_path / "fit.nc"), hmm.regimes_).set_params(n_average=5)
    more = {"exog": TEMP, "exog_transition": LOAD}
    np.testing.assert_array_equal(again.predict_proba(Y, **more), hmm.predict_proba(Y, **more))
    assert again.exog_names_in_.tolist() == ["temp", "load"]
    assert again.season == [DAY]
    assert clone(again).set_params(method="map", verbose=0).fit(Y, **more).rare_states_.tolist() == [1]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda hmm: hmm.fit(Y, TEMP), "the second argument, y, is a DataFrame that is not used: .* by name: exog="),
        (lambda hmm: hmm.fit(Y, TEMP["temp"]), "y, is a Series that is not used: .* exog="),
        (lambda hmm: hmm.fit(Y, TEMP["temp"].tolist()), "y, is a list that is not used: .* exog="),
        (lambda hmm: hmm.score(Y, TEMP.to_numpy()[:, 0]), "y, is a ndarray that is not used: .* exog="),
        (lambda hmm: hmm.predict(Y, TEMP), "lengths is a DataFrame of numbers that are no lengths .* by name: exog="),
        (lambda hmm: hmm.predict(Y, TEMP["temp"]), "lengths is a Series of numbers that are no lengths"),
        (lambda hmm: clone(hmm).set_params(ar=T).fit(Y, exog=TEMP), "use at most 599 lags"),
        (lambda hmm: hmm.predict(Y), "future inputs missing: 'temp'; pass exog= with one row for each new observation"),
        (lambda hmm: hmm.predict(Y, exog=LOAD), "exog has no column 'temp'; it has 'load'"),
        (lambda hmm: hmm.predict(Y, exog=TEMP[:-1]), "exog has 599 rows and y has 600; pass one row for each"),
        (lambda hmm: hmm.predict(Y.to_numpy(), exog=TEMP), "y has no time index and the series that"),
        (lambda hmm: hmm.predict(rh.Series(Y), exog=TEMP), "X is a Series, .* inputs; pass exog to Series"),
        (lambda hmm: hmm.fit(Y, exog=TEMP.assign(one=1.0)), "exog column 'one' is constant"),
        (lambda hmm: hmm.fit(Y, exog=TEMP, states=np.full(T, 2)), "known states is 2 and the model has 2 states"),
        (lambda hmm: hmm.rare_events(Y, exog=TEMP, states=[1]), r"count as rare by rare_states=\[1\]"),
        (lambda hmm: clone(hmm).set_params(method="chain").fit(Y, exog=TEMP), "Use a method that reads all data"),
        (lambda hmm: clone(hmm).set_params(n_components=1, switching="tmp").fit(Y, exog=TEMP), "Did you mean 'temp'"),
    ],
)  # fmt: skip
def test_bad_use_is_refused_with_a_way_out(hmm, use, message):
    with pytest.raises(ValueError, match=message):
        use(hmm)


def test_inputs_of_a_model_without_any_are_refused():
    plain = unfitted(ar=None, season=None).fit(Y)
    with pytest.raises(ValueError, match="exog is given, and the model was fitted without inputs; omit it, or fit"):
        plain.predict(Y, exog=TEMP)
    with pytest.raises(ValueError, match="exog_transition is given, and the model was fitted without inputs"):
        plain.predict(Y, exog_transition=TEMP)


def test_another_fit_as_start():
    first = unfitted(ar=None).fit(Y, exog=TEMP)
    second = unfitted(init=first).fit(Y, exog=TEMP)
    assert estimate(second, "lag_coefficient[1]") == pytest.approx(0.6, abs=0.15)
    labels = np.zeros(T, dtype=int)
    for burst in BURSTS:
        labels[burst] = 1
    assert unfitted(init=labels, durations=2).fit(Y, exog=TEMP).rare_states_.tolist() == [1]


def test_a_stream_gives_the_filtered_probabilities(hmm):
    wanted, stream = hmm.filter_proba(Y, exog=TEMP), None
    for t in range(145, 155):  # phase follows time, wherever the stream begins
        stream = hmm.update(stream, Y.iloc[t], exog=TEMP["temp"].iloc[t], times=Y.index[t])
    assert stream.probability == pytest.approx(wanted[154], abs=1e-6)
    stream = hmm.update(stream, Y[155:160], exog=TEMP[155:160])  # several at once, with their index
    assert stream.seen == 15
    assert stream.probability == pytest.approx(wanted[159], abs=1e-6)
    stream = rh.RegimeStream.from_dict(stream.to_dict())
    known = hmm.update(stream, Y.iloc[160], exog={"temp": TEMP["temp"].iloc[160]}, times=Y.index[160], states=0)
    assert known.probability == pytest.approx([1, 0])


def test_streams_of_transitions_with_inputs_and_of_known_states():
    hmm = unfitted(season=None).fit(Y.to_numpy(), exog=TEMP.to_numpy(), exog_transition=LOAD.to_numpy())
    more = {"exog": TEMP.to_numpy(), "exog_transition": LOAD.to_numpy()}
    wanted, stream = hmm.filter_proba(Y.to_numpy(), **more), None
    for t in range(4):
        stream = hmm.update(stream, Y.iloc[t], **{name: x[t] for name, x in more.items()})
    stream = hmm.update(stream, Y.to_numpy()[4:9], **{name: x[4:9] for name, x in more.items()})
    assert stream.probability == pytest.approx(wanted[8], abs=1e-9)
    with pytest.raises(ValueError, match="only one of exog and exog_transition has names"):
        hmm.update(None, 20.0, exog=TEMP[:1], exog_transition=[0.0])
    named = unfitted(season=None).fit(Y, exog=TEMP, exog_transition=LOAD)
    stream = named.update(None, Y[:5], exog=TEMP[:5], exog_transition=LOAD[:5])
    assert stream.probability == pytest.approx(wanted[4], abs=1e-6)
    plain = unfitted(ar=None, season=None).fit(Y)
    stream = plain.update(plain.update(None, 20.0, states=1), 20.0)
    assert isinstance(stream, rh.RegimeStream)
    assert stream.probability == pytest.approx(plain.filter_proba([20.0, 20.0], states=[1, -1])[1])
    with pytest.raises(ValueError, match=r"states is given for the first time .* pass states= from the start on"):
        plain.update(plain.update(None, 20.0), 20.0, states=1)
    with pytest.raises(ValueError, match="belongs to a model without lags, inputs or durations; start a new one"):
        hmm.update(plain.update(None, 20.0), 20.0, exog=[20.0], exog_transition=[0.0])
    with pytest.raises(ValueError, match="exog is given, and the model was fitted without inputs"):
        plain.update(None, 20.0, exog=[1.0])


def test_samples_follow_times_and_inputs(hmm):
    hours = pd.date_range("2026-06-01", periods=2400, freq="h")
    temp = pd.DataFrame({"temp": np.where(np.arange(2400) < 1200, 0.0, 40.0)}, hours)
    x, states = hmm.sample(2400, index=hours, exog=temp)
    ordinary = x[states == 0, 0], hours[states == 0].hour
    assert ordinary[0][:1000].mean() == pytest.approx(ordinary[0][-1000:].mean() - 20, abs=4)
    assert ordinary[0][ordinary[1] == 6].mean() > ordinary[0][ordinary[1] == 18].mean() + 3
    lags = unfitted(season=None).fit(Y)
    y, _ = lags.sample(300)
    assert y.shape == (300, 1)
    with pytest.raises(ValueError, match=r"index is missing, .* pass index=, a pandas.DatetimeIndex of 10 times"):
        hmm.sample(10, exog=temp[:10])
    with pytest.raises(ValueError, match="future inputs missing: 'temp'; pass exog="):
        hmm.sample(10, index=hours[:10])
    with pytest.raises(ValueError, match="exog has 9 rows and y has 10"):
        hmm.sample(10, index=hours[:10], exog=temp[:9])
    with pytest.raises(ValueError, match="exog is given, and the model was fitted without inputs"):
        lags.sample(10, exog=temp[:10])


def test_events_to_come(hmm):
    ahead = hmm.forecast(rh.Series(Y, exog=TEMP), 20, size=0)
    assert ahead.event.shape == (20,)
    assert 0 < ahead.event[0] < ahead.event[-1] < 1
