"""The site builds without a warning, everything in it has a place, and it asks nothing of the network."""

import html.parser
import os
import pathlib
import re
import subprocess
import sys

import pytest

import rarehmm

pytestmark = pytest.mark.jit  # nothing is compiled, and once is enough
ROOT = pathlib.Path(__file__).parents[2]


def build(folder, config=ROOT / "mkdocs.yml"):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", folder]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=env, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


class Page(html.parser.HTMLParser):
    """Links, addresses that a browser loads by itself, and anchors of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors, self.inside = [], [], set(), False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in ("script", "img", "iframe") and given.get("src"):
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect", "preload"):
            self.loaded.append(given["href"])


def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").stat().st_size > 5_000


def test_links_and_anchors_lead_somewhere(site):
    pages = {path: Page(path) for path in site.rglob("*.html")}
    assert len(pages) > 50
    for path, page in pages.items():
        for link in page.links:
            where, _, anchor = link.partition("#")
            if "://" in where or path.name == "404.html":
                continue
            target = (path.parent / where).resolve() if where else path
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{path.relative_to(site)}: {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors | {"__top"}, f"{path.relative_to(site)}: {link}"


def test_nothing_is_loaded_from_elsewhere(site):
    for path in site.rglob("*.html"):
        assert not [address for address in Page(path).loaded if "//" in address], path.name


def test_every_public_name_is_in_the_reference(site):
    headings = set()
    for path in (site / "reference/api").glob("*.html"):
        headings |= set(re.findall(r'id="(rarehmm\.[\w.]+)"', path.read_text(encoding="utf-8")))
    assert {f"rarehmm.{name}" for name in rarehmm.__all__} <= headings


def test_formulas_are_drawn(site):
    for path in [*site.glob("explanation/*.html"), *site.glob("reference/api/*.html")]:
        text = path.read_text(encoding="utf-8")
        assert not any(mark in text for mark in ("arithmatex", ":math:", ".. math::")), path.name
    assert (site / "explanation/formulas.html").read_text(encoding="utf-8").count("<math") > 80


@pytest.mark.nightly
def test_a_page_without_a_place_is_noticed(tmp_path):
    """The same configuration with one page less in its navigation does not build."""
    text = (ROOT / "mkdocs.yml").read_text()
    text = text.replace("      - Run on a cluster: how-to/cluster.md\n", "")
    for name in ("docs", "src"):
        text = re.sub(rf"(: |\[){name}(?=[/\]\n])", rf"\g<1>{ROOT / name}", text)
    (tmp_path / "mkdocs.yml").write_text(text)
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert "how-to/cluster.md" in done.stderr
