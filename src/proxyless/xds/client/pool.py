"""Pool of xDS clients, shared by the channels of one loop.

Specs: A71 (a client per data-plane target).

By default each target has a client of its own, so that its fallback has no effect on other targets.
A control plane behind a unix socket is an agent on this machine, which may serve one stream only
(Istio's drops all but the newest), so all targets share one client; so do targets whose resources
are files. How to choose otherwise: docs/howto/one-ads-stream.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from proxyless.metrics import NO_METRICS, Metrics
from proxyless.xds.bootstrap.bootstrap import FILE_SCHEME
from proxyless.xds.client.api import XdsClientOptions
from proxyless.xds.client.client import XdsClient

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from proxyless.xds.bootstrap import Bootstrap
    from proxyless.xds.client.last_good import LastGood
    from proxyless.xds.client.retried_stream import Tools
    from proxyless.xds.client.transport import TransportFactory

# Target label of a client that several targets share; A78 has no such clients.
SHARED_TARGET: Final = "#shared"

# Bootstrap; target, "" for a shared client; the users' own registries of policies and filters.
_Scope: TypeAlias = "tuple[Bootstrap, str, Hashable]"


class XdsClients:
    """Clients of one loop, by bootstrap and target."""

    def __init__(
        self,
        transports: TransportFactory,
        tools: Tools,
        options: XdsClientOptions = XdsClientOptions(),  # noqa: B008 - frozen
    ) -> None:
        # Fixed at construction.
        self._transports = transports
        self._tools = tools
        self._options = options
        self._clients: dict[_Scope, XdsClient] = {}
        self._scopes: dict[XdsClient, _Scope] = {}
        self._users: dict[XdsClient, int] = {}

    def acquire(
        self,
        bootstrap: Bootstrap,
        target: str,
        shared: bool | None = None,
        *,
        registries: Hashable = None,
        metrics: Metrics = NO_METRICS,
        transports: TransportFactory | None = None,
    ) -> XdsClient:
        """The client for a target, to be released. `shared` overrides the default of the server.

        A client decodes each resource once, so a user with its own `registries` of policies and
        filters gets a client of its own, unless the stream is shared. A new client uses these
        `transports`, or those of the pool.
        """
        is_shared = is_agent(bootstrap) if shared is None else shared
        scope = (bootstrap, "", None) if is_shared else (bootstrap, target, registries)
        client = self._clients.get(scope)
        if client is None:
            if is_shared and metrics.active:
                metrics = Metrics(SHARED_TARGET, metrics.plugins)
            # "the XdsClient will use the stats plugins provided by the first channel created with
            # that target" - A79
            client = XdsClient(
                bootstrap,
                # "The shared client is created using the options from the first parent channel" -
                # A110
                transports or self._transports,
                self._tools,
                self._options,
                metrics,
                last_good=self._make_last_good(bootstrap, scope[1]),
            )
            self._clients[scope], self._scopes[client] = client, scope
        self._users[client] = self._users.get(client, 0) + 1
        return client

    def _make_last_good(self, bootstrap: Bootstrap, target: str) -> LastGood | None:
        config = bootstrap.config_cache
        if config is None:
            return None
        # Imported where the feature is used.
        from proxyless.runtime.offload import thread_offload  # noqa: PLC0415
        from proxyless.xds.client.config_file import ClientIdentity  # noqa: PLC0415
        from proxyless.xds.client.config_store import ConfigStore  # noqa: PLC0415
        from proxyless.xds.client.last_good import LastGood  # noqa: PLC0415

        offload = thread_offload("proxyless-config-cache", "the config cache")
        store = ConfigStore(config, ClientIdentity.of(bootstrap, target))
        clock, work = self._tools.clock, self._tools.work
        return LastGood(store, clock, work, offload, keeps_unwatched=not target)

    def release(self, client: XdsClient) -> None:
        """Called once for each time the client was acquired; the last release closes it."""
        if client not in self._users:
            raise ValueError("xds client is released more often than it was acquired")
        self._users[client] -= 1
        if not self._users[client]:
            self._drop(client)

    def _drop(self, client: XdsClient) -> None:
        del self._users[client]
        del self._clients[self._scopes.pop(client)]
        client.close()

    @property
    def by_scope(self) -> Mapping[str, list[XdsClient]]:
        """Clients by target, "" for a shared one (A40)."""
        found: dict[str, list[XdsClient]] = {}
        for (_, scope, _), client in self._clients.items():
            found.setdefault(scope, []).append(client)
        return found

    def close(self) -> None:
        """Close every client, even if it is in use. Idempotent."""
        for client in list(self._users):
            self._drop(client)


def is_agent(bootstrap: Bootstrap) -> bool:
    """Whether the first server is an agent on this machine, or a directory of files."""
    return bootstrap.servers[0].uri.startswith(("unix:", "unix-abstract:", FILE_SCHEME))
