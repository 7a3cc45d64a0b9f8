"""How a type brings its own compiled functions, and why a cached kernel can never be stale.

A *generic* (``log_density``) has one implementation per NamedTuple class, attached by ``@compiled``.  Kernels call the
generic; numba picks the implementation while compiling, from the type of the first argument; without the JIT the same
call goes through ``functools.singledispatch``.

Numba's own disk cache watches nothing but the time stamp of the kernel's file, and keeps an index that two processes
can spoil for each other.  Here every compiled kernel is one file, named by a digest of all that went into it: the
library's compiled sources (``PACKAGE``), the types of the arguments, and in the type of a family (``Tag``) a
fingerprint of everything that the family's functions reach.  Edit a family and its type is another one.
"""

import contextlib
import enum
import functools
import hashlib
import inspect
import logging
import os
import pathlib
import pickle
import tempfile
import types as python_types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import llvmlite
import numba
import numba.np.ufunc.dufunc
import numpy as np
from numba import types
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.typed_passes import AnnotateTypes
from numba.core.typing.templates import AbstractTemplate, builtin_registry, infer, infer_global
from numba.extending import models, register_model, typeof_impl

F = TypeVar("F", bound=Callable[..., Any])

FAST = {"contract", "reassoc", "nsz", "arcp"}  # neither nnan nor ninf: NaN marks a missing observation
OPTIONS = {"nopython": True, "nogil": True, "fastmath": FAST, "error_model": "numpy", "no_cfunc_wrapper": True}
PART = {**OPTIONS, "no_cpython_wrapper": True, "forceinline": True}
JIT = not config.DISABLE_JIT

GENERICS: list[Any] = []
KERNELS: list[Any] = []

logger = logging.getLogger(__name__)


# ---------------------------------------------------------------- how parts of kernels are compiled
class PartLibrary(JITCodeLibrary):
    """Code that is inlined where it is called: there it is optimised and becomes machine code, hence not here.

    Numba would do both at every level of calls, once more each time, for functions that nobody calls by themselves.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        self._ensure_finalized()
        return 0

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, env: Any) -> None:
        """There is no address to set: the environment is that of objects, which parts never touch."""


@register_pass(mutates_CFG=False, analysis_only=True)
class AsPart(LoweringPass):
    """Have the code of a function put into a ``PartLibrary``."""

    _name = "as_part"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class PartCompiler(CompilerBase):
    """Numba's compiler, with ``AsPart`` before code is generated."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(AsPart, AnnotateTypes)
        passes.finalize()
        return [passes]


class Part(CPUDispatcher):
    """A function that kernels inline.  Called from Python it is the plain function: compiled by itself it is none."""

    def __init__(self, function: Any, types_of_locals: Any = None, options: Any = None) -> None:
        super().__init__(function, types_of_locals, options or PART, PartCompiler)

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """For the types of arguments, not for their values: numba would compile anew for each literal."""
        return super().get_call_template(tuple(map(types.unliteral, args)), kws)


# ---------------------------------------------------------------- kernels and generics
def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function that releases the GIL and is cached on disk: the only form of loop in the library."""
    dispatcher = numba.jit(**OPTIONS)(function)
    if JIT:
        try:
            dispatcher._cache = DigestCache(function)
        except RuntimeError:  # numba found no folder that it may write to
            warn_unwritable()
        KERNELS.append(dispatcher)
    return cast(Callable[..., Any], dispatcher)


@functools.cache
def warn_unwritable() -> None:
    logger.warning(
        "no folder for compiled kernels is writable: they are compiled in every process. "
        "Set NUMBA_CACHE_DIR to one that is."
    )


@contextlib.contextmanager
def explained(who: str) -> Iterator[None]:
    """Around a call of a kernel: what cannot be compiled is the family's doing, and is said in a few words."""
    try:
        yield
    except numba.core.errors.NumbaError as error:
        calls = [line.strip().removeprefix(">>> ") for line in str(error).splitlines() if ">>>" in line]
        reason = min(calls, key=len) if calls else str(error).splitlines()[0]
        raise TypeError(
            f"the functions of {who} cannot be compiled ({reason}). Inside them use arithmetic, powers, np.exp, "
            "np.log, np.sqrt, np.sin, np.cos, np.abs, np.where and np.maximum; rarehmm.lanes.lanewise for the rest."
        ) from error


def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of kernels: inlined where they call it, hence without a cache entry of its own; in Python the function
    itself, so that what is written in ordinary NumPy works on floats, arrays and Lanes."""
    return cast(Callable[..., Any], Part(function)) if JIT else function


def aside(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of kernels that is rarely needed: called where it is, and compiled once, not at every place."""
    return cast(Callable[..., Any], numba.jit(no_cpython_wrapper=True, **OPTIONS)(function))


