"""What is said to one server, and what is waited for?

Specs: A27 (ADS), A57 (failure modes).

The shell around `AdsState`: it sends what that says over a retried stream, hands responses to the
client, and counts the time in which a resource has to come. That time runs only while the request
is really on its way to the server.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from proxyless.base import OK, Status, StatusCode, one_line, quote
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.xds.client.ads import AdsState, join_errors
from proxyless.xds.client.api import ServerView
from proxyless.xds.client.cache import Seen
from proxyless.xds.client.codec import ADS_PATH, decode_response, encode_request
from proxyless.xds.client.stream import RetriedStream
from proxyless.xds.error_texts import name_server, with_node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.xds.bootstrap import Node, ServerConfig
    from proxyless.xds.client.codec import DiscoveryRequest, DiscoveryResponse
    from proxyless.xds.client.response import ErrorRules, Outcome
    from proxyless.xds.client.stream import Tools
    from proxyless.xds.client.transport import Transport

LOGGER: Final = logging.getLogger("proxyless.xds.client")

# After which times a server's silence is said to be longer. Few, because each makes another text,
# of which every watcher is told.
_SILENCES: Final = ((60.0, "1 min"), (600.0, "10 min"), (3_600.0, "1 h"), (86_400.0, "1 day"))
# Different warnings about one server, or one outage of it, that are logged.
_WARNINGS_MAX: Final = 16

# Type URL and name.
ResourceKey = tuple[str, str]


class ConnectionOwner(Protocol):
    """The client, as far as a connection needs it."""

    def request_flush(self, connection: Connection) -> None:
        """Call the connection's `flush` at the end of this turn."""

    def is_awaited(self, key: ResourceKey) -> bool:
        """Whether nothing is known about a resource yet."""
        ...

    def on_response(self, connection: Connection, response: DiscoveryResponse) -> Outcome:
        """Take a response of a type that was asked for."""
        ...

    def on_contact(self, connection: Connection) -> None:
        """The server answers."""

    def on_failure(self, connection: Connection) -> None:
        """The server does not answer any more; `on_unreachable` follows."""

    def on_unreachable(self, connection: Connection) -> None:
        """The server cannot be reached: `status` says why."""

    def on_timeout(self, connection: Connection, key: ResourceKey) -> None:
        """A resource did not come in time."""

    def read_when_told(self, connection: Connection) -> None:
        """Read the next message when the watchers have heard of this one."""


