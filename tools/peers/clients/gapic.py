"""Client library that Google generates from an API (GAPIC), on a channel of a stack.

The library is google-cloud-secret-manager. Its server is a grpcio server in this process, which
has secrets, records the metadata of RPCs, and fails for some names.

    python -m tools.peers.clients.gapic <proxyless|grpcio> <directory of the library>

Prints a line of JSON per case: its name, and its error or null.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from tools.peers.clients.stacks import Untyped, load_modules, load_stack

_SERVICE: Final = "google.cloud.secretmanager.v1.SecretManagerService"
_PARENT: Final = "projects/p"
_NAMES: Final = [f"{_PARENT}/secrets/s{number}" for number in range(5)]
_PAGE: Final = 2
_CASE_TIMEOUT_S: Final = 20.0
# The number of UNAVAILABLE errors before the server succeeds.
_FAILURES: Final = 2
_ERRORS: Final = {
    "INVALID_ARGUMENT": "InvalidArgument",
    "NOT_FOUND": "NotFound",
    "ALREADY_EXISTS": "AlreadyExists",
    "PERMISSION_DENIED": "PermissionDenied",
    "UNAUTHENTICATED": "Unauthenticated",
    "RESOURCE_EXHAUSTED": "ResourceExhausted",
    "FAILED_PRECONDITION": "FailedPrecondition",
    "ABORTED": "Aborted",
    "OUT_OF_RANGE": "OutOfRange",
    "UNIMPLEMENTED": "MethodNotImplemented",
    "INTERNAL": "InternalServerError",
    "UNAVAILABLE": "ServiceUnavailable",
    "DATA_LOSS": "DataLoss",
    "UNKNOWN": "Unknown",
    "CANCELLED": "Cancelled",
    "DEADLINE_EXCEEDED": "DeadlineExceeded",
}


class Secrets:
    """The service's methods that the cases use."""

    def __init__(self, library: Untyped, details: bytes) -> None:
        self._types = library
        self._details = details
        self.metadata: list[tuple[str, str | bytes]] = []
        self.calls = 0
        self.is_stopped = threading.Event()

    def handlers(self) -> Untyped:
        types = self._types
        methods = {
            "GetSecret": (self._get, types.GetSecretRequest, types.Secret),
            "ListSecrets": (self._list, types.ListSecretsRequest, types.ListSecretsResponse),
            "AccessSecretVersion": (
                self._access,
                types.AccessSecretVersionRequest,
                types.AccessSecretVersionResponse,
            ),
        }
        return grpc.method_handlers_generic_handler(
            _SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    method, request.deserialize, response.serialize
                )
                for name, (method, request, response) in methods.items()
            },
        )

    def _note(self, context: Untyped) -> None:
        self.calls += 1
        self.metadata = [tuple(pair) for pair in context.invocation_metadata()]

    def _get(self, request: Untyped, context: Untyped) -> Untyped:
        self._note(context)
        what = request.name.rpartition("/")[2]
        if what == "slow":
            self.is_stopped.wait(_CASE_TIMEOUT_S)
        elif what == "detailed":
            context.set_trailing_metadata((("grpc-status-details-bin", self._details),))
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not yours")
        elif what in _ERRORS:
            context.abort(grpc.StatusCode[what], f"it is {what}")
        return self._types.Secret(name=request.name, labels={"from": "server"})

    def _list(self, request: Untyped, context: Untyped) -> Untyped:
        self._note(context)
        start = int(request.page_token or 0)
        names = _NAMES[start : start + _PAGE]
        token = str(start + _PAGE) if start + _PAGE < len(_NAMES) else ""
        secrets = [self._types.Secret(name=name) for name in names]
        return self._types.ListSecretsResponse(secrets=secrets, next_page_token=token)

    def _access(self, request: Untyped, context: Untyped) -> Untyped:
        self._note(context)
        if self.calls <= _FAILURES:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return self._types.AccessSecretVersionResponse(name=request.name, payload={"data": b"\0x"})


def _error_details(directory: str) -> bytes:
    names = ("google.rpc.status_pb2", "google.rpc.error_details_pb2")
    status, error = load_modules(directory, *names)
    message = status.Status(code=grpc.StatusCode.PERMISSION_DENIED.value[0], message="not yours")
    message.details.add().Pack(error.ErrorInfo(reason="NOT_YOURS", domain="secrets.test"))
    serialized: bytes = message.SerializeToString()
    return serialized


