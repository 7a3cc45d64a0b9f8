"""Families side by side: sums of their parts, also where columns are missing; names, files, and what is refused."""

import json
import pickle
import re
from typing import NamedTuple

import numpy as np
import pytest
from numba import typeof, types
from small_models import Pair

import rarehmm as rh
from rarehmm.conformance.emission import (
    Case,
    linear_predictors_move_the_parameters,
    log_scales_move_the_parameters,
)
from rarehmm.data.domains import REALS
from rarehmm.emissions import families, rivals
from rarehmm.engine.contracts.family import (
    Parameter,
    complete_score,
    constant,
    domains,
    log_density,
    move_parameters,
    observed_rows,
    prepare,
    score,
    statistics,
    with_log_scale,
    with_predictor,
)
from rarehmm.engine.dispatch import compiled
from rarehmm.engine.dispatch.tags import tags
from rarehmm.exact.densities import densities, prepared
from rarehmm.posterior.model_settings import describe, restore

FAMILIES = {
    "two": rh.Product(rh.Gaussian(), rh.Categorical(3)),
    "three": rh.Product(rh.Gaussian(), rh.Gaussian(), rh.Poisson()),
    "wide": rh.Product(rh.Poisson(), rh.MultivariateGaussian(2), rh.StudentT(4.0)),
    "alone": rh.Product(y=rh.Poisson()),
}
each = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def phi_of(family):
    return np.array([[0.7 if p.support == "real" else 1.3 for p in family.parameters],
                     [-1.1 if p.support == "real" else 0.4 for p in family.parameters]])  # fmt: skip


def drawn(family, n=50, missing=0.0):
    """Rows (n, D) of two states, some columns missing."""
    rng = np.random.default_rng(0)
    y = family.draw(rng, rng.integers(0, 2, n), phi_of(family)).reshape(n, -1)
    y[rng.random(y.shape) < missing] = np.nan
    return y


def value(y):
    return y[:, 0] if y.shape[1] == 1 else tuple(y.T)


def complete(part, y):
    return ~np.isnan(y).any(1)


def parts(family, y, seen=observed_rows):
    """Each part with its own rows, those that are there, its own parameters, and where it is."""
    for part, place in zip(family, family.places, strict=True):
        mine, own = y[:, slice(*place.columns)], slice(*place.phi)
        yield part, mine[seen(part, mine)], seen(part, mine), own


