"""The same answers, to rounding, on processors with narrower vectors and without the compiler.

What differs: products and sums are fused where the processor can (AVX2, AVX-512) and rounded twice where it cannot
(SSE2), sums over lanes and over steps are taken in another order, and without the compiler exponentials and logarithms
are NumPy's.  Each costs a unit in the last place, 1e-16, of the largest term of a sum; sums here have some hundred
terms.
"""

import os
import pathlib
import platform
import re
import subprocess
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__ as numpys

pytestmark = [
    pytest.mark.jit,
    pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="limits processors of x86-64"),
]
TESTS = pathlib.Path(__file__).parents[1]
ROUNDING = 1e-13  # of the largest number of an answer

ABOVE_AVX2 = [name for name in numpys if "AVX512" in name or name == "X86_V4"]
UNITS = {  # what limits numba, what limits NumPy, and registers that must not be in the machine code
    "AVX2": ({"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": ""}, ABOVE_AVX2, ("zmm",)),
    "SSE2": ({"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""}, numpys, ("zmm", "ymm", "vfmadd")),
}


def settings(unit):
    """Variables of a process in which numba and NumPy use no more than a vector unit."""
    needed = {"AVX2": ("avx2", "fma"), "SSE2": ("sse2",)}[unit]
    if not all(llvm.get_host_cpu_features().get(name) for name in needed):
        pytest.skip(f"this processor has no {unit}")
    limits, disabled, _ = UNITS[unit]
    return {**limits, "NPY_DISABLE_CPU_FEATURES": " ".join(disabled)}


def process(*command, **more):
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, env={**os.environ, **more}, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def answers(path, *parts, **more):
    process(TESTS / "portable_answers.py", path, *parts, **more)
    with np.load(path) as file:
        return dict(file)


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    return answers(tmp_path_factory.mktemp("ordinary") / "answers.npz", "all")


def check_same(found, ordinary):
    for name, values in found.items():
        expected = ordinary[name]
        size = np.abs(expected) if name.startswith("lanes") else np.abs(expected).max()
        off = float(np.max(np.abs(values - expected) / size))
        assert off < ROUNDING, f"{name} differ by {off:.1e}"


at_night = pytest.mark.nightly


@pytest.mark.parametrize(
    ("unit", "parts"),
    [
        pytest.param("SSE2", (), marks=at_night),
        pytest.param("SSE2", ("all",), marks=at_night),
        pytest.param("AVX2", ("all",), marks=at_night),
    ],
)
def test_the_same_answers_with_narrower_vectors(ordinary, tmp_path, unit, parts):
    """Windows and chains take longest to compile: they are left to the night."""
    found = answers(tmp_path / "answers.npz", *parts, **settings(unit))
    assert ("moves of a chain" in found) == bool(parts)
    check_same(found, ordinary)


def test_the_same_answers_without_the_compiler(ordinary, tmp_path):
    found = answers(tmp_path / "answers.npz", "all", NUMBA_DISABLE_JIT="1")
    assert found.keys() == ordinary.keys()
    check_same(found, ordinary)


def test_that_these_tests_would_notice(ordinary):
    for name, values in ordinary.items():
        wrong = values + 1e-12 * np.abs(values).max()
        with pytest.raises(AssertionError, match=f"{name} differ by"):
            check_same({name: wrong}, ordinary)


# ---------------------------------------------------------------- what is compiled, and kept
ONE_KERNEL = """
import sys
sys.path.insert(0, sys.argv[1])
from portable_answers import functions, functions_of_lanes
functions_of_lanes()
hits = functions.stats.cache_hits.total()
print(hits, *(functions.inspect_asm(one) for one in functions.signatures if not hits))
"""


def one_kernel(**more):
    """Whether a kernel was in the cache, and its machine code if it was not."""
    hits, _, code = process("-c", ONE_KERNEL, TESTS, **more).partition(" ")
    return bool(int(hits)), code


@pytest.mark.nightly
def test_limits_take_effect_and_machines_of_two_kinds_may_share_a_cache(tmp_path):
    own = {"NUMBA_CACHE_DIR": str(tmp_path)}
    assert not one_kernel(**own)[0]
    for unit, (_, _, forbidden) in UNITS.items():
        found, code = one_kernel(**own, **settings(unit))
        assert not found, f"code of another processor was taken for {unit}"
        assert "xmm" in code
        assert not [register for register in forbidden if register in code]
    assert one_kernel(**own, **settings(unit))[0]


ELSEWHERE = """
import sys
import llvmlite.binding as llvm
sys.path.insert(0, sys.argv[1])
from portable_answers import functions, functions_of_lanes
functions_of_lanes()
(text,) = functions.inspect_llvm().values()
lines = [line for line in text.splitlines() if not line.startswith("target ")]
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
machine = llvm.Target.from_triple(sys.argv[2]).create_target_machine()
print(machine.emit_assembly(llvm.parse_assembly("\\n".join([f'target triple = "{sys.argv[2]}"', *lines]))))
"""


def test_lanes_are_compiled_for_arm(tmp_path):
    """In a process of its own, for LLVM aborts where it cannot; before the optimiser, which works for this machine."""
    code = process("-c", ELSEWHERE, TESTS, "aarch64-unknown-linux-gnu", NUMBA_CACHE_DIR=str(tmp_path), NUMBA_OPT="0")
    assert "fmla" in code  # vectors of two, fused
    assert not re.search(r"bl\s+_?(fma|rint|sqrt|exp|log)\b", code)  # one number after the other
