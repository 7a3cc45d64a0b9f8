"""Columns of different kinds, from labels to reports: a rare state that shows in a level and in a choice."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest
from small_models import off_gibbs
from typer.testing import CliRunner

import rarehmm as rh
from rarehmm import plots
from rarehmm.app import cli
from rarehmm.app.settings import Settings
from rarehmm.emissions import families
from rarehmm.posterior.residuals import pseudo_residuals
from rarehmm.search.initial import first_labels
from rarehmm.search.labels import from_labels
from rarehmm.search.mode import difference_steps
from rarehmm.specification.families import family_of

TRANSITION = [[0.995, 0.005], [0.1, 0.9]]  # the second state holds one observation in 21


def simulated(family, T, **phi):
    """Model with default priors, true parameters, series and states."""
    free = rh.Model(family, 2, rh.no_priors(family))
    truth = free.parameters(TRANSITION, **phi)
    y, states = rh.simulate(np.random.default_rng(1), free, truth, T)
    series = rh.Series(y)
    return rh.Model(family, 2, rh.default_priors(family, 2, series)), truth, series, states


SPEED = rh.Product(speed=rh.Gaussian(), choice=rh.Categorical(3))
TRUTH = {"speed_mean": [5.0, 7.0], "speed_variance": [1.0, 0.5], "choice_log_odds_1": [-1.0, 0.5],
         "choice_log_odds_2": [-4.0, 2.0]}  # fmt: skip


def table(T=3000):
    _, _, series, states = simulated(SPEED, T, **TRUTH)
    return pd.DataFrame(series.read(0, T), columns=["speed", "choice"]), states


@pytest.fixture(
    scope="module",
    params=[pytest.param(method, marks=pytest.mark.nightly) for method in ("importance", "hmc", "auto")],
)
def fitted(request):
    X, states = table()
    settings = {"method": request.param, "n_draws": 200, "rare_share": 0.2, "verbose": 0}
    hmm = rh.RareHMM(2, emission=["gaussian", "categorical"], **settings).fit(X)
    return X, states, hmm


@pytest.mark.jit
def test_the_rare_state_is_found_in_both_columns_together(fitted):
    X, states, hmm = fitted
    assert hmm.posterior_.model.family == SPEED  # categories are counted, columns name parameters
    assert hmm.rare_states_.tolist() == [1]
    wrong = np.mean(hmm.predict(X) != states)
    alone = rh.RareHMM(2, method="map", verbose=0).fit(X["speed"])
    assert wrong < 0.01
    assert wrong < 0.6 * np.mean(alone.predict(X["speed"]) != states)
    summary = hmm.summary()
    for name, values in TRUTH.items():
        for k, value in enumerate(values):
            row = summary.loc[f"{name}[{k}]"]
            assert abs(row["mean"] - value) < 4 * row["sd"]


@pytest.mark.jit
def test_what_follows_a_fit(fitted, tmp_path):
    X, _, hmm = fitted
    phi = hmm.posterior_.mean.phi
    np.testing.assert_array_equal(hmm.means_, phi[:, [0, 2]])
    with pytest.raises(AttributeError, match="has no variances; it has speed_mean, speed_variance, choice_log_odds_1"):
        _ = hmm.covars_
    found = hmm.check(X)
    assert found.passed, found
    assert {"spread of residuals of column 0", "drift of column 1", "mean of column 1"} <= {
        c.name for c in found.checks
    }
    y, _ = hmm.sample(50)
    assert y.shape == (50, 2)
    assert set(y[:, 1]) <= {0, 1, 2}
    X = X.copy()
    X.loc[5, "choice"] = X.loc[9, "speed"] = np.nan
    assert np.isfinite(hmm.predict_proba(X)).all()
    assert hmm.forecast(X, 5).observations.shape[1:] == (5, 2)
    assert hmm.update(None, [5.0, 1.0]).probability[0] > 0.9
    assert [axes.get_xlabel() for axes in plots.plot_density(hmm.posterior_, "choice_log_odds_2")] == [
        "choice log odds 2", "choice log odds 2",
    ]  # fmt: skip
    hmm.posterior_.save(tmp_path / "fit.nc")
    assert rh.Posterior.load(tmp_path / "fit.nc").model.family == SPEED


@pytest.mark.jit
@pytest.mark.nightly  # the contract of a family has draws given the states of a product
def test_gibbs_sampling_agrees():
    family = rh.Product(rh.Gaussian(), rh.Poisson())
    model, truth, series, _ = simulated(family, 3000, y0_mean=[0, 2], y0_variance=[1, 2], y1_rate=[1, 6])
    assert np.abs(off_gibbs(model, truth, series)).max() < 4.5


@pytest.mark.nightly
@pytest.mark.jit
def test_the_command_line_takes_a_family_for_each_column(tmp_path):
    table()[0].to_csv(tmp_path / "speed.csv", index=False)
    given = ["--column", "speed", "--column", "choice", "--states", "2", "--draws", "100", "--rare-share", "0.2"]
    out = ["fit", str(tmp_path / "speed.csv"), *given, "--out", str(tmp_path / "run"), "--emission"]
    done = CliRunner().invoke(cli.app, [*out, "gaussian, categorical"])
    assert done.exit_code == 0, done.output
    assert rh.Posterior.load(tmp_path / "run" / "posterior.nc").model.family == SPEED
    report = (tmp_path / "run" / "report.html").read_text()
    assert "Product(Gaussian, Categorical3) emissions" in report
    assert "choice log odds 2" in report


def test_settings_take_names_in_a_list_or_with_commas():
    assert Settings("f.csv", emission="gaussian").emissions == ["gaussian"]
    for given in ("gaussian,bernoulli", ["gaussian", "bernoulli"]):
        assert Settings("f.csv", emission=given).emissions == ["gaussian", "bernoulli"]
    with pytest.raises(ValueError, match=r"emission is 'bernouli'; it must be one of .* Did you mean 'bernoulli'"):
        Settings("f.csv", emission="gaussian,bernouli")


# ---------------------------------------------------------------- parts
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]])
def test_first_labels_look_at_all_columns(order):
    """Columns of categories count by how often each category is for a while, wherever they stand."""
    rng, states = np.random.default_rng(0), np.repeat([0, 1, 0, 1], 200)
    y = np.column_stack([rng.normal(2.0 * states, 1.0), rng.poisson(4.0 + 4.0 * states),
                         rng.random(800) < 0.1 + 0.7 * states])  # fmt: skip
    y[[5, 205], 1] = np.nan
    kinds = rh.Gaussian(), rh.Poisson(), rh.Bernoulli()
    family = rh.Product(*(kinds[i] for i in order))
    labels = first_labels(rh.Model(family, 2, rh.no_priors(family)), rh.Series(y[:, order]))
    assert abs(np.mean(labels == states) - 0.5) > 0.48
    np.testing.assert_array_equal(labels[[5, 205]], labels[[4, 204]])


def test_residuals_of_each_column_are_standard_normal():
    family = rh.Product(rh.Gaussian(), rh.Poisson())
    model, truth, series, _ = simulated(family, 3000, y0_mean=[0, 6], y0_variance=[1, 2], y1_rate=[3, 20])
    y = series.read(0, 3000).copy()
    y[40:60] = np.nan

    def p_values(parameters):
        found = pseudo_residuals(np.random.default_rng(3), model, parameters, rh.Series(y))
        assert found.shape == (3000, 2)
        assert np.isnan(found[40:60]).all()
        return [kstest(column[~np.isnan(column)], "norm").pvalue for column in found.T]

    assert min(p_values(truth)) > 1e-3
    for i in (0, 2):
        wrong = truth.phi.copy()
        wrong[0, i] += 0.3
        p = p_values(model.natural(wrong, TRANSITION))
        assert p[i // 2] < 1e-3 < p[1 - i // 2]


def test_residuals_of_correlated_columns_are_standard_normal():
    pair = rh.MultivariateGaussian(2)
    family = rh.Product(rh.Poisson(), pair)
    phi = np.column_stack([[3.0, 20.0], pair.phi_of([[0, 5], [4, 9]], [[[1, 0.8], [0.8, 2]], np.eye(2)])])
    model = rh.Model(family, 2, rh.no_priors(family))
    point = model.natural(phi, TRANSITION)
    y, _ = rh.simulate(np.random.default_rng(1), model, point, 3000)
    y[40:60, 1] = np.nan
    found = pseudo_residuals(np.random.default_rng(3), model, point, rh.Series(y))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(y))
    for column in found.T:
        seen = column[~np.isnan(column)]
        assert kstest(seen, "norm").pvalue > 1e-3
        assert kstest(1.2 * seen, "norm").pvalue < 1e-3  # 20 % too wide would show


def test_covariances_of_columns_side_by_side():
    family = rh.Product(rh.Gaussian(), rh.Gaussian())
    phi = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    model = rh.Model(family, 2, rh.no_priors(family))
    hmm = rh.RareHMM.of(rh.Posterior(model, phi[None, None], np.array(TRANSITION)[None, None], "map"), [])
    np.testing.assert_array_equal(hmm.means_, [[1, 3], [5, 7]])
    np.testing.assert_array_equal(hmm.covars_, [[[2, 0], [0, 4]], [[6, 0], [0, 8]]])


def test_lists_that_do_not_fit_are_refused():
    X, _ = table(100)
    for given, message in (
        (["gaussian"], r"emission has 1 families and X has 2 columns; give one per column, or use Product"),
        (["gaussian", rh.MultivariateGaussian(2)],
         r"MultivariateGaussian\(2\), which takes 2 columns; families in a list take one each"),
        (["gaussian", "gausian"], "emission is 'gausian'; it must be one of bernoulli, categorical"),
        (rh.Product(choice=rh.Gaussian(), speed=rh.Poisson()), "emission has 'choice' for column 0, which is "
         "'speed' in X; put the columns in the order"),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=message):
            rh.RareHMM(2, emission=given, verbose=0).fit(X)


NEVER = [
    (name, value)
    for name, kind in families().items()
    for value in (0.0, 1.0, np.nan)
    if name != "multivariate_gaussian" and (value != 0 or kind().domain.valid(np.zeros(1)).all())
]


@pytest.mark.parametrize(("name", "value"), NEVER)
def test_a_column_that_never_changes_or_is_never_there_does_no_harm(name, value):
    """It has a prior, a first estimate and a step for differences like any other."""
    y = np.column_stack([np.random.default_rng(0).normal(size=60), np.full(60, value)])
    family = rh.Product(rh.Gaussian(), families()[name]())
    series = rh.Series(y)
    model = rh.Model(family, 2, rh.default_priors(family, 2, series))
    assert np.isfinite([number for prior in model.priors.emission for number in prior]).all()
    assert (difference_steps(model, series) > 0).all()
    assert np.isfinite(from_labels(model, series, np.arange(60) % 2).phi).all()


def test_categories_are_counted():
    series = rh.Series(np.array([0, 3, 1, 2, 0]))
    assert family_of("categorical", series) == rh.Categorical(4)
    assert family_of(["categorical"], series) == rh.Product(rh.Categorical(4))
    for wrong in ([0.5, 1.5], [-1, 2]):
        with pytest.raises(ValueError, match=r"y\[[01]\] is .*; Categorical[23] takes"):
            rh.RareHMM(2, emission="categorical", verbose=0).fit(np.array(wrong * 10))
