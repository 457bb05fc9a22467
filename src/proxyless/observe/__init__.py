"""Showing what happened, and why: what a process holds, and what it would do.

csds          what the xDS clients of a process hold, as messages of CSDS, and read back from them
csds_service  the service that answers with it, for grpcio's servers of both kinds

Nothing here decides anything about an RPC: it asks the rooms that do, and shows their answers.
"""

from proxyless.observe.csds import ClientStatus, ClientView, ResourceRow, encode_status, read_status
from proxyless.observe.csds_service import CSDS_SERVICE, ClientsByLoop, add_csds_servicer

__all__ = [
    "CSDS_SERVICE",
    "ClientStatus",
    "ClientView",
    "ClientsByLoop",
    "ResourceRow",
    "add_csds_servicer",
    "encode_status",
    "read_status",
]
