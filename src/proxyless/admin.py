"""Admin services of a running process: CSDS, channelz and the live service.

server = grpc.aio.server()          # or grpc.server(...)
proxyless.admin.add_servicers(server)
server.add_insecure_port("127.0.0.1:50052")

`proxyless status 127.0.0.1:50052`, `proxyless top` and grpcdebug read them. They show the complete
configuration, so bind the port to loopback or require credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proxyless.assembly import (
    explain_view,
    observe_all_channels,
    stacks_by_loop,
    xds_clients_by_loop,
)
from proxyless.observe import add_csds_servicer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["add_servicers", "write_recording_on_signal"]


def add_servicers(server: Any, *, live: bool = True) -> None:  # noqa: ANN401 - grpcio's servers have no types
    """Add CSDS, channelz and the live service to a server of grpcio that has not been started.

    From then on the RPCs of all channels of the process are counted, and the flight recorder is
    on. With `live=False` it adds CSDS only, and RPCs cost nothing.
    """
    add_csds_servicer(server, xds_clients_by_loop)
    if live:
        from proxyless.observe.live import (  # noqa: PLC0415 - only here
            ChannelzService,
            LiveService,
            add_service,
        )

        recorder = observe_all_channels()
        add_service(server, LiveService(recorder, explain_view).methods(), stacks_by_loop)
        add_service(server, ChannelzService(recorder).methods(), stacks_by_loop)


def write_recording_on_signal(directory: str) -> Callable[[], None]:
    """Write a flight recording into this directory whenever the process gets SIGUSR2.

    Records all channels from now on, as `add_servicers` does. Call it in the main thread. Returns a
    function that restores the previous handler of the signal.
    """
    from proxyless.observe.flight import install_signal_handler  # noqa: PLC0415 - only here

    return install_signal_handler(observe_all_channels(), directory)
