"""The report in a real browser: opens from disk without errors or requests, zooms, fits a phone, dark mode."""

import pathlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from browser import Browser, find_browser
from oracle import event_table

import rarehmm as rh
from rarehmm.app import runs
from rarehmm.app.report import report
from rarehmm.app.report.report import POINTS, Overview, anchors
from rarehmm.app.settings import Settings

KEPT = pathlib.Path(__file__).parents[2] / ".cache" / "screenshots"  # outside git


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run on a series with gaps, times and events."""
    path = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    T = 20_000
    y = pd.DataFrame({"time": pd.date_range("2026-01-01", periods=T, freq="min", tz="UTC")})
    y["flux <b>"] = rng.normal(size=T)
    for begin in range(1_000, T, 1_900):
        y.loc[begin : begin + 24, "flux <b>"] += 7
    y.loc[500:700, "flux <b>"] = np.nan
    y.to_csv(path / "flux.csv", index=False)
    settings = Settings(str(path / "flux.csv"), ["flux <b>"], "time", states=2, draws=300)
    runs.create(path / "run", settings)
    assert runs.fit(path / "run", settings, runs.series_of(settings)).passed
    return path / "run"


@pytest.fixture(scope="module")
def chromium():
    found = find_browser()
    if found is None:
        pytest.skip("NO BROWSER: THE REPORT IS NOT TESTED IN ONE")
    return found


def view(browser):
    return [float(browser.ask(f"document.getElementById('series').dataset.{end}")) for end in ("from", "to")]


def drawn(browser, canvas="series"):
    """How many different colours there are on a canvas."""
    return browser.ask(
        f"(() => {{ const c = document.getElementById('{canvas}'), d = c.getContext('2d').getImageData(0, 0, c.width, "
        "c.height).data; const s = new Set(); for (let i = 0; i < d.length; i += 4) s.add(d[i] * 65536 + d[i+1] * 256 +"
        " d[i+2]); return s.size; })()"
    )


@pytest.mark.jit
def test_it_opens_from_disk_and_zooms(folder, chromium):
    with Browser(chromium) as browser:
        browser.open(folder / "report.html")
        browser.settle()
        assert browser.messages == []
        assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
        assert view(browser) == [0, 20_000]
        assert drawn(browser) > 3
        assert drawn(browser, "states") > 3

        browser.click("#go-in")
        assert view(browser) == [5_000, 15_000]
        box = browser.ask("(() => { const b = document.getElementById('series').getBoundingClientRect();"
                          "return [b.left, b.top, b.width, b.height]; })()")  # fmt: skip
        x, y = box[0] + 58 + (box[2] - 66) / 4, box[1] + box[3] / 2
        browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
        browser.settle()
        from_, to = view(browser)
        assert to - from_ == pytest.approx(10_000 * np.exp(-0.25), rel=0.01)
        assert from_ + (to - from_) / 4 == pytest.approx(7_500, abs=50)  # what is under the pointer stays there
        browser.mouse("mousePressed", x, y, button="left")
        browser.mouse("mouseMoved", x + (box[2] - 66) / 4, y, button="left")
        browser.mouse("mouseReleased", x + (box[2] - 66) / 4, y, button="left")
        browser.settle()
        assert view(browser)[0] == pytest.approx(from_ - (to - from_) / 4, abs=60)

        browser.ask("document.getElementById('series').focus()")
        browser.key("0", 48)
        assert view(browser) == [0, 20_000]
        browser.key("ArrowUp", 38)
        browser.key("ArrowRight", 39)
        assert view(browser) == [7_500, 17_500]
        assert browser.messages == []


@pytest.mark.jit
def test_a_click_on_an_event_shows_it(folder, chromium):
    with Browser(chromium) as browser:
        browser.open(folder / "report.html")
        count = browser.ask("document.querySelectorAll('button.event').length")
        assert count == len(pd.read_csv(folder / "events.csv")) == 10
        browser.click("button.event[data-event='3']")
        from_, to = view(browser)
        assert from_ < 1_000 + 3 * 1_900 < 1_000 + 3 * 1_900 + 25 < to
        assert to - from_ < 300
        assert browser.ask("document.querySelector('tr.here button').dataset.event") == "3"
        assert drawn(browser) > 3
        assert browser.messages == []


@pytest.mark.jit
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (400, False), (400, True)])
def test_it_fits_every_screen(folder, chromium, width, dark):
    with Browser(chromium, width, 900, dark) as browser:
        browser.open(folder / "report.html")
        browser.settle()
        assert browser.ask("document.documentElement.scrollWidth") <= width
        paper, ink = (browser.ask(f"getComputedStyle(document.body).{what}") for what in ("backgroundColor", "color"))
        bright = [sum(int(part) for part in colour[4:-1].split(",")) for colour in (paper, ink)]
        assert (bright[0] < bright[1]) == dark
        name = f"{width}-{'dark' if dark else 'light'}.png"
        KEPT.mkdir(parents=True, exist_ok=True)
        browser.screenshot(KEPT / name, whole=True)
        assert browser.messages == []


@pytest.mark.nightly
@pytest.mark.jit
def test_a_million_points_are_under_8_megabytes_and_fluid(chromium, tmp_path):
    y = np.random.default_rng(0).normal(size=1_000_000)
    for begin in range(5_000, 1_000_000, 10_000):
        y[begin : begin + 30] += 8
    hmm = rh.RareHMM(2, method="map", n_average=0).fit(y[:50_000])
    series = rh.Series(y)
    settings = Settings("y.npy", states=2)
    runs.create(tmp_path / "run", settings)
    runs.write_results(tmp_path / "run", settings, hmm, series)
    page = tmp_path / "run" / "report.html"
    assert page.stat().st_size < 8e6
    with Browser(chromium) as browser:
        browser.open(page)
        browser.settle()
        assert view(browser) == [0, 1_000_000]
        frames = []
        for step in range(20):
            browser.ask("window.begun = performance.now(); 0")
            browser.click("#go-in" if step < 10 else "#go-out")
            frames.append(browser.ask("performance.now() - window.begun"))
        assert np.median(frames) < 200  # with clicking, and two frames of waiting; no graphics card here
        assert browser.messages == []


@pytest.mark.jit
def test_names_are_text_and_nothing_is_fetched(folder):
    page = (folder / "report.html").read_text()
    assert "flux &lt;b&gt;" in page
    assert "flux <b>" not in page.split('<script type="application/json"')[0]
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "default-src 'none'" in page


def test_a_long_series_keeps_its_extremes():
    y = np.random.default_rng(0).normal(size=2_500_001)
    y[[77, 1_234_567, 2_500_000]] = [50, -60, 70]
    y[500_000:600_000] = np.nan
    rare = np.zeros(len(y))
    rare[1_234_567] = 1
    overview, stretches = Overview(len(y)), Overview(len(y))
    overview.add(y, rare, np.arange(len(y)))
    for part in np.split(np.arange(len(y)), [3, 100_001, 100_002, 1_234_567]):
        stretches.add(y[part], rare[part], part)
    values, most, rows = overview.shown().T
    np.testing.assert_array_equal(stretches.shown().T, [values, most, rows])
    assert len(rows) <= POINTS
    assert (np.diff(rows) >= 0).all()
    np.testing.assert_array_equal(values, y[rows.astype(int)])
    assert np.nanmax(values) == 70
    assert np.nanmin(values) == -60
    assert most.max() == 1
    assert (most[np.abs(rows - 1_234_567) < overview.step] == 1).any()
    np.testing.assert_allclose(rows, np.arange(len(rows)) * overview.step, atol=2 * overview.step)


def test_times_between_anchors_lie_on_a_line():
    times = pd.date_range("2026-01-01", periods=50_000, freq="s")
    found, dates = anchors(rh.Series(pd.Series(np.zeros(50_000), index=times)))
    assert dates
    rows, stamps = np.array(found).T
    np.testing.assert_allclose(np.interp(np.arange(50_000), rows, stamps), times.as_unit("ms").asi8)
    assert anchors(rh.Series(np.zeros(5))) == (None, False)


@pytest.mark.parametrize(
    "index",
    [
        pd.Index(["a", "b", "c"]),
        pd.CategoricalIndex(["a", "b", "c"]),
        pd.period_range("2026", periods=3, freq="D"),
        pd.timedelta_range("0s", periods=3, freq="s"),
        pd.MultiIndex.from_product([["a"], [1, 2, 3]]),
    ],
    ids=lambda index: type(index).__name__,
)
def test_what_is_no_number_is_no_place_on_an_axis(index):
    assert anchors(rh.Series(pd.Series(np.zeros(3), index=index))) == (None, False)
    numbers = pd.Series(np.zeros(3), index=pd.Index([1, 3, 4], dtype="Int64"))
    assert anchors(rh.Series(numbers)) == ([[0, 1.0], [1, 3.0], [2, 4.0]], False)


def test_the_longest_of_many_events_are_listed(monkeypatch):
    monkeypatch.setattr(report, "LISTED", 2)
    y, p = np.zeros(40), np.zeros((40, 2))
    for first, last in ((3, 8), (12, 14), (20, 29)):
        p[first:last, 1] = 1
    events = event_table(rh.Series(y), p, np.array([1]))
    hmm = SimpleNamespace(rare_states_=np.array([1]))
    content = report.Content("", "", hmm, None, None, events, [], None, {})
    page = report.event_list(content)
    assert "Only the 2 longest of 3 events are listed; events.csv contains the full list." in page
    assert [f'data-event="{i}"' in page for i in range(3)] == [True, False, True]
    assert "None." in report.event_list(content._replace(events=events[:0]))
