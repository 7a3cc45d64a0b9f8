"""Order of states, held-out densities and sequences against their definitions."""

import numpy as np
import oracle
import pytest
from examples import FAMILIES, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.posterior import Draws, in_order
from rarehmm.prediction import held_out, held_out_so_far, sequence_densities, state_densities


def some_draws(family, Z=4, seed=0, **more):
    rng = np.random.default_rng(seed)
    model = model_of(family, 3, **more)
    points = [parameters_of(rng, model, gap=float(rng.uniform(-2, 2))) for _ in range(Z)] if not isinstance(
        family, rh.Poisson
    ) else [parameters_of(rng, model) for _ in range(Z)]  # fmt: skip
    return model, points, np.array([model.pack(p) for p in points])


@pytest.mark.parametrize("more", [{}, {"coordinates": rh.ExpandedMean(), "logs": False}], ids=["ours", "the paper's"])
def test_states_in_order_describe_the_same_series(more):
    model, points, theta = some_draws(rh.Gaussian(), **more)
    draws = in_order(model, theta.reshape(2, 2, -1))
    series = rh.Series(series_of(np.random.default_rng(1), model, points[0], 40))
    assert (np.diff(draws.phi[..., 0], axis=-1) > 0).all()
    assert any((np.diff(p.phi[:, 0]) < 0).any() for p in points)  # some were not in order before
    for z, point in enumerate(points):
        again = model.natural(draws.phi.reshape(4, 3, -1)[z], draws.transition.reshape(4, 3, 3)[z])
        expected = rh.log_likelihood(model, point, series)
        assert rh.log_likelihood(model, again, series) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_held_out_density_is_equation_eleven(family):
    model, points, theta = some_draws(family)
    draws = Draws(*model.unpack_all(theta))
    y = series_of(np.random.default_rng(2), model, points[0], 6, missing=0.0)
    found = state_densities(model, draws, y, 1)
    each = np.array([oracle.log_density(family, y, p.phi)[:, 1] for p in points])
    np.testing.assert_allclose(found, each, rtol=1e-10)
    by_hand = np.mean([np.log(np.mean([np.exp(each[z, r]) for z in range(4)])) for r in range(6)])
    assert held_out(found) == pytest.approx(by_hand, rel=1e-10)
    np.testing.assert_allclose(held_out_so_far(found), [held_out(found[: z + 1]) for z in range(4)], rtol=1e-12)


def test_a_missing_observation_has_density_one_and_one_draw_is_enough():
    model, _, theta = some_draws(rh.Gaussian())
    one = in_order(model, theta[0])
    assert state_densities(model, one, [np.nan], 0)[0, 0] == 0.0
    assert state_densities(model, in_order(model, theta.reshape(2, 2, -1)), [1.0], 0).shape == (4, 1)
    with pytest.raises(ValueError, match="no draws"):
        state_densities(model, in_order(model, theta[:0]), [1.0], 0)


@pytest.mark.parametrize("start", [None, [0.2, 0.5, 0.3]], ids=["stationary", "given start"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_sequence_densities_are_likelihoods(family, start):
    model, points, theta = some_draws(family, start=start)
    draws = Draws(*model.unpack_all(theta))
    y = series_of(np.random.default_rng(3), model, points[0], 21, missing=0.2).reshape(3, 7)
    found = sequence_densities(model, draws, y)
    for z, n in np.ndindex(4, 3):
        assert found[z, n] == pytest.approx(rh.log_likelihood(model, points[z], rh.Series(y[n])), rel=1e-9, abs=1e-9)
