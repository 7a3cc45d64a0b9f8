"""What the README and the pages show works as it stands.

The blocks of a page are one program: ``python`` is executed, and so is each line of ``sh``, a command of rarehmm.  A
page that says that it continues the tutorial has what the tutorial has made.  Blocks that cannot be run here say so
in their titles, ``not run: ...``, and are counted; ``text`` is not a program.
"""

import pathlib
import re
import shlex
import shutil

import pytest
from architecture import PACKAGES

from rarehmm.app.cli.app import run
from rarehmm.emissions import families
from rarehmm.engine.automatic import AVAILABLE

ROOT = pathlib.Path(__file__).parents[2]
README, DOCS = ROOT / "README.md", ROOT / "docs"
TUTORIAL = DOCS / "tutorial.md"
PAGES = [README, *sorted(DOCS.rglob("*.md"))]
GOOD = r"[Aa]ll checks passed\."
FITS = "Model: fits the series."


def blocks(page):
    """Language, title and program of each block of a page."""
    found = re.findall(r'^```(\w*)(?: title="(.*)")?\n(.*?)^```$', page.read_text(), re.DOTALL | re.MULTILINE)
    assert page.read_text().count("```") == 2 * len(found), f"a block of {page.name} is not understood"
    return found


def is_run(language, title):
    return language in ("python", "sh") and not title.startswith("not run: ")


def execute(page, names):
    """Run the blocks of a page, in their order, in the current folder."""
    for language, title, program in blocks(page):
        if not is_run(language, title):
            continue
        if language == "python":
            exec(program, names)
        else:
            for line in program.splitlines():
                command, *arguments = shlex.split(line)
                assert command == "rarehmm"
                assert run(arguments) == 0, line


def text_of(page):
    return " ".join(page.read_text().split())


PROGRAMS = [page for page in PAGES if any(is_run(*block[:2]) for block in blocks(page))]
CONTINUED = [page for page in PROGRAMS if "continues the [tutorial](../tutorial.md)" in text_of(page)]
# what must be printed (a pattern each), and the files that are there in the end
SAYS = {
    "README.md": [GOOD, FITS, r"\b(?:[5-9]\d|1\d\d) events; (?:9[5-9]|100)\.\d% of the rare"],
    "tutorial.md": [
        GOOD, "report: run/report.html", "state 2: rare", r"\n\d\d flares\n", "a flare within the hour",
        r"(?:9[5-9]|100)\.\d% of the flare minutes", r"(?:9[5-9]|100)\.\d% of the minutes found",
        FITS, "The model fits the series.",
    ],
    "tutorial_metric.md": [
        "25% of the 99", "no rare events", r"does not fit the series.*residual autocorrelation 0\.8",
        "season of 1D and 1 lag", r"1 +│ rare", r"The longest of (?:9|10|11) rare events", FITS,
        r"100% of the rows in incidents found, [78]\d%",
        r"precision=0.99 [678] events", r"cost=20 (?:1\d|2\d) events", r"2026-03-30 05:50:00 +42\.\d+ .* 0\.1\d",
    ],
    "explanation/autoregression.md": [r"Hamilton +0\.0 +10\.0 +10\.0", r"AroundLevel +0\.0 +10\.0 +7\.0 +8\.5"],
    "explanation/posterior.md": [GOOD],
    "explanation/states.md": [r"(?:.*\n){3}.*<- chosen", "state 2: rare"],
    "explanation/targeting.md": [r"uniform 6\d\d\.", r"targeted 1\d\d\."],
    "how-to/choose_k.md": [" 3 .*<- chosen", "2 rare", r"\b(?:9\d|100)% of the minutes in either"],
    "how-to/cluster.md": [GOOD],
    "how-to/columns.md": [r"\n10 events\n(?:.*\n)+10 events", "errors_rate"],
    "how-to/diagnosis.md": [GOOD, FITS, "passed R-hat", "2 rare", "The model fits the series.", "outlying residuals"],
    "how-to/gaps.md": ["39599 40000 401", "40,000 observations, 401 missing", r"\[2\]"],
    "how-to/hmmlearn.md": [r"\] \[-15\.\d+ +-1[34]\.\d+ +-1[01]\.\d+"],
    "how-to/long.md": [GOOD, "block sampling", r"\(40000, 3\)"],
    "how-to/missing_state.md": ["2 rare", r"-11\. *\] \[2\]"],
    "how-to/durations.md": ["47 events of", "50 events, the shortest of 1;", "47 events, the shortest of 7;"],
    "how-to/inputs.md": [GOOD, FITS, r"coefficient\[requests\] +0\.20", r"\n1\.4\n", r"06-17 15:00:00 +10\.\d"],
    "how-to/known_states.md": [r"\n1 +3 +112 +0\n", r"\n1 +110 +3 +2\n", r"\n1\.0\n"],
    "how-to/season_and_autocorrelation.md": [
        "season of 1D and 1 lag", GOOD, FITS, r"01-19 18:00:00 .* 30 ", "ar=1 raises the held-out log density",
        r"'ar': 1, 'n_components': 2",
    ],
    "how-to/statsmodels.md": [
        r"const\[1\], mean\[1\] +1\.97\d +0\.278 +1\.9", r"-745\.80 and -745\.8\d;", r"-181\.26339 and -181\.26339;",
    ],
    "how-to/events.md": [r"events, of which [\d.]+ are expected", r"precision=0.95 \d+ events", r"of \d+ events"],
    "how-to/own_family.md": ["Laplace satisfies the contract:", GOOD, "2 events"],
    "how-to/time_stamps.md": [
        r"3 rows are missing in 2 places: y\[700\]", r"40,000 observations, 40[34] missing", r"\n438[01]$",
    ],
    "reference/estimator.md": [GOOD, FITS, "The model fits the series.", r"\+00:00"],
}  # fmt: skip
LEAVES = {
    "explanation/states.md": {"states.png"},
    "reference/estimator.md": {"series.png", "checks.png", "fit.nc", "flux.npy", "probabilities.npy"},
}


