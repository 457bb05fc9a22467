"""Unit tests of proxyless.xds.bootstrap.resource_names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyless.base import Status, StatusCode, ValidationErrors
from proxyless.xds.bootstrap import Bootstrap
from proxyless.xds.bootstrap.bootstrap import parse_bootstrap
from proxyless.xds.bootstrap.resource_names import (
    ListenerName,
    ResourceName,
    expand_template,
    listener_name_for_target,
    parse_resource_name,
    servers_of,
)

LISTENER = "envoy.config.listener.v3.Listener"
CLUSTER = "envoy.config.cluster.v3.Cluster"


def make_bootstrap(**fields: object) -> Bootstrap:
    creds = [{"type": "insecure"}]
    errors = ValidationErrors()
    bootstrap = parse_bootstrap(
        {"xds_servers": [{"server_uri": "top", "channel_creds": creds}], **fields}, errors
    )
    errors.raise_if_any("bootstrap")
    return bootstrap


# With the authorities of A47's last example.
FEDERATED = make_bootstrap(
    client_default_listener_resource_name_template=(
        f"xdstp://xds.authority.com/{LISTENER}/grpc/client/%s?project_id=1234"
    ),
    authorities={
        "xds.authority.com": {
            "client_listener_resource_name_template": (
                f"xdstp://xds.authority.com/{LISTENER}/grpc/client/%s?project_id=1234"
            )
        },
        "xds.other.com": {
            "xds_servers": [{"server_uri": "other", "channel_creds": [{"type": "insecure"}]}]
        },
        "": {},
    },
)
PLAIN = make_bootstrap()


def parse(text: str, resource_type: str = LISTENER) -> ResourceName:
    name = parse_resource_name(text, resource_type)
    assert isinstance(name, ResourceName), name
    return name


def error_of(text: str) -> str:
    status = parse_resource_name(text, LISTENER)
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    return status.details


# Names


@pytest.mark.parametrize("text", ["orders", "orders:8080", "", "a/b?c#d", "xdst://x", "%zz"])
def test_old_style_name_is_any_text(text: str) -> None:
    name = parse(text)
    assert name == ResourceName(None, LISTENER, text)
    assert str(name) == text


@pytest.mark.parametrize(
    ("text", "authority", "resource_id", "params"),
    [
        (f"xdstp://a/{LISTENER}/x", "a", "x", ()),
        (f"xdstp:///{LISTENER}/x/y/", "", "x/y/", ()),
        (f"xdstp://a.b:1/{LISTENER}/x?k=v", "a.b:1", "x", (("k", "v"),)),
        (f"xdstp://a/{LISTENER}/x%20y%2Fz", "a", "x y/z", ()),
        (f"xdstp://a/{LISTENER}/x?b=2&a=1&&c", "a", "x", (("a", "1"), ("b", "2"), ("c", ""))),
        (f"xdstp://a/{LISTENER}/x?k=%26%3D+#alt=y", "a", "x", (("k", "&=+"),)),
        (f"xdstp://a/{LISTENER}/x?k=1&k=2", "a", "x", (("k", "2"),)),
    ],
)
def test_new_style_name_is_parsed(
    text: str, authority: str, resource_id: str, params: tuple[tuple[str, str], ...]
) -> None:
    name = parse(text)
    assert name == ResourceName(authority, LISTENER, resource_id, params)


@pytest.mark.spec("A47-02")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x?a=1&b=2", "x?b=2&a=1"),
        ("x%41", "xA"),
        ("x%3a", "x:"),
        ("x", "x#directive"),
        ("x", "x?"),
    ],
)
def test_names_are_equal_when_only_their_spelling_differs(one: str, other: str) -> None:
    prefix = f"xdstp://a/{LISTENER}/"
    assert parse(prefix + one) == parse(prefix + other)
    assert hash(parse(prefix + one)) == hash(parse(prefix + other))
    assert str(parse(prefix + one)) == str(parse(prefix + other))


@pytest.mark.parametrize("other", ["x?a=1", "x?a=1&b=3", "x?a=1&b=2&c=", "y?a=1&b=2", "X?a=1&b=2"])
def test_different_names_are_not_equal(other: str) -> None:
    prefix = f"xdstp://a/{LISTENER}/"
    assert parse(prefix + "x?a=1&b=2") != parse(prefix + other)


def test_names_differ_when_authority_or_type_differs() -> None:
    assert parse(f"xdstp://a/{LISTENER}/x") != parse(f"xdstp://b/{LISTENER}/x")
    assert parse(f"xdstp://a/{LISTENER}/x") != parse(f"xdstp://a/{CLUSTER}/x", CLUSTER)
    assert parse("x") != parse(f"xdstp:///{LISTENER}/x")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("xdstp:", "wanted xdstp://authority/type/id"),
        ("xdstp:/a/b/c", "wanted xdstp://authority/type/id"),
        ("xdstp://a", f"has type '', wanted {LISTENER!r}"),
        (f"xdstp://a/{CLUSTER}/x", f"has type {CLUSTER!r}, wanted {LISTENER!r}"),
        (f"xdstp://a/{LISTENER}", f"has no id: wanted xdstp://a/{LISTENER}/id"),
        (f"xdstp://a/{LISTENER}/?k=v", f"has no id: wanted xdstp://a/{LISTENER}/id"),
        (f"xdstp://a/{LISTENER}/%ff", "wanted UTF-8 percent-encoded"),
        (f"xdstp://%ff/{LISTENER}/x", "wanted UTF-8 percent-encoded"),
        (f"xdstp://a/{LISTENER}/x?%ff=1", "wanted UTF-8 percent-encoded"),
    ],
)
def test_invalid_new_style_name_is_rejected(text: str, what: str) -> None:
    assert error_of(text) == f"xds resource name {text!r} is not valid: {what}"


@given(
    st.text(),
    st.text(min_size=1),
    st.dictionaries(st.text(), st.text()).map(lambda params: tuple(sorted(params.items()))),
)
def test_parsing_the_canonical_form_gives_an_equal_name(
    authority: str, resource_id: str, params: tuple[tuple[str, str], ...]
) -> None:
    # A param with empty name and value cannot be written.
    params = tuple(param for param in params if param != ("", ""))
    name = ResourceName(authority, LISTENER, resource_id, params)
    assert parse(str(name)) == name


@given(st.text() | st.text().map(lambda tail: f"xdstp://a/{LISTENER}/{tail}"))
def test_parser_returns_name_or_status_for_any_text(text: str) -> None:
    assert isinstance(parse_resource_name(text, LISTENER), ResourceName | Status)


# Templates


@pytest.mark.spec("A47-06")
@pytest.mark.parametrize(
    ("template", "name", "expanded"),
    [
        ("%s", "a b/c", "a b/c"),
        ("x/%s?y=%s", "a", "x/a?y=a"),
        ("fixed", "a", "fixed"),
        ("xdstp://h/T/%s", "a b/c:1", "xdstp://h/T/a%20b/c:1"),
        ("xdstp://h/T/%s", "[::1]?#%s", "xdstp://h/T/%5B::1%5D%3F%23%25s"),
        ("xdstp://h/T/%s", "!$&'()*+,;=:@-._~", "xdstp://h/T/!$&'()*+,;=:@-._~"),
        ("xdstp://h/T/%s", "é", "xdstp://h/T/%C3%A9"),
        ("%s", "%s", "%s"),
    ],
)
def test_names_are_percent_encoded_only_in_xdstp_templates(
    template: str, name: str, expanded: str
) -> None:
    assert expand_template(template, name) == expanded


# Targets


@pytest.mark.parametrize("path", ["orders.example:80", "/orders.example:80"])
def test_path_is_name_and_authority_without_templates(path: str) -> None:
    expected = ListenerName("orders.example:80", "orders.example:80")
    assert listener_name_for_target(PLAIN, "", path) == expected


@pytest.mark.parametrize("path", ["", "/", "a/", "/a/b/", "//"])
def test_path_is_rejected_when_it_has_no_name(path: str) -> None:
    status = listener_name_for_target(PLAIN, "", path)
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    expected = f"xds target has path {path!r}, wanted a name that does not end in '/'"
    assert status.details == expected


def test_slashes_are_encoded_only_in_the_authority() -> None:
    assert listener_name_for_target(PLAIN, "", "/a/b") == ListenerName("a/b", "a%2Fb")


@pytest.mark.spec("A47-04", "A47-05")
def test_default_template_may_be_an_xdstp_template() -> None:
    name = f"xdstp://xds.authority.com/{LISTENER}/grpc/client/server.example.com?project_id=1234"
    expected = ListenerName(name, "server.example.com")
    assert listener_name_for_target(FEDERATED, "", "server.example.com") == expected
    target = ("xds.authority.com", "server.example.com")
    assert listener_name_for_target(FEDERATED, *target) == expected


@pytest.mark.spec("A47-04")
def test_authority_has_a_default_template() -> None:
    name = f"xdstp://xds.other.com/{LISTENER}/server.other.com"
    found = listener_name_for_target(FEDERATED, "xds.other.com", "server.other.com")
    assert found == ListenerName(name, "server.other.com")


@pytest.mark.spec("A47-07")
@pytest.mark.parametrize(
    ("bootstrap", "names"),
    [(PLAIN, "none"), (FEDERATED, "'', 'xds.authority.com', 'xds.other.com'")],
)
def test_unknown_authority_is_rejected(bootstrap: Bootstrap, names: str) -> None:
    text = f"xds authority 'unknown' is not in the bootstrap, which has {names}"
    status = Status(StatusCode.UNAVAILABLE, text)
    assert listener_name_for_target(bootstrap, "unknown", "x") == status
    assert servers_of(bootstrap, "unknown") == status


def test_default_template_is_rejected_when_its_authority_is_unknown() -> None:
    bootstrap = make_bootstrap(
        client_default_listener_resource_name_template=f"xdstp://gone/{LISTENER}/%s"
    )
    status = listener_name_for_target(bootstrap, "", "x")
    assert isinstance(status, Status)
    assert "xds authority 'gone' is not in the bootstrap" in status.details


def test_template_is_rejected_when_it_has_another_type() -> None:
    bootstrap = make_bootstrap(
        client_default_listener_resource_name_template=f"xdstp:///{CLUSTER}/%s"
    )
    assert isinstance(listener_name_for_target(bootstrap, "", "x"), Status)


@pytest.mark.spec("A47-03")
@pytest.mark.parametrize(
    ("authority", "uris"),
    [(None, ["top"]), ("xds.authority.com", ["top"]), ("xds.other.com", ["other"]), ("", ["top"])],
)
def test_authority_has_the_servers_of_the_bootstrap_when_it_has_none(
    authority: str | None, uris: list[str]
) -> None:
    servers = servers_of(FEDERATED, authority)
    assert not isinstance(servers, Status)
    assert [each.uri for each in servers] == uris


@given(st.text(), st.text())
def test_any_target_has_a_listener_name_or_a_status(authority: str, path: str) -> None:
    found = listener_name_for_target(FEDERATED, authority, path)
    assert isinstance(found, ListenerName | Status)
