"""Parser and writer of proto-JSON for Envoy's API; errors have the path of the first invalid field.

`google.protobuf.json_format` parses the document. Its error texts differ between releases, so they
are not used to find the field: the document is compared with the message's descriptor instead, and
each value of a basic type is parsed on its own.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, json_format

from proxyless.protos import Proto, descriptor_pool_of_envoy, message_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import Descriptor

    from proxyless.base import ValidationErrors

# A FieldDescriptor. Its attributes differ between releases of protobuf.
Field: TypeAlias = Any

TYPE_KEY: Final = "@type"

# Some values of the wrong type make json_format raise other errors than its own.
_PARSE_ERRORS: Final = (
    json_format.ParseError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
_ANY: Final = "google.protobuf.Any"
_EXPECTED: Final = {
    _ANY: f"a mapping with its {TYPE_KEY!r}",
    "google.protobuf.Duration": "a duration such as '1.5s'",
}


def parse_message(item: dict[str, Any], errors: ValidationErrors) -> Proto | None:
    """The message of an object that has its type at "@type". None adds an error."""
    message_type = _find_type(item[TYPE_KEY])
    if message_type is None:
        errors.add(_describe_unknown_type(item))
        return None
    message = message_type()
    fields = _fields_of(item)
    typed = _list_typed(fields)
    try:
        _parse(fields, message)
    except _PARSE_ERRORS as error:
        for inner, type_url in typed:
            inner[TYPE_KEY] = type_url
        path, text = _find_first_error(fields, message.DESCRIPTOR) or ("", str(error))
        with errors.field(path) if path else nullcontext():
            errors.add(text)
        return None
    return message


def to_document(message: Proto) -> dict[str, Any]:
    """The proto-JSON of a message, with its type and the names of the API's files."""
    text = json_format.MessageToJson(
        message, preserving_proto_field_name=True, descriptor_pool=descriptor_pool_of_envoy()
    )
    # MessageToDict would return other mappings than dict.
    return {TYPE_KEY: f"type.googleapis.com/{message.DESCRIPTOR.full_name}", **json.loads(text)}


def _parse(fields: dict[str, Any], message: Proto) -> None:
    json_format.ParseDict(fields, message, descriptor_pool=descriptor_pool_of_envoy())


def _list_typed(fields: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """All inner objects with their types, which json_format of protobuf 5 may delete on errors."""
    typed: list[tuple[dict[str, Any], str]] = []
    to_visit: list[Any] = [fields]
    while to_visit:
        node = to_visit.pop()
        if has_type(node):
            typed.append((node, node[TYPE_KEY]))
        if isinstance(node, dict | list):
            to_visit += node.values() if isinstance(node, dict) else node
    return typed


def _find_type(type_url: str) -> type[Proto] | None:
    try:
        return message_class(type_url.rpartition("/")[2])
    except (KeyError, TypeError):  # TypeError if the name is not valid Unicode.
        return None


def _describe_unknown_type(item: dict[str, Any]) -> str:
    return f"{TYPE_KEY} {item[TYPE_KEY]!r:.200} is not known"


def has_type(item: object) -> bool:
    """Whether this is an object with its type at "@type"."""
    return isinstance(item, dict) and isinstance(item.get(TYPE_KEY), str)


def _fields_of(item: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in item.items() if key != TYPE_KEY}


# Errors by path


def _find_first_error(fields: dict[str, Any], descriptor: Descriptor) -> tuple[str, str] | None:
    try:
        return next(_find_errors(fields, descriptor, ""), None)
    except RecursionError:  # protobuf rejects such a document, too, for its depth.
        return None


def _find_errors(value: object, descriptor: Descriptor, path: str) -> Iterator[tuple[str, str]]:
    """Paths and texts of all errors in a message, in the order of the document."""
    if not isinstance(value, dict):
        yield path, f"is {describe_value(value)}, wanted a mapping"
        return
    by_json_name = {field.json_name: field for field in descriptor.fields}
    set_oneofs: dict[str, str] = {}
    for name, content in value.items():
        field_path = f"{path}.{name}" if path else str(name)
        field = by_json_name.get(name) or descriptor.fields_by_name.get(str(name))
        if field is None:
            yield field_path, "there is no such field"
            continue
        if content is None:
            continue
        oneof = field.containing_oneof
        other = name if oneof is None else set_oneofs.setdefault(oneof.name, name)
        if other != name:
            yield field_path, f"is set beside {other!r}, wanted one of them"
        yield from _find_field_errors(content, field, field_path)


def _find_field_errors(value: object, field: Field, path: str) -> Iterator[tuple[str, str]]:
    if not _is_repeated(field):
        yield from _find_value_errors(value, value, field, path)
    elif not _is_map(field):
        if not isinstance(value, list):
            yield path, f"is {describe_value(value)}, wanted a list"
            return
        for index, element in enumerate(value):
            yield from _find_value_errors(element, [element], field, f"{path}[{index}]")
    elif not isinstance(value, dict):
        yield path, f"is {describe_value(value)}, wanted a mapping"
    else:
        for key, element in value.items():
            if not isinstance(key, str):
                yield path, f"has the key {describe_value(key)}, wanted a string"
            key_path = f"{path}[{json.dumps(str(key))}]"
            yield from _find_value_errors(element, {key: element}, field, key_path)


def _find_value_errors(
    value: Any,  # noqa: ANN401 - any JSON
    field_value: object,
    field: Field,
    path: str,
) -> Iterator[tuple[str, str]]:
    """Errors of one value. `field_value` is the content of the field with no other element."""
    value_field = field.message_type.fields_by_name["value"] if _is_map(field) else field
    descriptor = value_field.message_type
    if descriptor is not None and descriptor.full_name == _ANY and has_type(value):
        message_type = _find_type(value[TYPE_KEY])
        if message_type is None:
            yield path, _describe_unknown_type(value)
            return
        descriptor, value = message_type.DESCRIPTOR, _fields_of(value)
    if descriptor is not None and not descriptor.full_name.startswith("google.protobuf."):
        yield from _find_errors(value, descriptor, path)
        return
    try:
        _parse({field.name: field_value}, message_class(field.containing_type.full_name)())
    except _PARSE_ERRORS:
        yield path, f"is {describe_value(value)}, wanted {_describe_type(value_field)}"


def _is_repeated(field: Field) -> bool:
    # Older releases have `label` instead.
    is_repeated = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if is_repeated is None else is_repeated)


def _is_map(field: Field) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _describe_type(field: Field) -> str:
    if field.enum_type is not None:
        return f"one of {', '.join(field.enum_type.values_by_name)}"
    if field.message_type is None:
        return descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)[len("TYPE_") :].lower()
    name = str(field.message_type.full_name)
    return _EXPECTED.get(name, name)


def describe_value(value: object) -> str:
    """A value for an error text."""
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case None:
            return "nothing"
        case _:
            return f"{value!r:.80}"