# ---------------------------------------------------------------- sums of the parts
@pytest.mark.parametrize("missing", [0.0, 0.3])
@each
def test_the_log_density_is_the_sum_of_the_parts_that_are_there(family, missing):
    y, phi = drawn(family, missing=missing), phi_of(family)[0]
    expected, terms = np.zeros(len(y)), np.zeros(len(y))
    for part, rows, seen, own in parts(family, y):
        expected[seen] += log_density(part, value(rows), prepare(part, phi[own]))
        terms[seen] += constant(part, rows)
    np.testing.assert_allclose(log_density(family, value(y), prepare(family, phi)), expected, rtol=1e-12, atol=1e-14)
    if hasattr(family, "constant"):
        np.testing.assert_allclose(family.constant(value(y) if y.shape[1] == 1 else y), terms, rtol=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@each
def test_scores_and_statistics_of_missing_columns_are_zero(family, missing):
    y, phi = drawn(family, missing=missing), phi_of(family)[0]
    c = prepare(family, phi)
    slopes = np.array([np.broadcast_to(s, len(y)) for s in score(family, value(y), c)])
    marks = np.array([np.broadcast_to(s, len(y)) for s in statistics(family, value(y), c)])
    for (part, rows, seen, own), place in zip(parts(family, y), family.places, strict=True):
        mine = prepare(part, phi[own])
        for found, expected in ((slopes[own], score), (marks[slice(*place.statistics)][1:], statistics)):
            values = [np.broadcast_to(v, len(rows)) for v in expected(part, value(rows), mine)]
            np.testing.assert_allclose(found[:, seen], values, rtol=1e-12, atol=1e-14)
            assert (found[:, ~seen] == 0).all()
        np.testing.assert_array_equal(marks[place.statistics[0]], seen)


@pytest.mark.parametrize("missing", [0.0, 0.3])
@each
def test_m_steps_are_those_of_the_parts_with_what_each_has_seen(family, missing):
    y, phi = drawn(family, missing=missing), phi_of(family)[:1]
    c = prepare(family, phi[0])
    sums = np.array([np.broadcast_to(s, len(y)).sum() for s in statistics(family, value(y), c)])
    wrong = np.array([1e9])  # rows of which something is there: no part has seen all of them
    priors = rh.default_priors(family, 1, rh.Series(drawn(family))).emission
    found = family.maximise(phi, wrong, sums[None], priors)
    for part, rows, _, own in parts(family, y):
        mine = np.array([[np.sum(s) for s in statistics(part, value(rows), prepare(part, phi[0, own]))]])
        expected = part.maximise(phi[:, own], np.array([float(len(rows))]), mine, priors[own])
        np.testing.assert_allclose(found[:, own], expected, rtol=1e-12)
    here = prepare(family, found[0])
    slopes = [np.broadcast_to(s, len(y)).sum() for s in score(family, value(y), here)]
    if not any(isinstance(part, rh.StudentT) for part in family):  # whose statistics are expectations at c
        np.testing.assert_allclose(complete_score(family, wrong[0], sums, c, here), slopes, rtol=1e-8, atol=1e-8)


@each
def test_estimates_are_those_of_the_parts(family):
    y = drawn(family, missing=0.3)
    found = family.estimate(value(y) if y.shape[1] == 1 else y, np.ones(len(y)))
    for part, rows, _, own in parts(family, y, complete):
        np.testing.assert_allclose(found[own], part.estimate(rows[:, 0] if rows.shape[1] == 1 else rows,
                                                             np.ones(len(rows))))  # fmt: skip
    y[:, 0] = np.nan
    nothing = family.estimate(y[:, 0] if y.shape[1] == 1 else y, np.ones(len(y)))
    assert np.isnan(nothing[slice(*family.places[0].phi)]).all()


@each
def test_kernels_compute_the_same_as_numpy(family):
    y = drawn(family, 37, missing=0.2)
    y[3] = np.nan
    model = rh.Model(family, 2, rh.no_priors(family))
    point = prepared(model, model.natural(phi_of(family), np.full((2, 2), 0.5)))
    found = densities(model, point, y)
    for k in range(2):
        expected = log_density(family, value(y), prepare(family, point.phi[k]))
        np.testing.assert_allclose(found[:, k], expected, rtol=1e-13, atol=1e-14)


def test_gibbs_draws_are_those_of_the_parts():
    family = FAMILIES["three"]
    y, phi = drawn(family, missing=0.3), phi_of(family)[:1]
    sums = np.array([[np.sum(s) for s in statistics(family, value(y), prepare(family, phi[0]))]])
    priors = rh.default_priors(family, 1, rh.Series(drawn(family))).emission
    found = family.conditional(np.random.default_rng(1), phi, np.array([1e9]), sums, priors)
    rng = np.random.default_rng(1)
    for part, rows, _, own in parts(family, y):
        mine = np.array([[np.sum(s) for s in statistics(part, value(rows), prepare(part, phi[0, own]))]])
        expected = part.conditional(rng, phi[:, own], np.array([float(len(rows))]), mine, priors[own])
        np.testing.assert_allclose(found[:, own], expected, rtol=1e-12)


def test_the_whole_has_what_all_of_its_parts_have():
    assert not hasattr(rh.Product(rh.Gaussian(), rh.Categorical(3)), "conditional")
    without = rh.Product(rh.Gaussian(), Pair())
    assert not {"maximise", "conditional", "estimate", "cdfs"} & set(dir(without))
    assert statistics(without, (1.0, 1.0, 1.0), prepare(without, np.ones(4))) == ()
    assert not hasattr(rh.Product(rh.Gaussian(), rh.StudentT(4.0)), "constant")


def test_default_priors_are_those_of_each_column():
    rng = np.random.default_rng(0)
    y = np.column_stack([rng.normal(50, 3, 400), rng.poisson(2.0, 400), rng.normal(-7, 0.1, (400, 2))])
    family = rh.Product(rh.Gaussian(), rh.Poisson(), rh.MultivariateGaussian(2))
    found = rh.default_priors(family, 2, rh.Series(y)).emission
    expected = [rh.default_priors(part, 2, rh.Series(rows)).emission for part, rows, _, _ in parts(family, y)]
    assert found == tuple(prior for mine in expected for prior in mine)


def test_moments_have_no_covariance_between_parts():
    family = rh.Product(rh.Gaussian(), rh.MultivariateGaussian(2))
    phi = np.concatenate(
        [[5.0, 2.0], rh.MultivariateGaussian(2).phi_of(np.ones(2), np.array([[2.0, 1.0], [1.0, 3.0]]))]
    )
    mean, covariance = family.moments(phi[None])
    np.testing.assert_allclose(mean, [[5, 1, 1]])
    np.testing.assert_allclose(covariance, [[[2, 0, 0], [0, 2, 1], [0, 1, 3]]], atol=1e-12)
    assert not hasattr(rh.Product(rh.Gaussian(), rh.Poisson()), "moments")
    assert FAMILIES["wide"].levels == [0, 1, 2, 6]


def test_heavier_tails_are_those_of_the_parts_that_have_some():
    family, phi = rh.Product(speed=rh.Gaussian(), kind=rh.Bernoulli()), np.array([[1.0, 2.0, 0.3]])
    found = family.heavier(phi)
    assert [f for f, _ in found] == [
        rh.Product(speed=f, kind=rh.Bernoulli()) for f, _ in rivals(rh.Gaussian(), phi[:, :2])
    ]
    np.testing.assert_allclose(found[0][1], np.column_stack([rh.Gaussian().heavier(phi[:, :2])[0][1], phi[:, 2]]))
    assert len({type(f) for f, _ in found}) == 1  # settings are fields: the kernels of one serve all
    assert not hasattr(rh.Product(rh.Bernoulli(), rh.Bernoulli()), "heavier")


# ---------------------------------------------------------------- inputs
SOME = rh.Product(angle=rh.VonMises(), hits=rh.Poisson(), both=rh.MultivariateGaussian(2), kind=rh.Categorical(3),
                  mix=rh.GaussianMixture(2))  # fmt: skip


def test_inputs_move_the_parts_that_take_them():
    assert SOME.linear_predictor == ("hits_rate", "both_mean_0", "both_mean_1", "mix_mean")
    assert SOME.log_scale == (
        ("both_residual_0", 2.0), ("both_residual_1", 2.0), ("mix_variance_0", 2.0), ("mix_variance_1", 2.0),
    )  # fmt: skip
    without = rh.Product(rh.VonMises(), rh.Categorical(3))
    assert not {"linear_predictor", "log_scale"} & set(dir(without))
    with pytest.raises(TypeError, match=r"Product\(VonMises, Categorical3\) takes no inputs: it has no linear_pred"):
        with_predictor(without, (0.0, 1.0), prepare(without, np.ones(4)), (0.0, 0.0))


def test_a_parameter_moves_by_the_input_of_its_own_column():
    eta, zeta = np.log(np.arange(2.0, 8.0)), np.log(np.arange(12.0, 18.0))
    phi = np.ones((1, len(SOME.parameters)))
    found = dict(zip((p.name for p in SOME.parameters), move_parameters(SOME, phi, eta, zeta)[0], strict=True))
    expected = {"hits_rate": 3.0, "both_mean_0": 1 + np.log(4), "both_mean_1": 1 + np.log(5), "mix_mean": 1 + np.log(7),
                "both_residual_0": 14.0**2, "both_residual_1": 15.0**2, "mix_variance_0": 17.0**2,
                "mix_variance_1": 17.0**2}  # fmt: skip
    assert found == pytest.approx(dict.fromkeys(found, 1.0) | expected)


def test_parameters_move_by_row():
    phi = np.array([[1.0, 2.0]])
    found = move_parameters(rh.Gaussian(), phi, np.array([[1.0], [2.0], [3.0]]), np.log(2.0))
    np.testing.assert_allclose(found, [[2.0, 8.0], [3.0, 8.0], [4.0, 8.0]])
    np.testing.assert_array_equal(phi, [[1.0, 2.0]])
    np.testing.assert_allclose(move_parameters(rh.Poisson(), np.ones((4, 2, 1)), np.log(5.0)), np.full((4, 2, 1), 5.0))


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("family", [*FAMILIES.values(), SOME], ids=[*FAMILIES, "some"])
def test_inputs_move_each_part_as_it_would_by_itself(family, missing):
    y, phi, rng = drawn(family, missing=missing), phi_of(family)[0], np.random.default_rng(4)
    eta, zeta = 0.5 * rng.standard_normal((2, *y.shape))
    c = prepare(family, phi)
    found = with_predictor(family, value(y), c, value(eta))
    if hasattr(family, "log_scale"):
        found = with_log_scale(family, *found, value(zeta))
    expected = np.zeros(len(y))
    for (part, rows, seen, own), place in zip(parts(family, y), family.places, strict=True):
        mine = slice(*place.columns)
        for n, t in enumerate(np.flatnonzero(seen)):
            at = move_parameters(part, phi[own], eta[t, mine], zeta[t, mine])
            expected[t] += log_density(part, value(rows[n : n + 1]), prepare(part, at)).item()
    np.testing.assert_allclose(log_density(family, *found), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.jit
def test_inputs_move_some_parts_in_kernels():
    held = Case(SOME, phi_of(SOME))
    linear_predictors_move_the_parameters(held)
    log_scales_move_the_parameters(held)


# ---------------------------------------------------------------- names and settings
def test_names_are_those_of_columns():
    assert [p.name for p in FAMILIES["wide"].parameters] == [
        "y0_rate", "y1_mean_0", "y1_mean_1", "y1_residual_0", "y1_residual_1", "y1_slope_1_0", "y3_mean", "y3_scale2",
    ]  # fmt: skip
    assert [p.column for p in FAMILIES["wide"].parameters] == [0, 1, 2, (1,), (2, 1), (2, 1), 3, 3]
    assert rh.Product(speed=rh.Gaussian(), hits=rh.Poisson()).labels == ("speed", "hits")
    assert rh.Product(("reaction time", rh.Gaussian()), rh.Poisson()).labels == ("reaction time", "y1")
    assert len(domains(FAMILIES["wide"])) == FAMILIES["wide"].columns == 4


def test_products_of_products_are_flat():
    inner = rh.Product(speed=rh.Gaussian(), hits=rh.Poisson())
    assert rh.Product(inner, rh.Gaussian()).labels == ("speed", "hits", "y2")
    assert rh.Product(rh.Gaussian(), rh.Product(rh.Poisson(), rh.Gaussian())).labels == ("y0", "y1", "y2")
    assert rh.Product(left=inner, right=inner).labels == ("left_speed", "left_hits", "right_speed", "right_hits")
    assert rh.Product(inner) == inner


@each
def test_equal_if_made_alike_also_after_pickling_and_in_files(family):
    again = pickle.loads(pickle.dumps(family))
    assert again == family
    assert type(again) is type(family)
    assert hash(again) == hash(family)
    assert again.labels == family.labels
    known = {**families(), "product": rh.Product}
    assert restore(json.loads(json.dumps(describe(family))), known) == family
    assert eval(repr(family), vars(rh)) == family


def test_different_if_made_differently():
    one = rh.Product(rh.StudentT(4.0), rh.Poisson())
    for other in (
        rh.Product(rh.StudentT(5.0), rh.Poisson()), rh.Product(rh.StudentT(4.0), rh.Gaussian()),
        rh.Product(a=rh.StudentT(4.0), b=rh.Poisson()), rh.Product(rh.Poisson(), rh.StudentT(4.0)), rh.Gaussian(),
    ):  # fmt: skip
        assert one != other
    assert rh.Product(rh.Gaussian(), rh.Gaussian()) != rh.Product(rh.Gaussian(), rh.Exponential())  # () == ()
    assert (
        repr(rh.Product(rh.Gaussian(), ("two words", rh.Poisson()))) == "Product(Gaussian(), ('two words', Poisson()))"
    )


def test_a_saved_posterior_knows_its_parts(tmp_path):
    rng, family = np.random.default_rng(0), rh.Product(speed=rh.StudentT(3.0), kind=rh.Categorical(3))
    model = rh.Model(
        family, 2, rh.Priors((rh.Normal(0.0, 1.0), rh.InverseGamma(3.0, 1.0)) + (rh.Normal(0.0, 1.0),) * 2)
    )
    found = rh.Posterior(model, rng.gamma(3.0, size=(2, 10, 2, 4)), rng.dirichlet(np.ones(2), (2, 10, 2)), "chain")
    found.save(tmp_path / "fit.nc")
    again = rh.Posterior.load(tmp_path / "fit.nc")
    assert again.model.family == family
    assert again.model.priors == model.priors
    np.testing.assert_array_equal(again.phi, found.phi)
    assert "speed_scale2[1]" in again.summary().index


def test_files_cannot_name_other_classes():
    for given in (["Product", ["a", ["__import__", "os"]]], ["Product", [None, ["Product", ["a", ["eval", "1"]]]]]):
        with pytest.raises(ValueError, match="is not among"):
            restore(given, {**families(), "product": rh.Product})


# ---------------------------------------------------------------- what is refused
def test_what_is_no_family_is_refused():
    with pytest.raises(ValueError, match=r"Product has no families; give one for each column, such as Product\(Gauss"):
        rh.Product()
    with pytest.raises(TypeError, match=r"'gaussian' is not a family; Product takes instances, such as Product\(Gauss"):
        rh.Product("gaussian", rh.Poisson())
    with pytest.raises(TypeError, match=r"family is the class Gaussian; pass an instance: Gaussian\(\)"):
        rh.Product(rh.Gaussian, rh.Poisson())
    with pytest.raises(ValueError, match=r"are called 'y0_mean'; give its parts different labels"):
        rh.Product(rh.Gaussian(), y0=rh.Gaussian())


def test_data_that_do_not_fit_are_refused():
    family = rh.Product(rh.Gaussian(), rh.Categorical(3))
    with pytest.raises(ValueError, match=r"y has 3 columns and Product\(Gaussian, Categorical3\) takes 2"):
        rh.default_priors(family, 2, rh.Series(np.arange(60.0).reshape(20, 3)))
    y = drawn(family, 20)
    y[7, 1] = 5
    with pytest.raises(ValueError, match=r"y\[7, 1\] is 5; Product.* takes whole numbers from 0 to 2"):
        rh.default_priors(family, 2, rh.Series(y))


def test_it_has_no_name_of_its_own():
    """It is made of families: no default would be a sensible one."""
    assert "product" not in families()
    assert "sized" not in families()


# ---------------------------------------------------------------- kernels
def mine(shift):
    """A user's family whose density is one thing or another."""

    class Mine(NamedTuple):
        parameters = (Parameter("level", support="real", prior=rh.Normal(0.0, 1.0)),)
        domain = REALS

        def draw(self, rng, states, phi):
            return rng.normal(phi[states, 0])

    compiled(prepare, Mine)(lambda family, phi: (phi[0],))
    compiled(log_density, Mine)(lambda family, y, c: -0.5 * (y - c[0]) ** 2 + shift)
    compiled(score, Mine)(lambda family, y, c: (y - c[0],))
    return Mine()


@pytest.mark.jit
def test_kernels_of_an_edited_part_are_others():
    one, same, edited = (typeof(rh.Product(rh.Gaussian(), mine(shift))) for shift in (0.0, 0.0, 1.0))
    name = r"#\d+"
    assert re.sub(name, "", str(one)) == re.sub(name, "", str(same)) != re.sub(name, "", str(edited))
    assert [tag.identity[0].split(".")[-1] for tag in tags([types.int64, one])][1:] == ["Gaussian", "Mine"]


def test_missing_columns_are_drawn_part_by_part():
    family = rh.Product(rh.Gaussian(), rh.MultivariateGaussian(2))
    two = rh.MultivariateGaussian(2).phi_of([[3.0, -3.0]], [np.array([[1.0, 0.999], [0.999, 1.0]])])[0]
    phi = np.r_[0.0, 1.0, two]
    y = np.array([[np.nan, 3.5, np.nan], [0.5, np.nan, -3.0], [0.1, 3.0, -3.1]])
    found = family.complete(np.random.default_rng(0), y, phi)
    there = ~np.isnan(y)
    np.testing.assert_array_equal(found[there], y[there])
    assert np.isnan(found[0, 0])  # a part of one column needs no draw
    assert found[0, 2] == pytest.approx(-2.5, abs=0.3)
    assert found[1, 1] == pytest.approx(3.0, abs=0.3)


def test_a_part_of_two_columns_without_margins_needs_both():
    family = rh.Product(Pair(), rh.Gaussian())
    c = prepare(family, np.array([0.0, 1.0, 2.0, 1.0]))
    y = tuple(np.array([[0.3, 1.2, 2.5], [0.3, np.nan, 2.5], [np.nan, np.nan, 2.5]]).T)
    alone = log_density(rh.Gaussian(), 2.5, prepare(rh.Gaussian(), np.array([2.0, 1.0])))
    both = log_density(Pair(), (0.3, 1.2), prepare(Pair(), np.array([0.0, 1.0])))
    np.testing.assert_allclose(log_density(family, y, c), [alone + both, alone, alone])
