"""Numbers published by others, to the digits given.  The data stay outside the repository; RAREHMM_DATA names them."""

import numpy as np
import pytest
from small_models import DATA

import rarehmm as rh


def column(name, *columns):
    path = DATA / "refs" / name
    if not path.exists():
        pytest.skip(f"{name} is not at hand: set RAREHMM_DATA to the folder that holds refs/{name}")
    table = np.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")
    return [np.asarray(table[c], dtype=float) for c in columns]


EARTHQUAKES = {  # Zucchini, MacDonald and Langrock: annual counts of large earthquakes, m = 3
    "stationary": (
        329.4603,
        None,
        [13.14573, 19.72101, 29.71437],
        [[0.9546243, 0.0244426, 0.02093313], [0.04976679, 0.8993673, 0.05086592], [1.504495e-09, 0.196642, 0.80335799]],
    ),
    "free": (
        328.5275,
        [0.9999998, 8.700482e-08, 8.281945e-08],
        [13.13374, 19.71312, 29.70964],
        [
            [0.9392937, 0.03209754, 0.02860881],
            [0.04040106, 0.90643731, 0.05316163],
            [9.052023e-12, 0.19025401, 0.80974599],
        ],
    ),
}


def poisson(rates, transition, start):
    model = rh.Model(rh.Poisson(), 3, rh.Priors((rh.Gamma(1, 0.01),)), start=start)
    return model, model.parameters(transition, rate=rates)


@pytest.mark.parametrize("kind", EARTHQUAKES)
def test_earthquakes(kind):
    (counts,) = column("earthquakes_1900_2006.csv", "count")
    minus_log_likelihood, start, rates, transition = EARTHQUAKES[kind]
    model, parameters = poisson(rates, transition, start)
    assert round(-rh.log_likelihood(model, parameters, rh.Series(counts)), 4) == minus_log_likelihood


def test_earthquakes_stationary_law():
    _, parameters = poisson(*EARTHQUAKES["stationary"][2:], None)
    np.testing.assert_allclose(parameters.start, [0.443642, 0.4044983, 0.1518597], atol=5e-8)


def test_earthquakes_most_probable_path():
    (counts,) = column("earthquakes_1900_2006.csv", "count")
    model, parameters = poisson(
        [13.13513, 19.70822, 29.70794],
        [
            [0.941433, 0.03072828, 0.02783867],
            [0.04007763, 0.90674107, 0.0531813],
            [3.052488e-13, 0.19027062, 0.80972938],
        ],
        [1 - 1.833456e-08 - 1.427794e-08, 1.833456e-08, 1.427794e-08],
    )
    path, _ = rh.decode(model, parameters, rh.Series(counts))
    runs = [(1, 5), (3, 6), (2, 8), (1, 4), (2, 19), (3, 9), (2, 17), (3, 3), (2, 10), (1, 26)]
    np.testing.assert_array_equal(path + 1, np.repeat([s for s, _ in runs], [n for _, n in runs]))


def test_speed_one_state_gaussian():
    """depmixS4: the maximum likelihood of log response times under one Gaussian."""
    (rt,) = column("speed.csv", "rt")
    model = rh.Model(rh.Gaussian(), 1, rh.paper_priors(rh.Gaussian()))
    parameters = model.parameters([[1.0]], mean=rt.mean(), variance=rt.var())
    value = rh.log_likelihood(model, parameters, rh.Series(rt, lengths=[168, 134, 137]))
    assert round(value, 2) == -305.33
    assert round(-2 * value + 2 * 2, 2) == 614.66
    assert round(-2 * value + 2 * np.log(439), 2) == 622.83


SPEED = {  # depmixS4, tests/test1speed.R: response times and accuracy of three sequences, the maximum in three digits
    "rt_mean": [5.52, 6.39],
    "rt_sd": [0.202, 0.24],
    "correct": [0.528, 0.902],
    "transition": [[0.899, 0.101], [0.084, 0.916]],
}


def speed():
    rt, correct = column("speed.csv", "rt", "corr_code")
    family = rh.Product(rt=rh.Gaussian(), corr=rh.Categorical(2))
    model = rh.Model(family, 2, rh.no_priors(family), start=[0.0, 1.0])
    share = np.array(SPEED["correct"])
    given = {"rt_mean": SPEED["rt_mean"], "rt_variance": np.square(SPEED["rt_sd"])}
    parameters = model.parameters(SPEED["transition"], **given, corr_log_odds_1=np.log(share / (1 - share)))
    return model, parameters, rh.Series(np.column_stack([rt, correct]), lengths=[168, 134, 137])


def test_speed_and_accuracy():
    """depmixS4: a Gaussian and a categorical column of two states, at rounded parameters."""
    assert round(rh.log_likelihood(*speed()), 9) == -296.115107102


