"""Client of gRPC server reflection: fetches the descriptors of a service from its server.

`grpc.reflection.v1` is tried first, then `grpc.reflection.v1alpha`: their messages are the same on
the wire. A server may send each imported file only on request, so imports are requested by name.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from proxyless.base.texts import quote
from proxyless.cli.message_schemas import SchemaError, find_method, well_known_file
from proxyless.protos import DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

    from proxyless.cli.message_schemas import MethodSchema
    from proxyless.front import AioChannel

FILES_MAX: Final = 2_000
DESCRIPTORS_BYTES_MAX: Final = 64 * 1024 * 1024

_VERSIONS: Final = ("v1", "v1alpha")
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
# The fields that are used here, by message: name, number, type.
_MESSAGES: Final = {
    "Request": (
        ("file_by_filename", 3, "string"),
        ("file_containing_symbol", 4, "string"),
        ("list_services", 7, "string"),
    ),
    "Files": (("file_descriptor_proto", 1, "bytes[]"),),
    "Service": (("name", 1, "string"),),
    "Services": (("service", 1, "Service[]"),),
    "Failure": (("error_code", 1, "int32"), ("error_message", 2, "string")),
    "Response": (
        ("file_descriptor_response", 4, "Files"),
        ("list_services_response", 6, "Services"),
        ("error_response", 7, "Failure"),
    ),
}
_SCALARS: Final = {
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
    "int32": _FIELD.TYPE_INT32,
}


async def fetch_schema(
    channel: AioChannel,
    path: str,
    metadata: Sequence[tuple[str, str | bytes]],
    remaining_s: Callable[[], float],
) -> MethodSchema:
    """The schema of a method, from the server that these RPCs are routed to.

    The metadata is sent as well, so that routes match as for the RPC itself. Raises SchemaError, or
    grpc.RpcError with the status of the reflection service.
    """
    for version in _VERSIONS:
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=_message("Request").SerializeToString,
            response_deserializer=_message("Response").FromString,
        )(metadata=metadata, timeout=remaining_s())
        try:
            return await _Exchange(call).find(path)
        except grpc.RpcError as error:
            is_last = version == _VERSIONS[-1]
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED or is_last:
                raise
        finally:
            call.cancel()
    raise AssertionError("the last version returns or raises")


class _Exchange:
    """One reflection stream. Its requests are answered in their order."""

    def __init__(self, call: Any) -> None:  # noqa: ANN401 - grpcio's calls have no types
        self._call: Final = call
        self._files: Final[dict[str, descriptor_pb2.FileDescriptorProto]] = {}
        self._size = 0

    async def find(self, path: str) -> MethodSchema:
        service = path[1:].partition("/")[0]
        answer = await self._request(file_containing_symbol=service)
        if answer.HasField("error_response"):
            return find_method({}, path, await self._list_services())
        self._keep(answer)
        await self._fetch_imports()
        return find_method(self._files, path)

    async def _fetch_imports(self) -> None:
        while missing := self._missing():
            for name in missing:
                answer = await self._request(file_by_filename=name)
                self._keep(answer)
                if name not in self._files:
                    reason = answer.error_response.error_message or "another file was sent"
                    raise SchemaError(f"reflection does not send {quote(name)}: {quote(reason)}")

    def _missing(self) -> list[str]:
        """Names of imported files that are not here yet."""
        imported = {name for file in self._files.values() for name in file.dependency}
        return sorted(
            name for name in imported if name not in self._files and well_known_file(name) is None
        )

    async def _list_services(self) -> list[str]:
        answer = await self._request(list_services="*")
        return [service.name for service in answer.list_services_response.service]

    async def _request(self, **fields: str) -> Any:  # noqa: ANN401 - a response, made at run time
        await self._call.write(_message("Request")(**fields))
        answer = await self._call.read()
        if answer is grpc.aio.EOF:
            raise SchemaError("reflection ended without a response")
        return answer

    def _keep(self, answer: Any) -> None:  # noqa: ANN401
        for serialized in answer.file_descriptor_response.file_descriptor_proto:
            self._size += len(serialized)
            if len(self._files) >= FILES_MAX or self._size > DESCRIPTORS_BYTES_MAX:
                limits = f"{FILES_MAX} files and {DESCRIPTORS_BYTES_MAX} bytes"
                raise SchemaError(f"reflection sends too much, wanted at most {limits}")
            try:
                file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
            except DECODE_ERRORS:
                raise SchemaError("reflection sent a file that is not a descriptor") from None
            self._files.setdefault(file.name, file)


@functools.cache
def _message(name: str) -> type[Message]:
    """The class of one of `_MESSAGES`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"reflection.{name}"))


@functools.cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="reflection.proto", package="reflection", syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            plain = kind.removesuffix("[]")
            label = _FIELD.LABEL_REPEATED if kind != plain else _FIELD.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if plain in _SCALARS:
                field.type = _SCALARS[plain]
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".reflection.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool
