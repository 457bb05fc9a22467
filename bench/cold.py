"""First xDS RPC of a new process, with the times of its steps.

    python -m bench.cold CLIENT CONTROL_PLANE

Prints three monotonic times: the start of this code, the end of the client library's import, and
the end of the first RPC. Imports only what an application would.
"""

import time

BEGIN_S = time.monotonic()

import asyncio  # noqa: E402 - the import is measured
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402


async def call_once(name: str, control_plane: str) -> float:
    """Make one RPC with a new channel; returns the time after the library's import."""
    server = {"server_uri": control_plane, "channel_creds": [{"type": "insecure"}]}
    bootstrap = {"xds_servers": [server], "node": {"id": "bench"}}
    if name == "grpc_aio_xds":
        import grpc.aio  # noqa: PLC0415 - only one of the two libraries is measured

        imported_s = time.monotonic()
        os.environ["GRPC_XDS_BOOTSTRAP_CONFIG"] = json.dumps(bootstrap)
        opened = grpc.aio.insecure_channel("xds:///bench")
    else:
        import proxyless.aio  # noqa: PLC0415

        imported_s = time.monotonic()
        opened = proxyless.aio.insecure_channel("xds:///bench", bootstrap=bootstrap)
    async with opened as channel:
        await channel.unary_unary("/bench.Echo/Echo")(b"x" * 16)
        print(BEGIN_S, imported_s, time.monotonic(), flush=True)
    return imported_s


if __name__ == "__main__":
    asyncio.run(call_once(*sys.argv[1:]))
