"""Gibbs sampling and Langevin dynamics on all data: their parts against slow twins, and their doors."""

import math
from typing import NamedTuple

import numpy as np
import oracle
import pytest
from small_models import FAMILIES, SINGLE, Pair, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.data import series as series_module
from rarehmm.engine.contracts.family import log_density, prepare, score, statistics
from rarehmm.engine.contracts.sampler import step
from rarehmm.engine.kernels.sequential import draw_path_backward
from rarehmm.engine.lanes import LANES
from rarehmm.exact import blocks
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.samplers.sghmc import Sghmc
from rarehmm.samplers.sgld import Sgld
from rarehmm.samplers.underdamped import Underdamped
from rarehmm.sampling import gibbs as gibbs_module
from rarehmm.sampling import hmc as hmc_module
from rarehmm.sampling import langevin as langevin_module
from rarehmm.sampling.methods import Job, by_hmc

LENGTHS = [11, 1, 20, 8]
T = sum(LENGTHS)
CONJUGATE = (rh.Gaussian(), rh.Poisson())
names = {"ids": lambda f: type(f).__name__}


def case(family, K=3, lengths=LENGTHS, **more):
    """A model, its parameters and a short series of several sequences with missing observations."""
    rng = np.random.default_rng(0)
    model = model_of(family, K, **more)
    parameters = parameters_of(rng, model, gap=3.0)
    return model, parameters, rh.Series(series_of(rng, model, parameters, sum(lengths)), lengths=lengths)


# ---------------------------------------------------------------- states given parameters
def test_the_backward_draw_is_that_of_its_slow_twin():
    rng = np.random.default_rng(1)
    for K in (1, 2, 5):
        filtered, transition = rng.dirichlet(np.ones(K), T), rng.dirichlet(np.ones(K), K)
        uniform, fresh, path = rng.random(T), np.zeros(T, dtype=bool), np.empty(T, dtype=np.int64)
        fresh[np.cumsum([0, *LENGTHS[:-1]])] = True
        draw_path_backward(filtered, transition, uniform, fresh, path)
        np.testing.assert_array_equal(path, oracle.draw_path_back(filtered, transition, uniform, LENGTHS))


def test_impossible_states_are_never_drawn():
    """Also not where a uniform number is 0 or as near to 1 as can be."""
    filtered = np.array([[0.0, 1.0, 0.0], [0.0, 0.3, 0.7], [0.0, 1.0, 0.0], [0.3, 0.7, 0.0]])
    transition = np.array([[0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.5, 0.5, 0.0]])
    for u in (0.0, np.nextafter(1.0, 0.0)):
        path = np.empty(4, dtype=np.int64)
        draw_path_backward(filtered, transition, np.full(4, u), np.array([True, False, False, True]), path)
        assert (filtered[np.arange(4), path] > 0).all()
        assert (transition[path[:2], path[1:3]] > 0).all()


def test_states_whose_mass_has_vanished_are_said():
    """Two states that never change, and a first observation that speaks for the wrong one with e^5000."""
    series = rh.Series([0.0, 100.0, 100.0])
    model = model_of(rh.Gaussian(), 2, start=[0.5, 0.5])
    for transition in ([[1, 0], [0, 1]], [[1 - 1e-10, 1e-10], [1e-10, 1 - 1e-10]]):
        point = model.parameters(transition, mean=[0, 100], variance=1)
        if 0 in transition[0]:
            with pytest.raises(
                ValueError, match=r"no state can be drawn at y\[0\]: .* such as 1e-10, instead of zeros"
            ):
                gibbs_module.draw_states(np.random.default_rng(0), model, point, series)
        else:
            np.testing.assert_array_equal(
                gibbs_module.draw_states(np.random.default_rng(0), model, point, series), [0, 1, 1]
            )


def test_separated_states_are_drawn_as_they_are():
    rng = np.random.default_rng(2)
    model = model_of(rh.Gaussian(), 3)
    parameters = model.parameters(SINGLE, mean=[-20, 0, 20], variance=1)
    y, path = rh.simulate(rng, model, parameters, 300)
    np.testing.assert_array_equal(gibbs_module.draw_states(rng, model, parameters, rh.Series(y)), path)


