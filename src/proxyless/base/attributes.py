"""Attributes: typed values that travel with an endpoint or an update.

Resolvers and policies attach them (locality, weight, hierarchy path, health) for policies further
down. A key is an object, so keys of two packages never collide; its type parameter is the type of
the value.
"""

from typing import Final, Generic, TypeVar, cast

T = TypeVar("T")

_new_object: Final = object.__new__


class Key(Generic[T]):
    """Key of one attribute; equal only to itself. Create one per attribute, at module level."""

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
        # No cast: pickers call this for every RPC.
        return self._values.get(key)  # type: ignore[arg-type, return-value]

    def with_(self, key: Key[T], value: T) -> "Attributes":
        # Without `__init__`: every endpoint of an update gets several attributes.
        attributes = _new_object(Attributes)
        attributes._values = {**self._values, cast("Key[object]", key): value}  # noqa: SLF001
        return attributes

    def without(self, key: Key[T]) -> "Attributes":
        if key not in self._values:
            return self
        if len(self._values) == 1:
            return EMPTY
        attributes = _new_object(Attributes)
        values = {k: v for k, v in self._values.items() if k is not key}
        attributes._values = values  # noqa: SLF001
        return attributes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attributes):
            return NotImplemented
        return self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        content = ", ".join(f"{key.name}={value!r}" for key, value in self._values.items())
        return f"Attributes({content})"


EMPTY: Final = Attributes()
