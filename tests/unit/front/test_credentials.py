"""Unit tests of proxyless.front.credentials."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import grpc.experimental
import pytest

import proxyless
from proxyless.base import Metadata, Status, StatusCode
from proxyless.channel.credentials import CombinedCredentials, RefusedCredentials
from proxyless.front import (
    ChannelCredentials,
    composite_channel_credentials,
    insecure_channel_credentials,
    local_channel_credentials,
    ssl_channel_credentials,
    to_channel_credentials,
    xds_channel_credentials,
)
from proxyless.front import plugin_threads as front_plugin_threads
from proxyless.front.credentials import _PluginCredentials, to_call_credentials
from proxyless.runtime.daemon_threads import DaemonThreads
from tests.worlds.transports import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable

SSL = ssl_channel_credentials(b"roots", b"key", b"chain")


def same(one: ChannelCredentials, other: ChannelCredentials) -> bool:
    """Compare the security of connections."""
    return (one.tls, one.is_private, one.is_local) == (other.tls, other.is_private, other.is_local)


@pytest.mark.parametrize(
    "fallback", [SSL, local_channel_credentials(), insecure_channel_credentials()]
)
def test_xds_credentials_are_their_fallback_without_xds(
    fallback: ChannelCredentials,
) -> None:
    credentials = xds_channel_credentials(fallback)
    assert credentials.is_xds
    assert not fallback.is_xds
    assert same(credentials, fallback)
    assert to_channel_credentials(credentials) is credentials


def test_the_default_fallback_is_tls() -> None:
    assert same(xds_channel_credentials(), ssl_channel_credentials())


@pytest.mark.parametrize(
    ("fallback", "ours"),
    [
        (grpc.ssl_channel_credentials(b"roots", b"key", b"chain"), SSL),
        (grpc.local_channel_credentials(), local_channel_credentials()),
        (
            grpc.experimental.insecure_channel_credentials(),
            insecure_channel_credentials(),
        ),
    ],
)
@pytest.mark.parametrize("maker", [xds_channel_credentials, grpc.xds_channel_credentials])
def test_xds_credentials_of_grpcio_are_converted(
    maker: Callable[[Any], Any], fallback: object, ours: ChannelCredentials
) -> None:
    credentials = to_channel_credentials(maker(fallback))
    assert credentials.is_xds
    assert same(credentials, ours)


@pytest.mark.parametrize("maker", [xds_channel_credentials, grpc.xds_channel_credentials])
def test_a_fallback_that_is_not_supported_raises_with_its_name(maker: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="channel credentials are ALTSChannelCredentials"):
        to_channel_credentials(maker(grpc.alts_channel_credentials()))


def test_a_fallback_of_xds_credentials_raises() -> None:
    with pytest.raises(TypeError, match="fallback credentials are xDS credentials"):
        xds_channel_credentials(xds_channel_credentials())


def test_a_fallback_with_call_credentials_raises() -> None:
    token = grpc.access_token_call_credentials("token")
    with pytest.raises(TypeError, match="fallback credentials have call credentials"):
        xds_channel_credentials(composite_channel_credentials(SSL, token))
    credentials = composite_channel_credentials(xds_channel_credentials(SSL), token)
    assert credentials.is_xds
    assert len(credentials.call_credentials) == 1


def test_xds_credentials_are_exported() -> None:
    assert proxyless.xds_channel_credentials is xds_channel_credentials
    assert proxyless.aio.xds_channel_credentials is xds_channel_credentials


# Withdrawn call credentials


class Result:
    """Records the result of a request."""

    def __init__(self) -> None:
        self.answers: list[Metadata | Status] = []
        self.came = asyncio.Event()

    def __call__(self, found: Metadata | Status) -> None:
        self.answers.append(found)
        self.came.set()


async def test_a_function_is_cancelled_when_it_is_withdrawn() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow(_url: str, _path: str) -> tuple[tuple[str, str], ...]:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError("never resumed")

    withdraw = to_call_credentials(slow).request("https://a/b", "/b/c", Result())
    assert withdraw is not None
    await began.wait()
    withdraw()
    await ended.wait()
    withdraw()


async def test_a_function_may_be_withdrawn_in_on_metadata() -> None:
    async def quick(_url: str, _path: str) -> tuple[tuple[str, str], ...]:
        return (("k", "v"),)

    tasks: list[asyncio.Task[Any] | None] = []

    def on_metadata(_found: Metadata | Status) -> None:
        assert withdraw is not None
        withdraw()
        tasks.append(asyncio.current_task())

    withdraw = to_call_credentials(quick).request("https://a/b", "/b/c", on_metadata)
    await until(lambda: tasks, "the answer")
    (task,) = tasks
    assert task is not None
    await task
    assert not task.cancelled()


async def test_the_running_function_of_several_is_cancelled_when_withdrawn() -> None:
    ended: list[str] = []
    second_began, second_ended = asyncio.Event(), asyncio.Event()

    async def first(_url: str, _path: str) -> tuple[tuple[str, str], ...]:
        ended.append("first")
        return ()

    async def second(_url: str, _path: str) -> tuple[tuple[str, str], ...]:
        second_began.set()
        try:
            await asyncio.Event().wait()
        finally:
            second_ended.set()
        raise AssertionError("never resumed")

    both = CombinedCredentials((to_call_credentials(first), to_call_credentials(second)))
    withdraw = both.request("https://a/b", "/b/c", Result())
    assert withdraw is not None
    await second_began.wait()
    withdraw()
    await second_ended.wait()
    assert ended == ["first"]


async def test_several_credentials_that_complete_at_once_return_no_withdraw() -> None:
    result = Result()
    assert CombinedCredentials((RefusedCredentials(),)).request("https://a", "/b", result) is None
    assert len(result.answers) == 1


async def test_a_withdrawn_plugin_is_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pool = DaemonThreads("plugin", "plugins", threads_max=1)
    monkeypatch.setattr(front_plugin_threads, "plugin_threads", lambda: pool)
    begun: list[str] = []
    may_go_on = threading.Event()

    def plugin_function(_url: str, name: str, callback: Callable[..., None]) -> None:
        begun.append(name)
        assert may_go_on.wait(PATIENCE_S)
        callback((("k", "v"),), None, None)

    plugin = _PluginCredentials(plugin_function)
    first, last = Result(), Result()
    plugin.request("https://a/b", "/b/first", first)
    withdraw = plugin.request("https://a/b", "/b/withdrawn", Result())
    plugin.request("https://a/b", "/b/last", last)
    assert withdraw is not None
    withdraw()
    may_go_on.set()
    await last.came.wait()
    assert first.answers == last.answers == [(("k", "v"),)]
    assert begun == ["first", "last"]


async def test_a_plugin_does_not_run_in_the_executor_of_the_loop() -> None:
    loop, resolved = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    resolving = loop.run_in_executor(None, resolved.wait, PATIENCE_S)

    def plugin_function(_url: str, _name: str, callback: Callable[..., None]) -> None:
        callback((("k", "v"),), None, None)

    result = Result()
    _PluginCredentials(plugin_function).request("https://a/b", "/b/c", result)
    await result.came.wait()
    resolved.set()
    assert await resolving
    assert result.answers == [(("k", "v"),)]


@pytest.mark.parametrize("error", [ValueError("what is this?"), SystemExit("enough")], ids=repr)
async def test_a_plugin_that_raises_is_an_error(error: BaseException) -> None:
    def plugin(*_: object) -> None:
        raise error

    result = Result()
    _PluginCredentials(plugin).request("https://a/b", "/b/c", result)
    await result.came.wait()
    (status,) = result.answers
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    assert f"{type(error).__name__} (its text is logged" in status.details
    assert str(error) not in status.details


async def test_text_of_a_function_that_raises_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def function(_url: str, _path: str) -> Metadata:
        raise LookupError("secret\n\x1b[2J")

    result = Result()
    with caplog.at_level(logging.DEBUG, "proxyless.channel"):
        to_call_credentials(function).request("https://a/b", "/b/c", result)
        await result.came.wait()
    text = "call credentials raised LookupError (its text is logged by proxyless.channel at DEBUG)"
    assert result.answers == [Status(StatusCode.UNAVAILABLE, text)]
    assert caplog.messages == [r"call credentials: LookupError: secret \x1b[2J"]


async def test_a_plugin_that_gets_no_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = DaemonThreads("plugin", "plugins", threads_max=1)
    monkeypatch.setattr(front_plugin_threads, "plugin_threads", lambda: pool)
    result = Result()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        _PluginCredentials(lambda *_: None).request("https://a/b", "/b/c", result)
    assert result.answers == [], "called in a later turn of the loop"
    await result.came.wait()
    (status,) = result.answers
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    assert "can't start new thread" in status.details
