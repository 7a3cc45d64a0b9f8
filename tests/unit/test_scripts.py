"""Scripts that are not run by the tests (benchmarks, documentation) use names that exist."""

import ast
import importlib
import pathlib

import numpy as np
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


def test_the_comparison_calls_rare_what_the_library_calls_rare(monkeypatch):
    """Found: at least 80 % of the flares in a state with less than 5 % of the minutes (25 % was enough once)."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    comparison = importlib.import_module("comparison")
    assert rh.RareHMM().rare_share == comparison.RARE_SHARE

    def judged(size, hit):
        """A state with ``size`` of 1,000 minutes, and ``hit`` of the ten minutes in flares among them."""
        states, strong = np.zeros(1000, int), np.zeros(1000, bool)
        states[:size], strong[:hit], strong[-(10 - hit) :] = 1, True, hit < 10
        return comparison.has_flares(np.eye(3)[states][:, :2], strong)

    assert judged(49, 8)["found"]
    assert not judged(49, 7)["found"]
    wide = judged(190, 9)
    assert not wide["found"]  # no state is rare
    assert (wide["rare_states"], wide["recall"], wide["most_recall"], wide["most_share"]) == (0, 0, 0.9, 0.19)
