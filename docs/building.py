"""What mkdocs does not do by itself: files from outside this folder, tables of them, and formulas without a network.

The tables of benchmarks/results, the examples and a few other files are pages too, under ``repository/``, so that the
same relative links lead to them here and where the source is read.  Formulas become MathML, which browsers draw
themselves: no script is loaded.
"""

import html
import os.path
import pathlib
import re
from typing import Any

import griffe
from latex2mathml.converter import convert
from markdown.extensions.toc import slugify
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).parent.parent
OUTSIDE = [
    "CHANGELOG.md", "CITATION.cff", "benchmarks/results/*.md", "benchmarks/results/*.png", "examples/*.py",
    "src/rarehmm/engine/contracts/[!_]*.py",
]  # fmt: skip
LANGUAGES = {".py": "python", ".cff": "yaml"}
PLACES: dict[str, str] = {}  # of pages that come from outside: address in the site -> path in the repository


def place(path: pathlib.Path) -> str:
    """Where in the site a file from outside is: a page if it is text."""
    name = path.relative_to(ROOT).as_posix()
    return f"repository/{name}.md" if path.suffix in LANGUAGES else f"repository/{name}"


def on_files(files: Any, config: Any) -> Any:
    """Add the files from outside."""
    for path in sorted(path for pattern in OUTSIDE for path in ROOT.glob(pattern)):
        where, name = place(path), path.relative_to(ROOT).as_posix()
        PLACES[where] = name
        if path.suffix in LANGUAGES:
            text = f"# {name}\n\n````{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}````\n"
            files.append(File.generated(config, where, content=text.replace("# examples/", "# ")))
        else:
            files.append(File.generated(config, where, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that leave docs, and links of pages from outside, into links inside the site."""
    here = page.file.src_uri
    source = ROOT / PLACES.get(here, f"docs/{here}")
    markdown = re.sub(
        r"^\[Table: [^\]]+\]\((.+)#(.+)\)$", lambda link: table(source.parent / link[1], link[2]), markdown, flags=re.M
    )
    known = {name: where for where, name in PLACES.items()}

    def led(link: re.Match[str]) -> str:
        path, _, anchor = link[1].partition("#")
        if not path or "://" in path:
            return link[0]
        name = os.path.relpath((source.parent / path).resolve(), ROOT.resolve()).replace(os.sep, "/")
        where = name.removeprefix("docs/") if name.startswith("docs/") else known.get(name)
        if where is None:
            return link[0]
        return f"]({os.path.relpath(where, os.path.dirname(here) or '.')}{'#' + anchor if anchor else ''})"

    return re.sub(r"\]\(([^)\s]+)\)", led, markdown)


def table(path: pathlib.Path, anchor: str) -> str:
    """The first table below a heading of a file: a link to it, alone on its line, has it on the page."""
    _, *sections = re.split(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.M)
    below = {slugify(name.lower(), "-"): text for name, text in zip(sections[::2], sections[1::2], strict=True)}
    found = re.search(r"(^\|.+\n)+", below[anchor], flags=re.M)
    if found is None:
        raise ValueError(f"no table below #{anchor} of {path.name}")
    return found[0]


def on_page_content(content: str, **_: Any) -> str:
    """Formulas, as arithmatex has marked them, to MathML."""
    return re.sub(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', drawn, content, flags=re.S)


def drawn(found: re.Match[str]) -> str:
    formula = " ".join(html.unescape(found[2]).split())
    formula = re.sub(r"\\log(?= *[\\A-Za-z])", r"\\,\\log\\,", formula)
    formula = re.sub(r"\\[Bb]ig([lr])\b", lambda m: {"l": r"\left", "r": r"\right"}[m[1]], formula)
    return str(convert(formula, display="inline" if found[1] == "span" else "block"))


class Formulas(griffe.Extension):
    """Formulas of docstrings, in the marks that arithmatex knows."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = marked(obj.docstring.value)


def marked(text: str) -> str:
    """Formulas between dollars, and examples outside of a section of their own in fences."""
    text = re.sub(r":math:`(.+?)`", r"$\1$", text, flags=re.S)
    block = re.compile(r"^( *)\.\. math:: *(.*(?:\n\1 +\S.*)*)", re.M)
    text = block.sub(lambda m: f"{m[1]}$$\n{m[1]}{' '.join(m[2].split())}\n{m[1]}$$", text)
    if re.search(r"^ *Examples\n *-+$", text, re.M):
        return text
    return re.sub(r"^>>> .*(?:\n\S.*|\n {2,}\S.*)*", r"```pycon\n\g<0>\n```", text, flags=re.M)
