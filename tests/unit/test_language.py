"""The language of the field: phrases and names that version 0.1 had, and readers stumbled over, stay out."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.[jc]s*"))]

PHRASES = [
    r"(?<!\")\blaws?\b",  # distribution (a key of files that version 0.1 wrote aside)
    r"[Nn]othing speaks against",  # All checks passed.
    r"[Nn]ot to be trusted",  # Do not trust these results: ...
    r"a plain word",  # a clear warning
    r'"""The same\b',  # a sentence that stands alone
    r"of so many one is kept",
    r"\bonce a state\b",  # once per state
    r"at the door\b",
    r"[Tt]ime goes on",
    r"\bTells? nobody\b|\bis told\b|\bare told\b",  # on_progress is called
    r"windows by chance",  # uniformly sampled windows
]
NAMES = {
    "Points", "Lot", "lot", "astern", "come_back", "Drawn", "nobody", "told", "law", "laws", "alike", "Known", "pull",
    "watch", "Watch",
}  # fmt: skip
DEFINED = NAMES | {
    "ahead", "drawn", "drawing", "good", "words", "nothing", "margins", "replicas", "preparation", "moved", "named",
    "here",
}  # fmt: skip
COMMANDS = {("app/cli/watching.py", "watch")}  # rarehmm watch


def defined(tree):
    """Names of functions, classes, arguments and fields in a syntax tree."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def used(tree):
    """All names in a syntax tree."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name


def phrases_in(text):
    return [found.group(0) for phrase in PHRASES for found in re.finditer(phrase, text)]


@pytest.mark.parametrize("path", [*SOURCES, *PAGES], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_phrases_of_the_old_idiom_stay_out(path):
    assert phrases_in(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_names_of_the_old_idiom_stay_out(path):
    place = path.relative_to(ROOT / "src" / "rarehmm").as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {*(set(defined(tree)) & DEFINED), *(set(used(tree)) & NAMES), *({path.stem} & DEFINED)}
    assert {name for name in found if (place, name) not in COMMANDS} == set()


@pytest.mark.parametrize(
    "text",
    ["the stationary law", "Nothing speaks against it.", '    """The same by Gibbs sampling."""', "once a state"],
)
def test_that_a_phrase_would_be_noticed(text):
    assert phrases_in(text)


@pytest.mark.parametrize(
    "code", ["def told(): ...", "law = 1", "x.pull(y)", "class A:\n    good: bool", "f = lambda here: 1"]
)
def test_that_a_name_would_be_noticed(code):
    tree = ast.parse(code)
    assert set(defined(tree)) & DEFINED or set(used(tree)) & NAMES
