"""Example HTTP filter: RPCs of some tenants go to their own cluster, those of others are rejected.

    registries = proxyless.Registries().extended(filters=[TenantFilterFactory()])
    channel = proxyless.aio.insecure_channel("xds:///shop", registries=registries)

with this in the listener's http_filters:

    name: tenants
    typed_config:
      "@type": type.googleapis.com/xds.type.v3.TypedStruct
      type_url: type.googleapis.com/example.Tenants
      value: {clusters: {gold: fast}, others: usual, blocked: [mallory]}

docs/howto/write-a-filter.md explains it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxyless.base import Metadata, Status, StatusCode, ValidationErrors
from proxyless.runtime import Random
from proxyless.xds.filters import FilterMessage, RoutedRpc, RpcFilter

TENANTS_TYPE: Final = "example.Tenants"
HEADER: Final = "tenant"


@dataclass(frozen=True)
class TenantsConfig:
    """The clusters of tenants, the cluster of all other tenants, and the rejected tenants."""

    clusters: Mapping[str, str]
    others: str
    blocked: frozenset[str]


class TenantFilterFactory:
    """Parses configs and creates filters."""

    config_types: Final = (TENANTS_TYPE,)
    override_types: Final = (TENANTS_TYPE,)
    is_terminal: Final = False

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> TenantsConfig:
        assert isinstance(message, Mapping), "the message is a TypedStruct"
        clusters, blocked = message.get("clusters", {}), message.get("blocked", [])
        if not isinstance(clusters, Mapping):
            with errors.field("clusters"):
                errors.add(f"is {clusters!r}, wanted clusters by tenant")
            clusters = {}
        if not isinstance(blocked, list):
            with errors.field("blocked"):
                errors.add(f"is {blocked!r}, wanted a list of tenants")
            blocked = []
        return TenantsConfig(clusters, str(message.get("others")), frozenset(map(str, blocked)))

    # The override of a virtual host, a route or a weighted cluster has the same fields.
    parse_override = parse_config

    def create(self, config: object, override: object | None, random: Random) -> "TenantFilter":
        effective = config if override is None else override
        assert isinstance(effective, TenantsConfig), "the config is one of ours"
        return TenantFilter(effective)


class TenantFilter:
    """The filter of one route, shared by all its RPCs."""

    def __init__(self, config: TenantsConfig) -> None:
        self._config = config

    def on_rpc(self, rpc: RoutedRpc) -> RpcFilter | None:
        tenant = next((value for key, value in rpc.metadata if key == HEADER), "")
        if tenant in self._config.blocked:
            return Refusal(Status(StatusCode.PERMISSION_DENIED, f"tenant {tenant!r} is blocked"))
        cluster = self._config.clusters.get(str(tenant), self._config.others)
        # A filter may choose only among the clusters of the route.
        if cluster in rpc.clusters:
            rpc.cluster = cluster
        return Labelled(rpc.cluster)


class Refusal(RpcFilter):
    """Ends the RPC before it is sent."""

    def __init__(self, status: Status) -> None:
        self._status = status

    @property
    def abort(self) -> Status:
        return self._status


class Labelled(RpcFilter):
    """Adds the name of the cluster to the response metadata."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def on_head(self, metadata: Metadata) -> Metadata:
        return (*metadata, ("served-by", self._cluster))
