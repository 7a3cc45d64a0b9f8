"""Posteriors of models whose rows differ: many points at once, sampling, what is reported."""

import warnings
import zlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from regime_cases import as_model, covering, label, make_case

import rarehmm as rh
from rarehmm.data.inputs import Columns, Inputs
from rarehmm.engine.contracts.design import Design
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.passes import state_counts
from rarehmm.model.autoregression import AroundLevel, from_partial
from rarehmm.model.coefficients import LARGEST_ANGLE
from rarehmm.sampling import methods
from rarehmm.sampling.arviz_adapter import effective_size
from rarehmm.sampling.hmc import hmc
from rarehmm.sampling.importance import Roots, adaptive_importance, laplace_importance, powers
from rarehmm.sampling.methods import relabel_like_mode
from rarehmm.search.mode import find_mode, relabel_states
from rarehmm.transitions.phases import Phases
from rarehmm.windows.gradients import freeze
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

CHOICES = covering()


def case_of(choice):
    """Model, parameters and series of a choice, with proper priors."""
    return as_model(make_case(choice, zlib.crc32(label(choice).encode())), "default")


def cloud(model, parameters, n, seed=0):
    """Points theta (n, d) around parameters."""
    return model.pack(parameters) + 0.1 * np.random.default_rng(seed).standard_normal((n, model.size))


def differences(points, theta, h=1e-5):
    """Gradient (d,) at theta (d,) by central differences of values."""
    steps = h * np.eye(len(theta))
    up, down = points.values(theta + steps), points.values(theta - steps)
    return (up - down) / (2 * h)


