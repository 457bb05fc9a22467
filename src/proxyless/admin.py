"""What a running process tells whoever is allowed to ask.

server = grpc.aio.server()          # or grpc.server(...)
proxyless.admin.add_servicers(server)
server.add_insecure_port("127.0.0.1:50052")

`proxyless status 127.0.0.1:50052` and grpcdebug read it. Everything is shown, so the port belongs
on loopback or behind credentials.
"""

from __future__ import annotations

from typing import Any

from proxyless.assembly import xds_clients_by_loop
from proxyless.observe import add_csds_servicer

__all__ = ["add_servicers"]


def add_servicers(server: Any) -> None:  # noqa: ANN401 - grpcio's servers have no types
    """Add what we tell, CSDS, to a server of grpcio's that has not been started yet."""
    add_csds_servicer(server, xds_clients_by_loop)
