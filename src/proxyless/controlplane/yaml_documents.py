"""YAML reader with bounds, and writer: the documents of a text, for `documents`.

The only module that imports PyYAML, which is in the extra `proxyless[cli]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from proxyless.controlplane.positions import Node, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

# libyaml recurses on the stack of the thread for each level of nesting, and can overflow it.
DEPTH_MAX: Final = 500
# PyYAML also reads 1:0:0:… as a number, and takes hours for a megabyte of that.
NUMBER_CHARS_MAX: Final = 300
LINE_WIDTH: Final = 120

_MERGE: Final = "tag:yaml.org,2002:merge"
_INTEGER: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
# libyaml, if PyYAML was built with it, is ten times as fast.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str, nodes_max: int) -> list[Any]:
    """Load all documents. ValueError if the text is bad, RecursionError if it is nested deeply."""
    try:
        _check_size(text, nodes_max)
        return _load_all(text, nodes_max)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise ValueError(f"{where}{error.problem if where else error}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def dump_yaml(documents: Sequence[Any]) -> str:
    """The documents as a YAML text, with short collections on one line."""
    dumped: str = yaml.safe_dump_all(
        documents,
        sort_keys=False,
        default_flow_style=None,
        allow_unicode=True,
        width=LINE_WIDTH,
        explicit_start=False,
    )
    return dumped


def compose_yaml(text: str) -> list[Node]:
    """All values of a text with their positions. ValueError or RecursionError as in `load_yaml`."""
    try:
        # For its depth: a text has fewer values than characters.
        _check_size(text, len(text))
        known: dict[int, Node] = {}
        # All of them first: the ids of nodes are unique only while the nodes exist.
        documents = list(yaml.compose_all(text, _LOADER))
        return [_to_node(each, known) for each in documents]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _to_node(node: Any, known: dict[int, Node]) -> Node:  # noqa: ANN401 - PyYAML's nodes have no types
    """The node; `known` has those that aliases share."""
    if id(node) in known:
        return known[id(node)]
    children: dict[str | int, tuple[Position, Node]] = {}
    known[id(node)] = result = Node(_position(node), children)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            children[index] = (_position(item), _to_node(item, known))
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.tag == _MERGE:
                sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for source in sources:
                    children.update(_to_node(source, known).children)
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                children[key.value] = (_position(key), _to_node(value, known))
    return result


def _position(node: Any) -> Position:  # noqa: ANN401
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)


def _check_size(text: str, nodes_max: int) -> None:
    depth = nodes = 0
    for event in yaml.parse(text, _LOADER):
        nodes += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise RecursionError
        # Each value may have a key. Loading a larger text would take a minute and gigabytes.
        if nodes > 2 * nodes_max:
            raise ValueError(f"has more than {nodes_max} values")


def _load_all(text: str, nodes_max: int) -> list[Any]:
    loader = _BoundedLoader(text)
    loader.merged_max = nodes_max
    documents = []
    try:
        while loader.check_data():
            documents.append(loader.get_data())
    # PyYAML raises these for tags that do not fit their value, such as `!!bool maybe`.
    except (LookupError, AttributeError, TypeError) as error:
        raise ValueError(f"has a value that its tag does not fit: {error}") from error
    finally:
        loader.dispose()
    return documents


class _BoundedLoader(_LOADER):  # type: ignore[misc]  # PyYAML has no types.
    """Loader that bounds merged keys and the length of numbers, and rejects repeated keys.

    PyYAML itself would use the last of two equal keys without an error.
    """

    merged_max = 0
    _merged = 0

    def construct_document(self, node: Any) -> Any:  # noqa: ANN401 - PyYAML's nodes have no types
        _reject_repeated_keys(node)
        return super().construct_document(node)

    def construct_number(self, node: Any) -> Any:  # noqa: ANN401
        if isinstance(node, yaml.ScalarNode) and len(node.value) > NUMBER_CHARS_MAX:
            what = f"a number has more than {NUMBER_CHARS_MAX} characters"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        if node.tag == _INTEGER:
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)

    def flatten_mapping(self, node: Any) -> None:  # noqa: ANN401
        for key, value in node.value:
            if key.tag == _MERGE:
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(source, yaml.MappingNode):
                        # Flattening a flat mapping again changes nothing.
                        self.flatten_mapping(source)
                        self._merged += len(source.value)
        if self._merged > self.merged_max:
            what = f"more than {self.merged_max} keys are merged"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        super().flatten_mapping(node)


_BoundedLoader.add_constructor(_INTEGER, _BoundedLoader.construct_number)
_BoundedLoader.add_constructor(_FLOAT, _BoundedLoader.construct_number)


def _reject_repeated_keys(root: Any) -> None:  # noqa: ANN401
    to_visit, seen = [root], {id(root)}
    while to_visit:
        node = to_visit.pop()
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            _reject_repetition([key for key, _ in children if isinstance(key, yaml.ScalarNode)])
            children = [value for _, value in children]
        unseen = {id(child): child for child in children if id(child) not in seen}
        seen.update(unseen)
        to_visit += unseen.values()


def _reject_repetition(keys: list[Any]) -> None:
    seen: set[tuple[str, str]] = set()
    for key in keys:
        written = (key.tag, key.value)
        if written in seen and key.tag != _MERGE:
            what = f"key {key.value!r:.80} is there twice"
            raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
        seen.add(written)
