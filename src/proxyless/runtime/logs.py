"""LogTrace: events of the trace in the standard library's logs; GRPC_VERBOSITY and GRPC_TRACE.

Every package has a logger below `proxyless`. State changes that concern operators are logged where
they happen. Everything else is an event of the trace, which `LogTrace` logs at DEBUG to the logger
of its package. Levels are checked for each event, so they may be changed while the process runs.

`GRPC_VERBOSITY` and `GRPC_TRACE` work as in other gRPC libraries; names of tracers map to loggers.
Metadata and messages are never logged, because they may contain secrets.
"""

from __future__ import annotations

import logging
import sys
from enum import Enum
from typing import TYPE_CHECKING, Final, TextIO

from proxyless.base import Trace, one_line, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = "proxyless"

VERBOSITY_VARIABLE: Final = "GRPC_VERBOSITY"
TRACE_VARIABLE: Final = "GRPC_TRACE"

# Loggers by the first word of an event's name. Those of other events are below ROOT.
LOGGER_NAMES: Final[Mapping[str, str]] = {
    "channel": "proxyless.channel",
    "subchannel": "proxyless.subchannel",
    "load_reports": "proxyless.subchannel",
    "health": "proxyless.subchannel",
    "dns": "proxyless.resolver.dns",
    "least_request": "proxyless.lb.least_request",
    "outlier_detection": "proxyless.lb.outlier_detection",
    "peak_ewma": "proxyless.lb.peak_ewma",
    "pick_first": "proxyless.lb.pick_first",
    "priority": "proxyless.lb.priority",
    "random": "proxyless.lb.random",
    "random_subsetting": "proxyless.lb.random_subsetting",
    "ring_hash": "proxyless.lb.ring_hash",
    "round_robin": "proxyless.lb.round_robin",
    "weighted_round_robin": "proxyless.lb.weighted_round_robin",
    "weighted_target": "proxyless.lb.weighted_target",
    "xds": "proxyless.xds.client",
    "xds_resolver": "proxyless.xds.resolver",
    "cds": "proxyless.xds.lb.cds",
    "xds_cluster_impl": "proxyless.xds.lb.cluster_impl",
    "xds_cluster_manager": "proxyless.xds.lb.cluster_manager",
    "override_host": "proxyless.xds.lb.override_host",
    "controlplane": "proxyless.controlplane",
}

# Loggers by the name of the corresponding gRPC tracer.
TRACERS: Final[Mapping[str, str]] = {
    "channel": "proxyless.channel",
    "client_channel": "proxyless.channel",
    "client_channel_call": "proxyless.channel",
    "client_channel_lb_call": "proxyless.channel",
    "client_idle_filter": "proxyless.channel",
    "call": "proxyless.channel",
    "call_error": "proxyless.channel",
    "retry": "proxyless.channel",
    "connectivity_state": "proxyless.channel",
    "subchannel": "proxyless.subchannel",
    "subchannel_pool": "proxyless.subchannel",
    "subchannel_call": "proxyless.subchannel",
    "orca_client": "proxyless.subchannel",
    "health_check_client": "proxyless.subchannel",
    "http": "proxyless.subchannel",
    "http_keepalive": "proxyless.subchannel",
    "handshaker": "proxyless.subchannel",
    "tcp": "proxyless.subchannel",
    "tsi": "proxyless.subchannel",
    "dns_resolver": "proxyless.resolver.dns",
    "cares_resolver": "proxyless.resolver.dns",
    "event_engine_client_channel_resolver": "proxyless.resolver.dns",
    "event_engine_dns": "proxyless.resolver.dns",
    "outlier_detection_lb": "proxyless.lb.outlier_detection",
    "pick_first": "proxyless.lb.pick_first",
    "priority_lb": "proxyless.lb.priority",
    "ring_hash_lb": "proxyless.lb.ring_hash",
    "round_robin": "proxyless.lb.round_robin",
    "weighted_round_robin_lb": "proxyless.lb.weighted_round_robin",
    "weighted_target_lb": "proxyless.lb.weighted_target",
    "cds_lb": "proxyless.xds.lb.cds",
    "xds_client": "proxyless.xds.client",
    "xds_cluster_impl_lb": "proxyless.xds.lb.cluster_impl",
    "xds_cluster_manager_lb": "proxyless.xds.lb.cluster_manager",
    "xds_override_host_lb": "proxyless.xds.lb.override_host",
    "xds_resolver": "proxyless.xds.resolver",
}

