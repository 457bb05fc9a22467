"""Removal of secrets from resources, before they are saved or recorded.

Inline data (keys, passwords), credentials, values of headers to add, access logs, tracing, health
checks, network filters and fields that this version does not know are removed: a client uses none
of them. A recording, which other people read, has neither metadata of filters nor messages of
unknown types, and a header matcher becomes one that no value matches: recorded RPCs have no
metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.protos import Proto, message_class

if TYPE_CHECKING:
    from collections.abc import Iterable

_ANY: Final = "google.protobuf.Any"
_HEADER_VALUE: Final = "envoy.config.core.v3.HeaderValue"
_DATA_SOURCE: Final = "envoy.config.core.v3.DataSource"
_HEADER_MATCHER: Final = "envoy.config.route.v3.HeaderMatcher"
# Endpoints, and members of collections of them, which are saved in one message of another type.
_WITHOUT_SECRETS: Final = (
    "envoy.config.endpoint.v3.ClusterLoadAssignment",
    "envoy.config.endpoint.v3.LbEndpoint",
)
_GOOGLE_GRPC: Final = "envoy.config.core.v3.GrpcService.GoogleGrpc"
# Credentials, and what only proxies and servers use, with extensions of unknown types.
_EMPTIED: Final = frozenset(
    {
        "envoy.config.accesslog.v3.AccessLog",
        "envoy.config.cluster.v3.Filter",
        "envoy.config.core.v3.GrpcService.GoogleGrpc.CallCredentials",
        "envoy.config.core.v3.HealthCheck",
        "envoy.config.listener.v3.Filter",
        "envoy.config.listener.v3.ListenerFilter",
        "envoy.config.trace.v3.Tracing.Http",
        "envoy.extensions.transport_sockets.tls.v3.PrivateKeyProvider",
    }
)
_EMPTIED_IN_RECORDINGS: Final = frozenset(
    {*_EMPTIED, "envoy.config.core.v3.Metadata", "google.protobuf.Struct"}
)
REDACTED: Final = "redacted"
# 16 levels of LB policies are 80 deep.
DEPTH_MAX: Final = 128


def without_secrets(type_url: str, serialized: bytes) -> bytes:
    """The resource as a client may save it: all that it uses is there.

    One that is of an unknown type, or cannot be parsed, is not changed.
    """
    if type_url.endswith(_WITHOUT_SECRETS):
        # They may be many, and have no field for a secret.
        return serialized
    return _redacted(type_url, serialized, 0, is_recorded=False)


def redact(type_url: str, serialized: bytes) -> bytes:
    """The resource as it may be recorded; empty if its type is unknown, or it cannot be parsed."""
    return _redacted(type_url, serialized, 0, is_recorded=True)


def _redacted(type_url: str, serialized: bytes, depth: int, *, is_recorded: bool) -> bytes:
    try:
        message = message_class(type_url.rpartition("/")[2]).FromString(serialized)
    except Exception:  # noqa: BLE001, RUF100 - upb's DecodeError; KeyError for an unknown type
        return b"" if is_recorded else serialized
    message.DiscardUnknownFields()
    _redact(message, depth, is_recorded=is_recorded)
    redacted: bytes = message.SerializeToString(deterministic=True)
    return redacted


def _redact(message: Proto, depth: int, *, is_recorded: bool) -> None:
    name = message.DESCRIPTOR.full_name
    if name == _GOOGLE_GRPC:
        message.ClearField("call_credentials_plugin")
    if depth > DEPTH_MAX or name in (_EMPTIED_IN_RECORDINGS if is_recorded else _EMPTIED):
        message.Clear()
    elif name == _ANY:
        message.value = _redacted(
            message.type_url, message.value, depth + 1, is_recorded=is_recorded
        )
    elif name == _HEADER_VALUE:
        message.value, message.raw_value = REDACTED, b""
    elif name == _DATA_SOURCE:
        if message.WhichOneof("specifier") in ("inline_bytes", "inline_string"):
            message.inline_string = REDACTED
    elif name == _HEADER_MATCHER:
        if is_recorded:
            _redact_matcher(message)
    else:
        for each in _children(message):
            _redact(each, depth + 1, is_recorded=is_recorded)


def _redact_matcher(matcher: Proto) -> None:
    specifier = matcher.WhichOneof("header_match_specifier")
    if matcher.name.startswith(":") or specifier in ("present_match", None):
        return
    matcher.string_match.exact = REDACTED


def _children(message: Proto) -> Iterable[Proto]:
    """The messages in the fields of a message."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                yield from value.values()
        elif _is_repeated(field):
            yield from value
        else:
            yield value


def _is_repeated(field: Proto) -> bool:
    # Older versions of protobuf have only the label.
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)
