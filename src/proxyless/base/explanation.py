"""Explanation: a tree of sentences about the decisions for an RPC, as text or JSON.

Each node has a sentence for people, facts for programs, and parts for details.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from proxyless.base.frozen import frozen
from proxyless.base.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INDENT: Final = "  "


@frozen
class Explanation:
    """One decision, and the decisions that it consists of or leads to."""

    # For programs, such as `route`.
    kind: str
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
    parts: tuple[Explanation, ...] = ()
    # The reason why an RPC fails here; empty if it does not.
    problem: str = ""

    def __post_init__(self) -> None:
        # Names of control planes, cookies or callers in it must not forge a line.
        object.__setattr__(self, "text", one_line(self.text))

    def __str__(self) -> str:
        return to_text(self)

    def find(self, kind: str) -> Iterator[Explanation]:
        """All nodes of a kind, depth first."""
        if self.kind == kind:
            yield self
        for part in self.parts:
            yield from part.find(kind)


def to_text(explanation: Explanation, depth: int = 0) -> str:
    """One line per node, parts indented below."""
    lines = [f"{_INDENT * depth}{explanation.text}"]
    lines += [to_text(part, depth + 1) for part in explanation.parts]
    return "\n".join(lines)


def to_json(explanation: Explanation) -> dict[str, Any]:
    """The tree as a JSON document, without empty fields."""
    document: dict[str, Any] = {"kind": explanation.kind, "text": explanation.text}
    if explanation.problem:
        document["problem"] = explanation.problem
    document.update(explanation.facts)
    if explanation.parts:
        document["parts"] = [to_json(part) for part in explanation.parts]
    return document
