"""The bootstrap: what A27 asks of it.

What a channel does without a usable one (A27-01), with an unknown authority (A47-01) or with
credentials (A65-01) is claimed where channels follow a control plane.
"""

import json
from collections.abc import Mapping

import pytest

from proxyless.base import Status, StatusCode
from proxyless.xds.bootstrap import Bootstrap, ServerConfig, load_bootstrap

INSECURE = {"type": "insecure"}
SERVER = {"server_uri": "xds.example:443", "channel_creds": [INSECURE]}

# One of each type that JSON has.
ANY_TYPE: list[object] = [None, True, 0, 1.5, "text", [], ["x"], {}, {"x": {"y": []}}]


def load(document: Mapping[str, object]) -> Bootstrap | Status:
    """As a process finds it in its environment."""
    return load_bootstrap(None, {"GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(document)})


def server_of(document: Mapping[str, object]) -> ServerConfig:
    bootstrap = load(document)
    assert isinstance(bootstrap, Bootstrap), bootstrap
    [server] = bootstrap.servers
    return server


def expect_refused(document: Mapping[str, object], *paths: str) -> None:
    """The status names exactly these fields."""
    status = load(document)
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    assert status.details.count("field:") == len(paths)
    for path in paths:
        assert f"field:{path} error:" in status.details


@pytest.mark.spec("A27-02")
@pytest.mark.parametrize("document", [{}, {"xds_servers": None}, {"xds_servers": []}])
def test_there_must_be_a_server(document: dict[str, object]) -> None:
    expect_refused(document, "xds_servers")


@pytest.mark.spec("A27-02")
@pytest.mark.parametrize("uri", [None, ""])
def test_a_server_must_say_where_it_is(uri: object) -> None:
    expect_refused({"xds_servers": [SERVER | {"server_uri": uri}]}, "xds_servers[0].server_uri")


@pytest.mark.spec("A27-02")
@pytest.mark.parametrize("creds", [None, [], [{"type": "new"}], [{"type": "INSECURE"}]])
def test_a_server_must_have_credentials_that_we_support(creds: object) -> None:
    document = {"xds_servers": [SERVER, SERVER | {"channel_creds": creds}]}
    expect_refused(document, "xds_servers[1].channel_creds")


@pytest.mark.spec("A27-02")
def test_every_error_is_told_by_its_path() -> None:
    document = {"xds_servers": [{}, {"server_uri": "x"}]}
    paths = ("[0].server_uri", "[0].channel_creds", "[1].channel_creds")
    expect_refused(document, *(f"xds_servers{path}" for path in paths))


@pytest.mark.spec("A27-02")
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
def test_unknown_fields_are_ignored_wherever_they_stand(value: object) -> None:
    known: dict[str, object] = {
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
    assert isinstance(load(known), Bootstrap)
    assert load(newer) == load(known)


@pytest.mark.spec("A27-03")
@pytest.mark.parametrize("feature", ANY_TYPE)
def test_unknown_server_features_are_ignored_whatever_their_type(feature: object) -> None:
    features = [feature, "ignore_resource_deletion", feature]
    server = server_of({"xds_servers": [SERVER | {"server_features": features}]})
    known = server_of({"xds_servers": [SERVER | {"server_features": features[1:2]}]})
    assert server == known
    assert server.ignores_resource_deletion
