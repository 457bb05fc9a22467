"""Unit tests of proxyless.resolver.unresolvable."""

import pytest

from proxyless.base import Status, StatusCode
from proxyless.resolver.unresolvable import UnresolvableFactory, UnresolvableTargets
from tests.worlds.resolvers import ResolverWorld

REASON = Status(StatusCode.UNAVAILABLE, "no such name")


@pytest.mark.parametrize("text", ["", "a:b:c", "ipv4:1", "xds:///name"])
def test_every_target_matches_and_its_resolver_reports_the_reason_once(text: str) -> None:
    world = ResolverWorld()
    factory, target = UnresolvableTargets(REASON).match_target(text)
    assert factory == UnresolvableFactory(REASON)
    assert factory.default_authority(target) == "invalid"
    resolver = factory.create(target, world.listener, world.context)
    resolver.start()
    assert not world.listener.results, "not called inside a call to the resolver"
    world.clock.advance(3600)
    resolver.request_reresolution()
    world.clock.advance(3600)
    assert world.listener.failures == [str(REASON)]
