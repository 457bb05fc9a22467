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


# Its authorities are those of A47's last example.
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


def refusal_of(text: str) -> str:
    status = parse_resource_name(text, LISTENER)
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    return status.details


# Names


@pytest.mark.parametrize("text", ["orders", "orders:8080", "", "a/b?c#d", "xdst://x", "%zz"])
def test_an_old_style_name_is_any_text(text: str) -> None:
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
def test_a_new_style_name_is_taken_apart(
    text: str, authority: str, resource_id: str, params: tuple[tuple[str, str], ...]
) -> None:
    name = parse(text)
    assert name == ResourceName(authority, LISTENER, resource_id, params)


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
def test_spellings_of_one_name_are_equal(one: str, other: str) -> None:
    prefix = f"xdstp://a/{LISTENER}/"
    assert parse(prefix + one) == parse(prefix + other)
    assert hash(parse(prefix + one)) == hash(parse(prefix + other))
    assert str(parse(prefix + one)) == str(parse(prefix + other))


@pytest.mark.parametrize("other", ["x?a=1", "x?a=1&b=3", "x?a=1&b=2&c=", "y?a=1&b=2", "X?a=1&b=2"])
def test_different_names_are_not_equal(other: str) -> None:
    prefix = f"xdstp://a/{LISTENER}/"
    assert parse(prefix + "x?a=1&b=2") != parse(prefix + other)


def test_the_same_text_in_another_authority_or_type_is_another_name() -> None:
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
def test_a_bad_new_style_name_is_a_status(text: str, what: str) -> None:
    assert refusal_of(text) == f"xds resource name {text!r} is not valid: {what}"


@given(
    st.text(),
    st.text(min_size=1),
    st.dictionaries(st.text(), st.text()).map(lambda params: tuple(sorted(params.items()))),
)
def test_parsing_the_canonical_text_gives_the_name(
    authority: str, resource_id: str, params: tuple[tuple[str, str], ...]
) -> None:
    # A param without name and value has no spelling.
    params = tuple(param for param in params if param != ("", ""))
    name = ResourceName(authority, LISTENER, resource_id, params)
    assert parse(str(name)) == name


@given(st.text() | st.text().map(lambda tail: f"xdstp://a/{LISTENER}/{tail}"))
def test_any_text_is_a_name_or_a_status(text: str) -> None:
    assert isinstance(parse_resource_name(text, LISTENER), ResourceName | Status)


# Templates


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
def test_without_templates_the_path_is_the_name_and_the_authority(path: str) -> None:
    expected = ListenerName("orders.example:80", "orders.example:80")
    assert listener_name_for_target(PLAIN, "", path) == expected


@pytest.mark.parametrize("path", ["", "/", "a/", "/a/b/", "//"])
def test_a_path_must_name_something(path: str) -> None:
    status = listener_name_for_target(PLAIN, "", path)
    assert isinstance(status, Status)
    assert status.code is StatusCode.UNAVAILABLE
    wanted = f"xds target has path {path!r}, wanted a name that does not end in '/'"
    assert status.details == wanted


def test_slashes_in_the_path_are_encoded_in_the_authority_only() -> None:
    assert listener_name_for_target(PLAIN, "", "/a/b") == ("a/b", "a%2Fb")


def test_the_default_template_may_be_an_xdstp_one() -> None:
    name = f"xdstp://xds.authority.com/{LISTENER}/grpc/client/server.example.com?project_id=1234"
    expected = (name, "server.example.com")
    assert listener_name_for_target(FEDERATED, "", "server.example.com") == expected
    target = ("xds.authority.com", "server.example.com")
    assert listener_name_for_target(FEDERATED, *target) == expected


def test_an_authority_without_template_has_a_default_one() -> None:
    name = f"xdstp://xds.other.com/{LISTENER}/server.other.com"
    found = listener_name_for_target(FEDERATED, "xds.other.com", "server.other.com")
    assert found == (name, "server.other.com")


@pytest.mark.parametrize(
    ("bootstrap", "known"),
    [(PLAIN, "none"), (FEDERATED, "'', 'xds.authority.com', 'xds.other.com'")],
)
def test_an_unknown_authority_is_a_status(bootstrap: Bootstrap, known: str) -> None:
    text = f"xds authority 'nobody' is not in the bootstrap, which knows {known}"
    status = Status(StatusCode.UNAVAILABLE, text)
    assert listener_name_for_target(bootstrap, "nobody", "x") == status
    assert servers_of(bootstrap, "nobody") == status


def test_a_default_template_of_an_unknown_authority_is_a_status() -> None:
    bootstrap = make_bootstrap(
        client_default_listener_resource_name_template=f"xdstp://gone/{LISTENER}/%s"
    )
    status = listener_name_for_target(bootstrap, "", "x")
    assert isinstance(status, Status)
    assert "xds authority 'gone' is not in the bootstrap" in status.details


def test_a_template_of_another_type_is_a_status() -> None:
    bootstrap = make_bootstrap(
        client_default_listener_resource_name_template=f"xdstp:///{CLUSTER}/%s"
    )
    assert isinstance(listener_name_for_target(bootstrap, "", "x"), Status)


@pytest.mark.parametrize(
    ("authority", "uris"),
    [(None, ["top"]), ("xds.authority.com", ["top"]), ("xds.other.com", ["other"]), ("", ["top"])],
)
def test_an_authority_without_servers_has_those_of_the_bootstrap(
    authority: str | None, uris: list[str]
) -> None:
    servers = servers_of(FEDERATED, authority)
    assert not isinstance(servers, Status)
    assert [each.uri for each in servers] == uris


@given(st.text(), st.text())
def test_any_target_has_a_name_or_a_status(authority: str, path: str) -> None:
    found = listener_name_for_target(FEDERATED, authority, path)
    assert isinstance(found, ListenerName | Status)
