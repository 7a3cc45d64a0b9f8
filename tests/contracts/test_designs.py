"""Every design, found by its file, keeps the contract; the paper's table falls out of the generic formula, and counts
stay good away from the mode."""

import importlib
import pkgutil
from functools import partial

import numpy as np
import pytest
from small_models import FAMILIES, model_of, paper_series, parameters_of

import rarehmm as rh
from rarehmm import designs
from rarehmm.designs.pilot import pilot
from rarehmm.designs.printed import printed
from rarehmm.designs.single import single
from rarehmm.designs.targeted import targeted
from rarehmm.designs.uniform import uniform
from rarehmm.engine.contracts.design import Design, check_positive, design
from rarehmm.search.labels import from_labels
from rarehmm.windows.gradients import mean_square_error, window_gradients
from rarehmm.windows.information import WindowInformation
from rarehmm.windows.label_sums import label_sums
from rarehmm.windows.windows import Windows

FOUND = {
    file.name: getattr(importlib.import_module(f"rarehmm.designs.{file.name}"), file.name)
    for file in pkgutil.iter_modules(designs.__path__)
}


@pytest.mark.parametrize("name", FOUND)
def test_every_design_keeps_the_contract(name):
    found = rh.check_design(FOUND[name])
    assert str(found).splitlines()[0] == f"{name} satisfies the contract:"
    assert len(found.right) == 4


def test_a_design_of_your_own():
    assert rh.check_design(unfair).name == "unfair"


def test_the_folder_is_looked_at():
    assert set(FOUND) >= {"uniform", "single", "targeted", "printed", "pilot"}


def unfair(info, *, first=0.5):
    weights = np.ones((1, info.count))
    weights[0, 0] = first
    return design(weights, 0.0)


SHARED = np.random.default_rng(0)


def forgets_what_it_gave(info):
    return design(SHARED.random((1, info.count)), 0.1)


def changes_sums(info):
    info.sums.counts[:] = 1.0
    return targeted(info)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda info: info.sums.counts, "it returned a ndarray; return a Design"),
        (lambda info: design(np.ones((2, info.count)), 0.1), r"Gaussian have shape \(2, 41\); \(1, 41\) or \(12, 41\)"),
        (lambda info: design(np.ones((1, info.count - 1)), 0.1), r"shape \(1, 40\)"),
        (lambda info: Design(np.full((1, info.count), 0.1)), "row 0 of the design sums to 4.1"),
        (partial(unfair, first=0.0), "unfair: in Gaussian, window 0 is never drawn"),
        (forgets_what_it_gave, "two designs of Gaussian differ"),
        (changes_sums, "it changes the information about windows"),
    ],
)
def test_a_wrong_design_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        rh.check_design(wrong)


def test_what_is_no_design_is_refused():
    with pytest.raises(TypeError, match="a function from WindowInformation to a Design is needed"):
        rh.check_design("uniform")
    model, _, windows, _, plug_in, sums = labelled(rh.Gaussian())
    with pytest.raises(ValueError, match=r"none are given; use WindowInformation\.around"):
        pilot(information(model, plug_in, windows, sums))


def information(model, plug_in, windows, sums):
    """What windows say if labels are taken for the truth; the series itself is not looked at."""
    return WindowInformation(model, model.pack(plug_in), None, windows, sums=sums)


def labelled(family, T=203, seed=0):
    """A simulated series with its true states as labels: model, series, windows, labels, theta, window sums."""
    rng = np.random.default_rng(seed)
    model = model_of(family, 3)
    y, labels = rh.simulate(rng, model, parameters_of(rng, model, gap=3.0), T)
    y[rng.random(T) < 0.1] = np.nan
    series = rh.Series(y)
    windows = Windows(series, 2, 5)
    plug_in = from_labels(model, series, labels)
    return model, y, windows, labels, plug_in, label_sums(model, plug_in, series, windows, labels)


