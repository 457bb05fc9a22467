"""Unit tests of proxyless.xds.bootstrap.bootstrap."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import (
    Locality,
    Status,
    StatusCode,
    UnixAddress,
    ValidationErrors,
    parse_address,
)
from proxyless.resolver.target import parse_target
from proxyless.xds.bootstrap import (
    Authority,
    Bootstrap,
    CallCreds,
    ChannelCreds,
    ConfigCacheConfig,
    Node,
    ServerConfig,
    TlsConfig,
    choose_config_cache,
    load_bootstrap,
)
from proxyless.xds.bootstrap.bootstrap import (
    AUTHORITIES_MAX,
    BYTES_MAX,
    CACHE_VARIABLE,
    SERVERS_MAX,
    parse_bootstrap,
    read_bootstrap_file,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "bootstrap"
INSECURE = [{"type": "insecure"}]


def server(uri: str = "xds.example:443", **fields: object) -> dict[str, object]:
    return {"server_uri": uri, "channel_creds": INSECURE, **fields}


def minimal(**fields: object) -> dict[str, object]:
    return {"xds_servers": [server()], **fields}


def parse(document: object) -> Bootstrap:
    errors = ValidationErrors()
    bootstrap = parse_bootstrap(document, errors)
    errors.raise_if_any("bootstrap")
    return bootstrap


def errors_of(document: object) -> str:
    errors = ValidationErrors()
    parse_bootstrap(document, errors)
    assert not errors.ok
    return str(errors)


def parse_server(**fields: object) -> ServerConfig:
    return parse({"xds_servers": [server() | fields]}).servers[0]


def tls(**config: object) -> list[dict[str, object]]:
    return [{"type": "tls", "config": config}]


class Files:
    """File reader with contents by path; records the paths."""

    def __init__(self, **contents: bytes) -> None:
        self.contents = contents
        self.read: list[str] = []

    def __call__(self, path: str) -> bytes:
        self.read.append(path)
        if path not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return self.contents[path]


def encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document).encode()


def uri_of(bootstrap: Bootstrap | Status) -> str:
    assert isinstance(bootstrap, Bootstrap), bootstrap
    return bootstrap.servers[0].uri


def details_of(status: Bootstrap | Status) -> str:
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    return status.details


# Sources


def test_argument_wins_over_file_wins_over_inline_json() -> None:
    files = Files(arg=encode({"xds_servers": [server("arg")]}), env=encode(minimal()))
    environ = {
        "GRPC_XDS_BOOTSTRAP": "env",
        "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps({"xds_servers": [server("inline")]}),
    }
    document = {"xds_servers": [server("document")]}
    assert uri_of(load_bootstrap(document, environ, files)) == "document"
    assert files.read == []
    assert uri_of(load_bootstrap("arg", environ, files)) == "arg"
    assert uri_of(load_bootstrap(Path("arg"), environ, files)) == "arg"
    assert uri_of(load_bootstrap(None, environ, files)) == "xds.example:443"
    environ["GRPC_XDS_BOOTSTRAP"] = ""
    assert uri_of(load_bootstrap(None, environ, files)) == "inline"
    assert files.read == ["arg", "arg", "env"]


def test_source_is_not_skipped_when_it_is_wrong() -> None:
    environ = {
        "GRPC_XDS_BOOTSTRAP": "gone",
        "GRPC_XDS_BOOTSTRAP_CONFIG": json.dumps(minimal()),
    }
    assert details_of(load_bootstrap(None, environ, Files())) == (
        "xds bootstrap: file 'gone' (GRPC_XDS_BOOTSTRAP): cannot be read: No such file or directory"
    )
    assert details_of(load_bootstrap({}, environ, Files())) == (
        "xds bootstrap: argument: "
        "[field:xds_servers error:is missing or empty, wanted at least one server]"
    )


@pytest.mark.parametrize(
    "environ", [{}, {"GRPC_XDS_BOOTSTRAP": "", "GRPC_XDS_BOOTSTRAP_CONFIG": ""}]
)
def test_status_names_the_variables_when_there_is_no_source(environ: dict[str, str]) -> None:
    assert details_of(load_bootstrap(None, environ, Files())) == (
        "xds bootstrap is missing: wanted GRPC_XDS_BOOTSTRAP with the path of a file, "
        "GRPC_XDS_BOOTSTRAP_CONFIG with JSON, or the argument bootstrap=; see: proxyless init DIR"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not JSON: Expecting value"),
        (b"{", "is not JSON: Expecting property name"),
        (b"\xff\xfe\xff", "is not JSON: "),
        (b'{"node": NaN}', "is not JSON: NaN is no number"),
        (b"1" * 5000, "is not JSON: "),
        (b"[" * 100_000, "objects or lists are nested too deeply"),
        (b" " * (BYTES_MAX + 1), "is too large, wanted at most 1048576 bytes"),
        (b"[]", "[error:is a list, wanted an object]"),
        (b"null", "[error:is null, wanted an object]"),
    ],
)
def test_file_is_rejected_when_it_is_no_bootstrap(content: bytes, reason: str) -> None:
    details = details_of(load_bootstrap("f", {}, Files(f=content)))
    assert details.startswith("xds bootstrap: file 'f': ")
    assert reason in details


def test_large_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b" " * (BYTES_MAX + 100))
    assert len(read_bootstrap_file(str(path))) == BYTES_MAX + 1
    assert "is too large" in details_of(load_bootstrap(path, {}))


def test_path_is_rejected_when_it_has_a_null_byte() -> None:
    assert "cannot be read: embedded null byte" in details_of(load_bootstrap("a\0b", {}))


def test_file_is_read_with_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "bootstrap.json"
    path.write_bytes(b"\xef\xbb\xbf" + encode(minimal()))
    assert uri_of(load_bootstrap(None, {"GRPC_XDS_BOOTSTRAP": str(path)})) == "xds.example:443"


def test_directory_is_rejected(tmp_path: Path) -> None:
    assert "cannot be read: Is a directory" in details_of(load_bootstrap(tmp_path, {}))


def test_load_raises_when_the_argument_has_another_type() -> None:
    with pytest.raises(TypeError):
        load_bootstrap(3, {}, Files())  # type: ignore[arg-type]


# Servers


def test_minimal_bootstrap_has_defaults() -> None:
    assert parse(minimal()) == Bootstrap(
        servers=(ServerConfig("xds.example:443", ChannelCreds("insecure")),),
        node=Node(),
        client_default_listener_resource_name_template="%s",
    )


def test_null_counts_as_absent() -> None:
    creds = [{"type": "insecure", "config": None}]
    full_of_nulls = {
        "xds_servers": [
            server() | {"channel_creds": creds, "call_creds": None, "server_features": None}
        ],
        "node": {"id": None, "cluster": None, "locality": {"zone": None}, "metadata": None},
        "authorities": None,
        "certificate_providers": None,
        "client_default_listener_resource_name_template": None,
    }
    assert parse(full_of_nulls) == parse(minimal())


def test_servers_keep_their_order() -> None:
    bootstrap = parse({"xds_servers": [server("a"), server("b"), server("c")]})
    assert [each.uri for each in bootstrap.servers] == ["a", "b", "c"]


@pytest.mark.parametrize("servers", [None, []])
def test_bootstrap_is_rejected_without_servers(servers: object) -> None:
    expected = "[field:xds_servers error:is missing or empty, wanted at least one server]"
    assert errors_of({"xds_servers": servers}) == expected


def test_all_errors_of_servers_are_reported_together() -> None:
    document = {
        "xds_servers": [
            {"channel_creds": [{"type": "alts"}, {"type": "local"}]},
            {"server_uri": 3, "channel_creds": []},
            {"server_uri": "x", "channel_creds": [{}], "server_features": "xds_v3"},
            "xds.example",
        ],
        "node": {"id": 5, "locality": []},
    }
    assert errors_of(document) == (
        "[field:xds_servers[0].server_uri error:is missing or empty, wanted a string; "
        "field:xds_servers[0].channel_creds "
        "error:has only 'alts', 'local', wanted one of insecure, tls, google_default; "
        "field:xds_servers[1].server_uri error:is 3, wanted a string; "
        "field:xds_servers[1].channel_creds "
        "error:is missing or empty, wanted one of insecure, tls, google_default; "
        "field:xds_servers[2].server_features error:is 'xds_v3', wanted a list; "
        "field:xds_servers[2].channel_creds[0].type error:is missing or empty, wanted a string; "
        "field:xds_servers[2].channel_creds error:has only '', "
        "wanted one of insecure, tls, google_default; "
        "field:xds_servers[3] error:is 'xds.example', wanted an object; "
        "field:node.id error:is 5, wanted a string; "
        "field:node.locality error:is a list, wanted an object]"
    )


def test_number_of_servers_is_bounded() -> None:
    assert len(parse({"xds_servers": [server()] * SERVERS_MAX}).servers) == SERVERS_MAX
    assert errors_of({"xds_servers": [server()] * (SERVERS_MAX + 1)}) == (
        "[field:xds_servers error:has 33 elements, wanted at most 32]"
    )


# Credentials


@pytest.mark.parametrize(
    ("types", "chosen"),
    [
        (["insecure", "tls"], "insecure"),
        (["alts", "google_default", "insecure"], "google_default"),
        (["alts", "tls"], "tls"),
    ],
)
def test_first_supported_channel_creds_are_used(types: list[str], chosen: str) -> None:
    creds = [{"type": creds_type} for creds_type in types]
    assert parse_server(channel_creds=creds).channel_creds.type == chosen


def test_config_of_unused_channel_creds_is_not_validated() -> None:
    creds = [
        {"type": "alts", "config": 3},
        {"type": "insecure", "config": "none"},
        {"type": "tls", "config": {"certificate_file": 5}},
    ]
    assert parse_server(channel_creds=creds).channel_creds == ChannelCreds("insecure")


def test_google_default_is_tls_with_system_roots() -> None:
    creds = parse_server(channel_creds=[{"type": "google_default"}]).channel_creds
    assert creds == ChannelCreds("google_default", TlsConfig())


@pytest.mark.parametrize(
    ("config", "parsed"),
    [
        ({}, TlsConfig("", "", "", 600.0)),
        ({"ca_certificate_file": "/ca", "spiffe": []}, TlsConfig("/ca", "", "", 600.0)),
        (
            {
                "ca_certificate_file": "/ca",
                "certificate_file": "/c",
                "private_key_file": "/k",
                "refresh_interval": "90.5s",
            },
            TlsConfig("/ca", "/c", "/k", 90.5),
        ),
        ({"refresh_interval": "0.000001s"}, TlsConfig(refresh_interval_s=1.0)),
        ({"certificate_file": None, "refresh_interval": None}, TlsConfig()),
    ],
)
def test_tls_creds_have_files_and_an_interval(config: dict[str, object], parsed: TlsConfig) -> None:
    creds = parse_server(channel_creds=tls(**config)).channel_creds
    assert creds == ChannelCreds("tls", parsed)


@pytest.mark.parametrize(
    ("given", "missing"),
    [("certificate_file", "private_key_file"), ("private_key_file", "certificate_file")],
)
def test_certificate_needs_key_and_key_needs_certificate(given: str, missing: str) -> None:
    path = f"field:xds_servers[0].channel_creds[0].config.{missing} error:is missing"
    creds = tls(**{given: "/x"})
    assert path in errors_of({"xds_servers": [server(channel_creds=creds)]})


def test_call_creds_of_every_supported_type_are_used() -> None:
    creds = [
        {"type": "oauth", "config": 3},
        {"type": "jwt_token_file", "config": {"jwt_token_file": "/a"}},
        {"type": "jwt_token_file", "config": {"jwt_token_file": "/b", "x": 1}},
    ]
    assert parse_server(call_creds=creds).call_creds == (
        CallCreds("jwt_token_file", "/a"),
        CallCreds("jwt_token_file", "/b"),
    )


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (None, ".config error:is missing, wanted an object with jwt_token_file"),
        ({}, ".config.jwt_token_file error:is missing or empty, wanted a string"),
        ({"jwt_token_file": ""}, ".config.jwt_token_file error:is missing or empty"),
    ],
)
def test_token_needs_its_file(config: object, error: str) -> None:
    creds = [{"type": "jwt_token_file", "config": config}]
    path = f"[field:xds_servers[0].call_creds[0]{error}"
    assert errors_of({"xds_servers": [server(call_creds=creds)]}).startswith(path)


# Features


def test_server_has_only_its_known_features() -> None:
    features = ["xds_v3", 3, None, {"a": []}, [], "trusted_xds_server", "fail_on_data_errors"]
    config = parse_server(server_features=features)
    assert config.features == {"trusted_xds_server", "fail_on_data_errors"}
    assert config.is_trusted
    others = ["ignore_resource_deletion", "resource_timer_is_transient_error"]
    config = parse_server(server_features=others)
    assert config.features == set(others)
    assert not config.is_trusted


def test_bootstrap_has_a_trusted_server_when_any_server_is_trusted() -> None:
    plain, trusted = parse_server(), parse_server(server_features=["trusted_xds_server"])
    assert not Bootstrap(servers=(plain,)).has_trusted_server
    assert Bootstrap(servers=(plain, trusted)).has_trusted_server
    of_another = Authority((trusted,), "xdstp://other/%s")
    assert Bootstrap(servers=(plain,), authorities={"other": of_another}).has_trusted_server


def test_servers_are_equal_when_they_differ_only_in_unknown_fields() -> None:
    plain = parse_server()
    assert plain == parse_server(server_features=["xds_v3", {}], later=1)
    assert len({plain, parse_server(server_features=["new"])}) == 1
    assert plain != parse_server(server_features=["trusted_xds_server"])
    assert plain != parse_server(channel_creds=tls())


# Node


def test_node_is_read_in_both_spellings_of_proto_json() -> None:
    node = {"id": "n", "cluster": "c", "locality": {"region": "r", "zone": "z", "subZone": "s"}}
    assert parse(minimal(node=node)).node == Node("n", "c", Locality("r", "z", "s"))
    other = {"locality": {"sub_zone": "s"}, "userAgentName": 3}
    assert parse(minimal(node=other)).node == Node(locality=Locality(sub_zone="s"))


def test_metadata_is_a_copy_of_any_json() -> None:
    metadata: dict[str, object] = {"a": [1, {"b": None}], "c": True}
    parsed = parse(minimal(node={"metadata": metadata})).node.metadata
    assert parsed == {"a": [1, {"b": None}], "c": True}
    metadata["c"] = False
    assert parsed["c"] is True
    with pytest.raises(TypeError):
        parsed["d"] = 1  # type: ignore[index]


def test_equal_bootstraps_have_equal_hashes() -> None:
    document = minimal(node={"metadata": {"a": []}}, authorities={"x": {}})
    assert hash(parse(document)) == hash(parse(document))


# Authorities and certificate providers


def test_authority_has_defaults() -> None:
    authorities = parse(minimal(authorities={"a b": {}, "": {"xds_servers": None}})).authorities
    assert authorities == {
        "a b": Authority((), "xdstp://a%20b/envoy.config.listener.v3.Listener/%s"),
        "": Authority((), "xdstp:///envoy.config.listener.v3.Listener/%s"),
    }


def test_authority_has_its_own_servers_and_template() -> None:
    template = "xdstp://auth/envoy.config.listener.v3.Listener/x/%s?p=1"
    entry = {
        "xds_servers": [server("other")],
        "client_listener_resource_name_template": template,
        "fallback_on_reachability_only": True,
    }
    servers = (ServerConfig("other", ChannelCreds("insecure")),)
    assert parse(minimal(authorities={"auth": entry})).authorities == {
        "auth": Authority(servers, template, fallback_on_reachability_only=True)
    }


@pytest.mark.parametrize("template", ["%s", "xdstp://other/%s", "xdstp://authx/T/%s"])
def test_template_must_begin_with_the_prefix_of_its_authority(template: str) -> None:
    entry = {"client_listener_resource_name_template": template}
    assert errors_of(minimal(authorities={"auth": entry})) == (
        '[field:authorities["auth"].client_listener_resource_name_template '
        f"error:is {template!r}, wanted a text that begins with 'xdstp://auth/']"
    )


def test_errors_of_authorities_have_their_path() -> None:
    authorities = {
        "a": {"xds_servers": [{"server_uri": "", "channel_creds": INSECURE}]},
        "b": [],
        "c": {"fallback_on_reachability_only": "yes"},
    }
    assert errors_of(minimal(authorities=authorities)) == (
        '[field:authorities["a"].xds_servers[0].server_uri '
        "error:is missing or empty, wanted a string; "
        'field:authorities["b"] error:is a list, wanted an object; '
        'field:authorities["c"].fallback_on_reachability_only '
        "error:is 'yes', wanted a boolean]"
    )


def test_number_of_authorities_is_bounded() -> None:
    authorities: dict[str, object] = {str(number): {} for number in range(AUTHORITIES_MAX + 1)}
    assert "has 1001 entries" in errors_of(minimal(authorities=authorities))


def test_certificate_provider_needs_a_plugin() -> None:
    providers = {"p": {"config": {"a": 1}}, "q": {"plugin_name": "x", "config": []}}
    assert errors_of(minimal(certificate_providers=providers)) == (
        '[field:certificate_providers["p"].plugin_name '
        "error:is missing or empty, wanted a string; "
        'field:certificate_providers["q"].config error:is a list, wanted an object]'
    )


# Bootstraps of generators


def load_fixture(name: str) -> Bootstrap:
    bootstrap = load_bootstrap(FIXTURES / name, {})
    assert isinstance(bootstrap, Bootstrap), bootstrap
    return bootstrap


def test_bootstrap_of_the_istio_agent_is_loaded() -> None:
    bootstrap = load_fixture("istio.json")
    [only] = bootstrap.servers
    assert only == ServerConfig("unix:///./etc/istio/proxy/XDS", ChannelCreds("insecure"))
    assert bootstrap.node.id.startswith("sidecar~10.244.0.17~orders")
    assert bootstrap.node.locality == Locality()
    assert bootstrap.node.metadata["GENERATOR"] == "grpc"
    provider = bootstrap.certificate_providers["default"]
    assert provider.plugin_name == "file_watcher"
    assert provider.config["refresh_interval"] == "900s"


def test_bootstrap_of_the_traffic_director_generator_is_loaded() -> None:
    bootstrap = load_fixture("traffic_director.json")
    [only] = bootstrap.servers
    assert only.uri == "trafficdirector.googleapis.com:443"
    assert only.channel_creds == ChannelCreds("google_default", TlsConfig())
    assert only.features == {"ignore_resource_deletion"}
    assert bootstrap.node.locality == Locality(zone="europe-west1-b")
    c2p = bootstrap.authorities["traffic-director-c2p.xds.googleapis.com"]
    assert [each.uri for each in c2p.servers] == ["dns:///directpath-pa.googleapis.com"]
    assert bootstrap.authorities["traffic-director-global.xds.googleapis.com"].servers == ()
    assert bootstrap.client_default_listener_resource_name_template == "%s"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("unix:///./etc/istio/proxy/XDS", "/./etc/istio/proxy/XDS"),
        ("unix:///etc/istio/proxy/XDS", "/etc/istio/proxy/XDS"),
        # The agent puts three slashes before any path.
        ("unix:////run/istio/proxy/XDS", "//run/istio/proxy/XDS"),
    ],
)
def test_socket_of_the_istio_agent_is_a_valid_target(uri: str, path: str) -> None:
    target = parse_target(parse_server(server_uri=uri).uri, {"unix"})
    assert parse_address(f"unix:{target.path}") == UnixAddress(path)


# Random documents


# Own fields


def test_config_cache_is_off_by_default() -> None:
    assert parse(minimal()).config_cache is None


def test_config_cache_has_a_directory_and_an_age() -> None:
    own: dict[str, object] = {"config_cache": "/var/cache/mesh"}
    parsed = parse(minimal(proxyless=own))
    assert parsed.config_cache == ConfigCacheConfig("/var/cache/mesh", 86_400.0)
    parsed = parse(minimal(proxyless=own | {"config_cache_max_age": "60s"}))
    assert parsed.config_cache == ConfigCacheConfig("/var/cache/mesh", 60.0)
    assert "config_cache" in errors_of(minimal(proxyless={"config_cache": 7}))


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        (None, {}, "/bootstrap"),
        (None, {CACHE_VARIABLE: "/environment"}, "/environment"),
        ("/channel", {CACHE_VARIABLE: "/environment"}, "/channel"),
        ("", {CACHE_VARIABLE: "/environment"}, None),
    ],
)
def test_config_cache_of_the_channel_is_preferred_to_that_of_the_environment(
    given: str | None, environ: dict[str, str], expected: str | None
) -> None:
    own = {"config_cache": "/bootstrap", "config_cache_max_age": "60s"}
    chosen = choose_config_cache(parse(minimal(proxyless=own)), given, environ).config_cache
    assert chosen == (None if expected is None else ConfigCacheConfig(expected, 60.0))


def test_config_cache_of_the_environment_is_used_without_one_in_the_bootstrap() -> None:
    chosen = choose_config_cache(parse(minimal()), None, {CACHE_VARIABLE: "/environment"})
    assert chosen.config_cache == ConfigCacheConfig("/environment", 86_400.0)


def test_server_that_is_a_directory_of_files_needs_no_credentials() -> None:
    parsed = parse({"xds_servers": [{"server_uri": "file:///etc/mesh"}]})
    assert parsed.servers == (ServerConfig("file:///etc/mesh", ChannelCreds("insecure")),)


FIELD_NAMES = st.sampled_from(
    [
        "authorities",
        "call_creds",
        "certificate_file",
        "certificate_providers",
        "channel_creds",
        "client_default_listener_resource_name_template",
        "client_listener_resource_name_template",
        "config",
        "jwt_token_file",
        "locality",
        "metadata",
        "node",
        "plugin_name",
        "refresh_interval",
        "server_features",
        "server_uri",
        "type",
        "xds_servers",
    ]
)
TEXTS = st.sampled_from(["insecure", "tls", "jwt_token_file", "10s", "%s", "\ud800"]) | st.text()
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(FIELD_NAMES | st.text(), inner),
    max_leaves=8,
)


@given(ANY_JSON)
def test_load_returns_bootstrap_or_status_for_any_json(document: object) -> None:
    loaded = load_bootstrap("f", {}, Files(f=json.dumps(document).encode()))
    assert isinstance(loaded, Bootstrap | Status)
    if isinstance(loaded, Bootstrap):
        assert loaded.servers
    else:
        assert loaded.details.startswith("xds bootstrap: file 'f': ")


@given(st.dictionaries(FIELD_NAMES, ANY_JSON), st.dictionaries(FIELD_NAMES, ANY_JSON))
def test_load_returns_bootstrap_or_status_for_any_change_of_a_valid_bootstrap(
    fields: dict[str, object], server_fields: dict[str, object]
) -> None:
    document = {"xds_servers": [server() | server_fields]} | fields
    assert isinstance(load_bootstrap(document, {}), Bootstrap | Status)


@given(st.binary() | st.text().map(str.encode))
def test_load_returns_bootstrap_or_status_for_any_bytes(content: bytes) -> None:
    assert isinstance(load_bootstrap("f", {}, Files(f=content)), Bootstrap | Status)
