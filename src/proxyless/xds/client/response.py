"""Decision about one ADS response: updates of watched resources, and ACK or NACK.

Specs: A27, A46 (resources are accepted one by one), A53, A88, xRFC TP3.

`Decision` changes no entry and calls no watcher: it returns an `Outcome`, which the client applies.
A resource that is not watched updates nothing, but its error is part of the NACK.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from proxyless.base import Status, StatusCode, one_line, quote
from proxyless.base.frozen import frozen
from proxyless.xds.bootstrap import (
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    RESOURCE_TIMER_IS_TRANSIENT_ERROR,
    ServerConfig,
)
from proxyless.xds.client.ads import join_errors
from proxyless.xds.client.api import (
    DecodeContext,
    Decoded,
    ResourceStatus,
    ResourceType,
    XdsClientOptions,
)
from proxyless.xds.client.authorities import AuthorityServers, find_entry
from proxyless.xds.client.cache import CachedResource, DecodedResourceCache, Entry
from proxyless.xds.client.notifications import LOGGER, Notification
from proxyless.xds.error_texts import name_type, with_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from proxyless.xds.client.codec import DiscoveryResponse, RawResource, ResourceError


# "15-second timeout" - A57; "30 seconds instead of 15" - A88
DOES_NOT_EXIST_TIMEOUT_S: Final = 15.0
TRANSIENT_TIMEOUT_S: Final = 30.0


@frozen(kw_only=True)
class ErrorRules:
    """Effect of an error from one server on a resource in use (D26, A88)."""

    nack_drops: bool
    deletion_drops: bool
    server_errors_count: bool
    timeout_s: float
    timeout_code: StatusCode


def make_rules(server: ServerConfig, options: XdsClientOptions) -> ErrorRules:
    """Error rules for the data of this server (D26)."""
    if not options.has_data_error_handling:
        return ErrorRules(
            nack_drops=False,
            deletion_drops=IGNORE_RESOURCE_DELETION not in server.features,
            server_errors_count=False,
            timeout_s=DOES_NOT_EXIST_TIMEOUT_S,
            timeout_code=StatusCode.NOT_FOUND,
        )
    drops = FAIL_ON_DATA_ERRORS in server.features
    is_transient = RESOURCE_TIMER_IS_TRANSIENT_ERROR in server.features
    return ErrorRules(
        nack_drops=drops,
        deletion_drops=drops,
        server_errors_count=True,
        timeout_s=TRANSIENT_TIMEOUT_S if is_transient else DOES_NOT_EXIST_TIMEOUT_S,
        timeout_code=StatusCode.UNAVAILABLE if is_transient else StatusCode.NOT_FOUND,
    )


class ResourceUpdate(NamedTuple):
    """Change of one watched resource; at most one per resource and response."""

    entry: Entry
    # ACKED, NACKED, RECEIVED_ERROR or DOES_NOT_EXIST.
    status: ResourceStatus
    # The resource if it is ACKED, otherwise the error.
    value: Any
    serialized: bytes = b""
    # Whether the resource in use is dropped because of the error.
    drops: bool = False

    def apply(self, version: str, now_s: float) -> Notification | None:
        """Update the entry and return the notification for its watchers."""
        entry, status, error, drops = self.entry, self.status, self.value, self.drops
        if status is ResourceStatus.ACKED:
            return entry.on_valid(self.value, self.serialized, version, now_s)
        if status is ResourceStatus.NACKED:
            return entry.on_invalid(error, version, drops=drops, now_s=now_s)
        if status is ResourceStatus.DOES_NOT_EXIST:
            return entry.on_deleted(error, drops=drops)
        return entry.on_server_error(error, drops=drops)


@frozen
class Outcome:
    """Everything that follows from one response."""

    type_url: str
    version: str
    nonce: str
    # In the order of the response.
    updates: Sequence[ResourceUpdate]
    # Entries whose bytes are the same as before: only their version changes.
    unchanged: Sequence[Entry]
    # Numbers of resources, for metrics.
    valid: int
    invalid: int
    # Text of the NACK; empty for an ACK.
    error: str

    @property
    def is_used(self) -> bool:
        """Whether the response's version counts as the one in use (A46)."""
        return self.valid > 0 or not self.invalid


