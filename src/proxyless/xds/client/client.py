"""Who watches what, and who has to be told?

Specs: A27, A40 (dump), A46, A47, A53, A57, A71, A88.

The shell of this room: it owns the connections to servers, the entries of what is watched, and two
queues that are emptied once per turn of the loop: changed subscriptions, which become requests, and
news, which go to watchers. Because news wait for the next turn, no watcher is called inside a call
of its own; because the next message is asked for behind them in the same queue, a control plane
cannot be faster than the watchers.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from proxyless.base import Status, StatusCode, one_line, quote
from proxyless.base.frozen import frozen
from proxyless.metrics import NO_METRICS, Metrics
from proxyless.runtime import IDLE_TIMER, Timer
from proxyless.xds.bootstrap.resource_names import servers_of
from proxyless.xds.client.api import DecodeContext
from proxyless.xds.client.cache import Entry, ResourceNews, Watch
from proxyless.xds.client.connection import LOGGER, Connection
from proxyless.xds.client.fallback import Authority, place_name
from proxyless.xds.client.lrs import LoadReporting
from proxyless.xds.client.metrics import ClientMetrics
from proxyless.xds.client.response import ErrorRules, Ingestion
from proxyless.xds.client.transports import Transports
from proxyless.xds.error_texts import about, name_resource, name_server, with_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from proxyless.xds.bootstrap import Bootstrap, ServerConfig
    from proxyless.xds.client.api import (
        Cancel,
        ResourceDump,
        ResourceType,
        ResourceWatcher,
        ServerView,
    )
    from proxyless.xds.client.cache import News
    from proxyless.xds.client.codec import DiscoveryResponse
    from proxyless.xds.client.connection import ResourceKey
    from proxyless.xds.client.load import ClusterLoad
    from proxyless.xds.client.response import Outcome
    from proxyless.xds.client.stream import Tools
    from proxyless.xds.client.transport import TransportFactory

T = TypeVar("T")

# "15-second timeout" - A57; "30 seconds instead of 15" - A88
DOES_NOT_EXIST_TIMEOUT_S: Final = 15.0
TRANSIENT_TIMEOUT_S: Final = 30.0

DATA_ERROR_VARIABLE: Final = "GRPC_EXPERIMENTAL_XDS_DATA_ERROR_HANDLING"

# A control plane decides what is watched, so there is a limit.
RESOURCES_MAX: Final = 100_000
NAME_CHARACTERS_MAX: Final = 4_096


@frozen(kw_only=True)
class XdsClientOptions:
    """How a client behaves beyond what the bootstrap says."""

    # A88's treatment of bad data instead of the seed's (D26).
    has_data_error_handling: bool = False
    resources_max: int = RESOURCES_MAX

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> XdsClientOptions:
        """As the variables of gRPC ask for (D26)."""
        return cls(has_data_error_handling=environ.get(DATA_ERROR_VARIABLE, "").lower() == "true")


class XdsClient:
    """One client of control planes. Driven by its users, its connections and the clock."""

    def __init__(
        self,
        bootstrap: Bootstrap,
        transports: TransportFactory,
        tools: Tools,
        options: XdsClientOptions = XdsClientOptions(),  # noqa: B008 - frozen
        metrics: Metrics = NO_METRICS,
    ) -> None:
        # Fixed at construction.
        self.bootstrap = bootstrap
        self._tools = tools
        self._options = options
        self._transports = Transports(transports, tools.clock)
        self._loads = LoadReporting(bootstrap.node, self._transports, tools)
        # What is watched.
        self._types: dict[str, ResourceType[Any]] = {}
        self._authorities: dict[str | None, Authority[Connection]] = {}
        self._resources = 0
        # Who is asked, and for which authorities.
        self._connections: dict[ServerConfig, Connection] = {}
        self._users: dict[Connection, dict[Authority[Connection], None]] = {}
        # Until the end of this turn.
        self._news: deque[tuple[Watch, News] | Callable[[], None]] = deque()
        self._news_timer: Timer = IDLE_TIMER
        self._abandoned: dict[Entry, None] = {}
        self._unflushed: dict[Connection, None] = {}
        self._flush_timer: Timer = IDLE_TIMER
        self._is_closed = False
        self._metrics = ClientMetrics(metrics, self)

    # For the users

    def watch(
        self, resource_type: ResourceType[T], name: str, watcher: ResourceWatcher[T]
    ) -> Cancel:
        """Tell this watcher about the resource, soon and from then on, until it is cancelled."""
        if self._is_closed:
            raise ValueError(f"xds client is closed: {name!r} cannot be watched")
        watch = Watch(watcher)
        entry = self._find_or_add(resource_type, name)
        if isinstance(entry, Status):
            self._post(watch, ResourceNews(entry))
            return partial(_cancel_watch, watch)
        is_new = not entry.watches and entry not in self._abandoned
        entry.watches[watch] = None
        self._abandoned.pop(entry, None)
        for news in entry.greet():
            self._post(watch, news)
        if is_new:
            self._on_new_entry(entry)
        return partial(self._cancel, entry, watch)

    def load_stats(self, server: ServerConfig, cluster: str, eds_service: str) -> ClusterLoad:
        """Where the load of a cluster is counted for reports to this server, until released."""
        if self._is_closed:
            raise ValueError(f"xds client is closed: load of {cluster!r} cannot be reported")
        return self._loads.acquire(server, cluster, eds_service)

    def dump(self) -> list[ResourceDump]:
        """All that is watched, and where it stands (A40)."""
        return [entry.dump() for entry in self.all_entries()]

    def servers(self) -> list[ServerView]:
        """Those that are asked now, the preferred one first."""
        return [connection.view() for connection in self._connections.values()]

    def close(self) -> None:
        """Let go of everything; no watcher is called any more. Idempotent."""
        self._is_closed = True
        self._metrics.close()
        self._news_timer.cancel()
        self._flush_timer.cancel()
        self._news.clear()
        self._loads.close()
        for connection in list(self._connections.values()):
            self._disconnect(connection)
        self._authorities.clear()
        self._abandoned.clear()

    # Entries

    def _find_or_add(self, resource_type: ResourceType[Any], name: str) -> Entry | Status:
        type_url = resource_type.type_url
        placed = place_name(name, type_url)
        if isinstance(placed, Status):
            return self._refusal(type_url, name, placed.details)
        authority_name, spelled = placed
        authority = self._authorities.get(authority_name)
        entry = authority.find(type_url, spelled) if authority is not None else None
        if entry is not None:
            return entry
        reason = self._refuse_name(name)
        if reason is not None:
            return self._refusal(type_url, name, reason)
        found = authority or self._add_authority(authority_name)
        if isinstance(found, Status):
            return self._refusal(type_url, name, found.details)
        self._types[type_url] = resource_type
        entry = Entry(resource_type, spelled, authority_name)
        found.add(entry)
        self._resources += 1
        return entry

    def _refuse_name(self, name: str) -> str | None:
        if len(name) > NAME_CHARACTERS_MAX:
            return f"name has {len(name)} characters, wanted at most {NAME_CHARACTERS_MAX}"
        if not name.isascii() and name.encode("utf-8", "replace").decode("utf-8") != name:
            return "name cannot be sent, wanted UTF-8"
        limit = self._options.resources_max
        return f"{limit} resources are watched already" if self._resources >= limit else None

    def _refusal(self, type_url: str, name: str, reason: str) -> Status:
        text = about(name_resource(type_url, name), one_line(reason))
        LOGGER.warning("%s", self._with_node(text))
        return Status(StatusCode.UNAVAILABLE, self._with_node(text))

    def _with_node(self, text: str) -> str:
        return with_node(text, self.bootstrap.node.id)

    def _on_new_entry(self, entry: Entry) -> None:
        """Ask the servers in use for it, or the next one if they cannot be reached."""
        authority = self._authorities[entry.authority]
        for connection in authority.used:
            connection.subscribe(_key(entry))
        self._use_next_servers(authority)
        last = authority.used[-1]
        if not last.status.is_ok:
            authority.is_in_outage = True
            self._tell(entry, entry.on_outage(last.status))

    def _cancel(self, entry: Entry, watch: Watch) -> None:
        if watch.is_cancelled:
            return
        watch.is_cancelled = True
        entry.watches.pop(watch, None)
        if not entry.watches and not self._is_closed:
            # Kept until the server is told: who watches again in this turn finds it unchanged.
            self._abandoned[entry] = None
            self._schedule_flush()

    # For whoever measures, in any thread: a table is copied in one step

    def all_entries(self) -> Iterator[Entry]:
        for authority in list(self._authorities.values()):
            yield from authority

    def reachable_servers(self) -> list[tuple[str, bool]]:
        connections = list(self._connections.values())
        return [(each.server.uri, each.status.is_ok) for each in connections]

    # Servers

    def _add_authority(self, name: str | None) -> Authority[Connection] | Status:
        servers = servers_of(self.bootstrap, name)
        if isinstance(servers, Status):
            return servers
        entry = self.bootstrap.authorities.get(name) if name is not None else None
        is_strict = entry is not None and entry.fallback_on_reachability_only
        authority = Authority[Connection](name, servers, on_reachability_only=is_strict)
        self._authorities[name] = authority
        self._use(authority, servers[0])
        return authority

    def _use(self, authority: Authority[Connection], server: ServerConfig) -> None:
        """Ask one more server for all that is watched in this authority."""
        connection = self._connections.get(server)
        if connection is None:
            connection = self._connect(server)
        self._users.setdefault(connection, {})[authority] = None
        authority.used.append(connection)
        for entry in authority:
            connection.subscribe(_key(entry))

    def _connect(self, server: ServerConfig) -> Connection:
        connection = self._connections[server] = Connection(
            server,
            self._transports.acquire(server),
            node=self.bootstrap.node,
            rules=make_rules(server, self._options),
            tools=self._tools,
            owner=self,
        )
        connection.start()
        return connection

    def _unuse(self, authority: Authority[Connection], connection: Connection) -> None:
        users = self._users[connection]
        del users[authority]
        if not users:
            self._disconnect(connection)
            return
        for entry in authority:
            connection.unsubscribe(_key(entry))

    def _disconnect(self, connection: Connection) -> None:
        connection.close()
        self._users.pop(connection, None)
        self._unflushed.pop(connection, None)
        del self._connections[connection.server]
        self._transports.release(connection.server)

    def _use_next_servers(self, authority: Authority[Connection]) -> None:
        while authority.wants_next(is_reachable=authority.used[-1].status.is_ok):
            server = authority.next_server
            assert server is not None, "an authority wants a next server only if it has one"
            lost = name_server(authority.used[-1].server.uri)
            LOGGER.warning("%s: falling back to %s", lost, quote(server.uri))
            self._use(authority, server)

    # What connections say

    def request_flush(self, connection: Connection) -> None:
        self._unflushed[connection] = None
        self._schedule_flush()

    def is_awaited(self, key: ResourceKey) -> bool:
        entry = self._find(key)
        return entry is not None and not entry.is_answered

    def on_contact(self, connection: Connection) -> None:
        for authority in list(self._users.get(connection, ())):
            # "the XdsClient will close connections to the lower-priority server(s)": A71
            for lower in authority.drop_below(connection):
                back, left = name_server(connection.server.uri), quote(lower.server.uri)
                LOGGER.info("%s: is back, %s is not used any more", back, left)
                self._unuse(authority, lower)
            if authority.is_in_outage:
                authority.is_in_outage = False
                for entry in authority:
                    self._tell(entry, entry.on_contact())

    def on_failure(self, connection: Connection) -> None:
        self._metrics.on_server_failure(connection.server.uri)

    def on_unreachable(self, connection: Connection) -> None:
        for authority in list(self._users.get(connection, ())):
            self._use_next_servers(authority)
            last = authority.used[-1]
            # "only be notified of connectivity failures after all xDS control planes … have
            # become unreachable" - A71; with everything at hand, none but the first is asked.
            if not last.status.is_ok:
                authority.is_in_outage = True
                for entry in authority:
                    self._tell(entry, entry.on_outage(last.status))

    def on_response(self, connection: Connection, response: DiscoveryResponse) -> Outcome:
        ingestion = Ingestion(
            self._types[response.type_url],
            DecodeContext(connection.server, self.bootstrap),
            connection.rules,
            shelf=_Shelf(self, connection, response.type_url),
            seen=connection.seen(response.type_url),
            node_id=self.bootstrap.node.id,
        )
        outcome = ingestion.run(response, self._tools.clock.now_s())
        uri, invalid = connection.server.uri, len(outcome.errors)
        self._metrics.on_response(uri, response.type_url, outcome.valid, invalid)
        for entry in outcome.answered:
            connection.stop_waiting_for(_key(entry))
            self._authorities[entry.authority].note_answer(entry)
        for entry, news in outcome.news:
            self._tell(entry, news)
        return outcome

    def on_timeout(self, connection: Connection, key: ResourceKey) -> None:
        entry = self._find(key)
        if entry is None or entry.is_answered:
            return
        rules = connection.rules
        what = f"not sent by {name_server(connection.server.uri)} in {rules.timeout_s:g} s"
        if rules.timeout_code is StatusCode.NOT_FOUND:
            what = f"does not exist ({what})"
        text = self._with_node(f"{name_resource(*key)}: {what}")
        LOGGER.warning("%s", text)
        self._tell(entry, entry.on_timeout(Status(rules.timeout_code, text)))
        self._authorities[entry.authority].note_answer(entry)

    def read_when_told(self, connection: Connection) -> None:
        self._news.append(connection.stream.reader())
        self._schedule_news()

    def find_entry(self, connection: Connection, type_url: str, name: str) -> Entry | None:
        """The entry of a name, if this server may speak for it."""
        placed = place_name(name, type_url)
        if isinstance(placed, Status):
            return None
        authority = self._authorities.get(placed[0])
        if authority is None or authority not in self._users.get(connection, ()):
            return None
        return authority.find(type_url, placed[1])

    def entries_of(self, connection: Connection, type_url: str) -> Iterator[Entry]:
        """Every entry of a type for which this server speaks."""
        for authority in self._users.get(connection, ()):
            yield from authority.entries_of(type_url)

    def _find(self, key: ResourceKey) -> Entry | None:
        type_url, name = key
        placed = place_name(name, type_url)
        assert not isinstance(placed, Status), "only valid names are subscribed to"
        authority = self._authorities.get(placed[0])
        return authority.find(type_url, name) if authority is not None else None

    # Once per turn

    def _schedule_flush(self) -> None:
        if not self._flush_timer.pending and not self._is_closed:
            self._flush_timer = self._tools.clock.call_later(0, self._flush)

    def _flush(self) -> None:
        """Say in one request per type what has changed in this turn."""
        abandoned, self._abandoned = self._abandoned, {}
        for entry in abandoned:
            self._drop(entry)
        unflushed, self._unflushed = self._unflushed, {}
        # What dropping asked for is in this flush.
        self._flush_timer.cancel()
        for connection in unflushed:
            connection.flush()

    def _drop(self, entry: Entry) -> None:
        authority = self._authorities[entry.authority]
        authority.remove(entry)
        self._resources -= 1
        for connection in list(authority.used):
            # Another authority may go on using it.
            connection.unsubscribe(_key(entry))
            if authority.is_empty:
                self._unuse(authority, connection)
        if authority.is_empty:
            del self._authorities[entry.authority]

    def _tell(self, entry: Entry, news: News | None) -> None:
        if news is not None:
            for watch in entry.watches:
                self._post(watch, news)

    def _post(self, watch: Watch, news: News) -> None:
        self._news.append((watch, news))
        self._schedule_news()

    def _schedule_news(self) -> None:
        if not self._news_timer.pending and not self._is_closed:
            self._news_timer = self._tools.clock.call_later(0, self._tell_all)

    def _tell_all(self) -> None:
        """Tell what there is to tell now; what this causes is told in the next turn."""
        for _ in range(len(self._news)):
            # A watcher may close the client.
            if not self._news:
                return
            item = self._news.popleft()
            if callable(item):
                item()
            elif not item[0].is_cancelled:
                self._call(*item)

    def _call(self, watch: Watch, news: News) -> None:
        try:
            news.tell(watch.watcher)
        except Exception:
            # One watcher's bug must not keep the others, or the stream, from going on.
            LOGGER.exception("xds watcher %r raised", watch.watcher)


class _Shelf:
    """The entries that a response of one server may change."""

    __slots__ = ("_client", "_connection", "_type_url")

    def __init__(self, client: XdsClient, connection: Connection, type_url: str) -> None:
        self._client = client
        self._connection = connection
        self._type_url = type_url

    def spell(self, name: str) -> str:
        placed = place_name(name, self._type_url)
        return name if isinstance(placed, Status) else placed[1]

    def find(self, name: str) -> Entry | None:
        return self._client.find_entry(self._connection, self._type_url, name)

    def all(self) -> Iterator[Entry]:
        return self._client.entries_of(self._connection, self._type_url)


def make_rules(server: ServerConfig, options: XdsClientOptions) -> ErrorRules:
    """How trouble with this server's data is treated (D26)."""
    if not options.has_data_error_handling:
        return ErrorRules(
            nack_drops=False,
            deletion_drops=not server.ignores_resource_deletion,
            server_errors_count=False,
            timeout_s=DOES_NOT_EXIST_TIMEOUT_S,
            timeout_code=StatusCode.NOT_FOUND,
        )
    drops, is_transient = server.fails_on_data_errors, server.resource_timer_is_transient_error
    return ErrorRules(
        nack_drops=drops,
        deletion_drops=drops,
        server_errors_count=True,
        timeout_s=TRANSIENT_TIMEOUT_S if is_transient else DOES_NOT_EXIST_TIMEOUT_S,
        timeout_code=StatusCode.UNAVAILABLE if is_transient else StatusCode.NOT_FOUND,
    )


def _key(entry: Entry) -> ResourceKey:
    return entry.type.type_url, entry.name


def _cancel_watch(watch: Watch) -> None:
    watch.is_cancelled = True
