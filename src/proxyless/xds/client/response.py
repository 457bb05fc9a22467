"""Decision about one ADS response: updates of watched resources, and ACK or NACK.

Specs: A27, A46 (resources are accepted one by one), A53, A88, xRFC TP3.

`Decision` changes no entry and calls no watcher: it returns an `Outcome`, which the client applies.
A resource that is not watched updates nothing, but its error is part of the NACK. A large response
is decided in steps, between which watches may start and end.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from proxyless.base import Status, StatusCode, one_line, quote
from proxyless.base.frozen import frozen
from proxyless.runtime.work_queue import STEP_UNITS, finish
from proxyless.xds.bootstrap import (
    FAIL_ON_DATA_ERRORS,
    IGNORE_RESOURCE_DELETION,
    RESOURCE_TIMER_IS_TRANSIENT_ERROR,
    ServerConfig,
)
from proxyless.xds.client.ads import NACK_TEXT_MAX, join_errors
from proxyless.xds.client.api import (
    DecodeContext,
    Decoded,
    ResourceStatus,
    ResourceType,
    SteppedResourceType,
    XdsClientOptions,
)
from proxyless.xds.client.authorities import AuthorityServers, find_entry
from proxyless.xds.client.cache import CachedResource, DecodedResourceCache, Entry
from proxyless.xds.client.notifications import LOGGER, Notification
from proxyless.xds.error_texts import name_type, with_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from proxyless.runtime.work_queue import Steps
    from proxyless.xds.client.codec import DiscoveryResponse, RawResource, ResourceError


T = TypeVar("T")

# "15-second timeout" - A57; "30 seconds instead of 15" - A88
DOES_NOT_EXIST_TIMEOUT_S: Final = 15.0
TRANSIENT_TIMEOUT_S: Final = 30.0

# Work units (`runtime.work_queue`) for a resource in the cache, and for one decoded in one step.
_CACHED_WORK: Final = 2
DECODE_WORK: Final = 40
_BYTES_PER_WORK: Final = 32
_ERRORS_PER_STEP: Final = 50
# Limit of the work for the invalid resources of one response: about a second.
INVALID_WORK_MAX: Final = 1_000_000


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
    # Incremental: versions of the used resources, by name; empty for one that is removed.
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_used(self) -> bool:
        """Whether the response's version counts as the one in use (A46)."""
        return self.valid > 0 or not self.invalid

    def split(self, count: int) -> Iterator[Outcome]:
        """Parts with at most this many entries each. Only the first has the other fields."""
        updates, unchanged = self.updates, self.unchanged
        yield replace(self, updates=updates[:count], unchanged=())
        for at in range(count, len(updates), count):
            yield replace(self, updates=updates[at : at + count], unchanged=(), valid=0, invalid=0)
        for at in range(0, len(unchanged), count):
            part = unchanged[at : at + count]
            yield replace(self, updates=(), unchanged=part, valid=0, invalid=0)


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
        self._is_stepped = hasattr(resource_type, "decode_in_steps")
        # From the response.
        self._is_delta = False
        # Parts of the outcome.
        self._updates: list[ResourceUpdate] = []
        self._unchanged: list[Entry] = []
        # Errors up to the length of a NACK's text; their number, and their length.
        self._errors: list[str] = []
        self._invalid = 0
        self._error_characters = 0
        # Work for invalid resources that were decoded.
        self._invalid_work = 0
        self._valid = 0
        # Names in the response, and whether the name of any resource is unknown.
        self._present: set[str] = set()
        self._is_any_nameless = False
        # Incremental: versions of valid resources, by name.
        self._versions: dict[str, str] = {}

    def run(self, response: DiscoveryResponse) -> Outcome:
        """Decide about the whole response at once. Called once."""
        return finish(self.run_in_steps(response))

    def run_in_steps(self, response: DiscoveryResponse) -> Steps[Outcome]:
        """Decide about the whole response; yields the work of each step. Called once."""
        self._is_delta = response.is_delta
        if response.rejection:
            self._is_any_nameless = True
            self._note_error(f"{self._label}: {response.rejection}")
        self._cache.start_response()
        work = 0
        for index, raw in enumerate(response.resources):
            if work >= STEP_UNITS:
                yield work
                work = 0
            if self._take_known(index, raw):
                work += _CACHED_WORK
            elif self._is_stepped:
                self._take_new(index, raw, (yield from self._decode_in_steps(index, raw)))
            else:
                self._take_new(index, raw, self._decode(index, raw))
                work += DECODE_WORK + len(raw.serialized) // _BYTES_PER_WORK
        self._cache.end_response()
        if self._rules.server_errors_count:
            yield from _call_in_steps(self._take_error, response.errors)
        if self._is_delta:
            # A name may be listed twice, which does not contradict itself.
            yield from _call_in_steps(self._remove, tuple(dict.fromkeys(response.removed)))
        # A resource of unknown name may be any of those that seem to be missing.
        elif self._type.is_full_state and not self._is_any_nameless:
            yield from _call_in_steps(self._delete, self._find_missing())
        return Outcome(
            response.type_url,
            response.version,
            response.nonce,
            self._updates,
            self._unchanged,
            self._valid,
            self._invalid,
            self._with_node(join_errors(self._errors, self._invalid)) if self._errors else "",
            self._versions,
        )

    def _take_known(self, index: int, raw: RawResource) -> bool:
        """Take a resource that was decoded before or is rejected at once; False for any other."""
        if raw.type_url != self._type.type_url:
            return self._reject_type(index, raw)
        cached = self._cache.find(raw.serialized)
        # Only state of the world may leave the name to the resource.
        if cached is None or (raw.name != cached.name and (raw.name or self._is_delta)):
            return self._invalid_work > INVALID_WORK_MAX and self._skip(index)
        if cached.entry is not None and self._is_in_use(cached.entry, raw.serialized):
            # The case of nearly all resources of most responses.
            self._present.add(cached.name)
            self._unchanged.append(cached.entry)
            self._valid += 1
            if self._is_delta:
                self._versions[cached.name] = raw.version
            return True
        if not self._is_decided(cached):
            return False
        if self._note_present(cached.name):
            self._cache.put(raw.serialized, cached)
            self._take_decoded(cached)
        return True

    def _reject_type(self, index: int, raw: RawResource) -> bool:
        self._is_any_nameless = True
        got, expected = quote(raw.type_url), quote(self._type.type_url)
        self._note_error(f"{self._label} #{index}: is {got}, wanted {expected}")
        return True

    def _skip(self, index: int) -> bool:
        self._is_any_nameless = True
        self._note_error(f"{self._label} #{index}: not decoded, after too many errors")
        return True

    def _is_in_use(self, entry: Entry, serialized: bytes) -> bool:
        return (
            entry.status is ResourceStatus.ACKED
            and entry.serialized == serialized
            and entry.name not in self._present
        )

    def _is_decided(self, cached: CachedResource) -> bool:
        """Whether the cached result still holds: the resource is invalid, or still not watched."""
        if cached.entry is not None:
            return bool(cached.error)
        # A watch may have started since the resource was decoded.
        return not cached.name or self._find(cached.name)[1] is None

    @property
    def _label(self) -> str:
        return name_type(self._type.type_url)

    def _take_new(self, index: int, raw: RawResource, decoded: Decoded[Any]) -> None:
        if decoded.resource is None or not decoded.name:
            decoded = self._check_decoded(index, raw, decoded)
        name, entry = self._find(decoded.name or raw.name)
        if self._is_delta and self._find(raw.name)[0] != name:
            self._note_error(f"{self._label} {quote(raw.name)}: has the name {quote(name)} inside")
            return
        if not self._note_present(name):
            return
        # The text is bounded, because it stays in the cache.
        error = one_line(decoded.error) if decoded.error else ""
        cached = CachedResource(name, error, entry if name else None)
        self._cache.put(raw.serialized, cached)
        self._take_decoded(cached)
        if cached.entry is not None and not decoded.error:
            update = (cached.entry, ResourceStatus.ACKED, decoded.resource, raw.serialized)
            self._updates.append(ResourceUpdate(*update))
            if self._is_delta:
                self._versions[name] = raw.version

    def _find(self, name: str) -> tuple[str, Entry | None]:
        return find_entry(self._authorities, self._type.type_url, name)

    def _decode(self, index: int, raw: RawResource) -> Decoded[Any]:
        try:
            return self._type.decode(raw.serialized, self._context)
        except Exception as error:
            return self._on_decode_bug(index, raw, error)

    def _decode_in_steps(self, index: int, raw: RawResource) -> Steps[Decoded[Any]]:
        stepped: SteppedResourceType[Any] = self._type  # type: ignore[assignment]
        steps = stepped.decode_in_steps(raw.serialized, self._context)
        sum_of_work = 0
        while True:
            try:
                work = next(steps)
            except StopIteration as stop:
                decoded: Decoded[Any] = stop.value
                break
            except Exception as error:
                decoded = self._on_decode_bug(index, raw, error)
                break
            sum_of_work += work
            yield work
        if decoded.error:
            self._invalid_work += sum_of_work
        return decoded

    def _on_decode_bug(self, index: int, raw: RawResource, error: Exception) -> Decoded[Any]:
        LOGGER.error("%s #%d: decoding raised", self._label, index, exc_info=error)
        text = f"{self._label} #{index}: decoding raised {type(error).__name__}: {error}"
        return Decoded(raw.name, error=text)

    def _check_decoded(self, index: int, raw: RawResource, decoded: Decoded[Any]) -> Decoded[Any]:
        """The result; with an error if the resource type returned neither a resource nor an error.

        The error of bytes that cannot be decoded gets the name of their wrapper.
        """
        nameless = f"{self._label}: "
        if raw.name and decoded.error.startswith(nameless):
            text = decoded.error.removeprefix(nameless)
            return Decoded(raw.name, error=f"{self._label} {quote(raw.name)}: {text}")
        if decoded.resource is None and not decoded.error:
            return Decoded(decoded.name, error=f"{self._label} #{index}: cannot be decoded")
        if not decoded.name and not decoded.error and not raw.name:
            return Decoded("", error=f"{self._label} #{index}: has no name")
        return decoded

    def _note_present(self, name: str) -> bool:
        """Record a name of the response. False, with an error, if the name was there before."""
        if not name:
            self._is_any_nameless = True
            return True
        if name in self._present:
            self._note_error(f"{self._label} {quote(name)}: comes more than once in the response")
            return False
        self._present.add(name)
        return True

    def _take_decoded(self, cached: CachedResource) -> None:
        """Count the resource, and reject it if it is invalid."""
        if not cached.error:
            self._valid += 1
            return
        self._note_error(cached.error)
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

    def _find_missing(self) -> list[Entry]:
        return [
            entry
            for authority in self._authorities.values()
            for entry in authority.entries_of(self._type.type_url)
            if (entry.has_resource or entry.is_deleted_early) and entry.name not in self._present
        ]

    def _remove(self, name: str) -> None:
        """Take a name that an incremental response lists as removed."""
        name, entry = self._find(name)
        if name in self._present:
            text = f"{self._label} {quote(name)}: is both sent and removed in the response"
            self._note_error(text)
        elif entry is not None:
            self._present.add(name)
            self._versions[name] = ""
            self._delete(entry)

    def _delete(self, entry: Entry) -> None:
        drops = self._rules.deletion_drops
        effect = ", kept in use" if entry.has_resource and not drops else ""
        verb = "deleted" if entry.has_resource or entry.is_deleted_early else "not known"
        why = f"{verb} by xds server {quote(self._context.server.uri)}{effect}"
        text = f"{self._label} {quote(entry.name)}: does not exist ({why})"
        self._fail(entry, ResourceStatus.DOES_NOT_EXIST, StatusCode.NOT_FOUND, text, drops=drops)

    def _fail(
        self, entry: Entry, status: ResourceStatus, code: StatusCode, text: str, *, drops: bool
    ) -> None:
        error = Status(code, self._with_node(one_line(text)))
        self._updates.append(ResourceUpdate(entry, status, error, drops=drops))

    def _note_error(self, text: str) -> None:
        self._invalid += 1
        if self._error_characters <= NACK_TEXT_MAX:
            self._errors.append(text)
            self._error_characters += len(text)

    def _with_node(self, text: str) -> str:
        return with_node(text, self._context.bootstrap.node.id)


def _call_in_steps(call: Callable[[T], None], values: Sequence[T]) -> Steps[None]:
    """Call with each value; a value is an error, a removed name or a deleted entry."""
    for number, value in enumerate(values, 1):
        call(value)
        if not number % _ERRORS_PER_STEP:
            yield STEP_UNITS
