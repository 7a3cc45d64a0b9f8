"""Scripts that are not run by the tests (benchmarks, documentation) use names that exist."""

import ast
import importlib
import pathlib

import pytest

import rarehmm as rh

pytestmark = pytest.mark.plain

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("docs/*.py"), *ROOT.glob("examples/*.py")])


def unknown_names(tree):
    """Names that a script takes from the library although they do not exist."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rarehmm":
            module = importlib.import_module(node.module)
            for name in node.names:
                if not hasattr(module, name.name) and not has_module(f"{node.module}.{name.name}"):
                    yield f"{node.module}.{name.name}"
    yield from (f"rh.{name}" for name in attributes(tree, "rh") if not hasattr(rh, name))


def has_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False


def attributes(tree, name):
    """Attributes that a script takes from a variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name:
            yield node.attr


def unknown_options(tree):
    """Options that a script reads from its arguments, kept in ``use``, although it does not declare them."""
    declared = {
        node.args[0].value.lstrip("-").replace("-", "_")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
    }
    yield from (name for name in attributes(tree, "use") if name not in declared)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_names_and_options_of_a_script_exist(path):
    tree = ast.parse(path.read_text())
    assert [*unknown_names(tree), *unknown_options(tree)] == []


def test_that_test_notices_names_that_are_gone():
    tree = ast.parse("from rarehmm.sampling.methods import named\nrh.Nothing")
    assert list(unknown_names(tree)) == ["rarehmm.sampling.methods.named", "rh.Nothing"]
    tree = ast.parse("ask.add_argument('--go-on')\nuse.advance\nuse.go_on")
    assert list(unknown_options(tree)) == ["advance"]
