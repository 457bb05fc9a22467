"""Errors of RPCs that were never sent."""

from __future__ import annotations

import grpc


class FailedRpc(grpc.RpcError):  # type: ignore[misc]  # grpcio has no types.
    """Error of an RPC."""

    def __init__(self, code: grpc.StatusCode, details: str = "some words") -> None:
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details
