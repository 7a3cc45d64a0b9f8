"""The paper's experiments on tiny series: what their tables, remarks, pictures and files hold, not what they find."""

import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from rarehmm import paper
from rarehmm.app.cli import app
from rarehmm.data.series import Series
from rarehmm.designs.uniform import uniform
from rarehmm.exact.em import climb
from rarehmm.paper import (
    common,
    eeg,
    gradients,
    grid,
    no_rare,
    posterior,
    rates,
    real,
    runtime,
    sleep,
    solar,
    synthetic,
    two_rare,
)
from rarehmm.windows.pool import Pool
from rarehmm.windows.windows import Windows

pytestmark = pytest.mark.plain

EXPERIMENTS = paper.experiments()
NAN = np.nan
FOUND = r"[012] of 2"
NUMBERS = {"density", "found", "needed", "tables"}


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Sizes that take a second without the compiler, and files in the formats of the real data."""
    for name, value in (("STARTS", 2), ("HELD", 3), ("KEPT", 5), ("QUICK", synthetic.Size(1500, 1e-5, 5, 10))):
        monkeypatch.setattr(synthetic, name, value)
    monkeypatch.setattr(synthetic, "SIZES", (2, 1))
    monkeypatch.setattr(synthetic, "WINDOWS", 2)
    monkeypatch.setattr(two_rare, "CASE", two_rare.CASE._replace(seed=17))  # has both rare states in both halves
    monkeypatch.setattr(runtime, "LENGTHS", (400, 600))
    monkeypatch.setattr(runtime, "STEPS", (3, 4))
    monkeypatch.setattr(runtime, "PAPER", {400: ((190, 191), (238, 245)), 600: ((249, 279), (284, 323))})
    monkeypatch.setattr(runtime, "WINDOWS", 1)
    monkeypatch.setattr(posterior, "QUICK", posterior.Size(1500, 4, 8, 2, 2, 6, 4, 20))
    monkeypatch.setattr(posterior, "WINDOWS", 1)
    monkeypatch.setattr(gradients, "QUICK", ((1000,), 2))
    monkeypatch.setattr(rates, "QUICK", (1200, 40))
    monkeypatch.setattr(rates, "TIMED", 2)
    monkeypatch.setattr(rates, "SIZES", (2, 4))
    monkeypatch.setattr(rates, "HALF_WIDTHS", (2, 7))
    monkeypatch.setattr(real, "KEPT", 4)
    monkeypatch.setattr(real, "SHOWN", (2, 3, 4))
    monkeypatch.setattr(real, "QUICK", (4, 2, 2))
    monkeypatch.setattr(solar, "KEPT", 4)
    monkeypatch.setattr(solar, "SHOWN", (2, 3, 4))
    monkeypatch.setattr(solar, "TRAIN", 700)
    monkeypatch.setattr(solar, "WINDOWS", 1)
    monkeypatch.setattr(sleep, "QUICK", 250)
    monkeypatch.setattr(sleep, "CELL", (2, 5, 1))
    theirs = {(2, 5, 1): {"uniform": -9.9, "targeted": -9.2}, (2, 5, 2): {"uniform": -9.8, "targeted": -9.1}}
    monkeypatch.setattr(solar, "PAPER", theirs)
    monkeypatch.setattr(sleep, "PAPER", theirs)
    write_flux(tmp_path / "data" / solar.DATA)
    write_excerpts(tmp_path / "data" / sleep.DATA)
    return tmp_path / "data"


def write_flux(folder):
    """A thousand minutes, with a flare of two minutes in every 25."""
    folder.mkdir(parents=True)
    flux = 1e-7 * np.exp(0.2 * np.random.default_rng(0).standard_normal(1000))
    flux[20::25] *= 50
    flux[21::25] *= 30
    what = {"xrsb_flux": flux.astype("f4"), "xrsb_flag": np.zeros(1000, "u1")}
    np.savez(folder / solar.FILE, time_start=np.array("2022-01-01T00:00"), dt_seconds=60, **what)


def write_excerpts(folder):
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number in (*eeg.TRAIN, *eeg.TEST):
        values = np.round(1e5 * rng.standard_normal(1500))
        np.savez(folder / f"excerpt{number}.npz", uV_x1e4=values.astype(np.int32), fs=200)


def outcome(name, data):
    """What an experiment gives; its tables are rectangular, and its progress runs from little to all."""
    given = []
    found = EXPERIMENTS[name].reproduce(paper.Settings(True, data, lambda done, total: given.append((done, total))))
    assert [done for done, _ in given] == sorted(done for done, _ in given)
    assert given[-1][0] == given[-1][1]
    for table in found.tables:
        assert {len(row) for row in table.rows} == {len(table.header)}
    assert all(not remark[0].islower() and remark[-1] == "." for remark in found.remarks)
    assert isinstance(found.figure, Figure)
    return found


def titles(found):
    return [axis.get_title() for axis in found.figure.axes]


def column(table, name):
    return [row[list(table.header).index(name)] for row in table.rows]


# ---------------------------------------------------------------- simulated series
def check_designs(tables, watched):
    """One table for each S, the paper's first; in each the step of Algorithm 1 first, then that of the code."""
    names = ["TASS, counts", "TASS, counts, eta 1e-6", "TASS, as printed", "uniform", "uniform, shared"]
    assert [table.caption.split(",")[0] for table in tables] == [
        "**S = 2** windows for each of the 15 components",
        "**S = 1** window for each of the 15 components",
    ]
    assert ["components, as in the paper; T = 1,500, epsilon = 1e-05" in table.caption for table in tables] == [1, 0]
    for table in tables:
        assert column(table, "step") == [
            *["Algorithm 1: epsilon"] * 5,
            *["reference code: 2 epsilon"] * 5,
            "",
        ]
        assert column(table, "design") == [*names, *names, "at the truth"]
        assert table.header[2:5] == ["found, 5", "found, 10", "found, 20"]
        assert table.header[5:] == [f"{word} mu_{k}" for word in ("distance of", "density,") for k in watched]
        for row in table.rows[:-1]:
            assert all(re.fullmatch(FOUND, cell) for cell in row[2:4])
            assert re.fullmatch(FOUND if row[0].startswith("Algorithm 1") else "not run", row[4])
            assert all(0 <= cell < 5 for cell in row[5 : 5 + len(watched)])  # from the clustering, all stay near
        assert np.isfinite(np.array([row[5 + len(watched) :] for row in table.rows])).all()


