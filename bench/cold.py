"""How soon is a process that has just been started done with its first xDS RPC?

    python -m bench.cold CLIENT CONTROL_PLANE

Prints three monotonic times: when its code began to run, when the client's library was imported,
and when the first RPC was answered. Imports nothing but what an application would.
"""

import time

BEGIN_S = time.monotonic()

import asyncio  # noqa: E402 - importing is what is measured
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402


async def call_once(name: str, control_plane: str) -> float:
    """One RPC with a new channel; returns when the library had been imported."""
    server = {"server_uri": control_plane, "channel_creds": [{"type": "insecure"}]}
    bootstrap = {"xds_servers": [server], "node": {"id": "bench"}}
    if name == "grpc_aio_xds":
        import grpc.aio  # noqa: PLC0415 - of the two libraries only one is measured

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
