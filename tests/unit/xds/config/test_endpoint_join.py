"""Unit tests of proxyless.xds.config.endpoint_join."""

from proxyless.base import Locality, parse_address
from proxyless.xds.config.endpoint_join import join_endpoints
from proxyless.xds.resources import DropCategory, EndpointInfo, EndpointResource, LocalityEndpoints


def info(text: str) -> EndpointInfo:
    return EndpointInfo((parse_address(text),))


def test_join_keeps_everything_but_the_endpoints_of_collections() -> None:
    own = LocalityEndpoints(Locality(zone="a"), 3, (info("10.0.0.1:80"),))
    other = LocalityEndpoints(Locality(zone="b"), 7, (), None, "x/*")
    drops = (DropCategory("lb", 5),)
    source = EndpointResource(
        name="c", priorities=((own, other),), drops=drops, collections=("x/*",)
    )
    members = {"x/1": info("10.0.0.1:80"), "x/2": info("10.0.0.2:80")}
    joined = join_endpoints(source, (members,))
    [[first, second]] = joined.resource.priorities
    assert first is own
    # The first address is that of an endpoint of the EDS resource.
    assert second == LocalityEndpoints(Locality(zone="b"), 7, (info("10.0.0.2:80"),), None, "x/*")
    assert (joined.resource.drops, joined.resource.collections) == (drops, ("x/*",))
    assert joined.is_result_of(source, (members,))
    assert not joined.is_result_of(source, (dict(members),))