@pytest.mark.jit
def test_speed_and_accuracy_fitted():
    """The rounded parameters are those of the maximum, with a free law of first states."""
    model, rounded, series = speed()
    begin = model.natural(rounded.phi * [0.9, 2.0, 0.5], [[0.7, 0.3], [0.3, 0.7]])
    begin = begin._replace(start=np.array([0.5, 0.5]))
    found = rh.climb(model, series, begin, steps=3000, tolerance=1e-10, free_start=True)
    assert -296.115107102 < found.log_posterior < -296.1
    phi = found.parameters.phi
    np.testing.assert_array_equal(phi[:, 0].round(2), SPEED["rt_mean"])
    np.testing.assert_array_equal(np.sqrt(phi[:, 1]).round(3), SPEED["rt_sd"])
    np.testing.assert_allclose(1 / (1 + np.exp(-phi[:, 2])), SPEED["correct"], atol=6e-4)  # .90148 is told as .902
    np.testing.assert_array_equal(found.parameters.transition.round(3), SPEED["transition"])


def test_federal_funds():
    """Stata's mswitch: likelihood, and filtered and smoothed probabilities of every quarter."""
    (rate,) = column("fedfunds_quarterly.csv", "fedfunds")
    model = rh.Model(rh.Gaussian(), 2, rh.paper_priors(rh.Gaussian()))
    transition = [[0.9820939, 1 - 0.9820939], [0.0503587, 1 - 0.0503587]]
    parameters = model.parameters(transition, mean=[3.70877, 9.556793], variance=2.107562**2)
    series = rh.Series(rate)
    assert round(rh.log_likelihood(model, parameters, series), 5) == -508.63592
    filtered, smoothed = column("stata_predict_fedfunds.csv", "const_f1", "const_sm1")
    assert np.abs(rh.filter_states(model, parameters, series)[:, 0] - filtered).max() < 1e-6  # parameters have 7 digits
    np.testing.assert_allclose(rh.smooth(model, parameters, series)[:, 0], smoothed, atol=5e-7)


def fitted(counts, m, free_start=False):
    """Smallest minus log likelihood over eight starts of EM."""
    rng, series, values = np.random.default_rng(m), rh.Series(counts), []
    for _ in range(8):
        start = np.full(m, 1 / m) if free_start else None
        model = rh.Model(rh.Poisson(), m, rh.no_priors(rh.Poisson()), start=start)
        transition = 0.2 * rng.dirichlet(np.ones(m), size=m) + 0.8 * np.eye(m)
        begin = model.parameters(transition, rate=np.sort(rng.uniform(8, 35, m)))
        values.append(rh.climb(model, series, begin, steps=1500, tolerance=1e-7, free_start=free_start).log_posterior)
    return -max(values)


@pytest.mark.jit
@pytest.mark.parametrize(
    ("m", "expected"),
    [(1, 391.9189), (2, 342.3183), (3, 329.4603), pytest.param(4, 327.8316, marks=pytest.mark.nightly)],
)
def test_earthquakes_fitted(m, expected):
    assert round(fitted(column("earthquakes_1900_2006.csv", "count")[0], m), 4) == expected


@pytest.mark.jit
@pytest.mark.parametrize(("m", "expected"), [(2, 341.8787), (3, 328.5275)])
def test_earthquakes_fitted_with_a_free_start(m, expected):
    assert round(fitted(column("earthquakes_1900_2006.csv", "count")[0], m, free_start=True), 4) == expected


STAN = {  # posterior of the earthquake counts by Stan, 4 chains of 1000: means and standard deviations
    "rate": ([13.198, 19.828, 29.905], [0.857, 1.069, 1.905]),
    "transition": (
        [0.862, 0.091, 0.047, 0.09, 0.817, 0.093, 0.077, 0.231, 0.691],
        [0.085, 0.076, 0.042, 0.065, 0.085, 0.058, 0.069, 0.115, 0.124],
    ),
    "occupancy": ([0.391, 0.418, 0.191], [0.142, 0.13, 0.092]),
}
STAN_EFFECTIVE = 1690  # draws: from the published Monte Carlo errors of the rates, 0.019, 0.026 and 0.036, the fewest


@pytest.mark.nightly
@pytest.mark.jit
def test_earthquakes_posterior_by_the_default_rule():
    """Within 4 combined Monte Carlo errors of Stan's means, and of its standard deviations."""
    (counts,) = column("earthquakes_1900_2006.csv", "count")
    model = rh.Model(rh.Poisson(), 3, rh.Priors((rh.Gamma(1.0, 0.01),)))
    found = rh.infer(np.random.default_rng(7), model, rh.Series(counts), wanted=4000)
    assert all(c.passed for c in found.checks), found.verdict
    phi, transition = found.mode.model.unpack_all(found.theta.reshape(-1, model.size))
    order = np.argsort(phi[:, :, 0], axis=1)  # Stan's prior is restricted to ordered rates: so are ours
    n = np.arange(len(order))[:, None]
    transition = transition[n[:, :, None], order[:, :, None], order[:, None, :]]
    distribution = np.array([rh.stationary(P) for P in transition])
    draws = {"rate": phi[n, order, 0], "transition": transition.reshape(-1, 9), "occupancy": distribution}
    for name, (mean, sd) in STAN.items():
        error = np.array(sd) * np.sqrt(1 / STAN_EFFECTIVE + 1 / 4000)
        assert (np.abs(draws[name].mean(0) - mean) < 4 * error + 5e-4).all(), name  # the last digit is rounded
        assert (np.abs(draws[name].std(0) - sd) < 4 * error * np.sqrt(1.5) + 5e-4).all(), name  # tails are heavier
