"""Calls through proxies, as a process of its own: `python -m tests.interop.proxy_client LIBRARY`.

The library is grpcio or proxyless. Cases come as JSON on standard input; how their calls ended goes
to standard output. Each case has an environment of its own: both read it for each channel.
"""

import json
import os
import sys
from typing import Any

import grpc

import proxyless
from proxyless.resolver.http_proxy import EXCEPTION_VARIABLES, PROXY_VARIABLES
from tests.worlds.transports import PATIENCE_S, SERVICE

FACTORIES: dict[str, Any] = {"grpcio": grpc, "proxyless": proxyless}


def call(library: str, case: dict[str, Any]) -> list[str]:
    """Code and reply of one call."""
    for name in (*PROXY_VARIABLES, *EXCEPTION_VARIABLES, "HTTP_PROXY"):
        os.environ.pop(name, None)
    os.environ.update(case["environ"])
    factory, options = FACTORIES[library], [tuple(pair) for pair in case["options"]]
    if case["roots"]:
        credentials = grpc.ssl_channel_credentials(case["roots"].encode())
        channel = factory.secure_channel(case["target"], credentials, options)
    else:
        channel = factory.insecure_channel(case["target"], options)
    with channel:
        try:
            reply = channel.unary_unary(f"{SERVICE}Echo")(b"through", timeout=PATIENCE_S)
        except grpc.RpcError as error:
            return [error.code().name, ""]
    return ["OK", reply.decode()]


if __name__ == "__main__":
    outcomes = [call(sys.argv[1], case) for case in json.load(sys.stdin)]
    json.dump(outcomes, sys.stdout)
