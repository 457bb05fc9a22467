"""Unit tests of proxyless.xds.grpc_transport: options. Its streams: tests/contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from proxyless.assembly import default_policies, default_resolvers
from proxyless.channel import ChannelOptions, LoopStack, SubchannelPool
from proxyless.front import insecure_channel_credentials, parse_options
from proxyless.runtime import AsyncioNetwork, DeadlineQueue, VirtualClock, seeded_random
from proxyless.xds.client.retried_stream import CONTROL_PLANE_BACKOFF
from proxyless.xds.grpc_transport import (
    KEEPALIVE_TIME_S,
    MESSAGE_BYTES_MAX,
    NO_CHILD_OPTIONS,
    ChildChannel,
    GrpcTransports,
    make_options,
)
from tests.worlds.stats_plugins import RecordingPlugin
from tests.worlds.xds_clients import server_config

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = server_config("td.example:443")
MIB = 1024 * 1024


def with_child(*options: tuple[str, object]) -> ChannelOptions:
    child = parse_options(options, insecure_channel_credentials()).channel
    return make_options(SERVER, child)


def test_options_have_limits_and_keepalive_of_their_own_by_default() -> None:
    for options in (make_options(SERVER), with_child()):
        transport = options.subchannel.transport
        assert transport.limits.message_bytes_max == MESSAGE_BYTES_MAX
        assert transport.keepalive.time_s == KEEPALIVE_TIME_S
        assert not options.is_retry_enabled
        assert not options.is_resolver_config_used


@pytest.mark.spec("A110-01")
@pytest.mark.parametrize(
    ("option", "read", "wanted"),
    [
        (
            ("grpc.keepalive_time_ms", 20_000),
            lambda options: options.subchannel.transport.keepalive.time_s,
            20,
        ),
        (
            ("grpc.max_receive_message_length", MIB),
            lambda options: options.subchannel.transport.limits.message_bytes_max,
            MIB,
        ),
        (
            ("grpc.initial_reconnect_backoff_ms", 300),
            lambda options: options.subchannel.backoff.initial_s,
            0.3,
        ),
        (("grpc.default_authority", "td"), lambda options: options.authority, "td"),
        (
            ("grpc.primary_user_agent", "shop"),
            lambda options: options.user_agent.partition(" ")[0],
            "shop",
        ),
        (
            ("grpc.http_proxy", ""),
            lambda options: options.resolver.is_proxy_from_environment,
            False,
        ),
    ],
)
def test_child_options_replace_defaults(
    option: tuple[str, object], read: Callable[[ChannelOptions], object], wanted: object
) -> None:
    assert read(with_child(option)) == wanted


def test_backoff_is_bounded_unless_a_child_option_sets_it() -> None:
    assert make_options(SERVER).subchannel.backoff == CONTROL_PLANE_BACKOFF
    longest_s = CONTROL_PLANE_BACKOFF.max_s * (1 + CONTROL_PLANE_BACKOFF.jitter)
    assert longest_s == 30.0
    chosen = with_child(("grpc.max_reconnect_backoff_ms", 5_000)).subchannel.backoff
    assert (chosen.max_s, chosen.jitter) == (5.0, 0.2)


def test_names_of_control_planes_are_looked_up_with_the_backoff_of_connections() -> None:
    assert make_options(SERVER).resolver.dns.backoff == CONTROL_PLANE_BACKOFF
    chosen = with_child(("grpc.max_reconnect_backoff_ms", 5_000)).resolver.dns.backoff
    assert (chosen.max_s, chosen.jitter) == (5.0, 0.2)


def test_other_defaults_are_kept_when_a_child_option_is_given() -> None:
    limits = with_child(("grpc.max_metadata_size", 4096)).subchannel.transport.limits
    assert (limits.header_list_bytes_max, limits.message_bytes_max) == (4096, MESSAGE_BYTES_MAX)
    keepalive = with_child(
        ("grpc.keepalive_permit_without_calls", 1)
    ).subchannel.transport.keepalive
    assert (keepalive.permit_without_calls, keepalive.time_s) == (True, KEEPALIVE_TIME_S)


@pytest.mark.spec("A110-02")
def test_settings_that_the_client_needs_take_precedence() -> None:
    options = with_child(("grpc.enable_retries", 1), ("grpc.service_config_disable_resolution", 0))
    assert not options.is_retry_enabled
    assert not options.is_resolver_config_used


@pytest.mark.spec("A110-03")
def test_transports_have_the_plugins_of_their_child_options() -> None:
    clock = VirtualClock()
    stack = LoopStack(
        clock,
        seeded_random(1),
        AsyncioNetwork(),
        DeadlineQueue(clock),
        cast("SubchannelPool", None),
    )
    plugin = RecordingPlugin()
    plain = GrpcTransports(stack, policies=default_policies(), resolvers=default_resolvers())
    measured = plain.for_child(ChildChannel(NO_CHILD_OPTIONS.options, (plugin,)))
    assert not plain.create(SERVER).options.metrics.active
    metrics = measured.create(SERVER).options.metrics
    assert (metrics.target, metrics.plugins) == ("dns:///td.example:443", (plugin,))
