"""What does one response change?

Specs: A27, A46 (one bad resource does not spoil the others), A53, A88, xRFC TP3.

Each resource is decoded unless it is known by its bytes, and goes to the entry of its name. What
nobody watches changes nothing, but what is wrong with it is said, too. Of a full-state type, a
resource that was there and is not in the response was deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from proxyless.base import Status, StatusCode, one_line, quote
from proxyless.base.frozen import frozen
from proxyless.xds.client.api import Decoded, ResourceStatus
from proxyless.xds.client.cache import Seen, Sighting
from proxyless.xds.error_texts import name_type, with_node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from proxyless.xds.client.api import DecodeContext, ResourceType
    from proxyless.xds.client.cache import Entry, News
    from proxyless.xds.client.codec import DiscoveryResponse, RawResource, ResourceError

LOGGER: Final = logging.getLogger("proxyless.xds.client")


class Shelf(Protocol):
    """The entries that a response may change."""

    def spell(self, name: str) -> str:
        """The one true spelling of a name; a name that is not valid stays as it is."""
        ...

    def find(self, name: str) -> Entry | None:
        """The entry of a resource that is watched, by the true spelling of its name."""
        ...

    def all(self) -> Iterable[Entry]:
        """Every entry of the response's type, under the server that sent it."""
        ...


@frozen(kw_only=True)
class ErrorRules:
    """What becomes of a resource in use when its server says something is wrong (D26, A88)."""

    nack_drops: bool
    deletion_drops: bool
    server_errors_count: bool
    timeout_s: float
    timeout_code: StatusCode


@dataclass(slots=True)
class Outcome:
    """What a response came to."""

    # In the order of the response.
    news: list[tuple[Entry, News]] = field(default_factory=list)
    # Entries that the server said anything about.
    answered: list[Entry] = field(default_factory=list)
    # Whatever has to be said in a NACK.
    errors: list[str] = field(default_factory=list)
    valid: int = 0

    @property
    def is_used(self) -> bool:
        """Whether the response's version counts as the one in use (A46)."""
        return self.valid > 0 or not self.errors