def generic(stub: Callable[..., Any]) -> Any:
    """Turn a stub into a function whose implementation depends on the type of its first argument.

    For a type that brings none, the stub is run.
    """
    function = functools.singledispatch(stub)

    def choose(*args: Any) -> Any:
        return function.registry.get(args[0].instance_class, stub) if isinstance(args[0], Tag) else None

    specialise(function, choose)
    GENERICS.append(function)
    return function


def specialise(function: Any, choose: Callable[..., Any]) -> None:
    """Inside kernels, ``function`` is what ``choose`` returns for the numba types of its arguments (None: as before).

    Not numba's ``overload``, which compiles an implementation once more for callers that have other options.
    """
    parts: dict[Any, Part] = {}
    found: dict[Any, Any] = {}

    def typed(self: Any, args: Any, kws: Any) -> Any:
        chosen = None if kws else choose(*args)
        if chosen is None:
            return None
        if chosen not in parts:
            parts[chosen] = chosen if isinstance(chosen, Part) else Part(getattr(chosen, "py_func", chosen))
        kind = types.Dispatcher(parts[chosen])
        signature = kind.get_call_type(self.context, args, {})
        found[signature.args] = kind.get_overload(signature)
        return signature

    def implementation(_self: Any, signature: Any) -> Any:
        return found[signature.args]

    space = {"key": function, "generic": typed, "get_impl_key": implementation}
    template = type(f"Special{function.__name__}", (AbstractTemplate,), space)
    infer(template)
    infer_global(function, types.Function(template))


def compiled(function: Any, cls: type) -> Callable[[F], F]:
    """Decorator: attach an implementation of the generic ``function`` to the NamedTuple class ``cls``."""

    def attach(implementation: F) -> F:
        if cls in FROZEN:
            raise TypeError(
                f"{cls.__name__} has been used in a compiled kernel already; "
                f"define the class again to change its {function.__name__}."
            )
        distinguish(cls)
        typeof_impl.register(cls)(_tag)
        function.register(cls, implementation)
        return implementation

    return attach


def distinguish(cls: Any) -> None:
    """Numba's dispatcher tells classes of tuples apart by bare name: a second class of one name gets a number."""
    name, number = cls.__name__, 1
    while NAMES.setdefault(cls.__name__, cls) is not cls:
        number += 1
        cls.__name__ = f"{name}#{number}"


def provides(function: Any, value: Any) -> bool:
    """Whether the class of ``value`` brings an implementation of the generic ``function``."""
    return type(value) in function.registry


# ---------------------------------------------------------------- the numba type of an instance
NAMES: dict[str, type] = {}
FROZEN: dict[type, str] = {}  # class -> fingerprint, fixed when the class is first seen by a kernel
CLASSES: dict[tuple[str, str], type] = {}  # (qualified name, fingerprint) -> class


class Tag(types.NamedTuple):
    """Numba type of a family or a sampler: name, fingerprint and field types, no reference to the Python class.

    A plain ``types.NamedTuple`` is pickled with its class *by reference*, so that every later process must be able to
    import it (a user's file!) or fail.  This one pickles strings only.
    """

    def __init__(self, cls: Any, field_types: list[Any]) -> None:
        self.types = tuple(field_types)
        self.count = len(self.types)
        self.fields = tuple(cls._fields)
        self.identity = f"{cls.__module__}.{cls.__qualname__}", fingerprint_of(cls)
        CLASSES[self.identity] = cls
        types.Type.__init__(self, f"{self.identity[0]}[{self.identity[1]}]({', '.join(map(str, self.types))})")

    @property
    def key(self) -> Any:
        return self.identity, self.types

    @property
    def instance_class(self) -> Any:
        return CLASSES.get(self.identity)


register_model(Tag)(models.TupleModel)


def _tag(value: Any, context: Any) -> Tag:
    """Type of an instance; a field annotated ``float`` is one even when it holds an int (one compilation, not two)."""
    floats = {name for name, kind in inspect.get_annotations(type(value)).items() if kind in (float, "float")}
    fields = zip(value._fields, value, strict=True)
    return Tag(type(value), [types.float64 if name in floats else typeof_impl(v, context) for name, v in fields])


# ---------------------------------------------------------------- fingerprints
def fingerprint_of(cls: Any) -> str:
    """Digest of all compiled functions, settings and plain attributes of a class; frozen at first use."""
    if cls not in FROZEN:
        FROZEN[cls] = fingerprint_now(cls)
    return FROZEN[cls]


def fingerprint_now(cls: Any) -> str:
    functions = [(g.__name__, g.registry[cls]) for g in GENERICS if cls in g.registry]
    plain = [(k, v) for k, v in sorted(vars(cls).items()) if k[0] != "_" and isinstance(v, PLAIN)]
    return fingerprint(cls._fields, *functions, *plain)


PLAIN = (int, float, complex, str, bytes, tuple, type(None), np.generic)


