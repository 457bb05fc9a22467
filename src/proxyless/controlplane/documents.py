"""Which resources does a file hold, and what is wrong with it, where?

A file is YAML, of one document or several, or JSON. A document is a resource in standard proto-JSON
with its `@type`, a list of such, or a mapping with such a list in `resources`:

    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: cart
    type: EDS

Text in, resources out: reading files is in `files`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import yaml
from google.protobuf import json_format

from proxyless.controlplane.resource import Resource
from proxyless.protos import descriptor_pool_of_envoy, message_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.base import ValidationErrors

# With aliases a small YAML file can stand for a huge document.
NODES_MAX: Final = 500_000
TEXT_MAX: Final = 64 * 2**20
# libyaml follows what is nested on the stack of the thread, to its end and beyond.
DEPTH_MAX: Final = 500
# PyYAML takes 1:0:0:… for a number, too, and hours to make one of a megabyte of that.
NUMBER_CHARS_MAX: Final = 300
# Of json_format's words about what is wrong, as much as anyone reads at either end.
_WORDS_MAX: Final = 300

_TYPE: Final = "@type"
_RESOURCES: Final = "resources"
_MERGE: Final = "tag:yaml.org,2002:merge"
_INTEGER: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
# libyaml, if PyYAML was built with it, is ten times as fast.
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# How json_format says where it was: by a chain of fields, and sometimes by a path behind it.
_FIELD: Final = re.compile(r"\AFailed to parse (?P<field>\S+) field: ")
_PLACE: Final = re.compile(r' at "?\w+(?P<path>[^\s"]*?)"?\.*(\n.*)?\Z', re.DOTALL)
_UNKNOWN_FIELD: Final = re.compile(r'has no field named "(?P<field>[^"]*)"')


def parse_documents(
    text: str, errors: ValidationErrors, *, is_json: bool = False
) -> list[tuple[str, Resource]]:
    """The resources, each with its place in the file; what is wrong is added to the errors."""
    found: list[tuple[str, Resource]] = []
    for number, document in enumerate(load_documents(text, errors, is_json=is_json)):
        if document is not None:  # A file may end with `---`, or be empty.
            with errors.index(number):
                for place, resource in _parse_document(document, errors):
                    found.append((f"[{number}]{place}", resource))
    return found


def load_documents(text: str, errors: ValidationErrors, *, is_json: bool = False) -> list[Any]:
    """What each document says, whatever it is about; none, and an error, if it cannot be read."""
    try:
        documents = [_load_json(text)] if is_json else _load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        errors.add(_describe_syntax(error))
        return []
    if (excess := _find_excess(documents)) is not None:
        errors.add(f"has more than {excess}, aliases written out")
        return []
    return documents


def _load_json(text: str) -> Any:  # noqa: ANN401 - whatever the file holds
    return json.loads(text, object_pairs_hook=_make_object)


def _load_yaml(text: str) -> list[Any]:
    depth = nodes = 0
    for event in yaml.parse(text, _LOADER):
        nodes += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise RecursionError
        # A value may have a key. To load what is refused afterwards takes a minute, and gigabytes.
        if nodes > 2 * NODES_MAX:
            raise ValueError(f"has more than {NODES_MAX} values")
    try:
        return list(yaml.load_all(text, _BoundedLoader))
    # For `!!bool maybe` and other tags that do not fit PyYAML raises what it happens to.
    except (LookupError, AttributeError, TypeError) as error:
        raise ValueError(f"has a value that its tag does not fit: {error}") from error


class _BoundedLoader(_LOADER):  # type: ignore[misc]  # PyYAML has no types.
    """A loader that cannot be kept busy, and that overlooks nothing.

    With `<<`, a key counts as often as it is merged; numbers have an end. A key that stands there
    twice is an error: PyYAML would take the last one and say nothing.
    """

    _merged = 0

    def construct_document(self, node: Any) -> Any:  # noqa: ANN401 - as above
        _refuse_repeated_keys(node)
        return super().construct_document(node)

    def construct_number(self, node: Any) -> Any:  # noqa: ANN401
        if isinstance(node, yaml.ScalarNode) and len(node.value) > NUMBER_CHARS_MAX:
            what = f"a number has more than {NUMBER_CHARS_MAX} characters"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        if node.tag == _INTEGER:
            return self.construct_yaml_int(node)
        return self.construct_yaml_float(node)

    def flatten_mapping(self, node: Any) -> None:  # noqa: ANN401 - as above
        for key, value in node.value:
            if key.tag == _MERGE:
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if isinstance(source, yaml.MappingNode):
                        # What is flat stays as it is if it is flattened again.
                        self.flatten_mapping(source)
                        self._merged += len(source.value)
        if self._merged > NODES_MAX:
            what = f"more than {NODES_MAX} keys are merged"
            raise yaml.constructor.ConstructorError(None, None, what, node.start_mark)
        super().flatten_mapping(node)


_BoundedLoader.add_constructor(_INTEGER, _BoundedLoader.construct_number)
_BoundedLoader.add_constructor(_FLOAT, _BoundedLoader.construct_number)


def _refuse_repeated_keys(root: Any) -> None:  # noqa: ANN401 - as above
    to_visit, seen = [root], {id(root)}
    while to_visit:
        node = to_visit.pop()
        children = node.value if isinstance(node, yaml.CollectionNode) else []
        if isinstance(node, yaml.MappingNode):
            _refuse_repetition([key for key, _ in children if isinstance(key, yaml.ScalarNode)])
            children = [value for _, value in children]
        unseen = {id(child): child for child in children if id(child) not in seen}
        seen.update(unseen)
        to_visit += unseen.values()


def _refuse_repetition(keys: list[Any]) -> None:
    seen: set[tuple[str, str]] = set()
    for key in keys:
        written = (key.tag, key.value)
        if written in seen and key.tag != _MERGE:
            what = f"key {key.value!r:.80} is there twice"
            raise yaml.constructor.ConstructorError(None, None, what, key.start_mark)
        seen.add(written)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For JSON, which has no loader to extend."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {key!r:.80} is there twice")
    return found


def _parse_document(document: Any, errors: ValidationErrors) -> Iterator[tuple[str, Resource]]:  # noqa: ANN401 - whatever the file holds
    if isinstance(document, dict) and _TYPE not in document and _RESOURCES in document:
        if unknown := sorted(map(str, document.keys() - {_RESOURCES, "version_info"})):
            errors.add(f"has {', '.join(map(repr, unknown))} beside {_RESOURCES!r}")
        with errors.field(_RESOURCES):
            yield from _parse_list(document[_RESOURCES], f".{_RESOURCES}", errors)
    elif isinstance(document, list):
        yield from _parse_list(document, "", errors)
    elif (resource := _parse_resource(document, errors)) is not None:
        yield "", resource


def _parse_list(
    items: Any,  # noqa: ANN401
    place: str,
    errors: ValidationErrors,
) -> Iterator[tuple[str, Resource]]:
    if not isinstance(items, list):
        errors.add(f"is {describe_value(items)}, wanted a list of resources")
        return
    for number, item in enumerate(items):
        with errors.index(number):
            if (resource := _parse_resource(item, errors)) is not None:
                yield f"{place}[{number}]", resource


def _parse_resource(item: Any, errors: ValidationErrors) -> Resource | None:  # noqa: ANN401
    if not isinstance(item, dict) or not isinstance(item.get(_TYPE), str):
        what = f"a mapping without {_TYPE!r}" if isinstance(item, dict) else describe_value(item)
        errors.add(f"is {what}, wanted a resource with its {_TYPE!r}")
        return None
    full_name = item[_TYPE].rpartition("/")[2]
    try:
        message = message_class(full_name)()
    except (KeyError, TypeError):  # The latter for what is no Unicode.
        errors.add(f"{_TYPE} {item[_TYPE]!r:.200} is not known")
        return None
    fields = {key: value for key, value in item.items() if key != _TYPE}
    try:
        json_format.ParseDict(fields, message, descriptor_pool=descriptor_pool_of_envoy())
    # Values of a kind that it does not expect make json_format raise what it happens to.
    except (
        json_format.ParseError,
        ArithmeticError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:
        path, what = _describe_field(str(error))
        with errors.field(path) if path else nullcontext():
            errors.add(what)
        return None
    try:
        return Resource.of(message)
    except ValueError as error:
        errors.add(str(error))
        return None


def _describe_syntax(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())


def _describe_field(text: str) -> tuple[str, str]:
    """The path of the field that json_format dislikes, and why."""
    if len(text) > 2 * _WORDS_MAX:
        # A value may be in there, as long as the file, and the search for a path tries every way.
        text = f"{text[:_WORDS_MAX]}...{text[-_WORDS_MAX:]}"
    chain: list[str] = []
    while step := _FIELD.match(text):
        chain.append(step["field"])
        text = text[step.end() :]
    path = ".".join(chain)
    if place := _PLACE.search(text):
        # This one knows the indexes of lists.
        path = place["path"].strip(".")
        text = text[: place.start()]
    if unknown := _UNKNOWN_FIELD.search(text):
        return f"{path}.{unknown['field']}".strip("."), "there is no such field"
    return path, text.rstrip(".")


def _find_excess(documents: list[Any]) -> str | None:
    """What there is too much of. Values count as often as they are referred to.

    So a value inside itself has no end.
    """
    values = characters = 0
    to_visit: list[Any] = [documents]
    while to_visit:
        node = to_visit.pop()
        children = [*node, *node.values()] if isinstance(node, dict) else node
        values += len(node)
        characters += sum(len(child) for child in children if isinstance(child, str | bytes))
        if values > NODES_MAX:
            return f"{NODES_MAX} values"
        if characters > TEXT_MAX:
            return f"{TEXT_MAX} characters"
        to_visit += [child for child in children if isinstance(child, dict | list | tuple | set)]
    return None


def describe_value(value: object) -> str:
    """What stands there, for the text of an error."""
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return f"{value!r:.80}"
