"""A shop of grpcio whose service is described by server reflection, in each of its forms.

`shop.Shop` has a unary method, one with streamed responses and one with streamed requests. Its file
imports a file of its own and a well-known one.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tests.interop.drop_in import stop_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GET, LIST, PUT = "shop.Shop/Get", "shop.Shop/List", "shop.Shop/Put"
V1, V1ALPHA = "v1", "v1alpha"

_FIELD: Final = descriptor_pb2.FieldDescriptorProto


def _field(
    message: descriptor_pb2.DescriptorProto, name: str, kind: int, type_name: str = ""
) -> None:
    number = len(message.field) + 1
    field = message.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    if type_name:
        field.type_name = type_name


def _describe() -> dict[str, descriptor_pb2.FileDescriptorProto]:
    price = descriptor_pb2.FileDescriptorProto(
        name="shop/price.proto", package="shop", syntax="proto3"
    )
    _field(price.message_type.add(name="Price"), "cents", _FIELD.TYPE_INT64)
    shop = descriptor_pb2.FileDescriptorProto(
        name="shop/shop.proto", package="shop", syntax="proto3"
    )
    shop.dependency.extend(["shop/price.proto", "google/protobuf/timestamp.proto"])
    item = shop.message_type.add(name="Item")
    _field(item, "name", _FIELD.TYPE_STRING)
    _field(item, "price", _FIELD.TYPE_MESSAGE, ".shop.Price")
    _field(item, "sold_at", _FIELD.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    service = shop.service.add(name="Shop")
    for name, streams in (
        ("Get", {}),
        ("List", {"server_streaming": True}),
        ("Put", {"client_streaming": True}),
    ):
        service.method.add(name=name, input_type=".shop.Item", output_type=".shop.Item", **streams)
    return {file.name: file for file in (price, shop)}


FILES: Final = _describe()


def protoset() -> bytes:
    """What `protoc --include_imports --descriptor_set_out` writes."""
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, *FILES.values()]).SerializeToString()


def _item_class() -> Any:  # noqa: ANN401 - made at run time
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(protoset()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Item"))


ITEM: Final = _item_class()


class Shop:
    """The service, and its reflection of one version; "" has none."""

    def __init__(self, version: str = V1) -> None:
        self._version = version
        # Names of files that were requested.
        self.files: list[str] = []

    def service(self, details: Any) -> Any:  # noqa: ANN401 - called by grpcio
        path = details.method
        if path == f"/grpc.reflection.{self._version}.ServerReflection/ServerReflectionInfo":
            return grpc.stream_stream_rpc_method_handler(
                self._reflect,
                request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
                response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
            )
        made = {"request_deserializer": ITEM.FromString}
        made["response_serializer"] = ITEM.SerializeToString
        if path == f"/{GET}":
            return grpc.unary_unary_rpc_method_handler(self._get, **made)
        if path == f"/{LIST}":
            return grpc.unary_stream_rpc_method_handler(self._list, **made)
        return None

    async def _get(self, request: Any, context: Any) -> Any:  # noqa: ANN401
        if request.name == "nothing":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such item\x1b[2J")
        await context.send_initial_metadata((("aisle", "7"),))
        context.set_trailing_metadata((("ticket-bin", b"\1\2"),))
        answer = ITEM(name=request.name.upper())
        answer.price.cents = request.price.cents + 1
        answer.sold_at.seconds = 1
        return answer

    async def _list(self, request: Any, _context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        for number in range(3):
            yield ITEM(name=f"{request.name}{number}")

    async def _reflect(self, requests: Any, _context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        """One file for each request, as servers in Go send them."""
        async for request in requests:
            answer = reflection_pb2.ServerReflectionResponse()
            name = request.file_by_filename
            if request.file_containing_symbol == "shop.Shop":
                name = "shop/shop.proto"
            if request.list_services:
                answer.list_services_response.service.add(name="shop.Shop")
            elif name in FILES:
                self.files.append(name)
                content = FILES[name].SerializeToString()
                answer.file_descriptor_response.file_descriptor_proto.append(content)
            else:
                answer.error_response.error_code = grpc.StatusCode.NOT_FOUND.value[0]
                answer.error_response.error_message = "not found"
            yield answer


@asynccontextmanager
async def open_shop(shop: Shop) -> AsyncIterator[str]:
    """Run the shop; yields its address."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((shop,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await stop_server(server)
