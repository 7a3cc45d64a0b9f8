"""No cached kernel is ever stale: all ways we know to make the cache lie, tried in fresh processes.

Everything happens in a box: a copy of the library that may be edited, a folder of a user's files, and a cache of its
own.  A probe is a fresh process that runs one small kernel, ``log_densities``.  It shows the sum of the densities, the
same sum from the family's functions in plain NumPy (which cannot be stale), and whether the kernel was in the cache.
"""

import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.jit

LIBRARY = pathlib.Path(__file__).parents[2] / "src" / "rarehmm"
BUILT_IN = ("Gaussian()", "Poisson()", "StudentT(4.0)")

PROBE = """
import warnings
import numba
import numpy as np
from rarehmm import Gaussian, Poisson, StudentT
from rarehmm.engine.contracts.family import log_density, prepare
from rarehmm.engine.kernels.messages import Point
from rarehmm.engine.kernels.sequential import log_densities, scratch

warnings.simplefilter("error", numba.errors.NumbaWarning)
y = np.append(np.linspace(0.5, 3.0, 40), np.nan)
phi = np.array([[0.5, 1.0], [2.0, 1.5]])

def point(family):
    return Point(phi, np.array([prepare(family, row) for row in phi]), np.eye(2), np.ones(2))

def show(family):
    out, p = np.empty((len(y), 2)), point(family)
    report(log_densities, (family, p, y[:, None], *scratch(1), out), out)
    print(f"{sum(float(log_density(family, value, tuple(c))) for c in p.c for value in y[:-1]):.12f}")

def report(kernel, args, out):
    before = kernel.stats
    hits, misses = before.cache_hits.total(), before.cache_misses.total()
    kernel(*args)
    hit, miss = kernel.stats.cache_hits.total() > hits, kernel.stats.cache_misses.total() > misses
    print("hit" if hit else "miss" if miss else "kept", f"{out.sum():.12f}", end=" ")
"""

FAMILY = """
import enum, math
from typing import NamedTuple
import numba
import numpy as np
from rarehmm.engine.dispatch import compiled
from rarehmm.engine.contracts.family import log_density, prepare, score, statistics
from rarehmm.engine.lanes import lanewise
{head}

class {name}(NamedTuple):
    {fields}
    def draw(self, rng, states, phi):
        return rng.normal(phi[states, 0])

@compiled(prepare, {name})
def _(family, phi):
    return phi[0], {prepare}

@compiled(log_density, {name})
def _(family, y, c):
    return {density}

@compiled(score, {name})
def _(family, y, c):
    return 2.0 * (y - c[0]), 0.0 * y

@compiled(statistics, {name})
def _(family, y, c):
    return (4.0 * y,)
"""

HELPERS = """
import numba

@numba.njit
def half(z):
    return 0.5 * z

@numba.njit
def third(z):
    return z / 3.0

@numba.njit
def quarter(z):
    return 0.5 * half(z)
"""


class Shown(NamedTuple):
    """What a probe shows: hit, miss or kept (in memory), the kernel's value, and that of plain NumPy."""

    source: str
    value: float
    twin: float

    @property
    def right(self):
        return self.value == pytest.approx(self.twin, rel=1e-10)


class Box(NamedTuple):
    """Copy of the library, a user's files and the cache, all in one place."""

    place: pathlib.Path

    @property
    def library(self):
        return self.place / "library" / "rarehmm"

    @property
    def user(self):
        return self.place / "user"

    @property
    def cache(self):
        return self.place / "cache"

    def entries(self, text=""):
        """The cache's files whose types mention a text."""
        return [file for file in sorted(self.cache.rglob("*.nbc")) if text.encode() in file.read_bytes()]

    def processes(self, *programs, **settings):
        """Run programs at once, each in a process of its own, after the definitions of the probe."""
        path = os.pathsep.join([str(self.library.parent), str(self.user)])
        own = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(self.cache), **settings}
        files = [self.place / f"program{i}.txt" for i in range(len(programs))]
        running = []
        for file, program in zip(files, programs, strict=True):
            file.write_text(PROBE + program)
            with file.open() as text:
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-"],
                        stdin=text,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        text=True,
                        env={**os.environ, **own},
                        cwd=self.place,
                    )
                )
        output = [process.communicate() for process in running]
        return [(process.returncode, *texts) for process, texts in zip(running, output, strict=True)]

    def probe(self, *programs, warning="", **settings):
        """What programs show, one list for all processes; on their error streams at most a warning."""
        shown = []
        for code, out, err in self.processes(*programs, **settings):
            assert code == 0, err[-2000:]
            assert warning in err if warning else not err, err
            assert "Traceback" not in err
            lines = [line.split() for line in out.splitlines()]
            shown += [Shown(source, float(value), float(twin)) for source, value, twin in lines]
        return shown

    def refused(self, *programs):
        """The errors with which programs end."""
        ended = self.processes(*programs)
        assert all(code == 1 for code, _, _ in ended)
        return [err for _, _, err in ended]


