"""Channel options: grpcio's channel arguments, and some of our own.

Each option has one line in the table `_READERS`. An invalid value raises with the name of the
option; an unknown option is logged once. This is the only module that reads options by their names:
all others get the values of `ParsedOptions`.
"""

from __future__ import annotations

import json
import logging
import os
import re
from math import inf
from typing import TYPE_CHECKING, Any, Final

from proxyless.base import BackoffPolicy
from proxyless.base.frozen import frozen, replace
from proxyless.channel import ChannelOptions, SubchannelOptions
from proxyless.channel.credentials import (
    CallCredentials,
    CombinedCredentials,
    RefusedCredentials,
)
from proxyless.front.credentials import insecure_channel_credentials, to_tls_sessions
from proxyless.lb.policies.pick_first.happy_eyeballs import NO_OVERLAP_S
from proxyless.resolver import ResolverOptions, parse_proxy_uri
from proxyless.resolver.api import DnsTimes
from proxyless.transport import KeepaliveConfig, TransportOptions
from proxyless.version import __version__
from proxyless.wire import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from proxyless.front.credentials import ChannelCredentials
    from proxyless.resolver.http_proxy import ProxyServer

_LOGGER: Final = logging.getLogger("proxyless.channel")
_USER_AGENT: Final = f"grpc-python-proxyless/{__version__}"
# In grpcio the largest int32, in milliseconds, means "never".
_NEVER_S: Final = (2**31 - 1) / 1000
_HEADER_TEXT: Final = re.compile(r"[\x20-\x7e]*").fullmatch
_AUTHORITY: Final = re.compile(r"[\x21-\x7e]+").fullmatch
# Used if only the keepalive timeout is set.
_KEEPALIVE_TIME_DEFAULT_S: Final = 10.0
_KEEPALIVE_TIME_MIN_S: Final = 0.001
_INTEGER_END: Final = 1 << 63
_warned: set[str] = set()


# Reading values


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"option {name!r} is {value!r}, wanted an integer")
    if abs(value) >= _INTEGER_END:
        # Without the value: Python raises for the text of a very long integer.
        raise ValueError(f"option {name!r} is too large, wanted an integer of 64 bits")
    return value


def _flag(name: str, value: object) -> bool:
    if value not in (0, 1):
        raise TypeError(f"option {name!r} is {value!r}, wanted 0 or 1")
    return bool(value)


def _count(name: str, value: object) -> int:
    count = _integer(name, value)
    if count < 0:
        raise ValueError(f"option {name!r} is {count}, wanted 0 or more")
    return count


