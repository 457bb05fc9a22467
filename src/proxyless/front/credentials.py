"""Channel and call credentials: ours, and conversions from grpcio's.

grpcio's objects are converted if Python can read their content: certificates, composites, metadata
plugins. Those that exist in grpcio's C++ only (ALTS, compute engine, custom signers) raise a
TypeError that names a replacement.

Errors of plugins may have secrets in their texts, such as the body of a token server's response.
Their texts are logged at DEBUG, and are not in the details of RPCs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import grpc

from proxyless.base import InvalidMetadataError, Metadata, Status, StatusCode, one_line
from proxyless.base.frozen import frozen
from proxyless.channel.credentials import (
    CallCredentials,
    CombinedCredentials,
    OnMetadata,
    Withdraw,
)
from proxyless.front.conversions import MetadataLike, to_metadata

if TYPE_CHECKING:
    from proxyless.transport import ClientTls, TlsSessions

# Call credentials of an application: takes the service URL and the path, returns metadata.
MetadataFunction = Callable[[str, str], Awaitable[MetadataLike]]


_LOGGER: Final = logging.getLogger("proxyless.channel")
# The first words are grpcio's.
_PLUGIN_FAILED: Final = "Getting metadata from plugin failed with error"
_SEE_LOG: Final = "its text is logged by proxyless.channel at DEBUG"
_NO_SIGNER: Final = (
    "channel credentials have a custom signer, which Python's ssl module cannot call:"
    " wanted grpc.ssl_channel_credentials(...) with the private key"
)
# By the name of grpcio's class.
_REPLACEMENTS: Final = {
    "ALTSChannelCredentials": "TLS, as in grpc.ssl_channel_credentials(...)",
    "ComputeEngineChannelCredentials": (
        "TLS and a token, as in"
        " grpc.composite_channel_credentials(grpc.ssl_channel_credentials(), call_credentials)"
    ),
}


# Kept as long as grpcio's cache, or a channel that uses them.
_tls_sessions: WeakKeyDictionary[object, TlsSessions] = WeakKeyDictionary()


@frozen(eq=False)
class ChannelCredentials:
    """Security of a channel's connections, and the call credentials of its RPCs."""

    tls: ClientTls | None
    # Whether call credentials may be sent: over TLS, or on this machine only.
    is_private: bool
    # Only addresses on this machine may be connected to.
    is_local: bool = False
    call_credentials: tuple[CallCredentials, ...] = ()
    # The control plane configures the security of each cluster; the above is the fallback (A29).
    is_xds: bool = False


def ssl_channel_credentials(
    root_certificates: bytes | None = None,
    private_key: bytes | None = None,
    certificate_chain: bytes | None = None,
) -> ChannelCredentials:
    """TLS. The default roots are the system's; key and chain identify the client."""
    from proxyless.transport.tls import ClientTls  # noqa: PLC0415 - only with TLS

    tls = ClientTls(
        root_certificates=root_certificates,
        private_key=private_key,
        certificate_chain=certificate_chain,
    )
    return ChannelCredentials(tls, is_private=True)


def local_channel_credentials() -> ChannelCredentials:
    """No encryption, but only to this machine: loopback addresses and unix sockets."""
    return ChannelCredentials(None, is_private=True, is_local=True)


def insecure_channel_credentials() -> ChannelCredentials:
    """No encryption."""
    return ChannelCredentials(None, is_private=False)


def composite_channel_credentials(
    channel_credentials: Any, *call_credentials: Any
) -> ChannelCredentials:
    """Channel credentials with call credentials."""
    channel = to_channel_credentials(channel_credentials)
    added = tuple(to_call_credentials(each) for each in call_credentials)
    return replace(channel, call_credentials=channel.call_credentials + added)


def xds_channel_credentials(
    fallback_credentials: ChannelCredentials | grpc.ChannelCredentials | None = None,
) -> ChannelCredentials:
    """Security that the control plane configures for each cluster.

    The fallback, TLS by default, is used for clusters without a TLS configuration and for targets
    that are not `xds:`, but never after TLS has failed. Call credentials are sent only if the
    fallback is private, too.
    """
    fallback = to_channel_credentials(
        ssl_channel_credentials() if fallback_credentials is None else fallback_credentials
    )
    if fallback.is_xds:
        raise TypeError("fallback credentials are xDS credentials, wanted any others")
    if fallback.call_credentials:
        raise TypeError(
            "fallback credentials have call credentials, wanted those around the whole: "
            "composite_channel_credentials(xds_channel_credentials(...), ...)"
        )
    return replace(fallback, is_xds=True)


