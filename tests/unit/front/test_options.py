"""Unit tests of proxyless.front.options."""

import logging
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from grpc.experimental import session_cache

from proxyless.channel import ChannelOptions
from proxyless.front import (
    insecure_channel_credentials,
    local_channel_credentials,
    options,
    ssl_channel_credentials,
)
from proxyless.front.options import ParsedOptions, parse_options
from proxyless.resolver import parse_proxy_uri
from proxyless.resolver.api import DnsTimes, ResolverOptions
from proxyless.transport import TlsSessions

NEVER_MS = 2**31 - 1
NEVER = DnsTimes(floor_s=inf, refresh_s=inf, answer_timeout_s=inf)


def parse(*given: Any) -> ParsedOptions:  # noqa: ANN401 - any value of an application
    return parse_options(given, insecure_channel_credentials())


def make(*given: Any) -> ChannelOptions:  # noqa: ANN401 - any value of an application
    return parse(*given).channel


# Bad values

BAD_INTEGERS = ("5", 1.5, None, True)
BAD_TEXTS = (5, None, ["a"])
BAD_FLAGS = (2, -1, "yes", None)
BAD: dict[str, tuple[type[Exception], str, tuple[object, ...]]] = {
    "grpc.client_idle_timeout_ms": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.default_authority": (TypeError, "a string", BAD_TEXTS),
    "grpc.dns_min_time_between_resolutions_ms": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.enable_http_proxy": (TypeError, "0 or 1", BAD_FLAGS),
    "grpc.enable_retries": (TypeError, "0 or 1", BAD_FLAGS),
    "grpc.http2.max_pings_without_data": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.inhibit_health_checking": (TypeError, "0 or 1", BAD_FLAGS),
    "grpc.initial_reconnect_backoff_ms": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.keepalive_permit_without_calls": (TypeError, "0 or 1", BAD_FLAGS),
    "grpc.keepalive_time_ms": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.keepalive_timeout_ms": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.lb_policy_name": (TypeError, "a string", BAD_TEXTS),
    "grpc.absolute_max_metadata_size": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.max_metadata_size": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.max_receive_message_length": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.max_reconnect_backoff_ms": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.max_send_message_length": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.min_reconnect_backoff_ms": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.per_rpc_retry_buffer_size": (TypeError, "an integer", BAD_INTEGERS),
    "grpc.primary_user_agent": (TypeError, "a string", BAD_TEXTS),
    "grpc.secondary_user_agent": (TypeError, "a string", BAD_TEXTS),
    "grpc.service_config": (TypeError, "a string", BAD_TEXTS),
    "grpc.service_config_disable_resolution": (TypeError, "0 or 1", BAD_FLAGS),
    "grpc.ssl_session_cache": (
        TypeError,
        "grpc.experimental.session_cache.ssl_session_cache_lru(...)",
        (5, None, "lru"),
    ),
    "grpc.ssl_target_name_override": (TypeError, "a string", BAD_TEXTS),
    "proxyless.dns_refresh_interval_ms": (TypeError, "an integer", BAD_INTEGERS),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (_, _, values) in BAD.items() for value in values]
)
def test_a_value_of_the_wrong_type_raises_type_error(name: str, value: object) -> None:
    kind, wanted, _ = BAD[name]
    with pytest.raises(kind) as caught:
        make((name, value))
    assert str(caught.value) == f"option {name!r} is {value!r}, wanted {wanted}"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("grpc.keepalive_time_ms", -1, "is -1 ms, wanted 0 or more"),
        ("grpc.client_idle_timeout_ms", -5, "is -5 ms, wanted 0 or more"),
        ("grpc.max_receive_message_length", -2, "is -2, wanted -1 (no limit), 0 or more"),
        ("grpc.max_send_message_length", -2, "is -2, wanted -1 (no limit), 0 or more"),
        ("grpc.max_metadata_size", -1, "is -1, wanted 0 or more"),
        ("grpc.absolute_max_metadata_size", -1, "is -1, wanted 0 or more"),
        ("grpc.http2.max_pings_without_data", -1, "is -1, wanted 0 or more"),
        ("grpc.per_rpc_retry_buffer_size", -1, "is -1, wanted 0 or more"),
        ("grpc.primary_user_agent", "a\nb", r"is 'a\nb', wanted printable ASCII"),
        ("grpc.secondary_user_agent", "é", "is 'é', wanted printable ASCII"),
        ("grpc.default_authority", "a b", "is 'a b', wanted host or host:port in ASCII"),
        ("grpc.default_authority", b"\xff", r"is b'\xff', wanted host or host:port in ASCII"),
        ("grpc.ssl_target_name_override", "", "is '', wanted host or host:port in ASCII"),
        ("grpc.service_config", "{", "is not JSON: "),
        ("proxyless.flight_recorder_directory", "/no", "is '/no', wanted an existing directory"),
    ],
)
def test_an_invalid_value_raises_value_error(name: str, value: object, text: str) -> None:
    with pytest.raises(ValueError, match="option") as caught:
        make((name, value))
    assert str(caught.value).startswith(f"option {name!r} {text}")


