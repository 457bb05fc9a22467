"""`proxyless call` with a control plane and grpcio's servers."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from proxyless.controlplane import ControlPlane, simple_mesh
from tests.worlds.command_lines import Finished, run_command
from tests.worlds.reflected_shop import (
    FILES,
    GET,
    ITEM,
    LIST,
    PUT,
    V1,
    V1ALPHA,
    Shop,
    open_shop,
    protoset,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

# Each command is a process that takes seconds to start on a busy machine.

TARGET = "xds:///shop"


class MeshOfOneShop:
    """A mesh with one shop, and its bootstrap in a file."""

    def __init__(self, address: str, bootstrap: Path) -> None:
        self.address = address
        self._bootstrap = bootstrap

    async def call(self, *words: str, stdin: bytes = b"", target: str = TARGET) -> Finished:
        given = ("call", target, *words, "--bootstrap", str(self._bootstrap))
        return await run_command(*given, stdin=stdin)


@asynccontextmanager
async def mesh(shop: Shop, directory: Path) -> AsyncIterator[MeshOfOneShop]:
    bootstrap = directory / "bootstrap.json"
    async with (
        open_shop(shop) as address,
        ControlPlane(simple_mesh("shop", {"tills": [address]})) as control_plane,
    ):
        bootstrap.write_text(json.dumps(control_plane.bootstrap()))
        yield MeshOfOneShop(address, bootstrap)


@pytest.mark.parametrize("version", [V1, V1ALPHA])
async def test_request_in_json_is_sent_with_descriptors_of_reflection(
    tmp_path: Path, version: str
) -> None:
    shop = Shop(version)
    async with mesh(shop, tmp_path) as mine:
        found = await mine.call(GET, "-d", '{"name": "tea", "price": {"cents": 41}}')
    assert found.code == 0
    assert json.loads(found.out) == {
        "name": "TEA",
        "price": {"cents": "42"},
        "sold_at": "1970-01-01T00:00:01Z",
    }
    assert found.err == ""
    assert set(shop.files) == set(FILES), "imports are requested by name"


async def test_streamed_responses_are_printed_one_after_the_other(tmp_path: Path) -> None:
    descriptors = tmp_path / "shop.protoset"
    descriptors.write_bytes(protoset())
    async with mesh(Shop(""), tmp_path) as mine:
        found = await mine.call(
            LIST, "-d", "-", "--protoset", str(descriptors), stdin=b'{"name":"x"}'
        )
    assert found.code == 0
    assert [line for line in found.out.splitlines() if "name" in line] == [
        '  "name": "x0"',
        '  "name": "x1"',
        '  "name": "x2"',
    ]


async def test_bytes_need_no_descriptors(tmp_path: Path) -> None:
    request = ITEM(name="tea").SerializeToString()
    file = tmp_path / "request"
    file.write_bytes(request)
    async with mesh(Shop(""), tmp_path) as mine:
        in_hex = await mine.call(GET, "--data-hex", request.hex())
        from_file = await mine.call(LIST, "--data-file", str(file), "-o", "base64")
    assert ITEM.FromString(bytes.fromhex(in_hex.out)).name == "TEA"
    assert len(from_file.out.splitlines()) == 3


async def test_verbose_call_prints_metadata_status_and_backend(tmp_path: Path) -> None:
    async with mesh(Shop(), tmp_path) as mine:
        found = await mine.call(GET, "-v", "-H", "ring: beta", "-H", "who=me")
    assert found.code == 0
    assert json.loads(found.out)["price"] == {"cents": "1"}
    header, trailer, status, route = found.err.splitlines()
    assert (header, trailer) == ("header aisle: 7", "trailer ticket-bin: AQI=")
    assert status.startswith("* OK in ")
    assert status.endswith(f'; went to {mine.address}, cluster "tills"')
    assert route == '* route 0: to cluster "tills"'


async def test_error_of_the_backend_has_its_code_and_is_escaped(tmp_path: Path) -> None:
    async with mesh(Shop(), tmp_path) as mine:
        found = await mine.call(GET, "-d", '{"name": "nothing"}')
    assert (found.code, found.out) == (64 + 5, "")
    failed, went = found.err.splitlines()
    assert failed.startswith(
        r"proxyless call: /shop.Shop/Get failed with NOT_FOUND: no such item\x1b[2J"
    )
    assert went == f'  went to {mine.address}, cluster "tills"'


async def test_error_of_the_mesh_is_explained(tmp_path: Path) -> None:
    async with mesh(Shop(), tmp_path) as mine:
        found = await mine.call(
            GET, "--data-hex", "", "--timeout", "500ms", target="xds:///elsewhere"
        )
    assert found.code == 64 + 4
    assert "DEADLINE_EXCEEDED" in found.err.splitlines()[0]
    assert 'listener "elsewhere": not here yet' in found.err


async def test_call_without_a_usable_request_exits_with_1(tmp_path: Path) -> None:
    async with mesh(Shop(), tmp_path) as mine:
        unknown = await mine.call(GET, "-d", '{"nmae": "tea"}')
        method = await mine.call("shop.Shop/Buy")
        service = await mine.call("shop.Store/Get")
        streaming = await mine.call(PUT)
    assert [each.code for each in (unknown, method, service, streaming)] == [1] * 4
    assert 'no field named "nmae"' in unknown.err
    assert method.err.endswith('has no method "Buy", but there is "Get", "List", "Put"\n')
    assert 'service "shop.Store" has no descriptor, but there is "shop.Shop"' in service.err
    assert "takes a stream of requests" in streaming.err


async def test_server_without_reflection_is_named(tmp_path: Path) -> None:
    async with mesh(Shop(""), tmp_path) as mine:
        found = await mine.call(GET)
    assert found.code == 1
    assert found.err == (
        "proxyless call: server has no reflection, "
        "wanted --protoset FILE, or --data-hex and the like\n"
    )


async def test_target_without_xds_needs_no_bootstrap(tmp_path: Path) -> None:
    async with open_shop(Shop()) as address:
        found = await run_command("call", f"dns:///{address}", GET, "-v")
        refused = await run_command("call", address, GET, "--bootstrap", str(tmp_path / "x"))
    assert found.code == 0
    assert f"went to {address}\n" in found.err
    assert refused.code == 2
    assert "argument --bootstrap: has no effect for target" in refused.err