def to_channel_credentials(credentials: object) -> ChannelCredentials:
    """Convert an application's credentials. Raises TypeError if their content is not accessible."""
    if isinstance(credentials, ChannelCredentials):
        return credentials
    inner: Any = getattr(credentials, "_credentials", credentials)
    if hasattr(inner, "_pem_root_certificates"):
        if getattr(inner, "_private_key_signer", None) is not None:  # A107
            raise TypeError(_NO_SIGNER)
        return ssl_channel_credentials(
            inner._pem_root_certificates, inner._private_key, inner._certificate_chain
        )
    if hasattr(inner, "_call_credentialses") and hasattr(inner, "_channel_credentials"):
        return composite_channel_credentials(inner._channel_credentials, *inner._call_credentialses)
    if hasattr(inner, "_fallback_credentials"):
        return xds_channel_credentials(inner._fallback_credentials)
    if type(inner).__name__ == "LocalChannelCredentials":
        return local_channel_credentials()
    if type(inner).__name__ == "InsecureChannelCredentials":
        return insecure_channel_credentials()
    raise TypeError(f"channel credentials are {_describe_unreadable(credentials, inner)}")


def _describe_unreadable(credentials: object, inner: object) -> str:
    """Name of the credentials, the reason why they cannot be used, and a replacement."""
    name = type(inner).__name__
    wanted = _REPLACEMENTS.get(
        name, "proxyless.ssl_channel_credentials(...) or grpc.ssl_channel_credentials(...)"
    )
    # Credentials inside a composite are not a grpc.ChannelCredentials.
    is_of_grpcio = name in _REPLACEMENTS or isinstance(credentials, grpc.ChannelCredentials)
    reason = ", which only grpcio itself can use" if is_of_grpcio else ""
    return f"{name}{reason}: wanted {wanted}"


def to_tls_sessions(name: str, cache: object) -> TlsSessions:
    """Our session cache for a session cache of grpcio, whose content is in C++."""
    # Imported already, if it is such a cache.
    from grpc.experimental.session_cache import SSLSessionCache  # noqa: PLC0415

    if not isinstance(cache, SSLSessionCache):
        wanted = "grpc.experimental.session_cache.ssl_session_cache_lru(...)"
        raise TypeError(f"option {name!r} is {cache!r}, wanted {wanted}")
    from proxyless.transport.tls_sessions import TlsSessions  # noqa: PLC0415 - only with TLS

    return _tls_sessions.setdefault(cache, TlsSessions())


def to_call_credentials(credentials: object) -> CallCredentials:
    """Convert an application's call credentials. Raises TypeError if that is not possible."""
    if isinstance(credentials, _PluginCredentials | _FunctionCredentials | CombinedCredentials):
        return credentials
    inner = getattr(credentials, "_credentials", credentials)
    if hasattr(inner, "_metadata_plugin"):
        return _PluginCredentials(inner._metadata_plugin)
    if hasattr(inner, "_call_credentialses"):
        parts = tuple(to_call_credentials(each) for each in inner._call_credentialses)
        return CombinedCredentials(parts)
    if inspect.iscoroutinefunction(credentials):
        return _FunctionCredentials(credentials)
    raise TypeError(
        f"call credentials are {type(credentials).__name__}: wanted grpc.CallCredentials,"
        " or an async function of service URL and path"
    )


def _checked(pairs: MetadataLike | None) -> Metadata | Status:
    try:
        return to_metadata(pairs)
    except (ValueError, TypeError) as error:
        return Status(StatusCode.UNAVAILABLE, f"call credentials gave bad metadata: {error}")


class UnsendableMetadata:
    """Call credentials that fail an RPC with invalid metadata.

    As with grpcio, the RPC fails; the stub does not raise.
    """

    def __init__(self, error: InvalidMetadataError) -> None:
        # The first words are grpcio's.
        self._status = Status(StatusCode.INTERNAL, f"Invalid metadata: {error}")

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        on_metadata(self._status)


