"""A27: validation of the bootstrap.

tests/e2e covers channels without a valid bootstrap (A27-25), with an unknown authority (A47-07)
and with credentials (A65-01).
"""

import json
from collections.abc import Mapping

import pytest

from proxyless.base import Status, StatusCode
from proxyless.xds.bootstrap import Bootstrap, ServerConfig, load_bootstrap

INSECURE = {"type": "insecure"}
SERVER = {"server_uri": "xds.example:443", "channel_creds": [INSECURE]}

# Values of each JSON type.
ANY_TYPE: list[object] = [None, True, 0, 1.5, "text", [], ["x"], {}, {"x": {"y": []}}]


def load(document: Mapping[str, object]) -> Bootstrap | Status:
    """Load it from the environment variable."""
    return load_bootstrap(None, {"GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(document)})


def server_of(document: Mapping[str, object]) -> ServerConfig:
    bootstrap = load(document)
    assert isinstance(bootstrap, Bootstrap), bootstrap
    [server] = bootstrap.servers
    return server


def expect_refused(document: Mapping[str, object], *paths: str) -> None:
    """Check that the status has errors for exactly these fields."""
    status = load(document)
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    assert status.details.count("field:") == len(paths)
    for path in paths:
        assert f"field:{path} error:" in status.details


@pytest.mark.spec("A27-02")
@pytest.mark.parametrize("document", [{}, {"xds_servers": None}, {"xds_servers": []}])
def test_bootstrap_without_a_server_is_refused(document: dict[str, object]) -> None:
    expect_refused(document, "xds_servers")


@pytest.mark.spec("A27-26")
@pytest.mark.parametrize("uri", [None, ""])
def test_server_without_a_uri_is_refused(uri: object) -> None:
    expect_refused({"xds_servers": [SERVER | {"server_uri": uri}]}, "xds_servers[0].server_uri")


@pytest.mark.spec("A27-28")
@pytest.mark.parametrize("creds", [None, [], [{"type": "new"}], [{"type": "INSECURE"}]])
def test_server_without_supported_credentials_is_refused(creds: object) -> None:
    document = {"xds_servers": [SERVER, SERVER | {"channel_creds": creds}]}
    expect_refused(document, "xds_servers[1].channel_creds")


@pytest.mark.spec("A27-29")
def test_every_error_has_its_path() -> None:
    document = {"xds_servers": [{}, {"server_uri": "x"}]}
    paths = ("[0].server_uri", "[0].channel_creds", "[1].channel_creds")
    expect_refused(document, *(f"xds_servers{path}" for path in paths))


@pytest.mark.spec("A27-27")
@pytest.mark.parametrize(
    ("types", "used"),
    [
        (["insecure"], "insecure"),
        (["tls", "insecure"], "tls"),
        (["insecure", "tls"], "insecure"),
        (["new", "google_default", "tls"], "google_default"),
        (["new", "newer", "insecure"], "insecure"),
    ],
)
def test_the_first_supported_credentials_are_used(types: list[str], used: str) -> None:
    creds = [{"type": creds_type} for creds_type in types]
    server = server_of({"xds_servers": [SERVER | {"channel_creds": creds}]})
    assert server.channel_creds.type == used


@pytest.mark.spec("A27-03")
@pytest.mark.parametrize("value", ANY_TYPE)
def test_unknown_fields_are_ignored_at_every_level(value: object) -> None:
    plain: dict[str, object] = {
        "xds_servers": [SERVER],
        "node": {"id": "n", "locality": {"zone": "z"}},
        "authorities": {"a": {}},
        "certificate_providers": {"p": {"plugin_name": "x"}},
    }
    creds = [INSECURE | {"new": value}]
    newer: dict[str, object] = {
        "xds_servers": [SERVER | {"channel_creds": creds, "new": value}],
        "node": {"id": "n", "locality": {"zone": "z", "new": value}, "new": value},
        "authorities": {"a": {"new": value}},
        "certificate_providers": {"p": {"plugin_name": "x", "new": value}},
        "new": value,
    }
    assert isinstance(load(plain), Bootstrap)
    assert load(newer) == load(plain)


@pytest.mark.spec("A27-30")
@pytest.mark.parametrize("feature", ANY_TYPE)
def test_unknown_server_features_of_any_type_are_ignored(feature: object) -> None:
    features = [feature, "ignore_resource_deletion", feature]
    server = server_of({"xds_servers": [SERVER | {"server_features": features}]})
    expected = server_of({"xds_servers": [SERVER | {"server_features": features[1:2]}]})
    assert server == expected
    assert server.features == {"ignore_resource_deletion"}
