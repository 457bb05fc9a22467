"""Custom filters, and limits. Rejected configs of built-in filters are tested in tests/spec."""

from dataclasses import dataclass

from proxyless.base import ValidationErrors
from proxyless.runtime import Random
from proxyless.xds.filters import FILTER_FACTORIES, FilterMessage, FilterRegistry
from proxyless.xds.filters.rpc_filter import ClientFilter
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
class CustomConfig:
    """The parsed config of the custom filter."""

    label: object


class CustomFilterFactory:
    """A filter that is configured by JSON."""

    config_types = ("custom.Filter",)
    override_types = ("custom.Filter",)
    is_terminal = False

    def parse_config(self, message: FilterMessage, errors: ValidationErrors) -> CustomConfig:
        if message["label"] == "":
            with errors.field("label"):
                errors.add("is empty")
        return CustomConfig(message["label"])

    def parse_override(self, message: FilterMessage, errors: ValidationErrors) -> CustomConfig:
        return self.parse_config(message, errors)

    def create(
        self, config: object, override: object | None, random: Random
    ) -> ClientFilter | None:
        raise NotImplementedError


FILTERS = FilterRegistry(FILTER_FACTORIES).extended([CustomFilterFactory()])


def custom(label: str) -> Json:
    return typed_struct("custom.Filter", {"label": label})


def test_custom_filter_is_configured_by_a_typed_struct() -> None:
    chain = [{"name": "custom", "typed_config": custom("hello")}, http_filter("router")]
    resource = decode_listener(listener(http_filters=chain), FILTERS).resource
    assert resource is not None
    assert resource.api_listener is not None
    first = resource.api_listener.http_filters[0]
    assert first == HttpFilter("custom", "custom.Filter", CustomConfig("hello"))


def test_override_of_a_custom_filter_may_be_in_a_filter_config() -> None:
    for override in (custom("hi"), any_of(FILTER_CONFIG, config=custom("hi"))):
        message = routes({**route(), "typed_per_filter_config": {"custom": override}})
        resource = decode_routes(message, FILTERS).resource
        assert resource is not None
        (parsed,) = resource.virtual_hosts[0].routes
        assert parsed.filter_overrides == {"custom": FilterOverride(CustomConfig("hi"))}


def test_error_of_a_custom_filter_is_reported_at_its_field() -> None:
    message = routes({**route(), "typed_per_filter_config": {"custom": custom("")}})
    assert decode_routes(message, FILTERS).error.endswith(
        '.typed_per_filter_config["custom"]["custom.Filter"].label error:is empty]'
    )


def test_resource_is_rejected_when_a_custom_filter_raises() -> None:
    empty = typed_struct("custom.Filter", {})
    message = routes({**route(), "typed_per_filter_config": {"custom": empty}})
    assert decode_routes(message, FILTERS).error.endswith(
        '["custom"]["custom.Filter"] error:its parser raised KeyError: \'label\']'
    )


def test_builtin_filter_rejects_a_typed_struct() -> None:
    chain = [{"name": "router", "typed_config": typed_struct(ROUTER, {})}]
    assert decode_listener(listener(http_filters=chain)).error.endswith(
        f'.http_filters[0].typed_config["{ROUTER}"] error:is a TypedStruct, wanted {ROUTER}]'
    )


def test_virtual_hosts_routes_and_clusters_have_overrides() -> None:
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


def test_undecodable_filter_config_is_an_error() -> None:
    message = routes({**route(), "typed_per_filter_config": {"f": any_of(FILTER_CONFIG)}})
    entry = message.virtual_hosts[0].routes[0].typed_per_filter_config["f"]
    entry.value = b"\xff"
    assert decode_routes(message).error.endswith(
        f'["f"]["{FILTER_CONFIG}"] error:cannot be decoded as {FILTER_CONFIG}]'
    )


def test_too_many_filters_or_overrides_are_an_error() -> None:
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


def test_optional_filter_with_config_discovery_is_skipped() -> None:
    discovered: Json = {"name": "d", "config_discovery": {"config_source": {"ads": {}}}}
    chain = [{**discovered, "is_optional": True}, http_filter("router")]
    resource = decode_listener(listener(http_filters=chain)).resource
    assert resource is not None
    assert resource.api_listener is not None
    assert [entry.name for entry in resource.api_listener.http_filters] == ["router"]
    refused = decode_listener(listener(http_filters=[discovered, http_filter("router")])).error
    assert refused.endswith(".http_filters[0] error:config_discovery is set, wanted typed_config]")


def test_undecodable_or_untyped_filter_config_is_an_error() -> None:
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