class InCallersContext:
    """Call credentials that run in a copy of the caller's context, which is in another thread."""

    def __init__(self, credentials: CallCredentials) -> None:
        self._credentials = credentials
        self._context = copy_context()

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw | None:
        return self._context.run(self._credentials.request, service_url, path, on_metadata)


class _PluginCredentials:
    """A metadata plugin of grpcio. It may block, and may call back in any thread.

    It runs with the context variables of the caller and, as in grpcio, with those of the context in
    which the credentials were created; the caller's take precedence.
    """

    def __init__(self, plugin: Callable[..., None]) -> None:
        self._plugin = plugin
        # Set by grpcio on plugins that it wraps.
        self._creation_context: Context | None = getattr(plugin, "_stored_ctx", None)

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw:
        loop = asyncio.get_running_loop()
        caller = copy_context()
        is_withdrawn = False

        def deliver(found: Metadata | Status) -> None:
            with suppress(RuntimeError):  # The loop is closed.
                # In the caller's context, because credentials that follow are requested there.
                loop.call_soon_threadsafe(on_metadata, found, context=caller)

        def on_result(metadata: Any, _code: object, error: bytes | str | None) -> None:
            deliver(_checked(metadata) if error is None else _plugin_failed(error))

        def run() -> None:
            if is_withdrawn:
                return
            try:
                # The service is part of the URL, so only the method's name is passed.
                self._plugin(service_url, path.rpartition("/")[2], on_result)
            except BaseException as error:  # Any exception: the RPC waits for the result.
                deliver(_unavailable(f"{_PLUGIN_FAILED}: {_describe_hidden(error)}"))

        def withdraw() -> None:
            nonlocal is_withdrawn
            is_withdrawn = True

        # In a thread, as in grpcio: plugins fetch tokens, and block.
        try:
            from proxyless.front.plugin_threads import plugin_threads  # noqa: PLC0415 - rare

            plugin_threads().post(partial(self._context_for(caller).run, run))
        except RuntimeError as error:
            deliver(_unavailable(f"{_PLUGIN_FAILED}: {error}"))
        return withdraw

    def _context_for(self, caller: Context) -> Context:
        context, created = caller.copy(), self._creation_context
        for variable, value in () if created is None else created.items():
            if variable not in caller:
                context.run(variable.set, value)
        return context


def _plugin_failed(error: bytes | str) -> Status:
    """The status for an error that a plugin passes on, of which grpcio keeps the text only."""
    text = error.decode("utf-8", "replace") if isinstance(error, bytes) else error
    _LOGGER.debug("call credentials: %s", one_line(text))
    return _unavailable(f"{_PLUGIN_FAILED}: {_SEE_LOG}")


def _describe_hidden(error: BaseException) -> str:
    """The type of an exception, whose text is only logged."""
    name = type(error).__name__
    _LOGGER.debug("call credentials: %s: %s", name, one_line(str(error)))
    return f"{name} ({_SEE_LOG})"


def _unavailable(details: str) -> Status:
    return Status(StatusCode.UNAVAILABLE, details)


class _FunctionCredentials:
    """An async function of the application."""

    def __init__(self, function: MetadataFunction) -> None:
        self._function = function
        self._tasks: set[asyncio.Task[None]] = set()

    def request(self, service_url: str, path: str, on_metadata: OnMetadata) -> Withdraw:
        task = asyncio.get_running_loop().create_task(self._run(service_url, path, on_metadata))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def withdraw() -> None:
            # Not from within the task itself, when it calls `on_metadata`.
            if task is not asyncio.current_task():
                task.cancel()

        return withdraw

    async def _run(self, service_url: str, path: str, on_metadata: OnMetadata) -> None:
        found: Metadata | Status
        try:
            found = _checked(await self._function(service_url, path))
        except asyncio.CancelledError:
            on_metadata(Status(StatusCode.UNAVAILABLE, "call credentials were cancelled"))
            raise
        except Exception as error:
            found = _unavailable(f"call credentials raised {_describe_hidden(error)}")
        on_metadata(found)