@pytest.mark.parametrize(("name", "watched", "panels"), [("single", [3], 3), ("two-rare", [1, 3], 4)])
def test_rare_states(tiny, name, watched, panels):
    found = outcome(name, tiny)
    check_designs(found.tables, watched)
    assert set(found.numbers) == NUMBERS
    name = "S = 2, Algorithm 1: epsilon, TASS, counts"
    curve = found.numbers["density"][name]
    assert [len(one) for one in curve] == [5] * len(watched)
    assert curve[0][-1] == found.tables[0].rows[0][5 + len(watched)]
    assert titles(found)[: panels - len(watched)] == ["S = 2: 2 uninformed starts"] * (panels - len(watched))
    assert titles(found)[panels] == "S = 1: 2 uninformed starts"
    assert titles(found)[-1] == "S = 1: held-out, state 3"
    said = " ".join(found.remarks)
    assert f"TASS with eta = 0.1 {found.numbers['found'][name][-1]} of 2 (no clear difference" in said
    needed = found.numbers["needed"]
    assert needed[1] == 2 * needed[2]
    assert f"about {needed[1]:,.0f} here with Algorithm 1 and {needed[2]:,.0f} with the reference code" in said


def test_words_on_the_contrast_come_from_the_counts(monkeypatch):
    monkeypatch.setattr(synthetic, "STARTS", 8)

    def said(ours, close, others):
        counts = {synthetic.TASS: ours, synthetic.CLOSE: close, synthetic.PRINTED: 3, synthetic.SHARED: 2}
        counts |= {synthetic.UNIFORM: others}
        arms = {(10, 2, name): synthetic.Arm(None, None, [], [0, n, n], 100) for name, n in counts.items()}
        return synthetic.on_contrast(synthetic.Comparison(None, None, arms, [], [], 10, 100, {}), 10, 2)

    assert "uniform subsampling finds it 6 of 8 times; TASS with eta = 0.1 5 of 8 (no clear difference" in said(5, 8, 6)
    assert "as in the paper, 8 of 8 (no clear difference, Fisher's exact test: p = 0.47)" in said(5, 8, 6)
    assert "as in the paper, 8 of 8 (better, Fisher's exact test: p = 0.00016)" in said(0, 8, 0)
    assert "TASS with eta = 0.1 0 of 8 (worse" in said(0, 8, 8)


