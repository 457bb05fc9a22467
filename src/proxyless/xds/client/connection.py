"""ADS connection to one server: requests, responses, reachability and resource timers.

Specs: A27 (ADS), A57 (failure modes).

`Decision` makes an `Outcome` of each response, the owner applies it, and the connection sends the
ACK or NACK. A large response takes several turns (`runtime.work_queue`); the next message is read
after it. A resource timer (`resource_timers`) runs only while the stream has a connection.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxyless.base import OK, Status, StatusCode, one_line, quote
from proxyless.protos.merging import PART_BYTES_MAX
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.xds.bootstrap import DELTA
from proxyless.xds.client.ads import AdsState, AdsVariant
from proxyless.xds.client.api import (
    DecodeContext,
    NoAnswer,
    ResourceType,
    ServerView,
    is_collection_type,
    naming_types,
)
from proxyless.xds.client.authorities import AuthorityServers, find_entry
from proxyless.xds.client.cache import DecodedResourceCache, Entry, ResourceKey, make_cache
from proxyless.xds.client.notifications import LOGGER, NotificationQueue
from proxyless.xds.client.response import Decision, ErrorRules, Outcome
from proxyless.xds.client.retried_stream import RESPONSE_UNDER_WAY, RetriedStream, Tools
from proxyless.xds.client.server_log import (
    ServerLog,
    describe_silence,
    longer_silence_s,
    reason_of,
    trace_response,
    warn_once,
)
from proxyless.xds.error_texts import name_resource, name_server, with_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from proxyless.runtime import StepsJob
    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.bootstrap import Node, ServerConfig
    from proxyless.xds.client import codec
    from proxyless.xds.client.collection import Collection, CollectionCache
    from proxyless.xds.client.collection_response import CollectionDecision
    from proxyless.xds.client.early_deletions import EarlyDeletions
    from proxyless.xds.client.transport import Transport

# Resources that are applied in one step, and the work of it.
_APPLIED_MAX: Final = 500
_APPLY_WORK: Final = 4_000


class ConnectionOwner(Protocol):
    """Owner of a connection: applies responses and failures."""

    def request_flush(self, connection: Connection) -> None:
        """Call the connection's `flush` in the next turn."""

    def on_reachable(self, connection: Connection) -> None:
        """The server sent a response; `apply` follows if its type was requested."""

    def apply(self, connection: Connection, outcome: Outcome) -> None: ...

    def on_failure(self, connection: Connection) -> None:
        """The server became unreachable; `on_unreachable` follows."""

    def on_unreachable(self, connection: Connection) -> None: ...

    def on_timeout(self, connection: Connection, entry: Entry, *, no_answer: str) -> None:
        """A resource was not sent in time. `no_answer`: why it may still come; else empty."""


