"""XdsClient: registry of resource watchers, and their notification.

Specs: A27, A40 (dump), A46, A47, A53, A57, A71, A88.

The client applies the outcomes of responses, resource timeouts and changes of reachability to the
entries of watched resources. Changes of subscriptions are sent once per turn of the loop.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxyless.base import Status, StatusCode, one_line, quote
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.xds.bootstrap.resource_names import servers_of
from proxyless.xds.client.api import (
    Cancel,
    DecodeContext,
    NoAnswer,
    ResourceDump,
    ResourceStatus,
    ResourceType,
    ResourceWatcher,
    ServerView,
    XdsClientOptions,
)
from proxyless.xds.client.authorities import AuthorityServers, canonicalize_name
from proxyless.xds.client.cache import Entry
from proxyless.xds.client.connection import Connection
from proxyless.xds.client.notifications import (
    LOGGER,
    Notification,
    NotificationQueue,
    ResourceNotification,
    Watch,
)
from proxyless.xds.client.response import Outcome, make_rules
from proxyless.xds.client.transport import TransportFactory, Transports
from proxyless.xds.error_texts import about, name_resource, name_server, with_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from proxyless.xds.bootstrap import Bootstrap, ServerConfig
    from proxyless.xds.client.config_file import SavedResource
    from proxyless.xds.client.last_good import LastGood
    from proxyless.xds.client.load_counters import ClusterLoad
    from proxyless.xds.client.lrs import LoadReporting
    from proxyless.xds.client.metrics import ClientMetrics
    from proxyless.xds.client.retried_stream import Tools

T = TypeVar("T")

NAME_CHARACTERS_MAX: Final = 4_096
# A subscription to this name would be one to all resources of a server.
WILDCARD: Final = "*"
# Errors that no NACK reports, so the client logs them.
_LOGGED_STATUSES: Final = (ResourceStatus.DOES_NOT_EXIST, ResourceStatus.RECEIVED_ERROR)


class XdsClient:
    """Client of control planes. Owns its connections and the entries of watched resources."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        transports: TransportFactory,
        tools: Tools,
        options: XdsClientOptions = XdsClientOptions(),  # noqa: B008 - frozen
        metrics: Metrics = NO_METRICS,
        *,
        last_good: LastGood | None = None,
    ) -> None:
        # Fixed at construction.
        self.bootstrap = bootstrap
        self._tools = tools
        self._options = options
        self._queue = NotificationQueue(tools.clock)
        self._transports = Transports(transports, self._queue)
        # None until load is counted for a server.
        self._loads: LoadReporting | None = None
        # Authorities with watched resources, and the number of these.
        self._authorities: dict[str | None, AuthorityServers[Connection]] = {}
        self._resources = 0
        # Servers in use.
        self._connections: dict[ServerConfig, Connection] = {}
        # Until the next flush: entries without watchers, and connections with changes.
        self._abandoned: dict[Entry, None] = {}
        self._unflushed: dict[Connection, None] = {}
        self._is_flush_queued = False
        self._is_closed = False
        self._metrics = self._measure(metrics) if metrics.active else None
        # None unless the bootstrap has a config cache.
        self._last_good = last_good
        if last_good is not None:
            last_good.start(self)

    def _measure(self, metrics: Metrics) -> ClientMetrics:
        from proxyless.xds.client.metrics import ClientMetrics  # noqa: PLC0415 - few clients

        return ClientMetrics(metrics, self)

    # Called by users

    def watch(
        self, resource_type: ResourceType[T], name: str, watcher: ResourceWatcher[T]
    ) -> Cancel:
        """Notify this watcher from the next turn on, until the watch is cancelled."""
        if self._is_closed:
            raise ValueError(f"xds client is closed: {name!r} cannot be watched")
        watch = Watch(watcher)
        entry = self._find_or_add(resource_type, name)
        if isinstance(entry, Status):
            self._queue.notify((watch,), ResourceNotification(entry))
            return watch.cancel
        is_new = not entry.watches and entry not in self._abandoned
        entry.watches[watch] = None
        self._abandoned.pop(entry, None)
        for notification in entry.initial_notifications():
            self._queue.notify((watch,), notification)
        if is_new:
            self._on_new_entry(entry)
        return partial(self._cancel, entry, watch)

    def load_stats(self, server: ServerConfig, cluster: str, eds_service: str) -> ClusterLoad:
        """Load counter of a cluster for reports to this server, to be released."""
        if self._is_closed:
            raise ValueError(f"xds client is closed: load of {cluster!r} cannot be reported")
        if self._loads is None:
            from proxyless.xds.client.lrs import LoadReporting  # noqa: PLC0415 - seldom used

            self._loads = LoadReporting(self.bootstrap.node, self._transports, self._tools)
        return self._loads.acquire(server, cluster, eds_service)

    def dump(self) -> list[ResourceDump]:
        """All watched resources with their status (A40)."""
        return [dump for entry in self.all_entries() for dump in entry.dumps()]

    def servers(self) -> list[ServerView]:
        """Servers in use, the preferred one first."""
        return [connection.view() for connection in self._connections.values()]

    def close(self) -> None:
        """Close all connections; no watcher is called any more. Idempotent."""
        self._is_closed = True
        if self._metrics is not None:
            self._metrics.close()
        if self._last_good is not None:
            self._last_good.close()
        self._queue.close()
        if self._loads is not None:
            self._loads.close()
        for connection in list(self._connections.values()):
            self._disconnect(connection)
        self._authorities.clear()
        self._abandoned.clear()

    # Entries

    def _find_or_add(self, resource_type: ResourceType[Any], name: str) -> Entry | Status:
        type_url = resource_type.type_url
        parsed = canonicalize_name(name, type_url)
        if isinstance(parsed, Status):
            return self._reject(type_url, name, parsed.details)
        authority_name, canonical = parsed
        authority = self._authorities.get(authority_name)
        entry = authority.find(type_url, canonical) if authority is not None else None
        if entry is not None:
            return entry
        reason = self._check_name(name)
        if reason is not None:
            return self._reject(type_url, name, reason)
        found = authority or self._add_authority(authority_name)
        if isinstance(found, Status):
            return self._reject(type_url, name, found.details)
        entry = Entry(resource_type, canonical, authority_name)
        found.add(entry)
        self._resources += 1
        return entry

    def _check_name(self, name: str) -> str | None:
        if name == WILDCARD:
            return "the wildcard cannot be watched"
        if len(name) > NAME_CHARACTERS_MAX:
            return f"name has {len(name)} characters, wanted at most {NAME_CHARACTERS_MAX}"
        if not name.isascii() and name.encode("utf-8", "replace").decode("utf-8") != name:
            return "name cannot be sent, wanted UTF-8"
        limit = self._options.resources_max
        return f"{limit} resources are watched already" if self._resources >= limit else None

    def _reject(self, type_url: str, name: str, reason: str) -> Status:
        text = about(name_resource(type_url, name), one_line(reason))
        LOGGER.warning("%s", self._with_node(text))
        return Status(StatusCode.UNAVAILABLE, self._with_node(text))

    def _with_node(self, text: str) -> str:
        return with_node(text, self.bootstrap.node.id)

    def _on_new_entry(self, entry: Entry) -> None:
        authority = self._authorities[entry.authority]
        for connection in authority.used:
            connection.subscribe(entry)
        self._use_next_servers(authority)
        last = authority.used[-1]
        if not last.status.is_ok:
            authority.is_in_outage = True
            self._on_outage(entry, last.status)
        elif self._last_good is not None:
            self._last_good.on_new_entry(entry)

    def _on_outage(self, entry: Entry, status: Status) -> None:
        if self._last_good is None or not self._last_good.substitute(entry):
            self._notify(entry, entry.on_outage(status))

    def _cancel(self, entry: Entry, watch: Watch) -> None:
        if watch.is_cancelled:
            return
        watch.cancel()
        entry.watches.pop(watch, None)
        if not entry.watches and not self._is_closed:
            # The entry is kept until the flush, so a new watch in this turn finds it unchanged.
            self._abandoned[entry] = None
            self._queue_flush()

    # Read by gauges, in other threads: a table is copied in one step

    def all_entries(self) -> Iterator[Entry]:
        for authority in list(self._authorities.values()):
            yield from authority

    def reachable_servers(self) -> list[tuple[str, bool]]:
        connections = list(self._connections.values())
        return [(each.server.uri, each.status.is_ok) for each in connections]

    # Servers

    def _add_authority(self, name: str | None) -> AuthorityServers[Connection] | Status:
        servers = servers_of(self.bootstrap, name)
        if isinstance(servers, Status):
            return servers
        entry = self.bootstrap.authorities.get(name) if name is not None else None
        is_strict = entry is not None and entry.fallback_on_reachability_only
        authority = AuthorityServers[Connection](name, servers, on_reachability_only=is_strict)
        self._authorities[name] = authority
        self._use(authority, servers[0])
        return authority

    def _use(self, authority: AuthorityServers[Connection], server: ServerConfig) -> None:
        """Subscribe to all resources of this authority at this server, too."""
        connection = self._connections.get(server) or self._connect(server)
        connection.authorities[authority.name] = authority
        authority.used.append(connection)
        for entry in authority:
            connection.subscribe(entry)

    def _connect(self, server: ServerConfig) -> Connection:
        connection = self._connections[server] = Connection(
            DecodeContext(server, self.bootstrap),
            self._transports.acquire(server),
            rules=make_rules(server, self._options),
            tools=self._tools,
            queue=self._queue,
            owner=self,
        )
        return connection

    def _unuse(self, authority: AuthorityServers[Connection], connection: Connection) -> None:
        del connection.authorities[authority.name]
        if not connection.authorities:
            self._disconnect(connection)
            return
        for entry in authority:
            connection.unsubscribe(entry)

    def _disconnect(self, connection: Connection) -> None:
        connection.close()
        self._unflushed.pop(connection, None)
        del self._connections[connection.server]
        self._transports.release(connection.server)

    def _use_next_servers(self, authority: AuthorityServers[Connection]) -> None:
        while authority.needs_next(is_reachable=authority.used[-1].status.is_ok):
            server = authority.next_server
            assert server is not None, "an authority needs a next server only if it has one"
            lost = name_server(authority.used[-1].server.uri)
            LOGGER.warning("%s: falling back to %s", lost, quote(server.uri))
            self._use(authority, server)

    # Called by `LastGood`

    def saved_context(self, entry: Entry) -> DecodeContext:
        # Which of the servers sent it is not saved, so it is trusted like the least trusted one.
        servers = servers_of(self.bootstrap, entry.authority)
        assert not isinstance(servers, Status), "the authority of an entry has servers"
        untrusted = [server for server in servers if not server.is_trusted]
        return DecodeContext((untrusted or servers)[0], self.bootstrap)

    def on_saved(self, entry: Entry, resource: Any, saved: SavedResource) -> None:  # noqa: ANN401
        self._notify(
            entry, entry.on_saved(resource, saved.serialized, saved.version, saved.saved_s)
        )
        self.on_nothing_saved(entry)

    def on_nothing_saved(self, entry: Entry) -> None:
        last = self._authorities[entry.authority].used[-1]
        if not last.status.is_ok:
            self._notify(entry, entry.on_outage(last.status))
        else:
            last.wait_for(entry)

    # Called by connections

    def on_reachable(self, connection: Connection) -> None:
        if self._last_good is not None:
            self._last_good.on_reachable(connection.authorities)
        for authority in list(connection.authorities.values()):
            # "the XdsClient will close connections to the lower-priority server(s)": A71
            for lower in authority.drop_below(connection):
                back, left = name_server(connection.server.uri), quote(lower.server.uri)
                LOGGER.info("%s: is back, %s is not used any more", back, left)
                self._unuse(authority, lower)
            if authority.is_in_outage:
                authority.is_in_outage = False
                for entry in authority:
                    self._notify(entry, entry.on_reachable())
                    authority.update_unanswered(entry)

    def on_failure(self, connection: Connection) -> None:
        if self._metrics is not None:
            self._metrics.on_server_failure(connection.server.uri)

    def on_unreachable(self, connection: Connection) -> None:
        for authority in list(connection.authorities.values()):
            self._use_next_servers(authority)
            last = authority.used[-1]
            # "only be notified of connectivity failures after all xDS control planes … have
            # become unreachable" - A71; while everything is cached, only the first is used.
            if not last.status.is_ok:
                authority.is_in_outage = True
                for entry in authority:
                    self._on_outage(entry, last.status)

    def apply(self, connection: Connection, outcome: Outcome) -> None:
        """Update all entries; their watchers are called in the next turn."""
        uri, version = connection.server.uri, outcome.version
        if self._metrics is not None:
            self._metrics.on_response(uri, outcome.type_url, outcome.valid, outcome.invalid)
        # Only incremental responses have versions of single resources.
        versions = outcome.versions
        for entry in outcome.unchanged:
            entry.version = versions.get(entry.name, version) if versions else version
        now_s = self._tools.clock.now_s()
        for update in outcome.updates:
            entry = update.entry
            its_version = versions.get(entry.name, version) if versions else version
            notification = update.apply(its_version, now_s)
            if notification is not None and update.status in _LOGGED_STATUSES:
                LOGGER.warning("%s", update.value.details)
            self._authorities[entry.authority].update_unanswered(entry)
            self._notify(entry, notification)
        if self._last_good is not None:
            self._last_good.on_answer()

    def on_timeout(self, connection: Connection, entry: Entry, *, no_answer: str) -> None:
        if no_answer and self._last_good is not None and self._last_good.substitute(entry):
            # It was not used after the wait, because an earlier stream had a response.
            return
        rules, authority = connection.rules, self._authorities[entry.authority]
        what = f"not sent by {name_server(connection.server.uri)} in {rules.timeout_s:g} s"
        if no_answer:
            what += no_answer
        elif rules.timeout_code is StatusCode.NOT_FOUND:
            what = f"does not exist ({what})"
        text = self._with_node(f"{name_resource(*entry.key)}: {what}")
        LOGGER.warning("%s", text)
        status = (NoAnswer if no_answer else Status)(rules.timeout_code, text)
        self._notify(entry, entry.on_timeout(status))
        authority.update_unanswered(entry)
        authority.is_in_outage |= bool(no_answer)
        if self._last_good is not None:
            self._last_good.on_answer()

    # In the next turn of the loop

    def request_flush(self, connection: Connection) -> None:
        self._unflushed[connection] = None
        self._queue_flush()

    def _queue_flush(self) -> None:
        if not self._is_flush_queued:
            self._is_flush_queued = True
            self._queue.call(self._flush)

    def _flush(self) -> None:
        """Send the changes of subscriptions: one request per type and server."""
        abandoned, self._abandoned = self._abandoned, {}
        for entry in abandoned:
            self._drop(entry)
        # `_drop` requests a flush, which is this one.
        self._is_flush_queued = False
        unflushed, self._unflushed = self._unflushed, {}
        for connection in unflushed:
            connection.flush()

    def _drop(self, entry: Entry) -> None:
        authority = self._authorities[entry.authority]
        authority.remove(entry)
        self._resources -= 1
        for connection in list(authority.used):
            connection.unsubscribe(entry)
            if authority.is_empty:
                self._unuse(authority, connection)
        if authority.is_empty:
            del self._authorities[entry.authority]

    def _notify(self, entry: Entry, notification: Notification | None) -> None:
        if notification is not None and entry.watches:
            self._queue.notify(entry.watches, notification)
