"""Known parameters and forbidden transitions: no part of theta, kept by every method, and the rest as it must be."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from small_models import FAMILIES, Pair, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.engine.contracts.design import Design
from rarehmm.engine.contracts.family import columns
from rarehmm.engine.dispatch import JIT
from rarehmm.exact.batched import BatchedLogPosterior
from rarehmm.exact.em import climb
from rarehmm.exact.passes import log_likelihood, log_posterior
from rarehmm.model.priors import Pinned
from rarehmm.posterior.posterior import Posterior
from rarehmm.samplers.sgld import Sgld
from rarehmm.sampling.chains import gradient_estimates, run
from rarehmm.sampling.gibbs import gibbs
from rarehmm.search.initial import find_states
from rarehmm.search.mode import find_mode, is_labelled_like_mode, relabel_states
from rarehmm.windows.gradients import freeze
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

RING = [[None, None, 0], [0, None, None], [None, 0, None]]  # 0 to 1 to 2 to 0
FIRST = {"Gaussian": "mean", "StudentT": "mean", "Poisson": "rate", "Pair": "second"}


def fixed_of(family, transition=RING):
    return {FIRST[type(family).__name__]: [None, 2.5, None], "transition": transition}


def setting(family, transition=RING, start=None, T=21, seed=0):
    """A model with known values, a series with gaps, and a point theta."""
    rng = np.random.default_rng(seed)
    given = None if start is None else rng.dirichlet(np.ones(3))
    if isinstance(family, Pair):
        model = rh.Model(family, 3, rh.Priors((rh.Normal(0, 9),) * 2, rh.Dirichlet(1.3)), start=given)
    else:
        model = model_of(family, 3, start=given)
    y = series_of(rng, model, parameters_of(rng, model), T)
    fixed = fixed_of(family, transition)
    known = rh.Model(family, 3, model.priors._replace(transition=rh.Dirichlet(1.3)), start=given, fixed=fixed)
    parameters = parameters_of(rng, known)
    return known, rh.Series(y), known.pack(parameters), parameters


CASES = [
    (family, transition, start)
    for family in (*FAMILIES, Pair())
    for transition, start in ((RING, None), (RING, "given"), ([[None, 0, None], [0.2, 0.5, 0.3], [None] * 3], None))
]


@pytest.mark.parametrize(("family", "transition", "start"), CASES)
def test_theta_holds_what_is_not_known(family, transition, start):
    model, _, theta, parameters = setting(family, transition, start)
    P, known = len(family.parameters), np.array(transition, dtype=float)
    zeros = int((known == 0).sum())
    whole_rows = int((~np.isnan(known)).all(1).sum())
    assert len(theta) == model.size == 3 * P - 1 + 6 - zeros - 2 * whole_rows == len(model.component_names)
    again = model.unpack(theta)
    for one, other in zip(again, parameters, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    column = [p.name for p in family.parameters].index(FIRST[model.name])
    assert again.phi[1, column] == 2.5
    np.testing.assert_array_equal(again.transition[~np.isnan(known)], known[~np.isnan(known)])
    np.testing.assert_allclose(again.transition.sum(1), 1)
    many = model.unpack_all(np.stack([theta, theta + 0.1]))
    np.testing.assert_array_equal(many[0][0], again.phi)


@pytest.mark.parametrize(("family", "transition", "start"), CASES)
def test_gradient_against_differences(family, transition, start):
    model, series, theta, _ = setting(family, transition, start, T=60)
    value, slope = log_posterior(model, theta, series)
    parameters = model.unpack(theta)
    assert value == pytest.approx(log_likelihood(model, parameters, series) + model.log_prior(theta), abs=1e-9)
    for i in range(model.size):
        step = np.zeros(model.size)
        step[i] = 1e-5
        up, down = (log_posterior(model, theta + side * step, series)[0] for side in (1, -1))
        assert slope[i] == pytest.approx((up - down) / 2e-5, rel=1e-6, abs=1e-6)
    values, slopes = BatchedLogPosterior(model, series).values_and_slopes(np.stack([theta, theta + 0.05]))
    assert values[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(slopes[0], slope, rtol=1e-8, atol=1e-8)


def test_prior_is_that_of_the_transitions_that_happen():
    """Rows of two allowed entries have a Dirichlet of two."""
    model = rh.Model(rh.Poisson(), 3, rh.Priors((rh.Gamma(2, 1),), rh.Dirichlet(1.7)), fixed={"transition": RING})
    two = rh.Model(rh.Poisson(), 2, rh.Priors((rh.Gamma(2, 1),), rh.Dirichlet(1.7)))
    x = np.array([0.3, -0.4, 1.1])
    expected = sum(two.log_prior(np.array([0.0, 0.0, v, 0.0])) for v in x) - 3 * two.log_prior(np.zeros(4))
    lifted = model.log_prior(np.concatenate([np.zeros(3), x])) - model.log_prior(np.zeros(6))
    assert lifted == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("family", "transition", "start"), [*CASES[:3], *CASES[-3:]])
@pytest.mark.parametrize("way", ["shared", "separate", "frozen"])
def test_chain_gradient_is_exact_when_one_window_is_all(family, transition, start, way):
    model, series, theta, _ = setting(family, transition, start)
    windows = Windows(series, 10, 2)
    assert windows.count == 1
    there = theta + 0.1 * np.random.default_rng(1).standard_normal(model.size)
    frozen = freeze(model, there, series, windows) if way == "frozen" else None
    pool = Pool(model, series, windows, Design(np.ones((1, 1))), 2, separate=way == "separate", frozen=frozen)
    found = gradient_estimates(np.random.default_rng(0), model, pool, theta, 3)
    exact = log_posterior(model, theta, series)[1]
    np.testing.assert_allclose(found, np.broadcast_to(exact, (3, model.size)), rtol=1e-8, atol=1e-8)


def test_chain_moves_what_is_free_and_nothing_else():
    model, series, theta, _ = setting(rh.Gaussian())
    pool = Pool(model, series, Windows(series, 10, 2), Design(np.ones((1, 1))), 2)
    draws = run(np.random.default_rng(0), Sgld(1e-4), model, pool, theta, 20)[0]
    assert draws.shape == (20, model.size)
    assert (np.abs(np.diff(draws, axis=0)) > 0).all()
    noise = np.random.default_rng(0).spawn(1)[0].spawn(2)[1]
    noise = noise.standard_normal((20, 1, model.size))
    here = theta.copy()
    for t in range(20):
        here = here + 0.5e-4 * log_posterior(model, here, series)[1] + 1e-2 * noise[t, 0]
        np.testing.assert_allclose(draws[t], here, rtol=1e-9)


@pytest.mark.jit
@pytest.mark.parametrize("family", [*FAMILIES, rh.NegativeBinomial(3.0)])
@pytest.mark.parametrize("start", [None, "given"])
def test_em_climbs_to_the_mode_of_the_rest(family, start):
    rng = np.random.default_rng(3)
    shell = model_of(rh.Poisson(), 3) if isinstance(family, rh.NegativeBinomial) else model_of(family, 3)
    y = series_of(rng, shell, parameters_of(rng, shell, gap=3), 300)
    names = [p.name for p in family.parameters]
    fixed = {names[0]: [None, 5.0, None], "transition": RING}
    model = rh.Model(family, 3, shell.priors, start=None if start is None else [0.2, 0.3, 0.5], fixed=fixed)
    begin = model.natural(np.column_stack([[1.0, 5.0, 9.0]] + [[1.0] * 3] * (len(names) - 1)), np.full((3, 3), 1 / 3))
    found = climb(model, rh.Series(y), begin, steps=3000, tolerance=1e-11)
    assert found.converged
    assert (np.diff(found.trace) > -1e-9).all()
    assert found.parameters.phi[1, 0] == 5.0
    assert (found.parameters.transition[[0, 1, 2], [2, 0, 1]] == 0).all()
    slope = log_posterior(model, model.pack(found.parameters), rh.Series(y))[1]
    assert np.abs(slope).max() < 1e-3


@pytest.mark.jit
def test_m_step_of_several_columns_given_known_means():
    """The expected complete-data log posterior of the rest, maximised numerically; one coordinate group at a time."""
    rng = np.random.default_rng(0)
    family = rh.MultivariateGaussian(2)
    T = 400 if JIT else 60
    y = np.column_stack([rng.normal(size=T), rng.normal(size=T)])
    y[:, 1] += 0.8 * y[:, 0]
    y[T // 2 :] += 6
    series = rh.Series(y)
    names = [p.name for p in family.parameters]
    fixed = {names[0]: [0.5, None]}
    model = rh.Model(family, 2, rh.default_priors(family, 2, series), fixed=fixed)
    begin = model.natural(family.phi_of([[0.5, 0], [6, 6]], [np.eye(2)] * 2), [[0.9, 0.1], [0.1, 0.9]])
    found = climb(model, series, begin, steps=2000, tolerance=1e-11)
    assert found.parameters.phi[0, 0] == 0.5
    slope = log_posterior(model, model.pack(found.parameters), series)[1]
    assert np.abs(slope).max() < 1e-3
    top = minimize(lambda x: -log_posterior(model, x, series)[0], model.pack(begin), method="L-BFGS-B")
    assert found.log_posterior == pytest.approx(-top.fun, abs=1e-2)


def test_gibbs_keeps_what_is_known():
    model, series, _, parameters = setting(rh.Gaussian(), T=200)
    draws = gibbs(np.random.default_rng(0), model, series, parameters, 20)
    phi, transition = model.unpack_all(draws)
    assert (phi[:, 1, 0] == 2.5).all()
    assert (transition[:, [0, 1, 2], [2, 0, 1]] == 0).all()
    assert (np.diff(phi[:, 0, 0]) != 0).all()


# ---------------------------------------------------------------- places and names
@pytest.mark.jit
def test_states_are_found_and_put_in_their_places():
    rng = np.random.default_rng(0)
    shell = model_of(rh.Gaussian(), 3)
    P = [[0.95, 0.05, 0], [0, 0.9, 0.1], [0.3, 0, 0.7]]
    y, _ = rh.simulate(rng, shell, shell.parameters(P, mean=[0, 8, -8], variance=1), 5000 if JIT else 500)
    series = rh.Series(y)
    priors = rh.default_priors(rh.Gaussian(), 3, series)
    method = "auto" if JIT else "map"
    for fixed, means in (
        ({"mean": [None, -8, None]}, [0, -8, 8]),
        ({"mean": [8, None, None]}, [8, -8, 0]),
        ({"mean": [0, None, None], "transition": RING}, [0, 8, -8]),
    ):
        model = rh.Model(rh.Gaussian(), 3, priors, fixed=fixed)
        found = Posterior.of(rh.infer(np.random.default_rng(0), model, series, wanted=100, method=method))
        np.testing.assert_allclose(found.mean.phi[:, 0], means, atol=0.2)


@pytest.mark.jit
def test_names_change_only_among_states_that_are_alike():
    model = rh.Model(rh.Gaussian(), 4, model_of(rh.Gaussian(), 2).priors, fixed={"mean": [None, 3.0, None, None]})
    assert [g.tolist() for g in model.exchangeable_groups] == [[0, 2, 3], [1]]
    assert not model.exchangeable
    assert [g.tolist() for g in model_of(rh.Gaussian(), 3).exchangeable_groups] == [[0, 1, 2]]
    ring = rh.Model(rh.Gaussian(), 3, model.priors, fixed={"transition": RING})
    assert len(ring.exchangeable_groups) == 3
    started = rh.Model(rh.Gaussian(), 3, model.priors, start=[0.5, 0.25, 0.25])
    assert [g.tolist() for g in started.exchangeable_groups] == [[0], [1, 2]]

    rng = np.random.default_rng(0)
    P = np.full((4, 4), 0.05) + 0.8 * np.eye(4)
    truth = model.parameters(P, mean=[-4, 3.0, 0, 9], variance=1)
    y, _ = rh.simulate(rng, model, truth, 3000)
    mode = find_mode(model, rh.Series(y), truth)
    phi, transition = model.unpack_all(mode.theta[None])
    new = [3, 1, 0, 2]
    other = mode.model.pack(mode.model.natural(phi[0][new], transition[0][np.ix_(new, new)]))[None]
    assert not is_labelled_like_mode(mode, other)[0]
    np.testing.assert_allclose(relabel_states(mode, other)[0], mode.theta, atol=1e-9)


@pytest.mark.jit
def test_find_states_gives_known_values():
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.normal(size=900), rng.normal(7, 1, 100)])
    series = rh.Series(y)
    model = rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series), fixed={"mean": [7.5, None]})
    best, *_ = find_states(model, series)
    assert best.parameters.phi[0, 0] == 7.5
    assert abs(best.parameters.phi[1, 0]) < 0.2


# ---------------------------------------------------------------- the face
@pytest.mark.jit
def test_estimator_with_fixed_values(tmp_path):
    rng = np.random.default_rng(0)
    T, first, second, more = (
        (3000, 500, 2000, {}) if JIT else (120, 20, 80, {"method": "importance", "rare_share": 0.5})
    )
    y = rng.normal(size=T)
    y[first : first + 20] += 6
    y[second : second + 30] += 6
    fixed = {"mean": [0, None], "variance": [None, 1.0], "transition": [[None, None], [None, None]]}
    hmm = rh.RareHMM(2, fixed=fixed, n_draws=200, **more).fit(y)
    assert hmm.means_[0, 0] == 0
    assert hmm.covars_[1, 0] == 1
    assert hmm.means_[1, 0] == pytest.approx(6, abs=0.6)
    table = hmm.summary()
    assert table.loc["mean[0]", "sd"] == 0
    assert table.loc["mean[1]", "sd"] > 0.1
    assert len(hmm.rare_events(y)) == 2
    hmm.posterior_.save(tmp_path / "one.nc")
    again = Posterior.load(tmp_path / "one.nc")
    np.testing.assert_array_equal(again.phi, hmm.posterior_.phi)
    assert again.model.component_names == hmm.posterior_.model.with_reference(np.eye(2)).component_names
    given = again.to_arviz().posterior.attrs["rarehmm"]
    assert json.loads(given)["fixed"]["variance"] == [None, 1.0]


@pytest.mark.parametrize(
    ("fixed", "error", "message"),
    [
        (
            {"means": [0, None]},
            ValueError,
            "fixed has the unknown key 'means'; valid keys are mean, variance and transition. Did you mean",
        ),
        ([0, 1], TypeError, "fixed is .*; pass a dictionary such as"),
        ({"mean": [0, None, None]}, ValueError, r"fixed\['mean'\] has shape \(3,\); it must have shape \(2,\)"),
        ({"mean": ["x", None]}, TypeError, r"pass numbers, with None for free entries"),
        ({"variance": [0, None]}, ValueError, r"fixed\['variance'\]\[0\] is 0; it must be positive"),
        ({"mean": [np.inf, None]}, ValueError, r"fixed\['mean'\]\[0\] is inf"),
        ({"transition": [[1.2, None], [None, None]]}, ValueError, r"\[0\]\[0\] is 1.2; probabilities must lie between"),
        ({"transition": [[0.5, None], [None, None]]}, ValueError, "row 0 of .* or be fixed as a whole"),
        ({"transition": [[0.5, 0.4], [None, None]]}, ValueError, "row 0 of .* sums to 0.9"),
        ({"transition": [[1, 0], [None, None]]}, ValueError, r"can never leave the states \[0\] once"),
        ({"transition": [[None, None], [0, 0]]}, ValueError, "row 1 of .* sums to 0"),
    ],
)
def test_what_cannot_be_known_is_refused(fixed, error, message):
    with pytest.raises(error, match=message):
        rh.Model(rh.Gaussian(), 2, model_of(rh.Gaussian(), 2).priors, fixed=fixed)


def test_references_are_transitions_that_happen():
    priors = model_of(rh.Gaussian(), 2).priors
    fixed = {"transition": [[0, None, None], [None] * 3, [None, 0, None]]}
    model = rh.Model(rh.Gaussian(), 3, priors, fixed=fixed)
    assert model.coordinates.reference == (1, 1, 2)
    with pytest.raises(ValueError, match="but some of these transitions are forbidden"):
        rh.Model(rh.Gaussian(), 3, priors, fixed=fixed, coordinates=rh.AdditiveLogRatio((0, 1, 2)))
    with pytest.raises(ValueError, match="ExpandedMean does not support fixed transitions"):
        rh.Model(rh.Gaussian(), 3, priors, fixed=fixed, coordinates=rh.ExpandedMean())


def test_the_last_way_out_of_a_state_is_certain():
    model = rh.Model(rh.Gaussian(), 2, model_of(rh.Gaussian(), 2).priors, fixed={"transition": [[None] * 2, [None, 0]]})
    point = model.unpack(np.zeros(model.size))
    np.testing.assert_allclose(point.transition, [[0.5, 0.5], [1, 0]])


def test_a_known_value_keeps_the_prior_of_the_others():
    prior, x = rh.Normal(1.0, 4.0), np.array([0.5, 2.0])
    pinned = Pinned(prior, np.array([np.nan, 2.0]))
    np.testing.assert_array_equal(pinned.log_density(x), prior.log_density(x))
    np.testing.assert_array_equal(pinned.slope(x), prior.slope(x))


# ---------------------------------------------------------------- tied values
@pytest.mark.parametrize(
    ("family", "names"),
    [
        (rh.Gaussian(), ("variance",)),
        (rh.FreeStudentT(), ("scale2", "nu")),
        (rh.MultivariateGaussian(2), ("residual_0", "residual_1", "slope_1_0")),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else "",
)
def test_a_tied_covariance_is_that_of_all_states(family, names):
    y = np.random.default_rng(5).normal(size=(120, 2)) + 4.0 * (np.arange(120) % 40 > 30)[:, None]
    y = y if columns(family) == 2 else y[:, 0]
    series = rh.Series(y)
    free = rh.Model(family, 2, rh.default_priors(family, 2, series))
    tied = replace(free, tied=("covariance",))
    assert tied.tied == names
    assert tied.size == free.size - len(names)
    high = np.flatnonzero([p.name.startswith("mean") for p in family.parameters])
    phi = np.tile(family.estimate(y, np.ones(len(y))), (2, 1))
    phi[1, high] += 3
    start = tied.natural(phi, [[0.95, 0.05], [0.2, 0.8]])
    mode = find_mode(tied, series, start=start, threads=1)
    here = tied.unpack(mode.theta)
    at = [[p.name for p in family.parameters].index(name) for name in names]
    np.testing.assert_array_equal(here.phi[0, at], here.phi[1, at])
    assert np.diff(here.phi[:, 0]) == pytest.approx(4, abs=0.5)
    expected = log_likelihood(free, here, series)
    assert log_likelihood(tied, here, series) == pytest.approx(expected, abs=1e-8)
    _, slope = log_posterior(tied, mode.theta, series)
    assert np.abs(slope).max() < 0.1


def test_what_has_no_covariance_has_none_to_tie():
    with pytest.raises(ValueError, match="tied has 'covariance', which Poisson does not have; it has rate"):
        rh.Model(rh.Poisson(), 2, rh.no_priors(rh.Poisson()), tied=("covariance",))