def test_a_step_of_the_reference_code_is_twice_that_of_algorithm_1():
    """theta += (epsilon / 2) g + N(0, epsilon) as printed, epsilon g + N(0, 2 epsilon) in the code."""
    assert [common.Step(1e-6, multiple).size for multiple in common.MULTIPLES] == [1e-6, 2e-6]
    model = common.paper_model(1)
    series = Series(np.random.default_rng(0).standard_normal(400) + 3)
    windows = Windows(series, 2, 5)
    pool = Pool(model, series, windows, uniform(windows), 80)
    start = model.pack(model.parameters([[1.0]], mean=[0.0], variance=1.0))
    moved = [
        np.array([common.chain(seed, model, pool, start, 1, h)[0, 0, 0] for seed in range(100)]) for h in (1e-3, 2e-3)
    ]
    drift = 1e-3 / 2 * (series.read(0, 400).sum())
    for multiple, each in enumerate(moved, 1):
        error = each.std() / np.sqrt(len(each))
        assert abs(each.mean() - multiple * drift) < 4 * error
    assert 1.7 < moved[1].mean() / moved[0].mean() < 2.3


def test_no_rare_state(tiny):
    found = outcome("no-rare", tiny)
    check_designs(found.tables[:2], [1, 2, 3])
    rows = found.tables[2].rows
    assert [row[:2] for row in rows] == [["single rare", 3.68], ["no rare", 1.08]]
    assert rows == found.numbers["divergence"]
    for row in rows:
        assert row[2] > row[4] > 0  # a uniform share brings weights nearer to uniform ones
        assert row[3] > row[5] > 0
    assert rows[0][2] > rows[1][2]  # rare windows need more
    nearer = abs(rows[0][2] - 3.68) < abs(rows[0][3] - 3.68)
    assert ("its numbers come from counts, not from the printed weights" in found.remarks[-1]) == nearer


def test_divergence_from_uniform():
    assert no_rare.divergence(np.full(8, 1 / 8)) == pytest.approx(0)
    assert no_rare.divergence(np.array([0.5, 0.5, 0, 0])) == pytest.approx(np.log(2))


def test_only_chains_near_the_truth_are_counted():
    model = common.paper_model(3)
    case = synthetic.Case(common.NO_RARE, [-20.0, 0.0, 20.0], watched=[0, 2], seed=0)
    draws = np.stack(
        [
            np.tile(model.pack(model.parameters(common.NO_RARE, mean=means, variance=1.0)), (10, 1))
            for means in ([-20.5, 0, 20.5], [20.5, -20.5, 5], [-20, 0, 18], [-20, 0, 20])
        ]
    )
    draws[3, -1] = NAN  # diverged at last
    assert synthetic.count_found(model, case, draws) == 2  # in whatever order a chain has its states
    draws[2, :8] = NAN  # only the last fifth counts
    draws[2, 8:] = draws[0, 8:]
    assert synthetic.count_found(model, case, draws) == 3


def test_run_times(tiny):
    found = outcome("runtime", tiny)
    (table,) = found.tables
    assert table.header == ["T", "3 iterations", "4 iterations", "uniform, us", "TASS, us"]
    assert column(table, "T") == ["400", "600"]
    assert column(table, "4 iterations")[1].endswith("(284, 323)")
    seconds = found.numbers["seconds"]  # T, iterations, design; all, and the chain alone
    assert seconds.shape == (2, 2, 2, 2)
    assert (seconds[..., 0] > seconds[..., 1]).all()
    assert (seconds[..., 1] > 0).all()
    np.testing.assert_allclose(found.numbers["microseconds"][:, 1], 1e6 * seconds[:, 1, :, 1] / 4)
    assert f"{323 / seconds[-1, -1, 1, 0]:.0f} times less than in the paper" in found.remarks[0]
    assert titles(found) == ["rarehmm, 4 iterations", "the paper"]


