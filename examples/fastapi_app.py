"""FastAPI application with one channel for all requests, opened and closed by its lifespan.

    pip install fastapi uvicorn
    export GRPC_XDS_BOOTSTRAP=bootstrap.json GRPC_XDS_CONFIG_CACHE=/var/cache/orders
    uvicorn examples.fastapi_app:app

The channel is made on the loop that serves the requests, once per worker process.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from fastapi import FastAPI, HTTPException, Request

import proxyless
import proxyless.aio

TARGET = os.environ.get("ORDERS_TARGET", "xds:///orders")
METHOD = "/shop.Orders/Where"
TIMEOUT_S = 2.0


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with proxyless.aio.insecure_channel(TARGET) as channel:
        app.state.where = channel.unary_unary(METHOD)
        app.state.channel = channel
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/where")
async def where(request: Request) -> dict[str, str]:
    try:
        answer: bytes = await request.app.state.where(b"", timeout=TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        # The text names the resource, the backend or the control plane that is the reason.
        raise HTTPException(503, error.details()) from error
    return {"backend": answer.decode()}


@app.get("/ready")
async def ready(request: Request) -> dict[str, str]:
    """For a readiness probe: whether an RPC would be sent now, and where. It sends none."""
    explanation = request.app.state.channel.explain(METHOD)
    if explanation.problem:
        raise HTTPException(503, explanation.text)
    return {"explanation": explanation.text}
