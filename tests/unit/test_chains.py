"""Chains: unbiased gradients by enumeration over windows, the same steps as a twin, checkpoints, divergence."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from small_models import FAMILIES, Pair, every_estimate, model_of, parameters_of, series_of

import rarehmm as rh
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.design import Design, pooled
from rarehmm.engine.contracts.sampler import memory_rows, noise_rows, step
from rarehmm.engine.dispatch import KERNELS
from rarehmm.engine.kernels.pool import choose
from rarehmm.samplers.baoab import Baoab
from rarehmm.samplers.expanded_mean import ExpandedMeanSgld
from rarehmm.samplers.preconditioned import PreconditionedSgld
from rarehmm.samplers.sghmc import Sghmc
from rarehmm.samplers.sgld import Sgld
from rarehmm.samplers.underdamped import Underdamped
from rarehmm.sampling.chains import Chains, DivergedError, State, gradient_estimates, run
from rarehmm.search.mode import Mode
from rarehmm.windows.gradients import control_variate_residuals, freeze, frozen_gradient, window_gradients
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

SOME = [rh.Gaussian(), Pair(), *(pytest.param(f, marks=pytest.mark.nightly) for f in FAMILIES[1:])]
COORDINATES = {
    "log ratios": {},
    "other reference": {"coordinates": rh.AdditiveLogRatio((1, 2, 0))},
    "the paper's": {"coordinates": rh.ExpandedMean(), "logs": False},
}


def setting(family, start=None, coordinates="log ratios", T=61, lengths=(23, 38), half_width=2, buffer=3, seed=0):
    """A small model with data in two sequences, some missing, windows, and a point theta."""
    rng = np.random.default_rng(seed)
    given = None if start is None else rng.dirichlet(np.ones(3))
    if isinstance(family, Pair):
        priors = rh.Priors((rh.Normal(0, 9),) * 2, rh.Dirichlet(1.3))
        model = rh.Model(family, 3, priors, start=given, **COORDINATES[coordinates])
    else:
        model = model_of(family, 3, start=given, **COORDINATES[coordinates])
    parameters = parameters_of(rng, model)
    series = rh.Series(series_of(rng, model, parameters, T), lengths=lengths)
    return model, series, Windows(series, half_width, buffer), model.pack(parameters)


def random_design(rng, rows, N):
    return Design(rng.dirichlet(np.ones(N), size=rows))


@pytest.mark.jit
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("start", [None, "given"])
@pytest.mark.parametrize("family", SOME, ids=lambda f: type(f).__name__)
def test_the_estimate_is_unbiased_by_enumeration(family, start, coordinates):
    """With a buffer of everything the mean over windows is the exact gradient of the log posterior."""
    model, series, _, theta = setting(family, start, coordinates)
    windows = Windows(series, 2, 61)
    exact = rh.log_posterior(model, theta, series)[1]
    rng, N = np.random.default_rng(1), windows.count
    for rows, size in ((1, 1), (1, 17), (model.size, 1), (model.size, 3)):
        design = random_design(rng, rows, N)
        pool = Pool(model, series, windows, design, size)
        found = every_estimate(model, pool, theta, N)  # (N, d)
        mean = (design.probabilities.T * found).sum(0)
        np.testing.assert_allclose(mean, exact, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("start", [None, "given"])
@pytest.mark.parametrize("family", SOME, ids=lambda f: type(f).__name__)
def test_each_estimate_is_the_weighted_gradient_of_its_window(family, start):
    model, series, windows, theta = setting(family, start)
    each, prior = window_gradients(model, theta, series, windows), model.log_prior_gradient(theta)
    design = random_design(np.random.default_rng(2), model.size, windows.count)
    found = every_estimate(model, Pool(model, series, windows, design, 2), theta, windows.count)
    np.testing.assert_allclose(found, prior + each / design.probabilities.T, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("start", [None, "given"])
@pytest.mark.parametrize("family", SOME, ids=lambda f: type(f).__name__)
def test_frozen_statistics_leave_the_estimate_unbiased_and_less_to_chance(family, start):
    """The same by enumeration, away from the point at which the control variate was taken."""
    model, series, _, theta = setting(family, start)
    windows, N = Windows(series, 2, 61), 13
    frozen, design = freeze(model, theta, series, windows), random_design(np.random.default_rng(1), 1, N)
    there = theta + 0.02 * np.random.default_rng(2).standard_normal(model.size)
    pools = [Pool(model, series, windows, design, 3, frozen=f) for f in (frozen, None)]
    with_control, without = (every_estimate(model, pool, there, N) for pool in pools)
    exact = rh.log_posterior(model, there, series)[1]
    np.testing.assert_allclose(design.probabilities[0] @ with_control, exact, rtol=1e-8, atol=1e-8)
    errors = [design.probabilities[0] @ ((found - exact) ** 2).sum(1) for found in (with_control, without)]
    assert errors[0] < 0.05 * errors[1]


def test_a_whitened_chain_is_its_steps_one_by_one():
    """Coordinates of a mode, control variates, and more windows the farther from the mode."""
    model, series, windows, theta = setting(rh.Gaussian(), T=200, lengths=(80, 120))
    L = np.linalg.cholesky(np.eye(12) * 0.02 + 0.005)
    mode = Mode(model, theta, 0.0, np.eye(12), L, True, [])
    frozen = freeze(model, theta, series, windows)
    pool = Pool(model, series, windows, uniform(windows), 20, frozen=frozen, memory=200_000)
    start = theta + L @ np.linspace(-4, 3, 12)
    found = run(np.random.default_rng(3), Baoab(0.1), model, pool, start, 12, mode=mode)[0]

    streams = np.random.default_rng(3).spawn(1)[0].spawn(2)
    z, memory, draws, counts = np.linspace(-4, 3, 12), np.zeros((1, 12)), [], []
    while len(draws) < 12:
        m = min(pool.capacity, 12 - len(draws))
        sets = min(pool.capacity, m + m // 4 + min(100, pool.capacity))
        (drawn, _), noise, at = pool.draw(streams[0], sets), streams[1].standard_normal((m, 1, 12)), 0
        for xi in noise:
            count = max(1, int(np.ceil(min(100, pool.capacity, z @ z / 12) - 0.5)))
            if at + count > sets:
                break
            here = theta + L @ z
            left = control_variate_residuals(model, here, series, windows, frozen)[drawn[at : at + count].ravel()]
            gradient = model.log_prior_gradient(here) + frozen_gradient(model, here, frozen, frozen.total)
            gradient = gradient + windows.count * left.mean(0)
            at += count
            step(Baoab(0.1), z, L.T @ gradient, xi, memory, np.zeros(12))
            draws.append(theta + L @ z)
            counts.append(count)
    assert len(set(counts)) > 1
    np.testing.assert_allclose(found, draws, rtol=1e-8, atol=1e-8)


def by_hand(rng, sampler, model, pool, each, theta, steps):
    """The same chain written out: windows and noise from the same streams, gradients from ``each(theta)`` (N, d)."""
    windows, noise = rng.spawn(1)[0].spawn(2)
    theta, memory, draws = theta.copy(), np.zeros((memory_rows(sampler), len(theta))), []
    while len(draws) < steps:
        m = min(pool.capacity, steps - len(draws))
        (drawn, _), normals = pool.draw(windows, m), noise.standard_normal((m, noise_rows(sampler), len(theta)))
        for w, xi in zip(drawn, normals, strict=True):
            g, gradient = each(theta), model.log_prior_gradient(theta)
            for lane, n in enumerate(w):
                pull = g[n] / (pool.size * pool.probabilities[pool.row[lane], n])
                if pool.owner.flat[lane] >= 0:
                    pull = np.where(np.arange(len(theta)) == pool.owner.flat[lane], pull, 0.0)
                gradient = gradient + pull
            step(sampler, theta, gradient, xi, memory, model.powers)
            draws.append(theta.copy())
    return np.array(draws)


SAMPLERS = [Sgld(1e-3), Sghmc(1e-3, 0.2), Underdamped(1e-2, 2.0), PreconditionedSgld(0.01, np.eye(12) * 0.3)]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
def test_a_chain_is_its_steps_one_by_one(sampler, separate):
    model, series, windows, theta = setting(rh.Gaussian())
    pool = Pool(model, series, windows, uniform(windows), 2, separate=separate, memory=4_000)
    found = run(np.random.default_rng(3), sampler, model, pool, theta, 9)
    expected = by_hand(
        np.random.default_rng(3), sampler, model, pool, lambda x: window_gradients(model, x, series, windows), theta, 9
    )
    assert pool.capacity < 9  # several refills
    np.testing.assert_allclose(found[0], expected, rtol=1e-8, atol=1e-8)


def test_the_papers_chain_is_its_steps_one_by_one():
    model, series, windows, theta = setting(rh.Gaussian(), coordinates="the paper's")
    design, sampler = random_design(np.random.default_rng(4), model.size, windows.count), ExpandedMeanSgld(1e-4)
    pool = Pool(model, series, windows, design, 2)
    found = run(np.random.default_rng(3), sampler, model, pool, theta, 9)
    expected = by_hand(
        np.random.default_rng(3), sampler, model, pool, lambda x: window_gradients(model, x, series, windows), theta, 9
    )
    np.testing.assert_allclose(found[0], expected, rtol=1e-8, atol=1e-8)


def test_thinning_keeps_every_other_draw():
    model, series, windows, theta = setting(rh.Gaussian())
    pool = Pool(model, series, windows, uniform(windows), 2, memory=4_000)
    every = run(np.random.default_rng(3), Sgld(1e-3), model, pool, theta, 11)
    thinned = run(np.random.default_rng(3), Sgld(1e-3), model, pool, theta, 11, thin=3)
    np.testing.assert_array_equal(thinned, every[:, 2::3])


def test_windows_are_drawn_by_inversion():
    model, series, windows, _ = setting(rh.Gaussian())
    design = random_design(np.random.default_rng(5), model.size, windows.count)
    pool = Pool(model, series, windows, design, 4)
    (drawn, weights), u = pool.draw(np.random.default_rng(6), 50), np.random.default_rng(6).random((50, len(pool.row)))
    for lane, row in enumerate(pool.row):
        expected = np.searchsorted(np.cumsum(design.probabilities[row]), u[:, lane], side="right")
        np.testing.assert_array_equal(drawn[:, lane], expected)
        np.testing.assert_allclose(weights[:, lane], 1 / (4 * design.probabilities[row, expected]), rtol=1e-12)


def test_windows_come_from_wherever_the_series_is(tmp_path):
    """An array, a memory map, single precision, a list of sequences: the same windows, the same draws."""
    model, series, _, theta = setting(rh.Gaussian(), T=70_000, lengths=(70_000,), half_width=1)
    y = series.read(0, len(series))[:, 0].astype(np.float32).astype(float)
    np.save(tmp_path / "y.npy", y)
    sources = [y, np.load(tmp_path / "y.npy", mmap_mode="r"), y.astype(np.float32), [y]]
    found = []
    for source in sources:
        s = rh.Series(source)
        w = Windows(s, 1, 3)
        found.append(run(np.random.default_rng(0), Sgld(1e-9), model, Pool(model, s, w, uniform(w), 20), theta, 20))
    assert len(Pool(model, rh.Series(y.astype(np.float32)), w, uniform(w), 20).stretches) > 1
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_draws_do_not_depend_on_threads_and_chains_differ():
    model, series, windows, theta = setting(rh.Gaussian())
    pool = Pool(model, series, windows, uniform(windows), 2, memory=4_000)
    one, two = (run(np.random.default_rng(3), Sgld(1e-3), model, pool, [theta] * 3, 20, threads=t) for t in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.isclose(one[0, -1], one[1, -1]).any()


def test_progress_is_told():
    model, series, windows, theta = setting(rh.Gaussian())
    pool, given = Pool(model, series, windows, uniform(windows), 2, memory=4_000), []
    run(np.random.default_rng(3), Sgld(1e-3), model, pool, [theta] * 2, 20, on_progress=lambda *a: given.append(a))
    assert given[-1] == (40, 40)
    assert [a for a, _ in given] == sorted(a for a, _ in given)


# ---------------------------------------------------------------- checkpoints
class StopHereError(Exception):
    pass


def stop_at(steps):
    def on_progress(done, total):
        if done >= steps:
            raise StopHereError

    return on_progress


@pytest.mark.parametrize("sampler", SAMPLERS[:3], ids=lambda s: type(s).__name__)
def test_a_resumed_run_equals_an_uninterrupted_one(sampler, tmp_path, monkeypatch):
    monkeypatch.setattr("rarehmm.sampling.chains.SECONDS", 0.0)
    model, series, windows, theta = setting(rh.Gaussian())
    pool = Pool(model, series, windows, uniform(windows), 2, memory=4_000)
    whole = run(np.random.default_rng(3), sampler, model, pool, [theta] * 2, 60, thin=2)
    for stop in (15, 50, 90):
        with pytest.raises(StopHereError):
            run(np.random.default_rng(3), sampler, model, pool, [theta] * 2, 60, thin=2,
                checkpoint=tmp_path / "run.npz", on_progress=stop_at(stop))  # fmt: skip
        assert (tmp_path / "run.npz").exists()
    resumed = run(np.random.default_rng(3), sampler, model, pool, [theta] * 2, 60, thin=2,
                  checkpoint=tmp_path / "run.npz")  # fmt: skip
    np.testing.assert_array_equal(resumed, whole)
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


def test_a_checkpoint_of_another_run_or_a_damaged_one_is_refused(tmp_path):
    model, series, windows, theta = setting(rh.Gaussian())
    pool, file = Pool(model, series, windows, uniform(windows), 2), tmp_path / "run.npz"
    run(np.random.default_rng(3), Sgld(1e-3), model, pool, theta, 20, checkpoint=file)
    values = series.read(0, len(series))[:, 0].copy()
    values[5] = np.nextafter(values[5], 9.0) if values[5] == values[5] else 0.1
    other = rh.Series(values, lengths=[23, 38])
    for change, message in (
        ({"seed": 4}, "start or seed"),
        ({"sampler": Sgld(1e-4)}, "sampler"),
        ({"steps": 21}, "steps"),
        ({"pool": Pool(model, series, windows, uniform(windows), 3)}, "windows"),
        ({"pool": Pool(model, series, windows, random_design(np.random.default_rng(0), 1, 13), 2)}, "design"),
        ({"pool": Pool(model, other, windows, uniform(windows), 2)}, "series"),
        (
            {"pool": Pool(model, series, windows, uniform(windows), 2, frozen=freeze(model, theta, series, windows))},
            "frozen statistics",
        ),
        ({"theta": theta + 1e-13}, "start or seed"),
        ({"mode": Mode(model, theta, 0.0, np.eye(12), np.eye(12), True, [])}, "mode"),
    ):
        use = {"seed": 3, "sampler": Sgld(1e-3), "steps": 20, "pool": pool, "theta": theta, "mode": None, **change}
        with pytest.raises(ValueError, match=f"another run: .*{message}.* differ"):
            run(np.random.default_rng(use["seed"]), use["sampler"], model, use["pool"], use["theta"], use["steps"],
                mode=use["mode"], checkpoint=file)  # fmt: skip
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is no checkpoint"):
        run(np.random.default_rng(3), Sgld(1e-3), model, pool, theta, 20, checkpoint=file)
    with file.open("wb") as raw:
        np.save(raw, theta)
    with pytest.raises(ValueError, match=r"is no checkpoint of a run \(one array\)"):
        run(np.random.default_rng(3), Sgld(1e-3), model, pool, theta, 20, checkpoint=file)
    with pytest.raises(ValueError, match="there is no folder"):
        run(np.random.default_rng(3), Sgld(1e-3), model, pool, theta, 20, checkpoint=tmp_path / "no" / "run.npz")
    np.savez(file, about=np.array({"a": 1}, dtype=object))  # a pickle inside is never opened
    with pytest.raises(ValueError, match="is no checkpoint"):
        run(np.random.default_rng(3), Sgld(1e-3), model, pool, theta, 20, checkpoint=file)


# ---------------------------------------------------------------- what can go wrong
def test_a_divergence_names_component_draw_and_chain_and_keeps_what_was_drawn():
    model, series, windows, theta = setting(rh.Gaussian())
    pool = Pool(model, series, windows, uniform(windows), 2)
    with pytest.raises(
        DivergedError, match=r"(mean|log variance|log transition).* diverged at draw \d+ of chain 0"
    ) as e:
        run(np.random.default_rng(3), Sgld(30.0), model, pool, theta, 200)
    found = e.value.divergences[0]
    kept = e.value.draws[0]
    assert 0 < found.draw < 200
    assert np.isfinite(kept[: found.draw]).all()
    assert np.isnan(kept[found.draw :]).all()


def test_other_chains_go_on_when_one_diverges():
    model, series, windows, theta = setting(rh.Gaussian())
    pool, far = Pool(model, series, windows, uniform(windows), 2), theta.copy()
    far[:3] = 1e149
    with pytest.raises(DivergedError, match=r"\(1 of 2 chains diverged\)") as e:
        run(np.random.default_rng(3), Sgld(1e-3), model, pool, [theta, far], 50)
    assert np.isfinite(e.value.draws[0]).all()
    assert e.value.divergences[0].chain == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": 2.5}, "size is 2.5"),
        ({"sampler": Sgld(0.0)}, "step_size of Sgld is 0.0"),
        ({"sampler": Sgld(float("nan"))}, "step_size of Sgld is nan"),
        ({"sampler": Sghmc(1e-3, 1.5)}, "friction of Sghmc is 1.5"),
        ({"sampler": Underdamped(1e-3, -1.0)}, "friction of Underdamped is -1.0"),
        ({"sampler": PreconditionedSgld(1e-3, np.ones((12, 12)))}, "lower triangular"),
        ({"steps": 0}, "steps is 0"),
        ({"thin": 0}, "thin is 0"),
        ({"design": Design(np.full((1, 13), np.nan))}, "probability nan"),
        ({"design": Design(np.eye(1, 13))}, "window 1 is never drawn"),
        ({"design": Design(np.full((1, 5), 0.2))}, "the design has 5 windows"),
        ({"design": Design(np.full((1, 13), np.inf))}, "probability inf"),
        ({"design": Design(np.full((1, 13), 1.0))}, "row 0 of the design sums to 13"),
        ({"design": Design(np.array([[1.0, *[1e-40] * 12]]))}, "too improbable to be drawn"),
        ({"sampler": PreconditionedSgld(1e-3, np.eye(3))}, "factor is 3 x 3 and theta has 12"),
        ({"thin": 6}, "thin is 6 and there are 5 steps"),
        ({"threads": 0}, "threads is 0"),
        ({"threads": 1.5}, "threads is 1.5"),
        ({"start": np.zeros((2, 2, 12))}, r"start has shape \(2, 2, 12\)"),
        ({"start": np.zeros((0, 12))}, r"start has shape \(0, 12\)"),
        ({"start": np.zeros(5)}, r"start has shape \(5,\)"),
        ({"start": np.full(12, np.nan)}, r"theta\[0, 0\], mean\[0\], is nan"),
        ({"memory": 0}, "memory is 0"),
        ({"design": Design(np.full((2, 13), 1 / 13))}, "the design has 2 rows"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_bad_settings_are_refused(change, message):
    model, series, windows, theta = setting(rh.Gaussian())
    use = {"size": 2, "sampler": Sgld(1e-3), "steps": 5, "thin": 1, "design": uniform(windows), "threads": None,
           "start": theta, "memory": 10_000, **change}  # fmt: skip

    def attempt():
        pool = Pool(model, series, windows, use["design"], use["size"], memory=use["memory"])
        run(np.random.default_rng(0), use["sampler"], model, pool, use["start"], use["steps"], thin=use["thin"],
            threads=use["threads"])  # fmt: skip

    with pytest.raises(ValueError, match=message):
        attempt()


def test_a_free_sampler_is_not_let_loose_on_positive_coordinates():
    model, series, windows, theta = setting(rh.Gaussian(), coordinates="the paper's")
    pool = Pool(model, series, windows, uniform(windows), 2)
    with pytest.raises(ValueError, match=r"variance\[0\] must stay positive and Sgld moves freely"):
        run(np.random.default_rng(0), Sgld(1e-3), model, pool, theta, 5)
    with pytest.raises(TypeError, match="pass an instance"):
        run(np.random.default_rng(0), Sgld, model, pool, theta, 5)


def test_parts_that_do_not_belong_together_are_refused():
    model, series, windows, theta = setting(rh.Gaussian())
    other, _, _, there = setting(rh.Gaussian(), coordinates="the paper's")
    pool, rng = Pool(model, series, windows, uniform(windows), 2), np.random.default_rng(0)
    with pytest.raises(ValueError, match="the pool was made for Gaussian with 3 states and 12 components"):
        gradient_estimates(rng, other, pool, there, 3)
    with pytest.raises(ValueError, match="the pool was made for"):
        run(rng, ExpandedMeanSgld(1e-3), other, pool, there, 3)
    longer = Windows(series, 2, 9)
    with pytest.raises(ValueError, match="half-width 2 and buffer 9, not to 13 with half-width 2 and buffer 3"):
        Pool(model, series, windows, uniform(windows), 2, frozen=freeze(model, theta, series, longer))
    whole = rh.Series(series.read(0, 61)[:, 0])
    with pytest.raises(ValueError, match="windows belong to another series"):
        Pool(model, whole, windows, uniform(windows), 2)
    with pytest.raises(ValueError, match="shared by all components"):
        Pool(model, series, windows, uniform(windows), 2, separate=True, frozen=freeze(model, theta, series, windows))
    with pytest.raises(TypeError, match="pass a generator"):
        run(0, Sgld(1e-3), model, pool, theta, 3)
    with pytest.raises(TypeError, match="start is a Parameters"):
        run(rng, Sgld(1e-3), model, pool, model.unpack(theta), 3)
    with pytest.raises(ValueError, match="count is 0"):
        gradient_estimates(rng, model, pool, theta, 0)
    with pytest.raises(TypeError, match=r"a Design with probabilities \(rows, N\) is needed"):
        Pool(model, series, windows, np.full((1, 13), 1 / 13), 2)


def test_rows_are_pooled_to_share_windows():
    model, series, windows, theta = setting(rh.Gaussian())
    design = random_design(np.random.default_rng(5), model.size, windows.count)
    with pytest.raises(ValueError, match=r"use pooled\(design\)"):
        Pool(model, series, windows, design, 2, separate=False)
    pool = Pool(model, series, windows, pooled(design), 2)
    assert gradient_estimates(np.random.default_rng(0), model, pool, theta, 7).shape == (7, model.size)


@pytest.mark.jit
def test_kernels_are_compiled_once_for_their_arguments():
    """A literal of the caller would be a type of its own, and the largest kernel be compiled a second time."""
    model, series, windows, theta = setting(rh.Gaussian())
    run(np.random.default_rng(0), Baoab(1e-3), model, Pool(model, series, windows, uniform(windows), 1), theta, 2)
    kinds = [str(kind) for one in KERNELS for signature in one.signatures for kind in signature]
    assert kinds
    assert not [kind for kind in kinds if "Literal" in kind]


# ---------------------------------------------------------------- other workers, and interrupts
def small_pool():
    rng = np.random.default_rng(0)
    model = model_of(rh.Gaussian(), 2)
    parameters = parameters_of(rng, model, gap=4.0)
    series = rh.Series(series_of(rng, model, parameters, 40))
    windows = Windows(series, 2, 2)
    return model, model.pack(parameters), Pool(model, series, windows, uniform(windows), 2)


def test_an_executor_runs_the_same_chains():
    model, theta, pool = small_pool()
    start = np.stack([theta, theta + 0.1])
    here = run(np.random.default_rng(0), Sgld(1e-4), model, pool, start, 12, thin=3)
    with ThreadPoolExecutor(2) as executor:
        away = run(np.random.default_rng(0), Sgld(1e-4), model, pool, start, 12, thin=3, executor=executor)
        with pytest.raises(DivergedError):
            run(np.random.default_rng(0), Sgld(1e9), model, pool, start, 12, executor=executor)
    assert here.shape == (2, 4, model.size)
    np.testing.assert_array_equal(away, here)


def test_a_chain_that_is_stopped_keeps_what_it_has():
    model, theta, _ = small_pool()
    state, given = State(np.random.default_rng(0).spawn(2), theta, Sgld(1e-4)), []
    draws, parts = np.full((1, 5, model.size), np.nan), [(4, np.ones((4, model.size))), (6, np.ones((6, model.size)))]
    chains = Chains([state], draws, 10, 2, lambda done, total: given.append((done, total)), None)
    chains.stop.set()
    chains.keep(0, iter(parts))
    assert given == [(4, 10)]
    assert np.isfinite(draws[0]).all(1).tolist() == [True, True, False, False, False]


def test_a_guide_that_points_too_far_is_put_right():
    """x B may be rounded up: the search goes back as well."""
    cumulative, guide = np.array([[0.0, 0.2, 0.5, 1.0]]), np.array([[2, 2]])
    windows, weights = np.empty((3, 1), dtype=np.int64), np.empty((3, 1))
    choose(np.array([[0.1], [0.3], [0.9]]), np.array([0]), cumulative, guide, 2, windows, weights)
    assert windows[:, 0].tolist() == [0, 1, 2]
    np.testing.assert_allclose(weights[:, 0], 0.5 / np.array([0.2, 0.3, 0.5]))


def test_what_has_no_step_and_a_factor_that_is_none_are_refused():
    with pytest.raises(TypeError, match="int has no step: attach one"):
        step(3, *[np.zeros(1)] * 5)
    for factor, message in (
        (np.diag([1.0, -1.0]), "the diagonal of factor is"),
        (np.eye(3), "factor is 3 x 3 and theta"),
    ):
        with pytest.raises(ValueError, match=message):
            PreconditionedSgld(0.1, factor).check(2)
