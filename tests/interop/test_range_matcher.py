"""grpcio and our client find the same integers in headers that a range is matched with."""

from typing import Final

import proxyless.aio
from proxyless.controlplane import (
    ControlPlane,
    Snapshot,
    eds_cluster,
    endpoints,
    listener,
    route,
    route_config,
)
from tests.worlds.grpcio_peers import WHERE, NamedBackend, grpcio_client
from tests.worlds.transports import PATIENCE_S

# Values that metadata may have: printable ASCII.
VALUES: Final = {
    "3": "a",
    "+3": "a",
    " 3": "a",
    "3 ": "a",
    "  +3  ": "a",
    "0003": "a",
    "0" * 40 + "3": "a",
    "-3": "b",
    "5": "b",
    "- 3": "b",
    "+ 3": "b",
    "3,3": "b",
    "3 3": "b",
    "3.0": "b",
    "0x3": "b",
    "": "b",
    " ": "b",
    "9" * 40: "b",
}


def mesh(two: list[NamedBackend]) -> Snapshot:
    """A header n of 2 to 4 leads to backend a, everything else to b."""
    ranged = route(cluster="a")
    header = ranged.match.headers.add(name="n")
    header.range_match.start, header.range_match.end = 2, 5
    resources = [listener("api", "routes"), route_config("routes", ranged, route(cluster="b"))]
    for backend in two:
        resources += [eds_cluster(backend.name), endpoints(backend.name, [backend.address])]
    return Snapshot.of(resources)


async def test_grpcio_matches_ranges_as_in_the_table(two: list[NamedBackend]) -> None:
    async with (
        ControlPlane(mesh(two)) as control_plane,
        grpcio_client(control_plane.bootstrap(), "xds:///api") as client,
    ):
        found = {value: set(await client.call(metadata={"n": value})) for value in VALUES}
    assert found == {value: {name} for value, name in VALUES.items()}


async def test_proxyless_matches_ranges_as_grpcio_does(two: list[NamedBackend]) -> None:
    async with (
        ControlPlane(mesh(two)) as control_plane,
        proxyless.aio.insecure_channel(
            "xds:///api", bootstrap=control_plane.bootstrap()
        ) as channel,
    ):
        who = channel.unary_unary(WHERE)
        found = {
            value: (await who(b"", metadata=(("n", value),), timeout=PATIENCE_S)).decode()
            for value in VALUES
        }
    assert found == VALUES
