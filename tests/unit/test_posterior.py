"""Posterior: order of states, what is reported, ArviZ, and files that are refused."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from small_models import model_of

import rarehmm as rh
from rarehmm.posterior.model_settings import describe, restore
from rarehmm.posterior.posterior import Draws
from rarehmm.sampling import arviz_adapter
from rarehmm.sampling.arviz_adapter import arviz, effective_size, inference_data, r_hat, tail_index, write_netcdf
from rarehmm.sampling.diagnostics import Check
from rarehmm.search.mode import reorder_states


def posterior_of(family=None, K=3, chains=2, draws=50, **more):
    rng = np.random.default_rng(0)
    family = rh.Gaussian() if family is None else family
    model = model_of(family, K, **more) if not isinstance(family, rh.MultivariateGaussian) else rh.Model(
        family, K, rh.Priors((rh.Normal(0.0, 1.0),) * len(family.parameters)), **more
    )  # fmt: skip
    phi = rng.gamma(3.0, size=(chains, draws, K, len(family.parameters)))
    transition = rng.dirichlet(np.ones(K), size=(chains, draws, K))
    checks = [Check("R-hat", 1.0, True, "chains agree"), Check("smallest state", 0.2, False, "use fewer", "a note")]
    return rh.Posterior(model, phi, transition, "chain", ["because"], checks)


def test_what_is_reported_is_what_simulations_show():
    model = model_of(rh.Gaussian(), 2)
    truth = model.parameters([[0.98, 0.02], [0.2, 0.8]], mean=[0, 1], variance=1)
    _, states = rh.simulate(np.random.default_rng(0), model, truth, 400_000)
    found = rh.Posterior(model, truth.phi[None, None], truth.transition[None, None], "map")
    starts = np.flatnonzero((states == 1) & (np.roll(states, 1) == 0))
    assert found.occupancy[0, 0, 1] == pytest.approx((states == 1).mean(), rel=0.03)
    assert found.sojourn[0, 0, 1] == pytest.approx((states == 1).sum() / len(starts), rel=0.03)
    assert found.return_time[0, 0, 1] == pytest.approx(np.diff(starts).mean(), rel=0.03)
    np.testing.assert_allclose(found.return_time[0, 0, 0], found.return_time[0, 0, 1])  # two states take turns


def test_the_summary_has_means_intervals_and_effective_draws():
    found = posterior_of()
    table = found.summary(0.8)
    assert list(table.columns) == ["mean", "sd", "10.0%", "90.0%", "ess", "r_hat"]
    row = table.loc["transition[1, 2]"]
    assert row["mean"] == pytest.approx(found.transition[..., 1, 2].mean())
    assert row["90.0%"] == pytest.approx(np.quantile(found.transition[..., 1, 2], 0.9))
    assert 30 < row["ess"] < 300
    assert set(table.index) >= {"mean[0]", "variance[2]", "occupancy[1]", "sojourn[0]", "return_time[2]"}
    with pytest.raises(ValueError, match="probability is 90"):
        found.summary(90)


def test_states_are_in_order_and_stay_so_between_fits():
    draws = Draws(np.array([[[3.0], [1.0], [2.0]]]), np.arange(9.0).reshape(1, 3, 3))
    found = Draws(*reorder_states(*draws, np.array([[1, 2, 0]])))
    np.testing.assert_array_equal(found.phi[0, :, 0], [1, 2, 3])
    np.testing.assert_array_equal(found.transition[0], [[4, 5, 3], [7, 8, 6], [1, 2, 0]])


def test_arviz_has_named_dimensions():
    found = posterior_of().to_arviz().posterior
    assert found["mean"].dims == ("chain", "draw", "state")
    assert found["transition"].dims == ("chain", "draw", "state", "state_to")
    assert "occupancy" in found


@pytest.mark.parametrize(
    "family", [rh.Gaussian(), rh.StudentT(3.5), rh.Poisson(), rh.MultivariateGaussian(2, diagonal=True)], ids=repr
)
def test_a_file_gives_the_same_posterior(family, tmp_path):
    found = posterior_of(family)
    found.save(tmp_path / "fit.nc")
    again = rh.Posterior.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.phi, found.phi)
    np.testing.assert_array_equal(again.transition, found.transition)
    assert type(again.model.family) is type(family)
    assert again.model.family == family
    assert again.model.priors == found.model.priors
    assert (again.method, again.why, again.checks) == (found.method, found.why, found.checks)
    assert again.verdict == found.verdict
    assert [p.name for p in tmp_path.iterdir()] == ["fit.nc"]  # nothing half-written is left
    opened = arviz().from_netcdf(tmp_path / "fit.nc")["posterior"]
    np.testing.assert_array_equal(opened["transition"].values, found.transition)


def test_a_start_that_was_given_is_kept(tmp_path):
    posterior_of(K=2, start=[0.25, 0.75]).save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(rh.Posterior.load(tmp_path / "fit.nc").model.start, [0.25, 0.75])


def test_foreign_newer_and_damaged_files_are_refused(tmp_path):
    path = tmp_path / "fit.nc"
    with pytest.raises(FileNotFoundError, match=r"fit\.nc does not exist"):
        rh.Posterior.load(path)
    path.write_text("no netCDF")
    with pytest.raises(ValueError, match="not a posterior saved by rarehmm, or is damaged"):
        rh.Posterior.load(path)
    found = posterior_of()
    write_netcdf(inference_data({"x": np.zeros((1, 5))}, {}, {}, {}), path)
    with pytest.raises(ValueError, match="not a posterior saved by rarehmm"):
        rh.Posterior.load(path)
    found.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="damaged"):
        rh.Posterior.load(path)
    for change, message in (
        ({"format": 99}, "has format 99; this version of rarehmm reads formats up to 2. Update rarehmm"),
        ({"family": ["Weird", 3]}, "Weird is not among .*; pass emission="),
        ({"priors": [["__import__", "os"]]}, "__import__ is not among"),
        ({"priors": []}, "2 parameters but 0 priors"),
    ):
        idata = found.to_arviz()
        given = json.loads(idata.posterior.attrs["rarehmm"]) | change
        idata.posterior.attrs["rarehmm"] = json.dumps(given)
        write_netcdf(idata, path)
        with pytest.raises(ValueError, match=message):
            rh.Posterior.load(path)
    with pytest.raises(FileNotFoundError, match="is not a folder; create it first"):
        found.save(tmp_path / "nowhere" / "fit.nc")


def test_only_known_classes_are_restored():
    known = {"Normal": rh.Normal, "np": np, "function": describe}
    assert restore(["Normal", 1.0, 2.0], known) == rh.Normal(1.0, 2.0)
    with pytest.raises(ValueError, match="not among Normal"):
        restore(["describe", 1], known)


def test_shapes_that_do_not_fit_the_model_are_refused():
    found = posterior_of()
    with pytest.raises(ValueError, match=r"transition has shape \(2, 50, 2, 2\)"):
        rh.Posterior(found.model, found.phi, found.transition[..., :2, :2], "chain")
    assert repr(found) == "Posterior(2 x 50 draws of 3 states of Gaussian by chain)"


def test_points_and_means_are_parameters_of_the_model():
    found = posterior_of()
    points = found.points(10)
    assert len(points) == 10
    np.testing.assert_allclose(points[0].phi, found.phi[0, 0])
    np.testing.assert_allclose(points[-1].transition, found.transition[-1, -1])
    np.testing.assert_allclose(found.mean.phi, found.phi.mean((0, 1)))
    assert len(found.points(1000)) == 100


def test_the_tail_of_weights_has_its_shape():
    exponential = np.random.default_rng(0).exponential(size=20_000)
    for shape in (0.2, 0.9):
        assert tail_index(shape * exponential) == pytest.approx(shape, abs=0.1)  # weights of a Pareto law
    for few in ([], [0.0], [0.0, 1.0]):
        assert tail_index(np.array(few)) == np.inf


def test_draws_that_never_move_are_worth_one():
    """ArviZ counts a constant as so many independent draws, and has no R-hat for it."""
    stuck = np.tile([[1.0]], (4, 100))
    apart = stuck * np.arange(4)[:, None]
    moving = np.random.default_rng(0).normal(size=(4, 100))
    assert effective_size(stuck) == effective_size(stuck, "tail") == 1
    assert r_hat(stuck) == np.inf
    assert r_hat(apart) > 1e6
    assert effective_size(moving) > 300
    assert r_hat(moving) < 1.05


def test_the_next_arviz_is_asked_in_its_own_way(monkeypatch):
    """From 1.0 on: functions that moved, and log likelihoods in the place of log weights."""
    asked = []

    def psislw(log_likelihood):
        asked.append(log_likelihood)
        if np.ptp(log_likelihood) == 0:
            raise ValueError("no tail")
        return log_likelihood, 0.25

    def from_dict(groups, **more):
        return groups, more

    monkeypatch.setattr(arviz_adapter, "arviz", lambda: SimpleNamespace(__version__="1.2.0", from_dict=from_dict))
    monkeypatch.setitem(sys.modules, "arviz_stats.base", SimpleNamespace(array_stats=SimpleNamespace(psislw=psislw)))
    assert tail_index(np.array([0.0, 1.0, 3.0])) == 0.25
    np.testing.assert_array_equal(asked[0], [0.0, -1.0, -3.0])
    assert tail_index(np.zeros(5)) == np.inf
    groups, more = inference_data({"mean": np.zeros((1, 4))}, {"mean": []}, {}, {"rarehmm": "x"})
    assert list(groups["posterior"]) == ["mean"]
    assert more["attrs"] == {"posterior": {"rarehmm": "x"}, "/": {"rarehmm": "x"}}
