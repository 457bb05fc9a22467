"""Unit tests of proxyless.base.http_proxy."""

from proxyless.base import EMPTY_ATTRIBUTES, HTTP_PROXY, HttpProxy, IpAddress

PROXY = IpAddress("192.0.2.9", 3128)


def test_authorization_is_not_in_the_repr() -> None:
    proxy = HttpProxy(PROXY, authorization="Basic c2VjcmV0")
    attributes = EMPTY_ATTRIBUTES.with_(HTTP_PROXY, proxy)
    assert "c2VjcmV0" not in repr(proxy) + repr(attributes)
    assert "192.0.2.9" in repr(attributes)


def test_proxies_with_other_target_or_authorization_are_not_equal() -> None:
    ways = {
        HttpProxy(PROXY),
        HttpProxy(target="a:1"),
        HttpProxy(target="b:1"),
        HttpProxy(target="b:1", authorization="Basic x"),
    }
    assert len(ways) == 4
    assert HttpProxy(target="a:1") in ways


def test_a_proxy_is_described() -> None:
    assert HttpProxy(PROXY).describe() == "through proxy 192.0.2.9:3128"
    assert HttpProxy(target="a:1", authorization="x").describe() == "a proxy, asked for a:1"
