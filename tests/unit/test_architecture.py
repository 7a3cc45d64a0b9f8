"""The house: imports point up the list, numba stays where it belongs, and nothing needs one system."""

import ast
import pathlib

import pytest

import rarehmm

SOURCE = pathlib.Path(rarehmm.__file__).parent

# Data flow down the list; a module may import only what stands above it (or beside it in the same folder).
ORDER = [
    "checks", "progress", "writing", "sources", "tables", "workers", "files", "dispatch", "lanes", "elementary",
    "series", "preparation", "blocks", "drawn", "priors", "margins", "emissions", "automatic", "transitions", "known",
    "model", "samplers", "kernels", "passes", "points", "simulation", "em", "windows", "gradients", "contract",
    "labels", "initial", "regimes", "selection", "mode", "drawing", "importance", "designs", "pool", "exact", "chains",
    "variational", "arviz_adapter", "diagnostics", "methods", "inference", "posterior", "prediction", "streaming",
    "residuals", "replicas", "events", "estimator", "settings", "plots", "report", "runs", "paper", "cli", "__main__",
]  # fmt: skip
MODULES = sorted(SOURCE.rglob("*.py"))

# What Windows, or macOS, does not have; functions of os may stand behind hasattr.
UNIX = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty"}
UNIX_FUNCTIONS = {
    "chown", "fork", "forkpty", "getloadavg", "getpgid", "getuid", "geteuid", "killpg", "mkfifo", "nice", "pread",
    "posix_fadvise", "pwrite", "sched_getaffinity", "sched_setaffinity", "setsid", "sysconf", "uname", "waitpid",
}  # fmt: skip
SYSTEM_FOLDERS = ("/proc", "/dev/", "/tmp", "/sys/", "/etc/")


def room(path):
    """The entry of the list to which a file belongs; None for the package's own front."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return None if first == "__init__" else first


def nodes(path):
    """The syntax tree of a file, node by node."""
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def imported(path):
    """All modules that a file imports, also inside functions."""
    for node in nodes(path):
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


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_needs_one_system(path):
    assert not UNIX.intersection(name.split(".")[0] for name in imported(path))
    tree = list(nodes(path))
    guarded = {node.args[1].value for node in tree if isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr"
               and isinstance(node.args[1], ast.Constant)}  # fmt: skip
    for node in tree:
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os":
            assert node.attr not in UNIX_FUNCTIONS - guarded, f"os.{node.attr} is not on all systems"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not node.value.startswith(SYSTEM_FOLDERS), f"{node.value} is not on all systems"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_text_is_read_and_written_with_an_encoding(path):
    """The default is that of the system: on Windows not UTF-8."""
    for call in (node for node in nodes(path) if isinstance(node, ast.Call)):
        names = {part.attr if isinstance(part, ast.Attribute) else part.id for part in ast.walk(call.func)
                 if isinstance(part, ast.Attribute | ast.Name)}  # fmt: skip
        opens = names & {"open", "read_text", "write_text", "fdopen", "FileHandler"} and not names & {"self", "zarr"}
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        binary = any(isinstance(one, ast.Constant) and one.value in ("rb", "wb", "ab", "r+b") for one in given)
        if opens and not binary:
            assert "encoding" in {keyword.arg for keyword in call.keywords}, f"{ast.unparse(call)} in {path}"


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("from rarehmm import model", test_imports_point_up_the_list),
        ("import numba", test_numba_only_in_the_engine),
        ("import fcntl", test_nothing_needs_one_system),
        ("from resource import getrusage", test_nothing_needs_one_system),
        ("import os\nos.sched_getaffinity(0)", test_nothing_needs_one_system),
        ("status = '/proc/self/status'", test_nothing_needs_one_system),
        ("path.read_text()", test_text_is_read_and_written_with_an_encoding),
        ("(gzip.open if zipped else open)(path, 'rt')", test_text_is_read_and_written_with_an_encoding),
        ("open(path, 'w')", test_text_is_read_and_written_with_an_encoding),
    ],
)
def test_that_these_tests_would_notice(tmp_path, monkeypatch, text, test):
    (tmp_path / "series.py").write_text(text)
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    with pytest.raises(AssertionError):
        test(tmp_path / "series.py")