def test_posterior_beside_other_methods(tiny):
    found = outcome("posterior", tiny)
    moments, quality = found.tables
    steps = ["Algorithm 1: epsilon", "reference code: 2 epsilon"]
    windowed = ["TASS, counts", "TASS, as printed", "uniform"]
    rows = [("Gibbs", ""), *((name, step) for step in steps for name in windowed)]
    rows += [(f"{name}, 2 times as long", steps[0]) for name in ("TASS, counts", "uniform")]
    rows += [("full-data Langevin", step) for step in steps] + [("variational Bayes (hmmlearn)", "")]
    for table in found.tables:
        assert [tuple(row[:2]) for row in table.rows] == rows
    assert all(cell.endswith("(1.00)") for cell in moments.rows[0][2:5])  # Gibbs is the measure
    assert quality.rows[0][2:5] == ["0", "0", "0"]
    for row in quality.rows[1:]:
        assert all(re.fullmatch(r"[+-][\d.]+ ± [\d.]+", cell) for cell in row[2:5])
    assert [row[5] for row in quality.rows] == [20, *[8] * 8, 6, 6, ""]
    for row in quality.rows[:-1]:
        assert all(float(cell.split(" (")[0]) >= 1 for cell in row[6:])
    assert ["(" in row[6] for row in quality.rows] == [False, *[True] * 10, False]
    assert quality.rows[-1][6:] == ["no draws"] * 3
    for method in ("Gibbs", "variational Bayes (hmmlearn)"):
        mean, sd = found.numbers[method]["moments"].T
        assert (np.abs(mean - [-20, 0, 20]) < 4 * sd).all()
        assert (sd < 1).all()
    assert len(found.numbers) == len(rows)
    assert all(one["seconds"] > 0 for one in found.numbers.values())
    assert titles(found) == ["mu_1", "mu_2", "mu_3"]
    assert found.figure.legends[0].get_texts()[-1].get_text() == "variational Bayes (hmmlearn)"


def test_bias_error_and_effective_size_of_draws():
    rng = np.random.default_rng(0)
    exact = posterior.sampled("Gibbs", "", rng.standard_normal((4000, 3)), 1.0)
    np.testing.assert_allclose(exact.effective, 4000, rtol=0.15)
    slow = np.zeros((4000, 3))  # autoregressive: an integrated autocorrelation time of 39
    for i in range(1, 4000):
        slow[i] = 0.95 * slow[i - 1] + np.sqrt(1 - 0.95**2) * rng.standard_normal(3)
    other = posterior.sampled("other", "", 2 * slow + 1, 1.0)
    np.testing.assert_allclose(other.effective, 4000 / 39, rtol=0.4)
    assert (np.abs(other.bias(exact) - 1) < 4 * other.error(exact)).all()
    np.testing.assert_allclose(other.error(exact), 2 * np.sqrt(39 / 4000), rtol=0.25)
    np.testing.assert_allclose(other.ratio(exact), 2, rtol=0.15)
    short = posterior.sampled("other", "", 0.5 * slow, 1.0, np.full(3, 4.0))  # the step size implies four draws
    np.testing.assert_allclose(short.error(exact), 0.5, rtol=0.01)  # not 0.5 sqrt(39 / 4000)
    assert posterior.with_implied(23.6, 5.4) == "24 (5.4)"
    assert posterior.with_implied(9.6, NAN) == "9.6"
    assert posterior.with_implied(NAN, NAN) == "no draws"
    diverged = posterior.sampled("other", "", np.zeros((1, 3)), 1.0)
    assert np.isnan(diverged.effective).all()
    assert np.isnan(diverged.bias(exact)).all()


def test_a_library_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "hmmlearn.vhmm", None)
    with pytest.raises(ImportError, match=r"needs hmmlearn: pip install 'rarehmm\[paper\]'"):
        posterior.variational_bayes(None, None)


def test_errors_of_gradients(tiny):
    found = outcome("gradients", tiny)
    assert list(found.numbers) == ["L = 2, T = 1000", "L = 12, T = 1000"] == titles(found)
    assert [table.caption[:16] for table in found.tables] == ["L = 2, T = 1,000", "L = 12, T = 1,00"]
    for table, errors in zip(found.tables, found.numbers.values(), strict=True):
        assert column(table, "distance in sd") == [0, 1, 2, 3]
        assert errors.shape == (2, 4, 5, 2)  # data sets, distances, designs; exactly, and by drawing
        mean = errors.mean(0)
        assert table.rows[1][1] == f"{mean[1, 0, 0]:.0f} ({mean[1, 0, 1]:.0f})"
        assert (mean[:, 0, 0] < mean[:, 4, 0]).all()  # TASS with counts beats uniform windows at every distance
        np.testing.assert_allclose(errors[..., 4, 1], errors[..., 4, 0], rtol=0.25)  # 1,000 draws of one window


