"""Transport of the xDS client to resources in files, without a server and a socket.

A bootstrap with the server `file:///etc/mesh` makes a client read resources from that file or
directory, with the checks and the order of changes of `proxyless serve`. For laptops, tests and CI:
each process reads the files itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from proxyless.base import (
    OK,
    Event,
    Status,
    StatusCode,
    Trace,
    ValidationError,
    ValidationErrors,
    one_line,
)
from proxyless.controlplane.ads import AdsStream
from proxyless.controlplane.change_condition import ChangeCondition
from proxyless.controlplane.delta import DeltaAdsStream
from proxyless.controlplane.files import LOGGER, FileSource
from proxyless.controlplane.stream import REMOVAL_GRACE_S, ServedConfig, StreamPump
from proxyless.protos import Proto, message_class
from proxyless.runtime.tasks import create_owned_task
from proxyless.xds.client.codec import ADS_PATH, DELTA_PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyless.controlplane.snapshot import Snapshot
    from proxyless.runtime import Clock
    from proxyless.runtime.offload import Offload
    from proxyless.xds.bootstrap import ServerConfig
    from proxyless.xds.client import StreamListener

# Requests of a stream that may wait; the client gathers further changes.
REQUESTS_MAX: Final = 16

# State machine and type of the requests, by path of the method.
_VARIANTS: Final = {
    ADS_PATH: (AdsStream, "envoy.service.discovery.v3.DiscoveryRequest"),
    DELTA_PATH: (DeltaAdsStream, "envoy.service.discovery.v3.DeltaDiscoveryRequest"),
}
_NO_SUCH_METHOD: Final = Status(StatusCode.UNIMPLEMENTED, "files serve only ADS")


def parse_file_uri(uri: str) -> Path:
    """Path of `file:///path` or `file:path`. ValueError if it has a host or no path."""
    host, path = "", uri.removeprefix("file:")
    if path.startswith("//"):
        host, _, rest = path[2:].partition("/")
        path = f"/{rest}"
    if host not in ("", "localhost"):
        raise ValueError(f"the URI has the host {host!r}, wanted file:///path")
    if not path.strip("/"):
        raise ValueError("the URI has no path, wanted file:///path")
    return Path(unquote(path))


def _log_event(event: Event) -> None:
    if event.name == "controlplane.missing":
        LOGGER.warning("%s", event.fields["missing"])


class FileTransports:
    """Factory of transports to files."""

    def __init__(self, clock: Clock, offload: Offload) -> None:
        self._clock = clock
        self._offload = offload

    def create(self, server: ServerConfig) -> FileTransport:
        """Raise ValueError if the URI is invalid."""
        return FileTransport(parse_file_uri(server.uri), self._clock, self._offload)


class FileTransport:
    """Transport to the resources of one file or directory. Owns its streams.

    It is unreachable until the files are valid once; after that, the last valid snapshot is kept.
    """

    def __init__(self, path: Path, clock: Clock, offload: Offload) -> None:
        # Fixed at construction.
        self.clock: Final = clock
        self.changes: Final = ChangeCondition()
        self.trace: Final = Trace()
        self.trace.subscribe(_log_event)
        self._source: Final = FileSource(
            path,
            clock,
            on_snapshot=self._on_snapshot,
            on_problem=self._on_problem,
            offload=offload,
            # A client has no option that allows empty files.
            empty_option="",
        )
        # None before the files are valid once.
        self.served: ServedConfig | None = None
        self._problem = OK
        self._on_failure: Callable[[Status], None] | None = None
        self._streams: dict[FileStream, None] = {}
        self._is_closed = False
        offload(self._load, self._on_loaded)

    # Called by the client

    def open(self, method_path: str, listener: StreamListener) -> FileStream:
        variant, request_type = _VARIANTS.get(method_path, _VARIANTS[ADS_PATH])
        core = variant(removal_grace_s=REMOVAL_GRACE_S)
        stream = FileStream(self, listener, core, request_type)
        self._streams[stream] = None
        if method_path not in _VARIANTS:
            self.clock.call_later(0, lambda: stream.end(_NO_SUCH_METHOD))
        elif self.served is not None:
            self.clock.call_later(0, stream.start)
        return stream

    def watch_connectivity(self, listener: Callable[[Status], None]) -> None:
        self._on_failure = listener
        self.clock.call_later(0, self._report_problem)

    def retry_in_s(self) -> None:
        return None

    def last_failure(self) -> Status:
        return self._problem

    def close(self) -> None:
        self._is_closed = True
        self._source.close()
        for stream in list(self._streams):
            stream.close()

    def on_stream_ended(self, stream: FileStream) -> None:
        """Called by the stream."""
        self._streams.pop(stream, None)

    # Files

    def _load(self) -> Snapshot | ValidationError:
        try:
            return self._source.load()
        except ValidationError as error:
            return error
        except ModuleNotFoundError:
            errors = ValidationErrors()
            errors.add("PyYAML is not installed, wanted: pip install 'proxyless[cli]'")
            return ValidationError("files", errors)

    def _on_loaded(self, loaded: Snapshot | ValidationError) -> None:
        if self._is_closed:
            return
        self._source.watch()
        if isinstance(loaded, ValidationError):
            self._on_problem(loaded)
        else:
            self._on_snapshot(loaded)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        LOGGER.info("resources are read: %r", snapshot)
        self._problem = OK
        if self.served is None:
            self.served = ServedConfig(snapshot)
            for stream in list(self._streams):
                stream.start()
        else:
            self.served.source = snapshot
            for stream in self._streams:
                stream.wake()

    def _on_problem(self, error: ValidationError) -> None:
        if self.served is not None:
            LOGGER.error("kept the last good state: %s", error)
            return
        self._problem = Status(StatusCode.UNAVAILABLE, one_line(str(error)))
        self._report_problem()

    def _report_problem(self) -> None:
        if not self._problem.is_ok and self._on_failure is not None and not self._is_closed:
            self._on_failure(self._problem)


class FileStream:
    """One ADS stream: the server's state machine and message loop in this process."""

    def __init__(
        self, transport: FileTransport, listener: StreamListener, core: AdsStream, request_type: str
    ) -> None:
        self._transport: Final = transport
        self._core: Final = core
        self._parse_request: Final = message_class(request_type).FromString
        # None after the end.
        self._listener: StreamListener | None = listener
        # Not None after `start`.
        self._pump: StreamPump | None = None
        self._task: asyncio.Task[None] | None = None
        # Requests for the server, and messages that the client has requested.
        self._requests: deque[Proto] = deque()
        self._reads = 0
        self._changed = asyncio.Event()

    # Called by the transport, in a turn of its own

    def start(self) -> None:
        transport, served = self._transport, self._transport.served
        if self._listener is None or self._pump is not None or served is None:
            return
        self._pump = StreamPump(self._core, self, served, transport.changes, transport.trace)
        loop = asyncio.get_running_loop()
        self._task = create_owned_task(loop, self._run(self._pump), name="proxyless-file-stream")
        self._listener.on_ready()

    def wake(self) -> None:
        if self._pump is not None:
            self._pump.wake()

    def end(self, status: Status) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._transport.on_stream_ended(self)
            listener.on_end(status)

    async def _run(self, pump: StreamPump) -> None:
        self.end(await pump.run())

    # Called by the client

    def send(self, message: bytes) -> None:
        if self._listener is not None:
            self._requests.append(self._parse_request(message))
            self._changed.set()

    @property
    def is_writable(self) -> bool:
        return self._pump is not None and len(self._requests) < REQUESTS_MAX

    def read_next(self) -> None:
        self._reads += 1
        self._changed.set()

    @property
    def is_receiving(self) -> bool:
        return False

    def probe(self, on_answer: Callable[[], None]) -> None:
        """The files are on this host."""
        self._transport.clock.call_later(0, on_answer)

    def close(self) -> None:
        if self._listener is not None:
            self._listener = None
            self._transport.on_stream_ended(self)
        if self._task is not None:
            self._changed.set()
            self._task.cancel()

    # Called by the pump

    async def read(self) -> Proto | None:
        while not self._requests:
            await self._wait()
        is_full = len(self._requests) >= REQUESTS_MAX
        request = self._requests.popleft()
        if is_full and self._listener is not None:
            self._listener.on_writable()
        return request

    async def write(self, response: Proto) -> bool:
        while not self._reads and self._listener is not None:
            await self._wait()
        if self._listener is None:
            return False
        self._reads -= 1
        self._listener.on_message(response.SerializeToString())
        return True

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()
