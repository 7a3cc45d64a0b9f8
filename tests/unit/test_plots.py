"""Pictures hold what they should: nothing that stands out is lost, axes go in and come out, time is kept."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from oracle import event_table
from scipy.signal import lfilter
from small_models import model_of

import rarehmm as rh
from rarehmm import plots
from rarehmm.choosing.selection import Candidate, Selection
from rarehmm.engine.contracts.design import Design
from rarehmm.sampling.diagnostics import Check
from rarehmm.windows.windows import Windows

pytestmark = pytest.mark.plain


def some_posterior():
    rng = np.random.default_rng(0)
    phi = np.stack([rng.normal([0, 5], 0.1, (2, 40, 2)), rng.gamma(9, 0.1, (2, 40, 2))], axis=-1)
    return rh.Posterior(model_of(rh.Gaussian(), 2), phi, rng.dirichlet([9, 1], (2, 40, 2)), "chain")


def test_no_extreme_is_lost_when_a_series_is_decimated():
    y = np.random.default_rng(0).normal(size=100_000)
    y[[7, 54_321, 99_999]] = [50, -60, 70]
    y[20_000:30_000] = np.nan
    at, low, high = plots.decimated(y, 500)
    assert len(at) == 500
    assert (np.nanmin(low), np.nanmax(high)) == (-60, 70)
    assert high[0] == 50
    assert np.isnan(low[110:140]).all()
    np.testing.assert_allclose(plots.means(np.arange(10.0), np.array([0, 4, 8])), [1.5, 5.5, 8.5])
    short = np.arange(10.0)
    assert plots.decimated(short)[1] is short


@pytest.mark.parametrize("T", [200, 50_000])
def test_a_series_with_its_probabilities(T):
    times = pd.date_range("2026-01-01", periods=T, freq="min")
    y = pd.Series(np.random.default_rng(0).normal(size=T), index=times, name="flux")
    p = np.zeros((T, 2))
    p[:, 0] = 1
    p[T // 2] = [0, 1]
    above, below = plots.plot_series(y, p)
    assert above.figure is below.figure
    assert [t.get_text() for t in below.get_legend().get_texts()] == ["state 0", "state 1"]
    above.figure.canvas.draw()
    assert "2026" in "".join(t.get_text() for t in below.get_xticklabels()) or T == 200
    tall = max(c.get_paths()[0].vertices[:, 1].max() for c in below.collections[1:])
    assert tall == pytest.approx(1.0)  # the one rare observation is seen


def test_axes_go_in_and_come_out():
    axes = Figure().subplots()
    assert plots.plot_series(np.arange(9.0), axes=axes) is axes
    p = np.zeros((9, 2))
    p[4:6, 1] = 1
    events = event_table(rh.Series(np.arange(9.0)), p, np.array([1]))
    before = len(axes.patches)
    assert plots.plot_events(np.arange(9.0), events, axes=axes) is axes
    assert len(axes.patches) == before + 1
    found = some_posterior()
    assert plots.plot_trace(found, "sojourn", axes=axes) is axes
    assert plots.plot_transitions(found, axes=axes) is axes
    texts = [t.get_text() for t in axes.texts]
    assert f"{found.mean.transition[0, 1]:.2g}" in texts


def test_a_fit_goes_in_wherever_a_posterior_does():
    """And its residuals, checks, probabilities and events where these do."""
    y = np.random.default_rng(0).normal(size=60)
    y[30:34] += 9
    hmm = rh.RareHMM(2, method="map", init=(y > 5).astype(int), rare_share=0.2).fit(y)
    assert plots.plot_trace(hmm).get_ylabel() == "mean"
    assert len(plots.plot_density(hmm)) == 2
    assert len(plots.plot_components(hmm, y)) == 2
    assert len(plots.plot_series(y, hmm)) == 2
    assert len(plots.plot_series([y[:20], y[20:]], hmm.predict_proba([y[:20], y[20:]]))) == 2
    assert len(plots.plot_events(y, hmm).patches) == 1
    names = [text.get_text() for text in plots.plot_checks(hmm).texts]
    assert {"smallest state", "drift"} <= set(names)
    for given in (hmm, hmm.check(y), hmm.check(y).residuals):
        assert len(plots.plot_residuals(given)[0].lines[0].get_xdata()) == 60
    with pytest.raises(ValueError, match=r"the check has no residuals; plot those of hmm\.check"):
        plots.plot_residuals(hmm.model_check_._replace(residuals=None))


def test_what_can_be_used_is_listed_and_nothing_else():
    assert rh.plots is plots
    listed = dir(rh)
    assert {"RareHMM", "plots", "suggest", "__version__"} <= set(listed)
    assert all(hasattr(rh, name) for name in listed)
    assert not {"data", "engine", "importlib", "Any", "estimator"} & set(listed)


def test_densities_have_axes_for_each_state():
    axes = plots.plot_density(some_posterior(), "mean")
    assert len(axes) == 2
    assert axes[1].get_title().startswith("state 1: 5")
    constant = rh.Posterior(model_of(rh.Gaussian(), 1), np.ones((1, 4, 1, 2)), np.ones((1, 4, 1, 1)), "map")
    plots.plot_density(constant, "occupancy")
    with pytest.raises(ValueError, match="name is 'men'; it must be one of mean, variance, occupancy"):
        plots.plot_density(some_posterior(), "men")


def test_a_forecast():
    found = rh.Forecast(np.ones((3, 2)), np.array([0.1, 0.2, 0.3]), np.zeros(3), np.ones(3), np.zeros((5, 3)))
    axes = plots.plot_forecast(found)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), [1, 2, 3])


def test_checks_residuals_and_designs_are_drawn():
    checks = [Check("one", 0.5, True, "fine"), Check("two", 9.0, False, "a long word " * 20)]
    axes = plots.plot_checks(checks)
    assert [t.get_text() for t in axes.texts][:3] == ["one", "0.5", "fine"]
    assert axes.texts[3].get_weight() == "bold"

    x = lfilter([1], [1, -0.7], np.random.default_rng(0).normal(size=20_000))
    x[50] = np.nan
    first, second, third = plots.plot_residuals(x)
    bars = third.collections[0].get_segments()
    np.testing.assert_allclose([bar[1, 1] for bar in bars[:3]], [0.7, 0.49, 0.343], atol=0.03)
    assert first.figure is second.figure is third.figure

    series = rh.Series(np.zeros(5000))
    windows = Windows(series, 2, 3)
    weights = np.ones(windows.count)
    weights[700] = 50
    axes = plots.plot_design(Design(weights[None] / weights.sum()), windows)
    lines = axes.collections[0].get_segments()
    top = max(lines, key=lambda s: s[:, 1].max())
    assert top[0, 0] == 3500
    assert top[:, 1].max() == pytest.approx(50 * windows.count / weights.sum())


def test_events_lie_where_the_series_is_drawn():
    parts = [np.zeros(40), np.zeros(60)]
    dated = [pd.Series(p, index=pd.date_range("2026-01-01", periods=len(p), freq="h")) for p in parts]
    p = np.zeros((100, 2))
    p[50:55, 1] = 1  # rows 10 to 14 of the second sequence
    for data in (parts, dated):
        series = rh.Series(data)
        axes = plots.plot_events(series, event_table(series, p, np.array([1])))
        box = axes.patches[0].get_extents().transformed(axes.transData.inverted())
        assert (round(box.x0), round(box.x1)) == (50, 54)
    pairs = pd.MultiIndex.from_product([["a", "b"], range(50)])
    for index in (pairs, pd.period_range("2026-01", periods=100, freq="D")):
        series = rh.Series(pd.Series(np.zeros(100), index=index))
        axes = plots.plot_events(series, event_table(series, p, np.array([1])))
        assert len(axes.patches) == 1


def test_short_residuals_are_points_and_long_designs_are_bands():
    x = np.random.default_rng(0).normal(size=50)
    first, second, third = plots.plot_residuals(x)
    np.testing.assert_array_equal(first.lines[0].get_ydata(), x)
    np.testing.assert_array_equal(second.lines[0].get_ydata(), np.sort(x))
    assert len(third.collections[0].get_segments()) == 30

    windows = Windows(rh.Series(np.zeros(100_000)), 2, 3)
    weights = np.ones(windows.count)
    weights[700] = 50
    band = plots.plot_design(Design(weights[None] / weights.sum()), windows).collections[0]
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(50 * windows.count / weights.sum())


def test_a_selection_is_drawn_above_the_chosen():
    blocks = {1: [-30.0, -20.0], 2: [-10.0, -8.0], 3: [-11.0, -9.0]}
    found = [
        Candidate(
            K, None, 0.0, 100.0 * abs(K - 2), sum(b) / 2, -float(K), np.array(b), np.array(b), 0, 0, False, True, []
        )
        for K, b in blocks.items()
    ]
    left, middle, right = plots.selection(Selection(2, found, {})).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [-32, 0, -2])
    np.testing.assert_allclose(middle.lines[0].get_ydata(), [1, 0, -1])
    np.testing.assert_allclose(right.lines[0].get_ydata(), [100, 0, 100])
    assert [axis.get_title() for axis in (left, right)] == ["held-out observations", "BIC (lower is better)"]
    for axis in (left, middle, right):
        assert axis.get_xticks().tolist() == [1, 2, 3]
        assert axis.lines[-2].get_xdata()[0] == 2  # the chosen one is marked
