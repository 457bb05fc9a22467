"""State of the incremental ADS protocol with one server: subscriptions, versions, nonces.

Specs: the xDS transport protocol, incremental variant ("delta"), over one aggregated stream.

A request has only the changes of a subscription, and a response only the changed resources. A new
stream starts with the versions that the client has, so that the server sends what has changed
since. The client never subscribes to the wildcard: the first request of a type always has names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from proxyless.xds.client import codec
from proxyless.xds.client.ads import NO_MEMBER_VERSIONS, Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from proxyless.xds.bootstrap import Node
    from proxyless.xds.client.ads import Answer

_NO_VERSIONS: Mapping[str, str] = {}


class DeltaState:
    """Incremental variant (`ads.AdsVariant`)."""

    path: ClassVar[str] = codec.DELTA_PATH
    sends_versions_in_use: ClassVar[bool] = True
    encode = staticmethod(codec.encode_delta_request)
    decode = staticmethod(codec.decode_delta_response)
    decode_in_steps = staticmethod(codec.decode_delta_response_in_steps)

    def __init__(self, node: Node) -> None:
        self._node = node
        # Kept when a stream ends: names and accepted versions, by type URL.
        self._names: dict[str, dict[str, None]] = {}
        self._versions: dict[str, dict[str, str]] = {}
        # Changes that were not taken yet. `_removed` has only names that the server has.
        self._added: dict[str, dict[str, None]] = {}
        self._removed: dict[str, dict[str, None]] = {}
        self._changed: dict[str, None] = {}
        # State of the current stream: names that were sent, by type URL.
        self._is_open = False
        self._is_node_sent = False
        self._sent: dict[str, dict[str, None]] = {}
        # Versions for the first request of each type.
        self._initial: dict[str, dict[str, str]] = {}
        # Nonces and errors of answers that are not sent yet, by type URL.
        self._answers: dict[str, tuple[str, str]] = {}

    # Subscriptions

    def subscribe(self, type_url: str, name: str) -> None:
        names = self._names.setdefault(type_url, {})
        if name not in names:
            names[name] = None
            self._added.setdefault(type_url, {})[name] = None
            self._changed[type_url] = None

    def unsubscribe(self, type_url: str, name: str) -> None:
        names = self._names.get(type_url, {})
        if name not in names:
            return
        del names[name]
        self._added.get(type_url, {}).pop(name, None)
        self._versions.get(type_url, {}).pop(name, None)
        self._initial.get(type_url, {}).pop(name, None)
        if name in self._sent.get(type_url, ()):
            self._removed.setdefault(type_url, {})[name] = None
            self._changed[type_url] = None

    @property
    def subscriptions(self) -> Iterable[tuple[str, str]]:
        return [(type_url, name) for type_url in self._names for name in self._names[type_url]]

    # The stream

    def open_stream(
        self,
        find_held: Callable[[str, str], bool | None],
        members: Mapping[str, Mapping[str, str]] = NO_MEMBER_VERSIONS,
    ) -> None:
        self._is_open = True
        self._is_node_sent = False
        self._sent, self._removed, self._answers = {}, {}, {}
        self._initial = {
            type_url: {**self._find_initial(type_url, find_held), **members.get(type_url, {})}
            for type_url in self._names
        }
        # One resource is named without its version, so that the server sends it: a server that
        # sends nothing on a stream counts as unreachable.
        if initial := next(filter(None, self._initial.values()), None):
            initial[next(iter(initial))] = ""
        self._changed = dict.fromkeys(self._names)
        self._added = {type_url: dict(names) for type_url, names in self._names.items()}

    def _find_initial(
        self, type_url: str, find_held: Callable[[str, str], bool | None]
    ) -> dict[str, str]:
        """Versions of the resources in use; empty for one that this server did not send last.

        Servers remove only resources that are named here, so one without a version is named too.
        """
        versions, initial = self._versions.get(type_url, _NO_VERSIONS), {}
        for name in self._names[type_url]:
            if (is_held := find_held(type_url, name)) is not None:
                initial[name] = versions.get(name, "") if is_held else ""
        return initial

    def close_stream(self) -> None:
        self._is_open = False

    def take_changes(self) -> list[Change]:
        if not self._is_open or not self._changed:
            return []
        changed, self._changed = self._changed, {}
        return [change for type_url in changed for change in self._take_changes_of(type_url)]

    def _take_changes_of(self, type_url: str) -> Iterator[Change]:
        added, removed = self._added.pop(type_url, {}), self._removed.pop(type_url, {})
        nonce, error = self._answers.pop(type_url, ("", ""))
        for name in removed:
            self._sent[type_url].pop(name, None)
        if not added.keys().isdisjoint(removed):
            # The client has dropped a resource that it subscribes to again. Not all servers send
            # it again unless they have processed the removal, and one request cannot have both.
            yield Change(self._request(type_url, nonce, error, (), tuple(removed)), ())
            removed, nonce, error = {}, "", ""
        if added or removed or nonce:
            self._sent.setdefault(type_url, {}).update(added)
            initial = self._initial.pop(type_url, _NO_VERSIONS)
            request = self._request(type_url, nonce, error, tuple(added), tuple(removed), initial)
            yield Change(request, tuple(added))

    def is_expected(self, type_url: str) -> bool:
        return type_url in self._sent

    def answer(self, answer: Answer) -> codec.DeltaRequest:
        self.accept(answer)
        return self._request(answer.type_url, answer.nonce, answer.error)

    def answer_later(self, answer: Answer) -> None:
        self.accept(answer)
        self._answers[answer.type_url] = (answer.nonce, answer.error)
        self._changed[answer.type_url] = None

    def accept(self, answer: Answer) -> None:
        names = self._names.get(answer.type_url, ())
        held = self._versions.setdefault(answer.type_url, {})
        for name, version in answer.versions.items():
            if version and name in names:
                held[name] = version
            else:
                held.pop(name, None)

    def _request(
        self,
        type_url: str,
        nonce: str,
        error: str,
        subscribe: tuple[str, ...] = (),
        unsubscribe: tuple[str, ...] = (),
        initial_versions: Mapping[str, str] = _NO_VERSIONS,
    ) -> codec.DeltaRequest:
        node, self._is_node_sent = None if self._is_node_sent else self._node, True
        return codec.DeltaRequest(
            type_url, subscribe, unsubscribe, initial_versions, nonce=nonce, error=error, node=node
        )
