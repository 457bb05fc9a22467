"""Removal of secrets from resources, before they are recorded.

Values of headers, inline data (keys, tokens), metadata of filters and messages of unknown types are
removed. A header matcher becomes one that no value matches: recorded RPCs have no metadata.
"""

from __future__ import annotations

from typing import Final

from proxyless.protos import Proto, message_class

_ANY: Final = "google.protobuf.Any"
_HEADER_VALUE: Final = "envoy.config.core.v3.HeaderValue"
_DATA_SOURCE: Final = "envoy.config.core.v3.DataSource"
_HEADER_MATCHER: Final = "envoy.config.route.v3.HeaderMatcher"
# The type and the fields that say nothing of the contents remain.
_EMPTIED: Final = frozenset({"envoy.config.core.v3.Metadata", "google.protobuf.Struct"})
REDACTED: Final = "redacted"
DEPTH_MAX: Final = 64


def redact(type_url: str, serialized: bytes) -> bytes:
    """The resource without secrets; empty if its type is not known, or it cannot be parsed."""
    try:
        message = message_class(type_url.rpartition("/")[2]).FromString(serialized)
        _redact(message, 0)
    except Exception:  # noqa: BLE001, RUF100 - upb's DecodeError; KeyError for an unknown type
        return b""
    redacted: bytes = message.SerializeToString(deterministic=True)
    return redacted


def _redact(message: Proto, depth: int) -> None:
    if depth > DEPTH_MAX:
        message.Clear()
        return
    name = message.DESCRIPTOR.full_name
    if name in _EMPTIED:
        message.Clear()
    elif name == _ANY:
        message.value = redact(message.type_url, message.value)
    elif name == _HEADER_VALUE:
        message.value, message.raw_value = REDACTED, b""
    elif name == _DATA_SOURCE and message.WhichOneof("specifier") in (
        "inline_bytes",
        "inline_string",
    ):
        message.inline_string = REDACTED
    elif name == _HEADER_MATCHER:
        _redact_matcher(message)
    else:
        for field, value in message.ListFields():
            if field.message_type is not None:
                _redact_field(field, value, depth)


def _redact_matcher(matcher: Proto) -> None:
    specifier = matcher.WhichOneof("header_match_specifier")
    if matcher.name.startswith(":") or specifier in ("present_match", None):
        return
    matcher.string_match.exact = REDACTED


def _redact_field(field: Proto, value: Proto, depth: int) -> None:
    if field.message_type.GetOptions().map_entry:
        if field.message_type.fields_by_name["value"].message_type is not None:
            for each in value.values():
                _redact(each, depth + 1)
    elif (
        field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED
    ):
        for each in value:
            _redact(each, depth + 1)
    else:
        _redact(value, depth + 1)