# ---------------------------------------------------------------- statistics given states
@pytest.mark.parametrize("stride", [7, 1 << 18], ids=["stretches", "at once"])
@pytest.mark.parametrize("family", FAMILIES, **names)
def test_statistics_of_states_leave_missing_observations_out(family, stride, monkeypatch):
    monkeypatch.setattr(series_module, "STRETCH", stride)
    model, parameters, series = case(family)
    path = np.random.default_rng(3).integers(0, 3, T)
    y = series.read(0, T)[:, 0]
    counts, sums = gibbs_module.state_statistics(np.random.default_rng(0), model, parameters.phi, series, path)
    for k in range(3):
        mine = [v for v, x in zip(y, path, strict=True) if x == k and not math.isnan(v)]
        each = [statistics(family, v, prepare(family, parameters.phi[k])) for v in mine]
        assert counts[k] == len(mine) < (path == k).sum()
        np.testing.assert_allclose(sums[k], np.sum(each, axis=0), rtol=1e-12)


def test_statistics_of_an_empty_state_are_zero():
    model, parameters, series = case(rh.Gaussian())
    counts, sums = gibbs_module.state_statistics(
        np.random.default_rng(0), model, parameters.phi, series, np.zeros(T, dtype=np.int64)
    )
    np.testing.assert_array_equal(counts[1:], 0)
    np.testing.assert_array_equal(sums[1:], 0)


def test_transitions_are_counted_over_gaps_but_not_across_joins():
    path = np.random.default_rng(4).integers(0, 3, T)
    expected, first = np.zeros((3, 3)), 0
    for length in LENGTHS:
        for t in range(first + 1, first + length):
            expected[path[t - 1], path[t]] += 1
        first += length
    fresh = np.isin(np.arange(T), np.cumsum([0, *LENGTHS]))
    np.testing.assert_array_equal(gibbs_module.transition_counts(path, fresh, 3), expected)
    assert expected.sum() == T - len(LENGTHS)


TOLD = []


class Told(NamedTuple):
    """Two columns; what its ``conditional`` was given goes to TOLD."""

    parameters = Pair.parameters
    domain = Pair.domain
    columns = 2
    draw = Pair.draw

    def conditional(self, _rng, phi, *given):
        TOLD.append((phi, *given))
        return phi + 1.0


for generic in (prepare, log_density, score):
    rh.engine.dispatch.compiled(generic, Told)(generic.registry[Pair])


@rh.engine.dispatch.compiled(statistics, Told)
def _(family, y, c):
    return y[0] * y[1], y[1]


def test_a_family_of_two_columns_brings_its_own_draw():
    rng = np.random.default_rng(5)
    model = rh.Model(Told(), 1, rh.Priors((rh.Normal(0.0, 1.0), rh.Normal(2.0, 1.0))))
    y = rng.normal(size=(9, 2))
    y[4, 1] = np.nan
    draws = gibbs_module.gibbs(rng, model, rh.Series(y), model.natural(np.zeros((1, 2)), [[1.0]]), 2)
    np.testing.assert_array_equal(draws, [[1, 1], [2, 2]])
    phi, counts, sums, priors = TOLD[-1]
    np.testing.assert_array_equal(phi, [[1, 1]])
    np.testing.assert_array_equal(counts, [8])
    np.testing.assert_allclose(sums, [[np.nansum(y[:, 0] * y[:, 1]), np.nansum(y[:, 1])]])
    assert priors == model.priors.emission


# ---------------------------------------------------------------- Gibbs sampling
@pytest.mark.parametrize("coordinates", [rh.AdditiveLogRatio(), rh.ExpandedMean()], **names)
@pytest.mark.parametrize("family", CONJUGATE, **names)
def test_draws_are_points_of_the_model_and_the_seed_fixes_them(family, coordinates):
    model, parameters, series = case(family, coordinates=coordinates)
    given = []
    draws = gibbs_module.gibbs(np.random.default_rng(6), model, series, parameters, 20, on_progress=given.append)
    assert draws.shape == (20, model.size)
    assert given == list(range(20))
    assert len(np.unique(draws[:, 0])) == 20
    for theta in draws:
        assert math.isfinite(rh.log_posterior(model, theta, series)[0])
    again = gibbs_module.gibbs(np.random.default_rng(6), model, series, parameters, 5)
    np.testing.assert_array_equal(again, draws[:5])


def test_a_start_that_is_given_leaves_every_transition_matrix_accepted():
    model, parameters, series = case(rh.Gaussian(), start=[0.5, 0.3, 0.2])
    draws = gibbs_module.gibbs(np.random.default_rng(6), model, series, parameters, 20)
    assert (np.abs(np.diff(draws, axis=0)) > 0).all()
    np.testing.assert_array_equal(model.unpack(draws[-1]).start, [0.5, 0.3, 0.2])


