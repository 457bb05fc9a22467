"""Mirrored RPCs over real sockets, with backends of grpcio that are dead, slow or failing."""

import asyncio

import grpc
import pytest

from tests.worlds.mirrored_shop import mirrored_shop
from tests.worlds.transports import PATIENCE_S, until


@pytest.mark.spec("MR-01")
async def test_mirror_gets_the_same_requests_and_metadata() -> None:
    async with mirrored_shop() as shop:
        await shop.connect()
        for number in range(20):
            assert await shop.call(b"%d" % number) == b"main"
        await until(lambda: len(shop.copy.requests) == 20, "copies")
        assert sorted(shop.copy.requests) == sorted(b"%d" % number for number in range(20))
        assert shop.copy.users == ["ada"] * 20


@pytest.mark.spec("MR-04")
async def test_failing_mirror_does_not_fail_rpcs() -> None:
    async with mirrored_shop() as shop:
        await shop.connect()
        shop.copy.is_failing = True
        for _ in range(20):
            assert await shop.call(b"") == b"main"
        await until(lambda: len(shop.copy.requests) == 20, "copies")


@pytest.mark.spec("MR-04", "MR-06")
async def test_mirror_that_does_not_answer_delays_nothing_and_is_cancelled_with_the_channel() -> (
    None
):
    async with mirrored_shop() as shop:
        await shop.connect()
        shop.copy.may_answer.clear()
        for _ in range(20):
            assert await shop.call(b"") == b"main"
        await until(lambda: len(shop.copy.requests) == 20, "copies")
        # Without a limit of its own: it would wait for RPCs that are in flight.
        await asyncio.wait_for(shop.channel.close(grace=10 * PATIENCE_S), PATIENCE_S)
        await until(lambda: shop.copy.cancelled == 20, "cancelled copies")


@pytest.mark.spec("MR-05")
async def test_dead_mirror_does_not_fail_rpcs() -> None:
    async with mirrored_shop() as shop:
        await shop.connect()
        await shop.copy.stop()
        for _ in range(20):
            assert await shop.call(b"") == b"main"
        assert shop.channel.get_state() is grpc.ChannelConnectivity.READY
