"""The number of states: the true one where the data can tell, none too many, and what is said about it."""

import numpy as np
import pytest
from small_models import model_of

import rarehmm as rh
from rarehmm import plots
from rarehmm.choosing import selection
from rarehmm.choosing.selection import BLOCKS, FOLDS, block_of_each, held_out_densities
from rarehmm.engine.dispatch import JIT
from rarehmm.search.regimes import Regime


def rare_series(T=20_000, seed=0):
    model = model_of(rh.Gaussian(), 3)
    P = [[0.99, 0.009, 0.001], [0.009, 0.99, 0.001], [0.1, 0.1, 0.8]]
    truth = model.parameters(P, mean=[-4, 0, 6], variance=1)
    return model, truth, rh.simulate(np.random.default_rng(seed), model, truth, T)[0]


@pytest.mark.jit
def test_the_true_number_is_chosen_and_more_is_not_supported():
    found = rh.select_n_components(rare_series()[2], range(1, 5))
    assert found.best == 3
    assert [c.supported for c in found.candidates] == [True, True, True, False]
    assert min(found.candidates, key=lambda c: c.bic).n_states == 3
    assert [r.kind for r in found.of(3).regimes].count("rare") == 1
    text = found.describe()
    assert "<- chosen" in text.splitlines()[3]
    assert "4 states: not supported by the data; no better than fewer states" in text
    assert text.count("is rare: it raises the log likelihood") == 1
    axes = plots.selection(found).axes
    assert axes[0].get_title() == "held-out observations"
    assert list(axes[1].lines[0].get_xdata()) == [1, 2, 3, 4]


@pytest.mark.jit
def test_heavy_tails_need_no_second_state_where_the_family_has_them():
    y = np.random.default_rng(1).standard_t(4, 5000)
    assert rh.select_n_components(y, [1, 2], emission=rh.StudentT(4.0)).best == 1


@pytest.mark.jit
def test_what_is_left_out_is_predicted_by_a_fit_that_has_not_seen_it():
    model, truth, y = rare_series(T=400)
    y[17] = np.nan
    series = rh.Series(y, lengths=[150, 250])
    block = block_of_each(series)
    assert np.bincount(block).tolist() == [400 // BLOCKS] * BLOCKS
    found = held_out_densities(model, truth, series, block, None)
    assert np.flatnonzero(np.isnan(found)).tolist() == [17]
    fold = 3
    rest = y.copy()
    rest[block % FOLDS == fold] = np.nan
    other = rh.climb(model, rh.Series(rest, lengths=[150, 250]), truth, steps=selection.STEPS, tolerance=1e-3)
    expected = rh.predictive_log_density(model, other.parameters, series)
    mine = (block % FOLDS == fold) & ~np.isnan(y)
    np.testing.assert_allclose(found[mine], expected[mine])


@pytest.mark.jit
def test_an_event_seen_once_is_left_to_bic():
    y = np.random.default_rng(0).normal(size=20_000)
    y[7000:7018] += 5
    found = rh.select_n_components(y, [1, 2])
    assert found.best == 2
    assert found.of(2).from_few_blocks
    assert "cross-validation is inconclusive (the gain comes from one or two blocks); BIC favours" in found.describe()


@pytest.mark.jit
def test_numbers_that_cannot_be_fitted_are_left_out():
    z = np.zeros(400 if JIT else 100)
    z[len(z) // 2 :][:10] = 1
    found = rh.select_n_components(z, range(1, 5), emission="poisson")
    assert [c.n_states for c in found.candidates] == [1, 2]
    assert "3 states: not fitted (y has 2 different values" in found.describe()
    with pytest.raises(ValueError, match=r"7 states were not compared; 1, 2 were"):
        found.of(7)


@pytest.mark.jit
def test_several_columns_are_gaussian_by_default():
    y = np.random.default_rng(0).normal(size=(200, 2))
    assert rh.select_n_components(y, 1).of(1).parameters.phi.shape == (1, 5)


def test_bad_ranges_are_refused():
    with pytest.raises(ValueError, match="n_components is empty"):
        rh.select_n_components(np.arange(10.0), [])
    with pytest.raises(ValueError, match="3 observations, fewer than the 4 states"):
        rh.select_n_components(np.arange(3.0), [4])
    with pytest.raises(ValueError, match="n_states is 0"):
        rh.select_n_components(np.arange(30.0), [0, 1])


def candidate(K, **more):
    """One of which only words are made."""
    given = {"bic": 10.0 * K, "held_out": -1.0, "surprising": -5.0, "gain": 0.1, "error": 0.2, "from_few_blocks": False}
    blank = dict.fromkeys(selection.Candidate._fields)
    return selection.Candidate(**{**blank, "n_states": K, "supported": True, "regimes": [], **given, **more})


def test_every_doubt_is_in_the_words():
    rare = Regime(1, 0.01, 20.0, 5.0, "rare", "it raises the log likelihood by 90 (12.0 required)")
    common = Regime(0, 0.99, 1980.0, 500.0, "common", "it accounts for 0.99 of the observations")
    found = selection.Selection(
        2,
        [
            candidate(1, gain=np.nan),
            candidate(2, from_few_blocks=True, regimes=[common, rare]),
            candidate(3, from_few_blocks=True, supported=False),
            candidate(4, supported=False),
        ],
        {5: "too few values"},
    )
    lines = found.describe().splitlines()
    assert lines[2].endswith("<- chosen")
    inconclusive = "cross-validation is inconclusive (the gain comes from one or two blocks)"
    assert lines[5:] == [
        f"2 states: {inconclusive}; BIC favours this number.",
        f"3 states: {inconclusive}; BIC does not favour this number.",
        "4 states: not supported by the data; no better than fewer states.",
        "5 states: not fitted (too few values).",
        "With 2 states, state 1 is rare: it raises the log likelihood by 90 (12.0 required).",
    ]


def test_where_nothing_else_is_there_the_fit_to_all_predicts():
    """Observations in one fold alone."""
    model = model_of(rh.Gaussian(), 1)
    y = np.full(100, np.nan)
    series_block = np.arange(100) * BLOCKS // 100
    y[series_block % FOLDS == 2] = np.random.default_rng(0).normal(size=20)
    series, fit = rh.Series(y), model.parameters([[1.0]], mean=0.2, variance=1.1)
    found = held_out_densities(model, fit, series, block_of_each(series), None)
    expected = rh.predictive_log_density(model, fit, series)
    np.testing.assert_allclose(found[~np.isnan(y)], expected[~np.isnan(y)])
    assert np.isnan(found[np.isnan(y)]).all()


def test_the_smallest_number_must_fit():
    with pytest.raises(ValueError, match="2 different values, too few for 3 states"):
        rh.select_n_components(np.tile([0.0, 1.0], 20), [3], emission=rh.Poisson())
