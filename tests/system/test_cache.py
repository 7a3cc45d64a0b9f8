"""No cached kernel is ever stale: all ways we know to make the cache lie, tried in fresh processes.

Everything happens in a box: a copy of the library that may be edited, a folder of user's families, and a cache of its
own.  A probe is a fresh process that runs one small kernel, ``log_densities``, and prints the sum of the densities, the
same sum from the family's functions in plain NumPy (which cannot be stale), and whether the kernel was in the cache.
"""

import os
import pathlib
import shutil
import subprocess
import sys
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.jit

LIBRARY = pathlib.Path(__file__).parents[2] / "src" / "rarehmm"

PROBE = """
import warnings
import numba
import numpy as np
from rarehmm import Gaussian, Poisson, StudentT
from rarehmm.emissions import log_density, prepare
from rarehmm.kernels.messages import Point
from rarehmm.kernels.sequential import log_densities, scratch

warnings.simplefilter("error", numba.errors.NumbaWarning)
phi = np.array([[0.5, 1.0], [2.0, 1.5]])
y = np.append(np.linspace(0.5, 3.0, 40), np.nan)

def show(family):
    c = np.array([prepare(family, row) for row in phi])
    out = np.empty((len(y), 2))
    stats = log_densities.stats
    hits, misses = stats.cache_hits.total(), stats.cache_misses.total()
    log_densities(family, Point(phi, c, np.eye(2), np.ones(2)), y[:, None], *scratch(1), out)
    stats = log_densities.stats
    source = "hit" if stats.cache_hits.total() > hits else "miss" if stats.cache_misses.total() > misses else "kept"
    twin = sum(log_density(family, y[:-1], tuple(row)).sum() for row in c)
    print(f"{out.sum():.12f} {twin:.12f} {source}")
"""

FAMILY = """
import enum, math, numba
from typing import NamedTuple
import numpy as np
from rarehmm.dispatch import compiled
from rarehmm.emissions import log_density, prepare, score, statistics
from rarehmm.lanes import lanewise
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
def fourth(z):
    return 0.5 * half(z)
"""


class Shown(NamedTuple):
    """What a probe says of a family: the kernel's value, that of plain NumPy, and hit, miss or kept (in memory)."""

    value: float
    twin: float
    source: str

    @property
    def right(self):
        return self.value == pytest.approx(self.twin, rel=1e-10)


class Box(NamedTuple):
    """Copy of the library, user's files and cache, in ``place``."""

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

    def entries(self):
        return sorted(self.cache.rglob("*.nbc"))

    def processes(self, *programs, **settings):
        """Run programs after the probe's definitions, all at once; returns what ended, with its output."""
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (self.library.parent, self.user))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(self.cache),
            **{name: str(value) for name, value in settings.items()},
        }
        pipe = subprocess.PIPE
        options = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True, "env": env, "cwd": self.place}
        started = [subprocess.Popen([sys.executable, "-"], **options) for _ in programs]
        for process, program in zip(started, programs, strict=True):
            process.stdin.write(PROBE + program)
            process.stdin.close()
            process.stdin = None
        ended = [(process, *process.communicate()) for process in started]
        return [subprocess.CompletedProcess((), process.returncode, out, err) for process, out, err in ended]

    def probe(self, *programs, **settings):
        """What the programs show, process by process, one list for all."""
        ended = self.processes(*programs, **settings)
        for process in ended:
            assert process.returncode == 0, process.stderr[-2000:]
            assert "Traceback" not in process.stderr
        lines = [line.split() for process in ended for line in process.stdout.splitlines()]
        return [Shown(float(value), float(twin), source) for value, twin, source in lines]

    def refused(self, program):
        """The last line of the error with which a program ends."""
        (process,) = self.processes(program)
        assert process.returncode == 1
        return process.stderr.strip().splitlines()[-1]


def edit(file, old, new):
    """Replace text in a file without a trace in its time stamp."""
    text, stat = file.read_text(), file.stat()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def family(name, head="", fields="columns = 1", prepare="1.0 / phi[1]", density="-(y - c[0]) * c[1]"):
    """Text of a user's family."""
    return FAMILY.format(name=name, head=head, fields=fields, prepare=prepare, density=density)


# ---------------------------------------------------------------- edits of a user's files
class Attack(NamedTuple):
    """A family, and an edit of its file (or of ``file``) that must lead to another kernel."""

    old: str
    new: str
    parts: dict[str, str]
    make: str = "{name}()"
    file: str = "{name}.py"

    def text(self, name):
        return family(name, **self.parts)

    def program(self, name):
        return f"from {name} import {name}\nshow({self.make.format(name=name)})\n"


WAVE = "@numba.njit\ndef wave(z):\n    return 0.5 * math.sin(z)\nwide = lanewise(wave)"
CLOSURE = "def times(k):\n    @numba.njit\n    def function(z):\n        return k * z\n    return function\ntwo = times(2.0)"
DEFAULT = "@numba.njit\ndef times(z, k=2.0):\n    return k * z"
PAIR = "class Pair(NamedTuple):\n    a: float\n    b: float\nPAIR = Pair(2.0, 3.0)"
LOSE = "@numba.njit(fastmath=True)\ndef lose(z):\n    return (z + 1e30) - 1e30"
UFUNC = "@numba.vectorize\ndef double(z):\n    return 2.0 * z"

