"""Base of families whose compiled functions depend on their settings, and which have one class for each setting."""

from typing import Any


class Sized(tuple[Any, ...]):
    """Family with one class for each setting.

    An instance of ``Categorical(3)`` belongs to a class made for three categories, whose base is ``Categorical``.
    ``arguments`` are the arguments of ``Categorical``; instances of one class are equal if their arguments are.
    """

    _fields: tuple[str, ...] = ()

    @property
    def kind(self) -> Any:
        """The public class, such as ``Categorical``."""
        return type(self).__base__

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arguments of the public class; none unless a family overrides this."""
        return ()

    @property
    def settings(self) -> tuple[str, tuple[Any, ...]]:
        """Name and arguments of the public class, from which a saved posterior makes the family again."""
        return self.kind.__name__, self.arguments

    def __reduce__(self) -> Any:
        return self.kind, self.arguments

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.arguments == other.arguments

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), self.arguments))

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({', '.join(map(repr, self.arguments))})"