# gRPC tracers without a counterpart here. They cause no warning.
_IGNORED_TRACERS: Final = frozenset(
    {
        "api",
        "backend_metric",
        "backend_metric_filter",
        "bdp_estimator",
        "cares_address_sorting",
        "channel_stack",
        "chaotic_good",
        "chttp2_hpack_parser",
        "chttp2_new_stream",
        "composite_filter",
        "compression",
        "environment_autodetect",
        "event_engine",
        "event_engine_endpoint",
        "event_engine_endpoint_data",
        "event_engine_poller",
        "ext_proc_filter",
        "fault_injection_filter",
        "flowctl",
        "fork",
        "glb",
        "grpc_authz_api",
        "http1",
        "http2_ping",
        "http2_stream_state",
        "inproc",
        "metadata_query",
        "op_failure",
        "plugin_credentials",
        "queue_pluck",
        "resource_quota",
        "rls_lb",
        "secure_endpoint",
        "server_channel",
        "server_config_selector_interceptor",
        "stateful_session_filter",
        "timer",
        "timer_check",
        "token_fetcher_credentials",
        "xds_client_refcount",
        "xds_server_config_fetcher",
        "xds_wrr_locality_lb",
        "list_tracers",
    }
)

_LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "ERROR": logging.ERROR,
    "NONE": logging.CRITICAL + 1,
}
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# The handler that `_ensure_handler` added, if any.
_HANDLERS: Final[dict[str, logging.StreamHandler[TextIO]]] = {}

_LOGGER: Final = logging.getLogger("proxyless.logs")


class LogTrace(Trace):
    """A trace that also logs its events."""

    __slots__ = ("_has_sinks",)

    @property
    def active(self) -> bool:
        """Whether there is a sink or an enabled logger."""
        return self._has_sinks or _EVENT_LOGGERS.is_any_enabled()

    @active.setter
    def active(self, has_sinks: bool) -> None:
        self._has_sinks = has_sinks

    def emit(self, name: str, /, **fields: object) -> None:
        if self._has_sinks:
            super().emit(name, **fields)
        logger = _EVENT_LOGGERS.of(name)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", _EventLine(name, fields))


class _EventLoggers:
    """The loggers of events, and whether any of them is enabled.

    Checking all loggers for each event takes too long. A logger caches its levels in a dictionary
    that `logging` clears whenever a level changes; the result for all loggers is stored in it.
    """

    __slots__ = ("_by_word", "_cache")

    def __init__(self) -> None:
        self._by_word = {word: logging.getLogger(name) for word, name in LOGGER_NAMES.items()}
        self._cache: dict[object, bool] | None = getattr(logging.getLogger(ROOT), "_cache", None)

    def of(self, event_name: str) -> logging.Logger:
        word = event_name.partition(".")[0]
        logger = self._by_word.get(word)
        if logger is None:
            # An application's own policy.
            logger = self._by_word[word] = logging.getLogger(f"{ROOT}.{word}")
            if self._cache is not None:
                self._cache.pop(_ANY, None)
        return logger

    def is_any_enabled(self) -> bool:
        cache = self._cache
        is_enabled = None if cache is None else cache.get(_ANY)
        if is_enabled is None:
            if cache is not None:
                cache[_CHECKING] = True
            # A copy: another loop's thread may be adding one.
            loggers = list(self._by_word.values())
            is_enabled = any(each.isEnabledFor(logging.DEBUG) for each in loggers)
            # The key is gone if another thread has changed a level since.
            if cache is not None and _CHECKING in cache:
                cache[_ANY] = is_enabled
        return is_enabled