def edit(file, old, new):
    """Replace text in a file without a trace in its time stamp."""
    text, stat = file.read_text(), file.stat()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def show(*families):
    """Program that shows families."""
    return "".join(f"\nshow({one})\n" for one in families)


def show_mine(name, settings=""):
    """Program that shows a family of the user's."""
    return f"import my_{name}" + show(f"my_{name}.My_{name}({settings})")


def family(name, head="", fields="columns = 1", prepare="1.0 / phi[1]", density="-(y - c[0]) * c[1]"):
    """Text of a user's family."""
    return FAMILY.format(name=name, head=head, fields=fields, prepare=prepare, density=density)


# ---------------------------------------------------------------- a user's families and how they are edited
class Attack(NamedTuple):
    """A family, and an edit of its file (or of the file of its helpers) after which it needs another kernel."""

    old: str
    new: str
    parts: dict[str, str]
    settings: str = ""
    helpers: str = ""


CLOSURE = (
    "def times(k):\n    @numba.njit\n    def function(z):\n        return k * z\n    return function\ntwo = times(2.0)"
)
ENUMERATION = "class Setting(enum.Enum):\n    A = 2.0"
INSIDE = """
def outer():
    import inside
    @numba.njit
    def function(z):
        return inside.half(z)
    return function
function = outer()
"""
LOSSY = "@numba.njit(fastmath={'reassoc', 'nsz', 'arcp', 'contract'})\ndef lossy(z):\n    return (z + 1e30) - 1e30"
NOWHERE = "space = {}\nexec('def half(z): return 0.5 * z', space)\nhalf = numba.njit(space['half'])"
PAIR = "class Pair(NamedTuple):\n    a: float\n    b: float\nPAIR = Pair(2.0, 3.0)"
TIMES = "@numba.njit\ndef times(z, k=2.0):\n    return k * z"
TWICE = "@numba.vectorize\ndef twice(z):\n    return 2.0 * z"
WAVE = "@numba.njit\ndef wave(z):\n    return 0.5 * math.sin(z)\nwide = lanewise(wave)"
A_B, B_A = "a: float\n    b: float", "b: float\n    a: float"

