"""Interface of the xDS client: resource types, watchers, options.

Specs: A27 (XdsClient), A46 (notifications of bad resources), A88 (watchers).

A watch is a resource type, a name and a watcher. The resource type decodes: the client itself
reads no listener and no cluster. A type with large resources also has `decode_in_steps`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeGuard, TypeVar, runtime_checkable

from proxyless.base import OK, Status
from proxyless.base.environment import read_flag
from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from proxyless.xds.bootstrap import Bootstrap, ServerConfig

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

DATA_ERROR_VARIABLE: Final = "GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING"
# Limit of watched resources: their number is up to the control plane. Events of a server, such as
# the start of a stream, handle all of them in one turn.
RESOURCES_MAX: Final = 25_000

# Ends a watch. Idempotent.
Cancel = Callable[[], None]


@frozen
class DecodeContext:
    """Context of decoding: the server that sent the resource, and the client's bootstrap."""

    server: ServerConfig
    bootstrap: Bootstrap


@frozen
class NoAnswer(Status):
    """Status of a resource whose servers are unreachable, or silent since they were asked (D50).

    Nothing is known about the resource: a watcher that has a working config may keep it.
    """


@frozen
class EarlyDeletion(NoAnswer):
    """Status of a resource that was deleted on a stream that has not sent what names it (D50)."""


@frozen
class Decoded(Generic[T_co]):
    """Result of decoding: a resource, or an error."""

    # Empty if it could not be read.
    name: str
    resource: T_co | None = None
    # Text of the NACK, with type and name of the resource; empty if the resource is valid.
    error: str = ""


class ResourceType(Protocol[T_co]):
    """One kind of resource. Two objects with one type URL are the same kind."""

    @property
    def type_url(self) -> str:
        """Type URL with its prefix: `type.googleapis.com/envoy.config.listener.v3.Listener`."""

    @property
    def is_full_state(self) -> bool:
        """Whether a response holds all resources, so that a missing one is deleted (LDS, CDS)."""

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[T_co]:
        """Decode and validate. Pure: equal bytes from one server are decoded only once."""


@runtime_checkable
class SteppedResourceType(ResourceType[T_co], Protocol[T_co]):
    """Resource type that decodes in steps, so that large resources take several turns."""

    def decode_in_steps(
        self, serialized: bytes, context: DecodeContext
    ) -> Generator[int, None, Decoded[T_co]]:
        """Like `decode`; yields the work of each step, in about microseconds."""


class NamedResourceType(ResourceType[T_co], Protocol):
    """Resource type whose resources are in use as long as resources of other types name them."""

    @property
    def named_by(self) -> tuple[str, ...]:
        """Type URLs of the other types: of the first ones, if these name them indirectly."""


class CollectionType(ResourceType["Mapping[str, T_co]"], Protocol[T_co]):
    """Resource type of collections: a watched name ends in `/*`, its value has all members.

    `decode` decodes a saved collection; responses have members.
    """

    @property
    def members_max(self) -> int:
        """Limit of the members of one collection."""

    def decode_member(self, name: str, serialized: bytes, context: DecodeContext) -> Decoded[T_co]:
        """Decode and validate a member. No resource and no error: it is valid, and not used."""


def is_collection_type(resource_type: ResourceType[object]) -> TypeGuard[CollectionType[object]]:
    return hasattr(resource_type, "decode_member")


def naming_types(resource_type: ResourceType[object]) -> tuple[str, ...]:
    """Type URLs of the types whose resources name those of this type."""
    return getattr(resource_type, "named_by", ())


class ResourceWatcher(Protocol[T_contra]):
    """Callbacks of one watched resource. No method may raise or block."""

    def on_resource(self, resource: T_contra | Status) -> None:
        """Use this resource; or, with a status, stop using the previous one. Ends an ambient error.

        NOT_FOUND: the resource does not exist. Any other status: it could not be obtained yet. A
        `NoAnswer`, with either code: no server has answered.
        """

    def on_ambient_error(self, status: Status) -> None:
        """An error that leaves the resource in use. OK: the error has ended."""


class ResourceStatus(Enum):
    """Client status of a resource, with the names and numbers of CSDS (A40, A88)."""

    REQUESTED = 1
    DOES_NOT_EXIST = 2
    ACKED = 3
    NACKED = 4
    RECEIVED_ERROR = 5
    TIMEOUT = 6


@frozen
class ResourceDump:
    """State of one resource, for CSDS (A40)."""

    type_url: str
    name: str
    status: ResourceStatus
    # The resource in use; empty if there is none.
    version: str
    serialized: bytes
    # Time of the last update, on the client's clock; 0 if there was none.
    updated_s: float
    # OK if there is none.
    error: Status
    # Version and time of the rejected response; empty and 0 if the last one was accepted.
    failed_version: str
    failed_s: float = 0.0
    # Unix time at which an earlier process saved the resource in use; None if it was received.
    saved_s: float | None = None


@frozen
class ServerView:
    """State of the connection to one server, for explanations."""

    uri: str
    # OK unless the server is unreachable: the status of its resources; and that with the newest
    # reason, which is not published each time.
    status: Status
    newest: Status
    # Whether the stream has a connection, and whether the server has sent a response on it.
    is_stream_ready: bool
    has_answered: bool
    # Time until the next stream or attempt to connect, 0 while there is one; None if it is unknown.
    retry_in_s: float | None
    # Remaining time of the resource timers, by type URL and name.
    waits: Mapping[tuple[str, str], float]
    # The number of its last streams that all ended soon after their start, if it is remarkable,
    # and the end of the last one.
    short_streams: int = 0
    last_end: Status = OK


@frozen(kw_only=True)
class XdsClientOptions:
    """Options of a client that are not in the bootstrap."""

    # A88's treatment of bad data instead of that of the base gRFCs (D26).
    has_data_error_handling: bool = False
    resources_max: int = RESOURCES_MAX

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> XdsClientOptions:
        return cls(has_data_error_handling=read_flag(environ, DATA_ERROR_VARIABLE, default=False))
