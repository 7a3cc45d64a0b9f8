"""What the checks of designs and samplers share: promises that are kept, or broken with an error."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Kept(NamedTuple):
    """The promises that were found kept; a list in words if printed."""

    name: str
    promises: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.name} keeps the contract:", *(f"  {one.replace('_', ' ')}" for one in self.promises)])


def must(good: Any, name: str, message: str) -> None:
    """Raise ``ValueError`` with the name of what was checked unless a promise is kept."""
    if not good:
        raise ValueError(f"{name}: {message}.")


def keep_all(name: str, case: T, promises: tuple[Callable[[T], None], ...]) -> Kept:
    """Hold a case to every promise; the first that is broken raises."""
    for promise in promises:
        promise(case)
    return Kept(name, tuple(promise.__name__ for promise in promises))
