"""Unit tests of proxyless.lb.policies.per_endpoint.policy."""

from collections.abc import Mapping
from typing import ClassVar, Final

import pytest

from proxyless.base import Status, ValidationErrors, hits
from proxyless.lb import Helper, Picker, Policy, PolicyRegistry, Update
from proxyless.lb.policies.per_endpoint import EndpointChild, PerEndpointPolicy
from tests.worlds.policies import CONNECTING, FAILURE, READY, PolicyWorld


class FirstReady(PerEndpointPolicy[EndpointChild]):
    """Policy that picks the first endpoint that became READY. Any config is valid."""

    trace_name: ClassVar[str] = "first_ready.state"

    __slots__ = ("config",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        self.config: object = None

    def update(self, update: Update) -> Status:
        if update.config != self.config:
            self.config = update.config
            self._invalidate_picker()
        return super().update(update)

    def _make_picker(self) -> Picker:
        return next(iter(self._endpoints.ready)).picker


class FirstReadyFactory:
    name: Final = "first_ready"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return dict(json)

    def create(self, helper: Helper) -> Policy:
        return FirstReady(helper)


@pytest.fixture
def world() -> PolicyWorld:
    return PolicyWorld(FirstReadyFactory())


def test_reports_are_traced_with_the_name_of_the_policy(world: PolicyWorld) -> None:
    with hits(world.trace, "first_ready.state") as events:
        world.update("a")
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


def test_picker_is_replaced_when_the_ready_endpoints_change(world: PolicyWorld) -> None:
    world.update("a", "b")
    world["b"].ready()
    world.expect_pick("b")
    world["a"].ready()
    world["b"].idle()
    world.expect_reports(CONNECTING, READY, READY, READY)
    world.expect_pick("a")


def test_invalid_picker_is_replaced_by_the_next_update(world: PolicyWorld) -> None:
    world.update("a")
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.update("a", config={"new": 1})
    world.expect_reports(READY)
    world.update("a", config={"new": 1})
    world.expect_reports()


def test_resolver_error_with_a_new_config_replaces_the_picker(world: PolicyWorld) -> None:
    world.update("a", config={"old": 1})
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.resolver_error()
    world.expect_reports(READY)


def test_resolver_error_is_not_reported_when_there_are_endpoints(world: PolicyWorld) -> None:
    world.update("a", config={"old": 1})
    world.expect_reports(CONNECTING)
    world.resolver_error()
    world.expect_reports()
    world["a"].fail()
    world.expect_reports(FAILURE)
    world.resolver_error("no such host")
    world.expect_reports()
    world.expect_pick_fails("last error: refused")
