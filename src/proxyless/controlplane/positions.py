"""Positions of values in a YAML or JSON text: line and column of the value at a path.

Paths are those of `documents.parse_documents`: `[0].routes[1].to` is in the first document. They
are computed only for error texts and findings, because that parses the text again.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEP: Final = re.compile(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\.?([^.\[]+)')
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()
_PREFIX: Final = re.compile(r"line (\d+), column (\d+): ")
_TYPE_KEY: Final = "@type"


class Position(NamedTuple):
    """Line and column of a character, from 1."""

    line: int
    column: int


@frozen
class Node:
    """A value of a text, and the values in it by key or index, with the positions of the keys."""

    position: Position
    children: dict[str | int, tuple[Position, Node]]


@frozen
class Positions:
    """The positions of all values of one text."""

    documents: tuple[Node, ...] = ()

    @classmethod
    def of(cls, text: str, *, is_json: bool = False) -> Positions:
        """The positions in a text; of none if it is not valid."""
        try:
            return cls(tuple([_scan_json(text)] if is_json else _compose_yaml(text)))
        except (ValueError, LookupError, RecursionError):
            return cls()

    def find(self, path: str) -> Position | None:
        """The position of the innermost value on the path that exists; None if there is none."""
        children: dict[str | int, tuple[Position, Node]] = {
            number: (node.position, node) for number, node in enumerate(self.documents)
        }
        position, node = None, Node(Position(1, 1), children)
        for step in _split(path):
            found = _find_child(node, step)
            if found is None:
                if _is_type_step(node, step):
                    continue
                break
            position, node = found
        return position


def add_position(position: Position | None, text: str) -> str:
    """An error text with its position before it."""
    return text if position is None else f"line {position.line}, column {position.column}: {text}"


def split_position(text: str) -> tuple[Position | None, str]:
    """The position and the rest of a text of `add_position`."""
    found = _PREFIX.match(text)
    if found is None:
        return None, text
    return Position(int(found[1]), int(found[2])), text[found.end() :]


def _split(path: str) -> Iterator[str | int]:
    for found in _STEP.finditer(path):
        index, key, name = found.groups()
        if index is not None:
            yield int(index)
        else:
            yield json.loads(f'"{key}"') if key is not None else name


def _find_child(node: Node, step: str | int) -> tuple[Position, Node] | None:
    if isinstance(step, int) or step in node.children:
        return node.children.get(step)
    # Resources may have fields in the JSON spelling.
    return node.children.get(re.sub(r"_(\w)", lambda found: found[1].upper(), step))


def _is_type_step(node: Node, step: str | int) -> bool:
    """Whether the step only names the type of a message in an Any."""
    return _TYPE_KEY in node.children and isinstance(step, str) and "." in step


def _compose_yaml(text: str) -> list[Node]:
    # PyYAML is in the extra proxyless[cli].
    from proxyless.controlplane.yaml_documents import compose_yaml  # noqa: PLC0415

    return compose_yaml(text)


def _scan_json(text: str) -> Node:
    starts = [0, *(found.end() for found in re.finditer(r"\n", text))]

    def position(at: int) -> Position:
        line = bisect_right(starts, at)
        return Position(line, at - starts[line - 1] + 1)

    def skip(at: int) -> int:
        found = _SPACE.match(text, at)
        return at if found is None else found.end()

    def scan(at: int) -> tuple[Node, int]:
        start, children = at, dict[str | int, tuple[Position, Node]]()
        if text[at] not in "{[":
            return Node(position(at), {}), _DECODER.raw_decode(text, at)[1]
        is_object, at = text[at] == "{", skip(at + 1)
        while text[at] not in "}]":
            where = position(at)
            step: str | int = len(children)
            if is_object:
                step, at = _DECODER.raw_decode(text, at)
                at = skip(skip(at) + 1)
            child, at = scan(at)
            children[step] = (where, child)
            at = skip(at)
            if text[at] == ",":
                at = skip(at + 1)
        return Node(position(start), children), at + 1

    return scan(skip(0))[0]