ATTACKS = {
    "log_density": Attack("-(y", "-3.0 * (y", {}),
    "prepare": Attack("1.0 / phi", "2.0 / phi", {}),
    "score": Attack("2.0 * (y", "3.0 * (y", {}),
    "statistics": Attack("(4.0 * y,)", "(5.0 * y,)", {}),
    "constant": Attack("= 1.0", "= 2.0", {"head": "SHARP = 1.0", "density": "-(y - c[0]) * SHARP"}),
    "array": Attack("([2.0", "([3.0", {"head": "TABLE = np.array([2.0, 1.0])", "density": "-(y - c[0]) * TABLE[0]"}),
    "class_attribute": Attack("scale = 1.0", "scale = 2.0", {"fields": "scale = 1.0"}),
    "order_of_settings": Attack(A_B, B_A, {"fields": A_B, "density": "-(y - family.a) * family.b"}, "a=2.0, b=3.0"),
    "default_argument": Attack("k=2.0", "k=3.0", {"head": TIMES, "density": "-times(y - c[0])"}),
    "closure": Attack("times(2.0)", "times(3.0)", {"head": CLOSURE, "density": "-two(y - c[0])"}),
    "module_in_a_closure": Attack(
        "0.5 * z", "0.8 * z", {"head": INSIDE, "density": "-function(y - c[0])"}, helpers="inside.py"
    ),
    "helper_by_name": Attack(
        "0.5 * z", "0.8 * z", {"head": "from by_name import half", "density": "-half(y - c[0])"}, helpers="by_name.py"
    ),
    "helper_by_module": Attack(
        "0.5 * z", "0.8 * z", {"head": "import module", "density": "-module.half(y - c[0])"}, helpers="module.py"
    ),
    "helper_of_a_helper": Attack(
        "0.5 * z", "0.8 * z", {"head": "import other", "density": "-other.quarter(y - c[0])"}, helpers="other.py"
    ),
    "helper_without_a_module": Attack("0.5 * z", "0.8 * z", {"head": NOWHERE, "density": "-half(y - c[0])"}),
    "helper_two_modules_deep": Attack(
        "z / 3.0", "z / 7.0", {"head": "import pack", "density": "-pack.sub.third(y - c[0])"}, helpers="pack/sub.py"
    ),
    "helper_two_modules_deep_of_the_second_function": Attack(
        "z / 3.0",
        "z / 7.0",
        {"head": "import bag", "prepare": "bag.sub.half(phi[1])", "density": "-bag.sub.third(y - c[0])"},
        helpers="bag/sub.py",
    ),
    "scalar_function_on_lanes": Attack("0.5 * math", "0.8 * math", {"head": WAVE, "density": "wide(y) * c[1]"}),
    "ufunc": Attack("2.0 * z", "3.0 * z", {"head": TWICE, "density": "-(y - c[0]) * twice(c[1])"}),
    "options_of_a_helper": Attack("'reassoc', ", "", {"head": LOSSY, "density": "-(y - c[0]) * lossy(c[1])"}),
    "enumeration": Attack("= 2.0", "= 3.0", {"head": ENUMERATION, "density": "-(y - c[0]) * Setting.A.value"}),
    "order_in_a_constant": Attack(A_B, B_A, {"head": PAIR, "density": "-(y - c[0]) * PAIR.a"}),
    "type_constant": Attack("float32", "float64", {"head": "KIND = numba.float32", "density": "-y * KIND(c[1])"}),
}
BY_DAY = {
    "log_density", "score", "constant", "class_attribute", "order_of_settings", "closure", "module_in_a_closure",
    "helper_by_module", "helper_of_a_helper", "scalar_function_on_lanes", "options_of_a_helper", "array",
}  # fmt: skip
if os.environ.get("HYPOTHESIS_PROFILE") != "nightly":
    ATTACKS = {name: attack for name, attack in ATTACKS.items() if name in BY_DAY}
EQUAL = {"score", "statistics", "class_attribute", "order_of_settings"}  # attacks after which the densities are equal
HARMLESS = (  # edits outside of compiled functions
    ("import enum", "# a comment, and moved lines\n\n\ndef unrelated():\n    return 1.0\n\nimport enum"),
    ("rng.normal(phi", "2.0 * rng.normal(phi"),
)


def write_families(box):
    for name, attack in ATTACKS.items():
        if attack.helpers:
            helpers = box.user / attack.helpers
            helpers.parent.mkdir(parents=True, exist_ok=True)
            helpers.write_text(HELPERS)
            if helpers.parent != box.user:
                (helpers.parent / "__init__.py").write_text("from . import sub\n")
        (box.user / f"my_{name}.py").write_text(family(f"My_{name}", **attack.parts))
    (box.user / "my_harmless.py").write_text(family("My_harmless"))