ATTACKS = {
    "log_density": Attack("-(y", "+(y", {}),
    "prepare": Attack("1.0 / phi", "2.0 / phi", {}),
    "score": Attack("2.0 * (y", "3.0 * (y", {}),
    "statistics": Attack("(4.0 * y,)", "(5.0 * y,)", {}),
    "constant": Attack("SHARP = 1.0", "SHARP = 2.0", {"head": "SHARP = 1.0", "density": "-(y - c[0]) * SHARP"}),
    "array": Attack("([2.0", "([3.0", {"head": "TABLE = np.array([2.0, 1.0])", "density": "-(y - c[0]) * TABLE[0]"}),
    "class_attribute": Attack("scale = 1.0", "scale = 2.0", {"fields": "scale = 1.0"}),
    "field_order": Attack(
        "a: float\n    b: float",
        "b: float\n    a: float",
        {"fields": "a: float\n    b: float", "density": "-(y - family.a) * family.b"},
        make="{name}(a=2.0, b=3.0)",
    ),
    "default_argument": Attack("k=2.0", "k=3.0", {"head": DEFAULT, "density": "-times(y - c[0])"}),
    "closure": Attack("times(2.0)", "times(3.0)", {"head": CLOSURE, "density": "-two(y - c[0])"}),
    "helper_by_name": Attack(
        "0.5 * z", "0.8 * z", {"head": "from by_name import half", "density": "-half(y - c[0])"}, file="by_name.py"
    ),
    "helper_by_module": Attack(
        "0.5 * z", "0.8 * z", {"head": "import by_module", "density": "-by_module.half(y - c[0])"}, file="by_module.py"
    ),
    "helper_of_helper": Attack(
        "0.5 * z", "0.8 * z", {"head": "import by_other", "density": "-by_other.fourth(y - c[0])"}, file="by_other.py"
    ),
    "helper_two_modules_deep": Attack(
        "z / 3.0", "z / 7.0", {"head": "import pack", "density": "-pack.sub.third(y - c[0])"}, file="pack/sub.py"
    ),
    "helper_two_modules_deep_of_the_second_function": Attack(
        "z / 3.0",
        "z / 7.0",
        {"head": "import bag", "prepare": "bag.sub.half(phi[1])", "density": "-bag.sub.third(y - c[0])"},
        file="bag/sub.py",
    ),
    "scalar_function_on_lanes": Attack("0.5", "0.8", {"head": WAVE, "density": "wide(y) * c[1]"}),
    "ufunc": Attack("2.0 * z", "3.0 * z", {"head": UFUNC, "density": "-(y - c[0]) * double(c[1])"}),
    "options_of_a_helper": Attack("(fastmath=True)", "", {"head": LOSE, "density": "-(y - c[0]) * lose(c[1])"}),
    "enumeration": Attack(
        "A = 2.0",
        "A = 3.0",
        {"head": "class Setting(enum.Enum):\n    A = 2.0", "density": "-(y - c[0]) * Setting.A.value"},
    ),
    "fields_of_a_constant": Attack(
        "a: float\n    b: float", "b: float\n    a: float", {"head": PAIR, "density": "-(y - c[0]) * PAIR.a"}
    ),
    "type_constant": Attack(
        "numba.float32", "numba.float64", {"head": "KIND = numba.float32", "density": "-(y - c[0]) * KIND(c[1])"}
    ),
}
UNSEEN = {"score", "statistics", "class_attribute"}  # attacks that do not change the densities
HARMLESS = {  # edits that need no other kernel
    "comment": ("import enum", "# a comment\n\n\nimport enum"),
    "simulation": ("rng.normal(phi", "2.0 * rng.normal(phi"),
    "unrelated_code": ("import enum", "def unrelated():\n    return 1.0\nimport enum"),
}
BUILT_IN = ("Gaussian()", "Poisson()", "StudentT(4.0)")


def show(*families):
    return "".join(f"show({one})\n" for one in families)


def at_once(box, programs):
    """What many programs show, name by name, run in two processes."""
    first, second = list(programs)[::2], list(programs)[1::2]
    shown = box.probe(*("".join(programs[name] for name in half) for half in (first, second)))
    return dict(zip(first + second, shown, strict=True))


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A box after its first processes: the box, a copy to restore it from, and what was shown, by family."""
    box = Box(tmp_path_factory.mktemp("cache") / "box")
    shutil.copytree(LIBRARY, box.library, ignore=shutil.ignore_patterns("__pycache__"))
    for name, attack in ATTACKS.items():
        helpers = box.user / attack.file.format(name=name)
        helpers.parent.mkdir(parents=True, exist_ok=True)
        helpers.write_text(HELPERS)
        if helpers.parent != box.user:
            (helpers.parent / "__init__.py").write_text("from . import sub\n")
        (box.user / f"{name}.py").write_text(family(name, **attack.parts))
    for name in HARMLESS:
        (box.user / f"{name}.py").write_text(family(name))
    shown = at_once(box, {**{one: show(one) for one in BUILT_IN}, **programs(ATTACKS), **programs(HARMLESS)})
    kept = box.place.with_name("kept")
    shutil.copytree(box.place, kept)
    return box, kept, shown


@pytest.fixture
def box(first):
    """The box as its first processes left it, in the same place (numba's folders are named after it)."""
    box, kept, _ = first
    shutil.rmtree(box.place)
    shutil.copytree(kept, box.place)
    return box


@pytest.fixture(scope="module")
def edited(first):
    """What second processes show after all edits, by family."""
    box, kept, _ = first
    shutil.rmtree(box.place)
    shutil.copytree(kept, box.place)
    for name, attack in ATTACKS.items():
        edit(box.user / attack.file.format(name=name), attack.old, attack.new)
    for name, (old, new) in HARMLESS.items():
        edit(box.user / f"{name}.py", old, new)
    return at_once(box, {**programs(ATTACKS), **programs(HARMLESS)})


def programs(names):
    """Programs that show user's families."""
    return {name: f"from {name} import {name}\nshow({make(name)})\n" for name in names}


def make(name):
    return ATTACKS[name].make.format(name=name) if name in ATTACKS else f"{name}()"
