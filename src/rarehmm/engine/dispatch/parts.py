"""Functions that kernels inline, and the choice among them by the types of their arguments.

``PartLibrary``, ``AsPart`` and ``PartCompiler`` are here for compile time alone: benchmarks/results/compile.md has what
they save on a first fit.
"""

from collections.abc import Callable
from typing import Any, cast

import numba
from numba import types
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import AnnotateTypes
from numba.core.typing.templates import AbstractTemplate, infer, infer_global

FAST = {"contract", "reassoc", "nsz", "arcp"}  # neither nnan nor ninf: NaN marks a missing observation
OPTIONS = {"nopython": True, "nogil": True, "fastmath": FAST, "error_model": "numpy", "no_cfunc_wrapper": True}
PART = {**OPTIONS, "no_cpython_wrapper": True, "forceinline": True}
JIT = not config.DISABLE_JIT


# ---------------------------------------------------------------- how they are compiled
class PartLibrary(JITCodeLibrary):
    """LLVM code that is linked into its callers and is neither optimised nor turned into machine code by itself.

    Parts are always inlined, and the kernel around them is optimised as a whole.  By default numba would optimise and
    emit every function on its own as well, again at each level of calls.
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
        """Do nothing: an environment serves Python objects, which parts never touch."""


@register_pass(mutates_CFG=False, analysis_only=True)
class AsPart(LoweringPass):
    """Compiler pass that puts the code of a function into a ``PartLibrary``."""

    _name = "as_part"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class PartCompiler(CompilerBase):
    """Numba's compiler with ``AsPart`` ahead of code generation."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(AsPart, AnnotateTypes)
        passes.finalize()
        return [passes]


class Part(CPUDispatcher):
    """Dispatcher of a function that kernels inline; called from Python, it runs the plain function."""

    def __init__(self, function: Any, types_of_locals: Any = None, options: Any = None) -> None:
        super().__init__(function, types_of_locals or {}, options or PART, PartCompiler)

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Resolve a call by the types of its arguments alone; numba would compile again for each literal value."""
        return super().get_call_template(tuple(map(types.unliteral, args)), kws)


# ---------------------------------------------------------------- how they are declared and chosen
def inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a function that kernels inline, without a cache entry of its own.

    Called from Python it is the plain function, so that code in ordinary NumPy works on floats, arrays and Lanes.
    """
    return cast(Callable[..., Any], Part(function)) if JIT else function


def aside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: a function that kernels rarely need; it is compiled once and called, not inlined."""
    return cast(Callable[..., Any], numba.jit(no_cpython_wrapper=True, **OPTIONS)(function))


def specialise(function: Any, choose: Callable[..., Any]) -> None:
    """Inside kernels, replace ``function`` by what ``choose`` returns for the numba types of its arguments.

    Where ``choose`` returns None, ``function`` keeps its meaning.  Numba's ``overload`` would do the same, but compiles
    an implementation again for each caller with other options.
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
