"""Unit tests of proxyless.base.http_proxy."""

from proxyless.base import EMPTY_ATTRIBUTES, HTTP_PROXY, HttpProxy, IpAddress

PROXY = IpAddress("192.0.2.9", 3128)


def test_what_it_is_told_about_us_is_not_shown() -> None:
    proxy = HttpProxy(PROXY, authorization="Basic c2VjcmV0")
    attributes = EMPTY_ATTRIBUTES.with_(HTTP_PROXY, proxy)
    assert "c2VjcmV0" not in repr(proxy) + repr(attributes)
    assert "192.0.2.9" in repr(attributes)


def test_another_target_or_authorization_is_another_way() -> None:
    ways = {
        HttpProxy(PROXY),
        HttpProxy(target="a:1"),
        HttpProxy(target="b:1"),
        HttpProxy(target="b:1", authorization="Basic x"),
    }
    assert len(ways) == 4
    assert HttpProxy(target="a:1") in ways


def test_it_is_described_beside_the_address() -> None:
    assert HttpProxy(PROXY).describe() == "through proxy 192.0.2.9:3128"
    assert HttpProxy(target="a:1", authorization="x").describe() == "a proxy, asked for a:1"
