"""What the README shows works as it stands."""

import pathlib
import re

import pytest

from rarehmm.automatic import AVAILABLE

README = pathlib.Path(__file__).parents[2] / "README.md"
DOCS = sorted((README.parent / "docs").rglob("*.md"))


def code_of(page):
    """The one program of a page."""
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    return code


@pytest.mark.jit
def test_the_example_runs(capsys):
    exec(code_of(README), {})
    out = capsys.readouterr().out
    assert "Nothing speaks against this posterior." in out
    found, share = re.search(r"(\d+) events; ([\d.]+)% of the rare", out).groups()
    assert 50 < int(found) < 200
    assert float(share) > 95


@pytest.mark.jit
def test_the_posterior_is_found_as_its_page_says(capsys):
    exec(code_of(README.parent / "docs/explanation/posterior.md"), {})
    assert "Nothing speaks against this posterior." in capsys.readouterr().out


@pytest.mark.jit
def test_the_estimator_does_what_its_page_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(code_of(README.parent / "docs/reference/estimator.md"), {})
    out = capsys.readouterr().out
    assert "Nothing speaks against this posterior." in out
    assert "The model fits the series." in out
    assert "+00:00" in out
    assert {p.name for p in tmp_path.iterdir()} == {"series.png", "checks.png", "fit.nc"}


@pytest.mark.jit
def test_states_are_found_as_their_page_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(code_of(README.parent / "docs/explanation/states.md"), {})
    out = capsys.readouterr().out
    assert "<- chosen" in out.splitlines()[3]
    assert out.count("state 2: rare") == 1
    assert (tmp_path / "states.png").stat().st_size > 10_000


@pytest.mark.jit
def test_a_family_of_ones_own_does_what_its_page_says(capsys):
    exec(code_of(README.parent / "docs/how-to/own_family.md"), {"__name__": "own_family"})
    out = capsys.readouterr().out
    assert "Laplace keeps the contract:" in out
    assert "Nothing speaks against this posterior." in out
    assert "2 events" in out


def test_the_page_on_families_lists_what_there_is():
    """Each function that density_of knows is in its table, and nothing else."""
    page = (README.parent / "docs/how-to/own_family.md").read_text()
    table = page[page.index("| may be used") : page.index("* `np.where` instead")]
    shown = set(re.findall(r"np\.(\w+)", table)) | {"gammaln", "erf", "expit", "xlogy"}
    assert shown == set(re.findall(r"np\.(\w+)", AVAILABLE)) - {"square"} | {"gammaln", "erf", "expit", "xlogy"}


@pytest.mark.parametrize("page", [README, *DOCS], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
