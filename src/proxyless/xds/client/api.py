"""Interface between the ADS client and its users: resource types, watchers, options.

Specs: A27 (XdsClient), A46 (notifications of bad resources), A88 (watchers).

A watch is a resource type, a name and a watcher. The watcher is called with the resource, or with
the status if there is none, and beside a resource in use with the ambient error.

The resource type decodes the resources, so the client itself reads no listener and no cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Status
    from proxyless.xds.bootstrap import Bootstrap, ServerConfig

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

DATA_ERROR_VARIABLE: Final = "GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING"
# A control plane decides what is watched, so there is a limit.
RESOURCES_MAX: Final = 100_000

# Ends what it was returned for. Idempotent.
Cancel = Callable[[], None]


@frozen
class DecodeContext:
    """What decoding may depend on: the server that sent the resource, and our own bootstrap."""

    server: ServerConfig
    bootstrap: Bootstrap


@frozen
class Decoded(Generic[T_co]):
    """Result of decoding: a resource, or an error."""

    # Empty if not even the name could be read.
    name: str
    resource: T_co | None = None
    # The whole text for the NACK, with type and name of the resource; empty if it is valid.
    error: str = ""


class ResourceType(Protocol[T_co]):
    """One kind of resource. Two objects with one type URL are the same kind."""

    @property
    def type_url(self) -> str:
        """With its prefix: `type.googleapis.com/envoy.config.listener.v3.Listener`."""
        ...

    @property
    def is_full_state(self) -> bool:
        """Whether a response holds all there are, so that a missing one is deleted (LDS, CDS)."""
        ...

    def decode(self, serialized: bytes, context: DecodeContext) -> Decoded[T_co]:
        """Read and validate. Pure: equal bytes from one server are decoded only once."""
        ...


class ResourceWatcher(Protocol[T_contra]):
    """Callbacks of one watched resource. No method may raise or block."""

    def on_resource(self, resource: T_contra | Status) -> None:
        """Use this from now on; or, with a status, stop using the resource.

        NOT_FOUND means that it does not exist; any other status that it could not be obtained yet.
        Ends the ambient error, if there was one.
        """
        ...

    def on_ambient_error(self, status: Status) -> None:
        """An error that leaves the resource in use. OK: the error has ended."""
        ...


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
    # Of the resource in use; empty if there is none.
    version: str
    serialized: bytes
    # On the client's clock; 0 if nothing came yet.
    updated_s: float
    # The last error; OK if there is none.
    error: Status
    # Of the response that was rejected; empty if the last one was not.
    failed_version: str
    # When it was rejected, on the client's clock; 0 if it was not.
    failed_s: float = 0.0


@frozen
class ServerView:
    """State of the connection to one server, for explanations."""

    uri: str
    # OK unless the server is unreachable.
    status: Status
    # Whether the requests are on their way to the server.
    is_asked: bool
    # Time until the next stream; None if there is one, or it is about to start.
    retry_in_s: float | None
    # Remaining time of the resource timers, by type URL and name.
    waits: Mapping[tuple[str, str], float]


@frozen(kw_only=True)
class XdsClientOptions:
    """Behaviour of a client that the bootstrap does not configure."""

    # A88's treatment of bad data instead of that of the base gRFCs (D26).
    has_data_error_handling: bool = False
    resources_max: int = RESOURCES_MAX

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> XdsClientOptions:
        """Options as gRPC's environment variables set them (D26)."""
        return cls(has_data_error_handling=environ.get(DATA_ERROR_VARIABLE, "").lower() == "true")