def table_one(family, y, windows, labels, phi):
    """The paper's Table 1, written out: weights (N, K) of the mean and of the variance."""
    N, K = windows.count, len(phi)
    mean, variance = np.zeros((N, K)), np.zeros((N, K))
    for n, k in np.ndindex(N, K):
        first, length, _, _ = windows.place(np.array([n]))
        inside = slice(int(first[0]), int(first[0] + length[0]))
        mine = y[inside][(labels[inside] == k) & ~np.isnan(y[inside])]
        everyone = y[(labels == k) & ~np.isnan(y)]
        centre, s2, c = everyone.mean(), everyone.var(), len(mine)
        if c == 0:
            continue
        if isinstance(family, rh.StudentT):
            z, nu = mine - centre, family.nu
            mean[n, k] = abs(((nu + 1) * z / s2 / (nu + z**2 / s2)).sum())
            variance[n, k] = abs((nu * (z**2 - s2) / (nu * s2**2 + s2 * z**2)).sum())
        else:
            mean[n, k] = c * abs(mine.mean() - centre)
            variance[n, k] = c * abs(((mine - centre) ** 2).mean() - s2)
    return mean, variance


def test_huge_weights_do_not_overflow():
    found = design(np.full((1, 40), 1e308), 0.1).probabilities
    np.testing.assert_allclose(found, 1 / 40)


