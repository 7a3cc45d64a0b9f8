"""Transitions that follow a season: matrices of the positions in a period alone, beside those of all rows."""

import numpy as np
import pandas as pd
import pytest

from rarehmm import Gaussian, Model, Series, default_priors, log_posterior, smooth
from rarehmm.data.inputs import Columns, Inputs, Season, Trend
from rarehmm.transitions.regression import Regression

T, K = 600, 2
Y = np.where(np.random.default_rng(1).random(T) < 0.2, 4.0, 0.0) + np.random.default_rng(2).normal(size=T)
HOURS = pd.date_range("2026-01-01", periods=T, freq="h")
GAPS = np.delete(np.arange(T), [50, 51, 300])
SEASONS = [Season(24, 2), Season(8, 1)]
PARTS = {
    "rows": lambda **more: Series(Y, [250, 350], **more),
    "times": lambda **more: Series(pd.Series(Y, HOURS), **more),
    "times with gaps": lambda **more: Series(pd.Series(Y[GAPS], HOURS[GAPS]), regular=False, **more),
}


@pytest.fixture
def sizes(monkeypatch):
    """Number of matrices in each call that computes some."""
    found = []
    matrices = Regression.matrices
    monkeypatch.setattr(Regression, "matrices", lambda self, P, s, z: found.append(len(z)) or matrices(self, P, s, z))
    return found


def posterior(series, inputs, start, slopes):
    """Value and gradient of the log posterior, without the prior of slopes, and probabilities."""
    priors = default_priors(Gaussian(), 2, series)._replace(effects=None)
    model = Model(Gaussian(), K, priors, start, transitions=Regression(inputs))
    parameters = model.natural([[0.0, 1.0], [4.0, 1.0]], [[0.9, 0.1], [0.3, 0.7]], slopes.ravel())
    return *log_posterior(model, model.pack(parameters), series), smooth(model, parameters, series)


@pytest.mark.parametrize("start", [None, [0.4, 0.6]])
@pytest.mark.parametrize("part", PARTS)
def test_a_season_is_as_many_matrices_as_it_has_steps(part, start, sizes):
    series = PARTS[part]()
    seasons = Inputs.of(series, SEASONS)
    assert seasons.size == 6
    X = seasons.design(series.read_rows(0, len(series)))
    slopes = np.random.default_rng(3).normal(size=(6, K, K))
    slopes -= slopes.mean(-1, keepdims=True)
    found = posterior(series, seasons, start, slopes)
    assert set(sizes) == {24}
    sizes.clear()
    # the same columns as any others: with means of 0, and no standard deviation that they were divided by
    plain = Inputs.of(PARTS[part](exog=X), [Columns()])
    unscaled = plain.__class__.from_dict(plain.to_dict() | {
        "chosen": {**plain.to_dict()["chosen"], "means": (0.0,) * 6, "scales": (1.0,) * 6}
    })  # fmt: skip
    wanted = posterior(PARTS[part](exog=X), unscaled, start, slopes)
    assert 24 not in sizes  # kernels find the matrices of all rows, but for those in which sequences begin
    assert found[0] == pytest.approx(wanted[0], rel=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(found[2], wanted[2], rtol=1e-12, atol=1e-12)


@pytest.mark.plain
def test_rows_have_matrices_of_their_own_where_there_is_no_period():
    series = Series(Y)
    rows, few = series.read_rows(3, 300), series.read_rows(3, 27)
    for terms, part, m in (
        ([Season(24, 2)], rows, 24),
        ([Season(24, 2)], few, 24),
        ([Season(24, 2), Season(30, 2)], rows, 297),
        ([Season(24.5, 2)], rows, 297),
        ([Season(24, 2), Trend()], rows, 297),
        ([Trend()], rows, 297),
    ):
        inputs = Inputs.of(series, terms)
        columns, which = inputs.distinct(part)
        assert len(columns) == m
        np.testing.assert_allclose(columns[which], inputs.design(part), atol=1e-12)
