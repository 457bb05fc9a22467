"""ADS clients for tests of an `AdsStream` and a `DeltaAdsStream`."""

from collections.abc import Iterable, Mapping

from proxyless.controlplane import (
    CLUSTER,
    ENDPOINTS,
    LB_ENDPOINT,
    LISTENER,
    ROUTE_CONFIG,
    AdsStream,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from proxyless.controlplane.delta import DeltaAdsStream
from proxyless.controlplane.subscription import FULL_STATE_TYPES
from proxyless.protos import Proto, message_class

SHORT = {
    CLUSTER: "CDS",
    ENDPOINTS: "EDS",
    LB_ENDPOINT: "LEDS",
    LISTENER: "LDS",
    ROUTE_CONFIG: "RDS",
}


def mesh(*clusters: str, version: str = "1", port: int = 1) -> Snapshot:
    """Listener `api`, route config `routes` with a route to each cluster, and endpoints."""
    routes = [route(f"/{name}/", cluster=name) for name in clusters]
    return Snapshot.of(
        [
            listener("api", "routes"),
            route_config("routes", *routes),
            *(eds_cluster(name) for name in clusters),
            *(endpoints(name, [f"10.0.0.1:{port}"]) for name in clusters),
        ],
        version=version,
    )


def request(
    type_url: str, names: Iterable[str] = (), *, nonce: str = "", version: str = ""
) -> Proto:
    result = message_class("envoy.service.discovery.v3.DiscoveryRequest")(
        type_url=type_url, resource_names=names, response_nonce=nonce, version_info=version
    )
    result.node.id = "node-1"
    return result


def show(responses: Iterable[Proto]) -> list[str]:
    """Each response as `CDS 1: a b`."""
    return [
        f"{SHORT.get(response.type_url, response.type_url)} {response.version_info}: "
        f"{' '.join(sorted(names_of(response)))}".rstrip()
        for response in responses
    ]


def names_of(response: Proto) -> list[str]:
    kind = message_class(response.type_url.rpartition("/")[2])
    messages = [kind.FromString(packed.value) for packed in response.resources]
    return [getattr(found, "cluster_name", "") or found.name for found in messages]


class AdsClient:
    """A client that answers when the test calls `ack` or `nack`, and keeps what it accepts."""

    def __init__(self, **options: object) -> None:
        self.stream = AdsStream(**options)  # type: ignore[arg-type]
        # Responses that are not answered yet.
        self.inbox: list[Proto] = []
        # Serialized resources by type and name.
        self.accepted: dict[str, dict[str, bytes]] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._nonces: dict[str, str] = {}
        self._versions: dict[str, str] = {}

    def subscribe(self, type_url: str, *names: str) -> list[str]:
        """Subscribe; returns the responses as text, like the other methods."""
        self._names[type_url] = names
        return self._send(self._request(type_url))

    def publish(self, snapshot: Snapshot) -> list[str]:
        return self._receive(self.stream.on_snapshot(snapshot))

    def is_in_grace(self) -> bool:
        return self.stream.grace is not None

    def end_grace(self) -> list[str]:
        return self._receive(self.stream.on_grace_over())

    def ack(self) -> list[str]:
        """Accept the oldest response."""
        response = self.inbox.pop(0)
        type_url = response.type_url
        sent = dict(
            zip(names_of(response), (each.value for each in response.resources), strict=True)
        )
        if type_url in FULL_STATE_TYPES:
            self.accepted[type_url] = sent
        else:
            self.accepted.setdefault(type_url, {}).update(sent)
        self._nonces[type_url] = response.nonce
        self._versions[type_url] = response.version_info
        return self._send(self._request(type_url))

    def ack_all(self) -> list[str]:
        """Accept all responses until there are no more."""
        shown: list[str] = []
        while self.inbox:
            shown += self.ack()
        return shown

    def nack(self, text: str) -> list[str]:
        """Reject the oldest response."""
        response = self.inbox.pop(0)
        self._nonces[response.type_url] = response.nonce
        refusal = self._request(response.type_url)
        refusal.error_detail.code, refusal.error_detail.message = 3, text
        return self._send(refusal)

    def _request(self, type_url: str) -> Proto:
        return request(
            type_url,
            self._names.get(type_url, ()),
            nonce=self._nonces.get(type_url, ""),
            version=self._versions.get(type_url, ""),
        )

    def _send(self, message: Proto) -> list[str]:
        return self._receive(self.stream.on_request(message))

    def _receive(self, responses: list[Proto]) -> list[str]:
        self.inbox += responses
        return show(responses)


def delta_request(
    type_url: str, added: Iterable[str] = (), removed: Iterable[str] = (), *, nonce: str = ""
) -> Proto:
    result = message_class("envoy.service.discovery.v3.DeltaDiscoveryRequest")(
        type_url=type_url,
        resource_names_subscribe=added,
        resource_names_unsubscribe=removed,
        response_nonce=nonce,
    )
    result.node.id = "node-1"
    return result


class DeltaClient:
    """A client of the incremental variant, which answers when the test calls `ack` or `nack`."""

    def __init__(self, **options: object) -> None:
        self.stream = DeltaAdsStream(**options)  # type: ignore[arg-type]
        # Responses that are not answered yet.
        self.inbox: list[Proto] = []

    def subscribe(
        self, type_url: str, *names: str, versions: Mapping[str, str] | None = None
    ) -> list[str]:
        """Subscribe to more names; returns the responses as `CDS 1: a -removed`."""
        message = delta_request(type_url, names)
        message.initial_resource_versions.update(versions or {})
        return self.receive(self.stream.on_request(message))

    def unsubscribe(self, type_url: str, *names: str) -> list[str]:
        return self.receive(self.stream.on_request(delta_request(type_url, (), names)))

    def publish(self, snapshot: Snapshot) -> list[str]:
        return self.receive(self.stream.on_snapshot(snapshot))

    def ack_all(self) -> list[str]:
        """Accept all responses until there are no more."""
        shown: list[str] = []
        while self.inbox:
            response = self.inbox.pop(0)
            answer = delta_request(response.type_url, nonce=response.nonce)
            shown += self.receive(self.stream.on_request(answer))
        return shown

    def nack(self, text: str) -> list[str]:
        """Reject the oldest response."""
        response = self.inbox.pop(0)
        answer = delta_request(response.type_url, nonce=response.nonce)
        answer.error_detail.code, answer.error_detail.message = 3, text
        return self.receive(self.stream.on_request(answer))

    def receive(self, responses: list[Proto]) -> list[str]:
        self.inbox += responses
        return [
            f"{SHORT[response.type_url]} {response.system_version_info}: "
            f"{' '.join([*sorted(_delta_names(response)), *_removed_names(response)])}".rstrip()
            for response in responses
        ]


def _delta_names(response: Proto) -> list[str]:
    return [resource.name for resource in response.resources]


def _removed_names(response: Proto) -> list[str]:
    return [f"-{name}" for name in response.removed_resources]
