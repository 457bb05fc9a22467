"""What else is known about an endpoint, by those who know which key to ask for?

Resolvers and policies attach facts (locality, weight, hierarchy path, health) for other policies
further down. A key is an object, so two rooms cannot collide on a name, and its type parameter
tells the type of the value.
"""

from typing import Final, Generic, TypeVar, cast

T = TypeVar("T")


class Key(Generic[T]):
    """Names one attribute; equal only to itself. Make one per attribute, at module level."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = name

    def __repr__(self) -> str:
        return f"Key({self.name!r})"


class Attributes:
    """An immutable mapping from keys to values; every change makes a new one.

    Equal by content. Hashable as long as all values are.
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Key[object], object] = {}

    def get(self, key: Key[T]) -> T | None:
        # No cast: pickers ask for attributes of every RPC.
        return self._values.get(key)  # type: ignore[arg-type, return-value]

    def with_(self, key: Key[T], value: T) -> "Attributes":
        return _attributes_of({**self._values, cast("Key[object]", key): value})

    def without(self, key: Key[T]) -> "Attributes":
        if key not in self._values:
            return self
        return _attributes_of({k: v for k, v in self._values.items() if k is not key})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attributes):
            return NotImplemented
        return self._values == other._values

    def __hash__(self) -> int:
        # Content is unordered, so the hash must be too.
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        content = ", ".join(f"{key.name}={value!r}" for key, value in self._values.items())
        return f"Attributes({content})"


EMPTY: Final = Attributes()


def _attributes_of(values: dict[Key[object], object]) -> Attributes:
    if not values:
        return EMPTY
    attributes = Attributes()
    attributes._values = values  # noqa: SLF001 - the constructor takes no untyped dict.
    return attributes
