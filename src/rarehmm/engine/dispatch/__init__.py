"""How a type brings its own compiled functions, and why a cached kernel can never be stale.

A *generic* (``log_density``) has one implementation per NamedTuple class, attached by ``@compiled``.  Kernels call the
generic; numba picks the implementation while compiling, from the type of the first argument; without the JIT the same
call goes through ``functools.singledispatch``.

Every compiled kernel is one file on disk, named by a digest of all that went into it: the library's compiled sources
(``PACKAGE``), the types of the arguments, and in the type of a family (``Tag``) a fingerprint of everything that the
family's functions reach.  Edit a family and its type is another one.
"""

from rarehmm.engine.dispatch.generics import compiled, generic, provides
from rarehmm.engine.dispatch.loops import KERNELS, cached_files, explained, kernel
from rarehmm.engine.dispatch.parts import JIT, aside, inner, specialise

__all__ = [
    "JIT", "KERNELS", "aside", "cached_files", "compiled", "explained", "generic", "inner", "kernel", "provides",
    "specialise",
]  # fmt: skip
