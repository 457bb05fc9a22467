"""Cluster specifier plugins, and routes to them."""

from collections.abc import Mapping, Sequence

from proxyless.base import ValidationErrors
from proxyless.protos import Proto
from proxyless.xds.parsing import PluginParser
from proxyless.xds.parsing.limits import CLUSTER_SPECIFIER_PLUGINS_MAX
from proxyless.xds.resources import ClusterSpecifierPlugin, PluginChoice, RouteAction
from tests.unit.xds.parsing.messages import (
    UNKNOWN,
    Json,
    any_of,
    decode_routes,
    route,
    routes,
    typed_struct,
)


def parse_custom(
    config: Proto | Mapping[str, object], errors: ValidationErrors
) -> Sequence[Mapping[str, object]]:
    if "policy" not in config:
        with errors.field("policy"):
            errors.add("is missing")
        return ()
    return ({str(config["policy"]): {}},)


PLUGINS: dict[str, PluginParser] = {"custom.Plugin": parse_custom}


def plugin(name: str, config: Json, **fields: object) -> Json:
    return {"extension": {"name": name, "typed_config": config}, **fields}


def custom(policy: str = "lookup") -> Json:
    return typed_struct("custom.Plugin", {"policy": policy})


def error_of(*plugins: Json) -> str:
    message = routes(route(), cluster_specifier_plugins=list(plugins))
    return decode_routes(message, plugins=PLUGINS).error.removeprefix(
        'route configuration "routes": '
    )


def test_route_to_a_plugin_has_the_plugins_policy() -> None:
    message = routes(
        route(cluster_specifier_plugin="p"),
        cluster_specifier_plugins=[plugin("p", custom()), plugin("unused", custom("other"))],
    )
    resource = decode_routes(message, plugins=PLUGINS).resource
    assert resource is not None
    (parsed,) = resource.virtual_hosts[0].routes
    assert isinstance(parsed.action, RouteAction)
    assert parsed.action.choice == PluginChoice("p")
    assert resource.plugins == (ClusterSpecifierPlugin("p", ({"lookup": {}},)),)


def test_route_is_dropped_when_its_optional_plugin_is_not_supported() -> None:
    message = routes(
        route(cluster_specifier_plugin="new"),
        {**route(), "name": "kept"},
        cluster_specifier_plugins=[plugin("new", any_of(UNKNOWN), is_optional=True)],
    )
    resource = decode_routes(message).resource
    assert resource is not None
    assert [each.name for each in resource.virtual_hosts[0].routes] == ["kept"]
    assert resource.plugins == ()


def test_unsupported_plugin_is_rejected() -> None:
    assert error_of(plugin("new", any_of(UNKNOWN))) == (
        "[field:cluster_specifier_plugins[0].extension.typed_config"
        f" error:is of type '{UNKNOWN}', wanted one of a known plugin]"
    )


def test_empty_and_repeated_plugin_names_are_rejected() -> None:
    assert error_of(plugin("", custom()), plugin("p", custom()), plugin("p", custom())) == (
        "[field:cluster_specifier_plugins[0].extension.name error:is empty;"
        " field:cluster_specifier_plugins[2].extension.name"
        " error:is 'p' again, wanted a unique one]"
    )


def test_plugin_without_config_is_rejected() -> None:
    assert error_of({"extension": {"name": "p"}}) == (
        "[field:cluster_specifier_plugins[0].extension.typed_config.type_url"
        " error:is '', wanted one such as 'host/package.Type']"
    )


def test_error_of_a_plugin_is_reported_at_its_field() -> None:
    assert error_of(plugin("p", typed_struct("custom.Plugin", {}))) == (
        '[field:cluster_specifier_plugins[0].extension.typed_config["custom.Plugin"].policy'
        " error:is missing]"
    )


def test_resource_is_rejected_when_a_plugin_raises() -> None:
    def parse(_config: object, _errors: ValidationErrors) -> Sequence[Mapping[str, object]]:
        raise RuntimeError("a bug")

    message = routes(route(), cluster_specifier_plugins=[plugin("p", custom())])
    assert decode_routes(message, plugins={"custom.Plugin": parse}).error.endswith(
        '["custom.Plugin"] error:its parser raised RuntimeError: a bug]'
    )


def test_plugin_is_rejected_when_its_message_type_has_no_descriptor() -> None:
    message = routes(route(), cluster_specifier_plugins=[plugin("p", any_of(UNKNOWN))])
    config = message.cluster_specifier_plugins[0].extension.typed_config
    config.type_url = "host/custom.Plugin"
    assert "is of a type that is not known here" in decode_routes(message, plugins=PLUGINS).error


def test_route_to_a_missing_plugin_is_rejected() -> None:
    decoded = decode_routes(routes(route(cluster_specifier_plugin="p")))
    assert decoded.error == (
        'route configuration "routes":'
        " [field:virtual_hosts[0].routes[0].route.cluster_specifier_plugin"
        " error:is 'p', wanted one of the cluster_specifier_plugins]"
    )


def test_too_many_plugins_are_rejected() -> None:
    message = routes()
    for _ in range(CLUSTER_SPECIFIER_PLUGINS_MAX + 1):
        message.cluster_specifier_plugins.add()
    assert decode_routes(message).error == (
        'route configuration "routes": [field:cluster_specifier_plugins'
        " error:has 10001 elements, wanted at most 10000]"
    )
