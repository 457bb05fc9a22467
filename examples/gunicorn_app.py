"""WSGI application for gunicorn with `--preload`: a blocking channel made before the fork.

    pip install gunicorn
    gunicorn --preload --workers 4 examples.gunicorn_app:app

The channel is made once, when the module is imported in the parent. Each worker has connections and
an xDS stream of its own; the parent has none, as long as it sends no RPC.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

import grpc

import proxyless

TARGET = os.environ.get("ORDERS_TARGET", "xds:///orders")
TIMEOUT_S = 2.0

channel = proxyless.insecure_channel(TARGET)
where = channel.unary_unary("/shop.Orders/Where")


def app(_environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    headers = [("Content-Type", "text/plain"), ("X-Worker", str(os.getpid()))]
    try:
        answer: bytes = where(b"", timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        start_response("503 Service Unavailable", headers)
        return [error.details().encode()]
    start_response("200 OK", headers)
    return [answer]