class Connection:
    """ADS connection to one server. Owns its stream, subscriptions and resource timers."""

    def __init__(
        self,
        context: DecodeContext,
        transport: Transport,
        *,
        rules: ErrorRules,
        tools: Tools,
        queue: NotificationQueue,
        owner: ConnectionOwner,
    ) -> None:
        # Fixed at construction.
        self.server = context.server
        self.rules = rules
        self._context = context
        self._tools = tools
        self._transport = transport
        self._queue = queue
        self._owner = owner
        # Authorities for which the server is in use, by name. Changed by the owner.
        self.authorities: dict[str | None, AuthorityServers[Connection]] = {}
        # Subscriptions; resource types, and decoded resources or collections, by type URL.
        self._ads = _make_variant(self.server, context.bootstrap.node)
        self._stream = RetriedStream(self._ads.path, transport, tools, self)
        self._types: dict[str, ResourceType[Any]] = {}
        self._caches: dict[str, DecodedResourceCache | CollectionCache] = {}
        # OK unless the server is unreachable; start of the outage, and its last reason.
        self.status: Status = OK
        self._silent_since_s = 0.0
        self._reason = ""
        # Pending until the text about the silence changes.
        self._silence_timer: Timer = IDLE_TIMER
        self._log = ServerLog()
        # Resource timers of this stream. Imported by the first connection.
        from proxyless.xds.client.resource_timers import ResourceTimers  # noqa: PLC0415

        self._timers = ResourceTimers(tools.clock, rules.timeout_s, self._stream, self._on_expired)
        # Deletions on the last stream with an answer; None if no resources were in use at its first
        # answer, or after the time that deletions wait.
        self._deletions: EarlyDeletions | None = None
        # The response under way, if it takes more than one turn.
        self._job: StepsJob | None = None
        transport.watch_connectivity(self._on_connectivity)
        self._stream.start()

    def close(self) -> None:
        """End the stream and all timers. Idempotent; its owner closes the transport."""
        self._timers.stop_all()
        self._drop_job()
        self._silence_timer.cancel()
        if self._deletions is not None:
            self._deletions.stop()
        self._stream.close()
        self.authorities.clear()

    def view(self) -> ServerView:
        stream, left_s = self._stream, self._timers.left_s()
        if self._deletions is not None:
            left_s.update(self._deletions.left_s(self._is_watched))
        retry_in_s = stream.retry_in_s(self._tools.clock.now_s())
        return ServerView(
            self.server.uri,
            self.status,
            self.status if self.status.is_ok else self._make_status(),
            stream.is_ready,
            stream.has_answered,
            retry_in_s,
            left_s,
            stream.short_streams(self._tools.clock.now_s()),
            stream.last_end,
        )

    # Called by the client

    def subscribe(self, entry: Entry) -> None:
        type_url, name = entry.key
        self._types[type_url] = entry.type
        if type_url not in self._caches:
            self._caches[type_url] = make_cache(entry.type)
        self._ads.subscribe(type_url, name)
        self._owner.request_flush(self)

    def unsubscribe(self, entry: Entry) -> None:
        type_url, name = entry.key
        self._ads.unsubscribe(type_url, name)
        self._timers.stop(entry.key)
        self._caches[type_url].remove(name)
        self._owner.request_flush(self)

    def wait_for(self, entry: Entry) -> None:
        """Start the timer of a resource, unless it runs or the stream has no connection yet."""
        self._wait_for([entry.key])

    def flush(self) -> None:
        # Changes are gathered until there is a connection: making the first request of a process
        # takes some ms, and would delay the start of the connection.
        if not self._stream.is_ready:
            return
        # For a server that does not read, changes are gathered until it does.
        if self._stream.has_sent and not self._stream.is_writable:
            return
        for change in self._ads.take_changes():
            self._send(change.request)
            if self._stream.is_ready:
                type_url = change.request.type_url
                self._wait_for((type_url, name) for name in change.added)

    def _send(self, request: codec.AnyRequest) -> None:
        if self._tools.trace.active:
            self._tools.trace.emit(
                "xds.request",
                server=self.server.uri,
                type_url=request.type_url,
                names=request.resource_names,
                version=request.version,
                nonce=request.nonce,
                error=request.error,
            )
        self._stream.send(self._ads.encode(request))

    # Called by the stream

    def on_stream_opened(self) -> None:
        if not self._ads.sends_versions_in_use:
            self._open_stream()
        self._stream.read_next()

    def _open_stream(self) -> None:
        members: dict[str, dict[str, str]] = {}
        for type_url, cache in self._caches.items():
            if not isinstance(cache, DecodedResourceCache):
                # Members that the job adds would not be in the first request of this stream.
                self._drop_job()
                find_used = partial(self._find_collection, type_url)
                members[type_url] = cache.start_stream(find_used)
        self._ads.open_stream(self._find_held, members)
        self._owner.request_flush(self)

    def _start_deletions(self, stream_number: int) -> None:
        """The first response on a stream, which may have ended while it was decoded."""
        if self._deletions is not None:
            self._deletions.stop()
            self._deletions = None
        naming = {type_url for each in self._types.values() for type_url in naming_types(each)}
        found = [each.entries_of(url) for each in self.authorities.values() for url in naming]
        in_use = [entry for entries in found for entry in entries if entry.has_resource]
        if not in_use:
            return
        from proxyless.xds.client.early_deletions import EarlyDeletions  # noqa: PLC0415 - seldom

        clock, stream = self._tools.clock, self._stream
        self._deletions = EarlyDeletions(self._context, in_use, clock, stream, self._end_deletions)
        if stream_number == stream.number:
            self._deletions.start(self.rules.timeout_s)

    def _end_deletions(self) -> None:
        """Deletions have waited long enough; later ones on the stream are final at once."""
        deletions = self._deletions
        assert deletions is not None, "its time is over"
        if self._no_answer:
            deletions.start(self.rules.timeout_s)
            return
        self._deletions = None
        if final := deletions.take_final(self._is_watched, is_over=True):
            self._apply(final)

    def _find_held(self, type_url: str, name: str) -> bool | None:
        """Whether the resource in use is the one that this server sent last; None if none is."""
        _, entry = find_entry(self.authorities, type_url, name)
        cache = self._caches[type_url]
        if entry is None or not entry.has_resource or not isinstance(cache, DecodedResourceCache):
            return None
        return cache.bytes_of(name) == entry.serialized

    def _find_collection(self, type_url: str, name: str) -> Collection | None:
        """The collection in use."""
        _, entry = find_entry(self.authorities, type_url, name)
        return None if entry is None else entry.collection

    def on_stream_ready(self) -> None:
        if self._ads.sends_versions_in_use:
            # Not earlier: while the stream waits, a fallback server may replace what is in use.
            self._open_stream()
        self.flush()
        # "A connection has been established …, and the stream has been dispatched" - A57
        self._wait_for(self._ads.subscriptions)

    def on_stream_writable(self) -> None:
        self.flush()

    def on_stream_message(self, message: bytes) -> None:
        if self._job is not None:
            # The response of an earlier stream; this one sends the resources again.
            self._drop_job()
        self._job = self._tools.work.run_steps(self._process(message))

    def _drop_job(self) -> None:
        if self._job is not None:
            self._job.cancel()
            self._job = None

    def _process(self, message: bytes) -> Steps[None]:
        read_next, stream_number = self._stream.reader(), self._stream.number
        try:
            if len(message) <= PART_BYTES_MAX:
                response = self._ads.decode(message)
            else:
                response = yield from self._ads.decode_in_steps(message)
            if response is None:
                self._warn("response cannot be decoded")
            elif self._record_answer(response, stream_number):
                yield from self._process_response(response, stream_number)
        finally:
            # Even after a bug in this response the next one is read, behind its notifications.
            self._queue.call(read_next)

    def _record_answer(self, response: codec.DiscoveryResponse, stream_number: int) -> bool:
        """Record that the server answered; returns whether this type was requested."""
        self._note_answer()
        self._owner.on_reachable(self)
        is_first = self._stream.is_first_answer(stream_number)
        if is_first or self._timers.has_fired:
            self._timers.has_fired = False
            # Timers of a silent stream start again: the server has just proved to be alive. So do
            # those of resources that an earlier stream or another server has deleted since.
            self._wait_for(self._ads.subscriptions)
        if is_first:
            # Not earlier: until now, a fallback server or saved resources may have been used.
            self._start_deletions(stream_number)
        if stream_number != self._stream.number:
            # The stream has ended since, and so have its requests.
            return response.type_url in self._types
        self._stream.note_answer()
        if not self._ads.is_expected(response.type_url):
            kind = quote(response.type_url)
            self._warn(f"response of type {kind} is ignored, it was not requested")
            return False
        return True

    def _process_response(
        self, response: codec.DiscoveryResponse, stream_number: int
    ) -> Steps[None]:
        resource_type, cache = self._types[response.type_url], self._caches[response.type_url]
        if type(cache) is DecodedResourceCache:
            decision = Decision(
                resource_type,
                self._context,
                self.rules,
                authorities=self.authorities,
                cache=cache,
            )
        else:
            decision = self._decide_members(resource_type, cache)
        outcome = yield from decision.run_in_steps(response)
        # What is decided in one turn is small enough to be applied in one.
        for part in (outcome,) if self._job is None else self._split(outcome):
            deletions = self._deletions
            self._apply(part if deletions is None else deletions.defer(resource_type, part))
            if part is not outcome:
                yield _APPLY_WORK
        if self._deletions is not None and (final := self._deletions.take_final(self._is_watched)):
            self._apply(final)
        if self._tools.trace.active:
            trace_response(self._tools.trace, self.server.uri, response, outcome.error)
        self._log.log_nack(outcome)
        if stream_number == self._stream.number:
            self._answer(outcome)
        else:
            # The stream has ended since. The next one starts with this version.
            self._ads.accept(outcome)

    def _apply(self, outcome: Outcome) -> None:
        for update in outcome.updates:
            self._timers.stop(update.entry.key)
        self._owner.apply(self, outcome)

    def _decide_members(
        self, resource_type: ResourceType[Any], cache: CollectionCache
    ) -> CollectionDecision:
        from proxyless.xds.client.collection_response import (  # noqa: PLC0415 - few clients need it
            CollectionDecision,
        )

        assert is_collection_type(resource_type), "only collections have such a cache"
        return CollectionDecision(
            resource_type, self._context, self.rules, authorities=self.authorities, cache=cache
        )

    def _split(self, outcome: Outcome) -> Iterator[Outcome]:
        for part in outcome.split(_APPLIED_MAX):
            # Watches may have ended since their resources were decoded.
            live = [update for update in part.updates if self._is_watched(update.entry)]
            yield replace(part, updates=live)

    def _is_watched(self, entry: Entry) -> bool:
        return find_entry(self.authorities, *entry.key)[1] is entry

    def _answer(self, outcome: Outcome) -> None:
        if self._stream.is_writable:
            self._send(self._ads.answer(outcome))
        else:
            # The server does not read: only the last answer of each type is kept.
            self._ads.answer_later(outcome)

    def on_stream_ended(self, status: Status, *, has_answered: bool) -> None:
        awaited = next(iter(self._timers.left_s()), None)
        self._timers.stop_all()
        if self._deletions is not None:
            self._deletions.stop()
        if awaited is not None and self._stream.short_streams(self._tools.clock.now_s()):
            text = f"ends each stream soon, before it has sent {name_resource(*awaited)}: {status}"
            self._warn(one_line(text))
        self._ads.close_stream()
        self._tools.trace.emit("xds.stream_ended", server=self.server.uri, status=status)
        # "we do not consider it an error if the ADS stream was closed after having received a
        # response" - A57; a response that is being processed counts.
        if not has_answered and not self._is_processing:
            self._fail(one_line(f"stream ended before any response: {status}"))

    @property
    def _is_processing(self) -> bool:
        """Whether a response has been received, and is not decided."""
        return self._job is not None and self._tools.work.is_waiting(self._job)

    @property
    def _no_answer(self) -> str:
        """Why a resource that was not sent in time may still come, for texts; else empty."""
        return RESPONSE_UNDER_WAY if self._is_processing else self._stream.no_answer

    def _on_connectivity(self, status: Status) -> None:
        # Load reports may keep the transport open for longer than this connection, which is closed
        # when the last authority leaves it.
        if self.authorities:
            self._fail(reason_of(status))

    def _fail(self, reason: str) -> None:
        self._reason = reason
        if self.status.is_ok:
            self._silent_since_s = self._tools.clock.now_s()
            self._await_longer_silence(0.0)
            self._owner.on_failure(self)
        self._publish_unreachable()

    def _publish_unreachable(self) -> None:
        self.status = self._make_status()
        warn_once(self.status.details, self._log.reasons)
        self._owner.on_unreachable(self)

    def _make_status(self) -> NoAnswer:
        """Status of an outage. The transport reports the first reason only, so it is asked."""
        failure = self._transport.last_failure()
        reason = self._reason if failure.is_ok else reason_of(failure)
        silence = describe_silence(self._tools.clock.now_s() - self._silent_since_s)
        text = f"{name_server(self.server.uri)}: {silence}: {reason}"
        return NoAnswer(StatusCode.UNAVAILABLE, with_node(text, self._context.bootstrap.node.id))

    def _await_longer_silence(self, silent_s: float) -> None:
        longer_s = longer_silence_s(silent_s)
        if longer_s is not None:
            self._silence_timer = self._tools.clock.call_later(
                longer_s - silent_s, partial(self._on_longer_silence, longer_s)
            )

    def _on_longer_silence(self, silent_s: float) -> None:
        self._await_longer_silence(silent_s)
        self._publish_unreachable()

    def _note_answer(self) -> None:
        if not self.status.is_ok:
            silent_s = self._tools.clock.now_s() - self._silent_since_s
            server = name_server(self.server.uri)
            LOGGER.info("%s: answers again after %.1f s", server, silent_s)
        self._silence_timer.cancel()
        self.status = OK
        self._log.reasons.clear()

    # Logs: each text once, even if its cause is repeated

    def _warn(self, what: str) -> None:
        text = f"{name_server(self.server.uri)}: {what}"
        warn_once(with_node(text, self._context.bootstrap.node.id), self._log.warnings)

    # Resource timers

    def _wait_for(self, keys: Iterable[ResourceKey]) -> None:
        """Start one timer for those of these resources that are not answered."""
        if self._stream.is_ready:
            self._timers.start([key for key in keys if self._find_unanswered(key)])

    def _find_unanswered(self, key: ResourceKey) -> Entry | None:
        _, entry = find_entry(self.authorities, *key)
        return entry if entry is not None and not entry.is_answered else None

    def _on_expired(self, key: ResourceKey) -> None:
        type_url, name = key
        self._tools.trace.emit("xds.resource_timeout", type_url=type_url, name=name)
        entry = self._find_unanswered(key)
        if entry is not None:
            self._owner.on_timeout(self, entry, no_answer=self._no_answer)


def _make_variant(server: ServerConfig, node: Node) -> AdsVariant:
    if DELTA not in server.features:
        return AdsState(node)
    from proxyless.xds.client.delta import DeltaState  # noqa: PLC0415 - few clients need it

    return DeltaState(node)
