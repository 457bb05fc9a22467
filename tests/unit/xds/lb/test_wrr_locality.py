"""The xds_wrr_locality policy: one target for each locality."""

from proxyless.assembly import Registries
from proxyless.base import EMPTY_ATTRIBUTES, OK, Endpoint, State, ValidationErrors, parse_address
from proxyless.lb import Update
from proxyless.lb.hierarchy import with_path
from proxyless.testing import FakeHelper
from proxyless.xds.config.attributes import LOCALITY_WEIGHT
from proxyless.xds.lb.wrr_locality import WrrLocalityFactory, targets_of
from tests.worlds.policies import unavailable

REGISTRY = Registries().policies


def config_of(child: str = "round_robin") -> object:
    errors = ValidationErrors()
    json: dict[str, object] = {"childPolicy": [{child: {}}]}
    config = WrrLocalityFactory().parse_config(json, errors, REGISTRY)
    assert errors.ok
    return config


def endpoint_in(zone: str, number: int, weight: int | None) -> Endpoint:
    attributes = (
        EMPTY_ATTRIBUTES if weight is None else EMPTY_ATTRIBUTES.with_(LOCALITY_WEIGHT, weight)
    )
    return with_path(Endpoint((parse_address(f"10.0.0.{number}:80"),), attributes), (zone,))


def test_each_locality_is_a_target_with_its_weight() -> None:
    policy = config_of().child_policy  # type: ignore[attr-defined]
    found = (
        endpoint_in("x", 1, 3),
        endpoint_in("y", 2, 1),
        endpoint_in("x", 3, 3),
        endpoint_in("z", 4, None),
    )
    targets = targets_of(found, policy)
    assert {name: target.weight for name, target in targets.items()} == {"x": 3, "y": 1, "z": 1}
    assert targets_of((Endpoint((parse_address("10.0.0.1:80"),), EMPTY_ATTRIBUTES),), policy) == {}


def test_localities_stay_in_use_after_a_resolver_error() -> None:
    helper = FakeHelper(registry=REGISTRY)
    policy = WrrLocalityFactory().create(helper)
    assert policy.update(Update((endpoint_in("x", 1, 1),), config_of())) == OK
    policy.update(Update(unavailable("no answer"), config_of()))
    assert len(helper.subchannels) == 1
    assert helper.reports[-1].state is not State.TRANSIENT_FAILURE
    policy.exit_idle()
    policy.reset_backoff()
    policy.close()


def test_config_needs_a_child() -> None:
    errors = ValidationErrors()
    WrrLocalityFactory().parse_config({}, errors, REGISTRY)
    assert "field:childPolicy error:is missing, wanted a list of policies" in str(errors)
