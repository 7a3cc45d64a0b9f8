"""Fingerprints see what a function does and reaches, and nothing else; parts of kernels are compiled once."""

import collections
import functools
import types

import numba
import numpy as np
import pytest
from numba.core import event

from rarehmm.engine.dispatch import inner, specialise
from rarehmm.engine.dispatch.disk import Entries
from rarehmm.engine.dispatch.fingerprints import fingerprint, names


def function(source, **space):
    """The function ``f`` defined by ``source`` among the globals ``space``."""
    space.setdefault("__name__", "somewhere")
    exec(source, space)
    return space["f"]


PLAIN = "def f(y): return 2.0 * y"
CALL = "def f(y): return g(y)"


def test_comments_places_and_names_of_others_do_not_count():
    same = function("# a comment\n\n\ndef f(y): return 2.0 * y  # and another\ndef g(y): return 3.0", SHARP=7)
    assert fingerprint(function(PLAIN)) == fingerprint(same)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (function(PLAIN), function("def f(y): return 3.0 * y")),
        (function(PLAIN), function("def f(y): return 2.0 + y")),
        (function("def f(y, a=1.0): return a * y"), function("def f(y, a=2.0): return a * y")),
        (function("def f(y): return A * y", A=1.0), function("def f(y): return A * y", A=2.0)),
        (function("def f(y): return A * y", A=1.0), function("def f(y): return A * y", A=1)),
        (function("def f(y): return A[0] * y", A=np.ones(2)), function("def f(y): return A[0] * y", A=np.zeros(2))),
        (function("def f(y): return A[0] * y", A=(1, 2)), function("def f(y): return A[0] * y", A=(1, 3))),
        (function("def f(y): return y in {1, 2}"), function("def f(y): return y in {1, 3}")),
        (function(CALL, g=function(PLAIN)), function(CALL, g=function("def f(y): return y"))),
        (functools.partial(function(PLAIN), 1), functools.partial(function(PLAIN), 2)),
        (function("def f(y): return (lambda z: 2 * z)(y)"), function("def f(y): return (lambda z: 3 * z)(y)")),
    ],
)  # fmt: skip
def test_what_a_function_does_and_reaches_counts(before, after):
    assert fingerprint(before) != fingerprint(after)


def module(name, **content):
    made = types.ModuleType(name)
    vars(made).update(content)
    return made


def test_helpers_in_modules_of_modules_count():
    def through(helper):
        return function("def f(y): return a.b.g(y)", a=module("a", b=module("b", g=helper)))

    assert fingerprint(through(function(PLAIN))) != fingerprint(through(function("def f(y): return y")))
    assert fingerprint(through(function(PLAIN))) == fingerprint(through(function(PLAIN)))


def test_closures_count_and_recursion_ends():
    def scaled(a):
        return lambda y: a * y

    assert fingerprint(scaled(1.0)) != fingerprint(scaled(2.0))
    assert fingerprint(scaled(1.0)) == fingerprint(scaled(1.0))
    endless = function("def f(y): return f(y - 1) if y > 0 else y")
    assert fingerprint(endless)
    assert names(endless.__code__) == ["f"]


def test_libraries_count_by_version_only():
    assert fingerprint(function("def f(y): return np.exp(y)", np=np))
    assert fingerprint(np.exp) != fingerprint(np.log)


# ---------------------------------------------------------------- parts of kernels
class Compilations(event.Listener):
    def __init__(self):
        self.names = collections.Counter()

    def on_start(self, event):
        self.names[event.data["dispatcher"].py_func.__name__] += 1

    def on_end(self, event):
        pass


@pytest.mark.jit
def test_parts_are_compiled_once_whoever_calls_them():
    """By numba's own means: once more for callers with other options, and for each literal."""

    def twice(x):
        return 2 * x

    specialise(twice, lambda kind: twice)

    @inner
    def part(x):
        return twice(x) + 1

    @numba.njit(nogil=True)
    def one(x):
        return part(x) + twice(x) + part(3)

    @numba.njit(error_model="numpy")
    def other(x):
        return part(x) - twice(5)

    heard = Compilations()
    event.register("numba:compile", heard)
    try:
        assert (one(1), other(1)) == (12, -7)
    finally:
        event.unregister("numba:compile", heard)
    assert heard.names == {"one": 1, "other": 1, "part": 1, "twice": 1}
    (made,) = part.overloads.values()
    assert made.library.get_pointer_to_function(made.fndesc.llvm_func_name) == 0  # no machine code of its own


def test_parts_are_plain_functions_in_python():
    @inner
    def part(x):
        return x.upper()

    assert part("a") == "A"


@pytest.mark.jit
def test_parts_may_be_compiled_already_and_may_raise():
    @numba.njit
    def halved(x):
        if x < 0:
            raise ValueError("no halves below zero")
        return x / 2

    def half(x):
        return halved(x)

    specialise(half, lambda kind: halved)

    @numba.njit
    def quarter(x):
        return half(half(x))

    assert quarter(8.0) == 2.0
    with pytest.raises(ValueError, match="no halves below zero"):
        quarter(-8.0)


@pytest.mark.jit
def test_the_names_of_fields_are_part_of_a_cached_kernel(tmp_path):
    """Two versions of one class, the same types in another order of fields: kernels read fields by name."""
    entries = Entries(tmp_path, "kernel", fingerprint)
    paths = set()
    for fields in (("low", "high"), ("high", "low")):
        pair = collections.namedtuple("Pair", fields)
        paths.add(entries.path(((numba.typeof((pair(1.0, 2.0),)),), "machine", ())))
    assert len(paths) == 2
