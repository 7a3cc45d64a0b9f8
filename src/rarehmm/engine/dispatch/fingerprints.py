"""Digests of functions (byte code, constants, and everything they reach) and of the whole engine."""

import enum
import functools
import hashlib
import inspect
import os
import pathlib
import types as python_types
from typing import Any

import llvmlite
import numba
import numba.np.ufunc.dufunc
import numpy as np
from numba import types
from numba.core.typing.templates import builtin_registry

PLAIN = (int, float, complex, str, bytes, tuple, type(None), np.generic)


def fingerprint(*things: Any) -> str:
    """Digest of values and functions: byte code, constants, and whatever globals and closures lead to.

    An object that cannot be inspected makes the digest differ in every process, so that a kernel that depends on it is
    never read from disk.
    """
    trail = Trail()
    for thing in things:
        trail.add(thing)
    return trail.digest.hexdigest()[:16]


class Trail:
    """Running digest of the objects that a fingerprint visits."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, Any] = {}  # by identity, and held so that identities stay unique

    def note(self, *message: Any) -> None:
        self.digest.update(f"{message!r};".encode())

    def add(self, thing: Any) -> None:
        match thing:
            case python_types.CodeType():
                for part in (thing.co_code, thing.co_names, thing.co_varnames, thing.co_consts):
                    self.add(part)
            case numba.core.dispatcher.Dispatcher():
                options = [(k, sorted(v) if isinstance(v, set) else repr(v)) for k, v in thing.targetoptions.items()]
                self.note("compiled", sorted(options))
                self.add(thing.py_func)
            case numba.np.ufunc.dufunc.DUFunc():
                self.add(thing._dispatcher.py_func)
            case np.vectorize():
                self.add(thing.pyfunc)
            case functools.partial():
                self.add((thing.func, thing.args, sorted(thing.keywords.items())))
            case enum.Enum():
                self.add((type(thing).__qualname__, thing.name, thing.value))
            case tuple() | list() | frozenset():
                self.note(type(thing).__name__, getattr(thing, "_fields", ()), len(thing))
                for item in sorted(thing, key=repr) if isinstance(thing, frozenset) else thing:
                    self.add(item)
            case np.ndarray():
                self.note(thing.dtype, thing.shape, thing.tobytes())
            case types.Type() | np.ufunc():
                self.note(str(thing))
            case _ if isinstance(thing, PLAIN):
                self.note(type(thing).__name__, thing)
            case numba.core.extending._Intrinsic():
                self.add(thing._defn)
            case python_types.FunctionType() if hasattr(thing, "registry"):  # a generic; Tag covers implementations
                self.note(thing.__module__, thing.__qualname__)
            case _ if is_library(getattr(thing, "__module__", None)) and hasattr(thing, "__qualname__"):
                self.note(thing.__module__, thing.__qualname__)
                for cell in getattr(thing, "__closure__", None) or ():
                    self.add(cell.cell_contents)  # lanewise(f) is made in the library and holds a user's f
            case python_types.FunctionType() | type():
                if id(thing) not in self.seen:
                    self.seen[id(thing)] = thing
                    self.note(thing.__module__, thing.__qualname__)
                    self.add_class(thing) if isinstance(thing, type) else self.add_function(thing)
            case _:
                self.note(os.urandom(16))

    def add_function(self, function: Any) -> None:
        for value, kind in builtin_registry.globals:  # a user's own @overload of a helper
            for template in getattr(kind, "templates", ()) if value is function else ():
                chooser = getattr(template, "_overload_func", None)
                if chooser is not None:
                    self.add(chooser)
        code = function.__code__
        self.add((code, function.__defaults__, sorted((function.__kwdefaults__ or {}).items())))
        for cell in function.__closure__ or ():
            self.reach(cell.cell_contents, code)
        for name in names(code):
            if name in function.__globals__:
                self.note(name)
                self.reach(function.__globals__[name], code)

    def add_class(self, cls: Any) -> None:
        for name, value in sorted(vars(cls).items()):
            if not name.startswith("__") and isinstance(value, (*PLAIN, enum.Enum, python_types.FunctionType)):
                self.note(name)
                self.add(value)

    def reach(self, value: Any, code: python_types.CodeType, path: tuple[Any, ...] = ()) -> None:
        """Add the value behind a global name; for a module, the attributes the code uses (``helpers.wave(y)``)."""
        if not inspect.ismodule(value):
            return self.add(value)
        self.note(value.__name__)
        if value not in path and not is_library(value.__name__):
            for name in names(code):
                if hasattr(value, name):
                    self.note(name)
                    self.reach(getattr(value, name), code, (*path, value))
        return None


def names(code: python_types.CodeType) -> list[str]:
    """Global and attribute names used by a code object and by those nested in it."""
    nested = [c for c in code.co_consts if isinstance(c, python_types.CodeType)]
    return sorted(set(code.co_names).union(*(names(c) for c in nested)))


def is_library(module: str | None) -> bool:
    """Whether ``PACKAGE`` already covers the version or content of a module."""
    parts = (module or "").split(".")
    if parts[0] == "rarehmm":
        return parts[1:2] == ["engine"]
    return parts[0] in {"math", "numpy", "numba", "llvmlite", "builtins", "operator", "functools", "typing"}


def package_digest() -> str:
    """Digest of the engine's source files and of the versions of numba, NumPy and llvmlite."""
    here = pathlib.Path(__file__).parent.parent
    files = sorted(here.rglob("*.py"))
    versions = numba.__version__, np.__version__, llvmlite.__version__
    return fingerprint(*versions, *(part for f in files for part in (f.relative_to(here).as_posix(), f.read_bytes())))


PACKAGE = package_digest()
