"""Unit tests of proxyless.cli.reflection with a fake stream. Others are in tests/e2e."""

from __future__ import annotations

from typing import Any

import grpc.aio
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from proxyless.cli import reflection
from proxyless.cli.message_schemas import SchemaError
from proxyless.cli.reflection import _Exchange, _message
from tests.worlds.reflected_shop import FILES, GET


class FakeReflection:
    """A stream whose answers are the files of a dictionary."""

    def __init__(self, files: dict[str, bytes], symbol_file: str = "shop/shop.proto") -> None:
        self._files = files
        self._symbol_file = symbol_file
        self._answers: list[Any] = []
        self.requests: list[Any] = []

    async def write(self, request: Any) -> None:  # noqa: ANN401 - made at run time
        # Our messages are grpcio's on the wire.
        seen = reflection_pb2.ServerReflectionRequest.FromString(request.SerializeToString())
        self.requests.append(seen)
        answer = reflection_pb2.ServerReflectionResponse()
        name = seen.file_by_filename or self._symbol_file
        if seen.list_services:
            answer.list_services_response.service.add(name="shop.Shop")
        elif name in self._files:
            answer.file_descriptor_response.file_descriptor_proto.append(self._files[name])
        else:
            answer.error_response.error_message = "none\x1b"
        self._answers.append(_message("Response").FromString(answer.SerializeToString()))

    async def read(self) -> Any:  # noqa: ANN401
        return self._answers.pop(0) if self._answers else grpc.aio.EOF


CONTENTS = {name: file.SerializeToString() for name, file in FILES.items()}


async def test_imports_are_requested_once_and_well_known_ones_never() -> None:
    stream = FakeReflection(CONTENTS)
    schema = await _Exchange(stream).find(f"/{GET}")
    assert schema.request.DESCRIPTOR.full_name == "shop.Item"
    assert [each.WhichOneof("message_request") for each in stream.requests] == [
        "file_containing_symbol",
        "file_by_filename",
    ]
    assert stream.requests[1].file_by_filename == "shop/price.proto"


async def test_unknown_service_is_named_with_those_that_are_listed() -> None:
    stream = FakeReflection(CONTENTS, symbol_file="")
    with pytest.raises(SchemaError, match=r'but there is "shop.Shop"'):
        await _Exchange(stream).find("/shop.Store/Get")


async def test_import_that_is_not_sent_is_named_and_its_error_escaped() -> None:
    stream = FakeReflection({"shop/shop.proto": CONTENTS["shop/shop.proto"]})
    with pytest.raises(SchemaError, match=r'does not send "shop/price\.proto": "none\\x1b"'):
        await _Exchange(stream).find(f"/{GET}")


async def test_file_that_is_no_descriptor_is_an_error() -> None:
    with pytest.raises(SchemaError, match="not a descriptor"):
        await _Exchange(FakeReflection({"shop/shop.proto": b"\xff"})).find(f"/{GET}")


async def test_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflection, "FILES_MAX", 1)
    with pytest.raises(SchemaError, match="too much, wanted at most 1 files"):
        await _Exchange(FakeReflection(CONTENTS)).find(f"/{GET}")


async def test_stream_that_ends_is_an_error() -> None:
    class Ended(FakeReflection):
        async def write(self, request: Any) -> None:  # noqa: ANN401
            pass

    with pytest.raises(SchemaError, match="ended without a response"):
        await _Exchange(Ended({})).find(f"/{GET}")