class Decision:
    """Decision about one response, while its resources are read."""

    def __init__(
        self,
        resource_type: ResourceType[Any],
        context: DecodeContext,
        rules: ErrorRules,
        *,
        authorities: Mapping[str | None, AuthorityServers[Any]],
        cache: DecodedResourceCache,
    ) -> None:
        # Fixed at construction. `authorities` are those for which the server is in use.
        self._type = resource_type
        self._context = context
        self._rules = rules
        self._authorities = authorities
        self._cache = cache
        self._label = name_type(resource_type.type_url)
        # Parts of the outcome.
        self._updates: list[ResourceUpdate] = []
        self._unchanged: list[Entry] = []
        self._errors: list[str] = []
        self._valid = 0
        # Names in the response, and whether the name of any resource is unknown.
        self._present: set[str] = set()
        self._is_any_nameless = False

    def run(self, response: DiscoveryResponse) -> Outcome:
        """Decide about the whole response. Called once."""
        self._cache.start_response()
        for index, raw in enumerate(response.resources):
            self._take(index, raw)
        self._cache.end_response()
        if self._rules.server_errors_count:
            for error in response.errors:
                self._take_error(error)
        # A resource of unknown name may be any of those that seem to be missing.
        if self._type.is_full_state and not self._is_any_nameless:
            self._delete_missing()
        return Outcome(
            response.type_url,
            response.version,
            response.nonce,
            self._updates,
            self._unchanged,
            self._valid,
            len(self._errors),
            self._with_node(join_errors(self._errors)) if self._errors else "",
        )

    def _take(self, index: int, raw: RawResource) -> None:
        if raw.type_url != self._type.type_url:
            self._is_any_nameless = True
            got, expected = quote(raw.type_url), quote(self._type.type_url)
            self._errors.append(f"{self._label} #{index}: is {got}, wanted {expected}")
            return
        cached = self._cache.find(raw.serialized)
        if cached is None or raw.name not in ("", cached.name):
            self._take_new(index, raw)
        elif cached.entry is not None and self._is_in_use(cached.entry, raw.serialized):
            # The case of nearly all resources of most responses.
            self._present.add(cached.name)
            self._unchanged.append(cached.entry)
            self._valid += 1
        elif not self._is_decided(cached):
            self._take_new(index, raw)
        elif self._note_present(cached.name):
            self._cache.put(raw.serialized, cached)
            self._take_decoded(cached)

    def _is_in_use(self, entry: Entry, serialized: bytes) -> bool:
        return (
            entry.status is ResourceStatus.ACKED
            and entry.serialized == serialized
            and entry.name not in self._present
        )

    def _is_decided(self, cached: CachedResource) -> bool:
        """Whether decoding again is needless: the resource is invalid, or still not watched."""
        if cached.entry is not None:
            return bool(cached.error)
        # A watch may have started since the resource was decoded.
        return not cached.name or self._find(cached.name)[1] is None

    def _take_new(self, index: int, raw: RawResource) -> None:
        decoded = self._decode(index, raw)
        name, entry = self._find(decoded.name or raw.name)
        if not self._note_present(name):
            return
        cached = CachedResource(name, decoded.error, entry if name else None)
        self._cache.put(raw.serialized, cached)
        self._take_decoded(cached)
        if cached.entry is not None and not decoded.error:
            update = (cached.entry, ResourceStatus.ACKED, decoded.resource, raw.serialized)
            self._updates.append(ResourceUpdate(*update))

    def _find(self, name: str) -> tuple[str, Entry | None]:
        return find_entry(self._authorities, self._type.type_url, name)

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
        """Whether this is the first resource of its name; any further one is an error."""
        if not name:
            self._is_any_nameless = True
            return True
        if name in self._present:
            text = f"{self._label} {quote(name)}: comes more than once in the response"
            self._errors.append(text)
            return False
        self._present.add(name)
        return True

    def _take_decoded(self, cached: CachedResource) -> None:
        """Count the resource, and reject it if it is invalid."""
        if not cached.error:
            self._valid += 1
            return
        self._errors.append(cached.error)
        if cached.entry is not None:
            drops, code = self._rules.nack_drops, StatusCode.INVALID_ARGUMENT
            self._fail(cached.entry, ResourceStatus.NACKED, code, cached.error, drops=drops)

    def _take_error(self, error: ResourceError) -> None:
        _, entry = self._find(error.name)
        if entry is None or entry.name in self._present:
            return
        self._present.add(entry.name)
        reason = one_line(error.text) or "no text"
        server = quote(self._context.server.uri)
        text = f"{self._label} {quote(entry.name)}: xds server {server} sent an error: {reason}"
        drops, code = self._rules.nack_drops, StatusCode(error.code)
        self._fail(entry, ResourceStatus.RECEIVED_ERROR, code, text, drops=drops)

    def _delete_missing(self) -> None:
        for authority in self._authorities.values():
            for entry in authority.entries_of(self._type.type_url):
                if entry.has_resource and entry.name not in self._present:
                    self._delete(entry)

    def _delete(self, entry: Entry) -> None:
        drops = self._rules.deletion_drops
        effect = "" if drops else ", kept in use"
        why = f"deleted by xds server {quote(self._context.server.uri)}{effect}"
        text = f"{self._label} {quote(entry.name)}: does not exist ({why})"
        self._fail(entry, ResourceStatus.DOES_NOT_EXIST, StatusCode.NOT_FOUND, text, drops=drops)

    def _fail(
        self, entry: Entry, status: ResourceStatus, code: StatusCode, text: str, *, drops: bool
    ) -> None:
        error = Status(code, self._with_node(one_line(text)))
        self._updates.append(ResourceUpdate(entry, status, error, drops=drops))

    def _with_node(self, text: str) -> str:
        return with_node(text, self._context.bootstrap.node.id)