def show_all(box):
    """What all families show, by name, in two processes at once."""
    programs = {name: show_mine(name, attack.settings) for name, attack in ATTACKS.items()}
    programs |= {"harmless": show_mine("harmless"), **{one: show(one) for one in BUILT_IN}}
    halves = list(programs)[::2], list(programs)[1::2]
    shown = box.probe(*("".join(programs[name] for name in half) for half in halves))
    return dict(zip([*halves[0], *halves[1]], shown, strict=True))


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A box after its first processes, a copy to restore it from, and what all families showed, by name."""
    box = Box(tmp_path_factory.mktemp("cache") / "box")
    shutil.copytree(LIBRARY, box.library, ignore=shutil.ignore_patterns("__pycache__"))
    box.user.mkdir()
    write_families(box)
    shown = show_all(box)
    kept = box.place.with_name("kept")
    shutil.copytree(box.place, kept)
    return box, kept, shown


@pytest.fixture(scope="module")
def before(started):
    return started[2]


def restored(started):
    """The box as its first processes left it, in the same place: numba names the folders in its cache after that."""
    box, kept, _ = started
    shutil.rmtree(box.place)
    shutil.copytree(kept, box.place)
    return box


@pytest.fixture(scope="module")
def after(started):
    """What all families show after all edits, by name."""
    box = restored(started)
    for name, attack in ATTACKS.items():
        edit(box.user / (attack.helpers or f"my_{name}.py"), attack.old, attack.new)
    for old, new in HARMLESS:
        edit(box.user / "my_harmless.py", old, new)
    return show_all(box)


@pytest.fixture
def box(started):
    return restored(started)


@pytest.fixture
def empty(box):
    """A box with nothing in its cache."""
    shutil.rmtree(box.cache)
    return box


# ---------------------------------------------------------------- first and second processes
def test_the_first_process_compiles(before):
    assert all(shown.source == "miss" and shown.right for shown in before.values())


def test_the_second_process_finds_all_families_in_the_cache(box, before):
    assert show_all(box) == {name: shown._replace(source="hit") for name, shown in before.items()}


def test_the_library_does_not_need_the_files_of_a_user(box, before):
    shutil.rmtree(box.user)
    (shown,) = box.probe(show("Gaussian()"))
    assert shown == before["Gaussian()"]._replace(source="hit")


@pytest.mark.nightly
def test_two_processes_at_once_compile_the_same(empty, before):
    """In ``started`` they compile the same kernel for different families."""
    assert all(shown.right for shown in empty.probe(show("Gaussian()"), show("Gaussian()")))
    assert empty.probe(show("Gaussian()")) == [before["Gaussian()"]._replace(source="hit")]


# ---------------------------------------------------------------- edits
@pytest.mark.parametrize("name", ATTACKS)
def test_an_edited_family_is_compiled_again(before, after, name):
    assert after[name].source == "miss"
    assert after[name].right
    assert (after[name].value == before[name].value) == (name in EQUAL)


def test_an_edit_outside_of_compiled_functions_costs_nothing(before, after):
    assert after["harmless"] == before["harmless"]._replace(source="hit")


def test_an_edit_of_a_family_of_the_library_and_undone(box, before):
    file, old = box.library / "emissions" / "gaussian.py", before["Gaussian()"]
    edit(file, "c[2] - 0.5", "c[2] - 0.7")
    (shown,) = box.probe(show("Gaussian()"))
    assert shown.source == "miss"
    assert shown.right
    assert shown.value != old.value
    edit(file, "c[2] - 0.7", "c[2] - 0.5")
    assert box.probe(show("Gaussian()")) == [old._replace(source="hit")]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("engine/lanes.py", 'sub, "fsub"', 'sub, "fadd"'),
        ("engine/kernels/sequential.py", "k)), 0.0))", "k)), 9.0))"),
    ],
)
def test_an_edit_of_the_engine_is_seen_at_equal_size_and_time_stamp(box, before, file, old, new):
    edit(box.library / file, old, new)
    (shown,) = box.probe(show("Gaussian()"))
    assert shown.source == "miss"
    assert shown.value != before["Gaussian()"].value


def test_every_file_of_the_engine_counts(box):
    box.probe("""
import pathlib
import rarehmm
from rarehmm.engine.dispatch.fingerprints import PACKAGE, package_digest
files = sorted((pathlib.Path(rarehmm.__file__).parent / "engine").rglob("*.py"))
assert len(files) > 12
for file in files:
    text = file.read_text()
    file.write_text(text + "# edited")
    assert package_digest() != PACKAGE, file
    file.write_text(text)