def test_draws_do_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(blocks, "CHUNK", 512)
    model, parameters, series = case(rh.Gaussian(), lengths=[3000, 1000])
    draws = [
        gibbs_module.gibbs(np.random.default_rng(7), model, series, parameters, 3, threads=n) for n in (1, 2, None)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    np.testing.assert_array_equal(draws[0], draws[2])


def test_without_logarithms_the_same_draws_are_written_in_their_own_units():
    model, parameters, series = case(rh.Gaussian())
    own = rh.Model(rh.Gaussian(), 3, model.priors, logs=False)
    draws, plain = (gibbs_module.gibbs(np.random.default_rng(8), m, series, parameters, 5) for m in (model, own))
    np.testing.assert_allclose(plain[:, 3:6], np.exp(draws[:, 3:6]), rtol=1e-12)
    np.testing.assert_array_equal(plain[:, 6:], draws[:, 6:])


def test_tiny_concentrations_neither_underflow_nor_lean():
    """Dirichlet(a, a) with a = 1e-3: the larger entry is either one, and the logarithm of the ratio is about Exp(a)."""
    rows = gibbs_module.draw_rows(np.random.default_rng(9), np.full((4000, 2), 1e-3))
    assert (rows >= 1e-101).all()
    assert abs((rows[:, 0] > 0.5).mean() - 0.5) < 4 * 0.5 / math.sqrt(4000)
    near = (rows.min(1) > 1e-50).mean()  # 1 - e^{-a log 1e50}
    assert abs(near - (1 - 1e-50**1e-3)) < 4 * math.sqrt(0.11 * 0.89 / 4000)


def test_a_start_law_is_accepted_by_the_ratio_of_probabilities():
    rng, old, first = np.random.default_rng(10), np.array([0.5, 0.5, 0.0]), np.array([0, 0, 1])
    assert gibbs_module.accepts(rng, old, np.array([0.7, 0.3, 0.0]), np.array([0, 0]))
    assert not gibbs_module.accepts(rng, old, np.array([1.0, 0.0, 0.0]), first)
    share = np.mean([gibbs_module.accepts(rng, old, np.array([0.4, 0.6, 0.0]), first) for _ in range(4000)])
    assert abs(share - 0.768) < 4 * math.sqrt(0.768 * 0.232 / 4000)  # .8 .8 1.2


def test_an_empty_state_without_a_prior_is_said():
    y = rh.Series([0.1, -0.2, 0.3, np.nan, 0.2])
    away = {"mean": [0, 1000], "variance": 1}
    for priors, message in (
        ((rh.Flat(), rh.InverseGamma(3.0, 10.0)), r"mean\[1\] has no proper distribution .*: its prior is Flat"),
        (
            (rh.Normal(0.0, 1.0), rh.Flat()),
            r"variance\[1\] has no proper .* Give it a prior \(default_priors\), or use f",
        ),
    ):
        model = rh.Model(rh.Gaussian(), 2, rh.Priors(priors), start=[1.0, 0.0])
        point = model.parameters([[0.999, 0.001], [0.5, 0.5]], **away)
        with pytest.raises(ValueError, match=message):
            gibbs_module.gibbs(np.random.default_rng(0), model, y, point, 50)
    model = rh.Model(rh.Poisson(), 2, rh.Priors((rh.Flat(),)), start=[1.0, 0.0])
    point = model.parameters([[0.999, 0.001], [0.5, 0.5]], rate=[1, 1000])
    with pytest.raises(ValueError, match=r"rate\[1\] has no proper distribution"):
        gibbs_module.gibbs(np.random.default_rng(0), model, rh.Series([1, 2, 0, 1]), point, 50)


def test_what_gibbs_sampling_cannot_do_is_said():
    rng, y = np.random.default_rng(0), rh.Series([0.0, 1.0, 2.0])
    model, parameters, series = case(rh.StudentT(4.0))
    with pytest.raises(TypeError, match=r"StudentT has no 'conditional'.* Use langevin, or another family"):
        gibbs_module.gibbs(rng, model, series, parameters, 1)
    for family, priors, kind in (
        (rh.Gaussian(), (rh.Gamma(1, 1), rh.Flat()), "Normal"),
        (rh.Gaussian(), (rh.Flat(), rh.Gamma(1, 1)), "InverseGamma"),
        (rh.Poisson(), (rh.Normal(0, 1),), "Gamma"),
    ):
        odd = rh.Model(family, 1, rh.Priors(priors))
        with pytest.raises(TypeError, match=f"Gibbs sampling needs a {kind} prior .* use langevin instead"):
            gibbs_module.gibbs(rng, odd, y, odd.natural(np.ones((1, len(priors))), [[1.0]]), 1)
    bare = rh.Model(rh.Gaussian(), 2, rh.no_priors(rh.Gaussian()))
    with pytest.raises(ValueError, match=r"concentration of the transition prior is 0.*such as Dirichlet\(1.0\)"):
        gibbs_module.gibbs(rng, bare, y, bare.natural(np.ones((2, 2)), np.full((2, 2), 0.5)), 1)
    plain = rh.Model(rh.Poisson(), 1, rh.Priors((rh.Flat(),)), logs=False)
    with pytest.raises(ValueError, match=r"prior of 'rate' is Flat and the model has logs=False.* Use logs=True"):
        gibbs_module.gibbs(rng, plain, y, plain.natural([[1.0]], [[1.0]]), 1)


# ---------------------------------------------------------------- Langevin dynamics
def by_hand(rng, model, series, theta, steps, move):
    """The chain written out: ``move(theta, gradient)`` is the next point."""
    out = []
    for _ in range(steps):
        theta = move(theta, rh.log_posterior(model, theta, series)[1])
        out.append(theta)
    return np.array(out)


@pytest.mark.parametrize("family", FAMILIES, **names)
def test_langevin_takes_the_steps_of_its_sampler(family):
    model, parameters, series = case(family)
    h, rng, given = 1e-3, np.random.default_rng(11), []
    expected = by_hand(rng, model, series, model.pack(parameters), 6,
                       lambda x, g: x + h / 2 * g + math.sqrt(h) * rng.standard_normal(model.size))  # fmt: skip
    found = langevin_module.langevin(
        np.random.default_rng(11), Sgld(h), model, series, parameters, 6, on_progress=given.append
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert given == list(range(6))
    threads = langevin_module.langevin(np.random.default_rng(11), Sgld(h), model, series, parameters, 6, threads=1)
    np.testing.assert_array_equal(found, threads)


def test_langevin_carries_velocities_from_step_to_step():
    model, parameters, series = case(rh.Gaussian())
    rng, velocity = np.random.default_rng(12), np.zeros((1, model.size))

    def move(x, gradient):
        x = x.copy()
        step(Underdamped(0.02), x, gradient, rng.standard_normal((2, model.size)), velocity, np.zeros(model.size))
        return x

    expected = by_hand(rng, model, series, model.pack(parameters), 6, move)
    found = langevin_module.langevin(np.random.default_rng(12), Underdamped(0.02), model, series, parameters, 6)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(velocity).max() > 0.1
    assert np.isfinite(langevin_module.langevin(rng, Sghmc(1e-4), model, series, parameters, 6)).all()


def test_langevin_knows_which_coordinates_are_positive():
    """The paper's coordinates, near zero, with steps that would leave them: reflected, not lost."""
    model, _, series = case(rh.Gaussian(), K=2, coordinates=rh.ExpandedMean(), logs=False)
    parameters = model.parameters([[0.999, 0.001], [0.001, 0.999]], mean=[0, 3], variance=1)
    power, h, rng = np.array([0.0, 0, 2, 2, 1, 1, 1, 1]), 0.01, np.random.default_rng(13)

    def move(x, gradient):
        metric, slope = x**power, power * np.where(power > 0, x, 1.0) ** (power - 1)
        x = x + h / 2 * (metric * gradient + slope) + np.sqrt(h * metric) * rng.standard_normal(8)
        return np.where(power > 0, np.abs(x), x)

    expected = by_hand(rng, model, series, model.pack(parameters), 20, move)
    draws = langevin_module.langevin(np.random.default_rng(13), ExpandedMeanSgld(h), model, series, parameters, 20)
    np.testing.assert_allclose(draws, expected, rtol=1e-9)
    with pytest.raises(ValueError, match=r"variance\[0\] must stay positive and Sgld moves freely"):
        langevin_module.langevin(np.random.default_rng(13), Sgld(1.0), model, series, parameters, 50)


@pytest.mark.parametrize("size", [10.0, 1e3, 1e100, 1e300])
@pytest.mark.parametrize("family", FAMILIES, **names)
def test_a_chain_that_diverges_is_said(family, size):
    model, parameters, series = case(family)
    with pytest.raises(rh.DivergedError, match=r"\[.*\] diverged at draw \d+ of chain 0; .* a smaller step") as error:
        langevin_module.langevin(np.random.default_rng(14), Sgld(size), model, series, parameters, 200)
    kept, (found,) = error.value.draws[0], error.value.divergences
    assert np.isfinite(kept[: found.draw]).all()
    assert np.isnan(kept[found.draw :]).all()


# ---------------------------------------------------------------- doors of both
@pytest.mark.parametrize("method", [gibbs_module.gibbs, langevin_module.langevin])
def test_bad_input(method):
    model, parameters, series = case(rh.Gaussian())

    def call(rng=None, model=model, series=series, start=parameters, steps=2, **more):
        rng = np.random.default_rng(0) if rng is None else rng
        first = (rng,) if method is gibbs_module.gibbs else (rng, Sgld(1e-3))
        return method(*first, model, series, start, steps, **more)

    for error, message, arguments in (
        (ValueError, "steps is 0; it must be a whole number, 1 or more", {"steps": 0}),
        (ValueError, "steps is -3", {"steps": -3}),
        (ValueError, "steps is 2.5", {"steps": 2.5}),
        (TypeError, r"rng is 7; pass a generator, such as np.random.default_rng\(0\)", {"rng": 7}),
        (TypeError, "expected a Series, got list", {"series": [1.0, 2.0]}),
        (TypeError, "expected Parameters, got ndarray", {"start": model.pack(parameters)}),
        (ValueError, "phi has shape", {"start": parameters_of(np.random.default_rng(0), model_of(rh.Gaussian(), 2))}),
        (ValueError, r"transition\[0, 2\] is 0 and has no log ratio; .* a small probability", {
            "start": model.parameters([[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0.1, 0.1, 0.8]], mean=0, variance=1)}),
        (ValueError, "y has 2 columns and Gaussian takes 1", {"series": rh.Series(np.ones((9, 2)))}),
        (ValueError, "use fewer states", {"series": rh.Series([1.0, 2.0])}),
        (ValueError, "a constant series has no regimes", {"series": rh.Series([1.0] * 9)}),
        (ValueError, "threads is 0", {"threads": 0}),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call(**arguments)
    assert call(steps=np.int64(1)).shape == (1, model.size)


def test_a_zero_among_expanded_means_is_refused_too():
    model, _, series = case(rh.Gaussian(), K=2, coordinates=rh.ExpandedMean())
    start = model.parameters([[1.0, 0.0], [0.5, 0.5]], mean=[0, 1], variance=1)
    with pytest.raises(ValueError, match=r"expanded\[0, 1\]"):
        gibbs_module.gibbs(np.random.default_rng(0), model, series, start, 1)


def test_what_is_no_sampler_is_refused():
    model, parameters, series = case(rh.Gaussian())
    with pytest.raises(TypeError, match="sampler is 'sgld'; pass an instance"):
        langevin_module.langevin(np.random.default_rng(0), "sgld", model, series, parameters, 1)


@pytest.mark.jit
@pytest.mark.nightly
def test_what_mixes_badly_is_not_sampled_for_ever():
    """Two states where there is one: a second round would be five times as long as the first, where work is left."""
    series = rh.Series(np.random.default_rng(0).normal(size=400))
    mode = rh.find_mode(rh.Model(rh.Gaussian(), 2, rh.default_priors(rh.Gaussian(), 2, series)), series)
    seen, first = [], 370  # trajectories of the first round, of eight steps; those of the second have sixteen
    for work in (2e7, 8e7):
        given = []
        job = Job(np.random.default_rng(0), mode, series, on_progress=lambda *said, given=given: given.append(said))
        draws, checks, _ = by_hmc(job, work=work)
        assert not checks[0].passed  # too few, and it is said
        done = (8 * first + 16 * (len(given) - first)) * LANES * 400
        assert done <= max(work, 8 * first * LANES * 400)
        seen.append(draws.shape[1])
    assert seen[0] == 250
    assert 600 < seen[1] < 800  # 1550 without a limit


def test_trajectories_that_leave_all_bounds_are_not_taken():
    def place(z):  # a unit Gaussian
        with np.errstate(over="ignore"):
            return hmc_module.ChainState(z, -(z**2).sum(1) / 2, -z)

    begin = place(np.random.default_rng(0).normal(size=(3, 2)))
    end, chance = hmc_module.trajectory(np.random.default_rng(1), place, begin, 1e60, 8)
    assert chance == 0
    np.testing.assert_array_equal(end.z, begin.z)
