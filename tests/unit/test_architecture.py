"""The house: imports point up the list, and numba stays where it belongs."""

import ast
import pathlib

import pytest

import rarehmm

SOURCE = pathlib.Path(rarehmm.__file__).parent

# Data flow down the list; a module may import only what stands above it (or beside it in the same folder).
ORDER = [
    "checks", "progress", "writing", "sources", "workers", "files", "dispatch", "lanes", "elementary", "series",
    "preparation", "blocks", "drawn", "priors", "margins", "emissions", "automatic", "transitions", "known", "model",
    "samplers", "kernels", "passes", "points", "simulation", "em", "windows", "gradients", "contract", "labels",
    "initial", "regimes", "selection", "mode", "drawing", "importance", "designs", "pool", "exact", "chains",
    "variational", "arviz_adapter", "diagnostics", "methods", "inference", "posterior", "prediction", "streaming",
    "residuals", "replicas", "events", "estimator", "settings", "plots", "report", "runs", "paper", "cli", "__main__",
]  # fmt: skip
MODULES = sorted(SOURCE.rglob("*.py"))


def room(path):
    """The entry of the list to which a file belongs; None for the package's own front."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def imported(path):
    """All modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_up_the_list(path):
    here = room(path)
    if here is None:
        return
    assert here in ORDER, f"{here} has no place in the list"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "rarehmm":
            continue
        if parts[1:] and parts[1] in ORDER:
            assert ORDER.index(parts[1]) <= ORDER.index(here), f"{here} imports {parts[1]}, which stands below it"
        else:
            assert here == "cli", "only the command line uses the package's front"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_numba_only_in_the_engine(path):
    if room(path) not in ("dispatch", "lanes", "elementary", "kernels"):
        assert not any(name.split(".")[0] in ("numba", "llvmlite") for name in imported(path))


def test_that_these_tests_would_notice(tmp_path, monkeypatch):
    (tmp_path / "series.py").write_text("from rarehmm import model\nimport numba\n")
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    for test in (test_imports_point_up_the_list, test_numba_only_in_the_engine):
        with pytest.raises(AssertionError):
            test(tmp_path / "series.py")
