"""What families share whose compiled functions depend on their settings: a class of its own for each of these."""

from typing import Any


class Sized(tuple[Any, ...]):
    """Base of such families.  An instance of ``Categorical(3)`` has a class made for three categories, whose base is
    ``Categorical``; ``arguments`` are what ``Categorical`` was called with, and all that tells two instances of one
    class apart."""

    _fields: tuple[str, ...] = ()

    @property
    def kind(self) -> Any:
        """The class that its user knows."""
        return type(self).__base__

    @property
    def arguments(self) -> tuple[Any, ...]:
        """None, unless a family says otherwise."""
        return ()

    @property
    def settings(self) -> tuple[str, tuple[Any, ...]]:
        """What a saved posterior keeps of the family: a name, and the arguments."""
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
