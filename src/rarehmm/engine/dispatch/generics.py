"""Generic functions with one implementation per NamedTuple class."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from numba.extending import typeof_impl

from rarehmm.engine.dispatch.parts import specialise
from rarehmm.engine.dispatch.tags import FROZEN, GENERICS, Tag, distinguish, tag_of

F = TypeVar("F", bound=Callable[..., Any])


def generic(stub: Callable[..., Any]) -> Any:
    """Turn a stub into a function whose implementation depends on the type of its first argument.

    A type without an implementation gets the stub.
    """
    function = functools.singledispatch(stub)

    def choose(*args: Any) -> Any:
        return function.registry.get(args[0].instance_class, stub) if isinstance(args[0], Tag) else None

    specialise(function, choose)
    GENERICS.append(function)
    return function


def compiled(function: Any, cls: type) -> Callable[[F], F]:
    """Decorator: attach an implementation of the generic ``function`` to the NamedTuple class ``cls``."""

    def attach(implementation: F) -> F:
        if cls in FROZEN:
            raise TypeError(
                f"{cls.__name__} has been used in a compiled kernel already; "
                f"define the class again to change its {function.__name__}."
            )
        distinguish(cls)
        typeof_impl.register(cls)(tag_of)
        function.register(cls, implementation)
        return implementation

    return attach


def provides(function: Any, value: Any) -> bool:
    """Whether the class of ``value`` implements the generic ``function``."""
    return type(value) in function.registry
