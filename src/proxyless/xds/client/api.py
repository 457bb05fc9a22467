"""What do the ADS client and those who use it say to each other?

Specs: A27 (XdsClient), A46 (what is told about bad resources), A88 (watchers).

Down go watches: a resource type, a name and a watcher. Up comes, for each of them, the resource or
why there is none, and beside a resource in use the trouble around it (the ambient error).

A resource type is all that the client knows about a kind of resource: it is handed in with the
watch, so the client itself reads no listener and no cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from proxyless.base.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from proxyless.base import Status
    from proxyless.xds.bootstrap import Bootstrap, ServerConfig

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

# Ends what it was given for. Idempotent.
Cancel = Callable[[], None]


@frozen
class DecodeContext:
    """What the meaning of a resource may depend on: who sent it, and our own bootstrap."""

    server: ServerConfig
    bootstrap: Bootstrap


@frozen
class Decoded(Generic[T_co]):
    """What serialized bytes turned out to be: a resource, or why not."""

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
    """Who wants to know about one resource. No method may raise or block."""

    def on_resource(self, resource: T_contra | Status) -> None:
        """Use this from now on; or, with a status, use nothing: there is no such resource.

        NOT_FOUND means that it does not exist; any other status that it could not be had so far.
        Ends the ambient error, if there was one.
        """
        ...

    def on_ambient_error(self, status: Status) -> None:
        """Something is wrong, but the resource stays in use. OK: it is over."""
        ...


class ResourceStatus(Enum):
    """Where a resource stands; the words and numbers of CSDS (A40, A88)."""

    REQUESTED = 1
    DOES_NOT_EXIST = 2
    ACKED = 3
    NACKED = 4
    RECEIVED_ERROR = 5
    TIMEOUT = 6


@frozen
class ResourceDump:
    """What the client holds for one resource, for CSDS (A40)."""

    type_url: str
    name: str
    status: ResourceStatus
    # Of the resource in use; empty if there is none.
    version: str
    serialized: bytes
    # On the client's clock; 0 if nothing came yet.
    updated_s: float
    # The last thing that went wrong; OK if nothing is wrong.
    error: Status
    # Of the response that was refused; empty if the last one was not.
    failed_version: str
    # When it was refused, on the client's clock; 0 if it was not.
    failed_s: float = 0.0


@frozen
class ServerView:
    """How a client stands with one server, for explanations."""

    uri: str
    # OK unless the server cannot be reached.
    status: Status
    # Whether what is asked for is on its way to the server.
    is_asked: bool
    # How long until the next stream; None if there is one, or it is about to be.
    retry_in_s: float | None
    # For how long the server may still be silent about a resource, by type URL and name.
    waits: Mapping[tuple[str, str], float]