class Connection:
    """One server. Driven by the client, its stream, its transport and the clock."""

    def __init__(
        self,
        server: ServerConfig,
        transport: Transport,
        *,
        node: Node,
        rules: ErrorRules,
        tools: Tools,
        owner: ConnectionOwner,
    ) -> None:
        # Fixed at construction.
        self.server = server
        self.rules = rules
        self._node = node
        self._tools = tools
        self._owner = owner
        self.stream = RetriedStream(ADS_PATH, transport, tools, self)
        # What is said, and what came, by type.
        self._ads = AdsState(node)
        self._seen: dict[str, Seen] = {}
        # OK unless the server cannot be reached; since when it cannot, and why at last.
        self.status = OK
        self._silent_since_s = 0.0
        self._reason = ""
        # Pending while the silence gets longer, unless it is as long as we have words for.
        self._silence_timer: Timer = IDLE_TIMER
        # What was logged: of this outage, at all, and what was refused last of each type.
        self._reasons: set[str] = set()
        self._oddities: set[str] = set()
        self._refused: dict[str, str] = {}
        # What was asked for and is not here yet, on this stream.
        self._waits: dict[ResourceKey, _Wait] = {}
        self._is_closed = False
        transport.watch_connectivity(self._on_connectivity)

    def start(self) -> None:
        self.stream.start()

    def close(self) -> None:
        """Say no more. Idempotent; the transport is its owner's to close."""
        self._is_closed = True
        self._stop_waiting()
        self._silence_timer.cancel()
        self.stream.close()

    def view(self) -> ServerView:
        """How things stand with the server now."""
        now_s = self._tools.clock.now_s()
        waits = {key: max(wait.timer.due_s - now_s, 0.0) for key, wait in self._waits.items()}
        is_asked, retry_in_s = self.stream.is_ready, self.stream.retry_in_s(now_s)
        return ServerView(self.server.uri, self.status, is_asked, retry_in_s, waits)

    # What the client wants

    def subscribe(self, key: ResourceKey) -> None:
        self._ads.subscribe(*key)
        self._owner.request_flush(self)

    def unsubscribe(self, key: ResourceKey) -> None:
        type_url, name = key
        self._ads.unsubscribe(type_url, name)
        self.stop_waiting_for(key)
        if type_url in self._seen:
            self._seen[type_url].forget(name)
        self._owner.request_flush(self)

    def seen(self, type_url: str) -> Seen:
        """What came of this type, by its bytes."""
        return self._seen.setdefault(type_url, Seen())

    def flush(self) -> None:
        """Tell the server of all changes since the last time."""
        for change in self._ads.take_changes():
            self._send(change.request)
            if self.stream.is_ready:
                type_url = change.request.type_url
                self._wait_for((type_url, name) for name in change.added)

    def _send(self, request: DiscoveryRequest) -> None:
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
        self.stream.send(encode_request(request))

    # What the stream says

    def on_stream_opened(self) -> None:
        self._ads.open_stream()
        self._owner.request_flush(self)
        self.stream.reader()()

    def on_stream_ready(self) -> None:
        self.flush()
        # "A connection has been established …, and the stream has been dispatched" - A57
        self._wait_for(self._ads.subscriptions)

    def on_stream_message(self, message: bytes) -> None:
        response = decode_response(message)
        try:
            if response is None:
                self._warn("response cannot be decoded")
            else:
                self._note_answer()
                self.stream.note_answer()
                self._owner.on_contact(self)
                self._on_response(response)
        finally:
            # An error of ours in one response must not be the end of all that follow.
            self._owner.read_when_told(self)

    def _on_response(self, response: DiscoveryResponse) -> None:
        type_url = response.type_url
        if not self._ads.is_expected(type_url):
            self._warn(f"response of type {quote(type_url)} is ignored, nobody asked for it")
            return
        outcome = self._owner.on_response(self, response)
        error = ""
        if outcome.errors:
            error = with_node(join_errors(outcome.errors), self._node.id)
        self._trace_response(response, error)
        self._log_refusal(type_url, error)
        answer = self._ads.answer(
            type_url,
            version=response.version,
            nonce=response.nonce,
            error=error,
            is_used=outcome.is_used,
        )
        self._send(answer)

    def on_stream_ended(self, status: Status, *, has_answered: bool) -> None:
        self._stop_waiting()
        self._ads.close_stream()
        if self._tools.trace.active:
            self._tools.trace.emit("xds.stream_ended", server=self.server.uri, status=status)
        # "we do not consider it an error if the ADS stream was closed after having received a
        # response" - A57
        if not has_answered:
            self._fail(f"stream ended before any response: {status}")

    def _on_connectivity(self, status: Status) -> None:
        # Load reports may need the transport for longer, and then nobody counts the silence.
        if not self._is_closed:
            self._fail(status.details or status.code.name)

    def _fail(self, reason: str) -> None:
        self._reason = one_line(reason)
        if self.status.is_ok:
            self._silent_since_s = self._tools.clock.now_s()
            self._await_longer_silence(0.0)
            self._owner.on_failure(self)
        self._say_unreachable()

    def _say_unreachable(self) -> None:
        silence = describe_silence(self._tools.clock.now_s() - self._silent_since_s)
        text = f"{name_server(self.server.uri)}: {silence}: {self._reason}"
        self.status = Status(StatusCode.UNAVAILABLE, with_node(text, self._node.id))
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
        self._say_unreachable()

    def _note_answer(self) -> None:
        if not self.status.is_ok:
            silent_s = self._tools.clock.now_s() - self._silent_since_s
            server = name_server(self.server.uri)
            LOGGER.info("%s: answers again after %.1f s", server, silent_s)
        self._silence_timer.cancel()
        self.status = OK
        self._reasons.clear()

    # Logs: each thing once, however often it comes back

    def _warn(self, what: str) -> None:
        text = f"{name_server(self.server.uri)}: {what}"
        _warn_once(with_node(text, self._node.id), self._oddities)

    def _trace_response(self, response: DiscoveryResponse, error: str) -> None:
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

    def _log_refusal(self, type_url: str, error: str) -> None:
        """What is refused again with the next response is not logged again."""
        if error and error != self._refused.get(type_url):
            LOGGER.warning("%s", error)
        self._refused[type_url] = error

    # Waiting for resources

    def _wait_for(self, keys: Iterable[ResourceKey]) -> None:
        """Give the server time for those of which nothing is known, all on one timer."""
        awaited = [key for key in keys if key not in self._waits and self._owner.is_awaited(key)]
        if awaited:
            wait = _Wait(awaited)
            wait.timer = self._tools.clock.call_later(
                self.rules.timeout_s, partial(self._on_timeout, wait)
            )
            self._waits.update(dict.fromkeys(awaited, wait))

    def stop_waiting_for(self, key: ResourceKey) -> None:
        """The server said something about it, or nobody wants it any more."""
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
            self._owner.on_timeout(self, key)


class _Wait:
    """The resources of one request that have not come yet."""

    __slots__ = ("keys", "timer")

    def __init__(self, keys: Iterable[ResourceKey]) -> None:
        self.keys = dict.fromkeys(keys)
        self.timer: Timer


def _warn_once(text: str, said: set[str]) -> None:
    if text not in said and len(said) < _WARNINGS_MAX:
        said.add(text)
        LOGGER.warning("%s", text)


def describe_silence(silent_s: float) -> str:
    """How long a server does not answer, in few steps."""
    # A little less, because times are rounded.
    passed = [words for least_s, words in _SILENCES if silent_s > least_s - 0.001]
    return f"has not answered for over {passed[-1]}" if passed else "does not answer"