# ---------------------------------------------------------------- many points at once
@pytest.mark.parametrize("choice", CHOICES, ids=label)
def test_values_and_slopes_of_many_points_are_those_of_single_passes_and_of_differences(choice):
    model, parameters, series = case_of(choice)
    theta = cloud(model, parameters, 3)
    points = BatchedLogPosterior(model, series, threads=1)
    values, slopes = points.values_and_slopes(theta)
    expected = [rh.log_posterior(model, row, series, threads=1) for row in theta]
    np.testing.assert_allclose(values, [value for value, _ in expected], rtol=1e-12)
    np.testing.assert_allclose(slopes, [slope for _, slope in expected], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(points.values(theta), values, rtol=1e-12)
    np.testing.assert_allclose(slopes[0], differences(points, theta[0]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tied", [("variance",), ("mean", "variance")])
@pytest.mark.parametrize("states", [None, [0, -1, -1, 1, -1, -1, -1, 0, -1]])
def test_tied_values_and_known_states_count_in_the_same_way(tied, states):
    series = rh.Series([0.3, -1.2, np.nan, 2.5, 0.9, 1.1, -0.4, 3.0, 2.2], [5, 4], states=states)
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), tied=tied)
    phi = [[0.5, 1.0], [0.5 if "mean" in tied else 2.0, 1.0]]
    theta = cloud(model, model.natural(phi, [[0.8, 0.2], [0.4, 0.6]]), 3)
    points = BatchedLogPosterior(model, series, threads=1)
    values, slopes = points.values_and_slopes(theta)
    expected = [rh.log_posterior(model, row, series, threads=1) for row in theta]
    np.testing.assert_allclose(values, [value for value, _ in expected], rtol=1e-12)
    np.testing.assert_allclose(points.values(theta), values, rtol=1e-12)
    np.testing.assert_allclose(slopes[0], differences(points, theta[0]), rtol=1e-6, atol=1e-6)


def test_points_out_of_bounds_or_at_the_edge_of_stationarity_have_no_density():
    series = rh.Series(np.random.default_rng(0).normal(size=20))
    priors = rh.default_priors(rh.Gaussian(), 1, series)
    model = rh.Model(rh.Gaussian(), 2, priors, autoregression=AroundLevel(3))
    theta = np.tile(model.pack(model.natural([[0.0, 1.0], [1.0, 2.0]], [[0.8, 0.2], [0.4, 0.6]])), (3, 1))
    theta[0, -3:] = LARGEST_ANGLE  # partial autocorrelations that round to 1
    theta[1, 0] = np.inf
    values, slopes = BatchedLogPosterior(model, series, threads=1).values_and_slopes(theta)
    np.testing.assert_array_equal(values[:2], -np.inf)
    np.testing.assert_array_equal(slopes[:2], 0.0)
    assert values[2] == rh.log_posterior(model, theta[2], series)[0]


# ---------------------------------------------------------------- sampling
FIXED = {"mean": [0.0, 3.0], "variance": [1.0, 1.0], "transition": [[0.9, 0.1], [0.2, 0.8]]}


def short_series(T, fixed, gap=3.0):
    """Mode and series of a model of two levels with an input and AR(1), of which ``fixed`` are known."""
    rng = np.random.default_rng(5)
    x, noise = rng.normal(size=(T, 1)), rng.normal(size=T)
    for t in range(1, T):
        noise[t] += 0.5 * noise[t - 1]
    series = rh.Series(gap * (np.arange(T) % 20 >= 13) + 0.8 * x[:, 0] + noise, exog=x)
    inputs, priors = Inputs.of(series, [Columns()]), rh.default_priors(rh.Gaussian(), 2, series)
    model = rh.Model(rh.Gaussian(), 2, priors, fixed=fixed, inputs=inputs, autoregression=AroundLevel(1))
    start = model.natural([[0.0, 1.0], [gap, 1.0]], [[0.9, 0.1], [0.2, 0.8]], [0.8, 0.4])
    return find_mode(model, series, start, threads=1), series


def moments(theta, weights):
    """Means and standard deviations (d,) of weighted points."""
    mean = weights @ theta
    return mean, np.sqrt(weights @ (theta - mean) ** 2)


def worst(theta, weights, effective, mean, sd):
    """Largest distance of means and of mean squares from those of a posterior, in standard errors.

    ``effective`` (2, d) are effective numbers of points, for each.  A square has three times the variance of a
    component, at most, for posteriors with tails like these.
    """
    z = (theta - mean) / sd
    first = np.abs(weights @ z) * np.sqrt(effective[0])
    second = np.abs(weights @ z**2 - 1) * np.sqrt(effective[1] / 3)
    return max(first.max(), second.max())


def effective_of_chains(draws, mean):
    """Effective numbers (2, d) of draws (chains, n, d), for means and for squares."""
    both = (draws, (draws - mean) ** 2)
    return np.array([[effective_size(x[..., i], "mean") for i in range(x.shape[-1])] for x in both])


def equal(n):
    return np.full(n, 1 / n)


def test_importance_sampling_and_hmc_have_the_moments_of_a_grid():
    """A posterior of two parameters, a lag and an input, with everything else known."""
    mode, series = short_series(14, FIXED)
    assert mode.model.component_names == ["x0", "atanh partial 1"]
    axis = np.linspace(-4.5, 4.5, 14)
    z = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    logs = BatchedLogPosterior(mode.model, series, 1).values(mode.theta + z @ mode.factor.T)
    grid = mode.theta + z @ mode.factor.T
    mass = np.exp(logs - logs.max())
    mean, sd = moments(grid, mass / mass.sum())
    evidence = np.log(mass.sum() * (axis[1] - axis[0]) ** 2) + logs.max() + np.log(np.diag(mode.factor)).sum()

    found = laplace_importance(np.random.default_rng(0), Roots(mode, series, 1), (300,))
    counts = np.full((2, 2), found.effective)
    assert found.share > 0.7
    assert abs(found.evidence - evidence) < 4 / np.sqrt(found.effective)
    assert worst(found.theta, found.weights, counts, mean, sd) < 4
    assert worst(found.theta + 0.5 * sd, found.weights, counts, mean, sd) > 4  # and half a deviation would show

    draws = hmc(np.random.default_rng(1), mode, series, 40, chains=4, leaps=2, warm_up=20, threads=1)
    flat = draws.reshape(-1, 2)
    assert worst(flat, equal(len(flat)), effective_of_chains(draws, mean), mean, sd) < 4


@pytest.mark.jit
@pytest.mark.nightly
def test_importance_sampling_and_hmc_agree_on_all_parameters():
    mode, series = short_series(60, None, gap=8.0)
    weighted = adaptive_importance(np.random.default_rng(0), Roots(mode, series, 1), 1000.0)
    mean, sd = moments(weighted.theta, weighted.weights)
    draws = hmc(np.random.default_rng(1), mode, series, 100, chains=8, leaps=4, threads=1)
    flat = draws.reshape(-1, draws.shape[-1])
    counts = 1 / (1 / effective_of_chains(draws, mean) + 1 / weighted.effective)
    assert counts.min() > 50
    assert worst(flat, equal(len(flat)), counts, mean, sd) < 4


@pytest.mark.jit
@pytest.mark.nightly
def test_random_walks_agree_with_importance_sampling_and_hmc_on_all_parameters():
    mode, series = short_series(60, None, gap=8.0)
    rng, points, d = np.random.default_rng(2), BatchedLogPosterior(mode.model, series, 1), len(mode.theta)
    here = mode.theta + rng.standard_normal((16, d)) @ mode.factor.T
    values, kept = points.values(here), []
    for _ in range(6000):
        there = here + 2.4 / np.sqrt(d) * rng.standard_normal((16, d)) @ mode.factor.T
        new = points.values(there)
        taken = np.log(rng.random(16)) < new - values
        here, values = np.where(taken[:, None], there, here), np.where(taken, new, values)
        kept.append(here)
    walks = relabel_states(mode, np.concatenate(kept[500:])).reshape(-1, 16, d).swapaxes(0, 1)
    mean, sd = moments(walks.reshape(-1, d), equal(walks[..., 0].size))
    reference = effective_of_chains(walks, mean)
    assert reference.min() > 1000
    weighted = adaptive_importance(rng, Roots(mode, series, 1), 3000.0)
    counts = 1 / (1 / reference + 1 / weighted.effective)
    assert worst(weighted.theta, weighted.weights, counts, mean, sd) < 4
    draws = relabel_like_mode(mode, hmc(rng, mode, series, 400, leaps=6, threads=1))
    flat = draws.reshape(-1, d)
    counts = 1 / (1 / reference + 1 / effective_of_chains(draws, mean))
    assert worst(flat, equal(len(flat)), counts, mean, sd) < 4


def test_the_work_of_gradients_one_by_one_is_bounded_too(monkeypatch):
    """Of a short series, a gradient where rows differ costs as much as many rows: two rounds took nine minutes."""
    rounds = []

    def slow(rng, mode, series, steps, *, leaps, warm_up, **_):
        rounds.append(steps + warm_up)
        z = np.cumsum(rng.standard_normal((methods.LANES, steps, len(mode.theta))), axis=1)  # hardly mixes
        return mode.theta + z @ mode.factor.T

    monkeypatch.setattr(methods, "hmc", slow)
    mode, series = short_series(14, FIXED)
    job = methods.Job(np.random.default_rng(0), mode, series, 400.0)
    methods.by_hmc(job, work=methods.affordable_work(job) / 2)
    gradients = rounds[0] * 8 * methods.LANES  # the first round leaves no room for a second
    assert len(rounds) == 1
    assert 12_000 < gradients < 20_000  # half a minute


def test_coefficients_are_no_roots():
    mode, _ = short_series(14, None)
    np.testing.assert_array_equal(powers(mode.model), [0, 0, -1, -1, 1, 1, 0, 0])


def test_roots_are_a_change_of_coordinates_with_coefficients_too():
    mode, series = short_series(14, None)
    roots = Roots(mode, series, 1)
    phi = roots.centre + 0.3 * roots.factor @ np.random.default_rng(0).standard_normal(len(roots.centre))
    for i in range(len(phi)):
        move = 1e-5 * (np.arange(len(phi)) == i)
        slope = -np.diff(roots.log_density(phi + np.array([move, -move])))[0] / 2e-5
        assert roots.slope(phi)[i] == pytest.approx(slope, rel=1e-5, abs=1e-5)


def test_the_laplace_approximation_has_all_its_checks():
    mode, series = short_series(14, FIXED)
    start = mode.model.unpack(mode.theta)
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # two states of 14 observations
        found = rh.infer(rng, mode.model, series, start=start, method="laplace", wanted=40, threads=1)
    assert found.theta.shape == (4, 25, 2)
    assert {check.name for check in found.checks} >= {"nearly Gaussian", "Stein discrepancy", "smallest state"}


@pytest.mark.parametrize("choice", CHOICES[::4], ids=label)
def test_expected_observations_of_states_are_smoothed_shares_of_what_was_observed(choice):
    model, parameters, series = case_of(choice)
    gamma, y = rh.smooth(model, parameters, series, threads=1), series.read(0, len(series))[:, 0]
    found = state_counts(model, parameters, series, threads=1)
    np.testing.assert_allclose(found, gamma[~np.isnan(y)].sum(0), rtol=1e-12)


@pytest.mark.parametrize("what", ["inputs", "tied", "known"])
def test_windows_are_refused_where_rows_differ(what):
    y = np.random.default_rng(0).normal(size=30)
    series = rh.Series(y, states=np.where(np.arange(30) == 3, 0, -1) if what == "known" else None)
    more = {"tied": ("variance",)} if what == "tied" else {}
    if what == "inputs":
        more = {"autoregression": AroundLevel(1)}
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), **more)
    coefficients = [0.3] if what == "inputs" else None
    theta = model.pack(model.natural([[0.0, 1.0], [1.0, 1.0]], [[0.8, 0.2], [0.4, 0.6]], coefficients))
    windows = Windows(series, 2, 2)
    message = "gradients from windows need a model without inputs, .* Use a method that reads all data: 'hmc'"
    with pytest.raises(ValueError, match=message):
        freeze(model, theta, series, windows, threads=1)
    with pytest.raises(ValueError, match=message):
        Pool(model, series, windows, Design(np.full((1, windows.count), 1 / windows.count)), 3)


