"""State of the ADS protocol with one server: subscriptions, versions, nonces.

Specs: A27, A30, A46 and the xDS transport protocol (state of the world over one aggregated stream).

A state machine without I/O. A request repeats all names of its type, so changes of subscriptions
are gathered, and taken once per turn of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from proxyless.base import one_line
from proxyless.base.frozen import frozen
from proxyless.xds.client import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from proxyless.xds.bootstrap import Node

# Characters of a NACK's text, which control planes log.
NACK_TEXT_MAX: Final = 16_384

NO_MEMBER_VERSIONS: Final[Mapping[str, Mapping[str, str]]] = {}


@frozen
class Change:
    """A request, and the names that are in it for the first time on this stream."""

    request: codec.AnyRequest
    added: Sequence[str]


class Answer(Protocol):
    """Result of a response that an ACK, or with an error a NACK, reports to the server."""

    @property
    def type_url(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def nonce(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def is_used(self) -> bool:
        """Whether a resource of the response is used, so its version counts."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Incremental: versions of the used resources, by name; empty for one that is removed."""


class AdsVariant(Protocol):
    """Variant of the ADS protocol, with the subscriptions at one server and its stream."""

    path: ClassVar[str]
    # Whether the first requests of a stream have the versions of resources in use.
    sends_versions_in_use: ClassVar[bool]

    def encode(self, request: Any) -> bytes: ...  # noqa: ANN401 - a request of this variant
    def decode(self, serialized: bytes) -> codec.DiscoveryResponse | None: ...
    def decode_in_steps(
        self, serialized: bytes
    ) -> Generator[int, None, codec.DiscoveryResponse | None]: ...

    def subscribe(self, type_url: str, name: str) -> None: ...
    def unsubscribe(self, type_url: str, name: str) -> None: ...
    @property
    def subscriptions(self) -> Iterable[tuple[str, str]]:
        """Type URL and name of each subscribed resource."""

    def open_stream(
        self,
        find_held: Callable[[str, str], bool | None],
        members: Mapping[str, Mapping[str, str]] = NO_MEMBER_VERSIONS,
    ) -> None:
        """Start a stream.

        `find_held`: whether the resource in use is the one that this server sent last; None if no
        resource is in use.

        `members`: versions of the members of collections in use, by type URL and name.
        """

    def close_stream(self) -> None:
        """End the stream; changes are kept for the next one."""

    def take_changes(self) -> list[Change]:
        """Requests with all changes; none without a stream."""

    def is_expected(self, type_url: str) -> bool:
        """Whether this type was requested on this stream."""

    def answer(self, answer: Answer) -> codec.AnyRequest:
        """ACK or NACK a response."""

    def answer_later(self, answer: Answer) -> None:
        """Like `answer`, with the next changes. Replaces an answer that was not taken."""

    def accept(self, answer: Answer) -> None:
        """Accept versions without an answer: the stream of the response has ended."""


class AdsState:
    """State-of-the-world variant (`AdsVariant`)."""

    path: ClassVar[str] = codec.ADS_PATH
    sends_versions_in_use: ClassVar[bool] = False
    encode = staticmethod(codec.encode_request)
    decode = staticmethod(codec.decode_response)
    decode_in_steps = staticmethod(codec.decode_response_in_steps)

    def __init__(self, node: Node) -> None:
        self._node = node
        # Kept when a stream ends: names and accepted versions, by type URL.
        self._names: dict[str, dict[str, None]] = {}
        self._versions: dict[str, str] = {}
        # Changes that were not taken yet.
        self._added: dict[str, list[str]] = {}
        self._changed: dict[str, None] = {}
        # State of the current stream.
        self._is_open = False
        self._is_node_sent = False
        self._nonces: dict[str, str] = {}
        # Errors of NACKs that are not sent yet, by type URL.
        self._errors: dict[str, str] = {}
        # Names in order, by type URL; computed when needed, removed when they change.
        self._tuples: dict[str, tuple[str, ...]] = {}

    # Subscriptions

    def subscribe(self, type_url: str, name: str) -> None:
        names = self._names.setdefault(type_url, {})
        if name not in names:
            names[name] = None
            self._added.setdefault(type_url, []).append(name)
            self._note_change(type_url)

    def unsubscribe(self, type_url: str, name: str) -> None:
        names = self._names.get(type_url, {})
        if name in names:
            del names[name]
            self._note_change(type_url)

    def _note_change(self, type_url: str) -> None:
        self._changed[type_url] = None
        self._tuples.pop(type_url, None)

    def names(self, type_url: str) -> tuple[str, ...]:
        names = self._tuples.get(type_url)
        if names is None:
            names = self._tuples[type_url] = tuple(self._names.get(type_url, ()))
        return names

    @property
    def subscriptions(self) -> Iterable[tuple[str, str]]:
        return [(type_url, name) for type_url in self._names for name in self._names[type_url]]

    # The stream

    def open_stream(
        self,
        find_held: Callable[[str, str], bool | None] | None = None,
        members: Mapping[str, Mapping[str, str]] = NO_MEMBER_VERSIONS,
    ) -> None:
        self._is_open = True
        self._is_node_sent = False
        self._nonces = {}
        self._errors = {}
        self._changed = dict.fromkeys(self._names)
        self._added = {type_url: list(names) for type_url, names in self._names.items()}

    def close_stream(self) -> None:
        self._is_open = False

    def take_changes(self) -> list[Change]:
        if not self._is_open or not self._changed:
            return []
        changed, self._changed = self._changed, {}
        added, self._added = self._added, {}
        changes = []
        for type_url in changed:
            names = self._names.get(type_url, {})
            # The type was never requested on this stream, and its names were all removed again.
            if not names and type_url not in self._nonces:
                continue
            new = [name for name in added.get(type_url, ()) if name in names]
            changes.append(Change(self._request(type_url, self._errors.pop(type_url, "")), new))
        return changes

    def is_expected(self, type_url: str) -> bool:
        return type_url in self._nonces

    def answer(self, answer: Answer) -> codec.DiscoveryRequest:
        self._nonces[answer.type_url] = answer.nonce
        if answer.is_used:
            self._versions[answer.type_url] = answer.version
        return self._request(answer.type_url, answer.error)

    def accept(self, answer: Answer) -> None:
        if answer.is_used:
            self._versions[answer.type_url] = answer.version

    def answer_later(self, answer: Answer) -> None:
        self._nonces[answer.type_url] = answer.nonce
        self.accept(answer)
        self._errors[answer.type_url] = answer.error
        self._changed[answer.type_url] = None

    def _request(self, type_url: str, error: str = "") -> codec.DiscoveryRequest:
        # "only on the first request of each stream" (A27-05)
        node, self._is_node_sent = None if self._is_node_sent else self._node, True
        return codec.DiscoveryRequest(
            type_url,
            self.names(type_url),
            version=self._versions.get(type_url, ""),
            nonce=self._nonces.setdefault(type_url, ""),
            error=error,
            node=node,
        )


def join_errors(errors: Sequence[str], count: int = 0) -> str:
    """Join errors of a response to one text of bounded length. `count`: all, if these are some."""
    texts: list[str] = []
    size = 0
    for error in errors:
        text = one_line(error)
        size += len(text) + 2
        if size > NACK_TEXT_MAX:
            break
        texts.append(text)
    left = max(count, len(errors)) - len(texts)
    if left:
        texts.append(f"and {left} more errors")
    return "; ".join(texts)
