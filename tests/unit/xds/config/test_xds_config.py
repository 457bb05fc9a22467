"""XdsConfig: `find`."""

from proxyless.xds.config import ClusterConfig, ClusterError, ClusterResult, XdsConfig
from tests.worlds.xds_resources import aggregate, cluster, listener, route_config, unavailable

LEAF = ClusterConfig("leaf", cluster("leaf"))
TOP = ClusterConfig("top", aggregate("top", "leaf"))


def config_of(clusters: dict[str, ClusterResult]) -> XdsConfig:
    routes = route_config("top")
    return XdsConfig(listener(routes), routes, routes.virtual_hosts[0], clusters)


def test_leaf_without_a_key_is_found_inside_its_aggregate() -> None:
    config = config_of({"top": (TOP, LEAF)})
    assert config.find("leaf") is LEAF
    assert config.find("top") is TOP
    assert config.find("other") is None
    assert config.find("leaf") is LEAF, "the second search uses the cache"


def test_entry_with_a_key_is_preferred() -> None:
    own = ClusterConfig("leaf", cluster("leaf"), resolution_note="own")
    assert config_of({"top": (TOP, LEAF), "leaf": (own,)}).find("leaf") is own


def test_error_is_found_by_its_key() -> None:
    error = ClusterError(unavailable("gone"))
    config = config_of({"top": error, "other": (TOP, LEAF)})
    assert config.find("top") is error
    assert config.find("leaf") is LEAF
