"""State of the ADS protocol with one server: subscriptions, versions, nonces.

Specs: A27, A30, A46 and the xDS transport protocol (state of the world over one aggregated stream).

A state machine without I/O. A request repeats all names of its type, so changes of subscriptions
are gathered, and taken once per turn of the loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxyless.base import one_line
from proxyless.base.frozen import frozen
from proxyless.xds.client.codec import DiscoveryRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from proxyless.xds.bootstrap import Node

# Characters of a NACK's text, which control planes log.
NACK_TEXT_MAX: Final = 16_384


@frozen
class Change:
    """A request, and the names that are in it for the first time on this stream."""

    request: DiscoveryRequest
    added: Sequence[str]


class AdsState:
    """Subscriptions at one server, and the state of its current stream."""

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
        """Type URL and name of each subscribed resource."""
        return [(type_url, name) for type_url in self._names for name in self._names[type_url]]

    # The stream

    def open_stream(self) -> None:
        self._is_open = True
        self._is_node_sent = False
        self._nonces = {}
        self._errors = {}
        self._changed = dict.fromkeys(self._names)
        self._added = {type_url: list(names) for type_url, names in self._names.items()}

    def close_stream(self) -> None:
        """End the stream; changes are kept for the next one."""
        self._is_open = False

    def take_changes(self) -> list[Change]:
        """Requests with all changes; none without a stream."""
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
        """Whether this type was requested on this stream."""
        return type_url in self._nonces

    def answer(
        self, type_url: str, *, version: str, nonce: str, error: str = "", is_used: bool = True
    ) -> DiscoveryRequest:
        """ACK or NACK a response. `is_used`: a resource in it is used, so its version counts."""
        self._nonces[type_url] = nonce
        if is_used:
            self._versions[type_url] = version
        return self._request(type_url, error)

    def set_version(self, type_url: str, version: str) -> None:
        """Accept a version without an answer: its stream has ended."""
        self._versions[type_url] = version

    def answer_later(
        self, type_url: str, *, version: str, nonce: str, error: str = "", is_used: bool = True
    ) -> None:
        """Like `answer`, with the next changes. Replaces an answer that was not taken."""
        self._nonces[type_url] = nonce
        if is_used:
            self._versions[type_url] = version
        self._errors[type_url] = error
        self._changed[type_url] = None

    def _request(self, type_url: str, error: str = "") -> DiscoveryRequest:
        # "only on the first request of each stream" (A27-05)
        node, self._is_node_sent = None if self._is_node_sent else self._node, True
        return DiscoveryRequest(
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
