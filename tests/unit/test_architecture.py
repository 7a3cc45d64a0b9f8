"""The house: imports point up the list, numba stays where it belongs, and nothing needs one system."""

import ast
import pathlib

import pytest
from architecture import imported, violation

import rarehmm

pytestmark = pytest.mark.plain

SOURCE = pathlib.Path(rarehmm.__file__).parent

MODULES = sorted(SOURCE.rglob("*.py"))

# What Windows, or macOS, does not have; functions of os may stand behind hasattr.
UNIX = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios", "tty"}
UNIX_FUNCTIONS = {
    "chown", "fork", "forkpty", "getloadavg", "getpgid", "getuid", "geteuid", "killpg", "mkfifo", "nice", "pread",
    "posix_fadvise", "pwrite", "sched_getaffinity", "sched_setaffinity", "setsid", "sysconf", "uname", "waitpid",
}  # fmt: skip
SYSTEM_FOLDERS = ("/proc", "/dev/", "/tmp", "/sys/", "/etc/")


def below_source(path):
    """A file as its path below the package, without fronts: ("data", "series")."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def nodes(path):
    """The syntax tree of a file, node by node."""
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_up_the_list(path):
    here = below_source(path)
    if here in ((), ("__main__",)):
        return
    for name in imported(path, SOURCE):
        first, *other = name.split(".")
        if first == "rarehmm" and (other or here[:2] != ("app", "cli")):  # the command line uses the package's front
            assert not (why := violation(here, tuple(other))), why


def test_no_package_imports_itself_in_a_circle():
    """Inside packages, too, where a front (``__init__``) is not part of the order."""
    graph = {}
    for path in MODULES:
        parts = below_source(path)
        graph[".".join(("rarehmm", *parts))] = set(imported(path, SOURCE))
    names = set(graph)
    done = []
    while graph:  # take away what imports nothing that is left
        free = [name for name, others in graph.items() if not (others & names - {name} - set(done))]
        assert free, f"circles among {sorted(graph)}"
        done += free
        graph = {name: others for name, others in graph.items() if name not in free}


def test_every_module_has_a_place():
    for path in MODULES:
        if here := below_source(path):
            assert here == ("__main__",) or not violation(here, here[:1]), here


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_numba_only_in_the_engine(path):
    if below_source(path)[:1] != ("engine",):
        assert not any(name.split(".")[0] in ("numba", "llvmlite") for name in imported(path, SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_nothing_needs_one_system(path):
    assert not UNIX.intersection(name.split(".")[0] for name in imported(path, SOURCE))
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
        ("from rarehmm import Model", test_imports_point_up_the_list),
        ("from rarehmm.model.model import Model", test_imports_point_up_the_list),
        ("from rarehmm.data.files import open_files", test_imports_point_up_the_list),
        ("from rarehmm.nowhere import x", test_imports_point_up_the_list),
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
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "series.py").write_text(text)
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    with pytest.raises(AssertionError):
        test(tmp_path / "data" / "series.py")


def test_that_a_circle_would_be_noticed(tmp_path, monkeypatch):
    paths = [tmp_path / "one.py", tmp_path / "two.py"]
    for path, other in zip(paths, ("two", "one"), strict=True):
        path.write_text(f"from rarehmm.{other} import x")
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    monkeypatch.setitem(globals(), "MODULES", paths)
    with pytest.raises(AssertionError, match="circles"):
        test_no_package_imports_itself_in_a_circle()