def test_the_papers_columns_stand_beside_its_lengths():
    found = np.ones((1, 4, 5, 2))
    assert gradients.table(2, 10_000, found).rows[1][-3:] == [49, 81, 1700]
    assert gradients.table(2, 50_000, found).rows[1][-3:] == ["", "", ""]


def test_rates(tiny):
    found = outcome("rates", tiny)
    bias, error, cost = found.tables
    assert bias.header == ["B", *map(str, rates.BUFFERS)]
    assert found.numbers["bias"][-1] < 1e-3 * found.numbers["bias"][0]  # the buffer does what it is for
    assert 0 < found.numbers["rho"] < 0.75  # less than the second eigenvalue
    assert error.header == ["L", "2", "7"]
    assert column(error, "7")[0] < column(error, "2")[0]  # longer windows, smaller errors
    np.testing.assert_allclose(error.rows[1][1:], error.rows[0][1:], rtol=0.3)  # 40 draws
    assert column(cost, "S") == ["L = 2, B = 5", "L = 2, B = 20", "L = 12, B = 5", "L = 12, B = 20"]
    assert found.numbers["seconds"].shape == (2, 2, 2)
    assert titles(found) == ["bias", "error, S = 16", "cost of an estimate"]


# ---------------------------------------------------------------- real data
DESIGNS = ["TASS, counts", "TASS, as printed", "uniform"]


@pytest.mark.parametrize(("name", "measures"), [("solar", 1), ("sleep", 2)])
def test_real_data(tiny, name, measures):
    found = outcome(name, tiny)
    main, noise = found.tables
    assert re.search(r"\*\*These are not the paper's data\.\*\* (GOES-16|The DREAMS).* stands? in for", found.opening)
    assert column(main, "design") == ["original series", "clustering", "2 EM steps from it", *DESIGNS * 4]
    assert column(main, "paper")[3:6] == ["-9.20", "", "-9.90"]
    assert len(main.header) == 7 + 2 * measures
    epsilons = column(main, "epsilon")[3:]
    assert len(set(epsilons[:6])) == len(set(epsilons[6:])) == 1
    assert epsilons[0] != epsilons[6]
    each = ["Algorithm 1: epsilon"] * 3 + ["reference code: 2 epsilon"] * 3
    assert column(main, "step") == ["", "", "", *each, *each]
    steady = column(main, "density, from the clustering")[9:]
    assert all(re.fullmatch(r"-?[\d.]+ \(-?[\d.]+ to -?[\d.]+\)", cell) for cell in steady)
    assert noise.header[0] == "mean"
    assert len(noise.rows) == real.STATES
    assert [float(row[0]) for row in noise.rows] == sorted(float(row[0]) for row in noise.rows)
    assert set(found.numbers) == {"header", "rows", "errors", "curves"}
    at, values = found.numbers["curves"][f"uniform, epsilon = {epsilons[6]} (Algorithm 1: epsilon)"][0]
    assert at.tolist() == [0.5, 1.0]
    assert np.isfinite(values).all()
    said = " ".join(found.remarks)
    assert "The paper gives neither step size nor start" in said
    assert "2 EM steps from the clustering raise the log posterior" in said
    assert "Relative to uniform subsampling, the error of TASS" in said


def test_flares_are_held_out(tiny):
    study = solar.study(paper.Settings(True, tiny, print))
    assert len(study.train) == 700
    assert study.held.shape == (11, 10)  # one in 25 of the last 300 minutes, less the last, which the series cuts
    assert (study.held[:, 0] > 1).all()  # the second minute of a flare
    assert (study.held[:, 2:] < 1).all()
    assert study.rare(np.array([0.5, 1.5])).tolist() == [False, True]


def test_spikes_of_other_people_are_held_out(tiny):
    quick, full = (sleep.study(paper.Settings(quick, tiny, print)) for quick in (True, False))
    assert (len(quick.train), len(full.train)) == (750, 4500)
    assert quick.epsilon == pytest.approx(6 * full.epsilon)  # a sixth as many observations
    assert (len(full.held), len(quick.held)) == (12, 2)
    others = [eeg.transform(x) for x in eeg.load(tiny / sleep.DATA, eeg.TEST)]
    np.testing.assert_array_equal(np.sort(full.held[:4, 0]), np.sort(others[0])[:4])
    said = [sleep.on_ceiling(full, {"uniform": level, "targeted": level}) for level in (-2.0, -20.0)]
    assert ["far more common" in text for text in said] == [True, False]