# ---------------------------------------------------------------- what is reported
def reported(K=2, order=1, switching=False):
    """A posterior with inputs of all kinds whose draws all are the same point, the point and the series."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"temp": 20 + 5 * rng.normal(size=60), "load": 1e4 * rng.normal(size=60)})
    series = rh.Series(rng.normal(size=60), exog=frame)
    temp, load, both = (Inputs.of(series, [Columns(names)]) for names in ("temp", "load", ["temp", "load"]))
    model = rh.Model(
        rh.Gaussian(), K, rh.default_priors(rh.Gaussian(), K, series), inputs=both, switching=temp, scale=load,
        autoregression=AroundLevel(order, switching), transitions=rh.Regression(load),
    )  # fmt: skip
    e = model.every_effect
    c = 0.2 * rng.normal(size=e.size)
    slopes = e.block("slopes", c)
    slopes -= slopes.mean(-1, keepdims=True)
    phi = np.column_stack([np.arange(K), np.ones(K)])
    point = model.natural(phi, rng.dirichlet(np.full(K, 5.0), K), c)
    draws = [np.tile(part, (2, 5, *(1 for _ in part.shape))) for part in (point.phi, point.transition, c)]
    return rh.Posterior(model, draws[0], draws[1], "hmc", coefficients=draws[2]), point, series, frame


def test_coefficients_are_per_unit_of_the_users_inputs():
    """The part of predictors that each block adds, from the reported numbers and the user's columns."""
    found, point, series, frame = reported()
    rows, e = series.read_rows(0, 60), found.model.every_effect
    away = frame - frame.mean()
    numbers = {name: values[0, 0] for name, values in found.quantities.items()}
    eta = e.location.predict(rows, e.block("location", point.coefficients)[:, 0])
    np.testing.assert_allclose(away.to_numpy() @ numbers["coefficient"], eta, atol=1e-12)
    own = e.switching.predict(rows, e.block("switching", point.coefficients)[:, 0])
    np.testing.assert_allclose(away[["temp"]].to_numpy() @ numbers["switching_coefficient"], own, atol=1e-12)
    zeta = e.scale.predict(rows, e.block("scale", point.coefficients))
    np.testing.assert_allclose(away[["load"]].to_numpy() @ numbers["log_scale_coefficient"], zeta, atol=1e-12)
    logits = np.einsum("tz,zjk->tjk", away[["load"]], numbers["transition_coefficient"])
    weight = point.transition * np.exp(logits)
    z = e.slopes.design(rows)
    P = found.model.transitions.matrices(point.transition, e.block("slopes", point.coefficients), z)
    np.testing.assert_allclose(weight / weight.sum(-1, keepdims=True), P, rtol=1e-10)
    np.testing.assert_array_equal(numbers["lag_coefficient"], e.block("lags", point.coefficients)[:, 0, 0])


