"""Requirements of a contract: a family, a design or a sampler meets them, or an error says which one it violates."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Checked(NamedTuple):
    """Outcome of a check: the requirements that hold, and optional parts that are missing, with what that means.

    Print it to read them.
    """

    name: str
    right: tuple[str, ...]
    without: Mapping[str, str] = MappingProxyType({})

    def __str__(self) -> str:
        held = (f"  {one.replace('_', ' ')}" for one in self.right)
        missing = (f"  without {name}: {meaning}" for name, meaning in self.without.items())
        return "\n".join([f"{self.name} satisfies the contract:", *held, *missing])


def must(condition: Any, name: str, message: str) -> None:
    """Raise ``ValueError`` with the name of what was checked unless a condition holds."""
    if not condition:
        raise ValueError(f"{name}: {message}.")


def check_all(
    name: str, case: T, requirements: Iterable[Callable[[T], None]], without: Mapping[str, str] = MappingProxyType({})
) -> Checked:
    """Check every requirement on a case; the first that is violated raises."""
    held = tuple(requirements)
    for requirement in held:
        requirement(case)
    return Checked(name, tuple(requirement.__name__ for requirement in held), without)