@pytest.mark.parametrize("name", ["tuning-solar", "tuning-sleep"])
def test_tuning(tiny, name):
    found = outcome(name, tiny)
    assert "not the paper's data" in found.opening
    assert [table.caption.split("(")[1].split(":")[0] for table in found.tables] == [
        "Algorithm 1",
        "reference code",
    ] * 2
    for table in found.tables:
        assert [row[:4] for row in table.rows] == [[2, 5, 1, "-9.90"], [2, 5, 2, "-9.80"]]
        assert column(table, "TASS, counts, paper") == ["-9.20", "-9.10"]
    assert len(found.numbers) == 16  # steps, cells, designs
    assert len(found.remarks) == 9
    ticks = [label.get_text() for label in found.figure.axes[0].get_xticklabels()]
    assert ticks == ["L 2, B 5, S 1", "L 2, B 5, S 2"]


def test_words_on_a_grid():
    close, far = [[-9.0, -9.1], [-9.0, -9.2]], [[-9.0, -9.0], [-7.0, -7.0]]
    assert "within the 2%" in grid.on_grid(close, [-9.0, -9.9], 0.02)
    assert grid.on_grid(close, [-9.0, -9.9], 0.02).endswith(", more than the cells do.")
    assert "25.0% over these cells, more than the 2%" in grid.on_grid(far, [-9.0, -9.9], 0.02)
    assert "some chains diverged" in grid.on_grid([[-9.0, NAN]], [-9.0], 0.02)


# ---------------------------------------------------------------- divergence, and what is said of it
def chains_of(*levels):
    """Chains with a constant log density; a divergence leaves half."""
    logs = [np.full((real.KEPT, 3), level) if np.isfinite(level) else np.zeros((2, 3)) for level in levels]
    return real.Chains(np.zeros((len(levels), real.KEPT, 1)), {"density": logs})


def arm(design, *levels):
    return real.Arm(common.Step(1e-3, 1), design, chains_of(*levels), chains_of(*levels))


@pytest.fixture(scope="module")
def study():
    """Three well-parted states, and as density how near the lowest mean is to what is held out."""

    def near(model, draws, y):
        return -np.abs(draws.phi[:, :1, 0] - y[None, :, 0])

    series = common.simulated(np.random.default_rng(0), common.NO_RARE, [-20.0, 0.0, 20.0], 300).train
    return real.Study(series, np.array([[-20.0], [-21.0]]), {"density": near}, lambda y: y < -10, 0, 1e-6)


def test_medians_ranges_and_divergence(study):
    assert real.spread([-2.0, -1.0, -4.0]) == "-2.00 (-4.00 to -1.00)"
    assert real.spread([-2.0, NAN]) == "-2.00 (-2.00 to -2.00; 1 of 2 diverged)"
    assert real.spread([NAN, NAN]) == "diverged"
    assert real.habits(study, []) == ["diverged", "diverged"]
    spiky = np.array([0.0, -11, -12, 0, -11, 0, 0, 0])
    assert real.habits(study, [spiky, np.zeros(4)]) == ["37.50%, 0.00%", "2; 0"]
    chains = chains_of(-3.0, NAN)
    np.testing.assert_allclose(chains.settled("density"), [-3.0, NAN])
    np.testing.assert_allclose(chains.alone("density"), [-3.0, NAN])


def test_words_on_designs(study):
    theirs = {"targeted": -9.2, "uniform": -9.9}
    above = real.on_designs(study, arm("targeted", -2.0, -3.0), arm("uniform", -4.0, -5.0), theirs)
    assert (
        "is 2.00 above that of uniform subsampling (in the paper: 0.70 above); the ranges over chains do not overlap"
        in above
    )
    below = real.on_designs(study, arm("targeted", -4.0, -5.0), arm("uniform", -4.5, -1.0), theirs)
    assert "is 1.75 below" in below
    assert below.endswith("the ranges over chains overlap.")
    lost = real.on_designs(study, arm("targeted", NAN), arm("uniform", NAN, NAN), theirs)
    assert lost.endswith("all chains diverged under TASS, counts and uniform.")