assert package_digest() == PACKAGE
""")


# ---------------------------------------------------------------- families of a session
@pytest.mark.nightly
def test_a_family_of_a_session_is_cached_until_it_is_edited(box, before):
    text = family("Mine", head="SHARP = 1.0", density="-(y - c[0]) * SHARP")
    (first,) = box.probe(text + show("Mine()"))
    changed = text.replace("SHARP = 1.0", "SHARP = 3.0")
    second, other, edited = box.probe(text + show("Mine()", "Gaussian()"), changed + show("Mine()"))
    assert first.source == edited.source == "miss"
    assert first.right
    assert second == first._replace(source="hit")
    assert other == before["Gaussian()"]._replace(source="hit")
    assert edited.right
    assert edited.value != first.value


def test_classes_of_one_name_are_different_families(box):
    """A class defined again in a session, and one with the name of a class of the library."""
    (box.user / "mine.py").write_text(family("Gaussian", density="-7.0 * (y - c[0])"))
    again = "Old = Mine\n" + family("Mine", density="-3.0 * (y - c[0])")
    shown = box.probe(
        family("Mine")
        + show("Mine()")
        + again
        + show("Mine()", "Old()", "Gaussian()")
        + "import mine"
        + show("mine.Gaussian()")
    )
    assert all(one.right for one in shown)
    assert len({one.value for one in shown}) == 4


@pytest.mark.nightly
def test_helpers_of_one_name_in_the_cache_and_in_the_session(box):
    """Numba gives both the same symbol in machine code; as they call themselves they are not inlined."""
    head = "@numba.njit\ndef wave(z):\n    return wave(0.5 * z) + z if z > 0.1 else 0.5"
    mine = family("Mine", head=head, density="y * wave(c[1])") + show("Mine()")
    yours = family("Yours", head=head.replace("+ z", "- z"), density="y * wave(c[1])") + show("Yours()")
    box.probe(mine)
    first, second = box.probe(mine + yours)
    assert (first.source, second.source) == ("hit", "miss")
    assert first.right
    assert second.right


SLOPES = """
from rarehmm.engine.dispatch import kernel
from rarehmm.engine.contracts.family import prepare, score
from rarehmm.engine.kernels.messages import observation
from rarehmm.engine.lanes import store, take

@kernel
def slopes(family, point, y, out):
    c = take(prepare(family, point.phi[0]), point.c, 0)
    store(out, (0,), score(family, observation(family, y, 0), c)[0])
"""
SHOW_SLOPES = """
from slopes import slopes
from rarehmm.engine.contracts.family import score
family, (data, out) = mine.Mine(), scratch(1)
data[0, 0] = y[:16]
report(slopes, (family, point(family), data, out), out)
print(score(family, y[:16], tuple(point(family).c[0]))[0].sum())
"""


@pytest.mark.nightly
def test_a_constant_changed_in_a_session_does_not_reach_the_next(box):
    """The family is frozen by its first kernel; the second one compiles its score after the change."""
    (box.user / "mine.py").write_text(family("Mine").replace("2.0 * (y", "SHARP * (y") + "\nSHARP = 2.0\n")
    (box.user / "slopes.py").write_text(SLOPES)
    [(_, first, _)] = box.processes("import mine" + show("mine.Mine()") + "mine.SHARP = 7.0\n" + SHOW_SLOPES)
    assert first.startswith("miss")  # what comes after the change may be refused, or not be saved
    (shown,) = box.probe("import mine\n" + SHOW_SLOPES)
    assert shown.right


OVERLOAD = """
from numba.extending import overload
def twice(z):
    return 2.0 * z
@overload(twice)
def _(z):
    return lambda z: z + z