class Ingestion:
    """One response on its way into the cache."""

    def __init__(
        self,
        resource_type: ResourceType[Any],
        context: DecodeContext,
        rules: ErrorRules,
        *,
        shelf: Shelf,
        seen: Seen,
        node_id: str,
    ) -> None:
        # Fixed at construction.
        self._type = resource_type
        self._context = context
        self._rules = rules
        self._shelf = shelf
        self._seen = seen
        self._node_id = node_id
        self._label = name_type(resource_type.type_url)
        # Grows with the response.
        self._outcome = Outcome()
        self._present: set[str] = set()
        self._is_any_nameless = False

    def run(self, response: DiscoveryResponse, now_s: float) -> Outcome:
        self._seen.start_response()
        for index, raw in enumerate(response.resources):
            if not self._is_unchanged(raw, response.version):
                self._take(index, raw, response.version, now_s)
        self._seen.end_response()
        if self._rules.server_errors_count:
            for error in response.errors:
                self._take_error(error)
        # A resource that could not even be named may be any of those that seem to be missing.
        if self._type.is_full_state and not self._is_any_nameless:
            self._delete_missing()
        return self._outcome

    def _is_unchanged(self, raw: RawResource, version: str) -> bool:
        """Pass over a resource that is in use, byte for byte: in most responses, nearly all are."""
        sighting = self._seen.find(raw.serialized)
        if sighting is None or raw.type_url != self._type.type_url:
            return False
        entry = sighting.entry
        if (
            entry is None
            or entry.status is not ResourceStatus.ACKED
            or entry.serialized != raw.serialized
            or entry.name in self._present
            or raw.name not in ("", entry.name)
        ):
            return False
        self._present.add(entry.name)
        self._outcome.valid += 1
        entry.version = version
        return True

    def _take(self, index: int, raw: RawResource, version: str, now_s: float) -> None:
        if raw.type_url != self._type.type_url:
            self._is_any_nameless = True
            got, wanted = quote(raw.type_url), quote(self._type.type_url)
            self._outcome.errors.append(f"{self._label} #{index}: is {got}, wanted {wanted}")
            return
        sighting = self._seen.find(raw.serialized)
        if sighting is None or not self._is_settled(raw, sighting):
            self._take_new(index, raw, version, now_s)
        elif self._note_present(sighting.name):
            self._seen.remember(raw.serialized, sighting)
            self._apply(sighting, version, now_s)

    def _is_settled(self, raw: RawResource, sighting: Sighting) -> bool:
        """What was refused is refused again, and what nobody watches need not be looked at."""
        if raw.name not in ("", sighting.name):
            return False
        if sighting.entry is not None:
            return bool(sighting.error)
        # Somebody may have begun to watch it.
        return not sighting.name or self._shelf.find(sighting.name) is None

    def _take_new(self, index: int, raw: RawResource, version: str, now_s: float) -> None:
        decoded = self._decode(index, raw)
        name = self._shelf.spell(decoded.name or raw.name)
        if not self._note_present(name):
            return
        entry = self._shelf.find(name) if name else None
        sighting = Sighting(name, decoded.error, entry)
        self._seen.remember(raw.serialized, sighting)
        self._apply(sighting, version, now_s)
        if entry is not None and not decoded.error:
            self._note(entry, entry.on_valid(decoded.resource, raw.serialized, version, now_s))

    def _decode(self, index: int, raw: RawResource) -> Decoded[Any]:
        try:
            decoded = self._type.decode(raw.serialized, self._context)
        except Exception as error:
            LOGGER.exception("%s #%d: decoding raised", self._label, index)
            text = f"{self._label} #{index}: decoding raised {type(error).__name__}: {error}"
            return Decoded(raw.name, error=text)
        if decoded.resource is None and not decoded.error:
            return Decoded(decoded.name, error=f"{self._label} #{index}: cannot be decoded")
        if not decoded.name and not decoded.error and not raw.name:
            return Decoded("", error=f"{self._label} #{index}: has no name")
        return decoded

    def _note_present(self, name: str) -> bool:
        """Whether this is the first of its name in the response; the first one counts."""
        if not name:
            self._is_any_nameless = True
            return True
        if name in self._present:
            text = f"{self._label} {quote(name)}: comes more than once in the response"
            self._outcome.errors.append(text)
            return False
        self._present.add(name)
        return True

    def _apply(self, sighting: Sighting, version: str, now_s: float) -> None:
        """Count it, and if it was refused, say so."""
        if not sighting.error:
            self._outcome.valid += 1
            return
        self._outcome.errors.append(sighting.error)
        if sighting.entry is not None:
            status = self._status(StatusCode.INVALID_ARGUMENT, sighting.error)
            drops = self._rules.nack_drops
            news = sighting.entry.on_invalid(status, version, drops=drops, now_s=now_s)
            self._note(sighting.entry, news)

    def _take_error(self, error: ResourceError) -> None:
        entry = self._shelf.find(self._shelf.spell(error.name))
        if entry is None or entry.name in self._present:
            return
        self._present.add(entry.name)
        said = one_line(error.text) or "nothing more"
        server = quote(self._context.server.uri)
        text = f"{self._label} {quote(entry.name)}: xds server {server} says: {said}"
        status = self._status(StatusCode(error.code), text)
        news = entry.on_server_error(status, drops=self._rules.nack_drops)
        self._log(status, news)
        self._note(entry, news)

    def _delete_missing(self) -> None:
        for entry in self._shelf.all():
            if entry.has_resource and entry.name not in self._present:
                fate = "" if self._rules.deletion_drops else ", kept in use"
                why = f"deleted by xds server {quote(self._context.server.uri)}{fate}"
                text = f"{self._label} {quote(entry.name)}: does not exist ({why})"
                status = self._status(StatusCode.NOT_FOUND, text)
                news = entry.on_deleted(status, drops=self._rules.deletion_drops)
                self._log(status, news)
                self._note(entry, news)

    def _log(self, status: Status, news: News | None) -> None:
        if news is not None:
            LOGGER.warning("%s", status.details)

    def _note(self, entry: Entry, news: News | None) -> None:
        self._present.add(entry.name)
        self._outcome.answered.append(entry)
        if news is not None:
            self._outcome.news.append((entry, news))

    def _status(self, code: StatusCode, text: str) -> Status:
        return Status(code, with_node(one_line(text), self._node_id))
