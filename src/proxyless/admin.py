"""Admin services of a running process: CSDS.

server = grpc.aio.server()          # or grpc.server(...)
proxyless.admin.add_servicers(server)
server.add_insecure_port("127.0.0.1:50052")

`proxyless status 127.0.0.1:50052` and grpcdebug read it. It shows the complete configuration, so
bind the port to loopback or require credentials.
"""

from __future__ import annotations

from typing import Any

from proxyless.assembly import xds_clients_by_loop
from proxyless.observe import add_csds_servicer

__all__ = ["add_servicers"]


def add_servicers(server: Any) -> None:  # noqa: ANN401 - grpcio's servers have no types
    """Add CSDS to a server of grpcio that has not been started yet."""
    add_csds_servicer(server, xds_clients_by_loop)