def _text(name: str, value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise TypeError(f"option {name!r} is {value!r}, wanted a string")
    return text


def _path(name: str, value: object) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else _text(name, value)


def _directory(name: str, value: object) -> str:
    text = _path(name, value)
    if not os.path.isdir(text):
        raise ValueError(f"option {name!r} is {text!r}, wanted an existing directory")
    return text


def _header_text(name: str, value: object) -> str:
    text = _text(name, value)
    if not _HEADER_TEXT(text):
        raise ValueError(f"option {name!r} is {value!r}, wanted printable ASCII")
    return text


def _authority(name: str, value: object) -> str:
    text = _text(name, value)
    if not _AUTHORITY(text):
        raise ValueError(f"option {name!r} is {value!r}, wanted host or host:port in ASCII")
    return text


def _seconds(name: str, value: object) -> float:
    milliseconds = _integer(name, value)
    if milliseconds < 0:
        raise ValueError(f"option {name!r} is {milliseconds} ms, wanted 0 or more")
    return milliseconds / 1000


def _seconds_or_never(name: str, value: object) -> float:
    seconds = _seconds(name, value)
    return inf if seconds >= _NEVER_S else seconds


def _size(name: str, value: object) -> float:
    size = _integer(name, value)
    if size < -1:
        raise ValueError(f"option {name!r} is {size}, wanted -1 (no limit), 0 or more")
    return inf if size == -1 else size


def _service_config(name: str, value: object) -> Mapping[str, object]:
    text = _text(name, value)
    try:
        config = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"option {name!r} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise TypeError(f"option {name!r} is {text!r}, wanted a JSON object")
    return config


def _proxy(name: str, value: object) -> ProxyServer | None:
    # The value is not part of the error, because it may contain a password.
    if not isinstance(value, str | bytes):
        raise TypeError(f"option {name!r} is of type {type(value).__name__}, wanted a string")
    text = _text(name, value)
    try:
        return parse_proxy_uri(text) if text else None
    except ValueError as error:
        raise ValueError(f"option {name!r} {error}") from None


def _child_options(name: str, value: object) -> ChannelOptions | None:
    if not isinstance(value, list | tuple):
        raise TypeError(f"option {name!r} is {value!r}, wanted a list of pairs of name and value")
    return parse_options(value, insecure_channel_credentials()).channel if value else None


_READERS: Final[dict[str, Callable[[str, object], Any]]] = {
    "grpc.absolute_max_metadata_size": _count,
    # "A pointer argument key. The value is … the subset of options for child channels" - A110
    "grpc.child_channel.args": _child_options,
    "grpc.client_idle_timeout_ms": _seconds_or_never,
    "grpc.default_authority": _authority,
    # In milliseconds, too.
    "grpc.dns_ares_query_timeout": _seconds_or_never,
    "grpc.dns_min_time_between_resolutions_ms": _seconds_or_never,
    "grpc.enable_http_proxy": _flag,
    "grpc.enable_retries": _flag,
    "grpc.happy_eyeballs_connection_attempt_delay_ms": _seconds_or_never,
    "grpc.http2.max_pings_without_data": _count,
    "grpc.http_proxy": _proxy,
    "grpc.inhibit_health_checking": _flag,
    "grpc.initial_reconnect_backoff_ms": _seconds,
    "grpc.keepalive_permit_without_calls": _flag,
    "grpc.keepalive_time_ms": _seconds_or_never,
    "grpc.keepalive_timeout_ms": _seconds_or_never,
    "grpc.lb_policy_name": _text,
    "grpc.max_connections_per_subchannel_cap": _count,
    "grpc.max_metadata_size": _count,
    "grpc.max_receive_message_length": _size,
    "grpc.max_reconnect_backoff_ms": _seconds,
    "grpc.max_send_message_length": _size,
    "grpc.min_reconnect_backoff_ms": _seconds,
    "grpc.per_rpc_retry_buffer_size": _count,
    "grpc.primary_user_agent": _header_text,
    "grpc.secondary_user_agent": _header_text,
    "grpc.service_config": _service_config,
    "grpc.service_config_disable_resolution": _flag,
    "grpc.ssl_session_cache": to_tls_sessions,
    "grpc.ssl_target_name_override": _authority,
    # Directory of the last good config of xDS targets.
    "proxyless.config_cache": _path,
    "proxyless.dns_refresh_interval_ms": _seconds_or_never,
    # Record events and samples of RPCs in memory.
    "proxyless.flight_recorder": _flag,
    # Where the recording is written, once, if many RPCs fail.
    "proxyless.flight_recorder_directory": _directory,
    # Connect to one address after the other, without Happy Eyeballs.
    "proxyless.serial_connection_attempts": _flag,
    # Timeout of xDS routes that set none; 0: they have none.
    "proxyless.xds_default_route_timeout_ms": _seconds,
    # Routes in force are held while the control plane does not answer.
    "proxyless.xds_hold_config": _flag,
    # One ADS stream for all targets of a control plane, or one for each.
    "proxyless.xds_shared_stream": _flag,
}

# Options that may be repeated: the values are joined.
_JOINED: Final = frozenset({"grpc.primary_user_agent", "grpc.secondary_user_agent"})

# Options that the default service config is made of.
_CONFIG_OPTIONS: Final = ("grpc.service_config", "grpc.lb_policy_name")

# Accepted without effect: they are always so, or have no meaning in this implementation.
_IGNORED: Final = frozenset(
    {
        "grpc.http2.lookahead_bytes",
        "grpc.optimization_target",
        "grpc.so_reuseport",
        "grpc.use_local_subchannel_pool",
        # Only grpcio's blocking channel has two ways to read a stream.
        "SingleThreadedUnaryStream",
    }
)


def known_names() -> frozenset[str]:
    """Names of the options that cause no warning."""
    return _IGNORED.union(_READERS)


def read_options(options: Iterable[tuple[str | bytes, object]] | None) -> dict[str, Any]:
    """The converted options by name. Raises TypeError or ValueError naming the option."""
    read: dict[str, Any] = {}
    for name, value in _pairs(options):
        reader = _READERS.get(name)
        if reader is not None:
            converted = reader(name, value)
            is_joined = name in _JOINED and read.get(name)
            read[name] = f"{read[name]} {converted}" if is_joined else converted
        elif name not in _IGNORED and name not in _warned:
            _warned.add(name)
            _LOGGER.warning("channel option %r is not known and has no effect", name)
    return read


def _pairs(options: Iterable[tuple[str | bytes, object]] | None) -> Iterator[tuple[str, object]]:
    for option in () if options is None else options:
        if not isinstance(option, tuple | list) or len(option) != len(("name", "value")):
            raise ValueError(f"channel option is {option!r}, wanted a pair of name and value")
        name, value = option
        if not isinstance(name, str | bytes):
            raise TypeError(f"channel option is named {name!r}, wanted a string")
        yield name if isinstance(name, str) else name.decode("utf-8", "replace"), value


@frozen
class ParsedOptions:
    """Options of an application's channel."""

    channel: ChannelOptions
    # Options of channels to control planes (A110); None: not set.
    child: ChannelOptions | None
    is_recorded: bool
    # Where the flight recording is written; None: nowhere.
    recording_directory: str | None


def parse_options(
    options: Iterable[tuple[str | bytes, object]] | None, credentials: ChannelCredentials
) -> ParsedOptions:
    """Parse the options of a channel with these credentials. Raises as `read_options`."""
    given = list(_pairs(options))
    read = read_options(given)
    directory = read.get("proxyless.flight_recorder_directory")
    return ParsedOptions(
        _channel_options(read, given, credentials),
        read.get("grpc.child_channel.args"),
        directory is not None or read.get("proxyless.flight_recorder", False),
        directory,
    )


def _channel_options(
    read: Mapping[str, Any], given: Iterable[tuple[str, object]], credentials: ChannelCredentials
) -> ChannelOptions:
    authority = read.get("grpc.default_authority") or _override_authority(read, credentials)
    channel = ChannelOptions(
        subchannel=_subchannel_options(read, credentials),
        service_config=_default_service_config(read),
        service_config_sources=tuple(name for name in _CONFIG_OPTIONS if name in read),
        is_resolver_config_used=not read.get("grpc.service_config_disable_resolution", False),
        authority=authority,
        user_agent=_user_agent(read),
        is_retry_enabled=read.get("grpc.enable_retries", True),
        send_bytes_max=read.get("grpc.max_send_message_length", inf),
        call_credentials=_call_credentials(credentials),
        is_private=credentials.is_private,
        connection_attempt_delay_s=_connection_attempt_delay_s(read),
        is_health_checked=not read.get("grpc.inhibit_health_checking", False),
        resolver=replace(
            _resolver_options(read, credentials), authority=authority, by_name=dict(given)
        ),
    )
    if (cap := read.get("grpc.max_connections_per_subchannel_cap")) is not None:
        channel = replace(channel, connections_cap=max(cap, 1))
    if (kept := read.get("grpc.per_rpc_retry_buffer_size")) is not None:
        channel = replace(channel, kept_bytes_max=kept)
    if (idle_s := read.get("grpc.client_idle_timeout_ms")) is not None:
        # As in grpcio, 0 means "never".
        channel = replace(channel, idle_timeout_s=idle_s or inf)
    return channel


def _resolver_options(read: Mapping[str, Any], credentials: ChannelCredentials) -> ResolverOptions:
    # Targets on this machine only are never reached through a proxy.
    is_proxied = read.get("grpc.enable_http_proxy", True) and not credentials.is_local
    return ResolverOptions(
        dns=_dns_times(read),
        is_proxy_from_environment=is_proxied and "grpc.http_proxy" not in read,
        proxy=read.get("grpc.http_proxy") if is_proxied else None,
        xds_default_timeout_s=read.get("proxyless.xds_default_route_timeout_ms"),
        xds_holds_config=read.get("proxyless.xds_hold_config"),
        is_xds_stream_shared=read.get("proxyless.xds_shared_stream"),
        xds_config_cache=read.get("proxyless.config_cache"),
    )


def _dns_times(read: Mapping[str, Any]) -> DnsTimes:
    times = DnsTimes()
    if (floor_s := read.get("grpc.dns_min_time_between_resolutions_ms")) is not None:
        times = replace(times, floor_s=floor_s)
    # 0 ms disables the refresh and the timeout.
    if (refresh_s := read.get("proxyless.dns_refresh_interval_ms")) is not None:
        times = replace(times, refresh_s=refresh_s or inf)
    if (timeout_s := read.get("grpc.dns_ares_query_timeout")) is not None:
        times = replace(times, answer_timeout_s=timeout_s or inf)
    return times


def _connection_attempt_delay_s(read: Mapping[str, Any]) -> float | None:
    if read.get("proxyless.serial_connection_attempts"):
        return NO_OVERLAP_S
    return read.get("grpc.happy_eyeballs_connection_attempt_delay_ms")


def _call_credentials(credentials: ChannelCredentials) -> CallCredentials | None:
    if not credentials.call_credentials:
        return None
    if not credentials.is_private:
        return RefusedCredentials()
    return CombinedCredentials(credentials.call_credentials)


def _default_service_config(read: Mapping[str, Any]) -> Mapping[str, object]:
    config = read.get("grpc.service_config", {})
    name = read.get("grpc.lb_policy_name")
    if name is not None and not {"loadBalancingConfig", "loadBalancingPolicy"} & config.keys():
        return {**config, "loadBalancingConfig": [{name: {}}]}
    return config  # type: ignore[no-any-return]


def _override_authority(read: Mapping[str, Any], credentials: ChannelCredentials) -> str | None:
    """As in grpcio, a target name override is also the authority."""
    name = read.get("grpc.ssl_target_name_override")
    return name if credentials.tls is not None else None


def _user_agent(read: Mapping[str, Any]) -> str:
    parts = (
        read.get("grpc.primary_user_agent"),
        _USER_AGENT,
        read.get("grpc.secondary_user_agent"),
    )
    return " ".join(part for part in parts if part)


def _subchannel_options(
    read: Mapping[str, Any], credentials: ChannelCredentials
) -> SubchannelOptions:
    tls = credentials.tls
    if tls is not None and (sessions := read.get("grpc.ssl_session_cache")) is not None:
        tls = replace(tls, sessions=sessions)
    if tls is not None and (name := read.get("grpc.ssl_target_name_override")):
        tls = replace(tls, server_name=name)
    options = SubchannelOptions(
        transport=TransportOptions(
            tls=tls,
            is_local_only=credentials.is_local,
            limits=_limits(read),
            keepalive=_keepalive(read),
        ),
        backoff=_backoff(read),
    )
    if (timeout_s := read.get("grpc.min_reconnect_backoff_ms")) is not None:
        # Despite its name, the minimum timeout of a connection attempt.
        options = replace(options, min_connect_timeout_s=max(timeout_s, 0.1))
    return options


def _limits(read: Mapping[str, Any]) -> Limits:
    limits = Limits()
    if (size := read.get("grpc.max_receive_message_length")) is not None:
        limits = replace(limits, message_bytes_max=int(min(size, 2**32 - 1)))
    # The first is grpcio's hard limit; above the second it rejects at random.
    size = read.get("grpc.absolute_max_metadata_size", read.get("grpc.max_metadata_size"))
    if size is not None:
        limits = replace(limits, header_list_bytes_max=size)
    return limits


def _keepalive(read: Mapping[str, Any]) -> KeepaliveConfig:
    config = KeepaliveConfig()
    if (timeout_s := read.get("grpc.keepalive_timeout_ms")) is not None:
        # A timeout alone enables keepalive, unlike in grpcio, which ignores it.
        config = replace(config, timeout_s=timeout_s, time_s=_KEEPALIVE_TIME_DEFAULT_S)
    if (time_s := read.get("grpc.keepalive_time_ms")) is not None:
        config = replace(config, time_s=max(time_s, _KEEPALIVE_TIME_MIN_S))
    if (permit := read.get("grpc.keepalive_permit_without_calls")) is not None:
        config = replace(config, permit_without_calls=permit)
    if (pings := read.get("grpc.http2.max_pings_without_data")) is not None:
        config = replace(config, pings_without_data_max=pings)
    return config


def _backoff(read: Mapping[str, Any]) -> BackoffPolicy:
    policy = BackoffPolicy()
    if (initial_s := read.get("grpc.initial_reconnect_backoff_ms")) is not None:
        policy = replace(policy, initial_s=max(initial_s, 0.1))
    if (max_s := read.get("grpc.max_reconnect_backoff_ms")) is not None:
        policy = replace(policy, max_s=max(max_s, 0.1))
    if policy.initial_s > policy.max_s:
        policy = replace(policy, initial_s=policy.max_s)
    return policy
