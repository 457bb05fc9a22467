"""Decoding of serialized resources: bytes to a validated resource, or to the error of the NACK.

Large resources are decoded in steps (`runtime.work_queue`): parsing the message, then validating
its elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from proxyless.base import ValidationErrors
from proxyless.protos import DECODE_ERRORS, Proto, message_class
from proxyless.protos.merging import PART_BYTES_MAX, TooLargeError, merge_in_steps
from proxyless.xds.client.api import Decoded
from proxyless.xds.error_texts import name_resource, name_type
from proxyless.xds.parsing.proto_fields import add_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.runtime.work_queue import Steps

T = TypeVar("T")

TYPE_URL_PREFIX: Final = "type.googleapis.com/"

# Work of any resource, and by its size.
DECODE_WORK: Final = 40
BYTES_PER_WORK: Final = 32


def decode_resource(
    full_name: str,
    serialized: bytes,
    parse: Callable[[Proto, ValidationErrors], Steps[T | None]],
    name_field: str = "name",
) -> Steps[Decoded[T]]:
    """The resource in these bytes, or all errors in one text. Does not raise for any bytes."""
    message = message_class(full_name)()
    name: str
    try:
        yield from merge_in_steps(message, serialized)
    except TooLargeError as error:
        name = getattr(message, name_field)
        return Decoded(name, error=f"{name_resource(full_name, name)}: {error}")
    except DECODE_ERRORS:
        return Decoded("", error=f"{name_type(full_name)}: cannot be decoded as {full_name}")
    errors = ValidationErrors()
    name = getattr(message, name_field)
    if not name:
        add_error(errors, name_field, "is empty, wanted the resource's name")
    # Large resources have elements, whose work is counted.
    errors.work = DECODE_WORK + min(len(serialized), PART_BYTES_MAX) // BYTES_PER_WORK
    resource = yield from parse(message, errors)
    yield errors.take_work()
    if not errors.ok:
        return Decoded(name, error=f"{name_resource(full_name, name)}: {errors}")
    assert resource is not None, "a parser that returns None adds an error"
    return Decoded(name, resource)