def test_words_on_averages(study):
    assert real.on_averages(study, [arm("uniform", NAN)]) == "All chains from the clustering diverged."
    steady = real.on_averages(study, [arm("uniform", -3.0), arm("targeted", -2.0), arm("printed", NAN)])
    assert (
        "-2.00, is that of TASS, counts with epsilon = 0.001 (Algorithm 1: epsilon); under its single draws it is"
        in steady
    )
    wandering = arm("uniform", 0.0)
    wandering.near.logs["density"][0][::2] = -50.0
    assert "a chain that wanders looks better" in real.on_averages(study, [wandering])


def test_words_on_steps_and_climbs(study):
    made = real.training(study, 2, 5)
    steep = real.steepness(study, made.estimate)
    assert "brings the mean back" in real.on_steps(study._replace(epsilon=1 / steep), made.estimate)
    assert "above, it moves the mean further away" in real.on_steps(study._replace(epsilon=3 / steep), made.estimate)
    assert "does not suit these data" in real.on_steps(study._replace(epsilon=5 / steep), made.estimate)
    assert real.both_epsilons(study, made.estimate)[1] * steep == pytest.approx(real.STEADY)
    top = climb(made.model, study.train, made.estimate, steps=2, tolerance=1.0)
    held = made.estimate.phi[0, :1, None] + 5
    for step, worse in ((0.5, False), (-0.5, True)):  # towards what is held out, and away from it
        moved = made.estimate.phi.copy()
        moved[0, 0] += step
        other = top._replace(parameters=made.estimate._replace(phi=moved))
        assert ("makes their prediction worse" in real.on_climb(study._replace(held=held), made, other)) == worse


def test_words_on_errors(study):
    def noise(ratio):
        return {"here": {"targeted": np.array([ratio, 9.0]), "uniform": np.array([1.0, 9.0])}}

    assert real.on_errors(study, noise(0.5)).endswith("the gradient of the spikes' mean is 0.5 times here.")
    assert "windows that TASS rarely draws matter too" in real.on_errors(study, noise(1.5))


def test_a_divergence_is_part_of_what_a_chain_finds(study):
    model, windows = common.paper_model(3), Windows(study.train, 2, 5)
    pool = Pool(model, study.train, windows, uniform(windows), 1)
    start = common.random_starts(np.random.default_rng(0), model, 1)
    draws = common.chain(0, model, pool, start, 30, 1e6)
    assert draws.shape == (1, 30, model.size)
    assert np.isnan(draws[0, -1]).all()
    assert len(common.kept(draws[0])) < 30
    assert real.predicted(np.random.default_rng(0), model, np.full((real.KEPT, model.size), NAN), 10) == []


# ---------------------------------------------------------------- the pages in docs
DOCS = pathlib.Path(__file__).parents[2] / "docs"
PAGES = sorted(path for path in (DOCS / "reproduction").glob("*.md") if path.name != "index.md")


