"""Unit tests of proxyless.lb.policies.per_endpoint.policy."""

from collections.abc import Mapping
from typing import ClassVar, Final

import pytest

from proxyless.base import Status, ValidationErrors, hits
from proxyless.lb import Helper, Picker, Policy, PolicyRegistry, Update
from proxyless.lb.policies.per_endpoint import EndpointChild, EndpointList, PetiolePolicy
from tests.spec.lb_world import CONNECTING, FAILURE, READY, World


class FirstReady(PetiolePolicy[EndpointChild]):
    """The first endpoint that became READY gets everything; a config is anything at all."""

    trace_name: ClassVar[str] = "first_ready.state"

    __slots__ = ("config",)

    def __init__(self, helper: Helper) -> None:
        super().__init__(helper)
        self.config: object = None

    def update(self, update: Update) -> Status:
        if update.config != self.config:
            self.config = update.config
            self._renew_picker()
        return super().update(update)

    def _make_list(self) -> EndpointList[EndpointChild]:
        return EndpointList(self._helper, EndpointChild, self._on_report)

    def _make_picker(self) -> Picker:
        return next(iter(self._endpoints.ready.values()))


class FirstReadyFactory:
    name: Final = "first_ready"

    def parse_config(
        self, json: Mapping[str, object], errors: ValidationErrors, registry: PolicyRegistry
    ) -> object:
        return dict(json)

    def create(self, helper: Helper) -> Policy:
        return FirstReady(helper)


@pytest.fixture
def world() -> World:
    return World(FirstReadyFactory())


def test_reports_are_traced_under_the_policys_own_name(world: World) -> None:
    with hits(world.trace, "first_ready.state") as events:
        world.update("a")
        world["a"].ready()
    assert [event.fields["after"] for event in events] == [CONNECTING, READY]


def test_the_picker_is_made_anew_when_the_ready_endpoints_change(world: World) -> None:
    world.update("a", "b")
    world["b"].ready()
    world.expect_pick("b")
    world["a"].ready()
    world["b"].idle()
    world.expect_reports(CONNECTING, READY, READY, READY)
    world.expect_pick("a")


def test_a_picker_that_is_out_of_date_is_made_anew_by_the_next_update(world: World) -> None:
    world.update("a")
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.update("a", config={"new": 1})
    world.expect_reports(READY)
    world.update("a", config={"new": 1})
    world.expect_reports()


def test_a_resolver_error_that_brings_a_new_config_makes_a_new_picker(world: World) -> None:
    world.update("a", config={"old": 1})
    world["a"].ready()
    world.expect_reports(CONNECTING, READY)
    world.resolver_error()
    world.expect_reports(READY)


def test_a_resolver_error_is_not_reported_while_there_are_endpoints(world: World) -> None:
    world.update("a", config={"old": 1})
    world.expect_reports(CONNECTING)
    world.resolver_error()
    world.expect_reports()
    world["a"].fail()
    world.expect_reports(FAILURE)
    world.resolver_error("no such host")
    world.expect_reports()
    world.expect_pick_fails("last error: refused")