def test_a_service_config_is_an_object() -> None:
    with pytest.raises(TypeError, match=r"option 'grpc.service_config' is '\[\]', wanted a JSON"):
        make(("grpc.service_config", "[]"))


def test_an_integer_has_64_bits() -> None:
    with pytest.raises(ValueError, match="is too large, wanted an integer of 64 bits"):
        make(("grpc.keepalive_time_ms", 10**5000))


def test_a_service_config_that_is_nested_too_deeply_raises() -> None:
    with pytest.raises(ValueError, match="is not JSON: maximum recursion depth exceeded"):
        make(("grpc.service_config", "[" * 100_000))


@pytest.mark.parametrize(
    ("option", "kind", "text"),
    [
        ("some.option", ValueError, "is 'some.option', wanted a pair of name and value"),
        (("name",), ValueError, r"is \('name',\), wanted a pair of name and value"),
        (("a", 1, 2), ValueError, r"is \('a', 1, 2\), wanted a pair of name and value"),
        ((5, 1), TypeError, "is named 5, wanted a string"),
    ],
)
def test_an_option_is_a_pair(option: object, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=f"channel option {text}"):
        make(option)


# Unknown names


@pytest.fixture
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_warned", set())


@pytest.mark.usefixtures("nothing_warned")
def test_an_unknown_option_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    make(("grpc.no_such", 1))
    make(("grpc.no_such", 2), ("grpc.nor_this", 3))
    assert caplog.record_tuples == [
        (
            "proxyless.channel",
            logging.WARNING,
            f"channel option {name!r} is not known and has no effect",
        )
        for name in ("grpc.no_such", "grpc.nor_this")
    ]


@pytest.mark.usefixtures("nothing_warned")
def test_an_ignored_option_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    make(("grpc.use_local_subchannel_pool", 1), ("grpc.so_reuseport", 0))
    assert caplog.records == []


# Good values


@pytest.mark.spec("A110-01")
def test_options_of_child_channels_do_not_apply_to_the_channel() -> None:
    nested = [("grpc.keepalive_time_ms", 20_000)]
    parsed = parse(("grpc.child_channel.args", nested))
    assert not parsed.channel.subchannel.transport.keepalive.is_enabled
    assert parsed.child == make(*nested)
    assert parse(("grpc.child_channel.args", [])).child is None