# Keys in the cache of a logger, whose own keys are numbers: the result for all loggers, and that
# they are being checked.
_ANY: Final = "proxyless: any"
_CHECKING: Final = "proxyless: checking"
_EVENT_LOGGERS: Final = _EventLoggers()


class _EventLine:
    """An event as a line of text; formatted only by a handler."""

    __slots__ = ("_fields", "_name")

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self._name = name
        self._fields = fields

    def __str__(self) -> str:
        fields = (f"{key}={_show(value)}" for key, value in self._fields.items())
        return one_line(" ".join([self._name, *fields]))


def _show(value: object) -> str:
    if isinstance(value, str):
        return value if value.isidentifier() else quote(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_show, value))}]"
    return str(value)


def apply_environment(environ: Mapping[str, str]) -> None:
    """Set levels by gRPC's variables. No-op without them."""
    verbosity = environ.get(VERBOSITY_VARIABLE, "").strip().upper()
    tracers = [name.strip() for name in environ.get(TRACE_VARIABLE, "").split(",") if name.strip()]
    if not verbosity and not tracers:
        return
    _ensure_handler()
    if verbosity and verbosity not in _LEVELS:
        wanted = ", ".join(_LEVELS)
        _LOGGER.warning("%s is %s, wanted %s", VERBOSITY_VARIABLE, quote(verbosity), wanted)
        verbosity = ""
    if verbosity:
        level = _LEVELS[verbosity]
        # "tracers … provide additional insight": with tracers, other loggers stay at INFO.
        level = logging.INFO if tracers and verbosity == "DEBUG" else level
        logging.getLogger(ROOT).setLevel(level)
    if verbosity != "NONE":
        _enable(tracers)


def choose_tracers(tracers: Iterable[str]) -> tuple[set[str], list[str]]:
    """The loggers that a list of tracers enables, and the unknown names.

    The order matters: `all,-xds_client` is all but one, `-xds_client,all` is all.
    """
    from fnmatch import fnmatchcase  # noqa: PLC0415 - only with GRPC_TRACE

    chosen: set[str] = set()
    unknown: list[str] = []
    for text in tracers:
        pattern = "*" if text.lstrip("-") == "all" else text.removeprefix("-")
        found = {TRACERS[name] for name in TRACERS if fnmatchcase(name, pattern)}
        if pattern.startswith(f"{ROOT}.") or pattern == ROOT:
            found = {pattern}
        if text.startswith("-"):
            chosen -= found
        else:
            chosen |= found
        if not found and not _is_known(pattern):
            unknown.append(pattern)
    return chosen, unknown


def _is_known(pattern: str) -> bool:
    from fnmatch import fnmatchcase  # noqa: PLC0415 - only with GRPC_TRACE

    # Debug builds have many tracers of reference counts.
    return any(fnmatchcase(name, pattern) for name in _IGNORED_TRACERS) or "refcount" in pattern


def _enable(tracers: list[str]) -> None:
    chosen, unknown = choose_tracers(tracers)
    for name in sorted(chosen):
        logging.getLogger(name).setLevel(logging.DEBUG)
    if unknown:
        names = ", ".join(map(quote, unknown))
        _LOGGER.warning("%s has unknown tracers: %s", TRACE_VARIABLE, names)


def _ensure_handler() -> None:
    """Log to stderr if the application has not configured logging."""
    ours, root = logging.getLogger(ROOT), logging.getLogger()
    if root.handlers or any(not isinstance(each, logging.NullHandler) for each in ours.handlers):
        return
    # Concurrent threads get the same handler, and a logger adds it once. A lock might be held for
    # ever in the child of a fork.
    handler = _HANDLERS.setdefault(ROOT, logging.StreamHandler(sys.stderr))
    handler.setStream(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    ours.addHandler(handler)
