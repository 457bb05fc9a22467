"""Unit tests of proxyless.resolver.http_proxy."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import (
    EMPTY_ATTRIBUTES,
    HTTP_PROXY,
    OK,
    Endpoint,
    HttpProxy,
    IpAddress,
    Status,
    StatusCode,
)
from proxyless.channel import ChannelOptions
from proxyless.front import insecure_channel_credentials, parse_options
from proxyless.resolver import (
    STATIC_FACTORIES,
    DnsFactory,
    ProxiedFactory,
    ResolverContext,
    ResolverOptions,
    ResolverRegistry,
    ResolverResult,
)
from proxyless.resolver.http_proxy import (
    ProxyServer,
    _ProxyListener,
    choose_proxy,
    find_exceptions,
    is_excepted,
    make_connect_target,
    parse_proxy_uri,
)
from proxyless.runtime import AsyncioNetwork, VirtualClock, seeded_random

SECRET = "dXNlcjpzZWNyZXQ="
ENCODED = "has '@' behind '/', '?' or '#', which passwords have encoded"


# The URI


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://proxy:3128", ProxyServer("proxy", 3128)),
        ("http://proxy", ProxyServer("proxy", 443)),
        ("http://10.0.0.9:3128/ignored?x#y", ProxyServer("10.0.0.9", 3128)),
        ("http://[::1]:80", ProxyServer("::1", 80)),
        ("http://user:secret@proxy:1", ProxyServer("proxy", 1, f"Basic {SECRET}")),
        ("http://us%65r:s%65cret@proxy:1", ProxyServer("proxy", 1, f"Basic {SECRET}")),
        ("http://a@b:c@proxy:1", ProxyServer("proxy", 1, "Basic YUBiOmM=")),
        ("http://alone@proxy:1", ProxyServer("proxy", 1, "Basic YWxvbmU=")),
        ("http://@proxy:1", ProxyServer("proxy", 1)),
    ],
)
def test_a_uri_has_a_host_a_port_and_maybe_a_user(text: str, expected: ProxyServer) -> None:
    assert parse_proxy_uri(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("proxy:3128", "is not a URI of a proxy"),
        ("secret", "is not a URI of a proxy"),
        ("https://user:secret@proxy:1", "has the scheme 'https', which is not supported"),
        ("HTTP://proxy:1", "has the scheme 'HTTP', which is not supported"),
        ("http://user:secret@", "has no host of a proxy"),
        ("http://user:secret@pro xy:1", "has no host of a proxy"),
        ("http://user:secret@proxy:99999", "has no host of a proxy"),
        (f"http://user:secret@{'é' * 200}:1", "has no host of a proxy"),
        ("http://user:p@secret/w@proxy:1", ENCODED),
        ("http://user:1?secret@proxy:1", ENCODED),
        ("http://user:1#secret@proxy:1", ENCODED),
    ],
)
def test_invalid_uri_is_refused_without_showing_it(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match="wanted http://host:port") as caught:
        parse_proxy_uri(text)
    assert str(caught.value).startswith(f"{reason}: ")
    assert "secret" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_a_proxy_or_a_value_error(text: str) -> None:
    for each in (text, f"http://{text}"):
        try:
            proxy = parse_proxy_uri(each)
        except ValueError:
            continue
        # It contains no line break.
        assert proxy.authorization.isascii()
        assert proxy.authorization.isprintable()


def test_option_is_in_no_repr() -> None:
    given = "http://user:secret@proxy:1"
    options = ResolverOptions(proxy=parse_proxy_uri(given), by_name={"grpc.http_proxy": given})
    context = ResolverContext(Names(), VirtualClock(), seeded_random(1), options=options)
    assert "secret" not in repr(context)
    assert "secret" not in repr(ChannelOptions(resolver=options))


def test_repr_of_a_proxy_has_no_credentials() -> None:
    proxy = parse_proxy_uri("http://user:secret@proxy:1")
    assert SECRET not in f"{proxy!r} {proxy}"
    assert str(proxy) == "proxy:1"


# Sources


def uri(number: int) -> str:
    return f"http://proxy:{number}"


@pytest.mark.parametrize(
    ("options", "environ", "port"),
    [
        ({}, {}, None),
        ({}, {"http_proxy": uri(3)}, 3),
        ({}, {"https_proxy": uri(2), "http_proxy": uri(3)}, 2),
        ({}, {"grpc_proxy": uri(1), "https_proxy": uri(2), "http_proxy": uri(3)}, 1),
        ({}, {"HTTP_PROXY": uri(3), "HTTPS_PROXY": uri(3), "GRPC_PROXY": uri(3)}, None),
        # An empty value disables the proxy.
        ({}, {"grpc_proxy": "", "http_proxy": uri(3)}, None),
        ({}, {"https_proxy": "", "http_proxy": uri(3)}, None),
        ({"grpc.http_proxy": uri(4)}, {"grpc_proxy": uri(1)}, 4),
        ({"grpc.http_proxy": uri(4).encode()}, {}, 4),
        ({"grpc.http_proxy": ""}, {"grpc_proxy": uri(1)}, None),
        ({"grpc.enable_http_proxy": 0}, {"grpc_proxy": uri(1)}, None),
        ({"grpc.enable_http_proxy": 0, "grpc.http_proxy": uri(4)}, {}, None),
        ({"grpc.enable_http_proxy": 1}, {"grpc_proxy": uri(1)}, 1),
    ],
)
def test_first_source_that_is_set_is_used(
    options: Mapping[str, object], environ: Mapping[str, str], port: int | None
) -> None:
    parsed = parse_options(options.items(), insecure_channel_credentials()).channel.resolver
    proxy = choose_proxy(parsed, environ)
    assert (proxy and proxy.port) == port


def test_a_bad_uri_in_the_environment_is_logged_without_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "proxyless.resolver.http_proxy"):
        assert choose_proxy(ResolverOptions(), {"http_proxy": "https://user:secret@proxy"}) is None
    [message] = caplog.messages
    assert message == (
        "environment variable 'http_proxy' has the scheme 'https', which is not supported: wanted "
        "http://host:port or http://user:password@host:port; connections are direct"
    )


# Exceptions


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("example.com", "example.com", True),
        ("a.example.com", "example.com", True),
        ("a.b.example.com", ".example.com", True),
        ("example.com", ".example.com", True),
        ("notexample.com", "example.com", False),
        ("example.com", "a.example.com", False),
        ("A.Example.COM", " x , eXample.com ", True),
        ("example.com", "*", False),
        ("example.com", "", False),
        ("example.com", ",.,", False),
        ("example.com", "example.com:443", False),
        ("localhost", "localhost", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.99/24", True),
        ("10.1.2.3", "10.1.3.0/24", False),
        ("10.1.2.3", "0.0.0.0/0", True),
        ("10.1.2.3", "10.1.2.3/99", True),
        ("10.1.2.3", "10.1.2.4/99", False),
        ("10.1.2.3", "10.0.0.0/", False),
        ("10.1.2.3", "10.0.0.0/x", False),
        ("10.1.2.3", "example.com/8", False),
        ("10.1.2.3", "::/0", False),
        ("2001:db8::7", "2001:db8::/32", True),
        ("2001:db9::7", "2001:db8::/32", False),
        ("example.com", "10.0.0.0/8", False),
    ],
)
def test_exceptions_are_domains_addresses_and_blocks(
    host: str, no_proxy: str, expected: bool
) -> None:
    assert is_excepted(host, no_proxy) is expected


def test_no_grpc_proxy_takes_precedence_even_if_it_is_empty() -> None:
    assert find_exceptions({"no_proxy": "a", "no_grpc_proxy": "b"}) == "b"
    assert find_exceptions({"no_proxy": "a", "no_grpc_proxy": ""}) == ""
    assert find_exceptions({"no_proxy": "a"}) == "a"
    assert find_exceptions({"NO_PROXY": "a"}) == ""


def test_target_of_connect_is_ascii() -> None:
    assert make_connect_target("::1", 443) == "[::1]:443"
    assert make_connect_target("bücher.example", 80) == "xn--bcher-kva.example:80"
    with pytest.raises(ValueError, match="is not a valid name"):
        make_connect_target("é" * 200, 80)


# Resolving


class Names(AsyncioNetwork):
    """Resolves one name."""

    async def resolve(self, host: str, port: int) -> list[IpAddress]:
        if host != "proxy":
            raise OSError(0, f"no name service for {host}")
        return [IpAddress("192.0.2.1", port), IpAddress("192.0.2.2", port)]


@dataclass
class RecordingListener:
    """A listener that records results."""

    answer: Status = OK
    results: list[ResolverResult] = field(default_factory=list)

    def on_result(self, result: ResolverResult) -> Status:
        self.results.append(result)
        return self.answer


async def resolve(
    target: str,
    environ: Mapping[str, str],
    **options: Any,  # noqa: ANN401 - fields of the options
) -> ResolverResult:
    """The first result for a target."""
    clock, listener = VirtualClock(), RecordingListener()
    registry = ResolverRegistry(
        ProxiedFactory(each, environ) for each in (DnsFactory(), *STATIC_FACTORIES[:2])
    )
    context = ResolverContext(Names(), clock, seeded_random(1), options=ResolverOptions(**options))
    factory, parsed = registry.match_target(target)
    resolver = factory.create(parsed, listener, context)
    resolver.start()
    clock.advance(0)
    while asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )
    clock.advance(0)
    resolver.close()
    return listener.results[0]


def through(*addresses: str, proxy: HttpProxy) -> tuple[Endpoint, ...]:
    attributes = EMPTY_ATTRIBUTES.with_(HTTP_PROXY, proxy)
    return tuple(Endpoint((IpAddress(each, 3128),), attributes) for each in addresses)


PROXY = {"http_proxy": "http://user:secret@proxy:3128"}


@pytest.mark.parametrize("target", ["dns:///backend.example:50051", "backend.example:50051"])
async def test_proxy_is_resolved_in_place_of_the_name(target: str) -> None:
    result = await resolve(target, PROXY)
    way = HttpProxy(target="backend.example:50051", authorization=f"Basic {SECRET}")
    assert result.endpoints == through("192.0.2.1", "192.0.2.2", proxy=way)
    assert result.resolution_note == "through http proxy proxy:3128"


async def test_a_literal_proxy_needs_no_look_up() -> None:
    result = await resolve("backend.example", {"http_proxy": "http://192.0.2.9:3128"})
    assert result.endpoints == through("192.0.2.9", proxy=HttpProxy(target="backend.example:443"))


async def test_a_proxy_that_does_not_exist_is_named() -> None:
    result = await resolve("backend.example", {"http_proxy": "http://user:secret@nowhere:1"})
    assert result.endpoints == Status(
        StatusCode.UNAVAILABLE,
        'http proxy nowhere:1: dns name "nowhere:1": no name service for nowhere',
    )


async def test_excepted_host_is_resolved_directly() -> None:
    result = await resolve("192.0.2.7:1", {**PROXY, "no_proxy": "192.0.2.0/24"})
    assert result == ResolverResult((Endpoint((IpAddress("192.0.2.7", 1),)),))


async def test_a_list_of_addresses_keeps_them_and_each_may_be_excepted() -> None:
    environ = {**PROXY, "no_proxy": "192.0.2.8"}
    result = await resolve("ipv4:192.0.2.7:1,192.0.2.8:1", environ)
    way = HttpProxy(IpAddress("192.0.2.1", 3128), authorization=f"Basic {SECRET}")
    assert result.endpoints == (
        Endpoint((IpAddress("192.0.2.7", 1),), EMPTY_ATTRIBUTES.with_(HTTP_PROXY, way)),
        Endpoint((IpAddress("192.0.2.8", 1),)),
    )


async def test_name_with_a_comma_is_one_name() -> None:
    result = await resolve("dns:///a,b:80", {"http_proxy": "http://192.0.2.9:3128"})
    assert result.endpoints == through("192.0.2.9", proxy=HttpProxy(target="a,b:80"))


async def test_options_of_the_channel_are_used() -> None:
    result = await resolve("192.0.2.7:1", PROXY, is_proxy_from_environment=False)
    assert result.endpoints == (Endpoint((IpAddress("192.0.2.7", 1),)),)


def test_repr_of_a_factory_has_no_environment() -> None:
    assert "secret" not in repr(ProxiedFactory(DnsFactory(), PROXY))


def test_the_environment_is_read_for_each_resolver() -> None:
    environ: dict[str, str] = {}
    factory = ProxiedFactory(DnsFactory(), environ)
    context = ResolverContext(Names(), VirtualClock(), seeded_random(1))
    _, target = ResolverRegistry([factory]).match_target("192.0.2.7:1")
    before = factory.create(target, RecordingListener(), context)
    environ["http_proxy"] = "http://proxy:1"
    after = factory.create(target, RecordingListener(), context)
    assert type(before) is not type(after)


@pytest.mark.parametrize("found", [(), Status(StatusCode.UNAVAILABLE, "gone")])
def test_whether_a_result_can_be_used_is_passed_on(found: tuple[()] | Status) -> None:
    channel = RecordingListener(answer=Status(StatusCode.UNAVAILABLE, "no"))
    listener = _ProxyListener(channel, ProxyServer("proxy", 1), lambda _: ())
    assert listener.on_result(ResolverResult(found)) is channel.answer


def test_a_bad_target_is_refused_with_a_proxy_too() -> None:
    factory = ProxiedFactory(DnsFactory(), PROXY)
    context = ResolverContext(Names(), VirtualClock(), seeded_random(1))
    _, target = ResolverRegistry([factory]).match_target("dns:///a.example:port")
    with pytest.raises(ValueError, match="has port 'port'"):
        factory.create(target, RecordingListener(), context)
    with pytest.raises(ValueError, match="has port 'port'"):
        factory.default_authority(replace(target))