"""


@pytest.mark.nightly
def test_an_edited_overload_of_a_helper_is_compiled_again(box):
    (box.user / "mine.py").write_text(family("Mine", head=OVERLOAD, density="-twice(y - c[0])"))
    (first,) = box.probe("import mine" + show("mine.Mine()"))
    assert first.right
    assert box.probe("import mine" + show("mine.Mine()")) == [first._replace(source="hit")]
    edit(box.user / "mine.py", "z + z", "z - 7.0")
    (shown,) = box.probe("import mine" + show("mine.Mine()"))
    assert shown.source == "miss"
    assert shown.value != first.value


@pytest.mark.nightly
def test_a_kernel_in_the_file_of_a_user_is_compiled_again(box):
    (box.user / "mine.py").write_text(family("Mine"))
    (box.user / "slopes.py").write_text("SHARP = 1.0\n" + SLOPES.replace("score(family", "SHARP * score(family"))
    first, second = (box.probe("import mine\n" + SHOW_SLOPES)[0] for _ in range(2))
    assert first.right
    assert second == first._replace(source="hit")
    edit(box.user / "slopes.py", "SHARP = 1.0", "SHARP = 3.0")
    (shown,) = box.probe("import mine\n" + SHOW_SLOPES)
    assert shown.source == "miss"
    assert shown.value != first.value


# ---------------------------------------------------------------- refusals
def test_a_function_attached_after_first_use_is_refused(box):
    late = "@compiled(score, Mine)\ndef _(family, y, c):\n    return y, y\n"
    (error,) = box.refused(family("Mine") + "numba.typeof(Mine())\n" + late)
    assert "TypeError: Mine has been used in a compiled kernel already; define the class again" in error


def test_a_model_refuses_a_family_without_a_function_in_words(box):
    functions = "prepare", "log_density", "score"
    program = "from rarehmm import Model, paper_priors\n"
    for one in functions:
        text = family("Mine", fields="parameters = Gaussian.parameters\n    domain = Gaussian.domain")
        program += text.replace(f"@compiled({one}, Mine)", "").replace("Mine", f"No_{one}")
        program += f"try:\n    Model(No_{one}(), 2, paper_priors(Gaussian()))\nexcept TypeError as e:\n    print(e)\n"
    [(_, out, _)] = box.processes(program)
    wanted = [f"No_{one} has no {one}: attach one with @compiled({one}, ...)" for one in functions]
    assert out.splitlines() == wanted


def test_a_family_that_no_longer_compiles_is_not_taken_from_the_cache(box):
    edit(box.user / "my_constant.py", "@compiled(log_density, My_constant)", "")
    edit(box.user / "my_array.py", "columns = 1", "columns = 2")  # y is a tuple then
    assert all("TypingError" in error for error in box.refused(show_mine("constant"), show_mine("array")))


# ---------------------------------------------------------------- damaged, swapped and unwritable files
def test_damaged_files_are_compiled_again(box, before):
    families = ("Gaussian()", "Poisson()", "StudentT(4.0)", "constant")
    program = show(*BUILT_IN) + show_mine("constant")
    names = "gaussian.Gaussian[", "poisson.Poisson[", "student_t.StudentT[", "my_constant.My_constant["
    (empty,), (short,), (wrong,), (garbage,) = map(box.entries, names)
    empty.write_bytes(b"")
    short.write_bytes(short.read_bytes()[:-1000])
    wrong.write_bytes(one_wrong_bit(wrong.read_bytes()))
    garbage.write_bytes(b"garbage" * 1000)
    assert box.probe(program) == [before[one] for one in families]
    assert box.probe(program) == [before[one]._replace(source="hit") for one in families]


def one_wrong_bit(data):
    """In a constant of the machine code of a logarithm."""
    good = struct.pack("<d", math.log(2.0))
    assert good in data
    return data.replace(good, bytes([*good[:6], good[6] ^ 1, good[7]]))


def test_files_of_two_families_swapped(box, before):
    swap(*box.entries("gaussian.Gaussian["), *box.entries("poisson.Poisson["))
    assert box.probe(show("Gaussian()", "Poisson()")) == [before["Gaussian()"], before["Poisson()"]]


@pytest.mark.nightly
def test_files_of_two_versions_of_the_library_swapped(box, before):
    file = box.library / "engine" / "kernels" / "sequential.py"
    edit(file, "k)), 0.0))", "k)), 9.0))")
    box.probe(show("Gaussian()"))
    edit(file, "k)), 9.0))", "k)), 0.0))")
    swap(*box.entries("gaussian.Gaussian["))
    assert box.probe(show("Gaussian()")) == [before["Gaussian()"]]


def swap(first, second):
    name = first.with_suffix(".swap")
    first.rename(name)
    second.rename(first)
    name.rename(second)


def test_nowhere_to_write_to(box, before):
    file = box.library / "engine" / "kernels" / "__pycache__"  # where numba looks if the others fail
    file.touch()
    settings = {"NUMBA_CACHE_DIR": str(file / "cache"), "XDG_CACHE_HOME": str(file / "cache")}
    (shown,) = box.probe(show("Gaussian()"), warning="Set NUMBA_CACHE_DIR to a writable folder", **settings)
    assert shown == before["Gaussian()"]


@pytest.mark.nightly
def test_a_cache_lost_after_import(box, before):
    lose = f"import pathlib, shutil\nshutil.rmtree({str(box.cache)!r})\npathlib.Path({str(box.cache)!r}).touch()"
    (shown,) = box.probe(lose + show("Gaussian()"), warning="a compiled kernel could not be saved")
    assert shown == before["Gaussian()"]
