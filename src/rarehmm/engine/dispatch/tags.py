"""Numba types of families and samplers, which carry a fingerprint: editing a class changes its type."""

import inspect
from collections.abc import Iterator
from typing import Any

from numba import types
from numba.extending import models, register_model, typeof_impl

from rarehmm.engine.dispatch.fingerprints import PLAIN, fingerprint

GENERICS: list[Any] = []
NAMES: dict[str, type] = {}
FROZEN: dict[type, str] = {}  # class -> fingerprint, fixed when a kernel first sees the class
CLASSES: dict[tuple[str, str], type] = {}  # (qualified name, fingerprint) -> class


class Tag(types.NamedTuple):
    """Numba type of a family or a sampler: its name, fingerprint and field types.

    A plain ``types.NamedTuple`` is pickled with its class *by reference*, so that every later process must be able to
    import that class, which may live in a user's script.  This type pickles strings only.
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
    """Numba type of an instance; a field annotated ``float`` stays one when it holds an int, to compile only once."""
    floats = {name for name, kind in inspect.get_annotations(type(value)).items() if kind in (float, "float")}
    fields = zip(value._fields, value, strict=True)
    return Tag(type(value), [types.float64 if name in floats else typeof_impl(v, context) for name, v in fields])


def fingerprint_of(cls: Any) -> str:
    """Digest of a class's compiled functions, settings and plain attributes, frozen at first use."""
    if cls not in FROZEN:
        FROZEN[cls] = fingerprint_now(cls)
    return FROZEN[cls]


def fingerprint_now(cls: Any) -> str:
    functions = [(g.__name__, g.registry[cls]) for g in GENERICS if cls in g.registry]
    plain = [(k, v) for k, v in sorted(vars(cls).items()) if k[0] != "_" and isinstance(v, PLAIN)]
    return fingerprint(cls._fields, *functions, *plain)


def distinguish(cls: Any) -> None:
    """Append a number to the name of a second class with the same name; numba's dispatcher compares bare names."""
    name, number = cls.__name__, 1
    while NAMES.setdefault(cls.__name__, cls) is not cls:
        number += 1
        cls.__name__ = f"{name}#{number}"


def tags(kinds: Any) -> Iterator[Tag]:
    """Yield all tags among numba types, including those of nested fields."""
    for kind in kinds:
        if isinstance(kind, Tag):
            yield kind
            yield from tags(kind.types)
