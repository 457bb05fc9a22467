"""Answers of clients (verdicts, NACKs), refused requests, and withheld resources."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from proxyless.base import Status
from proxyless.base.frozen import frozen
from proxyless.controlplane.resource import type_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from proxyless.base import StatusCode


class RequestRefused(Exception):  # noqa: N818 - it ends a stream, and is not our error
    """A request is invalid or exceeds a limit. The stream ends with the status."""

    def __init__(self, code: StatusCode, details: str) -> None:
        super().__init__(details)
        self.status: Final = Status(code, details)


@frozen
class Withheld:
    """Types, and resources by type and name, of which no changes are sent for now."""

    types: frozenset[str] = frozenset()
    names: frozenset[tuple[str, str]] = frozenset()

    def plus(self, type_url: str, names: Collection[str] = ()) -> Withheld:
        """Withhold these names, too; without names, the whole type."""
        if not names:
            return Withheld(self.types | {type_url}, self.names)
        return Withheld(self.types, self.names | {(type_url, name) for name in names})

    def minus(self, type_url: str) -> Withheld:
        """Withhold nothing of this type."""
        names = frozenset(pair for pair in self.names if pair[0] != type_url)
        return Withheld(self.types - {type_url}, names)

    def differing_types(self, other: Withheld) -> set[str]:
        """The types that the two withhold differently."""
        return {
            *(self.types ^ other.types),
            *(type_url for type_url, _ in self.names ^ other.names),
        }

    def names_of(self, type_url: str) -> frozenset[str]:
        return frozenset(name for its_type, name in self.names if its_type == type_url)


NOTHING_WITHHELD: Final = Withheld()


@frozen
class Nack:
    """A response that a client rejected, and the client's error.

    Texts of the client are on one line, and bounded: many NACKs are kept.
    """

    node_id: str
    type_url: str
    version: str
    code: int
    message: str

    def __str__(self) -> str:
        what = f"{type_name(self.type_url)} version {self.version!r}"
        return f"xds node {self.node_id!r}: {what} refused: {self.message}"


class Verdict(Enum):
    """The client's answer to the last response of a type."""

    NONE = "nothing was sent"
    PENDING = "not answered yet"
    ACKED = "accepted"
    NACKED = "refused"
