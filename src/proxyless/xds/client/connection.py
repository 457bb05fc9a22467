"""ADS connection to one server: requests, responses, reachability and resource timers.

Specs: A27 (ADS), A57 (failure modes).

`Decision` makes an `Outcome` of each response, the owner applies it, and the connection sends the
ACK or NACK. A resource timer runs only while the stream has a connection.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxyless.base import OK, Status, StatusCode, one_line, quote
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.xds.client import codec
from proxyless.xds.client.ads import AdsState
from proxyless.xds.client.api import DecodeContext, ResourceType, ServerView
from proxyless.xds.client.authorities import AuthorityServers, find_entry
from proxyless.xds.client.cache import DecodedResourceCache, Entry, ResourceKey
from proxyless.xds.client.notifications import LOGGER, NotificationQueue
from proxyless.xds.client.response import Decision, ErrorRules, Outcome
from proxyless.xds.client.retried_stream import RetriedStream, Tools
from proxyless.xds.error_texts import name_server, with_node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.xds.client.transport import Transport

# Times after which the text about a silent server changes. Each change is published to every
# watcher, so there are few.
_SILENCES: Final = ((60.0, "1 min"), (600.0, "10 min"), (3_600.0, "1 h"), (86_400.0, "1 day"))
# Number of different warnings that are logged per server, and per outage of it.
_WARNINGS_MAX: Final = 16


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

    def on_timeout(self, connection: Connection, entry: Entry) -> None: ...


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
        self._queue = queue
        self._owner = owner
        self._stream = RetriedStream(codec.ADS_PATH, transport, tools, self)
        # Authorities for which the server is in use, by name. Changed by the owner.
        self.authorities: dict[str | None, AuthorityServers[Connection]] = {}
        # Subscriptions; resource types and decoded resources by type URL.
        self._ads = AdsState(context.bootstrap.node)
        self._types: dict[str, ResourceType[Any]] = {}
        self._caches = defaultdict[str, DecodedResourceCache](DecodedResourceCache)
        # OK unless the server is unreachable; start of the outage, and its last reason.
        self.status = OK
        self._silent_since_s = 0.0
        self._reason = ""
        # Pending until the text about the silence changes.
        self._silence_timer: Timer = IDLE_TIMER
        # Logged texts: of this outage, of the server, and the last NACK of each type.
        self._reasons: set[str] = set()
        self._warnings: set[str] = set()
        self._nacks: dict[str, str] = {}
        # Resource timers of this stream.
        self._waits: dict[ResourceKey, _Wait] = {}
        self._is_closed = False
        transport.watch_connectivity(self._on_connectivity)
        self._stream.start()

    def close(self) -> None:
        """End the stream and all timers. Idempotent; its owner closes the transport."""
        self._is_closed = True
        self._stop_waiting()
        self._silence_timer.cancel()
        self._stream.close()
        self.authorities.clear()

    def view(self) -> ServerView:
        now_s = self._tools.clock.now_s()
        waits = {key: max(wait.timer.due_s - now_s, 0.0) for key, wait in self._waits.items()}
        is_stream_ready, retry_in_s = self._stream.is_ready, self._stream.retry_in_s(now_s)
        return ServerView(self.server.uri, self.status, is_stream_ready, retry_in_s, waits)

    # Called by the client

    def subscribe(self, entry: Entry) -> None:
        type_url, name = entry.key
        self._types[type_url] = entry.type
        self._ads.subscribe(type_url, name)
        self._owner.request_flush(self)

    def unsubscribe(self, entry: Entry) -> None:
        type_url, name = entry.key
        self._ads.unsubscribe(type_url, name)
        self._stop_waiting_for(entry.key)
        self._caches[type_url].remove(name)
        self._owner.request_flush(self)

    def flush(self) -> None:
        for change in self._ads.take_changes():
            self._send(change.request)
            if self._stream.is_ready:
                type_url = change.request.type_url
                self._wait_for((type_url, name) for name in change.added)

    def _send(self, request: codec.DiscoveryRequest) -> None:
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
        self._stream.send(codec.encode_request(request))

    # Called by the stream

    def on_stream_opened(self) -> None:
        self._ads.open_stream()
        self._owner.request_flush(self)
        self._stream.reader()()

    def on_stream_ready(self) -> None:
        self.flush()
        # "A connection has been established …, and the stream has been dispatched" - A57
        self._wait_for(self._ads.subscriptions)

    def on_stream_message(self, message: bytes) -> None:
        response = codec.decode_response(message)
        try:
            if response is None:
                self._warn("response cannot be decoded")
            else:
                self._on_response(response)
        finally:
            # Even after a bug in this response the next one is read, behind its notifications.
            self._queue.call(self._stream.reader())

    def _on_response(self, response: codec.DiscoveryResponse) -> None:
        self._note_answer()
        self._stream.note_answer()
        self._owner.on_reachable(self)
        if not self._ads.is_expected(response.type_url):
            kind = quote(response.type_url)
            self._warn(f"response of type {kind} is ignored, it was not requested")
            return
        outcome = Decision(
            self._types[response.type_url],
            self._context,
            self.rules,
            authorities=self.authorities,
            cache=self._caches[response.type_url],
        ).run(response)
        for update in outcome.updates:
            self._stop_waiting_for(update.entry.key)
        self._owner.apply(self, outcome)
        self._trace_response(response, outcome.error)
        self._log_nack(outcome)
        answer = self._ads.answer(
            outcome.type_url,
            version=outcome.version,
            nonce=outcome.nonce,
            error=outcome.error,
            is_used=outcome.is_used,
        )
        self._send(answer)

    def on_stream_ended(self, status: Status, *, has_answered: bool) -> None:
        self._stop_waiting()
        self._ads.close_stream()
        self._tools.trace.emit("xds.stream_ended", server=self.server.uri, status=status)
        # "we do not consider it an error if the ADS stream was closed after having received a
        # response" - A57
        if not has_answered:
            self._fail(f"stream ended before any response: {status}")

    def _on_connectivity(self, status: Status) -> None:
        # Load reports may keep the transport open for longer than this connection.
        if not self._is_closed:
            self._fail(status.details or status.code.name)

    def _fail(self, reason: str) -> None:
        self._reason = one_line(reason)
        if self.status.is_ok:
            self._silent_since_s = self._tools.clock.now_s()
            self._await_longer_silence(0.0)
            self._owner.on_failure(self)
        self._publish_unreachable()

    def _publish_unreachable(self) -> None:
        silence = describe_silence(self._tools.clock.now_s() - self._silent_since_s)
        text = f"{name_server(self.server.uri)}: {silence}: {self._reason}"
        self.status = Status(
            StatusCode.UNAVAILABLE, with_node(text, self._context.bootstrap.node.id)
        )
        _warn_once(self.status.details, self._reasons)
        self._owner.on_unreachable(self)

    def _await_longer_silence(self, silent_s: float) -> None:
        longer_s = next((each_s for each_s, _ in _SILENCES if each_s > silent_s), None)
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
        self._reasons.clear()

    # Logs: each text once, even if its cause is repeated

    def _warn(self, what: str) -> None:
        text = f"{name_server(self.server.uri)}: {what}"
        _warn_once(with_node(text, self._context.bootstrap.node.id), self._warnings)

    def _trace_response(self, response: codec.DiscoveryResponse, error: str) -> None:
        if self._tools.trace.active:
            self._tools.trace.emit(
                "xds.response",
                server=self.server.uri,
                type_url=response.type_url,
                resources=len(response.resources),
                version=response.version,
                nonce=response.nonce,
                error=error,
            )

    def _log_nack(self, outcome: Outcome) -> None:
        """Log a NACK, unless the last response of this type had the same one."""
        if outcome.error and outcome.error != self._nacks.get(outcome.type_url):
            LOGGER.warning("%s", outcome.error)
        self._nacks[outcome.type_url] = outcome.error

    # Resource timers

    def _wait_for(self, keys: Iterable[ResourceKey]) -> None:
        """Start one timer for those of these resources that are not answered."""
        awaited = [key for key in keys if key not in self._waits and self._find_unanswered(key)]
        if awaited:
            wait = _Wait(awaited)
            wait.timer = self._tools.clock.call_later(
                self.rules.timeout_s, partial(self._on_timeout, wait)
            )
            self._waits.update(dict.fromkeys(awaited, wait))

    def _find_unanswered(self, key: ResourceKey) -> Entry | None:
        _, entry = find_entry(self.authorities, *key)
        return entry if entry is not None and not entry.is_answered else None

    def _stop_waiting_for(self, key: ResourceKey) -> None:
        wait = self._waits.pop(key, None)
        if wait is not None:
            del wait.keys[key]
            if not wait.keys:
                wait.timer.cancel()

    def _stop_waiting(self) -> None:
        for wait in set(self._waits.values()):
            wait.timer.cancel()
        self._waits = {}

    def _on_timeout(self, wait: _Wait) -> None:
        for key in wait.keys:
            self._waits.pop(key, None)
        for key in wait.keys:
            type_url, name = key
            self._tools.trace.emit("xds.resource_timeout", type_url=type_url, name=name)
            entry = self._find_unanswered(key)
            if entry is not None:
                self._owner.on_timeout(self, entry)


class _Wait:
    """Timer of the resources of one request that have not come yet."""

    __slots__ = ("keys", "timer")

    def __init__(self, keys: Iterable[ResourceKey]) -> None:
        self.keys = dict.fromkeys(keys)
        self.timer: Timer


def _warn_once(text: str, logged: set[str]) -> None:
    if text not in logged and len(logged) < _WARNINGS_MAX:
        logged.add(text)
        LOGGER.warning("%s", text)


def describe_silence(silent_s: float) -> str:
    # Differences of times are rounded, hence the millisecond.
    passed = [text for least_s, text in _SILENCES if silent_s > least_s - 0.001]
    return f"has not answered for over {passed[-1]}" if passed else "does not answer"