@pytest.mark.parametrize("switching", [False, True])
def test_arviz_names_inputs_and_lags(switching):
    found = reported(3, 2, switching)[0].to_arviz().posterior
    dims = {
        "coefficient": ("input",),
        "switching_coefficient": ("switching_input", "state"),
        "log_scale_coefficient": ("scale_input",),
        "lag_coefficient": ("lag", "state") if switching else ("lag",),
        "transition_coefficient": ("transition_input", "state", "state_to"),
    }
    for name, expected in dims.items():
        assert found[name].dims == ("chain", "draw", *expected)
    assert found["input"].values.tolist() == ["temp", "load"]
    assert found["transition_input"].values.tolist() == ["load"]
    assert found["lag"].values.tolist() == [1, 2]
    assert "occupancy" not in found  # there is none where transitions have inputs


def test_columns_of_several_predictors_are_a_dimension():
    rng = np.random.default_rng(0)
    family = rh.MultivariateGaussian(2, diagonal=True)
    series = rh.Series(rng.normal(size=(30, 2)), exog=rng.normal(size=(30, 1)))
    priors, inputs = rh.default_priors(family, 2, series), Inputs.of(series, [Columns()])
    model = rh.Model(family, 2, priors, inputs=inputs, autoregression=AroundLevel(2))
    point = model.natural(
        family.phi_of(np.zeros((2, 2)), np.ones((2, 2, 2)) * np.eye(2)), np.full((2, 2), 0.5),
        [0.1, 0.2, 0.5, -0.5, 0.3, 0.2],
    )  # fmt: skip
    found = rh.Posterior(
        model, point.phi[None, None], point.transition[None, None], "map", coefficients=point.coefficients[None, None]
    )
    data = found.to_arviz().posterior
    assert data["coefficient"].dims == ("chain", "draw", "input", "column")
    assert data["lag_coefficient"].dims == ("chain", "draw", "lag", "column")
    np.testing.assert_array_equal(data["lag_coefficient"].values[0, 0], [[0.5, -0.5], [0.3, 0.2]])
    np.testing.assert_allclose(found.mean.coefficients, point.coefficients, rtol=1e-12)


