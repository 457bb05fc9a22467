"""Decoding of serialized resources: bytes to a validated resource, or to the error of the NACK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from proxyless.base import ValidationErrors
from proxyless.protos import Proto, message_class
from proxyless.xds.client.api import Decoded
from proxyless.xds.error_texts import name_resource, name_type
from proxyless.xds.parsing.proto_fields import add_error

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TYPE_URL_PREFIX: Final = "type.googleapis.com/"


def decode_resource(
    full_name: str,
    serialized: bytes,
    parse: Callable[[Proto, ValidationErrors], T | None],
    name_field: str = "name",
) -> Decoded[T]:
    """The resource in these bytes, or all errors in one text. Does not raise for any bytes."""
    try:
        message = message_class(full_name).FromString(serialized)
    except DecodeError:
        return Decoded("", error=f"{name_type(full_name)}: cannot be decoded as {full_name}")
    errors = ValidationErrors()
    name: str = getattr(message, name_field)
    if not name:
        add_error(errors, name_field, "is empty, wanted the resource's name")
    resource = parse(message, errors)
    if not errors.ok:
        return Decoded(name, error=f"{name_resource(full_name, name)}: {errors}")
    assert resource is not None, "a parser that returns None adds an error"
    return Decoded(name, resource)