def cells(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_in_docs_was_written_by_a_commit(path):
    page = path.read_text(encoding="utf-8")
    made = rf"Written by `rarehmm reproduce {path.stem}` \(commit [0-9a-f]{{7,}}\) on \d{{4}}-\d\d-\d\d; do not edit\."
    assert re.fullmatch(made, page.splitlines()[2])  # without a plus sign: with the files of that commit
    assert "A quick run" not in page
    assert path.with_suffix(".png").is_file()


def test_the_explanation_has_the_counts_of_the_pages():
    """How many of 8 chains find the states: section, windows per component and step, then the designs."""
    lines = (DOCS / "explanation" / "paper.md").read_text(encoding="utf-8").splitlines()
    first = lines.index("| section | windows per component, step | TASS, eta 0.1 | TASS, eta 1e-6 | uniform |") + 2
    told = [[int(count) for count in cells(line)[2:]] for line in lines[first : first + 12]]
    found = []
    for name in ("single", "two-rare", "no-rare"):
        for table in (DOCS / "reproduction" / f"{name}.md").read_text(encoding="utf-8").split("**S = ")[1:]:
            rows = [cells(line) for line in table.splitlines() if line.startswith(("| Algorithm", "| reference"))]
            for some in (rows[:5], rows[5:]):
                last = {row[1]: row[4] if row[4] != "not run" else row[3] for row in some}
                designs = ("TASS, counts", "TASS, counts, eta 1e-6", "uniform")
                found.append([int(last[design].split(" of 8")[0]) for design in designs])
    assert told == found


# ---------------------------------------------------------------- files
def test_a_page_with_its_numbers_and_picture(tmp_path):
    table = paper.Table(
        "Caption.", ["what", "value"], [["a", 1234.5], ["b", 0.12345], ["c", np.float64(2.0)], ["d", 7]]
    )
    made, (axis,) = common.figure(1)
    axis.plot([1, 2])
    outcome = paper.Outcome([table], ["It differs."], made, {"x": np.arange(3), "y": np.int64(5), "z": NAN})
    paths = paper.write("name", "Title", outcome, tmp_path / "new", quick=False)
    assert [path.name for path in paths] == ["name.md", "name.json", "name.png"]
    page = paths[0].read_text()
    first = f"Written by `rarehmm reproduce name` ({paper.origin()}) on {time.strftime('%Y-%m-%d')}; do not edit."
    assert page == (
        f"# Title\n\n{first}\n\nCaption.\n\n"
        "| what | value |\n|---|---|\n| a | 1234 |\n| b | 0.123 |\n| c | 2 |\n| d | 7 |\n\n"
        "- It differs.\n\n![Title](name.png)\n"
    )
    stand_in = paper.markdown("name", "Title", outcome._replace(opening="Other data."), quick=False)
    assert "do not edit.\n\nOther data.\n\nCaption.\n" in stand_in  # before the first table
    assert "A quick run, smaller than the paper's" in paper.markdown("name", "Title", outcome, quick=True)
    numbers = json.loads(paths[1].read_text())
    assert numbers == {"x": [0, 1, 2], "y": 5, "z": pytest.approx(NAN, nan_ok=True)}
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    with pytest.raises(TypeError, match="set cannot be stored in a JSON file"):
        paper.write("name", "Title", outcome._replace(numbers={"x": {1}}), tmp_path, quick=False)


def test_a_page_says_which_source_made_it(tmp_path):
    def git(*command):
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *command], check=True)

    version = f"version {importlib.metadata.version('rarehmm')}"
    package = tmp_path / "package"
    package.mkdir()
    assert paper.origin(package) == version  # no repository
    git("init", "--quiet")
    (package / "__init__.py").write_text("")
    assert paper.origin(package) == version  # a repository of something else
    git("add", ".")
    git("commit", "--quiet", "-m", "First")
    (tmp_path / "page.md").write_text("")
    commit = paper.origin(package)
    assert re.fullmatch(r"commit [0-9a-f]{7,}", commit)  # files beside the package do not count
    (package / "__init__.py").write_text("x = 1\n")
    assert paper.origin(package) == f"{commit}+"


def test_the_command_writes_its_files_and_says_where(tiny, tmp_path):
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["reproduce", "runtime", "--quick", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "1 experiment, under 3 minutes in total" in done.output
    assert "Section 4.4: run times" in done.output
    assert sorted(path.name for path in out.iterdir()) == ["runtime.json", "runtime.md", "runtime.png"]
    assert "| 600 |" in (out / "runtime.md").read_text()
    assert np.shape(json.loads((out / "runtime.json").read_text())["seconds"]) == (2, 2, 2, 2)


def test_all_leaves_out_what_has_no_data(monkeypatch, tmp_path):
    simple = paper.Outcome([], ["Nothing."], common.figure(1)[0], {})
    for module in EXPERIMENTS.values():
        monkeypatch.setattr(module, "reproduce", lambda settings: simple)
    (tmp_path / sleep.DATA).mkdir()
    command = ["reproduce", "all", "--out", str(tmp_path / "out"), "--data", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "skipped" in done.output
    assert "goes_g16_2022" in done.output
    pages = {path.stem for path in (tmp_path / "out").glob("*.md")}
    assert pages == set(EXPERIMENTS) - {"solar", "tuning-solar"}
    minutes = sum(EXPERIMENTS[name].MINUTES for name in pages)
    assert f"9 experiments, about {minutes} minutes" in done.output


def test_files_that_are_not_there_are_named(tmp_path):
    (tmp_path / sleep.DATA).mkdir()
    done = CliRunner().invoke(app, ["reproduce", "sleep", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "excerpt2.npz does not exist" in " ".join(done.output.replace("│", " ").split())
    unknown = CliRunner().invoke(app, ["reproduce", "zzzz"])
    assert "Choose from:" in unknown.output