def test_single_weights_are_norms_of_gradients():
    """In theta, or as printed: the complete-data score with free entries of the transition matrix, written out."""
    model, y, windows, labels, plug_in, sums = labelled(rh.Gaussian())
    theta = model.pack(plug_in)
    P, (mu, s2) = plug_in.transition, plug_in.phi.T
    norms = np.zeros(windows.count)
    for n in range(windows.count):
        (first,), (length,), _, _ = windows.place(np.array([n]))
        g = np.zeros(15)
        for t in range(first, first + length):
            k = labels[t]
            if not np.isnan(y[t]):
                g[k] += (y[t] - mu[k]) / s2[k]
                g[3 + k] += ((y[t] - mu[k]) ** 2 / s2[k] - 1) / (2 * s2[k])
            if t > 0:
                g[6 + 3 * labels[t - 1] + k] += 1 / P[labels[t - 1], k]
        norms[n] = np.linalg.norm(g)
    info = information(model, plug_in, windows, sums)
    found = single(info, eta=0.0, printed=True).probabilities[0]
    np.testing.assert_allclose(found, norms / norms.sum(), rtol=1e-9)
    pulled = np.linalg.norm(model.gradient_from_expectations(theta, sums.scores, sums.pairs), axis=1)
    np.testing.assert_allclose(single(info, eta=0.0).probabilities[0], pulled / pulled.sum(), rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_the_printed_table_falls_out_of_the_score(family):
    model, y, windows, labels, plug_in, sums = labelled(family)
    found = printed(information(model, plug_in, windows, sums), eta=0.0).probabilities
    mean, variance = table_one(family, y, windows, labels, plug_in.phi)
    expected = [mean] if isinstance(family, rh.Poisson) else [mean, variance]
    for i, weights in enumerate(expected):
        for k in range(3):
            np.testing.assert_allclose(found[3 * i + k], weights[:, k] / weights[:, k].sum(), rtol=1e-9, atol=1e-12)


def test_the_second_printed_weight_of_a_variance():
    model, y, windows, labels, plug_in, sums = labelled(rh.Gaussian())
    found = printed(information(model, plug_in, windows, sums), eta=0.0, second_variance=True).probabilities
    window = windows.of_each()
    for k, (mean, s2) in enumerate(plug_in.phi):
        mine = (labels == k) & ~np.isnan(y)
        c = np.bincount(window[mine], minlength=windows.count)
        S2 = np.bincount(window[mine], weights=(y[mine] - mean) ** 2, minlength=windows.count) / np.maximum(c, 1)
        weights = c * np.sqrt(s2 + S2)
        np.testing.assert_allclose(found[3 + k], weights / weights.sum(), rtol=1e-9)
    other, _, windows, _, at, sums = labelled(rh.Poisson())
    with pytest.raises(ValueError, match="for Gaussian emissions, not for Poisson"):
        printed(information(other, at, windows, sums), second_variance=True)


def test_transitions_are_counted_into_the_window_they_lead_to():
    model, _, windows, labels, plug_in, sums = labelled(rh.Gaussian())
    window = windows.of_each()
    for n, j, k in [(0, 0, 0), (3, 1, 2), (7, 2, 1), (40, 0, 1)]:
        inside = np.nonzero(window == n)[0]
        counted = sum(t > 0 and labels[t - 1] == j and labels[t] == k for t in inside)
        assert sums.pairs[n, j, k] == counted
    assert sums.pairs.sum() == len(labels) - 1
    info, names = information(model, plug_in, windows, sums), model.component_names
    i = names.index("log transition[0, 1] / transition[0, 0]")
    weights = sums.pairs[:, 0, 1] + plug_in.transition[0, 1] * sums.pairs[:, 0].sum(1)
    np.testing.assert_allclose(targeted(info, eta=0.0).probabilities[i], weights / weights.sum())
    weights = sums.pairs[:, 0, 1]
    np.testing.assert_allclose(printed(info, eta=0.0).probabilities[i], weights / weights.sum())


def test_designs_are_probabilities_with_a_uniform_share():
    model, _, windows, _, plug_in, sums = labelled(rh.Gaussian())
    info = information(model, plug_in, windows, sums)
    np.testing.assert_array_equal(uniform(info).probabilities, uniform(windows).probabilities)
    assert targeted(info, eta=0.1).probabilities.min() >= 0.1 / windows.count * (1 - 1e-12)
    with pytest.raises(ValueError, match="mix with a uniform share"):
        check_positive(targeted(info, eta=0.0))


def test_bad_weights_are_refused():
    with pytest.raises(ValueError, match="window 1 in row 0 is nan"):
        design(np.array([[1.0, np.nan]]), 0.1)
    with pytest.raises(ValueError, match="window 0 in row 1 is -1"):
        design(np.array([[1.0, 2.0], [-1.0, 2.0]]), 0.1)
    with pytest.raises(ValueError, match="eta is 2"):
        design(np.ones((1, 2)), 2)
    assert design(np.array([[0.0, 0.0]]), 0.0) == Design(pytest.approx(np.full((1, 2), 0.5)))


@pytest.mark.jit
def test_the_papers_gradient_errors():
    """Section 4.6, T = 1e5, L = 2, M = 1: counts have the paper's 480 at every distance; uniform windows far more."""
    errors = {}
    for seed in range(10):
        model, parameters, y, states = paper_series(np.random.default_rng(seed), 100_000)
        series = rh.Series(y)
        windows = Windows(series, 2, 5)
        plug_in = from_labels(model, series, states)
        info = information(model, plug_in, windows, label_sums(model, plug_in, series, windows, states))
        rare = model.component_names.index("mean[2]")
        made = {
            "uniform": uniform(info),
            "counts": targeted(info, eta=0.0),
            "mixed": targeted(info),
            "printed": printed(info, eta=0.0),
        }
        for distance in (0, 3):
            moved = parameters._replace(phi=parameters.phi + np.array([[0, 0], [0, 0], [distance, 0]]))
            gradients = window_gradients(model, model.pack(moved), series, windows)
            for name, found in made.items():
                error = np.sqrt(mean_square_error(gradients, found.probabilities)[rare])
                errors.setdefault((name, distance), []).append(error)
    mean = {key: np.mean(value) for key, value in errors.items()}
    assert mean["counts", 0] == pytest.approx(498, rel=0.04)
    assert mean["counts", 3] == pytest.approx(mean["counts", 0], rel=1e-6)
    assert mean["uniform", 0] > 6 * mean["counts", 0]
    assert mean["uniform", 3] > 19 * mean["counts", 3]
    assert mean["mixed", 0] < 1.07 * mean["counts", 0]
    assert mean["mixed", 3] < 1.5 * mean["counts", 3]
    assert mean["printed", 3] > 5 * mean["counts", 3]  # what is printed degrades away from the mode
