"""What is an explanation, and how is it written down?

A tree: each node says one thing in a sentence, and has facts for programs and parts for details. A
problem is why an RPC that gets there fails; nodes without one are as they should be.
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
    """One decision, and those that it consists of or leads to."""

    # What it is about, for programs: `route`.
    kind: str
    text: str
    facts: Mapping[str, object] = field(default_factory=dict)
    parts: tuple[Explanation, ...] = ()
    # Empty if all is well.
    problem: str = ""

    def __post_init__(self) -> None:
        # Names in it may be a control plane's, a cookie's, a caller's: nobody forges a line.
        object.__setattr__(self, "text", one_line(self.text))

    def __str__(self) -> str:
        return to_text(self)

    def find(self, kind: str) -> Iterator[Explanation]:
        """All nodes of a kind, from the top."""
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
    """The same as a document; empty fields are left out."""
    document: dict[str, Any] = {"kind": explanation.kind, "text": explanation.text}
    if explanation.problem:
        document["problem"] = explanation.problem
    document.update(explanation.facts)
    if explanation.parts:
        document["parts"] = [to_json(part) for part in explanation.parts]
    return document
