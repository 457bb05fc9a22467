"""Interfaces between the calls of a channel and the stats plugins that trace them.

Specs: A72 (what is recorded of calls and attempts), A121 (delays; a draft).

A stats plugin that traces also implements `TracingPlugin`. Tracers are called in any thread; no
method may block, and an exception is logged and does not affect the RPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from proxyless.base import EMPTY_METADATA
from proxyless.base.frozen import frozen
from proxyless.metrics.plugins import LOGGER, call_plugin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from proxyless.base import Address, Metadata, Status


@frozen
class AttemptOrigin:
    """Position of an attempt among those of its call."""

    # Transparent retries do not count.
    previous_attempts: int
    is_transparent_retry: bool


@frozen
class PickedBackend:
    """Result of the pick of an attempt."""

    address: Address
    # Metric labels that policies added to the pick (A78, A89).
    labels: Mapping[str, str]
    config_generation: int


class DelayTracer(Protocol):
    """Records one delay."""

    def on_reason(self, reason: str) -> None:
        """The delay continues, for another reason of the same type."""

    def end(self) -> None: ...


class AttemptTracer(Protocol):
    """Records one attempt."""

    def metadata(self) -> Metadata:
        """Metadata that propagates the context of the attempt."""

    def on_picked(self, backend: PickedBackend, was_delayed: bool) -> None:
        """A stream is about to be created. `was_delayed`: the pick was queued."""

    def on_sent(self, size: int, compressed_size: int | None) -> None:
        """A message is sent; the second size is None if it is not compressed."""

    def on_received(self, size: int, compressed_size: int | None) -> None: ...

    def start_delay(self, kind: str, reason: str) -> DelayTracer | None: ...

    def end(self, status: Status) -> None: ...


class CallTracer(Protocol):
    """Records one call."""

    def on_start(self, is_in_session: bool) -> None: ...

    def on_resolved(self) -> None:
        """The call had to wait for name resolution, which is complete."""

    def on_drop(self, status: Status) -> None:
        """A picker dropped the call."""

    def start_delay(self, kind: str, reason: str) -> DelayTracer | None: ...

    def start_attempt(self, origin: AttemptOrigin) -> AttemptTracer: ...

    def end(self, status: Status) -> None: ...


class MethodTracing(Protocol):
    """Starts the tracers of the calls of one method of one channel."""

    def start_call(self) -> CallTracer | Metadata:
        """Called by the thread, and in the context, of the application.

        Metadata if the call is not recorded: what propagates its context.
        """


class TracingPlugin(Protocol):
    """The part of a stats plugin that traces calls; a plugin that only measures has none."""

    @property
    def is_tracing(self) -> bool: ...

    def trace_method(self, path: str) -> MethodTracing:
        """Called once per channel and method, if `is_tracing`."""


def choose_tracings(plugins: Iterable[object], path: str) -> tuple[MethodTracing, ...]:
    """The tracings of a method, of a channel with these plugins."""
    found: list[MethodTracing] = []
    for plugin in plugins:
        if getattr(plugin, "is_tracing", False):
            tracing_plugin: TracingPlugin = plugin  # type: ignore[assignment]
            tracing = call_plugin(None, tracing_plugin.trace_method, path)
            if tracing is not None:
                found.append(tracing)
    return tuple(found)


def start_tracers(tracings: Iterable[MethodTracing]) -> tuple[tuple[CallTracer, ...], Metadata]:
    """The tracers of one call, and the metadata of plugins that do not record it."""
    tracers: tuple[CallTracer, ...] = ()
    propagated = EMPTY_METADATA
    for tracing in tracings:
        try:
            started = tracing.start_call()
        except Exception:
            LOGGER.exception("stats plugin: %r raised", tracing.start_call)
            continue
        if isinstance(started, tuple):
            propagated = replace_metadata(propagated, started)
        else:
            tracers += (started,)
    return tracers, propagated


def replace_metadata(others: Metadata, added: Metadata) -> Metadata:
    """The metadata with what a tracer adds, which replaces values of the same keys.

    The application, an interceptor or another plugin may propagate a context of its own, and a
    server accepts one `traceparent`.
    """
    if others:
        keys = {key for key, _ in added}
        others = tuple([pair for pair in others if pair[0] not in keys])
    return others + added