def name_of(page):
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """What the tutorial has made, and the folder where it is; run once for all pages that go on from it."""
    kept = {}

    def made(capsys):
        if not kept:
            folder, names = tmp_path_factory.mktemp("tutorial"), {"__name__": "tutorial"}
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                execute(TUTORIAL, names)
            kept.update(folder=folder, names=names, out=capsys.readouterr().out)
        return kept

    return made


AT_NIGHT = {
    "tutorial_metric.md",
    "explanation/states.md",
    "how-to/choose_k.md",
    "how-to/durations.md",
    "how-to/statsmodels.md",
    "how-to/own_family.md",
    "how-to/columns.md",
    "how-to/cluster.md",
}


def when(page):
    return pytest.mark.nightly if name_of(page) in AT_NIGHT else ()


@pytest.mark.jit
@pytest.mark.parametrize("page", [pytest.param(p, marks=when(p), id=name_of(p)) for p in PROGRAMS])
def test_a_page_does_what_it_says(page, capsys, tmp_path, monkeypatch, tutorial):
    monkeypatch.chdir(tmp_path)
    name = name_of(page)
    if page == TUTORIAL:
        out = tutorial(capsys)["out"]
    else:
        names = {"__name__": page.stem}
        if page in CONTINUED:
            before = tutorial(capsys)
            names |= before["names"]
            shutil.copytree(before["folder"], tmp_path, dirs_exist_ok=True)
        execute(page, names)
        out = capsys.readouterr().out
    for pattern in SAYS[name]:
        assert re.search(pattern, out), f"{pattern} is not in\n{out}"
    if name in LEAVES:
        assert {p.name for p in tmp_path.iterdir()} == LEAVES[name]


def test_what_is_not_run_is_known():
    titles = {(name_of(page), title) for page in PAGES for language, title, _ in blocks(page) if title}
    assert titles == {
        ("how-to/cluster.md", "not run: needs a cluster"),
        ("how-to/long.md", "not run: needs files and a cluster"),
        ("how-to/inputs.md", "not run: needs a file of yours"),
        ("how-to/season_and_autocorrelation.md", "not run: needs a file of yours"),
        ("reference/command_line.md", "not run: needs a file of yours; the tutorial runs one like it"),
        ("reproduction/index.md", "not run: needs the downloaded files"),
    }
    languages = [language for page in PAGES for language, title, _ in blocks(page) if not is_run(language, title)]
    assert set(languages) == {"text", "python", "sh"}
    assert len(languages) - languages.count("text") == len(titles)


def test_a_block_that_fails_is_noticed(tmp_path, capsys):
    page = tmp_path / "page.md"
    for program in ("```python\nassert False\n```\n", "```sh\nrarehmm events nowhere\n```\n"):
        page.write_text(program)
        with pytest.raises(AssertionError):
            execute(page, {})
    page.write_text("```python something\nassert False\n```\n")
    with pytest.raises(AssertionError, match="not understood"):
        blocks(page)


def test_the_page_on_families_lists_what_there_is():
    """Each function that density_of knows is in its table, and nothing else."""
    page = (DOCS / "how-to/own_family.md").read_text()
    table = page[page.index("| supported") : page.index("* Use `np.where` instead")]
    shown = set(re.findall(r"np\.(\w+)", table)) | {"gammaln", "erf", "expit", "xlogy"}
    assert shown == set(re.findall(r"np\.(\w+)", AVAILABLE)) - {"square"} | {"gammaln", "erf", "expit", "xlogy"}


def test_the_table_of_families_has_their_parameters():
    page = (DOCS / "reference/api/families.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)\(\w*\)` \| (.*) \|$", page, re.MULTILINE)
    shown = {name: (kind, set(re.findall(r"`(\w+)`", names))) for name, kind, names in rows}
    assert shown == {name: (kind.__name__, {p.name for p in kind().parameters}) for name, kind in families().items()}


def test_the_page_on_contributing_lists_packages_and_modules_in_order():
    page = (DOCS / "contributing.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page[: page.index("## Extension points")], re.MULTILINE))
    assert list(rows) == list(PACKAGES)
    for package, text in rows.items():
        if package != "paper":
            assert [name for name in re.findall(r"`(\w+)`", text) if name in PACKAGES[package]] == [*PACKAGES[package]]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
