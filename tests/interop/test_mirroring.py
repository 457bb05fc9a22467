"""`request_mirror_policies` of a route: this client mirrors RPCs, grpcio ignores it."""

from proxyless.assembly import Registries
from proxyless.observe import Audience, LintContext, Severity, lint_message
from tests.worlds.grpcio_peers import grpcio_client
from tests.worlds.mirrored_shop import METHOD, mirrored_route, mirrored_shop
from tests.worlds.transports import until


async def test_requests_are_copied_to_the_mirror_by_this_client_and_not_by_grpcio() -> None:
    async with mirrored_shop() as shop:
        await shop.connect()
        bootstrap = shop.control_plane.bootstrap()
        async with grpcio_client(bootstrap, "xds:///shop") as client:
            assert await client.call(METHOD, count=20) == {"main": 20}
        # A copy of grpcio's RPCs would have been sent by now: this one comes after them.
        assert await shop.call(b"last") == b"main"
        await until(lambda: shop.copy.requests, "a copy")
        assert shop.copy.requests[-1] == b"last"
        assert b"" not in shop.copy.requests


def test_lint_warns_that_grpcio_does_not_mirror() -> None:
    known = Registries()
    context = LintContext(known.policies, known.filters)
    message = mirrored_route()
    findings = lint_message(message, context, frozenset({Audience.GRPCIO}))
    severities = {each.path: each.severity for each in findings if each.audience is Audience.GRPCIO}
    assert severities["route.request_mirror_policies"] is Severity.WARNING