class Cases:
    """The cases, each a method, for blocking and asyncio clients."""

    def __init__(self, client: Untyped, secrets: Secrets, api: Untyped) -> None:
        self._client = client
        self._secrets = secrets
        self._errors, self._retries = api

    async def unary(self) -> None:
        secret = await _result(self._client.get_secret(name=_NAMES[0]))
        assert (secret.name, dict(secret.labels)) == (_NAMES[0], {"from": "server"})

    async def request_params_header(self) -> None:
        await _result(self._client.get_secret(name=_NAMES[0]))
        metadata = dict(self._secrets.metadata)
        assert metadata["x-goog-request-params"] == f"name={_NAMES[0]}", metadata
        assert "gapic/" in str(metadata["x-goog-api-client"]), metadata

    async def metadata(self) -> None:
        pairs = (("x-mine", "a"), ("x-mine", "b"), ("x-mine-bin", b"\x00\xff"))
        await _result(self._client.get_secret(name=_NAMES[0], metadata=pairs))
        assert [pair for pair in self._secrets.metadata if "mine" in pair[0]] == list(pairs)

    async def paging(self) -> None:
        pager = await _result(self._client.list_secrets(parent=_PARENT))
        names = [secret.name async for secret in _iterate(pager)]
        assert names == _NAMES, names
        assert self._secrets.calls == len(_NAMES) // _PAGE + 1, self._secrets.calls

    async def pages(self) -> None:
        pager = await _result(self._client.list_secrets(parent=_PARENT))
        sizes = [len(page.secrets) async for page in _iterate(pager.pages)]
        assert sizes == [_PAGE, _PAGE, len(_NAMES) - 2 * _PAGE], sizes

    async def errors(self) -> None:
        for code, name in _ERRORS.items():
            error = await self._fail(f"{_PARENT}/secrets/{code}")
            assert type(error).__name__ == name, f"{code}: {error!r}, wanted {name}"
            assert error.message == f"it is {code}", error
            assert error.grpc_status_code is grpc.StatusCode[code], error

    async def error_details(self) -> None:
        error = await self._fail(f"{_PARENT}/secrets/detailed")
        assert (error.reason, error.domain) == ("NOT_YOURS", "secrets.test"), error
        assert len(error.details) == 1, error

    async def timeout(self) -> None:
        error = await self._fail(f"{_PARENT}/secrets/slow", timeout=0.2)
        assert isinstance(error, self._errors.DeadlineExceeded), repr(error)

    async def retry(self) -> None:
        policy = self._retries(
            initial=0.01,
            maximum=0.02,
            predicate=lambda error: isinstance(error, self._errors.ServiceUnavailable),
            timeout=_CASE_TIMEOUT_S,
        )
        name = f"{_NAMES[0]}/versions/1"
        reply = await _result(self._client.access_secret_version(name=name, retry=policy))
        assert reply.payload.data == b"\0x", reply
        assert self._secrets.calls == _FAILURES + 1, self._secrets.calls

    async def _fail(self, name: str, **arguments: Untyped) -> Untyped:
        try:
            await _result(self._client.get_secret(name=name, **arguments))
        except self._errors.GoogleAPICallError as error:
            return error
        raise AssertionError(f"{name}: OK, wanted an error")


async def _result(returned: Untyped) -> Untyped:
    return await returned if inspect.isawaitable(returned) else returned


async def _iterate(items: Untyped) -> Untyped:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


CASES: Final = tuple(name for name in vars(Cases) if not name.startswith("_"))


async def run(stack: Untyped, directory: str) -> None:
    library, errors, retry, retry_async, services = load_modules(
        directory,
        "google.cloud.secretmanager_v1",
        "google.api_core.exceptions",
        "google.api_core.retry",
        "google.api_core.retry_async",
        "google.cloud.secretmanager_v1.services.secret_manager_service.transports",
    )
    secrets = Secrets(library, _error_details(directory))
    pool = ThreadPoolExecutor(4)
    server = grpc.server(pool)
    server.add_generic_rpc_handlers((secrets.handlers(),))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        transport = services.SecretManagerServiceGrpcTransport
        with stack.insecure_channel(target) as channel:
            client = library.SecretManagerServiceClient(transport=transport(channel=channel))
            cases = Cases(client, secrets, (errors, retry.Retry))
            await _run_cases("blocking", cases, secrets)
        transport = services.SecretManagerServiceGrpcAsyncIOTransport
        async with stack.aio.insecure_channel(target) as channel:
            client = library.SecretManagerServiceAsyncClient(transport=transport(channel=channel))
            cases = Cases(client, secrets, (errors, retry_async.AsyncRetry))
            await _run_cases("asyncio", cases, secrets)
    finally:
        secrets.is_stopped.set()
        server.stop(None).wait()
        pool.shutdown()


async def _run_cases(how: str, cases: Cases, secrets: Secrets) -> None:
    for name in CASES:
        secrets.calls = 0
        reason = None
        try:
            async with asyncio.timeout(_CASE_TIMEOUT_S):
                await getattr(cases, name)()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        print(json.dumps([f"{name}, {how}", reason]), flush=True)


def main(stack: str, directory: str) -> None:
    asyncio.run(run(load_stack(stack), directory))


if __name__ == "__main__":
    main(*sys.argv[1:])
