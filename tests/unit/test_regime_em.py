"""EM where rows differ: it never goes down, ends where the gradient vanishes, and does not depend on units."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
from published_regimes import NAMES, published
from regime_cases import FACTORS, as_model, covering, label, make_case, possible

import rarehmm as rh
from rarehmm.exact import edge_pass
from rarehmm.exact.edge_pass import EdgePass
from rarehmm.exact.em import best_transition, units
from rarehmm.exact.passes import expectations


def random_models(n):
    """Choices of all kinds at random."""
    rng = np.random.default_rng(n)
    while n > 0:
        choice = {name: levels[int(rng.integers(len(levels)))] for name, levels in FACTORS.items()}
        if possible(choice):
            n -= 1
            yield choice


def check_climb(choice, seed):
    model, start, series = as_model(make_case(choice, seed), "default")
    found = rh.climb(model, series, start, steps=60)
    assert (np.diff(found.trace) >= 0).all()
    assert found.log_posterior == found.trace[-1]
    theta = model.pack(found.parameters)
    assert rh.log_posterior(model, theta, series)[0] == pytest.approx(found.log_posterior, abs=1e-8)
    return model, series, found


@pytest.mark.parametrize("choice", covering()[::2], ids=label)
def test_steps_never_lower_the_log_posterior_and_end_at_a_mode(choice):
    model, series, found = check_climb(choice, zlib.crc32(label(choice).encode()))
    if found.converged:
        _, slope = rh.log_posterior(model, model.pack(found.parameters), series)
        assert np.abs(slope).max() < 0.3
    assert found.trace[-1] > found.trace[0] + 1


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(20))
def test_steps_never_lower_the_log_posterior_of_a_thousand_models(part):
    for i, choice in enumerate(random_models(1000)):
        if i % 20 == part:
            check_climb(choice, i)


# ---------------------------------------------------------------- the information
def frozen(model, parameters, series):
    """Expected complete-data log density of observations, as a function of parameters, at the states of these."""
    gamma = responsibilities(model, parameters, series)

    def value(there):
        work = EdgePass(model, there, series, 1, False)
        _, logp, *_ = work.log_terms(0, len(series))
        return float((gamma * np.where(gamma > 0, logp, 0.0)).sum())

    return value


def responsibilities(model, parameters, series):
    """Probabilities (T, U) of kinds of densities, by differences of the log likelihood in each log density."""
    original, h = edge_pass.kind_densities, 1e-5
    T, U = len(series), len(model.unfolding.chain.state)
    out = np.empty((T, U))

    def with_bump(t, u, size):
        def kind_densities(*arguments):
            original(*arguments)
            arguments[-1][t, u] += size

        edge_pass.kind_densities = kind_densities
        try:
            return EdgePass(model, parameters, series, 1, False).in_log_space().log_likelihood
        finally:
            edge_pass.kind_densities = original

    for t in range(T):
        for u in range(U):
            out[t, u] = (with_bump(t, u, h) - with_bump(t, u, -h)) / (2 * h)
    return out


INFORMED = [
    choice
    for choice in covering()
    if choice["family"] == "gaussian" and not choice["missing"] and choice["form"][0] != "none"
]


@pytest.mark.parametrize("choice", [INFORMED[0], INFORMED[3], INFORMED[6]], ids=label)
def test_the_information_is_the_curvature_of_the_expected_log_density(choice):
    """Exact in levels and inputs at given lags; where every row has all of its lags, or none."""
    choice = choice | {"conditional": True, "sequences": 1, "start": "given"}
    model, parameters, series = as_model(make_case(choice, 5), "default")
    found = expectations(model, parameters, series, with_information=True).information
    value, size = frozen(model, parameters, series), len(found.location) - np.prod(model.every_effect.shapes["lags"])
    K = model.n_states

    def moved(x):
        phi, c = parameters.phi.copy(), parameters.coefficients.copy()
        phi[:, 0] += x[:K]
        c[: size - K] += x[K:]
        return parameters._replace(phi=phi, coefficients=c)

    h, eye = 1e-2, np.eye(size)
    curvature = np.array([
        [
            sum(a * b * value(moved(h * (a * eye[i] + b * eye[j]))) for a in (1, -1) for b in (1, -1)) / (-4 * h * h)
            for j in range(size)
        ]
        for i in range(size)
    ])  # fmt: skip
    np.testing.assert_allclose(found.location[:size, :size], curvature, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- published models
SLOW = ("GNP, AR(4)", "Filardo, AR(4)", "federal funds, 3 regimes")  # without the compiler


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.jit) if n in SLOW else n for n in NAMES])
def test_em_from_published_parameters_is_never_below_them(name):
    """Without priors; federal funds with three regimes rise by 7.6, since what was published is another mode."""
    found = published(name)
    model, parameters, series = as_model(found.regimes)
    climb = rh.climb(model, series, parameters, steps=30 if name != "federal funds, 3 regimes" else 300)
    assert (np.diff(climb.trace) >= 0).all()
    assert rh.log_likelihood(model, climb.parameters, series) >= found.log_likelihood - 0.6 * 10.0**-found.decimals


# ---------------------------------------------------------------- units
def autoregressive(unit=1.0, shift=0.0, stretch=1.0, offset=0.0):
    """Model, start and series of two levels with autocorrelated noise, a season and an input, in given units."""
    rng = np.random.default_rng(3)
    T = 600
    load = rng.normal(size=T)
    states = (np.arange(T) % 150 > 130).astype(int)
    noise = np.zeros(T)
    for t in range(1, T):
        noise[t] = 0.6 * noise[t - 1] + rng.normal()
    y = 8.0 * states + noise + np.sin(2 * np.pi * np.arange(T) / 24) + 0.5 * load
    series = rh.Series(unit * y + shift * unit, exog=stretch * load[:, None] + offset)
    shared = rh.Inputs.of(series, [rh.Season(24, order=2), rh.Columns()])
    transitions = rh.Regression(rh.Inputs.of(series, [rh.Columns()]))
    model = rh.Model(
        rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), inputs=shared, autoregression=rh.AroundLevel(1),
        transitions=transitions,
    )  # fmt: skip
    levels = unit * (np.array([0.0, 7.0]) + shift)
    start = model.natural(np.column_stack([levels, [unit**2] * 2]), [[0.95, 0.05], [0.1, 0.9]])
    return model, start, series


@pytest.mark.parametrize("unit", [1e-9, 1e9])
def test_the_fit_does_not_depend_on_units(unit):
    model, start, series = autoregressive()
    other, other_start, other_series = autoregressive(unit, 0.0, 1e-4, 37.0)
    one = rh.climb(model, series, start, tolerance=1e-10)
    two = rh.climb(other, other_series, other_start, tolerance=1e-10)
    assert len(one.trace) == len(two.trace)
    scale = units(other, other_series) / units(model, series)
    theta = model.pack(one.parameters) * scale
    theta[2:4] += 2 * np.log(unit)  # log variances
    np.testing.assert_allclose(other.pack(two.parameters) / scale, theta / scale, rtol=1e-6, atol=1e-6)


# name -> family, form of autoregression, and the inputs of each part: "season", "load" or both
IN_UNITS = {
    "scale": (rh.Gaussian(), rh.AroundLevel(1), {"inputs": "season", "scale": "load"}),
    "switching": (rh.Gaussian(), rh.AroundLevel(2), {"inputs": "season", "switching": "load"}),
    "intercept": (rh.Gaussian(), rh.Intercept(2), {"inputs": "both"}),
    "Hamilton": (rh.Gaussian(), rh.Hamilton(1), {"switching": "both"}),
    "Poisson": (rh.Poisson(), rh.Intercept(1), {"inputs": "both"}),
    "plain Poisson": (rh.Poisson(), None, {"inputs": "season", "switching": "load"}),
}


def in_units(name, unit=1.0, stretch=1.0, offset=0.0):
    """Model, start and series of 200 rows in given units of y and of an input."""
    family, form, parts = IN_UNITS[name]
    rng, T = np.random.default_rng(4), 200
    load, high = rng.normal(size=T), np.arange(T) % 50 > 40
    y = 6.0 * high + rng.normal(size=T) + np.sin(2 * np.pi * np.arange(T) / 24) + 0.5 * load
    y = rng.poisson(np.exp(0.3 * y)).astype(float) if isinstance(family, rh.Poisson) else unit * y
    series = rh.Series(y, exog=stretch * load[:, None] + offset)
    season, column = rh.Season(24, order=1), rh.Columns()
    terms = {"season": [season], "load": [column], "both": [season, column]}
    inputs = {part: rh.Inputs.of(series, terms[given]) for part, given in parts.items()}
    model = rh.Model(family, 2, rh.default_priors(family, 2, series), autoregression=form, **inputs)
    start = [[1.0], [5.0]] if isinstance(family, rh.Poisson) else [[0.0, unit**2], [5.0 * unit, unit**2]]
    return model, model.natural(start, [[0.95, 0.05], [0.1, 0.9]]), series


@pytest.mark.parametrize("unit", [1e-9, 1e9])
@pytest.mark.parametrize("name", IN_UNITS)
def test_the_fit_of_no_model_depends_on_units(name, unit):
    """Counts have no unit; their inputs have one."""
    model, start, series = in_units(name)
    other, other_start, other_series = in_units(name, unit, unit**0.5, 37.0 * unit**0.5)
    one = rh.climb(model, series, start, tolerance=1e-11)
    two = rh.climb(other, other_series, other_start, tolerance=1e-11)
    scale = units(other, other_series) / units(model, series)
    theta = model.pack(one.parameters) * scale
    theta[[name.startswith("log variance") for name in model.component_names]] += 2 * np.log(unit)
    np.testing.assert_allclose(other.pack(two.parameters) / scale, theta / scale, rtol=1e-6, atol=1e-6)


def test_the_fit_does_not_depend_on_where_zero_is():
    model, start, series = autoregressive()
    other, other_start, other_series = autoregressive(shift=40.0)
    one, two = (
        rh.climb(model, series, start, tolerance=1e-10),
        rh.climb(other, other_series, other_start, tolerance=1e-10),
    )
    np.testing.assert_allclose(two.parameters.phi[:, 0] - 40, one.parameters.phi[:, 0], atol=1e-5)
    np.testing.assert_allclose(two.parameters.coefficients, one.parameters.coefficients, atol=1e-5)


# ---------------------------------------------------------------- other families, ties, known states
SAMPLED = [
    (rh.Poisson(), "poisson"), (rh.NegativeBinomial(4.0), "poisson"), (rh.FreeNegativeBinomial(), "poisson"),
    (rh.ZeroInflatedPoisson(), "poisson"), (rh.Exponential(), "gamma"), (rh.GammaEmission(), "gamma"),
    (rh.LogNormal(), "gamma"), (rh.Bernoulli(), "bernoulli"), (rh.FreeStudentT(), "student"),
]  # fmt: skip


@pytest.mark.plain
@pytest.mark.parametrize(("family", "law"), SAMPLED, ids=[type(family).__name__ for family, _ in SAMPLED])
def test_families_on_inputs_climb_to_a_mode(family, law):
    rng = np.random.default_rng(7)
    T = 150
    x = rng.normal(size=(T, 1))
    truth = (np.arange(T) % 50 > 40).astype(int)
    rate = np.exp(0.5 + 1.5 * truth + 0.4 * x[:, 0])
    y = {
        "poisson": lambda: rng.poisson(rate),
        "gamma": lambda: rng.gamma(2.0, rate),
        "bernoulli": lambda: rng.random(T) < rate / (1 + rate),
        "student": lambda: rng.standard_t(4, T) + rate,
    }[law]()
    series = rh.Series(np.asarray(y, dtype=float), exog=x, states=np.where(np.arange(T) < 75, truth, -1))
    model = rh.Model(
        family, 2, rh.default_priors(family, 2, series), inputs=rh.Inputs.of(series, [rh.Columns()]),
        transitions=rh.Phases((1, 2)),
    )  # fmt: skip
    phi = np.array(
        [family.estimate(np.sort(y)[part].astype(float), np.ones(75)) for part in (slice(75), slice(75, 150))]
    )
    found = rh.climb(model, series, model.natural(phi, [[0.9, 0.1], [0.2, 0.8]]), steps=200)
    assert (np.diff(found.trace) >= 0).all()
    assert found.trace[-1] > found.trace[0] + 1
    _, slope = rh.log_posterior(model, model.pack(found.parameters), series)
    assert np.abs(slope).max() < 0.05


def test_tied_variances_are_the_best_ones():
    model, start, series = autoregressive()
    tied = replace(model, tied=("variance",))
    found = rh.climb(tied, series, start, tolerance=1e-9)
    assert found.parameters.phi[0, 1] == found.parameters.phi[1, 1]
    _, slope = rh.log_posterior(tied, tied.pack(found.parameters), series)
    assert np.abs(slope).max() < 0.02
    assert rh.climb(model, series, found.parameters).log_posterior > found.log_posterior - 10


def test_known_states_lead_where_labels_say():
    """The state that labels call 1 is the high one, even if the start has it the other way round."""
    rng = np.random.default_rng(2)
    truth = (np.arange(400) % 100 > 80).astype(int)
    y = 6.0 * truth + rng.normal(size=400)
    known = np.where(np.arange(400) < 200, truth, -1)
    family = rh.Gaussian()
    series = rh.Series(y, states=known)
    model = rh.Model(family, 2, rh.default_priors(family, 2, series))
    start = model.natural([[4.0, 4.0], [2.0, 4.0]], [[0.9, 0.1], [0.1, 0.9]])
    found = rh.climb(model, series, start)
    np.testing.assert_allclose(found.parameters.phi[:, 0], [0, 6], atol=0.3)
    poisson = rh.Poisson()
    counts = rh.Series(rng.poisson(1 + 9 * truth).astype(float), states=known)
    model = rh.Model(poisson, 2, rh.default_priors(poisson, 2, counts))
    rates = rh.climb(model, counts, model.natural([[5.0], [4.0]], [[0.9, 0.1], [0.1, 0.9]])).parameters.phi[:, 0]
    np.testing.assert_allclose(rates, [1, 10], rtol=0.25)


# ---------------------------------------------------------------- phases
def test_steps_between_phases_count_for_leaving_but_not_for_where_to():
    """The M-step maximises the expected log probability of the path."""
    P = np.array([[0.7, 0.2, 0.1], [0.3, 0.6, 0.1], [0.25, 0.25, 0.5]])
    stays, exits, advances = (
        np.array([30.0, 20.0, 9.0]),
        np.array([[0, 4, 6], [3, 0, 2], [1, 1, 0.0]]),
        np.array([5.0, 0.0, 7.0]),
    )
    leaving = np.where(np.eye(3, dtype=bool), 0.0, P)
    pairs = np.diag(stays) + exits + advances[:, None] * leaving / leaving.sum(1, keepdims=True)
    family = rh.Gaussian()
    model = rh.Model(family, 3, rh.no_priors(family), start=np.full(3, 1 / 3))
    best = best_transition(model, P, pairs, np.zeros(3), advances)
    total = stays + exits.sum(1) + advances
    np.testing.assert_allclose(np.diag(best), stays / total)
    np.testing.assert_allclose(
        best - np.diag(np.diag(best)), (1 - np.diag(best))[:, None] * exits / exits.sum(1)[:, None]
    )
