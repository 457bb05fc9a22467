"""Schemas of methods, from descriptors: requests from JSON, and responses as JSON.

Descriptors come from files that `protoc --descriptor_set_out --include_imports` wrote, or from the
server (`reflection`). They are added to a pool of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from proxyless.base.frozen import frozen
from proxyless.base.texts import count, quote
from proxyless.protos import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PROTOSET_BYTES_MAX: Final = 64 * 1024 * 1024
# Services that an error text lists.
SERVICES_SHOWN_MAX: Final = 10

_WELL_KNOWN: Final = "google/protobuf/"


class SchemaError(ValueError):
    """The descriptors or a message cannot be used. Its text is for the user."""


@frozen
class MethodSchema:
    """One method: its message classes, and which side sends a stream."""

    path: str
    request: type[Any]
    response: type[Any]
    is_client_streaming: bool
    is_server_streaming: bool
    # Resolves the types of `google.protobuf.Any`.
    pool: descriptor_pool.DescriptorPool

    def encode_request(self, text: str) -> bytes:
        """A request in JSON, serialized. Raises SchemaError."""
        message = self.request()
        try:
            json_format.Parse(text, message, descriptor_pool=self.pool)
        except (json_format.ParseError, RecursionError) as error:
            name = message.DESCRIPTOR.full_name
            raise SchemaError(f"request is not a {name} in JSON: {error}") from None
        serialized: bytes = message.SerializeToString()
        return serialized

    def decode_response(self, serialized: bytes) -> str:
        """A response as JSON of several lines. Raises SchemaError."""
        name = self.response.DESCRIPTOR.full_name
        try:
            message = self.response.FromString(serialized)
            return json_format.MessageToJson(
                message, descriptor_pool=self.pool, preserving_proto_field_name=True
            )
        except (*DECODE_ERRORS, TypeError, json_format.SerializeToJsonError) as error:
            raise SchemaError(f"response is not a {name}: {error}") from None


def read_protosets(paths: Iterable[Path]) -> dict[str, descriptor_pb2.FileDescriptorProto]:
    """Descriptors in these files, by file name. Raises SchemaError or OSError."""
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for path in paths:
        with path.open("rb") as stream:
            content = stream.read(PROTOSET_BYTES_MAX + 1)
        if len(content) > PROTOSET_BYTES_MAX:
            raise SchemaError(f"{path}: has more than {PROTOSET_BYTES_MAX} bytes")
        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(content)
        except DECODE_ERRORS:
            raise SchemaError(f"{path}: is not a descriptor set of protoc") from None
        files.update((file.name, file) for file in found.file)
    return files


def make_pool(
    files: Mapping[str, descriptor_pb2.FileDescriptorProto],
) -> descriptor_pool.DescriptorPool:
    """Pool of these files, dependencies first. Raises SchemaError if one is missing or invalid."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    # A stack of its own: a chain of imports may be longer than Python's.
    waiting = list(files)
    under_way: set[str] = set()
    while waiting:
        name = waiting[-1]
        file = files.get(name) or well_known_file(name)
        if file is None:
            raise SchemaError(f"descriptor of {quote(name)} is missing: use --include_imports")
        missing = [each for each in file.dependency if each not in added]
        if name in added or not missing:
            waiting.pop()
            if name not in added:
                added.add(name)
                _add(pool, file)
            continue
        if name in under_way:
            raise SchemaError(f"descriptor of {quote(name)} imports itself")
        under_way.add(name)
        waiting += missing
    return pool


def well_known_file(name: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Descriptor of a file that comes with protobuf; None for other names."""
    if not name.startswith(_WELL_KNOWN):
        return None
    # Their modules add them to the default pool.
    from google.protobuf import (  # noqa: F401, PLC0415
        any_pb2,
        api_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        type_pb2,
        wrappers_pb2,
    )

    file = descriptor_pb2.FileDescriptorProto()
    try:
        descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    except KeyError:
        return None
    return file


def find_method(
    files: Mapping[str, descriptor_pb2.FileDescriptorProto],
    path: str,
    services: Iterable[str] = (),
) -> MethodSchema:
    """The schema of `/package.Service/Method`. Raises SchemaError, with the names that exist.

    `services` are names of services that are not in the files.
    """
    pool = make_pool(files)
    service_name, _, method_name = path[1:].partition("/")
    try:
        service = pool.FindServiceByName(service_name)
    except KeyError:
        names = _describe_alternatives(
            sorted({*services, *_services_of(files.values())}), "service"
        )
        raise SchemaError(f"service {quote(service_name)} has no descriptor{names}") from None
    method = service.methods_by_name.get(method_name)
    if method is None:
        names = _describe_alternatives(sorted(service.methods_by_name), "method")
        raise SchemaError(f"service {service_name} has no method {quote(method_name)}{names}")
    return MethodSchema(
        path,
        message_factory.GetMessageClass(method.input_type),
        message_factory.GetMessageClass(method.output_type),
        method.client_streaming,
        method.server_streaming,
        pool,
    )


def _services_of(files: Iterable[descriptor_pb2.FileDescriptorProto]) -> list[str]:
    return [
        f"{file.package}.{service.name}" if file.package else service.name
        for file in files
        for service in file.service
    ]


def _add(pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, KeyError) as error:
        raise SchemaError(f"descriptor of {quote(file.name)} is not valid: {error}") from None


def _describe_alternatives(names: list[str], noun: str) -> str:
    if not names:
        return ""
    shown = ", ".join(map(quote, names[:SERVICES_SHOWN_MAX]))
    more = len(names) - SERVICES_SHOWN_MAX
    return f", but there is {shown}" + (f" and {count(more, f'more {noun}')}" if more > 0 else "")