@pytest.mark.parametrize(
    ("nested", "kind", "text"),
    [
        ("keepalive", TypeError, "wanted a list of pairs"),
        ([("grpc.keepalive_time_ms", "no")], TypeError, "'grpc.keepalive_time_ms' is 'no'"),
        ([("grpc.keepalive_time_ms",)], ValueError, "wanted a pair of name and value"),
    ],
)
def test_invalid_options_of_child_channels_raise(
    nested: object, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        make(("grpc.child_channel.args", nested))


def test_channel_options_have_defaults() -> None:
    made = parse_options(None, insecure_channel_credentials()).channel
    assert made.send_bytes_max == inf
    assert made.subchannel.transport.limits.message_bytes_max == 4 * 1024 * 1024
    assert made.service_config == {}


def test_the_last_of_two_equal_options_is_used() -> None:
    name = "grpc.max_send_message_length"
    assert make((name, 1), (name, 2)).send_bytes_max == 2


@pytest.mark.parametrize(("value", "bytes_max"), [(-1, 2**32 - 1), (0, 0), (5, 5)])
def test_receive_limit_is_the_option_or_unlimited_for_negative_values(
    value: int, bytes_max: int
) -> None:
    made = make(("grpc.max_receive_message_length", value))
    assert made.subchannel.transport.limits.message_bytes_max == bytes_max


@pytest.mark.parametrize(("value_ms", "timeout_s"), [(0, inf), (NEVER_MS, inf), (1500, 1.5)])
def test_idle_timeout_is_infinite_for_0_and_the_largest_int32(
    value_ms: int, timeout_s: float
) -> None:
    assert make(("grpc.client_idle_timeout_ms", value_ms)).idle_timeout_s == timeout_s


def test_the_connect_timeout_may_be_the_largest_int32() -> None:
    made = make(("grpc.min_reconnect_backoff_ms", NEVER_MS))
    assert made.subchannel.min_connect_timeout_s == NEVER_MS / 1000


def test_the_initial_backoff_is_at_most_the_maximum() -> None:
    made = make(
        ("grpc.initial_reconnect_backoff_ms", 5000), ("grpc.max_reconnect_backoff_ms", 2000)
    )
    assert (made.subchannel.backoff.initial_s, made.subchannel.backoff.max_s) == (2.0, 2.0)


def test_a_keepalive_timeout_alone_enables_keepalive() -> None:
    keepalive = make(("grpc.keepalive_timeout_ms", 3000)).subchannel.transport.keepalive
    assert keepalive.is_enabled
    assert keepalive.timeout_s == 3.0
    assert not make().subchannel.transport.keepalive.is_enabled


def test_lb_policy_name_is_used_unless_the_service_config_names_a_policy() -> None:
    named = make(("grpc.lb_policy_name", "round_robin"))
    assert named.service_config == {"loadBalancingConfig": [{"round_robin": {}}]}
    config = '{"loadBalancingConfig": [{"pick_first": {}}]}'
    both = make(("grpc.lb_policy_name", "round_robin"), ("grpc.service_config", config))
    assert both.service_config == {"loadBalancingConfig": [{"pick_first": {}}]}


def test_the_user_agent_has_the_applications_parts_around_ours() -> None:
    parts = make(("grpc.primary_user_agent", "a/1"), ("grpc.secondary_user_agent", "z/2"))
    first, middle, last = parts.user_agent.split(" ")
    assert (first, last) == ("a/1", "z/2")
    assert middle == make().user_agent


def test_the_target_name_override_is_the_authority_only_over_tls() -> None:
    override = [("grpc.ssl_target_name_override", "api.test")]
    secure = parse_options(override, ssl_channel_credentials()).channel
    assert secure.authority == "api.test"
    # The xDS resolver chooses the virtual host by it.
    assert secure.resolver.authority == "api.test"
    assert secure.subchannel.transport.tls is not None
    assert secure.subchannel.transport.tls.server_name == "api.test"
    assert make(*override).authority is None


# Options of resolvers

FLOOR = "grpc.dns_min_time_between_resolutions_ms"
ANSWER_TIMEOUT = "grpc.dns_ares_query_timeout"
REFRESH = "proxyless.dns_refresh_interval_ms"


@pytest.mark.parametrize(
    ("given_ms", "times"),
    [
        ({}, DnsTimes(floor_s=30, refresh_s=inf, answer_timeout_s=120)),
        (
            {FLOOR: 250, REFRESH: 1000, ANSWER_TIMEOUT: 2000},
            DnsTimes(floor_s=0.25, refresh_s=1, answer_timeout_s=2),
        ),
        (
            {FLOOR: 0, REFRESH: 0, ANSWER_TIMEOUT: 0},
            DnsTimes(floor_s=0, refresh_s=inf, answer_timeout_s=inf),
        ),
        (dict.fromkeys((FLOOR, REFRESH, ANSWER_TIMEOUT), NEVER_MS), NEVER),
    ],
)
def test_times_of_dns_are_milliseconds_with_the_defaults_of_grpcio(
    given_ms: dict[str, int], times: DnsTimes
) -> None:
    assert make(*given_ms.items()).resolver.dns == times


@pytest.mark.parametrize(
    ("option", "value", "field", "parsed"),
    [
        ("grpc.default_authority", b"shop", "authority", "shop"),
        ("proxyless.xds_default_route_timeout_ms", 500, "xds_default_timeout_s", 0.5),
        ("proxyless.xds_hold_config", 0, "xds_holds_config", False),
        ("proxyless.xds_shared_stream", 1, "is_xds_stream_shared", True),
        ("proxyless.config_cache", b"/var/mesh\xff", "xds_config_cache", "/var/mesh\udcff"),
    ],
)
def test_options_of_the_xds_resolver_are_converted(
    option: str, value: object, field: str, parsed: object
) -> None:
    assert getattr(ResolverOptions(), field) is None
    assert getattr(make((option, value)).resolver, field) == parsed


def test_options_are_passed_to_resolvers_of_others_unconverted() -> None:
    assert make(("grpc.keepalive_time_ms", 5), ("my.own", "x")).resolver.by_name == {
        "grpc.keepalive_time_ms": 5,
        "my.own": "x",
    }


# Proxies


@pytest.mark.parametrize("value", ["http://proxy:3128", b"http://user:secret@proxy", ""])
def test_a_proxy_is_passed_to_resolvers(value: str | bytes) -> None:
    text = value if isinstance(value, str) else value.decode()
    resolver = make(("grpc.http_proxy", value)).resolver
    assert resolver.proxy == (parse_proxy_uri(text) if text else None)
    assert not resolver.is_proxy_from_environment


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("https://user:secret@proxy", ValueError),
        ("user:secret@proxy", ValueError),
        (b"http://user:secret@", ValueError),
        (["http://user:secret@proxy"], TypeError),
    ],
)
def test_an_invalid_proxy_raises_without_its_value(value: object, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^option 'grpc.http_proxy' .*wanted") as caught:
        make(("grpc.http_proxy", value))
    assert "secret" not in str(caught.value)


def test_local_credentials_disable_proxies() -> None:
    given = [("grpc.enable_http_proxy", 1), ("grpc.http_proxy", "http://proxy:3128")]
    local = parse_options(given, local_channel_credentials()).channel.resolver
    assert local.proxy is None
    assert not local.is_proxy_from_environment


def test_health_is_checked_unless_that_is_inhibited() -> None:
    assert make().is_health_checked
    assert make(("grpc.inhibit_health_checking", 0)).is_health_checked
    assert not make(("grpc.inhibit_health_checking", 1)).is_health_checked


# TLS sessions


def test_channels_with_one_session_cache_share_their_sessions() -> None:
    credentials = ssl_channel_credentials()
    caches = [session_cache.ssl_session_cache_lru(1) for _ in range(2)]

    def sessions_of(cache: object) -> TlsSessions | None:
        options = parse_options([("grpc.ssl_session_cache", cache)], credentials).channel
        assert options.subchannel.transport.tls is not None
        return options.subchannel.transport.tls.sessions

    first, again, other = (sessions_of(cache) for cache in (caches[0], caches[0], caches[1]))
    assert first is not None
    assert first is again
    assert first is not other


def test_session_cache_has_no_effect_without_tls() -> None:
    cache = session_cache.ssl_session_cache_lru(1)
    resolver = ResolverOptions(by_name={"grpc.ssl_session_cache": cache})
    assert make(("grpc.ssl_session_cache", cache)) == replace(make(), resolver=resolver)
