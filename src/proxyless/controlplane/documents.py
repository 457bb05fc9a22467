"""Parser of resource files: the text of a YAML or JSON file to resources, with errors by path.

A YAML file has one document or several. A document is a resource in standard proto-JSON with its
`@type`, a list of resources, a mapping with such a list in `resources`, or a mesh in the short form
(`short_form`):

    "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
    name: cart
    type: EDS

Error texts begin with the line and the column.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import ValidationErrors
from proxyless.controlplane.positions import Position, Positions, add_position
from proxyless.controlplane.proto_json import TYPE_KEY, describe_value, has_type, parse_message
from proxyless.controlplane.resource import Resource
from proxyless.controlplane.short_form import expand_document, is_short_form

if TYPE_CHECKING:
    from collections.abc import Iterator

# Limits after the expansion of aliases, by which a small YAML file can be a huge document.
NODES_MAX: Final = 500_000
TEXT_MAX: Final = 64 * 2**20
_RESOURCES: Final = "resources"
_WANTED_RESOURCE: Final = f"a resource with its {TYPE_KEY!r}"
_WANTED_DOCUMENT: Final = f"{_WANTED_RESOURCE}, or 'service' or 'clusters' of the short form"


def parse_documents(
    text: str, errors: ValidationErrors, *, is_json: bool = False
) -> list[tuple[str, Resource]]:
    """The valid resources, each with its path in the file."""
    found: list[tuple[str, Resource]] = []
    field_errors = ValidationErrors()
    for number, document in enumerate(load_documents(text, errors, is_json=is_json)):
        if document is not None:  # An empty document, as after a final `---`.
            with field_errors.index(number):
                for place, resource in _parse_document(document, field_errors):
                    found.append((f"[{number}]{place}", resource))
    if not field_errors.ok:
        positions = Positions.of(text, is_json=is_json)
        for path, problem in field_errors.items():
            with errors.field(path):
                errors.add(add_position(positions.find(path), problem))
        if field_errors.is_full:
            errors.add("has more errors")
    return found


def load_documents(text: str, errors: ValidationErrors, *, is_json: bool = False) -> list[Any]:
    """All documents, which need not be resources; none, and an error, if one is invalid."""
    try:
        documents = [_load_json(text)] if is_json else _load_yaml(text)
    except RecursionError:
        errors.add("is nested too deeply")
        return []
    except ValueError as error:
        errors.add(" ".join(str(error).split()))
        return []
    if (excess := _find_excess(documents)) is not None:
        errors.add(f"has more than {excess}, aliases written out")
        return []
    return documents


def _load_json(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text, object_pairs_hook=_make_object)
    except json.JSONDecodeError as error:
        position = Position(error.lineno, error.colno)
        raise ValueError(add_position(position, f"is not JSON: {error.msg}")) from error


def _load_yaml(text: str) -> list[Any]:
    # PyYAML is in the extra proxyless[cli].
    from proxyless.controlplane.yaml_documents import load_yaml  # noqa: PLC0415

    return load_yaml(text, NODES_MAX)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Like `dict`, but rejects repeated keys."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (key, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"key {key!r:.80} is there twice")
    return found


def _parse_document(document: Any, errors: ValidationErrors) -> Iterator[tuple[str, Resource]]:  # noqa: ANN401 - whatever the file holds
    if isinstance(document, dict) and TYPE_KEY not in document and _RESOURCES in document:
        if unknown := sorted(map(str, document.keys() - {_RESOURCES, "version_info"})):
            errors.add(f"has {', '.join(map(repr, unknown))} beside {_RESOURCES!r}")
        with errors.field(_RESOURCES):
            yield from _parse_list(document[_RESOURCES], f".{_RESOURCES}", errors)
    elif isinstance(document, list):
        yield from _parse_list(document, "", errors)
    elif not has_type(document) and is_short_form(document):
        yield from expand_document(document, errors)
    elif (resource := _parse_resource(document, errors, _WANTED_DOCUMENT)) is not None:
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


def _parse_resource(
    item: Any,  # noqa: ANN401
    errors: ValidationErrors,
    wanted: str = _WANTED_RESOURCE,
) -> Resource | None:
    if not has_type(item):
        what = f"a mapping without {TYPE_KEY!r}" if isinstance(item, dict) else describe_value(item)
        errors.add(f"is {what}, wanted {wanted}")
        return None
    message = parse_message(item, errors)
    try:
        return None if message is None else Resource.of(message)
    except ValueError as error:
        errors.add(str(error))
        return None


def _find_excess(documents: list[Any]) -> str | None:
    """The limit that the documents exceed, if any. A value counts once per reference to it."""
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
