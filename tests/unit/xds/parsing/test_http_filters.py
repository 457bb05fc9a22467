"""Filters of an application, and the bounds. What is refused of our own is in tests/spec."""

from dataclasses import dataclass

from proxyless.base import ValidationErrors
from proxyless.runtime import Random
from proxyless.xds.filters import FILTER_FACTORIES, FilterMessage, FilterRegistry
from proxyless.xds.filters.calls import ClientFilter
from proxyless.xds.parsing.http_filters import parse_filter_overrides, parse_http_filters
from proxyless.xds.parsing.limits import FILTER_OVERRIDES_MAX, HTTP_FILTERS_MAX
from proxyless.xds.resources.filter import FilterOverride, HttpFilter
from tests.unit.xds.parsing.messages import (
    FAULT,
    FILTER_CONFIG,
    ROUTER,
    Json,
    any_of,
    decode_listener,
    decode_routes,
    http_filter,
    listener,
    make,
    route,
    routes,
    typed_struct,
)


@dataclass(frozen=True)
class OwnConfig:
    """What the filter makes of an object."""

    greeting: object


class OwnFilterFactory:
    """A filter of an application, configured by JSON."""

    config_types = ("own.Filter",)
    override_types = ("own.Filter",)
    is_terminal = False

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> OwnConfig:
        if message["greeting"] == "":
            with errors.field("greeting"):
                errors.add("is empty")
        return OwnConfig(message["greeting"])

    def parse_override(self, message: FilterMessage, errors: ValidationErrors) -> OwnConfig:
        return self.parse_config(message, errors)

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        raise NotImplementedError


FILTERS = FilterRegistry(FILTER_FACTORIES).extended([OwnFilterFactory()])


def own(greeting: str) -> Json:
    return typed_struct("own.Filter", {"greeting": greeting})


def test_an_application_s_filter_is_configured_by_a_typed_struct() -> None:
    chain = [{"name": "own", "typed_config": own("hello")}, http_filter("router")]
    resource = decode_listener(listener(http_filters=chain), FILTERS).resource
    assert resource is not None
    assert resource.api_listener is not None
    first = resource.api_listener.http_filters[0]
    assert first == HttpFilter("own", "own.Filter", OwnConfig("hello"))


def test_overrides_of_an_application_s_filter_may_be_wrapped() -> None:
    for override in (own("hi"), any_of(FILTER_CONFIG, config=own("hi"))):
        message = routes({**route(), "typed_per_filter_config": {"own": override}})
        resource = decode_routes(message, FILTERS).resource
        assert resource is not None
        (parsed,) = resource.virtual_hosts[0].routes
        assert parsed.filter_overrides == {"own": FilterOverride(OwnConfig("hi"))}


def test_what_an_application_s_filter_dislikes_is_told_at_its_field() -> None:
    message = routes({**route(), "typed_per_filter_config": {"own": own("")}})
    assert decode_routes(message, FILTERS).error.endswith(
        '.typed_per_filter_config["own"]["own.Filter"].greeting error:is empty]'
    )


def test_an_application_s_filter_that_raises_refuses_the_resource() -> None:
    silent = typed_struct("own.Filter", {})
    message = routes({**route(), "typed_per_filter_config": {"own": silent}})
    assert decode_routes(message, FILTERS).error.endswith(
        '["own"]["own.Filter"] error:its parser raised KeyError: \'greeting\']'
    )


def test_our_own_filters_take_no_typed_struct() -> None:
    chain = [{"name": "router", "typed_config": typed_struct(ROUTER, {})}]
    assert decode_listener(listener(http_filters=chain)).error.endswith(
        f'.http_filters[0].typed_config["{ROUTER}"] error:is a TypedStruct, wanted {ROUTER}]'
    )


def test_overrides_stand_at_hosts_routes_and_clusters() -> None:
    override = {"f": any_of(FAULT, max_active_faults=1)}
    cluster = {"name": "a", "weight": 1, "typed_per_filter_config": override}
    message = routes(
        {**route(weighted_clusters={"clusters": [cluster]}), "typed_per_filter_config": override}
    )
    message.virtual_hosts[0].typed_per_filter_config["f"].CopyFrom(
        message.virtual_hosts[0].routes[0].typed_per_filter_config["f"]
    )
    resource = decode_routes(message).resource
    assert resource is not None
    host = resource.virtual_hosts[0]
    (parsed,) = host.routes
    assert host.filter_overrides == parsed.filter_overrides
    assert host.filter_overrides["f"].config is not None
    assert "f" in parsed.action.choice.clusters[0].filter_overrides  # type: ignore[union-attr]


def test_a_wrapper_that_is_no_message_is_an_error() -> None:
    message = routes({**route(), "typed_per_filter_config": {"f": any_of(FILTER_CONFIG)}})
    entry = message.virtual_hosts[0].routes[0].typed_per_filter_config["f"]
    entry.value = b"\xff"
    assert decode_routes(message).error.endswith(
        f'["f"]["{FILTER_CONFIG}"] error:cannot be decoded as {FILTER_CONFIG}]'
    )


def test_chains_and_overrides_have_bounds() -> None:
    errors = ValidationErrors()
    one = make(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        http_filter("router"),
    )
    assert parse_http_filters([one] * (HTTP_FILTERS_MAX + 1), FILTERS, errors) == ()
    assert str(errors) == "[error:has 1001 elements, wanted at most 1000]"
    errors = ValidationErrors()
    many = {str(index): one.typed_config for index in range(FILTER_OVERRIDES_MAX + 1)}
    assert parse_filter_overrides(many, FILTERS, errors) == {}
    assert str(errors) == (
        "[field:typed_per_filter_config error:has 1001 elements, wanted at most 1000]"
    )


def test_an_optional_filter_whose_config_is_discovered_elsewhere_is_left_out() -> None:
    discovered: Json = {"name": "d", "config_discovery": {"config_source": {"ads": {}}}}
    chain = [{**discovered, "is_optional": True}, http_filter("router")]
    resource = decode_listener(listener(http_filters=chain)).resource
    assert resource is not None
    assert resource.api_listener is not None
    assert [entry.name for entry in resource.api_listener.http_filters] == ["router"]
    refused = decode_listener(listener(http_filters=[discovered, http_filter("router")])).error
    assert refused.endswith(".http_filters[0] error:config_discovery is set, wanted typed_config]")


def test_a_filter_s_config_has_a_type_and_can_be_decoded() -> None:
    entry = "http_filters[0].typed_config"
    errors = ValidationErrors()
    message = make(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        http_filter("router"),
    )
    message.typed_config.value = b"\xff"
    with errors.field("http_filters"):
        parse_http_filters([message], FILTERS, errors)
    assert str(errors) == f'[field:{entry}["{ROUTER}"] error:cannot be decoded as {ROUTER}]'
    errors = ValidationErrors()
    message.typed_config.type_url = ""
    with errors.field("http_filters"):
        parse_http_filters([message], FILTERS, errors)
    assert str(errors) == (
        f"[field:{entry}.type_url error:is '', wanted one such as 'host/package.Type']"
    )