def fingerprint(*things: Any) -> str:
    """Digest of values and functions: byte code, constants, and what they reach by globals and closures.

    A thing that cannot be looked through makes the digest another one in every process: a kernel that depends on it
    is never taken from the disk.
    """
    trail = Trail()
    for thing in things:
        trail.add(thing)
    return trail.digest.hexdigest()[:16]


class Trail:
    """All that a fingerprint has looked at."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, Any] = {}  # by identity, and held so that identities stay unique

    def note(self, *words: Any) -> None:
        self.digest.update(f"{words!r};".encode())

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
        if hasattr(function, "registry"):
            return  # a generic: its implementations are in other tags
        for value, kind in builtin_registry.globals:  # a user's own @overload of a helper
            for template in getattr(kind, "templates", ()) if value is function else ():
                chooser = getattr(template, "_overload_func", None)
                if chooser is not None and chooser.__module__ != __name__:
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
        """What code finds behind a name; of a module, the attributes that the code names (helpers.wave(y))."""
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
    """Global and attribute names used by a code object and the ones nested in it."""
    nested = [c for c in code.co_consts if isinstance(c, python_types.CodeType)]
    return sorted(set(code.co_names).union(*(names(c) for c in nested)))


def is_library(module: str | None) -> bool:
    """Modules whose version or content PACKAGE already covers."""
    parts = (module or "").split(".")
    if parts[0] == "rarehmm":
        return len(parts) > 1 and parts[1] in ("dispatch", "elementary", "lanes", "kernels")
    return parts[0] in {"math", "numpy", "numba", "llvmlite", "builtins", "operator", "functools", "typing"}


def package_digest() -> str:
    """Digest of the library's compiled sources, by content, and of the versions below it."""
    here = pathlib.Path(__file__).parent
    files = sorted([*(here / f"{name}.py" for name in ("dispatch", "elementary", "lanes")), *here.glob("kernels/*.py")])
    versions = numba.__version__, np.__version__, llvmlite.__version__
    return fingerprint(*versions, *(part for f in files for part in (f.name, f.read_bytes())))


PACKAGE = package_digest()


# ---------------------------------------------------------------- the disk cache
class DigestCache(FunctionCache):
    """Numba's disk cache with files of our own; an entry of another signature than the one asked for is refused."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = Entries(pathlib.Path(self.cache_path), self._impl.filename_base, function)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:
            logger.info("a compiled kernel could not be loaded and is compiled again: %r", error)
            return None
        return found if found is None or found.signature.args == tuple(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        for tag in tags(sig):
            if fingerprint_now(tag.instance_class) != tag.identity[1]:
                logger.warning("%s was changed after its first use, or uses what cannot be looked through: "
                               "its kernels are not saved", tag.identity[0])  # fmt: skip
                return
        try:
            super().save_overload(sig, data)
        except OSError as error:
            logger.warning("a compiled kernel could not be saved: %s", error)


def tags(kinds: Any) -> Iterator[Tag]:
    """All tags among numba types, also those of the fields of others."""
    for kind in kinds:
        if isinstance(kind, Tag):
            yield kind
            yield from tags(kind.types)


class Entries:
    """One file for each compiled kernel, named by the digest of its key, written whole or not at all.

    It begins with a digest of key and content: a file that was damaged or renamed is refused.
    """

    def __init__(self, folder: pathlib.Path, base: str, function: Any) -> None:
        self.folder, self.base, self.function = folder, base, function

    def path(self, key: Any) -> pathlib.Path:
        return self.folder / f"{self.base}-{hashlib.sha256(self.full(key)).hexdigest()[:32]}.nbc"

    def full(self, key: Any) -> bytes:
        mine = PACKAGE if self.function.__module__.startswith("rarehmm.") else PACKAGE + fingerprint(self.function)
        return f"{mine} {key}".encode()

    def seal(self, key: Any, content: bytes) -> bytes:
        return hashlib.sha256(self.full(key) + content).digest()

    def load(self, key: Any) -> Any:
        try:
            whole = self.path(key).read_bytes()
        except OSError:
            return None
        seal, content = whole[:32], whole[32:]
        return pickle.loads(content) if seal == self.seal(key, content) else None

    def save(self, key: Any, data: Any) -> None:
        content = dumps(data)
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.seal(key, content) + content)
            os.replace(name, self.path(key))
        except BaseException:
            pathlib.Path(name).unlink(missing_ok=True)
            raise

    def flush(self) -> None:
        for path in self.folder.glob(f"{self.base}-*.nbc"):
            path.unlink(missing_ok=True)


def cached_files() -> Iterator[pathlib.Path]:
    """All compiled kernels of this library on disk, of every version that was kept in the same folders."""
    folders = {pathlib.Path(k._cache.cache_path) for k in KERNELS if isinstance(k._cache, DigestCache)}
    for folder in sorted(folders):
        yield from sorted([*folder.glob("*.nbc"), *folder.glob("*.nbi"), *folder.glob("*.tmp")])