def test_the_table_has_names_of_inputs_and_points_and_means_have_coefficients():
    found, point, _, _ = reported()
    rows = set(found.summary().index)
    assert rows >= {
        "mean[1]", "coefficient[temp]", "coefficient[load]", "switching_coefficient[temp, 1]",
        "log_scale_coefficient[load]", "lag_coefficient[1]", "transition_coefficient[load, 0, 1]",
    }  # fmt: skip
    np.testing.assert_allclose(found.mean.coefficients, point.coefficients, rtol=1e-12)
    np.testing.assert_array_equal(found.points(3)[2].coefficients, point.coefficients)
    with pytest.raises(ValueError, match="name is 'coefficient'; states have mean, variance"):
        found.interval("coefficient", 0)
    with pytest.raises(ValueError, match=r"coefficients has shape \(2, 5, 3\); it must be \(chains, draws, 10\)"):
        replace(found, coefficients=found.coefficients[..., :3])


def test_the_mean_of_stationary_lags_is_stationary():
    """Of these two processes with three lags, the average of the coefficients is not."""
    series = rh.Series(np.random.default_rng(0).normal(size=30))
    model = rh.Model(rh.Gaussian(), 1, rh.no_priors(rh.Gaussian()), autoregression=AroundLevel(3))
    partial = np.array([[-0.9, -0.9, -0.9], [0.9, -0.9, 0.9]])
    lags = from_partial(partial)
    with pytest.raises(ValueError, match="not those of a stationary autoregression"):
        model.natural([[0.0, 1.0]], [[1.0]], lags.mean(0))
    found = rh.Posterior(
        model, np.tile([[0.0, 1.0]], (1, 2, 1, 1)), np.ones((1, 2, 1, 1)), "hmc", coefficients=lags[None]
    )
    np.testing.assert_allclose(found.mean.coefficients, from_partial(partial.mean(0)))
    assert rh.log_likelihood(model, found.mean, series) < 0


def test_shares_and_visits_of_states_with_phases_are_those_of_the_chain_of_phases():
    model = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()), transitions=Phases((3, 1)))
    truth = model.natural([[0.0, 1.0], [1.0, 1.0]], [[0.8, 0.2], [0.3, 0.7]])
    found = rh.Posterior(model, truth.phi[None, None], truth.transition[None, None], "map")
    P = np.zeros((4, 4))  # three phases of the first state, and the second
    P[[0, 1, 2], [0, 1, 2]], P[[0, 1, 2], [1, 2, 3]], P[3, [0, 3]] = 0.8, 0.2, [0.3, 0.7]
    share = np.linalg.matrix_power(P, 2000)[0]
    np.testing.assert_allclose(found.occupancy[0, 0], [share[:3].sum(), share[3]], rtol=1e-10)
    np.testing.assert_allclose(found.sojourn[0, 0], [15.0, 1 / 0.3], rtol=1e-12)
    np.testing.assert_allclose(found.return_time[0, 0], 15 + 1 / 0.3, rtol=1e-10)
