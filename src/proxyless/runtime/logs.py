"""Who hears in the standard library's logs what happens, and how is that asked for?

Every room has a logger, below `proxyless`. State changes that a human should know of are logged by
those who find them, in the words of the RPCs that fail because of them. Everything else that
happens is an event of the trace: `LogTrace` passes events on to the logger of their room, at DEBUG,
if anybody listens there. Whether anybody does is asked anew each time, so that a level may be
changed while the process runs; nothing is formatted for nobody.

`GRPC_VERBOSITY` and `GRPC_TRACE` are understood as other gRPC libraries understand them: tracers'
names are names of our loggers. Nothing here looks into metadata or messages, so no secret of an
application gets into a log.
"""

from __future__ import annotations

import logging
import sys
from enum import Enum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TextIO

from proxyless.base import Trace, one_line, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = "proxyless"

VERBOSITY_VARIABLE: Final = "GRPC_VERBOSITY"
TRACE_VARIABLE: Final = "GRPC_TRACE"

# By the first word of an event's name, the logger of its room. Others are below ROOT.
LOGGER_NAMES: Final[Mapping[str, str]] = {
    "channel": "proxyless.channel",
    "subchannel": "proxyless.subchannel",
    "load_reports": "proxyless.subchannel",
    "health": "proxyless.subchannel",
    "dns": "proxyless.resolver.dns",
    "least_request": "proxyless.lb.least_request",
    "outlier_detection": "proxyless.lb.outlier_detection",
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

# By the name of a tracer of gRPC, the logger that says what it would.
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

# Tracers of gRPC that trace what there is not here: known, so that nobody is warned of them.
_NOTHING_TO_TRACE: Final = frozenset(
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
# The one that we add, if we have to.
_HANDLERS: Final[dict[str, logging.StreamHandler[TextIO]]] = {}

_LOGGER: Final = logging.getLogger("proxyless.logs")

# ---------------------------------------------------------------------------------------------
# From the trace to the loggers


class LogTrace(Trace):
    """A trace whose events are logged, too. Driven by those who emit."""

    __slots__ = ("_has_sinks",)

    @property
    def active(self) -> bool:
        """Whether anybody listens: a sink, or whoever turned a logger on."""
        return self._has_sinks or _EVENT_LOGGERS.is_any_on()

    @active.setter
    def active(self, has_sinks: bool) -> None:
        self._has_sinks = has_sinks

    def emit(self, name: str, /, **fields: object) -> None:
        if self._has_sinks:
            super().emit(name, **fields)
        logger = _EVENT_LOGGERS.of(name)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", _Shown(name, fields))


class _EventLoggers:
    """The loggers of events, each looked up once.

    To ask twenty loggers costs microseconds, and there are events by the ten thousand. A logger
    keeps what it knows about levels in a dictionary that `logging` empties whenever any level is
    changed; what we know about all of them is put there, too. Without such a dictionary they are
    asked each time.
    """

    __slots__ = ("_by_word", "_memory")

    def __init__(self) -> None:
        self._by_word = {word: logging.getLogger(name) for word, name in LOGGER_NAMES.items()}
        self._memory: dict[object, bool] | None = getattr(logging.getLogger(ROOT), "_cache", None)

    def of(self, event_name: str) -> logging.Logger:
        word = event_name.partition(".")[0]
        logger = self._by_word.get(word)
        if logger is None:
            # A policy of an application's own, which has few events.
            logger = self._by_word[word] = logging.getLogger(f"{ROOT}.{word}")
            if self._memory is not None:
                self._memory.pop(_ANY, None)
        return logger

    def is_any_on(self) -> bool:
        memory = self._memory
        known = None if memory is None else memory.get(_ANY)
        if known is None:
            if memory is not None:
                memory[_ASKED] = True
            # A copy: another loop's thread may be adding one.
            loggers = list(self._by_word.values())
            known = any(each.isEnabledFor(logging.DEBUG) for each in loggers)
            # It is gone if another thread has changed a level meanwhile.
            if memory is not None and _ASKED in memory:
                memory[_ANY] = known
        return known


# Where the answer for all loggers is remembered; levels are numbers.
_ANY: Final = "proxyless: any"
# There while the answer is looked for.
_ASKED: Final = "proxyless: asked"
# Loggers are the process's own, and so is what is known about them.
_EVENT_LOGGERS: Final = _EventLoggers()


class _Shown:
    """An event as a line; made only if a handler wants it."""

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


# ---------------------------------------------------------------------------------------------
# What the environment asks for


def apply_environment(environ: Mapping[str, str]) -> None:
    """Set levels as the variables of gRPC ask for; without them, do nothing at all."""
    verbosity = environ.get(VERBOSITY_VARIABLE, "").strip().upper()
    asked = [name.strip() for name in environ.get(TRACE_VARIABLE, "").split(",") if name.strip()]
    if not verbosity and not asked:
        return
    _ensure_handler()
    if verbosity and verbosity not in _LEVELS:
        wanted = ", ".join(_LEVELS)
        _LOGGER.warning("%s is %s, wanted %s", VERBOSITY_VARIABLE, quote(verbosity), wanted)
        verbosity = ""
    if verbosity:
        level = _LEVELS[verbosity]
        # "tracers … provide additional insight": with names, the rest stays at INFO.
        logging.getLogger(ROOT).setLevel(logging.INFO if asked and verbosity == "DEBUG" else level)
    if verbosity != "NONE":
        _turn_on(asked)


def choose_tracers(asked: Iterable[str]) -> tuple[set[str], list[str]]:
    """The loggers that a list of tracers turns on, and the names that nobody knows.

    In the list's order: `all,-xds_client` is all but one, `-xds_client,all` is all.
    """
    chosen: set[str] = set()
    unknown: list[str] = []
    for text in asked:
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
    # Those of debug builds are many, and change.
    return any(fnmatchcase(name, pattern) for name in _NOTHING_TO_TRACE) or "refcount" in pattern


def _turn_on(asked: list[str]) -> None:
    chosen, unknown = choose_tracers(asked)
    for name in sorted(chosen):
        logging.getLogger(name).setLevel(logging.DEBUG)
    if unknown:
        names = ", ".join(map(quote, unknown))
        _LOGGER.warning("%s names tracers that nobody knows: %s", TRACE_VARIABLE, names)


def _ensure_handler() -> None:
    """Whoever sets the variables wants to see something, also if the application has no logs."""
    ours, everybody = logging.getLogger(ROOT), logging.getLogger()
    if everybody.handlers or any(not _is_null(each) for each in ours.handlers):
        return
    # Several threads may come here at once. They find the same handler, and a logger takes it once;
    # a lock of ours might be held for ever in the child of a fork.
    handler = _HANDLERS.setdefault(ROOT, logging.StreamHandler(sys.stderr))
    handler.setStream(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    ours.addHandler(handler)


def _is_null(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.NullHandler)
