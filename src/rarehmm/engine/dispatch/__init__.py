"""Static dispatch by type for compiled functions, with a disk cache that is never stale.

A *generic* (``log_density``) has one implementation per NamedTuple class, attached by ``@compiled``.  Kernels call the
generic; numba picks the implementation while compiling, from the type of the first argument; without the JIT the same
call goes through ``functools.singledispatch``.

Every compiled kernel is one file on disk, named by a digest of everything it was compiled from: the sources of the
engine (``PACKAGE``) and the types of the arguments.  The type of a family (``Tag``) carries a fingerprint of everything
that the family's functions reach, so that editing a family changes its type.
"""

from rarehmm.engine.dispatch.generics import compiled, generic, provides
from rarehmm.engine.dispatch.loops import KERNELS, cached_files, explained, kernel
from rarehmm.engine.dispatch.parts import JIT, aside, inner, specialise

__all__ = [
    "JIT", "KERNELS", "aside", "cached_files", "compiled", "explained", "generic", "inner", "kernel", "provides",
    "specialise",
]  # fmt: skip
