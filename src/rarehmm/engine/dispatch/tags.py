"""The numba type of a family or a sampler, which has its fingerprint: edit a class, and its type is another one."""

import inspect
from collections.abc import Iterator
from typing import Any

from numba import types
from numba.extending import models, register_model, typeof_impl

from rarehmm.engine.dispatch.fingerprints import PLAIN, fingerprint

GENERICS: list[Any] = []
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


def tag_of(value: Any, context: Any) -> Tag:
    """Type of an instance; a field annotated ``float`` is one even when it holds an int (one compilation, not two)."""
    floats = {name for name, kind in inspect.get_annotations(type(value)).items() if kind in (float, "float")}
    fields = zip(value._fields, value, strict=True)
    return Tag(type(value), [types.float64 if name in floats else typeof_impl(v, context) for name, v in fields])


def fingerprint_of(cls: Any) -> str:
    """Digest of all compiled functions, settings and plain attributes of a class; frozen at first use."""
    if cls not in FROZEN:
        FROZEN[cls] = fingerprint_now(cls)
    return FROZEN[cls]


def fingerprint_now(cls: Any) -> str:
    functions = [(g.__name__, g.registry[cls]) for g in GENERICS if cls in g.registry]
    plain = [(k, v) for k, v in sorted(vars(cls).items()) if k[0] != "_" and isinstance(v, PLAIN)]
    return fingerprint(cls._fields, *functions, *plain)


def distinguish(cls: Any) -> None:
    """Numba's dispatcher tells classes of tuples apart by bare name: a second class of one name gets a number."""
    name, number = cls.__name__, 1
    while NAMES.setdefault(cls.__name__, cls) is not cls:
        number += 1
        cls.__name__ = f"{name}#{number}"


def tags(kinds: Any) -> Iterator[Tag]:
    """All tags among numba types, also those of the fields of others."""
    for kind in kinds:
        if isinstance(kind, Tag):
            yield kind
            yield from tags(kind.types)
